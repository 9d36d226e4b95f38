/* tokenize.c: `tide tokenize`: shows tokens of rows, prints figures, and writes rows of ids to a
 * file. The main thread. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/json/json.h"
#include "core/json/write.h"
#include "tools/text/data/chat.h"
#include "tools/text/data/encode.h"
#include "tools/text/data/feed.h"
#include "tools/text/data/pack.h"
#include "tools/text/tokenizer/special.h"
#include "tools/text/tokenizer/tokenizer.h"
#include "tools/tide/commands.h"
#include "tools/tide/finetune_settings.h"
#include "tools/tide/paths.h"

enum { BUCKETS = 32, BAR = 40, NO_LIMIT = 1 << 26 };

struct figures {
    uint64_t documents;
    uint64_t tokens;
    uint64_t targets;
    uint64_t rows; /* after packing */
    uint64_t shortest;
    uint64_t longest;
    uint64_t buckets[BUCKETS]; /* documents with 2^i ... 2^(i + 1) - 1 tokens */
};

struct tokenize {
    const struct cli_command *command;
    struct text_feed_options options;
    struct cli_texts data;
    struct cli_common common;
    const char *out;
    int64_t show;
    int64_t threads;
    struct text_memory memory;
    uint64_t row_bytes;
    bool stats;
    bool writes;                      /* `json` is open */
    struct text_reader *reader;       /* owned */
    struct text_pack *pack;           /* owned */
    struct text_tokenizer *tokenizer; /* owned: for rows of ids */
    struct text_scratch *scratch;     /* owned; NULL: none yet, or ids are shown */
    FILE *file;                       /* owned unless stdout; NULL: none */
    char *target;                     /* owned: final name; NULL: none */
    char *partial;                    /* owned: temporary name */
    int lock;                         /* descriptor of `partial`, locked */
    struct core_json_write json;
    struct figures figures;
};

/* Colours: trained tokens are green, others dim; every second token is underlined. No colours:
 * trained tokens are in [brackets]. */
static int print_token(const struct tokenize *t, int32_t id, bool trained, size_t index)
{
    const char *text = NULL;
    size_t bytes = 0;
    char number[16];
    int rc = 0;
    if (t->scratch != NULL) {
        const uint32_t token = (uint32_t)id;
        rc = text_tokenizer_decode(t->scratch, &token, 1, false, &text, &bytes);
    }
    /* A model may have more ids than its tokenizer. */
    if (t->scratch == NULL || rc == -ERANGE) {
        bytes = (size_t)snprintf(number, sizeof number, rc != 0 ? "<%" PRId32 ">" : "%" PRId32, id);
        text = number;
        rc = 0;
    }
    if (rc != 0) {
        return rc;
    }
    if (t->common.color) {
        printf("\x1b[%s%sm", trained ? "32" : "2", index % 2 == 1 ? ";4" : "");
    } else {
        printf("%s%s", index > 0 && t->scratch == NULL ? " " : "", trained ? "[" : "");
    }
    for (size_t at = 0; at < bytes;) { /* after "\n", a newline is printed */
        const char *end = memchr(text + at, '\n', bytes - at);
        const size_t length = end != NULL ? (size_t)(end - text) + 1 - at : bytes - at;
        cli_print_text(stdout, text + at, length);
        fputs(end != NULL ? "\n" : "", stdout);
        at += length;
    }
    printf("%s", t->common.color ? "\x1b[0m" : trained ? "]" : "");
    return 0;
}

static int need_scratch(struct tokenize *t)
{
    const struct text_encoder *encoder = text_reader_encoder(t->reader);
    int rc = 0;
    if (t->scratch != NULL || (encoder == NULL && t->options.model == NULL)) {
        return 0;
    }
    if (encoder == NULL && t->tokenizer == NULL) {
        rc = text_tokenizer_load(t->options.model, &t->tokenizer);
    }
    return rc == 0
               ? text_scratch_create(
                     encoder != NULL ? text_encoder_tokenizer(encoder) : t->tokenizer, &t->scratch)
               : rc;
}

