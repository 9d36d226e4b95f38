/* verify.c: each 8 bytes are a hash of seed, pass and offset, so that stale, lost, torn and
 * misplaced blocks are found. */
#include "tools/ds_nvme_bench/verify.h"

#include <errno.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/rng.h"
#include "tools/ds_nvme_bench/target.h"

enum { PIECE = 4096, REQUEST = 4 << 20, SLOTS = 8 };

static uint64_t word_at(uint64_t seed, unsigned pass, uint64_t offset)
{
    uint64_t x = (seed ^ (uint64_t)pass << 48) + offset * UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 29) * UINT64_C(0xBF58476D1CE4E5B9);
    return x ^ x >> 32;
}

void bench_verify_fill(uint64_t seed, unsigned pass, uint64_t offset, void *memory, uint64_t bytes)
{
    uint64_t *words = memory;
    for (uint64_t i = 0; i < bytes / 8; i++) {
        words[i] = word_at(seed, pass, offset + i * 8);
    }
}

uint64_t bench_verify_compare(uint64_t seed, unsigned pass, uint64_t offset, const void *memory,
                              uint64_t bytes, uint64_t *first)
{
    const uint64_t *words = memory;
    uint64_t wrong = 0;
    for (uint64_t piece = 0; piece < bytes / PIECE; piece++) {
        uint64_t differs = 0;
        for (uint64_t i = piece * PIECE / 8; i < (piece + 1) * PIECE / 8; i++) {
            differs |= words[i] ^ word_at(seed, pass, offset + i * 8);
        }
        if (differs != 0 && wrong++ == 0) {
            *first = offset + piece * PIECE;
        }
    }
    return wrong;
}

struct verify {
    const struct bench_verify_options *options; /* borrowed */
    struct bench_target_io io;                  /* with memory for SLOTS requests */
    uint64_t requests;
    uint64_t moved; /* bytes requested in all passes */
    struct core_fence fences[SLOTS];
    uint64_t offsets[SLOTS];
};

/* The step is coprime to the number of requests, so that each is visited once. */
static uint64_t offset_of(const struct verify *verify, unsigned pass, uint64_t n)
{
    struct core_rng_words words = core_rng_philox(verify->options->seed, pass, 0);
    uint64_t step = words.word[0] % verify->requests;
    while (step < verify->requests) {
        uint64_t a = step;
        uint64_t b = verify->requests;
        while (b != 0) {
            uint64_t rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1) {
            break;
        }
        step++;
    }
    step = step < verify->requests ? step : 1;
    return (words.word[1] + n * step) % verify->requests * REQUEST;
}

/* The last request may be shorter. */
static uint64_t bytes_at(const struct verify *verify, uint64_t offset)
{
    uint64_t left = verify->options->target->file_bytes - offset;
    return left < REQUEST ? left : REQUEST;
}

static void check_slot(struct verify *verify, unsigned pass, unsigned slot,
                       struct bench_verify *out)
{
    uint64_t first = 0;
    uint64_t bytes = bytes_at(verify, verify->offsets[slot]);
    uint64_t wrong = bench_verify_compare(verify->options->seed, pass, verify->offsets[slot],
                                          verify->io.memory.base + (uint64_t)slot * REQUEST, bytes,
                                          &first);
    if (wrong > 0 && out->wrong == 0) {
        out->first_wrong = first;
        out->pass = pass;
    }
    out->wrong += wrong;
    out->bytes += bytes;
}

static void report_progress(struct verify *verify, uint64_t bytes)
{
    const struct bench_verify_options *options = verify->options;
    verify->moved += bytes;
    if (options->progress != NULL) {
        options->progress(options->user, verify->moved,
                          2 * options->passes * options->target->file_bytes);
    }
}

/* Bytes are compared when their slot is needed again. */
static int run_pass(struct verify *verify, unsigned pass, enum aio_kind kind,
                    struct bench_verify *out)
{
    for (uint64_t n = 0; n < verify->requests + SLOTS; n++) {
        unsigned slot = (unsigned)(n % SLOTS);
        unsigned char *memory = verify->io.memory.base + (uint64_t)slot * REQUEST;
        int rc = n >= SLOTS ? core_fence_wait(verify->fences[slot], BENCH_PATIENCE_NS) : 0;
        if (rc == 0 && n >= SLOTS && kind == AIO_READ) {
            check_slot(verify, pass, slot, out);
        }
        if (rc == 0 && n < verify->requests) {
            verify->offsets[slot] = offset_of(verify, pass + (kind == AIO_READ ? 1000 : 0), n);
            uint64_t bytes = bytes_at(verify, verify->offsets[slot]);
            report_progress(verify, bytes);
            if (kind == AIO_WRITE) {
                bench_verify_fill(verify->options->seed, pass, verify->offsets[slot], memory,
                                  bytes);
                rc = aio_queue_write(verify->io.queues[0], verify->io.file, verify->offsets[slot],
                                     memory, bytes, &verify->fences[slot]);
            } else {
                memset(memory, 0, REQUEST);
                rc = aio_queue_read(verify->io.queues[0], verify->io.file, verify->offsets[slot],
                                    memory, bytes, &verify->fences[slot]);
            }
        }
        if (rc != 0) {
            return rc;
        }
        if (verify->options->stop != NULL && *verify->options->stop) {
            return core_err_set(-EINTR, "interrupted");
        }
    }
    return 0;
}

int bench_verify_run(const struct bench_verify_options *options, struct bench_verify *out)
{
    const struct bench_target *target = options->target;
    struct verify verify = {.options = options,
                            .requests = (target->file_bytes + REQUEST - 1) / REQUEST};
    const struct bench_target_io_options io = {.target = target,
                                               .block_bytes = options->params.block_bytes,
                                               .depth = options->params.depth,
                                               .memory_bytes = (uint64_t)SLOTS * REQUEST,
                                               .pages = CORE_PAGES_THP,
                                               .names = {"verify"}};
    struct bench_verify made = {0};
    int rc = bench_target_io_open(&io, &verify.io);
    for (unsigned pass = 1; rc == 0 && pass <= options->passes; pass++) {
        if ((rc = run_pass(&verify, pass, AIO_WRITE, &made)) == 0) {
            rc = run_pass(&verify, pass, AIO_READ, &made);
        }
    }
    const int closed = bench_target_io_close(&verify.io);
    if (rc != 0 || closed != 0) {
        return rc != 0 ? rc : closed;
    }
    *out = made;
    return 0;
}
