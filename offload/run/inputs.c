/* inputs.c: lays out the inputs: arrays per micro-batch, then losses, scale and tables. */
#include "offload/run/inputs.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/size.h"
#include "core/dev/dev.h"
#include "offload/run/shapes.h"

enum { IDS, LABELS, POSITIONS, STARTS, ARRAYS };
enum { ALIGN_BYTES = 256 };

static uint64_t array_bytes(int64_t rows, int64_t length)
{
    return core_round_up((uint64_t)(rows * length) * sizeof(int32_t), ALIGN_BYTES);
}

static uint64_t losses_bytes(uint32_t micro_batches)
{
    return core_round_up((uint64_t)micro_batches * sizeof(struct kern_loss), ALIGN_BYTES);
}

static uint64_t step_bytes(const struct run_options *options)
{
    return options->micro_batches * ARRAYS * array_bytes(options->rows, options->length) +
           losses_bytes(options->micro_batches) + ALIGN_BYTES;
}

/* Returns a table's bytes, with a row for each position. */
static uint64_t angles_bytes(const struct model *model, int64_t length)
{
    const struct model_config *config = &model->config;
    const uint64_t floats = (uint64_t)length * (uint64_t)config->rope.rotary / 2;
    return config->family->rope ? core_round_up(floats * sizeof(float), ALIGN_BYTES) : 0;
}

static int64_t row_length(const struct run_options *options)
{
    return options->pairs > 0 ? options->row_length : options->length;
}

uint64_t run_inputs_bytes(const struct model *model, const struct run_options *options)
{
    return step_bytes(options) + 2 * angles_bytes(model, row_length(options));
}

static uint64_t array_offset(const struct run_inputs *inputs, uint32_t micro, int array)
{
    return (micro * (uint64_t)ARRAYS + (uint64_t)array) * array_bytes(inputs->rows, inputs->length);
}

static int32_t *host_array(const struct run_inputs *inputs, uint32_t micro, int array)
{
    return (int32_t *)(void *)(inputs->host + array_offset(inputs, micro, array));
}

static uint64_t losses_offset(const struct run_inputs *inputs)
{
    return array_offset(inputs, inputs->micro_batches, 0);
}

static uint64_t scale_offset(const struct run_inputs *inputs)
{
    return losses_offset(inputs) + losses_bytes(inputs->micro_batches);
}

/* ---- creating the buffers ---- */

static int copy_and_wait(const struct run_inputs *inputs, struct dev_queue *queue,
                         const struct dev_copy *move)
{
    struct core_fence done = {0};
    int rc = dev_queue_copy(queue, move, &done);
    while (rc == -EAGAIN) {
        rc = core_fence_wait_moving(dev_queue_tail(queue), inputs->stall_limit_ns);
        if (rc == 0) {
            rc = dev_queue_copy(queue, move, &done);
        }
    }
    return rc != 0 ? rc : core_fence_wait_moving(done, inputs->stall_limit_ns);
}

static int send_angles(struct run_inputs *inputs, struct dev_queue *queue)
{
    const struct model_config *config = &inputs->model->config;
    const uint64_t bytes = inputs->angles_bytes;
    float *tables = calloc(2, bytes);
    if (tables == NULL) {
        return core_err_set(-ENOMEM, "no memory for the angles of %" PRId64 " positions",
                            inputs->row_length);
    }
    float *sines = (float *)(void *)((char *)tables + bytes);
    const struct dev_copy move = {.direction = DEV_COPY_UP,
                                  .to = inputs->device_base + inputs->step_bytes,
                                  .from = tables,
                                  .bytes = 2 * bytes};
    int rc = kern_rope_build(&config->rope, inputs->row_length, inputs->row_length, tables, sines);
    if (rc == 0) {
        rc = copy_and_wait(inputs, queue, &move);
    }
    free(tables);
    return rc;
}

