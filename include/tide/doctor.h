/* doctor.h: what this machine can do, and what would slow a run down. The rules of tide.h apply. */
#ifndef TIDE_DOCTOR_H
#define TIDE_DOCTOR_H

#include <stddef.h>
#include <tide/tide.h>

#ifdef __cplusplus
extern "C" {
#endif

enum tide_verdict {
    TIDE_OK,   /* nothing to improve */
    TIDE_WARN, /* a run works, but slower or smaller than possible here */
    TIDE_FAIL, /* a run that needs this will fail */
};

/* One finding; valid with its strings during the callback that receives it. */
struct tide_finding {
    size_t struct_bytes;
    uint64_t verdict; /* enum tide_verdict */
    /* "cpu", "memory", "numa", "pages", "memlock", "io", "gpu", "library", "store" or "drive" */
    const char *topic;
    /* a store's folder, a drive, a library, or for "io" an interface or "choice"; "": the
     * machine */
    const char *subject;
    const char *text; /* what was found */
    const char *cure; /* what to do, often a command; "" with TIDE_OK */
    /* name of `value`, such as "copy_bytes_per_second"; "": no value */
    const char *figure;
    double value;
};

struct tide_doctor_options {
    size_t struct_bytes;
    /* folders that a run would use. Each is written and read for a second or two, less if there are
     * many; no file remains */
    const char *const *stores;
    size_t store_count;
    /* Receives findings on the calling thread, in a fixed order of topics. Must not call a tide
     * function. */
    void (*finding)(void *user, const struct tide_finding *finding);
    void *user; /* passed to the callback */
};

/* Examines and measures this machine in about five seconds, without privileges. Returns the worst
 * reported verdict: TIDE_OK, TIDE_WARN or TIDE_FAIL. */
TIDE_API int tide_doctor(struct tide_context *context, const struct tide_doctor_options *options);

#ifdef __cplusplus
}
#endif

#endif
