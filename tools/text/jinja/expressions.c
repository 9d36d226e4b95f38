/* expressions.c: evaluates expressions. */
#include "tools/text/jinja/expressions.h"

#include <errno.h>
#include <string.h>

#include "tools/text/jinja/global.h"

struct jinja_scope *jinja_scope_make(struct jinja_run *run, struct jinja_scope *outer)
{
    struct jinja_scope *scope = jinja_alloc(run, sizeof *scope);
    if (scope != NULL) {
        scope->outer = outer;
    }
    return scope;
}

static struct jinja_binding *find(const struct jinja_scope *scope, unsigned name)
{
    for (size_t i = 0; i < scope->count; i++) {
        if (scope->variables[i].name == name) {
            return &scope->variables[i];
        }
    }
    return NULL;
}

void jinja_scope_set(struct jinja_run *run, unsigned name, struct jinja_value value)
{
    struct jinja_scope *scope = run->scope;
    jinja_step(run, scope->count / 16);
    struct jinja_binding *there = find(scope, name);
    if (there != NULL) {
        there->value = value;
        return;
    }
    if (scope->count == scope->room) {
        const size_t room = scope->room * 2 + 4;
        struct jinja_binding *more = jinja_alloc(run, room * sizeof *more);
        if (more == NULL) {
            return;
        }
        if (scope->count > 0) {
            memcpy(more, scope->variables, scope->count * sizeof *more);
        }
        scope->variables = more;
        scope->room = room;
    }
    scope->variables[scope->count++] = (struct jinja_binding){name, value};
}

struct jinja_value jinja_scope_get(struct jinja_run *run, unsigned name)
{
    for (const struct jinja_scope *scope = run->scope; scope != NULL; scope = scope->outer) {
        jinja_step(run, 1 + scope->count / 16);
        const struct jinja_binding *there = find(scope, name);
        if (there != NULL) {
            return there->value;
        }
    }
    const struct jinja_value text = run->names->items[name];
    const struct jinja_function *global = jinja_global_find(text.as.text, text.bytes);
    return global != NULL ? jinja_bind(run, jinja_none(), global) : jinja_undefined(text.as.text);
}

static struct jinja_value evaluate_items(struct jinja_run *run, const struct jinja_node *node,
                                         enum jinja_kind kind)
{
    struct jinja_value list = jinja_list(run, kind);
    for (node = node->first; node != NULL && run->rc == 0; node = node->next) {
        jinja_list_add(run, list.as.list, jinja_evaluate(run, node));
    }
    return list;
}

static struct jinja_value evaluate_dict(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value dict = jinja_dict(run);
    for (node = node->first; node != NULL && run->rc == 0; node = node->next->next) {
        const struct jinja_value key = jinja_evaluate(run, node);
        jinja_dict_set(run, dict.as.dict, key, jinja_evaluate(run, node->next));
    }
    return dict;
}

static struct jinja_value evaluate_concat(struct jinja_run *run, const struct jinja_node *node)
{
    const size_t mark = jinja_capture_begin(run);
    for (node = node->first; node != NULL && run->rc == 0; node = node->next) {
        /* Evaluating the item leaves no output; then its value is written. */
        jinja_write_value(run, jinja_evaluate(run, node));
    }
    return jinja_capture_end(run, mark);
}

static bool is_sign(const char *sign, const char *other)
{
    return strcmp(sign, other) == 0;
}

static bool compare(struct jinja_run *run, const char *sign, struct jinja_value left,
                    struct jinja_value right)
{
    if (is_sign(sign, "==") || is_sign(sign, "!=")) {
        return jinja_equal(run, left, right) == is_sign(sign, "==");
    }
    if (is_sign(sign, "in") || is_sign(sign, "not in")) {
        return jinja_contains(run, right, left) == is_sign(sign, "in");
    }
    if (left.kind == JINJA_UNDEFINED || right.kind == JINJA_UNDEFINED) {
        jinja_fail(run, -EINVAL, "'%s' is undefined",
                   left.kind == JINJA_UNDEFINED ? left.as.text : right.as.text);
        return false;
    }
    const int order = jinja_compare(run, left, right);
    return is_sign(sign, "<")    ? order < 0
           : is_sign(sign, "<=") ? order <= 0
           : is_sign(sign, ">")  ? order > 0
                                 : order >= 0;
}

