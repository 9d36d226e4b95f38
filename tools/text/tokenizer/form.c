/* form.c: the wrapper of utf8proc. Texts are normalised only where a form may change them. */
#include "tools/text/tokenizer/form.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "tools/text/tokenizer/text.h"
#include "tools/text/tokenizer/unicode.h"

struct token_form {
    utf8proc_option_t options;
    bool composes;
    uint64_t stable[0x110000 / 64]; /* bit set: begins a segment and stays unchanged */
};

/* `tokenizers` has an older Unicode and leaves these characters unchanged. Found by comparison with
 * utf8proc. */
static bool is_newer(uint32_t point)
{
    static const uint32_t ranges[][2] = {
        {0x007FD, 0x007FD}, {0x00898, 0x0089F}, {0x008CA, 0x008D3}, {0x009FE, 0x009FE},
        {0x00C3C, 0x00C3C}, {0x00D3B, 0x00D3C}, {0x00EBA, 0x00EBA}, {0x01715, 0x01715},
        {0x01ABF, 0x01ACE}, {0x01DF6, 0x01DFA}, {0x032FF, 0x032FF}, {0x0A7F2, 0x0A7F4},
        {0x0A82C, 0x0A82C}, {0x0AB69, 0x0AB69}, {0x10781, 0x10785}, {0x10787, 0x107B0},
        {0x107B2, 0x107BA}, {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF},
        {0x10F46, 0x10F50}, {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B},
        {0x1145E, 0x1145E}, {0x11839, 0x1183A}, {0x11930, 0x11930}, {0x11938, 0x11938},
        {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34},
        {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45},
        {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1}, {0x1E030, 0x1E06D},
        {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF},
        {0x1E4EC, 0x1E4EF}, {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        if (point >= ranges[i][0] && point <= ranges[i][1]) {
            return true;
        }
    }
    return false;
}

/* Returns whether the character may combine with an earlier one or be reordered. */
static bool follows(uint32_t point, bool composes)
{
    const utf8proc_property_t *property = utf8proc_get_property((utf8proc_int32_t)point);
    bool second = property->comb_index != UINT16_MAX && property->comb_index >= 0x8000;
    bool vowel = (point >= 0x1161 && point <= 0x1175) || (point >= 0x11A8 && point <= 0x11C2);
    return property->combining_class != 0 || (composes && (second || vowel));
}

/* Returns whether the plane has no assigned characters, or only private ones. */
static bool is_empty_plane(uint32_t point)
{
    const uint32_t plane = point >> 16;
    return (plane >= 4 && plane <= 13) || plane >= 15;
}

static bool is_stable(const struct token_form *form, uint32_t point)
{
    const utf8proc_property_t *property = utf8proc_get_property((utf8proc_int32_t)point);
    if (is_newer(point)) {
        return true;
    }
    if (follows(point, form->composes)) {
        return false;
    }
    bool hangul = point >= 0xAC00 && point <= 0xD7A3;
    if (property->decomp_seqindex == UINT16_MAX && !hangul) {
        return true;
    }
    char text[4];
    unsigned bytes = token_point_write(point, text);
    utf8proc_uint8_t *mapped = NULL;
    utf8proc_ssize_t count = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)bytes,
                                          &mapped, form->options);
    bool same = count == (utf8proc_ssize_t)bytes && memcmp(mapped, text, bytes) == 0;
    free(mapped);
    return same;
}

int token_form_create(enum token_form_kind kind, const char *what, struct token_form **out)
{
    struct token_form *form = core_charge_zeroed(1, sizeof *form);
    if (form == NULL) {
        return core_err_set(-ENOMEM, "%s: no memory for a normal form", what);
    }
    bool compatible = kind == TOKEN_FORM_NFKC || kind == TOKEN_FORM_NFKD;
    form->composes = kind == TOKEN_FORM_NFC || kind == TOKEN_FORM_NFKC;
    form->options = UTF8PROC_STABLE | (form->composes ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE);
    form->options |= compatible ? UTF8PROC_COMPAT : 0;
    for (uint32_t point = 0; point < 0x110000; point++) {
        const bool is_character = point < 0xD800 || point >= 0xE000;
        if (is_empty_plane(point) || (is_character && is_stable(form, point))) {
            form->stable[point / 64] |= UINT64_C(1) << (point % 64);
        }
    }
    *out = form;
    return 0;
}

