/* rig.c: arrays on host and device; runs ops by id on the device and compares results. */
#include "tests/kernels/rig.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>

#include "core/base/cpus.h"
#include "core/base/err.h"
#include "core/base/poison.h"
#include "core/base/rng.h"
#include "core/dev/dev.h"
#include "kernels/ref/ref.h"

struct array {
    char *host; /* owned */
    char *device;
    char *fetched; /* owned */
    size_t bytes;
    enum kern_type type;
    int64_t count;
};

enum { SCRATCH_BYTES = 192 << 20, MEMORY_BYTES = 320 << 20, ARGUMENT_BYTES = 256 };

static struct {
    const char *name;
    struct dev_device *device;
    struct kern_ops *ops;
    struct dev_queue *queue;
    unsigned threads;
    const char *kind;
    struct array arrays[RIG_ARRAYS_MAX];
    unsigned count;
    size_t tail_bytes; /* zeros after arrays on the device */
    uint64_t seed, drawn;
} rig;

enum { TAIL_BYTES = 64, ENUM_LIMIT = 4096 };
enum { PLACES_MAX = 64 }; /* attempts to place an array */

/* If rig_machine_is_visible(), a sanitizer detects accesses to the tail. */
static void tail_watch(const struct array *array, bool on)
{
    if (!rig_machine_is_visible()) {
        return;
    }
    if (on) {
        core_poison(array->device + array->bytes, rig.tail_bytes);
    } else {
        core_unpoison(array->device + array->bytes, rig.tail_bytes);
    }
}

static void arrays_drop(void)
{
    for (unsigned i = 0; i < rig.count; i++) {
        tail_watch(&rig.arrays[i], false);
        dev_memory_free(rig.device, rig.arrays[i].device);
        free(rig.arrays[i].host);
        free(rig.arrays[i].fetched);
    }
    rig.count = 0;
}

static void must(int rc)
{
    if (rc != 0) {
        test_fail(__FILE__, __LINE__, "%d: %s", rc, core_err_message());
    }
}

void rig_open(const struct kern_options *options, unsigned threads)
{
    rig_close();
    const struct dev_options memory = {.memory_bytes = MEMORY_BYTES};
    const int rc = dev_open(rig.name, &memory, &rig.device);
    if (rc == -ENODEV || rc == -ENOTSUP) {
        test_skip("%s", core_err_message());
    }
    must(rc);
    /* compute-sanitizer sees accesses past separate allocations */
    rig.tail_bytes = dev_memory_is_separate(rig.device) ? 0 : TAIL_BYTES;
    must(kern_ops_attach(rig.device, options, &rig.ops));
    const struct dev_queue_options queue = {
        .kind = DEV_QUEUE_COMPUTE, .threads = threads, .scratch_bytes = SCRATCH_BYTES};
    must(dev_queue_create(rig.device, &queue, &rig.queue));
    rig.threads = threads;
    rig.kind = dev_properties(rig.device)->kind;
}

void rig_close(void)
{
    if (rig.device != NULL) {
        dev_queue_destroy(rig.queue);
        arrays_drop();
        kern_ops_detach(rig.ops);
        dev_close(rig.device);
    }
    rig.device = NULL;
    rig.queue = NULL;
    rig.ops = NULL;
}

bool rig_is_card(void)
{
    return strncmp(rig.name, "cuda", 4) == 0;
}

bool rig_rounds_tiles(enum kern_type type)
{
    return rig_is_card() ||
           (type == KERN_BF16 && strstr(kern_ops_describe(rig.ops), "avx512bf16") != NULL);
}

void rig_each_kernel(void (*test)(void))
{
    if (rig_is_card()) {
        rig_open(NULL, 1);
        test();
        rig_close();
    } else {
        rig_each(test);
    }
}

/* Runs `test` first with our products, and then with the library's. */
static void each_of_card(void (*test)(void))
{
    const enum kern_products ways[] = {KERN_PRODUCTS_PLAIN, KERN_PRODUCTS_BEST};
    for (size_t i = 0; i < 2; i++) {
        const struct kern_options options = {.products = ways[i]};
        rig_open(&options, 1);
        test_note("%s", kern_ops_describe(rig.ops));
        test();
    }
    rig_close();
}

