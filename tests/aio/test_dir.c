/* test_dir.c: a store's directory belongs to one run; links, foreign files and remains of a crash
 * are handled. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "aio/files.h"
#include "aio/store.h"
#include "core/base/err.h"
#include "core/base/rng.h"
#include "tests/aio/rig.h"
#include "tests/harness/child.h"
#include "tests/harness/heard.h"
#include "tests/harness/refuse_syscall.h"
#include "tests/harness/test.h"

enum { STORE_BYTES = 4 << 20 };

/* Returns "<test directory>/<name>" in a buffer that later calls reuse. */
static const char *place(const char *name)
{
    static char paths[64][512];
    static unsigned turn;
    char *path = paths[turn++ % 64];
    snprintf(path, 512, "%s/%s", test_directory(), name);
    return path;
}

static int open_store(const char *directory, struct aio_store **out)
{
    struct aio_store_path path = {.directory = directory, .bytes = STORE_BYTES};
    struct aio_store_options options = {.paths = &path, .paths_count = 1, .run = 5};
    return aio_store_open(&options, out);
}

static void expect(const char *directory, int code, const char *part)
{
    struct aio_store *store = NULL;
    check_int(open_store(directory, &store), ==, code);
    check_contains(core_err_message(), part);
}

/* A missing directory is created, and removed at the end; an existing directory is kept. */
static void empty_after_a_clean_end(void)
{
    struct aio_store *store = NULL;
    struct stat info;
    const char *path = place("made");
    test_listen(CORE_LOG_INFO);
    check_int(open_store(path, &store), ==, 0);
    test_listen_end();
    check_uint(test_heard_lines("took over "), ==, 0);
    check_int(stat(path, &info), ==, 0);
    check_uint(info.st_mode & 07777, ==, 0700);
    check_int(stat(place("made/" AIO_PATH_FILE_NAME), &info), ==, 0);
    check_uint(info.st_mode & 07777, ==, 0600);
    check_int(aio_store_close(store), ==, 0);
    check_int(stat(path, &info), ==, -1);

    check_int(mkdir(path, 0700), ==, 0);
    check_int(open_store(path, &store), ==, 0);
    check_int(aio_store_close(store), ==, 0);
    check_int(rmdir(path), ==, 0); /* it was empty */
}

/* Links, wrong modes, wrong owners and missing directories are refused; no link is followed. */
static void what_is_not_ours_is_refused(void)
{
    struct stat info;
    check_int(mkdir(place("target"), 0700), ==, 0);
    check_int(symlink(place("target"), place("link")), ==, 0);
    expect(place("link"), -ELOOP, "symbolic link");
    expect(place("link/below"), -ELOOP, "/link is a symbolic link");
    expect(place("link/below"), -ELOOP, "/link')");
    check_int(stat(place("target/below"), &info), ==, -1);
    check_int(mkdir(place("open"), 0700), ==, 0);
    for (mode_t mode = 0001; mode <= 0077; mode++) {
        check_int(chmod(place("open"), 0700 | mode), ==, 0);
        expect(place("open"), -EPERM, "chmod 700");
    }
    check_int(chmod(place("open"), 0777), ==, 0);
    expect(place("open/below"), -EPERM, "everybody can write to ");
    check_contains(core_err_message(), "chmod o-w '");
    check_int(aio_dir_check_parent(place("open")), ==, -EPERM);
    check_int(chmod(place("open"), 01777), ==, 0);
    check_int(aio_dir_check_parent(place("open")), ==, 0);
    check_int(aio_dir_check_parent(place("nowhere")), ==, 0);
    check_int(aio_dir_check_parent(place("link")), ==, -ELOOP);
    check_int(aio_dir_check_parent(place("link/below")), ==, -ELOOP);
    expect(place("nowhere/below"), -ENOENT, "nowhere");
    expect("", -EINVAL, "must have 1 to");
    expect(test_file("plain", "x", 1), -ENOTDIR, "plain");
    check_int(aio_dir_look(place("link")), ==, -ELOOP);
    int fd = aio_dir_look(place("target"));
    check_int(fd, >=, 0);
    close(fd);
    if (geteuid() == 0) {
        check_int(chown(place("target"), 65534, 65534), ==, 0);
        expect(place("target"), -EPERM, "belongs to user 65534");
        check_int(chown(place("target"), 0, 0), ==, 0);
    } else {
        test_note("foreign owners are not tested: not root");
    }
    check_int(unlink(place("link")), ==, 0);
    check_int(rmdir(place("target")), ==, 0);
    check_int(rmdir(place("open")), ==, 0);
}

/* Without openat2, directories are opened component by component, and the same links
 * are refused. */
