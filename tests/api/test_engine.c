/* test_engine.c: an engine as an application uses it. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/json/json.h"
#include "tests/api/world.h"
#include "tests/harness/child.h"

static struct world world;

static void waits_have_names(void)
{
    static const char *const names[] = {
        [TIDE_WAIT_STORE_READ] = "store_read", [TIDE_WAIT_STORE_WRITE] = "store_write",
        [TIDE_WAIT_UPDATE] = "update",         [TIDE_WAIT_COPY] = "copy",
        [TIDE_WAIT_IMBALANCE] = "imbalance",   [TIDE_WAIT_OTHER] = "other"};
    const unsigned count = (unsigned)(sizeof names / sizeof names[0]);
    struct tide_engine_wait wait = {.struct_bytes = sizeof wait};
    world_init(&world);
    struct tide_engine *engine = world_engine(&world.options);
    (void)world_steps(&world, engine, 1);
    for (unsigned i = 0; i < count; i++) {
        check_int(tide_engine_wait_at(engine, i, &wait), ==, 0);
        check_string(wait.name, names[i]);
        check_true(wait.compute_seconds >= 0 && wait.update_seconds >= 0);
    }
    check_int(tide_engine_wait_at(engine, count, &wait), ==, -ENOENT);
    tide_engine_destroy(engine);
}

/* The limits are wide, because a drive may read before a step and write after it. */
static void drives_are_counted(void)
{
    struct tide_engine_drive drive = {.struct_bytes = sizeof drive};
    uint64_t written = 0;
    world_init(&world);
    struct tide_engine *engine = world_engine(&world.options);
    check_int(tide_engine_drive_at(engine, 0, &drive), ==, 0);
    check_string(drive.directory, world.store);
    check_uint(drive.read_bytes + drive.write_bytes, ==, 0);
    for (unsigned step = 0; step < 3; step++) {
        const struct tide_step made = world_steps(&world, engine, 1);
        check_int(tide_engine_drive_at(engine, 0, &drive), ==, 0);
        check_true(drive.read_bytes >= made.store_read_bytes / 2);
        written += made.store_write_bytes;
        check_true(step == 0 || drive.write_bytes > 0);
        check_uint(drive.write_bytes, <=, written + (UINT64_C(64) << 20));
    }
    check_int(tide_engine_drive_at(engine, 1, &drive), ==, -ENOENT);
    tide_engine_destroy(engine);
}

/* ---- refusals ---- */

static void refuse_batch(struct tide_engine *engine, const struct tide_batch *batch, int code,
                         const char *word)
{
    struct tide_step step = {.struct_bytes = sizeof step};
    struct tide_evaluation evaluation = {.struct_bytes = sizeof evaluation};
    int rc = tide_engine_step(engine, batch, 1, 1e-3, &step);
    if (rc != code || strstr(tide_last_error(), word) == NULL) {
        test_fail(__FILE__, __LINE__, "%s: step: %d: %s", word, rc, tide_last_error());
    }
    rc = tide_engine_evaluate(engine, batch, &evaluation);
    if (rc != code || strstr(tide_last_error(), word) == NULL) {
        test_fail(__FILE__, __LINE__, "%s: evaluate: %d: %s", word, rc, tide_last_error());
    }
    check_uint(step.step, ==, 0);
}

