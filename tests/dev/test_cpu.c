/* test_cpu.c: registry, memory and copies of the CPU device. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/dev/dev.h"
#include "tests/dev/device.h"
#include "tests/harness/heard.h"
#include "tests/harness/test.h"

/* Devices are found by name, and the message about an unknown name lists the valid names. */
static void registry(void)
{
    check_string(dev_kind_name(0), "cpu");
    check_string(dev_kind_name(1), "cuda");
    check_true(dev_kind_name(2) == NULL);
    check_true(dev_is_cpu("cpu") && dev_is_cpu("cpu:0"));
    check_true(!dev_is_cpu("cuda") && !dev_is_cpu("cpux") && !dev_is_cpu("cp") && !dev_is_cpu(""));
    check_true(dev_kind_built(0));
    check_true(!dev_kind_built(2));
    check_int(dev_kind_count(0), ==, 1);
    check_int(dev_kind_count(9), ==, -EINVAL);
    struct dev_device *device = NULL;
    static const char *const unknown[] = {"gpu", "", "cpu ", "gpu:1"};
    static const char *const no_number[] = {"cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cuda:1024"};
    char quoted[64];
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        (void)core_err_adopt(-EIO, "");
        check_int(dev_open(unknown[i], NULL, &device), ==, -EINVAL);
        snprintf(quoted, sizeof quoted, "unknown device \"%s\" (expected ", unknown[i]);
        check_contains(core_err_message(), quoted);
        for (unsigned kind = 0; dev_kind_name(kind) != NULL; kind++) {
            check_contains(strstr(core_err_message(), "(expected"), dev_kind_name(kind));
        }
        check_contains(core_err_message(), ", cuda:N or cuda:N,M)");
    }
    for (size_t i = 0; i < sizeof no_number / sizeof no_number[0]; i++) {
        (void)core_err_adopt(-EIO, "");
        check_int(dev_open(no_number[i], NULL, &device), ==, -EINVAL);
        snprintf(quoted, sizeof quoted, "from 0 to 1023 after ':' in device \"%s\"", no_number[i]);
        check_contains(core_err_message(), quoted);
    }
    check_int(dev_open("cpu:1", NULL, &device), ==, -ENODEV);
    check_true(device == NULL);
    check_int(dev_open("cpu", NULL, &device), ==, 0);
    const struct dev_properties *properties = dev_properties(device);
    check_string(properties->name, "cpu");
    check_true(properties->units >= 1);
    check_true(properties->host_visible);
    struct dev_memory memory;
    dev_memory_report(device, &memory);
    check_uint(memory.budget_bytes, ==, properties->memory_total_bytes / 4 / 256 * 256);
    dev_close(device);
    dev_close(NULL);
}

/* Ranks share the CPU; a list of GPUs needs one per rank. */
static void ranks(void)
{
    static const struct {
        const char *name, *message;
    } wrong[] = {
        {"gpu", "unknown device \"gpu\""},
        {"cuda:1,x", "\"cuda:1,x\""},
        {"cuda:2,2", "device 2 is listed twice in \"cuda:2,2\""},
        {"cuda:0,1", "device \"cuda:0,1\" lists 2 cards for 3 ranks of this machine"},
        {"cuda:7", "device \"cuda:7\" lists 1 card for 3 ranks of this machine"},
    };
    char many[400] = "cuda:0";
    for (size_t at = strlen(many), i = 1; i <= 64; i++) {
        at += (size_t)snprintf(many + at, sizeof many - at, ",%zu", i);
    }
    char name[DEV_NAME_BYTES];
    check_int(dev_name_of_rank("cpu", 2, 3, name), ==, 0);
    check_string(name, "cpu");
    check_int(dev_name_of_rank("cuda:0,1", 0, 1, name), ==, -EINVAL);
    check_contains(core_err_message(), "lists 2 cards for 1 rank of this machine");
    check_int(dev_name_of_rank(many, 0, 65, name), ==, -EINVAL);
    check_contains(core_err_message(), "or up to 64 numbers with commas");
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        check_int(dev_name_of_rank(wrong[i].name, 0, 3, name), ==, -EINVAL);
        check_contains(core_err_message(), wrong[i].message);
    }
    if (!dev_kind_built(1)) {
        check_int(dev_name_of_rank("cuda", 0, 3, name), ==, -ENOTSUP);
        check_contains(core_err_message(), "this build has no device cuda");
    }
}

