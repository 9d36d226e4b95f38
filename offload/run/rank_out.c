/* rank_out.c: parameters and states out of the tiers, chunk by chunk in order. What lies in STORE or on
 * a card comes through slots, in turn, so that some are read into while others are with who takes them.
 * The tapes rest. */
#include <assert.h>

#include "core/base/err.h"
#include "offload/plan/shard.h"
#include "offload/run/rank_chunks.h"

struct store_arrays run_rank_streams(const struct adam_arrays *arrays)
{
    const bool halves = arrays->w16 != NULL;
    char *master = arrays->lo16 != NULL ? (char *)arrays->lo16 : (char *)arrays->w32;
    return (struct store_arrays){
        .at = {[STORE_STREAM_WEIGHTS] = halves ? (char *)arrays->w16 : (char *)arrays->w32,
               [STORE_STREAM_MASTER] = halves ? master : NULL,
               [STORE_STREAM_M] = arrays->m,
               [STORE_STREAM_V] = arrays->v,
               [STORE_STREAM_M_SCALES] = (char *)arrays->m_scale,
               [STORE_STREAM_V_SCALES] = (char *)arrays->v_scale}};
}

/* A slot, and what it is in use for. */
struct turn {
    char *memory;
    struct core_fence here; /* reached: what was asked for is in it */
    uint64_t taken;         /* the taker's point: behind it the slot is free */
};

/* What goes out of one block. */
struct going {
    struct run_rank *rank; /* borrowed, as all here */
    uint32_t block;
    uint32_t count; /* of chunks */
    struct turn turns[PLAN_STATE_SLOT_MAX];
    uint32_t turn_count;
    char *weights;                  /* all of the block's; NULL: a chunk's are in its slot */
    struct core_fence weights_here; /* reached: they are */
    const struct run_take_states *states;
    run_take_weights *take_weights; /* alone */
    void *context;                  /* its */
};

/* ---- one chunk ---- */

/* Begins to read what is not in the host's memory. */
static int get(struct going *going, uint32_t index, struct turn *turn)
{
    struct run_rank *rank = going->rank;
    const struct store_place weights = {STORE_WEIGHTS, going->block, index};
    const struct store_place states = {STORE_STATES, going->block, index};
    int rc = going->weights == NULL ? run_chunk_get(rank, &weights, turn->memory, &turn->here) : 0;
    if (rc != 0 || going->states == NULL) {
        return rc;
    }
    const struct run_chunk chunk = run_chunk_at(rank, going->block, index);
    return run_chunk_states_memory(rank, &chunk) != NULL
               ? 0
               : run_chunk_get(rank, &states, turn->memory + plan_slot_states_offset(rank->plan),
                               &turn->here);
}

static int take_states(struct going *going, uint32_t index, struct turn *turn)
{
    struct run_rank *rank = going->rank;
    const struct run_take_states *taker = going->states;
    const struct run_chunk chunk = run_chunk_at(rank, going->block, index);
    const uint64_t before = chunk.first - plan_weight_span(rank->input, going->block).first;
    char *resident = run_chunk_states_memory(rank, &chunk);
    const struct adam_arrays arrays = run_update_arrays(
        rank->update, chunk.first, chunk.count,
        going->weights != NULL ? going->weights + before * rank->input->format.weight_bytes
                               : turn->memory,
        resident != NULL ? resident : turn->memory + plan_slot_states_offset(rank->plan), NULL);
    int rc = run_rank_wait(rank, going->weights_here);
    rc = rc != 0 ? rc : taker->take(taker->context, &arrays);
    turn->taken = rc == 0 && taker->tail != NULL ? taker->tail(taker->context) : 0;
    return rc;
}

static int take(struct going *going, uint32_t index, struct turn *turn)
{
    if (going->states != NULL) {
        return take_states(going, index, turn);
    }
    const uint64_t elements = plan_chunk_elements(going->rank->plan);
    const struct plan_span span = plan_weight_span(going->rank->input, going->block);
    return going->take_weights(going->context, span.first + index * elements,
                               plan_chunk_size(span.count, elements, index), turn->memory);
}

/* ---- all ---- */

static int wait_taken(const struct going *going, const struct turn *turn)
{
    const struct run_take_states *taker = going->states;
    return taker != NULL && taker->wait != NULL ? taker->wait(taker->context, turn->taken) : 0;
}

