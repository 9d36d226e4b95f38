/* test_checkpoint.c: checkpoints can be read back, and a shelf keeps the right ones. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/hash.h"
#include "offload/model/publish.h"
#include "offload/model/safetensors.h"
#include "offload/plan/shard.h"
#include "tests/harness/child.h"
#include "tests/harness/heard.h"
#include "tests/harness/test.h"
#include "tests/store/case.h"

static void round_trip(void)
{
    static const char *const formats[] = {"bf16", "fp16", "8bit", "mixed"};
    for (int i = 0; i < 4; i++) {
        for (int small = 0; small < 2; small++) {
            struct store_shelf *shelf = case_shelf();
            case_set_format(formats[i]);
            case_shrink(small != 0);
            check_int(case_write(shelf, 3, 0, NULL), ==, 0);
            check_int(case_compare(store_shelf_directory(shelf), 3), ==, 0);
            store_shelf_close(shelf);
        }
    }
    case_set_format("bf16");
}

/* Readers of safetensors find trained tensors and checksums. */
static void others_can_read_it(void)
{
    struct store_shelf *shelf = case_shelf();
    struct model_safetensors *weights = NULL;
    struct model_safetensors *sums = NULL;
    char path[800];
    case_shrink(false);
    check_int(case_write(shelf, 1, 0, NULL), ==, 0);
    snprintf(path, sizeof path, "%s/checkpoint-1/master.safetensors", store_shelf_directory(shelf));
    check_int(model_safetensors_open(path, &weights), ==, 0);
    snprintf(path, sizeof path, "%s/checkpoint-1/sums.safetensors", store_shelf_directory(shelf));
    check_int(model_safetensors_open(path, &sums), ==, 0);
    const struct model_tensor *tensor = model_safetensors_find(weights, "block 1");
    const struct model_tensor *table = model_safetensors_find(sums, "master");
    check_true(tensor != NULL && table != NULL);
    check_string(tensor->dtype_name, "U16");
    check_uint(tensor->shape[0], ==, 131072);
    check_uint(tensor->offset_bytes % 4096, ==, 0);
    check_true(model_safetensors_find(weights, "block 2") == NULL); /* frozen */
    check_uint(table->shape[0], ==, 4);
    char *bytes = malloc(65536 * 2);
    uint64_t expected = 0;
    check_true(bytes != NULL);
    check_int(model_safetensors_read(weights, tensor, 0, bytes, 65536 * 2), ==, 0);
    check_int(model_safetensors_read(sums, table, 2 * 8, &expected, 8), ==, 0);
    check_uint(core_hash(bytes, 65536 * 2, 0), ==, expected);
    free(bytes);
    model_safetensors_close(weights);
    model_safetensors_close(sums);
    store_shelf_close(shelf);
}

static void check_dtype(const char *folder, const char *file, const char *block, const char *dtype)
{
    struct model_safetensors *opened = NULL;
    char path[900];
    snprintf(path, sizeof path, "%s/checkpoint-1/%s.safetensors", folder, file);
    check_int(model_safetensors_open(path, &opened), ==, 0);
    const struct model_tensor *tensor = model_safetensors_find(opened, block);
    check_true((tensor != NULL) == (dtype != NULL));
    if (tensor != NULL) {
        check_string(tensor->dtype_name, dtype);
    }
    model_safetensors_close(opened);
}