void rig_each(void (*test)(void))
{
    if (rig_is_card()) {
        each_of_card(test);
        return;
    }
    const unsigned masks[] = {CORE_CPU_ALL, CORE_CPU_AVX2 | CORE_CPU_AVX512, CORE_CPU_AVX2,
                              1u << 30};
    for (size_t i = 0; i < sizeof masks / sizeof masks[0]; i++) {
        if (i > 0 && core_cpu_flags(masks[i]) == core_cpu_flags(masks[i - 1])) {
            continue;
        }
        const struct kern_options options = {.cpu_flags = masks[i],
                                             .products = KERN_PRODUCTS_PLAIN};
        rig_open(&options, i == 0 ? 2 : 3);
        test_note("%s", kern_ops_describe(rig.ops));
        test();
    }
    rig_close();
    const struct kern_options foreign = {.products = KERN_PRODUCTS_ONEDNN};
    struct dev_device *device = NULL;
    struct kern_ops *ops = NULL;
    must(dev_open(rig.name, NULL, &device));
    const int rc = kern_ops_attach(device, &foreign, &ops);
    dev_close(device);
    kern_ops_detach(ops);
    if (rc == 0) {
        rig_open(&foreign, 2);
        test_note("%s", kern_ops_describe(rig.ops));
        test();
    } else {
        test_note("without oneDNN: %s", core_err_message());
    }
    rig_close();
}

void rig_case(uint64_t seed)
{
    arrays_drop();
    rig.seed = seed;
    rig.drawn = 0;
}

double rig_unit(void)
{
    const struct core_rng_words words = core_rng_philox(rig.seed, 7, rig.drawn++);
    return (double)core_rng_unit(words.word[0]);
}

int64_t rig_int(int64_t low, int64_t high)
{
    return low + (int64_t)(rig_unit() * (double)(high - low + 1));
}

/* Allocates memory that does not cross a border of 4 GiB, so that no address looks like an enum
 * (see translate). Unsuitable places stay allocated meanwhile. */
static char *host_alloc(size_t bytes)
{
    char *taken[PLACES_MAX];
    char *memory = NULL;
    unsigned count = 0;
    while (memory == NULL && count < PLACES_MAX) {
        char *place = calloc(1, bytes);
        const uint64_t first = (uintptr_t)place;
        if (place == NULL) {
            break;
        }
        if ((uint32_t)first >= ENUM_LIMIT && first >> 32 == (first + bytes) >> 32) {
            memory = place;
        } else {
            taken[count++] = place;
        }
    }
    while (count > 0) {
        free(taken[--count]);
    }
    if (memory == NULL) {
        test_fail(__FILE__, __LINE__, "no place for %zu bytes", bytes);
    }
    return memory;
}

static struct array *array_add(enum kern_type type, int64_t count, size_t bytes)
{
    if (rig.count == RIG_ARRAYS_MAX) {
        test_fail(__FILE__, __LINE__, "more than %d arrays in a case", RIG_ARRAYS_MAX);
    }
    struct array *array = &rig.arrays[rig.count];
    *array = (struct array){.bytes = bytes, .type = type, .count = count};
    array->host = host_alloc(bytes + rig.tail_bytes);
    array->fetched = calloc(1, bytes + rig.tail_bytes);
    void *device = NULL;
    must(dev_memory_alloc(rig.device, bytes > 0 ? bytes + rig.tail_bytes : TAIL_BYTES, &device));
    array->device = device;
    rig.count++;
    return array;
}

static void copy(enum dev_copy_direction direction, void *to, const void *from, size_t bytes)
{
    struct core_fence fence;
    must(dev_queue_copy(
        rig.queue,
        &(struct dev_copy){.direction = direction, .to = to, .from = from, .bytes = bytes},
        &fence));
    must(core_fence_wait(fence, -1));
}

static void array_up(const struct array *array)
{
    copy(DEV_COPY_UP, array->device, array->host, array->bytes + rig.tail_bytes);
    tail_watch(array, true);
}

