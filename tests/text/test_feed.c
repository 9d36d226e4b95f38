/* Tests micro-batches made from rows of ids. */
#include "tools/text/data/feed.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/hash.h"
#include "tests/harness/fail_alloc.h"
#include "tests/harness/test.h"
#include "tools/text/data/pack.h"
#include "tools/text/data/reader.h"
#include "tools/text/data/records.h"
#include "tools/text/data/sample.h"
#include "tools/text/data/windows.h"

static struct text_feed_options options_for(const char *const *files, size_t count)
{
    return (struct text_feed_options){.files = files,
                                      .files_count = count,
                                      .seq_len = 8,
                                      .batch_rows = 2,
                                      .vocab = 100000,
                                      .epochs = 1};
}

static struct text_feed *open_feed(const struct text_feed_options *options,
                                   const struct text_position *from)
{
    struct text_feed *feed = NULL;
    int code = text_feed_open(options, from, &feed);
    if (code != 0) {
        test_note("%s", core_err_message());
    }
    check_int(code, ==, 0);
    return feed;
}

static void check_row(const struct text_batch *batch, int64_t row, const char *ids,
                      const char *labels)
{
    char got_ids[200] = "";
    char got_labels[200] = "";
    for (int64_t i = 0; i < batch->length; i++) {
        const int64_t at = row * batch->length + i;
        snprintf(got_ids + strlen(got_ids), 12, "%d ", batch->ids[at]);
        snprintf(got_labels + strlen(got_labels), 12, "%d ", batch->labels[at]);
    }
    check_string(got_ids, ids);
    check_string(got_labels, labels);
}

/* Rows come in order, padded to the longest of the batch; long rows are cut. */
static void in_order(void)
{
    static const char text[] =
        "{\"input_ids\": [1, 2, 3]}\n\n"
        "{\"labels\": [-100, -100, 6, 7, 8], \"input_ids\": [4, 5, 6, 7, 8]}\r\n"
        "{\"input_ids\": [1,2,3,4,5,6,7,8,9,10,11], \"other\": {\"input_ids\": 1}}";
    const char *files[] = {test_file("a.jsonl", text, strlen(text))};
    struct text_feed_options options = options_for(files, 1);
    struct text_batch batch;
    struct text_feed *feed = open_feed(&options, NULL);
    check_int(text_feed_next(feed, &batch), ==, 1);
    check_int(batch.rows, ==, 2);
    check_int(batch.length, ==, 5);
    check_row(&batch, 0, "1 2 3 0 0 ", "-100 2 3 -100 -100 ");
    check_row(&batch, 1, "4 5 6 7 8 ", "-100 -100 6 7 8 ");
    check_true(batch.positions == NULL && batch.starts == NULL);
    check_int(batch.tokens, ==, 8);
    check_int(batch.targets, ==, 5);
    check_int(batch.targets_all, ==, 5);
    check_int(text_feed_next(feed, &batch), ==, 1);
    check_int(batch.rows, ==, 1);
    check_int(batch.length, ==, 8);
    check_row(&batch, 0, "1 2 3 4 5 6 7 8 ", "-100 2 3 4 5 6 7 8 ");
    check_row(&batch, 1, "0 0 0 0 0 0 0 0 ", "-100 -100 -100 -100 -100 -100 -100 -100 ");
    check_uint(batch.counts.rows, ==, 3);
    check_uint(batch.counts.cut, ==, 1);
    check_uint(batch.counts.cut_tokens, ==, 3);
    check_int(text_feed_next(feed, &batch), ==, 0);
    check_int(text_feed_next(feed, &batch), ==, 0);
    text_feed_close(feed);
    options.length_multiple = 8;
    options.train_on = TEXT_TRAIN_ALL;
    feed = open_feed(&options, NULL);
    check_int(text_feed_next(feed, &batch), ==, 1);
    check_int(batch.length, ==, 8);
    check_row(&batch, 1, "4 5 6 7 8 0 0 0 ", "-100 5 6 7 8 -100 -100 -100 ");
    check_int(text_feed_wait_ns(feed), >=, 0);
    text_feed_close(feed);
}

