/* filter_list.c: filters and methods of lists and dicts, and methods of numbers. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "core/base/utf8.h"
#include "tools/text/jinja/chars.h"
#include "tools/text/jinja/function.h"

/* ---- filters over elements ---- */

int64_t jinja_length(struct jinja_run *run, struct jinja_value value)
{
    if (jinja_is_str(value)) {
        jinja_step(run, value.bytes / 64);
        return (int64_t)core_utf8_count(value.as.text, value.bytes);
    }
    if (jinja_has_list(value) && value.kind != JINJA_GENERATOR) {
        return (int64_t)value.as.list->count;
    }
    if (value.kind == JINJA_DICT) {
        return (int64_t)value.as.dict->count;
    }
    if (value.kind == JINJA_LOOP) {
        return jinja_attribute(run, value, "length", 6).as.integer;
    }
    if (value.kind != JINJA_UNDEFINED) {
        jinja_fail(run, -EINVAL, "a value of type '%s' has no length", jinja_type_name(value));
    }
    return 0;
}

static struct jinja_value call_length(struct jinja_run *run, struct jinja_value self,
                                      const struct jinja_arguments *arguments)
{
    (void)arguments;
    return jinja_integer(jinja_length(run, self));
}

/* Takes the first element of a generator; the others remain. */
static struct jinja_value take_first(struct jinja_run *run, struct jinja_list *generator)
{
    if (generator->begun) {
        return jinja_fail(run, -EINVAL, "using the rest of a generator is not supported");
    }
    generator->count--;
    generator->room--;
    return *generator->items++;
}

static struct jinja_value end_item(struct jinja_run *run, struct jinja_value self, bool last)
{
    if (self.kind == JINJA_MARKUP && last) {
        return jinja_fail(run, -EINVAL, "last of a result of escape or safe is not supported");
    }
    if (self.kind == JINJA_GENERATOR && last) {
        return jinja_fail(run, -EINVAL, "a generator has no last element");
    }
    if (self.kind == JINJA_GENERATOR && self.as.list->count > 0) {
        return take_first(run, self.as.list);
    }
    const struct jinja_list *items = jinja_iterate(run, self);
    if (items == NULL || items->count == 0) {
        return jinja_undefined("the first or last item of an empty sequence");
    }
    return items->items[last ? items->count - 1 : 0];
}

static struct jinja_value call_first(struct jinja_run *run, struct jinja_value self,
                                     const struct jinja_arguments *arguments)
{
    (void)arguments;
    return end_item(run, self, false);
}

static struct jinja_value call_last(struct jinja_run *run, struct jinja_value self,
                                    const struct jinja_arguments *arguments)
{
    (void)arguments;
    return end_item(run, self, true);
}

static struct jinja_value copy_items(struct jinja_run *run, const struct jinja_list *items,
                                     enum jinja_kind kind, bool backwards)
{
    struct jinja_value list = jinja_list(run, kind);
    for (size_t i = 0; items != NULL && i < items->count && run->rc == 0; i++) {
        jinja_list_add(run, list.as.list, items->items[backwards ? items->count - 1 - i : i]);
    }
    return list;
}

static struct jinja_value call_list(struct jinja_run *run, struct jinja_value self,
                                    const struct jinja_arguments *arguments)
{
    (void)arguments;
    return copy_items(run, jinja_iterate(run, self), JINJA_LIST, false);
}

static struct jinja_value call_reverse(struct jinja_run *run, struct jinja_value self,
                                       const struct jinja_arguments *arguments)
{
    (void)arguments;
    const struct jinja_list *items = jinja_iterate(run, self);
    if (self.kind == JINJA_MARKUP) {
        return jinja_fail(run, -EINVAL, "reverse of a result of escape or safe is not supported");
    }
    if (self.kind != JINJA_STRING || items == NULL) {
        return copy_items(run, items, self.kind == JINJA_GENERATOR ? JINJA_LIST : JINJA_GENERATOR,
                          true);
    }
    const size_t mark = jinja_capture_begin(run);
    for (size_t i = items->count; i-- > 0 && run->rc == 0;) {
        jinja_write_value(run, items->items[i]);
    }
    return jinja_capture_end(run, mark);
}

