/* function.h: filters, tests, methods and globals: rows of const tables (private to
 * tools/text/template). All fail the run and return something harmless. */
#ifndef TOOLS_TEXT_TEMPLATE_FUNCTION_H
#define TOOLS_TEXT_TEMPLATE_FUNCTION_H

#include "tools/text/template/value.h"

struct template_arguments {
    struct template_value *items;
    size_t count;
    struct template_dict *named; /* NULL: none */
};

struct template_function {
    const char *name;
    struct template_value (*call)(struct text_template_run *run, struct template_value self,
                                  const struct template_arguments *arguments);
    const char
        *parameters; /* "a b": what may be given, by place or by name; "*" at the end: more */
};

/* Rows end with a NULL name. */
const struct template_function *template_function_find(const struct template_function *rows,
                                                       const char *name, size_t bytes);
const struct template_function *template_filter_find(const char *name, size_t bytes);
const struct template_function *template_test_find(const char *name, size_t bytes);
const struct template_function *template_global_find(const char *name, size_t bytes);
/* The method of a kind of value. */
const struct template_function *template_method_find(enum template_kind kind, const char *name,
                                                     size_t bytes);

extern const struct template_function template_filters_text[];
extern const struct template_function template_filters_list[];
extern const struct template_function template_filters_select[];
extern const struct template_function template_filters_number[];
extern const struct template_function template_methods_text[];
extern const struct template_function template_methods_search[];
extern const struct template_function template_methods_list[];
extern const struct template_function template_methods_dict[];
extern const struct template_function template_methods_number[];

/* Checks what was given against the function's parameters, and calls it. */
struct template_value template_function_call(struct text_template_run *run,
                                             const struct template_function *function,
                                             struct template_value self,
                                             const struct template_arguments *arguments);

/* The argument by place or by name; `otherwise` where it was not given. */
struct template_value template_argument(const struct template_arguments *arguments, size_t index,
                                        const char *name, struct template_value otherwise);
bool template_argument_truth(const struct template_arguments *arguments, size_t index,
                             const char *name, bool otherwise);
int64_t template_argument_integer(struct text_template_run *run,
                                  const struct template_arguments *arguments, size_t index,
                                  const char *name, int64_t otherwise);
/* A string; NULL text with the run failed where it is none and not given. */
struct template_value template_argument_text(struct text_template_run *run,
                                             const struct template_arguments *arguments,
                                             size_t index, const char *name, const char *otherwise);

/* Calls whatever can be called. */
struct template_value template_call_value(struct text_template_run *run,
                                          struct template_value callee,
                                          const struct template_arguments *arguments);
/* A function with the value that stands in front of it. */
struct template_value template_bind(struct text_template_run *run, struct template_value self,
                                    const struct template_function *function);
/* value.name, and value[key]. */
struct template_value template_attribute(struct text_template_run *run, struct template_value value,
                                         const char *name, size_t bytes);
struct template_value template_item(struct text_template_run *run, struct template_value value,
                                    struct template_value key);
struct template_value template_slice(struct text_template_run *run, struct template_value value,
                                     const struct template_value bounds[3]);
/* "a.b.0" as filters understand it, or an index. */
struct template_value template_attribute_path(struct text_template_run *run,
                                              struct template_value value,
                                              struct template_value path);
/* left SIGN right, of numbers, strings and lists. */
struct template_value template_operate(struct text_template_run *run, const char *sign,
                                       struct template_value left, struct template_value right);
/* text % values, and text.format(values). */
struct template_value template_format_percent(struct text_template_run *run,
                                              struct template_value text,
                                              const struct template_value *values, size_t count);
struct template_value template_format_braces(struct text_template_run *run,
                                             struct template_value text,
                                             const struct template_arguments *arguments);
struct template_value template_to_json(struct text_template_run *run, struct template_value value,
                                       const struct template_arguments *arguments);
/* Text filters that others use. */
struct template_value template_case(struct text_template_run *run, struct template_value text,
                                    bool upper);
/* Without what stands in `characters` (NULL: white space) at its ends. */
struct template_value template_strip(struct text_template_run *run, struct template_value text,
                                     const struct template_value *characters, bool left,
                                     bool right);

#endif
