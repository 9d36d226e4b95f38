/* files_read.c: reads tensors into flat arrays. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/half.h"
#include "core/base/hash.h"
#include "core/base/size.h"
#include "core/base/team.h"
#include "offload/model/codes.h"
#include "offload/model/kept.h"

/* ---- checksums ---- */

struct part_sum {
    _Atomic uint64_t value; /* relaxed: used after the last addition */
};

struct model_sums {
    const struct model *model; /* borrowed */
    size_t count;
    size_t *first; /* owned, [blocks]: index of a block's first sum */
    /* owned, [count]: MODEL_PARTS_MAX per parameter of a frozen block */
    struct part_sum *list;
};

int model_sums_create(const struct model *model, struct model_sums **out)
{
    struct model_sums *sums = calloc(1, sizeof *sums);
    size_t count = 0;
    if (sums == NULL) {
        return core_err_set(-ENOMEM, "no memory for the sums of a base model");
    }
    sums->model = model;
    sums->first = calloc(model->block_count, sizeof *sums->first);
    for (unsigned b = 0; sums->first != NULL && b < model->block_count; b++) {
        sums->first[b] = count;
        count += model->blocks[b].trained ? 0 : model->blocks[b].param_count * MODEL_PARTS_MAX;
    }
    sums->count = count;
    sums->list = calloc(count > 0 ? count : 1, sizeof *sums->list);
    if (sums->first == NULL || sums->list == NULL) {
        model_sums_destroy(sums);
        return core_err_set(-ENOMEM, "no memory for the sums of a base model");
    }
    *out = sums;
    return 0;
}

void model_sums_destroy(struct model_sums *sums)
{
    if (sums == NULL) {
        return;
    }
    free(sums->first);
    free(sums->list);
    free(sums);
}

size_t model_sums_count(const struct model_sums *sums)
{
    return sums->count;
}

uint64_t model_sums_get(const struct model_sums *sums, size_t index)
{
    assert(index < sums->count);
    return atomic_load_explicit(&sums->list[index].value, memory_order_relaxed);
}

void model_sums_add(struct model_sums *sums, size_t index, uint64_t value)
{
    assert(index < sums->count);
    atomic_fetch_add_explicit(&sums->list[index].value, value, memory_order_relaxed);
}

void model_sums_add_part(struct model_sums *sums, const struct model_block *block, unsigned param,
                         unsigned part, uint64_t value)
{
    const size_t first = sums->first[block - sums->model->blocks];
    model_sums_add(sums, first + param * MODEL_PARTS_MAX + part, value);
}

static uint64_t identity_of(const struct model_files *files, const struct model_param *param,
                            unsigned index, const struct part_sum *sum)
{
    const struct model_part *part = &param->parts[index];
    const struct model_safetensors *shard = NULL;
    const struct model_tensor *tensor = model_files_part(files, part, &shard);
    const uint64_t numbers[] = {(uint64_t)part->rows, (uint64_t)param->cols,
                                tensor != NULL ? (uint64_t)tensor->dtype : 0,
                                atomic_load_explicit(&sum->value, memory_order_relaxed)};
    return core_hash(numbers, sizeof numbers, core_hash(part->name, strlen(part->name), 0));
}

uint64_t model_sums_identity(const struct model_sums *sums, const struct model_files *files)
{
    const struct model *model = sums->model;
    uint64_t identity = 0; /* a sum: the order of blocks does not matter */
    for (unsigned b = 0; b < model->block_count; b++) {
        const struct model_block *block = &model->blocks[b];
        const struct part_sum *list = &sums->list[sums->first[b]];
        for (unsigned i = 0; i < block->param_count && !block->trained; i++) {
            const struct model_param *param = &block->params[i];
            for (unsigned k = 0; k < param->part_count; k++) {
                identity += identity_of(files, param, k, &list[i * MODEL_PARTS_MAX + k]);
            }
        }
    }
    return identity;
}

/* Elements [begin, end) of a block's flat array. */
struct range {
    const struct model_files *files;
    const struct model_block *block;
    uint64_t begin;
    uint64_t end;
    struct model_sums *sums; /* NULL: none */
};

