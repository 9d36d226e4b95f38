/* fake_cudnn.h: what a test tells the played cuDNN (fake_cudnn.c), which stands in a file of its own and is
 * opened as the real one is. One test thread. */
#ifndef TESTS_CUDA_FAKE_CUDNN_H
#define TESTS_CUDA_FAKE_CUDNN_H

#include <stdint.h>

enum { FAKE_CUDNN_ARRAYS = 16 };

struct fake_cudnn {
    unsigned long version;    /* 0: 92600 */
    int fail_at, fail_status; /* the n-th call (1 is the first) fails so; 0: none does */
    int calls;                /* that came */
    int live;                 /* descriptors and handles that exist */
    int graphs, ops;          /* that were finalized; operations of the last one */
    int64_t workspace_bytes;  /* that each plan asks for */
    int note;                 /* of each engine */
    int proposals;            /* -1: none; else 2 */
    int plans_refused;        /* of those to come */
    /* Puts the work on the stream; arrays by the tensors' ids. */
    int (*execute)(void *stream, void *arrays[FAKE_CUDNN_ARRAYS], void *workspace);
};

/* "fake_cudnn" in the file. */
typedef struct fake_cudnn *fake_cudnn_function(void);

#endif
