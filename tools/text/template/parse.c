/* parse.c: statements, and a source as a whole. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "tools/text/template/node.h"

enum { SOURCE_MEMORY_BYTES = 256 << 20, SOURCE_STEPS = 1 << 28 };

unsigned template_name_find(const struct template_names *names, const char *text, size_t bytes)
{
    for (unsigned i = 0; i < names->count; i++) {
        if (names->items[i].bytes == bytes && memcmp(names->items[i].as.text, text, bytes) == 0) {
            return i;
        }
    }
    return UINT_MAX;
}

unsigned template_name(struct text_template_run *run, struct template_names *names,
                       const char *text, size_t bytes)
{
    const unsigned there = template_step(run, names->count) ? template_name_find(names, text, bytes)
                                                            : UINT_MAX;
    if (there != UINT_MAX || run->code != 0) {
        return there != UINT_MAX ? there : 0;
    }
    if (names->count == names->room) {
        const unsigned room = names->room * 2 + 64;
        struct template_value *more = template_alloc(run, room * sizeof *more);
        if (more == NULL) {
            return 0;
        }
        if (names->count > 0) {
            memcpy(more, names->items, names->count * sizeof *more);
        }
        names->items = more;
        names->room = room;
    }
    names->items[names->count] = template_string_copy(run, text, bytes);
    return names->count++;
}

static struct template_node *parse_statements(struct template_parser *parser,
                                              const char *const *ends);

/* Behind a tag's words: its end, the statements up to one of `ends` (NULL behind the last), and, with
 * `drop`, the tag that ended them. */
static struct template_node *parse_body(struct template_parser *parser, const char *const *ends,
                                        bool drop)
{
    template_skip_sign(parser, ":");
    template_expect_word(parser, TEMPLATE_WORD_BLOCK_END, "%}");
    const unsigned line = parser->run->line;
    struct template_node *body = parse_statements(parser, ends);
    if (parser->run->code == 0 && parser->token->word == TEMPLATE_WORD_END) {
        parser->run->line = line;
        template_fail(parser->run, -EINVAL, "the block that begins here has no {%% %s %%}",
                      ends[0]);
    }
    if (parser->run->code == 0 && drop) {
        parser->token++;
    }
    return body;
}

/* What is assigned to: a name, several in a tuple, or, with `attributes`, name.attribute. */
static struct template_node *parse_target_item(struct template_parser *parser, bool attributes)
{
    if (template_skip_sign(parser, "(")) {
        struct template_node *first = NULL;
        struct template_node **place = &first;
        bool several = false; /* (a) is a, and (a,) a tuple */
        struct template_node *tuple = template_node_make(parser, TEMPLATE_NODE_TUPLE);
        if (!template_deeper(parser->run)) {
            return NULL;
        }
        do {
            *place = parse_target_item(parser, attributes);
            place = *place != NULL ? &(*place)->next : place;
        } while (parser->run->code == 0 && template_skip_sign(parser, ",") && (several = true) &&
                 !template_at_sign(parser, ")"));
        parser->run->depth--;
        template_expect_sign(parser, ")");
        if (tuple != NULL) {
            tuple->first = first;
        }
        return several ? tuple : first;
    }
    struct template_node *node = template_node_make(parser, TEMPLATE_NODE_NAME);
    const unsigned name = template_expect_name(parser);
    if (node == NULL || parser->run->code != 0) {
        return NULL;
    }
    node->name = name;
    if (attributes && template_skip_sign(parser, ".")) {
        node->kind = TEMPLATE_NODE_NAMESPACE;
        const unsigned attribute = template_expect_name(parser);
        node->value = parser->run->code == 0 ? parser->source->names.items[attribute]
                                             : template_none();
    }
    return node;
}

