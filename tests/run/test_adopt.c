/* test_adopt.c: a resumed run whose store adopts the files of its checkpoint has the bits of an
 * uninterrupted run. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/fence.h"
#include "offload/run/engine_internal.h"
#include "offload/run/rank_internal.h"
#include "offload/store/store.h"
#include "tests/harness/test.h"
#include "tests/run/case.h"

enum { STEPS = 4, SAVED = 2, CHUNK = 1 << 19, PATH = 700 };

static struct case_model made;
static char checkpoint[PATH];

static struct run_options options_of(enum plan_timing timing, const char *io)
{
    struct run_options options = case_options();
    options.wishes.saves = true;
    options.wishes.weights = PLAN_WHERE_STORE;
    options.wishes.states = PLAN_WHERE_STORE;
    options.wishes.timing = timing;
    options.wishes.chunk_elements = CHUNK;
    options.clip = timing == PLAN_TIMING_INSIDE ? 0 : options.clip;
    case_store(&options, io);
    return options;
}

static struct store_shelf *begin(const struct run_options *options, struct case_outcome *out)
{
    struct store_shelf *shelf = case_shelf_open();
    const struct run_save_options save = {.shelf = shelf, .keep = 2};
    const struct case_part part = {.end = SAVED, .save = &save, .save_after = SAVED};
    store_shelf_path(store_shelf_directory(shelf), SAVED, checkpoint, sizeof checkpoint);
    case_run_part(&made, options, &part, out, "the first steps");
    return shelf;
}

static void goes_on(void)
{
    static const enum plan_timing timings[] = {PLAN_TIMING_DEFERRED, PLAN_TIMING_INSIDE,
                                               PLAN_TIMING_SPECULATIVE};
    for (int t = 0; t < 3; t += TEST_STRIDE(2)) {
        struct run_options options = options_of(timings[t], t == 1 ? "threads" : NULL);
        struct case_outcome whole;
        struct case_outcome parts = {.steps = 0};
        const struct case_part rest = {.first = SAVED, .end = STEPS, .resume = checkpoint};
        case_run_engine(&made, &options, STEPS, &whole);
        struct store_shelf *shelf = begin(&options, &parts);
        case_run_part(&made, &options, &rest, &parts, "the rest");
        case_check_equal(&whole, &parts, t == 0 ? "deferred" : t == 1 ? "inside" : "speculative");
        store_shelf_close(shelf);
    }
}

/* The run keeps its bits if rotation removes the checkpoint whose files the store still uses. The
 * first resumed step has a large norm, so that a speculative update is wrong. */
static void rotated_away(void)
{
    for (int two = TEST_COUNT(0, 1); two < 2; two++) {
        struct run_options options = options_of(
            two ? PLAN_TIMING_DEFERRED : PLAN_TIMING_SPECULATIVE, NULL);
        struct case_outcome whole = {.steps = 0};
        struct case_outcome parts = {.steps = 0};
        options.world = two ? 2 : 1;
        options.stage = two ? 3 : 0;
        const uint64_t loud = UINT64_C(1) << SAVED;
        const struct case_part all = {.end = STEPS, .loud = loud};
        case_run_part(&made, &options, &all, &whole, "uninterrupted");
        struct store_shelf *shelf = begin(&options, &parts);
        const struct run_save_options save = {.shelf = shelf, .keep = 1};
        const struct case_part rest = {.first = SAVED,
                                       .end = STEPS,
                                       .resume = checkpoint,
                                       .save = &save,
                                       .save_after = SAVED + 1,
                                       .save_on = true,
                                       .later = true,
                                       .ahead = true,
                                       .loud = loud,
                                       .evaluated = loud};
        case_run_part(&made, &options, &rest, &parts, "saved all along");
        case_check_equal(&whole, &parts, "saved all along");
        check_int(access(checkpoint, F_OK), !=, 0);
        store_shelf_close(shelf);
    }
}

