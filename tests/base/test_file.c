/* Tests the functions for files, names and folders. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/json/json.h"
#include "tests/harness/test.h"
#include "tests/harness/wrap.h"

/* further calls that fail with `fault` */
static int faults_left;
static int fault;
static int calls;

static bool due(void)
{
    calls++;
    if (faults_left > 0) {
        faults_left--;
        errno = fault;
        return true;
    }
    return false;
}

WRAP(ssize_t, read, -1, (int fd, void *to, size_t bytes), (fd, to, bytes))
WRAP(ssize_t, write, -1, (int fd, const void *from, size_t bytes), (fd, from, bytes))
WRAP(ssize_t, pread, -1, (int fd, void *to, size_t bytes, off_t at), (fd, to, bytes, at))
WRAP(ssize_t, pread64, -1, (int fd, void *to, size_t bytes, off64_t at), (fd, to, bytes, at))
WRAP(int, fallocate, -1, (int fd, int mode, off_t at, off_t bytes), (fd, mode, at, bytes))
WRAP(int, fallocate64, -1, (int fd, int mode, off64_t at, off64_t bytes), (fd, mode, at, bytes))

static void refuse(int code, int times)
{
    fault = code;
    faults_left = times;
    calls = 0;
}

/* Interrupted calls are repeated, but not without end. */
static void interrupts_are_bounded(void)
{
    static const char text[] = "0123456789";
    const char *path = test_file("interrupted", text, 10);
    char found[16];
    char *whole = NULL;
    size_t bytes = 0;
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    check_int(fd, >=, 0);
    refuse(EINTR, CORE_FILE_INTERRUPTS_MAX - 1);
    check_int(core_file_read_at(fd, found, 16, 3), ==, 7);
    check_int(memcmp(found, text + 3, 7), ==, 0);
    refuse(EINTR, 5);
    check_int(core_file_read_some(fd, found, 4), ==, 4);
    check_int(calls, ==, 6);
    refuse(EINTR, CORE_FILE_INTERRUPTS_MAX);
    check_int(core_file_read_at(fd, found, 4, 0), ==, -EINTR);
    check_int(calls, ==, CORE_FILE_INTERRUPTS_MAX);
    refuse(EINTR, CORE_FILE_INTERRUPTS_MAX);
    check_int(core_file_read_some(fd, found, 4), ==, -EINTR);
    refuse(EINTR, CORE_FILE_INTERRUPTS_MAX);
    check_int(core_file_read(path, 100, &whole, &bytes), ==, -EINTR);
    check_true(whole == NULL);
    refuse(EINTR, CORE_FILE_INTERRUPTS_MAX - 1);
    check_int(core_file_write(fd, text, 10), ==, 0);
    refuse(EINTR, CORE_FILE_INTERRUPTS_MAX);
    check_int(core_file_write(fd, text, 10), ==, -EINTR);
    refuse(EIO, 1);
    check_int(core_file_read_at(fd, found, 4, 0), ==, -EIO);
    close(fd);
}

/* Space is reserved if the file system can do that; otherwise the size is set. */
static void space_is_reserved(void)
{
    struct stat info;
    bool reserved = false;
    const char *path = test_file("reserved", "", 0);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    refuse(EINTR, 3);
    check_int(core_file_reserve(fd, 65536, &reserved), ==, 0);
    check_int(calls, ==, 4);
    check_int(fstat(fd, &info), ==, 0);
    check_int(info.st_size, ==, 65536);
    check_int(info.st_blocks > 0, ==, reserved);
    check_int(ftruncate(fd, 0), ==, 0);
    refuse(EOPNOTSUPP, 1);
    check_int(core_file_reserve(fd, 65536, &reserved), ==, 0);
    check_true(!reserved);
    check_int(fstat(fd, &info), ==, 0);
    check_int(info.st_size, ==, 65536);
    check_int(info.st_blocks, ==, 0);
    refuse(ENOSPC, 1);
    check_int(core_file_reserve(fd, 131072, &reserved), ==, -ENOSPC);
    close(fd);
}

/* Pipes, folders and missing files do not count as regular files. */
static void regular_files(void)
{
    char *text = NULL;
    size_t bytes = 0;
    char pipe_path[512];
    snprintf(pipe_path, sizeof pipe_path, "%s/pipe", test_directory());
    check_int(mkfifo(pipe_path, 0600), ==, 0);
    check_int(core_file_read_regular(pipe_path, 100, &text, &bytes), ==, -EINVAL);
    check_contains(core_err_message(), "pipe is not a regular file");
    check_int(core_file_read_regular(test_directory(), 100, &text, &bytes), ==, -EISDIR);
    check_int(core_file_read_regular("/nonexistent/x", 100, &text, &bytes), ==, -ENOENT);
    check_true(text == NULL);
    struct core_json *doc = NULL;
    const struct core_json_options options = {.regular = true};
    check_int(core_json_load(pipe_path, &options, &doc), ==, -EINVAL);
    const char *path = test_file("regular.json", "[1]", 3);
    check_int(core_json_load(path, &options, &doc), ==, 0);
    core_json_destroy(doc);
}

