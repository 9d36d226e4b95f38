/* codes.c: the tensors of bitsandbytes: codes, scales, and for nf4 the map of the codes and a JSON
 * text. */
#include "offload/model/codes.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/json/json.h"
#include "kernels/quant.h"
#include "kernels/quant_values.h"

enum { NF4_CODES = 16, MAP_CODES = 256, STATE_BYTES_MAX = 4096, BLOCK_MAX = 4096 };

static const float nf4_values[NF4_CODES] = {KERN_NF4_VALUES};
static const float map_values[MAP_CODES] = {KERN_DYNAMIC_VALUES};
static const char state_end[] = ".quant_state.bitsandbytes__nf4";

/* ---- tensors ---- */

/* `tensor` is NULL if the folder has no such tensor. */
struct found {
    const struct model_tensor *tensor;
    const struct model_safetensors *shard;
};

/* `end` replaces the last `cut` bytes of the weights' name. */
static struct found find(const struct model_codes *codes, const char *end, size_t cut)
{
    char name[BLOCKS_NAME_BYTES_MAX + 64];
    struct found found = {NULL, NULL};
    snprintf(name, sizeof name, "%.*s%s", (int)(strlen(codes->name) - cut), codes->name, end);
    found.tensor = model_files_part(codes->files, &(struct model_part){.name = name}, &found.shard);
    return found;
}

static bool has_type(const struct found *found, const char *type)
{
    return found->tensor != NULL && strcmp(found->tensor->dtype_name, type) == 0;
}

/* Checks type and number of bytes; the shape does not matter. */
static int check_bytes(const struct model_codes *codes, const struct found *found, const char *what,
                       const char *type, uint64_t bytes)
{
    if (found->tensor == NULL) {
        return core_err_set(-EINVAL, "%s has no tensor %s of the quantised tensor %s",
                            model_files_folder(codes->files), what, codes->name);
    }
    if (!has_type(found, type) || found->tensor->bytes != bytes) {
        return core_err_set(-EINVAL,
                            "%s: tensor %s has type %s and %" PRIu64
                            " bytes; expected type %s and %" PRIu64 " bytes for %" PRId64
                            " x %" PRId64 " weights in %s",
                            model_safetensors_path(found->shard), found->tensor->name,
                            found->tensor->dtype_name, found->tensor->bytes, type, bytes,
                            codes->rows, codes->cols, kern_quant_name(codes->quant));
    }
    return 0;
}

static int read_whole(const struct found *found, void *to)
{
    return model_safetensors_read(found->shard, found->tensor, 0, to, found->tensor->bytes);
}

/* ---- nf4 ---- */

struct nf4 {
    struct found codes, absmax;
    struct found nested, map; /* scales of absmax, and the map of its codes; none: absmax is fp32 */
    int64_t block;            /* weights that share a scale */
    int64_t nested_block;     /* scales that share a scale */
    float offset;
};

static uint64_t groups(uint64_t count, int64_t each)
{
    return (count + (uint64_t)each - 1) / (uint64_t)each;
}

static int read_shape(const struct core_json *doc, const struct model_codes *codes)
{
    const struct core_json_value *root = core_json_root(doc);
    const struct core_json_value *shape = NULL;
    int64_t size[2] = {-1, -1};
    int rc = core_json_get(doc, root, "shape", CORE_JSON_ARRAY, &shape);
    for (size_t i = 0; rc == 0 && core_json_count(shape) == 2 && i < 2; i++) {
        const struct core_json_value *value = core_json_at(shape, i);
        const bool number = core_json_kind(value) == CORE_JSON_INTEGER;
        size[i] = number ? core_json_integer(value) : -1;
    }
    if (rc == 0 && (size[0] != codes->rows || size[1] != codes->cols)) {
        return core_json_refuse(doc, root, "shape", 0, -EINVAL,
                                "config.json requires [%" PRId64 ", %" PRId64 "]", codes->rows,
                                codes->cols);
    }
    return rc;
}

static int read_nesting(const struct core_json *doc, struct nf4 *out)
{
    const struct core_json_value *root = core_json_root(doc);
    double offset = 0;
    int rc = core_json_get_integer(doc, root, "nested_blocksize", &out->nested_block);
    if (rc == 0 && (out->nested_block < 1 || out->nested_block > BLOCK_MAX)) {
        return core_json_refuse(doc, root, "nested_blocksize", 0, -EINVAL, "expected 1 to %d",
                                BLOCK_MAX);
    }
    if (rc == 0) {
        rc = core_json_get_real(doc, root, "nested_offset", &offset);
    }
    out->offset = (float)offset;
    return rc == 0 && !isfinite(out->offset)
               ? core_json_refuse(doc, root, "nested_offset", 0, -EINVAL,
                                  "found a number beyond fp32")
               : rc;
}

