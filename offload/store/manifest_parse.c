/* manifest_parse.c: parses a manifest. Every value is checked before it is used. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/json/json.h"
#include "offload/plan/shard.h"
#include "offload/store/manifest.h"
#include "offload/store/manifest_seal.h"

/* ---- values ---- */

static int get_count(const struct core_json *doc, const struct core_json_value *object,
                     const char *key, uint64_t most, uint64_t *out)
{
    int64_t value = 0;
    int rc = core_json_get_integer(doc, object, key, &value);
    if (rc == 0 && (value < 0 || (uint64_t)value > most)) {
        rc = core_json_refuse(doc, object, key, 0, -EINVAL,
                              "found %" PRId64 "; expected 0 to %" PRIu64, value, most);
    }
    if (rc == 0) {
        *out = (uint64_t)value;
    }
    return rc;
}

static int get_hex(const struct core_json *doc, const struct core_json_value *object,
                   const char *key, uint64_t *out)
{
    const char *text = NULL;
    int rc = core_json_get_string(doc, object, key, &text);
    if (rc == 0 && (strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)) {
        rc = core_json_refuse(doc, object, key, 0, -EINVAL,
                              "found \"%.40s\"; expected 16 hexadecimal digits", text);
    }
    if (rc == 0) {
        *out = strtoull(text, NULL, 16);
    }
    return rc;
}

static int get_text(const struct core_json *doc, const struct core_json_value *object,
                    const char *key, char *out, size_t bytes)
{
    const char *text = NULL;
    int rc = core_json_get_string(doc, object, key, &text);
    if (rc == 0 && (strlen(text) >= bytes || text[0] == '\0')) {
        rc = core_json_refuse(doc, object, key, 0, -EINVAL, "has %zu characters; expected 1 to %zu",
                              strlen(text), bytes - 1);
    }
    if (rc == 0) {
        snprintf(out, bytes, "%s", text);
    }
    return rc;
}

/* Refuses paths, so that a manifest cannot name a file outside its folder. */
static int get_file(const struct core_json *doc, const struct core_json_value *object,
                    struct store_file *out)
{
    int rc = get_text(doc, object, "name", out->name, sizeof out->name);
    if (rc != 0) {
        return rc;
    }
    if (strchr(out->name, '/') != NULL || out->name[0] == '.') {
        return core_json_refuse(doc, object, "name", 0, -EINVAL, "\"%s\" is not a plain file name",
                                out->name);
    }
    rc = get_count(doc, object, "bytes", INT64_MAX, &out->bytes);
    return rc == 0 ? get_hex(doc, object, "xxh3", &out->hash) : rc;
}

/* ---- parts of a manifest ---- */

static int parse_scale(const struct core_json *doc, const struct core_json_value *root,
                       struct store_scale *out)
{
    const struct core_json_value *object = NULL;
    uint64_t left = 0;
    int rc = core_json_get(doc, root, "loss_scale", CORE_JSON_OBJECT, &object);
    if (rc != 0) {
        return rc;
    }
    rc = core_json_get_real(doc, object, "value", &out->value);
    if (rc != 0) {
        return rc;
    }
    if (!(out->value > 0)) {
        return core_json_refuse(doc, object, "value", 0, -EINVAL,
                                "found %g; expected a number above 0", out->value);
    }
    rc = get_count(doc, object, "steps", INT64_MAX, &out->steps);
    if (rc != 0) {
        return rc;
    }
    rc = get_count(doc, object, "last_overflow", INT64_MAX, &out->last_overflow);
    if (rc != 0) {
        return rc;
    }
    rc = get_count(doc, object, "hysteresis_left", UINT32_MAX, &left);
    out->hysteresis_left = (uint32_t)left;
    return rc;
}

