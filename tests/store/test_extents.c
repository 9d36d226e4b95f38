/* test_extents.c: data of a plan has separate places in a store. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "aio/backend.h"
#include "core/base/err.h"
#include "core/base/size.h"
#include "offload/plan/shard.h"
#include "offload/store/ranks.h"
#include "offload/store/store.h"
#include "tests/harness/child.h"
#include "tests/harness/heard.h"
#include "tests/harness/mount.h"
#include "tests/harness/test.h"
#include "tests/run/case.h"

static const int64_t patience_ns = INT64_C(60) * 1000000000;
enum { PLACES_MAX = 512, ALIGN_BYTES = 4096 };

static struct case_model made;
static struct run_prepared *prepared;
static struct run_options options;

static void plan_begin(void)
{
    case_model_make(&made, "llama, whole");
    options = case_options();
    options.micro_batches = 2;
    options.store_count = 1;
    options.budgets.store_bytes = UINT64_C(1) << 30;
    options.wishes = (struct plan_wishes){.weights = PLAN_WHERE_STORE,
                                          .states = PLAN_WHERE_STORE,
                                          .grads = PLAN_WHERE_STORE,
                                          .acts = PLAN_ACTS_STORE,
                                          .order = PLAN_ORDER_LAYER,
                                          .chunk_elements = 65536};
    check_int(run_prepared_create(made.model, &options, case_rates(), &prepared), ==, 0);
}

static void plan_end(void)
{
    run_prepared_destroy(prepared);
    case_model_free(&made);
}

/* ---- writing to every place ---- */

struct spot {
    struct store_place place;
    uint64_t bytes;
};

/* Lists what the plan keeps in STORE, without the store's code. */
static unsigned all_spots(struct spot spots[PLACES_MAX])
{
    const struct plan_input *input = &prepared->input;
    const uint64_t each = plan_chunk_elements(prepared->plan);
    unsigned count = 0;
    for (uint32_t b = 0; b < input->block_count; b++) {
        const uint64_t elements = input->blocks[b].elements;
        const uint32_t chunks = (uint32_t)((elements + each - 1) / each);
        for (uint32_t c = 0; c < chunks; c++) {
            const uint64_t n = c + 1 < chunks ? each : elements - c * each;
            spots[count++] = (struct spot){{STORE_WEIGHTS, b, c}, n * 2};
            spots[count++] = (struct spot){{STORE_STATES, b, c}, n * (2 + 4 + 4)};
            spots[count++] = (struct spot){{STORE_GRADS, b, c}, n * 2};
        }
        for (uint32_t m = 0; m < 2 && input->blocks[b].out_bytes > 0; m++) {
            spots[count++] = (struct spot){{STORE_ACTS, b, m}, input->blocks[b].out_bytes};
        }
        check_uint(count, <, PLACES_MAX - 16);
    }
    return count;
}

