/* directory.c: opens and checks directories and files by descriptor and inode, so that nobody can
 * exchange them meanwhile. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/openat2.h>
#include <linux/stat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "aio/files.h"
#include "core/base/err.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/quote.h"

enum { PATH_BYTES = 4096, LOCK_TRIES = 100, LOCK_TRIES_A_SECOND = 100 };

struct aio_dir {
    int fd;                 /* owned */
    struct core_lock *lock; /* owned */
    int parent_fd;          /* owned; -1: the directory existed */
    char path[PATH_BYTES];
};

static const int dir_flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;

/* Opens component after component, where openat2 is missing or forbidden. */
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

static void copy_to_link(const char *path, char *out)
{
    struct stat info;
    size_t end = 0;
    do {
        end += strspn(path + end, "/");
        end += strcspn(path + end, "/");
        snprintf(out, PATH_BYTES, "%.*s", (int)end, path);
    } while (path[end] != '\0' && !(lstat(out, &info) == 0 && S_ISLNK(info.st_mode)));
}

static int explain(const char *path, int cause)
{
    if (cause == ELOOP) {
        char link[PATH_BYTES];
        char quoted[CORE_QUOTE_BYTES];
        copy_to_link(path, link);
        core_quote(link, quoted);
        return core_err_set(-ELOOP,
                            "%s: %s is a symbolic link, whose target could change; name the"
                            " target instead (realpath %s)",
                            path, link, quoted);
    }
    return core_err_set(-cause, "cannot open directory %s: %s", path, strerror(cause));
}

int aio_dir_look(const char *path)
{
    int fd = open_plain(path);
    return fd >= 0 ? fd : explain(path, errno);
}

/* Returns false if the last name cannot be created ("/", ".."). */
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

static int check_parent(int fd, const char *path)
{
    char quoted[CORE_QUOTE_BYTES];
    struct stat info;
    if (fstat(fd, &info) != 0) {
        return explain(path, errno);
    }
    if ((info.st_mode & S_IWOTH) != 0 && (info.st_mode & S_ISVTX) == 0) {
        return core_err_set(-EPERM,
                            "everybody can write to %s: a directory created there is not safe; "
                            "chmod o-w %s, or name another directory",
                            path, core_quote(path, quoted));
    }
    return 0;
}

int aio_dir_check_parent(const char *path)
{
    const int fd = open_plain(path);
    if (fd < 0) {
        return errno == ENOENT ? 0 : explain(path, errno);
    }
    const int rc = check_parent(fd, path);
    close(fd);
    return rc;
}

static int make(struct aio_dir *dir)
{
    char parent[PATH_BYTES];
    char leaf[256];
    if (!split(dir->path, parent, leaf)) {
        return explain(dir->path, ENOENT);
    }
    dir->parent_fd = open_plain(parent);
    if (dir->parent_fd < 0) {
        return explain(parent, errno);
    }
    const int rc = check_parent(dir->parent_fd, parent);
    if (rc != 0) {
        return rc;
    }
    const bool made = mkdirat(dir->parent_fd, leaf, 0700) == 0;
    if (!made && errno != EEXIST) {
        int cause = errno;
        return core_err_set(-cause, "cannot create directory %s: %s", dir->path, strerror(cause));
    }
    dir->fd = openat(dir->parent_fd, leaf, dir_flags | O_NOFOLLOW);
    if (dir->fd < 0) {
        return explain(dir->path, errno == ENOTDIR ? ELOOP : errno);
    }
    if (!made) { /* another process has created it meanwhile */
        close(dir->parent_fd);
        dir->parent_fd = -1;
    }
    return 0;
}

static int check(const struct aio_dir *dir)
{
    struct stat info;
    if (fstat(dir->fd, &info) != 0) {
        return explain(dir->path, errno);
    }
    if (info.st_uid != geteuid()) {
        return core_err_set(-EPERM, "%s belongs to user %u, not to user %u who runs this",
                            dir->path, info.st_uid, geteuid());
    }
    if ((info.st_mode & 0077) != 0) {
        return core_err_set(-EPERM,
                            "%s is open to others (mode %04o); training data belongs in a directory"
                            " of its own: give one that does not exist yet, or chmod 700 %s",
                            dir->path, info.st_mode & 07777, dir->path);
    }
    return 0;
}

