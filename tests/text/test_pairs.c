/* Tests rows that are pairs of answers, compared with TRL (pairs.json of
 * tests/oracle/dpo_rows.py). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/json/json.h"
#include "tests/harness/fail_alloc.h"
#include "tests/harness/test.h"
#include "tests/text/model_folder.h"
#include "tools/text/data/feed.h"
#include "tools/text/data/row.h"
#include "tools/text/data/sample.h"

static const char config[] = "{\"eos_token\": \"<|endoftext|>\", \"chat_template\": \"{% for m in "
                             "messages %}{{ m.role }}: {{ m.content }}\\n{% endfor %}{% if "
                             "add_generation_prompt %}assistant: {% endif %}\"}";

static struct text_feed_options options_for(const char *const *files, const char *model)
{
    return (struct text_feed_options){.files = files,
                                      .files_count = 1,
                                      .model = model,
                                      .seq_len = 4096,
                                      .batch_rows = 2,
                                      .pairs = true,
                                      .epochs = 1};
}

/* Returns whether a row has these ids, then padding, and an answer that begins at `begin`. */
static bool is_answer(const struct text_batch *batch, int64_t row,
                      const struct core_json_value *ids, int64_t begin)
{
    const int64_t count = (int64_t)core_json_count(ids);
    bool same = count <= batch->length;
    for (int64_t i = 0; i < batch->length && same; i++) {
        const int64_t at = row * batch->length + i;
        const int64_t id = i < count ? core_json_integer(core_json_at(ids, (size_t)i)) : 0;
        const bool trained = i > 0 && i >= begin && i < count;
        same = batch->ids[at] == id && batch->labels[at] == (trained ? id : TEXT_IGNORED);
    }
    return same;
}

static void check_group(const struct core_json_value *group)
{
    enum { PAIRS = 3 };
    char text[4000];
    const char *files[] = {test_file("pairs.jsonl", "", 0)};
    const struct core_json_value *pairs = core_json_find(group, "pairs");
    FILE *file = fopen(files[0], "w");
    check_true(file != NULL);
    for (size_t i = 0; i < core_json_count(pairs); i++) {
        core_json_print(core_json_find(core_json_at(pairs, i), "row"), text, sizeof text);
        check_true(strlen(text) + 1 < sizeof text);
        fprintf(file, "%s\n", text);
    }
    fclose(file);
    core_json_print(core_json_find(group, "config"), text, sizeof text);
    const char *tokenizer = core_json_string(core_json_find(group, "tokenizer"), NULL);
    const char *folder = model_folder("trl", tokenizer, text);
    if (folder == NULL) {
        test_note("%s: %s", tokenizer, core_err_message());
        return;
    }
    struct text_feed *feed = NULL;
    struct text_batch batch = {0};
    struct text_feed_options options = options_for(files, folder);
    options.seq_len = core_json_integer(core_json_find(group, "length"));
    options.batch_rows = 2 * PAIRS;
    options.threads = 2;
    int64_t row = 0;
    uint64_t dropped = 0;
    check_int(text_feed_open(&options, NULL, &feed), ==, 0);
    for (size_t i = 0; i < core_json_count(pairs); i++) {
        const struct core_json_value *want = core_json_find(core_json_at(pairs, i), "want");
        if (core_json_kind(want) == CORE_JSON_NULL) {
            dropped++;
            continue;
        }
        if (row == batch.rows) {
            const int code = text_feed_next(feed, &batch);
            if (code != 1) {
                test_fail(__FILE__, __LINE__, "%s: pair %zu: %s", tokenizer, i, core_err_message());
            }
            row = 0;
        }
        const int64_t begin = core_json_integer(core_json_find(want, "prompt"));
        if (!is_answer(&batch, row, core_json_find(want, "chosen"), begin) ||
            !is_answer(&batch, row + 1, core_json_find(want, "rejected"), begin)) {
            test_fail(__FILE__, __LINE__, "%s: pair %zu differs", tokenizer, i);
        }
        row += 2;
    }
    check_int(row, ==, batch.rows);
    check_int(text_feed_next(feed, &batch), ==, 0);
    check_uint(batch.counts.untrained, ==, dropped);
    check_uint(batch.counts.equal, >=, 1);
    text_feed_close(feed);
}

