/* watch.c: keeps account of what was seen of a conversation, and takes beginnings of it back. */
#include "tools/text/template/watch.h"

#include <stddef.h>
#include <string.h>

static bool watches(const struct text_template_run *run)
{
    return run->watch != NULL && !run->watch->forks;
}

void template_watch_write(struct text_template_run *run, uint64_t born, void *place, size_t bytes)
{
    struct template_watch *watch = run->watch;
    if (watch == NULL || born >= watch->since) {
        return;
    }
    struct template_undo *undo = template_alloc(run, sizeof *undo + bytes);
    if (undo != NULL) {
        undo->place = place;
        undo->bytes = bytes;
        undo->next = watch->undo;
        memcpy(undo->saved, place, bytes);
        watch->undo = undo;
    }
}

void template_watch_see(struct text_template_run *run, size_t messages)
{
    if (watches(run) && messages > run->watch->reach) {
        run->watch->reach = messages;
    }
}

void template_watch_see_end(struct text_template_run *run)
{
    if (watches(run)) {
        run->watch->reach = run->watch->messages;
    }
}

const struct template_list *template_watch_tail(const struct text_template_run *run,
                                                struct template_value value)
{
    return watches(run) && value.kind == TEMPLATE_LIST && value.as.list->tail ? value.as.list
                                                                              : NULL;
}

void template_watch_read(struct text_template_run *run, unsigned name, struct template_value value)
{
    if (template_watch_tail(run, value) != NULL) {
        template_watch_see_end(run);
    }
    if (watches(run) && name == run->watch->prompt) {
        run->watch->prompted = true;
    }
}

static bool is_word(const char *name, size_t bytes, const char *word)
{
    return strlen(word) == bytes && memcmp(name, word, bytes) == 0;
}

void template_watch_loop(struct text_template_run *run, const struct template_loop *loop,
                         const char *name, size_t bytes)
{
    static const char *const blind[] = {"index",  "index0",   "first", "depth",
                                        "depth0", "previtem", "cycle", "changed"};
    if (!watches(run) || !loop->items->tail) {
        return;
    }
    for (size_t i = 0; i < sizeof blind / sizeof blind[0]; i++) {
        if (is_word(name, bytes, blind[i])) {
            return;
        }
    }
    const bool next = is_word(name, bytes, "last") || is_word(name, bytes, "nextitem");
    if (next && loop->index + 1 < loop->items->count) {
        template_watch_see(run, loop->items->skip + loop->index + 2);
    } else {
        template_watch_see_end(run);
    }
}

/* ---- what is done with a tail list without seeing its end ---- */

/* The tail list that a variable holds; NULL where `node` is something else. */
static const struct template_list *tail_of(struct text_template_run *run,
                                           const struct template_node *node)
{
    return watches(run) && node->kind == TEMPLATE_NODE_NAME
               ? template_watch_tail(run, template_scope_get(run, node->name))
               : NULL;
}

static bool is_count(const struct template_node *node)
{
    return node != NULL && node->kind == TEMPLATE_NODE_CONSTANT &&
           node->value.kind == TEMPLATE_INTEGER && node->value.as.integer >= 0;
}

/* A tail list without its first `skip` items. */
static struct template_value shorten(struct text_template_run *run,
                                     const struct template_list *list, size_t skip)
{
    struct template_watch *watch = run->watch;
    const size_t left = skip < list->count ? skip : list->count;
    struct template_value made = template_list(run, TEMPLATE_LIST);
    if (run->code == 0) {
        struct template_list *tail = made.as.list;
        tail->items = list->items + left;
        tail->count = tail->room = list->count - left;
        tail->skip = list->skip + skip;
        tail->tail = true;
        watch->tails[watch->tails_count++] = tail;
    }
    return made;
}

struct template_value template_watch_conversation(struct text_template_run *run,
                                                  struct template_value messages)
{
    if (messages.kind != TEMPLATE_LIST) {
        return messages;
    }
    run->watch->messages = messages.as.list->count;
    return shorten(run, messages.as.list, 0);
}

struct template_value template_watch_items(struct text_template_run *run,
                                           const struct template_node *node)
{
    const struct template_list *list = tail_of(run, node);
    if (list != NULL) {
        return template_scope_get(run, node->name);
    }
    const struct template_node *slice = node->kind == TEMPLATE_NODE_ITEM ? node->second : NULL;
    if (watches(run) && slice != NULL && slice->kind == TEMPLATE_NODE_SLICE &&
        is_count(slice->first) && slice->second == NULL && slice->third == NULL &&
        run->watch->tails_count < TEMPLATE_TAILS_MAX) {
        list = tail_of(run, node->first);
        const uint64_t skip = (uint64_t)slice->first->value.as.integer;
        if (list != NULL && skip <= list->count) {
            return shorten(run, list, (size_t)skip);
        }
    }
    return template_evaluate(run, node);
}

