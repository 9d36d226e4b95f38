/* backend.h: the contract of a back end, and the registry of those that are built in. A back end is
 * a constant struct of functions in one file (backend_<name>.c). The drive (drive.h) calls them on
 * its thread and does the work that all back ends share: cutting, ordering, retries, checksums,
 * time limits. Any thread may call `probe` and `wake`. */
#ifndef AIO_BACKEND_H
#define AIO_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

enum aio_kind { AIO_READ, AIO_WRITE, AIO_SYNC };

/* One transfer of at most AIO_TRANSFER_MAX_BYTES. AIO_SYNC makes earlier writes to the file
 * durable. */
struct aio_op {
    uint64_t token; /* returned in the event; below AIO_TOKEN_LIMIT */
    enum aio_kind kind;
    uint32_t bytes;
    uint32_t file;  /* index of the attached file */
    int32_t buffer; /* registered buffer that holds all of `memory`; -1: none */
    int fd;
    uint64_t offset;
    void *memory;
};

/* `result` is the number of transferred bytes, possibly fewer than requested, or -errno. */
struct aio_event {
    uint64_t token;
    int64_t result;
};

enum { AIO_FILES_MAX = 64, AIO_DEPTH_MAX = 1024, AIO_BUFFERS_MAX = 1024 };
#define AIO_TRANSFER_MAX_BYTES 0x7ffff000u
#define AIO_BUFFER_MAX_BYTES   ((uint64_t)1 << 30)
#define AIO_TOKEN_LIMIT        ((uint64_t)1 << 56)

struct aio_backend_options {
    const char *drive;  /* for messages */
    uint32_t depth;     /* ops in flight at once, 1 to AIO_DEPTH_MAX */
    void *context;      /* from the drive's options: the struct aio_mem_disk for mem, otherwise
                         * NULL */
    void *user;         /* the user pointer of the struct aio_backend */
    bool sqpoll;        /* uring: a kernel thread submits */
    bool iopoll;        /* uring: completions are polled; needs poll queues and direct I/O */
    bool no_file_table; /* uring: do not register files */
    /* uring: set-up flags that are treated as if the kernel refused them */
    uint32_t refused_flags;
};

struct aio_backend {
    const char *name;
    void *user;         /* borrowed; passed to open; NULL in the back ends of this folder */
    uint32_t depth_max; /* ops that can be in flight; 0: AIO_DEPTH_MAX */
    /* Returns 0 if the back end works on this machine, else -errno; `reason` gets the explanation
     * in both cases. */
    int (*probe)(char *reason, size_t bytes);
    int (*open)(const struct aio_backend_options *options, void **state);
    /* Called with nothing in flight. */
    void (*close)(void *state);
    /* Makes `fd` the descriptor of file `index`; with `fd` -1, detaches the file. */
    int (*attach)(void *state, uint32_t index, int fd);
    /* Registers buffers of at most AIO_BUFFER_MAX_BYTES each; called at most once. On -errno they
     * are not registered, and ops must not name them. */
    int (*buffers)(void *state, const struct iovec *slabs, unsigned count);
    /* Accepts ops in order. Returns how many it accepted (fewer when it is full), or -errno if
     * none. The kernel may get them only in `reap`. */
    int (*submit)(void *state, const struct aio_op *ops, unsigned count);
    /* Passes accepted ops to the kernel, then collects up to `max` events. Blocks until there are
     * `min` events, wake() is called or wait_ns has passed; may return earlier, and never blocks
     * with min 0. Returns the number of events, possibly 0, or -errno. */
    int (*reap)(void *state, struct aio_event *events, unsigned max, unsigned min, int64_t wait_ns);
    void (*wake)(void *state);
    /* Asks the kernel to cancel a transfer. The transfer still ends with an event; until then the
     * kernel may access the memory. */
    void (*cancel)(void *state, uint64_t token);
    /* Returns how the back end was set up ("io_uring (single_issuer defer_taskrun ...)"). */
    const char *(*describe)(void *state);
};

extern const struct aio_backend aio_uring;
extern const struct aio_backend aio_libaio;
extern const struct aio_backend aio_threads;
extern const struct aio_backend aio_mem;

/* A disk in memory: the context of back end `mem`. All attached files share its bytes, and it
 * serves reads and writes one after another. The drive's thread uses it; the caller may access
 * `memory` and change the rates while nothing is in flight. */
struct aio_mem_disk {
    unsigned char *memory; /* owned */
    uint64_t bytes;
    uint64_t read_bytes_per_s;  /* 0: unlimited */
    uint64_t write_bytes_per_s; /* 0: unlimited */
    int64_t latency_ns;         /* added to each transfer */
    int64_t free_ns;            /* time at which the disk has served all submitted transfers */
};

/* Creates a disk in memory that contains zeros. */
int aio_mem_create(uint64_t bytes, struct aio_mem_disk **out);
void aio_mem_destroy(struct aio_mem_disk *disk);

enum { AIO_REASON_BYTES = 256 };

/* Each returns 0 if its back end works here, else -errno (such as -ENOSYS or -EPERM; -ENOTSUP if it
 * is not built in). `reason` gets the explanation in both cases. Nothing stays open. */
int aio_probe_uring(char *reason, size_t bytes);
int aio_probe_libaio(char *reason, size_t bytes);
int aio_probe_threads(char *reason, size_t bytes);

/* Returns the back end called `name`: uring (or io_uring), libaio, threads or mem; NULL if it is
 * unknown or not built in. */
const struct aio_backend *aio_backend_find(const char *name);

/* Chooses a back end. With `wanted` NULL or "auto" it takes the first of these that works:
 * io_uring; libaio, if `direct` (libaio blocks in submit on buffered files); threads. Any other
 * name selects that back end; if it does not work, the call fails and the message says why.
 * `reason` (may be NULL) gets the choice and why it was made. */
int aio_backend_choose(const char *wanted, bool direct, char *reason, size_t bytes,
                       const struct aio_backend **out);

#endif
