/* attention_cudnn.c: attention by cuDNN where it computes the same thing and was measured faster. A shape
 * that comes first is computed by ours and by cuDNN, compared, and timed; the choice is kept with those of
 * products. Where cuDNN is not there, or has no way, ours is used and one sentence says why. On the queue's
 * stream, in its scratch, of which cuDNN's workspace may be no more than what is there for others; the
 * thread that submits waits while it chooses, and never again. */
#include <cuda_runtime_api.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/half.h"
#include "core/base/log.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/cudnn.h"
#include "kernels/cuda/product_lt.h"

enum { WAYS_MAX = 32, TIMED_RUNS = 4, OWN = 1, CUDNN = 2, OUTPUTS_MAX = 3 };

_Static_assert(sizeof(struct kern_dnn_shape) == sizeof(struct kern_lt_key), "one key for both");

struct way {
    struct kern_dnn_shape shape;
    struct kern_dnn_plan *plan; /* owned; NULL: ours */
};

struct kern_dnn_ways {
    struct kern_dnn *dnn; /* owned; NULL: not opened yet, or absent */
    char *path;           /* owned; of the choices; NULL: none */
    bool by_hand, absent, told;
    struct kern_lt_choices choices;
    struct way ways[WAYS_MAX]; /* what is past them is ours */
    size_t count;
};

/* One call: attention, or its gradient. */
struct job {
    const struct dev_launch *where;
    const struct kern_attention_arguments *a;
    const struct kern_attention_grad_arguments *g; /* NULL: attention itself */
};

/* An array on the card from its first number to its last, with gaps between its rows. */
struct span {
    void *at;
    int64_t tokens, stride, width;
    enum kern_type type;
};

int kern_dnn_ways_create(const char *choices, bool by_hand, struct kern_dnn_ways **out)
{
    struct kern_dnn_ways *ways = calloc(1, sizeof *ways);
    char *path = choices != NULL ? strdup(choices) : NULL;
    if (ways == NULL || (choices != NULL && path == NULL)) {
        free(ways);
        free(path);
        return core_err_set(-ENOMEM, "no memory for the choice between attentions");
    }
    ways->path = path;
    ways->by_hand = by_hand;
    *out = ways;
    return 0;
}

void kern_dnn_ways_destroy(struct kern_dnn_ways *ways)
{
    if (ways != NULL) {
        for (size_t i = 0; i < ways->count; i++) {
            kern_dnn_plan_destroy(ways->ways[i].plan);
        }
        kern_lt_choices_fini(&ways->choices);
        kern_dnn_close(ways->dnn);
        free(ways->path);
        free(ways);
    }
}

/* ---- What is asked. ---- */

static bool small(int64_t number)
{
    return number > 0 && number <= INT32_MAX;
}

bool kern_dnn_takes(const struct kern_attention_arguments *a,
                    const struct kern_attention_grad_arguments *g)
{
    return kern_cuda_attention_sm90_fits(a) && a->starts == NULL &&
           (a->window == 0 || a->window >= a->length) && a->lse != NULL &&
           a->heads % a->kv_heads == 0 && a->o != a->q && small(a->rows) && small(a->length) &&
           small(a->heads) && small(a->q_stride) && small(a->k_stride) && small(a->v_stride) &&
           small(a->o_stride) &&
           (g == NULL ||
            (kern_cuda_attention_grad_sm90_fits(g) && g->dq != g->d_o && small(g->d_o_stride) &&
             small(g->dq_stride) && small(g->dk_stride) && small(g->dv_stride)));
}

static struct kern_dnn_shape shape_of(const struct job *j)
{
    return (struct kern_dnn_shape){
        .rows = (int32_t)j->a->rows,
        .length = (int32_t)j->a->length,
        .heads = (int32_t)j->a->heads,
        .kv_heads = (int32_t)j->a->kv_heads,
        .q_stride = (int32_t)j->a->q_stride,
        .k_stride = (int32_t)j->a->k_stride,
        .v_stride = (int32_t)j->a->v_stride,
        .o_stride = (int32_t)j->a->o_stride,
        .d_o_stride = j->g != NULL ? (int32_t)j->g->d_o_stride : 0,
        .dq_stride = j->g != NULL ? (int32_t)j->g->dq_stride : 0,
        .dk_stride = j->g != NULL ? (int32_t)j->g->dk_stride : 0,
        .dv_stride = j->g != NULL ? (int32_t)j->g->dv_stride : 0,
        .head_dim = (int32_t)j->a->head_dim,
        .type = (uint8_t)j->a->type,
        .grad = j->g != NULL,
    };
}

