/* test_checkpoint.c: an application saves, resumes and exports checkpoints. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <tide/checkpoint.h>
#include <tide/inspect.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/hash.h"
#include "offload/model/safetensors.h"
#include "tests/api/world.h"

enum { STEPS = 4 };

static struct world world;
static char directory[600];
static struct tide_checkpoint_options saving;

static void begin(void)
{
    static unsigned number;
    world_init(&world);
    snprintf(directory, sizeof directory, "%s/run %u", test_directory(), ++number);
    saving = (struct tide_checkpoint_options){.struct_bytes = sizeof saving,
                                              .directory = directory,
                                              .application = "row 17",
                                              .application_bytes = 7};
}

static const char *path_of(unsigned step)
{
    static char path[700];
    snprintf(path, sizeof path, "%s/checkpoint-%u", directory, step);
    return path;
}

static bool there(unsigned step)
{
    return world_exists(path_of(step));
}

/* Changes one byte of a file of a checkpoint. */
static void damage(unsigned step, const char *name, long offset)
{
    char path[800];
    snprintf(path, sizeof path, "%s/%s", path_of(step), name);
    FILE *file = fopen(path, "r+b");
    check_true(file != NULL && fseek(file, offset, offset < 0 ? SEEK_END : SEEK_SET) == 0);
    const int byte = fgetc(file);
    check_int(fseek(file, -1, SEEK_CUR), ==, 0);
    check_int(fputc(byte ^ 1, file), !=, EOF);
    check_int(fclose(file), ==, 0);
}

static void save(struct tide_engine *engine)
{
    if (tide_engine_checkpoint(engine, &saving) != 0) {
        test_fail(__FILE__, __LINE__, "no checkpoint: %s", tide_last_error());
    }
}

/* Saves a checkpoint after each step. */
static void train(unsigned steps)
{
    struct tide_engine *engine = world_engine(&world.options);
    for (unsigned s = 0; s < steps; s++) {
        (void)world_steps(&world, engine, 1);
        save(engine);
    }
    tide_engine_destroy(engine);
}

static struct tide_engine *resume(struct tide_resumed *resumed)
{
    struct tide_engine_options options = world.options;
    options.resume = directory;
    struct tide_engine *engine = world_engine(&options);
    *resumed = (struct tide_resumed){.struct_bytes = sizeof *resumed};
    check_int(tide_engine_resumed(engine, resumed), ==, 0);
    return engine;
}

static int refuse(const struct tide_engine_options *options)
{
    struct tide_engine *engine = NULL;
    int rc = tide_engine_create(NULL, options, &engine);
    check_true(engine == NULL);
    return rc;
}

/* A resumed run continues with the bits of an uninterrupted run. */
static void goes_on(void)
{
    struct tide_resumed resumed;
    begin();
    struct tide_engine *engine = world_engine(&world.options);
    const struct tide_step whole = world_steps(&world, engine, STEPS);
    tide_engine_destroy(engine);
    train(2);
    engine = resume(&resumed);
    check_uint(resumed.step, ==, 2);
    check_uint(resumed.passed_over, ==, 0);
    check_string(resumed.path, path_of(2));
    check_uint(resumed.application_bytes, ==, 7);
    check_string(resumed.application, "row 17");
    const struct tide_step parts = world_steps(&world, engine, STEPS - 2);
    check_uint(parts.step, ==, STEPS);
    check_memory(&parts.loss, &whole.loss, sizeof whole.loss);
    check_memory(&parts.grad_norm, &whole.grad_norm, sizeof whole.grad_norm);
    tide_engine_destroy(engine);
}

/* A folder may be spelled in different ways. */
static void spelled_otherwise(void)
{
    struct tide_resumed resumed;
    char other[700];
    begin();
    train(1);
    struct tide_engine *engine = resume(&resumed);
    snprintf(other, sizeof other, "%s/.", directory);
    saving.directory = other;
    (void)world_steps(&world, engine, 1);
    save(engine);
    saving.directory = directory;
    (void)world_steps(&world, engine, 1);
    save(engine);
    check_true(there(1) && there(2) && there(3));
    tide_engine_destroy(engine);
}

/* Without a checkpoint, a run begins with the model. */
static void begins_with_the_model(void)
{
    struct tide_resumed resumed;
    begin();
    struct tide_engine *engine = resume(&resumed);
    check_uint(resumed.step, ==, 0);
    check_true(resumed.path == NULL && resumed.application == NULL);
    check_true(!world_exists(directory));
    tide_engine_destroy(engine);
}

/* The newest checkpoint that verifies is used; if none verifies, the run does not begin with the
 * model. */
