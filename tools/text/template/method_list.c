/* method_list.c: methods of lists, tuples, dicts and numbers. */
#include <errno.h>
#include <math.h>

#include "tools/text/template/function.h"

static struct template_value call_index(struct text_template_run *run, struct template_value self,
                                        const struct template_arguments *arguments)
{
    const struct template_value wanted = template_argument(arguments, 0, "value",
                                                           template_undefined(""));
    for (size_t i = 0; i < self.as.list->count && run->code == 0; i++) {
        if (template_equal(run, self.as.list->items[i], wanted)) {
            return template_integer((int64_t)i);
        }
    }
    return template_fail(run, -EINVAL, "the value is not in the list");
}

static struct template_value call_count(struct text_template_run *run, struct template_value self,
                                        const struct template_arguments *arguments)
{
    int64_t count = 0;
    const struct template_value wanted = template_argument(arguments, 0, "value",
                                                           template_undefined(""));
    for (size_t i = 0; i < self.as.list->count && run->code == 0; i++) {
        count += template_equal(run, self.as.list->items[i], wanted);
    }
    return template_integer(count);
}

static struct template_value call_copy(struct text_template_run *run, struct template_value self,
                                       const struct template_arguments *arguments)
{
    (void)run;
    (void)arguments;
    return self; /* nothing can change it */
}

const struct template_function template_methods_list[] = {
    {"index", call_index, "value"},
    {"count", call_count, "value"},
    {"copy", call_copy, ""},
    {NULL, NULL, NULL},
};

static struct template_value call_get(struct text_template_run *run, struct template_value self,
                                      const struct template_arguments *arguments)
{
    const struct template_value key = template_argument(arguments, 0, "key",
                                                        template_undefined("key"));
    const struct template_value *found = template_dict_find(run, self.as.dict, key);
    return found != NULL ? *found : template_argument(arguments, 1, "default", template_none());
}

enum part { KEYS, VALUES, ITEMS };

static struct template_value parts(struct text_template_run *run, const struct template_dict *dict,
                                   enum part part)
{
    struct template_value list = template_list(run, TEMPLATE_LIST);
    for (size_t i = 0; i < dict->count && run->code == 0; i++) {
        const struct template_pair *pair = &dict->pairs[i];
        template_list_add(run, list.as.list,
                          part == KEYS     ? pair->key
                          : part == VALUES ? pair->value
                                           : template_pair_tuple(run, pair->key, pair->value));
    }
    return list;
}

static struct template_value call_keys(struct text_template_run *run, struct template_value self,
                                       const struct template_arguments *arguments)
{
    (void)arguments;
    return parts(run, self.as.dict, KEYS);
}

static struct template_value call_values(struct text_template_run *run, struct template_value self,
                                         const struct template_arguments *arguments)
{
    (void)arguments;
    return parts(run, self.as.dict, VALUES);
}

static struct template_value call_items(struct text_template_run *run, struct template_value self,
                                        const struct template_arguments *arguments)
{
    (void)arguments;
    return parts(run, self.as.dict, ITEMS);
}

const struct template_function template_methods_dict[] = {
    {"get", call_get, "key default"}, {"keys", call_keys, ""}, {"values", call_values, ""},
    {"items", call_items, ""},        {"copy", call_copy, ""}, {NULL, NULL, NULL},
};

static struct template_value call_is_integer(struct text_template_run *run,
                                             struct template_value self,
                                             const struct template_arguments *arguments)
{
    (void)run;
    (void)arguments;
    return template_bool(self.kind == TEMPLATE_INTEGER || floor(self.as.real) == self.as.real);
}

const struct template_function template_methods_number[] = {
    {"is_integer", call_is_integer, ""},
    {NULL, NULL, NULL},
};
