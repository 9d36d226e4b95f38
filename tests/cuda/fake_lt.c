/* fake_lt.c: the part of cuBLASLt that product_lt.c calls, in plain loops. Checks what the
 * library's documents require. */
#include <cublasLt.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/half.h"
#include "kernels/cuda/product_lt.h"
#include "tests/cuda/card.h"
#include "tests/dev/fake_cuda.h"

/* Contents of the opaque structs. */
struct desc {
    int32_t compute, scale, a_turned, b_turned, bias_type;
    uint32_t epilogue;
    const void *bias;
};
struct layout {
    uint64_t rows, columns;
    int64_t stride;
    int32_t type;
};
struct preference {
    uint64_t workspace_bytes;
    uint32_t align[4];
    uint32_t schemes;
};

enum { FIRST_WAY = 40, WAYS = 3, WORKSPACE_BYTES = 1 << 20 };

unsigned card_lt_asked;
uint64_t card_lt_algorithm;
bool card_lt_first_is_bad;

static void bad(const char *what)
{
    fprintf(stderr, "the emulated cuBLASLt: %s\n", what);
    abort();
}

static cublasStatus_t lt_create(cublasLtHandle_t *handle)
{
    *handle = calloc(1, 8);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t lt_destroy(cublasLtHandle_t handle)
{
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

static size_t lt_version(void)
{
    return 130000;
}

static cublasStatus_t desc_init(cublasLtMatmulDesc_t desc, size_t bytes,
                                cublasComputeType_t compute, cudaDataType_t scale)
{
    const struct desc begin = {.compute = (int32_t)compute, .scale = (int32_t)scale};
    memset(desc, 0, bytes);
    memcpy(desc, &begin, sizeof begin);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t desc_set(cublasLtMatmulDesc_t opaque, cublasLtMatmulDescAttributes_t name,
                               const void *value, size_t bytes)
{
    struct desc desc;
    memcpy(&desc, opaque, sizeof desc);
    const struct {
        cublasLtMatmulDescAttributes_t name;
        void *to;
        size_t bytes;
    } known[] = {
        {CUBLASLT_MATMUL_DESC_TRANSA, &desc.a_turned, sizeof desc.a_turned},
        {CUBLASLT_MATMUL_DESC_TRANSB, &desc.b_turned, sizeof desc.b_turned},
        {CUBLASLT_MATMUL_DESC_EPILOGUE, &desc.epilogue, sizeof desc.epilogue},
        {CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &desc.bias_type, sizeof desc.bias_type},
        {CUBLASLT_MATMUL_DESC_BIAS_POINTER, &desc.bias, sizeof desc.bias},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (known[i].name == name && known[i].bytes == bytes) {
            memcpy(known[i].to, value, bytes);
            memcpy(opaque, &desc, sizeof desc);
            return CUBLAS_STATUS_SUCCESS;
        }
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

static cublasStatus_t layout_init(cublasLtMatrixLayout_t layout, size_t bytes, cudaDataType type,
                                  uint64_t rows, uint64_t columns, int64_t stride)
{
    const struct layout begin = {rows, columns, stride, (int32_t)type};
    memset(layout, 0, bytes);
    memcpy(layout, &begin, sizeof begin);
    return stride >= (int64_t)rows ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

static cublasStatus_t preference_init(cublasLtMatmulPreference_t preference, size_t bytes)
{
    const struct preference begin = {0, {256, 256, 256, 256}, CUBLASLT_REDUCTION_SCHEME_MASK};
    memset(preference, 0, bytes);
    memcpy(preference, &begin, sizeof begin);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t preference_set(cublasLtMatmulPreference_t opaque,
                                     cublasLtMatmulPreferenceAttributes_t name, const void *value,
                                     size_t bytes)
{
    struct preference preference;
    memcpy(&preference, opaque, sizeof preference);
    if (name == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES && bytes == 8) {
        memcpy(&preference.workspace_bytes, value, bytes);
    } else if (name == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK && bytes == 4) {
        memcpy(&preference.schemes, value, bytes);
    } else if (name >= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES &&
               name <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES && bytes == 4) {
        memcpy(&preference.align[name - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, bytes);
    } else {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    memcpy(opaque, &preference, sizeof preference);
    return CUBLAS_STATUS_SUCCESS;
}

static size_t type_bytes(int32_t type)
{
    return type == CUDA_R_32F ? 4 : 2;
}

/* Ends the program if the product's sizes do not match. */
static void sizes_check(const struct desc *desc, const struct layout *a, const struct layout *b,
                        const struct layout *out)
{
    const uint64_t m = desc->a_turned ? a->columns : a->rows;
    const uint64_t k = desc->a_turned ? a->rows : a->columns;
    const uint64_t k_of_b = desc->b_turned ? b->columns : b->rows;
    const uint64_t n = desc->b_turned ? b->rows : b->columns;
    if (m != out->rows || n != out->columns || k != k_of_b || a->type != b->type ||
        desc->compute != CUBLAS_COMPUTE_32F || desc->scale != CUDA_R_32F ||
        (out->type != a->type && out->type != CUDA_R_32F)) {
        bad("the parts of a product do not fit");
    }
}

static cublasStatus_t heuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc_opaque,
                                cublasLtMatrixLayout_t a_opaque, cublasLtMatrixLayout_t b_opaque,
                                cublasLtMatrixLayout_t c_opaque, cublasLtMatrixLayout_t out_opaque,
                                cublasLtMatmulPreference_t preference_opaque, int wanted,
                                cublasLtMatmulHeuristicResult_t *results, int *count)
{
    struct desc desc;
    struct layout a, b, out;
    struct preference preference;
    (void)handle;
    (void)c_opaque;
    memcpy(&desc, desc_opaque, sizeof desc);
    memcpy(&a, a_opaque, sizeof a);
    memcpy(&b, b_opaque, sizeof b);
    memcpy(&out, out_opaque, sizeof out);
    memcpy(&preference, preference_opaque, sizeof preference);
    sizes_check(&desc, &a, &b, &out);
    if (preference.schemes != (desc.bias != NULL ? CUBLASLT_REDUCTION_SCHEME_NONE
                                                 : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)) {
        bad("parts of a sum may be added in 16 bits, or a bias to a rounded sum");
    }
    *count = 0;
    card_lt_asked++;
    /* Refuses strides and alignments that are not multiples of 4 bytes, to test the product without
     * the library. */
    const uint64_t strides = (uint64_t)a.stride * type_bytes(a.type) |
                             (uint64_t)b.stride * type_bytes(b.type) | preference.align[0] |
                             preference.align[1];
    if (strides % 4 != 0) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    for (int i = 0; i < WAYS && i < wanted; i++) {
        memset(&results[i], 0, sizeof results[i]);
        results[i].algo.data[0] = (uint64_t)(FIRST_WAY + i);
        results[i].workspaceSize = WORKSPACE_BYTES;
        results[i].state = i == 0 && card_lt_first_is_bad ? CUBLAS_STATUS_NOT_SUPPORTED
                                                          : CUBLAS_STATUS_SUCCESS;
        (*count)++;
    }
    return preference.workspace_bytes >= WORKSPACE_BYTES ? CUBLAS_STATUS_SUCCESS
                                                         : CUBLAS_STATUS_NOT_SUPPORTED;
}

static float load(int32_t type, const void *base, uint64_t index)
{
    const uint16_t *half = base;
    return type == CUDA_R_32F    ? ((const float *)base)[index]
           : type == CUDA_R_16BF ? core_bf16_to_f32(half[index])
                                 : core_fp16_to_f32(half[index]);
}

static void store(int32_t type, void *base, uint64_t index, float value)
{
    uint16_t *half = base;
    if (type == CUDA_R_32F) {
        ((float *)base)[index] = value;
    } else {
        half[index] = type == CUDA_R_16BF ? core_f32_to_bf16(value) : core_f32_to_fp16(value);
    }
}

struct product {
    struct desc desc;
    struct layout a_layout, b_layout, out_layout;
    const void *a, *b;
    float scale, old; /* factors of the product and of the old `out` */
    void *out, *workspace;
};

/* Returns an operand in fp32, by columns; the caller frees it. */
static float *operand(const void *data, const struct layout *layout, bool turned, uint64_t m,
                      uint64_t k)
{
    float *made = malloc(m * k * sizeof *made + 1);
    for (uint64_t column = 0; made != NULL && column < k; column++) {
        for (uint64_t row = 0; row < m; row++) {
            const uint64_t at = turned ? column + row * (uint64_t)layout->stride
                                       : row + column * (uint64_t)layout->stride;
            made[row + column * m] = load(layout->type, data, at);
        }
    }
    return made;
}

/* Computes a product by columns; sums are added in the order of k. */
static int run(void *context, const void *arguments)
{
    struct product p;
    (void)context;
    memcpy(&p, arguments, sizeof p);
    const uint64_t m = p.out_layout.rows;
    const uint64_t k_count = p.desc.a_turned ? p.a_layout.rows : p.a_layout.columns;
    float *a = operand(p.a, &p.a_layout, p.desc.a_turned != 0, m, k_count);
    float *b = operand(p.b, &p.b_layout, p.desc.b_turned != 0, k_count, p.out_layout.columns);
    float *sums = malloc(m * sizeof *sums + 1);
    if (a == NULL || b == NULL || sums == NULL) {
        bad("no memory");
    }
    for (uint64_t j = 0; j < p.out_layout.columns; j++) {
        memset(sums, 0, m * sizeof *sums);
        for (uint64_t k = 0; k < k_count; k++) {
            const float factor = b[k + j * k_count];
            for (uint64_t i = 0; i < m; i++) {
                sums[i] += a[i + k * m] * factor;
            }
        }
        for (uint64_t i = 0; i < m; i++) {
            const float bias = p.desc.bias != NULL ? load(p.desc.bias_type, p.desc.bias, i) : 0.0f;
            const uint64_t at = i + j * (uint64_t)p.out_layout.stride;
            const float value = sums[i] * p.scale + bias;
            const float old = p.old > 0.0f ? load(p.out_layout.type, p.out, at) : 0.0f;
            store(p.out_layout.type, p.out, at, value + old);
        }
    }
    free(sums);
    free(b);
    free(a);
    memset(p.workspace, 0x5a, WORKSPACE_BYTES); /* the library may overwrite it */
    return 0;
}

static cublasStatus_t matmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                             const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                             cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                             cublasLtMatrixLayout_t c_layout, void *out,
                             cublasLtMatrixLayout_t out_layout, const cublasLtMatmulAlgo_t *algo,
                             void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    struct product p = {.a = a, .b = b, .out = out, .workspace = workspace};
    card_lt_algorithm = algo->data[0];
    (void)handle;
    (void)c_layout;
    memcpy(&p.scale, alpha, sizeof p.scale);
    memcpy(&p.old, beta, sizeof p.old);
    memcpy(&p.desc, desc, sizeof p.desc);
    memcpy(&p.a_layout, a_layout, sizeof p.a_layout);
    memcpy(&p.b_layout, b_layout, sizeof p.b_layout);
    memcpy(&p.out_layout, out_layout, sizeof p.out_layout);
    if (getenv("CARD_FAULT") != NULL) { /* set by dry_run */
        p.scale *= 2.0f;
    }
    sizes_check(&p.desc, &p.a_layout, &p.b_layout, &p.out_layout);
    if ((p.old != 0.0f && p.old != 1.0f) || c != out || algo->data[0] < FIRST_WAY ||
        workspace_bytes < WORKSPACE_BYTES || (uintptr_t)workspace % 256 != 0 ||
        (p.desc.epilogue != 0) != (p.desc.bias != NULL)) {
        bad("a call that the library would not take");
    }
    fake_stream_run(stream, run, &p, sizeof p);
    return CUBLAS_STATUS_SUCCESS;
}

int kern_lt_load(void (*symbols[KERN_LT_SYMBOLS])(void))
{
    symbols[KERN_LT_CREATE] = (void (*)(void))lt_create;
    symbols[KERN_LT_DESTROY] = (void (*)(void))lt_destroy;
    symbols[KERN_LT_VERSION] = (void (*)(void))lt_version;
    symbols[KERN_LT_DESC_INIT] = (void (*)(void))desc_init;
    symbols[KERN_LT_DESC_SET] = (void (*)(void))desc_set;
    symbols[KERN_LT_LAYOUT_INIT] = (void (*)(void))layout_init;
    symbols[KERN_LT_PREFERENCE_INIT] = (void (*)(void))preference_init;
    symbols[KERN_LT_PREFERENCE_SET] = (void (*)(void))preference_set;
    symbols[KERN_LT_HEURISTIC] = (void (*)(void))heuristic;
    symbols[KERN_LT_MATMUL] = (void (*)(void))matmul;
    return 0;
}
