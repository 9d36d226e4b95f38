/* Tests how rows of files become micro-batches. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "tests/finetune/rows.h"
#include "tests/harness/test.h"
#include "tools/tide/finetune_data.h"

/* Returns the first tokens of the next step's rows, such as "1 2|3 4"; a bar separates
 * micro-batches. */
static const char *step_of(struct finetune_data *data)
{
    static char text[256];
    const struct tide_batch *batches = NULL;
    size_t at = 0;
    int count = finetune_data_step(data, &batches);
    check_int(count, >, 0);
    text[0] = '\0';
    for (int i = 0; i < count; i++) {
        for (uint32_t row = 0; row < batches[i].rows; row++) {
            check_int(batches[i].labels[(size_t)row * batches[i].length + 1], ==, 101);
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%d",
                                   row > 0 ? " "
                                   : i > 0 ? "|"
                                           : "",
                                   batches[i].ids[(size_t)row * batches[i].length]);
        }
    }
    return text;
}

/* Rows come in file order and repeat; the last step of an epoch may be shorter. */
static void order(void)
{
    struct finetune_data_options options = rows_options(rows_file(9, 5));
    struct finetune_data *data = rows_open(&options);
    struct finetune_data_info info;
    finetune_data_describe(data, &info);
    check_int(info.rows, ==, 9);
    check_int(info.longest, ==, 5);
    check_int(info.tokens, ==, 45);
    check_int(info.targets, ==, 36);
    check_int(info.micro_batches, ==, 5);
    check_string(step_of(data), "1 2|3 4|5 6");
    check_string(step_of(data), "7 8|9");
    check_string(step_of(data), "1 2|3 4|5 6");
    check_int(finetune_data_rewind(data), ==, 0);
    check_string(step_of(data), "1 2|3 4|5 6");
    check_int(finetune_data_steps(&info, 3, 1), ==, 2);
    check_int(finetune_data_steps(&info, 3, 2.5), ==, 5);
    check_int(finetune_data_steps(&info, 3, 0.1), ==, 1);
    check_int(finetune_data_steps(&info, 5, 3), ==, 3);
    finetune_data_close(data);
}

/* A micro-batch is at most as large as the data, unless rows are packed: another order may need
 * more packed rows. */
static void few_rows(void)
{
    struct finetune_data_options options = rows_options(rows_file(9, 5));
    struct finetune_data_info info;
    uint64_t memory[2];
    for (int i = 0; i < 2; i++) {
        options.batch = i == 0 ? 9 : 100000;
        struct finetune_data *data = rows_open(&options);
        finetune_data_describe(data, &info);
        check_int(info.batch, ==, 9);
        check_int(info.micro_batches, ==, 1);
        check_string(step_of(data), "1 2 3 4 5 6 7 8 9");
        check_string(step_of(data), "1 2 3 4 5 6 7 8 9");
        memory[i] = finetune_data_memory(data);
        finetune_data_close(data);
    }
    check_uint(memory[1], ==, memory[0]);
    options.batch = 8;
    struct finetune_data *data = rows_open(&options);
    finetune_data_describe(data, &info);
    check_int(info.batch, ==, 8);
    finetune_data_close(data);
    options.batch = 100;
    options.pack = options.shuffle = true;
    options.length_max = 16;
    data = rows_open(&options);
    finetune_data_describe(data, &info);
    check_int(info.batch, ==, 100);
    finetune_data_close(data);
}

/* Batches are filled from the first step on, because their memory is planned earlier. */
static void begins_late(void)
{
    struct finetune_data_options options = rows_options(rows_file(9, 5));
    struct finetune_data *data = rows_open(&options);
    const struct tide_batch *batches = NULL;
    check_int(unlink(options.path), ==, 0);
    check_int(finetune_data_step(data, &batches), ==, -ENOENT);
    (void)rows_file(9, 5);
    check_string(step_of(data), "1 2|3 4|5 6");
    finetune_data_close(data);
}

