/* rank.c: creates and destroys the parts of a rank. */
#include "offload/run/rank.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/coll/peers.h"
#include "core/dev/dev.h"
#include "kernels/table.h"
#include "offload/plan/layout.h"
#include "offload/run/rank_internal.h"

enum { COMPUTE_DEPTH = 1024, COPY_DEPTH = 256 };
/* Tapes of the timeline; the first tape warms up memory and devices. */
enum { TRACE_FIRST = 1, TRACE_TAPES = 4 };

/* Ranks with a lane that did not end its command; not freed, because the lane may still use
 * them. */
static _Atomic(struct run_rank *) lost_ranks;

static const struct {
    enum aio_urgency urgency;
    const char *name;
} io_kinds[RANK_IO_QUEUES] = {
    [PLAN_Q_READ_WEIGHT - PLAN_Q_READ_WEIGHT] = {AIO_WEIGHTS, "read weights"},
    [PLAN_Q_READ_STATE - PLAN_Q_READ_WEIGHT] = {AIO_STATES, "read states"},
    [PLAN_Q_READ_ACT - PLAN_Q_READ_WEIGHT] = {AIO_WEIGHTS, "read activations"},
    [PLAN_Q_WRITE_STATE - PLAN_Q_READ_WEIGHT] = {AIO_WRITEBACK, "write states"},
    [PLAN_Q_WRITE_ACT - PLAN_Q_READ_WEIGHT] = {AIO_STATES, "write activations"},
};

/* Most gradient bytes that GPUs sum at a time; other ranks' pieces take this rank's GPU memory. */
enum { SUM_BYTES_MAX = 64 << 20 };

static uint64_t sum_bytes(const struct run_shapes *shapes, const struct run_options *options)
{
    enum { SUM_BYTES_RANK = 4096 }; /* least size of sums, per rank */
    uint64_t most = (uint64_t)SUM_BYTES_RANK * options->world;
    if (options->world <= 1 || dev_is_cpu(options->device)) {
        return 0;
    }
    for (uint32_t b = 0; b < shapes->block_count; b++) {
        const struct plan_block_shape *shape = &shapes->blocks[b];
        const uint64_t bytes = shape->elements * shape->format.grad_bytes;
        most = shape->trained && bytes > most ? bytes : most;
    }
    return most < SUM_BYTES_MAX ? most : SUM_BYTES_MAX;
}

uint64_t run_rank_device_bytes(const struct run_shapes *shapes, const struct run_options *options)
{
    enum { GRAIN = 5 * DEV_ALIGN_BYTES };
    /* for one token's logits (logits.c) */
    const uint64_t logits = (uint64_t)shapes->model->config.vocab * kern_type_bytes(options->type);
    return shapes->scratch_bytes + run_inputs_bytes(shapes->model, options) + logits +
           sum_bytes(shapes, options) + RUN_MEMORY_SPARE_BYTES + GRAIN;
}

/* ---- queues ---- */

static int make_update(struct run_rank *rank)
{
    const struct run_application *application = rank->application;
    const struct adam_group *group = &rank->options->group;
    struct adam_group groups[MODEL_GROUP_COUNT];
    struct run_update_options update = {
        .blocks = rank->blocks,
        .options = rank->options,
        .groups = groups,
        .group_count = MODEL_GROUP_COUNT,
        .input = rank->input,
        .plan = rank->plan,
        .memory = &rank->memory,
        .place = &rank->place,
        .bell = &rank->bell,
    };
    run_options_groups(rank->options, group->lr, (const double[]){group->beta1, group->beta2}, 1,
                       groups);
    if (application != NULL) {
        update.groups = application->groups;
        update.group_count = application->group_count;
        update.lent = application->lent;
        update.updated = application->updated;
        update.total = application->total;
        update.user = application->user;
    }
    return run_update_create(&update, &rank->update);
}

