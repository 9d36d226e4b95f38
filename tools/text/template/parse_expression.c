/* parse_expression.c: expressions, by descent through the levels of precedence, weakest first. */
#include "tools/text/template/node.h"

/* Signs that join two expressions of the level below, from the left. */
static struct template_node *parse_signs(struct template_parser *parser, const char *const *signs,
                                         struct template_node *(*below)(struct template_parser *))
{
    struct template_node *left = below(parser);
    for (size_t i = 0; parser->run->code == 0 && signs[i] != NULL;) {
        if (!template_skip_sign(parser, signs[i])) {
            i++;
            continue;
        }
        left = template_node_pair(parser, TEMPLATE_NODE_BINARY, left, below(parser));
        if (left != NULL) {
            left->sign = signs[i];
        }
        i = 0;
    }
    return left;
}

static struct template_node *parse_plain(struct template_parser *parser)
{
    return template_parse_unary(parser, true);
}

static struct template_node *parse_power(struct template_parser *parser)
{
    static const char *const signs[] = {"**", NULL};
    return parse_signs(parser, signs, parse_plain);
}

static struct template_node *parse_product(struct template_parser *parser)
{
    static const char *const signs[] = {"*", "/", "//", "%", NULL};
    return parse_signs(parser, signs, parse_power);
}

static struct template_node *parse_concat(struct template_parser *parser)
{
    struct template_node *first = NULL;
    struct template_node *last = NULL;
    template_node_append(&first, &last, parse_product(parser));
    if (!template_at_sign(parser, "~")) {
        return first;
    }
    while (parser->run->code == 0 && template_skip_sign(parser, "~")) {
        template_node_append(&first, &last, parse_product(parser));
    }
    return template_node_pair(parser, TEMPLATE_NODE_CONCAT, first, NULL);
}

static struct template_node *parse_sum(struct template_parser *parser)
{
    static const char *const signs[] = {"+", "-", NULL};
    return parse_signs(parser, signs, parse_concat);
}

/* The sign of the comparison that comes next, which is passed over; or NULL. */
static const char *take_comparison(struct template_parser *parser)
{
    static const char *const signs[] = {"==", "!=", "<=", ">=", "<", ">"};
    for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++) {
        if (template_skip_sign(parser, signs[i])) {
            return signs[i];
        }
    }
    if (template_skip_name(parser, "in")) {
        return "in";
    }
    if (template_at_name(parser, "not") &&
        template_is_word(template_look(parser), TEMPLATE_WORD_NAME, "in")) {
        template_pass(parser);
        template_pass(parser);
        return "not in";
    }
    return NULL;
}

static struct template_node *parse_comparison(struct template_parser *parser)
{
    struct template_node *first = parse_sum(parser);
    struct template_node *operands = NULL;
    struct template_node *last = NULL;
    const char *sign;
    while (parser->run->code == 0 && (sign = take_comparison(parser)) != NULL) {
        struct template_node *operand = template_node_pair(parser, TEMPLATE_NODE_OPERAND,
                                                           parse_sum(parser), NULL);
        if (operand != NULL) {
            operand->sign = sign;
        }
        template_node_append(&operands, &last, operand);
    }
    return operands == NULL ? first
                            : template_node_pair(parser, TEMPLATE_NODE_COMPARE, first, operands);
}

static struct template_node *parse_not(struct template_parser *parser)
{
    if (!template_at_name(parser, "not")) {
        return parse_comparison(parser);
    }
    if (!template_deeper(parser->run)) {
        return NULL;
    }
    template_pass(parser);
    struct template_node *node = template_node_pair(parser, TEMPLATE_NODE_NOT, parse_not(parser),
                                                    NULL);
    parser->run->depth--;
    return node;
}

static struct template_node *parse_and(struct template_parser *parser)
{
    struct template_node *left = parse_not(parser);
    while (parser->run->code == 0 && template_skip_name(parser, "and")) {
        left = template_node_pair(parser, TEMPLATE_NODE_AND, left, parse_not(parser));
    }
    return left;
}

static struct template_node *parse_or(struct template_parser *parser)
{
    struct template_node *left = parse_and(parser);
    while (parser->run->code == 0 && template_skip_name(parser, "or")) {
        left = template_node_pair(parser, TEMPLATE_NODE_OR, left, parse_and(parser));
    }
    return left;
}

struct template_node *template_parse_expression(struct template_parser *parser)
{
    if (!template_deeper(parser->run)) {
        return NULL;
    }
    struct template_node *node = parse_or(parser);
    while (parser->run->code == 0 && template_skip_name(parser, "if")) {
        node = template_node_pair(parser, TEMPLATE_NODE_CONDITION, node, parse_or(parser));
        if (node != NULL && template_skip_name(parser, "else")) {
            node->third = template_parse_expression(parser);
        }
    }
    parser->run->depth--;
    return node;
}

/* Nothing more of a tuple can come. */
static bool at_tuple_end(const struct template_parser *parser)
{
    const enum template_word word = parser->token->word;
    return word == TEMPLATE_WORD_VARIABLE_END || word == TEMPLATE_WORD_BLOCK_END ||
           word == TEMPLATE_WORD_END || template_at_sign(parser, ")") ||
           template_at_name(parser, "recursive");
}

struct template_node *template_parse_tuple(struct template_parser *parser, bool condition)
{
    struct template_node *first = NULL;
    struct template_node *last = NULL;
    bool tuple = false;
    do {
        template_node_append(&first, &last,
                             condition ? template_parse_expression(parser) : parse_or(parser));
        if (!template_skip_sign(parser, ",")) {
            break;
        }
        tuple = true;
    } while (parser->run->code == 0 && !at_tuple_end(parser));
    return tuple ? template_node_pair(parser, TEMPLATE_NODE_TUPLE, first, NULL) : first;
}
