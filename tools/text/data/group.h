/* group.h: reads rows in groups and encodes them on several threads, the caller's included. Rows
 * and their errors keep their order. A group has at most TEXT_GROUP_ROWS rows, and ends with the
 * row that reaches TEXT_GROUP_BYTES; with one thread, it has one row. Private to reader.c. */
#ifndef TOOLS_TEXT_DATA_GROUP_H
#define TOOLS_TEXT_DATA_GROUP_H

#include "tools/text/data/options.h"
#include "tools/text/data/records.h"
#include "tools/text/data/sample.h"

struct text_encoder;
struct text_group;

enum {
    TEXT_GROUP_ROWS = 256,
    TEXT_GROUP_BYTES = 1 << 20,
    TEXT_GROUP_TOKENS = 4096, /* larger buffers of a row are not kept */
};

/* A row; borrowed from the group until the next call. */
struct text_made {
    struct text_record record;
    struct text_place after; /* position of the next row */
    struct text_sample sample;
    bool broken;         /* the error concerns later rows, too */
    int rc;              /* 0 or -errno */
    const char *message; /* if rc is not 0 */
};

/* Borrows the options. */
int text_group_create(const struct text_feed_options *options, struct text_group **out);
void text_group_destroy(struct text_group *group);

/* Returns 1 and the next row; 0 at the end of the epoch; -errno if the files cannot be read. */
int text_group_next(struct text_group *group, struct text_records *records,
                    const struct text_made **out);
/* Drops the rows that were read but not taken. */
void text_group_drop(struct text_group *group);

/* Returns the first encoder; NULL before the first row of text. */
const struct text_encoder *text_group_encoder(const struct text_group *group);

#endif