/* Deltas come first in the scratch. */
static size_t deltas_bytes(const struct job *j)
{
    return j->g != NULL ? kern_cuda_delta_bytes(j->a) : 0;
}

static size_t workspace_bytes(const struct job *j)
{
    const size_t deltas = deltas_bytes(j);
    return j->where->scratch_bytes > deltas ? j->where->scratch_bytes - deltas : 0;
}

static int run_own(const struct job *j)
{
    return j->g != NULL ? kern_cuda_attention_grad_own(j->where, j->g)
                        : kern_cuda_attention_own(j->where, j->a);
}

static int run_plan(const struct job *j, struct kern_dnn_plan *plan)
{
    const struct kern_attention_arguments *a = j->a;
    const void *arrays[KERN_DNN_ARRAYS] = {[KERN_DNN_Q] = a->q,
                                           [KERN_DNN_K] = a->k,
                                           [KERN_DNN_V] = a->v,
                                           [KERN_DNN_O] = a->o,
                                           [KERN_DNN_LSE] = a->lse};
    if (j->g != NULL) {
        arrays[KERN_DNN_D_O] = j->g->d_o;
        arrays[KERN_DNN_DELTA] = j->where->scratch;
        arrays[KERN_DNN_DQ] = j->g->dq;
        arrays[KERN_DNN_DK] = j->g->dk;
        arrays[KERN_DNN_DV] = j->g->dv;
    }
    return kern_dnn_plan_run(plan, j->where->stream, arrays, a->scale,
                             (char *)j->where->scratch + deltas_bytes(j));
}

/* ---- Comparing. ---- */

static size_t outputs_of(const struct job *j, struct span spans[OUTPUTS_MAX])
{
    const struct kern_attention_arguments *a = j->a;
    const int64_t tokens = a->rows * a->length;
    const int64_t width = a->heads * a->head_dim;
    const int64_t kv_width = a->kv_heads * a->head_dim;
    if (j->g == NULL) {
        spans[0] = (struct span){a->o, tokens, a->o_stride, width, a->type};
        spans[1] = (struct span){a->lse, a->heads, tokens, tokens, KERN_F32};
        return 2;
    }
    spans[0] = (struct span){j->g->dq, tokens, j->g->dq_stride, width, a->type};
    spans[1] = (struct span){j->g->dk, tokens, j->g->dk_stride, kv_width, a->type};
    spans[2] = (struct span){j->g->dv, tokens, j->g->dv_stride, kv_width, a->type};
    return 3;
}

static size_t span_bytes(const struct span *span)
{
    return (size_t)((span->tokens - 1) * span->stride + span->width) * kern_type_bytes(span->type);
}

/* Its bytes in host memory, for the caller to free; NULL with a sentence. */
static void *taken_down(const struct job *j, const struct span *span)
{
    const size_t bytes = span_bytes(span);
    void *host = malloc(bytes);
    if (host == NULL) {
        (void)core_err_set(-ENOMEM, "no %zu bytes to compare attentions in", bytes);
        return NULL;
    }
    cudaError_t error = cudaMemcpyAsync(host, span->at, bytes, cudaMemcpyDeviceToHost,
                                        j->where->stream);
    error = error == cudaSuccess ? cudaStreamSynchronize(j->where->stream) : error;
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        (void)core_err_set(-EIO, "copying %zu bytes to compare attentions: %s", bytes,
                           cudaGetErrorString(error));
        free(host);
        return NULL;
    }
    return host;
}

static float number_of(const struct span *span, const void *host, int64_t index)
{
    const uint16_t *half = host;
    return span->type == KERN_F32    ? ((const float *)host)[index]
           : span->type == KERN_BF16 ? core_bf16_to_f32(half[index])
                                     : core_fp16_to_f32(half[index]);
}

/* The largest difference, against a twentieth of the number and of what numbers are on average: more than
 * roundings of probabilities and results to 8 bits make. A number that is none is the worst. */