/* Whether there is anything in it is the same for all beginnings that have its first item; for a list
 * without items, for all. */
static void see_first(struct text_template_run *run, const struct template_list *list)
{
    if (list->count > 0) {
        template_watch_see(run, list->skip + 1);
    }
}

struct template_value template_watch_truth(struct text_template_run *run,
                                           const struct template_node *node)
{
    const struct template_list *list = tail_of(run, node);
    const bool both = node->kind == TEMPLATE_NODE_AND;
    if (watches(run) && (both || node->kind == TEMPLATE_NODE_OR)) {
        const struct template_value value = template_watch_truth(run, node->first);
        return run->code != 0 || template_truth(value) != both
                   ? value
                   : template_watch_truth(run, node->second);
    }
    if (list == NULL) {
        return template_evaluate(run, node);
    }
    see_first(run, list);
    return template_scope_get(run, node->name);
}

struct template_value template_watch_first(struct text_template_run *run,
                                           const struct template_node *node)
{
    if (!watches(run)) {
        return template_evaluate(run, node->first);
    }
    if (node->kind == TEMPLATE_NODE_NOT || node->kind == TEMPLATE_NODE_AND) {
        return template_watch_truth(run, node->first);
    }
    const bool there = node->kind == TEMPLATE_NODE_TEST && node->function != NULL &&
                       (strcmp(node->function->name, "defined") == 0 ||
                        strcmp(node->function->name, "undefined") == 0);
    return there && node->first->kind == TEMPLATE_NODE_NAME
               ? template_scope_get(run, node->first->name)
               : template_evaluate(run, node->first);
}

bool template_watch_item(struct text_template_run *run, const struct template_node *node,
                         struct template_value *out)
{
    const struct template_list *list = tail_of(run, node->first);
    if (list == NULL || node->second->kind == TEMPLATE_NODE_SLICE) {
        return false;
    }
    const struct template_value value = template_scope_get(run, node->first->name);
    const struct template_value key = template_evaluate(run, node->second);
    if (key.kind != TEMPLATE_INTEGER || key.as.integer < 0) {
        template_watch_see_end(run);
    } else if (key.as.integer < (int64_t)list->count) { /* else no beginning has it either */
        template_watch_see(run, list->skip + (size_t)key.as.integer + 1);
    }
    *out = run->code == 0 ? template_item(run, value, key) : key;
    return true;
}

bool template_watch_length(struct text_template_run *run, const struct template_node *node,
                           struct template_value *out)
{
    const struct template_node *filter = node->first;
    const struct template_node *operand = node->second;
    if (!watches(run) || filter->kind != TEMPLATE_NODE_FILTER || filter->first == NULL ||
        filter->function == NULL || filter->second != NULL ||
        (strcmp(filter->function->name, "length") != 0 &&
         strcmp(filter->function->name, "count") != 0) ||
        operand->next != NULL || !is_count(operand->first) || strstr(operand->sign, "in") != NULL) {
        return false;
    }
    /* All lengths above the constant compare with it as this one does. */
    const struct template_list *list = tail_of(run, filter->first);
    const uint64_t constant = (uint64_t)operand->first->value.as.integer;
    if (list == NULL || list->count <= constant) {
        return false;
    }
    template_watch_see(run, list->skip + (size_t)constant + 1);
    *out = template_integer((int64_t)list->count);
    return true;
}

/* ---- loops ---- */

void template_watch_loop_begin(struct text_template_run *run, struct template_watched_loop *watched)
{
    struct template_watch *watch = run->watch;
    *watched = (struct template_watched_loop){.tells = watch->loops == watch->loop_last,
                                              .reach = watch->reach};
    watch->loops++;
}

void template_watch_turn_begin(struct text_template_run *run, struct template_watched_loop *watched)
{
    if (!watched->tells) {
        run->watch->undo = NULL;
        run->watch->since = ++run->serial;
        watched->out_bytes = run->out_bytes;
    }
}

/* Is anything otherwise than it was? */
static bool has_changed(const struct template_watch *watch)
{
    for (const struct template_undo *undo = watch->undo; undo != NULL; undo = undo->next) {
        if (memcmp(undo->place, undo->saved, undo->bytes) != 0) {
            return true;
        }
    }
    return false;
}

/* An iteration that wrote nothing, changed nothing and looked at nothing but its own message is the
 * same as none to what follows. */
