/* note.c: the notes of a configuration and the arena of their texts. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/config/internal.h"

struct core_cfg_piece {
    struct core_cfg_piece *next; /* owned */
    char text[];
};

static void short_of_memory(struct core_cfg_detail *detail)
{
    detail->code = core_err_set(-ENOMEM, "no memory for the notes about a configuration");
}

const char *core_cfg_keep(struct core_cfg_detail *detail, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int length = vsnprintf(NULL, 0, format, list);
    va_end(list);
    struct core_cfg_piece *piece = length < 0 ? NULL : malloc(sizeof *piece + (size_t)length + 1);
    if (piece == NULL) {
        short_of_memory(detail);
        return "";
    }
    va_start(list, format);
    vsnprintf(piece->text, (size_t)length + 1, format, list);
    va_end(list);
    piece->next = detail->arena;
    detail->arena = piece;
    return piece->text;
}

void core_cfg_add_note(struct core_cfg_detail *detail, const struct core_cfg_note *note)
{
    if (detail->notes_count == detail->notes_room) {
        size_t room = detail->notes_room * 2 + 64;
        struct core_cfg_note *larger = realloc(detail->notes, room * sizeof *larger);
        if (larger == NULL) {
            short_of_memory(detail);
            return;
        }
        detail->notes = larger;
        detail->notes_room = room;
    }
    detail->notes[detail->notes_count++] = *note;
}

/* Returns the position of the row, else of the nearest given section, else of the beginning. */
static struct core_json_place nearest(const struct core_cfg_detail *detail, size_t row)
{
    char path[160];
    if (detail->values[row].given) {
        return detail->values[row].place;
    }
    snprintf(path, sizeof path, "%s", core_cfg_row(row)->path);
    for (char *point; (point = strrchr(path, '.')) != NULL;) {
        *point = '\0';
        const struct core_cfg_value *value = &detail->values[core_cfg_index(path)];
        if (value->given) {
            return value->place;
        }
    }
    return (struct core_json_place){.line = 1, .column = 1};
}

void core_cfg_tell(struct core_cfg_detail *detail, enum core_cfg_note_kind kind, size_t row,
                   const char *format, ...)
{
    char why[CORE_ERR_MESSAGE_BYTES];
    va_list list;
    va_start(list, format);
    vsnprintf(why, sizeof why, format, list);
    va_end(list);
    struct core_json_place place = nearest(detail, row);
    core_cfg_add_note(detail, &(struct core_cfg_note){.kind = kind,
                                                      .line = place.line,
                                                      .column = place.column,
                                                      .key = core_cfg_row(row)->path,
                                                      .why = core_cfg_keep(detail, "%s", why)});
}

bool core_cfg_was_refused(const struct core_cfg_detail *detail, const char *key)
{
    for (size_t i = 0; i < detail->notes_count; i++) {
        if (detail->notes[i].kind == CORE_CFG_NOTE_REFUSED &&
            strcmp(detail->notes[i].key, key) == 0) {
            return true;
        }
    }
    return false;
}

void core_cfg_free_notes(struct core_cfg_detail *detail)
{
    while (detail->arena != NULL) {
        struct core_cfg_piece *next = detail->arena->next;
        free(detail->arena);
        detail->arena = next;
    }
    free(detail->notes);
    detail->notes = NULL;
}
