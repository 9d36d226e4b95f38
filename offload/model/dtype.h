/* dtype.h: the element types of weights, in files and in memory, and conversion between them.
 * Pure functions, any thread. */
#ifndef OFFLOAD_MODEL_DTYPE_H
#define OFFLOAD_MODEL_DTYPE_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/kern.h"

/* The three types of weights. MODEL_OTHER is any other type in a file, such as that of masks or
 * codes (codes.h). */
enum model_dtype { MODEL_F32, MODEL_F16, MODEL_BF16, MODEL_OTHER };

/* Converts a kernel's type of weights to their type in files. */
enum model_dtype model_dtype_of(enum kern_type type);
/* Returns the bytes of an element; 0 for MODEL_OTHER. */
size_t model_dtype_bytes(enum model_dtype dtype);
/* Return the type's name in safetensors ("F32") and in transformers ("float32"). */
const char *model_dtype_name(enum model_dtype dtype);
const char *model_dtype_config_name(enum model_dtype dtype);
/* Converts the name in safetensors to a type. Returns MODEL_OTHER for any other name. */
enum model_dtype model_dtype_from_name(const char *name);
/* Converts transformers' name, with or without "torch.", to a type. Returns MODEL_OTHER for any
 * other name. */
enum model_dtype model_dtype_from_config(const char *name);

/* Converts `count` elements; widening is exact, narrowing rounds to nearest even. `to` and `from`
 * must not overlap. `from` needs no alignment. */
void model_convert(void *to, enum model_dtype to_type, const void *from, enum model_dtype from_type,
                   size_t count);

#endif
