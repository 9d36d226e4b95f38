/* statements.c: executes statements, loops and macros. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "tools/text/jinja/expressions.h"
#include "tools/text/jinja/global.h"

/* Assigns to a name, to an attribute of a namespace or, item by item, to several targets. */
static void assign_target(struct jinja_run *run, const struct jinja_node *target,
                          struct jinja_value value)
{
    if (run->rc != 0) {
        return;
    }
    if (target->kind == JINJA_NODE_NAME) {
        jinja_scope_set(run, target->name, value);
    } else if (target->kind == JINJA_NODE_NAMESPACE) {
        const struct jinja_value space = jinja_scope_get(run, target->name);
        if (space.kind != JINJA_NAMESPACE) {
            jinja_fail(run, -EINVAL, "only attributes of a namespace can be set");
        } else if (target->value.as.text[0] == '_') {
            jinja_fail(run, -EINVAL, "a namespace cannot have an attribute that begins with _");
        } else {
            jinja_dict_set(run, space.as.dict, target->value, value);
        }
    } else {
        const struct jinja_list *items = jinja_iterate(run, value);
        const struct jinja_node *part = target->first;
        size_t i = 0;
        for (; items != NULL && part != NULL && i < items->count; part = part->next, i++) {
            assign_target(run, part, items->items[i]);
        }
        if (run->rc == 0 && (part != NULL || i < items->count)) {
            jinja_fail(run, -EINVAL, "cannot unpack %zu values to a different number of names",
                       items->count);
        }
    }
}

/* Executes a body in its own scope. */
static struct jinja_value capture(struct jinja_run *run, const struct jinja_node *body)
{
    struct jinja_scope *scope = run->scope;
    const size_t mark = jinja_capture_begin(run);
    run->scope = jinja_scope_make(run, scope);
    if (run->scope != NULL) {
        jinja_execute(run, body);
    }
    run->scope = scope;
    return jinja_capture_end(run, mark);
}

/* Binds parameters to arguments, defaults or undefined. */
static void bind_parameters(struct jinja_run *run, const struct jinja_macro *macro,
                            const struct jinja_arguments *arguments, size_t *used)
{
    size_t index = 0;
    for (const struct jinja_node *parameter = macro->node->first; parameter != NULL && run->rc == 0;
         parameter = parameter->next, index++) {
        const struct jinja_value name = run->names->items[parameter->name];
        struct jinja_value value = jinja_undefined(name.as.text);
        const struct jinja_value *named = arguments->named != NULL
                                              ? jinja_dict_find(run, arguments->named, name)
                                              : NULL;
        if (index < arguments->count) {
            value = arguments->items[index];
        } else if (named != NULL) {
            value = *named;
        } else if (parameter->first != NULL) {
            value = jinja_evaluate(run, parameter->first);
        }
        *used += index >= arguments->count && named != NULL;
        jinja_scope_set(run, parameter->name, value);
    }
}

