/* clock.h: time that never jumps, in nanoseconds. */
#ifndef CORE_BASE_CLOCK_H
#define CORE_BASE_CLOCK_H

#include <stdint.h>

/* CLOCK_MONOTONIC. */
int64_t core_clock_now_ns(void);

/* Tells the core that this thread spins. */
static inline void core_clock_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
