/* filter_number.c: filters that make numbers or lay out lines (indent, truncate). */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/utf8.h"
#include "tools/text/jinja/chars.h"
#include "tools/text/jinja/function.h"

static struct jinja_value call_abs(struct jinja_run *run, struct jinja_value self,
                                   const struct jinja_arguments *arguments)
{
    (void)arguments;
    if (!jinja_is_number(self)) {
        return jinja_fail(run, -EINVAL, "abs needs a number, found '%s'", jinja_type_name(self));
    }
    return self.kind == JINJA_REAL
               ? jinja_real(fabs(self.as.real))
               : jinja_operate(run, jinja_number(self) < 0 ? "-" : "+", jinja_integer(0), self);
}

static bool is_alnum(char c, bool real)
{
    const char lower = (char)(c | 0x20);
    return (c >= '0' && c <= '9') || (!real && lower >= 'a' && lower <= 'z');
}

/* Returns the text without surrounding spaces and without underscores that Python allows in
 * numbers; NULL: the text is not a number, or the run has failed. */
static char *read_text(struct jinja_run *run, struct jinja_value value, bool real)
{
    size_t length = 0;
    const struct jinja_value text = jinja_strip(run, value, NULL, true, true);
    char *out = jinja_alloc(run, (size_t)text.bytes + 1);
    for (size_t i = 0; out != NULL && i < text.bytes; i++) {
        const char *at = text.as.text + i;
        if ((*at & 0x80) != 0 && jinja_char_is(jinja_char_point(at), JINJA_CHAR_DECIMAL)) {
            jinja_fail(run, -EINVAL, "digits beyond ASCII are not supported in numbers");
            return NULL;
        }
        const bool between = i > 0 && i + 1 < text.bytes && is_alnum(at[-1], real) &&
                             is_alnum(at[1], real);
        if ((*at & 0x80) != 0 || *at == '\0' || (*at == '_' && !between)) {
            return NULL;
        }
        if (*at != '_') {
            out[length++] = *at;
        }
    }
    return length > 0 && strpbrk(out, " \t\n\v\f\r") == NULL ? out : NULL;
}

static bool to_real(struct jinja_run *run, struct jinja_value self, double *out)
{
    char *end;
    if (jinja_is_number(self)) {
        *out = jinja_number(self);
        return true;
    }
    const char *text = jinja_is_str(self) ? read_text(run, self, true) : NULL;
    if (text == NULL || strpbrk(text, "xXpP(") != NULL) {
        return false;
    }
    *out = strtod(text, &end);
    return *end == '\0';
}

static bool to_whole(struct jinja_run *run, struct jinja_value self, int base, int64_t *out)
{
    char *end;
    const char *text = jinja_is_str(self) ? read_text(run, self, false) : NULL;
    if (text == NULL) {
        return false;
    }
    const bool negative = text[0] == '-';
    const char *digits = text + (negative || text[0] == '+');
    const char *prefix = base == 2 ? "bB" : base == 8 ? "oO" : base == 16 ? "xX" : "";
    digits += digits[0] == '0' && digits[1] != '\0' && strchr(prefix, digits[1]) != NULL ? 2 : 0;
    if (!is_alnum(digits[0], false) || (base == 16 && strpbrk(digits, "xX") != NULL)) {
        return false;
    }
    errno = 0;
    const unsigned long long size = strtoull(digits, &end, base);
    if (*end != '\0') {
        return false;
    }
    if (errno != 0 || size > (uint64_t)INT64_MAX + negative) {
        jinja_fail(run, -EINVAL, "the number %.40s does not fit into 64 bits", text);
    }
    *out = (int64_t)(negative ? 0 - size : size);
    return true;
}

