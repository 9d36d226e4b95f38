/* batches.c: fills batches of all ranks from windows of documents, and keeps the rows of its
 * rank. */
#include "tools/text/data/batches.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "core/base/hash.h"
#include "tools/text/data/records.h"
#include "tools/text/data/windows.h"

struct text_batches {
    const struct text_feed_options *options; /* borrowed from the caller of open */
    struct text_windows *windows;            /* owned */
    int64_t *held;                           /* owned, [batch_rows]: tokens of a row */
    uint64_t mark;
    uint64_t epoch;
    uint64_t used;    /* rows of the window that are in batches */
    uint64_t batches; /* since the beginning of the run */
    bool fresh;       /* this epoch was read from its beginning */
    uint64_t rows_of_epoch;
    struct text_counts counts;
    struct text_counts epoch_began; /* counts at the beginning of this epoch */
};

struct filling {
    int32_t *arrays[5]; /* ids, labels, positions, starts, NULL; unwanted ones are NULL */
    int64_t rows;       /* of all ranks */
    int64_t own;
    int64_t length; /* tokens of the longest row */
    struct text_batch *out;
};

enum { IDS, LABELS, POSITIONS, STARTS };

/* Version of struct text_position; 0 in positions of older versions of tide. */
enum { POSITION_VERSION = 1, VERSION_BITS = 8 };

/* Options on which the mark depends, and their bits in the last word of a position. */
enum setting {
    SETTING_LOSS,
    SETTING_SEQ_LEN,
    SETTING_PACK,
    SETTING_SPLIT,
    SETTING_ORDER,
    SETTING_TRAIN_ON,
    SETTING_CHAT_FORMAT,
    SETTINGS
};
static const struct {
    const char *flag;
    unsigned bits;
} settings[SETTINGS] = {
    [SETTING_LOSS] = {"--loss", 1},
    [SETTING_SEQ_LEN] = {"--seq-len", 24},
    [SETTING_PACK] = {"--pack", 1},
    [SETTING_SPLIT] = {"--split", 1},
    [SETTING_ORDER] = {"--shuffle or --seed", 13},
    [SETTING_TRAIN_ON] = {"--train-on", 4},
    [SETTING_CHAT_FORMAT] = {"--chat-format", 12},
};

int64_t text_batches_room(const struct text_feed_options *options)
{
    return options->length_room > 0 ? options->length_room : options->seq_len;
}

static uint64_t make_mark(const struct text_batches *batches)
{
    const struct text_feed_options *options = batches->options;
    const uint64_t flags = (uint64_t)options->pack | (uint64_t)options->split << 1 |
                           (uint64_t)options->pairs << 2;
    const uint64_t mark = core_hash_seed(text_windows_mark(batches->windows),
                                         (uint64_t)options->seq_len, flags, 1);
    return mark != 0 ? mark : 1;
}

static uint64_t window_rows(const struct text_batches *batches)
{
    return text_pack_rows(text_windows_rows(batches->windows));
}

/* Returns the last word of a position: the version, then the options, some of them hashed. */
static uint64_t describe_options(const struct text_feed_options *options)
{
    const char *format = options->chat_format != NULL ? options->chat_format : "";
    const uint64_t values[] = {
        [SETTING_LOSS] = options->pairs,
        [SETTING_SEQ_LEN] = (uint64_t)options->seq_len,
        [SETTING_PACK] = options->pack,
        [SETTING_SPLIT] = options->split,
        [SETTING_ORDER] = options->shuffle ? core_hash(&options->seed, sizeof options->seed, 0) | 1
                                           : 0,
        [SETTING_TRAIN_ON] = options->train_on,
        [SETTING_CHAT_FORMAT] = core_hash(format, strlen(format), 0),
    };
    uint64_t word = POSITION_VERSION;
    unsigned at = VERSION_BITS;
    for (size_t i = 0; i < SETTINGS; i++) {
        word |= (values[i] & ((UINT64_C(1) << settings[i].bits) - 1)) << at;
        at += settings[i].bits;
    }
    return word;
}

