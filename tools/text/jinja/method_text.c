/* method_text.c: methods and filters that make a string from a string. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "core/base/utf8.h"
#include "tools/text/jinja/chars.h"
#include "tools/text/jinja/function.h"

/* Fails the run if utf8proc is needed but missing. */
static void write_case(struct jinja_run *run, uint32_t point, bool upper)
{
    char text[4];
    uint32_t other[2];
    const int count = upper ? jinja_char_upper(point, other) : jinja_char_lower(point, other);
    if (count < 0) {
        jinja_fail(run, -ENOTSUP,
                   "changing the case of letters beyond ASCII needs utf8proc, and this tide was "
                   "built without it");
        return;
    }
    for (int i = 0; i < count; i++) {
        jinja_write(run, text, jinja_char_write(other[i], text));
    }
}

/* How the new case depends on the character before. */
enum casing { UPPER, LOWER, CAPITALIZED, TITLED, TITLED_WORDS, SWAPPED };

static bool makes_upper(enum casing casing, uint32_t before, uint32_t point)
{
    static const char separators[] = "-([{<";
    switch (casing) {
    case UPPER: return true;
    case LOWER: return false;
    case CAPITALIZED: return before == 0;
    case TITLED: return before == 0 || !jinja_char_is(before, JINJA_CHAR_ALPHA);
    case TITLED_WORDS: /* the filter `title`: words begin after white space and some signs */
        return before == 0 || jinja_char_is(before, JINJA_CHAR_SPACE) ||
               (before < 0x80 && strchr(separators, (int)before) != NULL);
    case SWAPPED: break;
    }
    return jinja_char_is(point, JINJA_CHAR_LOWER);
}

/* A string made from a MARKUP is one, too. */
static struct jinja_value of_kind(struct jinja_value self, struct jinja_value made)
{
    made.kind = self.kind == JINJA_MARKUP && made.kind == JINJA_STRING ? JINJA_MARKUP : made.kind;
    return made;
}

static struct jinja_value change_case(struct jinja_run *run, struct jinja_value self,
                                      enum casing casing)
{
    uint32_t before = 0;
    const struct jinja_value text = jinja_to_string(run, self);
    const size_t mark = jinja_capture_begin(run);
    jinja_step_characters(run, text.bytes);
    for (size_t at = 0; at < text.bytes && run->rc == 0;) {
        const uint32_t point = jinja_char_point(text.as.text + at);
        write_case(run, point, makes_upper(casing, before, point));
        before = point;
        at += jinja_char_bytes(text.as.text + at);
    }
    const struct jinja_value made = jinja_capture_end(run, mark);
    return casing != TITLED_WORDS ? of_kind(self, made) : made;
}

struct jinja_value jinja_case(struct jinja_run *run, struct jinja_value text, bool upper)
{
    return change_case(run, text, upper ? UPPER : LOWER);
}

#define CASE_FUNCTION(name, casing)                                                                \
    static struct jinja_value name(struct jinja_run *run, struct jinja_value self,                 \
                                   const struct jinja_arguments *arguments)                        \
    {                                                                                              \
        (void)arguments;                                                                           \
        return change_case(run, self, casing);                                                     \
    }
CASE_FUNCTION(call_upper, UPPER)
CASE_FUNCTION(call_lower, LOWER)
CASE_FUNCTION(call_capitalize, CAPITALIZED)
CASE_FUNCTION(call_title, TITLED)
CASE_FUNCTION(call_title_words, TITLED_WORDS)
CASE_FUNCTION(call_swapcase, SWAPPED)

/* The characters that a strip removes: a bit by code point. `bits` NULL: white space. */
struct strip_set {
    unsigned char *bits;
    size_t points;
};

static void strip_set_fill(struct jinja_run *run, struct jinja_value characters,
                           struct strip_set *out)
{
    uint32_t largest = 0;
    jinja_step_characters(run, 2 * (size_t)characters.bytes);
    for (size_t i = 0; i < characters.bytes && run->rc == 0;) {
        const uint32_t point = jinja_char_point(characters.as.text + i);
        largest = point > largest ? point : largest;
        i += jinja_char_bytes(characters.as.text + i);
    }
    out->points = (size_t)largest + 1;
    out->bits = jinja_alloc(run, out->points / 8 + 1);
    for (size_t i = 0; i < characters.bytes && run->rc == 0;) {
        const uint32_t point = jinja_char_point(characters.as.text + i);
        out->bits[point / 8] |= (unsigned char)(1U << point % 8);
        i += jinja_char_bytes(characters.as.text + i);
    }
}