static struct jinja_value call_int(struct jinja_run *run, struct jinja_value self,
                                   const struct jinja_arguments *arguments)
{
    int64_t whole;
    double real;
    const int64_t base = jinja_argument_integer(run, arguments, 1, "base", 10);
    if (self.kind == JINJA_UNDEFINED) {
        return jinja_fail(run, -EINVAL, "'%s' is undefined", self.as.text);
    }
    if (jinja_is_str(self) && base == 0) {
        return jinja_fail(run, -EINVAL, "int with base=0 is not supported");
    }
    if (self.kind == JINJA_INTEGER || self.kind == JINJA_BOOL) {
        return jinja_integer(jinja_integer_of(self));
    }
    if (base >= 2 && base <= 36 && to_whole(run, self, (int)base, &whole)) {
        return jinja_integer(whole);
    }
    if (to_real(run, self, &real) && (self.kind == JINJA_REAL ? !isnan(real) : isfinite(real))) {
        return jinja_whole(run, trunc(real));
    }
    return jinja_argument(arguments, 0, "default", jinja_integer(0));
}

static struct jinja_value call_float(struct jinja_run *run, struct jinja_value self,
                                     const struct jinja_arguments *arguments)
{
    double real;
    if (self.kind == JINJA_UNDEFINED) {
        return jinja_fail(run, -EINVAL, "'%s' is undefined", self.as.text);
    }
    return to_real(run, self, &real) ? jinja_real(real)
                                     : jinja_argument(arguments, 0, "default", jinja_real(0));
}

/* Rounds the decimal value to `precision` digits after the point, halves to even, as in Python. */
static double round_real(struct jinja_run *run, double real, int64_t precision)
{
    char text[800];
    if (!isfinite(real) || precision > 330) {
        return real;
    }
    if (precision >= 0) {
        snprintf(text, sizeof text, "%.*f", (int)precision, real);
        return strtod(text, NULL);
    }
    const int digits = snprintf(text, sizeof text, "%.0f",
                                trunc(fabs(real))); /* before the point */
    if (digits + precision > 0) {
        snprintf(text, sizeof text, "%.*e", (int)(digits + precision) - 1, real);
        return strtod(text, NULL);
    }
    if (digits + precision < 0) {
        return copysign(0, real);
    }
    if (digits > 22) {
        jinja_fail(run, -EINVAL, "rounding %g to %lld digits is not supported", real,
                   (long long)precision);
    }
    const double unit = pow(10, digits); /* exact */
    return copysign(fabs(real) > unit / 2 ? unit : 0, real);
}

/* Rounds to a multiple of 10 ** `zeros`, halves to an even multiple. */
static struct jinja_value round_whole(struct jinja_run *run, int64_t whole, int64_t zeros)
{
    __extension__ typedef __int128 wide;
    wide unit = 1;
    for (int64_t i = 0; i < zeros && i < 20; i++) {
        unit *= 10;
    }
    wide rest = whole % unit;
    rest += rest < 0 ? unit : 0;
    const wide below = (wide)whole - rest;
    const bool up = 2 * rest > unit || (2 * rest == unit && below / unit % 2 != 0);
    const wide rounded = below + (up ? unit : 0);
    return rounded >= INT64_MIN && rounded <= INT64_MAX
               ? jinja_integer((int64_t)rounded)
               : jinja_fail(run, -EINVAL, "the result does not fit into 64 bits");
}

static struct jinja_value round_to_side(struct jinja_run *run, struct jinja_value self,
                                        int64_t precision, bool up)
{
    if (self.kind != JINJA_REAL && precision >= 0) {
        return jinja_real(jinja_number(self));
    }
    const double scale = pow(10, (double)precision);
    const double scaled = jinja_number(self) * scale;
    if (precision > 22 || precision < -300 || !isfinite(scaled)) {
        return jinja_fail(run, -EINVAL, "rounding %g to %lld digits is not supported",
                          jinja_number(self), (long long)precision);
    }
    return jinja_real(((up ? ceil(scaled) : floor(scaled)) + 0.0) / scale); /* no -0.0 */
}

