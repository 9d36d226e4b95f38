/* internal.h: the state of every key while a configuration is read, and afterwards for `tide
 * config`. For core/config only. */
#ifndef CORE_CONFIG_INTERNAL_H
#define CORE_CONFIG_INTERNAL_H

#include "core/config/table.h"
#include "core/json/json.h"

enum core_cfg_origin { CORE_CFG_PRESET, CORE_CFG_FILE, CORE_CFG_AUTO, CORE_CFG_DERIVED };

struct core_cfg_value {
    enum core_cfg_origin origin;
    bool given; /* the key is in the file, with any value */
    bool is_none;
    bool truth;
    int64_t integer; /* value of an integer; index of a choice */
    double real[2];
    /* value of a string: borrowed from the document or the arena */
    const char *text;
    /* the value as it is in the document, borrowed; NULL: it is not from the document */
    const struct core_json_value *json;
    const char *why; /* the origin of the value, for its note; NULL: nothing to say */
    struct core_json_place place;
};

struct core_cfg_piece;

struct core_cfg_detail {
    struct core_json *doc;                  /* owned */
    const struct core_cfg_options *options; /* borrowed from the caller, while reading */
    struct core_cfg_value *values;          /* owned; one per row */
    struct core_cfg_note *notes;            /* owned; their texts are in the arena */
    size_t notes_count, notes_room;
    /* number of keys without a row, and of wrong values in elements of lists */
    size_t unknown_count;
    struct core_cfg_piece *arena; /* owned */
    int code;                     /* -ENOMEM after an allocation failed */
};

/* note.c */
/* Formats a text that lives as long as the configuration. If an allocation fails, returns "" and
 * sets detail->code. */
const char *core_cfg_keep(struct core_cfg_detail *detail, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void core_cfg_add_note(struct core_cfg_detail *detail, const struct core_cfg_note *note);
/* Adds a refusal or warning about a row, at the position of its key, else of the nearest given
 * section around it, else of the beginning of the file. */
void core_cfg_tell(struct core_cfg_detail *detail, enum core_cfg_note_kind kind, size_t row,
                   const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Returns whether this key already has a refusal. */
bool core_cfg_was_refused(const struct core_cfg_detail *detail, const char *key);
void core_cfg_free_notes(struct core_cfg_detail *detail);

/* value.c */
/* Returns false for a parameter that the chosen type of optimizer or scheduler does not have, else
 * true. */
bool core_cfg_applies(const struct core_cfg_detail *detail, size_t row);
/* Sets the row's default. */
void core_cfg_set_preset(struct core_cfg_detail *detail, size_t row);
/* Sets a value that the file gives. A value that does not fit is refused with a note and leaves the
 * default; a value that the row's state forbids is set and refused. */
void core_cfg_set(struct core_cfg_detail *detail, size_t row, const struct core_json_value *value);
/* Returns whether the value fits the row; for elements of lists, which are not kept. */
bool core_cfg_fits(size_t row, const struct core_json_value *value);
/* Adds the refusal of a value that does not fit, with the allowed ones. */
void core_cfg_tell_wrong(struct core_cfg_detail *detail, size_t row,
                         const struct core_json_value *value);
/* Writes the allowed values: "an integer from 0 to 3", "one of mean, sum". */
void core_cfg_allowed(const struct core_cfg_row *row, char *out, size_t bytes);
void core_cfg_write_value(struct core_json_write *write, const char *key,
                          const struct core_cfg_row *row, const struct core_cfg_value *value);
/* Returns the value as JSON text in the arena. */
const char *core_cfg_value_text(struct core_cfg_detail *detail, size_t row);

/* walk.c: reads the document against the table. */
void core_cfg_walk(struct core_cfg_detail *detail);

/* auto.c: resolves legacy forms, and then "auto". */
void core_cfg_resolve(struct core_cfg_detail *detail);

/* finish.c: adds a note for each key that was given, and for each honoured (or LATER) key that was
 * not given but applies to this configuration, unless the key has a refusal. Sorts all notes. */
void core_cfg_finish_notes(struct core_cfg_detail *detail);

/* rules.c: checks and derives keys that depend on each other. */
void core_cfg_apply_rules(struct core_cfg_detail *detail);

#endif
