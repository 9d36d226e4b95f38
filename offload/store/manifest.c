/* manifest.c: fills in, prints and frees a manifest. */
#include "offload/store/manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/json/json.h"
#include "core/json/write.h"
#include "offload/plan/shard.h"
#include "offload/store/manifest_seal.h"

void store_manifest_fini(struct store_manifest *manifest)
{
    blocks_destroy(manifest->parsed);
    free(manifest->files);
    free(manifest->application);
    *manifest = (struct store_manifest){.step = 0};
}

/* ---- filling in a manifest ---- */

int store_manifest_set_application(struct store_manifest *manifest, const void *bytes, size_t count)
{
    if (count > STORE_APPLICATION_BYTES_MAX) {
        return core_err_set(-EFBIG, "%zu bytes of the application exceed the maximum of %d", count,
                            STORE_APPLICATION_BYTES_MAX);
    }
    void *copy = malloc(count > 0 ? count : 1);
    if (copy == NULL) {
        return core_err_set(-ENOMEM, "no memory for %zu bytes of the application", count);
    }
    if (count > 0) {
        memcpy(copy, bytes, count);
    }
    free(manifest->application);
    manifest->application = copy;
    manifest->application_bytes = count;
    return 0;
}

const char *store_manifest_parameter(const struct store_manifest *manifest, const char *name)
{
    for (uint32_t i = 0; i < manifest->parameter_count; i++) {
        if (strcmp(manifest->parameters[i].name, name) == 0) {
            return manifest->parameters[i].value;
        }
    }
    return NULL;
}

/* ---- writing ---- */

/* Writes a number as text, because many JSON readers keep fewer than 64 bits of a number. */
static void write_hex(struct core_json_write *write, const char *key, uint64_t value)
{
    char text[20];
    snprintf(text, sizeof text, "%016" PRIx64, value);
    core_json_write_string(write, key, text);
}

static void write_file(struct core_json_write *write, const char *key,
                       const struct store_file *file)
{
    core_json_write_object_begin(write, key);
    core_json_write_string(write, "name", file->name);
    core_json_write_unsigned(write, "bytes", file->bytes);
    write_hex(write, "xxh3", file->hash);
    core_json_write_object_end(write);
}

static void write_tensors(struct core_json_write *write, const struct block *block)
{
    core_json_write_array_begin(write, "tensors");
    for (size_t i = 0; i < block->tensor_count; i++) {
        const struct block_tensor *tensor = &block->tensors[i];
        core_json_write_object_begin(write, NULL);
        core_json_write_string(write, "name", tensor->name);
        core_json_write_unsigned(write, "first", tensor->first);
        core_json_write_integer(write, "rows", tensor->rows);
        core_json_write_integer(write, "cols", tensor->cols);
        core_json_write_bool(write, "transposed", tensor->transposed);
        core_json_write_object_end(write);
    }
    core_json_write_array_end(write);
}

static void write_blocks(struct core_json_write *write, const struct blocks *blocks)
{
    core_json_write_array_begin(write, "blocks");
    for (uint32_t b = 0; b < blocks->count; b++) {
        const struct block *block = &blocks->list[b];
        core_json_write_object_begin(write, NULL);
        core_json_write_string(write, "name", block->name);
        core_json_write_unsigned(write, "elements", block->elements);
        core_json_write_bool(write, "trained", block->trained);
        if (block->weights != BLOCK_WEIGHTS_OF_RUN) {
            core_json_write_string(write, "weights", store_block_dtype(block->weights));
        }
        write_tensors(write, block);
        core_json_write_object_end(write);
    }
    core_json_write_array_end(write);
}

/* Prints `found`, a manifest's list, or if NULL, the block's tensors. The caller frees *out. */
static int print_tensors(const struct block *block, const struct core_json_value *found, char **out)
{
    struct core_json_write write;
    core_json_write_init_text(&write);
    core_json_write_object_begin(&write, NULL);
    if (found != NULL) {
        core_json_write_value(&write, "tensors", found);
    } else {
        write_tensors(&write, block);
    }
    core_json_write_object_end(&write);
    const int rc = core_json_write_end(&write);
    *out = rc == 0 ? strdup(write.text) : NULL;
    core_json_write_fini(&write);
    if (rc != 0) {
        return rc;
    }
    return *out != NULL ? 0 : core_err_set(-ENOMEM, "no memory for tensors");
}

static int check_block(const struct core_json *doc, const struct core_json_value *blocks,
                       uint32_t index, const struct block *block)
{
    const struct core_json_value *from = core_json_at(blocks, index);
    const struct core_json_value *tensors = NULL;
    char *found = NULL;
    char *wanted = NULL;
    int rc = core_json_get(doc, from, "tensors", CORE_JSON_ARRAY, &tensors);
    if (rc != 0) {
        return rc;
    }
    rc = print_tensors(block, tensors, &found);
    if (rc != 0) {
        goto done;
    }
    rc = print_tensors(block, NULL, &wanted);
    if (rc != 0) {
        goto done;
    }
    if (strcmp(found, wanted) != 0) {
        rc = core_json_refuse(doc, from, "tensors", 0, -EBADMSG,
                              "is not the list of the model that config.json describes");
    }

done:
    free(found);
    free(wanted);
    return rc == -ENOENT || rc == -EINVAL ? -EBADMSG : rc;
}