/* Binds `caller` and, if the template uses them, `varargs` and `kwargs`. */
static void bind_remaining(struct jinja_run *run, const struct jinja_macro *macro,
                           const struct jinja_arguments *arguments, size_t used)
{
    size_t parameters = 0;
    jinja_step(run, run->names->count / 16);
    for (const struct jinja_node *p = macro->node->first; p != NULL; p = p->next) {
        parameters++;
    }
    const unsigned varargs = jinja_name_find(run->names, "varargs", 7);
    const unsigned kwargs = jinja_name_find(run->names, "kwargs", 6);
    const unsigned caller = jinja_name_find(run->names, "caller", 6);
    struct jinja_value rest = jinja_list(run, JINJA_TUPLE);
    struct jinja_value named = jinja_dict(run);
    for (size_t i = parameters; i < arguments->count && run->rc == 0; i++) {
        jinja_list_add(run, rest.as.list, arguments->items[i]);
    }
    for (size_t i = 0; arguments->named != NULL && i < arguments->named->count && run->rc == 0;
         i++) {
        const struct jinja_pair *pair = &arguments->named->pairs[i];
        bool taken = false;
        for (const struct jinja_node *p = macro->node->first; p != NULL; p = p->next) {
            taken |= jinja_equal(run, run->names->items[p->name], pair->key);
        }
        if (!taken && jinja_is_text(pair->key, "caller") && caller != UINT_MAX) {
            jinja_scope_set(run, caller, pair->value);
            used++;
        } else if (!taken) {
            jinja_dict_set(run, named.as.dict, pair->key, pair->value);
        }
    }
    if (run->rc != 0) {
        return;
    }
    if ((rest.as.list->count > 0 && varargs == UINT_MAX) ||
        (named.as.dict->count > 0 && kwargs == UINT_MAX) ||
        (arguments->named != NULL && used + named.as.dict->count < arguments->named->count)) {
        const struct jinja_value name = run->names->items[macro->node->name];
        jinja_fail(run, -EINVAL, "the macro %.*s does not take these arguments", (int)name.bytes,
                   name.as.text);
        return;
    }
    if (varargs != UINT_MAX) {
        jinja_scope_set(run, varargs, rest);
    }
    if (kwargs != UINT_MAX) {
        jinja_scope_set(run, kwargs, named);
    }
}

static struct jinja_value call_macro(struct jinja_run *run, const struct jinja_macro *macro,
                                     const struct jinja_arguments *arguments)
{
    size_t used = 0;
    if (!jinja_deeper(run)) {
        return jinja_undefined("");
    }
    struct jinja_scope *scope = run->scope;
    run->scope = jinja_scope_make(run, macro->scope);
    const size_t mark = jinja_capture_begin(run);
    if (run->scope != NULL) {
        bind_parameters(run, macro, arguments, &used);
        bind_remaining(run, macro, arguments, used);
        jinja_execute(run, macro->node->second);
    }
    run->scope = scope;
    run->depth--;
    return jinja_capture_end(run, mark);
}

static bool passes_filter(struct jinja_run *run, const struct jinja_loop *loop,
                          struct jinja_value item)
{
    struct jinja_scope *scope = run->scope;
    const unsigned line = run->line;
    run->scope = jinja_scope_make(run, loop->outer);
    if (run->scope != NULL) {
        assign_target(run, loop->node->loop->target, item);
    }
    const bool passes = run->rc == 0 && jinja_truth(jinja_evaluate(run, loop->node->loop->filter));
    run->scope = scope;
    run->line = run->rc == 0 ? line : run->line;
    return passes;
}

/* As in Jinja, the `if` of a loop is evaluated when its next element is needed. */
bool jinja_loop_reach(struct jinja_run *run, struct jinja_loop *loop, size_t index)
{
    while (loop->rest != NULL && loop->rest_at < loop->rest->count && run->rc == 0 &&
           index >= loop->items->count) {
        const struct jinja_value item = loop->rest->items[loop->rest_at++];
        if (passes_filter(run, loop, item)) {
            jinja_list_add(run, loop->items, item);
        }
    }
    return run->rc == 0 && index < loop->items->count;
}

static void run_iteration(struct jinja_run *run, const struct jinja_node *node,
                          struct jinja_loop *loop)
{
    jinja_step(run, run->names->count / 16);
    const unsigned name = jinja_name_find(run->names, "loop", 4);
    run->scope = jinja_scope_make(run, loop->outer);
    if (run->scope == NULL) {
        return;
    }
    if (name != UINT_MAX) {
        jinja_scope_set(run, name, (struct jinja_value){.kind = JINJA_LOOP, .as.loop = loop});
    }
    assign_target(run, node->loop->target, loop->items->items[loop->index]);
    jinja_execute(run, node->loop->body);
}

