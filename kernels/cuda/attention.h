/* attention.h: what the kernels of attention share; private to attention*.cu. Host side. */
#ifndef KERNELS_CUDA_ATTENTION_H
#define KERNELS_CUDA_ATTENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/dev/launch.h"
#include "kernels/kern.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A run of positions of a row: [begin, end) of the document [start, stop). */
struct kern_tile {
    int32_t begin, end;
    int32_t start, stop;
};

/* The tiles of all rows. Tiles begin at multiples of `step` from their document's start, so that a
 * document's bits do not depend on what stands around it. */
struct kern_tiles {
    const struct kern_tile
        *list;             /* [rows][length]; NULL: a row is a document, tiles are computed */
    const int32_t *counts; /* [rows] */
    int32_t step;
    int32_t length;
    int32_t slots; /* of a row that a launch works on at once; further tiles follow on the same */
};

size_t kern_cuda_tiles_bytes(const struct kern_attention_arguments *a);
/* Lists the tiles in `scratch` where the rows have several documents. */
int kern_cuda_tiles_list(const struct dev_launch *where, const char *op,
                         const struct kern_attention_arguments *a, int32_t step, void *scratch,
                         struct kern_tiles *out);

/* delta[heads][tokens] = sum of o times d_o over a head. */
size_t kern_cuda_delta_bytes(const struct kern_attention_arguments *a);
int kern_cuda_delta(const struct dev_launch *where, const struct kern_attention_grad_arguments *g,
                    float *delta);

/* What the gradient by tensor cores begins with, in the queue's scratch: deltas, then tiles. */
int kern_cuda_attention_grad_begin(const struct dev_launch *where,
                                   const struct kern_attention_grad_arguments *g, int32_t step,
                                   struct kern_tiles *tiles, const float **delta);

/* Whether the tensor cores' kernels take these arrays: 16 bits, head_dim a multiple of 8 up to 128,
 * rows at multiples of 16 bytes. */
bool kern_cuda_attention_fits(const struct kern_attention_arguments *a);
bool kern_cuda_attention_grad_fits(const struct kern_attention_grad_arguments *g);

/* By the tensor cores of all cards that are taken (attention_mma.cu). */
int kern_cuda_attention_mma(const struct dev_launch *where,
                            const struct kern_attention_arguments *a);

int kern_cuda_attention_grad_mma(const struct dev_launch *where,
                                 const struct kern_attention_grad_arguments *g);

/* By Hopper's own products (attention_sm90.cu, attention_grad_sm90.cu): heads of 64 and 128. Only after
 * the check of each. */
bool kern_cuda_attention_sm90_fits(const struct kern_attention_arguments *a);
int kern_cuda_attention_sm90(const struct dev_launch *where,
                             const struct kern_attention_arguments *a);
bool kern_cuda_attention_grad_sm90_fits(const struct kern_attention_grad_arguments *g);
int kern_cuda_attention_grad_sm90(const struct dev_launch *where,
                                  const struct kern_attention_grad_arguments *g);
/* Whether the card has them, and they agree with attention_mma.cu and attention_grad.cu: in the queue's
 * scratch, which has that many bytes; waits for the card. A disagreement is a warning. */
bool kern_cuda_attention_check(const struct dev_launch *where);
size_t kern_cuda_attention_check_bytes(void);
bool kern_cuda_attention_grad_check(const struct dev_launch *where);
size_t kern_cuda_attention_grad_check_bytes(void);

/* Without tensor cores: any type, head_dim up to 512, any alignment. */
int kern_cuda_attention_plain(const struct dev_launch *where,
                              const struct kern_attention_arguments *a);
int kern_cuda_attention_grad_plain(const struct dev_launch *where,
                                   const struct kern_attention_grad_arguments *g,
                                   const float *delta);

#ifdef __cplusplus
}
#endif

#endif
