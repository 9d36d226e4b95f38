/* step.c: one step over a range: by the team on the CPU (adam_step), or as launches for a device
 * (adam_pieces). */
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>

#include "core/base/err.h"
#include "cpu_adam/description.h"
#include "cpu_adam/fp_mode.h"
#include "cpu_adam/pass.h"

enum {
    STEP_GRAIN = 4096, /* elements; without sums, shares after the first start at multiples */
    STEP_TURNS = 8     /* shares of a member if all are equally fast */
};

/* One step, shared by the team. */
struct team_step {
    struct adam_pass pass;
    uint64_t begin;
    uint64_t end;
    uint64_t turn;              /* elements of a share */
    _Atomic uint64_t taken;     /* elements that members have taken; relaxed */
    double *sums;               /* borrowed, of tiles from `begin` on; NULL: none */
    _Atomic unsigned nonfinite; /* relaxed: read after the team has returned */
};

static unsigned tiles_range(const struct team_step *step, uint64_t begin, uint64_t end)
{
    unsigned nonfinite = 0;
    for (uint64_t at = begin; at < end; at += CORE_UPDATE_TILE) {
        double lanes[ADAM_NORM_LANES] = {0};
        struct adam_pass pass = step->pass;
        pass.lanes = lanes;
        nonfinite |= adam_pass_range(&pass, at,
                                     end - at < CORE_UPDATE_TILE ? end : at + CORE_UPDATE_TILE);
        step->sums[(at - step->begin) / CORE_UPDATE_TILE] = adam_lanes_total(lanes);
    }
    return nonfinite;
}

static uint64_t grain_of(const struct team_step *step)
{
    return step->sums != NULL ? CORE_UPDATE_TILE : STEP_GRAIN;
}

/* Takes shares until none is left: a slow member takes fewer. */
static void step_shares(void *argument, unsigned index, unsigned count)
{
    struct team_step *step = argument;
    const uint64_t base = step->begin / grain_of(step) * grain_of(step);
    const uint64_t mode = adam_fp_begin();
    unsigned nonfinite = 0;
    (void)index;
    (void)count;
    for (;;) {
        const uint64_t at = base + atomic_fetch_add_explicit(&step->taken, step->turn,
                                                             memory_order_relaxed);
        if (at >= step->end) {
            break;
        }
        const uint64_t begin = at > step->begin ? at : step->begin;
        const uint64_t end = step->end - at < step->turn ? step->end : at + step->turn;
        nonfinite |= step->sums != NULL ? tiles_range(step, begin, end)
                                        : adam_pass_range(&step->pass, begin, end);
    }
    adam_fp_end(mode);
    atomic_fetch_or_explicit(&step->nonfinite, nonfinite, memory_order_relaxed);
}

static void cut_shares(struct team_step *step, unsigned members)
{
    const uint64_t grain = grain_of(step);
    const uint64_t count = step->end - step->begin / grain * grain;
    const uint64_t turn = count / (members * (uint64_t)STEP_TURNS) / grain * grain;
    step->turn = members == 1 ? count : turn > 0 ? turn : grain;
}

static int run_step(struct adam *adam, const struct adam_arrays *arrays, double gradient_scale,
                    struct team_step *step)
{
    int rc = adam_check_arrays(adam, arrays, step->begin, step->end, true);
    if (rc != 0) {
        return rc;
    }
    rc = adam_step_scalars(adam, gradient_scale);
    if (rc != 0) {
        return rc;
    }
    step->pass = (struct adam_pass){.ops = &adam->ops,
                                    .arrays = adam_bind(adam, arrays),
                                    .runs = adam->runs,
                                    .runs_count = adam->options.runs_count,
                                    .scalars = adam->scalars};
    if (adam->options.team == NULL || step->end - step->begin <= STEP_GRAIN) {
        cut_shares(step, 1);
        step_shares(step, 0, 1);
    } else {
        cut_shares(step, core_team_count(adam->options.team));
        core_team_run(adam->options.team, step_shares, step);
    }
    return 0;
}

int adam_step(struct adam *adam, const struct adam_arrays *arrays, uint64_t begin, uint64_t end,
              double gradient_scale, unsigned *nonfinite)
{
    struct team_step step = {.begin = begin, .end = end};
    int rc = run_step(adam, arrays, gradient_scale, &step);
    if (rc == 0 && nonfinite != NULL) {
        *nonfinite = atomic_load_explicit(&step.nonfinite, memory_order_relaxed);
    }
    return rc;
}

int adam_step_sums(struct adam *adam, const struct adam_arrays *arrays, double gradient_scale,
                   double *sums)
{
    struct team_step step = {
        .begin = arrays->first, .end = arrays->first + arrays->count, .sums = sums};
    if (arrays->first % CORE_UPDATE_TILE != 0 || sums == NULL) {
        return core_err_set(-EINVAL,
                            "sums of squares from element %" PRIu64
                            " on need an array and a start at a multiple of %d",
                            arrays->first, CORE_UPDATE_TILE);
    }
    return run_step(adam, arrays, gradient_scale, &step);
}

/* Returns the end of the consecutive runs of one group, from the run that has `index` on. */
static uint64_t piece_end(const struct adam *adam, uint64_t index, uint32_t *group)
{
    const struct adam_run *runs = adam->runs;
    const size_t count = adam->options.runs_count;
    size_t run = 0;
    while (runs[run].end <= index) {
        run++;
    }
    *group = runs[run].group;
    uint64_t end = runs[run].end;
    for (run++; run < count && (runs[run].group == *group || runs[run].end == end); run++) {
        end = runs[run].end;
    }
    return end;
}

static bool cuts_block(const struct adam *adam, uint64_t end)
{
    return adam->options.moments == CORE_UPDATE_Q8 && end % CORE_UPDATE_Q8_BLOCK != 0 &&
           end != adam->options.count;
}

int adam_pieces(struct adam *adam, const struct adam_window *window, adam_piece_fn *take,
                void *context)
{
    const struct adam_arrays *arrays = window->arrays;
    int rc = adam_check_arrays(adam, arrays, window->begin, window->end, true);
    if (rc != 0) {
        return rc;
    }
    rc = adam_step_scalars(adam, window->gradient_scale);
    if (rc != 0) {
        return rc;
    }
    const struct core_update_args all = adam_bind(adam, arrays);
    for (uint64_t at = window->begin; at < window->end;) {
        uint32_t group = 0;
        uint64_t end = piece_end(adam, at, &group);
        end = end < window->end ? end : window->end;
        if (cuts_block(adam, end)) {
            return core_err_set(-ENOTSUP,
                                "two parameter groups share the block of 8-bit moments around "
                                "parameter %" PRIu64,
                                end);
        }
        struct core_update_args piece = adam_pass_from(&all, at);
        piece.count = end - at;
        piece.scalars = adam->scalars[group];
        rc = take(context, &piece);
        if (rc != 0) {
            return rc;
        }
        at = end;
    }
    return 0;
}
