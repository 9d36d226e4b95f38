/* batch.c: checks and shifts rows. */
#include "offload/model/batch.h"

#include <errno.h>
#include <inttypes.h>

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
    /* Whether a document begins here or continues. */
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