/* Ids, beginnings of answers and dropped pairs are TRL's. */
static void as_trl(void)
{
    char path[4096];
    struct core_json *doc = NULL;
    static const struct core_log silent = {.level = CORE_LOG_ERROR};
    snprintf(path, sizeof path, "%s/text/fixtures/pairs.json", test_root());
    check_int(core_json_load(path, NULL, &doc), ==, 0);
    const struct core_json_value *groups = core_json_root(doc);
    check_uint(core_json_count(groups), >=, 4);
    core_log_bind(&silent);
    for (size_t i = 0; i < core_json_count(groups); i++) {
        check_group(core_json_at(groups, i));
    }
    core_log_bind(NULL);
    core_json_destroy(doc);
}

#define TURN(role, text) "{\"role\": \"" role "\", \"content\": \"" text "\"}"
#define QUESTION         TURN("user", "q")
#define ANSWER(text)     TURN("assistant", text)

/* The error of a wrong pair names the key; rows of other kinds are not pairs. */
static void wrong_rows(void)
{
    static const struct {
        const char *row;
        const char *says;
    } cases[] = {
        {"{}", "the row has no chosen and rejected; with --loss dpo, each row is {\"prompt\""},
        {"[1]", "the row has no chosen and rejected"},
        {"{\"text\": \"a\"}", "the row has no chosen and rejected"},
        {"{\"input_ids\": [1, 2]}", "the row has no chosen and rejected"},
        {"{\"messages\": [" QUESTION "]}", "the row has no chosen and rejected"},
        {"{\"prompt\": \"a\", \"completion\": \"b\"}", "the row has no chosen and rejected"},
        {"{\"prompt\": \"a\", \"chosen\": \"b\"}", "rejected: is missing; with --loss dpo"},
        {"{\"prompt\": \"a\", \"rejected\": \"b\"}", "chosen: is missing; with --loss dpo"},
        {"{\"chosen\": \"a\", \"rejected\": null}", "rejected: is missing"},
        {"{\"chosen\": 3, \"rejected\": \"a\"}",
         "chosen: is an integer; expected a string or a list of messages"},
        {"{\"chosen\": \"a\", \"rejected\": {}}", "rejected: is an object; expected a string or"},
        {"{\"chosen\": \"a\", \"rejected\": []}",
         "rejected: is an array, but chosen is a string; all must be strings, or all lists of "
         "messages"},
        {"{\"prompt\": \"a\", \"chosen\": [" ANSWER("a") "], \"rejected\": [" ANSWER("b") "]}",
         "prompt: is a string, but chosen is an array; all must be strings, or all lists of "
         "messages (omit prompt if both answers begin with it)"},
        {"{\"prompt\": \"a\", \"chosen\": \"\", \"rejected\": \"b\"}", "chosen: is empty"},
        {"{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"\"}", "rejected: is empty"},
        {"{\"chosen\": \"\", \"rejected\": \"\"}", "chosen: is empty"},
        {"{\"chosen\": [], \"rejected\": []}", "chosen: is not a list of messages, or is empty"},
        {"{\"prompt\": [], \"chosen\": [" ANSWER("a") "], \"rejected\": [" ANSWER("b") "]}",
         "prompt: is not a list of messages, or is empty"},
        {"{\"prompt\": [" QUESTION
         "], \"chosen\": [" ANSWER("a") "], \"rejected\": [" ANSWER("b") ", 4]}",
         "rejected[1]: is an integer; expected an object"},
        {"{\"prompt\": [" QUESTION "], \"chosen\": [" TURN("king", "a") "], \"rejected\": []}",
         "chosen[0]: role: unknown role \"king\""},
        {"{\"chosen\": [" ANSWER("a") "], \"rejected\": [" ANSWER("b") "]}",
         "chosen and rejected have no message in common before their last ones"},
        {"{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\", \"tools\": 3}", "tools: is"},
        {"{\"chosen\": \"b\", \"rejected\": \"c\", \"rejected\": \"d\"}", "duplicate key"},
    };
    static const char *const pairs[] = {
        "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}",
        "{\"chosen\": \"ab\", \"rejected\": \"ac\"}",
    };
    struct text_row row;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (text_row_parse_pair(cases[i].row, strlen(cases[i].row), &row) != -EINVAL) {
            test_fail(__FILE__, __LINE__, "accepted: %s", cases[i].row);
        }
        check_contains(core_err_message(), cases[i].says);
    }
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        check_int(text_row_parse(pairs[i], strlen(pairs[i]), &row), ==, -EINVAL);
        check_contains(core_err_message(),
                       "the row has chosen and rejected, which need --loss dpo");
    }
}

