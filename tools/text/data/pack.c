/* pack.c: cuts the documents of a window to seq_len and fits them into rows. */
#include "tools/text/data/pack.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "tools/text/data/array.h"

struct document {
    size_t begin; /* in the tokens of the window */
    size_t count;
    size_t row;
};

struct row {
    size_t room;    /* tokens that still fit */
    size_t arrived; /* index in `order` of the last document that changed `room` */
    size_t first;   /* index in `placed` of its first document */
    size_t count;
};

struct text_pack {
    struct text_pack_options options;
    struct text_sample tokens;  /* tokens of the window */
    struct document *documents; /* owned */
    size_t documents_count;
    size_t documents_room;
    struct row *rows; /* owned */
    size_t rows_count;
    /* owned, [documents_room]: sort keys, longest first; low half: the index */
    uint64_t *order;
    size_t *placed; /* owned, [documents_room]: documents by row */
    size_t *open;   /* owned, [documents_room]: rows with room */
    size_t samples; /* rows of the files */
    struct text_counts counts;
};

int text_pack_create(const struct text_pack_options *options, struct text_pack **out)
{
    struct text_pack *pack = core_charge_zeroed(1, sizeof *pack);
    if (pack == NULL) {
        return core_err_set(-ENOMEM, "no memory to pack rows");
    }
    pack->options = *options;
    *out = pack;
    return 0;
}

void text_pack_destroy(struct text_pack *pack)
{
    if (pack == NULL) {
        return;
    }
    text_sample_fini(&pack->tokens);
    core_charge_free(pack->documents);
    core_charge_free(pack->rows);
    core_charge_free(pack->order);
    core_charge_free(pack->placed);
    core_charge_free(pack->open);
    core_charge_free(pack);
}

/* The arrays share documents_room. */
static int reserve(struct text_pack *pack)
{
    const struct {
        void *array;
        size_t size;
    } arrays[] = {
        {&pack->documents, sizeof *pack->documents}, {&pack->rows, sizeof *pack->rows},
        {&pack->order, sizeof *pack->order},         {&pack->placed, sizeof *pack->placed},
        {&pack->open, sizeof *pack->open},
    };
    size_t room = 0;
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        room = pack->documents_room;
        int rc = array_reserve("documents to pack", arrays[i].array, &room,
                               pack->documents_count + 1, arrays[i].size);
        if (rc != 0) {
            return rc;
        }
    }
    pack->documents_room = room;
    return 0;
}

static int keep_document(struct text_pack *pack, const int32_t *ids, const int32_t *labels,
                         size_t count)
{
    int rc = reserve(pack);
    if (rc != 0) {
        return rc;
    }
    const size_t begin = pack->tokens.count;
    for (size_t i = 0; i < count; i++) {
        rc = text_sample_add(&pack->tokens, ids[i], i > 0 ? labels[i] : TEXT_IGNORED);
        if (rc != 0) {
            return rc;
        }
    }
    pack->documents[pack->documents_count++] = (struct document){begin, count, 0};
    return 0;
}

/* Drops a document without trained tokens. */
static int add_document(struct text_pack *pack, const int32_t *ids, const int32_t *labels,
                        size_t count)
{
    if (text_sample_targets(labels, count) == 0) {
        pack->counts.untrained++;
        return 0;
    }
    return keep_document(pack, ids, labels, count);
}

/* Nothing is trained on if the prompt fills seq_len. */
static int add_pair(struct text_pack *pack, const struct text_sample *sample)
{
    const size_t seq_len = (size_t)pack->options.seq_len;
    const size_t second = sample->rejected;
    const size_t rest = sample->count - second;
    const size_t chosen = second < seq_len ? second : seq_len;
    const size_t rejected = rest < seq_len ? rest : seq_len;
    const int32_t *ids = sample->ids;
    const int32_t *labels = sample->labels;
    assert(!pack->options.pack && !pack->options.split);
    pack->counts.cut += chosen < second || rejected < rest;
    pack->counts.cut_tokens += sample->count - chosen - rejected;
    if (text_sample_targets(labels, chosen) == 0 ||
        text_sample_targets(labels + second, rejected) == 0) {
        pack->counts.untrained++;
        return 0;
    }
    pack->counts.equal += chosen == rejected &&
                          memcmp(ids, ids + second, chosen * sizeof *ids) == 0;
    int rc = keep_document(pack, ids, labels, chosen);
    return rc == 0 ? keep_document(pack, ids + second, labels + second, rejected) : rc;
}

