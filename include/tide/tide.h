/* tide.h: libtide's conventions, what this build is, contexts and devices. C17 and C++.
 *
 * Every public header keeps these rules:
 *   - A function that can fail returns int: 0 (or a count), or a negative errno. Then
 *     tide_last_error() has a sentence with names and numbers for the calling thread, also where the
 *     work was done by a thread of tide's own.
 *   - Objects are opaque and come in pairs: create/destroy, open/close. Destroying NULL is fine.
 *   - Out-parameters come last and are written only on success.
 *   - A struct that crosses the border begins with `struct_bytes`, which the caller sets to the
 *     struct's sizeof, also in structs that are filled by tide. A program built against an older
 *     header goes on working: fields that it does not know take their default. Bytes that this
 *     library does not know have to be zero (-E2BIG otherwise).
 *   - Zero is the default of every field. Strings are UTF-8. Strings in structs that tide fills live
 *     as long as the library unless their comment says otherwise.
 *   - There is no state outside the objects: two contexts in one process know nothing of each other.
 *     A context may be used by one thread at a time.
 * Names begin with tide_ and TIDE_; the shared library exports nothing else. */
#ifndef TIDE_TIDE_H
#define TIDE_TIDE_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define TIDE_API __attribute__((visibility("default")))
#else
#define TIDE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define TIDE_VERSION_MAJOR 0
#define TIDE_VERSION_MINOR 1
#define TIDE_VERSION_PATCH 0

/* The sentence of this thread's last error; "" when there was none. Valid until this thread's next
 * call into tide. */
TIDE_API const char *tide_last_error(void);

/* ---- What this build is ---- */

/* "0.1.0": of the library that runs, which may be newer than this header. */
TIDE_API const char *tide_version(void);

struct tide_build {
    size_t struct_bytes;
    const char *version;
    const char *commit;   /* of the sources; "unknown" where they came without their history */
    const char *compiler; /* "gcc 12.2.0" */
    const char *target;   /* "x86_64 linux release" */
};

TIDE_API int tide_build_info(struct tide_build *out);

/* A back end: one of several ways to do one thing. */
struct tide_backend {
    size_t struct_bytes;
    const char *room; /* what it is for: "device", "ranks", "io" */
    const char *name; /* "cuda" */
    int built;        /* 1: built in; whether it works here is found out where it is opened */
};

/* The index-th back end that tide knows, built in or not; -ENOENT beyond the last. */
TIDE_API int tide_backend_at(unsigned index, struct tide_backend *out);

/* A foreign library. */
struct tide_library {
    size_t struct_bytes;
    const char *name;  /* "hwloc" */
    const char *state; /* the version that was found, or why the library is not used */
};

/* The index-th foreign library that tide can use; -ENOENT beyond the last. */
TIDE_API int tide_library_at(unsigned index, struct tide_library *out);

/* ---- Context: where talk goes ---- */

enum tide_log_level { TIDE_LOG_ERROR, TIDE_LOG_WARN, TIDE_LOG_INFO, TIDE_LOG_DEBUG };

struct tide_progress {
    size_t struct_bytes;
    const char *phase; /* "measure copies"; valid during the call */
    uint64_t done;     /* of `total` */
    uint64_t total;    /* 0: not known */
};

struct tide_context_options {
    size_t struct_bytes;
    enum tide_log_level log_level; /* lines above it are dropped */
    /* Gets one line without its newline, from any thread that works for this context, at most one
     * at a time a thread. NULL: nothing is said. It must not call tide. */
    void (*log)(void *user, enum tide_log_level level, const char *line);
    /* Called on the thread that called tide. Non-zero asks to stop: the function that works returns
     * -ECANCELED as soon as it can. NULL: nothing is reported. It must not call tide. */
    int (*progress)(void *user, const struct tide_progress *progress);
    void *user; /* handed to both */
};

struct tide_context;

/* `options` NULL: a silent context. */
TIDE_API int tide_context_create(const struct tide_context_options *options,
                                 struct tide_context **out);
/* After everything that was made with it. */
TIDE_API void tide_context_destroy(struct tide_context *context);

/* ---- Devices ---- */

struct tide_device_info {
    size_t struct_bytes;
    char name[32];               /* "cpu", "cuda:0" */
    char description[128];       /* the product */
    uint64_t memory_total_bytes; /* of the hardware */
    uint32_t units;              /* processors, or multiprocessors of a card */
    uint32_t arch;               /* 90 for compute capability 9.0; 0 on the CPU */
    int32_t numa_node;           /* the nearest; -1 where unknown */
};

/* How many devices of a kind ("cpu", "cuda") work now: at least 1; or -ENODEV, or -ENOTSUP where
 * the kind is not built in: the sentence says why and what would cure it. */
TIDE_API int tide_device_count(struct tide_context *context, const char *kind);

/* `device` is "cpu", "cuda" or "cuda:N". Opens it for the question. */
TIDE_API int tide_device_describe(struct tide_context *context, const char *device,
                                  struct tide_device_info *out);

struct tide_device_rates { /* bytes a second */
    size_t struct_bytes;
    double up;     /* host to device */
    double down;   /* device to host */
    double both;   /* each of the two at once */
    double within; /* bytes copied inside the device */
};

/* Measures copies of `bytes`; takes four times that memory, two on either side. */
TIDE_API int tide_device_measure(struct tide_context *context, const char *device, size_t bytes,
                                 struct tide_device_rates *out);

#ifdef __cplusplus
}
#endif

#endif
