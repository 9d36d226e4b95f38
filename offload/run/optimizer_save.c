/* optimizer_save.c: checkpoints of an optimizer: states from where they are kept, weights from the
 * application's arrays, both through one chunk at a time. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "offload/run/checkpoint.h"
#include "offload/run/optimizer_internal.h"
#include "offload/store/shelf.h"

enum { PATH_BYTES = 4096 };

/* One chunk on its way to or from a checkpoint. */
struct carrying {
    struct run_optimizer *optimizer;      /* borrowed */
    struct store_checkpoint_write *write; /* one of the two */
    struct store_checkpoint *read;
    struct run_slots slots;
    char *weights; /* owned: of a chunk, together */
};

/* The counters that the manifest keeps as the application's data: the step of each parameter. */
static int put_counters(const struct run_optimizer *optimizer, struct store_manifest *manifest)
{
    return store_manifest_set_application(manifest, optimizer->updates,
                                          optimizer->parameter_count * sizeof *optimizer->updates);
}

/* ---- chunks ---- */

/* Copies the weights of a chunk between the application's arrays and `together`. */
static void carry_weights(const struct run_optimizer *optimizer, const struct run_chunk *chunk,
                          char *together, bool back)
{
    const struct run_lent_block *block = &optimizer->lent.blocks[chunk->block];
    const uint64_t width = optimizer->input.blocks[chunk->block].format.weight_bytes;
    for (size_t i = 0; i < block->part_count; i++) {
        const struct run_lent_part *part = &block->parts[i];
        const struct plan_span span = run_lent_overlap(part, chunk->first, chunk->count);
        if (span.count > 0) {
            char *own = part->weights + (span.first - part->first) * width;
            char *other = together + (span.first - chunk->first) * width;
            memcpy(back ? own : other, back ? other : own, span.count * width);
        }
    }
}

/* The memory of a chunk's states: where they stay, or a free slot, which is then *slot. */
static int find_states(struct carrying *carrying, const struct run_chunk *chunk,
                       struct run_slot **slot, char **states)
{
    struct run_rank *rank = carrying->optimizer->rank;
    *slot = NULL;
    *states = run_chunk_states_memory(rank, chunk);
    if (*states != NULL) {
        return 0;
    }
    *slot = run_slots_next(&carrying->slots);
    *states = (*slot)->memory + plan_slot_states_offset(carrying->optimizer->plan);
    return run_rank_wait(rank, (*slot)->moved);
}

static int save_chunk(struct carrying *carrying, const struct run_chunk *chunk)
{
    struct run_optimizer *optimizer = carrying->optimizer;
    const struct plan_format *format = &optimizer->input.blocks[chunk->block].format;
    const struct store_place place = {STORE_STATES, chunk->block, chunk->index};
    struct run_slot *slot = NULL;
    char *states = NULL;
    int rc = find_states(carrying, chunk, &slot, &states);
    if (rc == 0 && slot != NULL) {
        rc = run_chunk_get(optimizer->rank, &place, states, &slot->moved);
        rc = rc == 0 ? run_rank_wait(optimizer->rank, slot->moved) : rc;
    }
    if (rc != 0) {
        return rc;
    }
    memset(carrying->weights, 0, chunk->count * format->weight_bytes);
    carry_weights(optimizer, chunk, carrying->weights, false);
    const struct adam_arrays arrays = run_update_arrays(format, chunk->first, chunk->count,
                                                        carrying->weights, states, NULL);
    const struct store_arrays streams = run_checkpoint_streams(&arrays);
    return store_checkpoint_put(carrying->write, chunk->block, chunk->first, chunk->count,
                                &streams);
}

static int load_chunk(struct carrying *carrying, const struct run_chunk *chunk)
{
    struct run_optimizer *optimizer = carrying->optimizer;
    const struct plan_format *format = &optimizer->input.blocks[chunk->block].format;
    const struct store_place place = {STORE_STATES, chunk->block, chunk->index};
    struct run_slot *slot = NULL;
    char *states = NULL;
    int rc = find_states(carrying, chunk, &slot, &states);
    if (rc != 0) {
        return rc;
    }
    const struct adam_arrays arrays = run_update_arrays(format, chunk->first, chunk->count,
                                                        carrying->weights, states, NULL);
    const struct store_arrays streams = run_checkpoint_streams(&arrays);
    rc = store_checkpoint_read(carrying->read, chunk->block, chunk->first, chunk->count, &streams);
    if (rc != 0) {
        return rc;
    }
    carry_weights(optimizer, chunk, carrying->weights, true);
    return slot != NULL ? run_chunk_put(optimizer->rank, &place, states, &slot->moved) : 0;
}

/* Calls `carry` for every chunk. */
static int carry_all(struct carrying *carrying,
                     int (*carry)(struct carrying *carrying, const struct run_chunk *chunk))
{
    const struct run_optimizer *optimizer = carrying->optimizer;
    int rc = 0;
    carrying->weights = malloc(plan_chunk_elements(optimizer->plan) * sizeof(float));
    if (carrying->weights == NULL) {
        return core_err_set(-ENOMEM, "no memory for the weights of a chunk");
    }
    run_slots_init(&carrying->slots, optimizer->rank);
    for (uint32_t b = 0; rc == 0 && b < optimizer->blocks->count; b++) {
        for (uint32_t i = 0; rc == 0 && i < run_chunk_count(optimizer->rank, b); i++) {
            const struct run_chunk chunk = run_chunk_at(optimizer->rank, b, i);
            rc = carry(carrying, &chunk);
        }
    }
    const struct core_err kept = core_err_keep(rc);
    rc = run_slots_wait(optimizer->rank, &carrying->slots);
    free(carrying->weights);
    return core_err_first(&kept, rc);
}

