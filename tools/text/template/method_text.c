/* method_text.c: methods of strings that make another string, and filters that do the same. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "tools/text/template/chars.h"
#include "tools/text/template/function.h"

/* A character in its other case; fails the run where that is not known here. */
static void write_case(struct text_template_run *run, uint32_t point, bool upper)
{
    char text[4];
    uint32_t other[2];
    const int count = upper ? template_char_upper(point, other) : template_char_lower(point, other);
    if (count < 0) {
        template_fail(run, -ENOTSUP,
                      "the case of letters beyond ASCII needs utf8proc, and this tide "
                      "was built without it");
        return;
    }
    for (int i = 0; i < count; i++) {
        template_write(run, text, template_char_write(other[i], text));
    }
}

/* How the case of a character depends on the one before it. */
enum casing { UPPER, LOWER, CAPITALIZED, TITLED, TITLED_WORDS, SWAPPED };

static bool makes_upper(enum casing casing, uint32_t before, uint32_t point)
{
    static const char separators[] = "-([{<";
    switch (casing) {
    case UPPER: return true;
    case LOWER: return false;
    case CAPITALIZED: return before == 0;
    case TITLED: return before == 0 || !template_char_is(before, TEMPLATE_CHAR_ALPHA);
    case TITLED_WORDS: /* the filter: words begin behind white space and some signs */
        return before == 0 || template_char_is(before, TEMPLATE_CHAR_SPACE) ||
               (before < 0x80 && strchr(separators, (int)before) != NULL);
    case SWAPPED: break;
    }
    return template_char_is(point, TEMPLATE_CHAR_LOWER);
}

static struct template_value change_case(struct text_template_run *run, struct template_value self,
                                         enum casing casing)
{
    uint32_t before = 0;
    const struct template_value text = template_to_string(run, self);
    const size_t mark = template_capture_begin(run);
    template_step_characters(run, text.bytes);
    for (size_t at = 0; at < text.bytes && run->code == 0;) {
        const uint32_t point = template_char_point(text.as.text + at);
        write_case(run, point, makes_upper(casing, before, point));
        before = point;
        at += template_char_bytes(text.as.text + at);
    }
    return template_capture_end(run, mark);
}

struct template_value template_case(struct text_template_run *run, struct template_value text,
                                    bool upper)
{
    return change_case(run, text, upper ? UPPER : LOWER);
}

#define CASE_FUNCTION(name, casing)                                                                \
    static struct template_value name(struct text_template_run *run, struct template_value self,   \
                                      const struct template_arguments *arguments)                  \
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

/* The characters that a strip removes: a bit for each code point. `bits` NULL: white space. */
struct strip_set {
    unsigned char *bits;
    size_t points;
};

static void strip_set_fill(struct text_template_run *run, struct template_value characters,
                           struct strip_set *out)
{
    uint32_t largest = 0;
    template_step_characters(run, 2 * (size_t)characters.bytes);
    for (size_t i = 0; i < characters.bytes && run->code == 0;) {
        const uint32_t point = template_char_point(characters.as.text + i);
        largest = point > largest ? point : largest;
        i += template_char_bytes(characters.as.text + i);
    }
    out->points = (size_t)largest + 1;
    out->bits = template_alloc(run, out->points / 8 + 1);
    for (size_t i = 0; i < characters.bytes && run->code == 0;) {
        const uint32_t point = template_char_point(characters.as.text + i);
        out->bits[point / 8] |= (unsigned char)(1U << point % 8);
        i += template_char_bytes(characters.as.text + i);
    }
}

static bool is_stripped(const char *at, const struct strip_set *set)
{
    const uint32_t point = template_char_point(at);
    if (set->bits == NULL) {
        return template_char_is(point, TEMPLATE_CHAR_SPACE);
    }
    return point < set->points && (set->bits[point / 8] >> point % 8 & 1) != 0;
}

struct template_value template_strip(struct text_template_run *run, struct template_value text,
                                     const struct template_value *characters, bool left, bool right)
{
    const char *begin = text.as.text;
    const char *end = begin + text.bytes;
    const struct template_mark mark = template_mark(run);
    struct strip_set set = {0};
    if (characters != NULL) {
        strip_set_fill(run, *characters, &set);
    }
    while (left && begin < end && template_step(run, 1) && is_stripped(begin, &set)) {
        begin += template_char_bytes(begin);
    }
    while (right && begin < end && template_step(run, 1)) {
        const size_t length = template_char_before(begin, end);
        if (!is_stripped(end - length, &set)) {
            break;
        }
        end -= length;
    }
    template_rewind(run, mark);
    return template_string(begin, (size_t)(end - begin));
}

static struct template_value strip(struct text_template_run *run, struct template_value self,
                                   const struct template_arguments *arguments, bool left,
                                   bool right)
{
    const struct template_value text = template_to_string(run, self);
    const struct template_value characters = template_argument(arguments, 0, "chars",
                                                               template_none());
    if (characters.kind != TEMPLATE_NONE && characters.kind != TEMPLATE_STRING) {
        return template_fail(run, -EINVAL, "strip takes a str or nothing");
    }
    return template_strip(run, text, characters.kind == TEMPLATE_STRING ? &characters : NULL, left,
                          right);
}

