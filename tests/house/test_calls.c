/* test_calls.c: every function that a header declares is named by some test.
 *
 * A header that nobody outside its folder includes, or whose first comment says "private to" some
 * files, is no interface: its functions are tested through that of their room, and here only have to
 * be used by a second file. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/test.h"
#include "tests/house/house.h"

/* Functions that no test can call, each with the reason. Empty is right. */
static const struct excuse {
    const char *name;
    const char *why;
} excuses[] = {
    {"", "nothing is excused"},
};

/* The identifiers that tests use: sorted, once each. */
struct word_list {
    char **words; /* owned */
    size_t count;
    size_t room;
};

static int compare_words(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

static void add_words(struct word_list *list, const char *code)
{
    for (size_t at = 0; code[at] != '\0';) {
        size_t length = house_word(code, at);
        if (length > 0) {
            if (list->count == list->room) {
                list->room = list->room * 2 + 1024;
                list->words = realloc(list->words, list->room * sizeof *list->words);
                check_true(list->words != NULL);
            }
            list->words[list->count++] = strndup(code + at, length);
        }
        at += length > 0 ? length : 1;
    }
}

static struct word_list words_of_tests(const struct house_tree *tree)
{
    struct word_list list = {0};
    for (size_t i = 0; i < tree->count; i++) {
        const struct house_file *file = &tree->files[i];
        if (house_starts(file->path, "tests/") && !house_ends(file->path, ".md") &&
            !house_ends(file->path, ".build")) {
            add_words(&list, file->code);
        }
    }
    if (list.count > 0) {
        qsort(list.words, list.count, sizeof *list.words, compare_words);
    }
    return list;
}

static bool is_used(const struct word_list *list, char *name)
{
    for (size_t i = 0; i < sizeof excuses / sizeof excuses[0]; i++) {
        if (strcmp(excuses[i].name, name) == 0) {
            return true;
        }
    }
    return list->count > 0 &&
           bsearch(&name, list->words, list->count, sizeof *list->words, compare_words) != NULL;
}

/* Blanks preprocessor lines, with the lines they go on in. */
static void blank_directives(char *code)
{
    bool directive = false;
    for (char *line = code; *line != '\0';) {
        size_t length = strcspn(line, "\n");
        bool goes_on = length > 0 && line[length - 1] == '\\';
        directive |= line[strspn(line, " \t")] == '#';
        if (directive) {
            memset(line, ' ', length);
        }
        directive = directive && goes_on;
        line += length + (line[length] == '\n');
    }
}

/* Just behind the bracket that closes the one at `at`. */
static size_t close_of(const char *code, size_t at)
{
    char open = code[at];
    char shut = open == '(' ? ')' : '}';
    for (int depth = 0; code[at] != '\0'; at++) {
        depth += code[at] == open;
        depth -= code[at] == shut;
        if (depth == 0) {
            return at + 1;
        }
    }
    return at;
}

static bool has_small_letter(const char *name)
{
    bool has = false;
    for (; *name != '\0'; name++) {
        has |= islower((unsigned char)*name) != 0;
    }
    return has;
}

/* The name in front of the bracket at `at`, or an empty word: keywords declare nothing, and what has
 * capitals alone is a macro, which may declare many. */
static void name_before(const char *code, size_t at, char *name, size_t bytes)
{
    static const char *const keywords[] = {
        "__attribute__", "_Static_assert", "_Alignas", "sizeof", "void", "int", "if",
        "for",           "while",          "defined"};
    size_t end = at;
    while (end > 0 && isspace((unsigned char)code[end - 1])) {
        end--;
    }
    size_t begin = end;
    while (begin > 0 && (isalnum((unsigned char)code[begin - 1]) || code[begin - 1] == '_')) {
        begin--;
    }
    snprintf(name, bytes, "%.*s", (int)(end - begin), code + begin);
    if (!has_small_letter(name)) {
        name[0] = '\0';
    }
    for (size_t i = 0; i < sizeof keywords / sizeof keywords[0]; i++) {
        if (strcmp(name, keywords[i]) == 0 || house_starts(name, "__")) {
            name[0] = '\0';
        }
    }
}

/* A function's name and the line of its declaration. */
struct place {
    char name[128];
    size_t line;
    bool body; /* defined here, not only declared */
};

static bool is_word(const char *text, size_t length, const char *word)
{
    return strlen(word) == length && memcmp(text, word, length) == 0;
}

/* Somebody in another folder includes it. */
static bool is_seen(const struct house_tree *tree, const struct house_file *header)
{
    char line[300];
    char *folder = house_folder(header->path);
    size_t length = strlen(folder);
    bool public = house_starts(header->path, "include/");
    snprintf(line, sizeof line, public ? "<%s>" : "\"%s\"", header->path + (public ? 8 : 0));
    bool seen = false;
    for (size_t i = 0; i < tree->count && !seen; i++) {
        const struct house_file *file = &tree->files[i];
        bool same = strncmp(file->path, folder, length) == 0 && file->path[length] == '/' &&
                    strchr(file->path + length + 1, '/') == NULL;
        seen = !same && strstr(file->code, line) != NULL;
    }
    free(folder);
    return seen;
}

static bool is_private(const struct house_tree *tree, const struct house_file *file)
{
    if (!is_seen(tree, file)) {
        return true;
    }
    char opening[1024];
    snprintf(opening, sizeof opening, "%s", file->text);
    char *end = strstr(opening, "*/");
    if (end != NULL) {
        *end = '\0';
    }
    return strcasestr(opening, "private to") != NULL;
}

static bool names_word(const char *code, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = code; (at = strstr(at, name)) != NULL; at++) {
        if (house_word(code, (size_t)(at - code)) == length) {
            return true;
        }
    }
    return false;
}

