/* card.h: an emulated card: runs the threads of a kernel one after another on one processor, each
 * on its own stack, and lets them meet at barriers. This proves what a kernel computes, and that
 * the result does not depend on the order of its threads. It does not prove how fast a kernel is,
 * or what a real card's memory and schedulers do. emulated.cuh defines CUDA's keywords and
 * functions on top of this. Runs one block of one kernel at a time in the process; it locks itself. */
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

/* Runs thread(closure) for every thread of every block; each launch runs them in another order. If
 * a thread waits for one that has ended or never comes, the program ends with a message. */
void card_run(const struct card_grid *grid, void (*thread)(void *closure), void *closure);

/* The rest is called by the threads of a kernel. */
struct card_place {
    unsigned block[2];
    unsigned thread;
    struct card_grid grid;
};
const struct card_place *card_place(void);
/* Returns the block's dynamic shared memory, filled with NaN at the block's start. */
void *card_shared(void);
/* All threads of the block meet; returns the sum of their values. */
int card_barrier(int value);
/* The 32 lanes of a warp meet, each with `bytes` (at most 64) of its own. Returns the bytes of all,
 * lane after lane, valid until this lane's next call. */
const void *card_exchange(const void *mine, size_t bytes);

/* Copies 16 bytes into shared memory (zeros if `from` is NULL), at the latest when they are waited
 * for. A thread's copies form batches; a wait returns when no more than `left` batches are in
 * flight. */
void card_copy16(void *shared, const void *from);
void card_copy_batch(void);
void card_copy_wait(unsigned left);

/* A barrier in shared memory whose phase ends when all arrivals and all bytes that they announced
 * have come. Phases count 0, 1, 0, 1 ...; a wait for phase 1 returns at once before the first phase
 * has ended. */
void card_phase_init(uint64_t *barrier, unsigned arrivals);
void card_phase_arrive(uint64_t *barrier, unsigned bytes);
void card_phase_wait(const uint64_t *barrier, unsigned phase);

/* The content of a tensor map, in bytes: the sizes of rows, positions and columns, and of a box. */
struct card_tensor {
    const char *base;
    uint64_t columns, positions, rows;
    uint64_t position_stride, row_stride;
    uint32_t box_columns, box_positions;
};
struct card_corner {
    int32_t column, position, row; /* column: counts elements of 16 bits */
};
/* Copies a box to offset `shared` of shared memory, swizzled over 128 bytes, with zeros outside of
 * the tensor: in some launches at once, in others when no thread can continue without it. Its bytes
 * arrive at the barrier. */
void card_tensor_copy(uint32_t shared, const struct card_tensor *tensor, uint64_t *barrier,
                      struct card_corner corner);
/* Whether the emulated driver refuses tensor maps, or has none. */
extern bool card_maps_are_refused;
extern bool card_maps_are_missing;

/* Number of warpgroup products that threads have begun; and whether they read their tiles in a way
 * in which no card does. */
extern unsigned card_group_products;
extern bool card_group_products_are_wrong;

/* The emulated cuBLASLt (fake_lt.c): number of calls of its heuristic, the algorithm of the last
 * product, and whether it calls its first proposal unusable. */
extern unsigned card_lt_asked;
extern uint64_t card_lt_algorithm;
extern bool card_lt_first_is_bad;

#endif
