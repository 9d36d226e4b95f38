/* lexer.c: divides a source at its tags, removes white space (trim_blocks, lstrip_blocks, signs),
 * and divides tags into words. */
#include "tools/text/jinja/lexer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/utf8.h"
#include "tools/text/jinja/chars.h"

struct lexer {
    struct jinja_run *run;
    struct jinja_tokens *out;
    const char *text; /* with \n for every end of line */
    size_t bytes;
    size_t at;
    bool line_starting; /* a line begins at `at`, or a tag removed the newline before it */
};

static void add_token(struct lexer *lexer, struct jinja_token token)
{
    struct jinja_tokens *out = lexer->out;
    token.line = lexer->run->line;
    if (out->count == out->room) {
        const size_t room = out->room * 2 + 64;
        struct jinja_token *more = jinja_alloc(lexer->run, room * sizeof *more);
        if (more == NULL) {
            return;
        }
        if (out->count > 0) {
            memcpy(more, out->items, out->count * sizeof *more);
        }
        out->items = more;
        out->room = room;
    }
    out->items[out->count++] = token;
}

static void add_word(struct lexer *lexer, enum jinja_word word, const char *text, size_t bytes)
{
    add_token(lexer, (struct jinja_token){.word = word, .text = text, .bytes = bytes});
}

static void advance(struct lexer *lexer, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        lexer->run->line += lexer->text[lexer->at + i] == '\n';
    }
    lexer->at += bytes;
}

static bool is_at(const struct lexer *lexer, size_t at, const char *text)
{
    const size_t bytes = strlen(text);
    return lexer->bytes - at >= bytes && memcmp(lexer->text + at, text, bytes) == 0;
}

static size_t space_bytes(const char *text, size_t bytes)
{
    size_t at = 0;
    while (at < bytes && jinja_char_is(jinja_char_point(text + at), JINJA_CHAR_SPACE)) {
        at += jinja_char_bytes(text + at);
    }
    return at;
}

static size_t without_space_behind(const char *text, size_t bytes)
{
    while (bytes > 0) {
        const size_t length = jinja_char_before(text, text + bytes);
        if (!jinja_char_is(jinja_char_point(text + bytes - length), JINJA_CHAR_SPACE)) {
            break;
        }
        bytes -= length;
    }
    return bytes;
}

/* Adds the text before a tag, without white space that the tag removes. */
static void add_data(struct lexer *lexer, size_t end, char sign, bool is_variable)
{
    const char *text = lexer->text + lexer->at;
    size_t bytes = end - lexer->at;
    if (sign == '-') {
        bytes = without_space_behind(text, bytes);
    } else if (sign != '+' && !is_variable) {
        const char *newline = memrchr(text, '\n', bytes);
        const size_t line = newline != NULL ? (size_t)(newline - text) + 1 : 0;
        if ((line > 0 || lexer->line_starting) &&
            space_bytes(text + line, bytes - line) == bytes - line) {
            bytes = line;
        }
    }
    if (bytes > 0) {
        add_word(lexer, JINJA_WORD_DATA, text, bytes);
    }
    advance(lexer, end - lexer->at);
}

static void pass_end(struct lexer *lexer, char sign, bool is_variable)
{
    const size_t before = lexer->at;
    if (sign == '-') {
        advance(lexer, space_bytes(lexer->text + lexer->at, lexer->bytes - lexer->at));
    } else if (sign != '+' && !is_variable && is_at(lexer, lexer->at, "\n")) {
        advance(lexer, 1);
    }
    lexer->line_starting = lexer->at > before && lexer->text[lexer->at - 1] == '\n';
}

