/* fake_cuda.c: see fake_cuda.h. A stream is a queue of core/base; an event is a copy of its
 * tail. */
#include "tests/dev/fake_cuda.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/poison.h"
#include "core/base/queue.h"
#include "core/base/size.h"

struct CUstream_st {
    struct core_queue *jobs;
    unsigned random;
};

struct CUevent_st {
    pthread_mutex_t lock;
    struct core_fence fence;
    bool timed;
    _Atomic int64_t ns; /* when the stream reached the event */
};

struct range {
    unsigned char *base;
    size_t bytes;
};

/* A page that must not be accessed follows each allocation on a card. */
struct allocation {
    char *map; /* NULL: a free entry */
    size_t map_bytes;
    void *memory;
    int card;
};

enum {
    PINS_MAX = 16,
    FRESH_BYTES = 16 << 20,
    ALLOCATIONS_MAX = 4096,
    PAGE_BYTES = 4096,
    ALIGN_BYTES = 256, /* alignment of cudaMalloc */
};

static struct {
    pthread_mutex_t lock;
    size_t memory_bytes;
    size_t in_use_bytes;
    struct allocation allocations[ALLOCATIONS_MAX];
    struct range pins[PINS_MAX];
    int cards;
    int driver;
    int count_error;
    bool no_pins;
    _Atomic int fail_in; /* calls of all threads until one fails; 0: none */
    _Atomic int fail_with;
    _Atomic int failed;
    _Atomic int broken;
    _Atomic int live;
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local cudaError_t sticky;
static _Thread_local int current; /* card */
static _Thread_local int fail_in; /* calls of this thread until one fails; 0: none */

void fake_reset(size_t memory_bytes)
{
    fake.memory_bytes = memory_bytes;
    fake.cards = 1;
    fake.in_use_bytes = 0;
    fake.driver = 13000;
    fake.count_error = cudaSuccess;
    fake.no_pins = false;
    atomic_store(&fake.fail_in, 0);
    atomic_store(&fake.failed, 0);
    atomic_store(&fake.broken, 0);
    atomic_store(&fake.live, 0);
    fail_in = 0;
    sticky = cudaSuccess;
}

void fake_cards(int count)
{
    fake.cards = count;
}

void fake_memory_in_use(size_t bytes)
{
    fake.in_use_bytes = bytes;
}

static int generation = 9;

void fake_generation(int major)
{
    generation = major;
}

void fake_driver(int version, int count_error)
{
    fake.driver = version;
    fake.count_error = count_error;
}

void fake_fail(int n, int error)
{
    atomic_store(&fake.fail_with, error);
    atomic_store(&fake.failed, 0);
    fail_in = n;
}

void fake_fail_anywhere(int n, int error)
{
    atomic_store(&fake.fail_with, error);
    atomic_store(&fake.failed, 0);
    atomic_store(&fake.fail_in, n);
}

void fake_refuse_pins(void)
{
    fake.no_pins = true;
}

int fake_failed(void)
{
    return atomic_load(&fake.failed);
}

void fake_break(int error)
{
    atomic_store(&fake.broken, error);
}

int fake_live(void)
{
    return atomic_load(&fake.live);
}

int fake_sticky(void)
{
    return (int)sticky;
}

static cudaError_t say(cudaError_t error)
{
    if (error != cudaSuccess) {
        sticky = error;
    }
    return error;
}

/* Returns the error that this call must return. */
static cudaError_t due(void)
{
    int broken = atomic_load(&fake.broken);
    if (broken != 0) {
        return say((cudaError_t)broken);
    }
    if ((fail_in > 0 && --fail_in == 0) ||
        (atomic_load(&fake.fail_in) > 0 && atomic_fetch_sub(&fake.fail_in, 1) == 1)) {
        atomic_store(&fake.failed, 1);
        return say((cudaError_t)atomic_load(&fake.fail_with));
    }
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = sticky;
    sticky = cudaSuccess;
    return error;
}

const char *cudaGetErrorName(cudaError_t error)
{
    return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation"
           : error == cudaErrorLaunchFailure  ? "cudaErrorLaunchFailure"
                                              : "cudaErrorOther";
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaErrorMemoryAllocation ? "out of memory" : "unspecified failure";
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = fake.count_error == cudaSuccess ? fake.cards : 0;
    return say((cudaError_t)fake.count_error);
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = fake.driver;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    const cudaError_t error = device < fake.cards ? due() : say(cudaErrorInvalidDevice);
    current = error == cudaSuccess ? device : current;
    return error;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *card, int device)
{
    (void)device;
    memset(card, 0, sizeof *card);
    snprintf(card->name, sizeof card->name, "Fake Card");
    card->totalGlobalMem = fake.memory_bytes;
    card->multiProcessorCount = 132;
    card->major = generation;
    return due();
}

cudaError_t cudaDeviceGetPCIBusId(char *address, int bytes, int device)
{
    snprintf(address, (size_t)bytes, "0000:FA:4E.%d", device);
    return due();
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    *total_bytes = fake.memory_bytes;
    *free_bytes = fake.memory_bytes - fake.in_use_bytes;
    return due();
}

/* Makes a file of set bits, so that reads of pages that nobody wrote are recognised. */
static int set_bits_file(void)
{
    static int file = -1;
    if (file < 0) {
        file = memfd_create("fake card", MFD_CLOEXEC);
        void *map = file >= 0 && ftruncate(file, FRESH_BYTES) == 0
                        ? mmap(NULL, FRESH_BYTES, PROT_WRITE, MAP_SHARED, file, 0)
                        : MAP_FAILED;
        if (map == MAP_FAILED) {
            abort();
        }
        memset(map, 0xff, FRESH_BYTES);
        munmap(map, FRESH_BYTES);
    }
    return file;
}

/* Returns memory whose bits are set (NaN), because fresh memory of a GPU is not zero either. */
static char *fresh_memory(size_t bytes)
{
    char *map = mmap(NULL, bytes + PAGE_BYTES, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (size_t at = 0; map != MAP_FAILED && at < bytes; at += FRESH_BYTES) {
        const size_t left = bytes - at;
        if (mmap(map + at, left < FRESH_BYTES ? left : FRESH_BYTES, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, set_bits_file(), 0) == MAP_FAILED) {
            abort();
        }
    }
    return map;
}

/* Returns the entry of `memory`, or a free entry if `memory` is NULL; NULL: none. */
static struct allocation *find_allocation(const void *memory)
{
    for (size_t i = 0; i < ALLOCATIONS_MAX; i++) {
        struct allocation *one = &fake.allocations[i];
        if (memory != NULL ? one->map != NULL && one->memory == memory : one->map == NULL) {
            return one;
        }
    }
    return NULL;
}

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    cudaError_t error = due();
    if (error != cudaSuccess) {
        return error;
    }
    const size_t pages = core_round_up(bytes, PAGE_BYTES);
    char *map = fresh_memory(pages);
    if (map == MAP_FAILED) {
        return say(cudaErrorMemoryAllocation);
    }
    pthread_mutex_lock(&fake.lock);
    struct allocation *one = find_allocation(NULL);
    if (one == NULL) {
        abort();
    }
    *one = (struct allocation){.map = map,
                               .map_bytes = pages + PAGE_BYTES,
                               .memory = map + pages - core_round_up(bytes, ALIGN_BYTES),
                               .card = current};
    *memory = one->memory;
    pthread_mutex_unlock(&fake.lock);
    core_poison(map, (size_t)((char *)*memory - map));
    core_poison((char *)*memory + bytes, core_round_up(bytes, ALIGN_BYTES) - bytes);
    atomic_fetch_add(&fake.live, 1);
    return cudaSuccess;
}

cudaError_t cudaFree(void *memory)
{
    if (memory == NULL) {
        return cudaSuccess;
    }
    pthread_mutex_lock(&fake.lock);
    struct allocation *one = find_allocation(memory);
    const bool own = one != NULL && one->card == current;
    if (own) {
        core_unpoison(one->map, one->map_bytes);
        munmap(one->map, one->map_bytes);
        one->map = NULL;
        atomic_fetch_sub(&fake.live, 1);
    }
    pthread_mutex_unlock(&fake.lock);
    return own ? cudaSuccess : say(cudaErrorInvalidValue);
}

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned flags)
{
    (void)flags;
    cudaError_t error = fake.no_pins ? say(cudaErrorMemoryAllocation) : due();
    bool taken = false;
    pthread_mutex_lock(&fake.lock);
    for (size_t i = 0; i < PINS_MAX && error == cudaSuccess && !taken; i++) {
        if (fake.pins[i].bytes == 0) {
            fake.pins[i] = (struct range){memory, bytes};
            atomic_fetch_add(&fake.live, 1);
            taken = true;
        }
    }
    pthread_mutex_unlock(&fake.lock);
    return say(error);
}

