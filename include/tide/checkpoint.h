/* checkpoint.h: saving a run while it goes on and taking it up again, to the bit. C17 and C++; the
 * rules of tide.h hold. docs/checkpoint-format.md describes the files, docs/recovery.md what survives
 * what. */
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
    const char
        *directory;   /* checkpoint-N is made in it, N: steps done. Made where it is missing; the
                              engine holds it until it is destroyed */
    uint32_t keep;    /* newest ones that stay; 0: all */
    uint32_t replace; /* checkpoints of other runs in it are removed after this one; else they
                              are -EEXIST */
    const void
        *application; /* bytes of the application's own, up to 1 MiB: where in the data it is */
    size_t application_bytes;
    uint32_t later; /* it is written while the next step runs, where the engine has `saves` and the
                       last step's update is pending or tide_engine_checkpoint_ahead came before that
                       step; else now */
};

/* Says that a checkpoint will be asked for behind the next step, so that what its update makes goes there
 * as it is made, and nothing is read or waited for. The application's bytes are not looked at. Of an
 * engine without `saves` it does nothing; where it is not called, or fails, tide_engine_checkpoint
 * does its work as well, and a checkpoint that nobody asks for is dropped. */
TIDE_API int tide_engine_checkpoint_ahead(struct tide_engine *engine,
                                          const struct tide_checkpoint_options *options);

/* Writes everything that a run is: weights, optimizer states, loss scale, counts, what it was made
 * with. It is read back before it gets its name, and older ones are there until it has it. What fails
 * here fails alone: the engine goes on, and the checkpoints that were there stay. Reports progress as
 * "checkpoint". -EBUSY: another run holds the directory. */
TIDE_API int tide_engine_checkpoint(struct tide_engine *engine,
                                    const struct tide_checkpoint_options *options);

/* Ends a checkpoint that was begun with `later`: 0 when it has its name, or why it has not. The next
 * checkpoint does so too, where a failure is a warning; an engine that is destroyed before leaves none. */
TIDE_API int tide_engine_checkpoint_wait(struct tide_engine *engine);

/* How an engine with `resume` began. */
struct tide_resumed {
    size_t struct_bytes;
    uint64_t step;    /* steps done; 0: it began with the model */
    const char *path; /* of the checkpoint; NULL: none. Both pointers live as long as the engine */
    uint32_t passed_over;    /* newer ones that did not verify; each was named in a warning */
    const void *application; /* as it was given */
    size_t application_bytes;
};
TIDE_API int tide_engine_resumed(const struct tide_engine *engine, struct tide_resumed *out);

/* Makes the Hugging Face folder of a checkpoint, with the configuration and the tokenizer that it
 * brought; every byte is verified. -EEXIST as tide_engine_save. Reports progress as "export". */
TIDE_API int tide_checkpoint_export(struct tide_context *context, const char *checkpoint,
                                    const char *folder, int overwrite);

#ifdef __cplusplus
}
#endif

#endif
