/* dev.c: argument checks, and code that all kinds of device share. */
#include "core/dev/dev.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/dev/backend.h"

void dev_device_init(struct dev_device *device, const struct dev_backend *backend)
{
    device->backend = backend;
    pthread_mutex_init(&device->lock, NULL);
}

void dev_device_fini(struct dev_device *device)
{
    free(device->ranges);
    pthread_mutex_destroy(&device->lock);
}

void dev_close(struct dev_device *device)
{
    if (device == NULL) {
        return;
    }
    for (size_t i = 0; i < DEV_QUEUE_MAX; i++) {
        assert(device->queues[i] == NULL);
    }
    while (device->range_count > 0) {
        dev_host_unregister(device, device->ranges[device->range_count - 1].base);
    }
    struct dev_memory memory;
    dev_memory_report(device, &memory);
    if (memory.count > 0) {
        core_log(CORE_LOG_WARN, "%s is closed with %zu bytes in %u allocations still in use",
                 device->properties.name, memory.used_bytes, memory.count);
    }
    device->backend->close(device);
}

const struct dev_properties *dev_properties(const struct dev_device *device)
{
    return &device->properties;
}

/* ---- Memory ---- */

int dev_memory_alloc(struct dev_device *device, size_t bytes, void **out)
{
    int rc = dev_arena_alloc(&device->arena, bytes, out);
    return rc == 0 ? 0 : core_err_prefix(rc, "memory of %s", device->properties.name);
}

void dev_memory_free(struct dev_device *device, void *memory)
{
    dev_arena_free(&device->arena, memory);
}

void dev_memory_report(struct dev_device *device, struct dev_memory *out)
{
    dev_arena_report(&device->arena, out);
}

bool dev_memory_holds(struct dev_device *device, const void *memory, size_t bytes)
{
    return dev_arena_holds(&device->arena, memory, bytes);
}

bool dev_memory_is_separate(const struct dev_device *device)
{
    return device->arena.source.alloc != NULL;
}

static int check_range(const struct dev_device *device, const unsigned char *base, size_t bytes)
{
    uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    if (bytes == 0 || (uintptr_t)base % page_bytes != 0 || (uintptr_t)base + bytes < bytes) {
        return core_err_set(-EINVAL,
                            "host memory of %zu bytes at %p cannot be registered: it must be "
                            "aligned to pages of %zu bytes and not empty",
                            bytes, (const void *)base, (size_t)page_bytes);
    }
    for (size_t i = 0; i < device->range_count; i++) {
        const struct dev_host_range *range = &device->ranges[i];
        if (base < range->base + range->bytes && range->base < base + bytes) {
            return core_err_set(-EEXIST,
                                "host memory of %zu bytes at %p overlaps %zu bytes at %p that are "
                                "registered with %s already",
                                bytes, (const void *)base, range->bytes, (void *)range->base,
                                device->properties.name);
        }
    }
    return 0;
}

static int register_locked(struct dev_device *device, void *memory, size_t bytes)
{
    int rc = check_range(device, memory, bytes);
    if (rc != 0) {
        return rc;
    }
    size_t count = device->range_count + 1;
    struct dev_host_range *ranges = realloc(device->ranges, count * sizeof *ranges);
    if (ranges == NULL) {
        return core_err_set(-ENOMEM, "out of memory for the list of %zu registered ranges", count);
    }
    device->ranges = ranges;
    rc = device->backend->host_register(device, memory, bytes);
    if (rc == 0) {
        ranges[device->range_count++] = (struct dev_host_range){.base = memory, .bytes = bytes};
    }
    return rc;
}

int dev_host_register(struct dev_device *device, void *memory, size_t bytes)
{
    pthread_mutex_lock(&device->lock);
    int rc = register_locked(device, memory, bytes);
    pthread_mutex_unlock(&device->lock);
    return rc;
}

void dev_host_unregister(struct dev_device *device, void *memory)
{
    if (memory == NULL) {
        return;
    }
    pthread_mutex_lock(&device->lock);
    size_t index = 0;
    while (index < device->range_count && device->ranges[index].base != memory) {
        index++;
    }
    assert(index < device->range_count);
    device->backend->host_unregister(device, memory, device->ranges[index].bytes);
    device->ranges[index] = device->ranges[--device->range_count];
    pthread_mutex_unlock(&device->lock);
}

