/* walk.c: finds the row of each member of the document. */
#include <stdio.h>
#include <string.h>

#include "core/base/suggest.h"
#include "core/config/internal.h"

/* A file with more unknown keys is no configuration. */
enum { UNKNOWN_MAX = 64 };

static void walk_section(struct core_cfg_detail *detail, const struct core_json_value *object,
                         const char *prefix, bool strict);

static struct core_json_place place_of(const struct core_cfg_detail *detail,
                                       const struct core_json_value *object, const char *key)
{
    struct core_json_site site;
    core_json_locate(detail->doc, object, key, 0, &site);
    return site.place;
}

/* Suggests the nearest name in this section, else this name in another section. */
static void guess(const char *prefix, const char *key, char *out, size_t bytes)
{
    struct core_suggest near;
    size_t count = core_cfg_row_count();
    out[0] = '\0';
    core_suggest_init(&near, key);
    for (size_t i = 0; i < count; i++) {
        const struct core_cfg_row *row = core_cfg_row(i);
        if (core_cfg_row_below(row, prefix)) {
            core_suggest_offer(&near, core_cfg_leaf(row));
        }
    }
    if (near.best != NULL) {
        snprintf(out, bytes, "did you mean %s?", near.best);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        const struct core_cfg_row *row = core_cfg_row(i);
        if (strcmp(core_cfg_leaf(row), key) == 0 && strstr(row->path, "[]") == NULL) {
            snprintf(out, bytes, "did you mean %s?", row->path);
            return;
        }
    }
}

/* "_comment", "//", "#lr": a comment or a disabled key. */
static bool is_comment(const char *key)
{
    return key[0] == '_' || key[0] == '#' || key[0] == '$' || strncmp(key, "//", 2) == 0 ||
           strcmp(key, "comment") == 0 || strcmp(key, "comments") == 0;
}

static void tell_unknown(struct core_cfg_detail *detail, const struct core_json_member *member,
                         const char *prefix, bool strict)
{
    const bool comment = is_comment(member->key);
    if (++detail->unknown_count > UNKNOWN_MAX) {
        return;
    }
    struct core_json_place place = place_of(detail, member->object, member->key);
    char meant[256];
    guess(prefix, member->key, meant, sizeof meant);
    const char *why = core_cfg_keep(detail,
                                    strict ? "unknown key; %s" : "unknown key, without effect; %s",
                                    meant[0] != '\0' ? meant : "docs/ds_config.md lists all keys");
    why = comment ? "a comment" : why;
    core_cfg_add_note(
        detail, &(struct core_cfg_note){
                    .kind = comment  ? CORE_CFG_NOTE_IGNORED
                            : strict ? CORE_CFG_NOTE_REFUSED
                                     : CORE_CFG_NOTE_WARNING,
                    .line = place.line,
                    .column = place.column,
                    .key = core_cfg_keep(detail, "%s%s%.100s", prefix, prefix[0] != '\0' ? "." : "",
                                         member->key[0] != '\0' ? member->key : "\"\""),
                    .why = why});
}

/* Returns whether a member is not used because its row was given under another name. This is an
 * error, except in aio, where the row's own name is used, as in DeepSpeed. */
static bool is_second(struct core_cfg_detail *detail, size_t row,
                      const struct core_json_member *member, struct core_json_place place)
{
    struct core_cfg_value *value = &detail->values[row];
    if (!value->given) {
        return false;
    }
    const char *leaf = core_cfg_leaf(core_cfg_row(row));
    bool canonical = strcmp(leaf, member->key) == 0;
    size_t first = value->place.line;
    if (strncmp(core_cfg_row(row)->path, "aio.", 4) != 0) {
        core_cfg_tell(detail, CORE_CFG_NOTE_REFUSED, row,
                      "given twice: as \"%.60s\" on line %zu, and under another name on line %zu; "
                      "keep one",
                      member->key, place.line, first);
        return true;
    }
    core_cfg_tell(detail, CORE_CFG_NOTE_WARNING, row,
                  "given twice, on lines %zu and %zu; %s is used", first, place.line, leaf);
    return !canonical;
}

static void walk_list(struct core_cfg_detail *detail, const struct core_json_value *array,
                      size_t row)
{
    char prefix[160];
    snprintf(prefix, sizeof prefix, "%s[]", core_cfg_row(row)->path);
    for (size_t i = 0; i < core_json_count(array) && i < 256; i++) {
        struct core_json_member member;
        const struct core_json_value *object = core_json_at(array, i);
        for (bool any = core_json_first(object, &member); any; any = core_json_next(&member)) {
            ptrdiff_t below = core_cfg_row_in(prefix, member.key, member.key_bytes);
            if (below < 0) {
                tell_unknown(detail, &member, prefix, true);
            } else if (!core_cfg_fits((size_t)below, member.value) &&
                       ++detail->unknown_count <= UNKNOWN_MAX) {
                detail->values[below].given = true;
                detail->values[below].place = place_of(detail, object, member.key);
                core_cfg_tell_wrong(detail, (size_t)below, member.value);
            }
        }
    }
}

