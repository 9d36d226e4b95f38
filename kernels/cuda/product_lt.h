/* product_lt.h: products by cuBLASLt; private to product*.c. cuBLASLt is opened when a device's ops
 * are made, so that nothing needs it to start. For each shape the library proposes ways to compute
 * it; where a file for them is given they are timed once and the fastest is kept there, so that the
 * next run computes the same bits; without a file the first proposal is taken. The thread that submits
 * enters, and waits for the card while it times. */
#ifndef KERNELS_CUDA_PRODUCT_LT_H
#define KERNELS_CUDA_PRODUCT_LT_H

#include "kernels/cuda/cudnn.h"
#include "kernels/cuda/product.h"

struct kern_lt;

/* `choices`: path of the file, NULL: none. -ENOTSUP with a sentence where the library is not there. */
int kern_lt_create(const char *choices, struct kern_lt **out);
void kern_lt_destroy(struct kern_lt *lt); /* NULL is fine */
/* "cuBLASLt 13.0.2": until the destroy. */
const char *kern_lt_describe(const struct kern_lt *lt);

/* *taken is false, and nothing done, where the library has no way for this shape. The last
 * KERN_CUDA_WORKSPACE_BYTES of the queue's scratch are its workspace. */
int kern_lt_product(struct kern_lt *lt, const struct dev_launch *where, const char *op,
                    const struct kern_cuda_product *product, bool *taken);

/* ---- product_lt_load.c: the library's functions. ---- */

enum kern_lt_symbol {
    KERN_LT_CREATE,
    KERN_LT_DESTROY,
    KERN_LT_VERSION,
    KERN_LT_DESC_INIT,
    KERN_LT_DESC_SET,
    KERN_LT_LAYOUT_INIT,
    KERN_LT_PREFERENCE_INIT,
    KERN_LT_PREFERENCE_SET,
    KERN_LT_HEURISTIC,
    KERN_LT_CHECK,
    KERN_LT_MATMUL,
    KERN_LT_SYMBOLS
};

/* Function pointers, to be turned into their types. *library is for kern_lt_unload. */
int kern_lt_load(void (*symbols[KERN_LT_SYMBOLS])(void), void **library);
void kern_lt_unload(void *library);

/* ---- product_lt_choices.c: the ways that were chosen. ---- */

enum { KERN_LT_ALGO_WORDS = 8, KERN_LT_CHOICES_MAX = 1024 };

/* All that a way may depend on; compared as bytes. The machine that it counts for names the library, so
 * that a product's and attention's are never the same. */
struct kern_lt_key {
    union {
        struct {
            int64_t m, n, k;
            int64_t a_stride, b_stride, out_stride;
            uint8_t type, out_type, a_turned, b_turned;
            uint8_t bias;
            uint8_t a_align, b_align, out_align; /* of the addresses: 16, 8, 4 or 2 */
        };
        struct kern_dnn_shape attention; /* attention_cudnn.c */
    };
};

struct kern_lt_choice {
    struct kern_lt_key key;
    uint64_t algo[KERN_LT_ALGO_WORDS]; /* cublasLtMatmulAlgo_t */
    bool none;                         /* the library has no way */
    bool checked;                      /* the library of this run has said that it knows the way */
};

struct kern_lt_choices {
    struct kern_lt_choice *list; /* owned, [KERN_LT_CHOICES_MAX]; the oldest gives way */
    size_t count, next;
    char *path;          /* owned; NULL: kept in memory alone */
    char machine[128];   /* card, library and driver: what a line of the file is good for */
    uint64_t read_bytes; /* of the file; what other runs have added stands behind them */
    unsigned line;       /* the last one read */
    bool warned;
};

/* Around choosing: while one run times, others that want to wait, and take what it has chosen: both
 * then have the same bits, and neither disturbs the other. Reads what was added since. -1, and nobody
 * waits, where there is no file or it cannot be locked; `end` takes what `begin` gave. */
int kern_lt_choices_begin(struct kern_lt_choices *choices);
void kern_lt_choices_end(int lock);

/* Reads what the file has for this machine. A file that is not there is empty; lines that are not
 * understood are left out with a warning. */
int kern_lt_choices_init(struct kern_lt_choices *choices, const char *path, const char *machine);
void kern_lt_choices_fini(struct kern_lt_choices *choices);
/* NULL: not chosen yet. Valid until the next add. */
struct kern_lt_choice *kern_lt_choices_find(const struct kern_lt_choices *choices,
                                            const struct kern_lt_key *key);
/* Keeps it in the place of what the key had, in the file too; a file that cannot be written is one warning. */
void kern_lt_choices_add(struct kern_lt_choices *choices, const struct kern_lt_choice *choice);

#endif
