/* Proves what lists and sweep files become, and that each bad one is refused by its name. */
#include <errno.h>
#include <stdio.h>

#include "core/base/err.h"
#include "tests/harness/test.h"
#include "tools/ds_nvme_bench/lists.h"
#include "tools/ds_nvme_bench/options.h"

/* Numbers and sizes, in order. */
static void lists(void)
{
    uint32_t list[BENCH_LIST_MAX];
    unsigned count = 0;
    check_int(bench_list_parse("block_size", "128K,1M,8M", true, 256 << 20, list, &count), ==, 0);
    check_uint(count, ==, 3);
    check_uint(list[0], ==, 128 << 10);
    check_uint(list[2], ==, 8 << 20);
    check_int(bench_list_parse("threads", "2", false, 16, list, &count), ==, 0);
    check_uint(list[0], ==, 2);
}

/* Words, negative numbers, ends of the range, sizes that are no multiples, nothing, too many. */
static void bad_lists(void)
{
    static const struct {
        const char *text;
        bool size;
    } bad[] = {{"x", false},   {"-1", false}, {"0", false}, {"17", false}, {"1.5", false},
               {"5000", true}, {"1G", true},  {"1Q", true}, {"", false},   {",", false}};
    uint32_t list[BENCH_LIST_MAX];
    unsigned count = 0;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        check_int(bench_list_parse("name", bad[i].text, bad[i].size, bad[i].size ? 256 << 20 : 16,
                                   list, &count),
                  ==, -EINVAL);
        check_contains(core_err_sentence(), "--name");
    }
    char many[4 * BENCH_LIST_MAX] = "1";
    for (int i = 0; i < BENCH_LIST_MAX; i++) {
        strcat(many, ",1");
    }
    check_int(bench_list_parse("name", many, false, 16, list, &count), ==, -EINVAL);
    check_contains(core_err_sentence(), "at most");
    char endless[600];
    memset(endless, '1', sizeof endless - 1);
    endless[sizeof endless - 1] = '\0';
    check_int(bench_list_parse("name", endless, false, 16, list, &count), ==, -EINVAL);
}

static const char *file_with(const char *text)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/sweep.json", test_directory());
    FILE *file = fopen(path, "w");
    check_true(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
    return path;
}

static int parse(struct bench_options *options, const char *path, const char *more)
{
    char *argv[] = {(char *)(uintptr_t) "/d", (char *)(uintptr_t) "--sweep_config",
                    (char *)(uintptr_t)path, (char *)(uintptr_t)more};
    return bench_options_parse(more != NULL ? 4 : 3, argv, options);
}

/* ds_nvme_tune's own default sweep, and what a file leaves out: one grid of everything listed. */
static void sweep_files(void)
{
    struct bench_options options;
    struct bench_sweep_file file;
    const char *path = file_with(
        "{\"block_size\": [\"1M\", \"8M\"], \"queue_depth\": [32, 128],\n"
        " \"sequential_requests\": [true, false],\n"
        " \"single_submit\": [false, true], \"io_parallel\": [1, 2, 4, 8]}");
    check_int(bench_sweep_file_load(path, &file), ==, 0);
    check_string(file.blocks, "1M,8M");
    check_string(file.depths, "32,128");
    check_string(file.threads, "1,2,4,8");
    check_true(file.ignores);
    check_int(parse(&options, path, NULL), ==, -1);
    check_int(options.mode, ==, BENCH_SWEEP);
    check_true(options.sweep.grid);
    check_uint(options.sweep.block_count, ==, 2);
    check_uint(options.sweep.blocks[1], ==, 8 << 20);
    check_uint(options.sweep.depth_count, ==, 2);
    check_uint(options.sweep.thread_count, ==, 4);
    path = file_with("{\"queue_depth\": [64]}");
    check_int(bench_sweep_file_load(path, &file), ==, 0);
    check_true(!file.ignores);
    check_int(parse(&options, path, NULL), ==, -1);
    check_uint(options.sweep.block_count, ==, 1);
    check_uint(options.sweep.blocks[0], ==, 1 << 20);
    check_uint(options.sweep.depths[0], ==, 64);
    check_uint(options.sweep.threads[0], ==, 1);
}

/* Another shape, another key, another type, no file, lists twice: each is named. */
static void bad_sweep_files(void)
{
    static const char *const bad[][2] = {
        {"[1, 2]", "an array"},
        {"{\"block_size\": \"1M\"}", "block_size"},
        {"{\"queue_depth\": [true]}", "queue_depth"},
        {"{\"io_parallel\": []}", "io_parallel"},
        {"{\"iodepth\": [1]}", "iodepth"},
        {"{", "sweep.json"},
    };
    struct bench_sweep_file file;
    struct bench_options options;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        check_int(bench_sweep_file_load(file_with(bad[i][0]), &file), ==, -EINVAL);
        check_contains(core_err_sentence(), bad[i][1]);
    }
    check_int(bench_sweep_file_load("/no/such/file", &file), ==, -ENOENT);
    check_int(parse(&options, file_with("{\"queue_depth\": [0]}"), NULL), ==, CLI_WRONG);
    check_int(parse(&options, file_with("{\"queue_depth\": [1]}"), "--bs=1M"), ==, CLI_WRONG);
}

TEST_MAIN({"lists", lists}, {"bad_lists", bad_lists}, {"sweep_files", sweep_files},
          {"bad_sweep_files", bad_sweep_files})
