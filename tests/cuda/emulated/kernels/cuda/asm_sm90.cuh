/* asm_sm90.cuh: the instructions of kernels/cuda/asm_sm90.cuh in plain C++, for the emulated card.
 * A product is computed when a thread waits for it, so that a missing wait or barrier shows.
 * Descriptors are decoded as in the PTX manual. */
#ifndef KERNELS_CUDA_ASM_SM90_CUH
#define KERNELS_CUDA_ASM_SM90_CUH

#include "kernels/cuda/asm.cuh"
#include "kernels/cuda/tensor_map.h"

struct kern_wg_tile {
    uint64_t bits;
};

static inline uint32_t kern_shared_address(const void *shared)
{
    return static_cast<uint32_t>(static_cast<const char *>(shared) -
                                 static_cast<const char *>(card_shared()));
}

static inline kern_wg_tile kern_wg_tile_of(uint32_t address, uint32_t slice_bytes)
{
    return {static_cast<uint64_t>(address >> 4) | static_cast<uint64_t>(slice_bytes >> 4) << 16 |
            static_cast<uint64_t>(1024 >> 4) << 32 | static_cast<uint64_t>(1) << 62};
}

static inline kern_wg_tile kern_wg_tile_from(kern_wg_tile tile, uint32_t bytes)
{
    return {tile.bits + (bytes >> 4)};
}

/* Returns element (i, k) of an operand. Elements with consecutive k are adjacent; if `turned`,
 * those with consecutive i. */
template <typename T> float card_wg_element(kern_wg_tile tile, bool turned, int i, int k)
{
    const uint32_t start = static_cast<uint32_t>(tile.bits & 0x3fff) << 4;
    const uint32_t slices = static_cast<uint32_t>(tile.bits >> 16 & 0x3fff) << 4;
    const uint32_t groups = static_cast<uint32_t>(tile.bits >> 32 & 0x3fff) << 4;
    const uint32_t at = turned ? i / 64 * slices + k / 8 * groups + k % 8 * 128 + i % 64 * 2
                               : i / 8 * groups + i % 8 * 128 + k * 2;
    const uint32_t turn = card_group_products_are_wrong ? 0 : (start + at) >> 7 & 7;
    const uint32_t place = (start + at) ^ turn << 4;
    uint16_t bits;
    std::memcpy(&bits, static_cast<const char *>(card_shared()) + place, sizeof bits);
    return T::widen(bits);
}

/* A product in flight. */
struct card_wg_product {
    void (*run)(const card_wg_product &);
    float (*d)[4];
    int count; /* groups of eight columns */
    bool first;
    const uint32_t *a; /* NULL: the operand is in a tile */
    kern_wg_tile a_tile, b_tile;
    unsigned batch;
};

constexpr int CARD_WG_MAX = 64;
struct card_wg_queue {
    card_wg_product list[CARD_WG_MAX];
    int count;
    unsigned batch;
};
/* Shared by all files: the linker keeps one instance of each template below. */
inline card_wg_queue card_wg_queues[1024];

inline card_wg_queue &card_wg_mine()
{
    return card_wg_queues[card_place()->thread];
}

template <typename T> void card_wg_run(const card_wg_product &p)
{
    const int lane = static_cast<int>(card_lane());
    const int warp_row = static_cast<int>(card_place()->thread / 32 % 4) * 16;
    card_fragments all[32] = {};
    if (p.a != nullptr) {
        const card_fragments mine = {{p.a[0], p.a[1], p.a[2], p.a[3]}, {0, 0}};
        std::memcpy(all, card_exchange(&mine, sizeof mine), sizeof all);
    }
    float a[2][16];
    for (int half = 0; half < 2; half++) {
        for (int k = 0; k < 16; k++) {
            const int row = lane / 4 + 8 * half;
            a[half][k] = p.a != nullptr ? card_a<T>(all, row, k)
                                        : card_wg_element<T>(p.a_tile, false, warp_row + row, k);
        }
    }
    for (int n = 0; n < p.count; n++) {
        for (int j = 0; j < 2; j++) {
            const int column = n * 8 + lane % 4 * 2 + j;
            float sums[2] = {p.first ? 0.0f : p.d[n][j], p.first ? 0.0f : p.d[n][2 + j]};
            for (int k = 0; k < 16; k++) {
                const float b = card_wg_element<T>(p.b_tile, p.a != nullptr, column, k);
                sums[0] += a[0][k] * b;
                sums[1] += a[1][k] * b;
            }
            p.d[n][j] = sums[0];
            p.d[n][2 + j] = sums[1];
        }
    }
}

inline void card_wg_put(const card_wg_product &product)
{
    card_wg_queue &queue = card_wg_mine();
    if (queue.count == CARD_WG_MAX) {
        std::abort();
    }
    card_group_products++;
    queue.list[queue.count] = product;
    queue.list[queue.count++].batch = queue.batch;
}

template <bool FIRST, typename T, int N>
void kern_wg_scores(T, float (&d)[N][4], kern_wg_tile a, kern_wg_tile b)
{
    card_wg_put({card_wg_run<T>, d, N, FIRST, nullptr, a, b, 0});
}

template <typename T, int N>
void kern_wg_gather(T, float (&d)[N][4], const uint32_t (&a)[4], kern_wg_tile b)
{
    card_wg_put({card_wg_run<T>, d, N, false, a, {}, b, 0});
}

static inline uint64_t *card_barrier_at(uint32_t barrier)
{
    return reinterpret_cast<uint64_t *>(static_cast<char *>(card_shared()) + barrier);
}

static inline void kern_barrier_init(uint32_t barrier, uint32_t arrivals)
{
    card_phase_init(card_barrier_at(barrier), arrivals);
}

static inline void kern_barrier_publish()
{
}

static inline void kern_barrier_arrive(uint32_t barrier, bool arrives)
{
    if (arrives) {
        card_phase_arrive(card_barrier_at(barrier), 0);
    }
}

static inline void kern_barrier_announce(uint32_t barrier, uint32_t bytes)
{
    card_phase_arrive(card_barrier_at(barrier), bytes);
}

static inline void kern_barrier_wait(uint32_t barrier, uint32_t phase)
{
    card_phase_wait(card_barrier_at(barrier), phase);
}

static inline void kern_tensor_copy(uint32_t shared, const kern_tensor_map *map, uint32_t barrier,
                                    int32_t column, int32_t position, int32_t row)
{
    card_tensor tensor;
    static_assert(sizeof tensor <= sizeof map->words);
    std::memcpy(&tensor, map->words, sizeof tensor);
    card_tensor_copy(shared, &tensor, card_barrier_at(barrier), {column, position, row});
}

static inline uint32_t kern_uniform(uint32_t value)
{
    return value;
}

template <int N> void kern_registers_raise()
{
}

template <int N> void kern_registers_lower()
{
}

static inline void kern_wg_begin()
{
}

static inline void kern_wg_batch()
{
    card_wg_mine().batch++;
}

template <int N> void kern_wg_wait()
{
    card_wg_queue &queue = card_wg_mine();
    int kept = 0;
    for (int i = 0; i < queue.count; i++) {
        if (queue.list[i].batch + N >= queue.batch) {
            queue.list[kept++] = queue.list[i];
        } else {
            queue.list[i].run(queue.list[i]);
        }
    }
    queue.count = kept;
}

template <typename V, int N> void kern_wg_settle(V (&)[N][4])
{
}

#endif
