/* tree.c: reads a tree of sources, and collects violations of rules. */
#include "tests/rules/tree.h"

#include <ctype.h>
#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "tests/harness/test.h"

static const char *const suffixes[] = {".c",  ".h",  ".cu",    ".cuh", ".inc",
                                       ".md", ".sh", ".build", ".awk", ".txt"};

void rules_violation(struct rules_report *report, const struct rules_file *file, size_t at,
                     const char *format, ...)
{
    char message[512];
    va_list list;
    va_start(list, format);
    vsnprintf(message, sizeof message, format, list);
    va_end(list);
    char line[1024];
    int length = snprintf(line, sizeof line, "%s:%zu: %s\n", file->path, at, message);
    size_t more = length < (int)sizeof line ? (size_t)length : sizeof line - 1;
    char *text = realloc(report->text, report->bytes + more + 1);
    if (text == NULL) {
        test_fail(__FILE__, __LINE__, "no memory");
    }
    memcpy(text + report->bytes, line, more + 1);
    report->text = text;
    report->bytes += more;
    report->count++;
}

bool rules_starts(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

bool rules_ends(const char *text, const char *suffix)
{
    size_t length = strlen(text);
    size_t tail = strlen(suffix);
    return length >= tail && strcmp(text + length - tail, suffix) == 0;
}

char *rules_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    return strndup(path, slash == NULL ? 0 : (size_t)(slash - path));
}

const struct rules_file *rules_find(const struct rules_tree *tree, const char *path)
{
    for (size_t i = 0; i < tree->count; i++) {
        if (strcmp(tree->files[i].path, path) == 0) {
            return &tree->files[i];
        }
    }
    return NULL;
}

size_t rules_line(const char *text, size_t at)
{
    size_t line = 1;
    for (size_t i = 0; i < at; i++) {
        line += text[i] == '\n';
    }
    return line;
}

/* Blanks text[from, to) except its line ends. */
static void blank(char *text, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        if (text[i] != '\n') {
            text[i] = ' ';
        }
    }
}

/* Returns the end of the comment or literal that starts at `at`, or `at`. */
static size_t skip_token(const char *text, size_t at)
{
    if (text[at] == '/' && text[at + 1] == '*') {
        const char *end = strstr(text + at + 2, "*/");
        return end == NULL ? strlen(text) : (size_t)(end - text) + 2;
    }
    if (text[at] == '/' && text[at + 1] == '/') {
        return at + strcspn(text + at, "\n");
    }
    bool digit_mark = text[at] == '\'' && at > 0 && isalnum((unsigned char)text[at - 1]);
    if (text[at] != '"' && (text[at] != '\'' || digit_mark)) {
        return at;
    }
    size_t end = at + 1;
    while (text[end] != '\0' && text[end] != '\n' && text[end] != text[at]) {
        end += text[end] == '\\' && text[end + 1] != '\0' ? 2 : 1;
    }
    return text[end] == text[at] ? end + 1 : end;
}

static char *code_of(const char *text)
{
    char *code = strdup(text);
    for (size_t at = 0; code != NULL && text[at] != '\0';) {
        size_t end = skip_token(text, at);
        bool include = text[at] == '"' && end > at && at >= 8 &&
                       strncmp(text + at - 8, "include ", 8) == 0;
        if (end > at && !include) {
            blank(code, at, end);
        }
        at = end > at ? end : at + 1;
    }
    return code;
}

static char *read_whole(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return NULL;
    }
    char *text = NULL;
    size_t bytes = 0;
    for (;;) {
        char *more = realloc(text, bytes + 65537);
        if (more == NULL) {
            break;
        }
        text = more;
        size_t got = fread(text + bytes, 1, 65536, file);
        bytes += got;
        text[bytes] = '\0';
        if (got == 0) {
            fclose(file);
            return text;
        }
    }
    fclose(file);
    free(text);
    return NULL;
}

static bool is_source(const char *name)
{
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        if (rules_ends(name, suffixes[i])) {
            return true;
        }
    }
    return false;
}

