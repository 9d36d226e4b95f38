/* group.h: reads rows of the files in groups and has several threads turn them into tokens. Rows,
 * and errors in them, come out in the order of the files. Private to reader.c.
 *
 * A group has at most TEXT_GROUP_ROWS rows of about TEXT_GROUP_BYTES together, or one longer row;
 * with one thread, it is one row. The thread of the caller is one of the threads; the others sleep
 * between groups. */
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
    TEXT_GROUP_TOKENS = 4096, /* memory for a row of this size is kept from group to group */
};

/* A row, borrowed from the group until the next fill. */
struct text_made {
    struct text_record record;
    struct text_place after; /* position of the next row */
    struct text_sample sample;
    bool broken;         /* the error concerns more than this row */
    int rc;              /* 0 or -errno */
    const char *message; /* if rc is not 0 */
};

/* The options are borrowed. */
int text_group_create(const struct text_feed_options *options, struct text_group **out);
void text_group_destroy(struct text_group *group);

/* Gets the next row in order, reading a new group if necessary. Returns 1; 0 at the end of the
 * epoch; -errno if the files cannot be read. */
int text_group_next(struct text_group *group, struct text_records *records,
                    const struct text_made **out);
/* Drops rows that were read but not taken, because reading continues elsewhere. */
void text_group_drop(struct text_group *group);

/* Returns the first encoder; NULL before the first row of text. */
const struct text_encoder *text_group_encoder(const struct text_group *group);

#endif
