/* scan.h: reads the tokens of JSON in the caller's buffer. Checks grammar, UTF-8, numbers and
 * nesting, and allocates nothing. A position is computed from an offset when a message needs it.
 * json.h builds trees with it; large files are read with it directly. Any thread, each with its own
 * scanner. */
#ifndef CORE_JSON_SCAN_H
#define CORE_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CORE_JSON_DEPTH_MAX = 512, CORE_JSON_NUMBER_BYTES_MAX = 1024 };

enum core_json_token_kind {
    CORE_JSON_TOKEN_END, /* after the text's value */
    CORE_JSON_TOKEN_OBJECT_BEGIN,
    CORE_JSON_TOKEN_OBJECT_END,
    CORE_JSON_TOKEN_ARRAY_BEGIN,
    CORE_JSON_TOKEN_ARRAY_END,
    CORE_JSON_TOKEN_KEY,
    CORE_JSON_TOKEN_STRING,
    CORE_JSON_TOKEN_INTEGER, /* no point and no exponent, and fits int64 */
    CORE_JSON_TOKEN_REAL,    /* any other number that fits a double */
    CORE_JSON_TOKEN_TRUE,
    CORE_JSON_TOKEN_FALSE,
    CORE_JSON_TOKEN_NULL,
};

struct core_json_token {
    enum core_json_token_kind kind;
    bool escaped;     /* contains a backslash */
    const char *text; /* borrowed; without quotes */
    size_t bytes;
};

struct core_json_scan {
    const char *text;   /* borrowed from the caller */
    const char *source; /* borrowed; names the text in messages */
    size_t bytes;
    size_t at;
    char *blank; /* borrowed: `text`, writable (core_json_scan_init_lenient); NULL: strict */
    unsigned depth;
    unsigned expects;                           /* enum expects of scan.c */
    uint64_t objects[CORE_JSON_DEPTH_MAX / 64]; /* a bit per level, set for an object */
};

/* Begins to scan one value of strict JSON. `source` is in messages ("config.json"). */
void core_json_scan_init(struct core_json_scan *scan, const char *text, size_t bytes,
                         const char *source);

/* Like core_json_scan_init(), for text that people write: overwrites comments (of C, C++ and the
 * shell), trailing commas and a byte order mark with spaces, so that the buffer becomes strict JSON
 * with unchanged offsets. */
void core_json_scan_init_lenient(struct core_json_scan *scan, char *text, size_t bytes,
                                 const char *source);

/* Reads the next token. Returns -EINVAL, with "source:line:column: what is wrong", if the text is
 * not JSON. */
int core_json_scan_next(struct core_json_scan *scan, struct core_json_token *token);

/* Skips the rest of the value that `token` began, or the value of a KEY. */
int core_json_scan_skip(struct core_json_scan *scan, const struct core_json_token *token);

/* Decodes a KEY or STRING: writes at most `bytes` bytes, without a NUL, and returns the whole
 * length, at most token->bytes. A lone surrogate becomes U+FFFD. */
size_t core_json_token_string(const struct core_json_token *token, char *out, size_t bytes);

/* Returns whether the decoded KEY or STRING is `text`. */
bool core_json_token_equals(const struct core_json_token *token, const char *text, size_t bytes);

int64_t core_json_token_integer(const struct core_json_token *token);
/* Returns an INTEGER or REAL, correctly rounded. */
double core_json_token_real(const struct core_json_token *token);
/* Reads a number that core_json_real_print() wrote, in any locale. */
double core_json_real_read(const char *text);

struct core_json_place {
    size_t line;
    size_t column;
};

/* Returns the line and column of an offset, from 1. Columns are bytes. */
struct core_json_place core_json_place_of(const char *text, size_t offset);

#endif