/* Rows are packed by best fit, with positions and starts of documents. */
static void packed(void)
{
    static const char text[] = "{\"input_ids\":[1,2,3,4,5]}\n{\"input_ids\":[6,7]}\n"
                               "{\"input_ids\":[8,9]}\n{\"input_ids\":[10,11,12]}\n";
    const char *files[] = {test_file("p.jsonl", text, strlen(text))};
    struct text_feed_options options = options_for(files, 1);
    struct text_batch batch;
    options.seq_len = 4;
    options.batch_rows = 4;
    options.pack = true;
    struct text_feed *feed = open_feed(&options, NULL);
    check_int(text_feed_next(feed, &batch), ==, 1);
    check_int(batch.rows, ==, 3);
    check_row(&batch, 0, "1 2 3 4 ", "-100 2 3 4 ");
    check_row(&batch, 1, "10 11 12 0 ", "-100 11 12 -100 ");
    check_row(&batch, 2, "6 7 8 9 ", "-100 7 -100 9 ");
    static const int32_t positions[] = {0, 1, 2, 3, 0, 1, 2, 0, 0, 1, 0, 1, 0, 1, 2, 3};
    static const int32_t starts[] = {0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 2, 2, 0, 0, 0, 0};
    check_memory(batch.positions, positions, sizeof positions);
    check_memory(batch.starts, starts, sizeof starts);
    check_int(batch.targets, ==, 7);
    check_uint(batch.counts.documents, ==, 4);
    text_feed_close(feed);
    options.split = true;
    options.seq_len = 3;
    feed = open_feed(&options, NULL);
    check_int(text_feed_next(feed, &batch), ==, 1);
    check_row(&batch, 0, "1 2 3 ", "-100 2 3 ");
    check_row(&batch, 1, "10 11 12 ", "-100 11 12 ");
    check_row(&batch, 2, "4 5 0 ", "-100 5 -100 ");
    check_uint(batch.counts.split, ==, 1);
    text_feed_close(feed);
}

/* Writes `count` rows; row i has 2 + i % 5 tokens with the id i. */
static const char *write_rows(const char *name, int count, int padding)
{
    const char *path = test_file(name, "", 0);
    FILE *file = fopen(path, "w");
    check_true(file != NULL);
    for (int i = 0; i < count; i++) {
        fprintf(file, "{\"input_ids\":[%d", i);
        for (int k = 0; k < 1 + i % 5; k++) {
            fprintf(file, ", %d", i);
        }
        fprintf(file, "]%*s}\n", padding, "");
    }
    fclose(file);
    return path;
}

/* Writes the hashes and the ends of the batches after a position; returns the number of batches. */
static size_t sums_of(const struct text_feed_options *options, const struct text_position *from,
                      uint64_t *sums, struct text_position *after, size_t most)
{
    size_t count = 0;
    struct text_batch batch;
    struct text_feed *feed = open_feed(options, from);
    while (count < most && text_feed_next(feed, &batch) == 1) {
        uint64_t sum = (uint64_t)batch.length + 1000 * batch.epoch;
        for (int64_t i = 0; i < options->batch_rows * batch.length; i++) {
            sum = sum * 31 + (uint64_t)(batch.ids[i] + 7 * batch.labels[i]);
            sum += batch.starts != NULL ? (uint64_t)batch.starts[i] : 0;
        }
        after[count] = batch.after;
        sums[count++] = sum;
    }
    text_feed_close(feed);
    return count;
}

/* The same batches follow from a position, in order and shuffled, packed and unpacked. */
static void resumes(void)
{
    enum { MOST = 120 };
    const char *files[] = {write_rows("r1.jsonl", 37, 0), write_rows("r2.jsonl", 41, 0)};
    uint64_t want[MOST];
    uint64_t got[MOST];
    struct text_position after[MOST];
    struct text_position unused[MOST];
    for (unsigned mode = 0; mode < 8; mode++) {
        struct text_feed_options options = options_for(files, 2);
        options.epochs = 3;
        options.shuffle = (mode & 1) != 0;
        options.pack = (mode & 2) != 0;
        options.split = (mode & 4) != 0;
        options.seq_len = options.split ? 4 : 8;
        options.batch_rows = 3;
        const size_t count = sums_of(&options, NULL, want, after, MOST);
        check_uint(count, >, 20);
        check_uint(count, <, MOST);
        for (size_t i = 0; i < count; i++) {
            check_uint(sums_of(&options, &after[i], got, unused, MOST), ==, count - i - 1);
            check_memory(got, want + i + 1, (count - i - 1) * sizeof *got);
        }
        options.seed = 5;
        struct text_feed *feed = NULL;
        int code = text_feed_open(&options, &after[0], &feed);
        check_int(code, ==, options.shuffle ? -EINVAL : 0);
        text_feed_close(feed);
    }
}

