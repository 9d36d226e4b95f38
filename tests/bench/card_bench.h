/* card_bench.h: shared by the measurements of a card: the card with a queue and large arrays of
 * small numbers, the shapes of an 8B Llama, and the time of an op that runs repeatedly. One thread.
 * `--quick` takes a quarter of the tokens and fewer runs; `--only WORD` measures only the lines
 * whose name contains WORD. A failure ends the program with a message. */
#ifndef TESTS_BENCH_CARD_BENCH_H
#define TESTS_BENCH_CARD_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/dev/dev.h"
#include "kernels/kern.h"

enum { HIDDEN = 4096, INNER = 14336, VOCAB = 128256, HEADS = 32, KV_HEADS = 8, DIM = 128 };
enum { TOKENS_MAX = 16384 };
enum { QKV = (HEADS + 2 * KV_HEADS) * DIM, CARD_BENCH_ARRAYS = 10 };

#define CARD_BENCH_ARRAY_BYTES ((size_t)2 << 30)

extern struct card_bench {
    const char *name; /* of the program */
    struct dev_device *device;
    struct dev_queue *queue;
    struct kern_ops *ops;
    int64_t tokens;
    double copy; /* bytes read and written per second, within the card */
    int batches;
    const char *only;
    void *arrays[CARD_BENCH_ARRAYS]; /* the last one is zeros */
} bench;

struct card_bench_step {
    enum kern_op op;
    const void *arguments;
};

/* Parses the arguments of the program, opens the card and prints the speed of copies. */
void card_bench_open(int argc, char **argv);
void card_bench_close(void);
void card_bench_zero(int array); /* fills an array with zeros */
/* Copies values to the beginning of an array. */
void card_bench_fill(int array, const void *values, size_t bytes);
bool card_bench_wanted(const char *name);
/* Best seconds of all steps, one after another, from start to end. */
double card_bench_best(const struct card_bench_step *steps, int length);

#endif