static void refuse_batches(struct tide_engine *engine)
{
    enum { TOKENS = WORLD_ROWS * WORLD_LENGTH };
    const struct tide_batch good = world.batch;
    struct tide_batch bad = good;
    int32_t other[TOKENS];
    memcpy(other, world.ids, sizeof other);
    other[17] = WORLD_VOCAB;
    bad.labels = other;
    refuse_batch(engine, &bad, -EINVAL, "labels: 601 at index 1 of row 1");
    other[17] = -101;
    refuse_batch(engine, &bad, -EINVAL, "labels: -101");
    bad = good;
    bad.ids = other;
    refuse_batch(engine, &bad, -EINVAL, "input_ids: token -101 at index 1 of row 1");
    bad = good;
    for (int i = 0; i < TOKENS; i++) {
        other[i] = i % WORLD_LENGTH;
    }
    other[3] = WORLD_LENGTH;
    bad.positions = other;
    refuse_batch(engine, &bad, -EINVAL, "token 3 of row 0 has position 16");
    other[3] = -1;
    refuse_batch(engine, &bad, -EINVAL, "position -1 at index 3");
    bad = good;
    bad.starts = other;
    refuse_batch(engine, &bad, -EINVAL, "the document at index 3 of row 0 cannot begin at -1");
    bad = good;
    bad.length = WORLD_LENGTH + 1;
    refuse_batch(engine, &bad, -EINVAL, "does not fit into 2 rows of 16");
    bad = good;
    bad.rows = WORLD_ROWS + 1;
    refuse_batch(engine, &bad, -EINVAL, "does not fit into 2 rows of 16");
    bad.rows = 0;
    refuse_batch(engine, &bad, -EINVAL, "0 rows");
    bad = good;
    bad.length = 0;
    refuse_batch(engine, &bad, -EINVAL, "a micro-batch of 2 rows of 0 tokens");
    bad = good;
    bad.ids = NULL;
    refuse_batch(engine, &bad, -EINVAL, "without ids");
    bad = good;
    bad.struct_bytes = 3;
    refuse_batch(engine, &bad, -EINVAL, "struct tide_batch is 3");
}

/* Invalid batches, counts, rates and structs are refused, and train nothing. */
static void refusals_do_no_harm(void)
{
    world_init(&world);
    struct tide_engine *engine = world_engine(&world.options);
    const struct tide_step first = world_steps(&world, engine, 1);
    const struct tide_step second = world_steps(&world, engine, 1);
    tide_engine_destroy(engine);

    struct tide_step step = {.struct_bytes = sizeof step};
    struct tide_evaluation evaluation = {.struct_bytes = 0};
    const struct tide_batch two[] = {world.batch, world.batch};
    engine = world_engine(&world.options);
    refuse_batches(engine);
    check_int(tide_engine_step(engine, two, 2, 1e-3, &step), ==, -EINVAL);
    check_contains(tide_last_error(), "2 micro-batches; a step takes 1 to 1");
    check_int(tide_engine_step(engine, two, 0, 1e-3, &step), ==, -EINVAL);
    check_int(tide_engine_step(engine, NULL, 1, 1e-3, &step), ==, -EINVAL);
    check_contains(tide_last_error(), "the array of micro-batches is NULL");
    check_int(tide_engine_step(engine, two, 1, (double)NAN, &step), ==, -EINVAL);
    check_contains(tide_last_error(), "learning rate");
    check_int(tide_engine_step(engine, two, 1, -1, &step), ==, -EINVAL);
    check_int(tide_engine_step(engine, two, 1, 1e-3, NULL), ==, -EINVAL);
    check_int(tide_engine_evaluate(engine, two, &evaluation), ==, -EINVAL);
    step.struct_bytes = 1;
    check_int(tide_engine_step(engine, two, 1, 1e-3, &step), ==, -EINVAL);
    check_contains(tide_last_error(), "tide_step");
    const struct tide_step one = world_steps(&world, engine, 1);
    refuse_batches(engine);
    const struct tide_step other = world_steps(&world, engine, 1);
    check_uint(one.step, ==, 1);
    check_uint(other.step, ==, 2);
    check_double(one.loss, ==, first.loss);
    check_double(other.loss, ==, second.loss);
    check_double(other.grad_norm, ==, second.grad_norm);
    tide_engine_destroy(engine);
}

/* ---- evaluation ---- */

/* An evaluation changes nothing and agrees with the loss of the next step. */
static void evaluation_changes_nothing(void)
{
    world_init(&world);
    struct tide_engine *engine = world_engine(&world.options);
    const struct tide_step plain = world_steps(&world, engine, 3);
    tide_engine_destroy(engine);
    engine = world_engine(&world.options);
    struct tide_step step = {.struct_bytes = sizeof step};
    for (int s = 0; s < 3; s++) {
        struct tide_evaluation before = {.struct_bytes = sizeof before};
        struct tide_evaluation again = {.struct_bytes = sizeof again};
        check_int(tide_engine_evaluate(engine, &world.batch, &before), ==, 0);
        check_int(tide_engine_evaluate(engine, &world.batch, &again), ==, 0);
        step = world_steps(&world, engine, 1);
        check_uint(before.targets, ==, WORLD_ROWS * (WORLD_LENGTH - 1));
        check_double(before.loss_sum, ==, again.loss_sum);
        check_double(fabs(before.loss_sum / (double)before.targets - step.loss), <, 1e-5);
    }
    check_double(step.loss, ==, plain.loss);
    check_double(step.grad_norm, ==, plain.grad_norm);
    struct tide_batch less = world.batch;
    struct tide_evaluation evaluation = {.struct_bytes = sizeof evaluation};
    less.rows = 1;
    less.length = 5;
    check_int(tide_engine_evaluate(engine, &less, &evaluation), ==, 0);
    check_uint(evaluation.targets, ==, 4);
    check_true(evaluation.loss_sum > 4 && evaluation.loss_sum < 40);
    tide_engine_destroy(engine);
}