/* Older files have true (stage 1) or false (stage 0) for zero_optimization. */
static bool walk_legacy_zero(struct core_cfg_detail *detail, size_t row,
                             const struct core_json_value *value)
{
    if (strcmp(core_cfg_row(row)->path, "zero_optimization") != 0 ||
        core_json_kind(value) != CORE_JSON_BOOL) {
        return false;
    }
    struct core_cfg_value *stage = &detail->values[core_cfg_index("zero_optimization.stage")];
    stage->integer = core_json_bool(value) ? 1 : 0;
    stage->given = true;
    stage->place = detail->values[row].place;
    stage->origin = CORE_CFG_DERIVED;
    core_cfg_tell(detail, CORE_CFG_NOTE_WARNING, row,
                  "an older form of {\"stage\": %d}; write that", core_json_bool(value) ? 1 : 0);
    return true;
}

static void walk_member(struct core_cfg_detail *detail, const struct core_json_member *member,
                        size_t row)
{
    const struct core_cfg_row *known = core_cfg_row(row);
    struct core_json_place place = place_of(detail, member->object, member->key);
    if (is_second(detail, row, member, place)) {
        return;
    }
    core_cfg_set_preset(detail, row);
    detail->values[row].given = true;
    detail->values[row].place = place;
    if (walk_legacy_zero(detail, row, member->value)) {
        return;
    }
    core_cfg_set(detail, row, member->value);
    enum core_json_kind kind = core_json_kind(member->value);
    if (known->type == CORE_CFG_SECTION && kind == CORE_JSON_OBJECT) {
        walk_section(detail, member->value, known->path, (known->flags & CORE_CFG_OPEN) == 0);
    } else if (known->type == CORE_CFG_LIST && kind == CORE_JSON_ARRAY) {
        walk_list(detail, member->value, row);
    }
}

/* Reads aio in zero_optimization or an offload section, with a warning. */
static bool walk_nested_aio(struct core_cfg_detail *detail, const struct core_json_member *member,
                            const char *prefix)
{
    if (strcmp(member->key, "aio") != 0 || strncmp(prefix, "zero_optimization", 17) != 0) {
        return false;
    }
    size_t row = core_cfg_index("aio");
    walk_member(detail, member, row);
    core_cfg_tell(detail, CORE_CFG_NOTE_WARNING, row,
                  "is inside %s, where DeepSpeed ignores it; it is read as a key of the top level, "
                  "where it belongs",
                  prefix);
    return true;
}

static void walk_section(struct core_cfg_detail *detail, const struct core_json_value *object,
                         const char *prefix, bool strict)
{
    struct core_json_member member;
    for (bool any = core_json_first(object, &member); any && detail->code == 0;
         any = core_json_next(&member)) {
        ptrdiff_t row = core_cfg_row_in(prefix, member.key, member.key_bytes);
        if (row >= 0) {
            walk_member(detail, &member, (size_t)row);
        } else if (!walk_nested_aio(detail, &member, prefix)) {
            tell_unknown(detail, &member, prefix, strict);
        }
    }
}

/* DeepSpeed, too, refuses a parameter that the chosen type lacks. */
static void check_types(struct core_cfg_detail *detail)
{
    size_t count = core_cfg_row_count();
    size_t optimizer = core_cfg_index("optimizer.type");
    for (size_t i = 0; i < count; i++) {
        const struct core_cfg_row *row = core_cfg_row(i);
        if (!detail->values[i].given || core_cfg_applies(detail, i)) {
            continue;
        }
        bool schedule = strncmp(row->path, "scheduler.", 10) == 0;
        bool refused = !schedule && !detail->values[optimizer].is_none &&
                       detail->values[optimizer].integer >= CORE_CFG_OPTIMIZERS;
        size_t type = core_cfg_index(schedule ? "scheduler.type" : "optimizer.type");
        if (!refused && !detail->values[type].is_none) {
            char name[32];
            core_cfg_choice_name(core_cfg_row(type), detail->values[type].integer, name,
                                 sizeof name);
            core_cfg_tell(detail, CORE_CFG_NOTE_REFUSED, i,
                          "%s (line %zu) has no such parameter; it belongs to %s", name,
                          detail->values[type].place.line, row->only);
        }
    }
}

void core_cfg_walk(struct core_cfg_detail *detail)
{
    const struct core_json_value *root = core_json_root(detail->doc);
    walk_section(detail, root, "", false);
    check_types(detail);
    if (detail->unknown_count > UNKNOWN_MAX) {
        core_cfg_add_note(
            detail, &(struct core_cfg_note){
                        .kind = CORE_CFG_NOTE_REFUSED,
                        .line = 1,
                        .column = 1,
                        .key = "(the file)",
                        .why = core_cfg_keep(
                            detail, "%zu keys are unknown or wrong; is this a ds_config.json?",
                            detail->unknown_count)});
    }
}
