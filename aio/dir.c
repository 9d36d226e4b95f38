/* dir.c: the rules of directories, by descriptors and inodes rather than by paths. */
#include "aio/dir.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/log.h"

enum { PATH_BYTES = 4096, LOCK_TRIES = 500, LOCK_TRIES_A_SECOND = 100 };

struct aio_dir {
    int fd;        /* owned, locked */
    int parent_fd; /* owned; -1: the directory was there */
    char path[PATH_BYTES];
};

static const int dir_flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;

/* One component after the other, for kernels and filters without openat2. */
static int walk(int at, const char *path, int flags)
{
    char rest[PATH_BYTES];
    snprintf(rest, sizeof rest, "%s", path);
    int fd = openat(at, ".", dir_flags);
    char *saved = NULL;
    for (char *part = strtok_r(rest, "/", &saved); part != NULL && fd >= 0;
         part = strtok_r(NULL, "/", &saved)) {
        int next = openat(fd, part, flags | O_NOFOLLOW);
        int cause = errno;
        struct stat info;
        if (next < 0 && cause == ENOTDIR && fstatat(fd, part, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISLNK(info.st_mode)) {
            cause = ELOOP;
        }
        close(fd);
        errno = cause;
        fd = next;
    }
    return fd;
}

/* Opens a directory without following any link; -1 with errno. */
static int open_plain(const char *path)
{
    bool absolute = path[0] == '/';
    int at = absolute ? open("/", dir_flags) : AT_FDCWD;
    const char *below = path + strspn(path, absolute ? "/" : "");
    below = *below == '\0' ? "." : below;
    struct open_how how = {.flags = (unsigned)dir_flags,
                           .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
    int fd = (int)syscall(SYS_openat2, at, below, &how, sizeof how);
    if (fd < 0 && (errno == ENOSYS || errno == EPERM)) {
        fd = walk(at, below, dir_flags);
    }
    int cause = errno;
    if (absolute) {
        close(at);
    }
    errno = cause;
    return fd;
}

static int explain(const char *path, int cause)
{
    if (cause == ELOOP) {
        return core_err_set(-ELOOP,
                            "%s is, or leads through, a symbolic link, which could be turned"
                            " elsewhere; give the real path (realpath %s)",
                            path, path);
    }
    return core_err_set(-cause, "cannot open directory %s: %s", path, strerror(cause));
}

int aio_dir_look(const char *path)
{
    int fd = open_plain(path);
    return fd >= 0 ? fd : explain(path, errno);
}

/* Cuts the last name off. False where there is none to be made ("/", ".."). */
static bool split(const char *path, char *parent, char *leaf)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') {
        end--;
    }
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/') {
        begin--;
    }
    if (begin == end || end - begin > 255) {
        return false;
    }
    memcpy(leaf, path + begin, end - begin);
    leaf[end - begin] = '\0';
    snprintf(parent, PATH_BYTES, "%.*s", (int)(begin == 0 ? 1 : begin), begin == 0 ? "." : path);
    return strcmp(leaf, ".") != 0 && strcmp(leaf, "..") != 0;
}

static int make(struct aio_dir *dir)
{
    char parent[PATH_BYTES];
    char leaf[256];
    struct stat info;
    if (!split(dir->path, parent, leaf)) {
        return explain(dir->path, ENOENT);
    }
    dir->parent_fd = open_plain(parent);
    if (dir->parent_fd < 0 || fstat(dir->parent_fd, &info) != 0) {
        return explain(parent, errno);
    }
    if ((info.st_mode & S_IWOTH) != 0 && (info.st_mode & S_ISVTX) == 0) {
        return core_err_set(
            -EPERM, "%s may be written by everybody: a directory made there is not safe", parent);
    }
    if (mkdirat(dir->parent_fd, leaf, 0700) != 0 && errno != EEXIST) {
        int cause = errno;
        return core_err_set(-cause, "cannot make directory %s: %s", dir->path, strerror(cause));
    }
    dir->fd = openat(dir->parent_fd, leaf, dir_flags | O_NOFOLLOW);
    return dir->fd >= 0 ? 0 : explain(dir->path, errno == ENOTDIR ? ELOOP : errno);
}