int run_inputs_init(struct run_inputs *inputs, const struct model *model,
                    const struct run_options *options, struct dev_device *device,
                    struct dev_queue *queue)
{
    *inputs = (struct run_inputs){
        .model = model,
        .device = device,
        .stall_limit_ns = run_options_stall_ns(options),
        .rows = options->rows,
        .length = options->length,
        .pairs = options->pairs,
        .row_length = row_length(options),
        .micro_batches = options->micro_batches,
        .rope = model->config.family->rope,
        .step_bytes = step_bytes(options),
        .angles_bytes = angles_bytes(model, row_length(options)),
        .table = run_shapes_rows(model, options),
    };
    void *base = NULL;
    int rc = dev_memory_alloc(device, run_inputs_bytes(model, options), &base);
    inputs->device_base = base;
    inputs->host = calloc(1, inputs->step_bytes);
    inputs->given = calloc(inputs->micro_batches, sizeof *inputs->given);
    inputs->places = calloc(inputs->micro_batches, sizeof *inputs->places);
    inputs->positions = calloc(inputs->micro_batches, sizeof *inputs->positions);
    inputs->starts = calloc(inputs->micro_batches, sizeof *inputs->starts);
    if (rc == 0 && (inputs->host == NULL || inputs->given == NULL || inputs->places == NULL ||
                    inputs->positions == NULL || inputs->starts == NULL)) {
        rc = core_err_set(-ENOMEM, "no memory for %u micro-batches of %" PRId64 " tokens",
                          inputs->micro_batches, inputs->rows * inputs->length);
    }
    if (rc == 0 && inputs->rope) {
        rc = send_angles(inputs, queue);
    }
    if (rc != 0) {
        run_inputs_fini(inputs);
    }
    return rc;
}

int run_inputs_use_rows(struct run_inputs *inputs)
{
    const uint64_t each = inputs->table.ranges_max;
    inputs->used = calloc(inputs->micro_batches, sizeof *inputs->used);
    inputs->ranges = calloc(inputs->micro_batches * each, sizeof *inputs->ranges);
    inputs->sorted = calloc((size_t)inputs->table.tokens, sizeof *inputs->sorted);
    if (inputs->used == NULL || inputs->ranges == NULL || inputs->sorted == NULL) {
        return core_err_set(-ENOMEM, "no memory for the rows of %u micro-batches",
                            inputs->micro_batches);
    }
    for (uint32_t i = 0; i < inputs->micro_batches; i++) {
        inputs->used[i].ranges = inputs->ranges + i * each;
    }
    return 0;
}

void run_inputs_fini(struct run_inputs *inputs)
{
    if (inputs->device_base != NULL) {
        dev_memory_free(inputs->device, inputs->device_base);
    }
    free(inputs->host);
    free(inputs->given);
    free(inputs->places);
    free(inputs->positions);
    free(inputs->starts);
    free(inputs->used);
    free(inputs->ranges);
    free(inputs->sorted);
    *inputs = (struct run_inputs){0};
}

/* ---- the inputs of a step ---- */

/* Returns the number of rows as given: two for each pair. */
static int64_t given_rows(const struct run_inputs *inputs)
{
    return inputs->pairs > 0 ? 2 * inputs->pairs : inputs->rows;
}

/* Copies rows of `width` into rows of the inputs' length, filled up with `padding`. */
static void copy_rows(int32_t *to, const struct run_inputs *inputs, const int32_t *from,
                      int64_t rows, int64_t width, int32_t padding)
{
    for (int64_t r = 0; r < inputs->rows; r++) {
        const int64_t given = r < rows ? width : 0;
        for (int64_t i = 0; i < inputs->length; i++) {
            *to++ = i < given ? from[r * width + i] : padding;
        }
    }
}

static int check_shape(const struct run_inputs *inputs, const struct model_batch *batch)
{
    if (batch->rows > given_rows(inputs) || batch->length > inputs->row_length || batch->rows < 1 ||
        batch->length < 1) {
        return core_err_set(-EINVAL,
                            "a micro-batch of %" PRId64 " rows of %" PRId64
                            " tokens does not fit into %" PRId64 " rows of %" PRId64,
                            batch->rows, batch->length, given_rows(inputs), inputs->row_length);
    }
    if (inputs->pairs > 0 && batch->rows % 2 != 0) {
        return core_err_set(
            -EINVAL, "a micro-batch has %" PRId64 " rows; with dpo it needs two for each pair",
            batch->rows);
    }
    if (inputs->pairs > 0 && (batch->positions != NULL || batch->starts != NULL)) {
        return core_err_set(-EINVAL, "rows of pairs (dpo) have neither positions nor starts");
    }
    for (int64_t t = 0; batch->positions != NULL && t < batch->rows * batch->length; t++) {
        if (batch->positions[t] >= inputs->row_length) {
            return core_err_set(-EINVAL,
                                "token %" PRId64 " of row %" PRId64 " has position %" PRId32
                                "; expected a position below %" PRId64 ", the length of a row",
                                t % batch->length, t / batch->length, batch->positions[t],
                                inputs->row_length);
        }
    }
    return model_batch_check(batch, &inputs->model->config);
}

