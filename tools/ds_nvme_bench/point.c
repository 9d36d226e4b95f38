/* point.c: keeps the threads of a setting busy, and takes samples at regular times. */
#include "tools/ds_nvme_bench/point.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "aio/queue.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "tools/ds_nvme_bench/usage.h"

enum {
    THREADS_MAX = 16,
    WINDOW_MAX = 64,
    REQUEST_MAX = 16 << 20,
    MEMORY_LEAST = 256 << 20,
    SUM = AIO_SUM_BYTES
};

/* Requests of one kind on one drive, in order through a part of the file. */
struct stream {
    struct aio_queue *queue; /* owned */
    enum aio_kind kind;
    uint32_t file;
    uint64_t begin;
    uint64_t span;
    uint64_t at; /* next offset in the part */
    uint64_t request_bytes;
    unsigned window;
    unsigned slots;        /* buffers, used in turn; `window` or more */
    unsigned char *memory; /* borrowed: slots * request_bytes */
    struct core_fence fences[WINDOW_MAX];
    uint64_t submitted;
    uint64_t retired;
    struct aio_sum *sums; /* owned, or NULL */
};

struct bench_run {
    struct aio_drive *drives[THREADS_MAX]; /* owned */
    struct stream streams[2 * THREADS_MAX];
    unsigned stream_count;
    struct core_bell bell;
    uint64_t read_bytes;
    uint64_t write_bytes;
};

const char *bench_op_name(enum bench_op op)
{
    static const char *const names[BENCH_OP_COUNT] = {"read", "write", "rw"};
    return names[op];
}

static uint64_t request_bytes_of(const struct bench_params *params)
{
    uint64_t bytes = (uint64_t)params->block_bytes * params->depth / 2;
    bytes = bytes < REQUEST_MAX ? bytes : REQUEST_MAX;
    bytes = bytes / params->block_bytes * params->block_bytes;
    return bytes > params->block_bytes ? bytes : params->block_bytes;
}

/* Returns how many requests must be in flight so that the drive has `depth` blocks even while one
 * completes; at most WINDOW_MAX. */
static unsigned window_of(const struct bench_params *params)
{
    uint64_t bytes = request_bytes_of(params);
    uint64_t count = ((uint64_t)params->block_bytes * params->depth + bytes - 1) / bytes + 2;
    return count < WINDOW_MAX ? (unsigned)count : WINDOW_MAX;
}

static uint64_t streams_of(const struct bench_params *params)
{
    return (uint64_t)params->threads * (params->op == BENCH_RW ? 2 : 1);
}

uint64_t bench_point_in_flight(const struct bench_params *params)
{
    return request_bytes_of(params) * window_of(params) * streams_of(params);
}

/* All slots together exceed the caches, because cached buffers make a drive look faster. */
static unsigned slots_of(const struct bench_params *params)
{
    uint64_t each = MEMORY_LEAST / streams_of(params) / request_bytes_of(params);
    return each > window_of(params) ? (unsigned)each : window_of(params);
}

uint64_t bench_point_memory(const struct bench_params *params)
{
    return request_bytes_of(params) * slots_of(params) * streams_of(params);
}

/* ---- opening and closing ---- */

static int open_drive(const struct bench_target *target, const struct bench_how *how,
                      const struct bench_params *params, struct bench_run *run, unsigned t)
{
    struct aio_drive_options options = {.name = target->path,
                                        .backend = target->backend,
                                        .depth = params->depth,
                                        .block_bytes = params->block_bytes,
                                        .cpus = target->cpus,
                                        .sqpoll = how->sqpoll,
                                        .iopoll = how->iopoll,
                                        .no_file_table = !how->files};
    return aio_drive_create(&options, &run->drives[t]);
}

