/* parse_expressions.c: names, reading of words, and expressions in the order of precedence. */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "tools/text/jinja/function.h"
#include "tools/text/jinja/node.h"

/* ---- names ---- */

unsigned jinja_name_find(const struct jinja_names *names, const char *text, size_t bytes)
{
    for (unsigned i = 0; i < names->count; i++) {
        if (names->items[i].bytes == bytes && memcmp(names->items[i].as.text, text, bytes) == 0) {
            return i;
        }
    }
    return UINT_MAX;
}

unsigned jinja_name(struct jinja_run *run, struct jinja_names *names, const char *text,
                    size_t bytes)
{
    const unsigned there = jinja_step(run, names->count) ? jinja_name_find(names, text, bytes)
                                                         : UINT_MAX;
    if (there != UINT_MAX || run->rc != 0) {
        return there != UINT_MAX ? there : 0;
    }
    if (names->count == names->room) {
        const unsigned room = names->room * 2 + 64;
        struct jinja_value *more = jinja_alloc(run, room * sizeof *more);
        if (more == NULL) {
            return 0;
        }
        if (names->count > 0) {
            memcpy(more, names->items, names->count * sizeof *more);
        }
        names->items = more;
        names->room = room;
    }
    names->items[names->count] = jinja_string_copy(run, text, bytes);
    return names->count++;
}

/* ---- words ---- */

struct jinja_node *jinja_node_make(struct jinja_parser *parser, enum jinja_node_kind kind)
{
    struct jinja_node *node = jinja_alloc(parser->run, sizeof *node);
    if (node != NULL) {
        node->kind = kind;
        node->line = parser->token->line;
    }
    return node;
}

static struct jinja_node *node_pair(struct jinja_parser *parser, enum jinja_node_kind kind,
                                    struct jinja_node *first, struct jinja_node *second)
{
    struct jinja_node *node = jinja_node_make(parser, kind);
    if (node != NULL) {
        node->first = first;
        node->second = second;
    }
    return node;
}

static bool token_is_word(const struct jinja_token *token, enum jinja_word word, const char *text)
{
    return token->word == word && token->bytes == strlen(text) &&
           memcmp(token->text, text, token->bytes) == 0;
}

bool jinja_at_sign(const struct jinja_parser *parser, const char *sign)
{
    return token_is_word(parser->token, JINJA_WORD_SIGN, sign);
}

bool jinja_at_name(const struct jinja_parser *parser, const char *name)
{
    return token_is_word(parser->token, JINJA_WORD_NAME, name);
}

/* Returns the word after the next one. */
static const struct jinja_token *look_ahead(const struct jinja_parser *parser)
{
    return parser->token->word == JINJA_WORD_END ? parser->token : parser->token + 1;
}

static void pass_token(struct jinja_parser *parser)
{
    parser->run->line = parser->token->line;
    parser->token += parser->token->word != JINJA_WORD_END;
}

bool jinja_skip_sign(struct jinja_parser *parser, const char *sign)
{
    const bool there = jinja_at_sign(parser, sign);
    if (there) {
        pass_token(parser);
    }
    return there;
}

bool jinja_skip_name(struct jinja_parser *parser, const char *name)
{
    const bool there = jinja_at_name(parser, name);
    if (there) {
        pass_token(parser);
    }
    return there;
}

void jinja_unexpected(struct jinja_parser *parser, const char *wanted)
{
    const struct jinja_token *token = parser->token;
    static const char *const words[] = {
        [JINJA_WORD_END] = "the end of the template",
        [JINJA_WORD_DATA] = "text",
        [JINJA_WORD_VARIABLE_BEGIN] = "{{",
        [JINJA_WORD_VARIABLE_END] = "}}",
        [JINJA_WORD_BLOCK_BEGIN] = "{%",
        [JINJA_WORD_BLOCK_END] = "%}",
        [JINJA_WORD_STRING] = "a string",
        [JINJA_WORD_INTEGER] = "a number",
        [JINJA_WORD_REAL] = "a number",
    };
    parser->run->line = token->line;
    if (token->word == JINJA_WORD_NAME || token->word == JINJA_WORD_SIGN) {
        jinja_fail(parser->run, -EINVAL, "expected %s, found '%.*s'", wanted,
                   (int)(token->bytes < 60 ? token->bytes : 60), token->text);
    } else {
        jinja_fail(parser->run, -EINVAL, "expected %s, found %s", wanted, words[token->word]);
    }
}

void jinja_expect_sign(struct jinja_parser *parser, const char *sign)
{
    if (!jinja_skip_sign(parser, sign)) {
        jinja_unexpected(parser, sign);
    }
}

