/* product_lt.c: the door of cuBLASLt. The library counts columns first, so that out[m][n] in rows is
 * its n x m result of b (its A) and a (its B). fp32 is computed in fp32, never in TF32. */
#include "kernels/cuda/product_lt.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/log.h"

enum { WAYS_MAX = 12, TIMED_RUNS = 4 };

typedef cublasStatus_t create_function(cublasLtHandle_t *);
typedef cublasStatus_t destroy_function(cublasLtHandle_t);
typedef size_t version_function(void);
typedef cublasStatus_t desc_init_function(cublasLtMatmulDesc_t, size_t, cublasComputeType_t,
                                          cudaDataType_t);
typedef cublasStatus_t desc_set_function(cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t,
                                         const void *, size_t);
typedef cublasStatus_t layout_init_function(cublasLtMatrixLayout_t, size_t, cudaDataType, uint64_t,
                                            uint64_t, int64_t);
typedef cublasStatus_t preference_init_function(cublasLtMatmulPreference_t, size_t);
typedef cublasStatus_t preference_set_function(cublasLtMatmulPreference_t,
                                               cublasLtMatmulPreferenceAttributes_t, const void *,
                                               size_t);
typedef cublasStatus_t heuristic_function(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                          cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                          cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                          cublasLtMatmulPreference_t, int,
                                          cublasLtMatmulHeuristicResult_t *, int *);
typedef cublasStatus_t check_function(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                      cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                      cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                      const cublasLtMatmulAlgo_t *,
                                      cublasLtMatmulHeuristicResult_t *);
typedef cublasStatus_t matmul_function(cublasLtHandle_t, cublasLtMatmulDesc_t, const void *,
                                       const void *, cublasLtMatrixLayout_t, const void *,
                                       cublasLtMatrixLayout_t, const void *, const void *,
                                       cublasLtMatrixLayout_t, void *, cublasLtMatrixLayout_t,
                                       const cublasLtMatmulAlgo_t *, void *, size_t, cudaStream_t);

struct kern_lt {
    void (*symbols[KERN_LT_SYMBOLS])(void);
    void *library; /* owned */
    cublasLtHandle_t handle;
    struct kern_lt_choices choices;
    bool told; /* that a shape has no way */
    char description[64];
    cudaEvent_t begin, end; /* owned: of timing; NULL without a file */
};

#define CALL(lt, symbol, type) ((type *)(lt)->symbols[symbol])

static int fail(const char *op, const char *call, cublasStatus_t status)
{
    const int code = status == CUBLAS_STATUS_ALLOC_FAILED ? -ENOMEM : -EIO;
    return core_err_set(code, "op %s: %s failed with status %d", op, call, (int)status);
}

/* ---- One product as the library sees it. ---- */

struct shape {
    cublasLtMatmulDescOpaque_t desc;
    cublasLtMatrixLayoutOpaque_t a, b, out;
};

static cudaDataType data_type(enum kern_type type)
{
    return type == KERN_BF16 ? CUDA_R_16BF : type == KERN_FP16 ? CUDA_R_16F : CUDA_R_32F;
}

