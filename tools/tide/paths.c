/* paths.c: identifies existing files by device and inode, others by folder and name. */
#include "tools/tide/paths.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "tools/text/data/records.h"

enum { LINKS_MAX = 40 };

struct place {
    struct stat info;     /* of the existing part of the path */
    char there[PATH_MAX]; /* the existing part without links; "": unknown */
    char rest[PATH_MAX];  /* the part below that does not exist; "": none */
};

static bool is_same(const struct stat *one, const struct stat *other)
{
    return one->st_dev == other->st_dev && one->st_ino == other->st_ino;
}

/* Writing to a pipe or a character device destroys no data. */
static bool holds_bytes(const struct stat *info)
{
    return S_ISREG(info->st_mode) || S_ISDIR(info->st_mode);
}

int cli_path_join(char *out, const char *one, const char *between, const char *other)
{
    const int length = snprintf(out, PATH_MAX, "%s%s%s", one, between, other);
    return length >= 0 && length < PATH_MAX ? 0 : -ENAMETOOLONG;
}

void cli_path_cut_name(char *path, char name[PATH_MAX])
{
    char *slash = strrchr(path, '/');
    const char *last = slash != NULL ? slash + 1 : path;
    memmove(name, last, strlen(last) + 1);
    if (slash == NULL) {
        memcpy(path, ".", 2);
    } else {
        slash[slash == path] = '\0';
    }
}

void cli_path_cut_slashes(char *path)
{
    for (size_t end = strlen(path); end > 1 && path[end - 1] == '/'; end--) {
        path[end - 1] = '\0';
    }
}

/* Opening would create a missing target. */
static int follow_links(char path[PATH_MAX])
{
    struct stat info;
    char target[PATH_MAX];
    char name[PATH_MAX];
    char folder[PATH_MAX];
    int rc = 0;
    for (int links = 0; rc == 0 && stat(path, &info) != 0; links++) {
        const ssize_t length = readlink(path, target, sizeof target - 1);
        if (length < 0 || links == LINKS_MAX) {
            return 0;
        }
        target[length] = '\0';
        memcpy(folder, path, PATH_MAX);
        cli_path_cut_name(folder, name);
        rc = target[0] == '/' ? cli_path_join(path, target, "", "")
                              : cli_path_join(path, folder, "/", target);
        cli_path_cut_slashes(path);
    }
    return rc;
}

static int find_place(const char *path, struct place *out)
{
    char at[PATH_MAX];
    char name[PATH_MAX];
    char rest[PATH_MAX];
    *out = (struct place){.rest = ""};
    int rc = path[0] != '\0' ? cli_path_join(at, path, "", "") : -ENOENT;
    if (rc == 0) {
        cli_path_cut_slashes(at);
        rc = follow_links(at);
    }
    while (rc == 0 && stat(at, &out->info) != 0) {
        if (strcmp(at, "/") == 0 || strcmp(at, ".") == 0) {
            return -errno;
        }
        cli_path_cut_name(at, name);
        cli_path_cut_slashes(at);
        memcpy(rest, out->rest, sizeof rest);
        rc = cli_path_join(out->rest, name, rest[0] != '\0' ? "/" : "", rest);
    }
    if (rc == 0 && realpath(at, out->there) == NULL) {
        out->there[0] = '\0';
    }
    return rc;
}

static bool is_same_place(const struct place *one, const struct place *other)
{
    return is_same(&one->info, &other->info) && strcmp(one->rest, other->rest) == 0;
}

bool cli_path_is_same(const char *one, const char *other)
{
    struct place places[2];
    return find_place(one, &places[0]) == 0 && find_place(other, &places[1]) == 0 &&
           is_same_place(&places[0], &places[1]);
}

/* `child`: the first name below the folder; "": the folder itself. */
static bool is_in_folder(const struct place *place, const struct stat *folder, char child[PATH_MAX])
{
    char at[PATH_MAX];
    struct stat info;
    memcpy(at, place->there, sizeof at);
    memcpy(child, place->rest, PATH_MAX);
    child[strcspn(child, "/")] = '\0';
    while (at[0] == '/') {
        if (stat(at, &info) == 0 && is_same(&info, folder)) {
            return true;
        }
        if (at[1] == '\0') {
            return false;
        }
        cli_path_cut_name(at, child);
    }
    return false;
}

