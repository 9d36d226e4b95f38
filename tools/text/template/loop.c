/* loop.c: {% for %}. */
#include <errno.h>
#include <limits.h>

#include "tools/text/template/eval.h"

/* The items of a loop that its condition lets through. */
static struct template_list *select_items(struct text_template_run *run,
                                          const struct template_for *node,
                                          struct template_value value)
{
    struct template_list *items = template_iterate(run, value);
    if (items == NULL || node->filter == NULL) {
        return items;
    }
    struct template_scope *scope = run->scope;
    struct template_value kept = template_list(run, TEMPLATE_LIST);
    for (size_t i = 0; i < items->count && run->code == 0; i++) {
        run->scope = template_scope_make(run, scope);
        if (run->scope == NULL) {
            break;
        }
        template_assign(run, node->target, items->items[i]);
        if (run->code == 0 && template_truth(template_evaluate(run, node->filter))) {
            template_list_add(run, kept.as.list, items->items[i]);
        }
    }
    run->scope = scope;
    return run->code == 0 ? kept.as.list : NULL;
}

/* The iteration of loop->index. */
static void run_turn(struct text_template_run *run, const struct template_node *node,
                     struct template_loop *loop)
{
    template_step(run, run->names->count / 16);
    const unsigned name = template_name_find(run->names, "loop", 4);
    run->scope = template_scope_make(run, loop->outer);
    if (run->scope == NULL) {
        return;
    }
    if (name != UINT_MAX) {
        template_scope_set(run, name,
                           (struct template_value){.kind = TEMPLATE_LOOP, .as.loop = loop});
    }
    template_assign(run, node->loop->target, loop->items->items[loop->index]);
    template_execute(run, node->loop->body);
}

/* The iterations from loop->index on. */
static void run_turns(struct text_template_run *run, const struct template_node *node,
                      struct template_loop *loop)
{
    for (; loop->index < loop->items->count && run->code == 0; loop->index++) {
        run_turn(run, node, loop);
        const int jump = run->jump;
        run->jump = TEMPLATE_JUMP_NONE;
        if (jump == TEMPLATE_JUMP_BREAK) {
            break;
        }
    }
    run->scope = loop->outer;
}

void template_loop_run(struct text_template_run *run, const struct template_node *node,
                       struct template_value items, size_t depth)
{
    struct template_scope *outer = run->scope;
    struct template_loop *loop = template_alloc(run, sizeof *loop);
    struct template_list *list = select_items(run, node->loop, items);
    if (loop == NULL || list == NULL) {
        return;
    }
    *loop = (struct template_loop){
        .items = list, .depth = depth, .node = node->loop->recursive ? node : NULL, .outer = outer};
    run_turns(run, node, loop);
    if (list->count == 0 && run->code == 0) {
        run->scope = template_scope_make(run, outer);
        template_execute(run, node->loop->otherwise);
    }
    run->scope = outer;
}

struct template_value template_loop_call(struct text_template_run *run,
                                         const struct template_loop *loop,
                                         const struct template_arguments *arguments)
{
    if (loop->node == NULL || arguments->count != 1) {
        return template_fail(run, -EINVAL, "only a recursive loop is called, with its items");
    }
    if (!template_deeper(run)) {
        return template_undefined("");
    }
    struct template_scope *scope = run->scope;
    const size_t mark = template_capture_begin(run);
    run->scope = loop->outer;
    template_loop_run(run, loop->node, arguments->items[0], loop->depth + 1);
    run->scope = scope;
    run->depth--;
    return template_capture_end(run, mark);
}
