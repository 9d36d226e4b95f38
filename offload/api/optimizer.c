/* optimizer.c: the optimizer of applications, over offload/run/optimizer.h. A forked child is
 * refused. */
#include <tide/optimizer.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/base/cpus.h"
#include "core/base/err.h"
#include "core/dev/dev.h"
#include "offload/api/abi.h"
#include "offload/api/build.h"
#include "offload/api/context.h"
#include "offload/api/setup.h"
#include "offload/run/optimizer.h"

struct tide_optim {
    struct tide_context *context; /* borrowed */
    struct setup setup;           /* owns what the run's options point to */
    struct run_optimizer *run;    /* owned */
    uint64_t parameters;
    bool on_device; /* weights and gradients are in GPU memory */
    pid_t process;  /* the creator */
};

/* Bytes that the library takes beside the plan: for threads and buffers, and per parameter. */
static const uint64_t runtime_bytes = UINT64_C(8) << 20;
static const uint64_t parameter_bytes = 1024;

/* ---- options ---- */

int tide_optim_group_init(struct tide_optim_group *group, size_t struct_bytes)
{
    const struct tide_optim_group defaults = {
        .struct_bytes = sizeof defaults, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
    return abi_struct_init("tide_optim_group", &defaults, sizeof defaults, group, struct_bytes);
}

int tide_optim_options_init(struct tide_optim_options *options, size_t struct_bytes)
{
    const struct tide_optim_options defaults = {.struct_bytes = sizeof defaults,
                                                .check_gradients = api_build_checks};
    return abi_struct_init("tide_optim_options", &defaults, sizeof defaults, options, struct_bytes);
}

static struct adam_group group_of(const struct tide_optim_group *given)
{
    return (struct adam_group){.lr = given->lr,
                               .beta1 = given->beta1,
                               .beta2 = given->beta2,
                               .eps = given->eps,
                               .decay = given->decay,
                               .bias_correction = given->no_bias_correction == 0};
}

static int read_groups(const struct tide_optim_options *given, struct adam_group *out)
{
    for (size_t i = 0; i < given->group_count; i++) {
        struct tide_optim_group group;
        int rc = abi_struct_read_at("tide_optim_group", given->groups, i, &group, sizeof group);
        if (rc != 0) {
            return core_err_prefix(rc, "group %zu", i);
        }
        out[i] = group_of(&group);
    }
    return 0;
}

static int type_of(uint32_t precision, enum core_update_type *out)
{
    static const enum core_update_type types[] = {[TIDE_BF16] = CORE_UPDATE_BF16,
                                                  [TIDE_FP16] = CORE_UPDATE_FP16,
                                                  [TIDE_FP32] = CORE_UPDATE_F32};
    if (precision > TIDE_FP32) {
        return core_err_set(-EINVAL, "%" PRIu32 " is not a precision (enum tide_precision)",
                            precision);
    }
    *out = types[precision];
    return 0;
}

static int read_parameters(const struct tide_optim_options *given,
                           struct run_optimizer_parameter *out)
{
    for (size_t i = 0; i < given->parameter_count; i++) {
        struct tide_optim_parameter parameter;
        int rc = abi_struct_read_at("tide_optim_parameter", given->parameters, i, &parameter,
                                    sizeof parameter);
        if (rc == 0) {
            rc = type_of(parameter.precision, &out[i].weights_type);
        }
        if (rc == 0) {
            rc = type_of(parameter.gradients, &out[i].gradients_type);
        }
        if (rc != 0) {
            return core_err_prefix(rc, "parameter %zu", i);
        }
        out[i].name = parameter.name;
        out[i].weights = parameter.weights;
        out[i].elements = parameter.elements;
        out[i].group = parameter.group < UINT32_MAX ? (uint32_t)parameter.group : UINT32_MAX;
    }
    return 0;
}

static int check_choices(const struct tide_optim_options *given)
{
    if (given->optimizer > TIDE_SGD || given->moments > TIDE_MOMENTS_8BIT) {
        return core_err_set(-EINVAL,
                            "optimizer %" PRIu32 " or moments %" PRIu32
                            " is unknown to this version of libtide",
                            given->optimizer, given->moments);
    }
    if (given->states != TIDE_AUTO && given->states != TIDE_HOST && given->states != TIDE_STORE) {
        return core_err_set(-EINVAL,
                            "states %" PRIu32 ": expected TIDE_AUTO, TIDE_HOST or TIDE_STORE",
                            given->states);
    }
    if (given->states == TIDE_STORE && given->store_count == 0) {
        return core_err_set(-EINVAL, "states in TIDE_STORE need a store");
    }
    return given->clip >= 0 && given->clip < 1e300
               ? 0
               : core_err_set(-EINVAL, "clip is %g; expected 0 (no clipping) or more", given->clip);
}

static void fill_run(struct tide_optim *optim, const struct tide_optim_options *given)
{
    static const enum plan_where states[] = {[TIDE_AUTO] = PLAN_WHERE_AUTO,
                                             [TIDE_DEVICE] = PLAN_WHERE_AUTO,
                                             [TIDE_HOST] = PLAN_WHERE_HOST,
                                             [TIDE_STORE] = PLAN_WHERE_STORE};
    struct run_options *run = &optim->setup.options;
    struct core_cpus cpus;
    run->threads = given->threads > 0              ? given->threads
                   : core_cpus_allowed(&cpus) == 0 ? core_cpus_count(&cpus)
                                                   : 1;
    run->seed = given->seed;
    run->rule = setup_rule(given->optimizer);
    run->moments = setup_moments(given->moments);
    run->clip = given->clip;
    run->may_skip = given->check_overflow != 0;
    run->wishes.states = states[given->states];
    run->budgets.device_is_host = true;
    run->budgets.host_bytes = setup_host_bytes(given->host_bytes);
    run->budgets.host_taken_bytes = runtime_bytes + given->parameter_count * parameter_bytes;
}

/* Rates are measured with the type of the largest parameter. */
static void choose_type(struct run_options *run, const struct run_optimizer_parameter *parameters,
                        size_t count, const struct adam_group *group)
{
    const struct run_optimizer_parameter *largest = &parameters[0];
    for (size_t i = 1; i < count; i++) {
        largest = parameters[i].elements > largest->elements ? &parameters[i] : largest;
    }
    run->type = largest->weights_type == CORE_UPDATE_F32    ? KERN_F32
                : largest->weights_type == CORE_UPDATE_BF16 ? KERN_BF16
                                                            : KERN_FP16;
    run->gradients_fp32 = largest->gradients_type == CORE_UPDATE_F32;
    run->group = *group;
}

/* ---- create and destroy ---- */

static int report(void *user, const char *phase, uint64_t done, uint64_t total)
{
    return context_progress(user, phase, done, total);
}

static const char *device_of(const struct tide_optim_options *given)
{
    return given->device == NULL || dev_is_cpu(given->device) ? NULL : given->device;
}

static int make(struct tide_optim *optim, const struct tide_optim_options *given)
{
    struct run_optimizer_parameter *parameters = calloc(given->parameter_count, sizeof *parameters);
    struct adam_group *groups = calloc(given->group_count, sizeof *groups);
    int rc = parameters != NULL && groups != NULL
                 ? read_groups(given, groups)
                 : core_err_set(-ENOMEM, "no memory for %zu parameters", given->parameter_count);
    if (rc == 0) {
        rc = read_parameters(given, parameters);
    }
    if (rc == 0) {
        fill_run(optim, given);
        choose_type(&optim->setup.options, parameters, given->parameter_count, &groups[0]);
        const struct run_optimizer_options options = {.parameters = parameters,
                                                      .parameter_count = given->parameter_count,
                                                      .groups = groups,
                                                      .group_count = (uint32_t)given->group_count,
                                                      .options = optim->setup.options,
                                                      .sums = given->accumulate != 0,
                                                      .checks = given->check_gradients != 0,
                                                      .progress = report,
                                                      .user = optim->context,
                                                      .world = given->world,
                                                      .rank = given->rank,
                                                      .sum = given->sum,
                                                      .sum_user = given->user,
                                                      .device = device_of(given)};
        rc = run_optimizer_create(&options, &optim->run);
    }
    free(parameters);
    free(groups);
    return rc;
}

static int create(struct tide_optim *optim, const struct tide_optim_options *options)
{
    struct tide_optim_options given;
    int rc = abi_struct_read("tide_optim_options", options, &given, sizeof given);
    if (rc != 0) {
        return rc;
    }
    if (given.parameter_count == 0 || given.group_count == 0 || given.group_count > UINT32_MAX ||
        given.parameter_count > UINT32_MAX) {
        return core_err_set(-EINVAL, "an optimizer needs a parameter and a group");
    }
    rc = check_choices(&given);
    if (rc != 0) {
        return rc;
    }
    optim->setup.given = (struct tide_engine_options){.stores = given.stores,
                                                      .store_count = given.store_count,
                                                      .io = given.io,
                                                      .cache = given.cache};
    rc = setup_init_stores(&optim->setup);
    if (rc != 0) {
        return rc;
    }
    optim->parameters = given.parameter_count;
    optim->on_device = device_of(&given) != NULL;
    return make(optim, &given);
}

int tide_optim_create(struct tide_context *context, const struct tide_optim_options *options,
                      struct tide_optim **out)
{
    int rc = abi_pointer_check("`out`", out);
    if (rc != 0) {
        return rc;
    }
    struct tide_optim *optim = calloc(1, sizeof *optim);
    if (optim == NULL) {
        return core_err_set(-ENOMEM, "no memory for an optimizer");
    }
    optim->context = context;
    optim->process = getpid();
    const struct context_before before = context_enter(context);
    rc = create(optim, options);
    if (rc != 0) {
        const struct core_err kept = core_err_keep(rc);
        setup_fini(&optim->setup);
        free(optim);
        rc = core_err_first(&kept, 0);
    } else {
        *out = optim;
    }
    context_leave(&before);
    return rc;
}

void tide_optim_destroy(struct tide_optim *optim)
{
    if (optim == NULL || optim->process != getpid()) {
        return;
    }
    const struct context_before before = context_enter(optim->context);
    run_optimizer_destroy(optim->run);
    setup_fini(&optim->setup);
    free(optim);
    context_leave(&before);
}

/* ---- public functions of a step ---- */

/* Sets `before` if this process may use the optimizer. */
static int enter(const struct tide_optim *optim, struct context_before *before)
{
    int rc = abi_pointer_check("the optimizer", optim);
    if (rc != 0) {
        return rc;
    }
    if (optim->process != getpid()) {
        return core_err_set(-ECHILD,
                            "process %ld was forked from process %ld, which created this "
                            "optimizer; only that one can use it",
                            (long)getpid(), (long)optim->process);
    }
    *before = context_enter(optim->context);
    return 0;
}

static int check_parameter(const struct tide_optim *optim, uint64_t parameter)
{
    return parameter < optim->parameters
               ? 0
               : core_err_set(-EINVAL,
                              "parameter %" PRIu64 " does not exist; the optimizer has %" PRIu64,
                              parameter, optim->parameters);
}

static int enter_for(const struct tide_optim *optim, uint64_t parameter,
                     struct context_before *before)
{
    int rc = enter(optim, before);
    if (rc != 0) {
        return rc;
    }
    rc = check_parameter(optim, parameter);
    if (rc != 0) {
        context_leave(before);
    }
    return rc;
}

int tide_optim_submit(struct tide_optim *optim, uint64_t parameter, const void *gradient, int last,
                      uint64_t *token)
{
    struct context_before before;
    int rc = enter_for(optim, parameter, &before);
    if (rc != 0) {
        return rc;
    }
    rc = abi_pointer_check("`token`", token);
    if (rc == 0) {
        rc = run_optimizer_submit(optim->run, (size_t)parameter, gradient, last != 0, token);
    }
    context_leave(&before);
    return rc;
}

int tide_optim_step(struct tide_optim *optim, uint64_t *token)
{
    struct context_before before;
    int rc = enter(optim, &before);
    if (rc != 0) {
        return rc;
    }
    rc = abi_pointer_check("`token`", token);
    if (rc == 0) {
        rc = run_optimizer_step(optim->run, token);
    }
    context_leave(&before);
    return rc;
}

int tide_optim_wait(struct tide_optim *optim, uint64_t token)
{
    struct context_before before;
    int rc = enter(optim, &before);
    if (rc == 0) {
        rc = run_optimizer_wait(optim->run, token);
        context_leave(&before);
    }
    return rc;
}

int tide_optim_poll(struct tide_optim *optim, uint64_t token)
{
    struct context_before before;
    int rc = enter(optim, &before);
    if (rc == 0) {
        rc = run_optimizer_poll(optim->run, token);
        context_leave(&before);
    }
    return rc;
}

int tide_optim_wait_parameter(struct tide_optim *optim, uint64_t parameter)
{
    struct context_before before;
    int rc = enter(optim, &before);
    if (rc != 0) {
        return rc;
    }
    const bool all = parameter == TIDE_OPTIM_ALL;
    rc = all ? 0 : check_parameter(optim, parameter);
    if (rc == 0) {
        rc = run_optimizer_wait_weights(optim->run, all ? RUN_OPTIMIZER_ALL : (size_t)parameter);
    }
    context_leave(&before);
    return rc;
}

int tide_optim_set_stream(struct tide_optim *optim, void *stream)
{
    struct context_before before;
    int rc = enter(optim, &before);
    if (rc != 0) {
        return rc;
    }
    if (optim->on_device) {
        run_optimizer_set_stream(optim->run, stream);
    } else {
        rc = core_err_set(-EINVAL, "a stream needs the option `device`: weights and gradients are "
                                   "in host memory");
    }
    context_leave(&before);
    return rc;
}

int tide_optim_share(const struct tide_optim *optim, uint64_t parameter, uint64_t *first,
                     uint64_t *count)
{
    struct context_before before;
    int rc = enter_for(optim, parameter, &before);
    if (rc != 0) {
        return rc;
    }
    rc = abi_pointer_check("`first`", first);
    if (rc == 0) {
        rc = abi_pointer_check("`count`", count);
    }
    if (rc == 0) {
        const struct plan_span share = run_optimizer_share(optim->run, (size_t)parameter);
        *first = share.first;
        *count = share.count;
    }
    context_leave(&before);
    return rc;
}

int tide_optim_last(struct tide_optim *optim, struct tide_optim_result *out)
{
    struct run_optimizer_result last;
    struct context_before before;
    int rc = enter(optim, &before);
    if (rc != 0) {
        return rc;
    }
    rc = abi_struct_check("tide_optim_result", out);
    if (rc == 0) {
        rc = run_optimizer_result(optim->run, &last);
    }
    if (rc == 0) {
        const struct tide_optim_result result = {.struct_bytes = sizeof result,
                                                 .step = last.step,
                                                 .grad_norm = last.norm,
                                                 .factor = last.factor,
                                                 .skipped = last.skipped};
        rc = abi_struct_write("tide_optim_result", &result, sizeof result, out);
    }
    context_leave(&before);
    return rc;
}

int tide_optim_set_group(struct tide_optim *optim, uint64_t index,
                         const struct tide_optim_group *group)
{
    struct tide_optim_group given;
    struct context_before before;
    int rc = enter(optim, &before);
    if (rc != 0) {
        return rc;
    }
    rc = abi_struct_read("tide_optim_group", group, &given, sizeof given);
    if (rc == 0) {
        const struct adam_group set = group_of(&given);
        rc = run_optimizer_set_group(optim->run, index < UINT32_MAX ? (uint32_t)index : UINT32_MAX,
                                     &set);
    }
    context_leave(&before);
    return rc;
}

int tide_optim_set_loss_scale(struct tide_optim *optim, double loss_scale)
{
    struct context_before before;
    int rc = enter(optim, &before);
    if (rc == 0) {
        rc = run_optimizer_set_loss_scale(optim->run, loss_scale);
        context_leave(&before);
    }
    return rc;
}

int tide_optim_weights_changed(struct tide_optim *optim, uint64_t parameter)
{
    struct context_before before;
    int rc = enter_for(optim, parameter, &before);
    if (rc != 0) {
        return rc;
    }
    rc = run_optimizer_weights_changed(optim->run, (size_t)parameter);
    context_leave(&before);
    return rc;
}

static int read_arrays(const struct tide_optim *optim, uint64_t parameter,
                       const struct tide_optim_arrays *arrays, struct run_optimizer_states *out)
{
    struct tide_optim_arrays given;
    int rc = abi_struct_read("tide_optim_arrays", arrays, &given, sizeof given);
    if (rc != 0) {
        return rc;
    }
    const uint64_t elements = run_optimizer_share(optim->run, (size_t)parameter).count;
    if (given.elements != elements) {
        return core_err_set(
            -EINVAL, "parameter %" PRIu64 " has %" PRIu64 " elements; the arrays have %" PRIu64,
            parameter, elements, given.elements);
    }
    *out = (struct run_optimizer_states){.values = {[ADAM_VALUE_MASTER] = given.master,
                                                    [ADAM_VALUE_M] = given.m,
                                                    [ADAM_VALUE_V] = given.v}};
    return 0;
}

int tide_optim_get_states(struct tide_optim *optim, uint64_t parameter,
                          const struct tide_optim_arrays *arrays, uint64_t *updates)
{
    struct run_optimizer_states states;
    struct context_before before;
    int rc = enter_for(optim, parameter, &before);
    if (rc != 0) {
        return rc;
    }
    rc = abi_pointer_check("`updates`", updates);
    if (rc == 0) {
        rc = read_arrays(optim, parameter, arrays, &states);
    }
    if (rc == 0) {
        rc = run_optimizer_get_states(optim->run, (size_t)parameter, &states);
    }
    if (rc == 0) {
        *updates = states.updates;
    }
    context_leave(&before);
    return rc;
}

int tide_optim_set_states(struct tide_optim *optim, uint64_t parameter,
                          const struct tide_optim_arrays *arrays, uint64_t updates)
{
    struct run_optimizer_states states;
    struct context_before before;
    int rc = enter_for(optim, parameter, &before);
    if (rc != 0) {
        return rc;
    }
    rc = read_arrays(optim, parameter, arrays, &states);
    if (rc == 0) {
        states.updates = updates;
        rc = run_optimizer_set_states(optim->run, (size_t)parameter, &states);
    }
    context_leave(&before);
    return rc;
}

static int check_directory(const char *directory)
{
    return directory != NULL && directory[0] != '\0'
               ? 0
               : core_err_set(-EINVAL, "no directory of checkpoints was given");
}

int tide_optim_save(struct tide_optim *optim, const char *directory, uint64_t keep)
{
    struct context_before before;
    int rc = enter(optim, &before);
    if (rc != 0) {
        return rc;
    }
    rc = check_directory(directory);
    if (rc == 0) {
        rc = run_optimizer_save(optim->run, directory,
                                keep < UINT32_MAX ? (uint32_t)keep : UINT32_MAX);
    }
    context_leave(&before);
    return rc;
}

int tide_optim_load_shares(struct tide_optim *optim, const char *const *paths, size_t count,
                           uint64_t *step)
{
    struct context_before before;
    int rc = enter(optim, &before);
    if (rc != 0) {
        return rc;
    }
    if (count == 0) {
        rc = core_err_set(-EINVAL, "no checkpoint was given");
    }
    if (rc == 0) {
        rc = abi_pointer_check("`paths`", paths);
    }
    for (size_t i = 0; rc == 0 && i < count; i++) {
        rc = check_directory(paths[i]);
    }
    if (rc == 0) {
        rc = abi_pointer_check("`step`", step);
    }
    if (rc == 0) {
        rc = run_optimizer_load(optim->run, paths, count, step);
    }
    context_leave(&before);
    return rc;
}

int tide_optim_load(struct tide_optim *optim, const char *path, uint64_t *step)
{
    return tide_optim_load_shares(optim, &path, 1, step);
}

int tide_optim_describe(const struct tide_optim *optim, struct tide_optim_info *out)
{
    struct context_before before;
    int rc = enter(optim, &before);
    if (rc == 0) {
        const struct run_optimizer_info found = run_optimizer_info(optim->run);
        const struct tide_optim_info info = {.struct_bytes = sizeof info,
                                             .elements = found.parameters,
                                             .host_bytes = found.host_bytes,
                                             .resident_bytes = found.resident_bytes,
                                             .store_bytes = found.store_bytes,
                                             .blocks = found.blocks};
        rc = abi_struct_write("tide_optim_info", &info, sizeof info, out);
        context_leave(&before);
    }
    return rc;
}
