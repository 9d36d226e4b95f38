/* dev_cpu.c: the CPU as a device. Its DEVICE tier is a mapping; a queue is a thread with a team. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/mem_limits.h"
#include "core/base/queue.h"
#include "core/base/team.h"
#include "core/dev/backend.h"

struct cpu_device {
    struct dev_device base;
    struct core_cpus cpus;
    void *range; /* owned: the mapping under the arena */
    size_t range_bytes;
};

struct cpu_queue;

struct cpu_op {
    struct cpu_queue *queue;
    unsigned op;
};

struct cpu_queue {
    struct dev_queue base;
    struct core_queue *jobs; /* owned */
    struct core_team *team;  /* owned; for the queue's thread */
    /* borrowed; NULL: no reports. Set by the submitting thread, read by the queue's */
    _Atomic(const struct dev_timing *) timing;
    struct cpu_op ops[DEV_OP_MAX];
};

static int cpu_count(void)
{
    return 1;
}

/* ---- Device ---- */

static void describe(struct dev_properties *properties)
{
    snprintf(properties->description, sizeof properties->description, "processor");
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[256];
    char name[96];
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "model name : %95[^\n]", name) == 1) {
            snprintf(properties->description, sizeof properties->description, "%s", name);
            break;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
}

static uint64_t machine_bytes(void)
{
    long pages = sysconf(_SC_PHYS_PAGES);
    long page_bytes = sysconf(_SC_PAGESIZE);
    return pages > 0 && page_bytes > 0 ? (uint64_t)pages * (uint64_t)page_bytes : 0;
}

static int map_arena(struct cpu_device *device, size_t budget_bytes)
{
    size_t bytes = dev_arena_range_bytes(budget_bytes, true);
    errno = ENOMEM; /* the range overflows size_t */
    void *range = bytes < budget_bytes ? MAP_FAILED
                                       : mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) {
        return core_err_set(-ENOMEM, "the device cpu cannot have a budget of %zu bytes: %s",
                            budget_bytes, strerror(errno));
    }
    /* Only advice: huge pages are not needed. */
    (void)madvise(range, bytes, MADV_HUGEPAGE);
    device->range = range;
    device->range_bytes = bytes;
    dev_arena_init(&device->base.arena, range, budget_bytes, true);
    return 0;
}

static void cpu_close(struct dev_device *base)
{
    struct cpu_device *device = (struct cpu_device *)base;
    if (device->range != NULL) {
        dev_arena_fini(&base->arena);
        munmap(device->range, device->range_bytes);
    }
    dev_device_fini(base);
    free(device);
}

static int cpu_open(unsigned index, const struct dev_options *options, struct dev_device **out)
{
    (void)index;
    struct cpu_device *device = calloc(1, sizeof *device);
    if (device == NULL) {
        return core_err_set(-ENOMEM, "no memory for a device");
    }
    dev_device_init(&device->base, &dev_backend_cpu);
    int rc = 0;
    if (options->cpus != NULL) {
        device->cpus = *options->cpus;
    } else {
        rc = core_cpus_allowed(&device->cpus);
    }
    if (rc != 0) {
        goto fail;
    }
    struct dev_properties *properties = &device->base.properties;
    snprintf(properties->name, sizeof properties->name, "cpu");
    snprintf(properties->kind, sizeof properties->kind, "cpu");
    describe(properties);
    properties->memory_total_bytes = machine_bytes();
    properties->units = core_cpus_count(&device->cpus);
    properties->numa_node = -1;
    properties->host_visible = true;
    size_t budget_bytes = options->memory_bytes;
    if (budget_bytes == 0) {
        struct core_mem_limits limits = {.cgroup_bytes = UINT64_MAX};
        (void)core_mem_limits("", &limits); /* without /proc: the machine's memory */
        uint64_t most = properties->memory_total_bytes;
        budget_bytes = (size_t)((limits.cgroup_bytes < most ? limits.cgroup_bytes : most) / 4);
    }
    rc = map_arena(device, budget_bytes);
    if (rc != 0) {
        goto fail;
    }
    *out = &device->base;
    return 0;
fail:
    cpu_close(&device->base);
    return rc;
}

static int cpu_host_register(struct dev_device *device, void *memory, size_t bytes)
{
    (void)device;
    (void)memory;
    (void)bytes;
    return 0;
}

static void cpu_host_unregister(struct dev_device *device, void *memory, size_t bytes)
{
    (void)device;
    (void)memory;
    (void)bytes;
}

/* ---- Queues ---- */

static void cpu_queue_destroy(struct dev_queue *base)
{
    struct cpu_queue *queue = (struct cpu_queue *)base;
    core_queue_destroy(queue->jobs);
    core_team_destroy(queue->team);
    free(queue);
}

