/* Tests how files are read as rows of JSON. */
#include "tools/text/data/records.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "tests/harness/fail_alloc.h"
#include "tests/harness/test.h"
#include "tools/text/data/codec.h"
#include "tools/text/data/shuffle.h"
#include "tools/text/data/spool.h"

static int try_open(const char *path, bool shuffle, bool again, struct text_records **out)
{
    const struct text_records_options options = {
        .paths = &path, .paths_count = 1, .shuffle = shuffle, .again = again};
    return text_records_open(&options, out);
}

static struct text_records *open_path(const char *path, bool shuffle)
{
    struct text_records *records = NULL;
    check_int(try_open(path, shuffle, false, &records), ==, 0);
    return records;
}

static const char *write_text(const char *name, const char *text)
{
    return test_file(name, text, strlen(text));
}

/* Lists rows as "name=text;", named as in messages, and then the message of an error. */
static void list(struct text_records *records, char *out, size_t bytes)
{
    struct text_record record;
    int code;
    size_t length = 0;
    while ((code = text_records_next(records, &record)) == 1) {
        char text[100];
        char name[TEXT_NAME_BYTES];
        snprintf(text, sizeof text, "%.*s", (int)record.bytes, record.text);
        text_records_name(records, &record, name);
        const char *slash = strrchr(name, '/');
        length += (size_t)snprintf(out + length, bytes - length, "%s=%s;",
                                   slash != NULL ? slash + 1 : name, text);
    }
    if (code < 0) {
        snprintf(out + length, bytes - length, "%s", core_err_message());
    }
}

static void check_rows(const char *name, const char *text, const char *want)
{
    char got[2000] = "";
    struct text_records *records = open_path(write_text(name, text), false);
    list(records, got, sizeof got);
    check_string(got, want);
    text_records_close(records);
}

/* Lines have different ends; blank lines count; elements of an array have numbers. */
static void lines_and_arrays(void)
{
    check_rows("a.jsonl", "{1}\n\n  \r\n{2}\r\n{3}",
               "a.jsonl:1={1};a.jsonl:4={2}\r;a.jsonl:5={3};");
    check_rows("e.jsonl", "", "");
    check_rows("b.jsonl", "\xEF\xBB\xBF{1}\n", "b.jsonl:1={1};");
    check_rows("c.json", " [ ]\n", "");
    check_rows("d.json", "\xEF\xBB\xBF\n[{\"a\": [1, \"]\\\"}\"]}\n,2 , \"x,\",[3]]\n",
               "d.json: row 1={\"a\": [1, \"]\\\"}\"]};d.json: row 2=2;d.json: row 3=\"x,\";"
               "d.json: row 4=[3];");
}

static void check_refused(const char *text, const char *says)
{
    char got[2000] = "";
    struct text_records *records = open_path(write_text("w.json", text), false);
    list(records, got, sizeof got);
    check_contains(got, says);
    check_contains(got, "w.json: row ");
    text_records_close(records);
}

static void broken_arrays(void)
{
    check_refused("[{} {}]", "row 2: expected a comma or the end of the array");
    check_refused("[{},]", "row 2: a row was expected");
    check_refused("[,]", "row 1: a row was expected");
    check_refused("[{}", "row 2: expected a comma or the end");
    check_refused("[{", "row 1: the file ends inside the row");
    check_refused("[1] 2", "row 2: there is data after the array");
    check_refused("[\"a\nb\"]", "row 1: a string contains a control character");
}

/* Reading can continue at the place of a row. */
static void places(void)
{
    static const char *const names[] = {"p.jsonl", "p.json"};
    static const char *const texts[] = {"{1}\n{2}\n\n{3}\n", "[{1}, {2},\n {3}]"};
    static const char *const rests[2][4] = {
        {"p.jsonl:1={1};p.jsonl:2={2};p.jsonl:4={3};", "p.jsonl:2={2};p.jsonl:4={3};",
         "p.jsonl:4={3};", ""},
        {"p.json: row 1={1};p.json: row 2={2};p.json: row 3={3};",
         "p.json: row 2={2};p.json: row 3={3};", "p.json: row 3={3};", ""}};
    for (size_t i = 0; i < 2; i++) {
        struct text_records *records = open_path(write_text(names[i], texts[i]), false);
        struct text_place place[4] = {{0}};
        struct text_record record;
        for (size_t k = 1; k < 4; k++) {
            check_int(text_records_next(records, &record), ==, 1);
            place[k] = text_records_place(records);
        }
        for (size_t k = 4; k-- > 0;) {
            char got[500] = "";
            check_int(text_records_seek(records, 0, place[k]), ==, 0);
            list(records, got, sizeof got);
            check_string(got, rests[i][k]);
        }
        text_records_close(records);
    }
}