static int make_queues(struct run_rank *rank)
{
    struct core_bell *bell = &rank->bell;
    const struct dev_queue_options compute = {
        .kind = DEV_QUEUE_COMPUTE,
        .depth = COMPUTE_DEPTH,
        .threads = rank->options->threads,
        .scratch_bytes = rank->shapes->scratch_bytes,
        .bell = bell,
    };
    const struct dev_queue_options up = {.kind = DEV_QUEUE_UP, .depth = COPY_DEPTH, .bell = bell};
    const struct dev_queue_options down = {
        .kind = DEV_QUEUE_DOWN, .depth = COPY_DEPTH, .bell = bell};
    int rc = dev_queue_create(rank->device, &compute, &rank->compute_queue);
    if (rc != 0) {
        return rc;
    }
    rc = dev_queue_create(rank->device, &up, &rank->up_queue);
    return rc != 0 ? rc : dev_queue_create(rank->device, &down, &rank->down_queue);
}

static int store_progress(void *user, const char *directory, uint64_t done, uint64_t total)
{
    const struct run_rank *rank = user;
    (void)directory;
    return rank->given.progress != NULL
               ? rank->given.progress(rank->given.user, "store", done, total)
               : 0;
}

static int register_memory(struct run_rank *rank)
{
    const struct iovec memory[] = {
        {.iov_base = rank->memory.device_base, .iov_len = rank->memory.device_bytes},
        {.iov_base = rank->memory.host.base, .iov_len = rank->memory.host.mapped_bytes}};
    const bool direct = dev_properties(rank->device)->host_visible;
    const unsigned first = direct && memory[0].iov_len > 0 ? 0 : 1;
    const unsigned end = memory[1].iov_len > 0 ? 2 : 1;
    return first < end ? store_register(rank->store, memory + first, end - first) : 0;
}

static int open_store(struct run_rank *rank)
{
    const struct store_options options = {
        .paths = rank->options->stores,
        .path_count = rank->options->store_count,
        .drive_cpus = rank->place.store_cpus,
        .backend = rank->options->io,
        .run = rank->given.run,
        .rank = rank->options->rank,
        .world = rank->input->world > 1 ? rank->input->world : 1,
        .limit_ns = rank->options->io_limit_ns,
        .progress = store_progress,
        .user = rank,
    };
    const uint64_t bytes = plan_tier_bytes(rank->plan, PLAN_STORE);
    if (bytes == 0) {
        return 0;
    }
    int rc = store_progress(rank, "", 0, bytes);
    if (rc != 0) {
        return rc;
    }
    rc = store_open(&options, rank->input, rank->plan, &rank->store);
    if (rc != 0) {
        return rc;
    }
    rc = store_progress(rank, "", bytes, bytes);
    for (int i = 0; rc == 0 && i < RANK_IO_QUEUES; i++) {
        const struct aio_queue_options queue = {
            .name = io_kinds[i].name, .urgency = io_kinds[i].urgency, .bell = &rank->bell};
        rc = store_queue_open(rank->store, &queue, &rank->io_queues[i]);
    }
    return rc != 0 ? rc : register_memory(rank);
}

/* ---- lanes ---- */

static uint32_t longest_tape(const struct plan *plan)
{
    uint32_t longest = 0;
    for (int before = 0; before <= PLAN_KIND_COUNT; before++) {
        for (int kind = 0; kind < PLAN_KIND_COUNT; kind++) {
            const struct plan_tape *tape = plan_tape(plan, (enum plan_kind)before,
                                                     (enum plan_kind)kind);
            longest = tape != NULL && tape->count > longest ? tape->count : longest;
        }
    }
    return longest;
}

static struct run_rows rows_of(const struct run_rank *rank)
{
    return (struct run_rows){.inputs = &rank->inputs,
                             .micro_batches = rank->options->micro_batches,
                             .group = rank->input->group > 1 ? rank->input->group : 1};
}

