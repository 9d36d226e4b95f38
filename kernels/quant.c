/* quant.c: the encoder and decoder of stored weights, with bitsandbytes' order of operations, on
 * which codes depend. */
#include "kernels/quant.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "core/base/half.h"
#include "core/base/size.h"
#include "kernels/quant_values.h"

enum { NF4_CODES = 16, MAP_CODES = 256, STEPS = 65536 };

static const float nf4_values[NF4_CODES] = {KERN_NF4_VALUES};
static const float map_values[MAP_CODES] = {KERN_DYNAMIC_VALUES};

const char *kern_quant_name(enum kern_quant quant)
{
    static const char *const names[] = {[KERN_QUANT_NONE] = "none",
                                        [KERN_QUANT_INT8] = "int8",
                                        [KERN_QUANT_NF4] = "nf4",
                                        [KERN_QUANT_NF4_F32] = "nf4 with fp32 scales"};
    return names[quant];
}

bool kern_quant_is_nf4(enum kern_quant quant)
{
    return quant == KERN_QUANT_NF4 || quant == KERN_QUANT_NF4_F32;
}

struct kern_quant_layout kern_quant_layout_of(enum kern_quant quant, enum kern_type from,
                                              int64_t rows, int64_t cols)
{
    const uint64_t elements = (uint64_t)rows * (uint64_t)cols;
    struct kern_quant_layout layout = {.scale_count = 0};
    switch (quant) {
    case KERN_QUANT_NONE: layout.codes_bytes = elements * kern_type_bytes(from); break;
    case KERN_QUANT_INT8:
        layout.codes_bytes = elements;
        layout.scale_count = rows;
        break;
    case KERN_QUANT_NF4:
    case KERN_QUANT_NF4_F32:
        layout.codes_bytes = (elements + 1) / 2;
        layout.scale_count = (int64_t)((elements + KERN_NF4_BLOCK - 1) / KERN_NF4_BLOCK);
        break;
    }
    const uint64_t scales = (uint64_t)layout.scale_count;
    layout.scales = core_round_up(layout.codes_bytes, KERN_QUANT_ALIGN_BYTES);
    layout.nested = layout.bytes = layout.scales;
    if (quant == KERN_QUANT_INT8 || quant == KERN_QUANT_NF4_F32) {
        layout.bytes += core_round_up(scales * sizeof(float), KERN_QUANT_ALIGN_BYTES);
    } else if (quant == KERN_QUANT_NF4) {
        const uint64_t nested = (scales + KERN_NF4_NESTED - 1) / KERN_NF4_NESTED;
        layout.nested += core_round_up(scales, KERN_QUANT_ALIGN_BYTES);
        layout.bytes = layout.nested +
                       core_round_up((nested + 1) * sizeof(float), KERN_QUANT_ALIGN_BYTES);
    }
    return layout;
}

int64_t kern_quant_grain(enum kern_quant quant, int64_t cols)
{
    return kern_quant_is_nf4(quant) ? KERN_NF4_BLOCK : quant == KERN_QUANT_INT8 ? cols : 1;
}

struct kern_quant_spans kern_quant_spans_of(const struct kern_expand_arguments *part)
{
    const struct kern_quant_layout layout = kern_quant_layout_of(part->quant, part->from,
                                                                 part->rows, part->cols);
    const uint64_t first = (uint64_t)part->first;
    const uint64_t end = first + (uint64_t)part->count;
    const uint64_t width = kern_type_bytes(part->from);
    const uint64_t cols = (uint64_t)part->cols;
    const uint64_t floats = sizeof(float);
    struct kern_quant_spans spans = {{0, 0}, {0, 0}, {0, 0}};
    switch (part->quant) {
    case KERN_QUANT_NONE: spans.codes = (struct kern_quant_span){first * width, end * width}; break;
    case KERN_QUANT_INT8:
        spans.codes = (struct kern_quant_span){first, end};
        spans.scales = (struct kern_quant_span){layout.scales + first / cols * floats,
                                                layout.scales + (end + cols - 1) / cols * floats};
        break;
    case KERN_QUANT_NF4:
        spans.codes = (struct kern_quant_span){first / 2, (end + 1) / 2};
        spans.scales = (struct kern_quant_span){layout.scales + first / KERN_NF4_BLOCK,
                                                layout.scales +
                                                    (end + KERN_NF4_BLOCK - 1) / KERN_NF4_BLOCK};
        spans.nested = (struct kern_quant_span){layout.nested, layout.bytes};
        break;
    case KERN_QUANT_NF4_F32:
        spans.codes = (struct kern_quant_span){first / 2, (end + 1) / 2};
        spans.scales = (struct kern_quant_span){layout.scales + first / KERN_NF4_BLOCK * floats,
                                                layout.scales + (end + KERN_NF4_BLOCK - 1) /
                                                                    KERN_NF4_BLOCK * floats};
        break;
    }
    return spans;
}

