/* Proves that edges follow from accesses. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/rng.h"
#include "offload/plan/builder.h"
#include "tests/harness/test.h"

static const struct plan_buffer buffers[] = {
    {.name = "a", .bytes = 100, .tier = PLAN_HOST},
    {.name = "b", .bytes = 100, .tier = PLAN_DEVICE},
    {.name = "c", .bytes = 100, .tier = PLAN_DEVICE},
    {.name = "d", .bytes = 100, .tier = PLAN_DEVICE},
    {.name = "e", .bytes = 100, .tier = PLAN_DEVICE},
};

static struct plan_builder *builder_of(void)
{
    struct plan_builder *builder = NULL;
    check_int(plan_builder_create(buffers, sizeof buffers / sizeof buffers[0], &builder), ==, 0);
    plan_builder_begin(builder);
    return builder;
}

static struct plan_operand part(uint32_t buffer, enum plan_access access, uint64_t offset,
                                uint64_t bytes)
{
    return (struct plan_operand){
        .buffer = buffer, .access = (uint8_t)access, .offset = offset, .bytes = bytes};
}

static void add(struct plan_builder *builder, enum plan_queue queue, struct plan_operand one,
                struct plan_operand two)
{
    struct plan_command command = {.op = PLAN_H2D, .queue = (uint8_t)queue};
    command.operands[command.operand_count++] = one;
    if (two.access != 0) {
        command.operands[command.operand_count++] = two;
    }
    check_int(plan_builder_add(builder, &command), ==, 0);
}

static const struct plan_operand nothing;

static int edges_of(const struct plan_command *command)
{
    int count = 0;
    for (int e = 0; e < PLAN_EDGE_MAX; e++) {
        count += command->edges[e].queue != PLAN_Q_COUNT;
    }
    return count;
}

static void check_edge(const struct plan_command *command, int e, enum plan_queue queue, int count)
{
    check_int(command->edges[e].queue, ==, queue);
    check_int(command->edges[e].count, ==, count);
}

/* Two reads of a drive into one place need an edge although they are on one queue; two copies do
 * not. */
static void transfers_of_a_queue_overlap(void)
{
    struct plan_builder *builder = builder_of();
    struct plan_tape tape;
    for (int i = 0; i < 2; i++) {
        add(builder, PLAN_Q_READ_STATE, part(0, PLAN_WRITES, 0, 50), nothing);
        add(builder, PLAN_Q_UP, part(1, PLAN_WRITES, 0, 50), nothing);
    }
    add(builder, PLAN_Q_READ_STATE, part(0, PLAN_WRITES, 50, 50), nothing);
    check_int(plan_builder_end(builder, &tape), ==, 0);
    check_edge(&tape.commands[2], 0, PLAN_Q_READ_STATE, 1);
    check_int(edges_of(&tape.commands[3]), ==, 0);
    check_int(edges_of(&tape.commands[4]), ==, 0);
    plan_tape_fini(&tape);
    plan_builder_destroy(builder);
}

/* Conflicting accesses need an edge; two reads, and ranges without overlap, do not. */
static void conflicts_make_edges(void)
{
    struct plan_builder *builder = builder_of();
    add(builder, PLAN_Q_UP, part(0, PLAN_WRITES, 0, 50), nothing);
    add(builder, PLAN_Q_COMPUTE, part(0, PLAN_READS, 10, 10), nothing);
    add(builder, PLAN_Q_DOWN, part(0, PLAN_READS, 0, 50), nothing);
    add(builder, PLAN_Q_UPDATE, part(0, PLAN_READS, 50, 50), nothing);
    add(builder, PLAN_Q_COLL, part(0, PLAN_WRITES, 0, 100), nothing);
    struct plan_tape tape;
    check_int(plan_builder_end(builder, &tape), ==, 0);
    check_int(tape.count, ==, 5);
    check_int(edges_of(&tape.commands[0]), ==, 0);
    check_int(edges_of(&tape.commands[1]), ==, 1);
    check_edge(&tape.commands[1], 0, PLAN_Q_UP, 1);
    check_edge(&tape.commands[2], 0, PLAN_Q_UP, 1);
    check_int(edges_of(&tape.commands[3]), ==, 0);
    /* the edges to the readers imply the edge to the first write */
    check_int(edges_of(&tape.commands[4]), ==, 3);
    check_edge(&tape.commands[4], 0, PLAN_Q_COMPUTE, 1);
    check_edge(&tape.commands[4], 1, PLAN_Q_DOWN, 1);
    check_edge(&tape.commands[4], 2, PLAN_Q_UPDATE, 1);
    plan_tape_fini(&tape);
    plan_builder_destroy(builder);
}

