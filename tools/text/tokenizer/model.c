/* model.c: reads the vocabulary and the merges of a BPE. */
#include "tools/text/tokenizer/model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "core/base/hash.h"
#include "tools/text/tokenizer/text.h"
#include "tools/text/tokenizer/unicode.h"

/* ---- the vocabulary ---- */

enum { VOCAB_IDS_MAX = 1 << 24 };

static uint32_t hash_of(const char *text, size_t bytes)
{
    return (uint32_t)core_hash(text, bytes, 0);
}

/* Returns the slot of a text, or a free one. */
static struct token_slot *slot_of(const struct token_vocab *vocab, const char *text, size_t bytes,
                                  uint32_t hash)
{
    for (size_t i = hash & vocab->mask;; i = (i + 1) & vocab->mask) {
        struct token_slot *slot = &vocab->slots[i];
        if (slot->id == TOKEN_NONE) {
            return slot;
        }
        struct text_span span = vocab->tokens[slot->id];
        if (slot->hash == hash && span.end - span.begin == bytes &&
            memcmp(vocab->text + span.begin, text, bytes) == 0) {
            return slot;
        }
    }
}

uint32_t token_vocab_find(const struct token_vocab *vocab, const char *text, size_t bytes)
{
    return vocab->slots == NULL ? TOKEN_NONE
                                : slot_of(vocab, text, bytes, hash_of(text, bytes))->id;
}

const char *token_vocab_text(const struct token_vocab *vocab, uint32_t id, size_t *bytes)
{
    if (id >= vocab->count) {
        return NULL;
    }
    const struct text_span span = vocab->tokens[id];
    *bytes = span.end > span.begin ? span.end - span.begin : 0;
    return *bytes > 0 ? vocab->text + span.begin : "";
}

static int grow_slots(struct token_vocab *vocab)
{
    size_t count = vocab->slots == NULL ? 1024 : 4 * (vocab->mask + 1);
    struct token_slot *slots = core_charge_alloc(count * sizeof *slots);
    if (slots == NULL) {
        return core_err_set(-ENOMEM, "no memory for a vocabulary of %zu tokens", count);
    }
    memset(slots, 0xFF, count * sizeof *slots);
    for (size_t i = 0; vocab->slots != NULL && i <= vocab->mask; i++) {
        if (vocab->slots[i].id != TOKEN_NONE) {
            size_t at = vocab->slots[i].hash & (count - 1);
            while (slots[at].id != TOKEN_NONE) {
                at = (at + 1) & (count - 1);
            }
            slots[at] = vocab->slots[i];
        }
    }
    core_charge_free(vocab->slots);
    vocab->slots = slots;
    vocab->mask = count - 1;
    return 0;
}

static int reserve_vocab(struct token_vocab *vocab, size_t bytes, uint32_t id)
{
    void *text = vocab->text;
    int rc = token_grow(&text, &vocab->text_room, vocab->text_bytes, bytes, 1);
    vocab->text = text;
    if (rc == 0 && id >= vocab->count) {
        void *tokens = vocab->tokens;
        rc = token_grow(&tokens, &vocab->tokens_room, vocab->count, id + 1 - vocab->count,
                        sizeof *vocab->tokens);
        vocab->tokens = tokens;
    }
    if (rc == 0 && vocab->used * 2 >= vocab->mask) {
        rc = grow_slots(vocab);
    }
    return rc;
}

int token_vocab_add(struct token_vocab *vocab, const char *text, size_t bytes, uint32_t id)
{
    int shown = (int)(bytes > 60 ? 60 : bytes);
    if (id >= VOCAB_IDS_MAX) {
        return core_err_set(-EINVAL, "token \"%.*s\" has id %u, and ids go up to %d", shown, text,
                            id, VOCAB_IDS_MAX - 1);
    }
    int rc = reserve_vocab(vocab, bytes, id);
    if (rc != 0) {
        return rc;
    }
    for (; vocab->count <= id; vocab->count++) {
        vocab->tokens[vocab->count] = (struct text_span){1, 0};
    }
    uint32_t hash = hash_of(text, bytes);
    struct token_slot *slot = slot_of(vocab, text, bytes, hash);
    struct text_span *span = &vocab->tokens[id];
    if (slot->id != TOKEN_NONE) {
        return core_err_set(-EINVAL, "duplicate key \"%.*s\" in the vocabulary, with ids %u and %u",
                            shown, text, slot->id, id);
    }
    if (span->begin <= span->end) {
        return core_err_set(-EINVAL, "id %u belongs to two tokens, \"%.*s\" and \"%.*s\"", id,
                            (int)(span->end - span->begin), vocab->text + span->begin, shown, text);
    }
    memcpy(vocab->text + vocab->text_bytes, text, bytes);
    *span = (struct text_span){.begin = (uint32_t)vocab->text_bytes,
                               .end = (uint32_t)(vocab->text_bytes + bytes)};
    vocab->text_bytes += bytes;
    *slot = (struct token_slot){.hash = hash, .id = id};
    vocab->used++;
    return 0;
}

