/* shelf.c: locks the folder, lists and rotates checkpoints, and removes remains of killed runs. */
#include "offload/store/shelf.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "offload/model/publish.h"
#include "offload/store/checkpoint_remove.h"

enum { PATH_BYTES = 4096 };

static const char lock_name[] = ".tide-lock";
static const char prefix[] = "checkpoint-";
static const char unfinished[] = ".partial";
static const char spare[] = ".spare";
static const char removed[] = ".removed";

struct store_shelf {
    char directory[PATH_BYTES - 64];
    int fd;                 /* the folder */
    int file;               /* the lock file */
    struct core_lock *lock; /* owned */
    bool has_spare;
    uint64_t spare; /* step of the spare checkpoint */
};

const char *store_shelf_directory(const struct store_shelf *shelf)
{
    return shelf->directory;
}

const char *store_shelf_path(const char *directory, uint64_t step, char *text, size_t bytes)
{
    snprintf(text, bytes, "%s/%s%" PRIu64, directory, prefix, step);
    return text;
}

/* ---- names ---- */

static int compare_steps(const void *left, const void *right)
{
    const uint64_t a = *(const uint64_t *)left;
    const uint64_t b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

static int list(DIR *dir, const char *end, uint64_t **steps, size_t *count)
{
    size_t room = 0;
    uint64_t *made = NULL;
    size_t found = 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        uint64_t step;
        if (!core_file_is_numbered(entry->d_name, prefix, end, &step)) {
            continue;
        }
        if (found == room) {
            room = room == 0 ? 16 : room * 2;
            uint64_t *wider = realloc(made, room * sizeof *made);
            if (wider == NULL) {
                free(made);
                return core_err_set(-ENOMEM, "no memory for the names of %zu checkpoints", room);
            }
            made = wider;
        }
        made[found++] = step;
    }
    if (found > 0) {
        qsort(made, found, sizeof *made, compare_steps);
    }
    *steps = made;
    *count = found;
    return 0;
}

/* Other folders may have such names. A checkpoint without a manifest is listed, so that the caller
 * reports the damage. */
static bool is_checkpoint(const char *directory, uint64_t step)
{
    static const char *const files[] = {MODEL_MANIFEST_NAME, "weights.safetensors"};
    char folder[PATH_BYTES + 64];
    char path[2][PATH_BYTES + 128];
    store_shelf_path(directory, step, folder, sizeof folder);
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%s/%s", folder, files[i]);
    }
    return access(path[0], F_OK) == 0 ||
           (access(path[1], F_OK) == 0 && !store_checkpoint_is_marked(folder));
}

static size_t keep_checkpoints(const char *directory, uint64_t *steps, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (is_checkpoint(directory, steps[i])) {
            steps[kept++] = steps[i];
        }
    }
    return kept;
}

int store_shelf_list(const char *directory, uint64_t **steps, size_t *count)
{
    DIR *dir = opendir(directory);
    if (dir == NULL && errno != ENOENT) {
        const int error = errno;
        return core_err_set(-error, "the folder %s cannot be read: %s", directory, strerror(error));
    }
    if (dir == NULL) {
        *steps = NULL;
        *count = 0;
        return 0;
    }
    int rc = list(dir, "", steps, count);
    closedir(dir);
    if (rc == 0) {
        *count = keep_checkpoints(directory, *steps, *count);
    }
    return rc;
}

/* ---- the lock ---- */

