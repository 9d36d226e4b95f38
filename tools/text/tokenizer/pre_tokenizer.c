/* pre_tokenizer.c: loads the pre-tokenizers and runs them: a step cuts the pieces of the step
 * before; the model gets the last pieces. Steps alternate between two lists of pieces and two texts
 * of the scratch. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "tools/text/tokenizer/steps.h"

/* ---- loading ---- */

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
    return rc != 0 ? rc : token_section_refuse(section, "has an unknown behavior:", name);
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
    if (rc != 0 || (rc = token_section_bool(section, value, "use_regex", true, &regex)) != 0) {
        return rc;
    }
    section->tokenizer->model->byte_level = true;
    if (prefix) {
        struct token_split *split = next_split(section);
        if (split == NULL) {
            return too_many(section);
        }
        *split = (struct token_split){.kind = TOKEN_SPLIT_SPACE,
                                      .content = " ",
                                      .content_bytes = 1,
                                      .scheme = TOKEN_SCHEME_ALWAYS};
    }
    if (!regex) {
        return 0;
    }
    struct token_split *split = next_split(section);
    if (split == NULL) {
        return too_many(section);
    }
    split->behaviour = TOKEN_ISOLATED;
    return token_search_create(section->tokenizer->unicode, gpt2, sizeof gpt2 - 1, false,
                               section->key, &split->search);
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
    return rc != 0 ? rc : token_section_refuse(section, "has an unknown prepend_scheme:", name);
}

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
        return token_section_refuse(section, "needs one character as", key);
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
    if (rc != 0 || (rc = load_scheme(section, value, &split->scheme)) != 0 ||
        (rc = token_section_bool(section, value, "split", true, &splits)) != 0 || !splits) {
        return rc;
    }
    struct token_split *cut = next_split(section);
    if (cut == NULL) {
        return too_many(section);
    }
    *cut = *split;
    cut->kind = TOKEN_SPLIT_CHAR;
    cut->behaviour = TOKEN_MERGED_NEXT;
    return 0;
}

static int load_split(struct token_section *section, const struct core_json_value *value,
                      struct token_split *split)
{
    int rc = load_behaviour(section, value, &split->behaviour);
    if (rc != 0 ||
        (rc = token_section_bool(section, value, "invert", false, &split->invert)) != 0) {
        return rc;
    }
    return token_section_search(section, value, &split->search);
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
        return token_section_refuse(section, "has a step after ByteLevel:", type);
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
    return token_section_refuse(section, "has a type that tide does not read:", type);
}

int token_pre_tokenizer_load(struct text_tokenizer *tokenizer, const struct core_json *doc)
{
    struct token_section section = {.tokenizer = tokenizer, .doc = doc, .key = "pre_tokenizer"};
    return token_section_walk(&section, core_json_root(doc), "pretokenizers", load_member);
}

/* ---- running ---- */

/* Top bit of the end of a mark: this part of the piece matched. */
static const uint32_t matched = UINT32_C(1) << 31;

static int append_mark(struct text_scratch *scratch, size_t begin, size_t end, bool match)
{
    return token_pieces_put(&scratch->marks, begin, end | (match ? matched : 0));
}

/* Also marks the part before the match, if any. */
static int mark_match(struct text_scratch *scratch, size_t *done, size_t begin, size_t end,
                      bool invert)
{
    int rc = *done < begin ? append_mark(scratch, *done, begin, invert) : 0;
    *done = end;
    return rc == 0 ? append_mark(scratch, begin, end, !invert) : rc;
}

static int mark_search(struct text_scratch *scratch, const struct token_split *split,
                       struct text_span piece, size_t *done)
{
    const struct token_text *text = scratch->now;
    size_t bytes = piece.end - piece.begin;
    size_t bounds[2];
    size_t ended = SIZE_MAX;
    int rc = 0;
    for (size_t at = 0; at <= bytes && rc == 0;) {
        int found = token_search_find(&split->search, scratch->pcre, text->at + piece.begin, bytes,
                                      at, bounds);
        if (found <= 0) {
            return found;
        }
        /* An empty match directly after another match does not count. */
        if (bounds[0] != bounds[1] || bounds[1] != ended) {
            rc = mark_match(scratch, done, piece.begin + bounds[0], piece.begin + bounds[1],
                            split->invert);
            ended = bounds[1];
        }
        at = bounds[1];
        if (bounds[0] == bounds[1]) {
            unsigned length = 1;
            if (at < bytes) {
                token_point(text->at + piece.begin + at, &length);
            }
            at += length;
        }
    }
    return rc;
}

