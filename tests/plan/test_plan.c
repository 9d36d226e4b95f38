/* Proves plans: every legal interleaving of a tape reads what program order would have read, tiers
 * stay in their budgets, placement follows wishes and grows with memory, traffic is what the design
 * counts, predictions respect their bounds, refusals name what would do. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/base/rng.h"
#include "offload/plan/plan.h"
#include "offload/plan/print.h"
#include "offload/plan/sim.h"
#include "tests/harness/test.h"

enum { UNIT = 65536, LAYERS = 6, BLOCKS = LAYERS + 2 };

struct world {
    struct plan_block_shape shapes[BLOCKS];
    struct plan_input input;
};

/* A small model: an embedding, six layers of five units and a head, bf16 with the split master. */
static void world_init(struct world *world, bool tied, uint32_t micros)
{
    *world = (struct world){0};
    for (uint16_t b = 0; b < BLOCKS; b++) {
        struct plan_block_shape *shape = &world->shapes[b];
        bool layer = b > 0 && b + 1 < BLOCKS;
        *shape = (struct plan_block_shape){.elements = (layer ? 5 : 8) * UNIT,
                                           .out_bytes = b + 1 < BLOCKS ? 4096 : 0,
                                           .kept_bytes = layer ? 65536 : 0,
                                           .forward_bytes = 8192,
                                           .backward_bytes = 16384,
                                           .forward_flops = layer ? 2e9 : 1e8,
                                           .backward_flops = layer ? 4e9 : 2e8,
                                           .owner = b,
                                           .trained = true};
        if (b == 0 || b + 1 == BLOCKS) {
            snprintf(shape->name, sizeof shape->name, "%s", b == 0 ? "embedding" : "head");
        } else {
            snprintf(shape->name, sizeof shape->name, "layer.%d", (b - 1) % 100);
        }
    }
    if (tied) {
        world->shapes[BLOCKS - 1].owner = 0;
    }
    world->input = (struct plan_input){
        .blocks = world->shapes,
        .block_count = BLOCKS,
        .format =
            {.weight_bytes = 2, .master_bytes = 2, .m_bytes = 4, .v_bytes = 4, .grad_bytes = 2},
        .wishes = {.micro_batches = micros, .may_clip = true, .chunk_elements = 2 * UNIT},
        .budgets = {.device_bytes = UINT64_C(1) << 40,
                    .host_bytes = UINT64_C(1) << 40,
                    .store_bytes = UINT64_C(1) << 40},
        .rates = {.read_bytes = 2e9,
                  .write_bytes = 2e9,
                  .mixed_bytes = 2e9,
                  .up_bytes = 20e9,
                  .down_bytes = 20e9,
                  .flops = 1e12,
                  .update_elements = 1e9,
                  .sums_elements = 5e9,
                  .round_elements = 5e9,
                  .command_seconds = 2e-6}};
}

static uint64_t parameters(const struct world *world)
{
    uint64_t sum = 0;
    for (int b = 0; b < BLOCKS; b++) {
        sum += world->shapes[b].owner == b ? world->shapes[b].elements : 0;
    }
    return sum;
}

static struct plan *plan_of(const struct world *world)
{
    struct plan *plan = NULL;
    int rc = plan_create(&world->input, &plan);
    if (rc != 0) {
        test_fail(__FILE__, __LINE__, "no plan (%d): %s", rc, core_err_sentence());
    }
    return plan;
}

/* ---- interleavings ----
 * Memory is modelled as one version a segment: a buffer cut at every border that any operand has.
 * A write stores the number of the command; a read must find the number that program order gave. */

