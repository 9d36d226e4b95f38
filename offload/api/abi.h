/* abi.h: copies structs between the library and older or newer programs. `struct_bytes` comes
 * first. `name` is the struct's name in error messages, `bytes` the library's sizeof. */
#ifndef OFFLOAD_API_ABI_H
#define OFFLOAD_API_ABI_H

#include <stddef.h>

/* Copies the defaults to the caller's struct of `given` bytes; bytes unknown to the library become
 * zero. */
int abi_struct_init(const char *name, const void *defaults, size_t bytes, void *to, size_t given);

/* Copies the caller's struct to the library's; members unknown to the caller become zero. -E2BIG:
 * bytes unknown to the library are not zero. */
int abi_struct_read(const char *name, const void *from, void *to, size_t bytes);

/* Copies element `index` of the caller's array like abi_struct_read. Elements must have the size of
 * element 0. */
int abi_struct_read_at(const char *name, const void *array, size_t index, void *to, size_t bytes);

/* Copies the library's struct to the caller's, except `struct_bytes`; bytes unknown to the library
 * become zero. */
int abi_struct_write(const char *name, const void *from, size_t bytes, void *to);

/* Returns -EINVAL if `pointer` is NULL. `name` describes it in the message. */
int abi_pointer_check(const char *name, const void *pointer);

/* Checks `to` like abi_struct_write, before other work. */
int abi_struct_check(const char *name, const void *to);

#endif
