/* Tests `tide plan --machine` with described machines and models that have only config.json. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/json/json.h"
#include "tests/finetune/rig.h"
#include "tests/harness/test.h"

#define PLAN "plan --seq-len 1024 --json -q "

static void write_model(const char *name, int layers, int width)
{
    char text[512];
    const int length = snprintf(
        text, sizeof text,
        "{\"model_type\": \"gpt2\", \"architectures\": [\"GPT2LMHeadModel\"], \"n_embd\": %d,"
        " \"n_head\": 64, \"n_layer\": %d, \"n_positions\": 1024, \"n_ctx\": 1024,"
        " \"vocab_size\": 50304, \"activation_function\": \"gelu_new\","
        " \"layer_norm_epsilon\": 1e-5}",
        width, layers);
    char path[64];
    mkdir(rig_path(name), 0700);
    snprintf(path, sizeof path, "%s/config.json", name);
    test_file(path, text, (size_t)length);
}

static void begin(void)
{
    rig_program = "tools/tide";
    write_model("small", TEST_COUNT(6, 2), TEST_COUNT(2048, 1024));
    write_model("deep", 200, 25600);
    write_model("wide", 2, 25600);
}

/* Returns the number `key` of an object in the printed plan (NULL: of the plan itself), or -1. */
static double number_at(const char *object, const char *key)
{
    struct core_json *doc = NULL;
    const struct core_json_value *inner = NULL;
    double value = -1;
    if (core_json_parse(rig_out, strlen(rig_out), "out", NULL, &doc) == 0) {
        inner = core_json_root(doc);
        inner = object != NULL ? core_json_find(inner, object) : inner;
        (void)core_json_get_real(doc, inner, key, &value);
    }
    core_json_destroy(doc);
    return value;
}

static void every_machine_plans(void)
{
    static const char *const names[] = {"4090-workstation", "dgx-2", "dgx-h100", "epyc-96", "h200"};
    begin();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char arguments[256];
        snprintf(arguments, sizeof arguments, PLAN "--model %%T/small/config.json --machine %s",
                 names[i]);
        expect(0, arguments);
        check_double(number_at("step", "seconds"), >, 0);
    }
    rig_end();
}

/* With --reduce fast, a node sends one sum of gradients to other nodes. */
static void fast_sums_are_planned(void)
{
#define NODES                                                                                      \
    "plan --model %T/small --machine dgx-2 --nodes 2 --ranks-per-node 4 --batch 4 --accum 1 "
    begin();
    expect(0, NODES "--json -q");
    const double exact = number_at("step", "reduce_between_bytes");
    const double all = number_at("step", "reduce_bytes");
    check_double(exact, >, 0);
    expect(0, NODES "--json -q --reduce fast");
    check_double(number_at("step", "reduce_between_bytes"), >=, exact * 0.25);
    check_double(number_at("step", "reduce_between_bytes"), <, exact * 0.26);
    check_double(number_at("step", "reduce_bytes"), ==, all);
    check_contains(rig_out, "\"reduce\": \"fast\"");
    expect(0, NODES "-q --reduce fast");
    check_contains(rig_out, "reduce fast: gradients are added inside nodes first");
    expect(
        0,
        "plan --model %T/small --machine epyc-96 --ranks-per-node 2 --batch 4 --accum 1 --zero 2 "
        "--reduce fast");
    check_contains(rig_err, "has no effect");
    check_true(strstr(rig_out, "reduce fast") == NULL);
    rig_end();
#undef NODES
}

/* More ranks or nodes train more tokens per second; with a straggler, ranks train fewer. */
static void nodes_are_planned(void)
{
    begin();
    expect(0, PLAN "--model %T/small --machine dgx-2 --ranks-per-node 1 --batch 4 --accum 1");
    const double alone = number_at("step", "tokens_per_second");
    expect(0, PLAN "--model %T/small --machine dgx-2 --batch 4 --accum 1");
    check_double(number_at("asked", "ranks"), ==, 16);
    check_double(number_at("asked", "zero_stage"), ==, 3);
    const double node = number_at("step", "tokens_per_second");
    check_double(node, >, alone);
    check_double(node, <=, 16 * alone);
    expect(0, PLAN "--model %T/small --machine dgx-2 --nodes 32 --batch 4 --accum 1");
    check_double(number_at("asked", "ranks"), ==, 512);
    check_double(number_at("step", "tokens_per_second"), >, node);
    expect(0, PLAN "--model %T/small --machine dgx-2 --batch 4 --accum 1 --straggler 2");
    check_double(number_at("step", "tokens_per_second"), <, node * 0.55);
    rig_end();
}

/* Chunks grow with the model, so that the tape of a deep model stays short. */
static void deep_models_have_short_tapes(void)
{
    if (TEST_SLOW) {
        test_skip("the plain build counts the commands");
    }
    begin();
    expect(0, PLAN "--model %T/deep/config.json --machine dgx-h100 --batch 1 "
                   "--device-memory 1500GB");
    check_double(number_at(NULL, "parameters"), >, 1.5e12);
    check_double(number_at("step", "commands"), <, 20000);
    rig_end();
}

