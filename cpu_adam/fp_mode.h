/* fp_mode.h: IEEE arithmetic in any mode of the application: round to nearest, denormals kept, no
 * traps. x86-64 and AArch64 only. Modes belong to a thread: call begin and end on the same one. */
#ifndef CPU_ADAM_FP_MODE_H
#define CPU_ADAM_FP_MODE_H

#include <stdint.h>

/* Sets these modes and returns the previous ones, for adam_fp_end(). Put arithmetic between the
 * calls into functions that are not inlined: compilers do not know that it depends on the modes. */
static inline uint64_t adam_fp_begin(void)
{
#if defined(__x86_64__)
    uint32_t before = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(0x1f80);
    __asm__ volatile("" : : : "memory");
    return before;
#elif defined(__aarch64__)
    uint64_t before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    __asm__ volatile("msr fpcr, %0" : : "r"(UINT64_C(0)) : "memory");
    return before;
#else
    return 0;
#endif
}

static inline void adam_fp_end(uint64_t before)
{
#if defined(__x86_64__)
    __asm__ volatile("" : : : "memory");
    __builtin_ia32_ldmxcsr((uint32_t)before);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"(before) : "memory");
#else
    (void)before;
#endif
}

#endif
