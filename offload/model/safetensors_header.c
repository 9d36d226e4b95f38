/* safetensors_header.c: parses and checks a safetensors header. */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/json/scan.h"
#include "offload/model/safetensors.h"

static const struct {
    const char *name;
    unsigned bits;
    enum model_dtype dtype;
} types[] = {
    {"F32", 32, MODEL_F32},          {"F16", 16, MODEL_F16},      {"BF16", 16, MODEL_BF16},
    {"BOOL", 8, MODEL_OTHER},        {"U8", 8, MODEL_OTHER},      {"I8", 8, MODEL_OTHER},
    {"F8_E5M2", 8, MODEL_OTHER},     {"F8_E4M3", 8, MODEL_OTHER}, {"F8_E8M0", 8, MODEL_OTHER},
    {"I16", 16, MODEL_OTHER},        {"U16", 16, MODEL_OTHER},    {"I32", 32, MODEL_OTHER},
    {"U32", 32, MODEL_OTHER},        {"F64", 64, MODEL_OTHER},    {"I64", 64, MODEL_OTHER},
    {"U64", 64, MODEL_OTHER},        {"C64", 64, MODEL_OTHER},    {"F4", 4, MODEL_OTHER},
    {"F6_E2M3", 6, MODEL_OTHER},     {"F6_E3M2", 6, MODEL_OTHER}, {"F8_E4M3FNUZ", 8, MODEL_OTHER},
    {"F8_E5M2FNUZ", 8, MODEL_OTHER},
};

struct parser {
    struct core_json_scan scan;
    struct core_json_token token;
    struct model_safetensors_table table;
    size_t capacity;
    size_t names_used;
    bool metadata;
};

/* `what` completes the error's message. */
static int expect(struct parser *parser, enum core_json_token_kind kind, const char *what)
{
    int rc = core_json_scan_next(&parser->scan, &parser->token);
    if (rc == 0 && parser->token.kind != kind) {
        rc = core_err_set(-EINVAL, "byte %zu of the header: %s", parser->scan.at, what);
    }
    return rc;
}

static int expect_size(struct parser *parser, uint64_t *out)
{
    int rc = expect(parser, CORE_JSON_TOKEN_INTEGER, "a whole number was expected");
    if (rc != 0) {
        return rc;
    }
    int64_t value = core_json_token_integer(&parser->token);
    if (value < 0) {
        return core_err_set(-EINVAL, "byte %zu of the header: %" PRId64 " is negative",
                            parser->scan.at, value);
    }
    *out = (uint64_t)value;
    return 0;
}

static int parse_dtype(struct parser *parser, struct model_tensor *tensor, unsigned *bits)
{
    int rc = expect(parser, CORE_JSON_TOKEN_STRING, "dtype is not a string");
    if (rc != 0) {
        return rc;
    }
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (core_json_token_equals(&parser->token, types[i].name, strlen(types[i].name))) {
            tensor->dtype_name = types[i].name;
            tensor->dtype = types[i].dtype;
            *bits = types[i].bits;
            return 0;
        }
    }
    size_t shown = parser->token.bytes < 32 ? parser->token.bytes : 32;
    return core_err_set(-EINVAL, "tensor %s has the unknown type \"%.*s\"", tensor->name,
                        (int)shown, parser->token.text);
}

static int parse_shape(struct parser *parser, struct model_tensor *tensor)
{
    int rc = expect(parser, CORE_JSON_TOKEN_ARRAY_BEGIN, "shape is not a list");
    for (tensor->dimensions = 0; rc == 0;) {
        rc = core_json_scan_next(&parser->scan, &parser->token);
        if (rc != 0 || parser->token.kind == CORE_JSON_TOKEN_ARRAY_END) {
            break;
        }
        int64_t size = parser->token.kind == CORE_JSON_TOKEN_INTEGER
                           ? core_json_token_integer(&parser->token)
                           : -1;
        if (size < 0 || tensor->dimensions == MODEL_TENSOR_DIMENSIONS_MAX) {
            return core_err_set(-EINVAL, "the shape of tensor %s is not a list of at most %d sizes",
                                tensor->name, MODEL_TENSOR_DIMENSIONS_MAX);
        }
        tensor->shape[tensor->dimensions++] = (uint64_t)size;
    }
    return rc;
}

static int parse_offsets(struct parser *parser, struct model_tensor *tensor)
{
    uint64_t begin = 0;
    uint64_t end = 0;
    int rc = expect(parser, CORE_JSON_TOKEN_ARRAY_BEGIN, "data_offsets is not a list");
    if (rc != 0) {
        return rc;
    }
    rc = expect_size(parser, &begin);
    if (rc != 0) {
        return rc;
    }
    rc = expect_size(parser, &end);
    if (rc != 0) {
        return rc;
    }
    rc = expect(parser, CORE_JSON_TOKEN_ARRAY_END, "data_offsets must have two numbers");
    if (rc == 0 && end < begin) {
        rc = core_err_set(-EINVAL, "tensor %s ends before it begins", tensor->name);
    }
    if (rc == 0) {
        tensor->offset_bytes = begin;
        tensor->bytes = end - begin;
    }
    return rc;
}