static struct jinja_value key_of(struct jinja_run *run, struct jinja_value item,
                                 struct jinja_value attribute, bool case_sensitive)
{
    const struct jinja_value key = attribute.kind != JINJA_NONE
                                       ? jinja_attribute_path(run, item, attribute)
                                       : item;
    return jinja_is_str(key) && !case_sensitive ? jinja_case(run, key, false) : key;
}

/* As in Jinja, the key of a sort is a list of attributes, in which equal values need no order. */
static struct jinja_value sort_key(struct jinja_run *run, struct jinja_value item,
                                   struct jinja_value attribute, bool case_sensitive)
{
    struct jinja_value keys = jinja_list(run, JINJA_LIST);
    if (!jinja_is_str(attribute)) {
        jinja_list_add(run, keys.as.list, key_of(run, item, attribute, case_sensitive));
        return keys;
    }
    jinja_step(run, attribute.bytes / 64);
    for (size_t at = 0; at <= attribute.bytes && run->rc == 0;) {
        const char *part = attribute.as.text + at;
        const char *comma = memchr(part, ',', attribute.bytes - at);
        const size_t bytes = comma != NULL ? (size_t)(comma - part) : attribute.bytes - at;
        jinja_list_add(run, keys.as.list,
                       key_of(run, item, jinja_string(part, bytes), case_sensitive));
        at += bytes + 1;
    }
    return keys;
}

static struct jinja_pair *pair_with_keys(struct jinja_run *run, const struct jinja_list *items,
                                         struct jinja_value attribute, bool case_sensitive)
{
    struct jinja_pair *pairs = items != NULL ? jinja_alloc(run, (items->count + 1) * sizeof *pairs)
                                             : NULL;
    for (size_t i = 0; pairs != NULL && i < items->count && run->rc == 0; i++) {
        pairs[i].key = key_of(run, items->items[i], attribute, case_sensitive);
        pairs[i].value = items->items[i];
    }
    return run->rc == 0 ? pairs : NULL;
}

static struct jinja_value call_sort(struct jinja_run *run, struct jinja_value self,
                                    const struct jinja_arguments *arguments)
{
    const struct jinja_list *items = jinja_iterate(run, self);
    const struct jinja_value attribute = jinja_argument(arguments, 2, "attribute", jinja_none());
    const bool case_sensitive = jinja_argument_truth(arguments, 1, "case_sensitive", false);
    struct jinja_pair *keyed = pair_with_keys(run, items, jinja_none(), true);
    struct jinja_value list = jinja_list(run, JINJA_LIST);
    for (size_t i = 0; keyed != NULL && i < items->count && run->rc == 0; i++) {
        keyed[i].key = sort_key(run, keyed[i].value, attribute, case_sensitive);
    }
    const struct jinja_pair *pairs = keyed;
    if (pairs != NULL && run->rc == 0) {
        pairs = jinja_sorted(run, pairs, items->count,
                             jinja_argument_truth(arguments, 0, "reverse", false));
    }
    for (size_t i = 0; pairs != NULL && i < items->count && run->rc == 0; i++) {
        jinja_list_add(run, list.as.list, pairs[i].value);
    }
    return list;
}

static struct jinja_value call_unique(struct jinja_run *run, struct jinja_value self,
                                      const struct jinja_arguments *arguments)
{
    const struct jinja_list *items = jinja_iterate(run, self);
    const struct jinja_pair *pairs = pair_with_keys(
        run, items, jinja_argument(arguments, 1, "attribute", jinja_none()),
        jinja_argument_truth(arguments, 0, "case_sensitive", false));
    struct jinja_value list = jinja_list(run, JINJA_GENERATOR);
    struct jinja_value seen = jinja_list(run, JINJA_LIST);
    for (size_t i = 0; pairs != NULL && i < items->count && run->rc == 0; i++) {
        if (jinja_hashable(run, pairs[i].key) && !jinja_contains(run, seen, pairs[i].key) &&
            run->rc == 0) {
            jinja_list_add(run, seen.as.list, pairs[i].key);
            jinja_list_add(run, list.as.list, pairs[i].value);
        }
    }
    return list;
}

