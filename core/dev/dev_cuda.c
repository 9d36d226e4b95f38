/* dev_cuda.c: a CUDA GPU as a device: properties, memory, pinned host memory. This file,
 * dev_cuda_queue.c and kernels/cuda wrap the CUDA runtime. Any thread. */
#include <ctype.h>
#include <cuda_runtime_api.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/dev/dev_cuda.h"

/* A registration is limited in size, so memory is pinned in pieces, and copies are split at their
 * borders. */
static const size_t PIECE_BYTES = (size_t)64 << 30;

/* ---- Errors: from codes of the runtime to -errno. ---- */

static int code_of(cudaError_t error)
{
    switch ((int)error) {
    case cudaErrorMemoryAllocation: return -ENOMEM;
    case cudaErrorInvalidValue: return -EINVAL;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorInvalidDevice:
    case cudaErrorDevicesUnavailable: return -ENODEV;
    case cudaErrorNotSupported: return -ENOTSUP;
    case cudaErrorHostMemoryAlreadyRegistered: return -EEXIST;
    default: return -EIO;
    }
}

int dev_cuda_fail(const char *name, const char *call, size_t bytes, unsigned number,
                  const char *cure)
{
    cudaError_t error = (cudaError_t)number;
    char size[48] = "";
    if (bytes > 0) {
        snprintf(size, sizeof size, " of %zu bytes", bytes);
    }
    (void)cudaGetLastError();
    return core_err_set(code_of(error), "%s: %s%s failed: %s (%s)%s%s", name, call, size,
                        cudaGetErrorString(error), cudaGetErrorName(error),
                        cure != NULL ? "; " : "", cure != NULL ? cure : "");
}

static const char *name_of(const struct cuda_device *device)
{
    return device->base.properties.name;
}

