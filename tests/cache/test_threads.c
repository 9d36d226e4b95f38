/* test_threads.c: several threads use one cache. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "tests/cache/case.h"

enum { THREADS = 4, BYTES = 40 << 10, OWN = 6 };

struct worker {
    struct cache *cache;
    unsigned index;
    unsigned char *memory;
    const char *failure;
    unsigned line;
};

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            worker->failure = #condition;                                                          \
            worker->line = __LINE__;                                                               \
            return NULL;                                                                           \
        }                                                                                          \
    } while (0)

static void run_workers(struct cache *cache, void *(*run)(void *))
{
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.cache = cache, .index = i, .memory = case_memory(BYTES)};
        check_int(pthread_create(&threads[i], NULL, run, &workers[i]), ==, 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        check_int(pthread_join(threads[i], NULL), ==, 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        if (workers[i].failure != NULL) {
            test_fail(__FILE__, (int)workers[i].line, "%s", workers[i].failure);
        }
    }
}

/* Uses blocks of this thread. */
static void *work(void *argument)
{
    struct worker *worker = argument;
    uint64_t versions[OWN] = {0};
    uint64_t seed = worker->index;
    for (unsigned n = 0; n < TEST_COUNT(1500, 200); n++) {
        const unsigned own = (unsigned)case_random(&seed, OWN);
        const unsigned block = worker->index * OWN + own;
        struct cache_result result = {.data = NULL};
        if (versions[own] == 0 || case_random(&seed, 3) == 0) {
            versions[own] = n + 1;
            case_fill(worker->memory, BYTES, block, n + 1);
            EXPECT(case_put(worker->cache, block, worker->memory, BYTES,
                            case_random(&seed, 2) == 0) == 0);
        }
        if (case_random(&seed, 2) == 0) {
            EXPECT(case_get(worker->cache, block, worker->memory, BYTES, &result) == 0);
            EXPECT(case_has(worker->memory, BYTES, block, versions[own]));
        } else {
            EXPECT(case_get(worker->cache, block, NULL, 0, &result) == 0);
            EXPECT(case_has(result.data, BYTES, block, versions[own]));
            const bool changes = case_random(&seed, 2) == 0;
            if (changes) {
                versions[own] = n + 100000;
                case_fill(result.data, BYTES, block, versions[own]);
            }
            EXPECT(cache_release(worker->cache, case_name(block), changes) == 0);
        }
        if (case_random(&seed, 10) == 0) {
            EXPECT(case_drop(worker->cache, block) == 0);
            versions[own] = 0;
        }
        if (case_random(&seed, 20) == 0) {
            EXPECT(cache_iteration(worker->cache) == 0);
        }
    }
    return NULL;
}

static void threads_with_blocks_of_their_own(void)
{
    struct cache *cache = case_open(
        &(struct cache_case){.host_bytes = 10 * BYTES / 4096 * 4096, .store_bytes = 8 * MIB});
    run_workers(cache, work);
    check_int(cache_destroy(cache), ==, 0);
}

/* A thread's result is kept while the thread waits, even if others make many calls. */
static void *get_often(void *argument)
{
    struct worker *worker = argument;
    struct cache_result result = {.data = NULL};
    EXPECT(case_put(worker->cache, worker->index, worker->memory, 64, false) == 0);
    for (unsigned n = 0; n < TEST_COUNT(100000, 5000); n++) {
        EXPECT(case_get(worker->cache, worker->index, worker->memory, 64, &result) == 0);
    }
    return NULL;
}

static void calls_of_others_pass(void)
{
    struct cache *cache = case_open(&(struct cache_case){.host_bytes = MIB});
    run_workers(cache, get_often);
    check_int(cache_destroy(cache), ==, 0);
}

enum { SHARED = 200 };
static uint64_t shared[SHARED];

/* Waits for operations of another thread, or polls. */
static void *await_all(void *argument)
{
    struct worker *worker = argument;
    for (unsigned i = 0; i < SHARED; i++) {
        struct cache_result result = {.data = NULL};
        uint64_t token = 0;
        while ((token = __atomic_load_n(&shared[i], __ATOMIC_ACQUIRE)) == 0) {
        }
        int rc = 0;
        if (i % 3 == 0) {
            while ((rc = cache_poll(worker->cache, token, &result)) == 0) {
            }
            rc = rc == 1 ? 0 : rc;
        } else {
            rc = cache_wait(worker->cache, token, &result);
        }
        if (i % 4 == 3) {
            EXPECT(rc == -EINVAL); /* the buffer is too small */
        } else {
            EXPECT(rc == 0 && result.bytes == BYTES);
        }
    }
    return NULL;
}

struct beginner {
    struct cache *cache;
    unsigned char *memory;
};

static void *begin_all(void *argument)
{
    const struct beginner *beginner = argument;
    for (unsigned i = 0; i < SHARED; i++) {
        uint64_t token = 0;
        const int rc = cache_get(beginner->cache,
                                 &(struct cache_request){.name = case_name(i % 20),
                                                         .to = beginner->memory + i % 20 * BYTES,
                                                         .bytes = i % 4 == 3 ? BYTES - 1 : BYTES},
                                 &token);
        __atomic_store_n(&shared[i], rc == 0 ? token : UINT64_MAX, __ATOMIC_RELEASE);
    }
    return NULL;
}

static void tokens_are_shared(void)
{
    struct beginner beginner = {.memory = case_memory(20 * BYTES)};
    pthread_t thread;
    struct cache *cache = case_open(
        &(struct cache_case){.host_bytes = 10 * BYTES / 4096 * 4096, .store_bytes = 8 * MIB});
    beginner.cache = cache;
    for (unsigned i = 0; i < 20; i++) {
        check_int(case_put(cache, i, beginner.memory, BYTES, false), ==, 0);
    }
    check_int(pthread_create(&thread, NULL, begin_all, &beginner), ==, 0);
    run_workers(cache, await_all);
    check_int(pthread_join(thread, NULL), ==, 0);
    check_int(cache_destroy(cache), ==, 0);
}

TEST_MAIN({"threads_with_blocks_of_their_own", threads_with_blocks_of_their_own},
          {"calls_of_others_pass", calls_of_others_pass}, {"tokens_are_shared", tokens_are_shared})
