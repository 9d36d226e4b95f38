/* lex_string.h: escapes of string constants (private to tools/text/template/lex.c). */
#ifndef TOOLS_TEXT_TEMPLATE_LEX_STRING_H
#define TOOLS_TEXT_TEMPLATE_LEX_STRING_H

#include "tools/text/template/value.h"

/* What stands between the quotes, with Python's escapes understood; an unknown escape stays. */
struct template_value template_unescape(struct text_template_run *run, const char *text,
                                        size_t bytes);

#endif
