/* json.c: a document's tree. The scanner reads the text twice: first to check it and count values,
 * then to fill memory of that size. Values have their offsets, from which messages compute
 * positions. */
#include "core/json/json.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/hash.h"

static const size_t default_bytes_max = (size_t)256 << 20;

struct core_json_value {
    enum core_json_kind kind;
    bool truth; /* of a BOOL; a REAL: an integer in the text */
    /* offset in the text; a string's is that of its opening quote */
    size_t at;
    size_t key_at;                        /* offset of the key */
    const char *key;                      /* borrowed from `strings`; NULL: not a member */
    const struct core_json_value *parent; /* NULL: the root */
    struct core_json_value *next;         /* in the same container; NULL: the last */
    union {
        int64_t integer;
        double real;
        struct {              /* a string */
            const char *text; /* borrowed from `strings` */
            size_t bytes;
        };
        struct { /* an object or array, whose first child is the next value */
            size_t count;
            union {
                const struct core_json *doc;          /* the document of an object */
                const struct core_json_value **items; /* the items of an array: [count] */
            };
        };
    };
};

struct core_json {
    char *source; /* owned */
    char *text;   /* owned; strict JSON, with the file's offsets */
    size_t bytes;
    struct core_json_value *values;         /* owned; the root is first */
    const struct core_json_value **items;   /* owned; of all arrays */
    const struct core_json_value **members; /* owned; a hash table */
    size_t members_mask;                    /* number of slots - 1 */
    char *strings;                          /* owned; decoded keys and strings, with NULs */
    struct core_budget *budget; /* borrowed: charged for `text` unless `copied`; NULL: none */
    bool copied;                /* core_charge_alloc has charged `text` */
};

/* The memory of a document. */
struct needs {
    size_t values;
    size_t items;
    size_t members;
    size_t string_bytes;
};

/* ---- reading ---- */

/* Refuses invalid JSON, blanks comments and the like in lenient text, and counts what the tree
 * needs. */
static int check_text(const struct core_json *doc, bool lenient, struct needs *out)
{
    struct core_json_scan scan;
    struct core_json_token token = {.kind = CORE_JSON_TOKEN_END};
    struct needs needs = {0};
    if (lenient) {
        core_json_scan_init_lenient(&scan, doc->text, doc->bytes, doc->source);
    } else {
        core_json_scan_init(&scan, doc->text, doc->bytes, doc->source);
    }
    for (;;) {
        bool member = token.kind == CORE_JSON_TOKEN_KEY;
        int rc = core_json_scan_next(&scan, &token);
        if (rc != 0) {
            return rc;
        }
        switch (token.kind) {
        case CORE_JSON_TOKEN_END: *out = needs; return 0;
        case CORE_JSON_TOKEN_OBJECT_END:
        case CORE_JSON_TOKEN_ARRAY_END: continue;
        case CORE_JSON_TOKEN_KEY:
            needs.members++;
            needs.string_bytes += token.bytes + 1;
            continue;
        case CORE_JSON_TOKEN_STRING: needs.string_bytes += token.bytes + 1; break;
        case CORE_JSON_TOKEN_OBJECT_BEGIN:
        case CORE_JSON_TOKEN_ARRAY_BEGIN:
        case CORE_JSON_TOKEN_INTEGER:
        case CORE_JSON_TOKEN_REAL:
        case CORE_JSON_TOKEN_TRUE:
        case CORE_JSON_TOKEN_FALSE:
        case CORE_JSON_TOKEN_NULL: break;
        }
        needs.values++;
        needs.items += !member;
    }
}

static int refuse_memory(const struct core_json *doc)
{
    return core_err_set(-ENOMEM, "no memory for the tree of %s (%zu bytes of JSON)", doc->source,
                        doc->bytes);
}

