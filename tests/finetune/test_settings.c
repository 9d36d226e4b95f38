/* Tests the settings of a run: defaults, ds_config.json, and flags. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/config/config.h"
#include "tests/harness/heard.h"
#include "tests/harness/test.h"
#include "tools/tide/finetune_place.h"
#include "tools/tide/finetune_settings.h"

static const struct tide_inspection model = {
    .struct_bytes = sizeof model, .vocab = 72, .hidden = 32, .positions = 64};
static const struct cli_command command = {.name = "finetune"};

/* Parses `arguments` (words separated by spaces) with the content `config` of --config, or NULL. */
static int settings_of(const char *config, const char *arguments, struct finetune_settings *out)
{
    static char words[1024];
    static struct finetune_flags flags; /* must outlive the settings */
    struct cli_option options[FINETUNE_OPTIONS_MAX];
    struct cli_parsed parsed;
    char *argv[64] = {NULL};
    int argc = 0;
    snprintf(words, sizeof words, "%s", arguments);
    for (char *rest = words, *word; (word = strsep(&rest, " ")) != NULL && argc < 63;) {
        if (word[0] != '\0') {
            argv[argc++] = word;
        }
    }
    finetune_flags_init(&flags);
    size_t count = finetune_flags_options(&flags, options);
    check_int(cli_parse(&command, options, count, argc, argv, &parsed), ==, -1);
    flags.given = parsed.given;
    if (config != NULL) {
        flags.config = test_file("ds.json", config, strlen(config));
    }
    test_listen(CORE_LOG_WARN);
    int rc = finetune_settings_init(out, &flags, &model);
    if (rc == 0) {
        rc = finetune_settings_fit(
            out, &(struct finetune_data_info){.rows = 10, .longest = 40, .tokens = 125},
            out->steps > 0 ? out->steps : 100);
        if (rc != 0) {
            const struct core_err kept = core_err_keep(rc);
            finetune_settings_fini(out);
            rc = core_err_first(&kept, 0);
        }
    }
    test_listen_end();
    return rc;
}

static void expect(const char *config, const char *arguments, struct finetune_settings *out)
{
    if (settings_of(config, arguments, out) != 0) {
        test_fail(__FILE__, __LINE__, "%s, %s: %s", config, arguments, core_err_message());
    }
}

static void defaults(void)
{
    struct finetune_settings s;
    expect(NULL, "", &s);
    check_string(test_heard(), "");
    check_uint(s.engine.batch, ==, 8);
    check_uint(s.engine.accum, ==, 1);
    check_uint(s.engine.length, ==, 40);
    check_uint(s.engine.seed, ==, 42);
    check_uint(s.engine.precision, ==, TIDE_BF16);
    check_uint(s.engine.optimizer, ==, TIDE_ADAMW);
    check_uint(s.engine.moments, ==, TIDE_MOMENTS_FP32);
    check_uint(s.engine.ranks, ==, 1);
    check_double(s.engine.beta1, ==, 0.9);
    check_double(s.engine.beta2, ==, 0.999);
    check_double(s.engine.eps, ==, 1e-8);
    check_double(s.engine.decay, ==, 0);
    check_double(s.engine.clip, ==, 1);
    check_double(s.epochs, ==, 1);
    check_int(s.schedule.kind, ==, SCHEDULE_CONSTANT);
    check_double(s.schedule.lr, ==, 5e-5);
    check_int(s.schedule.total, ==, 100);
    check_uint(s.engine.store_count, ==, 0);
    finetune_settings_fini(&s);
}

