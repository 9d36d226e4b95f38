/* print_batches.c MODEL FILE LENGTH 0|1|pairs: for tests/oracle/trl_rows.py and dpo_rows.py: prints
 * the ids, labels and documents' lengths of a feed's rows (1: packed). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/json/write.h"
#include "tools/text/data/feed.h"

/* Returns the number of a row's tokens without padding. A pair's answer is trained on until its
 * end. */
static int64_t row_tokens(const struct text_batch *batch, int64_t row, bool pairs)
{
    int64_t count = pairs ? batch->length : batch->tokens;
    while (pairs && count > 0 && batch->labels[row * batch->length + count - 1] == -100) {
        count--;
    }
    return count;
}

static void write_row(struct core_json_write *json, const struct text_batch *batch, int64_t row,
                      const struct text_feed_options *options)
{
    const int64_t tokens = row_tokens(batch, row, options->pairs);
    core_json_write_object_begin(json, NULL);
    const int32_t *const arrays[2] = {batch->ids + row * batch->length,
                                      batch->labels + row * batch->length};
    for (int k = 0; k < 2; k++) {
        core_json_write_array_begin(json, k == 0 ? "ids" : "labels");
        for (int64_t t = 0; t < tokens; t++) {
            core_json_write_integer(json, NULL, arrays[k][t]);
        }
        core_json_write_array_end(json);
    }
    if (options->pack) {
        core_json_write_array_begin(json, "lengths");
        for (int64_t t = 0; t < batch->tokens; t++) {
            if (t + 1 == batch->tokens || batch->positions[t + 1] == 0) {
                core_json_write_integer(json, NULL, batch->positions[t] + 1);
            }
        }
        core_json_write_array_end(json);
    } else {
        core_json_write_null(json, "lengths");
    }
    core_json_write_object_end(json);
    core_json_write_end(json);
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        return 2;
    }
    const char *files[] = {argv[2]};
    const bool pairs = strcmp(argv[4], "pairs") == 0;
    const struct text_feed_options options = {.files = files,
                                              .files_count = 1,
                                              .model = argv[1],
                                              .seq_len = atoll(argv[3]),
                                              .batch_rows = pairs ? 2 : 1,
                                              .pairs = pairs,
                                              .pack = strcmp(argv[4], "1") == 0,
                                              .epochs = 1};
    struct text_feed *feed = NULL;
    struct text_batch batch;
    struct core_json_write json;
    core_json_write_init_file(&json, stdout);
    int code = text_feed_open(&options, NULL, &feed);
    while (code == 0 && (code = text_feed_next(feed, &batch)) == 1) {
        for (int64_t row = 0; row < batch.rows; row++) {
            write_row(&json, &batch, row, &options);
        }
        code = 0;
    }
    if (code != 0) {
        fprintf(stderr, "%s\n", core_err_message());
    }
    text_feed_close(feed);
    return code == 0 ? 0 : 1;
}
