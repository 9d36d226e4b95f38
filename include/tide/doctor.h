/* doctor.h: what this machine can do and what would slow a run down. C17 and C++; the rules of
 * tide.h hold. */
#ifndef TIDE_DOCTOR_H
#define TIDE_DOCTOR_H

#include <stddef.h>
#include <tide/tide.h>

#ifdef __cplusplus
extern "C" {
#endif

enum tide_verdict {
    TIDE_OK,   /* as good as it gets here */
    TIDE_WARN, /* a run works, slower or smaller than this machine could */
    TIDE_FAIL, /* a run that needs this fails */
};

/* One line of the doctor. The strings live during the call that hands it over. */
struct tide_finding {
    size_t struct_bytes;
    enum tide_verdict verdict;
    const char *topic;   /* "cpu", "memory", "numa", "pages", "memlock", "io", "gpu", "library",
                            "store", "drive" */
    const char *subject; /* the store's folder, the drive, the library; "" for the machine */
    const char *text;    /* what is so */
    const char *cure;    /* a command, or what to do, where the verdict is not TIDE_OK; else "" */
    const char
        *figure; /* what `value` counts, as "copy_bytes_per_second"; "" where there is none */
    double value;
};

struct tide_doctor_options {
    size_t struct_bytes;
    const char *const *stores; /* folders that a run would use; each is written to and read from for
                                  about a second in all, and nothing stays there */
    size_t store_count;
    /* Gets each finding on the calling thread, in a fixed order of topics. It must not call tide. */
    void (*finding)(void *user, const struct tide_finding *finding);
    void *user;
};

/* Looks at this machine and measures what it can, in less than five seconds. Needs no privileges.
 * The worst verdict that was reported (TIDE_OK to TIDE_FAIL), or -errno where it could not look. */
TIDE_API int tide_doctor(struct tide_context *context, const struct tide_doctor_options *options);

#ifdef __cplusplus
}
#endif

#endif
