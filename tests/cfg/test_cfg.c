/* Tests how keys of a configuration act together, and errors of bad files. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/base64.h"
#include "core/base/err.h"
#include "tests/cfg/rig.h"
#include "tests/harness/child.h"
#include "tests/harness/test.h"

#define REFUSED CORE_CFG_NOTE_REFUSED
#define WARNING CORE_CFG_NOTE_WARNING
#define BATCH   "\"train_batch_size\": 8"

/* Missing numbers follow from train = micro x accumulation x world. */
static void batch_rule(void)
{
    static const struct {
        const char *text;
        int64_t world;
        int64_t train, micro, accumulation; /* train 0: refused */
    } cases[] = {
        {"{\"train_batch_size\":32,\"train_micro_batch_size_per_gpu\":4,"
         "\"gradient_accumulation_steps\":2}",
         4, 32, 4, 2},
        {"{\"train_batch_size\":32,\"train_micro_batch_size_per_gpu\":4}", 4, 32, 4, 2},
        {"{\"train_batch_size\":32,\"gradient_accumulation_steps\":2}", 4, 32, 4, 2},
        {"{\"train_micro_batch_size_per_gpu\":4,\"gradient_accumulation_steps\":2}", 4, 32, 4, 2},
        {"{\"train_batch_size\":32}", 4, 32, 8, 1},
        {"{\"train_micro_batch_size_per_gpu\":4}", 4, 16, 4, 1},
        {"{\"train_micro_batch_size_per_gpu\":4.0}", 1, 4, 4, 1},
        {"{\"gradient_accumulation_steps\":2}", 4, 0, 0, 0},
        {"{}", 1, 0, 0, 0},
        {"{\"train_batch_size\":33,\"train_micro_batch_size_per_gpu\":4}", 4, 0, 0, 0},
        {"{\"train_batch_size\":33}", 4, 0, 0, 0},
        {"{\"train_batch_size\":32,\"gradient_accumulation_steps\":3}", 4, 0, 0, 0},
        {"{\"train_batch_size\":32,\"train_micro_batch_size_per_gpu\":4,"
         "\"gradient_accumulation_steps\":2}",
         1, 0, 0, 0},
        {"{\"train_micro_batch_size_per_gpu\":1e18,\"gradient_accumulation_steps\":100}", 1, 0, 0,
         0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct core_cfg_options options;
        core_cfg_options_init(&options);
        options.world_size = cases[i].world;
        struct core_cfg *cfg = rig_parse(cases[i].text, &options);
        int verdict = core_cfg_check(cfg);
        int64_t found[3] = {cfg->train_batch_size, cfg->micro_batch_size, cfg->accumulation_steps};
        int64_t world = cfg->world_size;
        core_cfg_destroy(cfg);
        check_int(world, ==, cases[i].world);
        check_int(verdict, ==, cases[i].train == 0 ? -EINVAL : 0);
        if (cases[i].train != 0) {
            check_int(found[0], ==, cases[i].train);
            check_int(found[1], ==, cases[i].micro);
            check_int(found[2], ==, cases[i].accumulation);
        } else {
            check_contains(core_err_message(), "t.json:1:");
            check_contains(core_err_message(), "train_batch_size: ");
        }
    }
}

static const char *const auto_text =
    "{\"train_batch_size\": \"auto\", \"train_micro_batch_size_per_gpu\": \"auto\","
    "\"gradient_accumulation_steps\": \"auto\", \"gradient_clipping\": \"auto\","
    "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": \"auto\", \"betas\": \"auto\","
    "\"eps\": \"auto\", \"weight_decay\": \"auto\"}},"
    "\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"warmup_min_lr\": \"auto\","
    "\"warmup_max_lr\": \"auto\", \"warmup_num_steps\": \"auto\", \"total_num_steps\": \"auto\"}},"
    "\"fp16\": {\"enabled\": \"auto\"}, \"bf16\": {\"enabled\": \"auto\"},"
    "\"zero_optimization\": {\"stage\": 3, \"reduce_bucket_size\": \"auto\","
    "\"stage3_prefetch_bucket_size\": \"auto\", \"stage3_param_persistence_threshold\": \"auto\","
    "\"sub_group_size\": \"auto\"}}";

/* Without the caller's values, "auto" is usually the value of the Hugging Face trainer. */
static void auto_alone(void)
{
    struct core_cfg *cfg = rig_accept(auto_text);
    check_int(cfg->train_batch_size, ==, 8);
    check_int(cfg->micro_batch_size, ==, 8);
    check_int(cfg->accumulation_steps, ==, 1);
    check_double(cfg->gradient_clipping, ==, 1.0);
    check_double(cfg->optimizer.lr, ==, 5e-5);
    check_double(cfg->optimizer.betas[1], ==, 0.999);
    check_double(cfg->scheduler.warmup_max_lr, ==, 5e-5);
    check_int(cfg->scheduler.warmup_num_steps, ==, 0);
    check_true(cfg->scheduler.total_num_steps == CORE_CFG_NONE);
    check_true(!cfg->fp16.enabled && cfg->bf16.enabled); /* tide's default */
    check_int(cfg->zero.reduce_bucket_size, ==, 500000000);
    check_double(strtod(rig_value(cfg, "zero_optimization.sub_group_size"), NULL), ==, 1000000000);
    struct core_cfg_note note;
    check_true(rig_note(cfg, CORE_CFG_NOTE_HONOURED, "optimizer.params.lr", &note));
    check_contains(note.why, "Hugging Face");
    core_cfg_destroy(cfg);
}

/* "auto" becomes the value that the caller gives. */
static void auto_asked(void)
{
    struct core_cfg_options options;
    core_cfg_options_init(&options);
    options.world_size = 2;
    options.micro_batch_size = 3;
    options.accumulation_steps = 5;
    options.lr = 1e-3;
    options.betas[0] = 0.8;
    options.betas[1] = 0.95;
    options.eps = 1e-6;
    options.weight_decay = 0.2;
    options.gradient_clipping = 0;
    options.warmup_steps = 7;
    options.total_steps = 70;
    options.hidden_size = 1000;
    options.precision = CORE_CFG_BF16;
    struct core_cfg *cfg = rig_parse(auto_text, &options);
    check_int(core_cfg_check(cfg), ==, 0);
    check_int(cfg->train_batch_size, ==, 30);
    check_double(cfg->optimizer.lr, ==, 1e-3);
    check_double(cfg->optimizer.betas[0], ==, 0.8);
    check_double(cfg->optimizer.eps, ==, 1e-6);
    check_double(cfg->optimizer.weight_decay, ==, 0.2);
    check_double(cfg->gradient_clipping, ==, 0);
    check_double(cfg->scheduler.warmup_max_lr, ==, 1e-3);
    check_int(cfg->scheduler.warmup_num_steps, ==, 7);
    check_int(cfg->scheduler.total_num_steps, ==, 70);
    check_true(cfg->bf16.enabled && !cfg->fp16.enabled);
    check_int(cfg->zero.reduce_bucket_size, ==, 1000000);
    check_double(strtod(rig_value(cfg, "zero_optimization.stage3_prefetch_bucket_size"), NULL), ==,
                 900000);
    check_double(
        strtod(rig_value(cfg, "zero_optimization.stage3_param_persistence_threshold"), NULL), ==,
        10000);
    core_cfg_destroy(cfg);
    cfg = rig_parse("{\"train_batch_size\": 60, \"train_micro_batch_size_per_gpu\": \"auto\"}",
                    &options);
    check_int(core_cfg_check(cfg), ==, -EINVAL);
    core_cfg_destroy(cfg);
    cfg = rig_parse("{\"gradient_clipping\": 0.5}", &options);
    check_int(core_cfg_check(cfg), ==, 0);
    check_int(cfg->train_batch_size, ==, 30);
    core_cfg_destroy(cfg);
}

/* Older forms and names are accepted and reported. */
static void older_forms(void)
{
    struct core_cfg *cfg = rig_accept("{" BATCH ", \"zero_optimization\": true}");
    check_int(cfg->zero.stage, ==, 1);
    core_cfg_destroy(cfg);
    cfg = rig_accept("{" BATCH ", \"zero_optimization\": false}");
    check_int(cfg->zero.stage, ==, 0);
    core_cfg_destroy(cfg);
    cfg = rig_accept("{" BATCH ", \"bfloat16\": {\"enabled\": true}, \"zero_optimization\": "
                     "{\"cpu_offload\": true, \"cpu_offload_param\": true, "
                     "\"cpu_offload_use_pin_memory\": false, \"prefetch_bucket_size\": 7, "
                     "\"stage\": 3, \"stage3_gather_fp16_weights_on_model_save\": true}}");
    check_true(cfg->bf16.enabled);
    check_int(cfg->zero.offload_optimizer.device, ==, CORE_CFG_DEVICE_CPU);
    check_int(cfg->zero.offload_param.device, ==, CORE_CFG_DEVICE_CPU);
    check_true(!cfg->zero.offload_param.pin_memory);
    check_double(strtod(rig_value(cfg, "zero_optimization.stage3_prefetch_bucket_size"), NULL), ==,
                 7);
    check_string(rig_value(cfg, "zero_optimization.stage3_gather_16bit_weights_on_model_save"),
                 "true");
    check_true(cfg->zero.overlap_comm);
    core_cfg_destroy(cfg);
    rig_expect("{" BATCH ", \"zero_optimization\": {\"cpu_offload\": true,\n"
               "\"offload_optimizer\": {\"device\": \"cpu\"}}}",
               REFUSED, "zero_optimization.cpu_offload", 1, "line 2");
    rig_expect("{" BATCH ", \"zero_optimization\": {\"max_live_parameters\": 1,\n"
               "\"stage3_max_live_parameters\": 2}}",
               REFUSED, "zero_optimization.stage3_max_live_parameters", 1, "line 2");
    rig_expect("{" BATCH ",\n\"bf16\": {\"enabled\": true},\n\"bfloat16\": {\"enabled\": true}}",
               REFUSED, "bf16", 2, "line 3");
    cfg = rig_accept("{" BATCH ", \"aio\": {\"thread_count\": 3}}");
    check_double(strtod(rig_value(cfg, "aio.intra_op_parallelism"), NULL), ==, 3);
    core_cfg_destroy(cfg);
    cfg = rig_accept("{" BATCH ", \"aio\": {\"intra_op_parallelism\": 2, \"num_threads\": 3, "
                     "\"single_submit\": \"true\", \"overlap_events\": \"False\"}}");
    check_double(strtod(rig_value(cfg, "aio.intra_op_parallelism"), NULL), ==, 2);
    check_string(rig_value(cfg, "aio.single_submit"), "true");
    check_string(rig_value(cfg, "aio.overlap_events"), "false");
    check_uint(core_cfg_notes_of(cfg, WARNING), ==, 3);
    core_cfg_destroy(cfg);
    static const char nested[] = "{" BATCH ", \"zero_optimization\": {\"stage\": 3,\n"
                                 "\"aio\": {\"queue_depth\": 32}}}";
    rig_expect(nested, WARNING, "aio", 2, "top level");
    cfg = rig_accept(nested);
    check_double(strtod(rig_value(cfg, "aio.queue_depth"), NULL), ==, 32);
    core_cfg_destroy(cfg);
}

/* Unknown keys are refused in sections that DeepSpeed checks, and cause warnings elsewhere. */
static void unknown_keys(void)
{
    rig_expect("{" BATCH ",\n\"gradient_cliping\": 1}", WARNING, "gradient_cliping", 2,
               "did you mean gradient_clipping?");
    rig_expect("{" BATCH ",\n\"_comment\": 3}", CORE_CFG_NOTE_IGNORED, "_comment", 2, "a comment");
    rig_expect("{" BATCH ", \"fp16\": {\n\"//\": \"off\"}}", CORE_CFG_NOTE_IGNORED, "fp16.//", 2,
               "a comment");
    rig_expect("{" BATCH ",\n\"stage\": 3}", WARNING, "stage", 2,
               "did you mean zero_optimization.stage?");
    rig_expect("{" BATCH ", \"zero_optimization\": {\n\"stge\": 1}}", REFUSED,
               "zero_optimization.stge", 2, "did you mean stage?");
    rig_expect("{" BATCH ", \"fp16\": {\"qqqq\": 1}}", REFUSED, "fp16.qqqq", 1,
               "docs/ds_config.md");
    rig_expect("{" BATCH ", \"aio\": {\"blocksize\": 1}}", WARNING, "aio.blocksize", 1,
               "block_size");
    rig_expect("{" BATCH ", \"tensor_parallel\": {\"partition_config\": {\"layer_specs\": [{},\n"
               "{\"kind\": 1}]}}}",
               REFUSED, "tensor_parallel.partition_config.layer_specs[].kind", 2, "unknown key");
    char text[8192] = "{" BATCH;
    for (int i = 0; i < 200; i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, ", \"unknown%d\": 1", i);
    }
    strcat(text, "}");
    rig_expect(text, REFUSED, "(the file)", 1, "200 keys are unknown or wrong");
    snprintf(text, sizeof text,
             "{" BATCH ", \"tensor_parallel\": {\"partition_config\": "
             "{\"layer_specs\": [{}");
    for (int i = 0; i < 200; i++) {
        strcat(text, ",\n{\"partition_type\": 7}");
    }
    strcat(text, "]}}}");
    rig_expect(text, REFUSED, "tensor_parallel.partition_config.layer_specs[].partition_type", 2,
               "found 7; allowed: one of row, column, skip");
    rig_expect(text, REFUSED, "(the file)", 1, "200 keys are unknown or wrong");
}

