/* engine.c: tide_engine_*: one run for an application. The caller's thread. */
#include <tide/engine.h>

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "offload/api/abi.h"
#include "offload/api/context.h"
#include "offload/api/engine_parts.h"
#include "offload/api/folder.h"
#include "offload/model/save.h"
#include "offload/run/checkpoint.h"
#include "offload/run/runtime.h"

int tide_engine_options_init(struct tide_engine_options *options, size_t struct_bytes)
{
    const struct tide_engine_options defaults = {
        .batch = 1,
        .accum = 1,
        .beta1 = 0.9,
        .beta2 = 0.999,
        .eps = 1e-8,
        .clip = 1,
    };
    return abi_struct_init("tide_engine_options", &defaults, sizeof defaults, options,
                           struct_bytes);
}

static int report(void *user, const char *phase, uint64_t done, uint64_t total)
{
    const struct tide_engine *engine = user;
    return context_progress(engine->context, phase, done, total);
}

static int make(struct tide_engine *engine, const struct tide_engine_options *options)
{
    int rc = setup_init(&engine->setup, options, true);
    if (rc != 0) {
        return rc;
    }
    rc = context_progress(engine->context, "measure", 0, 1);
    if (rc != 0) {
        return rc;
    }
    rc = setup_plan(&engine->setup);
    if (rc != 0) {
        return rc;
    }
    rc = context_progress(engine->context, "measure", 1, 1);
    if (rc != 0) {
        return rc;
    }
    const size_t count = (size_t)engine->setup.options.micro_batches * engine->setup.options.world;
    struct run_engine_options run = {
        .prepared = engine->setup.prepared,
        .options = &engine->setup.options,
        .model = engine->setup.model,
        .files = engine->setup.files,
        .trace = engine->setup.trace,
        .peers = engine->setup.peers,
        .local = engine->setup.peers != NULL && engine->setup.given.checkpoint_local != 0,
        .folder = engine->setup.folder,
        .model_options = &engine->setup.model_options,
        .peft = engine->setup.peft,
        .progress = report,
        .user = engine,
    };
    engine->plan.setup = &engine->setup;
    engine->batches = calloc(count, sizeof *engine->batches);
    if (engine->batches == NULL) {
        return core_err_set(-ENOMEM, "no memory for %zu micro-batches", count);
    }
    folder_note_stores(engine->context, NULL, &engine->setup);
    rc = engine_begin(engine, &run);
    engine->step_ns = core_clock_now_ns();
    return rc;
}

int tide_engine_create(struct tide_context *context, const struct tide_engine_options *options,
                       struct tide_engine **out)
{
    const struct context_before before = context_enter(context);
    struct tide_engine *engine = calloc(1, sizeof *engine);
    int rc = abi_pointer_check("`out`", out);
    if (rc == 0 && engine == NULL) {
        rc = core_err_set(-ENOMEM, "no memory for an engine");
    }
    if (rc == 0) {
        engine->context = context;
        rc = make(engine, options);
    }
    if (rc != 0) {
        const struct core_err kept = core_err_keep(rc);
        tide_engine_destroy(engine);
        rc = core_err_first(&kept, 0);
    } else {
        *out = engine;
    }
    context_leave(&before);
    return rc;
}

void tide_engine_destroy(struct tide_engine *engine)
{
    if (engine == NULL) {
        return;
    }
    const struct context_before before = context_enter(engine->context);
    if (run_engine_destroy(engine->engine)) {
        model_claim_drop(&engine->claim);
        store_shelf_close(engine->shelf);
        store_manifest_fini(&engine->resumed);
        setup_fini(&engine->setup);
        free(engine->batches);
        free(engine);
    }
    context_leave(&before);
}

const struct tide_plan *tide_engine_plan(const struct tide_engine *engine)
{
    return engine != NULL ? &engine->plan : NULL;
}

int engine_enter(const struct tide_engine *engine, struct context_before *before)
{
    int rc = abi_pointer_check("the engine", engine);
    if (rc == 0) {
        *before = context_enter(engine->context);
    }
    return rc;
}

