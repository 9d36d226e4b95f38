/* files_read.c: from tensors in files to flat arrays in memory. */
#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/team.h"
#include "offload/model/files_part.h"

/* What is read of one tensor: elements [begin, end) of the part, in the order that the flat array
 * has, to `to`. */
struct piece {
    const struct model_safetensors *shard;
    const struct model_tensor *tensor;
    int64_t rows; /* of the part, in the flat array */
    int64_t cols;
    uint64_t begin;
    uint64_t end;
    enum model_dtype type;
    char *to;
    char *buffer; /* MODEL_FILES_BUFFER_BYTES */
};

/* The file has the same order: straight to the destination, or converted a buffer at a time. */
static int read_straight(const struct piece *piece)
{
    const struct model_tensor *tensor = piece->tensor;
    const size_t from_bytes = model_dtype_bytes(tensor->dtype);
    const size_t to_bytes = model_dtype_bytes(piece->type);
    if (tensor->dtype == piece->type) {
        return model_safetensors_read(piece->shard, tensor, piece->begin * from_bytes, piece->to,
                                      (size_t)(piece->end - piece->begin) * from_bytes);
    }
    const uint64_t most = MODEL_FILES_BUFFER_BYTES / from_bytes;
    char *to = piece->to;
    for (uint64_t at = piece->begin; at < piece->end;) {
        const uint64_t left = piece->end - at;
        const size_t count = (size_t)(left < most ? left : most);
        int rc = model_safetensors_read(piece->shard, tensor, at * from_bytes, piece->buffer,
                                        count * from_bytes);
        if (rc != 0) {
            return rc;
        }
        model_convert(to, piece->type, piece->buffer, tensor->dtype, count);
        to += count * to_bytes;
        at += count;
    }
    return 0;
}

/* Columns [first, first + count) of rows [begin, end) of the flat array, from `count` lines of the
 * file that stand in `from`. A block of rows at a time, so that lines of `from` are met again while
 * they are in the cache. */
struct strip {
    const struct piece *piece;
    const char *from; /* converted */
    int64_t first;
    int64_t count;
    int64_t begin;
    int64_t end;
};

