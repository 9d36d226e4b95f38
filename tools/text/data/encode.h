/* encode.h: turns rows of text into tokens and labels by a model's tokenizer and chat template. One
 * thread for each encoder. */
#ifndef TOOLS_TEXT_DATA_ENCODE_H
#define TOOLS_TEXT_DATA_ENCODE_H

#include <stdbool.h>

#include "tools/text/data/options.h"
#include "tools/text/data/sample.h"

struct text_encoder;
struct text_row;
struct text_tokenizer;

/* `vocab`, `now`: see text_feed_options. */
int text_encoder_create(const char *folder, const char *format, int64_t vocab, int64_t now,
                        struct text_encoder **out);
/* Creates an encoder for another thread. It shares the tokenizer and the template of `first`, which
 * must be destroyed last. */
int text_encoder_share(struct text_encoder *first, struct text_encoder **out);
void text_encoder_destroy(struct text_encoder *encoder);
/* Frees buffers that are kept between rows. */
int text_encoder_trim(struct text_encoder *encoder);

const struct text_tokenizer *text_encoder_tokenizer(const struct text_encoder *encoder);
/* Returns whether the chat template may write the time. */
bool text_encoder_dated(const struct text_encoder *encoder);

/* Encodes a row, or both rows of a pair (`train_on` is ignored). -ENOTSUP: the model lacks
 * something that such rows need. */
int text_encoder_encode(struct text_encoder *encoder, const struct text_row *row,
                        enum text_train_on train_on, struct text_sample *out);

#endif
