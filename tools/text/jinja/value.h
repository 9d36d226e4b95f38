/* value.h: values of a template under way, and the run that owns them (private to tools/text/jinja).
 *
 * Memory comes from the run and lives until its next rendering. The first failure of a run is kept:
 * functions that fail write the sentence, set run->rc and return something harmless, and whoever
 * loops looks at run->rc. One thread a run. */
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
    JINJA_LIST,
    JINJA_TUPLE,
    JINJA_DICT,
    JINJA_NAMESPACE,
    JINJA_LOOP,
    JINJA_MACRO,
    JINJA_METHOD, /* a value's function: "abc".upper */
    JINJA_GLOBAL, /* range, namespace ... */
    JINJA_CYCLER,
    JINJA_JOINER,
};

struct jinja_value {
    enum jinja_kind kind;
    uint32_t bytes; /* of text */
    union {
        bool truth;
        int64_t integer;
        double real;
        const char *text; /* STRING; UNDEFINED: the name, for messages */
        struct jinja_list *list;
        struct jinja_dict *dict; /* DICT, NAMESPACE */
        struct jinja_loop *loop;
        struct jinja_macro *macro;
        struct jinja_method *method;
        struct jinja_cycler *cycler;
        const struct jinja_global *global;
    } as;
};

struct jinja_list {
    struct jinja_value *items;
    size_t count;
    size_t room;
    bool group; /* a tuple of groupby: its parts are also .grouper and .list */
};

struct jinja_pair {
    struct jinja_value key;
    struct jinja_value value;
};

/* In the order in which keys came. */
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
    struct jinja_list *items;
    size_t index;
    size_t depth;
    const struct jinja_node *node; /* a recursive loop; NULL otherwise */
    struct jinja_scope *outer;
    struct jinja_value changed; /* what loop.changed() was called with */
    bool changes;               /* it was */
};

struct jinja_macro {
    const struct jinja_node *node;
    struct jinja_scope *scope; /* in which it was written */
};

struct jinja_chunk;
struct jinja_links;

struct jinja_run {
    struct jinja_chunk *chunks;              /* owned: memory of values, newest first */
    struct jinja_chunk *kept_chunks;         /* owned: memory of `kept` */
    const struct core_json_value *kept_json; /* borrowed from the caller; NULL: nothing is kept */
    struct jinja_value kept;                 /* what it is as a value: never written to */
    size_t bytes;                            /* of all chunks and the output */
    size_t bytes_max;
    uint64_t steps; /* left */
    uint64_t steps_max;
    int rc;
    unsigned line;      /* being worked on */
    unsigned depth;     /* of evaluation */
    const char *source; /* borrowed from the template: its name */
    char *out;          /* owned */
    size_t out_bytes;
    size_t out_room;
    size_t captures;          /* blocks whose output becomes a string */
    size_t capture_base;      /* where the outermost of them began */
    struct jinja_span *spans; /* owned */
    size_t spans_count;
    size_t spans_room;
    struct jinja_scope *scope;
    const struct jinja_links *links; /* static: what expressions need of statements */
    const struct jinja_names *names; /* borrowed from the template */
    int jump;                        /* break or continue on its way to its loop */
    int64_t now;
};

enum { JINJA_DEPTH_MAX = 400 };

/* Fails the run. Returns an undefined value. */
struct jinja_value jinja_fail(struct jinja_run *run, int rc, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));
/* Counts work; false where the run is over. Whatever takes time in proportion to its operands counts it
 * before it does it, for what makes nothing is not bounded by memory. */
bool jinja_step(struct jinja_run *run, size_t steps);
/* The same for passes over texts: character by character with a table or a branch for each; a plain
 * scan of the bytes; and what memcmp and memcpy do. A step of each takes about as long. */
bool jinja_step_characters(struct jinja_run *run, size_t bytes);
bool jinja_step_text(struct jinja_run *run, size_t bytes);
bool jinja_step_bytes(struct jinja_run *run, size_t bytes);
/* One level deeper in what is nested, for which run->depth-- comes afterwards; false, without that,
 * where it is too deep. */
