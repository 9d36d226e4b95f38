/* rank_load.c: parameters and states into the tiers at a run's beginning. What goes to STORE passes
 * through the slots that a step uses, in turn, so that nothing more is taken: while some are read into,
 * others are written from, and the drive does both at once. What a checkpoint has on the store's own
 * drive stays there until it is updated (store/adopt.h). The tapes rest. */
#include <string.h>

#include "core/base/err.h"
#include "core/base/team.h"
#include "core/dev/dev.h"
#include "offload/plan/shard.h"
#include "offload/run/rank_chunks.h"
#include "offload/store/adopt.h"

/* A slot, and what it is in use for. */
struct turn {
    char *memory;
    uint32_t coming;        /* chunks that are on their way into it */
    struct core_fence busy; /* of what goes from it */
};

struct turns {
    struct turn at[PLAN_STATE_SLOT_MAX];
    uint32_t count;
    uint32_t next;
};

/* A chunk on its way into a slot, and where it goes from there. */
struct coming {
    uint64_t point; /* of the checkpoint: once it is reached the chunk is here */
    struct store_place place;
    struct plan_span span; /* of the block */
    char *memory;
    struct turn *turn;
};

enum { COMING_MAX = 256 };

/* Where a run begins, with a model's files or where another run was; and what is under way. */
struct loading {
    struct run_rank *rank;               /* borrowed, as the next two */
    const struct model_files *files;     /* NULL: the checkpoint */
    struct store_checkpoint *checkpoint; /* NULL: the files */
    struct turns chunks;
    struct turns weights[PLAN_SIZE_COUNT]; /* on a device that is the host: of whole blocks */
    struct coming coming[COMING_MAX];      /* in turn, in the order they come in */
    uint64_t begun, arrived;
};

/* ---- from the checkpoint to the store ---- */

/* Where a chunk is already that an update will write anew: 1, and it stays there. What is frozen does
 * not, for it would stay for ever. */
static int adopt(struct loading *load, const struct coming *chunk)
{
    const struct run_rank *rank = load->rank;
    return load->checkpoint != NULL && rank->model->blocks[chunk->place.block].trained &&
                   !plan_layout_of(rank->plan)->blocks[chunk->place.block].on_card
               ? store_adopt(rank->store, &chunk->place, load->checkpoint, chunk->span,
                             chunk->memory)
               : 0;
}

/* Waits for the first that is on its way, and sends it on. */
static int arrive(struct loading *load)
{
    const struct coming *first = &load->coming[load->arrived++ % COMING_MAX];
    int rc = load->checkpoint != NULL ? store_checkpoint_read_wait(load->checkpoint, first->point)
                                      : 0;
    first->turn->coming--;
    rc = rc != 0 ? rc : adopt(load, first);
    if (rc != 0) {
        return rc < 0 ? rc : 0;
    }
    return run_chunk_put(load->rank, &first->place, first->memory, &first->turn->busy);
}

/* Whether the first is here, so that nobody would wait. */
static bool is_here(const struct loading *load)
{
    const struct coming *first = &load->coming[load->arrived % COMING_MAX];
    return load->checkpoint == NULL ||
           first->point + STORE_FLOW_PIECES <= store_checkpoint_read_tail(load->checkpoint);
}

/* A chunk whose bytes were begun last. */
static int come(struct loading *load, const struct store_place *place, struct plan_span span,
                char *memory, struct turn *turn)
{
    int rc = load->begun - load->arrived == COMING_MAX ? arrive(load) : 0;
    load->coming[load->begun++ % COMING_MAX] = (struct coming){
        .point = load->checkpoint != NULL ? store_checkpoint_read_tail(load->checkpoint) : 0,
        .place = *place,
        .span = span,
        .memory = memory,
        .turn = turn};
    turn->coming++;
    while (rc == 0 && load->begun > load->arrived && is_here(load)) {
        rc = arrive(load);
    }
    return rc;
}