static int allocate(struct core_json *doc, const struct needs *needs)
{
    size_t slots = 1;
    while (slots < 2 * needs->members) {
        slots *= 2;
    }
    doc->members_mask = slots - 1;
    doc->values = core_charge_zeroed(needs->values, sizeof *doc->values);
    doc->items = core_charge_zeroed(needs->items, sizeof *doc->items);
    doc->members = core_charge_zeroed(slots, sizeof *doc->members);
    doc->strings = core_charge_alloc(needs->string_bytes + 1);
    return doc->values != NULL && doc->items != NULL && doc->members != NULL && doc->strings != NULL
               ? 0
               : refuse_memory(doc);
}

/* ---- members ---- */

/* Returns the member's slot, or an empty one. The table is never full. */
static const struct core_json_value **slot_of(const struct core_json *doc,
                                              const struct core_json_value *object, const char *key,
                                              size_t key_bytes)
{
    size_t at = core_hash(key, key_bytes, object->at) & doc->members_mask;
    const struct core_json_value *found;
    while ((found = doc->members[at]) != NULL &&
           (found->parent != object || strcmp(found->key, key) != 0)) {
        at = (at + 1) & doc->members_mask;
    }
    return &doc->members[at];
}

/* ---- building ---- */

struct build {
    struct core_json *doc;
    struct core_json_value *value; /* the next to fill; its key may be set */
    const struct core_json_value **items;
    char *string;
    unsigned depth;
    struct core_json_value *open[CORE_JSON_DEPTH_MAX];   /* containers that are not closed */
    struct core_json_value *newest[CORE_JSON_DEPTH_MAX]; /* their last children; NULL: none */
};

static size_t offset_of(const struct core_json *doc, const char *text)
{
    return (size_t)(text - doc->text);
}

/* Returns whether `unit` is the first (0xD800) or second (0xDC00) half of a surrogate pair. */
static bool is_half(unsigned unit, unsigned half)
{
    return (unit & 0xFC00) == half;
}

/* Returns the code of the checked escape \uXXXX at `at`; 0: none. */
static unsigned escape_at(const char *at, const char *end)
{
    char digits[5] = "";
    if (end - at < 6 || at[0] != '\\' || at[1] != 'u') {
        return 0;
    }
    memcpy(digits, at + 2, 4);
    return (unsigned)strtoul(digits, NULL, 16);
}

/* Refuses half of a surrogate pair. */
static int check_pairs(const struct core_json *doc, const struct core_json_token *token)
{
    const char *end = token->text + token->bytes;
    const char *at = token->text;
    while (token->escaped && (at = memchr(at, '\\', (size_t)(end - at))) != NULL) {
        const unsigned unit = escape_at(at, end);
        const bool first = is_half(unit, 0xD800);
        if (first && is_half(escape_at(at + 6, end), 0xDC00)) {
            at += 12;
        } else if (first || is_half(unit, 0xDC00)) {
            const struct core_json_place place = core_json_place_of(doc->text, offset_of(doc, at));
            return core_err_set(
                -EINVAL,
                "%s:%zu:%zu: \\u%04x is one half of a surrogate pair; the other half is missing",
                doc->source, place.line, place.column, unit);
        } else {
            at += 2;
        }
    }
    return 0;
}

/* Decodes into the document's strings, with a NUL. */
static int take_string(struct build *build, const struct core_json_token *token, const char **out,
                       size_t *bytes)
{
    int rc = check_pairs(build->doc, token);
    if (rc != 0) {
        return rc;
    }
    *out = build->string;
    *bytes = core_json_token_string(token, build->string, token->bytes);
    build->string += *bytes;
    *build->string++ = '\0';
    return 0;
}

