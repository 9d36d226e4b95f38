/* operate.c: arithmetic, attributes, items and slices of values. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "core/base/utf8.h"
#include "tools/text/jinja/chars.h"
#include "tools/text/jinja/function.h"
#include "tools/text/jinja/global.h"

/* ---- arithmetic of numbers, strings and lists, as in Python ---- */

static struct jinja_value overflow(struct jinja_run *run)
{
    return jinja_fail(run, -EINVAL, "the result does not fit into 64 bits");
}

/* Rounds down, as Python does; the remainder (`rest`) has the sign of the divisor. */
static struct jinja_value divide(struct jinja_run *run, int64_t left, int64_t right, bool rest)
{
    if (right == 0) {
        return jinja_fail(run, -EINVAL, "division by zero");
    }
    if (left == INT64_MIN && right == -1) {
        return rest ? jinja_integer(0) : overflow(run);
    }
    const int64_t remainder = left % right;
    const bool down = remainder != 0 && (remainder < 0) != (right < 0);
    return jinja_integer(rest ? remainder + (down ? right : 0) : left / right - down);
}

/* Fails the run where Python raises an error or makes a complex number. */
static struct jinja_value power_real(struct jinja_run *run, double left, double right)
{
    const double result = pow(left, right);
    const bool finite = isfinite(left) && isfinite(right);
    return isfinite(result) || !finite
               ? jinja_real(result)
               : jinja_fail(run, -EINVAL, "%g ** %g has no result that is a float", left, right);
}

static struct jinja_value power(struct jinja_run *run, int64_t left, int64_t right)
{
    int64_t result = 1;
    if (right < 0) {
        return power_real(run, (double)left, (double)right);
    }
    if (left == 0 || left == 1 || left == -1) {
        return jinja_integer(right == 0 ? 1 : left == -1 && right % 2 == 0 ? 1 : left);
    }
    for (; right > 0; right--) {
        if (__builtin_mul_overflow(result, left, &result)) {
            return overflow(run);
        }
    }
    return jinja_integer(result);
}

static bool is_exact(int64_t whole)
{
    return whole >= -(1LL << 53) && whole <= 1LL << 53;
}

static struct jinja_value divide_whole(struct jinja_run *run, int64_t left, int64_t right)
{
    if (right == 0) {
        return jinja_fail(run, -EINVAL, "division by zero");
    }
    if (!is_exact(left) || !is_exact(right)) {
        return jinja_fail(run, -EINVAL, "dividing numbers of more than 53 bits is not supported");
    }
    return jinja_real((double)left / (double)right);
}

static struct jinja_value operate_whole(struct jinja_run *run, const char *sign, int64_t left,
                                        int64_t right)
{
    int64_t result = 0;
    bool wraps = false;
    switch (sign[0]) {
    case '+': wraps = __builtin_add_overflow(left, right, &result); break;
    case '-': wraps = __builtin_sub_overflow(left, right, &result); break;
    case '%': return divide(run, left, right, true);
    case '*':
        if (sign[1] == '*') {
            return power(run, left, right);
        }
        wraps = __builtin_mul_overflow(left, right, &result);
        break;
    default:
        if (sign[1] == '/') {
            return divide(run, left, right, false);
        }
        return divide_whole(run, left, right);
    }
    return wraps ? overflow(run) : jinja_integer(result);
}

/* left // right, as Python computes it. */
static double floor_divide(double left, double right)
{
    const double rest = fmod(left, right);
    const bool down = rest != 0 && (rest < 0) != (right < 0);
    const double quotient = (left - rest) / right - down;
    if (quotient == 0) {
        return copysign(0, left / right);
    }
    const double whole = floor(quotient);
    return quotient - whole > 0.5 ? whole + 1 : whole;
}

