/* test_fail.c: failing allocations in devices, queues, measurements and arenas. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/dev/arena.h"
#include "core/dev/dev.h"
#include "tests/harness/fail_alloc.h"
#include "tests/harness/test.h"

static int queue_life(void)
{
    static unsigned char page[65536] __attribute__((aligned(65536)));
    struct dev_device *device = NULL;
    struct dev_queue *queue = NULL;
    void *memory = NULL;
    int rc = dev_open("cpu", &(struct dev_options){.memory_bytes = 1 << 16}, &device);
    if (rc != 0) {
        return rc;
    }
    struct dev_queue_options options = {.threads = 3, .scratch_bytes = 100};
    rc = dev_queue_create(device, &options, &queue);
    if (rc == 0) {
        rc = dev_memory_alloc(device, 100, &memory);
    }
    if (rc == 0) {
        rc = dev_host_register(device, page, sizeof page);
    }
    struct dev_memory report;
    dev_queue_destroy(queue);
    dev_memory_free(device, memory);
    dev_memory_report(device, &report);
    dev_close(device);
    return report.used_bytes == 0 ? rc : core_err_set(-EBADMSG, "memory is left");
}

static int rates_life(void)
{
    struct dev_device *device = NULL;
    struct dev_rates rates;
    int rc = dev_open("cpu", &(struct dev_options){.memory_bytes = 1 << 16}, &device);
    if (rc == 0) {
        rc = dev_rates_measure(device, 4096, &rates);
    }
    dev_close(device);
    return rc;
}

/* ---- an arena over a source ---- */

enum { SLOTS = 8, SLOT_BYTES = 8 * DEV_ALIGN_BYTES };

/* Memory of an arena: slots that are given out of order. */
static struct {
    unsigned char slots[SLOTS][SLOT_BYTES] __attribute__((aligned(DEV_ALIGN_BYTES)));
    void *taken[SLOTS]; /* owned; NULL: the slot is free */
    size_t count;
} source;

static int take(void *context, size_t bytes, void **out)
{
    static const size_t order[SLOTS] = {5, 2, 7, 0, 3, 6, 1, 4};
    size_t at = 0;
    check_true(context == &source && bytes <= SLOT_BYTES && source.count < SLOTS);
    while (source.taken[order[at]] != NULL) {
        at++;
    }
    source.taken[order[at]] = malloc(1);
    if (source.taken[order[at]] == NULL) {
        return core_err_set(-ENOMEM, "the source has no memory");
    }
    source.count++;
    *out = source.slots[order[at]];
    return 0;
}

static void give(void *context, void *memory)
{
    const size_t slot = (size_t)((unsigned char *)memory - source.slots[0]) / SLOT_BYTES;
    check_true(context == &source && memory == source.slots[slot]);
    check_true(source.taken[slot] != NULL);
    free(source.taken[slot]);
    source.taken[slot] = NULL;
    source.count--;
}

static void arena_begin(struct dev_arena *arena)
{
    const struct dev_arena_source from = {.alloc = take, .free = give, .context = &source};
    dev_arena_init_source(arena, &from, 10 * DEV_ALIGN_BYTES + 7);
}

/* An arena allocates its parts from the source and frees them at the end. */
static void parts_of_a_source(void)
{
    struct dev_arena arena;
    struct dev_memory memory;
    void *parts[6];
    void *none = NULL;
    arena_begin(&arena);
    for (size_t i = 0; i < 6; i++) {
        check_int(dev_arena_alloc(&arena, DEV_ALIGN_BYTES - i, &parts[i]), ==, 0);
    }
    check_uint(source.count, ==, 6);
    check_int(dev_arena_alloc(&arena, 4 * DEV_ALIGN_BYTES + 1, &none), ==, -ENOMEM);
    check_contains(core_err_message(), "do not fit");
    check_int(dev_arena_alloc(&arena, SIZE_MAX, &none), ==, -ENOMEM);
    check_true(none == NULL && source.count == 6);
    dev_arena_report(&arena, &memory);
    check_uint(memory.budget_bytes, ==, 10 * DEV_ALIGN_BYTES);
    check_uint(memory.used_bytes, ==, 6 * DEV_ALIGN_BYTES);
    check_uint(memory.largest_bytes, ==, 4 * DEV_ALIGN_BYTES);
    for (size_t i = 0; i < 6; i++) {
        const char *part = parts[i];
        check_true(dev_arena_holds(&arena, part, DEV_ALIGN_BYTES));
        check_true(dev_arena_holds(&arena, part + 9, DEV_ALIGN_BYTES - 9));
        check_true(!dev_arena_holds(&arena, part + 9, DEV_ALIGN_BYTES));
    }
    check_true(!dev_arena_holds(&arena, NULL, 1));
    check_true(!dev_arena_holds(&arena, (void *)UINTPTR_MAX, 0));
    dev_arena_free(&arena, parts[2]);
    dev_arena_free(&arena, parts[5]);
    dev_arena_free(&arena, parts[0]);
    check_uint(source.count, ==, 3);
    check_true(dev_arena_holds(&arena, parts[1], 1) && dev_arena_holds(&arena, parts[4], 1));
    check_int(dev_arena_alloc(&arena, 7 * DEV_ALIGN_BYTES, &parts[0]), ==, 0);
    dev_arena_report(&arena, &memory);
    check_uint(memory.used_bytes, ==, 10 * DEV_ALIGN_BYTES);
    check_uint(memory.count, ==, 4);
    dev_arena_fini(&arena);
    check_uint(source.count, ==, 0);
}

static int arena_life(void)
{
    struct dev_arena arena;
    void *part = NULL;
    arena_begin(&arena);
    int rc = dev_arena_alloc(&arena, 100, &part);
    if (rc == 0) {
        rc = dev_arena_alloc(&arena, 100, &part);
    }
    dev_arena_fini(&arena);
    return rc;
}

static void failing_allocations(void)
{
    check_int(test_fail_nth(queue_life), >=, 8);
    check_int(test_fail_nth(rates_life), >=, 8);
    check_int(test_fail_nth(arena_life), ==, 3);
}

TEST_MAIN({"parts_of_a_source", parts_of_a_source}, {"failing_allocations", failing_allocations})