static int parse_state(const struct core_json *doc, const struct model_codes *codes,
                       struct nf4 *out)
{
    const struct core_json_value *root = core_json_root(doc);
    const char *type = "";
    int rc = core_json_get_string(doc, root, "quant_type", &type);
    if (rc == 0 && strcmp(type, "nf4") != 0) {
        return core_json_refuse(doc, root, "quant_type", 0, -EINVAL, "\"%s\" is not nf4", type);
    }
    if (rc == 0) {
        rc = core_json_get_integer(doc, root, "blocksize", &out->block);
    }
    if (rc == 0 && (out->block < KERN_NF4_BLOCK || out->block > BLOCK_MAX ||
                    out->block % KERN_NF4_BLOCK != 0)) {
        return core_json_refuse(doc, root, "blocksize", 0, -EINVAL,
                                "expected a multiple of %d up to %d", KERN_NF4_BLOCK, BLOCK_MAX);
    }
    if (rc == 0) {
        rc = read_shape(doc, codes);
    }
    return rc == 0 && out->nested.tensor != NULL ? read_nesting(doc, out) : rc;
}

static int read_state(const struct model_codes *codes, struct nf4 *out)
{
    const struct found state = find(codes, state_end, 0);
    char text[STATE_BYTES_MAX];
    char source[BLOCKS_NAME_BYTES_MAX + 64];
    struct core_json *doc = NULL;
    if (state.tensor == NULL) {
        const bool fp4 = find(codes, ".quant_state.bitsandbytes__fp4", 0).tensor != NULL;
        return core_err_set(-EINVAL, "%s: tensor %s %s", model_files_folder(codes->files),
                            codes->name,
                            fp4 ? "is quantised as fp4; only nf4 is supported"
                                : "has no state (quant_state.bitsandbytes__nf4)");
    }
    if (!has_type(&state, "U8") || state.tensor->bytes > sizeof text) {
        return core_err_set(
            -EINVAL, "%s: tensor %s has type %s and %" PRIu64 " bytes; expected U8, at most %d",
            model_safetensors_path(state.shard), state.tensor->name, state.tensor->dtype_name,
            state.tensor->bytes, STATE_BYTES_MAX);
    }
    int rc = read_whole(&state, text);
    if (rc == 0) {
        snprintf(source, sizeof source, "%s", state.tensor->name);
        rc = core_json_parse(text, state.tensor->bytes, source, NULL, &doc);
    }
    if (rc == 0 && core_json_kind(core_json_root(doc)) != CORE_JSON_OBJECT) {
        rc = core_err_set(-EINVAL, "%s is not an object", source);
    }
    if (rc == 0) {
        rc = parse_state(doc, codes, out);
        rc = rc == -ENOENT ? -EINVAL : rc;
    }
    core_json_destroy(doc);
    return rc == 0 ? 0 : core_err_prefix(rc, "%s", model_safetensors_path(state.shard));
}

static int open_nf4(const struct model_codes *codes, struct nf4 *out)
{
    *out = (struct nf4){
        .codes = find(codes, "", 0), .absmax = find(codes, ".absmax", 0), .nested_block = 1};
    if (out->absmax.tensor != NULL && out->absmax.tensor->dtype == MODEL_OTHER) {
        out->nested = find(codes, ".nested_absmax", 0);
        out->map = find(codes, ".nested_quant_map", 0);
        if (out->nested.tensor == NULL) {
            return core_err_set(-EINVAL,
                                "%s has no tensor nested_absmax of the quantised tensor %s",
                                model_files_folder(codes->files), codes->name);
        }
    }
    return read_state(codes, out);
}

static bool has_values(const struct found *found, const float *values, size_t count)
{
    float read[MAP_CODES];
    return has_type(found, "F32") && found->tensor->bytes == count * sizeof *values &&
           read_whole(found, read) == 0 && memcmp(read, values, count * sizeof *values) == 0;
}

/* Returns whether KERN_QUANT_NF4 can store the scales unchanged. */
static bool is_own(const struct nf4 *nf4)
{
    return nf4->nested.tensor != NULL && nf4->block == KERN_NF4_BLOCK &&
           nf4->nested_block == KERN_NF4_NESTED && has_values(&nf4->map, map_values, MAP_CODES);
}