static void damaged_ones_are_passed_over(void)
{
    struct tide_resumed resumed;
    begin();
    train(3);
    damage(3, "m.safetensors", -5000);
    struct tide_engine *engine = resume(&resumed);
    check_uint(resumed.step, ==, 2);
    check_uint(resumed.passed_over, ==, 1);
    tide_engine_destroy(engine);
    saving.replace = 0;
    damage(2, "manifest.json", 40);
    check_int(truncate(path_of(1), 0), ==, -1); /* a folder cannot be truncated */
    engine = resume(&resumed);
    check_uint(resumed.step, ==, 1);
    check_uint(resumed.passed_over, ==, 2);
    tide_engine_destroy(engine);
    damage(1, "sums.safetensors", -1);
    struct tide_engine_options options = world.options;
    options.resume = directory;
    check_int(refuse(&options), ==, -EBADMSG);
    check_contains(tide_last_error(), "none of the 3 checkpoints");
    check_contains(tide_last_error(), "sums.safetensors does not match its checksum");
}

/* A checkpoint with another optimizer or precision, or whose trained tensors are frozen now, is
 * refused, not skipped. */
static void other_runs_are_refused(void)
{
    static const char *const frozen[] = {"*embed_tokens*"};
    begin();
    train(1);
    struct tide_engine_options options = world.options;
    options.resume = directory;
    options.optimizer = TIDE_LION;
    check_int(refuse(&options), ==, -EINVAL);
    check_contains(tide_last_error(), "optimizer is adamw in the checkpoint and lion now");
    options.optimizer = TIDE_ADAMW;
    options.precision = TIDE_FP32;
    check_int(refuse(&options), ==, -EINVAL);
    check_contains(tide_last_error(), "precision is bf16 in the checkpoint and fp32 now");
    options.precision = TIDE_BF16;
    options.frozen = frozen;
    options.frozen_count = 1;
    check_int(refuse(&options), ==, -EINVAL);
    check_contains(tide_last_error(), "trained in the checkpoint and frozen now");
}

/* A folder of checkpoints has one writer at a time. Checkpoints of another run are replaced only on
 * request. */
static void one_run_a_folder(void)
{
    begin();
    struct tide_engine *first = world_engine(&world.options);
    struct tide_engine_options beside = world.options;
    char store[700];
    snprintf(store, sizeof store, "%s beside", world.store);
    struct tide_store_path path = world.path;
    path.directory = store;
    beside.stores = &path;
    struct tide_engine *second = world_engine(&beside);
    (void)world_steps(&world, first, 1);
    save(first);
    (void)world_steps(&world, second, 2);
    check_int(tide_engine_checkpoint(second, &saving), ==, -EBUSY);
    check_contains(tide_last_error(), "in use by another run");
    tide_engine_destroy(first);
    check_int(tide_engine_checkpoint(second, &saving), ==, -EEXIST);
    check_contains(tide_last_error(), "checkpoint-1 of another run");
    check_true(there(1) && !there(2));
    saving.replace = 1;
    save(second);
    check_true(!there(1) && there(2));
    tide_engine_destroy(second);
}

static void peeks(void)
{
    char bytes[16] = "";
    size_t count = 0;
    begin();
    check_int(tide_checkpoint_peek(NULL, directory, bytes, sizeof bytes, &count), ==, -ENOENT);
    train(1);
    saving.application = "row 18!";
    saving.application_bytes = 8;
    saving.replace = 1;
    saving.keep = 2;
    train(2);
    check_int(tide_checkpoint_peek(NULL, directory, bytes, sizeof bytes, &count), ==, 0);
    check_uint(count, ==, 8);
    check_string(bytes, "row 18!");
    check_int(tide_checkpoint_peek(NULL, directory, bytes, 3, &count), ==, -EFBIG);
    check_int(tide_checkpoint_peek(NULL, NULL, bytes, sizeof bytes, &count), ==, -EINVAL);
    check_int(tide_checkpoint_peek(NULL, directory, NULL, 1, &count), ==, -EINVAL);
    check_int(tide_checkpoint_peek(NULL, directory, bytes, sizeof bytes, NULL), ==, -EINVAL);
    check_contains(tide_last_error(), "an output parameter for their number");
    damage(2, "manifest.json", 40);
    check_int(tide_checkpoint_peek(NULL, directory, bytes, sizeof bytes, &count), ==, 0);
}

/* Invalid calls are refused, and the engine continues. */
static void wrong_calls(void)
{
    begin();
    struct tide_engine *engine = world_engine(&world.options);
    saving.directory = NULL;
    check_int(tide_engine_checkpoint(engine, &saving), ==, -EINVAL);
    saving.directory = "";
    check_int(tide_engine_checkpoint(engine, &saving), ==, -EINVAL);
    check_contains(tide_last_error(), "no directory for checkpoints was given");
    saving.directory = directory;
    saving.application = NULL;
    check_int(tide_engine_checkpoint(engine, &saving), ==, -EINVAL);
    check_contains(tide_last_error(), "application_bytes is 7, but application is NULL");
    saving.application = "";
    saving.application_bytes = (1 << 20) + 1;
    check_int(tide_engine_checkpoint(engine, &saving), <, 0);
    check_int(tide_engine_checkpoint(engine, NULL), ==, -EINVAL);
    saving.application_bytes = 0;
    (void)world_steps(&world, engine, 1);
    save(engine);
    check_true(there(1));
    tide_engine_destroy(engine);
}

