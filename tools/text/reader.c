/* reader.c: from record to sample. */
#include "tools/text/reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/hash.h"
#include "core/base/log.h"
#include "tools/text/encode.h"
#include "tools/text/row.h"

enum { WARNINGS_MAX = 10 }; /* then bad rows are only counted */

struct text_reader {
    const struct text_feed_options *options; /* borrowed from the caller of open */
    struct text_records *records;            /* owned */
    struct text_encoder *encoder;            /* owned; NULL until a row needs it */
    struct text_sample sample;
    bool broken; /* not this row alone */
    uint64_t rows;
    uint64_t bad;
};

int text_reader_open(const struct text_feed_options *options, struct text_reader **out)
{
    struct text_reader *reader = calloc(1, sizeof *reader);
    if (reader == NULL) {
        return core_err_set(-ENOMEM, "no memory to read data");
    }
    reader->options = options;
    const struct text_records_options records = {.paths = options->files,
                                                 .paths_count = options->files_count,
                                                 .seed = options->seed,
                                                 .shuffle = options->shuffle,
                                                 .again = options->epochs != 1,
                                                 .input = options->input};
    int code = text_records_open(&records, &reader->records);
    if (code != 0) {
        text_reader_close(reader);
        return code;
    }
    *out = reader;
    return 0;
}

void text_reader_close(struct text_reader *reader)
{
    if (reader != NULL) {
        text_records_close(reader->records);
        text_encoder_destroy(reader->encoder);
        text_sample_fini(&reader->sample);
        free(reader);
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
    return text_records_seek(reader->records, epoch, place);
}

struct text_place text_reader_place(const struct text_reader *reader)
{
    return text_records_place(reader->records);
}

double text_reader_part(const struct text_reader *reader)
{
    return text_records_part(reader->records);
}

const struct text_encoder *text_reader_encoder(const struct text_reader *reader)
{
    return reader->encoder;
}

uint64_t text_reader_rows(const struct text_reader *reader)
{
    return reader->rows;
}

uint64_t text_reader_bad(const struct text_reader *reader)
{
    return reader->bad;
}

/* What all rows of text need, loaded with the first of them. */
static int need_encoder(struct text_reader *reader)
{
    const struct text_feed_options *options = reader->options;
    int code = 0;
    if (reader->encoder == NULL) {
        code = options->model != NULL
                   ? text_encoder_create(options->model, options->chat_format, options->vocab,
                                         &reader->encoder)
                   : core_err_set(-ENOTSUP,
                                  "a row without input_ids needs a model folder (--model) with "
                                  "tokenizer.json");
        reader->broken = code != 0;
    }
    return code;
}

static int encode_row(struct text_reader *reader, const struct text_record *record)
{
    struct text_row row;
    int code = text_row_parse(record->text, record->bytes, &row);
    if (code != 0) {
        return code;
    }
    code = need_encoder(reader);
    code = code == 0 ? text_encoder_encode(reader->encoder, &row, reader->options->train_on,
                                           &reader->sample)
                     : code;
    text_row_fini(&row);
    return code;
}

static int make_sample(struct text_reader *reader, const struct text_record *record)
{
    struct text_sample *sample = &reader->sample;
    int code = text_sample_read(sample, record->text, record->bytes, reader->options->vocab);
    if (code < 0) {
        return code;
    }
    if (code == 0) {
        code = encode_row(reader, record);
        if (code != 0) {
            return code;
        }
    } else if (reader->options->train_on == TEXT_TRAIN_ALL) {
        memcpy(sample->labels, sample->ids, sample->count * sizeof *sample->ids);
    }
    return text_sample_targets(sample->labels, sample->count) > 0
               ? 0
               : core_err_set(-EINVAL, "nothing in the row is trained on (%zu tokens)",
                              sample->count);
}

/* A row that is wrong: 0 where it is skipped. */
static int judge(struct text_reader *reader, const struct text_record *record, int code)
{
    char name[TEXT_NAME_BYTES];
    const bool skips = reader->options->on_bad_row == TEXT_BAD_SKIP && code != -ENOMEM &&
                       code != -ENOTSUP && !reader->broken;
    reader->bad += skips;
    if (skips && reader->bad > WARNINGS_MAX) {
        return 0;
    }
    if (reader->broken) {
        return code;
    }
    core_err_prefix(code, "%s", text_records_name(reader->records, record, name));
    if (skips) {
        core_log(CORE_LOG_WARN, "skipped: %s%s", core_err_sentence(),
                 reader->bad == WARNINGS_MAX ? "; further ones are only counted" : "");
    }
    return skips ? 0 : code;
}

int text_reader_next(struct text_reader *reader, const struct text_sample **out)
{
    struct text_record record;
    for (;;) {
        int code = text_records_next(reader->records, &record);
        if (code != 1) {
            return code;
        }
        reader->rows++;
        code = make_sample(reader, &record);
        if (code == 0) {
            *out = &reader->sample;
            return 1;
        }
        code = judge(reader, &record, code);
        if (code != 0) {
            return code;
        }
    }
}
