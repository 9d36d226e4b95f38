/* finetune_counts.c: a small file of counts, named after a hash of what they depend on. Data files
 * are identified by path, inode, size and times. */
#include "tools/tide/finetune_counts.h"

#include <dirent.h>
#include <glob.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tide/tide.h>
#include <unistd.h>

#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/json/cache.h"
#include "core/json/json.h"
#include "core/json/write.h"

static const struct {
    const char *name;
    size_t offset;
} fields[] = {
    {"rows", offsetof(struct finetune_data_info, rows)},
    {"longest", offsetof(struct finetune_data_info, longest)},
    {"longest_pair", offsetof(struct finetune_data_info, longest_pair)},
    {"tokens", offsetof(struct finetune_data_info, tokens)},
    {"targets", offsetof(struct finetune_data_info, targets)},
    {"read", offsetof(struct finetune_data_info, read)},
    {"wrong", offsetof(struct finetune_data_info, wrong)},
    {"cut", offsetof(struct finetune_data_info, cut)},
    {"untrained", offsetof(struct finetune_data_info, untrained)},
    {"equal", offsetof(struct finetune_data_info, equal)},
    {"dated", offsetof(struct finetune_data_info, dated)},
    {"memory", offsetof(struct finetune_data_info, memory)},
    {"row_memory", offsetof(struct finetune_data_info, row_memory)},
};
enum { FIELDS = sizeof fields / sizeof fields[0] };

/* Adds path, inode, size and times to the key. Returns false unless it is a regular file. */
static bool add_file(const char *path, uint64_t *key, uint64_t *bytes)
{
    struct stat at;
    if (stat(path, &at) != 0 || !S_ISREG(at.st_mode)) {
        return false;
    }
    const uint64_t words[] = {(uint64_t)at.st_dev,          (uint64_t)at.st_ino,
                              (uint64_t)at.st_size,         (uint64_t)at.st_mtim.tv_sec,
                              (uint64_t)at.st_mtim.tv_nsec, (uint64_t)at.st_ctim.tv_sec,
                              (uint64_t)at.st_ctim.tv_nsec};
    *key = core_hash(path, strlen(path), core_hash(words, sizeof words, *key));
    *bytes += (uint64_t)at.st_size;
    return true;
}

static bool add_data(const char *pattern, uint64_t *key, uint64_t *bytes)
{
    glob_t found;
    if (access(pattern, F_OK) == 0) {
        return add_file(pattern, key, bytes);
    }
    if (glob(pattern, 0, NULL, &found) != 0) {
        return false;
    }
    bool right = true;
    for (size_t i = 0; i < found.gl_pathc && right; i++) {
        right = add_file(found.gl_pathv[i], key, bytes);
    }
    globfree(&found);
    return right;
}

/* The folder has the tokenizer, the template and the configuration. */
static bool add_folder(const char *folder, uint64_t *key)
{
    char path[PATH_MAX];
    struct dirent **found = NULL;
    uint64_t ignored = 0;
    bool right = true;
    const int count = scandir(folder, &found, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        right = right &&
                snprintf(path, sizeof path, "%s/%s", folder, found[i]->d_name) < (int)sizeof path;
        if (right) {
            (void)add_file(path, key, &ignored); /* subfolders are skipped */
        }
        free(found[i]);
    }
    free(found);
    return right && count >= 0;
}

static bool add_model(const char *model, uint64_t *key)
{
    char extra[PATH_MAX];
    if (model == NULL) {
        return true;
    }
    if (snprintf(extra, sizeof extra, "%s/additional_chat_templates", model) >= (int)sizeof extra) {
        return false;
    }
    return add_folder(model, key) && (access(extra, F_OK) != 0 || add_folder(extra, key));
}

static void add_text(const char *text, uint64_t *key)
{
    text = text != NULL ? text : "";
    *key = core_hash(text, strlen(text) + 1, *key);
}

/* Tokens may depend on the commit of tide and on its libraries. */
static bool add_build(uint64_t *key)
{
    struct tide_build build = {.struct_bytes = sizeof build};
    struct tide_library library = {.struct_bytes = sizeof library};
    if (tide_build_info(&build) != 0) {
        return false;
    }
    add_text(build.version, key);
    add_text(build.commit, key);
    for (unsigned i = 0; tide_library_at(i, &library) == 0; i++) {
        add_text(library.name, key);
        add_text(library.state, key);
    }
    return true;
}

