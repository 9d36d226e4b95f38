/* test_system.c: functions that the machine forbids or lacks, and full file systems. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "aio/backend.h"
#include "aio/measure.h"
#include "aio/store.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "tests/aio/rig.h"
#include "tests/harness/child.h"
#include "tests/harness/heard.h"
#include "tests/harness/mount.h"
#include "tests/harness/test.h"

static const int64_t patience_ns = 20000000000;

/* Writes and reads once; a wrong byte fails the case. */
static void there_and_back(struct rig *rig, uint64_t bytes)
{
    struct core_fence fence;
    unsigned char *in = rig_memory(bytes);
    unsigned char *out = rig_memory(bytes);
    rig_fill(in, bytes, 3);
    check_int(aio_queue_write(rig->queue, rig->file, 0, in, bytes, &fence), ==, 0);
    check_int(core_fence_wait(fence, patience_ns), ==, 0);
    check_int(aio_queue_read(rig->queue, rig->file, 0, out, bytes, &fence), ==, 0);
    check_int(core_fence_wait(fence, patience_ns), ==, 0);
    check_memory(in, out, bytes);
    rig_free(in);
    rig_free(out);
}

struct forbidden {
    int code;
    bool libaio;
    const char *name, *reason;
};

static int run_forbidden(void *argument)
{
    const struct forbidden *row = argument;
    const struct aio_backend *backend = NULL;
    char reason[AIO_REASON_BYTES];
    check_int(test_child_refuse_uring(row->code, row->libaio), ==, 0);
    check_int(aio_probe_uring(reason, sizeof reason), ==, -row->code);
    check_contains(reason, row->reason);
    check_int(aio_backend_choose(NULL, true, reason, sizeof reason, &backend), ==, 0);
    check_string(backend->name, row->name);
    check_contains(reason, row->reason);
    check_int(aio_backend_choose("auto", false, reason, sizeof reason, &backend), ==, 0);
    check_string(backend->name, "threads");
    check_int(aio_backend_choose("uring", true, reason, sizeof reason, &backend), ==, -row->code);
    check_contains(core_err_message(), "was requested, but");
    struct rig rig;
    rig_open(&rig, &(struct rig_options){.backend = row->name, .bytes = 1 << 16});
    there_and_back(&rig, 1 << 16);
    rig_close(&rig);
    return 0;
}

/* If a back end is forbidden or missing, the next one works, and the reason is reported. */
static void io_uring_forbidden(void)
{
    char reason[AIO_REASON_BYTES] = "built without liburing or libaio";
    if (aio_backend_find("uring") == NULL || aio_probe_uring(reason, sizeof reason) != 0 ||
        aio_backend_find("libaio") == NULL || aio_probe_libaio(reason, sizeof reason) != 0) {
        test_skip("%s", reason);
    }
    static const struct forbidden rows[] = {{EPERM, false, "libaio", "io_uring is forbidden"},
                                            {ENOSYS, false, "libaio", "has no io_uring"},
                                            {EPERM, true, "threads", "libaio cannot be set up"},
                                            {ENOSYS, true, "threads", "has no io_uring"}};
    for (size_t i = 0; i < 4; i++) {
        struct forbidden row = rows[i];
        if (row.libaio) {
            row.reason = "io_uring";
        }
        check_int(test_child(run_forbidden, &row), ==, 0);
    }
    check_int(aio_probe_threads(reason, sizeof reason), ==, 0);
}

