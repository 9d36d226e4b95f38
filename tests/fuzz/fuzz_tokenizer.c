/* fuzz_tokenizer.c: tokenizer.json: ids, spans and decoded texts of an accepted one are valid. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/utf8.h"
#include "tests/fuzz/fuzz.h"
#include "tools/text/tokenizer/tokenizer.h"

static const char text[] =
    "Hello  w\xC3\xB6rld, 123 it's \xE7\x9A\x84 \xF0\x9F\x98\x80\n\t<s>ab aab";

static void check_text(const struct text_tokenizer *tokenizer, struct text_scratch *scratch)
{
    struct text_encoding encoding;
    uint32_t ids[256];
    const char *back;
    size_t bytes;
    if (text_tokenizer_encode(scratch, text, sizeof text - 1,
                              TEXT_ENCODE_SPECIAL | TEXT_ENCODE_SPANS, &encoding) != 0) {
        assert(core_err_message()[0] != '\0');
        return;
    }
    for (size_t i = 0; i < encoding.count; i++) {
        assert(encoding.ids[i] < text_tokenizer_size(tokenizer));
        assert(encoding.spans[i].begin <= encoding.spans[i].end);
        assert(encoding.spans[i].end <= sizeof text - 1);
    }
    const size_t count = encoding.count < 256 ? encoding.count : 256;
    memcpy(ids, encoding.ids, count * sizeof *ids);
    if (text_tokenizer_decode(scratch, ids, count, false, &back, &bytes) != 0) {
        return;
    }
    for (size_t at = 0; at < bytes;) {
        const size_t length = core_utf8_sequence(back + at, bytes - at);
        assert(length > 0);
        at += length;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct text_tokenizer *tokenizer = NULL;
    struct text_scratch *scratch = NULL;
    (void)core_err_adopt(-EIO, "");
    if (text_tokenizer_parse((const char *)data, bytes, "fuzz", NULL, &tokenizer) != 0) {
        assert(strstr(core_err_message(), "fuzz") != NULL);
        return 0;
    }
    int code = text_scratch_create(tokenizer, &scratch);
    assert(code == 0);
    check_text(tokenizer, scratch);
    text_scratch_destroy(scratch);
    text_tokenizer_destroy(tokenizer);
    return 0;
}