static struct run_engine *resume(const struct run_options *options, struct run_prepared **prepared)
{
    struct run_engine *engine = NULL;
    check_int(run_prepared_create(made.model, options, case_rates(), prepared), ==, 0);
    const struct run_engine_options given = {.prepared = *prepared,
                                             .options = options,
                                             .model = made.model,
                                             .files = made.files,
                                             .checkpoint = checkpoint};
    check_int(run_engine_create(&given, &engine), ==, 0);
    return engine;
}

static int step(struct run_engine *engine, unsigned index)
{
    int32_t ids[CASE_ROWS * CASE_LENGTH];
    const struct model_batch batch = case_batch(&made, index, 0, ids);
    struct run_step done;
    return run_engine_step(engine, &batch, 1, 1e-3, &done);
}

/* Counts the checkpoint's files that this process has open. */
static unsigned files_open(void)
{
    unsigned count = 0;
    for (int fd = 3; fd < 256; fd++) {
        char name[64];
        char path[PATH] = "";
        snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
        count += readlink(name, path, sizeof path - 1) > 0 &&
                 strncmp(path, checkpoint, strlen(checkpoint)) == 0 &&
                 path[strlen(checkpoint)] == '/';
    }
    return count;
}

static void release_checkpoint(void)
{
    const struct run_options options = options_of(PLAN_TIMING_DEFERRED, NULL);
    struct case_outcome parts = {.steps = 0};
    struct run_prepared *prepared = NULL;
    struct store_stats stats;
    struct store_shelf *shelf = begin(&options, &parts);
    struct run_engine *engine = resume(&options, &prepared);
    struct run_rank *rank = engine->workers[0].rank;
    const uint64_t adopted = store_adopted_bytes(rank->store);
    store_stats_take(rank->store, &stats);
    if (adopted == 0) { /* no direct I/O: everything was written */
        check_uint(files_open(), ==, 0);
        check_uint(stats.write_bytes, >, 0);
    } else {
        check_uint(adopted % (CHUNK * 2), ==, 0);
        check_uint(adopted, >=, (uint64_t)CHUNK * 12 * 2 * 4); /* four whole chunks per layer */
        check_uint(stats.write_bytes, <, adopted);
        check_uint(files_open(), ==, 4);
    }
    check_int(run_rank_release_checkpoint(rank), ==, 0);
    check_uint(store_adopted_bytes(rank->store), ==, adopted);
    check_int(step(engine, SAVED), ==, 0);
    check_int(run_engine_drain(engine), ==, 0);
    check_uint(store_adopted_bytes(rank->store), ==, 0);
    check_int(run_engine_release_checkpoint(engine), ==, 0);
    check_uint(files_open(), ==, 0);
    check_int(step(engine, SAVED + 1), ==, 0);
    run_engine_destroy(engine);
    run_prepared_destroy(prepared);
    store_shelf_close(shelf);
}

/* If a file of the checkpoint changes after the run has resumed, the run fails and names the
 * file. */
static void a_change_is_found(bool cut)
{
    const struct run_options options = options_of(PLAN_TIMING_DEFERRED, NULL);
    struct case_outcome parts = {.steps = 0};
    struct run_prepared *prepared = NULL;
    struct store_shelf *shelf = begin(&options, &parts);
    struct run_engine *engine = resume(&options, &prepared);
    if (store_adopted_bytes(engine->workers[0].rank->store) > 0) {
        char path[PATH + 40];
        char byte = 0;
        snprintf(path, sizeof path, "%s/m.safetensors", checkpoint);
        const int fd = open(path, O_RDWR | O_CLOEXEC);
        const off_t at = 8 << 20; /* the first layer */
        check_int(pread(fd, &byte, 1, at), ==, 1);
        byte ^= 4;
        check_int(cut ? ftruncate(fd, at) : pwrite(fd, &byte, 1, at), ==, cut ? 0 : 1);
        check_int(fsync(fd), ==, 0);
        close(fd);
        int rc = step(engine, SAVED);
        rc = rc != 0 ? rc : run_engine_drain(engine);
        check_int(rc, ==, cut ? -ENODATA : -EBADMSG);
        check_true(strstr(core_err_message(), "m.safetensors") != NULL);
    }
    run_engine_destroy(engine);
    run_prepared_destroy(prepared);
    store_shelf_close(shelf);
}

