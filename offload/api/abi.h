/* abi.h: structs that cross the public border, with their `struct_bytes` first.
 * The caller's struct may be shorter than ours (an older program) or longer (a newer one). */
#ifndef OFFLOAD_API_ABI_H
#define OFFLOAD_API_ABI_H

#include <stddef.h>

/* Copies the caller's struct into ours, which has `bytes`: what it lacks becomes zero. `name` is for
 * sentences. -EINVAL for NULL or a `struct_bytes` that cannot be, -E2BIG where bytes that we do not
 * know are not zero. */
int abi_struct_read(const char *name, const void *from, void *to, size_t bytes);

/* Copies ours into the caller's, as much as it has, and leaves its struct_bytes. -EINVAL as above. */
int abi_struct_write(const char *name, const void *from, size_t bytes, void *to);

/* Whether abi_struct_write could: for functions that do something first. */
int abi_struct_check(const char *name, const void *to);

#endif
