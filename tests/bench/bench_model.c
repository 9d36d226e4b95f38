/* bench_model.c: the plain training step, with the arguments and lines of a PyTorch trainer:
 *
 *     bench_model CASE [--steps N] [--batch ROWS] [--accum N] [--lr X] [--weight-decay X]
 *                 [--clip X] [--threads N] [--recompute] [--dtype bfloat16|float32|float16]
 *                 [--save DIR] [--tile-bytes N] [--profile] [--load] [--quick]
 *
 * CASE is a folder with model/ (a Hugging Face folder) and data.jsonl (rows of input_ids of one
 * length, read in file order and repeatedly). Prints a JSON object per step: step, loss, grad_norm,
 * seconds; then one with median_seconds (without the first step), tokens_per_second, peak_rss_gb
 * and table_gb. --profile adds "name value unit" lines about ops and memory. --load first times
 * reading the weights. --quick takes two steps. Weight decay applies to all parameters, as in that
 * trainer. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/team.h"
#include "core/dev/dev.h"
#include "kernels/table.h"
#include "offload/model/config_read.h"
#include "tests/reference/plain.h"
#include "tools/text/data/feed.h"

struct arguments {
    const char *folder;
    const char *save;
    int steps;
    int64_t batch;
    unsigned accum;
    double lr;
    double decay;
    double clip;
    unsigned threads;
    bool recompute;
    bool profile;
    bool load;
    enum kern_type type;
    uint64_t tile_bytes;
};

struct bench {
    struct arguments arguments;
    struct model_config config;
    struct model *model;
    struct model_files *files;
    struct dev_device *device;
    struct plain *plain;
    struct text_feed *feed;
    char path[4096]; /* of the file of rows */
    const char *data[1];
    int64_t length;
    int32_t *ids;    /* [accum][batch][length] */
    int32_t *labels; /* of the same rows */
    struct model_batch *batches;
};

static const struct option options[] = {
    {"steps", required_argument, NULL, 's'},
    {"batch", required_argument, NULL, 'b'},
    {"accum", required_argument, NULL, 'a'},
    {"lr", required_argument, NULL, 'l'},
    {"weight-decay", required_argument, NULL, 'w'},
    {"clip", required_argument, NULL, 'c'},
    {"threads", required_argument, NULL, 't'},
    {"recompute", no_argument, NULL, 'r'},
    {"dtype", required_argument, NULL, 'd'},
    {"save", required_argument, NULL, 'o'},
    {"tile-bytes", required_argument, NULL, 'T'},
    {"profile", no_argument, NULL, 'p'},
    {"load", no_argument, NULL, 'L'},
    {"quick", no_argument, NULL, 'q'},
    {0},
};

static bool set_type(struct arguments *arguments, const char *name)
{
    switch (model_dtype_from_config(name)) {
    case MODEL_F32: arguments->type = KERN_F32; return true;
    case MODEL_F16: arguments->type = KERN_FP16; return true;
    case MODEL_BF16: arguments->type = KERN_BF16; return true;
    case MODEL_OTHER: break;
    }
    return false;
}

static bool parse(int argc, char **argv, struct arguments *out)
{
    bool fine = true;
    *out = (struct arguments){
        .steps = 5, .batch = 2, .accum = 1, .lr = 1e-4, .clip = 1.0, .type = KERN_BF16};
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (c) {
        case 's': out->steps = atoi(optarg); break;
        case 'b': out->batch = atoi(optarg); break;
        case 'a': out->accum = (unsigned)atoi(optarg); break;
        case 'l': out->lr = strtod(optarg, NULL); break;
        case 'w': out->decay = strtod(optarg, NULL); break;
        case 'c': out->clip = strtod(optarg, NULL); break;
        case 't': out->threads = (unsigned)atoi(optarg); break;
        case 'r': out->recompute = true; break;
        case 'd': fine = set_type(out, optarg) && fine; break;
        case 'o': out->save = optarg; break;
        case 'T': out->tile_bytes = strtoull(optarg, NULL, 10); break;
        case 'p': out->profile = true; break;
        case 'L': out->load = true; break;
        case 'q': out->steps = 2; break;
        default: fine = false; break;
        }
    }
    if (optind + 1 == argc) {
        out->folder = argv[optind];
    }
    return fine && out->folder != NULL && out->steps > 0 && out->batch > 0 && out->accum > 0;
}

