/* decoder.c: loads the decoders and runs them. A step reads a list of tokens from one text of the
 * scratch and writes a list to another. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/utf8.h"
#include "tools/text/tokenizer/steps.h"
#include "tools/text/tokenizer/tokenizer.h"

static const char unreadable[] = "\xEF\xBF\xBD"; /* U+FFFD */

static int load_count(struct token_section *section, const struct core_json_value *value,
                      const char *key, size_t *out)
{
    int64_t count = 0;
    int rc = core_json_get_integer(section->doc, value, key, &count);
    if (rc == 0 && count < 0) {
        return token_section_refuse(section, "has a negative", key);
    }
    *out = rc == 0 ? (size_t)count : 0;
    return rc;
}

static int load_metaspace(struct token_section *section, const struct core_json_value *value,
                          struct token_decode *decode)
{
    const char *scheme = "always";
    bool prefix;
    decode->kind = TOKEN_DECODE_META;
    int rc = token_section_string(section, value, "replacement", &decode->content,
                                  &decode->content_bytes);
    if (rc != 0 ||
        (rc = token_section_bool(section, value, "add_prefix_space", true, &prefix)) != 0) {
        return rc;
    }
    if (core_json_find(value, "prepend_scheme") != NULL) {
        rc = core_json_get_string(section->doc, value, "prepend_scheme", &scheme);
        if (rc != 0) {
            return rc;
        }
        prefix = strcmp(scheme, "never") != 0;
    }
    decode->strips_first = prefix;
    return 0;
}

static int load_member(struct token_section *section, const struct core_json_value *value,
                       const char *type)
{
    struct text_tokenizer *tokenizer = section->tokenizer;
    if (tokenizer->decodes == TOKEN_STEPS_MAX) {
        return token_section_refuse(section, "has too many steps at", type);
    }
    struct token_decode *decode = &tokenizer->decode[tokenizer->decodes++];
    static const struct {
        const char *type;
        enum token_decoder_kind kind;
    } plain[] = {{"ByteLevel", TOKEN_DECODE_BYTES},
                 {"ByteFallback", TOKEN_DECODE_FALLBACK},
                 {"Fuse", TOKEN_DECODE_FUSE}};
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        if (strcmp(type, plain[i].type) == 0) {
            decode->kind = plain[i].kind;
            return 0;
        }
    }
    if (strcmp(type, "Metaspace") == 0) {
        return load_metaspace(section, value, decode);
    }
    bool replaces = strcmp(type, "Replace") == 0;
    if (!replaces && strcmp(type, "Strip") != 0) {
        return token_section_refuse(section, "has a type that tide does not read:", type);
    }
    decode->kind = replaces ? TOKEN_DECODE_REPLACE : TOKEN_DECODE_STRIP;
    int rc = token_section_string(section, value, "content", &decode->content,
                                  &decode->content_bytes);
    if (rc != 0) {
        return rc;
    }
    if (replaces) {
        return token_section_search(section, value, &decode->search);
    }
    rc = load_count(section, value, "start", &decode->start);
    return rc == 0 ? load_count(section, value, "stop", &decode->stop) : rc;
}

int token_decoder_load(struct text_tokenizer *tokenizer, const struct core_json *doc)
{
    struct token_section section = {.tokenizer = tokenizer, .doc = doc, .key = "decoder"};
    tokenizer->decodes_bare = core_json_kind(core_json_root(doc)) == CORE_JSON_NULL;
    return token_section_walk(&section, core_json_root(doc), "decoders", load_member);
}

static int append_text(struct token_text *to, const char *at, size_t bytes)
{
    return token_text_put(to, at, bytes, (struct text_span){0, 0});
}

/* Incomplete and invalid sequences become U+FFFD. */
static int put_lossy(struct token_text *to, const char *at, size_t bytes)
{
    int rc = 0;
    for (size_t i = 0; i < bytes && rc == 0;) {
        size_t good = i;
        size_t length;
        while (good < bytes && (length = core_utf8_sequence(at + good, bytes - good)) > 0) {
            good += length;
        }
        rc = append_text(to, at + i, good - i);
        if (good == bytes || rc != 0) {
            break;
        }
        rc = append_text(to, unreadable, 3);
        unsigned char lead = (unsigned char)at[good];
        unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
        unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
        unsigned want = lead >= 0xC2 && lead < 0xE0   ? 1
                        : lead >= 0xE0 && lead < 0xF0 ? 2
                        : lead >= 0xF0 && lead < 0xF5 ? 3
                                                      : 0;
        i = good + 1;
        for (; want > 0 && i < bytes && (unsigned char)at[i] >= low && (unsigned char)at[i] <= high;
             want--, i++) {
            low = 0x80;
            high = 0xBF;
        }
    }
    return rc;
}

