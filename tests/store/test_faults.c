/* test_faults.c: a failing save leaves the old checkpoint or a complete new one. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/base/err.h"
#include "offload/store/checkpoint_remove.h"
#include "tests/aio/fault.h"
#include "tests/harness/heard.h"
#include "tests/harness/test.h"
#include "tests/harness/wrap.h"
#include "tests/store/case.h"

/* ---- the n-th system request fails ---- */

/* Counts down to the request that fails; 0: none. Relaxed: any request may fail. */
static _Atomic int countdown;
static _Atomic int hits;
static _Atomic bool inside;
static int failure = EIO;

static void enter(bool now)
{
    atomic_store_explicit(&inside, now, memory_order_relaxed);
}

static bool due(void)
{
    if (!atomic_load_explicit(&inside, memory_order_relaxed) ||
        atomic_load_explicit(&countdown, memory_order_relaxed) <= 0 ||
        atomic_fetch_sub_explicit(&countdown, 1, memory_order_relaxed) != 1) {
        return false;
    }
    atomic_fetch_add_explicit(&hits, 1, memory_order_relaxed);
    errno = failure;
    return true;
}

WRAP_OPEN(open)
WRAP_OPEN(open64)
WRAP_OPENAT(openat)
WRAP_OPENAT(openat64)
WRAP(int, mkdir, -1, (const char *path, mode_t mode), (path, mode))
static bool syncs_fail;
int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    if (syncs_fail) {
        errno = EIO;
    }
    return syncs_fail || due() ? -1 : __real_fsync(fd);
}
WRAP(int, fdatasync, -1, (int fd), (fd))
WRAP(int, rename, -1, (const char *from, const char *to), (from, to))
WRAP(int, renameat2, -1, (int a, const char *from, int b, const char *to, unsigned flags),
     (a, from, b, to, flags))
WRAP(int, fallocate, -1, (int fd, int mode, off_t at, off_t bytes), (fd, mode, at, bytes))
WRAP(int, fallocate64, -1, (int fd, int mode, off64_t at, off64_t bytes), (fd, mode, at, bytes))
WRAP(ssize_t, pwrite, -1, (int fd, const void *from, size_t bytes, off_t at), (fd, from, bytes, at))
WRAP(ssize_t, pwrite64, -1, (int fd, const void *from, size_t bytes, off64_t at),
     (fd, from, bytes, at))
WRAP(ssize_t, write, -1, (int fd, const void *from, size_t bytes), (fd, from, bytes))
WRAP(ssize_t, pread, -1, (int fd, void *to, size_t bytes, off_t at), (fd, to, bytes, at))
WRAP(ssize_t, pread64, -1, (int fd, void *to, size_t bytes, off64_t at), (fd, to, bytes, at))
WRAP(int, flock, -1, (int fd, int how), (fd, how))
WRAP(void *, opendir, NULL, (const char *path), (path))
WRAP(void *, malloc, NULL, (size_t bytes), (bytes))
WRAP(void *, calloc, NULL, (size_t count, size_t bytes), (count, bytes))
WRAP(int, posix_memalign, ENOMEM, (void **out, size_t align, size_t bytes), (out, align, bytes))

WRAP(int, fcntl, -1, (int fd, int command, long argument), (fd, command, argument))
WRAP(int, fcntl64, -1, (int fd, int command, long argument), (fd, command, argument))

/* Checks that listed checkpoints are complete: the old one, and after a success the new one. */
static void check_outcome(const struct store_shelf *shelf, int rc, const char *what, uint64_t n)
{
    const char *directory = store_shelf_directory(shelf);
    uint64_t *steps = NULL;
    size_t count = 0;
    check_int(store_shelf_list(directory, &steps, &count), ==, 0);
    const bool known = count >= 1 && count <= 2 && steps[0] == 1 && (count == 1 || steps[1] == 2);
    if (!known || (rc == 0 && count != 2)) {
        test_fail(__FILE__, __LINE__, "%s %" PRIu64 ": %d, and the newest of %zu is %" PRIu64, what,
                  n, rc, count, count > 0 ? steps[count - 1] : 0);
    }
    for (size_t i = 0; i < count; i++) {
        if (case_compare(directory, steps[i]) != 0) {
            test_fail(__FILE__, __LINE__, "%s %" PRIu64 ": %d, and checkpoint %" PRIu64 ": %s",
                      what, n, rc, steps[i], core_err_message());
        }
    }
    free(steps);
}

static void make_spare(struct store_shelf *shelf)
{
    char text[700];
    snprintf(text, sizeof text, "%s/checkpoint-0.spare", store_shelf_directory(shelf));
    store_shelf_spare_drop(shelf);
    if (store_checkpoint_is_marked(text)) { /* the removal of the spare failed */
        store_checkpoint_remove(text);
    }
    check_int(access(text, F_OK), !=, 0);
    check_int(case_write(shelf, 0, 0, NULL), ==, 0);
    store_shelf_rotate(shelf, 1, 1);
    check_true(store_shelf_spare(shelf, text, sizeof text) != NULL);
}

