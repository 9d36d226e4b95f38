/* Tests that a card's ops refuse bad arguments before they launch anything. */
#include <errno.h>

#include "core/base/err.h"
#include "core/base/update_args.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/table.h"
#include "tests/harness/test.h"

static int launch(enum kern_op op, const struct dev_launch *where, const void *arguments)
{
    size_t count = 0;
    const struct dev_op *rows = kern_cuda_rows(&count);
    for (size_t i = 0; i < count; i++) {
        if (rows[i].op == op) {
            return rows[i].launch(where, arguments);
        }
    }
    return -ENOSYS;
}

/* An op has a row with its name and the size of its arguments. */
static void all_ops_are_there(void)
{
    size_t count = 0;
    const struct dev_op *rows = kern_cuda_rows(&count);
    check_int(count, ==, KERN_OP_COUNT);
    for (size_t i = 0; i < count; i++) {
        check_string(rows[i].name, kern_op_name((enum kern_op)rows[i].op));
        check_int(rows[i].arguments_bytes, ==, kern_op_argument_bytes((enum kern_op)rows[i].op));
    }
    const struct kern_bias_grad_arguments bias = {.m = 5, .n = 7};
    check_int(kern_cuda_scratch_bytes(KERN_BIAS_GRAD, &bias), ==, 128 * 7 * 4);
    check_int(kern_cuda_scratch_bytes(KERN_ADD, NULL), ==, 0);
}

static void small_scratch_is_refused(void)
{
    const struct dev_launch where = {.scratch_bytes = 100};
    const struct kern_bias_grad_arguments a = {.m = 5, .n = 7};
    check_int(launch(KERN_BIAS_GRAD, &where, &a), ==, -ENOMEM);
    check_contains(core_err_message(), "op bias_grad needs 3584 bytes of scratch");
}

static void types_are_refused(void)
{
    const struct dev_launch where = {0};
    const struct kern_act_arguments act = {.type = KERN_F64, .tokens = 1, .width = 1};
    const struct kern_act_arguments kind = {.kind = (enum kern_act_kind)9, .tokens = 1, .width = 1};
    check_int(launch(KERN_ACT, &where, &act), ==, -EINVAL);
    check_contains(core_err_message(), "op act takes fp32, bf16 and fp16");
    check_int(launch(KERN_ACT, &where, &kind), ==, -EINVAL);
    check_contains(core_err_message(), "no activation 9");
}

static void sizes_are_refused(void)
{
    struct kern_cuda cuda = {.sm90 = KERN_SM90_LEFT_OUT}; /* no card to check Hopper's kernels on */
    const struct dev_launch where = {
        .context = &cuda, .scratch = (void *)64, .scratch_bytes = SIZE_MAX};
    struct kern_attention_arguments a = {
        .rows = 1, .length = 1, .heads = 1, .kv_heads = 1, .head_dim = 513};
    check_int(launch(KERN_ATTENTION, &where, &a), ==, -ENOTSUP);
    check_contains(core_err_message(), "up to 512 dimensions, not of 513");
    a.type = KERN_BF16;
    a.head_dim = 64;
    a.scale = 1.0f;
    a.length = INT32_MAX;
    check_int(launch(KERN_ATTENTION, &where, &a), ==, -EINVAL);
    check_contains(core_err_message(), "has rows of 2147483647 tokens");
    const struct kern_add_arguments add = {.count = INT64_MAX / 4};
    check_int(launch(KERN_ADD, &where, &add), ==, -EINVAL);
    check_contains(core_err_message(), "op add is too large for one launch");
    const struct kern_embed_grad_arguments embed = {
        .tokens = (int64_t)INT32_MAX + 1, .width = 1, .vocab = 1, .dtable = {.out = (void *)64}};
    check_int(launch(KERN_EMBED_GRAD, &where, &embed), ==, -EINVAL);
    check_contains(core_err_message(), "2147483648 tokens");
}

/* Without work or outputs nothing is launched; without a card a launch would fail. */
static void nothing_is_done(void)
{
    const struct dev_launch where = {.scratch_bytes = SIZE_MAX};
    const struct kern_add_arguments add = {0};
    const struct kern_linear_grad_weight_arguments dw = {.m = 4, .n = 4, .k = 4};
    const struct kern_embed_grad_arguments embed = {.tokens = 4, .width = 4, .vocab = 4};
    const struct kern_update_arguments update = {.met = NULL};
    check_int(launch(KERN_ADD, &where, &add), ==, 0);
    check_int(launch(KERN_LINEAR_GRAD_WEIGHT, &where, &dw), ==, 0);
    check_int(launch(KERN_EMBED_GRAD, &where, &embed), ==, 0);
    check_int(launch(KERN_UPDATE, &where, &update), ==, 0);
}

TEST_MAIN({"all_ops_are_there", all_ops_are_there},
          {"small_scratch_is_refused", small_scratch_is_refused},
          {"types_are_refused", types_are_refused}, {"sizes_are_refused", sizes_are_refused},
          {"nothing_is_done", nothing_is_done})
