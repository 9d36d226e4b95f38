/* Stored weights have the codes and scales of bitsandbytes. This test reads quant.bin in the order
 * in which tests/oracle/quant.py writes it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/half.h"
#include "kernels/quant.h"
#include "kernels/ref/ref.h"
#include "tests/harness/test.h"

/* Elements [zero, zero_end) are zero. */
static const struct tensor {
    int64_t rows, cols;
    enum kern_type type;
    int64_t zero, zero_end;
} tensors[] = {{24, 40, KERN_BF16, 128, 192},
               {3, 58, KERN_F32, 0, 0},
               {130, 260, KERN_BF16, 0, 0},
               {5, 128, KERN_FP16, 128, 256},
               {1, 64, KERN_F32, 0, 0}};

static float *make_weights(const struct tensor *tensor)
{
    const int64_t count = tensor->rows * tensor->cols;
    float *weights = calloc((size_t)count, sizeof *weights);
    uint32_t state = (uint32_t)(tensor->rows * 1000 + tensor->cols);
    for (int64_t i = 0; i < count; i++) {
        state = state * 1664525U + 1013904223U;
        const float value = ldexpf((float)(state >> 8) - 8388608.0f, (state >> 4) % 32 ? -28 : -26);
        weights[i] = tensor->type == KERN_BF16   ? core_bf16_to_f32(core_f32_to_bf16(value))
                     : tensor->type == KERN_FP16 ? core_fp16_to_f32(core_f32_to_fp16(value))
                                                 : value;
        weights[i] = i >= tensor->zero && i < tensor->zero_end ? 0 : weights[i];
    }
    return weights;
}

static uint64_t hash(const uint8_t *bytes, size_t count)
{
    uint64_t value = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < count; i++) {
        value = (value ^ bytes[i]) * UINT64_C(0x100000001b3);
    }
    return value;
}

static void expect(FILE *file, const char *what, size_t tensor, const void *bytes, size_t count)
{
    uint8_t *read = malloc(count);
    check_uint(fread(read, 1, count, file), ==, count);
    if (memcmp(read, bytes, count) != 0) {
        test_fail(__FILE__, __LINE__, "tensor %zu: %s differ", tensor, what);
    }
    free(read);
}

static void expect_weights(FILE *file, const struct tensor *tensor, enum kern_quant quant,
                           const uint8_t *stored, enum kern_type type)
{
    const size_t count = (size_t)(tensor->rows * tensor->cols);
    uint8_t *made = malloc(count * kern_type_bytes(type));
    struct kern_expand_arguments y = {.type = type,
                                      .quant = quant,
                                      .rows = tensor->rows,
                                      .cols = tensor->cols,
                                      .count = (int64_t)count,
                                      .y = made};
    kern_quant_point(&y, stored);
    kern_ref_expand(&y);
    if (type == KERN_F32) {
        const struct kern_quant_layout layout = kern_quant_layout_of(quant, type, y.rows, y.cols);
        float *decoded = malloc(count * sizeof *decoded);
        kern_quant_decode(quant, &layout, y.cols, stored, 0, (int64_t)count, decoded);
        check_memory(decoded, made, count * sizeof *decoded);
        free(decoded);
    }
    const uint64_t found = hash(made, count * kern_type_bytes(type));
    expect(file, "expanded weights", (size_t)(tensor - tensors), &found, sizeof found);
    free(made);
}

static uint8_t *store(const struct tensor *tensor, enum kern_quant quant)
{
    const struct kern_quant_layout layout = kern_quant_layout_of(quant, KERN_F32, tensor->rows,
                                                                 tensor->cols);
    float *weights = make_weights(tensor);
    float *scales = calloc((size_t)layout.scale_count, sizeof *scales);
    uint8_t *stored = calloc(1, layout.bytes);
    check_true(kern_quant_encode(quant, tensor->cols, weights, tensor->rows * tensor->cols, stored,
                                 scales));
    kern_quant_encode_scales(quant, &layout, scales, stored + layout.scales);
    free(scales);
    free(weights);
    return stored;
}

static void codes_are_those_of_bitsandbytes(void)
{
    static const enum kern_type types[] = {KERN_BF16, KERN_FP16, KERN_F32};
    char path[4096];
    snprintf(path, sizeof path, "%s/kernels/quant.bin", test_root());
    FILE *file = fopen(path, "rb");
    check_true(file != NULL);
    for (size_t t = 0; t < sizeof tensors / sizeof tensors[0]; t++) {
        const struct tensor *tensor = &tensors[t];
        struct kern_quant_layout layout = kern_quant_layout_of(KERN_QUANT_NF4, KERN_F32,
                                                               tensor->rows, tensor->cols);
        const size_t nested = (size_t)(layout.scale_count + KERN_NF4_NESTED - 1) / KERN_NF4_NESTED;
        uint8_t *stored = store(tensor, KERN_QUANT_NF4);
        expect(file, "codes of NF4", t, stored, layout.codes_bytes);
        expect(file, "codes of scales", t, stored + layout.scales, (size_t)layout.scale_count);
        expect(file, "scales of scales", t, stored + layout.nested, nested * sizeof(float));
        expect(file, "offsets", t, stored + layout.nested + nested * sizeof(float), sizeof(float));
        for (size_t i = 0; i < 3; i++) {
            expect_weights(file, tensor, KERN_QUANT_NF4, stored, types[i]);
        }
        free(stored);
        layout = kern_quant_layout_of(KERN_QUANT_NF4_F32, KERN_F32, tensor->rows, tensor->cols);
        stored = store(tensor, KERN_QUANT_NF4_F32);
        expect(file, "codes of NF4_F32", t, stored, layout.codes_bytes);
        expect(file, "scales of NF4_F32", t, stored + layout.scales,
               (size_t)layout.scale_count * sizeof(float));
        expect_weights(file, tensor, KERN_QUANT_NF4_F32, stored, tensor->type);
        free(stored);
        layout = kern_quant_layout_of(KERN_QUANT_INT8, KERN_F32, tensor->rows, tensor->cols);
        stored = store(tensor, KERN_QUANT_INT8);
        expect(file, "codes of INT8", t, stored, layout.codes_bytes);
        expect(file, "scales of INT8", t, stored + layout.scales,
               (size_t)layout.scale_count * sizeof(float));
        expect_weights(file, tensor, KERN_QUANT_INT8, stored, KERN_BF16);
        free(stored);
    }
    check_int(fgetc(file), ==, EOF);
    fclose(file);
}

