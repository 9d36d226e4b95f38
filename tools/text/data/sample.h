/* sample.h: the tokens of a row of data, or of a pair of them, and which of them are trained on.
 * The struct is in the caller's memory and is reused for each row. */
#ifndef TOOLS_TEXT_DATA_SAMPLE_H
#define TOOLS_TEXT_DATA_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

enum { TEXT_IGNORED = -100 };

struct text_sample {
    int32_t *ids;    /* owned */
    int32_t *labels; /* owned: the token itself, or TEXT_IGNORED */
    size_t count;
    /* Index at which the tokens of the rejected answer, with its prompt, begin; 0: no pair. */
    size_t rejected;
    size_t room;
};

void text_sample_fini(struct text_sample *sample);
/* Copies a sample into memory of exact size. Returns 0 or -ENOMEM. */
int text_sample_copy(const struct text_sample *sample, struct text_sample *out);
/* Appends a token. Returns 0 or -ENOMEM. */
int text_sample_add(struct text_sample *sample, int32_t id, int32_t label);
/* Returns the number of tokens that are predicted and trained on: labels after the first token that
 * are not TEXT_IGNORED. */
size_t text_sample_targets(const int32_t *labels, size_t count);

/* Reads the lists `input_ids` and `labels` of a row. Returns 1; 0 if the row has no input_ids;
 * -EINVAL with the error. Ids must be below `vocab` (0: any). `attention_mask` must be all ones and
 * `position_ids` 0, 1, 2 ...; token_type_ids are refused; other keys are ignored. */
int text_sample_read(struct text_sample *sample, const char *json, size_t bytes, int64_t vocab);

#endif
