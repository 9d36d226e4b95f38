/* reader.h: rows of files as tokens and labels; what is wrong with a row stops, or is skipped and
 * counted. One thread. */
#ifndef TOOLS_TEXT_DATA_READER_H
#define TOOLS_TEXT_DATA_READER_H

#include "tools/text/data/options.h"
#include "tools/text/data/records.h"
#include "tools/text/data/sample.h"

struct text_reader;

/* Uses of the options what belongs to files and rows; they are kept by reference. */
int text_reader_open(const struct text_feed_options *options, struct text_reader **out);
void text_reader_close(struct text_reader *reader);

/* A number of what is read and how. */
uint64_t text_reader_mark(const struct text_reader *reader);

int text_reader_seek(struct text_reader *reader, uint64_t epoch, struct text_place place);
struct text_place text_reader_place(const struct text_reader *reader);

/* How much of the epoch's bytes was read, 0 to 1; negative where that is not known. */
double text_reader_part(const struct text_reader *reader);

/* 1 and the next row's tokens, borrowed until the next call; 0 at the end of the epoch. */
int text_reader_next(struct text_reader *reader, const struct text_sample **out);

/* The tokenizer that rows of text came through; NULL where there was none yet. */
struct text_encoder;
const struct text_encoder *text_reader_encoder(const struct text_reader *reader);

uint64_t text_reader_rows(const struct text_reader *reader);
uint64_t text_reader_bad(const struct text_reader *reader);
/* Whether rows went through a chat template that asks for the time. */
bool text_reader_dated(const struct text_reader *reader);

#endif
