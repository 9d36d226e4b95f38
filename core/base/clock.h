/* clock.h: monotonic time in nanoseconds, and the time for which this process has run, in which
 * waits for fences and for other ranks measure their timeouts. Any thread. */
#ifndef CORE_BASE_CLOCK_H
#define CORE_BASE_CLOCK_H

#include <stdatomic.h>
#include <stdint.h>

/* Returns the time of CLOCK_MONOTONIC. */
int64_t core_clock_now_ns(void);

/* A thread that waits with a limit reads core_clock_ran_ns() at least every CORE_CLOCK_BEAT_NS.
 * Between two successive readings, whichever threads make them, at most CORE_CLOCK_GAP_NS count: a
 * longer gap means that the process was stopped (SIGSTOP, a frozen container), which is not a delay
 * of the awaited work. */
enum { CORE_CLOCK_BEAT_NS = 100000000, CORE_CLOCK_GAP_NS = 250000000 };

struct core_heartbeat {
    _Atomic uint64_t state; /* the last reading and the time counted until then; initially 0 */
};

/* Records a reading at `now_ns`, the time of core_clock_now_ns(), and returns the time that the
 * heartbeat has counted, from an unspecified start. */
int64_t core_heartbeat_ran_ns(struct core_heartbeat *heartbeat, int64_t now_ns);

/* Records a reading in the process's own heartbeat and returns the time that it has counted. */
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
