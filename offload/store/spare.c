/* spare.c: decides which files may be overwritten, and moves them. */
#include "offload/store/spare.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* A write lease is granted only if no other process has the file open or mapped. SIGURG is ignored
 * by default; the usual SIGIO would end the process. */
static bool is_alone(int fd)
{
    return fcntl(fd, F_SETSIG, SIGURG) == 0 && fcntl(fd, F_SETLEASE, F_WRLCK) == 0 &&
           fcntl(fd, F_SETLEASE, F_UNLCK) == 0;
}

static bool fits(int fd, uint64_t bytes)
{
    struct stat info;
    return fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_nlink == 1 &&
           (uint64_t)info.st_size == bytes;
}

void store_spare_take(const char *from, const struct store_image *image, int folder)
{
    const int source = open(from, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    for (int s = 0; source >= 0 && s < STORE_STREAM_COUNT; s++) {
        const enum store_stream stream = (enum store_stream)s;
        char name[32];
        snprintf(name, sizeof name, "%s.safetensors", store_stream_name(stream));
        const int fd = store_image_has(image, stream)
                           ? openat(source, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
                           : -1;
        if (fd >= 0 && fits(fd, store_image_file_bytes(image, stream)) && is_alone(fd)) {
            (void)renameat2(source, name, folder, name, RENAME_NOREPLACE);
        }
        if (fd >= 0) {
            close(fd);
        }
    }
    if (source >= 0) {
        close(source);
    }
}