/* Without a separate prompt, the prompt is what the answers' messages have in common. */
static void common_prompts(void)
{
    static const struct {
        const char *chosen;
        const char *rejected;
        size_t prompt;
    } cases[] = {
        {QUESTION ", " ANSWER("a"), QUESTION ", " ANSWER("b"), 1},
        {QUESTION ", " ANSWER("a") ", " QUESTION, QUESTION ", " ANSWER("a"), 1},
        {QUESTION ", " ANSWER("a"), QUESTION ", " ANSWER("a") ", " QUESTION, 1},
        {"{\"content\": \"q\", \"role\": \"user\", \"x\": null}, " ANSWER("a"),
         QUESTION ", " ANSWER("b"), 1},
        {"{\"from\": \"human\", \"value\": \"q\"}, " ANSWER("a"), QUESTION ", " ANSWER("b"), 1},
        {"{\"role\": \"user\", \"content\": \"q\", \"x\": [1, {\"y\": 2.5, \"z\": true}]}, " ANSWER(
             "a"),
         "{\"role\": \"user\", \"content\": \"q\", \"x\": [1.0, {\"z\": true, \"y\": "
         "2.5}]}, " ANSWER("a"),
         1},
        {QUESTION ", " ANSWER("a") ", " QUESTION ", " ANSWER("b"),
         QUESTION ", " ANSWER("a") ", " QUESTION ", " ANSWER("c"), 3},
        {QUESTION ", " ANSWER("a") ", " QUESTION ", " ANSWER("b"),
         QUESTION ", " ANSWER("b") ", " QUESTION ", " ANSWER("c"), 1},
    };
    /* The messages differ in one member. */
    static const char *const differ[][2] = {
        {"\"x\": 1", "\"x\": 2"},        {"\"x\": true", "\"x\": false"},
        {"\"x\": [1]", "\"x\": [1, 2]"}, {"\"x\": {\"y\": 1}", "\"x\": {\"z\": 1}"},
        {"\"x\": \"1\"", "\"x\": 1"},
    };
    char json[2000];
    struct text_row row;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(json, sizeof json, "{\"chosen\": [%s], \"rejected\": [%s]}", cases[i].chosen,
                 cases[i].rejected);
        check_int(text_row_parse_pair(json, strlen(json), &row), ==, 0);
        check_int(row.kind, ==, TEXT_ROW_CHAT_PAIR);
        check_uint(row.prompt_messages, ==, cases[i].prompt);
        text_row_fini(&row);
    }
    for (size_t i = 0; i < sizeof differ / sizeof differ[0]; i++) {
        static const char turn[] = "{\"role\": \"user\", \"content\": \"q\", %s}";
        char left[200];
        char right[200];
        snprintf(left, sizeof left, turn, differ[i][0]);
        snprintf(right, sizeof right, turn, differ[i][1]);
        snprintf(json, sizeof json,
                 "{\"system\": \"s\", \"chosen\": [%s, " ANSWER(
                     "a") "], \"rejected\": [%s, " ANSWER("b") "]}",
                 left, right);
        check_int(text_row_parse_pair(json, strlen(json), &row), ==, 0);
        check_uint(row.prompt_messages, ==, 1); /* the common system turn */
        check_uint(core_json_count(row.rejected_messages), ==, 3);
        text_row_fini(&row);
    }
}

