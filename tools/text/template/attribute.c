/* attribute.c: what stands behind a dot or in square brackets. */
#include <errno.h>
#include <string.h>

#include "tools/text/template/chars.h"
#include "tools/text/template/function.h"
#include "tools/text/template/global.h"

struct template_value template_bind(struct text_template_run *run, struct template_value self,
                                    const struct template_function *function)
{
    struct template_method *method = template_alloc(run, sizeof *method);
    if (method == NULL) {
        return template_undefined("");
    }
    *method = (struct template_method){.self = self, .function = function};
    return (struct template_value){.kind = TEMPLATE_METHOD, .as.method = method};
}

/* Python's methods that a sandbox refuses, for they change their value, and those that are missing
 * here: both would otherwise look like a missing key. */
static bool is_refused(enum template_kind kind, const char *name, size_t bytes)
{
    static const char *const dict[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
    static const char *const list[] = {"append", "clear",   "extend", "insert", "pop",
                                       "remove", "reverse", "sort",   NULL};
    static const char *const text[] = {"encode",  "expandtabs", "format_map", "isidentifier",
                                       "istitle", "maketrans",  "translate",  NULL};
    const char *const *names = kind == TEMPLATE_DICT ? dict : kind == TEMPLATE_LIST ? list : text;
    for (; (kind == TEMPLATE_DICT || kind == TEMPLATE_LIST || kind == TEMPLATE_STRING) &&
           *names != NULL;
         names++) {
        if (bytes > 0 && **names == *name && strncmp(*names, name, bytes) == 0 &&
            (*names)[bytes] == '\0') {
            return true;
        }
    }
    return false;
}

static struct template_value missing(struct text_template_run *run, const char *name, size_t bytes)
{
    const struct template_value copy = template_string_copy(run, name, bytes);
    return run->code == 0 ? template_undefined(copy.as.text) : template_undefined("");
}

struct template_value template_attribute(struct text_template_run *run, struct template_value value,
                                         const char *name, size_t bytes)
{
    const struct template_value *found = NULL;
    const struct template_function *method = template_method_find(value.kind, name, bytes);
    if (value.kind == TEMPLATE_UNDEFINED) {
        return template_fail(run, -EINVAL, "'%s' is undefined", value.as.text);
    }
    if (method != NULL) {
        return template_bind(run, value, method);
    }
    if (is_refused(value.kind, name, bytes)) {
        return template_fail(run, -EINVAL, "the method %.*s of a %s is not allowed here",
                             (int)bytes, name, template_type_name(value));
    }
    if (value.kind == TEMPLATE_DICT || value.kind == TEMPLATE_NAMESPACE) {
        template_step(run, value.as.dict->count / 8);
        found = template_dict_get(value.as.dict, name, bytes);
    } else if (value.kind == TEMPLATE_LOOP) {
        return template_loop_attribute(run, value, name, bytes);
    } else if (value.kind == TEMPLATE_TUPLE && value.as.list->group) {
        const struct template_value word = template_string(name, bytes);
        return template_is_text(word, "grouper") ? value.as.list->items[0]
               : template_is_text(word, "list")  ? value.as.list->items[1]
                                                 : missing(run, name, bytes);
    } else if (value.kind == TEMPLATE_CYCLER) {
        return template_cycler_attribute(run, value, name, bytes);
    }
    return found != NULL ? *found : missing(run, name, bytes);
}

/* A Python index: from the end where it is negative. False where it lies outside. */
static bool place(int64_t index, size_t count, size_t *out)
{
    const int64_t at = index < 0 ? index + (int64_t)count : index;
    *out = (size_t)at;
    return at >= 0 && at < (int64_t)count;
}

static struct template_value at_index(struct text_template_run *run, struct template_value value,
                                      int64_t index)
{
    size_t at;
    if (value.kind == TEMPLATE_STRING) {
        template_step_text(run, value.bytes);
        if (!place(index, template_char_count(value.as.text, value.bytes), &at)) {
            return template_undefined("str object has no such element");
        }
        const char *begin = value.as.text + template_char_offset(value.as.text, value.bytes, at);
        return template_string(begin, template_char_bytes(begin));
    }
    return place(index, value.as.list->count, &at) ? value.as.list->items[at]
                                                   : template_undefined("list has no such element");
}

struct template_value template_item(struct text_template_run *run, struct template_value value,
                                    struct template_value key)
{
    if (value.kind == TEMPLATE_UNDEFINED) {
        return template_fail(run, -EINVAL, "'%s' is undefined", value.as.text);
    }
    if (value.kind == TEMPLATE_DICT) {
        const struct template_value *found = template_dict_find(run, value.as.dict, key);
        if (found != NULL) {
            return *found;
        }
    }
    const bool indexed = value.kind == TEMPLATE_LIST || value.kind == TEMPLATE_TUPLE ||
                         value.kind == TEMPLATE_STRING;
    if (indexed && (key.kind == TEMPLATE_INTEGER || key.kind == TEMPLATE_BOOL)) {
        return at_index(run, value, key.kind == TEMPLATE_BOOL ? key.as.truth : key.as.integer);
    }
    if (key.kind == TEMPLATE_STRING) {
        return template_attribute(run, value, key.as.text, key.bytes);
    }
    return template_undefined("an element that is not there");
}

/* Python's bounds of a slice over `count` elements. */
static bool read_bounds(struct text_template_run *run, const struct template_value bounds[3],
                        int64_t count, int64_t out[3])
{
    for (int i = 0; i < 3; i++) {
        if (bounds[i].kind != TEMPLATE_NONE && bounds[i].kind != TEMPLATE_INTEGER &&
            bounds[i].kind != TEMPLATE_BOOL) {
            template_fail(run, -EINVAL, "a slice needs whole numbers, and has a %s",
                          template_type_name(bounds[i]));
            return false;
        }
    }
    out[2] = bounds[2].kind == TEMPLATE_INTEGER ? bounds[2].as.integer : 1;
    if (out[2] == 0) {
        template_fail(run, -EINVAL, "the step of a slice is 0");
        return false;
    }
    const int64_t low = out[2] > 0 ? 0 : -1;
    const int64_t high = out[2] > 0 ? count : count - 1;
    for (int i = 0; i < 2; i++) {
        const bool forward = (i == 0) == (out[2] > 0);
        int64_t at = forward ? low : high;
        if (bounds[i].kind != TEMPLATE_NONE) {
            at = bounds[i].kind == TEMPLATE_BOOL ? bounds[i].as.truth : bounds[i].as.integer;
            at = at < 0 ? at + count : at;
            at = at < low ? low : at > high ? high : at;
        }
        out[i] = at;
    }
    return true;
}

/* Of first, end and step. */
static bool is_inside(int64_t at, const int64_t bounds[3])
{
    return bounds[2] > 0 ? at < bounds[1] : at > bounds[1];
}

/* The next index, or the end where that is beyond all numbers. */
static int64_t after(int64_t at, const int64_t bounds[3])
{
    int64_t next;
    return __builtin_add_overflow(at, bounds[2], &next) ? bounds[1] : next;
}

static struct template_value slice_text(struct text_template_run *run, struct template_value value,
                                        const int64_t bounds[3])
{
    if (bounds[2] == 1) {
        const size_t begin = template_char_offset(value.as.text, value.bytes, (size_t)bounds[0]);
        const size_t end = bounds[1] <= bounds[0]
                               ? begin
                               : begin + template_char_offset(value.as.text + begin,
                                                              value.bytes - begin,
                                                              (size_t)(bounds[1] - bounds[0]));
        return template_string(value.as.text + begin, end - begin);
    }
    const struct template_list *characters = template_iterate(run, value);
    const size_t mark = template_capture_begin(run);
    for (int64_t at = bounds[0]; run->code == 0 && is_inside(at, bounds); at = after(at, bounds)) {
        template_write_value(run, characters->items[at]);
    }
    return template_capture_end(run, mark);
}

struct template_value template_slice(struct text_template_run *run, struct template_value value,
                                     const struct template_value bounds[3])
{
    int64_t at[3];
    const bool text = value.kind == TEMPLATE_STRING;
    if (value.kind == TEMPLATE_UNDEFINED) {
        return template_fail(run, -EINVAL, "'%s' is undefined", value.as.text);
    }
    if (!text && value.kind != TEMPLATE_LIST && value.kind != TEMPLATE_TUPLE) {
        return template_undefined("a slice of what has no elements");
    }
    template_step_text(run, text ? value.bytes : 0);
    const size_t count = text ? template_char_count(value.as.text, value.bytes)
                              : value.as.list->count;
    if (!read_bounds(run, bounds, (int64_t)count, at)) {
        return template_undefined("");
    }
    if (text) {
        return slice_text(run, value, at);
    }
    struct template_value list = template_list(run, value.kind);
    for (int64_t i = at[0]; run->code == 0 && is_inside(i, at); i = after(i, at)) {
        template_list_add(run, list.as.list, value.as.list->items[i]);
    }
    return list;
}

struct template_value template_attribute_path(struct text_template_run *run,
                                              struct template_value value,
                                              struct template_value path)
{
    if (path.kind != TEMPLATE_STRING) {
        return template_item(run, value, path);
    }
    for (size_t at = 0; at <= path.bytes && template_step(run, 1);) {
        const char *part = path.as.text + at;
        const char *dot = memchr(part, '.', path.bytes - at);
        const size_t bytes = dot != NULL ? (size_t)(dot - part) : path.bytes - at;
        int64_t index = 0;
        bool number = bytes > 0 && bytes < 10;
        for (size_t i = 0; i < bytes && number; i++) {
            number = part[i] >= '0' && part[i] <= '9';
            index = index * 10 + (part[i] - '0');
        }
        value = template_item(run, value,
                              number ? template_integer(index) : template_string(part, bytes));
        at += bytes + 1;
    }
    return value;
}