/* A stored tensor takes the bytes of its codes and scales, and in 4 bits 64 more. */
static void layouts_are_small(void)
{
    const struct kern_quant_layout nf4 = kern_quant_layout_of(KERN_QUANT_NF4, KERN_BF16, 4096,
                                                              4096);
    const struct kern_quant_layout int8 = kern_quant_layout_of(KERN_QUANT_INT8, KERN_BF16, 4096,
                                                               4096);
    const uint64_t elements = UINT64_C(4096) * 4096;
    check_uint(nf4.bytes, ==, elements / 2 + elements / 64 + elements / 64 / 256 * 4 + 64);
    check_uint(int8.bytes, ==, elements + UINT64_C(4096) * 4);
}

/* Weights that have no code are refused. */
static void refuses_what_is_not_finite(void)
{
    float weights[64] = {1.0f};
    uint8_t codes[64];
    float scale;
    weights[5] = INFINITY;
    check_true(!kern_quant_encode(KERN_QUANT_NF4, 64, weights, 64, codes, &scale));
    check_true(!kern_quant_encode(KERN_QUANT_NF4, 64, weights, 62, codes, &scale));
    check_true(!kern_quant_encode(KERN_QUANT_INT8, 64, weights, 64, codes, &scale));
    weights[5] = NAN;
    check_true(!kern_quant_encode(KERN_QUANT_NF4, 64, weights, 64, codes, &scale));
    check_true(!kern_quant_encode(KERN_QUANT_INT8, 64, weights, 64, codes, &scale));
    weights[5] = 1e5f;
    check_true(kern_quant_encode(KERN_QUANT_NF4, 64, weights, 64, codes, &scale));
    check_true(!kern_quant_encode(KERN_QUANT_INT8, 64, weights, 64, codes, &scale));
}

/* Packed 16-bit weights: fp16 has the codes of a stored tensor; bf16 is within half a unit. */
static void packs_halves(void)
{
    enum { ROWS = 5, COLS = 200, COUNT = ROWS * COLS };
    static const float units[ROWS] = {1, 1e-9f, 1e30f, 0, 1e-38f};
    static uint16_t weights[COUNT];
    static float wide[COUNT], back[COUNT];
    const struct kern_quant_layout layout = kern_quant_layout_of(KERN_QUANT_INT8, KERN_BF16, ROWS,
                                                                 COLS);
    uint8_t *packed = calloc(1, layout.bytes);
    uint8_t *stored = calloc(1, layout.bytes);
    for (int i = 0; i < COUNT; i++) {
        wide[i] = sinf((float)i);
        weights[i] = core_f32_to_fp16(wide[i]);
    }
    kern_quant_pack(KERN_FP16, weights, ROWS, COLS, packed);
    check_true(kern_quant_encode(KERN_QUANT_INT8, COLS, wide, COUNT, stored,
                                 (float *)(void *)(stored + layout.scales)));
    check_memory(packed, stored, layout.bytes);
    for (int i = 0; i < COUNT; i++) {
        weights[i] = core_f32_to_bf16(wide[i] * units[i / COLS]);
    }
    kern_quant_pack(KERN_BF16, weights, ROWS, COLS, packed);
    kern_quant_decode(KERN_QUANT_INT8, &layout, COLS, packed, 0, COUNT, back);
    for (int i = 0; i < COUNT; i++) {
        const bool tiny = units[i / COLS] < 1e-36f;
        const double apart = fabs((double)back[i] - (double)core_bf16_to_f32(weights[i]));
        check_double(apart, <=, tiny ? 2e-38 : (double)units[i / COLS] / 254 * 1.001);
        check_true(!tiny || back[i] == 0);
    }
    weights[COLS] = core_f32_to_bf16(INFINITY);
    kern_quant_pack(KERN_BF16, weights, ROWS, COLS, packed);
    kern_quant_decode(KERN_QUANT_INT8, &layout, COLS, packed, 0, COUNT, back);
    check_true(isfinite(back[COLS - 1]) && isnan(back[COLS + 1]) && isfinite(back[2 * COLS]));
    free(packed);
    free(stored);
}

TEST_MAIN({"codes_are_those_of_bitsandbytes", codes_are_those_of_bitsandbytes},
          {"layouts_are_small", layouts_are_small},
          {"refuses_what_is_not_finite", refuses_what_is_not_finite},
          {"packs_halves", packs_halves})
