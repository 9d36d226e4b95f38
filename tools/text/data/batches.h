/* batches.h: puts rows of documents into micro-batches, one after another, epoch after epoch. The
 * functions are private to feed.c, whose thread calls them. */
#ifndef TOOLS_TEXT_DATA_BATCHES_H
#define TOOLS_TEXT_DATA_BATCHES_H

#include "tools/text/data/memory.h"
#include "tools/text/data/options.h"

struct text_batches;

/* Position of a run in its data: numbers that are stored as they are in memory (native byte order).
 * All zero is the beginning. Does not depend on batch_rows and ranks. */
struct text_position {
    /* in order: mark of data and options; epoch; place (3); rows since that place; batches; version
     * of this struct (8 bits) and the options of the mark */
    uint64_t word[8];
};

/* Borrowed from the feed until the next call. The arrays are [batch_rows][length].
 *
 * With options.pairs, row 2 i is the chosen answer of pair i, and row 2 i + 1 the rejected one;
 * `rows` is even. Both begin with the same tokens of the prompt, whose labels are -100. Both have
 * at least one target. Rows of padding have no targets: all their labels are -100. A batch of each
 * rank has whole pairs. */
struct text_batch {
    int64_t rows;   /* rows with data; the others, up to batch_rows, are padding */
    int64_t length; /* tokens of each row, with padding */
    const int32_t *ids;
    const int32_t *labels;    /* not shifted: the token itself, or -100 if it is not trained on */
    const int32_t *positions; /* positions in the document; NULL unless packed */
    /* index in the row at which the document of a token begins; NULL unless packed */
    const int32_t *starts;
    int64_t tokens; /* tokens in rows of this rank, without padding */
    /* labels that are predicted: not -100, and not the first of a document; with options.pairs, the
     * number of pairs */
    int64_t targets;
    int64_t targets_all; /* number of targets over all ranks: the divisor of the loss of a step */
    uint64_t epoch;      /* from 0 */
    double part;         /* share of the epoch's bytes read, 0 to 1; negative: unknown */
    struct text_counts counts;
    struct text_position after;
};

/* Opens the files at `from`. Returns the errors of text_feed_open(). Keeps a pointer to the
 * options. */
int text_batches_open(const struct text_feed_options *options, const struct text_position *from,
                      struct text_batches **out);
void text_batches_close(struct text_batches *batches);

/* Returns the capacity of a row in tokens. */
int64_t text_batches_room(const struct text_feed_options *options);

/* Makes the next batch in `tokens`, which has room for [batch_rows][capacity] ids, labels and, if
 * packed, positions and starts. Returns 1, 0 after the last epoch, or -errno. */
int text_batches_next(struct text_batches *batches, int32_t *tokens, struct text_batch *out);

/* Reads a little of what later batches need. Returns false if there is nothing to do now. */
bool text_batches_ahead(struct text_batches *batches);

#endif