static int fail_count(cudaError_t error)
{
    int driver = 0;
    int runtime = 0;
    (void)cudaGetLastError();
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    if (driver == 0) {
        return core_err_set(-ENODEV,
                            "cuda: there is no NVIDIA driver on this machine (libcuda.so.1 "
                            "was not found); install it, or run on a machine with a GPU");
    }
    if (error == cudaErrorInsufficientDriver) {
        return core_err_set(
            -ENODEV,
            "cuda: the NVIDIA driver is too old: it supports CUDA %d.%d, this build "
            "needs %d.%d; update the driver",
            driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    }
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (error == cudaErrorNoDevice || error == cudaSuccess) {
        return core_err_set(-ENODEV, "cuda: the NVIDIA driver finds no GPU%s%s%s; see nvidia-smi",
                            visible != NULL ? " (CUDA_VISIBLE_DEVICES is \"" : "",
                            visible != NULL ? visible : "", visible != NULL ? "\")" : "");
    }
    return dev_cuda_fail("cuda", "cudaGetDeviceCount", 0, error, "see nvidia-smi and dmesg");
}

static int cuda_count(void)
{
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    return error != cudaSuccess || count < 1 ? fail_count(error) : count;
}

int dev_cuda_enter(const struct cuda_device *device)
{
    cudaError_t error = cudaSetDevice(device->index);
    return error == cudaSuccess ? 0
                                : dev_cuda_fail(name_of(device), "cudaSetDevice", 0, error, NULL);
}

/* ---- Device ---- */

/* Writes the GPU's PCI address. Returns its NUMA node, from sysfs; -1: unknown. */
static int numa_node_of(int index, char *address, size_t address_bytes)
{
    char path[128];
    int node = -1;
    if (cudaDeviceGetPCIBusId(address, (int)address_bytes, index) != cudaSuccess) {
        (void)cudaGetLastError();
        snprintf(address, address_bytes, "address unknown");
        return -1;
    }
    for (char *c = address; *c != '\0'; c++) {
        *c = (char)tolower((unsigned char)*c);
    }
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", address);
    FILE *file = fopen(path, "re");
    if (file != NULL) {
        node = fscanf(file, "%d", &node) == 1 ? node : -1;
        fclose(file);
    }
    return node;
}

static int describe(struct cuda_device *device)
{
    struct cudaDeviceProp card;
    struct dev_properties *properties = &device->base.properties;
    cudaError_t error = cudaGetDeviceProperties(&card, device->index);
    if (error != cudaSuccess) {
        return dev_cuda_fail(name_of(device), "cudaGetDeviceProperties", 0, error, NULL);
    }
    char address[32];
    properties->numa_node = numa_node_of(device->index, address, sizeof address);
    snprintf(properties->description, sizeof properties->description, "%.80s, %d SMs, %s",
             card.name, card.multiProcessorCount, address);
    properties->memory_total_bytes = card.totalGlobalMem;
    properties->units = (unsigned)card.multiProcessorCount;
    properties->arch = (unsigned)(10 * card.major + card.minor);
    return properties->arch >= 80
               ? 0
               : core_err_set(
                     -ENOTSUP,
                     "%s is a %s of compute capability %d.%d; 8.0 (A100) or later is needed",
                     name_of(device), card.name, card.major, card.minor);
}

static const char *const less_memory =
    "lower --device-memory, or end other programs that use the card (nvidia-smi)";

static int part_alloc(void *context, size_t bytes, void **out)
{
    struct cuda_device *device = context;
    void *memory = NULL;
    int rc = dev_cuda_enter(device);
    if (rc != 0) {
        return rc;
    }
    const cudaError_t error = cudaMalloc(&memory, bytes);
    if (error != cudaSuccess) {
        return dev_cuda_fail(name_of(device), "cudaMalloc", bytes, error, less_memory);
    }
    *out = memory;
    return 0;
}

static void part_free(void *context, void *memory)
{
    const struct cuda_device *device = context;
    (void)cudaSetDevice(device->index);
    (void)cudaFree(memory);
    (void)cudaGetLastError();
}

/* TIDE_DEVICE_MEMORY=separate makes an allocation a cudaMalloc, because compute-sanitizer does not
 * see overruns inside one (docs/cuda.md). */
static int choose_separate(bool *out)
{
    const char *wanted = getenv("TIDE_DEVICE_MEMORY");
    *out = wanted != NULL;
    return wanted == NULL || strcmp(wanted, "separate") == 0
               ? 0
               : core_err_set(-EINVAL,
                              "invalid TIDE_DEVICE_MEMORY \"%s\" (expected separate, or unset)",
                              wanted);
}

static int take_memory(struct cuda_device *device, size_t budget_bytes)
{
    bool separate = false;
    int rc = choose_separate(&separate);
    if (rc != 0) {
        return rc;
    }
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    cudaError_t error = cudaMemGetInfo(&free_bytes, &total_bytes);
    if (error != cudaSuccess) {
        return dev_cuda_fail(name_of(device), "cudaMemGetInfo", 0, error, NULL);
    }
    if (budget_bytes == 0) {
        budget_bytes = free_bytes > DEV_CUDA_SPARE_BYTES ? free_bytes - DEV_CUDA_SPARE_BYTES
                                                         : free_bytes / 2;
    }
    if (budget_bytes > free_bytes) {
        return core_err_set(-ENOMEM,
                            "%s has %zu of its %zu bytes free, the budget is %zu; lower "
                            "--device-memory, or end other programs that use the card (nvidia-smi)",
                            name_of(device), free_bytes, total_bytes, budget_bytes);
    }
    if (free_bytes - budget_bytes < DEV_CUDA_SPARE_BYTES && budget_bytes > free_bytes / 2) {
        core_log(CORE_LOG_WARN,
                 "the budget of %s, %zu bytes, leaves %zu of its free memory; kernels, cuBLASLt "
                 "and NCCL may need up to %d beside it: lower --device-memory if one of them finds "
                 "no memory",
                 name_of(device), budget_bytes, free_bytes - budget_bytes, DEV_CUDA_SPARE_BYTES);
    }
    if (separate) {
        const struct dev_arena_source source = {part_alloc, part_free, device};
        dev_arena_init_source(&device->base.arena, &source, budget_bytes);
        device->has_memory = true;
        return 0;
    }
    error = cudaMalloc(&device->range, dev_arena_range_bytes(budget_bytes, false));
    if (error != cudaSuccess) {
        device->range = NULL;
        return dev_cuda_fail(name_of(device), "cudaMalloc", budget_bytes, error, less_memory);
    }
    dev_arena_init(&device->base.arena, device->range, budget_bytes, false);
    device->has_memory = true;
    return 0;
}

static void cuda_close(struct dev_device *base)
{
    struct cuda_device *device = (struct cuda_device *)base;
    dev_cuda_watch_stop(device);
    if (device->has_memory) {
        dev_arena_fini(&base->arena);
        (void)cudaSetDevice(device->index);
        (void)cudaFree(device->range); /* cudaFree accepts NULL */
        (void)cudaGetLastError();
    }
    pthread_mutex_destroy(&device->watch_lock);
    dev_device_fini(base);
    free(device);
}

static int cuda_open(unsigned index, const struct dev_options *options, struct dev_device **out)
{
    struct cuda_device *device = calloc(1, sizeof *device);
    if (device == NULL) {
        return core_err_set(-ENOMEM, "no memory for a device");
    }
    dev_device_init(&device->base, &dev_backend_cuda);
    pthread_mutex_init(&device->watch_lock, NULL);
    core_bell_init(&device->work);
    device->index = (int)index;
    device->log = core_log_bound();
    struct dev_properties *properties = &device->base.properties;
    snprintf(properties->name, sizeof properties->name, "cuda:%u", index);
    snprintf(properties->kind, sizeof properties->kind, "cuda");
    int rc = dev_cuda_enter(device);
    if (rc == 0) {
        rc = describe(device);
    }
    if (rc == 0) {
        rc = take_memory(device, options->memory_bytes);
    }
    if (rc == 0) {
        rc = dev_cuda_watch_start(device);
    }
    if (rc != 0) {
        cuda_close(&device->base);
        return rc;
    }
    *out = &device->base;
    return 0;
}

static int cuda_enter(struct dev_device *base)
{
    return dev_cuda_enter((const struct cuda_device *)base);
}

/* ---- Pinned host memory ---- */

static void remove_borders(struct cuda_device *device, const unsigned char *memory, size_t bytes)
{
    size_t count = atomic_load_explicit(&device->border_count, memory_order_relaxed);
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (device->borders[i] - (uintptr_t)memory >= bytes) {
            device->borders[kept++] = device->borders[i];
        }
    }
    atomic_store_explicit(&device->border_count, kept, memory_order_release);
}

