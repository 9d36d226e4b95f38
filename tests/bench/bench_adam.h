/* bench_adam.h: settings, formats and arrays of bench_adam. The main thread calls these functions;
 * the team does the work. */
#ifndef TESTS_BENCH_BENCH_ADAM_H
#define TESTS_BENCH_BENCH_ADAM_H

#include <stdbool.h>
#include <stdint.h>

#include "cpu_adam/adam.h"

enum { BENCH_ROUNDS_MAX = 101, BENCH_PIECE = 1 << 14 };

struct bench_format {
    const char *name;
    enum core_update_rule rule;
    enum core_update_master master;
    enum core_update_type gradients;
    enum core_update_type moments;
};

struct bench_setting {
    uint64_t count;
    unsigned rounds;
    struct core_team *team; /* borrowed */
};

struct bench_stream {
    void *base; /* owned mapping; NULL if the format lacks the array */
    uint64_t bytes;
};

struct bench_arena {
    const struct bench_setting *setting; /* borrowed */
    struct adam *adam;                   /* owned */
    struct bench_stream streams[ADAM_STREAMS];
    bool interleaved; /* set by bench_arena_plain() */
    _Atomic uint64_t sink;
};

/* Ends the program on failure. */
void bench_arena_open(struct bench_arena *arena, const struct bench_setting *setting,
                      const struct bench_format *format);
void bench_arena_close(struct bench_arena *arena);

/* Return the seconds of a step, or of reading and writing back the same bytes, stream by stream or
 * interleaved. */
double bench_arena_step(struct bench_arena *arena);
double bench_arena_plain(struct bench_arena *arena, bool interleaved);
/* Returns the seconds of a step with sums of squares, in a separate pass or within the step. */
double bench_arena_sums(struct bench_arena *arena, bool apart, double *sums);
/* Returns the bytes that a step moves. */
double bench_arena_moved(const struct bench_arena *arena);

double bench_median(double *values, unsigned count);

/* Times the optimizers of DeepSpeed and torch in turns with our step. */
void bench_adam_against_peers(const struct bench_setting *setting, const char *python,
                              const struct bench_format *ours);

#endif
