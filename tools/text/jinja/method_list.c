/* method_list.c: methods of lists, tuples, dicts and numbers. */
#include <errno.h>
#include <math.h>

#include "tools/text/jinja/function.h"

static struct jinja_value call_index(struct jinja_run *run, struct jinja_value self,
                                     const struct jinja_arguments *arguments)
{
    const struct jinja_value wanted = jinja_argument(arguments, 0, "value", jinja_undefined(""));
    for (size_t i = 0; i < self.as.list->count && run->rc == 0; i++) {
        if (jinja_equal(run, self.as.list->items[i], wanted)) {
            return jinja_integer((int64_t)i);
        }
    }
    return jinja_fail(run, -EINVAL, "the value is not in the list");
}

static struct jinja_value call_count(struct jinja_run *run, struct jinja_value self,
                                     const struct jinja_arguments *arguments)
{
    int64_t count = 0;
    const struct jinja_value wanted = jinja_argument(arguments, 0, "value", jinja_undefined(""));
    for (size_t i = 0; i < self.as.list->count && run->rc == 0; i++) {
        count += jinja_equal(run, self.as.list->items[i], wanted);
    }
    return jinja_integer(count);
}

static struct jinja_value call_copy(struct jinja_run *run, struct jinja_value self,
                                    const struct jinja_arguments *arguments)
{
    (void)run;
    (void)arguments;
    return self; /* nothing can change it */
}

const struct jinja_function jinja_methods_list[] = {
    {"index", call_index, "value"},
    {"count", call_count, "value"},
    {"copy", call_copy, ""},
    {NULL, NULL, NULL},
};

static struct jinja_value call_get(struct jinja_run *run, struct jinja_value self,
                                   const struct jinja_arguments *arguments)
{
    const struct jinja_value key = jinja_argument(arguments, 0, "key", jinja_undefined("key"));
    const struct jinja_value *found = jinja_dict_find(run, self.as.dict, key);
    return found != NULL ? *found : jinja_argument(arguments, 1, "default", jinja_none());
}

enum part { KEYS, VALUES, ITEMS };

static struct jinja_value parts(struct jinja_run *run, const struct jinja_dict *dict,
                                enum part part)
{
    struct jinja_value list = jinja_list(run, JINJA_LIST);
    for (size_t i = 0; i < dict->count && run->rc == 0; i++) {
        const struct jinja_pair *pair = &dict->pairs[i];
        jinja_list_add(run, list.as.list,
                       part == KEYS     ? pair->key
                       : part == VALUES ? pair->value
                                        : jinja_pair_tuple(run, pair->key, pair->value));
    }
    return list;
}

static struct jinja_value call_keys(struct jinja_run *run, struct jinja_value self,
                                    const struct jinja_arguments *arguments)
{
    (void)arguments;
    return parts(run, self.as.dict, KEYS);
}

static struct jinja_value call_values(struct jinja_run *run, struct jinja_value self,
                                      const struct jinja_arguments *arguments)
{
    (void)arguments;
    return parts(run, self.as.dict, VALUES);
}

static struct jinja_value call_items(struct jinja_run *run, struct jinja_value self,
                                     const struct jinja_arguments *arguments)
{
    (void)arguments;
    return parts(run, self.as.dict, ITEMS);
}

const struct jinja_function jinja_methods_dict[] = {
    {"get", call_get, "key default"}, {"keys", call_keys, ""}, {"values", call_values, ""},
    {"items", call_items, ""},        {"copy", call_copy, ""}, {NULL, NULL, NULL},
};

static struct jinja_value call_is_integer(struct jinja_run *run, struct jinja_value self,
                                          const struct jinja_arguments *arguments)
{
    (void)run;
    (void)arguments;
    return jinja_bool(self.kind == JINJA_INTEGER || floor(self.as.real) == self.as.real);
}

const struct jinja_function jinja_methods_number[] = {
    {"is_integer", call_is_integer, ""},
    {NULL, NULL, NULL},
};
