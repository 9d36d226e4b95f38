/* parse_statements.c: parses statements and the whole source. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "tools/text/jinja/node.h"

enum { SOURCE_MEMORY_BYTES = 256 << 20, SOURCE_STEPS = 1 << 28 };

static struct jinja_node *parse_statements(struct jinja_parser *parser, const char *const *ends);

/* Parses from the end of a tag up to a tag of `ends` (NULL-terminated). `drop`: skips the name of
 * that tag, too. */
static struct jinja_node *parse_body(struct jinja_parser *parser, const char *const *ends,
                                     bool drop)
{
    jinja_skip_sign(parser, ":");
    jinja_expect_word(parser, JINJA_WORD_BLOCK_END, "%}");
    const unsigned line = parser->run->line;
    struct jinja_node *body = parse_statements(parser, ends);
    if (parser->run->rc == 0 && parser->token->word == JINJA_WORD_END) {
        parser->run->line = line;
        jinja_fail(parser->run, -EINVAL, "the block that begins here is not closed with {%% %s %%}",
                   ends[0]);
    }
    if (parser->run->rc == 0 && drop) {
        parser->token++;
    }
    return body;
}

/* Parses a name, a tuple of names or, with `attributes`, name.attribute. */
static struct jinja_node *parse_target_item(struct jinja_parser *parser, bool attributes)
{
    if (jinja_skip_sign(parser, "(")) {
        struct jinja_node *first = NULL;
        struct jinja_node **place = &first;
        bool several = false; /* (a) is a; (a,) is a tuple */
        struct jinja_node *tuple = jinja_node_make(parser, JINJA_NODE_TUPLE);
        if (!jinja_deeper(parser->run)) {
            return NULL;
        }
        do {
            *place = parse_target_item(parser, attributes);
            place = *place != NULL ? &(*place)->next : place;
        } while (parser->run->rc == 0 && jinja_skip_sign(parser, ",") && (several = true) &&
                 !jinja_at_sign(parser, ")"));
        parser->run->depth--;
        jinja_expect_sign(parser, ")");
        if (tuple != NULL) {
            tuple->first = first;
        }
        return several ? tuple : first;
    }
    struct jinja_node *node = jinja_node_make(parser, JINJA_NODE_NAME);
    const unsigned name = jinja_expect_name(parser);
    if (node == NULL || parser->run->rc != 0) {
        return NULL;
    }
    node->name = name;
    if (attributes && jinja_skip_sign(parser, ".")) {
        node->kind = JINJA_NODE_NAMESPACE;
        const unsigned attribute = jinja_expect_name(parser);
        node->value = parser->run->rc == 0 ? parser->source->names.items[attribute] : jinja_none();
    }
    return node;
}

static struct jinja_node *parse_target(struct jinja_parser *parser, bool attributes)
{
    struct jinja_node *first = parse_target_item(parser, attributes);
    if (!jinja_at_sign(parser, ",")) {
        return first;
    }
    struct jinja_node *tuple = jinja_node_make(parser, JINJA_NODE_TUPLE);
    struct jinja_node *last = first;
    while (parser->run->rc == 0 && jinja_skip_sign(parser, ",") &&
           (jinja_at_sign(parser, "(") ||
            (parser->token->word == JINJA_WORD_NAME && !jinja_at_name(parser, "in")))) {
        last->next = parse_target_item(parser, attributes);
        last = last->next;
    }
    if (tuple != NULL) {
        tuple->first = first;
    }
    return tuple;
}

static struct jinja_node *parse_if(struct jinja_parser *parser)
{
    static const char *const ends[] = {"endif", "elif", "else", NULL};
    static const char *const last[] = {"endif", NULL};
    struct jinja_node *node = jinja_node_make(parser, JINJA_NODE_IF);
    if (node == NULL || !jinja_deeper(parser->run)) {
        return NULL;
    }
    node->first = jinja_parse_tuple(parser, false);
    node->second = parse_body(parser, ends, false);
    if (jinja_skip_name(parser, "elif")) {
        node->third = parse_if(parser);
        if (node->third != NULL) {
            node->third->chained = true;
        }
    } else if (jinja_skip_name(parser, "else")) {
        node->third = parse_body(parser, last, true);
    } else if (parser->run->rc == 0) {
        parser->token++;
    }
    parser->run->depth--;
    return node;
}

static struct jinja_node *parse_for(struct jinja_parser *parser)
{
    static const char *const ends[] = {"endfor", "else", NULL};
    static const char *const last[] = {"endfor", NULL};
    struct jinja_node *node = jinja_node_make(parser, JINJA_NODE_FOR);
    struct jinja_for *loop = jinja_alloc(parser->run, sizeof *loop);
    if (node == NULL || loop == NULL) {
        return NULL;
    }
    node->loop = loop;
    loop->target = parse_target(parser, false);
    if (parser->run->rc == 0 && !jinja_skip_name(parser, "in")) {
        jinja_unexpected(parser, "in");
    }
    loop->items = jinja_parse_tuple(parser, false);
    if (jinja_skip_name(parser, "if")) {
        loop->filter = jinja_parse_expression(parser);
    }
    loop->recursive = jinja_skip_name(parser, "recursive");
    parser->loops++;
    loop->body = parse_body(parser, ends, false);
    parser->loops--;
    if (jinja_skip_name(parser, "else")) {
        loop->otherwise = parse_body(parser, last, true);
    } else if (parser->run->rc == 0) {
        parser->token++;
    }
    return node;
}

