/* checkpoint.h: saving a run, also while it continues, and resuming it. The rules of tide.h apply.
 * docs/checkpoint-format.md describes the files, docs/recovery.md what survives which failure. */
#ifndef TIDE_CHECKPOINT_H
#define TIDE_CHECKPOINT_H

#include <stddef.h>
#include <stdint.h>
#include <tide/engine.h>

#ifdef __cplusplus
extern "C" {
#endif

struct tide_checkpoint_options {
    size_t struct_bytes;
    /* Receives checkpoint-N after N steps. It is created if missing, and locked until the engine is
     * destroyed or uses another directory. */
    const char *directory;
    uint32_t keep; /* newest checkpoints to keep; 0: all */
    /* 1: checkpoints of other runs in the directory are removed once this one is complete; 0: they
     * are -EEXIST */
    uint32_t replace;
    /* Data of the application, such as its position in the training data; more than 1 MiB is
     * -EFBIG. */
    const void *application;
    size_t application_bytes;
    /* 1: the checkpoint is written while the next step runs, if the engine has `saves`, the last
     * step was not skipped, and no checkpoints of other runs are replaced. Also, the last step's
     * update must still be pending, or tide_engine_checkpoint_ahead was called before that step.
     * Otherwise the checkpoint is written at once. */
    uint64_t later;
};

/* Announces a checkpoint after the next step (optional): that step's update then also writes its
 * results to the checkpoint, so that nothing is read again. `application` is ignored. If
 * tide_engine_checkpoint does not follow the step, the announced checkpoint is discarded. Announces
 * nothing without `saves`, or if checkpoints of another run would be replaced. Returns 0 or an
 * error. -EBUSY, -EEXIST like tide_engine_checkpoint. */
TIDE_API int tide_engine_checkpoint_ahead(struct tide_engine *engine,
                                          const struct tide_checkpoint_options *options);

/* Writes a checkpoint, from which the option `resume` continues the run. It is read back before it
 * gets its final name; older checkpoints are kept until then. Progress is reported as "checkpoint",
 * unless the next step writes the checkpoint. If only the checkpoint cannot be written, the engine
 * and older checkpoints can be used as before. Returns 0 or an error. -EBUSY: another run uses the
 * directory. -EEXIST: it has checkpoints of another run and `replace` is 0. */
TIDE_API int tide_engine_checkpoint(struct tide_engine *engine,
                                    const struct tide_checkpoint_options *options);

/* Waits for a checkpoint begun with `later`, and returns its error; 0 if it is complete or none was
 * begun. The next checkpoint waits, too, but only logs a warning if the earlier one failed.
 * Destroying the engine discards an unfinished checkpoint. Returns 0 or an error. */
TIDE_API int tide_engine_checkpoint_wait(struct tide_engine *engine);

/* How an engine with `resume` began. Pointers are valid as long as the engine. */
struct tide_resumed {
    size_t struct_bytes;
    uint64_t step;    /* steps done; 0 without a checkpoint */
    const char *path; /* of the checkpoint; NULL: none, the engine began with the model */
    /* newer checkpoints that were skipped as unreadable, each with a warning */
    uint64_t passed_over;
    const void *application; /* the application's data in the checkpoint */
    size_t application_bytes;
};

/* Describes the checkpoint from which the engine was resumed. Returns 0 or an error. */
TIDE_API int tide_engine_resumed(const struct tide_engine *engine, struct tide_resumed *out);

/* Copies the application's data from a checkpoint to `out`, which has `room` bytes (0: may be
 * NULL), and sets *bytes to its size. Reads the newest checkpoint in `directory` whose manifest can
 * be read, and verifies nothing else of it, so an engine that resumes later may use an older one.
 * Returns 0 or an error. -EFBIG: the data does not fit (*bytes is set). -ENOENT: there is no such
 * checkpoint. */
TIDE_API int tide_checkpoint_peek(struct tide_context *context, const char *directory, void *out,
                                  size_t room, size_t *bytes);

/* Converts a checkpoint to a Hugging Face folder, with the configuration and tokenizer files that
 * the checkpoint contains; of a run with adapters, to a PEFT folder. Verifies what it reads.
 * Progress is reported as "export". Returns 0 or an error. -EEXIST like tide_engine_save. -EBADMSG:
 * the checkpoint is damaged. */
TIDE_API int tide_checkpoint_export(struct tide_context *context, const char *checkpoint,
                                    const char *folder, int overwrite);

/* Adds LoRA adapters to their base model's weights and writes a Hugging Face folder, in the type of
 * the base's weights (F32 if there are several). `adapter` is a checkpoint of a run with adapters,
 * or a PEFT folder with LoRA, rsLoRA or DoRA on linear layers; its modules_to_save replace those of
 * the base. Works on one tensor at a time. If the adapter's files identify their base, as tide's
 * do, the base is verified first. Progress is reported as "export" for a checkpoint, "verify" while
 * the base is verified, then "merge". Returns 0 or an error. -EEXIST like tide_engine_save. */
TIDE_API int tide_adapter_merge(struct tide_context *context, const char *base, const char *adapter,
                                const char *folder, int overwrite);

#ifdef __cplusplus
}
#endif

#endif