/* Two precisions, and wrong settings of fp16's scaler, are refused. */
static void precision(void)
{
    rig_expect("{" BATCH ", \"fp16\": {\"enabled\": true},\n\"bf16\": {\"enabled\": true}}",
               REFUSED, "fp16.enabled", 1, "line 2");
    rig_expect("{" BATCH ", \"fp16\": {\"enabled\": true, \"loss_scale_window\": 0}}", REFUSED,
               "fp16.loss_scale_window", 1, "allowed: an integer of at least 1");
    rig_expect("{" BATCH ", \"bf16\": {\"enabled\": true, \"bf16_optimizer_states\": true}}",
               REFUSED, "bf16.bf16_optimizer_states", 1, "bf16_master_weights_and_grads");
    struct core_cfg *cfg = rig_accept("{" BATCH ", \"fp16\": {\"enabled\": true, \"loss_scale\": "
                                      "128, \"min_loss_scale\": 0}}");
    check_double(cfg->fp16.loss_scale, ==, 128);
    check_true(!cfg->bf16.check_grad_overflow_given && cfg->bf16.check_grad_overflow);
    core_cfg_destroy(cfg);
    cfg = rig_accept("{" BATCH ", \"bf16\": {\"enabled\": true, \"check_grad_overflow\": true}}");
    check_true(cfg->bf16.check_grad_overflow_given);
    core_cfg_destroy(cfg);
    rig_expect("{" BATCH ", \"amp\": {\"enabled\": true}}", REFUSED, "amp", 1, "ZeRO");
}