static struct jinja_node *parse_set(struct jinja_parser *parser)
{
    static const char *const ends[] = {"endset", NULL};
    struct jinja_node *node = jinja_node_make(parser, JINJA_NODE_SET);
    struct jinja_node *target = parse_target(parser, true);
    if (node == NULL) {
        return NULL;
    }
    node->first = target;
    if (jinja_skip_sign(parser, "=")) {
        node->second = jinja_parse_tuple(parser, true);
        return node;
    }
    node->kind = JINJA_NODE_SET_BLOCK;
    node->third = jinja_parse_filters(parser, NULL, false);
    node->second = parse_body(parser, ends, true);
    return node;
}

/* Parses (name, name=default, ...). */
static struct jinja_node *parse_parameters(struct jinja_parser *parser)
{
    struct jinja_node *first = NULL;
    struct jinja_node **place = &first;
    bool defaults = false;
    jinja_expect_sign(parser, "(");
    while (parser->run->rc == 0 && !jinja_at_sign(parser, ")")) {
        if (first != NULL) {
            jinja_expect_sign(parser, ",");
        }
        struct jinja_node *parameter = jinja_node_make(parser, JINJA_NODE_KEYWORD);
        const unsigned name = jinja_expect_name(parser);
        if (parameter == NULL || parser->run->rc != 0) {
            break;
        }
        parameter->name = name;
        if (jinja_skip_sign(parser, "=")) {
            parameter->first = jinja_parse_expression(parser);
            defaults = true;
        } else if (defaults) {
            jinja_fail(parser->run, -EINVAL,
                       "a parameter without a default follows one with a default");
        }
        *place = parameter;
        place = &parameter->next;
    }
    jinja_expect_sign(parser, ")");
    return first;
}

static struct jinja_node *parse_macro(struct jinja_parser *parser)
{
    static const char *const ends[] = {"endmacro", NULL};
    struct jinja_node *node = jinja_node_make(parser, JINJA_NODE_MACRO);
    const unsigned name = jinja_expect_name(parser);
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

static struct jinja_node *parse_call_block(struct jinja_parser *parser)
{
    static const char *const ends[] = {"endcall", NULL};
    struct jinja_node *node = jinja_node_make(parser, JINJA_NODE_CALL_BLOCK);
    struct jinja_node *caller = jinja_node_make(parser, JINJA_NODE_MACRO);
    if (node == NULL || caller == NULL) {
        return NULL;
    }
    if (jinja_at_sign(parser, "(")) {
        caller->first = parse_parameters(parser);
    }
    caller->name = jinja_name(parser->run, &parser->source->names, "caller", 6);
    node->first = jinja_parse_expression(parser);
    if (parser->run->rc == 0 && node->first->kind != JINJA_NODE_CALL) {
        jinja_fail(parser->run, -EINVAL, "{%% call %%} needs the call of a macro");
    }
    const unsigned loops = parser->loops;
    parser->loops = 0;
    caller->second = parse_body(parser, ends, true);
    parser->loops = loops;
    node->second = caller;
    return node;
}

static struct jinja_node *parse_filter_block(struct jinja_parser *parser)
{
    static const char *const ends[] = {"endfilter", NULL};
    struct jinja_node *node = jinja_node_make(parser, JINJA_NODE_FILTER_BLOCK);
    struct jinja_node *filters = jinja_parse_filters(parser, NULL, true);
    if (node != NULL) {
        node->first = filters;
        node->second = parse_body(parser, ends, true);
    }
    return node;
}

static struct jinja_node *parse_with(struct jinja_parser *parser)
{
    static const char *const ends[] = {"endwith", NULL};
    struct jinja_node *node = jinja_node_make(parser, JINJA_NODE_WITH);
    struct jinja_node **place = node != NULL ? &node->first : NULL;
    while (parser->run->rc == 0 && parser->token->word != JINJA_WORD_BLOCK_END) {
        if (node->first != NULL) {
            jinja_expect_sign(parser, ",");
        }
        struct jinja_node *set = jinja_node_make(parser, JINJA_NODE_SET);
        struct jinja_node *target = parse_target_item(parser, false);
        jinja_expect_sign(parser, "=");
        if (set == NULL || parser->run->rc != 0) {
            break;
        }
        set->first = target;
        set->second = jinja_parse_expression(parser);
        *place = set;
        place = &set->next;
    }
    if (node != NULL) {
        node->second = parse_body(parser, ends, true);
    }
    return node;
}

static struct jinja_node *parse_generation(struct jinja_parser *parser)
{
    static const char *const ends[] = {"endgeneration", NULL};
    struct jinja_node *node = jinja_node_make(parser, JINJA_NODE_GENERATION);
    parser->source->generates = true;
    const unsigned loops = parser->loops;
    parser->loops = 0;
    struct jinja_node *body = parse_body(parser, ends, true);
    parser->loops = loops;
    if (node != NULL) {
        node->second = body;
    }
    return node;
}

static struct jinja_node *parse_jump(struct jinja_parser *parser, enum jinja_node_kind kind)
{
    if (parser->loops == 0) {
        jinja_fail(parser->run, -EINVAL, "break and continue are allowed only in loops");
    }
    return jinja_node_make(parser, kind);
}

static struct jinja_node *parse_break(struct jinja_parser *parser)
{
    return parse_jump(parser, JINJA_NODE_BREAK);
}

static struct jinja_node *parse_continue(struct jinja_parser *parser)
{
    return parse_jump(parser, JINJA_NODE_CONTINUE);
}

static struct jinja_node *parse_statement(struct jinja_parser *parser)
{
    static const struct {
        const char *name;
        struct jinja_node *(*parse)(struct jinja_parser *parser);
    } statements[] = {
        {"if", parse_if},           {"for", parse_for},
        {"set", parse_set},         {"macro", parse_macro},
        {"call", parse_call_block}, {"filter", parse_filter_block},
        {"with", parse_with},       {"generation", parse_generation},
        {"break", parse_break},     {"continue", parse_continue},
    };
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++) {
        if (jinja_skip_name(parser, statements[i].name)) {
            if (!jinja_deeper(parser->run)) {
                return NULL;
            }
            struct jinja_node *node = statements[i].parse(parser);
            parser->run->depth--;
            return node;
        }
    }
    static const char *const refused[] = {"include", "import",     "from",  "extends",
                                          "block",   "autoescape", "print", "do"};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        if (jinja_at_name(parser, refused[i])) {
            parser->run->line = parser->token->line;
            jinja_fail(parser->run, -EINVAL, "{%% %s %%} is not supported", refused[i]);
            return NULL;
        }
    }
    jinja_unexpected(parser, "a statement");
    return NULL;
}

