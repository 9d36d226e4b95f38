/* paper_engine.c: a fake of include/tide/engine.h, which trains nothing, but can fail or be
 * interrupted at a given call.
 *
 *   TIDE_PAPER_FAIL="step 3 5"   the third call of tide_engine_step returns -5
 *   TIDE_PAPER_SIGNAL="2 15"     before the second step ends, the process gets signal 15; "0 15":
 *                                while the engine is destroyed; "-1 15": when the process exits
 *   TIDE_PAPER_NOTES=FILE        a line per step: learning rate, micro-batches, rows, tokens,
 *                                first ids */
#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tide/checkpoint.h>

struct tide_plan {
    struct tide_engine_options options;
};

struct tide_engine {
    struct tide_plan plan;
    uint64_t steps;
};

static char message[128];

const char *tide_last_error(void)
{
    const char *(*theirs)(void) = NULL;
    void *found = dlsym(RTLD_NEXT, "tide_last_error");
    memcpy(&theirs, &found, sizeof theirs);
    return message[0] != '\0' ? message : theirs();
}

/* Returns the negative errno with which this call must fail, or 0. */
static int fails(const char *call)
{
    static int counts[16];
    static const char *const calls[] = {"plan",  "create",     "step", "evaluate", "save", "try",
                                        "ahead", "checkpoint", "wait", "trace",    "betas"};
    const char *wish = getenv("TIDE_PAPER_FAIL");
    char name[16] = "";
    int at = 0;
    int code = 0;
    int index = 0;
    while (strcmp(calls[index], call) != 0) {
        index++;
    }
    counts[index]++;
    if (wish == NULL || sscanf(wish, "%15s %d %d", name, &at, &code) != 3 ||
        strcmp(name, call) != 0 || counts[index] != at) {
        return 0;
    }
    snprintf(message, sizeof message, "paper: %s %d fails with %d", call, at, code);
    return -code;
}

int tide_engine_options_init(struct tide_engine_options *options, size_t struct_bytes)
{
    *options = (struct tide_engine_options){.struct_bytes = struct_bytes,
                                            .accum = 1,
                                            .optimizer = TIDE_ADAMW,
                                            .beta1 = 0.9,
                                            .beta2 = 0.999,
                                            .eps = 1e-8,
                                            .clip = 1};
    return 0;
}

int tide_plan_create(struct tide_context *context, const struct tide_engine_options *options,
                     struct tide_plan **out)
{
    (void)context;
    int rc = fails("plan");
    if (rc == 0 && options->host_bytes != 0 && options->host_bytes < 1 << 20) {
        snprintf(message, sizeof message, "it cannot fit: --host-memory 1.0 MiB would do");
        rc = -EFBIG;
    }
    if (rc == 0) {
        *out = calloc(1, sizeof **out);
        (*out)->options = *options;
    }
    return rc;
}

void tide_plan_destroy(struct tide_plan *plan)
{
    free(plan);
}

int tide_plan_describe(const struct tide_plan *plan, struct tide_plan_info *out)
{
    *out = (struct tide_plan_info){.struct_bytes = sizeof *out,
                                   .parameters = 1000000,
                                   .trained_parameters = 900000,
                                   .device_bytes = 2000000000,
                                   .host_bytes = 1000000000,
                                   .store_bytes = 3000000000,
                                   .acts = TIDE_ACTS_RECOMPUTE,
                                   .order = TIDE_ORDER_LAYER,
                                   .timing = TIDE_TIMING_DEFERRED,
                                   .weight_slots = 2,
                                   .state_slots = 3,
                                   .chunk_elements = 65536,
                                   .step_seconds = 0.5,
                                   .tokens_per_second = 2.0 * plan->options.batch *
                                                        plan->options.length,
                                   .bottleneck = "reads of the store",
                                   .store_read_bytes = 14000000,
                                   .store_write_bytes = 12000000,
                                   .commands = 77,
                                   .plan_seconds = 0.001};
    return 0;
}

