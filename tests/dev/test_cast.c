/* test_cast.c: the cast op through each device that this machine has, against half.h. */
#include <errno.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/base/half.h"
#include "core/base/vec.h"
#include "core/dev/dev.h"
#include "kernels/cpu/cast.h"
#include "kernels/kern.h"
#include "tests/harness/test.h"
#if HAVE_CUDA
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/table.h"
#endif

DEV_OP_LAUNCH(kern_cpu_cast, core_vec_cast)

static const struct dev_op cpu_row = {KERN_CAST, "cast", sizeof(struct core_vec_cast),
                                      kern_cpu_cast_launch};

enum { VALUES = 1 << 17, ROOM = 4 * VALUES + 256 };

static size_t type_bytes(enum core_vec_type type)
{
    return type == CORE_VEC_F32 ? 4 : 2;
}

static float widen(enum core_vec_type type, const unsigned char *array, size_t i)
{
    uint32_t word = 0;
    memcpy(&word, array + i * type_bytes(type), type_bytes(type));
    return type == CORE_VEC_F32    ? core_f32_from_bits(word)
           : type == CORE_VEC_BF16 ? core_bf16_to_f32((uint16_t)word)
                                   : core_fp16_to_f32((uint16_t)word);
}

static uint32_t narrow(enum core_vec_type type, float value)
{
    return type == CORE_VEC_F32    ? core_f32_bits(value)
           : type == CORE_VEC_BF16 ? core_f32_to_bf16(value)
                                   : core_f32_to_fp16(value);
}

struct bench {
    struct dev_device *device;
    struct dev_queue *queue;
    unsigned char *from; /* of the device */
    unsigned char *to;
    unsigned char *host; /* what goes up */
    unsigned char *back;
};

static void copy(struct bench *bench, enum dev_copy_direction direction, void *to, const void *from)
{
    struct core_fence fence;
    struct dev_copy command = {.direction = direction, .to = to, .from = from, .bytes = ROOM};
    check_int(dev_queue_copy(bench->queue, &command, &fence), ==, 0);
    check_int(core_fence_wait(fence, 20000000000), ==, 0);
}

/* Casts `count` elements from element `shift` of one array to element `to_shift` of the other. */
static void check_cast(struct bench *bench, enum core_vec_type from, enum core_vec_type to,
                       uint64_t count, size_t shift, size_t to_shift)
{
    size_t from_at = shift * type_bytes(from);
    size_t to_at = to_shift * type_bytes(to);
    memset(bench->back, 0xa5, ROOM);
    copy(bench, DEV_COPY_UP, bench->to, bench->back);
    struct core_vec_cast a = {.from = bench->from + from_at,
                              .to = bench->to + to_at,
                              .from_type = from,
                              .to_type = to,
                              .count = count};
    struct core_fence fence;
    struct dev_command command = {.op = KERN_CAST, .arguments = &a, .arguments_bytes = sizeof a};
    check_int(dev_queue_launch(bench->queue, &command, &fence), ==, 0);
    copy(bench, DEV_COPY_DOWN, bench->back, bench->to);
    for (size_t i = 0; i < count; i++) {
        float value = widen(from, bench->host + from_at, i);
        float got = widen(to, bench->back + to_at, i);
        uint32_t expected = narrow(to, value);
        if (!isnan(value)) {
            check_uint(narrow(to, got), ==, expected);
        } else {
            check_true(isnan(got));
        }
    }
    for (size_t i = 0; i < to_at; i++) {
        check_uint(bench->back[i], ==, 0xa5);
    }
    for (size_t i = to_at + count * type_bytes(to); i < ROOM; i++) {
        check_uint(bench->back[i], ==, 0xa5);
    }
}

/* All 65,536 bit patterns of the 16-bit types (twice, and as upper halves of fp32 with every kind of
 * tie), then counts around the block's size with arrays at every alignment. */