static uint64_t rows_each(const struct tokenize *t)
{
    return t->options.pairs ? 2 : 1;
}

static bool shows_no_more(const struct tokenize *t)
{
    return t->figures.documents / rows_each(t) >= (uint64_t)t->show;
}

static int print_document(struct tokenize *t, const struct text_document *document)
{
    int rc = need_scratch(t);
    const uint64_t index = t->figures.documents;
    printf("%s%" PRIu64 "%s: %zu token%s, %zu trained on\n", index > 0 ? "\n" : "",
           index / rows_each(t) + 1,
           !t->options.pairs ? ""
           : index % 2 == 0  ? " chosen"
                             : " rejected",
           document->count, document->count == 1 ? "" : "s",
           text_sample_targets(document->labels, document->count));
    for (size_t i = 0; i < document->count && rc == 0; i++) {
        rc = print_token(t, document->ids[i], document->labels[i] != TEXT_IGNORED, i);
    }
    printf("\n");
    return rc;
}

static void write_list(struct core_json_write *json, const char *key, const int32_t *items,
                       size_t count)
{
    core_json_write_array_begin(json, key);
    for (size_t i = 0; i < count; i++) {
        core_json_write_integer(json, NULL, items[i]);
    }
    core_json_write_array_end(json);
}

static int refuse_out(const struct tokenize *t, int cause)
{
    const bool piped = strcmp(t->out, "-") == 0;
    return core_err_set(-cause, "%s cannot be written: %s", piped ? "standard output" : t->out,
                        strerror(cause));
}

static int write_document(struct tokenize *t, const struct text_document *document)
{
    core_json_write_object_begin(&t->json, NULL);
    write_list(&t->json, "input_ids", document->ids, document->count);
    write_list(&t->json, "labels", document->labels, document->count);
    core_json_write_object_end(&t->json);
    const int rc = core_json_write_end(&t->json);
    return rc == 0 ? 0 : refuse_out(t, -rc);
}

static int count_document(struct tokenize *t, const struct text_document *document)
{
    struct figures *figures = &t->figures;
    int rc = shows_no_more(t) ? 0 : print_document(t, document);
    if (rc == 0 && t->file != NULL) {
        rc = write_document(t, document);
    }
    size_t bucket = 0;
    while (document->count >> (bucket + 1) > 0 && bucket + 1 < BUCKETS) {
        bucket++;
    }
    figures->buckets[bucket]++;
    figures->shortest = figures->documents == 0 || document->count < figures->shortest
                            ? document->count
                            : figures->shortest;
    figures->longest = document->count > figures->longest ? document->count : figures->longest;
    figures->documents++;
    figures->tokens += document->count;
    figures->targets += text_sample_targets(document->labels, document->count);
    return rc;
}

/* Without --stats and --out, stops after the rows to show. */
static int read_all(struct tokenize *t)
{
    int rc;
    const bool all = t->stats || t->file != NULL;
    while ((rc = text_pack_fill(t->pack, t->reader)) == 1) {
        for (size_t row = 0; row < text_pack_rows(t->pack); row++) {
            for (size_t i = 0; i < text_pack_documents(t->pack, row); i++) {
                const struct text_document document = text_pack_document(t->pack, row, i);
                if (!all && shows_no_more(t)) {
                    return 0;
                }
                rc = count_document(t, &document);
                if (rc < 0) {
                    return rc;
                }
            }
        }
        t->figures.rows += text_pack_rows(t->pack);
    }
    if (rc == 0 && t->figures.documents == 0) {
        rc = core_err_set(-EINVAL,
                          "%s%s: no tokens to train on: %" PRIu64 " rows were read, %" PRIu64
                          " of them were invalid",
                          t->data.items[0], t->data.count > 1 ? " and what follows it" : "",
                          text_reader_rows(t->reader), text_reader_bad(t->reader));
    }
    return rc;
}