/* Files and manifest have the weight types of the blocks. */
static void types_of_blocks(void)
{
    struct store_shelf *shelf = case_shelf();
    struct store_manifest found = {.step = 0};
    const char *folder = store_shelf_directory(shelf);
    char path[700];
    case_shrink(true);
    case_set_format("mixed");
    check_int(case_write(shelf, 1, 0, NULL), ==, 0);
    check_dtype(folder, "weights", "block 0", "F32");
    check_dtype(folder, "weights", "block 1", "F16");
    check_dtype(folder, "weights", "block 2", "BF16");
    check_dtype(folder, "master", "block 0", NULL);
    check_dtype(folder, "master", "block 1", "F32");
    check_dtype(folder, "m", "block 0", "U8");
    store_shelf_path(folder, 1, path, sizeof path);
    check_int(store_checkpoint_peek(path, &found), ==, 0);
    check_int((int)found.blocks->list[0].weights, ==, BLOCK_WEIGHTS_FP32);
    check_int((int)found.blocks->list[1].weights, ==, BLOCK_WEIGHTS_FP16);
    check_int((int)found.blocks->list[2].weights, ==, BLOCK_WEIGHTS_OF_RUN);
    store_manifest_fini(&found);
    case_set_format("bf16");
    store_shelf_close(shelf);
}

static int stop_at_the_second(void *user, uint64_t done, uint64_t total)
{
    *(uint64_t *)user = done;
    check_uint(total, ==, CASE_BLOCKS);
    return done == 2;
}

/* A stopped check can be made again. */
static void stopped_check(void)
{
    struct store_shelf *shelf = case_shelf();
    struct store_checkpoint *checkpoint = NULL;
    char path[700];
    uint64_t done = 0;
    case_shrink(true);
    check_int(case_write(shelf, 9, 0, NULL), ==, 0);
    store_shelf_path(store_shelf_directory(shelf), 9, path, sizeof path);
    check_int(store_checkpoint_open(path, "threads", NULL, &checkpoint), ==, 0);
    check_int(store_checkpoint_verify(checkpoint, NULL, stop_at_the_second, &done), ==, -ECANCELED);
    check_uint(done, ==, 2);
    check_contains(core_err_message(), "stopped while ");
    check_int(store_checkpoint_verify(checkpoint, NULL, NULL, NULL), ==, 0);
    check_int(store_checkpoint_close(checkpoint), ==, 0);
    store_shelf_close(shelf);
}

/* A manifest is read as it was written. */
static void manifest(void)
{
    struct store_shelf *shelf = case_shelf();
    struct store_manifest found = {.step = 0};
    char path[700];
    case_shrink(true);
    check_int(case_write(shelf, 9, 0, NULL), ==, 0);
    store_shelf_path(store_shelf_directory(shelf), 9, path, sizeof path);
    check_int(store_checkpoint_peek(path, &found), ==, 0);
    check_uint(found.run, ==, 77);
    check_uint(found.step, ==, 9);
    check_uint(found.updates, ==, 8);
    check_double(found.scale.value, ==, 0.1 + 9);
    check_string(store_manifest_parameter(&found, "beta1"), "0.9");
    check_true(store_manifest_parameter(&found, "beta3") == NULL);
    check_string(found.blocks->family, "paper");
    check_uint(found.blocks->hash, ==, 5);
    check_string(found.blocks->list[1].name, "block 1");
    check_true(found.blocks->list[1].trained && !found.blocks->list[2].trained);
    check_uint(found.application_bytes, ==, 8);
    check_int(store_manifest_set_application(&found, path, STORE_APPLICATION_BYTES_MAX + 1), ==,
              -EFBIG);
    char *text = NULL;
    size_t bytes = 0;
    struct store_manifest again = {.step = 0};
    check_uint(found.part.ranks, ==, 0);
    found.part = (struct store_part){.ranks = 5, .states_of = 4, .weights_of = 1};
    check_int(store_manifest_print(&found, &text, &bytes), ==, 0);
    check_int(store_manifest_parse(text, bytes, "text", &again), ==, 0);
    check_uint(again.sums.hash, ==, found.sums.hash);
    check_uint(again.part.ranks, ==, 5);
    check_uint(again.part.states_of, ==, 4);
    check_uint(again.part.weights_of, ==, 1);
    free(text);
    store_manifest_fini(&again);
    store_manifest_fini(&found);
    store_shelf_close(shelf);
}

