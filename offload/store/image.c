/* image.c: computes sizes, offsets and headers. */
#include "offload/store/image.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/size.h"
#include "core/json/write.h"
#include "offload/plan/shard.h"

enum { LENGTH_BYTES = 8, SCALE_BYTES = 4 };

const char *store_stream_name(enum store_stream stream)
{
    static const char *const names[STORE_STREAM_COUNT] = {[STORE_STREAM_WEIGHTS] = "weights",
                                                          [STORE_STREAM_MASTER] = "master",
                                                          [STORE_STREAM_M] = "m",
                                                          [STORE_STREAM_V] = "v",
                                                          [STORE_STREAM_M_SCALES] = "m_scales",
                                                          [STORE_STREAM_V_SCALES] = "v_scales"};
    return names[stream];
}

/* ---- sizes ---- */

static uint64_t scale_bytes(const struct plan_format *format, uint64_t elements, uint8_t moment)
{
    if (format->q8_block == 0 || moment == 0) {
        return 0;
    }
    return (elements + format->q8_block - 1) / format->q8_block * SCALE_BYTES;
}

const char *store_block_dtype(enum block_weights weights)
{
    static const char *const names[] = {[BLOCK_WEIGHTS_OF_RUN] = NULL,
                                        [BLOCK_WEIGHTS_BF16] = "BF16",
                                        [BLOCK_WEIGHTS_FP16] = "F16",
                                        [BLOCK_WEIGHTS_FP32] = "F32"};
    return names[weights];
}

/* Moments have one format; weights and masters may differ by block. */
static struct plan_format format_of(const struct store_image *image, uint32_t block)
{
    static const struct {
        uint8_t weight_bytes, master_bytes;
    } kinds[] = {[BLOCK_WEIGHTS_BF16] = {2, 2},
                 [BLOCK_WEIGHTS_FP16] = {2, 4},
                 [BLOCK_WEIGHTS_FP32] = {4, 0}};
    const enum block_weights weights = image->blocks->list[block].weights;
    struct plan_format format = image->format;
    if (weights != BLOCK_WEIGHTS_OF_RUN) {
        format.weight_bytes = kinds[weights].weight_bytes;
        format.master_bytes = kinds[weights].master_bytes;
    }
    return format;
}

static uint64_t stream_bytes(const struct plan_format *format, enum store_stream stream,
                             uint64_t elements)
{
    switch (stream) {
    case STORE_STREAM_WEIGHTS: return elements * format->weight_bytes;
    case STORE_STREAM_MASTER: return elements * format->master_bytes;
    case STORE_STREAM_M: return elements * format->m_bytes;
    case STORE_STREAM_V: return elements * format->v_bytes;
    case STORE_STREAM_M_SCALES: return scale_bytes(format, elements, format->m_bytes);
    case STORE_STREAM_V_SCALES: return scale_bytes(format, elements, format->v_bytes);
    case STORE_STREAM_COUNT: break;
    }
    return 0;
}

uint64_t store_image_bytes(const struct store_image *image, enum store_stream stream,
                           uint32_t block)
{
    const struct block *of = &image->blocks->list[block];
    const struct plan_format format = format_of(image, block);
    const bool frozen = stream == STORE_STREAM_WEIGHTS && !image->blocks->base_apart;
    return frozen || of->trained ? stream_bytes(&format, stream, of->elements) : 0;
}

bool store_image_has(const struct store_image *image, enum store_stream stream)
{
    return store_image_cuts(image, stream) > 0;
}

uint64_t store_image_file_bytes(const struct store_image *image, enum store_stream stream)
{
    return image->offsets[stream][image->blocks->count];
}

uint64_t store_image_cuts(const struct store_image *image, enum store_stream stream)
{
    return image->first_cuts[stream][image->blocks->count];
}

uint64_t store_image_cuts_all(const struct store_image *image)
{
    uint64_t cuts = 0;
    for (int s = 0; s < STORE_STREAM_COUNT; s++) {
        cuts += store_image_cuts(image, (enum store_stream)s);
    }
    return cuts;
}

