/* Compares the memory that rows of data use with what is charged. The test sees allocations of
 * libraries, too. */
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/budget.h"
#include "core/base/charge.h"
#include "core/base/err.h"
#include "core/base/hash.h"
#include "core/json/json.h"
#include "tests/harness/test.h"
#include "tests/text/model_folder.h"
#include "tools/text/data/feed.h"

static _Atomic int64_t live; /* bytes allocated and not freed */
static _Atomic int64_t peak;

#if TEST_SLOW
#define SEES_BLOCKS 0 /* a sanitizer replaces malloc */
#else
#define SEES_BLOCKS 1
#define SEEN        __attribute__((visibility("default"))) /* for libraries, too */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *block, size_t bytes);
void __libc_free(void *block);

static void *born(void *block)
{
    const int64_t bytes = block != NULL ? (int64_t)malloc_usable_size(block) : 0;
    const int64_t now = atomic_fetch_add(&live, bytes) + bytes;
    int64_t most = atomic_load(&peak);
    while (most < now && !atomic_compare_exchange_weak(&peak, &most, now)) {
    }
    return block;
}

static void died(void *block)
{
    atomic_fetch_sub(&live, block != NULL ? (int64_t)malloc_usable_size(block) : 0);
}

SEEN void *malloc(size_t bytes)
{
    return born(__libc_malloc(bytes));
}

SEEN void *calloc(size_t count, size_t bytes)
{
    return born(__libc_calloc(count, bytes));
}

SEEN void *realloc(void *block, size_t bytes)
{
    died(block);
    void *made = __libc_realloc(block, bytes);
    return born(made != NULL || bytes == 0 ? made : block) != NULL ? made : NULL;
}

SEEN void free(void *block)
{
    died(block);
    __libc_free(block);
}
#endif

static const char *make_folder(const char *template)
{
    char config[4000];
    const char *folder = model_folder_make("model", "gpt2");
    snprintf(config, sizeof config, "{\"eos_token\": \"<|endoftext|>\", \"chat_template\": \"%s\"}",
             template);
    test_file("model/tokenizer_config.json", config, strlen(config));
    return folder;
}

#define PLAIN                                                                                      \
    "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}"              \
    "{% if add_generation_prompt %}assistant: {% endif %}"

/* Writes a row, `count` copies of a text between two others, and a row of three ids. */
static const char *rows_of(const char *name, const char *front, const char *text, size_t count,
                           const char *end)
{
    const char *path = test_file(name, "", 0);
    FILE *file = fopen(path, "we");
    check_true(file != NULL);
    fputs(front, file);
    for (size_t i = 0; i < count; i++) {
        fputs(text, file);
    }
    fputs(end, file);
    fputs("\n{\"input_ids\": [1, 2, 3]}\n", file);
    check_int(fclose(file), ==, 0);
    return path;
}

static struct text_feed_options options_for(const char *const *file, struct text_memory *memory)
{
    return (struct text_feed_options){.files = file,
                                      .files_count = 1,
                                      .seq_len = 128,
                                      .batch_rows = 4,
                                      .epochs = 1,
                                      .ahead = 1,
                                      .on_bad_row = TEXT_BAD_SKIP,
                                      .quiet = true,
                                      .memory = memory};
}

/* Hashes all batches; *counts are those of the last one. Returns 0 or the feed's error. */
static int read_all(const struct text_feed_options *options, uint64_t *sum,
                    struct text_counts *counts)
{
    struct text_feed *feed = NULL;
    struct text_batch batch = {0};
    *sum = 0;
    int code = text_feed_open(options, NULL, &feed);
    while (code == 0 && (code = text_feed_next(feed, &batch)) == 1) {
        const size_t tokens = (size_t)(options->batch_rows * batch.length);
        *sum = core_hash(batch.ids, tokens * sizeof *batch.ids, *sum);
        *sum = core_hash(batch.labels, tokens * sizeof *batch.labels, *sum);
        code = 0;
    }
    *counts = batch.counts;
    if (code < 0) {
        test_note("%s", core_err_message());
    }
    text_feed_close(feed);
    return code;
}

