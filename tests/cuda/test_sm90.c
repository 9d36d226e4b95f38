/* Tests that Hopper's kernels of attention are used only if they agree with the other kernels. */
#include <errno.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/table.h"
#include "tests/cuda/card.h"
#include "tests/harness/heard.h"
#include "tests/kernels/rig.h"

enum { LENGTH = 150, WIDTH = 64 };

static struct kern_attention_arguments arguments_of(int64_t dim)
{
    struct kern_attention_arguments a = {.type = KERN_BF16,
                                         .rows = 1,
                                         .length = LENGTH,
                                         .heads = 1,
                                         .kv_heads = 1,
                                         .head_dim = dim,
                                         .scale = 0.1f,
                                         .q_stride = dim,
                                         .k_stride = dim,
                                         .v_stride = dim,
                                         .o_stride = dim};
    rig_case((uint64_t)dim);
    a.q = rig_random(KERN_BF16, LENGTH * dim, 1.0);
    a.k = rig_random(KERN_BF16, LENGTH * dim, 1.0);
    a.v = rig_random(KERN_BF16, LENGTH * dim, 1.0);
    a.o = rig_zeros(KERN_BF16, LENGTH * dim);
    a.lse = rig_zeros(KERN_F32, LENGTH);
    return a;
}

/* Checks an attention; returns the number of its warpgroup products. */
static unsigned products_of(int64_t dim)
{
    const unsigned before = card_group_products;
    const struct kern_attention_arguments a = arguments_of(dim);
    rig_check(KERN_ATTENTION, &a, (struct rig_bound){2.0, 65536.0}, a.o, NULL);
    return card_group_products - before;
}

/* Checks the gradient of an attention; returns the number of its warpgroup products. */
static unsigned grad_products_of(int64_t dim)
{
    const struct kern_attention_arguments a = arguments_of(dim);
    rig_check(KERN_ATTENTION, &a, (struct rig_bound){2.0, 65536.0}, a.o, NULL);
    const unsigned before = card_group_products;
    const struct kern_attention_grad_arguments g = {.forward = a,
                                                    .d_o = rig_random(KERN_BF16, LENGTH * dim, 1.0),
                                                    .d_o_stride = dim,
                                                    .dq = rig_zeros(KERN_BF16, LENGTH * dim),
                                                    .dq_stride = dim,
                                                    .dk = rig_zeros(KERN_BF16, LENGTH * dim),
                                                    .dk_stride = dim,
                                                    .dv = rig_zeros(KERN_BF16, LENGTH * dim),
                                                    .dv_stride = dim};
    rig_check(KERN_ATTENTION_GRAD, &g, (struct rig_bound){2.0, 1e5}, g.dq, g.dk, g.dv, NULL);
    return card_group_products - before;
}

/* After the check, only suitable heads use warpgroup products. */
static void it_is_used_where_it_agrees(void)
{
    test_listen(CORE_LOG_WARN);
    rig_open(NULL, 1);
    check_uint(products_of(72), ==, 0);
    const unsigned with_check = products_of(WIDTH);
    const unsigned alone = products_of(WIDTH);
    check_uint(alone, >, 0);
    check_uint(with_check, >, alone);
    check_uint(grad_products_of(72), ==, 0);
    const unsigned grad_with_check = grad_products_of(WIDTH);
    const unsigned grad_alone = grad_products_of(WIDTH);
    check_uint(grad_alone, >, 0);
    check_uint(grad_with_check, >, grad_alone);
    check_uint(grad_products_of(128), >, grad_alone);
    rig_close();
    check_uint(test_heard_lines(""), ==, 0);
    test_listen_end();
}

/* If the card reads descriptors in another way, the other kernel computes. */
static void a_card_that_differs_is_found_out(void)
{
    test_listen(CORE_LOG_WARN);
    card_group_products_are_wrong = true;
    rig_open(NULL, 1);
    check_uint(products_of(WIDTH), >, 0);
    check_uint(products_of(WIDTH), ==, 0);
    check_uint(test_heard_lines(""), ==, 1);
    check_contains(test_heard(),
                   "attention with Hopper's tensor-core instructions gives wrong results");
    check_uint(grad_products_of(WIDTH), >, 0);
    check_uint(grad_products_of(WIDTH), ==, 0);
    rig_close();
    card_group_products_are_wrong = false;
    check_uint(test_heard_lines(""), ==, 2);
    check_contains(test_heard(),
                   "attention's gradient with Hopper's tensor-core instructions gives wrong");
    test_listen_end();
}

