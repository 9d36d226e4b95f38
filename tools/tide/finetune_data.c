/* finetune_data.c: collects the micro-batches of a step from the feed. */
#include "tools/tide/finetune_data.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "tools/text/data/feed.h"
#include "tools/text/data/spool.h"

/* A copy of a micro-batch: the engine gets all micro-batches of a step at once. */
struct held {
    int32_t *ids;       /* owned */
    int32_t *labels;    /* owned */
    int32_t *positions; /* owned; NULL unless packed */
    int32_t *starts;    /* owned; NULL unless packed */
};

struct finetune_data {
    struct finetune_data_options options;
    struct text_feed_options feed_options;
    struct text_feed *feed; /* owned; NULL: not opened yet, or opening failed */
    int input;              /* owned; -1: none */
    struct finetune_data_info info;
    /* of the feed that counts rows, then of the run's feed */
    struct text_memory memory;
    struct finetune_counts counts;
    bool counted_before;        /* counts are from an earlier run */
    struct tide_batch *batches; /* owned */
    struct held *held;          /* owned, one for each batch */
    struct text_batch next;     /* borrowed from the feed */
    bool has_next;
    int64_t tokens;             /* of the last step */
    int64_t wait_ns;            /* of the last step */
    struct text_position place; /* of the next step */
};

static const char *name_of(const struct finetune_data *data)
{
    return data->input >= 0 ? "standard input" : data->options.path;
}

static int open_feed(struct finetune_data *data, const struct text_position *from)
{
    text_feed_close(data->feed);
    data->feed = NULL;
    data->has_next = false;
    data->place = from != NULL ? *from : (struct text_position){{0}};
    return text_feed_open(&data->feed_options, from, &data->feed);
}

static int64_t rows_of(const struct finetune_data_options *options, int64_t steps)
{
    int64_t rows;
    const bool small = !__builtin_mul_overflow(steps, (int64_t)options->step_max, &rows) &&
                       !__builtin_mul_overflow(rows, (int64_t)options->batch, &rows);
    return small ? rows : INT64_MAX;
}

/* Returns INT64_MAX if all rows are needed. */
static int64_t rows_needed(const struct finetune_data_options *options)
{
    return options->steps > 0 ? rows_of(options, options->steps) : INT64_MAX;
}

enum { MANY_ROWS = 4096 };

static int64_t rows_each(const struct finetune_data_options *options)
{
    return options->pairs ? 2 : 1;
}

static int measure_pair(const struct text_batch *batch, struct finetune_data *data)
{
    struct finetune_data_info *info = &data->info;
    const struct tide_batch pair = {.struct_bytes = sizeof pair,
                                    .rows = (uint32_t)batch->rows,
                                    .length = (uint32_t)batch->length,
                                    .ids = batch->ids,
                                    .labels = batch->labels};
    uint32_t length = 0;
    int rc = tide_pair_length(&pair, &length);
    info->longest_pair = length > info->longest_pair ? length : info->longest_pair;
    return rc == 0 ? 0
                   : core_err_prefix(core_err_adopt(rc, tide_last_error()), "%s", name_of(data));
}

/* Compares the epoch, the place and the rows since it. The number of earlier batches depends on
 * their size. */
static bool is_place(const struct text_position *at, const struct finetune_data_place *place)
{
    enum { FIRST = 1, COUNT = 5 };
    return memcmp(at->word + FIRST, place->word + FIRST, COUNT * sizeof place->word[0]) == 0;
}

/* Reads the rows of the run, at most an epoch. A resumed run may end later, because its first steps
 * may have used more rows. */
static int scan(struct finetune_data *data)
{
    const int64_t most = rows_needed(&data->options);
    const bool resumes = data->options.begun > 0 && most < INT64_MAX;
    int64_t end = resumes ? INT64_MAX : most;
    struct text_feed_options options = data->feed_options;
    struct text_feed *feed = NULL;
    struct text_batch batch = {0};
    struct finetune_data_info *info = &data->info;
    options.batch_rows = rows_each(&data->options);
    options.epochs = 1;
    /* Nothing else runs yet. Few rows do not need more than one thread. */
    options.threads = most >= MANY_ROWS ? text_feed_threads(0) : 1;
    /* The order decides which rows come first, and how rows are packed. */
    options.shuffle = options.shuffle && (options.pack || most < INT64_MAX);
    int rc = text_feed_open(&options, NULL, &feed);
    while (rc == 0 && info->rows < end && (rc = text_feed_next(feed, &batch)) == 1) {
        rc = data->options.pairs ? measure_pair(&batch, data) : 0;
        info->rows += batch.rows / options.batch_rows;
        info->longest = batch.length > info->longest ? batch.length : info->longest;
        info->tokens += batch.tokens;
        info->targets += batch.targets;
        if (resumes && end == INT64_MAX && is_place(&batch.after, &data->options.place)) {
            const int64_t rest = data->options.steps - data->options.begun;
            const int64_t last = info->rows + (rest > 0 ? rows_of(&data->options, rest) : 0);
            end = last > most ? last : most;
        }
        if (data->options.progress != NULL && batch.part >= 0) {
            data->options.progress(data->options.user, batch.part);
        }
    }
    info->whole = info->rows < end;
    text_feed_close(feed);
    info->memory = (int64_t)text_memory_peak(&data->memory);
    info->row_memory = (int64_t)text_memory_row(&data->memory);
    info->read = (int64_t)(batch.counts.rows - batch.counts.bad);
    info->wrong = (int64_t)batch.counts.bad;
    info->cut = (int64_t)batch.counts.cut;
    info->untrained = (int64_t)batch.counts.untrained;
    info->equal = (int64_t)batch.counts.equal;
    info->dated = (int64_t)batch.counts.dated;
    return rc;
}

