/* batch.c: checks and shifts rows, and combines the rows of pairs. */
#include "offload/model/batch.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "core/base/err.h"
#include "kernels/kern.h"
#include "offload/model/config.h"

static int check_token(const struct model_batch *batch, const struct model_config *config,
                       int64_t row, int64_t at)
{
    const int64_t t = row * batch->length + at;
    const int32_t id = batch->ids[t];
    const int32_t label = batch->labels != NULL ? batch->labels[t] : id;
    if (id < 0 || id >= config->vocab) {
        return core_err_set(-EINVAL,
                            "input_ids: token %" PRId32 " at index %" PRId64 " of row %" PRId64
                            " is outside the vocabulary of %" PRId64,
                            id, at, row, config->vocab);
    }
    if (label != KERN_LABEL_IGNORED && (label < 0 || label >= config->vocab)) {
        return core_err_set(-EINVAL,
                            "labels: %" PRId32 " at index %" PRId64 " of row %" PRId64
                            " is neither %d nor in the vocabulary of %" PRId64,
                            label, at, row, KERN_LABEL_IGNORED, config->vocab);
    }
    if (batch->positions != NULL &&
        (batch->positions[t] < 0 || batch->positions[t] >= config->length_max)) {
        return core_err_set(-EINVAL,
                            "position %" PRId32 " at index %" PRId64 " of row %" PRId64
                            " is outside the model's %" PRId64,
                            batch->positions[t], at, row, config->length_max);
    }
    /* A document begins at this token, or the previous token's document continues. */
    if (batch->starts != NULL && batch->starts[t] != at &&
        (at == 0 || batch->starts[t] != batch->starts[t - 1])) {
        return core_err_set(-EINVAL,
                            "the document at index %" PRId64 " of row %" PRId64
                            " cannot begin at %" PRId32,
                            at, row, batch->starts[t]);
    }
    return 0;
}

int model_batch_check(const struct model_batch *batch, const struct model_config *config)
{
    if (batch->positions == NULL && batch->length > config->length_max) {
        return core_err_set(-EINVAL,
                            "rows of %" PRId64 " tokens are longer than the %" PRId64
                            " positions that the model has",
                            batch->length, config->length_max);
    }
    for (int64_t row = 0; row < batch->rows; row++) {
        for (int64_t at = 0; at < batch->length; at++) {
            int rc = check_token(batch, config, row, at);
            if (rc != 0) {
                return rc;
            }
        }
    }
    return 0;
}

int64_t model_batch_shift(const struct model_batch *batch, int32_t *out)
{
    const int32_t *labels = batch->labels != NULL ? batch->labels : batch->ids;
    int64_t targets = 0;
    for (int64_t row = 0; row < batch->rows; row++) {
        for (int64_t at = 0; at < batch->length; at++) {
            const int64_t t = row * batch->length + at;
            const bool last = at + 1 == batch->length ||
                              (batch->starts != NULL && batch->starts[t + 1] == at + 1);
            out[t] = last ? KERN_LABEL_IGNORED : labels[t + 1];
            targets += out[t] != KERN_LABEL_IGNORED;
        }
    }
    return targets;
}

/* ---- pairs ---- */

/* Returns the label of the next token; -100 at the end of the row. */
static int32_t target_after(const struct model_batch *batch, int64_t row, int64_t at)
{
    const int32_t *labels = batch->labels != NULL ? batch->labels : batch->ids;
    return at + 1 < batch->length ? labels[row * batch->length + at + 1] : KERN_LABEL_IGNORED;
}

struct model_pair model_batch_pair(const struct model_batch *batch, int64_t pair)
{
    const int64_t length = batch->length;
    const int32_t *ids = batch->ids + 2 * pair * length;
    struct model_pair found = {0};
    for (int side = 0; side < 2; side++) {
        for (int64_t t = 0; t < length; t++) {
            if (target_after(batch, 2 * pair + side, t) != KERN_LABEL_IGNORED) {
                found.ends[side] = t + 1;
            }
        }
    }
    while (found.shared < found.ends[0] && found.shared < found.ends[1] &&
           ids[found.shared] == ids[length + found.shared] &&
           target_after(batch, 2 * pair, found.shared) == KERN_LABEL_IGNORED &&
           target_after(batch, 2 * pair + 1, found.shared) == KERN_LABEL_IGNORED) {
        found.shared++;
    }
    return found;
}

int64_t model_pair_tokens(const struct model_pair *pair)
{
    return pair->ends[0] + pair->ends[1] - pair->shared;
}

/* Copies tokens [range[0], range[1]) of a row to index `to` of `out`. */
static void put_answer(const struct model_batch *batch, int64_t row, const int64_t range[2],
                       const struct model_pair_rows *out, int64_t to)
{
    for (int64_t t = range[0]; t < range[1]; t++, to++) {
        out->ids[to] = batch->ids[row * batch->length + t];
        out->labels[to] = target_after(batch, row, t);
        out->positions[to] = (int32_t)t;
    }
}

int64_t model_batch_put_pairs(const struct model_batch *batch, const struct model_pair_rows *out)
{
    const int64_t given = batch->rows / 2;
    int64_t count = 0;
    for (int64_t t = 0; t < out->pairs * out->length; t++) {
        out->ids[t] = out->positions[t] = 0;
        out->labels[t] = KERN_LABEL_IGNORED;
    }
    memset(out->gaps, 0, (size_t)out->pairs * 2 * sizeof *out->gaps);
    for (int64_t i = 0; i < given; i++) {
        const struct model_pair pair = model_batch_pair(batch, i);
        const int64_t chosen[2] = {0, pair.ends[0]};
        const int64_t rejected[2] = {pair.shared, pair.ends[1]};
        if (model_pair_tokens(&pair) > out->length) {
            return core_err_set(-EINVAL,
                                "pair %" PRId64 " has %" PRId64 " tokens, of which %" PRId64
                                " are of both rows; pair_length is %" PRId64,
                                i, model_pair_tokens(&pair), pair.shared, out->length);
        }
        put_answer(batch, 2 * i, chosen, out, i * out->length);
        put_answer(batch, 2 * i + 1, rejected, out, i * out->length + pair.ends[0]);
        out->gaps[2 * i] = (int32_t)pair.shared;
        out->gaps[2 * i + 1] = (int32_t)pair.ends[0];
        count += pair.ends[0] > 0 && pair.ends[1] > 0;
    }
    return count;
}
