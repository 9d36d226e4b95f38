/* test_links.c: links in documents lead to files, and numbers of decisions differ. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "tests/harness/test.h"
#include "tests/rules/tree.h"

/* Root of the tree under test. A link may lead to any file, so the rule asks the file system. */
static char root_of_tree[4096];

static void check_link(struct rules_report *report, const struct rules_file *file, size_t at,
                       const char *target)
{
    char *folder = rules_folder(file->path);
    char path[8192];
    snprintf(path, sizeof path, "%s/%s/%s", root_of_tree, folder, target);
    free(folder);
    struct stat info;
    if (stat(path, &info) != 0) {
        rules_violation(report, file, rules_line(file->text, at),
                        "links to %s, which does not exist", target);
    }
}

/* Finds `](target)` outside of fenced code. */
static void check_document(struct rules_report *report, const struct rules_file *file)
{
    bool fenced = false;
    for (size_t at = 0; file->text[at] != '\0'; at++) {
        bool line_start = at == 0 || file->text[at - 1] == '\n';
        if (line_start && rules_starts(file->text + at, "```")) {
            fenced = !fenced;
        }
        if (fenced || !rules_starts(file->text + at, "](")) {
            continue;
        }
        char target[2048];
        size_t length = strcspn(file->text + at + 2, "#) \n");
        snprintf(target, sizeof target, "%.*s", (int)length, file->text + at + 2);
        if (target[0] != '\0' && strstr(target, "://") == NULL &&
            !rules_starts(target, "mailto:")) {
            check_link(report, file, at, target);
        }
    }
}

static void rule_links(const struct rules_tree *tree, struct rules_report *report)
{
    for (size_t i = 0; i < tree->count; i++) {
        if (rules_ends(tree->files[i].path, ".md")) {
            check_document(report, &tree->files[i]);
        }
    }
}

static void links_hold(void)
{
    snprintf(root_of_tree, sizeof root_of_tree, "%s/..", test_root());
    rules_check_tree(rule_links);
}

/* Only dead links are reported. */
static void dead_links_are_found(void)
{
    static const struct rules_plant plants[] = {
        {"docs/a.md", "[live](b.md#part) [up](../x.c) [site](https://e.org/z) [self](#here)\n"
                      "[dead](gone.md)\n```\n[code](gone.md)\n```\n"},
        {"docs/b.md", "[up](../docs/) [two](a.md), [dead](../docs/missing/)\n"},
        {"x.c", "/* [not a document](gone.md) */\n"},
    };
    snprintf(root_of_tree, sizeof root_of_tree, "%s/planted0", test_directory());
    const char *text = rules_check_planted(rule_links, plants, sizeof plants / sizeof plants[0], 2);
    check_contains(text, "docs/a.md:2: links to gone.md");
    check_contains(text, "docs/b.md:1: links to ../docs/missing/");
}

static const char decisions[] = "docs/decisions/";
enum { NUMBER_DIGITS = 4 }; /* with the hyphen */

static void rule_numbers(const struct rules_tree *tree, struct rules_report *report)
{
    for (size_t i = 0; i < tree->count; i++) {
        const struct rules_file *one = &tree->files[i];
        const char *number = one->path + sizeof decisions - 1;
        if (!rules_starts(one->path, decisions) || strspn(number, "0123456789") != 3) {
            continue;
        }
        for (size_t j = 0; j < tree->count; j++) {
            const char *other = tree->files[j].path;
            if (i != j && rules_starts(other, decisions) &&
                strncmp(other + sizeof decisions - 1, number, NUMBER_DIGITS) == 0) {
                rules_violation(report, one, 0, "has the number of %s", other);
            }
        }
    }
}

static void numbers_are_used_once(void)
{
    rules_check_tree(rule_numbers);
    static const struct rules_plant plants[] = {
        {"docs/decisions/001-a.md", "# a\n"},
        {"docs/decisions/002-b.md", "# b\n"},
        {"docs/decisions/002-c.md", "# c\n"},
        {"docs/decisions/README.md", "# all\n"},
    };
    const char *text = rules_check_planted(rule_numbers, plants, sizeof plants / sizeof plants[0],
                                           2);
    check_contains(text, "002-b.md");
    check_contains(text, "has the number of docs/decisions/002-b.md");
}

TEST_MAIN({"links_hold", links_hold}, {"dead_links_are_found", dead_links_are_found},
          {"numbers_are_used_once", numbers_are_used_once})
