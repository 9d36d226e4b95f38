/* checkpoint_remove.c: removes the files of a checkpoint, and no others. */
#include "offload/store/checkpoint_remove.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "offload/model/publish.h"
#include "offload/store/checkpoint.h"
#include "offload/store/checkpoint_files.h"
#include "offload/store/manifest_seal.h"

static bool is_file(int folder, const char *name)
{
    struct stat info;
    return fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode);
}

static int open_folder(const char *path)
{
    return open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

bool store_checkpoint_is_ours(const char *path)
{
    char head[65] = "";
    const int folder = open_folder(path);
    const int fd = folder >= 0 ? openat(folder, MODEL_MANIFEST_NAME,
                                        O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
                               : -1;
    if (fd >= 0) {
        (void)core_file_read_at(fd, head, sizeof head - 1, 0);
        close(fd);
    }
    if (folder >= 0) {
        close(folder);
    }
    return strstr(head, "\"" STORE_MANIFEST_FORMAT "\"") != NULL;
}

bool store_checkpoint_is_marked(const char *path)
{
    const int folder = open_folder(path);
    const bool marked = folder >= 0 && is_file(folder, STORE_REMOVED_NAME) &&
                        faccessat(folder, MODEL_MANIFEST_NAME, F_OK, AT_SYMLINK_NOFOLLOW) != 0;
    if (folder >= 0) {
        close(folder);
    }
    return marked;
}

/* ---- which files are its own ---- */

/* A damaged manifest is not trusted; then only names common to all checkpoints are own files. */
static int read_mark(int folder, const char *path, struct store_manifest *out)
{
    char *text = NULL;
    size_t bytes = 0;
    int rc = store_file_read(folder, path, STORE_REMOVED_NAME, STORE_MANIFEST_BYTES_MAX, &text,
                             &bytes);
    if (rc == 0 && store_manifest_parse(text, bytes, path, out) == -ENOMEM) {
        rc = -ENOMEM;
    }
    free(text);
    return rc;
}

static bool is_own(const struct store_manifest *manifest, const char *name)
{
    bool own = strcmp(name, STORE_SUMS_NAME) == 0 || strcmp(name, STORE_REMOVED_NAME) == 0 ||
               strcmp(name, MODEL_CLAIM_MARK) == 0 || strcmp(name, MODEL_PUBLISH_LIST) == 0;
    for (int s = 0; !own && s < STORE_STREAM_COUNT; s++) {
        char stream[32];
        snprintf(stream, sizeof stream, "%s.safetensors", store_stream_name((enum store_stream)s));
        own = strcmp(name, stream) == 0;
    }
    for (uint32_t i = 0; !own && i < manifest->file_count; i++) {
        own = strcmp(name, manifest->files[i].name) == 0;
    }
    return own;
}

struct entries {
    char foreign[NAME_MAX + 1]; /* one file that is not the checkpoint's; "": none */
    int failed;                 /* errno of the last failed removal; 0: none */
};

/* Keeps the mark. */
static int walk(int folder, const char *path, const struct store_manifest *manifest, bool remove,
                struct entries *out)
{
    DIR *dir = opendir(path);
    *out = (struct entries){.failed = 0};
    if (dir == NULL) {
        return core_err_set(-errno, "the folder %s cannot be read: %s", path, strerror(errno));
    }
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
            continue;
        }
        if (!is_own(manifest, name)) {
            snprintf(out->foreign, sizeof out->foreign, "%s", name);
        } else if (remove && strcmp(name, STORE_REMOVED_NAME) != 0 &&
                   unlinkat(folder, name, 0) != 0 && errno != ENOENT) {
            out->failed = errno;
        }
    }
    closedir(dir);
    return 0;
}

/* ---- removing ---- */

static int mark(int folder, const char *path, bool *foreign)
{
    struct store_manifest manifest = {.step = 0};
    struct entries entries;
    if (renameat(folder, MODEL_MANIFEST_NAME, folder, STORE_REMOVED_NAME) != 0) {
        return core_err_set(-errno, "%s/" MODEL_MANIFEST_NAME " cannot be renamed: %s", path,
                            strerror(errno));
    }
    if (fsync(folder) != 0) {
        return core_err_set(-errno, "%s cannot be made durable: %s", path, strerror(errno));
    }
    int rc = read_mark(folder, path, &manifest);
    if (rc == 0) {
        rc = walk(folder, path, &manifest, false, &entries);
        store_manifest_fini(&manifest);
    }
    if (rc == 0) {
        *foreign = entries.foreign[0] != '\0';
    }
    return rc;
}

int store_checkpoint_mark(const char *path, bool *foreign)
{
    const int folder = open_folder(path);
    if (folder < 0) {
        return core_err_set(-errno, "the folder %s cannot be opened: %s", path, strerror(errno));
    }
    const int rc = mark(folder, path, foreign);
    close(folder);
    return rc;
}

/* The mark is removed last, because it says which files may be removed. */
static int remove_files(int folder, const char *path, struct entries *out)
{
    struct store_manifest manifest = {.step = 0};
    int rc = read_mark(folder, path, &manifest);
    if (rc == 0) {
        rc = walk(folder, path, &manifest, true, out);
        store_manifest_fini(&manifest);
    }
    if (rc == 0 && (out->failed != 0 || unlinkat(folder, STORE_REMOVED_NAME, 0) != 0)) {
        const int code = out->failed != 0 ? out->failed : errno;
        rc = core_err_set(-code, "files of %s cannot be removed: %s", path, strerror(code));
    }
    return rc;
}

void store_checkpoint_remove(const char *path)
{
    struct entries entries = {.failed = 0};
    const int folder = open_folder(path);
    int rc = folder >= 0 ? remove_files(folder, path, &entries)
                         : core_err_set(-errno, "the folder %s cannot be opened: %s", path,
                                        strerror(errno));
    if (folder >= 0) {
        close(folder);
    }
    if (rc != 0) {
        core_log(CORE_LOG_WARN, "%s", core_err_message());
    } else if (entries.foreign[0] != '\0') {
        core_log(CORE_LOG_INFO,
                 "%s is kept, because it has files that are not the checkpoint's, such as %s; the "
                 "checkpoint's own files are removed",
                 path, entries.foreign);
    } else if (rmdir(path) != 0) {
        core_log(CORE_LOG_WARN, "%s cannot be removed: %s", path, strerror(errno));
    }
}
