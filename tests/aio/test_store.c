/* test_store.c: extents on one or several paths, and a full store. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "aio/measure.h"
#include "aio/space.h"
#include "aio/store.h"
#include "core/base/bell.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/hash.h"
#include "core/base/rng.h"
#include "tests/aio/rig.h"
#include "tests/harness/test.h"

static const int64_t patience_ns = 20000000000;
enum { MIB = 1 << 20 };

/* A simulated clock, so that rates do not depend on the machine. A drive's wait for a completion
 * returns at once and moves the clock, once `together` drives have waited. */
static struct {
    pthread_mutex_t mutex;
    int64_t now_ns; /* 0: the system's clock */
    const struct core_bell *waiting[3];
    unsigned count, together;
} simulated = {.mutex = PTHREAD_MUTEX_INITIALIZER};

int64_t __real_core_clock_now_ns(void);
int64_t __wrap_core_clock_now_ns(void);
int __real_core_bell_sleep(struct core_bell *bell, uint32_t seen, int64_t timeout_ns);
int __wrap_core_bell_sleep(struct core_bell *bell, uint32_t seen, int64_t timeout_ns);

int64_t __wrap_core_clock_now_ns(void)
{
    pthread_mutex_lock(&simulated.mutex);
    const int64_t now_ns = simulated.now_ns;
    pthread_mutex_unlock(&simulated.mutex);
    return now_ns != 0 ? now_ns : __real_core_clock_now_ns();
}

/* Waits for completions are shorter than the 100 ms of an idle drive. */
int __wrap_core_bell_sleep(struct core_bell *bell, uint32_t seen, int64_t timeout_ns)
{
    const int64_t idle_ns = 100000000;
    bool moved = false;
    pthread_mutex_lock(&simulated.mutex);
    if (simulated.now_ns != 0 && timeout_ns > 0 && timeout_ns < idle_ns &&
        core_bell_look(bell) == seen) {
        unsigned at = 0;
        while (at < simulated.count && simulated.waiting[at] != bell) {
            at++;
        }
        if (at == simulated.count && at < simulated.together) {
            simulated.waiting[simulated.count++] = bell;
        }
        moved = simulated.count >= simulated.together;
        simulated.now_ns += moved ? timeout_ns : 0;
    }
    pthread_mutex_unlock(&simulated.mutex);
    return moved ? -ETIMEDOUT : __real_core_bell_sleep(bell, seen, timeout_ns);
}

/* Starts the simulated clock at the current time, or ends it. */
static void simulate_clock(bool on, unsigned together)
{
    pthread_mutex_lock(&simulated.mutex);
    const int64_t begin_ns = simulated.now_ns != 0 ? simulated.now_ns : __real_core_clock_now_ns();
    simulated.now_ns = on ? begin_ns : 0;
    simulated.count = 0;
    simulated.together = together;
    pthread_mutex_unlock(&simulated.mutex);
}

static void store_write(struct aio_queue *queue, struct aio_extent *extent, uint64_t offset,
                        const void *memory, uint64_t bytes)
{
    struct core_fence fence;
    check_int(aio_store_write(queue, extent, offset, memory, bytes, &fence), ==, 0);
    check_int(core_fence_wait(fence, patience_ns), ==, 0);
}

static void store_read(struct aio_queue *queue, const struct aio_extent *extent, uint64_t offset,
                       void *memory, uint64_t bytes)
{
    struct core_fence fence;
    check_int(aio_store_read(queue, extent, offset, memory, bytes, &fence), ==, 0);
    check_int(core_fence_wait(fence, patience_ns), ==, 0);
}