void kern_quant_point(struct kern_expand_arguments *part, const void *stored)
{
    const struct kern_quant_spans spans = kern_quant_spans_of(part);
    const char *bytes = stored;
    part->codes = bytes + spans.codes.begin;
    part->scales = bytes + spans.scales.begin;
    part->nested = (const float *)(const void *)(bytes + spans.nested.begin);
}

/* Returns the largest magnitude, also infinity or NaN. Compares bits, which compilers vectorise. */
static float largest(const float *values, int64_t count)
{
    int32_t most = 0;
    for (int64_t i = 0; i < count; i++) {
        const int32_t bits = (int32_t)(core_f32_bits(values[i]) & 0x7fffffffU);
        most = bits > most ? bits : most;
    }
    return core_f32_from_bits((uint32_t)most);
}

/* ---- NF4 ---- */

/* Computes the midpoints between neighbouring values. A weight above k midpoints gets code k. */
static void make_bounds(const float *values, int codes, float *bounds)
{
    for (int i = 0; i + 1 < codes; i++) {
        bounds[i] = (values[i] + values[i + 1]) * 0.5f;
    }
}

static float encode_nf4_block(const float *weights, int64_t count, const float *bounds,
                              uint8_t *codes)
{
    float scaled[KERN_NF4_BLOCK] = {0};
    int32_t found[KERN_NF4_BLOCK] = {0};
    const bool whole = count == KERN_NF4_BLOCK;
    const float most = largest(weights, count);
    const float least = most > 1e-38f ? most : 1e-38f;
    const float factor = 1.0f / least;
    for (int64_t i = 0; i < count; i++) {
        scaled[i] = whole ? weights[i] * factor : weights[i] / least;
    }
    for (int b = 0; b + 1 < NF4_CODES; b++) {
        for (int i = 0; i < KERN_NF4_BLOCK; i++) {
            found[i] += scaled[i] > bounds[b];
        }
    }
    for (int64_t i = 0; i < count; i += 2) {
        codes[i / 2] = (uint8_t)(found[i] << 4 | found[i + 1]);
    }
    return whole || isnan(most) ? most : least;
}

/* Returns the code nearest to number `step` of STEPS evenly spaced numbers from -1 to 1, to which
 * bitsandbytes rounds first. */
static uint8_t nearest(const float *bounds, int step)
{
    const float value = -1.0f + (2.0f * (float)step) / (STEPS - 1);
    int low = 0;
    int high = MAP_CODES - 1;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (bounds[middle] < value) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return (uint8_t)low;
}

/* Subtracts the mean, rounded to fp32; 256 scales share one scale. */
static void encode_nested(const struct kern_quant_layout *layout, float *scales, uint8_t *to)
{
    float bounds[MAP_CODES];
    float *values = (float *)(void *)(to + (layout->nested - layout->scales));
    double sum = 0;
    for (int64_t i = 0; i < layout->scale_count; i++) {
        sum += (double)scales[i];
    }
    const float mean = (float)(sum / (double)layout->scale_count);
    make_bounds(map_values, MAP_CODES, bounds);
    for (int64_t i = 0; i < layout->scale_count; i++) {
        scales[i] -= mean;
    }
    for (int64_t at = 0; at < layout->scale_count; at += KERN_NF4_NESTED) {
        const int64_t left = layout->scale_count - at;
        const int64_t count = left < KERN_NF4_NESTED ? left : KERN_NF4_NESTED;
        const float most = largest(scales + at, count);
        const float factor = most > 0 ? 1.0f / most : 0;
        for (int64_t i = at; i < at + count; i++) {
            const float scaled = fminf(fmaxf(scales[i] * factor, -1.0f), 1.0f);
            const int step = (int)((scaled + 1.0f) * 0.5f * (STEPS - 1) + 0.5f);
            to[i] = most > 0 ? nearest(bounds, step) : 0;
        }
        *values++ = most;
    }
    *values = mean;
}

/* ---- INT8 ---- */

/* Copies weights; with `rounds`, through fp16 as bitsandbytes does. */
static void take_part(const float *from, int64_t count, bool rounds, float *to)
{
    uint16_t halves[KERN_NF4_NESTED];
    if (!rounds) {
        memcpy(to, from, (size_t)count * sizeof *to);
        return;
    }
    core_fp16_narrow(from, (size_t)count, halves);
    core_fp16_widen(halves, (size_t)count, to);
}

