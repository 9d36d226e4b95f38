/* test_tool_hurt.c: the program under bad conditions. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/ds_nvme_bench/tool.h"
#include "tests/harness/child.h"
#include "tests/harness/test.h"

static void become_nobody(void)
{
    if (test_child_drop_root() != 0) {
        _exit(126);
    }
}

/* A directory without write permission is refused and named. */
static void not_writable(void)
{
    if (geteuid() != 0) {
        test_skip("needs root to change its user");
    }
    check_int(chmod(test_directory(), 0755), ==, 0);
    check_int(chmod(tool_drive(), 0555), ==, 0);
    int code = tool_run_prepared(tool_with_drive("--mode point"), become_nobody);
    check_int(chmod(tool_drive(), 0700), ==, 0);
    if (code == 126 || code == 127) {
        test_skip("the build folder is not open to others");
    }
    check_int(code, ==, 2);
    check_contains(tool_err, tool_drive());
}

static void become_nobody_unlocked(void)
{
    const struct rlimit none = {.rlim_cur = 65536, .rlim_max = 65536};
    if (setrlimit(RLIMIT_MEMLOCK, &none) != 0) {
        _exit(126);
    }
    become_nobody();
}

/* If memory must not be locked, a sweep reports the needed limit and measures. */
static void memory_not_locked(void)
{
    if (geteuid() != 0) {
        test_skip("needs root to change its user");
    }
    check_int(chmod(test_directory(), 0755), ==, 0);
    check_int(chmod(tool_drive(), 0777), ==, 0);
    int code = tool_run_prepared(tool_with_drive("--backend uring --block_size 1M --op read,rw"),
                                 become_nobody_unlocked);
    check_int(chmod(tool_drive(), 0700), ==, 0);
    if (code != 0) {
        test_skip("no io_uring, or the build folder is not open to others: %.100s", tool_err);
    }
    const char *first = strstr(tool_err, "ulimit -l");
    if (first == NULL) {
        test_skip("registered buffers are not charged here");
    }
    check_true(strstr(first + 1, "ulimit -l") == NULL);
}

static void nap(long milliseconds)
{
    nanosleep(
        &(struct timespec){.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1000000},
        NULL);
}

/* Returns the nameless scratch file of a process, or -1. */
static int scratch_of(pid_t child)
{
    for (int fd = 3; fd < 64; fd++) {
        char path[64];
        char to[600];
        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)child, fd);
        ssize_t length = readlink(path, to, sizeof to - 1);
        to[length > 0 ? length : 0] = '\0';
        if (strstr(to, "/drive/") != NULL) {
            struct stat info;
            int scratch = open(path, O_WRONLY | O_CLOEXEC);
            if (scratch >= 0 && fstat(scratch, &info) == 0 && info.st_size >= 64 << 20) {
                return scratch;
            }
            close(scratch); /* a file for examining the file system */
        }
    }
    return -1;
}

/* Waits for the process's scratch file; from then on, the process handles signals. */
static int wait_scratch(pid_t child)
{
    int fd = -1;
    for (int i = 0; i < 3000 && fd < 0; i++) {
        fd = scratch_of(child);
        nap(fd < 0 ? 5 : 0);
    }
    check_true(fd >= 0);
    return fd;
}

/* Verify detects another process's writes to the scratch file, and exits with 4. */
static void wrong_bytes(void)
{
    static char garbage[4096];
    pid_t child = tool_start("ds_nvme_bench", tool_with_drive("--mode verify --loops 20"), NULL);
    int fd = wait_scratch(child);
    memset(garbage, 'x', sizeof garbage);
    for (int i = 0; i < 20000; i++) {
        siginfo_t info = {.si_pid = 0};
        if (waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
            info.si_pid != 0) {
            break;
        }
        if (pwrite(fd, garbage, sizeof garbage, (i % 64) * 1048576L) < 0) {
            break;
        }
        nap(2);
    }
    int code = tool_finish(child);
    close(fd);
    check_int(code, ==, 4);
    check_contains(tool_out, "WRONG");
}

/* Ctrl-C and SIGTERM end the program with 130 and leave nothing behind. */
static void interrupted(void)
{
    static const char swap[] = "--mode swap --tensor_size 4M --loops 60";
    static const char *const options[] = {"--mode point --runtime 60", "--mode sweep --runtime 60",
                                          "--mode verify --loops 60", swap,
                                          "--mode soak --runtime 60 --io_size 128M"};
    for (int i = 0; i < 5; i++) {
        pid_t child = tool_start("ds_nvme_bench", tool_with_drive(options[i]), NULL);
        close(wait_scratch(child));
        nap(60 * i);
        check_int(kill(child, i % 2 == 0 ? SIGINT : SIGTERM), ==, 0);
        int code = tool_finish(child);
        if (code != 130) {
            test_fail(__FILE__, __LINE__, "%s ended %d: %s", options[i], code, tool_err);
        }
        check_contains(tool_err, "interrupted");
        tool_check_empty(tool_drive());
    }
    pid_t child = tool_start("ds_nvme_bench", tool_with_drive("--mode point --runtime 60"), NULL);
    close(wait_scratch(child));
    check_int(kill(child, SIGKILL), ==, 0);
    check_int(waitpid(child, NULL, 0), ==, child);
    tool_check_empty(tool_drive());
}

static void forbid_uring(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
    };
    struct sock_fprog program = {.len = sizeof filter / sizeof filter[0], .filter = filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        _exit(126);
    }
}

/* If io_uring is forbidden, another back end measures, unless io_uring is requested. */
static void uring_forbidden(void)
{
    int code = tool_run_prepared(tool_with_drive("--mode point --op read"), forbid_uring);
    if (code == 126) {
        test_skip("seccomp filters are not allowed here");
    }
    check_int(code, ==, 0);
    check_true(strstr(tool_out, "direct, libaio") != NULL ||
               strstr(tool_out, "direct, threads") != NULL);
    check_int(tool_run_prepared(tool_with_drive("--mode point --backend uring"), forbid_uring), ==,
              2);
    check_contains(tool_err, TIDE_TEST_URING ? "was requested, but" : "is not built in");
}

TEST_MAIN({"not_writable", not_writable}, {"memory_not_locked", memory_not_locked},
          {"wrong_bytes", wrong_bytes}, {"interrupted", interrupted},
          {"uring_forbidden", uring_forbidden})