static void make_device_lanes(struct run_rank *rank, struct run_lane *lanes)
{
    const bool f32_grads = run_options_gradients(rank->options) == CORE_UPDATE_F32;
    uint64_t grad_stride = 0;
    for (uint32_t b = 0; b < rank->blocks->count; b++) {
        const uint64_t stride = run_shapes_stride(rank->shapes->blocks[b].out_bytes);
        grad_stride = stride > grad_stride ? stride : grad_stride;
    }
    rank->compute = (struct run_compute){
        .shapes = rank->shapes,
        .input = rank->input,
        .memory = &rank->memory,
        .inputs = &rank->inputs,
        .update = rank->update,
        .queue = rank->compute_queue,
        .binding = &rank->binding,
        .type = rank->options->type,
        .grad_type = f32_grads ? KERN_F32 : rank->options->type,
        .micro_batches = rank->options->micro_batches,
        .micro_first = (uint64_t)rank->options->rank * rank->options->micro_batches,
        .group = rank->input->group > 1 ? rank->input->group : 1,
        .grad_stride = grad_stride,
    };
    rank->up = (struct run_copy){
        .memory = &rank->memory, .queue = rank->up_queue, .rows = rows_of(rank)};
    rank->down = (struct run_copy){.memory = &rank->memory, .queue = rank->down_queue};
    lanes[PLAN_Q_COMPUTE] = run_compute_lane(&rank->compute);
    lanes[PLAN_Q_UP] = run_copy_lane(&rank->up);
    lanes[PLAN_Q_DOWN] = run_copy_lane(&rank->down);
}

static int make_coll_lane(struct run_rank *rank, struct run_lane *lane)
{
    const bool cpu = dev_is_cpu(rank->options->device);
    const char *host = rank->given.peers != NULL ? "processes" : "local";
    const struct coll_options coll = {.kind = cpu ? host : "nccl",
                                      .sum_op = KERN_SUM,
                                      .scratch_bytes = cpu ? 0
                                                           : sum_bytes(rank->shapes, rank->options),
                                      .rank = rank->options->rank,
                                      .world = rank->options->world,
                                      .meeting = rank->given.meeting,
                                      .peers = rank->given.peers,
                                      .device = rank->device,
                                      .depth = RUN_COLLECT_DEPTH,
                                      .bell = &rank->bell};
    int rc = coll_open(&coll, &rank->coll);
    if (rc != 0) {
        return rc;
    }
    rc = run_collect_init(&rank->collect, rank->options, rank->input, &rank->memory, rank->coll);
    if (rc == 0) {
        *lane = run_collect_lane(&rank->collect);
    }
    return rc;
}

static int make_executor(struct run_rank *rank)
{
    struct run_executor_options options = {
        .bell = &rank->bell, .commands_max = longest_tape(rank->plan), .pulse = &rank->pulse};
    if (rank->application != NULL) { /* no stall limit: an application may compute for any time */
        options.commands_max = rank->application->commands_max;
        options.sleeps = true;
    } else {
        options.stall_limit_ns = run_options_stall_ns(rank->options);
        make_device_lanes(rank, options.lanes);
    }
    if (rank->given.meeting != NULL || rank->given.peers != NULL) {
        int rc = make_coll_lane(rank, &options.lanes[PLAN_Q_COLL]);
        if (rc != 0) {
            return rc;
        }
    }
    options.lanes[PLAN_Q_UPDATE] = run_update_lane(rank->update);
    if (rank->given.writer != NULL) {
        const struct run_checkpoint_lane_options lane = {
            .rank = rank->options->rank,
            .writes_states = run_rank_writes_states(rank),
            .update = rank->update,
            .bell = &rank->bell,
            .stall_limit_ns = run_options_stall_ns(rank->options)};
        int rc = run_checkpoint_lane_create(rank->given.writer, &lane, &rank->checkpoint_lane);
        if (rc != 0) {
            return rc;
        }
        options.lanes[PLAN_Q_WRITE_CHECKPOINT] = run_checkpoint_lane(rank->checkpoint_lane);
    }
    for (int i = 0; rank->store != NULL && i < RANK_IO_QUEUES; i++) {
        rank->io[i] = (struct run_io){.memory = &rank->memory,
                                      .store = rank->store,
                                      .queue = rank->io_queues[i],
                                      .plan = rank->plan,
                                      .rows = rows_of(rank)};
        options.lanes[PLAN_Q_READ_WEIGHT + i] = run_io_lane(&rank->io[i]);
    }
    if (rank->given.trace != NULL) {
        int rc = plan_trace_create(TRACE_FIRST, TRACE_TAPES, options.commands_max, &rank->trace);
        if (rc != 0) {
            return rc;
        }
        options.watch = plan_trace_watch;
        options.watch_user = rank->trace;
    }
    return run_executor_create(&options, &rank->executor);
}

