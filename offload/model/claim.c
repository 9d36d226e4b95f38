/* claim.c: a folder with a lock, which ends with the process, and a mark, which stays. */
#include "offload/model/claim.h"

#include <errno.h>
#include <fcntl.h>
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

/* Returns false if the open folder was published or removed. */
static bool is_in_place(const char *path, int fd)
{
    struct stat named;
    struct stat opened;
    return lstat(path, &named) == 0 && fstat(fd, &opened) == 0 && named.st_dev == opened.st_dev &&
           named.st_ino == opened.st_ino;
}

static int put_mark(int folder, const char *path)
{
    int fd = openat(folder, MODEL_CLAIM_MARK, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0) {
        return core_err_set(-errno, "%s/" MODEL_CLAIM_MARK " cannot be created: %s", path,
                            strerror(errno));
    }
    close(fd);
    return 0;
}

int model_claim_note(const struct model_claim *claim, const char *text)
{
    const int fd = openat(claim->fd, MODEL_CLAIM_MARK, O_WRONLY | O_TRUNC | O_NOFOLLOW | O_CLOEXEC);
    int rc = fd >= 0 ? core_file_write(fd, text, strlen(text)) : -errno;
    if (fd >= 0) {
        close(fd);
    }
    return rc == 0 ? 0
                   : core_err_set(rc, "%s/" MODEL_CLAIM_MARK " cannot be written: %s", claim->path,
                                  strerror(-rc));
}

/* Without a readable note, claim->noted stays NULL. */
static void read_note(struct model_claim *claim)
{
    enum { NOTE_BYTES = 1 << 16 };
    const int fd = openat(claim->fd, MODEL_CLAIM_MARK,
                          O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    char *text = fd >= 0 && claim->noted == NULL ? malloc(NOTE_BYTES + 1) : NULL;
    const ssize_t got = text != NULL ? core_file_read_at(fd, text, NOTE_BYTES, 0) : 0;
    if (got > 0) {
        text[got] = '\0';
        claim->noted = text;
    } else {
        free(text);
    }
    if (fd >= 0) {
        close(fd);
    }
}

/* Empties the folder of a run, marks an empty folder, refuses other folders. */
static int make_ours(const char *folder, const struct model_claim *claim)
{
    struct stat info;
    if (fstatat(claim->fd, MODEL_CLAIM_MARK, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISREG(info.st_mode)) {
        model_folder_clear(claim->path);
        return 0;
    }
    const int empty = model_folder_is_empty(claim->path);
    if (empty == 0) {
        return core_err_set(
            -EEXIST,
            "%s has files that no run of tide left (there is no " MODEL_CLAIM_MARK
            " in it), and writing %s would remove them; move it away or name another folder",
            claim->path, folder);
    }
    const int rc = empty < 0 ? empty : put_mark(claim->fd, claim->path);
    if (rc != 0) {
        rmdir(claim->path); /* if it is empty */
    }
    return rc;
}

/* Returns 1 after moving complete files of a stopped run to `folder`. */
static int publish_left(const char *folder, const struct model_claim *claim)
{
    char *name;
    if (asprintf(&name, "%.*s", model_folder_length(folder), folder) < 0) {
        return core_err_set(-ENOMEM, "no memory for the name of %s", folder);
    }
    const int rc = model_publish_resume(claim->path, claim->fd, name);
    free(name);
    return rc;
}

/* Returns 1 to try again, because the folder was moved or removed meanwhile. */
static int take_once(const char *folder, struct model_claim *claim)
{
    if (mkdir(claim->path, 0777) != 0 && errno != EEXIST) {
        return core_err_set(-errno, "the folder %s cannot be created: %s", claim->path,
                            strerror(errno));
    }
    claim->fd = open(claim->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (claim->fd < 0) {
        return errno == ENOENT ? 1
                               : core_err_set(-errno, "the folder %s cannot be opened: %s",
                                              claim->path, strerror(errno));
    }
    int rc = core_lock_take(claim->fd, NULL, &claim->lock);
    if (rc == -EWOULDBLOCK) {
        return core_err_set(-EBUSY,
                            "another run is going to write %s and holds %s; name another "
                            "folder, or wait until that run ends",
                            folder, claim->path);
    }
    if (rc != 0) {
        core_log(CORE_LOG_WARN,
                 "%s cannot be locked (%s): tide cannot rule out that another run writes %s",
                 claim->path, strerror(-rc), folder);
    }
    if (!is_in_place(claim->path, claim->fd)) {
        return 1;
    }
    read_note(claim);
    rc = publish_left(folder, claim);
    return rc == 0 ? make_ours(folder, claim) : rc;
}

void model_claim_close(struct model_claim *claim)
{
    core_lock_drop(claim->lock);
    if (claim->fd >= 0) {
        close(claim->fd);
    }
    free(claim->noted);
    free(claim->path);
    *claim = (struct model_claim){.fd = -1};
}

int model_claim_take(const char *folder, struct model_claim *claim)
{
    enum { TRIES = 100 };
    int rc = 1;
    *claim = (struct model_claim){.fd = -1};
    if (asprintf(&claim->path, "%.*s.partial", model_folder_length(folder), folder) < 0) {
        claim->path = NULL;
        return core_err_set(-ENOMEM, "no memory for the name of %s", folder);
    }
    for (int i = 0; rc == 1 && i < TRIES; i++) {
        rc = take_once(folder, claim);
        if (rc != 0 && claim->fd >= 0) {
            core_lock_drop(claim->lock);
            claim->lock = NULL;
            close(claim->fd);
            claim->fd = -1;
        }
    }
    if (rc == 1) {
        rc = core_err_set(-EBUSY, "%s is created and removed repeatedly: other runs write %s",
                          claim->path, folder);
    }
    if (rc != 0) {
        model_claim_close(claim);
    }
    return rc;
}

bool model_claim_holds(const struct model_claim *claim, const char *folder)
{
    char *path = NULL;
    if (claim->path == NULL ||
        asprintf(&path, "%.*s.partial", model_folder_length(folder), folder) < 0) {
        return false;
    }
    const bool holds = is_in_place(path, claim->fd); /* "out" and "./out" are the same */
    free(path);
    return holds;
}

void model_claim_undo(const struct model_claim *claim)
{
    if (claim->path != NULL && is_in_place(claim->path, claim->fd)) {
        if (!claim->left) {
            unlinkat(claim->fd, MODEL_CLAIM_MARK, 0);
        }
        rmdir(claim->path); /* the folder stays if it has files */
    }
}

void model_claim_drop(struct model_claim *claim)
{
    if (claim->path == NULL) {
        return;
    }
    model_claim_undo(claim);
    model_claim_close(claim);
}