static cublasStatus_t set_desc(const struct kern_lt *lt, struct shape *shape,
                               const struct kern_cuda_product *p)
{
    const cublasOperation_t a = p->b_turned ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t b = p->a_turned ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasLtEpilogue_t bias = CUBLASLT_EPILOGUE_BIAS;
    const cudaDataType bias_type = data_type(p->type);
    const struct {
        cublasLtMatmulDescAttributes_t name;
        const void *value;
        size_t bytes;
        bool wanted;
    } attributes[] = {
        {CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a, true},
        {CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b, true},
        {CUBLASLT_MATMUL_DESC_EPILOGUE, &bias, sizeof bias, p->bias != NULL},
        {CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias_type, sizeof bias_type, p->bias != NULL},
        {CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p->bias, sizeof p->bias, p->bias != NULL},
    };
    cublasStatus_t status = CALL(lt, KERN_LT_DESC_INIT, desc_init_function)(
        &shape->desc, sizeof shape->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    for (size_t i = 0; i < sizeof attributes / sizeof attributes[0] && status == 0; i++) {
        if (attributes[i].wanted) {
            status = CALL(lt, KERN_LT_DESC_SET, desc_set_function)(
                &shape->desc, attributes[i].name, attributes[i].value, attributes[i].bytes);
        }
    }
    return status;
}

static cublasStatus_t set_layout(const struct kern_lt *lt, cublasLtMatrixLayoutOpaque_t *layout,
                                 enum kern_type type, const int64_t size[2], int64_t stride)
{
    return CALL(lt, KERN_LT_LAYOUT_INIT, layout_init_function)(
        layout, sizeof *layout, data_type(type), (uint64_t)size[0], (uint64_t)size[1], stride);
}

static int shape_init(const struct kern_lt *lt, const char *op, const struct kern_cuda_product *p,
                      struct shape *shape)
{
    const int64_t a[2] = {p->b_turned ? p->k : p->n, p->b_turned ? p->n : p->k};
    const int64_t b[2] = {p->a_turned ? p->m : p->k, p->a_turned ? p->k : p->m};
    const int64_t out[2] = {p->n, p->m};
    cublasStatus_t status = set_desc(lt, shape, p);
    status = status == 0 ? set_layout(lt, &shape->a, p->type, a, p->b_stride) : status;
    status = status == 0 ? set_layout(lt, &shape->b, p->type, b, p->a_stride) : status;
    status = status == 0 ? set_layout(lt, &shape->out, p->out_type, out, p->out_stride) : status;
    return status == 0 ? 0 : fail(op, "describing a product to cuBLASLt", status);
}

static void *workspace(const struct dev_launch *where)
{
    return (char *)where->scratch + (where->scratch_bytes - KERN_CUDA_WORKSPACE_BYTES) / 256 * 256;
}

static cublasStatus_t matmul(const struct kern_lt *lt, const struct dev_launch *where,
                             const struct kern_cuda_product *p, struct shape *shape,
                             const uint64_t *words)
{
    const float one = 1.0f;
    const float zero = 0.0f;
    cublasLtMatmulAlgo_t algo;
    memcpy(&algo, words, sizeof algo);
    return CALL(lt, KERN_LT_MATMUL,
                matmul_function)(lt->handle, &shape->desc, &one, p->b, &shape->a, p->a, &shape->b,
                                 &zero, p->out, &shape->out, p->out, &shape->out, &algo,
                                 workspace(where), KERN_CUDA_WORKSPACE_BYTES - 256, where->stream);
}

/* ---- Choosing. ---- */

static uint8_t alignment(const void *address)
{
    const uintptr_t bits = (uintptr_t)address | 16;
    return (uint8_t)(bits & (~bits + 1));
}

static struct kern_lt_key key_of(const struct kern_cuda_product *p)
{
    return (struct kern_lt_key){
        .m = p->m,
        .n = p->n,
        .k = p->k,
        .a_stride = p->a_stride,
        .b_stride = p->b_stride,
        .out_stride = p->out_stride,
        .type = (uint8_t)p->type,
        .out_type = (uint8_t)p->out_type,
        .a_turned = p->a_turned,
        .b_turned = p->b_turned,
        .bias = p->bias != NULL ? alignment(p->bias) : 0,
        .a_align = alignment(p->a),
        .b_align = alignment(p->b),
        .out_align = alignment(p->out),
    };
}

static int ways_of(const struct kern_lt *lt, const struct kern_lt_key *key, struct shape *shape,
                   cublasLtMatmulHeuristicResult_t *ways)
{
    cublasLtMatmulPreferenceOpaque_t preference;
    const uint64_t bytes = KERN_CUDA_WORKSPACE_BYTES - 256;
    /* Where k is split, its parts are added in fp32: by default they may be in the result's type. */
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const uint32_t a = key->b_align;
    const uint32_t b = key->a_align;
    const uint32_t out = key->out_align;
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        const void *value;
        size_t bytes;
    } attributes[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &a, sizeof a},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &b, sizeof b},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &out, sizeof out},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &out, sizeof out},
    };
    cublasStatus_t status = CALL(lt, KERN_LT_PREFERENCE_INIT,
                                 preference_init_function)(&preference, sizeof preference);
    for (size_t i = 0; i < sizeof attributes / sizeof attributes[0] && status == 0; i++) {
        status = CALL(lt, KERN_LT_PREFERENCE_SET, preference_set_function)(
            &preference, attributes[i].name, attributes[i].value, attributes[i].bytes);
    }
    int count = 0;
    if (status == 0) {
        status = CALL(lt, KERN_LT_HEURISTIC, heuristic_function)(
            lt->handle, &shape->desc, &shape->a, &shape->b, &shape->out, &shape->out, &preference,
            WAYS_MAX, ways, &count);
    }
    return status == 0 ? count : 0;
}