/* A row comes once in an epoch. Epochs have different orders, and neighbouring rows are
 * separated. */
static void shuffles(void)
{
    enum { ROWS = 30000 };
    const char *files[] = {write_rows("s1.jsonl", ROWS, TEST_COUNT(700, 100)),
                           write_rows("s2.jsonl", 3, 0)};
    unsigned char *seen = calloc(ROWS, 1);
    int32_t *first = calloc(ROWS + 3, sizeof *first);
    check_true(seen != NULL && first != NULL);
    struct text_feed_options options = options_for(files, 2);
    options.shuffle = true;
    options.batch_rows = 1;
    options.epochs = 2;
    options.seed = 11;
    struct text_feed *feed = open_feed(&options, NULL);
    struct text_batch batch;
    size_t near = 0;
    size_t same = 0;
    int32_t before = 0;
    for (size_t i = 0; i < 2 * (ROWS + 3); i++) {
        check_int(text_feed_next(feed, &batch), ==, 1);
        const int32_t id = batch.ids[0];
        seen[id]++;
        near += abs(id - before) < 20;
        before = id;
        if (i < ROWS + 3) {
            first[i] = id;
        } else {
            same += first[i - ROWS - 3] == id;
        }
    }
    check_int(text_feed_next(feed, &batch), ==, 0);
    for (int i = 0; i < ROWS; i++) {
        check_int(seen[i], ==, i < 3 ? 4 : 2);
    }
    check_uint(near, <, ROWS / 50);
    check_uint(same, <, 100);
    text_feed_close(feed);
    free(seen);
    free(first);
}

/* Ranks share the rows of a batch, pad them equally, and know the number of all targets. */
static void ranks_share(void)
{
    const char *files[] = {write_rows("k.jsonl", 10, 0)};
    struct text_feed_options options = options_for(files, 1);
    options.ranks = 3;
    for (unsigned rank = 0; rank < 3; rank++) {
        struct text_batch batch;
        options.rank = rank;
        struct text_feed *feed = open_feed(&options, NULL);
        check_int(text_feed_next(feed, &batch), ==, 1);
        check_int(batch.ids[0], ==, 2 * rank);
        check_int(batch.rows, ==, 2);
        check_int(batch.length, ==, 6);
        check_int(batch.targets_all, ==, 1 + 2 + 3 + 4 + 5 + 1);
        check_int(text_feed_next(feed, &batch), ==, 1);
        check_int(batch.rows, ==, rank < 2 ? 2 : 0);
        check_int(batch.targets_all, ==, 2 + 3 + 4 + 5);
        check_int(text_feed_next(feed, &batch), ==, 0);
        text_feed_close(feed);
    }
}

/* Reads an epoch; writes its numbers of batches and rows, and returns the last counts. */
static struct text_counts read_epoch(const struct text_feed_options *options, uint64_t *batches,
                                     uint64_t *rows)
{
    struct text_feed *feed = open_feed(options, NULL);
    struct text_batch batch;
    int rc;
    *batches = 0;
    *rows = 0;
    while ((rc = text_feed_next(feed, &batch)) == 1) {
        *batches += 1;
        *rows += (uint64_t)batch.rows;
    }
    check_int(rc, ==, 0);
    text_feed_close(feed);
    return batch.counts;
}

