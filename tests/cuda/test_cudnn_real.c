/* Proves that a real cuDNN 9 takes our graphs: they are finalized and its heuristics propose ways, for a card
 * that is described to it and need not be there. Only the plan is refused, which is compiled for a driver.
 * Skipped where the library is not found (TIDE_CUDNN, the loader's places, a toolkit's). */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "kernels/cuda/cudnn.h"
#include "tests/harness/test.h"

/* An H200 by its data sheet and the runtime's documents. */
static const char card[] =
    "{\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],\"cudaDeviceId\":0,"
    "\"deviceVer\":900,\"driverVer\":13000,\"multiProcessorCount\":132,\"smCountOrigin\":0,"
    "\"totalGlobalMem\":150754820096,\"regsPerBlock\":65536,\"smClockRateKHz\":1980000,"
    "\"memClockRateKHz\":3201000,\"l2CacheSize\":62914560,\"warpSize\":32,"
    "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":232448,"
    "\"oversizedSharedMemoryPerBlock\":0,\"reservedSharedMemoryPerBlock\":1024,"
    "\"maxRegistersPerSM\":65536,\"pciDeviceId\":0,\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,"
    "\"maxThreadsPerSM\":2048,\"deviceName\":\"NVIDIA H200\",\"isTccDriver\":0,"
    "\"supportCoopLaunch\":1}";

/* The library asks for a driver's functions by name: a toolkit's empty one will do. */
static bool driver_open(void)
{
    return dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) != NULL ||
           dlopen("/usr/local/cuda/lib64/stubs/libcuda.so", RTLD_NOW | RTLD_GLOBAL) != NULL;
}

/* Whether the shape came to its plan, which alone was refused. */
static void check_shape(struct kern_dnn *dnn, const struct kern_dnn_shape *shape)
{
    struct kern_dnn_plan *plan = NULL;
    const int rc = kern_dnn_plan_create(dnn, shape, SIZE_MAX, &plan);
    if (rc != 0) {
        check_contains(core_err_sentence(), "cudnnBackendFinalize(5) failed");
    }
    kern_dnn_plan_destroy(plan);
}

static void our_graphs_are_taken(void)
{
    struct kern_dnn *dnn = NULL;
    if (!driver_open()) {
        test_skip("neither a driver nor a toolkit's empty one is here");
    }
    if (kern_dnn_open(card, &dnn) != 0) {
        test_skip("%s", core_err_sentence());
    }
    check_uint(kern_dnn_version(dnn), >=, 90000);
    const int step = getenv("TIDE_TEST_FULL") != NULL ? 6 : 7; /* each takes a second */
    for (int grad = 0; grad < 2; grad++) {
        for (int kv_heads = 2; kv_heads <= 8; kv_heads += step) {
            const int dim = kv_heads == 2 ? 128 : 64;
            const int wide = (8 + 2 * kv_heads) * dim;
            struct kern_dnn_shape shape = {.rows = 2,
                                           .length = 1024,
                                           .heads = 8,
                                           .kv_heads = kv_heads,
                                           .q_stride = wide,
                                           .k_stride = wide,
                                           .v_stride = wide,
                                           .o_stride = 8 * dim,
                                           .head_dim = dim,
                                           .type = kv_heads == 2 ? KERN_BF16 : KERN_FP16,
                                           .grad = (uint8_t)grad};
            if (grad) {
                shape.d_o_stride = 8 * dim;
                shape.dq_stride = shape.dk_stride = shape.dv_stride = wide;
            }
            check_shape(dnn, &shape);
        }
    }
    kern_dnn_close(dnn);
}

TEST_MAIN({"our_graphs_are_taken", our_graphs_are_taken})
