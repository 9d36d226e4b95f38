/* builder.c: derives edges from accesses, with ranges of buffers and a vector clock per command. */
#include "offload/plan/builder.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"

/* How many commands of each queue must have ended when a command ends; over all tapes. */
struct clock {
    uint64_t reached[PLAN_Q_COUNT];
};

struct touch {
    uint64_t begin;
    uint64_t end;
    uint64_t place; /* counted over all tapes, on `queue` */
    uint8_t queue;
    uint8_t access;
};

struct history {
    struct touch *touches; /* owned */
    uint32_t count;
    uint32_t room;
    uint8_t queue; /* queue of the touches; PLAN_Q_COUNT: several */
};

struct line {
    struct clock *clocks; /* owned; [place - 1 - dropped] */
    uint32_t room;
    uint64_t count;       /* commands added, over all tapes */
    uint64_t dropped;     /* commands whose clocks were dropped */
    uint64_t tape_base;   /* `count` when the tape began */
    uint64_t before_base; /* `count` when the previous tape began */
};

struct plan_builder {
    const struct plan_buffer *buffers; /* borrowed from the plan */
    uint32_t buffer_count;
    struct history *histories; /* owned, one per buffer */
    struct line lines[PLAN_Q_COUNT];
    struct plan_tape tape;
    uint32_t tape_room;
    bool lent; /* the tape is built in the caller's memory */
};

static int no_memory(void)
{
    return core_err_set(-ENOMEM, "no memory for the tape of the plan");
}

/* Returns the array with room for one more item. After NULL, the old array stays valid. */
static void *grow(void *items, uint32_t count, uint32_t *room, size_t item_bytes)
{
    if (count < *room) {
        return items;
    }
    uint32_t wider = *room == 0 ? 16 : *room * 2;
    void *moved = realloc(items, wider * item_bytes);
    if (moved != NULL) {
        *room = wider;
    }
    return moved;
}

int plan_builder_create(const struct plan_buffer *buffers, uint32_t buffer_count,
                        struct plan_builder **out)
{
    struct plan_builder *builder = calloc(1, sizeof *builder);
    if (builder == NULL) {
        return no_memory();
    }
    builder->buffers = buffers;
    builder->buffer_count = buffer_count;
    builder->histories = calloc(buffer_count > 0 ? buffer_count : 1, sizeof *builder->histories);
    if (builder->histories == NULL) {
        plan_builder_destroy(builder);
        return no_memory();
    }
    *out = builder;
    return 0;
}

void plan_builder_destroy(struct plan_builder *builder)
{
    if (builder == NULL) {
        return;
    }
    for (uint32_t i = 0; builder->histories != NULL && i < builder->buffer_count; i++) {
        free(builder->histories[i].touches);
    }
    free(builder->histories);
    for (int q = 0; q < PLAN_Q_COUNT; q++) {
        free(builder->lines[q].clocks);
    }
    if (!builder->lent) {
        plan_tape_fini(&builder->tape);
    }
    free(builder);
}

/* Drops the clocks of retired tapes, except the queue's last clock. */
static void drop_clocks(struct line *line)
{
    const uint64_t last = line->count > 0 ? line->count - 1 : 0;
    const uint64_t dropped = line->before_base < last ? line->before_base : last;
    if (dropped > line->dropped) {
        memmove(line->clocks, line->clocks + (dropped - line->dropped),
                (line->count - dropped) * sizeof *line->clocks);
        line->dropped = dropped;
    }
}

void plan_builder_begin(struct plan_builder *builder)
{
    assert(builder->tape.count == 0);
    for (int q = 0; q < PLAN_Q_COUNT; q++) {
        struct line *line = &builder->lines[q];
        line->before_base = line->tape_base;
        line->tape_base = line->count;
        drop_clocks(line);
    }
}

void plan_builder_begin_in(struct plan_builder *builder, struct plan_command *commands,
                           uint32_t room)
{
    plan_builder_begin(builder);
    builder->tape.commands = commands;
    builder->tape_room = room;
    builder->lent = true;
}

uint32_t plan_builder_room(const struct plan_builder *builder)
{
    return builder->tape_room - builder->tape.count;
}

/* Returns whether commands of the queue move bytes at the same time, although they end in order. */
static bool transfers_overlap(enum plan_queue queue)
{
    return queue >= PLAN_Q_READ_WEIGHT && queue <= PLAN_Q_WRITE_ACT;
}