/* After an epoch the counts are those of its rows before packing. */
static void counts_an_epoch(void)
{
    const char *files[] = {write_rows("m.jsonl", 50, 0)};
    struct text_feed_options options = options_for(files, 1);
    uint64_t batches;
    uint64_t rows;
    struct text_counts counts = read_epoch(&options, &batches, &rows);
    check_uint(batches, ==, 25);
    check_uint(rows, ==, 50);
    check_uint(counts.tokens, ==, 10 * (2 + 3 + 4 + 5 + 6));
    check_uint(counts.targets, ==, 10 * (1 + 2 + 3 + 4 + 5));
    options.pack = true;
    counts = read_epoch(&options, &batches, &rows);
    check_uint(rows, ==, 25); /* ten of 6 + 2, ten of 5 + 3, five of 4 + 4 */
    check_uint(counts.tokens, ==, 10 * (2 + 3 + 4 + 5 + 6));
}

/* Wrong options, bad rows and positions of other data are refused. */
static void refuses(void)
{
    int code;
    static const char text[] =
        "{\"input_ids\":[1,2]}\n{\"input_ids\":[3]}\n{\"input_ids\":[4,5]}\n";
    const char *files[] = {test_file("w.jsonl", text, strlen(text))};
    const char *other[] = {write_rows("o.jsonl", 5, 0)};
    const char *missing[] = {"/nonexistent"};
    struct text_feed *feed = NULL;
    struct text_batch batch;
    struct text_position after[9];
    uint64_t sums[9];
    struct text_feed_options options = options_for(files, 1);
    options.seq_len = 1;
    check_int(text_feed_open(&options, NULL, &feed), ==, -EINVAL);
    check_contains(core_err_message(), "--seq-len");
    options.seq_len = 1 << 26;
    options.batch_rows = 17;
    check_int(text_feed_open(&options, NULL, &feed), ==, -EINVAL);
    check_contains(core_err_message(), "a micro-batch has more than 2^30 tokens");
    options.seq_len = options.batch_rows = INT64_MAX; /* The product would overflow. */
    check_int(text_feed_open(&options, NULL, &feed), ==, -EINVAL);
    check_contains(core_err_message(), "--seq-len");
    options = options_for(missing, 1);
    check_int(text_feed_open(&options, NULL, &feed), ==, -ENOENT);
    options = options_for(files, 1);
    options.batch_rows = 1;
    feed = open_feed(&options, NULL);
    check_int(text_feed_next(feed, &batch), ==, 1);
    check_int(text_feed_next(feed, &batch), ==, -EINVAL);
    check_contains(core_err_message(), "w.jsonl:2: no token of the row is trained on");
    check_int(text_feed_next(feed, &batch), ==, -EINVAL);
    text_feed_close(feed);
    options.on_bad_row = TEXT_BAD_SKIP;
    check_uint(sums_of(&options, NULL, sums, after, 9), ==, 2);
    feed = open_feed(&options, NULL);
    while ((code = text_feed_next(feed, &batch)) == 1) {
        check_uint(batch.counts.documents, <=, 2);
    }
    check_int(code, ==, 0);
    check_uint(batch.counts.rows, ==, 3); /* the counts at the end */
    check_uint(batch.counts.bad, ==, 1);
    text_feed_close(feed);
    options.files = other;
    check_int(text_feed_open(&options, &after[0], &feed), ==, -EINVAL);
    check_contains(core_err_message(), "differ from those of the checkpoint");
    options = options_for(files, 1);
    options.vocab = 2;
    options.on_bad_row = TEXT_BAD_SKIP;
    feed = open_feed(&options, NULL);
    check_int(text_feed_next(feed, &batch), ==, -EINVAL);
    check_contains(core_err_message(), "no tokens to train on: 3 rows were read, 3 of");
    text_feed_close(feed);
}