/* Checks that the fixture's lines follow from `from` on. */
static void check_fixture(struct text_records *records, int from)
{
    struct text_record record;
    for (int i = from; i < 40; i++) {
        char want[40];
        const int bytes = snprintf(want, sizeof want, "{\"text\": \"row %d\"}", i);
        check_int(text_records_next(records, &record), ==, 1);
        check_uint(record.bytes, ==, bytes);
        check_memory(record.text, want, (size_t)bytes);
    }
    check_int(text_records_next(records, &record), ==, 0);
}

/* Compressed data may have several members or frames. */
static void packed_data(void)
{
    static const char *const names[] = {"rows.jsonl.gz", "rows.jsonl.zst"};
    for (size_t i = 0; i < 2; i++) {
        char path[4096];
        struct text_records *records = NULL;
        struct text_record record;
        snprintf(path, sizeof path, "%s/text/fixtures/%s", test_root(), names[i]);
        int code = try_open(path, false, false, &records);
        if (code == -ENOTSUP) {
            check_contains(core_err_message(), "built without it");
            continue;
        }
        check_int(code, ==, 0);
        check_fixture(records, 0);
        check_int(text_records_seek(records, 0, (struct text_place){0}), ==, 0);
        for (int k = 0; k < 30; k++) {
            check_int(text_records_next(records, &record), ==, 1);
        }
        const struct text_place place = text_records_place(records);
        check_fixture(records, 30);
        check_int(text_records_seek(records, 0, place), ==, 0);
        check_fixture(records, 30);
        text_records_close(records);
        char mixed[4000] = "";
        records = open_path(path, true);
        list(records, mixed, sizeof mixed);
        check_contains(mixed, ":17={\"text\": \"row 16\"}");
        check_contains(mixed, ":40={\"text\": \"row 39\"}");
        text_records_close(records);
    }
}

/* Writes a fixture `copies` times, which is valid compressed data. */
static const char *write_copies(const char *fixture, const char *name, size_t copies)
{
    char path[4096];
    char *one = NULL;
    size_t bytes = 0;
    snprintf(path, sizeof path, "%s/text/fixtures/%s", test_root(), fixture);
    check_int(core_file_read(path, 1 << 20, &one, &bytes), ==, 0);
    char *all = malloc(copies * bytes);
    check_true(all != NULL);
    for (size_t i = 0; i < copies; i++) {
        memcpy(all + i * bytes, one, bytes);
    }
    const char *written = test_file(name, all, copies * bytes);
    free(all);
    free(one);
    return written;
}

/* Reading can continue at a place in large compressed data. Data that ends before the place is an
 * error. */
static void places_in_packed_data(void)
{
    enum { COPIES = 100, ROWS = 40 };
    static const char *const names[] = {"rows.jsonl.gz", "rows.jsonl.zst"};
    for (size_t i = 0; i < 2; i++) {
        struct text_records *records = NULL;
        struct text_record record;
        struct text_place place = {0};
        const char *path = write_copies(names[i], names[i], COPIES);
        const int code = try_open(path, false, false, &records);
        if (code == -ENOTSUP) {
            continue;
        }
        check_int(code, ==, 0);
        struct text_place early = {0};
        for (int k = 0; k < COPIES * ROWS - 10; k++) {
            early = k == 10 ? text_records_place(records) : early;
            check_int(text_records_next(records, &record), ==, 1);
        }
        place = text_records_place(records);
        check_int(text_records_seek(records, 0, early), ==, 0);
        check_int(text_records_next(records, &record), ==, 1);
        check_uint(record.bytes, ==, strlen("{\"text\": \"row 10\"}"));
        check_memory(record.text, "{\"text\": \"row 10\"}", record.bytes);
        text_records_close(records);

        check_int(try_open(path, false, false, &records), ==, 0);
        check_int(text_records_seek(records, 0, place), ==, 0);
        check_fixture(records, 30);
        text_records_close(records);

        check_int(try_open(write_copies(names[i], "short", 1), false, false, &records), ==, 0);
        check_int(text_records_seek(records, 0, place), ==, -EINVAL);
        check_contains(core_err_message(), "short has only 750 bytes and ends before the saved");
        text_records_close(records);
    }
}