/* Sets needs[q]: how many commands of queue q must end first. */
static void collect_needs(struct plan_builder *builder, const struct plan_command *command,
                          uint64_t needs[PLAN_Q_COUNT])
{
    for (uint32_t i = 0; i < command->operand_count; i++) {
        const struct plan_operand *operand = &command->operands[i];
        const struct history *history = &builder->histories[operand->buffer];
        uint64_t end = operand->offset + operand->bytes;
        if (history->queue == command->queue && !transfers_overlap(command->queue)) {
            continue; /* the order of the queue suffices */
        }
        for (uint32_t t = 0; t < history->count; t++) {
            const struct touch *touch = &history->touches[t];
            bool overlaps = touch->begin < end && operand->offset < touch->end;
            bool conflicts = ((touch->access | operand->access) & PLAN_WRITES) != 0;
            if (overlaps && conflicts && touch->place > needs[touch->queue]) {
                needs[touch->queue] = touch->place;
            }
        }
    }
}

static struct clock *clock_of(const struct plan_builder *builder, int queue, uint64_t place)
{
    const struct line *line = &builder->lines[queue];
    return &line->clocks[place - 1 - line->dropped];
}

/* Drops needs that follow from the queue's order, an older tape or another need. */
static void reduce_needs(const struct plan_builder *builder, int queue,
                         uint64_t needs[PLAN_Q_COUNT])
{
    const struct line *own = &builder->lines[queue];
    for (int q = 0; q < PLAN_Q_COUNT; q++) {
        bool known = q == queue ? !transfers_overlap((enum plan_queue)queue)
                                : own->count > 0 &&
                                      clock_of(builder, queue, own->count)->reached[q] >= needs[q];
        if (known || needs[q] <= builder->lines[q].before_base) {
            needs[q] = 0;
        }
    }
    for (int q = 0; q < PLAN_Q_COUNT; q++) {
        for (int other = 0; needs[q] != 0 && other < PLAN_Q_COUNT; other++) {
            if (other != q && needs[other] != 0 &&
                clock_of(builder, other, needs[other])->reached[q] >= needs[q]) {
                needs[q] = 0;
            }
        }
    }
}

/* Appends the command. Up to PLAN_EDGE_MAX of `needs` become edges and are zeroed. */
static int append(struct plan_builder *builder, const struct plan_command *command,
                  uint64_t needs[PLAN_Q_COUNT])
{
    struct line *line = &builder->lines[command->queue];
    struct plan_tape *tape = &builder->tape;
    const uint32_t kept = (uint32_t)(line->count - line->dropped);
    struct clock *clocks = grow(line->clocks, kept, &line->room, sizeof *clocks);
    if (clocks == NULL) {
        return no_memory();
    }
    line->clocks = clocks;
    if (builder->lent && tape->count == builder->tape_room) {
        return core_err_set(-EINVAL, "a tape has more than %" PRIu32 " commands",
                            builder->tape_room);
    }
    struct plan_command *commands = grow(tape->commands, tape->count, &builder->tape_room,
                                         sizeof *commands);
    if (commands == NULL) {
        return no_memory();
    }
    tape->commands = commands;
    struct plan_command *added = &tape->commands[tape->count++];
    *added = *command;
    struct clock clock = {{0}};
    if (line->count > 0) {
        clock = *clock_of(builder, command->queue, line->count);
    }
    int edge = 0;
    for (int q = 0; q < PLAN_Q_COUNT && edge < PLAN_EDGE_MAX; q++) {
        if (needs[q] == 0) {
            continue;
        }
        const struct clock *theirs = clock_of(builder, q, needs[q]);
        for (int i = 0; i < PLAN_Q_COUNT; i++) {
            clock.reached[i] = theirs->reached[i] > clock.reached[i] ? theirs->reached[i]
                                                                     : clock.reached[i];
        }
        int64_t count = (int64_t)needs[q] - (int64_t)builder->lines[q].tape_base;
        added->edges[edge++] = (struct plan_edge){.count = (int32_t)count, .queue = (uint8_t)q};
        needs[q] = 0;
    }
    while (edge < PLAN_EDGE_MAX) {
        added->edges[edge++] = (struct plan_edge){.queue = PLAN_Q_COUNT};
    }
    line->count++;
    added->place = (uint32_t)(line->count - line->tape_base);
    clock.reached[command->queue] = line->count;
    *clock_of(builder, command->queue, line->count) = clock;
    return 0;
}

static bool any_beyond(const uint64_t needs[PLAN_Q_COUNT], int count)
{
    for (int q = 0; q < PLAN_Q_COUNT; q++) {
        count -= needs[q] != 0;
    }
    return count < 0;
}

/* Returns whether every command that must wait for the old access must also wait for the fresh
 * one. */
static bool superseded(const struct touch *old, const struct touch *fresh)
{
    bool covered = fresh->begin <= old->begin && old->end <= fresh->end;
    bool both_read = ((old->access | fresh->access) & PLAN_WRITES) == 0;
    return covered &&
           ((fresh->access & PLAN_WRITES) != 0 || (both_read && old->queue == fresh->queue));
}