/* Shares follow the weights closely and use all free space. */
static void shares_follow_weights(void)
{
    for (uint64_t round = 0; round < 300; round++) {
        struct core_rng_words random = core_rng_philox(9, 0, round);
        unsigned count = 1 + random.word[0] % 5;
        double weights[5];
        double credit[5] = {0};
        uint64_t room[5];
        uint64_t given[5] = {0};
        uint64_t total = 0;
        double sum = 0;
        for (unsigned i = 0; i < count; i++) {
            weights[i] = 1 + core_rng_philox(9, 1, round * 5 + i).word[0] % 7;
            room[i] = 1000000;
            sum += weights[i];
        }
        for (uint64_t extent = 0; extent < 200; extent++) {
            uint64_t units = 1 + core_rng_philox(9, 2, round * 200 + extent).word[0] % 9;
            uint64_t out[5];
            uint64_t got = 0;
            aio_stripe_share(weights, credit, room, count, units, out);
            for (unsigned i = 0; i < count; i++) {
                given[i] += out[i];
                got += out[i];
                room[i] -= out[i];
            }
            check_uint(got, ==, units);
            total += units;
            for (unsigned i = 0; i < count; i++) {
                double fair = (double)total * weights[i] / sum;
                check_true(fabs((double)given[i] - fair) < 1.5 * count);
            }
        }
    }
    double weights[3] = {5, 1, 1};
    double credit[3] = {0};
    uint64_t room[3] = {2, 3, 20};
    uint64_t out[3];
    aio_stripe_share(weights, credit, room, 3, 25, out);
    check_uint(out[0], ==, 2);
    check_uint(out[1], ==, 3);
    check_uint(out[2], ==, 20);
}

/* Ranges do not overlap, and free space is merged again. */
static void space_is_exact(void)
{
    enum { UNITS = 512, HELD = 64 };
    static bool used[UNITS];
    struct aio_space *space = NULL;
    struct aio_range held[HELD] = {{0, 0}};
    struct aio_range all;
    check_int(aio_space_create(4096, UNITS, &space), ==, 0);
    for (uint64_t step = 0; step < 20000; step++) {
        struct aio_range *slot = &held[core_rng_philox(3, 0, step).word[0] % HELD];
        if (slot->bytes > 0) {
            memset(used + (slot->offset - 4096), 0, slot->bytes);
            aio_space_give(space, *slot);
            slot->bytes = 0;
            continue;
        }
        uint64_t want = 1 + core_rng_philox(3, 1, step).word[0] % 40;
        int rc = aio_space_take(space, want, slot);
        if (rc == -ENOSPC) {
            check_uint(aio_space_free_bytes(space), ==, 0);
            slot->bytes = 0;
            continue;
        }
        check_int(rc, ==, 0);
        check_uint(slot->bytes, <=, want);
        for (uint64_t i = 0; i < slot->bytes; i++) {
            check_true(!used[slot->offset - 4096 + i]);
            used[slot->offset - 4096 + i] = true;
        }
        if (slot->bytes > 3) { /* gives back a part at once */
            slot->bytes -= 2;
            aio_space_split(space, (struct aio_range){slot->offset + slot->bytes, 2});
            memset(used + (slot->offset - 4096 + slot->bytes), 0, 2);
        }
        uint64_t unused = 0;
        for (size_t i = 0; i < UNITS; i++) {
            unused += !used[i];
        }
        check_uint(unused, ==, aio_space_free_bytes(space));
    }
    for (size_t i = 0; i < HELD; i++) {
        if (held[i].bytes > 0) {
            aio_space_give(space, held[i]);
        }
    }
    check_int(aio_space_take(space, UNITS, &all), ==, 0);
    check_uint(all.offset, ==, 4096);
    check_uint(all.bytes, ==, UNITS);
    aio_space_destroy(space);
}

struct striped {
    struct aio_mem_disk *disks[3];
    struct aio_store *store;
};

static void open_striped(struct striped *s, const uint64_t *rates, unsigned count, uint64_t bytes)
{
    struct aio_store_path paths[3] = {{0}};
    *s = (struct striped){0};
    for (unsigned i = 0; i < count; i++) {
        check_int(aio_mem_create(bytes, &s->disks[i]), ==, 0);
        s->disks[i]->read_bytes_per_s = rates[i];
        s->disks[i]->write_bytes_per_s = rates[i];
        paths[i] = (struct aio_store_path){
            .disk = s->disks[i], .bytes = bytes, .weight = rates[i] == 0 ? 1 : 0};
    }
    struct aio_store_options options = {
        .paths = paths,
        .paths_count = count,
        .run = 3,
        .drive = {.block_bytes = 128 << 10, .depth = 4}, /* few blocks in flight at the end */
    };
    check_int(aio_store_open(&options, &s->store), ==, 0);
}

