/* batch.h: one micro-batch of token rows on the host, checked and shifted.
 * Pure functions, any thread. */
#ifndef OFFLOAD_MODEL_BATCH_H
#define OFFLOAD_MODEL_BATCH_H

#include <stdint.h>

struct model_config;

/* Rows of equal length, row after row; all borrowed. */
struct model_batch {
    int64_t rows;
    int64_t length;
    const int32_t *ids;
    const int32_t *labels;    /* unshifted: labels[t] is the token at t, or -100; NULL: the ids */
    const int32_t *positions; /* NULL: 0, 1, 2 ... in each row */
    /* in each row, where the document of token t begins; NULL: a row is one document */
    const int32_t *starts;
};

/* Checks that ids and labels are tokens of the vocabulary, that positions exist, and that documents
 * are in order. Returns -EINVAL with a message that names row and position. */
int model_batch_check(const struct model_batch *batch, const struct model_config *config);

/* Writes to out[rows * length] the token that each token predicts: the label of the next token in
 * its row and document; -100: none. Returns how many are not -100. */
int64_t model_batch_shift(const struct model_batch *batch, int32_t *out);

/* Two rows of a batch that begin alike are put together as one row. It has the `shared` tokens of
 * both, which no target follows; then the chosen row's tokens up to its last target; then those of
 * the rejected row. Tokens after the last target change nothing and are left out. */
struct model_pair {
    int64_t shared;
    int64_t ends[2]; /* tokens of the chosen and the rejected row up to their last target */
};

/* Finds how rows 2 pair and 2 pair + 1 are put together. The batch has neither positions nor
 * documents. */
struct model_pair model_batch_pair(const struct model_batch *batch, int64_t pair);

/* Returns the number of tokens of the combined row. */
int64_t model_pair_tokens(const struct model_pair *pair);

/* One row of `length` tokens for each pair: ids, shifted labels, positions, and gaps[pairs][2] as
 * attention and loss take them (kern.h). */
struct model_pair_rows {
    int64_t pairs;
    int64_t length;
    int32_t *ids, *labels, *positions;
    int32_t *gaps;
};

/* Puts the rows of a batch together, and fills the rest with padding if the batch has fewer pairs.
 * Returns how many pairs have targets in both rows, as the loss counts them; -EINVAL if a pair does
 * not fit into the length. */
int64_t model_batch_put_pairs(const struct model_batch *batch, const struct model_pair_rows *out);

#endif
