/* builtins.c: finds filters and methods by name. */
#include "tools/text/jinja/function.h"

const struct jinja_function *jinja_filter_find(const char *name, size_t bytes)
{
    static const struct jinja_function *const tables[] = {
        jinja_filters_text, jinja_filters_list, jinja_filters_select, jinja_filters_number};
    const struct jinja_function *found = NULL;
    for (size_t i = 0; i < sizeof tables / sizeof tables[0] && found == NULL; i++) {
        found = jinja_function_find(tables[i], name, bytes);
    }
    return found;
}

const struct jinja_function *jinja_method_find(enum jinja_kind kind, const char *name, size_t bytes)
{
    const struct jinja_function *found = NULL;
    if (kind == JINJA_STRING) {
        found = jinja_function_find(jinja_methods_text, name, bytes);
        return found != NULL ? found : jinja_function_find(jinja_methods_search, name, bytes);
    }
    if (kind == JINJA_LIST || kind == JINJA_TUPLE) {
        found = jinja_function_find(jinja_methods_sequence, name, bytes);
        return found != NULL || kind == JINJA_TUPLE
                   ? found
                   : jinja_function_find(jinja_methods_list, name, bytes);
    }
    if (kind == JINJA_DICT) {
        return jinja_function_find(jinja_methods_dict, name, bytes);
    }
    return kind == JINJA_REAL || kind == JINJA_INTEGER
               ? jinja_function_find(jinja_methods_number, name, bytes)
               : NULL;
}
