/* group.c: the caller's thread reads rows; a team of threads encodes them. */
#include "tools/text/data/group.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "core/base/team.h"
#include "tools/text/data/encode.h"
#include "tools/text/data/memory.h"
#include "tools/text/data/row.h"

enum { TEXTS_BYTES = 2 * TEXT_GROUP_BYTES }; /* room for a group of short rows */

struct item {
    struct text_made made;
    size_t begin; /* offset in `texts` */
    bool waits;   /* needs much memory: encoded after the other rows */
    char message[CORE_ERR_MESSAGE_BYTES];
};

struct text_group {
    const struct text_feed_options *options; /* borrowed */
    struct item *items;                      /* owned, [rows_max] */
    size_t rows_max;
    size_t count;
    size_t at;         /* next row to be taken */
    _Atomic size_t to; /* next row to be encoded */
    char *texts;       /* owned; unused with one thread */
    size_t texts_room;
    struct text_encoder **encoders; /* owned, [threads], like each; NULL until needed */
    unsigned threads;
    struct core_team *team; /* owned; NULL: not needed, or not yet */
    bool ended;             /* `end` and its message follow the last row */
    int end;
    char end_message[CORE_ERR_MESSAGE_BYTES];
};

int text_group_create(const struct text_feed_options *options, struct text_group **out)
{
    struct text_group *group = core_charge_zeroed(1, sizeof *group);
    if (group == NULL) {
        return core_err_set(-ENOMEM, "no memory to read data");
    }
    group->options = options;
    group->threads = options->threads > 0 ? options->threads : 1;
    group->rows_max = group->threads > 1 ? TEXT_GROUP_ROWS : 1;
    group->items = core_charge_zeroed(group->rows_max, sizeof *group->items);
    group->encoders = core_charge_zeroed(group->threads, sizeof *group->encoders);
    if (group->items == NULL || group->encoders == NULL) {
        text_group_destroy(group);
        return core_err_set(-ENOMEM, "no memory for groups of %d rows", TEXT_GROUP_ROWS);
    }
    *out = group;
    return 0;
}

void text_group_destroy(struct text_group *group)
{
    if (group == NULL) {
        return;
    }
    core_team_destroy(group->team);
    for (size_t i = 0; group->items != NULL && i < group->rows_max; i++) {
        text_sample_fini(&group->items[i].made.sample);
    }
    for (unsigned i = group->threads; group->encoders != NULL && i > 0; i--) {
        /* The first one is destroyed last, because the others use it. */
        text_encoder_destroy(group->encoders[i - 1]);
    }
    core_charge_free(group->encoders);
    core_charge_free(group->items);
    core_charge_free(group->texts);
    core_charge_free(group);
}

const struct text_encoder *text_group_encoder(const struct text_group *group)
{
    return group->encoders[0];
}

void text_group_drop(struct text_group *group)
{
    group->at = group->count = 0;
    group->ended = false;
}

/* ---- reading ---- */

static int keep_text(struct text_group *group, size_t begin, const struct text_record *record)
{
    const size_t least = begin + (size_t)record->bytes;
    if (least > group->texts_room) {
        const size_t room = least > TEXTS_BYTES ? least : TEXTS_BYTES;
        char *more = core_charge_grow(group->texts, room);
        if (more == NULL) {
            return core_err_set(-ENOMEM, "no memory for rows of %zu bytes", room);
        }
        group->texts = more;
        group->texts_room = room;
    }
    memcpy(group->texts + begin, record->text, (size_t)record->bytes);
    return 0;
}

static void reset_item(struct item *item)
{
    struct text_sample *sample = &item->made.sample;
    if (sample->room > TEXT_GROUP_TOKENS) {
        text_sample_fini(sample);
        *sample = (struct text_sample){0};
    }
    item->made = (struct text_made){.sample = *sample, .message = item->message};
}

