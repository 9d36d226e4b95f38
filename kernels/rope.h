/* rope.h: the tables of angles that KERN_ROPE reads, built once a configuration on the host.
 * Frequencies are computed in double and rounded to fp32, and angles are fp32 products of frequency
 * and position, as transformers keeps them; cosine and sine are of that angle. */
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

/* Fields carry the meaning and, where 0, the default that transformers gives the
 * key of the same name. */
struct kern_rope_config {
    enum kern_rope_kind kind;
    double theta;          /* rope_theta, the base */
    int64_t rotary;        /* dimensions that turn, even: head_dim * partial_rotary_factor */
    int64_t max_positions; /* max_position_embeddings of the model */
    double factor;         /* LINEAR, DYNAMIC, LLAMA3; YARN, where 0 asks for
                                        max_positions / original_max_positions */
    int64_t original_max_positions; /* YARN: 0 is max_positions; LLAMA3: needed */
    double low_freq_factor;         /* LLAMA3 */
    double high_freq_factor;        /* LLAMA3 */
    double beta_fast;               /* YARN; 0: 32 */
    double beta_slow;               /* YARN; 0: 1 */
    double attention_factor;        /* YARN; 0: from factor, mscale, mscale_all_dim */
    double mscale;                  /* YARN; 0: absent */
    double mscale_all_dim;          /* YARN; 0: absent */
    bool exact_range;               /* YARN: `truncate` was false */
};

/* Writes cos and sin [positions][rotary / 2] for positions 0 .. positions - 1. `sequence` is the
 * longest length of the run, which DYNAMIC scales by; 0: `positions`. -EINVAL with a sentence that
 * names the field for a configuration that has no such table; with 0 positions nothing but that is
 * found out. */
int kern_rope_build(const struct kern_rope_config *config, int64_t positions, int64_t sequence,
                    float *cos_table, float *sin_table);

#endif
