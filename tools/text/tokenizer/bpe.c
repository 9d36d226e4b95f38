/* bpe.c: turns a piece of text into ids: from the cache, by scans for the best merge, or with a
 * heap for a long piece. On the thread of the scratch. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "tools/text/tokenizer/steps.h"

enum { SHORT_SYMBOLS = 48 };

int token_emit(struct text_scratch *scratch, uint32_t id, struct text_span span)
{
    if (scratch->count == scratch->room) {
        size_t room = scratch->room;
        size_t same = room;
        void *ids = scratch->ids;
        void *spans = scratch->spans;
        int rc = token_grow(&ids, &room, scratch->count, 1, sizeof *scratch->ids);
        scratch->ids = ids;
        if (rc != 0) {
            return rc;
        }
        rc = token_grow(&spans, &same, scratch->count, 1, sizeof *scratch->spans);
        scratch->spans = spans;
        if (rc != 0) {
            return rc;
        }
        scratch->room = room;
    }
    scratch->ids[scratch->count] = id;
    scratch->spans[scratch->count++] = span;
    return 0;
}

static int emit(struct text_scratch *scratch, const struct token_text *text, uint32_t id,
                size_t begin, size_t end)
{
    struct text_span span = {0, 0};
    if (scratch->tracks) {
        span.begin = token_text_span(text, begin).begin;
        span.end = token_text_span(text, end - (end > begin)).end;
    }
    return token_emit(scratch, id, span);
}

static int add_symbol(struct text_scratch *scratch, size_t *count, uint32_t id, size_t bytes)
{
    if (*count == scratch->symbols_room) {
        void *symbols = scratch->symbols;
        int rc = token_grow(&symbols, &scratch->symbols_room, *count, 1,
                            sizeof(struct token_symbol));
        scratch->symbols = symbols;
        if (rc != 0) {
            return rc;
        }
    }
    scratch->symbols[(*count)++] = (struct token_symbol){.id = id, .bytes = (uint32_t)bytes};
    return 0;
}

/* A character with the prefix and suffix that its place in the word asks for. */
struct form {
    const char *text; /* in the word, or `room` */
    size_t bytes, prefix_bytes;
    char room[256];
};

/* Too long a text becomes empty, which is no token. */
static void take_form(const struct token_model *model, const char *at, unsigned bytes, bool first,
                      bool last, struct form *out)
{
    const char *prefix = !first && model->prefix != NULL ? model->prefix : "";
    const char *suffix = last && model->suffix != NULL ? model->suffix : "";
    out->text = at;
    out->bytes = bytes;
    out->prefix_bytes = strlen(prefix);
    if (*prefix != '\0' || *suffix != '\0') {
        const int length = snprintf(out->room, sizeof out->room, "%s%.*s%s", prefix, (int)bytes, at,
                                    suffix);
        out->text = out->room;
        out->bytes = length < (int)sizeof out->room ? (size_t)length : 0;
    }
}

static uint32_t form_id(const struct token_model *model, const struct form *form)
{
    const uint32_t id = token_vocab_find(&model->vocab, form->text, form->bytes);
    return id < model->vocab.model_count ? id : TOKEN_NONE;
}

static bool falls_back(const struct token_model *model, const struct form *form)
{
    bool all = model->byte_fallback && form->bytes > 0;
    for (size_t i = 0; i < form->bytes && all; i++) {
        all = model->byte_ids[(unsigned char)form->text[i]] != TOKEN_NONE;
    }
    return all;
}

/* The bytes of prefix and suffix become tokens, too, but cover no bytes of the text. */
static int add_bytes(struct text_scratch *scratch, size_t *count, const struct form *form,
                     unsigned bytes)
{
    const struct token_model *model = scratch->tokenizer->model;
    int rc = 0;
    for (size_t i = 0; i < form->bytes && rc == 0; i++) {
        const bool own = i >= form->prefix_bytes && i < form->prefix_bytes + bytes;
        rc = add_symbol(scratch, count, model->byte_ids[(unsigned char)form->text[i]], own);
    }
    return rc;
}

/* If there is no token, counts the bytes in *unknown: the unknown token is added before the next
 * token or, if unknown tokens are fused, before the next known token. */
