/* chunks.c: finds chunks, begins to move them or their pages, and takes slots for them. */
#include "offload/run/chunks.h"

#include <errno.h>

#include "core/base/err.h"
#include "core/dev/dev.h"
#include "offload/plan/shard.h"

/* ---- places of chunks ---- */

static struct plan_chunk chunk_at(const struct run_rank *rank, enum plan_stream stream,
                                  uint32_t block, uint32_t index)
{
    return plan_chunk_at(rank->input, plan_layout_of(rank->plan), stream, block, index);
}

struct run_chunk run_chunk_at(const struct run_rank *rank, uint32_t block, uint32_t index)
{
    const struct plan_chunk chunk = chunk_at(rank, PLAN_MASTER, block, index);
    return (struct run_chunk){
        .block = block, .index = index, .first = chunk.first, .count = chunk.count};
}

uint32_t run_chunk_count(const struct run_rank *rank, uint32_t block)
{
    return (uint32_t)plan_chunk_count(plan_state_span(rank->input, block).count,
                                      plan_chunk_elements(rank->plan));
}

static bool is_on_card(const struct run_rank *rank, uint32_t block)
{
    return plan_layout_of(rank->plan)->blocks[block].on_card;
}

char *run_chunk_weights_memory(const struct run_rank *rank, uint32_t block)
{
    const struct plan_block_layout *where = &plan_layout_of(rank->plan)->blocks[block];
    const uint32_t buffer = where->on_card                     ? PLAN_NONE
                            : where->weights_host != PLAN_NONE ? where->weights_host
                                                               : where->weights_device;
    return buffer != PLAN_NONE ? rank->memory.at[buffer] : NULL;
}

char *run_chunk_states_memory(const struct run_rank *rank, const struct run_chunk *chunk)
{
    const struct plan_piece kept = chunk_at(rank, PLAN_MASTER, chunk->block, chunk->index).kept;
    const bool resident = kept.buffer != PLAN_NONE && rank->memory.at[kept.buffer] != NULL;
    return resident && !is_on_card(rank, chunk->block) ? rank->memory.at[kept.buffer] + kept.offset
                                                       : NULL;
}

/* ---- copies of chunks ---- */

