/* store.c: whether a folder can hold a store: its file system, its space, direct I/O, its speed.
 * Owns one file without a name while it looks, so that nothing can stay behind. */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "core/base/err.h"
#include "offload/doctor/doctor.h"
#include "offload/doctor/measure.h"

static const char topic[] = "store";

#define MIB             (UINT64_C(1) << 20)
#define GIB             (UINT64_C(1) << 30)
#define FILE_BYTES_MAX  GIB
#define FREE_GOOD_BYTES (10 * GIB)

struct store {
    struct doctor *doctor;
    const char *folder; /* borrowed */
    uint64_t free_bytes;
    int file; /* owned; -1 where none could be made */
    bool direct;
};

/* File systems by the number that statfs gives; a cure where one is a bad place for a store. */
static const struct kind {
    unsigned long magic;
    const char *name;
    const char *trouble;
    const char *cure;
} kinds[] = {
    {EXT4_SUPER_MAGIC, "ext4", NULL, NULL},
    {0x58465342, "xfs", NULL, NULL},
    {F2FS_SUPER_MAGIC, "f2fs", NULL, NULL},
    {BTRFS_SUPER_MAGIC, "btrfs", "writes go to new places each time",
     "sudo chattr +C FOLDER while it is empty"},
    {0x2fc12fc1, "zfs", "direct I/O goes through its cache", "choose a --store on ext4 or xfs"},
    {TMPFS_MAGIC, "tmpfs", "it is memory, not a drive", "choose a --store on a drive"},
    {RAMFS_MAGIC, "ramfs", "it is memory, not a drive", "choose a --store on a drive"},
    {OVERLAYFS_SUPER_MAGIC, "overlay", "it is the container's layer",
     "docker run -v /path/on/a/drive:/store ... and --store /store"},
    {NFS_SUPER_MAGIC, "nfs", "it is on another machine", "choose a --store on a local drive"},
    {0xff534d42, "cifs", "it is on another machine", "choose a --store on a local drive"},
    {0xfe534d42, "smb2", "it is on another machine", "choose a --store on a local drive"},
    {0x01021997, "9p", "it is the host's, behind a slow protocol",
     "choose a --store on a drive of this machine"},
    {0x65735546, "fuse", "a program stands between us and the drive",
     "choose a --store on a local drive"},
    {0x0BD00BD0, "lustre", NULL, NULL},
    {0x47504653, "gpfs", NULL, NULL},
};

static const struct kind *kind_of(unsigned long magic)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (kinds[i].magic == (magic & 0xffffffffUL)) {
            return &kinds[i];
        }
    }
    return NULL;
}

static void fail(const struct store *store, const char *cure, const char *what, int error)
{
    doctor_say(store->doctor,
               &(struct doctor_line){
                   .verdict = TIDE_FAIL, .topic = topic, .subject = store->folder, .cure = cure},
               "%s: %s", what, strerror(error));
}

/* Answers whether the folder can be used at all. */
static bool say_folder(const struct store *store)
{
    struct stat info;
    char cure[512];
    if (stat(store->folder, &info) != 0) {
        int error = errno;
        snprintf(cure, sizeof cure, error == ENOENT ? "mkdir -p '%s'" : "namei -l '%s'",
                 store->folder);
        fail(store, cure, "it cannot be used", error);
        return false;
    }
    if (!S_ISDIR(info.st_mode)) {
        fail(store, "name a folder", "it cannot be used", ENOTDIR);
        return false;
    }
    if (access(store->folder, W_OK | X_OK) != 0) {
        int error = errno;
        snprintf(cure, sizeof cure,
                 error == EROFS ? "sudo mount -o remount,rw the file system of '%s'"
                                : "sudo chown \"$USER\" '%s'",
                 store->folder);
        fail(store, cure, "it cannot be written to", error);
        return false;
    }
    return true;
}

/* The file system and the space that is left; false where there is no room to go on. */
static bool say_space(struct store *store)
{
    struct statfs info;
    if (statfs(store->folder, &info) != 0) {
        fail(store, "df -h; mount", "its file system cannot be asked", errno);
        return false;
    }
    const struct kind *kind = kind_of((unsigned long)info.f_type);
    char size[DOCTOR_SIZE_BYTES];
    char total[DOCTOR_SIZE_BYTES];
    char cure[640];
    store->free_bytes = (uint64_t)info.f_bavail * (uint64_t)info.f_bsize;
    doctor_size(store->free_bytes, size);
    doctor_size((uint64_t)info.f_blocks * (uint64_t)info.f_bsize, total);
    snprintf(cure, sizeof cure,
             "du -xh --max-depth=2 '%s' | sort -h | tail, and remove what is not "
             "needed; or choose another --store",
             store->folder);
    struct doctor_line line = {.topic = topic,
                               .subject = store->folder,
                               .figure = "free_bytes",
                               .value = (double)store->free_bytes};
    if (store->free_bytes < FREE_GOOD_BYTES) {
        line.verdict = store->free_bytes < MIB ? TIDE_FAIL : TIDE_WARN;
        line.cure = cure;
    } else if (kind != NULL && kind->trouble != NULL) {
        line.verdict = TIDE_WARN;
        line.cure = kind->cure;
    }
    bool trouble = kind != NULL && kind->trouble != NULL;
    doctor_say(store->doctor, &line, "%s, %s free of %s%s%s",
               kind != NULL ? kind->name : "an unknown file system", size, total,
               trouble ? "; " : "", trouble ? kind->trouble : "");
    return line.verdict != TIDE_FAIL;
}

