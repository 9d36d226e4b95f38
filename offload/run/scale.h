/* scale.h: the loss scale of fp16, by DeepSpeed's rules: an overflow uses up the hysteresis, then
 * halves the scale; a window of steps without overflow doubles it. Plain data; no thread, no
 * I/O. */
#ifndef OFFLOAD_RUN_SCALE_H
#define OFFLOAD_RUN_SCALE_H

#include <stdbool.h>
#include <stdint.h>

struct run_scale_options {
    double fixed; /* above 0: a constant scale; 0: dynamic */
    double first;
    double least;
    uint32_t window;
    uint32_t hysteresis;
    bool consecutive_hysteresis; /* a step without overflow restores the hysteresis */
};

struct run_scale {
    struct run_scale_options options;
    double value; /* scale of the next step */
    uint64_t steps;
    uint64_t last_overflow; /* step of the last overflow, from 1; 0: none */
    uint32_t hysteresis_left;
};

void run_scale_init(struct run_scale *scale, const struct run_scale_options *options);

/* Adjusts a dynamic scale after a step. Returns -ERANGE for an overflow at the smallest scale
 * when no hysteresis is left. */
int run_scale_step(struct run_scale *scale, bool overflow);

#endif
