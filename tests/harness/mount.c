/* mount.c: mounts in a mount namespace, created once per program. */
#include "tests/harness/mount.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/harness/test.h"

enum { COMMAND_BYTES = 2400 };

static bool put(const char *path, const char *text)
{
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    const bool written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0) {
        close(fd);
    }
    return written;
}

/* A user other than root also gets a user namespace, in which it is root. */
static bool begin(void)
{
    char users[64];
    const uid_t user = geteuid();
    snprintf(users, sizeof users, "0 %u 1", (unsigned)user);
    if (unshare(user == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER) != 0) {
        return false;
    }
    if (user != 0 && (!put("/proc/self/setgroups", "deny") || !put("/proc/self/uid_map", users))) {
        return false;
    }
    return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

bool test_mounts_begin(void)
{
    static enum { NOT_TRIED, HERE, REFUSED } state;
    if (state == NOT_TRIED) {
        state = begin() ? HERE : REFUSED;
    }
    return state == HERE;
}

/* An earlier mount may have left the folder. */
static const char *make_place(const char *name)
{
    const char *path = test_path(name);
    return mkdir(path, 0700) == 0 || errno == EEXIST ? path : NULL;
}

const char *test_mount_memory(const char *name, const char *options)
{
    const char *path = test_mounts_begin() ? make_place(name) : NULL;
    return path != NULL && mount("tide-test", path, "tmpfs", 0, options) == 0 ? path : NULL;
}

const char *test_mount_image(const char *name, const char *type, unsigned size_mib)
{
    char command[COMMAND_BYTES];
    const char *path = test_mounts_begin() ? make_place(name) : NULL;
    if (path == NULL || geteuid() != 0) {
        return NULL;
    }
    snprintf(command, sizeof command,
             "truncate -s %uM '%s.image' && mkfs.%s -q -m 0 '%s.image' && "
             "mount -o loop '%s.image' '%s'",
             size_mib, path, type, path, path, path);
    char quiet[COMMAND_BYTES + 32];
    snprintf(quiet, sizeof quiet, "{ %s; } 2>/dev/null", command);
    return system(quiet) == 0 ? path : NULL;
}

const char *test_mount_overlay(const char *name, const char *lower)
{
    char above[64];
    char options[COMMAND_BYTES];
    char part[COMMAND_BYTES];
    snprintf(above, sizeof above, "%s.above", name);
    const char *upper = test_mount_memory(above, "size=64m,mode=0700");
    const char *path = upper != NULL ? make_place(name) : NULL;
    if (path == NULL) {
        return NULL;
    }
    snprintf(part, sizeof part, "%s/upper", upper);
    bool made = mkdir(part, 0700) == 0;
    snprintf(part, sizeof part, "%s/work", upper);
    made = made && mkdir(part, 0700) == 0;
    snprintf(options, sizeof options, "lowerdir=%s,upperdir=%s/upper,workdir=%s/work", lower, upper,
             upper);
    return made && mount("overlay", path, "overlay", 0, options) == 0 ? path : NULL;
}

void test_mount_end(const char *path)
{
    if (umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) != 0) {
        test_fail(__FILE__, __LINE__, "%s cannot be unmounted: %s", path, strerror(errno));
    }
}