/* Order that follows from a queue or from other edges needs no edge. */
static void implied_edges_are_left_out(void)
{
    struct plan_builder *builder = builder_of();
    add(builder, PLAN_Q_UP, part(0, PLAN_WRITES, 0, 100), nothing);
    add(builder, PLAN_Q_UP, part(0, PLAN_CHANGES, 0, 100), nothing);
    add(builder, PLAN_Q_COMPUTE, part(0, PLAN_READS, 0, 100), part(1, PLAN_WRITES, 0, 100));
    add(builder, PLAN_Q_DOWN, part(0, PLAN_READS, 0, 100), part(1, PLAN_READS, 0, 100));
    add(builder, PLAN_Q_COMPUTE, part(0, PLAN_READS, 0, 100), nothing);
    struct plan_tape tape;
    check_int(plan_builder_end(builder, &tape), ==, 0);
    check_int(edges_of(&tape.commands[1]), ==, 0);
    check_int(edges_of(&tape.commands[3]), ==, 1);
    check_edge(&tape.commands[3], 0, PLAN_Q_COMPUTE, 1);
    check_int(edges_of(&tape.commands[4]), ==, 0);
    check_int(tape.queue_count[PLAN_Q_COMPUTE], ==, 2);
    check_int(tape.commands[4].place, ==, 2);
    plan_tape_fini(&tape);
    plan_builder_destroy(builder);
}

/* A join takes three edges of a command with more than three. */
static void joins_take_the_rest(void)
{
    struct plan_builder *builder = builder_of();
    const enum plan_queue queues[] = {PLAN_Q_UP, PLAN_Q_DOWN, PLAN_Q_COLL, PLAN_Q_UPDATE,
                                      PLAN_Q_READ_ACT};
    for (uint32_t i = 0; i < 5; i++) {
        add(builder, queues[i], part(i, PLAN_WRITES, 0, 100), nothing);
    }
    struct plan_command command = {.op = PLAN_FWD, .queue = PLAN_Q_COMPUTE};
    for (uint32_t i = 0; i < 5; i++) {
        command.operands[command.operand_count++] = part(i, PLAN_READS, 0, 100);
    }
    check_int(plan_builder_add(builder, &command), ==, 0);
    struct plan_tape tape;
    check_int(plan_builder_end(builder, &tape), ==, 0);
    check_int(tape.count, ==, 7);
    check_int(tape.commands[5].op, ==, PLAN_JOIN);
    check_int(edges_of(&tape.commands[5]), ==, 3);
    check_int(edges_of(&tape.commands[6]), ==, 2);
    check_int(tape.commands[6].place, ==, 2);
    plan_tape_fini(&tape);
    plan_builder_destroy(builder);
}

/* Numbers of blocks and buffers beyond 16 bits stay distinct. */
static void numbers_are_wide(void)
{
    enum { MANY = 66000, FAR = 65536 + 7 };
    struct plan_buffer *many = calloc(MANY, sizeof *many);
    struct plan_builder *builder = NULL;
    struct plan_tape tape;
    check_true(many != NULL);
    for (uint32_t i = 0; i < MANY; i++) {
        many[i] = (struct plan_buffer){.bytes = 100, .tier = PLAN_HOST};
    }
    check_int(plan_builder_create(many, MANY, &builder), ==, 0);
    plan_builder_begin(builder);
    struct plan_command write = {.op = PLAN_H2D, .queue = PLAN_Q_UP, .block = FAR};
    write.operands[write.operand_count++] = part(FAR, PLAN_WRITES, 0, 100);
    check_int(plan_builder_add(builder, &write), ==, 0);
    add(builder, PLAN_Q_COMPUTE, part(FAR - 65536, PLAN_READS, 0, 100), nothing);
    add(builder, PLAN_Q_COMPUTE, part(FAR, PLAN_READS, 0, 100), nothing);
    check_int(plan_builder_end(builder, &tape), ==, 0);
    check_uint(tape.commands[0].block, ==, FAR);
    check_int(edges_of(&tape.commands[1]), ==, 0);
    check_int(edges_of(&tape.commands[2]), ==, 1);
    plan_tape_fini(&tape);
    plan_builder_destroy(builder);
    free(many);
}

