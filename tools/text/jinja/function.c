/* function.c: finds functions in tables and checks their arguments. */
#include "tools/text/jinja/function.h"

#include <errno.h>
#include <string.h>

const struct jinja_function *jinja_function_find(const struct jinja_function *rows,
                                                 const char *name, size_t bytes)
{
    for (; rows->name != NULL; rows++) {
        if (strlen(rows->name) == bytes && memcmp(rows->name, name, bytes) == 0) {
            return rows;
        }
    }
    return NULL;
}

/* Takes the next word of `parameters`; returns whether there was one. */
static bool next_parameter(const char **parameters, struct jinja_value *name, bool *required)
{
    if (!jinja_next_word(parameters, name)) {
        return false;
    }
    const bool optional = name->as.text[name->bytes - 1] == '?';
    *required = !optional && name->as.text[0] != '*';
    name->bytes -= optional;
    return true;
}

static bool is_given(const struct jinja_arguments *arguments, struct jinja_value name)
{
    return arguments->named != NULL &&
           jinja_dict_get(arguments->named, name.as.text, name.bytes) != NULL;
}

struct jinja_value jinja_check_arguments(struct jinja_run *run,
                                         const struct jinja_function *function,
                                         const struct jinja_arguments *arguments)
{
    struct jinja_value name;
    bool required;
    bool any = false;
    bool any_named = false;
    size_t most = 0;
    size_t used = 0;
    for (const char *at = function->parameters; next_parameter(&at, &name, &required);) {
        any = any || name.as.text[0] == '*';
        any_named = any_named || jinja_is_text(name, "**");
        if (name.as.text[0] == '*') {
            continue;
        }
        const bool given = is_given(arguments, name);
        used += given;
        if (most < arguments->count ? given : required && !given) {
            return jinja_fail(run, -EINVAL, "%s: the argument '%.*s' is %s", function->name,
                              (int)name.bytes, name.as.text, given ? "given twice" : "missing");
        }
        most++;
    }
    if (!any && arguments->count > most) {
        return jinja_fail(run, -EINVAL, "%s takes %zu arguments, but %zu were given",
                          function->name, most, arguments->count);
    }
    for (size_t i = 0; !any_named && arguments->named != NULL && used < arguments->named->count;
         i++) {
        const struct jinja_value other = arguments->named->pairs[i].key;
        bool found = false;
        for (const char *at = function->parameters; next_parameter(&at, &name, &required);) {
            found = found || jinja_equal(run, name, other);
        }
        if (!found) {
            return jinja_fail(run, -EINVAL, "%s has no argument '%.*s'", function->name,
                              (int)(other.bytes < 60 ? other.bytes : 60), other.as.text);
        }
    }
    return jinja_none();
}

struct jinja_value jinja_function_call(struct jinja_run *run, const struct jinja_function *function,
                                       struct jinja_value self,
                                       const struct jinja_arguments *arguments)
{
    if (arguments->named != NULL && !jinja_step(run, arguments->named->count)) {
        return jinja_undefined("");
    }
    const struct jinja_value checked = jinja_check_arguments(run, function, arguments);
    return run->rc == 0 ? function->call(run, self, arguments) : checked;
}

struct jinja_value jinja_argument(const struct jinja_arguments *arguments, size_t index,
                                  const char *name, struct jinja_value otherwise)
{
    if (index < arguments->count) {
        return arguments->items[index];
    }
    const struct jinja_value *found = arguments->named != NULL
                                          ? jinja_dict_get(arguments->named, name, strlen(name))
                                          : NULL;
    return found != NULL ? *found : otherwise;
}

bool jinja_argument_truth(const struct jinja_arguments *arguments, size_t index, const char *name,
                          bool otherwise)
{
    return jinja_truth(jinja_argument(arguments, index, name, jinja_bool(otherwise)));
}

int64_t jinja_argument_integer(struct jinja_run *run, const struct jinja_arguments *arguments,
                               size_t index, const char *name, int64_t otherwise)
{
    const struct jinja_value value = jinja_argument(arguments, index, name,
                                                    jinja_integer(otherwise));
    if (value.kind == JINJA_BOOL) {
        return value.as.truth;
    }
    if (value.kind != JINJA_INTEGER) {
        jinja_fail(run, -EINVAL, "%s must be an int, found '%s'", name, jinja_type_name(value));
        return otherwise;
    }
    return value.as.integer;
}

struct jinja_value jinja_argument_text(struct jinja_run *run,
                                       const struct jinja_arguments *arguments, size_t index,
                                       const char *name, const char *otherwise)
{
    const struct jinja_value value = jinja_argument(
        arguments, index, name,
        otherwise != NULL ? jinja_string(otherwise, strlen(otherwise)) : jinja_undefined(name));
    if (value.kind != JINJA_STRING) {
        jinja_fail(run, -EINVAL, "%s must be a str, found '%s'", name, jinja_type_name(value));
        return jinja_string("", 0);
    }
    return value;
}

struct jinja_value jinja_bind(struct jinja_run *run, struct jinja_value self,
                              const struct jinja_function *function)
{
    struct jinja_method *method = jinja_alloc(run, sizeof *method);
    if (method == NULL) {
        return jinja_undefined("");
    }
    *method = (struct jinja_method){.self = self, .function = function};
    return (struct jinja_value){.kind = JINJA_METHOD, .as.method = method};
}
