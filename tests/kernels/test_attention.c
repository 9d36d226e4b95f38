/* Tests attention and its gradient against the references in double. */
#include <string.h>

#include "kernels/ref/element.h"
#include "tests/kernels/rig.h"

static const struct rig_bound bounds = {2.0, 64.0};

struct shape {
    int64_t rows, length, heads, kv_heads, head_dim, window;
};

/* Returns arguments with q, k and v in one array, as one product writes them. */
static struct kern_attention_arguments arguments_of(enum kern_type type, const struct shape *s,
                                                    const int32_t *starts)
{
    const int64_t tokens = s->rows * s->length;
    const int64_t stride = (s->heads + 2 * s->kv_heads) * s->head_dim;
    const size_t bytes = kern_type_bytes(type);
    char *qkv = rig_random(type, tokens * stride, 2.0);
    return (struct kern_attention_arguments){
        .type = type,
        .rows = s->rows,
        .length = s->length,
        .heads = s->heads,
        .kv_heads = s->kv_heads,
        .head_dim = s->head_dim,
        .window = s->window,
        .scale = 0.7f / sqrtf((float)s->head_dim),
        .starts = starts != NULL ? rig_ints(starts, tokens) : NULL,
        .q = qkv,
        .q_stride = stride,
        .k = qkv + (size_t)(s->heads * s->head_dim) * bytes,
        .k_stride = stride,
        .v = qkv + (size_t)((s->heads + s->kv_heads) * s->head_dim) * bytes,
        .v_stride = stride,
        .o = rig_zeros(type, tokens * s->heads * s->head_dim),
        .o_stride = s->heads * s->head_dim,
        .lse = rig_zeros(KERN_F32, tokens * s->heads),
    };
}

static struct kern_attention_grad_arguments grad_of(const struct kern_attention_arguments *a)
{
    const int64_t tokens = a->rows * a->length;
    const int64_t q = a->heads * a->head_dim;
    const int64_t k = a->kv_heads * a->head_dim;
    return (struct kern_attention_grad_arguments){
        .forward = *a,
        .d_o = rig_random(a->type, tokens * q, 1.0),
        .d_o_stride = q,
        .dq = rig_zeros(a->type, tokens * q),
        .dq_stride = q,
        .dk = rig_zeros(a->type, tokens * k),
        .dk_stride = k,
        .dv = rig_zeros(a->type, tokens * k),
        .dv_stride = k,
    };
}

static void documents_draw(int32_t *starts, int64_t rows, int64_t length)
{
    for (int64_t row = 0; row < rows; row++) {
        int32_t start = 0;
        for (int64_t t = 0; t < length; t++) {
            start = t > 0 && rig_unit() < 0.03 ? (int32_t)t : start;
            starts[row * length + t] = start;
        }
    }
}

/* Probabilities and gradients of scores may be rounded to the type before a product. Gradients may
 * cancel, so their relative error is larger. */
static struct rig_bound output_bound(enum kern_type type)
{
    static const double noise[] = {64.0, 0x1p15, 0x1p12};
    return rig_rounds_tiles(type) ? (struct rig_bound){2.0, noise[type]} : bounds;
}

static void check_both(const struct kern_attention_arguments *arguments)
{
    const struct kern_attention_arguments a = *arguments;
    const enum kern_type type = a.type;
    rig_check(KERN_ATTENTION, &a, output_bound(type), a.o, NULL);
    rig_compare("lse", a.lse, bounds);
    const struct kern_attention_grad_arguments g = grad_of(&a);
    const double noise[] = {256.0, rig_rounds_tiles(KERN_BF16) ? 1e5 : 3e4, 3e4};
    const struct rig_bound loose = {2.0, noise[type]};
    /* The gradient uses the stored o, which differs between device and reference. */
    rig_check(KERN_ATTENTION_GRAD, &g, loose, g.dq, g.dk, g.dv, NULL);
}

static void one_attention(enum kern_type type, const struct shape *s, bool documents)
{
    int32_t starts[1024];
    documents_draw(starts, s->rows, s->length);
    const struct kern_attention_arguments a = arguments_of(type, s, documents ? starts : NULL);
    check_both(&a);
}

/* Number of cases: sanitizers are slow, and slowest with threads or an emulated GPU. */
static size_t few(size_t cases)
{
    return rig_is_card() || TEST_RACES ? 1 : cases;
}

