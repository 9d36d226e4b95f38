/* scan.h: reads JSON as a sequence of tokens, from a buffer that the caller owns. Checks the whole
 * grammar, UTF-8, numbers and nesting as it reads, allocates nothing, and counts no lines: a
 * position is computed from an offset when a message needs it. json.h builds trees with it; large
 * files (tokenizer.json, rows of JSONL) are read with it directly. Any thread, one scanner each. */
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
    CORE_JSON_TOKEN_REAL,    /* any other number that fits a double */
    CORE_JSON_TOKEN_TRUE,
    CORE_JSON_TOKEN_FALSE,
    CORE_JSON_TOKEN_NULL,
};

struct core_json_token {
    enum core_json_token_kind kind;
    bool escaped;     /* the key or string contains a backslash */
    const char *text; /* borrowed from the buffer; without the quotes of keys and strings */
    size_t bytes;
};

struct core_json_scan {
    const char *text;   /* borrowed from the caller */
    const char *source; /* borrowed from the caller; name of the text in messages */
    size_t bytes;
    size_t at;
    char *blank; /* borrowed; NULL: strict. Else `text` itself, writable: see
                  * core_json_scan_init_lenient */
    unsigned depth;
    unsigned expects;                           /* enum expects of scan.c */
    uint64_t objects[CORE_JSON_DEPTH_MAX / 64]; /* one bit per level, set for an object */
};

/* Begins to scan strict JSON of one value. `source` names the text in messages ("config.json"). */
void core_json_scan_init(struct core_json_scan *scan, const char *text, size_t bytes,
                         const char *source);

/* Like core_json_scan_init(), for text that people write: `//`, `#` and `/ * * /` comments,
 * trailing commas and a byte order mark are accepted and overwritten with spaces as the scanner
 * passes them, so that afterwards the buffer is strict JSON in which every other byte has kept its
 * offset. */
void core_json_scan_init_lenient(struct core_json_scan *scan, char *text, size_t bytes,
                                 const char *source);

/* Reads the next token. Returns -EINVAL with the message "source:line:column: what is wrong" if the
 * text is not JSON. */
int core_json_scan_next(struct core_json_scan *scan, struct core_json_token *token);

/* Skips the rest of the value that `token` began; does nothing for plain values. After a KEY it
 * skips the key's value. */
int core_json_scan_skip(struct core_json_scan *scan, const struct core_json_token *token);

/* Decodes a token of kind KEY or STRING: writes at most `bytes` bytes of the decoded text (no NUL
 * is added) and returns its whole length, which never exceeds token->bytes. A lone surrogate
 * becomes U+FFFD. */
size_t core_json_token_string(const struct core_json_token *token, char *out, size_t bytes);

/* Returns whether the decoded text of a KEY or STRING equals the `bytes` bytes at `text`. */
bool core_json_token_equals(const struct core_json_token *token, const char *text, size_t bytes);

int64_t core_json_token_integer(const struct core_json_token *token);
/* Returns the value of an INTEGER or REAL, correctly rounded in every locale. */
double core_json_token_real(const struct core_json_token *token);

struct core_json_place {
    size_t line;
    size_t column;
};

/* Returns the line and the column of an offset, counted from 1. A column counts bytes, so blanked
 * comments do not shift it. */
struct core_json_place core_json_place_of(const char *text, size_t offset);

#endif