bool jinja_deeper(struct jinja_run *run);
/* Zeroed memory of the run; NULL where the run fails. */
void *jinja_alloc(struct jinja_run *run, size_t bytes);
void jinja_release(struct jinja_run *run);
/* Memory taken since a mark is given back. */
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
/* A real without its fraction; fails the run beyond 64 bits, and for what is not finite. */
struct jinja_value jinja_whole(struct jinja_run *run, double real);
/* The bytes have to stay. */
struct jinja_value jinja_string(const char *text, size_t bytes);
/* A copy. */
struct jinja_value jinja_string_copy(struct jinja_run *run, const char *text, size_t bytes);
/* Room for a string of `bytes`, to be filled through `text`. */
struct jinja_value jinja_string_room(struct jinja_run *run, size_t bytes, char **text);
struct jinja_value jinja_list(struct jinja_run *run, enum jinja_kind kind);
void jinja_list_add(struct jinja_run *run, struct jinja_list *list, struct jinja_value item);
struct jinja_value jinja_pair_tuple(struct jinja_run *run, struct jinja_value left,
                                    struct jinja_value right);
struct jinja_value jinja_dict(struct jinja_run *run);
void jinja_dict_set(struct jinja_run *run, struct jinja_dict *dict, struct jinja_value key,
                    struct jinja_value value);
/* NULL where there is no such key. */
const struct jinja_value *jinja_dict_find(struct jinja_run *run, const struct jinja_dict *dict,
                                          struct jinja_value key);
const struct jinja_value *jinja_dict_get(const struct jinja_dict *dict, const char *key,
                                         size_t bytes);

bool jinja_is_number(struct jinja_value value); /* BOOL too, as in Python */
bool jinja_is_text(struct jinja_value value, const char *text);
bool jinja_truth(struct jinja_value value);
bool jinja_equal(struct jinja_run *run, struct jinja_value left, struct jinja_value right);
/* < 0, 0, > 0; fails where the kinds have no order. */
int jinja_compare(struct jinja_run *run, struct jinja_value left, struct jinja_value right);
/* The pairs in the order of their keys, as Python sorts: equal ones stay in their order. NULL where the
 * run fails. */
struct jinja_pair *jinja_sorted(struct jinja_run *run, const struct jinja_pair *pairs, size_t count,
                                bool reverse);
/* The first or the last place of `part` in a text; NULL where there is none, or where the run is over.
 * Takes time, and counts work, in proportion to the part and to what it looked at until there. */
const char *jinja_search(struct jinja_run *run, struct jinja_value text, struct jinja_value part,
                         bool last);
/* left in right */
bool jinja_contains(struct jinja_run *run, struct jinja_value right, struct jinja_value left);
/* What a `for` sees: the elements, keys or characters. Fails for what cannot be iterated. */
struct jinja_list *jinja_iterate(struct jinja_run *run, struct jinja_value value);
/* Python's name of the kind: "str", "dict" ... */
const char *jinja_type_name(struct jinja_value value);
double jinja_number(struct jinja_value value);

/* str() of a value, and repr(). */
struct jinja_value jinja_to_string(struct jinja_run *run, struct jinja_value value);
void jinja_write(struct jinja_run *run, const char *text, size_t bytes);
void jinja_write_value(struct jinja_run *run, struct jinja_value value);
void jinja_write_repr(struct jinja_run *run, struct jinja_value value);
/* Python's shortest text of a double; at most 32 bytes. */
size_t jinja_real_text(double real, char out[40]);
/* The output from `begin` to `end` becomes a string, and is taken away with what stands between. */
size_t jinja_capture_begin(struct jinja_run *run);
struct jinja_value jinja_capture_end(struct jinja_run *run, size_t mark);

/* Plain JSON becomes a value. */
struct jinja_value jinja_from_json(struct jinja_run *run, const struct core_json_value *json,
                                   size_t items_max);

#endif
