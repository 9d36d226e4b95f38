/* reader.c: takes rows in their order and handles bad ones. */
#include "tools/text/data/reader.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "core/base/hash.h"
#include "core/base/log.h"
#include "tools/text/data/encode.h"
#include "tools/text/data/group.h"
#include "tools/text/data/memory.h"

enum { WARNINGS_MAX = 10 }; /* further bad rows are only counted */

struct text_reader {
    const struct text_feed_options *options; /* borrowed */
    struct text_records *records;            /* owned */
    struct text_group *group;                /* owned */
    struct text_place place;                 /* of the next row */
    uint64_t rows;
    uint64_t bad;
};

int text_reader_open(const struct text_feed_options *options, struct text_reader **out)
{
    struct text_reader *reader = core_charge_zeroed(1, sizeof *reader);
    if (reader == NULL) {
        return core_err_set(-ENOMEM, "no memory to read data");
    }
    reader->options = options;
    const struct text_records_options records = {
        .paths = options->files,
        .paths_count = options->files_count,
        .seed = options->seed,
        .shuffle = options->shuffle,
        .again = options->epochs != 1,
        .input = options->input,
        .row_bytes = options->memory != NULL ? options->memory->line_bytes : 0};
    int rc = text_records_open(&records, &reader->records);
    if (rc != 0 || (rc = text_group_create(options, &reader->group)) != 0) {
        text_reader_close(reader);
        return rc;
    }
    *out = reader;
    return 0;
}

void text_reader_close(struct text_reader *reader)
{
    if (reader != NULL) {
        text_group_destroy(reader->group);
        text_records_close(reader->records);
        core_charge_free(reader);
    }
}

uint64_t text_reader_mark(const struct text_reader *reader)
{
    const char *format = reader->options->chat_format != NULL ? reader->options->chat_format : "";
    return core_hash(format, strlen(format),
                     text_records_mark(reader->records) + reader->options->train_on);
}

int text_reader_seek(struct text_reader *reader, uint64_t epoch, struct text_place place)
{
    text_group_drop(reader->group);
    reader->place = place;
    return text_records_seek(reader->records, epoch, place);
}

struct text_place text_reader_place(const struct text_reader *reader)
{
    return reader->place;
}

double text_reader_part(const struct text_reader *reader)
{
    return text_records_part(reader->records);
}

const struct text_encoder *text_reader_encoder(const struct text_reader *reader)
{
    return text_group_encoder(reader->group);
}

uint64_t text_reader_rows(const struct text_reader *reader)
{
    return reader->rows;
}

uint64_t text_reader_bad(const struct text_reader *reader)
{
    return reader->bad;
}

bool text_reader_dated(const struct text_reader *reader)
{
    const struct text_encoder *encoder = text_group_encoder(reader->group);
    return encoder != NULL && text_encoder_dated(encoder);
}

/* The parser's "row:1:10" becomes "NAME:10". */
static void name_place(int rc, const char *message, const char *name)
{
    unsigned column = 0;
    int end = 0;
    if (sscanf(message, "row:1:%u: %n", &column, &end) == 1 && end > 0) {
        core_err_adopt(rc, message + end);
        core_err_prefix(rc, "%s:%u", name, column);
    } else {
        core_err_adopt(rc, message);
        core_err_prefix(rc, "%s", name);
    }
}

/* Returns 0 if the row is skipped, else its error. */
static int handle_bad_row(struct text_reader *reader, const struct text_made *made)
{
    char name[TEXT_NAME_BYTES];
    const int rc = made->rc;
    const bool skips = reader->options->on_bad_row == TEXT_BAD_SKIP && rc != -ENOMEM &&
                       rc != -ENOTSUP && !made->broken;
    reader->bad += skips;
    if (skips && reader->bad > WARNINGS_MAX) {
        return 0;
    }
    text_records_name(reader->records, &made->record, name);
    name_place(rc, made->message, name);
    if (skips) {
        core_log(CORE_LOG_WARN, "skipped: %s%s", core_err_message(),
                 reader->bad == WARNINGS_MAX ? "; further ones are only counted" : "");
    }
    return skips ? 0 : rc;
}

int text_reader_next(struct text_reader *reader, const struct text_sample **out)
{
    const struct text_made *made;
    for (;;) {
        int rc = text_group_next(reader->group, reader->records, &made);
        if (rc != 1) {
            reader->place = text_records_place(reader->records);
            return rc;
        }
        reader->rows++;
        reader->place = made->after;
        if (made->rc == 0) {
            *out = &made->sample;
            return 1;
        }
        rc = handle_bad_row(reader, made);
        if (rc != 0) {
            return rc;
        }
    }
}
