/* description.c: creates, checks and changes an optimizer's description. */
#include "cpu_adam/description.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cpus.h"
#include "core/base/err.h"
#include "cpu_adam/format.h"

static int check_options(const struct adam_options *o)
{
    if ((unsigned)o->rule >= CORE_UPDATE_RULES || (unsigned)o->master > CORE_UPDATE_MASTER_F32 ||
        (unsigned)o->gradients > CORE_UPDATE_FP16 || (unsigned)o->moments > CORE_UPDATE_Q8 ||
        o->moments == CORE_UPDATE_FP16) {
        return core_err_set(-EINVAL,
                            "unsupported optimizer: rule %s, weights %s, gradients %s, moments %s",
                            adam_rule_name(o->rule), adam_master_name(o->master),
                            adam_type_name(o->gradients), adam_type_name(o->moments));
    }
    if (o->count > UINT64_MAX / 16) {
        return core_err_set(-EINVAL,
                            "%" PRIu64 " parameters are too many; at most %" PRIu64 " are allowed",
                            o->count, UINT64_MAX / 16);
    }
    if (o->groups_count == 0 || o->groups_count > ADAM_GROUPS_MAX ||
        o->runs_count > ADAM_RUNS_MAX || o->groups == NULL ||
        (o->runs == NULL && o->runs_count > 0)) {
        return core_err_set(-EINVAL,
                            "%zu groups and %zu runs; expected 1 to %d groups and at most %d runs",
                            o->groups_count, o->runs_count, ADAM_GROUPS_MAX, ADAM_RUNS_MAX);
    }
    uint64_t begin = 0;
    for (size_t i = 0; i < o->runs_count; i++) {
        if (o->runs[i].end < begin || o->runs[i].group >= o->groups_count) {
            return core_err_set(-EINVAL,
                                "run %zu ends at %" PRIu64
                                " in group %u; expected an end of at least %" PRIu64
                                " and a group below %zu",
                                i, o->runs[i].end, o->runs[i].group, begin, o->groups_count);
        }
        begin = o->runs[i].end;
    }
    if (o->runs_count > 0 && begin != o->count) {
        return core_err_set(-EINVAL, "the last run ends at %" PRIu64 ", the array at %" PRIu64,
                            begin, o->count);
    }
    return 0;
}

/* Refuses groups that would make a step fail. */
static int check_groups(const struct adam_options *o)
{
    for (size_t i = 0; i < o->groups_count; i++) {
        struct core_update_scalars scalars;
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
    if (rc != 0) {
        return rc;
    }
    rc = check_groups(options);
    if (rc != 0) {
        return rc;
    }
    struct adam *adam = calloc(1, sizeof *adam);
    if (adam == NULL) {
        return core_err_set(-ENOMEM, "out of memory for an optimizer");
    }
    const size_t runs_count = options->runs_count > 0 ? options->runs_count : 1;
    adam->options = *options;
    adam->runs = calloc(runs_count, sizeof *adam->runs);
    adam->groups = calloc(options->groups_count, sizeof *adam->groups);
    adam->scalars = calloc(options->groups_count, sizeof *adam->scalars);
    if (adam->runs == NULL || adam->groups == NULL || adam->scalars == NULL) {
        rc = core_err_set(-ENOMEM, "out of memory for an optimizer of %zu runs and %zu groups",
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
    struct core_update_scalars scalars;
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

/* The Philox stream, unique for the step and the array's number. */
static uint64_t stream_of(const struct adam *adam)
{
    uint64_t step = 0;
    for (size_t i = 0; i < adam->options.groups_count; i++) {
        step = adam->groups[i].step > step ? adam->groups[i].step : step;
    }
    return step << 32 | adam->options.number;
}

struct core_update_args adam_bind(const struct adam *adam, const struct adam_arrays *arrays)
{
    const struct adam_options *o = &adam->options;
    const bool is_split = o->master == CORE_UPDATE_MASTER_SPLIT;
    const bool has_m = adam_has_m(o->rule);
    const bool has_v = adam_has_v(o->rule);
    return (struct core_update_args){
        .rule = o->rule,
        .master = o->master,
        .gradients = o->gradients,
        .moments = o->moments,
        .first = arrays->first,
        .count = arrays->count,
        .w16 = o->master != CORE_UPDATE_MASTER_F32 ? arrays->w16 : NULL,
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
