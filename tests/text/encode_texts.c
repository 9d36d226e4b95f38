/* encode_texts.c: for tests/oracle/tokenizer_check.py: writes the ids of texts, and the texts
 * decoded from the ids. */
#include <stdio.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "tools/text/tokenizer/tokenizer.h"

static int answer(struct text_scratch *scratch, const char *text, uint32_t bytes, unsigned flags)
{
    struct text_encoding encoding;
    int code = text_tokenizer_encode(scratch, text, bytes, flags, &encoding);
    if (code != 0) {
        return code;
    }
    uint32_t count = (uint32_t)encoding.count;
    fwrite(&count, sizeof count, 1, stdout);
    fwrite(encoding.ids, sizeof *encoding.ids, count, stdout);
    const char *back;
    size_t back_bytes;
    code = text_tokenizer_decode(scratch, encoding.ids, count, false, &back, &back_bytes);
    if (code == 0) {
        count = (uint32_t)back_bytes;
        fwrite(&count, sizeof count, 1, stdout);
        fwrite(back, 1, back_bytes, stdout);
    }
    return code;
}

int main(int argc, char **argv)
{
    struct text_tokenizer *tokenizer = NULL;
    struct text_scratch *scratch = NULL;
    char *text = NULL;
    uint32_t bytes;
    int code = argc == 3 ? text_tokenizer_load(argv[1], &tokenizer) : -1;
    code = code == 0 ? text_scratch_create(tokenizer, &scratch) : code;
    while (code == 0 && fread(&bytes, sizeof bytes, 1, stdin) == 1) {
        free(text);
        text = malloc((size_t)bytes + 1);
        code = text != NULL && fread(text, 1, bytes, stdin) == bytes
                   ? answer(scratch, text, bytes, argv[2][0] == '1' ? TEXT_ENCODE_SPECIAL : 0)
                   : -1;
    }
    if (code != 0) {
        fprintf(stderr, "encode_texts: %s\n", core_err_message());
    }
    free(text);
    text_scratch_destroy(scratch);
    text_tokenizer_destroy(tokenizer);
    return code != 0;
}
