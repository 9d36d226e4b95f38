/* ranks.c: see ranks.h. */
#include "tests/coll/ranks.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "core/base/err.h"
#include "core/coll/work.h"
#include "tests/harness/test.h"

void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

struct traffic traffic_of(const struct coll *coll)
{
    struct traffic out = {.commands = atomic_load(&coll->commands)};
    for (int op = 0; op < COLL_OPS; op++) {
        out.received_bytes[op] = atomic_load(&coll->received_bytes[op]);
        out.far_bytes[op] = atomic_load(&coll->far_bytes[op]);
    }
    return out;
}

static void *rank_main(void *argument)
{
    struct rank *rank = argument;
    struct run *run = rank->run;
    struct coll_options options = {.kind = "local",
                                   .rank = rank->index,
                                   .world = run->world,
                                   .meeting = run->meeting,
                                   .limit_ns = run->limit_ns};
    rank->results = rank->own;
    rank->from = rank->own[5];
    if (run->arrange != NULL) {
        run->arrange(rank, &options);
    }
    rank->rc = coll_open(&options, &rank->coll);
    if (rank->rc == 0) {
        rank->rc = run->body(rank);
        snprintf(rank->message, sizeof rank->message, "%s", core_err_message());
        rank->traffic = traffic_of(rank->coll);
        coll_close(rank->coll);
    }
    return NULL;
}

void run_ranks(struct run *run)
{
    pthread_t threads[WORLD_MAX];
    run->ranks = calloc(run->world, sizeof *run->ranks);
    check_true(run->ranks != NULL);
    check_int(coll_meeting_create(run->world, &run->meeting), ==, 0);
    for (unsigned r = 0; r < run->world; r++) {
        run->ranks[r].run = run;
        run->ranks[r].index = r;
        check_int(pthread_create(&threads[r], NULL, rank_main, &run->ranks[r]), ==, 0);
    }
    for (unsigned r = 0; r < run->world; r++) {
        pthread_join(threads[r], NULL);
    }
    coll_meeting_destroy(run->meeting);
}

int submit_wait(struct coll *coll, const struct coll_command *command)
{
    struct core_fence fence;
    int rc = coll_submit(coll, command, &fence);
    return rc != 0 ? rc : core_fence_wait(fence, LONG_NS);
}
