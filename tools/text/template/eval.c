/* eval.c: expressions. */
#include "tools/text/template/eval.h"

#include <errno.h>
#include <string.h>

#include "tools/text/template/global.h"

struct template_scope *template_scope_make(struct text_template_run *run,
                                           struct template_scope *outer)
{
    struct template_scope *scope = template_alloc(run, sizeof *scope);
    if (scope != NULL) {
        scope->outer = outer;
    }
    return scope;
}

static struct template_variable *find(const struct template_scope *scope, unsigned name)
{
    for (size_t i = 0; i < scope->count; i++) {
        if (scope->variables[i].name == name) {
            return &scope->variables[i];
        }
    }
    return NULL;
}

void template_scope_set(struct text_template_run *run, unsigned name, struct template_value value)
{
    struct template_scope *scope = run->scope;
    template_step(run, scope->count / 16);
    struct template_variable *there = find(scope, name);
    if (there != NULL) {
        there->value = value;
        return;
    }
    if (scope->count == scope->room) {
        const size_t room = scope->room * 2 + 4;
        struct template_variable *more = template_alloc(run, room * sizeof *more);
        if (more == NULL) {
            return;
        }
        if (scope->count > 0) {
            memcpy(more, scope->variables, scope->count * sizeof *more);
        }
        scope->variables = more;
        scope->room = room;
    }
    scope->variables[scope->count++] = (struct template_variable){name, value};
}

struct template_value template_scope_get(struct text_template_run *run, unsigned name)
{
    for (const struct template_scope *scope = run->scope; scope != NULL; scope = scope->outer) {
        template_step(run, 1 + scope->count / 16);
        const struct template_variable *there = find(scope, name);
        if (there != NULL) {
            return there->value;
        }
    }
    const struct template_value text = run->names->items[name];
    const struct template_function *global = template_global_find(text.as.text, text.bytes);
    return global != NULL ? template_bind(run, template_none(), global)
                          : template_undefined(text.as.text);
}

static struct template_value evaluate_items(struct text_template_run *run,
                                            const struct template_node *node,
                                            enum template_kind kind)
{
    struct template_value list = template_list(run, kind);
    for (node = node->first; node != NULL && run->code == 0; node = node->next) {
        template_list_add(run, list.as.list, template_evaluate(run, node));
    }
    return list;
}

static struct template_value evaluate_dict(struct text_template_run *run,
                                           const struct template_node *node)
{
    struct template_value dict = template_dict(run);
    for (node = node->first; node != NULL && run->code == 0; node = node->next->next) {
        const struct template_value key = template_evaluate(run, node);
        template_dict_set(run, dict.as.dict, key, template_evaluate(run, node->next));
    }
    return dict;
}

static struct template_value evaluate_concat(struct text_template_run *run,
                                             const struct template_node *node)
{
    const size_t mark = template_capture_begin(run);
    for (node = node->first; node != NULL && run->code == 0; node = node->next) {
        /* What an item itself captures is gone again before it is written. */
        template_write_value(run, template_evaluate(run, node));
    }
    return template_capture_end(run, mark);
}

static bool is_sign(const char *sign, const char *other)
{
    return strcmp(sign, other) == 0;
}

static bool compare(struct text_template_run *run, const char *sign, struct template_value left,
                    struct template_value right)
{
    if (is_sign(sign, "==") || is_sign(sign, "!=")) {
        return template_equal(run, left, right) == is_sign(sign, "==");
    }
    if (is_sign(sign, "in") || is_sign(sign, "not in")) {
        return template_contains(run, right, left) == is_sign(sign, "in");
    }
    if (left.kind == TEMPLATE_UNDEFINED || right.kind == TEMPLATE_UNDEFINED) {
        template_fail(run, -EINVAL, "'%s' is undefined",
                      left.kind == TEMPLATE_UNDEFINED ? left.as.text : right.as.text);
        return false;
    }
    const int order = template_compare(run, left, right);
    return is_sign(sign, "<")    ? order < 0
           : is_sign(sign, "<=") ? order <= 0
           : is_sign(sign, ">")  ? order > 0
                                 : order >= 0;
}

