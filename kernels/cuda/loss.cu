/* loss.cu: linear + cross-entropy over tiles of the vocabulary: statistics of all tiles first, then
 * gradients, for which a tile's logits are computed again. Only a tile of logits ever exists; the
 * gradients of the logits take its place. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/loss_rows.h"
#include "kernels/cuda/product.h"

namespace
{

constexpr int64_t LOGITS_BYTES = 256 << 20;
constexpr int64_t TILE_GRAIN = 64;
constexpr int64_t TILE_LEAST = 512;

size_t round_up(int64_t floats)
{
    return static_cast<size_t>(kern_div_up(floats, 64) * 64) * sizeof(float);
}

char *take(char **scratch, size_t bytes)
{
    char *taken = *scratch;
    *scratch += bytes;
    return taken;
}

/* logits[tokens][n] = x w^T in fp32. */
template <typename A> int logits_product(const struct dev_launch *where, const A *a, float *logits)
{
    struct kern_cuda_product product = {};
    product.type = a->type;
    product.m = a->tokens;
    product.n = a->n;
    product.k = a->width;
    product.a = a->x;
    product.a_stride = a->x_stride;
    product.b = a->w;
    product.b_stride = a->width;
    product.b_turned = true;
    product.out = logits;
    product.out_type = KERN_F32;
    product.out_stride = a->n;
    return kern_cuda_product(where, "loss", &product);
}

int stats_run(const struct dev_launch *where, const struct kern_loss_stats_arguments *a,
              char *scratch)
{
    float *logits = reinterpret_cast<float *>(scratch);
    int rc = logits_product(where, a, logits);
    return rc != 0 ? rc : kern_cuda_loss_stats_rows(where, a, logits);
}

/* The gradients of the logits stand where the logits stood, two halves in a float's place. */
int grad_products(const struct dev_launch *where, const struct kern_loss_grad_arguments *a,
                  const void *grads, char *scratch)
{
    const int64_t grads_stride = a->n *
                                 static_cast<int64_t>(sizeof(float) / kern_type_bytes(a->type));
    struct kern_cuda_product dw = {};
    dw.type = a->type;
    dw.m = a->n;
    dw.n = a->width;
    dw.k = a->tokens;
    dw.a = grads;
    dw.a_stride = grads_stride;
    dw.a_turned = true;
    dw.b = a->x;
    dw.b_stride = a->x_stride;
    struct kern_cuda_product dx = {};
    dx.type = a->type;
    dx.m = a->tokens;
    dx.n = a->width;
    dx.k = a->n;
    dx.a = grads;
    dx.a_stride = grads_stride;
    dx.b = a->w;
    dx.b_stride = a->width;
    struct kern_cuda_finish onto = {};
    onto.width = a->width;
    onto.sum = a->dx_sum;
    onto.first = a->first;
    onto.out = a->last ? a->dx : nullptr;
    onto.out_type = a->type;
    onto.out_stride = a->dx_stride;
    const struct kern_cuda_finish finish = kern_cuda_finish_grad(&a->dw, a->width);
    int rc = kern_grad_wanted(a->dw) ? kern_cuda_product_sum(where, "loss", &dw, &finish, scratch)
                                     : 0;
    return rc == 0 ? kern_cuda_product_sum(where, "loss", &dx, &onto, scratch) : rc;
}

int grad_run(const struct dev_launch *where, const struct kern_loss_grad_arguments *a,
             char *scratch)
{
    float *logits = reinterpret_cast<float *>(take(&scratch, round_up(a->tokens * a->n)));
    int rc = logits_product(where, a, logits);
    rc = rc == 0 ? kern_cuda_loss_grad_rows(where, a, logits) : rc;
    return rc == 0 ? grad_products(where, a, logits, scratch) : rc;
}

/* Columns of a tile of logits: what LOGITS_BYTES hold, but no fewer than products need. */
int64_t tile_columns(const struct kern_loss_arguments *a)
{
    const int64_t row_bytes = (a->tokens > 0 ? a->tokens : 1) * static_cast<int64_t>(sizeof(float));
    const int64_t held = LOGITS_BYTES / row_bytes / TILE_GRAIN * TILE_GRAIN;
    const int64_t n = held > TILE_LEAST ? held : TILE_LEAST;
    return n < a->vocab ? n : a->vocab;
}

struct kern_loss_grad_arguments grad_of_tile(const struct kern_loss_arguments *a, int64_t begin,
                                             int64_t n)
{
    const int64_t row = begin * a->width;
    struct kern_loss_grad_arguments g = {};
    g.type = a->type;
    g.tokens = a->tokens;
    g.n = n;
    g.width = a->width;
    g.begin = begin;
    g.x = a->x;
    g.x_stride = a->x_stride;
    g.w = static_cast<const char *>(a->w) + row * (int64_t)kern_type_bytes(a->type);
    g.labels = a->labels;
    g.scale = a->scale;
    g.first = begin == 0;
    g.last = begin + n == a->vocab;
    g.dx = a->dx;
    g.dx_stride = a->dx_stride;
    g.dw = a->dw;
    g.dw.sum = a->dw.sum != nullptr ? a->dw.sum + row : nullptr;
    g.dw.out = a->dw.out != nullptr
                   ? static_cast<char *>(a->dw.out) + row * (int64_t)kern_type_bytes(a->dw.out_type)
                   : nullptr;
    return g;
}

