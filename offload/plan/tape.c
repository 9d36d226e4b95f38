/* tape.c: names, edges and traffic of a tape. */
#include "offload/plan/tape.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

const char *plan_op_name(enum plan_op op)
{
    static const char *const names[PLAN_OP_COUNT] = {
        [PLAN_READ] = "READ", [PLAN_WRITE] = "WRITE",   [PLAN_H2D] = "H2D",
        [PLAN_D2H] = "D2H",   [PLAN_GATHER] = "GATHER", [PLAN_REDUCE] = "REDUCE",
        [PLAN_FWD] = "FWD",   [PLAN_BWD] = "BWD",       [PLAN_ROUND] = "ROUND",
        [PLAN_SUMS] = "SUMS", [PLAN_NORM] = "NORM",     [PLAN_UPDATE] = "UPDATE",
        [PLAN_JOIN] = "JOIN", [PLAN_EXPAND] = "EXPAND",
    };
    return names[op];
}

const char *plan_queue_name(enum plan_queue queue)
{
    static const char *const names[PLAN_Q_COUNT] = {
        [PLAN_Q_COMPUTE] = "compute",
        [PLAN_Q_UP] = "up",
        [PLAN_Q_DOWN] = "down",
        [PLAN_Q_COLL] = "coll",
        [PLAN_Q_UPDATE] = "update",
        [PLAN_Q_READ_WEIGHT] = "read-weight",
        [PLAN_Q_READ_STATE] = "read-state",
        [PLAN_Q_READ_ACT] = "read-act",
        [PLAN_Q_WRITE_STATE] = "write-state",
        [PLAN_Q_WRITE_ACT] = "write-act",
        [PLAN_Q_WRITE_CHECKPOINT] = "write-checkpoint",
    };
    return names[queue];
}

const char *plan_tier_name(enum plan_tier tier)
{
    static const char *const names[] = {"device", "host", "store", "application"};
    return names[tier];
}

const char *plan_consumer_name(enum plan_consumer consumer)
{
    static const char *const names[PLAN_CONSUMER_COUNT] = {
        [PLAN_FOR_WEIGHTS] = "weights",     [PLAN_FOR_STATES] = "states",
        [PLAN_FOR_GRADIENTS] = "gradients", [PLAN_FOR_ACTIVATIONS] = "activations",
        [PLAN_FOR_SLOTS] = "slots",         [PLAN_FOR_SCRATCH] = "scratch",
        [PLAN_FOR_DATA] = "data",           [PLAN_FOR_RUNTIME] = "runtime",
    };
    return names[consumer];
}

bool plan_edge_find(struct plan_edge edge, const struct plan_tape *before, bool *back,
                    uint32_t *place)
{
    int64_t at = edge.count;
    if (edge.queue == PLAN_Q_COUNT || (at <= 0 && before == NULL)) {
        return false;
    }
    *back = at <= 0;
    at += at <= 0 ? before->queue_count[edge.queue] : 0;
    assert(at > 0); /* an edge reaches at most one tape back */
    *place = (uint32_t)at;
    return true;
}

bool plan_command_is_gated(const struct plan_command *command)
{
    switch ((enum plan_queue)command->queue) {
    case PLAN_Q_READ_WEIGHT:
    case PLAN_Q_READ_STATE:
    case PLAN_Q_READ_ACT: return command->rows;
    case PLAN_Q_COMPUTE:
    case PLAN_Q_UP:
    case PLAN_Q_DOWN:
    case PLAN_Q_COLL:
    case PLAN_Q_UPDATE:
    case PLAN_Q_WRITE_STATE:
    case PLAN_Q_WRITE_ACT:
    case PLAN_Q_WRITE_CHECKPOINT:
    case PLAN_Q_COUNT: break;
    }
    return true;
}

const struct plan_operand *plan_command_operand(const struct plan_command *command,
                                                enum plan_role role)
{
    for (uint32_t i = 0; i < command->operand_count; i++) {
        if (command->operands[i].role == role) {
            return &command->operands[i];
        }
    }
    return NULL;
}

const char *plan_streams_print(unsigned streams, char *text, unsigned bytes)
{
    static const char *const names[PLAN_STREAM_COUNT] = {"w16", "master", "m",       "v",
                                                         "g",   "act",    "m-scale", "v-scale"};
    unsigned used = 0;
    text[0] = '\0';
    for (unsigned i = 0; i < PLAN_STREAM_COUNT; i++) {
        if ((streams >> i & 1) != 0 && used < bytes) {
            used += (unsigned)snprintf(text + used, bytes - used, "%s%s", used == 0 ? "" : "+",
                                       names[i]);
        }
    }
    return text;
}

struct plan_traffic plan_tape_traffic(const struct plan_tape *tape)
{
    struct plan_traffic sum = {0};
    for (uint32_t i = 0; i < tape->count; i++) {
        const struct plan_command *command = &tape->commands[i];
        sum.store_read_bytes += command->op == PLAN_READ ? command->bytes : 0;
        sum.store_write_bytes += command->op == PLAN_WRITE ? command->bytes : 0;
        sum.up_bytes += command->op == PLAN_H2D ? command->bytes : 0;
        sum.down_bytes += command->op == PLAN_D2H ? command->bytes : 0;
        sum.gather_bytes += command->op == PLAN_GATHER ? command->bytes : 0;
        sum.reduce_bytes += command->op == PLAN_REDUCE ? command->bytes : 0;
        sum.gather_between_bytes += command->op == PLAN_GATHER ? command->between_bytes : 0;
        sum.reduce_between_bytes += command->op == PLAN_REDUCE ? command->between_bytes : 0;
    }
    return sum;
}

void plan_traffic_add(struct plan_traffic *sum, const struct plan_traffic *more)
{
    sum->store_read_bytes += more->store_read_bytes;
    sum->store_write_bytes += more->store_write_bytes;
    sum->up_bytes += more->up_bytes;
    sum->down_bytes += more->down_bytes;
    sum->gather_bytes += more->gather_bytes;
    sum->reduce_bytes += more->reduce_bytes;
    sum->gather_between_bytes += more->gather_between_bytes;
    sum->reduce_between_bytes += more->reduce_between_bytes;
}

void plan_tape_fini(struct plan_tape *tape)
{
    free(tape->commands);
    *tape = (struct plan_tape){0};
}
