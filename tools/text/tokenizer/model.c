/* model.c: the key "model" of a tokenizer.json: a BPE's vocabulary and settings. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "tools/text/tokenizer/internal.h"

static bool is_key(const struct core_json_token *token, const char *key)
{
    return core_json_token_equals(token, key, strlen(key));
}

static int refuse(const struct core_json_scan *scan, const char *key, const char *what)
{
    return core_err_set(-EINVAL, "%s: model.%s: %s", scan->source, key, what);
}

/* The text of a string token: where it stands, or decoded into *copy, which the caller frees. */
static const char *plain(const struct core_json_token *token, char **copy, size_t *room,
                         size_t *bytes)
{
    *bytes = token->bytes;
    if (!token->escaped) {
        return token->text;
    }
    if (*room < token->bytes) {
        core_charge_free(*copy);
        *room = token->bytes;
        *copy = core_charge_alloc(*room);
    }
    *bytes = *copy == NULL ? 0 : core_json_token_string(token, *copy, *room);
    *room = *copy == NULL ? 0 : *room;
    return *copy;
}

static int load_vocab(struct token_model *model, struct core_json_scan *scan)
{
    struct core_json_token key;
    struct core_json_token id;
    char *copy = NULL;
    size_t room = 0;
    int rc = core_json_scan_next(scan, &key);
    if (rc == 0 && key.kind != CORE_JSON_TOKEN_OBJECT_BEGIN) {
        return refuse(scan, "vocab", "must be an object of tokens and ids, as BPE models have it");
    }
    while (rc == 0 && (rc = core_json_scan_next(scan, &key)) == 0 &&
           key.kind == CORE_JSON_TOKEN_KEY) {
        size_t bytes;
        rc = core_json_scan_next(scan, &id);
        const char *text = plain(&key, &copy, &room, &bytes);
        int64_t value = rc == 0 && id.kind == CORE_JSON_TOKEN_INTEGER ? core_json_token_integer(&id)
                                                                      : -1;
        if (rc == 0 && text == NULL) {
            rc = core_err_set(-ENOMEM, "%s: no memory for a token", scan->source);
        } else if (rc == 0 && (value < 0 || value > UINT32_MAX)) {
            rc = core_err_set(-EINVAL, "%s: model.vocab: the id of \"%.*s\" must be 0 or more",
                              scan->source, (int)(bytes > 60 ? 60 : bytes), text);
        } else if (rc == 0) {
            rc = token_vocab_add(&model->vocab, text, bytes, (uint32_t)value);
            rc = rc == 0 ? 0 : core_err_prefix(rc, "%s: model.vocab", scan->source);
        }
    }
    core_charge_free(copy);
    model->vocab.model_count = model->vocab.count;
    return rc; /* ids that are missing here may be those of added tokens */
}

static int load_bool(struct core_json_scan *scan, const char *key, bool *out)
{
    struct core_json_token token;
    int rc = core_json_scan_next(scan, &token);
    if (rc == 0 && token.kind != CORE_JSON_TOKEN_TRUE && token.kind != CORE_JSON_TOKEN_FALSE &&
        token.kind != CORE_JSON_TOKEN_NULL) {
        return refuse(scan, key, "must be true or false");
    }
    *out = rc == 0 && token.kind == CORE_JSON_TOKEN_TRUE;
    return rc;
}

static int load_string(struct core_json_scan *scan, const char *key, char **out)
{
    struct core_json_token token;
    int rc = core_json_scan_next(scan, &token);
    if (rc != 0 || token.kind == CORE_JSON_TOKEN_NULL) {
        return rc;
    }
    if (token.kind != CORE_JSON_TOKEN_STRING) {
        return refuse(scan, key, "must be a string");
    }
    char *text = core_charge_alloc(token.bytes + 1);
    if (text == NULL) {
        return core_err_set(-ENOMEM, "%s: no memory for model.%s", scan->source, key);
    }
    text[core_json_token_string(&token, text, token.bytes)] = '\0';
    core_charge_free(*out);
    *out = text;
    return 0;
}

