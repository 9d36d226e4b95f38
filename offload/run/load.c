/* load.c: moves parameters and states into the tiers when a run begins. Chunks for STORE pass
 * through a step's slots: some are read into while others are written out. Chunks of a checkpoint
 * on the store's drive may stay there until their update (store/store.h). No tape runs
 * meanwhile. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/size.h"
#include "core/base/team.h"
#include "core/dev/dev.h"
#include "offload/model/kept.h"
#include "offload/plan/shard.h"
#include "offload/run/checkpoint.h"
#include "offload/run/chunks.h"
#include "offload/store/store.h"

struct arrival {
    /* The chunk has been read when reads reach this point. */
    uint64_t point;
    struct store_place place;
    struct plan_span span; /* range of the block */
    char *memory;
    struct run_slot *slot; /* the slot's mark counts its arrivals */
};

enum { ARRIVALS_MAX = 256 };

/* The source of a run, and the reads in progress. */
struct loading {
    struct run_rank *rank;           /* borrowed, like the next two */
    const struct model_files *files; /* NULL: none */
    /* checksums of frozen blocks read from files; may be NULL */
    struct model_sums *sums;
    struct model_kept *kept; /* borrowed: the file of the kept base; may be NULL */
    bool based;              /* the store can read from the kept file */
    /* borrowed; may be NULL */
    struct store_checkpoint *checkpoint;
    struct run_slots chunks;
    struct run_slots weights[PLAN_SIZE_COUNT]; /* for whole blocks, if the device is the host */
    struct run_slots stored[PLAN_SIZE_COUNT];  /* for blocks that are stored in fewer bits */
    struct arrival arrivals[ARRIVALS_MAX];     /* a ring, oldest first */
    uint64_t begun, arrived;
};

/* ---- data that arrives ---- */

/* Returns 1 if the store leaves the chunk in the checkpoint's files until its update, 0 if it must
 * be written, or an error. Frozen chunks would stay there for the whole run, and pages have no
 * checksums there, so both are written. */
static int adopt_chunk(struct loading *load, const struct arrival *chunk)
{
    const struct run_rank *rank = load->rank;
    const struct plan_block_layout *where = &plan_layout_of(rank->plan)->blocks[chunk->place.block];
    const bool paged = where->by_pages && chunk->place.kind == STORE_WEIGHTS;
    if (load->checkpoint == NULL || !rank->blocks->list[chunk->place.block].trained || paged ||
        where->on_card) {
        return 0;
    }
    return store_adopt(rank->store, &chunk->place, load->checkpoint, chunk->span, chunk->memory);
}

static int move_oldest(struct loading *load)
{
    const struct arrival *oldest = &load->arrivals[load->arrived++ % ARRIVALS_MAX];
    int rc = 0;
    oldest->slot->mark--;
    if (load->checkpoint != NULL) {
        rc = store_checkpoint_read_wait(load->checkpoint, oldest->point);
        if (rc != 0) {
            return rc;
        }
    }
    rc = adopt_chunk(load, oldest);
    if (rc != 0) {
        return rc < 0 ? rc : 0;
    }
    return run_chunk_put(load->rank, &oldest->place, oldest->memory, &oldest->slot->moved);
}

static bool oldest_is_read(const struct loading *load)
{
    const struct arrival *oldest = &load->arrivals[load->arrived % ARRIVALS_MAX];
    return load->checkpoint == NULL ||
           oldest->point + STORE_FLOW_PIECES <= store_checkpoint_read_tail(load->checkpoint);
}

static int add_arrival(struct loading *load, const struct store_place *place, struct plan_span span,
                       char *memory, struct run_slot *slot)
{
    int rc = load->begun - load->arrived == ARRIVALS_MAX ? move_oldest(load) : 0;
    load->arrivals[load->begun++ % ARRIVALS_MAX] = (struct arrival){
        .point = load->checkpoint != NULL ? store_checkpoint_read_tail(load->checkpoint) : 0,
        .place = *place,
        .span = span,
        .memory = memory,
        .slot = slot};
    slot->mark++;
    while (rc == 0 && load->begun > load->arrived && oldest_is_read(load)) {
        rc = move_oldest(load);
    }
    return rc;
}

