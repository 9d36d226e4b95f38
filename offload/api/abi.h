/* abi.h: structs that programs and the library exchange, with `struct_bytes` first. The caller's
 * struct may be shorter than the library's (an older program) or longer (a newer one). `name` is
 * the struct's name in error messages, `bytes` the library's sizeof. */
#ifndef OFFLOAD_API_ABI_H
#define OFFLOAD_API_ABI_H

#include <stddef.h>

/* Copies the defaults to the caller's struct of `given` bytes. Bytes that the library does not know
 * become zero. Returns -EINVAL for NULL or an impossible size. */
int abi_struct_init(const char *name, const void *defaults, size_t bytes, void *to, size_t given);

/* Copies the caller's struct to the library's. Members that the caller does not know become zero.
 * Returns -EINVAL for NULL or an impossible `struct_bytes`, -E2BIG if bytes that the library does
 * not know are not zero. */
int abi_struct_read(const char *name, const void *from, void *to, size_t bytes);

/* Copies element `index` of the caller's array. `struct_bytes` of element 0 is the distance from
 * one element to the next. Returns -EINVAL if this element has another size. */
int abi_struct_read_at(const char *name, const void *array, size_t index, void *to, size_t bytes);

/* Copies the library's struct to the caller's, except struct_bytes. Bytes that the library does not
 * know become zero. Returns -EINVAL for NULL or an impossible `struct_bytes`. */
int abi_struct_write(const char *name, const void *from, size_t bytes, void *to);

/* Returns -EINVAL if a required pointer is NULL. `name` is what the message calls it. */
int abi_pointer_check(const char *name, const void *pointer);

/* Makes the checks of abi_struct_write, for functions that have work to do before it. */
int abi_struct_check(const char *name, const void *to);

#endif
