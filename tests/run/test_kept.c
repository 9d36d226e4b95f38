/* test_kept.c: later runs read a quantised base that a run kept, with the same results; a
 * damaged base is made again. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/err.h"
#include "offload/model/adapter.h"
#include "offload/model/kept.h"
#include "offload/run/engine_internal.h"
#include "offload/run/rank_internal.h"
#include "tests/harness/heard.h"
#include "tests/harness/test.h"
#include "tests/run/case.h"

enum { STEPS = 2 };

struct way {
    const char *name;
    enum plan_where weights;
    enum plan_order order;
    uint32_t world, stage;
};

static const struct way ways[] = {
    {"in STORE", PLAN_WHERE_STORE, PLAN_ORDER_LAYER, 1, 0},
    {"in HOST", PLAN_WHERE_HOST, PLAN_ORDER_LAYER, 1, 0},
    {"in STORE, two ranks", PLAN_WHERE_STORE, PLAN_ORDER_MICRO, 2, 0},
    {"in STORE, parts", PLAN_WHERE_STORE, PLAN_ORDER_LAYER, 2, 3},
    {"in DEVICE", PLAN_WHERE_DEVICE, PLAN_ORDER_AUTO, 1, 0},
};

static char directory[600];

static struct run_options options_of(const struct way *way)
{
    struct run_options options = case_options();
    snprintf(directory, sizeof directory, "%s/store", test_directory());
    options.base = MODEL_STORAGE_NF4;
    options.keep_base = true;
    options.micro_batches = 2;
    options.wishes.weights = way->weights;
    options.wishes.acts = PLAN_ACTS_RECOMPUTE;
    options.wishes.order = way->order;
    options.world = way->world;
    options.stage = way->stage;
    case_store(&options, "threads");
    return options;
}

/* DoRA: the magnitudes begin with the norms of the base. */
static void make(struct case_model *made)
{
    const struct model_lora_options lora = {.rank = 4, .alpha = 8, .dora = true, .seed = 3};
    case_model_make(made, "words");
    case_model_adapt(made, &lora);
    model_stored_set_base(made->files, made->model, MODEL_STORAGE_NF4, KERN_BF16);
}