static void forget(struct plan_builder *builder, struct history *history, const struct touch *fresh)
{
    uint32_t kept = 0;
    history->queue = fresh->queue;
    for (uint32_t t = 0; t < history->count; t++) {
        const struct touch *old = &history->touches[t];
        const bool retired = old->place <= builder->lines[old->queue].before_base;
        if (!retired && !superseded(old, fresh)) {
            history->queue = old->queue == history->queue ? old->queue : PLAN_Q_COUNT;
            history->touches[kept++] = *old;
        }
    }
    history->count = kept;
}

/* A long history is pruned only when its array is full, because pruning at each access would be
 * slow. Redundant accesses add no edges. */
static int remember(struct plan_builder *builder, const struct plan_operand *operand, uint8_t queue)
{
    enum { FEW = 64 };
    struct history *history = &builder->histories[operand->buffer];
    struct touch fresh = {.begin = operand->offset,
                          .end = operand->offset + operand->bytes,
                          .place = builder->lines[queue].count,
                          .queue = queue,
                          .access = operand->access};
    const bool full = history->count >= FEW && history->count == history->room;
    if (history->count < FEW || full) {
        forget(builder, history, &fresh);
    }
    if (history->queue != queue) {
        history->queue = PLAN_Q_COUNT;
    }
    const bool wide = full && history->count > history->room / 2;
    struct touch *touches = grow(history->touches, wide ? history->room : history->count,
                                 &history->room, sizeof *touches);
    if (touches == NULL) {
        return no_memory();
    }
    history->touches = touches;
    touches[history->count++] = fresh;
    return 0;
}

static int check_operands(const struct plan_builder *builder, const struct plan_command *command)
{
    assert(command->operand_count <= PLAN_OPERAND_MAX && command->queue < PLAN_Q_COUNT);
    for (uint32_t i = 0; i < command->operand_count; i++) {
        const struct plan_operand *operand = &command->operands[i];
        assert(operand->buffer < builder->buffer_count && operand->access != 0);
        const struct plan_buffer *buffer = &builder->buffers[operand->buffer];
        if (operand->bytes > buffer->bytes || operand->offset > buffer->bytes - operand->bytes) {
            return core_err_set(
                -ERANGE,
                "%s of block %u touches bytes %" PRIu64 " to %" PRIu64 " of %s, which has %" PRIu64,
                plan_op_name((enum plan_op)command->op), command->block, operand->offset,
                operand->offset + operand->bytes, buffer->name, buffer->bytes);
        }
    }
    return 0;
}

int plan_builder_add(struct plan_builder *builder, const struct plan_command *command)
{
    uint64_t needs[PLAN_Q_COUNT] = {0};
    int rc = check_operands(builder, command);
    if (rc != 0) {
        return rc;
    }
    collect_needs(builder, command, needs);
    reduce_needs(builder, command->queue, needs);
    while (any_beyond(needs, PLAN_EDGE_MAX)) {
        struct plan_command join = {.op = PLAN_JOIN,
                                    .queue = command->queue,
                                    .block = command->block,
                                    .micro = command->micro};
        rc = append(builder, &join, needs);
        if (rc != 0) {
            return rc;
        }
    }
    rc = append(builder, command, needs);
    for (uint32_t i = 0; rc == 0 && i < command->operand_count; i++) {
        rc = remember(builder, &command->operands[i], command->queue);
    }
    return rc;
}

static void hand_over(struct plan_builder *builder, struct plan_tape *out)
{
    *out = builder->tape;
    for (int q = 0; q < PLAN_Q_COUNT; q++) {
        out->queue_count[q] = (uint32_t)(builder->lines[q].count - builder->lines[q].tape_base);
    }
    builder->tape = (struct plan_tape){0};
    builder->tape_room = 0;
    builder->lent = false;
}

void plan_builder_end_in(struct plan_builder *builder, struct plan_tape *out)
{
    assert(builder->lent);
    hand_over(builder, out);
}

int plan_builder_end(struct plan_builder *builder, struct plan_tape *out)
{
    struct plan_tape tape;
    assert(!builder->lent);
    hand_over(builder, &tape);
    if (tape.commands == NULL) { /* a rank may own nothing */
        tape.commands = calloc(1, sizeof *tape.commands);
        if (tape.commands == NULL) {
            return core_err_set(-ENOMEM, "no memory for a tape");
        }
    }
    if (tape.count > 0) { /* tapes stay for the whole run */
        struct plan_command *exact = realloc(tape.commands, tape.count * sizeof *exact);
        tape.commands = exact != NULL ? exact : tape.commands;
    }
    *out = tape;
    return 0;
}