struct shape {
    const char *front, *text, *end;
    size_t count;
    bool bad; /* no row can be made of the text */
};

static const struct shape shapes[] = {
    {"{\"text\": \"", "a word and 7 more, \\u00e9\\n", "\"}", 300000, false},
    {"{\"text\": \"", "aaaaaaaaaaaaaaaaaaaa", "\"}", 100000, false},
    {"{\"input_ids\": [1", ",2", "]}", 2000000, false},
    {"{\"input_ids\": [1", ",50000", "], \"labels\": [1]}", 500000, true},
    {"{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}",
     ",{\"role\": \"user\", \"content\": \"yes\"}",
     ",{\"role\": \"assistant\", \"content\": \"no\"}]}", 20000, false},
    {"{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}",
     ",{\"role\": \"assistant\", \"content\": \"yes\"}", "]}", 500, false},
    {"{\"conversations\": [{\"from\": \"human\", \"value\": \"", "some words ",
     "\"}, {\"from\": \"gpt\", \"value\": \"yes\"}]}", 300000, false},
    {"{\"instruction\": \"", "do \\\"it\\\" ", "\", \"output\": \"done\"}", 300000, false},
    {"{\"prompt\": \"a\", \"completion\": \"", "\\ud83d\\ude00 ", "\"}", 200000, false},
    {"{\"text\": \"a b\", \"tools\": [0", ",[]", "]}", 300000, false},
    {"{\"text\": \"a b\", \"tools\": [0", ",{}", "]}", 300000, false},
    {"{\"text\": \"a b\", \"tools\": [0", ",1", "]}", 600000, false},
    {"{\"text\": \"a b\", \"tools\": [\"\"", ",\"\"", "]}", 600000, false},
    {"{\"text\": \"a b\", \"tools\": [0", ",{\"a\":{\"b\":1,\"c\":\"d\"}}", "]}", 100000, false},
};

/* The heap has at most 256 KiB more than is charged, and memory is freed. */
static void counts_all(void)
{
    if (!SEES_BLOCKS) {
        test_skip("a sanitizer has malloc for itself");
    }
    static struct text_memory memory;
    const char *folder = make_folder(PLAIN);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const struct shape *shape = &shapes[i];
        const char *file = rows_of("rows.jsonl", shape->front, shape->text, shape->count,
                                   shape->end);
        struct text_feed_options options = options_for(&file, &memory);
        struct text_counts counts;
        uint64_t sum;
        options.model = folder;
        options.pack = i % 2 == 1;
        text_memory_init(&memory, UINT64_C(1) << 30);
        const int64_t before = atomic_load(&live);
        atomic_store(&peak, before);
        check_int(read_all(&options, &sum, &counts), ==, 0);
        check_uint(counts.bad, ==, shape->bad);
        check_uint(atomic_load(&memory.shared.used_bytes) + atomic_load(&memory.large.used_bytes),
                   ==, 0);
        const uint64_t taken = (uint64_t)(atomic_load(&peak) - before);
        const uint64_t counted = text_memory_peak(&memory);
        test_note("shape %zu: %.1f MB taken, %.1f MB counted", i, (double)taken / 1e6,
                  (double)counted / 1e6);
        check_uint(taken, >, counted / 4);
        check_uint(taken, <=, counted + (256 << 10)); /* files, threads and messages */
        check_int(atomic_load(&live) - before, <=, 64 << 10);
    }
}

