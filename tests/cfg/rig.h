/* rig.h: functions that the tests of configurations share. */
#ifndef TESTS_CFG_RIG_H
#define TESTS_CFG_RIG_H

#include "core/config/config.h"

/* Parses `text` with `options`, or the usual ones; the text must be an object. */
struct core_cfg *rig_parse(const char *text, const struct core_cfg_options *options);

/* Finds the first note of this kind about the key; returns false if none exists. */
bool rig_note(const struct core_cfg *cfg, enum core_cfg_note_kind kind, const char *key,
              struct core_cfg_note *out);

/* Returns the key's value in the JSON of its note, or ""; valid as long as `cfg`. */
const char *rig_value(const struct core_cfg *cfg, const char *key);

/* Checks that `text` has a note of this kind about `key` on line `line` (0: any), whose reason
 * contains `why`. */
void rig_expect(const char *text, enum core_cfg_note_kind kind, const char *key, size_t line,
                const char *why);

/* Parses `text`, which must be accepted. The caller destroys the result. */
struct core_cfg *rig_accept(const char *text);

#endif
