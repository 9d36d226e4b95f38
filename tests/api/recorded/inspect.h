/* inspect.h: what programs were compiled with when the ABI of 0.1 was recorded. Never edited: test_growth.c. */
#ifndef TIDE_INSPECT_H
#define TIDE_INSPECT_H
#include <stddef.h>
#include <stdint.h>
#include <tide/tide.h>
#ifdef __cplusplus
extern "C" {
#endif
enum tide_inspected {
    TIDE_MODEL_FOLDER,
    TIDE_SAFETENSORS,
    TIDE_CHECKPOINT,
    TIDE_STORE_FOLDER,
    TIDE_OTHER_FOLDER,
};
struct tide_inspection {
    size_t struct_bytes;
    uint32_t what;
    uint32_t verified;
    char problem[512];
    char family[32];
    char dtype[32];
    uint64_t files;
    uint64_t tensors;
    uint64_t bytes;
    uint64_t parameters;
    int64_t vocab;
    int64_t hidden;
    int64_t layers;
    int64_t heads;
    int64_t kv_heads;
    int64_t head_dim;
    int64_t inner;
    int64_t positions;
    uint64_t tied;
    uint64_t step;
    uint64_t updates;
    char optimizer[16];
    char precision[16];
    uint64_t run;
    uint64_t process;
    uint64_t in_use;
    uint32_t path;
    uint32_t paths;
};
struct tide_tensor {
    size_t struct_bytes;
    const char *name;
    const char *file;
    const char *dtype;
    const uint64_t *shape;
    uint64_t dimensions;
    uint64_t bytes;
};
struct tide_inspect_options {
    size_t struct_bytes;
    void (*tensor)(void *user, const struct tide_tensor *tensor);
    void *user;
};
TIDE_API int tide_inspect(struct tide_context *context, const char *path,
                          const struct tide_inspect_options *options, struct tide_inspection *out);
#ifdef __cplusplus
}
#endif
#endif