static int move_arrivals_of(struct loading *load, const struct run_slot *slot)
{
    int rc = 0;
    while (rc == 0 && slot->mark > 0) {
        rc = move_oldest(load);
    }
    return rc;
}

/* Waits until the next slot is free. */
static int take_slot(struct loading *load, struct run_slots *slots, struct run_slot **out)
{
    struct run_slot *slot = run_slots_next(slots);
    int rc = move_arrivals_of(load, slot);
    if (rc != 0) {
        return rc;
    }
    rc = run_rank_wait(load->rank, slot->moved);
    if (rc == 0) {
        *out = slot;
    }
    return rc;
}

/* Half of the slots are written from while the others are read into. */
static int take_chunk_slot(struct loading *load, struct run_slot **out)
{
    int rc = move_arrivals_of(load, run_slots_opposite(&load->chunks));
    return rc != 0 ? rc : take_slot(load, &load->chunks, out);
}

/* ---- reading ---- */

static bool is_in_checkpoint(const struct loading *load, uint32_t block)
{
    const struct blocks *blocks = load->rank->blocks;
    return load->checkpoint != NULL && (blocks->list[block].trained || !blocks->base_apart);
}

/* Returns whether a frozen block is read from the kept file; while the model's files are summed,
 * only blocks in fewer bits. */
static bool is_kept(const struct loading *load, uint32_t block)
{
    return model_kept_has(load->kept, block) &&
           (load->sums == NULL || load->rank->shapes->stored[block] != NULL);
}

static int read_kept(struct loading *load, uint32_t block, struct plan_span span, char *to)
{
    const struct run_rank *rank = load->rank;
    const uint64_t width = rank->input->blocks[block].format.weight_bytes;
    return model_kept_read(load->kept, block, span.first * width, span.count * width, to,
                           run_update_team(rank->update));
}

/* Weights from files are in memory on return; weights from a checkpoint, when its reads reach the
 * current tail. */
static int read_weights(struct loading *load, uint32_t block, struct plan_span span, char *to)
{
    const struct run_rank *rank = load->rank;
    const struct model_block *shape = &rank->shapes->model->blocks[block];
    const enum model_dtype type = model_dtype_of(rank->options->type);
    if (is_in_checkpoint(load, block)) {
        const struct store_arrays arrays = {.at = {[STORE_STREAM_WEIGHTS] = to}};
        return store_checkpoint_read_begin(load->checkpoint, block, span.first, span.count,
                                           &arrays);
    }
    if (is_kept(load, block)) {
        int rc = read_kept(load, block, span, to);
        if (rc == 0 || model_kept_has(load->kept, block)) {
            return rc;
        } /* otherwise the kept file is damaged */
    }
    return span.count == shape->elements
               ? model_files_read_block(load->files, shape, type, to, run_update_team(rank->update),
                                        load->sums)
               : model_files_read(load->files, shape, span.first, span.count, type, to, load->sums);
}

/* Makes the low halves of split masters from adapters' fp32 values. The high halves may already be
 * moving to STORE. */
static int init_low_halves(const struct loading *load, const struct run_chunk *chunk, uint16_t *low)
{
    enum { FLOATS = 1 << 16 };
    const struct model_block *block = &load->rank->shapes->model->blocks[chunk->block];
    float *floats = malloc(FLOATS * sizeof *floats);
    int rc = floats != NULL ? 0 : core_err_set(-ENOMEM, "no memory to read adapters");
    for (uint64_t at = 0; rc == 0 && at < chunk->count; at += FLOATS) {
        const uint64_t left = chunk->count - at;
        const uint64_t count = left < FLOATS ? left : FLOATS;
        rc = model_files_read(load->files, block, chunk->first + at, count, MODEL_F32, floats,
                              NULL);
        for (uint64_t i = 0; rc == 0 && i < count; i++) {
            low[at + i] = adam_master_low(floats[i]);
        }
    }
    free(floats);
    return rc;
}

/* States begin as zero, except some masters. Those of a model come from its files, because the
 * weights may already be moving to STORE. */