/* dataloader_drop_last leaves out the rows that do not fill a micro-batch. */
static void drop_last(void)
{
    struct finetune_data_options options = rows_options(rows_file(5, 4));
    options.drop_last = true;
    struct finetune_data *data = rows_open(&options);
    check_string(step_of(data), "1 2|3 4");
    check_string(step_of(data), "1 2|3 4");
    finetune_data_close(data);
    options.batch = 6;
    check_int(finetune_data_open(&options, &data), ==, -EINVAL);
    check_contains(core_err_message(), "5 rows, fewer than the 6 of a micro-batch");
}

/* The seed and the epoch determine the order; a row comes once per epoch. */
static void shuffle(void)
{
    struct finetune_data_options options = rows_options(rows_file(12, 4));
    char first[256];
    char second[256];
    options.shuffle = true;
    options.step_max = 6;
    options.seed = 5;
    struct finetune_data *data = rows_open(&options);
    snprintf(first, sizeof first, "%s", step_of(data));
    snprintf(second, sizeof second, "%s", step_of(data));
    check_true(strcmp(first, second) != 0);
    unsigned seen = 0;
    for (char *rest = first, *word; (word = strsep(&rest, " |")) != NULL;) {
        int row = 0;
        check_int(sscanf(word, "%d", &row), ==, 1);
        seen |= 1u << row;
    }
    check_uint(seen, ==, 0x1FFE);
    finetune_data_close(data);
    data = rows_open(&options);
    step_of(data);
    check_string(step_of(data), second);
    finetune_data_close(data);
    options.seed = 6;
    data = rows_open(&options);
    step_of(data);
    check_true(strcmp(step_of(data), second) != 0);
    finetune_data_close(data);
}

/* Rows are padded to the longest row of their micro-batch, with ignored labels. */
static void padding(void)
{
    static const char text[] = "{\"input_ids\": [1, 2, 3], \"labels\": [-100, 2, 3]}\n"
                               "{\"input_ids\": [4, 5]}\n";
    struct finetune_data_options options = rows_options(test_file("p.jsonl", text, strlen(text)));
    struct finetune_data *data = rows_open(&options);
    const struct tide_batch *batches = NULL;
    check_int(finetune_data_step(data, &batches), ==, 1);
    check_uint(batches[0].rows, ==, 2);
    check_uint(batches[0].length, ==, 3);
    static const int32_t labels[] = {-100, 2, 3, -100, 5, -100};
    check_memory(batches[0].labels, labels, sizeof labels);
    check_int(batches[0].ids[4], ==, 5);
    check_int(finetune_data_tokens(data), ==, 5);
    finetune_data_close(data);
}

/* Makes nine steps of the given length, and counts those whose rows were not ready. */
static size_t steps_that_waited(useconds_t step_us)
{
    struct finetune_data_options options = rows_options(rows_file(60, 12));
    const struct tide_batch *batches = NULL;
    size_t waited = 0;
    options.batch = 1;
    options.step_max = 20;
    struct finetune_data *data = rows_open(&options);
    check_double(finetune_data_wait(data), ==, 0);
    for (int step = 0; step < 9; step++) {
        usleep(step_us);
        check_int(finetune_data_step(data, &batches), ==, 20);
        check_double(finetune_data_wait(data), >=, 0);
        waited += finetune_data_wait(data) > 0;
    }
    finetune_data_close(data);
    return waited;
}

/* Micro-batches are prepared ahead. On a busy machine steps have to be longer to show that. */
static void waits_for_nothing(void)
{
    size_t waited = 9;
    for (useconds_t step_us = 30000; waited > 2 && step_us < 1000000; step_us *= 5) {
        waited = steps_that_waited(step_us);
    }
    check_uint(waited, <=, 2);
}

/* Rows longer than --seq-len are cut; without --seq-len, they are an error. */
static void long_rows(void)
{
    struct finetune_data_options options = rows_options(rows_file(3, 9));
    struct finetune_data *data = NULL;
    options.length_max = 6;
    check_int(finetune_data_open(&options, &data), ==, -EINVAL);
    check_contains(core_err_message(), "3 of 3 rows have more tokens than the model's 6 positions");
    check_contains(core_err_message(), "--seq-len 6 cuts them");
    options.cut = true;
    data = rows_open(&options);
    const struct tide_batch *batches = NULL;
    check_int(finetune_data_step(data, &batches), ==, 2);
    check_uint(batches[0].length, ==, 6);
    finetune_data_close(data);
}