void jinja_expect_word(struct jinja_parser *parser, enum jinja_word word, const char *what)
{
    if (parser->token->word != word) {
        jinja_unexpected(parser, what);
    } else {
        pass_token(parser);
    }
}

unsigned jinja_expect_name(struct jinja_parser *parser)
{
    const struct jinja_token *token = parser->token;
    if (token->word != JINJA_WORD_NAME) {
        jinja_unexpected(parser, "a name");
        return 0;
    }
    pass_token(parser);
    return jinja_name(parser->run, &parser->source->names, token->text, token->bytes);
}

static void node_append(struct jinja_node **first, struct jinja_node **last,
                        struct jinja_node *node)
{
    if (node != NULL) {
        *(*last != NULL ? &(*last)->next : first) = node;
        *last = node;
    }
}

/* ---- expressions ---- */

/* Parses items separated by commas up to the closing sign. */
static struct jinja_node *parse_items(struct jinja_parser *parser, enum jinja_node_kind kind,
                                      const char *closes)
{
    struct jinja_node *last = NULL;
    struct jinja_node *list = node_pair(parser, kind, NULL, NULL);
    while (parser->run->rc == 0 && !jinja_at_sign(parser, closes)) {
        if (last != NULL) {
            jinja_expect_sign(parser, ",");
            if (jinja_at_sign(parser, closes)) {
                break;
            }
        }
        node_append(&list->first, &last, jinja_parse_expression(parser));
        if (kind == JINJA_NODE_DICT) {
            jinja_expect_sign(parser, ":");
            node_append(&list->first, &last, jinja_parse_expression(parser));
        }
    }
    jinja_expect_sign(parser, closes);
    return list;
}

static struct jinja_node *parse_constant(struct jinja_parser *parser)
{
    struct jinja_node *node = jinja_node_make(parser, JINJA_NODE_CONSTANT);
    const struct jinja_token *token = parser->token;
    if (node == NULL) {
        return NULL;
    }
    if (token->word == JINJA_WORD_INTEGER) {
        node->value = jinja_integer(token->integer);
    } else if (token->word == JINJA_WORD_REAL) {
        node->value = jinja_real(token->real);
    } else {
        node->value = jinja_string(token->text, token->bytes);
    }
    pass_token(parser);
    while (token->word == JINJA_WORD_STRING && parser->token->word == JINJA_WORD_STRING) {
        char *joined; /* adjacent strings are one string */
        const struct jinja_value left = node->value;
        const struct jinja_token *right = parser->token;
        node->value = jinja_string_room(parser->run, left.bytes + right->bytes, &joined);
        if (joined == NULL) {
            break;
        }
        memcpy(joined, left.as.text, left.bytes);
        memcpy(joined + left.bytes, right->text, right->bytes);
        pass_token(parser);
    }
    return node;
}

static struct jinja_node *parse_name(struct jinja_parser *parser)
{
    static const char *const words[] = {"true", "True", "false", "False", "none", "None"};
    for (size_t i = 0; i < 6; i++) {
        if (jinja_at_name(parser, words[i])) {
            struct jinja_node *node = jinja_node_make(parser, JINJA_NODE_CONSTANT);
            if (node != NULL) {
                node->value = i < 4 ? jinja_bool(i < 2) : jinja_none();
            }
            pass_token(parser);
            return node;
        }
    }
    struct jinja_node *node = jinja_node_make(parser, JINJA_NODE_NAME);
    const unsigned name = jinja_expect_name(parser);
    if (node != NULL) {
        node->name = name;
    }
    return node;
}

static struct jinja_node *parse_primary(struct jinja_parser *parser)
{
    switch (parser->token->word) {
    case JINJA_WORD_NAME: return parse_name(parser);
    case JINJA_WORD_STRING:
    case JINJA_WORD_INTEGER:
    case JINJA_WORD_REAL: return parse_constant(parser);
    case JINJA_WORD_SIGN:
        if (jinja_skip_sign(parser, "[")) {
            return parse_items(parser, JINJA_NODE_LIST, "]");
        }
        if (jinja_skip_sign(parser, "{")) {
            return parse_items(parser, JINJA_NODE_DICT, "}");
        }
        if (jinja_skip_sign(parser, "(")) {
            struct jinja_node *node = jinja_at_sign(parser, ")")
                                          ? node_pair(parser, JINJA_NODE_TUPLE, NULL, NULL)
                                          : jinja_parse_tuple(parser, true);
            jinja_expect_sign(parser, ")");
            return node;
        }
        break;
    case JINJA_WORD_END:
    case JINJA_WORD_DATA:
    case JINJA_WORD_VARIABLE_BEGIN:
    case JINJA_WORD_VARIABLE_END:
    case JINJA_WORD_BLOCK_BEGIN:
    case JINJA_WORD_BLOCK_END: break;
    }
    jinja_unexpected(parser, "an expression");
    return NULL;
}

