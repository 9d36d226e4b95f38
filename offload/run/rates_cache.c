/* rates_cache.c: a file of core/base/cache.h a part, named by the hash of its key. */
#include "offload/run/rates_cache.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/cache.h"
#include "core/base/err.h"
#include "core/base/hash.h"
#include "core/base/json.h"
#include "core/base/json_write.h"
#include "core/base/log.h"

enum { VERSION = 2, NUMBERS_MAX = 16 };

static bool path_of(const struct run_cache_part *part, char path[CORE_CACHE_PATH_BYTES])
{
    return part->folder != NULL &&
           core_cache_path(part->folder, part->kind,
                           core_hash(part->key, strlen(part->key), VERSION), path);
}

static int take(const struct core_json *doc, const struct run_cache_part *part)
{
    const struct core_json_value *root = core_json_root(doc);
    const struct core_json_value *key = core_json_find(root, "key");
    const char *text = key != NULL ? core_json_string(key, NULL) : NULL;
    double values[NUMBERS_MAX];
    int rc = text != NULL && strcmp(text, part->key) == 0 && part->count <= NUMBERS_MAX ? 0
                                                                                        : -ESTALE;
    for (size_t i = 0; rc == 0 && i < part->count; i++) {
        rc = core_json_get_real(doc, root, part->numbers[i].name, &values[i]);
        rc = rc == 0 && !(isfinite(values[i]) && values[i] >= 0) ? -EINVAL : rc;
    }
    for (size_t i = 0; rc == 0 && i < part->count; i++) {
        *part->numbers[i].value = values[i];
    }
    return rc;
}

bool run_cache_read(const struct run_cache_part *part)
{
    char path[CORE_CACHE_PATH_BYTES];
    struct core_json *doc = NULL;
    if (!path_of(part, path) || !core_cache_counts(path)) {
        return false;
    }
    int rc = core_json_load(path, NULL, &doc);
    rc = rc != 0 ? rc : take(doc, part);
    core_json_destroy(doc);
    core_log(CORE_LOG_DEBUG, "rates of %s: %s %s", part->kind, path, rc == 0 ? "count" : "do not");
    return rc == 0;
}

static void put(struct core_json_write *json, const void *from)
{
    const struct run_cache_part *part = from;
    json->indent = 2;
    core_json_write_object_begin(json, NULL);
    core_json_write_integer(json, "version", VERSION);
    core_json_write_string(json, "key", part->key);
    for (size_t i = 0; i < part->count; i++) {
        core_json_write_real(json, part->numbers[i].name, *part->numbers[i].value);
    }
    core_json_write_object_end(json);
}

void run_cache_write(const struct run_cache_part *part)
{
    char path[CORE_CACHE_PATH_BYTES];
    if (!path_of(part, path)) {
        return;
    }
    const int rc = core_cache_write(path, put, part);
    if (rc != 0) {
        core_log(CORE_LOG_INFO, "what was measured is not kept in %s: %s", part->folder,
                 strerror(-rc));
    }
}

void run_cache_forget(const struct run_cache_part *part)
{
    char path[CORE_CACHE_PATH_BYTES];
    if (path_of(part, path)) {
        (void)unlink(path);
    }
}
