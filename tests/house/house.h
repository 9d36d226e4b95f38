/* house.h: what the tests of the house share: the files of a tree in memory and a list of breaches.
 *
 * A rule is a function over a tree that reports breaches. Each rule's program runs it twice: over the
 * checkout, where it must find nothing, and over a small planted tree, where it must find exactly
 * what was planted. One thread. */
#ifndef TESTS_HOUSE_HOUSE_H
#define TESTS_HOUSE_HOUSE_H

#include <stdbool.h>
#include <stddef.h>

struct house_file {
    char *path; /* owned; from the root of the tree, as `core/base/err.h` */
    char *text; /* owned; ends in NUL */
    char *code; /* owned; `text` with comments and literals of C blanked, lines kept */
};

struct house_tree {
    struct house_file *files; /* owned */
    size_t count;
};

struct house_report {
    char *text; /* owned; a line a breach: `path:line: sentence` */
    size_t bytes;
    int count;
};

/* A file of a planted tree. */
struct house_plant {
    const char *path;
    const char *text;
};

typedef void house_rule(const struct house_tree *tree, struct house_report *report);

/* Adds a breach of line `at` (1-based; 0: of the file as a whole). */
void house_breach(struct house_report *report, const struct house_file *file, size_t at,
                  const char *format, ...) __attribute__((format(printf, 4, 5)));

bool house_starts(const char *text, const char *prefix);
bool house_ends(const char *text, const char *suffix);
/* The folder of a path without the last slash, or "" at the root; the caller frees it. */
char *house_folder(const char *path);
const struct house_file *house_find(const struct house_tree *tree, const char *path);
/* The line in which text[at] stands, from 1. */
size_t house_line(const char *text, size_t at);

/* Fails the case, with the breaches printed, if the checkout breaks the rule. */
void house_check_tree(house_rule *rule);
/* Runs the rule over a planted tree; returns the report's text, valid until the program ends. */
const char *house_check_planted(house_rule *rule, const struct house_plant *plants, size_t count,
                                int breaches);

#endif
