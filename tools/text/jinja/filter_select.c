/* filter_select.c: filters that apply another filter or test to every element, and `default`. */
#include <errno.h>

#include "tools/text/jinja/function.h"

/* Another function's name among the arguments; what follows it is given to that one. */
static const struct jinja_function *take_function(struct jinja_run *run,
                                                  const struct jinja_arguments *arguments,
                                                  size_t index, bool test,
                                                  struct jinja_arguments *rest)
{
    const struct jinja_value name = arguments->items[index];
    const struct jinja_function *found = NULL;
    if (name.kind == JINJA_STRING) {
        found = test ? jinja_test_find(name.as.text, name.bytes)
                     : run->links->find_filter(name.as.text, name.bytes);
    }
    if (found == NULL) {
        const struct jinja_value shown = jinja_to_string(run, name);
        jinja_fail(run, -EINVAL, "there is no %s '%.*s' here", test ? "test" : "filter",
                   (int)(shown.bytes < 60 ? shown.bytes : 60), shown.as.text);
    }
    *rest = *arguments;
    rest->items += index + 1;
    rest->count -= index + 1;
    return found;
}

static struct jinja_value map_attribute(struct jinja_run *run, const struct jinja_list *items,
                                        const struct jinja_arguments *arguments)
{
    const struct jinja_value attribute = jinja_argument(arguments, 0, "attribute", jinja_none());
    const struct jinja_value otherwise = jinja_argument(arguments, 1, "default", jinja_none());
    struct jinja_value list = jinja_list(run, JINJA_LIST);
    for (size_t i = 0; i < items->count && run->rc == 0; i++) {
        struct jinja_value item = jinja_attribute_path(run, items->items[i], attribute);
        if (item.kind == JINJA_UNDEFINED && otherwise.kind != JINJA_NONE) {
            item = otherwise;
        }
        jinja_list_add(run, list.as.list, item);
    }
    return list;
}

static struct jinja_value call_map(struct jinja_run *run, struct jinja_value self,
                                   const struct jinja_arguments *arguments)
{
    struct jinja_arguments rest;
    const struct jinja_list *items = jinja_iterate(run, self);
    if (items == NULL) {
        return jinja_undefined("");
    }
    if (arguments->count == 0) {
        if (arguments->named == NULL) {
            return jinja_fail(run, -EINVAL, "map requires a filter argument");
        }
        return map_attribute(run, items, arguments);
    }
    const struct jinja_function *filter = take_function(run, arguments, 0, false, &rest);
    struct jinja_value list = jinja_list(run, JINJA_LIST);
    for (size_t i = 0; i < items->count && run->rc == 0; i++) {
        jinja_list_add(run, list.as.list, jinja_function_call(run, filter, items->items[i], &rest));
    }
    return list;
}

/* The elements that pass a test (of an attribute), or those that do not. */
static struct jinja_value choose(struct jinja_run *run, struct jinja_value self,
                                 const struct jinja_arguments *arguments, bool attribute,
                                 bool keeps)
{
    struct jinja_arguments rest = {0};
    const struct jinja_function *test = NULL;
    const struct jinja_list *items = jinja_iterate(run, self);
    struct jinja_value list = jinja_list(run, JINJA_LIST);
    if (attribute && arguments->count == 0) {
        return jinja_fail(run, -EINVAL, "Missing parameter for attribute name");
    }
    if (arguments->count > (size_t)attribute) {
        test = take_function(run, arguments, attribute, true, &rest);
    }
    for (size_t i = 0; items != NULL && i < items->count && run->rc == 0; i++) {
        struct jinja_value item = items->items[i];
        if (attribute) {
            item = jinja_attribute_path(run, item, arguments->items[0]);
        }
        if (test != NULL && run->rc == 0) {
            item = jinja_function_call(run, test, item, &rest);
        }
        if (run->rc == 0 && jinja_truth(item) == keeps) {
            jinja_list_add(run, list.as.list, items->items[i]);
        }
    }
    return list;
}

static struct jinja_value call_select(struct jinja_run *run, struct jinja_value self,
                                      const struct jinja_arguments *arguments)
{
    return choose(run, self, arguments, false, true);
}

static struct jinja_value call_reject(struct jinja_run *run, struct jinja_value self,
                                      const struct jinja_arguments *arguments)
{
    return choose(run, self, arguments, false, false);
}

static struct jinja_value call_selectattr(struct jinja_run *run, struct jinja_value self,
                                          const struct jinja_arguments *arguments)
{
    return choose(run, self, arguments, true, true);
}

static struct jinja_value call_rejectattr(struct jinja_run *run, struct jinja_value self,
                                          const struct jinja_arguments *arguments)
{
    return choose(run, self, arguments, true, false);
}

static struct jinja_value call_default(struct jinja_run *run, struct jinja_value self,
                                       const struct jinja_arguments *arguments)
{
    (void)run;
    const bool falsy = jinja_argument_truth(arguments, 1, "boolean", false);
    return self.kind == JINJA_UNDEFINED || (falsy && !jinja_truth(self))
               ? jinja_argument(arguments, 0, "default_value", jinja_string("", 0))
               : self;
}

static struct jinja_value call_attr(struct jinja_run *run, struct jinja_value self,
                                    const struct jinja_arguments *arguments)
{
    const struct jinja_value name = jinja_argument_text(run, arguments, 0, "name", NULL);
    /* Keys of a dict are no attributes. */
    if (run->rc != 0 || (self.kind == JINJA_DICT &&
                         run->links->find_method(self.kind, name.as.text, name.bytes) == NULL)) {
        return jinja_undefined("an attribute");
    }
    return jinja_attribute(run, self, name.as.text, name.bytes);
}

const struct jinja_function jinja_filters_select[] = {
    {"map", call_map, "*"},
    {"select", call_select, "*"},
    {"reject", call_reject, "*"},
    {"selectattr", call_selectattr, "*"},
    {"rejectattr", call_rejectattr, "*"},
    {"default", call_default, "default_value boolean"},
    {"d", call_default, "default_value boolean"},
    {"attr", call_attr, "name"},
    {NULL, NULL, NULL},
};