static int init_states(struct loading *load, const struct run_chunk *chunk,
                       const struct adam_arrays *arrays, char *states)
{
    const struct run_rank *rank = load->rank;
    memset(states, 0, plan_state_bytes(&rank->input->blocks[chunk->block].format, chunk->count));
    if (rank->application != NULL) {
        const struct run_lent_block *block = &rank->application->lent->blocks[chunk->block];
        for (size_t i = 0; i < block->part_count; i++) {
            run_lent_begin_masters(block, &block->parts[i], arrays);
        }
        return 0;
    }
    if (arrays->lo16 != NULL && rank->shapes->model->lora.rank > 0) {
        return init_low_halves(load, chunk, arrays->lo16);
    }
    return rank->options->type != KERN_FP16
               ? 0
               : model_files_read(load->files, &rank->shapes->model->blocks[chunk->block],
                                  chunk->first, chunk->count, MODEL_F32, arrays->w32, NULL);
}

/* States from a checkpoint are in memory when its reads reach the current tail. */
static int read_states(struct loading *load, const struct run_chunk *chunk, char *weights,
                       char *states)
{
    const struct adam_arrays arrays = run_update_arrays(
        &load->rank->input->blocks[chunk->block].format, chunk->first, chunk->count, weights,
        states, NULL);
    if (load->checkpoint == NULL) {
        return init_states(load, chunk, &arrays, states);
    }
    struct store_arrays streams = run_checkpoint_streams(&arrays);
    streams.at[STORE_STREAM_WEIGHTS] = NULL; /* read_weights reads them */
    return store_checkpoint_read_begin(load->checkpoint, chunk->block, chunk->first, chunk->count,
                                       &streams);
}

/* ---- loading a block ---- */

static int load_state_chunk(struct loading *load, const struct run_chunk *chunk, char *weights)
{
    const struct run_rank *rank = load->rank;
    const struct store_place place = {STORE_STATES, chunk->block, chunk->index};
    const struct plan_span span = {.first = chunk->first, .count = chunk->count};
    char *resident = run_chunk_states_memory(rank, chunk);
    struct run_slot *slot = NULL;
    if (resident != NULL) {
        return read_states(load, chunk, weights, resident);
    }
    int rc = take_chunk_slot(load, &slot);
    if (rc != 0) {
        return rc;
    }
    char *states = slot->memory + plan_slot_states_offset(rank->plan);
    rc = read_states(load, chunk, weights, states);
    return rc != 0 ? rc : add_arrival(load, &place, span, states, slot);
}

static int load_states(struct loading *load, uint32_t block, char *weights)
{
    const struct run_rank *rank = load->rank;
    const uint64_t first = plan_weight_span(rank->input, block).first;
    const uint64_t width = rank->input->blocks[block].format.weight_bytes;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < run_chunk_count(rank, block); i++) {
        const struct run_chunk chunk = run_chunk_at(rank, block, i);
        rc = load_state_chunk(load, &chunk,
                              weights != NULL ? weights + (chunk.first - first) * width : NULL);
    }
    return rc;
}

/* Reads files in one piece, a checkpoint by chunk. Weights go to STORE by chunk. */
static int load_weights(struct loading *load, uint32_t block, struct run_slot *slot)
{
    const struct run_rank *rank = load->rank;
    const struct plan_span span = plan_weight_span(rank->input, block);
    const uint64_t elements = plan_chunk_elements(rank->plan);
    const uint64_t width = rank->input->blocks[block].format.weight_bytes;
    const bool by_chunk = is_in_checkpoint(load, block);
    int rc = by_chunk ? 0 : read_weights(load, block, span, slot->memory);
    for (uint32_t i = 0; rc == 0 && i < plan_chunk_count(span.count, elements); i++) {
        const struct store_place place = {STORE_WEIGHTS, block, i};
        const struct plan_span part = {.first = span.first + i * elements,
                                       .count = plan_chunk_size(span.count, elements, i)};
        char *to = slot->memory + i * elements * width;
        if (by_chunk) {
            rc = read_weights(load, block, part, to);
        }
        if (rc == 0) {
            rc = add_arrival(load, &place, part, to, slot);
        }
    }
    return rc;
}

