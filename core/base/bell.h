/* bell.h: an event count: a thread checks its condition and sleeps until another thread rings the
 * bell. A ring costs one atomic add if no thread sleeps, else also a futex call. Any thread. */
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

/* Returns a number that changes with each ring. A thread reads the number, checks its condition,
 * and passes the number to core_bell_sleep(). */
uint32_t core_bell_look(struct core_bell *bell);

/* Sleeps until the bell has rung since core_bell_look() returned `seen`; may return early.
 * timeout_ns < 0 waits for ever. Returns 0 or -ETIMEDOUT. */
int core_bell_sleep(struct core_bell *bell, uint32_t seen, int64_t timeout_ns);

/* Like core_bell_sleep(), but first polls the bell for up to `spin_ns`, if threads may spin. For
 * waits shorter than a futex round trip. */
int core_bell_spin_sleep(struct core_bell *bell, uint32_t seen, int64_t spin_ns,
                         int64_t timeout_ns);

/* TIDE_WAIT_POLICY=active or passive decides; otherwise threads may spin if the process may run on
 * several processors. */
bool core_bell_may_spin(void);

#endif