/* A limit on rows holds. The reported minimum suffices for the same rows. */
static void keeps_the_limit(void)
{
    if (TEST_RACES) {
        test_skip("refuses_by_the_row has the same threads and more");
    }
    enum { LIMIT = 6 << 20 };
    static struct text_memory memory;
    const char *folder = make_folder(PLAIN);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i += TEST_COUNT(1, 2)) {
        const struct shape *shape = &shapes[i];
        const char *file = rows_of("rows.jsonl", shape->front, shape->text, shape->count,
                                   shape->end);
        struct text_feed_options options = options_for(&file, &memory);
        struct text_counts counts;
        uint64_t sum;
        uint64_t again;
        options.model = folder;
        text_memory_init(&memory, LIMIT);
        const int64_t before = atomic_load(&live);
        atomic_store(&peak, before);
        check_int(read_all(&options, &sum, &counts), ==, 0);
        check_uint(counts.rows, ==, 2);
        check_uint(counts.documents, ==, 2 - counts.bad);
        check_uint(core_budget_peak(&memory.large), <=, LIMIT);
        check_uint(core_budget_peak(&memory.small[0]), <=, LIMIT / 2);
        if (SEES_BLOCKS) {
            check_uint((uint64_t)(atomic_load(&peak) - before), <=,
                       text_memory_peak(&memory) + (256 << 10));
        }
        text_memory_init(&memory, UINT64_C(1) << 30);
        check_int(read_all(&options, &sum, &counts), ==, 0);
        const uint64_t least = text_memory_row(&memory);
        const uint64_t line_bytes = memory.line_bytes;
        text_memory_init(&memory, least);
        memory.line_bytes = line_bytes;
        check_int(read_all(&options, &again, &counts), ==, 0);
        check_uint(counts.bad, ==, shape->bad);
        check_uint(again, ==, sum);
    }
}

/* Which rows are refused depends only on the rows, not on threads. */
static void refuses_by_the_row(void)
{
    enum { LIMIT = 4 << 20, ROWS = 60 };
    static struct text_memory memory;
    const char *file = test_file("mixed.jsonl", "", 0);
    FILE *out = fopen(file, "we");
    check_true(out != NULL);
    size_t large = 0;
    for (size_t row = 0; row < ROWS; row++) {
        const bool is_large = row % 7 == 3;
        const size_t words = row % 7 == 3 ? 100000 + row * 10000 : row % 5 == 1 ? 9000 : 5;
        large += is_large;
        fputs("{\"text\": \"", out);
        for (size_t i = 0; i < words; i++) {
            fprintf(out, "w%zu ", i % 97);
        }
        fputs("\"}\n", out);
    }
    check_int(fclose(out), ==, 0);
    struct text_feed_options options = options_for(&file, &memory);
    struct text_counts first;
    uint64_t sum;
    options.model = make_folder(PLAIN);
    text_memory_init(&memory, LIMIT);
    check_int(read_all(&options, &sum, &first), ==, 0);
    check_uint(first.bad, ==, large);
    check_uint(first.rows, ==, ROWS);
    for (unsigned threads = 2; threads <= 4; threads += 2) {
        struct text_counts counts;
        uint64_t again;
        options.threads = threads;
        text_memory_init(&memory, LIMIT);
        check_int(read_all(&options, &again, &counts), ==, 0);
        check_uint(counts.bad, ==, first.bad);
        check_uint(again, ==, sum);
        check_uint(core_budget_peak(&memory.large), <=, LIMIT);
    }
    options.on_bad_row = TEXT_BAD_STOP;
    text_memory_init(&memory, LIMIT);
    check_int(read_all(&options, &sum, &first), ==, -E2BIG);
    check_contains(core_err_message(), "mixed.jsonl:4: the row has ");
    check_contains(core_err_message(), "--data-memory");
}