static struct jinja_value call_round(struct jinja_run *run, struct jinja_value self,
                                     const struct jinja_arguments *arguments)
{
    const int64_t precision = jinja_argument_integer(run, arguments, 0, "precision", 0);
    const struct jinja_value method = jinja_argument(arguments, 1, "method",
                                                     jinja_string("common", 6));
    if (!jinja_is_number(self)) {
        return jinja_fail(run, -EINVAL, "round needs a number, found '%s'", jinja_type_name(self));
    }
    if (jinja_is_text(method, "ceil") || jinja_is_text(method, "floor")) {
        return round_to_side(run, self, precision, jinja_is_text(method, "ceil"));
    }
    if (!jinja_is_text(method, "common")) {
        return jinja_fail(run, -EINVAL, "method must be common, ceil or floor");
    }
    if (self.kind == JINJA_REAL) {
        return jinja_real(round_real(run, self.as.real, precision));
    }
    const int64_t whole = jinja_integer_of(self);
    return round_whole(run, whole, precision < -20 ? 20 : -precision);
}

static struct jinja_value split_lines(struct jinja_run *run, struct jinja_value text)
{
    const struct jinja_arguments nothing = {0};
    const struct jinja_function *split = jinja_function_find(jinja_methods_search, "splitlines",
                                                             10);
    return jinja_function_call(run, split, text, &nothing);
}

static struct jinja_value call_indent(struct jinja_run *run, struct jinja_value self,
                                      const struct jinja_arguments *arguments)
{
    const struct jinja_value width = jinja_argument(arguments, 0, "width", jinja_integer(4));
    const bool first = jinja_argument_truth(arguments, 1, "first", false);
    const bool blank = jinja_argument_truth(arguments, 2, "blank", false);
    const struct jinja_value text = jinja_operate(run, "+", self, jinja_string("\n", 1));
    const struct jinja_value indent = width.kind == JINJA_STRING
                                          ? width
                                          : jinja_operate(run, "*", jinja_string(" ", 1), width);
    const struct jinja_value lines = split_lines(run, text);
    const size_t mark = jinja_capture_begin(run);
    for (size_t i = 0; run->rc == 0 && i < lines.as.list->count; i++) {
        const struct jinja_value line = lines.as.list->items[i];
        jinja_write(run, "\n", i > 0);
        if (i == 0 ? first : blank || line.bytes > 0) {
            jinja_write_value(run, indent);
        }
        jinja_write_value(run, line);
    }
    return jinja_capture_end(run, mark);
}

/* As in Python, a value that is short enough may be a list or dict; it is returned unchanged. */
static struct jinja_value call_truncate(struct jinja_run *run, struct jinja_value self,
                                        const struct jinja_arguments *arguments)
{
    const int64_t length = jinja_argument_integer(run, arguments, 0, "length", 255);
    const bool kills = jinja_argument_truth(arguments, 1, "killwords", false);
    const struct jinja_value end = jinja_argument_text(run, arguments, 2, "end", "...");
    const int64_t leeway = jinja_argument_integer(run, arguments, 3, "leeway", 5);
    const int64_t tail = (int64_t)core_utf8_count(end.as.text, end.bytes);
    const int64_t count = jinja_length(run, self);
    jinja_step_text(run, (size_t)self.bytes + end.bytes);
    if (run->rc == 0 && (length < tail || leeway < 0)) {
        return jinja_fail(run, -EINVAL, "truncate needs a length of at least %lld, found %lld",
                          (long long)tail, (long long)length);
    }
    if (run->rc != 0 || count - length <= leeway) {
        return self;
    }
    if (self.kind != JINJA_STRING) {
        return jinja_fail(run, -EINVAL, "truncate cannot shorten a value of type '%s'",
                          jinja_type_name(self));
    }
    size_t bytes = jinja_char_offset(self.as.text, self.bytes, (size_t)(length - tail));
    const char *space = kills ? NULL : memrchr(self.as.text, ' ', bytes);
    bytes = space != NULL ? (size_t)(space - self.as.text) : bytes;
    return jinja_operate(run, "+", jinja_string(self.as.text, bytes), end);
}

const struct jinja_function jinja_filters_number[] = {
    {"abs", call_abs, ""},
    {"int", call_int, "default? base?"},
    {"float", call_float, "default?"},
    {"round", call_round, "precision? method?"},
    {"indent", call_indent, "width? first? blank?"},
    {"truncate", call_truncate, "length? killwords? end? leeway?"},
    {NULL, NULL, NULL},
};