/* ---- Ops ---- */

int dev_ops_register(struct dev_device *device, const struct dev_op *rows, size_t count,
                     void *context)
{
    for (size_t i = 0; i < DEV_QUEUE_MAX; i++) {
        if (device->queues[i] != NULL) {
            return core_err_set(-EBUSY, "ops cannot be registered with %s: it has queues",
                                device->properties.name);
        }
    }
    for (size_t i = 0; i < count; i++) {
        if (rows[i].op >= DEV_OP_MAX || rows[i].arguments_bytes > DEV_ARGUMENT_BYTES) {
            return core_err_set(-EINVAL,
                                "op %u (%s) with arguments of %zu bytes cannot be registered: ops "
                                "go up to %d, arguments to %d bytes",
                                rows[i].op, rows[i].name, rows[i].arguments_bytes, DEV_OP_MAX - 1,
                                DEV_ARGUMENT_BYTES);
        }
    }
    for (size_t i = 0; i < count; i++) {
        device->ops[rows[i].op] = (struct dev_op_entry){.row = rows[i], .context = context};
    }
    return 0;
}

/* ---- Queues ---- */

const char *dev_queue_kind_name(enum dev_queue_kind kind)
{
    static const char *const names[DEV_QUEUE_KINDS] = {"compute", "up", "down", "update"};
    return (unsigned)kind < DEV_QUEUE_KINDS ? names[kind] : "unknown";
}

static int queue_options_check(const struct dev_device *device,
                               const struct dev_queue_options *options)
{
    if ((unsigned)options->kind >= DEV_QUEUE_KINDS || options->depth > DEV_QUEUE_DEPTH_MAX) {
        return core_err_set(-EINVAL,
                            "%s cannot create a queue of kind %u and depth %u: there are %d kinds, "
                            "and the maximum depth is %d",
                            device->properties.name, (unsigned)options->kind, options->depth,
                            DEV_QUEUE_KINDS, DEV_QUEUE_DEPTH_MAX);
    }
    return 0;
}

/* Returns the index of `queue` (NULL: of a free entry); DEV_QUEUE_MAX: none. */
static size_t queue_place(const struct dev_device *device, const struct dev_queue *queue)
{
    size_t place = 0;
    while (place < DEV_QUEUE_MAX && device->queues[place] != queue) {
        place++;
    }
    return place;
}

static int queue_add(struct dev_device *device, struct dev_queue *queue)
{
    pthread_mutex_lock(&device->lock);
    size_t place = queue_place(device, NULL);
    if (place < DEV_QUEUE_MAX) {
        device->queues[place] = queue;
    }
    pthread_mutex_unlock(&device->lock);
    if (place == DEV_QUEUE_MAX) {
        return core_err_set(-ENOSPC, "%s already has the maximum of %d queues",
                            device->properties.name, DEV_QUEUE_MAX);
    }
    return 0;
}

int dev_queue_create(struct dev_device *device, const struct dev_queue_options *options,
                     struct dev_queue **out)
{
    int rc = queue_options_check(device, options);
    if (rc != 0) {
        return rc;
    }
    struct dev_queue base = {.device = device, .kind = options->kind};
    snprintf(base.name, sizeof base.name, "%.16s %s", device->properties.name,
             dev_queue_kind_name(options->kind));
    if (options->scratch_bytes > 0) {
        rc = dev_memory_alloc(device, options->scratch_bytes, &base.where.scratch);
        if (rc != 0) {
            return core_err_prefix(rc, "scratch of queue %s", base.name);
        }
        base.where.scratch_bytes = options->scratch_bytes;
    }
    struct dev_queue *queue = NULL;
    rc = device->backend->queue_create(device, options, &base, &queue);
    if (rc != 0) {
        dev_memory_free(device, base.where.scratch);
        return rc;
    }
    rc = queue_add(device, queue);
    if (rc != 0) {
        dev_queue_destroy(queue);
        return rc;
    }
    *out = queue;
    return 0;
}

