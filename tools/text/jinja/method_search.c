/* method_search.c: methods that search or split strings. */
#include <errno.h>
#include <string.h>

#include "core/base/utf8.h"
#include "tools/text/jinja/chars.h"
#include "tools/text/jinja/function.h"

/* Writes the part between the characters `start` and `end`. Returns false if the start is after the
 * end, where Python finds nothing. */
static bool take_part(struct jinja_run *run, struct jinja_value self,
                      const struct jinja_arguments *arguments, struct jinja_value *out)
{
    const struct jinja_value bounds[3] = {jinja_argument(arguments, 1, "-", jinja_none()),
                                          jinja_argument(arguments, 2, "-", jinja_none()),
                                          jinja_none()};
    *out = self;
    if (bounds[0].kind == JINJA_NONE && bounds[1].kind == JINJA_NONE) {
        return true;
    }
    *out = jinja_slice(run, self, bounds);
    const int64_t count = (int64_t)core_utf8_count(self.as.text, self.bytes);
    int64_t at[2] = {0, count};
    for (size_t i = 0; i < 2 && run->rc == 0; i++) {
        if (bounds[i].kind != JINJA_NONE) {
            at[i] = jinja_integer_of(bounds[i]);
            at[i] += at[i] < 0 ? count : 0;
            at[i] = at[i] < 0 ? 0 : at[i];
        }
    }
    return run->rc == 0 && at[0] <= (at[1] < count ? at[1] : count);
}

static struct jinja_value find(struct jinja_run *run, struct jinja_value self,
                               const struct jinja_arguments *arguments, bool last, bool required)
{
    struct jinja_value text;
    const struct jinja_value part = jinja_argument_text(run, arguments, 0, "sub", NULL);
    const bool any = take_part(run, self, arguments, &text);
    if (run->rc != 0 || !jinja_step(run, self.bytes / 64)) {
        return text;
    }
    const char *found = any ? jinja_search(run, text, part, last) : NULL;
    if (found == NULL) {
        return required ? jinja_fail(run, -EINVAL, "substring not found") : jinja_integer(-1);
    }
    return jinja_integer((int64_t)core_utf8_count(self.as.text, (size_t)(found - self.as.text)));
}

static struct jinja_value call_find(struct jinja_run *run, struct jinja_value self,
                                    const struct jinja_arguments *arguments)
{
    return find(run, self, arguments, false, false);
}

static struct jinja_value call_rfind(struct jinja_run *run, struct jinja_value self,
                                     const struct jinja_arguments *arguments)
{
    return find(run, self, arguments, true, false);
}

static struct jinja_value call_index(struct jinja_run *run, struct jinja_value self,
                                     const struct jinja_arguments *arguments)
{
    return find(run, self, arguments, false, true);
}

static struct jinja_value call_rindex(struct jinja_run *run, struct jinja_value self,
                                      const struct jinja_arguments *arguments)
{
    return find(run, self, arguments, true, true);
}

static const char *find_next(struct jinja_run *run, struct jinja_value text,
                             struct jinja_value part, size_t at)
{
    return jinja_search(run, jinja_string(text.as.text + at, text.bytes - at), part, false);
}

static struct jinja_value call_count(struct jinja_run *run, struct jinja_value self,
                                     const struct jinja_arguments *arguments)
{
    int64_t count = 0;
    const struct jinja_value part = jinja_argument_text(run, arguments, 0, "sub", NULL);
    struct jinja_value text;
    if (!take_part(run, self, arguments, &text) || run->rc != 0) {
        return jinja_integer(0);
    }
    if (part.bytes == 0) {
        jinja_step(run, text.bytes / 64);
        return jinja_integer((int64_t)core_utf8_count(text.as.text, text.bytes) + 1);
    }
    size_t at = 0;
    while (at < text.bytes && jinja_step(run, 1)) {
        const char *found = find_next(run, text, part, at);
        if (found == NULL) {
            break;
        }
        at = (size_t)(found - text.as.text) + part.bytes;
        count++;
    }
    return jinja_integer(count);
}

static bool has_end(struct jinja_run *run, struct jinja_value text, struct jinja_value end,
                    bool front)
{
    return jinja_step(run, 1) && end.bytes <= text.bytes && jinja_step_bytes(run, end.bytes) &&
           memcmp(text.as.text + (front ? 0 : text.bytes - end.bytes), end.as.text, end.bytes) == 0;
}

static struct jinja_value refuse_end(struct jinja_run *run, struct jinja_value found)
{
    return jinja_fail(run, -EINVAL, "expected a str or a tuple of str, not %s",
                      jinja_type_name(found));
}

