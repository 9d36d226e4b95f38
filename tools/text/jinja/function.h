/* function.h: filters, tests, methods and globals: rows of const tables (private to
 * tools/text/jinja). All fail the run and return something harmless. */
#ifndef TOOLS_TEXT_JINJA_FUNCTION_H
#define TOOLS_TEXT_JINJA_FUNCTION_H

#include "tools/text/jinja/value.h"

struct jinja_arguments;

/* What filters, tests and attributes need of files that are built on them. */
struct jinja_links {
    const struct jinja_function *(*find_filter)(const char *name, size_t bytes);
    const struct jinja_function *(*find_method)(enum jinja_kind kind, const char *name,
                                                size_t bytes);
    struct jinja_value (*call)(struct jinja_run *run, struct jinja_value callee,
                               const struct jinja_arguments *arguments);
};

struct jinja_arguments {
    struct jinja_value *items;
    size_t count;
    struct jinja_dict *named; /* NULL: none */
};

struct jinja_function {
    const char *name;
    struct jinja_value (*call)(struct jinja_run *run, struct jinja_value self,
                               const struct jinja_arguments *arguments);
    const char
        *parameters; /* "a b": what may be given, by place or by name; "*" at the end: more */
};

/* Rows end with a NULL name. */
const struct jinja_function *jinja_function_find(const struct jinja_function *rows,
                                                 const char *name, size_t bytes);
const struct jinja_function *jinja_filter_find(const char *name, size_t bytes);
const struct jinja_function *jinja_test_find(const char *name, size_t bytes);
const struct jinja_function *jinja_global_find(const char *name, size_t bytes);
/* The method of a kind of value. */
const struct jinja_function *jinja_method_find(enum jinja_kind kind, const char *name,
                                               size_t bytes);

extern const struct jinja_function jinja_filters_text[];
extern const struct jinja_function jinja_filters_list[];
extern const struct jinja_function jinja_filters_select[];
extern const struct jinja_function jinja_filters_number[];
extern const struct jinja_function jinja_methods_text[];
extern const struct jinja_function jinja_methods_search[];
extern const struct jinja_function jinja_methods_list[];
extern const struct jinja_function jinja_methods_dict[];
extern const struct jinja_function jinja_methods_number[];

/* Checks what was given against the function's parameters, and calls it. */
struct jinja_value jinja_function_call(struct jinja_run *run, const struct jinja_function *function,
                                       struct jinja_value self,
                                       const struct jinja_arguments *arguments);

/* The argument by place or by name; `otherwise` where it was not given. */
struct jinja_value jinja_argument(const struct jinja_arguments *arguments, size_t index,
                                  const char *name, struct jinja_value otherwise);
bool jinja_argument_truth(const struct jinja_arguments *arguments, size_t index, const char *name,
                          bool otherwise);
int64_t jinja_argument_integer(struct jinja_run *run, const struct jinja_arguments *arguments,
                               size_t index, const char *name, int64_t otherwise);
/* A string; NULL text with the run failed where it is none and not given. */
struct jinja_value jinja_argument_text(struct jinja_run *run,
                                       const struct jinja_arguments *arguments, size_t index,
                                       const char *name, const char *otherwise);

/* Calls whatever can be called. */
struct jinja_value jinja_call_value(struct jinja_run *run, struct jinja_value callee,
                                    const struct jinja_arguments *arguments);
/* A function with the value that stands in front of it. */
struct jinja_value jinja_bind(struct jinja_run *run, struct jinja_value self,
                              const struct jinja_function *function);
/* value.name, and value[key]. */
struct jinja_value jinja_attribute(struct jinja_run *run, struct jinja_value value,
                                   const char *name, size_t bytes);
struct jinja_value jinja_item(struct jinja_run *run, struct jinja_value value,
                              struct jinja_value key);
struct jinja_value jinja_slice(struct jinja_run *run, struct jinja_value value,
                               const struct jinja_value bounds[3]);
/* "a.b.0" as filters understand it, or an index. */
struct jinja_value jinja_attribute_path(struct jinja_run *run, struct jinja_value value,
                                        struct jinja_value path);
/* left SIGN right, of numbers, strings and lists. */
struct jinja_value jinja_operate(struct jinja_run *run, const char *sign, struct jinja_value left,
                                 struct jinja_value right);
/* text % values, and text.format(values). */
struct jinja_value jinja_format_percent(struct jinja_run *run, struct jinja_value text,
                                        const struct jinja_value *values, size_t count);
struct jinja_value jinja_format_braces(struct jinja_run *run, struct jinja_value text,
                                       const struct jinja_arguments *arguments);
struct jinja_value jinja_to_json(struct jinja_run *run, struct jinja_value value,
                                 const struct jinja_arguments *arguments);
/* Text filters that others use. */
struct jinja_value jinja_case(struct jinja_run *run, struct jinja_value text, bool upper);
/* Without what stands in `characters` (NULL: white space) at its ends. */
struct jinja_value jinja_strip(struct jinja_run *run, struct jinja_value text,
                               const struct jinja_value *characters, bool left, bool right);

#endif
