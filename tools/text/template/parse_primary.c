/* parse_primary.c: constants, names, lists and dicts, and what stands behind them: attributes, items,
 * calls, filters and tests. */
#include <errno.h>
#include <string.h>

#include "tools/text/template/function.h"
#include "tools/text/template/node.h"

/* Items up to the closing sign, a comma between them. */
static struct template_node *parse_items(struct template_parser *parser,
                                         enum template_node_kind kind, const char *closes)
{
    struct template_node *last = NULL;
    struct template_node *list = template_node_pair(parser, kind, NULL, NULL);
    while (parser->run->code == 0 && !template_at_sign(parser, closes)) {
        if (last != NULL) {
            template_expect_sign(parser, ",");
            if (template_at_sign(parser, closes)) {
                break;
            }
        }
        template_node_append(&list->first, &last, template_parse_expression(parser));
        if (kind == TEMPLATE_NODE_DICT) {
            template_expect_sign(parser, ":");
            template_node_append(&list->first, &last, template_parse_expression(parser));
        }
    }
    template_expect_sign(parser, closes);
    return list;
}

static struct template_node *parse_constant(struct template_parser *parser)
{
    struct template_node *node = template_node_make(parser, TEMPLATE_NODE_CONSTANT);
    const struct template_token *token = parser->token;
    if (node == NULL) {
        return NULL;
    }
    if (token->word == TEMPLATE_WORD_INTEGER) {
        node->value = template_integer(token->integer);
    } else if (token->word == TEMPLATE_WORD_REAL) {
        node->value = template_real(token->real);
    } else {
        node->value = template_string(token->text, token->bytes);
    }
    template_pass(parser);
    while (token->word == TEMPLATE_WORD_STRING && parser->token->word == TEMPLATE_WORD_STRING) {
        char *joined; /* neighbours are one string */
        const struct template_value left = node->value;
        const struct template_token *right = parser->token;
        node->value = template_string_room(parser->run, left.bytes + right->bytes, &joined);
        if (joined == NULL) {
            break;
        }
        memcpy(joined, left.as.text, left.bytes);
        memcpy(joined + left.bytes, right->text, right->bytes);
        template_pass(parser);
    }
    return node;
}

static struct template_node *parse_name(struct template_parser *parser)
{
    static const char *const words[] = {"true", "True", "false", "False", "none", "None"};
    for (size_t i = 0; i < 6; i++) {
        if (template_at_name(parser, words[i])) {
            struct template_node *node = template_node_make(parser, TEMPLATE_NODE_CONSTANT);
            if (node != NULL) {
                node->value = i < 4 ? template_bool(i < 2) : template_none();
            }
            template_pass(parser);
            return node;
        }
    }
    struct template_node *node = template_node_make(parser, TEMPLATE_NODE_NAME);
    const unsigned name = template_expect_name(parser);
    if (node != NULL) {
        node->name = name;
    }
    return node;
}

static struct template_node *parse_primary(struct template_parser *parser)
{
    switch (parser->token->word) {
    case TEMPLATE_WORD_NAME: return parse_name(parser);
    case TEMPLATE_WORD_STRING:
    case TEMPLATE_WORD_INTEGER:
    case TEMPLATE_WORD_REAL: return parse_constant(parser);
    case TEMPLATE_WORD_SIGN:
        if (template_skip_sign(parser, "[")) {
            return parse_items(parser, TEMPLATE_NODE_LIST, "]");
        }
        if (template_skip_sign(parser, "{")) {
            return parse_items(parser, TEMPLATE_NODE_DICT, "}");
        }
        if (template_skip_sign(parser, "(")) {
            struct template_node *node = template_at_sign(parser, ")")
                                             ? template_node_pair(parser, TEMPLATE_NODE_TUPLE, NULL,
                                                                  NULL)
                                             : template_parse_tuple(parser, true);
            template_expect_sign(parser, ")");
            return node;
        }
        break;
    case TEMPLATE_WORD_END:
    case TEMPLATE_WORD_DATA:
    case TEMPLATE_WORD_VARIABLE_BEGIN:
    case TEMPLATE_WORD_VARIABLE_END:
    case TEMPLATE_WORD_BLOCK_BEGIN:
    case TEMPLATE_WORD_BLOCK_END: break;
    }
    template_unexpected(parser, "an expression");
    return NULL;
}