static int take_lock(struct store_shelf *shelf)
{
    shelf->file = openat(shelf->fd, lock_name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (shelf->file < 0) {
        const int error = errno;
        return core_err_set(-error, "%s/%s cannot be created: %s", shelf->directory, lock_name,
                            strerror(error));
    }
    const int rc = core_lock_take(shelf->fd, lock_name, &shelf->lock);
    if (rc == -EWOULDBLOCK) {
        return core_err_set(-EBUSY,
                            "%s is in use by another run; wait for its end, or name another "
                            "directory",
                            shelf->directory);
    }
    return rc == 0 ? 0
                   : core_err_set(rc, "%s/%s cannot be locked: %s", shelf->directory, lock_name,
                                  strerror(-rc));
}

bool store_shelf_is(const struct store_shelf *shelf, const char *directory)
{
    char path[PATH_BYTES + 64];
    struct stat named;
    struct stat held;
    snprintf(path, sizeof path, "%s/%s", directory, lock_name);
    return lstat(path, &named) == 0 && fstat(shelf->file, &held) == 0 &&
           named.st_dev == held.st_dev && named.st_ino == held.st_ino;
}

static const char *path_with(const struct store_shelf *shelf, uint64_t step, const char *end,
                             char *text, size_t bytes)
{
    const size_t length = strlen(store_shelf_path(shelf->directory, step, text, bytes));
    snprintf(text + length, bytes - length, "%s", end);
    return text;
}

/* Publishes a checkpoint whose run was killed while publishing. Returns whether there was one. */
static bool publish(const struct store_shelf *shelf, const char *path, uint64_t step)
{
    char folder[PATH_BYTES + 64];
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    store_shelf_path(shelf->directory, step, folder, sizeof folder);
    const int rc = fd >= 0 ? model_publish_resume(path, fd, folder) : 0;
    if (rc < 0) {
        core_log(CORE_LOG_WARN, "%s", core_err_message());
    }
    if (fd >= 0) {
        close(fd);
    }
    return rc != 0;
}

/* A killed run's folder has tide's mark, or a name with an ending and no files. */
static bool is_left(const char *path, const char *end)
{
    char mark[PATH_BYTES + 128];
    struct stat info;
    snprintf(mark, sizeof mark, "%s/" MODEL_CLAIM_MARK, path);
    return (end == unfinished ? lstat(mark, &info) == 0 && S_ISREG(info.st_mode)
                              : store_checkpoint_is_marked(path)) ||
           (end[0] != '\0' && model_folder_is_empty(path) == 1);
}

static void remove_left(const char *path, const char *end)
{
    if (end == unfinished) {
        model_folder_remove(path);
    } else if (rmdir(path) != 0) {
        store_checkpoint_remove(path);
    }
}

/* Publishes or removes folders checkpoint-N with the ending `end` that killed runs left. */
static void sweep(const struct store_shelf *shelf, const char *end, const char *why)
{
    DIR *dir = opendir(shelf->directory);
    uint64_t *steps = NULL;
    size_t count = 0;
    if (dir == NULL || list(dir, end, &steps, &count) != 0) {
        count = 0;
    }
    for (size_t i = 0; i < count; i++) {
        char path[PATH_BYTES + 64];
        path_with(shelf, steps[i], end, path, sizeof path);
        if ((end == unfinished && publish(shelf, path, steps[i])) || !is_left(path, end)) {
            continue;
        }
        core_log(CORE_LOG_INFO, "%s is removed, because it %s", path, why);
        remove_left(path, end);
    }
    free(steps);
    if (dir != NULL) {
        closedir(dir);
    }
}

int store_shelf_open(const char *directory, struct store_shelf **out)
{
    struct store_shelf *shelf = calloc(1, sizeof *shelf);
    if (shelf == NULL) {
        return core_err_set(-ENOMEM, "no memory for the checkpoints of %s", directory);
    }
    shelf->file = shelf->fd = -1;
    int rc = 0;
    if ((size_t)snprintf(shelf->directory, sizeof shelf->directory, "%s", directory) >=
        sizeof shelf->directory) {
        rc = core_err_set(-ENAMETOOLONG,
                          "the path of a folder for checkpoints has %zu bytes; the maximum is %zu",
                          strlen(directory), sizeof shelf->directory - 1);
    } else if (mkdir(directory, 0777) != 0 && errno != EEXIST) {
        const int error = errno;
        rc = core_err_set(-error, "the folder %s cannot be created: %s", directory,
                          strerror(error));
    } else if ((shelf->fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0) {
        const int error = errno;
        rc = core_err_set(-error, "the folder %s cannot be opened: %s", directory, strerror(error));
    }
    if (rc == 0) {
        rc = take_lock(shelf);
    }
    if (rc != 0) {
        store_shelf_close(shelf);
        return rc;
    }
    sweep(shelf, unfinished, "was never finished");
    sweep(shelf, spare, "was kept to be overwritten");
    sweep(shelf, removed, "was being removed");
    sweep(shelf, "", "was being removed");
    *out = shelf;
    return 0;
}

void store_shelf_close(struct store_shelf *shelf)
{
    if (shelf == NULL) {
        return;
    }
    store_shelf_spare_drop(shelf);
    core_lock_drop(shelf->lock);
    if (shelf->file >= 0) {
        close(shelf->file);
    }
    if (shelf->fd >= 0) {
        close(shelf->fd);
    }
    free(shelf);
}

/* ---- rotation ---- */

/* Renames the checkpoint before removing files, so that an incomplete one is never found. Returns
 * false if the folder has other files or cannot be renamed; then only own files are removed. */
static bool take_away(const struct store_shelf *shelf, uint64_t step, const char *end)
{
    char path[PATH_BYTES + 64];
    char away[PATH_BYTES + 64];
    bool foreign = false;
    store_shelf_path(shelf->directory, step, path, sizeof path);
    if (!store_checkpoint_is_ours(path)) {
        core_log(CORE_LOG_WARN, "%s is not removed: it has no checkpoint manifest", path);
        return false;
    }
    if (store_checkpoint_mark(path, &foreign) != 0) {
        core_log(CORE_LOG_WARN, "%s is not removed%s: %s", path,
                 store_checkpoint_is_marked(path) ? " completely, but by the next run" : "",
                 core_err_message());
        return false;
    }
    path_with(shelf, step, end, away, sizeof away);
    if (!foreign && rename(path, away) == 0) {
        return true;
    }
    store_checkpoint_remove(path);
    return false;
}

void store_shelf_remove(const struct store_shelf *shelf, uint64_t step)
{
    char away[PATH_BYTES + 64];
    if (take_away(shelf, step, removed)) {
        store_checkpoint_remove(path_with(shelf, step, removed, away, sizeof away));
    }
}

/* The rename becomes durable before files are overwritten; otherwise a power failure could leave
 * overwritten files in a checkpoint. */
static void make_spare(struct store_shelf *shelf, uint64_t step)
{
    shelf->has_spare = take_away(shelf, step, spare);
    shelf->spare = step;
    if (shelf->has_spare && fsync(shelf->fd) != 0) {
        core_log(
            CORE_LOG_WARN,
            "%s: fsync failed: %s; the files of an old checkpoint are removed instead of reused",
            shelf->directory, strerror(errno));
        store_shelf_spare_drop(shelf);
    }
}

void store_shelf_rotate(struct store_shelf *shelf, uint64_t step, uint32_t keep)
{
    uint64_t *steps = NULL;
    size_t count = 0;
    if (keep == 0 || store_shelf_list(shelf->directory, &steps, &count) != 0) {
        return;
    }
    size_t ours = 0;
    for (size_t i = 0; i < count && steps[i] <= step; i++) {
        char path[PATH_BYTES + 64];
        if (store_checkpoint_is_ours(
                store_shelf_path(shelf->directory, steps[i], path, sizeof path))) {
            steps[ours++] = steps[i];
        }
    }
    for (size_t i = 0; i + keep < ours; i++) {
        if (shelf->has_spare) {
            store_shelf_remove(shelf, steps[i]);
        } else {
            make_spare(shelf, steps[i]);
        }
    }
    free(steps);
}

const char *store_shelf_spare(const struct store_shelf *shelf, char *text, size_t bytes)
{
    return shelf->has_spare ? path_with(shelf, shelf->spare, spare, text, bytes) : NULL;
}

void store_shelf_spare_drop(struct store_shelf *shelf)
{
    char path[PATH_BYTES + 64];
    if (shelf->has_spare) {
        store_checkpoint_remove(path_with(shelf, shelf->spare, spare, path, sizeof path));
        shelf->has_spare = false;
    }
}
