/* value.h: the values of a rendering, and the run that owns them (private to tools/text/jinja).
 * Memory of a run lives until the next rendering, except what jinja_run_keep() keeps. A run keeps
 * its first failure: the failing function sets run->rc and returns a harmless value; loops check
 * run->rc. One thread for each run. */
#ifndef TOOLS_TEXT_JINJA_VALUE_H
#define TOOLS_TEXT_JINJA_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/text/jinja/jinja.h"

enum jinja_kind {
    JINJA_UNDEFINED,
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INTEGER,
    JINJA_REAL,
    JINJA_STRING,
    JINJA_MARKUP, /* a string made by escape or safe; what Python would escape is refused */
    JINJA_LIST,
    JINJA_TUPLE,
    JINJA_GENERATOR, /* what map, select, batch ... return: can be iterated once */
    JINJA_RANGE,
    JINJA_KEYS, /* views of a dict */
    JINJA_VALUES,
    JINJA_ITEMS,
    JINJA_DICT,
    JINJA_NAMESPACE,
    JINJA_LOOP,
    JINJA_MACRO,
    JINJA_METHOD, /* a function, bound ("abc".upper) or not (range) */
    JINJA_CYCLER,
    JINJA_JOINER,
};

struct jinja_value {
    enum jinja_kind kind;
    uint32_t bytes; /* of the text */
    union {
        bool truth;
        int64_t integer;
        double real;
        const char *text;        /* STRING, MARKUP; UNDEFINED: the name */
        struct jinja_list *list; /* LIST to ITEMS */
        struct jinja_dict *dict; /* DICT, NAMESPACE */
        struct jinja_loop *loop;
        struct jinja_macro *macro;
        struct jinja_method *method;
        struct jinja_cycler *cycler;
    } as;
};

struct jinja_list {
    struct jinja_value *items;
    size_t count;
    size_t room;
    bool group; /* a tuple of groupby, with .grouper and .list */
    bool begun; /* a generator of which some elements were used */
};

struct jinja_pair {
    struct jinja_value key;
    struct jinja_value value;
};

/* Ordered by insertion. */
struct jinja_dict {
    struct jinja_pair *pairs;
    size_t count;
    size_t room;
};

struct jinja_method {
    struct jinja_value self;
    const struct jinja_function *function; /* static */
};

struct jinja_cycler {
    struct jinja_list *items; /* NULL: a joiner */
    size_t at;
    struct jinja_value separator;
};

struct jinja_scope;
struct jinja_node;

struct jinja_loop {
    struct jinja_list *items; /* with an `if`: those that passed it so far */
    struct jinja_list *rest;  /* with an `if`: elements that are not tested from `rest_at` on */
    size_t rest_at;
    size_t index;
    size_t depth;
    const struct jinja_node *node;
    struct jinja_scope *outer;
    struct jinja_value changed; /* arguments of the last loop.changed() */
    bool changes;               /* `changed` is set */
};

struct jinja_macro {
    const struct jinja_node *node;
    struct jinja_scope *scope; /* of the definition */
};

struct jinja_chunk;
struct jinja_links;

struct jinja_run {
    struct jinja_chunk *chunks;              /* owned: memory of values, newest first */
    struct jinja_chunk *kept_chunks;         /* owned: memory of `kept` */
    const struct core_json_value *kept_json; /* borrowed; NULL: nothing is kept */
    struct jinja_value kept;                 /* value of `kept_json`; read-only */
    size_t bytes;                            /* of all chunks and the output */
    size_t bytes_max;
    uint64_t steps; /* remaining steps */
    uint64_t steps_max;
    int rc;
    unsigned line;      /* current line of the template */
    unsigned depth;     /* depth of evaluation */
    const char *source; /* borrowed from the template */
    char *out;          /* owned */
    size_t out_bytes;
    size_t out_room;
    size_t captures;          /* open blocks whose output becomes a string */
    size_t capture_base;      /* where the output of the outermost block begins */
    struct jinja_span *spans; /* owned */
    size_t spans_count;
    size_t spans_room;
    struct jinja_scope *scope;
    /* static */
    const struct jinja_links *links;
    const struct jinja_names *names; /* borrowed from the template */
    int jump;                        /* a break or continue that has not reached its loop */
    int64_t now;
};

enum { JINJA_DEPTH_MAX = 400 };

/* Fails the run. Returns an undefined value. */
struct jinja_value jinja_fail(struct jinja_run *run, int rc, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));
/* Counts work; returns false if the run has failed. Count work that grows with operands before
 * doing it, because memory does not limit work without output. */
bool jinja_step(struct jinja_run *run, size_t steps);
/* Count a pass over a text: by characters, as a scan of bytes, by memcmp or memcpy. A step of any
 * of them takes about equal time. */
bool jinja_step_characters(struct jinja_run *run, size_t bytes);
bool jinja_step_text(struct jinja_run *run, size_t bytes);
bool jinja_step_bytes(struct jinja_run *run, size_t bytes);
/* Enters a nested level; the caller leaves it by run->depth--. Too deep: fails the run and returns
 * false. */
