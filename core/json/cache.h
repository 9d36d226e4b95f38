/* cache.h: small JSON files that are kept between runs, <folder>/<kind>-<hash>.json. No state; any
 * thread. */
#ifndef CORE_JSON_CACHE_H
#define CORE_JSON_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/json/write.h"

/* Results expire, because drives fill up, kernels are replaced and data is removed. */
enum { CORE_CACHE_DAYS = 30, CORE_CACHE_PATH_BYTES = 4096 };

/* Returns false if the path is too long; `path` is then "". */
bool core_cache_path(const char *folder, const char *kind, uint64_t hash,
                     char path[CORE_CACHE_PATH_BYTES]);
/* Returns whether the file exists, is at most CORE_CACHE_DAYS days old, and at most a minute in the
 * future. */
bool core_cache_counts(const char *path);

/* Creates the folder and missing parents, which only the user may enter. Returns 0, or -errno
 * without a message. */
int core_cache_make_folder(const char *folder);

typedef void core_cache_put(struct core_json_write *json, const void *from);
/* Writes a file of core_cache_path with `put`, completely or not at all, in a folder that may be
 * missing; then removes expired files of its kind. Returns 0, or -errno, not always with a
 * message. */
int core_cache_write(const char *path, core_cache_put *put, const void *from);

#endif