/* A file without a name: O_TMPFILE, else one that is unlinked at once. */
static int open_nameless(const char *folder, int flags)
{
    int file = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);
    if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT)) {
        return file;
    }
    char *path = NULL;
    if (asprintf(&path, "%s/.tide-doctor-%d", folder, (int)getpid()) < 0) {
        errno = ENOMEM;
        return -1;
    }
    file = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
    int error = errno;
    unlink(path);
    free(path);
    errno = error;
    return file;
}

static void open_file(struct store *store)
{
    store->file = open_nameless(store->folder, O_DIRECT);
    store->direct = store->file >= 0;
    if (store->file < 0 && errno == EINVAL) {
        store->file = open_nameless(store->folder, 0);
    }
}

/* What alignment direct I/O needs; 0 where the kernel does not say (before 6.1). */
static unsigned direct_align(int file)
{
#ifdef STATX_DIOALIGN
    struct statx info;
    if (statx(file, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0 &&
        (info.stx_mask & STATX_DIOALIGN) != 0) {
        return info.stx_dio_offset_align;
    }
#else
    (void)file;
#endif
    return 0;
}

static void say_direct(const struct store *store)
{
    unsigned align = direct_align(store->file);
    if (!store->direct) {
        doctor_say(store->doctor,
                   &(struct doctor_line){.verdict = TIDE_WARN,
                                         .topic = topic,
                                         .subject = store->folder,
                                         .cure = "choose a --store on ext4 or xfs"},
                   "no direct I/O: every byte is copied through the page cache");
    } else if (align > 4096) {
        doctor_say(store->doctor,
                   &(struct doctor_line){.verdict = TIDE_WARN,
                                         .topic = topic,
                                         .subject = store->folder,
                                         .cure = "choose a --store with blocks of 4096 bytes"},
                   "direct I/O needs blocks of %u bytes", align);
    } else if (align > 0) {
        doctor_say(store->doctor, &(struct doctor_line){.topic = topic, .subject = store->folder},
                   "direct I/O works, in blocks of %u bytes", align);
    } else {
        doctor_say(store->doctor, &(struct doctor_line){.topic = topic, .subject = store->folder},
                   "direct I/O works");
    }
}

static void say_rates(const struct store *store)
{
    uint64_t bytes = store->free_bytes / 4 < FILE_BYTES_MAX ? store->free_bytes / 4
                                                            : FILE_BYTES_MAX;
    struct doctor_rates rates = {0};
    bytes -= bytes % MIB;
    int rc = doctor_measure(store->file, bytes > 0 ? bytes : MIB, store->doctor->store_ns, &rates);
    if (rc != 0) {
        doctor_say(store->doctor,
                   &(struct doctor_line){.verdict = TIDE_FAIL,
                                         .topic = topic,
                                         .subject = store->folder,
                                         .cure = rc == -ENOSPC || rc == -EDQUOT
                                                     ? "df -h and quota -s; then make room"
                                                     : "sudo dmesg | tail, and replace the drive "
                                                       "where it reports errors"},
                   "%s", core_err_sentence());
        return;
    }
    const char *how = store->direct ? "direct, blocks of 1 MiB" : "through the page cache";
    doctor_say(store->doctor,
               &(struct doctor_line){.topic = topic,
                                     .subject = store->folder,
                                     .figure = "write_bytes_per_second",
                                     .value = rates.write},
               "%.2f GB/s written (%s)", rates.write / 1e9, how);
    doctor_say(store->doctor,
               &(struct doctor_line){.topic = topic,
                                     .subject = store->folder,
                                     .figure = "read_bytes_per_second",
                                     .value = rates.read},
               "%.2f GB/s read (%s)", rates.read / 1e9, how);
}

void doctor_store(struct doctor *doctor, const char *folder)
{
    struct store store = {.doctor = doctor, .folder = folder, .file = -1};
    if (!say_folder(&store) || !say_space(&store)) {
        return;
    }
    open_file(&store);
    if (store.file < 0) {
        fail(&store, "ls -ld the folder, df -i", "no file can be made in it", errno);
        return;
    }
    struct stat info;
    if (fstat(store.file, &info) == 0) {
        doctor_drive(doctor, major(info.st_dev), minor(info.st_dev));
    }
    say_direct(&store);
    say_rates(&store);
    close(store.file);
}
