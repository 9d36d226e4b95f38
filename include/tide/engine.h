/* engine.h: training a built-in model that need not fit: plan it, step it, evaluate it, save it.
 * C17 and C++; the rules of tide.h hold. docs/finetune.md says the same for the command line. */
#ifndef TIDE_ENGINE_H
#define TIDE_ENGINE_H

#include <stddef.h>
#include <stdint.h>
#include <tide/tide.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- What is wished for ---- */

enum tide_precision { TIDE_BF16, TIDE_FP16, TIDE_FP32 };
enum tide_optimizer { TIDE_ADAMW, TIDE_ADAM, TIDE_LION, TIDE_ADAGRAD, TIDE_SGD };
enum tide_moments { TIDE_MOMENTS_FP32, TIDE_MOMENTS_BF16, TIDE_MOMENTS_8BIT };

/* Where a stream lies; AUTO lets the planner choose. */
enum tide_place { TIDE_AUTO, TIDE_DEVICE, TIDE_HOST, TIDE_STORE };
enum tide_acts {
    TIDE_ACTS_AUTO,
    TIDE_ACTS_KEEP,
    TIDE_ACTS_RECOMPUTE,
    TIDE_ACTS_HOST,
    TIDE_ACTS_STORE
};
enum tide_order { TIDE_ORDER_AUTO, TIDE_ORDER_LAYER, TIDE_ORDER_MICRO };
enum tide_timing {
    TIDE_TIMING_AUTO,
    TIDE_TIMING_DEFERRED, /* under the next forward */
    TIDE_TIMING_INSIDE,   /* inside backward: without clipping and skips */
    TIDE_TIMING_SPLIT,    /* some of each: the same */
    TIDE_TIMING_SPECULATIVE /* inside backward on the guess that the norm neither clips nor skips, with
                               two generations of what updates overwrite */
};

enum { TIDE_STORES_MAX = 16 };

struct tide_store_path {
    const char *directory; /* tide makes a directory of its own in it */
    uint64_t bytes;        /* the most that may be taken there; 0: what is free, less 1 GiB */
};

struct tide_engine_options {
    size_t struct_bytes;
    const char *model;  /* a Hugging Face folder: config.json and safetensors */
    const char *device; /* "cpu" (NULL), "cuda", "cuda:N" */
    uint32_t threads;   /* of compute, shared by the ranks; 0: one a processor. Part of what makes a
                           run's bits */
    uint32_t ranks;     /* data-parallel ranks in this process; 0: 1 */
    uint32_t zero_stage;
    uint64_t seed; /* stochastic rounding */

    /* A step: `accum` micro-batches a rank, each of `batch` rows of up to `length` tokens. */
    uint32_t batch;
    uint32_t accum;  /* 0: 1 */
    uint32_t length; /* tokens a row */

    uint32_t precision; /* enum tide_precision */
    uint32_t optimizer; /* enum tide_optimizer */
    uint32_t moments;   /* enum tide_moments */
    uint32_t gradients_fp32;
    double beta1, beta2; /* Adam(W), Lion; SGD: beta1 is the momentum */
    double eps;
    double decay;
    uint32_t decay_all;          /* also norms and biases */
    uint32_t no_bias_correction; /* Adam(W) */
    double clip;                 /* largest norm; 0: off */
    uint32_t check_overflow;     /* bf16, fp32: a norm that is not finite skips the step */
    const char *const *frozen;   /* shell patterns of tensor names; NULL: none */
    size_t frozen_count;

    /* fp16: DeepSpeed's rules. */
    double loss_scale;       /* 0: dynamic */
    double first_loss_scale; /* 0: 65536 */
    double least_loss_scale; /* 0: 1 */
    uint32_t scale_window;   /* 0: 1000 */
    uint32_t hysteresis;     /* 0: 2 */
    uint32_t consecutive_hysteresis;

    /* Budgets; 0: what the machine and the cgroup have, less a reserve. */
    uint64_t device_bytes;
    uint64_t host_bytes;
    struct tide_store_path stores[TIDE_STORES_MAX];
    uint32_t store_count;
    const char *io; /* "uring", "libaio", "threads", "mem"; NULL: chosen by probing */

    /* Requests to the planner. */
    uint32_t weights, states, grads; /* enum tide_place */
    uint32_t acts;                   /* enum tide_acts */
    uint32_t order;                  /* enum tide_order */
    uint32_t timing;                 /* enum tide_timing */
    uint32_t weight_slots, state_slots;
    uint64_t chunk_elements; /* 0: chosen; a multiple of 65536 */
    uint64_t tile_bytes;     /* larger linears are computed by tile; 0: no limit. Changes bits */
    const char *rates;       /* a JSON file of measured rates; NULL: measured */
    const char *trace;       /* a file for the timeline of some steps; NULL: none */
    uint32_t saves;     /* tapes are planned that write checkpoints under the next step; 16 MiB */
    const char *resume; /* a directory of checkpoints: begins with the newest one that verifies, or
                           with the model where it has none; NULL: with the model */
    /* A folder in which measured rates are kept for later runs, and a card's ways to compute products,
     * which bits depend on. NULL: each start measures, and products go the first way that the library
     * proposes. */
    const char *cache;
    uint32_t measure; /* 1: measured anew, whatever is kept */
};

