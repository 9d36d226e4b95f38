/* batches.c: takes rows from windows of documents until a batch of every rank is full, keeps those of
 * its own rank, and says where to go on. */
#include "tools/text/batches.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/hash.h"
#include "tools/text/pack.h"

struct text_batches {
    const struct text_feed_options *options; /* borrowed from the caller of open */
    struct text_reader *reader;              /* owned */
    struct text_pack *pack;                  /* owned */
    int64_t *held;                           /* owned, [batch_rows]: tokens of a row */
    uint64_t mark;
    uint64_t epoch;
    struct text_place window; /* where the window of rows begins */
    uint64_t used;            /* rows of it that are in batches */
    uint64_t batches;         /* since the beginning of the run */
    bool fresh;               /* of this epoch, everything was seen from its beginning */
    uint64_t rows_of_epoch;
    struct text_counts counts;
    struct text_counts epoch_began; /* counts at the beginning of this epoch */
};

/* Of one batch while it is filled. */
struct filling {
    int32_t *arrays[5]; /* ids, labels, positions, starts, NULL; those that are not wanted: NULL */
    int64_t rows;       /* of all ranks */
    int64_t own;
    int64_t length; /* of the longest */
    struct text_batch *out;
};

enum { IDS, LABELS, POSITIONS, STARTS };

int64_t text_batches_room(const struct text_feed_options *options)
{
    return options->length_room > 0 ? options->length_room : options->seq_len;
}

static uint64_t make_mark(const struct text_batches *batches)
{
    const struct text_feed_options *options = batches->options;
    const uint64_t flags = (uint64_t)options->pack | (uint64_t)options->split << 1;
    const uint64_t mark = core_hash_seed(text_reader_mark(batches->reader),
                                         (uint64_t)options->seq_len, flags, 1);
    return mark != 0 ? mark : 1;
}

static int go_to(struct text_batches *batches, const struct text_position *from)
{
    static const struct text_position beginning;
    if (from == NULL || memcmp(from, &beginning, sizeof beginning) == 0) {
        batches->fresh = true;
        return text_reader_seek(batches->reader, 0, (struct text_place){0});
    }
    if (from->word[0] != batches->mark) {
        return core_err_set(-EINVAL,
                            "the position is one of other data or other options (files and "
                            "their sizes, --seq-len, --pack, --split, --shuffle, --seed, "
                            "--train-on and --chat-format have to be the same)");
    }
    batches->epoch = from->word[1];
    batches->window = (struct text_place){from->word[2], from->word[3], from->word[4]};
    batches->batches = from->word[6];
    int code = text_reader_seek(batches->reader, batches->epoch, batches->window);
    const uint64_t used = from->word[5];
    if (code == 0 && used > 0) {
        code = text_pack_fill(batches->pack, batches->reader);
        code = code < 0 ? code : 0;
        if (code == 0 && used > text_pack_rows(batches->pack)) {
            code = core_err_set(-EINVAL, "the position lies behind the end of its rows: the data "
                                         "was changed since");
        }
    }
    batches->used = code == 0 ? used : 0;
    return code;
}

int text_batches_open(const struct text_feed_options *options, const struct text_position *from,
                      struct text_batches **out)
{
    struct text_batches *batches = calloc(1, sizeof *batches);
    if (batches == NULL) {
        return core_err_set(-ENOMEM, "no memory to feed data");
    }
    batches->options = options;
    const struct text_pack_options pack = {
        .seq_len = options->seq_len, .pack = options->pack, .split = options->split};
    batches->held = calloc((size_t)options->batch_rows, sizeof *batches->held);
    int code = batches->held != NULL ? 0 : core_err_set(-ENOMEM, "no memory to feed data");
    code = code == 0 ? text_reader_open(options, &batches->reader) : code;
    code = code == 0 ? text_pack_create(&pack, &batches->pack) : code;
    if (code == 0) {
        batches->mark = make_mark(batches);
        code = go_to(batches, from);
    }
    if (code != 0) {
        text_batches_close(batches);
        return code;
    }
    *out = batches;
    return 0;
}

void text_batches_close(struct text_batches *batches)
{
    if (batches != NULL) {
        text_reader_close(batches->reader);
        text_pack_destroy(batches->pack);
        free(batches->held);
        free(batches);
    }
}

static void refresh_counts(struct text_batches *batches)
{
    struct text_counts *counts = &batches->counts;
    counts->rows = text_reader_rows(batches->reader);
    counts->bad = text_reader_bad(batches->reader);
    text_pack_count(batches->pack, counts);
}

/* The next row of documents: 1; 0 at the end of the epoch; -errno. */
static int next_row(struct text_batches *batches, size_t *row)
{
    if (batches->used == text_pack_rows(batches->pack)) {
        batches->window = text_reader_place(batches->reader);
        batches->used = 0;
        int code = text_pack_fill(batches->pack, batches->reader);
        if (code < 0) {
            return code;
        }
        refresh_counts(batches);
        if (code == 0) {
            return 0;
        }
    }
    *row = (size_t)batches->used++;
    batches->rows_of_epoch++;
    return 1;
}

