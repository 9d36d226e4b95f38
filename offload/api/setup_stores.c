/* setup_stores.c: the store's directories, and how much of their file systems they may use. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "aio/drive.h"
#include "aio/files.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/quote.h"
#include "offload/api/abi.h"
#include "offload/api/setup_parts.h"
#include "offload/run/measure.h"

/* The file system of a store's directory; the directory may not exist yet. */
struct disk {
    dev_t device;
    uint64_t free_bytes;
};

static int look_at(const char *directory, struct disk *out)
{
    char path[RUN_RATES_PATH_BYTES];
    struct statvfs disk;
    struct stat info;
    if (strlen(directory) >= sizeof path) {
        return core_err_set(-ENAMETOOLONG, "the path of the store's directory %.64s... is too long",
                            directory);
    }
    run_rates_nearest(directory, path);
    if (statvfs(path, &disk) != 0 || stat(path, &info) != 0) {
        return core_err_set(-errno, "the store's directory %s: %s", directory, strerror(errno));
    }
    *out = (struct disk){.device = info.st_dev,
                         .free_bytes = (uint64_t)disk.f_bavail * disk.f_frsize};
    return 0;
}

/* The paths on one file system. */
struct disk_use {
    uint32_t first;
    uint32_t unlimited;   /* number of paths without a limit */
    uint64_t limit_bytes; /* sum of the other limits */
};

static struct disk_use disk_use_of(const struct tide_engine_options *given,
                                   const struct disk *disks, uint32_t index)
{
    struct disk_use use = {.first = index};
    for (uint32_t i = (uint32_t)given->store_count; i-- > 0;) {
        const uint64_t bytes = given->stores[i].bytes;
        if (disks[i].device == disks[index].device) {
            use.first = i;
            use.unlimited += bytes == 0;
            use.limit_bytes = bytes > UINT64_MAX - use.limit_bytes ? UINT64_MAX
                                                                   : use.limit_bytes + bytes;
        }
    }
    return use;
}

/* Bytes for a path without a limit: an equal part of the free space, less the reserve and other
 * limits. */
static uint64_t free_share(uint64_t free_bytes, const struct disk_use *use)
{
    const uint64_t left = free_bytes > SETUP_RESERVE_BYTES ? free_bytes - SETUP_RESERVE_BYTES : 0;
    return left > use->limit_bytes ? (left - use->limit_bytes) / use->unlimited : 0;
}

/* A given limit may exceed the free space, because files of an earlier run may be removed first. */
static int path_bytes(const struct tide_engine_options *given, const struct disk *disks,
                      uint32_t index, uint64_t *out)
{
    const struct tide_store_path *path = &given->stores[index];
    const uint64_t free_bytes = disks[index].free_bytes;
    const struct disk_use use = disk_use_of(given, disks, index);
    if (path->bytes == 0) {
        char taken[96] = "";
        *out = free_share(free_bytes, &use);
        if (*out > 0) {
            return 0;
        }
        if (use.limit_bytes > 0) {
            snprintf(taken, sizeof taken,
                     ", the limits of other directories there are %" PRIu64 " MiB",
                     use.limit_bytes >> 20);
        }
        return core_err_set(
            -EFBIG,
            "the store's directory %s: its file system has %" PRIu64
            " MiB free%s, and tide leaves %" PRIu64
            " MiB free for others; free some space, or set the limit: --store %s:SIZE",
            path->directory, free_bytes >> 20, taken, (uint64_t)SETUP_RESERVE_BYTES >> 20,
            path->directory);
    }
    if (path->bytes < AIO_ALIGN_BYTES) {
        return core_err_set(-EINVAL,
                            "the store's directory %s: its limit of %" PRIu64
                            " bytes is less than the smallest write, %d bytes",
                            path->directory, path->bytes, AIO_ALIGN_BYTES);
    }
    *out = path->bytes;
    if (path->bytes > free_bytes) {
        core_log(CORE_LOG_WARN,
                 "%s: its limit is %" PRIu64 " bytes, but its file system has only %" PRIu64
                 " bytes free",
                 path->directory, path->bytes, free_bytes);
    } else if (use.limit_bytes > free_bytes && use.first == index) {
        core_log(CORE_LOG_WARN,
                 "%s: the limits of all directories on its file system are %" PRIu64
                 " bytes together, but only %" PRIu64 " bytes are free",
                 path->directory, use.limit_bytes, free_bytes);
    }
    return 0;
}