/* Lists the flags of options that differ; without any, the files differ. */
static void list_differences(uint64_t before, uint64_t now, char *out, size_t bytes)
{
    unsigned at = VERSION_BITS;
    size_t used = 0;
    for (size_t i = 0; i < SETTINGS; i++) {
        const uint64_t mask = ((UINT64_C(1) << settings[i].bits) - 1) << at;
        at += settings[i].bits;
        if (((before ^ now) & mask) != 0) {
            used += (size_t)snprintf(out + used, bytes - used, "%s%s", used > 0 ? ", " : "",
                                     settings[i].flag);
        }
    }
    if (used == 0) {
        snprintf(out, bytes, "names, sizes or number of the files");
    }
}

static int refuse_position(const struct text_position *from, uint64_t now)
{
    char list[256] = "files and their sizes, --loss, --seq-len, --pack, --split, --shuffle, "
                     "--seed, --train-on and --chat-format must be the same";
    const unsigned version = (unsigned)(from->word[7] & ((1U << VERSION_BITS) - 1));
    if (from->word[7] >> VERSION_BITS != 0) {
        list_differences(from->word[7], now, list, sizeof list);
    }
    if (version == POSITION_VERSION) {
        return core_err_set(
            -EINVAL, "the data or the options differ from those of the checkpoint: %s", list);
    }
    return core_err_set(-EINVAL,
                        "the position was written by another version of tide (it has format %u, "
                        "and this one writes %d), or the data or the options differ (%s): "
                        "resume with that version, or start a new run from its last model",
                        version, POSITION_VERSION, list);
}

static int seek(struct text_batches *batches, const struct text_position *from)
{
    static const struct text_position beginning;
    if (from == NULL || memcmp(from, &beginning, sizeof beginning) == 0) {
        batches->fresh = true;
        return text_windows_seek(batches->windows, 0, (struct text_place){0});
    }
    if (from->word[0] != batches->mark) {
        return refuse_position(from, describe_options(batches->options));
    }
    batches->epoch = from->word[1];
    const struct text_place place = {from->word[2], from->word[3], from->word[4]};
    batches->batches = from->word[6];
    int rc = text_windows_seek(batches->windows, batches->epoch, place);
    const uint64_t used = from->word[5];
    if (rc != 0) {
        return rc;
    }
    if (used > 0) {
        rc = text_windows_next(batches->windows);
        if (rc < 0) {
            return rc;
        }
        if (used > window_rows(batches)) {
            return core_err_set(-EINVAL,
                                "the position has more rows than the data has there: the data "
                                "was changed since");
        }
    }
    batches->used = used;
    return 0;
}

int text_batches_open(const struct text_feed_options *options, const struct text_position *from,
                      struct text_batches **out)
{
    struct text_batches *batches = core_charge_zeroed(1, sizeof *batches);
    if (batches == NULL) {
        return core_err_set(-ENOMEM, "no memory to feed data");
    }
    batches->options = options;
    batches->held = core_charge_zeroed((size_t)options->batch_rows, sizeof *batches->held);
    int rc = batches->held != NULL ? 0 : core_err_set(-ENOMEM, "no memory to feed data");
    if (rc != 0 || (rc = text_windows_open(options, &batches->windows)) != 0) {
        goto fail;
    }
    batches->mark = make_mark(batches);
    rc = seek(batches, from);
    if (rc != 0) {
        goto fail;
    }
    *out = batches;
    return 0;
fail:
    text_batches_close(batches);
    return rc;
}

void text_batches_close(struct text_batches *batches)
{
    if (batches != NULL) {
        text_windows_close(batches->windows);
        core_charge_free(batches->held);
        core_charge_free(batches);
    }
}

