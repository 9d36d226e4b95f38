/* reader.h: rows of files as tokens and labels. A bad row is an error, or is skipped and counted.
 * One thread. */
#ifndef TOOLS_TEXT_DATA_READER_H
#define TOOLS_TEXT_DATA_READER_H

#include "tools/text/data/options.h"
#include "tools/text/data/records.h"
#include "tools/text/data/sample.h"

struct text_reader;

/* Borrows the options. */
int text_reader_open(const struct text_feed_options *options, struct text_reader **out);
void text_reader_close(struct text_reader *reader);

/* Returns a hash of text_records_mark(), train_on and chat_format. */
uint64_t text_reader_mark(const struct text_reader *reader);

int text_reader_seek(struct text_reader *reader, uint64_t epoch, struct text_place place);
struct text_place text_reader_place(const struct text_reader *reader);

/* Returns about the share of the epoch's bytes that were read, 0 to 1; negative: unknown. */
double text_reader_part(const struct text_reader *reader);

/* Returns 1 and the next row or pair, borrowed until the next call; 0 at the end of the epoch;
 * -errno. */
int text_reader_next(struct text_reader *reader, const struct text_sample **out);

struct text_encoder;
/* Returns the encoder of rows of text; NULL before the first such row. */
const struct text_encoder *text_reader_encoder(const struct text_reader *reader);

uint64_t text_reader_rows(const struct text_reader *reader);
uint64_t text_reader_bad(const struct text_reader *reader);
/* Returns whether rows may contain the time, which a chat template can write. */
bool text_reader_dated(const struct text_reader *reader);

#endif
