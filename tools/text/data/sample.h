/* sample.h: what a row of data becomes: its tokens, and which of them are trained on. The caller's
 * memory, filled again for each row. One thread. */
#ifndef TOOLS_TEXT_DATA_SAMPLE_H
#define TOOLS_TEXT_DATA_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

enum { TEXT_IGNORED = -100 };

struct text_sample {
    int32_t *ids;    /* owned */
    int32_t *labels; /* owned: the token itself, or TEXT_IGNORED */
    size_t count;
    size_t room;
};

void text_sample_fini(struct text_sample *sample);
/* A copy that takes no more memory than it needs. -ENOMEM. */
int text_sample_copy(const struct text_sample *sample, struct text_sample *out);
/* Appends a token. -ENOMEM. */
int text_sample_add(struct text_sample *sample, int32_t id, int32_t label);
/* Tokens that something predicts: labels behind the first token. */
size_t text_sample_targets(const int32_t *labels, size_t count);

/* The lists `input_ids` and `labels` of a row: 1; 0 where it has no input_ids; -EINVAL saying what is
 * wrong. Ids lie below `vocab` (0: any). An `attention_mask` has to be all ones, and `position_ids` 0, 1,
 * 2 ...; token_type_ids are refused, and other keys are ignored. */
int text_sample_read(struct text_sample *sample, const char *json, size_t bytes, int64_t vocab);

#endif
