/* vec.h: includes the vector functions of the variant whose macro is defined before body.h; else
 * plain C. Private to the bodies. */
#ifndef CPU_ADAM_VEC_H
#define CPU_ADAM_VEC_H

#if defined(ADAM_VEC_AVX512)
#include "cpu_adam/vec_avx512.h"
#elif defined(ADAM_VEC_AVX2)
#include "cpu_adam/vec_avx2.h"
#elif defined(ADAM_VEC_NEON)
#include "cpu_adam/vec_neon.h"
#else
#include "cpu_adam/vec_scalar.h"
#endif

#endif
