/* tensor_map.h: how bulk copies (TMA) find tiles of 16-bit rows in memory. Host side; any thread. */
#ifndef KERNELS_CUDA_TENSOR_MAP_H
#define KERNELS_CUDA_TENSOR_MAP_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* CUtensorMap, which only the driver reads and writes: a kernel takes it as a __grid_constant__. */
struct kern_tensor_map {
#ifdef __cplusplus
    alignas(64)
#else
    _Alignas(64)
#endif
        uint64_t words[16];
};

/* An array [rows][length][stride] of 16-bit elements, of whose `stride` the first `columns` count. */
struct kern_tensor {
    const void *base;
    int64_t rows, length, stride, columns;
};

/* Boxes of 64 columns of `box_rows` positions, in shared memory as asm_sm90.cuh describes a slice;
 * positions from `length` on are zeros. base and stride are multiples of 16 bytes. -ENOSYS: the driver
 * has no tensor maps. */
int kern_cuda_tensor_map(const char *op, const struct kern_tensor *tensor, uint32_t box_rows,
                         struct kern_tensor_map *out);

#ifdef __cplusplus
}
#endif

#endif
