/* spool.c: makes and fills nameless files. Any thread. */
#include "tools/text/data/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "core/base/file.h"

enum { PIECE_BYTES = 1 << 18 };

const char *text_spool_folder(void)
{
    const char *folder = getenv("TMPDIR");
    return folder != NULL && folder[0] != '\0' ? folder : "/var/tmp";
}

int text_spool_open(const char *what, int *fd)
{
    char *path = NULL;
    int made = asprintf(&path, "%s/tide-XXXXXX", text_spool_folder()) < 0
                   ? -1
                   : mkostemp(path, O_CLOEXEC);
    if (made < 0) {
        const int rc = errno;
        free(path);
        return core_err_set(-rc,
                            "%s must be copied to a temporary file, which cannot be created in %s: "
                            "%s; set TMPDIR to use another folder",
                            what, text_spool_folder(), strerror(rc));
    }
    unlink(path);
    free(path);
    *fd = made;
    return 0;
}

static int copy_input(int fd, char *piece, uint64_t *copied)
{
    for (*copied = 0;;) {
        const ssize_t got = core_file_read_some(STDIN_FILENO, piece, PIECE_BYTES);
        if (got == 0) {
            return 0;
        }
        if (got < 0) {
            return core_err_set((int)got, "standard input cannot be read: %s", strerror((int)-got));
        }
        const int rc = core_file_write(fd, piece, (size_t)got);
        if (rc != 0) {
            return core_err_set(rc,
                                "standard input cannot be kept in %s: %s; set TMPDIR to "
                                "use another folder",
                                text_spool_folder(), strerror(-rc));
        }
        *copied += (uint64_t)got;
    }
}

int text_spool_input(int *fd, uint64_t *copied)
{
    struct stat info;
    int made = -1;
    if (fstat(STDIN_FILENO, &info) == 0 && S_ISREG(info.st_mode)) {
        made = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        *fd = made;
        *copied = 0;
        return made >= 0 ? 0 : core_err_set(-errno, "standard input: %s", strerror(errno));
    }
    int rc = text_spool_open("standard input", &made);
    if (rc != 0) {
        return rc;
    }
    char *piece = core_charge_alloc(PIECE_BYTES);
    rc = piece != NULL ? copy_input(made, piece, copied)
                       : core_err_set(-ENOMEM, "no memory to read standard input");
    core_charge_free(piece);
    if (rc != 0) {
        close(made);
        return rc;
    }
    *fd = made;
    return 0;
}