void token_form_destroy(struct token_form *form)
{
    core_charge_free(form);
}

static bool stable(const struct token_form *form, uint32_t point)
{
    return (form->stable[point / 64] >> (point % 64) & 1) != 0;
}

size_t token_form_pass(const struct token_form *form, const char *text, size_t bytes)
{
    size_t at = 0;
    size_t last = 0; /* beginning of the last passed character */
    unsigned length = 0;
    uint32_t point = 0;
    while (at < bytes) {
        if ((unsigned char)text[at] < 0x80) {
            point = (unsigned char)text[at];
            last = at++;
            continue;
        }
        uint32_t next = token_point(text + at, &length);
        if (!stable(form, next)) {
            break;
        }
        point = next;
        last = at;
        at += length;
    }
    /* The next character may combine with an unchanged one. */
    return at == bytes || at == 0 || is_newer(point) ? at : last;
}

size_t token_form_reach(const struct token_form *form, const char *text, size_t bytes)
{
    unsigned length;
    size_t at = 0;
    do {
        token_point(text + at, &length);
        at += length;
    } while (at < bytes && !stable(form, token_point(text + at, &length)));
    return at;
}

/* No decomposition in Unicode is longer. */
enum { PARTS_MAX = 32 };

/* The first part of a character counts as one character of the text, further parts as none. */
static int decompose(const struct token_form *form, const char *text, size_t bytes,
                     struct token_form_char **out, size_t *count)
{
    struct token_form_char *chars = NULL;
    size_t room = 0;
    size_t used = 0;
    unsigned length;
    for (size_t at = 0; at < bytes; at += length) {
        utf8proc_int32_t parts[PARTS_MAX];
        const utf8proc_int32_t point = (utf8proc_int32_t)token_point(text + at, &length);
        const utf8proc_ssize_t more = utf8proc_decompose_char(point, parts, PARTS_MAX,
                                                              form->options, NULL);
        assert(more >= 0 && more <= PARTS_MAX);
        int rc = token_grow((void **)&chars, &room, used, (size_t)more, sizeof *chars);
        if (rc != 0) {
            core_charge_free(chars);
            return rc;
        }
        for (utf8proc_ssize_t i = 0; i < more; i++, used++) {
            chars[used] = (struct token_form_char){
                .point = (uint32_t)parts[i],
                .taken = i == 0,
                .order = (uint32_t)used,
                .class = utf8proc_get_property(parts[i])->combining_class};
        }
    }
    *out = chars;
    *count = used;
    return 0;
}

static int by_class(const void *left, const void *right)
{
    const struct token_form_char *a = left;
    const struct token_form_char *b = right;
    return a->class != b->class ? a->class - b->class
                                : (a->order > b->order) - (a->order < b->order);
}

static void order(struct token_form_char *chars, size_t count)
{
    for (size_t begin = 0; begin < count;) {
        size_t end = begin;
        while (end < count && chars[end].class != 0) {
            end++;
        }
        if (end - begin > 1) {
            qsort(chars + begin, end - begin, sizeof *chars, by_class);
        }
        begin = end + 1;
    }
}

/* Returns false if there is no composed character. */
static bool join(const struct token_form *form, uint32_t first, uint32_t second, uint32_t *out)
{
    utf8proc_int32_t pair[2] = {(utf8proc_int32_t)first, (utf8proc_int32_t)second};
    *out = first;
    if (utf8proc_normalize_utf32(pair, 2, form->options) != 1) {
        return false;
    }
    *out = (uint32_t)pair[0];
    return true;
}

