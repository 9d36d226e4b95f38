/* files.c: opens a folder's tensors and matches them with parameters. */
#include "offload/model/files.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/json/json.h"
#include "offload/model/peft.h"

enum { SHARDS_MAX = 4096 };

static const char index_name[] = "model.safetensors.index.json";
static const char single_name[] = "model.safetensors";

struct model_files {
    char *folder;                      /* owned */
    struct model_safetensors **shards; /* owned, with the shards */
    char **names;                      /* owned: file names of the shards */
    size_t count;
    const struct model_peft *peft; /* borrowed; NULL: none */
    struct model_files_base base;
    struct model_kept *kept; /* borrowed; NULL: none */
};

static char *join(const char *folder, const char *name)
{
    char *path = NULL;
    return asprintf(&path, "%s/%s", folder, name) < 0 ? NULL : path;
}

/* Opens the shard at its first use. */
static int shard_of(struct model_files *files, const char *name, size_t *index)
{
    for (*index = 0; *index < files->count; (*index)++) {
        if (strcmp(files->names[*index], name) == 0) {
            return 0;
        }
    }
    if (files->count == SHARDS_MAX) {
        return core_err_set(-EINVAL, "%s names more than %d shards", index_name, SHARDS_MAX);
    }
    void *shards = realloc(files->shards, (files->count + 1) * sizeof(*files->shards));
    files->shards = shards != NULL ? shards : files->shards;
    void *names = realloc(files->names, (files->count + 1) * sizeof(*files->names));
    files->names = names != NULL ? names : files->names;
    char *path = join(files->folder, name);
    char *copy = strdup(name);
    int rc = shards != NULL && names != NULL && path != NULL && copy != NULL
                 ? model_safetensors_open(path, &files->shards[files->count])
                 : core_err_set(-ENOMEM, "no memory for the shards of %s", files->folder);
    free(path);
    if (rc != 0) {
        free(copy);
        return rc;
    }
    files->names[files->count++] = copy;
    return 0;
}

static int read_entry(struct model_files *files, const struct core_json *doc,
                      const struct core_json_member *entry)
{
    const struct core_json_value *map = entry->object;
    if (core_json_kind(entry->value) != CORE_JSON_STRING) {
        return core_json_refuse(doc, map, entry->key, 0, -EINVAL, "a file name was expected");
    }
    const char *name = core_json_string(entry->value, NULL);
    if (strchr(name, '/') != NULL || name[0] == '\0') {
        return core_json_refuse(doc, map, entry->key, 0, -EINVAL,
                                "\"%s\" is not the name of a file in the folder", name);
    }
    size_t index;
    int rc = shard_of(files, name, &index);
    if (rc != 0) {
        return core_err_prefix(rc, "%s (for tensor %s)", core_json_source(doc), entry->key);
    }
    if (model_safetensors_find(files->shards[index], entry->key) == NULL) {
        return core_json_refuse(doc, map, entry->key, 0, -EINVAL,
                                "the tensor is not in %s, where the index says it is", name);
    }
    return 0;
}

static int check_twice(const struct model_files *files)
{
    for (size_t i = 0; i < files->count; i++) {
        size_t count;
        const struct model_tensor *list = model_safetensors_list(files->shards[i], &count);
        for (size_t j = i + 1; j < files->count; j++) {
            for (size_t k = 0; k < count; k++) {
                if (model_safetensors_find(files->shards[j], list[k].name) != NULL) {
                    return core_err_set(-EINVAL, "%s: tensor %s is in %s and in %s", files->folder,
                                        list[k].name, files->names[i], files->names[j]);
                }
            }
        }
    }
    return 0;
}

static int open_index(struct model_files *files, const char *path)
{
    struct core_json *doc = NULL;
    const struct core_json_value *map = NULL;
    int rc = core_json_load(path, &(struct core_json_options){.regular = true}, &doc);
    if (rc == 0) {
        rc = core_json_get(doc, core_json_root(doc), "weight_map", CORE_JSON_OBJECT, &map);
        rc = rc == -ENOENT ? -EINVAL : rc;
    }
    struct core_json_member entry;
    for (bool any = rc == 0 && core_json_first(map, &entry); any; any = core_json_next(&entry)) {
        rc = read_entry(files, doc, &entry);
        if (rc != 0) {
            break;
        }
    }
    core_json_destroy(doc);
    return rc == 0 ? check_twice(files) : rc;
}

int model_files_open(const char *folder, struct model_files **out)
{
    struct model_files *files = calloc(1, sizeof *files);
    char *index = join(folder, index_name);
    char *single = join(folder, single_name);
    int rc = 0;
    size_t at;
    if (files == NULL || index == NULL || single == NULL ||
        (files->folder = strdup(folder)) == NULL) {
        rc = core_err_set(-ENOMEM, "no memory to open %s", folder);
    } else if (access(single, F_OK) == 0) {
        rc = shard_of(files, single_name, &at);
    } else if (access(index, F_OK) == 0) {
        rc = open_index(files, index);
    } else {
        rc = core_err_set(-ENOENT, "%s has neither %s nor %s", folder, single_name, index_name);
    }
    free(index);
    free(single);
    if (rc != 0) {
        model_files_close(files);
        return rc;
    }
    *out = files;
    return 0;
}

void model_files_close(struct model_files *files)
{
    if (files == NULL) {
        return;
    }
    for (size_t i = 0; i < files->count; i++) {
        model_safetensors_close(files->shards[i]);
        free(files->names[i]);
    }
    free(files->shards);
    free(files->names);
    free(files->folder);
    free(files);
}

