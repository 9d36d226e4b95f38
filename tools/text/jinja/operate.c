/* operate.c: arithmetic of numbers, strings and lists, as Python does it. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "tools/text/jinja/function.h"

static int64_t whole(struct jinja_value value)
{
    return value.kind == JINJA_BOOL ? value.as.truth : value.as.integer;
}

static struct jinja_value overflow(struct jinja_run *run)
{
    return jinja_fail(run, -EINVAL, "a number of more than 64 bits");
}

/* Rounded down, with the sign of the divisor on the rest. */
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

static struct jinja_value power(struct jinja_run *run, int64_t left, int64_t right)
{
    int64_t result = 1;
    if (right < 0) {
        return jinja_real(pow((double)left, (double)right));
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
        return right != 0 ? jinja_real((double)left / (double)right)
                          : jinja_fail(run, -EINVAL, "division by zero");
    }
    return wraps ? overflow(run) : jinja_integer(result);
}

static struct jinja_value operate_real(struct jinja_run *run, const char *sign, double left,
                                       double right)
{
    switch (sign[0]) {
    case '+': return jinja_real(left + right);
    case '-': return jinja_real(left - right);
    case '*': return jinja_real(sign[1] == '*' ? pow(left, right) : left * right);
    default: break;
    }
    if (right == 0) {
        return jinja_fail(run, -EINVAL, "division by zero");
    }
    if (sign[0] == '/') {
        return jinja_real(sign[1] == '/' ? floor(left / right) : left / right);
    }
    const double rest = fmod(left, right);
    return jinja_real(rest != 0 && (rest < 0) != (right < 0) ? rest + right : rest);
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
    for (size_t done = 0; out != NULL && done < made.bytes;) { /* twice as much each time */
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
        const bool many = right.kind == JINJA_TUPLE;
        return jinja_format_percent(run, left, many ? right.as.list->items : &right,
                                    many ? right.as.list->count : 1);
    }
    if (left.kind == JINJA_UNDEFINED || right.kind == JINJA_UNDEFINED) {
        return jinja_fail(run, -EINVAL, "'%s' is undefined",
                          left.kind == JINJA_UNDEFINED ? left.as.text : right.as.text);
    }
    if (is_whole(left) && is_whole(right)) {
        return operate_whole(run, sign, whole(left), whole(right));
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
        const int64_t times = whole(is_sequence(left) ? right : left);
        return sequence.kind == JINJA_STRING ? repeat_text(run, sequence, times)
                                             : repeat_list(run, sequence, times);
    }
    return jinja_fail(run, -EINVAL, "%s cannot stand between %s and %s", sign,
                      jinja_type_name(left), jinja_type_name(right));
}
