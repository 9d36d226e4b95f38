/* rig.c: parses configurations and finds notes. */
#include "tests/cfg/rig.h"

#include <string.h>

#include "core/base/err.h"
#include "tests/harness/test.h"

struct core_cfg *rig_parse(const char *text, const struct core_cfg_options *options)
{
    struct core_cfg *cfg = NULL;
    if (core_cfg_parse(text, strlen(text), "t.json", options, &cfg) != 0) {
        test_fail(__FILE__, __LINE__, "%s: %s", text, core_err_message());
    }
    return cfg;
}

bool rig_note(const struct core_cfg *cfg, enum core_cfg_note_kind kind, const char *key,
              struct core_cfg_note *out)
{
    for (size_t i = 0; i < core_cfg_notes_count(cfg); i++) {
        struct core_cfg_note note = core_cfg_note(cfg, i);
        if (note.kind == kind && strcmp(note.key, key) == 0) {
            *out = note;
            return true;
        }
    }
    return false;
}

const char *rig_value(const struct core_cfg *cfg, const char *key)
{
    for (size_t i = 0; i < core_cfg_notes_count(cfg); i++) {
        struct core_cfg_note note = core_cfg_note(cfg, i);
        if (strcmp(note.key, key) == 0 && note.value != NULL) {
            return note.value;
        }
    }
    return "";
}

void rig_expect(const char *text, enum core_cfg_note_kind kind, const char *key, size_t line,
                const char *why)
{
    struct core_cfg *cfg = rig_parse(text, NULL);
    bool found = false;
    for (size_t i = 0; i < core_cfg_notes_count(cfg) && !found; i++) {
        struct core_cfg_note note = core_cfg_note(cfg, i);
        found = note.kind == kind && strcmp(note.key, key) == 0 && strstr(note.why, why) != NULL &&
                (line == 0 || note.line == line);
    }
    int verdict = core_cfg_check(cfg);
    core_cfg_destroy(cfg);
    if (!found) {
        test_fail(__FILE__, __LINE__, "%s has no note \"%s\" about %s on line %zu", text, why, key,
                  line);
    }
    check_int(verdict, ==, kind == CORE_CFG_NOTE_REFUSED ? -22 : verdict);
}

struct core_cfg *rig_accept(const char *text)
{
    struct core_cfg *cfg = rig_parse(text, NULL);
    if (core_cfg_check(cfg) != 0) {
        core_cfg_destroy(cfg);
        test_fail(__FILE__, __LINE__, "%s: %s", text, core_err_message());
    }
    return cfg;
}