/* Reads elements [begin, end) of a tensor, in the flat array's order, to `to`. */
struct tensor_read {
    const struct model_safetensors *shard;
    const struct model_tensor *tensor;
    int64_t rows; /* rows of the part in the flat array */
    int64_t cols;
    uint64_t begin;
    uint64_t end;
    enum model_dtype type;
    char *to;
    char *buffer;   /* MODEL_FILES_BUFFER_BYTES */
    uint64_t first; /* element of the parameter where the part begins */
    uint64_t sum;   /* sum of the hashes of the elements read */
    bool sums;
};

/* Elements between two multiples of BLOCKS_ALIGN_ELEMENTS are hashed together, so that the sum does
 * not depend on how reads divide them. */
static void sum_elements(struct tensor_read *piece, const char *from, uint64_t at, uint64_t count)
{
    const size_t bytes = model_dtype_bytes(piece->tensor->dtype);
    const uint64_t end = at + count;
    while (piece->sums && at < end) {
        const uint64_t left = BLOCKS_ALIGN_ELEMENTS - (piece->first + at) % BLOCKS_ALIGN_ELEMENTS;
        const uint64_t next = left < end - at ? at + left : end;
        piece->sum += core_hash(from, (size_t)(next - at) * bytes, at);
        from += (next - at) * bytes;
        at = next;
    }
}

