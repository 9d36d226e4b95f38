/* fake_cublaslt.c: found by the loader as libcublasLt.so.13. Its version counts calls of
 * cublasLtGetVersion since it was loaded. */
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))
#define STUB(name)                                                                                 \
    EXPORT int name(void);                                                                         \
    EXPORT int name(void)                                                                          \
    {                                                                                              \
        return 0;                                                                                  \
    }

STUB(cublasLtDestroy)
STUB(cublasLtMatmulDescInit_internal)
STUB(cublasLtMatmulDescSetAttribute)
STUB(cublasLtMatrixLayoutInit_internal)
STUB(cublasLtMatmulPreferenceInit_internal)
STUB(cublasLtMatmulPreferenceSetAttribute)
STUB(cublasLtMatmulAlgoGetHeuristic)
STUB(cublasLtMatmul)

EXPORT int cublasLtCreate(void **handle);
EXPORT int cublasLtCreate(void **handle)
{
    static char object;
    *handle = &object;
    return 0;
}

EXPORT size_t cublasLtGetVersion(void);
EXPORT size_t cublasLtGetVersion(void)
{
    static size_t asked;
    return ++asked;
}
