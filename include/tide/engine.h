/* engine.h: fine-tuning a built-in model that may be larger than memory: planning, training,
 * evaluating and saving. The rules of tide.h apply. docs/finetune.md describes the same options for
 * the command line. */
#ifndef TIDE_ENGINE_H
#define TIDE_ENGINE_H

#include <stddef.h>
#include <stdint.h>
#include <tide/tide.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Options ---- */

struct tide_world;

enum tide_precision { TIDE_BF16, TIDE_FP16, TIDE_FP32 };
enum tide_optimizer { TIDE_ADAMW, TIDE_ADAM, TIDE_LION, TIDE_ADAGRAD, TIDE_SGD };
/* How frozen layers are kept: as compute reads them, or in fewer bits, which are expanded for each
 * use. */
enum tide_base { TIDE_BASE_PLAIN, TIDE_BASE_BF16, TIDE_BASE_INT8, TIDE_BASE_NF4 };
/* Cross-entropy of tokens, or direct preference optimization (DPO) of pairs of rows. */
enum tide_loss { TIDE_LOSS_TOKENS, TIDE_LOSS_DPO };
enum tide_moments { TIDE_MOMENTS_FP32, TIDE_MOMENTS_BF16, TIDE_MOMENTS_8BIT };
/* INT8: codes of 8 bits, a scale per 256 of them; masters stay exact. */
enum tide_gather { TIDE_GATHER_EXACT, TIDE_GATHER_INT8 };
/* INT4: codes of 4 bits, a scale per 256 of them. FAST: sums in another order than that of
 * ranks. */
enum tide_reduce { TIDE_REDUCE_EXACT, TIDE_REDUCE_INT4, TIDE_REDUCE_FAST };

/* The tier of weights, optimizer states or gradients. AUTO: the planner chooses. */
enum tide_place { TIDE_AUTO, TIDE_DEVICE, TIDE_HOST, TIDE_STORE };

/* What happens to activations between forward and backward. */
enum tide_acts {
    TIDE_ACTS_AUTO,
    TIDE_ACTS_KEEP,      /* on the device */
    TIDE_ACTS_RECOMPUTE, /* keeps only inputs of layers, and computes the rest again */
    TIDE_ACTS_HOST,
    TIDE_ACTS_STORE
};

/* The order of layers and micro-batches in a step. */
enum tide_order {
    TIDE_ORDER_AUTO,
    TIDE_ORDER_LAYER, /* a layer runs for all micro-batches, then the next layer */
    TIDE_ORDER_MICRO  /* a micro-batch runs through all layers, then the next one */
};

/* When the optimizer updates run. */
enum tide_timing {
    TIDE_TIMING_AUTO,
    TIDE_TIMING_DEFERRED, /* during the forward pass of the next step */
    TIDE_TIMING_INSIDE,   /* during the backward pass; only without clipping and skipping */
    /* some blocks deferred, others inside; where INSIDE is possible */
    TIDE_TIMING_SPLIT,
    /* During the backward pass, as if the norm neither clipped nor skipped. What an update
     * overwrites is kept until that is known. */
    TIDE_TIMING_SPECULATIVE
};

/* The largest number of stores. */
enum { TIDE_STORES_MAX = 16 };

/* A directory on a drive, for data that is not in memory. */
struct tide_store_path {
    size_t struct_bytes;
    const char *directory; /* the library creates its own directory there */
    /* limit of the space used there. 0: an equal part of the file system's free space less 1 GiB
     * and the limits of other directories on it; a block store needs a limit */
    uint64_t bytes;
};

/* Options of a plan and an engine. tide_engine_options_init fills them; "init:" gives a default
 * other than 0. */
struct tide_engine_options {
    size_t struct_bytes;
    const char *model; /* a Hugging Face folder with config.json and safetensors; required */
    /* "cpu" (or NULL), "cuda" or "cuda:N"; with several ranks a GPU per rank: "cuda" means the
     * visible ones in order, "cuda:0,2" a list. The bits of a GPU's matrix products depend on
     * library, driver and GPU; a resumed run warns if one of these differs */
    const char *device;
    /* compute threads, shared by the ranks; 0: about one per processor, fewer with a GPU. Bits of
     * results depend on it: a resumed run with 0 uses its checkpoint's number if it can */
    uint32_t threads;
    /* data-parallel ranks, up to 64 (more with `machine`); 0: the number of processes of `world`,
     * or 1 without one */
    uint32_t ranks;
    uint32_t zero_stage; /* 0 to 3, as in DeepSpeed; no effect with one rank */