/* Folders that cannot hold checkpoints are refused with the reason. */
static void no_folders(void)
{
    char longest[5000];
    char file[700];
    char linked[700];
    char lock[800];
    char below[700];
    uint64_t step = 0;
    size_t count = 0;
    begin();
    memset(longest, 'd', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    snprintf(file, sizeof file, "%s/config.json", world.model);
    snprintf(linked, sizeof linked, "%s/linked", test_directory());
    snprintf(lock, sizeof lock, "%s/.tide-lock", linked);
    snprintf(below, sizeof below, "%s/none/at/all", test_directory());
    check_int(mkdir(linked, 0777), ==, 0);
    check_int(symlink(file, lock), ==, 0);
    const struct {
        const char *directory;
        int rc;
        const char *message;
    } rows[] = {
        {longest, -ENAMETOOLONG, "for checkpoints has 4999 bytes; the maximum is 4031"},
        {file, -ENOTDIR, "config.json cannot be opened: Not a directory"},
        {linked, -ELOOP, "/linked/.tide-lock cannot be created: Too many"},
        {below, -ENOENT, "/none/at/all cannot be created"},
    };
    struct tide_engine *engine = world_engine(&world.options);
    (void)world_steps(&world, engine, 1);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        saving.directory = rows[i].directory;
        check_int(tide_engine_checkpoint(engine, &saving), ==, rows[i].rc);
        check_contains(tide_last_error(), rows[i].message);
    }
    saving.directory = directory;
    save(engine);
    check_true(there(1));
    tide_engine_destroy(engine);
    check_int(tide_checkpoint_peek(NULL, file, &step, sizeof step, &count), ==, -ENOTDIR);
    check_contains(tide_last_error(), "config.json cannot be read: Not a directory");
    world.options.resume = file;
    check_int(refuse(&world.options), ==, -ENOTDIR);
    world.options.resume = NULL;
}

/* A checkpoint with `later` gets its name during the next step, or by a wait. */
static void later(void)
{
    begin();
    world.options.saves = 1;
    saving.later = 1;
    struct tide_engine *engine = world_engine(&world.options);
    check_int(tide_engine_checkpoint_wait(engine), ==, 0);
    (void)world_steps(&world, engine, 1);
    save(engine);
    check_true(!there(1));
    (void)world_steps(&world, engine, 1);
    save(engine);
    check_true(there(1) && !there(2));
    check_int(tide_engine_checkpoint_wait(engine), ==, 0);
    check_true(there(2));
    tide_engine_destroy(engine);
    struct tide_resumed resumed;
    engine = resume(&resumed);
    check_uint(resumed.step, ==, 2);
    (void)world_steps(&world, engine, 1);
    const struct tide_step whole = world_steps(&world, engine, 1);
    tide_engine_destroy(engine);
    engine = world_engine(&world.options);
    const struct tide_step again = world_steps(&world, engine, 4);
    check_memory(&again.loss, &whole.loss, sizeof whole.loss);
    tide_engine_destroy(engine);
}

static void rotates(void)
{
    begin();
    saving.keep = 2;
    train(4);
    check_true(!there(1) && !there(2) && there(3) && there(4));
}

/* A checkpoint replaces a damaged one of the same step. */
static void same_step_again(void)
{
    struct tide_resumed resumed;
    begin();
    train(2);
    damage(2, "weights.safetensors", -4097);
    struct tide_engine *engine = resume(&resumed);
    check_uint(resumed.step, ==, 1);
    (void)world_steps(&world, engine, 1);
    save(engine);
    tide_engine_destroy(engine);
    engine = resume(&resumed);
    check_uint(resumed.step, ==, 2);
    check_uint(resumed.passed_over, ==, 0);
    tide_engine_destroy(engine);
}

static void check_same_files(const char *left, const char *right, const char *name)
{
    char command[1600];
    snprintf(command, sizeof command, "cmp '%s/%s' '%s/%s'", left, name, right, name);
    check_int(system(command), ==, 0);
}