static struct template_node *parse_target(struct template_parser *parser, bool attributes)
{
    struct template_node *first = parse_target_item(parser, attributes);
    if (!template_at_sign(parser, ",")) {
        return first;
    }
    struct template_node *tuple = template_node_make(parser, TEMPLATE_NODE_TUPLE);
    struct template_node *last = first;
    while (parser->run->code == 0 && template_skip_sign(parser, ",") &&
           (template_at_sign(parser, "(") ||
            (parser->token->word == TEMPLATE_WORD_NAME && !template_at_name(parser, "in")))) {
        last->next = parse_target_item(parser, attributes);
        last = last->next;
    }
    if (tuple != NULL) {
        tuple->first = first;
    }
    return tuple;
}

static struct template_node *parse_if(struct template_parser *parser)
{
    static const char *const ends[] = {"endif", "elif", "else", NULL};
    static const char *const last[] = {"endif", NULL};
    struct template_node *node = template_node_make(parser, TEMPLATE_NODE_IF);
    if (node == NULL || !template_deeper(parser->run)) {
        return NULL;
    }
    node->first = template_parse_tuple(parser, false);
    node->second = parse_body(parser, ends, false);
    if (template_skip_name(parser, "elif")) {
        node->third = parse_if(parser);
        if (node->third != NULL) {
            node->third->chained = true;
        }
    } else if (template_skip_name(parser, "else")) {
        node->third = parse_body(parser, last, true);
    } else if (parser->run->code == 0) {
        parser->token++;
    }
    parser->run->depth--;
    return node;
}

static struct template_node *parse_for(struct template_parser *parser)
{
    static const char *const ends[] = {"endfor", "else", NULL};
    static const char *const last[] = {"endfor", NULL};
    struct template_node *node = template_node_make(parser, TEMPLATE_NODE_FOR);
    struct template_for *loop = template_alloc(parser->run, sizeof *loop);
    if (node == NULL || loop == NULL) {
        return NULL;
    }
    node->loop = loop;
    loop->target = parse_target(parser, false);
    if (parser->run->code == 0 && !template_skip_name(parser, "in")) {
        template_unexpected(parser, "in");
    }
    loop->items = template_parse_tuple(parser, false);
    if (template_skip_name(parser, "if")) {
        loop->filter = template_parse_expression(parser);
    }
    loop->recursive = template_skip_name(parser, "recursive");
    parser->loops++;
    loop->body = parse_body(parser, ends, false);
    parser->loops--;
    if (template_skip_name(parser, "else")) {
        loop->otherwise = parse_body(parser, last, true);
    } else if (parser->run->code == 0) {
        parser->token++;
    }
    return node;
}

static struct template_node *parse_set(struct template_parser *parser)
{
    static const char *const ends[] = {"endset", NULL};
    struct template_node *node = template_node_make(parser, TEMPLATE_NODE_SET);
    struct template_node *target = parse_target(parser, true);
    if (node == NULL) {
        return NULL;
    }
    node->first = target;
    if (template_skip_sign(parser, "=")) {
        node->second = template_parse_tuple(parser, true);
        return node;
    }
    node->kind = TEMPLATE_NODE_SET_BLOCK;
    node->third = template_parse_filters(parser, NULL, false);
    node->second = parse_body(parser, ends, true);
    return node;
}

/* (name, name=default, ...) */
static struct template_node *parse_parameters(struct template_parser *parser)
{
    struct template_node *first = NULL;
    struct template_node **place = &first;
    bool defaults = false;
    template_expect_sign(parser, "(");
    while (parser->run->code == 0 && !template_at_sign(parser, ")")) {
        if (first != NULL) {
            template_expect_sign(parser, ",");
        }
        struct template_node *parameter = template_node_make(parser, TEMPLATE_NODE_KEYWORD);
        const unsigned name = template_expect_name(parser);
        if (parameter == NULL || parser->run->code != 0) {
            break;
        }
        parameter->name = name;
        if (template_skip_sign(parser, "=")) {
            parameter->first = template_parse_expression(parser);
            defaults = true;
        } else if (defaults) {
            template_fail(parser->run, -EINVAL,
                          "a parameter without a default follows one with it");
        }
        *place = parameter;
        place = &parameter->next;
    }
    template_expect_sign(parser, ")");
    return first;
}

