/* sweep.c: chooses the order in which settings are measured. */
#include "tools/ds_nvme_bench/sweep.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/log.h"

enum { ROUNDS_MAX = 8, IN_FLIGHT_SCAN = 64 << 20 };

struct search {
    const struct bench_sweep_options *options; /* borrowed */
    struct bench_sweep *sweep;                 /* borrowed */
    struct core_region memory;                 /* owned */
    int64_t start_ns;
    int64_t deadline_ns;
    bool unregistered; /* registering buffers failed; not tried again */
    unsigned left_out; /* measurements skipped: too much memory or file space */
};

static double seconds_left(const struct search *search)
{
    return (double)(search->deadline_ns - core_clock_now_ns()) / 1e9;
}

/* Returns NULL if the table is full. */
static struct bench_point *point_of(struct bench_sweep *sweep, const struct bench_params *params)
{
    for (unsigned i = 0; i < sweep->count; i++) {
        if (memcmp(&sweep->points[i].params, params, sizeof *params) == 0) {
            return &sweep->points[i];
        }
    }
    if (sweep->count == BENCH_POINTS_MAX) {
        return NULL;
    }
    sweep->points[sweep->count] = (struct bench_point){.params = *params};
    return &sweep->points[sweep->count++];
}

struct view {
    const struct search *search;
    const struct bench_point *point;
};

static void report_progress(const struct view *view,
                            void (*told)(void *user, const struct bench_point *point,
                                         double share_done, double seconds_left))
{
    double left = seconds_left(view->search);
    double spent = (double)(core_clock_now_ns() - view->search->start_ns) / 1e9;
    if (told != NULL) {
        told(view->search->options->user, view->point, left > 0 ? spent / (spent + left) : 1, left);
    }
}

static void beat(void *user)
{
    const struct view *view = user;
    report_progress(view, view->search->options->beat);
}

/* Skips operations not requested, and settings that need too much memory or a larger file. */
static int measure_op(struct search *search, struct bench_params setting, enum bench_op op,
                      const struct bench_how *how)
{
    setting.op = op;
    if (!search->options->ops[op]) {
        return 0;
    }
    if (bench_point_memory(&setting) > search->memory.bytes ||
        bench_point_in_flight(&setting) > search->options->target->file_bytes) {
        search->left_out++;
        return 0;
    }
    struct bench_point *point = point_of(search->sweep, &setting);
    if (point == NULL) {
        return core_err_set(-EINVAL, "more than %d points were requested", BENCH_POINTS_MAX);
    }
    struct view view = {.search = search, .point = point};
    report_progress(&view, search->options->progress);
    struct bench_how now = *how;
    now.beat = search->options->beat != NULL ? beat : NULL;
    now.user = &view;
    now.buffers = how->buffers && !search->unregistered;
    int rc = bench_point_run(search->options->target, &search->memory, &now, search->options->stop,
                             point);
    search->unregistered = search->unregistered || point->unregistered;
    return rc;
}