static int take_key(struct build *build, const struct core_json_token *token)
{
    struct core_json *doc = build->doc;
    struct core_json_value *value = build->value;
    size_t bytes = 0;
    int rc = take_string(build, token, &value->key, &bytes);
    if (rc != 0) {
        return rc;
    }
    value->parent = build->open[build->depth - 1];
    value->key_at = offset_of(doc, token->text) - 1;
    if (memchr(value->key, '\0', bytes) != NULL) {
        struct core_json_place place = core_json_place_of(doc->text,
                                                          value->key_at + token->bytes + 2);
        return core_err_set(-EINVAL, "%s:%zu:%zu: a key must not contain \\u0000", doc->source,
                            place.line, place.column);
    }
    const struct core_json_value **slot = slot_of(doc, value->parent, value->key, bytes);
    if (*slot != NULL) {
        struct core_json_place second = core_json_place_of(doc->text, value->key_at);
        return core_err_set(
            -EINVAL,
            "%s:%zu:%zu: duplicate key \"%.*s\", first on line %zu; keep one of the "
            "two",
            doc->source, second.line, second.column, (int)(token->bytes > 200 ? 200 : token->bytes),
            token->text, core_json_place_of(doc->text, (*slot)->key_at).line);
    }
    *slot = value;
    return 0;
}

static void open_container(struct build *build, struct core_json_value *value)
{
    if (value->kind == CORE_JSON_OBJECT) {
        value->doc = build->doc;
    }
    build->open[build->depth] = value;
    build->newest[build->depth++] = NULL;
}

static void close_container(struct build *build)
{
    struct core_json_value *container = build->open[--build->depth];
    if (container->kind == CORE_JSON_ARRAY) {
        container->items = build->items;
        const struct core_json_value *child = container->count > 0 ? container + 1 : NULL;
        for (; child != NULL; child = child->next) {
            *build->items++ = child;
        }
    }
}

static struct core_json_value *append(struct build *build, const struct core_json_token *token)
{
    struct core_json_value *value = build->value++;
    value->at = offset_of(build->doc, token->text) - (token->kind == CORE_JSON_TOKEN_STRING);
    if (build->depth > 0) {
        struct core_json_value **newest = &build->newest[build->depth - 1];
        value->parent = build->open[build->depth - 1];
        build->open[build->depth - 1]->count++;
        if (*newest != NULL) {
            (*newest)->next = value;
        }
        *newest = value;
    }
    return value;
}

static bool is_whole(const struct core_json_token *token)
{
    for (size_t i = 0; i < token->bytes; i++) {
        if (token->text[i] != '-' && (token->text[i] < '0' || token->text[i] > '9')) {
            return false;
        }
    }
    return true;
}

static int take_value(struct build *build, const struct core_json_token *token)
{
    struct core_json_value *value = append(build, token);
    switch (token->kind) {
    case CORE_JSON_TOKEN_OBJECT_BEGIN:
    case CORE_JSON_TOKEN_ARRAY_BEGIN:
        value->kind = token->kind == CORE_JSON_TOKEN_OBJECT_BEGIN ? CORE_JSON_OBJECT
                                                                  : CORE_JSON_ARRAY;
        open_container(build, value);
        return 0;
    case CORE_JSON_TOKEN_STRING:
        value->kind = CORE_JSON_STRING;
        return take_string(build, token, &value->text, &value->bytes);
    case CORE_JSON_TOKEN_INTEGER:
        value->kind = CORE_JSON_INTEGER;
        value->integer = core_json_token_integer(token);
        return 0;
    case CORE_JSON_TOKEN_REAL:
        value->kind = CORE_JSON_REAL;
        value->truth = is_whole(token);
        value->real = core_json_token_real(token);
        return 0;
    case CORE_JSON_TOKEN_TRUE:
    case CORE_JSON_TOKEN_FALSE:
        value->kind = CORE_JSON_BOOL;
        value->truth = token->kind == CORE_JSON_TOKEN_TRUE;
        return 0;
    case CORE_JSON_TOKEN_NULL:
    case CORE_JSON_TOKEN_KEY:
    case CORE_JSON_TOKEN_OBJECT_END:
    case CORE_JSON_TOKEN_ARRAY_END:
    case CORE_JSON_TOKEN_END: break;
    }
    value->kind = CORE_JSON_NULL;
    return 0;
}

