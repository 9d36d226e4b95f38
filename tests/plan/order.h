/* order.h: finds the commands of tapes that may run next, for tests that run tapes in many
 * orders. */
#ifndef TESTS_PLAN_ORDER_H
#define TESTS_PLAN_ORDER_H

#include <stdbool.h>

#include "offload/plan/tape.h"

enum { ORDER_TAPES_MAX = 8 };

struct order {
    const struct plan_tape *tapes[ORDER_TAPES_MAX];
    uint32_t tape_count;
    uint32_t tape[PLAN_Q_COUNT]; /* the tape of each queue's next command */
    uint32_t index[PLAN_Q_COUNT];
    uint32_t reached[ORDER_TAPES_MAX][PLAN_Q_COUNT];
    uint32_t left[ORDER_TAPES_MAX];
    bool guesses[ORDER_TAPES_MAX]; /* set by the caller: the next tape waits for this tape's norm,
                                    * the last command of its update queue */
};

/* Starts from the beginning; the caller sets `tapes`, `tape_count` and `guesses`. */
void order_begin(struct order *order);

/* Returns whether the queue has a next command that may start. */
bool order_ready(struct order *order, int queue);

/* Returns the queue's next command, which must be ready. */
const struct plan_command *order_at(const struct order *order, int queue);

void order_done(struct order *order, int queue);

/* Returns a random ready queue, or -1. Some queues are favoured for a while, so that they run far
 * ahead; `turn` grows from call to call. */
int order_draw(struct order *order, uint64_t seed, uint32_t turn);

#endif