static int arrive_of(struct loading *load, const struct turn *turn)
{
    int rc = 0;
    while (rc == 0 && turn->coming > 0) {
        rc = arrive(load);
    }
    return rc;
}

/* The next slot, free. */
static int turn_take(struct loading *load, struct turns *turns, struct turn **out)
{
    struct turn *turn = &turns->at[turns->next++ % turns->count];
    int rc = arrive_of(load, turn);
    rc = rc != 0 ? rc : run_rank_wait(load->rank, turn->busy);
    *out = turn;
    return rc;
}

/* The same, where half of all are to be written from while others are read into. */
static int chunk_turn_take(struct loading *load, struct turn **out)
{
    struct turns *turns = &load->chunks;
    int rc = arrive_of(load, &turns->at[(turns->next + turns->count / 2) % turns->count]);
    return rc != 0 ? rc : turn_take(load, turns, out);
}

static int turns_wait(struct loading *load, const struct turns *turns)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < turns->count; i++) {
        rc = run_rank_wait(load->rank, turns->at[i].busy);
    }
    return rc;
}

/* ---- what comes ---- */

/* Working weights: there on return, or once the checkpoint's tail is reached. */
static int bring_weights(struct loading *load, uint32_t block, struct plan_span span, char *to)
{
    const struct run_rank *rank = load->rank;
    const struct model_block *shape = &rank->model->blocks[block];
    const enum model_dtype type = model_dtype_of(rank->options->type);
    if (load->checkpoint != NULL) {
        const struct store_arrays arrays = {.at = {[STORE_STREAM_WEIGHTS] = to}};
        return store_checkpoint_read_begin(load->checkpoint, block, span.first, span.count,
                                           &arrays);
    }
    return span.count == shape->elements
               ? model_files_read_block(load->files, shape, type, to, run_update_team(rank->update))
               : model_files_read(load->files, shape, span.first, span.count, type, to);
}

/* States as at the beginning of a run: zero, but for a master that is more than the weights. Those, which
 * may be on their way to the store already, were rounded from the same numbers. */
static int begin_states(struct loading *load, const struct run_chunk *chunk,
                        const struct adam_arrays *arrays, char *states)
{
    const struct run_rank *rank = load->rank;
    memset(states, 0, plan_state_bytes(&rank->input->format, chunk->count));
    return rank->options->type != KERN_FP16
               ? 0
               : model_files_read(load->files, &rank->model->blocks[chunk->block], chunk->first,
                                  chunk->count, MODEL_F32, arrays->w32);
}

/* States, there as weights are. */
static int bring_states(struct loading *load, const struct run_chunk *chunk, char *weights,
                        char *states)
{
    const struct adam_arrays arrays = run_update_arrays(load->rank->update, chunk->first,
                                                        chunk->count, weights, states, NULL);
    if (load->checkpoint == NULL) {
        return begin_states(load, chunk, &arrays, states);
    }
    struct store_arrays streams = run_rank_streams(&arrays);
    streams.at[STORE_STREAM_WEIGHTS] = NULL; /* they come by themselves */
    return store_checkpoint_read_begin(load->checkpoint, chunk->block, chunk->first, chunk->count,
                                       &streams);
}

/* ---- a block ---- */

static int load_states(struct loading *load, uint32_t block, char *weights)
{
    const struct run_rank *rank = load->rank;
    const uint64_t first = plan_weight_span(rank->input, block).first;
    const uint64_t width = rank->input->format.weight_bytes;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < run_chunk_count(rank, block); i++) {
        const struct run_chunk chunk = run_chunk_at(rank, block, i);
        const struct store_place place = {STORE_STATES, block, i};
        const struct plan_span span = {.first = chunk.first, .count = chunk.count};
        char *part = weights + (chunk.first - first) * width;
        char *resident = run_chunk_states_memory(rank, &chunk);
        struct turn *turn = NULL;
        if (resident != NULL) {
            rc = bring_states(load, &chunk, part, resident);
            continue;
        }
        rc = chunk_turn_take(load, &turn);
        if (rc == 0) {
            char *states = turn->memory + plan_slot_states_offset(rank->plan);
            rc = bring_states(load, &chunk, part, states);
            rc = rc != 0 ? rc : come(load, &place, span, states, turn);
        }
    }
    return rc;
}

