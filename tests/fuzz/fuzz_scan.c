/* fuzz_scan.c: the token scanner: tokens move forward inside the buffer, and a text that the
 * lenient scanner has accepted is strict afterwards. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/json/scan.h"
#include "tests/fuzz/fuzz.h"

static void use_token(const struct core_json_token *token)
{
    if (token->kind == CORE_JSON_TOKEN_KEY || token->kind == CORE_JSON_TOKEN_STRING) {
        char *plain = malloc(token->bytes + 1);
        assert(plain != NULL);
        size_t bytes = core_json_token_string(token, plain, token->bytes);
        assert(bytes <= token->bytes);
        assert(core_json_token_equals(token, plain, bytes));
        free(plain);
    } else if (token->kind == CORE_JSON_TOKEN_INTEGER) {
        (void)core_json_token_integer(token);
    } else if (token->kind == CORE_JSON_TOKEN_REAL) {
        double value = core_json_token_real(token);
        assert(value - value == 0);
    }
}

/* Returns the number of tokens, or -1 if the text is refused; *mixed is a hash of the tokens. */
static int64_t count_tokens(struct core_json_scan *scan, uint64_t *mixed)
{
    struct core_json_token token;
    const char *before = scan->text;
    int64_t count = 0;
    *mixed = 0;
    do {
        if (core_json_scan_next(scan, &token) != 0) {
            return -1;
        }
        assert(token.text >= before && token.text + token.bytes <= scan->text + scan->bytes);
        before = token.text;
        use_token(&token);
        *mixed = *mixed * 31 + (uint64_t)token.kind * 7 + token.bytes;
        count++;
    } while (token.kind != CORE_JSON_TOKEN_END);
    assert(scan->depth == 0);
    return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *text = malloc(bytes > 0 ? bytes : 1);
    struct core_json_scan scan;
    uint64_t mixed[3];
    assert(text != NULL);
    if (bytes > 0) {
        memcpy(text, data, bytes);
    }
    core_json_scan_init(&scan, text, bytes, "fuzz");
    int64_t strict = count_tokens(&scan, &mixed[0]);
    core_json_scan_init_lenient(&scan, text, bytes, "fuzz");
    int64_t lenient = count_tokens(&scan, &mixed[1]);
    assert(strict < 0 || (lenient == strict && mixed[0] == mixed[1]));
    if (lenient >= 0) {
        core_json_scan_init(&scan, text, bytes, "fuzz");
        int64_t again = count_tokens(&scan, &mixed[2]);
        assert(again == lenient && mixed[1] == mixed[2]);
    }
    struct core_json_token token;
    core_json_scan_init(&scan, text, bytes, "fuzz");
    if (core_json_scan_next(&scan, &token) == 0) {
        int code = core_json_scan_skip(&scan, &token);
        assert(strict < 0 || (code == 0 && scan.depth == 0));
    }
    free(text);
    return 0;
}