/* A window of packed rows has 1,000 documents, another window one. */
static void windows(void)
{
    const char *files[] = {write_rows("v.jsonl", 1500, 0)};
    struct text_feed_options options = options_for(files, 1);
    for (int packs = 0; packs < 2; packs++) {
        struct text_reader *reader = NULL;
        struct text_pack *pack = NULL;
        struct text_counts counts;
        const struct text_pack_options how = {.seq_len = 5, .pack = packs == 1};
        check_int(text_reader_open(&options, &reader), ==, 0);
        check_int(text_reader_seek(reader, 0, (struct text_place){0}), ==, 0);
        check_int(text_pack_create(&how, &pack), ==, 0);
        check_int(text_pack_fill(pack, reader), ==, 1);
        check_uint(text_reader_rows(reader), ==, packs == 1 ? TEXT_WINDOW_ROWS : 1);
        check_uint(text_reader_bad(reader), ==, 0);
        check_true(text_reader_encoder(reader) == NULL);
        /* 200 rows of documents of 6 tokens (cut), 200 of 5, 200 of 4, and 200 of 3 and 2. */
        check_uint(text_pack_rows(pack), ==, packs == 1 ? 800 : 1);
        check_uint(text_pack_documents(pack, 0), ==, 1);
        const struct text_document first = text_pack_document(pack, 0, 0);
        check_uint(first.count, ==, packs == 1 ? 5 : 2);
        check_int(first.ids[0], ==, packs == 1 ? 3 : 0);
        check_int(first.labels[0], ==, TEXT_IGNORED);
        text_pack_count(pack, &counts);
        check_uint(counts.cut, ==, packs == 1 ? 200 : 0);
        check_uint(counts.cut_tokens, ==, packs == 1 ? 200 : 0);
        const struct text_place place = text_reader_place(reader);
        check_uint(place.row, ==, packs == 1 ? TEXT_WINDOW_ROWS : 1);
        check_true(text_reader_mark(reader) != 0);
        check_true(text_reader_part(reader) > 0 && text_reader_part(reader) < 1);
        const struct text_sample *next = NULL;
        check_int(text_reader_next(reader, &next), ==, 1);
        check_uint(next->count, >, 0);
        check_uint(text_reader_place(reader).row, ==, place.row + 1);
        text_pack_destroy(pack);
        text_reader_close(reader);
    }
}

/* A window that is filled in steps is like that of text_pack_fill(). */
static void window_by_parts(void)
{
    size_t rows[2];
    const char *files[] = {write_rows("v2.jsonl", 1200, 0)};
    const struct text_feed_options options = options_for(files, 1);
    const struct text_pack_options how = {.seq_len = 5, .pack = true};
    for (int parts = 0; parts < 2; parts++) {
        struct text_reader *reader = NULL;
        struct text_pack *pack = NULL;
        check_int(text_reader_open(&options, &reader), ==, 0);
        check_int(text_reader_seek(reader, 0, (struct text_place){0}), ==, 0);
        check_int(text_pack_create(&how, &pack), ==, 0);
        if (parts == 0) {
            check_int(text_pack_fill(pack, reader), ==, 1);
        } else {
            text_pack_clear(pack);
            for (int i = 0; i < 1000; i++) {
                check_true(!text_pack_is_full(pack));
                check_int(text_pack_add(pack, reader), ==, 1);
            }
            check_true(text_pack_is_full(pack));
            text_pack_arrange(pack);
        }
        rows[parts] = text_pack_rows(pack);
        text_pack_clear(pack);
        check_uint(text_pack_rows(pack), ==, 0);
        for (int i = 0; i < 200; i++) {
            check_int(text_pack_add(pack, reader), ==, 1);
        }
        check_int(text_pack_add(pack, reader), ==, 0);
        text_pack_destroy(pack);
        text_reader_close(reader);
    }
    check_uint(rows[0], ==, 800);
    check_uint(rows[1], ==, rows[0]);
}

static struct text_windows *open_windows(const struct text_feed_options *options)
{
    struct text_windows *windows = NULL;
    check_int(text_windows_open(options, &windows), ==, 0);
    check_int(text_windows_seek(windows, 0, (struct text_place){0}), ==, 0);
    return windows;
}

static uint64_t sum_window(const struct text_windows *windows)
{
    struct text_counts counts;
    const struct text_pack *pack = text_windows_rows(windows);
    const struct text_place places[2] = {text_windows_place(windows), text_windows_after(windows)};
    uint64_t sum = core_hash(places, sizeof places, 1);
    memset(&counts, 0, sizeof counts);
    text_windows_count(windows, &counts);
    sum = core_hash(&counts, sizeof counts, sum);
    for (size_t row = 0; row < text_pack_rows(pack); row++) {
        for (size_t i = 0; i < text_pack_documents(pack, row); i++) {
            const struct text_document document = text_pack_document(pack, row, i);
            sum = core_hash(document.ids, document.count * sizeof *document.ids, sum + row);
        }
    }
    return sum;
}