static int check(const struct aio_dir *dir)
{
    struct stat info;
    if (fstat(dir->fd, &info) != 0) {
        return explain(dir->path, errno);
    }
    if (info.st_uid != geteuid()) {
        return core_err_set(-EPERM, "%s belongs to user %u, not to us (user %u)", dir->path,
                            info.st_uid, geteuid());
    }
    if ((info.st_mode & 0077) != 0) {
        return core_err_set(-EPERM,
                            "%s is open to others (mode %04o); training data belongs in a directory"
                            " of its own: give one that does not exist yet, or chmod 700 %s",
                            dir->path, info.st_mode & 07777, dir->path);
    }
    return 0;
}

/* The lock and, since a run that ends removes its directory, whether it still has a name. */
static int lock(const struct aio_dir *dir)
{
    struct stat info;
    if (flock(dir->fd, LOCK_EX | LOCK_NB) != 0) {
        int cause = errno;
        return cause == EWOULDBLOCK
                   ? core_err_set(-EBUSY, "%s is in use by another run", dir->path)
                   : core_err_set(-cause, "cannot lock %s: %s", dir->path, strerror(cause));
    }
    if (fstat(dir->fd, &info) != 0 || info.st_nlink == 0) {
        return core_err_set(-EAGAIN, "%s was removed while it was opened; try again", dir->path);
    }
    return 0;
}

static void dispose(struct aio_dir *dir)
{
    if (dir->fd >= 0) {
        close(dir->fd);
    }
    if (dir->parent_fd >= 0) {
        close(dir->parent_fd);
    }
    free(dir);
}

int aio_dir_open(const char *path, struct aio_dir **out)
{
    if (path[0] == '\0' || strlen(path) >= PATH_BYTES) {
        return core_err_set(-EINVAL, "a directory needs a path of 1 to %d bytes", PATH_BYTES - 1);
    }
    struct aio_dir *dir = calloc(1, sizeof *dir);
    if (dir == NULL) {
        return core_err_set(-ENOMEM, "no memory to open %s", path);
    }
    dir->parent_fd = -1;
    snprintf(dir->path, sizeof dir->path, "%s", path);
    dir->fd = open_plain(path);
    int rc = dir->fd >= 0 ? 0 : errno == ENOENT ? make(dir) : explain(path, errno);
    rc = rc == 0 ? check(dir) : rc;
    rc = rc == 0 ? lock(dir) : rc;
    if (rc != 0) {
        dispose(dir);
        return rc;
    }
    *out = dir;
    return 0;
}

/* Whether a name in a directory leads to what `fd` is. */
static bool is_same(int at, const char *name, int fd)
{
    struct stat here;
    struct stat open_one;
    return fstatat(at, name, &here, AT_SYMLINK_NOFOLLOW) == 0 && fstat(fd, &open_one) == 0 &&
           here.st_dev == open_one.st_dev && here.st_ino == open_one.st_ino;
}

int aio_dir_close(struct aio_dir *dir)
{
    int rc = 0;
    if (dir == NULL) {
        return 0;
    }
    char parent[PATH_BYTES];
    char leaf[256];
    if (dir->parent_fd >= 0 && split(dir->path, parent, leaf)) {
        if (!is_same(dir->parent_fd, leaf, dir->fd)) {
            rc = core_err_set(-ESTALE,
                              "%s is not the directory any more that was opened;"
                              " it is left as it is",
                              dir->path);
        } else if (unlinkat(dir->parent_fd, leaf, AT_REMOVEDIR) != 0 && errno != ENOTEMPTY &&
                   errno != EEXIST) {
            core_log(CORE_LOG_WARN, "cannot remove %s: %s", dir->path, strerror(errno));
        }
    }
    dispose(dir);
    return rc;
}

