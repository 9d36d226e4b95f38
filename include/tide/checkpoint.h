/* checkpoint.h: saving a run while it continues, and resuming it with the same bits. C17 and C++11;
 * the rules of tide.h apply. docs/checkpoint-format.md describes the files, docs/recovery.md what
 * survives which failure. */
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
    /* Receives checkpoint-N, N being the number of steps done. It is created if missing, and locked
     * until the engine is destroyed or another directory is used. */
    const char *directory;
    uint32_t keep; /* number of newest checkpoints that are kept; 0: all */
    /* 1: checkpoints of other runs in the directory are removed once this one is complete; 0: they
     * are refused with -EEXIST */
    uint32_t replace;
    /* Data of the application, such as its position in the training data; more than 1 MiB is
     * -EFBIG. */
    const void *application;
    size_t application_bytes;
    /* 1: the checkpoint is written while the next step runs. This needs an engine with `saves`, and
     * a last step that was not skipped; either the update of that step is still pending, or
     * tide_engine_checkpoint_ahead was called before the step. Otherwise, and if it replaces
     * checkpoints of other runs, the checkpoint is written at once. */
    uint64_t later;
};

/* Announces a checkpoint after the next step: the update of that step then writes its results to
 * the checkpoint as it produces them, and nothing has to be read again. `application` is ignored
 * here. The announcement is optional, and an announced checkpoint that is never requested is
 * discarded. Does nothing if the engine was created without `saves`, or if the checkpoint would
 * replace those of another run. Returns 0, -EINVAL, -EBUSY if another run uses the directory,
 * -EEXIST if the directory has checkpoints of another run and `replace` is 0, or the error of
 * preparing the files. */
TIDE_API int tide_engine_checkpoint_ahead(struct tide_engine *engine,
                                          const struct tide_checkpoint_options *options);

/* Writes a checkpoint: weights, optimizer states, loss scale, counters and the options of the run.
 * The checkpoint is read back before it gets its final name, and older checkpoints are kept until
 * then. Progress is reported as "checkpoint". A failure leaves the engine and all older checkpoints
 * as they were. Returns 0, -EINVAL, -EBUSY if another run uses the directory, -EEXIST if the
 * directory has checkpoints of another run and `replace` is 0, -ECANCELED, or the error of writing
 * (-ENOSPC, -EIO ...). */
TIDE_API int tide_engine_checkpoint(struct tide_engine *engine,
                                    const struct tide_checkpoint_options *options);

/* Waits for a checkpoint that was begun with `later`. The next checkpoint also waits for it, but
 * reports its failure only as a warning. Destroying the engine discards an unfinished checkpoint.
 * Returns 0 if the checkpoint is complete or none was begun, otherwise the error that it failed
 * with. */
TIDE_API int tide_engine_checkpoint_wait(struct tide_engine *engine);

/* How an engine with `resume` began. Its pointers are valid as long as the engine. */
struct tide_resumed {
    size_t struct_bytes;
    uint64_t step;           /* steps done; 0: the engine began with the model */
    const char *path;        /* path of the checkpoint; NULL: none was used */
    uint64_t passed_over;    /* newer checkpoints that could not be read; each caused a warning */
    const void *application; /* data of the application that is in the checkpoint */
    size_t application_bytes;
};

/* Tells how an engine began. Returns 0, or -EINVAL for a wrong struct_bytes. */
TIDE_API int tide_engine_resumed(const struct tide_engine *engine, struct tide_resumed *out);

/* Copies the data of the application from a checkpoint to `out`, which has `room` bytes, and sets
 * *bytes to the size of the data. An application calls it to get data that it needs before it
 * creates an engine that resumes. The checkpoint is the newest one in `directory` whose manifest
 * can be read. The call verifies nothing else of the checkpoint, so the engine may resume from an
 * older one. Returns 0, -EINVAL, -EFBIG if the data does not fit (*bytes is set), or -ENOENT if
 * there is no such checkpoint. */
TIDE_API int tide_checkpoint_peek(struct tide_context *context, const char *directory, void *out,
                                  size_t room, size_t *bytes);

/* Converts a checkpoint to a Hugging Face folder with the configuration and the tokenizer files
 * that the checkpoint contains. If the run has adapters, the result is a PEFT folder. Verifies
 * every byte that it reads. Progress is reported as "export". Returns 0, -EINVAL, -EEXIST like
 * tide_engine_save, -EBADMSG if the checkpoint is damaged, -ECANCELED, or the error of reading or
 * writing. */
TIDE_API int tide_checkpoint_export(struct tide_context *context, const char *checkpoint,
                                    const char *folder, int overwrite);

/* Adds LoRA adapters to the weights of their base model and writes the result as a Hugging Face
 * folder, in the type of the base's weights (F32 if these have several). `adapter` is a PEFT folder
 * with LoRA, rsLoRA or DoRA on linear layers, or a checkpoint of a run with adapters; modules that
 * it contains whole (modules_to_save) replace those of the base. Memory does not grow with the
 * model. If tide wrote the adapter, the base is verified first, with progress as "verify"; then
 * progress is reported as "merge". Returns 0, -EINVAL (also for an adapter of another base model),
 * -ENOENT, -EEXIST like tide_engine_save, -ECANCELED, or the error of reading or writing. */
TIDE_API int tide_adapter_merge(struct tide_context *context, const char *base, const char *adapter,
                                const char *folder, int overwrite);

#ifdef __cplusplus
}
#endif

#endif
