/* optimizer.h: what programs were compiled with when the ABI of 0.1 was recorded. Never edited: test_growth.c. */
#ifndef TIDE_OPTIMIZER_H
#define TIDE_OPTIMIZER_H
#include <stddef.h>
#include <stdint.h>
#include <tide/engine.h>
#ifdef __cplusplus
extern "C" {
#endif
struct tide_optim;
struct tide_optim_group {
    size_t struct_bytes;
    double lr;
    double beta1;
    double beta2;
    double eps;
    double decay;
    uint64_t no_bias_correction;
};
TIDE_API int tide_optim_group_init(struct tide_optim_group *group, size_t struct_bytes);
struct tide_optim_parameter {
    size_t struct_bytes;
    const char *name;
    void *weights;
    uint64_t elements;
    uint32_t precision;
    uint32_t gradients;
    uint64_t group;
};
struct tide_optim_options {
    size_t struct_bytes;
    const struct tide_optim_parameter *parameters;
    size_t parameter_count;
    const struct tide_optim_group *groups;
    size_t group_count;
    uint32_t optimizer;
    uint32_t moments;
    double clip;
    uint32_t check_overflow;
    uint32_t accumulate;
    uint64_t seed;
    uint64_t host_bytes;
    const struct tide_store_path *stores;
    size_t store_count;
    const char *io;
    const char *cache;
    uint32_t threads;
    uint32_t states;
};
TIDE_API int tide_optim_options_init(struct tide_optim_options *options, size_t struct_bytes);
TIDE_API int tide_optim_create(struct tide_context *context,
                               const struct tide_optim_options *options, struct tide_optim **out);
TIDE_API void tide_optim_destroy(struct tide_optim *optim);
#define TIDE_OPTIM_ALL UINT64_MAX
TIDE_API int tide_optim_submit(struct tide_optim *optim, uint64_t parameter, const void *gradient,
                               int last, uint64_t *token);
TIDE_API int tide_optim_step(struct tide_optim *optim, uint64_t *token);
TIDE_API int tide_optim_wait(struct tide_optim *optim, uint64_t token);
TIDE_API int tide_optim_poll(struct tide_optim *optim, uint64_t token);
TIDE_API int tide_optim_wait_parameter(struct tide_optim *optim, uint64_t parameter);
struct tide_optim_result {
    size_t struct_bytes;
    uint64_t step;
    double grad_norm;
    double factor;
    uint64_t skipped;
};
TIDE_API int tide_optim_last(struct tide_optim *optim, struct tide_optim_result *out);
TIDE_API int tide_optim_set_group(struct tide_optim *optim, uint64_t index,
                                  const struct tide_optim_group *group);
TIDE_API int tide_optim_set_loss_scale(struct tide_optim *optim, double loss_scale);
TIDE_API int tide_optim_weights_changed(struct tide_optim *optim, uint64_t parameter);
TIDE_API int tide_optim_save(struct tide_optim *optim, const char *directory, uint64_t keep);
TIDE_API int tide_optim_load(struct tide_optim *optim, const char *directory, uint64_t *step);
struct tide_optim_info {
    size_t struct_bytes;
    uint64_t elements;
    uint64_t host_bytes;
    uint64_t resident_bytes;
    uint64_t store_bytes;
    uint64_t blocks;
};
TIDE_API int tide_optim_describe(const struct tide_optim *optim, struct tide_optim_info *out);
#ifdef __cplusplus
}
#endif
#endif