static struct jinja_node *parse_subscript(struct jinja_parser *parser)
{
    struct jinja_node *parts[3] = {NULL, NULL, NULL};
    size_t part = 0;
    while (parser->run->rc == 0 && part < 3) {
        if (!jinja_at_sign(parser, ":") && !jinja_at_sign(parser, "]")) {
            parts[part] = jinja_parse_expression(parser);
        }
        if (part == 2 || !jinja_skip_sign(parser, ":")) {
            break;
        }
        part++;
    }
    if (part == 0) {
        if (parts[0] == NULL) {
            jinja_unexpected(parser, "an index");
        }
        return parts[0];
    }
    struct jinja_node *slice = node_pair(parser, JINJA_NODE_SLICE, parts[0], parts[1]);
    if (slice != NULL) {
        slice->third = parts[2];
    }
    return slice;
}

static struct jinja_node *parse_argument(struct jinja_parser *parser)
{
    if (jinja_skip_sign(parser, "**")) {
        return node_pair(parser, JINJA_NODE_SPREAD_KEYWORDS, jinja_parse_expression(parser), NULL);
    }
    if (jinja_skip_sign(parser, "*")) {
        return node_pair(parser, JINJA_NODE_SPREAD, jinja_parse_expression(parser), NULL);
    }
    if (parser->token->word == JINJA_WORD_NAME &&
        token_is_word(look_ahead(parser), JINJA_WORD_SIGN, "=")) {
        struct jinja_node *keyword = node_pair(parser, JINJA_NODE_KEYWORD, NULL, NULL);
        const unsigned name = jinja_expect_name(parser);
        jinja_expect_sign(parser, "=");
        if (keyword != NULL) {
            keyword->name = name;
            keyword->first = jinja_parse_expression(parser);
        }
        return keyword;
    }
    return jinja_parse_expression(parser);
}

/* Parses arguments after the opening bracket. */
static struct jinja_node *parse_arguments(struct jinja_parser *parser)
{
    struct jinja_node *first = NULL;
    struct jinja_node *last = NULL;
    while (parser->run->rc == 0 && !jinja_at_sign(parser, ")")) {
        if (last != NULL) {
            jinja_expect_sign(parser, ",");
            if (jinja_at_sign(parser, ")")) {
                break;
            }
        }
        const bool named = last != NULL && last->kind == JINJA_NODE_KEYWORD;
        struct jinja_node *argument = parse_argument(parser);
        if (argument != NULL && named && argument->kind != JINJA_NODE_KEYWORD &&
            argument->kind != JINJA_NODE_SPREAD_KEYWORDS) {
            jinja_fail(parser->run, -EINVAL, "an argument without a name follows a named one");
        }
        node_append(&first, &last, argument);
    }
    jinja_expect_sign(parser, ")");
    return first;
}

static struct jinja_node *parse_call(struct jinja_parser *parser, struct jinja_node *node)
{
    struct jinja_node *call = node_pair(parser, JINJA_NODE_CALL, node, NULL);
    pass_token(parser);
    struct jinja_node *arguments = parse_arguments(parser);
    if (call != NULL) {
        call->second = arguments;
    }
    return call;
}