static size_t compose(const struct token_form *form, struct token_form_char *chars, size_t count)
{
    struct token_form_char *letter = NULL;
    int last = 0; /* class of the last uncombined mark; 0: none */
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        const struct token_form_char next = chars[i];
        const bool free_to = letter != NULL && (last == 0 || last < next.class);
        if (free_to && join(form, letter->point, next.point, &letter->point)) {
            letter->taken += next.taken;
            continue;
        }
        letter = next.class == 0 ? &chars[kept] : letter;
        last = next.class;
        chars[kept++] = next;
    }
    return kept;
}

int token_form_apply(const struct token_form *form, const char *text, size_t bytes,
                     struct token_form_char **out, size_t *count)
{
    int rc = decompose(form, text, bytes, out, count);
    if (rc == 0) {
        order(*out, *count);
        *count = form->composes ? compose(form, *out, *count) : *count;
    }
    return rc;
}

int token_form_lower(uint32_t point, uint32_t out[2])
{
    /* Upper-case letters that `tokenizers` knows and utf8proc 2.8 does not. */
    static const struct {
        uint32_t from, to, lower;
    } newer[] = {
        {0x1C89, 0x1C89, 0x1C8A},    {0xA7CB, 0xA7CB, 0x264},  {0xA7CC, 0xA7CC, 0xA7CD},
        {0xA7CE, 0xA7CE, 0xA7CF},    {0xA7D2, 0xA7D2, 0xA7D3}, {0xA7D4, 0xA7D4, 0xA7D5},
        {0xA7DA, 0xA7DA, 0xA7DB},    {0xA7DC, 0xA7DC, 0x19B},  {0x10D50, 0x10D65, 0x10D70},
        {0x16EA0, 0x16EB8, 0x16EBB},
    };
    for (size_t i = 0; i < sizeof newer / sizeof newer[0]; i++) {
        if (point >= newer[i].from && point <= newer[i].to) {
            out[0] = newer[i].lower + (point - newer[i].from);
            return 1;
        }
    }
    if (point == 0x130) { /* the only one whose lower case is two characters */
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    out[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)point);
    return 1;
}

int token_form_upper(uint32_t point, uint32_t out[2])
{
    if (point == 0xDF) { /* the sharp s */
        out[0] = out[1] = 'S';
        return 2;
    }
    out[0] = (uint32_t)utf8proc_toupper((utf8proc_int32_t)point);
    return 1;
}

int token_form_category(uint32_t point, enum token_category *out)
{
    static const enum token_category categories[] = {
        TOKEN_CATEGORY_CN, TOKEN_CATEGORY_LU, TOKEN_CATEGORY_LL, TOKEN_CATEGORY_LT,
        TOKEN_CATEGORY_LM, TOKEN_CATEGORY_LO, TOKEN_CATEGORY_MN, TOKEN_CATEGORY_MC,
        TOKEN_CATEGORY_ME, TOKEN_CATEGORY_ND, TOKEN_CATEGORY_NL, TOKEN_CATEGORY_NO,
        TOKEN_CATEGORY_PC, TOKEN_CATEGORY_PD, TOKEN_CATEGORY_PS, TOKEN_CATEGORY_PE,
        TOKEN_CATEGORY_PI, TOKEN_CATEGORY_PF, TOKEN_CATEGORY_PO, TOKEN_CATEGORY_SM,
        TOKEN_CATEGORY_SC, TOKEN_CATEGORY_SK, TOKEN_CATEGORY_SO, TOKEN_CATEGORY_ZS,
        TOKEN_CATEGORY_ZL, TOKEN_CATEGORY_ZP, TOKEN_CATEGORY_CC, TOKEN_CATEGORY_CF,
        TOKEN_CATEGORY_CN, TOKEN_CATEGORY_CO,
    };
    *out = categories[utf8proc_category((utf8proc_int32_t)point)];
    return 0;
}
