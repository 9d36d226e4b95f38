/* card.h: an emulated card: runs the threads of a kernel one after another on one processor, each
 * on its own stack, and lets them meet at barriers. This proves what a kernel computes, and that
 * the result does not depend on the order of its threads. It does not prove how fast a kernel is,
 * or what a real card's memory and schedulers do. emulated.cuh defines the words of CUDA on top of
 * this. Runs one block of one kernel at a time in the process; the lock is inside. */
#ifndef TESTS_CUDA_CARD_H
#define TESTS_CUDA_CARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct card_grid {
    unsigned blocks[2];
    unsigned threads; /* a multiple of 32, up to 1024 */
    size_t shared_bytes;
};

/* Runs thread(closure) for every thread of every block; each launch visits them in another order. A
 * thread that waits for one that has left, or that never comes, ends the program with a sentence. */
void card_run(const struct card_grid *grid, void (*thread)(void *closure), void *closure);

/* The rest is called by the threads of a kernel. */
struct card_place {
    unsigned block[2];
    unsigned thread;
    struct card_grid grid;
};
const struct card_place *card_place(void);
/* The block's dynamic shared memory, filled with NaN at the block's start. */
void *card_shared(void);
/* All threads of the block meet; returns the sum of their values. */
int card_barrier(int value);
/* The 32 lanes of a warp meet, each with `bytes` (at most 64) of its own; returns what they
 * brought, lane after lane, valid until this lane's next call. */
const void *card_exchange(const void *mine, size_t bytes);

/* 16 bytes into shared memory (zeros where `from` is NULL), done when waited for: a thread's copies
 * make batches, and a wait ends when no more than `left` of them are under way. */
void card_copy16(void *shared, const void *from);
void card_copy_batch(void);
void card_copy_wait(unsigned left);

/* A barrier in shared memory whose phase ends when all arrivals have come, and the bytes that they
 * announced; phases count 0, 1, 0, 1 ..., and a wait for 1 passes before the first has ended. */
void card_phase_init(uint64_t *barrier, unsigned arrivals);
void card_phase_arrive(uint64_t *barrier, unsigned bytes);
void card_phase_wait(const uint64_t *barrier, unsigned phase);

/* What a tensor map says, in bytes: the sizes of rows, positions and columns, and of a box. */
struct card_tensor {
    const char *base;
    uint64_t columns, positions, rows;
    uint64_t position_stride, row_stride;
    uint32_t box_columns, box_positions;
};
struct card_corner {
    int32_t column, position, row; /* column: an element of 16 bits */
};
/* A box to offset `shared` of shared memory, swizzled over 128 bytes, zeros outside; at once in some
 * launches, in the others when no thread can go on without it. Its bytes arrive at the barrier. */
void card_tensor_copy(uint32_t shared, const struct card_tensor *tensor, uint64_t *barrier,
                      struct card_corner corner);
/* Whether the played driver refuses tensor maps, or has none. */
extern bool card_maps_are_refused;
extern bool card_maps_are_missing;

/* Products of warpgroups that threads have begun; and whether they read their tiles as no card does. */
extern unsigned card_group_products;
extern bool card_group_products_are_wrong;

/* The played cuBLASLt (fake_lt.c): calls of its heuristic, the algorithm of the last product, and
 * whether it calls its first proposal unusable. */
extern unsigned card_lt_asked;
extern uint64_t card_lt_algorithm;
extern bool card_lt_first_is_bad;

#endif
