/* bell.h: an event count: a thread checks its condition and sleeps until another thread rings the
 * bell. A ring makes a system call only while a thread is in core_bell_sleep(). Any thread. */
#ifndef CORE_BASE_BELL_H
#define CORE_BASE_BELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct core_bell {
    _Atomic uint32_t epoch;    /* futex word; bumped by each ring */
    _Atomic uint32_t sleepers; /* threads in core_bell_sleep() */
};

void core_bell_init(struct core_bell *bell);

void core_bell_ring(struct core_bell *bell);

/* Returns a number that changes with each ring. A thread reads the number, checks its condition,
 * and passes the number to core_bell_sleep(). */
uint32_t core_bell_look(struct core_bell *bell);

/* Sleeps until the bell has rung since core_bell_look() returned `seen`; may return early.
 * timeout_ns < 0 waits for ever. Returns 0 or -ETIMEDOUT. */
int core_bell_sleep(struct core_bell *bell, uint32_t seen, int64_t timeout_ns);

/* Like core_bell_sleep(), but first polls the bell for about `spin_ns` if core_bell_may_spin(),
 * which saves a system call in short waits. */
int core_bell_spin_sleep(struct core_bell *bell, uint32_t seen, int64_t spin_ns,
                         int64_t timeout_ns);

/* Returns whether waiting threads may spin. TIDE_WAIT_POLICY=active or passive decides; otherwise
 * they may, unless the process may use only one processor. The first answer is kept. */
bool core_bell_may_spin(void);

#endif
