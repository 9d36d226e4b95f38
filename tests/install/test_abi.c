/* test_abi.c: structs from programs that are older and newer than the library. */
#include <errno.h>

#include "core/base/err.h"
#include "offload/api/abi.h"
#include "tests/harness/test.h"

struct old {
    size_t struct_bytes;
    int first;
    int second;
};

struct now {
    size_t struct_bytes;
    int first;
    int second;
    int64_t third;
};

struct newer {
    size_t struct_bytes;
    int first;
    int second;
    int64_t third;
    int64_t fourth;
};

/* A shorter struct leaves the new fields at zero; a longer one may hold nothing that we miss. */
static void reads(void)
{
    struct now now;
    memset(&now, 0xff, sizeof now);
    struct old old = {sizeof old, 1, 2};
    check_int(abi_struct_read("old", &old, &now, sizeof now), ==, 0);
    check_uint(now.struct_bytes, ==, sizeof now);
    check_int(now.second, ==, 2);
    check_int(now.third, ==, 0);
    struct newer newer = {sizeof newer, 3, 4, 5, 0};
    check_int(abi_struct_read("newer", &newer, &now, sizeof now), ==, 0);
    check_int(now.third, ==, 5);
    newer.fourth = (int64_t)1 << 40;
    now.third = 9;
    check_int(abi_struct_read("newer", &newer, &now, sizeof now), ==, -E2BIG);
    check_contains(core_err_sentence(), "newer");
    check_int(now.third, ==, 9);
}

/* What we fill in never passes the caller's struct, and its struct_bytes stays. */
static void writes(void)
{
    struct now now = {0, 1, 2, 3};
    struct now short_one = {sizeof(struct old), 7, 7, 7};
    check_int(abi_struct_write("now", &now, sizeof now, &short_one), ==, 0);
    check_uint(short_one.struct_bytes, ==, sizeof(struct old));
    check_int(short_one.second, ==, 2);
    check_int(short_one.third, ==, 7);
    struct newer newer = {sizeof newer, 7, 7, 7, 7};
    check_int(abi_struct_write("now", &now, sizeof now, &newer), ==, 0);
    check_int(newer.third, ==, 3);
    check_int(newer.fourth, ==, 7);
}

/* No struct, no size, and the size of uninitialised memory are told apart from real ones. */
static void refuses(void)
{
    struct now now = {0};
    struct now given = {0};
    check_int(abi_struct_read("now", NULL, &now, sizeof now), ==, -EINVAL);
    static const size_t wrong[] = {0, 7, (1 << 16) + 1, SIZE_MAX};
    for (size_t i = 0; i < 4; i++) {
        given.struct_bytes = wrong[i];
        check_int(abi_struct_read("now", &given, &now, sizeof now), ==, -EINVAL);
        check_contains(core_err_sentence(), "struct_bytes");
        check_int(abi_struct_write("now", &now, sizeof now, &given), ==, -EINVAL);
        check_int(abi_struct_check("now", &given), ==, -EINVAL);
        check_contains(core_err_sentence(), "struct now");
    }
    check_int(abi_struct_check("now", NULL), ==, -EINVAL);
    given.struct_bytes = 8;
    check_int(abi_struct_check("now", &given), ==, 0);
    check_int(abi_struct_read("now", &given, &now, sizeof now), ==, 0);
}

TEST_MAIN({"reads", reads}, {"writes", writes}, {"refuses", refuses})
