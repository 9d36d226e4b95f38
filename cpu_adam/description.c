/* description.c: the description, and the step: checked, then shared out to the team. */
#include "cpu_adam/adam.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cpus.h"
#include "core/base/err.h"
#include "cpu_adam/description.h"
#include "cpu_adam/fp_mode.h"

enum { STEP_GRAIN = 4096 }; /* elements; members of a team begin at its multiples */

const char *adam_rule_name(enum core_vec_rule rule)
{
    static const char *const names[CORE_VEC_RULES] = {"adam", "adamw", "lion", "adagrad", "sgd"};
    return (unsigned)rule < CORE_VEC_RULES ? names[rule] : "unknown";
}

const char *adam_master_name(enum core_vec_master master)
{
    static const char *const names[] = {"split", "bf16", "fp16", "fp32"};
    return (unsigned)master <= CORE_VEC_MASTER_F32 ? names[master] : "unknown";
}

const char *adam_type_name(enum core_vec_type type)
{
    static const char *const names[] = {"fp32", "bf16", "fp16", "8-bit"};
    return (unsigned)type <= CORE_VEC_Q8 ? names[type] : "unknown";
}

const char *adam_variant_name(const struct adam *adam)
{
    return adam->ops.name;
}

static int check_options(const struct adam_options *o)
{
    if ((unsigned)o->rule >= CORE_VEC_RULES || (unsigned)o->master > CORE_VEC_MASTER_F32 ||
        (unsigned)o->gradients > CORE_VEC_FP16 || (unsigned)o->moments > CORE_VEC_Q8 ||
        o->moments == CORE_VEC_FP16) {
        return core_err_set(-EINVAL,
                            "no such optimizer: rule %s, weights %s, gradients %s, moments %s",
                            adam_rule_name(o->rule), adam_master_name(o->master),
                            adam_type_name(o->gradients), adam_type_name(o->moments));
    }
    if (o->count > UINT64_MAX / 16) {
        return core_err_set(-EINVAL, "%" PRIu64 " parameters are too many", o->count);
    }
    if (o->groups_count == 0 || o->groups_count > ADAM_GROUPS_MAX ||
        o->runs_count > ADAM_RUNS_MAX || o->groups == NULL ||
        (o->runs == NULL && o->runs_count > 0)) {
        return core_err_set(-EINVAL, "%zu groups and %zu runs; 1 to %d and at most %d are possible",
                            o->groups_count, o->runs_count, ADAM_GROUPS_MAX, ADAM_RUNS_MAX);
    }
    uint64_t begin = 0;
    for (size_t i = 0; i < o->runs_count; i++) {
        if (o->runs[i].end < begin || o->runs[i].group >= o->groups_count) {
            return core_err_set(-EINVAL,
                                "run %zu ends at %" PRIu64 " behind one that ends at %" PRIu64
                                ", in group %u of %zu",
                                i, o->runs[i].end, begin, o->runs[i].group, o->groups_count);
        }
        begin = o->runs[i].end;
    }
    if (o->runs_count > 0 && begin != o->count) {
        return core_err_set(-EINVAL, "the runs end at %" PRIu64 ", the array at %" PRIu64, begin,
                            o->count);
    }
    return 0;
}

/* A group's scalars have to exist before any array is touched. */
static int check_groups(const struct adam_options *o)
{
    for (size_t i = 0; i < o->groups_count; i++) {
        struct core_vec_scalars scalars;
        int rc = adam_scalars(o->rule, &o->groups[i], 1.0, &scalars);
        if (rc != 0) {
            return core_err_prefix(rc, "parameter group %zu", i);
        }
    }
    return 0;
}

int adam_create(const struct adam_options *options, struct adam **out)
{
    int rc = check_options(options);
    rc = rc != 0 ? rc : check_groups(options);
    if (rc != 0) {
        return rc;
    }
    struct adam *adam = calloc(1, sizeof *adam);
    if (adam == NULL) {
        return core_err_set(-ENOMEM, "no memory for an optimizer");
    }
    const size_t runs_count = options->runs_count > 0 ? options->runs_count : 1;
    adam->options = *options;
    adam->runs = calloc(runs_count, sizeof *adam->runs);
    adam->groups = calloc(options->groups_count, sizeof *adam->groups);
    adam->scalars = calloc(options->groups_count, sizeof *adam->scalars);
    if (adam->runs == NULL || adam->groups == NULL || adam->scalars == NULL) {
        rc = core_err_set(-ENOMEM, "no memory for an optimizer of %zu runs and %zu groups",
                          runs_count, options->groups_count);
        goto fail;
    }
    if (options->runs_count > 0) {
        memcpy(adam->runs, options->runs, runs_count * sizeof *adam->runs);
    } else {
        adam->runs[0].end = options->count;
    }
    memcpy(adam->groups, options->groups, options->groups_count * sizeof *adam->groups);
    adam->options.runs = adam->runs;
    adam->options.runs_count = runs_count;
    adam->options.groups = adam->groups;
    adam_ops_init(&adam->ops, CORE_CPU_ALL & ~options->cpu_without);
    *out = adam;
    return 0;
fail:
    adam_destroy(adam);
    return rc;
}

