/* out.c: .tide-model lists the files that a run wrote to the folder; other files, and changed ones,
 * are not the run's. */
#include "tools/tide/out.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/json/json.h"
#include "tools/tide/paths.h"

/* A mount point cannot be renamed. */
static bool is_mount_point(const char *path, const struct stat *info)
{
    struct stat above;
    char parent[PATH_MAX];
    return cli_path_join(parent, path, "/", "..") == 0 && stat(parent, &above) == 0 &&
           (above.st_dev != info->st_dev || above.st_ino == info->st_ino);
}

static int check_parent(const char *path)
{
    struct stat info;
    char parent[PATH_MAX];
    char name[PATH_MAX];
    if (cli_path_join(parent, path, "", "") != 0) {
        return core_err_set(-ENAMETOOLONG, "--out %s: the name is too long", path);
    }
    cli_path_cut_slashes(parent);
    cli_path_cut_name(parent, name);
    return stat(parent, &info) == 0 ? 0
                                    : core_err_set(-errno, "--out %s cannot be created in %s: %s",
                                                   path, parent, strerror(errno));
}

/* The file .tide-model in the folder of a model. */
struct note {
    char *text;  /* owned; NULL: none */
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
    if (cli_path_join(name, path, "/", ".tide-model") != 0 ||
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

/* A line of the note. */
struct noted {
    int64_t bytes;
    int64_t seconds;
    long nanoseconds;
    uint64_t sum; /* of the bytes; version 2 only */
    char name[NAME_MAX + 1];
};

/* Reads the line at `at`. Returns the place after it; NULL: the line is not valid. */
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

/* Copies have other times; then checksums decide, if the note has them. */
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

/* Returns whether OUT/NAME equals MODEL/NAME, or MODEL/NAME is no regular file. */
static bool is_copy(int folder, const char *model, const char *name)
{
    char path[PATH_MAX];
    struct stat info;
    struct stat other;
    uint64_t sums[2] = {0, 1};
    if (cli_path_join(path, model, "/", name) != 0 || stat(path, &info) != 0 ||
        !S_ISREG(info.st_mode)) {
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

struct content {
    unsigned entries;
    bool checkpoint;
    bool of_run;                /* a checkpoint belongs to the run that wrote the model */
    bool model;                 /* a model with a note */
    char foreign[NAME_MAX + 1]; /* a file that the run would replace but did not write */
    /* true: `foreign` is config.json or weights; false: `foreign` differs from the model's file of
     * that name */
    bool foreign_model;
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
    const bool tensors = core_file_is_of_model(name);
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

/* Claiming --out moves the files that a killed run has left. */
static bool is_half_moved(const struct cli_out *out)
{
    char path[PATH_MAX];
    char name[PATH_MAX];
    if (out->claimed || cli_path_join(path, out->path, "", "") != 0) {
        return false;
    }
    cli_path_cut_slashes(path);
    return cli_path_join(name, path, ".partial", "/.tide-publish") == 0 && access(name, F_OK) == 0;
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
                            out->model == NULL || !content.checkpoint
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
    if (cli_path_join(name, path, "", "") != 0) {
        return core_err_set(-ENAMETOOLONG, "--out %s: the name is too long", path);
    }
    cli_path_cut_slashes(name);
    const char *slash = strrchr(name, '/');
    const char *last = slash != NULL ? slash + 1 : name;
    const bool link = lstat(name, &info) == 0 && S_ISLNK(info.st_mode);
    if (!link && strcmp(last, ".") != 0 && strcmp(last, "..") != 0) {
        return cli_path_join(whole, path, "", "");
    }
    if (realpath(path, whole) != NULL) {
        return 0;
    }
    return errno == ENOENT && link
               ? core_err_set(-ENOENT, "--out %s is a symbolic link to nothing; name a folder",
                              path)
               : core_err_set(-errno, "--out %s: %s", path, strerror(errno));
}