static uint64_t hash_options(const struct finetune_data_options *options, int64_t rows)
{
    const bool order = options->shuffle && (options->pack || rows < INT64_MAX);
    const uint64_t words[] = {(uint64_t)options->length_max,
                              (uint64_t)options->vocab,
                              options->pack,
                              options->split,
                              options->pairs,
                              options->skip_bad,
                              options->train_on_all,
                              order,
                              order ? options->seed : 0,
                              (uint64_t)rows,
                              options->row_bytes};
    uint64_t key = core_hash(words, sizeof words, 1);
    add_text(options->chat_format, &key);
    if (options->begun > 0 && rows < INT64_MAX) { /* the place decides which rows are read */
        key = core_hash(&options->place, sizeof options->place, key + (uint64_t)options->begun);
    }
    return key;
}

void finetune_counts_place(const struct finetune_data_options *options, int64_t rows,
                           struct finetune_counts *out)
{
    uint64_t bytes = 0;
    out->path[0] = '\0';
    out->key = hash_options(options, rows);
    if (options->cache != NULL && strcmp(options->path, "-") != 0 &&
        add_data(options->path, &out->key, &bytes) && bytes >= FINETUNE_COUNTS_BYTES &&
        add_model(options->model, &out->key) && add_build(&out->key)) {
        (void)core_cache_path(options->cache, "rows", out->key, out->path);
    }
}

static bool read_field(const struct core_json_value *root, const char *name, int64_t *out)
{
    const struct core_json_value *value = core_json_find(root, name);
    if (value == NULL || core_json_kind(value) != CORE_JSON_INTEGER ||
        core_json_integer(value) < 0) {
        return false;
    }
    *out = core_json_integer(value);
    return true;
}

static bool fit_together(const struct finetune_data_info *info)
{
    int64_t most;
    return info->targets <= info->tokens && info->longest <= info->tokens &&
           info->longest_pair <= info->tokens &&
           (__builtin_mul_overflow(info->rows, info->longest, &most) || info->tokens <= most);
}

bool finetune_counts_find(const struct finetune_counts *counts, int64_t now,
                          struct finetune_data_info *info)
{
    struct core_json *doc = NULL;
    struct finetune_data_info found = {0};
    int64_t whole = 0;
    int64_t then = 0;
    if (counts->path[0] == '\0' || !core_cache_counts(counts->path) ||
        core_json_load(counts->path, NULL, &doc) != 0) {
        return false;
    }
    const struct core_json_value *root = core_json_root(doc);
    bool right = read_field(root, "whole", &whole) && read_field(root, "now", &then);
    for (size_t i = 0; i < FIELDS && right; i++) {
        int64_t value = 0;
        right = read_field(root, fields[i].name, &value);
        memcpy((char *)&found + fields[i].offset, &value, sizeof value);
    }
    core_json_destroy(doc);
    right = right && fit_together(&found) && (found.dated == 0 || then == now);
    if (right) {
        found.whole = whole == 1;
        *info = found;
        core_log(CORE_LOG_INFO,
                 "an earlier run has counted the rows: %" PRId64
                 " (%s; remove it to count them again)",
                 info->rows, counts->path);
    }
    return right;
}

struct record {
    const struct finetune_data_info *info; /* borrowed */
    int64_t now;
};

static void write_record(struct core_json_write *json, const void *from)
{
    const struct record *record = from;
    const struct finetune_data_info *info = record->info;
    core_json_write_object_begin(json, NULL);
    core_json_write_integer(json, "now", record->now);
    core_json_write_integer(json, "whole", info->whole);
    for (size_t i = 0; i < FIELDS; i++) {
        int64_t value;
        memcpy(&value, (const char *)info + fields[i].offset, sizeof value);
        core_json_write_integer(json, fields[i].name, value);
    }
    core_json_write_object_end(json);
}

void finetune_counts_keep(const struct finetune_counts *counts, int64_t now,
                          const struct finetune_data_info *info)
{
    const struct record record = {.info = info, .now = now};
    const int rc = counts->path[0] != '\0' ? core_cache_write(counts->path, write_record, &record)
                                           : 0;
    if (rc != 0) {
        core_log(CORE_LOG_INFO, "the number of rows cannot be saved in %s: %s", counts->path,
                 strerror(-rc));
    }
}

bool finetune_counts_forget(const struct finetune_counts *counts)
{
    return counts->path[0] != '\0' && unlink(counts->path) == 0;
}