    /* A step has `accum` micro-batches per rank, of up to `batch` rows of up to `length` tokens. */
    uint32_t batch;  /* init: 1. 0 is refused. With TIDE_LOSS_DPO: pairs of rows */
    uint32_t accum;  /* init: 1. 0 means 1 */
    uint32_t length; /* tokens per row; required */
    uint64_t seed;   /* of stochastic rounding, and of adapters' initial values and dropout */

    uint32_t precision;          /* enum tide_precision */
    uint32_t optimizer;          /* enum tide_optimizer */
    uint32_t moments;            /* enum tide_moments */
    uint32_t gradients_fp32;     /* 1: gradients in fp32; 0: in the working precision */
    double beta1;                /* beta1 of Adam(W) and Lion, momentum of SGD; init: 0.9 */
    double beta2;                /* beta2 of Adam(W) and Lion; init: 0.999 */
    double eps;                  /* init: 1e-8 */
    double decay;                /* weight decay */
    uint32_t decay_all;          /* 1: norms and biases decay, too */
    uint32_t no_bias_correction; /* 1: Adam(W) without bias correction */
    double clip;                 /* largest norm of the gradients; 0: no clipping; init: 1 */
    const char *const *frozen;   /* shell patterns of tensors that are not trained */
    size_t frozen_count;
    /* 1: a step whose norm is not finite is skipped; with fp16 it always is */
    uint32_t check_overflow;

    /* The loss scale of fp16, with DeepSpeed's rules. */
    uint32_t consecutive_hysteresis;
    double loss_scale;         /* a fixed scale; 0: dynamic */
    double initial_loss_scale; /* 0: 65536 */
    double min_loss_scale;     /* 0: 1 */
    uint32_t scale_window;     /* 0: 1000 */
    uint32_t hysteresis;       /* 0: 2 */

    /* Budgets. */
    uint64_t device_bytes; /* 0: the device's free memory less a reserve */
    uint64_t host_bytes;   /* 0: the usable memory of machine or cgroup less a reserve */
    const struct tide_store_path *stores;
    size_t store_count; /* up to TIDE_STORES_MAX; 0: no store */
    /* "uring", "libaio" or "threads"; NULL: the first one that works. "mem": memory instead of
     * drives */
    const char *io;

    /* Requests to the planner; 0: the planner chooses. */
    uint32_t weights; /* enum tide_place */
    uint32_t states;  /* enum tide_place */
    uint32_t grads;   /* enum tide_place */
    uint32_t acts;    /* enum tide_acts */
    uint32_t order;   /* enum tide_order */
    uint32_t timing;  /* enum tide_timing */
    uint32_t weight_slots;
    uint32_t state_slots;
    uint64_t chunk_elements; /* a multiple of 65536 */
    /* linear layers larger than this are computed in tiles; 0: no tiles. The bits of results depend
     * on it */
    uint64_t tile_bytes;
    const char *rates; /* a JSON file of tide_plan_rates; NULL: rates are in `cache` or measured */
    const char *trace; /* a file for a timeline of some steps; NULL: none */
    uint32_t saves;    /* 1: checkpoints may be written while the next step runs; takes 16 MiB; no
                         * effect with `world` */
    uint32_t measure;  /* 1: rates are measured even if `cache` has them */
    /* a directory of checkpoints: the run continues from the newest that verifies. If the directory
     * has none, and with NULL, the run begins with the model */
    const char *resume;
    /* A folder that keeps measured rates for later runs; NULL: engines measure them. */
    const char *cache;
    /* 1: a directory of `stores` that does not exist is -ENOENT, unless its parent is a mount
     * point; 0: it is created */
    uint64_t stores_must_exist;