/* ---- pairs ---- */

static void refuse_options(const struct tide_engine_options *options, int code, const char *word)
{
    struct tide_engine *engine = NULL;
    const int rc = tide_engine_create(NULL, options, &engine);
    if (rc != code || strstr(tide_last_error(), word) == NULL) {
        test_fail(__FILE__, __LINE__, "%s: %d: %s", word, rc, tide_last_error());
    }
}

static void refuse_loss(void)
{
    const char *const saved[] = {"lm_head"};
    struct tide_engine_options options = world.options;
    options.dpo_beta = 0.1;
    refuse_options(&options, -EINVAL, "dpo_beta (--beta) needs");
    options.loss = TIDE_LOSS_DPO + 1;
    refuse_options(&options, -EINVAL, "loss is 2; expected 0 to 1");
    options.loss = TIDE_LOSS_DPO;
    refuse_options(&options, -EINVAL, "give lora_rank (--lora R)");
    options.lora_rank = 2;
    options.modules_to_save = saved;
    options.modules_to_save_count = 1;
    refuse_options(&options, -ENOTSUP, "--modules-to-save");
}

/* After training, the chosen row has a higher reward than the rejected row. */
static void pairs(void)
{
    int32_t labels[WORLD_ROWS * WORLD_LENGTH];
    world_init(&world);
    refuse_loss();
    world.options.loss = TIDE_LOSS_DPO;
    world.options.lora_rank = 2;
    world.options.batch = WORLD_ROWS / 2;
    struct tide_engine *engine = world_engine(&world.options);
    struct tide_evaluation evaluation = {.struct_bytes = sizeof evaluation};
    struct tide_step step = world_steps(&world, engine, 1);
    check_double(fabs(step.loss - log(2)), <, 1e-12);
    check_true(step.reward_chosen == 0 && step.reward_rejected == 0 && step.reward_accuracy == 0);
    check_uint(step.targets, ==, WORLD_ROWS / 2);
    (void)world_steps(&world, engine, 9);
    check_int(tide_engine_evaluate(engine, &world.batch, &evaluation), ==, 0);
    step = world_steps(&world, engine, 1);
    check_true(step.loss < log(2) && step.reward_chosen > step.reward_rejected);
    check_double(step.reward_accuracy, ==, 1);
    check_double(evaluation.loss_sum, ==, step.loss);
    check_double(evaluation.reward_chosen_sum, ==, step.reward_chosen);
    check_double(evaluation.reward_rejected_sum, ==, step.reward_rejected);
    check_uint(evaluation.reward_right, ==, 1);
    struct tide_batch odd = world.batch;
    odd.rows = 1;
    refuse_batch(engine, &odd, -EINVAL, "needs two for each pair");
    odd = world.batch;
    odd.labels = labels;
    for (int i = 0; i < WORLD_ROWS * WORLD_LENGTH; i++) {
        labels[i] = i < WORLD_LENGTH ? world.ids[i] : -100;
    }
    check_int(tide_engine_evaluate(engine, &odd, &evaluation), ==, 0);
    check_uint(evaluation.targets, ==, 0);
    check_true(evaluation.loss_sum == 0 && evaluation.reward_chosen_sum == 0);
    tide_engine_destroy(engine);
}

/* The common beginning of a pair's rows counts once in the pair's length; pairs longer than
 * pair_length are refused. */
