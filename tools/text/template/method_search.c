/* method_search.c: methods of strings that look into them or take them apart. */
#include <errno.h>
#include <string.h>

#include "tools/text/template/chars.h"
#include "tools/text/template/function.h"

/* The piece of the text that start and stop (characters, as in a slice) leave. */
static struct template_value piece(struct text_template_run *run, struct template_value self,
                                   const struct template_arguments *arguments)
{
    const struct template_value bounds[3] = {
        template_argument(arguments, 1, "start", template_none()),
        template_argument(arguments, 2, "end", template_none()), template_none()};
    return bounds[0].kind == TEMPLATE_NONE && bounds[1].kind == TEMPLATE_NONE
               ? self
               : template_slice(run, self, bounds);
}

static struct template_value find(struct text_template_run *run, struct template_value self,
                                  const struct template_arguments *arguments, bool last,
                                  bool required)
{
    const struct template_value part = template_argument_text(run, arguments, 0, "sub", NULL);
    const struct template_value text = piece(run, self, arguments);
    if (run->code != 0 || !template_step(run, self.bytes / 64)) {
        return text;
    }
    const char *found = template_search(run, text, part, last);
    if (found == NULL) {
        return required ? template_fail(run, -EINVAL, "substring not found") : template_integer(-1);
    }
    return template_integer(
        (int64_t)template_char_count(self.as.text, (size_t)(found - self.as.text)));
}

static struct template_value call_find(struct text_template_run *run, struct template_value self,
                                       const struct template_arguments *arguments)
{
    return find(run, self, arguments, false, false);
}

static struct template_value call_rfind(struct text_template_run *run, struct template_value self,
                                        const struct template_arguments *arguments)
{
    return find(run, self, arguments, true, false);
}

static struct template_value call_index(struct text_template_run *run, struct template_value self,
                                        const struct template_arguments *arguments)
{
    return find(run, self, arguments, false, true);
}

static struct template_value call_rindex(struct text_template_run *run, struct template_value self,
                                         const struct template_arguments *arguments)
{
    return find(run, self, arguments, true, true);
}

/* The next place of a part from `at` on. */
static const char *find_next(struct text_template_run *run, struct template_value text,
                             struct template_value part, size_t at)
{
    return template_search(run, template_string(text.as.text + at, text.bytes - at), part, false);
}

static struct template_value call_count(struct text_template_run *run, struct template_value self,
                                        const struct template_arguments *arguments)
{
    int64_t count = 0;
    const struct template_value part = template_argument_text(run, arguments, 0, "sub", NULL);
    const struct template_value text = piece(run, self, arguments);
    if (run->code != 0 || part.bytes == 0) {
        template_step(run, text.bytes / 64);
        return template_integer((int64_t)template_char_count(text.as.text, text.bytes) + 1);
    }
    size_t at = 0;
    while (at < text.bytes && template_step(run, 1)) {
        const char *found = find_next(run, text, part, at);
        if (found == NULL) {
            break;
        }
        at = (size_t)(found - text.as.text) + part.bytes;
        count++;
    }
    return template_integer(count);
}

static bool has_end(struct text_template_run *run, struct template_value text,
                    struct template_value end, bool front)
{
    return template_step(run, 1) && end.bytes <= text.bytes &&
           template_step_bytes(run, end.bytes) &&
           memcmp(text.as.text + (front ? 0 : text.bytes - end.bytes), end.as.text, end.bytes) == 0;
}

/* One string, or a tuple of which any may stand there. */
static struct template_value ends(struct text_template_run *run, struct template_value self,
                                  const struct template_arguments *arguments, bool front)
{
    const struct template_value what = template_argument(arguments, 0, "prefix",
                                                         template_undefined("prefix"));
    const struct template_value text = piece(run, self, arguments);
    if (what.kind == TEMPLATE_STRING) {
        return template_bool(run->code == 0 && has_end(run, text, what, front));
    }
    if (what.kind != TEMPLATE_TUPLE) {
        return template_fail(run, -EINVAL, "a str or a tuple of them was expected, not %s",
                             template_type_name(what));
    }
    bool any = false;
    for (size_t i = 0; i < what.as.list->count && run->code == 0; i++) {
        any |= what.as.list->items[i].kind == TEMPLATE_STRING &&
               has_end(run, text, what.as.list->items[i], front);
    }
    return template_bool(any);
}

