/* dev_cuda.h: declarations of the CUDA device, without the runtime's headers. */
#ifndef CORE_DEV_DEV_CUDA_H
#define CORE_DEV_DEV_CUDA_H

#include "core/dev/backend.h"

struct CUstream_st;
struct CUevent_st;

/* A ring of timed launches: the submitting thread adds entries, the watch takes them. An entry
 * stays valid until the next one is taken, because times count from the end of the previous
 * entry. */
enum { DEV_CUDA_TIMES_MAX = 512 };
struct cuda_times {
    struct {
        struct CUevent_st *begin; /* owned */
        struct CUevent_st *end;   /* owned */
        const char *op;           /* borrowed from the op's row */
    } ring[DEV_CUDA_TIMES_MAX];
    struct CUevent_st *start; /* owned: at start_ns on the host's clock */
    int64_t start_ns;
    _Atomic uint64_t added; /* released after an entry's events are on the stream */
    _Atomic uint64_t taken; /* released by the watch */
    /* end of the last entry taken, since start_ns; for the watch */
    double last_ns;
    const struct dev_timing *to; /* borrowed: receives the times */
};

struct cuda_queue {
    struct dev_queue base;
    struct core_line line;      /* issued: by the submitting thread; reached: by the watch */
    struct CUstream_st *stream; /* owned */
    struct CUevent_st **events; /* owned, [depth]; unit v records events[(v - 1) % depth] */
    uint32_t event_count;       /* number of events created */
    uint64_t launches;          /* launches and copies since create */
    uint64_t *ends; /* owned, [depth]; ends[(v - 1) % depth] is `launches` after unit v */
    uint32_t depth;
    bool timed; /* new launches are timed */
    /* owned; NULL: never requested. The watch reads it */
    _Atomic(struct cuda_times *) times;
};

enum {
    DEV_CUDA_BORDER_MAX = 64,
    /* Left free, without a given budget, for code, stacks and libraries that are loaded later
     * (tests/cuda/test_spare.c). */
    DEV_CUDA_SPARE_BYTES = 1 << 30,
};

struct cuda_device {
    struct dev_device base;
    int index;
    bool has_memory; /* the arena was made */
    void *range;     /* owned: the arena's memory; NULL: separate parts */

    /* Addresses where two pinned pieces meet. Changed under base.lock, and not while copies of that
     * memory are submitted. */
    uintptr_t borders[DEV_CUDA_BORDER_MAX];
    _Atomic size_t border_count;

    _Atomic(struct cuda_queue *) queues[DEV_QUEUE_MAX]; /* borrowed: watched */
    /* held during a pass of the watch, and while a queue is added or removed */
    pthread_mutex_t watch_lock;
    pthread_t watch;
    bool watching;
    _Atomic bool ending;
    struct core_bell work;      /* rung at each submission */
    const struct core_log *log; /* borrowed from the opening thread */
};

/* Writes "NAME: CALL of N bytes failed: words (code); CURE", leaving out `bytes` 0 and `cure` NULL,
 * and clears the runtime's last error. Returns the -errno. `error` is a cudaError_t. */
int dev_cuda_fail(const char *name, const char *call, size_t bytes, unsigned error,
                  const char *cure);
/* Makes this GPU current for this thread. */
int dev_cuda_enter(const struct cuda_device *device);

int dev_cuda_watch_start(struct cuda_device *device);
void dev_cuda_watch_stop(struct cuda_device *device);

int dev_cuda_queue_create(struct dev_device *base, const struct dev_queue_options *options,
                          struct dev_queue *proto, struct dev_queue **out);
void dev_cuda_queue_destroy(struct dev_queue *queue);
int dev_cuda_launch(struct dev_queue *queue, const struct dev_command *command,
                    struct core_fence *out);
int dev_cuda_copy(struct dev_queue *queue, const struct dev_copy *copy, struct core_fence *out);
int dev_cuda_time(struct dev_queue *queue, const struct dev_timing *timing);
struct core_fence dev_cuda_tail(const struct dev_queue *queue);
void dev_cuda_abandon(struct dev_queue *queue, int code);

#endif
