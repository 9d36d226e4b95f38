/* kept.c: the file of a quantised base: a page with its header, the blocks, and after them the tables: where each block
 * is, and the checksum of each of its units. Numbers are little-endian. The header is written last. */
#include "offload/model/kept.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/hash.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/team.h"

/* The version changes with the format of the file, and with the bytes that stored.c makes of the same weights. */
enum {
    VERSION = 1,
    PAGE_BYTES = 4096,
    PIECE_BYTES = 1 << 20,
    NAME_BYTES = 64,
    UNITS_MAX = 1 << 28
};

static const char magic[8] = "tidebase";
static const char prefix[] = "tide-base-";
static const char partial[] = ".part";

struct kept_header {
    char magic[8];
    uint32_t version;
    uint32_t blocks;
    uint64_t layout; /* hash of the frozen blocks, their tensors and their stored form */
    uint64_t shards; /* hash of the names, sizes, times and headers of the model's files */
    uint64_t identity;
    uint64_t units;
    uint64_t tables; /* offset; the end of the file is that of the tables, rounded up to a page */
    uint64_t tables_hash;
    char storage[8];
    char type[8];
    char folder[2048]; /* of the model: its real path */
    uint64_t hash;     /* of all before */
};
_Static_assert(sizeof(struct kept_header) <= PAGE_BYTES, "the header is in the first page");

struct kept_block {
    uint64_t block; /* of the model */
    uint64_t offset;
    uint64_t bytes;
    uint64_t unit_bytes;
    uint64_t first_unit;
};

struct model_kept {
    struct model_kept_options
        options; /* only what is borrowed for longer than open: model, stored, files */
    struct kept_header header;
    struct kept_block *blocks; /* owned */
    uint64_t *sums;            /* owned, [header.units] */
    char *path;                /* owned */
    int fd;
    bool direct;
    _Atomic bool dropped; /* relaxed: readers only stop to use the file */

    bool writes;
    bool failed;
    int folder;             /* descriptor of the directory, while the file is written; -1: none */
    struct core_lock *lock; /* owned, of the file that is written */
    uint64_t *written;      /* owned, [header.blocks]: bytes of each block */
    uint8_t *piece;         /* owned, PIECE_BYTES */
};

/* ---- keys ---- */

static uint64_t rounded(uint64_t bytes)
{
    return (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

static uint64_t units_of(const struct kept_block *block)
{
    return (rounded(block->bytes) + block->unit_bytes - 1) / block->unit_bytes;
}

static uint64_t hash_number(uint64_t number, uint64_t seed)
{
    return core_hash(&number, sizeof number, seed);
}

static uint64_t hash_block(const struct model_block *block, const struct model_stored *stored,
                           uint64_t hash)
{
    hash = core_hash(block->name, strlen(block->name), hash);
    hash = hash_number(block->elements, hash);
    for (unsigned i = 0; i < block->param_count; i++) {
        const struct model_param *param = &block->params[i];
        for (unsigned k = 0; k < param->part_count; k++) {
            const struct model_part *part = &param->parts[k];
            hash = core_hash(part->name, strlen(part->name), hash_number(param->offset, hash));
            hash = hash_number((uint64_t)part->rows, hash_number((uint64_t)param->cols, hash));
        }
    }
    for (unsigned i = 0; stored != NULL && i < stored->count; i++) {
        hash = hash_number(stored->parts[i].offset_bytes, hash);
        hash = hash_number((uint64_t)stored->parts[i].quant, hash);
    }
    return hash;
}

/* Lays out the blocks, and hashes what decides their bytes besides the model's files. */
static int lay_out(struct model_kept *kept)
{
    const struct model *model = kept->options.model;
    struct kept_header *header = &kept->header;
    kept->blocks = calloc(model->block_count, sizeof *kept->blocks);
    if (kept->blocks == NULL) {
        return core_err_set(-ENOMEM, "no memory for a kept base");
    }
    header->tables = PAGE_BYTES;
    header->layout = hash_number(kept->options.type, hash_number(kept->options.storage, VERSION));
    for (unsigned b = 0; b < model->block_count; b++) {
        const struct model_block *block = &model->blocks[b];
        const struct model_stored *stored = kept->options.stored[b];
        const uint64_t bytes = stored != NULL
                                   ? stored->bytes
                                   : block->elements * kern_type_bytes(kept->options.type);
        if (block->trained || bytes == 0) {
            continue;
        }
        struct kept_block *added = &kept->blocks[header->blocks++];
        *added = (struct kept_block){
            .block = b,
            .offset = header->tables,
            .bytes = bytes,
            .unit_bytes = block->kind == MODEL_BLOCK_EMBEDDING ? PAGE_BYTES : PIECE_BYTES,
            .first_unit = header->units};
        header->units += units_of(added);
        header->tables += rounded(bytes);
        header->layout = hash_block(block, stored, hash_number(b, header->layout));
    }
    kept->sums = calloc(header->units + 1, sizeof *kept->sums);
    return kept->sums != NULL ? 0 : core_err_set(-ENOMEM, "no memory for a kept base");
}

static uint64_t tables_bytes(const struct kept_header *header)
{
    return header->blocks * sizeof(struct kept_block) + header->units * sizeof(uint64_t);
}

uint64_t model_kept_bytes(const struct model_kept *kept)
{
    return kept->header.tables + rounded(tables_bytes(&kept->header));
}

/* Hashes a shard's name, size, time of change and header. */
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
        *hash = hash_number((uint64_t)info.st_size, *hash);
        *hash = hash_number((uint64_t)info.st_mtim.tv_sec, *hash);
        *hash = hash_number((uint64_t)info.st_mtim.tv_nsec, *hash);
        *hash = core_hash(header, bytes, *hash);
    }
    free(header);
    close(fd);
    return rc;
}

