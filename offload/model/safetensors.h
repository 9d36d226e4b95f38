/* safetensors.h: one safetensors file, open for reading. Opening checks the format's rules: lengths
 * before allocation, tensors without gap or overlap, unique names. Reading is thread-safe; the
 * table is constant. */
#ifndef OFFLOAD_MODEL_SAFETENSORS_H
#define OFFLOAD_MODEL_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "offload/model/dtype.h"

enum { MODEL_TENSOR_DIMENSIONS_MAX = 8, MODEL_TENSORS_MAX = 1 << 20 };

struct model_tensor {
    const char *name;       /* borrowed from the file */
    const char *dtype_name; /* as the file spells it; static */
    enum model_dtype dtype;
    unsigned dimensions;
    uint64_t shape[MODEL_TENSOR_DIMENSIONS_MAX];
    uint64_t offset_bytes; /* from the beginning of the file */
    uint64_t bytes;
};

struct model_safetensors;

int model_safetensors_open(const char *path, struct model_safetensors **out);
/* Returns whether the file begins with a header's length, and is long enough for it. */
bool model_safetensors_is_possible(const char *path);
void model_safetensors_close(struct model_safetensors *file);

const char *model_safetensors_path(const struct model_safetensors *file);
/* Returns the tensors in the order of their bytes. */
const struct model_tensor *model_safetensors_list(const struct model_safetensors *file,
                                                  size_t *count);
/* Returns NULL if there is no tensor of this name. */
const struct model_tensor *model_safetensors_find(const struct model_safetensors *file,
                                                  const char *name);
/* Reads bytes [begin, begin + bytes) of the tensor. */
int model_safetensors_read(const struct model_safetensors *file, const struct model_tensor *tensor,
                           uint64_t begin, void *to, size_t bytes);
/* Starts readahead, unless the first and the last byte are in the page cache. Ignores errors. */
void model_safetensors_expect(const struct model_safetensors *file,
                              const struct model_tensor *tensor, uint64_t begin, size_t bytes);

struct model_safetensors_table {
    struct model_tensor *tensors; /* owned, in order of their bytes */
    size_t count;
    const struct model_tensor **by_name; /* owned: the tensors in order of their names */
    char *names;                         /* owned; the tensors' names point into it */
};

/* Checks a header, without the eight bytes in front of it, against the length of the data, and
 * fills `out`. Offsets count from the data's first byte. */
int model_safetensors_parse(const char *text, size_t header_bytes, uint64_t data_bytes,
                            struct model_safetensors_table *out);
void model_safetensors_table_fini(struct model_safetensors_table *table);

#endif
