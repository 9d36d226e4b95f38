/* fence.h: fences, the points on a queue's counter that threads wait for. A queue owns a line and
 * counts its work on it: `issued` counts commands that were handed to their executor, `reached`
 * those that are done. A fence is a copy of (line, value) and is reached when line->reached >=
 * value. Commands of a line complete in order. A line that failed stays failed: every fence beyond
 * its last reached value reports the code and the message. Only the queue that owns a line advances
 * it; any thread may fail the line, poll it or wait for it. */
#ifndef CORE_BASE_FENCE_H
#define CORE_BASE_FENCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/bell.h"

enum { CORE_LINE_NAME_BYTES = 32, CORE_LINE_MESSAGE_BYTES = 512 };

struct core_line {
    _Atomic uint64_t issued;  /* written by the queue with release */
    _Atomic uint64_t reached; /* written by the queue, sequentially consistent; never above
                               * issued */
    _Atomic int error;        /* 0, or the -errno of the failure; released after the message */
    /* set by the first thread that fails the line; only that thread writes the code and the
     * message */
    _Atomic bool failing;
    /* The lowest value that a thread waits for. Reaching a lower value does not ring `own` and so
     * wakes no thread. Accesses are sequentially consistent, as are those to `reached` beside them:
     * either the queue sees the wanted value, or the thread sees that it is reached. */
    _Atomic uint64_t wanted;
    struct core_bell own;   /* used if no shared bell was given */
    struct core_bell *bell; /* borrowed from the caller of init, or &own */
    char name[CORE_LINE_NAME_BYTES];
    char message[CORE_LINE_MESSAGE_BYTES]; /* valid once `error` is set */
};

struct core_fence {
    struct core_line *line; /* borrowed from its queue; NULL: a fence that is always reached */
    uint64_t value;
};

/* With `bell` NULL the line uses its own bell; a shared bell lets a thread wait for any of several
 * lines. */
void core_line_init(struct core_line *line, const char *name, struct core_bell *bell);

/* Called by the queue. Values only grow. Reaching a value also issues it. */
void core_line_issue(struct core_line *line, uint64_t value);
void core_line_reach(struct core_line *line, uint64_t value);
/* Like core_line_reach(), but does not ring the bell: threads see the value only at a later ring.
 * The queue must be certain that it will call core_line_reach() or core_line_fail() later. */
void core_line_reach_silently(struct core_line *line, uint64_t value);
/* The first failure wins; later ones are dropped. */
void core_line_fail(struct core_line *line, int code, const char *message);

/* Called by threads that wait. Returns 1 if the fence is reached, 0 if not yet, or -errno if the
 * line failed; the line's message becomes this thread's. */
int core_fence_poll(struct core_fence fence);

/* Waits until the fence is reached. Returns 0; -ETIMEDOUT with a message that names the line, the
 * awaited value and the current one; or the line's own error. timeout_ns < 0 waits for ever. Only
 * time in which this process ran counts (clock.h). Spins for up to CORE_FENCE_SPIN_NS before it
 * sleeps. */
int core_fence_wait(struct core_fence fence, int64_t timeout_ns);
/* Does what core_fence_wait() does without a limit, and sleeps at once. For waits of unknown
 * length, in which spinning would only take a processor from others. */
int core_fence_sleep(struct core_fence fence);
/* Does what core_fence_wait() does, for work of unknown duration: waits in periods of `still_ns`,
 * and times out only after a period in which the line did not advance. */
int core_fence_wait_moving(struct core_fence fence, int64_t still_ns);

enum { CORE_FENCE_SPIN_NS = 20000 };

#endif