/* ---- steps ---- */

static int read_batch(const struct tide_batch *batch, struct model_batch *out)
{
    if (batch->ids == NULL || batch->rows == 0 || batch->length == 0) {
        return core_err_set(
            -EINVAL,
            "a micro-batch of %u rows of %u tokens%s; expected at least one row, one token and ids",
            batch->rows, batch->length, batch->ids == NULL ? " without ids" : "");
    }
    *out = (struct model_batch){.rows = batch->rows,
                                .length = batch->length,
                                .ids = batch->ids,
                                .labels = batch->labels,
                                .positions = batch->positions,
                                .starts = batch->starts};
    return 0;
}

int tide_pair_length(const struct tide_batch *batch, uint32_t *out)
{
    struct tide_batch given;
    struct model_batch rows;
    int rc = abi_struct_read("tide_batch", batch, &given, sizeof given);
    rc = rc != 0 ? rc : read_batch(&given, &rows);
    if (rc == 0 && (rows.rows % 2 != 0 || out == NULL)) {
        rc = core_err_set(-EINVAL,
                          out == NULL ? "the output parameter of the length is NULL"
                                      : "pairs need an even number of rows; found %" PRId64 "",
                          rows.rows);
    }
    if (rc != 0) {
        return rc;
    }
    int64_t longest = 0;
    for (int64_t i = 0; i < rows.rows / 2; i++) {
        const struct model_pair pair = model_batch_pair(&rows, i);
        const int64_t tokens = model_pair_tokens(&pair);
        longest = tokens > longest ? tokens : longest;
    }
    *out = (uint32_t)longest;
    return 0;
}

static int read_batches(struct tide_engine *engine, const struct tide_batch *batches,
                        unsigned count, uint64_t *tokens)
{
    *tokens = 0;
    for (unsigned i = 0; i < count; i++) {
        struct tide_batch batch;
        int rc = abi_struct_read_at("tide_batch", batches, i, &batch, sizeof batch);
        if (rc == 0) {
            rc = read_batch(&batch, &engine->batches[i]);
        }
        if (rc != 0) {
            return core_err_prefix(rc, "micro-batch %u", i);
        }
        *tokens += (uint64_t)(engine->batches[i].rows * engine->batches[i].length);
    }
    return 0;
}

static int step(struct tide_engine *engine, const struct tide_batch *batches, unsigned count,
                double lr, struct tide_step *out)
{
    const struct run_options *options = &engine->setup.options;
    const unsigned most = options->micro_batches * options->world;
    struct run_step result;
    uint64_t tokens;
    if (batches == NULL) {
        return core_err_set(-EINVAL, "the array of micro-batches is NULL");
    }
    if (count == 0 || count > most) {
        return core_err_set(-EINVAL, "%u micro-batches; a step takes 1 to %u", count, most);
    }
    if (!isfinite(lr) || lr < 0) {
        return core_err_set(-EINVAL, "invalid learning rate %g (expected 0 or more)", lr);
    }
    int rc = abi_struct_check("tide_step", out);
    if (rc != 0) {
        return rc;
    }
    rc = read_batches(engine, batches, count, &tokens);
    if (rc != 0) {
        return rc;
    }
    rc = run_engine_step(engine->engine, engine->batches, count, lr, &result);
    if (rc != 0) {
        return rc;
    }
    const int64_t now_ns = core_clock_now_ns();
    struct tide_step made = {
        .step = result.step,
        .loss = result.loss,
        .grad_norm = result.norm,
        .loss_scale = result.loss_scale,
        .skipped = result.skipped,
        .tokens = tokens,
        .targets = (uint64_t)result.targets,
        .seconds = (double)(now_ns - engine->step_ns) * 1e-9,
        .store_read_bytes = result.traffic.store_read_bytes,
        .store_write_bytes = result.traffic.store_write_bytes,
        .up_bytes = result.traffic.up_bytes,
        .down_bytes = result.traffic.down_bytes,
        .guess_right = result.guess_right,
        .guess_wrong = result.guessed && !result.guess_right,
        .guess_bytes = result.guess_bytes,
        .guess_seconds = result.guess_seconds,
        .ranks = options->world,
        .slowest_rank = result.slowest,
        .imbalance_seconds = result.imbalance_seconds,
        .gather_bytes = result.traffic.gather_bytes,
        .reduce_bytes = result.traffic.reduce_bytes,
        .gather_between_bytes = result.traffic.gather_between_bytes,
        .reduce_between_bytes = result.traffic.reduce_between_bytes,
        .reward_chosen = result.chosen,
        .reward_rejected = result.rejected,
        .reward_accuracy = result.right,
    };
    engine->stats = result.stats;
    engine->moved = result.moved;
    engine->step_ns = now_ns;
    return abi_struct_write("tide_step", &made, sizeof made, out);
}

