/* fs.c: statfs, statx and a block there and back. */
#include "aio/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/stat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "core/base/err.h"

enum { PROBE_BYTES = 4096, ALIGN_DEFAULT = 4096 };

static const struct {
    uint64_t magic;
    const char *type;
    enum aio_fs_verdict verdict; /* where the probe succeeds */
    const char *reason;
} known[] = {
    {0xef53, "ext4", AIO_FS_DIRECT, ""},
    {0x58465342, "xfs", AIO_FS_DIRECT, ""},
    {0xf2f52010, "f2fs", AIO_FS_DIRECT, ""},
    {0x9123683e, "btrfs", AIO_FS_DIRECT,
     "btrfs copies on write unless the file is marked (chattr +C, done here): expect less speed"},
    {0x794c7630, "overlayfs", AIO_FS_DIRECT,
     "overlayfs: the data lies in a container's layer; a real directory of a drive is better"},
    {0x01021994, "tmpfs", AIO_FS_BUFFERED, "tmpfs is memory, not a drive"},
    {0x858458f6, "ramfs", AIO_FS_BUFFERED, "ramfs is memory, not a drive"},
    {0x2fc12fc1, "zfs", AIO_FS_BUFFERED, "ZFS caches and compresses what is written"},
    {0x65735546, "fuse", AIO_FS_BUFFERED, "a FUSE file system may cache and promise what it likes"},
    {0x6969, "nfs", AIO_FS_REFUSED, "NFS is a network, not a drive, and its locks are not enough"},
    {0xff534d42, "cifs", AIO_FS_REFUSED, "CIFS is a network, not a drive"},
    {0xfe534d42, "smb2", AIO_FS_REFUSED, "SMB is a network, not a drive"},
    {0x01021997, "9p", AIO_FS_REFUSED, "9p is a network, not a drive"},
    {0x0bd00bd0, "lustre", AIO_FS_REFUSED, "Lustre is a network, not a drive"},
    {0x00c36400, "ceph", AIO_FS_REFUSED, "Ceph is a network, not a drive"},
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
                -EROFS, "%s is on a read-only file system: give a folder that can be written",
                name);
        }
        return core_err_set(-cause, "cannot make a%s file in %s: %s", direct ? " direct" : "", name,
                            strerror(cause));
    }
    return fd;
}

/* 1: what was written came back; 0: this file cannot do that; -errno: nothing can be written. */
static int there_and_back(int fd)
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
        return core_err_set(-cause, "cannot look at the file system of %s: %s", name,
                            strerror(cause));
    }
    int direct = 0;
    int fd = aio_fs_scratch(directory_fd, name, true);
    out->memory_align = out->offset_align = ALIGN_DEFAULT;
    if (fd >= 0) {
        direct = there_and_back(fd);
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
        snprintf(out->reason, sizeof out->reason, "direct I/O here needs offsets of %u bytes",
                 out->offset_align);
    }
    return 0;
}