/* Flags that an older kernel refuses are dropped, and the ring works. */
static void refused_flags_are_dropped(void)
{
    char reason[AIO_REASON_BYTES];
    if (aio_backend_find("uring") == NULL || aio_probe_uring(reason, sizeof reason) != 0) {
        test_skip("%s", aio_backend_find("uring") == NULL ? "built without liburing" : reason);
    }
    static const struct {
        uint32_t refused;
        const char *left, *dropped;
    } rows[] = {{0, "submit_all", "none"},
                {1u << 13, "single_issuer", "defer_taskrun"},              /* Linux before 6.1 */
                {3u << 12, "coop_taskrun", "single_issuer"},               /* Linux before 6.0 */
                {3u << 12 | 1u << 8, "submit_all", "coop_taskrun"},        /* Linux before 5.19 */
                {3u << 12 | 1u << 8 | 1u << 7, "io_uring", "submit_all"}}; /* Linux 5.15 */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (int table = 0; table < 2; table++) {
            struct rig rig;
            rig_open(&rig, &(struct rig_options){.backend = "uring",
                                                 .bytes = 1 << 20,
                                                 .drive = {.refused_flags = rows[i].refused,
                                                           .no_file_table = table == 1,
                                                           .block_bytes = 1 << 16}});
            check_contains(aio_drive_describe(rig.drive), rows[i].left);
            check_true(strstr(aio_drive_describe(rig.drive), rows[i].dropped) == NULL);
            check_true((strstr(aio_drive_describe(rig.drive), "no file table") != NULL) == table);
            there_and_back(&rig, 1 << 20);
            rig_close(&rig);
        }
    }
    struct rig rig;
    rig_open(&rig, &(struct rig_options){
                       .backend = "uring", .bytes = 1 << 20, .drive = {.sqpoll = true}});
    check_contains(aio_drive_describe(rig.drive), "sqpoll");
    there_and_back(&rig, 1 << 20);
    rig_close(&rig);
}

/* Requests work inside, across and outside of registered memory. */
static void registered_memory(void)
{
    enum { BYTES = 1 << 20 };
    unsigned char *memory = rig_memory(3 * BYTES);
    for (const char *const *name = rig_backends(); *name != NULL; name++) {
        struct rig rig;
        rig_open(&rig, &(struct rig_options){
                           .backend = *name, .bytes = BYTES, .drive = {.block_bytes = 64 << 10}});
        struct iovec slabs[2] = {{memory + 2 * BYTES, BYTES}, {memory, BYTES}};
        check_int(aio_drive_register(rig.drive, slabs, 2), ==, 0);
        struct aio_drive_stats stats;
        aio_drive_stats(rig.drive, &stats);
        bool registers = strcmp(*name, "uring") == 0 || strcmp(*name, "mem") == 0;
        check_uint(stats.registered_bytes, ==, registers ? 2 * BYTES : 0);
        check_int(aio_drive_register(rig.drive, slabs, 2), ==, registers ? -EALREADY : 0);
        for (uint64_t at = 0; at <= 2 * BYTES; at += BYTES / 4 - 4096) {
            struct core_fence fence;
            rig_fill(memory + at, BYTES, at);
            unsigned char *copy = rig_memory(BYTES);
            memcpy(copy, memory + at, BYTES);
            check_int(aio_queue_write(rig.queue, rig.file, 0, memory + at, BYTES, &fence), ==, 0);
            check_int(core_fence_wait(fence, patience_ns), ==, 0);
            memset(memory + at, 0, BYTES);
            check_int(aio_queue_read(rig.queue, rig.file, 0, memory + at, BYTES, &fence), ==, 0);
            check_int(core_fence_wait(fence, patience_ns), ==, 0);
            check_memory(memory + at, copy, BYTES);
            rig_free(copy);
        }
        check_int(aio_drive_register(rig.drive, NULL, 0), ==, -EINVAL);
        rig_close(&rig);
    }
    rig_free(memory);
}

/* Memory that the back end was asked to register. */
static struct iovec seen_slabs[8];
static unsigned seen_count;

static int see_slabs(void *state, const struct iovec *slabs, unsigned count)
{
    (void)state;
    seen_count = count;
    for (unsigned i = 0; i < count && i < 8; i++) {
        seen_slabs[i] = slabs[i];
    }
    return 0;
}

/* Parts that are not whole huge pages are registered separately, because one small page makes the
 * kernel treat a whole slab as small pages. */