static void long_pairs(void)
{
    enum { PROMPT = 4 };
    int32_t ids[WORLD_ROWS * WORLD_LENGTH];
    int32_t labels[WORLD_ROWS * WORLD_LENGTH];
    uint32_t length = 0;
    world_init(&world);
    struct tide_batch batch = world.batch;
    batch.ids = ids;
    batch.labels = labels;
    for (int t = 0; t < 2 * WORLD_LENGTH; t++) {
        const int at = t % WORLD_LENGTH;
        const bool padding = at == WORLD_LENGTH - 1;
        ids[t] = world.ids[at < PROMPT ? at : t];
        labels[t] = at < PROMPT || padding ? -100 : ids[t];
    }
    ids[WORLD_LENGTH + PROMPT] = (ids[PROMPT] + 1) % 64;
    labels[WORLD_LENGTH + PROMPT] = ids[WORLD_LENGTH + PROMPT];
    batch.rows = 2;
    check_int(tide_pair_length(&batch, &length), ==, 0);
    /* Both answers need the prompt's last token. */
    check_uint(length, ==, 2 * (WORLD_LENGTH - 2) - (PROMPT - 1));
    world.options.pair_length = length;
    refuse_options(&world.options, -EINVAL, "pair_length needs the loss of pairs");
    world.options.loss = TIDE_LOSS_DPO;
    world.options.lora_rank = 2;
    world.options.batch = 1;
    struct tide_step step = {.struct_bytes = sizeof step};
    struct tide_engine *engine = world_engine(&world.options);
    check_int(tide_engine_step(engine, &batch, 1, 1e-3, &step), ==, 0);
    check_uint(step.targets, ==, 1);
    check_double(fabs(step.loss - log(2)), <, 1e-12);
    tide_engine_destroy(engine);
    world.options.pair_length = WORLD_LENGTH;
    engine = world_engine(&world.options);
    refuse_batch(engine, &batch, -EINVAL, "of which 3 are of both rows; pair_length is ");
    labels[WORLD_LENGTH + PROMPT] = -100;
    batch.positions = ids;
    refuse_batch(engine, &batch, -EINVAL, "neither positions nor starts");
    tide_engine_destroy(engine);
    batch.rows = 1;
    check_int(tide_pair_length(&batch, &length), ==, -EINVAL);
    check_contains(tide_last_error(), "pairs need an even number of rows; found 1");
    check_int(tide_pair_length(&world.batch, NULL), ==, -EINVAL);
    check_contains(tide_last_error(), "the output parameter of the length is NULL");
    batch.ids = NULL;
    check_int(tide_pair_length(&batch, &length), ==, -EINVAL);
    check_contains(tide_last_error(), "a micro-batch of 1 rows");
    check_int(tide_pair_length(NULL, &length), ==, -EINVAL);
}

/* The model predicts the next tokens of a row that it has memorized. */
static void what_comes_next(void)
{
    int32_t next = -1;
    world_init(&world);
    struct tide_engine *engine = world_engine(&world.options);
    struct tide_step step = {.struct_bytes = sizeof step, .loss = 9};
    for (int s = 0; s < 60 && step.loss > 0.05; s++) {
        check_int(tide_engine_step(engine, &world.batch, 1, 3e-3, &step), ==, 0);
    }
    check_double(step.loss, <, 0.05);
    for (uint32_t length = 2; length < WORLD_LENGTH; length += 3) {
        check_int(tide_engine_predict(engine, world.ids, length, &next), ==, 0);
        check_int(next, ==, world.ids[length]);
    }
    check_int(tide_engine_predict(engine, world.ids, WORLD_LENGTH + 1, &next), ==, -EINVAL);
    check_int(tide_engine_predict(engine, world.ids, 0, &next), ==, -EINVAL);
    check_int(tide_engine_predict(engine, NULL, 1, &next), ==, -EINVAL);
    check_int(tide_engine_predict(engine, world.ids, 1, NULL), ==, -EINVAL);
    check_contains(tide_last_error(), "at least one id and an output parameter");
    const int32_t beyond = WORLD_VOCAB;
    check_int(tide_engine_predict(engine, &beyond, 1, &next), ==, -EINVAL);
    (void)world_steps(&world, engine, 1);
    tide_engine_destroy(engine);
}

/* ---- values that are not finite ---- */

enum { NAN16 = 0x7fc0 }; /* bf16 */