/* Opening does not wait for the other end of a FIFO; outputs block once they are open. */
static void fifos(void)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = NULL;
    char path[512];
    char name[64];
    int ends[2];
    snprintf(path, sizeof path, "%s/fifo", test_directory());
    check_int(mkfifo(path, 0600), ==, 0);
    check_int(core_file_read(path, 100, &text, &bytes), ==, -EINVAL);
    check_contains(core_err_message(), "fifo is a FIFO; expected a regular file, or \"-\" for");
    struct core_json *doc = NULL;
    check_int(core_json_load(path, NULL, &doc), ==, -EINVAL);
    check_int(core_file_open_output(path, false, &out), ==, -EINVAL);
    check_contains(core_err_message(),
                   "fifo cannot be written: it is a FIFO that no process reads");
    check_true(out == NULL && text == NULL);
    const int reader = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    check_int(core_file_open_output(path, true, &out), ==, 0);
    check_int(fcntl(fileno(out), F_GETFL) & O_NONBLOCK, ==, 0);
    fputs("line", out);
    fclose(out);
    check_int(read(reader, name, sizeof name), ==, 4);
    close(reader);
    check_int(pipe2(ends, O_CLOEXEC), ==, 0);
    check_int(write(ends[1], "piped", 5), ==, 5);
    close(ends[1]);
    snprintf(name, sizeof name, "/proc/self/fd/%d", ends[0]);
    check_int(core_file_read(name, 100, &text, &bytes), ==, 0);
    check_string(text, "piped");
    free(text);
    close(ends[0]);
    snprintf(path, sizeof path, "%s/output", test_directory());
    for (int i = 0; i < 3; i++) { /* "ab", "ab" again, then "abab" */
        check_int(core_file_open_output(path, i == 2, &out), ==, 0);
        fputs("ab", out);
        fclose(out);
    }
    check_int(core_file_read(path, 100, &text, &bytes), ==, 0);
    check_string(text, "abab");
    free(text);
    check_int(core_file_open_output("/nonexistent/x", false, &out), ==, -ENOENT);
    check_contains(core_err_message(), "/nonexistent/x cannot be written: No such file");
}