/* Returns the seconds that --what-if prints for a part, or -1. */
static double what_if(const char *part)
{
    struct core_json *doc = NULL;
    double value = -1;
    double before = 0;
    check_int(core_json_parse(rig_out, strlen(rig_out), "out", NULL, &doc), ==, 0);
    const struct core_json_value *list = core_json_find(core_json_root(doc), "what_if");
    for (size_t i = 0; i < core_json_count(list); i++) {
        const struct core_json_value *one = core_json_at(list, i);
        const char *name = "";
        double seconds = 0;
        check_int(core_json_get_string(doc, one, "part", &name), ==, 0);
        check_int(core_json_get_real(doc, one, "seconds", &seconds), ==, 0);
        check_double(seconds, >=, before);
        before = seconds;
        value = strcmp(name, part) == 0 ? seconds : value;
    }
    core_json_destroy(doc);
    return value;
}

/* --what-if prints the seconds of a machine that has twice as much of one part. */
static void one_part_is_doubled(void)
{
#define SMALL PLAN "--model %T/small --machine 4090-workstation --batch 2 --accum 1 "
    begin();
    if (TEST_SLOW) { /* many plans */
        write_model("tiny", 2, 512);
        expect(0, PLAN "--model %T/tiny --machine 4090-workstation --what-if");
        check_double(what_if("GPU"), >, 0);
        rig_end();
        return;
    }
    expect(0, SMALL "--device-memory 3GB --host-memory 2GB --what-if");
    const double host = what_if("size of host memory");
    const double device = what_if("size of GPU memory");
    check_double(what_if("drives"), >, 0);
    check_double(what_if("rate of host memory"), >, 0);
    check_double(what_if("GPU"), >, 0);
    check_double(what_if("network between ranks"), ==, -1);
    expect(0, SMALL "--device-memory 3GB --host-memory 4GB");
    check_double(number_at("step", "seconds"), ==, host);
    expect(0, SMALL "--device-memory 6GB --host-memory 2GB");
    check_double(number_at("step", "seconds"), ==, device);
    check_double(host, !=, device);
    rig_end();
#undef SMALL
}

/* The text tells to which ranks its figures belong and, with --what-if, names the parts of the
 * machine. */
static void text_names_ranks_and_parts(void)
{
#define TEXT "plan --seq-len 1024 -q --accum 1 --batch 4 "
    begin();
    expect(0, TEXT "--model %T/small --machine dgx-2 --nodes 2 --what-if");
    check_contains(rig_out, "a step has 32 x 4 rows of 1024 tokens over all ranks; ");
    check_contains(rig_out,
                   "dgx-2.json, 2 x 16 ranks; tiers below are per node, their parts per rank\n");
    check_contains(rig_out, "\nranks: each receives ");
    const char *list = strstr(rig_out, "\na step with twice as much of one part:\n");
    check_true(list != NULL);
    const char *shorter = strstr(list, " % shorter\n");
    const char *same = strstr(list, " no shorter\n");
    check_true(shorter != NULL && same != NULL && shorter < same);
    check_true(strstr(same, " % shorter\n") == NULL);
    check_contains(list, "\n  network between ranks  ");
    check_contains(list, "\n  size of host memory    ");
    expect(0, TEXT "--model %T/small --machine 4090-workstation");
    check_contains(rig_out, "a step has 1 x 4 rows of 1024 tokens; without --data, ");
    check_contains(rig_out, "4090-workstation.json, 1 x 1 ranks; ");
    check_true(strstr(rig_out, "ranks: each receives") == NULL);
    check_true(strstr(rig_out, "twice as much") == NULL);
    rig_end();
#undef TEXT
}

static void mistakes(void)
{
    static const struct {
        const char *arguments;
        const char *word;
    } cases[] = {
        {"plan --model %T/small --machine dgx-9", "dgx-2"},
        {"plan --model %T/small --machine %T/none.json", "none.json"},
        {"plan --model %T/small --machine %T/bad.json", "bad.json:1:28"},
        {"plan --model %T/small --nodes 2", "--machine"},
        {"plan --model %T/small --ranks-per-node 2", "--machine"},
        {"plan --model %T/small --machine dgx-2 --ranks 2", "--ranks-per-node"},
        {"plan --model %T/small --machine dgx-2 --rates r.json", "--rates"},
        {"plan --model %T/small --machine dgx-2 --store .", "--store"},
        {"plan --model %T/small --machine dgx-2 --dev cpu", "--dev"},
        {"plan --model %T/small --machine dgx-2 --ranks-per-node 17", "16 GPUs"},
        {"plan --model %T/small --machine h200 --nodes 2", "between_bytes_per_second"},
        {"plan --model %T/small --machine dgx-2 --nodes 4000", "4096"},
        {"plan --model %T/small --machine dgx-2 --gather int8", "8 bits needs the CPU device"},
        {"plan --model %T/small --machine dgx-2 --reduce int4", "4 bits needs the CPU device"},
    };
    static const char bad[] = "{\"version\": 1, \"devices\": {\"value\": 0}}";
    begin();
    test_file("bad.json", bad, sizeof bad - 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect(2, cases[i].arguments);
        check_contains(rig_err, cases[i].word);
    }
    expect(3, PLAN "--model %T/wide --machine dgx-2");
    check_contains(rig_err, "--device-memory");
    rig_end();
}

TEST_MAIN({"every_machine_plans", every_machine_plans}, {"nodes_are_planned", nodes_are_planned},
          {"fast_sums_are_planned", fast_sums_are_planned},
          {"deep_models_have_short_tapes", deep_models_have_short_tapes},
          {"one_part_is_doubled", one_part_is_doubled},
          {"text_names_ranks_and_parts", text_names_ranks_and_parts}, {"mistakes", mistakes})
