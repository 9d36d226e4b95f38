/* expressions.h: evaluates the tree of a template (private to tools/text/jinja). */
#ifndef TOOLS_TEXT_JINJA_EXPRESSIONS_H
#define TOOLS_TEXT_JINJA_EXPRESSIONS_H

#include "tools/text/jinja/function.h"
#include "tools/text/jinja/node.h"

/* A scope: its variables by the number of their name. */
struct jinja_scope {
    struct jinja_scope *outer;
    struct jinja_binding {
        unsigned name;
        struct jinja_value value;
    } * variables;
    size_t count;
    size_t room;
};

enum { JINJA_JUMP_NONE, JINJA_JUMP_BREAK, JINJA_JUMP_CONTINUE };

/* Returns NULL if the run fails. */
struct jinja_scope *jinja_scope_make(struct jinja_run *run, struct jinja_scope *outer);
void jinja_scope_set(struct jinja_run *run, unsigned name, struct jinja_value value);
/* Returns a variable or global; undefined if there is none. */
struct jinja_value jinja_scope_get(struct jinja_run *run, unsigned name);

struct jinja_value jinja_evaluate(struct jinja_run *run, const struct jinja_node *node);
/* Applies the filters of a block to its text. */
struct jinja_value jinja_apply_filters(struct jinja_run *run, const struct jinja_node *node,
                                       struct jinja_value text);
void jinja_evaluate_arguments(struct jinja_run *run, const struct jinja_node *first,
                              struct jinja_arguments *out);

void jinja_execute(struct jinja_run *run, const struct jinja_node *node);

#endif
