/* optimizer_save.c: saves and loads states while no step runs: moves them, chunk by chunk, to and
 * from checkpoints or a caller's arrays. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "offload/model/publish.h"
#include "offload/run/checkpoint.h"
#include "offload/run/optimizer_internal.h"
#include "offload/store/shelf.h"

enum { PATH_BYTES = 4096 };

/* the checkpoint of a process that saved */
struct source {
    struct store_checkpoint *checkpoint; /* owned; NULL: no checkpoint was given */
    /* index among all blocks; only grows during a load */
    uint32_t whole;
    uint32_t block; /* index among the checkpoint's blocks */
    bool needed;    /* has elements of this process's share */
};

struct carrying {
    struct run_optimizer *optimizer;      /* borrowed */
    struct store_checkpoint_write *write; /* set when states are saved */
    struct source *sources;               /* owned, [world]: set when states are loaded */
    uint32_t world;                       /* processes that saved */
    uint64_t step;                        /* the step that they saved */
    struct run_slots slots;
    char *weights; /* owned: a chunk's weights in one array */
    bool damaged;  /* the checkpoints to load */
};

/* The application's data in a manifest are the parameters' numbers of updates. */
static int set_counters(const struct run_optimizer *optimizer, struct store_manifest *manifest)
{
    return store_manifest_set_application(manifest, optimizer->updates,
                                          optimizer->parameter_count * sizeof *optimizer->updates);
}

/* Afterwards the caller's thread may use the rank. */
static int pause_steps(struct run_optimizer *optimizer)
{
    int rc = run_optimizer_check_alive(optimizer);
    if (rc != 0) {
        return rc;
    }
    return !optimizer->open
               ? run_optimizer_quiesce(optimizer)
               : core_err_set(-EBUSY,
                              "an optimizer's states can be read and written only between steps; "
                              "a gradient of the next step has been submitted");
}

/* ---- chunks ---- */

/* Copies a chunk's weights from the application's arrays to `together`; `back`: the other way. */
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

/* Sets *states to a chunk's states in memory, and *slot to NULL; if they are not in memory, sets
 * *slot to a free slot, and *states to room in it. */
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

/* Like find_states(), and reads states into the slot. */
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

/* `whole` is the block's index among all. */
static struct plan_span own_share(const struct run_optimizer *optimizer, uint32_t whole)
{
    return run_optimizer_share_of(optimizer->whole->list[whole].elements, optimizer->world,
                                  optimizer->rank_index);
}

/* Returns a saving process's elements; `whole` is the block's index among all. */
static struct plan_span saved_share(const struct carrying *carrying, uint32_t whole, uint32_t rank)
{
    return run_optimizer_share_of(carrying->optimizer->whole->list[whole].elements, carrying->world,
                                  rank);
}

static struct store_arrays advance(const struct plan_format *format,
                                   const struct store_arrays *streams, uint64_t skipped)
{
    const uint64_t scales = format->q8_block > 0 ? skipped / format->q8_block * sizeof(float) : 0;
    const uint64_t bytes[STORE_STREAM_COUNT] = {
        [STORE_STREAM_WEIGHTS] = skipped * format->weight_bytes,
        [STORE_STREAM_MASTER] = skipped * format->master_bytes,
        [STORE_STREAM_M] = skipped * format->m_bytes,
        [STORE_STREAM_V] = skipped * format->v_bytes,
        [STORE_STREAM_M_SCALES] = scales,
        [STORE_STREAM_V_SCALES] = scales};
    struct store_arrays later = *streams;
    for (int s = 0; s < STORE_STREAM_COUNT; s++) {
        later.at[s] = later.at[s] != NULL ? later.at[s] + bytes[s] : NULL;
    }
    return later;
}

/* Reads the elements of a chunk that process `rank` saved. `begin` is counted in the whole
 * block. */
static int load_from(struct carrying *carrying, uint32_t rank, const struct run_chunk *chunk,
                     uint64_t begin, const struct store_arrays *streams)
{
    struct run_optimizer *optimizer = carrying->optimizer;
    struct source *source = &carrying->sources[rank];
    const uint32_t whole = optimizer->whole_of[chunk->block];
    const struct plan_span saved = saved_share(carrying, whole, rank);
    const struct plan_span span = plan_span_overlap(saved, (struct plan_span){begin, chunk->count});
    if (span.count == 0) {
        return 0;
    }
    for (; source->whole < whole; source->whole++) {
        source->block += saved_share(carrying, source->whole, rank).count > 0;
    }
    const struct store_arrays own = advance(&optimizer->input.blocks[chunk->block].format, streams,
                                            span.first - begin);
    return store_checkpoint_read(source->checkpoint, source->block, span.first - saved.first,
                                 span.count, &own);
}

