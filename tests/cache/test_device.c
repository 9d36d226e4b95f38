/* test_device.c: copies of blocks on the CPU or the emulated card. */
#include <errno.h>

#include "aio/backend.h"
#include "core/base/err.h"
#include "tests/cache/case.h"
#ifdef EMULATED_CARD
#include "tests/dev/fake_cuda.h"
#endif

enum { BLOCKS = 10, BYTES = 64 << 10, ROOM = 4 };

static const char *device_name(void)
{
#ifdef EMULATED_CARD
    fake_reset(8 * MIB);
    return "cuda:0";
#else
    return "cpu";
#endif
}

static struct cache *open_cache(struct aio_mem_disk **disk)
{
    struct cache *cache = NULL;
    check_int(aio_mem_create(8 * MIB, disk), ==, 0);
    const struct aio_store_path path = {.disk = *disk, .bytes = 8 * MIB};
    const struct cache_options options = {.host_bytes = 3 * BYTES,
                                          .paths = &path,
                                          .path_count = 1,
                                          .device = device_name(),
                                          .device_bytes = ROOM * BYTES};
    const int rc = cache_create(&options, &cache);
    if (rc != 0) {
        test_fail(__FILE__, __LINE__, "no cache: %d: %s", rc, core_err_message());
    }
    return cache;
}

static int get_on_device(struct cache *cache, unsigned block, struct cache_result *out)
{
    uint64_t token = 0;
    const struct cache_request request = {.name = case_name(block), .on_device = true};
    int rc = cache_get(cache, &request, &token);
    return rc == 0 ? cache_wait(cache, token, out) : rc;
}

static int put_from_device(struct cache *cache, unsigned block, const void *from, uint64_t bytes)
{
    uint64_t token = 0;
    const struct cache_request request = {
        .name = case_name(block), .from = from, .bytes = bytes, .on_device = true};
    int rc = cache_put(cache, &request, &token);
    return rc == 0 ? cache_wait(cache, token, NULL) : rc;
}

static bool is_on_device(struct cache *cache, unsigned block)
{
    struct cache_look look;
    check_int(cache_look(cache, case_name(block), &look), ==, 0);
    return look.on_device;
}

/* After random operations, copies have their blocks' newest bytes. */
static void copies_follow_their_blocks(void)
{
    unsigned char *memory = case_memory(BYTES);
    uint64_t versions[BLOCKS] = {0};
    uint64_t seed = 1;
    struct aio_mem_disk *disk = NULL;
    struct cache *cache = open_cache(&disk);
    for (unsigned i = 0; i < TEST_COUNT(4000, 800); i++) {
        const unsigned block = (unsigned)case_random(&seed, BLOCKS);
        struct cache_result result = {.data = NULL};
        const uint64_t kind = case_random(&seed, 12);
        if (versions[block] == 0 || kind < 2) {
            versions[block] = i + 1;
            case_fill(memory, BYTES, block, i + 1);
            check_int(case_put(cache, block, memory, BYTES, kind == 0), ==, 0);
            check_true(!is_on_device(cache, block));
        } else if (kind == 10) {
            /* Bytes written on the device are stored by a release or a put. */
            const bool puts = case_random(&seed, 2) == 0;
            check_int(get_on_device(cache, block, &result), ==, 0);
            versions[block] = i + 1;
            case_fill(result.data, BYTES, block, i + 1);
            check_int(puts ? put_from_device(cache, block, result.data, BYTES) : 0, ==, 0);
            check_int(cache_release(cache, case_name(block), !puts), ==, 0);
            check_true(is_on_device(cache, block));
        } else if (kind == 11) {
            /* The bytes come from the copy of another block. */
            const unsigned other = (block + 1) % BLOCKS;
            if (versions[other] > 0) {
                check_int(get_on_device(cache, other, &result), ==, 0);
                versions[block] = i + 1;
                case_fill(result.data, BYTES, block, i + 1);
                check_int(put_from_device(cache, block, result.data, BYTES), ==, 0);
                check_true(!is_on_device(cache, block));
                case_fill(result.data, BYTES, other, versions[other]);
                check_int(cache_release(cache, case_name(other), false), ==, 0);
            }
        } else if (kind < 7) {
            check_int(get_on_device(cache, block, &result), ==, 0);
            check_true(result.bytes == BYTES && is_on_device(cache, block));
            check_true(case_has(result.data, BYTES, block, versions[block]));
            check_int(cache_release(cache, case_name(block), false), ==, 0);
        } else if (kind < 9) {
            check_int(case_get(cache, block, NULL, 0, &result), ==, 0);
            check_true(case_has(result.data, BYTES, block, versions[block]));
            const bool changes = kind == 7;
            if (changes) {
                versions[block] = i + 1;
                case_fill(result.data, BYTES, block, i + 1);
            }
            check_int(cache_release(cache, case_name(block), changes), ==, 0);
            check_true(!changes || !is_on_device(cache, block));
        } else {
            check_int(case_drop(cache, block), ==, 0);
            versions[block] = 0;
        }
        struct cache_stats stats;
        cache_stats_take(cache, &stats);
        check_uint(stats.device_used_bytes, <=, ROOM * BYTES);
        check_uint(stats.device_bytes, ==, ROOM * BYTES);
    }
    check_int(cache_destroy(cache), ==, 0);
    aio_mem_destroy(disk);
}