/* All of a block's weights into its slot, chunk after chunk; files are read at once. */
static int load_weights(struct loading *load, uint32_t block, struct turn *turn)
{
    const struct run_rank *rank = load->rank;
    const struct plan_span span = plan_weight_span(rank->input, block);
    const uint64_t elements = plan_chunk_elements(rank->plan);
    const uint64_t width = rank->input->format.weight_bytes;
    int rc = load->checkpoint == NULL ? bring_weights(load, block, span, turn->memory) : 0;
    for (uint32_t i = 0; rc == 0 && i < plan_chunk_count(span.count, elements); i++) {
        const struct store_place place = {STORE_WEIGHTS, block, i};
        const struct plan_span part = {.first = span.first + i * elements,
                                       .count = plan_chunk_size(span.count, elements, i)};
        char *to = turn->memory + i * elements * width;
        rc = load->checkpoint != NULL ? bring_weights(load, block, part, to) : 0;
        rc = rc != 0 ? rc : come(load, &place, part, to, turn);
    }
    return rc;
}

/* Where the host cannot write into the device's slots, or to where a block stays: chunk by chunk
 * through its own. */
static int load_chunks(struct loading *load, uint32_t block)
{
    const struct run_rank *rank = load->rank;
    const struct model_block *shape = &rank->model->blocks[block];
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < run_chunk_count(rank, block); i++) {
        const struct run_chunk chunk = run_chunk_at(rank, block, i);
        const struct plan_span span = {.first = chunk.first, .count = chunk.count};
        char *resident = run_chunk_states_memory(rank, &chunk);
        struct turn *turn = NULL;
        rc = chunk_turn_take(load, &turn);
        if (rc != 0) {
            return rc;
        }
        char *weights = turn->memory;
        char *states = resident != NULL ? resident : weights + plan_slot_states_offset(rank->plan);
        rc = bring_weights(load, block, span, weights);
        rc = rc != 0
                 ? rc
                 : come(load, &(struct store_place){STORE_WEIGHTS, block, i}, span, weights, turn);
        rc = rc != 0 || !shape->trained ? rc : bring_states(load, &chunk, weights, states);
        if (rc == 0 && shape->trained && resident == NULL) {
            rc = come(load, &(struct store_place){STORE_STATES, block, i}, span, states, turn);
        }
    }
    return rc;
}

/* Weights first, where they stay or in a slot; then states, which may begin with them. */
static int load_block(struct loading *load, uint32_t block)
{
    const struct run_rank *rank = load->rank;
    char *weights = run_chunk_weights_memory(rank, block);
    int rc = 0;
    if (weights == NULL && !rank->input->budgets.device_is_host) { /* in STORE or on the card */
        return load_chunks(load, block);
    }
    if (weights != NULL) {
        rc = bring_weights(load, block, plan_weight_span(rank->input, block), weights);
    } else {
        struct turn *turn = NULL;
        rc = turn_take(load, &load->weights[plan_layout_of(rank->plan)->blocks[block].size], &turn);
        weights = turn->memory;
        rc = rc != 0 ? rc : load_weights(load, block, turn);
    }
    return rc != 0 || !rank->model->blocks[block].trained ? rc : load_states(load, block, weights);
}

/* ---- all ---- */

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

