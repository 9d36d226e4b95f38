/* scratch.c: the buffers of a thread that encodes or decodes texts. */
#include <errno.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "tools/text/tokenizer/pcre.h"
#include "tools/text/tokenizer/steps.h"
#include "tools/text/tokenizer/tokenizer.h"

int text_scratch_create(const struct text_tokenizer *tokenizer, struct text_scratch **out)
{
    struct text_scratch *scratch = core_charge_zeroed(1, sizeof *scratch);
    if (scratch != NULL) {
        scratch->tokenizer = tokenizer;
        scratch->words = core_charge_zeroed(TOKEN_WORDS, sizeof *scratch->words);
    }
    if (scratch == NULL || scratch->words == NULL) {
        text_scratch_destroy(scratch);
        return core_err_set(-ENOMEM, "no memory for a tokenizer's scratch");
    }
    int rc = token_pcre_scratch_create(&scratch->pcre);
    if (rc != 0) {
        text_scratch_destroy(scratch);
        return rc;
    }
    *out = scratch;
    return 0;
}

void text_scratch_trim(struct text_scratch *scratch)
{
    for (size_t i = 0; i < sizeof scratch->text / sizeof scratch->text[0]; i++) {
        token_text_free(&scratch->text[i]);
    }
    core_charge_free(scratch->pieces[0].at);
    core_charge_free(scratch->pieces[1].at);
    core_charge_free(scratch->marks.at);
    core_charge_free(scratch->symbols);
    core_charge_free(scratch->heap);
    core_charge_free(scratch->spans);
    core_charge_free(scratch->ids);
    *scratch = (struct text_scratch){
        .tokenizer = scratch->tokenizer, .words = scratch->words, .pcre = scratch->pcre};
}

void text_scratch_destroy(struct text_scratch *scratch)
{
    if (scratch != NULL) {
        text_scratch_trim(scratch);
        core_charge_free(scratch->words);
        token_pcre_scratch_destroy(scratch->pcre);
        core_charge_free(scratch);
    }
}
