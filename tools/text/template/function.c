/* function.c: finding functions, and what was given to them. */
#include "tools/text/template/function.h"

#include <errno.h>
#include <string.h>

const struct template_function *template_function_find(const struct template_function *rows,
                                                       const char *name, size_t bytes)
{
    for (; rows->name != NULL && bytes > 0; rows++) {
        if (rows->name[0] == name[0] && strncmp(rows->name, name, bytes) == 0 &&
            rows->name[bytes] == '\0') {
            return rows;
        }
    }
    return NULL;
}

const struct template_function *template_filter_find(const char *name, size_t bytes)
{
    static const struct template_function *const tables[] = {
        template_filters_text, template_filters_list, template_filters_select,
        template_filters_number};
    const struct template_function *found = NULL;
    for (size_t i = 0; i < sizeof tables / sizeof tables[0] && found == NULL; i++) {
        found = template_function_find(tables[i], name, bytes);
    }
    return found;
}

const struct template_function *template_method_find(enum template_kind kind, const char *name,
                                                     size_t bytes)
{
    const struct template_function *found = NULL;
    if (kind == TEMPLATE_STRING) {
        found = template_function_find(template_methods_text, name, bytes);
        return found != NULL ? found : template_function_find(template_methods_search, name, bytes);
    }
    if (kind == TEMPLATE_LIST || kind == TEMPLATE_TUPLE) {
        return template_function_find(template_methods_list, name, bytes);
    }
    if (kind == TEMPLATE_DICT) {
        return template_function_find(template_methods_dict, name, bytes);
    }
    return kind == TEMPLATE_REAL || kind == TEMPLATE_INTEGER
               ? template_function_find(template_methods_number, name, bytes)
               : NULL;
}

/* Is the name one of the parameters, and how many of them are there? */
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

struct template_value template_function_call(struct text_template_run *run,
                                             const struct template_function *function,
                                             struct template_value self,
                                             const struct template_arguments *arguments)
{
    const bool any = strchr(function->parameters, '*') != NULL;
    const size_t most = count_parameters(function->parameters);
    if (!any && arguments->count > most) {
        return template_fail(run, -EINVAL, "%s takes %zu arguments, and %zu were given",
                             function->name, most, arguments->count);
    }
    if (arguments->named != NULL && !template_step(run, arguments->named->count)) {
        return template_undefined("");
    }
    for (size_t i = 0; !any && arguments->named != NULL && i < arguments->named->count; i++) {
        const struct template_value name = arguments->named->pairs[i].key;
        if (!is_parameter(function->parameters, name.as.text, name.bytes)) {
            return template_fail(run, -EINVAL, "%s has no argument '%.*s'", function->name,
                                 (int)(name.bytes < 60 ? name.bytes : 60), name.as.text);
        }
    }
    return function->call(run, self, arguments);
}

struct template_value template_argument(const struct template_arguments *arguments, size_t index,
                                        const char *name, struct template_value otherwise)
{
    if (index < arguments->count) {
        return arguments->items[index];
    }
    const struct template_value *found = arguments->named != NULL
                                             ? template_dict_get(arguments->named, name,
                                                                 strlen(name))
                                             : NULL;
    return found != NULL ? *found : otherwise;
}

bool template_argument_truth(const struct template_arguments *arguments, size_t index,
                             const char *name, bool otherwise)
{
    return template_truth(template_argument(arguments, index, name, template_bool(otherwise)));
}

int64_t template_argument_integer(struct text_template_run *run,
                                  const struct template_arguments *arguments, size_t index,
                                  const char *name, int64_t otherwise)
{
    const struct template_value value = template_argument(arguments, index, name,
                                                          template_integer(otherwise));
    if (value.kind == TEMPLATE_BOOL) {
        return value.as.truth;
    }
    if (value.kind != TEMPLATE_INTEGER) {
        template_fail(run, -EINVAL, "%s has to be an int, and is a %s", name,
                      template_type_name(value));
        return otherwise;
    }
    return value.as.integer;
}

struct template_value template_argument_text(struct text_template_run *run,
                                             const struct template_arguments *arguments,
                                             size_t index, const char *name, const char *otherwise)
{
    const struct template_value value = template_argument(
        arguments, index, name,
        otherwise != NULL ? template_string(otherwise, strlen(otherwise))
                          : template_undefined(name));
    if (value.kind != TEMPLATE_STRING) {
        template_fail(run, -EINVAL, "%s has to be a str, and is a %s", name,
                      template_type_name(value));
        return template_string("", 0);
    }
    return value;
}
