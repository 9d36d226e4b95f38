/* train.c: a complete training program that uses libtide.
 *
 *     cc -std=c17 train.c $(pkg-config --cflags --libs tide) -o train
 *     ./train MODEL STORE OUT
 *
 * MODEL is a Hugging Face folder, STORE a directory on a fast drive, OUT the folder to create. All
 * state is in STORE; the model memorizes two rows of numbers. */
#include <stdio.h>
#include <stdlib.h>
#include <tide/engine.h>

enum { ROWS = 2, LENGTH = 32, STEPS = 20 };

static void log_line(void *user, uint32_t level, const char *line)
{
    (void)user;
    (void)level;
    fprintf(stderr, "tide: %s\n", line);
}

/* Reports the progress of a long call; a return value other than 0 would cancel the call. */
static int show_progress(void *user, const struct tide_progress *progress)
{
    (void)user;
    if (progress->total > 0 && progress->done == progress->total) {
        fprintf(stderr, "%s: done\n", progress->phase);
    }
    return 0;
}

static int say_plan(const struct tide_engine *engine)
{
    struct tide_plan_info info = {.struct_bytes = sizeof info};
    int rc = tide_plan_describe(tide_engine_plan(engine), &info);
    if (rc == 0) {
        printf("%llu parameters; device %.1f MB, host %.1f MB, store %.1f MB; %s\n",
               (unsigned long long)info.parameters, (double)info.device_bytes / 1e6,
               (double)info.host_bytes / 1e6, (double)info.store_bytes / 1e6, info.bottleneck);
    }
    return rc;
}

/* Trains on the same rows in every step. The learning rate rises during the first steps. */
static int train(struct tide_engine *engine, const struct tide_batch *batch)
{
    for (int i = 0; i < STEPS; i++) {
        struct tide_step step = {.struct_bytes = sizeof step};
        const double lr = 3e-3 * (i < 4 ? (i + 1) / 4.0 : 1.0);
        int rc = tide_engine_step(engine, batch, 1, lr, &step);
        if (rc != 0) {
            return rc;
        }
        printf("step %llu  loss %.4f  norm %.3f  %.0f ms  read %.1f MB  written %.1f MB\n",
               (unsigned long long)step.step, step.loss, step.grad_norm, step.seconds * 1e3,
               (double)step.store_read_bytes / 1e6, (double)step.store_write_bytes / 1e6);
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: %s MODEL STORE OUT\n", argv[0]);
        return 2;
    }
    const struct tide_context_options context_options = {.struct_bytes = sizeof context_options,
                                                         .log_level = TIDE_LOG_WARN,
                                                         .log = log_line,
                                                         .progress = show_progress};
    struct tide_engine_options options;
    const struct tide_store_path store = {.struct_bytes = sizeof store, .directory = argv[2]};
    tide_engine_options_init(&options, sizeof options);
    options.model = argv[1];
    options.batch = ROWS;
    options.length = LENGTH;
    options.weights = options.states = TIDE_STORE;
    options.stores = &store;
    options.store_count = 1;

    int32_t ids[ROWS * LENGTH];
    for (int i = 0; i < ROWS * LENGTH; i++) {
        ids[i] = 1 + (i * i + 7 * (i / LENGTH)) % 97;
    }
    const struct tide_batch batch = {
        .struct_bytes = sizeof batch, .rows = ROWS, .length = LENGTH, .ids = ids};

    struct tide_context *context = NULL;
    struct tide_engine *engine = NULL;
    int rc = tide_context_create(&context_options, &context);
    rc = rc != 0 ? rc : tide_engine_create(context, &options, &engine);
    rc = rc != 0 ? rc
                 : tide_engine_save_reserve(engine, argv[3], 0); /* fails now, not at the end */
    rc = rc != 0 ? rc : say_plan(engine);
    rc = rc != 0 ? rc : train(engine, &batch);
    rc = rc != 0 ? rc : tide_engine_save(engine, argv[3], 0);
    if (rc != 0) {
        fprintf(stderr, "%s\n", tide_last_error());
    }
    tide_engine_destroy(engine);
    tide_context_destroy(context);
    return rc == 0 ? 0 : 1;
}