static struct jinja_value find_extreme(struct jinja_run *run, struct jinja_value self,
                                       const struct jinja_arguments *arguments, bool greatest)
{
    const struct jinja_list *items = jinja_iterate(run, self);
    const struct jinja_pair *pairs = pair_with_keys(
        run, items, jinja_argument(arguments, 1, "attribute", jinja_none()),
        jinja_argument_truth(arguments, 0, "case_sensitive", false));
    if (pairs == NULL || items->count == 0) {
        return jinja_undefined("the minimum or maximum of an empty sequence");
    }
    size_t best = 0;
    for (size_t i = 1; i < items->count && run->rc == 0; i++) {
        const int order = jinja_compare(run, pairs[i].key, pairs[best].key);
        best = (greatest ? order > 0 : order < 0) ? i : best;
    }
    return pairs[best].value;
}

static struct jinja_value call_min(struct jinja_run *run, struct jinja_value self,
                                   const struct jinja_arguments *arguments)
{
    return find_extreme(run, self, arguments, false);
}

static struct jinja_value call_max(struct jinja_run *run, struct jinja_value self,
                                   const struct jinja_arguments *arguments)
{
    return find_extreme(run, self, arguments, true);
}

static struct jinja_value call_sum(struct jinja_run *run, struct jinja_value self,
                                   const struct jinja_arguments *arguments)
{
    const struct jinja_value attribute = jinja_argument(arguments, 0, "attribute", jinja_none());
    struct jinja_value sum = jinja_argument(arguments, 1, "start", jinja_integer(0));
    const struct jinja_list *items = jinja_iterate(run, self);
    if (jinja_is_str(sum)) {
        return jinja_fail(run, -EINVAL, "sum cannot add strings: use join");
    }
    for (size_t i = 0; items != NULL && i < items->count && run->rc == 0; i++) {
        sum = jinja_operate(run, "+", sum, key_of(run, items->items[i], attribute, true));
    }
    return sum;
}

static struct jinja_value call_join(struct jinja_run *run, struct jinja_value self,
                                    const struct jinja_arguments *arguments)
{
    const struct jinja_value separator = jinja_to_string(
        run, jinja_argument(arguments, 0, "d", jinja_string("", 0)));
    const struct jinja_value attribute = jinja_argument(arguments, 1, "attribute", jinja_none());
    const struct jinja_list *items = jinja_iterate(run, self);
    const size_t mark = jinja_capture_begin(run);
    for (size_t i = 0; items != NULL && i < items->count && run->rc == 0; i++) {
        const struct jinja_value item = key_of(run, items->items[i], attribute, true);
        jinja_step(run, 1);
        jinja_write(run, separator.as.text, i > 0 ? separator.bytes : 0);
        jinja_write_value(run, item);
    }
    return jinja_capture_end(run, mark);
}

static struct jinja_value call_batch(struct jinja_run *run, struct jinja_value self,
                                     const struct jinja_arguments *arguments)
{
    const int64_t count = jinja_argument_integer(run, arguments, 0, "linecount", 0);
    const struct jinja_value filler = jinja_argument(arguments, 1, "fill_with", jinja_none());
    const struct jinja_list *items = jinja_iterate(run, self);
    struct jinja_value list = jinja_list(run, JINJA_GENERATOR);
    struct jinja_value part = jinja_none();
    if (run->rc == 0 && count < 1) {
        return jinja_fail(run, -EINVAL, "batch needs a number of elements above 0");
    }
    for (size_t i = 0; items != NULL && i < items->count && run->rc == 0; i++) {
        if (i % (size_t)count == 0) {
            part = jinja_list(run, JINJA_LIST);
            jinja_list_add(run, list.as.list, part);
        }
        jinja_list_add(run, part.as.list, items->items[i]);
    }
    while (part.kind == JINJA_LIST && filler.kind != JINJA_NONE && run->rc == 0 &&
           (int64_t)part.as.list->count < count) {
        jinja_list_add(run, part.as.list, filler);
    }
    return list;
}

