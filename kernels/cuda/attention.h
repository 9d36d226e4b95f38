/* attention.h: what the files of attention share; private to kernels/cuda. Host side. */
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

/* Positions [begin, end) of a row, in the document [start, stop). */
struct kern_tile {
    int32_t begin, end;
    int32_t start, stop;
};

/* The tiles of all rows. A tile begins at a multiple of `step` from its document's start, so that a
 * document's bits do not depend on its neighbours. */
struct kern_tiles {
    /* [rows][length]; NULL: a row is one document, and kernels compute its tiles */
    const struct kern_tile *list;
    const int32_t *counts; /* tiles of a row; NULL if `list` is NULL */
    int32_t step;
    int32_t length; /* positions of a row */
    int32_t slots;  /* a slot takes every slots-th tile of a row */
};

size_t kern_cuda_tiles_bytes(const struct kern_attention_arguments *a);
/* Sets *out; with a->starts, a kernel lists the tiles in `scratch`. */
int kern_cuda_tiles_list(const struct dev_launch *where, const char *op,
                         const struct kern_attention_arguments *a, int32_t step, void *scratch,
                         struct kern_tiles *out);

/* Computes delta[heads][tokens]: the sum of o times d_o over a head's elements. */
size_t kern_cuda_delta_bytes(const struct kern_attention_arguments *a);
int kern_cuda_delta(const struct dev_launch *where, const struct kern_attention_grad_arguments *g,
                    float *delta);

/* Computes delta and lists the tiles, in the queue's scratch, for the gradient on tensor cores. */
int kern_cuda_attention_grad_begin(const struct dev_launch *where,
                                   const struct kern_attention_grad_arguments *g, int32_t step,
                                   struct kern_tiles *tiles, const float **delta);

/* Returns whether the tensor-core kernels take the arguments: 16 bits, scale above 0, head_dim a
 * multiple of 8 up to 128, rows at multiples of 16 bytes. */
bool kern_cuda_attention_fits(const struct kern_attention_arguments *a);
bool kern_cuda_attention_grad_fits(const struct kern_attention_grad_arguments *g);

/* Run on the tensor cores of every supported card. The arguments must fit (see above). */
int kern_cuda_attention_mma(const struct dev_launch *where,
                            const struct kern_attention_arguments *a);

int kern_cuda_attention_grad_mma(const struct dev_launch *where,
                                 const struct kern_attention_grad_arguments *g);

/* Use Hopper's tensor-core instructions; ops call them only if the check below has returned true.
 * They take arguments that fit above, in bf16, with head_dim 64 or 128 and without gaps. */
bool kern_cuda_attention_sm90_fits(const struct kern_attention_arguments *a);
int kern_cuda_attention_sm90(const struct dev_launch *where,
                             const struct kern_attention_arguments *a);
bool kern_cuda_attention_grad_sm90_fits(const struct kern_attention_grad_arguments *g);
int kern_cuda_attention_grad_sm90(const struct dev_launch *where,
                                  const struct kern_attention_grad_arguments *g);
/* Returns whether the card has Hopper's instructions and the Hopper kernels agree with those for
 * all cards. On a Hopper card, logs a warning if they disagree or could not be compared. Uses
 * _check_bytes() of the queue's scratch and waits for the card. */
bool kern_cuda_attention_check(const struct dev_launch *where);
size_t kern_cuda_attention_check_bytes(void);
bool kern_cuda_attention_grad_check(const struct dev_launch *where);
size_t kern_cuda_attention_grad_check_bytes(void);

/* Run without tensor cores: fp32, bf16 and fp16, head_dim up to 512, any alignment. */
int kern_cuda_attention_plain(const struct dev_launch *where,
                              const struct kern_attention_arguments *a);
int kern_cuda_attention_grad_plain(const struct dev_launch *where,
                                   const struct kern_attention_grad_arguments *g,
                                   const float *delta);

#ifdef __cplusplus
}
#endif

#endif
