/* attention_check.c: checks on this card that the Hopper kernels agree with those for all cards: a
 * card could interpret memory descriptors differently. Runs on the queue's stream; the submitting
 * thread waits. */
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
    LENGTH = 300, /* several tiles, the last one partial */
    HEADS = 2,
    DIM_MAX = 128,
    WIDTH_MAX = HEADS * DIM_MAX,
    DOCUMENT = 70, /* tokens of the first document */
};

/* Arrays of [2]: results of the kernel for all cards, then of Hopper's. */
struct sheet {
    _Alignas(256) uint16_t q[LENGTH * WIDTH_MAX];
    _Alignas(256) uint16_t k[LENGTH * DIM_MAX];
    _Alignas(256) uint16_t v[LENGTH * DIM_MAX];
    _Alignas(256) int32_t starts[LENGTH];
    _Alignas(256) uint16_t o[2][LENGTH * WIDTH_MAX];
    _Alignas(256) float lse[2][HEADS * LENGTH];
    _Alignas(256) uint16_t d_o[LENGTH * WIDTH_MAX];
    _Alignas(256) uint16_t dq[2][LENGTH * WIDTH_MAX];
    _Alignas(256) uint16_t dk[2][LENGTH * DIM_MAX];
    _Alignas(256) uint16_t dv[2][LENGTH * DIM_MAX];
};

/* Without a window (0), the row has two documents. */
struct check_case {
    enum kern_type type;
    int64_t dim, window;
};

