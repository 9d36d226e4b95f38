/* unicode.c: unpacks the table of kinds, and reads UTF-8. No state. */
#include "tools/text/tokenizer/unicode.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/charge.h"
#include "core/base/err.h"

enum { LETTERS_MAX = 2 };

static uint16_t page_of(struct token_unicode *unicode, const uint8_t kinds[256])
{
    for (size_t i = unicode->pages; i-- > 0;) {
        if (memcmp(unicode->kinds + i * 256, kinds, 256) == 0) {
            return (uint16_t)i;
        }
    }
    memcpy(unicode->kinds + unicode->pages * 256, kinds, 256);
    return (uint16_t)unicode->pages++;
}

struct token_run {
    uint8_t kind;
    uint32_t count;
};

/* The table continues in the next part. */
static char table_next(size_t *part, size_t *at)
{
    while (token_kind_runs[*part] != NULL && token_kind_runs[*part][*at] == '\0') {
        (*part)++;
        *at = 0;
    }
    return token_kind_runs[*part] == NULL ? '\0' : token_kind_runs[*part][(*at)++];
}

/* Returns false after the last run. */
static bool next_run(size_t *part, size_t *at, char *next, struct token_run *run)
{
    if (*next == '\0') {
        return false;
    }
    run->kind = (uint8_t)(strchr(token_kind_letters, *next) - token_kind_letters);
    run->count = 0;
    for (*next = table_next(part, at); *next >= '0' && *next <= '9'; *next = table_next(part, at)) {
        run->count = run->count * 10 + (uint32_t)(*next - '0');
    }
    run->count = run->count == 0 ? 1 : run->count;
    return true;
}

enum token_category token_category_of(uint32_t point)
{
    size_t part = 0;
    size_t at = 0;
    struct token_run run = {0};
    char next = table_next(&part, &at);
    for (uint32_t end = 0; next_run(&part, &at, &next, &run);) {
        end += run.count;
        if (point < end) {
            return token_kinds[run.kind].category;
        }
    }
    return TOKEN_CATEGORY_CN;
}

uint64_t token_kinds_flagged(unsigned flag)
{
    uint64_t kinds = 0;
    for (unsigned i = 0; i < TOKEN_KINDS_MAX; i++) {
        kinds |= (uint64_t)((token_kinds[i].flags & flag) != 0) << i;
    }
    return kinds;
}

uint64_t token_kinds_named(const char *name, size_t bytes)
{
    static const char *const names[TOKEN_CATEGORIES] = {
        "Cn", "Cc", "Cf", "Co", "Ll", "Lm", "Lo", "Lt", "Lu", "Mc", "Me", "Mn", "Nd", "Nl", "No",
        "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "Sc", "Sk", "Sm", "So", "Zl", "Zp", "Zs"};
    uint64_t kinds = 0;
    if (bytes == 2 && memcmp(name, "=w", 2) == 0) { /* not a category; for Whitespace */
        return token_kinds_flagged(TOKEN_FLAG_WORD_BESIDE);
    }
    for (unsigned i = 0; i < TOKEN_KINDS_MAX && bytes >= 1 && bytes <= LETTERS_MAX; i++) {
        kinds |= (uint64_t)(memcmp(names[token_kinds[i].category], name, bytes) == 0) << i;
    }
    return kinds;
}

uint64_t token_kinds_word(bool in_class)
{
    const uint64_t kinds = token_kinds_flagged(TOKEN_FLAG_WORD);
    return in_class ? kinds & ~token_kinds_named("No", 2) : kinds;
}

/* Returns the number of characters in whole pages; 0: less than a page. */
static uint32_t fill_pages(struct token_unicode *unicode, uint32_t point, struct token_run run)
{
    uint8_t kinds[256];
    const uint32_t pages = run.count / 256;
    if (pages > 0) {
        memset(kinds, run.kind, sizeof kinds);
        const uint16_t page = page_of(unicode, kinds);
        for (uint32_t i = 0; i < pages; i++) {
            unicode->page[(point >> 8) + i] = page;
        }
    }
    return pages * 256;
}

static void unpack(struct token_unicode *unicode)
{
    uint8_t kinds[256];
    uint32_t point = 0;
    size_t part = 0;
    size_t at = 0;
    struct token_run run = {0};
    char next = table_next(&part, &at);
    while (next_run(&part, &at, &next, &run)) {
        while (run.count > 0) {
            if ((point & 255) == 0) {
                const uint32_t filled = fill_pages(unicode, point, run);
                point += filled;
                run.count -= filled;
            }
            if (run.count > 0) {
                kinds[point & 255] = run.kind;
                run.count--;
                if ((++point & 255) == 0) {
                    unicode->page[(point >> 8) - 1] = page_of(unicode, kinds);
                }
            }
        }
    }
}

int token_unicode_create(struct token_unicode **out)
{
    enum { PAGES_MAX = 512 };
    struct token_unicode *unicode = core_charge_zeroed(1, sizeof *unicode);
    uint8_t *kinds = core_charge_alloc((size_t)PAGES_MAX * 256);
    if (unicode == NULL || kinds == NULL) {
        core_charge_free(unicode);
        core_charge_free(kinds);
        return core_err_set(-ENOMEM, "no memory for the table of characters");
    }
    unicode->kinds = kinds;
    unpack(unicode);
    *out = unicode;
    return 0;
}

void token_unicode_destroy(struct token_unicode *unicode)
{
    if (unicode != NULL) {
        core_charge_free(unicode->kinds);
        core_charge_free(unicode);
    }
}

uint32_t token_point(const char *at, unsigned *bytes)
{
    const unsigned char *u = (const unsigned char *)at;
    if (u[0] < 0x80) {
        *bytes = 1;
        return u[0];
    }
    if (u[0] < 0xE0) {
        *bytes = 2;
        return (uint32_t)(u[0] & 31) << 6 | (u[1] & 63);
    }
    if (u[0] < 0xF0) {
        *bytes = 3;
        return (uint32_t)(u[0] & 15) << 12 | (uint32_t)(u[1] & 63) << 6 | (u[2] & 63);
    }
    *bytes = 4;
    return (uint32_t)(u[0] & 7) << 18 | (uint32_t)(u[1] & 63) << 12 | (uint32_t)(u[2] & 63) << 6 |
           (u[3] & 63);
}

uint32_t token_point_before(const char *begin, const char *end, unsigned *bytes)
{
    do {
        end--;
    } while (end > begin && ((unsigned char)*end & 0xC0) == 0x80);
    return token_point(end, bytes);
}

unsigned token_point_write(uint32_t point, char out[4])
{
    if (point < 0x80) {
        out[0] = (char)point;
        return 1;
    }
    if (point < 0x800) {
        out[0] = (char)(0xC0 | point >> 6);
        out[1] = (char)(0x80 | (point & 63));
        return 2;
    }
    if (point < 0x10000) {
        out[0] = (char)(0xE0 | point >> 12);
        out[1] = (char)(0x80 | (point >> 6 & 63));
        out[2] = (char)(0x80 | (point & 63));
        return 3;
    }
    out[0] = (char)(0xF0 | point >> 18);
    out[1] = (char)(0x80 | (point >> 12 & 63));
    out[2] = (char)(0x80 | (point >> 6 & 63));
    out[3] = (char)(0x80 | (point & 63));
    return 4;
}