/* 0 if a file cannot be read: no kept file is valid then. */
static uint64_t hash_shards(const struct model_files *files)
{
    uint64_t hash = VERSION;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < model_files_shard_count(files); i++) {
        rc = hash_shard(model_safetensors_path(model_files_shard(files, i)), &hash);
    }
    return rc == 0 && hash != 0 ? hash : 0;
}

static uint64_t hash_header(const struct kept_header *header)
{
    return core_hash(header, offsetof(struct kept_header, hash), 0);
}

/* What the header of a valid file is, except for what only its bytes tell. */
static void fill_header(struct model_kept *kept, const char *folder)
{
    struct kept_header *header = &kept->header;
    memcpy(header->magic, magic, sizeof magic);
    header->version = VERSION;
    header->shards = hash_shards(kept->options.files);
    snprintf(header->storage, sizeof header->storage, "%s",
             model_storage_name(kept->options.storage));
    snprintf(header->type, sizeof header->type, "%s", kern_type_name(kept->options.type));
    snprintf(header->folder, sizeof header->folder, "%s", folder);
}

/* ---- opening ---- */

/* Opens for direct I/O if the file system supports it. */
static int open_direct(int folder, const char *name, int flags, bool *direct)
{
    int fd = openat(folder, name, flags | O_DIRECT | O_CLOEXEC | O_NOFOLLOW);
    *direct = fd >= 0;
    if (fd < 0 && errno == EINVAL) {
        fd = openat(folder, name, flags | O_CLOEXEC | O_NOFOLLOW);
    }
    return fd;
}

/* Reads `bytes` from a page on, of whole pages, into memory at a page. */
static int read_pages(int fd, void *to, uint64_t bytes, uint64_t at)
{
    const ssize_t got = core_file_read_at(fd, to, bytes, at);
    return got == (ssize_t)bytes ? 0 : got < 0 ? (int)got : -EBADMSG;
}

static int read_header(int fd, struct kept_header *out)
{
    void *page = aligned_alloc(PAGE_BYTES, PAGE_BYTES);
    struct stat info;
    int rc = page == NULL                           ? -ENOMEM
             : fstat(fd, &info) != 0                ? -errno
             : info.st_uid != geteuid()             ? -EPERM
             : (info.st_mode & (S_IWGRP | S_IWOTH)) ? -EPERM
             : !S_ISREG(info.st_mode)               ? -EBADMSG
                                                    : read_pages(fd, page, PAGE_BYTES, 0);
    if (rc == 0) {
        memcpy(out, page, sizeof *out);
        const bool ours = memcmp(out->magic, magic, sizeof magic) == 0;
        const uint64_t end = out->tables + rounded(tables_bytes(out));
        const bool whole = out->hash == hash_header(out) && out->units <= UNITS_MAX &&
                           end == (uint64_t)info.st_size &&
                           memchr(out->folder, 0, sizeof out->folder) != NULL;
        rc = ours && out->version != VERSION ? -EPROTO : ours && whole ? 0 : -EBADMSG;
    }
    free(page);
    return rc;
}