static bool is_stripped(const char *at, const struct strip_set *set)
{
    const uint32_t point = jinja_char_point(at);
    if (set->bits == NULL) {
        return jinja_char_is(point, JINJA_CHAR_SPACE);
    }
    return point < set->points && (set->bits[point / 8] >> point % 8 & 1) != 0;
}

struct jinja_value jinja_strip(struct jinja_run *run, struct jinja_value text,
                               const struct jinja_value *characters, bool left, bool right)
{
    const char *begin = text.as.text;
    const char *end = begin + text.bytes;
    const struct jinja_mark mark = jinja_mark(run);
    struct strip_set set = {0};
    if (characters != NULL) {
        strip_set_fill(run, *characters, &set);
    }
    while (left && begin < end && jinja_step(run, 1) && is_stripped(begin, &set)) {
        begin += jinja_char_bytes(begin);
    }
    while (right && begin < end && jinja_step(run, 1)) {
        const size_t length = jinja_char_before(begin, end);
        if (!is_stripped(end - length, &set)) {
            break;
        }
        end -= length;
    }
    jinja_rewind(run, mark);
    return jinja_string(begin, (size_t)(end - begin));
}

static struct jinja_value strip(struct jinja_run *run, struct jinja_value self,
                                const struct jinja_arguments *arguments, bool left, bool right)
{
    const struct jinja_value text = jinja_to_string(run, self);
    const struct jinja_value characters = jinja_argument(arguments, 0, "chars", jinja_none());
    if (characters.kind != JINJA_NONE && characters.kind != JINJA_STRING) {
        return jinja_fail(run, -EINVAL, "strip takes a str or nothing");
    }
    return of_kind(
        self,
        jinja_strip(run, text, characters.kind == JINJA_STRING ? &characters : NULL, left, right));
}

static struct jinja_value call_strip(struct jinja_run *run, struct jinja_value self,
                                     const struct jinja_arguments *arguments)
{
    return strip(run, self, arguments, true, true);
}

static struct jinja_value call_lstrip(struct jinja_run *run, struct jinja_value self,
                                      const struct jinja_arguments *arguments)
{
    return strip(run, self, arguments, true, false);
}

static struct jinja_value call_rstrip(struct jinja_run *run, struct jinja_value self,
                                      const struct jinja_arguments *arguments)
{
    return strip(run, self, arguments, false, true);
}

static struct jinja_value replace(struct jinja_run *run, struct jinja_value text,
                                  struct jinja_value from, struct jinja_value to, int64_t most)
{
    size_t done = 0;
    size_t at = 0;
    const size_t mark = jinja_capture_begin(run);
    assert(text.as.text != NULL && from.as.text != NULL); /* even an empty string has text */
    while (run->rc == 0 && most != 0 && at <= text.bytes) {
        const struct jinja_value rest = jinja_string(text.as.text + at, text.bytes - at);
        const char *found = jinja_search(run, rest, from, false);
        if (found == NULL) {
            break;
        }
        const size_t place = (size_t)(found - text.as.text);
        jinja_write(run, text.as.text + done, place - done);
        jinja_write_value(run, to);
        done = place + from.bytes;
        at = done;
        if (from.bytes == 0) { /* insert before every character and at the end */
            at = place < text.bytes ? place + jinja_char_bytes(found) : text.bytes + 1;
        }
        most -= most > 0;
        jinja_step(run, 1);
    }
    jinja_write(run, text.as.text + done, text.bytes - done);
    return jinja_capture_end(run, mark);
}

static struct jinja_value call_replace(struct jinja_run *run, struct jinja_value self,
                                       const struct jinja_arguments *arguments)
{
    const struct jinja_value from = jinja_argument_text(run, arguments, 0, "old", NULL);
    const struct jinja_value to = jinja_argument_text(run, arguments, 1, "new", NULL);
    const int64_t most = jinja_argument_integer(run, arguments, 2, "count", -1);
    return run->rc == 0 ? replace(run, self, from, to, most) : self;
}

/* The filter takes values of any types. */
static struct jinja_value call_replace_filter(struct jinja_run *run, struct jinja_value self,
                                              const struct jinja_arguments *arguments)
{
    const struct jinja_value text = jinja_to_string(run, self);
    const struct jinja_value from = jinja_to_string(
        run, jinja_argument(arguments, 0, "old", jinja_none()));
    const struct jinja_value to = jinja_to_string(
        run, jinja_argument(arguments, 1, "new", jinja_none()));
    const bool all = jinja_argument(arguments, 2, "count", jinja_none()).kind == JINJA_NONE;
    const int64_t most = all ? -1 : jinja_argument_integer(run, arguments, 2, "count", -1);
    return run->rc == 0 ? replace(run, text, from, to, most) : text;
}