struct model {
    const struct plan *plan;
    const struct plan_tape *tapes[3];
    uint32_t tape_count;
    uint64_t **borders; /* a buffer: sorted */
    uint32_t *border_counts;
    uint32_t **versions;
};

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void model_init(struct model *model)
{
    uint32_t buffers = plan_buffer_count(model->plan);
    model->borders = calloc(buffers, sizeof *model->borders);
    model->versions = calloc(buffers, sizeof *model->versions);
    model->border_counts = calloc(buffers, sizeof *model->border_counts);
    for (uint32_t t = 0; t < model->tape_count; t++) {
        for (uint32_t i = 0; i < model->tapes[t]->count; i++) {
            const struct plan_command *command = &model->tapes[t]->commands[i];
            for (uint32_t o = 0; o < command->operand_count; o++) {
                const struct plan_operand *operand = &command->operands[o];
                uint32_t *count = &model->border_counts[operand->buffer];
                uint64_t **borders = &model->borders[operand->buffer];
                *borders = realloc(*borders, (*count + 2) * sizeof **borders);
                (*borders)[(*count)++] = operand->offset;
                (*borders)[(*count)++] = operand->offset + operand->bytes;
            }
        }
    }
    for (uint32_t b = 0; b < buffers; b++) {
        uint32_t kept = 0;
        if (model->border_counts[b] > 0) {
            qsort(model->borders[b], model->border_counts[b], sizeof(uint64_t), compare_u64);
        }
        for (uint32_t i = 0; i < model->border_counts[b]; i++) {
            if (kept == 0 || model->borders[b][i] != model->borders[b][kept - 1]) {
                model->borders[b][kept++] = model->borders[b][i];
            }
        }
        model->border_counts[b] = kept;
        model->versions[b] = calloc(kept + 1, sizeof(uint32_t));
    }
}

static void model_fini(struct model *model)
{
    for (uint32_t b = 0; b < plan_buffer_count(model->plan); b++) {
        free(model->borders[b]);
        free(model->versions[b]);
    }
    free(model->borders);
    free(model->versions);
    free(model->border_counts);
}

/* Runs a command on the model; returns a digest of the versions that it read. */
static uint64_t model_run(struct model *model, const struct plan_command *command, uint32_t number)
{
    uint64_t digest = 14695981039346656037u;
    for (int writes = 0; writes < 2; writes++) {
        for (uint32_t o = 0; o < command->operand_count; o++) {
            const struct plan_operand *operand = &command->operands[o];
            const uint64_t *borders = model->borders[operand->buffer];
            if ((operand->access & (writes ? PLAN_WRITES : PLAN_READS)) == 0) {
                continue;
            }
            for (uint32_t s = 0; s < model->border_counts[operand->buffer]; s++) {
                if (borders[s] < operand->offset ||
                    borders[s] >= operand->offset + operand->bytes) {
                    continue;
                }
                uint32_t *version = &model->versions[operand->buffer][s];
                digest = writes ? digest : (digest ^ *version) * 1099511628211u;
                *version = writes ? number : *version;
            }
        }
    }
    return digest;
}

struct runner {
    uint32_t tape[PLAN_Q_COUNT];
    uint32_t index[PLAN_Q_COUNT];
    uint32_t reached[3][PLAN_Q_COUNT];
    uint32_t left[3];
};

static bool runner_ready(const struct model *model, struct runner *runner, int q)
{
    while (runner->tape[q] < model->tape_count) {
        const struct plan_tape *tape = model->tapes[runner->tape[q]];
        while (runner->index[q] < tape->count && tape->commands[runner->index[q]].queue != q) {
            runner->index[q]++;
        }
        if (runner->index[q] < tape->count) {
            break;
        }
        runner->tape[q]++;
        runner->index[q] = 0;
    }
    uint32_t t = runner->tape[q];
    if (t >= model->tape_count || (t >= 2 && runner->left[t - 2] > 0)) {
        return false;
    }
    const struct plan_command *command = &model->tapes[t]->commands[runner->index[q]];
    for (int e = 0; e < PLAN_EDGE_MAX; e++) {
        struct plan_edge edge = command->edges[e];
        if (edge.queue == PLAN_Q_COUNT) {
            continue;
        }
        if (edge.count > 0 && runner->reached[t][edge.queue] < (uint32_t)edge.count) {
            return false;
        }
        if (edge.count <= 0 && t > 0 &&
            (int64_t)runner->reached[t - 1][edge.queue] <
                (int64_t)model->tapes[t - 1]->queue_count[edge.queue] + edge.count) {
            return false;
        }
    }
    return true;
}

static uint32_t first_number(const struct model *model, uint32_t tape)
{
    uint32_t number = 1;
    for (uint32_t t = 0; t < tape; t++) {
        number += model->tapes[t]->count;
    }
    return number;
}

/* Runs the tapes in an order drawn from the seed (0: program order) and fills one digest a command.
 * Queues are favoured by turns, so that some run far ahead and others lag. */