/* Files are opened without the page cache if possible, but not through a link. */
static void direct_files(void)
{
    const int folder = open(test_directory(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int plain = open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool direct = true;
    test_file("on_disk", "1", 1);
    int fd = core_file_open_direct(folder, "on_disk", O_RDWR, &direct);
    check_int(fd, >=, 0);
    check_int((fcntl(fd, F_GETFL) & O_DIRECT) != 0, ==, direct);
    close(fd);
    check_int(core_file_open_direct(folder, "missing", O_RDONLY, &direct), ==, -ENOENT);
    check_int(symlinkat("on_disk", folder, "direct_link"), ==, 0);
    direct = true;
    check_int(core_file_open_direct(folder, "direct_link", O_RDONLY, &direct), ==, -ELOOP);
    check_true(direct);
    fd = core_file_open_direct(plain, "status", O_RDONLY, &direct); /* no direct I/O in /proc */
    check_int(fd, >=, 0);
    check_true(!direct);
    close(fd);
    check_int(mkfifoat(folder, "direct_pipe", 0600), ==, 0);
    fd = core_file_open_direct(folder, "direct_pipe", O_RDONLY, &direct);
    check_int(fd, >=, 0);
    check_int(fcntl(fd, F_GETFL) & O_NONBLOCK, ==, 0);
    close(fd);
    close(plain);
    close(folder);
}

/* A write is complete or returns an error. */
static void writes_are_whole(void)
{
    const char *path = test_file("out", "", 0);
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    check_int(core_file_write(fd, "abcd", 4), ==, 0);
    check_int(core_file_write(fd, "ef", 2), ==, 0);
    check_int(core_file_write_at(fd, "XY", 2, 1), ==, 0);
    check_int(core_file_write(fd, NULL, 0), ==, 0);
    close(fd);
    char *text = NULL;
    size_t bytes = 0;
    check_int(core_file_read(path, 100, &text, &bytes), ==, 0);
    check_string(text, "aXYdef");
    free(text);
    const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    check_int(core_file_write(full, "x", 1), ==, -ENOSPC);
    check_int(core_file_write_at(full, "x", 1, 0), ==, -ENOSPC);
    close(full);
    int ends[2];
    static char piece[1 << 18];
    check_int(pipe2(ends, O_NONBLOCK | O_CLOEXEC), ==, 0);
    check_int(core_file_write(ends[1], piece, sizeof piece), ==, -EAGAIN);
    check_int(read(ends[0], piece, sizeof piece), >, 0); /* a part was written */
    close(ends[0]);
    close(ends[1]);
}

/* A link or another spelling means the same file; devices and missing files do not match. */
static void same_files(void)
{
    char link_path[512];
    char other[512];
    char folder[512];
    const char *path = test_file("one", "x", 1);
    snprintf(other, sizeof other, "%s/./one", test_directory());
    snprintf(folder, sizeof folder, "%s/.", test_directory());
    snprintf(link_path, sizeof link_path, "%s/link", test_directory());
    check_int(symlink(path, link_path), ==, 0);
    check_true(core_file_is_same(path, other));
    check_true(core_file_is_same(link_path, other));
    check_true(core_file_is_same(folder, test_directory()));
    check_true(!core_file_is_same(path, folder));
    check_true(!core_file_is_same("/dev/null", "/dev/null"));
    check_true(!core_file_is_same("/nonexistent/x", "/nonexistent/x"));
    check_true(!core_file_is_same(path, "/nonexistent/x"));
    check_int(unlink(link_path), ==, 0);
}

/* Sums of pieces add up to the file's sum, which changes with the bytes. */
static void sums(void)
{
    enum { BYTES = 3 * CORE_FILE_SUM_BYTES + 100 };
    char *bytes = malloc(BYTES);
    check_true(bytes != NULL);
    for (size_t i = 0; i < BYTES; i++) {
        bytes[i] = (char)(i % 251);
    }
    const uint64_t whole = core_file_sum_bytes(bytes, BYTES, 0);
    check_uint(whole, ==,
               core_file_sum_bytes(bytes, 2 * CORE_FILE_SUM_BYTES, 0) +
                   core_file_sum_bytes(bytes + 2 * CORE_FILE_SUM_BYTES,
                                       BYTES - 2 * CORE_FILE_SUM_BYTES, 2 * CORE_FILE_SUM_BYTES));
    for (int changed = 0; changed < 2; changed++) {
        uint64_t found = 0;
        bytes[BYTES - 1] = (char)(bytes[BYTES - 1] ^ changed);
        const int fd = open(test_file("sums", bytes, BYTES), O_RDONLY | O_CLOEXEC);
        check_int(core_file_sum(fd, &found), ==, 0);
        check_true((found == whole) == (changed == 0));
        close(fd);
    }
    uint64_t found = 0;
    check_int(core_file_sum(-1, &found), ==, -EBADF);
    free(bytes);
}

/* Names of weights are recognised; similar names are not. */
static void names_of_weights(void)
{
    static const char *const good[] = {"model.safetensors", "model.safetensors.index.json",
                                       "model-00001-of-00012.safetensors",
                                       "adapter_model.safetensors", "adapter_config.json"};
    static const char *const bad[] = {"config.json",
                                      "model.safetensors.bak",
                                      "adapter.safetensors",
                                      "model-0001-of-00012.safetensors",
                                      "model-0000a-of-00012.safetensors",
                                      ""};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        check_true(core_file_is_weights(good[i]));
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        check_true(!core_file_is_weights(bad[i]));
    }
}

/* Numbered names are recognised in their written form only. */
static void numbered_names(void)
{
    static const char *const bad[] = {"part-",       "part-7",
                                      "part-07.end", "part-+7.end",
                                      "part--7.end", "part- 7.end",
                                      "part-7.end2", "part-7.en",
                                      "art-7.end",   "part-18446744073709551616.end"};
    uint64_t number = 5;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        check_true(!core_file_is_numbered(bad[i], "part-", ".end", &number));
    }
    check_uint(number, ==, 5);
    check_true(core_file_is_numbered("part-0.end", "part-", ".end", &number));
    check_uint(number, ==, 0);
    check_true(core_file_is_numbered("part-18446744073709551615", "part-", "", &number));
    check_uint(number, ==, UINT64_MAX);
}

/* Missing folders are created, also along a long path; a file in their place is an error. */
static void folders_are_made(void)
{
    char path[2048];
    struct stat info;
    int length = snprintf(path, sizeof path, "%s/", test_directory());
    for (int i = 0; i < 10; i++) {
        length += snprintf(path + length, sizeof path - (size_t)length, "%0100d/", i);
    }
    snprintf(path + length, sizeof path - (size_t)length, "x.csv");
    check_int(core_file_make_folders(path, (size_t)length), ==, 0);
    check_int(core_file_make_folders(path, (size_t)length - 1), ==, 0);
    check_int(stat(path, &info), ==, -1);
    path[length - 1] = '\0';
    check_true(stat(path, &info) == 0 && S_ISDIR(info.st_mode));
    check_int(core_file_make_folders("no_folder.csv", 0), ==, 0);
    const char *file = test_file("no_folder", "x", 1);
    check_int(core_file_make_folders(file, strlen(file)), ==, -ENOTDIR);
    snprintf(path, sizeof path, "%s/a", file);
    check_int(core_file_make_folders(path, strlen(path)), ==, -ENOTDIR);
    check_contains(core_err_message(), "no_folder/a cannot be created: Not a directory");
}

TEST_MAIN({"numbered_names", numbered_names}, {"names_of_weights", names_of_weights},
          {"folders_are_made", folders_are_made}, {"sums", sums}, {"regular_files", regular_files},
          {"fifos", fifos}, {"direct_files", direct_files}, {"writes_are_whole", writes_are_whole},
          {"interrupts_are_bounded", interrupts_are_bounded},
          {"space_is_reserved", space_is_reserved}, {"same_files", same_files})
