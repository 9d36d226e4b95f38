/* update.c: the update of the reference trainer: norm, clip factor, cpu_adam. */
#include <errno.h>
#include <math.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "tests/reference/parts.h"

/* Keeps the factor below one if the norm equals the limit, like PyTorch and DeepSpeed. */
static const double clip_epsilon = 1e-6;

static int take_norm(struct plain *plain, double *norm)
{
    const enum kern_type type = plain->options.shape.type;
    uint64_t tile = 0;
    for (unsigned i = 0; i < plain->model->block_count; i++) {
        const uint64_t elements = plain->model->blocks[i].elements;
        const struct core_squares_args one = {
            .x = plain_grads(plain, i),
            .type = type == KERN_F32    ? CORE_UPDATE_F32
                    : type == KERN_BF16 ? CORE_UPDATE_BF16
                                        : CORE_UPDATE_FP16,
            .count = elements,
            .sums = plain->tile_sums + tile,
        };
        int rc = adam_norm_sums(&plain->norm, &one);
        if (rc != 0) {
            return rc;
        }
        tile += (elements + CORE_UPDATE_TILE - 1) / CORE_UPDATE_TILE;
    }
    *norm = sqrt(adam_norm_total(plain->tile_sums, plain->tile_count)) /
            (plain->options.loss_scale > 0.0 ? plain->options.loss_scale : 1.0);
    return 0;
}

/* Returns the name of a block with a gradient that is not finite. */
static const char *bad_block(const struct plain *plain)
{
    uint64_t bad = adam_norm_bad_tile(plain->tile_sums, plain->tile_count);
    for (unsigned i = 0; i < plain->model->block_count; i++) {
        const uint64_t tiles = (plain->model->blocks[i].elements + CORE_UPDATE_TILE - 1) /
                               CORE_UPDATE_TILE;
        if (bad < tiles) {
            return plain->model->blocks[i].name;
        }
        bad -= tiles;
    }
    return "no block";
}

static int update_block(struct plain *plain, unsigned index, double lr, double scale)
{
    const struct block *block = &plain->model->flat->list[index];
    const struct adam_arrays arrays = plain_arrays(plain, index);
    struct adam_group group = plain->options.group;
    int rc = 0;
    group.lr = lr;
    group.step = plain->steps + 1;
    for (size_t i = 0; rc == 0 && i < 2; i++) {
        rc = adam_group_set(plain->adams[index], i, &group);
        group.decay = 0.0;
    }
    for (size_t i = 0; rc == 0 && i < block->run_count; i++) {
        const uint64_t begin = i > 0 ? block->runs[i - 1].end : 0;
        rc = adam_step(plain->adams[index], &arrays, begin, block->runs[i].end, scale, NULL);
    }
    return rc;
}

int plain_update(struct plain *plain, double lr, struct plain_result *out)
{
    const int64_t start_ns = core_clock_now_ns();
    const double clip = plain->options.clip;
    double scale = plain->options.loss_scale > 0.0 ? 1.0 / plain->options.loss_scale : 1.0;
    int rc = take_norm(plain, &out->grad_norm);
    if (rc == 0 && !isfinite(out->grad_norm)) {
        out->skipped = plain->options.shape.type == KERN_FP16;
        return out->skipped
                   ? 0
                   : core_err_set(-EDOM, "the gradient of %s is not finite", bad_block(plain));
    }
    const double factor = clip > 0.0 ? clip / (out->grad_norm + clip_epsilon) : 1.0;
    scale *= factor < 1.0 ? factor : 1.0;
    for (unsigned i = 0; rc == 0 && i < plain->model->block_count; i++) {
        if (plain->model->blocks[i].trained) {
            rc = update_block(plain, i, lr, scale);
        }
    }
    plain->steps += rc == 0;
    plain->update_ns += core_clock_now_ns() - start_ns;
    return rc;
}