static struct jinja_value operate_real(struct jinja_run *run, const char *sign, double left,
                                       double right)
{
    switch (sign[0]) {
    case '+': return jinja_real(left + right);
    case '-': return jinja_real(left - right);
    case '*': return sign[1] == '*' ? power_real(run, left, right) : jinja_real(left * right);
    default: break;
    }
    if (right == 0) {
        return jinja_fail(run, -EINVAL, "division by zero");
    }
    if (sign[0] == '/') {
        return jinja_real(sign[1] == '/' ? floor_divide(left, right) : left / right);
    }
    const double rest = fmod(left, right);
    return jinja_real(rest == 0                   ? copysign(0, right)
                      : (rest < 0) != (right < 0) ? rest + right
                                                  : rest);
}

static struct jinja_value repeat_text(struct jinja_run *run, struct jinja_value text, int64_t times)
{
    char *out;
    if (times <= 0 || text.bytes == 0) {
        return jinja_string("", 0);
    }
    if ((uint64_t)times > run->bytes_max / text.bytes) {
        return jinja_fail(run, -E2BIG, "the template needs more than %zu bytes of memory",
                          run->bytes_max);
    }
    const struct jinja_value made = jinja_string_room(run, text.bytes * (size_t)times, &out);
    for (size_t done = 0; out != NULL && done < made.bytes;) { /* doubles the copied part */
        const size_t from = done == 0                  ? text.bytes
                            : done < made.bytes - done ? done
                                                       : made.bytes - done;
        memcpy(out + done, done == 0 ? text.as.text : out, from);
        done += from;
    }
    return made;
}

static struct jinja_value repeat_list(struct jinja_run *run, struct jinja_value list, int64_t times)
{
    struct jinja_value made = jinja_list(run, list.kind);
    for (int64_t i = 0; i < times && run->rc == 0 && list.as.list->count > 0; i++) {
        for (size_t k = 0; k < list.as.list->count && run->rc == 0; k++) {
            jinja_list_add(run, made.as.list, list.as.list->items[k]);
        }
        jinja_step(run, 1);
    }
    return made;
}

static struct jinja_value join_two(struct jinja_run *run, struct jinja_value left,
                                   struct jinja_value right)
{
    if (left.kind == JINJA_STRING) {
        char *out;
        const struct jinja_value made = jinja_string_room(run, (size_t)left.bytes + right.bytes,
                                                          &out);
        if (out != NULL) {
            memcpy(out, left.as.text, left.bytes);
            memcpy(out + left.bytes, right.as.text, right.bytes);
        }
        return made;
    }
    struct jinja_value made = jinja_list(run, left.kind);
    for (size_t i = 0; run->rc == 0 && i < left.as.list->count; i++) {
        jinja_list_add(run, made.as.list, left.as.list->items[i]);
    }
    for (size_t i = 0; run->rc == 0 && i < right.as.list->count; i++) {
        jinja_list_add(run, made.as.list, right.as.list->items[i]);
    }
    return made;
}

static bool is_sequence(struct jinja_value value)
{
    return value.kind == JINJA_STRING || value.kind == JINJA_LIST || value.kind == JINJA_TUPLE;
}

static bool is_whole(struct jinja_value value)
{
    return value.kind == JINJA_INTEGER || value.kind == JINJA_BOOL;
}

struct jinja_value jinja_operate(struct jinja_run *run, const char *sign, struct jinja_value left,
                                 struct jinja_value right)
{
    if (left.kind == JINJA_STRING && sign[0] == '%') {
        return run->links->format_percent(run, left, right);
    }
    if (left.kind == JINJA_UNDEFINED || right.kind == JINJA_UNDEFINED) {
        return jinja_fail(run, -EINVAL, "'%s' is undefined",
                          left.kind == JINJA_UNDEFINED ? left.as.text : right.as.text);
    }
    if (is_whole(left) && is_whole(right)) {
        return operate_whole(run, sign, jinja_integer_of(left), jinja_integer_of(right));
    }
    if (jinja_is_number(left) && jinja_is_number(right)) {
        return operate_real(run, sign, jinja_number(left), jinja_number(right));
    }
    if (strcmp(sign, "+") == 0 && left.kind == right.kind && is_sequence(left)) {
        return join_two(run, left, right);
    }
    if (strcmp(sign, "*") == 0 && is_sequence(left) != is_sequence(right) &&
        (is_whole(left) || is_whole(right))) {
        const struct jinja_value sequence = is_sequence(left) ? left : right;
        const int64_t times = jinja_integer_of(is_sequence(left) ? right : left);
        return sequence.kind == JINJA_STRING ? repeat_text(run, sequence, times)
                                             : repeat_list(run, sequence, times);
    }
    return jinja_fail(run, -EINVAL, "%s is not defined between %s and %s", sign,
                      jinja_type_name(left), jinja_type_name(right));
}

