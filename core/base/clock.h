/* clock.h: monotonic time in nanoseconds, and the time during which this process ran, with which
 * limits are measured. Any thread. */
#ifndef CORE_BASE_CLOCK_H
#define CORE_BASE_CLOCK_H

#include <stdatomic.h>
#include <stdint.h>

/* Returns the time of CLOCK_MONOTONIC. */
int64_t core_clock_now_ns(void);

/* A thread that waits with a limit reads core_clock_ran_ns() at least every CORE_CLOCK_BEAT_NS. At
 * most CORE_CLOCK_GAP_NS are counted between two readings, of any threads: a longer gap means that
 * the process was stopped (SIGSTOP, a frozen container), which is not a delay of the awaited
 * work. */
enum { CORE_CLOCK_BEAT_NS = 100000000, CORE_CLOCK_GAP_NS = 250000000 };

struct core_heartbeat {
    _Atomic uint64_t state; /* the last reading and the time counted until then; begins as 0 */
};

/* Returns the time counted by this heartbeat, from an unspecified start; `now_ns` is
 * core_clock_now_ns(). */
int64_t core_heartbeat_ran_ns(struct core_heartbeat *heartbeat, int64_t now_ns);

/* Returns the time counted by the process's only heartbeat, read now. All limits are compared with
 * this time. */
int64_t core_clock_ran_ns(void);

/* Returns how long a thread with `left_ns` until its limit may sleep before its next reading. */
int64_t core_clock_beat_ns(int64_t left_ns);

/* Tells the processor core that this thread spins. */
static inline void core_clock_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
