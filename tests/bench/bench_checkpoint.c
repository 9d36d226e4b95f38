/* bench_checkpoint.c: how fast a checkpoint is written, verified and resumed from, compared with
 * fio in the same folder.
 *
 *   bench_checkpoint DIR [--quick | --large] [--rounds N]
 *
 * The model has 158 million parameters (1.9 GB); with --quick 0.7 million, with --large 1.1 billion
 * (13.2 GB). DIR holds the checkpoint, fio's file of at most 4 GB and a store as large as the
 * checkpoint, and is empty at the end. Rounds (three; with --quick, one) overwrite existing files,
 * except the store. After a store is removed, the drive rests.
 *
 * Prints `name value unit` lines: medians, and their ratios over the mean of fio's runs before and
 * after: `checkpoint_write` over --rw=write, `checkpoint_verify` and `resume_read` over --rw=read
 * (no ratios without fio). fio runs with --bs=1M --iodepth=16 --ioengine=io_uring --direct=1, and
 * --end_fsync=1 for writes, over as many bytes. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/mem.h"
#include "core/json/json.h"
#include "offload/model/config_read.h"
#include "offload/plan/shard.h"
#include "offload/run/engine.h"

enum { CHUNK = 4 << 20, ROUNDS_MAX = 15, REST_SECONDS = 8, PATH_BYTES = 4096 };

static const char small_json[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 512, \"hidden_size\": 128,"
    " \"intermediate_size\": 320, \"num_hidden_layers\": 3, \"num_attention_heads\": 2,"
    " \"num_key_value_heads\": 1, \"max_position_embeddings\": 512, \"rms_norm_eps\": 1e-5,"
    " \"tie_word_embeddings\": false}";
static const char usual_json[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 8192, \"hidden_size\": 1024,"
    " \"intermediate_size\": 2816, \"num_hidden_layers\": 12, \"num_attention_heads\": 16,"
    " \"num_key_value_heads\": 8, \"max_position_embeddings\": 4096, \"rms_norm_eps\": 1e-6,"
    " \"tie_word_embeddings\": false}";
static const char large_json[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 32000, \"hidden_size\": 2048,"
    " \"intermediate_size\": 5632, \"num_hidden_layers\": 22, \"num_attention_heads\": 32,"
    " \"num_key_value_heads\": 4, \"max_position_embeddings\": 4096, \"rms_norm_eps\": 1e-5,"
    " \"tie_word_embeddings\": false}";

static struct {
    const char *directory;
    char store[PATH_BYTES];
    char shelf[PATH_BYTES];
    char checkpoint[PATH_BYTES];
    unsigned rounds;
    unsigned rest_seconds;
    struct model *model;
    struct run_options options;
    struct run_prepared *prepared;
    struct store_image image;
    struct core_region slot; /* chunks are written from here */
    double bytes;            /* of a checkpoint's arrays */
    bool fio;
} bench;

static void check(int rc, const char *what)
{
    if (rc != 0) {
        fprintf(stderr, "bench_checkpoint: %s: %s\n", what, core_err_message());
        exit(1);
    }
}

static double seconds_since(int64_t begin_ns)
{
    return (double)(core_clock_now_ns() - begin_ns) * 1e-9;
}

static void rest(void)
{
    sync();
    sleep(bench.rest_seconds);
}

/* ---- the model and the checkpoint ---- */

static void make_model(const char *text)
{
    struct model_config config;
    struct core_json *doc = NULL;
    check(core_json_parse(text, strlen(text), "the model", NULL, &doc), "model");
    check(model_config_parse(doc, &config), "model");
    check(model_create(&config, NULL, &bench.model), "model");
    core_json_destroy(doc);
}