static double written(const struct aio_store *store, unsigned path)
{
    struct aio_drive_stats stats;
    aio_drive_stats(aio_store_drive(store, path), &stats);
    return (double)stats.write_bytes;
}

static void close_striped(struct striped *s)
{
    check_int(aio_store_close(s->store), ==, 0);
    for (unsigned i = 0; i < 3; i++) {
        aio_mem_destroy(s->disks[i]);
    }
}

/* An extent is spread in proportion to the measured speeds of its paths, and can be read back. */
static void unequal_paths_add_up(void)
{
    const uint64_t rates[3] = {80 * MIB, 40 * MIB, 20 * MIB};
    const uint64_t bytes = 56 * MIB;
    struct striped s;
    struct aio_queue *queue = NULL;
    struct aio_extent *extent = NULL;
    simulate_clock(true, 0);
    open_striped(&s, rates, 3, 64 * MIB);
    simulate_clock(true, 3);
    check_uint(aio_store_paths(s.store), ==, 3);
    check_uint(aio_store_bytes(s.store), ==, 192 * MIB);
    check_int(aio_extent_alloc(s.store, bytes, 1, &extent), ==, 0);
    check_uint(aio_extent_bytes(extent), ==, bytes);
    check_int(aio_store_queue(s.store, &(struct aio_queue_options){0}, &queue), ==, 0);
    unsigned char *memory = rig_memory(bytes);
    rig_fill(memory, bytes, 1);
    struct iovec whole = {memory, bytes};
    check_int(aio_store_register(s.store, &whole, 1), ==, 0);
    const double before[] = {written(s.store, 0), written(s.store, 1)}; /* measuring writes, too */
    store_write(queue, extent, 0, memory, bytes);
    check_double(fabs((written(s.store, 0) - before[0]) / (32.0 * MIB) - 1), <, 0.15);
    check_double(fabs((written(s.store, 1) - before[1]) / (16.0 * MIB) - 1), <, 0.15);
    memset(memory, 0, bytes);
    store_read(queue, extent, 0, memory, bytes);
    unsigned char *same = rig_memory(bytes);
    rig_fill(same, bytes, 1);
    check_int(memcmp(memory, same, bytes), ==, 0);
    rig_free(same);
    simulate_clock(false, 0);
    check_int(aio_queue_close(queue), ==, 0);
    aio_extent_free(s.store, extent);
    rig_free(memory);
    close_striped(&s);
}

/* A store can be filled to the last unit and emptied again; a full store reports an error. */
static void full_to_the_last_unit(void)
{
    const uint64_t rates[3] = {0};
    struct striped s;
    struct aio_extent *extents[64];
    open_striped(&s, rates, 3, 16 * MIB);
    for (int pass = 0; pass < 3; pass++) {
        unsigned count = 0;
        while (aio_store_free_bytes(s.store) > 0) {
            uint64_t bytes = (1 + core_rng_philox(5, (uint64_t)pass, count).word[0] % 4) * 2 * MIB;
            bytes = bytes < aio_store_free_bytes(s.store) ? bytes : aio_store_free_bytes(s.store);
            check_int(aio_extent_alloc(s.store, bytes - 1000, count, &extents[count]), ==, 0);
            count++;
        }
        struct aio_extent *one = NULL;
        check_int(aio_extent_alloc(s.store, 1, 99, &one), ==, -ENOSPC);
        check_contains(core_err_message(), "1 bytes are needed, 0 of 50331648 are free");
        check_int(aio_extent_alloc(s.store, 0, 99, &one), ==, -EINVAL);
        check_int(aio_extent_alloc(s.store, UINT64_MAX, 99, &one), ==, -ENOSPC);
        for (unsigned i = 0; i < count; i++) {
            aio_extent_free(s.store, extents[count - 1 - i]);
        }
        check_uint(aio_store_free_bytes(s.store), ==, 48 * MIB);
    }
    close_striped(&s);
}

