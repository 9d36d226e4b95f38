/* global.c: global functions and their objects, and loops. */
#include "tools/text/jinja/global.h"

#include <errno.h>
#include <string.h>
#include <time.h>

enum { RANGE_MAX = 100000 }; /* as in the sandbox of Jinja */

static struct jinja_value call_range(struct jinja_run *run, struct jinja_value self,
                                     const struct jinja_arguments *arguments)
{
    (void)self;
    int64_t bounds[3] = {0, 0, 1};
    if (arguments->count == 0) {
        return jinja_fail(run, -EINVAL, "range expects at least 1 argument");
    }
    for (size_t i = 0; i < arguments->count; i++) {
        bounds[arguments->count == 1 ? 1 : i] = jinja_argument_integer(run, arguments, i, "range",
                                                                       0);
    }
    if (bounds[2] == 0) {
        return jinja_fail(run, -EINVAL, "the step of a range is 0");
    }
    struct jinja_value list = jinja_list(run, JINJA_RANGE);
    for (int64_t at = bounds[0];
         run->rc == 0 && (bounds[2] > 0 ? at < bounds[1] : at > bounds[1]);) {
        if (list.as.list->count == RANGE_MAX) {
            return jinja_fail(run, -E2BIG, "a range has more than %d numbers", RANGE_MAX);
        }
        jinja_list_add(run, list.as.list, jinja_integer(at));
        if (__builtin_add_overflow(at, bounds[2], &at)) {
            break;
        }
    }
    return list;
}

static void add_named(struct jinja_run *run, struct jinja_dict *dict,
                      const struct jinja_arguments *arguments)
{
    for (size_t i = 0; arguments->named != NULL && i < arguments->named->count; i++) {
        jinja_dict_set(run, dict, arguments->named->pairs[i].key, arguments->named->pairs[i].value);
    }
}

/* Evaluates dict(mapping or pairs, name=value ...). */
static struct jinja_value call_dict(struct jinja_run *run, struct jinja_value self,
                                    const struct jinja_arguments *arguments)
{
    (void)self;
    struct jinja_value made = jinja_dict(run);
    if (arguments->count > 1) {
        return jinja_fail(run, -EINVAL, "dict takes at most one argument without a name");
    }
    if (run->rc == 0 && arguments->count > 0) {
        const struct jinja_value from = arguments->items[0];
        const bool copies = from.kind == JINJA_DICT;
        if (from.kind == JINJA_UNDEFINED) {
            return jinja_fail(run, -EINVAL, "'%s' is undefined", from.as.text);
        }
        for (size_t i = 0; copies && i < from.as.dict->count; i++) {
            jinja_dict_set(run, made.as.dict, from.as.dict->pairs[i].key,
                           from.as.dict->pairs[i].value);
        }
        const struct jinja_list *pairs = copies ? NULL : jinja_iterate(run, from);
        for (size_t i = 0; pairs != NULL && i < pairs->count && run->rc == 0; i++) {
            const struct jinja_list *pair = jinja_iterate(run, pairs->items[i]);
            if (pair == NULL || pair->count != 2) {
                return jinja_fail(run, -EINVAL, "dict needs pairs of a key and a value");
            }
            jinja_dict_set(run, made.as.dict, pair->items[0], pair->items[1]);
        }
    }
    if (run->rc == 0) {
        add_named(run, made.as.dict, arguments);
    }
    return made;
}

static struct jinja_value call_namespace(struct jinja_run *run, struct jinja_value self,
                                         const struct jinja_arguments *arguments)
{
    struct jinja_value made = call_dict(run, self, arguments);
    if (run->rc != 0) {
        return made;
    }
    for (size_t i = 0; i < made.as.dict->count; i++) {
        const struct jinja_value key = made.as.dict->pairs[i].key;
        if (key.kind == JINJA_STRING && key.bytes > 0 && key.as.text[0] == '_') {
            return jinja_fail(run, -EINVAL,
                              "a namespace cannot have an attribute that begins with _");
        }
    }
    made.kind = JINJA_NAMESPACE;
    return made;
}

