/* save_folder.c: creates and fills the folder of a model or checkpoint. */
#include "offload/model/save_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/json/json.h"
#include "core/json/write.h"
#include "offload/model/adapter.h"
#include "offload/model/claim.h"
#include "offload/model/family.h"
#include "offload/model/publish.h"

/* Refuses names that publishing could not use. */
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
    if (!S_ISDIR(info.st_mode)) {
        return core_err_set(-ENOTDIR, "%s is not a folder; name another one", folder);
    }
    return replace || model_folder_is_empty(folder) == 1
               ? 0
               : core_err_set(-EEXIST,
                              "%s exists and has files in it, which can be those of a store; name "
                              "another folder",
                              folder);
}

int model_folder_begin(const char *folder, bool replace, struct model_claim *claim,
                       struct model_claim *own)
{
    int rc = check_name(folder, replace);
    if (rc != 0) {
        return rc;
    }
    if (claim == NULL || !model_claim_holds(claim, folder)) {
        rc = model_claim_take(folder, own);
        if (rc != 0) {
            return rc;
        }
    } else {
        struct model_claim shared = {.path = strdup(claim->path),
                                     .fd = fcntl(claim->fd, F_DUPFD_CLOEXEC, 0)};
        if (shared.path == NULL || shared.fd < 0) {
            const int code = shared.path == NULL ? ENOMEM : errno;
            model_claim_close(&shared);
            return core_err_set(-code, "%s cannot be created: %s", claim->path, strerror(code));
        }
        *own = shared;
        claim->left = false; /* its files are removed below */
    }
    model_folder_clear(own->path); /* files of a killed run */
    return 0;
}

int model_folder_failed(const struct model_folder *folder, const char *name, int code,
                        uint64_t bytes)
{
    const double mb = 1e6;
    struct statvfs disk;
    if ((code == -ENOSPC || code == -EDQUOT) && fstatvfs(folder->fd, &disk) == 0) {
        return core_err_set(code,
                            "no space for %s/%s: it needs %.3f MB, and %.3f MB are free there: %s",
                            folder->path, name, (double)bytes / mb,
                            (double)disk.f_bavail * (double)disk.f_frsize / mb, strerror(-code));
    }
    return core_err_set(code, "%s/%s cannot be written: %s", folder->path, name, strerror(-code));
}

/* An open file to copy, or a text if `fd` is negative. */
struct content {
    int fd;
    const char *name; /* for messages */
    const char *text; /* borrowed */
    uint64_t bytes;
};

enum { PIECE_BYTES = CORE_FILE_SUM_BYTES };

/* Returns 0 at the end. */
static ssize_t read_piece(int fd, uint64_t at, char *piece)
{
    return core_file_read_at(fd, piece, PIECE_BYTES, at);
}

static ssize_t content_piece(const struct content *content, uint64_t at, char *piece)
{
    if (content->fd >= 0) {
        const ssize_t got = read_piece(content->fd, at, piece);
        return got >= 0 ? got
                        : core_err_set((int)got, "%s cannot be read: %s", content->name,
                                       strerror((int)-got));
    }
    const uint64_t left = content->bytes - at;
    const size_t some = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
    memcpy(piece, content->text + at, some);
    return (ssize_t)some;
}

struct written {
    uint64_t bytes;
    uint64_t sum;
};

static void add_piece(struct written *written, const char *piece, size_t bytes)
{
    written->sum += core_file_sum_bytes(piece, bytes, written->bytes);
    written->bytes += bytes;
}

static int fill(const struct model_folder *folder, const char *name, int file,
                const struct content *content, char *piece, struct written *out)
{
    ssize_t got;
    while ((got = content_piece(content, out->bytes, piece)) > 0) {
        const int rc = core_file_write(file, piece, (size_t)got);
        if (rc != 0) {
            return model_folder_failed(folder, name, rc, content->bytes);
        }
        add_piece(out, piece, (size_t)got);
    }
    if (got < 0) {
        return (int)got;
    }
    return fsync(file) == 0 ? 0 : model_folder_failed(folder, name, -errno, content->bytes);
}

/* Drops cached pages first, so that the bytes come from the drive. */
static int read_back(const struct model_folder *folder, const char *name, int file, char *piece,
                     const struct written *written)
{
    struct written found = {0};
    ssize_t got;
    (void)posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    while ((got = read_piece(file, found.bytes, piece)) > 0) {
        add_piece(&found, piece, (size_t)got);
    }
    if (got < 0) {
        return core_err_set((int)got, "%s/%s cannot be read back: %s", folder->path, name,
                            strerror((int)-got));
    }
    return found.bytes == written->bytes && found.sum == written->sum
               ? 0
               : core_err_set(-EBADMSG, "%s/%s was read back and differs from what was written",
                              folder->path, name);
}

