/* rope.h: the tables of angles that KERN_ROPE reads, built on the host.
 * Frequencies are computed in double and rounded to fp32; an angle is the fp32 product of frequency
 * and position. */
#ifndef KERNELS_ROPE_H
#define KERNELS_ROPE_H

#include <stdbool.h>
#include <stdint.h>

enum kern_rope_kind {
    KERN_ROPE_DEFAULT,
    KERN_ROPE_LINEAR,
    KERN_ROPE_DYNAMIC, /* NTK by length */
    KERN_ROPE_YARN,
    KERN_ROPE_LLAMA3,
};

/* Fields mean what the keys of transformers mean. 0 is a default only where a comment says so. */
struct kern_rope_config {
    enum kern_rope_kind kind;
    double theta;          /* rope_theta, the base */
    int64_t rotary;        /* rotated dimensions, even: head_dim * partial_rotary_factor */
    int64_t max_positions; /* max_position_embeddings of the model */
    /* LINEAR, DYNAMIC, LLAMA3, YARN; YARN: 0 means max_positions / original_max_positions */
    double factor;
    int64_t original_max_positions; /* YARN: 0 means max_positions; LLAMA3: required */
    double low_freq_factor;         /* LLAMA3 */
    double high_freq_factor;        /* LLAMA3 */
    double beta_fast;               /* YARN; 0 means 32 */
    double beta_slow;               /* YARN; 0 means 1 */
    double attention_factor;        /* YARN: 0: from factor, mscale, mscale_all_dim */
    double mscale;                  /* YARN; 0: absent */
    double mscale_all_dim;          /* YARN; 0: absent */
    bool exact_range;               /* YARN: `truncate` is false */
};

/* Writes cos and sin [positions][rotary / 2]. `sequence` (0: `positions`) is the run's longest
 * sequence, by which DYNAMIC scales. Returns -EINVAL, with a message that names the field, if the
 * configuration has no such table. With 0 positions, only checks the configuration. */
int kern_rope_build(const struct kern_rope_config *config, int64_t positions, int64_t sequence,
                    float *cos_table, float *sin_table);

#endif
