/* publish.c: writes a list, then renames files in an order that may be interrupted. */
#include "offload/model/publish.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "offload/model/adapter.h"

enum { LIST_BYTES_MAX = 1 << 24 };

/* A folder without these files is neither a model nor a checkpoint. They are moved last, in this
 * order. */
static const char *const keys[] = {"config.json", MODEL_ADAPTER_CONFIG, MODEL_MANIFEST_NAME};
enum { KEYS = sizeof keys / sizeof keys[0] };

/* NUL-terminated entries: LIST_HEAD and the inode of FOLDER (0: none); `new INODE SIZE TIME NAME`
 * for a file of the result; `old INODE SIZE TIME NAME` for a file to be replaced or removed, where
 * TIME is its ctime. */
struct list {
    char *text; /* owned */
    size_t bytes;
};

#define LIST_HEAD "tide-publish 2"

struct entry {
    bool old;
    uint64_t inode;
    uint64_t bytes;
    int64_t seconds;
    long nanoseconds;
    const char *name;
};

static bool parse_entry(const char *text, struct entry *out)
{
    char kind[4];
    int end = 0;
    if (sscanf(text, "%3s %" SCNu64 " %" SCNu64 " %" SCNd64 ".%ld%n", kind, &out->inode,
               &out->bytes, &out->seconds, &out->nanoseconds, &end) != 5 ||
        text[end] != ' ' || (strcmp(kind, "new") != 0 && strcmp(kind, "old") != 0)) {
        return false;
    }
    out->old = kind[0] == 'o';
    out->name = text + end + 1;
    return out->name[0] != '\0' && strchr(out->name, '/') == NULL && strcmp(out->name, ".") != 0 &&
           strcmp(out->name, "..") != 0;
}

/* Returns the first entry if `at` is NULL; NULL after the last. */
static const char *next_entry(const struct list *list, const char *at, struct entry *out)
{
    at = at != NULL ? at : list->text;
    at += strlen(at) + 1;
    return at < list->text + list->bytes && parse_entry(at, out) ? at : NULL;
}