static struct kern_attention_arguments arguments_of(struct sheet *at, const struct check_case *c,
                                                    int way)
{
    return (struct kern_attention_arguments){
        .type = c->type,
        .rows = 1,
        .length = LENGTH,
        .heads = HEADS,
        .kv_heads = 1,
        .head_dim = c->dim,
        .window = c->window,
        .scale = 0.125f,
        .starts = c->window > 0 ? NULL : at->starts,
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

/* Both gradients use the forward results of the kernel for all cards. */
static struct kern_attention_grad_arguments grad_of(struct sheet *at, const struct check_case *c,
                                                    int way)
{
    return (struct kern_attention_grad_arguments){
        .forward = arguments_of(at, c, 0),
        .d_o = at->d_o,
        .d_o_stride = WIDTH_MAX,
        .dq = at->dq[way],
        .dq_stride = WIDTH_MAX,
        .dk = at->dk[way],
        .dk_stride = DIM_MAX,
        .dv = at->dv[way],
        .dv_stride = DIM_MAX,
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

/* A NaN wins, and stays. */
static float larger(float worst, float part)
{
    return part > worst || isnan(part) ? part : worst;
}

/* Returns the largest difference of results and lse, relative to a bound for rounding errors. */
static float worst_of(const struct sheet *sheet, const struct check_case *c)
{
    float worst = 0;
    for (int64_t t = 0; t < LENGTH; t++) {
        for (int64_t i = 0; i < HEADS * c->dim; i++) {
            const float a = widen(c->type, sheet->o[0][t * WIDTH_MAX + i]);
            const float b = widen(c->type, sheet->o[1][t * WIDTH_MAX + i]);
            worst = larger(worst, fabsf(a - b) / (0.02f + 0.02f * fabsf(a)));
        }
        for (int64_t h = 0; h < HEADS; h++) {
            worst = larger(worst,
                           fabsf(sheet->lse[0][h * LENGTH + t] - sheet->lse[1][h * LENGTH + t]) /
                               1e-3f);
        }
    }
    return worst;
}

/* Returns the largest difference of a gradient, relative to a bound that grows with the array's
 * root mean square. */
static float worst_between(enum kern_type type, const uint16_t *a, const uint16_t *b, size_t count)
{
    double squares = 0;
    float worst = 0;
    for (size_t i = 0; i < count; i++) {
        const double x = (double)widen(type, a[i]);
        squares += x * x;
    }
    const float size = (float)sqrt(squares / (double)count);
    for (size_t i = 0; i < count; i++) {
        const float x = widen(type, a[i]);
        worst = larger(worst, fabsf(x - widen(type, b[i])) / (0.05f * (size + fabsf(x))));
    }
    return worst;
}

static float worst_grad_of(const struct sheet *sheet, const struct check_case *c)
{
    const float q = worst_between(c->type, sheet->dq[0], sheet->dq[1], LENGTH * WIDTH_MAX);
    const float k = worst_between(c->type, sheet->dk[0], sheet->dk[1], LENGTH * DIM_MAX);
    const float v = worst_between(c->type, sheet->dv[0], sheet->dv[1], LENGTH * DIM_MAX);
    return larger(larger(q, k), v);
}

static int attend(const struct dev_launch *where, struct sheet *card, const struct check_case *c)
{
    const struct kern_attention_arguments one = arguments_of(card, c, 0);
    const struct kern_attention_arguments other = arguments_of(card, c, 1);
    const int rc = kern_cuda_attention_mma(where, &one);
    if (rc != 0) {
        return rc;
    }
    return kern_cuda_attention_sm90(where, &other);
}

static int attend_grad(const struct dev_launch *where, struct sheet *card,
                       const struct check_case *c)
{
    const struct kern_attention_arguments forward = arguments_of(card, c, 0);
    const struct kern_attention_grad_arguments one = grad_of(card, c, 0);
    const struct kern_attention_grad_arguments other = grad_of(card, c, 1);
    int rc = kern_cuda_attention_mma(where, &forward);
    if (rc != 0) {
        return rc;
    }
    rc = kern_cuda_attention_grad_mma(where, &one);
    if (rc != 0) {
        return rc;
    }
    return kern_cuda_attention_grad_sm90(where, &other);
}

struct question {
    const char *name;
    int (*compute)(const struct dev_launch *where, struct sheet *card, const struct check_case *c);
    float (*worst)(const struct sheet *sheet, const struct check_case *c);
};

static int fail(cudaError_t error)
{
    (void)cudaGetLastError();
    return core_err_set(-EIO, "%s (%s)", cudaGetErrorString(error), cudaGetErrorName(error));
}

/* Sets *worst, or returns the error that prevented the comparison. */
static int compare(const struct dev_launch *where, struct sheet *sheet,
                   const struct question *question, const struct check_case *c, float *worst)
{
    const struct dev_launch rest = {.stream = where->stream,
                                    .scratch = (char *)where->scratch + sizeof *sheet,
                                    .scratch_bytes = where->scratch_bytes - sizeof *sheet};
    struct sheet *card = where->scratch;
    memset(sheet, 0, sizeof *sheet);
    fill(sheet->q, LENGTH * WIDTH_MAX, c->type, 1);
    fill(sheet->k, LENGTH * DIM_MAX, c->type, 2);
    fill(sheet->v, LENGTH * DIM_MAX, c->type, 3);
    fill(sheet->d_o, LENGTH * WIDTH_MAX, c->type, 4);
    for (int32_t t = 0; t < LENGTH; t++) {
        sheet->starts[t] = t < DOCUMENT ? 0 : DOCUMENT;
    }
    cudaError_t error = cudaMemcpyAsync(card, sheet, sizeof *sheet, cudaMemcpyHostToDevice,
                                        where->stream);
    if (error != cudaSuccess) {
        return fail(error);
    }
    const int rc = question->compute(&rest, card, c);
    error = rc != 0 ? cudaSuccess
                    : cudaMemcpyAsync(sheet, card, sizeof *sheet, cudaMemcpyDeviceToHost,
                                      where->stream);
    /* Queued copies may still use the sheet, even after a failure. */
    const cudaError_t waited = cudaStreamSynchronize(where->stream);
    if (rc != 0) {
        return rc;
    }
    if (error != cudaSuccess || waited != cudaSuccess) {
        return fail(error != cudaSuccess ? error : waited);
    }
    *worst = question->worst(sheet, c);
    return 0;
}

size_t kern_cuda_attention_check_bytes(void)
{
    const size_t tiles = LENGTH * sizeof(struct kern_tile) + 256;
    const size_t deltas = HEADS * LENGTH * sizeof(float) + 256;
    return sizeof(struct sheet) + tiles + deltas;
}

size_t kern_cuda_attention_grad_check_bytes(void)
{
    return kern_cuda_attention_check_bytes();
}

static bool card_is_hopper(void)
{
    struct cudaDeviceProp card;
    int index = 0;
    if (cudaGetDevice(&index) != cudaSuccess ||
        cudaGetDeviceProperties(&card, index) != cudaSuccess) {
        (void)cudaGetLastError();
        return false;
    }
    return card.major == 9 && card.minor == 0;
}

static bool answer(const struct dev_launch *where, const struct question *question)
{
    static const struct check_case cases[] = {{KERN_BF16, 128, 0}, {KERN_BF16, 64, 150}};
    if (!card_is_hopper()) {
        return false; /* the kernels for all cards are used */
    }
    struct sheet *sheet = malloc(sizeof *sheet);
    float worst = 0;
    int rc = sheet != NULL ? 0 : core_err_set(-ENOMEM, "no memory to check attention with");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0] && rc == 0 && worst <= 1.0f; i++) {
        rc = compare(where, sheet, question, &cases[i], &worst);
    }
    free(sheet);
    if (rc != 0) {
        core_log(CORE_LOG_WARN,
                 "%s with Hopper's tensor-core instructions could not be checked (%s); the slower "
                 "kernel is used",
                 question->name, core_err_message());
    } else if (!(worst <= 1.0f)) {
        core_log(CORE_LOG_WARN,
                 "%s with Hopper's tensor-core instructions gives wrong results on this GPU "
                 "(error: %.3g "
                 "times the rounding bound); the slower kernel is used",
                 question->name, (double)worst);
    }
    return rc == 0 && worst <= 1.0f;
}

bool kern_cuda_attention_check(const struct dev_launch *where)
{
    return answer(where, &(const struct question){"attention", attend, worst_of});
}

bool kern_cuda_attention_grad_check(const struct dev_launch *where)
{
    return answer(where,
                  &(const struct question){"attention's gradient", attend_grad, worst_grad_of});
}
