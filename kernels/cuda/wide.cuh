/* wide.cuh: loads and stores groups of eight elements: in accesses of 16 bytes if the group is
 * whole and everything is aligned (`wide`), else one by one. Elements beyond `left` read as 0 and
 * are not written. */
#ifndef KERNELS_CUDA_WIDE_CUH
#define KERNELS_CUDA_WIDE_CUH

#include <stdint.h>

#include <cuda_runtime_api.h>

#include "kernels/cuda/half.cuh"
#include "kernels/kern.h"

constexpr int KERN_GROUP = 8;

template <typename T> union kern_words {
    uint4 words[KERN_GROUP * sizeof(typename T::store) / sizeof(uint4)];
    typename T::store elements[KERN_GROUP];
};

/* Loads a group without widening, which takes fewer registers until its use. */
template <typename T>
__device__ inline void kern_words_load(kern_words<T> &group, const void *base, int64_t index,
                                       int64_t left, bool wide)
{
    const typename T::store *from = static_cast<const typename T::store *>(base) + index;
    if (wide && left >= KERN_GROUP) {
#pragma unroll
        for (unsigned i = 0; i < sizeof group / sizeof(uint4); i++) {
            group.words[i] = reinterpret_cast<const uint4 *>(from)[i];
        }
    } else {
#pragma unroll
        for (int i = 0; i < KERN_GROUP; i++) {
            group.elements[i] = i < left ? from[i] : typename T::store(0);
        }
    }
}

/* As kern_words_load(), in fewer registers if WHOLE: everything is aligned and groups are whole. */
template <typename T, bool WHOLE>
__device__ inline void kern_words_fetch(kern_words<T> &group, const void *base, int64_t index,
                                        int64_t left, bool wide)
{
    if (!WHOLE) {
        kern_words_load<T>(group, base, index, left, wide);
    } else if (left > 0) {
        kern_words_load<T>(group, base, index, KERN_GROUP, true);
    } else {
        group = {};
    }
}

template <typename T>
__device__ inline void kern_words_widen(float (&to)[KERN_GROUP], const kern_words<T> &group)
{
#pragma unroll
    for (int i = 0; i < KERN_GROUP; i++) {
        to[i] = T::widen(group.elements[i]);
    }
}

template <typename T>
__device__ inline void kern_load(float (&to)[KERN_GROUP], const void *base, int64_t index,
                                 int64_t left, bool wide)
{
    kern_words<T> group;
    kern_words_load<T>(group, base, index, left, wide);
    kern_words_widen<T>(to, group);
}

template <typename T>
__device__ inline void kern_words_narrow(kern_words<T> &group, const float (&from)[KERN_GROUP])
{
#pragma unroll
    for (int i = 0; i < KERN_GROUP; i++) {
        group.elements[i] = T::narrow(from[i]);
    }
}

/* Narrows two numbers per instruction, which turns a NaN into 0x7fff: a group with a NaN is
 * narrowed again. */
template <>
__device__ inline void kern_words_narrow(kern_words<kern_bf16> &group,
                                         const float (&from)[KERN_GROUP])
{
    uint32_t pairs[KERN_GROUP / 2];
    uint32_t nan = 0;
#pragma unroll
    for (int i = 0; i < KERN_GROUP / 2; i++) {
        pairs[i] = kern_bf16_pair(from[2 * i], from[2 * i + 1]);
        nan |= (pairs[i] + 0x00010001u) & ~pairs[i];
    }
    group.words[0] = {pairs[0], pairs[1], pairs[2], pairs[3]};
    if ((nan & 0x80008000u) != 0) {
#pragma unroll
        for (int i = 0; i < KERN_GROUP; i++) {
            group.elements[i] = kern_bf16::narrow(from[i]);
        }
    }
}

template <typename T>
__device__ inline void kern_words_store(const kern_words<T> &group, void *base, int64_t index,
                                        int64_t left, bool wide)
{
    typename T::store *to = static_cast<typename T::store *>(base) + index;
    if (wide && left >= KERN_GROUP) {
#pragma unroll
        for (unsigned i = 0; i < sizeof group / sizeof(uint4); i++) {
            reinterpret_cast<uint4 *>(to)[i] = group.words[i];
        }
    } else {
#pragma unroll
        for (int i = 0; i < KERN_GROUP; i++) {
            if (i < left) {
                to[i] = group.elements[i];
            }
        }
    }
}

template <typename T>
__device__ inline void kern_store(const float (&from)[KERN_GROUP], void *base, int64_t index,
                                  int64_t left, bool wide)
{
    kern_words<T> group;
    kern_words_narrow<T>(group, from);
    kern_words_store<T>(group, base, index, left, wide);
}

/* As kern_load(), for a type known at run time. */
__device__ inline void kern_load_any(enum kern_type type, float (&to)[KERN_GROUP], const void *base,
                                     int64_t index, int64_t left, bool wide)
{
    if (type == KERN_BF16) {
        kern_load<kern_bf16>(to, base, index, left, wide);
    } else if (type == KERN_FP16) {
        kern_load<kern_fp16>(to, base, index, left, wide);
    } else {
        kern_load<kern_f32>(to, base, index, left, wide);
    }
}

__device__ inline void kern_store_any(enum kern_type type, const float (&from)[KERN_GROUP],
                                      void *base, int64_t index, int64_t left, bool wide)
{
    if (type == KERN_BF16) {
        kern_store<kern_bf16>(from, base, index, left, wide);
    } else if (type == KERN_FP16) {
        kern_store<kern_fp16>(from, base, index, left, wide);
    } else {
        kern_store<kern_f32>(from, base, index, left, wide);
    }
}

/* Host: returns whether an array (or NULL) and its rows begin at multiples of 16 bytes. */
static inline bool kern_is_wide(enum kern_type type, const void *base, int64_t stride)
{
    const uint64_t bytes = type == KERN_F32 ? 4 : 2;
    return base == nullptr || ((reinterpret_cast<uintptr_t>(base) | (uint64_t)stride * bytes) &
                               (sizeof(uint4) - 1)) == 0;
}

#endif