static int parse_parameters(const struct core_json *doc, const struct core_json_value *root,
                            struct store_manifest *out)
{
    const struct core_json_value *object = NULL;
    struct core_json_member member;
    int rc = core_json_get(doc, root, "parameters", CORE_JSON_OBJECT, &object);
    if (rc == 0 && core_json_count(object) > STORE_PARAMETERS_MAX) {
        return core_json_refuse(doc, root, "parameters", 0, -EINVAL, "has %zu; the maximum is %d",
                                core_json_count(object), STORE_PARAMETERS_MAX);
    }
    for (bool any = rc == 0 && core_json_first(object, &member); any && rc == 0;
         any = core_json_next(&member)) {
        struct store_parameter *to = &out->parameters[out->parameter_count++];
        if (member.key_bytes >= sizeof to->name) {
            return core_json_refuse(doc, object, member.key, 0, -EINVAL,
                                    "has a name that is too long");
        }
        memcpy(to->name, member.key, member.key_bytes);
        rc = get_text(doc, object, member.key, to->value, sizeof to->value);
    }
    return rc;
}

static int check_format(const struct core_json *doc, const struct core_json_value *streams,
                        const struct store_manifest *manifest)
{
    const struct plan_format *format = &manifest->format;
    const bool narrow = format->m_bytes == 1 || format->v_bytes == 1;
    const bool wide = strcmp(manifest->weight_dtype, "F32") == 0;
    const bool half = strcmp(manifest->weight_dtype, "BF16") == 0 ||
                      strcmp(manifest->weight_dtype, "F16") == 0;
    const bool sizes = (wide && format->weight_bytes == 4) || (half && format->weight_bytes == 2);
    const bool group = !narrow || (format->q8_block >= 16 && format->q8_block <= 4096 &&
                                   (format->q8_block & (format->q8_block - 1)) == 0);
    const bool others = format->master_bytes != 1 && format->master_bytes != 3 &&
                        format->m_bytes != 3 && format->v_bytes != 3;
    return sizes && group && others && narrow == (format->q8_block != 0)
               ? 0
               : core_json_refuse(doc, streams, "weights", 0, -EINVAL,
                                  "weights %s of %u bytes, master of %u, moments of %u and %u in "
                                  "groups of %u are not the formats of any run",
                                  manifest->weight_dtype, format->weight_bytes,
                                  format->master_bytes, format->m_bytes, format->v_bytes,
                                  format->q8_block);
}

static int parse_streams(const struct core_json *doc, const struct core_json_value *root,
                         struct store_manifest *out)
{
    static const struct {
        const char *key;
        uint64_t most;
    } keys[] = {{"weight_bytes", 4}, {"master_bytes", 4},   {"m_bytes", 4},
                {"v_bytes", 4},      {"scale_group", 4096}, {"cut_elements", PLAN_CUT_ELEMENTS}};
    const struct core_json_value *streams = NULL;
    const struct core_json_value *sums = NULL;
    uint64_t values[6] = {0};
    int rc = core_json_get(doc, root, "streams", CORE_JSON_OBJECT, &streams);
    if (rc != 0) {
        return rc;
    }
    rc = get_text(doc, streams, "weights", out->weight_dtype, sizeof out->weight_dtype);
    for (int i = 0; rc == 0 && i < 6; i++) {
        rc = get_count(doc, streams, keys[i].key, keys[i].most, &values[i]);
    }
    if (rc != 0) {
        return rc;
    }
    out->format = (struct plan_format){.weight_bytes = (uint8_t)values[0],
                                       .master_bytes = (uint8_t)values[1],
                                       .m_bytes = (uint8_t)values[2],
                                       .v_bytes = (uint8_t)values[3],
                                       .q8_block = (uint16_t)values[4]};
    rc = check_format(doc, streams, out);
    if (rc != 0) {
        return rc;
    }
    if (values[5] != PLAN_CUT_ELEMENTS) {
        return core_json_refuse(doc, streams, "cut_elements", 0, -EINVAL, "is always %d",
                                PLAN_CUT_ELEMENTS);
    }
    rc = core_json_get(doc, streams, "sums", CORE_JSON_OBJECT, &sums);
    return rc == 0 ? get_file(doc, sums, &out->sums) : rc;
}

