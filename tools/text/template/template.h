/* template.h: chat templates: the part of Jinja that they use, as transformers runs it (sandboxed,
 * trim_blocks, lstrip_blocks, `{% generation %}`, break and continue, tojson, raise_exception,
 * strftime_now). A template never changes after it was read: any number of threads may render it,
 * each with a run of its own.
 *
 * What is not understood is an error with name and line: include, import, extends, block, autoescape,
 * the filters urlize, pprint, random, filesizeformat, xmlattr, striptags, and integers beyond 64 bits.
 * Generators (map, select, ...) and views (items, keys) are lists here. */
#ifndef TOOLS_TEXT_TEMPLATE_TEMPLATE_H
#define TOOLS_TEXT_TEMPLATE_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct core_json_value;
struct text_template;
struct text_template_run; /* one a thread */

enum { TEXT_TEMPLATE_BYTES_MAX = 4 << 20 }; /* of a source */

/* `name` is the source's in messages. -EINVAL with "name:line: ...". */
int text_template_create(const char *source, size_t bytes, const char *name,
                         struct text_template **out);
void text_template_destroy(struct text_template *source);

/* Does the source have {% generation %}? */
bool text_template_generates(const struct text_template *source);

struct text_template_limits {
    uint64_t steps; /* of evaluation; 0: 50 million, some seconds */
    size_t bytes;   /* of memory; 0: 512 MiB */
};

/* `limits` may be NULL. */
int text_template_run_create(const struct text_template_limits *limits,
                             struct text_template_run **out);
void text_template_run_destroy(struct text_template_run *run);

/* For many renders of one conversation: the array becomes a value once, which all variables with this
 * `json` share, until another one (or NULL: none) is kept. It has to stay until then. */
int text_template_run_keep(struct text_template_run *run, const struct core_json_value *json);

enum text_template_kind {
    TEXT_TEMPLATE_NONE,
    TEXT_TEMPLATE_BOOL,
    TEXT_TEMPLATE_TEXT,
    TEXT_TEMPLATE_JSON
};

struct text_template_variable {
    const char *name;
    enum text_template_kind kind;
    bool truth;
    const char *text;
    const struct core_json_value *json;
    size_t items_max; /* JSON: of an array, so many from its beginning; 0: all */
};

/* Bytes [begin, end) of the text. */
struct text_template_span {
    size_t begin;
    size_t end;
};

/* Borrowed from the run until its next use. */
struct text_rendering {
    const char *text; /* UTF-8, with a NUL behind it */
    size_t bytes;
    const struct text_template_span *generated; /* what {% generation %} blocks wrote */
    size_t generated_count;
};

/* -EINVAL for what is wrong in the template or refused by it (raise_exception), -E2BIG above a limit;
 * with "name:line: ...". `now` is the time that strftime_now writes, in seconds since
 * 1970 without a zone: nothing here reads a clock. */
int text_template_render(const struct text_template *source, struct text_template_run *run,
                         const struct text_template_variable *variables, size_t count, int64_t now,
                         struct text_rendering *out);

#endif
