/* test_faults.c: if a drive fails, only operations that need the drive fail. */
#include <errno.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/err.h"
#include "tests/cache/case.h"
#include "tests/harness/heard.h"

enum { BLOCKS = 12, BYTES = 96 << 10 };

struct tally {
    unsigned failures;
    uint64_t operations;
};

/* Counts a failure and checks that its message names the block. */
static bool did(struct tally *tally, int rc, unsigned block)
{
    if (rc == 0) {
        return true;
    }
    tally->failures++;
    check_contains(core_err_message(), case_name(block));
    check_true(rc == -EBADF || rc == -ENOMEM);
    return false;
}

static struct tally life(struct aio_fault *fault)
{
    static unsigned char *memory;
    struct tally tally = {.failures = 0};
    uint64_t versions[BLOCKS] = {0};
    memory = memory != NULL ? memory : case_memory(BYTES);
    struct cache *cache = case_open(
        &(struct cache_case){.host_bytes = 4 * BYTES, .store_bytes = 8 * MIB, .fault = fault});
    for (uint64_t version = 1; version <= 2; version++) {
        for (unsigned i = 0; i < BLOCKS; i++) {
            case_fill(memory, BYTES, i, version);
            if (did(&tally, case_put(cache, i, memory, BYTES, i % 3 == 0), i)) {
                versions[i] = version;
            }
        }
    }
    for (unsigned turn = 0; turn < 3; turn++) {
        for (unsigned i = 0; i < BLOCKS; i++) {
            struct cache_result result = {.data = NULL};
            if (versions[i] == 0) {
                check_int(case_get(cache, i, memory, BYTES, NULL), ==, -ENOENT);
            } else if (did(&tally, case_get(cache, i, turn == 1 ? NULL : memory, BYTES, &result),
                           i)) {
                check_true(case_has(result.data, BYTES, i, versions[i]));
                if (turn == 1) {
                    check_int(cache_release(cache, case_name(i), false), ==, 0);
                }
            }
        }
    }
    tally.operations = atomic_load(&fault->ops);
    check_int(cache_destroy(cache), ==, 0);
    return tally;
}

/* A failing transfer fails at most one operation. */
static void each_transfer_fails_once(void)
{
    struct aio_fault clean = {.rules_count = 0};
    const struct tally none = life(&clean);
    check_uint(none.failures, ==, 0);
    check_uint(none.operations, >=, 40);
    uint64_t failed = 0;
    for (uint64_t n = 1; n <= none.operations; n += TEST_STRIDE(5)) {
        struct aio_fault fault = {
            .rules_count = 1, .rules = {{.kind = AIO_FAULT_ERROR, .from = n, .argument = EBADF}}};
        const struct tally tally = life(&fault);
        check_uint(tally.failures, <=, 1);
        check_uint(atomic_load(&fault.hits[AIO_FAULT_ERROR]), ==, 1);
        failed += tally.failures;
    }
    check_uint(failed, >=, 1);
}

/* A failing transfer does not fail others in flight. */
static void others_in_flight_succeed(void)
{
    enum { WRONG = 5 };
    unsigned char *memory = case_memory(BLOCKS * BYTES);
    struct aio_fault fault = {.rules_count = 0};
    uint64_t tokens[BLOCKS];
    struct cache *cache = case_open(
        &(struct cache_case){.host_bytes = MIB, .store_bytes = 8 * MIB, .fault = &fault});
    for (unsigned i = 0; i < BLOCKS; i++) {
        case_fill(memory, BYTES, i, 1);
        check_int(case_put(cache, i, memory, BYTES, true), ==, 0);
    }
    /* The drive returns wrong bytes for one extent. */
    fault.rules[0] = (struct aio_fault_rule){.kind = AIO_FAULT_CORRUPT,
                                             .count = AIO_FAULT_FOREVER,
                                             .offset_from = WRONG * BYTES,
                                             .offset_end = WRONG * BYTES + 1};
    fault.rules_count = 1;
    for (unsigned turn = 0; turn < 2; turn++) {
        for (unsigned i = 0; i < BLOCKS; i++) {
            check_int(cache_get(cache,
                                &(struct cache_request){
                                    .name = case_name(i), .to = memory + i * BYTES, .bytes = BYTES},
                                &tokens[i]),
                      ==, 0);
        }
        for (unsigned i = 0; i < BLOCKS; i++) {
            check_int(cache_wait(cache, tokens[i], NULL), ==, i == WRONG ? -EBADMSG : 0);
            if (i == WRONG) {
                check_contains(core_err_message(), "block 5: ");
                check_contains(core_err_message(), "checksum");
            } else {
                check_true(case_has(memory + i * BYTES, BYTES, i, 1));
            }
        }
    }
    struct cache_result result;
    check_int(case_get(cache, WRONG, NULL, 0, &result), ==, -EBADMSG);
    fault.rules_count = 0;
    check_int(case_get(cache, WRONG, NULL, 0, &result), ==, 0);
    check_true(case_has(result.data, BYTES, WRONG, 1));
    check_int(cache_destroy(cache), ==, 0);
}

/* A get is served before background gets that began earlier. The drive fails after three
 * transfers. */