static void check_all(struct bench *bench)
{
    for (size_t i = 0; i < ROOM / 4; i++) {
        uint32_t word = (uint32_t)(i * 65537U);
        memcpy(bench->host + 4 * i, &word, 4);
    }
    copy(bench, DEV_COPY_UP, bench->from, bench->host);
    for (int from = CORE_VEC_F32; from <= CORE_VEC_FP16; from++) {
        for (int to = CORE_VEC_F32; to <= CORE_VEC_FP16; to++) {
            check_cast(bench, (enum core_vec_type)from, (enum core_vec_type)to, VALUES, 0, 0);
            static const uint64_t counts[] = {0, 1, 7, 8, 15, 8191, 8192, 8200, 65600};
            for (size_t i = 0; i < (TEST_SLOW ? 7 : 9); i++) {
                size_t shift = (i * 5) % 17;
                check_cast(bench, (enum core_vec_type)from, (enum core_vec_type)to, counts[i],
                           shift, shift);
                check_cast(bench, (enum core_vec_type)from, (enum core_vec_type)to, counts[i],
                           shift, (i * 3) % 16);
            }
        }
    }
}

static void run_on(const char *name, const struct dev_op *rows, size_t count)
{
    struct bench bench = {0};
    struct dev_options options = {.memory_bytes = 2 * ROOM + 4096};
    int rc = dev_open(name, &options, &bench.device);
    if (rc == -ENODEV || rc == -ENOTSUP) {
        test_skip("%s", core_err_sentence());
    }
    check_int(rc, ==, 0);
    check_int(dev_ops_register(bench.device, rows, count, NULL), ==, 0);
    struct dev_queue_options queue_options = {.kind = DEV_QUEUE_COMPUTE, .threads = 2};
    check_int(dev_queue_create(bench.device, &queue_options, &bench.queue), ==, 0);
    void *memory;
    check_int(dev_memory_alloc(bench.device, ROOM, &memory), ==, 0);
    bench.from = memory;
    check_int(dev_memory_alloc(bench.device, ROOM, &memory), ==, 0);
    bench.to = memory;
    bench.host = malloc(ROOM);
    bench.back = malloc(ROOM);
    check_true(bench.host != NULL && bench.back != NULL);
    check_all(&bench);
    free(bench.host);
    free(bench.back);
    dev_queue_destroy(bench.queue);
    dev_memory_free(bench.device, bench.from);
    dev_memory_free(bench.device, bench.to);
    dev_close(bench.device);
}

static void cpu(void)
{
    run_on("cpu", &cpu_row, 1);
}

/* The same on a card, bit for bit. */
static void cuda(void)
{
#if HAVE_CUDA
    size_t count = 0;
    const struct dev_op *rows = kern_cuda_rows(&count);
    run_on("cuda", rows, count);
#else
    test_skip("this build has no CUDA");
#endif
}

/* A type that the op does not know ends the queue with a sentence. */
static void refused(void)
{
    struct dev_device *device = NULL;
    struct dev_queue *queue = NULL;
    check_int(dev_open("cpu", &(struct dev_options){.memory_bytes = 4096}, &device), ==, 0);
    check_int(dev_ops_register(device, &cpu_row, 1, NULL), ==, 0);
    check_int(dev_queue_create(device, &(struct dev_queue_options){.threads = 1}, &queue), ==, 0);
    struct core_vec_cast a = {.to_type = CORE_VEC_Q8, .count = 1};
    struct core_fence fence;
    struct dev_command command = {.op = KERN_CAST, .arguments = &a, .arguments_bytes = sizeof a};
    check_int(dev_queue_launch(queue, &command, &fence), ==, 0);
    check_int(core_fence_wait(fence, 20000000000), ==, -EINVAL);
    check_contains(core_err_sentence(), "op cast");
    dev_queue_destroy(queue);
    dev_close(device);
}

/* On a card the same is found before anything is launched, as is a cast of nothing. */
static void refused_by_cuda(void)
{
#if HAVE_CUDA
    struct dev_launch where = {0};
    struct core_vec_cast a = {.to_type = CORE_VEC_Q8};
    check_int(kern_cuda_cast(&where, &a), ==, 0);
    a.count = 1;
    check_int(kern_cuda_cast(&where, &a), ==, -EINVAL);
    a = (struct core_vec_cast){.from_type = CORE_VEC_Q8, .count = 1};
    check_int(kern_cuda_cast(&where, &a), ==, -EINVAL);
    check_contains(core_err_sentence(), "op cast reads");
    a = (struct core_vec_cast){.count = UINT64_MAX / 4};
    check_int(kern_cuda_cast(&where, &a), ==, -EINVAL);
    check_contains(core_err_sentence(), "too large");
#else
    test_skip("this build has no CUDA");
#endif
}

TEST_MAIN({"cpu", cpu}, {"cuda", cuda}, {"refused", refused}, {"refused_by_cuda", refused_by_cuda})
