/* size.h: parses and prints sizes as people write them (512K, 24GiB), compares them and rounds them
 * up. */
#ifndef CORE_BASE_SIZE_H
#define CORE_BASE_SIZE_H

#include <stddef.h>
#include <stdint.h>

/* Units: none or "B"; "K" or "KiB" (1024), "KB" (1000), and so on up to E. A fraction is allowed if
 * the result is whole bytes (1.5G). Other text and sizes beyond 64 bits are refused. */
int core_size_parse(const char *text, uint64_t *bytes);

/* Writes a size such as "24.0 GiB". Returns `out`. */
const char *core_size_print(uint64_t bytes, char *out, size_t out_bytes);

static inline uint64_t core_larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Returns the least multiple of `grain` that is at least `size`. size + grain must fit 64 bits. */
static inline uint64_t core_round_up(uint64_t size, uint64_t grain)
{
    return (size + grain - 1) / grain * grain;
}

#endif