static void read_rows(struct text_group *group, struct text_records *records)
{
    const bool copies = group->rows_max > 1;
    size_t bytes = 0;
    int rc = 1;
    if (group->texts_room > TEXTS_BYTES) { /* the last group had a longer row */
        core_charge_free(group->texts);
        group->texts = NULL;
        group->texts_room = 0;
    }
    group->at = group->count = 0;
    while (rc == 1 && group->count < group->rows_max && bytes < TEXT_GROUP_BYTES) {
        struct item *item = &group->items[group->count];
        reset_item(item);
        rc = text_records_next(records, &item->made.record);
        if (rc == 1) {
            item->begin = bytes;
            item->made.after = text_records_place(records);
            const bool holds = copies && item->made.record.text != NULL;
            const int kept = holds ? keep_text(group, bytes, &item->made.record) : 0;
            bytes += holds ? (size_t)item->made.record.bytes : 0;
            rc = kept == 0 ? 1 : kept;
            group->count += kept == 0;
        }
    }
    for (size_t i = 0; copies && i < group->count; i++) {
        struct text_record *record = &group->items[i].made.record;
        record->text = record->text != NULL ? group->texts + group->items[i].begin : NULL;
    }
    group->ended = rc != 1;
    group->end = rc;
    if (rc < 0) {
        snprintf(group->end_message, sizeof group->end_message, "%s", core_err_message());
    }
}

/* ---- encoding ---- */

static struct core_budget *budget_of(const struct text_group *group, unsigned thread)
{
    struct text_memory *memory = group->options->memory;
    return memory != NULL ? &memory->small[thread] : NULL;
}

/* Loads the tokenizer and the chat template at the first row of text. */
static int need_encoders(struct text_group *group)
{
    const struct text_feed_options *options = group->options;
    if (group->encoders[0] != NULL) {
        return 0;
    }
    struct core_budget *before = core_charge_bind(options->memory != NULL ? &options->memory->shared
                                                                          : NULL);
    int rc = options->model != NULL
                 ? text_encoder_create(options->model, options->chat_format, options->vocab,
                                       options->now, &group->encoders[0])
                 : core_err_set(-ENOTSUP,
                                "a row without input_ids needs a model folder (--model) with "
                                "tokenizer.json");
    for (unsigned i = 1; i < group->threads && rc == 0; i++) {
        core_charge_bind(NULL); /* only feeds of one thread charge a plan */
        rc = text_encoder_share(group->encoders[0], &group->encoders[i]);
    }
    const struct core_team_options team = {.name = "text", .count = group->threads, .spin_ns = -1};
    if (rc == 0 && group->threads > 1) {
        rc = core_team_create(&team, &group->team);
    }
    core_charge_bind(before);
    return rc;
}

static int encode_row(struct text_group *group, struct text_made *made, unsigned thread)
{
    struct text_row row;
    const size_t bytes = (size_t)made->record.bytes;
    int rc = group->options->pairs ? text_row_parse_pair(made->record.text, bytes, &row)
                                   : text_row_parse(made->record.text, bytes, &row);
    if (rc != 0) {
        return rc;
    }
    rc = need_encoders(group);
    made->broken = rc != 0;
    if (rc == 0) {
        rc = text_encoder_encode(group->encoders[thread], &row, group->options->train_on,
                                 &made->sample);
    }
    text_row_fini(&row);
    return rc;
}

static int make_tokens(struct text_group *group, struct text_made *made, unsigned thread)
{
    struct text_sample *sample = &made->sample;
    if (group->options->pairs) {
        return encode_row(group, made, thread);
    }
    int rc = text_sample_read(sample, made->record.text, (size_t)made->record.bytes,
                              group->options->vocab);
    if (rc == 0) {
        return encode_row(group, made, thread);
    }
    if (rc == 1 && group->options->train_on == TEXT_TRAIN_ALL) {
        memcpy(sample->labels, sample->ids, sample->count * sizeof *sample->ids);
    }
    return rc < 0 ? rc : 0;
}

static int make_sample_in(struct text_group *group, struct text_made *made, unsigned thread)
{
    const struct text_sample *sample = &made->sample;
    int rc = make_tokens(group, made, thread);
    if (rc != 0) {
        return rc;
    }
    const size_t first = group->options->pairs ? sample->rejected : sample->count;
    const size_t second = sample->count - first;
    if (text_sample_targets(sample->labels, first) == 0) {
        return core_err_set(-EINVAL, "%sno token of the row is trained on (%zu tokens)",
                            group->options->pairs ? "chosen: " : "", first);
    }
    return !group->options->pairs || text_sample_targets(sample->labels + first, second) > 0
               ? 0
               : core_err_set(-EINVAL, "rejected: no token of the row is trained on (%zu tokens)",
                              second);
}

/* Returns 1 if the row needs more than the memory of a thread. */
static int make_small(struct text_group *group, struct text_made *made, unsigned thread)
{
    struct core_budget *before = core_charge_bind(budget_of(group, thread));
    const int rc = made->record.text == NULL ? -E2BIG : make_sample_in(group, made, thread);
    const bool more = rc == -ENOMEM && core_charge_refused() > 0;
    core_charge_bind(before);
    return more ? 1 : rc;
}

