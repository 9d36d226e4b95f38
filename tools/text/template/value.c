/* value.c: making, finding, comparing and iterating values. */
#include "tools/text/template/value.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "tools/text/template/chars.h"

struct template_value template_none(void)
{
    return (struct template_value){.kind = TEMPLATE_NONE};
}

struct template_value template_undefined(const char *name)
{
    return (struct template_value){
        .kind = TEMPLATE_UNDEFINED, .bytes = (uint32_t)strlen(name), .as.text = name};
}

struct template_value template_bool(bool truth)
{
    return (struct template_value){.kind = TEMPLATE_BOOL, .as.truth = truth};
}

struct template_value template_integer(int64_t integer)
{
    return (struct template_value){.kind = TEMPLATE_INTEGER, .as.integer = integer};
}

struct template_value template_real(double real)
{
    return (struct template_value){.kind = TEMPLATE_REAL, .as.real = real};
}

struct template_value template_whole(struct text_template_run *run, double real)
{
    return real >= -0x1p63 && real < 0x1p63
               ? template_integer((int64_t)real)
               : template_fail(run, -EINVAL, "a number of more than 64 bits");
}

struct template_value template_string(const char *text, size_t bytes)
{
    return (struct template_value){
        .kind = TEMPLATE_STRING, .bytes = (uint32_t)bytes, .as.text = text};
}

struct template_value template_string_room(struct text_template_run *run, size_t bytes, char **text)
{
    *text = bytes < UINT32_MAX ? template_alloc(run, bytes + 1) : NULL;
    if (*text == NULL) {
        return template_fail(run, -E2BIG, "a text of %zu bytes", bytes);
    }
    return template_string(*text, bytes);
}

struct template_value template_string_copy(struct text_template_run *run, const char *text,
                                           size_t bytes)
{
    char *copy;
    struct template_value value = template_string_room(run, bytes, &copy);
    if (copy != NULL) {
        memcpy(copy, text, bytes);
    }
    return value;
}

struct template_value template_list(struct text_template_run *run, enum template_kind kind)
{
    struct template_list *list = template_alloc(run, sizeof *list);
    return list != NULL ? (struct template_value){.kind = kind, .as.list = list}
                        : template_undefined("");
}

/* Twice the room of an array in the run's memory. */
static void *grow(struct text_template_run *run, const void *items, size_t count, size_t *room,
                  size_t size)
{
    const size_t more = *room * 2 + 4;
    void *place = template_alloc(run, more * size);
    if (place != NULL) {
        if (count > 0) {
            memcpy(place, items, count * size);
        }
        *room = more;
    }
    return place;
}

void template_list_add(struct text_template_run *run, struct template_list *list,
                       struct template_value item)
{
    if (run->code != 0) {
        return;
    }
    if (list->count == list->room) {
        void *place = grow(run, list->items, list->count, &list->room, sizeof item);
        if (place == NULL) {
            return;
        }
        list->items = place;
    }
    list->items[list->count++] = item;
}

struct template_value template_pair_tuple(struct text_template_run *run, struct template_value left,
                                          struct template_value right)
{
    struct template_value tuple = template_list(run, TEMPLATE_TUPLE);
    if (run->code == 0) {
        template_list_add(run, tuple.as.list, left);
        template_list_add(run, tuple.as.list, right);
    }
    return tuple;
}

struct template_value template_dict(struct text_template_run *run)
{
    struct template_dict *dict = template_alloc(run, sizeof *dict);
    return dict != NULL ? (struct template_value){.kind = TEMPLATE_DICT, .as.dict = dict}
                        : template_undefined("");
}

const struct template_value *template_dict_find(struct text_template_run *run,
                                                const struct template_dict *dict,
                                                struct template_value key)
{
    if (key.kind == TEMPLATE_LIST || key.kind == TEMPLATE_DICT) {
        template_fail(run, -EINVAL, "a %s cannot be a key of a dict", template_type_name(key));
        return NULL;
    }
    template_step(run, dict->count / 8);
    for (size_t i = 0; i < dict->count && run->code == 0; i++) {
        if (template_equal(run, dict->pairs[i].key, key)) {
            return &dict->pairs[i].value;
        }
    }
    return NULL;
}

