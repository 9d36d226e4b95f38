/* test_many.c: checkpoints of many small blocks take work in proportion to the blocks. Work is
 * counted as comparisons of names, hashed bytes, requests and moved bytes, without loops over
 * numbers. */
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "offload/store/checkpoint.h"
#include "tests/harness/test.h"

enum { MANY = 100000, ELEMENTS = 64 };

static uint32_t bytes_of_all[MANY + 2 * ELEMENTS]; /* a block's bytes begin at its number */

enum work { COMPARISONS, HASHED_BYTES, REQUESTS, MOVED_BYTES, WORKS };
static const char *const work_names[WORKS] = {"comparisons", "hashed bytes", "requests",
                                              "moved bytes"};
/* Relaxed: read only while no other thread works. */
static _Atomic uint64_t done[WORKS];

static void count_work(enum work work, uint64_t amount)
{
    atomic_fetch_add_explicit(&done[work], amount, memory_order_relaxed);
}

static void count_request(uint64_t bytes)
{
    count_work(REQUESTS, 1);
    count_work(MOVED_BYTES, bytes);
}

/* Counts the work of calls in the linked code (-Wl,--wrap). */
#define COUNTED(type, name, count, parameters, arguments)                                          \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters                                                                  \
    {                                                                                              \
        count;                                                                                     \
        return __real_##name arguments;                                                            \
    }

COUNTED(int, strcmp, count_work(COMPARISONS, 1), (const char *a, const char *b), (a, b))
COUNTED(int, memcmp, count_work(COMPARISONS, 1), (const void *a, const void *b, size_t bytes),
        (a, b, bytes))
COUNTED(uint64_t, core_hash, count_work(HASHED_BYTES, bytes),
        (const void *data, size_t bytes, uint64_t seed), (data, bytes, seed))
COUNTED(ssize_t, read, count_request(bytes), (int fd, void *to, size_t bytes), (fd, to, bytes))
COUNTED(ssize_t, write, count_request(bytes), (int fd, const void *from, size_t bytes),
        (fd, from, bytes))
COUNTED(ssize_t, pread, count_request(bytes), (int fd, void *to, size_t bytes, off_t at),
        (fd, to, bytes, at))
COUNTED(ssize_t, pread64, count_request(bytes), (int fd, void *to, size_t bytes, off64_t at),
        (fd, to, bytes, at))
COUNTED(ssize_t, pwrite, count_request(bytes), (int fd, const void *from, size_t bytes, off_t at),
        (fd, from, bytes, at))
COUNTED(ssize_t, pwrite64, count_request(bytes),
        (int fd, const void *from, size_t bytes, off64_t at), (fd, from, bytes, at))

static uint32_t block_count(void)
{
    return test_full() ? MANY : TEST_COUNT(24000, 4000);
}

/* Names differ at the end, so a comparison reads them whole. */
static void name_of(uint32_t block, char name[BLOCKS_NAME_BYTES_MAX + 1])
{
    memset(name, 'n', BLOCKS_NAME_BYTES_MAX);
    snprintf(name + BLOCKS_NAME_BYTES_MAX - 7, 8, "%07" PRIu32, block);
}

static uint64_t elements_of(uint32_t block)
{
    return 1 + block % ELEMENTS;
}

static struct blocks *make_blocks(uint32_t count)
{
    struct blocks *blocks = NULL;
    check_int(blocks_create(&blocks), ==, 0);
    for (uint32_t b = 0; b < count; b++) {
        char name[BLOCKS_NAME_BYTES_MAX + 1];
        uint64_t first = 0;
        const struct block_tensor tensor = {
            .name = name, .rows = 1, .cols = (int64_t)elements_of(b)};
        name_of(b, name);
        check_int(blocks_add(blocks, name), ==, 0);
        check_int(blocks_add_array(blocks, elements_of(b), b % 3, b % 4 == 0, &first), ==, 0);
        check_int(blocks_add_tensor(blocks, &tensor, NULL), ==, 0);
    }
    check_int(blocks_finish(blocks, "paper", 5), ==, 0);
    return blocks;
}

static void note(const char *what, int64_t *start_ns)
{
    struct rusage usage;
    const int64_t now_ns = core_clock_now_ns();
    check_int(getrusage(RUSAGE_SELF, &usage), ==, 0);
    test_note("%s: %.2f s, memory up to %ld MiB", what, (double)(now_ns - *start_ns) / 1e9,
              usage.ru_maxrss / 1024);
    *start_ns = core_clock_now_ns();
}

static struct store_manifest describe(const struct blocks *blocks)
{
    struct store_manifest manifest = {
        .run = 1, .step = 3, .updates = 3, .scale = {.value = 1}, .blocks = blocks};
    manifest.format = (struct plan_format){.weight_bytes = 4, .m_bytes = 4, .grad_bytes = 4};
    snprintf(manifest.weight_dtype, sizeof manifest.weight_dtype, "F32");
    return manifest;
}