static void attention_sizes(void)
{
    const struct shape fixed[] = {{1, 1, 1, 1, 1, 0},      {2, 60, 2, 1, 64, 0},
                                  {1, 65, 4, 4, 64, 0},    {1, 190, 2, 1, 80, 0},
                                  {1, 130, 3, 1, 128, 50}, {1, 200, 2, 2, 16, 1}};
    for (size_t i = 0; i < (TEST_SLOW ? few(3) : 6); i++) {
        rig_case(i);
        one_attention((enum kern_type)(i % 3), &fixed[i], false);
    }
    const size_t drawn = rig_is_card() && rig_machine_is_visible() ? 6 : 12; /* emulation is slow */
    for (uint64_t seed = 10; seed < 10 + (TEST_SLOW ? few(4) : drawn); seed++) {
        rig_case(seed);
        const int64_t kv_heads = rig_int(1, 3);
        const struct shape s = {.rows = rig_int(1, 3),
                                .length = rig_int(1, TEST_SLOW ? 70 : 130),
                                .heads = kv_heads * rig_int(1, 4),
                                .kv_heads = kv_heads,
                                .head_dim = rig_int(1, 70),
                                .window = rig_int(0, 1) == 1 ? rig_int(1, 100) : 0};
        one_attention((enum kern_type)(seed % 3), &s, rig_int(0, 1) == 1);
    }
}

/* Shapes that fill the tiles of tensor cores, and shapes that end within a tile. */
static void tile_sizes(void)
{
    const struct shape fixed[] = {{1, 300, 1, 1, 64, 0},    {2, 140, 2, 2, 96, 0},
                                  {1, 260, 1, 1, 128, 100}, {1, 160, 2, 1, 128, 0},
                                  {2, 100, 2, 1, 72, 33},   {1, 129, 1, 1, 104, 1},
                                  {3, 64, 3, 3, 8, 64},     {1, 128, 2, 1, 120, 200}};
    /* The CPU's tiles have 60 queries. */
    static const struct shape of_cpu[] = {{1, 130, 1, 1, 64, 0}, {2, 100, 2, 1, 72, 33}};
    const struct shape *shapes = TEST_SLOW && !rig_is_card() ? of_cpu : fixed;
    const size_t count = TEST_SLOW ? few(2) : sizeof fixed / sizeof fixed[0];
    const size_t types = TEST_SLOW && rig_is_card() ? 1 : 2; /* instances of one template */
    for (size_t i = 0; i < types * count; i++) {
        rig_case(i + 40);
        const enum kern_type type = i % 2 == 0 ? KERN_BF16 : KERN_FP16;
        one_attention(type, &shapes[i / 2], (i + i / 2) % 2 == 1);
    }
}

static void tiles_are_right(void)
{
    rig_each_kernel(tile_sizes);
}

/* On a GPU, there are more tiles than multiprocessors; the emulated GPU has two. */
static void many_tiles(void)
{
    const int64_t heads = rig_is_card() && !rig_machine_is_visible() ? 140 : 2;
    for (int64_t dim = 64; dim <= (TEST_SLOW ? 64 : 128); dim += 64) {
        rig_case((uint64_t)dim);
        const struct shape s = {1, 130, heads, heads / 2, dim, 0};
        one_attention(KERN_BF16, &s, false);
    }
}

static void blocks_go_on(void)
{
    rig_each_kernel(many_tiles);
}

static void attention_is_right(void)
{
    rig_each_kernel(attention_sizes);
}

/* Answers that end within tiles or at their borders, have no prompt, or are missing. */
static void answers_case(void)
{
    static const int32_t gaps[][2] = {{20, 33},   {70, 140}, {64, 128}, {0, 100},
                                      {129, 129}, {0, 0},    {1, 149}};
    enum { ROWS = sizeof gaps / sizeof gaps[0] };
    for (size_t i = 0; i < (TEST_SLOW ? 2 : rig_is_card() ? 3 : 4); i++) {
        const int64_t rows = rig_is_card() && i != 1 ? 3 : ROWS; /* emulation is slow */
        const struct shape shapes[] = {{rows, 150, 2, 1, 16, 0}, {rows, 150, 1, 1, 24, 50}};
        rig_case(i + 70);
        struct kern_attention_arguments a = arguments_of((enum kern_type)(i % 3), &shapes[i % 2],
                                                         NULL);
        a.gaps = rig_ints(gaps[0], 2 * rows);
        check_both(&a);
    }
}