static double peak_rss_gb(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss * 1024.0 / 1e9;
}

/* Refuses rows of different lengths and rows that had to be cut. */
static int refuse_row(const struct bench *bench, const struct text_batch *row)
{
    const unsigned long long number = row->counts.rows;
    if (row->counts.cut > 0) {
        return core_err_set(-EINVAL,
                            "%s:%llu: the row has more than the %lld tokens of "
                            "max_position_embeddings in %s/model/config.json",
                            bench->path, number, (long long)bench->config.positions,
                            bench->arguments.folder);
    }
    return core_err_set(-EINVAL, "%s:%llu: the row has %lld tokens, and the first one %lld",
                        bench->path, number, (long long)row->length, (long long)bench->length);
}

static int take_rows(struct bench *bench)
{
    const int64_t rows = bench->arguments.batch * bench->arguments.accum;
    for (int64_t i = 0; i < rows; i++) {
        struct text_batch row;
        const int rc = text_feed_next(bench->feed, &row);
        if (rc <= 0) {
            return rc < 0 ? rc : core_err_set(-EINVAL, "%s has no rows", bench->arguments.folder);
        }
        if (row.length != bench->length || row.counts.cut > 0) {
            return refuse_row(bench, &row);
        }
        const size_t bytes = (size_t)row.length * sizeof *row.ids;
        memcpy(bench->ids + i * bench->length, row.ids, bytes);
        memcpy(bench->labels + i * bench->length, row.labels, bytes);
    }
    return 0;
}

/* Opens rows in file order, which start over at the end. */
static int open_feed(struct bench *bench)
{
    const struct text_feed_options rows = {.files = bench->data,
                                           .files_count = 1,
                                           .seq_len = bench->config.positions,
                                           .batch_rows = 1,
                                           .vocab = bench->config.vocab};
    snprintf(bench->path, sizeof bench->path, "%s/data.jsonl", bench->arguments.folder);
    bench->data[0] = bench->path;
    text_feed_close(bench->feed);
    bench->feed = NULL;
    return text_feed_open(&rows, NULL, &bench->feed);
}

static int open_rows(struct bench *bench)
{
    const struct arguments *arguments = &bench->arguments;
    struct text_batch row;
    int rc = open_feed(bench);
    rc = rc != 0 ? rc : text_feed_next(bench->feed, &row);
    if (rc <= 0) {
        return rc < 0 ? rc : core_err_set(-EINVAL, "%s has no rows", bench->path);
    }
    bench->length = row.length;
    if (row.counts.cut > 0) {
        return refuse_row(bench, &row);
    }
    const int64_t each = arguments->batch * bench->length;
    const size_t tokens = (size_t)(each * arguments->accum);
    bench->ids = calloc(tokens, sizeof *bench->ids);
    bench->labels = calloc(tokens, sizeof *bench->labels);
    bench->batches = calloc(arguments->accum, sizeof *bench->batches);
    if (bench->ids == NULL || bench->labels == NULL || bench->batches == NULL) {
        return core_err_set(-ENOMEM, "no memory for %zu tokens", tokens);
    }
    for (unsigned i = 0; i < arguments->accum; i++) {
        bench->batches[i] = (struct model_batch){.rows = arguments->batch,
                                                 .length = bench->length,
                                                 .ids = bench->ids + i * each,
                                                 .labels = bench->labels + i * each};
    }
    return open_feed(bench);
}