/* Counts the kept files whose names contain `part`; writes the path of the last one to `path`. */
static unsigned kept_files(const char *part, char path[900])
{
    unsigned count = 0;
    DIR *dir = opendir(directory);
    for (const struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        if (strncmp(entry->d_name, "tide-base-", 10) == 0 && strstr(entry->d_name, part) != NULL) {
            snprintf(path, 900, "%s/%s", directory, entry->d_name);
            count++;
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return count;
}

static void remove_kept(void)
{
    char path[900];
    while (kept_files("", path) > 0) {
        check_int(unlink(path), ==, 0);
    }
}

/* Flips the bits of a byte; a negative offset counts from the end. */
static void flip(const char *path, int64_t at)
{
    uint8_t byte;
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    check_int(fd, >=, 0);
    const off_t where = lseek(fd, (off_t)at, at < 0 ? SEEK_END : SEEK_SET);
    check_int(pread(fd, &byte, 1, where), ==, 1);
    byte = (uint8_t)~byte;
    check_int(pwrite(fd, &byte, 1, where), ==, 1);
    close(fd);
}

/* Overwrites the tensors of the model's file, but keeps its size and times. */
static void spoil_model(const struct case_model *made)
{
    char path[700];
    char zeros[4096] = "";
    struct stat info;
    uint64_t header = 0;
    snprintf(path, sizeof path, "%s/model.safetensors", made->folder);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    check_int(fd, >=, 0);
    check_int(fstat(fd, &info), ==, 0);
    check_int(pread(fd, &header, sizeof header, 0), ==, sizeof header);
    for (off_t at = (off_t)header + 8; at < info.st_size; at += (off_t)sizeof zeros) {
        const off_t left = info.st_size - at;
        const size_t count = left < (off_t)sizeof zeros ? (size_t)left : sizeof zeros;
        check_int(pwrite(fd, zeros, count, at), ==, (ssize_t)count);
    }
    const struct timespec times[2] = {info.st_atim, info.st_mtim};
    check_int(futimens(fd, times), ==, 0);
    close(fd);
}

/* Hashes of states would include weights of the model's files, which some cases overwrite. */
static void check_same(const struct case_outcome *a, const struct case_outcome *b, const char *what)
{
    for (unsigned s = 0; s < STEPS; s++) {
        if (a->loss[s] != b->loss[s] || a->norm[s] != b->norm[s]) {
            test_fail(__FILE__, __LINE__, "%s, step %u: loss %.17g and %.17g, norm %.17g and %.17g",
                      what, s, a->loss[s], b->loss[s], a->norm[s], b->norm[s]);
        }
    }
}

static void run_kept_for(struct case_model *made, const struct way *way, unsigned steps,
                         struct case_outcome *out)
{
    const struct run_options options = options_of(way);
    const struct case_part part = {.end = steps};
    *out = (struct case_outcome){.steps = 0};
    case_run_part(made, &options, &part, out, way->name);
}

static void run_kept(struct case_model *made, const struct way *way, struct case_outcome *out)
{
    run_kept_for(made, way, STEPS, out);
}

/* A store reads a file in place if it supports direct I/O and is on the store's file system. */
static bool store_reads(const char *path)
{
    struct stat mine;
    struct stat found;
    const int fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (fd >= 0) {
        close(fd);
    }
    return fd >= 0 && stat(directory, &mine) == 0 && stat(path, &found) == 0 &&
           mine.st_dev == found.st_dev;
}

/* ---- the same bits ---- */

/* Runs on a kept base have the results of runs that make the base, and read no tensor of the
 * model. */
static void later_runs_read_only_what_was_kept(void)
{
    struct case_model made;
    struct case_outcome plain[2];
    struct case_outcome outcome;
    char path[900];
    make(&made);
    for (int i = 0; i < 2; i++) { /* without and with several ranks */
        struct run_options options = options_of(&ways[2 * i]);
        options.keep_base = false;
        case_run_engine(&made, &options, STEPS, &plain[i]);
        check_uint(kept_files("", path), ==, 0);
    }
    run_kept(&made, &ways[3], &outcome); /* some runs below read other parts than ways[3] */
    check_same(&plain[1], &outcome, "while the base is kept");
    check_uint(kept_files("", path), ==, 1);
    spoil_model(&made);
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w += TEST_COUNT(1, 2)) {
        run_kept(&made, &ways[w], &outcome);
        check_same(&plain[ways[w].world - 1], &outcome, ways[w].name);
        check_uint(kept_files("", path), ==, 1);
    }
    remove_kept();
    case_model_free(&made);
}

static void runs_resume_on_a_kept_base(void)
{
    struct case_model made;
    struct case_outcome straight = {.steps = 0};
    struct case_outcome resumed = {.steps = 0};
    char folder[700];
    struct run_options options = options_of(&ways[0]);
    struct store_shelf *shelf = case_shelf_open();
    const struct run_save_options save = {.shelf = shelf, .keep = 1};
    const struct case_part all = {.end = STEPS};
    const struct case_part first = {.end = 1, .save = &save, .save_after = 1};
    make(&made);
    options.wishes.saves = true;
    case_run_part(&made, &options, &all, &straight, "a run");
    case_run_part(&made, &options, &first, &resumed, "its beginning");
    const struct case_part second = {
        .first = 1,
        .end = STEPS,
        .resume = store_shelf_path(store_shelf_directory(shelf), 1, folder, sizeof folder)};
    spoil_model(&made);
    case_run_part(&made, &options, &second, &resumed, "its end");
    check_same(&straight, &resumed, "resumed");
    store_shelf_close(shelf);
    remove_kept();
    case_model_free(&made);
}

/* Returns the bytes that the store writes until an engine is ready. */
static uint64_t bytes_written(const struct case_model *made, const struct run_options *options)
{
    struct run_prepared *prepared = NULL;
    struct run_engine *engine = NULL;
    struct store_stats stats;
    check_int(run_prepared_create(made->model, options, case_rates(), &prepared), ==, 0);
    const struct run_engine_options given = {.prepared = prepared,
                                             .options = options,
                                             .model = made->model,
                                             .files = made->files,
                                             .folder = made->folder};
    check_int(run_engine_create(&given, &engine), ==, 0);
    check_int(run_engine_quiesce(engine), ==, 0);
    store_stats_take(engine->workers[0].rank->store, &stats);
    check_true(run_engine_destroy(engine));
    run_prepared_destroy(prepared);
    return stats.write_bytes;
}

/* A kept file without sections has too few checksums to be read in place by sections, and is
 * copied. */
static void sections_are_read_where_they_are_kept(void)
{
    const struct model_lora_options lora = {.rank = 4, .alpha = 8, .seed = 3};
    struct case_model made;
    struct case_outcome outcomes[3] = {{.steps = 0}, {.steps = 0}, {.steps = 0}};
    char path[900];
    case_model_make(&made, "wide");
    case_model_adapt(&made, &lora);
    model_stored_set_base(made.files, made.model, MODEL_STORAGE_NF4, KERN_BF16);
    const struct run_options whole = options_of(&ways[0]);
    const struct case_part part = {.end = STEPS};
    struct run_options sections = whole;
    case_squeeze(&made, &sections, 1, NULL);
    case_run_part(&made, &whole, &part, &outcomes[0], "whole layers");
    check_uint(kept_files("", path), ==, 1);
    /* Two layers of half a byte per element. */
    const uint64_t layers = made.model->blocks[made.model->blocks[1].data].elements;
    check_uint(bytes_written(&made, &sections), >, layers);
    case_run_part(&made, &sections, &part, &outcomes[1], "sections of a copy");
    remove_kept();
    (void)bytes_written(&made, &sections);
    check_uint(kept_files("", path), ==, 1);
    spoil_model(&made);
    if (store_reads(path)) {
        check_uint(bytes_written(&made, &sections), <, layers);
    }
    case_run_part(&made, &sections, &part, &outcomes[2], "sections of the file");
    check_same(&outcomes[0], &outcomes[1], "sections of a copy");
    check_same(&outcomes[0], &outcomes[2], "sections of the file");
    remove_kept();
    case_model_free(&made);
}

/* ---- files that are made again ---- */

/* If loading finds damage, the run makes the base; if a store finds damage later, the run fails. */
static void a_damaged_file_is_removed(void)
{
    struct case_model made;
    struct case_outcome first;
    struct case_outcome outcome = {.steps = 0};
    char path[900];
    const struct run_options in_store = options_of(&ways[0]);
    make(&made);
    run_kept(&made, &ways[1], &first);
    check_uint(kept_files("", path), ==, 1);
    flip(path, 300000);
    test_listen(CORE_LOG_WARN);
    run_kept(&made, &ways[1], &outcome);
    check_contains(test_heard(),
                   "does not match its checksum; this run makes the rest of the base");
    check_contains(test_heard(), "removed ");
    test_listen_end();
    check_same(&first, &outcome, "with a damaged file");
    check_uint(kept_files("", path), ==, 0);
    run_kept(&made, &ways[1], &outcome);
    check_uint(kept_files("", path), ==, 1);
    flip(path, 300000);
    const bool there = store_reads(path);
    check_int(case_try_engine(&made, &in_store, STEPS, &outcome), ==, there ? -EBADMSG : 0);
    check_true(!there || strstr(core_err_message(), "tide-base-") != NULL);
    check_uint(kept_files("", path), ==, 0);
    remove_kept();
    case_model_free(&made);
}

/* A file that is cut, or whose header or tables are damaged, is made again. */
static void a_damaged_beginning_is_made_again(void)
{
    static const int64_t at[] = {9, 100, -4000}; /* below 0: from the end */
    struct case_model made;
    struct case_outcome outcome;
    char path[900];
    make(&made);
    run_kept_for(&made, &ways[0], 0, &outcome);
    for (size_t i = 0; i < 4; i++) {
        struct stat info;
        check_uint(kept_files("", path), ==, 1);
        check_int(stat(path, &info), ==, 0);
        if (i < 3) {
            flip(path, at[i]);
        } else {
            check_int(truncate(path, info.st_size - 4096), ==, 0);
        }
        test_listen(CORE_LOG_WARN);
        run_kept_for(&made, &ways[0], 0, &outcome);
        check_contains(test_heard(), i == 0 ? "is not used: another version of tide made it"
                                            : "is not used: it is damaged; the base is made again");
        test_listen_end();
        check_int(stat(path, &info), ==, 0);
    }
    remove_kept();
    case_model_free(&made);
}

/* Links, pipes and files that others can write are replaced, with a warning. */
static void what_is_not_ours_is_not_used(void)
{
    struct case_model made;
    struct case_outcome outcome;
    char path[900];
    char elsewhere[940];
    struct stat info;
    make(&made);
    run_kept_for(&made, &ways[0], 0, &outcome);
    check_uint(kept_files("", path), ==, 1);
    check_int(chmod(path, 0666), ==, 0);
    test_listen(CORE_LOG_WARN);
    run_kept_for(&made, &ways[0], 0, &outcome);
    check_contains(test_heard(),
                   "is not used: it belongs to another user, or others can write to it");
    test_listen_end();
    check_int(stat(path, &info), ==, 0);
    check_uint(info.st_mode & 0777, ==, 0600);

    snprintf(elsewhere, sizeof elsewhere, "%s.elsewhere", path);
    check_int(rename(path, elsewhere), ==, 0);
    check_int(symlink(elsewhere, path), ==, 0);
    test_listen(CORE_LOG_WARN);
    run_kept_for(&made, &ways[0], 0, &outcome);
    check_contains(test_heard(), "is not used: Too many levels of symbolic links");
    test_listen_end();
    check_int(lstat(path, &info), ==, 0);
    check_true(S_ISREG(info.st_mode));
    check_int(unlink(elsewhere), ==, 0);

    check_int(unlink(path), ==, 0);
    check_int(mkfifo(path, 0600), ==, 0); /* has no writer */
    test_listen(CORE_LOG_WARN);
    run_kept_for(&made, &ways[0], 0, &outcome);
    check_contains(test_heard(), "is not used: it is damaged");
    test_listen_end();
    check_int(lstat(path, &info), ==, 0);
    check_true(S_ISREG(info.st_mode));
    remove_kept();
    case_model_free(&made);
}

/* Tensors are not hashed; writing them changes the time. */
enum change { CHANGE_TIME, CHANGE_SIZE, CHANGE_HEADER, CHANGES };

/* The file keeps its time, unless that is the change. */
static void change_model(const struct case_model *made, enum change change)
{
    char path[700];
    struct stat info;
    snprintf(path, sizeof path, "%s/model.safetensors", made->folder);
    check_int(stat(path, &info), ==, 0);
    if (change == CHANGE_TIME) {
        info.st_mtim.tv_nsec ^= 1;
    } else if (change == CHANGE_SIZE) {
        check_int(truncate(path, info.st_size + 1), ==, 0);
    } else {
        flip(path, sizeof(uint64_t)); /* the first byte after the header's length */
    }
    const struct timespec times[2] = {info.st_atim, info.st_mtim};
    check_int(utimensat(AT_FDCWD, path, times, 0), ==, 0);
}

/* If the model's file has changed, the old bases of all storages are removed. */
static void a_changed_model_is_made_again(void)
{
    struct case_model made;
    struct case_outcome outcome;
    struct run_options options = options_of(&ways[1]);
    char path[900];
    make(&made);
    for (int change = 0; change < CHANGES; change++) {
        for (int storage = 0; storage < 2; storage++) {
            options.base = storage == 0 ? MODEL_STORAGE_NF4 : MODEL_STORAGE_INT8;
            model_stored_set_base(made.files, made.model, options.base, KERN_BF16);
            case_run_engine(&made, &options, 0, &outcome);
        }
        check_uint(kept_files("", path), ==, 2);
        change_model(&made, (enum change)change);
        test_listen(CORE_LOG_INFO);
        case_run_engine(&made, &options, 0, &outcome);
        check_contains(test_heard(),
                       "is not used: the model's files have changed since it was made");
        check_contains(test_heard(), "a base whose model has changed");
        test_listen_end();
        check_uint(kept_files("", path), ==, 1);
        remove_kept();
    }
    case_model_free(&made);
}

/* ---- one writer ---- */

static struct model_kept_options kept_options(const struct case_model *made,
                                              const struct run_prepared *prepared)
{
    static const bool no_pages[64];
    check_uint(made->model->block_count, <=, 64);
    return (struct model_kept_options){
        .directory = directory,
        .folder = made->folder,
        .model = made->model,
        .files = made->files,
        .stored = (const struct model_stored *const *)prepared->shapes->stored,
        .paged = no_pages,
        .storage = MODEL_STORAGE_NF4,
        .type = KERN_BF16,
        .writes = true,
        .room_bytes = UINT64_C(1) << 30};
}

enum { PART_BYTES = 5000 };

static uint64_t block_bytes(const struct case_model *made, const struct run_prepared *prepared,
                            unsigned block)
{
    const struct model_stored *stored = prepared->shapes->stored[block];
    return stored != NULL ? stored->bytes : made->model->blocks[block].elements * 2;
}

/* The bytes differ between blocks and between places in a block. */
static void fill_part(unsigned block, uint64_t at, uint64_t bytes, uint8_t *to)
{
    uint64_t state = (uint64_t)block << 32 | at;
    for (uint64_t i = 0; i < bytes; i++) {
        to[i] = (uint8_t)(case_random(&state) >> 24);
    }
}

static void write_blocks(const struct case_model *made, struct model_kept *kept,
                         const struct run_prepared *prepared, unsigned count)
{
    static uint8_t bytes[PART_BYTES];
    for (unsigned b = 0; b < count; b++) {
        const uint64_t end = block_bytes(made, prepared, b);
        for (uint64_t at = 0; model_kept_wants(kept, b) && at < end; at += PART_BYTES) {
            const uint64_t part = end - at < PART_BYTES ? end - at : PART_BYTES;
            fill_part(b, at, part, bytes);
            model_kept_write(kept, b, bytes, part);
        }
    }
}

/* Checks that the blocks of a kept file have the pattern. */
static void check_blocks(const struct case_model *made, struct model_kept *kept,
                         const struct run_prepared *prepared)
{
    static uint8_t bytes[PART_BYTES];
    unsigned same_size = 0;
    uint64_t last = 0;
    for (unsigned b = 0; b < made->model->block_count; b++) {
        const uint64_t end = block_bytes(made, prepared, b);
        if (!model_kept_has(kept, b)) {
            continue;
        }
        uint8_t *found = malloc(end);
        check_true(found != NULL);
        check_int(model_kept_read(kept, b, 0, end, found, NULL), ==, 0);
        for (uint64_t at = 0; at < end; at += PART_BYTES) {
            const uint64_t part = end - at < PART_BYTES ? end - at : PART_BYTES;
            fill_part(b, at, part, bytes);
            check_memory(found + at, bytes, part);
        }
        free(found);
        same_size += end == last;
        last = end;
    }
    check_uint(same_size, >, 0); /* blocks that could be exchanged unnoticed */
}

/* Makes a model and the plan of a run that can keep the base. */
static struct model_kept_options begin_writing(struct case_model *made,
                                               struct run_prepared **prepared)
{
    const struct run_options options = options_of(&ways[0]);
    (void)mkdir(directory, 0700);
    make(made);
    check_int(run_prepared_create(made->model, &options, case_rates(), prepared), ==, 0);
    return kept_options(made, *prepared);
}

/* The incomplete file of a killed process is not read; the next process writes a whole one. */
static void killed_runs_leave_nothing_that_is_read(void)
{
    struct case_model made;
    struct run_prepared *prepared = NULL;
    struct model_kept *kept = NULL;
    char path[900];
    const struct model_kept_options given = begin_writing(&made, &prepared);
    for (unsigned count = 0; count <= made.model->block_count; count++) {
        const pid_t child = fork();
        check_int(child, >=, 0);
        if (child == 0) {
            int rc = model_kept_open(&given, &kept);
            if (rc == 0 && kept != NULL) {
                write_blocks(&made, kept, prepared, count);
            }
            raise(SIGKILL);
        }
        int status = 0;
        check_int(waitpid(child, &status, 0), ==, child);
        check_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        check_uint(kept_files(".part", path), ==, 1);
        check_uint(kept_files("", path), ==, 1);
    }
    /* a file of another base is removed first */
    char other[900];
    snprintf(other, sizeof other, "%s/tide-base-0123456789abcdef.part", directory);
    const int fd = open(other, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    check_int(fd, >=, 0);
    close(fd);
    check_int(model_kept_open(&given, &kept), ==, 0);
    check_true(kept != NULL && !model_kept_is_read(kept));
    check_int(access(other, F_OK), !=, 0);
    write_blocks(&made, kept, prepared, made.model->block_count);
    model_kept_finish(kept, 77);
    model_kept_close(kept);
    check_uint(kept_files(".part", path), ==, 0);
    check_uint(kept_files("", path), ==, 1);
    check_int(model_kept_open(&given, &kept), ==, 0);
    check_true(kept != NULL && model_kept_is_read(kept));
    check_uint(model_kept_identity(kept), ==, 77);
    check_blocks(&made, kept, prepared);
    model_kept_close(kept);
    run_prepared_destroy(prepared);
    remove_kept();
    case_model_free(&made);
}

/* Of two runs that make a base, one writes the file. A writer that ends early leaves none. */
static void one_run_writes(void)
{
    struct case_model made;
    struct run_prepared *prepared = NULL;
    struct model_kept *kept = NULL;
    struct model_kept *other = NULL;
    struct model_kept_look look;
    char path[900];
    struct model_kept_options given = begin_writing(&made, &prepared);
    check_int(model_kept_open(&given, &kept), ==, 0);
    check_true(kept != NULL);
    test_listen(CORE_LOG_INFO);
    check_int(model_kept_open(&given, &other), ==, 0);
    check_true(other == NULL);
    check_contains(test_heard(), "another run writes ");
    test_listen_end();
    write_blocks(&made, kept, prepared, 1);
    model_kept_finish(kept, 1); /* incomplete */
    model_kept_close(kept);
    check_uint(kept_files("", path), ==, 0);

    check_int(model_kept_open(&given, &kept), ==, 0);
    write_blocks(&made, kept, prepared, made.model->block_count);
    change_model(&made, CHANGE_TIME);
    test_listen(CORE_LOG_WARN);
    model_kept_finish(kept, 1);
    check_contains(test_heard(), "the model's files changed meanwhile");
    test_listen_end();
    model_kept_close(kept);
    check_uint(kept_files("", path), ==, 0);

    given.room_bytes = 1000;
    test_listen(CORE_LOG_WARN);
    check_int(model_kept_open(&given, &kept), ==, 0);
    check_true(kept == NULL);
    check_contains(test_heard(), "the nf4 base is not kept: it takes 2 MiB, and ");
    check_contains(test_heard(), "has room for 0 MiB beside the run");
    test_listen_end();
    check_uint(kept_files("", path), ==, 0);

    given.room_bytes = 1 << 30;
    check_int(model_kept_open(&given, &kept), ==, 0);
    write_blocks(&made, kept, prepared, made.model->block_count);
    model_kept_finish(kept, 99);
    model_kept_close(kept);
    check_uint(kept_files("", path), ==, 1);
    check_true(model_kept_is(path));
    check_int(model_kept_inspect(path, &look), ==, 0);
    check_string(look.storage, "nf4");
    check_string(look.type, "bf16");
    check_uint(look.identity, ==, 99);
    flip(path, 5000);
    check_int(model_kept_inspect(path, &look), ==, -EBADMSG);
    check_contains(core_err_message(), "the data at byte 4096 does not match its checksum");
    check_int(chmod(path, 0666), ==, 0);
    check_int(model_kept_inspect(path, &look), ==, -EINVAL);
    check_contains(core_err_message(), "others can write to it");
    run_prepared_destroy(prepared);
    remove_kept();
    case_model_free(&made);
}

/* What the writer does after another run has opened the file, but before that run locks the
 * file. */
static struct {
    bool ends;
    bool begins; /* another file of the same name follows */
    int rc;
    char part[900], name[900];
} writer;

int __real_flock(int fd, int operation);
int __wrap_flock(int fd, int operation);

int __wrap_flock(int fd, int operation)
{
    if (writer.ends) {
        writer.ends = false;
        writer.rc = rename(writer.part, writer.name);
        if (writer.begins) {
            close(open(writer.part, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600));
        }
    }
    return __real_flock(fd, operation);
}

/* A file that its writer finishes between another run's open and lock stays. */
static void a_file_that_was_just_finished_stays(void)
{
    struct case_model made;
    struct run_prepared *prepared = NULL;
    struct model_kept *kept = NULL;
    struct model_kept_look look;
    char path[900];
    const struct model_kept_options given = begin_writing(&made, &prepared);
    check_int(model_kept_open(&given, &kept), ==, 0);
    write_blocks(&made, kept, prepared, made.model->block_count);
    model_kept_finish(kept, 55);
    model_kept_close(kept);
    check_uint(kept_files("", writer.name), ==, 1);
    check_int(snprintf(writer.part, sizeof writer.part, "%.890s.part", writer.name), <, 900);
    check_int(rename(writer.name, writer.part), ==, 0);
    writer.rc = -1;
    writer.ends = true;
    test_listen(CORE_LOG_INFO);
    check_int(model_kept_open(&given, &kept), ==, 0);
    check_true(kept == NULL);
    check_int(writer.rc, ==, 0);
    check_contains(test_heard(), "another run writes ");
    test_listen_end();
    check_uint(kept_files("", path), ==, 1);
    check_string(path, writer.name);
    check_int(model_kept_inspect(path, &look), ==, 0);
    check_uint(look.identity, ==, 55);
    run_prepared_destroy(prepared);
    remove_kept();
    case_model_free(&made);
}

/* The files stay if one writer ends and another begins between a run's open and lock. */
static void a_file_that_was_just_begun_stays(void)
{
    struct case_model made;
    struct run_prepared *prepared = NULL;
    struct model_kept *kept = NULL;
    const struct model_kept_options given = begin_writing(&made, &prepared);
    snprintf(writer.name, sizeof writer.name, "%s/tide-base-0123456789abcdef", directory);
    snprintf(writer.part, sizeof writer.part, "%s/tide-base-0123456789abcdef.part", directory);
    close(open(writer.part, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    writer.rc = -1;
    writer.ends = writer.begins = true;
    check_int(model_kept_open(&given, &kept), ==, 0);
    check_true(kept != NULL);
    check_int(writer.rc, ==, 0);
    check_int(access(writer.name, F_OK), ==, 0);
    check_int(access(writer.part, F_OK), ==, 0);
    writer.begins = false;
    model_kept_close(kept);
    run_prepared_destroy(prepared);
    remove_kept();
    case_model_free(&made);
}

/* If the file cannot be written, the log says so, and no file remains. */
static void a_file_that_cannot_be_written_is_no_error(void)
{
    struct case_model made;
    struct run_prepared *prepared = NULL;
    struct model_kept *kept = NULL;
    char path[900];
    const struct model_kept_options given = begin_writing(&made, &prepared);
    test_listen(CORE_LOG_WARN);
    test_limit_files(1 << 20);
    check_int(model_kept_open(&given, &kept), ==, 0);
    test_limit_files(UINT64_MAX);
    check_true(kept == NULL);
    check_contains(test_heard(), "the nf4 base is not kept: ");
    check_contains(test_heard(), " of 2 MiB cannot be created: File too large");
    check_uint(kept_files("", path), ==, 0);

    check_int(model_kept_open(&given, &kept), ==, 0);
    check_true(kept != NULL);
    test_limit_files(1 << 20);
    write_blocks(&made, kept, prepared, made.model->block_count);
    test_limit_files(UINT64_MAX);
    check_contains(test_heard(), " of 2 MiB cannot be written: File too large");
    test_listen_end();
    model_kept_finish(kept, 1);
    model_kept_close(kept);
    check_uint(kept_files("", path), ==, 0);
    run_prepared_destroy(prepared);
    case_model_free(&made);
}

static void check_not_kept(const struct model_kept_options *given, const char *why)
{
    struct model_kept *kept = NULL;
    char text[300];
    snprintf(text, sizeof text, "the nf4 base is not kept: %s", why);
    test_listen(CORE_LOG_WARN);
    check_int(model_kept_open(given, &kept), ==, 0);
    test_listen_end();
    check_true(kept == NULL);
    check_contains(test_heard(), text);
    check_uint(test_heard_lines(""), ==, 1);
}

/* If nothing can be kept, opening succeeds without a kept base, and the log says why. */
static void what_prevents_keeping_is_no_error(void)
{
    struct case_model made;
    struct run_prepared *prepared = NULL;
    struct model_kept *kept = NULL;
    char path[900];
    char away[940];
    char why[1000];
    const struct model_kept_options good = begin_writing(&made, &prepared);
    struct model_kept_options given = good;
    given.directory = test_file("plain", "x", 1);
    snprintf(why, sizeof why, "%s: Not a directory", given.directory);
    check_not_kept(&given, why);

    given = good;
    given.directory = "/nonexistent/store";
    check_not_kept(&given, "/nonexistent/store: No such file or directory");
    given.writes = false;
    test_listen(CORE_LOG_WARN);
    check_int(model_kept_open(&given, &kept), ==, 0);
    test_listen_end();
    check_true(kept == NULL);
    check_uint(test_heard_lines(""), ==, 0);

    given = good;
    given.folder = "/nonexistent/model";
    check_not_kept(&given, "/nonexistent/model: No such file or directory");

    snprintf(path, sizeof path, "%s/model.safetensors", made.folder);
    snprintf(away, sizeof away, "%s.away", path);
    check_int(rename(path, away), ==, 0);
    check_not_kept(&good, "a file of the model cannot be read again: ");
    check_int(rename(away, path), ==, 0);
    check_uint(kept_files("", path), ==, 0);
    run_prepared_destroy(prepared);
    case_model_free(&made);
}

TEST_MAIN({"what_prevents_keeping_is_no_error", what_prevents_keeping_is_no_error},
          {"killed_runs_leave_nothing_that_is_read", killed_runs_leave_nothing_that_is_read},
          {"one_run_writes", one_run_writes},
          {"a_file_that_was_just_finished_stays", a_file_that_was_just_finished_stays},
          {"a_file_that_was_just_begun_stays", a_file_that_was_just_begun_stays},
          {"a_file_that_cannot_be_written_is_no_error", a_file_that_cannot_be_written_is_no_error},
          {"later_runs_read_only_what_was_kept", later_runs_read_only_what_was_kept},
          {"sections_are_read_where_they_are_kept", sections_are_read_where_they_are_kept},
          {"runs_resume_on_a_kept_base", runs_resume_on_a_kept_base},
          {"a_damaged_file_is_removed", a_damaged_file_is_removed},
          {"a_damaged_beginning_is_made_again", a_damaged_beginning_is_made_again},
          {"what_is_not_ours_is_not_used", what_is_not_ours_is_not_used},
          {"a_changed_model_is_made_again", a_changed_model_is_made_again})
