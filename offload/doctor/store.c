/* store.c: whether a folder can hold a store. aio measures with unnamed files. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "aio/files.h"
#include "aio/measure.h"
#include "core/base/err.h"
#include "core/base/quote.h"
#include "offload/doctor/doctor.h"

static const char topic[] = "store";

#define MIB             (UINT64_C(1) << 20)
#define GIB             (UINT64_C(1) << 30)
#define FREE_GOOD_BYTES (10 * GIB)
#define SCRATCH_BYTES   (128 * MIB)

enum { CURE_BYTES = 2 * CORE_QUOTE_BYTES + 128 };

static const struct cure {
    const char *type;
    const char *text;
} cures[] = {
    {"btrfs", "sudo chattr +C FOLDER while it is empty, or choose a --store on ext4 or xfs"},
    {"overlayfs", "docker run -v /a/folder/of/a/drive:/store ... and --store /store"},
    {"zfs", "choose a --store on ext4 or xfs"},
};

/* Returns advice for a file system that is bad for stores. */
static const char *cure_of(const char *type)
{
    for (size_t i = 0; i < sizeof cures / sizeof cures[0]; i++) {
        if (strcmp(cures[i].type, type) == 0) {
            return cures[i].text;
        }
    }
    return "choose a --store on a drive of this machine with ext4 or xfs";
}

static void say(struct doctor *doctor, enum tide_verdict verdict, const char *folder,
                const char *cure, const char *text)
{
    doctor_say(
        doctor,
        &(struct doctor_line){.verdict = verdict, .topic = topic, .subject = folder, .cure = cure},
        "%s", text);
}

/* Reports this thread's last message, and advice for its code. */
static void say_failure(struct doctor *doctor, const char *folder, int rc)
{
    char cure[CURE_BYTES];
    char quoted[CORE_QUOTE_BYTES];
    core_quote(folder, quoted);
    switch (rc) {
    case -EACCES:
    case -EPERM:
        /* The folder may belong to the system, so its owner stays. */
        snprintf(
            cure, sizeof cure,
            "sudo install -d -o \"$(id -un)\" %s/tide, and --store %s/tide; or choose a --store "
            "of your own",
            quoted, quoted);
        break;
    case -EROFS:
        snprintf(cure, sizeof cure,
                 "sudo mount -o remount,rw \"$(df --output=target %s | tail -1)\"", quoted);
        break;
    case -ENOSPC:
    case -EDQUOT:
        snprintf(cure, sizeof cure,
                 "df -h %s; df -i %s; quota -s; then free what is used up: space, files or quota",
                 quoted, quoted);
        break;
    case -ELOOP:
        snprintf(cure, sizeof cure, "name the folder itself: --store \"$(realpath %s)\"", quoted);
        break;
    case -ENOENT: snprintf(cure, sizeof cure, "mkdir -p %s", quoted); break;
    case -EIO:
        snprintf(cure, sizeof cure, "sudo dmesg | tail; replace the drive if it reports errors");
        break;
    case -EAGAIN: snprintf(cure, sizeof cure, "%s", doctor_threads_cure); break;
    case -EMFILE:
    case -ENFILE: snprintf(cure, sizeof cure, "ulimit -n 65536"); break;
    case -EFBIG: snprintf(cure, sizeof cure, "ulimit -f unlimited"); break;
    case -ENOMEM: snprintf(cure, sizeof cure, "end other programs, or raise the limit"); break;
    default: snprintf(cure, sizeof cure, "choose another --store"); break;
    }
    say(doctor, TIDE_FAIL, folder, cure, core_err_message());
}

static bool say_folder(struct doctor *doctor, const char *folder)
{
    struct stat info;
    int error = 0;
    if (stat(folder, &info) != 0) {
        error = errno;
    } else if (!S_ISDIR(info.st_mode)) {
        error = ENOTDIR;
    } else if (access(folder, W_OK | X_OK) != 0) {
        error = errno;
    }
    if (error != 0) {
        core_err_set(-error, "it cannot be written to: %s", strerror(error));
        say_failure(doctor, folder, -error);
    }
    return error == 0;
}