/* Memory that is still allocated when a device is closed is reported. */
static void left_memory(void)
{
    struct dev_device *device = device_open(1 << 16);
    struct dev_queue *queue = device_queue(device, DEV_QUEUE_COMPUTE, 4);
    struct dev_launch launch;
    unsigned char *memory = device_alloc(device, 300);
    check_true(dev_memory_holds(device, memory, 300));
    check_true(!dev_memory_holds(device, &launch, 1));
    check_int(dev_queue_enter(queue, &launch), ==, -ENOTSUP);
    check_string(core_err_message(), "cpu has no streams");
    dev_queue_destroy(queue);
    test_listen(CORE_LOG_WARN);
    dev_close(device);
    test_listen_end();
    check_int(test_heard_lines("cpu is closed with 512 bytes in 1 allocations still in use"), ==,
              1);
}

/* Allocations stay within the budget, and freed memory is reused. */
static void budget(void)
{
    struct dev_device *device = device_open(1 << 20);
    void *all = device_alloc(device, 1 << 20);
    void *more = NULL;
    check_int(dev_memory_alloc(device, 1, &more), ==, -ENOMEM);
    check_contains(core_err_message(), "1048576");
    check_contains(core_err_message(), "cpu");
    check_true(more == NULL);
    dev_memory_free(device, all);
    check_int(dev_memory_alloc(device, (1 << 20) + 1, &more), ==, -ENOMEM);
    check_int(dev_memory_alloc(device, SIZE_MAX, &more), ==, -ENOMEM);
    check_int(dev_memory_alloc(device, 0, &more), ==, -EINVAL);
    void *parts[4096];
    for (int i = 0; i < 4096; i++) {
        parts[i] = device_alloc(device, (size_t)(1 + i % 256));
        memset(parts[i], i, (size_t)(1 + i % 256));
        check_uint((uintptr_t)parts[i] % DEV_ALIGN_BYTES, ==, 0);
    }
    check_int(dev_memory_alloc(device, 1, &more), ==, -ENOMEM);
    struct dev_memory memory;
    dev_memory_report(device, &memory);
    check_uint(memory.used_bytes, ==, 1 << 20);
    check_uint(memory.count, ==, 4096);
    check_uint(memory.largest_bytes, ==, 0);
    for (int i = 0; i < 4096; i += 2) {
        dev_memory_free(device, parts[i]);
    }
    dev_memory_report(device, &memory);
    check_uint(memory.used_bytes, ==, 1 << 19);
    check_uint(memory.peak_bytes, ==, 1 << 20);
    check_uint(memory.largest_bytes, >=, 256);
    check_int(dev_memory_alloc(device, memory.largest_bytes + 1, &more), ==, -ENOMEM);
    check_contains(core_err_message(), "524288 of the budget of 1048576 bytes are in use");
    for (int i = 1; i < 4096; i += 2) {
        check_int(*(unsigned char *)parts[i], ==, i % 256);
        dev_memory_free(device, parts[i]);
    }
    dev_memory_report(device, &memory);
    check_uint(memory.used_bytes, ==, 0);
    check_uint(memory.largest_bytes, ==, 1 << 20);
    dev_memory_free(device, NULL);
    dev_close(device);
}

/* Copies and fills change only their own bytes, at any alignment. */
static void copies(void)
{
    enum { SMALL = 67, LARGE = (3 << 20) + 5, ROOM = LARGE + 128 };
    struct dev_device *device = device_open((size_t)4 * ROOM);
    struct dev_queue *queue = device_queue(device, DEV_QUEUE_COMPUTE, 256);
    unsigned char *first = device_alloc(device, ROOM);
    unsigned char *second = device_alloc(device, ROOM);
    unsigned char *source = malloc(ROOM);
    unsigned char *target = malloc(ROOM);
    check_true(source != NULL && target != NULL);
    for (size_t i = 0; i < ROOM; i++) {
        source[i] = (unsigned char)(i * 2654435761U >> 13);
    }
    for (size_t bytes = 0; bytes <= LARGE; bytes += bytes < SMALL ? 1 : LARGE - SMALL) {
        for (size_t shift = 0; shift < (bytes < LARGE ? TEST_COUNT(17, 5) : 3); shift++) {
            memset(target, 0xee, bytes + 64);
            device_copy(queue, DEV_COPY_UP, first + shift, source + 2 * shift, bytes);
            device_copy(queue, DEV_COPY_WITHIN, second, first + shift, bytes);
            device_wait(device_copy(queue, DEV_COPY_DOWN, target + 16 + shift, second, bytes));
            check_memory(target + 16 + shift, source + 2 * shift, bytes);
            check_int(target[15 + shift], ==, 0xee);
            check_int(target[16 + shift + bytes], ==, 0xee);
            device_copy(queue, DEV_COPY_UP, second, source, bytes + 64);
            device_copy(queue, DEV_COPY_ZEROS, second + shift, NULL, bytes);
            device_wait(device_copy(queue, DEV_COPY_DOWN, target, second, bytes + 64));
            for (size_t i = 0; i < bytes + 64; i++) {
                const bool zeroed = i >= shift && i < shift + bytes;
                if (target[i] != (zeroed ? 0 : source[i])) {
                    test_fail(__FILE__, __LINE__, "byte %zu of %zu from %zu", i, bytes, shift);
                }
            }
        }
    }
    free(source);
    free(target);
    dev_queue_destroy(queue);
    dev_memory_free(device, first);
    dev_memory_free(device, second);
    dev_close(device);
}

