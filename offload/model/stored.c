/* stored.c: lays out and makes a block's stored form. */
#include "offload/model/stored.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/hash.h"
#include "core/base/team.h"
#include "offload/model/codes.h"

const char *model_storage_name(enum model_storage storage)
{
    static const char *const names[] = {[MODEL_STORAGE_PLAIN] = "plain",
                                        [MODEL_STORAGE_BF16] = "bf16",
                                        [MODEL_STORAGE_INT8] = "int8",
                                        [MODEL_STORAGE_NF4] = "nf4"};
    return names[storage];
}

static enum kern_quant quant_of(enum model_storage storage)
{
    return storage == MODEL_STORAGE_NF4    ? KERN_QUANT_NF4
           : storage == MODEL_STORAGE_INT8 ? KERN_QUANT_INT8
                                           : KERN_QUANT_NONE;
}

enum model_storage model_stored_as(enum kern_quant quant)
{
    return quant == KERN_QUANT_NONE   ? MODEL_STORAGE_PLAIN
           : quant == KERN_QUANT_INT8 ? MODEL_STORAGE_INT8
                                      : MODEL_STORAGE_NF4;
}

static struct model_files_base base_of(const struct model *model, enum model_storage storage,
                                       enum kern_type type)
{
    const enum kern_quant quant = model->config.quant;
    const bool given = quant != KERN_QUANT_NONE;
    return (struct model_files_base){.quant = given ? quant : quant_of(storage),
                                     .type = storage == MODEL_STORAGE_BF16 ? KERN_BF16 : type,
                                     .given = given};
}

void model_stored_set_base(struct model_files *files, const struct model *model,
                           enum model_storage storage, enum kern_type type)
{
    const struct model_files_base base = base_of(model, storage, type);
    model_files_set_base(files, &base);
}

/* ---- layout ---- */

static struct kern_quant_layout layout_of(const struct model_stored_part *part)
{
    return kern_quant_layout_of(part->quant, part->from, part->rows, part->cols);
}

static int add_part(struct model_stored *stored, const struct model_block *block, unsigned index,
                    unsigned k, const struct model_files_base *base)
{
    const struct model_param *param = &block->params[index];
    const struct model_part *part = &param->parts[k];
    struct model_stored_part *added = &stored->parts[stored->count++];
    *added = (struct model_stored_part){
        .name = part->name,
        .first = param->offset + (uint64_t)part->first_row * (uint64_t)param->cols,
        .rows = part->rows,
        .cols = param->cols,
        .quant = base->given     ? part->quant
                 : param->vector ? KERN_QUANT_NONE
                                 : base->quant,
        .given = part->quant != KERN_QUANT_NONE,
        .from = base->type,
        .param = index,
        .part = k,
        .offset_bytes = stored->bytes,
    };
    if (kern_quant_is_nf4(added->quant) && part->rows * param->cols % 2 != 0) {
        return core_err_set(-EINVAL,
                            "tensor %s has %" PRId64 " x %" PRId64
                            " elements, an odd number, which nf4 cannot store; int8 and bf16 can",
                            part->name, part->rows, param->cols);
    }
    stored->bytes += layout_of(added).bytes;
    return 0;
}

bool model_stored_is_possible(const struct model *model, const struct model_block *block)
{
    return !block->trained && block->layer >= 0 && block->layer < model->config.layers;
}

int model_stored_create(const struct model *model, const struct model_block *block,
                        enum model_storage storage, enum kern_type type, struct model_stored **out)
{
    const bool same = storage == MODEL_STORAGE_PLAIN ||
                      (storage == MODEL_STORAGE_BF16 && type == KERN_BF16);
    if (same || !model_stored_is_possible(model, block)) {
        *out = NULL;
        return 0;
    }
    struct model_stored *stored = calloc(1, sizeof *stored);
    if (stored != NULL) {
        stored->parts = calloc((size_t)block->param_count * MODEL_PARTS_MAX, sizeof *stored->parts);
    }
    const struct model_files_base base = base_of(model, storage, type);
    int rc = stored != NULL && stored->parts != NULL
                 ? 0
                 : core_err_set(-ENOMEM, "no memory for the stored form of %s", block->name);
    for (unsigned i = 0; rc == 0 && i < block->param_count; i++) {
        for (unsigned k = 0; rc == 0 && k < block->params[i].part_count; k++) {
            rc = add_part(stored, block, i, k, &base);
        }
    }
    if (rc != 0) {
        model_stored_destroy(stored);
        return rc;
    }
    *out = stored;
    return 0;
}