/* Two answers after one prompt do not see each other. */
static void answers_are_apart(void)
{
    rig_each(answers_case);
}

/* Fetches an array and returns the row of token `first`. */
static const char *tokens_of(const void *array, enum kern_type type, int64_t width, int64_t first)
{
    return (const char *)rig_fetch(array) + (size_t)(first * width) * kern_type_bytes(type);
}

static void documents_case(void)
{
    for (int type = TEST_SLOW ? 2 : 0; type < 3; type++) {
        rig_case((uint64_t)type + 5);
        const struct shape s = {1, 132, 4, 2, type == KERN_BF16 ? 64 : 48, type == 2 ? 37 : 0};
        const int64_t borders[] = {0, 1, 67, 131, 132};
        int32_t starts[132];
        for (int d = 0; d < 4; d++) {
            for (int64_t t = borders[d]; t < borders[d + 1]; t++) {
                starts[t] = (int32_t)borders[d];
            }
        }
        const struct kern_attention_arguments whole = arguments_of((enum kern_type)type, &s,
                                                                   starts);
        const struct kern_attention_grad_arguments grad = grad_of(&whole);
        check_int(rig_run(KERN_ATTENTION, &whole), ==, 0);
        check_int(rig_run(KERN_ATTENTION_GRAD, &grad), ==, 0);
        for (int d = 0; d < 4; d++) {
            const int64_t length = borders[d + 1] - borders[d];
            const size_t bytes = kern_type_bytes((enum kern_type)type);
            const size_t q = (size_t)(borders[d] * whole.q_stride) * bytes;
            const size_t o = (size_t)(borders[d] * whole.o_stride) * bytes;
            struct kern_attention_arguments part = whole;
            part.length = length;
            part.starts = NULL;
            part.q = (const char *)whole.q + q;
            part.k = (const char *)whole.k + q;
            part.v = (const char *)whole.v + q;
            part.o = rig_zeros(part.type, length * whole.o_stride);
            part.lse = rig_zeros(KERN_F32, length * s.heads);
            check_int(rig_run(KERN_ATTENTION, &part), ==, 0);
            const size_t o_bytes = (size_t)(length * whole.o_stride) * bytes;
            check_memory(rig_fetch(part.o),
                         tokens_of(whole.o, part.type, whole.o_stride, borders[d]), o_bytes);
            struct kern_attention_grad_arguments g = grad;
            g.forward = part;
            g.d_o = (const char *)grad.d_o + o;
            g.dq = rig_zeros(part.type, length * g.dq_stride);
            g.dk = rig_zeros(part.type, length * g.dk_stride);
            g.dv = rig_zeros(part.type, length * g.dv_stride);
            check_int(rig_run(KERN_ATTENTION_GRAD, &g), ==, 0);
            const size_t k_bytes = (size_t)(length * g.dk_stride) * bytes;
            check_memory(rig_fetch(g.dq), tokens_of(grad.dq, part.type, g.dq_stride, borders[d]),
                         o_bytes);
            check_memory(rig_fetch(g.dk), tokens_of(grad.dk, part.type, g.dk_stride, borders[d]),
                         k_bytes);
            check_memory(rig_fetch(g.dv), tokens_of(grad.dv, part.type, g.dv_stride, borders[d]),
                         k_bytes);
        }
    }
}

/* Rows in which the queries at some positions see a single key. */
struct single_case {
    int64_t window;
    const int32_t *starts;
    const int32_t *gap;
};

/* Returns how many numbers are neither 0 nor -0. */
static int64_t count_values(const void *array, enum kern_type type, int64_t count)
{
    const void *values = rig_fetch(array);
    int64_t found = 0;
    for (int64_t i = 0; i < count; i++) {
        found += kern_ref_load(type, values, i) != 0.0;
    }
    return found;
}