static void run_shuffled(struct model *model, uint64_t seed, uint64_t *digests)
{
    struct runner runner = {{0}, {0}, {{0}}, {0}};
    uint32_t total = first_number(model, model->tape_count) - 1;
    for (uint32_t b = 0; b < plan_buffer_count(model->plan); b++) {
        memset(model->versions[b], 0, (model->border_counts[b] + 1) * sizeof(uint32_t));
    }
    for (uint32_t t = 0; t < model->tape_count; t++) {
        runner.left[t] = model->tapes[t]->count;
    }
    uint32_t program_tape = 0;
    uint32_t program_index = 0;
    for (uint32_t done = 0; done < total; done++) {
        int chosen = -1;
        if (seed == 0) {
            while (program_index == model->tapes[program_tape]->count) {
                program_tape++;
                program_index = 0;
            }
            chosen = model->tapes[program_tape]->commands[program_index++].queue;
            check_true(runner_ready(model, &runner, chosen));
        } else {
            struct core_rng_words words = core_rng_philox(seed, done / 16, 0);
            struct core_rng_words turn = core_rng_philox(seed, done, 1);
            uint32_t favoured = words.word[0];
            uint32_t best = 0;
            for (int q = 0; q < PLAN_Q_COUNT; q++) {
                if (runner_ready(model, &runner, q)) {
                    uint32_t weight = (favoured >> q & 1) * 1000 + turn.word[q % 4] % 997 + 1;
                    chosen = weight > best ? q : chosen;
                    best = weight > best ? weight : best;
                }
            }
        }
        if (chosen < 0) {
            test_fail(__FILE__, __LINE__, "seed %" PRIu64 ": nothing can run after %u of %u", seed,
                      done, total);
        }
        uint32_t t = runner.tape[chosen];
        uint32_t i = runner.index[chosen]++;
        uint32_t number = first_number(model, t) + i;
        digests[number] = model_run(model, &model->tapes[t]->commands[i], number);
        runner.reached[t][chosen]++;
        runner.left[t]--;
    }
}

static void check_interleavings(const struct plan *plan, const enum plan_kind *kinds, int seeds)
{
    struct model model = {.plan = plan, .tape_count = 3};
    enum plan_kind before = PLAN_KIND_COUNT;
    for (uint32_t t = 0; t < 3; t++) {
        model.tapes[t] = plan_tape(plan, before, kinds[t]);
        check_true(model.tapes[t] != NULL);
        before = kinds[t];
    }
    model_init(&model);
    uint32_t total = first_number(&model, 3);
    uint64_t *expected = calloc(total, sizeof *expected);
    uint64_t *got = calloc(total, sizeof *got);
    run_shuffled(&model, 0, expected);
    for (int seed = 1; seed <= seeds; seed++) {
        run_shuffled(&model, (uint64_t)seed, got);
        for (uint32_t n = 1; n < total; n++) {
            if (got[n] != expected[n]) {
                test_fail(__FILE__, __LINE__, "seed %d: command %u read something else", seed, n);
            }
        }
    }
    free(expected);
    free(got);
    model_fini(&model);
}

/* Every policy of activations, both orders, both timings, tied and untied, with and without the
 * CPU device's shortcuts: no interleaving that the edges allow reads a stale or early byte. */
static void edges_are_sufficient(void)
{
    for (int variant = 0; variant < 32; variant++) {
        struct world world;
        world_init(&world, variant & 1, variant & 2 ? 3 : 1);
        struct plan_wishes *wishes = &world.input.wishes;
        wishes->acts = (enum plan_acts)(PLAN_ACTS_KEEP + variant / 8);
        wishes->order = variant & 2 && variant & 4 ? PLAN_ORDER_MICRO : PLAN_ORDER_LAYER;
        bool inside = (variant / 4 + variant / 8) % 2 == 1;
        wishes->may_clip = !inside;
        wishes->timing = inside ? PLAN_TIMING_INSIDE : PLAN_TIMING_DEFERRED;
        wishes->weights = variant % 3 == 0 ? PLAN_WHERE_HOST : PLAN_WHERE_STORE;
        wishes->states = variant % 5 == 0 ? PLAN_WHERE_HOST : PLAN_WHERE_STORE;
        wishes->weight_slots = 2 + (uint32_t)variant % 3;
        wishes->state_slots = 1 + (uint32_t)variant % 4;
        world.input.budgets.device_is_host = variant & 4;
        struct plan *plan = plan_of(&world);
        const enum plan_kind deferred[] = {PLAN_FIRST, PLAN_NEXT, PLAN_NEXT};
        const enum plan_kind plain[] = {PLAN_FIRST, PLAN_FIRST, PLAN_FIRST};
        const enum plan_kind drained[] = {PLAN_FIRST, PLAN_DRAIN, PLAN_EVAL};
        const enum plan_kind evaluated[] = {PLAN_FIRST, PLAN_EVAL, PLAN_FIRST};
        int seeds = TEST_COUNT(40, 4);
        check_interleavings(plan, inside ? plain : deferred, seeds);
        check_interleavings(plan, inside ? evaluated : drained, seeds);
        plan_destroy(plan);
    }
}

