/* test_life.c: a cache survives failing requests for memory and threads. */
#include <errno.h>

#include "aio/backend.h"
#include "core/base/err.h"
#include "tests/cache/case.h"
#include "tests/harness/fail_alloc.h"

enum { BYTES = 16 << 10, BLOCKS = 80 };

static unsigned char *memory;
static struct aio_mem_disk *disk;

static int life(void)
{
    struct cache *cache = NULL;
    const struct aio_store_path path = {.disk = disk, .bytes = 4 * MIB};
    const struct cache_options options = {.host_bytes = 4 * BYTES, .paths = &path, .path_count = 1};
    int rc = cache_create(&options, &cache);
    if (rc != 0) {
        return rc;
    }
    for (unsigned turn = 0; rc == 0 && turn < 2; turn++) {
        for (unsigned i = 0; rc == 0 && i < BLOCKS; i++) {
            case_fill(memory, BYTES, i, turn);
            rc = case_put(cache, i, memory, BYTES, i % 2 == 0);
        }
        rc = rc == 0 ? cache_iteration(cache) : rc;
        for (unsigned i = 0; rc == 0 && i < BLOCKS; i++) {
            rc = case_get(cache, i, memory, BYTES, NULL);
            if (rc == 0 && !case_has(memory, BYTES, i, turn)) {
                rc = core_err_set(-EBADMSG, "block %u has wrong bytes", i);
            }
        }
    }
    const struct core_err kept = core_err_keep(rc);
    return core_err_first(&kept, cache_destroy(cache));
}

static void every_request_fails_once(void)
{
    memory = case_memory(BYTES);
    check_int(aio_mem_create(4 * MIB, &disk), ==, 0);
    check_int(life(), ==, 0);
    test_note("%u requests", test_fail_every(life, TEST_STRIDE(3)));
    aio_mem_destroy(disk);
}

TEST_MAIN({"every_request_fails_once", every_request_fails_once})
