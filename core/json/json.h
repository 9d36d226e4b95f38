/* json.h: a JSON document in memory: its values and their positions in the text. A document owns
 * its text and values and is constant, so any thread may read it. An integer beyond int64 becomes a
 * real; a number beyond a double is refused. The keys of an object are unique, in the file's order.
 * For larger files see scan.h. */
#ifndef CORE_JSON_JSON_H
#define CORE_JSON_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/json/scan.h"

struct core_json;       /* a document */
struct core_json_value; /* a value inside a document */

enum core_json_kind {
    CORE_JSON_NULL,
    CORE_JSON_BOOL,
    CORE_JSON_INTEGER,
    CORE_JSON_REAL,
    CORE_JSON_STRING,
    CORE_JSON_ARRAY,
    CORE_JSON_OBJECT,
};

struct core_json_options {
    bool lenient;     /* accepts comments and trailing commas (ds_config.json) */
    bool regular;     /* core_json_load() uses core_file_read_regular() */
    size_t bytes_max; /* limit of core_json_load(); 0: 256 MiB */
};

/* Parses a text. `source`, its name in messages, is copied; `options` may be NULL. Returns -EINVAL
 * with "source:line:column: what is wrong", also for a duplicate key. */
int core_json_parse(const char *text, size_t bytes, const char *source,
                    const struct core_json_options *options, struct core_json **out);

/* Like core_json_parse(), for a file ("-": standard input, unless options->regular). Errors of
 * reading name the path. */
int core_json_load(const char *path, const struct core_json_options *options,
                   struct core_json **out);

void core_json_destroy(struct core_json *doc);

const char *core_json_source(const struct core_json *doc);
const struct core_json_value *core_json_root(const struct core_json *doc);

enum core_json_kind core_json_kind(const struct core_json_value *value);
/* Returns "an object", "true or false", and so on. */
const char *core_json_kind_name(enum core_json_kind kind);

/* Return a value whose kind the caller has checked. core_json_real also accepts an integer. A
 * string is UTF-8 and ends with a NUL; it may contain NULs, so `bytes` (may be NULL) receives its
 * length. */
bool core_json_bool(const struct core_json_value *value);
int64_t core_json_integer(const struct core_json_value *value);
double core_json_real(const struct core_json_value *value);
/* Returns whether a real was an integer beyond int64 in the text. */
bool core_json_is_large(const struct core_json_value *value);
const char *core_json_string(const struct core_json_value *value, size_t *bytes);

/* Returns the number of members or elements; 0 for other values. */
size_t core_json_count(const struct core_json_value *value);

/* Return NULL if there is no such member or element, or the container is of another kind. */
const struct core_json_value *core_json_find(const struct core_json_value *object, const char *key);
const struct core_json_value *core_json_at(const struct core_json_value *array, size_t index);

/* Visit the members in the order of the file:
 *     struct core_json_member member;
 *     for (bool any = core_json_first(object, &member); any; any = core_json_next(&member)) */
struct core_json_member {
    const char *key;
    size_t key_bytes;
    const struct core_json_value *value;
    const struct core_json_value *object;
};
bool core_json_first(const struct core_json_value *object, struct core_json_member *member);
bool core_json_next(struct core_json_member *member);

/* Set *out to a member of this type. Return 0, -ENOENT for a missing or null member, or -EINVAL for
 * another type, with a message of source, line and key. An integer may be a real without a fraction
 * (5e8), and a real an integer. A string with a NUL is refused. */
int core_json_get_bool(const struct core_json *doc, const struct core_json_value *object,
                       const char *key, bool *out);
int core_json_get_integer(const struct core_json *doc, const struct core_json_value *object,
                          const char *key, int64_t *out);
int core_json_get_real(const struct core_json *doc, const struct core_json_value *object,
                       const char *key, double *out);
int core_json_get_string(const struct core_json *doc, const struct core_json_value *object,
                         const char *key, const char **out);
/* Sets *out to a member of this `kind` (5e8 is no integer here); errors are as above. */
int core_json_get(const struct core_json *doc, const struct core_json_value *object,
                  const char *key, enum core_json_kind kind, const struct core_json_value **out);

/* Stores a number of either kind if it is an integer of int64_t (5e8 is one); else returns false.
 * The real -2^63 counts as too small, because slightly lower numbers in the text become -2^63. */
bool core_json_as_integer(const struct core_json_value *value, int64_t *out);

struct core_json_site {
    struct core_json_place place;
    char path[256]; /* ends in "..." if cut */
};

/* Finds the position of a member's key or (`key` NULL) of element `index`, and its path:
 * "zero_optimization.offload_param.device", "layers[3].size". Counts lines, so it is meant for
 * messages. Returns -ENOENT, with the container's position, if there is none. */
int core_json_locate(const struct core_json *doc, const struct core_json_value *container,
                     const char *key, size_t index, struct core_json_site *out);

/* Writes the message "source:line:column: path: <what is wrong>", at the object if the key is
 * missing, and returns `code`. */
int core_json_refuse(const struct core_json *doc, const struct core_json_value *container,
                     const char *key, size_t index, int code, const char *format, ...)
    __attribute__((format(printf, 6, 7), cold));

/* Writes one line of JSON, cut to `bytes` with "...", for messages. */
void core_json_print(const struct core_json_value *value, char *out, size_t bytes);

#endif