static void vocab_free(struct token_vocab *vocab)
{
    core_charge_free(vocab->text);
    core_charge_free(vocab->tokens);
    core_charge_free(vocab->slots);
}

/* ---- merges ---- */

/* A merge while it is read; both halves are adjacent in `text`. */
struct halves {
    char *text; /* owned */
    size_t room;
    size_t left;
    size_t bytes;
    size_t index;
};

uint32_t token_byte_letter(unsigned byte)
{
    bool shown = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    if (shown) {
        return byte;
    }
    /* The other bytes get letters from U+0100 on, in order. */
    return 256 + (byte <= 32 ? byte : byte <= 160 ? byte - 127 + 33 : 67);
}

int token_letter_byte(uint32_t letter)
{
    if (letter < 256) {
        return token_byte_letter(letter) == letter ? (int)letter : -1;
    }
    uint32_t n = letter - 256;
    return n <= 32 ? (int)n : n <= 66 ? (int)(n - 33 + 127) : n == 67 ? 173 : -1;
}

static size_t merge_slot(const struct token_model *model, uint32_t left, uint32_t right)
{
    uint64_t key = ((uint64_t)left << 32 | right) * UINT64_C(0x9E3779B97F4A7C15);
    return (size_t)(key >> 32) & model->mask;
}

struct token_merge const *token_model_merge(const struct token_model *model, uint32_t left,
                                            uint32_t right)
{
    for (size_t i = merge_slot(model, left, right);; i = (i + 1) & model->mask) {
        const struct token_merge *merge = &model->merges[i];
        if (merge->left == left && merge->right == right) {
            return merge;
        }
        if (merge->left == TOKEN_NONE) {
            return NULL;
        }
    }
}

static void insert_merge(struct token_model *model, struct token_merge merge)
{
    size_t i = merge_slot(model, merge.left, merge.right);
    while (model->merges[i].left != TOKEN_NONE &&
           (model->merges[i].left != merge.left || model->merges[i].right != merge.right)) {
        i = (i + 1) & model->mask;
    }
    model->merges_count += model->merges[i].left == TOKEN_NONE;
    model->merges[i] = merge;
}

static int grow(struct token_model *model)
{
    size_t count = model->merges == NULL ? 1024 : 4 * (model->mask + 1);
    struct token_merge *old = model->merges;
    size_t old_count = old == NULL ? 0 : model->mask + 1;
    struct token_merge *merges = core_charge_alloc(count * sizeof *merges);
    if (merges == NULL) {
        return core_err_set(-ENOMEM, "no memory for %zu merges", count);
    }
    memset(merges, 0xFF, count * sizeof *merges);
    model->merges = merges;
    model->mask = count - 1;
    model->merges_count = 0;
    for (size_t i = 0; i < old_count; i++) {
        if (old[i].left != TOKEN_NONE) {
            insert_merge(model, old[i]);
        }
    }
    core_charge_free(old);
    return 0;
}

static int refuse_merge(const struct core_json_scan *scan, const struct halves *in,
                        const char *what)
{
    return core_err_set(-EINVAL, "%s: model.merges[%zu]: %s", scan->source, in->index, what);
}

static int append(struct halves *in, const struct core_json_token *token)
{
    void *text = in->text;
    int rc = token_grow(&text, &in->room, in->bytes, token->bytes + 1, 1);
    in->text = text;
    if (rc == 0) {
        in->bytes += core_json_token_string(token, in->text + in->bytes, token->bytes);
    }
    return rc;
}

/* Splits "a b" at the space. */
static int split(const struct core_json_scan *scan, struct halves *in)
{
    char *space = memchr(in->text, ' ', in->bytes);
    if (space == NULL ||
        memchr(space + 1, ' ', in->bytes - (size_t)(space + 1 - in->text)) != NULL) {
        return refuse_merge(scan, in, "must be two tokens with one space between them");
    }
    in->left = (size_t)(space - in->text);
    in->bytes--;
    memmove(space, space + 1, in->bytes - in->left);
    return 0;
}