static void files_of_two_directories(void)
{
    static const uint32_t blocks[] = {128 << 10, 1 << 20, 4 << 20};
    enum { BYTES = 7 * MIB + 12288 };
    unsigned char *in = rig_memory(BYTES);
    unsigned char *out = rig_memory(BYTES);
    for (const char *const *name = rig_backends(); *name != NULL; name++) {
        if (strcmp(*name, "mem") == 0) {
            continue;
        }
        for (size_t b = 0; b < 3; b += TEST_STRIDE(2)) {
            char first[512];
            char second[512];
            snprintf(first, sizeof first, "%s/first", test_directory());
            snprintf(second, sizeof second, "%s/second", test_directory());
            struct aio_store_path paths[2] = {{.directory = first, .bytes = 8 * MIB, .weight = 2},
                                              {.directory = second, .bytes = 8 * MIB, .weight = 1}};
            struct aio_store_options options = {.paths = paths,
                                                .paths_count = 2,
                                                .backend = *name,
                                                .drive = {.block_bytes = blocks[b]}};
            struct aio_store *store = NULL;
            struct aio_queue *queue = NULL;
            struct aio_extent *extent = NULL;
            check_int(aio_store_open(&options, &store), ==, 0);
            check_int(aio_extent_alloc(store, BYTES, 8, &extent), ==, 0);
            check_int(aio_store_queue(store, &(struct aio_queue_options){0}, &queue), ==, 0);
            rig_fill(in, BYTES, b);
            store_write(queue, extent, 0, in, BYTES);
            store_read(queue, extent, 0, out, BYTES);
            check_memory(in, out, BYTES);
            store_read(queue, extent, 3 * MIB, out, 4 * MIB + 12288);
            check_memory(in + 3 * MIB, out, 4 * MIB + 12288);
            rig_fill(in + 2 * MIB, 3 * MIB, 50 + b);
            store_write(queue, extent, 2 * MIB, in + 2 * MIB, 3 * MIB);
            store_read(queue, extent, 0, out, BYTES);
            check_memory(in, out, BYTES);
            check_true(aio_store_drive(store, 1) != NULL);
            check_int(aio_queue_close(queue), ==, 0);
            aio_extent_free(store, extent);
            check_int(aio_store_close(store), ==, 0);
        }
    }
    rig_free(in);
    rig_free(out);
}

/* Checksums of the caller work like those of the drive. Reads must begin and end where the range of
 * a checksum does. */
static void sums_by_the_caller(void)
{
    const uint64_t rates[3] = {0};
    struct striped s;
    struct aio_queue *queue = NULL;
    struct aio_extent *extent = NULL;
    struct core_fence fence;
    unsigned char *memory = rig_memory(2 * MIB);
    open_striped(&s, rates, 1, 4 * MIB);
    check_int(aio_extent_alloc(s.store, 2 * MIB, 4, &extent), ==, 0);
    check_int(aio_store_queue(s.store, &(struct aio_queue_options){0}, &queue), ==, 0);
    check_int(aio_store_read(queue, extent, 4096, memory, 4096, &fence), ==, -EINVAL);
    check_int(aio_store_read(queue, extent, MIB, memory, 2 * MIB, &fence), ==, -EINVAL);
    rig_fill(memory, 2 * MIB, 1);
    check_int(aio_store_write(queue, extent, 0, memory, 2 * MIB, &fence), ==, 0);
    check_int(core_fence_wait(fence, patience_ns), ==, 0);
    for (uint64_t wrong = 0; wrong < 2; wrong++) {
        for (uint64_t i = 0; i < 2; i++) {
            uint64_t seed = aio_extent_seed(extent, i);
            aio_extent_hashed(extent, i, core_hash(memory + i * MIB, MIB, seed) ^ (wrong & i));
        }
        check_int(aio_store_read(queue, extent, 0, memory, 2 * MIB, &fence), ==, 0);
        check_int(core_fence_wait(fence, patience_ns), ==, wrong ? -EBADMSG : 0);
    }
    check_contains(core_err_message(), "checksum mismatch at offset 1048576");
    check_int(aio_queue_close(queue), ==, 0);
    aio_extent_free(s.store, extent);

    check_int(aio_extent_alloc(s.store, 4096, 5, &extent), ==, 0);
    check_int(aio_store_queue(s.store, &(struct aio_queue_options){0}, &queue), ==, 0);
    check_int(aio_store_read(queue, extent, 0, memory, 4096, &fence), ==, 0);
    check_int(core_fence_wait(fence, patience_ns), ==, -ENODATA);
    check_contains(core_err_message(), "never written");
    check_int(aio_queue_close(queue), ==, 0);
    aio_extent_free(s.store, extent);
    close_striped(&s);
    rig_free(memory);
    struct aio_sums sums = {.run = 1, .owner = 2, .first = 3};
    check_true(aio_sum_seed(&sums, 0, 1) != aio_sum_seed(&sums, 1, 1));
    check_true(aio_sum_seed(&sums, 0, 1) != aio_sum_seed(&sums, 0, 2));
}

