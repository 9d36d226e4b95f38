/* optimizer.h: an optimizer for programs that compute gradients themselves. Its states, fp32
 * masters and moments, are in host memory up to a budget, and on drives beyond it. The rules of
 * tide.h apply. docs/api.md has a short program.
 * A step: the program submits each parameter's gradient as soon as it is computed
 * (tide_optim_submit), closes the step (tide_optim_step), and waits for a parameter before it uses
 * its weights again (tide_optim_wait_parameter). Threads of the library update the parameters,
 * block by block. Without clipping and skipping, a block's update begins when its gradients are
 * submitted, during the backward pass; otherwise after the end of the step, during the next forward
 * pass. Results are bit-identical wherever states are kept, and in any order of parameters. The
 * last step's order determines only which states are read early.
 * Between a step's first gradient and tide_optim_step, the submitting thread may call
 * tide_optim_wait_parameter and wait for tokens of earlier steps. It may poll a token of the
 * current step, but must not wait for it: the token may not be reached before tide_optim_step.
 * Memory: without `device`, the caller's weights and gradients are used in place. The library
 * allocates at most 16 MiB of host memory more than `host_bytes`, besides what a GPU's driver
 * takes.
 * Threads: several threads may call tide_optim_wait and tide_optim_poll at the same time; one
 * thread at a time calls other functions.
 * Errors: an error of a drive or of a gradient ends an optimizer. Then functions return that error,
 * too, except destroy, describe, share, set_stream, and calls that wait only for what was reached
 * before. Until the optimizer is destroyed, its threads may still use the program's arrays.
 * A forked child has neither memory nor threads of an optimizer: functions return -ECHILD there,
 * and destroy does nothing. */
#ifndef TIDE_OPTIMIZER_H
#define TIDE_OPTIMIZER_H

#include <stddef.h>
#include <stdint.h>
#include <tide/engine.h>