/* A block's cuts cover it once; the last cut includes the padding. */
static void cuts(void)
{
    struct plan_format format;
    struct store_image image;
    char dtype[8];
    const uint64_t sizes[] = {70000, 200};
    struct blocks *blocks = case_blocks((const char *const[]){"a", "b"}, sizes, 2);
    case_format("bf16", &format, dtype);
    check_int(store_image_init(&image, &format, dtype, blocks), ==, 0);
    check_uint(store_image_cuts(&image, STORE_STREAM_M), ==, 3);
    check_uint(store_image_cuts_all(&image), ==, 12);
    check_true(!store_image_has(&image, STORE_STREAM_M_SCALES));
    const struct store_cut first = store_image_cut(&image, STORE_STREAM_M, 0, 0);
    const struct store_cut last = store_image_cut(&image, STORE_STREAM_M, 0, 1);
    const struct store_cut next = store_image_cut(&image, STORE_STREAM_M, 1, 0);
    check_uint(first.bytes, ==, PLAN_CUT_ELEMENTS * 4);
    check_uint(last.offset, ==, first.offset + first.bytes);
    check_uint(last.bytes, ==, (70000 - PLAN_CUT_ELEMENTS) * 4);
    check_uint(last.offset + last.padded_bytes, ==, next.offset);
    check_uint(next.offset + next.padded_bytes, ==, store_image_file_bytes(&image, STORE_STREAM_M));
    check_uint(image.header_bytes[STORE_STREAM_M] % 4096, ==, 0);
    check_string(store_stream_name(STORE_STREAM_V), "v");
    store_image_fini(&image);
    blocks_destroy(blocks);
}

/* Names that the files reserve are refused; similar names are not. */
static void reserved_names(void)
{
    static const struct {
        const char *name;
        int rc;
    } rows[] = {{"padding.0", -EINVAL}, {"padding.12", -EINVAL}, {"__metadata__", -EINVAL},
                {"padding.", 0},        {"padding.0.weight", 0}, {"xpadding.0", 0}};
    struct plan_format format;
    char dtype[8];
    case_format("bf16", &format, dtype);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const uint64_t size = 100;
        struct store_image image = {.blocks = NULL};
        struct blocks *blocks = case_blocks(&rows[i].name, &size, 1);
        check_int(store_image_init(&image, &format, dtype, blocks), ==, rows[i].rc);
        if (rows[i].rc != 0) {
            check_contains(core_err_message(), rows[i].name);
        }
        store_image_fini(&image);
        blocks_destroy(blocks);
    }
}

static bool there(const struct store_shelf *shelf, uint64_t step)
{
    char path[700];
    return access(store_shelf_path(store_shelf_directory(shelf), step, path, sizeof path), F_OK) ==
           0;
}

/* Rotation keeps the newest checkpoints and foreign files. */
static void rotation(void)
{
    struct store_shelf *shelf = case_shelf();
    char path[700];
    case_shrink(true);
    snprintf(path, sizeof path, "%s/checkpoint-1 of mine", store_shelf_directory(shelf));
    check_int(mkdir(path, 0700), ==, 0);
    for (uint64_t step = 8; step < 12; step++) {
        check_int(case_write(shelf, step, 2, NULL), ==, 0);
    }
    check_true(!there(shelf, 8) && !there(shelf, 9) && there(shelf, 10) && there(shelf, 11));
    check_int(case_write(shelf, 11, 2, NULL), ==, 0);
    check_int(case_compare(store_shelf_directory(shelf), 11), ==, 0);
    check_true(there(shelf, 10) && access(path, F_OK) == 0);
    store_shelf_remove(shelf, 10);
    check_true(!there(shelf, 10));
    store_shelf_rotate(shelf, 11, 0);
    check_true(there(shelf, 11));
    store_shelf_close(shelf);
}

/* Rotation keeps new checkpoints before a damaged one, and removes the damaged one after a newer
 * checkpoint. */
