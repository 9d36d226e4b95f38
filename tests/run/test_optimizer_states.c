/* test_optimizer_states.c: states between steps: changed weights, checkpoints, single states,
 * and states that processes share. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/hash.h"
#include "tests/run/optimizer_case.h"

/* ---- weights that the application wrote ---- */

/* If the application changes weights, the masters follow, and moments continue. */
static void weights_may_change(void)
{
    static const struct way *const of[] = {&ways[0], &ways[1], &ways[ON_DEVICE]};
    for (int w = 0; w < 3; w++) {
        struct arrays results;
        struct arrays *arrays = &results;
        uint64_t token = 0;
        make_arrays(arrays);
        struct run_optimizer *optimizer = make_optimizer(of[w], &plain, arrays);
        struct alone alone[PARAMETERS];
        struct arrays reference;
        make_arrays(&reference);
        for (unsigned p = 0; p < PARAMETERS; p++) {
            alone_begin(&alone[p], &plain, p, reference.weights[p]);
        }
        for (unsigned s = 0; s < STEPS; s++) {
            submit_all(optimizer, arrays, of[w], s);
            check_int(run_optimizer_step(optimizer, &token), ==, 0);
            check_int(run_optimizer_wait_weights(optimizer, RUN_OPTIMIZER_ALL), ==, 0);
            for (unsigned p = 0; p < PARAMETERS; p++) {
                make_gradient(&reference, p, s, 1);
                alone_step(&alone[p], p, reference.gradients[p], 1);
            }
            for (unsigned p = s; p < PARAMETERS; p += 3) {
                for (uint64_t i = 0; i < forms[p].elements; i++) {
                    const float value = draw(50 + s, p, i);
                    store(forms[p].weights, arrays->weights[p], i, value);
                    store(forms[p].weights, reference.weights[p], i, value);
                    if (forms[p].weights != CORE_UPDATE_F32) {
                        alone[p].arrays.lo16[i] = 0;
                        alone[p].arrays.w32[i] = load(forms[p].weights, reference.weights[p], i);
                    }
                }
                check_int(run_optimizer_weights_changed(optimizer, p), ==, 0);
            }
        }
        compare(of[w], &reference, arrays);
        run_optimizer_destroy(optimizer);
        for (unsigned p = 0; p < PARAMETERS; p++) {
            alone_end(&alone[p]);
        }
        free_arrays(&reference);
        free_arrays(&results);
    }
}

/* ---- checkpoints ---- */

/* Waits until the application's arrays have the weights, even on a device. */
static int load_from(struct run_optimizer *optimizer, const char *path, uint64_t *step)
{
    const int rc = run_optimizer_load(optimizer, &path, 1, step);
    return rc != 0 ? rc : run_optimizer_wait_weights(optimizer, RUN_OPTIMIZER_ALL);
}

/* The next call restores the types. */
static void swap_types(enum core_update_type type)
{
    static enum core_update_type kept[PARAMETERS][2];
    static bool swapped;
    for (unsigned p = 0; p < PARAMETERS; p++) {
        if (!swapped) {
            kept[p][0] = forms[p].weights;
            kept[p][1] = forms[p].gradients;
        }
        forms[p].weights = swapped ? kept[p][0] : type;
        forms[p].gradients = swapped ? kept[p][1] : type;
    }
    swapped = !swapped;
    measured_type = swapped ? type : CORE_UPDATE_BF16;
}

static void steps_of(struct run_optimizer *optimizer, struct arrays *arrays, const struct way *way,
                     unsigned first, unsigned end)
{
    uint64_t token = 0;
    for (unsigned s = first; s < end; s++) {
        submit_all(optimizer, arrays, way, s);
        check_int(run_optimizer_step(optimizer, &token), ==, 0);
    }
    check_int(run_optimizer_wait_weights(optimizer, RUN_OPTIMIZER_ALL), ==, 0);
}

