/* order.c: checks edges against the progress of the queues. */
#include "tests/plan/order.h"

#include <string.h>

#include "core/base/rng.h"

void order_begin(struct order *order)
{
    memset(order->tape, 0, sizeof order->tape);
    memset(order->index, 0, sizeof order->index);
    memset(order->reached, 0, sizeof order->reached);
    for (uint32_t t = 0; t < order->tape_count; t++) {
        order->left[t] = order->tapes[t]->count;
    }
}

static bool edge_holds(const struct order *order, uint32_t t, struct plan_edge edge)
{
    if (edge.queue == PLAN_Q_COUNT) {
        return true;
    }
    if (edge.count > 0) {
        return order->reached[t][edge.queue] >= (uint32_t)edge.count;
    }
    return t == 0 || (int64_t)order->reached[t - 1][edge.queue] >=
                         (int64_t)order->tapes[t - 1]->queue_count[edge.queue] + edge.count;
}

bool order_ready(struct order *order, int queue)
{
    while (order->tape[queue] < order->tape_count) {
        const struct plan_tape *tape = order->tapes[order->tape[queue]];
        while (order->index[queue] < tape->count &&
               tape->commands[order->index[queue]].queue != queue) {
            order->index[queue]++;
        }
        if (order->index[queue] < tape->count) {
            break;
        }
        order->tape[queue]++;
        order->index[queue] = 0;
    }
    uint32_t t = order->tape[queue];
    for (uint32_t before = 0; before + 1 < t; before++) {
        if (order->left[before] > 0) {
            return false; /* at most two tapes are in progress */
        }
    }
    if (t >= order->tape_count) {
        return false;
    }
    if (t >= 1 && order->guesses[t - 1] &&
        order->reached[t - 1][PLAN_Q_UPDATE] < order->tapes[t - 1]->queue_count[PLAN_Q_UPDATE]) {
        return false;
    }
    const struct plan_command *command = order_at(order, queue);
    for (int e = 0; e < PLAN_EDGE_MAX; e++) {
        if (!edge_holds(order, t, command->edges[e])) {
            return false;
        }
    }
    return true;
}

const struct plan_command *order_at(const struct order *order, int queue)
{
    return &order->tapes[order->tape[queue]]->commands[order->index[queue]];
}

void order_done(struct order *order, int queue)
{
    uint32_t t = order->tape[queue];
    order->reached[t][queue]++;
    order->left[t]--;
    order->index[queue]++;
}

int order_draw(struct order *order, uint64_t seed, uint32_t turn)
{
    struct core_rng_words favoured = core_rng_philox(seed, turn / 16, 0);
    struct core_rng_words words = core_rng_philox(seed, turn, 1);
    uint32_t best = 0;
    int drawn = -1;
    for (int q = 0; q < PLAN_Q_COUNT; q++) {
        if (order_ready(order, q)) {
            uint32_t weight = (favoured.word[0] >> q & 1) * 1000 + words.word[q % 4] % 997 + 1;
            drawn = weight > best ? q : drawn;
            best = weight > best ? weight : best;
        }
    }
    return drawn;
}
