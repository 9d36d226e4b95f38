/* special.c: reads the files of a model folder that name special tokens. */
#include "tools/text/tokenizer/special.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "core/json/json.h"

static const char *const names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                    "pad_token", "cls_token", "mask_token"};
enum { NAMES = sizeof names / sizeof names[0] };

int text_special_read(const char *folder, const char *name, struct core_json **out)
{
    char path[4096];
    *out = NULL;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) {
        return core_err_set(-ENAMETOOLONG, "%.200s...: the path is too long", folder);
    }
    if (access(path, F_OK) != 0) {
        return 0;
    }
    int rc = core_json_load(path, &(struct core_json_options){.regular = true}, out);
    if (rc == 0 && core_json_kind(core_json_root(*out)) != CORE_JSON_OBJECT) {
        rc = core_err_set(-EINVAL, "%s: must be an object", path);
        core_json_destroy(*out);
        *out = NULL;
    }
    return rc;
}

static void free_token(struct text_special_token *token)
{
    core_charge_free(token->name);
    core_charge_free(token->content);
}

void text_special_fini(struct text_special *special)
{
    for (size_t i = 0; i < special->count; i++) {
        free_token(&special->tokens[i]);
    }
    core_charge_free(special->tokens);
    core_charge_free(special->tokenizer_class);
    *special = (struct text_special){0};
}

const char *text_special_find(const struct text_special *special, const char *name)
{
    for (size_t i = 0; i < special->count; i++) {
        const char *token_name = special->tokens[i].name;
        if (token_name != NULL && strcmp(token_name, name) == 0) {
            return special->tokens[i].content;
        }
    }
    return NULL;
}

struct reading {
    struct text_special *out;
    const struct core_json *doc;
    size_t named; /* tokens with names */
};

static int refuse(const struct reading *reading, const char *key, const struct core_json_value *is)
{
    return core_err_set(-EINVAL, "%s: %s: is %s; expected a string or an object with content",
                        core_json_source(reading->doc), key,
                        core_json_kind_name(core_json_kind(is)));
}

/* Adds the token, or replaces the one of the same name. */
static int set_token(struct reading *reading, struct text_special_token token, const char *name)
{
    struct text_special *out = reading->out;
    for (size_t i = 0; i < out->count && name != NULL; i++) {
        if (out->tokens[i].name != NULL && strcmp(out->tokens[i].name, name) == 0) {
            core_charge_free(out->tokens[i].content);
            token.name = out->tokens[i].name;
            out->tokens[i] = token;
            return 0;
        }
    }
    if (name != NULL && reading->named == TEXT_SPECIAL_NAMES_MAX) {
        core_charge_free(token.content);
        return core_err_set(-E2BIG, "%s: more than %d named tokens", core_json_source(reading->doc),
                            TEXT_SPECIAL_NAMES_MAX);
    }
    token.name = name != NULL ? core_charge_text(name, SIZE_MAX) : NULL;
    struct text_special_token *more = core_charge_grow(out->tokens,
                                                       (out->count + 1) * sizeof *more);
    out->tokens = more != NULL ? more : out->tokens;
    if (more == NULL || (name != NULL && token.name == NULL)) {
        free_token(&token);
        return core_err_set(-ENOMEM, "no memory for special tokens");
    }
    reading->named += name != NULL;
    out->tokens[out->count++] = token;
    return 0;
}

/* Reads a text, or an object with its content; null and "" mean none. */
static int read_token(struct reading *reading, const char *key, const struct core_json_value *value,
                      const char *name, int64_t id)
{
    struct text_special_token token = {.id = id};
    const struct core_json_value *content = value;
    if (core_json_kind(value) == CORE_JSON_NULL) {
        return 0;
    }
    if (core_json_kind(value) == CORE_JSON_OBJECT) {
        const struct {
            const char *key;
            bool *flag;
        } flags[] = {{"special", &token.special},
                     {"lstrip", &token.lstrip},
                     {"rstrip", &token.rstrip},
                     {"single_word", &token.single_word},
                     {"normalized", &token.normalized}};
        content = core_json_find(value, "content");
        for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
            int rc = core_json_get_bool(reading->doc, value, flags[i].key, flags[i].flag);
            if (rc != 0 && rc != -ENOENT) {
                return rc;
            }
        }
    }
    if (content == NULL || core_json_kind(content) != CORE_JSON_STRING) {
        return refuse(reading, key, value);
    }
    token.special |= id < 0;
    if (id >= 0 && core_json_find(value, "normalized") == NULL) {
        token.normalized = !token.special;
    }
    const char *text = core_json_string(content, NULL);
    if (text[0] == '\0') {
        return 0;
    }
    token.content = core_charge_text(text, SIZE_MAX);
    return token.content != NULL ? set_token(reading, token, name)
                                 : core_err_set(-ENOMEM, "no memory for special tokens");
}

