/* cache.h: small JSON files that are kept in a folder between runs, <folder>/<kind>-<hash>.json:
 * their paths, how long they are valid, and how they are written. No state; any thread. */
#ifndef CORE_JSON_CACHE_H
#define CORE_JSON_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/json/write.h"

/* A cached result expires after CORE_CACHE_DAYS days, because drives fill up, kernels are replaced
 * and data is removed. */
enum { CORE_CACHE_DAYS = 30, CORE_CACHE_PATH_BYTES = 4096 };

/* Writes the path of a file. Returns false if the path is too long; `path` is then "". */
bool core_cache_path(const char *folder, const char *kind, uint64_t hash,
                     char path[CORE_CACHE_PATH_BYTES]);
/* Returns whether a run may use the file: it exists, and was written within the last
 * CORE_CACHE_DAYS days, not in the future. */
bool core_cache_counts(const char *path);

/* Creates the folder and its missing parents, for the user only. Returns 0 or -errno without a
 * message. */
int core_cache_make_folder(const char *folder);

typedef void core_cache_put(struct core_json_write *json, const void *from);
/* Writes a file of core_cache_path with `put`, completely or not at all, and creates its folder if
 * it is missing; then removes expired files of this kind. Returns 0 or -errno without a message,
 * because no run fails for lack of a cache. */
int core_cache_write(const char *path, core_cache_put *put, const void *from);

#endif