/* Reads the weights again, into existing memory, with a team as large as the trainer's. */
static int time_load(const struct bench *bench)
{
    const enum kern_type type = bench->arguments.type;
    const struct core_team_options members = {.count = bench->arguments.threads};
    struct core_team *team = NULL;
    uint64_t elements = 0;
    for (unsigned i = 0; i < bench->model->block_count; i++) {
        elements += bench->model->blocks[i].elements;
    }
    char *memory = malloc(elements * kern_type_bytes(type));
    int rc = memory != NULL ? core_team_create(&members, &team)
                            : core_err_set(-ENOMEM, "no memory for the weights");
    if (rc == 0) {
        memset(memory, 1, elements * kern_type_bytes(type));
    }
    const int64_t start_ns = core_clock_now_ns();
    char *to = memory;
    for (unsigned i = 0; rc == 0 && i < bench->model->block_count; i++) {
        const struct model_block *block = &bench->model->blocks[i];
        rc = model_files_read_block(bench->files, block, model_dtype_of(type), to, team, NULL);
        to += block->elements * kern_type_bytes(type);
    }
    if (rc == 0) {
        printf("load_seconds %.4f s\n", (double)(core_clock_now_ns() - start_ns) / 1e9);
    }
    core_team_destroy(team);
    free(memory);
    return rc;
}

static int open_all(struct bench *bench)
{
    const struct arguments *arguments = &bench->arguments;
    const struct dev_options memory = {.memory_bytes = (size_t)1 << 40};
    char folder[4096];
    snprintf(folder, sizeof folder, "%s/model", arguments->folder);
    int rc = model_config_load(folder, &bench->config);
    rc = rc != 0 ? rc : model_create(&bench->config, NULL, &bench->model);
    rc = rc != 0 ? rc : model_files_open(folder, &bench->files);
    rc = rc != 0 ? rc : model_files_check(bench->files, bench->model);
    rc = rc != 0 ? rc : open_rows(bench);
    rc = rc != 0 ? rc : dev_open("cpu", &memory, &bench->device);
    const struct plain_options plain = {
        .shape = {.rows = arguments->batch,
                  .length = bench->length,
                  .type = arguments->type,
                  .tile_bytes = arguments->tile_bytes},
        .micro_batches = arguments->accum,
        .recompute = arguments->recompute,
        .decay_all = true,
        .threads = arguments->threads,
        .rule = CORE_UPDATE_ADAMW,
        .group = {.lr = arguments->lr,
                  .beta1 = 0.9,
                  .beta2 = 0.999,
                  .eps = 1e-8,
                  .decay = arguments->decay,
                  .bias_correction = true},
        .clip = arguments->clip,
        .profile = arguments->profile,
    };
    rc = rc != 0 ? rc : plain_create(bench->model, bench->device, &plain, &bench->plain);
    rc = rc != 0 ? rc : plain_load(bench->plain, bench->files);
    return rc == 0 && arguments->load ? time_load(bench) : rc;
}

static void close_all(struct bench *bench)
{
    plain_destroy(bench->plain);
    dev_close(bench->device);
    text_feed_close(bench->feed);
    model_files_close(bench->files);
    model_destroy(bench->model);
    free(bench->batches);
    free(bench->labels);
    free(bench->ids);
}

static int by_value(const void *left, const void *right)
{
    const double a = *(const double *)left;
    const double b = *(const double *)right;
    return (a > b) - (a < b);
}