/* ---- saving ---- */

static int check_between_steps(const struct run_optimizer *optimizer)
{
    return !optimizer->open
               ? 0
               : core_err_set(-EBUSY, "an optimizer is saved and loaded between steps; "
                                      "a gradient of the next one has been submitted");
}

/* Refuses a directory with checkpoints of another run, which would be mixed up with this one's. */
static int check_others(const struct run_optimizer *optimizer, const char *directory)
{
    uint64_t *steps = NULL;
    size_t count = 0;
    char path[PATH_BYTES];
    int rc = store_shelf_list(directory, &steps, &count);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        struct store_manifest manifest = {.step = 0};
        store_shelf_path(directory, steps[i], path, sizeof path);
        if (store_checkpoint_peek(path, &manifest) == 0) {
            if (manifest.run != optimizer->run) {
                rc = core_err_set(-EEXIST, "%s has checkpoints of another run", directory);
            }
            store_manifest_fini(&manifest);
        }
    }
    free(steps);
    return rc;
}

static int write_checkpoint(struct run_optimizer *optimizer, struct store_shelf *shelf,
                            uint32_t keep)
{
    const struct run_position position = {.run = optimizer->run,
                                          .steps = optimizer->before + optimizer->steps,
                                          .updates = optimizer->before + optimizer->steps,
                                          .scale = {.value = optimizer->loss_scale}};
    const struct store_checkpoint_options wanted = {
        .shelf = shelf, .keep = keep, .backend = run_options_file_io(&optimizer->options)};
    struct store_manifest manifest = {.step = 0};
    struct carrying carrying = {.optimizer = optimizer};
    run_checkpoint_describe(&optimizer->options, optimizer->blocks, &position, &manifest);
    int rc = put_counters(optimizer, &manifest);
    if (rc != 0) {
        store_manifest_fini(&manifest);
        return rc;
    }
    rc = store_checkpoint_begin(&wanted, &manifest, &carrying.write);
    if (rc != 0) {
        return rc;
    }
    rc = carry_all(&carrying, save_chunk);
    rc = rc == 0 ? store_checkpoint_finish(carrying.write) : rc;
    const struct core_err kept = core_err_keep(rc);
    return core_err_first(&kept, store_checkpoint_end(carrying.write));
}

int run_optimizer_save(struct run_optimizer *optimizer, const char *directory, uint32_t keep)
{
    struct store_shelf *shelf = NULL;
    int rc = check_between_steps(optimizer);
    if (rc != 0) {
        return rc;
    }
    rc = run_optimizer_quiesce(optimizer);
    if (rc != 0) {
        return rc;
    }
    rc = check_others(optimizer, directory);
    if (rc != 0) {
        return rc;
    }
    rc = store_shelf_open(directory, &shelf);
    if (rc != 0) {
        return rc;
    }
    const struct core_err kept = core_err_keep(write_checkpoint(optimizer, shelf, keep));
    store_shelf_close(shelf);
    return core_err_first(&kept, 0);
}

/* ---- loading ---- */

static int take_counters(struct run_optimizer *optimizer, const struct store_manifest *manifest)
{
    const size_t bytes = optimizer->parameter_count * sizeof *optimizer->updates;
    if (manifest->application_bytes != bytes) {
        return core_err_set(
            -EBADMSG, "the checkpoint counts the steps of %zu parameters, not of %zu",
            manifest->application_bytes / sizeof *optimizer->updates, optimizer->parameter_count);
    }
    memcpy(optimizer->updates, manifest->application, bytes);
    optimizer->run = manifest->run;
    optimizer->before = manifest->step - optimizer->steps;
    optimizer->loss_scale = manifest->scale.value;
    return 0;
}

/* A checkpoint that is whole: every byte is compared with its checksum before anything is changed. */
static int read_checkpoint(struct run_optimizer *optimizer, const char *path)
{
    struct carrying carrying = {.optimizer = optimizer};
    int rc = store_checkpoint_open(path, run_options_file_io(&optimizer->options), NULL,
                                   &carrying.read);
    if (rc != 0) {
        return rc;
    }
    const struct store_manifest *manifest = store_checkpoint_manifest(carrying.read);
    rc = run_checkpoint_check(manifest, optimizer->blocks, &optimizer->options);
    rc = rc == 0 ? store_checkpoint_verify(carrying.read, NULL, NULL) : rc;
    rc = rc == 0 ? carry_all(&carrying, load_chunk) : rc;
    rc = rc == 0 ? take_counters(optimizer, manifest) : rc;
    const struct core_err kept = core_err_keep(rc);
    return core_err_first(&kept, store_checkpoint_close(carrying.read));
}

int run_optimizer_load(struct run_optimizer *optimizer, const char *directory, uint64_t *step)
{
    uint64_t *steps = NULL;
    size_t count = 0;
    char path[PATH_BYTES];
    int rc = check_between_steps(optimizer);
    if (rc != 0) {
        return rc;
    }
    rc = run_optimizer_quiesce(optimizer);
    if (rc != 0) {
        return rc;
    }
    rc = store_shelf_list(directory, &steps, &count);
    if (rc != 0) {
        return rc;
    }
    rc = count > 0 ? -EBADMSG : core_err_set(-ENOENT, "%s has no checkpoint", directory);
    for (size_t i = count; rc == -EBADMSG && i-- > 0;) {
        store_shelf_path(directory, steps[i], path, sizeof path);
        rc = read_checkpoint(optimizer, path);
        if (rc == -EBADMSG && i > 0) {
            core_log(CORE_LOG_WARN, "an older checkpoint is loaded: %s", core_err_sentence());
        }
        *step = steps[i];
    }
    free(steps);
    return rc;
}