struct kern_loss_stats_arguments stats_of_tile(const struct kern_loss_arguments *a, int64_t begin,
                                               int64_t n)
{
    struct kern_loss_stats_arguments s = {};
    s.type = a->type;
    s.tokens = a->tokens;
    s.n = n;
    s.width = a->width;
    s.begin = begin;
    s.vocab = a->vocab;
    s.x = a->x;
    s.x_stride = a->x_stride;
    s.w = static_cast<const char *>(a->w) + begin * a->width * (int64_t)kern_type_bytes(a->type);
    s.labels = a->labels;
    s.first = begin == 0;
    return s;
}

struct room {
    float *maxima, *sums, *picked;
    float *dx_sum;
    char *rest;
};

struct room room_of(const struct kern_loss_arguments *a, void *scratch)
{
    char *at = static_cast<char *>(scratch);
    struct room room = {};
    room.maxima = reinterpret_cast<float *>(take(&at, round_up(a->tokens)));
    room.sums = reinterpret_cast<float *>(take(&at, round_up(a->tokens)));
    room.picked = reinterpret_cast<float *>(take(&at, round_up(a->tokens)));
    room.dx_sum = reinterpret_cast<float *>(take(&at, round_up(a->tokens * a->width)));
    room.rest = at;
    return room;
}

int all_stats(const struct dev_launch *where, const struct kern_loss_arguments *a,
              const struct room *room)
{
    const int64_t step = tile_columns(a);
    int rc = 0;
    for (int64_t begin = 0; begin < a->vocab && rc == 0; begin += step) {
        const int64_t n = begin + step < a->vocab ? step : a->vocab - begin;
        struct kern_loss_stats_arguments s = stats_of_tile(a, begin, n);
        s.maxima = room->maxima;
        s.sums = room->sums;
        s.picked = room->picked;
        rc = stats_run(where, &s, room->rest);
    }
    return rc;
}

int all_grads(const struct dev_launch *where, const struct kern_loss_arguments *a,
              const struct room *room)
{
    const int64_t step = tile_columns(a);
    int rc = 0;
    for (int64_t begin = 0; begin < a->vocab && rc == 0; begin += step) {
        const int64_t n = begin + step < a->vocab ? step : a->vocab - begin;
        struct kern_loss_grad_arguments g = grad_of_tile(a, begin, n);
        g.maxima = room->maxima;
        g.sums = room->sums;
        g.dx_sum = room->dx_sum;
        rc = grad_run(where, &g, room->rest);
    }
    return rc;
}

} // namespace

extern "C" size_t kern_cuda_loss_stats_bytes(const struct kern_loss_stats_arguments *a)
{
    return round_up(a->tokens * a->n) + KERN_CUDA_WORKSPACE_BYTES;
}

extern "C" int kern_cuda_loss_stats(const struct dev_launch *where,
                                    const struct kern_loss_stats_arguments *a)
{
    return stats_run(where, a, static_cast<char *>(where->scratch));
}

extern "C" size_t kern_cuda_loss_grad_bytes(const struct kern_loss_grad_arguments *a)
{
    const size_t dw = kern_cuda_product_sum_bytes(a->n, a->width);
    const size_t dx = kern_cuda_product_sum_bytes(a->tokens, a->width);
    return round_up(a->tokens * a->n) + (dw > dx ? dw : dx) + KERN_CUDA_WORKSPACE_BYTES;
}

extern "C" int kern_cuda_loss_grad(const struct dev_launch *where,
                                   const struct kern_loss_grad_arguments *a)
{
    return grad_run(where, a, static_cast<char *>(where->scratch));
}

extern "C" size_t kern_cuda_loss_bytes(const struct kern_loss_arguments *a)
{
    const struct kern_loss_grad_arguments grad = grad_of_tile(a, 0, tile_columns(a));
    return 3 * round_up(a->tokens) + round_up(a->tokens * a->width) +
           kern_cuda_loss_grad_bytes(&grad);
}

extern "C" int kern_cuda_loss(const struct dev_launch *where, const struct kern_loss_arguments *a)
{
    const struct room room = room_of(a, where->scratch);
    int rc = all_stats(where, a, &room);
    if (rc == 0) {
        const struct kern_loss_sum_arguments sum = {a->tokens, a->labels,   room.maxima,
                                                    room.sums, room.picked, a->loss};
        rc = kern_cuda_loss_sum(where, &sum);
    }
    return rc == 0 && a->dx != nullptr ? all_grads(where, a, &room) : rc;
}
