/* group.h: rows taken from the files together, and made tokens by several threads at once. They come
 * out in the order in which they went in, and so does what is wrong with them. Private to reader.c.
 *
 * A group is up to TEXT_GROUP_ROWS rows of together about TEXT_GROUP_BYTES, or one that is longer; with
 * one thread it is one row. The caller's thread is one of them; the others sleep between groups. */
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
    TEXT_GROUP_TOKENS = 4096, /* of a row, for which memory is kept from group to group */
};

/* A row, borrowed from the group until the next fill. */
struct text_made {
    struct text_record record;
    struct text_place after; /* of the row that comes next */
    struct text_sample sample;
    bool broken;          /* what is wrong is not this row alone */
    int rc;               /* 0 or -errno */
    const char *sentence; /* where code is not 0 */
};

/* The options are borrowed. */
int text_group_create(const struct text_feed_options *options, struct text_group **out);
void text_group_destroy(struct text_group *group);

/* The next row in order, of a new group where the last one is used up: 1; 0 at the end of the epoch;
 * -errno where the files cannot be read on. */
int text_group_next(struct text_group *group, struct text_records *records,
                    const struct text_made **out);
/* Rows that were not asked for yet are forgotten: reading goes on elsewhere. */
void text_group_drop(struct text_group *group);

/* What rows of text go through; NULL where there was none yet. */
const struct text_encoder *text_group_encoder(const struct text_group *group);

#endif