static void clear_part(void *argument, unsigned index, unsigned count)
{
    const struct run_rank *rank = argument;
    for (uint32_t i = 0; i < plan_buffer_count(rank->plan); i++) {
        const struct plan_buffer *buffer = plan_buffer(rank->plan, i);
        uint64_t begin = 0;
        uint64_t end = 0;
        if (buffer->tier == PLAN_DEVICE && rank->memory.at[i] != NULL) {
            core_team_share(buffer->bytes, PLAN_ALIGN_BYTES, index, count, &begin, &end);
            memset(rank->memory.at[i] + begin, 0, end - begin);
        }
    }
}

/* Sums of blocks that are not trained stay zero, and what is between parameters. HOST comes so. */
static void clear(struct run_rank *rank)
{
    if (rank->input->budgets.device_is_host) {
        core_team_run(run_update_team(rank->update), clear_part, rank);
    }
}

static void lay_turns(struct loading *load)
{
    const struct plan_layout *layout = plan_layout_of(load->rank->plan);
    char *slots[PLAN_STATE_SLOT_MAX];
    load->chunks.count = run_chunk_slots(load->rank, slots);
    for (uint32_t i = 0; i < load->chunks.count; i++) {
        load->chunks.at[i].memory = slots[i];
    }
    for (int size = 0; size < PLAN_SIZE_COUNT; size++) {
        struct turns *turns = &load->weights[size];
        turns->count = layout->weights.counts[size];
        for (uint32_t i = 0; i < turns->count; i++) {
            turns->at[i].memory = load->rank->memory.at[layout->weights.buffers[size][i]];
        }
    }
}

/* Everything is where it belongs. */
static int finish(struct loading *load)
{
    int rc = 0;
    while (rc == 0 && load->arrived < load->begun) {
        rc = arrive(load);
    }
    if (rc == 0 && load->checkpoint != NULL) {
        rc = store_checkpoint_read_wait(load->checkpoint,
                                        store_checkpoint_read_tail(load->checkpoint));
    }
    rc = rc != 0 ? rc : turns_wait(load, &load->chunks);
    for (int size = 0; rc == 0 && size < PLAN_SIZE_COUNT; size++) {
        rc = turns_wait(load, &load->weights[size]);
    }
    for (uint32_t b = 0; rc == 0 && b < load->rank->model->block_count; b++) {
        rc = send_weights(load->rank, b);
    }
    return rc;
}

static int load_all(struct loading *load)
{
    struct run_rank *rank = load->rank;
    const uint32_t blocks = rank->model->block_count;
    int rc = load->checkpoint != NULL && rank->store != NULL
                 ? store_adopt_begin(rank->store, load->checkpoint)
                 : 0;
    clear(rank);
    lay_turns(load);
    for (uint32_t b = 0; rc == 0 && b < blocks; b++) {
        rc = load_block(load, b);
        rc = rc == 0 && b + 1 == blocks ? finish(load) : rc;
        if (rc == 0 && rank->given.progress != NULL) {
            rc = rank->given.progress(rank->given.user, "load", b + 1, blocks);
        }
    }
    if (rc != 0 && load->checkpoint != NULL) { /* what it reads into is not ours for long */
        const struct core_err kept = core_err_keep(rc);
        return core_err_first(
            &kept, store_checkpoint_read_wait(load->checkpoint,
                                              store_checkpoint_read_tail(load->checkpoint)));
    }
    return rc;
}

int run_rank_load(struct run_rank *rank, const struct model_files *files)
{
    struct loading load = {.rank = rank, .files = files};
    return load_all(&load);
}

int run_rank_resume(struct run_rank *rank, struct store_checkpoint *checkpoint)
{
    struct loading load = {.rank = rank, .checkpoint = checkpoint};
    const uint64_t updates = store_checkpoint_manifest(checkpoint)->updates;
    int rc = load_all(&load);
    rank->updates = rc == 0 ? updates : rank->updates;
    return rc;
}

uint64_t run_rank_adopted_bytes(struct run_rank *rank)
{
    return rank->store != NULL ? store_adopted_bytes(rank->store) : 0;
}

int run_rank_release_checkpoint(struct run_rank *rank)
{
    return store_adopt_release(rank->store);
}
