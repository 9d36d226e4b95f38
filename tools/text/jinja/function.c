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

static bool is_parameter(const char *parameters, const char *name, size_t bytes)
{
    for (const char *at = parameters; *at != '\0';) {
        const size_t length = strcspn(at, " ");
        if (length == bytes && memcmp(at, name, bytes) == 0) {
            return true;
        }
        at += length + (at[length] == ' ');
    }
    return false;
}

static size_t count_parameters(const char *parameters)
{
    size_t count = *parameters != '\0';
    for (const char *at = parameters; *at != '\0'; at++) {
        count += *at == ' ';
    }
    return count;
}

struct jinja_value jinja_function_call(struct jinja_run *run, const struct jinja_function *function,
                                       struct jinja_value self,
                                       const struct jinja_arguments *arguments)
{
    const bool any = strchr(function->parameters, '*') != NULL;
    const size_t most = count_parameters(function->parameters);
    if (!any && arguments->count > most) {
        return jinja_fail(run, -EINVAL, "%s takes %zu arguments, but %zu were given",
                          function->name, most, arguments->count);
    }
    if (arguments->named != NULL && !jinja_step(run, arguments->named->count)) {
        return jinja_undefined("");
    }
    for (size_t i = 0; !any && arguments->named != NULL && i < arguments->named->count; i++) {
        const struct jinja_value name = arguments->named->pairs[i].key;
        if (!is_parameter(function->parameters, name.as.text, name.bytes)) {
            return jinja_fail(run, -EINVAL, "%s has no argument '%.*s'", function->name,
                              (int)(name.bytes < 60 ? name.bytes : 60), name.as.text);
        }
    }
    return function->call(run, self, arguments);
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