/* A run that is loaded in another placement has the bits of an uninterrupted run. */
static void checkpoints_go_on(void)
{
    static const enum core_update_type types[] = {CORE_UPDATE_F32, CORE_UPDATE_BF16,
                                                  CORE_UPDATE_FP16};
    enum { ALIKE = sizeof types / sizeof types[0] };
    for (size_t t = 0; t <= ALIKE; t++) {
        const struct rules rules = {CORE_UPDATE_ADAMW,
                                    t == 1 ? CORE_UPDATE_Q8 : CORE_UPDATE_F32,
                                    (double)(t % 2),
                                    1,
                                    false,
                                    false,
                                    0};
        struct arrays straight;
        struct arrays saved;
        struct arrays loaded;
        char directory[600];
        uint64_t step = 0;
        snprintf(directory, sizeof directory, "%s/checkpoints %zu", test_directory(), t);
        if (t < ALIKE) {
            swap_types(types[t]);
        }
        make_arrays(&straight);
        make_arrays(&saved);
        make_arrays(&loaded);
        struct run_optimizer *optimizer = make_optimizer(&ways[t % 2], &rules, &straight);
        steps_of(optimizer, &straight, &ways[0], 0, 5);
        run_optimizer_destroy(optimizer);
        optimizer = make_optimizer(&ways[t % 2], &rules, &saved);
        check_int(load_from(optimizer, directory, &step), ==, -ENOENT);
        steps_of(optimizer, &saved, &ways[0], 0, 1);
        check_int(run_optimizer_save(optimizer, directory, 2), ==, 0);
        steps_of(optimizer, &saved, &ways[0], 1, 2);
        check_int(run_optimizer_save(optimizer, directory, 2), ==, 0);
        run_optimizer_destroy(optimizer);
        optimizer = make_optimizer(&ways[t == ALIKE ? ON_DEVICE : 1 - t % 2], &rules, &loaded);
        check_int(run_optimizer_save(optimizer, directory, 2), ==, -EEXIST);
        check_int(load_from(optimizer, directory, &step), ==, 0);
        check_uint(step, ==, 2);
        compare(&ways[1], &saved, &loaded);
        steps_of(optimizer, &loaded, &ways[WAYS - 1], 2, 5);
        check_int(run_optimizer_save(optimizer, directory, 2), ==, 0);
        compare(&ways[1], &straight, &loaded);
        char one[700];
        snprintf(one, sizeof one, "%s/checkpoint-2", directory);
        check_int(load_from(optimizer, one, &step), ==, 0);
        check_uint(step, ==, 2);
        compare(&ways[1], &saved, &loaded);
        run_optimizer_destroy(optimizer);
        if (t < ALIKE) {
            swap_types(types[t]);
        }
        free_arrays(&straight);
        free_arrays(&saved);
        free_arrays(&loaded);
    }
}

/* ---- processes that share states ---- */

/* Creates the optimizers of `world` processes with common arrays. */
static void begin_world(const struct rules *rules, const struct arrays *arrays, uint32_t world,
                        struct meeting *meeting, struct run_optimizer **out)
{
    *meeting = (struct meeting){.count = 0};
    pthread_mutex_init(&meeting->lock, NULL);
    pthread_barrier_init(&meeting->barrier, NULL, world);
    for (uint32_t r = 0; r < world; r++) {
        snprintf(share.directories[r], sizeof share.directories[r], "%s/rank %u", test_directory(),
                 r);
        share.world = world;
        share.rank = r;
        share.meeting = meeting;
        out[r] = make_optimizer(&ways[r % 2], rules, arrays);
    }
    share.world = 0;
}

static void end_world(uint32_t world, struct meeting *meeting, struct run_optimizer **optimizers)
{
    for (uint32_t r = 0; r < world; r++) {
        run_optimizer_destroy(optimizers[r]);
    }
    pthread_barrier_destroy(&meeting->barrier);
    pthread_mutex_destroy(&meeting->lock);
    free(meeting->sums);
}

/* Takes steps [steps[0], steps[1]) with all optimizers, and checks that they report the same
 * norm. */