static void without_openat2(void)
{
    test_refuse_syscall(SYS_openat2, ENOSYS);
    what_is_not_ours_is_refused();
    expect(place("plain/below"), -ENOTDIR, "plain");
    test_refuse_syscall(SYS_openat2, 0);
    check_uint(test_refused_syscalls(), >, 63);
}

/* If a filter forbids openat2, a store works, and links are refused. */
static void openat2_is_forbidden(void)
{
    char before[4096];
    test_refuse_syscall(SYS_openat2, EPERM);
    empty_after_a_clean_end();
    check_true(getcwd(before, sizeof before) != NULL);
    check_int(mkdir(place("a"), 0700), ==, 0);
    check_int(mkdir(place("a/b"), 0700), ==, 0);
    check_int(symlink("b", place("a/link")), ==, 0);
    check_int(chdir(place("a")), ==, 0);
    struct stat found;
    struct stat wanted;
    static const char *const names[] = {"b", "./b", "b/", ".//b//", "../a/b"};
    check_int(stat("b", &wanted), ==, 0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const int fd = aio_dir_look(names[i]);
        check_int(fd, >=, 0);
        check_int(fstat(fd, &found), ==, 0);
        check_true(found.st_ino == wanted.st_ino && found.st_dev == wanted.st_dev);
        close(fd);
    }
    check_int(aio_dir_look("link"), ==, -ELOOP);
    check_int(aio_dir_look("link/."), ==, -ELOOP);
    check_int(aio_dir_look("none"), ==, -ENOENT);
    check_int(aio_dir_look("none/below"), ==, -ENOENT);
    const int root = aio_dir_look("/");
    check_int(root, >=, 0);
    check_int(fstat(root, &found), ==, 0);
    check_int(stat("/", &wanted), ==, 0);
    check_uint(found.st_ino, ==, wanted.st_ino);
    close(root);
    check_int(chdir(before), ==, 0);
    test_refuse_syscall(SYS_openat2, 0);
}

/* Foreign files with the name of the store's file are refused and stay. */
static void foreign_files_are_not_touched(void)
{
    const char *file = place("foreign/" AIO_PATH_FILE_NAME);
    char text[16] = "";
    check_int(mkdir(place("foreign"), 0700), ==, 0);
    /* a text file */
    FILE *stream = fopen(file, "w");
    fputs("my thesis", stream);
    fclose(stream);
    check_int(chmod(file, 0600), ==, 0);
    expect(place("foreign"), -EBADMSG, "another file has this name and is not touched");
    stream = fopen(file, "r");
    check_true(fgets(text, sizeof text, stream) != NULL);
    fclose(stream);
    check_string(text, "my thesis");
    /* files that others may read, or with several names */
    check_int(truncate(file, 0), ==, 0);
    check_int(chmod(file, 0644), ==, 0);
    expect(place("foreign"), -EPERM, "others may open it");
    check_int(chmod(file, 0600), ==, 0);
    check_int(link(file, place("second")), ==, 0);
    expect(place("foreign"), -EPERM, "several names");
    check_int(unlink(place("second")), ==, 0);
    /* a file that a running process has locked */
    int fd = open(file, O_RDWR);
    check_int(flock(fd, LOCK_EX), ==, 0);
    expect(place("foreign"), -EPERM, "running process");
    close(fd);
    check_int(unlink(file), ==, 0);
    /* not regular files */
    check_int(symlink(place("plain"), file), ==, 0);
    expect(place("foreign"), -ELOOP, "symbolic link");
    check_int(unlink(file), ==, 0);
    check_int(mkdir(file, 0700), ==, 0);
    expect(place("foreign"), -EISDIR, "not touched");
    check_int(rmdir(file), ==, 0);
    check_int(mkfifo(file, 0600), ==, 0);
    expect(place("foreign"), -EPERM, "not a regular file");
    check_int(unlink(file), ==, 0);
}

static void a_directory_in_use_is_busy(void)
{
    struct aio_store *first = NULL;
    check_int(open_store(place("busy"), &first), ==, 0);
    for (int i = 0; i < 10; i++) {
        expect(place("busy"), -EBUSY, "in use by another run; wait for its end");
    }
    check_int(aio_store_close(first), ==, 0);
}

/* A replaced directory or file stays, and closing reports it. */
static void what_was_swapped_is_not_removed(void)
{
    struct aio_store *store = NULL;
    struct stat info;
    check_int(open_store(place("swapped"), &store), ==, 0);
    check_int(rename(place("swapped"), place("moved")), ==, 0);
    check_int(mkdir(place("victim"), 0700), ==, 0);
    check_int(symlink(place("victim"), place("swapped")), ==, 0);
    check_int(aio_store_close(store), ==, -ESTALE);
    check_contains(core_err_message(), "no longer the directory");
    check_int(stat(place("victim"), &info), ==, 0);
    /* removed through the descriptor */
    check_int(stat(place("moved/" AIO_PATH_FILE_NAME), &info), ==, -1);
    check_int(unlink(place("swapped")), ==, 0);

    check_int(open_store(place("inside"), &store), ==, 0);
    check_int(rename(place("inside/" AIO_PATH_FILE_NAME), place("inside/away")), ==, 0);
    FILE *stream = fopen(place("inside/" AIO_PATH_FILE_NAME), "w");
    fclose(stream);
    check_int(aio_store_close(store), ==, -ESTALE);
    check_contains(core_err_message(), "no longer the file");
    check_int(stat(place("inside/" AIO_PATH_FILE_NAME), &info), ==, 0);
}

