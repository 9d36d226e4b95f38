/* product_lt_load.c: finds cuBLASLt on this machine. */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "kernels/cuda/product_lt.h"

static const char name[] = "libcublasLt.so.13";
/* The loader's folders, then a toolkit's. */
static const struct {
    const char *variable; /* with the toolkit's path; NULL: none */
    const char *folder;
} places[] = {
    {NULL, ""},
    {"CUDA_HOME", "/lib64/"},
    {"CUDA_PATH", "/lib64/"},
    {NULL, "/usr/local/cuda/lib64/"},
    {NULL, "/usr/local/cuda/targets/x86_64-linux/lib/"},
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
    [KERN_LT_MATMUL] = "cublasLtMatmul",
};

/* Opens the library and writes its path to `path`. RTLD_NODELETE: unloading would drop its kernels
 * from the card. */
static void *library_open(char *path, size_t path_bytes)
{
    void *opened = NULL;
    for (size_t i = 0; i < sizeof places / sizeof places[0] && opened == NULL; i++) {
        const char *home = places[i].variable != NULL ? getenv(places[i].variable) : "";
        if (home != NULL) {
            snprintf(path, path_bytes, "%s%s%s", home, places[i].folder, name);
            opened = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        }
    }
    return opened;
}

int kern_lt_load(void (*symbols[KERN_LT_SYMBOLS])(void))
{
    char path[PATH_MAX];
    void *opened = library_open(path, sizeof path);
    if (opened == NULL) {
        return core_err_set(-ENOTSUP,
                            "cannot open cuBLASLt (%s); install the libraries of CUDA 13, or add "
                            "their folder to LD_LIBRARY_PATH, or set CUDA_HOME to the toolkit",
                            dlerror());
    }
    for (size_t i = 0; i < KERN_LT_SYMBOLS; i++) {
        void *symbol = dlsym(opened, names[i]);
        if (symbol == NULL) {
            dlclose(opened);
            return core_err_set(-ENOTSUP, "%s has no function %s", path, names[i]);
        }
        memcpy(&symbols[i], &symbol, sizeof symbol);
    }
    dlclose(opened); /* the functions stay: see RTLD_NODELETE above */
    return 0;
}