static int measure(struct search *search, struct bench_params setting, const struct bench_how *how)
{
    for (int op = 0; op < BENCH_OP_COUNT; op++) {
        int rc = measure_op(search, setting, (enum bench_op)op, how);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static unsigned op_count(const struct bench_sweep_options *options)
{
    unsigned count = 0;
    for (int op = 0; op < BENCH_OP_COUNT; op++) {
        count += options->ops[op];
    }
    return count;
}

/* ---- grid ---- */

static int run_grid(struct search *search)
{
    const struct bench_sweep_options *options = search->options;
    const struct bench_how *how = &options->how;
    unsigned total = options->rounds * options->thread_count * options->block_count *
                     options->depth_count;
    double each = (how->ramp_seconds + how->samples * how->sample_seconds) * op_count(options);
    search->deadline_ns = search->start_ns + (int64_t)(total * each * 1e9);
    for (unsigned round = 0; round < options->rounds; round++) {
        for (unsigned i = 0; i < total / options->rounds; i++) {
            struct bench_params setting = {
                .threads = options->threads[i % options->thread_count],
                .block_bytes = options->blocks[i / options->thread_count % options->block_count],
                .depth = options->depths[i / options->thread_count / options->block_count]};
            int rc = measure(search, setting, how);
            if (rc != 0) {
                return rc;
            }
        }
    }
    if (search->left_out > 0 && search->sweep->count > 0) {
        core_log(CORE_LOG_WARN,
                 "%s: %u of %u requested measurements are skipped: they need more than %d MiB of "
                 "buffers, or have more in flight than the scratch file holds (--io_size)",
                 options->target->path, search->left_out / options->rounds,
                 total / options->rounds * op_count(options), (int)(BENCH_MEMORY_MAX >> 20));
    }
    return 0;
}

/* ---- the adaptive sweep ---- */

static uint32_t scan_depth(const struct bench_sweep_options *options, uint32_t block_bytes)
{
    uint32_t depth = options->depths[0];
    for (unsigned i = 0; i < options->depth_count; i++) {
        uint32_t tried = options->depths[i];
        bool fits = (uint64_t)tried * block_bytes <= IN_FLIGHT_SCAN && tried <= 64;
        depth = fits && tried > depth ? tried : depth;
    }
    return depth;
}

/* Returns at most half the depth of one thread, if such a depth is listed, so that two threads have
 * about as much in flight. */
static uint32_t shared_depth(const struct bench_sweep_options *options, uint32_t block_bytes)
{
    uint32_t half = scan_depth(options, block_bytes) / 2;
    uint32_t fits = 0;
    uint32_t least = options->depths[0];
    for (unsigned i = 0; i < options->depth_count; i++) {
        uint32_t depth = options->depths[i];
        fits = depth <= half && depth > fits ? depth : fits;
        least = depth < least ? depth : least;
    }
    return fits > 0 ? fits : least;
}

static bool lists_block(const struct bench_sweep_options *options, uint32_t block_bytes)
{
    for (unsigned b = 0; b < options->block_count; b++) {
        if (options->blocks[b] == block_bytes) {
            return true;
        }
    }
    return false;
}

/* Measures each block size at a large depth. */
static int scan_blocks(struct search *search, const struct bench_how *how)
{
    const struct bench_sweep_options *options = search->options;
    for (unsigned b = 0; b < options->block_count; b++) {
        struct bench_params setting = {.block_bytes = options->blocks[b],
                                       .depth = scan_depth(options, options->blocks[b]),
                                       .threads = options->threads[0]};
        int rc = measure(search, setting, how);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

/* Measures ever smaller depths until one has less than 80 % of the best speed. */
static int scan_depths(struct search *search, uint32_t block_bytes, const struct bench_how *how)
{
    const struct bench_sweep_options *options = search->options;
    uint32_t top = scan_depth(options, block_bytes);
    for (unsigned d = options->depth_count; d-- > 0;) {
        struct bench_params setting = {.block_bytes = block_bytes,
                                       .depth = options->depths[d],
                                       .threads = options->threads[0]};
        if (options->depths[d] >= top) {
            continue;
        }
        int rc = measure(search, setting, how);
        if (rc != 0 || bench_sweep_score(search->sweep, &setting) < 0.8) {
            return rc;
        }
    }
    return 0;
}

static bool is_decided(const struct bench_sweep *sweep)
{
    const struct bench_recommendation *made = &sweep->recommendation;
    return made->confident && made->score >= 0.985;
}

/* The n-th samples of candidates must be of one round. */
static void drop_scan_samples(struct bench_sweep *sweep, const struct bench_params *picked,
                              unsigned count)
{
    for (unsigned p = 0; p < sweep->count; p++) {
        struct bench_point *point = &sweep->points[p];
        for (unsigned i = 0; i < count; i++) {
            struct bench_params setting = picked[i];
            setting.op = point->params.op;
            if (memcmp(&setting, &point->params, sizeof setting) == 0) {
                *point = (struct bench_point){.params = setting};
            }
        }
    }
}

/* Every second round is reversed, so that a drive whose speed changes favours none. */
static int confirm_round(struct search *search, const struct bench_params *picked, unsigned count,
                         int round, const struct bench_how *how)
{
    for (unsigned n = 0; n < BENCH_OP_COUNT * count; n++) {
        unsigned turn = n % count;
        unsigned i = round % 2 == 0 ? turn : count - 1 - turn;
        int rc = measure_op(search, picked[i], (enum bench_op)(n / count), how);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static int confirm(struct search *search, const struct bench_how *how)
{
    struct bench_params picked[BENCH_CANDIDATES_MAX];
    unsigned count = bench_sweep_pick(search->sweep, picked);
    double round_seconds = 0;
    drop_scan_samples(search->sweep, picked, count);
    for (int round = 0; round < ROUNDS_MAX; round++) {
        int64_t begin_ns = core_clock_now_ns();
        if (round > 0 && seconds_left(search) < round_seconds) {
            break;
        }
        int rc = confirm_round(search, picked, count, round, how);
        if (rc != 0) {
            return rc;
        }
        round_seconds = (double)(core_clock_now_ns() - begin_ns) / 1e9;
        bench_sweep_recommend(search->sweep);
        if (round >= 2 && is_decided(search->sweep)) {
            break;
        }
    }
    return 0;
}

/* Returns the smallest scanned block size within 5 % of the best score. */
static uint32_t near_best_block(const struct search *search)
{
    const struct bench_sweep_options *options = search->options;
    uint32_t smallest = options->blocks[0];
    double top = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (unsigned b = options->block_count; b-- > 0;) {
            struct bench_params setting = {.block_bytes = options->blocks[b],
                                           .depth = scan_depth(options, options->blocks[b]),
                                           .threads = options->threads[0]};
            double score = bench_sweep_score(search->sweep, &setting);
            top = pass == 0 && score > top ? score : top;
            smallest = pass == 1 && score >= top * 0.95 ? options->blocks[b] : smallest;
        }
    }
    return smallest;
}

static int run_adaptive(struct search *search)
{
    const struct bench_sweep_options *options = search->options;
    const struct bench_how *how = &options->how;
    double unit = options->budget_seconds / 50; /* the times below are for a budget of 50 s */
    struct bench_how quick = *how;
    quick.ramp_seconds = 0.05 * unit;
    quick.sample_seconds = 0.07 * unit;
    quick.samples = 3;
    struct bench_how slow = quick;
    slow.sample_seconds = 0.1 * unit;
    int rc = scan_blocks(search, &quick);
    if (rc != 0) {
        return rc;
    }
    const uint32_t block = near_best_block(search);
    rc = scan_depths(search, block, &quick);
    if (rc != 0) {
        return rc;
    }
    if (block != 1u << 20 && lists_block(options, 1 << 20) &&
        (rc = scan_depths(search, 1 << 20, &quick)) != 0) {
        return rc;
    }
    for (unsigned t = 1; t < options->thread_count; t++) {
        struct bench_params setting = {.block_bytes = block,
                                       .depth = shared_depth(options, block),
                                       .threads = options->threads[t]};
        rc = measure(search, setting, &quick);
        if (rc != 0) {
            return rc;
        }
    }
    return confirm(search, &slow);
}

static uint64_t most_needed(const struct bench_sweep_options *options,
                            uint64_t (*needed)(const struct bench_params *params))
{
    uint64_t most = 0;
    for (unsigned b = 0; b < options->block_count; b++) {
        for (unsigned d = 0; d < options->depth_count; d++) {
            for (unsigned t = 0; t < options->thread_count; t++) {
                struct bench_params setting = {.op = options->ops[BENCH_RW] ? BENCH_RW : BENCH_READ,
                                               .block_bytes = options->blocks[b],
                                               .depth = options->depths[d],
                                               .threads = options->threads[t]};
                uint64_t bytes = needed(&setting);
                most = bytes <= BENCH_MEMORY_MAX && bytes > most ? bytes : most;
            }
        }
    }
    return most;
}

/* Orders points by threads, block, depth and operation. */
static int by_setting(const void *a, const void *b)
{
    const struct bench_params *x = &((const struct bench_point *)a)->params;
    const struct bench_params *y = &((const struct bench_point *)b)->params;
    const uint32_t left[] = {x->threads, x->block_bytes, x->depth, (uint32_t)x->op};
    const uint32_t right[] = {y->threads, y->block_bytes, y->depth, (uint32_t)y->op};
    for (int i = 0; i < 4; i++) {
        if (left[i] != right[i]) {
            return left[i] < right[i] ? -1 : 1;
        }
    }
    return 0;
}

int bench_sweep_run(const struct bench_sweep_options *options, struct bench_sweep *out)
{
    struct search search = {.options = options, .sweep = out};
    out->count = 0;
    struct core_region_options memory = {.name = "buffers",
                                         .bytes = most_needed(options, bench_point_memory),
                                         .pages = options->how.pages,
                                         .prefer_node = options->target->node >= 0,
                                         .node = options->target->node};
    if (memory.bytes == 0) {
        return core_err_set(-EINVAL, "every requested setting needs more than %d MiB of buffers",
                            (int)(BENCH_MEMORY_MAX >> 20));
    }
    int rc = core_region_alloc(&memory, &search.memory);
    if (rc == 0) {
        bench_target_fill(search.memory.base, search.memory.bytes);
        search.start_ns = core_clock_now_ns();
        search.deadline_ns = search.start_ns + (int64_t)(options->budget_seconds * 1e9);
        rc = options->grid ? run_grid(&search) : run_adaptive(&search);
    }
    if (rc == -ETIMEDOUT) {
        return rc; /* the kernel may still write to the buffers */
    }
    core_region_free(&search.memory);
    if (out->count == 0 && rc == 0) {
        rc = core_err_set(-EINVAL,
                          "a scratch file of %.0f MiB on %s is too small for every requested "
                          "setting; --io_size %.0fM is enough",
                          (double)options->target->file_bytes / 1048576, options->target->path,
                          (double)most_needed(options, bench_point_in_flight) / 1048576);
    }
    if (rc == 0) {
        qsort(out->points, out->count, sizeof *out->points, by_setting);
        bench_sweep_recommend(out);
    }
    return rc;
}