static void world_steps(const struct rules *rules, const struct arrays *arrays, uint32_t world,
                        struct run_optimizer **optimizers, const unsigned steps[2], double *norms)
{
    uint64_t token = 0;
    for (unsigned s = steps[0]; s < steps[1]; s++) {
        for (unsigned p = 0; p < PARAMETERS; p++) {
            make_gradient(arrays, p, s, rules->loss_scale);
        }
        for (uint32_t r = 0; r < world; r++) {
            for (unsigned i = 0; i < PARAMETERS; i++) {
                const unsigned p = nth(&ways[2 + r], s, i);
                if (!is_absent(rules, s, p)) {
                    if (rules->sums) {
                        check_int(run_optimizer_submit(optimizers[r], p, arrays->gradients[p],
                                                       false, &token),
                                  ==, 0);
                    }
                    check_int(
                        run_optimizer_submit(optimizers[r], p, arrays->gradients[p], true, &token),
                        ==, 0);
                }
            }
            check_int(run_optimizer_step(optimizers[r], &token), ==, 0);
        }
        for (uint32_t r = 0; r < world; r++) {
            struct run_optimizer_result result;
            check_int(run_optimizer_wait(optimizers[r], run_optimizer_last_token(optimizers[r])),
                      ==, 0);
            check_int(run_optimizer_result(optimizers[r], &result), ==, 0);
            if (norms[s] < 0) {
                norms[s] = result.norm;
            }
            check_memory(&result.norm, &norms[s], sizeof norms[s]);
        }
    }
}

/* Checks that the processes' shares cover a parameter once. */
static void check_shares(uint32_t world, struct run_optimizer **optimizers)
{
    for (unsigned p = 0; p < PARAMETERS; p++) {
        uint64_t next = 0;
        for (uint32_t r = 0; r < world; r++) {
            const struct plan_span own = run_optimizer_share(optimizers[r], p);
            check_uint(own.count > 0 ? own.first : next, ==, next);
            next += own.count;
        }
        check_uint(next, ==, forms[p].elements);
    }
}

/* Saves the states, and begins again with `next` processes that load them. Processes use one
 * array of weights, so no weights are sent. */
static void change_world(const struct rules *rules, struct arrays *arrays, uint32_t *world,
                         uint32_t next, struct meeting *meeting, struct run_optimizer **optimizers)
{
    char directories[WORLD_MAX][700];
    const char *paths[WORLD_MAX];
    uint64_t step = 0;
    uint64_t saved = 0;
    for (uint32_t r = 0; r < *world; r++) {
        snprintf(directories[r], sizeof directories[r], "%s/%d %d saved by %u", test_directory(),
                 rules->rule, rules->moments, r);
        paths[*world - 1 - r] = directories[r]; /* the order does not matter */
        check_int(run_optimizer_save(optimizers[r], directories[r], 0), ==, 0);
    }
    struct run_optimizer_result result;
    check_int(run_optimizer_result(optimizers[0], &result), ==, 0);
    saved = result.step;
    end_world(*world, meeting, optimizers);
    free_arrays(arrays);
    make_arrays(arrays);
    begin_world(rules, arrays, next, meeting, optimizers);
    if (*world > 1) { /* a process cannot continue from the share of another */
        const uint32_t last = next == *world ? 0 : next - 1;
        check_int(load_from(optimizers[last], directories[next == *world ? 1 : 0], &step), ==,
                  -EINVAL);
        check_contains(core_err_message(), " needs the states of process ");
        check_int(run_optimizer_load(optimizers[0], (const char *[]){paths[0], paths[0]}, 2, &step),
                  ==, -EINVAL);
        check_contains(core_err_message(), "; expected another process of ");
    }
    for (uint32_t r = 0; r < next; r++) {
        if (*world == next) {
            check_int(load_from(optimizers[r], directories[r], &step), ==, 0);
        } else {
            check_int(run_optimizer_load(optimizers[r], paths, *world, &step), ==, 0);
        }
        check_uint(step, ==, saved);
    }
    *world = next;
}