/* A check of the check: with an edge taken out, some interleaving goes wrong. */
static void missing_edges_are_noticed(void)
{
    struct world world;
    world_init(&world, false, 1);
    world.input.wishes.weights = PLAN_WHERE_STORE;
    world.input.wishes.states = PLAN_WHERE_STORE;
    struct plan *plan = plan_of(&world);
    struct model model = {.plan = plan, .tape_count = 1};
    const struct plan_tape *whole = plan_tape(plan, PLAN_NEXT, PLAN_NEXT);
    struct plan_tape cut = *whole;
    cut.commands = malloc(whole->count * sizeof *cut.commands);
    model.tapes[0] = &cut;
    memcpy(cut.commands, whole->commands, whole->count * sizeof *cut.commands);
    model_init(&model);
    uint64_t *expected = calloc(whole->count + 1, sizeof *expected);
    uint64_t *got = calloc(whole->count + 1, sizeof *got);
    run_shuffled(&model, 0, expected);
    int edges = 0;
    int noticed = 0;
    for (uint32_t i = 0; i < whole->count; i += 7) {
        for (int e = 0; e < PLAN_EDGE_MAX; e++) {
            if (whole->commands[i].edges[e].queue == PLAN_Q_COUNT ||
                whole->commands[i].edges[e].count <= 0) {
                continue;
            }
            edges++;
            cut.commands[i].edges[e].queue = PLAN_Q_COUNT;
            bool wrong = false;
            for (uint64_t seed = 1; seed <= 60 && !wrong; seed++) {
                run_shuffled(&model, seed, got);
                wrong = memcmp(got, expected, (whole->count + 1) * sizeof *got) != 0;
            }
            noticed += wrong;
            cut.commands[i] = whole->commands[i];
        }
    }
    test_note("%d of %d edges were missed when they were gone", noticed, edges);
    check_int(edges, >, 20);
    check_int(noticed, >=, edges * 8 / 10);
    free(expected);
    free(got);
    model_fini(&model);
    free(cut.commands);
    plan_destroy(plan);
}

/* ---- placement, bytes, time ---- */

/* No two buffers of a tier overlap, and the last ends where the tier's bytes end. */
static void buffers_do_not_overlap(void)
{
    struct world world;
    world_init(&world, true, 2);
    struct plan *plan = plan_of(&world);
    uint64_t ends[PLAN_TIER_COUNT] = {0};
    for (uint32_t i = 0; i < plan_buffer_count(plan); i++) {
        const struct plan_buffer *buffer = plan_buffer(plan, i);
        check_int(buffer->offset, >=, ends[buffer->tier]);
        check_int(buffer->offset % 4096, ==, 0);
        ends[buffer->tier] = buffer->offset + buffer->bytes;
    }
    for (int t = 0; t < PLAN_TIER_COUNT; t++) {
        check_int(ends[t], <=, plan_tier_bytes(plan, (enum plan_tier)t));
    }
    plan_destroy(plan);
}

/* The bytes that DESIGN section 5 counts: everything on the drive with gradients in HOST, deferred:
 * 14 read and 12 written a parameter less what a slot still holds. */
