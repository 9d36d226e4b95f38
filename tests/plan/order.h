/* order.h: finds the commands of a sequence of tapes that the edges allow to run next, for tests
 * that run tapes in many orders. */
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
                                     which is the last command of its update queue */
};

/* Starts from the beginning; the caller has set `tapes`, `tape_count` and `guesses`. */
void order_begin(struct order *order);

/* Returns whether the queue's next command may start; false, too, if the queue has none left. */
bool order_ready(struct order *order, int queue);

/* Returns the queue's next command, for which order_ready was true. */
const struct plan_command *order_at(const struct order *order, int queue);

/* Records that the queue's next command is done. */
void order_done(struct order *order, int queue);

/* Picks a ready queue at random from the seed; returns -1 if no queue is ready. Some queues are
 * favoured for a while, so that they run far ahead of others; `turn` grows from call to call. */
int order_draw(struct order *order, uint64_t seed, uint32_t turn);

#endif
