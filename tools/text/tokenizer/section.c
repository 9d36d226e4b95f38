/* section.c: functions that load the small sections of tokenizer.json. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "tools/text/tokenizer/steps.h"

int token_section_refuse(struct token_section *section, const char *what, const char *name)
{
    return core_err_set(-EINVAL, "%s: %s %s %s", section->tokenizer->source, section->key, what,
                        name);
}

int token_section_walk(struct token_section *section, const struct core_json_value *value,
                       const char *list, token_section_member *member)
{
    const char *type = NULL;
    if (core_json_kind(value) == CORE_JSON_NULL) {
        return 0;
    }
    if (core_json_kind(value) != CORE_JSON_OBJECT) {
        return token_section_refuse(section, "must be", "an object or null");
    }
    int rc = core_json_get_string(section->doc, value, "type", &type);
    if (rc != 0 || strcmp(type, "Sequence") != 0) {
        return rc != 0 ? rc : member(section, value, type);
    }
    const struct core_json_value *members = core_json_find(value, list);
    if (members == NULL || core_json_kind(members) != CORE_JSON_ARRAY) {
        return token_section_refuse(section, "is a Sequence without", list);
    }
    for (size_t i = 0; i < core_json_count(members); i++) {
        rc = token_section_walk(section, core_json_at(members, i), list, member);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

int token_section_bool(struct token_section *section, const struct core_json_value *object,
                       const char *key, bool otherwise, bool *out)
{
    *out = otherwise;
    int rc = core_json_get_bool(section->doc, object, key, out);
    return rc == -ENOENT ? 0 : rc;
}

int token_section_string(struct token_section *section, const struct core_json_value *object,
                         const char *key, char **out, size_t *bytes)
{
    const char *text = NULL;
    int rc = core_json_get_string(section->doc, object, key, &text);
    if (rc != 0) {
        return rc;
    }
    *bytes = strlen(text);
    *out = core_charge_text(text, SIZE_MAX);
    return *out != NULL ? 0 : core_err_set(-ENOMEM, "no memory for %zu bytes", *bytes);
}

int token_section_search(struct token_section *section, const struct core_json_value *object,
                         struct token_search *out)
{
    const struct core_json_value *pattern = core_json_find(object, "pattern");
    const char *text = NULL;
    bool literal = pattern != NULL && core_json_kind(pattern) == CORE_JSON_OBJECT &&
                   core_json_find(pattern, "String") != NULL;
    if (pattern == NULL || core_json_kind(pattern) != CORE_JSON_OBJECT) {
        return token_section_refuse(section, "has no", "pattern");
    }
    int rc = core_json_get_string(section->doc, pattern, literal ? "String" : "Regex", &text);
    if (rc != 0) {
        return rc;
    }
    char what[256];
    snprintf(what, sizeof what, "%.200s: %s", section->tokenizer->source, section->key);
    return token_search_create(section->tokenizer->unicode, text, strlen(text), literal, what, out);
}