static struct jinja_value call_slice(struct jinja_run *run, struct jinja_value self,
                                     const struct jinja_arguments *arguments)
{
    const int64_t slices = jinja_argument_integer(run, arguments, 0, "slices", 0);
    const struct jinja_value filler = jinja_argument(arguments, 1, "fill_with", jinja_none());
    const struct jinja_list *items = jinja_iterate(run, self);
    struct jinja_value list = jinja_list(run, JINJA_GENERATOR);
    if (run->rc == 0 && slices < 1) {
        return jinja_fail(run, -EINVAL, "slice needs a number of parts above 0");
    }
    size_t at = 0;
    for (int64_t i = 0; items != NULL && i < slices && run->rc == 0; i++) {
        const bool longer = i < (int64_t)items->count % slices;
        struct jinja_value part = jinja_list(run, JINJA_LIST);
        for (size_t k = 0; k < items->count / (size_t)slices + longer && run->rc == 0; k++) {
            jinja_list_add(run, part.as.list, items->items[at++]);
        }
        if (filler.kind != JINJA_NONE && !longer && run->rc == 0) {
            jinja_list_add(run, part.as.list, filler);
        }
        jinja_list_add(run, list.as.list, part);
    }
    return list;
}

static struct jinja_value items_of(struct jinja_run *run, const struct jinja_pair *pairs,
                                   size_t count)
{
    struct jinja_value list = jinja_list(run, JINJA_GENERATOR);
    for (size_t i = 0; i < count && run->rc == 0; i++) {
        jinja_list_add(run, list.as.list, jinja_pair_tuple(run, pairs[i].key, pairs[i].value));
    }
    return list;
}

static struct jinja_value call_dictsort(struct jinja_run *run, struct jinja_value self,
                                        const struct jinja_arguments *arguments)
{
    const bool case_sensitive = jinja_argument_truth(arguments, 0, "case_sensitive", false);
    const struct jinja_value by = jinja_argument(arguments, 1, "by", jinja_string("key", 3));
    if (self.kind != JINJA_DICT) {
        return jinja_fail(run, -EINVAL, "dictsort needs a dict, not %s", jinja_type_name(self));
    }
    if (!jinja_is_text(by, "key") && !jinja_is_text(by, "value")) {
        return jinja_fail(run, -EINVAL, "dictsort sorts by key or value only");
    }
    const size_t count = self.as.dict->count;
    struct jinja_value items = items_of(run, self.as.dict->pairs, count);
    const struct jinja_pair *pairs = run->rc != 0
                                         ? NULL
                                         : pair_with_keys(
                                               run, items.as.list,
                                               jinja_integer(jinja_is_text(by, "value") ? 1 : 0),
                                               case_sensitive);
    if (pairs != NULL) {
        pairs = jinja_sorted(run, pairs, count,
                             jinja_argument_truth(arguments, 2, "reverse", false));
    }
    struct jinja_value list = jinja_list(run, JINJA_LIST);
    for (size_t i = 0; pairs != NULL && i < count && run->rc == 0; i++) {
        jinja_list_add(run, list.as.list, pairs[i].value);
    }
    return list;
}

static struct jinja_value call_groupby(struct jinja_run *run, struct jinja_value self,
                                       const struct jinja_arguments *arguments)
{
    const struct jinja_value attribute = jinja_argument(arguments, 0, "attribute", jinja_none());
    const bool case_sensitive = jinja_argument_truth(arguments, 2, "case_sensitive", false);
    const struct jinja_list *items = jinja_iterate(run, self);
    struct jinja_value list = jinja_list(run, JINJA_LIST);
    if (jinja_argument(arguments, 1, "default", jinja_none()).kind != JINJA_NONE) {
        return jinja_fail(run, -EINVAL, "groupby with a default is not supported");
    }
    const struct jinja_pair *pairs = pair_with_keys(run, items, attribute, case_sensitive);
    pairs = pairs != NULL ? jinja_sorted(run, pairs, items->count, false) : NULL;
    struct jinja_value group = jinja_none();
    for (size_t i = 0; pairs != NULL && i < items->count && run->rc == 0; i++) {
        if (i == 0 || !jinja_equal(run, pairs[i - 1].key, pairs[i].key)) {
            const struct jinja_value key = key_of(run, pairs[i].value, attribute, true);
            group = jinja_list(run, JINJA_LIST);
            const struct jinja_value pair = jinja_pair_tuple(run, key, group);
            jinja_list_add(run, list.as.list, pair);
            if (run->rc != 0) {
                break;
            }
            pair.as.list->group = true;
        }
        if (run->rc == 0) {
            jinja_list_add(run, group.as.list, pairs[i].value);
        }
    }
    return list;
}

