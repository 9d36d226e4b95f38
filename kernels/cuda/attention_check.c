/* attention_check.c: whether attention_sm90.cu computes on this card what attention.cu computes. Its
 * instructions read memory by descriptors, and a card that takes them otherwise would train on wrong
 * numbers: so it is asked once, before the kernel is used. On the queue's stream, in its scratch; the
 * thread that submits waits. */
#include <cuda_runtime_api.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/half.h"
#include "core/base/log.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/cuda.h"

enum {
    LENGTH = 300, /* three tiles of queries, the last one not whole; a document ends within */
    HEADS = 2,
    DIM_MAX = 128,
    WIDTH_MAX = HEADS * DIM_MAX,
    DOCUMENT = 70,
};

/* What lies in the scratch, in this order; tiles are listed behind it. */
struct sheet {
    _Alignas(256) uint16_t q[LENGTH * WIDTH_MAX];
    _Alignas(256) uint16_t k[LENGTH * DIM_MAX];
    _Alignas(256) uint16_t v[LENGTH * DIM_MAX];
    _Alignas(256) int32_t starts[LENGTH];
    _Alignas(256) uint16_t o[2][LENGTH * WIDTH_MAX];
    _Alignas(256) float lse[2][HEADS * LENGTH];
};

static struct kern_attention_arguments arguments_of(struct sheet *at, enum kern_type type,
                                                    int64_t dim, int64_t window, int way)
{
    return (struct kern_attention_arguments){
        .type = type,
        .rows = 1,
        .length = LENGTH,
        .heads = HEADS,
        .kv_heads = 1,
        .head_dim = dim,
        .window = window,
        .scale = 0.125f,
        .starts = window > 0 ? NULL : at->starts,
        .q = at->q,
        .q_stride = WIDTH_MAX,
        .k = at->k,
        .k_stride = DIM_MAX,
        .v = at->v,
        .v_stride = DIM_MAX,
        .o = at->o[way],
        .o_stride = WIDTH_MAX,
        .lse = at->lse[way],
    };
}

static void fill(uint16_t *to, size_t count, enum kern_type type, uint32_t seed)
{
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525U + 1013904223U;
        const float value = (float)(seed >> 16) * 0x1p-14f - 2.0f;
        to[i] = type == KERN_BF16 ? core_f32_to_bf16(value) : core_f32_to_fp16(value);
    }
}

static float widen(enum kern_type type, uint16_t bits)
{
    return type == KERN_BF16 ? core_bf16_to_f32(bits) : core_fp16_to_f32(bits);
}

/* The largest difference, against what two roundings of probabilities and results allow. */
static float worst_of(const struct sheet *sheet, enum kern_type type, int64_t dim)
{
    float worst = 0;
    for (int64_t t = 0; t < LENGTH; t++) {
        for (int64_t i = 0; i < HEADS * dim; i++) {
            const float a = widen(type, sheet->o[0][t * WIDTH_MAX + i]);
            const float b = widen(type, sheet->o[1][t * WIDTH_MAX + i]);
            const float part = fabsf(a - b) / (0.02f + 0.02f * fabsf(a));
            worst = part <= worst ? worst : part; /* NaN is the worst */
        }
        for (int64_t h = 0; h < HEADS; h++) {
            const float part = fabsf(sheet->lse[0][h * LENGTH + t] -
                                     sheet->lse[1][h * LENGTH + t]) /
                               1e-3f;
            worst = part <= worst ? worst : part;
        }
    }
    return worst;
}

/* Both ways over the same numbers; 0 and the worst difference, or why they could not be compared. */
static int compare(const struct dev_launch *where, struct sheet *sheet, enum kern_type type,
                   int64_t dim, int64_t window, float *worst)
{
    const struct dev_launch rest = {.stream = where->stream,
                                    .scratch = (char *)where->scratch + sizeof *sheet,
                                    .scratch_bytes = where->scratch_bytes - sizeof *sheet};
    struct sheet *card = where->scratch;
    memset(sheet, 0, sizeof *sheet);
    fill(sheet->q, LENGTH * WIDTH_MAX, type, 1);
    fill(sheet->k, LENGTH * DIM_MAX, type, 2);
    fill(sheet->v, LENGTH * DIM_MAX, type, 3);
    for (int32_t t = 0; t < LENGTH; t++) {
        sheet->starts[t] = t < DOCUMENT ? 0 : DOCUMENT;
    }
    cudaError_t error = cudaMemcpyAsync(card, sheet, sizeof *sheet, cudaMemcpyHostToDevice,
                                        where->stream);
    for (int way = 0; way < 2 && error == cudaSuccess; way++) {
        const struct kern_attention_arguments a = arguments_of(card, type, dim, window, way);
        const int rc = way == 0 ? kern_cuda_attention_mma(&rest, &a)
                                : kern_cuda_attention_sm90(&rest, &a);
        if (rc != 0) {
            return rc;
        }
    }
    if (error == cudaSuccess) {
        error = cudaMemcpyAsync(sheet, card, sizeof *sheet, cudaMemcpyDeviceToHost, where->stream);
    }
    error = error == cudaSuccess ? cudaStreamSynchronize(where->stream) : error;
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        return core_err_set(-EIO, "%s (%s)", cudaGetErrorString(error), cudaGetErrorName(error));
    }
    *worst = worst_of(sheet, type, dim);
    return 0;
}

size_t kern_cuda_attention_check_bytes(void)
{
    return sizeof(struct sheet) + 2 * LENGTH * sizeof(struct kern_tile);
}

bool kern_cuda_attention_check(const struct dev_launch *where)
{
    static const struct {
        enum kern_type type;
        int64_t dim, window;
    } cases[] = {{KERN_BF16, 128, 0}, {KERN_FP16, 64, 150}};
    struct cudaDeviceProp card;
    int index = 0;
    if (cudaGetDevice(&index) != cudaSuccess ||
        cudaGetDeviceProperties(&card, index) != cudaSuccess || card.major != 9 ||
        card.minor != 0) {
        (void)cudaGetLastError();
        return false; /* another card: attention.cu is what it has */
    }
    struct sheet *sheet = malloc(sizeof *sheet);
    float worst = 0;
    int rc = sheet != NULL ? 0 : core_err_set(-ENOMEM, "no memory to check attention with");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0] && rc == 0 && worst <= 1.0f; i++) {
        rc = compare(where, sheet, cases[i].type, cases[i].dim, cases[i].window, &worst);
    }
    free(sheet);
    if (rc != 0) {
        core_log(CORE_LOG_WARN,
                 "attention by Hopper's own products could not be checked (%s); it goes without "
                 "them and is slower",
                 core_err_sentence());
    } else if (!(worst <= 1.0f)) {
        core_log(CORE_LOG_WARN,
                 "attention by Hopper's own products is wrong on this card (%.3g times what "
                 "roundings allow); it goes without them and is slower",
                 (double)worst);
    }
    return rc == 0 && worst <= 1.0f;
}