static int count_rows(struct finetune_data *data)
{
    struct finetune_counts after;
    const int64_t most = rows_needed(&data->options);
    finetune_counts_place(&data->options, most, &data->counts);
    data->counted_before = finetune_counts_find(&data->counts, data->options.now, &data->info);
    if (data->counted_before) {
        return 0;
    }
    int rc = scan(data);
    finetune_counts_place(&data->options, most, &after);
    if (rc == 0 && data->counts.key == after.key) { /* the files did not change */
        finetune_counts_keep(&data->counts, data->options.now, &data->info);
    }
    return rc;
}

static int check_scan(const struct finetune_data *data)
{
    const struct finetune_data_info *info = &data->info;
    const char *path = name_of(data);
    if (info->rows == 0) {
        return core_err_set(-EINVAL, "%s has no rows", path);
    }
    if (info->cut > 0 && !data->options.cut) {
        return core_err_set(
            -EINVAL,
            "%s: %" PRId64 " of %" PRId64 " rows have more tokens than the model's %" PRId64
            " positions; --seq-len %" PRId64 " cuts them",
            path, info->cut, info->read, data->options.length_max, data->options.length_max);
    }
    if (info->targets == 0) {
        return core_err_set(-EINVAL,
                            "%s has no trained tokens: none of its %" PRId64
                            " rows has a label after its first token",
                            path, info->rows);
    }
    if (info->cut > 0) {
        core_log(CORE_LOG_WARN,
                 "%s: %" PRId64 " of %" PRId64 " %s are cut to %" PRId64
                 " tokens%s; %sa larger --seq-len keeps them whole",
                 path, info->cut, info->read, data->options.pairs ? "pairs" : "rows",
                 data->options.length_max, data->options.pairs ? " for each answer" : "",
                 data->options.pairs ? "" : "--split keeps the rest as further rows, ");
    }
    if (info->untrained > 0) {
        core_log(CORE_LOG_WARN,
                 "%s: %" PRId64 " pieces of rows with nothing to train on are dropped", path,
                 info->untrained);
    }
    if (info->equal > 0) {
        core_log(CORE_LOG_WARN,
                 "%s: %" PRId64 " of %" PRId64 " pairs have the same tokens in chosen and rejected "
                 "and teach nothing",
                 path, info->equal, info->rows);
    }
    if (info->wrong > 0) {
        core_log(CORE_LOG_WARN, "%s: %" PRId64 " of %" PRId64 " rows are invalid and skipped%s%s%s",
                 path, info->wrong, info->read + info->wrong,
                 data->counted_before ? "; they were listed when they were counted (" : "",
                 data->counted_before ? data->counts.path : "",
                 data->counted_before ? "; remove it to list them again)" : "");
    }
    return 0;
}

static int count_batches(struct finetune_data *data)
{
    struct finetune_data_info *info = &data->info;
    const int64_t batch = data->options.batch;
    info->micro_batches = (info->rows + (data->options.drop_last ? 0 : batch - 1)) / batch;
    if (info->micro_batches == 0) {
        return core_err_set(-EINVAL,
                            "%s has %" PRId64 " rows, fewer than the %" PRId64
                            " of a micro-batch, and dataloader_drop_last drops them",
                            name_of(data), info->rows, batch);
    }
    return 0;
}

/* Padding would cost time. A shuffled order may pack into another number of rows, so the requested
 * size is kept. */
static void fit_batch(struct finetune_data *data)
{
    const struct finetune_data_options *options = &data->options;
    const bool same = !options->shuffle || !(options->pack || options->split);
    struct finetune_data_info *info = &data->info;
    info->batch = info->whole && same && info->rows < options->batch ? info->rows : options->batch;
    data->feed_options.batch_rows = info->batch * rows_each(options);
}