/* With a weight that is NaN, a bf16 run ends, unless it may skip steps. */
static void weights_that_are_no_numbers(void)
{
    char folder[600];
    char never[600];
    world_init(&world);
    snprintf(folder, sizeof folder, "%s/spoilt", test_directory());
    world_spoil(&world, folder, "layers.1.mlp.down_proj.weight", NAN16);
    struct tide_engine_options options = world.options;
    struct tide_step step = {.struct_bytes = sizeof step};
    struct tide_evaluation evaluation = {.struct_bytes = sizeof evaluation};
    options.model = folder;
    struct tide_engine *engine = world_engine(&options);
    check_int(tide_engine_step(engine, &world.batch, 1, 1e-3, &step), ==, -EDOM);
    check_contains(tide_last_error(), "the loss is not finite, and so no gradient is: ");
    check_int(tide_engine_step(engine, &world.batch, 1, 1e-3, &step), ==, -EDOM);
    check_int(tide_engine_evaluate(engine, &world.batch, &evaluation), ==, -EDOM);
    snprintf(never, sizeof never, "%s/never", test_directory());
    check_int(tide_engine_save(engine, never, 0), ==, -EDOM);
    check_true(!world_exists(never));
    tide_engine_destroy(engine);
    options.check_overflow = 1;
    engine = world_engine(&options);
    for (unsigned s = 1; s <= 2; s++) {
        step = world_steps(&world, engine, 1);
        check_uint(step.step, ==, s);
        check_uint(step.skipped, ==, 1);
        check_true(!isfinite(step.grad_norm));
        check_double(step.loss_scale, ==, 1);
    }
    tide_engine_destroy(engine);
}

/* The message names the layer where the gradient overflows, not the embedding before it. */
static void a_gradient_overflows(void)
{
    enum { LARGE16 = 0x5400, HUGE16 = 0x7e00 }; /* bf16: 2^41, 2^125 */
    char folder[600];
    char name[64];
    char words[64];
    struct tide_step step = {.struct_bytes = sizeof step};
    world_init(&world);
    struct world head = world;
    struct tide_engine_options options = world.options;
    options.model = folder;
    snprintf(head.model, sizeof head.model, "%s/head", test_directory());
    world_spoil(&world, head.model, "model.norm.weight", HUGE16);
    for (unsigned layer = 0; layer < 2; layer++) {
        snprintf(folder, sizeof folder, "%s/layer-%u", test_directory(), layer);
        snprintf(name, sizeof name, "layers.%u.input_layernorm.weight", layer);
        snprintf(words, sizeof words,
                 "the gradient of layer %u is not finite (the last such block, ", layer);
        world_spoil(&head, folder, name, LARGE16);
        struct tide_engine *engine = world_engine(&options);
        check_int(tide_engine_step(engine, &world.batch, 1, 1e-3, &step), ==, -EDOM);
        check_contains(tide_last_error(), words);
        tide_engine_destroy(engine);
    }
}

/* In fp16, overflows use up the hysteresis, then halve the scale, then end the run. */
static void fp16_overflows(void)
{
    static const double scales[] = {8, 8, 4, 2};
    char folder[600];
    world_init(&world);
    snprintf(folder, sizeof folder, "%s/overflowing", test_directory());
    world_spoil(&world, folder, "layers.0.mlp.up_proj.weight", NAN16);
    struct tide_engine_options options = world.options;
    struct tide_step step = {.struct_bytes = sizeof step};
    options.model = folder;
    options.precision = TIDE_FP16;
    options.initial_loss_scale = 8;
    options.min_loss_scale = 2;
    struct tide_engine *engine = world_engine(&options);
    for (int s = 0; s < 3; s++) {
        step = world_steps(&world, engine, 1);
        check_uint(step.skipped, ==, 1);
        check_double(step.loss_scale, ==, scales[s]);
    }
    check_int(tide_engine_step(engine, &world.batch, 1, 1e-3, &step), ==, -ERANGE);
    check_contains(tide_last_error(), "at the smallest loss scale, 2");
    tide_engine_destroy(engine);
    options.loss_scale = 128;
    options.model = world.model;
    engine = world_engine(&options);
    step = world_steps(&world, engine, 2);
    check_double(step.loss_scale, ==, 128);
    check_uint(step.skipped, ==, 0);
    tide_engine_destroy(engine);
}

/* A plan's parts add up to its tiers. The rates that a plan writes give a plan of equal step
 * time. */