static size_t piece_bytes(size_t at, size_t bytes)
{
    return bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
}

static void unpin(struct cuda_device *device, unsigned char *memory, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += PIECE_BYTES) {
        cudaError_t error = cudaHostUnregister(memory + at);
        if (error != cudaSuccess) {
            (void)cudaGetLastError();
            core_log(CORE_LOG_DEBUG, "%s: cudaHostUnregister: %s", name_of(device),
                     cudaGetErrorString(error));
        }
    }
}

static int cuda_host_register(struct dev_device *base, void *memory, size_t bytes)
{
    struct cuda_device *device = (struct cuda_device *)base;
    size_t count = atomic_load_explicit(&device->border_count, memory_order_relaxed);
    if ((bytes - 1) / PIECE_BYTES > DEV_CUDA_BORDER_MAX - count) {
        return core_err_set(-ENOSPC, "%s: %zu bytes are too many pieces of %zu bytes to pin",
                            name_of(device), bytes, PIECE_BYTES);
    }
    int rc = dev_cuda_enter(device);
    for (size_t at = 0; at < bytes && rc == 0; at += PIECE_BYTES) {
        unsigned char *piece = (unsigned char *)memory + at;
        cudaError_t error = cudaHostRegister(piece, piece_bytes(at, bytes),
                                             cudaHostRegisterPortable);
        if (error != cudaSuccess) {
            rc = dev_cuda_fail(
                name_of(device), "cudaHostRegister", piece_bytes(at, bytes), error,
                "copies from memory that is not pinned are slower; lower --host-memory or "
                "raise the limit on locked memory (ulimit -l)");
            unpin(device, memory, at);
            return rc;
        }
        if (at > 0) {
            device->borders[count++] = (uintptr_t)piece;
        }
    }
    atomic_store_explicit(&device->border_count, count, memory_order_release);
    return rc;
}

static void cuda_host_unregister(struct dev_device *base, void *memory, size_t bytes)
{
    struct cuda_device *device = (struct cuda_device *)base;
    (void)cudaSetDevice(device->index);
    unpin(device, memory, bytes);
    remove_borders(device, memory, bytes);
}

const struct dev_backend dev_backend_cuda = {
    .kind = "cuda",
    .count = cuda_count,
    .open = cuda_open,
    .close = cuda_close,
    .enter = cuda_enter,
    .host_register = cuda_host_register,
    .host_unregister = cuda_host_unregister,
    .queue_create = dev_cuda_queue_create,
    .queue_destroy = dev_cuda_queue_destroy,
    .launch = dev_cuda_launch,
    .copy = dev_cuda_copy,
    .time = dev_cuda_time,
    .tail = dev_cuda_tail,
    .abandon = dev_cuda_abandon,
};