/* Zeros after compressed data, as on tapes, are ignored. */
static void padded_gzip(void)
{
    char path[4096];
    char bytes[20000] = "";
    struct text_records *records = NULL;
    snprintf(path, sizeof path, "%s/text/fixtures/rows.jsonl.gz", test_root());
    FILE *file = fopen(path, "rb");
    check_true(file != NULL);
    const size_t count = fread(bytes, 1, 2000, file);
    fclose(file);
    for (int again = 0; again < 2; again++) { /* then with another member after the zeros */
        memcpy(bytes + 10000, bytes, again == 0 ? 0 : count);
        int code = try_open(test_file("padded.gz", bytes, again == 0 ? 10240 : 10000 + count),
                            false, false, &records);
        if (code == -ENOTSUP) {
            continue;
        }
        check_int(code, ==, 0);
        struct text_record record;
        int rows = 0;
        while ((code = text_records_next(records, &record)) == 1) {
            rows++;
        }
        check_int(code, ==, 0);
        check_int(rows, ==, 40 * (again + 1));
        text_records_close(records);
    }
}

/* Truncated or changed compressed data is an error. */
static void broken_packed_data(void)
{
    static const char *const names[] = {"rows.jsonl.gz", "rows.jsonl.zst"};
    for (size_t i = 0; i < 2; i++) {
        char path[4096];
        char bytes[2000];
        struct text_records *records = NULL;
        snprintf(path, sizeof path, "%s/text/fixtures/%s", test_root(), names[i]);
        FILE *file = fopen(path, "rb");
        check_true(file != NULL);
        size_t count = fread(bytes, 1, sizeof bytes, file);
        fclose(file);
        for (int change = 0; change < 2; change++) {
            if (change == 1) {
                memset(bytes + count / 2, 0x5A, 20);
            }
            const char *cut = test_file(names[i], bytes, change == 0 ? count - 9 : count);
            char got[4000] = "";
            int code = try_open(cut, false, false, &records);
            if (code == -ENOTSUP) {
                continue;
            }
            if (code == 0) {
                list(records, got, sizeof got);
                text_records_close(records);
            } else {
                snprintf(got, sizeof got, "%s", core_err_message());
            }
            check_contains(got,
                           change == 0 ? "ends in the middle of its compressed data" : "broken");
        }
    }
}

/* A pattern gives files in the order of names; a changed file changes the mark. */
static void patterns(void)
{
    char got[500] = "";
    char pattern[4096];
    struct text_records *records = NULL;
    write_text("part-2.jsonl", "{2}\n");
    write_text("part-1.jsonl", "{1}\n");
    snprintf(pattern, sizeof pattern, "%s/part-?.jsonl", test_directory());
    records = open_path(pattern, false);
    check_contains(text_records_file(records, 0), "part-1.jsonl");
    list(records, got, sizeof got);
    check_string(got, "part-1.jsonl:1={1};part-2.jsonl:1={2};");
    const uint64_t mark = text_records_mark(records);
    text_records_close(records);
    write_text("part-2.jsonl", "{22}\n");
    records = open_path(pattern, false);
    check_true(text_records_mark(records) != mark);
    text_records_close(records);
    snprintf(pattern, sizeof pattern, "%s/none-*.jsonl", test_directory());
    check_int(try_open(pattern, false, false, &records), ==, -ENOENT);
    check_contains(core_err_message(), "no file matches this pattern");
    check_int(try_open(test_directory(), false, false, &records), ==, -EISDIR);
    check_int(try_open("/nonexistent", false, false, &records), ==, -ENOENT);
    const struct text_records_options nothing = {0};
    check_int(text_records_open(&nothing, &records), ==, -ENOENT);
}

/* Special files are refused without waiting. */
static void special_files(void)
{
    char path[4096];
    struct text_records *records = NULL;
    snprintf(path, sizeof path, "%s/pipe", test_directory());
    check_int(mkfifo(path, 0600), ==, 0);
    check_int(try_open(path, false, false, &records), ==, -EINVAL);
    check_contains(core_err_message(), "/pipe is a pipe; expected a regular file, or \"-\" for");
    check_int(try_open("/dev/zero", false, false, &records), ==, -EINVAL);
    check_contains(core_err_message(), "/dev/zero is a device; expected");
    snprintf(path, sizeof path, "%s/socket", test_directory());
    check_int(mknod(path, S_IFSOCK | 0600, 0), ==, 0);
    check_int(try_open(path, false, false, &records), ==, -EINVAL);
    check_contains(core_err_message(), "/socket is a socket or a device; expected");
}