static void traffic_is_what_the_design_counts(void)
{
    struct world world;
    world_init(&world, false, 1);
    world.input.wishes.weights = PLAN_WHERE_STORE;
    world.input.wishes.states = PLAN_WHERE_STORE;
    world.input.wishes.acts = PLAN_ACTS_RECOMPUTE;
    world.input.wishes.weight_slots = 2;
    struct plan *plan = plan_of(&world);
    const struct plan_prediction *predicted = plan_predicted(plan);
    uint64_t held = 2 * (world.shapes[BLOCKS - 1].elements + world.shapes[BLOCKS - 2].elements);
    check_int(predicted->store_write_bytes, ==, 12 * parameters(&world));
    check_int(predicted->store_read_bytes, ==, 14 * parameters(&world) - held);
    check_int(predicted->down_bytes, ==, 2 * parameters(&world));
    check_int(predicted->up_bytes, ==, 4 * parameters(&world) - held);
    plan_destroy(plan);
    world.input.wishes.weights = PLAN_WHERE_HOST;
    plan = plan_of(&world);
    predicted = plan_predicted(plan);
    check_int(predicted->store_write_bytes, ==, 10 * parameters(&world));
    check_int(predicted->store_read_bytes, ==, 10 * parameters(&world));
    plan_destroy(plan);
    world.input.wishes.states = PLAN_WHERE_HOST;
    plan = plan_of(&world);
    check_int(plan_predicted(plan)->store_write_bytes, ==, 0);
    check_int(plan_predicted(plan)->store_read_bytes, ==, 0);
    plan_destroy(plan);
}

/* More HOST memory never makes the predicted step slower, and traffic falls to nothing. */
static void time_falls_with_memory(void)
{
    struct world world;
    world_init(&world, false, 1);
    world.input.budgets.device_bytes = 24 << 20;
    double last = 1e9;
    uint64_t traffic = 0;
    int placements = 0;
    for (uint64_t mib = 8; mib <= 64; mib += 4) {
        world.input.budgets.host_bytes = mib << 20;
        struct plan *plan = NULL;
        int rc = plan_create(&world.input, &plan);
        if (rc == -EFBIG) {
            continue;
        }
        check_int(rc, ==, 0);
        const struct plan_prediction *predicted = plan_predicted(plan);
        check_double(predicted->step_seconds, <=, last * 1.02);
        check_int(plan_tier_bytes(plan, PLAN_HOST), <=, world.input.budgets.host_bytes);
        check_int(plan_tier_bytes(plan, PLAN_DEVICE), <=, world.input.budgets.device_bytes);
        last = predicted->step_seconds;
        traffic = predicted->store_read_bytes;
        placements++;
        plan_destroy(plan);
    }
    check_int(placements, >, 8);
    check_int(traffic, ==, 0);
}

/* A step takes at least as long as each resource is busy alone, and is near the largest of them. */
static void prediction_keeps_its_bounds(void)
{
    for (int clip = 0; clip < 2; clip++) {
        struct world world;
        world_init(&world, false, 1);
        world.input.wishes.may_clip = clip;
        world.input.rates.flops = 8e12;
        world.input.wishes.weights = PLAN_WHERE_STORE;
        world.input.wishes.states = PLAN_WHERE_STORE;
        struct plan *plan = plan_of(&world);
        const struct plan_prediction *predicted = plan_predicted(plan);
        double drive = (double)(predicted->store_read_bytes + predicted->store_write_bytes) /
                       world.input.rates.mixed_bytes;
        check_double(predicted->step_seconds, >=, drive * 0.999);
        for (int r = 0; r < PLAN_R_COUNT; r++) {
            check_double(predicted->step_seconds * 1.0001, >=, predicted->resource_seconds[r]);
        }
        check_int(predicted->bottleneck, ==, PLAN_R_DRIVE);
        test_note("%s: step %.4f s, drive alone %.4f s", plan_timing_name(plan_chosen_timing(plan)),
                  predicted->step_seconds, drive);
        check_true(!clip || plan_chosen_timing(plan) == PLAN_TIMING_DEFERRED);
        check_double(predicted->step_seconds, <=, drive * (clip ? 1.25 : 1.1));
        plan_destroy(plan);
    }
}

/* The simulator on hand-made cases: a chain, two readers that share a drive, a reader beside a
 * writer, and a deadlock. */