static float encode_int8_row(const float *weights, int64_t cols, bool halves, uint8_t *codes)
{
    static const float magic = 12582912.0f; /* 1.5 * 2^23: rounds to a whole number */
    float part[KERN_NF4_NESTED];
    float most = 0;
    for (int64_t at = 0; at < cols; at += KERN_NF4_NESTED) {
        const int64_t count = cols - at < KERN_NF4_NESTED ? cols - at : KERN_NF4_NESTED;
        take_part(weights + at, count, halves, part);
        const float found = largest(part, count);
        most = found > most || isnan(found) ? found : most;
    }
    const float inverse = most > 0 && isfinite(most) ? 1.0f / most * 127.0f : 0;
    const float factor = isfinite(inverse) ? inverse : 0;
    for (int64_t at = 0; at < cols; at += KERN_NF4_NESTED) {
        const int64_t count = cols - at < KERN_NF4_NESTED ? cols - at : KERN_NF4_NESTED;
        take_part(weights + at, count, halves, part);
        for (int64_t i = 0; i < count; i++) {
            const float rounded = (part[i] * factor + magic) - magic;
            codes[at + i] = (uint8_t)(int8_t)(isfinite(most) ? rounded : 0);
        }
    }
    return most;
}

/* ---- entry points for both forms ---- */

bool kern_quant_encode(enum kern_quant quant, int64_t cols, const float *weights, int64_t count,
                       uint8_t *codes, float *scales)
{
    const int64_t grain = kern_quant_grain(quant, cols);
    float bounds[NF4_CODES];
    bool finite = true;
    assert(quant != KERN_QUANT_NONE);
    make_bounds(nf4_values, NF4_CODES, bounds);
    for (int64_t at = 0; at < count; at += grain) {
        const int64_t left = count - at;
        *scales = kern_quant_is_nf4(quant)
                      ? encode_nf4_block(weights + at, left < grain ? left : grain, bounds,
                                         codes + at / 2)
                      : encode_int8_row(weights + at, cols, true, codes + at);
        finite = finite && isfinite(*scales);
        scales++;
    }
    return finite;
}

void kern_quant_pack(enum kern_type type, const void *weights, int64_t rows, int64_t cols,
                     uint8_t *to)
{
    const struct kern_quant_layout layout = kern_quant_layout_of(KERN_QUANT_INT8, type, rows, cols);
    const uint16_t *from = weights;
    float *scales = (float *)(void *)(to + layout.scales);
    float row[KERN_NF4_NESTED];
    assert((type == KERN_BF16 || type == KERN_FP16) && cols <= KERN_NF4_NESTED);
    for (int64_t r = 0; r < rows; r++) {
        (type == KERN_BF16 ? core_bf16_widen : core_fp16_widen)(from + r * cols, (size_t)cols, row);
        scales[r] = encode_int8_row(row, cols, false, to + r * cols);
    }
}

void kern_quant_encode_scales(enum kern_quant quant, const struct kern_quant_layout *layout,
                              float *scales, uint8_t *to)
{
    memset(to, 0, layout->bytes - layout->scales);
    if (quant != KERN_QUANT_NF4) {
        memcpy(to, scales, (size_t)layout->scale_count * sizeof *scales);
    } else {
        encode_nested(layout, scales, to);
    }
}

void kern_quant_decode(enum kern_quant quant, const struct kern_quant_layout *layout, int64_t cols,
                       const uint8_t *stored, int64_t begin, int64_t count, float *out)
{
    static const float int8_unit = 0x1.020408p-7f; /* 1 / 127 */
    const float *scales = (const float *)(const void *)(stored + layout->scales);
    const float *nested = (const float *)(const void *)(stored + layout->nested);
    const float offset = quant == KERN_QUANT_NF4
                             ? nested[(layout->scale_count + KERN_NF4_NESTED - 1) / KERN_NF4_NESTED]
                             : 0;
    assert(quant != KERN_QUANT_NONE);
    for (int64_t i = begin; i < begin + count; i++) {
        const int64_t block = i / KERN_NF4_BLOCK;
        if (quant == KERN_QUANT_INT8) {
            out[i - begin] = (float)(int8_t)stored[i] * scales[i / cols] * int8_unit;
        } else {
            const int code = i % 2 == 0 ? stored[i / 2] >> 4 : stored[i / 2] & 15;
            const float scale = quant == KERN_QUANT_NF4_F32
                                    ? scales[block]
                                    : map_values[stored[layout->scales + (uint64_t)block]] *
                                              nested[block / KERN_NF4_NESTED] +
                                          offset;
            out[i - begin] = nf4_values[code] * scale;
        }
    }
}