static uint64_t rounded(uint64_t bytes)
{
    return (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

static void fill(unsigned char *memory, uint64_t bytes, unsigned seed)
{
    for (uint64_t i = 0; i < bytes; i += 64) {
        memset(memory + i, (int)(seed * 37 + i / 64 * 11 + i / 4096),
               bytes - i < 64 ? bytes - i : 64);
    }
}

/* Places have the data that was written to them. */
static void there_and_back(struct store *store)
{
    struct spot spots[PLACES_MAX];
    const unsigned count = all_spots(spots);
    struct aio_queue *writes = NULL;
    struct aio_queue *reads = NULL;
    struct core_fence done;
    const struct aio_queue_options queue = {.name = "test", .urgency = AIO_STATES};
    unsigned char *memory = aligned_alloc(ALIGN_BYTES, 1 << 20);
    unsigned char *right = malloc(1 << 20);
    uint64_t moved = 0;
    check_true(memory != NULL && right != NULL);
    const struct iovec slab = {.iov_base = memory, .iov_len = 1 << 20};
    check_int(store_register(store, &slab, 1), ==, 0);
    check_int(store_queue_open(store, &queue, &writes), ==, 0);
    check_int(store_queue_open(store, &queue, &reads), ==, 0);
    check_int(store_read(store, reads, &spots[0].place, memory, &done), ==, 0);
    check_int(core_fence_wait(done, patience_ns), ==, -ENODATA);
    check_int(aio_queue_close(reads), ==, 0);
    check_int(store_queue_open(store, &queue, &reads), ==, 0);
    check_contains(core_err_message(), "was never written");
    test_listen(CORE_LOG_WARN);
    for (unsigned i = 0; i < count; i++) {
        fill(memory, rounded(spots[i].bytes), i);
        check_int(store_write(store, writes, &spots[i].place, memory, &done), ==, 0);
        check_int(core_fence_wait(done, patience_ns), ==, 0);
        moved += rounded(spots[i].bytes);
    }
    for (unsigned i = 0; i < count; i++) {
        const unsigned at = (i * 7 + 3) % count;
        memset(memory, 0, 1 << 20);
        fill(right, rounded(spots[at].bytes), at);
        check_int(store_read(store, reads, &spots[at].place, memory, &done), ==, 0);
        check_int(core_fence_wait(done, patience_ns), ==, 0);
        check_memory(memory, right, rounded(spots[at].bytes));
    }
    check_true(count % 7 != 0);
    struct store_stats stats;
    store_stats_take(store, &stats);
    check_uint(stats.write_bytes, ==, moved);
    check_uint(stats.read_bytes, >=, moved);
    test_listen_end();
    check_string(test_heard(), ""); /* no retry, no late I/O */
    /* The plan has no such places. */
    const struct store_place beyond[] = {{STORE_WEIGHTS, 0, 1000},
                                         {STORE_ACTS, 0, 2},
                                         {STORE_ACTS, prepared->input.block_count - 1, 0}};
    for (size_t i = 0; i < sizeof beyond / sizeof beyond[0]; i++) {
        check_int(store_read(store, reads, &beyond[i], memory, &done), ==, -ENOENT);
        check_contains(core_err_message(), "no data of kind");
        check_int(store_write(store, writes, &beyond[i], memory, &done), ==, -ENOENT);
    }
    check_int(aio_queue_close(writes), ==, 0);
    check_int(aio_queue_close(reads), ==, 0);
    free(memory);
    free(right);
}

static void every_back_end(void)
{
    static const char *const backends[] = {"mem", "threads", NULL};
    char directory[600];
    struct stat info;
    plan_begin();
    snprintf(directory, sizeof directory, "%s/fast", test_directory());
    for (size_t i = 0; i < sizeof backends / sizeof backends[0]; i++) {
        const struct store_path path = {.directory = directory, .weight = 1};
        const struct store_options store_options = {
            .paths = &path, .path_count = 1, .backend = backends[i], .run = i + 1};
        struct store *store = NULL;
        check_int(store_open(&store_options, &prepared->input, prepared->plan, &store), ==, 0);
        there_and_back(store);
        check_int(store_close(store), ==, 0);
        check_int(stat(directory, &info), ==, -1);
    }
    check_int(store_close(NULL), ==, 0);
    plan_end();
}

/* A store works on two paths, and in the caller's memory. */
static void several_paths(void)
{
    char directories[2][600];
    char file[700];
    struct stat info;
    struct aio_mem_disk *disk = NULL;
    plan_begin();
    for (int i = 0; i < 2; i++) {
        snprintf(directories[i], sizeof directories[i], "%s/path %d", test_directory(), i);
    }
    check_int(mkdir(directories[0], 0700), ==, 0);
    snprintf(file, sizeof file, "%s/diary", directories[0]);
    FILE *out = fopen(file, "w");
    check_true(out != NULL && fclose(out) == 0);
    const struct store_path paths[] = {{.directory = directories[0], .weight = 2},
                                       {.directory = directories[1], .weight = 1}};
    const struct store_options store_options = {
        .paths = paths, .path_count = 2, .backend = "threads", .run = 1, .rank = 3};
    struct store *store = NULL;
    check_int(store_open(&store_options, &prepared->input, prepared->plan, &store), ==, 0);
    snprintf(file, sizeof file, "%s/tide-rank-3", directories[1]);
    check_int(stat(file, &info), ==, 0);
    there_and_back(store);
    check_int(store_close(store), ==, 0);
    check_int(stat(directories[1], &info), ==, -1);
    snprintf(file, sizeof file, "%s/tide-rank-3", directories[0]);
    check_int(stat(file, &info), ==, -1);
    snprintf(file, sizeof file, "%s/diary", directories[0]);
    check_int(stat(file, &info), ==, 0);
    const uint64_t bytes = UINT64_C(512) << 20;
    check_int(aio_mem_create(bytes, &disk), ==, 0);
    const struct store_path memory = {.disk = disk, .weight = 1};
    const struct store_options in_memory = {
        .paths = &memory, .path_count = 1, .backend = "mem", .run = 2};
    check_int(store_open(&in_memory, &prepared->input, prepared->plan, &store), ==, 0);
    there_and_back(store);
    check_int(store_close(store), ==, 0);
    check_true(disk->memory != NULL);
    aio_mem_destroy(disk);
    plan_end();
}

/* ---- limits ---- */

/* Paths get shares by speed, within limits of at least 2 MiB; the shares suffice for the
 * capacity. */
static void shares_fit(void)
{
    enum { MIB = 1 << 20 };
    uint64_t shares[STORE_PATHS_MAX];
    uint64_t state = 7;
    for (int i = 0; i < TEST_COUNT(20000, 2000); i++) {
        struct store_path paths[STORE_PATHS_MAX] = {{.bytes = 0}};
        const unsigned count = 1 + (unsigned)i % 5;
        for (unsigned p = 0; p < count; p++) {
            paths[p].bytes = 1 + test_random(&state, 300 * MIB);
            paths[p].weight = (double)(1 + test_random(&state, 100)) * 1e7;
        }
        const uint64_t capacity = store_capacity(paths, count);
        const uint64_t bytes = i % 2 == 0 ? capacity : capacity / 2 / (2 * MIB) * (2 * MIB);
        uint64_t sum = 0;
        check_int(store_share(paths, count, bytes, shares), ==, 0);
        for (unsigned p = 0; p < count; p++) {
            check_true(shares[p] % 4096 == 0 && shares[p] > 0);
            check_true(shares[p] <= paths[p].bytes || shares[p] == 2 * MIB);
            sum += shares[p];
        }
        check_uint(sum, >=, bytes);
        check_int(store_share(paths, count, capacity + 1, shares), ==, -ENOSPC);
    }
    const struct store_path even[] = {{.weight = 3}, {.weight = 1}};
    check_int(store_share(even, 2, 400 * (uint64_t)MIB, shares), ==, 0);
    check_uint(shares[0], ==, (300 + 32) * (uint64_t)MIB);
    check_uint(shares[1], ==, (100 + 32) * (uint64_t)MIB);
}

/* Two drives that together have the capacity for a plan are enough, whichever drive is faster. */
static void limits_of_several(void)
{
    static const double weights[][2] = {{9, 1}, {1, 9}, {1, 1}};
    char directories[2][600];
    struct spot spots[PLACES_MAX];
    uint64_t need = 0;
    struct store *store = NULL;
    plan_begin();
    const unsigned count = all_spots(spots);
    for (unsigned i = 0; i < count; i++) {
        need += core_round_up(spots[i].bytes, PLAN_EXTENT_BYTES);
    }
    for (int i = 0; i < 2; i++) {
        snprintf(directories[i], sizeof directories[i], "%s/limited %d", test_directory(), i);
    }
    for (int i = 0; i < 6; i++) {
        const uint64_t little = (uint64_t)(i < 3 ? 3 : 5) << 20;
        /* A limit may be within a stripe, whose bytes are then not used. */
        const uint64_t spare = 1 << 20;
        const struct store_path paths[] = {{.directory = directories[0],
                                            .bytes = little + spare + 4095,
                                            .weight = weights[i % 3][0]},
                                           {.directory = directories[1],
                                            .bytes = need - little + spare,
                                            .weight = weights[i % 3][1]}};
        const struct store_options wanted = {
            .paths = paths, .path_count = 2, .backend = "threads", .run = 9};
        check_uint(store_capacity(paths, 2), ==, need);
        check_int(store_open(&wanted, &prepared->input, prepared->plan, &store), ==, 0);
        there_and_back(store);
        check_int(store_close(store), ==, 0);
    }
    plan_end();
}

/* A store is refused without enough space, a free directory and a known back end. */
static void refusals(void)
{
    char directory[600];
    struct stat info;
    struct store *store = NULL;
    struct store *other = NULL;
    plan_begin();
    snprintf(directory, sizeof directory, "%s/small", test_directory());
    struct store_path path = {.directory = directory, .bytes = 8 << 20, .weight = 1};
    struct store_options store_options = {
        .paths = &path, .path_count = 1, .backend = "threads", .run = 1};
    check_int(store_open(&store_options, &prepared->input, prepared->plan, &store), ==, -ENOSPC);
    check_true(core_err_message()[0] != '\0');
    check_int(stat(directory, &info), ==, -1);
    path.bytes = 0;
    check_int(store_open(&store_options, &prepared->input, prepared->plan, &store), ==, 0);
    check_int(store_open(&store_options, &prepared->input, prepared->plan, &other), ==, -EBUSY);
    check_contains(core_err_message(), directory);
    store_options.rank = 1; /* another rank may use the directory */
    check_int(store_open(&store_options, &prepared->input, prepared->plan, &other), ==, 0);
    check_int(store_close(store), ==, 0);
    check_int(stat(directory, &info), ==, 0);
    check_int(store_close(other), ==, 0);
    (void)rmdir(directory);
    path.directory = "/nowhere/at/all";
    store = NULL;
    check_int(store_open(&store_options, &prepared->input, prepared->plan, &store), ==, -ENOENT);
    check_contains(core_err_message(), "/nowhere/at/all");
    path.directory = directory;
    path.weight = 0; /* several paths need weights, one does not */
    store_options.backend = "abacus";
    check_int(store_open(&store_options, &prepared->input, prepared->plan, &store), ==, -EINVAL);
    check_contains(core_err_message(), "abacus");
    check_true(store == NULL);
    check_int(stat(directory, &info), ==, -1);
    plan_end();
}

/* Runs on a file system of 40 MB, of which other files take `taken_mb`. */
static int run_beside(const char *mount, unsigned taken_mb, struct case_outcome *out)
{
    char command[1400];
    char directory[700];
    snprintf(command, sizeof command, "rm -f '%s/other'; head -c %uM /dev/zero > '%s/other'", mount,
             taken_mb, mount);
    check_int(system(command), ==, 0);
    snprintf(directory, sizeof directory, "%s/store", mount);
    struct run_options beside = case_options();
    beside.io = "threads";
    beside.store_count = 1;
    beside.stores[0] = (struct store_path){.directory = directory, .weight = 1};
    beside.budgets.store_bytes = UINT64_C(1) << 30;
    beside.wishes.weights = PLAN_WHERE_STORE;
    beside.wishes.states = PLAN_WHERE_HOST;
    return case_try_engine(&made, &beside, 2, out);
}

struct killed {
    const char *directory;
    uint64_t run;
};

static int die_with_three_ranks(void *argument)
{
    const struct killed *killed = argument;
    const struct store_path path = {.directory = killed->directory};
    struct store *store = NULL;
    int rc = 0;
    for (unsigned rank = 0; rc == 0 && rank < 3; rank++) {
        const struct store_options wanted = {
            .paths = &path, .path_count = 1, .run = killed->run, .rank = rank, .world = 3};
        rc = store_open(&wanted, &prepared->input, prepared->plan, &store);
    }
    return kill(getpid(), rc == 0 ? SIGKILL : SIGTERM);
}

/* Leaves the files of a killed run of three ranks. The kernel releases the locks shortly after the
 * process has ended. */
static void leave_behind(const char *directory, uint64_t run)
{
    struct store_look look = {.in_use = true};
    struct killed killed = {directory, run};
    check_int(test_child(die_with_three_ranks, &killed), ==, 256 + SIGKILL);
    for (int i = 0; i < 3000 && look.in_use; i++) {
        check_int(store_look(directory, &look), ==, 0);
        usleep(look.in_use ? 10000 : 0);
    }
}

/* A run removes the files of surplus ranks of a dead run. */
static void left_by_more_ranks(void)
{
    char directory[512];
    char folder[600];
    struct store *store = NULL;
    struct store *other = NULL;
    struct store_look look;
    snprintf(directory, sizeof directory, "%s/left", test_directory());
    const struct store_path path = {.directory = directory};
    struct store_options wanted = {
        .paths = &path, .path_count = 1, .run = 6, .rank = 2, .world = 3};
    plan_begin();
    check_int(store_look(directory, &look), ==, -ENOENT);
    check_int(mkdir(directory, 0700), ==, 0);
    check_int(store_look(directory, &look), ==, -ENOENT);
    leave_behind(directory, 5);
    check_int(store_look(directory, &look), ==, 0);
    check_uint(look.files, ==, 3);
    check_uint(look.run, ==, 5);
    check_true(!look.in_use);
    check_int(store_open(&wanted, &prepared->input, prepared->plan, &other), ==, 0);
    check_int(store_look(directory, &look), ==, -EBADMSG);
    check_contains(core_err_message(), "other files in the folder belong to run");
    check_true(look.in_use);
    wanted.rank = 0;
    wanted.world = 1;
    check_int(store_open(&wanted, &prepared->input, prepared->plan, &store), ==, 0);
    check_int(store_look(directory, &look), ==, 0);
    check_uint(look.files, ==, 2);
    check_uint(look.run, ==, 6);
    check_int(store_rank_folder(directory, 2, folder, sizeof folder), ==, 0);
    check_int(store_look(folder, &look), ==, 0);
    check_uint(look.files, ==, 1);
    check_int(store_close(other), ==, 0);
    check_int(store_close(store), ==, 0);
    check_int(store_look(directory, &look), ==, -ENOENT);
    check_int(store_rank_folder(directory, 2, folder, 20), ==, -ENAMETOOLONG);
    check_contains(core_err_message(), " bytes; the maximum is 19");
    rmdir(directory);
    plan_end();
}

/* Foreign files in a rank's folder are kept, with a warning. */
static void left_by_somebody(void)
{
    char directory[512];
    char name[640];
    struct store *store = NULL;
    snprintf(directory, sizeof directory, "%s/strange", test_directory());
    check_int(mkdir(directory, 0700), ==, 0);
    snprintf(name, sizeof name, "%s/tide-rank-7", directory);
    check_int(mkdir(name, 0700), ==, 0);
    snprintf(name, sizeof name, "%s/tide-rank-7/tide-extents", directory);
    test_file("strange/tide-rank-7/tide-extents", "mine", 4);
    check_int(chmod(name, 0600), ==, 0);
    const struct store_path path = {.directory = directory};
    const struct store_options wanted = {.paths = &path, .path_count = 1, .run = 8, .world = 1};
    plan_begin();
    char warning[640];
    snprintf(warning, sizeof warning, "%s/tide-rank-7 was left by a run that ended and cannot be",
             directory);
    test_listen(CORE_LOG_WARN);
    check_int(store_open(&wanted, &prepared->input, prepared->plan, &store), ==, 0);
    test_listen_end();
    check_uint(test_heard_lines(warning), ==, 1);
    check_uint(test_heard_lines(""), ==, 1);
    check_int(access(name, F_OK), ==, 0);
    test_listen(CORE_LOG_WARN);
    store_ranks_clear(directory, 0);
    test_listen_end();
    check_uint(test_heard_lines(warning), ==, 1);
    check_int(access(name, F_OK), ==, 0);
    check_int(store_close(store), ==, 0);
    check_int(unlink(name), ==, 0);
    store_ranks_clear(directory, 7);
    snprintf(name, sizeof name, "%s/tide-rank-7", directory);
    check_int(access(name, F_OK), ==, -1);
    plan_end();
}

/* A drive without enough space is refused, and nothing is left on it. */
static void a_full_file_system(void)
{
    char directory[700];
    struct stat info;
    struct case_outcome full;
    struct case_outcome roomy;
    const char *mount = test_mount_memory("mount", "size=40m");
    if (mount == NULL) {
        test_skip("no file system can be mounted here");
    }
    snprintf(directory, sizeof directory, "%s/store", mount);
    case_model_make(&made, "llama, whole");
    const int refused = run_beside(mount, 39, &full);
    char message[CORE_ERR_MESSAGE_BYTES];
    snprintf(message, sizeof message, "%s", core_err_message());
    const int left = stat(directory, &info);
    const int worked = run_beside(mount, 0, &roomy);
    test_mount_end(mount);
    case_model_free(&made);
    check_int(refused, ==, -ENOSPC);
    check_contains(message, directory);
    check_contains(message, "is full");
    check_int(left, ==, -1);
    check_int(worked, ==, 0);
    check_uint(roomy.steps, ==, 2);
}

TEST_MAIN({"every_back_end", every_back_end}, {"several_paths", several_paths},
          {"shares_fit", shares_fit}, {"limits_of_several", limits_of_several},
          {"refusals", refusals}, {"left_by_more_ranks", left_by_more_ranks},
          {"left_by_somebody", left_by_somebody}, {"a_full_file_system", a_full_file_system})
