/* batches.h: rows of documents put into micro-batches, one after another, epoch after epoch. Private
 * to feed.c, whose thread enters. */
#ifndef TOOLS_TEXT_DATA_BATCHES_H
#define TOOLS_TEXT_DATA_BATCHES_H

#include "tools/text/data/feed.h"

struct text_batches;

/* As text_feed_open(). The options are kept by reference. */
int text_batches_open(const struct text_feed_options *options, const struct text_position *from,
                      struct text_batches **out);
void text_batches_close(struct text_batches *batches);

/* Tokens of a row that there is room for. */
int64_t text_batches_room(const struct text_feed_options *options);

/* The next batch in `tokens`, which holds batch_rows * room ids, labels, and, packed, positions
 * and starts. 1, 0 after the last epoch, -errno. */
int text_batches_next(struct text_batches *batches, int32_t *tokens, struct text_batch *out);

/* Reads some more of what further batches are made of; false where there is nothing to be done now. */
bool text_batches_ahead(struct text_batches *batches);

/* The rest of the epoch, counted. */
int text_batches_measure(struct text_batches *batches, struct text_measure *out);

#endif