/* A store adopts whole MiB after store_adopt_begin(), and reads adopted chunks from the
 * checkpoint until they are written. */
static void one_chunk(void)
{
    const struct run_options options = options_of(PLAN_TIMING_DEFERRED, "threads");
    const struct store_options given = {
        .paths = options.stores, .path_count = 1, .backend = "threads", .run = 5, .world = 1};
    const struct aio_queue_options named = {.name = "test", .urgency = AIO_STATES};
    const struct store_place place = {STORE_STATES, 0, 0};
    const struct plan_span span = {.count = CHUNK};
    const struct plan_span part = {.count = CHUNK / 8};
    struct case_outcome parts = {.steps = 0};
    struct run_prepared *prepared = NULL;
    struct store *store = NULL;
    struct store_checkpoint *from = NULL;
    struct aio_queue *queue = NULL;
    struct core_fence done;
    struct store_shelf *shelf = begin(&options, &parts);
    char *memory = aligned_alloc(4096, (size_t)CHUNK * 20);
    char *again = memory + (size_t)CHUNK * 10;
    check_true(memory != NULL);
    memset(memory, 0, (size_t)CHUNK * 20);
    check_int(run_prepared_create(made.model, &options, case_rates(), &prepared), ==, 0);
    check_int(store_open(&given, &prepared->input, prepared->plan, &store), ==, 0);
    check_int(store_queue_open(store, &named, &queue), ==, 0);
    check_int(store_checkpoint_open(checkpoint, "threads", NULL, &from), ==, 0);
    check_string(store_checkpoint_path(from), checkpoint);
    const struct store_arrays arrays = {.at = {[STORE_STREAM_MASTER] = memory,
                                               [STORE_STREAM_M] = memory + (size_t)CHUNK * 2,
                                               [STORE_STREAM_V] = memory + (size_t)CHUNK * 6}};
    check_int(store_checkpoint_read(from, 0, 0, CHUNK, &arrays), ==, 0);
    check_int(store_adopt(store, &place, from, span, memory), ==, 0);
    check_int(store_adopt_begin(store, from), ==, 0);
    check_int(store_adopt_begin(store, from), ==, -EBUSY);
    /* `part` is not a whole MiB */
    check_int(store_adopt(store, &place, from, part, memory), ==, 0);
    if (store_checkpoint_direct_file(from, STORE_STREAM_M) >= 0) {
        check_int(store_adopt(store, &place, from, span, memory), ==, 1);
        check_uint(store_adopted_bytes(store), ==, (uint64_t)CHUNK * 10);
        check_int(store_read(store, queue, &place, again, &done), ==, 0);
        check_int(core_fence_wait_moving(done, INT64_C(60000000000)), ==, 0);
        check_memory(again, memory, (size_t)CHUNK * 10);
        check_int(store_adopt_release(store), ==, 0);
        /* four of the checkpoint and four of the store */
        check_uint(files_open(), ==, 8);
    }
    check_int(store_write(store, queue, &place, memory, &done), ==, 0);
    check_int(core_fence_wait_moving(done, INT64_C(60000000000)), ==, 0);
    check_uint(store_adopted_bytes(store), ==, 0);
    check_int(store_checkpoint_close(from), ==, 0);
    check_int(store_adopt_release(store), ==, 0);
    check_uint(files_open(), ==, 0);
    check_int(aio_queue_close(queue), ==, 0);
    check_int(store_close(store), ==, 0);
    run_prepared_destroy(prepared);
    free(memory);
    store_shelf_close(shelf);
}

static void all(void)
{
    case_model_make(&made, "wide");
    one_chunk();
    goes_on();
    rotated_away();
    release_checkpoint();
    a_change_is_found(false);
    if (TEST_COUNT(1, 0) > 0) {
        a_change_is_found(true);
    }
    case_model_free(&made);
}

TEST_MAIN({"all", all})