/* Copies the tokens, charged to the shared budget. */
static int keep_sample(struct text_group *group, struct text_sample *sample)
{
    struct core_budget *before = core_charge_bind(&group->options->memory->shared);
    struct text_sample kept = {0};
    const int rc = text_sample_copy(sample, &kept);
    core_charge_bind(before);
    text_sample_fini(sample);
    *sample = kept;
    return rc;
}

/* Encodes a row alone, with empty buffers, within the limit of a row. */
static int make_large(struct text_group *group, struct text_made *made)
{
    struct text_memory *memory = group->options->memory;
    struct text_encoder *encoder = group->encoders[0];
    text_sample_fini(&made->sample);
    struct core_budget *before = core_charge_bind(&memory->large);
    int rc = encoder != NULL ? text_encoder_trim(encoder) : 0;
    if (rc == 0) {
        rc = make_sample_in(group, made, 0);
    }
    const bool more = rc == -ENOMEM && core_charge_refused() > 0;
    core_charge_bind(before);
    before = core_charge_bind(&memory->shared); /* empty buffers are not charged to a row */
    const int trimmed = encoder != NULL ? text_encoder_trim(encoder) : 0;
    core_charge_bind(before);
    made->broken |= trimmed != 0;
    if (rc == 0 && trimmed == 0) {
        return keep_sample(group, &made->sample);
    }
    if (more) { /* after the trim, whose message says less */
        rc = core_err_set(-E2BIG,
                          "the row has %" PRIu64
                          " bytes, and tokenizing it needs more than the limit of %" PRIu64
                          " bytes; raise --data-memory",
                          made->record.bytes, memory->row_bytes);
    }
    text_sample_fini(&made->sample);
    return rc != 0 ? rc : trimmed;
}

static int refuse_length(const struct text_group *group, const struct text_made *made)
{
    const struct text_memory *memory = group->options->memory;
    if (memory == NULL) {
        return core_err_set(-E2BIG, "the row has %" PRIu64 " bytes; the maximum is %d MiB",
                            made->record.bytes, TEXT_ROW_BYTES_MAX >> 20);
    }
    return core_err_set(-E2BIG,
                        "the row has %" PRIu64
                        " bytes, but the text of a row may take at most %" PRIu64
                        " bytes, half of --data-memory; raise --data-memory",
                        made->record.bytes, memory->line_bytes);
}

/* Unless `alone`, a row that needs much memory is postponed. */
static void encode_item(struct text_group *group, size_t index, unsigned thread, bool alone)
{
    struct item *item = &group->items[index];
    struct text_made *made = &item->made;
    made->rc = made->record.text == NULL ? refuse_length(group, made)
                                         : make_small(group, made, thread);
    item->waits = made->rc == 1 && !alone;
    if (made->rc == 1 && alone) {
        made->rc = make_large(group, made);
    }
    if (item->made.rc != 0) {
        snprintf(item->message, sizeof item->message, "%s", core_err_message());
    }
}

static void encode_rows(void *argument, unsigned thread, unsigned count)
{
    (void)count;
    size_t index;
    struct text_group *group = argument;
    while ((index = atomic_fetch_add_explicit(&group->to, 1, memory_order_relaxed)) <
           group->count) {
        encode_item(group, index, thread, false);
    }
}

/* Encodes on this thread until the encoders are loaded, then on all threads. */
static void encode_group(struct text_group *group)
{
    size_t index = 0;
    while (index < group->count && group->team == NULL) {
        encode_item(group, index, 0, true);
        index += group->items[index].made.broken ? group->count : 1;
    }
    if (index < group->count) {
        /* core_team_run() makes this visible to the other threads. */
        atomic_store_explicit(&group->to, index, memory_order_relaxed);
        core_team_run(group->team, encode_rows, group);
    }
    for (; index < group->count && group->team != NULL; index++) {
        if (group->items[index].waits) {
            encode_item(group, index, 0, true);
        }
    }
}

int text_group_next(struct text_group *group, struct text_records *records,
                    const struct text_made **out)
{
    if (group->at == group->count && !group->ended) {
        read_rows(group, records);
        encode_group(group);
    }
    if (group->at < group->count) {
        *out = &group->items[group->at++].made;
        return 1;
    }
    group->ended = false; /* a seek may follow */
    return group->end < 0 ? core_err_adopt(group->end, group->end_message) : 0;
}