/* Returns whether the text begins or ends with a string or a member of a tuple. */
static struct jinja_value begins_or_ends(struct jinja_run *run, struct jinja_value self,
                                         const struct jinja_arguments *arguments, bool front)
{
    const struct jinja_value what = jinja_argument(arguments, 0, "prefix",
                                                   jinja_undefined("prefix"));
    struct jinja_value text;
    const bool inside = take_part(run, self, arguments, &text);
    if (what.kind == JINJA_STRING) {
        return jinja_bool(inside && has_end(run, text, what, front));
    }
    if (what.kind != JINJA_TUPLE) {
        return refuse_end(run, what);
    }
    bool any = false;
    for (size_t i = 0; i < what.as.list->count && run->rc == 0 && !any; i++) {
        const struct jinja_value item = what.as.list->items[i];
        if (item.kind != JINJA_STRING) {
            return refuse_end(run, item);
        }
        any = inside && has_end(run, text, item, front);
    }
    return jinja_bool(any);
}

static struct jinja_value call_startswith(struct jinja_run *run, struct jinja_value self,
                                          const struct jinja_arguments *arguments)
{
    return begins_or_ends(run, self, arguments, true);
}

static struct jinja_value call_endswith(struct jinja_run *run, struct jinja_value self,
                                        const struct jinja_arguments *arguments)
{
    return begins_or_ends(run, self, arguments, false);
}

static bool is_space_at(const char *at)
{
    return jinja_char_is(jinja_char_point(at), JINJA_CHAR_SPACE);
}

/* Returns at most `most` words (< 0: any number) and the rest. */
static void split_space(struct jinja_run *run, struct jinja_value text, int64_t most,
                        struct jinja_list *out)
{
    const char *at = text.as.text;
    const char *end = at + text.bytes;
    while (run->rc == 0) {
        while (at < end && is_space_at(at)) {
            at += jinja_char_bytes(at);
        }
        const char *begin = at;
        while (at < end && ((most >= 0 && (int64_t)out->count >= most) || !is_space_at(at))) {
            at += jinja_char_bytes(at);
        }
        if (begin == end) {
            break;
        }
        jinja_list_add(run, out, jinja_string(begin, (size_t)(at - begin)));
    }
}

/* Splits from the end; the words are reversed. */
static void split_space_back(struct jinja_run *run, struct jinja_value text, int64_t most,
                             struct jinja_list *out)
{
    const char *begin = text.as.text;
    const char *end = begin + text.bytes;
    while (run->rc == 0) {
        while (end > begin && is_space_at(end - jinja_char_before(begin, end))) {
            end -= jinja_char_before(begin, end);
        }
        if (end == begin) {
            break;
        }
        const char *at = end;
        const bool rest = (int64_t)out->count >= most;
        while (at > begin && (rest || !is_space_at(at - jinja_char_before(begin, at)))) {
            at -= jinja_char_before(begin, at);
        }
        jinja_list_add(run, out, jinja_string(at, (size_t)(end - at)));
        end = at;
    }
}

static void split_at(struct jinja_run *run, struct jinja_value text, struct jinja_value separator,
                     int64_t most, struct jinja_list *out)
{
    const char *at = text.as.text;
    const char *end = at + text.bytes;
    while (run->rc == 0) {
        const char *found = most < 0 || (int64_t)out->count < most
                                ? find_next(run, text, separator, (size_t)(at - text.as.text))
                                : NULL;
        if (found == NULL) {
            break;
        }
        jinja_list_add(run, out, jinja_string(at, (size_t)(found - at)));
        at = found + separator.bytes;
    }
    jinja_list_add(run, out, jinja_string(at, (size_t)(end - at)));
}

static void split_at_back(struct jinja_run *run, struct jinja_value text,
                          struct jinja_value separator, int64_t most, struct jinja_list *out)
{
    size_t end = text.bytes;
    while (run->rc == 0) {
        const struct jinja_value front = jinja_string(text.as.text, end);
        const bool more = most < 0 || (int64_t)out->count < most;
        const char *found = more ? jinja_search(run, front, separator, true) : NULL;
        if (found == NULL) {
            break;
        }
        const size_t at = (size_t)(found - text.as.text) + separator.bytes;
        jinja_list_add(run, out, jinja_string(text.as.text + at, end - at));
        end = at - separator.bytes;
    }
    jinja_list_add(run, out, jinja_string(text.as.text, end));
}

static void reverse_list(struct jinja_list *list)
{
    for (size_t i = 0; i < list->count / 2; i++) {
        const struct jinja_value kept = list->items[i];
        list->items[i] = list->items[list->count - 1 - i];
        list->items[list->count - 1 - i] = kept;
    }
}

