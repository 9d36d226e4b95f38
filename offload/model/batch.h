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

/* Checks that ids and labels are tokens of the vocabulary, that positions exist, and that documents are in
 * order. -EINVAL names row and position. */
int model_batch_check(const struct model_batch *batch, const struct model_config *config);

/* Writes to out[rows * length] what each token predicts: the label of the next token in its row and
 * document; -100: none. Returns how many are not -100. */
int64_t model_batch_shift(const struct model_batch *batch, int32_t *out);

#endif