static void simulator_shares_resources(void)
{
    struct plan_rates rates = {.read_bytes = 100,
                               .write_bytes = 50,
                               .mixed_bytes = 80,
                               .up_bytes = 10,
                               .down_bytes = 10,
                               .flops = 1,
                               .update_elements = 1,
                               .sums_elements = 1,
                               .round_elements = 1};
    struct plan_command commands[2] = {
        {.op = PLAN_READ, .queue = PLAN_Q_READ_WEIGHT, .bytes = 100, .place = 1},
        {.op = PLAN_READ, .queue = PLAN_Q_READ_STATE, .bytes = 200, .place = 1}};
    for (int i = 0; i < 2; i++) {
        for (int e = 0; e < PLAN_EDGE_MAX; e++) {
            commands[i].edges[e].queue = PLAN_Q_COUNT;
        }
    }
    struct plan_tape tape = {.commands = commands, .count = 2};
    tape.queue_count[PLAN_Q_READ_WEIGHT] = tape.queue_count[PLAN_Q_READ_STATE] = 1;
    const struct plan_tape *tapes[] = {&tape};
    struct plan_time times[2];
    struct plan_time *const times_of[] = {times};
    double end = 0;
    check_int(plan_sim_run(&rates, false, tapes, 1, times_of, &end), ==, 0);
    check_double(fabs(times[0].end_seconds - 2), <, 1e-9); /* half speed until it is done */
    check_double(fabs(end - 3), <, 1e-9);
    commands[1].edges[0] = (struct plan_edge){.count = 1, .queue = PLAN_Q_READ_WEIGHT};
    check_int(plan_sim_run(&rates, false, tapes, 1, times_of, &end), ==, 0);
    check_double(fabs(times[0].end_seconds - 1), <, 1e-9);
    check_double(fabs(times[1].begin_seconds - 1), <, 1e-9);
    check_double(fabs(end - 3), <, 1e-9);
    commands[1] = commands[0];
    commands[1].op = PLAN_WRITE;
    commands[1].queue = PLAN_Q_WRITE_STATE;
    tape.queue_count[PLAN_Q_READ_STATE] = 0;
    tape.queue_count[PLAN_Q_WRITE_STATE] = 1;
    check_int(plan_sim_run(&rates, false, tapes, 1, times_of, &end), ==, 0);
    check_double(fabs(end - 2.5), <, 1e-9); /* both at 40 a second, to 100 */
    check_double(plan_sim_alone(&rates, &commands[1]), ==, 2);
    commands[0].edges[0] = (struct plan_edge){.count = 1, .queue = PLAN_Q_WRITE_STATE};
    commands[1].edges[0] = (struct plan_edge){.count = 1, .queue = PLAN_Q_READ_WEIGHT};
    check_int(plan_sim_run(&rates, false, tapes, 1, times_of, &end), ==, -EDEADLK);
    struct plan_prediction predicted;
    check_int(plan_sim_predict(&rates, false, &tape, &tape, &predicted), ==, -EDEADLK);
}

/* A refusal names budgets with which it then does fit. */
static void refusal_names_what_would_do(void)
{
    struct world world;
    world_init(&world, false, 2);
    world.input.budgets.device_bytes = 1 << 20;
    world.input.budgets.host_bytes = 1 << 20;
    struct plan *plan = NULL;
    check_int(plan_create(&world.input, &plan), ==, -EFBIG);
    uint64_t device = 0;
    uint64_t host = 0;
    uint64_t store = 0;
    check_int(sscanf(core_err_sentence(),
                     "it cannot fit: the least it needs is device %" SCNu64 ", host %" SCNu64
                     ", store %" SCNu64,
                     &device, &host, &store),
              ==, 3);
    world.input.budgets.device_bytes = device;
    world.input.budgets.host_bytes = host;
    world.input.budgets.store_bytes = store;
    plan = plan_of(&world);
    check_int(plan_tier_bytes(plan, PLAN_HOST), ==, host);
    plan_destroy(plan);
    world.input.budgets.host_bytes--;
    check_int(plan_create(&world.input, &plan), ==, -EFBIG);
}

