/* value.c: makes, finds, compares, iterates and sorts values. */
#include "tools/text/jinja/value.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "tools/text/jinja/chars.h"

struct jinja_value jinja_none(void)
{
    return (struct jinja_value){.kind = JINJA_NONE};
}

struct jinja_value jinja_undefined(const char *name)
{
    return (struct jinja_value){
        .kind = JINJA_UNDEFINED, .bytes = (uint32_t)strlen(name), .as.text = name};
}

struct jinja_value jinja_bool(bool truth)
{
    return (struct jinja_value){.kind = JINJA_BOOL, .as.truth = truth};
}

struct jinja_value jinja_integer(int64_t integer)
{
    return (struct jinja_value){.kind = JINJA_INTEGER, .as.integer = integer};
}

struct jinja_value jinja_real(double real)
{
    return (struct jinja_value){.kind = JINJA_REAL, .as.real = real};
}

struct jinja_value jinja_whole(struct jinja_run *run, double real)
{
    return real >= -0x1p63 && real < 0x1p63
               ? jinja_integer((int64_t)real)
               : jinja_fail(run, -EINVAL, "the result does not fit into 64 bits");
}

struct jinja_value jinja_string(const char *text, size_t bytes)
{
    return (struct jinja_value){.kind = JINJA_STRING, .bytes = (uint32_t)bytes, .as.text = text};
}

struct jinja_value jinja_string_room(struct jinja_run *run, size_t bytes, char **text)
{
    *text = bytes < UINT32_MAX ? jinja_alloc(run, bytes + 1) : NULL;
    if (*text == NULL) {
        return jinja_fail(run, -E2BIG, "a text of %zu bytes is too long", bytes);
    }
    return jinja_string(*text, bytes);
}

struct jinja_value jinja_string_copy(struct jinja_run *run, const char *text, size_t bytes)
{
    char *copy;
    struct jinja_value value = jinja_string_room(run, bytes, &copy);
    if (copy != NULL) {
        memcpy(copy, text, bytes);
    }
    return value;
}

struct jinja_value jinja_list(struct jinja_run *run, enum jinja_kind kind)
{
    struct jinja_list *list = jinja_alloc(run, sizeof *list);
    return list != NULL ? (struct jinja_value){.kind = kind, .as.list = list} : jinja_undefined("");
}

/* Copies to at least twice the size; NULL if the run fails. */
static void *grow(struct jinja_run *run, const void *items, size_t count, size_t *room, size_t size)
{
    const size_t more = *room * 2 + 4;
    void *place = jinja_alloc(run, more * size);
    if (place != NULL) {
        if (count > 0) {
            memcpy(place, items, count * size);
        }
        *room = more;
    }
    return place;
}