int tide_engine_step(struct tide_engine *engine, const struct tide_batch *batches, unsigned count,
                     double lr, struct tide_step *out)
{
    struct context_before before;
    int rc = engine_enter(engine, &before);
    if (rc == 0) {
        rc = step(engine, batches, count, lr, out);
        context_leave(&before);
    }
    return rc;
}

int tide_engine_wait_at(const struct tide_engine *engine, unsigned index,
                        struct tide_engine_wait *out)
{
    static const char *const names[RUN_WAIT_COUNT] = {
        [TIDE_WAIT_STORE_READ] = "store_read", [TIDE_WAIT_STORE_WRITE] = "store_write",
        [TIDE_WAIT_UPDATE] = "update",         [TIDE_WAIT_COPY] = "copy",
        [TIDE_WAIT_IMBALANCE] = "imbalance",   [TIDE_WAIT_OTHER] = "other"};
    _Static_assert((int)TIDE_WAIT_STORE_WRITE == (int)RUN_WAIT_STORE_WRITE &&
                       (int)TIDE_WAIT_COPY == (int)RUN_WAIT_COPY &&
                       (int)TIDE_WAIT_IMBALANCE == (int)RUN_WAIT_IMBALANCE &&
                       (int)TIDE_WAIT_OTHER == (int)RUN_WAIT_OTHER,
                   "reasons are the same inside and outside");
    int rc = abi_pointer_check("the engine", engine);
    if (rc != 0) {
        return rc;
    }
    if (index >= RUN_WAIT_COUNT) {
        return core_err_set(-ENOENT, "wait reason %u does not exist; there are %d", index,
                            RUN_WAIT_COUNT);
    }
    const struct tide_engine_wait wait = {
        .name = names[index],
        .compute_seconds = (double)engine->stats.compute_wait_ns[index] * 1e-9,
        .update_seconds = (double)engine->stats.update_wait_ns[index] * 1e-9,
    };
    return abi_struct_write("tide_engine_wait", &wait, sizeof wait, out);
}

int tide_engine_drive_at(const struct tide_engine *engine, unsigned index,
                         struct tide_engine_drive *out)
{
    int rc = abi_pointer_check("the engine", engine);
    if (rc != 0) {
        return rc;
    }
    const struct run_options *options = &engine->setup.options;
    if (index >= options->store_count) {
        return core_err_set(-ENOENT, "store %u does not exist; there are %u", index,
                            options->store_count);
    }
    const struct tide_engine_drive drive = {
        .directory = options->stores[index].directory,
        .read_bytes = engine->moved.paths[index].read_bytes,
        .write_bytes = engine->moved.paths[index].write_bytes,
    };
    return abi_struct_write("tide_engine_drive", &drive, sizeof drive, out);
}

static int set_betas(struct tide_engine *engine, double beta1, double beta2)
{
    if (!(beta1 >= 0 && (float)beta1 < 1 && beta2 >= 0 && (float)beta2 < 1)) {
        return core_err_set(-EINVAL, "betas %.17g and %.17g are out of range [0, 1) in fp32", beta1,
                            beta2);
    }
    run_engine_betas(engine->engine, beta1, beta2);
    return 0;
}

