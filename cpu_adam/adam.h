/* adam.h: the optimizer of an array of parameters, on the CPU, in one pass over memory.
 * A `struct adam` owns no array: a call passes a window of the arrays. A step may be split at any
 * element (8-bit moments: at multiples of CORE_UPDATE_Q8_BLOCK). Results are bit-identical for any
 * number of threads and any instruction set. Formulas and formats: docs/optimizers.md. One thread
 * at a time uses an `adam`, with its team. Nothing is allocated after create. */
#ifndef CPU_ADAM_ADAM_H
#define CPU_ADAM_ADAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/team.h"
#include "core/base/update_args.h"

struct adam;

/* Hyperparameters of one group; they may change between steps. All must be in range, even if the
 * rule does not use them. */
struct adam_group {
    double lr;            /* 0 or more */
    double beta1;         /* in [0, 1); SGD: momentum; not used by Adagrad */
    double beta2;         /* in [0, 1); not used by Adagrad and SGD */
    double eps;           /* 0 or more; a quotient with denominator 0 counts as 0; not used by Lion
                           * and SGD */
    double decay;         /* 0 or more */
    uint64_t step;        /* the next step; the first is 1 */
    bool bias_correction; /* only for Adam and AdamW */
};

/* The parameters from the previous run's end to `end`, exclusive. */
struct adam_run {
    uint64_t end;
    uint32_t group;
};

enum { ADAM_GROUPS_MAX = 4096, ADAM_RUNS_MAX = 1 << 20 };

struct adam_options {
    enum core_update_rule rule;
    enum core_update_master master;
    enum core_update_type gradients; /* F32, BF16, FP16 */
    enum core_update_type moments;   /* F32, BF16, Q8 */
    uint64_t count;                  /* parameters of the whole array */
    const struct adam_run *runs;     /* copied; ascending, the last ends at `count` */
    size_t runs_count;               /* 0: all parameters in group 0 */
    const struct adam_group *groups; /* copied */
    size_t groups_count;
    uint64_t seed;          /* of the run, for stochastic rounding */
    uint32_t number;        /* of the array; different numbers never share random numbers */
    unsigned cpu_without;   /* instructions (enum core_cpu_flag) not to use; CORE_CPU_ALL: plain C
                             * only */
    struct core_team *team; /* borrowed, outlives the adam; NULL: the caller's thread alone */
};

/* The window [first, first + count) of every array. Arrays are aligned to their elements and do not
 * overlap. Arrays that rule and formats do not use are ignored. */
struct adam_arrays {
    uint64_t first; /* 8-bit moments: a multiple of CORE_UPDATE_Q8_BLOCK */
    uint64_t count;
    uint16_t *w16;
    uint16_t *lo16;
    float *w32;
    const void *g;
    void *m;
    void *v;
    float *m_scale; /* 8-bit moments: one per block */
    float *v_scale;
};

int adam_create(const struct adam_options *options, struct adam **out);
void adam_destroy(struct adam *adam); /* accepts NULL */

/* Replaces a group's hyperparameters for later steps. On failure the old ones stay. */
int adam_group_set(struct adam *adam, size_t index, const struct adam_group *group);

/* Updates parameters begin .. end - 1. Gradients are multiplied by `gradient_scale` (clip factor /
 * loss scale). *met (may be NULL) gets the enum core_nonfinite_flags of values that were not
 * finite. On -EINVAL nothing has been written. */
int adam_step(struct adam *adam, const struct adam_arrays *arrays, uint64_t begin, uint64_t end,
              double gradient_scale, unsigned *met);

/* Updates the whole window, whose first element is a multiple of CORE_UPDATE_TILE, and sums the
 * squares of the unscaled gradients. `sums` has the bits of adam_norm_sums(), but gradients are
 * read only once. */
int adam_step_sums(struct adam *adam, const struct adam_arrays *arrays, double gradient_scale,
                   double *sums);

/* Cuts a step into launches for a device that holds the arrays. `take` gets the launches in order,
 * each with the scalars of one group; a result other than 0 stops adam_pieces, which returns it.
 * After all launches the arrays have the bits of adam_step(). Returns -ENOTSUP if two groups share
 * a block of 8-bit moments. */
struct adam_window {
    const struct adam_arrays *arrays; /* borrowed; the arrays are not accessed */
    uint64_t begin, end;
    double gradient_scale;
};
typedef int adam_piece_fn(void *context, const struct core_update_args *piece);
int adam_pieces(struct adam *adam, const struct adam_window *window, adam_piece_fn *take,
                void *context);

/* Computes the fp32 scalars of one group, for CPU and device. Returns -EINVAL for settings without
 * valid scalars (step 0, beta 1, negative values, values not finite or beyond fp32). */
int adam_scalars(enum core_update_rule rule, const struct adam_group *group, double gradient_scale,
                 struct core_update_scalars *out);

enum adam_stream {
    ADAM_W16,
    ADAM_LO16,
    ADAM_W32,
    ADAM_G,
    ADAM_M,
    ADAM_V,
    ADAM_M_SCALE,
    ADAM_V_SCALE,
    ADAM_STREAMS,
};

/* Returns the bytes that `count` parameters take in a stream, if the first of them begins a block
 * of 8-bit moments; 0 if the rule and formats do not use the stream. */
uint64_t adam_stream_bytes(const struct adam_options *options, enum adam_stream stream,
                           uint64_t count);

/* Returns the master of the window's element i as fp32. `lo16` NULL: masters are not split. */
float adam_master_value(const struct adam_arrays *arrays, uint64_t i);
/* Returns the low half of a split master whose high half is x rounded to the nearest bf16, ties
 * to even. If a tie is rounded towards zero, the master is the next fp32 number towards zero,
 * not x. */
uint16_t adam_master_low(float x);

enum adam_value { ADAM_VALUE_MASTER, ADAM_VALUE_M, ADAM_VALUE_V };

/* Sets the values of begin .. end - 1, rounded to nearest if the format is narrower than fp32; the
 * working weight follows the master. With 8-bit moments `begin` and `end` are multiples of
 * CORE_UPDATE_Q8_BLOCK, or `end` is the array's end. Returns -ENOTSUP if the rule has no such
 * moment. */
int adam_state_write(struct adam *adam, const struct adam_arrays *arrays, enum adam_value value,
                     uint64_t begin, uint64_t end, const float *in);

/* Reads the values of begin .. end - 1 as fp32. Writing them back changes nothing but the rounding
 * of 8-bit moments. `begin`, `end` and -ENOTSUP: as in adam_state_write. */
int adam_state_read(struct adam *adam, const struct adam_arrays *arrays, enum adam_value value,
                    uint64_t begin, uint64_t end, float *out);

/* Names for messages and tables, for example "adamw", "split" and "fp32". */
const char *adam_rule_name(enum core_update_rule rule);
const char *adam_master_name(enum core_update_master master);
const char *adam_type_name(enum core_update_type type);

#endif