static int check_nf4(const struct model_codes *codes)
{
    const uint64_t elements = (uint64_t)(codes->rows * codes->cols);
    const struct found table = find(codes, ".quant_map", 0);
    struct nf4 nf4;
    int rc = open_nf4(codes, &nf4);
    if (rc != 0) {
        return rc;
    }
    const bool nested = nf4.nested.tensor != NULL;
    const uint64_t scales = groups(elements, nf4.block);
    rc = check_bytes(codes, &nf4.codes, "weight", "U8", (elements + 1) / 2);
    if (rc == 0) {
        rc = check_bytes(codes, &nf4.absmax, "absmax", nested ? "U8" : "F32",
                         nested ? scales : scales * sizeof(float));
    }
    if (rc == 0 && nested) {
        rc = check_bytes(codes, &nf4.nested, "nested_absmax", "F32",
                         groups(scales, nf4.nested_block) * sizeof(float));
    }
    if (rc == 0 && nested) {
        rc = check_bytes(codes, &nf4.map, "nested_quant_map", "F32", sizeof map_values);
    }
    if (rc == 0 && table.tensor != NULL && !has_values(&table, nf4_values, NF4_CODES)) {
        return core_err_set(-EINVAL, "%s: tensor %s has other values than those of nf4",
                            model_safetensors_path(table.shard), table.tensor->name);
    }
    if (rc == 0 && codes->quant == KERN_QUANT_NF4 && !is_own(&nf4)) {
        return core_err_set(-EINVAL, "%s: the scales of %s have changed since config.json was read",
                            model_files_folder(codes->files), codes->name);
    }
    return rc;
}

struct raw_scales {
    void *absmax;  /* owned */
    float *nested; /* owned */
    float map[MAP_CODES];
};

/* Returns false if a scale is not finite. */
static bool widen_scales(const struct nf4 *nf4, const struct raw_scales *raw, int64_t count,
                         float *to)
{
    const uint8_t *scale_codes = raw->absmax;
    const float *scales = raw->absmax;
    bool finite = true;
    for (int64_t i = 0; i < count; i++) {
        const int64_t at = i * KERN_NF4_BLOCK / nf4->block;
        to[i] = nf4->nested.tensor == NULL
                    ? scales[at]
                    : raw->map[scale_codes[at]] * raw->nested[at / nf4->nested_block] + nf4->offset;
        finite = finite && isfinite(to[i]);
    }
    return finite;
}

static bool are_finite(const float *values, uint64_t count)
{
    bool finite = true;
    for (uint64_t i = 0; i < count; i++) {
        finite = finite && isfinite(values[i]);
    }
    return finite;
}

static int refuse_scales(const struct model_codes *codes, const struct found *found)
{
    return core_err_set(-EINVAL, "%s: tensor %s has scales that are not finite",
                        model_safetensors_path(found->shard), codes->name);
}

static int copy_nested(const struct model_codes *codes, const struct nf4 *nf4,
                       const struct kern_quant_layout *layout, uint8_t *to)
{
    float *floats = (float *)(void *)(to + (layout->nested - layout->scales));
    const uint64_t count = nf4->nested.tensor->bytes / sizeof *floats;
    int rc = read_whole(&nf4->absmax, to);
    if (rc == 0) {
        rc = read_whole(&nf4->nested, floats);
    }
    floats[count] = nf4->offset;
    return rc == 0 && !are_finite(floats, count + 1) ? refuse_scales(codes, &nf4->nested) : rc;
}

static int read_wide(const struct model_codes *codes, const struct nf4 *nf4, int64_t count,
                     float *to)
{
    const bool nested = nf4->nested.tensor != NULL;
    struct raw_scales raw = {
        .absmax = malloc(nf4->absmax.tensor->bytes + sizeof(float)),
        .nested = malloc((nested ? nf4->nested.tensor->bytes : 0) + sizeof(float))};
    int rc = raw.absmax != NULL && raw.nested != NULL
                 ? read_whole(&nf4->absmax, raw.absmax)
                 : core_err_set(-ENOMEM, "no memory for the scales of %s", codes->name);
    if (rc == 0 && nested) {
        rc = read_whole(&nf4->nested, raw.nested);
    }
    if (rc == 0 && nested) {
        rc = read_whole(&nf4->map, raw.map);
    }
    if (rc == 0 && !widen_scales(nf4, &raw, count, to)) {
        rc = refuse_scales(codes, &nf4->absmax);
    }
    free(raw.absmax);
    free(raw.nested);
    return rc;
}

/* ---- int8 ---- */