/* Filling the next window ahead does not change the windows. */
static void windows_ahead(void)
{
    const char *files[] = {write_rows("u.jsonl", 2500, 0)};
    struct text_feed_options options = options_for(files, 1);
    options.seq_len = 5;
    options.pack = true;
    options.epochs = 2;
    struct text_windows *plain = open_windows(&options);
    struct text_windows *ahead = open_windows(&options);
    check_uint(text_windows_mark(plain), ==, text_windows_mark(ahead));
    static const int codes[] = {1, 1, 1, 0};
    static const size_t rows[] = {1000, 1000, 500, 0};
    for (int step = 0; step < 8; step++) {
        size_t more = 0;
        while (text_windows_ahead(ahead)) {
            more++;
        }
        /* The first window of the next epoch is ready early, but none after the last epoch. */
        const size_t least = step == 4 ? 0 : step == 7 ? 0 : rows[step % 4];
        check_uint(more, >=, least);
        check_uint(more, <=, 1001);
        check_int(text_windows_next(plain), ==, codes[step % 4]);
        check_int(text_windows_next(ahead), ==, codes[step % 4]);
        check_uint(sum_window(ahead), ==, sum_window(plain));
        check_true(text_windows_part(ahead) == text_windows_part(plain));
        if (codes[step % 4] == 0) {
            check_int(text_windows_next(ahead), ==, 0);
            text_windows_turn(plain);
            text_windows_turn(ahead);
        }
    }
    check_true(!text_windows_ahead(ahead));
    text_windows_close(plain);
    text_windows_close(ahead);
}

/* An error in a row that was read ahead is returned with the row's window. */
static void wrong_ahead(void)
{
    static const char text[] = "{\"input_ids\": [1, 2]}\n{\"input_ids\": [3]}\n";
    const char *files[] = {test_file("w1.jsonl", text, strlen(text))};
    const struct text_feed_options options = options_for(files, 1);
    struct text_windows *windows = open_windows(&options);
    check_int(text_windows_next(windows), ==, 1);
    check_true(text_windows_ahead(windows));
    check_true(!text_windows_ahead(windows));
    core_err_set(-EIO, "something else");
    check_int(text_windows_next(windows), ==, -EINVAL);
    check_contains(core_err_message(), "w1.jsonl:2: no token of the row is trained on");
    text_windows_close(windows);
}

/* Input files are recognised under other names and by patterns. */
static void files_that_are_read(void)
{
    char pattern[700];
    char name[700];
    struct text_reader *reader = NULL;
    const char *path = write_rows("read-1.jsonl", 3, 0);
    const char *beside = write_rows("beside.jsonl", 3, 0);
    snprintf(pattern, sizeof pattern, "%s/read-?.jsonl", test_directory());
    snprintf(name, sizeof name, "%s/./read-1.jsonl", test_directory());
    const char *files[] = {pattern};
    const struct text_feed_options options = options_for(files, 1);
    check_int(text_reader_open(&options, &reader), ==, 0);
    text_reader_close(reader);
    check_true(text_records_means(pattern, name) && !text_records_means(pattern, beside));
    check_true(freopen(path, "r", stdin) != NULL);
    check_true(text_records_means("-", name) && !text_records_means("-", beside));
}

/* Labels are targets, except the first token's and ignored ones. A row of ids replaces the
 * sample. */
static void targets_of_samples(void)
{
    struct text_sample sample = {0};
    for (int32_t i = 0; i < 3000; i++) {
        check_int(text_sample_add(&sample, i, i % 2 == 0 ? i : TEXT_IGNORED), ==, 0);
    }
    check_uint(sample.count, ==, 3000);
    check_int(sample.ids[2999], ==, 2999);
    check_uint(text_sample_targets(sample.labels, sample.count), ==, 1499);
    check_int(text_sample_read(&sample, "{\"input_ids\":[7,8]}", 19, 9), ==, 1);
    check_uint(sample.count, ==, 2);
    check_int(text_sample_read(&sample, "{\"text\":\"a\"}", 12, 9), ==, 0);
    static const char masked[] = "{\"attention_mask\":[1,1,1],\"id\":\"a\",\"labels\":[-100,8,5],"
                                 "\"input_ids\":[7,8,5],\"position_ids\":[0,1,2]}";
    check_int(text_sample_read(&sample, masked, strlen(masked), 9), ==, 1);
    check_uint(sample.count, ==, 3);
    check_int(sample.ids[0], ==, 7);
    check_int(sample.labels[0], ==, TEXT_IGNORED);
    check_int(sample.labels[2], ==, 5);
    text_sample_fini(&sample);
}

