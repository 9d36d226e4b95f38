/* bell.c: an event count over one futex word. In the total order of its atomics, the ringer sees
 * the sleeper, or the sleeper sees the ring. */
#include "core/base/bell.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/log.h"

void core_bell_init(struct core_bell *bell)
{
    atomic_init(&bell->epoch, 0);
    atomic_init(&bell->sleepers, 0);
}

void core_bell_ring(struct core_bell *bell)
{
    atomic_fetch_add_explicit(&bell->epoch, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&bell->sleepers, memory_order_seq_cst) != 0) {
        syscall(SYS_futex, &bell->epoch, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
    }
}

uint32_t core_bell_look(struct core_bell *bell)
{
    return atomic_load_explicit(&bell->epoch, memory_order_seq_cst);
}

int core_bell_sleep(struct core_bell *bell, uint32_t seen, int64_t timeout_ns)
{
    struct timespec limit = {.tv_sec = timeout_ns / 1000000000, .tv_nsec = timeout_ns % 1000000000};
    atomic_fetch_add_explicit(&bell->sleepers, 1, memory_order_seq_cst);
    long rc = syscall(SYS_futex, &bell->epoch, FUTEX_WAIT_PRIVATE, seen,
                      timeout_ns < 0 ? NULL : &limit, NULL, 0);
    int cause = rc < 0 ? errno : 0;
    atomic_fetch_sub_explicit(&bell->sleepers, 1, memory_order_seq_cst);
    return cause == ETIMEDOUT ? -ETIMEDOUT : 0;
}

/* On one processor, spinning would delay the awaited thread. */
static bool has_one_cpu(void)
{
    cpu_set_t set;
    /* fails if the machine has more processors than the set can hold */
    return sched_getaffinity(getpid(), sizeof set, &set) == 0 && CPU_COUNT(&set) == 1;
}

bool core_bell_may_spin(void)
{
    enum policy { UNKNOWN, ACTIVE, PASSIVE };
    static _Atomic int policy = UNKNOWN;
    int found = atomic_load_explicit(&policy, memory_order_relaxed);
    if (found == UNKNOWN) {
        const char *text = getenv("TIDE_WAIT_POLICY");
        const bool passive = text != NULL && strcmp(text, "passive") == 0;
        const bool active = text != NULL && strcmp(text, "active") == 0;
        found = passive || (!active && has_one_cpu()) ? PASSIVE : ACTIVE;
        atomic_store_explicit(&policy, found, memory_order_relaxed);
        if (text != NULL && text[0] != '\0' && !passive && !active) {
            core_log(
                CORE_LOG_WARN,
                "TIDE_WAIT_POLICY is \"%s\", which is neither active nor passive, and is ignored",
                text);
        }
    }
    return found == ACTIVE;
}

int core_bell_spin_sleep(struct core_bell *bell, uint32_t seen, int64_t spin_ns, int64_t timeout_ns)
{
    const bool spins = spin_ns > 0 && core_bell_may_spin();
    const int64_t start_ns = spins ? core_clock_now_ns() : 0;
    while (spins) {
        for (int i = 0; i < 16; i++) {
            if (core_bell_look(bell) != seen) {
                return 0;
            }
            core_clock_relax();
        }
        if (core_clock_now_ns() - start_ns >= spin_ns) {
            break;
        }
    }
    return core_bell_sleep(bell, seen, timeout_ns);
}
