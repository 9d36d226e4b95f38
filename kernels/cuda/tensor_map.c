/* tensor_map.c: makes tensor maps with the driver's function, found through the runtime: nothing
 * links to libcuda. */
#include "kernels/cuda/tensor_map.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <errno.h>
#include <string.h>

#include "core/base/err.h"

typedef CUresult encode_fn(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                           const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                           const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                           CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

enum { DIMENSIONS = 3, BOX_COLUMNS = 64, ENCODE_SINCE = 12000 };

_Static_assert(sizeof(CUtensorMap) == sizeof(struct kern_tensor_map), "the driver's words");

/* Returns NULL if the driver lacks the function. */
static encode_fn *encode_find(void)
{
    encode_fn *encode = NULL;
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, ENCODE_SINCE,
                                         cudaEnableDefault, &result) != cudaSuccess ||
        result != cudaDriverEntryPointSuccess) {
        (void)cudaGetLastError();
        return NULL;
    }
    memcpy(&encode, &function, sizeof encode);
    return encode;
}

int kern_cuda_tensor_map(const char *op, const struct kern_tensor *tensor, uint32_t box_rows,
                         struct kern_tensor_map *out)
{
    encode_fn *encode = encode_find();
    if (encode == NULL) {
        return core_err_set(-ENOSYS, "op %s: the driver has no cuTensorMapEncodeTiled", op);
    }
    const cuuint64_t row_bytes = (cuuint64_t)tensor->stride * sizeof(uint16_t);
    const cuuint64_t sizes[] = {(cuuint64_t)tensor->columns, (cuuint64_t)tensor->length,
                                (cuuint64_t)tensor->rows};
    const cuuint64_t strides[] = {row_bytes, row_bytes * (cuuint64_t)tensor->length};
    const cuuint32_t box[] = {BOX_COLUMNS, box_rows, 1};
    const cuuint32_t steps[] = {1, 1, 1};
    CUtensorMap map;
    const CUresult result = encode(
        &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, DIMENSIONS, (void *)(uintptr_t)tensor->base, sizes,
        strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) {
        return core_err_set(-EIO,
                            "op %s: the driver refuses a tensor map of %lld x %lld x %lld elements "
                            "(error %d)",
                            op, (long long)tensor->rows, (long long)tensor->length,
                            (long long)tensor->columns, (int)result);
    }
    memcpy(out, &map, sizeof *out);
    return 0;
}