static struct jinja_value call_cycler(struct jinja_run *run, struct jinja_value self,
                                      const struct jinja_arguments *arguments)
{
    (void)self;
    struct jinja_cycler *cycler = jinja_alloc(run, sizeof *cycler);
    struct jinja_value items = jinja_list(run, JINJA_LIST);
    if (run->rc != 0 || arguments->count == 0) {
        return jinja_fail(run, -EINVAL, "cycler needs at least one item");
    }
    for (size_t i = 0; i < arguments->count; i++) {
        jinja_list_add(run, items.as.list, arguments->items[i]);
    }
    cycler->items = items.as.list;
    return (struct jinja_value){.kind = JINJA_CYCLER, .as.cycler = cycler};
}

static struct jinja_value call_joiner(struct jinja_run *run, struct jinja_value self,
                                      const struct jinja_arguments *arguments)
{
    (void)self;
    struct jinja_cycler *joiner = jinja_alloc(run, sizeof *joiner);
    if (joiner == NULL) {
        return jinja_undefined("");
    }
    joiner->separator = jinja_argument(arguments, 0, "sep", jinja_string(", ", 2));
    return (struct jinja_value){.kind = JINJA_JOINER, .as.cycler = joiner};
}

struct jinja_value jinja_joiner_call(struct jinja_value joiner)
{
    return joiner.as.cycler->at++ == 0 ? jinja_string("", 0) : joiner.as.cycler->separator;
}

static struct jinja_value call_raise(struct jinja_run *run, struct jinja_value self,
                                     const struct jinja_arguments *arguments)
{
    (void)self;
    const struct jinja_value message = jinja_to_string(
        run, jinja_argument(arguments, 0, "message", jinja_none()));
    return jinja_fail(run, -EINVAL, "the template raised an exception: %.*s",
                      (int)(message.bytes < 300 ? message.bytes : 300), message.as.text);
}

/* Appends `|`. As in transformers, %Z and %z become empty; %f, which C lacks, becomes zeros.
 * Returns false if there is no room. */
static bool write_format(const struct jinja_value *format, char *out, size_t room)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < format->bytes; i++) {
        const char *part = format->as.text + i;
        size_t length = 1;
        if (*part == '%' && i + 1 < format->bytes) {
            const bool zone = part[1] == 'Z' || part[1] == 'z';
            part = zone ? "" : part[1] == 'f' ? "000000" : part;
            length = zone ? 0 : *part == '%' ? 2 : 6;
            i++;
        }
        if (bytes + length + 2 > room) {
            return false;
        }
        memcpy(out + bytes, part, length);
        bytes += length;
    }
    memcpy(out + bytes, "|", 2); /* distinguishes empty output from lack of room */
    return true;
}

static struct jinja_value call_strftime(struct jinja_run *run, struct jinja_value self,
                                        const struct jinja_arguments *arguments)
{
    (void)self;
    char format[512];
    char text[512];
    struct tm parts;
    const time_t now = (time_t)run->now;
    const struct jinja_value asked = jinja_argument_text(run, arguments, 0, "format", NULL);
    if (run->rc != 0 || asked.bytes == 0) {
        return jinja_string("", 0);
    }
    if (gmtime_r(&now, &parts) == NULL) {
        return jinja_fail(run, -EINVAL, "the time cannot be written in that format");
    }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    const size_t bytes = write_format(&asked, format, sizeof format)
                             ? strftime(text, sizeof text, format, &parts)
                             : 0;
#pragma GCC diagnostic pop
    if (bytes == 0) {
        return jinja_fail(run, -EINVAL, "the time cannot be written in that format");
    }
    return jinja_string_copy(run, text, bytes - 1);
}

const struct jinja_function *jinja_global_find(const char *name, size_t bytes)
{
    static const struct jinja_function rows[] = {
        {"range", call_range, "-start -stop? -step?"},
        {"dict", call_dict, "**"},
        {"namespace", call_namespace, "**"},
        {"cycler", call_cycler, "*"},
        {"joiner", call_joiner, "sep?"},
        {"raise_exception", call_raise, "message"},
        {"strftime_now", call_strftime, "format"},
        {NULL, NULL, NULL},
    };
    return jinja_function_find(rows, name, bytes);
}