static struct jinja_value evaluate_compare(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value left = jinja_evaluate(run, node->first);
    for (const struct jinja_node *operand = node->second; operand != NULL && run->rc == 0;
         operand = operand->next) {
        const struct jinja_value right = jinja_evaluate(run, operand->first);
        if (!compare(run, operand->sign, left, right)) {
            return jinja_bool(false);
        }
        left = right;
    }
    return jinja_bool(true);
}

static struct jinja_value evaluate_item(struct jinja_run *run, const struct jinja_node *node)
{
    const struct jinja_node *key = node->second;
    const struct jinja_value value = jinja_evaluate(run, node->first);
    if (run->rc != 0 || key->kind != JINJA_NODE_SLICE) {
        return run->rc != 0 ? value : jinja_item(run, value, jinja_evaluate(run, key));
    }
    const struct jinja_node *parts[3] = {key->first, key->second, key->third};
    struct jinja_value bounds[3];
    for (size_t i = 0; i < 3; i++) {
        bounds[i] = parts[i] != NULL ? jinja_evaluate(run, parts[i]) : jinja_none();
    }
    return run->rc == 0 ? jinja_slice(run, value, bounds) : value;
}

static void spread_items(struct jinja_run *run, struct jinja_value value, struct jinja_list *items)
{
    const struct jinja_list *list = jinja_iterate(run, value);
    for (size_t i = 0; list != NULL && i < list->count; i++) {
        jinja_list_add(run, items, list->items[i]);
    }
}

static void add_named(struct jinja_run *run, struct jinja_arguments *out, struct jinja_value key,
                      struct jinja_value value)
{
    if (out->named == NULL) {
        out->named = jinja_dict(run).as.dict;
    }
    if (run->rc == 0 && jinja_dict_find(run, out->named, key) != NULL) {
        jinja_fail(run, -EINVAL, "the argument '%.*s' is given twice", (int)key.bytes, key.as.text);
    }
    if (run->rc == 0) {
        jinja_dict_set(run, out->named, key, value);
    }
}

void jinja_evaluate_arguments(struct jinja_run *run, const struct jinja_node *first,
                              struct jinja_arguments *out)
{
    const struct jinja_value list = jinja_list(run, JINJA_LIST);
    *out = (struct jinja_arguments){0};
    for (const struct jinja_node *node = first; node != NULL && run->rc == 0; node = node->next) {
        const bool bare = node->kind != JINJA_NODE_KEYWORD && node->kind != JINJA_NODE_SPREAD &&
                          node->kind != JINJA_NODE_SPREAD_KEYWORDS;
        const struct jinja_value value = jinja_evaluate(run, bare ? node : node->first);
        if (run->rc != 0) {
            return;
        }
        if (bare) {
            jinja_list_add(run, list.as.list, value);
        } else if (node->kind == JINJA_NODE_SPREAD) {
            spread_items(run, value, list.as.list);
        } else if (node->kind == JINJA_NODE_KEYWORD) {
            add_named(run, out, run->names->items[node->name], value);
        } else if (value.kind != JINJA_DICT) {
            jinja_fail(run, -EINVAL, "** needs a dict, found '%s'", jinja_type_name(value));
        } else {
            for (size_t i = 0; i < value.as.dict->count && run->rc == 0; i++) {
                add_named(run, out, value.as.dict->pairs[i].key, value.as.dict->pairs[i].value);
            }
        }
    }
    if (run->rc == 0) {
        out->items = list.as.list->items;
        out->count = list.as.list->count;
    }
}

static struct jinja_value evaluate_call(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_arguments arguments;
    const struct jinja_value callee = jinja_evaluate(run, node->first);
    jinja_evaluate_arguments(run, node->second, &arguments);
    run->line = node->line;
    return run->rc == 0 ? run->links->call(run, callee, &arguments) : callee;
}