/* The error of too many open files says what to do. */
static void too_many_files(void)
{
    struct rlimit before;
    struct text_records *records = NULL;
    const char *path = write_text("one.jsonl", "{1}\n");
    check_int(getrlimit(RLIMIT_NOFILE, &before), ==, 0);
    const struct rlimit none = {.rlim_cur = 3, .rlim_max = before.rlim_max};
    check_int(setrlimit(RLIMIT_NOFILE, &none), ==, 0);
    const int code = try_open(path, false, false, &records);
    check_int(setrlimit(RLIMIT_NOFILE, &before), ==, 0);
    check_int(code, ==, -EMFILE);
    check_contains(core_err_message(), "one.jsonl cannot be opened: ");
    check_contains(core_err_message(), "`ulimit -n` limits their number");
}

/* Of many files, few are open at a time; a file that changes during reading is reported. */
static void many_files(void)
{
    enum { FILES = 60, OPEN = 40 };
    struct rlimit before;
    char pattern[4096];
    char name[40];
    unsigned seen = 0;
    for (int i = 0; i < FILES; i++) {
        char text[60];
        snprintf(name, sizeof name, "many-%02d.jsonl", i);
        snprintf(text, sizeof text, "{%d}\n{%d}\n", i, i);
        write_text(name, text);
    }
    snprintf(pattern, sizeof pattern, "%s/many-*.jsonl", test_directory());
    check_int(getrlimit(RLIMIT_NOFILE, &before), ==, 0);
    const struct rlimit few = {.rlim_cur = OPEN, .rlim_max = before.rlim_max};
    check_int(setrlimit(RLIMIT_NOFILE, &few), ==, 0);
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        struct text_record record;
        struct text_records *records = NULL;
        check_int(try_open(pattern, shuffle == 1, true, &records), ==, 0);
        for (uint64_t epoch = 0; epoch < 2; epoch++) {
            double part = 0;
            check_int(text_records_seek(records, epoch, (struct text_place){0}), ==, 0);
            for (seen = 0; text_records_next(records, &record) == 1; seen++) {
                check_true(text_records_part(records) >= part);
                part = text_records_part(records);
                snprintf(name, sizeof name, "many-%02u.jsonl", record.file);
                check_contains(text_records_file(records, record.file), name);
            }
            check_uint(seen, ==, 2 * FILES);
            check_true(text_records_part(records) > 0.999);
        }
        check_int(text_records_seek(records, 0, (struct text_place){0}), ==, 0);
        write_text("many-30.jsonl", "{}\n");
        int code;
        while ((code = text_records_next(records, &record)) == 1) {
        }
        check_int(code, ==, -EIO);
        check_contains(core_err_message(), "many-30.jsonl has changed while it was being read");
        write_text("many-30.jsonl", "{30}\n{30}\n");
        text_records_close(records);
    }
    check_int(setrlimit(RLIMIT_NOFILE, &before), ==, 0);
}

/* Standard input is copied once for several readers. */
static void kept_input(void)
{
    int fd = -1;
    int ends[2];
    uint64_t copied = 0;
    char got[2][300] = {"", ""};
    struct text_records *records[2] = {NULL, NULL};
    const int before = dup(STDIN_FILENO);
    const char *folder = getenv("TMPDIR");
    char *kept = folder != NULL ? strdup(folder) : NULL;
    check_int(pipe(ends), ==, 0);
    check_int(write(ends[1], "{1}\n{2}\n", 8), ==, 8);
    close(ends[1]);
    check_int(dup2(ends[0], STDIN_FILENO), ==, STDIN_FILENO);
    close(ends[0]);
    setenv("TMPDIR", "", 1);
    check_string(text_spool_folder(), "/var/tmp");
    setenv("TMPDIR", "/nonexistent", 1);
    check_string(text_spool_folder(), "/nonexistent");
    check_int(text_spool_input(&fd, &copied), ==, -ENOENT);
    check_contains(core_err_message(), "cannot be created in /nonexistent: ");
    setenv("TMPDIR", test_directory(), 1);
    check_int(text_spool_input(&fd, &copied), ==, 0);
    check_uint(copied, ==, 8);
    const char *path = "-";
    const struct text_records_options options = {
        .paths = &path, .paths_count = 1, .again = true, .input = fd};
    check_int(text_records_open(&options, &records[0]), ==, 0);
    check_int(text_records_open(&options, &records[1]), ==, 0);
    for (int i = 0; i < 4; i++) {
        struct text_record record;
        check_int(text_records_next(records[i % 2], &record), ==, 1);
        check_uint(record.row, ==, (uint64_t)i / 2 + 1);
    }
    for (int i = 0; i < 2; i++) {
        check_int(text_records_seek(records[i], 1, (struct text_place){0}), ==, 0);
        list(records[i], got[i], sizeof got[i]);
        check_string(got[i], "standard input:1={1};standard input:2={2};");
        text_records_close(records[i]);
    }
    close(fd);
    check_int(text_spool_open("rows", &fd), ==, 0);
    check_int(core_file_write(fd, "abc", 3), ==, 0);
    check_int(lseek(fd, 0, SEEK_END), ==, 3);
    close(fd);
    check_int(core_file_write(fd, "abc", 3), ==, -EBADF);
    check_int(dup2(before, STDIN_FILENO), ==, STDIN_FILENO);
    close(before);
    if (kept != NULL) {
        setenv("TMPDIR", kept, 1);
    } else {
        unsetenv("TMPDIR");
    }
    free(kept);
}

