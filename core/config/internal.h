/* internal.h: the state of keys while a configuration is read, and for `tide config`. For
 * core/config. */
#ifndef CORE_CONFIG_INTERNAL_H
#define CORE_CONFIG_INTERNAL_H

#include "core/config/table.h"
#include "core/json/json.h"

enum core_cfg_origin { CORE_CFG_PRESET, CORE_CFG_FILE, CORE_CFG_AUTO, CORE_CFG_DERIVED };

struct core_cfg_value {
    enum core_cfg_origin origin;
    bool given; /* the key is in the file */
    bool is_none;
    bool truth;
    int64_t integer; /* an integer; a choice's index */
    double real[2];
    /* borrowed from the document or the arena */
    const char *text;
    /* borrowed from the document; NULL: from elsewhere */
    const struct core_json_value *json;
    const char *why; /* the value's origin, for its note; NULL: none */
    struct core_json_place place;
};

struct core_cfg_piece;

struct core_cfg_detail {
    struct core_json *doc;                  /* owned */
    const struct core_cfg_options *options; /* borrowed while reading */
    struct core_cfg_value *values;          /* owned; one per row */
    struct core_cfg_note *notes;            /* owned; formatted texts are in the arena */
    size_t notes_count, notes_room;
    /* keys without a row, and wrong elements of lists */
    size_t unknown_count;
    struct core_cfg_piece *arena; /* owned */
    int code;                     /* -ENOMEM after an allocation failed */
};

/* note.c */
/* Formats a text into the arena. Without memory, returns "" and sets detail->code. */
const char *core_cfg_keep(struct core_cfg_detail *detail, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void core_cfg_add_note(struct core_cfg_detail *detail, const struct core_cfg_note *note);
/* Adds a refusal or warning at the row's key, else at the nearest given section around it, else at
 * the beginning. */
void core_cfg_tell(struct core_cfg_detail *detail, enum core_cfg_note_kind kind, size_t row,
                   const char *format, ...) __attribute__((format(printf, 4, 5)));
bool core_cfg_was_refused(const struct core_cfg_detail *detail, const char *key);
void core_cfg_free_notes(struct core_cfg_detail *detail);

/* value.c */
/* Returns false if the chosen optimizer or scheduler type lacks this parameter. */
bool core_cfg_applies(const struct core_cfg_detail *detail, size_t row);
/* Sets the row's default. */
void core_cfg_set_preset(struct core_cfg_detail *detail, size_t row);
/* Sets a value from the file. A value that does not fit is refused, and the default stays; a value
 * that the row's state forbids is set and refused. */
void core_cfg_set(struct core_cfg_detail *detail, size_t row, const struct core_json_value *value);
/* Returns whether a value fits a row. For elements of lists, whose values are not kept. */
bool core_cfg_fits(size_t row, const struct core_json_value *value);
/* Refuses a value that does not fit, and names the allowed ones. */
void core_cfg_tell_wrong(struct core_cfg_detail *detail, size_t row,
                         const struct core_json_value *value);
/* Writes what the row allows, such as "an integer from 0 to 3" or "one of mean, sum". */
void core_cfg_allowed(const struct core_cfg_row *row, char *out, size_t bytes);
void core_cfg_write_value(struct core_json_write *write, const char *key,
                          const struct core_cfg_row *row, const struct core_cfg_value *value);
/* Returns JSON in the arena. */
const char *core_cfg_value_text(struct core_cfg_detail *detail, size_t row);

/* walk.c: reads the document against the table. */
void core_cfg_walk(struct core_cfg_detail *detail);

/* auto.c: resolves legacy forms, and then "auto". */
void core_cfg_resolve(struct core_cfg_detail *detail);

/* finish.c: adds notes for given keys and for applicable keys that are honoured now or LATER,
 * except refused ones. Sorts all notes. */
void core_cfg_finish_notes(struct core_cfg_detail *detail);

/* rules.c: checks and derives keys that depend on each other. */
void core_cfg_apply_rules(struct core_cfg_detail *detail);

#endif