/* Two files beside headers name it: the one that defines it and one that needs it. */
static bool is_shared(const struct house_tree *tree, const char *name)
{
    int files = 0;
    for (size_t i = 0; i < tree->count && files < 2; i++) {
        const struct house_file *file = &tree->files[i];
        bool source = house_ends(file->path, ".c") || house_ends(file->path, ".cu");
        files += source && names_word(file->code, name);
    }
    return files == 2;
}

static void check_function(const struct house_tree *tree, struct house_report *report,
                           const struct word_list *used, const struct house_file *file,
                           struct place *where)
{
    if (is_used(used, where->name)) {
        return;
    }
    if (!is_private(tree, file)) {
        house_breach(report, file, where->line, "no test names %s()", where->name);
    } else if (!where->body && !is_shared(tree, where->name)) {
        house_breach(report, file, where->line, "nobody needs %s()", where->name);
    }
}

/* Walks the declarations of a header; the first name with a bracket in each is a function. What is
 * static is the body of somebody else's function, what starts with two underscores the compiler's. */
static void check_header(const struct house_tree *tree, struct house_report *report,
                         const struct word_list *used, const struct house_file *file)
{
    char *code = strdup(file->code);
    check_true(code != NULL);
    blank_directives(code);
    bool done = false; /* the declaration at hand is a typedef, static, or has its name already */
    for (size_t at = 0; code[at] != '\0';) {
        size_t length = house_word(code, at);
        if (length > 0) {
            done |= is_word(code + at, length, "typedef") || is_word(code + at, length, "static");
            size_t brace = at + length + strspn(code + at + length, " \n\t");
            bool language = is_word(code + at, length, "extern") && code[brace] == '{';
            at = language ? brace + 1 : at + length;
        } else if (code[at] == '(') {
            struct place where = {.line = house_line(code, at)};
            name_before(code, at, where.name, sizeof where.name);
            if (where.name[0] != '\0' && !done) {
                done = true;
                size_t end = close_of(code, at);
                where.body = code[end + strspn(code + end, " \n\t")] == '{';
                check_function(tree, report, used, file, &where);
            }
            at = close_of(code, at);
        } else {
            done = done && code[at] != ';' && code[at] != '{';
            at = code[at] == '{' ? close_of(code, at) : at + 1;
        }
    }
    free(code);
}

static void rule_calls(const struct house_tree *tree, struct house_report *report)
{
    struct word_list used = words_of_tests(tree);
    for (size_t i = 0; i < tree->count; i++) {
        const struct house_file *file = &tree->files[i];
        if (house_ends(file->path, ".h") && !house_starts(file->path, "tests/")) {
            check_header(tree, report, &used, file);
        }
    }
    for (size_t i = 0; i < used.count; i++) {
        free(used.words[i]);
    }
    free(used.words);
}

/* Every function in a header has a test that names it. */
static void calls_hold(void)
{
    house_check_tree(rule_calls);
}

/* Declarations of every shape are seen, and what only looks like one is not. */
static void silence_is_found(void)
{
    static const struct house_plant plants[] = {
        {"a/a.h", "#ifndef A\n#define A_MACRO(x) \\\n    a_in_macro(x)\n"
                  "#ifdef __cplusplus\nextern \"C\" {\n#endif\n"
                  "int a_called(void);\nA_EACH(A_DECLARE)\n"
                  "int a_silent(int (*with)(void), int size)\n    __attribute__((cold));\n"
                  "_Noreturn void a_gone(void) __attribute__((noreturn));\n"
                  "static inline int a_inline(int x)\n{\n    return a_body(x);\n}\n"
                  "typedef int a_type(int x);\n"
                  "struct a {\n    int (*a_member)(int);\n};\n"
                  "enum { A_SIZE = sizeof(int) };\n"
                  "_Static_assert(A_SIZE == 4, \"a_text()\");\n"
                  "/* a_comment(); */\n"
                  "const struct a *a_pointer(void);\n"
                  "__attribute__((format(printf, 1, 2))) void a_front(const char *format, ...);\n"
                  "#ifdef __cplusplus\n}\n#endif\n#endif\n"},
        {"a/b.h", "/* b.h: a part. */\nint b_body(void) { return 1; }\nint b_lonely(void);\nint "
                  "b_shared(void);\n"},
        {"a/b.c", "int b_lonely(void) { return 0; }\nint b_shared(void) { return b_lonely(); }\n"},
        {"a/c.c", "int c(void) { return b_shared(); }\n"},
        {"tests/x/test_a.c",
         "#include \"a/a.h\"\nvoid f(void) { a_called(); /* a_silent(); */ puts(\"a_gone\"); }\n"},
        {"tests/x/README.md", "a_inline()\n"},
    };
    const char *text = house_check_planted(rule_calls, plants, sizeof plants / sizeof plants[0], 5);
    check_contains(text, "a/a.h:9: no test names a_silent()");
    check_contains(text, "a/a.h:11: no test names a_gone()");
    check_contains(text, "a/b.h:3: nobody needs b_lonely()");
    check_contains(text, "no test names a_pointer()");
    check_contains(text, "no test names a_front()");
}

TEST_MAIN({"calls_hold", calls_hold}, {"silence_is_found", silence_is_found})
