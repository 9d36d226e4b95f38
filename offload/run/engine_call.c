/* engine_call.c: calls all ranks at once. Several ranks of a process have a thread each; a single
 * one works on the caller's thread. */
#include "offload/run/engine_internal.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/queue.h"

static int run_job(void *context, const void *arguments)
{
    struct run_engine_worker *worker = context;
    const struct run_engine_job *job = arguments;
    int rc = job->engine->works[job->call](job->engine, worker, job->arguments);
    if (rc != 0) {
        run_rank_abort(worker->rank, rc); /* otherwise the others would wait for this rank */
    }
    return rc;
}

/* Waits while the rank makes progress, longer than the rank itself waits, so that the rank's error
 * comes first. */
static int wait_worker(struct run_engine *engine, uint32_t index, struct core_fence done)
{
    const struct run_engine_worker *worker = &engine->workers[index];
    const int64_t limit_ns = 2 * run_options_stall_ns(&worker->options);
    uint64_t before;
    uint64_t now = run_rank_pulse(worker->rank);
    int rc;
    do {
        before = now;
        rc = core_fence_wait(done, limit_ns);
        now = run_rank_pulse(worker->rank);
    } while (rc == -ETIMEDOUT && core_fence_poll(done) == 0 && now != before);
    if (rc == -ETIMEDOUT && core_fence_poll(done) == 0) {
        engine->lost = true;
        rc = core_err_set(-ETIMEDOUT, "rank %u made no progress for %.1f s", index,
                          (double)limit_ns / 1e9);
        for (uint32_t r = 0; r < engine->world; r++) {
            run_rank_abort(engine->workers[r].rank, rc);
        }
    }
    return rc;
}

int run_engine_wait_remote(struct run_engine *engine, uint32_t index, struct run_reply *reply)
{
    struct run_engine_worker *worker = &engine->workers[index];
    int rc = run_remote_reply(engine->given.peers, index, reply);
    if (rc == 0) {
        worker->result = reply->result;
        worker->loss = reply->loss;
        worker->traffic = reply->traffic;
        worker->moved = reply->moved;
        worker->sums_hash = reply->sums_hash;
        worker->used_bytes = reply->used_bytes;
        worker->peak_bytes = reply->peak_bytes;
    }
    return rc;
}

/* Other processes get the call before this one begins. */
static int call_processes(struct run_engine *engine, enum run_call call, const void *arguments,
                          size_t arguments_bytes)
{
    struct run_engine_worker *own = &engine->workers[0];
    struct run_reply reply;
    int rc = 0;
    for (uint32_t r = 1; rc == 0 && r < engine->world; r++) {
        rc = run_remote_call(engine->given.peers, r, call, arguments, arguments_bytes);
    }
    if (rc != 0) {
        return rc; /* all connections have ended, so no reply will come */
    }
    rc = engine->works[call](engine, own, arguments);
    if (rc != 0) {
        run_rank_abort(own->rank, rc);
    }
    struct core_err first = core_err_keep(rc);
    for (uint32_t r = 1; r < engine->world; r++) {
        rc = run_engine_wait_remote(engine, r, &reply);
        first = first.code != 0 ? first : core_err_keep(rc);
    }
    return core_err_first(&first, 0);
}

int run_engine_call_ranks(struct run_engine *engine, enum run_call call, const void *arguments,
                          size_t arguments_bytes)
{
    struct core_fence done[RUN_RANKS_MAX] = {{0}};
    int rc = 0;
    if (engine->world == 1) {
        return engine->works[call](engine, &engine->workers[0], arguments);
    }
    if (engine->given.peers != NULL) {
        return call_processes(engine, call, arguments, arguments_bytes);
    }
    assert(arguments_bytes <= sizeof engine->arguments);
    memcpy(engine->arguments, arguments, arguments_bytes);
    engine->job = (struct run_engine_job){call, engine, engine->arguments};
    for (uint32_t r = 0; rc == 0 && r < engine->world; r++) {
        const struct core_job one = {.run = run_job,
                                     .context = &engine->workers[r],
                                     .arguments = &engine->job,
                                     .arguments_bytes = sizeof engine->job};
        rc = core_queue_submit(engine->workers[r].queue, &one, &done[r]);
    }
    struct core_err first = core_err_keep(rc);
    for (uint32_t r = 0; r < engine->world; r++) {
        rc = engine->lost ? -ETIMEDOUT : wait_worker(engine, r, done[r]);
        if (rc != 0 && first.code == 0) {
            first = core_err_keep(rc);
        }
    }
    return core_err_first(&first, 0);
}
