/* test_cli.c: tests the option parser. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "tests/harness/test.h"
#include "tools/tide/cli.h"

static const struct cli_command command = {.program = "prog",
                                           .summary = "does",
                                           .arguments = "DIR...",
                                           .arguments_max = 2,
                                           .example = "prog x"};

struct values {
    bool flag;
    int64_t count;
    uint64_t bytes;
    struct cli_texts texts;
};

static int parse(unsigned count, const char *const *words, struct values *out,
                 struct cli_parsed *parsed)
{
    char *argv[8] = {NULL};
    for (unsigned i = 0; i < count; i++) {
        argv[i] = (char *)(uintptr_t)words[i];
    }
    const struct cli_option options[] = {
        {"io_size", CLI_SIZE, &out->bytes, "SIZE", "bytes", 0, 0, NULL, NULL},
        {"dry-run", CLI_FLAG, &out->flag, NULL, "nothing is done", 0, 0, NULL, NULL},
        {"n", CLI_INTEGER, &out->count, "N", "how many", 1, 9, NULL, NULL},
        {"folder", CLI_TEXTS, &out->texts, "DIR", NULL, 0, 0, NULL, NULL},
    };
    return cli_parse(&command, options, 4, (int)count, argv, parsed);
}

/* "-" and "_" are equal in names; abbreviations are refused. */
static void names(void)
{
    static const char *const good[] = {"--io-size=1M", "--dry_run", "--folder", "a", "--folder=b"};
    struct values values = {0};
    struct cli_parsed parsed;
    check_int(parse(5, good, &values, &parsed), ==, -1);
    check_uint(values.bytes, ==, 1 << 20);
    check_true(values.flag);
    check_uint(values.texts.count, ==, 2);
    check_string(values.texts.items[1], "b");
    static const char *const bad[] = {"--io", "--io_size_max", "--io-sizes", "--dry-ru", "--n=10"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        check_int(parse(1, &bad[i], &values, &parsed), ==, CLI_WRONG);
    }
    static const char *const many[] = {"a", "b", "c"};
    check_int(parse(3, many, &values, &parsed), ==, CLI_WRONG);
}

static void codes(void)
{
    core_err_set(-EIO, "a message");
    check_int(cli_fail(&command, CLI_FAILED, NULL), ==, CLI_FAILED);
    check_int(cli_fail(&command, CLI_NO_FIT, "%d", 3), ==, CLI_NO_FIT);
    check_int(cli_close(&command, CLI_NOT_VERIFIED), ==, CLI_NOT_VERIFIED);
}

/* Output to a file has no colours, and columns fit their cells. */
static void tables(void)
{
    char *text = NULL;
    size_t bytes = 0;
    struct cli_table *table = NULL;
    FILE *out = open_memstream(&text, &bytes);
    check_true(out != NULL);
    check_true(!cli_color(out));
    check_int(cli_table_create(2, &table), ==, 0);
    check_int(cli_table_add(table, (const char *const[]){"a", "one"}), ==, 0);
    check_int(cli_table_add(table, (const char *const[]){"long", NULL}), ==, 0);
    cli_table_print(table, out, "> ");
    cli_table_destroy(table);
    fclose(out);
    check_contains(text, "> a     one\n> long");
    free(text);
}

TEST_MAIN({"names", names}, {"codes", codes}, {"tables", tables})