static void flags(void)
{
    struct finetune_settings s;
    expect(
        NULL,
        "--steps 9 --batch 3 --accum 4 --seq-len 16 --seed 7 --shuffle --lr 1e-3 --eps 1e-6 "
        "--weight-decay 0.1 --clip 0 --betas 0.8,0.95 --schedule wsd --warmup 2 --precision fp16 "
        "--optimizer lion --moments 8bit --fp32-grads --freeze *norm* --freeze a.b --base int8 "
        "--dev cuda:1 "
        "--threads 3 --ranks 2 --zero 2 --gather int8 --gather-within 4 "
        "--reduce int4",
        &s);
    check_int(s.steps, ==, 9);
    check_double(s.epochs, ==, 0);
    check_uint(s.engine.batch, ==, 3);
    check_uint(s.engine.accum, ==, 4);
    check_uint(s.engine.length, ==, 16);
    check_uint(s.engine.seed, ==, 7);
    check_uint(s.engine.base, ==, TIDE_BASE_INT8);
    check_true(s.shuffle);
    check_double(s.schedule.lr, ==, 1e-3);
    check_double(s.engine.eps, ==, 1e-6);
    check_double(s.engine.decay, ==, 0.1);
    check_double(s.engine.clip, ==, 0);
    check_double(s.engine.beta1, ==, 0.8);
    check_double(s.engine.beta2, ==, 0.95);
    check_int(s.schedule.kind, ==, SCHEDULE_WSD);
    check_int(s.schedule.warmup, ==, 2);
    check_int(s.schedule.decay, ==, 1);
    check_uint(s.engine.precision, ==, TIDE_FP16);
    check_uint(s.engine.optimizer, ==, TIDE_LION);
    check_uint(s.engine.moments, ==, TIDE_MOMENTS_8BIT);
    check_uint(s.engine.gradients_fp32, ==, 1);
    check_uint(s.engine.frozen_count, ==, 2);
    check_string(s.engine.frozen[1], "a.b");
    check_string(s.engine.device, "cuda:1");
    check_uint(s.engine.threads, ==, 3);
    check_uint(s.engine.ranks, ==, 2);
    check_uint(s.engine.zero_stage, ==, 2);
    check_uint(s.engine.gather, ==, TIDE_GATHER_INT8);
    check_uint(s.engine.reduce, ==, TIDE_REDUCE_INT4);
    check_uint(s.engine.gather_within, ==, 4);
    check_uint(s.engine.lora_rank, ==, 0);
    finetune_settings_fini(&s);
    expect(NULL,
           "--lora 8 --lora-alpha 4.5 --lora-dropout 0.25 --lora-rslora --lora-targets "
           "q_proj,mlp.up_proj "
           "--modules-to-save lm_head",
           &s);
    check_uint(s.engine.lora_rank, ==, 8);
    check_uint(s.engine.lora_dora, ==, 0);
    check_double(s.engine.lora_alpha, ==, 4.5);
    check_uint(s.engine.lora_rslora, ==, 1);
    check_double(s.engine.lora_dropout, ==, 0.25);
    check_uint(s.engine.lora_target_count, ==, 2);
    check_string(s.engine.lora_targets[1], "mlp.up_proj");
    check_uint(s.engine.modules_to_save_count, ==, 1);
    check_string(s.engine.modules_to_save[0], "lm_head");
    finetune_settings_fini(&s);
    expect(NULL, "--reduce fast", &s);
    check_uint(s.engine.reduce, ==, TIDE_REDUCE_FAST);
    finetune_settings_fini(&s);
    expect(NULL, "--lora 8", &s);
    check_uint(s.engine.lora_target_count, ==, 0);
    finetune_settings_fini(&s);
    expect(NULL, "--adapter a --lora-targets all-linear", &s);
    check_string(s.engine.adapter, "a");
    check_uint(s.engine.lora_rank, ==, 0);
    check_uint(s.engine.lora_target_count, ==, 1);
    check_string(s.engine.lora_targets[0], "all-linear");
    finetune_settings_fini(&s);
    check_int(settings_of(NULL, "--lora 8 --lora-targets q_proj,,k_proj", &s), ==, -EINVAL);
    check_contains(core_err_message(), "expected up to 64 names, none of them empty");
    expect(NULL, "--store a:1/s", &s); /* a folder: no size has a slash */
    check_string(s.engine.stores[0].directory, "a:1/s");
    check_uint(s.engine.stores[0].bytes, ==, 0);
    finetune_settings_fini(&s);
    expect(NULL,
           "--device-memory 2GiB --host-memory 1GB --tile-bytes 4M --store a:1G --store b "
           "--place weights=host,states=store,grads=device,acts=recompute --io threads --rates r "
           "--trace t",
           &s);
    check_uint(s.engine.device_bytes, ==, 2ull << 30);
    check_uint(s.engine.host_bytes, ==, 1000000000);
    check_uint(s.engine.tile_bytes, ==, 4 << 20);
    check_uint(s.engine.store_count, ==, 2);
    check_string(s.engine.stores[0].directory, "a");
    check_uint(s.engine.stores[0].bytes, ==, 1 << 30);
    check_string(s.engine.stores[1].directory, "b");
    check_uint(s.engine.stores[1].bytes, ==, 0);
    check_uint(s.engine.weights, ==, TIDE_HOST);
    check_uint(s.engine.states, ==, TIDE_STORE);
    check_uint(s.engine.grads, ==, TIDE_DEVICE);
    check_uint(s.engine.acts, ==, TIDE_ACTS_RECOMPUTE);
    check_string(s.engine.io, "threads");
    check_string(s.engine.rates, "r");
    check_string(s.engine.trace, "t");
    finetune_settings_fini(&s);
}

static void optimizers(void)
{
    struct finetune_settings s;
    expect(NULL, "--optimizer lion", &s);
    check_double(s.engine.beta2, ==, 0.99);
    finetune_settings_fini(&s);
    expect(NULL, "--optimizer adagrad", &s);
    check_double(s.engine.eps, ==, 1e-10);
    finetune_settings_fini(&s);
    expect(NULL, "--optimizer sgd", &s);
    check_double(s.engine.beta1, ==, 0.9);
    finetune_settings_fini(&s);
    expect("{\"train_batch_size\": 2, \"optimizer\": {\"type\": \"Lion\"}}", "", &s);
    check_double(s.engine.beta2, ==, 0.999); /* DeepSpeed's */
    finetune_settings_fini(&s);
}

