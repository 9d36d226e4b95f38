/* pack.h: documents become rows of at most seq_len tokens. A window of documents is taken at a time;
 * without packing, one.
 *
 * Packed: the window's documents, longest first, each go into the row in which the least room is left
 * behind it (the one of these that came to that room first), or into a new one. Rows come in the order
 * in which they were begun. One thread. */
#ifndef TOOLS_TEXT_DATA_PACK_H
#define TOOLS_TEXT_DATA_PACK_H

#include "tools/text/data/reader.h"

struct text_pack;

enum {
    TEXT_WINDOW_DOCUMENTS = 1000,
    TEXT_WINDOW_TOKENS = 1 << 22, /* a window is closed by the document with which it gets there */
};

struct text_pack_options {
    int64_t seq_len;
    bool pack;
    bool split;
};

/* A piece of a row. */
struct text_document {
    const int32_t *ids; /* borrowed until the next fill */
    const int32_t *labels;
    size_t count;
};

int text_pack_create(const struct text_pack_options *options, struct text_pack **out);
void text_pack_destroy(struct text_pack *pack);

/* The next window of the reader's documents: 1; 0 at the end of the epoch; -errno. */
int text_pack_fill(struct text_pack *pack, struct text_reader *reader);
/* The same by parts: an empty window; one row of the files more (1; 0 at the end of the epoch; -errno)
 * until it is full; and every document a row of its own, or several in one. */
void text_pack_clear(struct text_pack *pack);
int text_pack_add(struct text_pack *pack, struct text_reader *reader);
bool text_pack_is_full(const struct text_pack *pack);
void text_pack_arrange(struct text_pack *pack);

size_t text_pack_rows(const struct text_pack *pack);
/* Documents of a row, and each. */
size_t text_pack_documents(const struct text_pack *pack, size_t row);
struct text_document text_pack_document(const struct text_pack *pack, size_t row, size_t index);

/* What was cut, split and dropped since the beginning. */
void text_pack_count(const struct text_pack *pack, struct text_counts *counts);

#endif