    /* What the planner needs to know about the application. */
    uint64_t application_bytes; /* host memory that the application will take while the engine
                                 * exists */
    /* Average tokens per row (with TIDE_LOSS_DPO: per pair), to predict tokens per second; 0:
     * `length` (per pair: twice that). */
    double tokens_per_row;

    /* For tide_plan_create: a JSON file that describes a node of another machine. The plan uses its
     * rates, and its memory where a budget here is 0; `ranks` counts the ranks of all `nodes`.
     * NULL: this machine */
    const char *machine;
    uint64_t nodes; /* nodes like `machine`; 0: 1 */
    /* For plans: the factor by which one rank's own work is slower than the others'. 0: 1 */
    double straggler;

    /* Each rank is a process of this world (world.h), which stays open until the engine is
     * destroyed. Only the first process sets this. `ranks` is 0, 1 or the number of processes;
     * budgets are limits of each host, and the ranks of a host share `threads`. NULL: ranks are
     * threads */
    struct tide_world *world;

    /* Low-rank adapters (LoRA). The model is frozen, and adapters of its linear layers are trained;
     * tide_engine_save then writes a PEFT folder. */
    uint32_t lora_rank;   /* 0: no adapters, or those of `adapter` */
    uint32_t lora_rslora; /* 1: the scale is alpha / sqrt(rank), not alpha / rank */
    double lora_alpha;    /* 0: twice the rank */
    double lora_dropout;  /* of the adapters' inputs in training; up to 0.999 */
    /* Linear layers that get adapters: names of modules as in files ("q_proj"), or ends of their
     * paths ("self_attn.q_proj"). NULL or {"all-linear"}: all linear layers. */
    const char *const *lora_targets;
    size_t lora_target_count;
    const char *const *modules_to_save; /* modules that are trained whole; NULL: none */
    size_t modules_to_save_count;
    /* A PEFT folder with initial adapters, which sets rank, alpha, dropout, targets and modules to
     * save. Members above that are set must agree, except lora_dropout, which replaces its dropout.
     * If tide wrote the folder, another base model is -EINVAL. NULL: initial values depend on
     * `seed`. */
    const char *adapter;
    uint64_t base;      /* enum tide_base: how frozen layers, or their frozen parts, are kept */
    uint64_t lora_dora; /* 1: adapters have magnitudes (DoRA) */

    /* 1: the kernel places threads and memory, even with several NUMA nodes */
    uint64_t numa_off;

    /* 1: with `world`, each machine writes its ranks' ranges of a checkpoint to its own drive, at
     * the same path on all machines. A run that resumes from such parts sets it, too: machines send
     * each other missing ranges. 0: all machines share the directory */
    uint64_t checkpoint_local;

    /* 1: no file beside the first of `stores` keeps a base in 8 or 4 bits for later engines */
    uint64_t no_keep_base;

    /* enum tide_gather: how ranks send each other 16-bit weights with ZeRO stage 3.
     * TIDE_GATHER_INT8 changes results, and is -ENOTSUP on a GPU */
    uint64_t gather;

    /* enum tide_loss. With TIDE_LOSS_DPO `batch` counts pairs: two rows, a chosen and a rejected
     * answer to the same prompt; the tokens of the prompt have the label -100. Only adapters are
     * trained (`lora_rank` or `adapter`); the reference is the model without them. -ENOTSUP with
     * `modules_to_save` */
    uint64_t loss;
    double dpo_beta; /* with TIDE_LOSS_DPO; 0: 0.1 */

    /* enum tide_reduce: how ranks send each other gradients. All but EXACT may change results.
     * INT4: with ZeRO stages 1 to 3; -ENOTSUP on a GPU. FAST: on the CPU a node's ranks add theirs
     * first, on GPUs NCCL adds all; -EINVAL if nodes have different numbers of ranks, or a node's
     * ranks are not consecutive */
    uint64_t reduce;

    /* With ZeRO stage 3: the size of groups of consecutive ranks, usually those of a node. After
     * the first gather of a block in a step, a group's ranks together keep its weights for the
     * step's later gathers. Must divide the number of ranks; 0 and 1: no groups. Results do not
     * change. More than 1 is -ENOTSUP on a GPU */
    uint64_t gather_within;

