/* Tests the lists of numbers in options. */
#include <errno.h>

#include "core/base/err.h"
#include "tests/harness/test.h"
#include "tools/ds_nvme_bench/lists.h"

/* Lists are sorted without repetitions. */
static void lists(void)
{
    uint32_t list[BENCH_LIST_MAX];
    unsigned count = 0;
    check_int(bench_list_parse("block_size", "8M,128K,1M,128K,8M", true, 256 << 20, list, &count),
              ==, 0);
    check_uint(count, ==, 3);
    check_uint(list[0], ==, 128 << 10);
    check_uint(list[1], ==, 1 << 20);
    check_uint(list[2], ==, 8 << 20);
    check_int(bench_list_parse("threads", "2", false, 16, list, &count), ==, 0);
    check_uint(list[0], ==, 2);
}

/* A bad list is refused with the name of its option. */
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
        check_contains(core_err_message(), "--name");
    }
    char many[4 * BENCH_LIST_MAX] = "1";
    for (int i = 0; i < BENCH_LIST_MAX; i++) {
        strcat(many, ",1");
    }
    check_int(bench_list_parse("name", many, false, 16, list, &count), ==, -EINVAL);
    check_contains(core_err_message(), "at most");
    char endless[600];
    memset(endless, '1', sizeof endless - 1);
    endless[sizeof endless - 1] = '\0';
    check_int(bench_list_parse("name", endless, false, 16, list, &count), ==, -EINVAL);
}

TEST_MAIN({"lists", lists}, {"bad_lists", bad_lists})
