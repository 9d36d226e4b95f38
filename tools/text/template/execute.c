/* execute.c: statements and macros. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "tools/text/template/eval.h"

void template_assign(struct text_template_run *run, const struct template_node *target,
                     struct template_value value)
{
    if (run->code != 0) {
        return;
    }
    if (target->kind == TEMPLATE_NODE_NAME) {
        template_scope_set(run, target->name, value);
    } else if (target->kind == TEMPLATE_NODE_NAMESPACE) {
        const struct template_value space = template_scope_get(run, target->name);
        if (space.kind != TEMPLATE_NAMESPACE) {
            template_fail(run, -EINVAL, "cannot assign attribute on non-namespace object");
        } else if (target->value.as.text[0] == '_') {
            template_fail(run, -EINVAL, "a namespace holds no attribute that begins with _");
        } else {
            template_dict_set(run, space.as.dict, target->value, value);
        }
    } else {
        const struct template_list *items = template_iterate(run, value);
        const struct template_node *part = target->first;
        size_t i = 0;
        for (; items != NULL && part != NULL && i < items->count; part = part->next, i++) {
            template_assign(run, part, items->items[i]);
        }
        if (run->code == 0 && (part != NULL || i < items->count)) {
            template_fail(run, -EINVAL, "%zu values for another number of names", items->count);
        }
    }
}

/* What a body writes, in a scope of its own, as a string. */
static struct template_value capture(struct text_template_run *run,
                                     const struct template_node *body)
{
    struct template_scope *scope = run->scope;
    const size_t mark = template_capture_begin(run);
    run->scope = template_scope_make(run, scope);
    if (run->scope != NULL) {
        template_execute(run, body);
    }
    run->scope = scope;
    return template_capture_end(run, mark);
}

/* Binds a macro's parameters, each with what was given, its default, or nothing. */
static void bind_parameters(struct text_template_run *run, const struct template_macro *macro,
                            const struct template_arguments *arguments, size_t *used)
{
    size_t index = 0;
    for (const struct template_node *parameter = macro->node->first;
         parameter != NULL && run->code == 0; parameter = parameter->next, index++) {
        const struct template_value name = run->names->items[parameter->name];
        struct template_value value = template_undefined(name.as.text);
        const struct template_value *named = arguments->named != NULL
                                                 ? template_dict_find(run, arguments->named, name)
                                                 : NULL;
        if (index < arguments->count) {
            value = arguments->items[index];
        } else if (named != NULL) {
            value = *named;
        } else if (parameter->first != NULL) {
            value = template_evaluate(run, parameter->first);
        }
        *used += index >= arguments->count && named != NULL;
        template_scope_set(run, parameter->name, value);
    }
}

/* `caller`, and what no parameter takes: `varargs` and `kwargs` where the template knows them. */
static void bind_rest(struct text_template_run *run, const struct template_macro *macro,
                      const struct template_arguments *arguments, size_t used)
{
    size_t parameters = 0;
    template_step(run, run->names->count / 16);
    for (const struct template_node *p = macro->node->first; p != NULL; p = p->next) {
        parameters++;
    }
    const unsigned varargs = template_name_find(run->names, "varargs", 7);
    const unsigned kwargs = template_name_find(run->names, "kwargs", 6);
    const unsigned caller = template_name_find(run->names, "caller", 6);
    struct template_value rest = template_list(run, TEMPLATE_TUPLE);
    struct template_value named = template_dict(run);
    for (size_t i = parameters; i < arguments->count && run->code == 0; i++) {
        template_list_add(run, rest.as.list, arguments->items[i]);
    }
    for (size_t i = 0; arguments->named != NULL && i < arguments->named->count && run->code == 0;
         i++) {
        const struct template_pair *pair = &arguments->named->pairs[i];
        bool taken = false;
        for (const struct template_node *p = macro->node->first; p != NULL; p = p->next) {
            taken |= template_equal(run, run->names->items[p->name], pair->key);
        }
        if (!taken && template_is_text(pair->key, "caller") && caller != UINT_MAX) {
            template_scope_set(run, caller, pair->value);
            used++;
        } else if (!taken) {
            template_dict_set(run, named.as.dict, pair->key, pair->value);
        }
    }
    if (run->code != 0) {
        return;
    }
    if ((rest.as.list->count > 0 && varargs == UINT_MAX) ||
        (named.as.dict->count > 0 && kwargs == UINT_MAX) ||
        (arguments->named != NULL && used + named.as.dict->count < arguments->named->count)) {
        const struct template_value name = run->names->items[macro->node->name];
        template_fail(run, -EINVAL, "the macro %.*s takes no such arguments", (int)name.bytes,
                      name.as.text);
        return;
    }
    if (varargs != UINT_MAX) {
        template_scope_set(run, varargs, rest);
    }
    if (kwargs != UINT_MAX) {
        template_scope_set(run, kwargs, named);
    }
}

struct template_value template_macro_call(struct text_template_run *run,
                                          const struct template_macro *macro,
                                          const struct template_arguments *arguments)
{
    size_t used = 0;
    if (!template_deeper(run)) {
        return template_undefined("");
    }
    struct template_scope *scope = run->scope;
    run->scope = template_scope_make(run, macro->scope);
    const size_t mark = template_capture_begin(run);
    if (run->scope != NULL) {
        bind_parameters(run, macro, arguments, &used);
        bind_rest(run, macro, arguments, used);
        template_execute(run, macro->node->second);
    }
    run->scope = scope;
    run->depth--;
    return template_capture_end(run, mark);
}