const struct template_value *template_dict_get(const struct template_dict *dict, const char *key,
                                               size_t bytes)
{
    for (size_t i = 0; i < dict->count; i++) {
        const struct template_value *other = &dict->pairs[i].key;
        if (other->kind == TEMPLATE_STRING && other->bytes == bytes &&
            memcmp(other->as.text, key, bytes) == 0) {
            return &dict->pairs[i].value;
        }
    }
    return NULL;
}

void template_dict_set(struct text_template_run *run, struct template_dict *dict,
                       struct template_value key, struct template_value value)
{
    const struct template_value *there = template_dict_find(run, dict, key);
    if (run->code != 0) {
        return;
    }
    if (there != NULL) {
        for (size_t i = 0; i < dict->count; i++) {
            if (&dict->pairs[i].value == there) {
                dict->pairs[i].value = value;
            }
        }
        return;
    }
    if (dict->count == dict->room) {
        void *place = grow(run, dict->pairs, dict->count, &dict->room, sizeof *dict->pairs);
        if (place == NULL) {
            return;
        }
        dict->pairs = place;
    }
    dict->pairs[dict->count++] = (struct template_pair){key, value};
}

bool template_is_number(struct template_value value)
{
    return value.kind == TEMPLATE_BOOL || value.kind == TEMPLATE_INTEGER ||
           value.kind == TEMPLATE_REAL;
}

bool template_is_text(struct template_value value, const char *text)
{
    return value.kind == TEMPLATE_STRING && strlen(text) == value.bytes &&
           memcmp(value.as.text, text, value.bytes) == 0;
}

double template_number(struct template_value value)
{
    return value.kind == TEMPLATE_REAL   ? value.as.real
           : value.kind == TEMPLATE_BOOL ? (double)value.as.truth
                                         : (double)value.as.integer;
}

bool template_truth(struct template_value value)
{
    switch (value.kind) {
    case TEMPLATE_UNDEFINED:
    case TEMPLATE_NONE: return false;
    case TEMPLATE_BOOL: return value.as.truth;
    case TEMPLATE_INTEGER: return value.as.integer != 0;
    case TEMPLATE_REAL: return value.as.real != 0;
    case TEMPLATE_STRING: return value.bytes > 0;
    case TEMPLATE_LIST:
    case TEMPLATE_TUPLE: return value.as.list->count > 0;
    case TEMPLATE_DICT: return value.as.dict->count > 0;
    case TEMPLATE_LOOP: return value.as.loop->items->count > 0;
    case TEMPLATE_NAMESPACE:
    case TEMPLATE_MACRO:
    case TEMPLATE_METHOD:
    case TEMPLATE_GLOBAL:
    case TEMPLATE_CYCLER:
    case TEMPLATE_JOINER: break;
    }
    return true;
}

static bool equal_lists(struct text_template_run *run, const struct template_list *left,
                        const struct template_list *right)
{
    if (left->count != right->count || !template_deeper(run)) {
        return false;
    }
    bool same = true;
    for (size_t i = 0; i < left->count && same; i++) {
        same = template_equal(run, left->items[i], right->items[i]);
    }
    run->depth--;
    return same;
}

static bool equal_dicts(struct text_template_run *run, const struct template_dict *left,
                        const struct template_dict *right)
{
    if (left->count != right->count || !template_deeper(run)) {
        return false;
    }
    bool same = true;
    for (size_t i = 0; i < left->count && same; i++) {
        const struct template_value *other = template_dict_find(run, right, left->pairs[i].key);
        same = other != NULL && template_equal(run, left->pairs[i].value, *other);
    }
    run->depth--;
    return same;
}

static bool equal_numbers(struct template_value left, struct template_value right)
{
    if (left.kind == TEMPLATE_REAL || right.kind == TEMPLATE_REAL) {
        return template_number(left) == template_number(right);
    }
    const int64_t a = left.kind == TEMPLATE_BOOL ? left.as.truth : left.as.integer;
    const int64_t b = right.kind == TEMPLATE_BOOL ? right.as.truth : right.as.integer;
    return a == b;
}

