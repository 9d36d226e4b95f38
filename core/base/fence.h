/* fence.h: fences, the points on a queue's counter that threads wait for. A line counts a queue's
 * commands: `issued`, and `reached` (done). Commands complete in order. A fence (line, value) is
 * reached when line->reached >= value. After a failure, fences beyond `reached` report the
 * failure's code and message. The queue advances the line; any thread may fail the line, and poll
 * fences or wait for them. */
#ifndef CORE_BASE_FENCE_H
#define CORE_BASE_FENCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/bell.h"

enum { CORE_LINE_NAME_BYTES = 32, CORE_LINE_MESSAGE_BYTES = 512 };

struct core_line {
    _Atomic uint64_t issued;  /* stored with release */
    _Atomic uint64_t reached; /* sequentially consistent; at most `issued` */
    _Atomic int error;        /* 0 or -errno; released after the message */
    /* set by the first thread that fails the line, which then writes code and message */
    _Atomic bool failing;
    /* The lowest value that a thread has asked for since the last ring; lower values do not ring
     * `own`. Sequentially consistent, like `reached`: either the queue sees this value, or the
     * thread sees the new `reached`. */
    _Atomic uint64_t wanted;
    struct core_bell own;   /* used if no shared bell was given */
    struct core_bell *bell; /* borrowed, or &own */
    char name[CORE_LINE_NAME_BYTES];
    char message[CORE_LINE_MESSAGE_BYTES]; /* valid once `error` is set */
};

struct core_fence {
    struct core_line *line; /* borrowed; NULL: always reached */
    uint64_t value;
};

/* `bell` NULL: the line's own bell. With a shared bell, a thread can wait for several lines. */
void core_line_init(struct core_line *line, const char *name, struct core_bell *bell);

/* Called by the queue. Values do not decrease. Reaching a value also issues it. */
void core_line_issue(struct core_line *line, uint64_t value);
void core_line_reach(struct core_line *line, uint64_t value);
/* Like core_line_reach(), without ringing the bell. The queue must call core_line_reach() or
 * core_line_fail() later. */
void core_line_reach_silently(struct core_line *line, uint64_t value);
void core_line_fail(struct core_line *line, int code, const char *message);

/* Returns 1 if the fence is reached, 0 if not yet, or the line's error, whose message becomes this
 * thread's. */
int core_fence_poll(struct core_fence fence);

/* Waits until the fence is reached. Returns 0, -ETIMEDOUT or the line's error, with a message.
 * timeout_ns < 0 waits for ever. Only time in which this process ran counts (clock.h). */
int core_fence_wait(struct core_fence fence, int64_t timeout_ns);
/* Like core_fence_wait() without a limit and without spinning, for long waits. */
int core_fence_sleep(struct core_fence fence);
/* Like core_fence_wait(), but times out only if the line has not advanced for `still_ns`. */
int core_fence_wait_moving(struct core_fence fence, int64_t still_ns);

enum { CORE_FENCE_SPIN_NS = 20000 };

#endif
