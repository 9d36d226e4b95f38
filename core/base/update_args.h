/* update_args.h: arguments of optimizer updates, of sums of squares by tile, and of sums of arrays.
 * docs/optimizers.md defines the bits of the results, on the CPU and on CUDA. Structs are values;
 * pointers are borrowed for the call. Compiles as C and CUDA C++. */
#ifndef CORE_BASE_UPDATE_ARGS_H
#define CORE_BASE_UPDATE_ARGS_H

#include <stdint.h>

enum {
    CORE_UPDATE_TILE = 65536,   /* elements, by global index, whose squares are summed together */
    CORE_UPDATE_GROUP = 256,    /* elements, by global index, with 16 common Philox counters */
    CORE_UPDATE_Q8_BLOCK = 256, /* elements, by global index, with one scale of 8-bit moments */
};

enum core_update_type { CORE_UPDATE_F32, CORE_UPDATE_BF16, CORE_UPDATE_FP16, CORE_UPDATE_Q8 };

enum core_update_rule {
    CORE_UPDATE_ADAM,    /* decay added to the gradient */
    CORE_UPDATE_ADAMW,   /* decay taken from the weight */
    CORE_UPDATE_LION,    /* one moment, m */
    CORE_UPDATE_ADAGRAD, /* one moment, v */
    CORE_UPDATE_SGD,     /* one moment, m */
    CORE_UPDATE_RULES,
};

/* Forms of the fp32 master weight and the working weight. */
enum core_update_master {
    CORE_UPDATE_MASTER_SPLIT, /* w16 (bf16) is the rounded high half, lo16 the low half */
    CORE_UPDATE_MASTER_BF16,  /* w32, and w16 as its copy in bf16 */
    CORE_UPDATE_MASTER_FP16,  /* w32, and w16 as its copy in fp16 */
    CORE_UPDATE_MASTER_F32,   /* w32 alone */
};

/* The common scalars of an update, computed by adam_scalars() in double and rounded to fp32. */
struct core_update_scalars {
    float gradient_scale; /* clip factor / loss scale */
    float beta1;
    float one_minus_beta1;
    float beta2;
    float one_minus_beta2;
    float root_scale; /* 1 / sqrt(1 - beta2^step), or 1 */
    float eps;
    float decay; /* Adam, Adagrad, SGD: wd; AdamW: -lr x wd; Lion: 1 - lr x wd */
    float rate;  /* Adam(W): -lr / (1 - beta1^step), or -lr; others: -lr */
    int decays;  /* 0: there is no weight decay */
};

/* Or-ed flags of non-finite values. */
enum core_nonfinite_flags {
    CORE_NONFINITE_GRADIENT = 1,
    CORE_NONFINITE_MASTER = 2,
    CORE_NONFINITE_WORKING = 4, /* also a finite master that overflows w16 */
};

/* One pass over `count` parameters. Unused pointers may be NULL. */
struct core_update_args {
    enum core_update_rule rule;
    enum core_update_master master;
    enum core_update_type gradients; /* F32, BF16, FP16 */
    enum core_update_type moments;   /* F32, BF16 (stochastic rounding), Q8 (whole blocks) */
    uint64_t first;                  /* global index of element 0 of the arrays */
    uint64_t count;
    uint16_t *w16;
    uint16_t *lo16;
    float *w32;
    const void *g;
    void *m;
    void *v;
    float *m_scale; /* Q8: one per block, from that of element 0 on */
    float *v_scale;
    uint64_t seed;   /* Philox key of the run */
    uint64_t stream; /* Philox stream: step x 2^32 + number of the array */
    struct core_update_scalars scalars;
};

/* sums[t] is the sum of squares, in double, of tile first / CORE_UPDATE_TILE + t; not finite if and
 * only if an element is not. `first` is a multiple of CORE_UPDATE_TILE. */
struct core_squares_args {
    const void *x;
    enum core_update_type type;
    uint64_t first;
    uint64_t count;
    double *sums;
};

/* to[i] is the sum of element i of `ranks` arrays, added in fp32 in the order of ranks, then
 * rounded to `type`. Array `own` is `from`, which may be `to`; the others are at `others`, `stride`
 * elements apart. F32, BF16 and FP16. */
struct core_sum_args {
    enum core_update_type type;
    uint32_t ranks;
    uint32_t own;
    const void *from;
    const void *others;
    uint64_t stride;
    uint64_t count;
    void *to;
};

#endif
