/* write.h: writes JSON piece by piece, to a growing text or to a FILE. The writer adds commas,
 * escapes and indentation and ensures valid UTF-8. Wrong nesting is a bug of the caller and is
 * asserted. The first failure is kept and returned by core_json_write_end(); the calls in between
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
    bool nan_is_null; /* infinities and NaN become null; else they are an error (-EDOM) */
    unsigned indent;  /* spaces per level; 0: all on one line */
    size_t bytes_max; /* limit of a text; beyond it -EFBIG; 0: no limit */
    /* Read after end. */
    char *text; /* owned; NULL if the writer has a FILE, or has written nothing yet */
    size_t bytes;
    /* Private to the writer. */
    FILE *file; /* borrowed from the caller; NULL: to `text` */
    size_t room;
    unsigned depth;
    bool first; /* this object or array is still empty */
    int rc;     /* the first error */
    uint64_t objects[CORE_JSON_WRITE_DEPTH_MAX / 64];
};

void core_json_write_init_text(struct core_json_write *write);
void core_json_write_init_file(struct core_json_write *write, FILE *file);
void core_json_write_fini(struct core_json_write *write);

/* `key` is the member's key inside an object and NULL everywhere else. */
void core_json_write_object_begin(struct core_json_write *write, const char *key);
void core_json_write_object_end(struct core_json_write *write);
void core_json_write_array_begin(struct core_json_write *write, const char *key);
void core_json_write_array_end(struct core_json_write *write);

/* A string may be NULL, which writes null. Bytes that are not UTF-8 become U+FFFD. */
void core_json_write_string(struct core_json_write *write, const char *key, const char *text);
void core_json_write_string_bytes(struct core_json_write *write, const char *key, const char *text,
                                  size_t bytes);
void core_json_write_integer(struct core_json_write *write, const char *key, int64_t value);
void core_json_write_unsigned(struct core_json_write *write, const char *key, uint64_t value);
/* Formats as "%.*g" with a decimal point in every locale; `text` has at least 32 bytes. Returns
 * `text`. */
const char *core_json_real_print(double value, int digits, char text[32]);
/* Writes with the lowest precision, from 15 to 17 digits, that reads back as the same double, and
 * always as a real (1.0, not 1). */
void core_json_write_real(struct core_json_write *write, const char *key, double value);
void core_json_write_bool(struct core_json_write *write, const char *key, bool value);
void core_json_write_null(struct core_json_write *write, const char *key);
/* Writes a value of a document, with the values inside it. */
void core_json_write_value(struct core_json_write *write, const char *key,
                           const struct core_json_value *value);

/* Writes JSON that is known to be valid, unchanged. */
void core_json_write_verbatim(struct core_json_write *write, const char *key, const char *json);

/* Ends a complete value with a newline; the same writer may begin the next value (JSONL). Returns 0
 * or the first failure: -ENOMEM, -EIO ..., -EDOM, -EFBIG, with a message. */
int core_json_write_end(struct core_json_write *write);

#endif