/* Edges to the previous tape count back from that tape's end; older tapes need none. */
static void edges_cross_one_border(void)
{
    struct plan_builder *builder = builder_of();
    struct plan_tape tape;
    add(builder, PLAN_Q_UP, part(0, PLAN_WRITES, 0, 100), nothing);
    add(builder, PLAN_Q_UP, part(1, PLAN_WRITES, 0, 100), nothing);
    check_int(plan_builder_end(builder, &tape), ==, 0);
    plan_tape_fini(&tape);
    plan_builder_begin(builder);
    add(builder, PLAN_Q_COMPUTE, part(0, PLAN_READS, 0, 100), nothing);
    add(builder, PLAN_Q_COMPUTE, part(1, PLAN_READS, 0, 100), nothing);
    check_int(plan_builder_end(builder, &tape), ==, 0);
    check_edge(&tape.commands[0], 0, PLAN_Q_UP, -1);
    check_edge(&tape.commands[1], 0, PLAN_Q_UP, 0);
    plan_tape_fini(&tape);
    plan_builder_begin(builder);
    add(builder, PLAN_Q_DOWN, part(0, PLAN_READS, 0, 100), nothing);
    check_int(plan_builder_end(builder, &tape), ==, 0);
    check_int(edges_of(&tape.commands[0]), ==, 0);
    plan_tape_fini(&tape);
    plan_builder_destroy(builder);
}

/* Many writes of separate places need one edge: a read of the whole buffer waits for the last
 * write. */
static void many_places(void)
{
    enum { MANY = 1000, TAPES = 3 };
    const struct plan_buffer wide = {.name = "wide", .bytes = MANY * UINT64_C(8)};
    struct plan_builder *builder = NULL;
    struct plan_tape tape;
    check_int(plan_builder_create(&wide, 1, &builder), ==, 0);
    for (int t = 0; t < TAPES; t++) {
        plan_builder_begin(builder);
        for (uint64_t i = MANY; i-- > 0;) {
            add(builder, PLAN_Q_UPDATE, part(0, PLAN_WRITES, i * 8, 8), nothing);
        }
        add(builder, PLAN_Q_COMPUTE, part(0, PLAN_READS, 0, wide.bytes), nothing);
        check_int(plan_builder_end(builder, &tape), ==, 0);
        check_uint(tape.count, ==, MANY + 1);
        if (t > 0) {
            check_edge(&tape.commands[0], 0, PLAN_Q_COMPUTE, 0);
        }
        for (uint32_t i = t > 0; i < MANY; i++) {
            check_int(edges_of(&tape.commands[i]), ==, 0);
        }
        check_int(edges_of(&tape.commands[MANY]), ==, 1);
        check_edge(&tape.commands[MANY], 0, PLAN_Q_UPDATE, MANY);
        plan_tape_fini(&tape);
    }
    plan_builder_destroy(builder);
}

/* ---- commands at random ---- */

enum { DRAWN = 600, DRAWN_TAPES = 3, ALL = DRAWN * DRAWN_TAPES, PLACES = 200 };

static struct drawn {
    uint64_t begin, end;
    enum plan_queue queue;
    bool writes;
    int64_t place;                 /* in its queue, counted over all tapes */
    int64_t reached[PLAN_Q_COUNT]; /* how far the queues are when the command starts */
} drawn[ALL];

static void draw_all(uint64_t seed)
{
    static const enum plan_queue queues[] = {PLAN_Q_COMPUTE, PLAN_Q_UPDATE, PLAN_Q_READ_STATE};
    for (uint32_t i = 0; i < ALL; i++) {
        const struct core_rng_words random = core_rng_philox(seed, 0, i);
        const uint64_t begin = random.word[0] % PLACES;
        const uint64_t most = random.word[3] % 16 == 0 ? PLACES - begin : 3;
        const uint64_t end = begin + 1 + random.word[1] % most;
        drawn[i] = (struct drawn){.begin = begin,
                                  .end = end < PLACES ? end : PLACES,
                                  .queue = queues[random.word[2] % 3],
                                  .writes = random.word[2] / 3 % 2 == 0};
    }
}

static void raise(int64_t reached[PLAN_Q_COUNT], const int64_t more[PLAN_Q_COUNT])
{
    for (int q = 0; q < PLAN_Q_COUNT; q++) {
        reached[q] = more[q] > reached[q] ? more[q] : reached[q];
    }
}

/* Records how far each queue is guaranteed to be, by edges and by the order of queues, when the
 * command starts. Commands on a drive's queue overlap. `base`: commands of earlier tapes. */
static void follow_edges(uint32_t index, const struct plan_command *command,
                         const int64_t base[PLAN_Q_COUNT])
{
    struct drawn *of = &drawn[index];
    of->place = base[of->queue] + command->place;
    for (uint32_t j = 0; j < index; j++) {
        const struct drawn *before = &drawn[j];
        bool ended = before->queue == of->queue && of->queue != PLAN_Q_READ_STATE;
        for (int e = 0; e < PLAN_EDGE_MAX; e++) {
            const struct plan_edge *edge = &command->edges[e];
            ended = ended || (edge->queue == before->queue &&
                              base[edge->queue] + edge->count >= before->place);
        }
        if (ended || before->queue == of->queue) {
            raise(of->reached, before->reached);
        }
        if (ended && before->place > of->reached[before->queue]) {
            of->reached[before->queue] = before->place;
        }
    }
}

