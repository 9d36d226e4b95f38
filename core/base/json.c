/* json.c: jansson's door. The scanner has read the text before jansson sees it, so what jansson
 * still refuses is a duplicate key, a key that holds a NUL, half of a surrogate pair, or a want of
 * memory. */
#include "core/base/json.h"

#include <assert.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "core/base/file.h"

static const size_t default_bytes_max = (size_t)256 << 20;

struct core_json {
    char *source; /* owned */
    char *text;   /* owned; strict JSON, every byte where it was in the file */
    size_t bytes;
    json_t *root;               /* owned */
    struct core_budget *budget; /* borrowed: which `charged` bytes are charged to; NULL */
    uint64_t charged;
    bool copied; /* `text` is charged by itself */
};

static const json_t *tree(const struct core_json_value *value)
{
    return (const json_t *)value;
}

static const struct core_json_value *handle(const json_t *value)
{
    return (const struct core_json_value *)value;
}

/* Rewrites an integer of 19 or more digits as 17 digits and an exponent, which is the same double
 * and never longer: "1000000000000000019884624838656" -> "10000000000000000e14           ". */
static void make_real(char *text, size_t bytes, double value)
{
    char whole[64];
    char short_form[64];
    snprintf(whole, sizeof whole, "%.16e", value);
    size_t used = 0;
    const char *at = whole;
    for (; *at != 'e'; at++) {
        if (*at == '-' || (*at >= '0' && *at <= '9')) {
            short_form[used++] = *at;
        }
    }
    int exponent = atoi(at + 1) - 16;
    used += (size_t)snprintf(short_form + used, sizeof short_form - used, "e%d", exponent);
    assert(used <= bytes);
    memset(text, ' ', bytes);
    memcpy(text, short_form, used);
}

/* What jansson takes for a value, its place in its container, and its text, at the most; and for the text
 * of the longest one once more while it is read. */
enum { NUMBER_BYTES = 64, CONTAINER_BYTES = 352, TEXT_BYTES = 176, DOCUMENT_BYTES = 4096 };

static uint64_t cost_of(const struct core_json_token *token)
{
    switch ((int)token->kind) {
    case CORE_JSON_TOKEN_KEY:
    case CORE_JSON_TOKEN_STRING: return TEXT_BYTES + token->bytes;
    case CORE_JSON_TOKEN_OBJECT_BEGIN:
    case CORE_JSON_TOKEN_ARRAY_BEGIN: return CONTAINER_BYTES;
    default: return NUMBER_BYTES;
    }
}

/* Charges what the document and its tree take to the thread's budget, before the tree is made. */
static int charge(struct core_json *doc, uint64_t bytes)
{
    struct core_budget *budget = core_charge_bound();
    int rc = core_charge_take(budget, bytes);
    if (rc != 0) {
        return core_err_set(rc, "no memory for the tree of %s (%zu bytes of JSON)", doc->source,
                            doc->bytes);
    }
    doc->budget = budget;
    doc->charged = bytes;
    return 0;
}

/* Reads the whole text once: refuses what is not JSON, blanks what lenient text may hold, and
 * turns integers beyond int64 into reals. */
static int prepare(struct core_json *doc, bool lenient)
{
    struct core_json_scan scan;
    struct core_json_token token;
    uint64_t cost = DOCUMENT_BYTES + (doc->copied ? 0 : doc->bytes);
    uint64_t longest = 0;
    if (lenient) {
        core_json_scan_init_lenient(&scan, doc->text, doc->bytes, doc->source);
    } else {
        core_json_scan_init(&scan, doc->text, doc->bytes, doc->source);
    }
    do {
        int code = core_json_scan_next(&scan, &token);
        if (code != 0) {
            return code;
        }
        cost += cost_of(&token);
        longest = token.bytes > longest ? token.bytes : longest;
        if (token.kind == CORE_JSON_TOKEN_REAL && memchr(token.text, '.', token.bytes) == NULL &&
            memchr(token.text, 'e', token.bytes) == NULL &&
            memchr(token.text, 'E', token.bytes) == NULL) {
            make_real(doc->text + (token.text - doc->text), token.bytes,
                      core_json_token_real(&token));
        }
    } while (token.kind != CORE_JSON_TOKEN_END);
    return charge(doc, cost + 3 * longest);
}