int tide_engine_betas(struct tide_engine *engine, double beta1, double beta2)
{
    struct context_before before;
    int rc = engine_enter(engine, &before);
    if (rc == 0) {
        rc = set_betas(engine, beta1, beta2);
        context_leave(&before);
    }
    return rc;
}

static int evaluate(struct tide_engine *engine, const struct tide_batch *batch,
                    struct tide_evaluation *out)
{
    struct tide_batch given;
    struct model_batch one;
    struct kern_loss loss;
    int rc = abi_struct_check("tide_evaluation", out);
    if (rc != 0) {
        return rc;
    }
    rc = abi_struct_read("tide_batch", batch, &given, sizeof given);
    if (rc != 0) {
        return rc;
    }
    rc = read_batch(&given, &one);
    if (rc != 0) {
        return rc;
    }
    rc = run_engine_evaluate(engine->engine, &one, &loss);
    if (rc != 0) {
        return rc;
    }
    const struct tide_evaluation made = {.loss_sum = loss.sum,
                                         .targets = (uint64_t)loss.count,
                                         .reward_chosen_sum = loss.chosen,
                                         .reward_rejected_sum = loss.rejected,
                                         .reward_right = (uint64_t)loss.right};
    return abi_struct_write("tide_evaluation", &made, sizeof made, out);
}

int tide_engine_evaluate(struct tide_engine *engine, const struct tide_batch *batch,
                         struct tide_evaluation *out)
{
    struct context_before before;
    int rc = engine_enter(engine, &before);
    if (rc == 0) {
        rc = evaluate(engine, batch, out);
        engine->step_ns = core_clock_now_ns();
        context_leave(&before);
    }
    return rc;
}

static int predict(struct tide_engine *engine, const int32_t *ids, uint32_t length, int32_t *out)
{
    const int64_t vocab = engine->setup.model->config.vocab;
    if (ids == NULL || length == 0 || out == NULL) {
        return core_err_set(-EINVAL, "a prediction needs at least one id and an output parameter");
    }
    float *logits = calloc((size_t)vocab, sizeof *logits);
    int rc = logits != NULL ? run_engine_logits(engine->engine, ids, length, logits)
                            : core_err_set(-ENOMEM, "no memory for the logits of a token");
    if (rc == 0) {
        int32_t best = 0;
        for (int64_t i = 1; i < vocab; i++) {
            best = logits[i] > logits[best] ? (int32_t)i : best;
        }
        *out = best;
    }
    free(logits);
    return rc;
}

int tide_engine_predict(struct tide_engine *engine, const int32_t *ids, uint32_t length,
                        int32_t *out)
{
    struct context_before before;
    int rc = engine_enter(engine, &before);
    if (rc == 0) {
        rc = predict(engine, ids, length, out);
        engine->step_ns = core_clock_now_ns();
        context_leave(&before);
    }
    return rc;
}

/* ---- saving ---- */

static int save_open(struct tide_engine *engine, const char *folder, int overwrite,
                     struct model_save **out)
{
    int rc = folder_check(folder);
    if (rc != 0) {
        return rc;
    }
    (void)folder_take_over(engine->context, folder, &engine->claim);
    const struct run_position position = run_engine_position(engine->engine);
    const struct model_save_options options = {
        .folder = folder,
        .run = position.run,
        .steps = position.steps,
        .base = position.base,
        .base_folder = engine->setup.folder,
        .source = engine->setup.folder,
        .type = model_dtype_of(engine->setup.options.type),
        .replace = overwrite != 0,
        .claim = &engine->claim,
    };
    return model_save_open(engine->setup.model, &options, out);
}

struct putting {
    struct model_save *save;
    uint32_t block;
    enum model_dtype type;
};

static int put(void *context, uint64_t first, uint64_t count, const void *weights)
{
    const struct putting *putting = context;
    return model_save_put(putting->save, putting->block, first, count, putting->type, weights);
}

/* Frees disk space of removed checkpoints: the spare, and a checkpoint that was still in use. */
static int make_room(struct tide_engine *engine)
{
    int rc = run_engine_drain(engine->engine);
    if (rc != 0) {
        return rc;
    }
    rc = run_engine_release_checkpoint(engine->engine);
    if (rc == 0 && engine->shelf != NULL && !run_engine_save_is_open(engine->engine)) {
        store_shelf_spare_drop(engine->shelf);
    }
    return rc;
}