    /* With TIDE_LOSS_DPO, the most tokens of a pair, as tide_pair_length counts them; a step
     * refuses a longer pair. A pair takes compute and memory for this many tokens, at least
     * `length`. 0: 2 * length, enough for every pair. Bits of results depend on it: a resumed run
     * uses its checkpoint's number, unless the number here is larger or 2 * length is smaller,
     * which causes a warning */
    uint64_t pair_length;
};

/* Fills a struct with the defaults: tide_engine_options_init(&options, sizeof options). Returns 0
 * or an error. */
TIDE_API int tide_engine_options_init(struct tide_engine_options *options, size_t struct_bytes);

/* ---- Plans ---- */

struct tide_plan;

/* Plans where everything is kept, and predicts a step. The model's folder needs no weights.
 * Measures rates unless `rates`, `cache` or `machine` has them. Returns 0 or an error. -EFBIG: the
 * budgets, or the space on the drives, are too small. */
TIDE_API int tide_plan_create(struct tide_context *context,
                              const struct tide_engine_options *options, struct tide_plan **out);
/* Destroys a plan of tide_plan_create. */
TIDE_API void tide_plan_destroy(struct tide_plan *plan);

struct tide_plan_info {
    size_t struct_bytes;
    uint64_t parameters;
    uint64_t trained_parameters;
    /* Bytes in each tier, for all ranks of a node, including the library's own. */
    uint64_t device_bytes;
    uint64_t host_bytes;
    uint64_t store_bytes;
    uint32_t acts;   /* enum tide_acts: the choice */
    uint32_t order;  /* enum tide_order: the choice */
    uint64_t timing; /* enum tide_timing: the choice */
    uint32_t weight_slots;
    uint32_t state_slots;
    uint64_t chunk_elements;
    double step_seconds;        /* predicted */
    double tokens_per_second;   /* predicted */
    char bottleneck[96];        /* the limiting part of the machine, in words */
    uint64_t store_read_bytes;  /* of one rank per step */
    uint64_t store_write_bytes; /* of one rank per step */
    uint64_t up_bytes;          /* of one rank per step, host to device */
    uint64_t down_bytes;        /* of one rank per step, device to host */
    uint64_t commands;          /* of one rank per step */
    double plan_seconds;        /* planning without measuring */
    /* a step whose norm clips or skips. Differs from step_seconds if updates are speculative */
    double clipped_seconds;
    uint64_t sectioned_blocks; /* blocks whose weights move to slots in sections */
    uint64_t gather_bytes;     /* weights that one rank receives from others per step */
    uint64_t reduce_bytes;     /* gradients that one rank sends to others per step */
    /* the parts of gather_bytes and reduce_bytes between nodes */
    uint64_t gather_between_bytes;
    uint64_t reduce_between_bytes;
    /* size of the file that keeps a quantised base beside the first store, not part of store_bytes.
     * 0: no base is kept. Always 0 in an engine's plan */
    uint64_t kept_base_bytes;
    uint64_t kept_base_exists; /* 1: an earlier run wrote that file, and a run would read it */
    /* enum tide_reduce: the option, or TIDE_REDUCE_EXACT if it has no effect */
    uint64_t reduce;
};

/* Describes a plan. Returns 0 or an error. */
TIDE_API int tide_plan_describe(const struct tide_plan *plan, struct tide_plan_info *out);

/* The bytes of one kind of data in one tier, per rank. */
struct tide_plan_part {
    size_t struct_bytes;
    uint64_t tier; /* enum tide_place */
    char what[32]; /* "weights", "states", "gradients", "activations", "slots", "runtime" ... */
    uint64_t bytes;
};

/* Describes one part of a plan. Returns 0 or an error. -ENOENT: there is none at `index`. */
TIDE_API int tide_plan_part_at(const struct tide_plan *plan, unsigned index,
                               struct tide_plan_part *out);

/* Another plan that fits, with figures from before slots and chunks were tuned. device_bytes and
 * host_bytes are of all ranks of a node. */
struct tide_plan_alternative {
    size_t struct_bytes;
    uint32_t acts;   /* enum tide_acts */
    uint32_t order;  /* enum tide_order */
    uint64_t timing; /* enum tide_timing */
    double step_seconds;
    uint64_t device_bytes;
    uint64_t host_bytes;
    uint64_t store_write_bytes; /* of one rank per step */
    char why[96];               /* why it was not chosen, in words */
};

