/* swap.c: READ into a slot, then WRITE from it, as many slots under way as the ring has. */
#include "tools/ds_nvme_bench/swap.h"

#include <errno.h>
#include <stdlib.h>

#include "aio/queue.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "tools/ds_nvme_bench/usage.h"

enum { SLOTS = 4, TENSORS_MAX = 4096 };
static const int64_t patience_ns = 120000000000;

struct swap {
    const struct bench_swap_options *options; /* borrowed */
    struct aio_drive *drive;                  /* owned */
    struct aio_queue *reads;                  /* owned */
    struct aio_queue *writes;                 /* owned */
    struct core_region memory;                /* owned: SLOTS tensors */
    struct aio_sum *sums;                     /* owned, or NULL */
    uint32_t file;
    unsigned tensors;
    struct core_fence read[TENSORS_MAX];
    struct core_fence wrote[TENSORS_MAX];
};

static int submit(struct swap *swap, enum aio_kind kind, unsigned tensor)
{
    uint64_t bytes = swap->options->tensor_bytes;
    struct aio_piece piece = {.file = swap->file,
                              .offset = tensor * bytes,
                              .memory = swap->memory.base + tensor % SLOTS * bytes,
                              .bytes = bytes};
    if (swap->sums != NULL) {
        piece.sums = (struct aio_sums){
            .table = swap->sums + tensor * (bytes / AIO_SUM_BYTES), .run = 2, .owner = tensor};
    }
    return aio_queue_submit(kind == AIO_READ ? swap->reads : swap->writes, kind, &piece, 1,
                            kind == AIO_READ ? &swap->read[tensor] : &swap->wrote[tensor]);
}

/* One step: a slot is read into when what it held before has been written out. */
static int step(struct swap *swap)
{
    for (unsigned t = 0; t < swap->tensors + SLOTS - 1; t++) {
        int rc = 0;
        if (t < swap->tensors) {
            rc = t >= SLOTS ? core_fence_wait(swap->wrote[t - SLOTS], patience_ns) : 0;
            rc = rc == 0 ? submit(swap, AIO_READ, t) : rc;
        }
        if (rc == 0 && t >= SLOTS - 1) {
            unsigned done = t - (SLOTS - 1);
            rc = core_fence_wait(swap->read[done], patience_ns);
            rc = rc == 0 ? submit(swap, AIO_WRITE, done) : rc;
        }
        if (rc != 0) {
            return rc;
        }
        if (swap->options->stop != NULL && *swap->options->stop) {
            return core_err_set(-EINTR, "interrupted");
        }
    }
    return core_fence_wait(aio_queue_tail(swap->writes), patience_ns);
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
    struct core_region_options memory = {
        .name = "slots", .bytes = SLOTS * options->tensor_bytes, .pages = CORE_PAGES_AUTO};
    struct aio_drive_options drive = {.name = target->path,
                                      .backend = target->backend,
                                      .depth = options->params.depth,
                                      .block_bytes = options->params.block_bytes};
    struct aio_file file = {.fd = target->fd,
                            .name = target->path,
                            .size_bytes = target->file_bytes,
                            .direct = target->direct};
    int rc = core_region_alloc(&memory, &swap->memory);
    rc = rc == 0 ? aio_drive_create(&drive, &swap->drive) : rc;
    rc = rc == 0 ? aio_drive_attach(swap->drive, &file, &swap->file) : rc;
    if (rc == 0) {
        struct iovec slab = {.iov_base = swap->memory.base, .iov_len = swap->memory.bytes};
        rc = aio_drive_register(swap->drive, &slab, 1);
    }
    struct aio_queue_options reads = {.name = "swap in", .urgency = AIO_STATES};
    struct aio_queue_options writes = {.name = "swap out", .urgency = AIO_STATES};
    rc = rc == 0 ? aio_queue_open(&swap->drive, 1, &reads, &swap->reads) : rc;
    rc = rc == 0 ? aio_queue_open(&swap->drive, 1, &writes, &swap->writes) : rc;
    if (rc == 0 && options->checksums) {
        swap->sums = calloc(target->file_bytes / AIO_SUM_BYTES + 1, sizeof *swap->sums);
        rc = swap->sums == NULL ? core_err_set(-ENOMEM, "no memory for checksums") : 0;
    }
    return rc;
}

static int close_swap(struct swap *swap)
{
    int rc = aio_queue_close(swap->reads);
    int ended = aio_queue_close(swap->writes);
    rc = rc == 0 ? ended : rc;
    ended = aio_drive_destroy(swap->drive);
    rc = rc == 0 ? ended : rc;
    if (rc == 0) { /* else the kernel may still use it */
        core_region_free(&swap->memory);
    }
    free(swap->sums);
    free(swap);
    return rc;
}

/* Every tensor written once, so that its sums are known. */
static int write_all(struct swap *swap)
{
    for (unsigned t = 0; t < swap->tensors; t++) {
        int rc = t >= SLOTS ? core_fence_wait(swap->wrote[t - SLOTS], patience_ns) : 0;
        rc = rc == 0 ? submit(swap, AIO_WRITE, t) : rc;
        if (rc != 0) {
            return rc;
        }
    }
    return core_fence_wait(aio_queue_tail(swap->writes), patience_ns);
}

static int measure(struct swap *swap, struct bench_swap *out)
{
    double cpu = 0;
    int rc = write_all(swap);
    for (unsigned pass = 0; rc == 0 && pass <= swap->options->passes; pass++) {
        if (pass == 1) {
            cpu = bench_cpu_seconds();
        }
        int64_t begin_ns = core_clock_now_ns();
        rc = step(swap);
        if (rc == 0 && pass > 0) {
            out->seconds[out->count++] = (double)(core_clock_now_ns() - begin_ns) / 1e9;
        }
    }
    if (rc != 0) {
        return rc;
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
    int closed = close_swap(swap);
    rc = rc != 0 ? rc : closed;
    if (rc == 0) {
        *out = made;
    }
    return rc;
}