/* An extent with checksums per page is read and written by pages; errors are found page by page. */
static void an_extent_by_pages(void)
{
    enum { PAGE = 4096 };
    const uint64_t rates[3] = {0};
    struct striped s;
    struct aio_queue *queue = NULL;
    struct aio_extent *extent = NULL;
    struct core_fence fence;
    unsigned char *memory = rig_memory(2 * MIB);
    unsigned char *page = rig_memory(2 * PAGE);
    open_striped(&s, rates, 1, 4 * MIB);
    check_int(aio_extent_alloc_paged(s.store, MIB + 3 * PAGE, 4, &extent), ==, 0);
    check_int(aio_store_queue(s.store, &(struct aio_queue_options){0}, &queue), ==, 0);
    check_int(aio_store_read(queue, extent, 512, page, PAGE, &fence), ==, -EINVAL);
    check_contains(core_err_message(), "not a whole number of pages");
    rig_fill(memory, MIB + 3 * PAGE, 1);
    check_int(aio_store_write(queue, extent, 0, memory, 5 * PAGE, &fence), ==, 0);
    check_int(aio_store_write(queue, extent, 5 * PAGE, memory + 5 * PAGE, MIB - 2 * PAGE, &fence),
              ==, 0);
    check_int(core_fence_wait(fence, patience_ns), ==, 0);
    for (uint64_t at = 3 * PAGE; at < MIB + 2 * PAGE; at += 50 * PAGE) {
        check_int(aio_store_read(queue, extent, at, page, 2 * PAGE, &fence), ==, 0);
        check_int(core_fence_wait(fence, patience_ns), ==, 0);
        check_true(memcmp(page, memory + at, 2 * PAGE) == 0);
    }
    aio_extent_hashed(extent, 9, 1);
    check_int(aio_store_read(queue, extent, 7 * PAGE, page, 2 * PAGE, &fence), ==, 0);
    check_int(core_fence_wait(fence, patience_ns), ==, 0);
    check_int(aio_store_read(queue, extent, 8 * PAGE, page, 2 * PAGE, &fence), ==, 0);
    check_int(core_fence_wait(fence, patience_ns), ==, -EBADMSG);
    check_int(aio_queue_close(queue), ==, 0);
    aio_extent_free(s.store, extent);
    close_striped(&s);
    rig_free(page);
    rig_free(memory);
}

/* Ranges of another file are read as an extent and verified; the store does not gain
 * their space. */