int tide_plan_part_at(const struct tide_plan *plan, unsigned index, struct tide_plan_part *out)
{
    static const struct tide_plan_part parts[] = {
        {.tier = TIDE_DEVICE, .what = "weights", .bytes = 2000000000},
        {.tier = TIDE_HOST, .what = "slots", .bytes = 1000000000},
        {.tier = TIDE_STORE, .what = "states", .bytes = 3000000000},
    };
    (void)plan;
    if (index >= 3) {
        return -ENOENT;
    }
    *out = parts[index];
    return 0;
}

int tide_plan_alternative_at(const struct tide_plan *plan, unsigned index,
                             struct tide_plan_alternative *out)
{
    (void)plan;
    if (index >= 1) {
        return -ENOENT;
    }
    *out = (struct tide_plan_alternative){.struct_bytes = sizeof *out,
                                          .acts = TIDE_ACTS_KEEP,
                                          .timing = TIDE_TIMING_DEFERRED,
                                          .step_seconds = 0.5,
                                          .host_bytes = 4000000000,
                                          .why = "twice as slow"};
    return 0;
}

int tide_plan_tape_line(const struct tide_plan *plan, unsigned index, char *text, size_t bytes)
{
    (void)plan;
    if (index >= 2) {
        return -ENOENT;
    }
    snprintf(text, bytes, "%s layer 0", index == 0 ? "READ" : "FWD");
    return 0;
}

static int write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        snprintf(message, sizeof message, "paper: a file cannot be written");
        return -errno;
    }
    fputs(text, file);
    fclose(file);
    return 0;
}

int tide_plan_what_if_at(const struct tide_plan *plan, unsigned index,
                         struct tide_plan_what_if *out)
{
    static const char *const names[] = {"drives", "processors"};
    (void)plan;
    if (index >= 2) {
        return -ENOENT;
    }
    snprintf(out->part, sizeof out->part, "%s", names[index]);
    out->step_seconds = index == 0 ? 2 : 1;
    return 0;
}

int tide_plan_trace(const struct tide_plan *plan, const char *path)
{
    (void)plan;
    return write_file(path, "{\"traceEvents\": []}\n");
}

int tide_plan_rates(const struct tide_plan *plan, const char *path)
{
    (void)plan;
    return write_file(path, "{}\n");
}

int tide_plan_forget(const struct tide_plan *plan)
{
    (void)plan;
    return 0;
}

int tide_engine_create(struct tide_context *context, const struct tide_engine_options *options,
                       struct tide_engine **out)
{
    struct tide_plan *plan = NULL;
    int rc = fails("create");
    rc = rc != 0 ? rc : tide_plan_create(context, options, &plan);
    if (rc != 0) {
        return rc;
    }
    *out = calloc(1, sizeof **out);
    (*out)->plan = *plan;
    tide_plan_destroy(plan);
    return 0;
}

static void signal_at(int64_t step)
{
    const char *wish = getenv("TIDE_PAPER_SIGNAL");
    long long at = 0;
    int number = 0;
    if (wish != NULL && sscanf(wish, "%lld %d", &at, &number) == 2 && at == step) {
        raise(number);
    }
}

__attribute__((destructor)) static void signal_at_exit(void)
{
    signal_at(-1);
}

void tide_engine_destroy(struct tide_engine *engine)
{
    if (engine != NULL) {
        signal_at(0);
    }
    free(engine);
}

const struct tide_plan *tide_engine_plan(const struct tide_engine *engine)
{
    return &engine->plan;
}

static void note_step(const struct tide_batch *batches, unsigned count, double lr)
{
    const char *path = getenv("TIDE_PAPER_NOTES");
    FILE *file = path != NULL ? fopen(path, "a") : NULL;
    if (file == NULL) {
        return;
    }
    fprintf(file, "%.9g %u", lr, count);
    for (unsigned i = 0; i < count; i++) {
        fprintf(file, " %ux%u:%d", batches[i].rows, batches[i].length, batches[i].ids[0]);
    }
    fputc('\n', file);
    fclose(file);
}

