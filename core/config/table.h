/* table.h: the table of the keys of ds_config.json. For core/config and tests. */
#ifndef CORE_CONFIG_TABLE_H
#define CORE_CONFIG_TABLE_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/config/config.h"

enum core_cfg_type {
    CORE_CFG_BOOL,
    CORE_CFG_INT,
    CORE_CFG_REAL,
    CORE_CFG_STRING,
    CORE_CFG_CHOICE,   /* one of `choices` */
    CORE_CFG_PAIR,     /* an array of two reals */
    CORE_CFG_STRINGS,  /* an array of strings, or one string */
    CORE_CFG_INTS,     /* an array of integers */
    CORE_CFG_AUTO_INT, /* an integer or "auto" */
    CORE_CFG_FEATURE,  /* an object, true or false */
    CORE_CFG_SECTION,  /* an object with rows below it */
    CORE_CFG_LIST,     /* an array of objects, whose rows are below "path[]" */
};

enum core_cfg_state {
    CORE_CFG_HONOURED,
    CORE_CFG_LATER,   /* accepted; `module` does not act on it yet */
    CORE_CFG_IGNORED, /* accepted without effect, because of `why` */
    /* refused, because of `why`, unless the value is the default; a section is always refused */
    CORE_CFG_REFUSED,
};

enum core_cfg_flag {
    CORE_CFG_OPEN = 1,      /* a section: unknown keys are warnings */
    CORE_CFG_ANY_CASE = 2,  /* a choice: in any letter case */
    CORE_CFG_LOW_OPEN = 4,  /* `low` itself is not allowed */
    CORE_CFG_HIGH_OPEN = 8, /* `high` itself, and what fp32 rounds to it, is not allowed */
    CORE_CFG_SIZE = 16,     /* an integer that may be written as "1M" */
    CORE_CFG_LEGACY = 32,
};

struct core_cfg_row {
    const char *path;    /* "aio.block_size"; elements: "path[]" */
    const char *aliases; /* other last parts, with spaces between; NULL: none */
    enum core_cfg_type type;
    enum core_cfg_state state;
    unsigned flags;
    const char *preset;  /* JSON; NULL: none */
    double low, high;    /* inclusive unless flagged; NaN: no limit */
    const char *choices; /* "fp32=float32|fp16": synonyms after = */
    const char *only;    /* optimizer or scheduler types with this key; NULL: all */
    const char *module;  /* will act on a LATER key */
    const char *means;   /* one sentence */
    const char *why;     /* why the key is ignored or refused, or a remark; NULL: none */
    size_t field;        /* 1 + offset in struct core_cfg; 0: none */
};

struct core_cfg_rows {
    const struct core_cfg_row *rows;
    size_t count;
};
extern const struct core_cfg_rows core_cfg_rows_train;
extern const struct core_cfg_rows core_cfg_rows_zero;
extern const struct core_cfg_rows core_cfg_rows_other;

/* Macros for rows. */
#define CORE_CFG_AT(member)            .field = 1 + offsetof(struct core_cfg, member)
#define CORE_CFG_ROW_BOOL(name, value) .path = name, .type = CORE_CFG_BOOL, .preset = value
#define CORE_CFG_ROW_TEXT(name, value) .path = name, .type = CORE_CFG_STRING, .preset = value
#define CORE_CFG_ROW_SECTION(name)     .path = name, .type = CORE_CFG_SECTION
#define CORE_CFG_ROW_INT(name, value, from, to)                                                    \
    .path = name, .type = CORE_CFG_INT, .preset = value, .low = from, .high = to
#define CORE_CFG_ROW_REAL(name, value, from, to)                                                   \
    .path = name, .type = CORE_CFG_REAL, .preset = value, .low = from, .high = to
#define CORE_CFG_ROW_CHOICE(name, value, all)                                                      \
    .path = name, .type = CORE_CFG_CHOICE, .preset = value, .choices = all
#define CORE_CFG_NO_LIMIT (double)NAN

/* A row's index identifies it in struct core_cfg_detail. */
size_t core_cfg_row_count(void);
const struct core_cfg_row *core_cfg_row(size_t index);

/* Returns the index of the row with this path, which must exist. */
size_t core_cfg_index(const char *path);
/* Returns the row of the name or alias `key` in the section `prefix` ("": the top); -1: none. */
ptrdiff_t core_cfg_row_in(const char *prefix, const char *key, size_t key_bytes);
const char *core_cfg_leaf(const struct core_cfg_row *row);
bool core_cfg_row_below(const struct core_cfg_row *row, const char *prefix);
void core_cfg_choice_name(const struct core_cfg_row *row, int64_t index, char *out, size_t bytes);
/* Returns a choice's index by any spelling; -1: none. */
int64_t core_cfg_choice_find(const struct core_cfg_row *row, const char *text, size_t bytes);
/* Returns whether `name` is in `names`, separated by spaces; NULL: none. */
bool core_cfg_is_named(const char *names, const char *name, size_t name_bytes);

#endif
