/* backend.h: the interface of a kind of device, for dev.c, registry.c and dev_*.c. A new kind is a
 * file and an entry in registry.c. Callers check the arguments. */
#ifndef CORE_DEV_BACKEND_H
#define CORE_DEV_BACKEND_H

#include <pthread.h>

#include "core/dev/arena.h"
#include "core/dev/dev.h"

struct dev_backend {
    const char *kind;
    /* Returns the number of devices, or -errno with a message. */
    int (*count)(void);
    int (*open)(unsigned index, const struct dev_options *options, struct dev_device **out);
    void (*close)(struct dev_device *device);

    /* Makes the device current for this thread. NULL: no streams. */
    int (*enter)(struct dev_device *device);

    int (*host_register)(struct dev_device *device, void *memory, size_t bytes);
    void (*host_unregister)(struct dev_device *device, void *memory, size_t bytes);

    /* Copies `base`, in which the caller has set all but `line`, where.team and where.stream, and
     * sets these. */
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

struct dev_host_range {
    unsigned char *base; /* borrowed */
    size_t bytes;
};

/* An op's row, with the context of its registration. */
struct dev_op_entry {
    struct dev_op row;
    void *context; /* borrowed */
};

struct dev_device {
    const struct dev_backend *backend;
    struct dev_properties properties;
    struct dev_arena arena;
    struct dev_op_entry ops[DEV_OP_MAX]; /* fixed once a queue exists */

    pthread_mutex_t lock;                    /* protects the members below */
    struct dev_queue *queues[DEV_QUEUE_MAX]; /* owned by their creators; NULL: free */
    struct dev_host_range *ranges;           /* owned, [range_count] */
    size_t range_count;
};

struct dev_queue {
    struct dev_device *device; /* borrowed; outlives the queue */
    enum dev_queue_kind kind;
    char name[CORE_LINE_NAME_BYTES]; /* "cuda:0 compute" */
    struct core_line *line;          /* owned by the back end's queue */
    struct dev_launch where;         /* its scratch is owned, in the arena */
};

/* Initialise and release what all devices share. */
void dev_device_init(struct dev_device *device, const struct dev_backend *backend);
void dev_device_fini(struct dev_device *device);

#endif