static struct template_value call_startswith(struct text_template_run *run,
                                             struct template_value self,
                                             const struct template_arguments *arguments)
{
    return ends(run, self, arguments, true);
}

static struct template_value call_endswith(struct text_template_run *run,
                                           struct template_value self,
                                           const struct template_arguments *arguments)
{
    return ends(run, self, arguments, false);
}

static bool is_space_at(const char *at)
{
    return template_char_is(template_char_point(at), TEMPLATE_CHAR_SPACE);
}

/* Words between white space; behind `most` of them (< 0: no limit) the rest is one word. */
static void split_space(struct text_template_run *run, struct template_value text, int64_t most,
                        struct template_list *out)
{
    const char *at = text.as.text;
    const char *end = at + text.bytes;
    while (run->code == 0) {
        while (at < end && is_space_at(at)) {
            at += template_char_bytes(at);
        }
        const char *begin = at;
        while (at < end && ((most >= 0 && (int64_t)out->count >= most) || !is_space_at(at))) {
            at += template_char_bytes(at);
        }
        if (begin == end) {
            break;
        }
        template_list_add(run, out, template_string(begin, (size_t)(at - begin)));
    }
}

/* The same from the end: the words come out backwards. */
static void split_space_back(struct text_template_run *run, struct template_value text,
                             int64_t most, struct template_list *out)
{
    const char *begin = text.as.text;
    const char *end = begin + text.bytes;
    while (run->code == 0) {
        while (end > begin && is_space_at(end - template_char_before(begin, end))) {
            end -= template_char_before(begin, end);
        }
        if (end == begin) {
            break;
        }
        const char *at = end;
        const bool rest = (int64_t)out->count >= most;
        while (at > begin && (rest || !is_space_at(at - template_char_before(begin, at)))) {
            at -= template_char_before(begin, at);
        }
        template_list_add(run, out, template_string(at, (size_t)(end - at)));
        end = at;
    }
}

static void split_at(struct text_template_run *run, struct template_value text,
                     struct template_value separator, int64_t most, struct template_list *out)
{
    const char *at = text.as.text;
    const char *end = at + text.bytes;
    while (run->code == 0) {
        const char *found = most < 0 || (int64_t)out->count < most
                                ? find_next(run, text, separator, (size_t)(at - text.as.text))
                                : NULL;
        if (found == NULL) {
            break;
        }
        template_list_add(run, out, template_string(at, (size_t)(found - at)));
        at = found + separator.bytes;
    }
    template_list_add(run, out, template_string(at, (size_t)(end - at)));
}

static void split_at_back(struct text_template_run *run, struct template_value text,
                          struct template_value separator, int64_t most, struct template_list *out)
{
    size_t end = text.bytes;
    while (run->code == 0) {
        const struct template_value front = template_string(text.as.text, end);
        const char *found = (int64_t)out->count < most
                                ? template_search(run, front, separator, true)
                                : NULL;
        if (found == NULL) {
            break;
        }
        const size_t at = (size_t)(found - text.as.text) + separator.bytes;
        template_list_add(run, out, template_string(text.as.text + at, end - at));
        end = at - separator.bytes;
    }
    template_list_add(run, out, template_string(text.as.text, end));
}

static void turn(struct template_list *list)
{
    for (size_t i = 0; i < list->count / 2; i++) {
        const struct template_value kept = list->items[i];
        list->items[i] = list->items[list->count - 1 - i];
        list->items[list->count - 1 - i] = kept;
    }
}

