/* fake_driver.c: the driver's functions for tensor maps. Checks what the driver's documents
 * require; a map is a struct card_tensor (card.h). */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <string.h>

#include "tests/cuda/card.h"

bool card_maps_are_refused;
bool card_maps_are_missing;

enum { ELEMENT_BYTES = 2, SWIZZLE_BYTES = 128, BOX_MAX = 256 };

static bool takes(CUtensorMapDataType type, cuuint32_t dimensions, const void *base,
                  const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box,
                  const cuuint32_t *steps)
{
    bool taken = !card_maps_are_refused && type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 &&
                 dimensions == 3 && (uintptr_t)base % 16 == 0 &&
                 box[0] * ELEMENT_BYTES <= SWIZZLE_BYTES;
    for (cuuint32_t i = 0; taken && i < dimensions; i++) {
        taken = sizes[i] > 0 && sizes[i] <= (cuuint64_t)1 << 32 && box[i] > 0 &&
                box[i] <= BOX_MAX && steps[i] == 1 &&
                (i == 0 || (strides[i - 1] % 16 == 0 && strides[i - 1] < (cuuint64_t)1 << 40));
    }
    return taken;
}

static CUresult encode(CUtensorMap *out, CUtensorMapDataType type, cuuint32_t dimensions,
                       void *base, const cuuint64_t *sizes, const cuuint64_t *strides,
                       const cuuint32_t *box, const cuuint32_t *steps,
                       CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                       CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
{
    (void)promotion;
    if (interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || swizzle != CU_TENSOR_MAP_SWIZZLE_128B ||
        fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE ||
        !takes(type, dimensions, base, sizes, strides, box, steps)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const struct card_tensor tensor = {.base = base,
                                       .columns = sizes[0] * ELEMENT_BYTES,
                                       .positions = sizes[1],
                                       .rows = sizes[2],
                                       .position_stride = strides[0],
                                       .row_stride = strides[1],
                                       .box_columns = box[0] * ELEMENT_BYTES,
                                       .box_positions = box[1]};
    memset(out, 0xff, sizeof *out);
    memcpy(out, &tensor, sizeof tensor);
    return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *result)
{
    CUresult (*const found)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                            const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                            const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                            CUtensorMapL2promotion, CUtensorMapFloatOOBfill) = encode;
    const bool known = !card_maps_are_missing && version >= 12000 && flags == cudaEnableDefault &&
                       strcmp(symbol, "cuTensorMapEncodeTiled") == 0;
    *result = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    *function = NULL;
    if (known) {
        memcpy(function, &found, sizeof found);
    }
    return cudaSuccess;
}