static struct template_node *parse_macro(struct template_parser *parser)
{
    static const char *const ends[] = {"endmacro", NULL};
    struct template_node *node = template_node_make(parser, TEMPLATE_NODE_MACRO);
    const unsigned name = template_expect_name(parser);
    if (node == NULL) {
        return NULL;
    }
    const unsigned loops = parser->loops;
    parser->loops = 0;
    node->name = name;
    node->first = parse_parameters(parser);
    node->second = parse_body(parser, ends, true);
    parser->loops = loops;
    return node;
}

static struct template_node *parse_call_block(struct template_parser *parser)
{
    static const char *const ends[] = {"endcall", NULL};
    struct template_node *node = template_node_make(parser, TEMPLATE_NODE_CALL_BLOCK);
    struct template_node *caller = template_node_make(parser, TEMPLATE_NODE_MACRO);
    if (node == NULL || caller == NULL) {
        return NULL;
    }
    if (template_at_sign(parser, "(")) {
        caller->first = parse_parameters(parser);
    }
    caller->name = template_name(parser->run, &parser->source->names, "caller", 6);
    node->first = template_parse_expression(parser);
    if (parser->run->code == 0 && node->first->kind != TEMPLATE_NODE_CALL) {
        template_fail(parser->run, -EINVAL, "{%% call %%} needs the call of a macro");
    }
    const unsigned loops = parser->loops;
    parser->loops = 0;
    caller->second = parse_body(parser, ends, true);
    parser->loops = loops;
    node->second = caller;
    return node;
}

static struct template_node *parse_filter_block(struct template_parser *parser)
{
    static const char *const ends[] = {"endfilter", NULL};
    struct template_node *node = template_node_make(parser, TEMPLATE_NODE_FILTER_BLOCK);
    struct template_node *filters = template_parse_filters(parser, NULL, true);
    if (node != NULL) {
        node->first = filters;
        node->second = parse_body(parser, ends, true);
    }
    return node;
}

static struct template_node *parse_with(struct template_parser *parser)
{
    static const char *const ends[] = {"endwith", NULL};
    struct template_node *node = template_node_make(parser, TEMPLATE_NODE_WITH);
    struct template_node **place = node != NULL ? &node->first : NULL;
    while (parser->run->code == 0 && parser->token->word != TEMPLATE_WORD_BLOCK_END) {
        if (node->first != NULL) {
            template_expect_sign(parser, ",");
        }
        struct template_node *set = template_node_make(parser, TEMPLATE_NODE_SET);
        struct template_node *target = parse_target_item(parser, false);
        template_expect_sign(parser, "=");
        if (set == NULL || parser->run->code != 0) {
            break;
        }
        set->first = target;
        set->second = template_parse_expression(parser);
        *place = set;
        place = &set->next;
    }
    if (node != NULL) {
        node->second = parse_body(parser, ends, true);
    }
    return node;
}

static struct template_node *parse_generation(struct template_parser *parser)
{
    static const char *const ends[] = {"endgeneration", NULL};
    struct template_node *node = template_node_make(parser, TEMPLATE_NODE_GENERATION);
    parser->source->generates = true;
    const unsigned loops = parser->loops;
    parser->loops = 0;
    struct template_node *body = parse_body(parser, ends, true);
    parser->loops = loops;
    if (node != NULL) {
        node->second = body;
    }
    return node;
}

static struct template_node *parse_jump(struct template_parser *parser,
                                        enum template_node_kind kind)
{
    if (parser->loops == 0) {
        template_fail(parser->run, -EINVAL, "break and continue stand in loops only");
    }
    return template_node_make(parser, kind);
}

static struct template_node *parse_break(struct template_parser *parser)
{
    return parse_jump(parser, TEMPLATE_NODE_BREAK);
}

static struct template_node *parse_continue(struct template_parser *parser)
{
    return parse_jump(parser, TEMPLATE_NODE_CONTINUE);
}