static int write_file(const struct model_folder *folder, const char *name,
                      const struct content *content)
{
    struct written written = {0};
    char *piece = malloc(PIECE_BYTES);
    if (piece == NULL) {
        return core_err_set(-ENOMEM, "no memory to write %s/%s", folder->path, name);
    }
    const int file = openat(folder->fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    int rc = file >= 0 ? fill(folder, name, file, content, piece, &written)
                       : model_folder_failed(folder, name, -errno, content->bytes);
    if (rc == 0) {
        rc = read_back(folder, name, file, piece, &written);
    }
    if (file >= 0 && close(file) != 0 && rc == 0) {
        rc = model_folder_failed(folder, name, -errno, content->bytes);
    }
    free(piece);
    return rc;
}

int model_folder_write(const struct model_folder *folder, const char *name, const char *text,
                       size_t bytes)
{
    return write_file(folder, name, &(struct content){.fd = -1, .text = text, .bytes = bytes});
}

static int note_file(const struct model_folder *folder, const char *name, const struct stat *info,
                     const struct model_sum *sums, size_t count, FILE *lines)
{
    size_t i = 0;
    uint64_t sum = 0;
    int rc = 0;
    while (i < count && strcmp(sums[i].name, name) != 0) {
        i++;
    }
    if (i < count) {
        sum = sums[i].sum;
    } else {
        const int fd = openat(folder->fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        rc = fd >= 0 ? core_file_sum(fd, &sum) : -errno;
        if (fd >= 0) {
            close(fd);
        }
    }
    if (rc != 0) {
        return core_err_set(rc, "%s/%s cannot be read: %s", folder->path, name, strerror(-rc));
    }
    fprintf(lines, "%jd %jd.%09ld %016" PRIx64 " %s\n", (intmax_t)info->st_size,
            (intmax_t)info->st_mtim.tv_sec, info->st_mtim.tv_nsec, sum, name);
    return 0;
}

static int note_files(const struct model_folder *folder, const struct model_sum *sums, size_t count,
                      FILE *lines)
{
    DIR *dir = opendir(folder->path);
    int rc = dir != NULL ? 0 : model_folder_failed(folder, MODEL_NOTE, -errno, 0);
    for (const struct dirent *entry; rc == 0 && (entry = readdir(dir)) != NULL;) {
        struct stat info;
        if (entry->d_name[0] != '.' && strchr(entry->d_name, '\n') == NULL &&
            fstatat(folder->fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(info.st_mode)) {
            rc = note_file(folder, entry->d_name, &info, sums, count, lines);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return rc;
}

int model_folder_note(const struct model_folder *folder, const struct model_note *note)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *lines = open_memstream(&text, &bytes);
    if (lines == NULL) {
        return model_folder_failed(folder, MODEL_NOTE, -ENOMEM, 0);
    }
    fprintf(lines, "tide-model 2 %016" PRIx64 " %" PRIu64 "\n", note->run, note->steps);
    int rc = note_files(folder, note->sums, note->sum_count, lines);
    if (fclose(lines) != 0 && rc == 0) {
        rc = model_folder_failed(folder, MODEL_NOTE, -ENOMEM, 0);
    }
    if (rc == 0) {
        rc = model_folder_write(folder, MODEL_NOTE, text, bytes);
    }
    free(text);
    return rc;
}

static int copy_file(const struct model_folder *folder, int source_fd, const char *source,
                     const char *name)
{
    struct stat info;
    char path[4200];
    int rc = 0;
    snprintf(path, sizeof path, "%s/%s", source, name);
    const int from = openat(source_fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (from < 0 || fstat(from, &info) != 0) {
        rc = core_err_set(-errno, "%s cannot be read: %s", path, strerror(errno));
    } else if (S_ISREG(info.st_mode)) {
        rc = write_file(
            folder, name,
            &(struct content){.fd = from, .name = path, .bytes = (uint64_t)info.st_size});
    }
    if (from >= 0) {
        close(from);
    }
    return rc;
}

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
    /* The manifest and an adapter's configuration describe the source, not the result. */
    return name[0] == '.' || strcmp(name, "config.json") == 0 ||
           strcmp(name, MODEL_MANIFEST_NAME) == 0 || strcmp(name, MODEL_ADAPTER_CONFIG) == 0;
}

/* Sets the type of the weights and the model's `tie_word_embeddings`. */
static int write_config(const struct model_folder *folder, const char *source,
                        const struct model_config *config, enum model_dtype type)
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
    bool says_tied = false;
    core_json_write_init_text(&write);
    write.indent = 2;
    core_json_write_object_begin(&write, NULL);
    if (core_json_find(root, "architectures") == NULL) {
        core_json_write_array_begin(&write, "architectures");
        core_json_write_string(&write, NULL, config->family->architecture);
        core_json_write_array_end(&write);
    }
    struct core_json_member member;
    for (bool any = core_json_first(root, &member); any; any = core_json_next(&member)) {
        if (strcmp(member.key, "dtype") == 0 || strcmp(member.key, "torch_dtype") == 0) {
            core_json_write_string(&write, member.key, model_dtype_config_name(type));
            typed = true;
        } else if (strcmp(member.key, "tie_word_embeddings") == 0) {
            core_json_write_bool(&write, member.key, config->tied);
            says_tied = true;
        } else {
            core_json_write_value(&write, member.key, member.value);
        }
    }
    if (!typed) {
        core_json_write_string(&write, "torch_dtype", model_dtype_config_name(type));
    }
    if (!says_tied && config->tied != config->family->defaults.tied) {
        core_json_write_bool(&write, "tie_word_embeddings", config->tied);
    }
    core_json_write_object_end(&write);
    rc = core_json_write_end(&write);
    if (rc == 0) {
        rc = model_folder_write(folder, "config.json", write.text, write.bytes);
    }
    core_json_write_fini(&write);
    core_json_destroy(doc);
    return rc;
}

int model_folder_copy(const struct model_folder *folder, const char *source,
                      const struct model_config *config, enum model_dtype type)
{
    DIR *dir = opendir(source);
    if (dir == NULL) {
        return core_err_set(-errno, "the folder %s cannot be read: %s", source, strerror(errno));
    }
    int rc = 0;
    for (struct dirent *entry; rc == 0 && (entry = readdir(dir)) != NULL;) {
        if (!is_left_out(entry->d_name)) {
            rc = copy_file(folder, dirfd(dir), source, entry->d_name);
        }
    }
    closedir(dir);
    return rc == 0 && config != NULL ? write_config(folder, source, config, type) : rc;
}