static void bad_input_is_refused(void)
{
    struct world world;
    struct plan *plan = NULL;
    world_init(&world, false, 0);
    check_int(plan_create(&world.input, &plan), ==, -EINVAL);
    check_contains(core_err_sentence(), "at least one micro-batch");
    world_init(&world, false, 1);
    world.input.wishes.timing = PLAN_TIMING_INSIDE;
    check_int(plan_create(&world.input, &plan), ==, -EINVAL);
    check_contains(core_err_sentence(), "clipped");
    world_init(&world, false, 1);
    world.input.wishes.weight_slots = 1;
    check_int(plan_create(&world.input, &plan), ==, -EINVAL);
    world_init(&world, false, 1);
    world.input.wishes.chunk_elements = 1000;
    check_int(plan_create(&world.input, &plan), ==, -EINVAL);
    check_contains(core_err_sentence(), "multiple of 65536");
    world_init(&world, false, 1);
    world.input.wishes.states = PLAN_WHERE_STORE;
    world.input.budgets.store_bytes = 0;
    check_int(plan_create(&world.input, &plan), ==, -EINVAL);
    world_init(&world, false, 1);
    world.shapes[3].owner = 5;
    check_int(plan_create(&world.input, &plan), ==, -EINVAL);
    check_contains(core_err_sentence(), "layer.2");
    world_init(&world, false, 1);
    world.input.wishes.states = PLAN_WHERE_DEVICE;
    check_int(plan_create(&world.input, &plan), ==, -EINVAL);
    plan_destroy(NULL);
}

/* Without a store everything lies in memory, and nothing is read or written. */
static void no_store_is_needed(void)
{
    struct world world;
    world_init(&world, false, 1);
    world.input.budgets.store_bytes = 0;
    struct plan *plan = plan_of(&world);
    check_int(plan_tier_bytes(plan, PLAN_STORE), ==, 0);
    check_int(plan_predicted(plan)->store_read_bytes, ==, 0);
    for (uint32_t b = 0; b < BLOCKS; b++) {
        check_true(plan_block_place(plan, b)->weights != PLAN_STORE);
        check_int(plan_block_place(plan, b)->resident_chunks, ==,
                  plan_block_place(plan, b)->chunk_count);
    }
    plan_destroy(plan);
}

static void take_line(void *user, const char *text)
{
    uint32_t *lines = user;
    if (*lines == 0) {
        check_contains(text, "read-state");
    }
    ++*lines;
}

/* One line as it stands for the reader, and as many lines as commands. */
static void tapes_print(void)
{
    struct world world;
    world_init(&world, false, 1);
    world.input.wishes.weights = PLAN_WHERE_STORE;
    world.input.wishes.states = PLAN_WHERE_STORE;
    world.input.wishes.weight_slots = 2;
    world.input.wishes.state_slots = 2;
    world.input.wishes.acts = PLAN_ACTS_RECOMPUTE;
    struct plan *plan = plan_of(&world);
    const struct plan_tape *tape = plan_tape(plan, PLAN_NEXT, PLAN_NEXT);
    char text[512];
    plan_print_command(&world.input, plan, &tape->commands[1], text, sizeof text);
    check_string(text, "update         1  UPDATE embedding chunk 0 reads host:g(embedding) "
                       "host:norm changes host:sslot[0] after read-state 1");
    uint32_t lines = 0;
    plan_print_tape(&world.input, plan, tape, take_line, &lines);
    check_int(lines, ==, tape->count);
    check_int(plan_chunk_elements(plan), ==, 2 * UNIT);
    check_int(plan_chosen_acts(plan), ==, PLAN_ACTS_RECOMPUTE);
    check_string(plan_acts_name(plan_chosen_acts(plan)), "recompute");
    check_string(plan_order_name(plan_chosen_order(plan)), "layer-major");
    check_string(plan_resource_name(PLAN_R_DRIVE), "drive");
    plan_destroy(plan);
}

TEST_MAIN({"edges_are_sufficient", edges_are_sufficient},
          {"missing_edges_are_noticed", missing_edges_are_noticed},
          {"buffers_do_not_overlap", buffers_do_not_overlap},
          {"traffic_is_what_the_design_counts", traffic_is_what_the_design_counts},
          {"time_falls_with_memory", time_falls_with_memory},
          {"prediction_keeps_its_bounds", prediction_keeps_its_bounds},
          {"simulator_shares_resources", simulator_shares_resources},
          {"refusal_names_what_would_do", refusal_names_what_would_do},
          {"bad_input_is_refused", bad_input_is_refused},
          {"no_store_is_needed", no_store_is_needed}, {"tapes_print", tapes_print})