/* Offload to the store needs a path; a ratio needs stage 3. */
static void offload(void)
{
    static const char text[] = "{" BATCH ", \"zero_optimization\": {\"stage\": 3, "
                               "\"offload_param\": {\"device\": \"nvme\"}}}";
    rig_expect(text, REFUSED, "zero_optimization.offload_param.nvme_path", 1, "allowed: the path");
    struct core_cfg_options options;
    core_cfg_options_init(&options);
    options.has_store = true;
    struct core_cfg *cfg = rig_parse(text, &options);
    check_int(core_cfg_check(cfg), ==, 0);
    core_cfg_destroy(cfg);
    rig_expect("{" BATCH ", \"zero_optimization\": {\"stage\": 2, \"offload_optimizer\": "
               "{\"device\": \"cpu\", \"ratio\": 0.5}}}",
               REFUSED, "zero_optimization.offload_optimizer.ratio", 1, "stage 3");
    rig_expect("{" BATCH ", \"zero_optimization\": {\"stage\": 3, \"elastic_checkpoint\": true}}",
               WARNING, "zero_optimization.elastic_checkpoint", 1, "no effect");
    rig_expect("{" BATCH ", \"zero_optimization\": {\"offload_param\": {\"device\": \"cpu\"}}}",
               WARNING, "zero_optimization.offload_param.device", 1, "stage 3");
    rig_expect("{" BATCH ", \"zero_optimization\": {\"zenflow\": {}}}", REFUSED,
               "zero_optimization.zenflow", 1, "stale");
    rig_expect("{" BATCH ", \"zero_optimization\": {\"grad_hooks\": true}}", REFUSED,
               "zero_optimization.grad_hooks", 1, "forbid");
    rig_expect("{" BATCH ", \"vocabulary_size\": 50257}", WARNING, "vocabulary_size", 1, "8");
}