/* Appends the token unchanged if one of its letters does not encode a byte. */
static int put_bytes(struct token_text *to, const char *at, size_t bytes)
{
    size_t begin = to->bytes;
    unsigned length;
    int rc = token_text_reserve(to, bytes);
    for (size_t i = 0; i < bytes && rc == 0; i += length) {
        int byte = token_letter_byte(token_point(at + i, &length));
        if (byte < 0) {
            to->bytes = begin;
            return append_text(to, at, bytes);
        }
        to->at[to->bytes++] = (char)byte;
    }
    return rc;
}

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Returns the byte of a token <0xNN>, or -1. */
static int fallback_byte(const char *at, size_t bytes)
{
    bool form = bytes == 6 && memcmp(at, "<0x", 3) == 0 && at[5] == '>';
    if (form && at[3] == '+' && hex(at[4]) >= 0) { /* `tokenizers` accepts a plus sign here */
        return hex(at[4]);
    }
    return form && hex(at[3]) >= 0 && hex(at[4]) >= 0 ? hex(at[3]) * 16 + hex(at[4]) : -1;
}

struct list {
    struct token_text *text;
    struct token_pieces *pieces;
};

static int end_piece(struct list to, size_t begin)
{
    return token_pieces_put(to.pieces, begin, to.text->bytes);
}

/* If the collected bytes are not UTF-8, each byte becomes U+FFFD. */
static int end_fallback(struct list to, const char *gathered, size_t bytes)
{
    size_t begin = to.text->bytes;
    bool good = true;
    int rc = 0;
    for (size_t i = 0; i < bytes && good;) {
        size_t length = core_utf8_sequence(gathered + i, bytes - i);
        good = length > 0;
        i += length;
    }
    if (bytes > 0 && good) {
        rc = append_text(to.text, gathered, bytes);
        return rc == 0 ? end_piece(to, begin) : rc;
    }
    for (size_t i = 0; i < bytes; i++) {
        begin = to.text->bytes;
        if ((rc = append_text(to.text, unreadable, 3)) != 0 || (rc = end_piece(to, begin)) != 0) {
            return rc;
        }
    }
    return 0;
}

static int run_fallback(struct list from, struct list to)
{
    size_t gathered = 0;
    /* The collected bytes are shorter than the tokens that they overwrite. */
    char *room = from.text->at;
    for (size_t i = 0; i < from.pieces->count; i++) {
        struct text_span piece = from.pieces->at[i];
        int byte = fallback_byte(from.text->at + piece.begin, piece.end - piece.begin);
        if (byte >= 0) {
            room[gathered++] = (char)byte;
            continue;
        }
        int rc = end_fallback(to, room, gathered);
        if (rc != 0) {
            return rc;
        }
        gathered = 0;
        const size_t begin = to.text->bytes;
        if ((rc = token_text_copy(to.text, from.text, piece.begin, piece.end)) != 0 ||
            (rc = end_piece(to, begin)) != 0) {
            return rc;
        }
    }
    return end_fallback(to, room, gathered);
}

static size_t strip_start(const struct token_decode *decode, const char *at, size_t bytes)
{
    size_t cut = 0;
    for (size_t i = 0;
         i < decode->start && bytes - cut >= decode->content_bytes &&
         memcmp(at + cut, decode->content, decode->content_bytes) == 0 && decode->content_bytes > 0;
         i++) {
        cut += decode->content_bytes;
    }
    return cut;
}

static size_t strip_stop(const struct token_decode *decode, const char *at, size_t bytes)
{
    for (size_t i = 0;
         i < decode->stop && bytes >= decode->content_bytes && decode->content_bytes > 0 &&
         memcmp(at + bytes - decode->content_bytes, decode->content, decode->content_bytes) == 0;
         i++) {
        bytes -= decode->content_bytes;
    }
    return bytes;
}

static int put_replaced(struct text_scratch *scratch, const struct token_decode *decode,
                        const char *at, size_t bytes, struct token_text *to)
{
    size_t bounds[2];
    size_t done = 0;
    for (size_t from = 0; from <= bytes;) {
        int found = token_search_find(&decode->search, scratch->pcre, at, bytes, from, bounds);
        if (found <= 0) {
            return found < 0 ? found : append_text(to, at + done, bytes - done);
        }
        int rc = append_text(to, at + done, bounds[0] - done);
        if (rc != 0 || (rc = append_text(to, decode->content, decode->content_bytes)) != 0) {
            return rc;
        }
        done = bounds[1];
        unsigned length = 1;
        if (bounds[0] == bounds[1] && done < bytes) {
            token_point(at + done, &length);
        }
        from = bounds[0] == bounds[1] ? done + length : done;
    }
    return append_text(to, at + done, bytes - done);
}

static int put_metaspace(const struct token_decode *decode, bool first, const char *at,
                         size_t bytes, struct token_text *to)
{
    int rc = 0;
    unsigned length;
    for (size_t i = 0; i < bytes && rc == 0; i += length) {
        token_point(at + i, &length);
        bool space = length == decode->content_bytes &&
                     memcmp(at + i, decode->content, length) == 0;
        if (!space || !(first && decode->strips_first)) {
            rc = append_text(to, space ? " " : at + i, space ? 1 : length);
        }
    }
    return rc;
}

