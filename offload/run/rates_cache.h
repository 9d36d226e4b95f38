/* rates_cache.h: what measuring found, kept in a folder between runs: a small JSON file a part of the
 * machine. A file counts only for the key that it was written under, and not for ever (core/base/cache.h).
 * What is wrong with the folder or a file is no error: then it is measured. The caller's thread. */
#ifndef OFFLOAD_RUN_RATES_CACHE_H
#define OFFLOAD_RUN_RATES_CACHE_H

#include <stdbool.h>
#include <stddef.h>

struct run_cache_number {
    const char *name;
    double *value;
};

/* A part: its kind, which begins the file's name, and everything that its numbers depend on. */
struct run_cache_part {
    const char *folder; /* NULL: nothing is kept */
    const char *kind;
    const char *key;
    const struct run_cache_number *numbers;
    size_t count;
};

/* Fills the numbers in; false, and they are as before, where the folder has none. */
bool run_cache_read(const struct run_cache_part *part);
/* Makes the folder, and those above it, where they are not there. */
void run_cache_write(const struct run_cache_part *part);
/* So that the part is measured again. */
void run_cache_forget(const struct run_cache_part *part);

#endif
