/* engine_base.c: the file and the identity of the frozen base that checkpoints do not contain. */
#include "offload/run/engine_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "offload/run/base.h"

static int add_sums(void *context, uint64_t first, uint64_t count,
                    const struct store_arrays *arrays)
{
    struct run_engine *engine = context;
    const char *from = arrays->at[STORE_STREAM_WEIGHTS];
    for (uint64_t i = 0; i < count; i++) {
        uint64_t sum;
        memcpy(&sum, from + i * sizeof sum, sizeof sum);
        model_sums_add(engine->sums, first + i, sum);
    }
    return 0;
}

static int gather_sums(struct run_engine *engine)
{
    const bool parts = engine->given.peers != NULL && engine->given.options->stage == 3;
    int rc = 0;
    for (uint32_t r = 1; rc == 0 && parts && r < engine->world; r++) {
        rc = run_remote_call(engine->given.peers, r, RUN_CALL_SUMS, "", 0);
        if (rc == 0) {
            rc = run_remote_pieces(engine->given.peers, r, engine->piece, add_sums, engine);
        }
    }
    return rc;
}

/* Only the first process computes the identity, so only it writes the file. */
int run_engine_base_open(struct run_engine *engine)
{
    const struct run_base base = {.options = engine->given.options,
                                  .prepared = engine->given.prepared,
                                  .model = engine->given.model,
                                  .files = engine->given.files,
                                  .folder = engine->given.folder};
    const int rc = run_base_open(&base, base.options->rank == 0, &engine->kept);
    model_files_set_kept(engine->given.files, engine->kept);
    return rc;
}

void run_engine_base_close(struct run_engine *engine)
{
    if (engine->kept != NULL) {
        model_files_set_kept(engine->given.files, NULL);
        model_kept_close(engine->kept);
        engine->kept = NULL;
    }
}

/* Returns whether the message names the kept base. A long path is cut in messages. */
static bool blames_base(const struct run_engine *engine)
{
    char path[CORE_ERR_MESSAGE_BYTES / 2];
    snprintf(path, sizeof path, "%s", model_kept_path(engine->kept));
    return strstr(core_err_message(), path) != NULL;
}

/* Wrong data in the kept base would fail the next run, too. */
void run_engine_base_check(const struct run_engine *engine, int rc)
{
    if (rc == -EBADMSG && engine->kept != NULL && blames_base(engine)) {
        const struct core_err kept = core_err_keep(rc);
        model_kept_drop(engine->kept);
        (void)core_err_first(&kept, 0);
    }
}

int run_engine_base_identify(struct run_engine *engine)
{
    const int rc = engine->sums != NULL ? gather_sums(engine) : 0;
    if (rc != 0) {
        return rc;
    }
    const uint64_t base = engine->sums != NULL
                              ? model_sums_identity(engine->sums, engine->given.files)
                              : model_kept_identity(engine->kept);
    const struct model_peft *peft = engine->given.peft;
    if (engine->given.checkpoint == NULL && peft != NULL && peft->base != 0 && base != peft->base) {
        return core_err_set(-EINVAL,
                            "%s is an adapter of another base model: its base is %016" PRIx64
                            ", this one is %016" PRIx64,
                            peft->folder, peft->base, base);
    }
    if (engine->given.checkpoint != NULL && base != engine->base) {
        return core_err_set(-EINVAL,
                            "%s belongs to another base model: its base is %016" PRIx64
                            ", this one is %016" PRIx64,
                            engine->given.checkpoint, engine->base, base);
    }
    engine->base = base;
    model_kept_finish(engine->kept, base);
    return 0;
}