static struct jinja_value call_items(struct jinja_run *run, struct jinja_value self,
                                     const struct jinja_arguments *arguments)
{
    (void)arguments;
    if (self.kind == JINJA_UNDEFINED) {
        return jinja_list(run, JINJA_GENERATOR);
    }
    if (self.kind != JINJA_DICT) {
        return jinja_fail(run, -EINVAL, "items needs a dict");
    }
    return items_of(run, self.as.dict->pairs, self.as.dict->count);
}

const struct jinja_function jinja_filters_list[] = {
    {"length", call_length, ""},
    {"count", call_length, ""},
    {"first", call_first, ""},
    {"last", call_last, ""},
    {"list", call_list, ""},
    {"reverse", call_reverse, ""},
    {"sort", call_sort, "reverse? case_sensitive? attribute?"},
    {"unique", call_unique, "case_sensitive? attribute?"},
    {"min", call_min, "case_sensitive? attribute?"},
    {"max", call_max, "case_sensitive? attribute?"},
    {"sum", call_sum, "attribute? start?"},
    {"join", call_join, "d? attribute?"},
    {"batch", call_batch, "linecount fill_with?"},
    {"slice", call_slice, "slices fill_with?"},
    {"dictsort", call_dictsort, "case_sensitive? by? reverse?"},
    {"groupby", call_groupby, "attribute default? case_sensitive?"},
    {"items", call_items, ""},
    {NULL, NULL, NULL},
};

/* ---- filters that apply another function to elements, `default` and `attr` ---- */

