/* vocab.c: tokens by their text and texts by their id. Filled at load, then read-only. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "core/base/hash.h"
#include "tools/text/tokenizer/internal.h"

enum { VOCAB_IDS_MAX = 1 << 24 };

static uint32_t hash_of(const char *text, size_t bytes)
{
    return (uint32_t)core_hash(text, bytes, 0);
}

/* The slot of a text, or the free one where it would stand. */
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

static int reserve(struct token_vocab *vocab, size_t bytes, uint32_t id)
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
    int rc = reserve(vocab, bytes, id);
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

void token_vocab_free(struct token_vocab *vocab)
{
    core_charge_free(vocab->text);
    core_charge_free(vocab->tokens);
    core_charge_free(vocab->slots);
}

size_t text_tokenizer_size(const struct text_tokenizer *tokenizer)
{
    return tokenizer->model->vocab.count;
}

int64_t text_tokenizer_id(const struct text_tokenizer *tokenizer, const char *token, size_t bytes)
{
    uint32_t id = token_vocab_find(&tokenizer->model->vocab, token, bytes);
    return id == TOKEN_NONE ? -1 : (int64_t)id;
}

const char *text_tokenizer_token(const struct text_tokenizer *tokenizer, uint32_t id, size_t *bytes)
{
    const struct token_vocab *vocab = &tokenizer->model->vocab;
    if (id >= vocab->count) {
        return NULL;
    }
    const struct text_span span = vocab->tokens[id];
    *bytes = span.end > span.begin ? span.end - span.begin : 0;
    return *bytes > 0 ? vocab->text + span.begin : "";
}