void model_files_add_adapter(struct model_files *files, const struct model_peft *peft)
{
    files->peft = peft;
}

void model_files_set_base(struct model_files *files, const struct model_files_base *base)
{
    files->base = *base;
}

struct model_files_base model_files_base_of(const struct model_files *files)
{
    return files->base;
}

void model_files_set_kept(struct model_files *files, struct model_kept *kept)
{
    files->kept = kept;
}

struct model_kept *model_files_kept(const struct model_files *files)
{
    return files->kept;
}

const char *model_files_folder(const struct model_files *files)
{
    return files->folder;
}

size_t model_files_shard_count(const struct model_files *files)
{
    return files->count;
}

const struct model_safetensors *model_files_shard(const struct model_files *files, size_t index)
{
    return files->shards[index];
}

const struct model_tensor *model_files_find(const struct model_files *files, const char *name,
                                            const struct model_safetensors **shard)
{
    for (size_t i = 0; i < files->count; i++) {
        const struct model_tensor *tensor = model_safetensors_find(files->shards[i], name);
        if (tensor != NULL) {
            *shard = files->shards[i];
            return tensor;
        }
    }
    return NULL;
}

static const struct model_tensor *find_name(const struct model_files *files, const char *name,
                                            const struct model_safetensors **shard)
{
    const struct model_tensor *tensor = model_files_find(files, name, shard);
    if (tensor != NULL) {
        return tensor;
    }
    for (size_t i = 0; model_family_at(i) != NULL; i++) {
        const char *prefix = model_family_at(i)->prefix;
        if (strncmp(name, prefix, strlen(prefix)) == 0) {
            return model_files_find(files, name + strlen(prefix), shard);
        }
    }
    return NULL;
}

/* Returns the tensor of an adapter or a saved module. */
static const struct model_tensor *find_adapted(const struct model_files *files, const char *name)
{
    const struct model_peft_entry *entry = model_peft_find(files->peft, name);
    return entry != NULL ? entry->whole : model_safetensors_find(files->peft->file, name);
}

const struct model_tensor *model_files_part(const struct model_files *files,
                                            const struct model_part *part,
                                            const struct model_safetensors **shard)
{
    if (files->peft != NULL) {
        const struct model_tensor *adapted = find_adapted(files, part->name);
        if (adapted != NULL) {
            *shard = files->peft->file;
            return adapted;
        }
    }
    const struct model_tensor *tensor = find_name(files, part->name, shard);
    return tensor != NULL || part->other == NULL ? tensor : find_name(files, part->other, shard);
}

/* ---- tied tables ---- */

struct found {
    const struct model_tensor *tensor;
    const struct model_safetensors *shard;
};

/* `tensor` is NULL if there is none. */
static struct found find_role(const struct model_files *files,
                              const struct model_block_table *table, enum model_role role)
{
    struct found found = {NULL, NULL};
    for (size_t i = 0; i < table->param_count; i++) {
        if (table->params[i].role == role) {
            found.tensor = find_name(files, table->params[i].parts[0].name, &found.shard);
        }
    }
    return found;
}

static int read_floats(const struct found *from, uint64_t begin, size_t count, char *raw, float *to)
{
    const size_t width = model_dtype_bytes(from->tensor->dtype);
    const int rc = model_safetensors_read(from->shard, from->tensor, begin * width, raw,
                                          count * width);
    if (rc == 0) {
        model_convert(to, MODEL_F32, raw, from->tensor->dtype, count);
    }
    return rc;
}

/* Returns false if the tensors cannot be read. */
static bool differ(const struct found *a, const struct found *b, uint64_t elements)
{
    enum { ELEMENTS = 1 << 18 };
    float *floats = malloc(3 * ELEMENTS * sizeof *floats);
    bool different = false;
    int rc = floats != NULL ? 0 : -ENOMEM;
    for (uint64_t at = 0; rc == 0 && !different && at < elements; at += ELEMENTS) {
        const size_t count = (size_t)(elements - at < ELEMENTS ? elements - at : ELEMENTS);
        char *raw = (char *)(floats + 2 * ELEMENTS);
        rc = read_floats(a, at, count, raw, floats);
        if (rc == 0) {
            rc = read_floats(b, at, count, raw, floats + ELEMENTS);
        }
        for (size_t i = 0; rc == 0 && !different && i < count; i++) {
            different = floats[i] != floats[ELEMENTS + i];
        }
    }
    free(floats);
    return different;
}

bool model_files_have_own_head(const char *folder, const struct model_family *family)
{
    struct model_files *files = NULL;
    if (model_files_open(folder, &files) != 0) {
        return false;
    }
    const struct found table = find_role(files, &family->embedding, MODEL_TOKEN_TABLE);
    const struct found head = find_role(files, &family->head, MODEL_HEAD);
    bool own = false;
    if (table.tensor != NULL && head.tensor != NULL && table.tensor->dtype != MODEL_OTHER) {
        const uint64_t bytes = model_dtype_bytes(table.tensor->dtype);
        const uint64_t elements = table.tensor->bytes / bytes;
        own = head.tensor->dtype == MODEL_OTHER ||
              head.tensor->bytes != elements * model_dtype_bytes(head.tensor->dtype) ||
              differ(&table, &head, elements);
    }
    model_files_close(files);
    return own;
}