static int by_id(const void *left, const void *right)
{
    const int64_t a = ((const struct text_special_token *)left)->id;
    const int64_t b = ((const struct text_special_token *)right)->id;
    return (a > b) - (a < b);
}

/* Reads {"32000": {"content": ...}} in the order of the ids. */
static int read_decoder(struct reading *reading, const struct core_json_value *decoder)
{
    struct core_json_member member;
    struct text_special *out = reading->out;
    int rc = 0;
    if (core_json_kind(decoder) != CORE_JSON_OBJECT) {
        return core_err_set(-EINVAL,
                            "%s: added_tokens_decoder: must be an object of ids and tokens",
                            core_json_source(reading->doc));
    }
    for (bool any = core_json_first(decoder, &member); any && rc == 0;
         any = core_json_next(&member)) {
        char *end;
        char key[64];
        const long long id = strtoll(member.key, &end, 10);
        snprintf(key, sizeof key, "added_tokens_decoder.%.30s", member.key);
        if (*end != '\0' || end == member.key || id < 0) {
            return core_err_set(-EINVAL, "%s: %s is not an id", core_json_source(reading->doc),
                                key);
        }
        rc = core_json_kind(member.value) == CORE_JSON_OBJECT
                 ? read_token(reading, key, member.value, NULL, id)
                 : refuse(reading, key, member.value);
    }
    if (out->count > 1) {
        qsort(out->tokens, out->count, sizeof *out->tokens, by_id);
    }
    return rc;
}

static bool is_known(const char *key)
{
    for (size_t i = 0; i < NAMES; i++) {
        if (strcmp(names[i], key) == 0) {
            return true;
        }
    }
    return false;
}

/* Returns whether the member is a token with its own name, such as image_token. */
static bool is_named(const struct core_json_member *member)
{
    const size_t bytes = strlen(member->key);
    return bytes > 6 && strcmp(member->key + bytes - 6, "_token") == 0 && !is_known(member->key) &&
           (core_json_kind(member->value) == CORE_JSON_STRING ||
            core_json_kind(member->value) == CORE_JSON_OBJECT);
}

static int read_names(struct reading *reading, const struct core_json_value *root)
{
    struct core_json_member member;
    int rc = 0;
    for (size_t i = 0; i < NAMES && rc == 0; i++) {
        const struct core_json_value *value = core_json_find(root, names[i]);
        rc = value != NULL ? read_token(reading, names[i], value, names[i], -1) : 0;
    }
    for (bool any = core_json_first(root, &member); any && rc == 0; any = core_json_next(&member)) {
        rc = is_named(&member) ? read_token(reading, member.key, member.value, member.key, -1) : 0;
    }
    return rc;
}