static void ragged_ends_stand_alone(void)
{
    static const struct {
        uint64_t first, bytes; /* relative to a border of 1 GiB */
        unsigned count;
        uint64_t sizes[5];
    } rows[] = {
        {0, 8 << 20, 1, {8 << 20}},
        {0, 4096, 1, {4096}},
        {4096, 8192, 1, {8192}},
        {0, (8 << 20) + 4096, 2, {8 << 20, 4096}},
        {(2 << 20) - 4096, 8192, 2, {4096, 4096}},
        {(2 << 20) - 8192, (6 << 20) + 12288, 3, {8192, 6 << 20, 4096}},
        {4096,
         UINT64_C(3) << 30,
         5,
         {(2 << 20) - 4096, 1 << 30, 1 << 30, (1 << 30) - (2 << 20), 4096}},
    };
    struct aio_backend backend = aio_mem;
    backend.buffers = see_slabs;
    const uint64_t room = UINT64_C(5) << 30;
    unsigned char *memory = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                                 -1, 0);
    check_true(memory != MAP_FAILED);
    unsigned char *at = memory + (1 << 30) - ((uintptr_t)memory & ((1 << 30) - 1));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct aio_mem_disk *disk = NULL;
        struct aio_drive *drive = NULL;
        struct iovec piece = {at + rows[i].first, rows[i].bytes};
        struct aio_drive_options options = {.backend = &backend};
        check_int(aio_mem_create(4096, &disk), ==, 0);
        options.context = disk;
        check_int(aio_drive_create(&options, &drive), ==, 0);
        check_int(aio_drive_register(drive, &piece, 1), ==, 0);
        uint64_t seen = 0;
        check_uint(seen_count, ==, rows[i].count);
        for (unsigned k = 0; k < rows[i].count; k++) {
            check_true(seen_slabs[k].iov_base == at + rows[i].first + seen);
            check_uint(seen_slabs[k].iov_len, ==, rows[i].sizes[k]);
            seen += seen_slabs[k].iov_len;
        }
        check_uint(seen, ==, rows[i].bytes);
        check_int(aio_drive_destroy(drive), ==, 0);
        aio_mem_destroy(disk);
    }
    check_int(munmap(memory, room), ==, 0);
}

static int run_locked(void *argument)
{
    (void)argument;
    struct rlimit limit = {.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || test_child_drop_root() != 0) {
        return 77;
    }
    test_listen(CORE_LOG_INFO);
    struct aio_mem_disk *disk = NULL;
    struct aio_drive *drive = NULL;
    check_int(aio_mem_create(4096, &disk), ==, 0);
    struct aio_drive_options options = {.backend = aio_backend_find("uring"), .name = "nvme3"};
    check_int(aio_drive_create(&options, &drive), ==, 0);
    struct iovec slab = {rig_memory(4 << 20), 4 << 20};
    check_int(aio_drive_register(drive, &slab, 1), ==, 0);
    struct aio_drive_stats stats;
    aio_drive_stats(drive, &stats);
    check_uint(stats.registered_bytes, ==, 0);
    check_contains(
        test_heard(),
        "nvme3: buffers are not registered because the limit on locked memory is too low");
    check_contains(test_heard(), "`ulimit -l 4096`");
    check_int(aio_drive_destroy(drive), ==, 0);
    aio_mem_destroy(disk);
    return 0;
}

/* If too little memory may be locked, registering is no error, and a warning names a sufficient
 * limit. */
static void memlock_is_named(void)
{
    char reason[AIO_REASON_BYTES];
    if (aio_backend_find("uring") == NULL || aio_probe_uring(reason, sizeof reason) != 0) {
        test_skip("no io_uring");
    }
    int rc = test_child(run_locked, NULL);
    if (rc == 77) {
        test_skip("the limit cannot be lowered here");
    }
    check_int(rc, ==, 0);
}

/* A file system that cannot reserve space (ext2) can contain a store, whose file is first written
 * in full. */