static void plans_say_what_they_hold(void)
{
    char path[600];
    char line[400];
    world_init(&world);
    struct tide_engine *engine = world_engine(&world.options);
    const struct tide_plan *plan = tide_engine_plan(engine);
    struct tide_plan_info info = {.struct_bytes = sizeof info};
    check_int(tide_plan_describe(plan, &info), ==, 0);
    check_uint(info.parameters, ==, info.trained_parameters);
    uint64_t sums[TIDE_STORE + 1] = {0};
    struct tide_plan_part part = {.struct_bytes = sizeof part};
    unsigned count = 0;
    int rc;
    while ((rc = tide_plan_part_at(plan, count, &part)) == 0) {
        check_true(part.tier >= TIDE_DEVICE && part.tier <= TIDE_STORE && part.what[0] != '\0');
        sums[part.tier] += part.bytes;
        count++;
    }
    check_int(rc, ==, -ENOENT);
    check_uint(sums[TIDE_DEVICE], ==, info.device_bytes);
    check_uint(sums[TIDE_HOST], ==, info.host_bytes);
    check_uint(sums[TIDE_STORE], ==, info.store_bytes);
    unsigned lines = 0;
    while ((rc = tide_plan_tape_line(plan, lines, line, sizeof line)) == 0) {
        check_true(line[0] != '\0');
        lines++;
    }
    check_int(rc, ==, -ENOENT);
    check_uint(lines, ==, info.commands);
    check_int(tide_plan_tape_line(plan, 0, line, 0), ==, -EINVAL);
    check_int(tide_plan_tape_line(NULL, 0, line, sizeof line), ==, -EINVAL);
    check_int(tide_plan_describe(NULL, &info), ==, -EINVAL);
    check_int(tide_plan_part_at(NULL, 0, &part), ==, -EINVAL);
    struct tide_plan_alternative other_way = {.struct_bytes = sizeof other_way};
    for (count = 0; (rc = tide_plan_alternative_at(plan, count, &other_way)) == 0; count++) {
        check_true(other_way.acts != info.acts || other_way.timing != info.timing);
        check_true(other_way.step_seconds > 0 && other_way.why[0] != '\0');
    }
    check_int(rc, ==, -ENOENT);
    check_uint(count, >, 0);
    check_int(tide_plan_alternative_at(NULL, 0, &other_way), ==, -EINVAL);
    other_way.struct_bytes = 1;
    check_int(tide_plan_alternative_at(plan, 0, &other_way), ==, -EINVAL);
    struct core_json *json = NULL;
    snprintf(path, sizeof path, "%s/timeline.json", test_directory());
    check_int(tide_plan_trace(plan, path), ==, 0);
    check_int(core_json_load(path, NULL, &json), ==, 0);
    core_json_destroy(json);
    check_true(tide_plan_trace(plan, "/nowhere/timeline.json") < 0);
    check_contains(tide_last_error(), "/nowhere/timeline.json");
    snprintf(path, sizeof path, "%s/again.json", test_directory());
    check_int(tide_plan_rates(plan, path), ==, 0);
    check_true(tide_plan_rates(plan, "/nowhere/rates.json") < 0);
    check_contains(tide_last_error(), "/nowhere/rates.json");
    struct tide_engine_options options = world.options;
    struct tide_plan_info again = {.struct_bytes = sizeof again};
    struct tide_plan *other = NULL;
    options.rates = path;
    check_int(tide_plan_create(NULL, &options, &other), ==, 0);
    check_int(tide_plan_describe(other, &again), ==, 0);
    check_double(again.step_seconds, ==, info.step_seconds);
    check_uint(again.store_bytes, ==, info.store_bytes);
    check_string(again.bottleneck, info.bottleneck);
    tide_plan_destroy(other);
    struct tide_engine_memory memory = {.struct_bytes = sizeof memory};
    check_int(tide_engine_memory(engine, &memory), ==, 0);
    check_uint(memory.device_bytes, ==, info.device_bytes);
    check_uint(memory.host_bytes, ==, info.host_bytes);
    check_true(memory.rss_bytes > 0 && memory.peak_bytes >= memory.rss_bytes / 2);
    tide_engine_destroy(engine);
}

/* An engine reports the planned memory of all ranks together. */
static void memory_of_ranks(void)
{
    struct tide_plan_info info = {.struct_bytes = sizeof info};
    struct tide_engine_memory memory = {.struct_bytes = sizeof memory};
    world_init(&world);
    world.options.ranks = 2;
    world.options.weights = world.options.states = TIDE_AUTO;
    world.options.store_count = 0;
    struct tide_engine *engine = world_engine(&world.options);
    check_int(tide_plan_describe(tide_engine_plan(engine), &info), ==, 0);
    check_int(tide_engine_memory(engine, &memory), ==, 0);
    check_uint(memory.device_bytes, ==, info.device_bytes);
    check_uint(memory.host_bytes, ==, info.host_bytes);
    tide_engine_destroy(engine);
}

