/* paths.c: identifies existing files by device and inode, and files to be created by folder and
 * name. */
#include "tools/tide/paths.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <glob.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/json/json.h"
#include "tools/text/data/records.h"

enum { LINKS_MAX = 40 };

/* A resolved path. */
struct place {
    struct stat info;     /* of the existing part */
    char there[PATH_MAX]; /* the existing part without links; "": unknown */
    char rest[PATH_MAX];  /* the part below it that does not exist yet; "": none */
};

static bool is_same(const struct stat *one, const struct stat *other)
{
    return one->st_dev == other->st_dev && one->st_ino == other->st_ino;
}

/* Writing to devices and pipes destroys no data. */
static bool holds_bytes(const struct stat *info)
{
    return S_ISREG(info->st_mode) || S_ISDIR(info->st_mode);
}

static int join(char *out, const char *one, const char *between, const char *other)
{
    const int length = snprintf(out, PATH_MAX, "%s%s%s", one, between, other);
    return length >= 0 && length < PATH_MAX ? 0 : -ENAMETOOLONG;
}

/* Cuts off the last name and returns it in `name`; leaves "." or "/" if nothing was before it. */
static void cut_name(char *path, char name[PATH_MAX])
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

static void cut_slashes(char *path)
{
    for (size_t end = strlen(path); end > 1 && path[end - 1] == '/'; end--) {
        path[end - 1] = '\0';
    }
}

/* Follows links to missing files: opening such a link creates its target. */
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
        cut_name(folder, name);
        rc = target[0] == '/' ? join(path, target, "", "") : join(path, folder, "/", target);
        cut_slashes(path);
    }
    return rc;
}

static int find_place(const char *path, struct place *out)
{
    char at[PATH_MAX];
    char name[PATH_MAX];
    char rest[PATH_MAX];
    *out = (struct place){.rest = ""};
    int rc = path[0] != '\0' ? join(at, path, "", "") : -ENOENT;
    if (rc == 0) {
        cut_slashes(at);
        rc = follow_links(at);
    }
    while (rc == 0 && stat(at, &out->info) != 0) {
        if (strcmp(at, "/") == 0 || strcmp(at, ".") == 0) {
            return -errno;
        }
        cut_name(at, name);
        cut_slashes(at);
        memcpy(rest, out->rest, sizeof rest);
        rc = join(out->rest, name, rest[0] != '\0' ? "/" : "", rest);
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

/* Whether the place is in the folder. `child` is the first name below the folder on the way to the
 * place; "" for the folder itself. */
static bool lies_in(const struct place *place, const struct stat *folder, char child[PATH_MAX])
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
        cut_name(at, child);
    }
    return false;
}

/* Whether the folder lists the file, perhaps as a link: a download cache keeps the files
 * elsewhere. */
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

/* Whether the place is an existing file of the folder. */
static bool is_file_of_folder(const char *kept, const struct place *place)
{
    char child[PATH_MAX];
    struct stat info;
    return place->rest[0] == '\0' && S_ISREG(place->info.st_mode) && stat(kept, &info) == 0 &&
           (lies_in(place, &info, child) || folder_lists_file(kept, &place->info));
}