/* One of the expressions between [ and ], or a slice. */
static struct template_node *parse_subscript(struct template_parser *parser)
{
    struct template_node *parts[3] = {NULL, NULL, NULL};
    size_t part = 0;
    while (parser->run->code == 0 && part < 3) {
        if (!template_at_sign(parser, ":") && !template_at_sign(parser, "]")) {
            parts[part] = template_parse_expression(parser);
        }
        if (part == 2 || !template_skip_sign(parser, ":")) {
            break;
        }
        part++;
    }
    if (part == 0) {
        if (parts[0] == NULL) {
            template_unexpected(parser, "an index");
        }
        return parts[0];
    }
    struct template_node *slice = template_node_pair(parser, TEMPLATE_NODE_SLICE, parts[0],
                                                     parts[1]);
    if (slice != NULL) {
        slice->third = parts[2];
    }
    return slice;
}

static struct template_node *parse_argument(struct template_parser *parser)
{
    if (template_skip_sign(parser, "**")) {
        return template_node_pair(parser, TEMPLATE_NODE_SPREAD_KEYWORDS,
                                  template_parse_expression(parser), NULL);
    }
    if (template_skip_sign(parser, "*")) {
        return template_node_pair(parser, TEMPLATE_NODE_SPREAD, template_parse_expression(parser),
                                  NULL);
    }
    if (parser->token->word == TEMPLATE_WORD_NAME &&
        template_is_word(template_look(parser), TEMPLATE_WORD_SIGN, "=")) {
        struct template_node *keyword = template_node_pair(parser, TEMPLATE_NODE_KEYWORD, NULL,
                                                           NULL);
        const unsigned name = template_expect_name(parser);
        template_expect_sign(parser, "=");
        if (keyword != NULL) {
            keyword->name = name;
            keyword->first = template_parse_expression(parser);
        }
        return keyword;
    }
    return template_parse_expression(parser);
}

/* Behind the opening bracket. */
static struct template_node *parse_arguments(struct template_parser *parser)
{
    struct template_node *first = NULL;
    struct template_node *last = NULL;
    while (parser->run->code == 0 && !template_at_sign(parser, ")")) {
        if (last != NULL) {
            template_expect_sign(parser, ",");
            if (template_at_sign(parser, ")")) {
                break;
            }
        }
        const bool named = last != NULL && last->kind == TEMPLATE_NODE_KEYWORD;
        struct template_node *argument = parse_argument(parser);
        if (argument != NULL && named && argument->kind != TEMPLATE_NODE_KEYWORD &&
            argument->kind != TEMPLATE_NODE_SPREAD_KEYWORDS) {
            template_fail(parser->run, -EINVAL, "an argument without a name follows a named one");
        }
        template_node_append(&first, &last, argument);
    }
    template_expect_sign(parser, ")");
    return first;
}

static struct template_node *parse_call(struct template_parser *parser, struct template_node *node)
{
    struct template_node *call = template_node_pair(parser, TEMPLATE_NODE_CALL, node, NULL);
    template_pass(parser);
    struct template_node *arguments = parse_arguments(parser);
    if (call != NULL) {
        call->second = arguments;
    }
    return call;
}

/* .name, [item] and (arguments) behind a primary. */
static struct template_node *parse_postfix(struct template_parser *parser,
                                           struct template_node *node)
{
    while (parser->run->code == 0) {
        if (template_at_sign(parser, "(")) {
            node = parse_call(parser, node);
        } else if (template_skip_sign(parser, "[")) {
            node = template_node_pair(parser, TEMPLATE_NODE_ITEM, node, NULL);
            struct template_node *item = parse_subscript(parser);
            template_expect_sign(parser, "]");
            if (node != NULL) {
                node->second = item;
            }
        } else if (template_skip_sign(parser, ".")) {
            const bool index = parser->token->word == TEMPLATE_WORD_INTEGER;
            node = template_node_pair(parser, index ? TEMPLATE_NODE_ITEM : TEMPLATE_NODE_ATTRIBUTE,
                                      node, NULL);
            if (index) {
                struct template_node *item = parse_constant(parser);
                if (node != NULL) {
                    node->second = item;
                }
            } else {
                const unsigned name = template_expect_name(parser);
                if (node != NULL) {
                    node->name = name;
                }
            }
        } else {
            break;
        }
    }
    return node;
}