static void an_extent_elsewhere(void)
{
    const uint64_t rates[3] = {0};
    struct striped s;
    struct aio_queue *queue = NULL;
    struct aio_extent *extent = NULL;
    struct core_fence fence;
    unsigned char *memory = rig_memory(MIB + 4096);
    uint32_t file = 0;
    open_striped(&s, rates, 1, 4 * MIB);
    const uint64_t free_bytes = aio_store_free_bytes(s.store);
    struct aio_drive *drive = aio_store_drive(s.store, 0);
    check_int(aio_drive_attach(drive, &(struct aio_file){.fd = -1, .name = "other"}, &file), ==, 0);
    struct aio_extent_part parts[2] = {{file, 2 * MIB, MIB}, {file, MIB, 4096}};
    check_int(aio_extent_adopt(s.store, parts, 2, 9, &extent), ==, 0);
    check_uint(aio_extent_bytes(extent), ==, MIB + 4096);
    check_int(aio_store_queue(s.store, &(struct aio_queue_options){0}, &queue), ==, 0);
    rig_fill(memory, MIB + 4096, 3);
    memcpy(s.disks[0]->memory + 2 * MIB, memory, MIB);
    memcpy(s.disks[0]->memory + MIB, memory + MIB, 4096);
    for (uint64_t i = 0; i < 2; i++) {
        aio_extent_hashed(
            extent, i,
            core_hash(memory + i * MIB, i == 0 ? MIB : 4096, aio_extent_seed(extent, i)));
    }
    unsigned char *back = rig_memory(MIB + 4096);
    store_read(queue, extent, 0, back, MIB + 4096);
    check_memory(back, memory, MIB + 4096);
    s.disks[0]->memory[MIB + 5] ^= 1;
    check_int(aio_store_read(queue, extent, 0, back, MIB + 4096, &fence), ==, 0);
    check_int(core_fence_wait(fence, patience_ns), ==, -EBADMSG);
    check_contains(core_err_message(), "other");
    check_int(aio_queue_close(queue), ==, 0);
    aio_extent_free(s.store, extent);
    check_uint(aio_store_free_bytes(s.store), ==, free_bytes);
    parts[0].bytes = 4096;
    check_int(aio_extent_adopt(s.store, parts, 2, 9, &extent), ==, -EINVAL);
    check_int(aio_extent_adopt(s.store, parts, 0, 9, &extent), ==, -EINVAL);
    check_int(aio_drive_detach(drive, file), ==, 0);
    close_striped(&s);
    rig_free(memory);
    rig_free(back);
}

static int stop_half_way(void *user, const char *directory, uint64_t done, uint64_t total)
{
    (void)directory;
    ++*(int *)user;
    return done * 2 >= total;
}

/* Interrupted formatting leaves nothing. */
static void bad_stores_are_refused(void)
{
    char path[512];
    struct stat info;
    struct aio_store *store = NULL;
    int calls = 0;
    snprintf(path, sizeof path, "%s/stopped", test_directory());
    struct aio_store_path paths[2] = {{.directory = path, .bytes = 64 * MIB}, {0}};
    struct aio_store_options options = {
        .paths = paths, .paths_count = 1, .progress = stop_half_way, .user = &calls};
    check_int(aio_store_open(&options, &store), ==, -ECANCELED);
    check_int(calls, ==, 2);
    check_int(stat(path, &info), ==, -1);
    paths[1] = paths[0];
    options.paths_count = 2;
    check_int(aio_store_open(&options, &store), ==, -EINVAL);
    check_contains(core_err_message(), "given twice");
    options.paths_count = 1;
    paths[0].bytes = 4097;
    check_int(aio_store_open(&options, &store), ==, -EINVAL);
    paths[0].bytes = 3 * 512 * 1024;
    options.align_bytes = 3 * 512 * 1024; /* no extent of whole MiB could end there */
    check_int(aio_store_open(&options, &store), ==, -EINVAL);
    check_contains(core_err_message(), "divides 1 MiB, or a multiple of 1 MiB");
    options.align_bytes = 0;
    paths[0].bytes = (uint64_t)1 << 50;
    check_int(aio_store_open(&options, &store), <, 0);
    check_contains(core_err_message(), path);
    check_int(stat(path, &info), ==, -1);
    paths[0].directory = NULL;
    check_int(aio_store_open(&options, &store), ==, -EINVAL);
    options.paths_count = 0;
    check_int(aio_store_open(&options, &store), ==, -EINVAL);
    paths[0] = (struct aio_store_path){.directory = path, .bytes = 2 * MIB};
    options.paths_count = 1;
    options.backend = "floppy";
    check_int(aio_store_open(&options, &store), ==, -EINVAL);
    check_contains(core_err_message(),
                   "unknown I/O back end \"floppy\" (one of auto, uring, libaio");
    check_int(aio_store_close(NULL), ==, 0);
}