/* Returns 1 and the index of the next row; 0 at the end of the epoch; -errno. */
static int next_row(struct text_batches *batches, size_t *row)
{
    if (batches->used == window_rows(batches)) {
        int rc = text_windows_next(batches->windows);
        if (rc < 0) {
            return rc;
        }
        text_windows_count(batches->windows, &batches->counts);
        batches->used = rc == 1 ? 0 : window_rows(batches);
        if (rc == 0) {
            return 0;
        }
    }
    *row = (size_t)batches->used++;
    batches->rows_of_epoch++;
    return 1;
}

/* Adds the data to an error that belongs to no row. */
static int name_data(const struct text_feed_options *options, int rc)
{
    return core_err_prefix(rc, "%s%s", text_records_called(options->files[0]),
                           options->files_count > 1 ? " and what follows it" : "");
}

static int end_epoch(struct text_batches *batches)
{
    const struct text_counts *now = &batches->counts;
    const struct text_counts *then = &batches->epoch_began;
    if (batches->rows_of_epoch == 0 && batches->fresh) {
        const int rc = core_err_set(-EINVAL,
                                    "no tokens to train on: %" PRIu64 " rows were read, %" PRIu64
                                    " of them were invalid, %" PRIu64
                                    " had no trained tokens left after they were cut to %" PRId64
                                    " tokens",
                                    now->rows - then->rows, now->bad - then->bad,
                                    now->untrained - then->untrained, batches->options->seq_len);
        return name_data(batches->options, rc);
    }
    batches->epoch++;
    batches->fresh = true;
    batches->rows_of_epoch = 0;
    batches->epoch_began = batches->counts;
    text_windows_turn(batches->windows);
    return 0;
}

/* Returns the number of tokens. */
static int64_t copy_row(const struct text_batches *batches, const struct filling *filling,
                        size_t row)
{
    int64_t at = 0;
    const struct text_pack *pack = text_windows_rows(batches->windows);
    const int64_t base = filling->own * text_batches_room(batches->options);
    for (size_t i = 0; i < text_pack_documents(pack, row); i++) {
        const struct text_document document = text_pack_document(pack, row, i);
        const int64_t begin = base + at;
        memcpy(filling->arrays[IDS] + begin, document.ids, document.count * sizeof(int32_t));
        memcpy(filling->arrays[LABELS] + begin, document.labels, document.count * sizeof(int32_t));
        for (size_t t = 0; filling->arrays[POSITIONS] != NULL && t < document.count; t++) {
            filling->arrays[POSITIONS][begin + (int64_t)t] = (int32_t)t;
            filling->arrays[STARTS][begin + (int64_t)t] = (int32_t)at;
        }
        at += (int64_t)document.count;
    }
    return at;
}

static int add_row(struct text_batches *batches, struct filling *filling, size_t row)
{
    int64_t tokens = 0;
    int64_t targets = 0;
    const struct text_feed_options *options = batches->options;
    const struct text_pack *pack = text_windows_rows(batches->windows);
    const size_t documents = text_pack_documents(pack, row);
    for (size_t i = 0; i < documents; i++) {
        const struct text_document document = text_pack_document(pack, row, i);
        tokens += (int64_t)document.count;
        targets += (int64_t)text_sample_targets(document.labels, document.count);
    }
    if (options->pairs) { /* rows 2 i and 2 i + 1 are pair i */
        targets = filling->rows % 2 == 0;
    }
    if (tokens > text_batches_room(options)) {
        const int rc = core_err_set(-EIO,
                                    "a row has %" PRId64 " tokens, but the longest had %" PRId64
                                    " before: the data was changed while it was being read",
                                    tokens, text_batches_room(options));
        return name_data(options, rc);
    }
    filling->length = tokens > filling->length ? tokens : filling->length;
    filling->out->targets_all += targets;
    batches->counts.documents += documents;
    batches->counts.tokens += (uint64_t)tokens;
    batches->counts.targets += (uint64_t)targets;
    if (filling->rows / options->batch_rows == options->rank) {
        batches->held[filling->own] = copy_row(batches, filling, row);
        filling->own++;
        filling->out->tokens += tokens;
        filling->out->targets += targets;
    }
    filling->rows++;
    return 0;
}