/* A stored position leads another reader to the same next step. */
static void places(void)
{
    struct finetune_data_options options = rows_options(rows_file(9, 5));
    struct finetune_data_place place;
    char next[256];
    options.shuffle = true;
    options.seed = 3;
    struct finetune_data *data = rows_open(&options);
    for (int step = 0; step < 3; step++) {
        step_of(data);
    }
    finetune_data_tell(data, &place);
    snprintf(next, sizeof next, "%s", step_of(data));
    finetune_data_close(data);
    data = rows_open(&options);
    step_of(data);
    check_int(finetune_data_seek(data, &place), ==, 0);
    check_string(step_of(data), next);
    finetune_data_close(data);
    options.path = rows_file(8, 6);
    data = rows_open(&options);
    check_int(finetune_data_seek(data, &place), ==, -EINVAL);
    check_contains(core_err_message(),
                   "the data or the options differ from those of the checkpoint: names, sizes or "
                   "number of the files");
    place.word[7] = 1; /* of a version without options in positions */
    check_int(finetune_data_seek(data, &place), ==, -EINVAL);
    check_contains(core_err_message(), "files and their sizes, --loss");
    place.word[7] = 0; /* of a version without version numbers in positions */
    check_int(finetune_data_seek(data, &place), ==, -EINVAL);
    check_contains(core_err_message(), "another version of tide (it has format 0, and");
    finetune_data_close(data);
}

/* A position of a run with other options is refused; the message names the flags that differ. */
static void other_options(void)
{
    const struct finetune_data_options first = rows_options(rows_file(9, 5));
    struct finetune_data_options cases[5] = {first, first, first, first, first};
    static const char *const differ[5] = {"--seq-len", "--pack", "--shuffle or --seed",
                                          "--train-on", "--chat-format"};
    struct finetune_data_place place;
    cases[0].length_max = 7;
    cases[1].pack = true;
    cases[2].shuffle = true;
    cases[3].train_on_all = true;
    cases[4].chat_format = "chatml";
    struct finetune_data *data = rows_open(&first);
    step_of(data);
    finetune_data_tell(data, &place);
    finetune_data_close(data);
    for (size_t i = 0; i < 5; i++) {
        char end[128];
        data = rows_open(&cases[i]);
        check_int(finetune_data_seek(data, &place), ==, -EINVAL);
        snprintf(end, sizeof end, "those of the checkpoint: %s", differ[i]);
        check_string(strstr(core_err_message(), "those of"), end);
        finetune_data_close(data);
    }
}

/* Tokens of packed rows have the places where their documents start; split rows lose no tokens. */
static void packing(void)
{
    struct finetune_data_options options = rows_options(rows_file(4, 5));
    struct finetune_data_info info;
    const struct tide_batch *batches = NULL;
    options.length_max = 10;
    options.cut = options.pack = true;
    struct finetune_data *data = rows_open(&options);
    finetune_data_describe(data, &info);
    check_int(info.rows, ==, 2);
    check_int(finetune_data_step(data, &batches), ==, 1);
    check_uint(batches[0].length, ==, 10);
    check_int(batches[0].starts[4], ==, 0);
    check_int(batches[0].starts[5], ==, 5);
    check_int(batches[0].positions[5], ==, 0);
    check_int(batches[0].positions[9], ==, 4);
    finetune_data_close(data);
    options.pack = false;
    options.split = true;
    options.length_max = 3;
    data = rows_open(&options);
    finetune_data_describe(data, &info);
    check_int(info.rows, ==, 8);
    check_int(info.tokens, ==, 20);
    check_int(info.cut, ==, 0);
    finetune_data_close(data);
    static const char text[] = "{\"input_ids\": [1, 2]}\n{\"wrong\": 1}\n{\"input_ids\": [3, 4]}\n"
                               "{\"input_ids\": [5, 6, 7], \"labels\": [-100, -100, 7]}\n3\n";
    options = rows_options(test_file("mixed.jsonl", text, strlen(text)));
    check_int(finetune_data_open(&options, &data), ==, -EINVAL);
    check_contains(core_err_message(), "mixed.jsonl:2");
    options.skip_bad = options.cut = true;
    options.length_max = 2;
    data = rows_open(&options);
    finetune_data_describe(data, &info);
    check_int(info.rows, ==, 2);
    check_int(info.read, ==, 3);
    check_int(info.wrong, ==, 2);
    check_int(info.cut, ==, 1);
    check_int(info.untrained, ==, 1);
    finetune_data_close(data);
}