static void refusals(void)
{
    unsigned char *memory = case_memory(BYTES);
    struct aio_mem_disk *disk = NULL;
    struct cache_result result;
    uint64_t token = 0;
    struct cache *cache = open_cache(&disk);
    for (unsigned i = 0; i < BLOCKS; i++) {
        case_fill(memory, BYTES, i, 1);
        check_int(case_put(cache, i, memory, BYTES, false), ==, 0);
    }
    for (unsigned i = 0; i < ROOM; i++) {
        check_int(get_on_device(cache, i, &result), ==, 0);
    }
    check_int(get_on_device(cache, ROOM, &result), ==, -ENOMEM);
    check_contains(core_err_message(), "block 4: ");
    check_int(case_get(cache, 1, NULL, 0, &result), ==, -EBUSY);
    check_contains(core_err_message(), "pinned on the device");
    check_int(case_get(cache, 1, memory, BYTES, &result), ==, 0);
    check_int(case_put(cache, 1, memory, BYTES, false), ==, -EBUSY);
    check_int(case_drop(cache, 1), ==, -EBUSY);
    check_int(case_get(cache, 5, NULL, 0, &result), ==, 0);
    check_int(get_on_device(cache, 5, &result), ==, -EBUSY);
    check_contains(core_err_message(), "pinned on the host");
    check_int(cache_release(cache, "block 2", true), ==, 0);
    check_int(cache_release(cache, "block 2", false), ==, -EINVAL);
    check_contains(core_err_message(), "is not pinned");
    check_int(cache_release(cache, "block 2", true), ==, -EINVAL);
    check_int(get_on_device(cache, ROOM, &result), ==, 0);
    check_true(case_has(result.data, BYTES, ROOM, 1) && !is_on_device(cache, 2));
    check_int(case_put(cache, 9, case_memory(5 * BYTES), 5 * BYTES, true), ==, 0);
    /* Neither the device nor the host has room for the block. */
    check_int(get_on_device(cache, 9, &result), ==, -ENOMEM);
    check_true(is_on_device(cache, 1));
    check_int(put_from_device(cache, 1, memory, BYTES), ==, -EBUSY);
    check_int(get_on_device(cache, 1, &result), ==, 0);
    check_int(put_from_device(cache, 1, result.data, BYTES / 2), ==, -EINVAL);
    check_contains(core_err_message(), "has 65536 bytes, not 32768");
    check_int(put_from_device(cache, 6, memory, BYTES), ==, -EINVAL);
    check_int(case_get(cache, 6, memory, BYTES, &result), ==, 0);
    check_true(case_has(memory, BYTES, 6, 1));
    const struct cache_request both = {
        .name = "block 1", .on_device = true, .to = memory, .bytes = BYTES};
    check_int(cache_get(cache, &both, &token), ==, -EINVAL);
    check_int(cache_destroy(cache), ==, 0);
    aio_mem_destroy(disk);
    cache = case_open(&(struct cache_case){.host_bytes = MIB});
    check_int(get_on_device(cache, 1, &result), ==, -EINVAL);
    check_contains(core_err_message(), "cannot be copied to the device: the store has no device");
    check_int(put_from_device(cache, 1, memory, BYTES), ==, -EINVAL);
    check_contains(core_err_message(), "cannot be put from the device: the store has no device");
    check_int(cache_destroy(cache), ==, 0);
}

TEST_MAIN({"copies_follow_their_blocks", copies_follow_their_blocks}, {"refusals", refusals})