static struct jinja_value split(struct jinja_run *run, struct jinja_value self,
                                const struct jinja_arguments *arguments, bool back)
{
    struct jinja_value list = jinja_list(run, JINJA_LIST);
    const struct jinja_value separator = jinja_argument(arguments, 0, "sep", jinja_none());
    const int64_t most = jinja_argument_integer(run, arguments, 1, "maxsplit", -1);
    const bool spaces = separator.kind == JINJA_NONE;
    if (run->rc == 0 && !spaces && (separator.kind != JINJA_STRING || separator.bytes == 0)) {
        return jinja_fail(run, -EINVAL, "the separator of split is not a str, or is empty");
    }
    jinja_step_characters(run, self.bytes);
    if (run->rc != 0) {
        return list;
    }
    if (back && (most >= 0 || !spaces)) { /* else the direction does not matter */
        if (spaces) {
            split_space_back(run, self, most, list.as.list);
        } else {
            split_at_back(run, self, separator, most, list.as.list);
        }
        reverse_list(list.as.list);
    } else if (spaces) {
        split_space(run, self, most, list.as.list);
    } else {
        split_at(run, self, separator, most, list.as.list);
    }
    return list;
}

static struct jinja_value call_split(struct jinja_run *run, struct jinja_value self,
                                     const struct jinja_arguments *arguments)
{
    return split(run, self, arguments, false);
}

static struct jinja_value call_rsplit(struct jinja_run *run, struct jinja_value self,
                                      const struct jinja_arguments *arguments)
{
    return split(run, self, arguments, true);
}

/* Returns the length of a line end that Python accepts; 0: none. */
static size_t line_end(const char *at, const char *end)
{
    const uint32_t point = jinja_char_point(at);
    if (point == '\r' && end - at > 1 && at[1] == '\n') {
        return 2;
    }
    const bool ends_line = (point >= 10 && point <= 13) || (point >= 0x1C && point <= 0x1E) ||
                           point == 0x85 || point == 0x2028 || point == 0x2029;
    return ends_line ? jinja_char_bytes(at) : 0;
}

static struct jinja_value call_splitlines(struct jinja_run *run, struct jinja_value self,
                                          const struct jinja_arguments *arguments)
{
    const bool keeps = jinja_argument_truth(arguments, 0, "keepends", false);
    jinja_step_characters(run, self.bytes);
    struct jinja_value list = jinja_list(run, JINJA_LIST);
    const char *end = self.as.text + self.bytes;
    const char *begin = self.as.text;
    for (const char *at = begin; at < end && run->rc == 0;) {
        const size_t length = line_end(at, end);
        if (length > 0) {
            jinja_list_add(run, list.as.list,
                           jinja_string(begin, (size_t)(at - begin) + (keeps ? length : 0)));
            begin = at + length;
        }
        at += length > 0 ? length : jinja_char_bytes(at);
    }
    if (begin < end && run->rc == 0) {
        jinja_list_add(run, list.as.list, jinja_string(begin, (size_t)(end - begin)));
    }
    return list;
}

static struct jinja_value partition(struct jinja_run *run, struct jinja_value self,
                                    const struct jinja_arguments *arguments, bool last)
{
    const struct jinja_value separator = jinja_argument_text(run, arguments, 0, "sep", NULL);
    struct jinja_value made = jinja_list(run, JINJA_TUPLE);
    if (run->rc != 0 || separator.bytes == 0) {
        return jinja_fail(run, -EINVAL, "empty separator");
    }
    const struct jinja_value nothing = jinja_string("", 0);
    const char *found = jinja_search(run, self, separator, last);
    const size_t at = found != NULL ? (size_t)(found - self.as.text) : 0;
    const struct jinja_value front = jinja_string(self.as.text, at);
    const struct jinja_value behind = jinja_string(self.as.text + at + separator.bytes,
                                                   self.bytes - at - separator.bytes);
    const struct jinja_value missing[2] = {last ? nothing : self, last ? self : nothing};
    jinja_list_add(run, made.as.list, found != NULL ? front : missing[0]);
    jinja_list_add(run, made.as.list, found != NULL ? separator : nothing);
    jinja_list_add(run, made.as.list, found != NULL ? behind : missing[1]);
    return made;
}

static struct jinja_value call_partition(struct jinja_run *run, struct jinja_value self,
                                         const struct jinja_arguments *arguments)
{
    return partition(run, self, arguments, false);
}

static struct jinja_value call_rpartition(struct jinja_run *run, struct jinja_value self,
                                          const struct jinja_arguments *arguments)
{
    return partition(run, self, arguments, true);
}

