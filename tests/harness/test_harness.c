/* Tests of the harness: mounts, directories, and checks in a child. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/harness/child.h"
#include "tests/harness/mount.h"
#include "tests/harness/test.h"

enum { NO_MOUNT = 77, PATH_BYTES = 4096 };

/* Returns whether this process sees a mount below test_directory(). */
static bool is_mounted(void)
{
    static char mounts[1 << 18];
    const int fd = open("/proc/self/mounts", O_RDONLY | O_CLOEXEC);
    size_t bytes = 0;
    for (ssize_t got; (got = read(fd, mounts + bytes, sizeof mounts - 1 - bytes)) > 0;) {
        bytes += (size_t)got;
    }
    close(fd);
    mounts[bytes] = '\0';
    return strstr(mounts, test_directory()) != NULL;
}

static int die_mounted(void *argument)
{
    (void)argument;
    const char *path = test_mount_memory("killed", "size=1m");
    if (path == NULL) {
        return NO_MOUNT;
    }
    if (!is_mounted()) {
        return 1;
    }
    raise(SIGKILL);
    return 2;
}

static void killed_programs_leave_no_mount(void)
{
    const char *place = test_path("killed");
    const int rc = test_child(die_mounted, NULL);
    if (rc == NO_MOUNT) {
        test_skip("no file system can be mounted here");
    }
    check_int(rc, ==, 256 + SIGKILL);
    check_true(!is_mounted());
    check_int(rmdir(place), ==, 0);
}

/* Exits normally with a mounted file system and an open file in it. */
static int leave_mounted(void *argument)
{
    char *directory = argument; /* shared with the parent */
    if (test_mount_memory("left", "size=1m") == NULL) {
        return NO_MOUNT;
    }
    snprintf(directory, PATH_BYTES, "%s", test_directory());
    const int fd = open(test_file("left/file", "x", 1), O_RDONLY | O_CLOEXEC);
    exit(fd >= 0 ? 0 : 1);
}

/* A program that exits with a mounted file system removes its directory. The case is the first, so
 * that the child makes a separate directory. */
static void directories_go_with_what_is_mounted(void)
{
    char *directory = mmap(NULL, PATH_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                           0);
    check_true(directory != MAP_FAILED);
    const int rc = test_child(leave_mounted, directory);
    const bool there = rc == 0 && access(directory, F_OK) == 0;
    const bool named = directory[0] == '/';
    munmap(directory, PATH_BYTES);
    if (rc == NO_MOUNT) {
        test_skip("no file system can be mounted here");
    }
    check_int(rc, ==, 0);
    check_true(named && !there);
}

static int fail_check(void *argument)
{
    (void)argument;
    check_int(1, ==, 2);
    return 0;
}

static int skip_case(void *argument)
{
    (void)argument;
    test_skip("in a child");
}

/* Ignores the result of test_child(). */
static void has_child_that_fails(void)
{
    test_child(fail_check, NULL);
}

static void has_child_that_skips(void)
{
    test_child(skip_case, NULL);
}

static void has_no_child(void)
{
}

static int run_program(void *argument)
{
    static const struct test_case cases[] = {
        {"fails", has_child_that_fails}, {"skips", has_child_that_skips}, {"passes", has_no_child}};
    char name[] = "test";
    char *words[] = {name, NULL};
    if (freopen(argument, "w", stdout) == NULL) {
        return 2;
    }
    return test_main(1, words, cases, sizeof cases / sizeof cases[0]);
}

/* A failed check or a skip in a child fails the case; the next cases run once. */
static void a_check_in_a_child_fails_the_case(void)
{
    const char *path = test_path("tap");
    char line[300];
    char results[300] = "";
    check_int(test_child(run_program, (void *)(uintptr_t)path), ==, 1);
    FILE *file = fopen(path, "r");
    check_true(file != NULL);
    while (fgets(line, sizeof line, file) != NULL) {
        if (line[0] != '#') {
            strncat(results, line, sizeof results - strlen(results) - 1);
        }
    }
    fclose(file);
    check_string(results, "1..3\nnot ok 1 - fails\nnot ok 2 - skips\nok 3 - passes\n");
}

TEST_MAIN({"directories_go_with_what_is_mounted", directories_go_with_what_is_mounted},
          {"killed_programs_leave_no_mount", killed_programs_leave_no_mount},
          {"a_check_in_a_child_fails_the_case", a_check_in_a_child_fails_the_case})