static float worst_between(const struct span *span, const void *one, const void *other)
{
    double sum = 0;
    float worst = 0;
    for (int64_t t = 0; t < span->tokens; t++) {
        for (int64_t i = 0; i < span->width; i++) {
            sum += fabs((double)number_of(span, one, t * span->stride + i));
        }
    }
    const float size = (float)(sum / (double)(span->tokens * span->width));
    for (int64_t t = 0; t < span->tokens; t++) {
        for (int64_t i = 0; i < span->width; i++) {
            const float x = number_of(span, one, t * span->stride + i);
            const float y = number_of(span, other, t * span->stride + i);
            const float apart = x == y ? 0 : fabsf(x - y) / (0.05f * (size + fabsf(x)));
            worst = apart <= worst ? worst : apart;
        }
    }
    return worst;
}

static int take_all_down(const struct job *j, const struct span *spans, size_t count,
                         void *host[OUTPUTS_MAX])
{
    for (size_t i = 0; i < count; i++) {
        host[i] = taken_down(j, &spans[i]);
        if (host[i] == NULL) {
            return -EIO;
        }
    }
    return 0;
}

/* Runs both; 0 where they agree. */
static int compare(const struct job *j, struct kern_dnn_plan *plan)
{
    struct span spans[OUTPUTS_MAX];
    void *host[2][OUTPUTS_MAX] = {{NULL}};
    const size_t count = outputs_of(j, spans);
    float worst = 0;
    int rc = run_own(j);
    rc = rc == 0 ? take_all_down(j, spans, count, host[0]) : rc;
    rc = rc == 0 ? run_plan(j, plan) : rc;
    rc = rc == 0 ? take_all_down(j, spans, count, host[1]) : rc;
    for (size_t i = 0; i < count; i++) {
        if (rc == 0) {
            const float apart = worst_between(&spans[i], host[0][i], host[1][i]);
            worst = apart <= worst ? worst : apart;
        }
        free(host[0][i]);
        free(host[1][i]);
    }
    if (rc == 0 && !(worst <= 1.0f)) {
        rc = core_err_set(-EDOM,
                          "cuDNN's numbers are wrong on this card (%.3g times what "
                          "roundings allow)",
                          (double)worst);
    }
    return rc;
}

/* ---- Timing. ---- */

static int run(const struct job *j, struct kern_dnn_plan *plan)
{
    return plan != NULL ? run_plan(j, plan) : run_own(j);
}

/* Milliseconds of TIMED_RUNS runs after one that warms up; negative where one fails. */
static float time_of(const struct job *j, struct kern_dnn_plan *plan, cudaEvent_t events[2])
{
    float ms = 0.0f;
    bool works = run(j, plan) == 0 && cudaEventRecord(events[0], j->where->stream) == cudaSuccess;
    for (int i = 0; i < TIMED_RUNS && works; i++) {
        works = run(j, plan) == 0;
    }
    works = works && cudaEventRecord(events[1], j->where->stream) == cudaSuccess &&
            cudaEventSynchronize(events[1]) == cudaSuccess &&
            cudaEventElapsedTime(&ms, events[0], events[1]) == cudaSuccess;
    return works ? ms : -1.0f;
}

/* 0 where cuDNN was faster. */
static int race(const struct job *j, struct kern_dnn_plan *plan)
{
    cudaEvent_t events[2] = {NULL, NULL};
    int rc = -EIO;
    if (cudaEventCreateWithFlags(&events[0], cudaEventDefault) == cudaSuccess &&
        cudaEventCreateWithFlags(&events[1], cudaEventDefault) == cudaSuccess) {
        const float own = time_of(j, NULL, events);
        const float cudnn = time_of(j, plan, events);
        rc = cudnn >= 0 && own >= 0 && cudnn < own ? 0 : -ERANGE;
        (void)core_err_set(rc, "cuDNN takes %.3f ms where ours takes %.3f", (double)cudnn,
                           (double)own);
    } else {
        (void)cudaGetLastError();
        (void)core_err_set(rc, "no events to time attention by cuDNN with");
    }
    for (int i = 0; i < 2; i++) {
        if (events[i] != NULL) {
            (void)cudaEventDestroy(events[i]);
        }
    }
    return rc;
}

/* ---- Choosing. ---- */

/* Why ours is used: the first time aloud, and wrong numbers each time. */
static void tell(struct kern_dnn_ways *ways, const struct job *j, int rc)
{
    const enum core_log_level level = rc == -EDOM   ? CORE_LOG_WARN
                                      : !ways->told ? CORE_LOG_INFO
                                                    : CORE_LOG_DEBUG;
    core_log(level, "op %s of %lld tokens goes by our own kernel: %s",
             j->g != NULL ? "attention_grad" : "attention", (long long)j->a->length,
             core_err_sentence());
    ways->told = true;
}