/* Milliseconds of TIMED_RUNS runs after one that warms up; negative where the way fails. */
static float time_way(const struct kern_lt *lt, const struct dev_launch *where,
                      const struct kern_cuda_product *p, struct shape *shape, const uint64_t *words)
{
    float ms = 0.0f;
    bool works = matmul(lt, where, p, shape, words) == 0 &&
                 cudaEventRecord(lt->begin, where->stream) == cudaSuccess;
    for (int run = 0; run < TIMED_RUNS && works; run++) {
        works = matmul(lt, where, p, shape, words) == 0;
    }
    works = works && cudaEventRecord(lt->end, where->stream) == cudaSuccess &&
            cudaEventSynchronize(lt->end) == cudaSuccess &&
            cudaEventElapsedTime(&ms, lt->begin, lt->end) == cudaSuccess;
    return works ? ms : -1.0f;
}

static void tell_none(struct kern_lt *lt, const char *op, const struct kern_lt_key *key)
{
    if (!lt->told) {
        core_log(CORE_LOG_WARN,
                 "op %s: cuBLASLt has no way to compute a product of %" PRId64 " x %" PRId64
                 " over %" PRId64 " %s numbers (strides %" PRId64 ", %" PRId64 ", %" PRId64
                 "); it goes without tensor cores and is slow, as others of its kind may",
                 op, key->m, key->n, key->k, kern_type_name((enum kern_type)key->type),
                 key->a_stride, key->b_stride, key->out_stride);
        lt->told = true;
    }
}

/* The result is written over and over: products never add to what is there. */
static void choose(struct kern_lt *lt, const struct dev_launch *where,
                   const struct kern_cuda_product *p, struct shape *shape,
                   struct kern_lt_choice *choice)
{
    cublasLtMatmulHeuristicResult_t ways[WAYS_MAX];
    memset(ways, 0, sizeof ways);
    const int count = ways_of(lt, &choice->key, shape, ways);
    const bool timed = lt->begin != NULL;
    float best = -1.0f;
    choice->none = true;
    for (int i = 0; i < count && (timed || choice->none); i++) {
        uint64_t words[KERN_LT_ALGO_WORDS] = {0};
        if (ways[i].state != CUBLAS_STATUS_SUCCESS) {
            continue;
        }
        memcpy(words, &ways[i].algo, sizeof ways[i].algo);
        const float ms = timed ? time_way(lt, where, p, shape, words) : 0.0f;
        if (ms >= 0.0f && (best < 0.0f || ms < best)) {
            best = ms;
            choice->none = false;
            memcpy(choice->algo, words, sizeof words);
        }
    }
}

/* Whether a way from a file is one for this library: asked once. */
static bool still_good(const struct kern_lt *lt, struct shape *shape, struct kern_lt_choice *choice)
{
    if (choice->checked) {
        return true;
    }
    cublasLtMatmulHeuristicResult_t result;
    cublasLtMatmulAlgo_t algo;
    memset(&result, 0, sizeof result);
    memcpy(&algo, choice->algo, sizeof algo);
    choice->checked = CALL(lt, KERN_LT_CHECK, check_function)(lt->handle, &shape->desc, &shape->a,
                                                              &shape->b, &shape->out, &shape->out,
                                                              &algo, &result) == 0 &&
                      result.workspaceSize <= KERN_CUDA_WORKSPACE_BYTES - 256;
    return choice->checked;
}