void model_stored_destroy(struct model_stored *stored)
{
    if (stored != NULL) {
        free(stored->parts);
        free(stored);
    }
}

/* ---- creating stored weights ---- */

enum { PIECE_ELEMENTS = 1 << 18, SUM_BYTES = 1 << 16, AHEAD_ELEMENTS = 32 * PIECE_ELEMENTS };

struct model_stored_reader {
    struct model_stored_source source;
    unsigned part; /* part of the next bytes */
    int64_t done;  /* elements of this part that are made */
    uint8_t *made; /* owned; bytes [at, end) are not read yet */
    uint64_t at, end;
    enum model_dtype type; /* type of `window`: of the run, or of the storage */
    char *window;          /* owned: elements [first, last) of the block */
    uint64_t first, last;
    uint64_t expected; /* readahead was requested up to this element */
    float *wide;       /* owned: a piece in fp32 */
    float *scales;     /* owned: the part's scales */
};

static int64_t elements_of(const struct model_stored_part *part)
{
    return part->rows * part->cols;
}

static int64_t piece_of(const struct model_stored_part *part)
{
    const int64_t grain = part->given ? 1 : kern_quant_grain(part->quant, part->cols);
    const int64_t most = grain < PIECE_ELEMENTS ? PIECE_ELEMENTS / grain * grain : grain;
    return most < elements_of(part) ? most : elements_of(part);
}

int model_stored_open(const struct model_stored_source *source, struct model_stored_reader **out)
{
    struct model_stored_reader *reader = calloc(1, sizeof *reader);
    uint64_t made = 0;
    uint64_t pieces = 0;
    uint64_t scales = 0;
    for (unsigned i = 0; i < source->stored->count; i++) {
        const struct model_stored_part *part = &source->stored->parts[i];
        const struct kern_quant_layout layout = layout_of(part);
        const uint64_t piece = (uint64_t)piece_of(part);
        const uint64_t tail = layout.bytes - layout.scales;
        const uint64_t most = piece * sizeof(float) + KERN_QUANT_ALIGN_BYTES;
        made = most > made ? most : made;
        made = tail > made ? tail : made;
        pieces = piece > pieces ? piece : pieces;
        scales = (uint64_t)layout.scale_count > scales ? (uint64_t)layout.scale_count : scales;
    }
    if (reader != NULL) {
        reader->source = *source;
        reader->made = malloc(made);
        reader->type = model_dtype_of(source->stored->parts[0].from);
        reader->window = malloc(PIECE_ELEMENTS * sizeof(float));
        reader->wide = malloc(pieces * sizeof(float));
        reader->scales = malloc((scales + 1) * sizeof(float));
    }
    if (reader == NULL || reader->made == NULL || reader->window == NULL || reader->wide == NULL ||
        reader->scales == NULL) {
        model_stored_close(reader);
        return core_err_set(-ENOMEM, "no memory to store %s in fewer bits", source->block->name);
    }
    *out = reader;
    return 0;
}

void model_stored_close(struct model_stored_reader *reader)
{
    if (reader != NULL) {
        free(reader->made);
        free(reader->window);
        free(reader->wide);
        free(reader->scales);
        free(reader);
    }
}

struct encoding {
    struct model_stored_reader *reader;
    const struct model_stored_part *part;
    int64_t count;
    _Atomic int failed; /* relaxed: the team's return orders it */
};

static void encode_share(void *argument, unsigned index, unsigned count)
{
    struct encoding *encoding = argument;
    const struct model_stored_reader *reader = encoding->reader;
    const struct model_stored_part *part = encoding->part;
    const int64_t grain = kern_quant_grain(part->quant, part->cols);
    const uint64_t total = ((uint64_t)encoding->count + (uint64_t)grain - 1) / (uint64_t)grain;
    uint64_t begin = 0;
    uint64_t end = 0;
    core_team_share(total, 1, index, count, &begin, &end);
    const int64_t first = (int64_t)begin * grain;
    const int64_t last = (int64_t)end * grain < encoding->count ? (int64_t)end * grain
                                                                : encoding->count;
    if (first >= last) {
        return;
    }
    uint8_t *codes = reader->made + (kern_quant_is_nf4(part->quant) ? first / 2 : first);
    float *scales = reader->scales + reader->done / grain + (int64_t)begin;
    if (!kern_quant_encode(part->quant, part->cols, reader->wide + first, last - first, codes,
                           scales)) {
        atomic_store_explicit(&encoding->failed, 1, memory_order_relaxed);
    }
}