static int end_epoch(struct text_batches *batches)
{
    const struct text_counts *now = &batches->counts;
    const struct text_counts *then = &batches->epoch_began;
    if (batches->rows_of_epoch == 0 && batches->fresh) {
        return core_err_set(-EINVAL,
                            "nothing is left to train on: %" PRIu64 " rows were read, %" PRIu64
                            " of them were wrong, %" PRIu64 " had nothing to train on before they "
                            "were cut to %" PRId64 " tokens",
                            now->rows - then->rows, now->bad - then->bad,
                            now->untrained - then->untrained, batches->options->seq_len);
    }
    batches->epoch++;
    batches->fresh = true;
    batches->rows_of_epoch = 0;
    batches->epoch_began = batches->counts;
    batches->window = (struct text_place){0};
    return text_reader_seek(batches->reader, batches->epoch, batches->window);
}

/* Copies a row of this rank to where rows of seq_len stand; its tokens. */
static int64_t copy_row(const struct text_batches *batches, const struct filling *filling,
                        size_t row)
{
    int64_t at = 0;
    const int64_t base = filling->own * text_batches_room(batches->options);
    for (size_t i = 0; i < text_pack_documents(batches->pack, row); i++) {
        const struct text_document document = text_pack_document(batches->pack, row, i);
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

/* Counts a row, and keeps it where it is this rank's. */
static int add_row(struct text_batches *batches, struct filling *filling, size_t row)
{
    int64_t tokens = 0;
    int64_t targets = 0;
    const struct text_feed_options *options = batches->options;
    const size_t documents = text_pack_documents(batches->pack, row);
    for (size_t i = 0; i < documents; i++) {
        const struct text_document document = text_pack_document(batches->pack, row, i);
        tokens += (int64_t)document.count;
        targets += (int64_t)text_sample_targets(document.labels, document.count);
    }
    if (tokens > text_batches_room(options)) {
        return core_err_set(-EIO,
                            "a row has %" PRId64 " tokens, and the longest had %" PRId64
                            " before: the data was changed while it was read",
                            tokens, text_batches_room(options));
    }
    filling->length = tokens > filling->length ? tokens : filling->length;
    filling->out->targets_all += targets;
    batches->counts.documents += documents;
    batches->counts.tokens += (uint64_t)tokens;
    batches->counts.targets += (uint64_t)targets;
    if (filling->arrays[IDS] != NULL && filling->rows / options->batch_rows == options->rank) {
        batches->held[filling->own] = copy_row(batches, filling, row);
        filling->own++;
        filling->out->tokens += tokens;
        filling->out->targets += targets;
    }
    filling->rows++;
    return 0;
}

/* Rows of seq_len become rows of `length`, with padding behind what they hold. */
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

static int64_t padded(const struct text_feed_options *options, int64_t length)
{
    const int64_t multiple = options->length_multiple > 0 ? options->length_multiple : 1;
    const int64_t more = (length + multiple - 1) / multiple * multiple;
    const int64_t room = text_batches_room(options);
    return more < room ? more : room;
}

static struct text_position position(const struct text_batches *batches)
{
    const bool ended = batches->used == text_pack_rows(batches->pack);
    const struct text_place place = ended ? text_reader_place(batches->reader) : batches->window;
    return (struct text_position){{batches->mark, batches->epoch, place.file, place.offset,
                                   place.row, ended ? 0 : batches->used, batches->batches, 0}};
}

/* Takes the rows of one batch of all ranks: 1; 0 where the epoch had no more; -errno. */
static int fill(struct text_batches *batches, struct filling *filling)
{
    const struct text_feed_options *options = batches->options;
    const int64_t ranks = options->ranks > 0 ? options->ranks : 1;
    while (filling->rows < ranks * options->batch_rows) {
        size_t row;
        int code = next_row(batches, &row);
        if (code != 1) {
            return code < 0 ? code : filling->rows > 0;
        }
        code = add_row(batches, filling, row);
        if (code != 0) {
            return code;
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
    int code = 0;
    while (code == 0 && (options->epochs == 0 || batches->epoch < options->epochs)) {
        code = fill(batches, &filling);
        if (code == 0) {
            code = end_epoch(batches);
        }
    }
    if (code != 1) {
        out->counts = batches->counts;
        return code;
    }
    batches->batches++;
    *out = (struct text_batch){.rows = filling.own,
                               .length = padded(options, filling.length),
                               .ids = filling.arrays[IDS],
                               .labels = filling.arrays[LABELS],
                               .positions = filling.arrays[POSITIONS],
                               .starts = filling.arrays[STARTS],
                               .tokens = out->tokens,
                               .targets = out->targets,
                               .targets_all = out->targets_all,
                               .epoch = batches->epoch,
                               .part = text_reader_part(batches->reader),
                               .counts = batches->counts,
                               .after = position(batches)};
    pad_rows(batches, &filling);
    return 1;
}

int text_batches_measure(struct text_batches *batches, struct text_measure *out)
{
    int code;
    struct text_batch batch = {0};
    *out = (struct text_measure){0};
    do {
        struct filling filling = {.out = &batch};
        code = fill(batches, &filling);
        out->rows += (uint64_t)filling.rows;
        out->batches += code == 1;
    } while (code == 1);
    out->counts = batches->counts;
    return code == 0 ? end_epoch(batches) : code;
}
