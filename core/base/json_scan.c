/* json_scan.c: the token machine: what may come next is one word of state, nesting is a bit set. */
#include "core/base/json_scan.h"

#include <string.h>

#include "core/base/json_lex.h"

/* What may stand at the place where the scanner is. */
enum expects {
    VALUE,        /* a value must come */
    FIRST_KEY,    /* a key or the end of an object */
    FIRST_VALUE,  /* a value or the end of an array */
    KEY,          /* a key must come (after a comma) */
    COMMA_OR_END, /* after a member or element */
    NOTHING,      /* the one value is complete */
};

void core_json_scan_init(struct core_json_scan *scan, const char *text, size_t bytes,
                         const char *source)
{
    *scan = (struct core_json_scan){
        .text = text, .source = source, .bytes = bytes, .expects = VALUE};
}

void core_json_scan_init_lenient(struct core_json_scan *scan, char *text, size_t bytes,
                                 const char *source)
{
    core_json_scan_init(scan, text, bytes, source);
    scan->blank = text;
    if (bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
        memset(text, ' ', 3);
    }
}

static bool in_object(const struct core_json_scan *scan)
{
    unsigned level = scan->depth - 1;
    return (scan->objects[level / 64] >> (level % 64) & 1) != 0;
}

static int open_level(struct core_json_scan *scan, struct core_json_token *token, bool object)
{
    if (scan->depth == CORE_JSON_DEPTH_MAX) {
        return core_json_scan_refuse(scan, scan->at, "nested deeper than %d levels",
                                     CORE_JSON_DEPTH_MAX);
    }
    unsigned level = scan->depth++;
    uint64_t bit = UINT64_C(1) << (level % 64);
    scan->objects[level / 64] &= ~bit;
    scan->objects[level / 64] |= object ? bit : 0;
    token->kind = object ? CORE_JSON_TOKEN_OBJECT_BEGIN : CORE_JSON_TOKEN_ARRAY_BEGIN;
    scan->expects = object ? FIRST_KEY : FIRST_VALUE;
    scan->at++;
    return 0;
}

static void close_level(struct core_json_scan *scan, struct core_json_token *token)
{
    token->kind = in_object(scan) ? CORE_JSON_TOKEN_OBJECT_END : CORE_JSON_TOKEN_ARRAY_END;
    scan->depth--;
    scan->expects = scan->depth == 0 ? NOTHING : COMMA_OR_END;
    scan->at++;
}

static int pass_value(struct core_json_scan *scan, struct core_json_token *token, char c)
{
    if (c == '{' || c == '[') {
        return open_level(scan, token, c == '{');
    }
    scan->expects = scan->depth == 0 ? NOTHING : COMMA_OR_END;
    if (c == '"') {
        token->kind = CORE_JSON_TOKEN_STRING;
        return core_json_pass_string(scan, token);
    }
    return c == '-' || (c >= '0' && c <= '9') ? core_json_pass_number(scan, token)
                                              : core_json_pass_literal(scan, token);
}

static int pass_key(struct core_json_scan *scan, struct core_json_token *token)
{
    char text[16];
    if (scan->at >= scan->bytes || scan->text[scan->at] != '"') {
        return core_json_scan_refuse(scan, scan->at,
                                     "found %s where a key in double quotes must stand",
                                     core_json_shown(scan, scan->at, text));
    }
    token->kind = CORE_JSON_TOKEN_KEY;
    int code = core_json_pass_string(scan, token);
    if (code == 0) {
        code = core_json_pass_space(scan);
    }
    if (code != 0) {
        return code;
    }
    if (scan->at >= scan->bytes || scan->text[scan->at] != ':') {
        return core_json_scan_refuse(scan, scan->at,
                                     "found %s where the : after key \"%.*s\" must stand",
                                     core_json_shown(scan, scan->at, text),
                                     (int)(token->bytes > 60 ? 60 : token->bytes), token->text);
    }
    scan->at++;
    scan->expects = VALUE;
    return 0;
}

/* Between members: passes over a comma, or leaves `at` on the closing bracket. A comma that only
 * a closing bracket follows is blanked in lenient text. */
static int pass_comma(struct core_json_scan *scan)
{
    char text[16];
    char end = in_object(scan) ? '}' : ']';
    char c = scan->at < scan->bytes ? scan->text[scan->at] : '\0';
    if (c == end) {
        return 0;
    }
    if (c != ',') {
        return core_json_scan_refuse(scan, scan->at, "found %s where a comma or %c must stand",
                                     core_json_shown(scan, scan->at, text), end);
    }
    size_t comma = scan->at++;
    int code = core_json_pass_space(scan);
    if (code != 0) {
        return code;
    }
    if (scan->at < scan->bytes && scan->text[scan->at] == end) {
        if (scan->blank == NULL) {
            return core_json_scan_refuse(scan, comma, "a comma with nothing after it");
        }
        scan->blank[comma] = ' ';
        return 0;
    }
    scan->expects = in_object(scan) ? KEY : VALUE;
    return 0;
}

int core_json_scan_next(struct core_json_scan *scan, struct core_json_token *token)
{
    token->escaped = false;
    int code = core_json_pass_space(scan);
    if (code == 0 && scan->expects == COMMA_OR_END) {
        code = pass_comma(scan);
    }
    if (code != 0) {
        return code;
    }
    char c = scan->at < scan->bytes ? scan->text[scan->at] : '\0';
    token->text = scan->text + scan->at;
    token->bytes = 1;
    if (scan->expects == NOTHING) {
        char text[16];
        token->kind = CORE_JSON_TOKEN_END;
        token->bytes = 0;
        return scan->at >= scan->bytes
                   ? 0
                   : core_json_scan_refuse(scan, scan->at, "found %s after the end of the value",
                                           core_json_shown(scan, scan->at, text));
    }
    bool closes = scan->expects == COMMA_OR_END || (scan->expects == FIRST_KEY && c == '}') ||
                  (scan->expects == FIRST_VALUE && c == ']');
    if (closes) {
        close_level(scan, token);
        return 0;
    }
    if (scan->expects == FIRST_KEY || scan->expects == KEY) {
        return pass_key(scan, token);
    }
    return pass_value(scan, token, c);
}

int core_json_scan_skip(struct core_json_scan *scan, const struct core_json_token *token)
{
    struct core_json_token next = *token;
    if (token->kind == CORE_JSON_TOKEN_KEY) {
        int code = core_json_scan_next(scan, &next);
        if (code != 0) {
            return code;
        }
    }
    if (next.kind != CORE_JSON_TOKEN_OBJECT_BEGIN && next.kind != CORE_JSON_TOKEN_ARRAY_BEGIN) {
        return 0;
    }
    for (unsigned depth = scan->depth; scan->depth >= depth;) {
        int code = core_json_scan_next(scan, &next);
        if (code != 0) {
            return code;
        }
    }
    return 0;
}
