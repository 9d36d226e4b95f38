/* backend.h: the contract of a back end, and the registry of built-in back ends.
 * A back end is a constant struct of functions in backend_<name>.c, called by the drive's thread.
 * The drive does what back ends share: cutting, ordering, retries, checksums, time limits. Any
 * thread may call `probe` and `wake`. */
#ifndef AIO_BACKEND_H
#define AIO_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

enum aio_kind { AIO_READ, AIO_WRITE, AIO_SYNC };

/* One transfer of at most AIO_TRANSFER_MAX_BYTES. AIO_SYNC makes completed writes to the file
 * durable. */
struct aio_op {
    uint64_t token; /* below AIO_TOKEN_LIMIT */
    enum aio_kind kind;
    uint32_t bytes;
    uint32_t file;  /* index of the attached file */
    int32_t buffer; /* registered buffer that holds all of `memory`; -1: none */
    int fd;
    uint64_t offset;
    void *memory;
};

/* `result`: bytes transferred, possibly fewer than requested, or -errno. */
struct aio_event {
    uint64_t token;
    int64_t result;
};

enum { AIO_FILES_MAX = 64, AIO_DEPTH_MAX = 1024, AIO_BUFFERS_MAX = 1024 };
#define AIO_TRANSFER_MAX_BYTES 0x7ffff000u
#define AIO_BUFFER_MAX_BYTES   ((uint64_t)1 << 30)
#define AIO_TOKEN_LIMIT        ((uint64_t)1 << 56)

struct aio_backend_options {
    const char *drive;
    uint32_t depth;     /* ops in flight at once, 1 to AIO_DEPTH_MAX */
    void *context;      /* mem: its struct aio_mem_disk */
    void *user;         /* `user` of the struct aio_backend */
    bool sqpoll;        /* uring: a kernel thread submits */
    bool iopoll;        /* uring: polls for completions; needs poll queues and direct I/O */
    bool no_file_table; /* uring: do not register files */
    /* uring: set-up flags to treat as refused by the kernel */
    uint32_t refused_flags;
};

struct aio_backend {
    const char *name;
    void *user;         /* passed to open; NULL in built-in back ends */
    uint32_t depth_max; /* limit of ops in flight; 0: AIO_DEPTH_MAX */
    /* Returns 0 if the back end works on this machine, else -errno. `reason` gets an
     * explanation. */
    int (*probe)(char *reason, size_t bytes);
    int (*open)(const struct aio_backend_options *options, void **state);
    /* Called with nothing in flight. */
    void (*close)(void *state);
    /* Makes `fd` the descriptor of file `index`; with `fd` -1, detaches the file. */
    int (*attach)(void *state, uint32_t index, int fd);
    /* Registers buffers of at most AIO_BUFFER_MAX_BYTES each; not called again after success. After
     * -errno, ops must not name them. */
    int (*buffers)(void *state, const struct iovec *slabs, unsigned count);
    /* Accepts ops from the first on, perhaps not all. Returns their number, or -errno if none.
     * Some back ends pass them to the kernel in `reap`. */
    int (*submit)(void *state, const struct aio_op *ops, unsigned count);
    /* Passes accepted ops to the kernel and collects up to `max` events. Waits for `min` events,
     * but at most wait_ns; may return earlier, for example after wake(). Returns the number of
     * events, or -errno. */
    int (*reap)(void *state, struct aio_event *events, unsigned max, unsigned min, int64_t wait_ns);
    void (*wake)(void *state);
    /* Tries to cancel a transfer, which still ends with an event. Until then its memory may be
     * accessed. */
    void (*cancel)(void *state, uint64_t token);
    /* Returns how the back end was set up ("io_uring (single_issuer defer_taskrun ...)"). */
    const char *(*describe)(void *state);
};

extern const struct aio_backend aio_uring;
extern const struct aio_backend aio_libaio;
extern const struct aio_backend aio_threads;
extern const struct aio_backend aio_mem;

/* A disk in memory: the context of back end `mem`. All attached files share its bytes; transfers
 * are served one after another. While nothing is in flight, the caller may access `memory` and
 * change the rates. */
struct aio_mem_disk {
    unsigned char *memory; /* owned */
    uint64_t bytes;
    uint64_t read_bytes_per_s;  /* 0: unlimited */
    uint64_t write_bytes_per_s; /* 0: unlimited */
    int64_t latency_ns;         /* added to each transfer */
    int64_t free_ns;            /* used by the back end */
};

int aio_mem_create(uint64_t bytes, struct aio_mem_disk **out);
void aio_mem_destroy(struct aio_mem_disk *disk);

enum { AIO_REASON_BYTES = 256 };

/* Return 0 if the back end works here, else -errno (-ENOTSUP: not built in). `reason` gets an
 * explanation. */
int aio_probe_uring(char *reason, size_t bytes);
int aio_probe_libaio(char *reason, size_t bytes);
int aio_probe_threads(char *reason, size_t bytes);

/* Returns the back end called `name`: uring (or io_uring), libaio, threads or mem; NULL: unknown or
 * not built in. */
const struct aio_backend *aio_backend_find(const char *name);

/* Chooses a back end. With `wanted` NULL or "auto": the first that works of io_uring, libaio (only
 * if `direct`: it blocks on buffered files) and threads. Another name selects that back end, or
 * fails with a message. `reason` (may be NULL) gets the choice and its cause. */
int aio_backend_choose(const char *wanted, bool direct, char *reason, size_t bytes,
                       const struct aio_backend **out);

#endif
