/* measure_update.c: times the update and its sums of squares, on processors and cards. */
#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>

#include "core/base/caches.h"
#include "core/base/clock.h"
#include "core/base/cpus.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "cpu_adam/norm.h"
#include "offload/run/lane_update.h"
#include "offload/run/measure.h"
#include "offload/run/measure_bench.h"
#include "offload/run/place.h"

/* ---- the update of a chunk ---- */

enum { UPDATE_ELEMENTS_MIN = 64 << 10, UPDATE_TURNS = 3 };
static const uint64_t update_bytes_max = UINT64_C(1) << 30; /* larger than most caches */

/* Weights and gradients count four bytes each. */
static uint64_t chunk_bytes(const struct plan_format *format, uint64_t elements)
{
    return elements * 8 + plan_state_bytes(format, elements);
}

static struct adam_arrays chunk_arrays(const struct plan_format *format, char *memory,
                                       uint64_t elements)
{
    char *states = memory + elements * 4;
    return run_update_arrays(format, 0, elements, memory, states,
                             states + plan_state_bytes(format, elements));
}

/* Returns the size of the usable processors' caches; 0: unknown. */
static uint64_t cache_bytes(void)
{
    struct core_cpus cpus;
    return core_cpus_allowed(&cpus) == 0 ? core_caches_bytes(&cpus, "") : 0;
}

/* Returns the number of parameters to measure with, which exceed the caches if the model does and
 * the budgets allow it. */
static uint64_t update_elements(const struct run_shapes *shapes, const struct run_options *options)
{
    const struct plan_format format = run_options_format(options);
    const uint64_t each = 8 + plan_state_bytes(&format, CORE_UPDATE_TILE) / CORE_UPDATE_TILE;
    const uint64_t model = run_measure_kept_bytes(shapes, options);
    const uint64_t most = model < run_measure_budget_bytes(options) / 4
                              ? model
                              : run_measure_budget_bytes(options) / 4;
    const uint64_t least = 2 * cache_bytes() < most ? 2 * cache_bytes() : most;
    const uint64_t given = run_measure_spare_within(shapes, options, update_bytes_max);
    const uint64_t spare = given > least ? given : least;
    return run_measure_clamp(spare / each, UPDATE_ELEMENTS_MIN, update_bytes_max / each) /
           CORE_UPDATE_TILE * CORE_UPDATE_TILE;
}

struct updating {
    struct adam *adam;
    const struct adam_arrays *arrays;
};

static int do_update(void *context)
{
    const struct updating *updating = context;
    return adam_step(updating->adam, updating->arrays, 0, updating->arrays->count, 1, NULL);
}

static int time_update(struct updating *updating, double *seconds)
{
    int rc = 0;
    for (int turn = 0; rc == 0 && turn < UPDATE_TURNS; turn++) {
        const int64_t start_ns = core_clock_now_ns();
        rc = do_update(updating);
        *seconds = run_measure_seconds_since(start_ns);
    }
    return rc;
}

/* Sets out->memory_bytes, the rate of copies that would stop the update, from the update's loss
 * beside copies. On the CPU device copies are the processor's own work. */
static int time_beside(const struct run_shapes *shapes, const struct run_options *options,
                       struct updating *updating, double alone, struct plan_rates *out)
{
    const double least_loss = 0.01; /* less is noise: the update hardly uses memory */
    const struct run_beside with = {.work = do_update,
                                    .context = updating,
                                    .seconds = alone,
                                    .link_bytes = out->up_bytes,
                                    .spare_bytes = run_measure_spare(shapes, options)};
    double seconds = 0;
    double copied = 0;
    out->memory_bytes = 0;
    if (dev_is_cpu(options->device)) {
        return 0;
    }
    const int rc = run_measure_beside(options, &with, &seconds, &copied);
    const double loss = rc == 0 ? 1 - alone / seconds : 0;
    if (rc == 0 && copied > 0) {
        out->memory_bytes = copied / (loss > least_loss ? loss : least_loss);
    } else if (rc == 0) {
        /* No copy ended in so short a time, so the update's bytes give the rate. */
        const struct plan_format format = run_options_format(options);
        out->memory_bytes = (double)updating->arrays->count / alone *
                            run_options_touched_bytes(&format);
    }
    return rc;
}

/* Warns if the measured `bytes` fit into the caches and the model does not. */
static void warn_cached(const struct run_shapes *shapes, const struct run_options *options,
                        uint64_t bytes)
{
    const uint64_t cache = cache_bytes();
    if (bytes <= cache && run_measure_kept_bytes(shapes, options) > cache) {
        core_log(CORE_LOG_WARN,
                 "the rate of the update is measured with %" PRIu64
                 " MiB, which fit into the processors' caches of %" PRIu64
                 " MiB: the plan may show steps as shorter than they are%s",
                 bytes >> 20, cache >> 20,
                 bytes < update_bytes_max ? "; a larger --host-memory measures with more" : "");
    }
}

/* Ranks of this machine update at once and share its memory, so their threads are added, up to the
 * processors. */
static unsigned crew_of(const struct run_options *options)
{
    struct core_cpus cpus;
    const unsigned processors = core_cpus_allowed(&cpus) == 0 ? core_cpus_count(&cpus) : 1;
    const double all = options->threads * (options->drive_ranks > 1 ? options->drive_ranks : 1);
    const unsigned crew = all < processors ? (unsigned)all : processors;
    return crew > options->threads ? crew : options->threads;
}

