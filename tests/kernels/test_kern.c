/* Proves the table of ops: names, sizes, and the rule that cuts large linears into tiles. */
#include "kernels/kern.h"
#include "tests/harness/test.h"

/* Every op has a name of its own and arguments that fit a device's command. */
static void ops_are_named(void)
{
    for (unsigned i = 0; i < KERN_OP_COUNT; i++) {
        check_true(kern_op_name((enum kern_op)i) != NULL);
        check_int(kern_op_argument_bytes((enum kern_op)i), >, 0);
        check_int(kern_op_argument_bytes((enum kern_op)i), <=, 256);
        for (unsigned j = 0; j < i; j++) {
            check_true(strcmp(kern_op_name((enum kern_op)i), kern_op_name((enum kern_op)j)) != 0);
        }
    }
    check_string(kern_op_name(KERN_LINEAR), "linear");
}

/* Types have the sizes and names that files and log lines rely on. */
static void types_have_sizes(void)
{
    check_int(kern_type_bytes(KERN_F32), ==, 4);
    check_int(kern_type_bytes(KERN_BF16), ==, 2);
    check_int(kern_type_bytes(KERN_FP16), ==, 2);
    check_int(kern_type_bytes(KERN_F64), ==, 8);
    check_string(kern_type_name(KERN_BF16), "bf16");
}

/* A tile is whole, or a multiple of 64 rows within the bytes, or 64 rows when nothing fits. */
static void tiles_fit(void)
{
    check_int(kern_tile_rows(1000, 100, KERN_BF16, 0), ==, 1000);
    check_int(kern_tile_rows(1000, 100, KERN_BF16, 200000), ==, 1000);
    check_int(kern_tile_rows(1000, 100, KERN_BF16, 199999), ==, 960);
    check_int(kern_tile_rows(1000, 100, KERN_F32, 199999), ==, 448);
    check_int(kern_tile_rows(1000, 100, KERN_F32, 1), ==, 64);
    check_int(kern_tile_rows(30, 100, KERN_F32, 1), ==, 30);
}

TEST_MAIN({"ops_are_named", ops_are_named}, {"types_have_sizes", types_have_sizes},
          {"tiles_fit", tiles_fit})
