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
    /* index, in the row of token t, of the first token of its document; NULL: a row is one
     * document */
    const int32_t *starts;
};

/* Checks that ids, and labels other than -100, are in the vocabulary, that positions are below
 * config->length_max, and that documents are in order. Returns -EINVAL with a message that names
 * row and position. */
int model_batch_check(const struct model_batch *batch, const struct model_config *config);

/* Writes to out[rows * length] the token that each token predicts: the label of the next token in
 * its row and document; -100: none. Returns how many are not -100. */
int64_t model_batch_shift(const struct model_batch *batch, int32_t *out);

/* How two rows of a batch are combined into one row: first the `shared` tokens with which both
 * begin and of which none predicts a target; then the rest of the chosen row before its last
 * target; then the rest of the rejected row before its last target. The tokens of a row from its
 * last target on change nothing and are left out. */
struct model_pair {
    int64_t shared;
    int64_t ends[2]; /* tokens of the chosen and the rejected row before their last target */
};

/* Returns how rows 2 * pair and 2 * pair + 1 are combined. The batch must have neither positions
 * nor documents. */
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

/* Combines the rows of each pair of a batch, which must have at most out->pairs pairs, and fills
 * the rest of `out` with padding. Returns how many pairs have targets in both rows, because the
 * loss counts only these; -EINVAL with a message if a pair does not fit into the length. */
int64_t model_batch_put_pairs(const struct model_batch *batch, const struct model_pair_rows *out);

#endif
