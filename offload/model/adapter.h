/* adapter.h: low-rank adapters (LoRA) in the form of PEFT. An adapted layer computes
 *   y = x w^T + bias + scale (x A^T) B^T
 * Targeted tensors of one parameter (q, k, v) share one array A [parts * rank][inputs], so that x
 * is read once; B [rows of the targeted tensors][rank] has one tensor below the other. DoRA divides
 * each row of w + scale B A by its norm, a constant in backward, and multiplies the row by a
 * trained magnitude. Pure functions. */
#ifndef OFFLOAD_MODEL_ADAPTER_H
#define OFFLOAD_MODEL_ADAPTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum model_adapter {
    MODEL_ADAPTER_NONE,
    MODEL_ADAPTER_A,
    MODEL_ADAPTER_B,
    MODEL_ADAPTER_MAGNITUDE /* DoRA */
};

#define MODEL_ADAPTER_CONFIG "adapter_config.json"
#define MODEL_ADAPTER_FILE   "adapter_model.safetensors"
/* Prefix of tensor names in PEFT's files. */
#define MODEL_ADAPTER_PREFIX "base_model.model."
/* The base's identity in adapter_config.json: tide's key in an object that PEFT ignores if there is
 * a task_type. PEFT warns about unknown keys elsewhere. */
#define MODEL_ADAPTER_MAPPING "auto_mapping"
#define MODEL_ADAPTER_BASE    "tide_base"

/* The largest dropout rate. Kept inputs are divided by 1 - rate. */
#define MODEL_LORA_DROPOUT_MAX 0.999

struct model_lora_options {
    int64_t rank; /* at least 1 */
    double alpha;
    bool rslora; /* the scale is alpha / sqrt(rank), not alpha / rank */
    bool dora;
    double dropout; /* rate for the adapters' inputs: 0 to MODEL_LORA_DROPOUT_MAX */
    /* Modules that get adapters: paths of linear layers, or last parts of paths ("q_proj"). NULL:
     * every linear layer except the head. */
    const char *const *targets;
    size_t target_count;
    /* Modules that are trained whole, named as in `targets`. */
    const char *const *saved;
    size_t saved_count;
    uint64_t seed; /* seed of initial values and dropout */
};

/* The options that a model keeps; rank 0: no adapters. */
struct model_lora {
    int64_t rank;
    double alpha;
    bool rslora;
    bool dora;
    float scale;
    double dropout;
    uint64_t seed;
};

struct model_lora model_lora_of(const struct model_lora_options *options);
/* Returns alpha / rank, or alpha / sqrt(rank) with rsLoRA. */
double model_lora_scale(double alpha, int64_t rank, bool rslora);

/* Returns the seed of dropout in training step `step`. Never returns 0. */
uint64_t model_lora_step_seed(const struct model_lora *lora, uint64_t step);

/* Returns the length of a tensor's module path: of "a.q_proj" in "a.q_proj.weight". */
size_t model_module_length(const char *tensor);
/* Returns whether `name` is the path of the tensor's module, or the last part of that path
 * ("q_proj"). */
bool model_module_matches(const char *tensor, const char *name);
/* Writes PEFT's name for an adapter of the tensor's module. */
void model_adapter_name(const char *tensor, enum model_adapter adapter, char *out, size_t bytes);

/* Writes the name of the adapted tensor: "base_model.model.a.q_proj.lora_B.weight" ->
 * "a.q_proj.weight". */
void model_adapter_base_name(const char *name, char *out, size_t bytes);

/* Writes initial values [begin, begin + count) of A or B as fp32: B is zero; A is uniform in
 * +-1/sqrt(cols), as in PEFT. Values of A depend only on seed, name, cols and position. */
void model_adapter_fill(enum model_adapter adapter, const char *name, int64_t cols, uint64_t seed,
                        uint64_t begin, uint64_t count, float *out);

#endif