/* The offset of the first key of the object at `object` that equals `key`. */
static size_t first_like(const struct core_json *doc, size_t object,
                         const struct core_json_token *key)
{
    size_t found = (size_t)(key->text - doc->text);
    char *plain = malloc(key->bytes + 1);
    if (plain == NULL) {
        return found;
    }
    size_t bytes = core_json_token_string(key, plain, key->bytes);
    struct core_json_scan scan;
    struct core_json_token token;
    core_json_scan_init(&scan, doc->text + object, doc->bytes - object, doc->source);
    while (core_json_scan_next(&scan, &token) == 0 && token.text < key->text) {
        if (scan.depth == 1 && token.kind == CORE_JSON_TOKEN_KEY &&
            core_json_token_equals(&token, plain, bytes)) {
            found = (size_t)(token.text - doc->text);
            break;
        }
    }
    free(plain);
    return found;
}

/* `end` is the offset behind the closing quote of the second of two equal keys. */
static int refuse_duplicate(const struct core_json *doc, size_t end)
{
    struct core_json_scan scan;
    struct core_json_token token;
    size_t objects[CORE_JSON_DEPTH_MAX + 1] = {0};
    core_json_scan_init(&scan, doc->text, doc->bytes, doc->source);
    while (core_json_scan_next(&scan, &token) == 0 && token.kind != CORE_JSON_TOKEN_END) {
        size_t at = (size_t)(token.text - doc->text);
        if (token.kind == CORE_JSON_TOKEN_OBJECT_BEGIN) {
            objects[scan.depth] = at;
        } else if (token.kind == CORE_JSON_TOKEN_KEY && at + token.bytes + 1 == end) {
            struct core_json_place second = core_json_place_of(doc->text, at - 1);
            size_t first = first_like(doc, objects[scan.depth], &token);
            return core_err_set(-EINVAL,
                                "%s:%zu:%zu: key \"%.*s\" stands twice in one object, "
                                "first in line %zu; keep one of the two",
                                doc->source, second.line, second.column,
                                (int)(token.bytes > 200 ? 200 : token.bytes), token.text,
                                core_json_place_of(doc->text, first).line);
        }
    }
    return core_err_set(-EINVAL, "%s: a key stands twice in one object", doc->source);
}

/* Whether `unit` is the first (0xD800) or the second (0xDC00) half of a pair. */
static bool is_half(unsigned unit, unsigned half)
{
    return (unit & 0xFC00) == half;
}

/* The code of the escape \uXXXX at `at`; 0 where none stands there. */
static unsigned escape_at(const struct core_json *doc, size_t at)
{
    char digits[5] = "";
    if (at + 6 > doc->bytes || doc->text[at] != '\\' || doc->text[at + 1] != 'u') {
        return 0;
    }
    memcpy(digits, doc->text + at + 2, 4);
    return (unsigned)strtoul(digits, NULL, 16);
}

/* Refuses the first escape that is one half of a character without the other; 0: there is none. */
static int refuse_half(const struct core_json *doc)
{
    for (size_t at = 0; at < doc->bytes; at++) {
        const unsigned unit = escape_at(doc, at);
        const bool first = is_half(unit, 0xD800);
        if (first && is_half(escape_at(doc, at + 6), 0xDC00)) {
            at += 11;
        } else if (first || is_half(unit, 0xDC00)) {
            const struct core_json_place place = core_json_place_of(doc->text, at);
            return core_err_set(-EINVAL,
                                "%s:%zu:%zu: \\u%04x is one half of a character, and its other "
                                "half does not stand beside it",
                                doc->source, place.line, place.column, unit);
        } else {
            at += doc->text[at] == '\\';
        }
    }
    return 0;
}

