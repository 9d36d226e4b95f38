/* Tests the life of a store's path: creation, use, inspection, take-over after a crash, and
 * removal. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "aio/files.h"
#include "aio/queue.h"
#include "core/base/err.h"
#include "tests/aio/rig.h"
#include "tests/harness/child.h"
#include "tests/harness/heard.h"
#include "tests/harness/test.h"

enum { MIB = 1 << 20, DATA = 8 * MIB, ALIGN = 2 * MIB };
static const int64_t patience_ns = 30000000000;

static const char *directory(void)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/path", test_directory());
    return path;
}

static struct aio_path_options options_of(void)
{
    return (struct aio_path_options){
        .directory = directory(), .data_bytes = DATA, .align_bytes = ALIGN, .run = 77, .count = 1};
}

/* Checks that the directory does not exist or is empty. */
static void check_nothing_left(void)
{
    DIR *names = opendir(directory());
    unsigned count = 0;
    while (names != NULL && readdir(names) != NULL) {
        count++;
    }
    if (names != NULL) {
        closedir(names);
    }
    check_uint(count, <=, 2);
}

/* Writes the first half of `memory` to the end of the data and reads it into the second half; a
 * write beyond the data is refused. */
static void move(struct aio_path *path, unsigned char *memory)
{
    struct aio_drive *drive = aio_path_drive(path);
    struct aio_queue *queue = NULL;
    struct core_fence fence;
    const uint64_t at = aio_path_data_offset(path);
    check_int(aio_queue_open(&drive, 1, &(struct aio_queue_options){0}, &queue), ==, 0);
    check_int(aio_queue_write(queue, aio_path_file(path), at + DATA - MIB, memory, MIB, &fence), ==,
              0);
    check_int(core_fence_wait(fence, patience_ns), ==, 0);
    check_int(
        aio_queue_read(queue, aio_path_file(path), at + DATA - MIB, memory + MIB, MIB, &fence), ==,
        0);
    check_int(core_fence_wait(fence, patience_ns), ==, 0);
    check_memory(memory, memory + MIB, MIB);
    check_int(aio_queue_write(queue, aio_path_file(path), at + DATA, memory, MIB, &fence), ==,
              -EINVAL);
    check_int(aio_queue_close(queue), ==, 0);
}

static int told(void *user, const char *where, uint64_t done_bytes, uint64_t total_bytes)
{
    uint64_t *last = user;
    check_string(where, directory());
    check_uint(done_bytes, >, *last);
    check_uint(total_bytes, ==, DATA);
    *last = done_bytes;
    return 0;
}

/* A path's file has a valid header and the data; a path in memory has no header. Nothing
 * is left. */
static void made_served_removed(void)
{
    struct aio_path_options options = options_of();
    struct aio_path *path = NULL;
    struct stat info;
    struct aio_header header;
    char name[600];
    uint64_t last = 0;
    unsigned char *memory = rig_memory(2 * MIB);
    rig_fill(memory, MIB, 3);
    options.progress = told;
    options.user = &last;
    check_int(aio_path_open(&options, &path), ==, 0);
    check_uint(last, ==, DATA);
    check_uint(aio_path_data_offset(path), ==, ALIGN);
    snprintf(name, sizeof name, "%s/%s", directory(), AIO_PATH_FILE_NAME);
    check_int(stat(name, &info), ==, 0);
    check_uint((uint64_t)info.st_size, ==, DATA + ALIGN);
    FILE *file = fopen(name, "r");
    check_true(file != NULL && fread(&header, sizeof header, 1, file) == 1);
    fclose(file);
    check_int(aio_header_check(&header, name), ==, 0);
    check_uint(header.run, ==, 77);
    check_uint(header.formatted, ==, 1);
    move(path, memory);
    check_int(aio_path_close(path), ==, 0);
    check_nothing_left();
    struct aio_mem_disk *disk = NULL;
    check_int(aio_mem_create(DATA, &disk), ==, 0);
    options = (struct aio_path_options){
        .disk = disk, .data_bytes = DATA, .align_bytes = ALIGN, .count = 1};
    check_int(aio_path_open(&options, &path), ==, 0);
    check_uint(aio_path_data_offset(path), ==, 0);
    move(path, memory);
    check_int(aio_path_close(path), ==, 0);
    check_int(aio_path_close(NULL), ==, 0);
    aio_mem_destroy(disk);
    rig_free(memory);
}

