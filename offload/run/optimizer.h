/* optimizer.h: the optimizer of an application that computes gradients itself; its plan has no
 * compute. A block is ready when its parameters have their gradients, or when the step is closed.
 * The optimizer's thread puts ready blocks on tapes from a step's first gradient on
 * (optimizer_step.c). The update's thread reads gradients and writes weights; if the norm affects
 * the step, it writes only after the step is closed. A token means one block of a step, or all its
 * blocks. One thread at a time calls; any thread may wait for tokens. */
#ifndef OFFLOAD_RUN_OPTIMIZER_H
#define OFFLOAD_RUN_OPTIMIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu_adam/adam.h"
#include "offload/plan/shard.h"
#include "offload/run/options.h"
#include "offload/run/rates_file.h"

struct run_optimizer;

struct run_optimizer_parameter {
    const char *name; /* copied */
    void *weights;    /* borrowed until destroy */
    uint64_t elements;
    enum core_update_type weights_type;
    enum core_update_type gradients_type;
    uint32_t group;
};

struct run_optimizer_options {
    const struct run_optimizer_parameter *parameters; /* read only during create, like `groups`,
                                                       * `rates` and `device` */
    size_t parameter_count;
    /* smaller parameters share blocks of about this many elements, or more in a large model; 0:
     * 512 Ki */
    uint64_t block_elements;
    /* without `step`: each parameter has a step count */
    const struct adam_group *groups;
    uint32_t group_count;
    /* Strings are borrowed until destroy; micro_batches and wishes.grads are ignored. */
    struct run_options options;
    /* whether a step may sum several gradients of a parameter */
    bool sums;
    bool checks;                   /* -EFAULT for a gradient that changed while borrowed; ignored
                                    * with `sums` and with `device` */
    const struct run_rates *rates; /* NULL: measured, or from the cache of `options` */
    int (*progress)(void *user, const char *phase, uint64_t done, uint64_t total);
    void *user;
    /* Processes that share the states. 0 and 1: one process has everything. */
    uint32_t world;
    uint32_t rank;
    /* Replaces `values` by their sums over all processes: once per step, on the update's thread.
     * With NULL the norm is that of this process's share of gradients, and clip and may_skip are
     * refused for several processes. */
    int (*sum)(void *user, double *values, size_t count);
    void *sum_user;
    /* The device of weights and gradients ("cuda:0"); NULL: host memory. Work that writes the
     * weights must be done before create. */
    const char *device;
};

/* Returns -EFBIG if no plan fits the budgets. */
int run_optimizer_create(const struct run_optimizer_options *options, struct run_optimizer **out);
/* Waits for the updates of closed steps; an open step is not completed. Accepts NULL. */
void run_optimizer_destroy(struct run_optimizer *optimizer);

/* Replaces a group's settings for the steps after the last closed one or, if updates do not wait
 * for the norm, for steps without a gradient yet. */
int run_optimizer_set_group(struct run_optimizer *optimizer, uint32_t index,
                            const struct adam_group *group);
/* Sets the factor of the application's loss, by which gradients are divided. Call it between steps;
 * waits for the last step. */
int run_optimizer_set_loss_scale(struct run_optimizer *optimizer, double loss_scale);

/* Submits a gradient of a parameter; `last`: the last one in this step. The gradient is borrowed
 * until *token is reached. That happens after the step is closed or, if updates do not wait for the
 * norm, after all parameters of the block have their last gradients. Waits for the parameter's
 * update in the last step. */
int run_optimizer_submit(struct run_optimizer *optimizer, size_t parameter, const void *gradient,
                         bool last, uint64_t *token);
/* Closes the step without waiting for its updates. Parameters without a gradient do not change.
 * Returns -ENODATA if there was no gradient. */
int run_optimizer_step(struct run_optimizer *optimizer, uint64_t *token);

/* Sets the stream for later copies from and to a device; initially the device's default stream.
 * Work queued there after a submit may overwrite the gradient; work after
 * run_optimizer_wait_weights finds the new weights. */
void run_optimizer_set_stream(struct run_optimizer *optimizer, void *stream);

/* Any thread may call. */
int run_optimizer_wait(struct run_optimizer *optimizer, uint64_t token);
/* Returns 1 if the token is reached, 0 if not, or the updates' error. Any thread may call. */
int run_optimizer_poll(struct run_optimizer *optimizer, uint64_t token);
#define RUN_OPTIMIZER_ALL SIZE_MAX

/* Waits for a parameter's update in the last closed step; RUN_OPTIMIZER_ALL: for all updates. Then
 * queues copies of new weights to the device, if there is one, except for parameters that have a
 * last gradient of the next step. */
int run_optimizer_wait_weights(struct run_optimizer *optimizer, size_t parameter);
/* Returns the token of the last closed step. */
uint64_t run_optimizer_last_token(const struct run_optimizer *optimizer);

struct run_optimizer_result {
    uint64_t step;
    double norm;
    double factor;
    bool skipped;
};

/* Waits until the norm of the last closed step is known, and fills in *out. */
int run_optimizer_result(struct run_optimizer *optimizer, struct run_optimizer_result *out);

/* After the application wrote a parameter's weights between steps: sets the master to them; moments
 * do not change. */
int run_optimizer_weights_changed(struct run_optimizer *optimizer, size_t parameter);

/* Returns the elements of a parameter that this process updates, if any. */
struct plan_span run_optimizer_share(const struct run_optimizer *optimizer, size_t parameter);
/* States of this process's share of a parameter, as fp32; NULL: not copied. */
struct run_optimizer_states {
    float *values[ADAM_VALUE_V + 1]; /* by enum adam_value */
    uint64_t updates;                /* steps that updated the parameter */
};
/* Copies a parameter's states to the caller's arrays. Call it between steps; waits for the last
 * step. Returns -ENOTSUP if the rule lacks a requested moment. */
int run_optimizer_get_states(struct run_optimizer *optimizer, size_t parameter,
                             struct run_optimizer_states *states);
/* Replaces a parameter's states, rounded to nearest where they have fewer bits; weights follow the
 * master. Call it between steps; waits for the last step. */
int run_optimizer_set_states(struct run_optimizer *optimizer, size_t parameter,
                             const struct run_optimizer_states *states);

/* Writes a checkpoint to DIRECTORY/checkpoint-N after N steps. Keeps the `keep` newest ones; 0:
 * all. Call it between steps; waits for the last step. Returns -EEXIST if the directory has
 * checkpoints of another run. */
int run_optimizer_save(struct run_optimizer *optimizer, const char *directory, uint32_t keep);
/* Loads checkpoints of one or more processes. Each of `paths` is a checkpoint or a directory of
 * checkpoints; the newest step that is valid in each of them is loaded. The number of processes may
 * have changed; only checkpoints with elements of this process's share are needed. Parameters
 * and formats must be the same. Overwrites this process's weights, and sets *step. Returns -ENOENT
 * if there is no checkpoint. If a file changes while it is read, -EBADMSG may leave a mixture of
 * old and new states. */
int run_optimizer_load(struct run_optimizer *optimizer, const char *const *paths, size_t count,
                       uint64_t *step);

struct run_optimizer_info {
    uint64_t parameters; /* elements of this process's shares */
    uint64_t host_bytes; /* the plan's HOST bytes, with those of the runtime */
    uint64_t store_bytes;
    uint64_t resident_bytes; /* bytes of states in HOST */
    uint32_t blocks;
};
struct run_optimizer_info run_optimizer_info(const struct run_optimizer *optimizer);

#endif
