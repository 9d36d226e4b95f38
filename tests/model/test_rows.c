/* test_rows.c: the reader of rows: a stream of lines, and every line that is none. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/base/err.h"
#include "tests/harness/test.h"
#include "tools/rows/rows.h"

static struct rows *open_text(const char *text)
{
    const struct rows_options options = {.vocab = 100, .length_max = 5};
    struct rows *rows = NULL;
    check_int(rows_open(test_file("rows.jsonl", text, strlen(text)), &options, &rows), ==, 0);
    return rows;
}

/* Rows come in order, with their labels or the ids in their place; other keys, blank lines and the
 * missing end of the last line do not matter; the file can be read again. */
static void reads(void)
{
    struct rows_row row;
    struct rows *rows = open_text("{\"input_ids\": [1, 2, 3]}\n"
                                  "\n  \r\n"
                                  "{\"x\": {\"input_ids\": [9]}, \"labels\": [-100, 5], "
                                  "\"input_ids\": [4, 5]}\r\n"
                                  "{\"input_ids\":[99]}");
    for (int again = 0; again < 2; again++) {
        check_int(rows_next(rows, &row), ==, 1);
        check_uint(row.count, ==, 3);
        check_int(row.ids[2], ==, 3);
        check_int(row.labels[0], ==, 1);
        check_uint(row.line, ==, 1);
        check_int(rows_next(rows, &row), ==, 1);
        check_uint(row.line, ==, 4);
        check_int(row.labels[0], ==, -100);
        check_int(row.ids[0], ==, 4);
        check_int(rows_next(rows, &row), ==, 1);
        check_int(row.ids[0], ==, 99);
        check_int(rows_next(rows, &row), ==, 0);
        check_int(rows_next(rows, &row), ==, 0);
        check_int(rows_rewind(rows), ==, 0);
    }
    rows_close(rows);
}

/* Each wrong line is refused with file, line and what is wrong. */
static void refuses(void)
{
    static const struct {
        const char *line;
        const char *says;
    } cases[] = {
        {"[1]", "a row is an object"},
        {"{}", "no input_ids"},
        {"{\"text\":\"a\"}", "no input_ids"},
        {"{\"input_ids\":[]}", "input_ids is empty"},
        {"{\"input_ids\":3}", "input_ids is no list"},
        {"{\"input_ids\":[1.5]}", "whole numbers"},
        {"{\"input_ids\":[[1]]}", "whole numbers"},
        {"{\"input_ids\":[100]}", "100 is outside the vocabulary of 100"},
        {"{\"input_ids\":[-1]}", "-1 is no token id"},
        {"{\"input_ids\":[9999999999]}", "9999999999 is no token id"},
        {"{\"input_ids\":[1],\"labels\":[-101]}", "labels: -101 is no token id"},
        {"{\"input_ids\":[1],\"labels\":[1,2]}", "2 labels for 1 input_ids"},
        {"{\"input_ids\":[1],\"input_ids\":[2]}", "input_ids stands twice"},
        {"{\"input_ids\":[1,2,3,4,5,6]}", "has 6 tokens, and 5 are possible"},
        {"{\"input_ids\":[1]} x", "rows.jsonl:2"},
        {"{\"input_ids\":[1", "rows.jsonl:2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[200];
        struct rows_row row;
        snprintf(text, sizeof text, "\n%s\n", cases[i].line);
        struct rows *rows = open_text(text);
        check_int(rows_next(rows, &row), ==, -EINVAL);
        check_contains(core_err_sentence(), cases[i].says);
        check_contains(core_err_sentence(), "rows.jsonl:2");
        rows_close(rows);
    }
    struct rows *rows = NULL;
    check_int(rows_open("/nonexistent", NULL, &rows), ==, -ENOENT);
    check_int(rows_open(test_directory(), NULL, &rows), ==, -EISDIR);
    struct rows_row row;
    rows = open_text("");
    check_int(rows_next(rows, &row), ==, 0);
    rows_close(rows);
}

/* Lines that are longer than the reader's buffer, and thousands of them, come out whole. */
static void long_lines(void)
{
    enum { ROWS = 3000, TOKENS = 300, LONG = 400000 };
    char *path = NULL;
    check_true(asprintf(&path, "%s/long.jsonl", test_directory()) > 0);
    FILE *file = fopen(path, "w");
    check_true(file != NULL);
    for (int i = 0; i < ROWS; i++) {
        const int count = i == 1500 ? LONG : TOKENS;
        fprintf(file, "{\"input_ids\":[%d", i);
        for (int j = 1; j < count; j++) {
            fprintf(file, ",%d", j);
        }
        fprintf(file, "]}\n");
    }
    fclose(file);
    struct rows *rows = NULL;
    struct rows_row row;
    check_int(rows_open(path, NULL, &rows), ==, 0);
    for (int i = 0; i < ROWS; i++) {
        check_int(rows_next(rows, &row), ==, 1);
        check_uint(row.count, ==, i == 1500 ? LONG : TOKENS);
        check_int(row.ids[0], ==, i);
        check_int(row.ids[row.count - 1], ==, (int64_t)row.count - 1);
    }
    check_int(rows_next(rows, &row), ==, 0);
    rows_close(rows);
    free(path);
}

TEST_MAIN({"reads", reads}, {"refuses", refuses}, {"long_lines", long_lines})
