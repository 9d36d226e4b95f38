/* batch.h: one micro-batch of token rows on the host. Pure functions, any thread. */
#ifndef OFFLOAD_MODEL_BATCH_H
#define OFFLOAD_MODEL_BATCH_H

#include <stdint.h>

struct model_config;

/* Rows of equal length, one after another; borrowed. */
struct model_batch {
    int64_t rows;
    int64_t length;
    const int32_t *ids;
    /* not shifted: labels[t] is the target of the token before t, or -100; NULL: the ids */
    const int32_t *labels;
    const int32_t *positions; /* NULL: 0, 1, 2 ... in each row */
    /* starts[t]: index in the row where the document of token t begins; NULL: a row is one
     * document */
    const int32_t *starts;
};

/* Checks ids, labels, positions and documents, and without positions the length of rows. A message
 * about a token names its row and index. */
int model_batch_check(const struct model_batch *batch, const struct model_config *config);

/* Writes to out[rows * length] each token's target: the label of the next token in its row and
 * document, or -100. Returns the number of targets. */
int64_t model_batch_shift(const struct model_batch *batch, int32_t *out);

/* How two rows become one: their common `shared` tokens before the first target, the rest of the
 * chosen row, the rest of the rejected row. A row ends before its last target, because later tokens
 * change nothing. */
struct model_pair {
    int64_t shared;
    int64_t ends[2]; /* tokens of chosen and rejected row before the last target */
};

/* Returns how rows 2 * pair and 2 * pair + 1 are combined, in a batch without positions and
 * documents. */
struct model_pair model_batch_pair(const struct model_batch *batch, int64_t pair);

int64_t model_pair_tokens(const struct model_pair *pair);

/* One row of `length` tokens per pair: ids, shifted labels, positions, and gaps[pairs][2] for
 * attention and loss (kern.h). */
struct model_pair_rows {
    int64_t pairs;
    int64_t length;
    int32_t *ids, *labels, *positions;
    int32_t *gaps;
};

/* Combines the batch's pairs, of which there are at most out->pairs, and pads the rest of `out`.
 * Returns the number of pairs with targets in both rows, which the loss counts, or -errno. Refuses
 * a pair that is too long. */
int64_t model_batch_put_pairs(const struct model_batch *batch, const struct model_pair_rows *out);

#endif
