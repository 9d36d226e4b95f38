/* product_lt.c: the wrapper of cuBLASLt, which stores matrices by columns: our out[m][n] is its n x
 * m result of b (its A) and a (its B). fp32 is never computed in TF32. */
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

enum { PROPOSALS_MAX = 12, ALGORITHMS_MAX = 1024 };

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
typedef cublasStatus_t matmul_function(cublasLtHandle_t, cublasLtMatmulDesc_t, const void *,
                                       const void *, cublasLtMatrixLayout_t, const void *,
                                       cublasLtMatrixLayout_t, const void *, const void *,
                                       cublasLtMatrixLayout_t, void *, cublasLtMatrixLayout_t,
                                       const cublasLtMatmulAlgo_t *, void *, size_t, cudaStream_t);

/* What the proposal may depend on; compared as bytes. */
struct key {
    int64_t m, n, k;
    int64_t a_stride, b_stride, out_stride;
    uint8_t type, out_type, a_turned, b_turned;
    uint8_t bias;                        /* alignment in bytes; 0: no bias */
    uint8_t a_align, b_align, out_align; /* of the addresses in bytes, at most 16 */
};

struct algorithm {
    struct key key;
    bool exists; /* false: the library proposes none */
    cublasLtMatmulAlgo_t algo;
};

struct kern_lt {
    void (*symbols[KERN_LT_SYMBOLS])(void);
    cublasLtHandle_t handle;
    struct algorithm *algorithms; /* owned, a ring of ALGORITHMS_MAX */
    size_t count, next;
    bool warned; /* warn_none() has logged */
    char description[64];
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
                             const cublasLtMatmulAlgo_t *algo)
{
    const float scale = p->scale > 0.0f || p->scale < 0.0f ? p->scale : 1.0f;
    const float old = p->onto ? 1.0f : 0.0f;
    return CALL(lt, KERN_LT_MATMUL,
                matmul_function)(lt->handle, &shape->desc, &scale, p->b, &shape->a, p->a, &shape->b,
                                 &old, p->out, &shape->out, p->out, &shape->out, algo,
                                 workspace(where), KERN_CUDA_WORKSPACE_BYTES - 256, where->stream);
}

/* ---- Algorithms. ---- */

static uint8_t alignment(const void *address)
{
    const uintptr_t bits = (uintptr_t)address | 16;
    return (uint8_t)(bits & (~bits + 1));
}

static struct key key_of(const struct kern_cuda_product *p)
{
    return (struct key){
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

/* Returns the number of proposals, best estimate first; 0 on failure. */
static int proposals_of(const struct kern_lt *lt, const struct key *key, struct shape *shape,
                        cublasLtMatmulHeuristicResult_t proposals[PROPOSALS_MAX])
{
    cublasLtMatmulPreferenceOpaque_t preference;
    const uint64_t bytes = KERN_CUDA_WORKSPACE_BYTES - 256;
    /* Parts of a split k are added in fp32. With a bias k is not split: cuBLASLt 13.1 on an H100
     * added the bias after rounding the sum to bf16. */
    const uint32_t schemes = key->bias != 0 ? CUBLASLT_REDUCTION_SCHEME_NONE
                                            : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
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
            PROPOSALS_MAX, proposals, &count);
    }
    return status == 0 ? count : 0;
}

static void warn_none(struct kern_lt *lt, const char *op, const struct key *key)
{
    if (!lt->warned) {
        core_log(CORE_LOG_WARN,
                 "op %s: cuBLASLt has no algorithm for a product of %" PRId64 " x %" PRId64
                 " over %" PRId64 " %s elements (strides %" PRId64 ", %" PRId64 ", %" PRId64
                 "); it is computed without tensor cores, slowly, and similar products may be, too",
                 op, key->m, key->n, key->k, kern_type_name((enum kern_type)key->type),
                 key->a_stride, key->b_stride, key->out_stride);
        lt->warned = true;
    }
}

static const struct algorithm *algorithm_find(const struct kern_lt *lt, const struct key *key)
{
    for (size_t i = 0; i < lt->count; i++) {
        if (memcmp(&lt->algorithms[i].key, key, sizeof *key) == 0) {
            return &lt->algorithms[i];
        }
    }
    return NULL;
}