/* Reads the tables; `blocks` and `sums` have room for them. */
static int read_tables(int fd, const struct kept_header *header, struct kept_block *blocks,
                       uint64_t *sums)
{
    const uint64_t bytes = rounded(tables_bytes(header));
    const uint64_t blocks_bytes = header->blocks * sizeof *blocks;
    char *tables = aligned_alloc(PAGE_BYTES, bytes);
    int rc = tables != NULL ? read_pages(fd, tables, bytes, header->tables) : -ENOMEM;
    if (rc == 0 && core_hash(tables, bytes, 0) != header->tables_hash) {
        rc = -EBADMSG;
    }
    if (rc == 0) {
        memcpy(blocks, tables, blocks_bytes);
        memcpy(sums, tables + blocks_bytes, header->units * sizeof *sums);
    }
    free(tables);
    return rc;
}

/* Why a file is not used; NULL: it is, and is open. */
static const char *open_kept(struct model_kept *kept, int folder, const char *name)
{
    struct kept_header found;
    struct kept_header *own = &kept->header;
    kept->fd = open_direct(folder, name, O_RDONLY, &kept->direct);
    if (kept->fd < 0) {
        return errno == ENOENT ? "" : strerror(errno);
    }
    int rc = read_header(kept->fd, &found);
    if (rc == 0 && (found.layout != own->layout || found.blocks != own->blocks ||
                    found.units != own->units || found.tables != own->tables)) {
        rc = -EPROTO;
    }
    if (rc == 0 && (found.shards != own->shards || own->shards == 0)) {
        return "the model's files have changed since it was made";
    }
    if (rc == 0) {
        rc = read_tables(kept->fd, &found, kept->blocks, kept->sums);
    }
    if (rc == 0) {
        *own = found;
        return NULL;
    }
    return rc == -EBADMSG  ? "it is damaged"
           : rc == -EPROTO ? "another version of tide made it"
           : rc == -EPERM  ? "it belongs to another user, or others can write to it"
                           : strerror(-rc);
}

static bool is_kept_name(const char *name)
{
    return strncmp(name, prefix, sizeof prefix - 1) == 0;
}

static bool is_partial(const char *name)
{
    const size_t length = strlen(name);
    return length > sizeof partial - 1 &&
           strcmp(name + length - (sizeof partial - 1), partial) == 0;
}

/* Whether a file was made of the files that this model's folder had before. */
static bool is_stale(const struct model_kept *kept, int folder, const char *name)
{
    struct kept_header found;
    bool direct;
    const int fd = open_direct(folder, name, O_RDONLY, &direct);
    const bool read = fd >= 0 && read_header(fd, &found) == 0;
    if (fd >= 0) {
        close(fd);
    }
    return read && kept->header.shards != 0 && found.shards != kept->header.shards &&
           strcmp(found.folder, kept->header.folder) == 0;
}

/* Removes what killed runs left half-written, and bases of this folder's earlier files. */
static void clear(const struct model_kept *kept, int folder, const char *own)
{
    const int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = copy >= 0 ? fdopendir(copy) : NULL;
    for (const struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        struct core_lock *lock = NULL;
        if (!is_kept_name(entry->d_name) || strncmp(entry->d_name, own, strlen(own)) == 0) {
            continue;
        }
        const bool left = is_partial(entry->d_name)
                              ? core_lock_take(folder, entry->d_name, &lock) == 0
                              : is_stale(kept, folder, entry->d_name);
        if (left && unlinkat(folder, entry->d_name, 0) == 0) {
            core_log(CORE_LOG_INFO, "removed %s/%s, %s", kept->options.directory, entry->d_name,
                     lock != NULL ? "which a run that ended left half-written"
                                  : "a base whose model has changed");
        }
        core_lock_drop(lock);
    }
    if (dir != NULL) {
        closedir(dir);
    } else if (copy >= 0) {
        close(copy);
    }
}