/* Describes one alternative; index 0 is the fastest. Returns 0 or an error. -ENOENT: there is none
 * at `index`. */
TIDE_API int tide_plan_alternative_at(const struct tide_plan *plan, unsigned index,
                                      struct tide_plan_alternative *out);

/* The predicted step if one part of the machine were twice as fast or large. */
struct tide_plan_what_if {
    size_t struct_bytes;
    char part[32]; /* "drives", "size of host memory" ... */
    double step_seconds;
};

/* Plans again, as if part `index` were twice as fast or large; takes about as long as the plan
 * took. Returns 0 or an error. -ENOENT: there is none at `index`. */
TIDE_API int tide_plan_what_if_at(const struct tide_plan *plan, unsigned index,
                                  struct tide_plan_what_if *out);

/* Prints one command of a step to `text`, which has `bytes` bytes; a longer line is cut. Returns 0
 * or an error. -ENOENT: there is none at `index`. */
TIDE_API int tide_plan_tape_line(const struct tide_plan *plan, unsigned index, char *text,
                                 size_t bytes);

/* Writes a predicted timeline of some steps as JSON for Chrome or Perfetto. Returns 0 or an
 * error. */
TIDE_API int tide_plan_trace(const struct tide_plan *plan, const char *path);

/* Writes the plan's rates as JSON, for tide_engine_options.rates. Returns 0 or an error. */
TIDE_API int tide_plan_rates(const struct tide_plan *plan, const char *path);

/* Removes this plan's rates from `cache`: the next run with this cache measures again. Returns 0 or
 * an error. */
TIDE_API int tide_plan_forget(const struct tide_plan *plan);

/* ---- Engines ---- */

struct tide_engine;

/* Plans, takes memory and storage, and loads the weights or a checkpoint. Progress is reported as
 * "measure", "store" and "load". The stores' directories are locked until the engine is destroyed.
 * Returns 0 or an error. -EFBIG: the budgets, or the space on the drives, are too small. -EBUSY:
 * another run uses a store. -EIO, too, if a file would exceed the system's limit on file sizes. */
TIDE_API int tide_engine_create(struct tide_context *context,
                                const struct tide_engine_options *options,
                                struct tide_engine **out);
/* Destroys an engine and removes its files from the stores, except a kept base. An unfinished
 * checkpoint is discarded. */
TIDE_API void tide_engine_destroy(struct tide_engine *engine);

/* Returns an engine's plan: valid as long as the engine, not to be destroyed. */
TIDE_API const struct tide_plan *tide_engine_plan(const struct tide_engine *engine);

/* A micro-batch: `rows` rows of `length` tokens, row after row in each array. The arrays are read
 * during the call only. Fewer or shorter rows than the engine's are padded; padding does not
 * count. */
struct tide_batch {
    size_t struct_bytes;
    uint32_t rows;
    uint32_t length;
    const int32_t *ids;
    const int32_t *labels; /* not shifted; -100: not a target. NULL: the same as ids */
    /* below the engine's `length`. NULL: 0, 1, 2 ... in each row; NULL with TIDE_LOSS_DPO */
    const int32_t *positions;
    /* for each token the index in its row at which its document begins; tokens attend to their own
     * document only. NULL: 0; NULL with TIDE_LOSS_DPO */
    const int32_t *starts;
};

/* Counts the tokens of a batch's longest pair with TIDE_LOSS_DPO, for `pair_length`: tokens of the
 * prompt with which both rows begin count once, tokens after a row's last target not at all.
 * Returns 0 or an error. */
TIDE_API int tide_pair_length(const struct tide_batch *batch, uint32_t *out);

