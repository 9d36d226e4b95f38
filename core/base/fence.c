/* fence.c: lines and fences over atomics and a bell. A waiting thread notes its value in the line,
 * so that lower values do not ring the line's own bell. */
#include "core/base/fence.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "core/base/clock.h"
#include "core/base/err.h"

void core_line_init(struct core_line *line, const char *name, struct core_bell *bell)
{
    atomic_init(&line->issued, 0);
    atomic_init(&line->reached, 0);
    atomic_init(&line->error, 0);
    atomic_init(&line->failing, false);
    atomic_init(&line->wanted, UINT64_MAX);
    core_bell_init(&line->own);
    line->bell = bell != NULL ? bell : &line->own;
    snprintf(line->name, sizeof line->name, "%s", name);
    line->message[0] = '\0';
}

void core_line_issue(struct core_line *line, uint64_t value)
{
    assert(value >= atomic_load_explicit(&line->issued, memory_order_relaxed));
    atomic_store_explicit(&line->issued, value, memory_order_release);
}

static void want(struct core_line *line, uint64_t value)
{
    uint64_t wanted = atomic_load_explicit(&line->wanted, memory_order_seq_cst);
    while (value < wanted &&
           !atomic_compare_exchange_weak_explicit(&line->wanted, &wanted, value,
                                                  memory_order_seq_cst, memory_order_seq_cst)) {
    }
}

/* Resets `wanted` if `value` reaches it: the ring wakes all waiting threads, and those that wait
 * for more call want() again. */
static bool is_wanted(struct core_line *line, uint64_t value)
{
    uint64_t wanted = atomic_load_explicit(&line->wanted, memory_order_seq_cst);
    while (wanted <= value) {
        if (atomic_compare_exchange_weak_explicit(&line->wanted, &wanted, UINT64_MAX,
                                                  memory_order_seq_cst, memory_order_seq_cst)) {
            return true;
        }
    }
    return false;
}

void core_line_reach_silently(struct core_line *line, uint64_t value)
{
    assert(value >= atomic_load_explicit(&line->reached, memory_order_relaxed));
    if (atomic_load_explicit(&line->issued, memory_order_relaxed) < value) {
        atomic_store_explicit(&line->issued, value, memory_order_release);
    }
    atomic_store_explicit(&line->reached, value, memory_order_seq_cst);
}

void core_line_reach(struct core_line *line, uint64_t value)
{
    core_line_reach_silently(line, value);
    if (line->bell != &line->own || is_wanted(line, value)) {
        core_bell_ring(line->bell);
    }
}

void core_line_fail(struct core_line *line, int code, const char *message)
{
    assert(code < 0);
    if (atomic_exchange_explicit(&line->failing, true, memory_order_relaxed)) {
        return;
    }
    snprintf(line->message, sizeof line->message, "%s", message);
    atomic_store_explicit(&line->error, code, memory_order_release);
    core_bell_ring(line->bell);
}

int core_fence_poll(struct core_fence fence)
{
    if (fence.line == NULL ||
        atomic_load_explicit(&fence.line->reached, memory_order_seq_cst) >= fence.value) {
        return 1;
    }
    int error = atomic_load_explicit(&fence.line->error, memory_order_acquire);
    if (error == 0) {
        return 0;
    }
    /* The value may have been reached before the failure, but after the first check. */
    if (atomic_load_explicit(&fence.line->reached, memory_order_acquire) >= fence.value) {
        return 1;
    }
    return core_err_adopt(error, fence.line->message);
}

static int timed_out(struct core_fence fence, int64_t timeout_ns)
{
    const struct core_line *line = fence.line;
    return core_err_set(-ETIMEDOUT,
                        "%s did not reach %" PRIu64 " within %.3f s (issued %" PRIu64
                        ", reached %" PRIu64 ")",
                        line->name, fence.value, (double)timeout_ns / 1e9,
                        atomic_load_explicit(&line->issued, memory_order_relaxed),
                        atomic_load_explicit(&line->reached, memory_order_relaxed));
}

static int wait(struct core_fence fence, int64_t timeout_ns, int64_t spin_ns)
{
    if (fence.line == NULL) {
        return 0;
    }
    int64_t deadline_ns = 0;
    if (timeout_ns >= 0 && __builtin_add_overflow(core_clock_ran_ns(), timeout_ns, &deadline_ns)) {
        deadline_ns = INT64_MAX;
    }
    for (;;) {
        uint32_t seen = core_bell_look(fence.line->bell);
        int state = core_fence_poll(fence);
        if (state == 0) {
            want(fence.line, fence.value);
            state = core_fence_poll(fence);
        }
        if (state != 0) {
            return state > 0 ? 0 : state;
        }
        int64_t left_ns = -1;
        if (timeout_ns >= 0) {
            left_ns = core_clock_beat_ns(deadline_ns - core_clock_ran_ns());
            if (left_ns <= 0) {
                return timed_out(fence, timeout_ns);
            }
        }
        core_bell_spin_sleep(fence.line->bell, seen, spin_ns, left_ns);
        spin_ns = 0;
    }
}

int core_fence_wait(struct core_fence fence, int64_t timeout_ns)
{
    return wait(fence, timeout_ns, CORE_FENCE_SPIN_NS);
}

int core_fence_sleep(struct core_fence fence)
{
    return wait(fence, -1, 0);
}

int core_fence_wait_moving(struct core_fence fence, int64_t still_ns)
{
    if (fence.line == NULL) {
        return 0;
    }
    for (;;) {
        const uint64_t before = atomic_load_explicit(&fence.line->reached, memory_order_relaxed);
        int rc = core_fence_wait(fence, still_ns);
        const uint64_t now = atomic_load_explicit(&fence.line->reached, memory_order_acquire);
        if (now >= fence.value) {
            return 0;
        }
        if (rc != -ETIMEDOUT || now == before || core_fence_poll(fence) != 0) {
            return rc;
        }
    }
}