static int run_each(struct text_scratch *scratch, const struct token_decode *decode,
                    struct list from, struct list to)
{
    int rc;
    for (size_t i = 0; i < from.pieces->count; i++) {
        const char *at = from.text->at + from.pieces->at[i].begin;
        size_t bytes = from.pieces->at[i].end - from.pieces->at[i].begin;
        size_t begin = to.text->bytes;
        if (decode->kind == TOKEN_DECODE_META) {
            rc = put_metaspace(decode, i == 0, at, bytes, to.text);
        } else if (decode->kind == TOKEN_DECODE_REPLACE) {
            rc = put_replaced(scratch, decode, at, bytes, to.text);
        } else {
            size_t start = strip_start(decode, at, bytes);
            size_t stop = strip_stop(decode, at, bytes);
            rc = start < stop ? append_text(to.text, at + start, stop - start) : 0;
        }
        if (rc != 0 || (rc = end_piece(to, begin)) != 0) {
            return rc;
        }
    }
    return 0;
}

static int run_all(enum token_decoder_kind kind, struct list from, struct list to,
                   struct token_text *room)
{
    int rc = 0;
    struct token_text *out = kind == TOKEN_DECODE_BYTES ? room : to.text;
    out->bytes = 0;
    for (size_t i = 0; i < from.pieces->count && rc == 0; i++) {
        const char *at = from.text->at + from.pieces->at[i].begin;
        size_t bytes = from.pieces->at[i].end - from.pieces->at[i].begin;
        rc = kind == TOKEN_DECODE_BYTES ? put_bytes(out, at, bytes) : append_text(out, at, bytes);
    }
    if (rc == 0 && kind == TOKEN_DECODE_BYTES) {
        rc = put_lossy(to.text, out->at, out->bytes);
    }
    return rc == 0 ? end_piece(to, 0) : rc;
}

static int list_tokens(struct text_scratch *scratch, const uint32_t *ids, size_t count,
                       bool skip_special, struct list to)
{
    const struct text_tokenizer *tokenizer = scratch->tokenizer;
    for (size_t i = 0; i < count; i++) {
        size_t bytes;
        const char *token = token_vocab_text(&tokenizer->model->vocab, ids[i], &bytes);
        uint32_t added = token == NULL ? TOKEN_NONE : tokenizer->added_of[ids[i]];
        bool skip = added != TOKEN_NONE && skip_special && tokenizer->added[added].special;
        if (added != TOKEN_NONE && tokenizer->shown[added] != NULL) {
            token = tokenizer->shown[added];
            bytes = strlen(token);
        }
        size_t begin = to.text->bytes;
        if (token == NULL) {
            return core_err_set(-ERANGE, "id %u at index %zu is not a token; ids go up to %zu",
                                ids[i], i, (size_t)tokenizer->model->vocab.count - 1);
        }
        if (skip) {
            continue;
        }
        int rc = tokenizer->decodes_bare && to.pieces->count > 0 ? append_text(to.text, " ", 1) : 0;
        if (rc != 0 || (rc = append_text(to.text, token, bytes)) != 0 ||
            (rc = end_piece(to, begin)) != 0) {
            return rc;
        }
    }
    return 0;
}

int text_tokenizer_decode(struct text_scratch *scratch, const uint32_t *ids, size_t count,
                          bool skip_special, const char **text, size_t *bytes)
{
    const struct text_tokenizer *tokenizer = scratch->tokenizer;
    struct list lists[2] = {{&scratch->text[0], &scratch->pieces[0]},
                            {&scratch->text[1], &scratch->pieces[1]}};
    unsigned in = 0;
    for (unsigned i = 0; i < 3; i++) {
        scratch->text[i].tracks = false;
        scratch->text[i].bytes = 0;
        scratch->pieces[i & 1].count = 0;
    }
    int rc = list_tokens(scratch, ids, count, skip_special, lists[0]);
    for (size_t i = 0; i < tokenizer->decodes && rc == 0; i++, in ^= 1) {
        const struct token_decode *decode = &tokenizer->decode[i];
        struct list to = lists[in ^ 1];
        to.text->bytes = 0;
        to.pieces->count = 0;
        if (decode->kind == TOKEN_DECODE_FALLBACK) {
            rc = run_fallback(lists[in], to);
        } else if (decode->kind == TOKEN_DECODE_BYTES || decode->kind == TOKEN_DECODE_FUSE) {
            rc = run_all(decode->kind, lists[in], to, &scratch->text[2]);
        } else {
            rc = run_each(scratch, decode, lists[in], to);
        }
    }
    if (rc != 0 || (rc = append_text(lists[in].text, "", 1)) != 0) {
        return rc;
    }
    *text = lists[in].text->at;
    *bytes = lists[in].text->bytes - 1;
    return 0;
}