static int load_chunk(struct carrying *carrying, const struct run_chunk *chunk)
{
    struct run_optimizer *optimizer = carrying->optimizer;
    const struct plan_format *format = &optimizer->input.blocks[chunk->block].format;
    const struct store_place place = {STORE_STATES, chunk->block, chunk->index};
    const uint64_t begin = own_share(optimizer, optimizer->whole_of[chunk->block]).first +
                           chunk->first;
    struct run_slot *slot = NULL;
    char *states = NULL;
    int rc = find_states(optimizer, &carrying->slots, chunk, &slot, &states);
    if (rc != 0) {
        return rc;
    }
    const struct adam_arrays arrays = run_update_arrays(format, chunk->first, chunk->count,
                                                        carrying->weights, states, NULL);
    const struct store_arrays streams = run_checkpoint_streams(&arrays);
    for (uint32_t r = 0; rc == 0 && r < carrying->world; r++) {
        rc = load_from(carrying, r, chunk, begin, &streams);
    }
    if (rc != 0) {
        return rc;
    }
    carry_weights(optimizer, chunk, carrying->weights, true);
    return slot != NULL ? run_chunk_put(optimizer->rank, &place, states, &slot->moved) : 0;
}

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

/* Another run's checkpoints would be mixed with this run's. */
static int check_others(const struct run_optimizer *optimizer, const char *directory)
{
    uint64_t step = 0;
    const int rc = run_checkpoint_find_foreign(directory, optimizer->run, &step);
    return rc > 0 ? core_err_set(-EEXIST, "%s has checkpoints of another run", directory) : rc;
}

static struct run_options described(const struct run_optimizer *optimizer)
{
    struct run_options options = optimizer->options;
    options.world = optimizer->world;
    return options;
}

/* number of the process that saved */
static const char SHARE[] = "rank";