/* ---- attributes, items and slices ---- */

static bool has_word(const char *words, const char *name, size_t bytes)
{
    for (struct jinja_value word; jinja_next_word(&words, &word);) {
        if (word.bytes == bytes && memcmp(word.as.text, name, bytes) == 0) {
            return true;
        }
    }
    return false;
}

/* Returns whether Python has this attribute but tide does not: an error, not a missing key. */
static bool is_refused(enum jinja_kind kind, const char *name, size_t bytes)
{
#define INTEGER_ATTRIBUTES                                                                         \
    "as_integer_ratio bit_count bit_length conjugate denominator from_bytes imag is_integer "      \
    "numerator real to_bytes"
    static const char *const words[] = {
        [JINJA_BOOL] = INTEGER_ATTRIBUTES,
        [JINJA_INTEGER] = INTEGER_ATTRIBUTES,
        [JINJA_REAL] = "as_integer_ratio conjugate from_number fromhex hex imag real",
        [JINJA_STRING] = "encode expandtabs format_map isidentifier isprintable istitle maketrans "
                         "translate",
        [JINJA_LIST] = "append clear extend insert pop remove reverse sort",
        [JINJA_DICT] = "clear fromkeys pop popitem setdefault update",
        [JINJA_CYCLER] = "items pos",
        [JINJA_JOINER] = "sep used",
    };
    switch ((int)kind) {
    case JINJA_GENERATOR:
    case JINJA_RANGE:
    case JINJA_KEYS:
    case JINJA_VALUES:
    case JINJA_ITEMS:
    case JINJA_MARKUP:
    case JINJA_MACRO:
    case JINJA_METHOD: return bytes == 0 || name[0] != '_'; /* the sandbox hides _names */
    default: break;
    }
    return kind < sizeof words / sizeof words[0] && words[kind] != NULL &&
           has_word(words[kind], name, bytes);
}

static struct jinja_value undefined_key(struct jinja_run *run, const char *name, size_t bytes)
{
    const struct jinja_value copy = jinja_string_copy(run, name, bytes);
    return run->rc == 0 ? jinja_undefined(copy.as.text) : jinja_undefined("");
}

struct jinja_value jinja_attribute(struct jinja_run *run, struct jinja_value value,
                                   const char *name, size_t bytes)
{
    const struct jinja_value *found = NULL;
    const struct jinja_function *method = run->links->find_method(value.kind, name, bytes);
    if (value.kind == JINJA_UNDEFINED) {
        return jinja_fail(run, -EINVAL, "'%s' is undefined", value.as.text);
    }
    if (method != NULL) {
        return jinja_bind(run, value, method);
    }
    if (is_refused(value.kind, name, bytes)) {
        return jinja_fail(run, -EINVAL, "the attribute or method %.*s of '%s' is not supported",
                          (int)bytes, name, jinja_type_name(value));
    }
    if (value.kind == JINJA_DICT || value.kind == JINJA_NAMESPACE) {
        jinja_step(run, value.as.dict->count / 8);
        found = jinja_dict_get(value.as.dict, name, bytes);
    } else if (value.kind == JINJA_LOOP) {
        return jinja_loop_attribute(run, value, name, bytes);
    } else if (value.kind == JINJA_TUPLE && value.as.list->group) {
        const struct jinja_value word = jinja_string(name, bytes);
        return jinja_is_text(word, "grouper") ? value.as.list->items[0]
               : jinja_is_text(word, "list")  ? value.as.list->items[1]
                                              : undefined_key(run, name, bytes);
    } else if (value.kind == JINJA_CYCLER) {
        return jinja_cycler_attribute(run, value, name, bytes);
    }
    return found != NULL ? *found : undefined_key(run, name, bytes);
}

