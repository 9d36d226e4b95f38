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
    return self.kind == JINJA_REAL  ? jinja_real(fabs(self.as.real))
           : jinja_number(self) < 0 ? jinja_operate(run, "-", jinja_integer(0), self)
                                    : self;
}

/* Drops surrounding spaces and underscores, which Python allows. Returns false if the text cannot
 * be a number. */
static bool read_text(struct jinja_run *run, struct jinja_value value, char out[80])
{
    size_t length = 0;
    const struct jinja_value text = jinja_strip(run, value, NULL, true, true);
    for (size_t i = 0; i < text.bytes; i++) {
        const char c = text.as.text[i];
        const bool between = c == '_' && i > 0 && i + 1 < text.bytes &&
                             text.as.text[i - 1] != '_' && text.as.text[i + 1] != '_';
        if (length + 1 >= 80 || c == '\0' || (c == '_' && !between)) {
            return false;
        }
        if (c != '_') {
            out[length++] = c;
        }
    }
    out[length] = '\0';
    return length > 0 && strpbrk(out, " \t\n") == NULL;
}

static bool to_real(struct jinja_run *run, struct jinja_value self, double *out)
{
    char text[80];
    char *end;
    if (jinja_is_number(self)) {
        *out = jinja_number(self);
        return true;
    }
    if (self.kind != JINJA_STRING || !read_text(run, self, text) || strpbrk(text, "xXpP") != NULL ||
        strchr(text, '(') != NULL) {
        return false;
    }
    *out = strtod(text, &end);
    return *end == '\0';
}

static bool to_whole(struct jinja_run *run, struct jinja_value self, int base, int64_t *out)
{
    char text[80];
    char *end;
    if (self.kind != JINJA_STRING || !read_text(run, self, text)) {
        return false;
    }
    const char *digits = text + (text[0] == '-' || text[0] == '+');
    const bool prefix = digits[0] == '0' && strpbrk(digits, "bBoO") == digits + 1 &&
                        (base == 2 || base == 8);
    char moved[80];
    snprintf(moved, sizeof moved, "%.1s%s", digits == text ? "+" : text, digits + (prefix ? 2 : 0));
    errno = 0;
    *out = strtoll(moved, &end, base);
    return *end == '\0' && end != moved + 1 && errno == 0;
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
    if (self.kind == JINJA_INTEGER || self.kind == JINJA_BOOL) {
        return self.kind == JINJA_BOOL ? jinja_integer(self.as.truth) : self;
    }
    if (base >= 2 && base <= 36 && to_whole(run, self, (int)base, &whole)) {
        return jinja_integer(whole);
    }
    if (to_real(run, self, &real) && fabs(real) < 9.2e18) {
        return jinja_integer((int64_t)real);
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

/* Rounds halves to even, as Python does. */
static double round_to(double real, int64_t precision)
{
    char text[400];
    if (precision < 0 || precision > 20 || fabs(real) > 1e22) {
        const double scale = pow(10, (double)-precision);
        return precision < 0 ? rint(real / scale) * scale : real;
    }
    snprintf(text, sizeof text, "%.*f", (int)precision, real);
    return strtod(text, NULL);
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
    const double scale = pow(10, (double)precision);
    if (jinja_is_text(method, "ceil") || jinja_is_text(method, "floor")) {
        const double scaled = jinja_number(self) * scale;
        return jinja_real((jinja_is_text(method, "ceil") ? ceil(scaled) : floor(scaled)) / scale);
    }
    if (!jinja_is_text(method, "common")) {
        return jinja_fail(run, -EINVAL, "method must be common, ceil or floor");
    }
    if (self.kind != JINJA_REAL) {
        return precision >= 0 ? jinja_operate(run, "+", jinja_integer(0), self)
                              : jinja_whole(run, round_to(jinja_number(self), precision));
    }
    return jinja_real(round_to(self.as.real, precision));
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
    {"int", call_int, "default base"},
    {"float", call_float, "default"},
    {"round", call_round, "precision method"},
    {"indent", call_indent, "width first blank"},
    {"truncate", call_truncate, "length killwords end leeway"},
    {NULL, NULL, NULL},
};