/* Processes with shares have the bits of one process, even if the number of processes changes. */
static void states_are_shared(void)
{
    static const uint32_t worlds[] = {2, 2, 3, 2, 1, 3};
    enum { CHANGES = sizeof worlds / sizeof worlds[0] };
    static const struct rules of[] = {
        {CORE_UPDATE_ADAMW, CORE_UPDATE_F32, 0, 1, false, false, 5},
        {CORE_UPDATE_ADAMW, CORE_UPDATE_Q8, 0.5, 8, true, false, 0},
        {CORE_UPDATE_LION, CORE_UPDATE_BF16, 0.1, 1, false, true, 0},
    };
    for (size_t k = 0; k < sizeof of / sizeof of[0]; k += TEST_COUNT(1, 2)) {
        struct arrays whole;
        struct arrays arrays;
        double norms[CHANGES + 1];
        struct run_optimizer *optimizers[WORLD_MAX];
        struct meeting meeting;
        uint32_t world = 1;
        for (unsigned s = 0; s <= CHANGES; s++) {
            norms[s] = -1;
        }
        make_arrays(&whole);
        begin_world(&of[k], &whole, 1, &meeting, optimizers);
        world_steps(&of[k], &whole, 1, optimizers, (const unsigned[]){0, CHANGES + 1}, norms);
        end_world(1, &meeting, optimizers);
        make_arrays(&arrays);
        begin_world(&of[k], &arrays, 1, &meeting, optimizers);
        for (unsigned s = 0; s < CHANGES; s++) {
            check_shares(world, optimizers);
            world_steps(&of[k], &arrays, world, optimizers, (const unsigned[]){s, s + 1}, norms);
            change_world(&of[k], &arrays, &world, worlds[s], &meeting, optimizers);
        }
        world_steps(&of[k], &arrays, world, optimizers, (const unsigned[]){CHANGES, CHANGES + 1},
                    norms);
        compare(&ways[1], &whole, &arrays);
        end_world(world, &meeting, optimizers);
        free_arrays(&arrays);
        free_arrays(&whole);
    }
}

/* Wrong shares are refused, but a share may be empty. */
static void wrong_shares_are_refused(void)
{
    struct arrays arrays;
    struct run_optimizer *optimizer = NULL;
    struct rules rules = plain;
    make_arrays(&arrays);
    share.meeting = NULL;
    share.world = 2;
    share.rank = 2;
    check_int(try_optimizer(&ways[0], &rules, &arrays, NULL, &optimizer), ==, -EINVAL);
    check_contains(core_err_message(), "rank 2 must be below the number of processes, 2");
    share.rank = 1;
    rules.clip = 1;
    check_int(try_optimizer(&ways[0], &rules, &arrays, NULL, &optimizer), ==, -EINVAL);
    check_contains(core_err_message(), "need the norm over all processes");
    rules.clip = 0;
    share.world = 1000;
    share.rank = 0;
    check_int(try_optimizer(&ways[0], &rules, &arrays, NULL, &optimizer), ==, -EINVAL);
    check_contains(core_err_message(), "would have no parameters");
    share.world = 2;
    optimizer = make_optimizer(&ways[0], &rules, &arrays);
    share.world = 0;
    struct run_optimizer_states states = {.updates = 7};
    uint64_t token = 0;
    unsigned absent = 0;
    while (absent < PARAMETERS && run_optimizer_share(optimizer, absent).count > 0) {
        absent++;
    }
    check_uint(absent, <, PARAMETERS);
    make_gradient(&arrays, absent, 0, 1);
    check_int(run_optimizer_weights_changed(optimizer, absent), ==, 0);
    check_int(run_optimizer_get_states(optimizer, absent, &states), ==, 0);
    check_uint(states.updates, ==, 0);
    check_int(run_optimizer_submit(optimizer, absent, arrays.gradients[absent], true, &token), ==,
              0);
    check_int(run_optimizer_submit(optimizer, absent, arrays.gradients[absent], true, &token), ==,
              -EALREADY);
    check_int(run_optimizer_poll(optimizer, token), ==, 1);
    check_int(run_optimizer_step(optimizer, &token), ==, 0);
    check_int(run_optimizer_wait(optimizer, token), ==, 0);
    check_int(run_optimizer_wait_weights(optimizer, absent), ==, 0);
    run_optimizer_destroy(optimizer);
    free_arrays(&arrays);
}

struct states {
    float *values[3];
    uint64_t updates;
};