cudaError_t cudaHostUnregister(void *memory)
{
    for (size_t i = 0; i < PINS_MAX; i++) {
        if (fake.pins[i].bytes != 0 && fake.pins[i].base == memory) {
            fake.pins[i].bytes = 0;
            atomic_fetch_sub(&fake.live, 1);
            return cudaSuccess;
        }
    }
    return say(cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    (void)flags;
    *memory = fake.no_pins ? NULL : calloc(1, bytes);
    return *memory != NULL ? due() : say(cudaErrorMemoryAllocation);
}

cudaError_t cudaFreeHost(void *memory)
{
    free(memory);
    return due();
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority)
{
    (void)flags;
    cudaError_t error = due();
    if (error != cudaSuccess) {
        return error;
    }
    struct CUstream_st *stream = calloc(1, sizeof *stream);
    struct core_queue_options options = {.name = "fake stream", .depth = 1 << 14, .spin_ns = -1};
    if (stream == NULL || core_queue_create(&options, &stream->jobs) != 0) {
        abort();
    }
    stream->random = 77U + (unsigned)priority;
    atomic_fetch_add(&fake.live, 1);
    *out = stream;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    core_queue_destroy(stream->jobs);
    free(stream);
    atomic_fetch_sub(&fake.live, 1);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    cudaError_t error = due();
    core_fence_wait(core_queue_tail(stream->jobs), -1);
    return error;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    cudaError_t error = due();
    if (error != cudaSuccess) {
        return error;
    }
    struct CUevent_st *event = calloc(1, sizeof *event);
    if (event == NULL) {
        abort();
    }
    pthread_mutex_init(&event->lock, NULL);
    event->timed = (flags & cudaEventDisableTiming) == 0;
    atomic_fetch_add(&fake.live, 1);
    *out = event;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    return cudaEventCreateWithFlags(out, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    pthread_mutex_destroy(&event->lock);
    free(event);
    atomic_fetch_sub(&fake.live, 1);
    return cudaSuccess;
}

static struct core_fence fence_of(cudaEvent_t event)
{
    pthread_mutex_lock(&event->lock);
    struct core_fence fence = event->fence;
    pthread_mutex_unlock(&event->lock);
    return fence;
}

static _Atomic unsigned recorded; /* relaxed: a counter */

unsigned fake_events_recorded(void)
{
    return atomic_load_explicit(&recorded, memory_order_relaxed);
}

static int run_stamp(void *context, const void *arguments)
{
    (void)arguments;
    cudaEvent_t event = context;
    atomic_store(&event->ns, core_clock_now_ns());
    return 0;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    cudaError_t error = due();
    const struct core_job stamp = {.run = run_stamp, .context = event};
    struct core_fence fence;
    if (event->timed && core_queue_submit(stream->jobs, &stamp, &fence) != 0) {
        abort();
    }
    pthread_mutex_lock(&event->lock);
    event->fence = core_queue_tail(stream->jobs);
    pthread_mutex_unlock(&event->lock);
    atomic_fetch_add_explicit(&recorded, 1, memory_order_relaxed);
    return error;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    cudaError_t error = due();
    core_fence_wait(fence_of(event), -1);
    pthread_mutex_lock(&event->lock);
    /* The fence is not needed any more, and its stream may be destroyed now. */
    event->fence = (struct core_fence){0};
    pthread_mutex_unlock(&event->lock);
    return error;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
    if (!begin->timed || !end->timed) {
        return say(cudaErrorInvalidResourceHandle);
    }
    if (core_fence_poll(fence_of(begin)) <= 0 || core_fence_poll(fence_of(end)) <= 0) {
        return say(cudaErrorNotReady);
    }
    *ms = (float)((double)(atomic_load(&end->ns) - atomic_load(&begin->ns)) / 1e6);
    return due();
}

cudaError_t cudaGetDevice(int *device)
{
    *device = current;
    return due();
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    if (attribute != cudaDevAttrMultiProcessorCount || device >= fake.cards) {
        return say(cudaErrorInvalidValue);
    }
    *value = 2;
    return due();
}

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value)
{
    (void)function;
    const int most = 227 << 10; /* bytes of shared memory per block */
    return attribute == cudaFuncAttributeMaxDynamicSharedMemorySize && value <= most
               ? due()
               : say(cudaErrorInvalidValue);
}

/* The longest that cudaEventQuery() waits, so that kernels, which are slow here, have the
 * processor. */
enum { QUERY_NS = 300000 };

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    int broken = atomic_load(&fake.broken);
    if (broken != 0) {
        return say((cudaError_t)broken);
    }
    const struct core_fence fence = fence_of(event);
    if (fence.line != NULL) {
        const uint32_t seen = core_bell_look(fence.line->bell);
        if (core_fence_poll(fence) <= 0) {
            core_bell_sleep(fence.line->bell, seen, QUERY_NS);
        }
    }
    return core_fence_poll(fence) > 0 ? cudaSuccess : say(cudaErrorNotReady);
}