/* Returns the relative difference of a rate from the throttle's. */
static double off(double measured, double throttle)
{
    return fabs(measured / throttle - 1);
}

/* A throttled path is measured at the throttle's speed, in about the given time. */
static void paths_are_measured(void)
{
    struct aio_rates rates = {0};
    struct aio_measure_options options = {.bytes = 32 * MIB, .seconds = 0.3};
    check_int(aio_measure_path(test_directory(), &options, &rates), ==, 0);
    check_double(rates.read_bytes_per_s, >, 0);
    check_double(rates.write_bytes_per_s, >, 0);
    check_double(rates.mixed_bytes_per_s, >, 0);
    check_double(rates.cpu_ns_per_byte, >, 0);
    check_uint(rates.hashed_bytes, ==, 0);
    options.sums = true;
    check_int(aio_measure_path(test_directory(), &options, &rates), ==, 0);
    check_double(rates.mixed_bytes_per_s, >, 0);
    check_uint(rates.hashed_bytes, >=, 32 * MIB);
    options.block_bytes = 512 << 10;
    check_int(aio_measure_path(test_directory(), &options, &rates), ==, 0);
    check_uint(rates.hashed_bytes, ==, 0);
    check_int(aio_measure_path("/nowhere/at/all", NULL, &rates), ==, -ENOENT);
    const double rate = 300e6;
    struct aio_mem_disk *disk = NULL;
    struct aio_drive *drive = NULL;
    uint32_t file = 0;
    check_int(aio_mem_create(64 * MIB, &disk), ==, 0);
    disk->read_bytes_per_s = (uint64_t)(2 * rate);
    disk->write_bytes_per_s = (uint64_t)rate;
    struct aio_drive_options drive_options = {.backend = &aio_mem, .context = disk};
    check_int(aio_drive_create(&drive_options, &drive), ==, 0);
    check_int(aio_drive_attach(drive, &(struct aio_file){.fd = -1, .name = "m"}, &file), ==, 0);
    simulate_clock(true, 0);
    const int64_t began_ns = core_clock_now_ns();
    check_int(aio_measure_drive(drive, file, 0, 64 * MIB, 0.9, &rates), ==, 0);
    check_int(core_clock_now_ns() - began_ns, <, 1300000000);
    check_double(off(rates.read_bytes_per_s, 2 * rate), <, 0.02);
    check_double(off(rates.write_bytes_per_s, rate), <, 0.02);
    check_double(off(rates.mixed_bytes_per_s, rate * 4 / 3), <, 0.05);
    check_int(aio_measure_drive(drive, file, 0, 100, 1, &rates), ==, -EINVAL);
    disk->read_bytes_per_s = disk->write_bytes_per_s = 40000000; /* 64 MiB in flight are 1.7 s */
    const int64_t slow_ns = core_clock_now_ns();
    check_int(aio_measure_drive(drive, file, 0, 64 * MIB, 0.6, &rates), ==, 0);
    check_int(core_clock_now_ns() - slow_ns, <, 1500000000);
    check_double(off(rates.write_bytes_per_s, 40e6), <, 0.02);
    check_double(off(rates.mixed_bytes_per_s, 40e6), <, 0.02);
    simulate_clock(false, 0);
    check_int(aio_drive_destroy(drive), ==, 0);
    aio_mem_destroy(disk);
}

TEST_MAIN({"shares_follow_weights", shares_follow_weights}, {"space_is_exact", space_is_exact},
          {"unequal_paths_add_up", unequal_paths_add_up},
          {"full_to_the_last_unit", full_to_the_last_unit},
          {"files_of_two_directories", files_of_two_directories},
          {"sums_by_the_caller", sums_by_the_caller}, {"an_extent_by_pages", an_extent_by_pages},
          {"an_extent_elsewhere", an_extent_elsewhere},
          {"bad_stores_are_refused", bad_stores_are_refused},
          {"paths_are_measured", paths_are_measured})
