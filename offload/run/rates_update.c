/* rates_update.c: updates a chunk, sums its gradients and copies it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/mem.h"
#include "core/dev/dev.h"
#include "cpu_adam/norm.h"
#include "offload/run/rates_parts.h"

/* What is measured with, at most; less where the budgets are small, for measuring has to stay in them
 * too. */
enum { UPDATE_ELEMENTS_MIN = 64 << 10, COPY_BYTES_MAX = 16 << 20 };
static const uint64_t update_bytes_max = UINT64_C(1) << 30; /* beyond every cache */
enum { COPY_BYTES_MIN = 1 << 20 };
enum { CARD_BYTES_MAX = 256 << 20 }; /* milliseconds of a link, beside which waiting is nothing */

/* Parameters that the update is measured with. */
static uint64_t update_elements(const struct run_shapes *shapes, const struct run_options *options)
{
    const struct plan_format format = run_options_format(options);
    const uint64_t each = 8 + plan_state_bytes(&format, CORE_VEC_TILE) / CORE_VEC_TILE;
    const uint64_t spare = run_rates_spare_within(shapes, options, update_bytes_max);
    return run_rates_within(spare / each, UPDATE_ELEMENTS_MIN, update_bytes_max / each) /
           CORE_VEC_TILE * CORE_VEC_TILE;
}

/* Bytes of host memory that the update of an element reads and writes. */
static double touched_bytes(const struct plan_format *format)
{
    const double states = (double)plan_state_bytes(format, CORE_VEC_TILE) / CORE_VEC_TILE;
    return 2 * states + format->grad_bytes + 2 * format->weight_bytes;
}

static int time_update(struct adam *adam, const struct adam_arrays *arrays, double *per_second)
{
    int rc = 0;
    for (int turn = 0; rc == 0 && turn < 3; turn++) {
        const int64_t start_ns = core_clock_now_ns();
        rc = adam_step(adam, arrays, 0, arrays->count, 1, NULL);
        *per_second = (double)arrays->count / run_rates_since(start_ns);
    }
    return rc;
}

static void carve(const struct plan_format *format, enum core_vec_master master, char *memory,
                  struct adam_arrays *arrays)
{
    const uint64_t n = arrays->count;
    char *states = memory + n * 4;
    char *g = states + plan_state_bytes(format, n);
    arrays->g = g;
    arrays->w16 = master == CORE_VEC_MASTER_F32 ? NULL : (uint16_t *)(void *)memory;
    arrays->lo16 = master == CORE_VEC_MASTER_SPLIT ? (uint16_t *)(void *)states : NULL;
    arrays->w32 = master == CORE_VEC_MASTER_F32 ? (float *)(void *)memory : (float *)(void *)states;
    arrays->m = states + plan_state_offset(format, PLAN_M, n);
    arrays->v = states + plan_state_offset(format, PLAN_V, n);
    arrays->m_scale = (float *)(void *)(states + plan_state_offset(format, PLAN_M_SCALE, n));
    arrays->v_scale = (float *)(void *)(states + plan_state_offset(format, PLAN_V_SCALE, n));
}

int run_rates_update(const struct run_shapes *shapes, const struct run_options *options,
                     struct plan_rates *out)
{
    const struct plan_format format = run_options_format(options);
    const enum core_vec_master master = run_options_master(options);
    struct adam_group group = options->group;
    struct adam *adam = NULL;
    struct core_team *team = NULL;
    struct core_region region = {0};
    const uint64_t elements = update_elements(shapes, options);
    struct adam_arrays arrays = {.count = elements};
    double *sums = calloc(elements / CORE_VEC_TILE, sizeof *sums);
    group.step = 1;
    const struct core_region_options memory = {
        .name = "the measured update", .bytes = elements * 8 + plan_state_bytes(&format, elements)};
    int rc = sums != NULL ? core_team_create(&(struct core_team_options){.name = "rates",
                                                                         .count = options->threads},
                                             &team)
                          : core_err_set(-ENOMEM, "no memory to measure the update");
    rc = rc != 0 ? rc : core_region_alloc(&memory, &region);
    if (rc == 0) {
        const struct adam_options made = {.rule = options->rule,
                                          .master = master,
                                          .gradients = run_options_gradients(options),
                                          .moments = options->moments,
                                          .count = elements,
                                          .groups = &group,
                                          .groups_count = 1,
                                          .team = team};
        carve(&format, master, (char *)region.base, &arrays);
        rc = adam_create(&made, &adam);
    }
    rc = rc != 0 ? rc : time_update(adam, &arrays, &out->update_elements);
    if (rc == 0) {
        const bool host = strncmp(options->device, "cpu", 3) == 0;
        out->memory_bytes = host ? 0 : out->update_elements * touched_bytes(&format);
        struct adam_norm norm;
        adam_norm_init(&norm, team, CORE_CPU_ALL);
        const struct core_vec_norm of = {
            .x = arrays.g, .type = run_options_gradients(options), .count = elements, .sums = sums};
        const int64_t start_ns = core_clock_now_ns();
        rc = adam_norm_sums(&norm, &of);
        out->sums_elements = (double)elements / run_rates_since(start_ns);
    }
    adam_destroy(adam);
    core_region_free(&region);
    core_team_destroy(team);
    free(sums);
    return rc;
}

int run_rates_copies(const struct run_shapes *shapes, const struct run_options *options,
                     struct plan_rates *out)
{
    const bool host = strncmp(options->device, "cpu", 3) == 0;
    const uint64_t bytes = run_rates_within(run_rates_spare(shapes, options) / 4, COPY_BYTES_MIN,
                                            host ? COPY_BYTES_MAX : CARD_BYTES_MAX);
    const struct dev_options size = {.memory_bytes = 3 * bytes};
    struct dev_device *device = NULL;
    struct dev_rates rates;
    int rc = dev_open(options->device, &size, &device);
    rc = rc != 0 ? rc : dev_rates_measure(device, bytes, &rates);
    if (rc == 0) {
        out->up_bytes = rates.up;
        out->down_bytes = rates.down;
        out->both_bytes = host ? 0 : rates.both;
        out->round_elements = rates.within / 4;
        out->coll_bytes = rates.within;
        out->shared_cores = host;
    }
    dev_close(device);
    return rc;
}