/* A full table loses its oldest answer. */
static const struct algorithm *algorithm_ask(struct kern_lt *lt, const char *op,
                                             const struct key *key, struct shape *shape)
{
    cublasLtMatmulHeuristicResult_t proposals[PROPOSALS_MAX];
    struct algorithm *made = &lt->algorithms[lt->next];
    memset(proposals, 0, sizeof proposals);
    const int count = proposals_of(lt, key, shape, proposals);
    *made = (struct algorithm){.key = *key};
    for (int i = 0; i < count && !made->exists; i++) {
        made->exists = proposals[i].state == CUBLAS_STATUS_SUCCESS;
        made->algo = proposals[i].algo;
    }
    lt->next = (lt->next + 1) % ALGORITHMS_MAX;
    lt->count += lt->count < ALGORITHMS_MAX;
    if (!made->exists) {
        warn_none(lt, op, key);
    }
    return made;
}

int kern_lt_product(struct kern_lt *lt, const struct dev_launch *where, const char *op,
                    const struct kern_cuda_product *product, bool *taken)
{
    struct shape shape;
    const struct key key = key_of(product);
    const struct algorithm *found = algorithm_find(lt, &key);
    *taken = false;
    if (found != NULL && !found->exists) {
        return 0;
    }
    int rc = shape_init(lt, op, product, &shape);
    if (rc != 0) {
        return rc;
    }
    if (found == NULL) {
        found = algorithm_ask(lt, op, &key, &shape);
    }
    if (!found->exists) {
        return 0;
    }
    const cublasStatus_t status = matmul(lt, where, product, &shape, &found->algo);
    *taken = status == CUBLAS_STATUS_SUCCESS;
    return *taken ? 0 : fail(op, "cublasLtMatmul", status);
}

/* ---- Create and destroy. ---- */

static int describe(struct kern_lt *lt)
{
    struct cudaDeviceProp card;
    int index = 0;
    int driver = 0;
    if (cudaGetDevice(&index) != cudaSuccess ||
        cudaGetDeviceProperties(&card, index) != cudaSuccess ||
        cudaDriverGetVersion(&driver) != cudaSuccess) {
        (void)cudaGetLastError();
        return core_err_set(-EIO, "cannot read the name of the card for cuBLASLt");
    }
    snprintf(lt->description, sizeof lt->description, "cuBLASLt %zu, driver %d, %.31s",
             CALL(lt, KERN_LT_VERSION, version_function)(), driver, card.name);
    return 0;
}

int kern_lt_create(struct kern_lt **out)
{
    struct kern_lt *lt = calloc(1, sizeof *lt);
    if (lt == NULL) {
        return core_err_set(-ENOMEM, "no memory for cuBLASLt");
    }
    int rc = kern_lt_load(lt->symbols);
    if (rc != 0) {
        goto fail;
    }
    lt->algorithms = calloc(ALGORITHMS_MAX, sizeof *lt->algorithms);
    if (lt->algorithms == NULL) {
        rc = core_err_set(-ENOMEM, "no memory for the algorithms of %d products", ALGORITHMS_MAX);
        goto fail;
    }
    const cublasStatus_t status = CALL(lt, KERN_LT_CREATE, create_function)(&lt->handle);
    if (status != CUBLAS_STATUS_SUCCESS) {
        rc = fail("create", "cublasLtCreate", status);
        goto fail;
    }
    rc = describe(lt);
    if (rc != 0) {
        goto fail;
    }
    *out = lt;
    return 0;
fail:
    kern_lt_destroy(lt);
    return rc;
}

void kern_lt_destroy(struct kern_lt *lt)
{
    if (lt == NULL) {
        return;
    }
    if (lt->handle != NULL) {
        (void)CALL(lt, KERN_LT_DESTROY, destroy_function)(lt->handle);
    }
    free(lt->algorithms);
    free(lt);
}

const char *kern_lt_describe(const struct kern_lt *lt)
{
    return lt->description;
}