static void get_states(struct run_optimizer *optimizer, unsigned p, struct states *states)
{
    struct run_optimizer_states found = {.updates = 0};
    for (int v = 0; v < 3; v++) {
        states->values[v] = calloc(forms[p].elements, sizeof(float));
        found.values[v] = states->values[v];
    }
    check_int(run_optimizer_get_states(optimizer, p, &found), ==, 0);
    states->updates = found.updates;
}

static void set_states(struct run_optimizer *optimizer, unsigned p, const struct states *states)
{
    struct run_optimizer_states wanted = {.updates = states->updates};
    memcpy(wanted.values, states->values, sizeof states->values);
    check_int(run_optimizer_set_states(optimizer, p, &wanted), ==, 0);
}

/* An optimizer that gets the states of another in fp32 continues with the bits of the other. */
static void states_are_carried(void)
{
    static const struct rules rules = {CORE_UPDATE_ADAMW, CORE_UPDATE_F32, 0, 1, false, false, 0};
    for (int back = 0; back < 2; back++) {
        struct arrays from;
        struct arrays to;
        struct states states[PARAMETERS];
        make_arrays(&from);
        make_arrays(&to);
        struct run_optimizer *one = make_optimizer(&ways[back], &rules, &from);
        struct run_optimizer *other = make_optimizer(&ways[back ? ON_DEVICE - 1 : 1], &rules, &to);
        steps_of(one, &from, &ways[0], 0, 2);
        uint64_t token = 0;
        make_gradient(&from, 5, 7, 1);
        check_int(run_optimizer_submit(one, 5, from.gradients[5], true, &token), ==, 0);
        struct run_optimizer_states busy = {.updates = 0};
        check_int(run_optimizer_get_states(one, 0, &busy), ==, -EBUSY);
        check_int(run_optimizer_set_states(one, 0, &busy), ==, -EBUSY);
        check_int(run_optimizer_step(one, &token), ==, 0);
        for (unsigned p = 0; p < PARAMETERS; p++) {
            get_states(one, p, &states[p]);
            check_uint(states[p].updates, ==, p == 5 ? 3 : 2);
            check_true(fabsf(states[p].values[ADAM_VALUE_M][forms[p].elements - 1]) > 0);
            set_states(other, p, &states[p]);
        }
        check_int(run_optimizer_wait_weights(other, RUN_OPTIMIZER_ALL), ==, 0);
        compare(&ways[1], &from, &to);
        steps_of(one, &from, &ways[2], 2, 3);
        steps_of(other, &to, &ways[WAYS - 1], 2, 3);
        compare(&ways[1], &from, &to);
        struct states now;
        get_states(other, 2, &now);
        memset(now.values[ADAM_VALUE_V], 0, forms[2].elements * sizeof(float));
        struct run_optimizer_states only = {.values = {[ADAM_VALUE_V] = now.values[ADAM_VALUE_V]},
                                            .updates = 9};
        check_int(run_optimizer_set_states(other, 2, &only), ==, 0);
        struct states then;
        get_states(other, 2, &then);
        check_uint(then.updates, ==, 9);
        for (int v = 0; v < 3; v++) {
            check_memory(then.values[v], now.values[v], forms[2].elements * sizeof(float));
            free(then.values[v]);
            free(now.values[v]);
        }
        for (unsigned p = 0; p < PARAMETERS; p++) {
            for (int v = 0; v < 3; v++) {
                free(states[p].values[v]);
            }
        }
        run_optimizer_destroy(one);
        run_optimizer_destroy(other);
        free_arrays(&from);
        free_arrays(&to);
    }
}

static void wrong_checkpoints_are_refused(void)
{
    struct arrays arrays;
    struct arrays others;
    char directory[600];
    uint64_t step = 0;
    snprintf(directory, sizeof directory, "%s/wrong", test_directory());
    make_arrays(&arrays);
    struct run_optimizer *optimizer = make_optimizer(&ways[0], &plain, &arrays);
    steps_of(optimizer, &arrays, &ways[0], 0, 1);
    check_int(run_optimizer_save(optimizer, directory, 1), ==, 0);
    run_optimizer_destroy(optimizer);
    for (int k = 0; k < 2; k++) { /* another size, then another type */
        forms[9].elements += k == 0;
        forms[9].weights = k == 0 ? CORE_UPDATE_F32 : CORE_UPDATE_FP16;
        make_arrays(&others);
        optimizer = make_optimizer(&ways[0], &plain, &others);
        check_int(load_from(optimizer, directory, &step), ==, -EINVAL);
        run_optimizer_destroy(optimizer);
        free_arrays(&others);
        forms[9].elements -= k == 0;
        forms[9].weights = CORE_UPDATE_F32;
    }
    free_arrays(&arrays);
}

