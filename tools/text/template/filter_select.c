/* filter_select.c: filters that apply another filter or test to every element, and `default`. */
#include <errno.h>

#include "tools/text/template/function.h"

/* Another function's name among the arguments; what follows it is given to that one. */
static const struct template_function *take_function(struct text_template_run *run,
                                                     const struct template_arguments *arguments,
                                                     size_t index, bool test,
                                                     struct template_arguments *rest)
{
    const struct template_value name = arguments->items[index];
    const struct template_function *found = NULL;
    if (name.kind == TEMPLATE_STRING) {
        found = test ? template_test_find(name.as.text, name.bytes)
                     : template_filter_find(name.as.text, name.bytes);
    }
    if (found == NULL) {
        const struct template_value shown = template_to_string(run, name);
        template_fail(run, -EINVAL, "there is no %s '%.*s' here", test ? "test" : "filter",
                      (int)(shown.bytes < 60 ? shown.bytes : 60), shown.as.text);
    }
    *rest = *arguments;
    rest->items += index + 1;
    rest->count -= index + 1;
    return found;
}

static struct template_value map_attribute(struct text_template_run *run,
                                           const struct template_list *items,
                                           const struct template_arguments *arguments)
{
    const struct template_value attribute = template_argument(arguments, 0, "attribute",
                                                              template_none());
    const struct template_value otherwise = template_argument(arguments, 1, "default",
                                                              template_none());
    struct template_value list = template_list(run, TEMPLATE_LIST);
    for (size_t i = 0; i < items->count && run->code == 0; i++) {
        struct template_value item = template_attribute_path(run, items->items[i], attribute);
        if (item.kind == TEMPLATE_UNDEFINED && otherwise.kind != TEMPLATE_NONE) {
            item = otherwise;
        }
        template_list_add(run, list.as.list, item);
    }
    return list;
}

static struct template_value call_map(struct text_template_run *run, struct template_value self,
                                      const struct template_arguments *arguments)
{
    struct template_arguments rest;
    const struct template_list *items = template_iterate(run, self);
    if (items == NULL) {
        return template_undefined("");
    }
    if (arguments->count == 0) {
        if (arguments->named == NULL) {
            return template_fail(run, -EINVAL, "map requires a filter argument");
        }
        return map_attribute(run, items, arguments);
    }
    const struct template_function *filter = take_function(run, arguments, 0, false, &rest);
    struct template_value list = template_list(run, TEMPLATE_LIST);
    for (size_t i = 0; i < items->count && run->code == 0; i++) {
        template_list_add(run, list.as.list,
                          template_function_call(run, filter, items->items[i], &rest));
    }
    return list;
}

/* The elements that pass a test (of an attribute), or those that do not. */
static struct template_value choose(struct text_template_run *run, struct template_value self,
                                    const struct template_arguments *arguments, bool attribute,
                                    bool keeps)
{
    struct template_arguments rest = {0};
    const struct template_function *test = NULL;
    const struct template_list *items = template_iterate(run, self);
    struct template_value list = template_list(run, TEMPLATE_LIST);
    if (attribute && arguments->count == 0) {
        return template_fail(run, -EINVAL, "Missing parameter for attribute name");
    }
    if (arguments->count > (size_t)attribute) {
        test = take_function(run, arguments, attribute, true, &rest);
    }
    for (size_t i = 0; items != NULL && i < items->count && run->code == 0; i++) {
        struct template_value item = items->items[i];
        if (attribute) {
            item = template_attribute_path(run, item, arguments->items[0]);
        }
        if (test != NULL && run->code == 0) {
            item = template_function_call(run, test, item, &rest);
        }
        if (run->code == 0 && template_truth(item) == keeps) {
            template_list_add(run, list.as.list, items->items[i]);
        }
    }
    return list;
}

static struct template_value call_select(struct text_template_run *run, struct template_value self,
                                         const struct template_arguments *arguments)
{
    return choose(run, self, arguments, false, true);
}

static struct template_value call_reject(struct text_template_run *run, struct template_value self,
                                         const struct template_arguments *arguments)
{
    return choose(run, self, arguments, false, false);
}

static struct template_value call_selectattr(struct text_template_run *run,
                                             struct template_value self,
                                             const struct template_arguments *arguments)
{
    return choose(run, self, arguments, true, true);
}

static struct template_value call_rejectattr(struct text_template_run *run,
                                             struct template_value self,
                                             const struct template_arguments *arguments)
{
    return choose(run, self, arguments, true, false);
}

static struct template_value call_default(struct text_template_run *run, struct template_value self,
                                          const struct template_arguments *arguments)
{
    (void)run;
    const bool falsy = template_argument_truth(arguments, 1, "boolean", false);
    return self.kind == TEMPLATE_UNDEFINED || (falsy && !template_truth(self))
               ? template_argument(arguments, 0, "default_value", template_string("", 0))
               : self;
}

static struct template_value call_attr(struct text_template_run *run, struct template_value self,
                                       const struct template_arguments *arguments)
{
    const struct template_value name = template_argument_text(run, arguments, 0, "name", NULL);
    /* Keys of a dict are no attributes. */
    if (run->code != 0 || (self.kind == TEMPLATE_DICT &&
                           template_method_find(self.kind, name.as.text, name.bytes) == NULL)) {
        return template_undefined("an attribute");
    }
    return template_attribute(run, self, name.as.text, name.bytes);
}

const struct template_function template_filters_select[] = {
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
