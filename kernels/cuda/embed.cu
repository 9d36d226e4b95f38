/* embed.cu: rows of a table by id, and their gradient: tokens are sorted by id, stably, and one
 * thread sums a group of columns over all tokens of a row. */
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/sort.h"

namespace
{

constexpr int STRIP = 64; /* threads of a summing block; each has one group of columns */
constexpr int AHEAD = 4;  /* tokens whose rows a thread reads at once */

/* The NaN shows an id outside the table, which must not reach a device. */
template <typename T>
__global__ void __launch_bounds__(KERN_ROWS_THREADS)
    embed_rows(struct kern_embed_arguments a, uint32_t parts, bool wide)
{
    const kern_place at = kern_place_of(parts);
    const int64_t left = a.width - at.i;
    if (left <= 0) {
        return;
    }
    const int64_t id = a.ids[at.token];
    float y[KERN_GROUP];
    if (id >= 0 && id < a.vocab) {
        kern_load<T>(y, a.table, id * (a.stride > 0 ? a.stride : a.width) + at.i, left, wide);
    } else {
#pragma unroll
        for (int j = 0; j < KERN_GROUP; j++) {
            y[j] = __uint_as_float(0x7fc00000u);
        }
    }
    if (a.position_table != nullptr) {
        const int64_t position = a.positions != nullptr ? a.positions[at.token]
                                                        : at.token % a.length;
        float more[KERN_GROUP];
        kern_load<T>(more, a.position_table, position * a.width + at.i, left, wide);
#pragma unroll
        for (int j = 0; j < KERN_GROUP; j++) {
            y[j] += more[j];
        }
    }
    kern_store<T>(y, a.y, at.token * a.width + at.i, left, wide);
}

/* Returns the first place with an id of `id` or more. */
__device__ int64_t place_of(const int32_t *ids, int64_t tokens, int64_t id)
{
    int64_t low = 0;
    int64_t high = tokens;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (ids[middle] < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

template <typename T>
__global__ void __launch_bounds__(STRIP)
    embed_grad_rows(struct kern_embed_grad_arguments a, struct kern_sorted sorted, bool wide)
{
    const int64_t id = blockIdx.x;
    const int64_t i = (static_cast<int64_t>(blockIdx.y) * STRIP + threadIdx.x) * KERN_GROUP;
    const int64_t left = a.width - i;
    const bool touches_all = a.dtable.first || (a.dtable.last && a.dtable.out != nullptr);
    int64_t place = place_of(sorted.ids, a.tokens, id);
    const bool padding = a.has_padding && id == a.padding_id;
    const bool occurs = !padding && place < a.tokens && sorted.ids[place] == id;
    if (left <= 0 || (!occurs && !touches_all)) {
        return;
    }
    const int64_t end = occurs ? place_of(sorted.ids, a.tokens, id + 1) : place;
    float sum[KERN_GROUP] = {};
    for (; place < end; place += AHEAD) {
        float dy[AHEAD][KERN_GROUP];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const int64_t token = place + k < end ? sorted.order[place + k] : 0;
            kern_load<T>(dy[k], a.dy, token * a.width + i, place + k < end ? left : 0, wide);
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++) { /* past the end dy is 0, but -0 + 0 is not -0 */
#pragma unroll
            for (int j = 0; j < KERN_GROUP; j++) {
                sum[j] = place + k < end ? sum[j] + dy[k][j] : sum[j];
            }
        }
    }
    kern_grad_put_group(a.dtable, id * a.width + i, sum, left, wide);
}

} // namespace

extern "C" int kern_cuda_embed(const struct dev_launch *where, const struct kern_embed_arguments *a)
{
    const bool wide = kern_is_wide(a->type, a->table, a->width) &&
                      kern_is_wide(a->type, a->table, a->stride) &&
                      kern_is_wide(a->type, a->position_table, a->width) &&
                      kern_is_wide(a->type, a->y, a->width);
    const kern_cut c = kern_cut_of(a->tokens, kern_div_up(a->width, KERN_GROUP));
    return kern_by_type("embed", a->type, [&](auto type) {
        return kern_cuda_launch(where, "embed", c.grid, embed_rows<decltype(type)>, *a, c.parts,
                                wide);
    });
}

extern "C" size_t kern_cuda_embed_grad_bytes(const struct kern_embed_grad_arguments *a)
{
    return kern_cuda_sort_bytes(a->tokens);
}

extern "C" int kern_cuda_embed_grad(const struct dev_launch *where,
                                    const struct kern_embed_grad_arguments *a)
{
    if (!kern_grad_wanted(a->dtable)) {
        return 0;
    }
    struct kern_sorted sorted = {};
    const struct kern_unsorted ids = {a->ids, a->length, a->tokens, a->vocab};
    int rc = kern_cuda_sort(where, "embed_grad", &ids, where->scratch, &sorted);
    if (rc != 0) {
        return rc;
    }
    const bool wide = kern_is_wide(a->type, a->dy, a->width) &&
                      kern_grad_is_wide(a->dtable, a->width);
    const kern_grid grid = {
        .blocks = a->width > 0 ? a->vocab : 0,
        .threads = STRIP,
        .lines = static_cast<unsigned>(kern_div_up(a->width, STRIP * KERN_GROUP)),
        .shared_bytes = 0};
    return kern_by_type("embed_grad", a->type, [&](auto type) {
        return kern_cuda_launch(where, "embed_grad", grid, embed_grad_rows<decltype(type)>, *a,
                                sorted, wide);
    });
}