static int wait_a_little(void *context, const void *arguments)
{
    (void)arguments;
    struct CUstream_st *stream = context;
    stream->random = stream->random * 1664525U + 1013904223U;
    if (stream->random >> 29 == 0) {
        nanosleep(&(struct timespec){.tv_nsec = (long)(stream->random >> 16)}, NULL);
    }
    return 0;
}

static cudaError_t put(cudaStream_t stream, struct core_job job)
{
    struct core_fence fence;
    struct core_job late = {.run = wait_a_little, .context = stream};
    if (core_queue_submit(stream->jobs, &late, &fence) != 0 ||
        core_queue_submit(stream->jobs, &job, &fence) != 0) {
        abort();
    }
    return cudaSuccess;
}

struct span {
    void *to;
    const void *from;
    size_t bytes;
};

static int run_copy(void *context, const void *arguments)
{
    (void)context;
    const struct span *span = arguments;
    memmove(span->to, span->from, span->bytes);
    return 0;
}

/* Returns whether a host range begins in a pinned range and ends outside it, which the runtime
 * refuses. */
static int crosses_pins(const unsigned char *host, size_t bytes)
{
    for (size_t i = 0; i < PINS_MAX; i++) {
        const struct range *pin = &fake.pins[i];
        if (pin->bytes != 0 && host >= pin->base && host < pin->base + pin->bytes &&
            bytes > (size_t)(pin->base + pin->bytes - host)) {
            return 1;
        }
    }
    return 0;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    cudaError_t error = due();
    if (error != cudaSuccess) {
        return error;
    }
    const void *host = kind == cudaMemcpyHostToDevice ? from : to;
    if (kind != cudaMemcpyDeviceToDevice && crosses_pins(host, bytes)) {
        return say(cudaErrorInvalidValue);
    }
    struct span span = {to, from, bytes};
    return put(stream, (struct core_job){
                           .run = run_copy, .arguments = &span, .arguments_bytes = sizeof span});
}

static int run_memset(void *context, const void *arguments)
{
    (void)context;
    const struct span *span = arguments;
    memset(span->to, 0, span->bytes);
    return 0;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    /* dev_cuda*.c sets memory only to zero. */
    cudaError_t error = value == 0 ? due() : say(cudaErrorInvalidValue);
    if (error != cudaSuccess) {
        return error;
    }
    struct span span = {to, NULL, bytes};
    return put(stream, (struct core_job){
                           .run = run_memset, .arguments = &span, .arguments_bytes = sizeof span});
}

int fake_stream_run(void *stream, int (*run)(void *context, const void *arguments),
                    const void *arguments, size_t bytes)
{
    put(stream, (struct core_job){.run = run, .arguments = arguments, .arguments_bytes = bytes});
    return 0;
}