static bool has_name(const struct list *list, const char *wanted)
{
    struct entry entry;
    const char *at = NULL;
    while ((at = next_entry(list, at, &entry)) != NULL) {
        if (!entry.old && strcmp(entry.name, wanted) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_key(const char *name)
{
    for (int k = 0; k < KEYS; k++) {
        if (strcmp(name, keys[k]) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static bool is_mark(const char *name)
{
    return strcmp(name, MODEL_CLAIM_MARK) == 0 || strcmp(name, MODEL_PUBLISH_LIST) == 0;
}

int model_folder_is_empty(const char *path)
{
    DIR *dir = opendir(path);
    int empty = 1;
    if (dir == NULL) {
        const int error = errno;
        return core_err_set(-error, "the folder %s cannot be read: %s", path, strerror(error));
    }
    for (const struct dirent *entry; empty == 1 && (entry = readdir(dir)) != NULL;) {
        empty = is_dots(entry->d_name);
    }
    closedir(dir);
    return empty;
}

int model_folder_length(const char *folder)
{
    size_t length = strlen(folder);
    while (length > 1 && folder[length - 1] == '/') {
        length--;
    }
    return (int)length;
}

/* unlinkat refuses ".", ".." and folders. With `mark`, the mark is removed last; else it stays. */
static void clear(const char *path, bool mark)
{
    DIR *dir = opendir(path);
    if (dir == NULL) {
        return;
    }
    /* first: without the manifest, the folder is no checkpoint */
    unlinkat(dirfd(dir), MODEL_MANIFEST_NAME, 0);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (strcmp(entry->d_name, MODEL_CLAIM_MARK) != 0) {
            unlinkat(dirfd(dir), entry->d_name, 0);
        }
    }
    if (mark) {
        unlinkat(dirfd(dir), MODEL_CLAIM_MARK, 0);
    }
    closedir(dir);
}

void model_folder_clear(const char *path)
{
    clear(path, false);
}

void model_folder_remove(const char *path)
{
    clear(path, true);
    rmdir(path);
}

/* ---- the list of files ---- */

static int failed(const char *folder, const char *name, const char *what)
{
    const int error = errno;
    return core_err_set(-error, "%s/%s cannot be %s: %s", folder, name, what, strerror(error));
}

static void print_entry(FILE *text, const char *name, const struct stat *info, bool old)
{
    const struct timespec time = old ? info->st_ctim : info->st_mtim;
    fprintf(text, "%s %ju %jd %jd.%09ld %s", old ? "old" : "new", (uintmax_t)info->st_ino,
            (intmax_t)info->st_size, (intmax_t)time.tv_sec, time.tv_nsec, name);
    fputc('\0', text);
}

/* Results are regular files. They may replace a link, whose target stays. */
static bool is_listed_kind(const struct stat *info, bool old)
{
    return S_ISREG(info->st_mode) || (old && S_ISLNK(info->st_mode));
}

static bool is_same(int folder, const struct entry *entry)
{
    struct stat info;
    if (fstatat(folder, entry->name, &info, AT_SYMLINK_NOFOLLOW) != 0 ||
        !is_listed_kind(&info, entry->old)) {
        return false;
    }
    const struct timespec time = entry->old ? info.st_ctim : info.st_mtim;
    return info.st_ino == entry->inode && (uint64_t)info.st_size == entry->bytes &&
           time.tv_sec == entry->seconds && time.tv_nsec == entry->nanoseconds;
}

/* Lists all files if `result` is NULL, else those that the result replaces or removes. *weights:
 * the result has weights or adapters. */
static int each_file(const char *path, const struct list *result, FILE *text, bool *weights)
{
    int rc = 0;
    DIR *dir = opendir(path);
    if (dir == NULL) {
        return failed(path, ".", "read");
    }
    for (;;) {
        struct stat info;
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (entry == NULL) {
            rc = errno == 0 ? 0 : failed(path, ".", "read");
            break;
        }
        const char *name = entry->d_name;
        if (fstatat(dirfd(dir), name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
            if (errno == ENOENT) {
                continue;
            }
            rc = failed(path, name, "read");
            break;
        }
        if (!is_listed_kind(&info, result != NULL) || is_mark(name)) {
            continue;
        }
        if (result == NULL) {
            *weights = *weights || core_file_is_weights(name);
            print_entry(text, name, &info, false);
        } else if (has_name(result, name) || (*weights && core_file_is_of_model(name))) {
            print_entry(text, name, &info, true);
        }
    }
    closedir(dir);
    return rc;
}

static int list_new(const char *path, const struct stat *folder, bool *weights, struct list *list)
{
    FILE *text = open_memstream(&list->text, &list->bytes);
    if (text == NULL) {
        return core_err_set(-ENOMEM, "no memory to list the files of %s", path);
    }
    fprintf(text, LIST_HEAD " %ju", (uintmax_t)folder->st_ino);
    fputc('\0', text);
    const int rc = each_file(path, NULL, text, weights);
    if (fclose(text) != 0 && rc == 0) {
        return core_err_set(-ENOMEM, "no memory to list the files of %s", path);
    }
    return rc;
}

static int list_old(const char *folder, bool weights, struct list *list)
{
    struct list old = {.text = NULL};
    FILE *text = open_memstream(&old.text, &old.bytes);
    int rc = text != NULL ? each_file(folder, list, text, &weights) : -ENOMEM;
    char *joined = text != NULL && fclose(text) == 0 && rc == 0
                       ? realloc(list->text, list->bytes + old.bytes)
                       : NULL;
    if (joined != NULL) {
        memcpy(joined + list->bytes, old.text, old.bytes);
        list->text = joined;
        list->bytes += old.bytes;
    } else if (rc == 0 || rc == -ENOMEM) {
        rc = core_err_set(-ENOMEM, "no memory to list the files of %s", folder);
    }
    free(old.text);
    return rc;
}

static int make_list(const char *path, const char *folder, struct list *list)
{
    struct stat info = {.st_ino = 0};
    bool weights = false;
    const bool there = lstat(folder, &info) == 0 && S_ISDIR(info.st_mode);
    if (!there) {
        info.st_ino = 0;
    }
    int rc = list_new(path, &info, &weights, list);
    return rc != 0 || !there ? rc : list_old(folder, weights, list);
}

/* A truncated list lacks its last NUL and is ignored. */
static int write_list(const char *path, int fd, const struct list *list)
{
    int rc;
    const int file = openat(fd, MODEL_PUBLISH_LIST,
                            O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (file < 0) {
        rc = -errno;
        goto fail;
    }
    rc = core_file_write(file, list->text, list->bytes);
    if (rc == 0) {
        rc = core_file_write(file, "", 1);
    }
    if (rc == 0 && (fsync(file) != 0 || fsync(fd) != 0)) {
        rc = -errno;
    }
    if (close(file) != 0 && rc == 0) {
        rc = -errno;
    }
    if (rc == 0) {
        return 0;
    }
    unlinkat(fd, MODEL_PUBLISH_LIST, 0);
fail:
    return core_err_set(rc, "%s/" MODEL_PUBLISH_LIST " cannot be written: %s", path, strerror(-rc));
}

/* Returns -ENOENT if there is no complete list. */
static int read_list(const char *path, struct list *list)
{
    char *name;
    if (asprintf(&name, "%s/" MODEL_PUBLISH_LIST, path) < 0) {
        return core_err_set(-ENOMEM, "no memory for the name of %s", path);
    }
    int rc = core_file_read_regular(name, LIST_BYTES_MAX, &list->text, &list->bytes);
    free(name);
    if (rc == 0 && (list->bytes < 2 || list->text[list->bytes - 1] != '\0' ||
                    list->text[list->bytes - 2] != '\0')) {
        free(list->text);
        *list = (struct list){.text = NULL};
        rc = -ENOENT;
    }
    list->bytes -= rc == 0;
    return rc;
}

static int check_list(const char *path, const struct list *list)
{
    const size_t head = sizeof LIST_HEAD - 1;
    if (strncmp(list->text, LIST_HEAD, head) != 0 || list->text[head] != ' ') {
        return core_err_set(-EINVAL,
                            "%s/" MODEL_PUBLISH_LIST
                            " was not written by this version of tide: %s has the complete result "
                            "of a run; move its files to their destination, or move %s away",
                            path, path, path);
    }
    for (const char *at = list->text + strlen(list->text) + 1; at < list->text + list->bytes;
         at += strlen(at) + 1) {
        struct entry entry;
        if (!parse_entry(at, &entry)) {
            return core_err_set(-EINVAL,
                                "%s/" MODEL_PUBLISH_LIST
                                " has '%s', which is not the name of a file; move %s away",
                                path, at, path);
        }
    }
    return 0;
}

/* Checks that the result's files are unchanged, in `path`, or in `into` if they were moved. If all
 * were moved, later changes are not checked. *out: files still in `path`. */
static int find_files(const char *path, int fd, const char *folder, int into,
                      const struct list *list, unsigned *out)
{
    struct entry entry;
    struct entry lost = {.name = NULL};
    struct stat info;
    unsigned waiting = 0;
    bool other = false; /* `path` has another file of a listed name */
    for (const char *at = NULL; (at = next_entry(list, at, &entry)) != NULL;) {
        if (entry.old) {
            continue;
        }
        if (is_same(fd, &entry)) {
            waiting++;
        } else if (!other && (into < 0 || !is_same(into, &entry))) {
            lost = entry;
            other = fstatat(fd, entry.name, &info, AT_SYMLINK_NOFOLLOW) == 0;
        }
    }
    if (other) {
        return core_err_set(-ENOENT,
                            "%s has files of a run that was stopped, but the file %s there was "
                            "copied or changed since; move the files of %s to %s yourself, or "
                            "move %s away",
                            path, lost.name, path, folder, path);
    }
    if (lost.name != NULL && waiting > 0) {
        return core_err_set(-ENOENT,
                            "%s has the rest of a result; the run moved %s to %s before it was "
                            "stopped, and that file is missing now; move %s away",
                            path, lost.name, folder, path);
    }
    *out = waiting;
    return 0;
}

static bool is_replaced(const struct list *list, const char *name, int fd, bool weights)
{
    struct stat info;
    return has_name(list, name) ? fstatat(fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0
                                : weights && core_file_is_of_model(name);
}

static bool is_listed_old(const struct list *list, int into, const char *name)
{
    struct entry entry;
    const char *at = NULL;
    while ((at = next_entry(list, at, &entry)) != NULL) {
        if (entry.old && strcmp(entry.name, name) == 0 && is_same(into, &entry)) {
            return true;
        }
    }
    return false;
}

/* The user may have changed the listed files since. */
static int check_replaced(const char *path, int fd, const char *folder, int into,
                          const struct list *list)
{
    bool weights = false;
    struct entry entry;
    for (const char *at = NULL; (at = next_entry(list, at, &entry)) != NULL;) {
        weights = weights || (!entry.old && core_file_is_weights(entry.name));
    }
    /* an inode of 0 means that there was no folder */
    const bool other = strtoull(list->text + sizeof LIST_HEAD, NULL, 10) == 0;
    DIR *dir = opendir(folder);
    int rc = dir != NULL ? 0 : failed(folder, ".", "read");
    for (const struct dirent *found; rc == 0 && (found = readdir(dir)) != NULL;) {
        const char *name = found->d_name;
        if (is_replaced(list, name, fd, weights) && (other || !is_listed_old(list, into, name))) {
            rc = core_err_set(
                -EEXIST,
                "%s/%s was created or changed after a run was stopped, and the complete result of "
                "that run is in %s; to keep what is in %s, move %s away; to have that result moved "
                "there, remove %s/%s",
                folder, name, path, folder, path, folder, name);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return rc;
}

bool model_publish_is_kept(int fd)
{
    struct stat info;
    return fstatat(fd, MODEL_PUBLISH_LIST, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISREG(info.st_mode);
}

int model_publish_keep(const char *path, int fd, const char *folder)
{
    struct list list = {.text = NULL};
    int rc = make_list(path, folder, &list);
    if (rc == 0) {
        rc = write_list(path, fd, &list);
    }
    free(list.text);
    return rc;
}

/* ---- moving ---- */

static int take_away(int into, const char *folder, const char *name)
{
    return unlinkat(into, name, 0) == 0 || errno == ENOENT ? 0 : failed(folder, name, "removed");
}

/* Removes old files, which programs would mix with the new ones: the key files, or the others. */
static int remove_old(int into, const char *folder, const struct list *list, bool only_keys)
{
    struct entry entry;
    int rc = 0;
    for (const char *at = NULL; rc == 0 && (at = next_entry(list, at, &entry)) != NULL;) {
        if (entry.old && is_key(entry.name) == only_keys && !has_name(list, entry.name) &&
            is_same(into, &entry)) {
            rc = take_away(into, folder, entry.name);
        }
    }
    return rc;
}

/* A file that is already in `into` was moved by a killed process. */
static int move_file(int fd, int into, const char *folder, const struct entry *entry)
{
    if (renameat(fd, entry->name, into, entry->name) == 0) {
        return 0;
    }
    const int error = errno;
    if (error == ENOENT && is_same(into, entry)) {
        return 0;
    }
    errno = error;
    return failed(folder, entry->name, "put there");
}

static int sync_folder(int fd, const char *folder)
{
    if (fsync(fd) == 0) {
        return 0;
    }
    const int error = errno;
    return core_err_set(-error, "the folder %s cannot be made durable: %s", folder,
                        strerror(error));
}

static int move_files(int fd, int into, const char *folder, const struct list *list)
{
    struct entry entry;
    struct stat info;
    for (int k = 0; k < KEYS; k++) {
        /* A key file that was moved already belongs to the result. */
        int rc = fstatat(fd, keys[k], &info, AT_SYMLINK_NOFOLLOW) == 0
                     ? take_away(into, folder, keys[k])
                     : 0;
        if (rc != 0) {
            return rc;
        }
    }
    int rc = remove_old(into, folder, list, true);
    if (rc != 0 || (rc = remove_old(into, folder, list, false)) != 0) {
        return rc;
    }
    /* Otherwise a power cut could leave the old config.json with new weights. */
    rc = sync_folder(into, folder);
    if (rc != 0) {
        return rc;
    }
    for (const char *at = NULL; (at = next_entry(list, at, &entry)) != NULL;) {
        rc = entry.old || is_key(entry.name) ? 0 : move_file(fd, into, folder, &entry);
        if (rc != 0) {
            return rc;
        }
    }
    rc = sync_folder(into, folder);
    if (rc != 0) {
        return rc;
    }
    for (int k = 0; k < KEYS; k++) {
        for (const char *at = NULL; (at = next_entry(list, at, &entry)) != NULL;) {
            const bool moves = !entry.old && strcmp(entry.name, keys[k]) == 0;
            rc = moves ? move_file(fd, into, folder, &entry) : 0;
            if (rc != 0) {
                return rc;
            }
        }
    }
    return sync_folder(into, folder);
}

static void remove_marks(int fd)
{
    unlinkat(fd, MODEL_PUBLISH_LIST, 0);
    unlinkat(fd, MODEL_CLAIM_MARK, 0);
}

static void remove_folder(const char *path, int fd)
{
    remove_marks(fd);
    if (rmdir(path) != 0) {
        core_log(CORE_LOG_WARN, "%s cannot be removed: %s", path, strerror(errno));
    }
}

static int open_into(const char *folder, int *out)
{
    const int into = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (into < 0) {
        const int error = errno;
        return core_err_set(-error, "the folder %s cannot be opened: %s", folder, strerror(error));
    }
    *out = into;
    return 0;
}

static int move_into(const char *path, int fd, const char *folder, int into,
                     const struct list *list)
{
    const int rc = move_files(fd, into, folder, list);
    if (rc == 0) {
        remove_marks(into); /* left by an interrupted rename_whole */
        remove_folder(path, fd);
    }
    return rc;
}

/* ---- the public functions ---- */

static int sync_parent(const char *folder)
{
    char *copy = strdup(folder);
    if (copy == NULL) {
        return core_err_set(-ENOMEM, "no memory for the name of %s", folder);
    }
    char *slash = strrchr(copy, '/');
    const char *parent = slash == NULL ? "." : slash == copy ? "/" : copy;
    if (slash != NULL && slash != copy) {
        *slash = '\0';
    }
    int fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = fd < 0 || fsync(fd) != 0
                 ? core_err_set(-errno, "the folder %s cannot be made durable: %s", parent,
                                strerror(errno))
                 : 0;
    if (fd >= 0) {
        close(fd);
    }
    free(copy);
    return rc;
}

/* Fails if another process has put files into FOLDER meanwhile. */
static int rename_whole(const char *path, int fd, const char *folder)
{
    if (rename(path, folder) != 0) {
        const int error = errno;
        return core_err_set(-error, "%s cannot be renamed to %s: %s", path, folder,
                            strerror(error));
    }
    remove_marks(fd);
    return sync_parent(folder);
}

static bool is_there(const char *folder)
{
    struct stat info;
    return lstat(folder, &info) == 0 || errno != ENOENT;
}

int model_publish_check(const char *path, const char *folder)
{
    struct stat info;
    if (!is_there(folder)) {
        return 0;
    }
    const int into = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = into >= 0 ? opendir(path) : NULL;
    int rc = 0;
    if (into < 0 || faccessat(into, ".", W_OK | X_OK, AT_EACCESS) != 0) {
        const int error = errno;
        rc = core_err_set(-error, "the folder %s cannot be written: %s", folder, strerror(error));
    } else if (dir == NULL) {
        rc = failed(path, ".", "read");
    }
    for (const struct dirent *entry; rc == 0 && (entry = readdir(dir)) != NULL;) {
        if (!is_dots(entry->d_name) && !is_mark(entry->d_name) &&
            fstatat(into, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISDIR(info.st_mode)) {
            rc = core_err_set(-EISDIR,
                              "%s/%s is a folder, but tide has to write a file of that name; move "
                              "it away or name another folder",
                              folder, entry->d_name);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    if (into >= 0) {
        close(into);
    }
    return rc;
}

static int publish_into(const char *path, int fd, const char *folder)
{
    struct list list = {.text = NULL};
    int into = -1;
    int rc;
    if ((rc = model_publish_check(path, folder)) == 0 &&
        (rc = make_list(path, folder, &list)) == 0 && (rc = write_list(path, fd, &list)) == 0 &&
        (rc = open_into(folder, &into)) == 0) {
        rc = move_into(path, fd, folder, into, &list);
        close(into);
    }
    free(list.text);
    return rc;
}

int model_folder_publish(const char *path, int fd, const char *folder, bool replace)
{
    if (fsync(fd) != 0) {
        const int error = errno;
        return core_err_set(-error, "%s cannot be made durable: %s", path, strerror(error));
    }
    if (!is_there(folder)) {
        return rename_whole(path, fd, folder);
    }
    const int empty = replace ? 1 : model_folder_is_empty(folder);
    if (empty != 1) {
        return empty < 0 ? empty : core_err_set(-EEXIST, "%s exists and is not empty", folder);
    }
    return publish_into(path, fd, folder);
}

/* Moves the files that are still in `path`, and removes `path`. */
static int publish_rest(const char *path, int fd, const char *folder, const struct list *list)
{
    unsigned waiting = 0;
    int into = -1;
    int rc = is_there(folder) ? open_into(folder, &into) : 0;
    if (rc != 0) {
        goto done;
    }
    rc = find_files(path, fd, folder, into, list, &waiting);
    if (rc != 0) {
        goto done;
    }
    if (waiting == 0) {
        rc = into >= 0 ? sync_folder(into, folder) : 0;
        if (rc == 0) {
            remove_folder(path, fd);
        }
    } else if (into < 0) {
        rc = rename_whole(path, fd, folder);
    } else {
        rc = check_replaced(path, fd, folder, into, list);
        if (rc == 0) {
            rc = move_into(path, fd, folder, into, list);
        }
    }
done:
    if (into >= 0) {
        close(into);
    }
    return rc;
}

int model_publish_resume(const char *path, int fd, const char *folder)
{
    struct list list = {.text = NULL};
    if (!model_publish_is_kept(fd)) {
        return 0;
    }
    int rc = read_list(path, &list);
    if (rc != 0) {
        return rc == -ENOENT ? 0 : rc;
    }
    rc = check_list(path, &list);
    if (rc == 0) {
        rc = publish_rest(path, fd, folder, &list);
        rc = rc == 0 || rc == -EEXIST || rc == -ENOENT
                 ? rc
                 : core_err_prefix(
                       rc,
                       "%s has the complete result of a run for %s, which was not moved there yet",
                       path, folder);
    }
    free(list.text);
    if (rc != 0) {
        return rc;
    }
    core_log(CORE_LOG_INFO,
             "%s is now complete: finished moving the result of a stopped run from %s", folder,
             path);
    return 1;
}