static void rotation_in_front_of_a_damaged_one(void)
{
    struct store_shelf *shelf = case_shelf();
    case_shrink(true);
    check_int(case_write(shelf, 8, 0, NULL), ==, 0);
    check_int(case_write(shelf, 14, 0, NULL), ==, 0); /* in place of a damaged one */
    check_int(case_write(shelf, 10, 1, NULL), ==, 0);
    check_true(!there(shelf, 8) && there(shelf, 10) && there(shelf, 14));
    check_int(case_write(shelf, 12, 1, NULL), ==, 0);
    check_true(!there(shelf, 10) && there(shelf, 12) && there(shelf, 14));
    check_int(case_compare(store_shelf_directory(shelf), 12), ==, 0);
    check_int(case_write(shelf, 16, 1, NULL), ==, 0);
    check_true(!there(shelf, 12) && !there(shelf, 14) && there(shelf, 16));
    store_shelf_close(shelf);
}

static void stream_path(const struct store_shelf *shelf, const char *folder, char path[700])
{
    snprintf(path, 700, "%s/%s/m.safetensors", store_shelf_directory(shelf), folder);
}

static ino_t inode_of(const struct store_shelf *shelf, const char *folder)
{
    struct stat info = {.st_ino = 0};
    char path[700];
    stream_path(shelf, folder, path);
    return stat(path, &info) == 0 ? info.st_ino : 0;
}

/* Returns whether the file system has leases, which are refused for open files. */
static bool leases_work(const struct store_shelf *shelf)
{
    char path[700];
    snprintf(path, sizeof path, "%s/probe", store_shelf_directory(shelf));
    const int fd = open(path, O_RDWR | O_CREAT, 0600);
    const bool work = fd >= 0 && fcntl(fd, F_SETLEASE, F_WRLCK) == 0;
    close(fd);
    unlink(path);
    return work;
}

static void in_shelf(const struct store_shelf *shelf, const char *command)
{
    char text[1400];
    snprintf(text, sizeof text, "cd '%s' && %s", store_shelf_directory(shelf), command);
    check_int(system(text), ==, 0);
}

/* If leases work, the next checkpoint overwrites the files of a removed one. */
static void a_spare(void)
{
    struct store_shelf *shelf = case_shelf();
    char directory[600];
    char text[700];
    case_shrink(false);
    snprintf(directory, sizeof directory, "%s", store_shelf_directory(shelf));
    const bool reuses = leases_work(shelf);
    check_true(store_shelf_spare(shelf, text, sizeof text) == NULL);
    check_int(case_write(shelf, 1, 1, NULL), ==, 0);
    const ino_t first = inode_of(shelf, "checkpoint-1");
    check_int(case_write(shelf, 2, 1, NULL), ==, 0);
    check_true(!there(shelf, 1));
    check_contains(store_shelf_spare(shelf, text, sizeof text), "/checkpoint-1.spare");
    check_int(case_write(shelf, 3, 1, NULL), ==, 0);
    check_true(!reuses || inode_of(shelf, "checkpoint-3") == first);
    check_int(case_compare(directory, 3), ==, 0);
    /* A refused checkpoint leaves the spare unchanged. */
    in_shelf(shelf, "mkdir checkpoint-9 && echo mine > checkpoint-9/config.json && "
                    "ls -lR checkpoint-2.spare > ../spare");
    check_int(case_write(shelf, 9, 1, NULL), ==, -EEXIST);
    in_shelf(shelf, "ls -lR checkpoint-2.spare | cmp - ../spare && rm -r checkpoint-9");
    check_contains(store_shelf_spare(shelf, text, sizeof text), "/checkpoint-2.spare");
    store_shelf_spare_drop(shelf);
    check_true(store_shelf_spare(shelf, text, sizeof text) == NULL && access(text, F_OK) != 0);
    check_int(case_write(shelf, 4, 1, NULL), ==, 0);
    store_shelf_close(shelf);
    check_true(access(text, F_OK) != 0);
    snprintf(text, sizeof text, "%s/checkpoint-3.spare", directory);
    check_true(access(text, F_OK) != 0);
    check_int(mkdir(text, 0700), ==, 0);
    check_int(store_shelf_open(directory, &shelf), ==, 0);
    check_true(access(text, F_OK) != 0);
    check_int(case_compare(directory, 4), ==, 0);
    store_shelf_close(shelf);
}