/* Whether a file that will be created would match a pattern of inputs. */
static bool will_match(const char *pattern, const struct place *place)
{
    char folder[PATH_MAX];
    char name[PATH_MAX];
    glob_t found;
    bool matches = false;
    if (strpbrk(pattern, "*?[") == NULL || place->rest[0] == '\0' ||
        join(folder, pattern, "", "") != 0) {
        return false;
    }
    cut_name(folder, name);
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

/* Files that publishing a model replaces or removes, besides the copies of other files of the
 * model. */
static bool is_model_file(const char *name)
{
    return strcmp(name, "config.json") == 0 || core_file_is_weights(name);
}

/* Whether the run itself writes or removes this name in its output folder: a file of the model, a
 * copy of a file of the input model, a checkpoint, or a mark of tide. */
static bool is_reserved(const char *name, const struct cli_path *paths, size_t count)
{
    static const char checkpoint[] = "checkpoint-";
    static const char mark[] = ".tide-";
    bool copied = false;
    for (size_t i = 0; i < count && !copied; i++) {
        char path[PATH_MAX];
        struct stat info;
        copied = paths[i].kind == CLI_PATH_KEPT && paths[i].path != NULL &&
                 join(path, paths[i].path, "/", name) == 0 && stat(path, &info) == 0 &&
                 S_ISREG(info.st_mode);
    }
    return copied || is_model_file(name) || strncmp(name, checkpoint, sizeof checkpoint - 1) == 0 ||
           strncmp(name, mark, sizeof mark - 1) == 0;
}

/* Whether the place is below the output `path` (at `out`), or in the folder beside it in which the
 * run works and which is all its own. `child` is the first name below the output. */
static bool name_in_output(const struct place *place, const char *path, const struct place *out,
                           char child[PATH_MAX])
{
    char partial[PATH_MAX];
    char name[PATH_MAX];
    struct stat info;
    const size_t made = strlen(out->rest);
    if (made == 0 && lies_in(place, &out->info, child)) {
        return child[0] != '\0';
    }
    if (made > 0 && is_same(&place->info, &out->info) &&
        strncmp(place->rest, out->rest, made) == 0 && place->rest[made] == '/') {
        memcpy(child, place->rest + made + 1, strlen(place->rest + made + 1) + 1);
        child[strcspn(child, "/")] = '\0';
        return true;
    }
    if (join(name, path, "", "") != 0) {
        return false;
    }
    cut_slashes(name);
    if (join(partial, name, "", ".partial") != 0 || stat(partial, &info) != 0 ||
        !lies_in(place, &info, child)) {
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
        return 0; /* reported when this path is checked itself */
    }
    if (is_same_place(place, &second)) {
        return core_err_set(-EINVAL, "%s and %s both write %s; name two files", written->flag,
                            other->flag, path);
    }
    if (other->kind == CLI_PATH_MADE && name_in_output(place, other->path, &second, child) &&
        is_reserved(child, paths, count)) {
        return core_err_set(-EINVAL,
                            "the run itself uses the name %s %s in %s %s for its model, its "
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
    if (shape == CLI_PATH_FILE && strchr(place->rest, '/') != NULL) {
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
    int rc = find_place(path, &place);
    if (rc == 0) {
        rc = try_place(&place, path, shape);
    }
    return rc == 0 ? 0 : core_err_set(rc, "%s %s cannot be written: %s", flag, path, strerror(-rc));
}

/* ---- the folder of a model ---- */

/* A mount point cannot be replaced by renaming a folder. */
static bool is_mount_point(const char *path, const struct stat *info)
{
    struct stat above;
    char parent[PATH_MAX];
    return join(parent, path, "/", "..") == 0 && stat(parent, &above) == 0 &&
           (above.st_dev != info->st_dev || above.st_ino == info->st_ino);
}

/* A folder can only be created in an existing one. */
static int check_parent(const char *path)
{
    struct stat info;
    char parent[PATH_MAX];
    char name[PATH_MAX];
    if (join(parent, path, "", "") != 0) {
        return core_err_set(-ENAMETOOLONG, "--out %s: the name is too long", path);
    }
    cut_slashes(parent);
    cut_name(parent, name);
    return stat(parent, &info) == 0 ? 0
                                    : core_err_set(-errno, "--out %s cannot be created in %s: %s",
                                                   path, parent, strerror(errno));
}

/* The file .tide-model, which a run writes beside its model. */
struct note {
    char *text;  /* owned; NULL: there is none */
    size_t head; /* bytes of the first line */
    int version; /* 2: with checksums */
    uint64_t run;
    int64_t steps;
};

static void read_note(const char *path, struct note *out)
{
    enum { NOTE_BYTES_MAX = 1 << 24 };
    char name[PATH_MAX];
    size_t bytes = 0;
    int end = 0;
    *out = (struct note){.text = NULL};
    if (join(name, path, "/", ".tide-model") != 0 ||
        core_file_read_regular(name, NOTE_BYTES_MAX, &out->text, &bytes) != 0) {
        out->text = NULL;
        return;
    }
    if (strlen(out->text) != bytes ||
        sscanf(out->text, "tide-model %d %" SCNx64 " %" SCNd64 "%n", &out->version, &out->run,
               &out->steps, &end) != 3 ||
        out->version < 1 || out->version > 2 || out->text[end] != '\n' || out->run == 0) {
        free(out->text);
        out->text = NULL;
        return;
    }
    out->head = (size_t)end + 1;
}

/* One line of the note: one file. */
struct noted {
    int64_t bytes;
    int64_t seconds;
    long nanoseconds;
    uint64_t sum; /* version 2 */
    char name[NAME_MAX + 1];
};

/* Parses the line at `at`. Returns the next line, or NULL after the last line and for a bad one. */
static const char *next_note_line(const struct note *note, const char *at, struct noted *out)
{
    int end = 0;
    int more = 0;
    if (sscanf(at, "%" SCNd64 " %" SCNd64 ".%ld%n", &out->bytes, &out->seconds, &out->nanoseconds,
               &end) != 3 ||
        (note->version == 2 && sscanf(at + end, " %" SCNx64 "%n", &out->sum, &more) != 1)) {
        return NULL;
    }
    if (at[end + more] != ' ') {
        return NULL;
    }
    const char *name = at + end + more + 1;
    const size_t length = strcspn(name, "\n");
    if (name[length] != '\n' || length >= sizeof out->name) {
        return NULL;
    }
    memcpy(out->name, name, length);
    out->name[length] = '\0';
    return name + length + 1;
}

/* Whether the file is unchanged. A copy has other times, so its bytes are compared by their
 * checksum. */
static bool is_same_file(const struct note *note, const struct noted *noted, int folder)
{
    struct stat info;
    uint64_t sum = 0;
    if (fstatat(folder, noted->name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode) ||
        info.st_size != noted->bytes) {
        return false;
    }
    if (info.st_mtim.tv_sec == noted->seconds && info.st_mtim.tv_nsec == noted->nanoseconds) {
        return true;
    }
    const int fd = note->version == 2
                       ? openat(folder, noted->name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
                       : -1;
    const bool same = fd >= 0 && core_file_sum(fd, &sum) == 0 && sum == noted->sum;
    if (fd >= 0) {
        close(fd);
    }
    return same;
}

/* Whether the file is listed in the note and unchanged. */
static bool is_in_note(const struct note *note, int folder, const char *name)
{
    struct noted noted;
    const char *at = note->text != NULL ? note->text + note->head : NULL;
    while (at != NULL && (at = next_note_line(note, at, &noted)) != NULL) {
        if (strcmp(noted.name, name) == 0) {
            return is_same_file(note, &noted, folder);
        }
    }
    return false;
}

int64_t cli_out_steps(const char *path)
{
    struct note note;
    struct noted noted;
    read_note(path, &note);
    const int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const char *at = note.text != NULL && folder >= 0 ? note.text + note.head : NULL;
    bool whole = at != NULL;
    while (whole && *at != '\0') {
        at = next_note_line(&note, at, &noted);
        whole = at != NULL && is_same_file(&note, &noted, folder);
    }
    if (folder >= 0) {
        close(folder);
    }
    free(note.text);
    return whole ? note.steps : 0;
}

/* Whether the manifest of the checkpoint names this run. */
static bool is_of_run(int folder, const char *name, uint64_t run)
{
    char path[PATH_MAX];
    struct core_json *doc = NULL;
    bool same = false;
    snprintf(path, sizeof path, "/proc/self/fd/%d/%s/manifest.json", folder, name);
    if (core_json_load(path, &(struct core_json_options){.regular = true}, &doc) == 0) {
        const struct core_json_value *value = core_json_find(core_json_root(doc), "run");
        const char *text = value != NULL ? core_json_string(value, NULL) : NULL;
        same = text != NULL && strtoull(text, NULL, 16) == run;
    }
    core_json_destroy(doc);
    return same;
}

/* Whether OUT/NAME has the same bytes as MODEL/NAME; true if the latter does not exist. */
static bool is_copy(int folder, const char *model, const char *name)
{
    char path[PATH_MAX];
    struct stat info;
    struct stat other;
    uint64_t sums[2] = {0, 1};
    if (join(path, model, "/", name) != 0 || stat(path, &info) != 0 || !S_ISREG(info.st_mode)) {
        return true;
    }
    const int from = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const int to = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const bool same = from >= 0 && to >= 0 && fstat(to, &other) == 0 && S_ISREG(other.st_mode) &&
                      other.st_size == info.st_size && core_file_sum(from, &sums[0]) == 0 &&
                      core_file_sum(to, &sums[1]) == 0 && sums[0] == sums[1];
    if (from >= 0) {
        close(from);
    }
    if (to >= 0) {
        close(to);
    }
    return same;
}

/* What an output folder contains before a run is resumed in it. */
struct content {
    unsigned entries;
    bool checkpoint;
    bool of_run;                /* one of the checkpoints belongs to the run that wrote the model */
    bool model;                 /* it has a model with a note */
    char foreign[NAME_MAX + 1]; /* a file that the run would replace but did not write; "": none */
    bool foreign_model; /* `foreign` is config.json or weights, not a copy of a file of the model */
};

static void classify_entry(struct content *out, const struct note *note, int folder,
                           const char *name, const char *model)
{
    static const char checkpoint[] = "checkpoint-";
    struct stat info;
    out->entries++;
    if (fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
        return;
    }
    if (S_ISDIR(info.st_mode) && strncmp(name, checkpoint, sizeof checkpoint - 1) == 0 &&
        name[strcspn(name, ".")] == '\0') {
        out->checkpoint = true;
        out->of_run = out->of_run || (note->text != NULL && is_of_run(folder, name, note->run));
        return;
    }
    const bool noted = is_in_note(note, folder, name);
    const bool tensors = is_model_file(name);
    out->model = out->model || (noted && tensors);
    const bool copy = tensors ? S_ISDIR(info.st_mode)
                              : !S_ISREG(info.st_mode) || name[0] == '.' || model == NULL ||
                                    is_copy(folder, model, name);
    if (!noted && !copy) {
        snprintf(out->foreign, sizeof out->foreign, "%s", name);
        out->foreign_model = tensors;
    }
}

static int list_content(const char *path, const char *model, struct content *out)
{
    struct note note;
    DIR *folder = opendir(path);
    *out = (struct content){.entries = 0};
    if (folder == NULL) {
        return core_err_set(-errno, "--out %s: %s", path, strerror(errno));
    }
    read_note(path, &note);
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            classify_entry(out, &note, dirfd(folder), entry->d_name, model);
        }
    }
    free(note.text);
    closedir(folder);
    return 0;
}

/* Whether a run was killed while it moved its model there; claiming --out moves the remaining
 * files. */
static bool is_half_moved(const struct cli_out *out)
{
    char path[PATH_MAX];
    char name[PATH_MAX];
    if (out->claimed || join(path, out->path, "", "") != 0) {
        return false;
    }
    cut_slashes(path);
    return join(name, path, ".partial", "/.tide-publish") == 0 && access(name, F_OK) == 0;
}

/* Files that this run did not write are replaced only with --overwrite. */
static int check_content(const struct cli_out *out)
{
    struct content content;
    int rc = list_content(out->path, out->model, &content);
    if (rc != 0 || content.entries == 0 || out->overwrite) {
        return rc;
    }
    if (!out->resume) {
        return core_err_set(-EEXIST,
                            "--out %s exists and is not empty; name another folder, or give "
                            "--overwrite to replace the model in it%s",
                            out->path,
                            out->model == NULL
                                ? ""
                                : ", or --resume to continue the run whose checkpoints are in it");
    }
    if (is_half_moved(out)) {
        return 0;
    }
    if (content.foreign[0] != '\0' && content.foreign_model) {
        return core_err_set(-EEXIST,
                            "--out %s: the file %s in it would be replaced, but this run did not "
                            "write it, or it was changed since; move it away, or give --overwrite",
                            out->path, content.foreign);
    }
    if (content.foreign[0] != '\0') {
        return core_err_set(-EEXIST,
                            "--out %s: the file %s in it is not a copy of the one in %s, which "
                            "would replace it; move it away, or give --overwrite",
                            out->path, content.foreign, out->model);
    }
    return !content.model || !content.checkpoint || content.of_run
               ? 0
               : core_err_set(-EEXIST,
                              "--out %s: its model and its checkpoints belong to different runs; "
                              "move it away, or give --overwrite",
                              out->path);
}

int cli_out_check(const struct cli_out *out)
{
    struct stat info;
    if (stat(out->path, &info) != 0) {
        return errno == ENOENT ? check_parent(out->path)
                               : core_err_set(-errno, "--out %s: %s", out->path, strerror(errno));
    }
    if (!S_ISDIR(info.st_mode)) {
        return core_err_set(-ENOTDIR, "--out %s is a file; expected a folder", out->path);
    }
    if (out->model != NULL && core_file_is_same(out->model, out->path)) {
        return core_err_set(
            -EINVAL, "--out %s is the model that is being trained; name another folder", out->path);
    }
    if (is_mount_point(out->path, &info)) {
        return core_err_set(-EBUSY, "--out %s is a mount point; name a folder in it", out->path);
    }
    return check_content(out);
}

int cli_out_resolve(const char *path, char whole[PATH_MAX])
{
    char name[PATH_MAX];
    struct stat info;
    if (join(name, path, "", "") != 0) {
        return core_err_set(-ENAMETOOLONG, "--out %s: the name is too long", path);
    }
    cut_slashes(name);
    const char *slash = strrchr(name, '/');
    const char *last = slash != NULL ? slash + 1 : name;
    const bool link = lstat(name, &info) == 0 && S_ISLNK(info.st_mode);
    if (!link && strcmp(last, ".") != 0 && strcmp(last, "..") != 0) {
        return join(whole, path, "", "");
    }
    return realpath(path, whole) != NULL
               ? 0
               : core_err_set(-errno, "--out %s: %s", path, strerror(errno));
}
