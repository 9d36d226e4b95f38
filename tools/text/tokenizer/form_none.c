/* form_none.c: replaces form.c if tide is built without utf8proc. */
#include <errno.h>

#include "core/base/err.h"
#include "tools/text/tokenizer/form.h"

int token_form_create(enum token_form_kind kind, const char *what, struct token_form **out)
{
    (void)kind;
    (void)out;
    return core_err_set(-ENOTSUP, "%s needs utf8proc, and this tide was built without it", what);
}

void token_form_destroy(struct token_form *form)
{
    (void)form;
}

size_t token_form_pass(const struct token_form *form, const char *text, size_t bytes)
{
    (void)form;
    (void)text;
    return bytes;
}

size_t token_form_reach(const struct token_form *form, const char *text, size_t bytes)
{
    (void)form;
    (void)text;
    return bytes;
}

int token_form_apply(const struct token_form *form, const char *text, size_t bytes,
                     struct token_form_char **out, size_t *count)
{
    (void)form;
    (void)text;
    (void)out;
    (void)count;
    return core_err_set(-ENOTSUP,
                        "cannot normalize %zu bytes: this tide was built without utf8proc", bytes);
}

int token_form_lower(uint32_t point, uint32_t out[2])
{
    out[0] = point;
    return -ENOTSUP;
}

int token_form_upper(uint32_t point, uint32_t out[2])
{
    out[0] = point;
    return -ENOTSUP;
}

int token_form_category(uint32_t point, enum token_category *out)
{
    *out = token_category_of(point);
    return 0;
}