static struct jinja_value call_cycle(struct jinja_run *run, struct jinja_value self,
                                     const struct jinja_arguments *arguments)
{
    if (arguments->count == 0) {
        return jinja_fail(run, -EINVAL, "loop.cycle needs at least one item");
    }
    return arguments->items[self.as.loop->index % arguments->count];
}

static struct jinja_value call_changed(struct jinja_run *run, struct jinja_value self,
                                       const struct jinja_arguments *arguments)
{
    struct jinja_loop *loop = self.as.loop;
    struct jinja_value now = jinja_list(run, JINJA_TUPLE);
    for (size_t i = 0; run->rc == 0 && i < arguments->count; i++) {
        jinja_list_add(run, now.as.list, arguments->items[i]);
    }
    const bool changed = !loop->changes || !jinja_equal(run, loop->changed, now);
    loop->changed = now;
    loop->changes = true;
    return jinja_bool(changed);
}

struct jinja_value jinja_loop_attribute(struct jinja_run *run, struct jinja_value value,
                                        const char *name, size_t bytes)
{
    static const struct jinja_function functions[] = {
        {"cycle", call_cycle, "*"}, {"changed", call_changed, "*"}, {NULL, NULL, NULL}};
    struct jinja_loop *loop = value.as.loop;
    const struct jinja_function *function = jinja_function_find(functions, name, bytes);
    if (function != NULL) {
        return jinja_bind(run, value, function);
    }
    const struct jinja_value word = jinja_string(name, bytes);
    if (jinja_is_text(word, "last")) {
        return jinja_bool(!run->links->reach(run, loop, loop->index + 1));
    }
    if (jinja_is_text(word, "nextitem")) {
        return run->links->reach(run, loop, loop->index + 1)
                   ? loop->items->items[loop->index + 1]
                   : jinja_undefined("there is no next item");
    }
    if (jinja_is_text(word, "previtem")) {
        return loop->index > 0 ? loop->items->items[loop->index - 1]
                               : jinja_undefined("there is no previous item");
    }
    if (jinja_is_text(word, "length") || jinja_is_text(word, "revindex") ||
        jinja_is_text(word, "revindex0")) {
        run->links->reach(run, loop, SIZE_MAX);
    }
    const int64_t index = (int64_t)loop->index;
    const int64_t count = (int64_t)loop->items->count;
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"index", index + 1},
                   {"index0", index},
                   {"revindex", count - index},
                   {"revindex0", count - index - 1},
                   {"length", count},
                   {"depth", (int64_t)loop->depth + 1},
                   {"depth0", (int64_t)loop->depth}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (jinja_is_text(word, numbers[i].name)) {
            return jinja_integer(numbers[i].value);
        }
    }
    if (jinja_is_text(word, "first")) {
        return jinja_bool(index == 0);
    }
    return jinja_undefined("an attribute of loop");
}

static struct jinja_value call_next(struct jinja_run *run, struct jinja_value self,
                                    const struct jinja_arguments *arguments)
{
    (void)run;
    (void)arguments;
    struct jinja_cycler *cycler = self.as.cycler;
    const struct jinja_value item = cycler->items->items[cycler->at];
    cycler->at = (cycler->at + 1) % cycler->items->count;
    return item;
}

static struct jinja_value call_reset(struct jinja_run *run, struct jinja_value self,
                                     const struct jinja_arguments *arguments)
{
    (void)run;
    (void)arguments;
    self.as.cycler->at = 0;
    return jinja_none();
}

struct jinja_value jinja_cycler_attribute(struct jinja_run *run, struct jinja_value cycler,
                                          const char *name, size_t bytes)
{
    static const struct jinja_function functions[] = {
        {"next", call_next, ""}, {"reset", call_reset, ""}, {NULL, NULL, NULL}};
    const struct jinja_function *function = jinja_function_find(functions, name, bytes);
    if (function != NULL) {
        return jinja_bind(run, cycler, function);
    }
    return jinja_is_text(jinja_string(name, bytes), "current")
               ? cycler.as.cycler->items->items[cycler.as.cycler->at]
               : jinja_undefined("an attribute of cycler");
}
