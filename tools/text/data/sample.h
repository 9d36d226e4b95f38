/* sample.h: tokens and labels of a row of data or of a pair. Reused for each row, in the caller's
 * memory. */
#ifndef TOOLS_TEXT_DATA_SAMPLE_H
#define TOOLS_TEXT_DATA_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

enum { TEXT_IGNORED = -100 };

struct text_sample {
    int32_t *ids;    /* owned */
    int32_t *labels; /* owned: the token itself, the row's own label, or TEXT_IGNORED */
    size_t count;
    /* index at which the rejected answer, with its prompt, begins; 0: no pair */
    size_t rejected;
    size_t room;
};

void text_sample_fini(struct text_sample *sample);
/* Copies a sample to new memory of its size. */
int text_sample_copy(const struct text_sample *sample, struct text_sample *out);
int text_sample_add(struct text_sample *sample, int32_t id, int32_t label);
/* Returns the number of trained tokens that are predicted: labels other than TEXT_IGNORED, the
 * first label excluded. */
size_t text_sample_targets(const int32_t *labels, size_t count);

/* Reads `input_ids` and `labels` of a row. Returns 1; 0 without input_ids; -errno. Ids must be
 * below `vocab` (0: any). `attention_mask` must be ones, `position_ids` 0, 1, 2 ...; token_type_ids
 * are refused. */
int text_sample_read(struct text_sample *sample, const char *json, size_t bytes, int64_t vocab);

#endif
