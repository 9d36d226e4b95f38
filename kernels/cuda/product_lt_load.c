/* product_lt_load.c: finds cuBLASLt on this machine. */
#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "core/base/err.h"
#include "kernels/cuda/product_lt.h"

static const char *const files[] = {
    "libcublasLt.so.13",
    "/usr/local/cuda/lib64/libcublasLt.so.13",
    "/usr/local/cuda/targets/x86_64-linux/lib/libcublasLt.so.13",
};

static const char *const names[KERN_LT_SYMBOLS] = {
    [KERN_LT_CREATE] = "cublasLtCreate",
    [KERN_LT_DESTROY] = "cublasLtDestroy",
    [KERN_LT_VERSION] = "cublasLtGetVersion",
    [KERN_LT_DESC_INIT] = "cublasLtMatmulDescInit_internal",
    [KERN_LT_DESC_SET] = "cublasLtMatmulDescSetAttribute",
    [KERN_LT_LAYOUT_INIT] = "cublasLtMatrixLayoutInit_internal",
    [KERN_LT_PREFERENCE_INIT] = "cublasLtMatmulPreferenceInit_internal",
    [KERN_LT_PREFERENCE_SET] = "cublasLtMatmulPreferenceSetAttribute",
    [KERN_LT_HEURISTIC] = "cublasLtMatmulAlgoGetHeuristic",
    [KERN_LT_CHECK] = "cublasLtMatmulAlgoCheck",
    [KERN_LT_MATMUL] = "cublasLtMatmul",
};

int kern_lt_load(void (*symbols[KERN_LT_SYMBOLS])(void), void **library)
{
    void *opened = NULL;
    for (size_t i = 0; i < sizeof files / sizeof files[0] && opened == NULL; i++) {
        opened = dlopen(files[i], RTLD_NOW | RTLD_LOCAL);
    }
    if (opened == NULL) {
        return core_err_set(-ENOTSUP, "cuBLASLt is not there: %s", dlerror());
    }
    for (size_t i = 0; i < KERN_LT_SYMBOLS; i++) {
        void *symbol = dlsym(opened, names[i]);
        if (symbol == NULL) {
            dlclose(opened);
            return core_err_set(-ENOTSUP, "%s has no function %s", files[0], names[i]);
        }
        memcpy(&symbols[i], &symbol, sizeof symbol);
    }
    *library = opened;
    return 0;
}

void kern_lt_unload(void *library)
{
    if (library != NULL) {
        dlclose(library);
    }
}