static int run_until_killed(const char *path)
{
    struct aio_store *store = NULL;
    struct aio_queue *queue = NULL;
    struct aio_extent *extent = NULL;
    struct core_fence fence;
    void *memory = NULL;
    if (open_store(path, &store) != 0 || posix_memalign(&memory, 4096, 1 << 20) != 0 ||
        aio_extent_alloc(store, 1 << 20, 1, &extent) != 0 ||
        aio_store_queue(store, &(struct aio_queue_options){0}, &queue) != 0) {
        return 3;
    }
    memset(memory, 1, 1 << 20);
    while (aio_store_write(queue, extent, 0, memory, 1 << 20, &fence) == 0 &&
           core_fence_wait(fence, -1) == 0) {
    }
    return 4;
}

/* The next run takes over the store of a killed run and leaves the directory empty. */
static void killed_runs_are_cleaned_up(void)
{
    const char *path = place("killed");
    unsigned taken_over = 0;
    check_int(mkdir(path, 0700), ==, 0);
    for (uint64_t round = 0; round < (TEST_SLOW ? 6 : 20); round++) {
        pid_t child = fork();
        if (child == 0) {
            _exit(run_until_killed(path));
        }
        usleep(core_rng_philox(1121, 0, round).word[0] % (TEST_SLOW ? 60000 : 20000));
        check_int(kill(child, SIGKILL), ==, 0);
        int status = 0;
        check_int(waitpid(child, &status, 0), ==, child);
        check_true(WIFSIGNALED(status));
        struct aio_store *store = NULL;
        test_listen(CORE_LOG_INFO);
        int rc = open_store(path, &store);
        test_listen_end();
        if (rc != 0) {
            test_fail(__FILE__, __LINE__, "round %d: %s", (int)round, core_err_message());
        }
        taken_over += test_heard_lines("took over ");
        check_int(aio_store_close(store), ==, 0);
    }
    test_note("%u files were taken over", taken_over);
    check_uint(taken_over, >, 0);
    check_int(rmdir(path), ==, 0);
}

/* Opens the store, forks a child that lives until `release` is closed, and waits for a signal;
 * returns only if the store cannot be opened. */
static int fork_and_wait(const char *path, int said, int release)
{
    struct aio_store *store = NULL;
    if (open_store(path, &store) != 0) {
        return 3;
    }
    const pid_t child = fork();
    if (child == 0) {
        char byte = 0;
        (void)!write(said, &byte, 1);
        (void)!read(release, &byte, 1); /* until the test closes the pipe */
        _exit(0);
    }
    for (;;) {
        pause();
    }
}

/* A child of a killed run does not keep the directory or disturb the next run. */
static void a_forked_child_keeps_nothing(void)
{
    const char *path = place("forked");
    int said[2];
    int release[2];
    char byte = 0;
    struct stat info;
    check_true(pipe(said) == 0 && pipe(release) == 0);
    const pid_t parent = fork();
    if (parent == 0) {
        close(release[1]);
        _exit(fork_and_wait(path, said[1], release[0]));
    }
    check_int(read(said[0], &byte, 1), ==, 1);
    expect(path, -EBUSY, "in use by another run; wait for its end");
    check_int(kill(parent, SIGKILL), ==, 0);
    check_int(waitpid(parent, NULL, 0), ==, parent);
    for (int i = 0; i < 2; i++) {
        struct aio_store *store = NULL;
        const int rc = open_store(path, &store);
        if (rc != 0) {
            test_fail(__FILE__, __LINE__, "%d: %s", rc, core_err_message());
        }
        expect(path, -EBUSY, "in use by another run; wait for its end");
        if (i == 0) {
            close(release[1]); /* the child ends */
            expect(path, -EBUSY, "in use by another run; wait for its end");
        }
        check_int(aio_store_close(store), ==, 0);
        check_true(stat(path, &info) != 0 || rmdir(path) == 0);
    }
    close(release[0]);
    close(said[0]);
    close(said[1]);
}

