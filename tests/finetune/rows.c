/* rows.c: rows that differ in their first token. */
#include "tests/finetune/rows.h"

#include <stdio.h>

#include "core/base/err.h"
#include "tests/harness/test.h"

const char *rows_file(int rows, int length)
{
    static char text[65536];
    size_t at = 0;
    for (int row = 1; row <= rows; row++) {
        at += (size_t)snprintf(text + at, sizeof text - at, "{\"input_ids\": [%d", row);
        for (int i = 1; i < length; i++) {
            at += (size_t)snprintf(text + at, sizeof text - at, ", %d", 100 + i);
        }
        at += (size_t)snprintf(text + at, sizeof text - at, "]}\n");
    }
    return test_file("rows.jsonl", text, at);
}

struct finetune_data_options rows_options(const char *path)
{
    return (struct finetune_data_options){
        .path = path, .vocab = 1000, .length_max = 64, .batch = 2, .step_max = 3};
}

struct finetune_data *rows_open(const struct finetune_data_options *options)
{
    struct finetune_data *data = NULL;
    int rc = finetune_data_open(options, &data);
    if (rc != 0) {
        test_fail(__FILE__, __LINE__, "%d: %s", rc, core_err_message());
    }
    return data;
}
