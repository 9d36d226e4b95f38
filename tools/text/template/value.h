/* value.h: values of a template under way, and the run that owns them (private to tools/text/template).
 *
 * Memory comes from the run and lives until its next rendering. The first failure of a run is kept:
 * functions that fail write the sentence, set run->code and return something harmless, and whoever
 * loops looks at run->code. One thread a run. */
#ifndef TOOLS_TEXT_TEMPLATE_VALUE_H
#define TOOLS_TEXT_TEMPLATE_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/text/template/template.h"

enum template_kind {
    TEMPLATE_UNDEFINED,
    TEMPLATE_NONE,
    TEMPLATE_BOOL,
    TEMPLATE_INTEGER,
    TEMPLATE_REAL,
    TEMPLATE_STRING,
    TEMPLATE_LIST,
    TEMPLATE_TUPLE,
    TEMPLATE_DICT,
    TEMPLATE_NAMESPACE,
    TEMPLATE_LOOP,
    TEMPLATE_MACRO,
    TEMPLATE_METHOD, /* a value's function: "abc".upper */
    TEMPLATE_GLOBAL, /* range, namespace ... */
    TEMPLATE_CYCLER,
    TEMPLATE_JOINER,
};

struct template_value {
    enum template_kind kind;
    uint32_t bytes; /* of text */
    union {
        bool truth;
        int64_t integer;
        double real;
        const char *text; /* STRING; UNDEFINED: the name, for messages */
        struct template_list *list;
        struct template_dict *dict; /* DICT, NAMESPACE */
        struct template_loop *loop;
        struct template_macro *macro;
        struct template_method *method;
        struct template_cycler *cycler;
        const struct template_global *global;
    } as;
};

struct template_list {
    struct template_value *items;
    size_t count;
    size_t room;
    bool group; /* a tuple of groupby: its parts are also .grouper and .list */
};

struct template_pair {
    struct template_value key;
    struct template_value value;
};

/* In the order in which keys came. */
struct template_dict {
    struct template_pair *pairs;
    size_t count;
    size_t room;
};

struct template_method {
    struct template_value self;
    const struct template_function *function; /* static */
};

struct template_cycler {
    struct template_list *items; /* NULL: a joiner */
    size_t at;
    struct template_value separator;
};

struct template_scope;
struct template_node;

struct template_loop {
    struct template_list *items;
    size_t index;
    size_t depth;
    const struct template_node *node; /* a recursive loop; NULL otherwise */
    struct template_scope *outer;
    struct template_value changed; /* what loop.changed() was called with */
    bool changes;                  /* it was */
};

struct template_macro {
    const struct template_node *node;
    struct template_scope *scope; /* in which it was written */
};

struct template_chunk;

struct text_template_run {
    struct template_chunk *chunks;           /* owned: memory of values, newest first */
    struct template_chunk *kept_chunks;      /* owned: memory of `kept` */
    const struct core_json_value *kept_json; /* borrowed from the caller; NULL: nothing is kept */
    struct template_value kept;              /* what it is as a value: never written to */
    size_t bytes;                            /* of all chunks and the output */
    size_t bytes_max;
    uint64_t steps; /* left */
    uint64_t steps_max;
    int code;
    unsigned line;      /* being worked on */
    unsigned depth;     /* of evaluation */
    const char *source; /* borrowed from the template: its name */
    char *out;          /* owned */
    size_t out_bytes;
    size_t out_room;
    size_t captures;                  /* blocks whose output becomes a string */
    size_t capture_base;              /* where the outermost of them began */
    struct text_template_span *spans; /* owned */
    size_t spans_count;
    size_t spans_room;
    struct template_scope *scope;
    const struct template_names *names; /* borrowed from the template */
    int jump;                           /* break or continue on its way to its loop */
    int64_t now;
};

enum { TEMPLATE_DEPTH_MAX = 400 };

/* Fails the run. Returns an undefined value. */
struct template_value template_fail(struct text_template_run *run, int code, const char *format,
                                    ...) __attribute__((format(printf, 3, 4), cold));
/* Counts work; false where the run is over. Whatever takes time in proportion to its operands counts it
 * before it does it, for what makes nothing is not bounded by memory. */
bool template_step(struct text_template_run *run, size_t steps);
/* The same for passes over texts: character by character with a table or a branch for each; a plain
 * scan of the bytes; and what memcmp and memcpy do. A step of each takes about as long. */