/* The key is missing if the block has the run's type. */
static int parse_weights(const struct core_json *doc, const struct core_json_value *from,
                         struct blocks *blocks)
{
    const char *text = NULL;
    if (core_json_find(from, "weights") == NULL) {
        return 0;
    }
    int rc = core_json_get_string(doc, from, "weights", &text);
    if (rc != 0) {
        return rc;
    }
    for (int w = BLOCK_WEIGHTS_BF16; w <= BLOCK_WEIGHTS_FP32; w++) {
        if (strcmp(text, store_block_dtype((enum block_weights)w)) == 0) {
            blocks_set_weights(blocks, (enum block_weights)w);
            return 0;
        }
    }
    return core_json_refuse(doc, from, "weights", 0, -EINVAL,
                            "found \"%.40s\"; expected BF16, F16 or F32", text);
}

static int parse_tensor(const struct core_json *doc, const struct core_json_value *list,
                        size_t index, struct blocks *blocks)
{
    const struct core_json_value *from = core_json_at(list, index);
    char name[BLOCKS_NAME_BYTES_MAX + 1];
    uint64_t rows = 0;
    uint64_t cols = 0;
    struct block_tensor tensor = {.name = name};
    int rc = core_json_kind(from) == CORE_JSON_OBJECT
                 ? get_text(doc, from, "name", name, sizeof name)
                 : core_json_refuse(doc, list, NULL, index, -EINVAL, "expected an object");
    if (rc == 0) {
        rc = get_count(doc, from, "first", BLOCKS_ELEMENTS_MAX, &tensor.first);
    }
    if (rc == 0) {
        rc = get_count(doc, from, "rows", BLOCKS_ELEMENTS_MAX, &rows);
    }
    if (rc == 0) {
        rc = get_count(doc, from, "cols", BLOCKS_ELEMENTS_MAX, &cols);
    }
    if (rc == 0) {
        rc = core_json_get_bool(doc, from, "transposed", &tensor.transposed);
    }
    tensor.rows = (int64_t)rows;
    tensor.cols = (int64_t)cols;
    return rc == 0 ? blocks_add_tensor(blocks, &tensor, NULL) : rc;
}

static int parse_tensors(const struct core_json *doc, const struct core_json_value *from,
                         struct blocks *blocks)
{
    const struct core_json_value *list = NULL;
    int rc = core_json_get(doc, from, "tensors", CORE_JSON_ARRAY, &list);
    const size_t count = rc == 0 ? core_json_count(list) : 0;
    for (size_t i = 0; rc == 0 && i < count; i++) {
        rc = parse_tensor(doc, list, i, blocks);
    }
    return rc;
}

static int parse_block(const struct core_json *doc, const struct core_json_value *list,
                       size_t index, struct blocks *blocks)
{
    const struct core_json_value *from = core_json_at(list, index);
    char name[BLOCKS_NAME_BYTES_MAX + 1];
    uint64_t elements = 0;
    uint64_t first = 0;
    bool trained = false;
    int rc = core_json_kind(from) == CORE_JSON_OBJECT
                 ? get_text(doc, from, "name", name, sizeof name)
                 : core_json_refuse(doc, list, NULL, index, -EINVAL, "expected an object");
    if (rc != 0) {
        return rc;
    }
    rc = get_count(doc, from, "elements", BLOCKS_ELEMENTS_MAX, &elements);
    if (rc != 0) {
        return rc;
    }
    rc = core_json_get_bool(doc, from, "trained", &trained);
    if (rc != 0) {
        return rc;
    }
    rc = blocks_add(blocks, name);
    if (rc != 0) {
        return rc;
    }
    rc = parse_weights(doc, from, blocks);
    if (rc != 0) {
        return rc;
    }
    rc = blocks_add_array(blocks, elements, 0, trained, &first);
    return rc == 0 ? parse_tensors(doc, from, blocks) : rc;
}