/* The defaults of every field that has another than zero: AdamW, 0.9, 0.999, 1e-8, clip 1, accum 1.
 * Sets struct_bytes. */
TIDE_API void tide_engine_options_init(struct tide_engine_options *options);

/* ---- A plan ---- */

struct tide_plan;

/* Works out where everything lies and what a step costs. Moves nothing and takes no memory of the
 * model's size; measures rates where no file gives them. -EFBIG where it cannot fit: the sentence
 * names the smallest budgets that would do. */
TIDE_API int tide_plan_create(struct tide_context *context,
                              const struct tide_engine_options *options, struct tide_plan **out);
TIDE_API void tide_plan_destroy(struct tide_plan *plan);

struct tide_plan_info {
    size_t struct_bytes;
    uint64_t parameters;
    uint64_t trained_parameters;
    uint64_t device_bytes; /* of each tier, the runtime itself included */
    uint64_t host_bytes;
    uint64_t store_bytes;
    uint32_t acts;   /* enum tide_acts: what was chosen */
    uint32_t order;  /* enum tide_order */
    uint32_t timing; /* enum tide_timing */
    uint32_t weight_slots, state_slots;
    uint64_t chunk_elements;
    double step_seconds; /* predicted */
    double tokens_per_second;
    char bottleneck[96];        /* in words */
    uint64_t store_read_bytes;  /* a step */
    uint64_t store_write_bytes; /* a step: what wears the drive */
    uint64_t up_bytes;
    uint64_t down_bytes;
    uint64_t commands;   /* of a step's tape */
    double plan_seconds; /* it took to plan, without measuring */
    double
        clipped_seconds; /* of a step whose norm clips or skips; step_seconds but where updates go
                               ahead of their norms */
};
TIDE_API int tide_plan_describe(const struct tide_plan *plan, struct tide_plan_info *out);

/* Who takes how much of a tier. */
struct tide_plan_part {
    size_t struct_bytes;
    uint32_t tier; /* enum tide_place */
    char what[32]; /* "weights", "states", "gradients", "activations", "slots", "runtime" ... */
    uint64_t bytes;
};
/* The index-th part; -ENOENT beyond the last. */
TIDE_API int tide_plan_part_at(const struct tide_plan *plan, unsigned index,
                               struct tide_plan_part *out);

/* Another way to run that would fit, as it was tried before slots and chunks were tuned. */
struct tide_plan_alternative {
    size_t struct_bytes;
    uint32_t acts;   /* enum tide_acts */
    uint32_t order;  /* enum tide_order */
    uint32_t timing; /* enum tide_timing */
    double step_seconds;
    uint64_t device_bytes;
    uint64_t host_bytes;
    uint64_t store_write_bytes; /* a step */
    char why[96];               /* it was not chosen, in words */
};
/* The index-th fastest of those that were not chosen; -ENOENT beyond the last. */
TIDE_API int tide_plan_alternative_at(const struct tide_plan *plan, unsigned index,
                                      struct tide_plan_alternative *out);

/* One line of the step's tape: NULL-terminated into `text`, cut at `bytes`. -ENOENT beyond the
 * last. */
TIDE_API int tide_plan_tape_line(const struct tide_plan *plan, unsigned index, char *text,
                                 size_t bytes);
/* Writes the simulated timeline of a few steps as Chrome/Perfetto JSON. */
TIDE_API int tide_plan_trace(const struct tide_plan *plan, const char *path);
/* Writes the rates that the plan was made with, to be given back as `rates`. */
TIDE_API int tide_plan_rates(const struct tide_plan *plan, const char *path);
/* Forgets what `cache` has kept of this plan's rates, as where they foretold badly. */
TIDE_API int tide_plan_forget(const struct tide_plan *plan);

/* ---- An engine ---- */

struct tide_engine;

/* Plans, takes all memory and storage, loads the weights. Reports progress as "measure", "store" and
 * "load". The directories of stores are the engine's alone until it is destroyed. */
TIDE_API int tide_engine_create(struct tide_context *context,
                                const struct tide_engine_options *options,
                                struct tide_engine **out);
/* Leaves nothing behind in the stores. NULL is fine. */
TIDE_API void tide_engine_destroy(struct tide_engine *engine);
/* Lives as long as the engine. */
TIDE_API const struct tide_plan *tide_engine_plan(const struct tide_engine *engine);

/* Rows of equal length, row after row; all borrowed during the call. Fewer rows and shorter ones
 * than the engine was made for are filled up and not counted. */