static int open_stream(const struct bench_target *target, const struct bench_how *how,
                       const struct bench_params *params, struct bench_run *run, unsigned t,
                       enum aio_kind kind)
{
    unsigned kinds = params->op == BENCH_RW ? 2 : 1;
    struct stream *stream = &run->streams[run->stream_count];
    uint64_t parts = (uint64_t)params->threads * kinds;
    stream->kind = kind;
    stream->request_bytes = request_bytes_of(params);
    stream->window = window_of(params);
    stream->slots = slots_of(params);
    stream->span = target->file_bytes / parts / stream->request_bytes * stream->request_bytes;
    stream->begin = target->file_bytes / parts * run->stream_count / SUM * SUM;
    if (stream->span < stream->request_bytes * stream->window) { /* requests must not overlap */
        return core_err_set(
            -EINVAL,
            "a scratch file of %.0f MiB is too small for %u threads of %u blocks of "
            "%u bytes",
            (double)target->file_bytes / 1048576, params->threads, params->depth,
            params->block_bytes);
    }
    struct aio_queue_options options = {.name = kind == AIO_READ ? "measured reads"
                                                                 : "measured writes",
                                        .urgency = AIO_STATES,
                                        .depth = WINDOW_MAX,
                                        .bell = &run->bell};
    int rc = aio_queue_open(&run->drives[t], 1, &options, &stream->queue);
    if (rc != 0) {
        return rc;
    }
    run->stream_count++;
    if (how->checksums) {
        stream->sums = calloc(stream->span / SUM + 1, sizeof *stream->sums);
        if (stream->sums == NULL) {
            return core_err_set(-ENOMEM, "no memory for the checksums of %s", target->path);
        }
    }
    return 0;
}

static int open_run(const struct bench_target *target, const struct core_region *memory,
                    const struct bench_how *how, const struct bench_params *params,
                    struct bench_run *run)
{
    assert(params->threads >= 1 && params->threads <= THREADS_MAX);
    assert(bench_point_memory(params) <= memory->bytes);
    struct aio_file file = {.fd = target->fd,
                            .name = target->path,
                            .size_bytes = target->file_bytes,
                            .direct = target->direct};
    unsigned char *next = memory->base;
    core_bell_init(&run->bell);
    for (unsigned t = 0; t < params->threads; t++) {
        unsigned first = run->stream_count;
        uint32_t index = 0;
        int rc = open_drive(target, how, params, run, t);
        if (rc != 0 || (rc = aio_drive_attach(run->drives[t], &file, &index)) != 0) {
            return rc;
        }
        if (params->op != BENCH_WRITE &&
            (rc = open_stream(target, how, params, run, t, AIO_READ)) != 0) {
            return rc;
        }
        if (params->op != BENCH_READ &&
            (rc = open_stream(target, how, params, run, t, AIO_WRITE)) != 0) {
            return rc;
        }
        struct iovec slab = {.iov_base = next};
        for (unsigned s = first; s < run->stream_count; s++) {
            run->streams[s].file = index;
            run->streams[s].memory = next;
            next += run->streams[s].request_bytes * run->streams[s].slots;
        }
        slab.iov_len = (size_t)(next - (unsigned char *)slab.iov_base);
        if (how->buffers && (rc = aio_drive_register(run->drives[t], &slab, 1)) != 0) {
            return rc;
        }
    }
    return 0;
}

/* Returns 0 if the kernel no longer uses the memory, else the first error. */
static int close_run(struct bench_run *run)
{
    int first = 0;
    for (unsigned s = 0; s < run->stream_count; s++) {
        int rc = aio_queue_close(run->streams[s].queue);
        first = first != 0 ? first : rc;
        free(run->streams[s].sums);
    }
    for (unsigned t = 0; t < THREADS_MAX; t++) {
        int rc = aio_drive_destroy(run->drives[t]);
        first = first != 0 ? first : rc;
    }
    return first;
}

/* ---- measuring ---- */