/* Writes pairs of different lengths; pair i has "i." in its prompt. */
static const char *write_pairs(const char *name, int count)
{
    static const char filler[] = "one two three four five six";
    const char *path = test_file(name, "", 0);
    FILE *file = fopen(path, "w");
    check_true(file != NULL);
    for (int i = 0; i < count; i++) {
        fprintf(file,
                "{\"prompt\": \"%d.\", \"chosen\": \" yes%.*s\", \"rejected\": \" no%.*s\"}\n", i,
                i % 7, filler, i % 5, filler);
    }
    fclose(file);
    return path;
}

/* Checks that the rows of a pair begin with equal tokens without labels, and that padding rows have
 * no labels. */
static void check_pairs(const struct text_batch *batch, int64_t batch_rows)
{
    const size_t length = (size_t)batch->length;
    check_int(batch->rows % 2, ==, 0);
    check_int(batch->targets, ==, batch->rows / 2);
    for (int64_t row = 0; row < batch_rows; row++) {
        const int32_t *labels = batch->labels + (size_t)row * length;
        check_true((text_sample_targets(labels, length) > 0) == (row < batch->rows));
        check_int(labels[0], ==, TEXT_IGNORED);
    }
    for (int64_t row = 0; row < batch->rows; row += 2) {
        const size_t at = (size_t)row * length;
        for (size_t i = 0; i < length && batch->labels[at + i] == TEXT_IGNORED; i++) {
            check_int(batch->labels[at + length + i], ==, TEXT_IGNORED);
            check_int(batch->ids[at + length + i], ==, batch->ids[at + i]);
        }
    }
}

/* Writes the hashes and the ends of the batches after a position; returns the number of batches. */
static size_t sums_of(const struct text_feed_options *options, const struct text_position *from,
                      uint64_t *sums, struct text_position *after, size_t most)
{
    size_t count = 0;
    struct text_batch batch;
    struct text_feed *feed = NULL;
    check_int(text_feed_open(options, from, &feed), ==, 0);
    while (count < most && text_feed_next(feed, &batch) == 1) {
        uint64_t sum = (uint64_t)batch.length + 1000 * batch.epoch;
        check_pairs(&batch, options->batch_rows);
        for (int64_t i = 0; i < options->batch_rows * batch.length; i++) {
            sum = sum * 31 + (uint64_t)(batch.ids[i] + 7 * batch.labels[i]);
        }
        after[count] = batch.after;
        sums[count++] = sum;
    }
    text_feed_close(feed);
    return count;
}