/* The type of an optimizer or schedule determines its parameters. */
static void types(void)
{
    struct core_cfg *cfg = rig_accept(
        "{" BATCH ", \"optimizer\": {\"type\": \"Adam\", \"params\": {\"adam_w_mode\": false}}}");
    check_int(cfg->optimizer.type, ==, CORE_CFG_ADAM);
    check_true(!cfg->optimizer.adam_w_mode);
    core_cfg_destroy(cfg);
    cfg = rig_accept("{" BATCH ", \"optimizer\": {\"type\": \"ADAMW\", \"params\": "
                     "{\"adam_w_mode\": false}}}");
    check_true(cfg->optimizer.adam_w_mode);
    core_cfg_destroy(cfg);
    cfg = rig_accept("{" BATCH ", \"optimizer\": {\"type\": \"Adagrad\"}}");
    check_double(cfg->optimizer.eps, ==, 1e-10);
    check_double(cfg->optimizer.lr, ==, 1e-2);
    core_cfg_destroy(cfg);
    cfg = rig_accept("{" BATCH "}");
    check_int(cfg->optimizer.type, ==, -1);
    check_int(cfg->scheduler.type, ==, -1);
    check_double(cfg->optimizer.lr, ==, 1e-3);
    core_cfg_destroy(cfg);
    static const char *const refused[] = {"Lamb",  "Muon",       "MuAdam",      "MuAdamW",
                                          "MuSGD", "OneBitAdam", "ZeroOneAdam", "OneBitLamb"};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        char text[128];
        snprintf(text, sizeof text, "{" BATCH ", \"optimizer\": {\"type\": \"%s\"}}", refused[i]);
        rig_expect(text, REFUSED, "optimizer.type", 1, "allowed: one of Adam, AdamW");
    }
    rig_expect("{" BATCH ", \"optimizer\": {\"type\": \"SGD\", \"params\": {\"eps\": 1}}}", REFUSED,
               "optimizer.params.eps", 1, "belongs to Adam AdamW Adagrad");
    rig_expect("{" BATCH
               ", \"optimizer\": {\"type\": \"Adam\", \"params\": {\"max_grad_norm\": 1}}}",
               REFUSED, "optimizer.params.max_grad_norm", 1, "gradient_clipping");
    rig_expect("{" BATCH ", \"optimizer\": {\"params\": {\"lr\": 1}}}", WARNING, "optimizer", 1,
               "AdamW");
    rig_expect("{" BATCH ", \"scheduler\": {\"type\": \"OneCycle\", \"params\": "
               "{\"cycle_min_lr\": 0.1}}}",
               REFUSED, "scheduler.params.cycle_max_lr", 1, "must be given");
    rig_expect("{" BATCH ", \"scheduler\": {\"type\": \"WarmupDecayLR\"}}", REFUSED,
               "scheduler.params.total_num_steps", 1, "must be given");
    rig_expect("{" BATCH ", \"scheduler\": {\"type\": \"WarmupLR\", \"params\": "
               "{\"cos_min_ratio\": 0.1}}}",
               REFUSED, "scheduler.params.cos_min_ratio", 1, "WarmupCosineLR");
    rig_expect("{" BATCH ", \"scheduler\": {\"type\": \"WarmupCosineLR\", \"params\": "
               "{\"total_num_steps\": 10}}}",
               WARNING, "scheduler.params.total_num_steps", 1, "before the warmup");
    rig_expect("{" BATCH ", \"scheduler\": {\"params\": {}}}", WARNING, "scheduler", 1, "no type");
    cfg = rig_accept("{" BATCH ", \"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": "
                     "{\"total_num_steps\": 1e4}}}");
    check_double(cfg->scheduler.warmup_max_lr, ==, 1e-3);
    check_int(cfg->scheduler.total_num_steps, ==, 10000);
    core_cfg_destroy(cfg);
}

