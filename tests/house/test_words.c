/* test_words.c: one name for one thing, no leftovers, and the shape of a file: how long, what its
 * first comment says, which constructs of C stay out. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/test.h"
#include "tests/house/house.h"

enum { LINES_MAX = 500, TEST_LINES_MAX = 600 };

/* Words that stay out of code, comments and documents, and what is said instead. */
static const struct word {
    const char *word;
    const char *instead;
} words[] = {
    /* Synonyms of the words that docs/ARCHITECTURE.md defines. */
    {"worker", "rank, queue or thread"},
    {"workers", "ranks, queues or threads"},
    {"microbatch", "micro_batch"},
    {"ticket", "fence"},
    {"opcode", "command"},
    {"cmdlist", "tape"},
    {"blob", "extent, chunk or the bytes' own name"},
    /* Leftovers. */
    {"todo", "done work"},
    {"fixme", "done work"},
    {"xxx", "done work"},
    {"hack", "what it does and why"},
    {"stub", "an absent file that says why"},
    {"placeholder", "the thing itself"},
    {"wip", "done work"},
    /* Names that say nothing. */
    {"util", "what it does"},
    {"utils", "what it does"},
    {"misc", "what it does"},
    {"helper", "what it does"},
    {"helpers", "what they do"},
    {"session", "run"},
};

/* Pieces of text that stay out of the code that is delivered. */
static const struct piece {
    const char *text;
    const char *why;
} pieces[] = {
    {"typedef struct", "structs have no typedef"}, {"typedef union", "unions have no typedef"},
    {"typedef enum", "enums have no typedef"},     {"alloca(", "the stack has no maximum then"},
    {"strcpy(", "snprintf knows the size"},        {"strcat(", "snprintf knows the size"},
    {" sprintf(", "snprintf knows the size"},      {" gets(", "it has no size"},
    {"__DATE__", "a build is the same every day"}, {"__TIME__", "a build is the same every day"},
};

static bool exempt(const char *path)
{
    return house_starts(path, "tests/house/") || house_starts(path, "tests/fixtures/") ||
           house_ends(path, ".txt") || strstr(path, "/fixtures/") != NULL;
}

/* The keys of a ds_config.json are named by DeepSpeed. */
static bool quotes_keys(const char *path)
{
    return house_starts(path, "core/base/cfg_keys_") || strcmp(path, "docs/ds_config.md") == 0;
}

static bool is_code(const char *path)
{
    return house_ends(path, ".c") || house_ends(path, ".h") || house_ends(path, ".cu") ||
           house_ends(path, ".cuh") || house_ends(path, ".inc");
}

/* Compares each part of an identifier (worker_count has two) with the banned words. */
static void check_word(struct house_report *report, const struct house_file *file, size_t at,
                       size_t length)
{
    for (size_t from = 0; from < length;) {
        size_t to = from;
        while (to < length && file->text[at + to] != '_') {
            to++;
        }
        for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
            if (strlen(words[i].word) == to - from &&
                strncasecmp(file->text + at + from, words[i].word, to - from) == 0) {
                house_breach(report, file, house_line(file->text, at), "says %s; say %s",
                             words[i].word, words[i].instead);
            }
        }
        from = to + 1;
    }
}

static void check_words(struct house_report *report, const struct house_file *file)
{
    for (size_t at = 0; file->text[at] != '\0';) {
        size_t length = house_word(file->text, at);
        if (length > 0) {
            check_word(report, file, at, length);
        }
        at += length > 0 ? length : 1;
    }
}

/* A reason stands in the text; a number in somebody's tracker explains nothing to a reader. */
static void check_references(struct house_report *report, const struct house_file *file)
{
    static const char *const paths[] = {"/home/", "/root/", "/Users/", "/mnt/"};
    for (const char *at = file->text; (at = strcasestr(at, "issue ")) != NULL; at++) {
        bool word = at == file->text || !isalpha((unsigned char)at[-1]);
        if (word && (isdigit((unsigned char)at[6]) || at[6] == '#')) {
            house_breach(report, file, house_line(file->text, (size_t)(at - file->text)),
                         "names an issue's number instead of the reason");
        }
    }
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        for (const char *at = file->text; (at = strstr(at, paths[i])) != NULL; at++) {
            bool absolute = at == file->text ||
                            (!isalnum((unsigned char)at[-1]) && strchr("._-~/}*)", at[-1]) == NULL);
            if (absolute) {
                house_breach(report, file, house_line(file->text, (size_t)(at - file->text)),
                             "names a path under %s that only one machine has", paths[i]);
            }
        }
    }
}

