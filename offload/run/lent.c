/* lent.c: keeps one `adam` per parameter, numbered by the parameter, so that random numbers do not
 * depend on the blocks. */
#include "offload/run/lent.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/half.h"
#include "core/base/hash.h"

struct plan_span run_lent_overlap(const struct run_lent_part *part, uint64_t first, uint64_t count)
{
    return plan_span_overlap((struct plan_span){part->first, part->count},
                             (struct plan_span){first, count});
}

void run_lent_begin_masters(const struct run_lent_block *block, const struct run_lent_part *part,
                            const struct adam_arrays *chunk)
{
    const struct plan_span span = run_lent_overlap(part, chunk->first, chunk->count);
    const uint64_t at = span.first - chunk->first;
    if (span.count == 0) {
        return;
    }
    if (chunk->lo16 != NULL) {
        memset(chunk->lo16 + at, 0, span.count * sizeof *chunk->lo16);
    }
    if (block->master == CORE_UPDATE_MASTER_FP16) {
        core_fp16_widen(part->weights + (span.first - part->first) * sizeof(uint16_t), span.count,
                        chunk->w32 + at);
    }
}

int run_lent_adam_create(const struct run_lent *lent, const struct run_lent_block *block,
                         const struct run_lent_part *part, const struct run_options *options,
                         struct core_team *team, struct adam **out)
{
    struct adam_group group = options->group;
    group.step = 1;
    const struct adam_options adam = {
        .rule = options->rule,
        .master = block->master,
        .gradients = lent->sums ? CORE_UPDATE_F32 : block->gradients,
        .moments = options->moments,
        .count = part->whole,
        .groups = &group,
        .groups_count = 1,
        .seed = options->seed,
        .number = part->index,
        .team = team,
    };
    return adam_create(&adam, out);
}

static char *advance(void *array, uint64_t bytes)
{
    return array != NULL ? (char *)array + bytes : NULL;
}

struct adam_arrays run_lent_states(const struct run_lent_part *part,
                                   const struct plan_format *format,
                                   const struct adam_arrays *chunk, struct plan_span span)
{
    const uint64_t skipped = span.first - chunk->first;
    const uint64_t inside = span.first - part->first;
    char *weights = part->weights + inside * format->weight_bytes;
    struct adam_arrays arrays = {
        .first = part->inside + inside,
        .count = span.count,
        .m = advance(chunk->m, skipped * format->m_bytes),
        .v = advance(chunk->v, skipped * format->v_bytes),
        .lo16 = (uint16_t *)(void *)advance(chunk->lo16, skipped * sizeof *chunk->lo16),
        .w32 = (float *)(void *)advance(chunk->w32, skipped * sizeof *chunk->w32)};
    if (format->q8_block > 0) {
        const uint64_t scales = skipped / format->q8_block * sizeof *chunk->m_scale;
        arrays.m_scale = (float *)(void *)advance(chunk->m_scale, scales);
        arrays.v_scale = (float *)(void *)advance(chunk->v_scale, scales);
    }
    if (format->master_bytes == 0) {
        arrays.w32 = (float *)(void *)weights;
    } else {
        arrays.w16 = (uint16_t *)(void *)weights;
    }
    return arrays;
}

/* ---- gradients that change while they are borrowed ---- */

static uint64_t gradient_bytes(const struct run_lent_block *block, const struct run_lent_part *part)
{
    return part->count * (block->gradients == CORE_UPDATE_F32 ? sizeof(float) : sizeof(uint16_t));
}

uint64_t run_lent_seal(const struct run_lent_block *block, const struct run_lent_part *part)
{
    return core_hash(part->gradient, gradient_bytes(block, part), part->index);
}

static bool is_mapped(const char *at, uint64_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t into = (uintptr_t)at % page;
    return msync((void *)((uintptr_t)at - into), bytes + into, MS_ASYNC) == 0;
}

static int check_gradient(const struct run_lent *lent, const struct block *block,
                          const struct run_lent_block *of, const struct run_lent_part *part)
{
    if (!lent->checks || part->gradient == NULL) {
        return 0;
    }
    const char *name = block->tensors[part - of->parts].name;
    if (!is_mapped(part->gradient, gradient_bytes(of, part))) {
        return core_err_set(-EFAULT,
                            "the gradient of %s at %p was freed before the token of its "
                            "tide_optim_submit was reached",
                            name, (const void *)part->gradient);
    }
    return run_lent_seal(of, part) == part->seal
               ? 0
               : core_err_set(-EFAULT,
                              "the gradient of %s at %p was written to or freed before the token "
                              "of its tide_optim_submit was reached",
                              name, (const void *)part->gradient);
}

/* ---- the update ---- */

struct run_lent_update {
    const struct run_lent *lent; /* borrowed, like the next two members */
    const struct blocks *blocks;
    const struct adam_norm *norm;
    struct adam **adams; /* owned, [lent->part_count]: by index of the parameter */
    /* owned: room for the parameters of any block */
    struct adam_norm_piece *pieces;
};