static void add_share(const struct run_optimizer *optimizer, struct store_manifest *manifest)
{
    struct store_parameter *to = &manifest->parameters[manifest->parameter_count++];
    snprintf(to->name, sizeof to->name, "%s", SHARE);
    snprintf(to->value, sizeof to->value, "%" PRIu32, optimizer->rank_index);
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
    int rc = set_counters(optimizer, &manifest);
    if (rc != 0) {
        store_manifest_fini(&manifest);
        return rc;
    }
    rc = store_checkpoint_begin(&wanted, &manifest, &carrying.write);
    if (rc != 0) {
        return rc;
    }
    rc = carry_all(&carrying, save_chunk);
    if (rc == 0) {
        rc = store_checkpoint_finish(carrying.write);
    }
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

/* Sets *out to `missing` if the manifest lacks the parameter. */
static int process_number(const struct store_checkpoint *checkpoint, const char *name,
                          uint32_t missing, uint32_t *out)
{
    enum { PROCESSES_MAX = 1 << 16 };
    const char *value = store_manifest_parameter(store_checkpoint_manifest(checkpoint), name);
    const unsigned long number = value != NULL ? strtoul(value, NULL, 10) : missing;
    if (number > PROCESSES_MAX) {
        return core_err_set(-EINVAL, "%s: \"%s\" is %s; at most %d is possible",
                            store_checkpoint_path(checkpoint), name, value, PROCESSES_MAX);
    }
    *out = (uint32_t)number;
    return 0;
}

static int check_source(const struct carrying *carrying, const struct store_checkpoint *checkpoint,
                        uint32_t rank)
{
    const struct run_optimizer *optimizer = carrying->optimizer;
    const struct store_manifest *manifest = store_checkpoint_manifest(checkpoint);
    const size_t counted = manifest->application_bytes / sizeof *optimizer->updates;
    struct run_options options = optimizer->options;
    struct blocks *blocks = NULL;
    options.world = carrying->world; /* the number of processes does not change results */
    int rc = run_optimizer_share_blocks(optimizer->whole, carrying->world, rank, &blocks);
    if (rc != 0) {
        return rc;
    }
    rc = run_checkpoint_check(manifest, blocks, &options);
    blocks_destroy(blocks);
    return rc != 0 || counted == optimizer->parameter_count
               ? rc
               : core_err_set(-EBADMSG,
                              "the checkpoint counts the steps of %zu parameters, not of %zu",
                              counted, optimizer->parameter_count);
}

static int begin_sources(struct carrying *carrying, const struct store_checkpoint *first)
{
    int rc = process_number(first, RUN_CHECKPOINT_RANKS, 1, &carrying->world);
    if (rc != 0) {
        return rc;
    }
    carrying->step = store_checkpoint_manifest(first)->step;
    carrying->sources = calloc(carrying->world, sizeof *carrying->sources);
    return carrying->sources != NULL
               ? 0
               : core_err_set(-ENOMEM, "no memory for the checkpoints of %" PRIu32 " processes",
                              carrying->world);
}

static int add_source(struct carrying *carrying, struct store_checkpoint *checkpoint)
{
    uint32_t world = 0;
    uint32_t rank = 0;
    int rc = carrying->sources == NULL ? begin_sources(carrying, checkpoint) : 0;
    if (rc == 0) {
        rc = process_number(checkpoint, RUN_CHECKPOINT_RANKS, 1, &world);
    }
    if (rc == 0) {
        rc = process_number(checkpoint, SHARE, 0, &rank);
    }
    if (rc != 0) {
        return rc;
    }
    const uint64_t step = store_checkpoint_manifest(checkpoint)->step;
    if (world != carrying->world || rank >= world || step != carrying->step ||
        carrying->sources[rank].checkpoint != NULL) {
        return core_err_set(-EINVAL,
                            "%s is of process %" PRIu32 " of %" PRIu32 " after step %" PRIu64
                            "; expected another process of %" PRIu32 " after step %" PRIu64,
                            store_checkpoint_path(checkpoint), rank, world, step, carrying->world,
                            carrying->step);
    }
    rc = check_source(carrying, checkpoint, rank);
    if (rc == 0) {
        carrying->sources[rank].checkpoint = checkpoint;
    }
    return rc;
}

static int open_source(struct carrying *carrying, const char *path)
{
    struct store_checkpoint *checkpoint = NULL;
    int rc = store_checkpoint_open(path, run_options_file_io(&carrying->optimizer->options), NULL,
                                   &checkpoint);
    if (rc != 0) {
        carrying->damaged = rc != -ENOMEM;
        return rc;
    }
    rc = add_source(carrying, checkpoint);
    if (rc != 0) {
        const struct core_err kept = core_err_keep(rc);
        return core_err_first(&kept, store_checkpoint_close(checkpoint));
    }
    return 0;
}

static int close_sources(struct carrying *carrying)
{
    int rc = 0;
    for (uint32_t r = 0; carrying->sources != NULL && r < carrying->world; r++) {
        const struct core_err kept = core_err_keep(rc);
        rc = core_err_first(&kept, store_checkpoint_close(carrying->sources[r].checkpoint));
    }
    free(carrying->sources);
    return rc;
}

/* Finds checkpoints with elements of this process's share. Returns -EINVAL if one is missing. */
static int find_needed(struct carrying *carrying)
{
    const struct run_optimizer *optimizer = carrying->optimizer;
    for (uint32_t b = 0; b < optimizer->blocks->count; b++) {
        const uint32_t whole = optimizer->whole_of[b];
        const struct plan_span own = own_share(optimizer, whole);
        for (uint32_t r = 0; r < carrying->world; r++) {
            struct source *source = &carrying->sources[r];
            if (plan_span_overlap(own, saved_share(carrying, whole, r)).count == 0) {
                continue;
            }
            source->needed = true;
            if (source->checkpoint == NULL) {
                return core_err_set(-EINVAL,
                                    "process %" PRIu32 " of %" PRIu32
                                    " needs the states of process %" PRIu32 " of %" PRIu32
                                    ": load the checkpoints of all processes together",
                                    optimizer->rank_index, optimizer->world, r, carrying->world);
            }
        }
    }
    return 0;
}

static int verify_needed(struct carrying *carrying)
{
    int rc = 0;
    for (uint32_t r = 0; rc == 0 && r < carrying->world; r++) {
        if (carrying->sources[r].needed) {
            rc = store_checkpoint_verify(carrying->sources[r].checkpoint, NULL, NULL, NULL);
        }
    }
    carrying->damaged = rc != 0 && rc != -ENOMEM;
    return rc;
}

/* Only processes that saved elements of a parameter count its updates. */
static void take_counters(const struct carrying *carrying)
{
    struct run_optimizer *optimizer = carrying->optimizer;
    for (uint32_t b = 0; b < optimizer->blocks->count; b++) {
        const struct run_lent_block *block = &optimizer->lent.blocks[b];
        const uint32_t whole = optimizer->whole_of[b];
        const uint64_t begin = own_share(optimizer, whole).first;
        struct plan_span saved = saved_share(carrying, whole, 0);
        uint32_t rank = 0;
        for (size_t i = 0; i < block->part_count; i++) {
            const struct run_lent_part *part = &block->parts[i];
            while (saved.first + saved.count <= begin + part->first) {
                saved = saved_share(carrying, whole, ++rank);
            }
            const struct store_manifest *manifest = store_checkpoint_manifest(
                carrying->sources[rank].checkpoint);
            memcpy(&optimizer->updates[part->index],
                   (const char *)manifest->application + part->index * sizeof *optimizer->updates,
                   sizeof *optimizer->updates);
        }
    }
}

/* Prefers the checkpoint of the same process number. */
static void take_position(const struct carrying *carrying)
{
    struct run_optimizer *optimizer = carrying->optimizer;
    uint32_t rank = optimizer->rank_index % carrying->world;
    while (carrying->sources[rank].checkpoint == NULL) {
        rank = (rank + 1) % carrying->world;
    }
    const struct store_manifest *manifest = store_checkpoint_manifest(
        carrying->sources[rank].checkpoint);
    optimizer->run = manifest->run;
    optimizer->before = manifest->step - optimizer->steps;
    optimizer->loss_scale = manifest->scale.value;
}

/* Verifies all needed checksums before anything changes. *damaged: an older checkpoint may load. */
static int read_checkpoints(struct run_optimizer *optimizer, const char (*paths)[PATH_BYTES],
                            size_t count, bool *damaged)
{
    struct carrying carrying = {.optimizer = optimizer};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < count; i++) {
        rc = open_source(&carrying, paths[i]);
    }
    if (rc == 0) {
        rc = find_needed(&carrying);
    }
    if (rc == 0) {
        rc = verify_needed(&carrying);
    }
    if (rc == 0) {
        rc = carry_all(&carrying, load_chunk);
    }
    if (rc == 0) {
        take_counters(&carrying);
        take_position(&carrying);
    }
    for (size_t i = 0; optimizer->device != NULL && i < optimizer->parameter_count; i++) {
        run_optimizer_device_note(optimizer, i);
    }
    *damaged = carrying.damaged || rc == -EBADMSG;
    const struct core_err kept = core_err_keep(rc);
    return core_err_first(&kept, close_sources(&carrying));
}

