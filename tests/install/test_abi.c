/* test_abi.c: structs that are older or newer than the library's. */
#include <errno.h>

#include "core/base/err.h"
#include "offload/api/abi.h"
#include "tests/harness/test.h"

struct old {
    size_t struct_bytes;
    int64_t first;
};

struct now {
    size_t struct_bytes;
    int64_t first;
    int64_t second;
};

struct newer {
    size_t struct_bytes;
    int64_t first;
    int64_t second;
    int64_t third;
};

/* Defaults fill only the caller's struct. */
static void inits(void)
{
    const struct now defaults = {0, 1, 2};
    struct newer to = {7, 7, 7, 7};
    check_int(abi_struct_init("now", &defaults, sizeof defaults, &to, sizeof(struct old)), ==, 0);
    check_uint(to.struct_bytes, ==, sizeof(struct old));
    check_int(to.first, ==, 1);
    check_int(to.second, ==, 7);
    check_int(abi_struct_init("now", &defaults, sizeof defaults, &to, sizeof to), ==, 0);
    check_uint(to.struct_bytes, ==, sizeof to);
    check_int(to.second, ==, 2);
    check_int(to.third, ==, 0);
    check_int(abi_struct_init("now", &defaults, sizeof defaults, NULL, sizeof to), ==, -EINVAL);
    check_int(abi_struct_init("now", &defaults, sizeof defaults, &to, 0), ==, -EINVAL);
    check_contains(core_err_message(), "struct now is 0");
}

/* A shorter struct gives zeros for new fields; a longer one must end in zeros. */
static void reads(void)
{
    struct now now;
    memset(&now, 0xff, sizeof now);
    struct old old = {sizeof old, 1};
    check_int(abi_struct_read("old", &old, &now, sizeof now), ==, 0);
    check_uint(now.struct_bytes, ==, sizeof now);
    check_int(now.first, ==, 1);
    check_int(now.second, ==, 0);
    struct newer newer = {sizeof newer, 3, 4, 0};
    check_int(abi_struct_read("newer", &newer, &now, sizeof now), ==, 0);
    check_int(now.second, ==, 4);
    newer.third = (int64_t)1 << 40;
    now.second = 9;
    check_int(abi_struct_read("newer", &newer, &now, sizeof now), ==, -E2BIG);
    check_contains(core_err_message(), "struct newer has 32 bytes and is not zero at byte 29");
    check_contains(core_err_message(), "knows only the first 24 bytes");
    check_int(now.second, ==, 9);
}

/* Elements of an array have the size that the caller states. */
static void reads_arrays(void)
{
    struct now now;
    struct old old[3] = {{sizeof old[0], 1}, {sizeof old[0], 2}, {sizeof old[0], 3}};
    struct newer newer[2] = {{sizeof newer[0], 4, 5, 0}, {sizeof newer[0], 6, 7, 0}};
    for (size_t i = 0; i < 3; i++) {
        check_int(abi_struct_read_at("old", old, i, &now, sizeof now), ==, 0);
        check_int(now.first, ==, i + 1);
        check_int(now.second, ==, 0);
    }
    check_int(abi_struct_read_at("newer", newer, 1, &now, sizeof now), ==, 0);
    check_int(now.second, ==, 7);
    newer[1].third = 1;
    check_int(abi_struct_read_at("newer", newer, 1, &now, sizeof now), ==, -E2BIG);
    old[1].struct_bytes = 0;
    check_int(abi_struct_read_at("old", old, 1, &now, sizeof now), ==, -EINVAL);
    old[1].struct_bytes = 24;
    check_int(abi_struct_read_at("old", old, 1, &now, sizeof now), ==, -EINVAL);
    check_contains(core_err_message(), "is 16 in element 0 and 24 in element 1");
    check_int(abi_struct_read_at("old", NULL, 0, &now, sizeof now), ==, -EINVAL);
}

/* The library does not write beyond the caller's struct, and clears fields that only the caller
 * knows. */
static void writes(void)
{
    struct now now = {0, 1, 2};
    struct now short_one = {sizeof(struct old), 7, 7};
    check_int(abi_struct_write("now", &now, sizeof now, &short_one), ==, 0);
    check_uint(short_one.struct_bytes, ==, sizeof(struct old));
    check_int(short_one.first, ==, 1);
    check_int(short_one.second, ==, 7);
    struct newer newer[2] = {{sizeof newer[0], 7, 7, 7}, {7, 7, 7, 7}};
    check_int(abi_struct_write("now", &now, sizeof now, &newer[0]), ==, 0);
    check_int(newer[0].second, ==, 2);
    check_int(newer[0].third, ==, 0);
    check_uint(newer[1].struct_bytes, ==, 7);
}

/* A missing struct and an impossible size are refused. */
static void refuses(void)
{
    struct now now = {0};
    struct now given = {0};
    check_int(abi_struct_read("now", NULL, &now, sizeof now), ==, -EINVAL);
    static const size_t wrong[] = {0, 7, 12, 4104, SIZE_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        given.struct_bytes = wrong[i];
        check_int(abi_struct_read("now", &given, &now, sizeof now), ==, -EINVAL);
        check_contains(core_err_message(), "struct_bytes");
        check_int(abi_struct_write("now", &now, sizeof now, &given), ==, -EINVAL);
        check_int(abi_struct_check("now", &given), ==, -EINVAL);
        check_contains(core_err_message(), "struct now");
    }
    check_int(abi_struct_check("now", NULL), ==, -EINVAL);
    given.struct_bytes = 8;
    check_int(abi_struct_check("now", &given), ==, 0);
    check_int(abi_struct_read("now", &given, &now, sizeof now), ==, 0);
}

TEST_MAIN({"inits", inits}, {"reads", reads}, {"reads_arrays", reads_arrays}, {"writes", writes},
          {"refuses", refuses})