static int mark_chars(struct text_scratch *scratch, const struct token_split *split,
                      struct text_span piece, size_t *done)
{
    const char *text = scratch->now->at;
    const struct token_unicode *unicode = scratch->tokenizer->unicode;
    unsigned length;
    int rc = 0;
    for (size_t at = piece.begin; at < piece.end && rc == 0; at += length) {
        uint32_t point = token_point(text + at, &length);
        bool match = split->kind == TOKEN_SPLIT_FLAG
                         ? (token_flags_of(unicode, point) & split->flag) != 0
                         : length == split->content_bytes &&
                               memcmp(text + at, split->content, length) == 0;
        if (match) {
            rc = mark_match(scratch, done, at, at + length, split->invert);
        }
    }
    return rc;
}

static int append_piece(struct token_pieces *out, size_t begin, size_t end)
{
    return begin == end ? 0 : token_pieces_put(out, begin, end);
}

static int gather(const struct token_pieces *marks, enum token_behaviour behaviour,
                  struct token_pieces *out)
{
    int rc = 0;
    for (size_t i = 0; i < marks->count && rc == 0;) {
        size_t begin = marks->at[i].begin;
        bool match = (marks->at[i].end & matched) != 0;
        size_t last = i;
        for (size_t next = i + 1; next < marks->count; next++) {
            bool next_match = (marks->at[next].end & matched) != 0;
            bool joins = false;
            if (behaviour == TOKEN_CONTIGUOUS) {
                joins = next_match == match;
            } else if (behaviour == TOKEN_MERGED_PREVIOUS) {
                joins = next == i + 1 && next_match && !match;
            } else if (behaviour == TOKEN_MERGED_NEXT) {
                joins = next == i + 1 && match && !next_match;
            }
            if (!joins) {
                break;
            }
            last = next;
        }
        if (behaviour != TOKEN_REMOVED || !match) {
            rc = append_piece(out, begin, marks->at[last].end & ~matched);
        }
        i = last + 1;
    }
    return rc;
}

static int cut_piece(struct text_scratch *scratch, const struct token_split *split,
                     struct text_span piece, struct token_pieces *out)
{
    size_t done = piece.begin;
    scratch->marks.count = 0;
    int rc = split->kind == TOKEN_SPLIT_SEARCH ? mark_search(scratch, split, piece, &done)
                                               : mark_chars(scratch, split, piece, &done);
    if (rc == 0 && done < piece.end) {
        rc = append_mark(scratch, done, piece.end, split->invert);
    }
    return rc == 0 ? gather(&scratch->marks, split->behaviour, out) : rc;
}

/* Handles the common case, which needs no marks. */
static int cut_isolated(struct text_scratch *scratch, const struct token_pattern *pattern,
                        struct text_span piece, struct token_pieces *out)
{
    const char *text = scratch->now->at + piece.begin;
    size_t bytes = piece.end - piece.begin;
    size_t done = 0;
    for (size_t at = 0; at < bytes;) {
        size_t end = token_pattern_match(pattern, text, bytes, at);
        if (end == SIZE_MAX) {
            unsigned length;
            token_pattern_mask(pattern, text + at, &length);
            at += length;
            continue;
        }
        int rc = append_piece(out, piece.begin + done, piece.begin + at);
        if (rc != 0 || (rc = append_piece(out, piece.begin + at, piece.begin + end)) != 0) {
            return rc;
        }
        done = end;
        at = end;
    }
    return append_piece(out, piece.begin + done, piece.end);
}

static bool begins_with(const struct token_text *text, struct text_span piece, const char *content,
                        unsigned bytes)
{
    return piece.end - piece.begin >= bytes && memcmp(text->at + piece.begin, content, bytes) == 0;
}

