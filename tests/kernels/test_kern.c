/* Tests the table of ops and the sizes of types and tiles. */
#include "core/base/cpus.h"
#include "kernels/cpu/isa.h"
#include "kernels/kern.h"
#include "kernels/ref/ref.h"
#include "tests/harness/test.h"

/* Ops have different names, and arguments that fit a device's command. */
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

static void types_have_sizes(void)
{
    check_int(kern_type_bytes(KERN_F32), ==, 4);
    check_int(kern_type_bytes(KERN_BF16), ==, 2);
    check_int(kern_type_bytes(KERN_FP16), ==, 2);
    check_int(kern_type_bytes(KERN_F64), ==, 8);
    check_string(kern_type_name(KERN_BF16), "bf16");
}

/* A tile is the whole linear, or a multiple of 64 rows that fits, but at least 64 rows. */
static void tiles_fit(void)
{
    check_int(kern_tile_rows(1000, 100, KERN_BF16, 0), ==, 1000);
    check_int(kern_tile_rows(1000, 100, KERN_BF16, 200000), ==, 1000);
    check_int(kern_tile_rows(1000, 100, KERN_BF16, 199999), ==, 960);
    check_int(kern_tile_rows(1000, 100, KERN_F32, 199999), ==, 448);
    check_int(kern_tile_rows(1000, 100, KERN_F32, 1), ==, 64);
    check_int(kern_tile_rows(30, 100, KERN_F32, 1), ==, 30);
}

/* Two references agree with numbers that were computed by hand. */
static void references(void)
{
    const float a[] = {1.5f, -2, 3};
    const float b[] = {0.25f, 2, -4};
    float y[3];
    const struct kern_add_arguments add = {.count = 3, .a = a, .b = b, .y = y};
    kern_ref_add(&add);
    check_true(y[0] == 1.75f && y[1] == 0 && y[2] == -1);
    const float x[] = {1, 1};
    const float w[] = {0, logf(3)};
    const int32_t labels[] = {1, KERN_LABEL_IGNORED};
    const float scale = 2;
    float dx[2];
    float dw[2];
    struct kern_loss loss;
    const struct kern_loss_arguments whole = {.tokens = 2,
                                              .vocab = 2,
                                              .width = 1,
                                              .x = x,
                                              .x_stride = 1,
                                              .w = w,
                                              .labels = labels,
                                              .scale = &scale,
                                              .loss = &loss,
                                              .dx = dx,
                                              .dx_stride = 1,
                                              .dw = {.out = dw, .first = true, .last = true}};
    kern_ref_loss(&whole);
    check_int(loss.count, ==, 1);
    check_double(fabs(loss.sum - log(4.0 / 3.0)), <, 1e-6);
    /* p = (1/4, 3/4): the gradients of the first token's logits are 2 p - 2 hit = (1/2, -1/2). */
    check_double(fabs((double)dw[0] - 0.5), <, 1e-6);
    check_double(fabs((double)dw[1] + 0.5), <, 1e-6);
    check_double(fabs((double)dx[0] + 0.5 * log(3.0)), <, 1e-6);
    check_double(dx[1], ==, 0);
}

/* Only tables for this processor are returned; other functions would end the process
 * with SIGILL. */
static void sets_run_here(void)
{
    const unsigned flags = core_cpu_flags(CORE_CPU_ALL);
    const unsigned count = kern_isa_count();
    check_uint(count, >, 0);
    for (unsigned i = 0; i < count; i++) {
        const struct kern_isa *isa = kern_isa_at(i);
        test_note("%s", isa->name);
        check_true(isa->flag == 0 || (isa->flag & flags) != 0);
        check_uint(isa->product_bytes(KERN_BF16, 64, 64, 64), >, 0);
    }
    check_uint(kern_isa_at(count - 1)->flag, ==, 0);
    check_true(kern_isa_at(0) == kern_isa_best(flags));
}

TEST_MAIN({"sets_run_here", sets_run_here}, {"ops_are_named", ops_are_named},
          {"types_have_sizes", types_have_sizes}, {"tiles_fit", tiles_fit},
          {"references", references})