int aio_dir_fd(const struct aio_dir *dir)
{
    return dir->fd;
}

const char *aio_dir_path(const struct aio_dir *dir)
{
    return dir->path;
}

static int open_below(const struct aio_dir *dir, const char *name, int flags, mode_t mode)
{
    struct open_how how = {.flags = (unsigned)(flags | O_CLOEXEC | O_NOFOLLOW),
                           .mode = mode,
                           .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH};
    int fd = (int)syscall(SYS_openat2, dir->fd, name, &how, sizeof how);
    if (fd < 0 && (errno == ENOSYS || errno == EPERM)) {
        fd = strchr(name, '/') == NULL ? openat(dir->fd, name, flags | O_CLOEXEC | O_NOFOLLOW, mode)
                                       : -1;
    }
    return fd;
}

/* The kernel ends what a killed process had in flight after the process is gone, and until then the
 * file stays locked: a short patience. The directory's lock has already told who runs. */
static bool lock_soon(int fd)
{
    for (int i = 0; i < LOCK_TRIES; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
            return true;
        }
        if (errno != EWOULDBLOCK) {
            return false;
        }
        nanosleep(&(struct timespec){.tv_nsec = 1000000000 / LOCK_TRIES_A_SECOND}, NULL);
    }
    return false;
}

int aio_dir_create(struct aio_dir *dir, const char *name, bool direct)
{
    int fd = open_below(dir, name, O_RDWR | O_CREAT | O_EXCL | (direct ? O_DIRECT : 0), 0600);
    if (fd < 0) {
        int cause = errno;
        return core_err_set(-cause, "cannot make %s in %s: %s", name, dir->path, strerror(cause));
    }
    (void)lock_soon(fd); /* who only looks has it for a moment at most */
    return fd;
}

static const char *why_not_ours(int fd)
{
    struct stat info;
    if (fstat(fd, &info) != 0) {
        return "it cannot be looked at";
    }
    if (!S_ISREG(info.st_mode)) {
        return "it is no regular file";
    }
    if (info.st_uid != geteuid()) {
        return "it belongs to another user";
    }
    if (info.st_nlink != 1) {
        return "it has several names (hard links)";
    }
    if ((info.st_mode & 0077) != 0) {
        return "others may open it";
    }
    return lock_soon(fd) ? NULL : "a running process has it locked";
}

int aio_dir_open_file(struct aio_dir *dir, const char *name, bool direct)
{
    int fd = open_below(dir, name, O_RDWR | O_NONBLOCK, 0);
    if (fd < 0 && errno == ENOENT) {
        return -ENOENT;
    }
    if (fd < 0) {
        int cause = errno;
        return core_err_set(-cause, "%s in %s is not touched: %s", name, dir->path,
                            cause == ELOOP ? "it is a symbolic link" : strerror(cause));
    }
    const char *why = why_not_ours(fd);
    if (why == NULL && fcntl(fd, F_SETFL, direct ? O_DIRECT : 0) != 0) {
        why = "it cannot be opened for direct I/O";
    }
    if (why != NULL) {
        close(fd);
        return core_err_set(-EPERM, "%s in %s is not touched: %s", name, dir->path, why);
    }
    return fd;
}

int aio_dir_remove(struct aio_dir *dir, const char *name, int fd)
{
    if (!is_same(dir->fd, name, fd)) {
        return core_err_set(-ESTALE,
                            "%s in %s is not the file any more that was opened;"
                            " it is left as it is",
                            name, dir->path);
    }
    if (unlinkat(dir->fd, name, 0) != 0) {
        int cause = errno;
        return core_err_set(-cause, "cannot remove %s in %s: %s", name, dir->path, strerror(cause));
    }
    return 0;
}

int aio_dir_sync(struct aio_dir *dir)
{
    if (fsync(dir->fd) != 0) {
        int cause = errno;
        return core_err_set(-cause, "cannot sync directory %s: %s", dir->path, strerror(cause));
    }
    return 0;
}