/* A configuration of DeepSpeed is read. */
static void config(void)
{
    static const char text[] =
        "{\"train_batch_size\": 24, \"gradient_accumulation_steps\": 6, \"gradient_clipping\": "
        "0.5,\n"
        " \"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 2e-4, \"betas\": [0.8, 0.9],\n"
        "   \"eps\": 1e-7, \"weight_decay\": 0.3, \"bias_correction\": false}},\n"
        " \"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"warmup_num_steps\": 5,\n"
        "   \"total_num_steps\": 70, \"warmup_min_lr\": 1e-6, \"warmup_max_lr\": 3e-4}},\n"
        " \"fp16\": {\"enabled\": true, \"initial_scale_power\": 12, \"loss_scale_window\": 50,\n"
        "   \"hysteresis\": 3, \"min_loss_scale\": 4, \"consecutive_hysteresis\": true},\n"
        " \"data_types\": {\"grad_accum_dtype\": \"fp32\"}, \"steps_per_print\": 10,\n"
        " \"activation_checkpointing\": {\"cpu_checkpointing\": true},\n"
        " \"zero_optimization\": {\"stage\": 3, \"zero_quantized_weights\": true, "
        "\"zero_quantized_gradients\": true, \"zero_hpz_partition_size\": 8, "
        "\"offload_param\": {\"device\": \"cpu\"},\n"
        "   \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"/nvme\"}}}";
    struct finetune_settings s;
    expect(text, "", &s);
    check_uint(s.engine.batch, ==, 4);
    check_uint(s.engine.accum, ==, 6);
    check_double(s.engine.clip, ==, 0.5);
    check_uint(s.engine.optimizer, ==, TIDE_ADAMW); /* "Adam" has decoupled decay */
    check_double(s.engine.beta1, ==, 0.8);
    check_double(s.engine.eps, ==, 1e-7);
    check_double(s.engine.decay, ==, 0.3);
    check_uint(s.engine.no_bias_correction, ==, 1);
    check_int(s.schedule.kind, ==, SCHEDULE_WARMUP_DECAY);
    check_double(s.schedule.lr, ==, 3e-4);
    check_double(s.schedule.min_lr, ==, 1e-6);
    check_int(s.schedule.warmup, ==, 5);
    check_int(s.schedule.total, ==, 70);
    check_true(s.schedule.log_warmup);
    check_uint(s.engine.precision, ==, TIDE_FP16);
    check_double(s.engine.initial_loss_scale, ==, 4096);
    check_double(s.engine.min_loss_scale, ==, 4);
    check_uint(s.engine.scale_window, ==, 50);
    check_uint(s.engine.hysteresis, ==, 3);
    check_uint(s.engine.consecutive_hysteresis, ==, 1);
    check_uint(s.engine.gradients_fp32, ==, 1);
    check_int(s.print_every, ==, 10);
    check_uint(s.engine.acts, ==, TIDE_ACTS_HOST);
    check_uint(s.engine.zero_stage, ==, 3);
    check_uint(s.engine.gather, ==, TIDE_GATHER_INT8);
    check_uint(s.engine.reduce, ==, TIDE_REDUCE_INT4);
    check_uint(s.engine.gather_within, ==, 8);
    check_uint(s.engine.weights, ==, TIDE_HOST);
    check_uint(s.engine.states, ==, TIDE_STORE);
    check_uint(s.engine.store_count, ==, 1);
    check_string(s.engine.stores[0].directory, "/nvme");
    finetune_settings_fini(&s);
    expect(text, "--gather exact --reduce exact --gather-within 1", &s);
    check_uint(s.engine.gather_within, ==, 1);
    check_uint(s.engine.gather, ==, TIDE_GATHER_EXACT);
    check_uint(s.engine.reduce, ==, TIDE_REDUCE_EXACT);
    finetune_settings_fini(&s);
    expect("{\"train_micro_batch_size_per_gpu\": 2, \"optimizer\": {\"type\": \"Adam\",\n"
           "\"params\": {\"adam_w_mode\": false}}}",
           "", &s);
    check_uint(s.engine.optimizer, ==, TIDE_ADAM);
    /* Without fp16 and bf16 the precision is fp32, as in DeepSpeed. */
    check_uint(s.engine.precision, ==, TIDE_FP32);
    check_uint(s.engine.states, ==, TIDE_AUTO);
    check_double(s.schedule.lr, ==, 1e-3);
    finetune_settings_fini(&s);
}

/* Optimizers and stores are read from ds_config.json; SGD's momentum is the first beta. */
static void config_optimizers(void)
{
    struct finetune_settings s;
    expect(
        "{\"train_batch_size\": 2, \"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 0.1,\n"
        "\"momentum\": 0.7, \"weight_decay\": 0.2}}}",
        "", &s);
    check_uint(s.engine.optimizer, ==, TIDE_SGD);
    check_double(s.engine.beta1, ==, 0.7);
    check_double(s.engine.decay, ==, 0.2);
    check_double(s.schedule.lr, ==, 0.1);
    finetune_settings_fini(&s);
    expect("{\"train_batch_size\": 2, \"optimizer\": {\"type\": \"Adagrad\", \"params\": {\"lr\": "
           "0.02,\n"
           "\"eps\": 1e-5}}}",
           "", &s);
    check_uint(s.engine.optimizer, ==, TIDE_ADAGRAD);
    check_double(s.engine.eps, ==, 1e-5);
    check_double(s.schedule.lr, ==, 0.02);
    finetune_settings_fini(&s);
    expect("{\"train_batch_size\": 2, \"zero_optimization\": {\"stage\": 3, \"offload_param\": {\n"
           "\"device\": \"nvme\", \"nvme_path\": \"/a\"}, \"offload_optimizer\": {\"device\": "
           "\"nvme\",\n"
           "\"nvme_path\": \"/a\"}}}",
           "", &s);
    check_uint(s.engine.store_count, ==, 1);
    check_string(s.engine.stores[0].directory, "/a");
    check_true(s.engine.weights == TIDE_STORE && s.engine.states == TIDE_STORE);
    finetune_settings_fini(&s);
}

/* Rates are cached where XDG says; relative folders are ignored. */
static void cache_folders(void)
{
    static const struct {
        const char *cache, *home, *folder; /* NULL: not set, or no folder */
    } rows[] = {{"/c", "/h", "/c/tide"},
                {NULL, "/h", "/h/.cache/tide"},
                {"here", "/h", "/h/.cache/tide"},
                {"", "h", NULL},
                {NULL, NULL, NULL}};
    const char *names[2] = {"XDG_CACHE_HOME", "HOME"};
    char *before[2];
    for (int i = 0; i < 2; i++) {
        before[i] = getenv(names[i]) != NULL ? strdup(getenv(names[i])) : NULL;
    }
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct finetune_settings s;
        const char *values[2] = {rows[i].cache, rows[i].home};
        for (int k = 0; k < 2; k++) {
            check_int(values[k] != NULL ? setenv(names[k], values[k], 1) : unsetenv(names[k]), ==,
                      0);
        }
        expect(NULL, "", &s);
        check_string(s.engine.cache != NULL ? s.engine.cache : "none",
                     rows[i].folder != NULL ? rows[i].folder : "none");
        finetune_settings_fini(&s);
    }
    for (int i = 0; i < 2; i++) {
        check_int(before[i] != NULL ? setenv(names[i], before[i], 1) : unsetenv(names[i]), ==, 0);
        free(before[i]);
    }
}