/* Reads a string, or an array of two, that begins with `token`. */
static int read_halves(struct core_json_scan *scan, struct core_json_token *token,
                       struct halves *in)
{
    in->bytes = 0;
    if (token->kind == CORE_JSON_TOKEN_STRING) {
        int rc = append(in, token);
        return rc == 0 ? split(scan, in) : rc;
    }
    bool pair = token->kind == CORE_JSON_TOKEN_ARRAY_BEGIN;
    for (int i = 0; i < 2 && pair; i++) {
        int rc = core_json_scan_next(scan, token);
        pair = rc == 0 && token->kind == CORE_JSON_TOKEN_STRING;
        in->left = i == 1 ? in->bytes : 0;
        rc = pair ? append(in, token) : rc;
        if (rc != 0) {
            return rc;
        }
    }
    int rc = pair ? core_json_scan_next(scan, token) : 0;
    if (rc == 0 && (!pair || token->kind != CORE_JSON_TOKEN_ARRAY_END)) {
        return refuse_merge(scan, in, "must be \"left right\" or [\"left\", \"right\"]");
    }
    return rc;
}

static int find(const struct token_model *model, const struct core_json_scan *scan,
                const struct halves *in, size_t begin, size_t end, uint32_t *id)
{
    *id = token_vocab_find(&model->vocab, in->text + begin, end - begin);
    if (*id == TOKEN_NONE) {
        size_t bytes = end - begin;
        return core_err_set(-EINVAL, "%s: model.merges[%zu]: \"%.*s\" is not in model.vocab",
                            scan->source, in->index, (int)(bytes > 60 ? 60 : bytes),
                            in->text + begin);
    }
    return 0;
}

static int add(struct token_model *model, const struct core_json_scan *scan, struct halves *in)
{
    struct token_merge merge = {.rank = (uint32_t)in->index};
    int rc = find(model, scan, in, 0, in->left, &merge.left);
    if (rc == 0) {
        rc = find(model, scan, in, in->left, in->bytes, &merge.right);
    }
    size_t prefix = model->prefix == NULL ? 0 : strlen(model->prefix);
    if (rc == 0 && prefix > 0) {
        if (in->bytes - in->left < prefix) {
            return refuse_merge(scan, in,
                                "the right token is shorter than continuing_subword_prefix");
        }
        in->bytes -= prefix;
        memmove(in->text + in->left, in->text + in->left + prefix, in->bytes - in->left);
    }
    if (rc == 0) {
        rc = find(model, scan, in, 0, in->bytes, &merge.id);
    }
    if (rc == 0 && (model->merges == NULL || model->merges_count * 2 >= model->mask)) {
        rc = grow(model);
    }
    if (rc == 0) {
        insert_merge(model, merge);
    }
    return rc;
}

static int load_merges(struct token_model *model, struct core_json_scan *scan)
{
    struct halves in = {0};
    struct core_json_token token;
    int rc = grow(model);
    if (rc == 0) {
        rc = core_json_scan_next(scan, &token);
    }
    if (rc == 0 && token.kind != CORE_JSON_TOKEN_ARRAY_BEGIN) {
        return core_err_set(-EINVAL, "%s: model.merges must be an array", scan->source);
    }
    while (rc == 0 && (rc = core_json_scan_next(scan, &token)) == 0 &&
           token.kind != CORE_JSON_TOKEN_ARRAY_END) {
        rc = read_halves(scan, &token, &in);
        if (rc != 0 || (rc = add(model, scan, &in)) != 0) {
            break;
        }
        in.index++;
    }
    core_charge_free(in.text);
    return rc;
}

static size_t join_bit(const struct token_model *model, uint32_t left, uint32_t right)
{
    return model->byte_level ? (size_t)left << 8 | right
                             : (left * UINT32_C(0x9E3779B1) ^ right * UINT32_C(0x85EBCA77)) >> 13;
}

bool token_model_joins(const struct token_model *model, uint32_t left, uint32_t right)
{
    size_t bit = join_bit(model, left, right);
    return (model->joins[bit / 64] >> (bit % 64) & 1) != 0;
}

/* Returns the character itself or, in byte-level models, its byte (-1: none). */
static int64_t symbol_of(const struct token_model *model, uint32_t point)
{
    return model->byte_level ? token_letter_byte(point) : (int64_t)point;
}

/* Tokens that are not text, such as <0x0A>, forbid cutting words. */
static void note_join(struct token_model *model, const struct token_merge *merge)
{
    const struct token_vocab *vocab = &model->vocab;
    struct text_span left = vocab->tokens[merge->left];
    struct text_span right = vocab->tokens[merge->right];
    unsigned bytes;
    bool special = merge->left == model->unk || merge->right == model->unk;
    for (unsigned i = 0; i < 256 && model->byte_fallback; i++) {
        special |= merge->left == model->byte_ids[i] || merge->right == model->byte_ids[i];
    }
    if (special || left.begin == left.end || right.begin == right.end) {
        model->cuts = false;
        return;
    }
    int64_t a = symbol_of(
        model, token_point_before(vocab->text + left.begin, vocab->text + left.end, &bytes));
    int64_t b = symbol_of(model, token_point(vocab->text + right.begin, &bytes));
    if (a >= 0 && b >= 0) {
        size_t bit = join_bit(model, (uint32_t)a, (uint32_t)b);
        model->joins[bit / 64] |= UINT64_C(1) << (bit % 64);
    }
}

