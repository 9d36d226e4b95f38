/* optimizer_save.c: an optimizer's states between steps, one chunk at a time: checkpoints, with the weights from
 * the application's arrays; and the states of one parameter in the caller's arrays. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
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

/* Waits for the last step; the caller's thread may then use the rank. */
static int pause_steps(struct run_optimizer *optimizer)
{
    return !optimizer->open
               ? run_optimizer_quiesce(optimizer)
               : core_err_set(-EBUSY, "an optimizer's states are read and written between steps; "
                                      "a gradient of the next one has been submitted");
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
static int find_states(const struct run_optimizer *optimizer, struct run_slots *slots,
                       const struct run_chunk *chunk, struct run_slot **slot, char **states)
{
    *slot = NULL;
    *states = run_chunk_states_memory(optimizer->rank, chunk);
    if (*states != NULL) {
        return 0;
    }
    *slot = run_slots_next(slots);
    *states = (*slot)->memory + plan_slot_states_offset(optimizer->plan);
    return run_rank_wait(optimizer->rank, (*slot)->moved);
}

/* The same, with the states in it. */
static int read_states(const struct run_optimizer *optimizer, struct run_slots *slots,
                       const struct run_chunk *chunk, struct run_slot **slot, char **states)
{
    const struct store_place place = {STORE_STATES, chunk->block, chunk->index};
    int rc = find_states(optimizer, slots, chunk, slot, states);
    if (rc != 0 || *slot == NULL) {
        return rc;
    }
    rc = run_chunk_get(optimizer->rank, &place, *states, &(*slot)->moved);
    return rc != 0 ? rc : run_rank_wait(optimizer->rank, (*slot)->moved);
}

static int save_chunk(struct carrying *carrying, const struct run_chunk *chunk)
{
    struct run_optimizer *optimizer = carrying->optimizer;
    const struct plan_format *format = &optimizer->input.blocks[chunk->block].format;
    struct run_slot *slot = NULL;
    char *states = NULL;
    int rc = read_states(optimizer, &carrying->slots, chunk, &slot, &states);
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
    int rc = find_states(optimizer, &carrying->slots, chunk, &slot, &states);
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

/* With the number of processes, which a plan does not know. */
static struct run_options described(const struct run_optimizer *optimizer)
{
    struct run_options options = optimizer->options;
    options.world = optimizer->world;
    return options;
}

static const char SHARE[] = "rank";

static void add_share(const struct run_optimizer *optimizer, struct store_manifest *manifest)
{
    struct store_parameter *to = &manifest->parameters[manifest->parameter_count++];
    snprintf(to->name, sizeof to->name, "%s", SHARE);
    snprintf(to->value, sizeof to->value, "%" PRIu32, optimizer->rank_index);
}

static unsigned long number_of(const struct store_manifest *manifest, const char *name,
                               unsigned long missing)
{
    const char *value = store_manifest_parameter(manifest, name);
    return value != NULL ? strtoul(value, NULL, 10) : missing;
}

static int check_share(const struct run_optimizer *optimizer, const struct store_manifest *manifest)
{
    const unsigned long world = number_of(manifest, "ranks", 1);
    const unsigned long rank = number_of(manifest, SHARE, 0);
    return world == optimizer->world && rank == optimizer->rank_index
               ? 0
               : core_err_set(
                     -EINVAL,
                     "the checkpoint has the states of process %lu of %lu; this is process "
                     "%" PRIu32 " of %" PRIu32 ", which loads only what the same process of "
                     "as many saved",
                     rank, world, optimizer->rank_index, optimizer->world);
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
    const struct run_options options = described(optimizer);
    run_checkpoint_describe(&options, optimizer->blocks, &position, &manifest);
    if (optimizer->world > 1) {
        add_share(optimizer, &manifest);
    }
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
    int rc = pause_steps(optimizer);
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
    const struct run_options options = described(optimizer);
    rc = check_share(optimizer, manifest);
    rc = rc == 0 ? run_checkpoint_check(manifest, optimizer->blocks, &options) : rc;
    rc = rc == 0 ? store_checkpoint_verify(carrying.read, NULL, NULL) : rc;
    rc = rc == 0 ? carry_all(&carrying, load_chunk) : rc;
    rc = rc == 0 ? take_counters(optimizer, manifest) : rc;
    const struct core_err kept = core_err_keep(rc);
    return core_err_first(&kept, store_checkpoint_close(carrying.read));
}

/* The newest checkpoint of a directory that verifies. */
static int load_newest(struct run_optimizer *optimizer, const char *directory)
{
    uint64_t *steps = NULL;
    size_t count = 0;
    char path[PATH_BYTES];
    int rc = store_shelf_list(directory, &steps, &count);
    if (rc != 0) {
        return rc;
    }
    rc = count > 0 ? -EBADMSG : core_err_set(-ENOENT, "%s has no checkpoint", directory);
    for (size_t i = count; rc == -EBADMSG && i-- > 0;) {
        store_shelf_path(directory, steps[i], path, sizeof path);
        rc = read_checkpoint(optimizer, path);
        if (rc == -EBADMSG && i > 0) {
            core_log(CORE_LOG_WARN, "an older checkpoint is loaded: %s", core_err_message());
        }
    }
    free(steps);
    return rc;
}

int run_optimizer_load(struct run_optimizer *optimizer, const char *path, uint64_t *step)
{
    struct store_manifest manifest = {.step = 0};
    int rc = pause_steps(optimizer);
    if (rc != 0) {
        return rc;
    }
    const bool one = store_checkpoint_peek(path, &manifest) != -ENOENT;
    store_manifest_fini(&manifest);
    rc = one ? read_checkpoint(optimizer, path) : load_newest(optimizer, path);
    if (rc == 0) {
        *step = optimizer->before + optimizer->steps;
    }
    return rc;
}

/* ---- the states of one parameter ---- */

/* Moves the states of a part that are in a chunk; `set`: to the chunk. */
static int move_chunk(struct run_optimizer *optimizer, struct run_slots *slots,
                      const struct run_lent_part *part, const struct run_chunk *chunk,
                      struct adam *adam, const struct run_optimizer_states *given, bool set)
{
    const struct plan_format *format = &optimizer->input.blocks[chunk->block].format;
    const struct store_place place = {STORE_STATES, chunk->block, chunk->index};
    const struct plan_span span = run_lent_overlap(part, chunk->first, chunk->count);
    struct run_slot *slot = NULL;
    char *states = NULL;
    if (span.count == 0) {
        return 0;
    }
    int rc = read_states(optimizer, slots, chunk, &slot, &states);
    if (rc != 0) {
        return rc;
    }
    const struct adam_arrays whole = run_update_arrays(format, chunk->first, chunk->count, NULL,
                                                       states, NULL);
    const struct adam_arrays arrays = run_lent_states(part, format, &whole, span);
    const uint64_t end = arrays.first + arrays.count;
    for (int v = ADAM_VALUE_MASTER; rc == 0 && v <= ADAM_VALUE_V; v++) {
        float *at = given->values[v] != NULL ? given->values[v] + arrays.first - part->inside
                                             : NULL;
        if (at != NULL) {
            rc = set ? adam_state_write(adam, &arrays, (enum adam_value)v, arrays.first, end, at)
                     : adam_state_read(adam, &arrays, (enum adam_value)v, arrays.first, end, at);
        }
    }
    return rc != 0 || slot == NULL || !set
               ? rc
               : run_chunk_put(optimizer->rank, &place, states, &slot->moved);
}

/* Before anything is changed. */
static int check_values(const struct run_optimizer *optimizer, uint32_t block,
                        const struct run_optimizer_states *given)
{
    const struct plan_format *format = &optimizer->input.blocks[block].format;
    const bool m = given->values[ADAM_VALUE_M] == NULL || format->m_bytes > 0;
    const bool v = given->values[ADAM_VALUE_V] == NULL || format->v_bytes > 0;
    return m && v ? 0
                  : core_err_set(-ENOTSUP, "%s has no moment %s",
                                 adam_rule_name(optimizer->options.rule), m ? "v" : "m");
}

static int move_states(struct run_optimizer *optimizer, size_t parameter,
                       const struct run_optimizer_states *given, bool set)
{
    const uint32_t block = optimizer->block_of[parameter];
    const struct run_lent_part *part = optimizer->parts[parameter];
    struct run_slots slots;
    struct adam *adam = NULL;
    if (part == NULL) {
        return pause_steps(optimizer);
    }
    int rc = check_values(optimizer, block, given);
    if (rc != 0) {
        return rc;
    }
    rc = pause_steps(optimizer);
    if (rc != 0) {
        return rc;
    }
    rc = run_lent_adam_create(&optimizer->lent, &optimizer->lent.blocks[block], part,
                              &optimizer->options, NULL, &adam);
    if (rc != 0) {
        return rc;
    }
    run_slots_init(&slots, optimizer->rank);
    for (uint32_t i = 0; rc == 0 && i < run_chunk_count(optimizer->rank, block); i++) {
        const struct run_chunk chunk = run_chunk_at(optimizer->rank, block, i);
        rc = move_chunk(optimizer, &slots, part, &chunk, adam, given, set);
    }
    adam_destroy(adam);
    const struct core_err kept = core_err_keep(rc);
    return core_err_first(&kept, run_slots_wait(optimizer->rank, &slots));
}

int run_optimizer_get_states(struct run_optimizer *optimizer, size_t parameter,
                             struct run_optimizer_states *states)
{
    int rc = move_states(optimizer, parameter, states, false);
    if (rc == 0) {
        states->updates = optimizer->updates[parameter];
    }
    return rc;
}

int run_optimizer_set_states(struct run_optimizer *optimizer, size_t parameter,
                             const struct run_optimizer_states *states)
{
    int rc = move_states(optimizer, parameter, states, true);
    if (rc == 0) {
        optimizer->updates[parameter] = states->updates;
    }
    return rc;
}