struct tide_step {
    size_t struct_bytes;
    uint64_t step;     /* from 1; skipped steps count */
    double loss;       /* mean over this step's targets, or pairs */
    double grad_norm;  /* before clipping; not finite if the step was skipped */
    double loss_scale; /* used in this step; 1 without fp16 */
    uint64_t skipped;  /* 1: the norm was not finite; the weights did not change */
    uint64_t tokens;   /* tokens in the rows as passed */
    uint64_t targets;  /* tokens, or pairs, that contributed to the loss */
    double seconds;    /* since the end of the previous step, evaluation, prediction or save */
    uint64_t store_read_bytes; /* summed over the ranks, like the next three members */
    uint64_t store_write_bytes;
    uint64_t up_bytes;    /* host to device */
    uint64_t down_bytes;  /* device to host */
    uint32_t guess_right; /* 1: a speculative update was confirmed by the norm */
    uint32_t guess_wrong; /* 1: a speculative update had to be undone */
    uint64_t guess_bytes; /* moved between memory and stores for failed speculation */
    /* lost in this step to failed speculation of this and the previous step */
    double guess_seconds;
    uint64_t ranks;
    uint64_t slowest_rank; /* the rank that waited least for others in this step */
    /* mean time that a rank waited for others, less that of slowest_rank */
    double imbalance_seconds;
    /* weights that ranks received from each other, summed over the ranks */
    uint64_t gather_bytes;
    uint64_t reduce_bytes; /* gradients, counted in the same way */
    /* With TIDE_LOSS_DPO, means over the pairs. A row's reward is dpo_beta times the difference of
     * its targets' log probabilities with and without adapters */
    double reward_chosen;
    double reward_rejected;
    double reward_accuracy; /* share of pairs whose chosen row has the larger reward */
    /* the parts of gather_bytes and reduce_bytes between nodes */
    uint64_t gather_between_bytes;
    uint64_t reduce_between_bytes;
};

/* Trains one step on `count` micro-batches, at most accum x ranks, those of rank 0 first; `lr` is
 * the learning rate. With fewer micro-batches, a step computes less (a rank without any computes
 * one of padding), but moves as much data. A norm that is not finite skips the step with fp16 or
 * `check_overflow`; otherwise the step fails with -EDOM, and the message names the block. After
 * -EINVAL for wrong arguments, the engine can be used as before. After an error that ends the run
 * (-EDOM, -EIO, -ENOSPC, -EBADMSG, -ETIMEDOUT; -ERANGE: an overflow at the smallest loss scale),
 * later calls that need the model return that error again, and the engine can only be destroyed.
 * Returns 0 or an error. */
TIDE_API int tide_engine_step(struct tide_engine *engine, const struct tide_batch *batches,
                              unsigned count, double lr, struct tide_step *out);

/* Why a rank's device or optimizer update had nothing to do during a step. */
enum tide_wait {
    TIDE_WAIT_STORE_READ,
    TIDE_WAIT_STORE_WRITE,
    TIDE_WAIT_UPDATE,    /* optimizer update */
    TIDE_WAIT_COPY,      /* between host and device */
    TIDE_WAIT_IMBALANCE, /* compute and update, or ranks, wait for each other */
    TIDE_WAIT_OTHER      /* data, a step's beginning and end */
};

/* The stalls of rank 0 in one step for one reason. */
struct tide_engine_wait {
    size_t struct_bytes;
    const char *name;       /* "store_read", "store_write" ... */
    double compute_seconds; /* the device waited */
    double update_seconds;  /* the update waited */
};

/* Describes the last step's stalls for the reason `index`, a value of enum tide_wait; a newer
 * library may have more. Returns 0 or an error. -ENOENT: there is no such reason. */
TIDE_API int tide_engine_wait_at(const struct tide_engine *engine, unsigned index,
                                 struct tide_engine_wait *out);

/* Bytes that all ranks moved between memory and one of `stores`, from the end of the previous step
 * to the end of the last one. */
struct tide_engine_drive {
    size_t struct_bytes;
    const char *directory; /* valid as long as the engine */
    uint64_t read_bytes;
    uint64_t write_bytes;
};

/* Describes the store `index` of `stores` in the last step. Returns 0 or an error. -ENOENT: there
 * is no such store. */
TIDE_API int tide_engine_drive_at(const struct tide_engine *engine, unsigned index,
                                  struct tide_engine_drive *out);

/* Sets the betas of later steps, in [0, 1). SGD uses beta1 as its momentum; Adagrad uses neither.
 * Returns 0 or an error. */