/* A cycle moves the first beta, unless flags override that or the optimizer has no betas. */
static void moving_betas(void)
{
    static const char config[] =
        "{\"train_batch_size\": 2,\n"
        "\"optimizer\": {\"type\": \"Adam\", \"params\": {\"betas\": [0.5, "
        "0.6]}},\n"
        "\"scheduler\": {\"type\": \"OneCycle\", \"params\": {\n"
        "\"cycle_min_lr\": 1e-5, \"cycle_max_lr\": 1e-3,\n"
        "\"cycle_first_step_size\": 7, \"cycle_min_mom\": 0.7,\n"
        "\"decay_step_size\": 3, \"decay_mom_rate\": 0.001}}}";
    struct finetune_settings s;
    expect(config, "--steps 20", &s);
    check_contains(test_heard(), "optimizer.params.betas in");
    check_true(s.schedule.moves_beta);
    check_double(s.schedule.min_beta, ==, 0.7);
    check_double(s.schedule.max_beta, ==, 0.9);
    check_double(s.schedule.beta_decay_rate, ==, 0.001);
    finetune_settings_fini(&s);
    expect(config, "--steps 20 --betas 0.9,0.95", &s);
    check_contains(test_heard(), "--betas wins over scheduler.params.cycle_momentum");
    check_true(!s.schedule.moves_beta);
    check_double(s.engine.beta1, ==, 0.9);
    finetune_settings_fini(&s);
    expect(config, "--steps 20 --optimizer sgd", &s);
    check_contains(test_heard(), "the optimizer has no betas");
    check_true(!s.schedule.moves_beta);
    finetune_settings_fini(&s);
    expect(config, "--steps 20 --schedule cosine", &s);
    check_true(!s.schedule.moves_beta);
    finetune_settings_fini(&s);
}

/* DeepSpeed's schedules are read; flags override them. */
static void schedules(void)
{
    struct finetune_settings s;
    expect("{\"train_batch_size\": 2, \"scheduler\": {\"type\": \"OneCycle\", \"params\": {\n"
           "\"cycle_min_lr\": 1e-5, \"cycle_max_lr\": 1e-3, \"cycle_first_step_size\": 7,\n"
           "\"cycle_first_stair_count\": 3, \"decay_step_size\": 2, \"decay_lr_rate\": 0.5,\n"
           "\"cycle_momentum\": false}}}",
           "", &s);
    check_true(!s.schedule.moves_beta);
    check_int(s.schedule.kind, ==, SCHEDULE_ONE_CYCLE);
    check_int(s.schedule.first_steps, ==, 7);
    check_int(s.schedule.second_steps, ==, 7);
    check_int(s.schedule.second_stairs, ==, 3);
    check_double(schedule_lr(&s.schedule, 7), ==, 1e-3);
    finetune_settings_fini(&s);
    expect("{\"train_batch_size\": 2, \"scheduler\": {\"type\": \"LRRangeTest\", \"params\": {\n"
           "\"lr_range_test_min_lr\": 1e-4, \"lr_range_test_step_size\": 5}}}",
           "--lr 1", &s);
    check_contains(test_heard(), "--lr and --warmup have no effect: LRRangeTest");
    check_int(s.schedule.kind, ==, SCHEDULE_LR_RANGE_TEST);
    check_double(schedule_lr(&s.schedule, 5), ==, 2e-4);
    finetune_settings_fini(&s);
    expect("{\"train_batch_size\": 2, \"scheduler\": {\"type\": \"WarmupCosineLR\", \"params\": {\n"
           "\"warmup_num_steps\": 4, \"total_num_steps\": \"auto\"}}}",
           "--lr 0.5", &s);
    check_int(s.schedule.kind, ==, SCHEDULE_WARMUP_COSINE);
    check_int(s.schedule.total, ==, 100); /* the number of steps of the run */
    check_double(s.schedule.lr, ==, 0.5);
    check_double(s.schedule.cos_min_ratio, ==, 1e-4);
    finetune_settings_fini(&s);
    expect("{\"train_batch_size\": 2, \"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\n"
           "\"warmup_min_lr\": 0.25, \"warmup_max_lr\": 0.5, \"warmup_num_steps\": 4,\n"
           "\"warmup_type\": \"linear\", \"total_num_steps\": 40}}}",
           "", &s);
    check_int(s.schedule.kind, ==, SCHEDULE_WARMUP_DECAY);
    check_int(s.schedule.warmup, ==, 4);
    check_int(s.schedule.total, ==, 40); /* not the 100 steps of the run */
    check_true(!s.schedule.log_warmup);
    check_double(s.schedule.min_lr, ==, 0.25);
    check_double(s.schedule.lr, ==, 0.5);
    finetune_settings_fini(&s);
    expect("{\"train_batch_size\": 2, \"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\n"
           "\"warmup_min_lr\": 0.25, \"warmup_max_lr\": 0.5, \"warmup_num_steps\": 4}}}",
           "", &s);
    check_int(s.schedule.kind, ==, SCHEDULE_WARMUP);
    check_int(s.schedule.warmup, ==, 4);
    check_true(s.schedule.log_warmup);
    check_double(s.schedule.min_lr, ==, 0.25);
    check_double(s.schedule.lr, ==, 0.5);
    finetune_settings_fini(&s);
    expect("{\"train_batch_size\": 2, \"scheduler\": {\"type\": \"WarmupLR\", \"params\": {}}}",
           "--schedule cosine --warmup 3 --steps 50", &s);
    check_int(s.schedule.kind, ==, SCHEDULE_COSINE);
    check_int(s.schedule.total, ==, 50);
    check_contains(test_heard(), "--schedule wins over scheduler.type");
    finetune_settings_fini(&s);
}