/* Reads a part of a block: the next bytes of `reader`, unless that is NULL. */
static int read_part(struct loading *load, uint32_t block, struct model_stored_reader *reader,
                     struct plan_span part, char *to)
{
    const struct run_rank *rank = load->rank;
    return reader != NULL
               ? model_stored_read(reader, to,
                                   part.count * rank->input->blocks[block].format.weight_bytes)
           : rank->shapes->stored[block] != NULL ? read_kept(load, block, part, to)
                                                 : read_weights(load, block, part, to);
}

/* If two parts fit into the block's slot, one is read while the other is written to STORE. */
static int load_pages(struct loading *load, uint32_t block, struct model_stored_reader *reader)
{
    struct run_rank *rank = load->rank;
    struct run_pages pages = run_pages_of(rank, block);
    struct core_fence written[2] = {{0}, {0}};
    int rc = 0;
    while (rc == 0 && run_pages_next(&pages)) {
        rc = run_rank_wait(rank, written[pages.turn]);
        if (rc == 0) {
            rc = read_part(load, block, reader, pages.span, pages.memory);
        }
        if (rc == 0 && load->checkpoint != NULL) {
            rc = store_checkpoint_read_wait(load->checkpoint,
                                            store_checkpoint_read_tail(load->checkpoint));
        }
        if (rc == 0) {
            rc = run_pages_put(rank, &pages, &written[pages.turn]);
        }
    }
    for (unsigned turn = 0; rc == 0 && turn < 2; turn++) {
        rc = run_rank_wait(rank, written[turn]);
    }
    return rc;
}

static int load_chunk(struct loading *load, const struct run_chunk *chunk)
{
    const struct run_rank *rank = load->rank;
    const struct plan_span span = {.first = chunk->first, .count = chunk->count};
    const struct store_place weights_place = {STORE_WEIGHTS, chunk->block, chunk->index};
    const struct store_place states_place = {STORE_STATES, chunk->block, chunk->index};
    char *resident = run_chunk_states_memory(rank, chunk);
    struct run_slot *slot = NULL;
    int rc = take_chunk_slot(load, &slot);
    if (rc != 0) {
        return rc;
    }
    char *weights = slot->memory;
    char *states = resident != NULL ? resident : weights + plan_slot_states_offset(rank->plan);
    rc = read_weights(load, chunk->block, span, weights);
    if (rc != 0) {
        return rc;
    }
    rc = add_arrival(load, &weights_place, span, weights, slot);
    if (rc != 0 || !rank->blocks->list[chunk->block].trained) {
        return rc;
    }
    rc = read_states(load, chunk, weights, states);
    return rc != 0 || resident != NULL ? rc : add_arrival(load, &states_place, span, states, slot);
}

/* `reader` NULL: from the kept file. */
static int load_stored_chunks(struct loading *load, uint32_t block,
                              struct model_stored_reader *reader)
{
    const struct run_rank *rank = load->rank;
    const struct plan_span span = plan_weight_span(rank->input, block);
    const uint64_t elements = plan_chunk_elements(rank->plan);
    const uint64_t width = rank->input->blocks[block].format.weight_bytes;
    const bool direct = rank->input->budgets.device_is_host;
    struct run_slots *slots = &load->stored[plan_layout_of(rank->plan)->blocks[block].size];
    struct run_slot *slot = NULL;
    if (direct && plan_layout_of(rank->plan)->blocks[block].by_pages) {
        return load_pages(load, block, reader);
    }
    int rc = direct ? take_slot(load, slots, &slot) : 0;
    for (uint32_t i = 0; rc == 0 && i < plan_chunk_count(span.count, elements); i++) {
        const struct store_place place = {STORE_WEIGHTS, block, i};
        const struct plan_span part = {.first = span.first + i * elements,
                                       .count = plan_chunk_size(span.count, elements, i)};
        rc = direct ? 0 : take_chunk_slot(load, &slot);
        if (rc != 0) {
            return rc;
        }
        char *to = slot->memory + (direct ? i * elements * width : 0);
        rc = read_part(load, block, reader, part, to);
        if (rc == 0) {
            rc = add_arrival(load, &place, part, to, slot);
        }
    }
    return rc;
}