static void make_plan(void)
{
    static const struct run_rates rates = {.machine = {.read_bytes = 3e9,
                                                       .write_bytes = 3e9,
                                                       .mixed_bytes = 4e9,
                                                       .flops = 7e11,
                                                       .update_elements = 1e9,
                                                       .sums_elements = 4e9,
                                                       .window_bytes = 64 << 20,
                                                       .command_seconds = 2e-6,
                                                       .shared_cores = true}};
    bench.options = (struct run_options){
        .device = "cpu",
        .threads = 2,
        .world = 1,
        .rows = 1,
        .length = 64,
        .micro_batches = 1,
        .type = KERN_BF16,
        .rule = CORE_UPDATE_ADAMW,
        .moments = CORE_UPDATE_F32,
        .group = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .bias_correction = true},
        .clip = 1,
        .budgets = {.device_bytes = UINT64_C(4) << 30,
                    .host_bytes = UINT64_C(4) << 30,
                    .store_bytes = UINT64_C(1) << 40,
                    .device_is_host = true},
        .wishes = {.weights = PLAN_WHERE_STORE,
                   .states = PLAN_WHERE_STORE,
                   .timing = PLAN_TIMING_DEFERRED},
        .stores = {{.directory = bench.store, .weight = 1}},
        .store_count = 1,
    };
    check(run_prepared_create(bench.model, &bench.options, &rates, &bench.prepared), "plan");
}

static struct store_arrays arrays_of(void)
{
    char *at = (char *)bench.slot.base;
    return (struct store_arrays){
        .at = {at, at + (size_t)CHUNK * 2, at + (size_t)CHUNK * 4, at + (size_t)CHUNK * 8}};
}

static void make_slot(void)
{
    const struct core_region_options options = {.bytes = (uint64_t)CHUNK * 12};
    check(core_region_alloc(&options, &bench.slot), "memory");
    for (size_t i = 0; i < (size_t)CHUNK * 12; i++) {
        bench.slot.base[i] = (unsigned char)(i * 2654435761u >> 7);
    }
}

/* Writes the blocks; chunks have the bytes of one slot. */
static void put_all(struct store_checkpoint_write *checkpoint, struct store_flow *flow)
{
    const struct store_arrays arrays = arrays_of();
    for (uint32_t b = 0; b < bench.model->block_count; b++) {
        const uint64_t elements = bench.model->blocks[b].elements;
        for (uint64_t at = 0; at < elements; at += CHUNK) {
            const uint64_t count = elements - at < CHUNK ? elements - at : CHUNK;
            check(flow != NULL ? store_flow_begin(flow, b, at, count, &arrays)
                               : store_checkpoint_put_begin(checkpoint, b, at, count, &arrays),
                  "write");
        }
    }
}

/* Writes a checkpoint that can be resumed. */
static void make_checkpoint(void)
{
    struct store_shelf *shelf = NULL;
    struct store_checkpoint_write *write = NULL;
    struct store_checkpoint *made = NULL;
    struct store_manifest manifest = {.step = 0};
    const struct run_position position = {
        .run = 1, .steps = 1, .updates = 1, .scale = {.value = 1}};
    check(store_shelf_open(bench.shelf, &shelf), "checkpoints");
    const struct store_checkpoint_options options = {.shelf = shelf};
    run_checkpoint_describe(&bench.options, bench.model->flat, &position, &manifest);
    check(store_checkpoint_begin(&options, &manifest, &write), "checkpoint");
    put_all(write, NULL);
    check(store_checkpoint_finish(write), "checkpoint");
    check(store_checkpoint_end(write), "checkpoint");
    store_shelf_path(bench.shelf, 1, bench.checkpoint, sizeof bench.checkpoint);
    store_shelf_close(shelf);
    check(store_checkpoint_open(bench.checkpoint, NULL, NULL, &made), "checkpoint");
    const struct store_manifest *found = store_checkpoint_manifest(made);
    check(store_image_init(&bench.image, &found->format, found->weight_dtype, bench.model->flat),
          "image");
    check(store_checkpoint_close(made), "checkpoint");
    for (int s = 0; s < STORE_STREAM_COUNT; s++) {
        bench.bytes += (double)store_image_file_bytes(&bench.image, (enum store_stream)s);
    }
}