static struct jinja_value call_join(struct jinja_run *run, struct jinja_value self,
                                    const struct jinja_arguments *arguments)
{
    const struct jinja_list *items = jinja_iterate(
        run, jinja_argument(arguments, 0, "iterable", jinja_undefined("")));
    const size_t mark = jinja_capture_begin(run);
    for (size_t i = 0; items != NULL && i < items->count && run->rc == 0; i++) {
        if (items->items[i].kind != JINJA_STRING) {
            jinja_fail(run, -EINVAL, "join needs strings, but item %zu is of type %s", i,
                       jinja_type_name(items->items[i]));
        }
        jinja_write(run, self.as.text, i > 0 ? self.bytes : 0);
        jinja_write_value(run, items->items[i]);
        jinja_step(run, 1);
    }
    return jinja_capture_end(run, mark);
}

static bool all_are(struct jinja_value text, enum jinja_char_class first,
                    enum jinja_char_class second)
{
    for (size_t at = 0; at < text.bytes; at += jinja_char_bytes(text.as.text + at)) {
        const uint32_t point = jinja_char_point(text.as.text + at);
        if (!jinja_char_is(point, first) && !jinja_char_is(point, second)) {
            return false;
        }
    }
    return text.bytes > 0;
}

/* Returns whether there are letters of this case and none of the other. */
static bool is_case(struct jinja_value text, bool upper)
{
    bool any = false;
    for (size_t at = 0; at < text.bytes; at += jinja_char_bytes(text.as.text + at)) {
        const uint32_t point = jinja_char_point(text.as.text + at);
        if (jinja_char_is(point, upper ? JINJA_CHAR_LOWER : JINJA_CHAR_UPPER)) {
            return false;
        }
        any |= jinja_char_is(point, upper ? JINJA_CHAR_UPPER : JINJA_CHAR_LOWER);
    }
    return any;
}

static bool is_ascii(struct jinja_value text)
{
    return core_utf8_count(text.as.text, text.bytes) == text.bytes;
}

#define IS_FUNCTION(name, condition)                                                               \
    static struct jinja_value name(struct jinja_run *run, struct jinja_value self,                 \
                                   const struct jinja_arguments *arguments)                        \
    {                                                                                              \
        (void)arguments;                                                                           \
        const bool may = jinja_step_characters(run, self.bytes);                                   \
        return jinja_bool(may && (condition));                                                     \
    }
IS_FUNCTION(call_isspace, all_are(self, JINJA_CHAR_SPACE, JINJA_CHAR_SPACE))
IS_FUNCTION(call_isalpha, all_are(self, JINJA_CHAR_ALPHA, JINJA_CHAR_ALPHA))
IS_FUNCTION(call_isdigit, all_are(self, JINJA_CHAR_DECIMAL, JINJA_CHAR_DECIMAL))
IS_FUNCTION(call_isnumeric, all_are(self, JINJA_CHAR_NUMERIC, JINJA_CHAR_NUMERIC))
IS_FUNCTION(call_isalnum, all_are(self, JINJA_CHAR_ALPHA, JINJA_CHAR_NUMERIC))
IS_FUNCTION(call_isupper, is_case(self, true))
IS_FUNCTION(call_islower, is_case(self, false))
IS_FUNCTION(call_isascii, is_ascii(self))

const struct jinja_function jinja_methods_search[] = {
    {"find", call_find, "-sub -start? -end?"},
    {"rfind", call_rfind, "-sub -start? -end?"},
    {"index", call_index, "-sub -start? -end?"},
    {"rindex", call_rindex, "-sub -start? -end?"},
    {"count", call_count, "-sub -start? -end?"},
    {"startswith", call_startswith, "-prefix -start? -end?"},
    {"endswith", call_endswith, "-prefix -start? -end?"},
    {"split", call_split, "sep? maxsplit?"},
    {"rsplit", call_rsplit, "sep? maxsplit?"},
    {"splitlines", call_splitlines, "keepends?"},
    {"partition", call_partition, "-sep"},
    {"rpartition", call_rpartition, "-sep"},
    {"join", call_join, "-iterable"},
    {"isspace", call_isspace, ""},
    {"isalpha", call_isalpha, ""},
    {"isdigit", call_isdigit, ""},
    {"isdecimal", call_isdigit, ""},
    {"isnumeric", call_isnumeric, ""},
    {"isalnum", call_isalnum, ""},
    {"isupper", call_isupper, ""},
    {"islower", call_islower, ""},
    {"isascii", call_isascii, ""},
    {NULL, NULL, NULL},
};
