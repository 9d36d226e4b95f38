/* parse_words.c: the word that comes next, and nodes made of words. */
#include <errno.h>
#include <string.h>

#include "tools/text/jinja/node.h"

struct jinja_node *jinja_node_make(struct jinja_parser *parser, enum jinja_node_kind kind)
{
    struct jinja_node *node = jinja_alloc(parser->run, sizeof *node);
    if (node != NULL) {
        node->kind = kind;
        node->line = parser->token->line;
    }
    return node;
}

struct jinja_node *jinja_node_pair(struct jinja_parser *parser, enum jinja_node_kind kind,
                                   struct jinja_node *first, struct jinja_node *second)
{
    struct jinja_node *node = jinja_node_make(parser, kind);
    if (node != NULL) {
        node->first = first;
        node->second = second;
    }
    return node;
}

bool jinja_is_word(const struct jinja_token *token, enum jinja_word word, const char *text)
{
    return token->word == word && token->bytes == strlen(text) &&
           memcmp(token->text, text, token->bytes) == 0;
}

bool jinja_at_sign(const struct jinja_parser *parser, const char *sign)
{
    return jinja_is_word(parser->token, JINJA_WORD_SIGN, sign);
}

bool jinja_at_name(const struct jinja_parser *parser, const char *name)
{
    return jinja_is_word(parser->token, JINJA_WORD_NAME, name);
}

/* The word behind the next one; the last word is its own successor. */
const struct jinja_token *jinja_look(const struct jinja_parser *parser)
{
    return parser->token->word == JINJA_WORD_END ? parser->token : parser->token + 1;
}

void jinja_pass(struct jinja_parser *parser)
{
    parser->run->line = parser->token->line;
    parser->token += parser->token->word != JINJA_WORD_END;
}

bool jinja_skip_sign(struct jinja_parser *parser, const char *sign)
{
    const bool there = jinja_at_sign(parser, sign);
    if (there) {
        jinja_pass(parser);
    }
    return there;
}

bool jinja_skip_name(struct jinja_parser *parser, const char *name)
{
    const bool there = jinja_at_name(parser, name);
    if (there) {
        jinja_pass(parser);
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
        jinja_fail(parser->run, -EINVAL, "%s was expected, and '%.*s' stands here", wanted,
                   (int)(token->bytes < 60 ? token->bytes : 60), token->text);
    } else {
        jinja_fail(parser->run, -EINVAL, "%s was expected, and %s stands here", wanted,
                   words[token->word]);
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
        jinja_pass(parser);
    }
}

unsigned jinja_expect_name(struct jinja_parser *parser)
{
    const struct jinja_token *token = parser->token;
    if (token->word != JINJA_WORD_NAME) {
        jinja_unexpected(parser, "a name");
        return 0;
    }
    jinja_pass(parser);
    return jinja_name(parser->run, &parser->source->names, token->text, token->bytes);
}

/* Adds to a list that begins at *first. */
void jinja_node_append(struct jinja_node **first, struct jinja_node **last, struct jinja_node *node)
{
    if (node != NULL) {
        *(*last != NULL ? &(*last)->next : first) = node;
        *last = node;
    }
}