/* With `prefix`, the content of `split` is put first. META replaces the spaces of the piece by that
 * content. */
static int rewrite_piece(struct text_scratch *scratch, const struct token_split *split,
                         struct text_span piece, bool prefix, struct token_text *to)
{
    const struct token_text *from = scratch->now;
    size_t done = piece.begin;
    int rc = 0;
    if (prefix) {
        uint32_t begin = token_text_span(from, piece.begin).begin;
        rc = token_text_put(to, split->content, split->content_bytes,
                            (struct text_span){begin, begin});
        if (rc != 0) {
            return rc;
        }
    }
    while (split->kind == TOKEN_SPLIT_META && done < piece.end) {
        const char *space = memchr(from->at + done, ' ', piece.end - done);
        if (space == NULL) {
            break;
        }
        size_t at = (size_t)(space - from->at);
        rc = token_text_copy(to, from, done, at);
        if (rc != 0 || (rc = token_text_put(to, split->content, split->content_bytes,
                                            token_text_span(from, at))) != 0) {
            return rc;
        }
        done = at + 1;
    }
    return token_text_copy(to, from, done, piece.end);
}

/* Without spans, no step has dropped characters, so the first piece begins the original text. */
static bool is_first(const struct token_text *text, struct text_span piece, size_t index)
{
    return text->tracks ? token_text_span(text, piece.begin).begin == 0 : index == 0;
}

static int rewrite(struct text_scratch *scratch, const struct token_split *split,
                   const struct token_pieces *in, struct token_pieces *out, bool first)
{
    const struct token_text *from = scratch->now;
    struct token_text *to = from == &scratch->text[1] ? &scratch->text[2] : &scratch->text[1];
    to->bytes = 0;
    for (size_t i = 0; i < in->count; i++) {
        struct text_span piece = in->at[i];
        size_t begin = to->bytes;
        bool prefix = !begins_with(from, piece, split->content, split->content_bytes) &&
                      !(split->kind == TOKEN_SPLIT_META && begins_with(from, piece, " ", 1)) &&
                      (split->scheme == TOKEN_SCHEME_ALWAYS ||
                       (split->scheme == TOKEN_SCHEME_FIRST && first && is_first(from, piece, i)));
        int rc = rewrite_piece(scratch, split, piece, prefix, to);
        if (rc != 0 || (rc = append_piece(out, begin, to->bytes)) != 0) {
            return rc;
        }
    }
    scratch->now = to;
    return 0;
}

static int run(struct text_scratch *scratch, const struct token_split *split,
               const struct token_pieces *in, struct token_pieces *out, bool first)
{
    if (split->kind == TOKEN_SPLIT_SPACE || split->kind == TOKEN_SPLIT_META) {
        return rewrite(scratch, split, in, out, first);
    }
    bool quick = split->search.pattern != NULL && split->behaviour == TOKEN_ISOLATED;
    int rc = 0;
    for (size_t i = 0; i < in->count && rc == 0; i++) {
        rc = quick ? cut_isolated(scratch, split->search.pattern, in->at[i], out)
                   : cut_piece(scratch, split, in->at[i], out);
    }
    return rc;
}

int token_pre_tokenizer_run(struct text_scratch *scratch, size_t begin, size_t end, bool first)
{
    const struct text_tokenizer *tokenizer = scratch->tokenizer;
    struct token_pieces *pieces = scratch->pieces;
    unsigned in = 0;
    pieces[0].count = 0;
    scratch->now = &scratch->text[0];
    int rc = append_piece(&pieces[0], begin, end);
    for (size_t i = 0; i < tokenizer->splits && rc == 0; i++, in ^= 1) {
        pieces[in ^ 1].count = 0;
        rc = run(scratch, &tokenizer->split[i], &pieces[in], &pieces[in ^ 1], first);
    }
    for (size_t i = 0; i < pieces[in].count && rc == 0; i++) {
        rc = token_bpe_run(scratch, scratch->now, pieces[in].at[i].begin, pieces[in].at[i].end);
    }
    return rc;
}
