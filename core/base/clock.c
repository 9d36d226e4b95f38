/* clock.c: CLOCK_MONOTONIC as one number, and a heartbeat in one atomic word: the last reading in
 * the upper bits, the counted time below, in ticks of about 1 ms. */
#include "core/base/clock.h"

#include <time.h>

enum { TICK_BITS = 20, RAN_BITS = 40, READ_BITS = 64 - RAN_BITS };
static const uint64_t ran_mask = ((uint64_t)1 << RAN_BITS) - 1;
static const uint64_t read_mask = ((uint64_t)1 << READ_BITS) - 1;
/* A thread may be preempted between reading and recording. A reading that seems to be older than
 * the last one by up to this is late; a larger difference is time that has passed. */
static const uint64_t late_ticks = 8192;

int64_t core_clock_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t core_heartbeat_ran_ns(struct core_heartbeat *heartbeat, int64_t now_ns)
{
    const uint64_t now = (uint64_t)now_ns >> TICK_BITS;
    const uint64_t most = CORE_CLOCK_GAP_NS >> TICK_BITS;
    const int64_t rest_ns = now_ns & (((int64_t)1 << TICK_BITS) - 1);
    uint64_t state = atomic_load_explicit(&heartbeat->state, memory_order_relaxed);
    for (;;) {
        const uint64_t ran = state & ran_mask;
        const uint64_t gap = (now - (state >> RAN_BITS)) & read_mask;
        if (gap > read_mask - late_ticks) { /* another thread recorded a later time */
            return (int64_t)(ran << TICK_BITS);
        }
        const uint64_t sum = (ran + (gap < most ? gap : most)) & ran_mask;
        const uint64_t next = (now & read_mask) << RAN_BITS | sum;
        if (next == state ||
            atomic_compare_exchange_weak_explicit(&heartbeat->state, &state, next,
                                                  memory_order_relaxed, memory_order_relaxed)) {
            return (int64_t)(sum << TICK_BITS) + rest_ns;
        }
    }
}

int64_t core_clock_ran_ns(void)
{
    static struct core_heartbeat process;
    return core_heartbeat_ran_ns(&process, core_clock_now_ns());
}

int64_t core_clock_beat_ns(int64_t left_ns)
{
    return left_ns < CORE_CLOCK_BEAT_NS ? left_ns : CORE_CLOCK_BEAT_NS;
}
