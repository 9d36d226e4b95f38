/* backend.h: what a way of doing I/O has to offer. A back end is a const recipe of functions in one
 * file (aio_<name>.c); the drive (drive.h) is its only caller and does everything that all of them
 * need: cutting, ordering, retries, checksums, the watchdog. All functions run on the drive's
 * thread, `wake` alone may be called by any thread. */
#ifndef AIO_BACKEND_H
#define AIO_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

enum aio_kind { AIO_READ, AIO_WRITE, AIO_SYNC };

/* One transfer, at most AIO_TRANSFER_MAX_BYTES. SYNC makes what was written to the file durable. */
struct aio_op {
    uint64_t token; /* comes back in the event; below AIO_TOKEN_LIMIT */
    enum aio_kind kind;
    uint32_t bytes;
    uint32_t file;  /* index of the attached file */
    int32_t buffer; /* registered buffer that holds all of `memory`; -1: none */
    int fd;
    uint64_t offset;
    void *memory;
};

/* `result`: bytes moved, possibly fewer than asked, or -errno. */
struct aio_event {
    uint64_t token;
    int64_t result;
};

enum { AIO_FILES_MAX = 64, AIO_DEPTH_MAX = 1024, AIO_BUFFERS_MAX = 1024 };
#define AIO_TRANSFER_MAX_BYTES 0x7ffff000u
#define AIO_BUFFER_MAX_BYTES   ((uint64_t)1 << 30)
#define AIO_TOKEN_LIMIT        ((uint64_t)1 << 56)

struct aio_backend_options {
    const char *drive;      /* for messages */
    uint32_t depth;         /* ops in flight at once, 1 to AIO_DEPTH_MAX */
    void *context;          /* from the drive's options. mem: its struct aio_mem_disk; else NULL */
    void *user;             /* from the recipe */
    bool sqpoll;            /* uring: a kernel thread submits */
    bool iopoll;            /* uring: completions are polled (needs poll queues and direct I/O) */
    bool no_file_table;     /* uring: do not register files */
    uint32_t refused_flags; /* uring: set-up flags to treat as refused by the kernel, for tests */
};

struct aio_backend {
    const char *name;
    void *user;         /* borrowed; passed to open; NULL in the back ends of this folder */
    uint32_t depth_max; /* ops that it can have in flight; 0: AIO_DEPTH_MAX */
    /* 0 if it works on this machine, else -errno; `reason` gets the why in either case. */
    int (*probe)(char *reason, size_t bytes);
    int (*open)(const struct aio_backend_options *options, void **state);
    /* Called with nothing in flight. */
    void (*close)(void *state);
    /* File `index` is `fd` from now on; fd -1 empties the place. */
    int (*attach)(void *state, uint32_t index, int fd);
    /* Each at most AIO_BUFFER_MAX_BYTES. 0 if they are registered; -errno: they are not, and ops
     * must not name them. At most once. */
    int (*buffers)(void *state, const struct iovec *slabs, unsigned count);
    /* Takes ops in order and returns how many it took (fewer when it is full), or -errno when it
     * took none. It may leave sending them to `reap`. */
    int (*submit)(void *state, const struct aio_op *ops, unsigned count);
    /* Sends what waits, then collects up to `max` events. Blocks until `min` are there, wake() is
     * called or wait_ns is over; with min 0 never. Returns how many, 0 included, or -errno. */
    int (*reap)(void *state, struct aio_event *events, unsigned max, unsigned min, int64_t wait_ns);
    void (*wake)(void *state);
    /* Asks for an early end. The event still comes, and the memory is the kernel's until then. */
    void (*cancel)(void *state, uint64_t token);
    /* How it was set up, in words ("single_issuer defer_taskrun ..."). */
    const char *(*describe)(void *state);
};

extern const struct aio_backend aio_uring;
extern const struct aio_backend aio_libaio;
extern const struct aio_backend aio_threads;
extern const struct aio_backend aio_mem;

/* The context of back end `mem`. Every attached file is these bytes. Read by the drive's thread;
 * the caller may look at `bytes` when nothing is in flight, and change the rates between runs. */
struct aio_mem_disk {
    unsigned char *memory; /* owned */
    uint64_t bytes;
    uint64_t read_bytes_per_s;  /* 0: as fast as memory is */
    uint64_t write_bytes_per_s; /* the same; both share one drive */
    int64_t latency_ns;         /* added to each transfer */
    int64_t free_ns;            /* when the drive has done what was asked of it */
};

/* Zeroed bytes. */
int aio_mem_create(uint64_t bytes, struct aio_mem_disk **out);
void aio_mem_destroy(struct aio_mem_disk *disk);

enum { AIO_REASON_BYTES = 256 };

/* 0 if it works here, else -errno (-ENOSYS, -EPERM, -ENOTSUP when not built in ...). `reason` says
 * why in words in either case. Nothing stays open. */
int aio_probe_uring(char *reason, size_t bytes);
int aio_probe_libaio(char *reason, size_t bytes);
int aio_probe_threads(char *reason, size_t bytes);

/* The back end of that name: uring (io_uring), libaio, threads, mem. NULL: not known or not
 * built in. */
const struct aio_backend *aio_backend_find(const char *name);

/* Picks a back end. `wanted` NULL or "auto": io_uring, else libaio where `direct` (buffered libaio
 * blocks in submit), else threads; any other name: that one or an error that says why not.
 * `reason` (may be NULL) tells what was picked and why. */
int aio_backend_choose(const char *wanted, bool direct, char *reason, size_t bytes,
                       const struct aio_backend **out);

#endif
