/* inline.h: marks short functions that belong to the caller's loop. */
#ifndef KERNELS_CPU_ISA_INLINE_H
#define KERNELS_CPU_ISA_INLINE_H

#define VF_INLINE static inline __attribute__((always_inline))

#endif