static void background_gets_wait(void)
{
    unsigned char *memory = case_memory(BLOCKS * BYTES);
    struct aio_fault fault = {.rules_count = 0};
    uint64_t tokens[BLOCKS];
    struct cache *cache = case_open(&(struct cache_case){
        .host_bytes = MIB, .store_bytes = 8 * MIB, .fault = &fault, .depth = 1});
    for (unsigned i = 0; i < BLOCKS; i++) {
        case_fill(memory, BYTES, i, 1);
        check_int(case_put(cache, i, memory, BYTES, true), ==, 0);
    }
    fault.rules[0] = (struct aio_fault_rule){.kind = AIO_FAULT_STALLED, .from = BLOCKS + 1};
    fault.rules[1] = (struct aio_fault_rule){
        .kind = AIO_FAULT_ERROR, .from = BLOCKS + 4, .count = AIO_FAULT_FOREVER, .argument = EBADF};
    fault.rules_count = 2;
    for (unsigned i = 0; i < BLOCKS; i++) {
        check_int(cache_get(cache,
                            &(struct cache_request){.name = case_name(i),
                                                    .to = memory + i * BYTES,
                                                    .bytes = BYTES,
                                                    .background = i + 1 < BLOCKS},
                            &tokens[i]),
                  ==, 0);
    }
    aio_fault_release(&fault);
    check_int(cache_wait(cache, tokens[BLOCKS - 1], NULL), ==, 0);
    check_true(case_has(memory + (BLOCKS - 1) * BYTES, BYTES, BLOCKS - 1, 1));
    check_int(cache_wait(cache, tokens[BLOCKS - 2], NULL), ==, -EBADF);
    check_int(cache_destroy(cache), ==, 0);
}

/* A dead drive leaves blocks in memory readable. */
static void dead_drive(void)
{
    unsigned char *memory = case_memory(BYTES);
    struct aio_fault fault = {.rules_count = 0};
    struct cache *cache = case_open(
        &(struct cache_case){.host_bytes = 4 * BYTES, .store_bytes = 8 * MIB, .fault = &fault});
    for (unsigned i = 0; i < 8; i++) {
        case_fill(memory, BYTES, i, 1);
        check_int(case_put(cache, i, memory, BYTES, i < 4), ==, 0);
    }
    fault.rules[0] = (struct aio_fault_rule){
        .kind = AIO_FAULT_ERROR, .count = AIO_FAULT_FOREVER, .argument = ENODEV};
    fault.rules_count = 1;
    test_listen(CORE_LOG_WARN);
    for (unsigned turn = 0; turn < 2; turn++) {
        for (unsigned i = 0; i < 8; i++) {
            const int rc = case_get(cache, i, memory, BYTES, NULL);
            check_int(rc, ==, i < 4 ? -ENODEV : 0);
            if (rc == 0) {
                check_true(case_has(memory, BYTES, i, 1));
            } else {
                check_contains(core_err_message(), case_name(i));
            }
        }
        check_int(case_put(cache, 9, memory + 1, BYTES - 1, false), ==, -ENODEV);
        check_contains(core_err_message(), "block 9: 98304 bytes of host memory are needed");
        check_int(case_put(cache, 9, memory, BYTES, true), ==, -ENODEV);
        check_int(case_get(cache, 9, memory, BYTES, NULL), ==, -ENOENT);
    }
    case_fill(memory, BYTES, 5, 2);
    check_int(case_put(cache, 5, memory, BYTES, false), ==, 0);
    check_int(case_drop(cache, 6), ==, 0);
    check_int(case_put(cache, 9, memory, BYTES, false), ==, 0);
    check_int(case_get(cache, 5, memory, BYTES, NULL), ==, 0);
    check_true(case_has(memory, BYTES, 5, 2));
    test_listen_end();
    fault.rules_count = 0; /* the drive recovers */
    (void)case_put(cache, 10, memory + 1, BYTES - 1, false);
    check_int(case_put(cache, 10, memory + 1, BYTES - 1, false), ==, 0);
    check_int(case_get(cache, 2, memory, BYTES, NULL), ==, 0);
    check_true(case_has(memory, BYTES, 2, 1));
    check_int(case_get(cache, 5, memory, BYTES, NULL), ==, 0);
    check_true(case_has(memory, BYTES, 5, 2));
    check_int(cache_destroy(cache), ==, 0);
}

/* A cache can be destroyed with operations in flight. */
static void destroyed_in_flight(void)
{
    unsigned char *memory = case_memory(BLOCKS * BYTES);
    for (unsigned i = 0; i < TEST_COUNT(60, 20); i++) {
        struct aio_fault fault = {
            .seed = i, .rules_count = 1, .rules = {{.kind = AIO_FAULT_LATE, .one_in = 2}}};
        struct cache *cache = case_open(
            &(struct cache_case){.host_bytes = 3 * BYTES, .store_bytes = 8 * MIB, .fault = &fault});
        for (unsigned n = 0; n < BLOCKS + i; n++) {
            uint64_t token;
            const struct cache_request request = {.name = case_name(n % BLOCKS),
                                                  .from = memory + n % BLOCKS * BYTES,
                                                  .to = memory + n % BLOCKS * BYTES,
                                                  .bytes = BYTES,
                                                  .through = n % 2 == 0};
            (void)(n % 5 == 4 ? cache_get(cache, &request, &token)
                              : cache_put(cache, &request, &token));
        }
        check_int(cache_destroy(cache), ==, 0);
    }
}

TEST_MAIN({"each_transfer_fails_once", each_transfer_fails_once},
          {"others_in_flight_succeed", others_in_flight_succeed}, {"dead_drive", dead_drive},
          {"background_gets_wait", background_gets_wait},
          {"destroyed_in_flight", destroyed_in_flight})