/* Half of the slots are read into while others are with the taker. */
static int pass_chunks(struct going *going)
{
    const uint32_t turns = going->turn_count;
    uint32_t asked = 0;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < going->count; i++) {
        for (; rc == 0 && asked < going->count && asked < i + (turns + 1) / 2; asked++) {
            struct turn *turn = &going->turns[asked % turns];
            rc = asked >= turns ? wait_taken(going, turn) : 0;
            rc = rc != 0 ? rc : get(going, asked, turn);
        }
        struct turn *turn = &going->turns[i % turns];
        rc = rc != 0 ? rc : run_rank_wait(going->rank, turn->here);
        rc = rc != 0 ? rc : take(going, i, turn);
    }
    for (uint32_t i = 0; rc == 0 && i < turns && i < going->count; i++) {
        rc = wait_taken(going, &going->turns[i]);
    }
    return rc;
}

/* Nothing is read into slots afterwards, whoever took what. */
static int pass_on(struct going *going)
{
    struct core_err first = core_err_keep(pass_chunks(going));
    for (uint32_t i = 0; i < going->turn_count; i++) {
        const int here = run_rank_wait(going->rank, going->turns[i].here);
        first = first.code != 0 ? first : core_err_keep(here);
    }
    const int here = run_rank_wait(going->rank, going->weights_here);
    return core_err_first(&first, here);
}

/* The slots that chunks pass through; where there are none, turns without memory. */
static void lay_turns(struct going *going)
{
    char *slots[PLAN_STATE_SLOT_MAX];
    const uint32_t count = run_chunk_slots(going->rank, slots);
    for (uint32_t i = 0; i < count; i++) {
        going->turns[i].memory = slots[i];
    }
    going->turn_count = count > 0 ? count : PLAN_STATE_SLOT_MAX;
}

/* ---- weights ---- */

/* The slot of the device, which is the host, that all of a block's weights go into. */
static char *block_slot(const struct run_rank *rank, uint32_t block)
{
    const struct plan_layout *layout = plan_layout_of(rank->plan);
    return rank->memory.at[layout->weights.buffers[layout->blocks[block].size][0]];
}

/* Its room for chunks, in turn. */
static void lay_block_turns(struct going *going)
{
    const struct run_rank *rank = going->rank;
    const uint64_t stride = plan_chunk_elements(rank->plan) * rank->input->format.weight_bytes;
    going->turn_count = going->count < PLAN_STATE_SLOT_MAX ? going->count : PLAN_STATE_SLOT_MAX;
    for (uint32_t i = 0; i < going->turn_count; i++) {
        going->turns[i].memory = block_slot(rank, going->block) + i * stride;
    }
}

int run_rank_weights(struct run_rank *rank, uint32_t block, run_take_weights *take_weights,
                     void *context)
{
    const struct plan_span span = plan_weight_span(rank->input, block);
    const uint64_t elements = plan_chunk_elements(rank->plan);
    const char *resident = run_chunk_weights_memory(rank, block);
    struct going going = {.rank = rank,
                          .block = block,
                          .count = (uint32_t)plan_chunk_count(span.count, elements),
                          .take_weights = take_weights,
                          .context = context};
    if (resident != NULL) {
        return take_weights(context, span.first, span.count, resident);
    }
    if (rank->input->budgets.device_is_host) {
        lay_block_turns(&going);
    } else {
        lay_turns(&going);
    }
    return pass_on(&going);
}

/* ---- states ---- */

/* Begins to read all chunks of a block's weights into the slot that has room for them. */
static int get_weights(struct going *going)
{
    struct run_rank *rank = going->rank;
    const uint64_t elements = plan_chunk_elements(rank->plan);
    const uint64_t count = plan_chunk_count(plan_weight_span(rank->input, going->block).count,
                                            elements);
    int rc = 0;
    going->weights = block_slot(rank, going->block);
    for (uint32_t i = 0; rc == 0 && i < count; i++) {
        const struct store_place place = {STORE_WEIGHTS, going->block, i};
        rc = run_chunk_get(rank, &place,
                           going->weights + i * elements * rank->input->format.weight_bytes,
                           &going->weights_here);
    }
    return rc;
}

int run_rank_states(struct run_rank *rank, uint32_t block, const struct run_take_states *taker)
{
    struct going going = {.rank = rank,
                          .block = block,
                          .count = run_chunk_count(rank, block),
                          .weights = run_chunk_weights_memory(rank, block),
                          .states = taker};
    assert(rank->model->blocks[block].trained);
    if (going.count == 0) { /* a shard of a small block may be empty */
        return 0;
    }
    lay_turns(&going);
    int rc = going.weights == NULL && rank->input->budgets.device_is_host ? get_weights(&going) : 0;
    if (rc != 0) {
        const struct core_err kept = core_err_keep(rc);
        (void)run_rank_wait(rank, going.weights_here);
        return core_err_first(&kept, 0);
    }
    return pass_on(&going);
}