static void write_all(struct store_shelf *shelf, const struct blocks *blocks, int64_t *start_ns)
{
    const struct store_checkpoint_options options = {.shelf = shelf, .backend = "threads"};
    struct store_manifest manifest = describe(blocks);
    struct store_checkpoint_write *write = NULL;
    check_int(store_checkpoint_begin(&options, &manifest, &write), ==, 0);
    note("begun", start_ns);
    for (uint32_t b = 0; b < blocks->count; b++) {
        char *bytes = (char *)&bytes_of_all[b];
        const struct store_arrays arrays = {
            .at = {[STORE_STREAM_WEIGHTS] = bytes,
                   [STORE_STREAM_M] = blocks->list[b].trained ? bytes + ELEMENTS : NULL}};
        check_int(store_checkpoint_put_begin(write, b, 0, elements_of(b), &arrays), ==, 0);
    }
    check_int(store_checkpoint_put_wait(write, store_checkpoint_put_tail(write)), ==, 0);
    note("written", start_ns);
    check_int(store_checkpoint_finish(write), ==, 0);
    check_int(store_checkpoint_end(write), ==, 0);
    note("read back and published", start_ns);
}

static void compare_all(struct store_shelf *shelf, const struct blocks *blocks, int64_t *start_ns)
{
    struct store_checkpoint *checkpoint = NULL;
    char path[700];
    store_shelf_path(store_shelf_directory(shelf), 3, path, sizeof path);
    check_int(store_checkpoint_open(path, "threads", NULL, &checkpoint), ==, 0);
    note("opened", start_ns);
    const struct blocks *found = store_checkpoint_manifest(checkpoint)->blocks;
    check_uint(found->count, ==, blocks->count);
    check_uint(found->hash, ==, blocks->hash);
    const size_t room = (size_t)blocks->count * ELEMENTS * 4;
    char *weights = calloc(2, room);
    check_true(weights != NULL);
    for (uint32_t b = 0; b < blocks->count; b++) {
        char *at = weights + (size_t)b * ELEMENTS * 4;
        const struct store_arrays arrays = {
            .at = {[STORE_STREAM_WEIGHTS] = at,
                   [STORE_STREAM_M] = blocks->list[b].trained ? at + room : NULL}};
        check_string(found->list[b].name, blocks->list[b].name);
        check_uint(found->list[b].elements, ==, blocks->list[b].elements);
        check_true(found->list[b].trained == blocks->list[b].trained);
        check_int(store_checkpoint_read_begin(checkpoint, b, 0, elements_of(b), &arrays), ==, 0);
    }
    check_int(store_checkpoint_read_wait(checkpoint, store_checkpoint_read_tail(checkpoint)), ==,
              0);
    note("read", start_ns);
    for (uint32_t b = 0; b < blocks->count; b++) {
        const char *at = weights + (size_t)b * ELEMENTS * 4;
        const char *bytes = (const char *)&bytes_of_all[b];
        check_memory(at, bytes, elements_of(b) * 4);
        if (blocks->list[b].trained) {
            check_memory(at + room, bytes + ELEMENTS, elements_of(b) * 4);
        }
    }
    check_int(store_checkpoint_close(checkpoint), ==, 0);
    free(weights);
}

/* Checks that the manifest lists the tensors and notices a different last tensor. */
static void check_tensors(const struct blocks *blocks, int64_t *start_ns)
{
    struct store_manifest manifest = describe(blocks);
    struct blocks *others = make_blocks(blocks->count);
    char *text = NULL;
    size_t bytes = 0;
    snprintf(manifest.sums.name, sizeof manifest.sums.name, "sums.safetensors");
    check_int(store_manifest_print(&manifest, &text, &bytes), ==, 0);
    test_note("%zu MiB of manifest", bytes >> 20);
    check_int(store_manifest_check_tensors(text, bytes, "text", blocks), ==, 0);
    others->tensors[blocks->count - 1].cols++;
    check_int(store_manifest_check_tensors(text, bytes, "text", others), ==, -EBADMSG);
    note("tensors compared twice", start_ns);
    blocks_destroy(others);
    free(text);
}

/* Measures the work of writing, reading and comparing `count` blocks. */
static void run_blocks(uint32_t count, uint64_t out[WORKS])
{
    char directory[600];
    struct store_shelf *shelf = NULL;
    int64_t start_ns = core_clock_now_ns();
    for (int work = 0; work < WORKS; work++) {
        out[work] = atomic_load_explicit(&done[work], memory_order_relaxed);
    }
    struct blocks *blocks = make_blocks(count);
    note("described", &start_ns);
    snprintf(directory, sizeof directory, "%s/shelf of %" PRIu32, test_directory(), count);
    check_int(store_shelf_open(directory, &shelf), ==, 0);
    write_all(shelf, blocks, &start_ns);
    compare_all(shelf, blocks, &start_ns);
    check_tensors(blocks, &start_ns);
    store_shelf_close(shelf);
    blocks_destroy(blocks);
    for (int work = 0; work < WORKS; work++) {
        out[work] = atomic_load_explicit(&done[work], memory_order_relaxed) - out[work];
    }
}