/* Fills the memory of allocate() from checked text. */
static int build_tree(struct core_json *doc)
{
    struct build build = {
        .doc = doc, .value = doc->values, .items = doc->items, .string = doc->strings};
    struct core_json_scan scan;
    struct core_json_token token;
    core_json_scan_init(&scan, doc->text, doc->bytes, doc->source);
    for (;;) {
        int rc = core_json_scan_next(&scan, &token);
        if (rc != 0 || token.kind == CORE_JSON_TOKEN_END) {
            return rc;
        }
        if (token.kind == CORE_JSON_TOKEN_OBJECT_END || token.kind == CORE_JSON_TOKEN_ARRAY_END) {
            close_container(&build);
            continue;
        }
        rc = token.kind == CORE_JSON_TOKEN_KEY ? take_key(&build, &token)
                                               : take_value(&build, &token);
        if (rc != 0) {
            return rc;
        }
    }
}

/* ---- documents ---- */

static int fill(struct core_json *doc, const char *source, bool lenient)
{
    if (!doc->copied) {
        struct core_budget *budget = core_charge_bound();
        if (core_charge_take(budget, doc->bytes) != 0) {
            return refuse_memory(doc);
        }
        doc->budget = budget;
    }
    doc->source = strdup(source);
    if (doc->source == NULL) {
        return core_err_set(-ENOMEM, "no memory to parse %s", source);
    }
    struct needs needs;
    int rc = check_text(doc, lenient, &needs);
    if (rc != 0) {
        return rc;
    }
    rc = allocate(doc, &needs);
    return rc != 0 ? rc : build_tree(doc);
}

static void free_text(char *text, bool copied)
{
    if (copied) {
        core_charge_free(text);
    } else {
        free(text);
    }
}

/* Takes ownership of `text`, also on failure. */
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
    int rc = fill(doc, source, options != NULL && options->lenient);
    if (rc != 0) {
        core_json_destroy(doc);
        return rc;
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
    int rc = regular ? core_file_read_regular(path, limit, &text, &bytes)
                     : core_file_read(path, limit, &text, &bytes);
    if (rc != 0) {
        return rc;
    }
    return adopt(text, false, bytes, strcmp(path, "-") == 0 ? "standard input" : path, options,
                 out);
}

void core_json_destroy(struct core_json *doc)
{
    if (doc == NULL) {
        return;
    }
    core_charge_free(doc->values);
    core_charge_free(doc->items);
    core_charge_free(doc->members);
    core_charge_free(doc->strings);
    if (!doc->copied) {
        core_charge_give(doc->budget, doc->bytes);
    }
    free(doc->source);
    free_text(doc->text, doc->copied);
    free(doc);
}

const char *core_json_source(const struct core_json *doc)
{
    return doc->source;
}

const struct core_json_value *core_json_root(const struct core_json *doc)
{
    return doc->values;
}

/* ---- values ---- */

enum core_json_kind core_json_kind(const struct core_json_value *value)
{
    return value->kind;
}

static bool is_container(const struct core_json_value *value)
{
    return value != NULL && (value->kind == CORE_JSON_OBJECT || value->kind == CORE_JSON_ARRAY);
}

bool core_json_bool(const struct core_json_value *value)
{
    return value->truth;
}

int64_t core_json_integer(const struct core_json_value *value)
{
    return value->kind == CORE_JSON_INTEGER ? value->integer : 0;
}

bool core_json_is_large(const struct core_json_value *value)
{
    return value->kind == CORE_JSON_REAL && value->truth;
}

double core_json_real(const struct core_json_value *value)
{
    return value->kind == CORE_JSON_REAL ? value->real : (double)core_json_integer(value);
}

const char *core_json_string(const struct core_json_value *value, size_t *bytes)
{
    const bool string = value->kind == CORE_JSON_STRING;
    if (bytes != NULL) {
        *bytes = string ? value->bytes : 0;
    }
    return string ? value->text : NULL;
}