/* The same pairs follow from a position. Ranks share whole pairs. */
static void resumes(void)
{
    enum { PAIRS = 23, MOST = 40 };
    uint64_t want[MOST];
    uint64_t got[MOST];
    struct text_position after[MOST];
    struct text_position unused[MOST];
    const char *folder = model_folder("resumes", "gpt2", config);
    const char *files[] = {write_pairs("resumes.jsonl", PAIRS)};
    check_true(folder != NULL);
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        struct text_feed_options options = options_for(files, folder);
        options.epochs = 2;
        options.shuffle = shuffle == 1;
        options.batch_rows = 4;
        const size_t count = sums_of(&options, NULL, want, after, MOST);
        check_uint(count, ==, 2 * ((PAIRS + 1) / 2));
        for (size_t i = 0; i < count; i++) {
            check_uint(sums_of(&options, &after[i], got, unused, MOST), ==, count - i - 1);
            check_memory(got, want + i + 1, (count - i - 1) * sizeof *got);
        }
        struct text_feed_options half = options;
        struct text_batch batch;
        struct text_feed *whole = NULL;
        struct text_batch parts[2];
        struct text_feed *feeds[2] = {NULL, NULL};
        half.batch_rows = 2;
        half.ranks = 2;
        check_int(text_feed_open(&options, NULL, &whole), ==, 0);
        for (unsigned rank = 0; rank < 2; rank++) {
            half.rank = rank;
            check_int(text_feed_open(&half, NULL, &feeds[rank]), ==, 0);
        }
        while (text_feed_next(whole, &batch) == 1) {
            for (int64_t rank = 0; rank < 2; rank++) {
                const struct text_batch *part = &parts[rank];
                check_int(text_feed_next(feeds[rank], &parts[rank]), ==, 1);
                check_pairs(part, 2);
                check_int(part->rows, ==, batch.rows - 2 * rank > 0 ? 2 : 0);
                check_int(part->targets_all, ==, batch.targets);
                check_int(part->length, ==, batch.length);
                check_memory(part->ids, batch.ids + 2 * rank * batch.length,
                             2 * (size_t)batch.length * sizeof *part->ids);
            }
        }
        text_feed_close(whole);
        text_feed_close(feeds[0]);
        text_feed_close(feeds[1]);
    }
    struct text_feed *feed = NULL;
    struct text_feed_options other = options_for(files, folder);
    other.pairs = false;
    other.shuffle = true;
    check_int(text_feed_open(&other, &after[0], &feed), ==, -EINVAL);
    check_contains(core_err_message(), "those of the checkpoint: --loss");
}

/* Long answers are cut; pairs whose prompt fills the row are dropped. */
static void counts(void)
{
    static const char rows[] =
        "{\"prompt\": \"ab\", \"chosen\": \"cd cd cd cd cd\", \"rejected\": \"xy xy xy xy\"}\n"
        "{\"prompt\": \"ab ab ab ab ab ab\", \"chosen\": \"c\", \"rejected\": \"d\"}\n"
        "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"b\"}\n"
        "{\"prompt\": \"a\", \"chosen\": \"x\", \"rejected\": \"y y y y y y\"}\n";
    const char *files[] = {test_file("counts.jsonl", rows, strlen(rows))};
    struct text_feed *feed = NULL;
    struct text_batch batch;
    struct text_feed_options options = options_for(files, model_folder("counts", "gpt2", "{}"));
    options.seq_len = 6;
    options.batch_rows = 6;
    check_int(text_feed_open(&options, NULL, &feed), ==, 0);
    check_int(text_feed_next(feed, &batch), ==, 1);
    check_int(batch.rows, ==, 6);
    check_int(batch.length, ==, 6);
    check_pairs(&batch, 6);
    check_int(text_feed_next(feed, &batch), ==, 0);
    check_uint(batch.counts.rows, ==, 4);
    check_uint(batch.counts.documents, ==, 6);
    check_uint(batch.counts.targets, ==, 3);
    check_uint(batch.counts.cut, ==, 3);
    check_uint(batch.counts.untrained, ==, 1);
    check_uint(batch.counts.equal, ==, 1);
    text_feed_close(feed);
}