void adam_destroy(struct adam *adam)
{
    if (adam == NULL) {
        return;
    }
    free(adam->runs);
    free(adam->groups);
    free(adam->scalars);
    free(adam);
}

int adam_group_set(struct adam *adam, size_t index, const struct adam_group *group)
{
    if (index >= adam->options.groups_count) {
        return core_err_set(-EINVAL, "parameter group %zu of %zu does not exist", index,
                            adam->options.groups_count);
    }
    struct core_vec_scalars scalars;
    int rc = adam_scalars(adam->options.rule, group, 1.0, &scalars);
    if (rc != 0) {
        return core_err_prefix(rc, "parameter group %zu", index);
    }
    adam->groups[index] = *group;
    return 0;
}

int adam_step_scalars(struct adam *adam, double gradient_scale)
{
    for (size_t i = 0; i < adam->options.groups_count; i++) {
        int rc = adam_scalars(adam->options.rule, &adam->groups[i], gradient_scale,
                              &adam->scalars[i]);
        if (rc != 0) {
            return core_err_prefix(rc, "parameter group %zu", i);
        }
    }
    return 0;
}

/* The random numbers of a step: by the latest step of any group, which moves with each of them. */
static uint64_t stream_of(const struct adam *adam)
{
    uint64_t step = 0;
    for (size_t i = 0; i < adam->options.groups_count; i++) {
        step = adam->groups[i].step > step ? adam->groups[i].step : step;
    }
    return step << 32 | adam->options.number;
}

struct core_vec_update adam_bind(const struct adam *adam, const struct adam_arrays *arrays)
{
    const struct adam_options *o = &adam->options;
    const bool is_split = o->master == CORE_VEC_MASTER_SPLIT;
    const bool has_m = adam_has_m(o->rule);
    const bool has_v = adam_has_v(o->rule);
    return (struct core_vec_update){
        .rule = o->rule,
        .master = o->master,
        .gradients = o->gradients,
        .moments = o->moments,
        .first = arrays->first,
        .count = arrays->count,
        .w16 = o->master != CORE_VEC_MASTER_F32 ? arrays->w16 : NULL,
        .lo16 = is_split ? arrays->lo16 : NULL,
        .w32 = is_split ? NULL : arrays->w32,
        .g = arrays->g,
        .m = has_m ? arrays->m : NULL,
        .v = has_v ? arrays->v : NULL,
        .m_scale = has_m ? arrays->m_scale : NULL,
        .v_scale = has_v ? arrays->v_scale : NULL,
        .seed = o->seed,
        .stream = stream_of(adam),
    };
}

struct step {
    struct adam_pass pass;
    uint64_t begin;
    uint64_t end;
    _Atomic unsigned met; /* relaxed: read after the team has returned */
};

static void step_part(void *argument, unsigned index, unsigned count)
{
    struct step *step = argument;
    const uint64_t base = step->begin / STEP_GRAIN * STEP_GRAIN;
    uint64_t begin;
    uint64_t end;
    core_team_share(step->end - base, STEP_GRAIN, index, count, &begin, &end);
    begin = begin + base > step->begin ? begin + base : step->begin;
    end += base;
    if (begin < end) {
        const uint64_t mode = adam_fp_begin();
        const unsigned met = adam_pass_range(&step->pass, begin, end);
        adam_fp_end(mode);
        atomic_fetch_or_explicit(&step->met, met, memory_order_relaxed);
    }
}

int adam_step(struct adam *adam, const struct adam_arrays *arrays, uint64_t begin, uint64_t end,
              double gradient_scale, unsigned *met)
{
    int rc = adam_check_arrays(adam, arrays, begin, end, true);
    rc = rc != 0 ? rc : adam_step_scalars(adam, gradient_scale);
    if (rc != 0) {
        return rc;
    }
    struct step step = {
        .pass = {.ops = &adam->ops,
                 .arrays = adam_bind(adam, arrays),
                 .runs = adam->runs,
                 .runs_count = adam->options.runs_count,
                 .scalars = adam->scalars},
        .begin = begin,
        .end = end,
    };
    if (adam->options.team == NULL || end - begin <= STEP_GRAIN) {
        step_part(&step, 0, 1);
    } else {
        core_team_run(adam->options.team, step_part, &step);
    }
    if (met != NULL) {
        *met = atomic_load_explicit(&step.met, memory_order_relaxed);
    }
    return 0;
}