void *rig_zeros(enum kern_type type, int64_t count)
{
    struct array *array = array_add(type, count, (size_t)count * kern_type_bytes(type));
    array_up(array);
    return array->host;
}

void *rig_random(enum kern_type type, int64_t count, double size)
{
    struct array *array = array_add(type, count, (size_t)count * kern_type_bytes(type));
    for (int64_t i = 0; i < count; i++) {
        kern_ref_store(type, array->host, i, (2.0 * rig_unit() - 1.0) * size);
    }
    array_up(array);
    return array->host;
}

void *rig_bytes(size_t bytes)
{
    struct array *array = array_add(KERN_F64, (int64_t)(bytes / 8), bytes);
    array_up(array);
    return array->host;
}

void *rig_ints(const int32_t *values, int64_t count)
{
    struct array *array = array_add(KERN_F32, 0, (size_t)count * sizeof(int32_t));
    memcpy(array->host, values, array->bytes);
    array_up(array);
    return array->host;
}

static struct array *array_find(const char *host)
{
    for (unsigned i = 0; i < rig.count; i++) {
        const struct array *array = &rig.arrays[i];
        if (host >= array->host && host < array->host + array->bytes + 1) {
            return &rig.arrays[i];
        }
    }
    return NULL;
}

static struct array *array_of(const void *host)
{
    struct array *array = array_find(host);
    if (array == NULL) {
        test_fail(__FILE__, __LINE__, "not an array of this case");
    }
    return array;
}

/* Replaces pointers into arrays by device addresses. An enum with its padding is not taken for a
 * pointer. */
static void translate(char *arguments, size_t bytes)
{
    for (size_t at = 0; at + sizeof(char *) <= bytes; at += sizeof(char *)) {
        char *pointer = NULL;
        memcpy(&pointer, arguments + at, sizeof pointer);
        const bool is_enum = (uint32_t)(uintptr_t)pointer < ENUM_LIMIT;
        const struct array *array = is_enum ? NULL : array_find(pointer);
        if (array != NULL) {
            pointer = array->device + (pointer - array->host);
            memcpy(arguments + at, &pointer, sizeof pointer);
        }
    }
}

/* Checks that the bytes after an array are still 0. */
static void tail_check(const struct array *array, const char *what)
{
    static const char zeros[TAIL_BYTES];
    char tail[TAIL_BYTES];
    tail_watch(array, false);
    copy(DEV_COPY_DOWN, tail, array->device + array->bytes, rig.tail_bytes);
    tail_watch(array, true);
    if (memcmp(tail, zeros, rig.tail_bytes) != 0) {
        test_fail(__FILE__, __LINE__, "op %s has written past an array of %zu bytes", what,
                  array->bytes);
    }
}

int rig_run(enum kern_op op, const void *arguments)
{
    _Alignas(16) char moved[ARGUMENT_BYTES];
    const size_t bytes = kern_op_argument_bytes(op);
    memcpy(moved, arguments, bytes);
    translate(moved, bytes);
    if (kern_scratch_bytes(rig.kind, op, arguments, rig.threads) > SCRATCH_BYTES) {
        test_fail(__FILE__, __LINE__, "op %s wants more scratch than the rig has",
                  kern_op_name(op));
    }
    struct core_fence fence;
    const struct dev_command command = {.op = op, .arguments = moved, .arguments_bytes = bytes};
    int rc = dev_queue_launch(rig.queue, &command, &fence);
    rc = rc == 0 ? core_fence_wait(fence, -1) : rc;
    for (unsigned i = 0; i < rig.count && rc == 0; i++) {
        tail_check(&rig.arrays[i], kern_op_name(op));
    }
    return rc;
}

void rig_reference(enum kern_op op, const void *arguments)
{
    kern_ref_run(op, arguments);
}

const void *rig_fetch(const void *host)
{
    struct array *array = array_of(host);
    copy(DEV_COPY_DOWN, array->fetched, array->device, array->bytes);
    return array->fetched;
}

static double unit_of(enum kern_type type)
{
    static const double units[] = {0x1p-24, 0x1p-8, 0x1p-11, 0x1p-53};
    return units[type];
}