static void check_pieces(struct house_report *report, const struct house_file *file)
{
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        for (const char *at = file->code; (at = strstr(at, pieces[i].text)) != NULL; at++) {
            house_breach(report, file, house_line(file->code, (size_t)(at - file->code)),
                         "has `%s`: %s", pieces[i].text, pieces[i].why);
        }
    }
}

/* The first comment starts with the file's name, so that it is there and of this file; what a test
 * is for its comment says without. */
static void check_shape(struct house_report *report, const struct house_file *file)
{
    const char *slash = strrchr(file->path, '/');
    char opening[300];
    if (house_starts(file->path, "tests/")) {
        snprintf(opening, sizeof opening, "/* ");
    } else {
        snprintf(opening, sizeof opening, "/* %s: ", slash == NULL ? file->path : slash + 1);
    }
    if (!house_starts(file->text, opening)) {
        house_breach(report, file, 1, "does not open with `%s...`, what it is for", opening);
    }
    size_t lines = house_line(file->text, strlen(file->text)) - 1;
    int most = house_starts(file->path, "tests/") ? TEST_LINES_MAX : LINES_MAX;
    if (lines > (size_t)most) {
        house_breach(report, file, lines, "has %zu lines, more than %d", lines, most);
    }
}

static void check_build(struct house_report *report, const struct house_file *file)
{
    if (strstr(file->text, "fast-math") != NULL || strstr(file->text, "-Ofast") != NULL) {
        house_breach(report, file, 0, "asks for arithmetic that differs from what is written");
    }
}

static void rule_words(const struct house_tree *tree, struct house_report *report)
{
    for (size_t i = 0; i < tree->count; i++) {
        const struct house_file *file = &tree->files[i];
        if (exempt(file->path)) {
            continue;
        }
        if (!quotes_keys(file->path)) {
            check_words(report, file);
        }
        check_references(report, file);
        if (is_code(file->path)) {
            if (!house_starts(file->path, "tests/")) {
                check_pieces(report, file);
            }
            check_shape(report, file);
        } else if (house_ends(file->path, "meson.build")) {
            check_build(report, file);
        }
    }
}

/* The checkout uses the project's words and shapes. */
static void words_hold(void)
{
    house_check_tree(rule_words);
}

/* Each kind of breach is found where it was planted: words as parts of names, in any case. */
static void words_are_found(void)
{
    static const struct house_plant plants[] = {
        {"a/good.c", "/* good.c: hackney coaches work; networkers; tissue 7, issues */\n"},
        {"a/a.c", "/* a.c: ok */\nint team_Worker_count;\n"},
        {"a/left.c", "/* left.c: ok */\n\n// TODO: later\n"},
        {"a/type.c", "/* type.c: ok */\ntypedef struct x x; /* typedef union */\n"},
        {"a/number.c", "/* number.c: see Issue 12 */\n"},
        {"a/path.md", "Look in `/root/models`, not in ~/root/ or a/root/.\n"},
        {"a/bare.c", "int x;\n"},
        {"a/other.h", "/* bare.c: another file's comment */\n"},
        {"a/meson.build", "args = ['-ffast-math']\n"},
        {"tests/house/w.c", "worker\n"},
    };
    const char *text = house_check_planted(rule_words, plants, sizeof plants / sizeof plants[0], 8);
    check_contains(text, "a/a.c:2: says worker");
    check_contains(text, "a/left.c:3: says todo");
    check_contains(text, "a/type.c:2: has `typedef struct`");
    check_contains(text, "a/number.c:1: names an issue's number");
    check_contains(text, "a/path.md:1: names a path under /root/");
    check_contains(text, "a/bare.c:1: does not open");
    check_contains(text, "a/other.h:1: does not open");
    check_contains(text, "a/meson.build:0: asks for arithmetic");
}

/* A file of one line too many is found, one of just enough is not. */
static void length_is_found(void)
{
    char text[LINES_MAX + 64];
    int length = snprintf(text, sizeof text, "/* long.c: many lines */\n");
    memset(text + length, '\n', LINES_MAX);
    text[length + LINES_MAX] = '\0';
    struct house_plant one = {"a/long.c", text};
    check_contains(house_check_planted(rule_words, &one, 1, 1), "has 501 lines");
    text[length + LINES_MAX - 1] = '\0';
    house_check_planted(rule_words, &one, 1, 0);
}

TEST_MAIN({"words_hold", words_hold}, {"words_are_found", words_are_found},
          {"length_is_found", length_is_found})
