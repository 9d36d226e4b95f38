/* section.c: what the loaders of the small sections of a tokenizer.json have in common, and
 * the pre-tokenizers' own. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "tools/text/tokenizer/internal.h"

int token_section_refuse(struct token_section *section, const struct core_json_value *object,
                         const char *what, const char *name)
{
    (void)object;
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
        return token_section_refuse(section, value, "must be", "an object or null");
    }
    int rc = core_json_get_string(section->doc, value, "type", &type);
    if (rc != 0 || strcmp(type, "Sequence") != 0) {
        return rc != 0 ? rc : member(section, value, type);
    }
    const struct core_json_value *members = core_json_find(value, list);
    if (members == NULL || core_json_kind(members) != CORE_JSON_ARRAY) {
        return token_section_refuse(section, value, "is a Sequence without", list);
    }
    for (size_t i = 0; i < core_json_count(members) && rc == 0; i++) {
        rc = token_section_walk(section, core_json_at(members, i), list, member);
    }
    return rc;
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
        return token_section_refuse(section, object, "has no", "pattern");
    }
    int rc = core_json_get_string(section->doc, pattern, literal ? "String" : "Regex", &text);
    if (rc != 0) {
        return rc;
    }
    char what[256];
    snprintf(what, sizeof what, "%.200s: %s", section->tokenizer->source, section->key);
    return token_search_create(section->tokenizer->unicode, text, strlen(text), literal, what, out);
}

static int load_behaviour(struct token_section *section, const struct core_json_value *value,
                          enum token_behaviour *out)
{
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    const char *name = NULL;
    int rc = core_json_get_string(section->doc, value, "behavior", &name);
    for (size_t i = 0; rc == 0 && i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0) {
            *out = (enum token_behaviour)i;
            return 0;
        }
    }
    return rc != 0 ? rc : token_section_refuse(section, value, "has an unknown behavior:", name);
}

static struct token_split *next_split(struct token_section *section)
{
    struct text_tokenizer *tokenizer = section->tokenizer;
    return tokenizer->splits == TOKEN_STEPS_MAX ? NULL : &tokenizer->split[tokenizer->splits++];
}

static int too_many(struct token_section *section)
{
    return core_err_set(-EINVAL, "%s: %s has more than %d steps", section->tokenizer->source,
                        section->key, TOKEN_STEPS_MAX);
}

static int load_byte_level(struct token_section *section, const struct core_json_value *value)
{
    static const char gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|"
                               "\\s+(?!\\S)|\\s+";
    bool prefix;
    bool regex;
    int rc = token_section_bool(section, value, "add_prefix_space", true, &prefix);
    rc = rc == 0 ? token_section_bool(section, value, "use_regex", true, &regex) : rc;
    section->tokenizer->model->byte_level = true;
    if (rc == 0 && prefix) {
        struct token_split *split = next_split(section);
        if (split == NULL) {
            return too_many(section);
        }
        *split = (struct token_split){.kind = TOKEN_SPLIT_SPACE,
                                      .content = " ",
                                      .content_bytes = 1,
                                      .scheme = TOKEN_SCHEME_ALWAYS};
    }
    if (rc == 0 && regex) {
        struct token_split *split = next_split(section);
        if (split == NULL) {
            return too_many(section);
        }
        split->behaviour = TOKEN_ISOLATED;
        rc = token_search_create(section->tokenizer->unicode, gpt2, sizeof gpt2 - 1, false,
                                 section->key, &split->search);
    }
    return rc;
}

static int load_scheme(struct token_section *section, const struct core_json_value *value,
                       enum token_scheme *out)
{
    static const char *const names[] = {"always", "first", "never"};
    const char *name = NULL;
    bool prefix;
    int rc = token_section_bool(section, value, "add_prefix_space", true, &prefix);
    *out = prefix ? TOKEN_SCHEME_ALWAYS : TOKEN_SCHEME_NEVER;
    if (rc != 0 || core_json_find(value, "prepend_scheme") == NULL) {
        return rc;
    }
    rc = core_json_get_string(section->doc, value, "prepend_scheme", &name);
    for (size_t i = 0; rc == 0 && i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0) {
            *out = (enum token_scheme)i;
            return 0;
        }
    }
    return rc != 0 ? rc
                   : token_section_refuse(section, value, "has an unknown prepend_scheme:", name);
}

/* "replacement": one character. */
static int load_character(struct token_section *section, const struct core_json_value *value,
                          const char *key, char out[8], unsigned *bytes)
{
    const char *text = NULL;
    int rc = core_json_get_string(section->doc, value, key, &text);
    if (rc != 0) {
        return rc;
    }
    if (text[0] != '\0') {
        token_point(text, bytes);
    }
    if (text[0] == '\0' || strlen(text) != *bytes) {
        return token_section_refuse(section, value, "needs one character as", key);
    }
    memcpy(out, text, *bytes);
    return 0;
}