static uint64_t hash_element(uint64_t bits, uint64_t at)
{
    uint64_t x = (bits + 1) * UINT64_C(0x9e3779b97f4a7c15) + at;
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* For a tensor that is transposed in the file: adds the hashes of the piece's elements in columns
 * [first, first + count) of the part. */
static void sum_columns(struct tensor_read *piece, const char *from, int64_t first, int64_t count)
{
    const size_t bytes = model_dtype_bytes(piece->tensor->dtype);
    const int64_t begin = (int64_t)piece->begin;
    const int64_t end = (int64_t)piece->end;
    for (int64_t col = first; piece->sums && col < first + count; col++) {
        const int64_t low = begin > col ? (begin - col + piece->cols - 1) / piece->cols : 0;
        const int64_t high = end > col ? (end - col + piece->cols - 1) / piece->cols : 0;
        for (int64_t row = low; row < high; row++) {
            uint32_t bits = 0;
            memcpy(&bits, from + (size_t)((col - first) * piece->rows + row) * bytes, bytes);
            piece->sum += hash_element(bits, (uint64_t)(row * piece->cols + col));
        }
    }
}

static void fill_adapter(const struct tensor_read *piece, const struct model_param *param,
                         const struct model_part *part)
{
    const uint64_t most = MODEL_FILES_BUFFER_BYTES / sizeof(float);
    char *to = piece->to;
    for (uint64_t at = piece->begin; at < piece->end;) {
        const uint64_t left = piece->end - at;
        const size_t count = (size_t)(left < most ? left : most);
        model_adapter_fill(param->adapter, part->name, param->cols, param->seed, at, count,
                           (float *)(void *)piece->buffer);
        model_convert(to, piece->type, piece->buffer, MODEL_F32, count);
        to += count * model_dtype_bytes(piece->type);
        at += count;
    }
}

/* Reads a tensor that has the same order in file and memory. */
static int read_straight(struct tensor_read *piece)
{
    const struct model_tensor *tensor = piece->tensor;
    const size_t from_bytes = model_dtype_bytes(tensor->dtype);
    const size_t to_bytes = model_dtype_bytes(piece->type);
    if (tensor->dtype == piece->type) {
        int rc = model_safetensors_read(piece->shard, tensor, piece->begin * from_bytes, piece->to,
                                        (size_t)(piece->end - piece->begin) * from_bytes);
        if (rc == 0) {
            sum_elements(piece, piece->to, piece->begin, piece->end - piece->begin);
        }
        return rc;
    }
    const uint64_t most = MODEL_FILES_BUFFER_BYTES / from_bytes;
    char *to = piece->to;
    for (uint64_t at = piece->begin; at < piece->end;) {
        const uint64_t left = piece->end - at;
        const uint64_t whole = most - (piece->first + at) % BLOCKS_ALIGN_ELEMENTS;
        const size_t count = (size_t)(left < whole ? left : whole);
        int rc = model_safetensors_read(piece->shard, tensor, at * from_bytes, piece->buffer,
                                        count * from_bytes);
        if (rc != 0) {
            return rc;
        }
        sum_elements(piece, piece->buffer, at, count);
        model_convert(to, piece->type, piece->buffer, tensor->dtype, count);
        to += count * to_bytes;
        at += count;
    }
    return 0;
}

/* Some columns of the piece, which are lines of the file. Rows are written in groups, while `from`
 * is in the cache. */
struct strip {
    const struct tensor_read *piece;
    const char *from; /* converted */
    int64_t first;
    int64_t count;
};

static void strip_columns(const struct strip *strip, int64_t row, int64_t *begin, int64_t *end)
{
    const int64_t cols = strip->piece->cols;
    const int64_t low = (int64_t)strip->piece->begin - row * cols;
    const int64_t high = (int64_t)strip->piece->end - row * cols;
    const int64_t last = strip->first + strip->count;
    *begin = low > strip->first ? low : strip->first;
    *end = high < last ? high : last;
}

#define TURN(name, type)                                                                           \
    static void name(const struct strip *strip, int64_t row_begin, int64_t row_end)                \
    {                                                                                              \
        const struct tensor_read *piece = strip->piece;                                            \
        const type *from = (const type *)(const void *)strip->from;                                \
        type *to = (type *)(void *)piece->to;                                                      \
        for (int64_t block = row_begin; block < row_end; block += ROWS_TOGETHER) {                 \
            int64_t end = block + ROWS_TOGETHER < row_end ? block + ROWS_TOGETHER : row_end;       \
            for (int64_t row = block; row < end; row++) {                                          \
                int64_t col;                                                                       \
                int64_t col_end;                                                                   \
                strip_columns(strip, row, &col, &col_end);                                         \
                int64_t at = row * piece->cols + col - (int64_t)piece->begin;                      \
                for (; col < col_end; col++, at++) {                                               \
                    to[at] = from[(col - strip->first) * piece->rows + row];                       \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }

enum { ROWS_TOGETHER = 16 };
TURN(turn16, uint16_t)
TURN(turn32, uint32_t)

/* Reads a tensor that the file has as [cols][rows]. */
static int read_turned(struct tensor_read *piece)
{
    const enum model_dtype from = piece->tensor->dtype;
    const size_t from_bytes = model_dtype_bytes(from);
    const size_t to_bytes = model_dtype_bytes(piece->type);
    const size_t line_bytes = (size_t)piece->rows * (from_bytes + to_bytes);
    const int64_t most = (int64_t)(MODEL_FILES_BUFFER_BYTES / line_bytes);
    if (most == 0) {
        return core_err_set(-EINVAL, "%s: tensor %s has rows of %zu bytes, which is too long",
                            model_safetensors_path(piece->shard), piece->tensor->name,
                            (size_t)piece->rows * from_bytes);
    }
    char *turned = piece->buffer;
    char *raw = piece->buffer + (size_t)(most * piece->rows) * to_bytes;
    struct strip strip = {.piece = piece, .from = turned};
    const int64_t row_begin = (int64_t)piece->begin / piece->cols;
    const int64_t row_end = ((int64_t)piece->end + piece->cols - 1) / piece->cols;
    for (strip.first = 0; strip.first < piece->cols; strip.first += most) {
        const int64_t left = piece->cols - strip.first;
        strip.count = left < most ? left : most;
        const size_t elements = (size_t)(strip.count * piece->rows);
        const uint64_t at = (uint64_t)strip.first * (uint64_t)piece->rows * from_bytes;
        model_safetensors_expect(piece->shard, piece->tensor, at, elements * from_bytes);
        int rc = model_safetensors_read(piece->shard, piece->tensor, at, raw,
                                        elements * from_bytes);
        if (rc != 0) {
            return rc;
        }
        sum_columns(piece, raw, strip.first, strip.count);
        model_convert(turned, piece->type, raw, from, elements);
        if (to_bytes == 2) {
            turn16(&strip, row_begin, row_end);
        } else {
            turn32(&strip, row_begin, row_end);
        }
    }
    return 0;
}

/* ---- magnitudes of adapters ---- */

/* A tensor whose rows have magnitudes. */
struct normed {
    struct tensor_read from;
    bool transposed;
    enum kern_type type;   /* weights are rounded to this type */
    enum kern_quant quant; /* form of the rounded weights */
    struct kern_quant_layout layout;
    uint64_t most;   /* rows in memory at a time: a multiple of KERN_NF4_BLOCK */
    float *rows;     /* owned, like the pointers below */
    float *norms;    /* [most] */
    float *scales;   /* NULL: not quantised */
    uint8_t *stored; /* NULL: not quantised */
};

static void round_to(enum kern_type type, float *values, uint64_t count)
{
    for (uint64_t i = 0; type != KERN_F32 && i < count; i++) {
        values[i] = type == KERN_BF16 ? core_bf16_to_f32(core_f32_to_bf16(values[i]))
                                      : core_fp16_to_f32(core_f32_to_fp16(values[i]));
    }
}

/* Reads rows as they are before quantisation. */
static int read_rows(struct normed *normed, uint64_t at, uint64_t count)
{
    struct tensor_read *from = &normed->from;
    from->begin = at * (uint64_t)from->cols;
    from->end = (at + count) * (uint64_t)from->cols;
    const int rc = normed->transposed ? read_turned(from) : read_straight(from);
    if (rc == 0) {
        round_to(normed->type, normed->rows, count * (uint64_t)from->cols);
    }
    return rc;
}

static enum kern_quant kept_as(const struct model_files *files, const struct model_tensor *tensor)
{
    const struct model_files_base base = model_files_base_of(files);
    return base.given && tensor->dtype != MODEL_OTHER ? KERN_QUANT_NONE : base.quant;
}

static int open_normed(const struct range *range, const struct tensor_read *piece,
                       const struct model_param *param, const struct model_part *part,
                       struct normed *out)
{
    const struct model_block *block = range->block;
    const struct model_param *base = &block->params[model_block_param(block, param->role)];
    const uint64_t bytes = (uint64_t)base->cols * sizeof(float);
    char name[BLOCKS_NAME_BYTES_MAX + 1];
    model_adapter_base_name(part->name, name, sizeof name);
    const struct model_part named = {.name = name};
    *out = (struct normed){.transposed = base->transposed,
                           .type = model_files_base_of(range->files).type,
                           .most = (MODEL_FILES_BUFFER_BYTES / bytes / KERN_NF4_BLOCK + 1) *
                                   KERN_NF4_BLOCK};
    out->from = (struct tensor_read){
        .rows = part->rows, .cols = base->cols, .type = MODEL_F32, .buffer = piece->buffer};
    out->from.tensor = model_files_part(range->files, &named, &out->from.shard);
    if (out->from.tensor == NULL) {
        return core_err_set(-EINVAL, "the folder has no tensor %s", name);
    }
    out->quant = kept_as(range->files, out->from.tensor);
    const bool quantised = out->quant != KERN_QUANT_NONE;
    out->layout = kern_quant_layout_of(out->quant, out->type, part->rows, base->cols);
    out->rows = malloc(out->most * bytes);
    out->norms = malloc(out->most * sizeof *out->norms);
    out->scales = quantised ? malloc(((size_t)out->layout.scale_count + 1) * sizeof(float)) : NULL;
    out->stored = quantised ? malloc(out->layout.bytes) : NULL;
    out->from.to = (char *)out->rows;
    if (out->rows == NULL || out->norms == NULL ||
        (quantised && (out->scales == NULL || out->stored == NULL))) {
        return core_err_set(-ENOMEM, "no memory for the norms of %s", name);
    }
    return 0;
}

static void close_normed(struct normed *normed)
{
    free(normed->rows);
    free(normed->norms);
    free(normed->scales);
    free(normed->stored);
}

/* Stores the whole tensor, because its scales may be stored relative to each other. */
static int store_normed(struct normed *normed)
{
    const int64_t cols = normed->from.cols;
    const uint64_t rows = (uint64_t)normed->from.rows;
    const enum kern_quant quant = normed->quant;
    const int64_t grain = kern_quant_grain(quant, cols);
    int rc = 0;
    for (uint64_t at = 0; rc == 0 && at < rows; at += normed->most) {
        const uint64_t count = rows - at < normed->most ? rows - at : normed->most;
        const int64_t first = (int64_t)at * cols;
        uint8_t *codes = normed->stored + (kern_quant_is_nf4(quant) ? first / 2 : first);
        rc = read_rows(normed, at, count);
        if (rc == 0) { /* loading the base reports bad weights */
            (void)kern_quant_encode(quant, cols, normed->rows, (int64_t)count * cols, codes,
                                    normed->scales + first / grain);
        }
    }
    if (rc == 0) {
        kern_quant_encode_scales(quant, &normed->layout, normed->scales,
                                 normed->stored + normed->layout.scales);
    }
    return rc;
}

static int copy_stored(const struct range *range, const char *name, struct normed *normed)
{
    const struct model_codes codes = {.files = range->files,
                                      .name = name,
                                      .quant = normed->quant,
                                      .rows = normed->from.rows,
                                      .cols = normed->from.cols};
    const int rc = model_codes_read(&codes, 0, normed->layout.codes_bytes, normed->stored);
    return rc == 0 ? model_codes_read_scales(&codes, normed->stored + normed->layout.scales) : rc;
}

/* Returns false if the tensor cannot be read from a kept base. */
static bool read_stored(const struct range *range, const char *name, struct normed *normed)
{
    struct model_kept *kept = model_files_kept(range->files);
    return kept != NULL && model_kept_read_tensor(kept, name, normed->stored) == 0;
}

static int find_norms(struct normed *normed, uint64_t at, uint64_t count)
{
    const uint64_t cols = (uint64_t)normed->from.cols;
    int rc = 0;
    if (normed->stored != NULL) {
        kern_quant_decode(normed->quant, &normed->layout, normed->from.cols, normed->stored,
                          (int64_t)(at * cols), (int64_t)(count * cols), normed->rows);
        round_to(normed->type, normed->rows, count * cols);
    } else {
        rc = read_rows(normed, at, count);
    }
    for (uint64_t i = 0; rc == 0 && i < count; i++) {
        double squares = 0.0;
        for (uint64_t k = i * cols; k < (i + 1) * cols; k++) {
            squares += (double)normed->rows[k] * (double)normed->rows[k];
        }
        normed->norms[i] = (float)sqrt(squares);
    }
    return rc;
}

/* As in PEFT, magnitudes are the norms of the rows that compute gets. */
static int fill_magnitudes(const struct range *range, const struct tensor_read *piece,
                           const struct model_param *param, const struct model_part *part)
{
    struct normed normed;
    char name[BLOCKS_NAME_BYTES_MAX + 1];
    int rc = open_normed(range, piece, param, part, &normed);
    model_adapter_base_name(part->name, name, sizeof name);
    if (rc == 0 && normed.stored != NULL && !read_stored(range, name, &normed)) {
        rc = normed.from.tensor->dtype == MODEL_OTHER ? copy_stored(range, name, &normed)
                                                      : store_normed(&normed);
    }
    for (uint64_t at = piece->begin; rc == 0 && at < piece->end; at += normed.most) {
        const uint64_t count = piece->end - at < normed.most ? piece->end - at : normed.most;
        rc = find_norms(&normed, at, count);
        if (rc == 0) {
            model_convert(piece->to + (at - piece->begin) * model_dtype_bytes(piece->type),
                          piece->type, normed.norms, MODEL_F32, count);
        }
    }
    close_normed(&normed);
    return rc;
}

static bool is_finite(enum model_dtype type, const char *at)
{
    uint32_t wide;
    uint16_t narrow;
    if (type == MODEL_F32) {
        memcpy(&wide, at, sizeof wide);
        return (wide & 0x7f800000U) != 0x7f800000U;
    }
    const uint16_t exponent = type == MODEL_BF16 ? 0x7f80 : 0x7c00;
    memcpy(&narrow, at, sizeof narrow);
    return (narrow & exponent) != exponent;
}

/* Refuses values that are not finite. */
static int check_adapter(const struct tensor_read *piece)
{
    const size_t bytes = model_dtype_bytes(piece->type);
    for (uint64_t i = 0; i < piece->end - piece->begin; i++) {
        if (!is_finite(piece->type, piece->to + i * bytes)) {
            return core_err_set(-EINVAL, "%s: element %" PRIu64 " of tensor %s is not finite",
                                model_safetensors_path(piece->shard), piece->begin + i,
                                piece->tensor->name);
        }
    }
    return 0;
}

/* *out may be empty. out->tensor is NULL for an adapter that is in no folder. */
static int find_piece(const struct range *range, const struct model_param *param,
                      const struct model_part *part, struct tensor_read *out)
{
    const uint64_t first = param->offset + (uint64_t)part->first_row * (uint64_t)param->cols;
    const uint64_t last = first + (uint64_t)part->rows * (uint64_t)param->cols;
    *out = (struct tensor_read){.rows = part->rows,
                                .cols = param->cols,
                                .first = first - param->offset,
                                .sums = range->sums != NULL && !range->block->trained};
    if (range->end <= first || range->begin >= last) {
        return 0;
    }
    out->tensor = model_files_part(range->files, part, &out->shard);
    if (out->tensor == NULL && param->adapter == MODEL_ADAPTER_NONE) {
        return core_err_set(-EINVAL, "the folder has no tensor %s", part->name);
    }
    if (out->tensor != NULL && out->tensor->dtype == MODEL_OTHER) {
        return core_err_set(-ENOTSUP, "tensor %s is quantised: its weights cannot be read",
                            part->name);
    }
    out->begin = (range->begin > first ? range->begin : first) - first;
    out->end = (range->end < last ? range->end : last) - first;
    return 0;
}

static void zero_padding(const struct range *range, char *to, size_t bytes)
{
    for (unsigned i = 0; i < range->block->param_count; i++) {
        const struct model_param *param = &range->block->params[i];
        uint64_t from = param->offset + param->elements;
        uint64_t end = core_round_up(from, BLOCKS_ALIGN_ELEMENTS);
        from = from > range->begin ? from : range->begin;
        end = end < range->end ? end : range->end;
        if (param->part_count > 0 && from < end) {
            memset(to + (from - range->begin) * bytes, 0, (size_t)(end - from) * bytes);
        }
    }
}

/* Starts readahead, except of transposed tensors, whose strips start their own. Errors are left to
 * the read. */
static void expect_range(const struct range *range)
{
    const struct model_block *block = range->block;
    for (unsigned i = 0; i < block->param_count && range->begin < range->end; i++) {
        const struct model_param *param = &block->params[i];
        for (unsigned j = 0; j < param->part_count && !param->transposed; j++) {
            struct tensor_read piece;
            if (find_piece(range, param, &param->parts[j], &piece) == 0 && piece.tensor != NULL) {
                const size_t bytes = model_dtype_bytes(piece.tensor->dtype);
                model_safetensors_expect(piece.shard, piece.tensor, piece.begin * bytes,
                                         (size_t)(piece.end - piece.begin) * bytes);
            }
        }
    }
}

static int read_range(const struct range *range, enum model_dtype type, char *to, char *buffer)
{
    const struct model_block *block = range->block;
    const size_t bytes = model_dtype_bytes(type);
    for (unsigned i = 0; i < block->param_count; i++) {
        const struct model_param *param = &block->params[i];
        for (unsigned j = 0; j < param->part_count; j++) {
            const struct model_part *part = &param->parts[j];
            struct tensor_read piece;
            int rc = find_piece(range, param, part, &piece);
            if (rc == 0 && piece.begin < piece.end) {
                const uint64_t first = param->offset +
                                       (uint64_t)part->first_row * (uint64_t)param->cols;
                piece.type = type;
                piece.to = to + (first + piece.begin - range->begin) * bytes;
                piece.buffer = buffer;
                if (piece.tensor == NULL && param->adapter == MODEL_ADAPTER_MAGNITUDE) {
                    rc = fill_magnitudes(range, &piece, param, part);
                } else if (piece.tensor == NULL) {
                    fill_adapter(&piece, param, part);
                } else {
                    rc = param->transposed ? read_turned(&piece) : read_straight(&piece);
                    if (rc == 0 && param->adapter != MODEL_ADAPTER_NONE) {
                        rc = check_adapter(&piece);
                    }
                    if (piece.sums) {
                        model_sums_add_part(range->sums, block, i, j, piece.sum);
                    }
                }
            }
            if (rc != 0) {
                return rc;
            }
        }
    }
    zero_padding(range, to, bytes);
    return 0;
}

enum { RUN_ELEMENTS = 2 << 20 };

/* Returns where a run of elements from `at` on ends. Runs do not divide transposed parameters,
 * because their strips cover all rows. */
static uint64_t run_end(const struct model_block *block, uint64_t at, uint64_t most)
{
    const uint64_t far = at + RUN_ELEMENTS - at % BLOCKS_ALIGN_ELEMENTS;
    uint64_t end = far < most ? far : most;
    for (unsigned i = 0; i < block->param_count; i++) {
        const struct model_param *param = &block->params[i];
        if (param->transposed && param->offset < end && end < param->offset + param->elements) {
            end = param->offset > at ? param->offset : param->offset + param->elements;
        }
    }
    return end < most ? end : most;
}

void model_files_expect(const struct model_files *files, const struct model_block *block,
                        uint64_t begin, uint64_t count)
{
    assert(begin <= block->elements && count <= block->elements - begin);
    const struct range range = {files, block, begin, begin + count, NULL};
    expect_range(&range);
}

/* Returns whether a read with checksums may begin or end at this element. */
static bool may_cut(const struct model_block *block, uint64_t at)
{
    bool may = at % BLOCKS_ALIGN_ELEMENTS == 0 || at == block->elements;
    for (unsigned i = 0; !may && i < block->param_count; i++) {
        const struct model_param *param = &block->params[i];
        for (unsigned j = 0; !may && j < param->part_count; j++) {
            const uint64_t first = param->offset +
                                   (uint64_t)(param->parts[j].first_row * param->cols);
            may = at == first || at == first + (uint64_t)(param->parts[j].rows * param->cols);
        }
    }
    return may;
}

int model_files_read(const struct model_files *files, const struct model_block *block,
                     uint64_t begin, uint64_t count, enum model_dtype type, void *to,
                     struct model_sums *sums)
{
    assert(begin <= block->elements && count <= block->elements - begin);
    assert(sums == NULL || block->trained ||
           (may_cut(block, begin) && may_cut(block, begin + count)));
    char *buffer = malloc(MODEL_FILES_BUFFER_BYTES);
    if (buffer == NULL) {
        return core_err_set(-ENOMEM, "no memory for a buffer of %d bytes",
                            MODEL_FILES_BUFFER_BYTES);
    }
    const uint64_t end = begin + count;
    struct range range = {files, block, begin, run_end(block, begin, end), sums};
    expect_range(&range);
    int rc = 0;
    while (rc == 0 && range.begin < end) {
        const struct range next = {files, block, range.end, run_end(block, range.end, end), sums};
        expect_range(&next);
        rc = read_range(&range, type, (char *)to + (range.begin - begin) * model_dtype_bytes(type),
                        buffer);
        range = next;
    }
    free(buffer);
    return rc;
}

/* ---- reading a block with a team ---- */

struct job {
    const struct model_files *files;
    const struct model_block *block;
    enum model_dtype type;
    char *to;
    struct model_sums *sums;
    _Atomic uint64_t next;  /* first free element; relaxed: only a counter */
    _Atomic int code;       /* the first error; relaxed: the team's return orders `failed` */
    struct core_err failed; /* error of the member that set `code` */
};

static void read_some(void *argument, unsigned index, unsigned count)
{
    (void)index;
    (void)count;
    struct job *job = argument;
    const size_t bytes = model_dtype_bytes(job->type);
    uint64_t at = atomic_load_explicit(&job->next, memory_order_relaxed);
    while (at < job->block->elements &&
           atomic_load_explicit(&job->code, memory_order_relaxed) == 0) {
        uint64_t end = run_end(job->block, at, job->block->elements);
        if (!atomic_compare_exchange_weak_explicit(&job->next, &at, end, memory_order_relaxed,
                                                   memory_order_relaxed)) {
            continue;
        }
        int rc = model_files_read(job->files, job->block, at, end - at, job->type,
                                  job->to + at * bytes, job->sums);
        int none = 0;
        if (rc != 0 && atomic_compare_exchange_strong_explicit(
                           &job->code, &none, rc, memory_order_relaxed, memory_order_relaxed)) {
            job->failed = core_err_keep(rc);
        }
        at = atomic_load_explicit(&job->next, memory_order_relaxed);
    }
}

int model_files_read_block(const struct model_files *files, const struct model_block *block,
                           enum model_dtype type, void *to, struct core_team *team,
                           struct model_sums *sums)
{
    struct job job = {.files = files, .block = block, .type = type, .to = to, .sums = sums};
    core_team_run(team, read_some, &job);
    return core_err_first(&job.failed, 0);
}
