/* tree.h: a tree of source files in memory, and violations of rules. A rule's program runs it over
 * the checkout, where it must find nothing, and over a planted tree. One thread. */
#ifndef TESTS_RULES_TREE_H
#define TESTS_RULES_TREE_H

#include <stdbool.h>
#include <stddef.h>

struct rules_file {
    char *path; /* owned; from the root of the tree, as `core/base/err.h` */
    char *text; /* owned; ends in NUL */
    char *code; /* owned; `text` without C's comments and literals, except names of includes */
};

struct rules_tree {
    struct rules_file *files; /* owned */
    size_t count;
};

struct rules_report {
    char *text; /* owned; one line per violation: `path:line: message` */
    size_t bytes;
    int count;
};

struct rules_plant {
    const char *path;
    const char *text;
};

typedef void rule_fn(const struct rules_tree *tree, struct rules_report *report);

/* Adds a violation in line `at`, from 1, or 0 for the whole file. */
void rules_violation(struct rules_report *report, const struct rules_file *file, size_t at,
                     const char *format, ...) __attribute__((format(printf, 4, 5)));

bool rules_starts(const char *text, const char *prefix);
bool rules_ends(const char *text, const char *suffix);
/* Returns a path's folder without the last slash, or ""; the caller frees it. */
char *rules_folder(const char *path);
const struct rules_file *rules_find(const struct rules_tree *tree, const char *path);
/* Returns the line number of text[at], from 1. */
size_t rules_line(const char *text, size_t at);

/* Fails the case and prints the violations if the checkout breaks the rule. */
void rules_check_tree(rule_fn *rule);
/* Checks the number of violations in a planted tree. Returns the report, valid until the next
 * call. */
const char *rules_check_planted(rule_fn *rule, const struct rules_plant *plants, size_t count,
                                int violations);

#endif