static void check_order(uint32_t index)
{
    const struct drawn *of = &drawn[index];
    for (uint32_t j = index / DRAWN > 0 ? (index / DRAWN - 1) * DRAWN : 0; j < index; j++) {
        const struct drawn *before = &drawn[j];
        const bool overlap = before->begin < of->end && of->begin < before->end;
        if (overlap && (before->writes || of->writes)) {
            check_int(of->reached[before->queue], >=, before->place);
        }
    }
}

/* Random commands that conflict are ordered, in one tape and in two consecutive ones. */
static void random_conflicts_are_ordered(void)
{
    const struct plan_buffer wide = {.name = "wide", .bytes = PLACES};
    for (uint64_t seed = 0; seed < TEST_COUNT(8, 2); seed++) {
        struct plan_builder *builder = NULL;
        int64_t base[PLAN_Q_COUNT] = {0};
        check_int(plan_builder_create(&wide, 1, &builder), ==, 0);
        draw_all(seed);
        for (uint32_t t = 0; t < DRAWN_TAPES; t++) {
            struct plan_tape tape;
            plan_builder_begin(builder);
            for (uint32_t i = t * DRAWN; i < (t + 1) * DRAWN; i++) {
                add(builder, drawn[i].queue,
                    part(0, drawn[i].writes ? PLAN_WRITES : PLAN_READS, drawn[i].begin,
                         drawn[i].end - drawn[i].begin),
                    nothing);
            }
            check_int(plan_builder_end(builder, &tape), ==, 0);
            check_uint(tape.count, ==, DRAWN); /* no joins */
            for (uint32_t i = 0; i < DRAWN; i++) {
                follow_edges(t * DRAWN + i, &tape.commands[i], base);
                check_order(t * DRAWN + i);
            }
            for (int q = 0; q < PLAN_Q_COUNT; q++) {
                base[q] += tape.queue_count[q];
            }
            plan_tape_fini(&tape);
        }
        plan_builder_destroy(builder);
    }
}

static void operands_stay_inside(void)
{
    struct plan_builder *builder = builder_of();
    struct plan_command command = {.op = PLAN_FWD, .queue = PLAN_Q_COMPUTE, .operand_count = 1};
    command.operands[0] = part(1, PLAN_READS, 60, 41);
    check_int(plan_builder_add(builder, &command), ==, -ERANGE);
    check_contains(core_err_message(), "FWD of block 0 touches bytes 60 to 101 of b");
    command.operands[0] = part(1, PLAN_READS, 2, UINT64_MAX);
    check_int(plan_builder_add(builder, &command), ==, -ERANGE);
    plan_builder_destroy(builder);
    plan_builder_destroy(NULL);
}

/* Bytes that a tape moves are counted by direction. */
static void traffic(void)
{
    struct plan_command commands[] = {
        {.op = PLAN_READ, .bytes = 1},    {.op = PLAN_WRITE, .bytes = 2},
        {.op = PLAN_H2D, .bytes = 4},     {.op = PLAN_D2H, .bytes = 8},
        {.op = PLAN_READ, .bytes = 16},   {.op = PLAN_GATHER, .bytes = 32},
        {.op = PLAN_REDUCE, .bytes = 64},
    };
    const struct plan_tape tape = {.commands = commands,
                                   .count = sizeof commands / sizeof commands[0]};
    const struct plan_traffic once = plan_tape_traffic(&tape);
    struct plan_traffic sum = once;
    check_uint(once.store_read_bytes, ==, 17);
    check_uint(once.store_write_bytes, ==, 2);
    check_uint(once.up_bytes, ==, 4);
    check_uint(once.down_bytes, ==, 8);
    check_uint(once.gather_bytes, ==, 32);
    check_uint(once.reduce_bytes, ==, 64);
    plan_traffic_add(&sum, &once);
    check_uint(sum.store_read_bytes, ==, 34);
    check_uint(sum.store_write_bytes, ==, 4);
    check_uint(sum.up_bytes, ==, 8);
    check_uint(sum.down_bytes, ==, 16);
    check_uint(sum.gather_bytes, ==, 64);
    check_uint(sum.reduce_bytes, ==, 128);
}

TEST_MAIN({"transfers_of_a_queue_overlap", transfers_of_a_queue_overlap}, {"traffic", traffic},
          {"conflicts_make_edges", conflicts_make_edges},
          {"implied_edges_are_left_out", implied_edges_are_left_out},
          {"joins_take_the_rest", joins_take_the_rest}, {"numbers_are_wide", numbers_are_wide},
          {"edges_cross_one_border", edges_cross_one_border}, {"many_places", many_places},
          {"random_conflicts_are_ordered", random_conflicts_are_ordered},
          {"operands_stay_inside", operands_stay_inside})