/* Checks that type and shape match data_offsets. */
static int check_bytes(const struct model_tensor *tensor, unsigned bits)
{
    uint64_t elements = 1;
    bool overflow = false;
    for (unsigned i = 0; i < tensor->dimensions; i++) {
        overflow |= __builtin_mul_overflow(elements, tensor->shape[i], &elements);
    }
    uint64_t all_bits;
    overflow |= __builtin_mul_overflow(elements, (uint64_t)bits, &all_bits);
    if (overflow) {
        return core_err_set(-EINVAL, "the shape of tensor %s has more than 2^64 bits",
                            tensor->name);
    }
    if (all_bits % 8 != 0) {
        return core_err_set(-EINVAL,
                            "tensor %s has %" PRIu64
                            " elements of %u bits, which are no whole number of bytes",
                            tensor->name, elements, (unsigned)bits);
    }
    if (all_bits / 8 != tensor->bytes) {
        return core_err_set(-EINVAL,
                            "tensor %s has %" PRIu64 " bytes by dtype and shape and %" PRIu64
                            " by data_offsets",
                            tensor->name, all_bits / 8, tensor->bytes);
    }
    return 0;
}

/* Each key may occur once. */
static int parse_field(struct parser *parser, struct model_tensor *tensor, bool seen[3],
                       unsigned *bits)
{
    static const char *const keys[] = {"dtype", "shape", "data_offsets"};
    size_t which = 0;
    while (which < 3 && !core_json_token_equals(&parser->token, keys[which], strlen(keys[which]))) {
        which++;
    }
    if (which == 3 || seen[which]) {
        size_t shown = parser->token.bytes < 64 ? parser->token.bytes : 64;
        return core_err_set(-EINVAL, "tensor %s: %s key \"%.*s\"", tensor->name,
                            which == 3 ? "unknown" : "duplicate", (int)shown, parser->token.text);
    }
    seen[which] = true;
    return which == 0   ? parse_dtype(parser, tensor, bits)
           : which == 1 ? parse_shape(parser, tensor)
                        : parse_offsets(parser, tensor);
}

static int parse_tensor(struct parser *parser, struct model_tensor *tensor)
{
    bool seen[3] = {false, false, false};
    unsigned bits = 0;
    int rc = expect(parser, CORE_JSON_TOKEN_OBJECT_BEGIN, "the entry of a tensor is not an object");
    while (rc == 0) {
        rc = core_json_scan_next(&parser->scan, &parser->token);
        if (rc != 0 || parser->token.kind == CORE_JSON_TOKEN_OBJECT_END) {
            break;
        }
        rc = parse_field(parser, tensor, seen, &bits);
    }
    if (rc == 0 && !(seen[0] && seen[1] && seen[2])) {
        rc = core_err_set(-EINVAL, "tensor %s lacks %s", tensor->name,
                          !seen[0]   ? "dtype"
                          : !seen[1] ? "shape"
                                     : "data_offsets");
    }
    return rc == 0 ? check_bytes(tensor, bits) : rc;
}

/* Skips {"key": "text", ...}. */
static int parse_metadata(struct parser *parser)
{
    if (parser->metadata) {
        return core_err_set(-EINVAL, "duplicate key \"__metadata__\"");
    }
    parser->metadata = true;
    int rc = expect(parser, CORE_JSON_TOKEN_OBJECT_BEGIN, "__metadata__ is not an object");
    while (rc == 0) {
        rc = core_json_scan_next(&parser->scan, &parser->token);
        if (rc != 0 || parser->token.kind == CORE_JSON_TOKEN_OBJECT_END) {
            break;
        }
        rc = expect(parser, CORE_JSON_TOKEN_STRING, "__metadata__ has values that are not strings");
    }
    return rc;
}

/* `names` has the header's size, so the names fit. */
static int add_tensor(struct parser *parser, struct model_tensor **out)
{
    struct model_safetensors_table *table = &parser->table;
    if (table->count == MODEL_TENSORS_MAX) {
        return core_err_set(-EINVAL, "the file has more than %d tensors", MODEL_TENSORS_MAX);
    }
    if (table->count == parser->capacity) {
        size_t capacity = parser->capacity == 0 ? 64 : parser->capacity * 2;
        struct model_tensor *more = realloc(table->tensors, capacity * sizeof *more);
        if (more == NULL) {
            return core_err_set(-ENOMEM, "no memory for %zu tensor entries", capacity);
        }
        table->tensors = more;
        parser->capacity = capacity;
    }
    char *name = table->names + parser->names_used;
    size_t bytes = core_json_token_string(&parser->token, name, parser->token.bytes);
    if (memchr(name, '\0', bytes) != NULL) {
        return core_err_set(-EINVAL, "byte %zu of the header: a name with a NUL in it",
                            parser->scan.at);
    }
    name[bytes] = '\0';
    parser->names_used += bytes + 1;
    *out = &table->tensors[table->count++];
    **out = (struct model_tensor){.name = name};
    return 0;
}