static int stream_pump(struct bench_run *run, struct stream *stream)
{
    while (stream->retired < stream->submitted) {
        int state = core_fence_poll(stream->fences[stream->retired % stream->window]);
        if (state <= 0) {
            if (state < 0) {
                return state;
            }
            break;
        }
        stream->retired++;
        *(stream->kind == AIO_READ ? &run->read_bytes : &run->write_bytes) += stream->request_bytes;
    }
    while (stream->submitted - stream->retired < stream->window) {
        unsigned slot = (unsigned)(stream->submitted % stream->window);
        struct aio_iov piece = {.file = stream->file,
                                .offset = stream->begin + stream->at,
                                .memory = stream->memory +
                                          stream->submitted % stream->slots * stream->request_bytes,
                                .bytes = stream->request_bytes};
        if (stream->sums != NULL) {
            piece.sums = (struct aio_sums){.table = stream->sums + stream->at / SUM,
                                           .run = 1,
                                           .owner = stream->begin,
                                           .first = stream->at / SUM};
        }
        int rc = aio_queue_submit(stream->queue, stream->kind, &piece, 1, &stream->fences[slot]);
        if (rc != 0) {
            return rc == -EAGAIN ? 0 : rc;
        }
        stream->submitted++;
        stream->at += stream->request_bytes;
        stream->at = stream->at + stream->request_bytes > stream->span ? 0 : stream->at;
    }
    return 0;
}

