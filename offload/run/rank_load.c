/* rank_load.c: parameters and states into the tiers at a run's beginning, and out of them again.
 * What lies in STORE goes through the slots that a step uses, in turn, so that nothing more is
 * taken; several are under way at once. The tapes rest. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "core/base/err.h"
#include "core/dev/dev.h"
#include "offload/plan/layout.h"
#include "offload/plan/shard.h"
#include "offload/run/rank_parts.h"

/* Slots in turn, each with the fence of what it is in use for. */
struct turns {
    char *slots[PLAN_SLOT_MAX];
    struct core_fence busy[PLAN_SLOT_MAX];
    uint32_t count;
    uint32_t next;
};

static struct turns turns_of(const struct run_rank *rank, const uint16_t *buffers, uint32_t count)
{
    struct turns turns = {.count = count};
    for (uint32_t i = 0; i < count; i++) {
        turns.slots[i] = rank->memory.at[buffers[i]];
    }
    return turns;
}

/* Slots of the host that hold a chunk: those of states, or of weights where no states move. */
static struct turns chunk_turns(const struct run_rank *rank)
{
    const struct plan_layout *layout = plan_layout_of(rank->plan);
    const bool states = layout->state_slots[0] != PLAN_NONE;
    const uint16_t *slots = states ? layout->state_slots : layout->weight_stages;
    const uint32_t count = plan_layout_slots(slots);
    return turns_of(rank, slots, count < PLAN_SLOT_MAX ? count : PLAN_SLOT_MAX);
}

/* A place of the host that one chunk of a block's weights can be read into. */
static char *weights_stage(const struct run_rank *rank, uint32_t block)
{
    const struct plan_layout *layout = plan_layout_of(rank->plan);
    if (rank->input->budgets.device_is_host) {
        return rank->memory.at[layout->weights.buffers[layout->blocks[block].size][0]];
    }
    return chunk_turns(rank).slots[0];
}

/* The next slot, free. */
static int turn_take(struct run_rank *rank, struct turns *turns, uint32_t *index)
{
    *index = turns->next++ % turns->count;
    return run_rank_wait(rank, turns->busy[*index]);
}

static int turns_wait(struct run_rank *rank, const struct turns *turns)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < turns->count; i++) {
        rc = run_rank_wait(rank, turns->busy[i]);
    }
    return rc;
}

/* ---- one chunk to and from where it lies ---- */

static bool is_on_card(const struct run_rank *rank, uint32_t block)
{
    return plan_layout_of(rank->plan)->blocks[block].on_card;
}

/* Between the host's memory and the card, where all of a block stays. */
static int card_copy(struct run_rank *rank, enum dev_copy_direction direction,
                     const struct store_place *place, void *memory, struct core_fence *out)
{
    const struct plan_layout *layout = plan_layout_of(rank->plan);
    const struct plan_block_layout *where = &layout->blocks[place->block];
    const struct plan_format *format = &rank->input->format;
    const bool weights = place->kind == STORE_WEIGHTS;
    const uint64_t elements = plan_chunk_elements(rank->plan);
    const uint64_t count = plan_chunk_size(plan_state_span(rank->input, place->block).count,
                                           elements, place->index);
    char *base = rank->memory.at[weights ? where->weights_device : where->states_memory];
    char *card = base +
                 place->index * (weights ? elements * format->weight_bytes : layout->state_stride);
    const bool up = direction == DEV_COPY_UP;
    struct dev_queue *queue = up ? rank->up_queue : rank->down_queue;
    const struct dev_copy move = {
        .direction = direction,
        .to = up ? card : memory,
        .from = up ? memory : card,
        .bytes = weights ? count * format->weight_bytes : plan_state_bytes(format, count),
    };
    int rc;
    while ((rc = dev_queue_copy(queue, &move, out)) == -EAGAIN) {
        rc = run_rank_wait(rank, dev_queue_tail(queue));
        if (rc != 0) {
            return rc;
        }
    }
    return rc;
}

static struct aio_queue *io_queue(const struct run_rank *rank, enum plan_queue queue)
{
    return rank->io_queues[queue - PLAN_Q_READ_WEIGHT];
}

static int put(struct run_rank *rank, enum store_kind kind, uint32_t block, uint32_t chunk,
               void *memory, struct core_fence *out)
{
    const struct store_place place = {kind, block, chunk};
    if (is_on_card(rank, block)) {
        return card_copy(rank, DEV_COPY_UP, &place, memory, out);
    }
    struct aio_queue *queue = io_queue(rank, PLAN_Q_WRITE_STATE);
    int rc;
    while ((rc = store_write(rank->store, queue, &place, memory, out)) == -EAGAIN) {
        rc = run_rank_wait(rank, aio_queue_tail(queue));
        if (rc != 0) {
            return rc;
        }
    }
    return rc;
}

