/* test_blocks.c: the block store as an application sees it. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <tide/blocks.h>
#include <time.h>
#include <unistd.h>

#include "tests/api/example.h"
#include "tests/harness/child.h"
#include "tests/harness/test.h"

enum { KIB = 1 << 10, MIB = 1 << 20 };

static struct tide_store_path store;
static struct tide_blocks_options options;

static void reset(void)
{
    store = (struct tide_store_path){
        .struct_bytes = sizeof store, .directory = test_path("store"), .bytes = 16 * MIB};
    options = (struct tide_blocks_options){
        .struct_bytes = sizeof options, .host_bytes = MIB, .stores = &store, .store_count = 1};
}

static struct tide_blocks *open_blocks(void)
{
    struct tide_blocks *blocks = NULL;
    const int rc = tide_blocks_create(NULL, &options, &blocks);
    if (rc != 0) {
        test_fail(__FILE__, __LINE__, "no block store: %d: %s", rc, tide_last_error());
    }
    return blocks;
}

static void refuse(int code, const char *part)
{
    struct tide_blocks *blocks = NULL;
    const int rc = tide_blocks_create(NULL, &options, &blocks);
    if (rc != code || blocks != NULL || strstr(tide_last_error(), part) == NULL) {
        test_fail(__FILE__, __LINE__, "%s: %d: %s", part, rc, tide_last_error());
    }
    reset();
}

static bool exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

/* Wrong options are refused, and leave no directory. */
static void wrong_options(void)
{
    struct tide_memory memory = {.struct_bytes = sizeof memory};
    reset();
    options.struct_bytes = 4;
    refuse(-EINVAL, "tide_blocks_options");
    options.host_bytes = 0;
    refuse(-EINVAL, "host_bytes is 0");
    store.bytes = 0;
    refuse(-EINVAL, "store 0 has a limit of 0 bytes");
    store.directory = NULL;
    refuse(-EINVAL, "store 0 has no directory");
    store.directory = "";
    refuse(-EINVAL, "store 0 has no directory");
    store.struct_bytes = 0;
    refuse(-EINVAL, "tide_store_path");
    char longest[5000];
    memset(longest, 'd', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    store.directory = longest;
    refuse(-ENAMETOOLONG, "the path of a store's directory has 4999 bytes; the maximum is ");
    options.store_count = 17;
    refuse(-EINVAL, "store_count is 17");
    options.io = "pigeon";
    refuse(-EINVAL, "pigeon");
    options.memory = &memory;
    options.memory_count = 1;
    refuse(-EINVAL, "memory[0] has no address or no bytes");
    memory.memory = &memory;
    options.memory = &memory;
    options.memory_count = 1;
    refuse(-EINVAL, "memory[0] has no address or no bytes");
    options.memory = &memory;
    options.memory_count = 1025;
    refuse(-EINVAL, "memory_count is 1025; 0 to 1024 are possible");
    memory.struct_bytes = 0;
    options.memory = &memory;
    options.memory_count = 1;
    refuse(-EINVAL, "tide_memory");
    store.directory = "/proc/none/store";
    refuse(-ENOENT, "/proc/none/store");
    store.bytes = UINT64_C(1) << 60;
    struct tide_blocks *blocks = NULL;
    check_int(tide_blocks_create(NULL, &options, &blocks), <, 0);
    reset();
    check_true(!exists(store.directory));
    tide_blocks_destroy(NULL);
}

/* Calls without a store, and creations without an output parameter, are refused. */
static void null_arguments(void)
{
    struct tide_block block = {.struct_bytes = sizeof block};
    struct tide_block_info info = {.struct_bytes = sizeof info};
    struct tide_blocks_stats stats = {.struct_bytes = sizeof stats};
    uint64_t token = 0;
    char byte = 1;
    const int rcs[] = {
        tide_blocks_put(NULL, "a", &byte, 1),
        tide_blocks_get(NULL, "a", &byte, 1, NULL),
        tide_blocks_release(NULL, "a", 0),
        tide_blocks_prefetch(NULL, "a"),
        tide_blocks_drop(NULL, "a"),
        tide_blocks_put_begin(NULL, "a", &byte, 1, NULL, &token),
        tide_blocks_get_begin(NULL, "a", &byte, 1, NULL, &token),
        tide_blocks_poll(NULL, 1, &block),
        tide_blocks_wait(NULL, 1, &block),
        tide_blocks_iteration(NULL),
        tide_blocks_describe(NULL, "a", &info),
        tide_blocks_stats(NULL, &stats),
    };
    for (size_t i = 0; i < sizeof rcs / sizeof rcs[0]; i++) {
        check_int(rcs[i], ==, -EINVAL);
    }
    check_contains(tide_last_error(), "the block store is NULL");
    reset();
    check_int(tide_blocks_create(NULL, &options, NULL), ==, -EINVAL);
    check_contains(tide_last_error(), "`out` is NULL");
    check_true(!exists(store.directory));
    check_int(tide_pinned_alloc(NULL, "cpu", 4096, NULL), ==, -EINVAL);
    check_contains(tide_last_error(), "`out` is NULL");
    check_true(tide_pinned_memory(NULL) == NULL);
}

/* Blocks come back as they were put. */
static void round_trip(void)
{
    static unsigned char from[300 * KIB];
    static unsigned char to[300 * KIB];
    struct tide_block block = {.struct_bytes = sizeof block};
    struct tide_block_info info = {.struct_bytes = sizeof info};
    struct tide_blocks_stats stats = {.struct_bytes = sizeof stats};
    struct tide_block_io io = {.struct_bytes = sizeof io, .background = 1, .through = 1};
    uint64_t tokens[12];
    char name[16];
    reset();
    struct tide_blocks *blocks = open_blocks();
    for (size_t i = 0; i < sizeof from; i++) {
        from[i] = (unsigned char)(i * 7 + i / 251);
    }
    for (int i = 0; i < 12; i++) {
        snprintf(name, sizeof name, "b%d", i);
        check_int(tide_blocks_put_begin(blocks, name, from + i, sizeof from - 12, &io, &tokens[i]),
                  ==, 0);
    }
    for (int i = 0; i < 12; i++) {
        check_int(tide_blocks_wait(blocks, tokens[i], NULL), ==, 0);
        check_int(tide_blocks_poll(blocks, tokens[i], NULL), ==, 1);
    }
    for (int i = 0; i < 12; i++) {
        snprintf(name, sizeof name, "b%d", i);
        check_int(tide_blocks_get(blocks, name, to, sizeof to, &block), ==, 0);
        check_true(block.data == to && block.bytes == sizeof from - 12);
        check_memory(to, from + i, sizeof from - 12);
    }
    check_int(tide_blocks_get(blocks, "b3", NULL, 0, NULL), ==, -EINVAL);
    check_int(tide_blocks_get(blocks, "b3", NULL, 0, &block), ==, 0);
    check_memory(block.data, from + 3, block.bytes);
    memset(block.data, 9, block.bytes);
    check_int(tide_blocks_describe(blocks, "b3", &info), ==, 0);
    check_true(info.bytes == block.bytes && info.in_memory == 1 && info.pins == 1);
    check_int(tide_blocks_put(blocks, "b3", from, 1), ==, -EBUSY);
    check_contains(tide_last_error(), "b3");
    check_int(tide_blocks_release(blocks, "b3", 1), ==, 0);
    for (int i = 4; i < 12; i++) {
        snprintf(name, sizeof name, "b%d", i);
        check_int(tide_blocks_get_begin(blocks, name, NULL, 0, NULL, &tokens[0]), ==, 0);
        check_int(tide_blocks_wait(blocks, tokens[0], &block), ==, 0);
        check_memory(block.data, from + i, block.bytes);
        check_int(tide_blocks_release(blocks, name, 0), ==, 0);
    }
    check_int(tide_blocks_get(blocks, "b3", to, sizeof to, NULL), ==, 0);
    check_true(to[0] == 9 && to[sizeof from - 13] == 9);
    check_int(tide_blocks_prefetch(blocks, "b2"), ==, 0);
    check_int(tide_blocks_drop(blocks, "b3"), ==, 0);
    check_int(tide_blocks_drop(blocks, "b3"), ==, -ENOENT);
    check_int(tide_blocks_prefetch(blocks, "b3"), ==, -ENOENT);
    check_int(tide_blocks_describe(blocks, "b3", &info), ==, -ENOENT);
    check_int(tide_blocks_poll(blocks, 99999, NULL), ==, -ENOENT);
    check_int(tide_blocks_put_begin(blocks, "b", from, 1, NULL, NULL), ==, -EINVAL);
    check_int(tide_blocks_get_begin(blocks, "b2", to, sizeof to, NULL, NULL), ==, -EINVAL);
    check_contains(tide_last_error(), "block b2: `token` is NULL");
    check_int(tide_blocks_get_begin(blocks, NULL, to, sizeof to, NULL, NULL), ==, -EINVAL);
    check_contains(tide_last_error(), "block NULL: `token` is NULL");
    block.struct_bytes = 3;
    check_int(tide_blocks_wait(blocks, 99999, &block), ==, -EINVAL);
    check_contains(tide_last_error(), "struct tide_block is 3");
    io.struct_bytes = 3;
    check_int(tide_blocks_put_begin(blocks, "b", from, 1, &io, tokens), ==, -EINVAL);
    check_int(tide_blocks_stats(blocks, &stats), ==, 0);
    check_uint(stats.host_peak_bytes, <=, stats.host_bytes);
    check_true(stats.read_bytes > 0 && stats.written_bytes > 0 && stats.gets >= 21);
    check_true(stats.store_bytes == 16 * MIB && stats.store_used_bytes > 0);
    tide_blocks_destroy(blocks);
    check_true(!exists(store.directory));
}

static int free_pinned(void *pinned)
{
    tide_pinned_free(pinned);
    return 0;
}

/* Blocks go to and from the application's registered memory. */
static void registered_memory(void)
{
    struct tide_pinned *pinned = NULL;
    check_int(tide_pinned_alloc(NULL, NULL, 4 * MIB, &pinned), ==, 0);
    unsigned char *memory = tide_pinned_memory(pinned);
    check_true((uintptr_t)memory % 4096 == 0 && memory[0] == 0 && memory[4 * MIB - 1] == 0);
    struct tide_memory range = {.struct_bytes = sizeof range, .memory = memory, .bytes = 4 * MIB};
    reset();
    options.memory = &range;
    options.memory_count = 1;
    struct tide_block_io io = {.struct_bytes = sizeof io, .through = 1};
    struct tide_block_info info = {.struct_bytes = sizeof info};
    struct tide_blocks *blocks = open_blocks();
    uint64_t token = 0;
    for (size_t i = 0; i < 2 * MIB; i++) {
        memory[i] = (unsigned char)(i * 13 + i / 4096);
    }
    check_int(tide_blocks_put_begin(blocks, "big", memory, 2 * MIB, &io, &token), ==, 0);
    check_int(tide_blocks_wait(blocks, token, NULL), ==, 0);
    check_int(tide_blocks_describe(blocks, "big", &info), ==, 0);
    check_true(info.in_store == 1 && info.in_memory == 0);
    check_int(tide_blocks_get(blocks, "big", memory + 2 * MIB, 2 * MIB, NULL), ==, 0);
    check_memory(memory, memory + 2 * MIB, 2 * MIB);
    tide_blocks_destroy(blocks);
    check_int(test_child(free_pinned, pinned), ==, 0);
    check_true(memory[0] == 0 && memory[1] == 13);
    tide_pinned_free(pinned);
    tide_pinned_free(NULL);
    check_int(tide_pinned_alloc(NULL, "abacus", 4096, &pinned), ==, -EINVAL);
    check_int(tide_pinned_alloc(NULL, "cpu", 0, &pinned), ==, -EINVAL);
    check_int(tide_pinned_alloc(NULL, "cpu", 4096, &pinned), ==, 0);
    tide_pinned_free(pinned);
}

/* A block can be copied to the device, here the CPU. */
static void on_the_device(void)
{
    struct tide_block_io io = {.struct_bytes = sizeof io, .place = TIDE_DEVICE};
    struct tide_block block = {.struct_bytes = sizeof block};
    struct tide_block_info info = {.struct_bytes = sizeof info};
    struct tide_blocks_stats stats = {.struct_bytes = sizeof stats};
    uint64_t token = 0;
    reset();
    options.device_bytes = 1 << 16;
    struct tide_blocks *blocks = open_blocks();
    check_int(tide_blocks_put(blocks, "a", "bytes", 5), ==, 0);
    check_int(tide_blocks_get_begin(blocks, "a", NULL, 0, &io, &token), ==, 0);
    check_int(tide_blocks_wait(blocks, token, &block), ==, 0);
    check_memory(block.data, "bytes", 5);
    check_int(tide_blocks_describe(blocks, "a", &info), ==, 0);
    check_true(info.on_device == 1 && info.pins == 1);
    check_int(tide_blocks_release(blocks, "a", 0), ==, 0);
    check_int(tide_blocks_stats(blocks, &stats), ==, 0);
    check_true(stats.device_bytes == 1 << 16 && stats.device_used_bytes > 0);
    io.place = TIDE_STORE;
    check_int(tide_blocks_get_begin(blocks, "a", NULL, 0, &io, &token), ==, -EINVAL);
    tide_blocks_destroy(blocks);
    options.device = "abacus";
    refuse(-EINVAL, "abacus");
}

/* ---- processes ---- */

/* Returns 0 if the store is in use, or under TSan, which ends a child that starts a thread. */
static int open_elsewhere(void *argument)
{
    if (TEST_RACES) {
        return 0;
    }
    struct tide_blocks *blocks = NULL;
    (void)argument;
    return tide_blocks_create(NULL, &options, &blocks) == -EBUSY &&
                   strstr(tide_last_error(), "is in use by another run") != NULL
               ? 0
               : 1;
}

/* A directory serves one store at a time, and the next store begins empty. */
static void one_store_at_a_time(void)
{
    reset();
    struct tide_blocks *blocks = open_blocks();
    struct tide_blocks *second = NULL;
    check_int(tide_blocks_create(NULL, &options, &second), ==, -EBUSY);
    check_int(test_child(open_elsewhere, NULL), ==, 0);
    check_int(tide_blocks_put(blocks, "a", "bytes", 5), ==, 0);
    tide_blocks_destroy(blocks);
    blocks = open_blocks();
    check_int(tide_blocks_get(blocks, "a", NULL, 0,
                              &(struct tide_block){.struct_bytes = sizeof(struct tide_block)}),
              ==, -ENOENT);
    tide_blocks_destroy(blocks);
}

static uint64_t parents_token;

/* Returns 0 if a forked child's calls are refused. */
static int be_child(void *argument)
{
    struct tide_blocks *blocks = argument;
    struct tide_block block = {.struct_bytes = sizeof block};
    struct tide_block wrong = {.struct_bytes = 4};
    struct tide_block_info info = {.struct_bytes = sizeof info};
    struct tide_blocks_stats stats = {.struct_bytes = sizeof stats};
    uint64_t token = 0;
    char byte = 1;
    const int rcs[] = {
        tide_blocks_put(blocks, "a", &byte, 1),
        tide_blocks_get(blocks, "a", &byte, 1, NULL),
        tide_blocks_get(blocks, "a", NULL, 0, &block),
        tide_blocks_get(blocks, "a", NULL, 0, &wrong),
        tide_blocks_release(blocks, "a", 0),
        tide_blocks_prefetch(blocks, "a"),
        tide_blocks_drop(blocks, "a"),
        tide_blocks_put_begin(blocks, "a", &byte, 1, NULL, &token),
        tide_blocks_get_begin(blocks, "a", &byte, 1, NULL, &token),
        tide_blocks_poll(blocks, parents_token, &block),
        tide_blocks_wait(blocks, parents_token, &block),
        tide_blocks_wait(blocks, parents_token, &wrong),
        tide_blocks_iteration(blocks),
        tide_blocks_describe(blocks, "a", &info),
        tide_blocks_stats(blocks, &stats),
    };
    for (size_t i = 0; i < sizeof rcs / sizeof rcs[0]; i++) {
        if (rcs[i] != -ECHILD) {
            return (int)i + 1;
        }
    }
    if (strstr(tide_last_error(), "was forked from process") == NULL) {
        return 100;
    }
    tide_blocks_destroy(blocks);
    return 0;
}

static void a_forked_child(void)
{
    static unsigned char bytes[300 * KIB];
    reset();
    struct tide_blocks *blocks = open_blocks();
    for (int i = 0; i < 5; i++) {
        char name[16];
        snprintf(name, sizeof name, "%c", 'a' + i);
        memset(bytes, i, sizeof bytes);
        check_int(tide_blocks_put_begin(blocks, name, bytes, sizeof bytes, NULL, &parents_token),
                  ==, 0);
        check_int(tide_blocks_wait(blocks, parents_token, NULL), ==, 0);
    }
    check_int(test_child(be_child, blocks), ==, 0);
    for (int i = 0; i < 5; i++) {
        char name[16];
        snprintf(name, sizeof name, "%c", 'a' + i);
        check_int(tide_blocks_get(blocks, name, bytes, sizeof bytes, NULL), ==, 0);
        check_true(bytes[0] == i && bytes[sizeof bytes - 1] == i);
    }
    tide_blocks_destroy(blocks);
    check_true(!exists(store.directory));
}

static int create_and_keep(void *argument)
{
    struct tide_blocks *blocks = NULL;
    (void)argument;
    return tide_blocks_create(NULL, &options, &blocks);
}

/* The directory of a killed process is free, even if a child of the process lives. */
static void a_killed_parent(void)
{
    struct test_orphan orphan;
    reset();
    test_orphan_begin(create_and_keep, NULL, &orphan);
    check_int(test_child(open_elsewhere, NULL), ==, 0);
    test_orphan_kill(&orphan);
    struct tide_blocks *blocks = open_blocks();
    check_int(tide_blocks_put(blocks, "a", "bytes", 5), ==, 0);
    test_orphan_end(&orphan);
    check_int(test_child(open_elsewhere, NULL), ==, 0);
    tide_blocks_destroy(blocks);
    check_int(rmdir(store.directory), ==, 0); /* the killed process created it */
}

static int put_and_get_until_killed(void *argument)
{
    static unsigned char bytes[300 * KIB];
    struct tide_blocks *blocks = NULL;
    const int *said = argument;
    const int rc = tide_blocks_create(NULL, &options, &blocks);
    (void)!write(said[1], rc == 0 ? "y" : "n", 1);
    for (unsigned i = 0; rc == 0; i++) {
        char name[16];
        snprintf(name, sizeof name, "%u", i % 20);
        memset(bytes, (int)i, sizeof bytes);
        if (tide_blocks_put(blocks, name, bytes, sizeof bytes - i % 3) != 0 ||
            tide_blocks_get(blocks, name, bytes, sizeof bytes, NULL) != 0) {
            break;
        }
    }
    return 1;
}

/* After a kill, the directory can be used and has no blocks. */
static void killed_anywhere(void)
{
    static unsigned char bytes[300 * KIB];
    int said[2];
    char byte = 0;
    if (TEST_RACES) {
        test_skip("TSan ends a child that starts a thread");
    }
    reset();
    check_int(pipe(said), ==, 0);
    const int kills = test_full() ? 300 : TEST_COUNT(15, 5);
    for (int i = 0; i < kills; i++) {
        fflush(stdout);
        const pid_t child = fork();
        if (child == 0) {
            _exit(put_and_get_until_killed(said));
        }
        if (i % 3 != 0) { /* else the child may be killed while it creates the store */
            check_int(read(said[0], &byte, 1), ==, 1);
            check_int(byte, ==, 'y');
        }
        const long ns = (long)i * 7919 % 40 * 250000;
        nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
        check_int(kill(child, SIGKILL), ==, 0);
        check_int(waitpid(child, NULL, 0), ==, child);
        if (i % 3 == 0) { /* the child may have written its byte */
            struct pollfd ready = {.fd = said[0], .events = POLLIN};
            check_true(poll(&ready, 1, 0) == 0 || read(said[0], &byte, 1) == 1);
        }
        struct tide_blocks *blocks = open_blocks();
        check_int(tide_blocks_get(blocks, "1", bytes, sizeof bytes, NULL), ==, -ENOENT);
        for (int n = 0; n < 20; n++) {
            char name[16];
            snprintf(name, sizeof name, "%d", n);
            memset(bytes, n, sizeof bytes);
            check_int(tide_blocks_put(blocks, name, bytes, sizeof bytes), ==, 0);
        }
        for (int n = 0; n < 20; n++) {
            char name[16];
            snprintf(name, sizeof name, "%d", n);
            check_int(tide_blocks_get(blocks, name, bytes, sizeof bytes, NULL), ==, 0);
            check_true(bytes[0] == n && bytes[sizeof bytes - 1] == n);
        }
        tide_blocks_destroy(blocks);
    }
    close(said[0]);
    close(said[1]);
    (void)rmdir(store.directory); /* a killed process may have created it */
    check_true(!exists(store.directory));
}

static void example(void)
{
    char words[600];
    char text[4096];
    reset();
    snprintf(words, sizeof words, "'%s'", store.directory);
    const int status = example_run("docs_blocks", "", words, text, sizeof text);
    if (status != 0) {
        test_note("%s", text);
    }
    check_int(status, ==, 0);
    check_contains(text, "48 blocks in 17 MB of memory; ");
    check_true(!exists(store.directory));
    check_int(example_run("docs_blocks", "", "", text, sizeof text), ==, 2);
    check_int(example_run("docs_blocks", "", "/proc/none", text, sizeof text), ==, 1);
    check_contains(text, "/proc/none");
}

/* Valgrind finds no error and no leak in the example program. */
static void valgrind(void)
{
    char words[600];
    char text[8192];
    if (TEST_SLOW || !test_full() || system("valgrind --version >/dev/null 2>&1") != 0) {
        test_skip("only in the long form, with valgrind, without sanitizers");
    }
    reset();
    snprintf(words, sizeof words, "'%s'", store.directory);
    const int status = example_run("docs_blocks",
                                   "valgrind -q --error-exitcode=9 --leak-check=full", words, text,
                                   sizeof text);
    if (status != 0) {
        test_note("%s", text);
    }
    check_int(status, ==, 0);
    check_contains(text, " blocks in ");
}

static int blocks_without_uring(void *argument)
{
    const int *code = argument;
    struct tide_blocks *blocks = NULL;
    check_int(test_child_refuse_uring(*code, *code == ENOSYS), ==, 0);
    reset();
    options.io = "uring";
    const int rc = tide_blocks_create(NULL, &options, &blocks);
    test_uring_is_refused(*code, rc, tide_last_error());
    round_trip();
    return 0;
}

/* Without io_uring, blocks work, and a request for io_uring is refused with the reason. */
static void without_uring(void)
{
    test_without_uring(blocks_without_uring);
}

TEST_MAIN({"wrong_options", wrong_options}, {"null_arguments", null_arguments},
          {"round_trip", round_trip}, {"without_uring", without_uring},
          {"registered_memory", registered_memory}, {"on_the_device", on_the_device},
          {"one_store_at_a_time", one_store_at_a_time}, {"a_forked_child", a_forked_child},
          {"a_killed_parent", a_killed_parent}, {"killed_anywhere", killed_anywhere},
          {"example", example}, {"valgrind", valgrind})