static int check_model(const struct token_model *model, bool all, const char *source)
{
    if (model->byte_level && (model->prefix != NULL || model->suffix != NULL)) {
        return core_err_set(
            -ENOTSUP, "%s: model.%s together with a ByteLevel pre-tokenizer is not supported",
            source, model->prefix != NULL ? "continuing_subword_prefix" : "end_of_word_suffix");
    }
    if (model->byte_level && model->byte_fallback && !all) {
        return core_err_set(-ENOTSUP,
                            "%s: model.byte_fallback together with a ByteLevel pre-tokenizer is "
                            "not supported if letters of bytes are missing in model.vocab",
                            source);
    }
    /* Nothing is unknown if every byte is a token. */
    if (model->unk_token != NULL && model->unk == TOKEN_NONE &&
        !(all && (model->byte_level || model->byte_fallback))) {
        return core_err_set(-EINVAL, "%s: model.unk_token: \"%s\" is not in model.vocab", source,
                            model->unk_token);
    }
    return 0;
}

int token_model_finish(struct token_model *model, const char *source)
{
    bool all = true;
    for (unsigned i = 0; i < 256; i++) {
        char text[8];
        size_t bytes = model->byte_level ? token_point_write(token_byte_letter(i), text)
                                         : (size_t)snprintf(text, sizeof text, "<0x%02X>", i);
        model->byte_ids[i] = token_vocab_find(&model->vocab, text, bytes);
        if (model->byte_ids[i] >= model->vocab.model_count) {
            model->byte_ids[i] = TOKEN_NONE;
        }
        all &= model->byte_ids[i] != TOKEN_NONE;
    }
    int rc = check_model(model, all, source);
    if (rc != 0) {
        return rc;
    }
    /* Without an unknown token, unknown text is dropped, which may join its neighbours. */
    bool lone = model->unk != TOKEN_NONE && !model->fuse_unk;
    bool falls = model->byte_fallback || model->byte_level;
    model->cuts = model->prefix == NULL && model->suffix == NULL && !model->ignore_merges &&
                  ((falls && all) || (lone && !model->byte_fallback));
    for (size_t i = 0; i <= model->mask; i++) {
        if (model->merges[i].left != TOKEN_NONE) {
            note_join(model, &model->merges[i]);
        }
    }
    return 0;
}

/* ---- the key "model" ---- */

static bool is_key(const struct core_json_token *token, const char *key)
{
    return core_json_token_equals(token, key, strlen(key));
}

static int refuse(const struct core_json_scan *scan, const char *key, const char *what)
{
    return core_err_set(-EINVAL, "%s: model.%s: %s", scan->source, key, what);
}

/* Returns text in the source or, if decoded, in *copy, which the caller frees. NULL: no memory. */
static const char *string_of(const struct core_json_token *token, char **copy, size_t *room,
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
        return refuse(scan, "vocab", "must be an object of tokens and ids, as in BPE models");
    }
    while (rc == 0 && (rc = core_json_scan_next(scan, &key)) == 0 &&
           key.kind == CORE_JSON_TOKEN_KEY) {
        size_t bytes;
        rc = core_json_scan_next(scan, &id);
        if (rc != 0) {
            break;
        }
        const char *text = string_of(&key, &copy, &room, &bytes);
        if (text == NULL) {
            rc = core_err_set(-ENOMEM, "%s: no memory for a token", scan->source);
            break;
        }
        int64_t value = id.kind == CORE_JSON_TOKEN_INTEGER ? core_json_token_integer(&id) : -1;
        if (value < 0 || value > UINT32_MAX) {
            rc = core_err_set(-EINVAL, "%s: model.vocab: the id of \"%.*s\" must be 0 or more",
                              scan->source, (int)(bytes > 60 ? 60 : bytes), text);
            break;
        }
        rc = token_vocab_add(&model->vocab, text, bytes, (uint32_t)value);
        if (rc != 0) {
            rc = core_err_prefix(rc, "%s: model.vocab", scan->source);
        }
    }
    core_charge_free(copy);
    model->vocab.model_count = model->vocab.count;
    return rc; /* gaps between ids are allowed: added tokens may fill them */
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
            drop_empty(&model->prefix); /* GPT-2 and Qwen write "" for none */
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
    /* Merges refer to tokens, so the vocabulary is read first. */
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
    return rc == 0 ? load_merges(model, &merges) : rc;
}

void token_model_free(struct token_model *model)
{
    if (model != NULL) {
        vocab_free(&model->vocab);
        core_charge_free(model->merges);
        core_charge_free(model->prefix);
        core_charge_free(model->suffix);
        core_charge_free(model->unk_token);
        core_charge_free(model);
    }
}