/* ---- betas that change ---- */

/* Returns the loss of the fourth step. The first `sets` steps get new betas. */
static double loss_with(uint32_t timing, int sets, const double betas[3][2])
{
    double loss = 0;
    world.options.timing = timing;
    struct tide_engine *engine = world_engine(&world.options);
    for (int s = 0; s < 4; s++) {
        if (s < sets) {
            check_int(tide_engine_betas(engine, betas[s][0], betas[s][1]), ==, 0);
        }
        loss = world_steps(&world, engine, 1).loss;
    }
    tide_engine_destroy(engine);
    return loss;
}

/* New betas apply from the next step on, even with deferred updates. */
static void betas_move(void)
{
    static const double given[3][2] = {{0.6, 0.95}};
    static const double moved[3][2] = {{0.6, 0.95}, {0.8, 0.99}, {0.7, 0.99}};
    world_init(&world);
    world.options.clip = 0;
    world.options.beta1 = given[0][0];
    world.options.beta2 = given[0][1];
    const double option = loss_with(TIDE_TIMING_AUTO, 0, NULL);
    world.options.beta1 = 0.9;
    world.options.beta2 = 0.999;
    const double usual = loss_with(TIDE_TIMING_AUTO, 0, NULL);
    const double deferred = loss_with(TIDE_TIMING_DEFERRED, 3, moved);
    check_double(loss_with(TIDE_TIMING_AUTO, 1, given), ==, option);
    check_double(loss_with(TIDE_TIMING_INSIDE, 3, moved), ==, deferred);
    check_true(usual != option && deferred != option && deferred != usual);
    struct tide_engine *engine = world_engine(&world.options);
    check_int(tide_engine_betas(engine, 1, 0.9), ==, -EINVAL);
    check_contains(tide_last_error(), "betas 1 and");
    check_int(tide_engine_betas(engine, 0.9, (double)NAN), ==, -EINVAL);
    check_int(tide_engine_betas(engine, -0.1, 0.9), ==, -EINVAL);
    check_int(tide_engine_betas(engine, 0.9, 1), ==, -EINVAL);
    check_int(tide_engine_betas(engine, 0.9, 0.9999999999), ==, -EINVAL); /* 1 in fp32 */
    check_int(tide_engine_betas(engine, 0.9, -0.1), ==, -EINVAL);
    tide_engine_destroy(engine);
}

/* ---- several engines ---- */

struct side {
    struct world world;
    struct tide_step step;
};

static void *train(void *argument)
{
    struct side *side = argument;
    struct tide_engine *engine = NULL;
    side->step = (struct tide_step){.struct_bytes = sizeof side->step};
    int rc = tide_engine_create(NULL, &side->world.options, &engine);
    for (int s = 0; rc == 0 && s < 3; s++) {
        rc = tide_engine_step(engine, &side->world.batch, 1, 1e-3, &side->step);
    }
    tide_engine_destroy(engine);
    return NULL;
}

/* Two engines on two threads have the loss and the norm of one that is alone. */
static void two_at_once(void)
{
    static struct side sides[2];
    pthread_t threads[2];
    world_init(&world);
    struct tide_engine *engine = world_engine(&world.options);
    const struct tide_step alone = world_steps(&world, engine, 3);
    tide_engine_destroy(engine);
    for (int i = 0; i < 2; i++) {
        world_init(&sides[i].world);
        struct tide_engine_options *options = &sides[i].world.options;
        snprintf(sides[i].world.store, sizeof sides[i].world.store, "%s/side %d", test_directory(),
                 i);
        options->io = "threads";
        check_int(pthread_create(&threads[i], NULL, train, &sides[i]), ==, 0);
    }
    for (int i = 0; i < 2; i++) {
        check_int(pthread_join(threads[i], NULL), ==, 0);
    }
    for (int i = 0; i < 2; i++) {
        check_uint(sides[i].step.step, ==, 3);
        check_double(sides[i].step.loss, ==, alone.loss);
        check_double(sides[i].step.grad_norm, ==, alone.grad_norm);
        check_true(!world_exists(sides[i].world.store));
    }
}

