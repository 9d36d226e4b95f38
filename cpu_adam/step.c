/* step.c: a step as the launches that a device does it with: the windows, scalars and random
 * numbers of the pass, and nothing computed. */
#include <errno.h>
#include <inttypes.h>

#include "core/base/err.h"
#include "cpu_adam/description.h"

/* Where the run of parameters with one group that holds `index` ends: neighbours of a group are one. */
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

static bool is_cut(const struct adam *adam, uint64_t end)
{
    return adam->options.moments == CORE_VEC_Q8 && end % CORE_VEC_Q8_BLOCK != 0 &&
           end != adam->options.count;
}

bool adam_pieces_possible(const struct adam *adam)
{
    uint32_t group = 0;
    for (uint64_t at = 0; at < adam->options.count;) {
        at = piece_end(adam, at, &group);
        if (is_cut(adam, at)) {
            return false;
        }
    }
    return true;
}

int adam_pieces(struct adam *adam, const struct adam_window *window, adam_take *take, void *context)
{
    const struct adam_arrays *arrays = window->arrays;
    int rc = adam_check_arrays(adam, arrays, window->begin, window->end, true);
    rc = rc != 0 ? rc : adam_step_scalars(adam, window->gradient_scale);
    if (rc != 0) {
        return rc;
    }
    const struct core_vec_update all = adam_bind(adam, arrays);
    for (uint64_t at = window->begin; rc == 0 && at < window->end;) {
        uint32_t group = 0;
        uint64_t end = piece_end(adam, at, &group);
        end = end < window->end ? end : window->end;
        if (is_cut(adam, end)) {
            return core_err_set(-ENOTSUP,
                                "parameters of two groups share the block of 8-bit moments in "
                                "front of %" PRIu64,
                                end);
        }
        struct core_vec_update piece = adam_pass_from(&all, at);
        piece.count = end - at;
        piece.scalars = adam->scalars[group];
        rc = take(context, &piece);
        at = end;
    }
    return rc;
}
