/* batches.h: micro-batches of rows, epoch after epoch. The functions are private to feed.c; one
 * thread at a time. */
#ifndef TOOLS_TEXT_DATA_BATCHES_H
#define TOOLS_TEXT_DATA_BATCHES_H

#include "tools/text/data/memory.h"
#include "tools/text/data/options.h"

struct text_batches;

/* Position of a run in its data, in native byte order. All zero is the beginning. A run may
 * continue at it with other batch_rows and ranks. */
struct text_position {
    /* in order: mark of data and options; epoch; place (3); rows since that place; batches; version
     * of this struct (8 bits) and the options of the mark */
    uint64_t word[8];
};

/* Borrowed from the feed until the next call. The arrays are [batch_rows][length]. With
 * options.pairs, row 2 i is the chosen answer of pair i, row 2 i + 1 the rejected one, and labels
 * of prompts are -100. Rows of padding have no targets. */
struct text_batch {
    int64_t rows;   /* rows with data; the rest of batch_rows is padding */
    int64_t length; /* tokens of a row, padding included */
    const int32_t *ids;
    /* the token itself or the row's own label, not shifted; -100: not trained on */
    const int32_t *labels;
    const int32_t *positions; /* positions in the document; NULL unless packed */
    /* index at which the document of a token begins in the row; NULL unless packed */
    const int32_t *starts;
    int64_t tokens; /* tokens of this rank, without padding */
    /* trained tokens that are predicted; with options.pairs, the number of pairs */
    int64_t targets;
    int64_t targets_all; /* targets of all ranks */
    uint64_t epoch;      /* from 0 */
    double part;         /* share of the epoch's bytes read, 0 to 1; negative: unknown */
    struct text_counts counts;
    struct text_position after;
};

/* Opens the files at `from`; borrows the options. */
int text_batches_open(const struct text_feed_options *options, const struct text_position *from,
                      struct text_batches **out);
void text_batches_close(struct text_batches *batches);

/* Returns the tokens that a row has room for. */
int64_t text_batches_room(const struct text_feed_options *options);

/* Makes the next batch in `tokens`: [batch_rows][text_batches_room()] ids, labels and, if packed,
 * positions and starts. Returns 1; 0 after the last epoch; -errno. */
int text_batches_next(struct text_batches *batches, int32_t *tokens, struct text_batch *out);

/* Reads a little of later batches. Returns false if there is nothing to do now. */
bool text_batches_ahead(struct text_batches *batches);

#endif