#ifdef __cplusplus
extern "C" {
#endif

struct tide_optim;

/* ---- Options ---- */

/* Hyperparameters shared by parameters. tide_optim_group_init fills them. */
struct tide_optim_group {
    size_t struct_bytes;
    double lr;                   /* init: 1e-3 */
    double beta1;                /* beta1 of Adam(W) and Lion, momentum of SGD; init: 0.9 */
    double beta2;                /* beta2 of Adam(W) and Lion; init: 0.999 */
    double eps;                  /* init: 1e-8 */
    double decay;                /* weight decay */
    uint64_t no_bias_correction; /* 1: Adam(W) without bias correction */
};

/* Fills the caller's struct with the defaults; `struct_bytes` is its sizeof. Returns 0 or an
 * error. */
TIDE_API int tide_optim_group_init(struct tide_optim_group *group, size_t struct_bytes);

struct tide_optim_parameter {
    size_t struct_bytes;
    const char *name; /* 1 to 255 bytes; unique */
    /* The caller's array, aligned to its elements; used until the optimizer is destroyed. Arrays
     * must not overlap: tied weights are one parameter. */
    void *weights;
    uint64_t elements;
    /* enum tide_precision of the weights; bf16 and fp16 have fp32 masters */
    uint32_t precision;
    uint32_t gradients; /* enum tide_precision: type of the gradients */
    uint64_t group;     /* index in `groups` */
};

/* Options of an optimizer. tide_optim_options_init fills them; "init:" gives a default other than
 * 0. */
struct tide_optim_options {
    size_t struct_bytes;
    /* In the order of the forward pass, so that parameters of a block get their gradients at about
     * the same time. */
    const struct tide_optim_parameter *parameters;
    size_t parameter_count;
    const struct tide_optim_group *groups;
    size_t group_count;
    uint32_t optimizer; /* enum tide_optimizer */
    uint32_t moments;   /* enum tide_moments */
    double clip;        /* largest norm of all gradients; 0: no clipping */
    /* 1: a step whose norm is not finite is skipped; 0: it ends the optimizer with -EDOM */
    uint32_t check_overflow;
    /* 1: a parameter may have several gradients in a step, added up in fp32, which takes 4 bytes of
     * `host_bytes` per element. */
    uint32_t accumulate;
    uint64_t seed;       /* seed of stochastic rounding */
    uint64_t host_bytes; /* budget; 0: the usable memory of machine or cgroup less a reserve */
    const struct tide_store_path *stores;
    size_t store_count; /* up to TIDE_STORES_MAX; 0: states are in memory only */
    /* "uring", "libaio" or "threads"; NULL: the first one that works. "mem": memory instead of
     * drives */
    const char *io;
    const char *cache; /* folder that keeps measured rates for later runs; NULL: none */
    uint32_t threads;  /* threads of the update; 0: one per processor */
    uint32_t states;   /* enum tide_place: TIDE_AUTO, TIDE_HOST or TIDE_STORE */
    /* Processes that share the states (ZeRO stage 1); see tide_optim_share. */
    uint32_t world; /* number of processes; 0 and 1: this one has all */
    uint32_t rank;  /* rank of this process, below `world` */
    /* Replaces `values` by their sums over all processes, and returns 0. With several processes it
     * is called once in each step, on a thread of the library; it may wait for other processes, but
     * must not call a tide function. At each index only one process has a value other than 0, so
     * the order of additions does not matter. NULL: the norm is that of this process's share;
     * `clip` and `check_overflow` need the sum. */
    int (*sum)(void *user, double *values, size_t count);
    void *user; /* passed to `sum` */
    /* "cuda" or "cuda:N": `weights` and gradients are in that GPU's memory; see
     * tide_optim_set_stream. The library keeps copies of both in host memory, pinned if possible,
     * which count towards `host_bytes`. Weights must be complete when tide_optim_create is called.
     * NULL or "cpu": they are in host memory. */
    const char *device;
    /* 1: a gradient that is written to or freed before its token is reached ends the optimizer with
     * -EFAULT; the message names the parameter. Gradients are hashed at submission, and before and
     * after each use. Some weights may have been updated by then: load a checkpoint. Not checked:
     * gradients on a GPU and those of `accumulate`, which are copied. 0: such a gradient gives
     * wrong weights, or a crash. init: 1 in a debug build (meson -Ddebug=true), else 0 */
    uint64_t check_gradients;
};

/* Fills the caller's struct with the defaults; `struct_bytes` is its sizeof. Returns 0 or an
 * error. */
TIDE_API int tide_optim_options_init(struct tide_optim_options *options, size_t struct_bytes);

/* Takes memory and storage. Masters are initialised with the weights, moments with zero. Returns 0
 * or an error. -EFBIG: the budget, or the space on the drives, is too small. -EBUSY: another run
 * uses a store. -EIO, too, if a file would exceed the system's limit on file sizes. */
TIDE_API int tide_optim_create(struct tide_context *context,
                               const struct tide_optim_options *options, struct tide_optim **out);
/* Waits for the updates of closed steps, then destroys the optimizer and its files in the stores.
 * An open step is not completed. */
TIDE_API void tide_optim_destroy(struct tide_optim *optim);

/* ---- Steps ---- */

/* Every parameter: for tide_optim_wait_parameter. */
#define TIDE_OPTIM_ALL UINT64_MAX

/* Submits a gradient of parameter `parameter`. The array is borrowed: it must not change until
 * *token is reached, which may be after the end of the step. With `accumulate` and with `device`,
 * the library copies the gradient instead. `last` 0: more gradients of this parameter follow in
 * this step (only with `accumulate`). Waits for the parameter's update of the last step. Returns 0
 * or an error. -EALREADY: the parameter has its last gradient. */
TIDE_API int tide_optim_submit(struct tide_optim *optim, uint64_t parameter, const void *gradient,
                               int last, uint64_t *token);

/* Closes the step, without waiting. A parameter without a gradient keeps its weights, states and
 * count of steps. *token is reached when the step's updates are done. Returns 0 or an error.
 * -ENODATA: no gradient was submitted. Polls and waits return a later error. */
TIDE_API int tide_optim_step(struct tide_optim *optim, uint64_t *token);

/* Waits until a token is reached. Returns 0 or the error that ended the optimizer. */
TIDE_API int tide_optim_wait(struct tide_optim *optim, uint64_t token);
/* Returns 1 if a token is reached, 0 if not, or the error that ended the optimizer. */
TIDE_API int tide_optim_poll(struct tide_optim *optim, uint64_t token);
/* Waits until a parameter (TIDE_OPTIM_ALL: all of them) has its weights of the last closed step.
 * Returns like tide_optim_wait. */
TIDE_API int tide_optim_wait_parameter(struct tide_optim *optim, uint64_t parameter);

struct tide_optim_result {
    size_t struct_bytes;
    uint64_t step;    /* steps closed so far */
    double grad_norm; /* norm of the gradients divided by the loss scale, before clipping */
    double factor;    /* by which clipping multiplied the gradients; 1: no clipping */
    uint64_t skipped; /* 1: the norm was not finite and nothing changed */
};

/* Describes the last closed step; waits for its norm. Returns 0 or an error. -EDOM: a gradient is
 * not finite; the message names the first parameter of its block, unless another process has it. */
TIDE_API int tide_optim_last(struct tide_optim *optim, struct tide_optim_result *out);

/* Only with `device`: sets the CUDA stream of later calls; initially the default stream (NULL). The
 * library queues its copies to and from the GPU there. tide_optim_weights_changed and submits with
 * `accumulate` wait for work on the stream; other calls do so only if many copies are in flight.
 * Work put on the stream after tide_optim_submit may overwrite the gradient; work put there after
 * tide_optim_wait_parameter finds the new weights. If the parameter's next gradient is already
 * submitted, tide_optim_wait_parameter copies no weights to the GPU; its next call after that step
 * does. It also copies weights that tide_optim_load or tide_optim_set_states changed. Returns 0 or
 * an error. */
TIDE_API int tide_optim_set_stream(struct tide_optim *optim, void *stream);

/* Tells which elements of a parameter this process updates: `count` (may be 0) from `first` on.
 * Processes pass the same parameters, with their whole weights, and submit the same ones in each
 * step. Before a submit the program sums these elements' gradients over all processes
 * (reduce-scatter); other elements are not read. After the update it sends these elements' weights
 * to all (all-gather). With the same sums, results are bit-identical to those of one process. Each
 * process has its own directories of stores and checkpoints (tide_optim_load_shares). Returns 0 or
 * an error. */
TIDE_API int tide_optim_share(const struct tide_optim *optim, uint64_t parameter, uint64_t *first,
                              uint64_t *count);

/* ---- Between steps ---- */

/* Replaces a group's hyperparameters for the steps after the last closed one; call it before the
 * first gradient of a step. Returns 0 or an error. */
TIDE_API int tide_optim_set_group(struct tide_optim *optim, uint64_t index,
                                  const struct tide_optim_group *group);

/* Sets the factor by which the program multiplies the loss, above 0 and up to 1e30 (initially 1);
 * gradients of later steps are divided by it. Waits for the last step. Returns 0 or an error.
 * -EBUSY: a step has a gradient. */
TIDE_API int tide_optim_set_loss_scale(struct tide_optim *optim, double loss_scale);

/* Reports that the program wrote a parameter's weights: sets its master to them, and keeps its
 * moments. Waits for the last step. Returns 0 or an error. -EBUSY: a step has a gradient. */
TIDE_API int tide_optim_weights_changed(struct tide_optim *optim, uint64_t parameter);

/* The program's arrays for one parameter's states, in fp32. NULL: that state is not copied. */
struct tide_optim_arrays {
    size_t struct_bytes;
    /* of each array: those of the parameter, or of this process's share */
    uint64_t elements;
    float *master; /* the weights, unrounded */
    float *m;      /* Adam(W): exp_avg; Lion and SGD: the momentum */
    float *v;      /* Adam(W): exp_avg_sq; Adagrad: the sum of squares */
};

/* Copies a parameter's states to `arrays`. *updates is the number of steps that updated the
 * parameter. Waits for the last step. Returns 0 or an error. -ENOTSUP: the rule does not have a
 * moment that `arrays` wants. -EBUSY: a step has a gradient. */
TIDE_API int tide_optim_get_states(struct tide_optim *optim, uint64_t parameter,
                                   const struct tide_optim_arrays *arrays, uint64_t *updates);

/* Copies `arrays` to a parameter's states and sets its number of steps, which corrects Adam's bias.
 * The weights follow the master. Moments of fewer bits are rounded to nearest. Waits for the last
 * step. Returns 0 or an error. Errors are as in tide_optim_get_states; after an error of a drive,
 * old and new states may be mixed. */
TIDE_API int tide_optim_set_states(struct tide_optim *optim, uint64_t parameter,
                                   const struct tide_optim_arrays *arrays, uint64_t updates);

/* Writes weights and states to DIRECTORY/checkpoint-N after N steps, and keeps the `keep` newest
 * checkpoints (0: all). A checkpoint is read back before it gets its name; a failure leaves older
 * ones unchanged. Waits for the last step. Returns 0 or an error. -EBUSY: a step has a gradient, or
 * another process writes there. -EEXIST: the directory has checkpoints of another run. */
TIDE_API int tide_optim_save(struct tide_optim *optim, const char *directory, uint64_t keep);

/* Reads the checkpoint at `path` or, in a directory of checkpoints, the newest one; if that is
 * damaged (-EBADMSG), the next older one. Parameters, rule and moments must be those of the
 * optimizer that wrote it; budgets may differ. The caller's weights are overwritten; groups keep
 * their settings. *step is the number of steps done. Returns 0 or an error. -EINVAL: the checkpoint
 * does not fit. -EBUSY: a step has a gradient. -ENOENT: there is no checkpoint. After other errors,
 * destroy the optimizer. */
TIDE_API int tide_optim_load(struct tide_optim *optim, const char *path, uint64_t *step);

/* Like tide_optim_load, for checkpoints that several processes saved, even another number of
 * processes. `paths` are the checkpoints of all processes that saved, or their directories, in any
 * order; from directories, the newest step that all have is read. Only checkpoints with states of
 * this process's share are needed and read. The weights of this share are overwritten; the program
 * sends them to all processes as after an update, and checks that all loaded the same *step. The
 * message of -EINVAL names a process whose checkpoint is missing. Returns 0 or an error. */
TIDE_API int tide_optim_load_shares(struct tide_optim *optim, const char *const *paths,
                                    size_t count, uint64_t *step);

struct tide_optim_info {
    size_t struct_bytes;
    uint64_t elements;       /* elements that this process updates, of all parameters */
    uint64_t host_bytes;     /* host memory that the library takes, as planned */
    uint64_t resident_bytes; /* bytes of states in memory */
    uint64_t store_bytes;    /* bytes of extents in the stores */
    uint64_t blocks;         /* small parameters share one */
};

/* Describes an optimizer. Returns 0 or an error. */
TIDE_API int tide_optim_describe(const struct tide_optim *optim, struct tide_optim_info *out);

#ifdef __cplusplus
}
#endif

#endif