static struct template_node *parse_statement(struct template_parser *parser)
{
    static const struct {
        const char *name;
        struct template_node *(*parse)(struct template_parser *parser);
    } statements[] = {
        {"if", parse_if},           {"for", parse_for},
        {"set", parse_set},         {"macro", parse_macro},
        {"call", parse_call_block}, {"filter", parse_filter_block},
        {"with", parse_with},       {"generation", parse_generation},
        {"break", parse_break},     {"continue", parse_continue},
    };
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++) {
        if (template_skip_name(parser, statements[i].name)) {
            if (!template_deeper(parser->run)) {
                return NULL;
            }
            struct template_node *node = statements[i].parse(parser);
            parser->run->depth--;
            return node;
        }
    }
    static const char *const refused[] = {"include", "import",     "from",  "extends",
                                          "block",   "autoescape", "print", "do"};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        if (template_at_name(parser, refused[i])) {
            parser->run->line = parser->token->line;
            template_fail(parser->run, -EINVAL, "{%% %s %%} is not supported", refused[i]);
            return NULL;
        }
    }
    template_unexpected(parser, "a statement");
    return NULL;
}

static bool at_end(const struct template_parser *parser, const char *const *ends)
{
    for (size_t i = 0; ends != NULL && ends[i] != NULL; i++) {
        if (template_at_name(parser, ends[i])) {
            return true;
        }
    }
    return false;
}

/* Stops behind the {% of a tag of `ends`, or at the end of the source. */
static struct template_node *parse_statements(struct template_parser *parser,
                                              const char *const *ends)
{
    struct template_node *first = NULL;
    struct template_node **place = &first;
    while (parser->run->code == 0 && parser->token->word != TEMPLATE_WORD_END) {
        struct template_node *node = NULL;
        const struct template_token *token = parser->token++;
        parser->run->line = token->line;
        if (token->word == TEMPLATE_WORD_DATA) {
            node = template_node_make(parser, TEMPLATE_NODE_DATA);
            if (node != NULL) {
                node->value = template_string(token->text, token->bytes);
            }
        } else if (token->word == TEMPLATE_WORD_VARIABLE_BEGIN) {
            node = template_node_make(parser, TEMPLATE_NODE_OUTPUT);
            struct template_node *value = template_parse_tuple(parser, true);
            template_expect_word(parser, TEMPLATE_WORD_VARIABLE_END, "}}");
            if (node != NULL) {
                node->first = value;
            }
        } else {
            if (at_end(parser, ends)) {
                return first;
            }
            node = parse_statement(parser);
            template_expect_word(parser, TEMPLATE_WORD_BLOCK_END, "%}");
        }
        if (node != NULL) {
            *place = node;
            place = &node->next;
        }
    }
    return first;
}

int text_template_create(const char *source, size_t bytes, const char *name,
                         struct text_template **out)
{
    if (bytes > TEXT_TEMPLATE_BYTES_MAX) {
        return core_err_set(-E2BIG, "%s: a template of %zu bytes, and %d are possible", name, bytes,
                            TEXT_TEMPLATE_BYTES_MAX);
    }
    struct text_template *made = core_charge_zeroed(1, sizeof *made);
    if (made == NULL || (made->name = core_charge_text(name, SIZE_MAX)) == NULL) {
        core_charge_free(made);
        return core_err_set(-ENOMEM, "%s: no memory for a template", name);
    }
    made->memory.bytes_max = SOURCE_MEMORY_BYTES;
    made->memory.steps = made->memory.steps_max = SOURCE_STEPS;
    made->memory.source = made->name;
    struct template_tokens tokens = {0};
    template_lex(&made->memory, source, bytes, &tokens);
    if (made->memory.code == 0) {
        struct template_parser parser = {
            .run = &made->memory, .source = made, .token = tokens.items};
        made->body = parse_statements(&parser, NULL);
    }
    const int code = made->memory.code;
    if (code != 0) {
        text_template_destroy(made);
        return code;
    }
    *out = made;
    return 0;
}

void text_template_destroy(struct text_template *source)
{
    if (source != NULL) {
        template_release(&source->memory);
        core_charge_free(source->name);
        core_charge_free(source);
    }
}

bool text_template_generates(const struct text_template *source)
{
    return source->generates;
}
