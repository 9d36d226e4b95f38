/* scale.h: the loss scale of fp16, by DeepSpeed's rules: an overflow first uses up the hysteresis,
 * then halves the scale; a window of steps without overflow doubles it. Plain data; no thread, no
 * I/O. */
#ifndef OFFLOAD_RUN_SCALE_H
#define OFFLOAD_RUN_SCALE_H

#include <stdbool.h>
#include <stdint.h>

struct run_scale_options {
    double fixed; /* above 0: the scale never changes; 0: dynamic */
    double first;
    double least;
    uint32_t window;
    uint32_t hysteresis;
    bool consecutive_hysteresis; /* every step without overflow restores the hysteresis */
};

struct run_scale {
    struct run_scale_options options;
    double value; /* scale of the next step */
    uint64_t steps;
    uint64_t last_overflow; /* number of the step that overflowed last, from 1; 0: none */
    uint32_t hysteresis_left;
};

void run_scale_init(struct run_scale *scale, const struct run_scale_options *options);

/* Adjusts a dynamic scale after a step. Returns -ERANGE if the step overflowed at the smallest
 * scale with no hysteresis left. */
int run_scale_step(struct run_scale *scale, bool overflow);

#endif
