/* tide.h: the conventions of libtide, information about the build, contexts and devices. C17 and
 * C++11.
 *
 * These rules apply to every public header.
 *
 * Errors. A function that can fail returns an int: 0 or more on success, a negative errno on
 * failure. After a failure, tide_last_error() returns a message. The message belongs to the calling
 * thread, even if another thread did the work. Output parameters come last and are written on
 * success only, unless a comment says otherwise. Comments name the errors that a program may want
 * to tell apart; others are possible: -EINVAL for arguments, -ENOMEM, -EIO, and those of system
 * calls.
 *
 * Objects. Objects are opaque. One function makes an object (create, open or alloc), another one
 * ends it (destroy, close or free) and accepts NULL. Other functions need a valid object, unless
 * their comment says what NULL means. A function that can fail returns -EINVAL if an object or an
 * output parameter is NULL, unless its comment allows that. A `context` parameter may be NULL (a
 * silent context), except in tide_folder_claim.
 *
 * Ownership. The caller keeps everything that it passes. The library reads strings, structs and
 * arrays during the call only, unless a comment names a longer time. Strings are UTF-8 and end with
 * a zero byte. Returned strings live as long as the library, unless their comment says otherwise. A
 * char array in a struct ends with a zero byte; longer text is cut.
 *
 * Threads. A context and the objects created with it form a group. Any thread may use a group, but
 * only one at a time, unless the header of an object allows more. Different groups are independent:
 * several threads may use a context each at the same time. An object created with the context NULL
 * is a group of its own. Any thread may call functions without a context or an object at any time.
 *
 * The application. The library installs no signal handlers, never exits (except in
 * tide_world_close), writes neither to stdout nor to stderr, and changes neither the environment
 * nor the working directory. Its threads block all signals except those that report faults. It
 * neither uses nor changes the caller's floating-point modes, and does not change the locale.
 *
 * Growth. The library may be newer or older than a program's header:
 * - Every struct begins with `struct_bytes`. The caller sets it to the struct's sizeof, even in
 *   structs that the library fills; an impossible size is -EINVAL. Fields are only added at the
 *   end; no struct has padding. Elements of an array have the same `struct_bytes`, which is also
 *   their distance.
 * - Older program, newer library: the library neither reads nor writes beyond `struct_bytes`. A
 *   field unknown to the program counts as zero.
 * - Newer program, older library: bytes unknown to the library must be zero in structs that it
 *   reads, otherwise the call fails with -E2BIG. In structs that it fills they become zero.
 * - In a struct that the library passes to a callback, `struct_bytes` is the library's size. A
 *   program does not read a field that ends beyond it.
 * - Enums may get new values. Fields and parameters carry enums as integers of fixed size.
 *
 * Defaults. Zero is the default of every field of a struct without an init function. If there is an
 * init function, the program calls it before it sets fields; a zero then means what the field's
 * comment says. In a field added later, zero means the behaviour from before the field existed.
 *
 * All names begin with tide_ or TIDE_. The shared library exports nothing else. */
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

/* Returns the message of this thread's last error, or "". Valid until this thread's next call of a
 * tide function. */
TIDE_API const char *tide_last_error(void);

/* ---- The build ---- */

/* Returns the running library's version, such as "0.1.0". It may differ from the header's
 * TIDE_VERSION_*. */
TIDE_API const char *tide_version(void);

struct tide_build {
    size_t struct_bytes;
    const char *version;
    /* of the sources; "unknown" without a git history */
    const char *commit;
    const char *compiler; /* "gcc 12.2.0" */
    const char *target;   /* "x86_64 linux release" */
};

/* Describes the running library. Returns 0 or an error. */
TIDE_API int tide_build_info(struct tide_build *out);

/* One of several implementations of one task. */
struct tide_backend {
    size_t struct_bytes;
    const char *task; /* "device" or "ranks" */
    const char *name; /* "cuda" */
    uint64_t built;   /* 1: compiled in. Opening it shows whether it works here */
};

/* Describes one back end, compiled in or not. Returns 0 or an error. -ENOENT: there is none at
 * `index`. */
TIDE_API int tide_backend_at(unsigned index, struct tide_backend *out);

/* A third-party library that tide can use. */
struct tide_library {
    size_t struct_bytes;
    const char *name;  /* "hwloc" */
    const char *state; /* its version, "found" or "required", or why it is not used */
};

/* Describes one third-party library. Returns 0 or an error. -ENOENT: there is none at `index`. */
TIDE_API int tide_library_at(unsigned index, struct tide_library *out);

/* ---- Contexts: log and progress ---- */

enum tide_log_level { TIDE_LOG_ERROR, TIDE_LOG_WARN, TIDE_LOG_INFO, TIDE_LOG_DEBUG };

struct tide_progress {
    size_t struct_bytes;
    const char *phase; /* "measure", "load" ...; valid during the callback */
    uint64_t done;     /* the part of `total` that is done */
    uint64_t total;    /* 0: not known */
};

struct tide_context_options {
    size_t struct_bytes;
    uint64_t log_level; /* enum tide_log_level; messages of higher levels are dropped */
    /* Receives one message without a newline, on any thread that works for this context, possibly
     * on several at once. Must not call a tide function. NULL: messages are dropped. */
    void (*log)(void *user, uint32_t level, const char *line);
    /* Receives the progress of a long call, on the calling thread or, while that waits, on a thread
     * of the library. A result other than 0 requests cancellation: the call returns -ECANCELED as
     * soon as it can. Must not call a tide function. NULL: nothing is reported. */
    int (*progress)(void *user, const struct tide_progress *progress);
    void *user; /* passed to both callbacks; lives as long as the context */
};

struct tide_context;

/* Creates a context. With `options` NULL it has no callbacks. Returns 0 or an error. */
TIDE_API int tide_context_create(const struct tide_context_options *options,
                                 struct tide_context **out);
/* Destroys a context. All objects made with it must have been destroyed. */
TIDE_API void tide_context_destroy(struct tide_context *context);

/* ---- Devices ---- */

struct tide_device_info {
    size_t struct_bytes;
    char name[32];               /* "cpu", "cuda:0" */
    char description[128];       /* the product's name */
    uint64_t memory_total_bytes; /* memory of the hardware */
    uint32_t units;              /* processors of the CPU, multiprocessors of a GPU */
    uint32_t arch;               /* 90 for compute capability 9.0; 0 for the CPU */
    int64_t numa_node;           /* the nearest one; -1: unknown */
};

/* Counts the devices of a kind ("cpu", "cuda") that work now. Returns their number (1 or more).
 * -ENODEV: there is none; -ENOTSUP: the kind is not compiled in; both messages say what to do. */
TIDE_API int tide_device_count(struct tide_context *context, const char *kind);

/* Opens a device ("cpu", "cuda" or "cuda:N"), describes it and closes it. Returns 0 or an error. */
TIDE_API int tide_device_describe(struct tide_context *context, const char *device,
                                  struct tide_device_info *out);

/* Rates in bytes per second. */
struct tide_device_rates {
    size_t struct_bytes;
    double up;     /* host to device */
    double down;   /* device to host */
    double both;   /* each direction while both run */
    double within; /* copies inside the device */
};

/* Measures copies of `bytes` bytes. Needs two buffers of this size on the host and two on the
 * device. Returns 0 or an error. */
TIDE_API int tide_device_measure(struct tide_context *context, const char *device, size_t bytes,
                                 struct tide_device_rates *out);

#ifdef __cplusplus
}
#endif

#endif
