/* json.h: a JSON document in memory: parses it, finds values, and finds the position of a value in
 * the text. A document owns its text and all its values; it does not change after it was made, so
 * any number of threads may read it. Numbers are checked while parsing: an integer that does not
 * fit int64 becomes a real; a number that does not fit a double is refused. The keys of an object
 * are unique; members keep the order of the file. For files too large for a tree see scan.h. */
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
    bool lenient;     /* comments and trailing commas are accepted (ds_config.json) */
    bool regular;     /* core_json_load() reads the file with core_file_read_regular() */
    size_t bytes_max; /* limit of core_json_load(); 0: 256 MiB */
};

/* Parses a text. `source` is its name in messages and is copied; `options` may be NULL. Returns
 * -EINVAL with the message "source:line:column: what is wrong"; a duplicate key is refused with
 * both of its lines. */
int core_json_parse(const char *text, size_t bytes, const char *source,
                    const struct core_json_options *options, struct core_json **out);

/* Like core_json_parse(), for a file ("-": standard input). A directory, a missing permission or a
 * file above the limit is an error that names the path. */
int core_json_load(const char *path, const struct core_json_options *options,
                   struct core_json **out);

void core_json_destroy(struct core_json *doc);

const char *core_json_source(const struct core_json *doc);
const struct core_json_value *core_json_root(const struct core_json *doc);

enum core_json_kind core_json_kind(const struct core_json_value *value);
/* Returns the name of a kind with its article, as in messages: "an object", "true or false". */
const char *core_json_kind_name(enum core_json_kind kind);

/* Return the value, whose kind the caller has checked. core_json_real also accepts an integer. A
 * string is UTF-8 and ends with a NUL; `bytes` (may be NULL) receives its length, because a string
 * may contain NULs. */
bool core_json_bool(const struct core_json_value *value);
int64_t core_json_integer(const struct core_json_value *value);
double core_json_real(const struct core_json_value *value);
const char *core_json_string(const struct core_json_value *value, size_t *bytes);

/* Returns the number of members of an object or elements of an array; 0 for any other value. */
size_t core_json_count(const struct core_json_value *value);

/* Find a member of an object or an element of an array. Return NULL if there is none, or if the
 * container is of another kind. */
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

/* Set *out to a member of this type and return 0. A missing key and a null return -ENOENT, another
 * type returns -EINVAL, each with a message that names source, line and key. An integer may be
 * written as a real without a fraction (5e8), and a real as an integer. A string that contains a
 * NUL is refused. */
int core_json_get_bool(const struct core_json *doc, const struct core_json_value *object,
                       const char *key, bool *out);
int core_json_get_integer(const struct core_json *doc, const struct core_json_value *object,
                          const char *key, int64_t *out);
int core_json_get_real(const struct core_json *doc, const struct core_json_value *object,
                       const char *key, double *out);
int core_json_get_string(const struct core_json *doc, const struct core_json_value *object,
                         const char *key, const char **out);
/* Sets *out to the value of a member, which must be exactly of `kind` (5e8 is no integer here); the
 * errors are those of the functions above. */
int core_json_get(const struct core_json *doc, const struct core_json_value *object,
                  const char *key, enum core_json_kind kind, const struct core_json_value **out);

/* Returns whether a number of either kind is an integer that int64_t holds (5e8 is one), and stores
 * it in *out. A real of -2^63 counts as too small, because reals in the text that are slightly
 * below it round to it. */
bool core_json_as_integer(const struct core_json_value *value, int64_t *out);

struct core_json_site {
    struct core_json_place place;
    char path[256]; /* ends in "..." if it is longer */
};

/* Finds the position of a member's key or of an element, and its path from the root:
 * "zero_optimization.offload_param.device", "layers[3].size". Counts lines, so it is meant for
 * messages. `key` NULL: the element `index` of an array. If there is none, returns -ENOENT and sets
 * the position to that of the container. */
int core_json_locate(const struct core_json *doc, const struct core_json_value *container,
                     const char *key, size_t index, struct core_json_site *out);

/* Writes the message "source:line:column: path: <what is wrong>" and returns `code`. If the key is
 * missing, the position is that of its object. */
int core_json_refuse(const struct core_json *doc, const struct core_json_value *container,
                     const char *key, size_t index, int code, const char *format, ...)
    __attribute__((format(printf, 6, 7), cold));

/* Writes the value as JSON on one line, cut to `bytes` with "...", for messages that quote a
 * value. */
void core_json_print(const struct core_json_value *value, char *out, size_t bytes);

#endif