#define TURN(name, type)                                                                           \
    static void name(const struct strip *strip)                                                    \
    {                                                                                              \
        const int64_t rows = strip->piece->rows;                                                   \
        const int64_t cols = strip->piece->cols;                                                   \
        const type *from = (const type *)(const void *)strip->from;                                \
        type *to = (type *)(void *)strip->piece->to;                                               \
        for (int64_t block = strip->begin; block < strip->end; block += ROWS_TOGETHER) {           \
            int64_t end = block + ROWS_TOGETHER < strip->end ? block + ROWS_TOGETHER : strip->end; \
            for (int64_t row = block; row < end; row++) {                                          \
                type *line = to + (row - strip->begin) * cols + strip->first;                      \
                for (int64_t i = 0; i < strip->count; i++) {                                       \
                    line[i] = from[i * rows + row];                                                \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }

enum { ROWS_TOGETHER = 16 };
TURN(turn16, uint16_t)
TURN(turn32, uint32_t)

/* The file holds [cols][rows]: strips of its lines become columns of whole rows. */
static int read_turned(const struct piece *piece)
{
    const enum model_dtype from = piece->tensor->dtype;
    const size_t from_bytes = model_dtype_bytes(from);
    const size_t to_bytes = model_dtype_bytes(piece->type);
    const size_t line_bytes = (size_t)piece->rows * (from_bytes + to_bytes);
    const int64_t most = (int64_t)(MODEL_FILES_BUFFER_BYTES / line_bytes);
    if (most == 0) {
        return core_err_set(-EINVAL, "%s: tensor %s has lines of %zu bytes; they are too long",
                            model_safetensors_path(piece->shard), piece->tensor->name,
                            (size_t)piece->rows * from_bytes);
    }
    char *turned = piece->buffer;
    char *raw = piece->buffer + (size_t)(most * piece->rows) * to_bytes;
    struct strip strip = {.piece = piece,
                          .from = turned,
                          .begin = (int64_t)(piece->begin / (uint64_t)piece->cols),
                          .end = (int64_t)(piece->end / (uint64_t)piece->cols)};
    for (strip.first = 0; strip.first < piece->cols; strip.first += most) {
        const int64_t left = piece->cols - strip.first;
        strip.count = left < most ? left : most;
        const size_t elements = (size_t)(strip.count * piece->rows);
        int rc = model_safetensors_read(piece->shard, piece->tensor,
                                        (uint64_t)strip.first * (uint64_t)piece->rows * from_bytes,
                                        raw, elements * from_bytes);
        if (rc != 0) {
            return rc;
        }
        model_convert(turned, piece->type, raw, from, elements);
        if (to_bytes == 2) {
            turn16(&strip);
        } else {
            turn32(&strip);
        }
    }
    return 0;
}

/* A range that does not begin or end with a row: its rows are read whole and cut. */
static int read_transposed(const struct piece *piece)
{
    const uint64_t cols = (uint64_t)piece->cols;
    const size_t bytes = model_dtype_bytes(piece->type);
    struct piece whole = *piece;
    whole.begin = piece->begin / cols * cols;
    whole.end = (piece->end + cols - 1) / cols * cols;
    if (whole.begin == piece->begin && whole.end == piece->end) {
        return read_turned(piece);
    }
    whole.to = malloc((size_t)(whole.end - whole.begin) * bytes);
    if (whole.to == NULL) {
        return core_err_set(-ENOMEM, "no memory for %zu rows of tensor %s",
                            (size_t)((whole.end - whole.begin) / cols), piece->tensor->name);
    }
    int rc = read_turned(&whole);
    if (rc == 0) {
        memcpy(piece->to, whole.to + (piece->begin - whole.begin) * bytes,
               (size_t)(piece->end - piece->begin) * bytes);
    }
    free(whole.to);
    return rc;
}

/* Part of a block's range that lies in one part of one parameter. */
static int read_part(const struct model_files *files, const struct model_param *param,
                     const struct model_part *part, uint64_t begin, uint64_t end,
                     struct piece *piece)
{
    const uint64_t first = param->offset + (uint64_t)part->first_row * (uint64_t)param->cols;
    const uint64_t last = first + (uint64_t)part->rows * (uint64_t)param->cols;
    if (end <= first || begin >= last) {
        return 0;
    }
    const uint64_t from = begin > first ? begin : first;
    struct piece one = *piece;
    one.tensor = model_files_part(files, part->name, &one.shard);
    if (one.tensor == NULL) {
        return core_err_set(-EINVAL, "the folder has no tensor %s", part->name);
    }
    one.rows = part->rows;
    one.cols = param->cols;
    one.begin = from - first;
    one.end = (end < last ? end : last) - first;
    one.to += (from - begin) * model_dtype_bytes(one.type);
    return param->transposed ? read_transposed(&one) : read_straight(&one);
}

/* Zeros what no parameter covers of [begin, end). */
static void zero_padding(const struct model_block *block, uint64_t begin, uint64_t end,
                         const struct piece *piece)
{
    const size_t bytes = model_dtype_bytes(piece->type);
    for (unsigned i = 0; i < block->param_count; i++) {
        const struct model_param *param = &block->params[i];
        uint64_t from = param->offset + param->elements;
        uint64_t to = (from + MODEL_ALIGN_ELEMENTS - 1) / MODEL_ALIGN_ELEMENTS *
                      MODEL_ALIGN_ELEMENTS;
        from = from > begin ? from : begin;
        to = to < end ? to : end;
        if (param->part_count > 0 && from < to) {
            memset(piece->to + (from - begin) * bytes, 0, (size_t)(to - from) * bytes);
        }
    }
}

static int read_range(const struct model_files *files, const struct model_block *block,
                      uint64_t begin, uint64_t end, struct piece *piece)
{
    for (unsigned i = 0; i < block->param_count; i++) {
        const struct model_param *param = &block->params[i];
        for (unsigned j = 0; j < param->part_count; j++) {
            int rc = read_part(files, param, &param->parts[j], begin, end, piece);
            if (rc != 0) {
                return rc;
            }
        }
    }
    zero_padding(block, begin, end, piece);
    return 0;
}

int model_files_read(const struct model_files *files, const struct model_block *block,
                     uint64_t begin, uint64_t count, enum model_dtype type, void *to)
{
    assert(begin <= block->elements && count <= block->elements - begin);
    struct piece piece = {.type = type, .to = to, .buffer = malloc(MODEL_FILES_BUFFER_BYTES)};
    if (piece.buffer == NULL) {
        return core_err_set(-ENOMEM, "no memory for a buffer of %d bytes",
                            MODEL_FILES_BUFFER_BYTES);
    }
    int rc = read_range(files, block, begin, begin + count, &piece);
    free(piece.buffer);
    return rc;
}

/* ---- with a team ---- */

enum { JOB_ELEMENTS = 2 << 20 };

struct job {
    const struct model_files *files;
    const struct model_block *block;
    enum model_dtype type;
    char *to;
    _Atomic uint64_t next;  /* element from which nobody reads yet; relaxed: only a counter */
    _Atomic int code;       /* the first failure; relaxed: the team's return orders `failed` */
    struct core_err failed; /* of the member that set `code` */
};

/* The end of the run of elements from `at` that one member reads: whole transposed parameters, for
 * they are read in strips over all of their rows. */
static uint64_t job_end(const struct model_block *block, uint64_t at)
{
    uint64_t end = at + JOB_ELEMENTS < block->elements ? at + JOB_ELEMENTS : block->elements;
    for (unsigned i = 0; i < block->param_count; i++) {
        const struct model_param *param = &block->params[i];
        if (param->transposed && param->offset < end && end < param->offset + param->elements) {
            end = param->offset > at ? param->offset : param->offset + param->elements;
        }
    }
    return end;
}

static void read_some(void *argument, unsigned index, unsigned count)
{
    (void)index;
    (void)count;
    struct job *job = argument;
    const size_t bytes = model_dtype_bytes(job->type);
    uint64_t at = atomic_load_explicit(&job->next, memory_order_relaxed);
    while (at < job->block->elements &&
           atomic_load_explicit(&job->code, memory_order_relaxed) == 0) {
        uint64_t end = job_end(job->block, at);
        if (!atomic_compare_exchange_weak_explicit(&job->next, &at, end, memory_order_relaxed,
                                                   memory_order_relaxed)) {
            continue;
        }
        int rc = model_files_read(job->files, job->block, at, end - at, job->type,
                                  job->to + at * bytes);
        int none = 0;
        if (rc != 0 && atomic_compare_exchange_strong_explicit(
                           &job->code, &none, rc, memory_order_relaxed, memory_order_relaxed)) {
            job->failed = core_err_keep(rc);
        }
        at = atomic_load_explicit(&job->next, memory_order_relaxed);
    }
}

int model_files_read_block(const struct model_files *files, const struct model_block *block,
                           enum model_dtype type, void *to, struct core_team *team)
{
    struct job job = {.files = files, .block = block, .type = type, .to = to};
    core_team_run(team, read_some, &job);
    return core_err_first(&job.failed, 0);
}