void dev_queue_destroy(struct dev_queue *queue)
{
    if (queue == NULL) {
        return;
    }
    struct dev_device *device = queue->device;
    void *scratch = queue->where.scratch;
    pthread_mutex_lock(&device->lock);
    size_t place = queue_place(device, queue);
    if (place < DEV_QUEUE_MAX) {
        device->queues[place] = NULL;
    }
    pthread_mutex_unlock(&device->lock);
    device->backend->queue_destroy(queue);
    dev_memory_free(device, scratch);
}

int dev_queue_launch(struct dev_queue *queue, const struct dev_command *command,
                     struct core_fence *out)
{
    struct dev_device *device = queue->device;
    if (command->op >= DEV_OP_MAX) {
        return core_err_set(-EINVAL, "op %u is out of range 0..%d", command->op, DEV_OP_MAX - 1);
    }
    const struct dev_op *row = &device->ops[command->op].row;
    if (row->launch == NULL) {
        return core_err_set(-ENOTSUP, "%s does not have op %u (%s)", device->properties.name,
                            command->op, row->name != NULL ? row->name : "never registered");
    }
    if (command->arguments_bytes != row->arguments_bytes) {
        return core_err_set(-EINVAL, "op %s needs arguments of %zu bytes, not %zu", row->name,
                            row->arguments_bytes, command->arguments_bytes);
    }
    return device->backend->launch(queue, command, out);
}

static int check_copy(const struct dev_queue *queue, const struct dev_copy *copy)
{
    struct dev_device *device = queue->device;
    static const char *const names[] = {"up", "down", "within", "of zeros"};
    if ((unsigned)copy->direction >= DEV_COPY_DIRECTIONS) {
        return core_err_set(-EINVAL, "unknown copy direction %u", (unsigned)copy->direction);
    }
    bool zeros = copy->direction == DEV_COPY_ZEROS;
    bool to_device = copy->direction != DEV_COPY_DOWN &&
                     !(zeros && device->properties.host_visible);
    bool from_device = copy->direction != DEV_COPY_UP && !zeros;
    const char *name = names[copy->direction];
    if (copy->foreign && (zeros || to_device == from_device)) {
        return core_err_set(-EINVAL, "a copy %s cannot use foreign memory: only up and down can",
                            name);
    }
    to_device = to_device && !copy->foreign;
    from_device = from_device && !copy->foreign;
    if ((to_device && !dev_arena_holds(&device->arena, copy->to, copy->bytes)) ||
        (from_device && !dev_arena_holds(&device->arena, copy->from, copy->bytes)) ||
        copy->to == NULL || (copy->from == NULL) != zeros) {
        return core_err_set(-EINVAL, "a copy %s of %zu bytes from %p to %p leaves the memory of %s",
                            name, copy->bytes, copy->from, copy->to, device->properties.name);
    }
    uintptr_t to = (uintptr_t)copy->to;
    uintptr_t from = (uintptr_t)copy->from;
    if (!zeros && to < from + copy->bytes && from < to + copy->bytes) {
        return core_err_set(-EINVAL, "a copy %s of %zu bytes from %p to %p overlaps itself", name,
                            copy->bytes, copy->from, copy->to);
    }
    return 0;
}

int dev_queue_copy(struct dev_queue *queue, const struct dev_copy *copy, struct core_fence *out)
{
    int rc = copy->bytes > 0 ? check_copy(queue, copy) : 0;
    if (rc != 0) {
        return rc;
    }
    return queue->device->backend->copy(queue, copy, out);
}

int dev_queue_time(struct dev_queue *queue, const struct dev_timing *timing)
{
    return queue->device->backend->time(queue, timing);
}

int dev_queue_enter(struct dev_queue *queue, struct dev_launch *out)
{
    struct dev_device *device = queue->device;
    if (device->backend->enter == NULL) {
        return core_err_set(-ENOTSUP, "%s has no streams", device->properties.name);
    }
    const int rc = device->backend->enter(device);
    if (rc == 0) {
        *out = queue->where;
    }
    return rc;
}

struct core_fence dev_queue_tail(const struct dev_queue *queue)
{
    return queue->device->backend->tail(queue);
}

void dev_queue_abandon(struct dev_queue *queue, int code)
{
    queue->device->backend->abandon(queue, code);
}