static struct template_value call_strip(struct text_template_run *run, struct template_value self,
                                        const struct template_arguments *arguments)
{
    return strip(run, self, arguments, true, true);
}

static struct template_value call_lstrip(struct text_template_run *run, struct template_value self,
                                         const struct template_arguments *arguments)
{
    return strip(run, self, arguments, true, false);
}

static struct template_value call_rstrip(struct text_template_run *run, struct template_value self,
                                         const struct template_arguments *arguments)
{
    return strip(run, self, arguments, false, true);
}

static struct template_value replace(struct text_template_run *run, struct template_value text,
                                     struct template_value from, struct template_value to,
                                     int64_t most)
{
    size_t done = 0;
    size_t at = 0;
    const size_t mark = template_capture_begin(run);
    assert(text.as.text != NULL && from.as.text != NULL); /* of strings, also of empty ones */
    while (run->code == 0 && most != 0 && at <= text.bytes) {
        const struct template_value rest = template_string(text.as.text + at, text.bytes - at);
        const char *found = template_search(run, rest, from, false);
        if (found == NULL) {
            break;
        }
        const size_t place = (size_t)(found - text.as.text);
        template_write(run, text.as.text + done, place - done);
        template_write_value(run, to);
        done = place + from.bytes;
        at = done;
        if (from.bytes == 0) { /* in front of every character, and behind the last */
            at = place < text.bytes ? place + template_char_bytes(found) : text.bytes + 1;
        }
        most -= most > 0;
        template_step(run, 1);
    }
    template_write(run, text.as.text + done, text.bytes - done);
    return template_capture_end(run, mark);
}

static struct template_value call_replace(struct text_template_run *run, struct template_value self,
                                          const struct template_arguments *arguments)
{
    const struct template_value text = template_to_string(run, self);
    const struct template_value from = template_to_string(
        run, template_argument(arguments, 0, "old", template_undefined("old")));
    const struct template_value to = template_to_string(
        run, template_argument(arguments, 1, "new", template_undefined("new")));
    const struct template_value most = template_argument(arguments, 2, "count", template_none());
    if (run->code == 0 && arguments->count < 2 && arguments->named == NULL) {
        return template_fail(run, -EINVAL, "replace needs an old and a new str");
    }
    return run->code != 0
               ? text
               : replace(run, text, from, to, most.kind == TEMPLATE_INTEGER ? most.as.integer : -1);
}

/* `text` between spaces, to a width; `where`: -1 left, 0 in the middle, 1 right. */
static struct template_value justify(struct text_template_run *run, struct template_value self,
                                     const struct template_arguments *arguments, int where,
                                     int64_t otherwise)
{
    const struct template_value text = template_to_string(run, self);
    const int64_t width = template_argument_integer(run, arguments, 0, "width", otherwise);
    const struct template_value with = template_argument_text(run, arguments, 1, "fillchar", " ");
    template_step_text(run, text.bytes);
    const int64_t count = (int64_t)template_char_count(text.as.text, text.bytes);
    const int64_t room = width > count ? width - count : 0;
    /* Python puts the odd one to the left where the width is odd, too. */
    const int64_t left = where < 0 ? 0 : where > 0 ? room : room / 2 + (room & width & 1);
    if (room > (int64_t)run->bytes_max) {
        return template_fail(run, -E2BIG, "a text of %lld characters", (long long)width);
    }
    const size_t mark = template_capture_begin(run);
    for (int64_t i = 0; i <= room && run->code == 0; i++) {
        template_write_value(run, i == left ? text : with);
        template_step(run, 1);
    }
    return template_capture_end(run, mark);
}

static struct template_value call_center(struct text_template_run *run, struct template_value self,
                                         const struct template_arguments *arguments)
{
    return justify(run, self, arguments, 0, 80);
}

static struct template_value call_ljust(struct text_template_run *run, struct template_value self,
                                        const struct template_arguments *arguments)
{
    return justify(run, self, arguments, -1, 0);
}

static struct template_value call_rjust(struct text_template_run *run, struct template_value self,
                                        const struct template_arguments *arguments)
{
    return justify(run, self, arguments, 1, 0);
}

static struct template_value call_zfill(struct text_template_run *run, struct template_value self,
                                        const struct template_arguments *arguments)
{
    const bool sign = self.bytes > 0 && (self.as.text[0] == '-' || self.as.text[0] == '+');
    const int64_t width = template_argument_integer(run, arguments, 0, "width", 0);
    template_step_text(run, self.bytes);
    int64_t zeros = width - (int64_t)template_char_count(self.as.text, self.bytes);
    const size_t mark = template_capture_begin(run);
    template_write(run, self.as.text, sign);
    for (; zeros > 0 && run->code == 0; zeros--) {
        template_write(run, "0", 1);
        template_step(run, 1);
    }
    template_write(run, self.as.text + sign, self.bytes - sign);
    return template_capture_end(run, mark);
}

