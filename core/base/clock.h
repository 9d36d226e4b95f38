/* clock.h: monotonic time in nanoseconds, and for timeouts a clock that stands still while the
 * process is stopped. Any thread. */
#ifndef CORE_BASE_CLOCK_H
#define CORE_BASE_CLOCK_H

#include <stdatomic.h>
#include <stdint.h>

/* Returns the time of CLOCK_MONOTONIC. */
int64_t core_clock_now_ns(void);

/* A thread that waits with a timeout calls core_clock_ran_ns() at least every CORE_CLOCK_BEAT_NS.
 * Between two readings, at most CORE_CLOCK_GAP_NS count: for the rest of a longer gap, the process
 * was stopped (SIGSTOP, a frozen container) or no thread waited. */
enum { CORE_CLOCK_BEAT_NS = 100000000, CORE_CLOCK_GAP_NS = 250000000 };

struct core_heartbeat {
    _Atomic uint64_t state; /* last reading and counted time */
};

/* Records a reading of core_clock_now_ns(), and returns the counted time, from an unspecified
 * start. */
int64_t core_heartbeat_ran_ns(struct core_heartbeat *heartbeat, int64_t now_ns);

/* Like core_heartbeat_ran_ns(), for the process's own heartbeat. */
int64_t core_clock_ran_ns(void);

/* Returns how long a thread may sleep before its next reading: `left_ns`, or CORE_CLOCK_BEAT_NS if
 * that is shorter. */
int64_t core_clock_beat_ns(int64_t left_ns);

static inline void core_clock_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
