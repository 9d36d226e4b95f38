/* save_folder.c: making, filling, publishing and removing a folder of files. */
#include "offload/model/save_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/json.h"
#include "core/base/json_write.h"
#include "core/base/log.h"
#include "offload/model/claim.h"
#include "offload/model/family.h"

int model_folder_is_empty(const char *path)
{
    DIR *dir = opendir(path);
    int empty = 1;
    if (dir == NULL) {
        return core_err_set(-errno, "the folder %s cannot be read: %s", path, strerror(errno));
    }
    for (const struct dirent *entry; empty == 1 && (entry = readdir(dir)) != NULL;) {
        empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
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

/* What takes the name is a folder renamed, which would stand in a link's place and not behind it. */
static int check_name(const char *folder, bool replace)
{
    const char *slash = strrchr(folder, '/');
    const char *last = slash != NULL ? slash + 1 : folder;
    struct stat info;
    if (strcmp(last, ".") == 0 || strcmp(last, "..") == 0) {
        return core_err_set(-EINVAL, "%s cannot be renamed; name the folder itself", folder);
    }
    if (lstat(folder, &info) != 0) {
        return 0;
    }
    if (S_ISLNK(info.st_mode)) {
        return core_err_set(-EINVAL, "%s is a symbolic link; name the folder that it leads to",
                            folder);
    }
    if (replace && !S_ISDIR(info.st_mode)) {
        return core_err_set(-ENOTDIR, "%s is not a folder; name another one", folder);
    }
    return replace || (S_ISDIR(info.st_mode) && model_folder_is_empty(folder) == 1)
               ? 0
               : core_err_set(-EEXIST, "%s is there already", folder);
}

int model_folder_begin(const char *folder, bool replace, const struct model_claim *claim,
                       char **path, int *fd)
{
    struct model_claim own = {.fd = -1};
    int rc = check_name(folder, replace);
    if (rc != 0) {
        return rc;
    }
    if (claim != NULL && model_claim_holds(claim, folder)) {
        own = (struct model_claim){strdup(claim->path), fcntl(claim->fd, F_DUPFD_CLOEXEC, 0)};
        if (own.path == NULL || own.fd < 0) {
            const int code = own.path == NULL ? ENOMEM : errno;
            free(own.path);
            if (own.fd >= 0) {
                close(own.fd);
            }
            return core_err_set(-code, "%s cannot be begun: %s", claim->path, strerror(code));
        }
    } else {
        rc = model_claim_take(folder, &own);
        if (rc != 0) {
            return rc;
        }
    }
    model_folder_clear(own.path); /* what a run left that was killed */
    *path = own.path;
    *fd = own.fd;
    return 0;
}

static int close_durably(int fd, const char *name, int rc)
{
    if (rc == 0 && fsync(fd) != 0) {
        rc = core_err_set(-errno, "%s cannot be made durable: %s", name, strerror(errno));
    }
    if (close(fd) != 0 && rc == 0) {
        rc = core_err_set(-errno, "%s cannot be closed: %s", name, strerror(errno));
    }
    return rc;
}

int model_folder_write(int fd, const char *name, const char *text, size_t bytes)
{
    int file = openat(fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0) {
        return core_err_set(-errno, "%s cannot be made: %s", name, strerror(errno));
    }
    int rc = core_file_write(file, text, bytes);
    if (rc != 0) {
        rc = core_err_set(rc, "%s cannot be written: %s", name, strerror(-rc));
    }
    return close_durably(file, name, rc);
}

static int copy_file(int to_fd, int from_fd, const char *name)
{
    struct stat info;
    int from = openat(from_fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (from < 0 || fstat(from, &info) != 0) {
        int rc = core_err_set(-errno, "%s cannot be read: %s", name, strerror(errno));
        if (from >= 0) {
            close(from);
        }
        return rc;
    }
    if (!S_ISREG(info.st_mode)) {
        close(from);
        return 0;
    }
    int rc = 0;
    int to = openat(to_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (to < 0) {
        rc = core_err_set(-errno, "%s cannot be made: %s", name, strerror(errno));
        close(from);
        return rc;
    }
    for (;;) {
        ssize_t moved = sendfile(to, from, NULL, 1 << 30);
        if (moved < 0 && errno == EINTR) {
            continue;
        }
        if (moved < 0) {
            rc = core_err_set(-errno, "%s cannot be copied: %s", name, strerror(errno));
        }
        if (moved <= 0) {
            break;
        }
    }
    close(from);
    return close_durably(to, name, rc);
}

/* Weights in any form, and what is written anew. */
static bool is_left_out(const char *name)
{
    static const char *const ends[] = {".safetensors", ".safetensors.index.json",
                                       ".bin",         ".bin.index.json",
                                       ".pt",          ".pth",
                                       ".gguf",        ".h5",
                                       ".msgpack",     ".onnx",
                                       ".ckpt",        ".index"};
    size_t length = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        size_t tail = strlen(ends[i]);
        if (length >= tail && strcmp(name + length - tail, ends[i]) == 0) {
            return true;
        }
    }
    /* The manifest is that of a checkpoint, which a model may come from. */
    return name[0] == '.' || strcmp(name, "config.json") == 0 || strcmp(name, "manifest.json") == 0;
}

/* The members of the source's config.json in their order, with the type of the weights set. */
static int write_config(int fd, const char *source, const struct model_family *family,
                        enum model_dtype type)
{
    char *path;
    struct core_json *doc = NULL;
    struct core_json_write write;
    if (asprintf(&path, "%s/config.json", source) < 0) {
        return core_err_set(-ENOMEM, "no memory for the name of %s/config.json", source);
    }
    int rc = core_json_load(path, &(struct core_json_options){.regular = true}, &doc);
    free(path);
    if (rc != 0) {
        return rc;
    }
    const struct core_json_value *root = core_json_root(doc);
    bool typed = false;
    core_json_write_init_text(&write);
    write.indent = 2;
    core_json_write_object_begin(&write, NULL);
    if (core_json_find(root, "architectures") == NULL) {
        core_json_write_array_begin(&write, "architectures");
        core_json_write_string(&write, NULL, family->architecture);
        core_json_write_array_end(&write);
    }
    struct core_json_member member;
    for (bool any = core_json_first(root, &member); any; any = core_json_next(&member)) {
        if (strcmp(member.key, "dtype") == 0 || strcmp(member.key, "torch_dtype") == 0) {
            core_json_write_string(&write, member.key, model_dtype_config_name(type));
            typed = true;
        } else {
            core_json_write_value(&write, member.key, member.value);
        }
    }
    if (!typed) {
        core_json_write_string(&write, "torch_dtype", model_dtype_config_name(type));
    }
    core_json_write_object_end(&write);
    rc = core_json_write_end(&write);
    rc = rc != 0 ? rc : model_folder_write(fd, "config.json", write.text, write.bytes);
    core_json_write_fini(&write);
    core_json_destroy(doc);
    return rc;
}

int model_folder_copy(int fd, const char *source, const struct model_family *family,
                      enum model_dtype type)
{
    DIR *dir = opendir(source);
    if (dir == NULL) {
        return core_err_set(-errno, "the folder %s cannot be read: %s", source, strerror(errno));
    }
    int rc = 0;
    for (struct dirent *entry; rc == 0 && (entry = readdir(dir)) != NULL;) {
        if (!is_left_out(entry->d_name)) {
            rc = copy_file(fd, dirfd(dir), entry->d_name);
        }
    }
    closedir(dir);
    rc = rc == 0 ? 0 : core_err_prefix(rc, "%s", source);
    return rc != 0 ? rc : write_config(fd, source, family, type);
}

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

/* Folders in what is replaced (checkpoints, say) and the lock over them are not part of a model: they
 * stay. A run that is killed in between finds them when it is resumed. */
static void move_rest(const char *from, const char *to)
{
    DIR *dir = opendir(from);
    const int into = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (struct dirent *entry; dir != NULL && into >= 0 && (entry = readdir(dir)) != NULL;) {
        const char *name = entry->d_name;
        struct stat info;
        const bool folder = fstatat(dirfd(dir), name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
                            S_ISDIR(info.st_mode);
        if ((folder && strcmp(name, ".") != 0 && strcmp(name, "..") != 0) ||
            strcmp(name, ".tide-lock") == 0) {
            (void)renameat2(dirfd(dir), name, into, name, RENAME_NOREPLACE);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    if (into >= 0) {
        close(into);
    }
}

/* What is replaced gets the other name, and is to be emptied by whoever comes next if that is cut short.
 * Where it cannot be marked the next one asks for it to be moved away, and nothing is lost. */
static void mark_old(const char *folder)
{
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    const int rc = fd < 0 ? core_err_set(-errno, "%s cannot be opened: %s", folder, strerror(errno))
                          : model_claim_mark(fd, folder);
    if (rc != 0) {
        core_log(CORE_LOG_WARN, "%s", core_err_sentence());
    }
    if (fd >= 0) {
        close(fd);
    }
}

int model_folder_publish(const char *path, int fd, const char *folder, bool replace)
{
    if (fsync(fd) != 0) {
        return core_err_set(-errno, "%s cannot be made durable: %s", path, strerror(errno));
    }
    bool exchange = replace && access(folder, F_OK) == 0;
    if (exchange) {
        mark_old(folder);
    }
    /* Without an exchange an empty folder gives way, and nothing else does. */
    if (renameat2(AT_FDCWD, path, AT_FDCWD, folder, exchange ? RENAME_EXCHANGE : 0) != 0) {
        return core_err_set(-errno, "%s cannot be renamed to %s: %s", path, folder,
                            strerror(errno));
    }
    unlinkat(fd, MODEL_CLAIM_MARK, 0);
    if (exchange) {
        move_rest(path, folder);
        model_folder_remove(path);
    }
    return sync_parent(folder);
}
