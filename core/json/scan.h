/* scan.h: reads JSON as a row of tokens, over a buffer that stays the caller's.
 * Checks the whole grammar, UTF-8, numbers and nesting while it goes, allocates nothing, and keeps
 * no line count: a place is worked out from an offset when somebody asks. json.h builds trees with
 * it; large files (tokenizer.json, rows of JSONL) are read with it directly. Any thread, one
 * scanner each. */
#ifndef CORE_JSON_SCAN_H
#define CORE_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CORE_JSON_DEPTH_MAX = 512, CORE_JSON_NUMBER_BYTES_MAX = 1024 };

enum core_json_token_kind {
    CORE_JSON_TOKEN_END, /* after the one value of the text */
    CORE_JSON_TOKEN_OBJECT_BEGIN,
    CORE_JSON_TOKEN_OBJECT_END,
    CORE_JSON_TOKEN_ARRAY_BEGIN,
    CORE_JSON_TOKEN_ARRAY_END,
    CORE_JSON_TOKEN_KEY,
    CORE_JSON_TOKEN_STRING,
    CORE_JSON_TOKEN_INTEGER, /* no point and no exponent, and fits int64 */
    CORE_JSON_TOKEN_REAL,    /* any other number; fits a double */
    CORE_JSON_TOKEN_TRUE,
    CORE_JSON_TOKEN_FALSE,
    CORE_JSON_TOKEN_NULL,
};

struct core_json_token {
    enum core_json_token_kind kind;
    bool escaped;     /* a key or string with a backslash in it */
    const char *text; /* borrowed from the buffer; without the quotes of keys and strings */
    size_t bytes;
};

struct core_json_scan {
    const char *text;   /* borrowed from the caller */
    const char *source; /* borrowed from the caller; its name in messages */
    size_t bytes;
    size_t at;
    char *blank; /* borrowed; NULL: strict. Else `text` itself, writable: see below */
    unsigned depth;
    unsigned expects;
    uint64_t objects[CORE_JSON_DEPTH_MAX / 64]; /* a bit a level: set in an object */
};

/* Strict JSON of one value. `source` names the text in messages ("config.json"). */
void core_json_scan_init(struct core_json_scan *scan, const char *text, size_t bytes,
                         const char *source);

/* The same for text that people write: `//`, `#` and `/ * * /` comments, trailing commas and a
 * byte order mark are understood and overwritten with spaces as the scanner passes them, so that
 * afterwards the buffer is strict JSON with every byte of it at its old place. */
void core_json_scan_init_lenient(struct core_json_scan *scan, char *text, size_t bytes,
                                 const char *source);

/* The next token. -EINVAL with "source:line:column: what is wrong" where the text is not JSON. */
int core_json_scan_next(struct core_json_scan *scan, struct core_json_token *token);

/* Passes over the rest of the value that `token` began; nothing to do for plain values. After a
 * KEY it passes over the key's value. */
int core_json_scan_skip(struct core_json_scan *scan, const struct core_json_token *token);

/* A token of kind KEY or STRING as plain text: writes at most `bytes` of it (no NUL is added) and
 * returns its whole length, which never exceeds token->bytes. A lone surrogate comes out as
 * U+FFFD. */
size_t core_json_token_string(const struct core_json_token *token, char *out, size_t bytes);

/* Is this KEY or STRING the text `text` of `bytes`? */
bool core_json_token_equals(const struct core_json_token *token, const char *text, size_t bytes);

/* The values of an INTEGER, and of an INTEGER or REAL (correctly rounded, whatever the locale). */
int64_t core_json_token_integer(const struct core_json_token *token);
double core_json_token_real(const struct core_json_token *token);

/* Line and column, from 1; a column is a byte, so that blanked comments shift nothing. */
struct core_json_place {
    size_t line;
    size_t column;
};
struct core_json_place core_json_place_of(const char *text, size_t offset);

#endif