struct tide_batch {
    size_t struct_bytes;
    uint32_t rows;
    uint32_t length;
    const int32_t *ids;
    const int32_t *labels;    /* unshifted; -100 is not learnt; NULL: the ids */
    const int32_t *positions; /* NULL: 0, 1, 2 ... in each row */
    const int32_t *starts;    /* in each row, where the document of a token begins; NULL: 0 */
};

enum tide_wait {
    TIDE_WAIT_STORE_READ,
    TIDE_WAIT_STORE_WRITE,
    TIDE_WAIT_UPDATE,
    TIDE_WAIT_COPY,
    TIDE_WAIT_IMBALANCE,
    TIDE_WAIT_OTHER,
    TIDE_WAIT_COUNT
};

struct tide_step {
    size_t struct_bytes;
    uint64_t step;     /* from 1; a skipped one counts */
    double loss;       /* mean over the step's targets */
    double grad_norm;  /* before clipping; not finite where skipped */
    double loss_scale; /* fp16: that this step used; else 1 */
    uint32_t skipped;  /* overflow: the weights are as they were */
    uint64_t tokens;   /* in rows, as given */
    uint64_t targets;  /* that were learnt from */
    double seconds;    /* since the last step ended */
    uint64_t store_read_bytes;
    uint64_t store_write_bytes;
    uint64_t up_bytes;
    uint64_t down_bytes;
    double compute_wait[TIDE_WAIT_COUNT]; /* seconds that the device had nothing to do, by cause */
    double update_wait[TIDE_WAIT_COUNT];
    uint32_t guess_right; /* 1: this step's update was made ahead of its norm, which confirmed it */
    uint32_t guess_wrong; /* 1: it was, and for nothing */
    uint64_t guess_bytes; /* moved between memory and stores for nothing */
    double guess_seconds; /* lost in this step to wrong guesses, this one and the one before */
};

/* One optimizer step over `count` micro-batches: accum x ranks of them, rank after rank; fewer are
 * filled up. A norm that is not finite ends the run with -EDOM and names the block, where steps are
 * not skipped. After an error the engine can only be destroyed. */
TIDE_API int tide_engine_step(struct tide_engine *engine, const struct tide_batch *batches,
                              unsigned count, double lr, struct tide_step *out);

/* The betas of the steps that follow, for schedules that move them; until then those of the options.
 * SGD has its momentum for the first, Adagrad neither. */
TIDE_API int tide_engine_betas(struct tide_engine *engine, double beta1, double beta2);

struct tide_evaluation {
    size_t struct_bytes;
    double loss_sum; /* over targets */
    uint64_t targets;
};
/* The loss of one micro-batch; changes nothing. */
TIDE_API int tide_engine_evaluate(struct tide_engine *engine, const struct tide_batch *batch,
                                  struct tide_evaluation *out);

/* The most likely token behind `length` ids; -EINVAL where they are more than a row of the engine.
 * For looking at what was learnt: each token is a whole forward pass. */
TIDE_API int tide_engine_predict(struct tide_engine *engine, const int32_t *ids, uint32_t length,
                                 int32_t *out);

/* Writes a Hugging Face folder with the weights in the working precision; the configuration and
 * the tokenizer's files come from the model's folder. -EEXIST where it is there and not empty,
 * unless `overwrite`, and where FOLDER.partial, in which it is made, has files that no run left. */
TIDE_API int tide_engine_save(struct tide_engine *engine, const char *folder, int overwrite);
/* Whether such a folder could be written, its whole size included: -ENOSPC, -EBUSY where another run is
 * to write it... Until it is saved, another folder is tried, or the engine is destroyed, it is this
 * engine's to write; a FOLDER.partial with nothing but a mark in it stands for that. */
TIDE_API int tide_engine_save_try(struct tide_engine *engine, const char *folder, int overwrite);

/* The same right before there is an engine: of two runs that are to write FOLDER the second one is told
 * so (-EBUSY) before it measures or loads anything. The context keeps it, one folder at a time, until it
 * is destroyed or an engine of it saves there or tries to, and then the engine does. What stands in
 * FOLDER is not looked at. */
TIDE_API int tide_folder_claim(struct tide_context *context, const char *folder);
/* Gives back what no engine has taken: what stands for it goes. A signal's handler may call
 * it. NULL is fine. */
TIDE_API void tide_folder_unclaim(struct tide_context *context);

struct tide_engine_memory {
    size_t struct_bytes;
    uint64_t rss_bytes; /* of the process now, hugetlb pages included */
    uint64_t peak_bytes;
    uint64_t device_bytes; /* taken in each tier by all ranks, as tide_plan_info counts them */
    uint64_t host_bytes;
};
TIDE_API int tide_engine_memory(const struct tide_engine *engine, struct tide_engine_memory *out);

#ifdef __cplusplus
}
#endif

#endif