int store_manifest_check_tensors(const char *text, size_t bytes, const char *source,
                                 const struct blocks *blocks)
{
    struct core_json *doc = NULL;
    const struct core_json_value *list = NULL;
    int rc = core_json_parse(text, bytes, source, NULL, &doc);
    if (rc == 0) {
        rc = core_json_get(doc, core_json_root(doc), "blocks", CORE_JSON_ARRAY, &list);
    }
    if (rc == 0 && core_json_count(list) != blocks->count) {
        rc = core_json_refuse(doc, core_json_root(doc), "blocks", 0, -EBADMSG,
                              "has %zu; the model that config.json describes has %" PRIu32,
                              core_json_count(list), blocks->count);
    }
    for (uint32_t b = 0; rc == 0 && b < blocks->count; b++) {
        rc = check_block(doc, list, b, &blocks->list[b]);
    }
    core_json_destroy(doc);
    return rc;
}

static void write_format(struct core_json_write *write, const struct store_manifest *manifest)
{
    const struct plan_format *format = &manifest->format;
    core_json_write_object_begin(write, "streams");
    core_json_write_string(write, "weights", manifest->weight_dtype);
    core_json_write_unsigned(write, "weight_bytes", format->weight_bytes);
    core_json_write_unsigned(write, "master_bytes", format->master_bytes);
    core_json_write_unsigned(write, "m_bytes", format->m_bytes);
    core_json_write_unsigned(write, "v_bytes", format->v_bytes);
    core_json_write_unsigned(write, "scale_group", format->q8_block);
    core_json_write_unsigned(write, "cut_elements", PLAN_CUT_ELEMENTS);
    write_file(write, "sums", &manifest->sums);
    core_json_write_object_end(write);
}

static void write_run(struct core_json_write *write, const struct store_manifest *manifest)
{
    write_hex(write, "run", manifest->run);
    core_json_write_unsigned(write, "step", manifest->step);
    core_json_write_unsigned(write, "updates", manifest->updates);
    core_json_write_object_begin(write, "loss_scale");
    core_json_write_real(write, "value", manifest->scale.value);
    core_json_write_unsigned(write, "steps", manifest->scale.steps);
    core_json_write_unsigned(write, "last_overflow", manifest->scale.last_overflow);
    core_json_write_unsigned(write, "hysteresis_left", manifest->scale.hysteresis_left);
    core_json_write_object_end(write);
    core_json_write_object_begin(write, "parameters");
    for (uint32_t i = 0; i < manifest->parameter_count; i++) {
        core_json_write_string(write, manifest->parameters[i].name, manifest->parameters[i].value);
    }
    core_json_write_object_end(write);
}

/* Hexadecimal, because any reader can decode it. */
static int write_application(struct core_json_write *write, const struct store_manifest *manifest)
{
    const unsigned char *bytes = manifest->application;
    char *text = malloc(manifest->application_bytes * 2 + 1);
    if (text == NULL) {
        return core_err_set(-ENOMEM, "no memory for the application's bytes");
    }
    text[0] = '\0';
    for (size_t i = 0; i < manifest->application_bytes; i++) {
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    }
    core_json_write_string(write, "application", text);
    free(text);
    return 0;
}

static void write_part(struct core_json_write *write, const struct store_part *part)
{
    if (part->ranks == 0) {
        return;
    }
    core_json_write_object_begin(write, "part");
    core_json_write_array_begin(write, "ranks");
    for (unsigned r = 0; r < STORE_PART_RANKS; r++) {
        if (part->ranks >> r & 1) {
            core_json_write_unsigned(write, NULL, r);
        }
    }
    core_json_write_array_end(write);
    core_json_write_unsigned(write, "states_of", part->states_of);
    core_json_write_unsigned(write, "weights_of", part->weights_of);
    core_json_write_object_end(write);
}

static int version_of(const struct store_manifest *manifest)
{
    const struct blocks *blocks = manifest->blocks;
    if (manifest->part.ranks != 0) {
        return STORE_MANIFEST_VERSION;
    }
    if (blocks->base_apart) {
        return 3;
    }
    for (uint32_t b = 0; b < blocks->count; b++) {
        if (blocks->list[b].weights != BLOCK_WEIGHTS_OF_RUN) {
            return 2;
        }
    }
    return 1;
}

int store_manifest_print(const struct store_manifest *manifest, char **text, size_t *bytes)
{
    struct core_json_write write;
    core_json_write_init_text(&write);
    write.indent = 1;
    write.bytes_max = STORE_MANIFEST_BYTES_MAX - 64; /* room for the seal */
    core_json_write_object_begin(&write, NULL);
    core_json_write_string(&write, "format", STORE_MANIFEST_FORMAT);
    core_json_write_integer(&write, "version", version_of(manifest));
    write_run(&write, manifest);
    core_json_write_string(&write, "family", manifest->blocks->family);
    write_hex(&write, "model", manifest->blocks->hash);
    if (manifest->blocks->base_apart) {
        write_hex(&write, "base", manifest->base);
    }
    write_format(&write, manifest);
    write_blocks(&write, manifest->blocks);
    write_part(&write, &manifest->part);
    core_json_write_array_begin(&write, "files");
    for (uint32_t i = 0; i < manifest->file_count; i++) {
        write_file(&write, NULL, &manifest->files[i]);
    }
    core_json_write_array_end(&write);
    int application = write_application(&write, manifest);
    core_json_write_object_end(&write);
    int rc = core_json_write_end(&write);
    rc = application != 0 ? application : rc;
    if (rc == 0) {
        rc = store_manifest_seal(write.text, write.bytes, text, bytes);
    }
    core_json_write_fini(&write);
    return rc;
}
