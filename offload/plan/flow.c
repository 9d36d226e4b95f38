/* flow.c: one builder, one state of slots and memory for three tapes, for all tapes of a run. */
#include "offload/plan/flow.h"

#include <errno.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "offload/plan/gradient.h"
#include "offload/plan/plan_internal.h"
#include "offload/plan/update.h"

/* Two tapes may be under way, and edges may name the tape before them. */
enum { TAPES = 3, COMMANDS_LEAST = 256 };

struct plan_flow {
    struct plan_builder *builder; /* owned */
    struct plan_step step;
    struct plan_tape tapes[TAPES];
    struct plan_command *commands; /* owned, [TAPES * commands_max] */
    uint32_t block_max;            /* the most commands of one block */
    uint32_t commands_max;
    uint64_t begun; /* tapes begun */
};

/* No joins are needed, because a command waits for at most two queues. */
static uint32_t most_commands(const struct plan_input *input, const struct plan *plan)
{
    uint64_t most = 0;
    for (uint32_t b = 0; b < input->block_count; b++) {
        const uint64_t chunks = plan_chunk_count(plan_state_span(input, b).count,
                                                 plan->choice.chunk_elements);
        most = chunks > most ? chunks : most;
    }
    return (uint32_t)(3 * most + 1);
}

/* Makes tapes for each block, so that the builder's tables seldom grow later. */
static int rehearse(struct plan_flow *flow)
{
    int rc = 0;
    for (uint32_t b = 0; rc == 0 && b < flow->step.input->block_count; b++) {
        plan_flow_begin(flow);
        rc = plan_flow_sums(flow, b);
        if (rc == 0) {
            rc = plan_flow_update(flow, b, true);
        }
        if (rc == 0) {
            (void)plan_flow_end(flow);
            plan_flow_begin(flow);
            rc = plan_flow_update_sums(flow, b);
        }
        if (rc == 0) {
            (void)plan_flow_end(flow);
        }
    }
    return rc;
}

int plan_flow_create(const struct plan_input *input, const struct plan *plan,
                     struct plan_flow **out)
{
    struct plan_flow *flow = calloc(1, sizeof *flow);
    if (flow == NULL) {
        return core_err_set(-ENOMEM, "no memory for the tapes of an application");
    }
    flow->block_max = most_commands(input, plan);
    flow->commands_max = flow->block_max > COMMANDS_LEAST ? flow->block_max : COMMANDS_LEAST;
    flow->commands = calloc((size_t)TAPES * flow->commands_max, sizeof *flow->commands);
    int rc = flow->commands != NULL
                 ? plan_builder_create(plan->layout->buffers, plan->layout->count, &flow->builder)
                 : core_err_set(-ENOMEM, "no memory for tapes of %u commands", flow->commands_max);
    if (rc == 0) {
        flow->step = plan_move_begin(flow->builder, input, &plan->choice, plan->layout);
        rc = rehearse(flow);
    }
    if (rc != 0) {
        plan_flow_destroy(flow);
        return rc;
    }
    *out = flow;
    return 0;
}

void plan_flow_destroy(struct plan_flow *flow)
{
    if (flow == NULL) {
        return;
    }
    plan_builder_destroy(flow->builder);
    free(flow->commands);
    free(flow);
}

uint32_t plan_flow_commands_max(const struct plan_flow *flow)
{
    return flow->commands_max;
}

void plan_flow_begin(struct plan_flow *flow)
{
    const uint64_t turn = flow->begun++ % TAPES;
    plan_builder_begin_in(flow->builder, flow->commands + turn * flow->commands_max,
                          flow->commands_max);
}

bool plan_flow_has_room(const struct plan_flow *flow)
{
    return plan_builder_room(flow->builder) >= flow->block_max;
}

int plan_flow_sums(struct plan_flow *flow, uint32_t block)
{
    plan_gradient_begin(&flow->step, block);
    return plan_gradient_finish(&flow->step, block);
}

int plan_flow_norm(struct plan_flow *flow)
{
    return plan_gradient_norm(&flow->step);
}

int plan_flow_update(struct plan_flow *flow, uint32_t block, bool ahead)
{
    flow->step.ahead = ahead;
    int rc = plan_update_block(&flow->step, block, false);
    flow->step.ahead = false;
    return rc;
}

int plan_flow_update_sums(struct plan_flow *flow, uint32_t block)
{
    plan_gradient_begin(&flow->step, block);
    flow->step.sums = true;
    int rc = plan_flow_update(flow, block, true);
    flow->step.sums = false;
    return rc;
}

int plan_flow_fetch(struct plan_flow *flow, uint32_t block, bool *full)
{
    return plan_update_fetch(&flow->step, block, full);
}

const struct plan_tape *plan_flow_end(struct plan_flow *flow)
{
    struct plan_tape *tape = &flow->tapes[(flow->begun - 1) % TAPES];
    plan_builder_end_in(flow->builder, tape);
    return tape;
}

uint32_t plan_flow_lost(const struct plan_flow *flow)
{
    return flow->step.fetches_lost;
}

void plan_flow_forget(struct plan_flow *flow)
{
    for (int i = 0; i < PLAN_STATE_SLOT_MAX; i++) {
        flow->step.fetched[i].block = PLAN_NONE;
    }
}