/* Replaces ids by the places of their rows. */
static void place_ids(struct run_inputs *inputs, uint32_t micro)
{
    int32_t *ids = host_array(inputs, micro, IDS);
    struct model_rows_used *used = inputs->used != NULL ? &inputs->used[micro] : NULL;
    if (used != NULL) {
        model_rows_use(&inputs->table, ids, inputs->sorted, used);
    }
    if (inputs->table.stride > 0) {
        model_rows_place(&inputs->table, used, ids);
    }
}

/* Shifts the labels, too. Returns the number of targets, or -errno. */
static int64_t put_rows(struct run_inputs *inputs, uint32_t micro, const struct model_batch *from)
{
    int32_t *labels = host_array(inputs, micro, LABELS);
    const int32_t *given = from->labels != NULL ? from->labels : from->ids;
    copy_rows(host_array(inputs, micro, IDS), inputs, from->ids, from->rows, from->length, 0);
    copy_rows(labels, inputs, given, from->rows, from->length, KERN_LABEL_IGNORED);
    inputs->positions[micro] = from->positions != NULL;
    inputs->starts[micro] = from->starts != NULL;
    if (from->positions != NULL) {
        copy_rows(host_array(inputs, micro, POSITIONS), inputs, from->positions, from->rows,
                  from->length, 0);
    }
    struct model_batch whole = {
        .rows = inputs->rows, .length = inputs->length, .ids = host_array(inputs, micro, IDS)};
    if (from->starts != NULL) { /* padding is a separate document */
        int32_t *starts = host_array(inputs, micro, STARTS);
        copy_rows(starts, inputs, from->starts, from->rows, from->length, 0);
        for (int64_t r = 0; r < from->rows; r++) {
            for (int64_t i = from->length; i < inputs->length; i++) {
                starts[r * inputs->length + i] = (int32_t)from->length;
            }
        }
        whole.starts = starts;
    }
    /* A label is read before it is overwritten. */
    whole.labels = labels;
    return model_batch_shift(&whole, labels);
}

/* Joins the rows of each pair, and repeats them for the reference. Returns the number of pairs with
 * targets in both rows, or -errno. */
static int64_t put_pairs(struct run_inputs *inputs, uint32_t micro, const struct model_batch *from)
{
    const int64_t count = inputs->pairs * inputs->length;
    const struct model_pair_rows rows = {.pairs = inputs->pairs,
                                         .length = inputs->length,
                                         .ids = host_array(inputs, micro, IDS),
                                         .labels = host_array(inputs, micro, LABELS),
                                         .positions = host_array(inputs, micro, POSITIONS),
                                         .gaps = host_array(inputs, micro, STARTS)};
    const int64_t targets = model_batch_put_pairs(from, &rows);
    for (int array = IDS; array <= POSITIONS; array++) {
        int32_t *first = host_array(inputs, micro, array);
        memcpy(first + count, first, (size_t)count * sizeof *first);
    }
    inputs->positions[micro] = true;
    return targets;
}

bool run_inputs_has(const struct run_inputs *inputs, uint32_t micro)
{
    return inputs->given[micro] || micro + 1 == inputs->micro_batches;
}

int run_inputs_write(struct run_inputs *inputs, uint32_t micro, const struct model_batch *batch,
                     int64_t *targets)
{
    static const struct model_batch nothing = {0};
    int rc = batch != NULL ? check_shape(inputs, batch) : 0;
    if (rc != 0) {
        return rc;
    }
    const struct model_batch *from = batch != NULL ? batch : &nothing;
    const int64_t count = inputs->pairs > 0 ? put_pairs(inputs, micro, from)
                                            : put_rows(inputs, micro, from);
    if (count < 0) {
        return (int)count;
    }
    *targets += count;
    inputs->given[micro] = batch != NULL;
    inputs->places[micro] = micro == 0 ? 0 : inputs->places[micro - 1] + inputs->given[micro - 1];
    place_ids(inputs, micro);
    return 0;
}

int run_inputs_send(struct run_inputs *inputs, struct dev_queue *queue, float scale, uint64_t seed)
{
    char *at = inputs->host + scale_offset(inputs);
    _Static_assert((int)MODEL_SCALE_BYTES <= (int)ALIGN_BYTES, "scale and seed have one unit");
    memcpy(at, &scale, sizeof scale);
    memcpy(at + MODEL_SCALE_SEED_AT, &seed, sizeof seed);
    const struct dev_copy move = {.direction = DEV_COPY_UP,
                                  .to = inputs->device_base,
                                  .from = inputs->host,
                                  .bytes = inputs->step_bytes};
    return copy_and_wait(inputs, queue, &move);
}

