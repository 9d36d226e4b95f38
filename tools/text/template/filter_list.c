/* filter_list.c: filters over elements, and methods of lists and dicts. */
#include <errno.h>
#include <string.h>

#include "tools/text/template/chars.h"
#include "tools/text/template/function.h"

static struct template_value call_length(struct text_template_run *run, struct template_value self,
                                         const struct template_arguments *arguments)
{
    (void)arguments;
    if (self.kind == TEMPLATE_STRING) {
        template_step(run, self.bytes / 64);
        return template_integer((int64_t)template_char_count(self.as.text, self.bytes));
    }
    if (template_is_number(self) || self.kind == TEMPLATE_NONE) {
        return template_fail(run, -EINVAL, "object of type '%s' has no len()",
                             template_type_name(self));
    }
    if (self.kind == TEMPLATE_DICT) {
        return template_integer((int64_t)self.as.dict->count);
    }
    const struct template_list *items = template_iterate(run, self);
    return template_integer(items != NULL ? (int64_t)items->count : 0);
}

static struct template_value end_item(struct text_template_run *run, struct template_value self,
                                      bool last)
{
    const struct template_list *items = template_iterate(run, self);
    if (items == NULL || items->count == 0) {
        return template_undefined("No first item, sequence was empty.");
    }
    return items->items[last ? items->count - 1 : 0];
}

static struct template_value call_first(struct text_template_run *run, struct template_value self,
                                        const struct template_arguments *arguments)
{
    (void)arguments;
    return end_item(run, self, false);
}

static struct template_value call_last(struct text_template_run *run, struct template_value self,
                                       const struct template_arguments *arguments)
{
    (void)arguments;
    return end_item(run, self, true);
}

static struct template_value copy_items(struct text_template_run *run,
                                        const struct template_list *items, bool backwards)
{
    struct template_value list = template_list(run, TEMPLATE_LIST);
    for (size_t i = 0; items != NULL && i < items->count && run->code == 0; i++) {
        template_list_add(run, list.as.list, items->items[backwards ? items->count - 1 - i : i]);
    }
    return list;
}

static struct template_value call_list(struct text_template_run *run, struct template_value self,
                                       const struct template_arguments *arguments)
{
    (void)arguments;
    return copy_items(run, template_iterate(run, self), false);
}

static struct template_value call_reverse(struct text_template_run *run, struct template_value self,
                                          const struct template_arguments *arguments)
{
    (void)arguments;
    const struct template_list *items = template_iterate(run, self);
    if (self.kind != TEMPLATE_STRING || items == NULL) {
        return copy_items(run, items, true);
    }
    const size_t mark = template_capture_begin(run);
    for (size_t i = items->count; i-- > 0 && run->code == 0;) {
        template_write_value(run, items->items[i]);
    }
    return template_capture_end(run, mark);
}

/* What an element is sorted by: several attributes make a list. */
static struct template_value key_of(struct text_template_run *run, struct template_value item,
                                    struct template_value attribute, bool case_sensitive)
{
    struct template_value key = item;
    if (attribute.kind == TEMPLATE_STRING && template_step(run, attribute.bytes / 64) &&
        memchr(attribute.as.text, ',', attribute.bytes) != NULL) {
        struct template_value keys = template_list(run, TEMPLATE_LIST);
        for (size_t at = 0; at <= attribute.bytes && run->code == 0;) {
            const char *part = attribute.as.text + at;
            const char *comma = memchr(part, ',', attribute.bytes - at);
            const size_t bytes = comma != NULL ? (size_t)(comma - part) : attribute.bytes - at;
            template_list_add(run, keys.as.list,
                              key_of(run, item, template_string(part, bytes), case_sensitive));
            at += bytes + 1;
        }
        return keys;
    }
    if (attribute.kind != TEMPLATE_NONE) {
        key = template_attribute_path(run, item, attribute);
    }
    return key.kind == TEMPLATE_STRING && !case_sensitive ? template_case(run, key, false) : key;
}

/* The elements with their keys. */
static struct template_pair *keyed(struct text_template_run *run, const struct template_list *items,
                                   struct template_value attribute, bool case_sensitive)
{
    struct template_pair *pairs = items != NULL
                                      ? template_alloc(run, (items->count + 1) * sizeof *pairs)
                                      : NULL;
    for (size_t i = 0; pairs != NULL && i < items->count && run->code == 0; i++) {
        pairs[i].key = key_of(run, items->items[i], attribute, case_sensitive);
        pairs[i].value = items->items[i];
    }
    return run->code == 0 ? pairs : NULL;
}

static struct template_value call_sort(struct text_template_run *run, struct template_value self,
                                       const struct template_arguments *arguments)
{
    const struct template_list *items = template_iterate(run, self);
    const struct template_pair *pairs = keyed(
        run, items, template_argument(arguments, 2, "attribute", template_none()),
        template_argument_truth(arguments, 1, "case_sensitive", false));
    struct template_value list = template_list(run, TEMPLATE_LIST);
    if (pairs != NULL) {
        pairs = template_sorted(run, pairs, items->count,
                                template_argument_truth(arguments, 0, "reverse", false));
    }
    for (size_t i = 0; pairs != NULL && i < items->count && run->code == 0; i++) {
        template_list_add(run, list.as.list, pairs[i].value);
    }
    return list;
}

