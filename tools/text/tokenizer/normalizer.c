/* normalizer.c: loads the normalizers and runs them. Steps alternate between two texts of the
 * scratch; the result is in text[0]. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "tools/text/tokenizer/steps.h"

static bool load_form(struct token_section *section, const char *type, struct token_norm *norm,
                      int *rc)
{
    static const char *const names[] = {"NFC", "NFD", "NFKC", "NFKD"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(type, names[i]) == 0) {
            char what[256];
            snprintf(what, sizeof what, "%.200s: normalizer %s", section->tokenizer->source, type);
            norm->kind = TOKEN_NORM_FORM;
            *rc = token_form_create((enum token_form_kind)i, what, &norm->form);
            return true;
        }
    }
    return false;
}

static int load_lower(struct token_section *section, struct token_norm *norm)
{
    uint32_t out[2];
    norm->kind = TOKEN_NORM_LOWER;
    return token_form_lower('A', out) >= 0
               ? 0
               : core_err_set(-ENOTSUP,
                              "%s: normalizer Lowercase needs utf8proc, and this tide was built "
                              "without it",
                              section->tokenizer->source);
}

static int load_member(struct token_section *section, const struct core_json_value *value,
                       const char *type)
{
    struct text_tokenizer *tokenizer = section->tokenizer;
    if (tokenizer->norms == TOKEN_STEPS_MAX) {
        return token_section_refuse(section, "has too many steps at", type);
    }
    struct token_norm *norm = &tokenizer->norm[tokenizer->norms++];
    int rc = 0;
    if (load_form(section, type, norm, &rc)) {
        return rc;
    }
    if (strcmp(type, "Lowercase") == 0) {
        return load_lower(section, norm);
    }
    if (strcmp(type, "Prepend") == 0) {
        norm->kind = TOKEN_NORM_PREPEND;
        return token_section_string(section, value, "prepend", &norm->content,
                                    &norm->content_bytes);
    }
    if (strcmp(type, "Strip") == 0) {
        norm->kind = TOKEN_NORM_STRIP;
        rc = token_section_bool(section, value, "strip_left", true, &norm->left);
        return rc == 0 ? token_section_bool(section, value, "strip_right", true, &norm->right) : rc;
    }
    if (strcmp(type, "Replace") == 0) {
        norm->kind = TOKEN_NORM_REPLACE;
        rc = token_section_string(section, value, "content", &norm->content, &norm->content_bytes);
        return rc == 0 ? token_section_search(section, value, &norm->search) : rc;
    }
    return token_section_refuse(section, "has a type that tide does not read:", type);
}

int token_normalizer_load(struct text_tokenizer *tokenizer, const struct core_json *doc)
{
    struct token_section section = {.tokenizer = tokenizer, .doc = doc, .key = "normalizer"};
    return token_section_walk(&section, core_json_root(doc), "normalizers", load_member);
}

static struct text_span covered(const struct token_text *from, size_t begin, size_t end)
{
    struct text_span span = token_text_span(from, begin);
    span.end = token_text_span(from, end > begin ? end - 1 : begin).end;
    return span;
}

/* As in `tokenizers`, a character made of nothing is aligned with the character before it. */
static int put_form(const struct token_text *from, size_t at, const struct token_form_char *chars,
                    size_t count, struct token_text *to)
{
    unsigned length = 0;
    size_t begin = at;
    int rc = 0;
    if (at > 0) {
        token_point_before(from->at, from->at + at, &length);
        begin = at - length;
    }
    for (size_t i = 0; i < count && rc == 0; i++) {
        char text[4];
        begin = chars[i].taken > 0 ? at : begin;
        for (uint32_t k = 0; k < chars[i].taken; k++) {
            token_point(from->at + at, &length);
            at += length;
        }
        rc = token_text_put(to, text, token_point_write(chars[i].point, text),
                            covered(from, begin, at));
    }
    return rc;
}

static int run_form(const struct token_norm *norm, const struct token_text *from,
                    struct token_text *to)
{
    int rc = 0;
    for (size_t at = 0; at < from->bytes && rc == 0;) {
        size_t plain = token_form_pass(norm->form, from->at + at, from->bytes - at);
        rc = token_text_copy(to, from, at, at + plain);
        at += plain;
        if (rc != 0 || at == from->bytes) {
            break;
        }
        struct token_form_char *chars = NULL;
        size_t count = 0;
        size_t reach = token_form_reach(norm->form, from->at + at, from->bytes - at);
        rc = token_form_apply(norm->form, from->at + at, reach, &chars, &count);
        if (rc != 0) {
            break;
        }
        rc = put_form(from, at, chars, count, to);
        core_charge_free(chars);
        at += reach;
    }
    return rc;
}

