/* sort.h: sorts tokens by their ids, stably. Host side; puts work on the queue's stream. */
#ifndef KERNELS_CUDA_SORT_H
#define KERNELS_CUDA_SORT_H

#include <stddef.h>
#include <stdint.h>

#include "core/dev/launch.h"

#ifdef __cplusplus
extern "C" {
#endif

struct kern_unsorted {
    const int32_t *ids; /* [tokens]; NULL: t % length */
    int64_t length;
    int64_t tokens; /* below 2^31 */
    int64_t limit;  /* ids are 0 .. limit - 1; the order of others is undefined */
};

/* [tokens], in scratch: place p holds token order[p], whose id is ids[p]. */
struct kern_sorted {
    const int32_t *ids;
    const int32_t *order;
};

size_t kern_cuda_sort_bytes(int64_t tokens);
int kern_cuda_sort(const struct dev_launch *where, const char *op, const struct kern_unsorted *in,
                   void *scratch, struct kern_sorted *out);

#ifdef __cplusplus
}
#endif

#endif