/* Packed or split rows of a later epoch may be longer. */
static int64_t row_room(const struct finetune_data *data)
{
    return data->options.pack || data->options.split ? data->options.length_max
                                                     : data->info.longest;
}

/* Limits a row to the memory that sufficed for the counted rows. */
static void limit_memory(struct finetune_data *data)
{
    const uint64_t line_bytes = data->memory.line_bytes;
    text_memory_init(&data->memory, (uint64_t)data->info.row_memory);
    data->memory.line_bytes = line_bytes;
    malloc_trim(0); /* leaves the memory to the plan */
}

/* Returns the bytes of the row offsets of a shuffled window, with room to grow. */
static uint64_t window_bytes(const struct finetune_data *data)
{
    enum { ROW_BYTES = 16, BYTES_MAX = 8 << 20 };
    const uint64_t rows = (uint64_t)(data->info.read + data->info.wrong);
    const uint64_t bytes = rows < BYTES_MAX / ROW_BYTES ? rows * ROW_BYTES : BYTES_MAX;
    return data->options.shuffle ? bytes : 0;
}

uint64_t finetune_data_memory(const struct finetune_data *data)
{
    const uint64_t arrays = data->options.pack ? 4 : 2;
    const uint64_t batch = arrays * (uint64_t)data->feed_options.batch_rows *
                           (uint64_t)row_room(data) * sizeof(int32_t);
    /* Batches prepared ahead, and the batches of a step. */
    const uint64_t batches = data->feed_options.ahead + (uint64_t)data->options.step_max;
    return (uint64_t)data->info.memory + batches * batch + window_bytes(data);
}

static int alloc_batches(struct finetune_data *data)
{
    const size_t count = data->options.step_max;
    size_t bytes = 0;
    data->batches = calloc(count, sizeof *data->batches);
    data->held = calloc(count, sizeof *data->held);
    bool right = data->batches != NULL && data->held != NULL &&
                 !__builtin_mul_overflow((size_t)data->feed_options.batch_rows,
                                         (size_t)row_room(data) * sizeof(int32_t), &bytes);
    for (size_t i = 0; i < count && right; i++) {
        struct held *held = &data->held[i];
        held->ids = malloc(bytes);
        held->labels = malloc(bytes);
        right = held->ids != NULL && held->labels != NULL;
        if (data->options.pack) {
            held->positions = malloc(bytes);
            held->starts = malloc(bytes);
            right = right && held->positions != NULL && held->starts != NULL;
        }
    }
    return right ? 0
                 : core_err_set(-ENOMEM, "no memory for %zu micro-batches of %" PRId64 " rows",
                                count, data->feed_options.batch_rows);
}

static unsigned ahead_of(unsigned step_max)
{
    return step_max < TEXT_AHEAD_MAX - 4 ? step_max + 4 : TEXT_AHEAD_MAX;
}

/* Rows are read more than once. */
static int keep_input(struct finetune_data *data)
{
    uint64_t copied = 0;
    int rc = text_spool_input(&data->input, &copied);
    if (rc == 0 && copied > 0) {
        core_log(CORE_LOG_INFO, "standard input: %.3f GB of rows are in an unnamed file in %s",
                 (double)copied / 1e9, text_spool_folder());
    }
    return rc;
}

int finetune_data_open(const struct finetune_data_options *options, struct finetune_data **out)
{
    struct finetune_data *data = calloc(1, sizeof *data);
    if (data == NULL) {
        return core_err_set(-ENOMEM, "no memory to read %s", options->path);
    }
    int rc = 0;
    data->input = -1;
    data->options = *options;
    if (strcmp(options->path, "-") == 0) {
        rc = keep_input(data);
    }
    data->feed_options = (struct text_feed_options){
        .files = &data->options.path,
        .files_count = 1,
        .seq_len = options->length_max,
        .batch_rows = options->batch * rows_each(options),
        .model = options->model,
        .vocab = options->vocab,
        .pack = options->pack,
        .split = options->split,
        .pairs = options->pairs,
        .train_on = options->train_on_all ? TEXT_TRAIN_ALL : TEXT_TRAIN_COMPLETION,
        .chat_format = options->chat_format,
        .on_bad_row = options->skip_bad ? TEXT_BAD_SKIP : TEXT_BAD_STOP,
        .shuffle = options->shuffle,
        .seed = options->seed,
        .now = options->now,
        .memory = &data->memory,
        .ahead = ahead_of(options->step_max),
        .input = data->input > 0 ? data->input : 0,
    };
    text_memory_init(&data->memory, options->row_bytes);
    if (rc != 0 || (rc = count_rows(data)) != 0 || (rc = check_scan(data)) != 0 ||
        (rc = count_batches(data)) != 0) {
        goto fail;
    }
    fit_batch(data);
    data->feed_options.quiet = true; /* counting has warned already */
    if (!options->pack && !options->split) {
        data->feed_options.length_room = data->info.longest;
    }
    rc = alloc_batches(data);
    limit_memory(data);
    if (rc != 0) {
        goto fail;
    }
    *out = data;
    return 0;
fail:
    finetune_data_close(data);
    return rc;
}

