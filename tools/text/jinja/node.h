/* node.h: a template as a tree (private to tools/text/jinja). Immutable after parsing. */
#ifndef TOOLS_TEXT_JINJA_NODE_H
#define TOOLS_TEXT_JINJA_NODE_H

#include "tools/text/jinja/lexer.h"

enum jinja_node_kind {
    /* Expressions, with their parts. */
    JINJA_NODE_CONSTANT,  /* value */
    JINJA_NODE_NAME,      /* name */
    JINJA_NODE_LIST,      /* first: items */
    JINJA_NODE_TUPLE,     /* first: items */
    JINJA_NODE_DICT,      /* first: key, value, key, value ... */
    JINJA_NODE_NOT,       /* first */
    JINJA_NODE_NEGATE,    /* first */
    JINJA_NODE_PLUS,      /* first */
    JINJA_NODE_AND,       /* first, second */
    JINJA_NODE_OR,        /* first, second */
    JINJA_NODE_BINARY,    /* sign, first, second */
    JINJA_NODE_CONCAT,    /* first: items */
    JINJA_NODE_COMPARE,   /* first; second: list of OPERAND */
    JINJA_NODE_OPERAND,   /* sign, first */
    JINJA_NODE_CONDITION, /* first if second else third (may be NULL) */
    JINJA_NODE_ATTRIBUTE, /* first, name */
    JINJA_NODE_ITEM,      /* first[second] */
    JINJA_NODE_SLICE,     /* first, second, third: each may be NULL */
    JINJA_NODE_CALL,      /* first; second: arguments */
    JINJA_NODE_FILTER,    /* first: input (NULL: a block's text), function, second: arguments */
    JINJA_NODE_TEST,      /* first, function, second: arguments */
    JINJA_NODE_KEYWORD,   /* an argument: name = first */
    JINJA_NODE_SPREAD,    /* an argument: *first */
    JINJA_NODE_SPREAD_KEYWORDS,
    /* Statements. */
    JINJA_NODE_DATA,         /* value */
    JINJA_NODE_OUTPUT,       /* first */
    JINJA_NODE_IF,           /* first: condition, second: body, third: elif (chained) or else */
    JINJA_NODE_FOR,          /* see struct jinja_for */
    JINJA_NODE_SET,          /* first: target, second: value */
    JINJA_NODE_SET_BLOCK,    /* first: target, second: body, third: FILTER chain or NULL */
    JINJA_NODE_NAMESPACE,    /* a target: name.attribute; value: the attribute */
    JINJA_NODE_MACRO,        /* name, first: KEYWORD list (first: default), second: body */
    JINJA_NODE_CALL_BLOCK,   /* first: CALL, second: MACRO that is the caller */
    JINJA_NODE_FILTER_BLOCK, /* first: FILTER chain, second: body */
    JINJA_NODE_WITH,         /* first: SET list, second: body */
    JINJA_NODE_GENERATION,   /* second: body */
    JINJA_NODE_BREAK,
    JINJA_NODE_CONTINUE,
};

struct jinja_function;

struct jinja_node {
    enum jinja_node_kind kind;
    unsigned line;
    const char *sign; /* operator of BINARY and OPERAND */
    unsigned name;    /* index in the names of the template */
    struct jinja_value value;
    const struct jinja_function *function; /* function of FILTER and TEST; static */
    struct jinja_node *first;
    struct jinja_node *second;
    struct jinja_node *third;
    struct jinja_node *next; /* in a list */
    struct jinja_for *loop;  /* the loop of FOR */
    bool chained;            /* an IF that is an elif */
};

struct jinja_for {
    struct jinja_node *target;
    struct jinja_node *items;
    struct jinja_node *filter; /* `if`; may be NULL */
    struct jinja_node *body;
    struct jinja_node *otherwise; /* may be NULL */
    bool recursive;
};

/* Distinct names of variables and attributes. */
struct jinja_names {
    struct jinja_value *items; /* strings */
    unsigned count;
    unsigned room;
};
unsigned jinja_name(struct jinja_run *run, struct jinja_names *names, const char *text,
                    size_t bytes);
/* Returns the number of a name, or UINT_MAX. */
unsigned jinja_name_find(const struct jinja_names *names, const char *text, size_t bytes);

struct jinja_template {
    struct jinja_run memory; /* memory of words and nodes */
    struct jinja_names names;
    struct jinja_node *body;
    char *name; /* owned: name of the source */
    bool generates;
};

struct jinja_parser {
    struct jinja_run *run; /* borrowed: the template's memory */
    struct jinja_template *source;
    struct jinja_token *token; /* the next word */
    unsigned loops;            /* number of loops around the current word */
};

/* On a syntax error, the functions fail the run and return NULL. */
struct jinja_node *jinja_parse_expression(struct jinja_parser *parser);
/* Parses a tuple without brackets. `condition`: allow `a if b`. */
struct jinja_node *jinja_parse_tuple(struct jinja_parser *parser, bool condition);
/* Parses the filters `| name | name ...` of `node`. `begun`: no | precedes the first name. */
struct jinja_node *jinja_parse_filters(struct jinja_parser *parser, struct jinja_node *node,
                                       bool begun);

struct jinja_node *jinja_node_make(struct jinja_parser *parser, enum jinja_node_kind kind);

bool jinja_at_sign(const struct jinja_parser *parser, const char *sign);
bool jinja_at_name(const struct jinja_parser *parser, const char *name);
/* Skips the next word if it is this sign; returns whether it was. */
bool jinja_skip_sign(struct jinja_parser *parser, const char *sign);
bool jinja_skip_name(struct jinja_parser *parser, const char *name);
void jinja_expect_sign(struct jinja_parser *parser, const char *sign);
void jinja_expect_word(struct jinja_parser *parser, enum jinja_word word, const char *what);
/* Reads a name and returns its number; fails the run if the next word is not a name. */
unsigned jinja_expect_name(struct jinja_parser *parser);
void jinja_unexpected(struct jinja_parser *parser, const char *wanted);

#endif