static struct template_value call_unique(struct text_template_run *run, struct template_value self,
                                         const struct template_arguments *arguments)
{
    const struct template_list *items = template_iterate(run, self);
    const struct template_pair *pairs = keyed(
        run, items, template_argument(arguments, 1, "attribute", template_none()),
        template_argument_truth(arguments, 0, "case_sensitive", false));
    struct template_value list = template_list(run, TEMPLATE_LIST);
    struct template_value seen = template_list(run, TEMPLATE_LIST);
    for (size_t i = 0; pairs != NULL && i < items->count && run->code == 0; i++) {
        if (!template_contains(run, seen, pairs[i].key) && run->code == 0) {
            template_list_add(run, seen.as.list, pairs[i].key);
            template_list_add(run, list.as.list, pairs[i].value);
        }
    }
    return list;
}

static struct template_value extreme(struct text_template_run *run, struct template_value self,
                                     const struct template_arguments *arguments, bool greatest)
{
    const struct template_list *items = template_iterate(run, self);
    const struct template_pair *pairs = keyed(
        run, items, template_argument(arguments, 1, "attribute", template_none()),
        template_argument_truth(arguments, 0, "case_sensitive", false));
    if (pairs == NULL || items->count == 0) {
        return template_undefined("No aggregated item, sequence was empty.");
    }
    size_t best = 0;
    for (size_t i = 1; i < items->count && run->code == 0; i++) {
        const int order = template_compare(run, pairs[i].key, pairs[best].key);
        best = (greatest ? order > 0 : order < 0) ? i : best;
    }
    return pairs[best].value;
}

static struct template_value call_min(struct text_template_run *run, struct template_value self,
                                      const struct template_arguments *arguments)
{
    return extreme(run, self, arguments, false);
}

static struct template_value call_max(struct text_template_run *run, struct template_value self,
                                      const struct template_arguments *arguments)
{
    return extreme(run, self, arguments, true);
}

static struct template_value call_sum(struct text_template_run *run, struct template_value self,
                                      const struct template_arguments *arguments)
{
    const struct template_value attribute = template_argument(arguments, 0, "attribute",
                                                              template_none());
    struct template_value sum = template_argument(arguments, 1, "start", template_integer(0));
    const struct template_list *items = template_iterate(run, self);
    for (size_t i = 0; items != NULL && i < items->count && run->code == 0; i++) {
        sum = template_operate(run, "+", sum, key_of(run, items->items[i], attribute, true));
    }
    return sum;
}

static struct template_value call_join(struct text_template_run *run, struct template_value self,
                                       const struct template_arguments *arguments)
{
    const struct template_value separator = template_to_string(
        run, template_argument(arguments, 0, "d", template_string("", 0)));
    const struct template_value attribute = template_argument(arguments, 1, "attribute",
                                                              template_none());
    const struct template_list *items = template_iterate(run, self);
    const size_t mark = template_capture_begin(run);
    for (size_t i = 0; items != NULL && i < items->count && run->code == 0; i++) {
        const struct template_value item = key_of(run, items->items[i], attribute, true);
        template_step(run, 1);
        template_write(run, separator.as.text, i > 0 ? separator.bytes : 0);
        template_write_value(run, item);
    }
    return template_capture_end(run, mark);
}

static struct template_value call_batch(struct text_template_run *run, struct template_value self,
                                        const struct template_arguments *arguments)
{
    const int64_t count = template_argument_integer(run, arguments, 0, "linecount", 0);
    const struct template_value filler = template_argument(arguments, 1, "fill_with",
                                                           template_none());
    const struct template_list *items = template_iterate(run, self);
    struct template_value list = template_list(run, TEMPLATE_LIST);
    struct template_value part = template_none();
    if (run->code == 0 && count < 1) {
        return template_fail(run, -EINVAL, "batch needs a number of elements above 0");
    }
    for (size_t i = 0; items != NULL && i < items->count && run->code == 0; i++) {
        if (i % (size_t)count == 0) {
            part = template_list(run, TEMPLATE_LIST);
            template_list_add(run, list.as.list, part);
        }
        template_list_add(run, part.as.list, items->items[i]);
    }
    while (part.kind == TEMPLATE_LIST && filler.kind != TEMPLATE_NONE && run->code == 0 &&
           (int64_t)part.as.list->count < count) {
        template_list_add(run, part.as.list, filler);
    }
    return list;
}