/* for keep_bytes */
struct keeping {
    struct model_kept *kept;
    uint32_t block;
};

static void keep_bytes(void *user, const void *bytes, uint64_t count)
{
    const struct keeping *keeping = user;
    model_kept_write(keeping->kept, keeping->block, bytes, count);
}

/* Only the first rank writes the kept file. */
static bool keeps(const struct loading *load, uint32_t block)
{
    return load->rank->input->rank == 0 && model_kept_wants(load->kept, block);
}

/* Writes a frozen block to the kept file in the run's type. Reads the block again, because this
 * rank may have only a part. */
static int keep_plain(struct loading *load, uint32_t block)
{
    enum { ELEMENTS = 1 << 20 };
    const struct run_rank *rank = load->rank;
    const struct model_block *from = &rank->shapes->model->blocks[block];
    const size_t width = kern_type_bytes(rank->options->type);
    char *buffer = malloc(ELEMENTS * width);
    int rc = buffer != NULL ? 0 : core_err_set(-ENOMEM, "no memory to keep %s", from->name);
    for (uint64_t at = 0; rc == 0 && at < from->elements; at += ELEMENTS) {
        const uint64_t left = from->elements - at;
        const uint64_t count = left < ELEMENTS ? left : ELEMENTS;
        rc = model_files_read(load->files, from, at, count, model_dtype_of(rank->options->type),
                              buffer, NULL);
        if (rc == 0) {
            model_kept_write(load->kept, block, buffer, count * width);
        }
    }
    free(buffer);
    return rc;
}

static int load_kept_stored(struct loading *load, uint32_t block)
{
    const struct run_rank *rank = load->rank;
    char *memory = run_chunk_weights_memory(rank, block);
    return memory != NULL ? read_kept(load, block, plan_weight_span(rank->input, block), memory)
                          : load_stored_chunks(load, block, NULL);
}

/* Prefers the kept file to the model's files, which are read even if the run resumes. */
static int load_stored(struct loading *load, uint32_t block)
{
    struct run_rank *rank = load->rank;
    const struct plan_span span = plan_weight_span(rank->input, block);
    const uint64_t width = rank->input->blocks[block].format.weight_bytes;
    struct keeping keeping = {load->kept, block};
    if (is_kept(load, block)) {
        int rc = load_kept_stored(load, block);
        if (rc == 0 || model_kept_has(load->kept, block)) {
            return rc;
        } /* otherwise the kept file is damaged */
    }
    const struct model_stored_source source = {.files = load->files,
                                               .block = &rank->shapes->model->blocks[block],
                                               .stored = rank->shapes->stored[block],
                                               .team = run_update_team(rank->update),
                                               .sums = rank->input->rank == 0 ? load->sums : NULL,
                                               .made = keeps(load, block) ? keep_bytes : NULL,
                                               .user = &keeping};
    char *memory = run_chunk_weights_memory(rank, block);
    struct model_stored_reader *reader = NULL;
    int rc = model_stored_open(&source, &reader);
    if (rc != 0) {
        return rc;
    }
    rc = model_stored_read(reader, NULL, span.first * width);
    if (rc == 0) {
        rc = memory != NULL ? model_stored_read(reader, memory, span.count * width)
                            : load_stored_chunks(load, block, reader);
    }
    if (rc == 0) { /* the rest counts for the checksums */
        rc = model_stored_read(reader, NULL, UINT64_MAX);
    }
    model_stored_close(reader);
    return rc;
}

/* Returns 1 if the store will read the block from the kept file, 0 if it must be loaded now, or an
 * error. */