static int cpu_queue_create(struct dev_device *base, const struct dev_queue_options *options,
                            struct dev_queue *proto, struct dev_queue **out)
{
    struct cpu_device *device = (struct cpu_device *)base;
    struct cpu_queue *queue = calloc(1, sizeof *queue);
    if (queue == NULL) {
        return core_err_set(-ENOMEM, "no memory for queue %s", proto->name);
    }
    queue->base = *proto;
    for (unsigned op = 0; op < DEV_OP_MAX; op++) {
        queue->ops[op] = (struct cpu_op){.queue = queue, .op = op};
    }
    const struct core_cpus *cpus = options->cpus != NULL ? options->cpus : &device->cpus;
    bool copies = options->kind == DEV_QUEUE_UP || options->kind == DEV_QUEUE_DOWN;
    int rc = core_team_create(
        &(struct core_team_options){
            .name = dev_queue_kind_name(options->kind),
            .count = options->threads == 0 && copies ? 1 : options->threads,
            .cpus = cpus,
        },
        &queue->team);
    if (rc != 0) {
        goto fail;
    }
    queue->base.where.team = queue->team;
    rc = core_queue_create(
        &(struct core_queue_options){
            .name = queue->base.name,
            .depth = options->depth,
            .cpus = cpus,
            .bell = options->bell,
        },
        &queue->jobs);
    if (rc != 0) {
        goto fail;
    }
    queue->base.line = core_queue_line(queue->jobs);
    *out = &queue->base;
    return 0;
fail:
    cpu_queue_destroy(&queue->base);
    return rc;
}

static int run_op(void *context, const void *arguments)
{
    const struct cpu_op *op = context;
    const struct dev_op_entry *entry = &op->queue->base.device->ops[op->op];
    struct dev_launch where = op->queue->base.where;
    where.context = entry->context;
    const struct dev_timing *timing = atomic_load_explicit(&op->queue->timing,
                                                           memory_order_acquire);
    const int64_t begin_ns = timing != NULL ? core_clock_now_ns() : 0;
    int rc = entry->row.launch(&where, arguments);
    if (timing != NULL && rc == 0) {
        timing->timed(timing->user, entry->row.name, begin_ns, core_clock_now_ns());
    }
    return rc == 0 ? 0 : core_err_prefix(rc, "op %s", entry->row.name);
}

static int cpu_launch(struct dev_queue *base, const struct dev_command *command,
                      struct core_fence *out)
{
    struct cpu_queue *queue = (struct cpu_queue *)base;
    struct core_job job = {
        .run = run_op,
        .context = &queue->ops[command->op],
        .arguments = command->arguments,
        .arguments_bytes = command->arguments_bytes,
    };
    _Static_assert((int)DEV_ARGUMENT_BYTES <= (int)CORE_JOB_ARGUMENT_BYTES, "arguments fit a job");
    return core_queue_submit(queue->jobs, &job, out);
}

struct span {
    unsigned char *to;
    const unsigned char *from; /* NULL: zeros */
    size_t bytes;
};

/* Below COPY_WIDE_BYTES, waking the team costs more than the copy. */
enum { COPY_WIDE_BYTES = 1 << 20, COPY_GRAIN_BYTES = 1 << 16 };

static void move_bytes(const struct span *span, size_t begin, size_t end)
{
    if (span->from != NULL) {
        memcpy(span->to + begin, span->from + begin, end - begin);
    } else {
        memset(span->to + begin, 0, end - begin);
    }
}

static void copy_part(void *argument, unsigned index, unsigned count)
{
    const struct span *span = argument;
    uint64_t begin, end;
    core_team_share(span->bytes, COPY_GRAIN_BYTES, index, count, &begin, &end);
    if (end > begin) {
        move_bytes(span, begin, end);
    }
}

static int run_copy(void *context, const void *arguments)
{
    const struct cpu_queue *queue = context;
    struct span span = *(const struct span *)arguments;
    if (span.bytes >= COPY_WIDE_BYTES && core_team_count(queue->team) > 1) {
        core_team_run(queue->team, copy_part, &span);
    } else if (span.bytes > 0) {
        move_bytes(&span, 0, span.bytes);
    }
    return 0;
}

static int cpu_copy(struct dev_queue *base, const struct dev_copy *copy, struct core_fence *out)
{
    struct cpu_queue *queue = (struct cpu_queue *)base;
    struct span span = {.to = copy->to, .from = copy->from, .bytes = copy->bytes};
    if (copy->stream != NULL) {
        move_bytes(&span, 0, span.bytes);
        *out = (struct core_fence){0};
        return 0;
    }
    struct core_job job = {
        .run = run_copy,
        .context = queue,
        .arguments = &span,
        .arguments_bytes = sizeof span,
    };
    return core_queue_submit(queue->jobs, &job, out);
}

static int cpu_time(struct dev_queue *base, const struct dev_timing *timing)
{
    struct cpu_queue *queue = (struct cpu_queue *)base;
    atomic_store_explicit(&queue->timing, timing, memory_order_release);
    return 0;
}

static struct core_fence cpu_tail(const struct dev_queue *queue)
{
    return core_queue_tail(((const struct cpu_queue *)queue)->jobs);
}

static void cpu_abandon(struct dev_queue *queue, int code)
{
    core_queue_abandon(((struct cpu_queue *)queue)->jobs, code);
}

const struct dev_backend dev_backend_cpu = {
    .kind = "cpu",
    .count = cpu_count,
    .open = cpu_open,
    .close = cpu_close,
    .host_register = cpu_host_register,
    .host_unregister = cpu_host_unregister,
    .queue_create = cpu_queue_create,
    .queue_destroy = cpu_queue_destroy,
    .launch = cpu_launch,
    .copy = cpu_copy,
    .time = cpu_time,
    .tail = cpu_tail,
    .abandon = cpu_abandon,
};