/* `fillchar` is a space by default. `where`: -1 left, 0 centre, 1 right. */
static struct jinja_value justify(struct jinja_run *run, struct jinja_value self,
                                  const struct jinja_arguments *arguments, int where,
                                  int64_t otherwise)
{
    const struct jinja_value text = jinja_to_string(run, self);
    const int64_t width = jinja_argument_integer(run, arguments, 0, "width", otherwise);
    const struct jinja_value with = jinja_argument_text(run, arguments, 1, "fillchar", " ");
    if (run->rc == 0 && core_utf8_count(with.as.text, with.bytes) != 1) {
        return jinja_fail(run, -EINVAL, "fillchar must be one character");
    }
    jinja_step_text(run, text.bytes);
    const int64_t count = (int64_t)core_utf8_count(text.as.text, text.bytes);
    const int64_t room = width > count ? width - count : 0;
    /* As in Python: the extra space is on the left if width and padding are odd. */
    const int64_t left = where < 0 ? 0 : where > 0 ? room : room / 2 + (room & width & 1);
    if (room > (int64_t)run->bytes_max) {
        return jinja_fail(run, -E2BIG, "a text of %lld characters is too long", (long long)width);
    }
    const size_t mark = jinja_capture_begin(run);
    for (int64_t i = 0; i <= room && run->rc == 0; i++) {
        jinja_write_value(run, i == left ? text : with);
        jinja_step(run, 1);
    }
    return of_kind(self, jinja_capture_end(run, mark));
}

static struct jinja_value call_center(struct jinja_run *run, struct jinja_value self,
                                      const struct jinja_arguments *arguments)
{
    return justify(run, self, arguments, 0, 80);
}

static struct jinja_value call_ljust(struct jinja_run *run, struct jinja_value self,
                                     const struct jinja_arguments *arguments)
{
    return justify(run, self, arguments, -1, 0);
}

static struct jinja_value call_rjust(struct jinja_run *run, struct jinja_value self,
                                     const struct jinja_arguments *arguments)
{
    return justify(run, self, arguments, 1, 0);
}

static struct jinja_value call_zfill(struct jinja_run *run, struct jinja_value self,
                                     const struct jinja_arguments *arguments)
{
    const bool sign = self.bytes > 0 && (self.as.text[0] == '-' || self.as.text[0] == '+');
    const int64_t width = jinja_argument_integer(run, arguments, 0, "width", 0);
    jinja_step_text(run, self.bytes);
    int64_t zeros = width - (int64_t)core_utf8_count(self.as.text, self.bytes);
    const size_t mark = jinja_capture_begin(run);
    jinja_write(run, self.as.text, sign);
    for (; zeros > 0 && run->rc == 0; zeros--) {
        jinja_write(run, "0", 1);
        jinja_step(run, 1);
    }
    jinja_write(run, self.as.text + sign, self.bytes - sign);
    return jinja_capture_end(run, mark);
}

static struct jinja_value remove_end(struct jinja_run *run, struct jinja_value self,
                                     const struct jinja_arguments *arguments, bool front)
{
    const struct jinja_value end = jinja_argument_text(run, arguments, 0, "end", NULL);
    if (run->rc != 0 || end.bytes > self.bytes || end.bytes == 0) {
        return self;
    }
    const size_t at = front ? 0 : self.bytes - end.bytes;
    jinja_step_bytes(run, end.bytes);
    if (memcmp(self.as.text + at, end.as.text, end.bytes) != 0) {
        return self;
    }
    return jinja_string(self.as.text + (front ? end.bytes : 0), self.bytes - end.bytes);
}

static struct jinja_value call_removeprefix(struct jinja_run *run, struct jinja_value self,
                                            const struct jinja_arguments *arguments)
{
    return remove_end(run, self, arguments, true);
}

static struct jinja_value call_removesuffix(struct jinja_run *run, struct jinja_value self,
                                            const struct jinja_arguments *arguments)
{
    return remove_end(run, self, arguments, false);
}

static struct jinja_value call_format(struct jinja_run *run, struct jinja_value self,
                                      const struct jinja_arguments *arguments)
{
    return jinja_format_braces(run, self, arguments);
}

const struct jinja_function jinja_methods_text[] = {
    {"upper", call_upper, ""},
    {"lower", call_lower, ""},
    {"casefold", call_lower, ""},
    {"capitalize", call_capitalize, ""},
    {"title", call_title, ""},
    {"swapcase", call_swapcase, ""},
    {"strip", call_strip, "-chars?"},
    {"lstrip", call_lstrip, "-chars?"},
    {"rstrip", call_rstrip, "-chars?"},
    {"replace", call_replace, "-old -new -count?"},
    {"center", call_center, "-width -fillchar?"},
    {"ljust", call_ljust, "-width -fillchar?"},
    {"rjust", call_rjust, "-width -fillchar?"},
    {"zfill", call_zfill, "-width"},
    {"removeprefix", call_removeprefix, "-end"},
    {"removesuffix", call_removesuffix, "-end"},
    {"format", call_format, "**"},
    {NULL, NULL, NULL},
};