/* Files of a removed checkpoint are not overwritten while they are open or have another link. */
static void a_spare_in_use(void)
{
    struct store_shelf *shelf = case_shelf();
    char from[700];
    char to[700];
    char before[2][4096];
    char after[4096];
    case_shrink(false);
    check_int(case_write(shelf, 1, 1, NULL), ==, 0);
    stream_path(shelf, "checkpoint-1", from);
    snprintf(to, sizeof to, "%s/mine", store_shelf_directory(shelf));
    const int open_file = open(from, O_RDONLY);
    check_int(pread(open_file, before[0], sizeof after, 8192), ==, (ssize_t)sizeof after);
    snprintf(from, sizeof from, "%s/checkpoint-1/v.safetensors", store_shelf_directory(shelf));
    check_int(link(from, to), ==, 0);
    const int linked = open(to, O_RDONLY);
    check_int(pread(linked, before[1], sizeof after, 8192), ==, (ssize_t)sizeof after);
    close(linked);
    check_int(case_write(shelf, 2, 1, NULL), ==, 0);
    check_int(case_write(shelf, 3, 1, NULL), ==, 0);
    check_int(case_compare(store_shelf_directory(shelf), 3), ==, 0);
    check_int(pread(open_file, after, sizeof after, 8192), ==, (ssize_t)sizeof after);
    check_memory(after, before[0], sizeof after);
    close(open_file);
    const int again = open(to, O_RDONLY);
    check_int(pread(again, after, sizeof after, 8192), ==, (ssize_t)sizeof after);
    check_memory(after, before[1], sizeof after);
    close(again);
    case_shrink(true);
    check_int(case_write(shelf, 4, 1, NULL), ==, 0);
    check_int(case_compare(store_shelf_directory(shelf), 4), ==, 0);
    store_shelf_close(shelf);
}

/* A shelf has one writer; the next writer removes a dead writer's files. */
static void one_writer(void)
{
    struct store_shelf *shelf = case_shelf();
    struct store_shelf *second = NULL;
    char directory[600];
    char path[1300];
    uint64_t *steps = NULL;
    size_t count = 1;
    case_shrink(true);
    snprintf(directory, sizeof directory, "%s", store_shelf_directory(shelf));
    check_int(store_shelf_open(directory, &second), ==, -EBUSY);
    check_contains(core_err_message(), "in use by another run; wait for its end");
    snprintf(path, sizeof path, "%s/.", directory);
    check_true(store_shelf_is(shelf, directory) && store_shelf_is(shelf, path));
    check_true(!store_shelf_is(shelf, "/proc") && !store_shelf_is(shelf, ""));
    check_int(case_write(shelf, 5, 0, NULL), ==, 0);
    store_shelf_close(shelf);
    static const char *const left[] = {"6.partial", "7.removed", "8.spare"};
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/checkpoint-%s", directory, left[i]);
        check_int(mkdir(path, 0700), ==, 0);
    }
    /* A killed writer has left an incomplete checkpoint. */
    snprintf(path, sizeof path,
             "cd '%s' && cp -r checkpoint-5 checkpoint-5.partial && "
             "rm checkpoint-5/manifest.json",
             directory);
    check_int(system(path), ==, 0);
    snprintf(path, sizeof path, "%s/checkpoint-5.partial", directory);
    const int fd = open(path, O_RDONLY | O_DIRECTORY);
    char checkpoint[1300];
    snprintf(checkpoint, sizeof checkpoint, "%s/checkpoint-5", directory);
    check_int(model_publish_keep(path, fd, checkpoint), ==, 0);
    close(fd);
    check_int(store_shelf_open(directory, &shelf), ==, 0);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/checkpoint-%s", directory, left[i]);
        check_true(access(path, F_OK) != 0);
    }
    check_int(case_compare(directory, 5), ==, 0);
    store_shelf_close(shelf);
    snprintf(path, sizeof path, "%s/none", directory);
    check_int(store_shelf_list(path, &steps, &count), ==, 0);
    check_uint(count, ==, 0);
    check_int(store_shelf_open("/proc/none", &shelf), <, 0);
    store_shelf_close(NULL);
}