/* Returns whether the else part must run: no iteration reached the end of the body. */
static bool run_iterations(struct jinja_run *run, const struct jinja_node *node,
                           struct jinja_loop *loop, struct jinja_value items)
{
    bool otherwise = true;
    jinja_leave(items); /* elements remain during the loop */
    for (; jinja_loop_reach(run, loop, loop->index); loop->index++) {
        run_iteration(run, node, loop);
        run->scope = loop->outer;
        const int jump = run->jump;
        run->jump = JINJA_JUMP_NONE;
        otherwise = otherwise && jump != JINJA_JUMP_NONE;
        if (jump == JINJA_JUMP_BREAK) {
            return otherwise;
        }
    }
    if (items.kind == JINJA_GENERATOR) {
        items.as.list->begun = false;
    }
    return otherwise;
}

static void run_loop(struct jinja_run *run, const struct jinja_node *node, struct jinja_value items,
                     size_t depth)
{
    struct jinja_scope *outer = run->scope;
    struct jinja_loop *loop = jinja_alloc(run, sizeof *loop);
    struct jinja_list *all = jinja_iterate(run, items);
    if (loop == NULL || all == NULL) {
        return;
    }
    *loop = (struct jinja_loop){.items = all, .depth = depth, .node = node, .outer = outer};
    if (node->loop->filter != NULL) {
        loop->rest = all;
        loop->items = jinja_list(run, JINJA_LIST).as.list;
    }
    if (run->rc == 0 && run_iterations(run, node, loop, items) && run->rc == 0) {
        run->scope = jinja_scope_make(run, outer);
        jinja_execute(run, node->loop->otherwise);
    }
    run->scope = outer;
}

static struct jinja_value call_loop(struct jinja_run *run, const struct jinja_loop *loop,
                                    const struct jinja_arguments *arguments)
{
    if (!loop->node->loop->recursive || arguments->count != 1 || arguments->named != NULL) {
        return jinja_fail(run, -EINVAL, "only a recursive loop can be called, with its items");
    }
    if (!jinja_deeper(run)) {
        return jinja_undefined("");
    }
    struct jinja_scope *scope = run->scope;
    const size_t mark = jinja_capture_begin(run);
    run->scope = loop->outer;
    run_loop(run, loop->node, arguments->items[0], loop->depth + 1);
    run->scope = scope;
    run->depth--;
    return jinja_capture_end(run, mark);
}

struct jinja_value jinja_call_value(struct jinja_run *run, struct jinja_value callee,
                                    const struct jinja_arguments *arguments)
{
    if (callee.kind == JINJA_MACRO) {
        return call_macro(run, callee.as.macro, arguments);
    }
    if (callee.kind == JINJA_METHOD) {
        return jinja_function_call(run, callee.as.method->function, callee.as.method->self,
                                   arguments);
    }
    if (callee.kind == JINJA_LOOP) {
        return call_loop(run, callee.as.loop, arguments);
    }
    if (callee.kind == JINJA_JOINER) {
        return arguments->count == 0 && arguments->named == NULL
                   ? jinja_joiner_call(callee)
                   : jinja_fail(run, -EINVAL, "a joiner takes no arguments");
    }
    if (callee.kind == JINJA_UNDEFINED) {
        return jinja_fail(run, -EINVAL, "'%s' is undefined", callee.as.text);
    }
    return jinja_fail(run, -EINVAL, "'%s' cannot be called", jinja_type_name(callee));
}

static struct jinja_value make_macro(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_macro *macro = jinja_alloc(run, sizeof *macro);
    if (macro == NULL) {
        return jinja_undefined("");
    }
    *macro = (struct jinja_macro){.node = node, .scope = run->scope};
    return (struct jinja_value){.kind = JINJA_MACRO, .as.macro = macro};
}

static void run_call_block(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_arguments arguments;
    const struct jinja_value callee = jinja_evaluate(run, node->first->first);
    jinja_evaluate_arguments(run, node->first->second, &arguments);
    if (run->rc != 0) {
        return;
    }
    if (arguments.named == NULL) {
        arguments.named = jinja_dict(run).as.dict;
    }
    const struct jinja_value caller = make_macro(run, node->second);
    if (run->rc == 0) {
        jinja_dict_set(run, arguments.named, jinja_string("caller", 6), caller);
        jinja_write_value(run, jinja_call_value(run, callee, &arguments));
    }
}

