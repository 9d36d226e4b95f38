/* dev_cuda.h: declarations shared by the two files of the CUDA device. Uses types of the runtime
 * only by their tags, without its headers. */
#ifndef CORE_DEV_DEV_CUDA_H
#define CORE_DEV_DEV_CUDA_H

#include "core/dev/backend.h"

struct CUstream_st;
struct CUevent_st;

/* A ring of launches that are timed. The submitting thread adds entries, the watch takes them. An
 * entry stays valid until the next entry has been taken, because the times of the next entry are
 * measured from its end. */
enum { DEV_CUDA_TIMES_MAX = 512 };
struct cuda_times {
    struct {
        struct CUevent_st *begin; /* owned */
        struct CUevent_st *end;   /* owned */
        const char *op;           /* borrowed from the op's row */
    } ring[DEV_CUDA_TIMES_MAX];
    struct CUevent_st *start; /* owned: the origin of times, start_ns on the clock of the host */
    int64_t start_ns;
    _Atomic uint64_t added; /* released after the entry's events are on the stream */
    _Atomic uint64_t taken; /* released by the watch */
    /* end of the entry taken last, since start_ns; used by the watch alone */
    double last_ns;
    const struct dev_timing *to; /* borrowed: the receiver of the times of all entries */
};

struct cuda_queue {
    struct dev_queue base;
    struct core_line line;      /* issued: written by the submitting thread; reached: by the
                                 * watch */
    struct CUstream_st *stream; /* owned */
    struct CUevent_st **events; /* owned, [depth]; unit of work v records events[(v - 1) % depth] */
    uint32_t event_count;       /* number of events created */
    uint64_t launches;          /* launches and copies submitted since create */
    uint64_t *ends; /* owned, [depth]; ends[(v - 1) % depth] is `launches` at the end of unit v */
    uint32_t depth;
    bool timed; /* new launches are added to `times` */
    /* owned; NULL: timing was never requested. Read by the watch */
    _Atomic(struct cuda_times *) times;
};

enum {
    DEV_CUDA_BORDER_MAX = 64,
    /* Memory that is left free if no budget is given, for code, stacks and libraries, which are
     * loaded later (tests/cuda/test_spare.c). */
    DEV_CUDA_SPARE_BYTES = 1 << 30,
};

struct cuda_device {
    struct dev_device base;
    int index;
    bool has_memory; /* true after the arena was made */
    void *range;     /* owned: the memory of the arena; NULL: its parts are separate */

    /* The addresses at which two pinned pieces meet. Changed under base.lock. Read when copies are
     * submitted, which does not happen while their memory is being registered or unregistered. */
    uintptr_t borders[DEV_CUDA_BORDER_MAX];
    _Atomic size_t border_count;

    _Atomic(struct cuda_queue *) queues[DEV_QUEUE_MAX]; /* borrowed: the queues that are watched */
    /* held by the watch during a pass, and by a thread that adds or removes a queue */
    pthread_mutex_t watch_lock;
    pthread_t watch;
    bool watching;
    _Atomic bool ending;
    struct core_bell work;      /* rung at each submission */
    const struct core_log *log; /* borrowed from the binding of the thread that opened the device */
};

/* Writes the message "NAME: CALL of N bytes failed: words (code); CURE", and clears the runtime's
 * last error so that the next call does not report it again. Returns the -errno. `error` is a
 * cudaError_t; `bytes` 0 and `cure` NULL are left out. */
int dev_cuda_fail(const char *name, const char *call, size_t bytes, unsigned error,
                  const char *cure);
/* Makes this GPU current for the calling thread. */
int dev_cuda_enter(const struct cuda_device *device);

int dev_cuda_watch_start(struct cuda_device *device);
void dev_cuda_watch_stop(struct cuda_device *device);

/* The queue functions of the back end. */
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
