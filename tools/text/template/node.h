/* node.h: a template as a tree (private to tools/text/template). Never changes once it was parsed. */
#ifndef TOOLS_TEXT_TEMPLATE_NODE_H
#define TOOLS_TEXT_TEMPLATE_NODE_H

#include "tools/text/template/lex.h"

enum template_node_kind {
    /* Expressions; in brackets, what the node's parts are. */
    TEMPLATE_NODE_CONSTANT,  /* value */
    TEMPLATE_NODE_NAME,      /* name */
    TEMPLATE_NODE_LIST,      /* first: items */
    TEMPLATE_NODE_TUPLE,     /* first: items */
    TEMPLATE_NODE_DICT,      /* first: key, value, key, value ... */
    TEMPLATE_NODE_NOT,       /* first */
    TEMPLATE_NODE_NEGATE,    /* first */
    TEMPLATE_NODE_PLUS,      /* first */
    TEMPLATE_NODE_AND,       /* first, second */
    TEMPLATE_NODE_OR,        /* first, second */
    TEMPLATE_NODE_BINARY,    /* sign, first, second */
    TEMPLATE_NODE_CONCAT,    /* first: items */
    TEMPLATE_NODE_COMPARE,   /* first; second: list of OPERAND */
    TEMPLATE_NODE_OPERAND,   /* sign, first */
    TEMPLATE_NODE_CONDITION, /* first if second else third (may be NULL) */
    TEMPLATE_NODE_ATTRIBUTE, /* first, name */
    TEMPLATE_NODE_ITEM,      /* first[second] */
    TEMPLATE_NODE_SLICE,     /* first, second, third: each may be NULL */
    TEMPLATE_NODE_CALL,      /* first; second: arguments */
    TEMPLATE_NODE_FILTER,    /* first (NULL: of a block), function, second: arguments */
    TEMPLATE_NODE_TEST,      /* first, function, second: arguments */
    TEMPLATE_NODE_KEYWORD,   /* an argument: name = first */
    TEMPLATE_NODE_SPREAD,    /* an argument: *first */
    TEMPLATE_NODE_SPREAD_KEYWORDS,
    /* Statements. */
    TEMPLATE_NODE_DATA,      /* value */
    TEMPLATE_NODE_OUTPUT,    /* first */
    TEMPLATE_NODE_IF,        /* first: condition, second: body, third: elif (chained) or else */
    TEMPLATE_NODE_FOR,       /* see struct template_for */
    TEMPLATE_NODE_SET,       /* first: target, second */
    TEMPLATE_NODE_SET_BLOCK, /* first: target, second: body, third: FILTER chain or NULL */
    TEMPLATE_NODE_NAMESPACE, /* a target: name.attribute; value: the attribute */
    TEMPLATE_NODE_MACRO,     /* name, first: parameters (KEYWORD; first NULL: no default), second */
    TEMPLATE_NODE_CALL_BLOCK,   /* first: CALL, second: MACRO that is the caller */
    TEMPLATE_NODE_FILTER_BLOCK, /* first: FILTER chain, second: body */
    TEMPLATE_NODE_WITH,         /* first: SET list, second: body */
    TEMPLATE_NODE_GENERATION,   /* second: body */
    TEMPLATE_NODE_BREAK,
    TEMPLATE_NODE_CONTINUE,
};

struct template_function;

struct template_node {
    enum template_node_kind kind;
    unsigned line;
    const char *sign; /* of BINARY, OPERAND */
    unsigned name;    /* number of a name */
    struct template_value value;
    const struct template_function *function; /* static: of FILTER, TEST */
    struct template_node *first;
    struct template_node *second;
    struct template_node *third;
    struct template_node *next; /* in a list */
    struct template_for *loop;  /* of FOR */
    bool chained;               /* an IF that is an elif */
};

struct template_for {
    struct template_node *target;
    struct template_node *items;
    struct template_node *filter; /* `if`; may be NULL */
    struct template_node *body;
    struct template_node *otherwise; /* may be NULL */
    bool recursive;
};

/* Names of variables and attributes, each once. */
struct template_names {
    struct template_value *items; /* strings */
    unsigned count;
    unsigned room;
};
unsigned template_name(struct text_template_run *run, struct template_names *names,
                       const char *text, size_t bytes);
/* The number of a name, or UINT_MAX. */
unsigned template_name_find(const struct template_names *names, const char *text, size_t bytes);

struct text_template {
    struct text_template_run memory; /* of words and nodes */
    struct template_names names;
    struct template_node *body;
    char *name; /* owned: the source's */
    bool generates;
};

struct template_parser {
    struct text_template_run *run; /* borrowed: the template's memory */
    struct text_template *source;
    struct template_token *token; /* the word that comes next */
    unsigned loops;               /* in which the parser is */
};

/* Each fails the run and returns NULL where the words are others. */
struct template_node *template_parse_expression(struct template_parser *parser);
/* A primary with its sign, and, with `filters`, what is applied to it. */
struct template_node *template_parse_unary(struct template_parser *parser, bool filters);
/* Expressions with commas between become a tuple. `condition`: `a if b` may stand in it. */
struct template_node *template_parse_tuple(struct template_parser *parser, bool condition);
/* `name | name ...` around `node`; `begun`: the first name comes without its sign. */
struct template_node *template_parse_filters(struct template_parser *parser,
                                             struct template_node *node, bool begun);

struct template_node *template_node_make(struct template_parser *parser,
                                         enum template_node_kind kind);
struct template_node *template_node_pair(struct template_parser *parser,
                                         enum template_node_kind kind, struct template_node *first,
                                         struct template_node *second);
/* Adds to a list that begins at *first; nothing where `node` is NULL. */
void template_node_append(struct template_node **first, struct template_node **last,
                          struct template_node *node);

bool template_is_word(const struct template_token *token, enum template_word word,
                      const char *text);
/* The word behind the next one; the last word is its own successor. */
const struct template_token *template_look(const struct template_parser *parser);
void template_pass(struct template_parser *parser);
bool template_at_sign(const struct template_parser *parser, const char *sign);
bool template_at_name(const struct template_parser *parser, const char *name);
/* Passes over the word where it is there. */
bool template_skip_sign(struct template_parser *parser, const char *sign);
bool template_skip_name(struct template_parser *parser, const char *name);
void template_expect_sign(struct template_parser *parser, const char *sign);
void template_expect_word(struct template_parser *parser, enum template_word word,
                          const char *what);
/* Takes a name, or fails. */
unsigned template_expect_name(struct template_parser *parser);
void template_unexpected(struct template_parser *parser, const char *wanted);

#endif