static void without_reservation(void)
{
    const char *mount = test_mount_image("unreserved", "ext2", 64);
    if (mount == NULL) {
        test_skip("no loop devices here");
    }
    char directory[700];
    struct stat info;
    struct aio_rates rates = {0};
    snprintf(directory, sizeof directory, "%s/store", mount);
    struct aio_store_path path = {.directory = directory, .bytes = 80 << 20};
    struct aio_store_options options = {.paths = &path, .paths_count = 1, .unwritten = true};
    struct aio_store *store = NULL;
    const struct aio_measure_options how = {.bytes = 8 << 20, .seconds = 0.1};
    test_listen(CORE_LOG_INFO);
    int measured = aio_measure_path(mount, &how, &rates);
    int too_large = aio_store_open(&options, &store);
    path.bytes = 16 << 20;
    int fits = aio_store_open(&options, &store);
    struct stat file = {0};
    char name[750];
    snprintf(name, sizeof name, "%s/tide-extents", directory);
    int there = stat(name, &file);
    int closed = fits == 0 ? aio_store_close(store) : 0;
    int left = stat(directory, &info);
    test_listen_end();
    test_mount_end(mount);
    check_int(measured, ==, 0);
    check_true(rates.write_bytes_per_s > 0);
    check_int(too_large, ==, -ENOSPC);
    check_int(fits, ==, 0);
    check_int(there, ==, 0);
    check_int(file.st_blocks * 512, >=, 16 << 20);
    check_int(closed, ==, 0);
    check_int(left, ==, -1);
    check_contains(test_heard(), "cannot reserve space, so the store's 0.02 GB are written first");
}

static void read_only(void)
{
    const char *mounted = test_mount_memory("read-only", "size=8m");
    struct aio_rates rates = {0};
    struct aio_store *store = NULL;
    if (mounted == NULL) {
        test_skip("no file system of one's own here");
    }
    char directory[700];
    snprintf(directory, sizeof directory, "%s/store", mounted);
    struct aio_store_path path = {.directory = directory, .bytes = 2 << 20};
    struct aio_store_options options = {.paths = &path, .paths_count = 1};
    int made = mkdir(directory, 0700);
    int rc = mount(NULL, mounted, NULL, MS_REMOUNT | MS_RDONLY, "size=8m");
    char said[2][256];
    int measured = aio_measure_path(mounted, NULL, &rates);
    snprintf(said[0], sizeof said[0], "%.255s", core_err_message());
    int opened = aio_store_open(&options, &store);
    snprintf(said[1], sizeof said[1], "%.255s", core_err_message());
    test_mount_end(mounted);
    check_int(made, ==, 0);
    check_int(rc, ==, 0);
    check_int(measured, ==, -EROFS);
    check_contains(said[0], "is on a read-only file system");
    check_int(opened, ==, -EROFS);
    check_contains(said[1], "store is on a read-only file system");
}

/* A store that is too large is refused and leaves nothing; writes to a full drive fail with
 * -ENOSPC. */