/* Computes the hash of older versions, which aligned parameters to 256 elements. */
static uint64_t hash_of_aligned(const struct run_optimizer_parameter *parameters, size_t count)
{
    uint64_t hash = 0;
    for (size_t p = 0; p < count; p++) {
        const uint64_t numbers[] = {parameters[p].elements, (uint64_t)parameters[p].weights_type,
                                    hash};
        hash = core_hash(parameters[p].name, strlen(parameters[p].name),
                         core_hash(numbers, sizeof numbers, 0));
    }
    return hash;
}

/* Unless packing moves a parameter, the manifest has the hash of older versions, so that their
 * checkpoints can be loaded. */
static void older_checkpoints_fit_unless_a_parameter_moves(void)
{
    static const struct {
        uint64_t elements[3]; /* 0: no parameter */
        enum core_update_type moments;
        bool moves;
    } cases[] = {
        {{300}, CORE_UPDATE_F32, false},
        {{512, 256, 300}, CORE_UPDATE_F32, false},
        {{512, 300, 256}, CORE_UPDATE_F32, true},
        {{300, 256, 512}, CORE_UPDATE_F32, true},
        {{300, 600000, 0}, CORE_UPDATE_F32, false}, /* two blocks */
        {{512, 300, 256}, CORE_UPDATE_Q8, false},
    };
    static float weights[3][600000];
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        static const char *const names[] = {"a", "b", "c"};
        struct run_optimizer_parameter parameters[3];
        struct run_optimizer_options options = {.parameters = parameters,
                                                .groups = groups,
                                                .group_count = 1,
                                                .options = case_options(),
                                                .rates = case_rates()};
        struct run_optimizer *optimizer = NULL;
        char directory[600];
        char path[700];
        char expected[40];
        char text[8192];
        for (size_t p = 0; p < 3 && cases[c].elements[p] > 0; p++) {
            parameters[options.parameter_count++] = (struct run_optimizer_parameter){
                .name = names[p],
                .weights = weights[p],
                .elements = cases[c].elements[p],
                .weights_type = CORE_UPDATE_F32,
                .gradients_type = CORE_UPDATE_F32};
        }
        options.options.type = KERN_F32;
        options.options.moments = cases[c].moments;
        options.options.budgets = (struct plan_budgets){.host_bytes = UINT64_C(1) << 32};
        snprintf(directory, sizeof directory, "%s/packed %zu", test_directory(), c);
        check_int(run_optimizer_create(&options, &optimizer), ==, 0);
        check_int(run_optimizer_save(optimizer, directory, 0), ==, 0);
        run_optimizer_destroy(optimizer);
        snprintf(path, sizeof path, "%s/checkpoint-0/manifest.json", directory);
        FILE *file = fopen(path, "r");
        check_true(file != NULL);
        text[fread(text, 1, sizeof text - 1, file)] = 0;
        fclose(file);
        snprintf(expected, sizeof expected, "%016" PRIx64,
                 hash_of_aligned(parameters, options.parameter_count));
        if ((strstr(text, expected) == NULL) != cases[c].moves) {
            test_fail(__FILE__, __LINE__, "case %zu: expected %s hash %s in %s", c,
                      cases[c].moves ? "another than" : "the", expected, text);
        }
    }
}

TEST_MAIN({"weights_may_change", weights_may_change}, {"checkpoints_go_on", checkpoints_go_on},
          {"states_are_carried", states_are_carried}, {"states_are_shared", states_are_shared},
          {"wrong_shares_are_refused", wrong_shares_are_refused},
          {"wrong_checkpoints_are_refused", wrong_checkpoints_are_refused},
          {"older_checkpoints_fit_unless_a_parameter_moves",
           older_checkpoints_fit_unless_a_parameter_moves})
