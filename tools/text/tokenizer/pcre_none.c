/* pcre_none.c: replaces pcre.c if tide is built without PCRE2. */
#include <errno.h>

#include "core/base/err.h"
#include "tools/text/tokenizer/pcre.h"

int token_pcre_create(const char *regex, size_t bytes, const char *what, struct token_pcre **out)
{
    (void)out;
    return core_err_set(-ENOTSUP,
                        "%s: the regular expression %.*s needs PCRE2, and this tide was "
                        "built without it",
                        what, (int)(bytes > 200 ? 200 : bytes), regex);
}

void token_pcre_destroy(struct token_pcre *pcre)
{
    (void)pcre;
}

/* Returns true so that token_pcre_create() reports the missing library. */
bool token_pcre_has_script(const char *name, size_t bytes)
{
    (void)name;
    (void)bytes;
    return true;
}

int token_pcre_scratch_create(struct token_pcre_scratch **out)
{
    *out = NULL;
    return 0;
}

void token_pcre_scratch_destroy(struct token_pcre_scratch *scratch)
{
    (void)scratch;
}

int token_pcre_find(const struct token_pcre *pcre, struct token_pcre_scratch *scratch,
                    const char *text, size_t bytes, size_t from, size_t bounds[2])
{
    (void)pcre;
    (void)scratch;
    (void)text;
    (void)bytes;
    (void)bounds;
    return core_err_set(-ENOTSUP, "byte %zu: this tide was built without PCRE2", from);
}
