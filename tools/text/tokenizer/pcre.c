/* pcre.c: the wrapper of PCRE2, with its JIT. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "tools/text/tokenizer/pcre.h"

#include <errno.h>
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/charge.h"
#include "core/base/err.h"

struct token_pcre {
    pcre2_code *code; /* owned */
};

struct token_pcre_scratch {
    pcre2_match_data *match;      /* owned */
    pcre2_match_context *context; /* owned */
    pcre2_jit_stack *stack;       /* owned */
};

int token_pcre_create(const char *regex, size_t bytes, const char *what, struct token_pcre **out)
{
    int error;
    PCRE2_SIZE offset;
    struct token_pcre *pcre = core_charge_zeroed(1, sizeof *pcre);
    if (pcre == NULL) {
        return core_err_set(-ENOMEM, "no memory for a regular expression");
    }
    pcre->code = pcre2_compile((PCRE2_SPTR)regex, bytes,
                               PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NO_UTF_CHECK, &error,
                               &offset, NULL);
    if (pcre->code == NULL) {
        char text[200];
        pcre2_get_error_message(error, (PCRE2_UCHAR *)text, sizeof text);
        core_charge_free(pcre);
        /* The offset is left out: the user does not know the rewritten expression. */
        return core_err_set(-EINVAL, "%s: regular expression: %s", what, text);
    }
    /* Without JIT (a hardened kernel, another machine), matching is slower. */
    pcre2_jit_compile(pcre->code, PCRE2_JIT_COMPLETE);
    *out = pcre;
    return 0;
}

bool token_pcre_has_script(const char *name, size_t bytes)
{
    int error;
    char regex[80];
    PCRE2_SIZE offset;
    pcre2_code *code = NULL;
    if (snprintf(regex, sizeof regex, "\\p{sc:%.*s}", (int)(bytes < 60 ? bytes : 60), name) > 0) {
        code = pcre2_compile((PCRE2_SPTR)regex, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &error, &offset,
                             NULL);
    }
    pcre2_code_free(code);
    return code != NULL;
}

void token_pcre_destroy(struct token_pcre *pcre)
{
    if (pcre != NULL) {
        pcre2_code_free(pcre->code);
        core_charge_free(pcre);
    }
}

int token_pcre_scratch_create(struct token_pcre_scratch **out)
{
    struct token_pcre_scratch *scratch = core_charge_zeroed(1, sizeof *scratch);
    if (scratch != NULL) {
        scratch->match = pcre2_match_data_create(1, NULL);
        scratch->context = pcre2_match_context_create(NULL);
        scratch->stack = pcre2_jit_stack_create(32 * 1024, 16 * 1024 * 1024, NULL);
    }
    if (scratch == NULL || scratch->match == NULL || scratch->context == NULL) {
        token_pcre_scratch_destroy(scratch);
        return core_err_set(-ENOMEM, "no memory for matching regular expressions");
    }
    if (scratch->stack != NULL) {
        pcre2_jit_stack_assign(scratch->context, NULL, scratch->stack);
    }
    *out = scratch;
    return 0;
}

void token_pcre_scratch_destroy(struct token_pcre_scratch *scratch)
{
    if (scratch != NULL) {
        pcre2_jit_stack_free(scratch->stack);
        pcre2_match_context_free(scratch->context);
        pcre2_match_data_free(scratch->match);
        core_charge_free(scratch);
    }
}

int token_pcre_find(const struct token_pcre *pcre, struct token_pcre_scratch *scratch,
                    const char *text, size_t bytes, size_t from, size_t bounds[2])
{
    int rc = pcre2_match(pcre->code, (PCRE2_SPTR)text, bytes, from, PCRE2_NO_UTF_CHECK,
                         scratch->match, scratch->context);
    if (rc == PCRE2_ERROR_NOMATCH) {
        return 0;
    }
    if (rc < 0) {
        char message[200];
        pcre2_get_error_message(rc, (PCRE2_UCHAR *)message, sizeof message);
        return core_err_set(-E2BIG, "regular expression of the tokenizer, byte %zu of the text: %s",
                            from, message);
    }
    const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(scratch->match);
    bounds[0] = ends[0];
    bounds[1] = ends[1];
    return bounds[1] >= bounds[0] ? 1 : 0;
}