int tide_engine_step(struct tide_engine *engine, const struct tide_batch *batches, unsigned count,
                     double lr, struct tide_step *out)
{
    int rc = fails("step");
    note_step(batches, count, lr);
    if (rc != 0) {
        return rc;
    }
    engine->steps++;
    signal_at((int64_t)engine->steps);
    *out = (struct tide_step){.struct_bytes = sizeof *out,
                              .step = engine->steps,
                              .loss = 8.0 / (double)engine->steps,
                              .grad_norm = engine->steps == 2 ? (double)INFINITY : 1.5,
                              .loss_scale = 1,
                              .skipped = engine->steps == 2 &&
                                         engine->plan.options.precision == TIDE_FP16,
                              .tokens = (uint64_t)count * batches[0].rows * batches[0].length,
                              .seconds = engine->steps == 1 ? 4 : 0.25,
                              .store_read_bytes = 14,
                              .store_write_bytes = 12,
                              .up_bytes = 4,
                              .down_bytes = 2};
    return 0;
}

int tide_engine_wait_at(const struct tide_engine *engine, unsigned index,
                        struct tide_engine_wait *out)
{
    (void)engine;
    *out = (struct tide_engine_wait){.struct_bytes = sizeof *out,
                                     .compute_seconds = index == TIDE_WAIT_STORE_READ ? 0.1 : 0};
    return 0;
}

int tide_engine_drive_at(const struct tide_engine *engine, unsigned index,
                         struct tide_engine_drive *out)
{
    *out = (struct tide_engine_drive){.struct_bytes = sizeof *out,
                                      .directory = engine->plan.options.stores[index].directory,
                                      .read_bytes = 14,
                                      .write_bytes = 12};
    return 0;
}

int tide_engine_betas(struct tide_engine *engine, double beta1, double beta2)
{
    (void)engine;
    return beta1 < 1 && beta2 < 1 ? fails("betas") : -EINVAL;
}

int tide_engine_evaluate(struct tide_engine *engine, const struct tide_batch *batch,
                         struct tide_evaluation *out)
{
    (void)engine;
    out->targets = batch->rows;
    out->loss_sum = 3.0 * batch->rows;
    return fails("evaluate");
}

int tide_engine_save_reserve(struct tide_engine *engine, const char *folder, int overwrite)
{
    (void)engine;
    (void)folder;
    (void)overwrite;
    return fails("try");
}

int tide_engine_save(struct tide_engine *engine, const char *folder, int overwrite)
{
    char path[1100];
    char text[32];
    int rc = fails("save");
    (void)overwrite;
    mkdir(folder, 0777);
    snprintf(path, sizeof path, "%s/steps", folder);
    snprintf(text, sizeof text, "%llu", (unsigned long long)engine->steps);
    return rc != 0 ? rc : write_file(path, text);
}

int tide_engine_checkpoint(struct tide_engine *engine,
                           const struct tide_checkpoint_options *options)
{
    char path[1100];
    char text[64];
    int rc = fails("checkpoint");
    mkdir(options->directory, 0777);
    snprintf(path, sizeof path, "%s/checkpoint-%llu", options->directory,
             (unsigned long long)engine->steps);
    snprintf(text, sizeof text, "keep %u, replace %u", options->keep, options->replace);
    return rc != 0 ? rc : write_file(path, text);
}

int tide_engine_checkpoint_ahead(struct tide_engine *engine,
                                 const struct tide_checkpoint_options *options)
{
    (void)engine;
    (void)options;
    return fails("ahead");
}

int tide_engine_trace(struct tide_engine *engine)
{
    (void)engine;
    return fails("trace");
}

int tide_engine_checkpoint_wait(struct tide_engine *engine)
{
    (void)engine;
    return fails("wait");
}

int tide_engine_resumed(const struct tide_engine *engine, struct tide_resumed *out)
{
    (void)engine;
    *out = (struct tide_resumed){.struct_bytes = sizeof *out};
    return 0;
}

int tide_checkpoint_peek(struct tide_context *context, const char *directory, void *out,
                         size_t room, size_t *bytes)
{
    (void)context;
    (void)directory;
    (void)out;
    (void)room;
    (void)bytes;
    return -ENOENT;
}

int tide_engine_memory(const struct tide_engine *engine, struct tide_engine_memory *out)
{
    (void)engine;
    *out = (struct tide_engine_memory){.struct_bytes = sizeof *out,
                                       .rss_bytes = 2900000000,
                                       .peak_bytes = 3050000000,
                                       .device_bytes = 1990000000,
                                       .host_bytes = 990000000};
    return 0;
}