static int encode(struct model_stored_reader *reader, const struct model_stored_part *part,
                  int64_t count)
{
    struct encoding encoding = {.reader = reader, .part = part, .count = count};
    core_team_run(reader->source.team, encode_share, &encoding);
    if (atomic_load_explicit(&encoding.failed, memory_order_relaxed) != 0) {
        return core_err_set(-EINVAL,
                            "tensor %s has weights that are not finite%s, so that %s "
                            "cannot store it",
                            part->name,
                            part->quant == KERN_QUANT_INT8 ? " or beyond the range of fp16" : "",
                            kern_quant_name(part->quant));
    }
    return 0;
}

struct reading {
    struct model_stored_reader *reader;
    uint64_t from, count; /* elements of the block */
    _Atomic int code;     /* the first error; relaxed: the team's return orders `failed` */
    struct core_err failed;
};

/* Shares divide the window at multiples of BLOCKS_ALIGN_ELEMENTS. */
static void read_share(void *argument, unsigned index, unsigned count)
{
    struct reading *reading = argument;
    struct model_stored_reader *reader = reading->reader;
    const struct model_stored_source *source = &reader->source;
    uint64_t begin = 0;
    uint64_t end = 0;
    int none = 0;
    const uint64_t skipped = reading->from % BLOCKS_ALIGN_ELEMENTS;
    core_team_share(skipped + reading->count, BLOCKS_ALIGN_ELEMENTS, index, count, &begin, &end);
    begin = begin > skipped ? begin - skipped : 0;
    end = end > skipped ? end - skipped : 0;
    const int rc = begin < end
                       ? model_files_read(source->files, source->block, reading->from + begin,
                                          end - begin, reader->type,
                                          reader->window + begin * model_dtype_bytes(reader->type),
                                          source->sums)
                       : 0;
    if (rc != 0 && atomic_compare_exchange_strong_explicit(
                       &reading->code, &none, rc, memory_order_relaxed, memory_order_relaxed)) {
        reading->failed = core_err_keep(rc);
    }
}

/* Returns whether one thread must read the window: a share of a transposed tensor would need the
 * whole tensor. */
static bool is_turned(const struct model_block *block)
{
    for (unsigned i = 0; i < block->param_count; i++) {
        if (block->params[i].transposed) {
            return true;
        }
    }
    return false;
}

/* Also requests readahead of later elements. */
static int read_window(struct model_stored_reader *reader, uint64_t from, uint64_t end)
{
    const struct model_stored_source *source = &reader->source;
    const uint64_t most = PIECE_ELEMENTS - from % BLOCKS_ALIGN_ELEMENTS;
    const uint64_t count = end - from < most ? end - from : most;
    struct reading reading = {.reader = reader, .from = from, .count = count};
    const uint64_t ahead = end - from < AHEAD_ELEMENTS ? end : from + AHEAD_ELEMENTS;
    const uint64_t known = reader->expected > from ? reader->expected : from;
    if (known < ahead && (ahead == end || ahead - known >= AHEAD_ELEMENTS / 2)) {
        model_files_expect(source->files, source->block, known, ahead - known);
        reader->expected = ahead;
    }
    if (is_turned(source->block)) {
        read_share(&reading, 0, 1);
    } else {
        core_team_run(source->team, read_share, &reading);
    }
    reader->first = from;
    reader->last = from + count;
    return core_err_first(&reading.failed, 0);
}

/* Pieces begin where model_files_read requires. In quantised files, codes may lie between parts, so
 * parts are read one by one. */
static int take(struct model_stored_reader *reader, const struct model_stored_part *part,
                int64_t count, enum model_dtype type, void *to)
{
    const struct model_stored_source *source = &reader->source;
    const bool given = model_files_base_of(source->files).given;
    const uint64_t all = given ? part->first + (uint64_t)elements_of(part)
                               : source->block->elements;
    uint64_t at = part->first + (uint64_t)reader->done;
    const uint64_t end = at + (uint64_t)count;
    char *next = to;
    while (at < end) {
        if (at >= reader->last) {
            int rc = read_window(reader, given ? at : reader->last, all);
            if (rc != 0) {
                return rc;
            }
            continue;
        }
        const uint64_t ready = (reader->last < end ? reader->last : end) - at;
        model_convert(next, type,
                      reader->window + (at - reader->first) * model_dtype_bytes(reader->type),
                      reader->type, ready);
        next += ready * model_dtype_bytes(type);
        at += ready;
    }
    return 0;
}

static struct model_codes codes_of(const struct model_stored_reader *reader,
                                   const struct model_stored_part *part)
{
    return (struct model_codes){.files = reader->source.files,
                                .name = part->name,
                                .quant = part->quant,
                                .rows = part->rows,
                                .cols = part->cols};
}