static bool is_name_begin(uint32_t point)
{
    return point == '_' || jinja_char_is(point, JINJA_CHAR_ALPHA) || point >= 0x80;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static size_t digits(const struct lexer *lexer, size_t at)
{
    size_t end = at;
    while (end < lexer->bytes && (is_digit(lexer->text[end]) ||
                                  (lexer->text[end] == '_' && end > at && end + 1 < lexer->bytes &&
                                   is_digit(lexer->text[end + 1])))) {
        end++;
    }
    return end - at;
}

/* Returns the end of the fraction and exponent; `at`: none. */
static size_t real_end(const struct lexer *lexer, size_t at)
{
    size_t end = at;
    if (end < lexer->bytes && lexer->text[end] == '.') {
        const size_t count = digits(lexer, end + 1);
        end = count > 0 ? end + 1 + count : at;
    }
    if (end < lexer->bytes && (lexer->text[end] | 0x20) == 'e') {
        const bool sign = end + 1 < lexer->bytes && strchr("+-", lexer->text[end + 1]) != NULL;
        const size_t count = digits(lexer, end + 1 + sign);
        end = count > 0 ? end + 1 + sign + count : end;
    }
    return end;
}

/* Returns the value of a digit in a base up to 16; 16: not a digit. */
static int digit_of(char c)
{
    const char lower = (char)(c | 0x20);
    return is_digit(c) ? c - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : 16;
}

/* Reads a number such as 0x1f, 0o17, 0b1_1. Returns false if there is none. */
static bool add_based(struct lexer *lexer)
{
    const char *text = lexer->text;
    size_t end = lexer->at + 2;
    if (text[lexer->at] != '0' || end >= lexer->bytes) {
        return false;
    }
    const char kind = (char)(text[lexer->at + 1] | 0x20);
    const int base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
    struct jinja_token token = {.word = JINJA_WORD_INTEGER};
    bool fits = true;
    for (;;) {
        const size_t at = end + (end < lexer->bytes && text[end] == '_');
        if (base == 0 || at >= lexer->bytes || digit_of(text[at]) >= base) {
            break;
        }
        fits = fits && !__builtin_mul_overflow(token.integer, base, &token.integer) &&
               !__builtin_add_overflow(token.integer, digit_of(text[at]), &token.integer);
        end = at + 1;
    }
    if (end == lexer->at + 2) {
        return false;
    }
    if (!fits) {
        jinja_fail(lexer->run, -EINVAL, "the number %.*s is too large", (int)(end - lexer->at),
                   text + lexer->at);
    }
    add_token(lexer, token);
    advance(lexer, end - lexer->at);
    return true;
}

static void add_number(struct lexer *lexer)
{
    if (add_based(lexer)) {
        return;
    }
    char text[64];
    size_t length = 0;
    const size_t whole = lexer->at + digits(lexer, lexer->at);
    const size_t end = real_end(lexer, whole);
    for (size_t i = lexer->at; i < end && length + 1 < sizeof text; i++) {
        if (lexer->text[i] != '_') {
            text[length++] = lexer->text[i];
        }
    }
    text[length] = '\0';
    errno = 0;
    struct jinja_token token = {.word = end > whole ? JINJA_WORD_REAL : JINJA_WORD_INTEGER};
    if (end > whole) {
        token.real = strtod(text, NULL);
    } else {
        token.integer = strtoll(text, NULL, 10);
    }
    if (end - lexer->at >= sizeof text || (errno == ERANGE && end == whole)) {
        jinja_fail(lexer->run, -EINVAL, "the number %s is too large", text);
    }
    add_token(lexer, token);
    advance(lexer, end - lexer->at);
}

static void add_name(struct lexer *lexer)
{
    size_t end = lexer->at;
    while (end < lexer->bytes) {
        const uint32_t point = jinja_char_point(lexer->text + end);
        if (!is_name_begin(point) && !jinja_char_is(point, JINJA_CHAR_DECIMAL)) {
            break;
        }
        end += jinja_char_bytes(lexer->text + end);
    }
    add_word(lexer, JINJA_WORD_NAME, lexer->text + lexer->at, end - lexer->at);
    advance(lexer, end - lexer->at);
}

/* Fails the run if the digits are too few or encode no character. */
static size_t put_hex(struct jinja_run *run, const char *text, size_t bytes, size_t count,
                      char *out)
{
    uint32_t point = 0;
    for (size_t i = 0; i < count; i++) {
        const int digit = i < bytes ? digit_of(text[i]) : 16;
        if (digit == 16) {
            jinja_fail(run, -EINVAL, "an escape in a string needs %zu hexadecimal digits", count);
            return 0;
        }
        point = point << 4 | (uint32_t)digit;
    }
    if (point > 0x10FFFF || (point >= 0xD800 && point < 0xE000)) {
        jinja_fail(run, -EINVAL, "an escape in a string is not a character");
        return 0;
    }
    return jinja_char_write(point, out);
}

/* Returns the length of the escape at text[0] == '\\'. */
static size_t put_escape(struct jinja_run *run, const char *text, size_t bytes, char *out,
                         size_t *length)
{
    static const char letters[] = "\\'\"abfnrtv";
    static const char meant[] = "\\'\"\a\b\f\n\r\t\v";
    const char letter = bytes > 1 ? text[1] : '\0';
    const char *found = letter != '\0' ? strchr(letters, letter) : NULL;
    const size_t count = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
    if (letter == '\n') {
        *length = 0;
        return 2;
    }
    if (found != NULL) {
        out[0] = meant[found - letters];
        *length = 1;
        return 2;
    }
    if (count > 0) {
        *length = put_hex(run, text + 2, bytes - 2, count, out);
        return 2 + (bytes - 2 < count ? bytes - 2 : count);
    }
    if (letter >= '0' && letter <= '7') {
        uint32_t point = 0;
        size_t digits = 0;
        while (digits < 3 && digits + 1 < bytes && text[1 + digits] >= '0' &&
               text[1 + digits] <= '7') {
            point = point << 3 | (uint32_t)(text[1 + digits++] - '0');
        }
        *length = jinja_char_write(point, out);
        return 1 + digits;
    }
    if (letter == 'N') {
        jinja_fail(run, -EINVAL, "names of characters, \\N{...}, are not supported");
    }
    out[0] = '\\';
    *length = 1;
    return 1;
}

static struct jinja_value unescape(struct jinja_run *run, const char *text, size_t bytes)
{
    char *out;
    size_t length = 0;
    struct jinja_value value = jinja_string_room(run, bytes + 4, &out);
    for (size_t at = 0; at < bytes && run->rc == 0;) {
        size_t made = 1;
        if (text[at] == '\\') {
            at += put_escape(run, text + at, bytes - at, out + length, &made);
        } else {
            out[length] = text[at++];
        }
        length += made;
    }
    value.bytes = (uint32_t)length;
    return value;
}

static void add_string(struct lexer *lexer)
{
    const char *begin = lexer->text + lexer->at;
    size_t end = 1;
    while (lexer->at + end < lexer->bytes && begin[end] != begin[0]) {
        end += begin[end] == '\\' ? 2 : 1;
    }
    if (lexer->at + end >= lexer->bytes) {
        jinja_fail(lexer->run, -EINVAL, "a string is not closed");
        return;
    }
    const struct jinja_value value = unescape(lexer->run, begin + 1, end - 1);
    add_word(lexer, JINJA_WORD_STRING, value.as.text, value.bytes);
    advance(lexer, end + 1);
}

static void add_sign(struct lexer *lexer, size_t *open, char *opened)
{
    static const char *const signs[] = {"**", "//", "==", "!=", ">=", "<=", "+", "-", "*",
                                        "/",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                        ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    enum { SIGNS = sizeof signs / sizeof signs[0], OPEN_MAX_ = 256 };
    size_t i = 0;
    while (i < SIGNS && !is_at(lexer, lexer->at, signs[i])) {
        i++;
    }
    if (i == SIGNS) {
        jinja_fail(lexer->run, -EINVAL, "unexpected character %.*s",
                   (int)jinja_char_bytes(lexer->text + lexer->at), lexer->text + lexer->at);
        return;
    }
    const char sign = signs[i][0];
    const char closes = sign == '(' ? ')' : sign == '[' ? ']' : sign == '{' ? '}' : '\0';
    if (closes != '\0') {
        if (*open == OPEN_MAX_) {
            jinja_fail(lexer->run, -E2BIG, "more than %d brackets are open", OPEN_MAX_);
            return;
        }
        opened[(*open)++] = closes;
    } else if (sign == ')' || sign == ']' || sign == '}') {
        if (*open == 0 || opened[*open - 1] != sign) {
            jinja_fail(lexer->run, -EINVAL, "unexpected '%c'", sign);
            return;
        }
        (*open)--;
    }
    add_word(lexer, JINJA_WORD_SIGN, signs[i], strlen(signs[i]));
    advance(lexer, strlen(signs[i]));
}

static void add_inside(struct lexer *lexer, const char *end, bool is_variable)
{
    char opened[256];
    size_t open = 0;
    while (lexer->run->rc == 0) {
        advance(lexer, space_bytes(lexer->text + lexer->at, lexer->bytes - lexer->at));
        if (lexer->at == lexer->bytes) {
            jinja_fail(lexer->run, -EINVAL, "the tag is not closed with %s", end);
            return;
        }
        const char c = lexer->text[lexer->at];
        const bool signed_end = (c == '-' || c == '+') && is_at(lexer, lexer->at + 1, end) &&
                                !(c == '+' && is_variable);
        if (open == 0 && (signed_end || is_at(lexer, lexer->at, end))) {
            add_word(lexer, is_variable ? JINJA_WORD_VARIABLE_END : JINJA_WORD_BLOCK_END, NULL, 0);
            advance(lexer, signed_end ? 3 : 2);
            pass_end(lexer, signed_end ? c : '\0', is_variable);
            return;
        }
        if (c == '"' || c == '\'') {
            add_string(lexer);
        } else if (is_digit(c)) {
            add_number(lexer);
        } else if (is_name_begin(jinja_char_point(lexer->text + lexer->at))) {
            add_name(lexer);
        } else {
            add_sign(lexer, &open, opened);
        }
    }
}

static void pass_comment(struct lexer *lexer)
{
    const char *end = memmem(lexer->text + lexer->at, lexer->bytes - lexer->at, "#}", 2);
    if (end == NULL) {
        jinja_fail(lexer->run, -EINVAL, "the comment is not closed with #}");
        return;
    }
    const size_t at = (size_t)(end - lexer->text);
    const char sign = at > lexer->at ? lexer->text[at - 1] : '\0';
    advance(lexer, at + 2 - lexer->at);
    pass_end(lexer, sign == '-' || sign == '+' ? sign : '\0', false);
}

/* Returns the length of `{% NAME %}` at `at`, or 0. `signs`: characters where the signs of the tag
 * may be. */
static size_t bare_tag(const struct lexer *lexer, size_t at, const char *name, char signs[2])
{
    size_t end = at + 2;
    if (!is_at(lexer, at, "{%")) {
        return 0;
    }
    signs[0] = end < lexer->bytes ? lexer->text[end] : '\0';
    end += signs[0] == '-' || signs[0] == '+';
    end += space_bytes(lexer->text + end, lexer->bytes - end);
    if (!is_at(lexer, end, name)) {
        return 0;
    }
    end += strlen(name);
    end += space_bytes(lexer->text + end, lexer->bytes - end);
    signs[1] = end < lexer->bytes ? lexer->text[end] : '\0';
    end += signs[1] == '-' || signs[1] == '+';
    return is_at(lexer, end, "%}") ? end + 2 - at : 0;
}

/* Returns false if there is no {% raw %}. */
static bool pass_raw(struct lexer *lexer)
{
    char signs[2];
    size_t tag = bare_tag(lexer, lexer->at, "raw", signs);
    if (tag == 0) {
        return false;
    }
    advance(lexer, tag);
    pass_end(lexer, signs[1], true); /* without a sign, the newline after the tag is kept */
    for (size_t end = lexer->at; end < lexer->bytes; end++) {
        tag = bare_tag(lexer, end, "endraw", signs);
        if (tag > 0) {
            add_data(lexer, end, signs[0], false);
            advance(lexer, tag);
            pass_end(lexer, signs[1], false);
            return true;
        }
    }
    jinja_fail(lexer->run, -EINVAL, "{%% raw %%} is not closed with {%% endraw %%}");
    return true;
}

static size_t find_tag(const struct lexer *lexer)
{
    size_t at = lexer->at;
    while (at < lexer->bytes) {
        const char *brace = memchr(lexer->text + at, '{', lexer->bytes - at);
        at = brace != NULL ? (size_t)(brace - lexer->text) : lexer->bytes;
        if (at + 1 < lexer->bytes && strchr("{%#", lexer->text[at + 1]) != NULL &&
            lexer->text[at + 1] != '\0') {
            break;
        }
        at += at < lexer->bytes;
    }
    return at;
}

static void lex_all(struct lexer *lexer)
{
    while (lexer->at < lexer->bytes && lexer->run->rc == 0) {
        const size_t tag = find_tag(lexer);
        const char kind = tag < lexer->bytes ? lexer->text[tag + 1] : '\0';
        const char sign = tag + 2 < lexer->bytes ? lexer->text[tag + 2] : '\0';
        const bool is_variable = kind == '{' || kind == '\0';
        add_data(lexer, tag, kind == '\0' ? '+' : sign, is_variable);
        if (kind == '\0' || (kind == '%' && pass_raw(lexer))) {
            continue;
        }
        advance(lexer, sign == '-' || sign == '+' ? 3 : 2);
        if (kind == '#') {
            pass_comment(lexer);
        } else {
            add_word(lexer, is_variable ? JINJA_WORD_VARIABLE_BEGIN : JINJA_WORD_BLOCK_BEGIN, NULL,
                     0);
            add_inside(lexer, is_variable ? "}}" : "%}", is_variable);
        }
    }
}

/* Line ends become \n; one at the end is dropped. Returns the length. */
static size_t copy_source(const char *source, size_t bytes, char *text)
{
    size_t length = 0;
    for (size_t i = 0; i < bytes; i++) {
        const bool returns = source[i] == '\r';
        text[length++] = returns ? '\n' : source[i];
        i += returns && i + 1 < bytes && source[i + 1] == '\n';
    }
    return length - (length > 0 && text[length - 1] == '\n');
}

void jinja_lex(struct jinja_run *run, const char *source, size_t bytes, struct jinja_tokens *out)
{
    /* Zeros follow the text because the lexer looks a few bytes ahead. */
    char *text = jinja_alloc(run, bytes + 8);
    struct lexer lexer = {.run = run, .out = out, .text = text, .line_starting = true};
    run->line = 1;
    for (size_t at = 0, length; at < bytes && run->rc == 0; at += length) {
        length = core_utf8_sequence(source + at, bytes - at);
        if (length == 0) {
            jinja_fail(run, -EILSEQ, "byte %zu of the template is not UTF-8", at);
        }
    }
    if (run->rc == 0) {
        lexer.bytes = copy_source(source, bytes, text);
        lex_all(&lexer);
    }
    add_word(&lexer, JINJA_WORD_END, "", 0);
}