static void every_request(int with, bool spare)
{
    struct store_shelf *shelf = case_shelf_in_memory();
    unsigned failed = 0;
    int n = 1;
    case_shrink(true);
    check_int(case_write(shelf, 1, 0, NULL), ==, 0);
    case_guard = enter;
    for (; n < 2000; n += TEST_STRIDE(3)) {
        failure = with;
        hits = 0;
        if (spare) {
            make_spare(shelf);
        }
        countdown = n;
        int rc = case_write(shelf, 2, 0, NULL);
        countdown = 0;
        failed += rc != 0;
        check_true(rc == 0 || core_err_message()[0] != '\0');
        check_outcome(shelf, rc, "request", (uint64_t)n);
        store_shelf_remove(shelf, 2);
        if (hits == 0) {
            check_int(rc, ==, 0);
            break;
        }
    }
    case_guard = NULL;
    check_int(n, >, 60);
    check_int(failed, >, 40 / TEST_STRIDE(3));
    test_note("about %d requests, %u failures ended the checkpoint", n - 1, failed);
    store_shelf_close(shelf);
}

static void requests_fail(void)
{
    every_request(EIO, false);
}

/* A request fails while a checkpoint overwrites the files of an older checkpoint. */
static void the_disk_is_full(void)
{
    every_request(ENOSPC, true);
}

/* Files whose old name a crash may bring back are not overwritten. */
static void a_name_that_stays(void)
{
    char text[700];
    struct store_shelf *shelf = case_shelf_in_memory();
    case_shrink(true);
    check_int(case_write(shelf, 1, 0, NULL), ==, 0);
    check_int(case_write(shelf, 2, 0, NULL), ==, 0);
    syncs_fail = true;
    test_listen(CORE_LOG_WARN);
    store_shelf_rotate(shelf, 2, 1);
    check_contains(test_heard(), "checkpoint-1 is not removed completely, but by the next run: ");
    test_listen_end();
    syncs_fail = false;
    check_true(store_shelf_spare(shelf, text, sizeof text) == NULL);
    snprintf(text, sizeof text, "%s/checkpoint-1.spare", store_shelf_directory(shelf));
    check_true(access(text, F_OK) != 0);
    check_uint(case_newest(store_shelf_directory(shelf)), ==, 2);
    check_int(case_compare(store_shelf_directory(shelf), 2), ==, 0);
    store_shelf_close(shelf);
}

/* ---- faults of the drive ---- */

static struct aio_fault drive_of(uint64_t seed)
{
    return (struct aio_fault){.inner = &aio_threads, .seed = seed, .rules_count = 1};
}

/* Operations of the drive fail from the n-th on, or only the n-th. */
static void operations_fail(void)
{
    struct store_shelf *shelf = case_shelf_in_memory();
    case_shrink(true);
    check_int(case_write(shelf, 1, 0, NULL), ==, 0);
    for (uint64_t n = 1;; n++) {
        for (int once = 0; once < 2; once++) {
            struct aio_fault fault = drive_of(n);
            fault.rules[0] = (struct aio_fault_rule){
                .kind = AIO_FAULT_ERROR, .from = n, .count = once ? 1 : AIO_FAULT_FOREVER};
            int rc = case_write(shelf, 2, 0, aio_fault_recipe(&fault));
            check_outcome(shelf, rc, "operation", n);
            store_shelf_remove(shelf, 2);
            if (once == 0 && fault.hits[AIO_FAULT_ERROR] == 0) {
                check_int(rc, ==, 0);
                check_uint(n, >, 10);
                store_shelf_close(shelf);
                return;
            }
        }
    }
}

/* A drive that stalls gives an error in time. */
static void drives_stall(void)
{
    struct store_shelf *shelf = case_shelf();
    struct aio_fault good = drive_of(1);
    good.rules_count = 0;
    case_shrink(true);
    check_int(case_write(shelf, 1, 0, NULL), ==, 0);
    check_int(case_write(shelf, 2, 0, aio_fault_recipe(&good)), ==, 0);
    store_shelf_remove(shelf, 2);
    check_uint(good.ops, >, 4);
    case_limit_ns = 50000000;
    for (uint64_t n = 1; n <= good.ops; n++) {
        struct aio_fault fault = drive_of(n);
        fault.rules[0] = (struct aio_fault_rule){.kind = AIO_FAULT_STALLED, .from = n};
        int rc = case_write(shelf, 2, 0, aio_fault_recipe(&fault));
        check_uint(fault.hits[AIO_FAULT_STALLED], ==, 1);
        check_int(rc, ==, -ETIMEDOUT);
        check_contains(core_err_message(), store_shelf_directory(shelf));
        check_outcome(shelf, rc, "operation", n);
        store_shelf_remove(shelf, 2);
    }
    case_limit_ns = 0;
    store_shelf_close(shelf);
}