static int get(struct run_rank *rank, enum store_kind kind, uint32_t block, uint32_t chunk,
               void *memory)
{
    const struct store_place place = {kind, block, chunk};
    struct core_fence done;
    int rc = is_on_card(rank, block) ? card_copy(rank, DEV_COPY_DOWN, &place, memory, &done)
                                     : store_read(rank->store, io_queue(rank, PLAN_Q_READ_STATE),
                                                  &place, memory, &done);
    return rc != 0 ? rc : run_rank_wait(rank, done);
}

/* ---- where a chunk's streams lie ---- */

struct chunk {
    uint32_t block;
    uint32_t index;
    uint64_t first; /* in the block's array */
    uint64_t count;
};

/* The chunk `index` of the states of a block. */
static struct chunk chunk_at(const struct run_rank *rank, uint32_t block, uint32_t index)
{
    const struct plan_span span = plan_state_span(rank->input, block);
    const uint64_t elements = plan_chunk_elements(rank->plan);
    return (struct chunk){.block = block,
                          .index = index,
                          .first = span.first + index * elements,
                          .count = plan_chunk_size(span.count, elements, index)};
}

static uint32_t chunk_count(const struct run_rank *rank, uint32_t block)
{
    return (uint32_t)plan_chunk_count(plan_state_span(rank->input, block).count,
                                      plan_chunk_elements(rank->plan));
}

/* Working weights of a block where they stay in the host's reach; NULL where they lie in STORE or on
 * the card alone. On a device whose memory the host does not see the HOST copy is the one that
 * counts. */
static char *weights_in_memory(const struct run_rank *rank, uint32_t block)
{
    const struct plan_block_layout *where = &plan_layout_of(rank->plan)->blocks[block];
    const uint16_t buffer = where->on_card                     ? PLAN_NONE
                            : where->weights_host != PLAN_NONE ? where->weights_host
                                                               : where->weights_device;
    return buffer != PLAN_NONE ? rank->memory.at[buffer] : NULL;
}

static char *states_in_memory(const struct run_rank *rank, const struct chunk *chunk)
{
    const struct plan_layout *layout = plan_layout_of(rank->plan);
    if (chunk->index >= layout->places[chunk->block].resident_chunks ||
        is_on_card(rank, chunk->block)) {
        return NULL;
    }
    return rank->memory.at[layout->blocks[chunk->block].states_memory] +
           chunk->index * layout->state_stride;
}

/* ---- loading ---- */

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

/* Where a run begins: with a model's files, or where another run was. */
struct source {
    const struct model_files *files;     /* borrowed */
    struct store_checkpoint *checkpoint; /* borrowed; NULL: the files */
};

static int read_weights(struct run_rank *rank, const struct source *source, uint32_t block,
                        struct plan_span span, char *to)
{
    const struct model_block *shape = &rank->model->blocks[block];
    const enum model_dtype type = model_dtype_of(rank->options->type);
    if (source->checkpoint != NULL) {
        const struct store_arrays arrays = {.at = {[STORE_STREAM_WEIGHTS] = to}};
        return store_checkpoint_read(source->checkpoint, block, span.first, span.count, &arrays);
    }
    return span.count == shape->elements
               ? model_files_read_block(source->files, shape, type, to,
                                        run_update_team(rank->update))
               : model_files_read(source->files, shape, span.first, span.count, type, to);
}

/* States as a checkpoint has them, or as at the beginning of a run: zero, but for a master that is
 * more than the weights. */
static int fill_states(struct run_rank *rank, const struct source *source,
                       const struct chunk *chunk, char *weights, char *states)
{
    const struct model_block *block = &rank->model->blocks[chunk->block];
    const struct adam_arrays arrays = run_update_arrays(rank->update, chunk->first, chunk->count,
                                                        weights, states, NULL);
    if (source->checkpoint != NULL) {
        struct store_arrays streams = run_rank_streams(&arrays);
        streams.at[STORE_STREAM_WEIGHTS] = NULL; /* they are there */
        return store_checkpoint_read(source->checkpoint, chunk->block, chunk->first, chunk->count,
                                     &streams);
    }
    memset(states, 0, plan_state_bytes(&rank->input->format, chunk->count));
    if (rank->options->type != KERN_FP16) {
        return 0;
    }
    int rc = model_files_read(source->files, block, chunk->first, chunk->count, MODEL_F32,
                              arrays.w32);
    return rc != 0 ? rc
                   : adam_state_write(run_update_adam(rank->update, chunk->block), &arrays,
                                      ADAM_VALUE_MASTER, chunk->first, chunk->first + chunk->count,
                                      arrays.w32);
}