static void a_really_full_drive(void)
{
    const char *mount = test_mount_image("mount", "ext4", 64);
    if (mount == NULL) {
        test_skip("no loop devices here");
    }
    char directory[700];
    struct stat info;
    snprintf(directory, sizeof directory, "%s/store", mount);
    struct aio_store_path path = {.directory = directory, .bytes = 80 << 20};
    struct aio_store_options options = {.paths = &path, .paths_count = 1};
    struct aio_store *store = NULL;
    int too_large = aio_store_open(&options, &store);
    char message[256];
    snprintf(message, sizeof message, "%.255s", core_err_message());
    int left = stat(directory, &info);
    path.bytes = 32 << 20;
    int fits = aio_store_open(&options, &store);
    int closed = fits == 0 ? aio_store_close(store) : 0;
    int full[4] = {0};
    size_t n = 0;
    for (const char *const *name = rig_backends(); *name != NULL; name++) {
        struct aio_drive *drive = NULL;
        struct aio_queue *queue = NULL;
        struct core_fence fence;
        uint32_t file = 0;
        char growing[700];
        if (strcmp(*name, "mem") == 0) {
            continue;
        }
        snprintf(growing, sizeof growing, "%s/growing", mount);
        int fd = open(growing, O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600);
        struct aio_drive_options drive_options = {.backend = aio_backend_find(*name)};
        check_int(aio_drive_create(&drive_options, &drive), ==, 0);
        check_int(aio_drive_attach(drive, &(struct aio_file){.fd = fd, .name = "growing"}, &file),
                  ==, 0);
        check_int(aio_queue_open(&drive, 1, &(struct aio_queue_options){0}, &queue), ==, 0);
        unsigned char *memory = rig_memory(4 << 20);
        memset(memory, 1, 4 << 20);
        for (uint64_t at = 0; at < (128 << 20) && full[n] == 0; at += 4 << 20) {
            int rc = aio_queue_write(queue, file, at, memory, 4 << 20, &fence);
            full[n] = rc == 0 ? core_fence_wait(fence, patience_ns) : rc;
        }
        n++;
        aio_queue_close(queue);
        aio_drive_destroy(drive);
        rig_free(memory);
        close(fd);
        unlink(growing);
    }
    test_mount_end(mount);
    check_int(too_large, ==, -ENOSPC);
    check_contains(message, "is full: the store needs 85983232 bytes");
    check_int(left, ==, -1);
    check_int(fits, ==, 0);
    check_int(closed, ==, 0);
    for (size_t i = 0; i < n; i++) {
        check_int(full[i], ==, -ENOSPC);
    }
}

static void on_alarm(int number)
{
    (void)number;
}

static void signals_are_harmless(void)
{
    struct sigaction action = {.sa_handler = on_alarm}; /* no SA_RESTART */
    struct itimerval timer = {.it_interval = {.tv_usec = 1000}, .it_value = {.tv_usec = 1000}};
    sigaction(SIGALRM, &action, NULL);
    for (const char *const *name = rig_backends(); *name != NULL; name++) {
        struct rig rig;
        rig_open(&rig, &(struct rig_options){.backend = *name, .bytes = 2 << 20});
        setitimer(ITIMER_REAL, &timer, NULL);
        for (int i = 0; i < TEST_COUNT(15, 5); i++) {
            there_and_back(&rig, 2 << 20);
        }
        setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
        rig_close(&rig);
    }
}

/* Polled completions work; a drive without poll queues is an error. */
static void completions_are_polled(void)
{
    struct rig rig;
    struct core_fence fence;
    if (aio_backend_find("uring") == NULL || aio_backend_find("uring")->probe(NULL, 0) != 0) {
        test_skip("io_uring does not work here");
    }
    unsigned char *memory = rig_memory(2 << 20);
    rig_fill(memory, 1 << 20, 5);
    rig_open(&rig, &(struct rig_options){
                       .backend = "uring", .bytes = 1 << 20, .drive = {.iopoll = true}});
    check_contains(aio_drive_describe(rig.drive), "iopoll");
    check_int(aio_queue_write(rig.queue, rig.file, 0, memory, 1 << 20, &fence), ==, 0);
    int rc = core_fence_wait(fence, patience_ns);
    if (rc == 0) { /* a first write may take another path than a read */
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
        check_int(aio_queue_read(rig.queue, rig.file, 0, memory + (1 << 20), 1 << 20, &fence), ==,
                  0);
        rc = core_fence_wait(fence, patience_ns);
    }
    if (rc == 0) {
        check_memory(memory, memory + (1 << 20), 1 << 20);
    } else {
        check_int(rc, ==, -EOPNOTSUPP);
        check_contains(core_err_message(), "poll queues");
    }
    test_note("polled completions %s", rc == 0 ? "work here" : "are not to be had here");
    rig_close(&rig);
    rig_free(memory);
}

