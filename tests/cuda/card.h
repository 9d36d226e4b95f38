/* card.h: an emulated card, which runs a kernel's threads one after another on one processor. The
 * card shows what a kernel computes in several orders of its threads, and nothing about speed,
 * memory and schedulers. emulated.cuh defines CUDA on top of card.h. A process runs one block of
 * one kernel at a time, under a lock. */
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

/* Runs thread(closure) for every thread of every block, in an order that depends on the launch. If
 * a thread waits for one that has ended or never comes, the program ends with a message. */
void card_run(const struct card_grid *grid, void (*thread)(void *closure), void *closure);

/* The threads of a kernel call the following functions. */
struct card_place {
    unsigned block[2];
    unsigned thread;
    struct card_grid grid;
};
const struct card_place *card_place(void);
/* Returns the block's dynamic shared memory, initially NaN. */
void *card_shared(void);
/* Waits for all threads of the block; returns the sum of their values. */
int card_barrier(int value);
/* Waits for the 32 lanes of a warp, which give `bytes` bytes each (at most 64). Returns the bytes
 * of all lanes in order, valid until this lane's next call. */
const void *card_exchange(const void *mine, size_t bytes);

/* Copy 16 bytes into shared memory (zeros if `from` is NULL), at the latest when the thread waits
 * for them. A thread's copies form batches; a wait returns when at most `left` batches are in
 * flight. */
void card_copy16(void *shared, const void *from);
void card_copy_batch(void);
void card_copy_wait(unsigned left);

/* Initialises a barrier in shared memory. A phase ends when all arrivals and their announced bytes
 * have come. Phases count 0, 1, 0, 1 ...; a wait for phase 1 returns at once before the first phase
 * ends. */
void card_phase_init(uint64_t *barrier, unsigned arrivals);
void card_phase_arrive(uint64_t *barrier, unsigned bytes);
void card_phase_wait(const uint64_t *barrier, unsigned phase);

/* A tensor map. Columns, strides and box_columns are in bytes; positions, rows and box_positions
 * are counts. */
struct card_tensor {
    const char *base;
    uint64_t columns, positions, rows;
    uint64_t position_stride, row_stride;
    uint32_t box_columns, box_positions;
};
struct card_corner {
    int32_t column, position, row; /* column: in elements of 16 bits */
};
/* Copies a box to offset `shared` of shared memory, swizzled over 128 bytes, with zeros outside of
 * the tensor; at once in some launches, as late as possible in others. The bytes arrive at the
 * barrier. */
void card_tensor_copy(uint32_t shared, const struct card_tensor *tensor, uint64_t *barrier,
                      struct card_corner corner);
/* Whether the emulated driver refuses or lacks tensor maps. */
extern bool card_maps_are_refused;
extern bool card_maps_are_missing;

/* Number of warpgroup products begun, counted in each thread; whether they ignore the swizzle of
 * tiles. */
extern unsigned card_group_products;
extern bool card_group_products_are_wrong;

/* State of fake_lt.c: calls of the heuristic, algorithm of the last product, whether the first
 * proposal is unusable. */
extern unsigned card_lt_asked;
extern uint64_t card_lt_algorithm;
extern bool card_lt_first_is_bad;

#endif