/* Argument `index` names the function; later arguments are for that function. */
static const struct jinja_function *take_function(struct jinja_run *run,
                                                  const struct jinja_arguments *arguments,
                                                  size_t index, bool test,
                                                  struct jinja_arguments *rest)
{
    const struct jinja_value name = arguments->items[index];
    const struct jinja_function *found = NULL;
    if (jinja_is_str(name)) {
        found = test ? jinja_test_find(name.as.text, name.bytes)
                     : run->links->find_filter(name.as.text, name.bytes);
    }
    if (found == NULL) {
        const struct jinja_value shown = jinja_to_string(run, name);
        jinja_fail(run, -EINVAL, "unknown %s '%.*s'", test ? "test" : "filter",
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
    struct jinja_value list = jinja_list(run, JINJA_GENERATOR);
    for (size_t i = 0; i < items->count && run->rc == 0; i++) {
        jinja_list_add(run, list.as.list,
                       jinja_attribute_path_or(run, items->items[i], attribute, otherwise));
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
        const struct jinja_function attribute = {"map", NULL, "attribute default?"};
        const struct jinja_value checked = jinja_check_arguments(run, &attribute, arguments);
        return run->rc == 0 ? map_attribute(run, items, arguments) : checked;
    }
    const struct jinja_function *filter = take_function(run, arguments, 0, false, &rest);
    struct jinja_value list = jinja_list(run, JINJA_GENERATOR);
    for (size_t i = 0; i < items->count && run->rc == 0; i++) {
        jinja_list_add(run, list.as.list, jinja_function_call(run, filter, items->items[i], &rest));
    }
    return list;
}

/* With `attribute`, an attribute is tested. */
static struct jinja_value select_by_test(struct jinja_run *run, struct jinja_value self,
                                         const struct jinja_arguments *arguments, bool attribute,
                                         bool keeps)
{
    struct jinja_arguments rest = {0};
    const struct jinja_function *test = NULL;
    const struct jinja_list *items = jinja_iterate(run, self);
    struct jinja_value list = jinja_list(run, JINJA_GENERATOR);
    if (attribute && arguments->count == 0) {
        return jinja_fail(run, -EINVAL, "the name of the attribute is missing");
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
    return select_by_test(run, self, arguments, false, true);
}

static struct jinja_value call_reject(struct jinja_run *run, struct jinja_value self,
                                      const struct jinja_arguments *arguments)
{
    return select_by_test(run, self, arguments, false, false);
}

static struct jinja_value call_selectattr(struct jinja_run *run, struct jinja_value self,
                                          const struct jinja_arguments *arguments)
{
    return select_by_test(run, self, arguments, true, true);
}

static struct jinja_value call_rejectattr(struct jinja_run *run, struct jinja_value self,
                                          const struct jinja_arguments *arguments)
{
    return select_by_test(run, self, arguments, true, false);
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
    /* Keys of a dict are not attributes. */
    if (run->rc != 0 || (self.kind == JINJA_DICT &&
                         run->links->find_method(self.kind, name.as.text, name.bytes) == NULL)) {
        return jinja_undefined("an attribute");
    }
    return jinja_attribute(run, self, name.as.text, name.bytes);
}

const struct jinja_function jinja_filters_select[] = {
    {"map", call_map, "**"},
    {"select", call_select, "**"},
    {"reject", call_reject, "**"},
    {"selectattr", call_selectattr, "**"},
    {"rejectattr", call_rejectattr, "**"},
    {"default", call_default, "default_value? boolean?"},
    {"d", call_default, "default_value? boolean?"},
    {"attr", call_attr, "name"},
    {NULL, NULL, NULL},
};

/* ---- methods of lists, tuples, dicts and numbers ---- */

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
    return self; /* values are immutable */
}

const struct jinja_function jinja_methods_sequence[] = {
    {"index", call_index, "-value"},
    {"count", call_count, "-value"},
    {NULL, NULL, NULL},
};

const struct jinja_function jinja_methods_list[] = {
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

/* Returns a view: KEYS, VALUES or ITEMS. */
static struct jinja_value view_dict(struct jinja_run *run, const struct jinja_dict *dict,
                                    enum jinja_kind kind)
{
    struct jinja_value list = jinja_list(run, kind);
    for (size_t i = 0; i < dict->count && run->rc == 0; i++) {
        const struct jinja_pair *pair = &dict->pairs[i];
        jinja_list_add(run, list.as.list,
                       kind == JINJA_KEYS     ? pair->key
                       : kind == JINJA_VALUES ? pair->value
                                              : jinja_pair_tuple(run, pair->key, pair->value));
    }
    return list;
}

static struct jinja_value call_keys(struct jinja_run *run, struct jinja_value self,
                                    const struct jinja_arguments *arguments)
{
    (void)arguments;
    return view_dict(run, self.as.dict, JINJA_KEYS);
}

static struct jinja_value call_values(struct jinja_run *run, struct jinja_value self,
                                      const struct jinja_arguments *arguments)
{
    (void)arguments;
    return view_dict(run, self.as.dict, JINJA_VALUES);
}

static struct jinja_value method_items(struct jinja_run *run, struct jinja_value self,
                                       const struct jinja_arguments *arguments)
{
    (void)arguments;
    return view_dict(run, self.as.dict, JINJA_ITEMS);
}

const struct jinja_function jinja_methods_dict[] = {
    {"get", call_get, "-key -default?"}, {"keys", call_keys, ""}, {"values", call_values, ""},
    {"items", method_items, ""},         {"copy", call_copy, ""}, {NULL, NULL, NULL},
};

static struct jinja_value call_is_integer(struct jinja_run *run, struct jinja_value self,
                                          const struct jinja_arguments *arguments)
{
    (void)run;
    (void)arguments;
    return jinja_bool(self.kind == JINJA_INTEGER ||
                      (isfinite(self.as.real) && floor(self.as.real) == self.as.real));
}

const struct jinja_function jinja_methods_number[] = {
    {"is_integer", call_is_integer, ""},
    {NULL, NULL, NULL},
};