/* A pair has two rows, chosen and rejected, and counts once. */
static void pairs(void)
{
    enum { PAIRS = 5 };
    char path[4096];
    char *tokenizer = NULL;
    size_t bytes = 0;
    struct finetune_data_info info;
    struct finetune_data_place place;
    const struct tide_batch *batches = NULL;
    snprintf(path, sizeof path, "%s/text/fixtures/gpt2.json", test_root());
    check_int(core_file_read(path, 1 << 24, &tokenizer, &bytes), ==, 0);
    snprintf(path, sizeof path, "%s/model", test_directory());
    mkdir(path, 0700);
    test_file("model/tokenizer.json", tokenizer, bytes);
    free(tokenizer);
    struct finetune_data_options options = rows_options(test_file("pairs.jsonl", "", 0));
    FILE *file = fopen(options.path, "w");
    check_true(file != NULL);
    for (int i = 0; i < PAIRS; i++) {
        fprintf(file, "{\"prompt\": \"%c\", \"chosen\": \"!%s\", \"rejected\": \"?\"}\n", 'A' + i,
                i == 3 ? "!" : "?");
    }
    fprintf(file, "{\"prompt\": \"Z\", \"chosen\": \"=\", \"rejected\": \"=\"}\n");
    fclose(file);
    options.model = path;
    options.pairs = true;
    options.step_max = 2;
    struct finetune_data *data = rows_open(&options);
    finetune_data_describe(data, &info);
    check_int(info.rows, ==, PAIRS + 1);
    check_int(info.targets, ==, PAIRS + 1);
    check_int(info.micro_batches, ==, 3);
    check_int(info.equal, ==, 1);
    check_int(info.longest, ==, 3);
    check_int(info.tokens, ==, PAIRS * (3 + 2) + 2 * 2);
    check_int(finetune_data_step(data, &batches), ==, 2);
    check_int(finetune_data_tokens(data), ==, 4 * (3 + 2));
    for (size_t i = 0; i < 2; i++) {
        const size_t length = batches[i].length;
        check_uint(batches[i].rows, ==, 4);
        check_uint(length, ==, 3);
        for (size_t row = 0; row < 4; row += 2) {
            const int32_t *chosen = batches[i].labels + row * length;
            check_int(batches[i].ids[row * length], ==, batches[i].ids[(row + 1) * length]);
            check_true(chosen[0] == -100 && chosen[1] >= 0 && chosen[2] >= 0);
            check_true(chosen[3] == -100 && chosen[4] >= 0 && chosen[5] == -100);
        }
    }
    const int32_t first = batches[0].ids[0];
    finetune_data_tell(data, &place);
    check_int(finetune_data_step(data, &batches), ==, 1);
    const int32_t fifth = batches[0].ids[0];
    check_true(fifth != first);
    check_int(finetune_data_step(data, &batches), ==, 2);
    check_int(batches[0].ids[0], ==, first);
    check_int(finetune_data_seek(data, &place), ==, 0);
    check_int(finetune_data_step(data, &batches), ==, 1);
    check_int(batches[0].ids[0], ==, fifth);
    finetune_data_close(data);
    options.pairs = false;
    check_int(finetune_data_open(&options, &data), ==, -EINVAL);
    check_contains(core_err_message(), "pairs.jsonl:1: the row has chosen and rejected");
    options = rows_options(rows_file(3, 3));
    options.pairs = true;
    check_int(finetune_data_open(&options, &data), ==, -EINVAL);
    check_contains(core_err_message(), "rows.jsonl:1: the row has no chosen and rejected");
}

