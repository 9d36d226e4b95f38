/* parse_words.c: the word that comes next, and nodes made of words. */
#include <errno.h>
#include <string.h>

#include "tools/text/template/node.h"

struct template_node *template_node_make(struct template_parser *parser,
                                         enum template_node_kind kind)
{
    struct template_node *node = template_alloc(parser->run, sizeof *node);
    if (node != NULL) {
        node->kind = kind;
        node->line = parser->token->line;
    }
    return node;
}

struct template_node *template_node_pair(struct template_parser *parser,
                                         enum template_node_kind kind, struct template_node *first,
                                         struct template_node *second)
{
    struct template_node *node = template_node_make(parser, kind);
    if (node != NULL) {
        node->first = first;
        node->second = second;
    }
    return node;
}

bool template_is_word(const struct template_token *token, enum template_word word, const char *text)
{
    return token->word == word && token->bytes == strlen(text) &&
           memcmp(token->text, text, token->bytes) == 0;
}

bool template_at_sign(const struct template_parser *parser, const char *sign)
{
    return template_is_word(parser->token, TEMPLATE_WORD_SIGN, sign);
}

bool template_at_name(const struct template_parser *parser, const char *name)
{
    return template_is_word(parser->token, TEMPLATE_WORD_NAME, name);
}

/* The word behind the next one; the last word is its own successor. */
const struct template_token *template_look(const struct template_parser *parser)
{
    return parser->token->word == TEMPLATE_WORD_END ? parser->token : parser->token + 1;
}

void template_pass(struct template_parser *parser)
{
    parser->run->line = parser->token->line;
    parser->token += parser->token->word != TEMPLATE_WORD_END;
}

bool template_skip_sign(struct template_parser *parser, const char *sign)
{
    const bool there = template_at_sign(parser, sign);
    if (there) {
        template_pass(parser);
    }
    return there;
}

bool template_skip_name(struct template_parser *parser, const char *name)
{
    const bool there = template_at_name(parser, name);
    if (there) {
        template_pass(parser);
    }
    return there;
}

void template_unexpected(struct template_parser *parser, const char *wanted)
{
    const struct template_token *token = parser->token;
    static const char *const words[] = {
        [TEMPLATE_WORD_END] = "the end of the template",
        [TEMPLATE_WORD_DATA] = "text",
        [TEMPLATE_WORD_VARIABLE_BEGIN] = "{{",
        [TEMPLATE_WORD_VARIABLE_END] = "}}",
        [TEMPLATE_WORD_BLOCK_BEGIN] = "{%",
        [TEMPLATE_WORD_BLOCK_END] = "%}",
        [TEMPLATE_WORD_STRING] = "a string",
        [TEMPLATE_WORD_INTEGER] = "a number",
        [TEMPLATE_WORD_REAL] = "a number",
    };
    parser->run->line = token->line;
    if (token->word == TEMPLATE_WORD_NAME || token->word == TEMPLATE_WORD_SIGN) {
        template_fail(parser->run, -EINVAL, "%s was expected, and '%.*s' stands here", wanted,
                      (int)(token->bytes < 60 ? token->bytes : 60), token->text);
    } else {
        template_fail(parser->run, -EINVAL, "%s was expected, and %s stands here", wanted,
                      words[token->word]);
    }
}

void template_expect_sign(struct template_parser *parser, const char *sign)
{
    if (!template_skip_sign(parser, sign)) {
        template_unexpected(parser, sign);
    }
}

void template_expect_word(struct template_parser *parser, enum template_word word, const char *what)
{
    if (parser->token->word != word) {
        template_unexpected(parser, what);
    } else {
        template_pass(parser);
    }
}

unsigned template_expect_name(struct template_parser *parser)
{
    const struct template_token *token = parser->token;
    if (token->word != TEMPLATE_WORD_NAME) {
        template_unexpected(parser, "a name");
        return 0;
    }
    template_pass(parser);
    return template_name(parser->run, &parser->source->names, token->text, token->bytes);
}

/* Adds to a list that begins at *first. */
void template_node_append(struct template_node **first, struct template_node **last,
                          struct template_node *node)
{
    if (node != NULL) {
        *(*last != NULL ? &(*last)->next : first) = node;
        *last = node;
    }
}