bool template_step_characters(struct text_template_run *run, size_t bytes);
bool template_step_text(struct text_template_run *run, size_t bytes);
bool template_step_bytes(struct text_template_run *run, size_t bytes);
/* One level deeper in what is nested, for which run->depth-- comes afterwards; false, without that,
 * where it is too deep. */
bool template_deeper(struct text_template_run *run);
/* Zeroed memory of the run; NULL where the run fails. */
void *template_alloc(struct text_template_run *run, size_t bytes);
void template_release(struct text_template_run *run);
/* Memory taken since a mark is given back. */
struct template_mark {
    struct template_chunk *chunk;
    size_t used;
};
struct template_mark template_mark(const struct text_template_run *run);
void template_rewind(struct text_template_run *run, struct template_mark mark);

struct template_value template_none(void);
struct template_value template_undefined(const char *name);
struct template_value template_bool(bool truth);
struct template_value template_integer(int64_t integer);
struct template_value template_real(double real);
/* A real without its fraction; fails the run beyond 64 bits, and for what is not finite. */
struct template_value template_whole(struct text_template_run *run, double real);
/* The bytes have to stay. */
struct template_value template_string(const char *text, size_t bytes);
/* A copy. */
struct template_value template_string_copy(struct text_template_run *run, const char *text,
                                           size_t bytes);
/* Room for a string of `bytes`, to be filled through `text`. */
struct template_value template_string_room(struct text_template_run *run, size_t bytes,
                                           char **text);
struct template_value template_list(struct text_template_run *run, enum template_kind kind);
void template_list_add(struct text_template_run *run, struct template_list *list,
                       struct template_value item);
struct template_value template_pair_tuple(struct text_template_run *run, struct template_value left,
                                          struct template_value right);
struct template_value template_dict(struct text_template_run *run);
void template_dict_set(struct text_template_run *run, struct template_dict *dict,
                       struct template_value key, struct template_value value);
/* NULL where there is no such key. */
const struct template_value *template_dict_find(struct text_template_run *run,
                                                const struct template_dict *dict,
                                                struct template_value key);
const struct template_value *template_dict_get(const struct template_dict *dict, const char *key,
                                               size_t bytes);

bool template_is_number(struct template_value value); /* BOOL too, as in Python */
bool template_is_text(struct template_value value, const char *text);
bool template_truth(struct template_value value);
bool template_equal(struct text_template_run *run, struct template_value left,
                    struct template_value right);
/* < 0, 0, > 0; fails where the kinds have no order. */
int template_compare(struct text_template_run *run, struct template_value left,
                     struct template_value right);
/* The pairs in the order of their keys, as Python sorts: equal ones stay in their order. NULL where the
 * run fails. */
struct template_pair *template_sorted(struct text_template_run *run,
                                      const struct template_pair *pairs, size_t count,
                                      bool reverse);
/* The first or the last place of `part` in a text; NULL where there is none, or where the run is over.
 * Takes time, and counts work, in proportion to the part and to what it looked at until there. */
const char *template_search(struct text_template_run *run, struct template_value text,
                            struct template_value part, bool last);
/* left in right */
bool template_contains(struct text_template_run *run, struct template_value right,
                       struct template_value left);
/* What a `for` sees: the elements, keys or characters. Fails for what cannot be iterated. */
struct template_list *template_iterate(struct text_template_run *run, struct template_value value);
/* Python's name of the kind: "str", "dict" ... */
const char *template_type_name(struct template_value value);
double template_number(struct template_value value);

/* str() of a value, and repr(). */
struct template_value template_to_string(struct text_template_run *run,
                                         struct template_value value);
void template_write(struct text_template_run *run, const char *text, size_t bytes);
void template_write_value(struct text_template_run *run, struct template_value value);
void template_write_repr(struct text_template_run *run, struct template_value value);
/* Python's shortest text of a double; at most 32 bytes. */
size_t template_real_text(double real, char out[40]);
/* The output from `begin` to `end` becomes a string, and is taken away with what stands between. */
size_t template_capture_begin(struct text_template_run *run);
struct template_value template_capture_end(struct text_template_run *run, size_t mark);

/* Plain JSON becomes a value. */
struct template_value template_from_json(struct text_template_run *run,
                                         const struct core_json_value *json, size_t items_max);

#endif
