/* engine.h: what programs were compiled with when the ABI of 0.1 was recorded. Never edited: test_growth.c. */
#ifndef TIDE_ENGINE_H
#define TIDE_ENGINE_H
#include <stddef.h>
#include <stdint.h>
#include <tide/tide.h>
#ifdef __cplusplus
extern "C" {
#endif
enum tide_precision { TIDE_BF16, TIDE_FP16, TIDE_FP32 };
enum tide_optimizer { TIDE_ADAMW, TIDE_ADAM, TIDE_LION, TIDE_ADAGRAD, TIDE_SGD };
enum tide_moments { TIDE_MOMENTS_FP32, TIDE_MOMENTS_BF16, TIDE_MOMENTS_8BIT };
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
    TIDE_TIMING_DEFERRED,
    TIDE_TIMING_INSIDE,
    TIDE_TIMING_SPLIT,
    TIDE_TIMING_SPECULATIVE
};
enum { TIDE_STORES_MAX = 16 };
struct tide_store_path {
    size_t struct_bytes;
    const char *directory;
    uint64_t bytes;
};
struct tide_engine_options {
    size_t struct_bytes;
    const char *model;
    const char *device;
    uint32_t threads;
    uint32_t ranks;
    uint32_t zero_stage;
    uint32_t batch;
    uint32_t accum;
    uint32_t length;
    uint64_t seed;
    uint32_t precision;
    uint32_t optimizer;
    uint32_t moments;
    uint32_t gradients_fp32;
    double beta1;
    double beta2;
    double eps;
    double decay;
    uint32_t decay_all;
    uint32_t no_bias_correction;
    double clip;
    const char *const *frozen;
    size_t frozen_count;
    uint32_t check_overflow;
    uint32_t consecutive_hysteresis;
    double loss_scale;
    double initial_loss_scale;
    double min_loss_scale;
    uint32_t scale_window;
    uint32_t hysteresis;
    uint64_t device_bytes;
    uint64_t host_bytes;
    const struct tide_store_path *stores;
    size_t store_count;
    const char *io;
    uint32_t weights;
    uint32_t states;
    uint32_t grads;
    uint32_t acts;
    uint32_t order;
    uint32_t timing;
    uint32_t weight_slots;
    uint32_t state_slots;
    uint64_t chunk_elements;
    uint64_t tile_bytes;
    const char *rates;
    const char *trace;
    uint32_t saves;
    uint32_t measure;
    const char *resume;
    const char *cache;
};
TIDE_API int tide_engine_options_init(struct tide_engine_options *options, size_t struct_bytes);
struct tide_plan;
TIDE_API int tide_plan_create(struct tide_context *context,
                              const struct tide_engine_options *options, struct tide_plan **out);
TIDE_API void tide_plan_destroy(struct tide_plan *plan);
struct tide_plan_info {
    size_t struct_bytes;
    uint64_t parameters;
    uint64_t trained_parameters;
    uint64_t device_bytes;
    uint64_t host_bytes;
    uint64_t store_bytes;
    uint32_t acts;
    uint32_t order;
    uint64_t timing;
    uint32_t weight_slots;
    uint32_t state_slots;
    uint64_t chunk_elements;
    double step_seconds;
    double tokens_per_second;
    char bottleneck[96];
    uint64_t store_read_bytes;
    uint64_t store_write_bytes;
    uint64_t up_bytes;
    uint64_t down_bytes;
    uint64_t commands;
    double plan_seconds;
    double clipped_seconds;
};
TIDE_API int tide_plan_describe(const struct tide_plan *plan, struct tide_plan_info *out);
struct tide_plan_part {
    size_t struct_bytes;
    uint64_t tier;
    char what[32];
    uint64_t bytes;
};
TIDE_API int tide_plan_part_at(const struct tide_plan *plan, unsigned index,
                               struct tide_plan_part *out);
struct tide_plan_alternative {
    size_t struct_bytes;
    uint32_t acts;
    uint32_t order;
    uint64_t timing;
    double step_seconds;
    uint64_t device_bytes;
    uint64_t host_bytes;
    uint64_t store_write_bytes;
    char why[96];
};
TIDE_API int tide_plan_alternative_at(const struct tide_plan *plan, unsigned index,
                                      struct tide_plan_alternative *out);
TIDE_API int tide_plan_tape_line(const struct tide_plan *plan, unsigned index, char *text,
                                 size_t bytes);
TIDE_API int tide_plan_trace(const struct tide_plan *plan, const char *path);
TIDE_API int tide_plan_rates(const struct tide_plan *plan, const char *path);
TIDE_API int tide_plan_forget(const struct tide_plan *plan);
struct tide_engine;
TIDE_API int tide_engine_create(struct tide_context *context,
                                const struct tide_engine_options *options,
                                struct tide_engine **out);
TIDE_API void tide_engine_destroy(struct tide_engine *engine);
TIDE_API const struct tide_plan *tide_engine_plan(const struct tide_engine *engine);
struct tide_batch {
    size_t struct_bytes;
    uint32_t rows;
    uint32_t length;
    const int32_t *ids;
    const int32_t *labels;
    const int32_t *positions;
    const int32_t *starts;
};
struct tide_step {
    size_t struct_bytes;
    uint64_t step;
    double loss;
    double grad_norm;
    double loss_scale;
    uint64_t skipped;
    uint64_t tokens;
    uint64_t targets;
    double seconds;
    uint64_t store_read_bytes;
    uint64_t store_write_bytes;
    uint64_t up_bytes;
    uint64_t down_bytes;
    uint32_t guess_right;
    uint32_t guess_wrong;
    uint64_t guess_bytes;
    double guess_seconds;
};
TIDE_API int tide_engine_step(struct tide_engine *engine, const struct tide_batch *batches,
                              unsigned count, double lr, struct tide_step *out);
enum tide_wait {
    TIDE_WAIT_STORE_READ,
    TIDE_WAIT_STORE_WRITE,
    TIDE_WAIT_UPDATE,
    TIDE_WAIT_COPY,
    TIDE_WAIT_IMBALANCE,
    TIDE_WAIT_OTHER
};
struct tide_engine_wait {
    size_t struct_bytes;
    const char *name;
    double compute_seconds;
    double update_seconds;
};
TIDE_API int tide_engine_wait_at(const struct tide_engine *engine, unsigned index,
                                 struct tide_engine_wait *out);
TIDE_API int tide_engine_betas(struct tide_engine *engine, double beta1, double beta2);
struct tide_evaluation {
    size_t struct_bytes;
    double loss_sum;
    uint64_t targets;
};
TIDE_API int tide_engine_evaluate(struct tide_engine *engine, const struct tide_batch *batch,
                                  struct tide_evaluation *out);
TIDE_API int tide_engine_predict(struct tide_engine *engine, const int32_t *ids, uint32_t length,
                                 int32_t *out);
TIDE_API int tide_engine_save(struct tide_engine *engine, const char *folder, int overwrite);
TIDE_API int tide_engine_save_reserve(struct tide_engine *engine, const char *folder,
                                      int overwrite);
TIDE_API int tide_folder_claim(struct tide_context *context, const char *folder);
TIDE_API void tide_folder_unclaim(struct tide_context *context);
struct tide_engine_memory {
    size_t struct_bytes;
    uint64_t rss_bytes;
    uint64_t peak_bytes;
    uint64_t device_bytes;
    uint64_t host_bytes;
};
TIDE_API int tide_engine_memory(const struct tide_engine *engine, struct tide_engine_memory *out);
#ifdef __cplusplus
}
#endif
#endif
