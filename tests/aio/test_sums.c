/* test_sums.c: checksums detect silent faults of a drive. */
#include <errno.h>

#include "aio/store.h"
#include "core/base/err.h"
#include "core/base/rng.h"
#include "tests/aio/rig.h"
#include "tests/harness/test.h"

enum { PART_OF_CASES = TEST_SLOW ? 8 : 1, EXTENTS = 8, EXTENT_BYTES = 8192 };
static const int64_t patience_ns = 20000000000;
static const uint64_t seed = 20261121;

struct guarded {
    struct aio_mem_disk *disk;
    struct aio_fault fault;
    struct aio_store *store;
    struct aio_queue *queue;
    struct aio_extent *extents[EXTENTS];
    unsigned char *in, *out;
};

static void open_guarded(struct guarded *g)
{
    *g = (struct guarded){.fault = {.inner = &aio_mem, .seed = seed}};
    check_int(aio_mem_create(1 << 20, &g->disk), ==, 0);
    struct aio_store_path path = {
        .disk = g->disk, .bytes = 1 << 20, .recipe = aio_fault_recipe(&g->fault)};
    struct aio_store_options options = {
        .paths = &path, .paths_count = 1, .run = 77, .align_bytes = 4096};
    check_int(aio_store_open(&options, &g->store), ==, 0);
    for (uint64_t i = 0; i < EXTENTS; i++) {
        check_int(aio_extent_alloc(g->store, EXTENT_BYTES, i, &g->extents[i]), ==, 0);
    }
    check_int(aio_store_queue(g->store, &(struct aio_queue_options){0}, &g->queue), ==, 0);
    g->in = rig_memory(EXTENT_BYTES);
    g->out = rig_memory(EXTENT_BYTES);
}

static void close_guarded(struct guarded *g)
{
    check_int(aio_queue_close(g->queue), ==, 0);
    for (unsigned i = 0; i < EXTENTS; i++) {
        aio_extent_free(g->store, g->extents[i]);
    }
    check_int(aio_store_close(g->store), ==, 0);
    aio_mem_destroy(g->disk);
    rig_free(g->in);
    rig_free(g->out);
}

/* Replaces the failed queue. */
static void renew(struct guarded *g)
{
    check_int(aio_queue_close(g->queue), ==, 0);
    check_int(aio_store_queue(g->store, &(struct aio_queue_options){0}, &g->queue), ==, 0);
}

/* Makes the next `times` operations go wrong. */
static void arm(struct guarded *g, enum aio_fault_kind kind, uint32_t argument, uint64_t times)
{
    g->fault.rules[0] = (struct aio_fault_rule){
        .kind = kind, .from = g->fault.ops + 1, .count = times, .argument = argument};
    g->fault.rules_count = 1;
}

static int guarded_write(struct guarded *g, unsigned extent, uint64_t salt)
{
    struct core_fence fence;
    rig_fill(g->in, EXTENT_BYTES, salt);
    int rc = aio_store_write(g->queue, g->extents[extent], 0, g->in, EXTENT_BYTES, &fence);
    return rc == 0 ? core_fence_wait(fence, patience_ns) : rc;
}

static int guarded_read(struct guarded *g, unsigned extent)
{
    struct core_fence fence;
    int rc = aio_store_read(g->queue, g->extents[extent], 0, g->out, EXTENT_BYTES, &fence);
    return rc == 0 ? core_fence_wait(fence, patience_ns) : rc;
}

/* Chooses a bit at an end, near the middle, or anywhere. */
static uint32_t pick_bit(uint64_t i, uint32_t random)
{
    const uint32_t bits = EXTENT_BYTES * 8;
    const uint32_t choice[4] = {1 + random % 8, bits - 1 - random % 8, bits / 2 + random % 16,
                                1 + random % (bits - 1)};
    return choice[i % 4];
}