static void ways_open(struct kern_dnn_ways *ways)
{
    struct cudaDeviceProp card;
    char machine[128];
    int index = 0;
    int driver = 0;
    int rc = kern_dnn_open(NULL, &ways->dnn);
    if (rc == 0 && (cudaGetDevice(&index) != cudaSuccess ||
                    cudaGetDeviceProperties(&card, index) != cudaSuccess)) {
        (void)cudaGetLastError();
        rc = core_err_set(-EIO, "the card cannot be asked for its name");
    }
    if (rc == 0) {
        (void)cudaDriverGetVersion(&driver);
        snprintf(machine, sizeof machine, "%.60s, %d multiprocessors, cuDNN %zu, driver %d",
                 card.name, card.multiProcessorCount, kern_dnn_version(ways->dnn), driver);
        rc = kern_lt_choices_init(&ways->choices, ways->path, machine);
    }
    ways->absent = rc != 0;
    if (rc != 0) {
        core_log(CORE_LOG_INFO, "cuDNN is not used, attention is our own: %s", core_err_sentence());
        kern_dnn_close(ways->dnn);
        ways->dnn = NULL;
    }
}

/* The plan for the shape, chosen now or by a run before; NULL where ours is used. */
static struct kern_dnn_plan *plan_for(struct kern_dnn_ways *ways, const struct job *j,
                                      const struct kern_dnn_shape *shape)
{
    struct kern_dnn_plan *plan = NULL;
    const struct kern_lt_key key = {.attention = *shape};
    const int lock = kern_lt_choices_begin(&ways->choices);
    const struct kern_lt_choice *kept = kern_lt_choices_find(&ways->choices, &key);
    const bool is_ours = !ways->by_hand && kept != NULL && kept->algo[0] == OWN;
    int rc = is_ours ? -ERANGE : kern_dnn_plan_create(ways->dnn, shape, workspace_bytes(j), &plan);
    const bool is_known = rc == 0 && kept != NULL && kept->algo[0] == CUDNN &&
                          kept->algo[1] == (uint64_t)kern_dnn_plan_engine(plan);
    if (is_ours) {
        (void)core_err_set(rc, "it was measured to be the faster one");
    } else if (rc == 0 && !is_known) {
        rc = compare(j, plan);
        rc = rc == 0 && !ways->by_hand ? race(j, plan) : rc;
    }
    if (!is_ours && !is_known && !ways->by_hand && (rc == 0 || rc == -ERANGE)) {
        kern_lt_choices_add(
            &ways->choices,
            &(struct kern_lt_choice){.key = key,
                                     .algo = {rc == 0 ? CUDNN : OWN,
                                              rc == 0 ? (uint64_t)kern_dnn_plan_engine(plan) : 0}});
    }
    kern_lt_choices_end(lock);
    if (rc != 0) {
        tell(ways, j, rc);
        kern_dnn_plan_destroy(plan);
        plan = NULL;
    }
    return plan;
}

static int compute(struct kern_dnn_ways *ways, const struct job *j, bool *taken)
{
    *taken = false;
    if (ways == NULL || ways->absent || !kern_dnn_takes(j->a, j->g)) {
        return 0;
    }
    if (ways->dnn == NULL) {
        ways_open(ways);
    }
    const struct kern_dnn_shape shape = shape_of(j);
    size_t at = 0;
    while (at < ways->count && memcmp(&ways->ways[at].shape, &shape, sizeof shape) != 0) {
        at++;
    }
    if (ways->absent || at == WAYS_MAX) {
        return 0;
    }
    if (at == ways->count) {
        ways->ways[at] = (struct way){shape, plan_for(ways, j, &shape)};
        ways->count++;
    }
    struct kern_dnn_plan *plan = ways->ways[at].plan;
    *taken = plan != NULL && kern_dnn_plan_workspace_bytes(plan) <= workspace_bytes(j);
    return *taken ? run_plan(j, plan) : 0;
}

int kern_dnn_attention(struct kern_dnn_ways *ways, const struct dev_launch *where,
                       const struct kern_attention_arguments *a, bool *taken)
{
    return compute(ways, &(struct job){where, a, NULL}, taken);
}

int kern_dnn_attention_grad(struct kern_dnn_ways *ways, const struct dev_launch *where,
                            const struct kern_attention_grad_arguments *g, bool *taken)
{
    return compute(ways, &(struct job){where, &g->forward, g}, taken);
}