static void busy_while_used(void)
{
    struct aio_path_options options = options_of();
    struct aio_path *path = NULL;
    struct aio_path *other = NULL;
    check_int(aio_path_open(&options, &path), ==, 0);
    check_int(aio_path_open(&options, &other), ==, -EBUSY);
    check_contains(core_err_message(), directory());
    check_true(other == NULL);
    check_int(aio_path_close(path), ==, 0);
}

static int die_with_a_path(void *argument)
{
    struct aio_path_options options = options_of();
    struct aio_path *path = NULL;
    (void)argument;
    int rc = aio_path_open(&options, &path);
    return kill(getpid(), rc == 0 ? SIGKILL : SIGTERM);
}

/* Leaves the file of a killed run. The kernel releases the lock a little later. */
static void leave_behind(void)
{
    struct aio_look look = {.in_use = true};
    check_int(test_child(die_with_a_path, NULL), ==, 256 + SIGKILL);
    for (int i = 0; i < 3000 && look.in_use; i++) {
        check_int(aio_look(directory(), &look), ==, 0);
        usleep(look.in_use ? 10000 : 0);
    }
    check_true(!look.in_use);
}

static void taken_over_after_a_crash(void)
{
    struct aio_path_options options = options_of();
    struct aio_path *path = NULL;
    unsigned char *memory = rig_memory(2 * MIB);
    rig_fill(memory, MIB, 4);
    leave_behind();
    options.run = 78;
    test_listen(CORE_LOG_INFO);
    check_int(aio_path_open(&options, &path), ==, 0);
    test_listen_end();
    check_contains(test_heard(), "took over ");
    move(path, memory);
    check_int(aio_path_close(path), ==, 0);
    check_nothing_left();
    rig_free(memory);
}

static const char *file_name(void)
{
    static char name[600];
    snprintf(name, sizeof name, "%s/%s", directory(), AIO_PATH_FILE_NAME);
    return name;
}

/* aio_look reports the owner and whether a run uses the path, without disturbing runs. */
static void looked_at(void)
{
    struct aio_path_options options = options_of();
    struct aio_path *path = NULL;
    struct aio_look look;
    unsigned char *memory = rig_memory(2 * MIB);
    rig_fill(memory, MIB, 5);
    options.index = 1;
    options.count = 3;
    check_int(aio_look(directory(), &look), ==, -ENOENT);
    check_int(aio_path_open(&options, &path), ==, 0);
    check_int(aio_look(directory(), &look), ==, 0);
    check_true(look.in_use);
    check_uint(look.run, ==, 77);
    check_uint(look.process, ==, (uint64_t)getpid());
    check_uint(look.bytes, ==, DATA + ALIGN);
    check_uint(look.path, ==, 1);
    check_uint(look.paths, ==, 3);
    move(path, memory);
    check_int(aio_path_discard(directory()), ==, -EBUSY);
    check_int(aio_path_close(path), ==, 0);
    check_int(aio_look(directory(), &look), ==, -ENOENT);
    leave_behind();
    check_int(aio_look(directory(), &look), ==, 0);
    check_true(!look.in_use && look.process != (uint64_t)getpid());
    test_listen(CORE_LOG_INFO);
    check_int(aio_path_open(&options, &path), ==, 0);
    test_listen_end();
    check_contains(test_heard(), "took over ");
    check_int(aio_path_close(path), ==, 0);
    rig_free(memory);
}

static void expect_wrong(const char *message)
{
    struct aio_look look;
    check_int(aio_look(directory(), &look), ==, -EBADMSG);
    check_contains(core_err_message(), file_name());
    check_contains(core_err_message(), message);
}