/* Unusable data are refused; the error names the file, the line or the number. */
static void refusals(void)
{
    static const struct {
        const char *text;
        const char *message;
    } cases[] = {
        {"", "bad.jsonl"},
        {"\n\n", "bad.jsonl"},
        {"{\"input_ids\": [1, 2000]}\n", "2000"},
        {"{\"input_ids\": [1, 2], \"labels\": [1, 1000]}\n", "1000"},
        {"{\"input_ids\": [1, 2], \"labels\": [1]}\n", "bad.jsonl:1"},
        {"{\"input_ids\": [1, 2]}\n{\"input_ids\": [1,\n", "bad.jsonl:2"},
        {"{\"input_ids\": [1]}\n", "bad.jsonl"},
        {"{\"input_ids\": [1, 2], \"labels\": [-100, -100]}\n", "bad.jsonl"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct finetune_data_options options = rows_options(
            test_file("bad.jsonl", cases[i].text, strlen(cases[i].text)));
        struct finetune_data *data = NULL;
        int rc = finetune_data_open(&options, &data);
        if (rc != -EINVAL || strstr(core_err_message(), cases[i].message) == NULL) {
            test_fail(__FILE__, __LINE__, "case %zu: %d, \"%s\"", i, rc, core_err_message());
        }
    }
    struct finetune_data_options options = rows_options("/nonexistent/rows.jsonl");
    struct finetune_data *data = NULL;
    check_int(finetune_data_open(&options, &data), ==, -ENOENT);
}

/* Errors begin with the name of the data, once, even if it is short or a pattern. */
static void names(void)
{
    static const char *const names[] = {"a", "[a]"};
    static const struct {
        const char *text;
        const char *message[2]; /* of a, of [a] */
    } cases[] = {
        {"\n", {"a: no tokens to train on", "[a]: no tokens to train on"}},
        {"{\"input_ids\": [1, 2, 3]}\n{\"text\": \"a\"}\n", {"a:2: ", "a:2: "}},
        {"{\"input_ids\": [1, 2], \"x\"}\n", {"a:1:26: ", "a:1:26: "}},
    };
    const int before = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    check_int(chdir(test_directory()), ==, 0);
    for (size_t i = 0; i < 2 * sizeof cases / sizeof cases[0]; i++) {
        struct finetune_data_options options = rows_options(names[i % 2]);
        struct finetune_data *data = NULL;
        const char *message = cases[i / 2].message[i % 2];
        test_file("a", cases[i / 2].text, strlen(cases[i / 2].text));
        check_int(finetune_data_open(&options, &data), <, 0);
        if (strncmp(core_err_message(), message, strlen(message)) != 0) {
            test_fail(__FILE__, __LINE__, "\"%s\", not \"%s\"", core_err_message(), message);
        }
    }
    check_int(fchdir(before), ==, 0);
    close(before);
}

/* Standard input is read once, but can be used for several epochs. */
static void standard_input(void)
{
    static const char *const texts[] = {"{\"input_ids\": [1, 101]}\n{\"input_ids\": [2, 101]}\n",
                                        "[{\"input_ids\": [1, 101]},\n{\"input_ids\": [2, 101]}]",
                                        "{\"input_ids\": [1, 5000]}\n", ""};
    const int kept = dup(STDIN_FILENO);
    for (size_t i = 0; i < 8; i++) {
        const char *text = texts[i / 2];
        struct finetune_data_options options = rows_options("-");
        struct finetune_data *data = NULL;
        int ends[2];
        options.shuffle = i == 1;
        if (i % 2 == 0) {
            FILE *file = fopen(test_file("in.jsonl", text, strlen(text)), "re");
            check_true(file != NULL);
            check_int(dup2(fileno(file), STDIN_FILENO), ==, STDIN_FILENO);
            fclose(file);
        } else {
            check_int(pipe(ends), ==, 0);
            check_int(write(ends[1], text, strlen(text)), ==, (int)strlen(text));
            close(ends[1]);
            check_int(dup2(ends[0], STDIN_FILENO), ==, STDIN_FILENO);
            close(ends[0]);
        }
        if (i >= 4) {
            check_int(finetune_data_open(&options, &data), ==, -EINVAL);
            check_contains(core_err_message(),
                           i < 6 ? "standard input:1: " : "standard input: no tokens to train on");
            continue;
        }
        data = rows_open(&options);
        for (int epoch = 0; epoch < 3; epoch++) {
            const char *rows = step_of(data);
            check_true(strcmp(rows, "1 2") == 0 || (options.shuffle && strcmp(rows, "2 1") == 0));
        }
        check_int(finetune_data_rewind(data), ==, 0);
        step_of(data);
        finetune_data_close(data);
    }
    check_int(dup2(kept, STDIN_FILENO), ==, STDIN_FILENO);
    close(kept);
}

static void note_part(void *user, double part)
{
    double *last = user;
    check_true(part >= *last && part <= 1);
    *last = part;
}

/* A run of few steps reads only its rows; a run of epochs reads all rows. */
static void looks_no_further(void)
{
    static const char rows[] = "{\"input_ids\": [1, 101]}\n{\"input_ids\": [2, 101, 102]}\n"
                               "{\"input_ids\": [3, 101]}\n{\"input_ids\": [4, 101, 102, 103]}\n"
                               "{\"input_ids\": [5, 101]}\n{\"input_ids\": [6, 101, 102]}\n";
    char text[512];
    snprintf(text, sizeof text, "%s{\"input_ids\": 7}\n", rows);
    double part = 0;
    struct finetune_data_info info;
    struct finetune_data_place place;
    struct finetune_data *data = NULL;
    struct finetune_data_options options = rows_options(test_file("few.jsonl", text, strlen(text)));
    options.step_max = 1;
    options.progress = note_part;
    options.user = &part;
    check_int(finetune_data_open(&options, &data), ==, -EINVAL);
    check_contains(core_err_message(), "few.jsonl:7");
    part = 0;
    options.steps = 1;
    data = rows_open(&options);
    finetune_data_describe(data, &info);
    check_true(!info.whole);
    check_int(info.rows, ==, 2);
    check_int(info.longest, ==, 3);
    check_true(part > 0 && part < 0.9);
    check_string(step_of(data), "1 2");
    finetune_data_tell(data, &place);
    finetune_data_close(data);
    part = 0;
    options.steps = 3;
    data = rows_open(&options);
    finetune_data_describe(data, &info);
    check_int(info.longest, ==, 4);
    check_int(finetune_data_seek(data, &place), ==, 0);
    check_string(step_of(data), "3 4");
    check_string(step_of(data), "5 6");
    finetune_data_close(data);
    part = 0;
    options.begun = 1; /* after the position, other micro-batches are possible */
    options.place = place;
    options.batch = 1;
    data = rows_open(&options);
    finetune_data_describe(data, &info);
    check_int(info.rows, ==, 4);
    check_int(info.longest, ==, 4);
    check_true(!info.whole);
    finetune_data_close(data);
    options.begun = 0;
    options.batch = 2;
    part = 0;
    options.path = test_file("all.jsonl", rows, strlen(rows));
    options.steps = 100;
    data = rows_open(&options);
    finetune_data_describe(data, &info);
    check_true(info.whole);
    check_int(info.rows, ==, 6);
    check_true(part > 0.9);
    finetune_data_close(data);
}

TEST_MAIN({"order", order}, {"few_rows", few_rows}, {"begins_late", begins_late},
          {"standard_input", standard_input}, {"looks_no_further", looks_no_further},
          {"drop_last", drop_last}, {"shuffle", shuffle}, {"padding", padding},
          {"waits_for_nothing", waits_for_nothing}, {"long_rows", long_rows}, {"places", places},
          {"other_options", other_options}, {"packing", packing}, {"pairs", pairs},
          {"refusals", refusals}, {"names", names})