static int add_or_count(struct text_scratch *scratch, size_t *count, uint32_t id, size_t bytes,
                        size_t *unknown)
{
    const struct token_model *model = scratch->tokenizer->model;
    if (*unknown > 0 && (id != TOKEN_NONE || !model->fuse_unk)) {
        const int rc = add_symbol(scratch, count, model->unk, *unknown);
        if (rc != 0) {
            return rc;
        }
        *unknown = 0;
    }
    if (id != TOKEN_NONE) {
        return add_symbol(scratch, count, id, bytes);
    }
    *unknown += model->unk != TOKEN_NONE ? bytes : 0;
    return 0;
}

/* A character without a token becomes bytes or unknown. */
static int start_chars(struct text_scratch *scratch, const char *text, size_t bytes, size_t *count)
{
    const struct token_model *model = scratch->tokenizer->model;
    unsigned length;
    size_t unknown = 0; /* bytes of an unknown token that is not yet added */
    int rc;
    for (size_t at = 0; at < bytes; at += length) {
        struct form form;
        token_point(text + at, &length);
        take_form(model, text + at, length, at == 0, at + length == bytes, &form);
        const uint32_t id = form_id(model, &form);
        rc = id == TOKEN_NONE && falls_back(model, &form)
                 ? add_bytes(scratch, count, &form, length)
                 : add_or_count(scratch, count, id, length, &unknown);
        if (rc != 0) {
            return rc;
        }
    }
    return unknown > 0 ? add_symbol(scratch, count, model->unk, unknown) : 0;
}

static int start_bytes(struct text_scratch *scratch, const char *text, size_t bytes, size_t *count)
{
    const struct token_model *model = scratch->tokenizer->model;
    size_t unknown = 0;
    for (size_t at = 0; at < bytes; at++) {
        const uint32_t id = model->byte_ids[(unsigned char)text[at]];
        const int rc = add_or_count(scratch, count, id, 1, &unknown);
        if (rc != 0) {
            return rc;
        }
    }
    return unknown > 0 ? add_symbol(scratch, count, model->unk, unknown) : 0;
}

static void look_up(const struct token_model *model, struct token_symbol *left,
                    const struct token_symbol *right)
{
    const struct token_merge *merge = right == NULL ? NULL
                                                    : token_model_merge(model, left->id, right->id);
    left->rank = merge == NULL ? TOKEN_NONE : merge->rank;
    left->merged = merge == NULL ? 0 : merge->id;
}

/* Returns the number of symbols left. */
static size_t merge_short(const struct token_model *model, struct token_symbol *symbols,
                          size_t count)
{
    for (size_t i = 0; i < count; i++) {
        look_up(model, &symbols[i], i + 1 < count ? &symbols[i + 1] : NULL);
    }
    while (count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++) {
            best = symbols[i].rank < symbols[best].rank ? i : best;
        }
        if (symbols[best].rank == TOKEN_NONE) {
            break;
        }
        symbols[best].id = symbols[best].merged;
        symbols[best].bytes += symbols[best + 1].bytes;
        count--;
        memmove(&symbols[best + 1], &symbols[best + 2], (count - best - 1) * sizeof *symbols);
        look_up(model, &symbols[best], best + 1 < count ? &symbols[best + 1] : NULL);
        if (best > 0) {
            look_up(model, &symbols[best - 1], &symbols[best]);
        }
    }
    return count;
}

static int heap_push(struct text_scratch *scratch, uint32_t rank, size_t place)
{
    if (rank == TOKEN_NONE) {
        return 0;
    }
    if (scratch->heap_count == scratch->heap_room) {
        void *heap = scratch->heap;
        int rc = token_grow(&heap, &scratch->heap_room, scratch->heap_count, 1, sizeof(uint64_t));
        scratch->heap = heap;
        if (rc != 0) {
            return rc;
        }
    }
    uint64_t key = (uint64_t)rank << 32 | place;
    size_t i = scratch->heap_count++;
    while (i > 0 && scratch->heap[(i - 1) / 4] > key) {
        scratch->heap[i] = scratch->heap[(i - 1) / 4];
        i = (i - 1) / 4;
    }
    scratch->heap[i] = key;
    return 0;
}

static uint64_t heap_pop(struct text_scratch *scratch)
{
    uint64_t *heap = scratch->heap;
    uint64_t top = heap[0];
    uint64_t last = heap[--scratch->heap_count];
    size_t count = scratch->heap_count;
    size_t i = 0;
    for (size_t child; (child = 4 * i + 1) < count; i = child) {
        size_t end = child + 4 < count ? child + 4 : count;
        for (size_t k = child + 1; k < end; k++) {
            child = heap[k] < heap[child] ? k : child;
        }
        if (heap[child] >= last) {
            break;
        }
        heap[i] = heap[child];
    }
    heap[i] = last;
    return top;
}