int setup_read_stores(struct setup *setup)
{
    const size_t count = setup->given.store_count;
    if (count > TIDE_STORES_MAX) {
        return core_err_set(-EINVAL, "store_count is %zu; 0 to %d are possible", count,
                            TIDE_STORES_MAX);
    }
    for (size_t i = 0; i < count; i++) {
        int rc = abi_struct_read_at("tide_store_path", setup->given.stores, i, &setup->stores[i],
                                    sizeof setup->stores[i]);
        if (rc != 0) {
            return core_err_prefix(rc, "store %zu", i);
        }
    }
    setup->given.stores = setup->stores;
    return 0;
}

enum { STORE_PATH_BYTES = 4096 };

/* A missing directory may be an unmounted drive's mount point; a run would fill the disk below,
 * unless it may create the directory. It never creates the parent. */
static int check_missing(const char *directory, bool may_create)
{
    char parent[STORE_PATH_BYTES];
    char above[STORE_PATH_BYTES + 4];
    char quoted[CORE_QUOTE_BYTES];
    struct stat info;
    struct stat top = {.st_dev = 0};
    if (stat(directory, &info) == 0 || errno != ENOENT) {
        return 0; /* exists, or opening reports the error */
    }
    snprintf(parent, sizeof parent, "%s", directory);
    for (size_t end = strlen(parent); end > 1 && parent[end - 1] == '/'; end--) {
        parent[end - 1] = '\0';
    }
    char *slash = strrchr(parent, '/');
    if (slash != NULL && slash != parent) {
        *slash = '\0';
    } else {
        snprintf(parent, sizeof parent, slash == NULL ? "." : "/");
    }
    snprintf(above, sizeof above, "%s/..", parent);
    const bool there = stat(parent, &info) == 0;
    if (there && may_create) {
        return 0;
    }
    if (there && stat(above, &top) == 0 && info.st_dev != top.st_dev) {
        return 0;
    }
    core_quote(directory, quoted);
    if (!there) {
        return core_err_set(-ENOENT,
                            "the store's directory %s does not exist, and neither does %s; mount "
                            "the drive, or create the directory (mkdir -p %s)",
                            directory, parent, quoted);
    }
    const bool root = info.st_dev == top.st_dev && info.st_ino == top.st_ino;
    return core_err_set(
        -ENOENT,
        "the store's directory %s does not exist, and %s%s; mount the drive, create the directory "
        "(mkdir -p %s), or let tide create it (--make-store)",
        directory, root ? "it would be on the file system of " : "no file system is mounted at ",
        parent, quoted);
}

int setup_fill_stores(struct setup *setup, bool makes)
{
    const struct tide_engine_options *given = &setup->given;
    struct run_options *options = &setup->options;
    const bool memory = given->io != NULL && strcmp(given->io, "mem") == 0;
    struct disk disks[TIDE_STORES_MAX] = {{0}};
    for (uint32_t i = 0; i < given->store_count; i++) {
        const char *directory = given->stores[i].directory;
        if (directory == NULL || directory[0] == '\0') {
            return core_err_set(-EINVAL, "store %" PRIu32 " has no directory", i);
        }
        if (memory) {
            continue;
        }
        /* With a `machine`, the store is not here. */
        int rc = given->machine == NULL ? aio_dir_check_parent(directory) : 0;
        if (rc == 0 && makes) {
            rc = check_missing(directory, given->stores_must_exist == 0);
        }
        if (rc == 0) {
            rc = look_at(directory, &disks[i]);
        }
        if (rc != 0) {
            return rc;
        }
    }
    for (uint32_t i = 0; i < given->store_count; i++) {
        uint64_t bytes = given->stores[i].bytes;
        int rc = memory ? 0 : path_bytes(given, disks, i, &bytes);
        if (rc != 0) {
            return rc;
        }
        options->stores[i] = (struct store_path){.directory = setup->texts[2 + i],
                                                 .bytes = bytes,
                                                 .weight = given->store_count == 1 ? 1 : 0};
    }
    options->store_count = (unsigned)given->store_count;
    return 0;
}
