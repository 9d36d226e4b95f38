/* feed.h: training data: from files of rows to micro-batches, prepared ahead by a thread of its own.
 *
 *     struct text_feed *feed = NULL;
 *     struct text_batch batch;
 *     rc = text_feed_open(&options, NULL, &feed);
 *     while ((rc = text_feed_next(feed, &batch)) == 1) {
 *         step(&batch);
 *         saved = batch.after;      // 64 bytes: open with them to go on behind this batch
 *     }
 *     text_feed_close(feed);
 *
 * Rows are told by their keys: `input_ids` (and `labels`) need no tokenizer and no model folder.
 * What a batch holds depends on the options and the files alone, never on timing or threads.
 * One thread, the caller's. */
#ifndef TOOLS_TEXT_DATA_FEED_H
#define TOOLS_TEXT_DATA_FEED_H

#include "tools/text/data/batches.h"

struct text_feed;

/* Opens the files and begins to prepare; `from` NULL: the beginning. Texts and lists of the options
 * are borrowed until close. -EINVAL for options that
 * contradict each other and for a position of other data; -ENOENT, -ENOTSUP ... */
int text_feed_open(const struct text_feed_options *options, const struct text_position *from,
                   struct text_feed **out);
void text_feed_close(struct text_feed *feed);

/* 1 and the next batch; 0 after the last epoch, with the counts of all of it; -errno, with the sentence, for a row that is wrong
 * (with TEXT_BAD_STOP), for a file that cannot be read, and for an epoch with nothing to train on.
 * What failed stays failed. */
int text_feed_next(struct text_feed *feed, struct text_batch *out);

/* The time for `now` where a run begins: SOURCE_DATE_EPOCH (UTC), or else this machine's local time.
 * -EINVAL for a SOURCE_DATE_EPOCH that is no number of seconds. */
int text_feed_now(int64_t *out);

/* How long text_feed_next() has waited in all, but for the first batch. */
int64_t text_feed_wait_ns(const struct text_feed *feed);

/* How many threads tokenize where nothing else has to be done meanwhile: as many as were asked for (0:
 * one a processor that this thread may run on), at most TEXT_THREADS_MAX. */
unsigned text_feed_threads(int64_t asked);

/* Reads one epoch once without keeping it. */
int text_feed_measure(const struct text_feed_options *options, struct text_measure *out);

#endif