static struct template_value make_macro(struct text_template_run *run,
                                        const struct template_node *node)
{
    struct template_macro *macro = template_alloc(run, sizeof *macro);
    if (macro == NULL) {
        return template_undefined("");
    }
    *macro = (struct template_macro){.node = node, .scope = run->scope};
    return (struct template_value){.kind = TEMPLATE_MACRO, .as.macro = macro};
}

static void run_call_block(struct text_template_run *run, const struct template_node *node)
{
    struct template_arguments arguments;
    const struct template_value callee = template_evaluate(run, node->first->first);
    template_evaluate_arguments(run, node->first->second, &arguments);
    if (run->code != 0) {
        return;
    }
    if (arguments.named == NULL) {
        arguments.named = template_dict(run).as.dict;
    }
    const struct template_value caller = make_macro(run, node->second);
    if (run->code == 0) {
        template_dict_set(run, arguments.named, template_string("caller", 6), caller);
        template_write_value(run, template_call_value(run, callee, &arguments));
    }
}

static void run_with(struct text_template_run *run, const struct template_node *node)
{
    struct template_scope *outer = run->scope;
    struct template_scope *inner = template_scope_make(run, outer);
    for (const struct template_node *set = node->first; set != NULL && run->code == 0;
         set = set->next) {
        const struct template_value value = template_evaluate(run, set->second);
        run->scope = inner; /* values are those of the scope outside */
        template_assign(run, set->first, value);
        run->scope = outer;
    }
    if (run->code == 0) {
        run->scope = inner;
        template_execute(run, node->second);
    }
    run->scope = outer;
}

/* What is generated stands where the output is now; inside a macro or another block that becomes a
 * string, where that begins, as transformers counts it. */
static void run_generation(struct text_template_run *run, const struct template_node *node)
{
    const size_t begin = run->captures > 0 ? run->capture_base : run->out_bytes;
    const struct template_value text = capture(run, node->second);
    if (run->code != 0) {
        return;
    }
    if (run->spans_count == run->spans_room) {
        const size_t room = run->spans_room * 2 + 16;
        struct text_template_span *more = core_charge_grow(run->spans, room * sizeof *more);
        if (more == NULL) {
            template_fail(run, -ENOMEM, "no memory to render a template");
            return;
        }
        run->spans = more;
        run->spans_room = room;
    }
    run->spans[run->spans_count++] = (struct text_template_span){begin, begin + text.bytes};
    template_write_value(run, text);
}

static void run_if(struct text_template_run *run, const struct template_node *node)
{
    while (node != NULL && run->code == 0) {
        const struct template_value condition = template_evaluate(run, node->first);
        if (run->code != 0 || template_truth(condition)) {
            template_execute(run, node->second);
            return;
        }
        node = node->third;
        if (node == NULL || node->kind != TEMPLATE_NODE_IF || !node->chained) {
            template_execute(run, node);
            return;
        }
    }
}

static void run_statement(struct text_template_run *run, const struct template_node *node)
{
    switch ((int)node->kind) {
    case TEMPLATE_NODE_DATA: template_write_value(run, node->value); break;
    case TEMPLATE_NODE_OUTPUT:
        template_write_value(run, template_evaluate(run, node->first));
        break;
    case TEMPLATE_NODE_IF: run_if(run, node); break;
    case TEMPLATE_NODE_FOR:
        template_loop_run(run, node, template_evaluate(run, node->loop->items), 0);
        break;
    case TEMPLATE_NODE_SET:
        template_assign(run, node->first, template_evaluate(run, node->second));
        break;
    case TEMPLATE_NODE_SET_BLOCK: {
        struct template_value text = capture(run, node->second);
        if (node->third != NULL && run->code == 0) {
            text = template_apply_filters(run, node->third, text);
        }
        template_assign(run, node->first, text);
        break;
    }
    case TEMPLATE_NODE_MACRO: template_scope_set(run, node->name, make_macro(run, node)); break;
    case TEMPLATE_NODE_CALL_BLOCK: run_call_block(run, node); break;
    case TEMPLATE_NODE_FILTER_BLOCK: {
        const struct template_value text = capture(run, node->second);
        if (run->code == 0) {
            template_write_value(run, template_apply_filters(run, node->first, text));
        }
        break;
    }
    case TEMPLATE_NODE_WITH: run_with(run, node); break;
    case TEMPLATE_NODE_GENERATION: run_generation(run, node); break;
    case TEMPLATE_NODE_BREAK: run->jump = TEMPLATE_JUMP_BREAK; break;
    case TEMPLATE_NODE_CONTINUE: run->jump = TEMPLATE_JUMP_CONTINUE; break;
    default: template_fail(run, -EINVAL, "a statement was expected"); break;
    }
}

void template_execute(struct text_template_run *run, const struct template_node *node)
{
    if (node == NULL || run->code != 0 || !template_deeper(run)) {
        return;
    }
    for (; node != NULL && run->jump == TEMPLATE_JUMP_NONE && template_step(run, 1);
         node = node->next) {
        run->line = node->line;
        run_statement(run, node);
    }
    run->depth--;
}
