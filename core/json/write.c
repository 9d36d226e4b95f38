/* write.c: all output goes through put(). */
#include "core/json/write.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "core/base/utf8.h"
#include "core/json/json.h"

void core_json_write_init_text(struct core_json_write *write)
{
    *write = (struct core_json_write){.first = true};
}

void core_json_write_init_file(struct core_json_write *write, FILE *file)
{
    *write = (struct core_json_write){.first = true, .file = file};
}

void core_json_write_fini(struct core_json_write *write)
{
    core_charge_free(write->text);
    write->text = NULL;
}

static void put_text(struct core_json_write *write, const char *text, size_t bytes)
{
    if (write->bytes_max > 0 && bytes > write->bytes_max - write->bytes) {
        write->rc = core_err_set(-EFBIG, "JSON text grows beyond %zu bytes", write->bytes_max);
        bytes = write->bytes_max - write->bytes;
    }
    if (write->bytes + bytes + 1 > write->room) {
        size_t room = (write->bytes + bytes + 1) * 2;
        char *larger = core_charge_grow(write->text, room);
        if (larger == NULL) {
            if (write->rc == 0) {
                write->rc = core_err_set(-ENOMEM, "no memory for %zu bytes of JSON text", room);
            }
            return;
        }
        write->text = larger;
        write->room = room;
    }
    memcpy(write->text + write->bytes, text, bytes);
    write->bytes += bytes;
    write->text[write->bytes] = '\0';
}

static void put(struct core_json_write *write, const char *text, size_t bytes)
{
    if (write->rc != 0) {
        return;
    }
    if (write->file == NULL) {
        put_text(write, text, bytes);
    } else if (fwrite(text, 1, bytes, write->file) != bytes) {
        int rc = errno != 0 ? -errno : -EIO;
        write->rc = core_err_set(rc, "JSON cannot be written: %s", strerror(-rc));
    }
}

static void put_word(struct core_json_write *write, const char *word)
{
    put(write, word, strlen(word));
}

static bool in_object(const struct core_json_write *write)
{
    unsigned level = write->depth - 1;
    return write->depth > 0 && (write->objects[level / 64] >> (level % 64) & 1) != 0;
}

static void put_line(struct core_json_write *write)
{
    if (write->indent == 0) {
        return;
    }
    put(write, "\n", 1);
    for (unsigned i = 0; i < write->depth * write->indent; i++) {
        put(write, " ", 1);
    }
}

/* Runs of plain bytes are written at once. */
static void put_string(struct core_json_write *write, const char *text, size_t bytes)
{
    static const char names[] = "\b\f\n\r\t\"\\";
    static const char *const escapes[] = {"\\b", "\\f", "\\n", "\\r", "\\t", "\\\"", "\\\\"};
    size_t begin = 0;
    put(write, "\"", 1);
    for (size_t at = 0; at < bytes;) {
        unsigned char c = (unsigned char)text[at];
        size_t length = core_utf8_sequence(text + at, bytes - at);
        if (c >= 0x20 && c != '"' && c != '\\' && c != 0x7F && length > 0) {
            at += length;
            continue;
        }
        put(write, text + begin, at - begin);
        const char *found = c != 0 ? strchr(names, c) : NULL;
        if (found != NULL) {
            put_word(write, escapes[found - names]);
        } else if (length == 0) {
            put_word(write, "\xEF\xBF\xBD");
        } else {
            char code[8];
            snprintf(code, sizeof code, "\\u%04x", c);
            put_word(write, code);
        }
        begin = ++at;
    }
    put(write, text + begin, bytes - begin);
    put(write, "\"", 1);
}

/* Writes comma, new line and key before a value. */
static void lead(struct core_json_write *write, const char *key)
{
    assert((key != NULL) == in_object(write));
    assert(write->depth > 0 || write->first);
    if (!write->first) {
        put(write, ",", 1);
    }
    if (write->depth > 0) {
        put_line(write);
    }
    write->first = false;
    if (key != NULL) {
        put_string(write, key, strlen(key));
        put_word(write, write->indent > 0 ? ": " : ":");
    }
}

static void begin(struct core_json_write *write, const char *key, bool object)
{
    lead(write, key);
    assert(write->depth < CORE_JSON_WRITE_DEPTH_MAX);
    put_word(write, object ? "{" : "[");
    unsigned level = write->depth++;
    uint64_t bit = UINT64_C(1) << (level % 64);
    write->objects[level / 64] &= ~bit;
    write->objects[level / 64] |= object ? bit : 0;
    write->first = true;
}

static void end(struct core_json_write *write, bool object)
{
    assert(write->depth > 0 && in_object(write) == object);
    bool empty = write->first;
    write->depth--;
    if (!empty) {
        put_line(write);
    }
    put_word(write, object ? "}" : "]");
    write->first = false;
}