static int load_states(struct run_rank *rank, const struct source *source, uint32_t block,
                       char *weights, struct turns *turns)
{
    const uint64_t first = plan_weight_span(rank->input, block).first;
    const uint64_t width = rank->input->format.weight_bytes;
    const uint64_t offset = plan_slot_states_offset(rank->plan);
    for (uint32_t i = 0; i < chunk_count(rank, block); i++) {
        const struct chunk chunk = chunk_at(rank, block, i);
        char *part = weights + (chunk.first - first) * width;
        char *resident = states_in_memory(rank, &chunk);
        uint32_t turn = 0;
        int rc = resident != NULL ? 0 : turn_take(rank, turns, &turn);
        char *states = resident != NULL ? resident : turns->slots[turn] + offset;
        rc = rc != 0 ? rc : fill_states(rank, source, &chunk, part, states);
        if (rc == 0 && resident == NULL) {
            rc = put(rank, STORE_STATES, block, i, states, &turns->busy[turn]);
        }
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static int store_weights(struct run_rank *rank, uint32_t block, char *weights,
                         struct core_fence *out)
{
    const uint64_t elements = plan_chunk_elements(rank->plan);
    const uint64_t count = plan_chunk_count(plan_weight_span(rank->input, block).count, elements);
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < count; i++) {
        rc = put(rank, STORE_WEIGHTS, block, i,
                 weights + i * elements * rank->input->format.weight_bytes, out);
    }
    return rc;
}

/* Where the host cannot write into the device's slots, or to where a block stays: chunk by chunk
 * through its own. */
static int load_chunks(struct run_rank *rank, const struct source *source, uint32_t block,
                       struct turns *turns)
{
    const struct model_block *shape = &rank->model->blocks[block];
    const uint64_t offset = plan_slot_states_offset(rank->plan);
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < chunk_count(rank, block); i++) {
        const struct chunk chunk = chunk_at(rank, block, i);
        char *resident = states_in_memory(rank, &chunk);
        uint32_t turn = 0;
        rc = turn_take(rank, turns, &turn);
        char *weights = turns->slots[turn];
        char *states = resident != NULL ? resident : weights + offset;
        const struct plan_span span = {.first = chunk.first, .count = chunk.count};
        rc = rc != 0 ? rc : read_weights(rank, source, block, span, weights);
        if (rc == 0 && shape->trained) {
            rc = fill_states(rank, source, &chunk, weights, states);
        }
        rc = rc != 0 ? rc : put(rank, STORE_WEIGHTS, block, i, weights, &turns->busy[turn]);
        if (rc == 0 && shape->trained && resident == NULL) {
            rc = put(rank, STORE_STATES, block, i, states, &turns->busy[turn]);
        }
    }
    return rc;
}

/* Weights first, where they stay or in a slot; then states, which may begin with them. */
static int load_block(struct run_rank *rank, const struct source *source, uint32_t block,
                      struct turns *states)
{
    const struct plan_layout *layout = plan_layout_of(rank->plan);
    const struct model_block *shape = &rank->model->blocks[block];
    const struct plan_span span = plan_weight_span(rank->input, block);
    const uint8_t size = layout->blocks[block].size;
    char *weights = weights_in_memory(rank, block);
    const bool in_store = weights == NULL; /* or on the card */
    struct turns slots = turns_of(rank, layout->weights.buffers[size],
                                  layout->weights.counts[size]);
    if (in_store && !rank->input->budgets.device_is_host) {
        return load_chunks(rank, source, block, states);
    }
    if (in_store) {
        weights = slots.slots[0];
    }
    int rc = read_weights(rank, source, block, span, weights);
    if (rc == 0 && shape->trained) {
        rc = load_states(rank, source, block, weights, states);
    }
    struct core_fence written = {0};
    if (rc == 0 && in_store) {
        rc = store_weights(rank, block, weights, &written);
        rc = rc != 0 ? rc : run_rank_wait(rank, written);
    }
    return rc;
}

/* Where the device's memory is another than the host's: weights that stay there go up once. */
static int send_weights(struct run_rank *rank, uint32_t block)
{
    const struct plan_block_layout *where = &plan_layout_of(rank->plan)->blocks[block];
    if (rank->input->budgets.device_is_host || where->weights_device == PLAN_NONE ||
        where->on_card) {
        return 0;
    }
    const struct dev_copy move = {
        .direction = DEV_COPY_UP,
        .to = rank->memory.at[where->weights_device],
        .from = rank->memory.at[where->weights_host],
        .bytes = plan_weight_span(rank->input, block).count * rank->input->format.weight_bytes,
    };
    struct core_fence done;
    int rc = dev_queue_copy(rank->up_queue, &move, &done);
    return rc != 0 ? rc : run_rank_wait(rank, done);
}