void finetune_data_close(struct finetune_data *data)
{
    if (data == NULL) {
        return;
    }
    for (size_t i = 0; i < data->options.step_max && data->held != NULL; i++) {
        free(data->held[i].ids);
        free(data->held[i].labels);
        free(data->held[i].positions);
        free(data->held[i].starts);
    }
    text_feed_close(data->feed);
    if (data->input >= 0) {
        close(data->input);
    }
    free(data->held);
    free(data->batches);
    free(data);
}

void finetune_data_describe(const struct finetune_data *data, struct finetune_data_info *out)
{
    *out = data->info;
}

/* Removes the kept counts after an error of the feed: wrong counts would make the next run fail,
 * too. */
static int forget_counts(struct finetune_data *data, int rc)
{
    return rc != -ENOMEM && finetune_counts_forget(&data->counts)
               ? core_err_prefix(rc,
                                 "%s is removed, so that the next run counts the rows of %s again",
                                 data->counts.path, name_of(data))
               : rc;
}

static int look_ahead(struct finetune_data *data)
{
    while (!data->has_next) {
        int rc = text_feed_next(data->feed, &data->next);
        if (rc < 0) {
            return forget_counts(data, rc);
        }
        assert(rc == 1); /* the feed never ends */
        data->has_next = !data->options.drop_last ||
                         data->next.rows == data->feed_options.batch_rows;
    }
    return 0;
}

static void copy_batch(struct finetune_data *data, unsigned index)
{
    const struct text_batch *from = &data->next;
    const struct held *held = &data->held[index];
    const size_t count = (size_t)from->rows * (size_t)from->length;
    memcpy(held->ids, from->ids, count * sizeof *held->ids);
    memcpy(held->labels, from->labels, count * sizeof *held->labels);
    if (from->positions != NULL) {
        memcpy(held->positions, from->positions, count * sizeof *held->positions);
        memcpy(held->starts, from->starts, count * sizeof *held->starts);
    }
    data->batches[index] = (struct tide_batch){
        .struct_bytes = sizeof data->batches[index],
        .rows = (uint32_t)from->rows,
        .length = (uint32_t)from->length,
        .ids = held->ids,
        .labels = held->labels,
        .positions = from->positions != NULL ? held->positions : NULL,
        .starts = from->starts != NULL ? held->starts : NULL,
    };
    data->has_next = false;
    data->place = from->after;
}

int finetune_data_step(struct finetune_data *data, const struct tide_batch **batches)
{
    uint64_t epoch = 0;
    unsigned count = 0;
    /* Opened as late as possible: the feed fills batches at once, and only a plan ensures that they
     * fit. */
    int opened = data->feed != NULL ? 0 : open_feed(data, NULL);
    if (opened != 0) {
        return opened;
    }
    const int64_t before = text_feed_wait_ns(data->feed);
    data->tokens = 0;
    while (count < data->options.step_max) {
        int rc = look_ahead(data);
        if (rc != 0) {
            return rc;
        }
        epoch = count == 0 ? data->next.epoch : epoch;
        if (data->next.epoch != epoch) {
            break; /* a step does not cross epochs */
        }
        data->tokens += data->next.tokens;
        copy_batch(data, count++);
    }
    data->wait_ns = text_feed_wait_ns(data->feed) - before;
    *batches = data->batches;
    return (int)count;
}

double finetune_data_wait(const struct finetune_data *data)
{
    return (double)data->wait_ns / 1e9;
}

int64_t finetune_data_tokens(const struct finetune_data *data)
{
    return data->tokens;
}

int finetune_data_rewind(struct finetune_data *data)
{
    return open_feed(data, NULL);
}

void finetune_data_tell(const struct finetune_data *data, struct finetune_data_place *out)
{
    _Static_assert(sizeof out->word == sizeof data->place.word, "a place is a position");
    memcpy(out->word, data->place.word, sizeof out->word);
}

int finetune_data_seek(struct finetune_data *data, const struct finetune_data_place *place)
{
    struct text_position from;
    memcpy(from.word, place->word, sizeof from.word);
    int rc = open_feed(data, &from);
    return rc == 0 ? 0 : core_err_prefix(rc, "%s", name_of(data));
}

int64_t finetune_data_steps(const struct finetune_data_info *info, unsigned step_max, double epochs)
{
    double steps = (double)((info->micro_batches + step_max - 1) / step_max) * epochs;
    return steps < 1 ? 1 : steps > 1e15 ? (int64_t)1e15 : (int64_t)ceil(steps - 1e-9);
}