/* Takes two steps; the exported checkpoint must have the weights that the engine saves. */
static void export_two_steps(char saved[700], char exported[700])
{
    struct tide_engine *engine = world_engine(&world.options);
    (void)world_steps(&world, engine, 2);
    save(engine);
    snprintf(saved, 700, "%s/saved", directory);
    snprintf(exported, 700, "%s/exported", directory);
    check_int(tide_engine_save(engine, saved, 0), ==, 0);
    tide_engine_destroy(engine);
    check_int(tide_checkpoint_export(NULL, path_of(2), exported, 0), ==, 0);
    check_same_files(saved, exported, "model.safetensors");
}

/* A checkpoint of partly frozen layers can be exported. */
static void exports_parts(void)
{
    static const char *const frozen[] = {"*.mlp.*", "*norm*"};
    struct tide_inspection found = {.struct_bytes = sizeof found};
    struct tide_engine_options other;
    char saved[700];
    char exported[700];
    begin();
    world.options.frozen = frozen;
    world.options.frozen_count = 2;
    export_two_steps(saved, exported);
    check_int(tide_inspect(NULL, path_of(2), NULL, &found), ==, 0);
    check_true(found.verified);
    other = world.options;
    other.frozen_count = 0;
    other.resume = directory;
    check_int(refuse(&other), ==, -EINVAL);
    check_contains(tide_last_error(), "other tensors are frozen");
}

/* The exported model equals the saved one. */
static void exports(void)
{
    char saved[700];
    char exported[700];
    begin();
    export_two_steps(saved, exported);
    check_same_files(saved, exported, "config.json");
    char manifest[800];
    snprintf(manifest, sizeof manifest, "%s/manifest.json", exported);
    check_true(!world_exists(manifest));
    check_int(tide_checkpoint_export(NULL, path_of(2), exported, 0), ==, -EEXIST);
    check_int(tide_checkpoint_export(NULL, path_of(2), exported, 1), ==, 0);
    check_int(tide_checkpoint_export(NULL, path_of(7), exported, 1), ==, -ENOENT);
    check_int(tide_checkpoint_export(NULL, NULL, exported, 1), ==, -EINVAL);
    check_int(tide_checkpoint_export(NULL, path_of(2), path_of(2), 1), ==, -EINVAL);
    check_contains(tide_last_error(), "is the checkpoint itself");
    check_int(tide_checkpoint_export(NULL, path_of(2), exported, 1), ==, 0);
    damage(2, "weights.safetensors", 5000);
    check_int(tide_checkpoint_export(NULL, path_of(2), exported, 1), ==, -EBADMSG);
    check_contains(tide_last_error(), "weights.safetensors: elements from");
    check_true(world_exists(exported));
}

/* A tensor that is missing from the manifest is noticed, even if the checksum is right. */
static void tensors_are_bound(void)
{
    enum { SEAL_BYTES = 32 };
    char path[800];
    char *text = NULL;
    size_t bytes = 0;
    struct tide_inspection found = {.struct_bytes = sizeof found};
    begin();
    struct tide_engine *engine = world_engine(&world.options);
    (void)world_steps(&world, engine, 1);
    save(engine);
    tide_engine_destroy(engine);
    check_int(tide_inspect(NULL, path_of(1), NULL, &found), ==, 0);
    check_true(found.verified);
    snprintf(path, sizeof path, "%s/manifest.json", path_of(1));
    check_int(core_file_read(path, 1 << 20, &text, &bytes), ==, 0);
    char *begin_at = strstr(text, "q_proj");
    check_true(begin_at != NULL);
    while (*begin_at != '{') {
        begin_at--;
    }
    char *end_at = strstr(begin_at, "},");
    check_true(end_at != NULL && end_at < text + bytes - SEAL_BYTES);
    memmove(begin_at, end_at + 2, strlen(end_at + 2) + 1);
    bytes = strlen(text) - SEAL_BYTES;
    FILE *out = fopen(path, "w");
    check_true(out != NULL);
    check_uint(fwrite(text, 1, bytes, out), ==, bytes);
    fprintf(out, ",\n \"xxh3\": \"%016" PRIx64 "\"\n}\n", core_hash(text, bytes, 0));
    check_int(fclose(out), ==, 0);
    free(text);
    check_int(tide_inspect(NULL, path_of(1), NULL, &found), ==, 0);
    check_true(!found.verified);
    check_contains(found.problem, "tensors: is not the list of the model");
}

TEST_MAIN({"peeks", peeks}, {"tensors_are_bound", tensors_are_bound}, {"goes_on", goes_on},
          {"spelled_otherwise", spelled_otherwise},
          {"begins_with_the_model", begins_with_the_model},
          {"damaged_ones_are_passed_over", damaged_ones_are_passed_over},
          {"other_runs_are_refused", other_runs_are_refused},
          {"one_run_a_folder", one_run_a_folder}, {"wrong_calls", wrong_calls},
          {"no_folders", no_folders}, {"later", later}, {"rotates", rotates},
          {"same_step_again", same_step_again}, {"exports", exports},
          {"exports_parts", exports_parts})