/* Moves the rows together, `length` tokens apart, and pads them. */
static void pad_rows(const struct text_batches *batches, const struct filling *filling)
{
    const int64_t room = text_batches_room(batches->options);
    const int64_t length = filling->out->length;
    for (int64_t row = 0; row < batches->options->batch_rows; row++) {
        const int64_t held = row < filling->own ? batches->held[row] : 0;
        for (int k = IDS; k <= STARTS && filling->arrays[k] != NULL; k++) {
            int32_t *to = filling->arrays[k] + row * length;
            memmove(to, filling->arrays[k] + row * room, (size_t)held * sizeof(int32_t));
            for (int64_t t = held; t < length; t++) {
                const int32_t padding[] = {0, TEXT_IGNORED, (int32_t)(t - held), (int32_t)held};
                to[t] = padding[k];
            }
        }
    }
}

static int64_t padded_length(const struct text_feed_options *options, int64_t length)
{
    const int64_t multiple = options->length_multiple > 0 ? options->length_multiple : 1;
    const int64_t more = (length + multiple - 1) / multiple * multiple;
    const int64_t room = text_batches_room(options);
    return more < room ? more : room;
}

static struct text_position current_position(const struct text_batches *batches)
{
    const bool ended = batches->used == window_rows(batches);
    const struct text_place place = ended ? text_windows_after(batches->windows)
                                          : text_windows_place(batches->windows);
    return (struct text_position){{batches->mark, batches->epoch, place.file, place.offset,
                                   place.row, ended ? 0 : batches->used, batches->batches,
                                   describe_options(batches->options)}};
}

/* Returns 1; 0 if the epoch has no more rows; -errno. */
static int fill(struct text_batches *batches, struct filling *filling)
{
    const struct text_feed_options *options = batches->options;
    const int64_t ranks = options->ranks > 0 ? options->ranks : 1;
    while (filling->rows < ranks * options->batch_rows) {
        size_t row;
        int rc = next_row(batches, &row);
        if (rc != 1) {
            return rc < 0 ? rc : filling->rows > 0;
        }
        rc = add_row(batches, filling, row);
        if (rc != 0) {
            return rc;
        }
    }
    return 1;
}

int text_batches_next(struct text_batches *batches, int32_t *tokens, struct text_batch *out)
{
    const struct text_feed_options *options = batches->options;
    const size_t array = (size_t)options->batch_rows * (size_t)text_batches_room(options);
    struct filling filling = {.arrays = {tokens, tokens + array}, .out = out};
    if (options->pack) {
        filling.arrays[POSITIONS] = tokens + 2 * array;
        filling.arrays[STARTS] = tokens + 3 * array;
    }
    *out = (struct text_batch){0};
    int rc = 0;
    while (rc == 0 && (options->epochs == 0 || batches->epoch < options->epochs)) {
        rc = fill(batches, &filling);
        if (rc == 0) {
            rc = end_epoch(batches);
        }
    }
    if (rc != 1) {
        out->counts = batches->counts;
        return rc;
    }
    batches->batches++;
    *out = (struct text_batch){.rows = filling.own,
                               .length = padded_length(options, filling.length),
                               .ids = filling.arrays[IDS],
                               .labels = filling.arrays[LABELS],
                               .positions = filling.arrays[POSITIONS],
                               .starts = filling.arrays[STARTS],
                               .tokens = out->tokens,
                               .targets = out->targets,
                               .targets_all = out->targets_all,
                               .epoch = batches->epoch,
                               .part = text_windows_part(batches->windows),
                               .counts = batches->counts,
                               .after = current_position(batches)};
    pad_rows(batches, &filling);
    return 1;
}

bool text_batches_ahead(struct text_batches *batches)
{
    return text_windows_ahead(batches->windows);
}