/* Rotation and the next run keep foreign files. */
static void files_of_others(void)
{
    struct store_shelf *shelf = case_shelf();
    char directory[600];
    uint64_t *steps = NULL;
    size_t count = 0;
    case_shrink(true);
    test_listen(CORE_LOG_INFO);
    snprintf(directory, sizeof directory, "%s", store_shelf_directory(shelf));
    check_int(case_write(shelf, 1, 0, NULL), ==, 0);
    in_shelf(shelf,
             "echo mine > checkpoint-1/notes.txt && mkdir checkpoint-1/plots && "
             "cp -r checkpoint-1 checkpoint-7.spare && cp -r checkpoint-1 checkpoint-7.removed "
             "&& cp -r checkpoint-1 checkpoint-7.partial && mkdir checkpoint-2 && "
             "echo mine > checkpoint-2/optimizer.pt && echo mine > checkpoint-2/config.json && "
             "mkdir checkpoint-3 && echo '{}' > checkpoint-3/manifest.json && "
             "echo mine > checkpoint-3/weights.safetensors && ls -R > ../before");
    for (uint64_t step = 2; step < 4; step++) {
        check_int(case_write(shelf, step, 2, NULL), ==, -EEXIST);
        check_contains(core_err_message(), "was not written by tide and would be replaced");
    }
    check_int(case_write(shelf, 4, 2, NULL), ==, 0);
    check_int(case_write(shelf, 5, 2, NULL), ==, 0);
    in_shelf(shelf, "test \"$(ls checkpoint-1)\" = \"$(printf 'notes.txt\\nplots')\"");
    check_uint(test_heard_lines(
                   "checkpoint-1 is kept, because it has files that are not the checkpoint's"),
               ==, 1);
    check_int(store_shelf_list(directory, &steps, &count), ==, 0);
    check_uint(count, ==, 3); /* 3 is listed like a damaged checkpoint */
    check_uint(steps[0], ==, 3);
    check_uint(steps[1], ==, 4);
    free(steps);
    check_int(case_write(shelf, 6, 2, NULL), ==, 0);
    in_shelf(shelf, "echo mine > checkpoint-4.spare/notes.txt");
    store_shelf_close(shelf);
    check_uint(test_heard_lines("checkpoint-4.spare is kept"), ==, 1);
    check_int(store_shelf_open(directory, &shelf), ==, 0);
    in_shelf(shelf,
             "test \"$(ls -A checkpoint-4.spare)\" = notes.txt && rm -r checkpoint-4.spare && "
             "rm -r checkpoint-5 checkpoint-6 && cp -r checkpoint-7.spare/* checkpoint-1 && "
             "ls -R > ../after && cmp ../before ../after");
    store_shelf_close(shelf);
    check_uint(test_heard_lines(" is kept"), ==, 2);
    test_listen_end();
}

/* An interrupted removal is continued; the remaining files are no checkpoint. Names in a damaged
 * manifest are not trusted. */