static double percent_of(uint64_t part, uint64_t whole)
{
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0;
}

static void print_lengths(const struct figures *figures)
{
    uint64_t most = 1;
    for (size_t i = 0; i < BUCKETS; i++) {
        most = figures->buckets[i] > most ? figures->buckets[i] : most;
    }
    printf("tokens of a row\n");
    for (size_t i = 0; i < BUCKETS; i++) {
        if (figures->buckets[i] > 0) {
            const int bar = (int)((figures->buckets[i] * BAR + most - 1) / most);
            printf("  %8" PRIu64 " - %-8" PRIu64 " %10" PRIu64 "  %.*s\n", UINT64_C(1) << i,
                   (UINT64_C(2) << i) - 1, figures->buckets[i], bar,
                   "########################################");
        }
    }
}

static void print_stats(const struct tokenize *t)
{
    const struct figures *figures = &t->figures;
    struct text_counts counts = {0};
    text_pack_count(t->pack, &counts);
    const uint64_t seq_len = (uint64_t)t->options.seq_len;
    printf("%srows read          %12" PRIu64 "\n", t->show > 0 ? "\n" : "",
           text_reader_rows(t->reader));
    printf("  invalid, skipped %12" PRIu64 "\n", text_reader_bad(t->reader));
    printf("  cut              %12" PRIu64 "  (%" PRIu64 " tokens dropped)\n", counts.cut,
           counts.cut_tokens);
    printf("  split            %12" PRIu64 "\n", counts.split);
    printf("  nothing left     %12" PRIu64 "  (all trained tokens were cut off)\n",
           counts.untrained);
    if (t->options.pairs) {
        printf("pairs              %12" PRIu64 "  (%" PRIu64 " with the same tokens twice)\n",
               figures->documents / 2, counts.equal);
    }
    printf("documents          %12" PRIu64 "  of %" PRIu64 " to %" PRIu64
           " tokens, %.1f on average\n",
           figures->documents, figures->shortest, figures->longest,
           figures->documents > 0 ? (double)figures->tokens / (double)figures->documents : 0);
    printf("tokens per epoch   %12" PRIu64 "\n", figures->tokens);
    printf("  trained on       %12" PRIu64 "  (%.1f%%)\n", figures->targets,
           percent_of(figures->targets, figures->tokens));
    if (seq_len < NO_LIMIT) {
        printf("rows of %-10" PRIu64 " %12" PRIu64 "  (%s, %.1f%% filled)\n", seq_len,
               figures->rows, t->options.pack ? "packed" : "not packed",
               percent_of(figures->tokens, figures->rows * seq_len));
    }
    if (text_reader_dated(t->reader)) {
        char clock[40];
        struct tm parts;
        const time_t now = (time_t)t->options.now;
        strftime(clock, sizeof clock, "%Y-%m-%d %H:%M:%S", gmtime_r(&now, &parts));
        printf("chat template's time  %s; SOURCE_DATE_EPOCH sets it\n", clock);
    }
    print_lengths(figures);
}

/* A folder with only a tokenizer has no config.json. */
static int read_vocab(struct tokenize *t)
{
    struct core_json *doc = NULL;
    int rc = text_special_read(t->options.model, "config.json", &doc);
    if (rc == 0 && doc != NULL) {
        const struct core_json_value *root = core_json_root(doc);
        const struct core_json_value *size = core_json_find(root, "vocab_size");
        if (size != NULL && core_json_kind(size) == CORE_JSON_INTEGER) {
            t->options.vocab = core_json_integer(size);
        }
    }
    core_json_destroy(doc);
    return rc;
}

