/* json.c: tojson, as Python's json.dumps writes it. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/text/jinja/chars.h"
#include "tools/text/jinja/function.h"

struct writer {
    struct jinja_run *run;
    struct jinja_value comma;
    struct jinja_value colon;
    struct jinja_value indent; /* one level; UNDEFINED: all on one line */
    size_t depth;
    bool ascii;
    bool sorted;
};

static void put(struct writer *writer, const char *text)
{
    jinja_write(writer->run, text, strlen(text));
}

static void write_unit(struct writer *writer, unsigned unit)
{
    char text[16];
    snprintf(text, sizeof text, "\\u%04x", unit);
    put(writer, text);
}

static void write_character(struct writer *writer, const char *at, size_t length)
{
    static const char letters[] = "\"\\\b\f\n\r\t";
    static const char *const escapes[] = {"\\\"", "\\\\", "\\b", "\\f", "\\n", "\\r", "\\t"};
    const uint32_t point = jinja_char_point(at);
    const char *found = point != 0 && point < 0x80 ? strchr(letters, (int)point) : NULL;
    if (found != NULL) {
        put(writer, escapes[found - letters]);
    } else if (point < 0x20 || (writer->ascii && point >= 0x7F && point < 0x10000)) {
        write_unit(writer, point);
    } else if (writer->ascii && point >= 0x10000) {
        write_unit(writer, 0xD800 + ((point - 0x10000) >> 10));
        write_unit(writer, 0xDC00 + ((point - 0x10000) & 0x3FF));
    } else {
        jinja_write(writer->run, at, length);
    }
}

static void write_string(struct writer *writer, struct jinja_value value)
{
    put(writer, "\"");
    jinja_step_characters(writer->run, value.bytes);
    for (size_t at = 0; at < value.bytes && writer->run->rc == 0;) {
        const size_t length = jinja_char_bytes(value.as.text + at);
        write_character(writer, value.as.text + at, length);
        at += length;
    }
    put(writer, "\"");
}

static void break_line(struct writer *writer)
{
    if (writer->indent.kind == JINJA_STRING) {
        put(writer, "\n");
        for (size_t i = 0; i < writer->depth; i++) {
            jinja_write_value(writer->run, writer->indent);
        }
    }
}

static void write_json(struct writer *writer, struct jinja_value value);

static void write_items(struct writer *writer, const struct jinja_list *list)
{
    put(writer, "[");
    writer->depth++;
    for (size_t i = 0; i < list->count && writer->run->rc == 0; i++) {
        if (i > 0) {
            jinja_write_value(writer->run, writer->comma);
        }
        break_line(writer);
        write_json(writer, list->items[i]);
    }
    writer->depth--;
    if (list->count > 0) {
        break_line(writer);
    }
    put(writer, "]");
}

static void write_key(struct writer *writer, struct jinja_value key)
{
    char text[40];
    if (key.kind == JINJA_STRING) {
        write_string(writer, key);
        return;
    }
    if (!jinja_is_number(key) && key.kind != JINJA_NONE) {
        jinja_fail(writer->run, -EINVAL, "a key of JSON cannot be a %s", jinja_type_name(key));
        return;
    }
    put(writer, "\"");
    if (key.kind == JINJA_REAL) {
        jinja_write(writer->run, text, jinja_real_text(key.as.real, text));
    } else {
        write_json(writer, key);
    }
    put(writer, "\"");
}

static void write_pairs(struct writer *writer, const struct jinja_dict *dict)
{
    const struct jinja_pair *pairs = dict->pairs;
    if (writer->sorted) {
        pairs = jinja_sorted(writer->run, dict->pairs, dict->count, false);
    }
    put(writer, "{");
    writer->depth++;
    for (size_t i = 0; i < dict->count && writer->run->rc == 0; i++) {
        if (i > 0) {
            jinja_write_value(writer->run, writer->comma);
        }
        break_line(writer);
        write_key(writer, pairs[i].key);
        jinja_write_value(writer->run, writer->colon);
        write_json(writer, pairs[i].value);
    }
    writer->depth--;
    if (dict->count > 0) {
        break_line(writer);
    }
    put(writer, "}");
}

static void write_real(struct writer *writer, double real)
{
    char text[40];
    if (isnan(real) || isinf(real)) {
        put(writer, isnan(real) ? "NaN" : real > 0 ? "Infinity" : "-Infinity");
    } else {
        jinja_write(writer->run, text, jinja_real_text(real, text));
    }
}

static void write_json(struct writer *writer, struct jinja_value value)
{
    struct jinja_run *run = writer->run;
    if (!jinja_step(run, 1) || !jinja_deeper(run)) {
        return;
    }
    switch ((int)value.kind) {
    case JINJA_NONE: put(writer, "null"); break;
    case JINJA_BOOL: put(writer, value.as.truth ? "true" : "false"); break;
    case JINJA_INTEGER: jinja_write_repr(run, value); break;
    case JINJA_REAL: write_real(writer, value.as.real); break;
    case JINJA_STRING: write_string(writer, value); break;
    case JINJA_LIST:
    case JINJA_TUPLE: write_items(writer, value.as.list); break;
    case JINJA_DICT: write_pairs(writer, value.as.dict); break;
    default:
        jinja_fail(run, -EINVAL, "Object of type %s is not JSON serializable",
                   jinja_type_name(value));
        break;
    }
    run->depth--;
}

/* indent=4 is four spaces, indent="\t" itself. */
static struct jinja_value read_indent(struct jinja_run *run,
                                      const struct jinja_arguments *arguments)
{
    char *out;
    const struct jinja_value indent = jinja_argument(arguments, 1, "indent", jinja_none());
    if (indent.kind == JINJA_STRING) {
        return indent;
    }
    if (indent.kind != JINJA_INTEGER) {
        return jinja_undefined("");
    }
    const size_t spaces = indent.as.integer > 0 && indent.as.integer < 1000
                              ? (size_t)indent.as.integer
                              : 0;
    const struct jinja_value made = jinja_string_room(run, spaces, &out);
    if (out != NULL) {
        memset(out, ' ', spaces);
    }
    return made;
}

struct jinja_value jinja_to_json(struct jinja_run *run, struct jinja_value value,
                                 const struct jinja_arguments *arguments)
{
    struct writer writer = {
        .run = run,
        .comma = jinja_string(", ", 2),
        .colon = jinja_string(": ", 2),
        .indent = read_indent(run, arguments),
        .ascii = jinja_argument_truth(arguments, 0, "ensure_ascii", false),
        .sorted = jinja_argument_truth(arguments, 3, "sort_keys", false),
    };
    const struct jinja_value separators = jinja_argument(arguments, 2, "separators", jinja_none());
    if (writer.indent.kind == JINJA_STRING) {
        writer.comma.bytes = 1; /* the line ends behind it */
    }
    if (separators.kind != JINJA_NONE) {
        const struct jinja_list *pair = jinja_iterate(run, separators);
        if (pair == NULL || pair->count != 2) {
            return jinja_fail(run, -EINVAL, "separators are two strings");
        }
        writer.comma = jinja_to_string(run, pair->items[0]);
        writer.colon = jinja_to_string(run, pair->items[1]);
    }
    const size_t mark = jinja_capture_begin(run);
    write_json(&writer, value);
    return jinja_capture_end(run, mark);
}
