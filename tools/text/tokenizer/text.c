/* text.c: growing arrays, and texts that steps change. */
#include "tools/text/tokenizer/text.h"

#include <errno.h>
#include <string.h>

#include "core/base/charge.h"
#include "core/base/err.h"

int token_grow(void **array, size_t *room, size_t count, size_t more, size_t size)
{
    if (count + more <= *room) {
        return 0;
    }
    size_t want = count + more + *room / 2 + 64;
    void *grown = want <= SIZE_MAX / 2 / size ? core_charge_grow(*array, want * size) : NULL;
    if (grown == NULL) {
        return core_err_set(-ENOMEM, "no memory for %zu entries of %zu bytes while tokenizing",
                            want, size);
    }
    *array = grown;
    *room = want;
    return 0;
}

int token_text_reserve(struct token_text *text, size_t more)
{
    size_t room = text->room;
    if (text->bytes + more > INT32_MAX) {
        return core_err_set(-E2BIG, "a text grows beyond 2 GiB while it is normalised");
    }
    if (text->bytes + more <= room && (!text->tracks || text->spans != NULL)) {
        return 0;
    }
    void *at = text->at;
    int rc = token_grow(&at, &room, text->bytes, more, 1);
    text->at = at;
    if (rc == 0 && text->tracks) {
        struct text_span *spans = core_charge_grow(text->spans, room * sizeof *spans);
        if (spans == NULL) {
            return core_err_set(-ENOMEM, "no memory for the spans of %zu bytes", room);
        }
        text->spans = spans;
    } else if (rc == 0) {
        core_charge_free(text->spans);
        text->spans = NULL;
    }
    text->room = rc == 0 ? room : text->room;
    return rc;
}

int token_text_put(struct token_text *text, const char *at, size_t bytes, struct text_span span)
{
    int rc = token_text_reserve(text, bytes);
    if (rc != 0 || bytes == 0) {
        return rc;
    }
    memcpy(text->at + text->bytes, at, bytes);
    for (size_t i = 0; i < bytes && text->tracks; i++) {
        text->spans[text->bytes + i] = span;
    }
    text->bytes += bytes;
    return 0;
}

int token_text_copy(struct token_text *text, const struct token_text *from, size_t begin,
                    size_t end)
{
    int rc = token_text_reserve(text, end - begin);
    if (rc != 0 || begin == end) {
        return rc;
    }
    memcpy(text->at + text->bytes, from->at + begin, end - begin);
    if (text->tracks) {
        memcpy(text->spans + text->bytes, from->spans + begin, (end - begin) * sizeof *from->spans);
    }
    text->bytes += end - begin;
    return 0;
}

struct text_span token_text_span(const struct token_text *text, size_t at)
{
    if (!text->tracks || text->bytes == 0) {
        return (struct text_span){0, 0};
    }
    return text->spans[at < text->bytes ? at : text->bytes - 1];
}

void token_text_free(struct token_text *text)
{
    core_charge_free(text->at);
    core_charge_free(text->spans);
}

int token_pieces_put(struct token_pieces *pieces, size_t begin, size_t end)
{
    if (pieces->count == pieces->room) {
        void *at = pieces->at;
        int rc = token_grow(&at, &pieces->room, pieces->count, 1, sizeof *pieces->at);
        pieces->at = at;
        if (rc != 0) {
            return rc;
        }
    }
    pieces->at[pieces->count++] = (struct text_span){.begin = (uint32_t)begin,
                                                     .end = (uint32_t)end};
    return 0;
}
