/* batches.h: rows of documents put into micro-batches, one after another, epoch after epoch. Private
 * to feed.c, whose thread enters. */
#ifndef TOOLS_TEXT_DATA_BATCHES_H
#define TOOLS_TEXT_DATA_BATCHES_H

#include "tools/text/data/memory.h"
#include "tools/text/data/options.h"

struct text_batches;

/* Where a run stands in its data: plain numbers without pointers, to be stored as they are (in the
 * machine's byte order). All zero is the beginning. Does not depend on batch_rows and ranks. */
struct text_position {
    uint64_t word[8]; /* mark of data and options; epoch; place (3); rows since; batches;
                         version of all that */
};

/* Borrowed from the feed until the next call. The arrays are [batch_rows][length]. */
struct text_batch {
    int64_t rows;   /* that hold data; the others, up to batch_rows, are padding altogether */
    int64_t length; /* of each row, padding included */
    const int32_t *ids;
    const int32_t *labels;    /* unshifted: the token itself, or -100 where it is not trained on */
    const int32_t *positions; /* in the document; NULL unless packed */
    const int32_t *starts;    /* where in the row the token's document begins; NULL unless packed */
    int64_t tokens;           /* of this rank's rows without padding */
    int64_t targets;          /* labels that are predicted: not -100 and not a document's first */
    int64_t targets_all;      /* the same of all ranks: what the step's loss is divided by */
    uint64_t epoch;           /* from 0 */
    double part;              /* of its bytes that were read, 0 to 1; negative: not known */
    struct text_counts counts;
    struct text_position after;
};

/* One epoch, read through once without keeping it: how many batches it has, for schedules that are
 * told in epochs. */
struct text_measure {
    uint64_t batches; /* of one rank */
    uint64_t rows;    /* packed, where they are */
    struct text_counts counts;
};

/* As text_feed_open(). The options are kept by reference. */
int text_batches_open(const struct text_feed_options *options, const struct text_position *from,
                      struct text_batches **out);
void text_batches_close(struct text_batches *batches);

/* Tokens of a row that there is room for. */
int64_t text_batches_room(const struct text_feed_options *options);

/* The next batch in `tokens`, which holds batch_rows * room ids, labels, and, packed, positions
 * and starts. 1, 0 after the last epoch, -errno. */
int text_batches_next(struct text_batches *batches, int32_t *tokens, struct text_batch *out);

/* Reads some more of what further batches are made of; false where there is nothing to be done now. */
bool text_batches_ahead(struct text_batches *batches);

/* The rest of the epoch, counted. */
int text_batches_measure(struct text_batches *batches, struct text_measure *out);

#endif
