/* cache.h: small JSON files that are kept in a folder between runs, <folder>/<kind>-<hash>.json: where one
 * lies, how long it counts, and how it is written. No state; any thread. */
#ifndef CORE_JSON_CACHE_H
#define CORE_JSON_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/json/write.h"

/* What was found does not hold for ever: drives fill up, kernels are replaced, data is removed. */
enum { CORE_CACHE_DAYS = 30, CORE_CACHE_PATH_BYTES = 4096 };

/* False, and `path` is "", where the name is too long. */
bool core_cache_path(const char *folder, const char *kind, uint64_t hash,
                     char path[CORE_CACHE_PATH_BYTES]);
/* Whether the file exists and its time is neither too old nor in the future. */
bool core_cache_counts(const char *path);

/* Makes the folder and those above it that are not there, for the user alone. 0 or -errno without a
 * sentence. */
int core_cache_make_folder(const char *folder);

/* Writes what `put` says to a path of core_cache_path, whole or not at all, in a folder that is made
 * where it is not there; then removes files of this kind that are too old to count. 0 or -errno without a
 * sentence, because no run fails of it. */
typedef void core_cache_put(struct core_json_write *json, const void *from);
int core_cache_write(const char *path, core_cache_put *put, const void *from);

#endif
