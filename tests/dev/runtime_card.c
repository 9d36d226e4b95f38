/* runtime_card.c: see runtime.h. */
#include <cuda_runtime_api.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "tests/dev/runtime.h"

struct call {
    int (*run)(void *context, const void *arguments);
    _Alignas(16) unsigned char arguments[];
};

void runtime_reset(void)
{
}

int runtime_live(void)
{
    return 0;
}

static void call_run(void *closure)
{
    struct call *call = closure;
    (void)call->run(NULL, call->arguments);
    free(call);
}

int runtime_stream_run(void *stream, int (*run)(void *context, const void *arguments),
                       const void *arguments, size_t bytes)
{
    struct call *call = malloc(sizeof *call + bytes);
    if (call == NULL) {
        return core_err_set(-ENOMEM, "no memory for a call");
    }
    call->run = run;
    memcpy(call->arguments, arguments, bytes);
    const cudaError_t error = cudaLaunchHostFunc(stream, call_run, call);
    if (error != cudaSuccess) {
        free(call);
        return core_err_set(-EIO, "cudaLaunchHostFunc failed: %s", cudaGetErrorString(error));
    }
    return 0;
}
