/* Tests the memory for reading a large file, and what is read after a position. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/base/hash.h"
#include "tests/harness/test.h"
#include "tests/text/model_folder.h"
#include "tools/text/data/feed.h"

/* Memory beyond that of a small file, for a window's list of rows and its buffers. One number per
 * token would need five times as much. */
enum { SMALL_BYTES = 2 << 20, LARGE_BYTES = 40 << 20, SLACK_BYTES = 8 << 20, NUMBERS = 64 };

enum mode { IN_ORDER, SHUFFLED, PACKED, MODES };

/* Returns the number in the file's line that begins with `name`, or 0. */
static uint64_t number_of(const char *file, const char *name)
{
    char line[256];
    uint64_t value = 0;
    FILE *opened = fopen(file, "re");
    while (opened != NULL && value == 0 && fgets(line, sizeof line, opened) != NULL) {
        if (strncmp(line, name, strlen(name)) == 0) {
            value = strtoull(line + strlen(name), NULL, 10);
        }
    }
    if (opened != NULL) {
        fclose(opened);
    }
    return value;
}

static uint64_t peak_bytes(void)
{
    return number_of("/proc/self/status", "VmHWM:") * 1024;
}

static uint64_t read_bytes(void)
{
    return number_of("/proc/self/io", "rchar:");
}

/* Writes rows of ids, and of words that never repeat, so that no cache helps. */
static unsigned write_rows(const char *name, size_t bytes, const char **path)
{
    *path = test_file(name, "", 0);
    FILE *file = fopen(*path, "we");
    check_true(file != NULL);
    size_t wrote = 0;
    unsigned row = 0;
    for (; wrote < bytes; row++) {
        if (row % 8 == 0) {
            wrote += (size_t)fprintf(file, "{\"text\": \"the w%xord q%uite x%uy\\n\"}\n",
                                     row * 2654435761U, row, row * 40503);
            continue;
        }
        wrote += (size_t)fprintf(file, "{\"input_ids\": [%u", row % 251);
        for (unsigned i = 1; i < NUMBERS; i++) {
            wrote += (size_t)fprintf(file, ",%u", (row + i) % 251);
        }
        wrote += (size_t)fprintf(file, "]}\n");
    }
    check_int(fclose(file), ==, 0);
    return row;
}

/* Makes a folder with a tokenizer that any build can use. */
static const char *make_folder(void)
{
    static const char config[] = "{\"eos_token\": \"<|endoftext|>\"}";
    const char *folder = model_folder_make("model", "gpt2");
    test_file("model/tokenizer_config.json", config, strlen(config));
    return folder;
}

static struct text_feed_options options_for(const char *const *file, enum mode mode)
{
    return (struct text_feed_options){.files = file,
                                      .files_count = 1,
                                      .seq_len = 128,
                                      .batch_rows = 16,
                                      .model = make_folder(),
                                      .pack = mode == PACKED,
                                      .shuffle = mode != IN_ORDER,
                                      .seed = 3,
                                      .epochs = 1,
                                      .ahead = 1};
}

/* Reads from *at on. Returns the hash of the batches after the first `documents` documents. Sets
 * *at to the position where these batches begin, and *bytes to the bytes read until then. */
static uint64_t read_on(const struct text_feed_options *options, uint64_t documents,
                        struct text_position *at, uint64_t *bytes)
{
    struct text_feed *feed = NULL;
    struct text_batch batch;
    uint64_t sum = 0;
    const uint64_t before = read_bytes();
    const struct text_position from = *at;
    int code = text_feed_open(options, &from, &feed);
    for (*bytes = 0; code == 0 && (code = text_feed_next(feed, &batch)) == 1; code = 0) {
        if (batch.counts.documents <= documents) {
            *at = batch.after;
            continue;
        }
        *bytes = *bytes == 0 ? read_bytes() - before : *bytes;
        const size_t tokens = (size_t)(options->batch_rows * batch.length);
        sum = core_hash(batch.ids, tokens * sizeof *batch.ids, sum);
    }
    if (code != 0) {
        test_note("%s", core_err_message());
    }
    check_int(code, ==, 0);
    check_true(sum != 0);
    text_feed_close(feed);
    return sum;
}

/* A large file needs little more memory than a small one. From a position, earlier parts are not
 * read. */
static void stays_bounded(void)
{
    if (TEST_SLOW) {
        test_skip("a sanitizer keeps memory that was given back");
    }
    uint64_t whole;
    uint64_t rest;
    const char *file = NULL;
    write_rows("small.jsonl", SMALL_BYTES, &file);
    for (enum mode mode = IN_ORDER; mode < MODES; mode++) {
        struct text_position at = {0};
        const struct text_feed_options options = options_for(&file, mode);
        read_on(&options, 0, &at, &whole);
    }
    const uint64_t before = peak_bytes();
    check_uint(before, >, 0);
    const uint64_t rows = write_rows("large.jsonl", LARGE_BYTES, &file);
    for (enum mode mode = IN_ORDER; mode < MODES; mode++) {
        struct text_position at = {0};
        const struct text_feed_options options = options_for(&file, mode);
        const uint64_t want = read_on(&options, rows - rows / 4, &at, &whole);
        check_uint(peak_bytes(), <=, before + SLACK_BYTES);
        check_uint(read_on(&options, 0, &at, &rest), ==, want);
        check_uint(rest, <, whole / 4);
        test_note("mode %d: %.1f MB more than before; read %.1f MB, then %.1f MB", (int)mode,
                  (double)(peak_bytes() - before) / 1e6, (double)whole / 1e6, (double)rest / 1e6);
    }
    check_uint(peak_bytes(), <=, before + SLACK_BYTES);
}

TEST_MAIN({"stays_bounded", stays_bounded})