/* Takes the name under which the file is written, and its space. */
static int begin_file(struct model_kept *kept, const char *name)
{
    char part[NAME_BYTES];
    const uint64_t bytes = model_kept_bytes(kept);
    bool reserved;
    snprintf(part, sizeof part, "%s%s", name, partial);
    int fd = openat(kept->folder, part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return -errno;
    }
    int rc = core_lock_take(kept->folder, part, &kept->lock);
    if (rc == 0) {
        rc = ftruncate(fd, 0) != 0 ? -errno : core_file_reserve(fd, bytes, &reserved);
        kept->fd = rc == 0 ? open_direct(kept->folder, part, O_RDWR, &kept->direct) : -1;
        rc = rc == 0 && kept->fd < 0 ? -errno : rc;
    }
    close(fd);
    return rc;
}

static void remove_part(const struct model_kept *kept)
{
    char part[NAME_BYTES];
    if (kept->lock != NULL) {
        snprintf(part, sizeof part, "%s%s", strrchr(kept->path, '/') + 1, partial);
        (void)unlinkat(kept->folder, part, 0);
    }
}

/* Begins to write the file. -EBUSY, -ENOSPC and the like: it is not written. */
static int begin(struct model_kept *kept)
{
    const uint64_t bytes = model_kept_bytes(kept);
    const char *name = strrchr(kept->path, '/') + 1;
    int rc = 0;
    if (bytes > kept->options.room_bytes) {
        core_log(CORE_LOG_WARN,
                 "the %s base is not kept: it takes %" PRIu64 " MiB, and %s has room for %" PRIu64
                 " MiB beside the run; the next run makes it again (--no-keep-base says no more)",
                 kept->header.storage, (bytes + PIECE_BYTES - 1) >> 20, kept->options.directory,
                 kept->options.room_bytes >> 20);
        return -ENOSPC;
    }
    (void)unlinkat(kept->folder, name, 0); /* one that is not valid any more */
    kept->piece = aligned_alloc(PAGE_BYTES, PIECE_BYTES);
    kept->written = calloc(kept->header.blocks + 1, sizeof *kept->written);
    if (kept->piece == NULL || kept->written == NULL) {
        return core_err_set(-ENOMEM, "no memory to keep a base");
    }
    rc = begin_file(kept, name);
    if (rc == -EWOULDBLOCK) {
        core_log(CORE_LOG_INFO, "another run writes %s, so this one does not", kept->path);
    } else if (rc != 0) {
        core_log(CORE_LOG_WARN,
                 "the %s base is not kept: %s of %" PRIu64 " MiB cannot be created: %s",
                 kept->header.storage, kept->path, (bytes + PIECE_BYTES - 1) >> 20, strerror(-rc));
    }
    return rc;
}

