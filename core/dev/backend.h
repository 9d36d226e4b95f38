/* backend.h: the interface that a kind of device implements; only dev.c, registry.c and dev_*.c
 * include it. A new kind is one more file and one more entry in registry.c. dev.c and registry.c
 * check arguments before they call these functions. */
#ifndef CORE_DEV_BACKEND_H
#define CORE_DEV_BACKEND_H

#include <pthread.h>

#include "core/dev/arena.h"
#include "core/dev/dev.h"

struct dev_backend {
    const char *kind;
    /* Returns the number of devices, at least 1, or -errno with a message. */
    int (*count)(void);
    int (*open)(unsigned index, const struct dev_options *options, struct dev_device **out);
    void (*close)(struct dev_device *device);

    /* Makes the device current for the calling thread. NULL: the kind has no streams. */
    int (*enter)(struct dev_device *device);

    int (*host_register)(struct dev_device *device, void *memory, size_t bytes);
    void (*host_unregister)(struct dev_device *device, void *memory, size_t bytes);

    /* Makes a queue with a copy of `base`, in which the caller has set all but `line`, where.team
     * and where.stream; sets these in the copy. */
    int (*queue_create)(struct dev_device *device, const struct dev_queue_options *options,
                        struct dev_queue *base, struct dev_queue **out);
    void (*queue_destroy)(struct dev_queue *queue);
    int (*launch)(struct dev_queue *queue, const struct dev_command *command,
                  struct core_fence *out);
    int (*copy)(struct dev_queue *queue, const struct dev_copy *copy, struct core_fence *out);
    int (*time)(struct dev_queue *queue, const struct dev_timing *timing);
    struct core_fence (*tail)(const struct dev_queue *queue);
    void (*abandon)(struct dev_queue *queue, int code);
};

extern const struct dev_backend dev_backend_cpu;
extern const struct dev_backend dev_backend_cuda;

/* A registered range of host memory. */
struct dev_host_range {
    unsigned char *base; /* borrowed from the caller that registered it */
    size_t bytes;
};

/* A registered op: the row and the context that was passed with it. */
struct dev_op_entry {
    struct dev_op row;
    void *context; /* borrowed from the caller of dev_ops_register */
};

struct dev_device {
    const struct dev_backend *backend;
    struct dev_properties properties;
    struct dev_arena arena;
    struct dev_op_entry ops[DEV_OP_MAX]; /* fixed once a queue exists */

    pthread_mutex_t lock;                    /* protects the members below; not held during work */
    struct dev_queue *queues[DEV_QUEUE_MAX]; /* owned by their creators; NULL: free */
    struct dev_host_range *ranges;           /* owned, [range_count] */
    size_t range_count;
};

struct dev_queue {
    struct dev_device *device; /* borrowed; outlives the queue */
    enum dev_queue_kind kind;
    char name[CORE_LINE_NAME_BYTES]; /* "cuda:0 compute" */
    struct core_line *line;          /* owned by the back end's queue */
    struct dev_launch where;         /* its scratch is owned, and allocated from the arena */
};

/* For back ends: initialise and release what all devices share. */
void dev_device_init(struct dev_device *device, const struct dev_backend *backend);
void dev_device_fini(struct dev_device *device);

#endif