static bool has_indices(struct jinja_value value)
{
    return value.kind == JINJA_LIST || value.kind == JINJA_TUPLE || value.kind == JINJA_RANGE;
}

/* A negative index counts from the end, as in Python. Returns false if out of range. */
static bool resolve_index(int64_t index, size_t count, size_t *out)
{
    const int64_t at = index < 0 ? index + (int64_t)count : index;
    *out = (size_t)at;
    return at >= 0 && at < (int64_t)count;
}

static struct jinja_value at_index(struct jinja_run *run, struct jinja_value value, int64_t index)
{
    size_t at;
    if (value.kind == JINJA_STRING) {
        jinja_step_text(run, value.bytes);
        if (!resolve_index(index, core_utf8_count(value.as.text, value.bytes), &at)) {
            return jinja_undefined("an index beyond the end of a string");
        }
        const char *begin = value.as.text + jinja_char_offset(value.as.text, value.bytes, at);
        return jinja_string(begin, jinja_char_bytes(begin));
    }
    return resolve_index(index, value.as.list->count, &at)
               ? value.as.list->items[at]
               : jinja_undefined("an index beyond the end of a list");
}

struct jinja_value jinja_item(struct jinja_run *run, struct jinja_value value,
                              struct jinja_value key)
{
    if (value.kind == JINJA_UNDEFINED) {
        return jinja_fail(run, -EINVAL, "'%s' is undefined", value.as.text);
    }
    if (value.kind == JINJA_DICT) {
        const struct jinja_value *found = jinja_dict_find(run, value.as.dict, key);
        if (found != NULL) {
            return *found;
        }
    }
    if (value.kind == JINJA_MARKUP) {
        return jinja_fail(run, -EINVAL, "items of a result of escape or safe are not supported");
    }
    if (key.kind == JINJA_MARKUP) {
        key.kind = JINJA_STRING;
    }
    const bool indexed = value.kind == JINJA_STRING || has_indices(value);
    if (indexed && (key.kind == JINJA_INTEGER || key.kind == JINJA_BOOL)) {
        return at_index(run, value, jinja_integer_of(key));
    }
    if (key.kind == JINJA_STRING) {
        return jinja_attribute(run, value, key.as.text, key.bytes);
    }
    return jinja_undefined("the element does not exist");
}

/* Reads the bounds of a slice as Python does. */
static bool read_bounds(struct jinja_run *run, const struct jinja_value bounds[3], int64_t count,
                        int64_t out[3])
{
    for (int i = 0; i < 3; i++) {
        if (bounds[i].kind != JINJA_NONE && bounds[i].kind != JINJA_INTEGER &&
            bounds[i].kind != JINJA_BOOL) {
            jinja_fail(run, -EINVAL, "a slice needs whole numbers, found '%s'",
                       jinja_type_name(bounds[i]));
            return false;
        }
    }
    out[2] = bounds[2].kind == JINJA_INTEGER ? bounds[2].as.integer : 1;
    if (out[2] == 0) {
        jinja_fail(run, -EINVAL, "the step of a slice is 0");
        return false;
    }
    const int64_t low = out[2] > 0 ? 0 : -1;
    const int64_t high = out[2] > 0 ? count : count - 1;
    for (int i = 0; i < 2; i++) {
        const bool forward = (i == 0) == (out[2] > 0);
        int64_t at = forward ? low : high;
        if (bounds[i].kind != JINJA_NONE) {
            at = jinja_integer_of(bounds[i]);
            at = at < 0 ? at + count : at;
            at = at < low ? low : at > high ? high : at;
        }
        out[i] = at;
    }
    return true;
}

