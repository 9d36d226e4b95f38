/* function.h: filters, tests, methods and globals as rows of const tables (private to
 * tools/text/jinja). On an error, a function fails the run and returns a harmless value. */
#ifndef TOOLS_TEXT_JINJA_FUNCTION_H
#define TOOLS_TEXT_JINJA_FUNCTION_H

#include "tools/text/jinja/value.h"

struct jinja_arguments;

/* Functions that filters, tests and attributes call. The pointers avoid a circle of files. */
struct jinja_links {
    const struct jinja_function *(*find_filter)(const char *name, size_t bytes);
    const struct jinja_function *(*find_method)(enum jinja_kind kind, const char *name,
                                                size_t bytes);
    struct jinja_value (*call)(struct jinja_run *run, struct jinja_value callee,
                               const struct jinja_arguments *arguments);
    /* Returns whether a loop has an element at `index`; may evaluate the loop's `if`. */
    bool (*reach)(struct jinja_run *run, struct jinja_loop *loop, size_t index);
    struct jinja_value (*format_percent)(struct jinja_run *run, struct jinja_value text,
                                         struct jinja_value values);
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
    /* "a -b c?": a by position or name, b by position only, c may be missing; "*": any others by
     * position, "**": also by name */
    const char *parameters;
};

/* Returns the row with this name, or NULL. The last row has a NULL name. */
const struct jinja_function *jinja_function_find(const struct jinja_function *rows,
                                                 const char *name, size_t bytes);
const struct jinja_function *jinja_filter_find(const char *name, size_t bytes);
const struct jinja_function *jinja_test_find(const char *name, size_t bytes);
const struct jinja_function *jinja_global_find(const char *name, size_t bytes);
const struct jinja_function *jinja_method_find(enum jinja_kind kind, const char *name,
                                               size_t bytes);

extern const struct jinja_function jinja_filters_text[];
extern const struct jinja_function jinja_filters_list[];
extern const struct jinja_function jinja_filters_select[];
extern const struct jinja_function jinja_filters_number[];
extern const struct jinja_function jinja_methods_text[];
extern const struct jinja_function jinja_methods_search[];
extern const struct jinja_function jinja_methods_sequence[];
extern const struct jinja_function jinja_methods_list[];
extern const struct jinja_function jinja_methods_dict[];
extern const struct jinja_function jinja_methods_number[];

/* Checks the arguments against the parameters. */
struct jinja_value jinja_check_arguments(struct jinja_run *run,
                                         const struct jinja_function *function,
                                         const struct jinja_arguments *arguments);
/* Checks the arguments and calls the function. */
struct jinja_value jinja_function_call(struct jinja_run *run, const struct jinja_function *function,
                                       struct jinja_value self,
                                       const struct jinja_arguments *arguments);

/* Returns the argument at a position or with a name, or `otherwise`. */
struct jinja_value jinja_argument(const struct jinja_arguments *arguments, size_t index,
                                  const char *name, struct jinja_value otherwise);
bool jinja_argument_truth(const struct jinja_arguments *arguments, size_t index, const char *name,
                          bool otherwise);
int64_t jinja_argument_integer(struct jinja_run *run, const struct jinja_arguments *arguments,
                               size_t index, const char *name, int64_t otherwise);
/* Returns a string argument, or `otherwise` if it was not given. Fails the run if the argument is
 * not a string, or is missing and `otherwise` is NULL. */
struct jinja_value jinja_argument_text(struct jinja_run *run,
                                       const struct jinja_arguments *arguments, size_t index,
                                       const char *name, const char *otherwise);

bool jinja_loop_reach(struct jinja_run *run, struct jinja_loop *loop, size_t index);
struct jinja_value jinja_call_value(struct jinja_run *run, struct jinja_value callee,
                                    const struct jinja_arguments *arguments);
/* Returns a method: `function` bound to `self`. */
struct jinja_value jinja_bind(struct jinja_run *run, struct jinja_value self,
                              const struct jinja_function *function);
/* Evaluate value.name, value[key] and value[begin:end:step]. */
struct jinja_value jinja_attribute(struct jinja_run *run, struct jinja_value value,
                                   const char *name, size_t bytes);
struct jinja_value jinja_item(struct jinja_run *run, struct jinja_value value,
                              struct jinja_value key);
struct jinja_value jinja_slice(struct jinja_run *run, struct jinja_value value,
                               const struct jinja_value bounds[3]);
/* Evaluates an attribute path like "a.b.0", or an index. */
struct jinja_value jinja_attribute_path(struct jinja_run *run, struct jinja_value value,
                                        struct jinja_value path);
/* The same; `otherwise`, unless none, replaces each undefined value on the path. */
struct jinja_value jinja_attribute_path_or(struct jinja_run *run, struct jinja_value value,
                                           struct jinja_value path, struct jinja_value otherwise);
/* Evaluates left SIGN right for numbers, strings and lists. */
struct jinja_value jinja_operate(struct jinja_run *run, const char *sign, struct jinja_value left,
                                 struct jinja_value right);
/* Evaluate text % values and text.format(values). */
struct jinja_value jinja_format_percent(struct jinja_run *run, struct jinja_value text,
                                        struct jinja_value values);
struct jinja_value jinja_format_braces(struct jinja_run *run, struct jinja_value text,
                                       const struct jinja_arguments *arguments);
struct jinja_value jinja_to_json(struct jinja_run *run, struct jinja_value value,
                                 const struct jinja_arguments *arguments);
/* Returns the len() of a value; fails the run if it has none. */
int64_t jinja_length(struct jinja_run *run, struct jinja_value value);
struct jinja_value jinja_case(struct jinja_run *run, struct jinja_value text, bool upper);
/* Removes `characters` (NULL: white space) from the chosen ends of a text. */
struct jinja_value jinja_strip(struct jinja_run *run, struct jinja_value text,
                               const struct jinja_value *characters, bool left, bool right);

#endif