static void half_removed(void)
{
    struct store_shelf *shelf = case_shelf();
    char directory[600];
    char path[700];
    uint64_t *steps = NULL;
    size_t count = 0;
    case_shrink(true);
    snprintf(directory, sizeof directory, "%s", store_shelf_directory(shelf));
    for (uint64_t step = 1; step < 6; step++) {
        check_int(case_write(shelf, step, 0, NULL), ==, 0);
    }
    in_shelf(shelf,
             "for i in 1 2 3; do mv checkpoint-$i/manifest.json checkpoint-$i/.tide-removed; "
             "done; mv checkpoint-2 checkpoint-2.removed; rm checkpoint-2.removed/m.safetensors; "
             "mv checkpoint-3 checkpoint-3.spare; echo mine > checkpoint-4/notes.txt; "
             "sed -i 's/beta1/beta7/' checkpoint-4/manifest.json");
    check_int(store_shelf_list(directory, &steps, &count), ==, 0);
    check_uint(count, ==, 2);
    free(steps);
    store_shelf_remove(shelf, 4);
    in_shelf(shelf, "test \"$(ls -A checkpoint-4)\" = notes.txt");
    store_shelf_close(shelf);
    check_int(store_shelf_open(directory, &shelf), ==, 0);
    static const char *const gone[] = {"1", "2", "2.removed", "3", "3.spare"};
    for (int i = 0; i < 5; i++) {
        snprintf(path, sizeof path, "%s/checkpoint-%s", directory, gone[i]);
        check_true(access(path, F_OK) != 0);
    }
    check_int(case_compare(directory, 5), ==, 0);
    /* A mark beside a manifest is older than the checkpoint. */
    in_shelf(shelf, "cp checkpoint-5/manifest.json checkpoint-5/.tide-removed");
    store_shelf_close(shelf);
    check_int(store_shelf_open(directory, &shelf), ==, 0);
    check_int(case_compare(directory, 5), ==, 0);
    store_shelf_close(shelf);
}

static void unfinished(void)
{
    struct store_shelf *shelf = case_shelf();
    const struct store_checkpoint_options options = {.shelf = shelf, .backend = "threads"};
    struct store_checkpoint_write *write = NULL;
    struct store_checkpoint *checkpoint = NULL;
    struct store_manifest found = {.step = 0};
    char path[700];
    case_shrink(true);
    check_int(case_write(shelf, 1, 0, NULL), ==, 0);
    store_shelf_path(store_shelf_directory(shelf), 1, path, sizeof path);
    check_int(store_checkpoint_open(path, "threads", NULL, &checkpoint), ==, 0);
    check_uint(store_checkpoint_manifest(checkpoint)->step, ==, 1);
    check_int(store_checkpoint_close(checkpoint), ==, 0);
    check_int(store_checkpoint_peek(path, &found), ==, 0);
    found.step = 2;
    check_int(store_checkpoint_begin(&options, &found, &write), ==, 0);
    check_true(found.blocks == NULL); /* now owned by the checkpoint */
    check_int(store_checkpoint_finish(write), ==, -EINVAL);
    check_contains(core_err_message(), "0 of 9 cuts");
    check_int(store_checkpoint_end(write), ==, 0);
    check_true(!there(shelf, 2));
    check_int(store_checkpoint_end(NULL), ==, 0);
    store_shelf_close(shelf);
}

/* The manifest contains values that were set at the end. */
static void told_at_the_end(void)
{
    struct store_shelf *shelf = case_shelf();
    struct store_manifest told = {.step = 0};
    struct store_manifest found = {.step = 0};
    struct store_checkpoint_write *write = NULL;
    const struct store_checkpoint_options options = {.shelf = shelf, .backend = "threads"};
    char path[700];
    case_shrink(true);
    check_int(case_write(shelf, 6, 0, NULL), ==, 0);
    store_shelf_path(store_shelf_directory(shelf), 6, path, sizeof path);
    check_int(store_checkpoint_peek(path, &found), ==, 0);
    check_int(store_checkpoint_begin(&options, &found, &write), ==, 0);
    check_int(store_checkpoint_peek(path, &told), ==, 0);
    told.updates = 4;
    told.scale.value = 32;
    check_int(store_manifest_set_application(&told, "the end", 8), ==, 0);
    store_checkpoint_tell(write, &told);
    check_true(told.application == NULL && told.blocks == NULL); /* now owned by the checkpoint */
    check_int(case_put(write, 6), ==, 0);
    check_int(store_checkpoint_finish(write), ==, 0);
    check_int(store_checkpoint_end(write), ==, 0);
    check_int(case_compare(store_shelf_directory(shelf), 6), ==, 0);
    check_int(store_checkpoint_peek(path, &found), ==, 0);
    check_uint(found.updates, ==, 4);
    check_double(found.scale.value, ==, 32);
    check_string(found.application, "the end");
    store_manifest_fini(&found);
    store_shelf_close(shelf);
}