/* A row that is longer than allowed is skipped without being kept in memory. */
static void passes_over(void)
{
    if (TEST_RACES) {
        test_skip("refuses_by_the_row has the same threads and more");
    }
    enum { LIMIT = 1 << 20 };
    static struct text_memory memory;
    char *text = malloc(8 << 20);
    check_true(text != NULL);
    for (int form = 0; form < 3; form++) {
        const bool array = form == 1;
        size_t at = (size_t)sprintf(text, "%s{\"input_ids\": [1, 2]}%s\n{\"text\": \"[\\\"",
                                    array ? "[" : "", array ? "," : "");
        memset(text + at, 'x', 6 << 20);
        at += 6 << 20;
        at += (size_t)sprintf(text + at, "\"}%s\n{\"input_ids\": [3, 4]}%s\n", array ? "," : "",
                              array ? "]" : "");
        const char *file = test_file("long.jsonl", text, at);
        struct text_feed_options options = options_for(&file, &memory);
        struct text_counts counts;
        uint64_t sum;
        options.shuffle = form == 2;
        text_memory_init(&memory, LIMIT);
        check_int(read_all(&options, &sum, &counts), ==, 0);
        check_uint(counts.rows, ==, 3);
        check_uint(counts.bad, ==, 1);
        check_uint(text_memory_peak(&memory), <=, LIMIT + (1 << 20));
        options.on_bad_row = TEXT_BAD_STOP;
        check_int(read_all(&options, &sum, &counts), ==, -E2BIG);
        check_contains(core_err_message(), array ? "long.jsonl: row 2: the row has 62914"
                                                 : "long.jsonl:2: the row has 62914");
        check_contains(core_err_message(), "may take at most 524288 bytes");
    }
    free(text);
}

/* A template's output is charged to the row. */
static void templates(void)
{
    if (TEST_RACES) {
        test_skip("refuses_by_the_row has the same threads and more");
    }
    enum { LIMIT = 64 << 20 };
    static struct text_memory memory;
    static const char row[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": "
        "\"assistant\", \"content\": \"a\"}]}\n";
    const char *file = test_file("chat.jsonl", row, strlen(row));
    struct text_feed_options options = options_for(&file, &memory);
    struct text_counts counts;
    uint64_t sum;
    options.on_bad_row = TEXT_BAD_STOP;
    options.model = make_folder("{{ 'a'.join(['b'*1000]*100000) }}");
    text_memory_init(&memory, LIMIT);
    const int64_t before = atomic_load(&live);
    atomic_store(&peak, before);
    check_int(read_all(&options, &sum, &counts), ==, -E2BIG);
    check_contains(core_err_message(), "chat.jsonl:1: ");
    check_uint(core_budget_peak(&memory.large), <=, LIMIT);
    if (SEES_BLOCKS) {
        check_uint((uint64_t)(atomic_load(&peak) - before), <=,
                   text_memory_peak(&memory) + (256 << 10));
    }
}

/* A block is charged to the budget that was bound at its allocation. A full budget refuses an
 * allocation and reports the size. */
static void charges(void)
{
    struct core_budget budget;
    core_budget_init(&budget, "test", 1000);
    struct core_budget *before = core_charge_bind(&budget);
    check_true(before == NULL && core_charge_bound() == &budget);
    char *text = core_charge_text("abcdef", 3);
    check_string(text, "abc");
    check_uint(atomic_load(&budget.used_bytes), >=, 4);
    char *block = core_charge_zeroed(10, 10);
    check_true(block != NULL && block[99] == 0);
    check_true(core_charge_alloc(900) == NULL);
    check_uint(core_charge_refused(), >=, 900);
    check_true(core_charge_zeroed(SIZE_MAX, 2) == NULL && core_charge_alloc(SIZE_MAX) == NULL);
    core_charge_bind(NULL);
    check_uint(core_charge_refused(), ==, 0);
    check_true(core_charge_grow(block, 2000) == NULL); /* the budget still owns the block */
    block = core_charge_grow(block, 500);
    check_true(block != NULL);
    check_uint(atomic_load(&budget.used_bytes), >=, 500);
    check_int(core_charge_take(&budget, 800), ==, -ENOMEM);
    check_int(core_charge_take(&budget, 8), ==, 0);
    core_charge_give(&budget, 8);
    core_charge_free(block);
    core_charge_free(text);
    core_charge_free(NULL);
    check_uint(atomic_load(&budget.used_bytes), ==, 0);
    block = core_charge_alloc(5);
    core_charge_free(block);
    check_uint(atomic_load(&budget.used_bytes), ==, 0);
}

TEST_MAIN({"charges", charges}, {"counts_all", counts_all}, {"keeps_the_limit", keeps_the_limit},
          {"refuses_by_the_row", refuses_by_the_row}, {"passes_over", passes_over},
          {"templates", templates})
