/* tensor_map.h: tells bulk copies (TMA) where tiles of 16-bit rows are. Host side; any thread. */
#ifndef KERNELS_CUDA_TENSOR_MAP_H
#define KERNELS_CUDA_TENSOR_MAP_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A CUtensorMap, made by the driver and read by the card; a kernel's __grid_constant__
 * parameter. */
struct kern_tensor_map {
#ifdef __cplusplus
    alignas(64)
#else
    _Alignas(64)
#endif
        uint64_t words[16];
};

/* An array [rows][length][stride] of 16-bit elements; the first `columns` of `stride` are
 * copied. */
struct kern_tensor {
    const void *base;
    int64_t rows, length, stride, columns;
};

/* Makes a map with boxes of `box_rows` positions by 64 columns, stored in shared memory as a slice
 * (asm_sm90.cuh); positions from `length` on are zeros. base and stride: multiples of 16 bytes.
 * -ENOSYS: the driver has no tensor maps; -EIO: it refuses this one. */
int kern_cuda_tensor_map(const char *op, const struct kern_tensor *tensor, uint32_t box_rows,
                         struct kern_tensor_map *out);

#ifdef __cplusplus
}
#endif

#endif