/* Reads a list, or an object of names and tokens. */
static int read_extra(struct reading *reading, const struct core_json_value *root)
{
    struct core_json_member member;
    const char *key = "extra_special_tokens";
    const struct core_json_value *extra = core_json_find(root, key);
    if (extra == NULL || core_json_kind(extra) == CORE_JSON_NULL ||
        (core_json_kind(extra) == CORE_JSON_ARRAY && core_json_count(extra) == 0)) {
        key = "additional_special_tokens"; /* its name before transformers 5 */
        extra = core_json_find(root, key);
    }
    if (extra == NULL || core_json_kind(extra) == CORE_JSON_NULL) {
        return 0;
    }
    if (core_json_kind(extra) == CORE_JSON_OBJECT) {
        for (bool any = core_json_first(extra, &member); any; any = core_json_next(&member)) {
            int rc = read_token(reading, member.key, member.value, member.key, -1);
            if (rc != 0) {
                return rc;
            }
        }
        return 0;
    }
    if (core_json_kind(extra) != CORE_JSON_ARRAY) {
        return core_err_set(-EINVAL, "%s: %s: must be a list of tokens, or an object of them",
                            core_json_source(reading->doc), key);
    }
    for (size_t i = 0; i < core_json_count(extra); i++) {
        char place[64];
        snprintf(place, sizeof place, "%s[%zu]", key, i);
        int rc = read_token(reading, place, core_json_at(extra, i), NULL, -1);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static enum text_special_adds read_adds(const struct core_json_value *root, const char *key)
{
    const struct core_json_value *value = core_json_find(root, key);
    return value == NULL || core_json_kind(value) != CORE_JSON_BOOL ? TEXT_SPECIAL_UNSAID
           : core_json_bool(value)                                  ? TEXT_SPECIAL_YES
                                                                    : TEXT_SPECIAL_NO;
}

static int read_config(struct reading *reading, bool *decoder)
{
    struct text_special *out = reading->out;
    const struct core_json_value *root = core_json_root(reading->doc);
    const struct core_json_value *value = core_json_find(root, "added_tokens_decoder");
    *decoder = value != NULL && core_json_kind(value) != CORE_JSON_NULL;
    int rc = *decoder ? read_decoder(reading, value) : 0;
    if (rc != 0 || (rc = read_names(reading, root)) != 0) {
        return rc;
    }
    value = core_json_find(root, "split_special_tokens");
    if (value != NULL && core_json_kind(value) == CORE_JSON_BOOL && core_json_bool(value)) {
        return core_err_set(-ENOTSUP,
                            "%s: split_special_tokens: true is not supported: tide always "
                            "recognises special tokens in texts",
                            core_json_source(reading->doc));
    }
    value = core_json_find(root, "tokenizer_class");
    if (value != NULL && core_json_kind(value) == CORE_JSON_STRING) {
        out->tokenizer_class = core_charge_text(core_json_string(value, NULL), SIZE_MAX);
        if (out->tokenizer_class == NULL) {
            return core_err_set(-ENOMEM, "no memory for a class's name");
        }
    }
    out->adds_bos = read_adds(root, "add_bos_token");
    out->adds_eos = read_adds(root, "add_eos_token");
    return 0;
}

/* Tokens with names are special, even against added_tokens_decoder. */
static void mark_named(struct text_special *special)
{
    for (size_t i = 0; i < special->count; i++) {
        const struct text_special_token *named = &special->tokens[i];
        for (size_t k = 0; k < special->count && named->name != NULL; k++) {
            struct text_special_token *token = &special->tokens[k];
            token->special |= strcmp(named->content, token->content) == 0;
        }
    }
}

int text_special_load(const char *folder, struct text_special *out)
{
    bool decoder = false;
    struct text_special special = {0};
    struct core_json *config = NULL;
    struct core_json *map = NULL;
    int rc = text_special_read(folder, "tokenizer_config.json", &config);
    if (rc != 0) {
        goto cleanup;
    }
    struct reading reading = {.out = &special, .doc = config};
    if (config != NULL && (rc = read_config(&reading, &decoder)) != 0) {
        goto cleanup;
    }
    /* special_tokens_map.json wins over tokenizer_config.json */
    if (!decoder) {
        rc = text_special_read(folder, "special_tokens_map.json", &map);
        reading.doc = map;
        if (rc != 0 || (map != NULL && (rc = read_names(&reading, core_json_root(map))) != 0)) {
            goto cleanup;
        }
    }
    struct core_json *const docs[] = {config, map};
    for (size_t i = 0; i < 2; i++) {
        reading.doc = docs[i];
        if (docs[i] != NULL && (rc = read_extra(&reading, core_json_root(docs[i]))) != 0) {
            goto cleanup;
        }
    }
    mark_named(&special);
    *out = special;
    special = (struct text_special){0};
cleanup:
    core_json_destroy(config);
    core_json_destroy(map);
    text_special_fini(&special);
    return rc;
}