/* A wait for a damaged range fails; a wait for earlier ranges succeeds. */
static void read_ahead(void)
{
    struct store_shelf *shelf = case_shelf();
    struct store_checkpoint *checkpoint = NULL;
    char path[800];
    char *memory = aligned_alloc(4096, 2 << 20);
    case_shrink(false);
    check_true(memory != NULL);
    check_int(case_write(shelf, 5, 0, NULL), ==, 0);
    store_shelf_path(store_shelf_directory(shelf), 5, path, 700);
    check_int(store_checkpoint_open(path, "threads", NULL, &checkpoint), ==, 0);
    const uint64_t at =
        store_image_cut(store_checkpoint_image(checkpoint), STORE_STREAM_M, 1, 1).offset;
    snprintf(path + strlen(path), 40, "/m.safetensors");
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    char byte;
    check_int(pread(fd, &byte, 1, (off_t)at), ==, 1);
    byte ^= 1;
    check_int(pwrite(fd, &byte, 1, (off_t)at), ==, 1);
    close(fd);
    const struct store_arrays arrays = {.at = {[STORE_STREAM_M] = memory}};
    const struct store_arrays behind = {.at = {[STORE_STREAM_M] = memory + (1 << 20)}};
    check_int(store_checkpoint_read_begin(checkpoint, 1, 0, 65536, &arrays), ==, 0);
    const uint64_t good = store_checkpoint_read_tail(checkpoint);
    check_int(store_checkpoint_read_begin(checkpoint, 1, 65536, 65536, &behind), ==, 0);
    check_uint(store_checkpoint_read_tail(checkpoint), >, good);
    check_int(store_checkpoint_read_wait(checkpoint, good), ==, 0);
    for (int i = 0; i < 2; i++) {
        check_int(store_checkpoint_read_wait(checkpoint, store_checkpoint_read_tail(checkpoint)),
                  ==, -EBADMSG);
        check_true(strstr(core_err_message(), "m.safetensors: elements from 65536") != NULL);
    }
    check_int(store_checkpoint_read(checkpoint, 0, 0, 65536, &arrays), ==, -EBADMSG);
    check_int(store_checkpoint_close(checkpoint), ==, 0);
    free(memory);
    store_shelf_close(shelf);
}

static int open_and_keep(void *argument)
{
    static struct store_shelf *shelf;
    return store_shelf_open(argument, &shelf);
}

/* A killed run's lock ends, even if a child lives. */
static void a_child_holds_no_lock(void)
{
    char directory[600];
    struct test_orphan orphan;
    struct store_shelf *shelf = NULL;
    snprintf(directory, sizeof directory, "%s/orphan", test_directory());
    test_orphan_begin(open_and_keep, directory, &orphan);
    check_int(store_shelf_open(directory, &shelf), ==, -EBUSY);
    test_orphan_kill(&orphan);
    check_int(store_shelf_open(directory, &shelf), ==, 0);
    test_orphan_end(&orphan);
    store_shelf_close(shelf);
}

TEST_MAIN({"a_child_holds_no_lock", a_child_holds_no_lock}, {"round_trip", round_trip},
          {"read_ahead", read_ahead}, {"told_at_the_end", told_at_the_end},
          {"others_can_read_it", others_can_read_it}, {"types_of_blocks", types_of_blocks},
          {"manifest", manifest}, {"stopped_check", stopped_check}, {"cuts", cuts},
          {"reserved_names", reserved_names}, {"rotation", rotation},
          {"rotation_in_front_of_a_damaged_one", rotation_in_front_of_a_damaged_one},
          {"a_spare", a_spare}, {"a_spare_in_use", a_spare_in_use}, {"one_writer", one_writer},
          {"files_of_others", files_of_others}, {"half_removed", half_removed},
          {"unfinished", unfinished})