static int parse_blocks(const struct core_json *doc, const struct core_json_value *root,
                        struct store_manifest *out)
{
    const struct core_json_value *list = NULL;
    char family[BLOCKS_FAMILY_BYTES];
    uint64_t hash = 0;
    int rc = get_text(doc, root, "family", family, sizeof family);
    if (rc != 0) {
        return rc;
    }
    rc = get_hex(doc, root, "model", &hash);
    if (rc != 0) {
        return rc;
    }
    rc = core_json_get(doc, root, "blocks", CORE_JSON_ARRAY, &list);
    if (rc != 0) {
        return rc;
    }
    const size_t count = core_json_count(list);
    if (count == 0 || count > BLOCKS_MAX) {
        return core_json_refuse(doc, root, "blocks", 0, -EINVAL, "has %zu; expected 1 to %d", count,
                                BLOCKS_MAX);
    }
    rc = blocks_create(&out->parsed);
    for (size_t b = 0; rc == 0 && b < count; b++) {
        rc = parse_block(doc, list, b, out->parsed);
    }
    if (rc == 0) {
        out->parsed->base_apart = core_json_find(root, "base") != NULL;
        rc = out->parsed->base_apart ? get_hex(doc, root, "base", &out->base) : 0;
    }
    if (rc == 0) {
        rc = blocks_finish(out->parsed, family, hash);
        out->blocks = out->parsed;
    }
    return rc;
}

static int parse_files(const struct core_json *doc, const struct core_json_value *root,
                       struct store_manifest *out)
{
    const struct core_json_value *list = NULL;
    int rc = core_json_get(doc, root, "files", CORE_JSON_ARRAY, &list);
    const size_t count = rc == 0 ? core_json_count(list) : 0;
    if (rc == 0 && count > STORE_FILES_MAX) {
        return core_json_refuse(doc, root, "files", 0, -EINVAL, "has %zu; the maximum is %d", count,
                                STORE_FILES_MAX);
    }
    out->files = calloc(count > 0 ? count : 1, sizeof *out->files);
    if (out->files == NULL) {
        return core_err_set(-ENOMEM, "no memory for %zu files", count);
    }
    for (size_t i = 0; rc == 0 && i < count; i++) {
        const struct core_json_value *from = core_json_at(list, i);
        rc = core_json_kind(from) == CORE_JSON_OBJECT
                 ? get_file(doc, from, &out->files[i])
                 : core_json_refuse(doc, list, NULL, i, -EINVAL, "expected an object");
        out->file_count++;
    }
    return rc;
}

static int parse_application(const struct core_json *doc, const struct core_json_value *root,
                             struct store_manifest *out)
{
    const char *text = NULL;
    int rc = core_json_get_string(doc, root, "application", &text);
    if (rc != 0) {
        return rc;
    }
    const size_t digits = strlen(text);
    if (digits % 2 != 0 || digits / 2 > STORE_APPLICATION_BYTES_MAX ||
        strspn(text, "0123456789abcdef") != digits) {
        return core_json_refuse(doc, root, "application", 0, -EINVAL,
                                "expected pairs of hexadecimal digits, at most %d",
                                STORE_APPLICATION_BYTES_MAX);
    }
    rc = store_manifest_set_application(out, text, digits / 2);
    for (size_t i = 0; rc == 0 && i < digits / 2; i++) {
        const char pair[3] = {text[2 * i], text[2 * i + 1], '\0'};
        ((unsigned char *)out->application)[i] = (unsigned char)strtoul(pair, NULL, 16);
    }
    return rc;
}