void jinja_list_add(struct jinja_run *run, struct jinja_list *list, struct jinja_value item)
{
    if (run->rc != 0) {
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

struct jinja_value jinja_pair_tuple(struct jinja_run *run, struct jinja_value left,
                                    struct jinja_value right)
{
    struct jinja_value tuple = jinja_list(run, JINJA_TUPLE);
    if (run->rc == 0) {
        jinja_list_add(run, tuple.as.list, left);
        jinja_list_add(run, tuple.as.list, right);
    }
    return tuple;
}

struct jinja_value jinja_dict(struct jinja_run *run)
{
    struct jinja_dict *dict = jinja_alloc(run, sizeof *dict);
    return dict != NULL ? (struct jinja_value){.kind = JINJA_DICT, .as.dict = dict}
                        : jinja_undefined("");
}

bool jinja_hashable(struct jinja_run *run, struct jinja_value value)
{
    if (value.kind == JINJA_TUPLE && jinja_deeper(run)) {
        for (size_t i = 0; i < value.as.list->count && jinja_step(run, 1); i++) {
            jinja_hashable(run, value.as.list->items[i]);
        }
        run->depth--;
    }
    if (value.kind == JINJA_LIST || value.kind == JINJA_DICT || value.kind == JINJA_KEYS ||
        value.kind == JINJA_ITEMS) {
        jinja_fail(run, -EINVAL, "'%s' cannot be a key of a dict", jinja_type_name(value));
    }
    return run->rc == 0;
}

const struct jinja_value *jinja_dict_find(struct jinja_run *run, const struct jinja_dict *dict,
                                          struct jinja_value key)
{
    if (!jinja_hashable(run, key)) {
        return NULL;
    }
    jinja_step(run, dict->count / 8);
    for (size_t i = 0; i < dict->count && run->rc == 0; i++) {
        if (jinja_equal(run, dict->pairs[i].key, key)) {
            return &dict->pairs[i].value;
        }
    }
    return NULL;
}

const struct jinja_value *jinja_dict_get(const struct jinja_dict *dict, const char *key,
                                         size_t bytes)
{
    for (size_t i = 0; i < dict->count; i++) {
        const struct jinja_value *other = &dict->pairs[i].key;
        if (jinja_is_str(*other) && other->bytes == bytes &&
            memcmp(other->as.text, key, bytes) == 0) {
            return &dict->pairs[i].value;
        }
    }
    return NULL;
}

void jinja_dict_set(struct jinja_run *run, struct jinja_dict *dict, struct jinja_value key,
                    struct jinja_value value)
{
    const struct jinja_value *there = jinja_dict_find(run, dict, key);
    if (run->rc != 0) {
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
    dict->pairs[dict->count++] = (struct jinja_pair){key, value};
}

bool jinja_is_number(struct jinja_value value)
{
    return value.kind == JINJA_BOOL || value.kind == JINJA_INTEGER || value.kind == JINJA_REAL;
}

bool jinja_is_str(struct jinja_value value)
{
    return value.kind == JINJA_STRING || value.kind == JINJA_MARKUP;
}

bool jinja_is_text(struct jinja_value value, const char *text)
{
    return value.kind == JINJA_STRING && strlen(text) == value.bytes &&
           memcmp(value.as.text, text, value.bytes) == 0;
}

int64_t jinja_integer_of(struct jinja_value value)
{
    return value.kind == JINJA_BOOL ? value.as.truth : value.as.integer;
}

bool jinja_next_word(const char **words, struct jinja_value *word)
{
    const char *at = *words;
    while (*at == ' ') {
        at++;
    }
    const char *end = at;
    while (*end != ' ' && *end != '\0') {
        end++;
    }
    *words = end;
    *word = jinja_string(at, (size_t)(end - at));
    return end > at;
}

double jinja_number(struct jinja_value value)
{
    return value.kind == JINJA_REAL   ? value.as.real
           : value.kind == JINJA_BOOL ? (double)value.as.truth
                                      : (double)value.as.integer;
}

bool jinja_has_list(struct jinja_value value)
{
    return value.kind >= JINJA_LIST && value.kind <= JINJA_ITEMS;
}

bool jinja_truth(struct jinja_value value)
{
    switch (value.kind) {
    case JINJA_UNDEFINED:
    case JINJA_NONE: return false;
    case JINJA_BOOL: return value.as.truth;
    case JINJA_INTEGER: return value.as.integer != 0;
    case JINJA_REAL: return value.as.real != 0;
    case JINJA_STRING:
    case JINJA_MARKUP: return value.bytes > 0;
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_RANGE:
    case JINJA_KEYS:
    case JINJA_VALUES:
    case JINJA_ITEMS: return value.as.list->count > 0;
    case JINJA_DICT: return value.as.dict->count > 0;
    case JINJA_GENERATOR:
    case JINJA_LOOP: /* has the current element */
    case JINJA_NAMESPACE:
    case JINJA_MACRO:
    case JINJA_METHOD:
    case JINJA_CYCLER:
    case JINJA_JOINER: break;
    }
    return true;
}

static bool equal_lists(struct jinja_run *run, const struct jinja_list *left,
                        const struct jinja_list *right)
{
    if (left->count != right->count || !jinja_deeper(run)) {
        return false;
    }
    bool same = true;
    for (size_t i = 0; i < left->count && same; i++) {
        same = jinja_equal(run, left->items[i], right->items[i]);
    }
    run->depth--;
    return same;
}

static bool equal_dicts(struct jinja_run *run, const struct jinja_dict *left,
                        const struct jinja_dict *right)
{
    if (left->count != right->count || !jinja_deeper(run)) {
        return false;
    }
    bool same = true;
    for (size_t i = 0; i < left->count && same; i++) {
        const struct jinja_value *other = jinja_dict_find(run, right, left->pairs[i].key);
        same = other != NULL && jinja_equal(run, left->pairs[i].value, *other);
    }
    run->depth--;
    return same;
}

/* Compares a whole number with a real exactly. */
static int compare_mixed(int64_t whole, double real)
{
    if (real >= 0x1p63 || real < -0x1p63) {
        return real > 0 ? -1 : 1;
    }
    const int64_t other = (int64_t)real;
    const double rest = real - (double)other;
    return whole != other ? (whole > other) - (whole < other) : (rest < 0) - (rest > 0);
}

static int compare_numbers(struct jinja_run *run, struct jinja_value left, struct jinja_value right)
{
    const double a = jinja_number(left);
    const double b = jinja_number(right);
    if (isnan(a) || isnan(b)) {
        jinja_fail(run, -EINVAL, "comparing nan is not supported");
        return 0;
    }
    if (left.kind == JINJA_REAL && right.kind == JINJA_REAL) {
        return (a > b) - (a < b);
    }
    const int64_t x = jinja_integer_of(left);
    const int64_t y = jinja_integer_of(right);
    return left.kind == JINJA_REAL    ? -compare_mixed(y, a)
           : right.kind == JINJA_REAL ? compare_mixed(x, b)
                                      : (x > y) - (x < y);
}

bool jinja_equal(struct jinja_run *run, struct jinja_value left, struct jinja_value right)
{
    if (!jinja_step(run, 1)) {
        return false;
    }
    if (jinja_is_number(left) && jinja_is_number(right)) {
        return compare_numbers(run, left, right) == 0;
    }
    if (left.kind != right.kind && !(jinja_is_str(left) && jinja_is_str(right))) {
        return false;
    }
    switch (left.kind) {
    case JINJA_UNDEFINED:
    case JINJA_NONE: return true;
    case JINJA_STRING:
    case JINJA_MARKUP:
        return left.bytes == right.bytes && jinja_step_bytes(run, left.bytes) &&
               memcmp(left.as.text, right.as.text, left.bytes) == 0;
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_RANGE: return equal_lists(run, left.as.list, right.as.list);
    case JINJA_DICT: return equal_dicts(run, left.as.dict, right.as.dict);
    case JINJA_KEYS:
    case JINJA_ITEMS:
        jinja_fail(run, -EINVAL, "comparing values of type '%s' is not supported",
                   jinja_type_name(left));
        return false;
    case JINJA_GENERATOR:
    case JINJA_VALUES:
    case JINJA_BOOL:
    case JINJA_INTEGER:
    case JINJA_REAL:
    case JINJA_NAMESPACE:
    case JINJA_LOOP:
    case JINJA_MACRO:
    case JINJA_METHOD:
    case JINJA_CYCLER:
    case JINJA_JOINER: break;
    }
    return left.as.dict == right.as.dict;
}

static int compare_lists(struct jinja_run *run, const struct jinja_list *left,
                         const struct jinja_list *right)
{
    for (size_t i = 0; i < left->count && i < right->count; i++) {
        if (!jinja_equal(run, left->items[i], right->items[i])) {
            if (!jinja_deeper(run)) {
                return 0;
            }
            const int order = jinja_compare(run, left->items[i], right->items[i]);
            run->depth--;
            return order;
        }
    }
    return (left->count > right->count) - (left->count < right->count);
}

int jinja_compare(struct jinja_run *run, struct jinja_value left, struct jinja_value right)
{
    if (!jinja_step(run, 1)) {
        return 0;
    }
    if (jinja_is_number(left) && jinja_is_number(right)) {
        return compare_numbers(run, left, right);
    }
    if (jinja_is_str(left) && jinja_is_str(right)) {
        /* UTF-8 bytes sort like characters. */
        const size_t least = left.bytes < right.bytes ? left.bytes : right.bytes;
        const int order = jinja_step_bytes(run, least) ? memcmp(left.as.text, right.as.text, least)
                                                       : 0;
        return order != 0 ? order : (left.bytes > right.bytes) - (left.bytes < right.bytes);
    }
    if (left.kind == right.kind && (left.kind == JINJA_LIST || left.kind == JINJA_TUPLE)) {
        return compare_lists(run, left.as.list, right.as.list);
    }
    jinja_fail(run, -EINVAL, "%s and %s cannot be ordered", jinja_type_name(left),
               jinja_type_name(right));
    return 0;
}

/* Counts from the end if `last`. */
static char byte_of(struct jinja_value text, size_t at, bool last)
{
    return text.as.text[last ? text.bytes - 1 - at : at];
}

/* Knuth-Morris-Pratt: `borders` tells how much of the part still matches after a mismatch. Returns
 * the distance of the end of the match; 0: not found. */
static size_t find_by_borders(struct jinja_value text, struct jinja_value part, bool last,
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

/* `part` is short. */
static const char *find_last(struct jinja_value text, struct jinja_value part)
{
    for (size_t at = text.bytes + 1; at-- > part.bytes;) {
        const char *place = text.as.text + at - part.bytes;
        if (memcmp(place, part.as.text, part.bytes) == 0) {
            return place;
        }
    }
    return NULL;
}

const char *jinja_search(struct jinja_run *run, struct jinja_value text, struct jinja_value part,
                         bool last)
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
        const struct jinja_mark mark = jinja_mark(run);
        uint32_t *borders = jinja_alloc(run, part.bytes * sizeof *borders);
        const size_t end = borders != NULL ? find_by_borders(text, part, last, borders) : 0;
        jinja_rewind(run, mark);
        found = end == 0 ? NULL : text.as.text + (last ? text.bytes - end : end - part.bytes);
    }
    const size_t begin = found != NULL ? (size_t)(found - text.as.text) : last ? 0 : text.bytes;
    return jinja_step_text(run, last ? text.bytes - begin : begin) ? found : NULL;
}

void jinja_leave(struct jinja_value value)
{
    if (value.kind == JINJA_GENERATOR) {
        value.as.list->begun = true;
    }
}

bool jinja_contains(struct jinja_run *run, struct jinja_value right, struct jinja_value left)
{
    if (jinja_is_str(right)) {
        if (!jinja_is_str(left)) {
            jinja_fail(run, -EINVAL, "in a string, 'in' can only find a string, not %s",
                       jinja_type_name(left));
            return false;
        }
        return jinja_search(run, right, left, false) != NULL;
    }
    if (right.kind == JINJA_DICT) {
        return jinja_dict_find(run, right.as.dict, left) != NULL;
    }
    if (right.kind == JINJA_KEYS && !jinja_hashable(run, left)) {
        return false;
    }
    const struct jinja_list *list = jinja_iterate(run, right);
    for (size_t i = 0; run->rc == 0 && i < list->count; i++) {
        if (jinja_equal(run, list->items[i], left)) {
            jinja_leave(right);
            return true;
        }
    }
    return false;
}

static void add_characters(struct jinja_run *run, struct jinja_list *list, struct jinja_value text)
{
    for (size_t at = 0; at < text.bytes && run->rc == 0;) {
        const size_t length = jinja_char_bytes(text.as.text + at);
        jinja_list_add(run, list, jinja_string(text.as.text + at, length));
        at += length;
    }
}

/* Moves the elements of a generator into a list. */
static struct jinja_list *take_all(struct jinja_run *run, struct jinja_list *generator)
{
    struct jinja_list *list = jinja_alloc(run, sizeof *list);
    if (generator->begun) {
        jinja_fail(run, -EINVAL, "using the rest of a generator is not supported");
    }
    if (run->rc != 0) {
        return NULL;
    }
    *list = *generator;
    *generator = (struct jinja_list){0};
    return list;
}

struct jinja_list *jinja_iterate(struct jinja_run *run, struct jinja_value value)
{
    if (value.kind == JINJA_GENERATOR) {
        return take_all(run, value.as.list);
    }
    if (jinja_has_list(value)) {
        return value.as.list;
    }
    struct jinja_value list = jinja_list(run, JINJA_LIST);
    if (run->rc != 0) {
        return NULL;
    }
    if (jinja_is_str(value)) {
        add_characters(run, list.as.list, value);
    } else if (value.kind == JINJA_DICT) {
        for (size_t i = 0; i < value.as.dict->count; i++) {
            jinja_list_add(run, list.as.list, value.as.dict->pairs[i].key);
        }
    } else if (value.kind != JINJA_UNDEFINED) {
        jinja_fail(run, -EINVAL, "a value of type '%s' has no elements", jinja_type_name(value));
        return NULL;
    }
    return run->rc == 0 ? list.as.list : NULL;
}

const char *jinja_type_name(struct jinja_value value)
{
    static const char *const names[] = {
        [JINJA_UNDEFINED] = "Undefined", [JINJA_NONE] = "NoneType",    [JINJA_BOOL] = "bool",
        [JINJA_INTEGER] = "int",         [JINJA_REAL] = "float",       [JINJA_STRING] = "str",
        [JINJA_MARKUP] = "Markup",       [JINJA_LIST] = "list",        [JINJA_TUPLE] = "tuple",
        [JINJA_GENERATOR] = "generator", [JINJA_RANGE] = "range",      [JINJA_KEYS] = "dict_keys",
        [JINJA_VALUES] = "dict_values",  [JINJA_ITEMS] = "dict_items", [JINJA_DICT] = "dict",
        [JINJA_NAMESPACE] = "Namespace", [JINJA_LOOP] = "LoopContext", [JINJA_MACRO] = "Macro",
        [JINJA_METHOD] = "method",       [JINJA_CYCLER] = "Cycler",    [JINJA_JOINER] = "Joiner",
    };
    return names[value.kind];
}

/* ---- a stable merge sort by keys ---- */

/* Merges from[begin, middle) and from[middle, end). */
static void merge(struct jinja_run *run, const struct jinja_pair *from, struct jinja_pair *to,
                  const size_t bounds[3], bool reverse)
{
    size_t left = bounds[0];
    size_t right = bounds[1];
    for (size_t at = bounds[0]; at < bounds[2]; at++) {
        bool takes_left = right == bounds[2];
        if (left < bounds[1] && right < bounds[2]) {
            const int order = jinja_compare(run, from[left].key, from[right].key);
            takes_left = reverse ? order >= 0 : order <= 0;
        }
        to[at] = takes_left ? from[left++] : from[right++];
    }
}

struct jinja_pair *jinja_sorted(struct jinja_run *run, const struct jinja_pair *pairs, size_t count,
                                bool reverse)
{
    struct jinja_pair *from = jinja_alloc(run, (count + 1) * sizeof *from);
    struct jinja_pair *to = jinja_alloc(run, (count + 1) * sizeof *to);
    if (from == NULL || to == NULL) {
        return NULL;
    }
    if (count > 0) {
        memcpy(from, pairs, count * sizeof *from);
    }
    for (size_t width = 1; width < count && run->rc == 0; width *= 2) {
        for (size_t begin = 0; begin < count; begin += 2 * width) {
            const size_t middle = begin + width < count ? begin + width : count;
            const size_t end = middle + width < count ? middle + width : count;
            merge(run, from, to, (const size_t[3]){begin, middle, end}, reverse);
        }
        struct jinja_pair *swap = from;
        from = to;
        to = swap;
    }
    return run->rc == 0 ? from : NULL;
}