bool template_equal(struct text_template_run *run, struct template_value left,
                    struct template_value right)
{
    if (!template_step(run, 1)) {
        return false;
    }
    if (template_is_number(left) && template_is_number(right)) {
        return equal_numbers(left, right);
    }
    if (left.kind != right.kind) {
        return false;
    }
    switch (left.kind) {
    case TEMPLATE_UNDEFINED:
    case TEMPLATE_NONE: return true;
    case TEMPLATE_STRING:
        return left.bytes == right.bytes && template_step_bytes(run, left.bytes) &&
               memcmp(left.as.text, right.as.text, left.bytes) == 0;
    case TEMPLATE_LIST:
    case TEMPLATE_TUPLE: return equal_lists(run, left.as.list, right.as.list);
    case TEMPLATE_DICT: return equal_dicts(run, left.as.dict, right.as.dict);
    case TEMPLATE_BOOL:
    case TEMPLATE_INTEGER:
    case TEMPLATE_REAL:
    case TEMPLATE_NAMESPACE:
    case TEMPLATE_LOOP:
    case TEMPLATE_MACRO:
    case TEMPLATE_METHOD:
    case TEMPLATE_GLOBAL:
    case TEMPLATE_CYCLER:
    case TEMPLATE_JOINER: break;
    }
    return left.as.dict == right.as.dict;
}

static int compare_lists(struct text_template_run *run, const struct template_list *left,
                         const struct template_list *right)
{
    for (size_t i = 0; i < left->count && i < right->count; i++) {
        if (!template_equal(run, left->items[i], right->items[i])) {
            if (!template_deeper(run)) {
                return 0;
            }
            const int order = template_compare(run, left->items[i], right->items[i]);
            run->depth--;
            return order;
        }
    }
    return (left->count > right->count) - (left->count < right->count);
}

int template_compare(struct text_template_run *run, struct template_value left,
                     struct template_value right)
{
    if (!template_step(run, 1)) {
        return 0;
    }
    if (template_is_number(left) && template_is_number(right)) {
        const double a = template_number(left);
        const double b = template_number(right);
        if (left.kind == TEMPLATE_INTEGER && right.kind == TEMPLATE_INTEGER) {
            return (left.as.integer > right.as.integer) - (left.as.integer < right.as.integer);
        }
        return (a > b) - (a < b);
    }
    if (left.kind == TEMPLATE_STRING && right.kind == TEMPLATE_STRING) {
        /* UTF-8 sorts as its characters do. */
        const size_t least = left.bytes < right.bytes ? left.bytes : right.bytes;
        const int order = template_step_bytes(run, least)
                              ? memcmp(left.as.text, right.as.text, least)
                              : 0;
        return order != 0 ? order : (left.bytes > right.bytes) - (left.bytes < right.bytes);
    }
    if (left.kind == right.kind && (left.kind == TEMPLATE_LIST || left.kind == TEMPLATE_TUPLE)) {
        return compare_lists(run, left.as.list, right.as.list);
    }
    template_fail(run, -EINVAL, "%s and %s have no order", template_type_name(left),
                  template_type_name(right));
    return 0;
}

/* The byte at `at` of a text, counted from its end where that is searched first. */
static char byte_of(struct template_value text, size_t at, bool last)
{
    return text.as.text[last ? text.bytes - 1 - at : at];
}

/* Knuth, Morris and Pratt: `borders` says how much of the part still agrees after a byte that does not.
 * How far the part's end lies from where the search began; 0: not found. */
static size_t find_by_borders(struct template_value text, struct template_value part, bool last,
                              uint32_t *borders)
{
    uint32_t same = 0;
    for (uint32_t i = 1; i < part.bytes; i++) {
        while (same > 0 && byte_of(part, i, last) != byte_of(part, same, last)) {
            same = borders[same - 1];
        }
        same += byte_of(part, i, last) == byte_of(part, same, last);
        borders[i] = same;
    }
    same = 0;
    for (size_t at = 0; at < text.bytes; at++) {
        while (same > 0 && byte_of(text, at, last) != byte_of(part, same, last)) {
            same = borders[same - 1];
        }
        same += byte_of(text, at, last) == byte_of(part, same, last);
        if (same == part.bytes) {
            return at + 1;
        }
    }
    return 0;
}

/* The last place of a short part. */
static const char *find_last(struct template_value text, struct template_value part)
{
    for (size_t at = text.bytes + 1; at-- > part.bytes;) {
        const char *place = text.as.text + at - part.bytes;
        if (memcmp(place, part.as.text, part.bytes) == 0) {
            return place;
        }
    }
    return NULL;
}