/* A checkpoint with wrong bytes on the drive gets no name. */
static void drives_lie(void)
{
    static const enum aio_fault_kind kinds[] = {AIO_FAULT_LOST, AIO_FAULT_TORN,
                                                AIO_FAULT_MISDIRECTED, AIO_FAULT_CORRUPT};
    const uint64_t cases = test_full() ? 2000 : TEST_COUNT(300, TEST_RACES ? 32 : 60);
    struct store_shelf *shelf = case_shelf_in_memory();
    uint64_t lied = 0;
    uint64_t refused = 0;
    case_shrink(true);
    check_int(case_write(shelf, 1, 0, NULL), ==, 0);
    for (uint64_t seed = 1; seed <= cases; seed++) {
        struct aio_fault fault = drive_of(seed);
        fault.rules[0] = (struct aio_fault_rule){.kind = kinds[seed % 4],
                                                 .from = 1 + seed / 4 % 24,
                                                 .count = 1 + seed % 3,
                                                 .writes_only = seed % 5 != 0,
                                                 .reads_only = seed % 5 == 0};
        int rc = case_write(shelf, 2, 0, aio_fault_recipe(&fault));
        lied += fault.hits[kinds[seed % 4]] > 0;
        refused += rc != 0;
        check_outcome(shelf, rc, "seed", seed);
        store_shelf_remove(shelf, 2);
    }
    check_uint(lied, >, cases / 4);
    check_uint(refused, >, cases / 8);
    test_note("%" PRIu64 " of %" PRIu64 " seeds lied, %" PRIu64 " checkpoints were refused", lied,
              cases, refused);
    store_shelf_close(shelf);
}

/* ---- kill -9 ---- */

static void write_for_ever(const char *directory, uint64_t step)
{
    struct store_shelf *shelf = NULL;
    if (store_shelf_open(directory, &shelf) != 0) {
        _exit(1);
    }
    for (;; step++) {
        if (case_write(shelf, step, 2, NULL) != 0) {
            _exit(2);
        }
    }
}

/* Checks that the next run removes what a killed run left. */
static void check_nothing_left(const char *directory)
{
    struct store_shelf *shelf = NULL;
    check_int(store_shelf_open(directory, &shelf), ==, 0);
    store_shelf_close(shelf);
    DIR *dir = opendir(directory);
    check_true(dir != NULL);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (strncmp(entry->d_name, "checkpoint-", 11) == 0 && strchr(entry->d_name, '.') != NULL) {
            test_fail(__FILE__, __LINE__, "%s is left", entry->d_name);
        }
    }
    closedir(dir);
}

static void wait_for_checkpoint(pid_t child, const char *directory, uint64_t step)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    char path[700];
    store_shelf_path(directory, step, path, sizeof path);
    while (access(path, F_OK) != 0) {
        check_int(waitpid(child, NULL, WNOHANG), ==, 0);
        nanosleep(&pause, NULL);
    }
}

/* After a kill, the checkpoints are complete, and the next run continues after the newest. */
static void killed(void)
{
    const int rounds = test_full() ? 200 : TEST_COUNT(50, TEST_RACES ? 12 : 20);
    struct store_shelf *shelf = case_shelf_in_memory();
    char directory[600];
    uint64_t newest = 1;
    uint64_t state = 99;
    case_shrink(true);
    snprintf(directory, sizeof directory, "%s", store_shelf_directory(shelf));
    check_int(case_write(shelf, 1, 0, NULL), ==, 0);
    store_shelf_close(shelf);
    for (int round = 0; round < rounds; round++) {
        uint64_t *steps = NULL;
        size_t count = 0;
        int status = 0;
        fflush(stdout);
        const pid_t child = fork();
        check_true(child >= 0);
        if (child == 0) {
            write_for_ever(directory, newest + 1);
        }
        const struct timespec wait = {.tv_nsec = (long)test_random(&state, 150000000)};
        /* on a busy machine, a child could be killed before it saves */
        if (round % 4 == 0) {
            wait_for_checkpoint(child, directory, newest + 1);
        }
        nanosleep(&wait, NULL);
        kill(child, SIGKILL);
        check_int(waitpid(child, &status, 0), ==, child);
        check_true(WIFSIGNALED(status));
        check_int(store_shelf_list(directory, &steps, &count), ==, 0);
        check_uint(count, >=, 1);
        check_uint(steps[count - 1], >=, newest);
        newest = steps[count - 1];
        for (size_t i = 0; i < count; i++) {
            check_int(case_compare(directory, steps[i]), ==, 0);
        }
        free(steps);
        check_nothing_left(directory);
    }
    test_note("%d kills, %" PRIu64 " checkpoints", rounds, newest);
    check_uint(newest, >, 5);
}

TEST_MAIN({"requests_fail", requests_fail}, {"the_disk_is_full", the_disk_is_full},
          {"a_name_that_stays", a_name_that_stays}, {"operations_fail", operations_fail},
          {"drives_lie", drives_lie}, {"drives_stall", drives_stall}, {"killed", killed})
