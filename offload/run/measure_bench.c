/* measure_bench.c: limits for measuring, and a device with a queue. */
#include "offload/run/measure_bench.h"

#include "core/base/clock.h"
#include "offload/run/measure.h"

double run_measure_seconds_since(int64_t start_ns)
{
    return (double)(core_clock_now_ns() - start_ns) * 1e-9;
}

uint64_t run_measure_clamp(uint64_t value, uint64_t least, uint64_t most)
{
    return value < least ? least : value > most ? most : value;
}

/* ---- limits on memory and files ---- */

/* for a drive's file */
static const uint64_t file_bytes_min = UINT64_C(64) << 20;
static const uint64_t file_bytes_max = UINT64_C(4) << 30;

/* limit of memory, except for the update's arrays */
static const uint64_t spare_bytes_max = UINT64_C(256) << 20;
static const uint64_t small_bytes = UINT64_C(16) << 20;

uint64_t run_measure_kept_bytes(const struct run_shapes *shapes, const struct run_options *options)
{
    const struct plan_format format = run_options_format(options);
    uint64_t bytes = 0;
    for (uint32_t b = 0; b < shapes->block_count; b++) {
        const uint64_t elements = shapes->blocks[b].elements;
        const uint64_t stored = shapes->blocks[b].stored_elements;
        bytes += (stored > 0 ? stored : elements) * format.weight_bytes +
                 (shapes->blocks[b].trained ? plan_state_bytes(&format, elements) : 0);
    }
    return bytes;
}

uint64_t run_measure_file_bytes(const struct run_shapes *shapes, const struct run_options *options)
{
    const uint64_t bytes = run_measure_kept_bytes(shapes, options);
    uint64_t file = file_bytes_min;
    while (file < bytes && file < file_bytes_max) {
        file *= 2;
    }
    return file;
}

uint64_t run_measure_budget_bytes(const struct run_options *options)
{
    const struct plan_budgets *budgets = &options->budgets;
    const uint64_t bytes = budgets->host_bytes + budgets->device_bytes;
    const bool joint = budgets->joint_bytes > 0 && budgets->joint_bytes < bytes;
    return joint ? budgets->joint_bytes : bytes;
}

uint64_t run_measure_spare_within(const struct run_shapes *shapes,
                                  const struct run_options *options, uint64_t limit)
{
    const uint64_t most = run_measure_clamp(
        run_measure_kept_bytes(shapes, options) / 6 + small_bytes, 0, limit);
    const uint64_t budget = run_measure_budget_bytes(options) / 4;
    uint64_t spare = limit;
    while (spare > most && spare > small_bytes) {
        spare /= 2;
    }
    return spare < budget ? spare : budget;
}

uint64_t run_measure_spare(const struct run_shapes *shapes, const struct run_options *options)
{
    return run_measure_spare_within(shapes, options, spare_bytes_max);
}

/* ---- a device to measure on ---- */

int run_bench_open(struct run_bench *bench, const char *name, const struct kern_options *kernels,
                   const struct dev_queue_options *queue, uint64_t bytes)
{
    const struct dev_options device = {.memory_bytes = bytes + queue->scratch_bytes +
                                                       (uint64_t)2 * DEV_ALIGN_BYTES};
    int rc = dev_open(name, &device, &bench->device);
    if (rc != 0) {
        return rc;
    }
    rc = kern_ops_attach(bench->device, kernels, &bench->ops);
    if (rc != 0) {
        return rc;
    }
    rc = dev_queue_create(bench->device, queue, &bench->queue);
    return rc != 0 ? rc : dev_memory_alloc(bench->device, bytes, &bench->memory);
}

void run_bench_close(struct run_bench *bench)
{
    dev_queue_destroy(bench->queue);
    if (bench->device != NULL) {
        if (bench->memory != NULL) {
            dev_memory_free(bench->device, bench->memory);
        }
        kern_ops_detach(bench->ops);
        dev_close(bench->device);
    }
}

/* Enough to make the time to start launches negligible. */
enum { LAUNCHES = 8, TURNS = 3 };

int run_bench_time(struct run_bench *bench, const struct dev_command *command, uint64_t elements,
                   double *per_second)
{
    for (int turn = 0; turn < TURNS; turn++) {
        const int64_t start_ns = core_clock_now_ns();
        struct core_fence done = {0};
        for (int i = 0; i < LAUNCHES; i++) {
            int rc = dev_queue_launch(bench->queue, command, &done);
            if (rc != 0) {
                return rc;
            }
        }
        int rc = core_fence_wait(done, -1);
        if (rc != 0) {
            return rc;
        }
        const double rate = (double)elements * LAUNCHES / run_measure_seconds_since(start_ns);
        *per_second = turn == 0 || rate > *per_second ? rate : *per_second;
    }
    return 0;
}