/* Another run may have chosen meanwhile. */
static struct kern_lt_choice *choose_or_learn(struct kern_lt *lt, const struct dev_launch *where,
                                              const struct kern_cuda_product *p,
                                              struct shape *shape, const struct kern_lt_key *key)
{
    const int lock = kern_lt_choices_begin(&lt->choices);
    struct kern_lt_choice *found = kern_lt_choices_find(&lt->choices, key);
    if (found == NULL || found->none || !still_good(lt, shape, found)) {
        struct kern_lt_choice choice = {.key = *key, .checked = true};
        choose(lt, where, p, shape, &choice);
        kern_lt_choices_add(&lt->choices, &choice);
        found = kern_lt_choices_find(&lt->choices, key);
    }
    kern_lt_choices_end(lock);
    return found;
}

int kern_lt_product(struct kern_lt *lt, const struct dev_launch *where, const char *op,
                    const struct kern_cuda_product *product, bool *taken)
{
    struct shape shape;
    const struct kern_lt_key key = key_of(product);
    struct kern_lt_choice *found = kern_lt_choices_find(&lt->choices, &key);
    *taken = false;
    if (found != NULL && found->none) {
        return 0;
    }
    int rc = shape_init(lt, op, product, &shape);
    if (rc != 0) {
        return rc;
    }
    if (found == NULL || !still_good(lt, &shape, found)) {
        found = choose_or_learn(lt, where, product, &shape, &key);
        if (found->none) {
            tell_none(lt, op, &key);
            return 0;
        }
    }
    const cublasStatus_t status = matmul(lt, where, product, &shape, found->algo);
    *taken = status == CUBLAS_STATUS_SUCCESS;
    return *taken ? 0 : fail(op, "cublasLtMatmul", status);
}

/* ---- Create and destroy. ---- */

static int start_timing(struct kern_lt *lt)
{
    cudaError_t error = cudaEventCreateWithFlags(&lt->begin, cudaEventDefault);
    error = error == cudaSuccess ? cudaEventCreateWithFlags(&lt->end, cudaEventDefault) : error;
    return error == cudaSuccess
               ? 0
               : core_err_set(-EIO, "events to time products: %s", cudaGetErrorString(error));
}

int kern_lt_create(const char *choices, struct kern_lt **out)
{
    struct kern_lt *lt = calloc(1, sizeof *lt);
    struct cudaDeviceProp card;
    int index = 0;
    if (lt == NULL) {
        return core_err_set(-ENOMEM, "no memory for cuBLASLt");
    }
    int rc = kern_lt_load(lt->symbols, &lt->library);
    if (rc == 0) {
        const cublasStatus_t status = CALL(lt, KERN_LT_CREATE, create_function)(&lt->handle);
        rc = status == 0 ? 0 : fail("create", "cublasLtCreate", status);
    }
    if (rc == 0 && (cudaGetDevice(&index) != cudaSuccess ||
                    cudaGetDeviceProperties(&card, index) != cudaSuccess)) {
        (void)cudaGetLastError();
        rc = core_err_set(-EIO, "the card that products are for cannot be asked for its name");
    }
    if (rc == 0) {
        char machine[128];
        int driver = 0;
        const size_t version = CALL(lt, KERN_LT_VERSION, version_function)();
        snprintf(lt->description, sizeof lt->description, "cuBLASLt %zu%s", version,
                 choices != NULL ? ", timed" : "");
        (void)cudaDriverGetVersion(&driver);
        snprintf(machine, sizeof machine, "%.60s, %d multiprocessors, cuBLASLt %zu, driver %d",
                 card.name, card.multiProcessorCount, version, driver);
        rc = kern_lt_choices_init(&lt->choices, choices, machine);
    }
    if (rc == 0 && choices != NULL) {
        rc = start_timing(lt);
    }
    if (rc != 0) {
        kern_lt_destroy(lt);
        return rc;
    }
    *out = lt;
    return 0;
}

void kern_lt_destroy(struct kern_lt *lt)
{
    if (lt == NULL) {
        return;
    }
    if (lt->handle != NULL) {
        (void)CALL(lt, KERN_LT_DESTROY, destroy_function)(lt->handle);
    }
    if (lt->begin != NULL) {
        (void)cudaEventDestroy(lt->begin);
    }
    if (lt->end != NULL) {
        (void)cudaEventDestroy(lt->end);
    }
    kern_lt_choices_fini(&lt->choices);
    kern_lt_unload(lt->library);
    free(lt);
}

const char *kern_lt_describe(const struct kern_lt *lt)
{
    return lt->description;
}