/* Checks after locking that the directory still exists: an ending run removes its own. */
static int lock(struct aio_dir *dir)
{
    struct stat info;
    int rc = core_lock_take(dir->fd, NULL, &dir->lock);
    if (rc != 0) {
        return rc == -EWOULDBLOCK
                   ? core_err_set(-EBUSY,
                                  "%s is in use by another run; wait for its end, or name "
                                  "another directory",
                                  dir->path)
                   : core_err_set(rc, "cannot lock %s: %s", dir->path, strerror(-rc));
    }
    if (fstat(dir->fd, &info) != 0 || info.st_nlink == 0) {
        return core_err_set(-EAGAIN, "%s was removed while it was being opened; try again",
                            dir->path);
    }
    return 0;
}

static void dispose(struct aio_dir *dir)
{
    core_lock_drop(dir->lock);
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
        return core_err_set(-EINVAL, "the path of a directory must have 1 to %d bytes",
                            PATH_BYTES - 1);
    }
    struct aio_dir *dir = calloc(1, sizeof *dir);
    if (dir == NULL) {
        return core_err_set(-ENOMEM, "out of memory while opening %s", path);
    }
    dir->parent_fd = -1;
    snprintf(dir->path, sizeof dir->path, "%s", path);
    dir->fd = open_plain(path);
    int rc = dir->fd >= 0 ? 0 : errno == ENOENT ? make(dir) : explain(path, errno);
    if (rc != 0) {
        goto fail;
    }
    rc = check(dir);
    if (rc != 0) {
        goto fail;
    }
    rc = lock(dir);
    if (rc != 0) {
        goto fail;
    }
    *out = dir;
    return 0;
fail:
    dispose(dir);
    return rc;
}

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
                              "%s is no longer the directory that was opened;"
                              " it is not removed",
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

/* Tries up to LOCK_TRIES times: I/O of a killed process keeps its file locked for a while. */
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
        return core_err_set(-cause, "cannot create %s in %s: %s", name, dir->path, strerror(cause));
    }
    (void)lock_soon(fd); /* aio_look alone can hold this lock, briefly */
    return fd;
}

static const char *why_not_ours(int fd)
{
    struct stat info;
    if (fstat(fd, &info) != 0) {
        return "it cannot be examined";
    }
    if (!S_ISREG(info.st_mode)) {
        return "it is not a regular file";
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
    return NULL;
}

int aio_dir_open_file(struct aio_dir *dir, const char *name, bool direct, bool *locked)
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
    if (why == NULL) {
        *locked = lock_soon(fd);
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
                            "%s in %s is no longer the file that was opened;"
                            " it is not removed",
                            name, dir->path);
    }
    if (unlinkat(dir->fd, name, 0) != 0) {
        int cause = errno;
        return core_err_set(-cause, "cannot remove %s in %s: %s", name, dir->path, strerror(cause));
    }
    return 0;
}

enum { PROBE_BYTES = 4096, ALIGN_DEFAULT = 4096 };

static const struct {
    uint64_t magic;
    const char *type;
    enum aio_fs_verdict verdict; /* if direct I/O works */
    const char *reason;
} known[] = {
    {0xef53, "ext4", AIO_FS_DIRECT, ""},
    {0x58465342, "xfs", AIO_FS_DIRECT, ""},
    {0xf2f52010, "f2fs", AIO_FS_DIRECT, ""},
    {0x9123683e, "btrfs", AIO_FS_DIRECT,
     "btrfs may be slower, although copy-on-write is disabled for the store (chattr +C)"},
    {0x794c7630, "overlayfs", AIO_FS_DIRECT,
     "overlayfs: the data is in a layer of a container; a directory on a drive is better"},
    {0x01021994, "tmpfs", AIO_FS_BUFFERED, "tmpfs is memory, not a drive"},
    {0x858458f6, "ramfs", AIO_FS_BUFFERED, "ramfs is memory, not a drive"},
    {0x2fc12fc1, "zfs", AIO_FS_BUFFERED, "ZFS caches and compresses data"},
    {0x65735546, "fuse", AIO_FS_BUFFERED,
     "a FUSE file system may cache data and report it as durable"},
    {0x6969, "nfs", AIO_FS_REFUSED,
     "NFS is a network file system, and its locks are not sufficient"},
    {0xff534d42, "cifs", AIO_FS_REFUSED, "CIFS is a network file system"},
    {0xfe534d42, "smb2", AIO_FS_REFUSED, "SMB is a network file system"},
    {0x01021997, "9p", AIO_FS_REFUSED, "9p is a network file system"},
    {0x0bd00bd0, "lustre", AIO_FS_REFUSED, "Lustre is a network file system"},
    {0x00c36400, "ceph", AIO_FS_REFUSED, "Ceph is a network file system"},
};