static int parse_entries(struct parser *parser)
{
    int rc = expect(parser, CORE_JSON_TOKEN_OBJECT_BEGIN, "the header is not an object");
    while (rc == 0) {
        rc = core_json_scan_next(&parser->scan, &parser->token);
        if (rc != 0 || parser->token.kind == CORE_JSON_TOKEN_OBJECT_END) {
            break;
        }
        if (core_json_token_equals(&parser->token, "__metadata__", strlen("__metadata__"))) {
            rc = parse_metadata(parser);
        } else {
            struct model_tensor *tensor = NULL;
            rc = add_tensor(parser, &tensor);
            if (rc == 0) {
                rc = parse_tensor(parser, tensor);
            }
        }
    }
    return rc == 0 ? expect(parser, CORE_JSON_TOKEN_END, "there is data after the header") : rc;
}

static int by_offset(const void *left, const void *right)
{
    const struct model_tensor *a = left;
    const struct model_tensor *b = right;
    if (a->offset_bytes != b->offset_bytes) {
        return a->offset_bytes < b->offset_bytes ? -1 : 1;
    }
    if (a->bytes != b->bytes) {
        return a->bytes < b->bytes ? -1 : 1;
    }
    return strcmp(a->name, b->name);
}

/* Checks that tensors fill the data without gap or overlap. */
static int check_cover(const struct model_safetensors_table *table, uint64_t data_bytes)
{
    uint64_t at = 0;
    for (size_t i = 0; i < table->count; i++) {
        const struct model_tensor *tensor = &table->tensors[i];
        if (tensor->offset_bytes != at) {
            return core_err_set(-EINVAL,
                                "tensor %s begins at byte %" PRIu64
                                " of the data; expected byte %" PRIu64 ": %s",
                                tensor->name, tensor->offset_bytes, at,
                                tensor->offset_bytes < at ? "an overlap" : "a gap");
        }
        if (tensor->bytes > data_bytes - at) {
            return core_err_set(-EINVAL,
                                "tensor %s ends at byte %" PRIu64 " of the data and the file has "
                                "%" PRIu64 ": truncated",
                                tensor->name, at + tensor->bytes, data_bytes);
        }
        at += tensor->bytes;
    }
    if (at != data_bytes) {
        return core_err_set(-EINVAL, "%" PRIu64 " bytes follow the last tensor", data_bytes - at);
    }
    return 0;
}

static int compare_names(const void *left, const void *right)
{
    return strcmp((*(const struct model_tensor *const *)left)->name,
                  (*(const struct model_tensor *const *)right)->name);
}

/* Refuses two tensors of one name. */
static int sort_names(struct model_safetensors_table *table)
{
    table->by_name = calloc(table->count + 1, sizeof(*table->by_name));
    if (table->by_name == NULL) {
        return core_err_set(-ENOMEM, "no memory for %zu tensor names", table->count);
    }
    for (size_t i = 0; i < table->count; i++) {
        table->by_name[i] = &table->tensors[i];
    }
    qsort(table->by_name, table->count, sizeof(*table->by_name), compare_names);
    for (size_t i = 1; i < table->count; i++) {
        const char *name = table->by_name[i]->name;
        if (strcmp(table->by_name[i - 1]->name, name) == 0) {
            return core_err_set(-EINVAL, "duplicate key \"%s\"", name);
        }
    }
    return 0;
}

int model_safetensors_parse(const char *text, size_t header_bytes, uint64_t data_bytes,
                            struct model_safetensors_table *out)
{
    if (header_bytes == 0 || text[0] != '{') {
        return core_err_set(-EINVAL, "the header does not begin with '{'");
    }
    struct parser parser = {0};
    core_json_scan_init(&parser.scan, text, header_bytes, "header");
    parser.table.names = malloc(header_bytes);
    int rc = parser.table.names != NULL
                 ? parse_entries(&parser)
                 : core_err_set(-ENOMEM, "no memory for the names of a header of %zu bytes",
                                header_bytes);
    if (rc != 0) {
        goto fail;
    }
    if (parser.table.count > 0) {
        qsort(parser.table.tensors, parser.table.count, sizeof *parser.table.tensors, by_offset);
    }
    rc = sort_names(&parser.table);
    if (rc != 0) {
        goto fail;
    }
    rc = check_cover(&parser.table, data_bytes);
    if (rc != 0) {
        goto fail;
    }
    *out = parser.table;
    return 0;

fail:
    model_safetensors_table_fini(&parser.table);
    return rc;
}

void model_safetensors_table_fini(struct model_safetensors_table *table)
{
    free(table->tensors);
    free(table->by_name);
    free(table->names);
    *table = (struct model_safetensors_table){0};
}