/* Four times the blocks need about four times the work; a quadratic part would need sixteen. */
static void many_blocks(void)
{
    enum { TIMES = 4, TIMES_MOST = 6 };
    uint64_t few[WORKS];
    uint64_t many[WORKS];
    for (uint32_t i = 0; i < sizeof bytes_of_all / sizeof bytes_of_all[0]; i++) {
        bytes_of_all[i] = i * 2654435761u;
    }
    run_blocks(block_count() / TIMES, few);
    run_blocks(block_count(), many);
    for (int work = 0; work < WORKS; work++) {
        test_note("%s: %" PRIu64 ", with %d times the blocks %" PRIu64, work_names[work], few[work],
                  TIMES, many[work]);
        check_uint(few[work], >=, block_count() / TIMES);
        check_uint(many[work], <=, TIMES_MOST * few[work]);
    }
}

/* Blocks whose names do not fit into a header of safetensors are refused. */
static void long_header(void)
{
    if (TEST_SLOW) {
        test_skip("long_manifest is refused in the same way");
    }
    struct blocks *blocks = make_blocks(3 * MANY);
    struct store_manifest manifest = describe(blocks);
    struct store_image image;
    check_int(store_image_init(&image, &manifest.format, manifest.weight_dtype, blocks), ==,
              -EFBIG);
    check_contains(core_err_message(), "the names of 300000 blocks are too long");
    blocks_destroy(blocks);
}

static void long_manifest(void)
{
    struct blocks *blocks = NULL;
    char name[BLOCKS_NAME_BYTES_MAX + 1];
    char *text = NULL;
    size_t bytes = 0;
    name_of(0, name);
    check_int(blocks_create(&blocks), ==, 0);
    check_int(blocks_add(blocks, "all"), ==, 0);
    for (uint32_t i = 0; i < STORE_MANIFEST_BYTES_MAX / sizeof name; i++) {
        check_int(blocks_add_tensor(blocks, &(struct block_tensor){.name = name}, NULL), ==, 0);
    }
    check_int(blocks_finish(blocks, "paper", 0), ==, 0);
    const struct store_manifest manifest = describe(blocks);
    check_int(store_manifest_print(&manifest, &text, &bytes), ==, -EFBIG);
    check_true(core_err_message()[0] != '\0');
    blocks_destroy(blocks);
}

/* Headers and padding are small if an optimizer makes the blocks. */
static void padding_is_small(void)
{
    enum { SHARED = 500, LEAST = 512 << 10 };
    static const struct plan_format formats[] = {
        {.weight_bytes = 2, .master_bytes = 2, .m_bytes = 4, .v_bytes = 4},
        {.weight_bytes = 4, .m_bytes = 2, .v_bytes = 2},
        {.weight_bytes = 2, .master_bytes = 2, .m_bytes = 1, .v_bytes = 1, .q8_block = 256}};
    static const char *const dtypes[] = {"BF16", "F32", "BF16"};
    struct blocks *blocks = NULL;
    check_int(blocks_create(&blocks), ==, 0);
    for (uint32_t b = 0; b < SHARED; b++) {
        char name[BLOCKS_NAME_BYTES_MAX + 1];
        uint64_t first = 0;
        name_of(b, name);
        check_int(blocks_add(blocks, name), ==, 0);
        check_int(blocks_add_array(blocks, LEAST + BLOCKS_ALIGN_ELEMENTS, 0, true, &first), ==, 0);
    }
    check_int(blocks_finish(blocks, "application", 5), ==, 0);
    for (size_t f = 0; f < sizeof formats / sizeof formats[0]; f++) {
        struct store_image image;
        uint64_t bytes = 0;
        uint64_t file_bytes = 0;
        check_int(store_image_init(&image, &formats[f], dtypes[f], blocks), ==, 0);
        for (int s = 0; s < STORE_STREAM_COUNT; s++) {
            bytes += SHARED * store_image_bytes(&image, (enum store_stream)s, 0);
            file_bytes += store_image_has(&image, (enum store_stream)s)
                              ? store_image_file_bytes(&image, (enum store_stream)s)
                              : 0;
        }
        test_note("format %zu: %.2f %%", f, 100.0 * (double)(file_bytes - bytes) / (double)bytes);
        check_uint(file_bytes, >, bytes);
        check_uint(file_bytes, <=, bytes + bytes / 100);
        store_image_fini(&image);
    }
    blocks_destroy(blocks);
}

TEST_MAIN({"many_blocks", many_blocks}, {"long_header", long_header},
          {"long_manifest", long_manifest}, {"padding_is_small", padding_is_small})