/* Returns `folder/name`, or `name` in the root; the caller frees it. */
static char *join(const char *folder, const char *name)
{
    char *path = NULL;
    if (asprintf(&path, "%s%s%s", folder, folder[0] == '\0' ? "" : "/", name) < 0) {
        test_fail(__FILE__, __LINE__, "no memory");
    }
    return path;
}

static void add_file(struct rules_tree *tree, const char *whole, const char *path)
{
    struct rules_file file = {.path = strdup(path), .text = read_whole(whole)};
    file.code = file.text == NULL ? NULL : code_of(file.text);
    struct rules_file *files = realloc(tree->files, (tree->count + 1) * sizeof *files);
    if (files == NULL || file.path == NULL || file.code == NULL) {
        test_fail(__FILE__, __LINE__, "%s cannot be read", whole);
    }
    files[tree->count++] = file;
    tree->files = files;
}

static void walk(struct rules_tree *tree, const char *root, const char *folder);

/* Adds a source or a folder; skips hidden names and build trees. */
static void walk_name(struct rules_tree *tree, const char *root, const char *folder,
                      const char *name)
{
    char *path = join(folder, name);
    char *whole = join(root, path);
    struct stat info;
    bool ours = name[0] != '.' && lstat(whole, &info) == 0;
    if (ours && S_ISDIR(info.st_mode) && !rules_starts(name, "build")) {
        walk(tree, root, path);
    } else if (ours && S_ISREG(info.st_mode) && is_source(name)) {
        add_file(tree, whole, path);
    }
    free(whole);
    free(path);
}

static void walk(struct rules_tree *tree, const char *root, const char *folder)
{
    char *whole = join(root, folder);
    struct dirent **names;
    int count = scandir(whole, &names, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        walk_name(tree, root, folder, names[i]->d_name);
        free(names[i]);
    }
    if (count >= 0) {
        free(names);
    }
    free(whole);
}

static void tree_free(struct rules_tree *tree)
{
    for (size_t i = 0; i < tree->count; i++) {
        free(tree->files[i].path);
        free(tree->files[i].text);
        free(tree->files[i].code);
    }
    free(tree->files);
    *tree = (struct rules_tree){0};
}

void rules_check_tree(rule_fn *rule)
{
    char root[4096];
    snprintf(root, sizeof root, "%s/..", test_root());
    struct rules_tree tree = {0};
    struct rules_report report = {0};
    walk(&tree, root, "");
    check_int(tree.count, >, 20);
    rule(&tree, &report);
    for (char *line = report.text; line != NULL && *line != '\0';) {
        char *end = strchr(line, '\n');
        *end = '\0';
        test_note("%s", line);
        line = end + 1;
    }
    check_int(report.count, ==, 0);
    free(report.text);
    tree_free(&tree);
}

static void plant(const char *root, const struct rules_plant *one)
{
    char *path = join(root, one->path);
    for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *file = fopen(path, "w");
    if (file == NULL || fputs(one->text, file) < 0 || fclose(file) != 0) {
        test_fail(__FILE__, __LINE__, "%s cannot be written", path);
    }
    free(path);
}

const char *rules_check_planted(rule_fn *rule, const struct rules_plant *plants, size_t count,
                                int violations)
{
    static int trees;
    static struct rules_report report;
    char root[1024];
    snprintf(root, sizeof root, "%s/planted%d", test_directory(), trees++);
    mkdir(root, 0700);
    for (size_t i = 0; i < count; i++) {
        plant(root, &plants[i]);
    }
    free(report.text);
    report = (struct rules_report){0};
    struct rules_tree tree = {0};
    walk(&tree, root, "");
    rule(&tree, &report);
    tree_free(&tree);
    if (report.count != violations) {
        test_note("%s", report.text != NULL ? report.text : "no violation");
    }
    check_int(report.count, ==, violations);
    return report.text != NULL ? report.text : "";
}