int run_measure_update(const struct run_shapes *shapes, const struct run_options *options,
                       struct plan_rates *out)
{
    const struct plan_format format = run_options_format(options);
    const uint64_t elements = update_elements(shapes, options);
    struct core_region_options memory = {.name = "the measured update",
                                         .bytes = chunk_bytes(&format, elements)};
    /* as one rank with the threads of all local ranks */
    struct run_options alone = *options;
    struct run_place place;
    struct adam_group group = options->group;
    struct adam *adam = NULL;
    struct core_team *team = NULL;
    struct core_region region = {0};
    double *sums = calloc(elements / CORE_UPDATE_TILE, sizeof *sums);
    const unsigned crew = crew_of(options);
    const double own = (double)options->threads / crew;
    alone.rank = 0;
    alone.local = 1;
    alone.threads = crew;
    run_place_create(&alone, NULL, -1, &place);
    int rc = sums != NULL ? run_place_team(&place, "rates", crew, &team)
                          : core_err_set(-ENOMEM, "no memory to measure the update");
    if (rc != 0) {
        goto done;
    }
    memory.team = team; /* the team touches the pages, on all nodes */
    rc = core_region_alloc(&memory, &region);
    if (rc != 0) {
        goto done;
    }
    group.step = 1;
    const struct adam_options made = {.rule = options->rule,
                                      .master = run_options_master(options),
                                      .gradients = run_options_gradients(options),
                                      .moments = options->moments,
                                      .count = elements,
                                      .groups = &group,
                                      .groups_count = 1,
                                      .team = team};
    const struct adam_arrays arrays = chunk_arrays(&format, (char *)region.base, elements);
    rc = adam_create(&made, &adam);
    if (rc != 0) {
        goto done;
    }
    struct updating updating = {adam, &arrays};
    double seconds = 0;
    rc = time_update(&updating, &seconds);
    if (rc == 0) {
        rc = time_beside(shapes, options, &updating, seconds, out);
    }
    if (rc != 0) {
        goto done;
    }
    out->update_elements = (double)elements / seconds * own;
    out->memory_bytes *= own;
    warn_cached(shapes, options, memory.bytes);
    struct adam_norm norm;
    adam_norm_init(&norm, team, CORE_CPU_ALL);
    const struct core_squares_args squares = {
        .x = arrays.g, .type = run_options_gradients(options), .count = elements, .sums = sums};
    const int64_t start_ns = core_clock_now_ns();
    rc = adam_norm_sums(&norm, &squares);
    out->sums_elements = (double)elements / run_measure_seconds_since(start_ns) * own;
done:
    adam_destroy(adam);
    core_region_free(&region);
    core_team_destroy(team);
    free(sums);
    return rc;
}

/* ---- the update on a card ---- */

/* Sums are stored after the chunk, in the card's memory. */
static int time_card(struct run_bench *card, const struct run_options *options, uint64_t elements,
                     struct plan_rates *out)
{
    const struct plan_format format = run_options_format(options);
    char *sums = (char *)card->memory + chunk_bytes(&format, elements);
    const struct adam_arrays arrays = chunk_arrays(&format, card->memory, elements);
    struct kern_update_arguments update = {.update = {.rule = options->rule,
                                                      .master = run_options_master(options),
                                                      .gradients = run_options_gradients(options),
                                                      .moments = options->moments,
                                                      .count = elements,
                                                      .w16 = arrays.w16,
                                                      .lo16 = arrays.lo16,
                                                      .w32 = arrays.w32,
                                                      .g = arrays.g,
                                                      .m = arrays.m,
                                                      .v = arrays.v,
                                                      .m_scale = arrays.m_scale,
                                                      .v_scale = arrays.v_scale,
                                                      .seed = 1,
                                                      .stream = 1}};
    const struct core_squares_args squares = {.x = arrays.g,
                                              .type = run_options_gradients(options),
                                              .count = elements,
                                              .sums = (double *)(void *)sums};
    const struct dev_command updates = {
        .op = KERN_UPDATE, .arguments = &update, .arguments_bytes = sizeof update};
    const struct dev_command sums_of_squares = {
        .op = KERN_SQUARES, .arguments = &squares, .arguments_bytes = sizeof squares};
    struct adam_group group = options->group;
    group.step = 1;
    int rc = adam_scalars(options->rule, &group, 1, &update.update.scalars);
    if (rc != 0) {
        return rc;
    }
    rc = run_bench_time(card, &updates, elements, &out->card_update_elements);
    return rc != 0 ? rc
                   : run_bench_time(card, &sums_of_squares, elements, &out->card_sums_elements);
}

int run_measure_card(const struct run_shapes *shapes, const struct run_options *options,
                     struct plan_rates *out)
{
    const struct plan_format format = run_options_format(options);
    const uint64_t each = 8 + plan_state_bytes(&format, CORE_UPDATE_TILE) / CORE_UPDATE_TILE + 1;
    const uint64_t spare = run_measure_spare(shapes, options) / each;
    const uint64_t elements = (spare > CORE_UPDATE_TILE ? spare : CORE_UPDATE_TILE) /
                              CORE_UPDATE_TILE * CORE_UPDATE_TILE;
    const uint64_t sums_bytes = elements / CORE_UPDATE_TILE * sizeof(double);
    const struct dev_queue_options queue = {.kind = DEV_QUEUE_COMPUTE};
    /* No products are computed, so no library is loaded for them. */
    const struct kern_options plain = {.products = KERN_PRODUCTS_PLAIN};
    struct run_bench card = {0};
    if (dev_is_cpu(options->device)) {
        out->card_update_elements = out->card_sums_elements = 0;
        return 0;
    }
    int rc = run_bench_open(&card, options->device, &plain, &queue,
                            chunk_bytes(&format, elements) + sums_bytes);
    if (rc == 0) {
        rc = time_card(&card, options, elements, out);
    }
    run_bench_close(&card);
    return rc;
}
