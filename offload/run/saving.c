/* saving.c: one lane at a time puts a chunk, and the last one to be done finishes. */
#include "offload/run/saving.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "core/base/err.h"

struct run_saving {
    /* Lanes of several ranks take turns, a chunk each: they share one set of files and its drive. No
     * thread of a step ever takes it. */
    pthread_mutex_t turn;
    struct store_checkpoint_write *checkpoint; /* owned; NULL: none, or finished */
    _Atomic uint32_t lanes; /* not done; acq_rel: the last one sees what the others put */
    uint64_t step;          /* the engine's, as the next two */
    bool open;
    bool told;
    struct core_err
        failed; /* the first error, under `turn`; the engine's once all lanes are done */
};

int run_saving_create(struct run_saving **out)
{
    struct run_saving *saving = calloc(1, sizeof *saving);
    if (saving == NULL) {
        return core_err_set(-ENOMEM, "no memory for what writes checkpoints");
    }
    pthread_mutex_init(&saving->turn, NULL);
    *out = saving;
    return 0;
}

void run_saving_destroy(struct run_saving *saving)
{
    if (saving == NULL) {
        return;
    }
    (void)store_checkpoint_end(saving->checkpoint);
    pthread_mutex_destroy(&saving->turn);
    free(saving);
}

void run_saving_open(struct run_saving *saving, struct store_checkpoint_write *checkpoint,
                     uint64_t step, uint32_t lanes)
{
    saving->checkpoint = checkpoint;
    saving->step = step;
    saving->open = true;
    saving->told = false;
    saving->failed = core_err_keep(0);
    atomic_store_explicit(&saving->lanes, lanes, memory_order_relaxed);
}

bool run_saving_is_open(const struct run_saving *saving)
{
    return saving->open;
}

bool run_saving_awaits(const struct run_saving *saving, uint64_t step)
{
    return saving->open && !saving->told && saving->step == step;
}

void run_saving_tell(struct run_saving *saving, struct store_manifest *manifest)
{
    saving->told = true;
    store_checkpoint_tell(saving->checkpoint, manifest);
}

/* ---- on the lanes' threads ---- */

static void note(struct run_saving *saving, int rc)
{
    if (saving->failed.code == 0) {
        saving->failed = core_err_keep(rc);
    }
}

void run_saving_put(struct run_saving *saving, uint32_t block, uint64_t first, uint64_t count,
                    const struct store_arrays *arrays)
{
    pthread_mutex_lock(&saving->turn);
    if (saving->checkpoint != NULL && saving->failed.code == 0) {
        note(saving, store_checkpoint_put(saving->checkpoint, block, first, count, arrays));
    }
    pthread_mutex_unlock(&saving->turn);
}

void run_saving_lane_done(struct run_saving *saving)
{
    if (atomic_fetch_sub_explicit(&saving->lanes, 1, memory_order_acq_rel) != 1) {
        return;
    }
    if (saving->failed.code == 0) {
        note(saving, store_checkpoint_finish(saving->checkpoint));
    }
    note(saving, store_checkpoint_end(saving->checkpoint));
    saving->checkpoint = NULL;
}

/* ---- on the engine's ---- */

int run_saving_close(struct run_saving *saving)
{
    if (!saving->open) {
        return 0;
    }
    saving->open = false;
    if (saving->checkpoint != NULL) {
        (void)store_checkpoint_end(saving->checkpoint);
        saving->checkpoint = NULL;
        return !saving->told ? 0
                             : core_err_set(-ECANCELED,
                                            "the checkpoint was given up before all of it was put");
    }
    return saving->told ? core_err_first(&saving->failed, 0) : 0;
}
