/* jinja.h: chat templates: a part of Jinja, as transformers runs it (sandboxed, trim_blocks,
 * lstrip_blocks, `{% generation %}`, break and continue, tojson, raise_exception, strftime_now). A
 * template is immutable: threads may render it, each with its own run.
 *
 * Unsupported, an error with name and line: include, import, from, extends, block, autoescape,
 * print, do, the filters urlize, pprint, random, filesizeformat, xmlattr, striptags, urlencode and
 * wordwrap, methods that change a value, integers beyond 64 bits. */
#ifndef TOOLS_TEXT_JINJA_JINJA_H
#define TOOLS_TEXT_JINJA_JINJA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct core_json_value;
struct jinja_template;
struct jinja_run; /* each thread needs its own */

enum { JINJA_SOURCE_BYTES_MAX = 4 << 20 };

/* `name` names the source in messages: "name:line: ...". */
int jinja_template_create(const char *source, size_t bytes, const char *name,
                          struct jinja_template **out);
void jinja_template_destroy(struct jinja_template *source);

/* Returns whether the source has {% generation %}. */
bool jinja_template_generates(const struct jinja_template *source);

struct jinja_limits {
    uint64_t steps; /* 0: 50 million, some seconds */
    size_t bytes;   /* 0: 512 MiB */
};

/* `limits` NULL: the defaults. */
int jinja_run_create(const struct jinja_limits *limits, struct jinja_run **out);
void jinja_run_destroy(struct jinja_run *run);

/* Converts an array to a value once, for several renderings of one conversation. Variables with
 * this `json` share the value until another array or NULL is set; `json` must live until then. On
 * failure nothing is kept. */
int jinja_run_keep(struct jinja_run *run, const struct core_json_value *json);

enum jinja_variable_kind {
    JINJA_VARIABLE_NONE,
    JINJA_VARIABLE_BOOL,
    JINJA_VARIABLE_TEXT,
    JINJA_VARIABLE_JSON
};

struct jinja_variable {
    const char *name;
    enum jinja_variable_kind kind;
    bool truth;
    const char *text;
    const struct core_json_value *json;
    size_t items_max; /* JSON: number of leading elements of an array; 0: all */
};

/* Bytes [begin, end) of a text. */
struct jinja_span {
    size_t begin;
    size_t end;
};

/* Borrowed from the run until the next use of the run. */
struct jinja_rendering {
    const char *text; /* UTF-8; a NUL follows */
    size_t bytes;
    const struct jinja_span *generated; /* what {% generation %} blocks wrote */
    size_t generated_count;
};

/* Renders a template; `now` is the time for strftime_now, in seconds since 1970 without time zone.
 * Messages are "name:line: ...". -EINVAL: an error in the template, or one that it raises; -E2BIG:
 * above a limit; -ENOTSUP: changing case beyond ASCII needs utf8proc, which is missing. */
int jinja_render(const struct jinja_template *source, struct jinja_run *run,
                 const struct jinja_variable *variables, size_t count, int64_t now,
                 struct jinja_rendering *out);

#endif