/* The folder may list the file as a link to a download cache. */
static bool folder_lists_file(const char *folder, const struct stat *info)
{
    DIR *list = opendir(folder);
    bool has = false;
    for (const struct dirent *entry; list != NULL && !has && (entry = readdir(list)) != NULL;) {
        struct stat one;
        has = fstatat(dirfd(list), entry->d_name, &one, 0) == 0 && S_ISREG(one.st_mode) &&
              is_same(&one, info);
    }
    if (list != NULL) {
        closedir(list);
    }
    return has;
}

static bool is_file_of_folder(const char *kept, const struct place *place)
{
    char child[PATH_MAX];
    struct stat info;
    return place->rest[0] == '\0' && S_ISREG(place->info.st_mode) && stat(kept, &info) == 0 &&
           (is_in_folder(place, &info, child) || folder_lists_file(kept, &place->info));
}

static bool is_folder(const char *kept, const struct place *place)
{
    struct stat info;
    return place->rest[0] == '\0' && S_ISDIR(place->info.st_mode) && stat(kept, &info) == 0 &&
           is_same(&place->info, &info);
}

static bool will_match(const char *pattern, const struct place *place)
{
    char folder[PATH_MAX];
    char name[PATH_MAX];
    glob_t found;
    bool matches = false;
    if (strpbrk(pattern, "*?[") == NULL || place->rest[0] == '\0' ||
        cli_path_join(folder, pattern, "", "") != 0) {
        return false;
    }
    cli_path_cut_name(folder, name);
    if (fnmatch(name, place->rest, FNM_PERIOD) != 0 || glob(folder, 0, NULL, &found) != 0) {
        return false;
    }
    for (size_t i = 0; i < found.gl_pathc && !matches; i++) {
        struct stat info;
        matches = stat(found.gl_pathv[i], &info) == 0 && is_same(&info, &place->info);
    }
    globfree(&found);
    return matches;
}

/* Returns whether the run uses this name: model files, checkpoints, names that begin with
 * ".tide-". */
static bool is_reserved(const char *name, const struct cli_path *paths, size_t count)
{
    static const char checkpoint[] = "checkpoint-";
    static const char mark[] = ".tide-";
    bool copied = false;
    for (size_t i = 0; i < count && !copied; i++) {
        char path[PATH_MAX];
        struct stat info;
        copied = paths[i].kind == CLI_PATH_KEPT && paths[i].path != NULL &&
                 cli_path_join(path, paths[i].path, "/", name) == 0 && stat(path, &info) == 0 &&
                 S_ISREG(info.st_mode);
    }
    return copied || core_file_is_of_model(name) ||
           strncmp(name, checkpoint, sizeof checkpoint - 1) == 0 ||
           strncmp(name, mark, sizeof mark - 1) == 0;
}

/* `folder` need not exist. `child`: the first name below `folder`. */
static bool is_below(const struct place *place, const struct place *folder, char child[PATH_MAX])
{
    const size_t made = strlen(folder->rest);
    if (made == 0) {
        return is_in_folder(place, &folder->info, child) && child[0] != '\0';
    }
    if (!is_same(&place->info, &folder->info) || strncmp(place->rest, folder->rest, made) != 0 ||
        place->rest[made] != '/') {
        return false;
    }
    memcpy(child, place->rest + made + 1, strlen(place->rest + made + 1) + 1);
    child[strcspn(child, "/")] = '\0';
    return true;
}

/* Returns whether the place is in the output folder `path` (resolved: `out`) or in the run's
 * working folder beside that. `child`: the first name below, or ".tide-partial". */
static bool name_in_output(const struct place *place, const char *path, const struct place *out,
                           char child[PATH_MAX])
{
    char partial[PATH_MAX];
    char name[PATH_MAX];
    struct place work;
    if (is_below(place, out, child)) {
        return true;
    }
    if (cli_path_join(name, path, "", "") != 0) {
        return false;
    }
    cli_path_cut_slashes(name);
    if (cli_path_join(partial, name, "", ".partial") != 0 || find_place(partial, &work) != 0 ||
        (!is_same_place(place, &work) && !is_below(place, &work, child))) {
        return false;
    }
    memcpy(child, ".tide-partial", sizeof ".tide-partial");
    return true;
}