static int adopt_kept(struct loading *load, uint32_t block)
{
    const struct run_rank *rank = load->rank;
    const struct plan_block_layout *where = &plan_layout_of(rank->plan)->blocks[block];
    const uint64_t width = rank->input->blocks[block].format.weight_bytes;
    const struct plan_span span = plan_weight_span(rank->input, block);
    const uint64_t most = plan_chunk_elements(rank->plan) * width;
    const uint64_t begin = span.first * width;
    const uint64_t end = begin + span.count * width;
    if (!load->based || !is_kept(load, block) || where->on_card ||
        where->weights_store == PLAN_NONE || run_chunk_weights_memory(rank, block) != NULL) {
        return 0;
    }
    const struct model_kept_place kept = model_kept_place(load->kept, block);
    const uint64_t unit = kept.unit_bytes;
    if (begin % unit != 0 ||
        (end % unit != 0 && core_round_up(end, PLAN_ALIGN_BYTES) < kept.bytes) ||
        (most % unit != 0 && most < end - begin) || (where->by_pages && unit != PLAN_ALIGN_BYTES)) {
        return 0;
    }
    uint32_t index = 0;
    for (uint64_t at = begin; at < end; at += most) {
        const struct store_place place = {STORE_WEIGHTS, block, index++};
        const uint64_t bytes = end - at < most ? end - at : most;
        const struct store_base_part part = {.offset = kept.offset + at,
                                             .bytes = core_round_up(bytes, PLAN_ALIGN_BYTES),
                                             .sums = {.values = kept.sums + at / unit,
                                                      .owner = kept.owner,
                                                      .first = at / unit,
                                                      .pages = unit == PLAN_ALIGN_BYTES}};
        int rc = store_base_adopt(rank->store, &place, &part);
        if (rc != 0) {
            return rc;
        }
    }
    return 1;
}

static int load_block(struct loading *load, uint32_t block)
{
    const struct run_rank *rank = load->rank;
    char *weights = run_chunk_weights_memory(rank, block);
    int rc = 0;
    if (rank->application != NULL) {
        return load_states(load, block, NULL);
    }
    rc = adopt_kept(load, block);
    if (rc != 0) {
        return rc < 0 ? rc : 0;
    }
    if (rank->shapes->stored[block] != NULL) {
        return load_stored(load, block);
    }
    if (weights == NULL && !rank->input->budgets.device_is_host) {
        /* The block's slots are in GPU memory, so chunks pass through slots of the host. */
        for (uint32_t i = 0; rc == 0 && i < run_chunk_count(rank, block); i++) {
            const struct run_chunk chunk = run_chunk_at(rank, block, i);
            rc = load_chunk(load, &chunk);
        }
        return rc;
    }
    if (weights == NULL && plan_layout_of(rank->plan)->blocks[block].by_pages) {
        return load_pages(load, block, NULL);
    }
    if (weights != NULL) {
        rc = read_weights(load, block, plan_weight_span(rank->input, block), weights);
    } else {
        struct run_slot *slot = NULL;
        rc = take_slot(load, &load->weights[plan_layout_of(rank->plan)->blocks[block].size], &slot);
        if (rc != 0) {
            return rc;
        }
        weights = slot->memory;
        rc = load_weights(load, block, slot);
    }
    return rc != 0 || !rank->blocks->list[block].trained ? rc : load_states(load, block, weights);
}

/* ---- all blocks ---- */

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
        .bytes = plan_weight_span(rank->input, block).count *
                 rank->input->blocks[block].format.weight_bytes,
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

/* Zeroes DEVICE if the device is the host, for sums of frozen blocks and gaps between parameters.
 * HOST is zero already. */
static void clear_device(struct run_rank *rank)
{
    if (rank->input->budgets.device_is_host) {
        core_team_run(run_update_team(rank->update), clear_part, rank);
    }
}

static void init_ring(const struct loading *load, const struct plan_ring *ring, int size,
                      struct run_slots *slots)
{
    slots->count = ring->counts[size];
    for (uint32_t i = 0; i < slots->count; i++) {
        slots->at[i].memory = load->rank->memory.at[ring->buffers[size][i]];
    }
}

static void init_slots(struct loading *load)
{
    const struct plan_layout *layout = plan_layout_of(load->rank->plan);
    run_slots_init(&load->chunks, load->rank);
    for (int size = 0; size < PLAN_SIZE_COUNT; size++) {
        init_ring(load, &layout->weights, size, &load->weights[size]);
        init_ring(load, &layout->stored, size, &load->stored[size]);
    }
}

