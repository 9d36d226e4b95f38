/* encode.h: a row of text as tokens and labels, by a model's tokenizer and chat template.
 * One thread an encoder. */
#ifndef TOOLS_TEXT_DATA_ENCODE_H
#define TOOLS_TEXT_DATA_ENCODE_H

#include <stdbool.h>

#include "tools/text/data/options.h"
#include "tools/text/data/sample.h"

struct text_encoder;
struct text_row;
struct text_tokenizer;

/* Loads what `folder` has; `vocab` and `now` as in the options of a feed. */
int text_encoder_create(const char *folder, const char *format, int64_t vocab, int64_t now,
                        struct text_encoder **out);
/* Another one for another thread, with the same tokenizer and template, which stay the first's: it is
 * destroyed after this one. What is said once is said by one of them. */
int text_encoder_share(struct text_encoder *first, struct text_encoder **out);
void text_encoder_destroy(struct text_encoder *encoder);
/* Frees what it keeps from row to row. -ENOMEM. */
int text_encoder_trim(struct text_encoder *encoder);

const struct text_tokenizer *text_encoder_tokenizer(const struct text_encoder *encoder);
/* Of tokenizer and template: changes with what rows become. */
uint64_t text_encoder_mark(const struct text_encoder *encoder);
/* Whether the model's chat template asks for the time. */
bool text_encoder_dated(const struct text_encoder *encoder);

/* -EINVAL, -EILSEQ, -E2BIG ... for a row that cannot be used; -ENOTSUP where the model lacks what
 * all such rows need. */
int text_encoder_encode(struct text_encoder *encoder, const struct text_row *row,
                        enum text_train_on train_on, struct text_sample *out);

#endif