size_t core_json_count(const struct core_json_value *value)
{
    return is_container(value) ? value->count : 0;
}

const struct core_json_value *core_json_find(const struct core_json_value *object, const char *key)
{
    if (object == NULL || object->kind != CORE_JSON_OBJECT || key == NULL) {
        return NULL;
    }
    return *slot_of(object->doc, object, key, strlen(key));
}

const struct core_json_value *core_json_at(const struct core_json_value *array, size_t index)
{
    return array != NULL && array->kind == CORE_JSON_ARRAY && index < array->count
               ? array->items[index]
               : NULL;
}

static bool fill_member(struct core_json_member *member)
{
    if (member->value == NULL) {
        return false;
    }
    member->key = member->value->key;
    member->key_bytes = strlen(member->key);
    return true;
}

bool core_json_first(const struct core_json_value *object, struct core_json_member *member)
{
    const bool any = object != NULL && object->kind == CORE_JSON_OBJECT && object->count > 0;
    *member = (struct core_json_member){.value = any ? object + 1 : NULL, .object = object};
    return fill_member(member);
}

bool core_json_next(struct core_json_member *member)
{
    member->value = member->value->next;
    return fill_member(member);
}

/* ---- positions in the text ---- */

struct path {
    char *text;
    size_t room;
    size_t bytes; /* length of the whole path, including what does not fit in `room` */
};

/* Appends "key", after a "." unless the path is empty, or "[index]". */
static void path_add(struct path *path, const char *key, size_t index)
{
    size_t at = path->bytes < path->room ? path->bytes : path->room - 1;
    int length = key != NULL
                     ? snprintf(path->text + at, path->room - at, "%s%s", at > 0 ? "." : "", key)
                     : snprintf(path->text + at, path->room - at, "[%zu]", index);
    path->bytes += length > 0 ? (size_t)length : 0;
}

static size_t index_of(const struct core_json_value *element)
{
    size_t index = 0;
    while (element->parent->items[index] != element) {
        index++;
    }
    return index;
}

static void path_of(struct path *path, const struct core_json_value *value)
{
    const struct core_json_value *way[CORE_JSON_DEPTH_MAX];
    size_t count = 0;
    for (; value->parent != NULL; value = value->parent) {
        way[count++] = value;
    }
    while (count-- > 0) {
        path_add(path, way[count]->key, way[count]->key == NULL ? index_of(way[count]) : 0);
    }
}

int core_json_locate(const struct core_json *doc, const struct core_json_value *container,
                     const char *key, size_t index, struct core_json_site *out)
{
    struct core_json_site site = {.place = {.line = 1, .column = 1}};
    const struct core_json_value *found = NULL;
    if (is_container(container)) {
        found = key != NULL ? core_json_find(container, key) : core_json_at(container, index);
        size_t at = found == NULL ? container->at : key != NULL ? found->key_at : found->at;
        site.place = core_json_place_of(doc->text, at);
        struct path path = {.text = site.path, .room = sizeof site.path};
        path_of(&path, container);
        path_add(&path, key, index);
        if (path.bytes >= sizeof site.path) {
            memcpy(site.path + sizeof site.path - 4, "...", 4);
        }
    }
    *out = site;
    return found != NULL ? 0 : -ENOENT;
}

int core_json_refuse(const struct core_json *doc, const struct core_json_value *container,
                     const char *key, size_t index, int code, const char *format, ...)
{
    char what[CORE_ERR_MESSAGE_BYTES];
    va_list list;
    va_start(list, format);
    vsnprintf(what, sizeof what, format, list);
    va_end(list);
    struct core_json_site site;
    core_json_locate(doc, container, key, index, &site);
    return core_err_set(code, "%s:%zu:%zu: %s: %s", core_json_source(doc), site.place.line,
                        site.place.column, site.path, what);
}
