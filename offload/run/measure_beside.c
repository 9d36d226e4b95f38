/* measure_beside.c: times the processor's work while a card copies both ways, as during an update.
 * The caller's thread waits. */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/dev/dev.h"
#include "offload/run/measure.h"

enum { WAYS = 2, COPIES_MIN = 2, COPIES_MAX = 60 /* at most 64 in flight on a card */ };
static const uint64_t copy_bytes_min = UINT64_C(64) << 10;
static const uint64_t copy_bytes_max = UINT64_C(32) << 20;

struct beside {
    struct dev_device *device;
    struct dev_queue *queues[WAYS]; /* owned: up, down */
    struct core_region host;        /* owned: half for each direction */
    char *memory;                   /* owned: device memory, half for each direction */
    uint64_t bytes;                 /* size of a copy */
    bool registered;
};

static void beside_close(struct beside *beside)
{
    for (int i = 0; i < WAYS; i++) {
        dev_queue_destroy(beside->queues[i]);
    }
    if (beside->device != NULL) {
        dev_host_unregister(beside->device, beside->registered ? beside->host.base : NULL);
        dev_memory_free(beside->device, beside->memory);
        dev_close(beside->device);
    }
    core_region_free(&beside->host);
}

/* Several copies must end during the work. */
static uint64_t bytes_of_copy(const struct run_beside *with)
{
    enum { COPIES = 8 };
    const double during = with->seconds * with->link_bytes / COPIES;
    uint64_t bytes = with->spare_bytes / (2 * WAYS);
    bytes = bytes < copy_bytes_max ? bytes : copy_bytes_max;
    bytes = during < (double)bytes ? (uint64_t)during : bytes;
    return (bytes > copy_bytes_min ? bytes : copy_bytes_min) / DEV_ALIGN_BYTES * DEV_ALIGN_BYTES;
}

/* The caller zeroes `beside` first, and closes it even after a failure. */
static int beside_open(struct beside *beside, const char *device, uint64_t bytes)
{
    static const enum dev_queue_kind kinds[WAYS] = {DEV_QUEUE_UP, DEV_QUEUE_DOWN};
    beside->bytes = bytes;
    const struct core_region_options host = {.name = "copies beside the measured update",
                                             .bytes = WAYS * beside->bytes};
    const struct dev_options memory = {.memory_bytes = WAYS * beside->bytes};
    void *on_device = NULL;
    int rc = dev_open(device, &memory, &beside->device);
    if (rc == 0) {
        rc = dev_memory_alloc(beside->device, WAYS * beside->bytes, &on_device);
        beside->memory = rc == 0 ? on_device : NULL;
    }
    if (rc == 0) {
        rc = core_region_alloc(&host, &beside->host);
    }
    if (rc != 0) {
        return rc;
    }
    memset(beside->host.base, 1, WAYS * beside->bytes);
    beside->registered = dev_host_register(beside->device, beside->host.base,
                                           beside->host.mapped_bytes) == 0;
    if (!beside->registered) {
        core_log(CORE_LOG_WARN,
                 "the memory for measuring copies during updates cannot be pinned, so the measured "
                 "rate may be too low: %s",
                 core_err_message());
    }
    for (int i = 0; rc == 0 && i < WAYS; i++) {
        rc = dev_queue_create(beside->device, &(struct dev_queue_options){.kind = kinds[i]},
                              &beside->queues[i]);
    }
    return rc;
}

static int submit(struct beside *beside, unsigned count)
{
    char *const host = (char *)beside->host.base;
    const struct dev_copy copies[WAYS] = {
        {.direction = DEV_COPY_UP, .to = beside->memory, .from = host, .bytes = beside->bytes},
        {.direction = DEV_COPY_DOWN,
         .to = host + beside->bytes,
         .from = beside->memory + beside->bytes,
         .bytes = beside->bytes}};
    int rc = 0;
    for (unsigned n = 0; rc == 0 && n < count; n++) {
        for (int i = 0; rc == 0 && i < WAYS; i++) {
            struct core_fence unused;
            rc = dev_queue_copy(beside->queues[i], &copies[i], &unused);
        }
    }
    return rc;
}

static uint64_t copies_done(const struct beside *beside)
{
    uint64_t done = 0;
    for (int i = 0; i < WAYS; i++) {
        const struct core_fence tail = dev_queue_tail(beside->queues[i]);
        done += atomic_load_explicit(&tail.line->reached, memory_order_acquire);
    }
    return done;
}

int run_measure_beside(const struct run_options *options, const struct run_beside *with,
                       double *seconds, double *copied_bytes)
{
    struct beside beside = {0};
    int rc = beside_open(&beside, options->device, bytes_of_copy(with));
    if (rc == 0) {
        const double copies = 1 + 2 * with->seconds * with->link_bytes / (double)beside.bytes;
        rc = submit(&beside, copies < COPIES_MIN   ? COPIES_MIN
                             : copies > COPIES_MAX ? COPIES_MAX
                                                   : (unsigned)copies);
    }
    if (rc == 0) {
        const uint64_t before = copies_done(&beside);
        const int64_t start_ns = core_clock_now_ns();
        rc = with->work(with->context);
        const double took = (double)(core_clock_now_ns() - start_ns) * 1e-9;
        *seconds = took;
        *copied_bytes = (double)((copies_done(&beside) - before) * beside.bytes) / took;
    }
    for (int i = 0; rc == 0 && i < WAYS; i++) {
        rc = core_fence_wait(dev_queue_tail(beside.queues[i]), -1);
    }
    beside_close(&beside);
    return rc;
}