/* The error of a wrong list of ids tells what is wrong. */
static void wrong_ids(void)
{
    static const struct {
        const char *row;
        const char *says;
    } cases[] = {
        {"[1]", "a row must be an object"},
        {"{\"input_ids\":[]}", "input_ids is empty"},
        {"{\"input_ids\":3}", "input_ids is not a list"},
        {"{\"input_ids\":[1.5]}", "whole numbers"},
        {"{\"input_ids\":[[1]]}", "whole numbers"},
        {"{\"input_ids\":[100]}", "100 is outside the vocabulary of 100"},
        {"{\"input_ids\":[-1]}", "-1 is not a token id"},
        {"{\"input_ids\":[9999999999]}", "9999999999 is not a token id"},
        {"{\"input_ids\":[1],\"labels\":[-101]}", "labels: -101 is not a token id"},
        {"{\"input_ids\":[1],\"labels\":[1,2]}", "2 labels for 1 input_ids"},
        {"{\"input_ids\":[1],\"attention_mask\":[1,1]}", "2 attention_mask for 1 input_ids"},
        {"{\"input_ids\":[1,2],\"attention_mask\":[1,0]}", "attention_mask: 0 at index 1; only"},
        {"{\"attention_mask\":[2],\"input_ids\":[1]}", "attention_mask: 2 at index 0; only"},
        {"{\"input_ids\":[1],\"attention_mask\":null}", "attention_mask is not a list"},
        {"{\"input_ids\":[1,2],\"position_ids\":[0,0]}", "position_ids: 0 at index 1; only"},
        {"{\"input_ids\":[1,2],\"position_ids\":[0]}", "1 position_ids for 2 input_ids"},
        {"{\"input_ids\":[1],\"token_type_ids\":[0]}", "token_type_ids: not supported"},
        {"{\"labels\":[1,2],\"input_ids\":[1]}", "2 labels for 1 input_ids"},
        {"{\"input_ids\":[1],\"input_ids\":[2]}", "duplicate key \"input_ids\""},
        {"{\"input_ids\":[1]} x", "row:1:"},
        {"{\"input_ids\":[1", "row:1:"},
    };
    struct text_sample sample = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check_int(text_sample_read(&sample, cases[i].row, strlen(cases[i].row), 100), ==, -EINVAL);
        check_contains(core_err_message(), cases[i].says);
    }
    text_sample_fini(&sample);
}

static const char *life_files[1];

static int feed_life(void)
{
    struct text_feed_options options = options_for(life_files, 1);
    struct text_feed *feed = NULL;
    struct text_batch batch;
    options.pack = options.shuffle = true;
    int code = text_feed_open(&options, NULL, &feed);
    while (code == 0 && (code = text_feed_next(feed, &batch)) == 1) {
        code = 0;
    }
    text_feed_close(feed);
    return code;
}

/* A failed allocation is an error; nothing leaks. */
static void out_of_memory(void)
{
    life_files[0] = write_rows("l.jsonl", 20, 0);
    check_int(test_fail_nth(feed_life), >=, 10);
}

TEST_MAIN({"in_order", in_order}, {"packed", packed}, {"resumes", resumes}, {"shuffles", shuffles},
          {"ranks_share", ranks_share}, {"counts_an_epoch", counts_an_epoch}, {"refuses", refuses},
          {"windows", windows}, {"window_by_parts", window_by_parts},
          {"windows_ahead", windows_ahead}, {"wrong_ahead", wrong_ahead},
          {"files_that_are_read", files_that_are_read}, {"targets_of_samples", targets_of_samples},
          {"wrong_ids", wrong_ids}, {"out_of_memory", out_of_memory})
