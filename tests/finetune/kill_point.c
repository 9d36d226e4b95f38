/* kill_point.c: `tide` that kills itself, or waits, at a chosen point.
 *   TIDE_TEST_KILL=N: kills itself in a save, at the N-th call below after the checkpoint was begun
 *     (0: just after the checkpoint got its name).
 *   TIDE_TEST_KILL_MOVE=N: kills itself before the N-th file is moved into an existing folder.
 *   TIDE_TEST_WAIT: waits for a request to stop after each checkpoint got its name. */
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/harness/wrap.h"
#include "tools/tide/finetune_stop.h"

static atomic_int calls_left; /* 0: no call kills */
static atomic_bool begun;
static atomic_int moves;

static int number_of(const char *name)
{
    const char *text = getenv(name);
    return text != NULL ? atoi(text) : -1;
}

static int wanted_call(void)
{
    return number_of("TIDE_TEST_KILL");
}

static void die(void)
{
    kill(getpid(), SIGKILL);
    pause();
}

/* Kills the process if this is the requested call; else returns false. */
static bool due(void)
{
    if (atomic_load(&calls_left) > 0 && atomic_fetch_sub(&calls_left, 1) == 1) {
        die();
    }
    return false;
}

/* Returns whether the path is that of an unfinished checkpoint. */
static bool is_partial(const char *path)
{
    static const char end[] = ".partial";
    const char *name = strrchr(path, '/');
    const size_t length = strlen(path);
    return name != NULL && strncmp(name, "/checkpoint-", strlen("/checkpoint-")) == 0 &&
           length >= strlen(end) && strcmp(path + length - strlen(end), end) == 0;
}

static void wait_for_stop(void)
{
    while (!finetune_stop_asked()) {
        usleep(1000);
    }
}

int __real_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode)
{
    const int rc = __real_mkdir(path, mode);
    if (is_partial(path) && wanted_call() >= 0 && !atomic_exchange(&begun, true)) {
        atomic_store(&calls_left, wanted_call());
    }
    return rc;
}

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to)
{
    const bool ends = is_partial(from) && atomic_load(&begun);
    if (ends && wanted_call() > 0) {
        die();
    }
    const int rc = __real_rename(from, to);
    if (ends) {
        die();
    }
    if (is_partial(from) && getenv("TIDE_TEST_WAIT") != NULL) {
        wait_for_stop();
    }
    return rc;
}

int __real_renameat(int from, const char *name, int to, const char *other);
int __wrap_renameat(int from, const char *name, int to, const char *other);
int __wrap_renameat(int from, const char *name, int to, const char *other)
{
    if (atomic_fetch_add(&moves, 1) + 1 == number_of("TIDE_TEST_KILL_MOVE")) {
        die();
    }
    return __real_renameat(from, name, to, other);
}

WRAP(int, fsync, -1, (int fd), (fd))
WRAP(int, fdatasync, -1, (int fd), (fd))
WRAP(int, unlinkat, -1, (int folder, const char *name, int flags), (folder, name, flags))
WRAP_OPENAT(openat)
WRAP_OPENAT(openat64)
