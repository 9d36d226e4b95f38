/* finish.c: adds the notes of keys, and sorts all notes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/config/internal.h"

static enum core_cfg_note_kind kind_of(const struct core_cfg_row *row)
{
    switch (row->state) {
    case CORE_CFG_LATER: return CORE_CFG_NOTE_LATER;
    case CORE_CFG_IGNORED: return CORE_CFG_NOTE_IGNORED;
    case CORE_CFG_HONOURED:
    case CORE_CFG_REFUSED: break;
    }
    /* a REFUSED row has its default, null or "auto" here */
    return CORE_CFG_NOTE_HONOURED;
}

/* Returns whether a row gets a note: its key was given, or applies and is honoured now or later. */
static bool shown(const struct core_cfg_detail *detail, size_t index)
{
    const struct core_cfg_row *row = core_cfg_row(index);
    if (row->type == CORE_CFG_SECTION || strstr(row->path, "[]") != NULL) {
        return false;
    }
    if (detail->values[index].given) {
        return true;
    }
    return core_cfg_applies(detail, index) && (row->flags & CORE_CFG_LEGACY) == 0 &&
           (row->state == CORE_CFG_HONOURED || row->state == CORE_CFG_LATER);
}

static void add_row_note(struct core_cfg_detail *detail, size_t index)
{
    const struct core_cfg_row *row = core_cfg_row(index);
    const struct core_cfg_value *value = &detail->values[index];
    const char *why = value->why;
    if (why == NULL && value->given) {
        why = row->why;
        if (row->state == CORE_CFG_LATER) {
            why = core_cfg_keep(detail, "will be honoured by %s%s%s", row->module,
                                row->why != NULL ? "; " : "", row->why != NULL ? row->why : "");
        } else if (row->state == CORE_CFG_REFUSED) {
            why = "the only supported value";
        }
    }
    struct core_cfg_note note = {.kind = value->given ? kind_of(row) : CORE_CFG_NOTE_DEFAULTED,
                                 .key = row->path,
                                 .value = core_cfg_value_text(detail, index),
                                 .why = why != NULL ? why : ""};
    if (value->given) {
        note.line = value->place.line;
        note.column = value->place.column;
    }
    core_cfg_add_note(detail, &note);
}

static void sort_notes(struct core_cfg_detail *detail)
{
    struct core_cfg_note *sorted = malloc((detail->notes_count + 1) * sizeof *sorted);
    if (sorted == NULL) {
        detail->code = core_err_set(-ENOMEM, "no memory for the notes about a configuration");
        return;
    }
    size_t count = 0;
    for (int turn = 0; turn < 3; turn++) {
        for (size_t i = 0; i < detail->notes_count; i++) {
            enum core_cfg_note_kind kind = detail->notes[i].kind;
            int rank = kind == CORE_CFG_NOTE_REFUSED ? 0 : kind == CORE_CFG_NOTE_WARNING ? 1 : 2;
            if (rank == turn) {
                sorted[count++] = detail->notes[i];
            }
        }
    }
    free(detail->notes);
    detail->notes = sorted;
    detail->notes_room = detail->notes_count + 1;
}

void core_cfg_finish_notes(struct core_cfg_detail *detail)
{
    size_t count = core_cfg_row_count();
    for (size_t i = 0; i < count; i++) {
        if (shown(detail, i) && !core_cfg_was_refused(detail, core_cfg_row(i)->path)) {
            add_row_note(detail, i);
        }
    }
    sort_notes(detail);
}