/* The output must not be an input, not even as standard output. */
static int check_out(const struct tokenize *t)
{
    struct cli_path paths[CLI_TEXTS_MAX + 2] = {
        {CLI_PATH_WRITTEN, "--out",
         t->out != NULL && strcmp(t->out, "-") == 0 ? "/dev/stdout" : t->out},
        {CLI_PATH_KEPT, "--model", t->options.model},
    };
    for (size_t i = 0; i < t->data.count; i++) {
        paths[2 + i] = (struct cli_path){CLI_PATH_READ, "--data", t->data.items[i]};
    }
    return cli_paths_check(paths, 2 + t->data.count);
}

static const char *volatile left; /* the file that a signal removes */

/* Setting a flag would not end a read of standard input. */
static void remove_left(int number)
{
    sigset_t ends;
    if (left != NULL) {
        unlink(left);
    }
    signal(number, SIG_DFL);
    sigemptyset(&ends);
    sigaddset(&ends, number);
    pthread_sigmask(SIG_UNBLOCK, &ends, NULL);
    raise(number);
}

/* Creates the file, or takes over that of a killed run. Returns the descriptor, or -1 with errno;
 * EBUSY: another run writes the file. */
static int lock_partial(const char *name)
{
    enum { TRIES = 100 };
    for (int i = 0; i < TRIES; i++) {
        struct stat opened;
        struct stat named;
        const int fd = open(name, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
        if (fd < 0) {
            return -1;
        }
        if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
            close(fd);
            errno = EBUSY;
            return -1;
        }
        /* Else another run has renamed or removed the file meanwhile. */
        if (fstat(fd, &opened) == 0 && lstat(name, &named) == 0 && opened.st_ino == named.st_ino &&
            opened.st_dev == named.st_dev && ftruncate(fd, 0) == 0) {
            return fd;
        }
        close(fd);
    }
    errno = EBUSY;
    return -1;
}

/* Signals are blocked until they can remove the file. */
static int make_partial(const char *name)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    enum { SIGNALS = sizeof signals / sizeof signals[0] };
    sigset_t block;
    sigset_t before;
    sigemptyset(&block);
    for (int i = 0; i < SIGNALS; i++) {
        sigaddset(&block, signals[i]);
    }
    pthread_sigmask(SIG_BLOCK, &block, &before);
    const int fd = lock_partial(name);
    const int error = errno;
    left = fd >= 0 ? name : NULL;
    for (int i = 0; fd >= 0 && i < SIGNALS; i++) {
        cli_signal_catch(signals[i], remove_left);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return fd;
}

/* An error must not change an existing output. Pipes and devices are written directly. */
static int open_out(struct tokenize *t)
{
    struct stat info;
    const bool there = stat(t->out, &info) == 0;
    if (strcmp(t->out, "-") == 0) {
        t->file = stdout;
        return 0;
    }
    if ((there && !S_ISREG(info.st_mode)) ||
        (!there && lstat(t->out, &info) == 0)) { /* a link to a missing file */
        return core_file_open_output(t->out, false, &t->file);
    }
    if (there && access(t->out, W_OK) != 0) {
        return refuse_out(t, errno);
    }
    const mode_t mask = umask(0);
    umask(mask);
    t->target = there ? realpath(t->out, NULL) : strdup(t->out);
    if (t->target == NULL || asprintf(&t->partial, "%s.tide-partial", t->target) < 0) {
        t->partial = NULL;
        return core_err_set(-ENOMEM, "no memory to write %s", t->out);
    }
    t->lock = make_partial(t->partial);
    if (t->lock < 0) {
        const int rc = errno == EBUSY ? core_err_set(-EBUSY, "another run writes %s and holds %s",
                                                     t->out, t->partial)
                                      : refuse_out(t, errno);
        free(t->partial);
        t->partial = NULL;
        return rc;
    }
    (void)fchmod(t->lock, there ? info.st_mode & 07777 : 0666 & ~mask);
    /* Keeps the lock until the file is renamed, so that no other run takes over the file. */
    const int fd = fcntl(t->lock, F_DUPFD_CLOEXEC, 0);
    t->file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (t->file == NULL && fd >= 0) {
        close(fd);
    }
    return t->file != NULL ? 0 : core_err_set(-ENOMEM, "no memory to write %s", t->out);
}

