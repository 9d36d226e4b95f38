/* dtype.h: element types of weights, and conversion between them. Pure functions, any thread. */
#ifndef OFFLOAD_MODEL_DTYPE_H
#define OFFLOAD_MODEL_DTYPE_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/kern.h"

/* MODEL_OTHER is any other type in a file, such as that of masks or codes (codes.h). */
enum model_dtype { MODEL_F32, MODEL_F16, MODEL_BF16, MODEL_OTHER };

/* Converts a kernel's type to the type in files. */
enum model_dtype model_dtype_of(enum kern_type type);
/* Returns an element's bytes; 0 for MODEL_OTHER. */
size_t model_dtype_bytes(enum model_dtype dtype);
/* Return the type's name in safetensors ("F32") and in transformers ("float32"). */
const char *model_dtype_name(enum model_dtype dtype);
const char *model_dtype_config_name(enum model_dtype dtype);
/* Converts the name in safetensors; returns MODEL_OTHER for another name. */
enum model_dtype model_dtype_from_name(const char *name);
/* Converts transformers' name, with or without "torch."; returns MODEL_OTHER for another name. */
enum model_dtype model_dtype_from_config(const char *name);

/* Converts `count` elements; narrowing rounds to nearest even. `to` and `from` must not overlap.
 * `from` needs no alignment. */
void model_convert(void *to, enum model_dtype to_type, const void *from, enum model_dtype from_type,
                   size_t count);

#endif
