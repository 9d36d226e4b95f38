/* sort.cu: a radix sort of tokens by id, eight bits per pass: blocks count digits; one block turns
 * counts into places; blocks move their tokens there. */
#include "kernels/cuda/sort.h"

#include "kernels/cuda/launch.cuh"

namespace
{

constexpr int BITS = 8;
constexpr int DIGITS = 1 << BITS;
constexpr int THREADS = DIGITS; /* one per digit */
constexpr int WARP = 32;
constexpr int WARPS = THREADS / WARP;
constexpr int RUN = 4 * THREADS; /* tokens of a block */
constexpr int SCANNERS = 1024;   /* of the block that computes places */

/* Tokens in the previous pass's order; first pass: `order` NULL. */
struct tokens {
    kern_unsorted in;
    const int32_t *ids;
    const int32_t *order;
};

__device__ int32_t id_at(const tokens &t, int64_t place)
{
    if (t.order != nullptr) {
        return t.ids[place];
    }
    return t.in.ids != nullptr ? t.in.ids[place] : static_cast<int32_t>(place % t.in.length);
}

__global__ void __launch_bounds__(THREADS)
    count_digits(struct tokens t, int shift, int32_t *counts, int64_t runs)
{
    __shared__ int32_t room[DIGITS];
    room[threadIdx.x] = 0;
    __syncthreads();
    const int64_t begin = static_cast<int64_t>(blockIdx.x) * RUN;
    for (int64_t i = begin + threadIdx.x; i < begin + RUN && i < t.in.tokens; i += THREADS) {
        atomicAdd(&room[id_at(t, i) >> shift & (DIGITS - 1)], 1);
    }
    __syncthreads();
    counts[threadIdx.x * runs + blockIdx.x] = room[threadIdx.x];
}

/* Replaces counts[i] by the sum of the counts before it. */
__global__ void __launch_bounds__(SCANNERS) scan_counts(int32_t *counts, int64_t count)
{
    __shared__ int32_t room[SCANNERS];
    const int64_t begin = count * threadIdx.x / SCANNERS;
    const int64_t end = count * (threadIdx.x + 1) / SCANNERS;
    int32_t sum = 0;
    for (int64_t i = begin; i < end; i++) {
        sum += counts[i];
    }
    room[threadIdx.x] = sum;
    for (unsigned step = 1; step < SCANNERS; step *= 2) {
        __syncthreads();
        const int32_t before = threadIdx.x >= step ? room[threadIdx.x - step] : 0;
        __syncthreads();
        room[threadIdx.x] += before;
    }
    int32_t place = room[threadIdx.x] - sum;
    for (int64_t i = begin; i < end; i++) {
        const int32_t here = counts[i];
        counts[i] = place;
        place += here;
    }
}

/* Goes over slices of THREADS tokens. A token's place is the warp's next place for its digit, plus
 * its rank among the warp's lanes with that digit. */
__global__ void __launch_bounds__(THREADS)
    place_tokens(struct tokens t, int shift, const int32_t *places, int64_t runs, int32_t *ids,
                 int32_t *order)
{
    __shared__ int32_t next[WARPS][DIGITS];
    const unsigned lane = threadIdx.x % WARP;
    const unsigned warp = threadIdx.x / WARP;
    int32_t base = places[threadIdx.x * runs + blockIdx.x]; /* of the thread's digit */
    for (int slice = 0; slice < RUN / THREADS; slice++) {
        const int64_t i = static_cast<int64_t>(blockIdx.x) * RUN + slice * THREADS + threadIdx.x;
        const bool lives = i < t.in.tokens;
        const int32_t id = lives ? id_at(t, i) : 0;
        const unsigned digit = lives ? id >> shift & (DIGITS - 1) : DIGITS;
        for (unsigned w = 0; w < WARPS; w++) {
            next[w][threadIdx.x] = 0;
        }
        __syncthreads();
        const unsigned same = __match_any_sync(0xffffffffu, digit);
        const unsigned before = __popc(same & ((1u << lane) - 1));
        if (lives && before == 0) {
            next[warp][digit] = __popc(same);
        }
        __syncthreads();
        for (unsigned w = 0; w < WARPS; w++) {
            const int32_t here = next[w][threadIdx.x];
            next[w][threadIdx.x] = base;
            base += here;
        }
        __syncthreads();
        if (lives) {
            const int32_t place = next[warp][digit] + static_cast<int32_t>(before);
            ids[place] = id;
            order[place] = t.order != nullptr ? t.order[i] : static_cast<int32_t>(i);
        }
        __syncthreads();
    }
}

int64_t runs_of(int64_t tokens)
{
    return kern_div_up(tokens, RUN);
}

int64_t round_up(int64_t words)
{
    return kern_div_up(words, 64) * 64;
}

} // namespace

extern "C" size_t kern_cuda_sort_bytes(int64_t tokens)
{
    return static_cast<size_t>(4 * round_up(tokens) + round_up(runs_of(tokens) * DIGITS)) *
           sizeof(int32_t);
}

extern "C" int kern_cuda_sort(const struct dev_launch *where, const char *op,
                              const struct kern_unsorted *in, void *scratch,
                              struct kern_sorted *out)
{
    if (in->tokens > INT32_MAX) {
        return core_err_set(-EINVAL, "op %s has %lld tokens; the maximum is %d", op,
                            (long long)in->tokens, INT32_MAX);
    }
    int32_t *const words = static_cast<int32_t *>(scratch);
    const int64_t room = round_up(in->tokens);
    int32_t *const counts = words + 4 * room;
    const int64_t runs = runs_of(in->tokens);
    const kern_grid by_run = kern_grid_of(runs, THREADS);
    const kern_grid one = kern_grid_of(runs > 0 ? 1 : 0, SCANNERS);
    struct tokens t = {*in, nullptr, nullptr};
    for (int shift = 0, pass = 0;; shift += BITS, pass++) {
        int32_t *ids = words + pass % 2 * 2 * room;
        int32_t *order = ids + room;
        int rc = kern_cuda_launch(where, op, by_run, count_digits, t, shift, counts, runs);
        if (rc != 0) {
            return rc;
        }
        rc = kern_cuda_launch(where, op, one, scan_counts, counts, runs * DIGITS);
        if (rc != 0) {
            return rc;
        }
        rc = kern_cuda_launch(where, op, by_run, place_tokens, t, shift,
                              static_cast<const int32_t *>(counts), runs, ids, order);
        if (rc != 0) {
            return rc;
        }
        t.ids = ids;
        t.order = order;
        if (in->limit <= static_cast<int64_t>(1) << (shift + BITS)) {
            break;
        }
    }
    *out = {t.ids, t.order};
    return 0;
}