static int pump_all(struct bench_run *run)
{
    for (unsigned s = 0; s < run->stream_count; s++) {
        int rc = stream_pump(run, &run->streams[s]);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

/* Waits for a request. *bytes gets the bytes completed so far. */
static int step(struct bench_run *run, uint64_t *bytes)
{
    uint64_t before = run->read_bytes + run->write_bytes;
    int64_t start_ns = core_clock_now_ns();
    for (;;) {
        uint32_t seen = core_bell_look(&run->bell);
        int rc = pump_all(run);
        *bytes = run->read_bytes + run->write_bytes;
        if (rc != 0 || *bytes > before) {
            return rc;
        }
        if (core_clock_now_ns() - start_ns > BENCH_PATIENCE_NS) {
            return core_err_set(-ETIMEDOUT, "the drive finished nothing for %d s",
                                (int)(BENCH_PATIENCE_NS / 1000000000));
        }
        core_bell_sleep(&run->bell, seen, 1000000000);
    }
}

static int wait_all(struct bench_run *run)
{
    for (unsigned s = 0; s < run->stream_count; s++) {
        int rc = core_fence_wait(aio_queue_tail(run->streams[s].queue), BENCH_PATIENCE_NS);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static int write_sums(struct bench_run *run, const volatile int *stop)
{
    for (unsigned s = 0; s < run->stream_count; s++) {
        struct stream *stream = &run->streams[s];
        if (stream->sums == NULL || stream->kind != AIO_READ) {
            continue;
        }
        stream->kind = AIO_WRITE;
        while (stream->submitted * stream->request_bytes < stream->span) {
            int rc = stream_pump(run, stream);
            if (rc == 0 && stop != NULL && *stop) {
                rc = core_err_set(-EINTR, "interrupted");
            }
            if (rc != 0) {
                return rc;
            }
            core_bell_sleep(&run->bell, core_bell_look(&run->bell), 1000000);
        }
        int rc = core_fence_wait(aio_queue_tail(stream->queue), BENCH_PATIENCE_NS);
        if (rc != 0) {
            return rc;
        }
        stream->retired = stream->submitted;
        stream->kind = AIO_READ;
        stream->at = 0;
    }
    run->read_bytes = 0;
    run->write_bytes = 0;
    return 0;
}

static int sample_all(struct bench_run *run, const struct bench_how *how, const volatile int *stop,
                      struct bench_point *point)
{
    int64_t ramp_end_ns = core_clock_now_ns() + (int64_t)(how->ramp_seconds * 1e9);
    int64_t begin_ns = 0;
    uint64_t begin_bytes = 0;
    unsigned wanted = how->samples;
    while (wanted > 0 && point->count < BENCH_SAMPLES_MAX) {
        uint64_t bytes = 0;
        int rc = step(run, &bytes);
        int64_t now_ns = core_clock_now_ns();
        if (rc != 0) {
            return rc;
        }
        if (stop != NULL && *stop) {
            return core_err_set(-EINTR, "interrupted");
        }
        if (how->beat != NULL) {
            how->beat(how->user);
        }
        if (begin_ns == 0) {
            begin_ns = now_ns >= ramp_end_ns ? now_ns : 0;
            begin_bytes = bytes;
        } else if ((double)(now_ns - begin_ns) >= how->sample_seconds * 1e9) {
            point->samples[point->count++] = (double)(bytes - begin_bytes) /
                                             ((double)(now_ns - begin_ns) / 1e9);
            begin_ns = now_ns;
            begin_bytes = bytes;
            wanted--;
        }
    }
    return 0;
}

/* ---- results ---- */

static void take_stats(const struct bench_run *run, const struct bench_how *how,
                       struct bench_point *point)
{
    uint64_t latency[AIO_LATENCY_BUCKETS];
    for (unsigned t = 0; t < point->params.threads; t++) {
        struct aio_drive_stats stats;
        aio_drive_stats(run->drives[t], &stats);
        point->shorts += stats.short_transfers;
        point->retries += stats.retries;
        point->errors += stats.errors + stats.mismatches;
        point->unregistered = how->buffers && stats.registered_bytes == 0;
        for (int i = 0; i < AIO_LATENCY_BUCKETS; i++) {
            point->latency[i] += (uint32_t)(stats.latency[0][i] + stats.latency[1][i]);
        }
    }
    for (int i = 0; i < AIO_LATENCY_BUCKETS; i++) {
        latency[i] = point->latency[i];
    }
    const double shares[] = {0.5, 0.99, 0.999, 1.0};
    for (int i = 0; i < 4; i++) {
        point->latency_ms[i] = (double)aio_latency_ns(latency, shares[i]) / 1e6;
    }
    snprintf(point->setup, sizeof point->setup, "%s", aio_drive_describe(run->drives[0]));
}

static void take_rates(struct bench_point *point, const struct bench_run *run, double cpu)
{
    double bytes = (double)(run->read_bytes + run->write_bytes);
    point->bytes += bytes;
    point->cpu_seconds += cpu;
    point->read_share = bytes > 0 ? (double)run->read_bytes / bytes : 0;
    point->cpu_ms_per_gib = point->bytes > 0 ? point->cpu_seconds * 1e3 * 1073741824 / point->bytes
                                             : 0;
    point->median = bench_median(point->samples, point->count);
    point->interval = bench_median_interval(point->samples, point->count);
}

int bench_point_run(const struct bench_target *target, const struct core_region *memory,
                    const struct bench_how *how, const volatile int *stop,
                    struct bench_point *point)
{
    struct bench_run *run = calloc(1, sizeof *run);
    if (run == NULL) {
        return core_err_set(-ENOMEM, "no memory to measure %s", target->path);
    }
    int rc = open_run(target, memory, how, &point->params, run);
    if (rc != 0) {
        goto cleanup;
    }
    rc = write_sums(run, stop);
    double cpu = bench_cpu_seconds();
    if (rc == 0) {
        rc = sample_all(run, how, stop, point);
    }
    cpu = bench_cpu_seconds() - cpu;
    if (rc == 0 || rc == -EINTR) {
        const int drained = wait_all(run);
        rc = rc != 0 ? rc : drained;
    }
    if (rc == 0 && point->count > 0) {
        take_stats(run, how, point);
        take_rates(point, run, cpu);
    }
cleanup:;
    int closed = close_run(run);
    free(run);
    /* A timeout wins: the caller must not free memory that the kernel uses. */
    return rc == 0 || closed == -ETIMEDOUT ? closed : rc;
}
