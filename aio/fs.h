/* fs.h: what kind of file system a directory is on, and whether direct I/O is real there. No state;
 * any thread. */
#ifndef AIO_FS_H
#define AIO_FS_H

#include <stdbool.h>
#include <stdint.h>

enum aio_fs_verdict {
    AIO_FS_DIRECT,   /* direct I/O, as meant */
    AIO_FS_BUFFERED, /* works through the page cache: a warning with the reason */
    AIO_FS_REFUSED,  /* an error with the reason */
};

struct aio_fs {
    char type[24]; /* "ext4", "tmpfs" ..., or the magic number */
    enum aio_fs_verdict verdict;
    char reason[200];      /* of anything but AIO_FS_DIRECT, or a remark; else "" */
    uint64_t free_bytes;   /* for us */
    uint32_t memory_align; /* as the kernel says (STATX_DIOALIGN), else 4096 */
    uint32_t offset_align;
};

/* What follows from the magic number of statfs and from a probe: `direct` says that a direct write
 * came back by a direct read. Fills type, verdict and reason. */
void aio_fs_judge(uint64_t magic, bool direct, struct aio_fs *out);

/* Looks at a directory: statfs, and a block written, read back and gone again. 0, or -errno with a
 * sentence where nothing can be written (EACCES, ENOSPC, EROFS); a file system that is no good is 0
 * with its verdict. */
int aio_fs_look(int directory_fd, const char *name, struct aio_fs *out);

/* A file without a name in a directory, gone with the last descriptor. `direct` O_DIRECT. The
 * descriptor, or -errno with a sentence. */
int aio_fs_scratch(int directory_fd, const char *name, bool direct);

#endif
