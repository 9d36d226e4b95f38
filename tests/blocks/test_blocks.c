/* test_blocks.c: lists of blocks and their names. */
#include "offload/blocks/blocks.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "tests/harness/test.h"

static void add_array(struct blocks *blocks, uint64_t elements, uint32_t group, bool trained,
                      uint64_t expected)
{
    uint64_t first = 0;
    check_int(blocks_add_array(blocks, elements, group, trained, &first), ==, 0);
    check_uint(first, ==, expected);
}

static void check_run(const struct block *block, size_t index, struct block_run expected)
{
    check_uint(index, <, block->run_count);
    check_uint(block->runs[index].end, ==, expected.end);
    check_uint(block->runs[index].group, ==, expected.group);
}

/* A packed array begins where the previous one ends. */
static void packed_arrays(void)
{
    struct blocks *blocks = NULL;
    check_int(blocks_create(&blocks), ==, 0);
    blocks->packed = true;
    check_int(blocks_add(blocks, "packed"), ==, 0);
    add_array(blocks, 3, 0, true, 0);
    add_array(blocks, 300, 0, true, 3);
    add_array(blocks, 1, 1, true, 303);
    blocks_pad(blocks);
    check_int(blocks_finish(blocks, "paper", 0), ==, 0);
    check_uint(blocks->list[0].elements, ==, 512);
    check_run(&blocks->list[0], 0, (struct block_run){303, 0});
    check_run(&blocks->list[0], 1, (struct block_run){512, 1});
    uint64_t end = 0;
    check_true(!block_gap(&blocks->list[0], 0, &end));
    check_uint(end, ==, 304);
    blocks_destroy(blocks);
}

/* Adjacent arrays of a group are one run; padding and frozen blocks are gaps. */
static void runs_and_gaps(void)
{
    struct blocks *blocks = NULL;
    check_int(blocks_create(&blocks), ==, 0);
    check_int(blocks_add(blocks, "mixed"), ==, 0);
    add_array(blocks, 512, 7, true, 0);
    add_array(blocks, 300, 7, true, 512);
    add_array(blocks, 10, 2, true, 1024);
    add_array(blocks, 256, 3, true, 1280);
    add_array(blocks, 1, 2, true, 1536);
    add_array(blocks, 0, 3, false, 1792);
    check_int(blocks_add(blocks, "frozen"), ==, 0);
    add_array(blocks, 100, 0, false, 0);
    blocks_pad(blocks);
    check_int(blocks_add(blocks, "empty"), ==, 0);
    check_int(blocks_add(blocks, "last"), ==, 0);
    add_array(blocks, 5, 1, true, 0);
    check_int(blocks_finish(blocks, "paper", 99), ==, 0);
    check_uint(blocks->count, ==, 4);
    check_string(blocks->family, "paper");
    check_uint(blocks->hash, ==, 99);

    const struct block *mixed = &blocks->list[0];
    check_uint(mixed->elements, ==, 1537);
    check_uint(mixed->run_count, ==, 4);
    check_run(mixed, 0, (struct block_run){1024, 7});
    check_run(mixed, 1, (struct block_run){1280, 2});
    check_run(mixed, 2, (struct block_run){1536, 3});
    check_run(mixed, 3, (struct block_run){1537, 2});
    static const struct {
        uint64_t at, end;
        bool gap;
    } parts[] = {{0, 812, false},    {511, 812, false},   {811, 812, false},
                 {812, 1024, true},  {1023, 1024, true},  {1024, 1034, false},
                 {1034, 1280, true}, {1300, 1537, false}, {1536, 1537, false}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        uint64_t end = 0;
        check_true(block_gap(mixed, parts[i].at, &end) == parts[i].gap);
        check_uint(end, ==, parts[i].end);
    }

    const struct block *frozen = &blocks->list[1];
    uint64_t end = 0;
    check_true(!frozen->trained && mixed->trained && !blocks->list[2].trained);
    check_uint(frozen->elements, ==, 256);
    check_run(frozen, 0, (struct block_run){256, 0});
    check_true(block_gap(frozen, 0, &end));
    check_uint(end, ==, 256);
    check_uint(blocks->list[2].elements, ==, 0);
    check_uint(blocks->list[2].run_count, ==, 0);
    check_run(&blocks->list[3], 0, (struct block_run){5, 1});
    blocks_destroy(blocks);
    blocks_destroy(NULL);
}

