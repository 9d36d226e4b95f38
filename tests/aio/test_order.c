/* test_order.c: priorities of queues, and the order of requests around a sync. */
#include <errno.h>
#include <string.h>

#include "tests/aio/rig.h"
#include "tests/harness/test.h"

static const int64_t patience_ns = 20000000000;

/* Of full queues on a shared drive, urgent ones advance faster, and others are not starved. The
 * drive is held until the queues are full. */
static void urgency_goes_first_and_none_starves(void)
{
    enum { PIECE = 64 << 10, COUNT = 400, DEPTH = 4, LOOK = 400 };
    static unsigned char memory[PIECE] __attribute__((aligned(4096)));
    static uint64_t offsets[DEPTH + LOOK];
    struct aio_fault fault = {.rules_count = 1,
                              .rules = {{.kind = AIO_FAULT_STALLED, .count = DEPTH}},
                              .offsets = offsets,
                              .offsets_max = DEPTH + LOOK};
    struct rig rig;
    struct aio_queue *queues[AIO_URGENCY_COUNT];
    struct core_fence last[AIO_URGENCY_COUNT];
    unsigned taken[AIO_URGENCY_COUNT] = {0};
    rig_open(&rig, &(struct rig_options){.backend = "mem",
                                         .fault = &fault,
                                         .bytes = 1 << 20,
                                         .drive = {.block_bytes = PIECE, .depth = DEPTH}});
    for (unsigned u = 0; u < AIO_URGENCY_COUNT; u++) {
        struct aio_queue_options options = {.urgency = (enum aio_urgency)u, .depth = COUNT};
        check_int(aio_queue_open(&rig.drive, 1, &options, &queues[u]), ==, 0);
    }
    for (unsigned i = 0; i < COUNT; i++) { /* the least urgent first */
        for (unsigned u = AIO_URGENCY_COUNT; u-- > 0;) {
            check_int(aio_queue_read(queues[u], rig.file, u * PIECE, memory, PIECE, &last[u]), ==,
                      0);
        }
    }
    aio_fault_release(&fault);
    for (unsigned u = 0; u < AIO_URGENCY_COUNT; u++) {
        check_int(core_fence_wait(last[u], patience_ns), ==, 0);
        check_int(aio_queue_close(queues[u]), ==, 0);
    }
    rig_close(&rig);
    for (unsigned i = DEPTH; i < DEPTH + LOOK; i++) {
        taken[offsets[i] / PIECE]++;
    }
    test_note("%u %u %u %u of %d", taken[0], taken[1], taken[2], taken[3], LOOK);
    check_uint(taken[0], >, 3 * taken[1]);
    check_uint(taken[1], >, 2 * taken[2]);
    check_uint(taken[2], >=, 1);
    check_uint(taken[2], >=, taken[3]);
}

static void syncs(void)
{
    for (const char *const *name = rig_backends(); *name != NULL; name++) {
        struct rig rig;
        struct core_fence fence;
        struct core_fence synced;
        unsigned char *memory = rig_memory(1 << 20);
        memset(memory, 1, 1 << 20);
        rig_open(&rig, &(struct rig_options){
                           .backend = *name, .bytes = 1 << 20, .drive = {.block_bytes = 1 << 16}});
        for (int i = 0; i < 20; i++) {
            check_int(aio_queue_write(rig.queue, rig.file, 0, memory, 1 << 20, &fence), ==, 0);
            check_int(aio_queue_sync(rig.queue, 0, rig.file, &synced), ==, 0);
            check_int(aio_queue_write(rig.queue, rig.file, 0, memory, 1 << 16, &fence), ==, 0);
            check_int(core_fence_wait(synced, patience_ns), ==, 0);
        }
        check_int(core_fence_wait(fence, patience_ns), ==, 0);
        check_int(aio_queue_sync(rig.queue, 1, rig.file, &synced), ==, -EINVAL);
        check_int(aio_queue_sync(rig.queue, 0, 5, &synced), ==, -EINVAL);
        rig_close(&rig);
        rig_free(memory);
    }
}

/* A sync waits for earlier writes of its queue, and later writes wait for the sync. Other queues do
 * not wait. */
static void sync_is_a_barrier(void)
{
    enum { BLOCK = 1 << 16, SYNC = 0, EARLIER = BLOCK, LATER = 2 * BLOCK, OTHER = 3 * BLOCK };
    static const struct {
        uint64_t stalled; /* offset of the operation that does not complete */
        uint64_t passed;  /* operations that the back end has received */
    } cases[] = {{EARLIER, 2}, {SYNC, 3}};
    unsigned char *memory = rig_memory(2 * BLOCK);
    memset(memory, 1, 2 * BLOCK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct aio_fault fault = {.rules_count = 1,
                                  .rules = {{.kind = AIO_FAULT_STALLED,
                                             .count = AIO_FAULT_FOREVER,
                                             .offset_from = cases[i].stalled,
                                             .offset_end = cases[i].stalled + 1}}};
        struct rig rig;
        struct aio_queue *queue = NULL;
        struct core_fence earlier;
        struct core_fence synced;
        struct core_fence later;
        struct core_fence other;
        rig_open(&rig, &(struct rig_options){.backend = "mem",
                                             .fault = &fault,
                                             .bytes = 1 << 20,
                                             .drive = {.block_bytes = BLOCK}});
        check_int(aio_queue_open(&rig.drive, 1, &(struct aio_queue_options){0}, &queue), ==, 0);
        check_int(aio_queue_write(rig.queue, rig.file, EARLIER, memory, BLOCK, &earlier), ==, 0);
        if (cases[i].stalled != EARLIER) {
            check_int(core_fence_wait(earlier, patience_ns), ==, 0);
        }
        check_int(aio_queue_sync(rig.queue, 0, rig.file, &synced), ==, 0);
        check_int(aio_queue_write(rig.queue, rig.file, LATER, memory, BLOCK, &later), ==, 0);
        check_int(aio_queue_read(queue, rig.file, OTHER, memory + BLOCK, BLOCK, &other), ==, 0);
        check_int(core_fence_wait(other, patience_ns), ==, 0);
        check_uint(fault.ops, ==, cases[i].passed);
        check_int(core_fence_poll(synced), ==, 0);
        check_int(core_fence_poll(later), ==, 0);
        aio_fault_release(&fault);
        check_int(core_fence_wait(later, patience_ns), ==, 0);
        check_int(core_fence_poll(synced), ==, 1);
        check_uint(fault.ops, ==, 4);
        check_int(aio_queue_close(queue), ==, 0);
        rig_close(&rig);
    }
    rig_free(memory);
}

TEST_MAIN({"urgency_goes_first_and_none_starves", urgency_goes_first_and_none_starves},
          {"syncs", syncs}, {"sync_is_a_barrier", sync_is_a_barrier})