static int make(struct run_lent_update *update, const struct run_options *options)
{
    size_t most = 1;
    int rc = 0;
    for (uint32_t b = 0; b < update->blocks->count; b++) {
        const size_t count = update->lent->blocks[b].part_count;
        most = count > most ? count : most;
    }
    update->pieces = calloc(most, sizeof *update->pieces);
    update->adams = calloc(update->lent->part_count, sizeof(*update->adams));
    if (update->pieces == NULL || update->adams == NULL) {
        return core_err_set(-ENOMEM, "no memory for the optimizer of %zu parameters",
                            update->lent->part_count);
    }
    for (uint32_t b = 0; rc == 0 && b < update->blocks->count; b++) {
        const struct run_lent_block *block = &update->lent->blocks[b];
        for (size_t i = 0; rc == 0 && i < block->part_count; i++) {
            rc = run_lent_adam_create(update->lent, block, &block->parts[i], options,
                                      update->norm->team, &update->adams[block->parts[i].index]);
        }
    }
    return rc;
}

int run_lent_update_create(const struct run_lent *lent, const struct blocks *blocks,
                           const struct adam_norm *norm, const struct run_options *options,
                           struct run_lent_update **out)
{
    struct run_lent_update *update = calloc(1, sizeof *update);
    if (update == NULL) {
        return core_err_set(-ENOMEM, "no memory for the update of an application's parameters");
    }
    update->lent = lent;
    update->blocks = blocks;
    update->norm = norm;
    int rc = make(update, options);
    if (rc != 0) {
        run_lent_update_destroy(update);
        return rc;
    }
    *out = update;
    return 0;
}

void run_lent_update_destroy(struct run_lent_update *update)
{
    if (update == NULL) {
        return;
    }
    for (size_t i = 0; update->adams != NULL && i < update->lent->part_count; i++) {
        adam_destroy(update->adams[i]);
    }
    free(update->adams);
    free(update->pieces);
    free(update);
}

int run_lent_sums(struct run_lent_update *update, uint32_t block, const char *sum, double *tiles)
{
    const struct run_lent_block *lent = &update->lent->blocks[block];
    const bool sums = update->lent->sums;
    struct adam_norm_pieces of = {.list = update->pieces,
                                  .type = sums ? CORE_UPDATE_F32 : lent->gradients,
                                  .count = update->blocks->list[block].elements,
                                  .sums = tiles};
    for (size_t i = 0; i < lent->part_count; i++) {
        const struct run_lent_part *part = &lent->parts[i];
        int rc = check_gradient(update->lent, &update->blocks->list[block], lent, part);
        if (rc != 0) {
            return rc;
        }
        if (part->gradient != NULL) {
            update->pieces[of.list_count++] = (struct adam_norm_piece){
                .x = sums ? sum + part->first * sizeof(float) : part->gradient,
                .first = part->first,
                .count = part->count};
        }
    }
    return adam_norm_sums_apart(update->norm, &of);
}

/* The gradient is in the part's own array, or in the chunk's sums. */
static const char *gradient_of(const struct run_lent_part *part, const struct plan_format *format,
                               const struct adam_arrays *chunk, bool sums, struct plan_span span)
{
    return sums ? (const char *)chunk->g + (span.first - chunk->first) * format->grad_bytes
                : part->gradient + (span.first - part->first) * format->grad_bytes;
}

int run_lent_step(struct run_lent_update *update, uint32_t block, const struct plan_format *format,
                  const struct run_lent_step *step)
{
    const struct run_lent_block *lent = &update->lent->blocks[block];
    const struct adam_arrays *chunk = step->chunk;
    int rc = 0;
    if (step->tiles != NULL) { /* the last tile may consist of padding */
        assert(lent->part_count == 1);
        memset(step->tiles, 0, plan_chunk_count(chunk->count, CORE_UPDATE_TILE) * sizeof(double));
    }
    for (size_t i = 0; rc == 0 && i < lent->part_count; i++) {
        const struct run_lent_part *part = &lent->parts[i];
        const struct plan_span span = run_lent_overlap(part, chunk->first, chunk->count);
        if (part->gradient == NULL || span.count == 0) {
            continue;
        }
        if (span.first == part->first) {
            rc = check_gradient(update->lent, &update->blocks->list[block], lent, part);
        }
        if (rc != 0) {
            return rc;
        }
        struct adam_arrays arrays = run_lent_states(part, format, chunk, span);
        arrays.g = gradient_of(part, format, chunk, update->lent->sums, span);
        struct adam *adam = update->adams[part->index];
        rc = adam_group_set(adam, 0, &step->groups[part->index]);
        if (rc == 0) {
            rc = step->tiles != NULL ? adam_step_sums(adam, &arrays, step->scale, step->tiles)
                                     : adam_step(adam, &arrays, arrays.first,
                                                 arrays.first + arrays.count, step->scale, NULL);
        }
        if (rc == 0 && span.first + span.count == part->first + part->count) {
            rc = check_gradient(update->lent, &update->blocks->list[block], lent, part);
        }
    }
    return rc;
}