bool jinja_deeper(struct jinja_run *run);
/* Returns zeroed memory of the run; NULL if the run fails. */
void *jinja_alloc(struct jinja_run *run, size_t bytes);
void jinja_release(struct jinja_run *run);
/* A position in the memory of a run. jinja_rewind() frees all memory allocated after it. */
struct jinja_mark {
    struct jinja_chunk *chunk;
    size_t used;
};
struct jinja_mark jinja_mark(const struct jinja_run *run);
void jinja_rewind(struct jinja_run *run, struct jinja_mark mark);

struct jinja_value jinja_none(void);
struct jinja_value jinja_undefined(const char *name);
struct jinja_value jinja_bool(bool truth);
struct jinja_value jinja_integer(int64_t integer);
struct jinja_value jinja_real(double real);
/* Returns a real without fraction; fails the run beyond 64 bits and for NaN and infinity. */
struct jinja_value jinja_whole(struct jinja_run *run, double real);
/* The bytes are borrowed by the value. */
struct jinja_value jinja_string(const char *text, size_t bytes);
/* Copies the bytes. */
struct jinja_value jinja_string_copy(struct jinja_run *run, const char *text, size_t bytes);
/* Allocates a string of `bytes`, to be filled through `text`. */
struct jinja_value jinja_string_room(struct jinja_run *run, size_t bytes, char **text);
struct jinja_value jinja_list(struct jinja_run *run, enum jinja_kind kind);
void jinja_list_add(struct jinja_run *run, struct jinja_list *list, struct jinja_value item);
struct jinja_value jinja_pair_tuple(struct jinja_run *run, struct jinja_value left,
                                    struct jinja_value right);
struct jinja_value jinja_dict(struct jinja_run *run);
void jinja_dict_set(struct jinja_run *run, struct jinja_dict *dict, struct jinja_value key,
                    struct jinja_value value);
/* Returns whether a value can be a key of a dict; fails the run otherwise. */
bool jinja_hashable(struct jinja_run *run, struct jinja_value value);
/* Returns NULL if the key is missing. */
const struct jinja_value *jinja_dict_find(struct jinja_run *run, const struct jinja_dict *dict,
                                          struct jinja_value key);
const struct jinja_value *jinja_dict_get(const struct jinja_dict *dict, const char *key,
                                         size_t bytes);

bool jinja_is_number(struct jinja_value value); /* also BOOL, as in Python */
/* Returns whether the value is a STRING or MARKUP. */
bool jinja_is_str(struct jinja_value value);
bool jinja_is_text(struct jinja_value value, const char *text);
/* Returns whether the value has its elements in as.list. */
bool jinja_has_list(struct jinja_value value);
bool jinja_truth(struct jinja_value value);
bool jinja_equal(struct jinja_run *run, struct jinja_value left, struct jinja_value right);
/* Returns < 0, 0 or > 0; fails the run if the kinds have no order. */
int jinja_compare(struct jinja_run *run, struct jinja_value left, struct jinja_value right);
/* Returns the pairs in a stable order by key; NULL if the run fails. */
struct jinja_pair *jinja_sorted(struct jinja_run *run, const struct jinja_pair *pairs, size_t count,
                                bool reverse);
/* Finds the first or last occurrence of `part`; NULL: none, or the run has failed. Time and steps
 * are proportional to `part` and the bytes searched. */
const char *jinja_search(struct jinja_run *run, struct jinja_value text, struct jinja_value part,
                         bool last);
bool jinja_contains(struct jinja_run *run, struct jinja_value right, struct jinja_value left);
/* Returns what a `for` iterates over: elements, keys, characters, or nothing for an undefined
 * value. A generator is empty afterwards. Fails the run and returns NULL for other values. */
struct jinja_list *jinja_iterate(struct jinja_run *run, struct jinja_value value);
/* Says that elements of an iterated generator remain; a further use of it fails. */
void jinja_leave(struct jinja_value value);
/* Returns Python's name of the kind: "str", "dict" ... */
const char *jinja_type_name(struct jinja_value value);
double jinja_number(struct jinja_value value);
/* Returns the value of an INTEGER or a BOOL. */
int64_t jinja_integer_of(struct jinja_value value);
/* Takes the next of words that are separated by spaces. Returns whether there was one. */
bool jinja_next_word(const char **words, struct jinja_value *word);

/* Return or write the str() of a value; jinja_write_repr() writes its repr(). */
struct jinja_value jinja_to_string(struct jinja_run *run, struct jinja_value value);
void jinja_write(struct jinja_run *run, const char *text, size_t bytes);
void jinja_write_value(struct jinja_run *run, struct jinja_value value);
void jinja_write_repr(struct jinja_run *run, struct jinja_value value);
/* Writes the shortest text of the double, as Python does. Returns its length, at most 32. */
size_t jinja_real_text(double real, char out[40]);
/* Turns the output between begin and end into a string. */
size_t jinja_capture_begin(struct jinja_run *run);
struct jinja_value jinja_capture_end(struct jinja_run *run, size_t mark);

struct jinja_value jinja_from_json(struct jinja_run *run, const struct core_json_value *json,
                                   size_t items_max);

#endif