struct store_cut store_image_cut(const struct store_image *image, enum store_stream stream,
                                 uint32_t block, uint64_t index)
{
    const struct plan_format format = format_of(image, block);
    const uint64_t whole = stream_bytes(&format, stream, PLAN_CUT_ELEMENTS);
    const uint64_t bytes = store_image_bytes(image, stream, block);
    const uint64_t begin = index * whole;
    const bool last = bytes - begin <= whole;
    const uint64_t end = core_round_up(bytes, PLAN_ALIGN_BYTES);
    return (struct store_cut){.offset = image->offsets[stream][block] + begin,
                              .bytes = last ? bytes - begin : whole,
                              .padded_bytes = last ? end - begin : whole};
}

/* ---- headers ---- */

struct dtype {
    const char *name;
    uint64_t bytes;
};

static struct dtype dtype_of(const struct store_image *image, enum store_stream stream,
                             uint32_t block)
{
    static const struct dtype moments[] = {[1] = {"U8", 1}, [2] = {"BF16", 2}, [4] = {"F32", 4}};
    const struct plan_format format = format_of(image, block);
    const char *own = store_block_dtype(image->blocks->list[block].weights);
    switch (stream) {
    case STORE_STREAM_WEIGHTS:
        return (struct dtype){own != NULL ? own : image->weight_dtype, format.weight_bytes};
    case STORE_STREAM_MASTER:
        return format.master_bytes == 2 ? (struct dtype){"U16", 2} : moments[4];
    case STORE_STREAM_M: return moments[format.m_bytes];
    case STORE_STREAM_V: return moments[format.v_bytes];
    case STORE_STREAM_M_SCALES:
    case STORE_STREAM_V_SCALES:
    case STORE_STREAM_COUNT: break;
    }
    return moments[4];
}

static void write_tensor(struct core_json_write *write, const char *name, struct dtype dtype,
                         uint64_t begin, uint64_t end)
{
    core_json_write_object_begin(write, name);
    core_json_write_string(write, "dtype", dtype.name);
    core_json_write_array_begin(write, "shape");
    core_json_write_unsigned(write, NULL, (end - begin) / dtype.bytes);
    core_json_write_array_end(write);
    core_json_write_array_begin(write, "data_offsets");
    core_json_write_unsigned(write, NULL, begin);
    core_json_write_unsigned(write, NULL, end);
    core_json_write_array_end(write);
    core_json_write_object_end(write);
}

/* Writes length, JSON, and spaces up to a multiple of 4096. */
static int seal_header(struct store_image *image, enum store_stream stream, const char *text,
                       uint64_t bytes)
{
    const uint64_t whole = core_round_up(bytes + LENGTH_BYTES, PLAN_ALIGN_BYTES);
    char *header = malloc(whole);
    if (header == NULL) {
        return core_err_set(-ENOMEM, "no memory for the header of %s.safetensors",
                            store_stream_name(stream));
    }
    memset(header, ' ', whole);
    for (int i = 0; i < LENGTH_BYTES; i++) {
        header[i] = (char)((whole - LENGTH_BYTES) >> (8 * i) & 0xff);
    }
    memcpy(header + LENGTH_BYTES, text, bytes);
    image->headers[stream] = header;
    image->header_bytes[stream] = whole;
    return 0;
}