static int parse_part(const struct core_json *doc, const struct core_json_value *root,
                      struct store_part *out)
{
    const struct core_json_value *object = NULL;
    const struct core_json_value *ranks = NULL;
    uint64_t states_of = 0;
    uint64_t weights_of = 0;
    if (core_json_find(root, "part") == NULL) {
        return 0;
    }
    int rc = core_json_get(doc, root, "part", CORE_JSON_OBJECT, &object);
    if (rc != 0) {
        return rc;
    }
    rc = get_count(doc, object, "states_of", STORE_PART_RANKS, &states_of);
    if (rc != 0) {
        return rc;
    }
    rc = get_count(doc, object, "weights_of", STORE_PART_RANKS, &weights_of);
    if (rc != 0) {
        return rc;
    }
    rc = core_json_get(doc, object, "ranks", CORE_JSON_ARRAY, &ranks);
    if (rc != 0) {
        return rc;
    }
    for (size_t i = 0; i < core_json_count(ranks); i++) {
        const struct core_json_value *rank = core_json_at(ranks, i);
        int64_t value = -1;
        if (core_json_kind(rank) != CORE_JSON_INTEGER || (value = core_json_integer(rank)) < 0 ||
            value >= STORE_PART_RANKS) {
            return core_json_refuse(doc, object, "ranks", 0, -EINVAL, "expected ranks below %d",
                                    STORE_PART_RANKS);
        }
        out->ranks |= UINT64_C(1) << value;
    }
    out->states_of = (uint32_t)states_of;
    out->weights_of = (uint32_t)weights_of;
    return out->ranks != 0 && states_of > 0 && weights_of > 0
               ? 0
               : core_json_refuse(doc, root, "part", 0, -EINVAL, "has no ranks");
}

/* ---- the whole manifest ---- */

static int parse_version(const struct core_json *doc, const struct core_json_value *root)
{
    const char *format = NULL;
    int64_t version = 0;
    int rc = core_json_kind(root) == CORE_JSON_OBJECT
                 ? core_json_get_string(doc, root, "format", &format)
                 : core_err_set(-EINVAL, "%s: expected an object", core_json_source(doc));
    if (rc != 0) {
        return rc;
    }
    if (strcmp(format, STORE_MANIFEST_FORMAT) != 0) {
        return core_json_refuse(doc, root, "format", 0, -EINVAL, "found \"%.40s\", not \"%s\"",
                                format, STORE_MANIFEST_FORMAT);
    }
    rc = core_json_get_integer(doc, root, "version", &version);
    if (rc == 0 && (version < 1 || version > STORE_MANIFEST_VERSION)) {
        rc = core_json_refuse(doc, root, "version", 0, -ENOTSUP,
                              "is %" PRId64 "; this version of tide reads 1 to %d", version,
                              STORE_MANIFEST_VERSION);
    }
    return rc;
}

static int parse(const struct core_json *doc, struct store_manifest *out)
{
    const struct core_json_value *root = core_json_root(doc);
    int rc = parse_version(doc, root);
    if (rc != 0) {
        return rc;
    }
    rc = get_hex(doc, root, "run", &out->run);
    if (rc != 0) {
        return rc;
    }
    rc = get_count(doc, root, "step", INT64_MAX, &out->step);
    if (rc != 0) {
        return rc;
    }
    rc = get_count(doc, root, "updates", out->step, &out->updates);
    if (rc != 0) {
        return rc;
    }
    rc = parse_scale(doc, root, &out->scale);
    if (rc != 0) {
        return rc;
    }
    rc = parse_parameters(doc, root, out);
    if (rc != 0) {
        return rc;
    }
    rc = parse_streams(doc, root, out);
    if (rc != 0) {
        return rc;
    }
    rc = parse_blocks(doc, root, out);
    if (rc != 0) {
        return rc;
    }
    rc = parse_part(doc, root, &out->part);
    if (rc != 0) {
        return rc;
    }
    rc = parse_files(doc, root, out);
    if (rc != 0) {
        return rc;
    }
    return parse_application(doc, root, out);
}

int store_manifest_parse(const char *text, size_t bytes, const char *source,
                         struct store_manifest *out)
{
    struct store_manifest made = {.step = 0};
    struct core_json *doc = NULL;
    int rc = store_manifest_unseal(text, bytes, source);
    if (rc != 0) {
        goto done;
    }
    rc = core_json_parse(text, bytes, source, NULL, &doc);
    if (rc != 0) {
        goto done;
    }
    rc = parse(doc, &made);

done:
    core_json_destroy(doc);
    if (rc != 0) {
        store_manifest_fini(&made);
        /* A missing key is damage like any other; -ENOENT is only for files. */
        return rc == -ENOENT ? -EINVAL : rc;
    }
    *out = made;
    return 0;
}
