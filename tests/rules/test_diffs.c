/* test_diffs.c: the diffs in documents apply to the tree. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/test.h"
#include "tests/rules/tree.h"

/* The position in a document's diff. */
struct reading {
    struct rules_report *report;
    const struct rules_file *document;
    const struct rules_file *target; /* NULL: no such file */
    const char *name;
    size_t name_bytes;
    const char *rest; /* the target's text after the last hunk */
    bool added;
};

static size_t line_bytes(const char *text)
{
    const size_t bytes = strcspn(text, "\n");
    return text[bytes] == '\n' ? bytes + 1 : bytes;
}

static size_t line_of(const struct reading *reading, const char *at)
{
    return rules_line(reading->document->text, (size_t)(at - reading->document->text));
}

static bool fence_ends(const char *line)
{
    return *line == '\0' || rules_starts(line, "```");
}

/* Returns whether a line of a hunk is in the old file; an empty line is kept. */
static bool is_old(const char *line)
{
    return *line == ' ' || *line == '-' || *line == '\n';
}

/* Finds the file of the lines `--- a/PATH` and `+++ b/PATH`. */
static void begin_file(struct reading *reading, const struct rules_tree *tree, const char *line)
{
    reading->added = rules_starts(line, "--- /dev/null");
    const char *path = line + line_bytes(line);
    if (!rules_starts(line, "--- ") || !rules_starts(path, "+++ b/")) {
        rules_violation(reading->report, reading->document, line_of(reading, line),
                        "is not followed by a line \"+++ b/PATH\"");
        return;
    }
    char name[512];
    reading->name = path + strlen("+++ b/");
    reading->name_bytes = strcspn(reading->name, "\n");
    snprintf(name, sizeof name, "%.*s", (int)reading->name_bytes, reading->name);
    reading->target = rules_find(tree, name);
    reading->rest = reading->target != NULL ? reading->target->text : NULL;
    if (reading->added != (reading->target == NULL)) {
        rules_violation(reading->report, reading->document, line_of(reading, line), "%s %s", name,
                        reading->added ? "exists already" : "does not exist");
    }
}

/* Returns the bytes of the hunk's old lines at `text`, or 0 if others are there. */
static size_t match(const char *hunk, const char *end, const char *text)
{
    const char *at = text;
    for (const char *line = hunk; line < end; line += line_bytes(line)) {
        if (!is_old(line)) {
            continue;
        }
        const char *want = *line == '\n' ? line : line + 1;
        const size_t bytes = line_bytes(want);
        if (strncmp(at, want, bytes) != 0) {
            return 0;
        }
        at += bytes;
    }
    return (size_t)(at - text);
}

/* Reports the first old line that the rest of the file lacks. */
static void report_missing(const struct reading *reading, const char *hunk, const char *end)
{
    for (const char *line = hunk; line < end; line += line_bytes(line)) {
        bool found = !is_old(line);
        const char *next = line + line_bytes(line);
        for (const char *text = reading->rest; !found && *text != '\0'; text += line_bytes(text)) {
            found = match(line, next, text) > 0;
        }
        if (!found) {
            rules_violation(reading->report, reading->document, line_of(reading, line),
                            "%.*s does not have the line: %.*s", (int)reading->name_bytes,
                            reading->name, (int)strcspn(line, "\n"), line);
            return;
        }
    }
    rules_violation(reading->report, reading->document, line_of(reading, hunk),
                    "%.*s does not have these lines together", (int)reading->name_bytes,
                    reading->name);
}

/* Moves `rest` past the hunk. */
static void find_hunk(struct reading *reading, const char *hunk, const char *end)
{
    for (const char *text = reading->rest; *text != '\0'; text += line_bytes(text)) {
        const size_t bytes = match(hunk, end, text);
        if (bytes > 0) {
            reading->rest = text + bytes;
            return;
        }
    }
    report_missing(reading, hunk, end);
}

/* Reads "-BEGIN,COUNT" or "-BEGIN" (a count of 1). */
static long header_count(const char *header, char sign)
{
    const char *at = strchr(header, sign);
    char *end = NULL;
    strtol(at != NULL ? at + 1 : header, &end, 10);
    return *end == ',' ? strtol(end + 1, NULL, 10) : 1;
}