/* A flag overrides "auto" without a warning, and other values with a warning. */
static void contradictions(void)
{
    struct finetune_settings s;
    expect(
        "{\"train_batch_size\": \"auto\", \"train_micro_batch_size_per_gpu\": \"auto\",\n"
        "\"gradient_accumulation_steps\": \"auto\", \"bf16\": {\"enabled\": \"auto\"},\n"
        "\"gradient_clipping\": \"auto\", \"optimizer\": {\"type\": \"AdamW\", \"params\": {\n"
        "\"lr\": \"auto\", \"betas\": \"auto\", \"eps\": \"auto\", \"weight_decay\": \"auto\"}}}",
        "--batch 2 --accum 3 --lr 0.25 --eps 1e-5 --weight-decay 0.5 --clip 2 --betas 0.5,0.6", &s);
    check_string(test_heard(), "");
    check_uint(s.engine.batch, ==, 2);
    check_uint(s.engine.accum, ==, 3);
    check_double(s.schedule.lr, ==, 0.25);
    check_double(s.engine.clip, ==, 2);
    check_double(s.engine.beta2, ==, 0.6);
    check_uint(s.engine.precision, ==, TIDE_BF16);
    finetune_settings_fini(&s);
    expect("{\n\"train_batch_size\": 32, \"train_micro_batch_size_per_gpu\": 4,\n"
           "\"bf16\": {\"enabled\": true}, \"zero_optimization\": {\"stage\": 2},\n"
           "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-4}}}",
           "--batch 2 --lr 1e-3 --precision fp32 --zero 1 --optimizer sgd", &s);
    check_uint(s.engine.batch, ==, 2);
    check_uint(s.engine.accum, ==, 16); /* the step still has 32 rows */
    check_contains(test_heard(), "--batch wins over train_micro_batch_size_per_gpu: 4 in ");
    check_contains(test_heard(), "--lr wins over optimizer.params.lr: 0.0001 in ");
    check_contains(test_heard(), "ds.json, line 4");
    check_contains(test_heard(), "--precision wins over bf16.enabled: true");
    check_contains(test_heard(), "--zero wins over zero_optimization.stage: 2");
    check_contains(test_heard(), "--optimizer wins over optimizer.type: \"AdamW\"");
    finetune_settings_fini(&s);
    expect("{\"train_batch_size\": 32, \"gradient_accumulation_steps\": 4}", "--batch 3 --accum 2",
           &s);
    check_contains(test_heard(), "a step has 6 rows (--batch, --accum), but ");
    check_contains(test_heard(), ", line 1, has train_batch_size: 32");
    finetune_settings_fini(&s);
    expect("{\"train_batch_size\": 2, \"zero_optimization\": {\"stage\": 3, \"offload_param\": {\n"
           "\"device\": \"nvme\", \"nvme_path\": \"/a\"}}}",
           "--store /b", &s);
    check_uint(s.engine.store_count, ==, 1);
    check_string(s.engine.stores[0].directory, "/b");
    check_contains(test_heard(),
                   "--store wins over zero_optimization.offload_param.nvme_path: \"/a\"");
    finetune_settings_fini(&s);
    expect("{\"train_batch_size\": 2, \"dump_state\": true}", "", &s);
    check_contains(test_heard(), "without effect here: dump_state");
    finetune_settings_fini(&s);
}

