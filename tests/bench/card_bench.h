/* card_bench.h: for measurements of a card: the card with a queue and arrays, the shapes of an 8B
 * Llama, and the time of an op. One thread. `--quick` takes a quarter of the tokens and fewer runs;
 * `--only WORD[,WORD...]` selects lines by name; `--tiny` takes shapes for an emulated card, whose
 * figures mean nothing. A failure ends the program with a message. */
#ifndef TESTS_BENCH_CARD_BENCH_H
#define TESTS_BENCH_CARD_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/dev/dev.h"
#include "kernels/kern.h"

enum { TOKENS_MAX = 16384, CARD_BENCH_ARRAYS = 10 };

/* Sizes of the model, and of copies and updates. */
struct card_shape {
    const char *name;
    int32_t tokens; /* at most TOKENS_MAX */
    int32_t hidden, inner, vocab, heads, kv_heads, dim;
    int32_t qkv;             /* width of queries, keys and values */
    int32_t attention_heads; /* query heads; up to 8 share a key head */
    int32_t divisor;         /* sizes that do not depend on the model are divided by it */
    uint64_t updated;        /* weights */
    size_t array_bytes, scratch_bytes, copy_bytes;
};

extern struct card_bench {
    const char *name;
    const struct card_shape *shape;
    struct dev_device *device;
    struct dev_queue *queue;
    struct kern_ops *ops;
    int64_t tokens;
    double copy; /* bytes per second, read and written */
    int batches;
    const char *only;
    void *arrays[CARD_BENCH_ARRAYS]; /* the last one begins as zeros */
} bench;

struct card_bench_step {
    enum kern_op op;
    const void *arguments;
};

/* Parses the arguments, opens the card and prints the speed of copies. */
void card_bench_open(int argc, char **argv);
void card_bench_close(void);
void card_bench_zero(int array); /* fills an array with zeros */
void card_bench_fill(int array, const void *values, size_t bytes);
bool card_bench_wanted(const char *name);
/* Returns the best seconds of the steps, run one after another. */
double card_bench_best(const struct card_bench_step *steps, int length);

#endif
