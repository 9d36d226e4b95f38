/* predict.h: the most likely next token, by a forward pass of one row: for looking at what a model
 * has learnt, not for serving it. The engine's thread; the tapes rest but for the forward pass. */
#ifndef OFFLOAD_RUN_PREDICT_H
#define OFFLOAD_RUN_PREDICT_H

#include <stdint.h>

struct run_rank;

/* Logits of the token behind the last of `ids` [length], as fp32 in `out` [vocab]. `length` is at
 * most the rows' length. */
int run_predict_logits(struct run_rank *rank, const int32_t *ids, int64_t length, float *out);

#endif