static void run_with(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_scope *outer = run->scope;
    struct jinja_scope *inner = jinja_scope_make(run, outer);
    for (const struct jinja_node *set = node->first; set != NULL && run->rc == 0; set = set->next) {
        const struct jinja_value value = jinja_evaluate(run, set->second);
        run->scope = inner; /* values are evaluated in the outer scope */
        assign_target(run, set->first, value);
        run->scope = outer;
    }
    if (run->rc == 0) {
        run->scope = inner;
        jinja_execute(run, node->second);
    }
    run->scope = outer;
}

/* As in transformers, generated text begins at the end of the output or at the beginning of the
 * outermost captured block. */
static void run_generation(struct jinja_run *run, const struct jinja_node *node)
{
    const size_t begin = run->captures > 0 ? run->capture_base : run->out_bytes;
    const struct jinja_value text = capture(run, node->second);
    if (run->rc != 0) {
        return;
    }
    if (run->spans_count == run->spans_room) {
        const size_t room = run->spans_room * 2 + 16;
        struct jinja_span *more = core_charge_grow(run->spans, room * sizeof *more);
        if (more == NULL) {
            jinja_fail(run, -ENOMEM, "no memory to render a template");
            return;
        }
        run->spans = more;
        run->spans_room = room;
    }
    run->spans[run->spans_count++] = (struct jinja_span){begin, begin + text.bytes};
    jinja_write_value(run, text);
}

static void run_if(struct jinja_run *run, const struct jinja_node *node)
{
    while (node != NULL && run->rc == 0) {
        const struct jinja_value condition = jinja_evaluate(run, node->first);
        if (run->rc != 0 || jinja_truth(condition)) {
            jinja_execute(run, node->second);
            return;
        }
        node = node->third;
        if (node == NULL || node->kind != JINJA_NODE_IF || !node->chained) {
            jinja_execute(run, node);
            return;
        }
    }
}

static void run_statement(struct jinja_run *run, const struct jinja_node *node)
{
    switch ((int)node->kind) {
    case JINJA_NODE_DATA: jinja_write_value(run, node->value); break;
    case JINJA_NODE_OUTPUT: jinja_write_value(run, jinja_evaluate(run, node->first)); break;
    case JINJA_NODE_IF: run_if(run, node); break;
    case JINJA_NODE_FOR: run_loop(run, node, jinja_evaluate(run, node->loop->items), 0); break;
    case JINJA_NODE_SET: assign_target(run, node->first, jinja_evaluate(run, node->second)); break;
    case JINJA_NODE_SET_BLOCK: {
        struct jinja_value text = capture(run, node->second);
        if (node->third != NULL && run->rc == 0) {
            text = jinja_apply_filters(run, node->third, text);
        }
        assign_target(run, node->first, text);
        break;
    }
    case JINJA_NODE_MACRO: jinja_scope_set(run, node->name, make_macro(run, node)); break;
    case JINJA_NODE_CALL_BLOCK: run_call_block(run, node); break;
    case JINJA_NODE_FILTER_BLOCK: {
        const struct jinja_value text = capture(run, node->second);
        if (run->rc == 0) {
            jinja_write_value(run, jinja_apply_filters(run, node->first, text));
        }
        break;
    }
    case JINJA_NODE_WITH: run_with(run, node); break;
    case JINJA_NODE_GENERATION: run_generation(run, node); break;
    case JINJA_NODE_BREAK: run->jump = JINJA_JUMP_BREAK; break;
    case JINJA_NODE_CONTINUE: run->jump = JINJA_JUMP_CONTINUE; break;
    default: jinja_fail(run, -EINVAL, "a statement was expected"); break;
    }
}

void jinja_execute(struct jinja_run *run, const struct jinja_node *node)
{
    if (node == NULL || run->rc != 0 || !jinja_deeper(run)) {
        return;
    }
    for (; node != NULL && run->jump == JINJA_JUMP_NONE && jinja_step(run, 1); node = node->next) {
        run->line = node->line;
        run_statement(run, node);
    }
    run->depth--;
}