static void headers_are_checked(void)
{
    struct aio_header header = {.magic = "TIDEEXT", .version = AIO_HEADER_VERSION, .run = 1};
    aio_header_seal(&header);
    check_int(aio_header_check(&header, "h"), ==, 0);
    for (size_t bit = 0; bit < sizeof header * 8; bit++) {
        ((unsigned char *)&header)[bit / 8] ^= (unsigned char)(1u << bit % 8);
        check_int(aio_header_check(&header, "h"), ==, -EBADMSG);
        ((unsigned char *)&header)[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
}

/* File systems have a verdict, and a reason if it is not AIO_FS_DIRECT. */
static void file_systems_are_known(void)
{
    static const struct {
        uint64_t magic;
        bool direct;
        const char *type;
        enum aio_fs_verdict verdict;
    } rows[] = {{0xef53, true, "ext4", AIO_FS_DIRECT},
                {0xef53, false, "ext4", AIO_FS_BUFFERED},
                {0x01021994, true, "tmpfs", AIO_FS_BUFFERED},
                {0x794c7630, true, "overlayfs", AIO_FS_DIRECT},
                {0x794c7630, false, "overlayfs", AIO_FS_BUFFERED},
                {0x6969, true, "nfs", AIO_FS_REFUSED},
                {0x9123683e, true, "btrfs", AIO_FS_DIRECT},
                {0x2fc12fc1, true, "zfs", AIO_FS_BUFFERED},
                {0xff534d42, false, "cifs", AIO_FS_REFUSED},
                {0x1234, true, "0x1234", AIO_FS_DIRECT}};
    struct aio_fs fs;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        aio_fs_judge(rows[i].magic, rows[i].direct, &fs);
        check_string(fs.type, rows[i].type);
        check_int(fs.verdict, ==, rows[i].verdict);
        check_true(fs.verdict == AIO_FS_DIRECT || fs.reason[0] != '\0');
    }
    int fd = aio_dir_look(test_directory());
    check_int(fd, >=, 0);
    check_int(aio_fs_look(fd, "here", &fs), ==, 0);
    test_note("%s, %s", fs.type, fs.reason);
    check_uint(fs.free_bytes, >, 0);
    int scratch = aio_fs_scratch(fd, "here", false);
    check_int(scratch, >=, 0);
    close(scratch);
    close(fd);
}

static void tmpfs_is_buffered_with_a_warning(void)
{
    char path[] = "/dev/shm/tide-test-XXXXXX";
    if (mkdtemp(path) == NULL) {
        test_skip("no /dev/shm");
    }
    test_listen(CORE_LOG_INFO);
    struct aio_store *store = NULL;
    int rc = open_store(path, &store);
    test_listen_end();
    check_int(rc, ==, 0);
    check_contains(test_heard(), "through the page cache: tmpfs is memory");
    check_int(aio_store_close(store), ==, 0);
    check_int(rmdir(path), ==, 0);
}

/* A file is created once, in its directory, and removed only while the name belongs to the
 * descriptor. */
static void directories_and_files(void)
{
    struct aio_dir *dir = NULL;
    check_int(aio_dir_open(place("small"), &dir), ==, 0);
    check_int(aio_dir_fd(dir), >=, 0);
    bool locked = true;
    check_int(aio_dir_open_file(dir, "a", false, &locked), ==, -ENOENT);
    int fd = aio_dir_create(dir, "a", false);
    check_int(fd, >=, 0);
    check_int(aio_dir_create(dir, "a", false), ==, -EEXIST);
    check_int(aio_dir_create(dir, "../a", false), <, 0);
    const int again = aio_dir_open_file(dir, "a", false, &locked);
    check_true(again >= 0 && !locked); /* the first descriptor has the lock */
    close(again);
    check_int(aio_dir_remove(dir, "a", fd), ==, 0);
    check_int(aio_dir_remove(dir, "a", fd), ==, -ESTALE);
    close(fd);
    check_int(aio_dir_close(dir), ==, 0);
    check_int(aio_dir_close(NULL), ==, 0);
}

TEST_MAIN({"empty_after_a_clean_end", empty_after_a_clean_end},
          {"what_is_not_ours_is_refused", what_is_not_ours_is_refused},
          {"without_openat2", without_openat2}, {"openat2_is_forbidden", openat2_is_forbidden},
          {"foreign_files_are_not_touched", foreign_files_are_not_touched},
          {"a_directory_in_use_is_busy", a_directory_in_use_is_busy},
          {"what_was_swapped_is_not_removed", what_was_swapped_is_not_removed},
          {"killed_runs_are_cleaned_up", killed_runs_are_cleaned_up},
          {"a_forked_child_keeps_nothing", a_forked_child_keeps_nothing},
          {"headers_are_checked", headers_are_checked},
          {"file_systems_are_known", file_systems_are_known},
          {"tmpfs_is_buffered_with_a_warning", tmpfs_is_buffered_with_a_warning},
          {"directories_and_files", directories_and_files})