/* A block's tensors keep copies of their names. */
static void tensors(void)
{
    struct blocks *blocks = NULL;
    const char *kept = NULL;
    char name[BLOCKS_NAME_BYTES_MAX + 1];
    memset(name, 'x', sizeof name);
    name[BLOCKS_NAME_BYTES_MAX] = '\0';
    check_int(blocks_create(&blocks), ==, 0);
    for (uint32_t b = 0; b < 1000; b++) {
        const struct block_tensor tensor = {.name = name, .first = b, .rows = 3, .cols = 4};
        snprintf(name, 8, "%07" PRIu32, b);
        name[7] = 'x';
        check_int(blocks_add(blocks, name), ==, 0);
        for (uint32_t i = 0; i < b % 3; i++) {
            check_int(blocks_add_tensor(blocks, &tensor, b == 1 ? &kept : NULL), ==, 0);
        }
    }
    check_int(blocks_finish(blocks, "paper", 0), ==, 0);
    for (uint32_t b = 0; b < 1000; b++) {
        const struct block *block = &blocks->list[b];
        check_uint(block->tensor_count, ==, b % 3);
        check_uint(strlen(block->name), ==, BLOCKS_NAME_BYTES_MAX);
        for (size_t i = 0; i < block->tensor_count; i++) {
            check_uint(block->tensors[i].first, ==, b);
            check_string(block->tensors[i].name, block->name);
        }
    }
    check_string(kept, blocks->list[1].name);
    blocks_destroy(blocks);
}

static void refused(void)
{
    struct blocks *blocks = NULL;
    char name[BLOCKS_NAME_BYTES_MAX + 2];
    uint64_t first = 0;
    memset(name, 'x', sizeof name);
    name[BLOCKS_NAME_BYTES_MAX + 1] = '\0';
    check_int(blocks_create(&blocks), ==, 0);
    check_int(blocks_finish(blocks, "paper", 0), ==, -EINVAL);
    check_contains(core_err_message(), "0 blocks");
    check_int(blocks_add(blocks, name), ==, -EINVAL);
    check_contains(core_err_message(), "has 256 bytes; expected 1 to 255");
    check_int(blocks_add(blocks, ""), ==, -EINVAL);
    check_int(blocks_add(blocks, "a\xff"), ==, -EINVAL);
    check_contains(core_err_message(), "byte 1 ");
    check_uint(blocks->count, ==, 0);
    check_int(blocks_add(blocks, "gr\xc3\xbc\xc3\x9f"), ==, 0);
    check_int(blocks_add_tensor(blocks, &(struct block_tensor){.name = ""}, NULL), ==, -EINVAL);
    check_int(blocks_add_array(blocks, BLOCKS_ELEMENTS_MAX, 0, true, &first), ==, 0);
    check_int(blocks_add_array(blocks, 1, 0, true, &first), ==, -EINVAL);
    check_contains(core_err_message(), "elements");
    check_int(blocks_add(blocks, "b"), ==, 0);
    check_int(blocks_add(blocks, "a"), ==, 0);
    check_int(blocks_add(blocks, "b"), ==, 0);
    check_int(blocks_finish(blocks, "paper", 0), ==, -EINVAL);
    check_contains(core_err_message(), "two blocks have the name \"b\"");
    blocks_destroy(blocks);
}

/* A quadratic step would take hours. */
static void many(void)
{
    struct blocks *blocks = NULL;
    char name[64];
    const int64_t start_ns = core_clock_now_ns();
    check_int(blocks_create(&blocks), ==, 0);
    for (uint32_t b = 0; b < BLOCKS_MAX; b++) {
        uint64_t first = 0;
        snprintf(name, sizeof name, "model.layers.%" PRIu32 ".norm.weight", BLOCKS_MAX - b);
        check_int(blocks_add(blocks, name), ==, 0);
        check_int(blocks_add_array(blocks, 1 + b % 1000, b % 5, b % 2 == 0, &first), ==, 0);
    }
    check_int(blocks_add(blocks, "one more"), ==, -EINVAL);
    check_int(blocks_finish(blocks, "paper", 1), ==, 0);
    test_note("%d blocks in %.2f s", BLOCKS_MAX, (double)(core_clock_now_ns() - start_ns) / 1e9);
    for (uint32_t b = 0; b < BLOCKS_MAX; b++) {
        check_run(&blocks->list[b], 0, (struct block_run){1 + b % 1000, b % 5});
    }
    blocks_destroy(blocks);
}

TEST_MAIN({"packed_arrays", packed_arrays}, {"runs_and_gaps", runs_and_gaps}, {"tensors", tensors},
          {"refused", refused}, {"many", many})
