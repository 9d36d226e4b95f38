/* pack.h: puts documents into rows of at most seq_len tokens, one window after another. Without
 * packing, a window is one row of the files, its parts if `split`, or the two answers of a pair.
 * With packing (best fit, longest first), ties go to the row that has had this room longest; rows
 * keep the order of their creation. One thread. */
#ifndef TOOLS_TEXT_DATA_PACK_H
#define TOOLS_TEXT_DATA_PACK_H

#include "tools/text/data/reader.h"

struct text_pack;

/* Limits of a window. The row of a file that reaches TOKENS is its last one. */
enum {
    TEXT_WINDOW_ROWS = 1000,
    TEXT_WINDOW_TOKENS = 1 << 22, /* with `pack` */
};

struct text_pack_options {
    int64_t seq_len;
    bool pack;
    bool split;
};

struct text_document {
    const int32_t *ids; /* borrowed until the next fill */
    const int32_t *labels;
    size_t count;
};

int text_pack_create(const struct text_pack_options *options, struct text_pack **out);
void text_pack_destroy(struct text_pack *pack);

/* Fills the next window. Returns 1; 0 at the end of the epoch; -errno. */
int text_pack_fill(struct text_pack *pack, struct text_reader *reader);
/* Fill a window step by step: clear it; add rows of the files (1; 0 at the end of the epoch;
 * -errno) until is_full; arrange documents in rows. */
void text_pack_clear(struct text_pack *pack);
int text_pack_add(struct text_pack *pack, struct text_reader *reader);
bool text_pack_is_full(const struct text_pack *pack);
void text_pack_arrange(struct text_pack *pack);

size_t text_pack_rows(const struct text_pack *pack);
size_t text_pack_documents(const struct text_pack *pack, size_t row);
struct text_document text_pack_document(const struct text_pack *pack, size_t row, size_t index);

/* Sets the counts of cut, split and dropped rows since the beginning. */
void text_pack_count(const struct text_pack *pack, struct text_counts *counts);

#endif