static int close_out(struct tokenize *t, int rc)
{
    if (t->file != NULL && t->file != stdout && fclose(t->file) != 0 && rc == 0) {
        rc = refuse_out(t, errno);
    }
    if (t->partial != NULL && rc == 0 && rename(t->partial, t->target) != 0) {
        rc = refuse_out(t, errno);
    }
    if (t->partial != NULL && rc != 0) {
        unlink(t->partial);
    }
    left = NULL;
    if (t->partial != NULL) {
        close(t->lock);
    }
    free(t->partial);
    free(t->target);
    return rc;
}

static int open_all(struct tokenize *t)
{
    const struct text_pack_options pack = {
        .seq_len = t->options.seq_len, .pack = t->options.pack, .split = t->options.split};
    int rc = check_out(t);
    if (rc != 0 || (rc = text_feed_now(&t->options.now)) != 0) {
        return rc;
    }
    if (t->options.model != NULL && (rc = read_vocab(t)) != 0) {
        return rc;
    }
    if ((rc = text_reader_open(&t->options, &t->reader)) != 0 ||
        (rc = text_pack_create(&pack, &t->pack)) != 0) {
        return rc;
    }
    if (t->out != NULL && (rc = open_out(t)) != 0) {
        return rc;
    }
    if (t->file != NULL) {
        core_json_write_init_file(&t->json, t->file);
        t->writes = true;
    }
    return text_reader_seek(t->reader, 0, (struct text_place){0});
}

static int run_tokenize(struct tokenize *t)
{
    core_charge_bind(&t->memory.shared);
    int rc = open_all(t);
    if (rc == 0) {
        rc = read_all(t);
    }
    if (rc == 0 && t->stats) {
        print_stats(t);
    }
    if (t->writes) {
        core_json_write_fini(&t->json);
    }
    rc = close_out(t, rc);
    text_scratch_destroy(t->scratch);
    text_tokenizer_destroy(t->tokenizer);
    text_pack_destroy(t->pack);
    text_reader_close(t->reader);
    if (rc == 0) {
        return cli_close(t->command, CLI_DONE);
    }
    const bool failed = rc == -EIO || rc == -ENOMEM || rc == -ENOSPC;
    return cli_fail(t->command, failed ? CLI_FAILED : CLI_WRONG, NULL);
}

/* Returns -1 to continue, or the exit code. */
static int check_options(struct tokenize *t)
{
    if (t->data.count == 0) {
        return cli_fail(t->command, CLI_WRONG,
                        "--data FILE, the rows to read, is missing; see tide tokenize --help");
    }
    if (t->options.pack && t->options.seq_len == 0) {
        return cli_fail(t->command, CLI_WRONG, "--pack needs --seq-len, the length of its rows");
    }
    if (t->options.split && t->options.seq_len == 0) {
        return cli_fail(t->command, CLI_WRONG, "--split needs --seq-len");
    }
    if (t->options.pairs && (t->options.pack || t->options.split || t->out != NULL ||
                             t->options.train_on == TEXT_TRAIN_ALL)) {
        return cli_fail(t->command, CLI_WRONG, "--loss dpo cannot be used with %s",
                        t->options.pack    ? "--pack: a pair is two rows"
                        : t->options.split ? "--split: it compares whole answers"
                        : t->out != NULL   ? "--out: rows of input_ids cannot be pairs"
                                           : "--train-on all: it compares answers, not prompts");
    }
    if (t->options.seq_len == 0) {
        t->options.seq_len = NO_LIMIT;
    }
    if (t->show < 0) {
        t->show = t->stats || t->out != NULL ? 0 : 3;
    }
    t->options.files = t->data.items;
    t->options.files_count = t->data.count;
    t->options.epochs = 1;
    text_memory_init(&t->memory, t->row_bytes);
    t->options.memory = &t->memory;
    t->options.threads = text_feed_threads(t->threads);
    return -1;
}