static struct template_value call_slice(struct text_template_run *run, struct template_value self,
                                        const struct template_arguments *arguments)
{
    const int64_t slices = template_argument_integer(run, arguments, 0, "slices", 0);
    const struct template_value filler = template_argument(arguments, 1, "fill_with",
                                                           template_none());
    const struct template_list *items = template_iterate(run, self);
    struct template_value list = template_list(run, TEMPLATE_LIST);
    if (run->code == 0 && slices < 1) {
        return template_fail(run, -EINVAL, "slice needs a number of parts above 0");
    }
    size_t at = 0;
    for (int64_t i = 0; items != NULL && i < slices && run->code == 0; i++) {
        const bool longer = i < (int64_t)items->count % slices;
        struct template_value part = template_list(run, TEMPLATE_LIST);
        for (size_t k = 0; k < items->count / (size_t)slices + longer && run->code == 0; k++) {
            template_list_add(run, part.as.list, items->items[at++]);
        }
        if (filler.kind != TEMPLATE_NONE && !longer && run->code == 0) {
            template_list_add(run, part.as.list, filler);
        }
        template_list_add(run, list.as.list, part);
    }
    return list;
}

static struct template_value items_of(struct text_template_run *run,
                                      const struct template_pair *pairs, size_t count)
{
    struct template_value list = template_list(run, TEMPLATE_LIST);
    for (size_t i = 0; i < count && run->code == 0; i++) {
        template_list_add(run, list.as.list,
                          template_pair_tuple(run, pairs[i].key, pairs[i].value));
    }
    return list;
}

static struct template_value call_dictsort(struct text_template_run *run,
                                           struct template_value self,
                                           const struct template_arguments *arguments)
{
    const bool case_sensitive = template_argument_truth(arguments, 0, "case_sensitive", false);
    const struct template_value by = template_argument(arguments, 1, "by",
                                                       template_string("key", 3));
    if (self.kind != TEMPLATE_DICT) {
        return template_fail(run, -EINVAL, "dictsort needs a dict, not %s",
                             template_type_name(self));
    }
    const size_t count = self.as.dict->count;
    struct template_value items = items_of(run, self.as.dict->pairs, count);
    const struct template_pair *pairs =
        run->code != 0
            ? NULL
            : keyed(run, items.as.list, template_integer(template_is_text(by, "value") ? 1 : 0),
                    case_sensitive);
    if (pairs != NULL) {
        pairs = template_sorted(run, pairs, count,
                                template_argument_truth(arguments, 2, "reverse", false));
    }
    struct template_value list = template_list(run, TEMPLATE_LIST);
    for (size_t i = 0; pairs != NULL && i < count && run->code == 0; i++) {
        template_list_add(run, list.as.list, pairs[i].value);
    }
    return list;
}

static struct template_value call_groupby(struct text_template_run *run, struct template_value self,
                                          const struct template_arguments *arguments)
{
    const struct template_value attribute = template_argument(arguments, 0, "attribute",
                                                              template_none());
    const bool case_sensitive = template_argument_truth(arguments, 1, "case_sensitive", false);
    const struct template_list *items = template_iterate(run, self);
    struct template_value list = template_list(run, TEMPLATE_LIST);
    const struct template_pair *pairs = keyed(run, items, attribute, case_sensitive);
    pairs = pairs != NULL ? template_sorted(run, pairs, items->count, false) : NULL;
    struct template_value group = template_none();
    for (size_t i = 0; pairs != NULL && i < items->count && run->code == 0; i++) {
        if (i == 0 || !template_equal(run, pairs[i - 1].key, pairs[i].key)) {
            const struct template_value key = key_of(run, pairs[i].value, attribute, true);
            group = template_list(run, TEMPLATE_LIST);
            const struct template_value pair = template_pair_tuple(run, key, group);
            template_list_add(run, list.as.list, pair);
            if (run->code != 0) {
                break;
            }
            pair.as.list->group = true;
        }
        if (run->code == 0) {
            template_list_add(run, group.as.list, pairs[i].value);
        }
    }
    return list;
}

static struct template_value call_items(struct text_template_run *run, struct template_value self,
                                        const struct template_arguments *arguments)
{
    (void)arguments;
    if (self.kind == TEMPLATE_UNDEFINED) {
        return template_list(run, TEMPLATE_LIST);
    }
    if (self.kind != TEMPLATE_DICT) {
        return template_fail(run, -EINVAL, "Can only get item pairs from a mapping.");
    }
    return items_of(run, self.as.dict->pairs, self.as.dict->count);
}

const struct template_function template_filters_list[] = {
    {"length", call_length, ""},
    {"count", call_length, ""},
    {"first", call_first, ""},
    {"last", call_last, ""},
    {"list", call_list, ""},
    {"reverse", call_reverse, ""},
    {"sort", call_sort, "reverse case_sensitive attribute"},
    {"unique", call_unique, "case_sensitive attribute"},
    {"min", call_min, "case_sensitive attribute"},
    {"max", call_max, "case_sensitive attribute"},
    {"sum", call_sum, "attribute start"},
    {"join", call_join, "d attribute"},
    {"batch", call_batch, "linecount fill_with"},
    {"slice", call_slice, "slices fill_with"},
    {"dictsort", call_dictsort, "case_sensitive by reverse"},
    {"groupby", call_groupby, "attribute case_sensitive"},
    {"items", call_items, ""},
    {NULL, NULL, NULL},
};