void aio_fs_judge(uint64_t magic, bool direct, struct aio_fs *out)
{
    snprintf(out->type, sizeof out->type, "0x%" PRIx64, magic);
    out->verdict = AIO_FS_DIRECT;
    out->reason[0] = '\0';
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (known[i].magic == magic) {
            snprintf(out->type, sizeof out->type, "%s", known[i].type);
            snprintf(out->reason, sizeof out->reason, "%s", known[i].reason);
            out->verdict = known[i].verdict;
        }
    }
    if (out->verdict == AIO_FS_DIRECT && !direct) {
        out->verdict = AIO_FS_BUFFERED;
        snprintf(out->reason, sizeof out->reason, "%.24s has no direct I/O here", out->type);
    }
}

int aio_fs_scratch(int directory_fd, const char *name, bool direct)
{
    int flags = O_RDWR | O_CLOEXEC | (direct ? O_DIRECT : 0);
    int fd = openat(directory_fd, ".", flags | O_TMPFILE, 0600);
    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT)) {
        char own[64];
        snprintf(own, sizeof own, ".tide-scratch-%ld", (long)getpid());
        fd = openat(directory_fd, own, flags | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
        if (fd >= 0) {
            unlinkat(directory_fd, own, 0);
        }
    }
    if (fd < 0) {
        int cause = errno;
        if (cause == EROFS) {
            return core_err_set(
                -EROFS, "%s is on a read-only file system: give a writable directory", name);
        }
        return core_err_set(-cause, "cannot create a file%s in %s: %s",
                            direct ? " for direct I/O" : "", name, strerror(cause));
    }
    return fd;
}

/* Returns 1 if the data read back is equal, 0 if it differs or the file refuses such I/O, else
 * -errno. */
static int write_and_read(int fd)
{
    void *memory = NULL;
    if (posix_memalign(&memory, PROBE_BYTES, 2 * PROBE_BYTES) != 0) {
        return -ENOMEM;
    }
    unsigned char *out = memory;
    unsigned char *in = out + PROBE_BYTES;
    memset(out, 0x5a, PROBE_BYTES);
    memset(in, 0, PROBE_BYTES);
    int rc = 0;
    errno = 0; /* a short write sets none */
    if (pwrite(fd, out, PROBE_BYTES, 0) != PROBE_BYTES) {
        rc = errno == ENOSPC || errno == EDQUOT || errno == EIO ? -errno : 0;
    } else if (pread(fd, in, PROBE_BYTES, 0) == PROBE_BYTES) {
        rc = memcmp(in, out, PROBE_BYTES) == 0;
    }
    free(memory);
    return rc;
}

static void ask_alignment(int fd, struct aio_fs *out)
{
    out->memory_align = out->offset_align = ALIGN_DEFAULT;
#ifdef STATX_DIOALIGN
    struct statx info;
    if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0 &&
        (info.stx_mask & STATX_DIOALIGN) != 0 && info.stx_dio_offset_align != 0) {
        out->memory_align = info.stx_dio_mem_align;
        out->offset_align = info.stx_dio_offset_align;
    }
#else
    (void)fd;
#endif
}

int aio_fs_look(int directory_fd, const char *name, struct aio_fs *out)
{
    struct statfs info;
    if (fstatfs(directory_fd, &info) != 0) {
        int cause = errno;
        return core_err_set(-cause, "cannot examine the file system of %s: %s", name,
                            strerror(cause));
    }
    int direct = 0;
    int fd = aio_fs_scratch(directory_fd, name, true);
    out->memory_align = out->offset_align = ALIGN_DEFAULT;
    if (fd >= 0) {
        direct = write_and_read(fd);
        ask_alignment(fd, out);
        close(fd);
    } else if (fd != -EINVAL) {
        return fd;
    }
    if (direct < 0) {
        return core_err_set(direct, "cannot write to %s: %s", name, strerror(-direct));
    }
    out->free_bytes = (uint64_t)info.f_bavail * (uint64_t)info.f_bsize;
    aio_fs_judge((uint64_t)(uint32_t)info.f_type, direct > 0, out);
    if (out->offset_align > ALIGN_DEFAULT) {
        out->verdict = AIO_FS_BUFFERED;
        snprintf(out->reason, sizeof out->reason,
                 "direct I/O needs offsets aligned to %u bytes here", out->offset_align);
    }
    return 0;
}
