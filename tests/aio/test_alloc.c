/* Tests failing allocations of drives and queues, and that requests allocate nothing. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "aio/backend.h"
#include "tests/aio/rig.h"
#include "tests/harness/fail_alloc.h"
#include "tests/harness/test.h"

enum { BYTES = 4 << 20, MIB = 1 << 20 };
static const int64_t patience_ns = 30000000000;
static const struct aio_backend *backend;
static struct aio_mem_disk *disk;
static int fd;
static unsigned char *memory;
static struct aio_sum sums[BYTES / AIO_SUM_BYTES];
static unsigned rounds;

static int move(struct aio_queue *queue, enum aio_kind kind, uint32_t file,
                struct core_fence *fence)
{
    const struct aio_iov piece = {.file = file,
                                  .memory = memory,
                                  .bytes = BYTES,
                                  .sums = {.table = sums, .run = 1, .owner = 2}};
    int rc = aio_queue_submit(queue, kind, &piece, 1, fence);
    return rc == 0 ? core_fence_wait(*fence, patience_ns) : rc;
}

/* Opens a drive and a queue; writes and reads `rounds` times. */
static int life(void)
{
    struct aio_drive *drive = NULL;
    struct aio_queue *queue = NULL;
    struct core_fence fence;
    uint32_t file = 0;
    const struct aio_drive_options options = {.backend = backend, .context = disk, .depth = 4};
    const struct aio_file described = {.fd = fd, .name = "file", .size_bytes = BYTES};
    int rc = aio_drive_create(&options, &drive);
    rc = rc == 0 ? aio_drive_attach(drive, &described, &file) : rc;
    rc = rc == 0 ? aio_queue_open(&drive, 1, &(struct aio_queue_options){.depth = 8}, &queue) : rc;
    for (unsigned i = 0; rc == 0 && i < rounds; i++) {
        rc = move(queue, AIO_WRITE, file, &fence);
        rc = rc == 0 ? move(queue, AIO_READ, file, &fence) : rc;
    }
    const int closed = aio_queue_close(queue);
    const int ended = aio_drive_destroy(drive);
    return rc != 0 ? rc : closed != 0 ? closed : ended;
}

/* Reads and writes add no allocation. */
static void nothing_after_create(void)
{
    char path[512];
    memory = rig_memory(BYTES);
    rig_fill(memory, BYTES, 1);
    snprintf(path, sizeof path, "%s/file", test_directory());
    fd = open(path, O_RDWR | O_CREAT, 0600);
    check_true(fd >= 0);
    check_int(ftruncate(fd, BYTES), ==, 0);
    check_int(aio_mem_create(BYTES, &disk), ==, 0);
    for (const char *const *name = rig_backends(); *name != NULL; name++) {
        backend = aio_backend_find(*name);
        rounds = 2;
        check_int(life(), ==, 0); /* fills caches that remain */
        rounds = 0;
        const unsigned before = test_fail_nth(life);
        rounds = TEST_SLOW ? 5 : 50;
        const unsigned after = test_fail_nth(life);
        test_note("%s: %u requests", *name, before);
        check_uint(before, >=, 3);
        check_uint(after, ==, before);
    }
    aio_mem_destroy(disk);
    close(fd);
    rig_free(memory);
}

TEST_MAIN({"nothing_after_create", nothing_after_create})
