/* cudnn_load.c: finds cuDNN on this machine. */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "kernels/cuda/cudnn.h"

enum { VERSION_FIRST = 90000, VERSION_END = 100000 };

static const char *const names[] = {"cudnnGetVersion",
                                    "cudnnCreate",
                                    "cudnnDestroy",
                                    "cudnnSetStream",
                                    "cudnnBackendCreateDescriptor",
                                    "cudnnBackendDestroyDescriptor",
                                    "cudnnBackendSetAttribute",
                                    "cudnnBackendGetAttribute",
                                    "cudnnBackendFinalize",
                                    "cudnnBackendExecute"};
enum { NAMES = sizeof names / sizeof names[0] };
_Static_assert(sizeof(struct kern_dnn_calls) == NAMES * sizeof(void *),
               "a name a call, in their order");

/* TIDE_CUDNN names the file; else where the loader looks, and beside a toolkit. */
static void *library_open(char *path, size_t bytes)
{
    static const char name[] = "libcudnn.so.9";
    const char *home = getenv("CUDA_HOME");
    const char *given = getenv("TIDE_CUDNN");
    snprintf(path, bytes, "%s", given != NULL ? given : name);
    void *opened = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (opened == NULL && given == NULL) {
        snprintf(path, bytes, "%s/lib64/%s", home != NULL ? home : "/usr/local/cuda", name);
        opened = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return opened;
}

int kern_dnn_load(struct kern_dnn_calls *calls, void **library)
{
    char path[PATH_MAX];
    void *symbols[NAMES];
    void *opened = library_open(path, sizeof path);
    if (opened == NULL) {
        return core_err_set(-ENOTSUP, "%s", dlerror());
    }
    for (size_t i = 0; i < NAMES; i++) {
        symbols[i] = dlsym(opened, names[i]);
        if (symbols[i] == NULL) {
            kern_dnn_unload(opened);
            return core_err_set(-ENOTSUP, "%s has no function %s", path, names[i]);
        }
    }
    memcpy(calls, symbols, sizeof symbols);
    const size_t version = calls->version();
    if (version < VERSION_FIRST || version >= VERSION_END) {
        kern_dnn_unload(opened);
        return core_err_set(-ENOTSUP, "%s is version %zu, not one of 9 (%d and on)", path, version,
                            VERSION_FIRST);
    }
    *library = opened;
    return 0;
}

void kern_dnn_unload(void *library)
{
    if (library != NULL) {
        (void)dlclose(library);
    }
}