/* Checks that the other kernels compute, with warnings that give the driver's reason. */
static void nothing_is_copied(const char *why)
{
    test_listen(CORE_LOG_WARN);
    rig_open(NULL, 1);
    check_uint(products_of(WIDTH), ==, 0);
    check_uint(grad_products_of(WIDTH), ==, 0);
    rig_close();
    check_uint(test_heard_lines(""), ==, 2);
    check_contains(test_heard(), "attention with Hopper's tensor-core instructions could not be");
    check_contains(test_heard(), "gradient with Hopper's tensor-core instructions could not be");
    check_contains(test_heard(), why);
    test_listen_end();
}

/* Without tensor maps the other kernels are used. */
static void without_tensor_maps_it_is_not_used(void)
{
    card_maps_are_refused = true;
    nothing_is_copied("the driver refuses a tensor map of 1 x 300 x 256 elements (error 1)");
    card_maps_are_refused = false;
    card_maps_are_missing = true;
    nothing_is_copied("the driver has no cuTensorMapEncodeTiled");
    card_maps_are_missing = false;
}

/* fp16 does not use Hopper's kernels. */
static void fp16_goes_without(void)
{
    rig_open(NULL, 1);
    struct kern_attention_arguments a = arguments_of(WIDTH);
    a.type = KERN_FP16;
    check_true(kern_cuda_attention_fits(&a));
    check_true(!kern_cuda_attention_sm90_fits(&a));
    rig_close();
}

/* Kernels that TIDE_ATTENTION excludes are not used. */
static void it_can_be_left_out(void)
{
    static const struct {
        const char *value;
        bool forward, gradient; /* whether Hopper's kernels are used */
    } ways[] = {{"mma", false, false}, {"mma-forward", false, true}, {"mma-gradient", true, false}};
    if (TEST_SLOW) {
        test_skip("the other kernels are those of emulated_attention");
    }
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        setenv("TIDE_ATTENTION", ways[i].value, 1);
        rig_open(NULL, 1);
        unsetenv("TIDE_ATTENTION");
        check_true((products_of(WIDTH) > 0) == ways[i].forward);
        check_true((grad_products_of(WIDTH) > 0) == ways[i].gradient);
        rig_close();
    }
}

static void other_values_are_refused(void)
{
    struct kern_cuda *cuda = NULL;
    setenv("TIDE_ATTENTION", "cudnn", 1);
    check_int(kern_cuda_create(&(const struct kern_options){0}, &cuda), ==, -EINVAL);
    unsetenv("TIDE_ATTENTION");
    check_string(core_err_message(), "invalid TIDE_ATTENTION \"cudnn\" (expected mma, mma-forward "
                                     "or mma-gradient, or unset)");
    setenv("TIDE_PRODUCTS", "fast", 1);
    check_int(kern_cuda_create(&(const struct kern_options){0}, &cuda), ==, -EINVAL);
    unsetenv("TIDE_PRODUCTS");
    check_string(core_err_message(), "invalid TIDE_PRODUCTS \"fast\" (expected plain, or unset)");
    check_true(cuda == NULL);
}

/* The check of Hopper's kernels has scratch, even for small shapes. */
static void the_check_has_room(void)
{
    const struct kern_attention_arguments a = {.type = KERN_BF16,
                                               .rows = 1,
                                               .length = 1,
                                               .heads = 1,
                                               .kv_heads = 1,
                                               .head_dim = 64,
                                               .scale = 1.0f,
                                               .q_stride = 64,
                                               .k_stride = 64,
                                               .v_stride = 64,
                                               .o_stride = 64};
    check_true(kern_cuda_attention_sm90_fits(&a));
    check_uint(kern_scratch_bytes("cuda", KERN_ATTENTION, &a, 1), ==,
               kern_cuda_attention_check_bytes());
    const struct kern_attention_grad_arguments g = {
        .forward = a, .d_o_stride = 64, .dq_stride = 64, .dk_stride = 64, .dv_stride = 64};
    check_true(kern_cuda_attention_grad_sm90_fits(&g));
    check_uint(kern_scratch_bytes("cuda", KERN_ATTENTION_GRAD, &g, 1), ==,
               kern_cuda_attention_grad_check_bytes());
}

RIG_MAIN({"it_is_used_where_it_agrees", it_is_used_where_it_agrees},
         {"a_card_that_differs_is_found_out", a_card_that_differs_is_found_out},
         {"without_tensor_maps_it_is_not_used", without_tensor_maps_it_is_not_used},
         {"fp16_goes_without", fp16_goes_without}, {"it_can_be_left_out", it_can_be_left_out},
         {"other_values_are_refused", other_values_are_refused},
         {"the_check_has_room", the_check_has_room})
