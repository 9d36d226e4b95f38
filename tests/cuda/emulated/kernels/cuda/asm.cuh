/* asm.cuh: the instructions of kernels/cuda/asm.cuh in plain C++, for the emulated card. Some
 * launches delay asynchronous copies, so that a missing wait shows. */
#ifndef KERNELS_CUDA_ASM_CUH
#define KERNELS_CUDA_ASM_CUH

#include "kernels/cuda/half.cuh"
#include "tests/cuda/emulated.cuh"

static inline char *kern_shared()
{
    return static_cast<char *>(card_shared());
}

template <typename T> float card_half(uint32_t word, int which)
{
    return T::widen(static_cast<uint16_t>(which == 0 ? word : word >> 16));
}

struct card_fragments {
    uint32_t a[4];
    uint32_t b[2];
};

/* Return element (row, k) of a and element (k, column) of b, from the lanes' fragments. */
template <typename T> float card_a(const card_fragments *all, int row, int k)
{
    const card_fragments &lane = all[row % 8 * 4 + k % 8 / 2];
    return card_half<T>(lane.a[row / 8 + k / 8 * 2], k % 2);
}

template <typename T> float card_b(const card_fragments *all, int k, int column)
{
    return card_half<T>(all[column * 4 + k % 8 / 2].b[k / 8], k % 2);
}

template <typename T>
void kern_mma(T, float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    const card_fragments mine = {{a[0], a[1], a[2], a[3]}, {b0, b1}};
    card_fragments all[32];
    std::memcpy(all, card_exchange(&mine, sizeof mine), sizeof all);
    const int g = static_cast<int>(card_lane()) / 4;
    const int t = static_cast<int>(card_lane()) % 4;
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < 16; k++) {
            d[i] += card_a<T>(all, g + i / 2 * 8, k) * card_b<T>(all, k, 2 * t + i % 2);
        }
    }
}

template <typename T> uint32_t kern_pack(T, float first, float second)
{
    return T::narrow(first) | static_cast<uint32_t>(T::narrow(second)) << 16;
}

static inline void card_ldmatrix(uint32_t (&r)[4], const void *row, bool turned)
{
    const void *rows[32];
    std::memcpy(rows, card_exchange(&row, sizeof row), sizeof rows);
    const unsigned g = card_lane() / 4;
    const unsigned t = card_lane() % 4;
    for (unsigned i = 0; i < 4; i++) {
        uint16_t pair[2];
        for (unsigned e = 0; e < 2; e++) {
            const unsigned from = turned ? 2 * t + e : g;
            const unsigned at = turned ? g : 2 * t + e;
            std::memcpy(&pair[e], static_cast<const uint16_t *>(rows[8 * i + from]) + at, 2);
        }
        r[i] = pair[0] | static_cast<uint32_t>(pair[1]) << 16;
    }
}

static inline void kern_ldmatrix(uint32_t (&r)[4], const void *row)
{
    card_ldmatrix(r, row, false);
}

static inline void kern_ldmatrix_turned(uint32_t (&r)[4], const void *row)
{
    card_ldmatrix(r, row, true);
}

static inline void kern_copy16(void *shared, const void *from, bool inside)
{
    card_copy16(shared, inside ? from : nullptr);
}

static inline void kern_copy_batch()
{
    card_copy_batch();
}

template <int N> void kern_copy_wait()
{
    card_copy_wait(N);
}

static inline float kern_exp2(float x)
{
    return exp2f(x);
}

#endif