static int load_type(struct core_json_scan *scan)
{
    char *type = NULL;
    int rc = load_string(scan, "type", &type);
    if (rc == 0 && type != NULL && strcmp(type, "BPE") != 0) {
        rc = core_err_set(-ENOTSUP, "%s: model.type is \"%s\"; tide reads BPE", scan->source, type);
    }
    core_charge_free(type);
    return rc;
}

static int load_dropout(struct core_json_scan *scan)
{
    struct core_json_token token;
    int rc = core_json_scan_next(scan, &token);
    bool real = token.kind == CORE_JSON_TOKEN_REAL || token.kind == CORE_JSON_TOKEN_INTEGER;
    if (rc == 0 && real && core_json_token_real(&token) != 0) {
        return refuse(scan, "dropout", "random tokens are not supported; write null");
    }
    return rc;
}

static void drop_empty(char **text)
{
    if (*text != NULL && **text == '\0') {
        core_charge_free(*text);
        *text = NULL;
    }
}

static int load_member(struct token_model *model, struct core_json_scan *scan,
                       const struct core_json_token *key, struct core_json_scan *merges)
{
    const struct {
        const char *name;
        bool *flag;
        char **text;
    } rows[] = {
        {"fuse_unk", &model->fuse_unk, NULL},
        {"byte_fallback", &model->byte_fallback, NULL},
        {"ignore_merges", &model->ignore_merges, NULL},
        {"unk_token", NULL, &model->unk_token},
        {"continuing_subword_prefix", NULL, &model->prefix},
        {"end_of_word_suffix", NULL, &model->suffix},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (is_key(key, rows[i].name)) {
            int rc = rows[i].flag != NULL ? load_bool(scan, rows[i].name, rows[i].flag)
                                          : load_string(scan, rows[i].name, rows[i].text);
            drop_empty(&model->prefix); /* GPT-2's and Qwen's files have "" for none */
            drop_empty(&model->suffix);
            return rc;
        }
    }
    if (is_key(key, "type")) {
        return load_type(scan);
    }
    if (is_key(key, "dropout")) {
        return load_dropout(scan);
    }
    if (is_key(key, "vocab")) {
        return model->vocab.count > 0
                   ? core_err_set(-EINVAL, "%s: duplicate key \"vocab\"", scan->source)
                   : load_vocab(model, scan);
    }
    if (!is_key(key, "merges")) {
        return core_json_scan_skip(scan, key);
    }
    /* They name tokens and are read once those are known. */
    size_t from = scan->at;
    int rc = core_json_scan_skip(scan, key);
    core_json_scan_init(merges, scan->text + from, scan->at - from, scan->source);
    return rc;
}

int token_model_load(struct token_model *model, struct core_json_scan *scan)
{
    struct core_json_scan merges = {0};
    struct core_json_token key;
    model->unk = TOKEN_NONE;
    int rc = core_json_scan_next(scan, &key);
    if (rc == 0 && key.kind != CORE_JSON_TOKEN_OBJECT_BEGIN) {
        return core_err_set(-EINVAL, "%s: model must be an object", scan->source);
    }
    while (rc == 0 && (rc = core_json_scan_next(scan, &key)) == 0 &&
           key.kind == CORE_JSON_TOKEN_KEY) {
        rc = load_member(model, scan, &key, &merges);
    }
    if (rc == 0 && (model->vocab.count == 0 || merges.text == NULL)) {
        return core_err_set(-EINVAL, "%s: model has no %s", scan->source,
                            model->vocab.count == 0 ? "vocab" : "merges");
    }
    if (rc == 0 && model->unk_token != NULL) {
        model->unk = token_vocab_find(&model->vocab, model->unk_token, strlen(model->unk_token));
    }
    return rc == 0 ? token_model_merges(model, &merges) : rc;
}

void token_model_free(struct token_model *model)
{
    if (model != NULL) {
        token_vocab_free(&model->vocab);
        core_charge_free(model->merges);
        core_charge_free(model->prefix);
        core_charge_free(model->suffix);
        core_charge_free(model->unk_token);
        core_charge_free(model);
    }
}