static int build(struct core_json *doc)
{
    json_error_t error;
    doc->root = json_loadb(doc->text, doc->bytes,
                           JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
    if (doc->root != NULL) {
        return 0;
    }
    size_t offset = error.position < 0 ? 0 : (size_t)error.position;
    offset = offset > doc->bytes ? doc->bytes : offset;
    enum json_error_code cause = json_error_code(&error);
    if (cause == json_error_duplicate_key) {
        return refuse_duplicate(doc, offset);
    }
    if (cause == json_error_null_byte_in_key) {
        struct core_json_place place = core_json_place_of(doc->text, offset);
        return core_err_set(-EINVAL, "%s:%zu:%zu: a key with \\u0000 in it; keys are plain text",
                            doc->source, place.line, place.column);
    }
    const int code = cause == json_error_invalid_syntax ? refuse_half(doc) : 0;
    /* Not always said by jansson, but nothing else is left. */
    return code != 0 ? code
                     : core_err_set(-ENOMEM, "no memory for the tree of %s (%zu bytes of JSON)",
                                    doc->source, doc->bytes);
}

static void free_text(char *text, bool copied)
{
    if (copied) {
        core_charge_free(text);
    } else {
        free(text);
    }
}

/* Takes over `text`, which is freed with the document or on failure. */
static int adopt(char *text, bool copied, size_t bytes, const char *source,
                 const struct core_json_options *options, struct core_json **out)
{
    struct core_json *doc = calloc(1, sizeof *doc);
    if (doc == NULL) {
        free_text(text, copied);
        return core_err_set(-ENOMEM, "no memory to parse %s", source);
    }
    doc->text = text;
    doc->copied = copied;
    doc->bytes = bytes;
    doc->source = strdup(source);
    int code = doc->source == NULL ? core_err_set(-ENOMEM, "no memory to parse %s", source)
                                   : prepare(doc, options != NULL && options->lenient);
    if (code == 0) {
        code = build(doc);
    }
    if (code != 0) {
        core_json_destroy(doc);
        return code;
    }
    *out = doc;
    return 0;
}

int core_json_parse(const char *text, size_t bytes, const char *source,
                    const struct core_json_options *options, struct core_json **out)
{
    char *copy = core_charge_alloc(bytes + 1);
    if (copy == NULL) {
        return core_err_set(-ENOMEM, "no memory for the %zu bytes of %s", bytes, source);
    }
    memcpy(copy, text, bytes);
    copy[bytes] = '\0';
    return adopt(copy, true, bytes, source, options, out);
}

int core_json_load(const char *path, const struct core_json_options *options,
                   struct core_json **out)
{
    char *text = NULL;
    size_t bytes = 0;
    size_t limit = options != NULL && options->bytes_max > 0 ? options->bytes_max
                                                             : default_bytes_max;
    const bool regular = options != NULL && options->regular;
    int code = regular ? core_file_read_regular(path, limit, &text, &bytes)
                       : core_file_read(path, limit, &text, &bytes);
    if (code != 0) {
        return code;
    }
    return adopt(text, false, bytes, strcmp(path, "-") == 0 ? "standard input" : path, options,
                 out);
}

void core_json_destroy(struct core_json *doc)
{
    if (doc == NULL) {
        return;
    }
    json_decref(doc->root);
    core_charge_give(doc->budget, doc->charged);
    free(doc->source);
    free_text(doc->text, doc->copied);
    free(doc);
}

const char *core_json_source(const struct core_json *doc)
{
    return doc->source;
}

const char *core_json_text(const struct core_json *doc, size_t *bytes)
{
    *bytes = doc->bytes;
    return doc->text;
}

const struct core_json_value *core_json_root(const struct core_json *doc)
{
    return handle(doc->root);
}

enum core_json_kind core_json_kind(const struct core_json_value *value)
{
    switch (json_typeof(tree(value))) {
    case JSON_OBJECT: return CORE_JSON_OBJECT;
    case JSON_ARRAY: return CORE_JSON_ARRAY;
    case JSON_STRING: return CORE_JSON_STRING;
    case JSON_INTEGER: return CORE_JSON_INTEGER;
    case JSON_REAL: return CORE_JSON_REAL;
    case JSON_TRUE:
    case JSON_FALSE: return CORE_JSON_BOOL;
    case JSON_NULL: break;
    }
    return CORE_JSON_NULL;
}

bool core_json_bool(const struct core_json_value *value)
{
    return json_is_true(tree(value));
}

int64_t core_json_integer(const struct core_json_value *value)
{
    return json_integer_value(tree(value));
}

double core_json_real(const struct core_json_value *value)
{
    return json_number_value(tree(value));
}

const char *core_json_string(const struct core_json_value *value, size_t *bytes)
{
    if (bytes != NULL) {
        *bytes = json_string_length(tree(value));
    }
    return json_string_value(tree(value));
}

size_t core_json_count(const struct core_json_value *value)
{
    const json_t *node = tree(value);
    return json_is_object(node) ? json_object_size(node) : json_array_size(node);
}

const struct core_json_value *core_json_find(const struct core_json_value *object, const char *key)
{
    return handle(json_object_get(tree(object), key));
}

const struct core_json_value *core_json_at(const struct core_json_value *array, size_t index)
{
    return handle(json_array_get(tree(array), index));
}

/* jansson's iterators take an object that may change; ours does not. */
static json_t *iterated(const struct core_json_value *object)
{
    union {
        const struct core_json_value *value;
        json_t *node;
    } both = {.value = object};
    return both.node;
}

static bool fill_member(struct core_json_member *member)
{
    if (member->at == NULL) {
        return false;
    }
    member->key = json_object_iter_key(member->at);
    member->key_bytes = json_object_iter_key_len(member->at);
    member->value = handle(json_object_iter_value(member->at));
    return true;
}

bool core_json_first(const struct core_json_value *object, struct core_json_member *member)
{
    *member = (struct core_json_member){.object = object, .at = json_object_iter(iterated(object))};
    return fill_member(member);
}

bool core_json_next(struct core_json_member *member)
{
    member->at = json_object_iter_next(iterated(member->object), member->at);
    return fill_member(member);
}