static int save(struct tide_engine *engine, const char *folder, int overwrite)
{
    struct model_save *file = NULL;
    int rc = save_open(engine, folder, overwrite, &file);
    if (rc == -ENOSPC) {
        rc = make_room(engine);
        if (rc != 0) {
            goto done;
        }
        rc = save_open(engine, folder, overwrite, &file);
    }
    if (rc != 0) {
        goto done;
    }
    const bool adapters = engine->setup.model->lora.rank > 0;
    for (uint32_t b = 0; b < engine->setup.model->block_count; b++) {
        struct putting putting = {file, b, model_dtype_of(engine->setup.options.type)};
        if (!adapters) {
            rc = run_engine_weights(engine->engine, b, put, &putting);
        } else if (engine->setup.model->blocks[b].trained) {
            putting.type = MODEL_F32;
            rc = run_engine_masters(engine->engine, b, put, &putting);
        }
        if (rc != 0) {
            goto done;
        }
        rc = context_progress(engine->context, "save", b + 1, engine->setup.model->block_count);
        if (rc != 0) {
            goto done;
        }
    }
    rc = model_save_finish(file);

done:
    model_save_close(file);
    engine->step_ns = core_clock_now_ns();
    return rc;
}

int tide_engine_save(struct tide_engine *engine, const char *folder, int overwrite)
{
    struct context_before before;
    int rc = engine_enter(engine, &before);
    if (rc == 0) {
        rc = save(engine, folder, overwrite);
        context_leave(&before);
    }
    return rc;
}

static int save_reserve(struct tide_engine *engine, const char *folder, int overwrite)
{
    struct model_save *file = NULL;
    int rc = folder_check(folder);
    const bool held = rc == 0 && (folder_take_over(engine->context, folder, &engine->claim) ||
                                  model_claim_holds(&engine->claim, folder));
    struct model_claim old = engine->claim;
    if (rc == 0 && !held) {
        rc = folder_claim(folder, &engine->claim);
    }
    if (rc != 0) {
        engine->claim = old;
        return rc;
    }
    folder_note_stores(NULL, &engine->claim, &engine->setup);
    rc = save_open(engine, folder, overwrite, &file);
    model_save_close(file);
    if (!held && rc != 0) {
        const struct core_err kept = core_err_keep(rc);
        model_claim_drop(&engine->claim);
        engine->claim = old;
        rc = core_err_first(&kept, 0);
    } else if (!held) {
        model_claim_drop(&old);
    }
    return rc;
}

int tide_engine_save_reserve(struct tide_engine *engine, const char *folder, int overwrite)
{
    struct context_before before;
    int rc = engine_enter(engine, &before);
    if (rc == 0) {
        rc = save_reserve(engine, folder, overwrite);
        engine->step_ns = core_clock_now_ns();
        context_leave(&before);
    }
    return rc;
}

int tide_engine_trace(struct tide_engine *engine)
{
    struct context_before before;
    int rc = engine_enter(engine, &before);
    if (rc == 0) {
        rc = run_engine_trace(engine->engine);
        engine->step_ns = core_clock_now_ns();
        context_leave(&before);
    }
    return rc;
}

int tide_engine_memory(const struct tide_engine *engine, struct tide_engine_memory *out)
{
    int rc = abi_pointer_check("the engine", engine);
    if (rc != 0) {
        return rc;
    }
    const struct run_prepared *prepared = engine->setup.prepared;
    const unsigned world = engine->setup.options.world;
    struct tide_engine_memory memory = {
        .device_bytes = run_prepared_bytes(prepared, PLAN_DEVICE) * world,
        .host_bytes = run_prepared_bytes(prepared, PLAN_HOST) * world,
    };
    run_engine_memory(engine->engine, &memory.rss_bytes, &memory.peak_bytes);
    return abi_struct_write("tide_engine_memory", &memory, sizeof memory, out);
}