/* A copy that leaves the arena or overlaps itself is refused and moves nothing. */
static void copies_refused(void)
{
    enum { BYTES = 4096 };
    struct dev_device *device = device_open(BYTES);
    struct dev_queue *queue = device_queue(device, DEV_QUEUE_UP, 0);
    unsigned char *memory = device_alloc(device, BYTES);
    unsigned char host[64] = {0};
    unsigned char before[BYTES];
    unsigned char after[BYTES];
    struct core_fence fence;
    for (size_t i = 0; i < BYTES; i++) {
        before[i] = (unsigned char)(1 + i % 251);
    }
    device_copy(queue, DEV_COPY_UP, memory, before, BYTES);
    struct dev_copy wrong[] = {
        {.direction = DEV_COPY_UP, .to = host, .from = memory, .bytes = 8},
        {.direction = DEV_COPY_UP, .to = memory + 4096 * 2, .from = host, .bytes = 8},
        {.direction = DEV_COPY_UP, .to = memory - 8, .from = host, .bytes = 16},
        {.direction = DEV_COPY_UP, .to = memory, .from = NULL, .bytes = 16},
        {.direction = DEV_COPY_DOWN, .to = host, .from = memory, .bytes = SIZE_MAX},
        {.direction = DEV_COPY_WITHIN, .to = memory, .from = memory + 8, .bytes = 9},
        {.direction = DEV_COPY_WITHIN,
         .to = memory,
         .from = memory + 16,
         .bytes = 9,
         .foreign = true},
        {.direction = DEV_COPY_ZEROS, .bytes = 8},
        {.direction = DEV_COPY_ZEROS, .to = memory, .from = memory + 64, .bytes = 8},
        {.direction = (enum dev_copy_direction)7, .to = memory, .from = host, .bytes = 8},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        check_int(dev_queue_copy(queue, &wrong[i], &fence), ==, -EINVAL);
    }
    device_wait(device_copy(queue, DEV_COPY_DOWN, after, memory, BYTES));
    check_memory(after, before, BYTES);
    for (size_t i = 0; i < sizeof host; i++) {
        check_int(host[i], ==, 0);
    }
    dev_memory_free(device, memory);
    dev_queue_destroy(queue);
    dev_close(device);
}

/* Host memory is registered by pages; overlapping, empty and overflowing ranges are refused. */
static void host_memory(void)
{
    struct dev_device *device = device_open(4096);
    size_t bytes = 1 << 20;
    unsigned char *memory = aligned_alloc(65536, bytes);
    check_true(memory != NULL);
    check_int(dev_host_register(device, memory, bytes), ==, 0);
    check_int(dev_host_register(device, memory, bytes), ==, -EEXIST);
    check_int(dev_host_register(device, memory + 65536, 65536), ==, -EEXIST);
    check_contains(core_err_message(), "1048576");
    dev_host_unregister(device, memory);
    check_int(dev_host_register(device, memory + 65536, 65536), ==, 0);
    check_int(dev_host_register(device, memory, 65536), ==, 0);
    check_int(dev_host_register(device, memory + 1, 1), ==, -EINVAL);
    check_int(dev_host_register(device, memory + 131072, 0), ==, -EINVAL);
    check_int(dev_host_register(device, memory + 131072, SIZE_MAX), ==, -EINVAL);
    dev_host_unregister(device, NULL);
    dev_close(device);
    free(memory);
}

static void rates(void)
{
    struct dev_device *device = device_open(8 << 20);
    struct dev_rates measured;
    check_int(dev_rates_measure(device, 4 << 20, &measured), ==, 0);
    check_double(measured.up, >, 1e6);
    check_double(measured.down, >, 1e6);
    check_double(measured.both, >, 1e6);
    check_double(measured.within, >, 1e6);
    struct dev_memory memory;
    dev_memory_report(device, &memory);
    check_uint(memory.used_bytes, ==, 0);
    check_int(dev_rates_measure(device, 5 << 20, &measured), ==, -ENOMEM);
    check_int(dev_rates_measure(device, 0, &measured), ==, -EINVAL);
    check_int(dev_rates_measure(device, (size_t)1 << 45, &measured), ==, -ENOMEM);
    check_contains(core_err_message(), "needs 4 times as much host memory");
    dev_close(device);
}

TEST_MAIN({"registry", registry}, {"ranks", ranks}, {"left_memory", left_memory},
          {"budget", budget}, {"copies", copies}, {"copies_refused", copies_refused},
          {"host_memory", host_memory}, {"rates", rates})
