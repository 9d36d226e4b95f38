/* checkpoint.h: what programs were compiled with when the ABI of 0.1 was recorded. Never edited: test_growth.c. */
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
    const char *directory;
    uint32_t keep;
    uint32_t replace;
    const void *application;
    size_t application_bytes;
    uint64_t later;
};
TIDE_API int tide_engine_checkpoint_ahead(struct tide_engine *engine,
                                          const struct tide_checkpoint_options *options);
TIDE_API int tide_engine_checkpoint(struct tide_engine *engine,
                                    const struct tide_checkpoint_options *options);
TIDE_API int tide_engine_checkpoint_wait(struct tide_engine *engine);
struct tide_resumed {
    size_t struct_bytes;
    uint64_t step;
    const char *path;
    uint64_t passed_over;
    const void *application;
    size_t application_bytes;
};
TIDE_API int tide_engine_resumed(const struct tide_engine *engine, struct tide_resumed *out);
TIDE_API int tide_checkpoint_export(struct tide_context *context, const char *checkpoint,
                                    const char *folder, int overwrite);
#ifdef __cplusplus
}
#endif
#endif