/* Returns whether an index is before the end, in the direction of the step. */
static bool is_inside(int64_t at, const int64_t bounds[3])
{
    return bounds[2] > 0 ? at < bounds[1] : at > bounds[1];
}

/* Returns the next index, or the end if that would overflow. */
static int64_t next_index(int64_t at, const int64_t bounds[3])
{
    int64_t next;
    return __builtin_add_overflow(at, bounds[2], &next) ? bounds[1] : next;
}

static struct jinja_value slice_text(struct jinja_run *run, struct jinja_value value,
                                     const int64_t bounds[3])
{
    if (bounds[2] == 1) {
        const size_t begin = jinja_char_offset(value.as.text, value.bytes, (size_t)bounds[0]);
        const size_t end = bounds[1] <= bounds[0]
                               ? begin
                               : begin + jinja_char_offset(value.as.text + begin,
                                                           value.bytes - begin,
                                                           (size_t)(bounds[1] - bounds[0]));
        return jinja_string(value.as.text + begin, end - begin);
    }
    const struct jinja_list *characters = jinja_iterate(run, value);
    const size_t mark = jinja_capture_begin(run);
    for (int64_t at = bounds[0]; run->rc == 0 && is_inside(at, bounds);
         at = next_index(at, bounds)) {
        jinja_write_value(run, characters->items[at]);
    }
    return jinja_capture_end(run, mark);
}

struct jinja_value jinja_slice(struct jinja_run *run, struct jinja_value value,
                               const struct jinja_value bounds[3])
{
    int64_t at[3];
    const bool text = value.kind == JINJA_STRING;
    if (value.kind == JINJA_UNDEFINED) {
        return jinja_fail(run, -EINVAL, "'%s' is undefined", value.as.text);
    }
    if (!text && !has_indices(value)) {
        return jinja_fail(run, -EINVAL, "a value of type '%s' has no slices",
                          jinja_type_name(value));
    }
    jinja_step_text(run, text ? value.bytes : 0);
    const size_t count = text ? core_utf8_count(value.as.text, value.bytes) : value.as.list->count;
    if (!read_bounds(run, bounds, (int64_t)count, at)) {
        return jinja_undefined("");
    }
    if (text) {
        return slice_text(run, value, at);
    }
    struct jinja_value list = jinja_list(run, value.kind);
    for (int64_t i = at[0]; run->rc == 0 && is_inside(i, at); i = next_index(i, at)) {
        jinja_list_add(run, list.as.list, value.as.list->items[i]);
    }
    return list;
}

static struct jinja_value defined_or(struct jinja_value value, struct jinja_value otherwise)
{
    return value.kind == JINJA_UNDEFINED && otherwise.kind != JINJA_NONE ? otherwise : value;
}

struct jinja_value jinja_attribute_path_or(struct jinja_run *run, struct jinja_value value,
                                           struct jinja_value path, struct jinja_value otherwise)
{
    if (path.kind == JINJA_NONE) {
        return value;
    }
    if (!jinja_is_str(path)) {
        return defined_or(jinja_item(run, value, path), otherwise);
    }
    for (size_t at = 0; at <= path.bytes && jinja_step(run, 1);) {
        const char *part = path.as.text + at;
        const char *dot = memchr(part, '.', path.bytes - at);
        const size_t bytes = dot != NULL ? (size_t)(dot - part) : path.bytes - at;
        int64_t index = 0;
        bool number = bytes > 0 && bytes < 10;
        for (size_t i = 0; i < bytes && number; i++) {
            number = part[i] >= '0' && part[i] <= '9';
            index = index * 10 + (part[i] - '0');
        }
        value = jinja_item(run, value, number ? jinja_integer(index) : jinja_string(part, bytes));
        value = defined_or(value, otherwise);
        at += bytes + 1;
    }
    return value;
}

struct jinja_value jinja_attribute_path(struct jinja_run *run, struct jinja_value value,
                                        struct jinja_value path)
{
    return jinja_attribute_path_or(run, value, path, jinja_none());
}