static int check_pair(const struct cli_path *written, const struct place *place,
                      const struct cli_path *other, const struct cli_path *paths, size_t count)
{
    struct place second;
    char child[PATH_MAX];
    const char *path = written->path;
    if (other->kind == CLI_PATH_KEPT && is_folder(other->path, place)) {
        return core_err_set(-EINVAL, "%s %s is the folder of %s %s; name another place",
                            written->flag, path, other->flag, other->path);
    }
    if (other->kind == CLI_PATH_KEPT) {
        return !is_file_of_folder(other->path, place)
                   ? 0
                   : core_err_set(
                         -EINVAL,
                         "%s %s would overwrite a file that %s %s reads; name another file",
                         written->flag, path, other->flag, other->path);
    }
    if (other->kind == CLI_PATH_READ) {
        return !text_records_means(other->path, path) && !will_match(other->path, place)
                   ? 0
                   : core_err_set(-EINVAL,
                                  "%s %s would overwrite the file of %s %s; name another file",
                                  written->flag, path, other->flag, other->path);
    }
    if (find_place(other->path, &second) != 0) {
        return 0; /* its own check reports this */
    }
    if (is_same_place(place, &second)) {
        return core_err_set(-EINVAL, "%s and %s both write %s; name two files", written->flag,
                            other->flag, path);
    }
    if (other->kind == CLI_PATH_MADE && name_in_output(place, other->path, &second, child) &&
        is_reserved(child, paths, count)) {
        return core_err_set(-EINVAL,
                            "%s %s: the run itself uses this name in %s %s for its model, its "
                            "checkpoints or its marks; name another file",
                            written->flag, path, other->flag, other->path);
    }
    return 0;
}

int cli_paths_check(const struct cli_path *paths, size_t count)
{
    for (size_t w = 0; w < count; w++) {
        const struct cli_path *written = &paths[w];
        struct place place;
        if (written->path == NULL || written->kind != CLI_PATH_WRITTEN) {
            continue;
        }
        int rc = find_place(written->path, &place);
        if (rc != 0) {
            return core_err_set(rc, "%s %s cannot be written: %s", written->flag, written->path,
                                strerror(-rc));
        }
        for (size_t o = 0; o < count && rc == 0 && holds_bytes(&place.info); o++) {
            const bool done = o <= w && paths[o].kind == CLI_PATH_WRITTEN;
            rc = done || paths[o].path == NULL
                     ? 0
                     : check_pair(written, &place, &paths[o], paths, count);
        }
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static int try_place(const struct place *place, const char *path, enum cli_path_shape shape)
{
    const bool there = place->rest[0] == '\0';
    const bool folder = S_ISDIR(place->info.st_mode);
    if (folder != (shape == CLI_PATH_FOLDER || !there)) {
        return folder ? -EISDIR : -ENOTDIR;
    }
    if (shape <= CLI_PATH_FILE_LAST && strchr(place->rest, '/') != NULL) {
        return -ENOENT;
    }
    return faccessat(AT_FDCWD, there ? path : place->there, folder ? W_OK | X_OK : W_OK,
                     AT_EACCESS) == 0
               ? 0
               : -errno;
}

int cli_path_try(const char *flag, const char *path, enum cli_path_shape shape)
{
    struct place place;
    if (path == NULL) {
        return 0;
    }
    if (strcmp(path, "-") == 0) {
        return core_err_set(-EINVAL, "%s - does not mean standard output; name %s", flag,
                            shape == CLI_PATH_FOLDER ? "a folder" : "a file, or /dev/stdout");
    }
    int rc = find_place(path, &place);
    const bool there = rc == 0 && place.rest[0] == '\0';
    if (there && (S_ISSOCK(place.info.st_mode) || S_ISBLK(place.info.st_mode))) {
        return core_err_set(-EINVAL, "%s %s is a %s; name a file", flag, path,
                            S_ISBLK(place.info.st_mode) ? "block device" : "socket");
    }
    if (rc == 0) {
        rc = try_place(&place, path, shape);
    }
    if (rc == 0 && shape == CLI_PATH_FILE_LAST && core_file_is_fifo(path)) {
        return core_err_set(-EINVAL,
                            "%s %s is a FIFO, and the run would write it only at its end; name a "
                            "file",
                            flag, path);
    }
    return rc == 0 ? 0 : core_err_set(rc, "%s %s cannot be written: %s", flag, path, strerror(-rc));
}