static bool at_end(const struct jinja_parser *parser, const char *const *ends)
{
    for (size_t i = 0; ends != NULL && ends[i] != NULL; i++) {
        if (jinja_at_name(parser, ends[i])) {
            return true;
        }
    }
    return false;
}

/* Parses up to the {% of a tag of `ends`, or to the end of the source. */
static struct jinja_node *parse_statements(struct jinja_parser *parser, const char *const *ends)
{
    struct jinja_node *first = NULL;
    struct jinja_node **place = &first;
    while (parser->run->rc == 0 && parser->token->word != JINJA_WORD_END) {
        struct jinja_node *node = NULL;
        const struct jinja_token *token = parser->token++;
        parser->run->line = token->line;
        if (token->word == JINJA_WORD_DATA) {
            node = jinja_node_make(parser, JINJA_NODE_DATA);
            if (node != NULL) {
                node->value = jinja_string(token->text, token->bytes);
            }
        } else if (token->word == JINJA_WORD_VARIABLE_BEGIN) {
            node = jinja_node_make(parser, JINJA_NODE_OUTPUT);
            struct jinja_node *value = jinja_parse_tuple(parser, true);
            jinja_expect_word(parser, JINJA_WORD_VARIABLE_END, "}}");
            if (node != NULL) {
                node->first = value;
            }
        } else {
            if (at_end(parser, ends)) {
                return first;
            }
            node = parse_statement(parser);
            jinja_expect_word(parser, JINJA_WORD_BLOCK_END, "%}");
        }
        if (node != NULL) {
            *place = node;
            place = &node->next;
        }
    }
    return first;
}

int jinja_template_create(const char *source, size_t bytes, const char *name,
                          struct jinja_template **out)
{
    if (bytes > JINJA_SOURCE_BYTES_MAX) {
        return core_err_set(-E2BIG, "%s: a template of %zu bytes; the maximum is %d", name, bytes,
                            JINJA_SOURCE_BYTES_MAX);
    }
    struct jinja_template *made = core_charge_zeroed(1, sizeof *made);
    if (made == NULL || (made->name = core_charge_text(name, SIZE_MAX)) == NULL) {
        core_charge_free(made);
        return core_err_set(-ENOMEM, "%s: no memory for a template", name);
    }
    made->memory.bytes_max = SOURCE_MEMORY_BYTES;
    made->memory.steps = made->memory.steps_max = SOURCE_STEPS;
    made->memory.source = made->name;
    struct jinja_tokens tokens = {0};
    jinja_lex(&made->memory, source, bytes, &tokens);
    if (made->memory.rc == 0) {
        struct jinja_parser parser = {.run = &made->memory, .source = made, .token = tokens.items};
        made->body = parse_statements(&parser, NULL);
    }
    const int rc = made->memory.rc;
    if (rc != 0) {
        jinja_template_destroy(made);
        return rc;
    }
    *out = made;
    return 0;
}

void jinja_template_destroy(struct jinja_template *source)
{
    if (source != NULL) {
        jinja_release(&source->memory);
        core_charge_free(source->name);
        core_charge_free(source);
    }
}

bool jinja_template_generates(const struct jinja_template *source)
{
    return source->generates;
}