enum { TOLD_MAX = 3 };

/* Compares, notes the first elements that differ, and returns the number of differences. */
static int64_t differences(const char *what, const struct array *array, const void *got,
                           struct rig_bound bound)
{
    /* Inputs are about 1, so even a sum near 0 has the rounding errors of its terms. */
    double most = 0.05;
    int64_t wrong = 0;
    for (int64_t i = 0; i < array->count; i++) {
        most = fmax(most, fabs(kern_ref_load(array->type, array->host, i)));
    }
    for (int64_t i = 0; i < array->count; i++) {
        const double want = kern_ref_load(array->type, array->host, i);
        const double have = kern_ref_load(array->type, got, i);
        const double allowed = bound.roundings * unit_of(array->type) * fabs(want) +
                               bound.noise * 0x1p-24 * most +
                               (array->type == KERN_FP16 ? 0x1p-23 : 0.0);
        if (!(fabs(have - want) <= allowed) && wrong++ < TOLD_MAX) {
            test_note("%s: element %" PRId64 " of %" PRId64 " (%s) is %.9g, not %.9g, "
                      "which is %.3g of what the bound allows",
                      what, i, array->count, kern_type_name(array->type), have, want,
                      fabs(have - want) / allowed);
        }
    }
    return wrong;
}

void rig_compare(const char *what, const void *host, struct rig_bound bound)
{
    struct array *array = array_of(host);
    const int64_t wrong = differences(what, array, rig_fetch(host), bound);
    if (wrong > 0) {
        test_fail(__FILE__, __LINE__, "%s: %" PRId64 " of %" PRId64 " elements (%s) are wrong",
                  what, wrong, array->count, kern_type_name(array->type));
    }
}

/* Notes the words of an argument struct; pointers are noted as arrays. */
static void arguments_note(enum kern_op op, const void *arguments)
{
    for (size_t at = 0; at + sizeof(uint64_t) <= kern_op_argument_bytes(op);
         at += sizeof(uint64_t)) {
        uint64_t word;
        int32_t halves[2];
        float real;
        memcpy(&word, (const char *)arguments + at, sizeof word);
        memcpy(halves, &word, sizeof halves);
        memcpy(&real, &word, sizeof real);
        const struct array *array = word != 0 ? array_find((const char *)(uintptr_t)word) : NULL;
        if (array != NULL) {
            test_note("op %s, byte %zu: %" PRId64 " %s + %td bytes", kern_op_name(op), at,
                      array->count, kern_type_name(array->type),
                      (const char *)(uintptr_t)word - array->host);
        } else if (word != 0 && word < UINT64_C(1) << 24) {
            test_note("op %s, byte %zu: %" PRIu64, kern_op_name(op), at, word);
        } else if (word != 0) {
            test_note("op %s, byte %zu: %d, %d; as a number %g", kern_op_name(op), at, halves[0],
                      halves[1], (double)real);
        }
    }
}

void rig_check(enum kern_op op, const void *arguments, struct rig_bound bound, ...)
{
    const int rc = rig_run(op, arguments);
    int64_t wrong = 0;
    if (rc != 0) {
        arguments_note(op, arguments);
        must(rc);
    }
    rig_reference(op, arguments);
    va_list list;
    va_start(list, bound);
    for (const void *host = va_arg(list, const void *); host != NULL;
         host = va_arg(list, const void *)) {
        struct array *array = array_of(host);
        wrong += differences(kern_op_name(op), array, rig_fetch(host), bound);
    }
    va_end(list);
    if (wrong > 0) {
        arguments_note(op, arguments);
        test_fail(__FILE__, __LINE__, "op %s: %" PRId64 " elements are wrong", kern_op_name(op),
                  wrong);
    }
}

int rig_main(int argc, char **argv, const struct test_case *cases, size_t count)
{
    int kept = 1;
    rig.name = rig_machine();
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--dev") == 0 && i + 1 < argc) {
            rig.name = argv[++i];
        } else {
            argv[kept++] = argv[i];
        }
    }
    const int rc = test_main(kept, argv, cases, count);
    rig_close();
    return rc;
}