void run_inputs_bind(const struct run_inputs *inputs, uint32_t micro, struct model_binding *binding)
{
    char *device = inputs->device_base;
    char *angles = device + inputs->step_bytes;
    binding->base[MODEL_BASE_IDS] = device + array_offset(inputs, micro, IDS);
    binding->base[MODEL_BASE_LABELS] = device + array_offset(inputs, micro, LABELS);
    binding->base[MODEL_BASE_POSITIONS] = inputs->positions[micro]
                                              ? device + array_offset(inputs, micro, POSITIONS)
                                              : NULL;
    binding->base[MODEL_BASE_STARTS] = inputs->starts[micro]
                                           ? device + array_offset(inputs, micro, STARTS)
                                           : NULL;
    binding->base[MODEL_BASE_GAPS] = inputs->pairs > 0
                                         ? device + array_offset(inputs, micro, STARTS)
                                         : NULL;
    binding->base[MODEL_BASE_COS] = inputs->rope ? angles : NULL;
    binding->base[MODEL_BASE_SIN] = inputs->rope ? angles + inputs->angles_bytes : NULL;
    binding->base[MODEL_BASE_LOSS] = device + losses_offset(inputs) +
                                     micro * sizeof(struct kern_loss);
    binding->base[MODEL_BASE_SCALE] = device + scale_offset(inputs);
}

/* Returns the bytes from one micro-batch's rows in a group to the next one's. */
static uint64_t rows_stride(const struct run_inputs *inputs)
{
    return (uint64_t)inputs->table.pages_max * MODEL_PAGE_BYTES;
}

void run_inputs_bind_rows(const struct run_inputs *inputs, uint32_t micro, const char *slot,
                          struct model_binding *binding)
{
    const struct model_block *embedding = &inputs->model->blocks[0];
    const int positions = model_block_param(embedding, MODEL_POSITION_TABLE);
    if (inputs->used == NULL) {
        return;
    }
    binding->weights[model_block_param(embedding, MODEL_TOKEN_TABLE)] = slot;
    if (positions >= 0) {
        binding->weights[positions] = slot + inputs->used[micro].positions_at;
    }
}

bool run_inputs_next_rows(const struct run_inputs *inputs, uint32_t first, uint32_t count,
                          struct run_rows_cursor *cursor, struct run_rows_part *out)
{
    for (; cursor->micro < count; cursor->micro++, cursor->range = 0) {
        const struct model_rows_used *used = &inputs->used[first + cursor->micro];
        for (; cursor->range < used->count; cursor->range++, cursor->done = 0) {
            const struct model_pages *pages = &used->ranges[cursor->range];
            const uint64_t bytes = (uint64_t)pages->count * MODEL_PAGE_BYTES;
            if (cursor->done < bytes) {
                *out = (struct run_rows_part){
                    .from = (uint64_t)pages->first * MODEL_PAGE_BYTES + cursor->done,
                    .to = cursor->micro * rows_stride(inputs) +
                          (uint64_t)pages->at * MODEL_PAGE_BYTES + cursor->done,
                    .bytes = bytes - cursor->done};
                return true;
            }
        }
    }
    return false;
}

uint64_t run_inputs_rows_bytes(const struct run_inputs *inputs, uint32_t first, uint32_t count)
{
    uint64_t bytes = 0;
    for (uint32_t i = first; i < first + count; i++) {
        bytes += (uint64_t)inputs->used[i].pages * MODEL_PAGE_BYTES;
    }
    return bytes;
}

int run_inputs_losses(struct run_inputs *inputs, struct dev_queue *queue, uint32_t count,
                      struct kern_loss *out)
{
    char *host = inputs->host + losses_offset(inputs);
    const struct dev_copy move = {.direction = DEV_COPY_DOWN,
                                  .to = host,
                                  .from = inputs->device_base + losses_offset(inputs),
                                  .bytes = count * sizeof(struct kern_loss)};
    struct kern_loss sum = {0};
    int rc = copy_and_wait(inputs, queue, &move);
    if (rc != 0) {
        return rc;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct kern_loss one;
        if (!run_inputs_has(inputs, i)) {
            continue;
        }
        memcpy(&one, host + i * sizeof one, sizeof one);
        sum.sum += one.sum;
        sum.count += one.count;
        sum.chosen += one.chosen;
        sum.rejected += one.rejected;
        sum.right += one.right;
    }
    *out = sum;
    return 0;
}