/* ---- stopping ---- */

struct stop {
    const char *phase;
    uint64_t at;
    unsigned reports;
    unsigned after; /* reports after the request to stop */
    bool stopped;
};

static int stop_at(void *user, const struct tide_progress *progress)
{
    struct stop *stop = user;
    stop->reports++;
    stop->after += stop->stopped;
    stop->stopped |= strcmp(progress->phase, stop->phase) == 0 && progress->done >= stop->at;
    return stop->stopped;
}

/* A request to stop ends the creation of an engine, and no store is left. */
static void stopping(void)
{
    static const struct {
        const char *phase;
        uint64_t at;
    } phases[] = {{"measure", 0}, {"measure", 1}, {"store", 0}, {"load", 1}, {"load", 3}};
    world_init(&world);
    world.options.io = "threads";
    for (size_t i = 0; i < sizeof phases / sizeof phases[0]; i++) {
        struct stop stop = {.phase = phases[i].phase, .at = phases[i].at};
        const struct tide_context_options options = {
            .struct_bytes = sizeof options, .progress = stop_at, .user = &stop};
        struct tide_context *context = NULL;
        struct tide_engine *engine = NULL;
        check_int(tide_context_create(&options, &context), ==, 0);
        int rc = tide_engine_create(context, &world.options, &engine);
        if (rc != -ECANCELED || tide_last_error()[0] == '\0' || !stop.stopped || stop.after > 0) {
            test_fail(__FILE__, __LINE__, "%s at %d: %d: %s (%u reports, %u after)",
                      phases[i].phase, (int)phases[i].at, rc, tide_last_error(), stop.reports,
                      stop.after);
        }
        check_true(engine == NULL && !world_exists(world.store));
        tide_context_destroy(context);
    }
}

struct ended {
    double losses[4];
    double norms[4];
    double loss; /* of the weights after the last step */
};

static void steps_on_a_drive(const char *io, struct ended *ended)
{
    struct tide_evaluation evaluation = {.struct_bytes = sizeof evaluation};
    world_init(&world);
    world.options.io = io;
    struct tide_engine *engine = world_engine(&world.options);
    for (unsigned s = 0; s < (unsigned)TEST_COUNT(4, 2); s++) {
        const struct tide_step step = world_steps(&world, engine, 1);
        ended->losses[s] = step.loss;
        ended->norms[s] = step.grad_norm;
    }
    check_int(tide_engine_evaluate(engine, &world.batch, &evaluation), ==, 0);
    ended->loss = evaluation.loss_sum;
    tide_engine_destroy(engine);
}

static int engine_without_uring(void *argument)
{
    const int *code = argument;
    struct ended in_memory = {.loss = 0};
    struct ended without = {.loss = 0};
    struct tide_engine *engine = NULL;
    steps_on_a_drive("mem", &in_memory);
    check_int(test_child_refuse_uring(*code, *code == ENOSYS), ==, 0);
    world_init(&world);
    world.options.io = "uring";
    const int rc = tide_engine_create(NULL, &world.options, &engine);
    test_uring_is_refused(*code, rc, tide_last_error());
    steps_on_a_drive(NULL, &without);
    check_double(without.loss, >, 0);
    check_memory(&without, &in_memory, sizeof without);
    return 0;
}

/* Without io_uring, a run has the bits of a run with its store in memory. */
static void without_uring(void)
{
    test_without_uring(engine_without_uring);
}

TEST_MAIN({"refusals_do_no_harm", refusals_do_no_harm},
          {"evaluation_changes_nothing", evaluation_changes_nothing}, {"pairs", pairs},
          {"long_pairs", long_pairs}, {"what_comes_next", what_comes_next},
          {"weights_that_are_no_numbers", weights_that_are_no_numbers},
          {"a_gradient_overflows", a_gradient_overflows}, {"memory_of_ranks", memory_of_ranks},
          {"betas_move", betas_move}, {"fp16_overflows", fp16_overflows},
          {"plans_say_what_they_hold", plans_say_what_they_hold}, {"two_at_once", two_at_once},
          {"stopping", stopping}, {"without_uring", without_uring},
          {"waits_have_names", waits_have_names}, {"drives_are_counted", drives_are_counted})
