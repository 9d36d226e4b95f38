/* rates_cache.c: <folder>/<kind>-<hash of the key>.json, written under another name first. */
#include "offload/run/rates_cache.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/hash.h"
#include "core/base/json.h"
#include "core/base/json_write.h"
#include "core/base/log.h"

enum { VERSION = 2, PATH_BYTES = 4096, DAY_SECONDS = 86400, NUMBERS_MAX = 16 };

static bool path_of(const struct run_cache_part *part, char path[PATH_BYTES])
{
    if (part->folder == NULL) {
        return false;
    }
    const uint64_t hash = core_hash(part->key, strlen(part->key), VERSION);
    return snprintf(path, PATH_BYTES, "%s/%s-%016" PRIx64 ".json", part->folder, part->kind, hash) <
           PATH_BYTES;
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
    char path[PATH_BYTES];
    struct stat info;
    struct core_json *doc = NULL;
    if (!path_of(part, path) || stat(path, &info) != 0) {
        return false;
    }
    const time_t age = time(NULL) - info.st_mtime;
    if (age < 0 || age > (time_t)RUN_CACHE_DAYS * DAY_SECONDS) {
        return false;
    }
    int rc = core_json_load(path, NULL, &doc);
    rc = rc != 0 ? rc : take(doc, part);
    core_json_destroy(doc);
    core_log(CORE_LOG_DEBUG, "rates of %s: %s %s", part->kind, path, rc == 0 ? "count" : "do not");
    return rc == 0;
}

/* 0 too where somebody else made it meanwhile. */
static int make_one(const char *folder)
{
    return mkdir(folder, 0700) == 0 || errno == EEXIST ? 0 : -errno;
}

/* One folder and the one above it: ~/.cache may be as new as what lies in it. */
static int make_folder(const char *folder)
{
    char above[PATH_BYTES];
    int rc = make_one(folder);
    if (rc != -ENOENT || snprintf(above, sizeof above, "%s", folder) >= (int)sizeof above) {
        return rc;
    }
    char *slash = strrchr(above, '/');
    if (slash == NULL || slash == above) {
        return rc;
    }
    *slash = '\0';
    rc = make_one(above);
    return rc != 0 ? rc : make_one(folder);
}

static int put(FILE *file, const struct run_cache_part *part)
{
    struct core_json_write json;
    core_json_write_init_file(&json, file);
    json.indent = 2;
    core_json_write_object_begin(&json, NULL);
    core_json_write_integer(&json, "version", VERSION);
    core_json_write_string(&json, "key", part->key);
    for (size_t i = 0; i < part->count; i++) {
        core_json_write_real(&json, part->numbers[i].name, *part->numbers[i].value);
    }
    core_json_write_object_end(&json);
    int rc = core_json_write_end(&json);
    core_json_write_fini(&json);
    return rc;
}

void run_cache_write(const struct run_cache_part *part)
{
    char path[PATH_BYTES];
    char draft[PATH_BYTES + 16];
    if (!path_of(part, path)) {
        return;
    }
    snprintf(draft, sizeof draft, "%s.%d", path, (int)getpid());
    int rc = make_folder(part->folder);
    FILE *file = rc == 0 ? fopen(draft, "wxe") : NULL;
    rc = rc == 0 && file == NULL ? -errno : rc;
    if (file != NULL) {
        rc = put(file, part);
        rc = fclose(file) != 0 && rc == 0 ? -errno : rc;
        rc = rc == 0 && rename(draft, path) != 0 ? -errno : rc;
        if (rc != 0) {
            (void)unlink(draft);
        }
    }
    if (rc != 0) {
        core_log(CORE_LOG_INFO, "what was measured is not kept in %s: %s", part->folder,
                 strerror(-rc));
    }
}

void run_cache_forget(const struct run_cache_part *part)
{
    char path[PATH_BYTES];
    if (path_of(part, path)) {
        (void)unlink(path);
    }
}

const char *run_cache_file(const char *folder, const char *name, char *text, size_t bytes)
{
    const bool made = folder != NULL && make_folder(folder) == 0;
    const int length = made ? snprintf(text, bytes, "%s/%s", folder, name) : -1;
    return length >= 0 && (size_t)length < bytes ? text : NULL;
}
