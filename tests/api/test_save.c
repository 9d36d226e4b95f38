/* test_save.c: an engine saves a model that loads again with equal weights. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "offload/model/safetensors.h"
#include "tests/api/world.h"

static struct world world;
static char folder[600];

static void begin(void)
{
    char command[700];
    world_init(&world);
    snprintf(folder, sizeof folder, "%s/saved", test_directory());
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    check_int(system(command), ==, 0);
}

static void check_same_weights(const char *left, const char *right)
{
    struct model_safetensors *files[2];
    const char *folders[] = {left, right};
    for (int i = 0; i < 2; i++) {
        char path[700];
        snprintf(path, sizeof path, "%s/model.safetensors", folders[i]);
        check_int(model_safetensors_open(path, &files[i]), ==, 0);
    }
    size_t counts[2];
    const struct model_tensor *tensors = model_safetensors_list(files[0], &counts[0]);
    (void)model_safetensors_list(files[1], &counts[1]);
    check_uint(counts[0], ==, counts[1]);
    for (size_t t = 0; t < counts[0]; t++) {
        const struct model_tensor *other = model_safetensors_find(files[1], tensors[t].name);
        check_true(other != NULL && other->bytes == tensors[t].bytes &&
                   other->dtype == tensors[t].dtype);
        char *bytes[2] = {malloc(other->bytes), malloc(other->bytes)};
        check_true(bytes[0] != NULL && bytes[1] != NULL);
        check_int(model_safetensors_read(files[0], &tensors[t], 0, bytes[0], other->bytes), ==, 0);
        check_int(model_safetensors_read(files[1], other, 0, bytes[1], other->bytes), ==, 0);
        check_memory(bytes[0], bytes[1], other->bytes);
        free(bytes[0]);
        free(bytes[1]);
    }
    model_safetensors_close(files[0]);
    model_safetensors_close(files[1]);
}

/* A model that is saved before the first step has the loaded weights. */
static void nothing_trained_nothing_changed(void)
{
    begin();
    struct tide_engine *engine = world_engine(&world.options);
    check_int(tide_engine_save(engine, folder, 0), ==, 0);
    tide_engine_destroy(engine);
    check_same_weights(world.model, folder);
}

/* The saved model computes the engine's next loss. Saving changes nothing. */
static void what_was_saved_goes_on(void)
{
    static const uint32_t places[] = {TIDE_STORE, TIDE_HOST, TIDE_DEVICE};
    static const uint32_t precisions[] = {TIDE_BF16, TIDE_FP16, TIDE_FP32};
    for (size_t p = 0; p < 3; p++) {
        begin();
        struct tide_engine_options options = world.options;
        struct tide_evaluation old = {.struct_bytes = sizeof old};
        struct tide_evaluation new = {.struct_bytes = sizeof new};
        options.precision = precisions[p];
        options.loss_scale = 64;
        options.weights = places[p];
        struct tide_engine *engine = world_engine(&options);
        (void)world_steps(&world, engine, 3);
        check_int(tide_engine_save(engine, folder, 0), ==, 0);
        check_int(tide_engine_evaluate(engine, &world.batch, &old), ==, 0);
        const struct tide_step next = world_steps(&world, engine, 1);
        check_double(fabs(old.loss_sum / (double)old.targets - next.loss), <, 1e-5);
        tide_engine_destroy(engine);
        options.model = folder;
        options.weights = places[(p + 1) % 3];
        engine = world_engine(&options);
        check_int(tide_engine_evaluate(engine, &world.batch, &new), ==, 0);
        check_double(old.loss_sum, ==, new.loss_sum);
        tide_engine_destroy(engine);
    }
}

/* A folder with files is refused; `overwrite` writes the model into it and keeps other files. */
static void what_is_there_stays(void)
{
    char file[700];
    begin();
    struct tide_engine *engine = world_engine(&world.options);
    snprintf(file, sizeof file, "%s/diary", folder);
    check_int(mkdir(folder, 0700), ==, 0);
    FILE *out = fopen(file, "w");
    check_true(out != NULL && fputs("dear diary", out) >= 0 && fclose(out) == 0);
    check_int(tide_engine_save_reserve(engine, folder, 0), ==, -EEXIST);
    check_contains(tide_last_error(), folder);
    check_int(tide_engine_save(engine, folder, 0), ==, -EEXIST);
    check_true(world_exists(file));
    check_int(tide_engine_save_reserve(engine, folder, 1), ==, 0);
    check_true(world_exists(file));
    check_int(tide_engine_save(engine, folder, 1), ==, 0);
    check_true(world_exists(file));
    check_same_weights(world.model, folder);
    tide_engine_destroy(engine);
}

static const char *partial_of(const char *name)
{
    static char path[700];
    snprintf(path, sizeof path, "%s.partial", name);
    return path;
}