/* Reports the file system and its free space; false: a store cannot work there. */
static bool say_space(struct doctor *doctor, const char *folder, uint64_t *free_bytes)
{
    struct statfs info;
    struct aio_fs fs;
    if (statfs(folder, &info) != 0) {
        int error = errno;
        core_err_set(-error, "its file system cannot be examined: %s", strerror(error));
        say_failure(doctor, folder, -error);
        return false;
    }
    if (info.f_blocks == 0) {
        say(doctor, TIDE_FAIL, folder, cure_of(""),
            "a pseudo file system of the kernel, which cannot store files");
        return false;
    }
    aio_fs_judge((uint64_t)(uint32_t)info.f_type, true, &fs);
    uint64_t left = (uint64_t)info.f_bavail * (uint64_t)info.f_bsize;
    char size[DOCTOR_SIZE_BYTES];
    char total[DOCTOR_SIZE_BYTES];
    char cure[CURE_BYTES];
    char quoted[CORE_QUOTE_BYTES];
    snprintf(cure, sizeof cure,
             "du -xh --max-depth=2 %s | sort -h | tail, and remove what is not needed; or choose "
             "another --store",
             core_quote(folder, quoted));
    struct doctor_line line = {
        .topic = topic, .subject = folder, .figure = "free_bytes", .value = (double)left};
    if (left < FREE_GOOD_BYTES) {
        line.verdict = left < MIB ? TIDE_FAIL : TIDE_WARN;
        line.cure = cure;
    }
    doctor_say(doctor, &line, "%s, %s free of %s", fs.type, doctor_size(left, size),
               doctor_size((uint64_t)info.f_blocks * (uint64_t)info.f_bsize, total));
    *free_bytes = left;
    return line.verdict != TIDE_FAIL;
}

/* Tries direct I/O; false: it fails, or the engine would refuse the file system. */
static bool say_direct(struct doctor *doctor, const char *folder, struct aio_fs *fs)
{
    int directory = aio_dir_look(folder);
    int rc = directory < 0 ? directory : aio_fs_look(directory, folder, fs);
    if (directory >= 0) {
        close(directory);
    }
    if (rc != 0) {
        say_failure(doctor, folder, rc);
        return false;
    }
    if (fs->verdict == AIO_FS_DIRECT && fs->reason[0] == '\0') {
        doctor_say(doctor, &(struct doctor_line){.topic = topic, .subject = folder},
                   "direct I/O works, in blocks of %u bytes", fs->offset_align);
        return true;
    }
    bool refused = fs->verdict == AIO_FS_REFUSED;
    say(doctor, refused ? TIDE_FAIL : TIDE_WARN, folder, cure_of(fs->type), fs->reason);
    return !refused;
}

/* Returns whether each run can create its own folder there. */
static bool say_safety(struct doctor *doctor, const char *folder)
{
    char cure[CURE_BYTES];
    char quoted[CORE_QUOTE_BYTES];
    const int rc = aio_dir_check_parent(folder);
    if (rc == -EPERM) {
        snprintf(cure, sizeof cure, "chmod o-w %s", core_quote(folder, quoted));
        say(doctor, TIDE_FAIL, folder, cure,
            "everybody can write to it: a directory created there is not safe");
    } else if (rc != 0) {
        say_failure(doctor, folder, rc);
    }
    return rc == 0;
}

static void say_rate(struct doctor *doctor, const char *folder, const char *figure, double rate,
                     const char *how)
{
    doctor_say(
        doctor,
        &(struct doctor_line){.topic = topic, .subject = folder, .figure = figure, .value = rate},
        "%.2f GB/s %s", rate / 1e9, how);
}

static void say_rates(struct doctor *doctor, const char *folder, uint64_t free_bytes)
{
    struct aio_rates rates = {0};
    /* On a slow drive, writing the scratch file takes about as long as the measurement. */
    uint64_t bytes = (uint64_t)(doctor->store_ns / 10000000) * MIB;
    bytes = bytes < SCRATCH_BYTES ? bytes : SCRATCH_BYTES;
    bytes = bytes < free_bytes / 4 ? bytes : free_bytes / 4;
    struct aio_measure_options options = {.bytes = bytes > MIB / 4 ? bytes : MIB / 4,
                                          .seconds = (double)doctor->store_ns / 1e9};
    int rc = aio_measure_path(folder, &options, &rates);
    if (rc != 0) {
        say_failure(doctor, folder, rc);
        return;
    }
    say_rate(doctor, folder, "write_bytes_per_second", rates.write_bytes_per_s, "written");
    say_rate(doctor, folder, "read_bytes_per_second", rates.read_bytes_per_s, "read");
    say_rate(doctor, folder, "mixed_bytes_per_second", rates.mixed_bytes_per_s,
             "written and read at once");
}

void doctor_store(struct doctor *doctor, const char *folder)
{
    struct stat info;
    struct aio_fs fs;
    uint64_t free_bytes = 0;
    if (!say_folder(doctor, folder) || !say_space(doctor, folder, &free_bytes)) {
        return;
    }
    if (stat(folder, &info) == 0) {
        doctor_drive(doctor, major(info.st_dev), minor(info.st_dev));
    }
    if (say_safety(doctor, folder) && say_direct(doctor, folder, &fs)) {
        say_rates(doctor, folder, free_bytes);
    }
}