/* `path` is a checkpoint or a directory of checkpoints. */
static int list_steps(const char *path, uint64_t **steps, size_t *count)
{
    struct store_manifest manifest = {.step = 0};
    if (store_checkpoint_peek(path, &manifest) == -ENOENT) {
        return store_shelf_list(path, steps, count);
    }
    *steps = calloc(1, sizeof **steps);
    if (*steps == NULL) {
        store_manifest_fini(&manifest);
        return core_err_set(-ENOMEM, "no memory for the step of %s", path);
    }
    **steps = manifest.step;
    *count = 1;
    store_manifest_fini(&manifest);
    return 0;
}

/* Sets `out` to `path` if that is a checkpoint, otherwise to the step's checkpoint in this
 * directory; false: none. */
static bool find_step(const char *path, uint64_t step, char out[PATH_BYTES])
{
    char manifest[PATH_BYTES + 32];
    snprintf(manifest, sizeof manifest, "%s/%s", path, MODEL_MANIFEST_NAME);
    if (access(manifest, F_OK) == 0) {
        snprintf(out, PATH_BYTES, "%s", path);
        return true;
    }
    store_shelf_path(path, step, out, PATH_BYTES);
    return access(out, F_OK) == 0;
}

/* Loads the newest step for which each path has a valid checkpoint. */
static int load_newest(struct run_optimizer *optimizer, const char *const *given, size_t count,
                       char (*paths)[PATH_BYTES])
{
    uint64_t *steps = NULL;
    size_t step_count = 0;
    int rc = list_steps(given[0], &steps, &step_count);
    if (rc != 0) {
        return rc;
    }
    rc = core_err_set(-ENOENT,
                      count == 1 ? "%s has no checkpoint"
                                 : "%s and the other directories have no checkpoint of "
                                   "the same step",
                      given[0]);
    bool damaged = false;
    for (size_t s = step_count; (rc == -ENOENT || damaged) && s-- > 0;) {
        size_t found = 0;
        while (found < count && find_step(given[found], steps[s], paths[found])) {
            found++;
        }
        if (found < count) {
            continue;
        }
        if (damaged) {
            core_log(CORE_LOG_WARN, "an older checkpoint is loaded: %s", core_err_message());
        }
        rc = read_checkpoints(optimizer, (const char(*)[PATH_BYTES])paths, count, &damaged);
    }
    free(steps);
    return rc;
}

int run_optimizer_load(struct run_optimizer *optimizer, const char *const *paths, size_t count,
                       uint64_t *step)
{
    int rc = pause_steps(optimizer);
    if (rc != 0) {
        return rc;
    }
    char(*found)[PATH_BYTES] = calloc(count, sizeof *found);
    if (found == NULL) {
        return core_err_set(-ENOMEM, "no memory for %zu paths", count);
    }
    rc = load_newest(optimizer, paths, count, found);
    free(found);
    if (rc == 0) {
        *step = optimizer->before + optimizer->steps;
    }
    return rc;
}

/* ---- the states of one parameter ---- */

/* Copies a part's states to the caller's arrays; `set`: the other way. */
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

/* Checks that the rule has the arrays' moments. */
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
    if (set && optimizer->device != NULL) {
        run_optimizer_device_note(optimizer, parameter);
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
