/* bell.h: an event count, on which a thread sleeps until something may have changed. A thread that
 * changes something rings the bell. A thread that waits looks at the bell, checks its condition,
 * and sleeps only if the bell has not rung since that look. Ringing costs one atomic add if no
 * thread sleeps, else also a futex call. Any thread. */
#ifndef CORE_BASE_BELL_H
#define CORE_BASE_BELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct core_bell {
    _Atomic uint32_t epoch;    /* futex word; bumped by each ring */
    _Atomic uint32_t sleepers; /* threads in, or about to enter, the futex wait */
};

void core_bell_init(struct core_bell *bell);

void core_bell_ring(struct core_bell *bell);

/* Returns a number that changes with each ring. To wait: seen = core_bell_look(bell); check the
 * condition; if it does not hold, core_bell_sleep(bell, seen, timeout_ns). */
uint32_t core_bell_look(struct core_bell *bell);

/* Sleeps until the bell has rung since core_bell_look() returned `seen`. timeout_ns < 0 waits for
 * ever. Returns 0 or -ETIMEDOUT. May return early; the caller checks its condition again. */
int core_bell_sleep(struct core_bell *bell, uint32_t seen, int64_t timeout_ns);

/* Does what core_bell_sleep() does, but first polls the bell for up to `spin_ns`, for waits that
 * are expected to be shorter than a futex round trip. Sleeps at once if threads may not spin. */
int core_bell_spin_sleep(struct core_bell *bell, uint32_t seen, int64_t spin_ns,
                         int64_t timeout_ns);

/* Returns whether threads may spin: yes with TIDE_WAIT_POLICY=active in the environment, no with
 * TIDE_WAIT_POLICY=passive, and otherwise only if this process may run on several processors. */
bool core_bell_may_spin(void);

#endif
