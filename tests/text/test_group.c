/* Compares rows that several threads encode with those of one thread. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "tests/harness/fail_alloc.h"
#include "tests/harness/test.h"
#include "tests/text/model_folder.h"
#include "tools/text/data/encode.h"
#include "tools/text/data/feed.h"
#include "tools/text/data/row.h"

enum { ROWS = 700, THREADS = 4 };

/* Makes a model folder, or returns NULL if this build cannot read its tokenizer. */
static const char *make_folder(const char *tokenizer)
{
    return model_folder(
        "model", tokenizer,
        "{\"eos_token\": \"<|im_end|>\", \"chat_template\": \"{% for m in messages %}<{{ m.role }}>"
        "{{ m.content }}<|im_end|>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif "
        "%}\"}");
}

enum { TEXT, CHAT, MORE, IDS, BAD };

static size_t write_row(char *out, size_t room, int kind, int number, int digits)
{
    const int digit = number % 10;
    switch (kind) {
    case CHAT:
        return (size_t)snprintf(out, room,
                                "{\"messages\": [{\"role\": \"user\", \"content\": \"row %d\"}, "
                                "{\"role\": \"assistant\", \"content\": \"answer %0*d\"}]}\n",
                                number, digits, digit);
    case IDS: return (size_t)snprintf(out, room, "{\"input_ids\": [1, 2, %d, 7]}\n", number);
    case BAD: return (size_t)snprintf(out, room, "{\"text\": %d}\n", number);
    default: break;
    }
    return (size_t)snprintf(out, room, "{\"text\": \"row %d, of which some are long: %0*d\"}\n",
                            number, digits, digit);
}

/* Writes rows of several kinds; one row in `bad` is wrong (0: none). With `has_long`, one row is
 * longer than a group. */
static const char *make_rows(const char *name, int rows, int bad, bool has_long)
{
    const size_t room = (size_t)rows * 300 + (1 << 21);
    char *text = malloc(room);
    size_t bytes = 0;
    check_true(text != NULL);
    for (int i = 0; i < rows; i++) {
        const bool wrong = bad > 0 && i % bad == bad / 2;
        const int digits = has_long && i == rows / 2 + 1 ? 1200000 : i % 7 == 0 ? 120 : 3;
        bytes += write_row(text + bytes, room - bytes, wrong ? BAD : i % 4, i, digits);
    }
    check_uint(bytes, <, room);
    const char *path = test_file(name, text, bytes);
    free(text);
    return path;
}

static int next(struct text_feed *feed, struct text_batch *out, char *message)
{
    const int code = text_feed_next(feed, out);
    snprintf(message, CORE_ERR_MESSAGE_BYTES, "%s", code < 0 ? core_err_message() : "");
    return code;
}

static void check_batches(const struct text_batch *left, const struct text_batch *right)
{
    check_int(left->rows, ==, right->rows);
    check_int(left->length, ==, right->length);
    const size_t bytes = (size_t)(left->rows * left->length) * sizeof(int32_t);
    check_true(memcmp(left->ids, right->ids, bytes) == 0);
    check_true(memcmp(left->labels, right->labels, bytes) == 0);
    check_true(memcmp(&left->after, &right->after, sizeof left->after) == 0);
    check_true(memcmp(&left->counts, &right->counts, sizeof left->counts) == 0);
}

/* Compares two feeds from a position, or from the start, to their end or error. Returns the
 * position after 21 batches. */
static struct text_position compare(const struct text_feed_options *options,
                                    const struct text_position *from, int *code)
{
    static char messages[2][CORE_ERR_MESSAGE_BYTES];
    struct text_feed *feeds[2] = {NULL, NULL};
    struct text_batch batches[2];
    struct text_position middle = {{0}};
    struct text_feed_options many = *options;
    many.threads = THREADS;
    check_int(text_feed_open(options, from, &feeds[0]), ==, 0);
    check_int(text_feed_open(&many, from, &feeds[1]), ==, 0);
    for (int i = 0;; i++) {
        *code = next(feeds[0], &batches[0], messages[0]);
        check_int(next(feeds[1], &batches[1], messages[1]), ==, *code);
        check_string(messages[1], messages[0]);
        if (*code != 1) {
            break;
        }
        check_batches(&batches[1], &batches[0]);
        middle = i == 20 ? batches[0].after : middle;
    }
    check_true(*code < 0 ||
               memcmp(&batches[0].counts, &batches[1].counts, sizeof batches[0].counts) == 0);
    text_feed_close(feeds[0]);
    text_feed_close(feeds[1]);
    return middle;
}

static void same_as_one(void)
{
    const char *folder = make_folder("qwen2");
    const char *files[] = {make_rows("rows.jsonl", ROWS, 0, false),
                           make_rows("wrong.jsonl", 300, 40, false)};
    if (folder == NULL) {
        test_skip("this build lacks what the tokenizer needs");
    }
    for (unsigned flags = 0; flags < 4; flags += TEST_STRIDE(3)) {
        int code = 0;
        const struct text_feed_options options = {.files = files,
                                                  .files_count = 2,
                                                  .seq_len = 128,
                                                  .batch_rows = 8,
                                                  .model = folder,
                                                  .on_bad_row = TEXT_BAD_SKIP,
                                                  .pack = (flags & 1) != 0,
                                                  .shuffle = (flags & 2) != 0,
                                                  .seed = 3,
                                                  .epochs = 2};
        const struct text_position middle = compare(&options, NULL, &code);
        check_int(code, ==, 0);
        check_uint(middle.word[0], !=, 0);
        compare(&options, &middle, &code);
        check_int(code, ==, 0);
    }
}