/* Checks the hunk of `header`, and returns the text after the hunk. */
static const char *read_hunk(struct reading *reading, const char *header)
{
    const char *hunk = header + line_bytes(header);
    const char *end = hunk;
    long old_count = 0;
    long new_count = 0;
    for (; !fence_ends(end) && !rules_starts(end, "diff ") && !rules_starts(end, "@@ ");
         end += line_bytes(end)) {
        old_count += is_old(end);
        new_count += *end != '-';
    }
    if (header_count(header, '-') != old_count || header_count(header, '+') != new_count) {
        rules_violation(reading->report, reading->document, line_of(reading, header),
                        "the hunk has %ld lines before and %ld after the change, not as it says",
                        old_count, new_count);
    }
    if (reading->rest != NULL && !reading->added) {
        find_hunk(reading, hunk, end);
    }
    return end;
}

static const char *read_diff(struct reading *reading, const struct rules_tree *tree,
                             const char *line)
{
    while (!fence_ends(line)) {
        if (rules_starts(line, "@@ ")) {
            line = read_hunk(reading, line);
            continue;
        }
        if (rules_starts(line, "--- ")) {
            begin_file(reading, tree, line);
        }
        line += line_bytes(line);
    }
    return line;
}

static void rule_diffs(const struct rules_tree *tree, struct rules_report *report)
{
    for (size_t i = 0; i < tree->count; i++) {
        if (!rules_ends(tree->files[i].path, ".md")) {
            continue;
        }
        struct reading reading = {.report = report, .document = &tree->files[i]};
        for (const char *line = tree->files[i].text; *line != '\0'; line += line_bytes(line)) {
            if (rules_starts(line, "```diff\n")) {
                line = read_diff(&reading, tree, line + line_bytes(line));
            }
        }
    }
}

static void diffs_apply(void)
{
    rules_check_tree(rule_diffs);
}

/* Diffs that do not apply are found. */
static void stale_diffs_are_found(void)
{
    static const struct rules_plant plants[] = {
        {"a.c", "one\ntwo\n\nthree\nfour\n"},
        {"docs/right.md", "```diff\ndiff --git a/a.c b/a.c\n--- a/a.c\n+++ b/a.c\n"
                          "@@ -1,2 +1,2 @@ fn()\n one\n-two\n+2\n@@ -3,2 +3,3 @@\n\n three\n+3b\n"
                          "diff --git a/b.c b/b.c\n--- /dev/null\n+++ b/b.c\n@@ -0,0 +1 @@\n+new\n"
                          "```\n@@ -7 +7 @@ is no diff\n"},
        {"docs/gone.md", "```diff\n--- a/a.c\n+++ b/a.c\n@@ -1,2 +1 @@\n one\n-zwei\n```\n"},
        {"docs/order.md", "```diff\n--- a/a.c\n+++ b/a.c\n@@ -4 +4 @@\n three\n"
                          "@@ -1 +1 @@\n one\n```\n"},
        {"docs/apart.md", "```diff\n--- a/a.c\n+++ b/a.c\n@@ -1,2 +1,2 @@\n one\n three\n```\n"},
        {"docs/count.md", "```diff\n--- a/a.c\n+++ b/a.c\n@@ -1,2 +1,2 @@\n one\n+more\n```\n"},
        {"docs/files.md",
         "```diff\n--- a/none.c\n+++ b/none.c\n@@ -1 +1 @@\n x\n"
         "diff --git a/a.c b/a.c\n--- /dev/null\n+++ b/a.c\n@@ -0,0 +1 @@\n+x\n```\n"},
    };
    const char *text = rules_check_planted(rule_diffs, plants, sizeof plants / sizeof plants[0], 6);
    check_contains(text, "docs/gone.md:6: a.c does not have the line: -zwei");
    check_contains(text, "docs/order.md:7: a.c does not have the line:  one");
    check_contains(text, "docs/apart.md:5: a.c does not have these lines together");
    check_contains(text, "docs/count.md:4: the hunk has 1 lines before and 2 after the change");
    check_contains(text, "docs/files.md:2: none.c does not exist");
    check_contains(text, "docs/files.md:7: a.c exists already");
}

TEST_MAIN({"diffs_apply", diffs_apply}, {"stale_diffs_are_found", stale_diffs_are_found})