/* A reservation keeps the folder for its engine and fails where a save would. */
static void trying(void)
{
    struct stat held;
    struct stat again;
    char below[700];
    begin();
    struct tide_engine *engine = world_engine(&world.options);
    const size_t before = test_entries(test_directory());
    check_int(tide_engine_save_reserve(engine, folder, 0), ==, 0);
    check_uint(test_entries(test_directory()), ==, before + 1);
    struct tide_engine *other = world_engine(&world.options);
    check_int(tide_engine_save_reserve(other, folder, 0), ==, -EBUSY);
    check_contains(tide_last_error(), "another run");
    check_int(tide_engine_save(other, folder, 0), ==, -EBUSY);
    tide_engine_destroy(other);
    check_int(tide_engine_save_reserve(engine, folder, 0), ==, 0);
    check_int(stat(partial_of(folder), &held), ==, 0);
    snprintf(below, sizeof below, "%s/./%s", test_directory(), strrchr(folder, '/') + 1);
    check_int(tide_engine_save_reserve(engine, below, 0), ==, 0);
    check_int(stat(partial_of(folder), &again), ==, 0);
    check_true(held.st_ino == again.st_ino); /* the lock was held meanwhile */
    snprintf(below, sizeof below, "%s/missing/saved", test_directory());
    int tried = tide_engine_save_reserve(engine, below, 0);
    check_int(tried, ==, tide_engine_save(engine, below, 0));
    check_true(tried < 0);
    check_contains(tide_last_error(), "missing/saved");
    snprintf(below, sizeof below, "%s/config.json/saved", world.model);
    check_int(tide_engine_save_reserve(engine, below, 0), ==, -ENOTDIR);
    check_int(tide_engine_save_reserve(engine, NULL, 0), ==, -EINVAL);
    check_int(tide_engine_save(engine, "", 0), ==, -EINVAL);
    check_uint(test_entries(test_directory()), ==, before + 1);
    (void)world_steps(&world, engine, 1);
    tide_engine_destroy(engine);
    check_uint(test_entries(test_directory()), ==, before);
}

/* A context keeps a folder for a later engine. */
static void claimed_before(void)
{
    static const struct tide_context_options silent = {.struct_bytes = sizeof silent};
    struct tide_context *context = NULL;
    struct tide_context *other = NULL;
    struct tide_engine *engine = NULL;
    char below[700];
    begin();
    const size_t before = test_entries(test_directory());
    snprintf(below, sizeof below, "%s/./%s", test_directory(), strrchr(folder, '/') + 1);
    check_int(tide_context_create(&silent, &context), ==, 0);
    check_int(tide_context_create(&silent, &other), ==, 0);
    check_int(tide_folder_claim(NULL, folder), ==, -EINVAL);
    check_int(tide_folder_claim(context, NULL), ==, -EINVAL);
    check_int(tide_folder_claim(context, ""), ==, -EINVAL);
    check_int(tide_folder_claim(context, folder), ==, 0);
    check_int(tide_folder_claim(context, below), ==, 0); /* the context has the folder already */
    check_int(tide_folder_claim(other, below), ==, -EBUSY);
    check_contains(tide_last_error(), "another run");
    tide_folder_unclaim(other);
    tide_folder_unclaim(NULL);
    check_true(world_exists(partial_of(folder)));
    tide_folder_unclaim(context);
    check_true(!world_exists(partial_of(folder)));
    check_int(tide_folder_claim(other, folder), ==, 0);
    check_int(tide_folder_claim(context, folder), ==, -EBUSY);
    check_int(tide_folder_claim(other, test_directory()), ==, 0); /* replaces the first claim */
    check_int(tide_folder_claim(context, folder), ==, 0);
    tide_context_destroy(other);
    check_true(!world_exists(partial_of(test_directory())));
    for (int tries = 0; tries < 2; tries++) {
        check_int(tide_folder_claim(context, folder), ==, 0);
        check_int(tide_engine_create(context, &world.options, &engine), ==, 0);
        check_int(tries > 0 ? tide_engine_save_reserve(engine, below, 0) : 0, ==, 0);
        check_int(tide_engine_save(engine, below, 0), ==, 0);
        tide_engine_destroy(engine);
        check_same_weights(world.model, folder);
        begin();
    }
    check_int(tide_folder_claim(context, folder), ==, 0);
    tide_context_destroy(context);
    check_true(!world_exists(partial_of(folder)));
    check_uint(test_entries(test_directory()), ==, before);
}

static int stop_saving(void *user, const struct tide_progress *progress)
{
    bool *armed = user;
    return *armed && strcmp(progress->phase, "save") == 0 && progress->done >= 2;
}

/* A stopped save leaves no folder, and the engine continues. */
static void stopped_saving(void)
{
    bool armed = true;
    const struct tide_context_options options = {
        .struct_bytes = sizeof options, .progress = stop_saving, .user = &armed};
    struct tide_context *context = NULL;
    struct tide_engine *engine = NULL;
    begin();
    const size_t before = test_entries(test_directory());
    check_int(tide_context_create(&options, &context), ==, 0);
    check_int(tide_engine_create(context, &world.options, &engine), ==, 0);
    check_int(tide_engine_save(engine, folder, 0), ==, -ECANCELED);
    check_uint(test_entries(test_directory()), ==, before);
    armed = false;
    check_int(tide_engine_save(engine, folder, 0), ==, 0);
    tide_engine_destroy(engine);
    tide_context_destroy(context);
    check_same_weights(world.model, folder);
}

TEST_MAIN({"nothing_trained_nothing_changed", nothing_trained_nothing_changed},
          {"what_was_saved_goes_on", what_was_saved_goes_on},
          {"what_is_there_stays", what_is_there_stays}, {"trying", trying},
          {"claimed_before", claimed_before}, {"stopped_saving", stopped_saving})