static struct template_value split(struct text_template_run *run, struct template_value self,
                                   const struct template_arguments *arguments, bool back)
{
    struct template_value list = template_list(run, TEMPLATE_LIST);
    const struct template_value separator = template_argument(arguments, 0, "sep", template_none());
    const int64_t most = template_argument_integer(run, arguments, 1, "maxsplit", -1);
    const bool spaces = separator.kind == TEMPLATE_NONE;
    if (run->code == 0 && !spaces && (separator.kind != TEMPLATE_STRING || separator.bytes == 0)) {
        return template_fail(run, -EINVAL, "the separator of split is no str, or empty");
    }
    template_step_characters(run, self.bytes);
    if (run->code != 0) {
        return list;
    }
    if (back && most >= 0) { /* without a limit both ends give the same */
        if (spaces) {
            split_space_back(run, self, most, list.as.list);
        } else {
            split_at_back(run, self, separator, most, list.as.list);
        }
        turn(list.as.list);
    } else if (spaces) {
        split_space(run, self, most, list.as.list);
    } else {
        split_at(run, self, separator, most, list.as.list);
    }
    return list;
}

static struct template_value call_split(struct text_template_run *run, struct template_value self,
                                        const struct template_arguments *arguments)
{
    return split(run, self, arguments, false);
}

static struct template_value call_rsplit(struct text_template_run *run, struct template_value self,
                                         const struct template_arguments *arguments)
{
    return split(run, self, arguments, true);
}

/* The length of the line end at `at`: \n, \r\n and what else Python takes for one. */
static size_t line_end(const char *at, const char *end)
{
    const uint32_t point = template_char_point(at);
    if (point == '\r' && end - at > 1 && at[1] == '\n') {
        return 2;
    }
    const bool ends_line = (point >= 10 && point <= 13) || (point >= 0x1C && point <= 0x1E) ||
                           point == 0x85 || point == 0x2028 || point == 0x2029;
    return ends_line ? template_char_bytes(at) : 0;
}

static struct template_value call_splitlines(struct text_template_run *run,
                                             struct template_value self,
                                             const struct template_arguments *arguments)
{
    const bool keeps = template_argument_truth(arguments, 0, "keepends", false);
    template_step_characters(run, self.bytes);
    struct template_value list = template_list(run, TEMPLATE_LIST);
    const char *end = self.as.text + self.bytes;
    const char *begin = self.as.text;
    for (const char *at = begin; at < end && run->code == 0;) {
        const size_t length = line_end(at, end);
        if (length > 0) {
            template_list_add(run, list.as.list,
                              template_string(begin, (size_t)(at - begin) + (keeps ? length : 0)));
            begin = at + length;
        }
        at += length > 0 ? length : template_char_bytes(at);
    }
    if (begin < end && run->code == 0) {
        template_list_add(run, list.as.list, template_string(begin, (size_t)(end - begin)));
    }
    return list;
}

static struct template_value partition(struct text_template_run *run, struct template_value self,
                                       const struct template_arguments *arguments, bool last)
{
    const struct template_value separator = template_argument_text(run, arguments, 0, "sep", NULL);
    struct template_value made = template_list(run, TEMPLATE_TUPLE);
    if (run->code != 0 || separator.bytes == 0) {
        return template_fail(run, -EINVAL, "empty separator");
    }
    const struct template_value nothing = template_string("", 0);
    const char *found = template_search(run, self, separator, last);
    const size_t at = found != NULL ? (size_t)(found - self.as.text) : 0;
    const struct template_value front = template_string(self.as.text, at);
    const struct template_value behind = template_string(self.as.text + at + separator.bytes,
                                                         self.bytes - at - separator.bytes);
    const struct template_value missing[2] = {last ? nothing : self, last ? self : nothing};
    template_list_add(run, made.as.list, found != NULL ? front : missing[0]);
    template_list_add(run, made.as.list, found != NULL ? separator : nothing);
    template_list_add(run, made.as.list, found != NULL ? behind : missing[1]);
    return made;
}

static struct template_value call_partition(struct text_template_run *run,
                                            struct template_value self,
                                            const struct template_arguments *arguments)
{
    return partition(run, self, arguments, false);
}

