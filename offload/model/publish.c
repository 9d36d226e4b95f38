/* publish.c: a list, then renames in an order that may be cut short anywhere. */
#include "offload/model/publish.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/log.h"

enum { LIST_BYTES_MAX = 1 << 24 };

/* Without one of these nobody takes the folder for a model or a checkpoint; moved in this order. */
static const char *const keys[] = {"config.json", "manifest.json"};
enum { KEYS = sizeof keys / sizeof keys[0] };

/* Names, a NUL after each. */
struct list {
    char *text; /* owned */
    size_t bytes;
};

static const char *first_name(const struct list *list)
{
    return list->bytes > 0 ? list->text : NULL;
}

static const char *next_name(const struct list *list, const char *name)
{
    name += strlen(name) + 1;
    return name < list->text + list->bytes ? name : NULL;
}

static bool has_name(const struct list *list, const char *wanted)
{
    const char *name = first_name(list);
    while (name != NULL && strcmp(name, wanted) != 0) {
        name = next_name(list, name);
    }
    return name != NULL;
}

static bool is_key(const char *name)
{
    return strcmp(name, keys[0]) == 0 || strcmp(name, keys[1]) == 0;
}

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

int model_folder_is_empty(const char *path)
{
    DIR *dir = opendir(path);
    int empty = 1;
    if (dir == NULL) {
        const int code = errno;
        return core_err_set(-code, "the folder %s cannot be read: %s", path, strerror(code));
    }
    for (const struct dirent *entry; empty == 1 && (entry = readdir(dir)) != NULL;) {
        empty = is_dots(entry->d_name);
    }
    closedir(dir);
    return empty;
}

/* "." and ".." and folders refuse. The mark says whose the rest is, and goes behind it. */
static void clear(const char *path, bool mark)
{
    DIR *dir = opendir(path);
    if (dir == NULL) {
        return;
    }
    unlinkat(dirfd(dir), "manifest.json", 0); /* the rest is no checkpoint without it */
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

/* ---- the list ---- */

/* All files of the folder but its marks. */
static int list_files(const char *path, struct list *list)
{
    FILE *text = open_memstream(&list->text, &list->bytes);
    DIR *dir = text != NULL ? opendir(path) : NULL;
    if (dir == NULL) {
        const int code = errno;
        if (text != NULL) {
            fclose(text);
        }
        return core_err_set(-code, "the folder %s cannot be read: %s", path, strerror(code));
    }
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        struct stat info;
        const char *name = entry->d_name;
        if (strcmp(name, MODEL_CLAIM_MARK) != 0 && strcmp(name, MODEL_PUBLISH_LIST) != 0 &&
            fstatat(dirfd(dir), name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode)) {
            fwrite(name, 1, strlen(name) + 1, text);
        }
    }
    closedir(dir);
    return fclose(text) == 0 ? 0 : core_err_set(-ENOMEM, "no memory to list the files of %s", path);
}