static struct template_value remove_end(struct text_template_run *run, struct template_value self,
                                        const struct template_arguments *arguments, bool front)
{
    const struct template_value end = template_argument_text(run, arguments, 0, "end", NULL);
    if (run->code != 0 || end.bytes > self.bytes || end.bytes == 0) {
        return self;
    }
    const size_t at = front ? 0 : self.bytes - end.bytes;
    template_step_bytes(run, end.bytes);
    if (memcmp(self.as.text + at, end.as.text, end.bytes) != 0) {
        return self;
    }
    return template_string(self.as.text + (front ? end.bytes : 0), self.bytes - end.bytes);
}

static struct template_value call_removeprefix(struct text_template_run *run,
                                               struct template_value self,
                                               const struct template_arguments *arguments)
{
    return remove_end(run, self, arguments, true);
}

static struct template_value call_removesuffix(struct text_template_run *run,
                                               struct template_value self,
                                               const struct template_arguments *arguments)
{
    return remove_end(run, self, arguments, false);
}

static struct template_value call_format(struct text_template_run *run, struct template_value self,
                                         const struct template_arguments *arguments)
{
    return template_format_braces(run, self, arguments);
}

const struct template_function template_methods_text[] = {
    {"upper", call_upper, ""},
    {"lower", call_lower, ""},
    {"casefold", call_lower, ""},
    {"capitalize", call_capitalize, ""},
    {"title", call_title, ""},
    {"swapcase", call_swapcase, ""},
    {"strip", call_strip, "chars"},
    {"lstrip", call_lstrip, "chars"},
    {"rstrip", call_rstrip, "chars"},
    {"replace", call_replace, "old new count"},
    {"center", call_center, "width fillchar"},
    {"ljust", call_ljust, "width fillchar"},
    {"rjust", call_rjust, "width fillchar"},
    {"zfill", call_zfill, "width"},
    {"removeprefix", call_removeprefix, "end"},
    {"removesuffix", call_removesuffix, "end"},
    {"format", call_format, "*"},
    {NULL, NULL, NULL},
};

static struct template_value call_string(struct text_template_run *run, struct template_value self,
                                         const struct template_arguments *arguments)
{
    (void)arguments;
    return template_to_string(run, self);
}

static struct template_value call_escape(struct text_template_run *run, struct template_value self,
                                         const struct template_arguments *arguments)
{
    (void)arguments;
    static const char characters[] = "&<>'\"";
    static const char *const escapes[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    const struct template_value text = template_to_string(run, self);
    const size_t mark = template_capture_begin(run);
    template_step_characters(run, text.bytes);
    for (size_t at = 0; at < text.bytes && run->code == 0; at++) {
        const char c = text.as.text[at];
        const char *found = c != '\0' ? strchr(characters, c) : NULL;
        const char *written = found != NULL ? escapes[found - characters] : text.as.text + at;
        template_write(run, written, found != NULL ? strlen(written) : 1);
    }
    return template_capture_end(run, mark);
}

static struct template_value call_percent(struct text_template_run *run, struct template_value self,
                                          const struct template_arguments *arguments)
{
    const struct template_value text = template_to_string(run, self);
    if (arguments->named != NULL) {
        const struct template_value named = {.kind = TEMPLATE_DICT, .as.dict = arguments->named};
        return template_format_percent(run, text, &named, 1);
    }
    return template_format_percent(run, text, arguments->items, arguments->count);
}

static size_t count_words(struct template_value text)
{
    size_t words = 0;
    bool inside = false;
    for (size_t at = 0; at < text.bytes; at += template_char_bytes(text.as.text + at)) {
        const uint32_t point = template_char_point(text.as.text + at);
        const bool word = point == '_' || template_char_is(point, TEMPLATE_CHAR_ALPHA) ||
                          template_char_is(point, TEMPLATE_CHAR_NUMERIC);
        words += word && !inside;
        inside = word;
    }
    return words;
}

static struct template_value call_wordcount(struct text_template_run *run,
                                            struct template_value self,
                                            const struct template_arguments *arguments)
{
    (void)arguments;
    const struct template_value text = template_to_string(run, self);
    const bool may = template_step_characters(run, text.bytes);
    return template_integer(may ? (int64_t)count_words(text) : 0);
}

const struct template_function template_filters_text[] = {
    {"upper", call_upper, ""},
    {"lower", call_lower, ""},
    {"capitalize", call_capitalize, ""},
    {"title", call_title_words, ""},
    {"trim", call_strip, "chars"},
    {"replace", call_replace, "old new count"},
    {"center", call_center, "width"},
    {"string", call_string, ""},
    {"safe", call_string, ""},
    {"e", call_escape, ""},
    {"escape", call_escape, ""},
    {"forceescape", call_escape, ""},
    {"format", call_percent, "*"},
    {"tojson", template_to_json, "ensure_ascii indent separators sort_keys"},
    {"wordcount", call_wordcount, ""},
    {NULL, NULL, NULL},
};