static struct template_value call_rpartition(struct text_template_run *run,
                                             struct template_value self,
                                             const struct template_arguments *arguments)
{
    return partition(run, self, arguments, true);
}

static struct template_value call_join(struct text_template_run *run, struct template_value self,
                                       const struct template_arguments *arguments)
{
    const struct template_list *items = template_iterate(
        run, template_argument(arguments, 0, "iterable", template_undefined("")));
    const size_t mark = template_capture_begin(run);
    for (size_t i = 0; items != NULL && i < items->count && run->code == 0; i++) {
        if (items->items[i].kind != TEMPLATE_STRING) {
            template_fail(run, -EINVAL, "sequence item %zu: expected str instance, %s found", i,
                          template_type_name(items->items[i]));
        }
        template_write(run, self.as.text, i > 0 ? self.bytes : 0);
        template_write_value(run, items->items[i]);
        template_step(run, 1);
    }
    return template_capture_end(run, mark);
}

static bool all_are(struct template_value text, enum template_char_class first,
                    enum template_char_class second)
{
    for (size_t at = 0; at < text.bytes; at += template_char_bytes(text.as.text + at)) {
        const uint32_t point = template_char_point(text.as.text + at);
        if (!template_char_is(point, first) && !template_char_is(point, second)) {
            return false;
        }
    }
    return text.bytes > 0;
}

/* There are letters of this case and none of the other. */
static bool is_case(struct template_value text, bool upper)
{
    bool any = false;
    for (size_t at = 0; at < text.bytes; at += template_char_bytes(text.as.text + at)) {
        const uint32_t point = template_char_point(text.as.text + at);
        if (template_char_is(point, upper ? TEMPLATE_CHAR_LOWER : TEMPLATE_CHAR_UPPER)) {
            return false;
        }
        any |= template_char_is(point, upper ? TEMPLATE_CHAR_UPPER : TEMPLATE_CHAR_LOWER);
    }
    return any;
}

static bool is_ascii(struct template_value text)
{
    return template_char_count(text.as.text, text.bytes) == text.bytes;
}

#define IS_FUNCTION(name, condition)                                                               \
    static struct template_value name(struct text_template_run *run, struct template_value self,   \
                                      const struct template_arguments *arguments)                  \
    {                                                                                              \
        (void)arguments;                                                                           \
        const bool may = template_step_characters(run, self.bytes);                                \
        return template_bool(may && (condition));                                                  \
    }
IS_FUNCTION(call_isspace, all_are(self, TEMPLATE_CHAR_SPACE, TEMPLATE_CHAR_SPACE))
IS_FUNCTION(call_isalpha, all_are(self, TEMPLATE_CHAR_ALPHA, TEMPLATE_CHAR_ALPHA))
IS_FUNCTION(call_isdigit, all_are(self, TEMPLATE_CHAR_DECIMAL, TEMPLATE_CHAR_DECIMAL))
IS_FUNCTION(call_isnumeric, all_are(self, TEMPLATE_CHAR_NUMERIC, TEMPLATE_CHAR_NUMERIC))
IS_FUNCTION(call_isalnum, all_are(self, TEMPLATE_CHAR_ALPHA, TEMPLATE_CHAR_NUMERIC))
IS_FUNCTION(call_isupper, is_case(self, true))
IS_FUNCTION(call_islower, is_case(self, false))
IS_FUNCTION(call_isascii, is_ascii(self))

const struct template_function template_methods_search[] = {
    {"find", call_find, "sub start end"},
    {"rfind", call_rfind, "sub start end"},
    {"index", call_index, "sub start end"},
    {"rindex", call_rindex, "sub start end"},
    {"count", call_count, "sub start end"},
    {"startswith", call_startswith, "prefix start end"},
    {"endswith", call_endswith, "prefix start end"},
    {"split", call_split, "sep maxsplit"},
    {"rsplit", call_rsplit, "sep maxsplit"},
    {"splitlines", call_splitlines, "keepends"},
    {"partition", call_partition, "sep"},
    {"rpartition", call_rpartition, "sep"},
    {"join", call_join, "iterable"},
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