TIDE_API int tide_engine_betas(struct tide_engine *engine, double beta1, double beta2);

struct tide_evaluation {
    size_t struct_bytes;
    double loss_sum; /* over the targets */
    uint64_t targets;
    /* With TIDE_LOSS_DPO `targets` counts pairs; these sums are over all pairs. */
    double reward_chosen_sum;
    double reward_rejected_sum;
    uint64_t reward_right; /* pairs whose chosen row has the larger reward */
};

/* Computes the loss of one micro-batch without training. Returns 0 or an error. Errors are as in
 * tide_engine_step. */
TIDE_API int tide_engine_evaluate(struct tide_engine *engine, const struct tide_batch *batch,
                                  struct tide_evaluation *out);

/* Computes the most likely token after `length` ids, at most a row of the engine, by a forward pass
 * over all of them. Returns 0 or an error. */
TIDE_API int tide_engine_predict(struct tide_engine *engine, const int32_t *ids, uint32_t length,
                                 int32_t *out);

/* Writes a Hugging Face folder: weights in the working precision (of a run with adapters: a PEFT
 * folder in fp32), configuration, and tokenizer files from the model's folder. Files are written to
 * FOLDER.partial and read back. Then FOLDER.partial is renamed to FOLDER; if FOLDER exists, the
 * files are moved there one by one. `overwrite` replaces files of the same names, and removes other
 * files of a model or of adapters (config.json, model*.safetensors and their index,
 * adapter_config.json, adapter_model.safetensors); the rest stays. Progress is reported as "save".
 * Returns 0 or an error. -EEXIST: FOLDER exists and is not empty, unless `overwrite` is 1, or
 * FOLDER.partial has files that no run of tide wrote. -EBUSY: another run has reserved FOLDER.
 * -EBADMSG: other bytes were read back than were written. If the last renames fail, FOLDER.partial
 * keeps the complete model; the next run that reserves or saves to FOLDER continues. */
TIDE_API int tide_engine_save(struct tide_engine *engine, const char *folder, int overwrite);

/* Checks that tide_engine_save could write this folder and that there is space for its files, and
 * reserves it for this engine by a mark in FOLDER.partial. The reservation ends when the folder is
 * saved, another folder is reserved, or the engine is destroyed. Returns 0 or an error. Errors are
 * as in tide_engine_save. */
TIDE_API int tide_engine_save_reserve(struct tide_engine *engine, const char *folder,
                                      int overwrite);

/* Reserves a folder before there is an engine, so that a second run for it fails early. Does not
 * check the contents of FOLDER. `context` must not be NULL. A context reserves one folder at a
 * time, until the context is destroyed, or one of its engines saves to the folder or reserves it.
 * Returns 0 or an error. -EBUSY: another run has reserved FOLDER. -EEXIST: FOLDER.partial has files
 * that no run of tide wrote, or a stopped run's complete result, which would replace newer files.
 * -ENOENT: a part of such a result is missing. */
TIDE_API int tide_folder_claim(struct tide_context *context, const char *folder);

/* Removes the FOLDER.partial of tide_folder_claim, if no engine has taken it over and nothing was
 * written there. May be called from a signal handler. Accepts NULL. */
TIDE_API void tide_folder_unclaim(struct tide_context *context);

struct tide_engine_memory {
    size_t struct_bytes;
    /* resident memory of this process or its world; includes hugetlb pages */
    uint64_t rss_bytes;
    uint64_t peak_bytes; /* so far; of a world, the sum of its processes' peaks */
    /* device memory that the plan takes for all ranks; host_bytes: host memory */
    uint64_t device_bytes;
    uint64_t host_bytes;
};

/* With the option `trace`, does the pending update, then writes the timeline; without it, does
 * nothing. An incomplete file is removed. If this is not called, tide_engine_destroy writes the
 * timeline and only logs an error. Returns 0 or an error. */
TIDE_API int tide_engine_trace(struct tide_engine *engine);

/* Describes the engine's memory. Returns 0 or an error. */
TIDE_API int tide_engine_memory(const struct tide_engine *engine, struct tide_engine_memory *out);

#ifdef __cplusplus
}
#endif

#endif
