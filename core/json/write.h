/* write.h: writes JSON to a growing text or a FILE, with commas, escapes, indentation and valid
 * UTF-8. Wrong nesting is asserted. core_json_write_end() returns the first failure; earlier calls
 * need no check. One thread. */
#ifndef CORE_JSON_WRITE_H
#define CORE_JSON_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct core_json_value;

enum { CORE_JSON_WRITE_DEPTH_MAX = 512 };

struct core_json_write {
    /* May be set after init. */
    bool nan_is_null; /* infinities and NaN become null, else -EDOM */
    unsigned indent;  /* spaces per level; 0: one line */
    size_t bytes_max; /* limit of a text (-EFBIG); 0: none */
    /* Read after end. */
    char *text; /* owned; NULL: a FILE, or nothing written */
    size_t bytes;
    /* Private to the writer. */
    FILE *file; /* borrowed; NULL: to `text` */
    size_t room;
    unsigned depth;
    bool first; /* this object or array is still empty */
    int rc;     /* the first error */
    uint64_t objects[CORE_JSON_WRITE_DEPTH_MAX / 64];
};

void core_json_write_init_text(struct core_json_write *write);
void core_json_write_init_file(struct core_json_write *write, FILE *file);
void core_json_write_fini(struct core_json_write *write);

/* `key` is NULL outside an object. */
void core_json_write_object_begin(struct core_json_write *write, const char *key);
void core_json_write_object_end(struct core_json_write *write);
void core_json_write_array_begin(struct core_json_write *write, const char *key);
void core_json_write_array_end(struct core_json_write *write);

/* NULL writes null. Bytes that are not UTF-8 become U+FFFD. */
void core_json_write_string(struct core_json_write *write, const char *key, const char *text);
void core_json_write_string_bytes(struct core_json_write *write, const char *key, const char *text,
                                  size_t bytes);
void core_json_write_integer(struct core_json_write *write, const char *key, int64_t value);
void core_json_write_unsigned(struct core_json_write *write, const char *key, uint64_t value);
/* Formats as "%.*g" with a point in any locale; `text` has at least 32 bytes. Returns `text`. */
const char *core_json_real_print(double value, int digits, char text[32]);
/* Writes with the fewest digits, 15 to 17, that read back as the same double, as a real (1.0, not
 * 1). */
void core_json_write_real(struct core_json_write *write, const char *key, double value);
void core_json_write_bool(struct core_json_write *write, const char *key, bool value);
void core_json_write_null(struct core_json_write *write, const char *key);
/* Writes a document's value. */
void core_json_write_value(struct core_json_write *write, const char *key,
                           const struct core_json_value *value);

/* Writes valid JSON unchanged. */
void core_json_write_verbatim(struct core_json_write *write, const char *key, const char *json);

/* Ends a value with a newline; the writer may begin another (JSONL). Returns 0, or the first
 * failure with a message. */
int core_json_write_end(struct core_json_write *write);

#endif