/* A pipe is copied only if it is shuffled or read again. */
static void pipes(void)
{
    for (int way = 0; way < 3; way++) {
        int ends[2];
        char got[500] = "";
        struct text_records *records = NULL;
        check_int(pipe(ends), ==, 0);
        check_int(write(ends[1], "[{1},\n{2}]", 10), ==, 10);
        close(ends[1]);
        check_int(dup2(ends[0], STDIN_FILENO), ==, STDIN_FILENO);
        close(ends[0]);
        check_int(try_open("-", way == 2, way == 1, &records), ==, 0);
        list(records, got, sizeof got);
        check_contains(got, "standard input: row 2={2};");
        check_contains(got, "standard input: row 1={1};");
        int code = text_records_seek(records, 0, (struct text_place){0});
        check_int(code, ==, way == 0 ? -ESPIPE : 0);
        if (way > 0) {
            list(records, got, sizeof got);
            check_contains(got, "row 2={2};");
        }
        text_records_close(records);
    }
}

/* Epochs permute a range differently, and orders are about equally frequent. */
static void orders(void)
{
    static const uint64_t counts[] = {1, 2, 3, 5, 64, 1000, 4097};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        const uint64_t count = counts[i];
        unsigned char *seen = calloc(count, 1);
        check_true(seen != NULL);
        uint64_t moved = 0;
        for (uint64_t k = 0; k < count; k++) {
            const uint64_t at = text_shuffle_at(1, 2, count, k);
            check_uint(at, <, count);
            check_int(seen[at]++, ==, 0);
            moved += at != text_shuffle_at(1, 3, count, k);
            check_uint(at, ==, text_shuffle_at(1, 2, count, k));
        }
        check_true(count < 64 || moved > count / 2);
        free(seen);
    }
    unsigned times[27] = {0};
    for (uint64_t window = 0; window < 6000; window++) {
        uint64_t items[3] = {0, 1, 2};
        text_shuffle_mix(9, 0, window, items, 3);
        times[items[0] * 9 + items[1] * 3 + items[2]]++;
    }
    static const int orders[] = {5, 7, 11, 15, 19, 21};
    for (size_t i = 0; i < 6; i++) {
        check_uint(times[orders[i]], >, 880);
        check_uint(times[orders[i]], <, 1120);
    }
}

static char life_path[4096];

static int records_life(void)
{
    struct text_records *records = NULL;
    struct text_record record;
    int code = try_open(life_path, true, true, &records);
    while (code == 0 && (code = text_records_next(records, &record)) == 1) {
        code = 0;
    }
    text_records_close(records);
    return code;
}

/* A failed allocation is an error; nothing leaks. */
static void out_of_memory(void)
{
    static const char *const names[] = {"/text/fixtures/rows.jsonl.gz",
                                        "/text/fixtures/rows.jsonl.zst"};
    snprintf(life_path, sizeof life_path, "%s", write_text("f.json", "[{1}, {2}]"));
    check_int(test_fail_nth(records_life), >=, 6);
    for (size_t i = 0; i < 2; i++) {
        const struct text_codec *codec = i == 0 ? &text_codec_gzip : &text_codec_zstd;
        snprintf(life_path, sizeof life_path, "%s%s", test_root(), names[i]);
        if (codec->run != NULL) {
            check_int(test_fail_nth(records_life), >=, 6);
        }
    }
}

TEST_MAIN({"lines_and_arrays", lines_and_arrays}, {"broken_arrays", broken_arrays},
          {"places", places}, {"packed_data", packed_data},
          {"places_in_packed_data", places_in_packed_data}, {"padded_gzip", padded_gzip},
          {"broken_packed_data", broken_packed_data}, {"patterns", patterns},
          {"special_files", special_files}, {"too_many_files", too_many_files},
          {"many_files", many_files}, {"kept_input", kept_input}, {"pipes", pipes},
          {"orders", orders}, {"out_of_memory", out_of_memory})