static int open_or_begin(struct model_kept *kept)
{
    const struct model_kept_options *options = &kept->options;
    char *folder = realpath(options->folder, NULL);
    char name[NAME_BYTES];
    int rc = lay_out(kept);
    if (rc != 0 || folder == NULL || strlen(folder) >= sizeof kept->header.folder) {
        free(folder);
        return rc != 0 ? rc : -ENAMETOOLONG;
    }
    fill_header(kept, folder);
    snprintf(name, sizeof name, "%s%016" PRIx64, prefix,
             core_hash(folder, strlen(folder), kept->header.layout));
    free(folder);
    if (asprintf(&kept->path, "%s/%s", options->directory, name) < 0) {
        kept->path = NULL;
        return core_err_set(-ENOMEM, "no memory for a kept base");
    }
    kept->folder = open(options->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (kept->folder < 0 && errno == ENOENT && options->writes &&
        mkdir(options->directory, 0700) == 0) {
        kept->folder = open(options->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    if (kept->folder < 0) {
        return -errno;
    }
    const char *reason = open_kept(kept, kept->folder, name);
    if (reason == NULL) {
        core_log(CORE_LOG_INFO, "the %s base is read from %s", kept->header.storage, kept->path);
        return 0;
    }
    if (kept->fd >= 0) {
        close(kept->fd);
        kept->fd = -1;
        core_log(CORE_LOG_WARN, "%s is not used: %s; the base is made again", kept->path, reason);
    }
    if (!options->writes || kept->header.shards == 0) {
        return -ENOENT;
    }
    kept->writes = true;
    clear(kept, kept->folder, name);
    return begin(kept);
}

int model_kept_open(const struct model_kept_options *options, struct model_kept **out)
{
    struct model_kept *kept = calloc(1, sizeof *kept);
    *out = NULL;
    if (kept == NULL) {
        return core_err_set(-ENOMEM, "no memory for a kept base");
    }
    kept->options = *options;
    kept->fd = kept->folder = -1;
    int rc = open_or_begin(kept);
    if (rc != 0) {
        const struct core_err failed = core_err_keep(rc);
        model_kept_close(kept);
        return rc == -ENOMEM ? core_err_first(&failed, 0) : 0;
    }
    *out = kept;
    return 0;
}

void model_kept_close(struct model_kept *kept)
{
    if (kept == NULL) {
        return;
    }
    remove_part(kept);
    core_lock_drop(kept->lock);
    if (kept->fd >= 0) {
        close(kept->fd);
    }
    if (kept->folder >= 0) {
        close(kept->folder);
    }
    free(kept->blocks);
    free(kept->sums);
    free(kept->path);
    free(kept->written);
    free(kept->piece);
    free(kept);
}

/* ---- reading ---- */

static const struct kept_block *find_block(const struct model_kept *kept, unsigned block)
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
           find_block(kept, block) != NULL;
}

uint64_t model_kept_identity(const struct model_kept *kept)
{
    return kept->header.identity;
}

const char *model_kept_path(const struct model_kept *kept)
{
    return kept->path;
}

int model_kept_direct_file(const struct model_kept *kept)
{
    return kept->direct ? kept->fd : -1;
}

struct model_kept_place model_kept_place(const struct model_kept *kept, unsigned block)
{
    const struct kept_block *found = find_block(kept, block);
    assert(found != NULL);
    return (struct model_kept_place){.offset = found->offset,
                                     .bytes = rounded(found->bytes),
                                     .unit_bytes = found->unit_bytes,
                                     .owner = found->block,
                                     .sums = kept->sums + found->first_unit};
}

static uint64_t hash_unit(const struct kept_block *block, const void *from, uint64_t bytes,
                          uint64_t unit)
{
    return core_hash(from, bytes, core_hash_seed(0, block->block, unit, 1));
}

/* Reads a piece of a block, from a multiple of PIECE_BYTES on, and verifies its units. */
static int read_piece(int fd, const struct kept_block *block, const uint64_t *sums, uint64_t at,
                      uint8_t *to)
{
    const uint64_t left = rounded(block->bytes) - at;
    const uint64_t bytes = left < PIECE_BYTES ? left : PIECE_BYTES;
    int rc = read_pages(fd, to, bytes, block->offset + at);
    for (uint64_t done = 0; rc == 0 && done < bytes; done += block->unit_bytes) {
        const uint64_t unit = (at + done) / block->unit_bytes;
        const uint64_t rest = bytes - done;
        const uint64_t length = rest < block->unit_bytes ? rest : block->unit_bytes;
        rc = hash_unit(block, to + done, length, unit) == sums[block->first_unit + unit] ? 0
                                                                                         : -EBADMSG;
    }
    return rc;
}

/* A range of a block that members of a team read, a piece at a time. */
struct range {
    const struct model_kept *kept;
    const struct kept_block *block;
    uint64_t begin, end;
    uint8_t *to;
    _Atomic uint64_t next;      /* relaxed, as the others: the team's return orders them */
    _Atomic uint64_t failed_at; /* byte of the file */
    _Atomic int rc;             /* the first error */
};

static int read_part(const struct range *range, uint64_t at, uint8_t *buffer)
{
    const uint64_t begin = at > range->begin ? at : range->begin;
    const uint64_t end = at + PIECE_BYTES < range->end ? at + PIECE_BYTES : range->end;
    uint8_t *to = range->to + (begin - range->begin);
    const uint64_t padded = rounded(range->block->bytes) - at;
    const uint64_t whole = padded < PIECE_BYTES ? padded : PIECE_BYTES;
    const bool straight = begin == at && end - at == whole && (uintptr_t)to % PAGE_BYTES == 0;
    int rc = read_piece(range->kept->fd, range->block, range->kept->sums, at,
                        straight ? to : buffer);
    if (rc == 0 && !straight) {
        memcpy(to, buffer + (begin - at), end - begin);
    }
    return rc;
}

static void read_parts(void *argument, unsigned index, unsigned count)
{
    struct range *range = argument;
    uint8_t *buffer = aligned_alloc(PAGE_BYTES, PIECE_BYTES);
    int rc = buffer != NULL ? 0 : -ENOMEM;
    (void)index;
    (void)count;
    while (rc == 0 && atomic_load_explicit(&range->rc, memory_order_relaxed) == 0) {
        const uint64_t at = atomic_fetch_add_explicit(&range->next, PIECE_BYTES,
                                                      memory_order_relaxed);
        if (at >= range->end) {
            break;
        }
        rc = read_part(range, at, buffer);
        if (rc != 0) {
            atomic_store_explicit(&range->failed_at, range->block->offset + at,
                                  memory_order_relaxed);
        }
    }
    if (rc != 0) {
        atomic_store_explicit(&range->rc, rc, memory_order_relaxed);
    }
    free(buffer);
}

/* Removes the file if it is still the one that is open. */
static void unlink_own(const struct model_kept *kept)
{
    const char *name = strrchr(kept->path, '/') + 1;
    struct stat mine;
    struct stat found;
    if (fstat(kept->fd, &mine) == 0 &&
        fstatat(kept->folder, name, &found, AT_SYMLINK_NOFOLLOW) == 0 &&
        mine.st_dev == found.st_dev && mine.st_ino == found.st_ino) {
        (void)unlinkat(kept->folder, name, 0);
    }
}

void model_kept_drop(struct model_kept *kept)
{
    if (kept != NULL && !kept->writes &&
        !atomic_exchange_explicit(&kept->dropped, true, memory_order_relaxed)) {
        unlink_own(kept);
        core_log(CORE_LOG_WARN, "removed %s: the next run makes the base of the model's files",
                 kept->path);
    }
}

static int read_range(struct model_kept *kept, struct range *range, struct core_team *team)
{
    atomic_init(&range->next, range->begin / PIECE_BYTES * PIECE_BYTES);
    atomic_init(&range->failed_at, 0);
    atomic_init(&range->rc, 0);
    if (team != NULL && range->end - range->begin > PIECE_BYTES) {
        core_team_run(team, read_parts, range);
    } else {
        read_parts(range, 0, 1);
    }
    const int rc = atomic_load_explicit(&range->rc, memory_order_relaxed);
    if (rc == 0 || rc == -ENOMEM) {
        return rc == 0 ? 0 : core_err_set(rc, "no memory to read %s", kept->path);
    }
    core_err_set(rc, "%s: the MiB from byte %" PRIu64 " on %s%s", kept->path,
                 atomic_load_explicit(&range->failed_at, memory_order_relaxed),
                 rc == -EBADMSG ? "does not match its checksum" : "cannot be read: ",
                 rc == -EBADMSG ? "" : strerror(-rc));
    core_log(CORE_LOG_WARN, "%s; this run makes the rest of the base of the model's files",
             core_err_message());
    model_kept_drop(kept);
    return rc;
}

int model_kept_read(struct model_kept *kept, unsigned block, uint64_t begin, uint64_t bytes,
                    void *to, struct core_team *team)
{
    const struct kept_block *found = find_block(kept, block);
    assert(found != NULL);
    const uint64_t left = found->bytes > begin ? found->bytes - begin : 0;
    const uint64_t count = left < bytes ? left : bytes;
    struct range range = {
        .kept = kept, .block = found, .begin = begin, .end = begin + count, .to = to};
    int rc = count > 0 ? read_range(kept, &range, team) : 0;
    if (rc == 0) {
        memset((char *)to + count, 0, bytes - count);
    }
    return rc;
}

int model_kept_read_tensor(struct model_kept *kept, const char *name, void *to)
{
    const struct model *model = kept->options.model;
    for (unsigned b = 0; b < model->block_count; b++) {
        const struct model_stored *stored = kept->options.stored[b];
        for (unsigned i = 0; stored != NULL && i < stored->count; i++) {
            const struct model_stored_part *part = &stored->parts[i];
            const uint64_t end = i + 1 < stored->count ? part[1].offset_bytes : stored->bytes;
            if (strcmp(part->name, name) == 0 && model_kept_has(kept, b)) {
                return model_kept_read(kept, b, part->offset_bytes, end - part->offset_bytes, to,
                                       NULL);
            }
        }
    }
    return -ENOENT;
}

/* ---- writing ---- */

bool model_kept_wants(const struct model_kept *kept, unsigned block)
{
    return kept != NULL && kept->writes && !kept->failed && find_block(kept, block) != NULL;
}

static void fail_writing(struct model_kept *kept, int rc)
{
    kept->failed = true;
    core_log(CORE_LOG_WARN, "the %s base is not kept: %s of %" PRIu64 " MiB cannot be written: %s",
             kept->header.storage, kept->path, (model_kept_bytes(kept) + PIECE_BYTES - 1) >> 20,
             strerror(-rc));
}

/* Writes the piece whose last byte is the last one that was given. */
static int write_piece(struct model_kept *kept, const struct kept_block *block, uint64_t end)
{
    const uint64_t at = (end - 1) / PIECE_BYTES * PIECE_BYTES;
    const uint64_t padded = rounded(end - at);
    memset(kept->piece + (end - at), 0, padded - (end - at));
    for (uint64_t done = 0; done < padded; done += block->unit_bytes) {
        const uint64_t unit = (at + done) / block->unit_bytes;
        const uint64_t rest = padded - done;
        const uint64_t length = rest < block->unit_bytes ? rest : block->unit_bytes;
        kept->sums[block->first_unit + unit] = hash_unit(block, kept->piece + done, length, unit);
    }
    return core_file_write_at(kept->fd, kept->piece, padded, block->offset + at);
}

void model_kept_write(struct model_kept *kept, unsigned block, const void *from, uint64_t bytes)
{
    const struct kept_block *found = find_block(kept, block);
    assert(found != NULL);
    uint64_t *at = &kept->written[found - kept->blocks];
    const char *next = from;
    int rc = *at + bytes <= found->bytes ? 0 : -ERANGE;
    while (rc == 0 && !kept->failed && bytes > 0) {
        const uint64_t within = *at % PIECE_BYTES;
        const uint64_t room = PIECE_BYTES - within;
        const uint64_t count = bytes < room ? bytes : room;
        memcpy(kept->piece + within, next, count);
        *at += count;
        next += count;
        bytes -= count;
        if (*at % PIECE_BYTES == 0 || *at == found->bytes) {
            rc = write_piece(kept, found, *at);
        }
    }
    if (rc != 0) {
        fail_writing(kept, rc);
    }
}

static bool is_complete(const struct model_kept *kept)
{
    bool complete = kept->writes && !kept->failed;
    for (uint32_t i = 0; complete && i < kept->header.blocks; i++) {
        complete = kept->written[i] == kept->blocks[i].bytes;
    }
    return complete;
}

/* Writes the tables, then the header, each when all before is durable. */
static int write_tables(struct model_kept *kept)
{
    struct kept_header *header = &kept->header;
    const uint64_t blocks_bytes = header->blocks * sizeof *kept->blocks;
    const uint64_t bytes = rounded(tables_bytes(header));
    char *tables = aligned_alloc(PAGE_BYTES, bytes);
    if (tables == NULL) {
        return -ENOMEM;
    }
    memset(tables, 0, bytes);
    memcpy(tables, kept->blocks, blocks_bytes);
    memcpy(tables + blocks_bytes, kept->sums, header->units * sizeof *kept->sums);
    header->tables_hash = core_hash(tables, bytes, 0);
    header->hash = hash_header(header);
    int rc = core_file_write_at(kept->fd, tables, bytes, header->tables);
    free(tables);
    if (rc == 0) {
        rc = fsync(kept->fd) == 0 ? 0 : -errno;
    }
    if (rc == 0) {
        memset(kept->piece, 0, PAGE_BYTES);
        memcpy(kept->piece, header, sizeof *header);
        rc = core_file_write_at(kept->fd, kept->piece, PAGE_BYTES, 0);
    }
    return rc == 0 && fsync(kept->fd) != 0 ? -errno : rc;
}

void model_kept_finish(struct model_kept *kept, uint64_t identity)
{
    char part[NAME_BYTES];
    if (kept == NULL || !is_complete(kept)) {
        return;
    }
    const char *name = strrchr(kept->path, '/') + 1;
    snprintf(part, sizeof part, "%s%s", name, partial);
    kept->header.identity = identity;
    if (hash_shards(kept->options.files) != kept->header.shards) {
        kept->failed = true;
        core_log(CORE_LOG_WARN, "the %s base is not kept: the model's files changed meanwhile",
                 kept->header.storage);
        return;
    }
    int rc = write_tables(kept);
    if (rc == 0 && renameat(kept->folder, part, kept->folder, name) != 0) {
        rc = -errno;
    }
    if (rc != 0) {
        fail_writing(kept, rc);
        return;
    }
    (void)fsync(kept->folder);
    core_lock_drop(kept->lock);
    kept->lock = NULL;
    core_log(CORE_LOG_INFO, "kept the %s base in %s (%" PRIu64 " MiB) for the next run",
             kept->header.storage, kept->path, (model_kept_bytes(kept) + PIECE_BYTES - 1) >> 20);
}

/* ---- inspecting ---- */

unsigned model_kept_count(const char *directory)
{
    unsigned count = 0;
    DIR *dir = opendir(directory);
    for (const struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        count += is_kept_name(entry->d_name);
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return count;
}

bool model_kept_is(const char *path)
{
    char found[sizeof magic] = "";
    const char *slash = strrchr(path, '/');
    if (is_kept_name(slash != NULL ? slash + 1 : path)) {
        return true;
    }
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const bool is = fd >= 0 && core_file_read_at(fd, found, sizeof found, 0) == sizeof found &&
                    memcmp(found, magic, sizeof magic) == 0;
    if (fd >= 0) {
        close(fd);
    }
    return is;
}

/* Whether the blocks of a file are where they can be. */
static bool fits(const struct kept_header *header, const struct kept_block *block)
{
    return (block->unit_bytes == PAGE_BYTES || block->unit_bytes == PIECE_BYTES) &&
           block->bytes > 0 && block->offset >= PAGE_BYTES && block->offset < header->tables &&
           block->bytes <= header->tables - block->offset && block->first_unit <= header->units &&
           units_of(block) <= header->units - block->first_unit;
}

static int verify(int fd, const struct kept_header *header, const char *path)
{
    struct kept_block *blocks = calloc(header->blocks + 1, sizeof *blocks);
    uint64_t *sums = calloc(header->units + 1, sizeof *sums);
    uint8_t *piece = aligned_alloc(PAGE_BYTES, PIECE_BYTES);
    const bool memory = blocks != NULL && sums != NULL && piece != NULL;
    int rc = memory ? read_tables(fd, header, blocks, sums) : -ENOMEM;
    uint64_t where = header->tables;
    for (uint32_t i = 0; rc == 0 && i < header->blocks; i++) {
        rc = fits(header, &blocks[i]) ? 0 : -EBADMSG;
        for (uint64_t at = 0; rc == 0 && at < blocks[i].bytes; at += PIECE_BYTES) {
            where = blocks[i].offset + at;
            rc = read_piece(fd, &blocks[i], sums, at, piece);
        }
    }
    free(blocks);
    free(sums);
    free(piece);
    return rc == 0         ? 0
           : rc == -ENOMEM ? core_err_set(rc, "no memory to verify %s", path)
                           : core_err_set(rc,
                                          "%s: what begins at byte %" PRIu64
                                          " does not match its checksum or cannot be read",
                                          path, where);
}

int model_kept_inspect(const char *path, struct model_kept_look *out)
{
    struct kept_header header;
    struct stat info;
    *out = (struct model_kept_look){.blocks = 0};
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        const int error = errno;
        return core_err_set(-error, "%s cannot be opened: %s", path, strerror(error));
    }
    int rc = read_header(fd, &header);
    if (rc != 0) {
        rc = core_err_set(rc == -EPROTO || rc == -EPERM ? -EINVAL : rc, "%s: %s", path,
                          rc == -EPROTO  ? "another version of tide made this base"
                          : rc == -EPERM ? "it belongs to another user, or others can write to it"
                                         : "the header is damaged, or the file is half-written");
    } else {
        snprintf(out->folder, sizeof out->folder, "%s", header.folder);
        snprintf(out->storage, sizeof out->storage, "%.7s", header.storage);
        snprintf(out->type, sizeof out->type, "%.7s", header.type);
        out->identity = header.identity;
        out->blocks = header.blocks;
        out->bytes = fstat(fd, &info) == 0 ? (uint64_t)info.st_size : 0;
        rc = verify(fd, &header, path);
    }
    close(fd);
    return rc;
}