static int add_sample(struct text_pack *pack, const struct text_sample *sample)
{
    const size_t seq_len = (size_t)pack->options.seq_len;
    if (sample->rejected > 0) {
        return add_pair(pack, sample);
    }
    if (sample->count <= seq_len) {
        return add_document(pack, sample->ids, sample->labels, sample->count);
    }
    if (!pack->options.split) {
        pack->counts.cut++;
        pack->counts.cut_tokens += sample->count - seq_len;
        return add_document(pack, sample->ids, sample->labels, seq_len);
    }
    pack->counts.split++;
    for (size_t at = 0; at < sample->count; at += seq_len) {
        const size_t left = sample->count - at;
        int rc = add_document(pack, sample->ids + at, sample->labels + at,
                              left < seq_len ? left : seq_len);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static int compare_keys(const void *left, const void *right)
{
    const uint64_t a = *(const uint64_t *)left;
    const uint64_t b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* Returns an index in `open`, by best fit; `open_count`: none. */
static size_t find_open(const struct text_pack *pack, size_t open_count, size_t count)
{
    size_t best = open_count;
    for (size_t i = 0; i < open_count; i++) {
        const struct row *row = &pack->rows[pack->open[i]];
        const struct row *other = best < open_count ? &pack->rows[pack->open[best]] : NULL;
        if (row->room >= count && (other == NULL || row->room < other->room ||
                                   (row->room == other->room && row->arrived < other->arrived))) {
            best = i;
        }
    }
    return best;
}

static void choose_rows(struct text_pack *pack)
{
    size_t open_count = 0;
    for (size_t i = 0; i < pack->documents_count; i++) {
        struct document *document = &pack->documents[(uint32_t)pack->order[i]];
        const size_t at = find_open(pack, open_count, document->count);
        if (at == open_count) {
            pack->rows[pack->rows_count] = (struct row){.room = (size_t)pack->options.seq_len};
            pack->open[open_count++] = pack->rows_count++;
        }
        document->row = pack->open[at];
        struct row *row = &pack->rows[document->row];
        row->room -= document->count;
        row->arrived = i;
        row->count++;
        if (row->room == 0) {
            pack->open[at] = pack->open[--open_count];
        }
    }
}

/* Lists documents in the order of placement. */
static void list_documents(struct text_pack *pack)
{
    size_t first = 0;
    for (size_t i = 0; i < pack->rows_count; i++) {
        pack->rows[i].first = first;
        first += pack->rows[i].count;
        pack->rows[i].count = 0;
    }
    for (size_t i = 0; i < pack->documents_count; i++) {
        const size_t document = (uint32_t)pack->order[i];
        struct row *row = &pack->rows[pack->documents[document].row];
        pack->placed[row->first + row->count++] = document;
    }
}

void text_pack_clear(struct text_pack *pack)
{
    pack->samples = pack->tokens.count = pack->documents_count = pack->rows_count = 0;
}

int text_pack_add(struct text_pack *pack, struct text_reader *reader)
{
    const struct text_sample *sample;
    int rc = text_reader_next(reader, &sample);
    if (rc != 1) {
        return rc;
    }
    pack->samples++;
    rc = add_sample(pack, sample);
    return rc == 0 ? 1 : rc;
}

bool text_pack_is_full(const struct text_pack *pack)
{
    return pack->documents_count > 0 && (!pack->options.pack || pack->samples >= TEXT_WINDOW_ROWS ||
                                         pack->tokens.count >= TEXT_WINDOW_TOKENS);
}

void text_pack_arrange(struct text_pack *pack)
{
    for (size_t i = 0; i < pack->documents_count; i++) {
        pack->order[i] = (uint64_t)(UINT32_MAX - pack->documents[i].count) << 32 | i;
        pack->placed[i] = i;
        pack->rows[i] = (struct row){.first = i, .count = 1};
    }
    pack->rows_count = pack->documents_count;
    if (pack->options.pack && pack->documents_count > 1) {
        pack->rows_count = 0;
        qsort(pack->order, pack->documents_count, sizeof *pack->order, compare_keys);
        choose_rows(pack);
        list_documents(pack);
    }
}

int text_pack_fill(struct text_pack *pack, struct text_reader *reader)
{
    int rc = 1;
    text_pack_clear(pack);
    while (rc == 1 && !text_pack_is_full(pack)) {
        rc = text_pack_add(pack, reader);
    }
    if (rc < 0) {
        return rc;
    }
    text_pack_arrange(pack);
    return pack->documents_count > 0;
}

size_t text_pack_rows(const struct text_pack *pack)
{
    return pack->rows_count;
}

size_t text_pack_documents(const struct text_pack *pack, size_t row)
{
    return pack->rows[row].count;
}

struct text_document text_pack_document(const struct text_pack *pack, size_t row, size_t index)
{
    const struct document *document = &pack->documents[pack->placed[pack->rows[row].first + index]];
    return (struct text_document){.ids = pack->tokens.ids + document->begin,
                                  .labels = pack->tokens.labels + document->begin,
                                  .count = document->count};
}

void text_pack_count(const struct text_pack *pack, struct text_counts *counts)
{
    counts->cut = pack->counts.cut;
    counts->cut_tokens = pack->counts.cut_tokens;
    counts->split = pack->counts.split;
    counts->untrained = pack->counts.untrained;
    counts->equal = pack->counts.equal;
}
