/* kept_look.c: finds the contents of a kept base's file, and hashes names, sizes, times and headers
 * of the model's files. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/file.h"
#include "offload/model/kept_internal.h"

uint64_t model_kept_bytes(const struct model_kept *kept)
{
    return kept->header.tables + model_kept_rounded(model_kept_tables_bytes(&kept->header));
}

static int hash_shard(const char *path, uint64_t *hash)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    char *header = NULL;
    struct stat info;
    uint64_t bytes = 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    int rc = fstat(fd, &info) != 0                                                  ? -errno
             : core_file_read_at(fd, &bytes, sizeof bytes, 0) != sizeof bytes       ? -EIO
             : bytes > (uint64_t)info.st_size                                       ? -EINVAL
             : (header = malloc(bytes + 1)) == NULL                                 ? -ENOMEM
             : core_file_read_at(fd, header, bytes, sizeof bytes) != (ssize_t)bytes ? -EIO
                                                                                    : 0;
    if (rc == 0) {
        *hash = core_hash(name, strlen(name), *hash);
        *hash = core_hash_number((uint64_t)info.st_size, *hash);
        *hash = core_hash_number((uint64_t)info.st_mtim.tv_sec, *hash);
        *hash = core_hash_number((uint64_t)info.st_mtim.tv_nsec, *hash);
        *hash = core_hash(header, bytes, *hash);
    }
    free(header);
    close(fd);
    return rc;
}

uint64_t model_kept_hash_shards(const struct model_files *files)
{
    uint64_t hash = KEPT_VERSION;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < model_files_shard_count(files); i++) {
        rc = hash_shard(model_safetensors_path(model_files_shard(files, i)), &hash);
    }
    return rc == 0 && hash != 0 ? hash : 0;
}

const struct model_kept_block *model_kept_find(const struct model_kept *kept, unsigned block)
{
    for (uint32_t i = 0; i < kept->header.blocks; i++) {
        if (kept->blocks[i].block == block) {
            return &kept->blocks[i];
        }
    }
    return NULL;
}

bool model_kept_is_read(const struct model_kept *kept)
{
    return !kept->writes;
}

bool model_kept_has(const struct model_kept *kept, unsigned block)
{
    return kept != NULL && !kept->writes &&
           !atomic_load_explicit(&kept->dropped, memory_order_relaxed) &&
           model_kept_find(kept, block) != NULL;
}

uint64_t model_kept_identity(const struct model_kept *kept)
{
    return kept->header.identity;
}

const char *model_kept_path(const struct model_kept *kept)
{
    return kept->path;
}

const char *model_kept_name(const struct model_kept *kept)
{
    return strrchr(kept->path, '/') + 1;
}

bool model_kept_is_named(const struct model_kept *kept, int fd, const char *name)
{
    struct stat mine;
    struct stat found;
    return fstat(fd, &mine) == 0 && fstatat(kept->folder, name, &found, AT_SYMLINK_NOFOLLOW) == 0 &&
           mine.st_dev == found.st_dev && mine.st_ino == found.st_ino;
}

int model_kept_direct_file(const struct model_kept *kept)
{
    return kept->direct ? kept->fd : -1;
}

struct model_kept_place model_kept_place(const struct model_kept *kept, unsigned block)
{
    const struct model_kept_block *found = model_kept_find(kept, block);
    assert(found != NULL);
    return (struct model_kept_place){.offset = found->offset,
                                     .bytes = model_kept_rounded(found->bytes),
                                     .unit_bytes = found->unit_bytes,
                                     .owner = found->block,
                                     .sums = kept->sums + found->first_unit};
}