/* The function of a filter or test. */
static void find_function(struct template_parser *parser, struct template_node *node, bool test)
{
    const struct template_token *token = parser->token;
    if (token->word != TEMPLATE_WORD_NAME) {
        template_unexpected(parser, test ? "a test" : "a filter");
        return;
    }
    template_pass(parser);
    node->function = test ? template_test_find(token->text, token->bytes)
                          : template_filter_find(token->text, token->bytes);
    node->value = template_string(token->text,
                                  token->bytes); /* named when it is used and missing */
}

struct template_node *template_parse_filters(struct template_parser *parser,
                                             struct template_node *node, bool begun)
{
    while (parser->run->code == 0 && (begun || template_skip_sign(parser, "|"))) {
        begun = false;
        node = template_node_pair(parser, TEMPLATE_NODE_FILTER, node, NULL);
        if (node == NULL) {
            break;
        }
        find_function(parser, node, false);
        if (template_skip_sign(parser, "(")) {
            node->second = parse_arguments(parser);
        }
    }
    return node;
}

/* Does an argument of a test follow without brackets? */
static bool at_test_argument(const struct template_parser *parser)
{
    const enum template_word word = parser->token->word;
    if (word == TEMPLATE_WORD_NAME) {
        return !template_at_name(parser, "else") && !template_at_name(parser, "or") &&
               !template_at_name(parser, "and") && !template_at_name(parser, "is") &&
               !template_at_name(parser, "if") && !template_at_name(parser, "in") &&
               !template_at_name(parser, "not") && !template_at_name(parser, "recursive");
    }
    return word == TEMPLATE_WORD_STRING || word == TEMPLATE_WORD_INTEGER ||
           word == TEMPLATE_WORD_REAL || template_at_sign(parser, "[") ||
           template_at_sign(parser, "{");
}

static struct template_node *parse_test(struct template_parser *parser, struct template_node *node)
{
    const bool negated = template_skip_name(parser, "not");
    node = template_node_pair(parser, TEMPLATE_NODE_TEST, node, NULL);
    if (node == NULL) {
        return NULL;
    }
    find_function(parser, node, true);
    if (template_skip_sign(parser, "(")) {
        node->second = parse_arguments(parser);
    } else if (parser->run->code == 0 && at_test_argument(parser)) {
        struct template_node *argument = parse_primary(parser);
        node->second = parse_postfix(parser, argument);
    }
    return negated ? template_node_pair(parser, TEMPLATE_NODE_NOT, node, NULL) : node;
}

struct template_node *template_parse_unary(struct template_parser *parser, bool filters)
{
    struct template_node *node = NULL;
    if (!template_deeper(parser->run)) {
        return NULL;
    }
    if (template_skip_sign(parser, "-")) {
        node = template_node_pair(parser, TEMPLATE_NODE_NEGATE, template_parse_unary(parser, false),
                                  NULL);
    } else if (template_skip_sign(parser, "+")) {
        node = template_node_pair(parser, TEMPLATE_NODE_PLUS, template_parse_unary(parser, false),
                                  NULL);
    } else {
        node = parse_primary(parser);
    }
    node = parse_postfix(parser, node);
    while (filters && parser->run->code == 0) {
        if (template_at_sign(parser, "|")) {
            node = template_parse_filters(parser, node, false);
        } else if (template_skip_name(parser, "is")) {
            node = parse_test(parser, node);
        } else if (template_at_sign(parser, "(")) {
            node = parse_call(parser, node);
        } else {
            break;
        }
    }
    parser->run->depth--;
    return node;
}
