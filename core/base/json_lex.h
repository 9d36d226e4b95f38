/* json_lex.h: the words of JSON, for json_scan.c only. Each passes over one word at scan->at, or
 * writes the sentence that says what is wrong with it. */
#ifndef CORE_BASE_JSON_LEX_H
#define CORE_BASE_JSON_LEX_H

#include <stddef.h>

struct core_json_scan;
struct core_json_token;

/* -EINVAL with "source:line:column: ..." for the byte at `offset`. */
int core_json_scan_refuse(const struct core_json_scan *scan, size_t offset, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));

/* What stands at `at`, for a message: the character, or the byte's number. */
const char *core_json_shown(const struct core_json_scan *scan, size_t at, char text[16]);

int core_json_pass_space(struct core_json_scan *scan);
int core_json_pass_string(struct core_json_scan *scan, struct core_json_token *token);
int core_json_pass_number(struct core_json_scan *scan, struct core_json_token *token);
int core_json_pass_literal(struct core_json_scan *scan, struct core_json_token *token);

#endif