static void print_profile(const struct bench *bench)
{
    double all_ns = (double)plain_update_ns(bench->plain);
    double products_ns = 0.0;
    for (int op = 0; op < KERN_OP_COUNT; op++) {
        const struct plain_time time = plain_op_time(bench->plain, (enum kern_op)op);
        all_ns += (double)time.ns;
        products_ns += op <= KERN_LINEAR_GRAD_WEIGHT || op == KERN_LOSS ? (double)time.ns : 0.0;
        if (time.launches > 0) {
            printf("%s %.1f ms\n", kern_op_name((enum kern_op)op),
                   (double)time.ns / 1e6 / bench->arguments.steps);
        }
        if (time.flops > 0.0) {
            printf("%s_rate %.0f gflop/s\n", kern_op_name((enum kern_op)op),
                   time.flops / (double)time.ns);
        }
    }
    printf("update %.1f ms\n",
           (double)plain_update_ns(bench->plain) / 1e6 / bench->arguments.steps);
    printf("products_share %.3f of_step\n", products_ns / all_ns);
}

static int run(struct bench *bench)
{
    const struct arguments *arguments = &bench->arguments;
    double *seconds = calloc((size_t)arguments->steps, sizeof *seconds);
    int rc = seconds != NULL ? 0 : core_err_set(-ENOMEM, "no memory for the times of steps");
    for (int step = 0; rc == 0 && step < arguments->steps; step++) {
        struct plain_result result;
        const int64_t start_ns = core_clock_now_ns();
        rc = take_rows(bench);
        rc = rc != 0 ? rc : plain_step(bench->plain, bench->batches, arguments->lr, &result);
        if (rc == 0) {
            seconds[step] = (double)(core_clock_now_ns() - start_ns) / 1e9;
            printf("{\"step\": %d, \"loss\": %.17g, \"grad_norm\": %.17g, \"seconds\": %.4f}\n",
                   step + 1, result.loss, result.grad_norm, seconds[step]);
            fflush(stdout);
        }
    }
    if (rc == 0) {
        const size_t first = arguments->steps > 1 ? 1 : 0;
        const size_t count = (size_t)arguments->steps - first;
        qsort(seconds + first, count, sizeof *seconds, by_value);
        const double median = seconds[first + count / 2];
        const double tokens = (double)(arguments->batch * (int64_t)arguments->accum *
                                       bench->length);
        if (arguments->profile) {
            print_profile(bench);
        }
        const struct plain_bytes bytes = plain_memory(bench->plain);
        printf("{\"median_seconds\": %.4f, \"tokens_per_second\": %.1f, \"peak_rss_gb\": %.3f, "
               "\"table_gb\": %.3f}\n",
               median, tokens / median, peak_rss_gb(), (double)bytes.total / 1e9);
    }
    free(seconds);
    return rc;
}

static void talk(void *user, enum core_log_level level, const char *line)
{
    (void)user;
    (void)level;
    fprintf(stderr, "%s\n", line);
}

int main(int argc, char **argv)
{
    const struct core_log log = {.level = CORE_LOG_INFO, .write = talk};
    struct bench bench = {0};
    setenv("OMP_WAIT_POLICY", "passive", 0); /* as the tide command does */
    if (!parse(argc, argv, &bench.arguments)) {
        fprintf(stderr, "bench_model CASE [--steps N] [--batch ROWS] [--accum N] [--lr X]\n"
                        "  [--weight-decay X] [--clip X] [--threads N] [--recompute]\n"
                        "  [--dtype bfloat16|float32|float16] [--save DIR] [--tile-bytes N]\n"
                        "  [--profile] [--load] [--quick]\n");
        return 2;
    }
    core_log_bind(&log);
    int rc = open_all(&bench);
    rc = rc != 0 ? rc : run(&bench);
    if (rc == 0 && bench.arguments.save != NULL) {
        char source[4096];
        snprintf(source, sizeof source, "%s/model", bench.arguments.folder);
        const struct model_save_options save = {
            .folder = bench.arguments.save, .source = source, .replace = true};
        rc = plain_save(bench.plain, &save);
    }
    if (rc != 0) {
        fprintf(stderr, "bench_model: %s\n", core_err_message());
    }
    close_all(&bench);
    return rc == 0 ? 0 : rc == -EINVAL || rc == -ENOENT ? 2 : 1;
}