static void change(off_t at)
{
    unsigned char byte = 0;
    const int fd = open(file_name(), O_RDWR);
    check_true(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    byte ^= 1;
    check_true(pwrite(fd, &byte, 1, at) == 1);
    close(fd);
}

/* A wrong file is reported with the reason; a locked, incomplete file counts as being created. */
static void looked_at_and_wrong(void)
{
    leave_behind();
    check_int(truncate(file_name(), 3 * MIB), ==, 0);
    expect_wrong("is incomplete: its run ended at 3145728 of 10485760 bytes");
    const int fd = open(file_name(), O_RDONLY);
    check_true(fd >= 0 && flock(fd, LOCK_EX) == 0);
    expect_wrong("is being created: a running process is at 3145728 of 10485760 bytes");
    close(fd);
    check_int(truncate(file_name(), DATA + ALIGN + 1), ==, 0);
    expect_wrong("has 10485761 bytes, but its header says 10485760");
    check_int(truncate(file_name(), DATA + ALIGN), ==, 0);
    change(40);
    expect_wrong("the header of extent file");
    change(40);
    change(8);
    expect_wrong("version");
    change(8);
    change(0);
    expect_wrong("is not an extent file");
    change(0);
    struct aio_look look;
    check_int(aio_look(directory(), &look), ==, 0);
    check_int(truncate(file_name(), 100), ==, 0);
    expect_wrong("is not an extent file");
    check_int(truncate(file_name(), 0), ==, 0);
    expect_wrong("is incomplete: its run ended at 0 bytes");
    check_int(unlink(file_name()), ==, 0);
    check_int(symlink("/dev/null", file_name()), ==, 0);
    expect_wrong("is a symbolic link");
    check_int(unlink(file_name()), ==, 0);
    check_int(mkdir(file_name(), 0700), ==, 0);
    expect_wrong("is not a regular file");
    check_int(rmdir(file_name()), ==, 0);
}

/* The file of a dead run is removed; a foreign file stays. */
static void discarded(void)
{
    struct aio_look look;
    leave_behind();
    check_int(aio_path_discard(directory()), ==, 0);
    check_nothing_left();
    check_int(aio_path_discard(directory()), ==, -ENOENT);
    leave_behind();
    const int child = open(file_name(), O_RDONLY);
    check_true(child >= 0 && flock(child, LOCK_EX) == 0);
    check_int(aio_path_discard(directory()), ==, 0);
    check_nothing_left();
    close(child);
    leave_behind();
    change(0);
    check_int(aio_path_discard(directory()), ==, -EBADMSG);
    check_contains(core_err_message(), "is not touched");
    change(0);
    check_int(aio_look(directory(), &look), ==, 0);
    check_int(aio_path_discard(directory()), ==, 0);
    check_nothing_left();
}

static int stop(void *user, const char *where, uint64_t done_bytes, uint64_t total_bytes)
{
    (void)user;
    (void)where;
    return done_bytes < total_bytes;
}

/* Interrupted or refused creation reports an error and leaves nothing. */
static void stopped_or_refused(void)
{
    struct aio_path_options options = options_of();
    struct aio_path *path = NULL;
    options.data_bytes = 256 * (uint64_t)MIB;
    options.progress = stop;
    check_int(aio_path_open(&options, &path), ==, -ECANCELED);
    check_contains(core_err_message(), "stopped while its file was being written");
    check_nothing_left();
    options = options_of();
    options.data_bytes = (uint64_t)1 << 60;
    const int rc = aio_path_open(&options, &path);
    check_true(rc == -ENOSPC || rc == -EFBIG);
    check_contains(core_err_message(), directory());
    check_nothing_left();
    options = options_of();
    options.backend = "floppy";
    check_int(aio_path_open(&options, &path), ==, -EINVAL);
    check_contains(core_err_message(), "floppy");
    check_nothing_left();
    check_true(path == NULL);
}

TEST_MAIN({"made_served_removed", made_served_removed}, {"busy_while_used", busy_while_used},
          {"taken_over_after_a_crash", taken_over_after_a_crash}, {"looked_at", looked_at},
          {"looked_at_and_wrong", looked_at_and_wrong}, {"discarded", discarded},
          {"stopped_or_refused", stopped_or_refused})
