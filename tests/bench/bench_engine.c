/* bench_engine.c: steps of a whole run through the public API.
 *   bench_engine --model DIR [--store DIR] [--steps N] [--batch N] [--length N] [--accum N]
 *                [--clip X] [--device-memory BYTES] [--host-memory BYTES] [--weights W]
 *                [--states W] [--acts A] [--precision P] [--slots N] [--chunk ELEMENTS] [--quick]
 * Prints `name value unit` lines. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tide/engine.h>

#include "core/base/clock.h"

static void say(void *user, enum tide_log_level level, const char *line)
{
    (void)user;
    (void)level;
    fprintf(stderr, "# %s\n", line);
}

static uint32_t choice(const char *value, const char *const *names)
{
    for (uint32_t i = 0; names[i] != NULL; i++) {
        if (strcmp(names[i], value) == 0) {
            return i;
        }
    }
    fprintf(stderr, "bench_engine: \"%s\" is not one of the choices\n", value);
    exit(2);
}

struct bench {
    struct tide_engine_options options;
    struct tide_store_path paths[TIDE_STORES_MAX];
    unsigned steps;
    long vocab; /* token ids are smaller */
};

static void parse(int argc, char **argv, struct bench *bench)
{
    static const char *const places[] = {"auto", "device", "host", "store", NULL};
    static const char *const acts[] = {"auto", "keep", "recompute", "host", "store", NULL};
    static const char *const precisions[] = {"bf16", "fp16", "fp32", NULL};
    static const char *const orders[] = {"auto", "layer", "micro", NULL};
    static const char *const timings[] = {"auto",  "deferred",    "inside",
                                          "split", "speculative", NULL};
    static const struct option names[] = {{"model", required_argument, NULL, 'm'},
                                          {"store", required_argument, NULL, 's'},
                                          {"steps", required_argument, NULL, 'n'},
                                          {"batch", required_argument, NULL, 'b'},
                                          {"length", required_argument, NULL, 'l'},
                                          {"accum", required_argument, NULL, 'a'},
                                          {"clip", required_argument, NULL, 'c'},
                                          {"device-memory", required_argument, NULL, 'd'},
                                          {"host-memory", required_argument, NULL, 'h'},
                                          {"weights", required_argument, NULL, 'w'},
                                          {"states", required_argument, NULL, 't'},
                                          {"acts", required_argument, NULL, 'k'},
                                          {"precision", required_argument, NULL, 'p'},
                                          {"order", required_argument, NULL, 'o'},
                                          {"timing", required_argument, NULL, 'u'},
                                          {"io", required_argument, NULL, 'i'},
                                          {"vocab", required_argument, NULL, 'v'},
                                          {"trace", required_argument, NULL, 'r'},
                                          {"slots", required_argument, NULL, 'S'},
                                          {"chunk", required_argument, NULL, 'C'},
                                          {"quick", no_argument, NULL, 'q'},
                                          {NULL, 0, NULL, 0}};
    struct tide_engine_options *options = &bench->options;
    tide_engine_options_init(options, sizeof *options);
    options->stores = bench->paths;
    options->batch = 2;
    options->length = 512;
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        switch (c) {
        case 'm': options->model = optarg; break;
        case 's':
            if (options->store_count == TIDE_STORES_MAX) {
                exit(2);
            }
            bench->paths[options->store_count++] = (struct tide_store_path){
                .struct_bytes = sizeof(struct tide_store_path), .directory = optarg};
            break;
        case 'n': bench->steps = (unsigned)strtoul(optarg, NULL, 10); break;
        case 'b': options->batch = (uint32_t)strtoul(optarg, NULL, 10); break;
        case 'l': options->length = (uint32_t)strtoul(optarg, NULL, 10); break;
        case 'a': options->accum = (uint32_t)strtoul(optarg, NULL, 10); break;
        case 'c': options->clip = strtod(optarg, NULL); break;
        case 'd': options->device_bytes = strtoull(optarg, NULL, 10); break;
        case 'h': options->host_bytes = strtoull(optarg, NULL, 10); break;
        case 'w': options->weights = choice(optarg, places); break;
        case 't': options->states = choice(optarg, places); break;
        case 'k': options->acts = choice(optarg, acts); break;
        case 'p': options->precision = choice(optarg, precisions); break;
        case 'o': options->order = choice(optarg, orders); break;
        case 'u': options->timing = choice(optarg, timings); break;
        case 'i': options->io = optarg; break;
        case 'v': bench->vocab = strtol(optarg, NULL, 10); break;
        case 'r': options->trace = optarg; break;
        case 'S': options->state_slots = (uint32_t)strtoul(optarg, NULL, 10); break;
        case 'C': options->chunk_elements = strtoull(optarg, NULL, 10); break;
        case 'q': bench->steps = 3; break;
        default: exit(2);
        }
    }
}

