/* text.c: the growing arrays of a scratch, and searches in texts. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "tools/text/tokenizer/internal.h"
#include "tools/text/tokenizer/regex.h"

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

int token_search_create(const struct token_unicode *unicode, const char *regex, size_t bytes,
                        bool literal, const char *what, struct token_search *out)
{
    *out = (struct token_search){0};
    if (literal) {
        out->literal = core_charge_alloc(bytes + 1);
        if (out->literal == NULL) {
            return core_err_set(-ENOMEM, "%s: no memory for %zu bytes", what, bytes);
        }
        memcpy(out->literal, regex, bytes);
        out->literal_bytes = bytes;
        return 0;
    }
    int rc = token_pattern_create(unicode, regex, bytes, &out->pattern);
    if (rc != -ENOTSUP) {
        return rc;
    }
    char *text = NULL;
    rc = token_regex_translate(unicode, regex, bytes, what, &text, &bytes);
    rc = rc == 0 ? token_pcre_create(text, bytes, what, &out->pcre) : rc;
    core_charge_free(text);
    return rc;
}

void token_search_free(struct token_search *search)
{
    core_charge_free(search->literal);
    token_pattern_destroy(search->pattern);
    token_pcre_destroy(search->pcre);
    *search = (struct token_search){0};
}

int token_search_find(const struct token_search *search, struct token_pcre_scratch *scratch,
                      const char *text, size_t bytes, size_t from, size_t bounds[2])
{
    if (search->pcre != NULL) {
        return token_pcre_find(search->pcre, scratch, text, bytes, from, bounds);
    }
    if (search->literal != NULL) {
        const char *at = search->literal_bytes == 0
                             ? NULL
                             : memmem(text + from, bytes - from, search->literal,
                                      search->literal_bytes);
        bounds[0] = at == NULL ? 0 : (size_t)(at - text);
        bounds[1] = bounds[0] + search->literal_bytes;
        return at != NULL;
    }
    for (size_t at = from; at < bytes;) {
        size_t end = token_pattern_match(search->pattern, text, bytes, at);
        if (end != SIZE_MAX) {
            bounds[0] = at;
            bounds[1] = end;
            return 1;
        }
        unsigned length;
        token_pattern_mask(search->pattern, text + at, &length);
        at += length;
    }
    return 0;
}