static int check_int8(const struct model_codes *codes)
{
    const struct found weights = find(codes, "", 0);
    const struct found scales = find(codes, ".SCB", sizeof ".weight" - 1);
    const struct found format = find(codes, ".weight_format", sizeof ".weight" - 1);
    uint8_t row_major = 0;
    int rc = check_bytes(codes, &weights, "weight", "I8", (uint64_t)(codes->rows * codes->cols));
    if (rc == 0) {
        rc = check_bytes(codes, &scales, "SCB", "F32", (uint64_t)codes->rows * sizeof(float));
    }
    if (rc == 0 && format.tensor != NULL) {
        rc = check_bytes(codes, &format, "weight_format", "U8", 1);
        if (rc == 0) {
            rc = read_whole(&format, &row_major);
        }
    }
    return rc == 0 && row_major != 0
               ? core_err_set(-EINVAL,
                              "%s: tensor %s is %u; expected 0, int8 weights by rows (newer "
                              "versions of bitsandbytes write no others)",
                              model_safetensors_path(format.shard), format.tensor->name, row_major)
               : rc;
}

static int read_int8_scales(const struct model_codes *codes, uint8_t *to)
{
    const struct found scales = find(codes, ".SCB", sizeof ".weight" - 1);
    const int rc = read_whole(&scales, to);
    return rc == 0 && !are_finite((const float *)(const void *)to, (uint64_t)codes->rows)
               ? refuse_scales(codes, &scales)
               : rc;
}

/* ---- both forms ---- */

int model_codes_check(const struct model_codes *codes)
{
    return codes->quant == KERN_QUANT_INT8 ? check_int8(codes) : check_nf4(codes);
}

int model_codes_read(const struct model_codes *codes, uint64_t begin, uint64_t bytes, uint8_t *to)
{
    const struct found found = find(codes, "", 0);
    return model_safetensors_read(found.shard, found.tensor, begin, to, bytes);
}

int model_codes_read_scales(const struct model_codes *codes, uint8_t *to)
{
    const struct kern_quant_layout layout = kern_quant_layout_of(codes->quant, KERN_F32,
                                                                 codes->rows, codes->cols);
    struct nf4 nf4;
    memset(to, 0, layout.bytes - layout.scales);
    if (codes->quant == KERN_QUANT_INT8) {
        return read_int8_scales(codes, to);
    }
    const int rc = open_nf4(codes, &nf4);
    if (rc != 0) {
        return rc;
    }
    return codes->quant == KERN_QUANT_NF4
               ? copy_nested(codes, &nf4, &layout, to)
               : read_wide(codes, &nf4, layout.scale_count, (float *)(void *)to);
}

bool model_codes_weights_name(const char *name, char *out, size_t bytes)
{
    static const char *const ends[] = {".weight.absmax",
                                       ".weight.quant_map",
                                       ".weight.nested_absmax",
                                       ".weight.nested_quant_map",
                                       ".weight.quant_state.bitsandbytes__nf4",
                                       ".SCB",
                                       ".weight_format"};
    const size_t length = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        const size_t tail = strlen(ends[i]);
        if (length > tail && strcmp(name + length - tail, ends[i]) == 0) {
            snprintf(out, bytes, "%.*s.weight", (int)(length - tail), name);
            return true;
        }
    }
    return false;
}

/* ---- finding a tensor's codes ---- */

static bool has_codes(const struct model_codes *codes)
{
    const struct found found = find(codes, "", 0);
    return found.tensor == NULL || has_type(&found, codes->quant == KERN_QUANT_INT8 ? "I8" : "U8");
}

void model_codes_find(const char *folder, struct model_config *config)
{
    struct model_files *files = NULL;
    struct model_linear linear = {.next = 0};
    bool own = true;
    if (config->quant == KERN_QUANT_NONE || model_files_open(folder, &files) != 0) {
        return;
    }
    while (model_linear_next(config, &linear)) {
        const struct model_codes codes = {.files = files,
                                          .name = linear.name,
                                          .quant = config->quant,
                                          .rows = linear.rows,
                                          .cols = linear.cols};
        const bool has = has_codes(&codes);
        config->whole[linear.layer] &= ~linear.bit;
        config->whole[linear.layer] |= has ? 0 : linear.bit;
        if (has && own && config->quant == KERN_QUANT_NF4) {
            struct nf4 nf4;
            own = open_nf4(&codes, &nf4) != 0 || is_own(&nf4);
        }
    }
    model_files_close(files);
    if (!own) {
        core_log(CORE_LOG_INFO,
                 "%s: the codes of the scales are not those that tide stores; scales are kept as "
                 "fp32, 0.5625 bytes per weight instead of 0.516",
                 folder);
        config->quant = KERN_QUANT_NF4_F32;
    }
}