static int card_copy(struct run_rank *rank, enum dev_copy_direction direction,
                     const struct store_place *place, void *memory, struct core_fence *out)
{
    const struct plan_piece kept = chunk_at(rank,
                                            place->kind == STORE_WEIGHTS ? PLAN_W16 : PLAN_MASTER,
                                            place->block, place->index)
                                       .kept;
    char *card = rank->memory.at[kept.buffer] + kept.offset;
    const bool up = direction == DEV_COPY_UP;
    struct dev_queue *queue = up ? rank->up_queue : rank->down_queue;
    const struct dev_copy move = {
        .direction = direction,
        .to = up ? card : memory,
        .from = up ? memory : card,
        .bytes = kept.bytes,
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

static int store_copy(struct run_rank *rank, enum dev_copy_direction direction,
                      const struct store_place *place, void *memory, struct core_fence *out)
{
    const bool up = direction == DEV_COPY_UP;
    struct aio_queue *queue = io_queue(rank, up ? PLAN_Q_WRITE_STATE : PLAN_Q_READ_STATE);
    int rc;
    while ((rc = up ? store_write(rank->store, queue, place, memory, out)
                    : store_read(rank->store, queue, place, memory, out)) == -EAGAIN) {
        rc = run_rank_wait(rank, aio_queue_tail(queue));
        if (rc != 0) {
            return rc;
        }
    }
    return rc;
}

static int chunk_copy(struct run_rank *rank, enum dev_copy_direction direction,
                      const struct store_place *place, void *memory, struct core_fence *out)
{
    return is_on_card(rank, place->block) ? card_copy(rank, direction, place, memory, out)
                                          : store_copy(rank, direction, place, memory, out);
}

int run_chunk_put(struct run_rank *rank, const struct store_place *place, void *memory,
                  struct core_fence *out)
{
    return chunk_copy(rank, DEV_COPY_UP, place, memory, out);
}

int run_chunk_get(struct run_rank *rank, const struct store_place *place, void *memory,
                  struct core_fence *out)
{
    return chunk_copy(rank, DEV_COPY_DOWN, place, memory, out);
}

/* ---- blocks that compute reads by pages ---- */

struct run_pages run_pages_of(const struct run_rank *rank, uint32_t block)
{
    const uint32_t slot = plan_layout_page_slot(plan_layout_of(rank->plan), block);
    const struct plan_block_shape *shape = &rank->input->blocks[block];
    const uint64_t room = plan_buffer(rank->plan, slot)->bytes / shape->format.weight_bytes;
    const uint64_t cuts = room / PLAN_CUT_ELEMENTS;
    const struct plan_span shard = plan_weight_span(rank->input, block);
    return (struct run_pages){
        .block = block,
        .slot = rank->memory.at[slot],
        .shard = shard,
        .span = {.first = shard.first},
        .most = cuts < 1   ? room
                : cuts < 2 ? PLAN_CUT_ELEMENTS
                           : cuts / 2 * PLAN_CUT_ELEMENTS,
        .type_bytes = shape->format.weight_bytes,
        .turns = cuts < 2 ? 1 : 2,
    };
}

bool run_pages_next(struct run_pages *pages)
{
    const uint64_t first = pages->span.first + pages->span.count;
    const uint64_t left = pages->shard.first + pages->shard.count - first;
    pages->turn = first > pages->shard.first ? (pages->turn + 1) % pages->turns : 0;
    pages->span = (struct plan_span){.first = first,
                                     .count = left < pages->most ? left : pages->most};
    pages->memory = pages->slot + pages->turn * pages->most * pages->type_bytes;
    return left > 0;
}

static int pages_move(struct run_rank *rank, const struct run_pages *pages, bool up,
                      struct core_fence *out)
{
    struct aio_queue *queue = io_queue(rank, up ? PLAN_Q_WRITE_STATE : PLAN_Q_READ_STATE);
    const uint64_t offset = (pages->span.first - pages->shard.first) * pages->type_bytes;
    const uint64_t bytes = pages->span.count * pages->type_bytes;
    for (uint64_t done = 0; done < bytes;) {
        uint64_t moved = 0;
        char *memory = pages->memory + done;
        int rc = up ? store_write_pages(rank->store, queue, pages->block, offset + done, memory,
                                        bytes - done, &moved, out)
                    : store_read_pages(rank->store, queue, pages->block, offset + done, memory,
                                       bytes - done, &moved, out);
        if (rc == -EAGAIN) {
            rc = run_rank_wait(rank, aio_queue_tail(queue));
        }
        if (rc != 0) {
            return rc;
        }
        done += moved;
    }
    return 0;
}

int run_pages_read(struct run_rank *rank, uint32_t block, uint64_t first, uint64_t bytes,
                   char *memory)
{
    const struct run_pages pages = {.block = block,
                                    .type_bytes = 1,
                                    .span = {.first = first, .count = bytes},
                                    .memory = memory};
    struct core_fence done = {0};
    int rc = pages_move(rank, &pages, false, &done);
    return rc != 0 ? rc : run_rank_wait(rank, done);
}

int run_pages_put(struct run_rank *rank, const struct run_pages *pages, struct core_fence *out)
{
    return pages_move(rank, pages, true, out);
}

int run_pages_get(struct run_rank *rank, const struct run_pages *pages, struct core_fence *out)
{
    return pages_move(rank, pages, false, out);
}

/* ---- slots in rotation ---- */

void run_slots_init(struct run_slots *slots, const struct run_rank *rank)
{
    const struct plan_layout *layout = plan_layout_of(rank->plan);
    const bool states = layout->state_slots[0] != PLAN_NONE;
    const uint32_t *buffers = states ? layout->state_slots : layout->weight_stages;
    *slots = (struct run_slots){.count = plan_layout_slots(buffers)};
    for (uint32_t i = 0; i < slots->count; i++) {
        slots->at[i].memory = rank->memory.at[buffers[i]];
    }
}

struct run_slot *run_slots_next(struct run_slots *slots)
{
    return &slots->at[slots->next++ % slots->count];
}

struct run_slot *run_slots_opposite(struct run_slots *slots)
{
    return &slots->at[(slots->next + slots->count / 2) % slots->count];
}

int run_slots_wait(struct run_rank *rank, const struct run_slots *slots)
{
    struct core_err first = core_err_keep(0);
    for (uint32_t i = 0; i < slots->count; i++) {
        const int rc = run_rank_wait(rank, slots->at[i].moved);
        if (rc == -ETIMEDOUT) {
            return rc; /* before other errors: the memory must not be freed */
        }
        if (rc != 0 && first.code == 0) {
            first = core_err_keep(rc);
        }
    }
    return core_err_first(&first, 0);
}