static struct template_value evaluate_compare(struct text_template_run *run,
                                              const struct template_node *node)
{
    struct template_value left = template_evaluate(run, node->first);
    for (const struct template_node *operand = node->second; operand != NULL && run->code == 0;
         operand = operand->next) {
        const struct template_value right = template_evaluate(run, operand->first);
        if (!compare(run, operand->sign, left, right)) {
            return template_bool(false);
        }
        left = right;
    }
    return template_bool(true);
}

static struct template_value evaluate_item(struct text_template_run *run,
                                           const struct template_node *node)
{
    const struct template_node *key = node->second;
    const struct template_value value = template_evaluate(run, node->first);
    if (run->code != 0 || key->kind != TEMPLATE_NODE_SLICE) {
        return run->code != 0 ? value : template_item(run, value, template_evaluate(run, key));
    }
    const struct template_node *parts[3] = {key->first, key->second, key->third};
    struct template_value bounds[3];
    for (size_t i = 0; i < 3; i++) {
        bounds[i] = parts[i] != NULL ? template_evaluate(run, parts[i]) : template_none();
    }
    return run->code == 0 ? template_slice(run, value, bounds) : value;
}

static void spread(struct text_template_run *run, struct template_value value,
                   struct template_list *items)
{
    const struct template_list *list = template_iterate(run, value);
    for (size_t i = 0; list != NULL && i < list->count; i++) {
        template_list_add(run, items, list->items[i]);
    }
}

static void add_named(struct text_template_run *run, struct template_arguments *out,
                      struct template_value key, struct template_value value)
{
    if (out->named == NULL) {
        out->named = template_dict(run).as.dict;
    }
    if (run->code == 0 && template_dict_find(run, out->named, key) != NULL) {
        template_fail(run, -EINVAL, "the argument '%.*s' is given twice", (int)key.bytes,
                      key.as.text);
    }
    if (run->code == 0) {
        template_dict_set(run, out->named, key, value);
    }
}

void template_evaluate_arguments(struct text_template_run *run, const struct template_node *first,
                                 struct template_arguments *out)
{
    const struct template_value list = template_list(run, TEMPLATE_LIST);
    *out = (struct template_arguments){0};
    for (const struct template_node *node = first; node != NULL && run->code == 0;
         node = node->next) {
        const bool bare = node->kind != TEMPLATE_NODE_KEYWORD &&
                          node->kind != TEMPLATE_NODE_SPREAD &&
                          node->kind != TEMPLATE_NODE_SPREAD_KEYWORDS;
        const struct template_value value = template_evaluate(run, bare ? node : node->first);
        if (run->code != 0) {
            return;
        }
        if (bare) {
            template_list_add(run, list.as.list, value);
        } else if (node->kind == TEMPLATE_NODE_SPREAD) {
            spread(run, value, list.as.list);
        } else if (node->kind == TEMPLATE_NODE_KEYWORD) {
            add_named(run, out, run->names->items[node->name], value);
        } else if (value.kind != TEMPLATE_DICT) {
            template_fail(run, -EINVAL, "** needs a dict, and stands before a %s",
                          template_type_name(value));
        } else {
            for (size_t i = 0; i < value.as.dict->count && run->code == 0; i++) {
                add_named(run, out, value.as.dict->pairs[i].key, value.as.dict->pairs[i].value);
            }
        }
    }
    if (run->code == 0) {
        out->items = list.as.list->items;
        out->count = list.as.list->count;
    }
}

struct template_value template_call_value(struct text_template_run *run,
                                          struct template_value callee,
                                          const struct template_arguments *arguments)
{
    if (callee.kind == TEMPLATE_MACRO) {
        return template_macro_call(run, callee.as.macro, arguments);
    }
    if (callee.kind == TEMPLATE_METHOD) {
        return template_function_call(run, callee.as.method->function, callee.as.method->self,
                                      arguments);
    }
    if (callee.kind == TEMPLATE_LOOP) {
        return template_loop_call(run, callee.as.loop, arguments);
    }
    if (callee.kind == TEMPLATE_JOINER) {
        return template_joiner_call(callee);
    }
    if (callee.kind == TEMPLATE_UNDEFINED) {
        return template_fail(run, -EINVAL, "'%s' is undefined", callee.as.text);
    }
    return template_fail(run, -EINVAL, "a %s cannot be called", template_type_name(callee));
}