/* Parses .name, [item] and (arguments) after a primary. */
static struct jinja_node *parse_postfix(struct jinja_parser *parser, struct jinja_node *node)
{
    while (parser->run->rc == 0) {
        if (jinja_at_sign(parser, "(")) {
            node = parse_call(parser, node);
        } else if (jinja_skip_sign(parser, "[")) {
            node = node_pair(parser, JINJA_NODE_ITEM, node, NULL);
            struct jinja_node *item = parse_subscript(parser);
            jinja_expect_sign(parser, "]");
            if (node != NULL) {
                node->second = item;
            }
        } else if (jinja_skip_sign(parser, ".")) {
            const bool index = parser->token->word == JINJA_WORD_INTEGER;
            node = node_pair(parser, index ? JINJA_NODE_ITEM : JINJA_NODE_ATTRIBUTE, node, NULL);
            if (index) {
                struct jinja_node *item = parse_constant(parser);
                if (node != NULL) {
                    node->second = item;
                }
            } else {
                const unsigned name = jinja_expect_name(parser);
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

static void find_function(struct jinja_parser *parser, struct jinja_node *node, bool test)
{
    const struct jinja_token *token = parser->token;
    if (token->word != JINJA_WORD_NAME) {
        jinja_unexpected(parser, test ? "a test" : "a filter");
        return;
    }
    pass_token(parser);
    node->function = test ? jinja_test_find(token->text, token->bytes)
                          : jinja_filter_find(token->text, token->bytes);
    /* The message about an unknown function needs the name; only a call is an error. */
    node->value = jinja_string(token->text, token->bytes);
}

struct jinja_node *jinja_parse_filters(struct jinja_parser *parser, struct jinja_node *node,
                                       bool begun)
{
    while (parser->run->rc == 0 && (begun || jinja_skip_sign(parser, "|"))) {
        begun = false;
        node = node_pair(parser, JINJA_NODE_FILTER, node, NULL);
        if (node == NULL) {
            break;
        }
        find_function(parser, node, false);
        if (jinja_skip_sign(parser, "(")) {
            node->second = parse_arguments(parser);
        }
    }
    return node;
}

/* As in Jinja, any other name is the argument of a test, even `if`. */
static bool at_test_argument(const struct jinja_parser *parser)
{
    const enum jinja_word word = parser->token->word;
    if (word == JINJA_WORD_NAME) {
        return !jinja_at_name(parser, "else") && !jinja_at_name(parser, "or") &&
               !jinja_at_name(parser, "and");
    }
    return word == JINJA_WORD_STRING || word == JINJA_WORD_INTEGER || word == JINJA_WORD_REAL ||
           jinja_at_sign(parser, "[") || jinja_at_sign(parser, "{");
}

static struct jinja_node *parse_test(struct jinja_parser *parser, struct jinja_node *node)
{
    const bool negated = jinja_skip_name(parser, "not");
    node = node_pair(parser, JINJA_NODE_TEST, node, NULL);
    if (node == NULL) {
        return NULL;
    }
    find_function(parser, node, true);
    if (jinja_skip_sign(parser, "(")) {
        node->second = parse_arguments(parser);
    } else if (jinja_at_name(parser, "is")) {
        jinja_fail(parser->run, -EINVAL, "a test cannot follow another test: use brackets");
    } else if (parser->run->rc == 0 && at_test_argument(parser)) {
        struct jinja_node *argument = parse_primary(parser);
        node->second = parse_postfix(parser, argument);
    }
    return negated ? node_pair(parser, JINJA_NODE_NOT, node, NULL) : node;
}

static struct jinja_node *parse_unary(struct jinja_parser *parser, bool filters)
{
    struct jinja_node *node = NULL;
    if (!jinja_deeper(parser->run)) {
        return NULL;
    }
    if (jinja_skip_sign(parser, "-")) {
        node = node_pair(parser, JINJA_NODE_NEGATE, parse_unary(parser, false), NULL);
    } else if (jinja_skip_sign(parser, "+")) {
        node = node_pair(parser, JINJA_NODE_PLUS, parse_unary(parser, false), NULL);
    } else {
        node = parse_primary(parser);
    }
    node = parse_postfix(parser, node);
    while (filters && parser->run->rc == 0) {
        if (jinja_at_sign(parser, "|")) {
            node = jinja_parse_filters(parser, node, false);
        } else if (jinja_skip_name(parser, "is")) {
            node = parse_test(parser, node);
        } else if (jinja_at_sign(parser, "(")) {
            node = parse_call(parser, node);
        } else {
            break;
        }
    }
    parser->run->depth--;
    return node;
}

/* Parses a chain of left-associative binary operators. */
static struct jinja_node *parse_signs(struct jinja_parser *parser, const char *const *signs,
                                      struct jinja_node *(*below)(struct jinja_parser *))
{
    struct jinja_node *left = below(parser);
    for (size_t i = 0; parser->run->rc == 0 && signs[i] != NULL;) {
        if (!jinja_skip_sign(parser, signs[i])) {
            i++;
            continue;
        }
        left = node_pair(parser, JINJA_NODE_BINARY, left, below(parser));
        if (left != NULL) {
            left->sign = signs[i];
        }
        i = 0;
    }
    return left;
}

static struct jinja_node *parse_plain(struct jinja_parser *parser)
{
    return parse_unary(parser, true);
}

static struct jinja_node *parse_power(struct jinja_parser *parser)
{
    static const char *const signs[] = {"**", NULL};
    return parse_signs(parser, signs, parse_plain);
}

static struct jinja_node *parse_product(struct jinja_parser *parser)
{
    static const char *const signs[] = {"*", "/", "//", "%", NULL};
    return parse_signs(parser, signs, parse_power);
}

static struct jinja_node *parse_concat(struct jinja_parser *parser)
{
    struct jinja_node *first = NULL;
    struct jinja_node *last = NULL;
    node_append(&first, &last, parse_product(parser));
    if (!jinja_at_sign(parser, "~")) {
        return first;
    }
    while (parser->run->rc == 0 && jinja_skip_sign(parser, "~")) {
        node_append(&first, &last, parse_product(parser));
    }
    return node_pair(parser, JINJA_NODE_CONCAT, first, NULL);
}

static struct jinja_node *parse_sum(struct jinja_parser *parser)
{
    static const char *const signs[] = {"+", "-", NULL};
    return parse_signs(parser, signs, parse_concat);
}

/* Reads a comparison of one or two words; NULL: there is none. */
static const char *take_comparison(struct jinja_parser *parser)
{
    static const char *const signs[] = {"==", "!=", "<=", ">=", "<", ">"};
    for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++) {
        if (jinja_skip_sign(parser, signs[i])) {
            return signs[i];
        }
    }
    if (jinja_skip_name(parser, "in")) {
        return "in";
    }
    if (jinja_at_name(parser, "not") && token_is_word(look_ahead(parser), JINJA_WORD_NAME, "in")) {
        pass_token(parser);
        pass_token(parser);
        return "not in";
    }
    return NULL;
}

static struct jinja_node *parse_comparison(struct jinja_parser *parser)
{
    struct jinja_node *first = parse_sum(parser);
    struct jinja_node *operands = NULL;
    struct jinja_node *last = NULL;
    const char *sign;
    while (parser->run->rc == 0 && (sign = take_comparison(parser)) != NULL) {
        struct jinja_node *operand = node_pair(parser, JINJA_NODE_OPERAND, parse_sum(parser), NULL);
        if (operand != NULL) {
            operand->sign = sign;
        }
        node_append(&operands, &last, operand);
    }
    return operands == NULL ? first : node_pair(parser, JINJA_NODE_COMPARE, first, operands);
}

static struct jinja_node *parse_not(struct jinja_parser *parser)
{
    if (!jinja_at_name(parser, "not")) {
        return parse_comparison(parser);
    }
    if (!jinja_deeper(parser->run)) {
        return NULL;
    }
    pass_token(parser);
    struct jinja_node *node = node_pair(parser, JINJA_NODE_NOT, parse_not(parser), NULL);
    parser->run->depth--;
    return node;
}

static struct jinja_node *parse_and(struct jinja_parser *parser)
{
    struct jinja_node *left = parse_not(parser);
    while (parser->run->rc == 0 && jinja_skip_name(parser, "and")) {
        left = node_pair(parser, JINJA_NODE_AND, left, parse_not(parser));
    }
    return left;
}

static struct jinja_node *parse_or(struct jinja_parser *parser)
{
    struct jinja_node *left = parse_and(parser);
    while (parser->run->rc == 0 && jinja_skip_name(parser, "or")) {
        left = node_pair(parser, JINJA_NODE_OR, left, parse_and(parser));
    }
    return left;
}

struct jinja_node *jinja_parse_expression(struct jinja_parser *parser)
{
    if (!jinja_deeper(parser->run)) {
        return NULL;
    }
    struct jinja_node *node = parse_or(parser);
    while (parser->run->rc == 0 && jinja_skip_name(parser, "if")) {
        node = node_pair(parser, JINJA_NODE_CONDITION, node, parse_or(parser));
        if (node != NULL && jinja_skip_name(parser, "else")) {
            node->third = jinja_parse_expression(parser);
        }
    }
    parser->run->depth--;
    return node;
}

static bool at_tuple_end(const struct jinja_parser *parser)
{
    const enum jinja_word word = parser->token->word;
    return word == JINJA_WORD_VARIABLE_END || word == JINJA_WORD_BLOCK_END ||
           word == JINJA_WORD_END || jinja_at_sign(parser, ")") ||
           jinja_at_name(parser, "recursive");
}

struct jinja_node *jinja_parse_tuple(struct jinja_parser *parser, bool condition)
{
    struct jinja_node *first = NULL;
    struct jinja_node *last = NULL;
    bool tuple = false;
    do {
        node_append(&first, &last, condition ? jinja_parse_expression(parser) : parse_or(parser));
        if (!jinja_skip_sign(parser, ",")) {
            break;
        }
        tuple = true;
    } while (parser->run->rc == 0 && !at_tuple_end(parser));
    return tuple ? node_pair(parser, JINJA_NODE_TUPLE, first, NULL) : first;
}