static void bad_requests_are_refused(void)
{
    static unsigned char memory[8192] __attribute__((aligned(4096)));
    struct rig rig;
    struct core_fence fence;
    struct aio_drive *drive = NULL;
    struct aio_queue *queue = NULL;
    rig_open(&rig, &(struct rig_options){.backend = "threads", .bytes = 1 << 20});
    struct aio_queue *q = rig.queue;
    check_int(aio_queue_read(q, rig.file, 100, memory, 4096, &fence), ==, -EINVAL);
    check_contains(core_err_message(), "offset 100");
    check_int(aio_queue_read(q, rig.file, 0, memory + 64, 4096, &fence), ==, -EINVAL);
    check_int(aio_queue_read(q, rig.file, 0, memory, 100, &fence), ==, -EINVAL);
    check_int(aio_queue_read(q, rig.file, 0, memory, 0, &fence), ==, -EINVAL);
    check_int(aio_queue_read(q, rig.file, 1 << 20, memory, 4096, &fence), ==, -EINVAL);
    check_int(aio_queue_read(q, rig.file, UINT64_MAX - 4095, memory, 4096, &fence), ==, -EINVAL);
    check_int(aio_queue_write(q, 63, 0, memory, 4096, &fence), ==, -EINVAL);
    check_int(aio_queue_write(q, 64, 0, memory, 4096, &fence), ==, -EINVAL);
    check_int(aio_queue_submit(q, AIO_READ, NULL, 0, &fence), ==, -EINVAL);
    check_int(aio_drive_detach(rig.drive, 40), ==, -ENOENT);
    check_int(aio_drive_detach(rig.drive, rig.file), ==, 0);
    check_int(aio_queue_read(q, rig.file, 0, memory, 4096, &fence), ==, -EINVAL);
    check_contains(core_err_message(), "not attached");
    uint32_t index = 0;
    struct aio_file file = {.fd = rig.fd, .name = "again"};
    for (unsigned i = 0; i < AIO_FILES_MAX; i++) {
        check_int(aio_drive_attach(rig.drive, &file, &index), ==, 0);
    }
    check_int(aio_drive_attach(rig.drive, &file, &index), ==, -ENOSPC);
    struct aio_queue *many[AIO_DRIVE_QUEUES_MAX];
    for (unsigned i = 1; i < AIO_DRIVE_QUEUES_MAX; i++) {
        check_int(aio_queue_open(&rig.drive, 1, &(struct aio_queue_options){0}, &many[i]), ==, 0);
    }
    check_int(aio_queue_open(&rig.drive, 1, &(struct aio_queue_options){0}, &queue), ==, -ENOSPC);
    for (unsigned i = 1; i < AIO_DRIVE_QUEUES_MAX; i++) {
        check_int(aio_queue_close(many[i]), ==, 0);
    }
    check_int(aio_queue_open(&rig.drive, 0, &(struct aio_queue_options){0}, &queue), ==, -EINVAL);
    rig_close(&rig);
    struct aio_drive_options options = {.depth = AIO_DEPTH_MAX + 1};
    check_int(aio_drive_create(&options, &drive), ==, -EINVAL);
    options = (struct aio_drive_options){.block_bytes = 1000};
    check_int(aio_drive_create(&options, &drive), ==, -EINVAL);
    options = (struct aio_drive_options){.backend = &aio_mem};
    check_int(aio_drive_create(&options, &drive), ==, -EINVAL);
    check_int(aio_drive_destroy(NULL), ==, 0);
    check_int(aio_queue_close(NULL), ==, 0);
    check_true(aio_backend_find("floppy") == NULL);
    check_true(aio_backend_find("threads") == &aio_threads);
}

TEST_MAIN({"io_uring_forbidden", io_uring_forbidden},
          {"refused_flags_are_dropped", refused_flags_are_dropped},
          {"registered_memory", registered_memory},
          {"ragged_ends_stand_alone", ragged_ends_stand_alone},
          {"memlock_is_named", memlock_is_named}, {"a_really_full_drive", a_really_full_drive},
          {"without_reservation", without_reservation}, {"read_only", read_only},
          {"signals_are_harmless", signals_are_harmless},
          {"completions_are_polled", completions_are_polled},
          {"bad_requests_are_refused", bad_requests_are_refused})
