/* dev_cuda.h: what the two files of the CUDA device share; the runtime's types by their names alone.
 */
#ifndef CORE_DEV_DEV_CUDA_H
#define CORE_DEV_DEV_CUDA_H

#include "core/dev/backend.h"

struct CUstream_st;
struct CUevent_st;

struct cuda_queue {
    struct dev_queue base;
    struct core_line line;      /* issued: by the owner; reached: by the watch */
    struct CUstream_st *stream; /* owned */
    struct CUevent_st **events; /* owned, [depth]; unit of work v records events[(v - 1) % depth] */
    uint32_t event_count;       /* that exist */
    uint64_t launches;          /* submitted since the queue was made */
    uint64_t *ends; /* owned, [depth]; `launches` at the end of unit v is ends[(v - 1) % depth] */
    uint32_t depth;
};

enum { DEV_CUDA_BORDER_MAX = 64 };

struct cuda_device {
    struct dev_device base;
    int index;
    void *range; /* owned: the memory under the arena */

    /* Where two pinned pieces meet. Moved under base.lock; read while copies are submitted, which
     * is not while their memory is registered or unregistered. */
    uintptr_t borders[DEV_CUDA_BORDER_MAX];
    _Atomic size_t border_count;

    _Atomic(struct cuda_queue *) queues[DEV_QUEUE_MAX]; /* borrowed: those that are watched */
    pthread_mutex_t watch_lock; /* held by the watch during a pass, and to add or take a queue */
    pthread_t watch;
    bool watching;
    _Atomic bool ending;
    struct core_bell work;      /* rung at each submit */
    const struct core_log *log; /* borrowed from the opening thread's binding */
};

/* Writes "NAME: CALL of N bytes failed: words (code); CURE", takes the runtime's own note of the error
 * away, so that the next call does not report it again, and returns the -errno. `error` is a
 * cudaError_t; `bytes` 0 and `cure` NULL are left out. */
int dev_cuda_fail(const char *name, const char *call, size_t bytes, unsigned error,
                  const char *cure);
/* Makes the card the calling thread's. */
int dev_cuda_enter(const struct cuda_device *device);

int dev_cuda_watch_start(struct cuda_device *device);
void dev_cuda_watch_stop(struct cuda_device *device);

/* The queue's side of the recipe. */
int dev_cuda_queue_create(struct dev_device *base, const struct dev_queue_options *options,
                          struct dev_queue *proto, struct dev_queue **out);
void dev_cuda_queue_destroy(struct dev_queue *queue);
int dev_cuda_launch(struct dev_queue *queue, const struct dev_command *command,
                    struct core_fence *out);
int dev_cuda_copy(struct dev_queue *queue, const struct dev_copy *copy, struct core_fence *out);
struct core_fence dev_cuda_tail(const struct dev_queue *queue);
void dev_cuda_abandon(struct dev_queue *queue, int code);

#endif