static struct template_value evaluate_call(struct text_template_run *run,
                                           const struct template_node *node)
{
    struct template_arguments arguments;
    const struct template_value callee = template_evaluate(run, node->first);
    template_evaluate_arguments(run, node->second, &arguments);
    run->line = node->line;
    return run->code == 0 ? template_call_value(run, callee, &arguments) : callee;
}

/* A filter or a test, of a value that is there. */
static struct template_value apply(struct text_template_run *run, const struct template_node *node,
                                   struct template_value value)
{
    struct template_arguments arguments;
    template_evaluate_arguments(run, node->second, &arguments);
    run->line = node->line;
    if (run->code != 0) {
        return value;
    }
    if (node->function == NULL) {
        return template_fail(run, -EINVAL, "there is no %s '%.*s' here",
                             node->kind == TEMPLATE_NODE_TEST ? "test" : "filter",
                             (int)node->value.bytes, node->value.as.text);
    }
    return template_function_call(run, node->function, value, &arguments);
}

struct template_value template_apply_filters(struct text_template_run *run,
                                             const struct template_node *node,
                                             struct template_value text)
{
    if (node->first != NULL) {
        text = template_apply_filters(run, node->first, text);
    }
    return run->code == 0 ? apply(run, node, text) : text;
}

static struct template_value negate(struct text_template_run *run, struct template_value value,
                                    bool negative)
{
    if (!template_is_number(value)) {
        return template_fail(run, -EINVAL, "a %s has no sign", template_type_name(value));
    }
    if (value.kind == TEMPLATE_REAL) {
        return template_real(negative ? -value.as.real : value.as.real);
    }
    return template_operate(run, negative ? "-" : "+", template_integer(0), value);
}

static struct template_value evaluate_node(struct text_template_run *run,
                                           const struct template_node *node)
{
    struct template_value value;
    switch ((int)node->kind) {
    case TEMPLATE_NODE_CONSTANT: return node->value;
    case TEMPLATE_NODE_NAME: return template_scope_get(run, node->name);
    case TEMPLATE_NODE_LIST: return evaluate_items(run, node, TEMPLATE_LIST);
    case TEMPLATE_NODE_TUPLE: return evaluate_items(run, node, TEMPLATE_TUPLE);
    case TEMPLATE_NODE_DICT: return evaluate_dict(run, node);
    case TEMPLATE_NODE_CONCAT: return evaluate_concat(run, node);
    case TEMPLATE_NODE_COMPARE: return evaluate_compare(run, node);
    case TEMPLATE_NODE_ITEM: return evaluate_item(run, node);
    case TEMPLATE_NODE_CALL: return evaluate_call(run, node);
    case TEMPLATE_NODE_CONDITION:
        value = template_evaluate(run, node->second);
        return run->code == 0 && template_truth(value) ? template_evaluate(run, node->first)
               : node->third != NULL                   ? template_evaluate(run, node->third)
                                                       : template_undefined("an if without else");
    default: break;
    }
    /* The others begin with their first part. */
    value = template_evaluate(run, node->first);
    if (run->code != 0) {
        return value;
    }
    switch ((int)node->kind) {
    case TEMPLATE_NODE_NOT: return template_bool(!template_truth(value));
    case TEMPLATE_NODE_NEGATE: return negate(run, value, true);
    case TEMPLATE_NODE_PLUS: return negate(run, value, false);
    case TEMPLATE_NODE_AND:
        return template_truth(value) ? template_evaluate(run, node->second) : value;
    case TEMPLATE_NODE_OR:
        return template_truth(value) ? value : template_evaluate(run, node->second);
    case TEMPLATE_NODE_ATTRIBUTE: {
        const struct template_value name = run->names->items[node->name];
        return template_attribute(run, value, name.as.text, name.bytes);
    }
    case TEMPLATE_NODE_FILTER:
    case TEMPLATE_NODE_TEST: return apply(run, node, value);
    case TEMPLATE_NODE_BINARY: {
        const struct template_value right = template_evaluate(run, node->second);
        return run->code == 0 ? template_operate(run, node->sign, value, right) : right;
    }
    default: return template_fail(run, -EINVAL, "an expression was expected");
    }
}

struct template_value template_evaluate(struct text_template_run *run,
                                        const struct template_node *node)
{
    if (!template_step(run, 1) || !template_deeper(run)) {
        return template_undefined("");
    }
    run->line = node->line;
    const struct template_value value = evaluate_node(run, node);
    run->depth--;
    return value;
}
