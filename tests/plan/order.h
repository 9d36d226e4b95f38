/* order.h: which commands of a row of tapes the edges allow next, for tests that run tapes in many
 * orders. */
#ifndef TESTS_PLAN_ORDER_H
#define TESTS_PLAN_ORDER_H

#include <stdbool.h>

#include "offload/plan/tape.h"

enum { ORDER_TAPES_MAX = 8 };

struct order {
    const struct plan_tape *tapes[ORDER_TAPES_MAX];
    uint32_t tape_count;
    uint32_t tape[PLAN_Q_COUNT]; /* where each queue stands */
    uint32_t index[PLAN_Q_COUNT];
    uint32_t reached[ORDER_TAPES_MAX][PLAN_Q_COUNT];
    uint32_t left[ORDER_TAPES_MAX];
    bool
        guesses[ORDER_TAPES_MAX]; /* the caller's: the next tape waits for this one's norm, the last
                                      command of its update queue */
};

/* `tapes` and `tape_count` are the caller's; starts from the beginning. */
void order_begin(struct order *order);

/* May the queue's next command start? False too where it has none left. */
bool order_ready(struct order *order, int queue);

/* The queue's next command, which is ready. */
const struct plan_command *order_at(const struct order *order, int queue);

/* The queue has done it. */
void order_done(struct order *order, int queue);

/* Draws a ready queue from the seed, or -1. Queues are favoured by turns, so that some run far ahead
 * and others lag; `turn` counts the commands done. */
int order_draw(struct order *order, uint64_t seed, uint32_t turn);

#endif