static int make_header(struct store_image *image, enum store_stream stream)
{
    const struct dtype zeros = {"U8", 1};
    struct core_json_write write;
    uint64_t at = 0;
    core_json_write_init_text(&write);
    write.bytes_max = STORE_HEADER_BYTES_MAX - LENGTH_BYTES - PLAN_ALIGN_BYTES;
    core_json_write_object_begin(&write, NULL);
    core_json_write_object_begin(&write, "__metadata__");
    core_json_write_string(&write, "format", "tide checkpoint");
    core_json_write_string(&write, "stream", store_stream_name(stream));
    core_json_write_object_end(&write);
    for (uint32_t b = 0; b < image->blocks->count; b++) {
        const uint64_t bytes = store_image_bytes(image, stream, b);
        const uint64_t end = core_round_up(at + bytes, PLAN_ALIGN_BYTES);
        if (bytes > 0) {
            write_tensor(&write, image->blocks->list[b].name, dtype_of(image, stream, b), at,
                         at + bytes);
        }
        if (at + bytes < end) {
            char name[32];
            snprintf(name, sizeof name, "padding.%" PRIu32, b);
            write_tensor(&write, name, zeros, at + bytes, end);
        }
        at = end;
    }
    core_json_write_object_end(&write);
    int rc = core_json_write_end(&write);
    if (rc == -EFBIG) {
        rc = core_err_set(rc,
                          "the names of %" PRIu32 " blocks are too long: the header of "
                          "%s.safetensors would exceed %d bytes",
                          image->blocks->count, store_stream_name(stream), STORE_HEADER_BYTES_MAX);
    } else if (rc == 0) {
        rc = seal_header(image, stream, write.text, write.bytes - 1);
    }
    core_json_write_fini(&write);
    return rc;
}

/* ---- creating an image ---- */

/* Returns whether a file uses the name for padding or metadata. */
static bool is_reserved(const char *name)
{
    static const char padding[] = "padding.";
    const size_t bytes = sizeof padding - 1;
    if (strncmp(name, padding, bytes) == 0) {
        return name[bytes] != '\0' && name[bytes + strspn(name + bytes, "0123456789")] == '\0';
    }
    return strcmp(name, "__metadata__") == 0;
}

static int check_names(const struct blocks *blocks)
{
    for (uint32_t b = 0; b < blocks->count; b++) {
        if (is_reserved(blocks->list[b].name)) {
            return core_err_set(-EINVAL,
                                "a block cannot be named \"%s\": checkpoints use this name for "
                                "padding or metadata",
                                blocks->list[b].name);
        }
    }
    return 0;
}

static int lay_out(struct store_image *image, enum store_stream stream)
{
    const size_t rows = (size_t)image->blocks->count + 1;
    uint64_t *offsets = calloc(rows, sizeof *offsets);
    uint64_t *cuts = calloc(rows, sizeof *cuts);
    image->offsets[stream] = offsets;
    image->first_cuts[stream] = cuts;
    if (offsets == NULL || cuts == NULL) {
        return core_err_set(-ENOMEM, "no memory for the offsets of %zu blocks", rows - 1);
    }
    int rc = make_header(image, stream);
    offsets[0] = image->header_bytes[stream];
    for (uint32_t b = 0; rc == 0 && b < image->blocks->count; b++) {
        const uint64_t bytes = store_image_bytes(image, stream, b);
        const uint64_t elements = image->blocks->list[b].elements;
        offsets[b + 1] = offsets[b] + core_round_up(bytes, PLAN_ALIGN_BYTES);
        cuts[b + 1] = cuts[b] +
                      (bytes > 0 ? (elements + PLAN_CUT_ELEMENTS - 1) / PLAN_CUT_ELEMENTS : 0);
    }
    return rc;
}

int store_image_init(struct store_image *image, const struct plan_format *format,
                     const char *weight_dtype, const struct blocks *blocks)
{
    *image = (struct store_image){.format = *format, .blocks = blocks};
    snprintf(image->weight_dtype, sizeof image->weight_dtype, "%s", weight_dtype);
    int rc = check_names(blocks);
    for (int s = 0; rc == 0 && s < STORE_STREAM_COUNT; s++) {
        rc = lay_out(image, (enum store_stream)s);
    }
    if (rc != 0) {
        store_image_fini(image);
    }
    return rc;
}

void store_image_fini(struct store_image *image)
{
    for (int s = 0; s < STORE_STREAM_COUNT; s++) {
        free(image->offsets[s]);
        free(image->first_cuts[s]);
        free(image->headers[s]);
    }
    *image = (struct store_image){.blocks = NULL};
}