/* ---- measurements, in bytes per second ---- */

/* Overwrites the checkpoint's files with their contents, durably. */
static double write_all(void)
{
    struct store_flow *flow = NULL;
    const int folder = open(bench.checkpoint, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const struct store_flow_options options = {
        .image = &bench.image, .folder = folder, .name = bench.checkpoint, .writes = true};
    check(store_flow_open(&options, &flow), "write");
    const int64_t begin_ns = core_clock_now_ns();
    put_all(NULL, flow);
    check(store_flow_sync(flow), "sync");
    const double rate = bench.bytes / seconds_since(begin_ns);
    check(store_flow_close(flow), "write");
    close(folder);
    return rate;
}

static double verify_all(void)
{
    struct store_checkpoint *checkpoint = NULL;
    const int64_t begin_ns = core_clock_now_ns();
    check(store_checkpoint_open(bench.checkpoint, NULL, NULL, &checkpoint), "verify");
    check(store_checkpoint_verify(checkpoint, NULL, NULL, NULL), "verify");
    const double rate = bench.bytes / seconds_since(begin_ns);
    check(store_checkpoint_close(checkpoint), "verify");
    return rate;
}

/* When the engine had its store, and when its states were in the store. */
static int64_t there_ns, loaded_ns;

static int note(void *user, const char *phase, uint64_t done, uint64_t total)
{
    (void)user;
    there_ns = strcmp(phase, "store") == 0 ? core_clock_now_ns() : there_ns;
    loaded_ns = strcmp(phase, "load") == 0 && done == total ? core_clock_now_ns() : loaded_ns;
    return 0;
}

static double resume_all(void)
{
    struct run_engine *engine = NULL;
    const struct run_engine_options options = {.prepared = bench.prepared,
                                               .options = &bench.options,
                                               .model = bench.model,
                                               .checkpoint = bench.checkpoint,
                                               .progress = note};
    there_ns = loaded_ns = 0;
    check(run_engine_create(&options, &engine), "resume");
    run_engine_destroy(engine);
    rest();
    return bench.bytes / ((double)(loaded_ns - there_ns) * 1e-9);
}

/* Returns the n-th field, from 1, of fio's terse output. */
static double field(const char *line, int n)
{
    for (int i = 1; i < n && line != NULL; i++) {
        line = strchr(line, ';');
        line = line != NULL ? line + 1 : NULL;
    }
    return line != NULL ? atof(line) : 0;
}

static double fio(const char *pattern, const char *more)
{
    const double file = bench.bytes < 4e9 ? bench.bytes : 4e9;
    char command[PATH_BYTES + 400];
    char line[8192] = "";
    if (!bench.fio) {
        return 0;
    }
    snprintf(command, sizeof command,
             "fio --name=fio --directory='%s' --size=%.0f --io_size=%.0f --bs=1M --iodepth=16"
             " --ioengine=io_uring --direct=1 --rw=%s %s --minimal 2>/dev/null",
             bench.directory, file, bench.bytes, pattern, more);
    FILE *pipe = popen(command, "r");
    if (pipe == NULL || fgets(line, sizeof line, pipe) == NULL || pclose(pipe) != 0) {
        fprintf(stderr, "bench_checkpoint: fio failed\n");
        exit(1);
    }
    return (field(line, 7) + field(line, 48)) * 1024;
}

/* ---- rounds ---- */

enum { WRITE, VERIFY, RESUME, FIGURES };
static const char *const names[FIGURES] = {"checkpoint_write", "checkpoint_verify", "resume_read"};

struct round {
    double ours[FIGURES];
    double fio[FIGURES];
};

static struct round measure(void)
{
    struct round round;
    const double write = fio("write", "--end_fsync=1");
    round.ours[WRITE] = write_all();
    round.fio[WRITE] = (write + fio("write", "--end_fsync=1")) / 2;
    const double read = fio("read", "");
    round.ours[VERIFY] = verify_all();
    round.ours[RESUME] = resume_all();
    round.fio[VERIFY] = round.fio[RESUME] = (read + fio("read", "")) / 2;
    for (int i = 0; i < FIGURES; i++) {
        fprintf(stderr, "# %s %.3f GB/s, fio %.3f GB/s\n", names[i], round.ours[i] / 1e9,
                round.fio[i] / 1e9);
    }
    return round;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, unsigned count)
{
    qsort(values, count, sizeof *values, by_size);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

static void report(const struct round *rounds, int figure)
{
    double ours[ROUNDS_MAX];
    double theirs[ROUNDS_MAX];
    double ratios[ROUNDS_MAX];
    for (unsigned i = 0; i < bench.rounds; i++) {
        ours[i] = rounds[i].ours[figure];
        theirs[i] = rounds[i].fio[figure];
        ratios[i] = bench.fio ? ours[i] / theirs[i] : 0;
    }
    printf("%s %.3f GB/s\n", names[figure], median(ours, bench.rounds) / 1e9);
    if (bench.fio) {
        printf("%s_fio %.3f GB/s\n", names[figure], median(theirs, bench.rounds) / 1e9);
        printf("%s_ratio %.3f x\n", names[figure], median(ratios, bench.rounds));
    }
}

static void clear(void)
{
    static const char *const files[] = {"weights.safetensors", "master.safetensors",
                                        "m.safetensors",       "v.safetensors",
                                        "sums.safetensors",    "manifest.json"};
    char name[PATH_BYTES + 40];
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        snprintf(name, sizeof name, "%s/%s", bench.checkpoint, files[i]);
        (void)unlink(name);
    }
    (void)rmdir(bench.checkpoint);
    snprintf(name, sizeof name, "%s/.tide-lock", bench.shelf);
    (void)unlink(name);
    (void)rmdir(bench.shelf);
    snprintf(name, sizeof name, "%s/fio.0.0", bench.directory);
    (void)unlink(name);
}

static bool parse(int argc, char **argv, const char **config)
{
    *config = usual_json;
    bench.rounds = 3;
    bench.rest_seconds = REST_SECONDS;
    bench.directory = argc > 1 ? argv[1] : NULL;
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0) {
            *config = small_json;
            bench.rounds = 1;
            bench.rest_seconds = 0;
        } else if (strcmp(argv[i], "--large") == 0) {
            *config = large_json;
        } else if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc) {
            bench.rounds = (unsigned)atoi(argv[++i]);
        } else {
            return false;
        }
    }
    return bench.directory != NULL && bench.rounds > 0 && bench.rounds <= ROUNDS_MAX;
}

int main(int argc, char **argv)
{
    struct round rounds[ROUNDS_MAX];
    const char *config = NULL;
    setenv("OMP_WAIT_POLICY", "passive", 0); /* as the tide command does */
    if (!parse(argc, argv, &config)) {
        fprintf(stderr, "bench_checkpoint DIR [--quick | --large] [--rounds 1..%d]\n", ROUNDS_MAX);
        return 2;
    }
    snprintf(bench.store, sizeof bench.store, "%s/store", bench.directory);
    snprintf(bench.shelf, sizeof bench.shelf, "%s/run", bench.directory);
    bench.fio = system("fio --version >/dev/null 2>&1") == 0;
    make_model(config);
    make_slot();
    make_plan();
    make_checkpoint();
    (void)fio("write", "--end_fsync=1");
    rest();
    for (unsigned i = 0; i < bench.rounds; i++) {
        rounds[i] = measure();
    }
    for (int i = 0; i < FIGURES; i++) {
        report(rounds, i);
    }
    clear();
    store_image_fini(&bench.image);
    run_prepared_destroy(bench.prepared);
    model_destroy(bench.model);
    core_region_free(&bench.slot);
    return 0;
}