void core_json_write_object_begin(struct core_json_write *write, const char *key)
{
    begin(write, key, true);
}

void core_json_write_object_end(struct core_json_write *write)
{
    end(write, true);
}

void core_json_write_array_begin(struct core_json_write *write, const char *key)
{
    begin(write, key, false);
}

void core_json_write_array_end(struct core_json_write *write)
{
    end(write, false);
}

void core_json_write_string_bytes(struct core_json_write *write, const char *key, const char *text,
                                  size_t bytes)
{
    lead(write, key);
    put_string(write, text, bytes);
}

void core_json_write_string(struct core_json_write *write, const char *key, const char *text)
{
    if (text == NULL) {
        core_json_write_null(write, key);
        return;
    }
    core_json_write_string_bytes(write, key, text, strlen(text));
}

void core_json_write_integer(struct core_json_write *write, const char *key, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    lead(write, key);
    put_word(write, text);
}

void core_json_write_unsigned(struct core_json_write *write, const char *key, uint64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64, value);
    lead(write, key);
    put_word(write, text);
}

/* Replaces the locale's decimal point, maybe of several bytes. */
static void plain_point(char *text)
{
    char *to = text;
    bool pointed = false;
    for (const char *from = text; *from != '\0'; from++) {
        if (strchr("0123456789+-e", *from) != NULL) {
            *to++ = *from;
        } else if (!pointed) {
            *to++ = '.';
            pointed = true;
        }
    }
    *to = '\0';
}

const char *core_json_real_print(double value, int digits, char text[32])
{
    snprintf(text, 32, "%.*g", digits, value);
    if (value - value == 0) {
        plain_point(text);
    }
    return text;
}

void core_json_write_real(struct core_json_write *write, const char *key, double value)
{
    lead(write, key);
    if (value - value != 0) {
        if (!write->nan_is_null && write->rc == 0) {
            write->rc = core_err_set(-EDOM, "JSON cannot represent %s%s%s",
                                     value != value ? "NaN" : "infinity", key != NULL ? " of " : "",
                                     key != NULL ? key : "");
        }
        put_word(write, "null");
        return;
    }
    char text[48];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) {
            break;
        }
    }
    plain_point(text);
    put_word(write, text);
    if (strpbrk(text, ".e") == NULL) {
        put_word(write, ".0");
    }
}

void core_json_write_bool(struct core_json_write *write, const char *key, bool value)
{
    lead(write, key);
    put_word(write, value ? "true" : "false");
}

void core_json_write_null(struct core_json_write *write, const char *key)
{
    lead(write, key);
    put_word(write, "null");
}

void core_json_write_verbatim(struct core_json_write *write, const char *key, const char *json)
{
    lead(write, key);
    put_word(write, json);
}

static void write_members(struct core_json_write *write, const struct core_json_value *value)
{
    struct core_json_member member;
    for (bool any = core_json_first(value, &member); any && write->rc == 0;
         any = core_json_next(&member)) {
        core_json_write_value(write, member.key, member.value);
    }
}

void core_json_write_value(struct core_json_write *write, const char *key,
                           const struct core_json_value *value)
{
    size_t bytes = 0;
    switch (core_json_kind(value)) {
    case CORE_JSON_NULL: core_json_write_null(write, key); return;
    case CORE_JSON_BOOL: core_json_write_bool(write, key, core_json_bool(value)); return;
    case CORE_JSON_INTEGER: core_json_write_integer(write, key, core_json_integer(value)); return;
    case CORE_JSON_REAL: core_json_write_real(write, key, core_json_real(value)); return;
    case CORE_JSON_STRING: {
        const char *text = core_json_string(value, &bytes);
        core_json_write_string_bytes(write, key, text, bytes);
        return;
    }
    case CORE_JSON_ARRAY:
        begin(write, key, false);
        for (size_t i = 0; i < core_json_count(value) && write->rc == 0; i++) {
            core_json_write_value(write, NULL, core_json_at(value, i));
        }
        end(write, false);
        return;
    case CORE_JSON_OBJECT:
        begin(write, key, true);
        write_members(write, value);
        end(write, true);
        return;
    }
}

int core_json_write_end(struct core_json_write *write)
{
    assert(write->depth == 0 && !write->first);
    put(write, "\n", 1);
    write->first = true;
    if (write->rc == 0 && write->file != NULL && fflush(write->file) != 0) {
        int rc = errno != 0 ? -errno : -EIO;
        write->rc = core_err_set(rc, "JSON cannot be written: %s", strerror(-rc));
    }
    return write->rc;
}