void template_watch_turn_end(struct text_template_run *run, const struct template_loop *loop,
                             struct template_watched_loop *watched)
{
    struct template_watch *watch = run->watch;
    const size_t own = loop->items->skip + loop->index + 1;
    const size_t least = watched->reach > own ? watched->reach : own;
    if (!watched->tells &&
        (run->out_bytes != watched->out_bytes || run->jump == TEMPLATE_JUMP_BREAK ||
         watch->reach > least || has_changed(watch))) {
        watched->reach = watch->reach;
    }
}

void template_watch_loop_end(struct text_template_run *run, const struct template_loop *loop,
                             const struct template_watched_loop *watched)
{
    if (!watched->tells) {
        run->watch->reach = watched->reach;
        run->watch->since = 0;
    } else if (loop->index >= loop->items->count) {
        template_watch_see_end(run);
    }
}

/* ---- beginnings ---- */

struct text_template_prefix *template_watch_asked(struct text_template_run *run,
                                                  const struct template_loop *loop)
{
    struct template_watch *watch = run->watch;
    const size_t messages = loop->items->skip + loop->index + 1;
    while (watch->at < watch->asked->count && watch->asked->items[watch->at].messages <= messages) {
        struct text_template_prefix *prefix = &watch->asked->items[watch->at++];
        if (prefix->messages == messages && watch->reach <= messages &&
            !(prefix->prompt && watch->prompted)) {
            return prefix;
        }
    }
    return NULL;
}

static void cut_tails(const struct template_watch *watch, size_t messages)
{
    for (size_t i = 0; i < watch->tails_count; i++) {
        struct template_list *tail = watch->tails[i];
        tail->count = messages > tail->skip ? messages - tail->skip : 0;
    }
}

/* The variable of the caller's, in the outermost scope. */
static void set_prompt(struct text_template_run *run, bool prompt)
{
    struct template_scope *scope = run->scope;
    while (scope->outer != NULL) {
        scope = scope->outer;
    }
    for (size_t i = 0; i < scope->count; i++) {
        struct template_variable *variable = &scope->variables[i];
        if (variable->name == run->watch->prompt) {
            template_watch_write(run, 0, &variable->value, sizeof variable->value);
            variable->value = template_bool(prompt);
        }
    }
}

/* How much of the output is the whole's; `from` of it are known to be. */
static size_t agree(const struct text_template_run *run, size_t from)
{
    const struct text_rendering *whole = run->watch->asked->whole;
    while (from < run->out_bytes && from < whole->bytes && run->out[from] == whole->text[from]) {
        from++;
    }
    return from;
}

void template_watch_fork_begin(struct text_template_run *run, struct template_loop *loop,
                               const struct text_template_prefix *prefix,
                               struct template_fork *fork)
{
    struct template_watch *watch = run->watch;
    watch->same = agree(run, watch->same);
    *fork = (struct template_fork){.mark = template_mark(run),
                                   .undo = watch->undo,
                                   .since = watch->since,
                                   .steps = run->steps,
                                   .loop = *loop,
                                   .scope = run->scope,
                                   .frame = run->frame,
                                   .out_bytes = run->out_bytes,
                                   .spans_count = run->spans_count,
                                   .loops = run->loops,
                                   .line = run->line,
                                   .depth = run->depth};
    watch->undo = NULL;
    watch->since = ++run->serial;
    watch->forks = true;
    cut_tails(watch, prefix->messages);
    if (prefix->prompt) {
        set_prompt(run, true);
    }
}

void template_watch_fork_end(struct text_template_run *run, struct template_loop *loop,
                             struct text_template_prefix *prefix, const struct template_fork *fork)
{
    struct template_watch *watch = run->watch;
    if (run->code == 0) {
        prefix->known = true;
        prefix->bytes = run->out_bytes;
        prefix->common = watch->same < fork->out_bytes ? watch->same : agree(run, watch->same);
    }
    for (const struct template_undo *undo = watch->undo; undo != NULL; undo = undo->next) {
        memcpy(undo->place, undo->saved, undo->bytes);
    }
    cut_tails(watch, watch->messages);
    *loop = fork->loop;
    watch->undo = fork->undo;
    watch->since = fork->since;
    watch->forks = false;
    run->steps = fork->steps;
    run->scope = fork->scope;
    run->frame = fork->frame;
    run->out_bytes = fork->out_bytes;
    run->spans_count = fork->spans_count;
    run->loops = fork->loops;
    run->line = fork->line;
    run->depth = fork->depth;
    run->jump = TEMPLATE_JUMP_NONE;
    template_rewind(run, fork->mark);
}