static int finish(struct loading *load)
{
    struct run_rank *rank = load->rank;
    int rc = 0;
    while (rc == 0 && load->arrived < load->begun) {
        rc = move_oldest(load);
    }
    if (rc == 0 && load->checkpoint != NULL) {
        rc = store_checkpoint_read_wait(load->checkpoint,
                                        store_checkpoint_read_tail(load->checkpoint));
    }
    if (rc == 0) {
        rc = run_slots_wait(rank, &load->chunks);
    }
    for (int size = 0; rc == 0 && size < PLAN_SIZE_COUNT; size++) {
        rc = run_slots_wait(rank, &load->weights[size]);
        if (rc == 0) {
            rc = run_slots_wait(rank, &load->stored[size]);
        }
    }
    for (uint32_t b = 0; rc == 0 && b < rank->blocks->count; b++) {
        rc = send_weights(rank, b);
    }
    return rc;
}

static int load_blocks(struct loading *load)
{
    struct run_rank *rank = load->rank;
    const uint32_t blocks = rank->blocks->count;
    for (uint32_t b = 0; b < blocks; b++) {
        int rc = load_block(load, b);
        if (rc == 0 && keeps(load, b) && rank->shapes->stored[b] == NULL) {
            rc = keep_plain(load, b);
        }
        if (rc == 0 && b + 1 == blocks) {
            rc = finish(load);
        }
        if (rc == 0 && rank->given.progress != NULL) {
            rc = rank->given.progress(rank->given.user, "load", b + 1, blocks);
        }
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static int open_kept(struct loading *load)
{
    struct run_rank *rank = load->rank;
    load->kept = model_files_kept(load->files);
    const int fd = load->kept != NULL ? model_kept_direct_file(load->kept) : -1;
    if (fd < 0 || rank->store == NULL) {
        return 0;
    }
    const struct store_base base = {
        .fd = fd, .name = model_kept_path(load->kept), .bytes = model_kept_bytes(load->kept)};
    const int rc = store_base_begin(rank->store, &base);
    load->based = rc == 1;
    return rc < 0 ? rc : 0;
}

/* Returns where this rank adds its checksums, or NULL. If all ranks read the whole model, the first
 * one sums. */
static struct model_sums *own_sums(const struct run_rank *rank, struct model_sums *sums)
{
    return rank->input->rank == 0 || plan_shards_weights(rank->input) ? sums : NULL;
}

int run_rank_load(struct run_rank *rank, const struct model_files *files, struct model_sums *sums)
{
    struct loading load = {.rank = rank, .files = files, .sums = own_sums(rank, sums)};
    clear_device(rank);
    init_slots(&load);
    int rc = open_kept(&load);
    return rc == 0 ? load_blocks(&load) : rc;
}

int run_rank_load_application(struct run_rank *rank)
{
    struct loading load = {.rank = rank};
    init_slots(&load);
    return load_blocks(&load);
}

int run_rank_resume(struct run_rank *rank, struct store_checkpoint *checkpoint,
                    const struct model_files *files, struct model_sums *sums)
{
    struct loading load = {
        .rank = rank, .files = files, .sums = own_sums(rank, sums), .checkpoint = checkpoint};
    if (rank->store != NULL) {
        int rc = store_adopt_begin(rank->store, checkpoint);
        if (rc != 0) {
            return rc;
        }
    }
    clear_device(rank);
    init_slots(&load);
    int rc = open_kept(&load);
    if (rc == 0) {
        rc = load_blocks(&load);
    }
    if (rc != 0) { /* the checkpoint must not read into freed memory */
        const struct core_err kept = core_err_keep(rc);
        const uint64_t tail = store_checkpoint_read_tail(checkpoint);
        return core_err_first(&kept, store_checkpoint_read_wait(checkpoint, tail));
    }
    rank->updates = store_checkpoint_manifest(checkpoint)->updates;
    return 0;
}

int run_rank_release_checkpoint(struct run_rank *rank)
{
    return store_adopt_release(rank->store);
}
