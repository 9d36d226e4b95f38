/* watch.h: what a rendering sees of how long its conversation is; and from where they part, rendering
 * beginnings of it on the way (private to tools/text/template).
 *
 * The whole conversation is rendered. `reach` is the shortest beginning for which everything would
 * have gone the same way so far. Where a loop comes to the last message of a beginning that is asked
 * for, and `reach` allows it, the list is cut there, what follows is done, compared with the whole's
 * text, and taken back. So a beginning costs a message and what comes behind the loop.
 *
 * Lists that end where the conversation does are `tail` lists: the conversation, and messages[N:]. They
 * leave the variable they are in only through the functions below; whatever else reads the variable
 * has seen how long they are. */
#ifndef TOOLS_TEXT_TEMPLATE_WATCH_H
#define TOOLS_TEXT_TEMPLATE_WATCH_H

#include "tools/text/template/eval.h"

enum { TEMPLATE_TAILS_MAX = 8 };

struct template_undo;

struct template_watch {
    struct text_template_prefixes *asked; /* borrowed from the caller */
    size_t at;                            /* of these, the next one to be told */
    size_t messages;                      /* of the whole */
    unsigned prompt;                      /* number of add_generation_prompt; UINT_MAX */
    bool prompted;                        /* that was asked for */
    size_t reach;
    struct template_list *tails[TEMPLATE_TAILS_MAX]; /* borrowed from the run */
    size_t tails_count;
    size_t loops;     /* over tails, until now */
    size_t loop_last; /* the number of the one in which beginnings are told */
    size_t same;      /* bytes of the output, from its beginning, that the whole has too */
    bool forks;       /* a beginning is under way: nothing is watched */
    struct template_undo *undo; /* what was overwritten, newest first */
    uint64_t since;             /* only in what was made before */
};

/* What was overwritten in what is older than a serial number of the run. */
struct template_undo {
    struct template_undo *next;
    void *place;
    size_t bytes;
    char saved[];
};

/* All functions do nothing, and cost nothing, in a run without a watch. */

/* The conversation as a tail list. */
struct template_value template_watch_conversation(struct text_template_run *run,
                                                  struct template_value messages);
/* Before memory is overwritten that belongs to what was made at serial number `born`. */
void template_watch_write(struct text_template_run *run, uint64_t born, void *place, size_t bytes);
/* This much of the conversation was seen, or its end. */
void template_watch_see(struct text_template_run *run, size_t messages);
void template_watch_see_end(struct text_template_run *run);
/* A variable is read. */
void template_watch_read(struct text_template_run *run, unsigned name, struct template_value value);
/* An attribute of a loop is read. */
void template_watch_loop(struct text_template_run *run, const struct template_loop *loop,
                         const char *name, size_t bytes);

/* The list, where the value is a tail list that is watched; NULL otherwise. */
const struct template_list *template_watch_tail(const struct text_template_run *run,
                                                struct template_value value);
/* Evaluates what is looped over or given a name: a tail list, or messages[N:], is not seen by that. */
struct template_value template_watch_items(struct text_template_run *run,
                                           const struct template_node *node);
/* Evaluates what is only asked whether there is anything in it; and a node's first part. */
struct template_value template_watch_truth(struct text_template_run *run,
                                           const struct template_node *node);
struct template_value template_watch_first(struct text_template_run *run,
                                           const struct template_node *node);
/* messages[N], and messages | length against a constant: true where `node` is one, and its value. */
bool template_watch_item(struct text_template_run *run, const struct template_node *node,
                         struct template_value *out);
bool template_watch_length(struct text_template_run *run, const struct template_node *node,
                           struct template_value *out);

/* A loop over a tail list, outside of other loops and of what becomes a string. */
struct template_watched_loop {
    bool tells;       /* beginnings */
    size_t reach;     /* that the iterations need that left something behind */
    size_t out_bytes; /* before an iteration */
};
void template_watch_loop_begin(struct text_template_run *run,
                               struct template_watched_loop *watched);
void template_watch_turn_begin(struct text_template_run *run,
                               struct template_watched_loop *watched);
void template_watch_turn_end(struct text_template_run *run, const struct template_loop *loop,
                             struct template_watched_loop *watched);
void template_watch_loop_end(struct text_template_run *run, const struct template_loop *loop,
                             const struct template_watched_loop *watched);

/* The next beginning that ends with the message of this iteration; NULL where there is none, or where
 * it cannot be told from here. */
struct text_template_prefix *template_watch_asked(struct text_template_run *run,
                                                  const struct template_loop *loop);

/* A beginning is rendered from here on, and everything is as before afterwards. */
struct template_fork {
    struct template_mark mark;
    struct template_undo *undo;
    uint64_t since;
    uint64_t steps;
    struct template_loop loop;
    struct template_scope *scope;
    struct template_frame *frame;
    size_t out_bytes;
    size_t spans_count;
    size_t loops;
    unsigned line;
    unsigned depth;
};
void template_watch_fork_begin(struct text_template_run *run, struct template_loop *loop,
                               const struct text_template_prefix *prefix,
                               struct template_fork *fork);
void template_watch_fork_end(struct text_template_run *run, struct template_loop *loop,
                             struct text_template_prefix *prefix, const struct template_fork *fork);

#endif