/* A bad row is an error or is skipped; options that contradict pairs are refused. */
static void refuses(void)
{
    static const char rows[] = "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}\n"
                               "{\"text\": \"a\"}\n"
                               "{\"input_ids\": [1, 2], \"labels\": [1, 2]}\n"
                               "{\"prompt\": \"a\", \"chosen\": \"b\"}\n"
                               "{\"prompt\": \"a\", \"chosen\": \"d\", \"rejected\": \"e\"}\n";
    static const char silent[] =
        "{\"chat_template\": \"{% for m in messages %}{% if m.role == 'user' or "
        "m.content == 'c' %}{{ m.content }}{% endif %}{% endfor %}\"}";
    static const char chats[] = "{\"prompt\": [" QUESTION "], \"chosen\": [" ANSWER(
        "a") "], \"rejected\": [" ANSWER("c") "]}\n"
                                              "{\"prompt\": [" QUESTION "], \"chosen\": [" ANSWER(
                                                  "c") "], \"rejected\": [" ANSWER("b") "]}\n";
    static const struct {
        struct text_feed_options set;
        const char *says;
    } cases[] = {
        {{.batch_rows = 3}, "a pair needs two rows of a batch"},
        {{.batch_rows = 2, .pack = true}, "--pack and --split cannot be used"},
        {{.batch_rows = 2, .split = true}, "--pack and --split cannot be used"},
        {{.batch_rows = 2, .train_on = TEXT_TRAIN_ALL}, "--train-on all cannot be used"},
    };
    static const struct core_log none = {.level = CORE_LOG_ERROR};
    const char *files[] = {test_file("refuses.jsonl", rows, strlen(rows))};
    const char *folder = model_folder("refuses", "gpt2", config);
    struct text_feed_options options = options_for(files, folder);
    struct text_feed *feed = NULL;
    struct text_batch batch;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct text_feed_options wrong = options;
        wrong.batch_rows = cases[i].set.batch_rows;
        wrong.pack = cases[i].set.pack;
        wrong.split = cases[i].set.split;
        wrong.train_on = cases[i].set.train_on;
        check_int(text_feed_open(&wrong, NULL, &feed), ==, -EINVAL);
        check_contains(core_err_message(), cases[i].says);
    }
    core_log_bind(&none);
    check_int(text_feed_open(&options, NULL, &feed), ==, 0);
    check_int(text_feed_next(feed, &batch), ==, 1);
    check_int(text_feed_next(feed, &batch), ==, -EINVAL);
    check_contains(core_err_message(), "refuses.jsonl:2: the row has no chosen and rejected");
    text_feed_close(feed);
    options.on_bad_row = TEXT_BAD_SKIP;
    options.batch_rows = 8;
    check_int(text_feed_open(&options, NULL, &feed), ==, 0);
    check_int(text_feed_next(feed, &batch), ==, 1);
    check_int(batch.rows, ==, 4);
    check_uint(batch.counts.bad, ==, 3);
    check_pairs(&batch, 8);
    text_feed_close(feed);
    options.on_bad_row = TEXT_BAD_STOP;
    files[0] = test_file("silent.jsonl", chats, strlen(chats));
    options.model = model_folder("silent", "gpt2", silent);
    for (size_t i = 0; i < 2; i++) { /* The template omits an answer. */
        check_int(text_feed_open(&options, NULL, &feed), ==, 0);
        check_int(text_feed_next(feed, &batch), ==, -EINVAL);
        check_contains(
            core_err_message(),
            i == 0 ? "silent.jsonl:1: chosen: no token of the row is trained on (1 tokens)"
                   : "silent.jsonl:1: rejected: no token of the row is trained on (1 tokens)");
        text_feed_close(feed);
        files[0] = test_file("silent.jsonl", strchr(chats, '\n') + 1,
                             strlen(strchr(chats, '\n') + 1));
    }
    core_log_bind(NULL);
}

static const char *life_folder;

static int life(void)
{
    static const char *const rows[] = {
        "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}",
        "{\"chosen\": [" QUESTION ", " ANSWER("a") "], \"rejected\": [" QUESTION
                                                   ", " ANSWER("b") "]}"};
    return model_folder_encode(life_folder, rows, 2, text_row_parse_pair);
}

/* A failed allocation is an error; nothing leaks. */
static void out_of_memory(void)
{
    life_folder = model_folder("life", "gpt2", config);
    check_true(life_folder != NULL);
    check_int(test_fail_nth(life), >=, 20);
}

TEST_MAIN({"as_trl", as_trl}, {"wrong_rows", wrong_rows}, {"common_prompts", common_prompts},
          {"resumes", resumes}, {"counts", counts}, {"refuses", refuses},
          {"out_of_memory", out_of_memory})