/* ---- creating and stopping a rank ---- */

/* The device follows from the rank's index on its machine. */
static int name_device(const struct run_rank *rank, char name[DEV_NAME_BYTES])
{
    const struct coll_peers *peers = rank->given.peers;
    const struct run_options *options = rank->options;
    struct coll_host host = {.ranks = options->world > 0 ? options->world : 1,
                             .index = options->rank};
    if (peers != NULL) {
        coll_peers_host(peers, options->rank, &host);
    }
    return dev_name_of_rank(options->device, host.index, host.ranks, name);
}

static int make_device(struct run_rank *rank)
{
    const bool computes = rank->application == NULL;
    const bool cpu = dev_is_cpu(rank->options->device);
    if (cpu) {
        run_place_create(rank->options, rank->given.peers, -1, &rank->place);
    }
    const struct dev_options device = {
        .cpus = rank->place.node_count > 0 ? &rank->place.cpus : NULL,
        .memory_bytes = plan_tier_bytes(rank->plan, PLAN_DEVICE) +
                        (computes ? run_rank_device_bytes(rank->shapes, rank->options)
                                  : DEV_ALIGN_BYTES)};
    char name[DEV_NAME_BYTES];
    int rc = name_device(rank, name);
    if (rc == 0) {
        rc = dev_open(name, &device, &rank->device);
    }
    if (rc == 0 && !cpu) {
        run_place_create(rank->options, rank->given.peers, dev_properties(rank->device)->numa_node,
                         &rank->place);
    }
    if (rc != 0 || !computes) {
        return rc;
    }
    rc = kern_ops_attach(rank->device, NULL, &rank->ops);
    return rc != 0 ? rc : make_queues(rank);
}

static int make(struct run_rank *rank)
{
    int rc = make_device(rank);
    if (rc != 0) {
        return rc;
    }
    rc = make_update(rank);
    if (rc != 0) {
        return rc;
    }
    const struct run_memory_options memory = {.plan = rank->plan,
                                              .input = rank->input,
                                              .device = rank->device,
                                              .place = &rank->place,
                                              .team = run_update_team(rank->update)};
    rc = run_memory_init(&rank->memory, &memory);
    if (rc != 0) {
        return rc;
    }
    if (rank->application == NULL) {
        rc = model_binding_init(&rank->binding, rank->shapes->model);
        if (rc != 0) {
            return rc;
        }
        rc = run_inputs_init(&rank->inputs, rank->shapes->model, rank->options, rank->device,
                             rank->compute_queue);
        if (rc != 0) {
            return rc;
        }
        if (plan_layout_of(rank->plan)->blocks[0].rows[0] != PLAN_NONE) {
            rc = run_inputs_use_rows(&rank->inputs);
            if (rc != 0) {
                return rc;
            }
        }
    }
    rc = open_store(rank);
    return rc != 0 ? rc : make_executor(rank);
}

uint64_t run_rank_number(const void *owner)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const uint64_t seed[] = {(uint64_t)now.tv_sec, (uint64_t)now.tv_nsec, (uint64_t)getpid(),
                             (uint64_t)(uintptr_t)owner};
    return core_hash(seed, sizeof seed, 0);
}

int run_rank_create(const struct run_rank_options *options, struct run_rank **out)
{
    struct run_rank *rank = calloc(1, sizeof *rank);
    if (rank == NULL) {
        return core_err_set(-ENOMEM, "no memory for a rank");
    }
    rank->given = *options;
    rank->options = options->options;
    rank->shapes = options->shapes;
    rank->input = options->input;
    rank->plan = options->plan;
    rank->application = options->application;
    rank->blocks = rank->application != NULL ? rank->application->blocks
                                             : options->shapes->model->flat;
    rank->last = rank->ahead = PLAN_KIND_COUNT;
    core_bell_init(&rank->bell);
    core_line_init(&rank->gate, "the next step", &rank->bell);
    int rc = make(rank);
    if (rc != 0) {
        const struct core_err kept = core_err_keep(rc);
        run_rank_destroy(rank);
        return core_err_first(&kept, 0);
    }
    *out = rank;
    return 0;
}