const char *template_search(struct text_template_run *run, struct template_value text,
                            struct template_value part, bool last)
{
    enum { SHORT_BYTES = 16 };
    if (part.bytes > text.bytes || part.bytes == 0) {
        return part.bytes > 0 ? NULL : text.as.text + (last ? text.bytes : 0);
    }
    const char *found = NULL;
    if (part.bytes <= SHORT_BYTES) {
        found = last ? find_last(text, part)
                     : memmem(text.as.text, text.bytes, part.as.text, part.bytes);
    } else {
        const struct template_mark mark = template_mark(run);
        uint32_t *borders = template_alloc(run, part.bytes * sizeof *borders);
        const size_t end = borders != NULL ? find_by_borders(text, part, last, borders) : 0;
        template_rewind(run, mark);
        found = end == 0 ? NULL : text.as.text + (last ? text.bytes - end : end - part.bytes);
    }
    const size_t begin = found != NULL ? (size_t)(found - text.as.text) : last ? 0 : text.bytes;
    return template_step_text(run, last ? text.bytes - begin : begin) ? found : NULL;
}

bool template_contains(struct text_template_run *run, struct template_value right,
                       struct template_value left)
{
    if (right.kind == TEMPLATE_STRING) {
        if (left.kind != TEMPLATE_STRING) {
            template_fail(run, -EINVAL, "'in <string>' requires string as left operand, not %s",
                          template_type_name(left));
            return false;
        }
        return template_search(run, right, left, false) != NULL;
    }
    if (right.kind == TEMPLATE_DICT) {
        return template_dict_find(run, right.as.dict, left) != NULL;
    }
    const struct template_list *list = template_iterate(run, right);
    for (size_t i = 0; run->code == 0 && i < list->count; i++) {
        if (template_equal(run, list->items[i], left)) {
            return true;
        }
    }
    return false;
}

static void add_characters(struct text_template_run *run, struct template_list *list,
                           struct template_value text)
{
    for (size_t at = 0; at < text.bytes && run->code == 0;) {
        const size_t length = template_char_bytes(text.as.text + at);
        template_list_add(run, list, template_string(text.as.text + at, length));
        at += length;
    }
}

struct template_list *template_iterate(struct text_template_run *run, struct template_value value)
{
    if (value.kind == TEMPLATE_LIST || value.kind == TEMPLATE_TUPLE) {
        return value.as.list;
    }
    struct template_value list = template_list(run, TEMPLATE_LIST);
    if (run->code != 0) {
        return NULL;
    }
    if (value.kind == TEMPLATE_STRING) {
        add_characters(run, list.as.list, value);
    } else if (value.kind == TEMPLATE_DICT) {
        for (size_t i = 0; i < value.as.dict->count; i++) {
            template_list_add(run, list.as.list, value.as.dict->pairs[i].key);
        }
    } else if (value.kind == TEMPLATE_LOOP) {
        return value.as.loop->items;
    } else if (value.kind != TEMPLATE_UNDEFINED) {
        template_fail(run, -EINVAL, "'%s' object is not iterable", template_type_name(value));
        return NULL;
    }
    return run->code == 0 ? list.as.list : NULL;
}

const char *template_type_name(struct template_value value)
{
    static const char *const names[] = {
        [TEMPLATE_UNDEFINED] = "Undefined", [TEMPLATE_NONE] = "NoneType",
        [TEMPLATE_BOOL] = "bool",           [TEMPLATE_INTEGER] = "int",
        [TEMPLATE_REAL] = "float",          [TEMPLATE_STRING] = "str",
        [TEMPLATE_LIST] = "list",           [TEMPLATE_TUPLE] = "tuple",
        [TEMPLATE_DICT] = "dict",           [TEMPLATE_NAMESPACE] = "Namespace",
        [TEMPLATE_LOOP] = "LoopContext",    [TEMPLATE_MACRO] = "Macro",
        [TEMPLATE_METHOD] = "method",       [TEMPLATE_GLOBAL] = "function",
        [TEMPLATE_CYCLER] = "Cycler",       [TEMPLATE_JOINER] = "Joiner",
    };
    return names[value.kind];
}