/* Tile sums of blocks that are not trained stay zero. */
static void clear(struct run_rank *rank)
{
    for (uint32_t i = 0; i < plan_buffer_count(rank->plan); i++) {
        const struct plan_buffer *buffer = plan_buffer(rank->plan, i);
        const bool device = buffer->tier == PLAN_DEVICE && !rank->input->budgets.device_is_host;
        if (rank->memory.at[i] != NULL && !device) {
            memset(rank->memory.at[i], 0, buffer->bytes);
        }
    }
}

static int load(struct run_rank *rank, const struct source *source)
{
    struct turns states = chunk_turns(rank);
    int rc = 0;
    clear(rank);
    for (uint32_t b = 0; rc == 0 && b < rank->model->block_count; b++) {
        rc = load_block(rank, source, b, &states);
        rc = rc != 0 ? rc : send_weights(rank, b);
        if (rc == 0 && rank->given.progress != NULL) {
            rc = rank->given.progress(rank->given.user, "load", b + 1, rank->model->block_count);
        }
    }
    return rc != 0 ? rc : turns_wait(rank, &states);
}

int run_rank_load(struct run_rank *rank, const struct model_files *files)
{
    const struct source source = {.files = files};
    return load(rank, &source);
}

int run_rank_resume(struct run_rank *rank, struct store_checkpoint *checkpoint)
{
    const struct source source = {.checkpoint = checkpoint};
    const uint64_t updates = store_checkpoint_manifest(checkpoint)->updates;
    int rc = load(rank, &source);
    rank->updates = rc == 0 ? updates : rank->updates;
    return rc;
}

/* ---- reading out ---- */

int run_rank_weights(struct run_rank *rank, uint32_t block, run_take_weights *take, void *context)
{
    const struct plan_span span = plan_weight_span(rank->input, block);
    const uint64_t elements = plan_chunk_elements(rank->plan);
    const char *resident = weights_in_memory(rank, block);
    if (resident != NULL) {
        return take(context, span.first, span.count, resident);
    }
    int rc = 0;
    char *slot = weights_stage(rank, block);
    for (uint32_t i = 0; rc == 0 && i < plan_chunk_count(span.count, elements); i++) {
        rc = get(rank, STORE_WEIGHTS, block, i, slot);
        rc = rc != 0 ? rc
                     : take(context, span.first + i * elements,
                            plan_chunk_size(span.count, elements, i), slot);
    }
    return rc;
}

/* All chunks of a block's weights into the slot that has room for them. */
static int get_weights(struct run_rank *rank, uint32_t block, char *slot)
{
    const uint64_t elements = plan_chunk_elements(rank->plan);
    const uint64_t count = plan_chunk_count(plan_weight_span(rank->input, block).count, elements);
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < count; i++) {
        rc = get(rank, STORE_WEIGHTS, block, i,
                 slot + i * elements * rank->input->format.weight_bytes);
    }
    return rc;
}

int run_rank_states(struct run_rank *rank, uint32_t block,
                    int (*take)(void *context, const struct adam_arrays *arrays), void *context)
{
    const struct plan_layout *layout = plan_layout_of(rank->plan);
    const struct plan_span span = plan_weight_span(rank->input, block);
    const uint64_t width = rank->input->format.weight_bytes;
    const bool whole = rank->input->budgets.device_is_host; /* a slot holds a block, not a chunk */
    char *resident = weights_in_memory(rank, block);
    char *slot = resident == NULL ? weights_stage(rank, block) : NULL;
    assert(rank->model->blocks[block].trained);
    int rc = resident == NULL && whole ? get_weights(rank, block, slot) : 0;
    for (uint32_t i = 0; rc == 0 && i < chunk_count(rank, block); i++) {
        const struct chunk chunk = chunk_at(rank, block, i);
        const uint64_t offset = (chunk.first - span.first) * width;
        char *weights = resident != NULL ? resident + offset : whole ? slot + offset : slot;
        char *states = states_in_memory(rank, &chunk);
        if (resident == NULL && !whole) {
            rc = get(rank, STORE_WEIGHTS, block, i, slot);
        }
        if (rc == 0 && states == NULL) {
            states = rank->memory.at[layout->state_slots[0]] + plan_slot_states_offset(rank->plan);
            rc = get(rank, STORE_STATES, block, i, states);
        }
        if (rc == 0) {
            const struct adam_arrays arrays = run_update_arrays(rank->update, chunk.first,
                                                                chunk.count, weights, states, NULL);
            rc = take(context, &arrays);
        }
    }
    return rc;
}