static int run_lower(const struct token_text *from, struct token_text *to)
{
    unsigned length;
    int rc = 0;
    for (size_t at = 0; at < from->bytes && rc == 0; at += length) {
        uint32_t lower[2];
        char text[4];
        int count = token_form_lower(token_point(from->at + at, &length), lower);
        for (int i = 0; i < count && rc == 0; i++) {
            rc = token_text_put(to, text, token_point_write(lower[i], text),
                                covered(from, at, at + length));
        }
    }
    return rc;
}

static int run_replace(const struct token_norm *norm, struct text_scratch *scratch,
                       const struct token_text *from, struct token_text *to)
{
    size_t bounds[2];
    size_t done = 0;
    size_t ended = SIZE_MAX;
    int found = 0;
    for (size_t at = 0; at <= from->bytes;) {
        found = token_search_find(&norm->search, scratch->pcre, from->at, from->bytes, at, bounds);
        if (found <= 0) {
            break;
        }
        /* An empty match directly after another match does not count. */
        if (bounds[0] != bounds[1] || bounds[1] != ended) {
            int rc = token_text_copy(to, from, done, bounds[0]);
            if (rc != 0 || (rc = token_text_put(to, norm->content, norm->content_bytes,
                                                covered(from, bounds[0], bounds[1]))) != 0) {
                return rc;
            }
            ended = done = bounds[1];
        }
        at = bounds[1];
        if (bounds[1] == bounds[0]) { /* empty: continue after the next character */
            unsigned length = 1;
            if (at < from->bytes) {
                token_point(from->at + at, &length);
            }
            at += length;
        }
    }
    return found < 0 ? found : token_text_copy(to, from, done, from->bytes);
}

static int run_strip(const struct token_norm *norm, const struct token_unicode *unicode,
                     const struct token_text *from, struct token_text *to)
{
    size_t begin = 0;
    size_t end = from->bytes;
    unsigned length;
    while (norm->left && begin < end &&
           (token_flags_of(unicode, token_point(from->at + begin, &length)) & TOKEN_FLAG_BLANK) !=
               0) {
        begin += length;
    }
    while (norm->right && end > begin &&
           (token_flags_of(unicode, token_point_before(from->at, from->at + end, &length)) &
            TOKEN_FLAG_BLANK) != 0) {
        end -= length;
    }
    return token_text_copy(to, from, begin, end);
}

static int run(struct text_scratch *scratch, const struct token_norm *norm,
               const struct token_text *from, struct token_text *to)
{
    switch (norm->kind) {
    case TOKEN_NORM_FORM: return run_form(norm, from, to);
    case TOKEN_NORM_LOWER: return run_lower(from, to);
    case TOKEN_NORM_REPLACE: return run_replace(norm, scratch, from, to);
    case TOKEN_NORM_STRIP: return run_strip(norm, scratch->tokenizer->unicode, from, to);
    case TOKEN_NORM_PREPEND: break;
    }
    int rc = 0;
    if (from->bytes > 0) {
        uint32_t begin = token_text_span(from, 0).begin;
        rc = token_text_put(to, norm->content, norm->content_bytes,
                            (struct text_span){begin, begin});
    }
    return rc == 0 ? token_text_copy(to, from, 0, from->bytes) : rc;
}

static int put_original(struct token_text *text, const char *at, size_t bytes, uint32_t offset)
{
    text->bytes = 0;
    int rc = token_text_reserve(text, bytes + 1);
    if (rc != 0) {
        return rc;
    }
    memcpy(text->at, at, bytes);
    text->bytes = bytes;
    for (size_t i = 0; i < bytes && text->tracks; i++) {
        uint32_t begin = offset + (uint32_t)i;
        text->spans[i] = (struct text_span){begin, begin + 1};
    }
    return 0;
}

int token_normalizer_run(struct text_scratch *scratch, const char *text, size_t bytes,
                         uint32_t offset)
{
    const struct text_tokenizer *tokenizer = scratch->tokenizer;
    int rc = put_original(&scratch->text[0], text, bytes, offset);
    for (size_t i = 0; i < tokenizer->norms && rc == 0; i++) {
        scratch->text[1].bytes = 0;
        rc = token_text_reserve(&scratch->text[1], scratch->text[0].bytes + 1);
        if (rc == 0) {
            rc = run(scratch, &tokenizer->norm[i], &scratch->text[0], &scratch->text[1]);
        }
        struct token_text swap = scratch->text[0];
        scratch->text[0] = scratch->text[1];
        scratch->text[1] = swap;
    }
    return rc;
}
