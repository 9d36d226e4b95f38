/* eval.h: walking the tree of a template (private to tools/text/template). */
#ifndef TOOLS_TEXT_TEMPLATE_EVAL_H
#define TOOLS_TEXT_TEMPLATE_EVAL_H

#include "tools/text/template/function.h"
#include "tools/text/template/node.h"

/* Variables by the number of their name, and where else to look. */
struct template_scope {
    struct template_scope *outer;
    struct template_variable {
        unsigned name;
        struct template_value value;
    } * variables;
    size_t count;
    size_t room;
};

enum { TEMPLATE_JUMP_NONE, TEMPLATE_JUMP_BREAK, TEMPLATE_JUMP_CONTINUE };

/* A scope inside `outer`. NULL where the run fails. */
struct template_scope *template_scope_make(struct text_template_run *run,
                                           struct template_scope *outer);
void template_scope_set(struct text_template_run *run, unsigned name, struct template_value value);
/* The value of a variable or global; undefined where there is none. */
struct template_value template_scope_get(struct text_template_run *run, unsigned name);

struct template_value template_evaluate(struct text_template_run *run,
                                        const struct template_node *node);
/* Filters of a block, around its text. */
struct template_value template_apply_filters(struct text_template_run *run,
                                             const struct template_node *node,
                                             struct template_value text);
/* The arguments of a call, evaluated. */
void template_evaluate_arguments(struct text_template_run *run, const struct template_node *first,
                                 struct template_arguments *out);

void template_execute(struct text_template_run *run, const struct template_node *node);
/* Gives a target, a name or several, its value. */
void template_assign(struct text_template_run *run, const struct template_node *target,
                     struct template_value value);
void template_loop_run(struct text_template_run *run, const struct template_node *node,
                       struct template_value items, size_t depth);

struct template_value template_macro_call(struct text_template_run *run,
                                          const struct template_macro *macro,
                                          const struct template_arguments *arguments);
/* loop(items) in a recursive loop. */
struct template_value template_loop_call(struct text_template_run *run,
                                         const struct template_loop *loop,
                                         const struct template_arguments *arguments);

#endif