uint64_t run_rank_pulse(const struct run_rank *rank)
{
    return atomic_load_explicit(&rank->pulse, memory_order_relaxed);
}

int run_rank_wait(struct run_rank *rank, struct core_fence fence)
{
    int rc = core_fence_wait_moving(fence, run_options_stall_ns(rank->options));
    atomic_fetch_add_explicit(&rank->pulse, 1, memory_order_relaxed);
    return rc;
}

void run_rank_abort(struct run_rank *rank, int code)
{
    if (rank->coll != NULL) {
        coll_abort(rank->coll, code);
    }
}

static bool is_stuck(struct run_rank *rank)
{
    static const int64_t last_chance_ns = INT64_C(10000000000);
    if (run_checkpoint_lane_stuck(rank->checkpoint_lane)) {
        return true;
    }
    if (rank->executor == NULL || !run_executor_stalled(rank->executor)) {
        return false;
    }
    if (run_update_wait(rank->update, last_chance_ns) == -ETIMEDOUT) {
        return true;
    }
    const struct core_fence tails[] = {dev_queue_tail(rank->compute_queue),
                                       dev_queue_tail(rank->up_queue),
                                       dev_queue_tail(rank->down_queue)};
    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++) {
        if (core_fence_wait(tails[i], last_chance_ns) == -ETIMEDOUT) {
            return true;
        }
    }
    return false;
}

int run_rank_trace(struct run_rank *rank)
{
    if (rank->trace == NULL || rank->traced) {
        return 0;
    }
    rank->traced = true;
    return plan_trace_write(rank->trace, rank->input, rank->given.trace);
}

/* Parts end before the parts that they use. Memory that a drive may still write to is not freed. */
bool run_rank_destroy(struct run_rank *rank)
{
    if (rank == NULL) {
        return true;
    }
    bool stuck = false;
    if (is_stuck(rank)) {
        core_log(CORE_LOG_WARN, "a lane did not finish its command: its memory is not freed");
        rank->lost = atomic_exchange_explicit(&lost_ranks, rank, memory_order_relaxed);
        return false;
    }
    if (run_rank_trace(rank) != 0) {
        core_log(CORE_LOG_WARN, "%s", core_err_message());
    }
    run_executor_destroy(rank->executor);
    run_checkpoint_lane_destroy(rank->checkpoint_lane);
    coll_close(rank->coll);
    run_collect_fini(&rank->collect);
    for (int i = 0; i < RANK_IO_QUEUES; i++) {
        if (aio_queue_close(rank->io_queues[i]) != 0) {
            stuck = true;
        }
    }
    run_update_abandon(rank->update, -ECANCELED);
    if (rank->compute_queue != NULL) {
        dev_queue_abandon(rank->compute_queue, -ECANCELED);
    }
    dev_queue_destroy(rank->compute_queue);
    dev_queue_destroy(rank->up_queue);
    dev_queue_destroy(rank->down_queue);
    plan_trace_destroy(rank->trace); /* the compute queue reports ops to the trace */
    run_update_destroy(rank->update);
    int closed = store_close(rank->store);
    if (closed != 0) {
        core_log(CORE_LOG_WARN, "the store was not closed cleanly: %s", core_err_message());
    }
    model_binding_fini(&rank->binding);
    if (!stuck && closed != -ETIMEDOUT) {
        run_inputs_fini(&rank->inputs);
        run_memory_fini(&rank->memory);
        if (rank->device != NULL) {
            kern_ops_detach(rank->ops);
            dev_close(rank->device);
        }
    }
    free(rank);
    return true;
}

const char *run_rank_products(const struct run_rank *rank)
{
    const bool card = !dev_is_cpu(dev_properties(rank->device)->kind);
    return card ? kern_ops_describe(rank->ops) : NULL;
}