/* Pieces of codes begin at multiples of SUM_BYTES, so the sum does not depend on their size. */
static void sum_bytes(const struct model_stored_reader *reader,
                      const struct model_stored_part *part, uint64_t at, uint64_t bytes)
{
    const struct model_stored_source *source = &reader->source;
    uint64_t sum = 0;
    for (uint64_t done = 0; source->sums != NULL && done < bytes; done += SUM_BYTES) {
        const uint64_t left = bytes - done;
        sum += core_hash(reader->made + done, left < SUM_BYTES ? left : SUM_BYTES, at + done);
    }
    if (source->sums != NULL) {
        model_sums_add_part(source->sums, source->block, part->param, part->part, sum);
    }
}

static uint64_t code_bytes(const struct model_stored_part *part, int64_t elements)
{
    return (uint64_t)(kern_quant_is_nf4(part->quant) ? elements / 2 : elements);
}

static int copy_codes(struct model_stored_reader *reader, const struct model_stored_part *part,
                      int64_t count)
{
    const struct model_codes codes = codes_of(reader, part);
    const uint64_t at = code_bytes(part, reader->done);
    const uint64_t bytes = code_bytes(part, count);
    const int rc = model_codes_read(&codes, at, bytes, reader->made);
    if (rc == 0) {
        sum_bytes(reader, part, at, bytes);
    }
    return rc;
}

static int make_codes(struct model_stored_reader *reader, const struct model_stored_part *part,
                      const struct kern_quant_layout *layout)
{
    const int64_t left = elements_of(part) - reader->done;
    const int64_t count = left < piece_of(part) ? left : piece_of(part);
    const bool plain = part->quant == KERN_QUANT_NONE;
    const uint64_t bytes = (uint64_t)count * kern_type_bytes(part->from);
    int rc = plain         ? take(reader, part, count, reader->type, reader->made)
             : part->given ? copy_codes(reader, part, count)
                           : take(reader, part, count, MODEL_F32, reader->wide);
    if (rc == 0 && !plain && !part->given) {
        rc = encode(reader, part, count);
    }
    if (rc != 0) {
        return rc;
    }
    reader->end = plain ? bytes : code_bytes(part, count);
    reader->done += count;
    if (count == left) { /* zeros before the scales */
        const uint64_t gap = layout->scales - layout->codes_bytes;
        memset(reader->made + reader->end, 0, gap);
        reader->end += gap;
    }
    return 0;
}

static int make_scales(struct model_stored_reader *reader, const struct model_stored_part *part,
                       const struct kern_quant_layout *layout)
{
    const struct model_codes codes = codes_of(reader, part);
    if (!part->given) {
        kern_quant_encode_scales(part->quant, layout, reader->scales, reader->made);
        return 0;
    }
    const int rc = model_codes_read_scales(&codes, reader->made);
    if (rc == 0) { /* the hashed offset depends only on the tensor */
        sum_bytes(reader, part, layout->scales, layout->bytes - layout->scales);
    }
    return rc;
}

/* A part's scales follow its codes. */
static int make_more(struct model_stored_reader *reader)
{
    const struct model_stored_part *part = &reader->source.stored->parts[reader->part];
    const struct kern_quant_layout layout = layout_of(part);
    reader->at = reader->end = 0;
    if (reader->done < elements_of(part)) {
        return make_codes(reader, part, &layout);
    }
    if (layout.bytes > layout.scales) {
        int rc = make_scales(reader, part, &layout);
        if (rc != 0) {
            return rc;
        }
        reader->end = layout.bytes - layout.scales;
    }
    reader->part++;
    reader->done = 0;
    return 0;
}

int model_stored_read(struct model_stored_reader *reader, void *to, uint64_t bytes)
{
    char *at = to;
    while (bytes > 0) {
        if (reader->at == reader->end) {
            if (reader->part == reader->source.stored->count) {
                break;
            }
            int rc = make_more(reader);
            if (rc != 0) {
                return rc;
            }
            if (reader->source.made != NULL && reader->end > 0) {
                reader->source.made(reader->source.user, reader->made, reader->end);
            }
        }
        const uint64_t ready = reader->end - reader->at;
        const uint64_t count = ready < bytes ? ready : bytes;
        if (at != NULL) {
            memcpy(at, reader->made + reader->at, count);
            at += count;
        }
        reader->at += count;
        bytes -= count;
    }
    if (at != NULL) {
        memset(at, 0, bytes);
    }
    return 0;
}