static void take_flags(const struct finetune_flags *flags, struct text_feed_options *options)
{
    options->pack = flags->pack;
    options->split = flags->split;
    options->pairs = flags->loss == TIDE_LOSS_DPO;
    options->train_on = flags->train_on == 1 ? TEXT_TRAIN_ALL : TEXT_TRAIN_COMPLETION;
    options->on_bad_row = flags->on_bad_row == 1 ? TEXT_BAD_SKIP : TEXT_BAD_STOP;
    options->chat_format = flags->chat_format;
    options->shuffle = flags->shuffle;
    options->seed = (uint64_t)flags->seed;
}

static int run(const struct cli_command *command, int argc, char **argv)
{
    struct tokenize t = {.command = command, .show = -1};
    struct finetune_flags flags;
    finetune_flags_init(&flags);
    const struct cli_option options[] = {
        {.name = "model",
         .kind = CLI_TEXT,
         .out = &t.options.model,
         .value = "DIR",
         .help = "folder with tokenizer.json and the chat template"},
        {.name = "data",
         .kind = CLI_TEXTS,
         .out = &t.data,
         .value = "FILE",
         .help = "JSONL, JSON array, .gz, .zst, a pattern, - for standard input; repeatable"},
        {.name = "show",
         .kind = CLI_INTEGER,
         .out = &t.show,
         .value = "N",
         .low = 0,
         .high = 1e9,
         .help = "print N rows, trained tokens in green or [brackets]",
         .shown = "3"},
        {.name = "stats",
         .kind = CLI_FLAG,
         .out = &t.stats,
         .help = "lengths, tokens per epoch, padding, what was dropped and why"},
        {.name = "out",
         .kind = CLI_TEXT,
         .out = &t.out,
         .value = "FILE",
         .help = "write rows of input_ids and labels"},
        {.name = "seq-len",
         .kind = CLI_INTEGER,
         .out = &t.options.seq_len,
         .value = "N",
         .low = 2,
         .high = NO_LIMIT,
         .help = "cut rows to N tokens",
         .shown = "no limit"},
        finetune_flags_option(&flags, "pack"),
        finetune_flags_option(&flags, "split"),
        finetune_flags_option(&flags, "train-on"),
        finetune_flags_option(&flags, "loss"),
        finetune_flags_option(&flags, "chat-format"),
        finetune_flags_option(&flags, "on-bad-row"),
        {.name = "threads",
         .kind = CLI_INTEGER,
         .out = &t.threads,
         .value = "N",
         .low = 1,
         .high = TEXT_THREADS_MAX,
         .help = "threads that tokenize rows",
         .shown = "one per processor"},
        {.name = "data-memory",
         .kind = CLI_SIZE,
         .out = &t.row_bytes,
         .value = "SIZE",
         .help = "memory limit of one row while it is tokenized",
         .shown = "half of free, at most 1GiB"},
        finetune_flags_option(&flags, "shuffle"),
        finetune_flags_option(&flags, "seed"),
    };
    struct cli_parsed parsed;
    int code = cli_parse(command, options, sizeof options / sizeof options[0], argc, argv, &parsed);
    if (code >= 0) {
        return code;
    }
    t.common = parsed.common;
    take_flags(&flags, &t.options);
    code = check_options(&t);
    return code >= 0 ? code : run_tokenize(&t);
}

const struct cli_command cli_command_tokenize = {
    .name = "tokenize",
    .summary = "show how rows are tokenized and masked; statistics; rows of ids",
    .usage = "[--model DIR] --data FILE [OPTIONS]",
    .example = "tide tokenize --model ./Qwen3-4B --data chat.jsonl --show 2",
    .run = run,
};
