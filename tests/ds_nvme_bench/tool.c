/* tool.c: see tool.h. */
#include "tests/ds_nvme_bench/tool.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/file.h"
#include "tests/harness/test.h"

char *tool_out;
char *tool_err;

const char *tool_path(const char *name)
{
    static char path[4][512];
    static unsigned turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", test_directory(), name);
    return path[turn];
}

const char *tool_drive(void)
{
    const char *path = tool_path("drive");
    check_true(mkdir(path, 0700) == 0 || errno == EEXIST);
    return path;
}

void tool_check_empty(const char *path)
{
    DIR *names = opendir(path);
    check_true(names != NULL);
    unsigned count = 0;
    while (readdir(names) != NULL) {
        count++;
    }
    closedir(names);
    check_uint(count, ==, 2);
}

static void redirect(int to, const char *path, int flags)
{
    int fd = open(path, flags, 0600);
    if (fd < 0 || dup2(fd, to) < 0) {
        _exit(126);
    }
    close(fd);
}

pid_t tool_start(const char *program, const char *arguments, void (*prepare)(void))
{
    static char words[1024];
    char *argv[40] = {NULL};
    static char path[512];
    const char *root = getenv("TIDE_BUILD_ROOT");
    snprintf(path, sizeof path, "%s/tools/%s", root != NULL ? root : "build", program);
    snprintf(words, sizeof words, "%s", arguments);
    argv[0] = path;
    char *rest = words;
    for (size_t i = 1; i < 39; i++) {
        argv[i] = strsep(&rest, " ");
    }
    const char *out = tool_path("out");
    const char *err = tool_path("err");
    pid_t child = fork();
    check_true(child >= 0);
    if (child == 0) {
        redirect(0, "/dev/null", O_RDONLY);
        redirect(1, out, O_WRONLY | O_CREAT | O_TRUNC);
        redirect(2, err, O_WRONLY | O_CREAT | O_TRUNC);
        if (prepare != NULL) {
            prepare();
        }
        execv(path, argv);
        _exit(127);
    }
    return child;
}

int tool_finish(pid_t child)
{
    int status = 0;
    size_t bytes = 0;
    check_int(waitpid(child, &status, 0), ==, child);
    free(tool_out);
    free(tool_err);
    tool_out = NULL;
    tool_err = NULL;
    check_int(core_file_read(tool_path("out"), 1 << 22, &tool_out, &bytes), ==, 0);
    check_int(core_file_read(tool_path("err"), 1 << 22, &tool_err, &bytes), ==, 0);
    check_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

int tool_run_prepared(const char *arguments, void (*prepare)(void))
{
    return tool_finish(tool_start("ds_nvme_bench", arguments, prepare));
}

int tool_run(const char *arguments)
{
    return tool_run_prepared(arguments, NULL);
}

const char *tool_with_drive(const char *options)
{
    static char arguments[8192];
    snprintf(arguments, sizeof arguments, "%s--nvme_dir %s %s", TOOL_SMALL, tool_drive(), options);
    return arguments;
}