static void check_single(enum kern_type type, int64_t head_dim, const struct single_case *c)
{
    enum { TOKENS = 70, HEADS = 3 };
    const struct shape s = {1, TOKENS, HEADS, 1, head_dim, c->window};
    struct kern_attention_arguments a = arguments_of(type, &s, c->starts);
    a.gaps = c->gap != NULL ? rig_ints(c->gap, 2) : NULL;
    struct kern_attention_grad_arguments g = grad_of(&a);
    const int64_t row_bytes = g.d_o_stride * (int64_t)kern_type_bytes(type);
    for (int32_t t = 0; t < TOKENS; t++) { /* other queries have no gradient */
        const bool first = c->starts != NULL ? c->starts[t] == t : t == 0;
        if (c->window != 1 && !first && (c->gap == NULL || t != c->gap[1])) {
            memset((char *)(uintptr_t)g.d_o + t * row_bytes, 0, (size_t)row_bytes);
        }
    }
    g.d_o = rig_ints(g.d_o, TOKENS * row_bytes / (int64_t)sizeof(int32_t));
    check_int(rig_run(KERN_ATTENTION, &a), ==, 0);
    check_int(rig_run(KERN_ATTENTION_GRAD, &g), ==, 0);
    check_int(count_values(g.dq, type, TOKENS * g.dq_stride), ==, 0);
    check_int(count_values(g.dk, type, TOKENS * g.dk_stride), ==, 0);
    check_int(count_values(g.dv, type, TOKENS * g.dv_stride), >, 0);
}

static void single_keys_case(void)
{
    static const int32_t gap[] = {0, 40};
    static const struct {
        enum kern_type type;
        int64_t head_dim;
    } kinds[] = {{KERN_F32, 40}, {KERN_FP16, 40}, {KERN_BF16, 64}, {KERN_BF16, 128}};
    const bool slow = rig_is_card() && rig_machine_is_visible(); /* emulation is slow */
    const uint64_t count = slow ? 3 : 4;
    int32_t starts[70];
    int32_t each[70];
    for (int32_t t = 0; t < 70; t++) {
        starts[t] = t < 33 ? 0 : t < 66 ? 33 : t;
        each[t] = t;
    }
    const struct single_case cases[] = {
        {1, NULL, NULL}, {0, each, NULL}, {0, starts, NULL}, {0, NULL, gap}, {5, NULL, gap}};
    for (uint64_t i = 0; i < 5 * count; i++) {
        rig_case(i);
        check_single(kinds[i % count].type, kinds[i % count].head_dim, &cases[i / count]);
    }
}

/* The score of an only key has no gradient. A remaining rounding error would become a whole step of
 * Adam. */
static void single_keys_have_no_gradient(void)
{
    rig_each_kernel(single_keys_case);
}

static void skip_bits(void)
{
    if (TEST_SLOW && rig_is_card()) {
        test_skip("the same kernels as in the other cases");
    }
}

/* A row of documents has the bits of the documents alone. */
static void documents_have_their_own_bits(void)
{
    skip_bits();
    rig_each_kernel(documents_case);
}

static void bits_do_not_depend_on_threads(void)
{
    static char kept[3][200000];
    size_t bytes = 0;
    skip_bits();
    for (int run = 0; run < 3; run++) {
        const unsigned threads[] = {1, 2, 5};
        rig_open(NULL, threads[run]);
        rig_case(3);
        const struct shape s = {2, 150, 4, 2, 40, 0};
        const struct kern_attention_arguments a = arguments_of(KERN_BF16, &s, NULL);
        const struct kern_attention_grad_arguments g = grad_of(&a);
        check_int(rig_run(KERN_ATTENTION, &a), ==, 0);
        check_int(rig_run(KERN_ATTENTION_GRAD, &g), ==, 0);
        bytes = (size_t)(s.rows * s.length * g.dq_stride) * 2;
        check_true(bytes <= sizeof kept[0]);
        memcpy(kept[run], rig_fetch(g.dq), bytes);
        rig_close();
    }
    check_memory(kept[1], kept[0], bytes);
    check_memory(kept[2], kept[0], bytes);
}

RIG_MAIN({"attention_is_right", attention_is_right}, {"tiles_are_right", tiles_are_right},
         {"blocks_go_on", blocks_go_on}, {"answers_are_apart", answers_are_apart},
         {"single_keys_have_no_gradient", single_keys_have_no_gradient},
         {"documents_have_their_own_bits", documents_have_their_own_bits},
         {"bits_do_not_depend_on_threads", bits_do_not_depend_on_threads})
