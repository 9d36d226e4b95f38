/* rates.c: measures a device's copies through its own queues. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/mem_limits.h"
#include "core/dev/dev.h"

enum { ROUNDS = 3 };
static const int64_t LIMIT_NS = 60000000000;

struct bench {
    struct dev_device *device;
    size_t bytes;
    unsigned char *host;    /* owned, 2 * bytes */
    unsigned char *memory;  /* owned, on the device, 2 * bytes */
    struct dev_queue *up;   /* owned */
    struct dev_queue *down; /* owned */
    bool registered;
};

static void bench_fini(struct bench *bench)
{
    dev_queue_destroy(bench->up);
    dev_queue_destroy(bench->down);
    dev_host_unregister(bench->device, bench->registered ? bench->host : NULL);
    dev_memory_free(bench->device, bench->memory);
    if (bench->host != NULL) {
        munmap(bench->host, 2 * bench->bytes);
    }
}

/* Without enough host memory the kernel might kill the process. */
static int check_room(const struct bench *bench)
{
    struct core_mem_limits limits;
    uint64_t sides = dev_properties(bench->device)->host_visible ? 2 : 1;
    if (core_mem_limits("", &limits) != 0 || bench->bytes <= limits.usable_bytes / 2 / sides) {
        return 0;
    }
    return core_err_set(-ENOMEM,
                        "measuring copies of %zu bytes needs %" PRIu64
                        " times as much host memory, and %" PRIu64 " bytes are usable",
                        bench->bytes, 2 * sides, limits.usable_bytes);
}

static int bench_init(struct bench *bench)
{
    int rc = check_room(bench);
    if (rc != 0) {
        return rc;
    }
    void *host = mmap(NULL, 2 * bench->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                      -1, 0);
    if (host == MAP_FAILED) {
        return core_err_set(
            -ENOMEM, "out of memory: measuring copies needs %zu bytes for the host's buffers",
            2 * bench->bytes);
    }
    bench->host = host;
    memset(host, 1, 2 * bench->bytes);
    void *memory;
    rc = dev_memory_alloc(bench->device, 2 * bench->bytes, &memory);
    if (rc != 0) {
        return rc;
    }
    bench->memory = memory;
    rc = dev_host_register(bench->device, host, 2 * bench->bytes);
    bench->registered = rc == 0;
    if (rc != 0) {
        core_log(CORE_LOG_WARN, "copies are measured from memory that is not pinned: %s",
                 core_err_message());
    }
    rc = dev_queue_create(bench->device, &(struct dev_queue_options){.kind = DEV_QUEUE_UP},
                          &bench->up);
    if (rc != 0) {
        return rc;
    }
    return dev_queue_create(bench->device, &(struct dev_queue_options){.kind = DEV_QUEUE_DOWN},
                            &bench->down);
}

/* Sets *out to the seconds of the shortest round after a warm-up. A round makes `up` and, unless
 * NULL, `down` at the same time. */
static int best_seconds(struct bench *bench, const struct dev_copy *up, const struct dev_copy *down,
                        double *out)
{
    int64_t best_ns = INT64_MAX;
    for (int round = 0; round <= ROUNDS; round++) {
        struct core_fence ends[2] = {{0}};
        int64_t start_ns = core_clock_now_ns();
        int rc = dev_queue_copy(bench->up, up, &ends[0]);
        if (rc == 0 && down != NULL) {
            rc = dev_queue_copy(bench->down, down, &ends[1]);
        }
        for (int i = 0; i < 2 && rc == 0; i++) {
            rc = core_fence_wait(ends[i], LIMIT_NS);
        }
        if (rc != 0) {
            return rc;
        }
        int64_t took_ns = core_clock_now_ns() - start_ns;
        if (round > 0 && took_ns < best_ns) {
            best_ns = took_ns;
        }
    }
    *out = (double)(best_ns > 0 ? best_ns : 1) / 1e9;
    return 0;
}

static int measure(struct bench *bench, struct dev_rates *out)
{
    size_t bytes = bench->bytes;
    struct dev_copy up = {
        .direction = DEV_COPY_UP, .to = bench->memory, .from = bench->host, .bytes = bytes};
    struct dev_copy down = {.direction = DEV_COPY_DOWN,
                            .to = bench->host + bytes,
                            .from = bench->memory + bytes,
                            .bytes = bytes};
    struct dev_copy within = {.direction = DEV_COPY_WITHIN,
                              .to = bench->memory + bytes,
                              .from = bench->memory,
                              .bytes = bytes};
    struct dev_rates rates;
    struct {
        const struct dev_copy *first;
        const struct dev_copy *second;
        double *rate;
    } runs[] = {{&up, NULL, &rates.up},
                {&within, NULL, &rates.within},
                {&down, NULL, &rates.down},
                {&up, &down, &rates.both}};
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        double seconds;
        int rc = best_seconds(bench, runs[i].first, runs[i].second, &seconds);
        if (rc != 0) {
            return rc;
        }
        *runs[i].rate = (double)bytes / seconds;
    }
    *out = rates;
    return 0;
}

int dev_rates_measure(struct dev_device *device, size_t bytes, struct dev_rates *out)
{
    if (bytes == 0 || bytes > SIZE_MAX / 2) {
        return core_err_set(-EINVAL, "copies of %zu bytes cannot be measured", bytes);
    }
    struct bench bench = {.device = device, .bytes = bytes};
    int rc = bench_init(&bench);
    if (rc == 0) {
        rc = measure(&bench, out);
    }
    bench_fini(&bench);
    return rc;
}