/* The right neighbour leaves the list. */
static int merge_at(struct text_scratch *scratch, uint32_t place)
{
    const struct token_model *model = scratch->tokenizer->model;
    struct token_symbol *symbols = scratch->symbols;
    struct token_symbol *left = &symbols[place];
    struct token_symbol *right = &symbols[left->next];
    left->id = left->merged;
    left->bytes += right->bytes;
    right->bytes = 0;
    right->rank = TOKEN_NONE;
    left->next = right->next;
    if (left->next != TOKEN_NONE) {
        symbols[left->next].previous = place;
    }
    look_up(model, left, left->next == TOKEN_NONE ? NULL : &symbols[left->next]);
    int rc = heap_push(scratch, left->rank, place);
    if (rc == 0 && left->previous != TOKEN_NONE) {
        look_up(model, &symbols[left->previous], left);
        rc = heap_push(scratch, symbols[left->previous].rank, left->previous);
    }
    return rc;
}

static int merge_long(struct text_scratch *scratch, size_t *count)
{
    const struct token_model *model = scratch->tokenizer->model;
    struct token_symbol *symbols = scratch->symbols;
    int rc = 0;
    scratch->heap_count = 0;
    for (size_t i = 0; i < *count && rc == 0; i++) {
        bool last = i + 1 == *count;
        symbols[i].previous = i == 0 ? TOKEN_NONE : (uint32_t)(i - 1);
        symbols[i].next = last ? TOKEN_NONE : (uint32_t)(i + 1);
        look_up(model, &symbols[i], last ? NULL : &symbols[i + 1]);
        rc = heap_push(scratch, symbols[i].rank, i);
    }
    while (rc == 0 && scratch->heap_count > 0) {
        uint64_t key = heap_pop(scratch);
        uint32_t place = (uint32_t)key;
        if (symbols[place].rank == (uint32_t)(key >> 32)) { /* else outdated */
            rc = merge_at(scratch, place);
        }
    }
    size_t kept = 0;
    for (uint32_t i = 0; rc == 0 && *count > 0 && i != TOKEN_NONE;) {
        uint32_t next = symbols[i].next;
        symbols[kept++] = symbols[i];
        i = next;
    }
    *count = kept;
    return rc;
}

static int find_whole_word(const struct token_model *model, const char *text, size_t bytes,
                           uint32_t *id)
{
    char letters[512];
    char *room = NULL;
    const char *word = text;
    size_t length = bytes;
    if (model->byte_level) {
        if (bytes > sizeof letters / 2 && (room = core_charge_alloc(bytes * 2)) == NULL) {
            return core_err_set(-ENOMEM, "no memory for a word of %zu bytes", bytes);
        }
        char *to = room != NULL ? room : letters;
        length = 0;
        for (size_t i = 0; i < bytes; i++) {
            length += token_point_write(token_byte_letter((unsigned char)text[i]), to + length);
        }
        word = to;
    }
    const uint32_t found = token_vocab_find(&model->vocab, word, length);
    *id = found < model->vocab.model_count ? found : TOKEN_NONE;
    core_charge_free(room);
    return 0;
}

/* The result is in scratch->symbols. */
static int merge_word(struct text_scratch *scratch, const char *text, size_t bytes, size_t *count)
{
    const struct token_model *model = scratch->tokenizer->model;
    *count = 0;
    uint32_t id = TOKEN_NONE;
    int rc = model->ignore_merges ? find_whole_word(model, text, bytes, &id) : 0;
    if (rc != 0 || id != TOKEN_NONE) {
        return rc != 0 ? rc : add_symbol(scratch, count, id, bytes);
    }
    rc = model->byte_level ? start_bytes(scratch, text, bytes, count)
                           : start_chars(scratch, text, bytes, count);
    if (rc == 0 && *count > SHORT_SYMBOLS) {
        return merge_long(scratch, count);
    }
    if (rc == 0) {
        *count = merge_short(model, scratch->symbols, *count);
    }
    return rc;
}