/* A flag overrides the keys that set its value; keys with another value cause a warning. */
static void every_flag_tells(void)
{
    static const struct {
        const char *config; /* keys besides the batch size */
        const char *flag;
        const char *key; /* NULL: no warning */
    } cases[] = {
        {"\"train_micro_batch_size_per_gpu\": 2", "--batch 1", "train_micro_batch_size_per_gpu: 2"},
        {"\"gradient_accumulation_steps\": 2", "--accum 1", "gradient_accumulation_steps: 2"},
        {"\"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 0.5}}", "--lr 0.1",
         "optimizer.params.lr: 0.5"},
        {"\"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 0.5}}", "--lr 0.5", NULL},
        {"\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_max_lr\": 0.5}}",
         "--lr 0.1", "scheduler.params.warmup_max_lr: 0.5"},
        {"\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_num_steps\": 5}}",
         "--warmup 3", "scheduler.params.warmup_num_steps: 5"},
        {"\"optimizer\": {\"type\": \"Adam\", \"params\": {\"betas\": [0.5, 0.5]}}",
         "--betas 0.9,0.5", "optimizer.params.betas: [0.5"},
        {"\"optimizer\": {\"type\": \"Adam\", \"params\": {\"eps\": 0.5}}", "--eps 0.1",
         "optimizer.params.eps: 0.5"},
        {"\"optimizer\": {\"type\": \"Adam\", \"params\": {\"weight_decay\": 0.5}}",
         "--weight-decay 0.1", "optimizer.params.weight_decay: 0.5"},
        {"\"gradient_clipping\": 0.5", "--clip 1", "gradient_clipping: 0.5"},
        {"\"optimizer\": {\"type\": \"Adam\", \"params\": {\"adam_w_mode\": false}}",
         "--optimizer adamw", "optimizer.type: \"Adam\""},
        {"\"fp16\": {\"enabled\": true}", "--precision bf16", "fp16.enabled: true"},
        {"\"bf16\": {\"enabled\": true}, \"fp16\": {\"enabled\": false}", "--precision fp32",
         "bf16.enabled: true"},
        {"\"bf16\": {\"enabled\": true}", "--precision bf16", NULL},
        {"\"optimizer\": {\"type\": \"Adam\", \"params\": {\"fp32_optimizer_states\": false}}",
         "--moments fp32", "optimizer.params.fp32_optimizer_states: false"},
        {"\"optimizer\": {\"type\": \"Adam\", \"params\": {\"fp32_optimizer_states\": true}}",
         "--moments bf16", "optimizer.params.fp32_optimizer_states: true"},
        {"\"bf16\": {\"enabled\": true, \"bf16_optimizer_states\": false}", "--moments 8bit",
         "bf16.bf16_optimizer_states: false"},
        {"\"data_types\": {\"grad_accum_dtype\": \"bf16\"}", "--fp32-grads",
         "data_types.grad_accum_dtype: \"bf16\""},
        {"\"zero_optimization\": {\"stage\": 2}", "--zero 1", "zero_optimization.stage: 2"},
        {"\"zero_optimization\": {\"stage\": 3, \"offload_param\": {\"device\": \"cpu\"}}",
         "--place weights=device", "zero_optimization.offload_param.device: \"cpu\""},
        {"\"zero_optimization\": {\"stage\": 3, \"offload_param\": {\"device\": \"cpu\"}}",
         "--place states=host", NULL},
        {"\"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": {\"device\": \"cpu\"}}",
         "--place states=device", "zero_optimization.offload_optimizer.device: \"cpu\""},
        {"\"activation_checkpointing\": {\"cpu_checkpointing\": true}", "--place acts=keep",
         "activation_checkpointing.cpu_checkpointing: true"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct finetune_settings s;
        char text[512];
        char message[256];
        const char *flag = cases[i].flag;
        const bool batch = strncmp(cases[i].config, "\"train_m", 8) == 0;
        snprintf(text, sizeof text, "{%s%s}",
                 batch ? "" : "\"train_micro_batch_size_per_gpu\": 4, ", cases[i].config);
        expect(text, flag, &s);
        finetune_settings_fini(&s);
        snprintf(message, sizeof message, "%.*s wins over %s", (int)strcspn(flag, " "), flag,
                 cases[i].key != NULL ? cases[i].key : "");
        const char *told = strstr(test_heard(), " wins over ");
        if (cases[i].key == NULL ? told != NULL
                                 : strstr(test_heard(), message) == NULL ||
                                       strstr(told + 1, " wins over ") != NULL) {
            test_fail(__FILE__, __LINE__, "%s %s: heard %s, wanted %s", text, flag, test_heard(),
                      message);
        }
    }
}

/* Keys that do not fit into a line are counted, and no name is cut. */
static void many_keys_are_told_whole(void)
{
    struct finetune_settings s;
    expect("{\"train_batch_size\": 2, \"dump_state\": true, \"memory_breakdown\": true,\n"
           "\"wall_clock_breakdown\": true, \"prescale_gradients\": true,\n"
           "\"disable_allgather\": true, \"zero_optimization\": {\"stage\": 2,\n"
           "\"contiguous_gradients\": true, \"reduce_scatter\": true, \"overlap_comm\": true,\n"
           "\"allgather_partitions\": true, \"reduce_bucket_size\": 5e8,\n"
           "\"allgather_bucket_size\": 5e8, \"round_robin_gradients\": true,\n"
           "\"sub_group_size\": 1e9, \"stage3_prefetch_bucket_size\": 5e7,\n"
           "\"stage3_param_persistence_threshold\": 1e5, \"stage3_max_live_parameters\": 1e9,\n"
           "\"stage3_max_reuse_distance\": 1e9}}",
           "", &s);
    const char *line = strstr(test_heard(), "without effect here: ");
    check_true(line != NULL);
    const char *more = strstr(line, " and ");
    check_true(more != NULL && strstr(more, " more (tide config says why)") != NULL);
    const char *last = more;
    while (last[-1] != ' ') {
        last--;
    }
    size_t known = 0;
    for (size_t i = 0; i < core_cfg_notes_count(s.config.cfg); i++) {
        const struct core_cfg_note note = core_cfg_note(s.config.cfg, i);
        known += strlen(note.key) == (size_t)(more - last) &&
                 strncmp(note.key, last, strlen(note.key)) == 0;
    }
    check_uint(known, ==, 1);
    finetune_settings_fini(&s);
}

/* A synonym is not a flag of tide, and flags in answers to synonyms exist. */
static void synonyms(void)
{
    struct finetune_flags all;
    struct cli_option options[FINETUNE_OPTIONS_MAX];
    const size_t count = finetune_flags_options(&all, options);
    size_t rows = 0;
    for (const struct cli_synonym *row = finetune_flags_synonyms; row->theirs != NULL;
         row++, rows++) {
        bool known = strncmp(row->ours, "--", 2) != 0;
        for (size_t i = 0; i < count; i++) {
            const size_t length = strlen(options[i].name);
            check_true(strcmp(options[i].name, row->theirs) != 0);
            known |= strncmp(row->ours + 2, options[i].name, length) == 0 &&
                     (row->ours[2 + length] == ' ' || row->ours[2 + length] == '\0');
        }
        if (!known) {
            test_fail(__FILE__, __LINE__, "--%s: %s", row->theirs, row->ours);
        }
    }
    check_uint(rows, >, 100);
}

static void refusals(void)
{
    static const struct {
        const char *config;
        const char *arguments;
        const char *message;
    } cases[] = {
        {NULL, "--place weights=disk", "invalid \"weights=disk\"; allowed: weights"},
        {NULL, "--place acts=device", "invalid \"acts=device\""},
        {NULL, "--place weights", "invalid \"weights\""},
        {NULL, "--place weights=host,weights=device", "--place sets weights twice"},
        {NULL, "--place states=store", "--place needs a store: give --store DIR"},
        {NULL, "--store :1G", "--store :1G: allowed: the path"},
        {NULL, "--store a:0", "a store of 0 bytes"},
        {NULL, "--store a:1X", "--store a:1X"},
        {NULL, "--store a --store a", "--store a is given twice"},
        {NULL, "--betas 0.9", "--betas takes two numbers"},
        {NULL, "--betas 0.9,1", "--betas takes two numbers"},
        {NULL, "--betas 0.9,0.9,", "--betas takes two numbers"},
        {NULL, "--betas 0.9,0.9999999999", "--betas takes two numbers from 0 to below 1 in fp32"},
        {"{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"betas\": [0.9999999999, 0.9]}}}", "",
         "optimizer.params.betas: found [0.9999999999,0.9]; allowed: two numbers in brackets, "
         "each from 0 to below 1 in fp32"},
        {NULL, "--host-memory 0", "--host-memory 0: nothing fits"},
        {NULL, "--io pigeon", "--io takes one of uring|libaio|threads|mem"},
        {NULL, "--dev tpu", "--dev takes one of cpu|cuda|cuda:N[,M...]"},
        {NULL, "--seq-len 65", "rows of up to 64 tokens"},
        {"{\"train_micro_batch_size_per_gpu\": 1, \"gradient_accumulation_steps\": 16385}", "",
         "the maximum is 16384 micro-batches"},
        {"{\"train_batch_size\": 7, \"gradient_accumulation_steps\": \"auto\"}", "--batch 2",
         "is not a multiple of --batch 2"},
        {"{\"train_batch_size\": 6, \"train_micro_batch_size_per_gpu\": 2}", "--batch 4",
         "is not a multiple of --batch 4 x 1 ranks"},
        {"{\"train_batch_size\": 2, \"zero_optimization\": {\"stage\": 7}}", "",
         "found 7; allowed: an integer from 0 to 3"},
        {"{\"train_micro_batch_size_per_gpu\": 2e9}", "", "2000000000 rows per step; the maximum"},
        {"{\"train_batch_size\": 2, \"scheduler\": {\"type\": \"OneCycle\", \"params\": {\n"
         "\"cycle_min_lr\": 1e-5, \"cycle_max_lr\": 1e-3, \"cycle_first_step_size\": 3,\n"
         "\"decay_step_size\": 2, \"decay_mom_rate\": 0.5}}}",
         "--steps 9", "decay_mom_rate 0.5 lets the first beta grow to 1.35 by step 9"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct finetune_settings s;
        int rc = settings_of(cases[i].config, cases[i].arguments, &s);
        if (rc != -EINVAL || strstr(core_err_message(), cases[i].message) == NULL) {
            test_fail(__FILE__, __LINE__, "case %zu (%s): %d, \"%s\"", i, cases[i].arguments, rc,
                      core_err_message());
        }
    }
}

/* A warmup may be longer than the run. DeepSpeed's warmup has at least two steps. */
static void warmups(void)
{
    struct finetune_settings s;
    expect(NULL, "--warmup 9 --steps 5 --schedule wsd --lr 0.9", &s);
    check_contains(test_heard(), "--warmup 9 is not shorter than the run, 5 steps: ");
    check_double(fabs(schedule_lr(&s.schedule, 4) - 0.4), <, 1e-12);
    check_int(finetune_settings_fit(
                  &s, &(struct finetune_data_info){.rows = 10, .longest = 40, .tokens = 125},
                  FINETUNE_STEPS_MAX + INT64_C(1)),
              ==, -EINVAL);
    check_contains(core_err_message(), "the maximum is 100000000");
    finetune_settings_fini(&s);
#define WARMUP(steps)                                                                              \
    "{\"train_batch_size\": 2, \"scheduler\": {\"type\": \"WarmupLR\", \"params\": {"              \
    "\"warmup_num_steps\": " steps "}}}"
    expect(WARMUP("\"auto\""), "--warmup 5", &s);
    check_int(s.schedule.warmup, ==, 5);
    check_string(test_heard(), "");
    finetune_settings_fini(&s);
    expect(WARMUP("\"auto\""), "", &s);
    check_contains(test_heard(), "for at least 2 steps: the first two have the lowest rate");
    finetune_settings_fini(&s);
    expect(WARMUP("0"), "", &s);
    check_contains(test_heard(), "for at least 2 steps: the first two have the lowest rate");
    finetune_settings_fini(&s);
}

/* A folder that is given under two names is one store. */
static void same_stores(void)
{
    struct tide_engine_options options;
    struct tide_store_path paths[TIDE_STORES_MAX];
    struct finetune_settings s;
    char places[2][512];
    char one[256];
    char name[512];
    snprintf(one, sizeof one, "%s/same", test_directory());
    snprintf(name, sizeof name, "%s/link", test_directory());
    check_int(symlink("same", name), ==, 0);
    for (int made = 0; made < 2; made++) {
        check_int(made == 0 ? 0 : mkdir(one, 0700), ==, 0);
        snprintf(name, sizeof name, "%s/link", test_directory());
        const char *const others[] = {name, "/same/", "/./same", "//same//"};
        for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
            char other[512];
            snprintf(other, sizeof other, "%s%s", i == 0 ? "" : test_directory(), others[i]);
            options = (struct tide_engine_options){.struct_bytes = sizeof options};
            check_int(finetune_store_parse(one, &options, paths, places[0], 512), ==, 0);
            check_int(finetune_store_parse(other, &options, paths, places[1], 512), ==, -EINVAL);
            check_contains(core_err_message(), " are the same folder; give it once");
            check_uint(options.store_count, ==, 1);
        }
    }
    expect("{\"train_batch_size\": 2, \"zero_optimization\": {\"stage\": 3, \"offload_param\": "
           "{\"device\": \"nvme\", \"nvme_path\": \"/tmp\"}, \"offload_optimizer\": "
           "{\"device\": \"nvme\", \"nvme_path\": \"/tmp/../tmp/\"}}}",
           "", &s);
    check_uint(s.engine.store_count, ==, 1);
    finetune_settings_fini(&s);
}

/* The number of stores and the lengths of their names are limited. A size may follow the last
 * colon. */
static void stores(void)
{
    struct tide_engine_options options = {.struct_bytes = sizeof options};
    struct tide_store_path paths[TIDE_STORES_MAX];
    char names[TIDE_STORES_MAX + 1][16];
    for (uint32_t i = 0; i <= TIDE_STORES_MAX; i++) {
        char text[16];
        snprintf(text, sizeof text, "d%u", i);
        check_int(finetune_store_parse(text, &options, paths, names[i], sizeof names[i]), ==,
                  i < TIDE_STORES_MAX ? 0 : -EINVAL);
    }
    options.store_count = 0;
    check_int(finetune_store_parse("a:b", &options, paths, names[0], sizeof names[0]), ==, -EINVAL);
    check_contains(core_err_message(), "\"b\" is not a size");
    check_int(finetune_store_parse("a:b/c", &options, paths, names[0], sizeof names[0]), ==, 0);
    check_string(names[0], "a:b/c");
    check_int(
        finetune_store_parse("far/too/long/a/name", &options, paths, names[1], sizeof names[1]), ==,
        -EINVAL);
    double betas[2];
    check_int(finetune_betas_parse("0,0.5", &betas[0], &betas[1]), ==, 0);
    check_double(betas[1], ==, 0.5);
    check_int(finetune_place_parse("acts=keep", &options), ==, 0);
    check_uint(options.acts, ==, TIDE_ACTS_KEEP);
}

/* Training reads the data as requested, evaluation reads rows in order and unpacked. */
static void data(void)
{
    struct finetune_settings s;
    expect(NULL,
           "--batch 3 --accum 4 --ranks 2 --seq-len 16 --pack --split --shuffle --seed 9 "
           "--on-bad-row skip --train-on all --chat-format chatml",
           &s);
    struct finetune_data_options train = finetune_settings_data(&s, "rows", true);
    check_string(train.path, "rows");
    check_uint(train.batch, ==, 3);
    check_uint(train.step_max, ==, 8);
    check_int(train.length_max, ==, 16);
    check_int(train.vocab, ==, 72);
    check_true(train.cut && train.pack && train.split && train.shuffle && train.skip_bad);
    check_true(train.train_on_all);
    check_string(train.chat_format, "chatml");
    check_uint(train.seed, ==, 9);
    struct finetune_data_options eval = finetune_settings_data(&s, "rows", false);
    check_uint(eval.step_max, ==, 1);
    check_true(!eval.pack && !eval.shuffle && !eval.drop_last);
    finetune_settings_fini(&s);
}

/* Not more micro-batches are planned than an epoch is known to have. */
static void accum(void)
{
    static const struct {
        const char *flags;
        bool whole;
        int64_t micro_batches;
        unsigned accum;
    } cases[] = {
        {"", true, 3, 3},
        {"", false, 3, 4},
        {"", true, 9, 4},
        {"--ranks 2", true, 3, 3},
        {"--ranks 2", true, 5, 4},
        {"--shuffle", true, 3, 3},
        {"--pack --seq-len 16", true, 3, 3},
        {"--pack --seq-len 16 --shuffle", true, 3, 4},
        {"--split --seq-len 16 --shuffle", true, 3, 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct finetune_settings s;
        char arguments[128];
        snprintf(arguments, sizeof arguments, "--accum 4 %s", cases[i].flags);
        expect(NULL, arguments, &s);
        check_uint(s.engine.accum, ==, 4);
        const struct finetune_data_info info = {.whole = cases[i].whole,
                                                .rows = 9,
                                                .longest = 8,
                                                .tokens = 72,
                                                .batch = 3,
                                                .micro_batches = cases[i].micro_batches};
        check_int(finetune_settings_fit(&s, &info, 5), ==, 0);
        check_uint(s.engine.batch, ==, 3);
        check_uint(s.engine.accum, ==, cases[i].accum);
        finetune_settings_fini(&s);
    }
}

TEST_MAIN({"warmups", warmups}, {"every_flag_tells", every_flag_tells},
          {"many_keys_are_told_whole", many_keys_are_told_whole}, {"synonyms", synonyms},
          {"data", data}, {"accum", accum}, {"defaults", defaults}, {"flags", flags},
          {"optimizers", optimizers}, {"config", config}, {"schedules", schedules},
          {"config_optimizers", config_optimizers}, {"cache_folders", cache_folders},
          {"moving_betas", moving_betas}, {"contradictions", contradictions},
          {"refusals", refusals}, {"same_stores", same_stores}, {"stores", stores})