/* A refused type or parameter is one refusal. Parameters of a refused type are not checked. */
static void refused_types(void)
{
    static const struct {
        const char *section;
        const char *key, *why;
    } cases[] = {
        {"\"optimizer\": {\"type\": \"OneBitAdam\", \"params\": {\"lr\": 4e-4, \"freeze_step\": "
         "23000,"
         "\"cuda_aware\": false, \"comm_backend_name\": \"nccl\"}}",
         "optimizer.type", "OneBitAdam cannot be used"},
        {"\"optimizer\": {\"params\": {\"lr\": 11e-3, \"max_coeff\": 0.3, \"min_coeff\": 0.01,"
         "\"bias_correction\": false}, \"type\": \"Lamb\"}",
         "optimizer.type", "Lamb is not implemented"},
        {"\"optimizer\": {\"type\": \"RMSprop\", \"params\": {\"lr\": 1e-3, \"alpha\": 0.9}}",
         "optimizer.type", "found \"RMSprop\"; allowed: one of Adam, AdamW, Adagrad, Lion, SGD"},
        {"\"scheduler\": {\"type\": \"CosineAnnealingLR\", \"params\": {\"T_max\": 100}}",
         "scheduler.type", "found \"CosineAnnealingLR\""},
        {"\"scheduler\": {\"type\": \"OneCycle\", \"params\": {\"cycle_min_lr\": 1e-5,"
         "\"cycle_max_lr\": 1e-3, \"warmup_num_steps\": 10}}",
         "scheduler.params.warmup_num_steps", "OneCycle (line 1) has no such parameter"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[512];
        snprintf(text, sizeof text, "{" BATCH ", %s}", cases[i].section);
        rig_expect(text, REFUSED, cases[i].key, 1, cases[i].why);
        struct core_cfg *cfg = rig_parse(text, NULL);
        check_uint(core_cfg_notes_of(cfg, REFUSED), ==, 1);
        check_uint(core_cfg_notes_of(cfg, WARNING), ==, 0);
        core_cfg_destroy(cfg);
    }
}

/* Features that are off are accepted; those that are on are refused. */
static void features(void)
{
    static const char *const off[] = {"false",
                                      "{}",
                                      "{\"enabled\": false}",
                                      "\"auto\"",
                                      "{\"a\": {\"enabled\": false}}",
                                      "{\"enabled\": \"false\"}",
                                      "{\"disable\": true}"};
    static const char *const on[] = {"true",
                                     "{\"x\": 1}",
                                     "{\"enabled\": true}",
                                     "{\"a\": {\"b\": {\"enabled\": true}}}",
                                     "{\"enabled\": \"true\"}",
                                     "{\"deepcompile\": true}",
                                     "{\"disable\": false}"};
    char text[128];
    for (size_t i = 0; i < 7; i++) {
        snprintf(text, sizeof text, "{" BATCH ", \"compile\": %s}", off[i]);
        core_cfg_destroy(rig_accept(text));
        snprintf(text, sizeof text, "{" BATCH ", \"compile\": %s}", on[i]);
        rig_expect(text, REFUSED, "compile", 1, "\"enabled\": false, or false");
    }
}

static void expect_load(const char *argument, int code, const char *message)
{
    struct core_cfg *cfg = NULL;
    int found = core_cfg_load(argument, NULL, &cfg);
    if (found == 0) {
        found = core_cfg_check(cfg);
        core_cfg_destroy(cfg);
    }
    check_int(found, ==, code);
    check_contains(core_err_message(), message);
}

/* Runs without privileges. Returns 3 if the error of an unreadable file is right, 4 if not, and 77
 * if root cannot become another user. */
static int unreadable(void *argument)
{
    struct core_cfg *cfg = NULL;
    if (test_child_drop_root() != 0 && geteuid() == 0) {
        return 77;
    }
    int code = core_cfg_load(argument, NULL, &cfg);
    return code == -EACCES && strstr(core_err_message(), "Permission denied") != NULL ? 3 : 4;
}

/* The error of a bad file has the name and, for text, the line. */
static void bad_files(void)
{
    expect_load(test_directory(), -EISDIR, "is a directory");
    expect_load("/nonexistent.json", -ENOENT, "/nonexistent.json cannot be opened");
    expect_load(test_file("a.json", "{\n \"fp16\": {\"enabled\": true},\n \"fp16\": {}}", 42),
                -EINVAL, "a.json:3:2: duplicate key \"fp16\", first on line 2");
    expect_load(test_file("b.json", "{\n\"a\": \"\xff\"}", 11), -EINVAL,
                "b.json:2:7: invalid UTF-8");
    expect_load(test_file("c.json", "[1]", 3), -EINVAL,
                "c.json:1:1: found an array; expected an object");
    expect_load(test_file("d.json", "{\"train_batch_size\": 1e308}", 27), -EINVAL,
                "d.json:1:2: train_batch_size: found 1e+308; allowed: an integer of at least 1");
    expect_load(test_file("e.json", "{\"train_batch_size\": 1e309}", 27), -EINVAL,
                "e.json:1:22: 1e309");
    expect_load(test_file("n.json", "{\n\"a\\u0000b\": 1}", 16), -EINVAL,
                "n.json:2:11: a key must not contain \\u0000");
    expect_load(test_file("f.json", "", 0), -EINVAL, "f.json:1:1: found the end");
    char *deep = malloc(100000);
    check_true(deep != NULL);
    memset(deep, '[', 100000);
    memcpy(deep, "{\"a\":", 5);
    const char *path = test_file("g.json", deep, 100000);
    free(deep);
    expect_load(path, -EINVAL, "nested deeper than 512 levels");
    path = test_file("h.json", "{\"train_batch_size\": 1}", 23);
    check_int(truncate(path, (off_t)100 << 20), ==, 0);
    expect_load(path, -E2BIG, "has 104857600 bytes; the limit is 4194304");
    path = test_file("i.json", "{}", 2);
    check_int(chmod(test_directory(), 0755), ==, 0);
    check_int(chmod(path, 0), ==, 0);
    int child = test_child(unreadable, (void *)(uintptr_t)path);
    if (child != 77) {
        check_int(child, ==, 3);
    }
}

static void encode(const char *text, char *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    size_t bytes = strlen(text);
    for (size_t i = 0; i < bytes; i += 3) {
        unsigned bits = (unsigned)(unsigned char)text[i] << 16;
        bits |= i + 1 < bytes ? (unsigned)(unsigned char)text[i + 1] << 8 : 0;
        bits |= i + 2 < bytes ? (unsigned)(unsigned char)text[i + 2] : 0;
        for (unsigned j = 0; j < 4; j++) {
            *out++ = i + j > bytes ? '=' : digits[bits >> (18 - 6 * j) & 63];
        }
    }
    *out = '\0';
}

/* base64 is read with and without padding; damaged text is an error. */
static void base64(void)
{
    char text[256];
    for (int pad = 0; pad < 3; pad++) {
        char json[64];
        snprintf(json, sizeof json, "{\"train_batch_size\": %d}%.*s", 8, pad, "   ");
        encode(json, text);
        struct core_cfg *cfg = NULL;
        check_int(core_cfg_load(text, NULL, &cfg), ==, 0);
        check_int(cfg->train_batch_size, ==, 8);
        check_string(core_cfg_source(cfg), "base64 text");
        core_cfg_destroy(cfg);
        text[strcspn(text, "=")] = '\0';
        check_int(core_cfg_load(text, NULL, &cfg), ==, 0);
        core_cfg_destroy(cfg);
    }
    struct core_cfg *commented = NULL;
    encode("\n// from a launcher\n{}", text);
    check_int(core_cfg_load(text, NULL, &commented), ==, 0);
    core_cfg_destroy(commented);
    encode("{\"train_batch_size\": 8}  ", text);
    text[20] = '\0';
    expect_load(text, -EINVAL, "base64 text:1:2: this string is never closed");
    text[17] = '\0';
    expect_load(text, -EINVAL, "17 characters is cut off");
    text[10] = '!';
    text[16] = '\0';
    expect_load(text, -EINVAL, "character 11 of the base64 text (0x21) is not in its alphabet");
    expect_load("", -EINVAL, "is not a configuration; allowed: a path");
    char *plain = NULL;
    size_t bytes = 0;
    check_int(core_base64_decode("_-8", 3, &plain, &bytes), ==, 0);
    check_uint(bytes, ==, 2);
    check_memory(plain, "\xff\xef", 3);
    free(plain);
    check_int(core_base64_decode("/+8=", 4, &plain, &bytes), ==, 0);
    free(plain);
    check_int(core_base64_decode("AA=", 3, &plain, &bytes), ==, -EINVAL);
    check_int(core_base64_decode("A", 1, &plain, &bytes), ==, -EINVAL);
    check_int(core_base64_decode("", 0, &plain, &bytes), ==, 0);
    free(plain);
}

/* Comments do not change line numbers; refusals are counted. */
static void lines(void)
{
    static const char text[] = "// a\n{ # b\n /* c\n */ \"train_batch_size\": 0, // d\n"
                               " \"fp16\": {\"enabled\": 3,},\n}";
    rig_expect(text, REFUSED, "train_batch_size", 4, "found 0; allowed: an integer of at least 1");
    rig_expect(text, REFUSED, "fp16.enabled", 5, "found 3; allowed: true or false");
    struct core_cfg *cfg = rig_parse(text, NULL);
    check_int(core_cfg_check(cfg), ==, -EINVAL);
    check_contains(core_err_message(), "t.json:4:5: train_batch_size: found 0");
    check_contains(core_err_message(), "(and 1 more)");
    check_string(core_cfg_note_kind_name(core_cfg_note(cfg, 0).kind), "refused");
    core_cfg_destroy(cfg);
    core_cfg_destroy(NULL);
}

TEST_MAIN({"batch_rule", batch_rule}, {"auto_alone", auto_alone}, {"auto_asked", auto_asked},
          {"older_forms", older_forms}, {"unknown_keys", unknown_keys}, {"precision", precision},
          {"offload", offload}, {"types", types}, {"refused_types", refused_types},
          {"features", features}, {"bad_files", bad_files}, {"base64", base64}, {"lines", lines})