/* A fault of a write remains, and reading finds it. */
static void bad_write(struct guarded *g, enum aio_fault_kind kind, uint64_t i, uint32_t random)
{
    unsigned extent = (unsigned)(i % EXTENTS);
    arm(g, kind, kind == AIO_FAULT_CORRUPT ? pick_bit(i, random) : 1 + random % (EXTENT_BYTES - 1),
        1);
    check_int(guarded_write(g, extent, i), ==, 0);
    check_int(guarded_read(g, extent), ==, -EBADMSG);
    check_contains(core_err_message(), "memory: checksum mismatch at offset ");
    check_contains(core_err_message(), "read twice");
    renew(g);
    if (kind == AIO_FAULT_MISDIRECTED) {
        unsigned victim = extent == 0 ? 1 : extent - 1;
        check_int(guarded_read(g, victim), ==, -EBADMSG);
        renew(g);
        check_int(guarded_write(g, victim, i + 1), ==, 0);
    }
    check_int(guarded_write(g, extent, i + 2), ==, 0);
    check_int(guarded_read(g, extent), ==, 0);
}

/* A fault of a read is repaired by reading again. */
static void bad_read(struct guarded *g, enum aio_fault_kind kind, uint64_t i, uint32_t random)
{
    unsigned extent = (unsigned)(i % EXTENTS);
    check_int(guarded_write(g, extent, i), ==, 0);
    memset(g->out, 0xee, EXTENT_BYTES);
    arm(g, kind, kind == AIO_FAULT_CORRUPT ? pick_bit(i, random) : 1 + random % (EXTENT_BYTES - 1),
        1);
    check_int(guarded_read(g, extent), ==, 0);
    check_memory(g->in, g->out, EXTENT_BYTES);
}

/* Silent faults are detected, and those of reads are repaired. */
static void every_silent_fault_is_seen(void)
{
    static const enum aio_fault_kind kinds[] = {AIO_FAULT_CORRUPT, AIO_FAULT_TORN, AIO_FAULT_LOST,
                                                AIO_FAULT_MISDIRECTED};
    const uint64_t cases = 12800 / PART_OF_CASES;
    struct guarded g;
    open_guarded(&g);
    test_note("seed %llu, %llu cases", (unsigned long long)seed, (unsigned long long)cases);
    for (unsigned i = 0; i < EXTENTS; i++) {
        check_int(guarded_write(&g, i, 1000 + i), ==, 0);
    }
    for (uint64_t i = 0; i < cases; i++) {
        enum aio_fault_kind kind = kinds[i / 2 % 4];
        uint32_t random = core_rng_philox(seed, 1, i).word[0];
        if (i % 2 == 0) {
            bad_write(&g, kind, 10 * i, random);
        } else {
            bad_read(&g, kind, 10 * i, random);
        }
    }
    struct aio_drive_stats stats;
    aio_drive_stats(aio_store_drive(g.store, 0), &stats);
    check_uint(stats.mismatches, >=, cases);
    for (size_t k = 0; k < 4; k++) {
        check_uint(g.fault.hits[kinds[k]], >=, cases / 4);
    }
    close_guarded(&g);
}

/* A corruption in consecutive reads is an error with both sums; an unreadable sector is named. */
static void lasting_read_faults_end(void)
{
    struct guarded g;
    open_guarded(&g);
    check_int(guarded_write(&g, 3, 5), ==, 0);
    arm(&g, AIO_FAULT_CORRUPT, 99, 2);
    check_int(guarded_read(&g, 3), ==, -EBADMSG);
    check_contains(core_err_message(), ", expected ");
    check_contains(core_err_message(), "generation 1");
    renew(&g);
    for (int step = 0; step < 20; step++) {
        if (step == 17) {
            g.fault.rules[0] = (struct aio_fault_rule){.kind = AIO_FAULT_ERROR,
                                                       .one_in = 1,
                                                       .offset_from = 3 * EXTENT_BYTES,
                                                       .offset_end = 4 * EXTENT_BYTES};
            g.fault.rules_count = 1;
        }
        check_int(guarded_read(&g, 3), ==, step < 17 ? 0 : -EIO);
        if (step >= 17) {
            check_contains(core_err_message(), "at offset 24576");
            renew(&g);
        }
    }
    close_guarded(&g);
}

TEST_MAIN({"every_silent_fault_is_seen", every_silent_fault_is_seen},
          {"lasting_read_faults_end", lasting_read_faults_end})