static int load_metaspace(struct token_section *section, const struct core_json_value *value)
{
    bool splits;
    struct token_split *split = next_split(section);
    if (split == NULL) {
        return too_many(section);
    }
    split->kind = TOKEN_SPLIT_META;
    int rc = load_character(section, value, "replacement", split->content, &split->content_bytes);
    rc = rc == 0 ? load_scheme(section, value, &split->scheme) : rc;
    rc = rc == 0 ? token_section_bool(section, value, "split", true, &splits) : rc;
    if (rc == 0 && splits) {
        struct token_split *cut = next_split(section);
        if (cut == NULL) {
            return too_many(section);
        }
        *cut = *split;
        cut->kind = TOKEN_SPLIT_CHAR;
        cut->behaviour = TOKEN_MERGED_NEXT;
    }
    return rc;
}

static int load_split(struct token_section *section, const struct core_json_value *value,
                      struct token_split *split)
{
    int rc = load_behaviour(section, value, &split->behaviour);
    rc = rc == 0 ? token_section_bool(section, value, "invert", false, &split->invert) : rc;
    return rc == 0 ? token_section_search(section, value, &split->search) : rc;
}

static int load_digits(struct token_section *section, const struct core_json_value *value,
                       struct token_split *split)
{
    bool individual;
    int rc = token_section_bool(section, value, "individual_digits", false, &individual);
    split->kind = TOKEN_SPLIT_FLAG;
    split->flag = TOKEN_FLAG_NUMERIC;
    split->behaviour = individual ? TOKEN_ISOLATED : TOKEN_CONTIGUOUS;
    return rc;
}

static int load_member(struct token_section *section, const struct core_json_value *value,
                       const char *type)
{
    static const char words[] = "\\p{=w}+|[^\\p{=w}\\s]+";
    if (section->tokenizer->model->byte_level) {
        return token_section_refuse(section, value, "has a step behind ByteLevel:", type);
    }
    if (strcmp(type, "ByteLevel") == 0) {
        return load_byte_level(section, value);
    }
    if (strcmp(type, "Metaspace") == 0) {
        return load_metaspace(section, value);
    }
    struct token_split *split = next_split(section);
    if (split == NULL) {
        return too_many(section);
    }
    if (strcmp(type, "Split") == 0) {
        return load_split(section, value, split);
    }
    if (strcmp(type, "Digits") == 0) {
        return load_digits(section, value, split);
    }
    split->kind = TOKEN_SPLIT_FLAG;
    if (strcmp(type, "Punctuation") == 0) {
        split->flag = TOKEN_FLAG_PUNCTUATION;
        split->behaviour = TOKEN_ISOLATED;
        return core_json_find(value, "behavior") == NULL
                   ? 0
                   : load_behaviour(section, value, &split->behaviour);
    }
    split->behaviour = TOKEN_REMOVED;
    if (strcmp(type, "WhitespaceSplit") == 0) {
        split->flag = TOKEN_FLAG_BLANK;
        return 0;
    }
    if (strcmp(type, "Whitespace") == 0) {
        split->kind = TOKEN_SPLIT_SEARCH;
        split->invert = true;
        return token_search_create(section->tokenizer->unicode, words, sizeof words - 1, false,
                                   section->key, &split->search);
    }
    return token_section_refuse(section, value, "has a type that tide does not read:", type);
}

int token_pre_tokenizer_load(struct text_tokenizer *tokenizer, const struct core_json *doc)
{
    struct token_section section = {.tokenizer = tokenizer, .doc = doc, .key = "pre_tokenizer"};
    return token_section_walk(&section, core_json_root(doc), "pretokenizers", load_member);
}