/* Durable when it returns; one that was cut short lacks its last NUL, and is none. */
static int write_list(const char *path, int fd, const struct list *list)
{
    const int file = openat(fd, MODEL_PUBLISH_LIST,
                            O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    int rc = file < 0 ? -errno : core_file_write(file, list->text, list->bytes);
    rc = rc != 0 ? rc : core_file_write(file, "", 1);
    rc = rc == 0 && (fsync(file) != 0 || fsync(fd) != 0) ? -errno : rc;
    if (file >= 0 && close(file) != 0 && rc == 0) {
        rc = -errno;
    }
    if (rc != 0 && file >= 0) {
        unlinkat(fd, MODEL_PUBLISH_LIST, 0);
    }
    return rc == 0 ? 0
                   : core_err_set(rc, "%s/" MODEL_PUBLISH_LIST " cannot be written: %s", path,
                                  strerror(-rc));
}

/* -ENOENT where there is none that is whole. */
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

/* Names of files in the folder itself. */
static int check_list(const char *path, const struct list *list)
{
    for (const char *name = first_name(list); name != NULL; name = next_name(list, name)) {
        if (name[0] == '\0' || strchr(name, '/') != NULL || is_dots(name)) {
            return core_err_set(-EINVAL,
                                "%s/" MODEL_PUBLISH_LIST " has '%s', which is no name of a file; "
                                "move %s away",
                                path, name, path);
        }
    }
    return 0;
}

/* The keys that are there were there when the list was written, or came from `path` behind all others: who
 * restored the folder since then put others there. */
static int check_state(const char *path, int fd, const char *folder)
{
    struct stat list;
    struct stat info;
    int rc = fstatat(fd, MODEL_PUBLISH_LIST, &list, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : -errno;
    const int into = rc == 0 ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    for (int k = 0; into >= 0 && rc == 0 && k < KEYS; k++) {
        const bool waits = fstatat(fd, keys[k], &info, AT_SYMLINK_NOFOLLOW) == 0;
        if (!waits || fstatat(into, keys[k], &info, AT_SYMLINK_NOFOLLOW) != 0) {
            continue;
        }
        const bool later = info.st_ctim.tv_sec != list.st_ctim.tv_sec
                               ? info.st_ctim.tv_sec > list.st_ctim.tv_sec
                               : info.st_ctim.tv_nsec > list.st_ctim.tv_nsec;
        rc = later ? core_err_set(-EEXIST,
                                  "%s/%s was put there after a run was stopped that had all of its "
                                  "result in %s; move %s away to keep what is in %s, or remove "
                                  "%s/%s to have that result moved there",
                                  folder, keys[k], path, path, folder, folder, keys[k])
                   : 0;
    }
    if (into >= 0) {
        close(into);
    }
    return rc;
}

bool model_publish_is_kept(int fd)
{
    struct stat info;
    return fstatat(fd, MODEL_PUBLISH_LIST, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISREG(info.st_mode);
}

int model_publish_keep(const char *path, int fd)
{
    struct list list = {.text = NULL};
    int rc = list_files(path, &list);
    rc = rc != 0 ? rc : write_list(path, fd, &list);
    free(list.text);
    return rc;
}

/* ---- moving ---- */

/* "model.safetensors", "model-00001-of-00003.safetensors", "model.safetensors.index.json". */
static bool is_weights(const char *name)
{
    static const char shape[] = "model-#####-of-#####.safetensors";
    if (strcmp(name, "model.safetensors") == 0 ||
        strcmp(name, "model.safetensors.index.json") == 0) {
        return true;
    }
    bool same = strlen(name) == sizeof shape - 1;
    for (size_t i = 0; same && i < sizeof shape - 1; i++) {
        same = shape[i] == '#' ? isdigit((unsigned char)name[i]) != 0 : shape[i] == name[i];
    }
    return same;
}

static int failed(const char *folder, const char *name, const char *what)
{
    const int code = errno;
    return core_err_set(-code, "%s/%s cannot be %s: %s", folder, name, what, strerror(code));
}

static int take_away(int into, const char *folder, const char *name)
{
    return unlinkat(into, name, 0) == 0 || errno == ENOENT ? 0 : failed(folder, name, "removed");
}

/* Shards of another number of files would be read beside the new ones. */
static int remove_weights(int into, const char *folder, const struct list *list)
{
    DIR *dir = opendir(folder);
    int rc = dir != NULL ? 0 : failed(folder, ".", "read");
    for (const struct dirent *entry; rc == 0 && (entry = readdir(dir)) != NULL;) {
        if (is_weights(entry->d_name) && !has_name(list, entry->d_name)) {
            rc = take_away(into, folder, entry->d_name);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return rc;
}

/* What is no longer there a process that was killed has moved. */
static int move_file(int fd, int into, const char *folder, const char *name)
{
    if (renameat(fd, name, into, name) == 0) {
        return 0;
    }
    const int code = errno;
    if (code == ENOENT && faccessat(into, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
        return 0;
    }
    errno = code;
    return failed(folder, name, "put there");
}

static int sync_folder(int fd, const char *folder)
{
    const int code = fsync(fd) == 0 ? 0 : errno;
    return code == 0 ? 0
                     : core_err_set(-code, "the folder %s cannot be made durable: %s", folder,
                                    strerror(code));
}

static int move_files(int fd, int into, const char *folder, const struct list *list)
{
    int rc = 0;
    bool moved[KEYS] = {false};
    for (int k = 0; k < KEYS; k++) {
        struct stat info;
        /* Its own key, moved by a process that was killed behind it, stays. */
        moved[k] = fstatat(fd, keys[k], &info, AT_SYMLINK_NOFOLLOW) == 0;
        rc = rc == 0 && moved[k] ? take_away(into, folder, keys[k]) : rc;
    }
    rc = rc != 0 ? rc : remove_weights(into, folder, list);
    const char *name = first_name(list);
    for (; rc == 0 && name != NULL; name = next_name(list, name)) {
        rc = is_key(name) ? 0 : move_file(fd, into, folder, name);
    }
    rc = rc != 0 ? rc : sync_folder(into, folder);
    for (int k = 0; rc == 0 && k < KEYS; k++) {
        rc = moved[k] ? move_file(fd, into, folder, keys[k]) : 0;
    }
    return rc != 0 ? rc : sync_folder(into, folder);
}

static void remove_marks(int fd)
{
    unlinkat(fd, MODEL_PUBLISH_LIST, 0);
    unlinkat(fd, MODEL_CLAIM_MARK, 0);
}

static int move_into(const char *path, int fd, const char *folder, const struct list *list)
{
    const int into = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (into < 0) {
        const int code = errno;
        return core_err_set(-code, "the folder %s cannot be opened: %s", folder, strerror(code));
    }
    int rc = move_files(fd, into, folder, list);
    if (rc == 0) {
        remove_marks(into); /* of a rename that was cut short */
        remove_marks(fd);
        if (rmdir(path) != 0) {
            core_log(CORE_LOG_WARN, "%s cannot be removed: %s", path, strerror(errno));
        }
    }
    close(into);
    return rc;
}

/* ---- all ---- */

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

/* What takes the name did not exist when it was looked for: it is not written over. */
static int rename_whole(const char *path, int fd, const char *folder)
{
    if (rename(path, folder) != 0) {
        const int code = errno;
        return core_err_set(-code, "%s cannot be renamed to %s: %s", path, folder, strerror(code));
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
    struct list list = {.text = NULL};
    struct stat info;
    if (!is_there(folder)) {
        return 0;
    }
    const int into = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (into < 0 || faccessat(into, ".", W_OK | X_OK, AT_EACCESS) != 0) {
        const int code = errno;
        if (into >= 0) {
            close(into);
        }
        return core_err_set(-code, "the folder %s cannot be written: %s", folder, strerror(code));
    }
    int rc = list_files(path, &list);
    const char *name = rc == 0 ? first_name(&list) : NULL;
    for (; rc == 0 && name != NULL; name = next_name(&list, name)) {
        if (fstatat(into, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(info.st_mode)) {
            rc = core_err_set(-EISDIR,
                              "%s/%s is a folder, and a file of that name is to be written; "
                              "move it away or name another folder",
                              folder, name);
        }
    }
    free(list.text);
    close(into);
    return rc;
}

int model_folder_publish(const char *path, int fd, const char *folder, bool replace)
{
    struct list list = {.text = NULL};
    if (fsync(fd) != 0) {
        const int code = errno;
        return core_err_set(-code, "%s cannot be made durable: %s", path, strerror(code));
    }
    if (!is_there(folder)) {
        return rename_whole(path, fd, folder);
    }
    const int empty = replace ? 1 : model_folder_is_empty(folder);
    if (empty != 1) {
        return empty < 0 ? empty : core_err_set(-EEXIST, "%s is there and not empty", folder);
    }
    int rc = model_publish_check(path, folder);
    rc = rc != 0 ? rc : list_files(path, &list);
    rc = rc != 0 ? rc : write_list(path, fd, &list);
    rc = rc != 0 ? rc : move_into(path, fd, folder, &list);
    free(list.text);
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
    rc = rc != 0 || !is_there(folder) ? rc : check_state(path, fd, folder);
    if (rc != 0) {
        free(list.text);
        return rc;
    }
    rc = is_there(folder) ? move_into(path, fd, folder, &list) : rename_whole(path, fd, folder);
    free(list.text);
    if (rc != 0) {
        return core_err_prefix(rc,
                               "%s holds all of what a run wrote for %s, which is still to be "
                               "moved there",
                               path, folder);
    }
    core_log(CORE_LOG_INFO,
             "%s is complete: the run that wrote it was stopped before it had moved "
             "all of it there",
             folder);
    return 1;
}