static int check(int rc)
{
    if (rc != 0) {
        fprintf(stderr, "bench_engine: %s\n", tide_last_error());
        exit(rc == -EFBIG ? 3 : 1);
    }
    return rc;
}

static void print_waits(const struct tide_engine *engine)
{
    struct tide_engine_wait wait = {.struct_bytes = sizeof wait};
    fprintf(stderr, "#  waits of compute and update:");
    for (unsigned i = 0; tide_engine_wait_at(engine, i, &wait) == 0; i++) {
        fprintf(stderr, " %s %.2f %.2f", wait.name, wait.compute_seconds, wait.update_seconds);
    }
    fputc('\n', stderr);
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_plan(const struct tide_plan *plan)
{
    struct tide_plan_info info = {.struct_bytes = sizeof info};
    check(tide_plan_describe(plan, &info));
    printf("plan_device %.4f GB\nplan_host %.4f GB\nplan_store %.4f GB\n",
           (double)info.device_bytes / 1e9, (double)info.host_bytes / 1e9,
           (double)info.store_bytes / 1e9);
    printf("plan_step %.4f s\nplan_time %.4f s\n", info.step_seconds, info.plan_seconds);
    fprintf(stderr,
            "# acts %u, order %u, timing %llu, slots %u+%u, chunk %llu, %llu commands, %s\n",
            info.acts, info.order, (unsigned long long)info.timing, info.weight_slots,
            info.state_slots, (unsigned long long)info.chunk_elements,
            (unsigned long long)info.commands, info.bottleneck);
    struct tide_plan_part part = {.struct_bytes = sizeof part};
    for (unsigned i = 0; tide_plan_part_at(plan, i, &part) == 0; i++) {
        fprintf(stderr, "#   %-7s %-18s %9.2f MB\n",
                part.tier == TIDE_DEVICE ? "device"
                : part.tier == TIDE_HOST ? "host"
                                         : "store",
                part.what, (double)part.bytes / 1e6);
    }
}

int main(int argc, char **argv)
{
    struct bench bench = {.steps = 5, .vocab = 1000};
    setenv("OMP_WAIT_POLICY", "passive", 0); /* as the tide command does */
    parse(argc, argv, &bench);
    const struct tide_engine_options *options = &bench.options;
    const struct tide_context_options talk = {
        .struct_bytes = sizeof talk, .log_level = TIDE_LOG_WARN, .log = say};
    struct tide_context *context = NULL;
    struct tide_engine *engine = NULL;
    const size_t tokens = (size_t)options->batch * options->length;
    int32_t *ids = calloc(tokens * options->accum, sizeof *ids);
    struct tide_batch *batches = calloc(options->accum, sizeof *batches);
    double *seconds = calloc(bench.steps, sizeof *seconds);
    int64_t start_ns = core_clock_now_ns();
    check(tide_context_create(&talk, &context));
    check(tide_engine_create(context, options, &engine));
    printf("create %.3f s\n", (double)(core_clock_now_ns() - start_ns) * 1e-9);
    print_plan(tide_engine_plan(engine));
    srandom(1);
    struct tide_step step = {.struct_bytes = sizeof step};
    for (unsigned s = 0; s < bench.steps; s++) {
        for (uint32_t i = 0; i < options->accum; i++) {
            for (size_t t = 0; t < tokens; t++) {
                ids[i * tokens + t] = (int32_t)(random() % bench.vocab);
            }
            batches[i] = (struct tide_batch){.struct_bytes = sizeof batches[i],
                                             .rows = options->batch,
                                             .length = options->length,
                                             .ids = ids + i * tokens};
        }
        check(tide_engine_step(engine, batches, options->accum, 1e-4, &step));
        seconds[s] = step.seconds;
        fprintf(stderr, "# step %u loss %.5f norm %.4f %.3f s\n", s + 1, step.loss, step.grad_norm,
                step.seconds);
        print_waits(engine);
    }
    struct tide_engine_memory memory = {.struct_bytes = sizeof memory};
    check(tide_engine_memory(engine, &memory));
    qsort(seconds + 1, bench.steps - 1, sizeof *seconds, compare);
    const double median = seconds[1 + (bench.steps - 1) / 2];
    printf("step %.4f s\ntokens_per_second %.1f tok/s\n", median,
           (double)(tokens * options->accum) / median);
    printf("peak_rss %.4f GB\nstore_read %.4f GB\nstore_write %.4f GB\n",
           (double)memory.peak_bytes / 1e9, (double)step.store_read_bytes / 1e9,
           (double)step.store_write_bytes / 1e9);
    printf("drive %.4f GB/s\n",
           (double)(step.store_read_bytes + step.store_write_bytes) / median / 1e9);
    tide_engine_destroy(engine);
    tide_context_destroy(context);
    free(seconds);
    free(batches);
    free(ids);
    return 0;
}