static int encode_word(struct text_scratch *scratch, const struct token_text *text, size_t begin,
                       size_t end)
{
    size_t count;
    int rc = merge_word(scratch, text->at + begin, end - begin, &count);
    for (size_t i = 0; i < count && rc == 0; i++) {
        size_t stop = begin + scratch->symbols[i].bytes;
        rc = emit(scratch, text, scratch->symbols[i].id, begin, stop);
        begin = stop;
    }
    return rc;
}

static uint32_t word_hash(const char *text, size_t bytes)
{
    uint64_t a = 0;
    uint64_t b = 0;
    uint64_t sum = bytes * UINT64_C(0x9E3779B97F4A7C15);
    for (; bytes > 16; text += 8, bytes -= 8) {
        memcpy(&a, text, 8);
        sum = (sum ^ a) * UINT64_C(0xD6E8FEB86659FD93);
        sum ^= sum >> 32;
    }
    if (bytes >= 8) {
        memcpy(&a, text, 8);
        memcpy(&b, text + bytes - 8, 8);
    } else if (bytes >= 4) {
        uint32_t low;
        uint32_t high;
        memcpy(&low, text, 4);
        memcpy(&high, text + bytes - 4, 4);
        a = low;
        b = high;
    } else {
        a = (unsigned char)text[0];
        b = (uint64_t)(unsigned char)text[bytes / 2] << 8 | (unsigned char)text[bytes - 1];
    }
    sum = (sum ^ a) * UINT64_C(0xD6E8FEB86659FD93);
    sum = (sum ^ sum >> 32 ^ b) * UINT64_C(0xA0761D6478BD642F);
    return (uint32_t)(sum >> 32);
}

static int emit_known(struct text_scratch *scratch, const struct token_text *text,
                      const struct token_word *word, size_t begin)
{
    int rc = 0;
    for (unsigned i = 0; i < word->count && rc == 0; i++) {
        rc = emit(scratch, text, word->ids[i], begin, begin + word->lengths[i]);
        begin += word->lengths[i];
    }
    return rc;
}

/* Encodes a word of at most TOKEN_WORD_BYTES. */
static int encode_cached(struct text_scratch *scratch, const struct token_text *text, size_t begin,
                         size_t end)
{
    size_t bytes = end - begin;
    uint32_t hash = word_hash(text->at + begin, bytes);
    struct token_word *word = &scratch->words[hash & (TOKEN_WORDS - 1)];
    if (word->hash == hash && word->bytes == bytes &&
        memcmp(word->text, text->at + begin, bytes) == 0) {
        return emit_known(scratch, text, word, begin);
    }
    size_t count;
    int rc = merge_word(scratch, text->at + begin, bytes, &count);
    if (rc != 0 || count > TOKEN_WORD_IDS) {
        return rc != 0 ? rc : encode_word(scratch, text, begin, end);
    }
    word->hash = hash;
    word->bytes = (uint8_t)bytes;
    word->count = (uint8_t)count;
    memcpy(word->text, text->at + begin, bytes);
    for (size_t i = 0; i < count; i++) {
        word->ids[i] = scratch->symbols[i].id;
        word->lengths[i] = (uint8_t)scratch->symbols[i].bytes;
    }
    return emit_known(scratch, text, word, begin);
}

/* Returns the first place after `begin` that no merge crosses, or `end`. */
static size_t find_cut(const struct token_model *model, const char *text, size_t begin, size_t end)
{
    unsigned length = 1;
    uint32_t left = model->byte_level ? (unsigned char)text[begin]
                                      : token_point(text + begin, &length);
    for (size_t at = begin + length; at < end; at += length) {
        uint32_t right = model->byte_level ? (unsigned char)text[at]
                                           : token_point(text + at, &length);
        if (!token_model_joins(model, left, right)) {
            return at;
        }
        left = right;
    }
    return end;
}

int token_bpe_run(struct text_scratch *scratch, const struct token_text *text, size_t begin,
                  size_t end)
{
    const struct token_model *model = scratch->tokenizer->model;
    if (begin == end) {
        return 0;
    }
    if (end - begin <= TOKEN_WORD_BYTES) {
        return encode_cached(scratch, text, begin, end);
    }
    int rc = 0;
    while (begin < end && rc == 0) {
        size_t stop = model->cuts ? find_cut(model, text->at, begin, end) : end;
        rc = stop - begin <= TOKEN_WORD_BYTES ? encode_cached(scratch, text, begin, stop)
                                              : encode_word(scratch, text, begin, stop);
        begin = stop;
    }
    return rc;
}
