/* swap.c: reads tensors into slots and writes them from there; several slots are in use at once. */
#include "tools/ds_nvme_bench/swap.h"

#include <errno.h>
#include <stdlib.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "tools/ds_nvme_bench/target.h"
#include "tools/ds_nvme_bench/usage.h"

enum { SLOTS = 4, TENSORS_MAX = 4096, READS = 0, WRITES = 1 };

struct swap {
    const struct bench_swap_options *options; /* borrowed */
    struct bench_target_io io;                /* with memory for SLOTS tensors */
    struct aio_sum *sums;                     /* owned, or NULL */
    unsigned tensors;
    uint64_t moved; /* bytes requested in all passes */
    struct core_fence read[TENSORS_MAX];
    struct core_fence wrote[TENSORS_MAX];
};

static void report_progress(struct swap *swap, uint64_t bytes)
{
    const struct bench_swap_options *options = swap->options;
    const uint64_t once = swap->tensors * options->tensor_bytes;
    swap->moved += bytes;
    /* The total: one pass of writes, one unmeasured step, the measured steps. */
    if (options->progress != NULL) {
        options->progress(options->user, swap->moved, once + 2 * once * (options->passes + 1));
    }
}

static int submit(struct swap *swap, enum aio_kind kind, unsigned tensor)
{
    uint64_t bytes = swap->options->tensor_bytes;
    report_progress(swap, bytes);
    struct aio_iov piece = {.file = swap->io.file,
                            .offset = tensor * bytes,
                            .memory = swap->io.memory.base + tensor % SLOTS * bytes,
                            .bytes = bytes};
    if (swap->sums != NULL) {
        piece.sums = (struct aio_sums){
            .table = swap->sums + tensor * (bytes / AIO_SUM_BYTES), .run = 2, .owner = tensor};
    }
    return aio_queue_submit(swap->io.queues[kind == AIO_READ ? READS : WRITES], kind, &piece, 1,
                            kind == AIO_READ ? &swap->read[tensor] : &swap->wrote[tensor]);
}

static int step(struct swap *swap)
{
    for (unsigned t = 0; t < swap->tensors + SLOTS - 1; t++) {
        int rc;
        if (t >= SLOTS && t < swap->tensors &&
            (rc = core_fence_wait(swap->wrote[t - SLOTS], BENCH_PATIENCE_NS)) != 0) {
            return rc;
        }
        if (t < swap->tensors && (rc = submit(swap, AIO_READ, t)) != 0) {
            return rc;
        }
        if (t >= SLOTS - 1) {
            const unsigned done = t - (SLOTS - 1);
            if ((rc = core_fence_wait(swap->read[done], BENCH_PATIENCE_NS)) != 0 ||
                (rc = submit(swap, AIO_WRITE, done)) != 0) {
                return rc;
            }
        }
        if (swap->options->stop != NULL && *swap->options->stop) {
            return core_err_set(-EINTR, "interrupted");
        }
    }
    return core_fence_wait(aio_queue_tail(swap->io.queues[WRITES]), BENCH_PATIENCE_NS);
}

static int open_swap(struct swap *swap)
{
    const struct bench_swap_options *options = swap->options;
    const struct bench_target *target = options->target;
    uint64_t tensors = target->file_bytes / options->tensor_bytes;
    swap->tensors = tensors < TENSORS_MAX ? (unsigned)tensors : TENSORS_MAX;
    if (swap->tensors < SLOTS) {
        return core_err_set(-EINVAL,
                            "a scratch file of %.0f MiB holds %u tensors of %.0f MiB; at least %d "
                            "are needed",
                            (double)target->file_bytes / 1048576, swap->tensors,
                            (double)options->tensor_bytes / 1048576, SLOTS);
    }
    const struct bench_target_io_options io = {
        .target = target,
        .block_bytes = options->params.block_bytes,
        .depth = options->params.depth,
        .memory_bytes = SLOTS * options->tensor_bytes,
        .pages = CORE_PAGES_AUTO,
        .registered = true,
        .names = {[READS] = "swap in", [WRITES] = "swap out"}};
    int rc = bench_target_io_open(&io, &swap->io);
    if (rc == 0) {
        bench_target_fill(swap->io.memory.base, swap->io.memory.bytes);
    }
    if (rc == 0 && options->checksums) {
        swap->sums = calloc(target->file_bytes / AIO_SUM_BYTES + 1, sizeof *swap->sums);
        rc = swap->sums == NULL ? core_err_set(-ENOMEM, "no memory for checksums") : 0;
    }
    return rc;
}

static int close_swap(struct swap *swap)
{
    const int rc = bench_target_io_close(&swap->io);
    free(swap->sums);
    free(swap);
    return rc;
}

/* Writes the tensors once, which records checksums if they are on. */
static int write_all(struct swap *swap)
{
    for (unsigned t = 0; t < swap->tensors; t++) {
        int rc = t >= SLOTS ? core_fence_wait(swap->wrote[t - SLOTS], BENCH_PATIENCE_NS) : 0;
        if (rc != 0 || (rc = submit(swap, AIO_WRITE, t)) != 0) {
            return rc;
        }
        if (swap->options->stop != NULL && *swap->options->stop) {
            return core_err_set(-EINTR, "interrupted");
        }
    }
    return core_fence_wait(aio_queue_tail(swap->io.queues[WRITES]), BENCH_PATIENCE_NS);
}

static int measure(struct swap *swap, struct bench_swap *out)
{
    double cpu = 0;
    int rc = write_all(swap);
    if (rc != 0) {
        return rc;
    }
    for (unsigned pass = 0; pass <= swap->options->passes; pass++) {
        if (pass == 1) {
            cpu = bench_cpu_seconds();
        }
        int64_t begin_ns = core_clock_now_ns();
        rc = step(swap);
        if (rc != 0) {
            return rc;
        }
        if (pass > 0) {
            out->seconds[out->count++] = (double)(core_clock_now_ns() - begin_ns) / 1e9;
        }
    }
    double rates[BENCH_SAMPLES_MAX];
    for (unsigned i = 0; i < out->count; i++) {
        rates[i] = (double)out->bytes / out->seconds[i];
    }
    out->bytes_per_s = bench_median(rates, out->count);
    out->interval = bench_median_interval(rates, out->count);
    double moved = (double)out->bytes * out->count;
    out->cpu_ms_per_gib = (bench_cpu_seconds() - cpu) * 1e3 * 1073741824 / moved;
    return 0;
}

int bench_swap_run(const struct bench_swap_options *options, struct bench_swap *out)
{
    struct swap *swap = calloc(1, sizeof *swap);
    if (swap == NULL) {
        return core_err_set(-ENOMEM, "no memory for the swap pattern");
    }
    swap->options = options;
    struct bench_swap made = {0};
    int rc = open_swap(swap);
    if (rc == 0) {
        made.tensors = swap->tensors;
        made.bytes = 2 * options->tensor_bytes * swap->tensors;
        rc = measure(swap, &made);
    }
    const int closed = close_swap(swap);
    if (rc != 0 || closed != 0) {
        return rc != 0 ? rc : closed;
    }
    *out = made;
    return 0;
}