static struct jinja_value call_string(struct jinja_run *run, struct jinja_value self,
                                      const struct jinja_arguments *arguments)
{
    (void)arguments;
    return of_kind(self, jinja_to_string(run, self));
}

static struct jinja_value markup(struct jinja_value text)
{
    text.kind = text.kind == JINJA_STRING ? JINJA_MARKUP : text.kind;
    return text;
}

static struct jinja_value call_safe(struct jinja_run *run, struct jinja_value self,
                                    const struct jinja_arguments *arguments)
{
    (void)arguments;
    return markup(jinja_to_string(run, self));
}

static struct jinja_value call_force_escape(struct jinja_run *run, struct jinja_value self,
                                            const struct jinja_arguments *arguments)
{
    (void)arguments;
    static const char characters[] = "&<>'\"";
    static const char *const escapes[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    const struct jinja_value text = jinja_to_string(run, self);
    const size_t mark = jinja_capture_begin(run);
    jinja_step_characters(run, text.bytes);
    for (size_t at = 0; at < text.bytes && run->rc == 0; at++) {
        const char c = text.as.text[at];
        const char *found = c != '\0' ? strchr(characters, c) : NULL;
        const char *written = found != NULL ? escapes[found - characters] : text.as.text + at;
        jinja_write(run, written, found != NULL ? strlen(written) : 1);
    }
    return markup(jinja_capture_end(run, mark));
}

static struct jinja_value call_escape(struct jinja_run *run, struct jinja_value self,
                                      const struct jinja_arguments *arguments)
{
    return self.kind == JINJA_MARKUP ? self : call_force_escape(run, self, arguments);
}

static struct jinja_value call_percent(struct jinja_run *run, struct jinja_value self,
                                       const struct jinja_arguments *arguments)
{
    const struct jinja_value text = jinja_to_string(run, self);
    struct jinja_value values = {.kind = JINJA_DICT, .as.dict = arguments->named};
    if (self.kind == JINJA_MARKUP) {
        return jinja_fail(run, -EINVAL, "format of a result of escape or safe is not supported");
    }
    if (arguments->named != NULL && arguments->count > 0) {
        return jinja_fail(run, -EINVAL, "format takes values with or without names, not both");
    }
    if (arguments->named == NULL) {
        values = jinja_list(run, JINJA_TUPLE);
    }
    for (size_t i = 0; i < arguments->count && run->rc == 0; i++) {
        jinja_list_add(run, values.as.list, arguments->items[i]);
    }
    return run->rc == 0 ? jinja_format_percent(run, text, values) : text;
}

static size_t count_words(struct jinja_value text)
{
    size_t words = 0;
    bool inside = false;
    for (size_t at = 0; at < text.bytes; at += jinja_char_bytes(text.as.text + at)) {
        const uint32_t point = jinja_char_point(text.as.text + at);
        const bool word = point == '_' || jinja_char_is(point, JINJA_CHAR_ALPHA) ||
                          jinja_char_is(point, JINJA_CHAR_NUMERIC);
        words += word && !inside;
        inside = word;
    }
    return words;
}

static struct jinja_value call_wordcount(struct jinja_run *run, struct jinja_value self,
                                         const struct jinja_arguments *arguments)
{
    (void)arguments;
    const struct jinja_value text = jinja_to_string(run, self);
    const bool may = jinja_step_characters(run, text.bytes);
    return jinja_integer(may ? (int64_t)count_words(text) : 0);
}

const struct jinja_function jinja_filters_text[] = {
    {"upper", call_upper, ""},
    {"lower", call_lower, ""},
    {"capitalize", call_capitalize, ""},
    {"title", call_title_words, ""},
    {"trim", call_strip, "chars?"},
    {"replace", call_replace_filter, "old new count?"},
    {"center", call_center, "width?"},
    {"string", call_string, ""},
    {"safe", call_safe, ""},
    {"e", call_escape, ""},
    {"escape", call_escape, ""},
    {"forceescape", call_force_escape, ""},
    {"format", call_percent, "**"},
    {"tojson", jinja_to_json, "ensure_ascii? indent? separators? sort_keys?"},
    {"wordcount", call_wordcount, ""},
    {NULL, NULL, NULL},
};