static struct jinja_value apply(struct jinja_run *run, const struct jinja_node *node,
                                struct jinja_value value)
{
    struct jinja_arguments arguments;
    jinja_evaluate_arguments(run, node->second, &arguments);
    run->line = node->line;
    if (run->rc != 0) {
        return value;
    }
    if (node->function == NULL) {
        return jinja_fail(run, -EINVAL, "unknown %s '%.*s'",
                          node->kind == JINJA_NODE_TEST ? "test" : "filter", (int)node->value.bytes,
                          node->value.as.text);
    }
    return jinja_function_call(run, node->function, value, &arguments);
}

struct jinja_value jinja_apply_filters(struct jinja_run *run, const struct jinja_node *node,
                                       struct jinja_value text)
{
    if (node->first != NULL) {
        text = jinja_apply_filters(run, node->first, text);
    }
    return run->rc == 0 ? apply(run, node, text) : text;
}

static struct jinja_value negate(struct jinja_run *run, struct jinja_value value, bool negative)
{
    if (!jinja_is_number(value)) {
        return jinja_fail(run, -EINVAL, "'%s' is not a number, so it has no sign",
                          jinja_type_name(value));
    }
    if (value.kind == JINJA_REAL) {
        return jinja_real(negative ? -value.as.real : value.as.real);
    }
    return jinja_operate(run, negative ? "-" : "+", jinja_integer(0), value);
}

static struct jinja_value evaluate_node(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value value;
    switch ((int)node->kind) {
    case JINJA_NODE_CONSTANT: return node->value;
    case JINJA_NODE_NAME: return jinja_scope_get(run, node->name);
    case JINJA_NODE_LIST: return evaluate_items(run, node, JINJA_LIST);
    case JINJA_NODE_TUPLE: return evaluate_items(run, node, JINJA_TUPLE);
    case JINJA_NODE_DICT: return evaluate_dict(run, node);
    case JINJA_NODE_CONCAT: return evaluate_concat(run, node);
    case JINJA_NODE_COMPARE: return evaluate_compare(run, node);
    case JINJA_NODE_ITEM: return evaluate_item(run, node);
    case JINJA_NODE_CALL: return evaluate_call(run, node);
    case JINJA_NODE_CONDITION:
        value = jinja_evaluate(run, node->second);
        return run->rc == 0 && jinja_truth(value) ? jinja_evaluate(run, node->first)
               : node->third != NULL              ? jinja_evaluate(run, node->third)
                                                  : jinja_undefined("an if without else");
    default: break;
    }
    /* Other kinds begin with their first part. */
    value = jinja_evaluate(run, node->first);
    if (run->rc != 0) {
        return value;
    }
    switch ((int)node->kind) {
    case JINJA_NODE_NOT: return jinja_bool(!jinja_truth(value));
    case JINJA_NODE_NEGATE: return negate(run, value, true);
    case JINJA_NODE_PLUS: return negate(run, value, false);
    case JINJA_NODE_AND: return jinja_truth(value) ? jinja_evaluate(run, node->second) : value;
    case JINJA_NODE_OR: return jinja_truth(value) ? value : jinja_evaluate(run, node->second);
    case JINJA_NODE_ATTRIBUTE: {
        const struct jinja_value name = run->names->items[node->name];
        return jinja_attribute(run, value, name.as.text, name.bytes);
    }
    case JINJA_NODE_FILTER:
    case JINJA_NODE_TEST: return apply(run, node, value);
    case JINJA_NODE_BINARY: {
        const struct jinja_value right = jinja_evaluate(run, node->second);
        return run->rc == 0 ? jinja_operate(run, node->sign, value, right) : right;
    }
    default: return jinja_fail(run, -EINVAL, "expected an expression");
    }
}

struct jinja_value jinja_evaluate(struct jinja_run *run, const struct jinja_node *node)
{
    if (!jinja_step(run, 1) || !jinja_deeper(run)) {
        return jinja_undefined("");
    }
    run->line = node->line;
    const struct jinja_value value = evaluate_node(run, node);
    run->depth--;
    return value;
}