/* A row may be longer than a group. */
static void long_row(void)
{
    int code = 0;
    const char *folder = make_folder("qwen2");
    const char *files[] = {make_rows("long.jsonl", 20, 0, true)};
    if (folder == NULL) {
        test_skip("this build lacks what the tokenizer needs");
    }
    const struct text_feed_options options = {.files = files,
                                              .files_count = 1,
                                              .seq_len = 128,
                                              .batch_rows = 2,
                                              .model = folder,
                                              .epochs = 1};
    compare(&options, NULL, &code);
    check_int(code, ==, 0);
}

/* Reading stops at the first bad row, whichever thread finds one first, and at a truncated file. */
static void stops_at_the_first(void)
{
    const char *folder = make_folder("qwen2");
    const char *files[] = {make_rows("wrong.jsonl", 300, 40, false)};
    if (folder == NULL) {
        test_skip("this build lacks what the tokenizer needs");
    }
    int code = 0;
    struct text_feed_options options = {.files = files,
                                        .files_count = 1,
                                        .seq_len = 128,
                                        .batch_rows = 2,
                                        .model = folder,
                                        .epochs = 1};
    compare(&options, NULL, &code);
    check_int(code, ==, -EINVAL);
    check_contains(core_err_message(), "wrong.jsonl:21: text: ");
    static const char torn[] = "[{\"text\": \"one\"}, {\"text\": \"two\"}, {\"text\"";
    files[0] = test_file("torn.json", torn, strlen(torn));
    compare(&options, NULL, &code);
    check_int(code, ==, -EINVAL);
    options.model = "/nonexistent";
    compare(&options, NULL, &code);
    check_int(code, ==, -ENOENT);
    options.threads = TEXT_THREADS_MAX + 1;
    struct text_feed *feed = NULL;
    check_int(text_feed_open(&options, NULL, &feed), ==, -EINVAL);
}

/* Encoders that share a tokenizer and template give the same labels. */
static void shared_encoder(void)
{
    static const char json[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, "
                               "{\"role\": \"assistant\", \"content\": \"answer\"}]}";
    const char *folder = make_folder("qwen2");
    struct text_encoder *encoders[2] = {NULL, NULL};
    struct text_sample samples[2] = {{0}};
    struct text_row row;
    if (folder == NULL) {
        test_skip("this build lacks what the tokenizer needs");
    }
    check_int(text_encoder_create(folder, NULL, 0, 1, &encoders[0]), ==, 0);
    check_int(text_encoder_share(encoders[0], &encoders[1]), ==, 0);
    check_int(text_row_parse(json, strlen(json), &row), ==, 0);
    for (size_t i = 0; i < 2; i++) {
        check_int(text_encoder_encode(encoders[i], &row, TEXT_TRAIN_COMPLETION, &samples[i]), ==,
                  0);
    }
    check_uint(samples[0].count, >, 3);
    check_uint(samples[1].count, ==, samples[0].count);
    check_true(memcmp(samples[1].labels, samples[0].labels,
                      samples[0].count * sizeof *samples[0].labels) == 0);
    text_row_fini(&row);
    for (size_t i = 2; i > 0; i--) {
        text_sample_fini(&samples[i - 1]);
        text_encoder_destroy(encoders[i - 1]);
    }
}

static void how_many(void)
{
    check_uint(text_feed_threads(3), ==, 3);
    check_uint(text_feed_threads(0), >=, 1);
    check_uint(text_feed_threads(1000000), ==, TEXT_THREADS_MAX);
}

static struct text_feed_options life_options;

static int life(void)
{
    struct text_feed *feed = NULL;
    struct text_batch batch;
    int rc = text_feed_open(&life_options, NULL, &feed);
    if (rc != 0) {
        return rc;
    }
    while ((rc = text_feed_next(feed, &batch)) == 1) {
    }
    text_feed_close(feed);
    return rc;
}

/* A failed allocation or thread is an error; nothing leaks. */
static void out_of_memory(void)
{
    const char *files[] = {make_rows("few.jsonl", 5, 0, false)};
    life_options = (struct text_feed_options){.files = files,
                                              .files_count = 1,
                                              .seq_len = 128,
                                              .batch_rows = 2,
                                              .model = make_folder("gpt2"),
                                              .epochs = 1,
                                              .threads = 2};
    if (life_options.model == NULL) {
        test_skip("this build lacks what the tokenizer needs");
    }
    check_int(test_fail_nth(life), >=, 20);
}

TEST_MAIN({"same_as_one", same_as_one}, {"long_row", long_row},
          {"stops_at_the_first", stops_at_the_first}, {"shared_encoder", shared_encoder},
          {"how_many", how_many}, {"out_of_memory", out_of_memory})
