/* torchrun.c: starts the processes, collects their output and ends them. */
#include "tests/harness/torchrun.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness/test.h"

enum { WORLD_MAX = 8, LOOK_MS = 20, PATIENCE_LOOKS = 200, LIMIT_LOOKS = 6000 };

unsigned test_port_free(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof address;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    check_int(bind(fd, (struct sockaddr *)&address, bytes), ==, 0);
    check_int(getsockname(fd, (struct sockaddr *)&address, &bytes), ==, 0);
    close(fd);
    return ntohs(address.sin_port);
}

static void set_number(const char *name, unsigned value)
{
    char text[16];
    snprintf(text, sizeof text, "%u", value);
    setenv(name, text, 1);
}

static pid_t start(const char *command, unsigned rank, int to)
{
    const pid_t pid = fork();
    check_int(pid, >=, 0);
    if (pid == 0) {
        set_number("RANK", rank);
        set_number("LOCAL_RANK", rank);
        setpgid(0, 0);
        dup2(to, STDOUT_FILENO);
        dup2(to, STDERR_FILENO);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    return pid;
}

static int code_of(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int wait_all(pid_t *pids, unsigned world, int from, char *text, size_t bytes)
{
    size_t length = 0;
    unsigned left = world;
    int failed = 0;
    bool open = true;
    for (int looks = 0, late = 0; left > 0;) {
        /* poll() waits without a descriptor after the pipe was closed or `text` is full */
        struct pollfd polled = {.fd = open && length + 1 < bytes ? from : -1, .events = POLLIN};
        if (poll(&polled, 1, LOOK_MS) > 0) {
            const ssize_t got = read(from, text + length, bytes - 1 - length);
            length += got > 0 ? (size_t)got : 0;
            open = got > 0;
        } else {
            looks++;
            late += failed != 0;
        }
        for (unsigned r = 0; r < world; r++) {
            int status = 0;
            if (pids[r] > 0 && waitpid(pids[r], &status, WNOHANG) == pids[r]) {
                pids[r] = 0;
                left--;
                failed = failed != 0 ? failed : code_of(status);
            } else if (pids[r] > 0 && (late > PATIENCE_LOOKS || looks > LIMIT_LOOKS)) {
                kill(-pids[r], SIGKILL);
            }
        }
    }
    for (ssize_t got = 1; got > 0 && length + 1 < bytes;) {
        got = read(from, text + length, bytes - 1 - length);
        length += got > 0 ? (size_t)got : 0;
    }
    text[length] = '\0';
    return failed;
}

int test_torchrun(const char *command, unsigned world, const char *address, char *text,
                  size_t bytes)
{
    pid_t pids[WORLD_MAX];
    int ends[2];
    check_uint(world, <=, WORLD_MAX);
    check_int(pipe(ends), ==, 0);
    set_number("WORLD_SIZE", world);
    set_number("LOCAL_WORLD_SIZE", world);
    set_number("MASTER_PORT", test_port_free() - 1);
    setenv("MASTER_ADDR", address != NULL ? address : "127.0.0.1", 1);
    setenv("TORCHELASTIC_RUN_ID", "test", 1);
    for (unsigned r = 0; r < world; r++) {
        pids[r] = start(command, r, ends[1]);
    }
    close(ends[1]);
    const int code = wait_all(pids, world, ends[0], text, bytes);
    close(ends[0]);
    return code;
}
