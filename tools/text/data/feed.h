/* feed.h: training data: micro-batches made of files of rows, prepared ahead by a thread of its
 * own.
 *
 *     struct text_feed *feed = NULL;
 *     struct text_batch batch;
 *     rc = text_feed_open(&options, NULL, &feed);
 *     while ((rc = text_feed_next(feed, &batch)) == 1) {
 *         step(&batch);
 *         saved = batch.after;      // 64 bytes: open with them to continue after this batch
 *     }
 *     text_feed_close(feed);
 *
 * The keys of a row tell its kind; rows with `input_ids` (and `labels`) need no tokenizer and no
 * model. The content of a batch depends on the options and the files alone, never on timing or
 * threads. Called by one thread. */
#ifndef TOOLS_TEXT_DATA_FEED_H
#define TOOLS_TEXT_DATA_FEED_H

#include "tools/text/data/batches.h"

struct text_feed;

/* Opens the files and starts to prepare batches; `from` NULL: at the beginning. Borrows the strings
 * and lists of the options until close. Refuses contradictory options and a position of other
 * data. */
int text_feed_open(const struct text_feed_options *options, const struct text_position *from,
                   struct text_feed **out);
void text_feed_close(struct text_feed *feed);

/* Returns 1 and the next batch; 0 after the last epoch, with the final counts; -errno, for
 * example for a bad row (TEXT_BAD_STOP) or an epoch without targets. Errors are permanent. */
int text_feed_next(struct text_feed *feed, struct text_batch *out);

/* Sets *out to the `now` of a new run: SOURCE_DATE_EPOCH (UTC) or, if unset, the local time.
 * Returns -EINVAL if SOURCE_DATE_EPOCH is not a number of seconds. */
int text_feed_now(int64_t *out);

/* Returns how long text_feed_next() has waited in total, the first batch excluded. */
int64_t text_feed_wait_ns(const struct text_feed *feed);

/* Returns how many tokenizing threads to use: `asked` (0: the processors that this thread may use),
 * at most TEXT_THREADS_MAX. */
unsigned text_feed_threads(int64_t asked);

#endif
