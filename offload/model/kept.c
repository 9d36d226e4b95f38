/* kept.c: finds and opens the file of a quantised base. */
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
#include "core/base/hash.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "offload/model/kept_internal.h"

/* ---- keys ---- */

static uint64_t hash_block(const struct model_block *block, const struct model_stored *stored,
                           uint64_t hash)
{
    hash = core_hash(block->name, strlen(block->name), hash);
    hash = core_hash_number(block->elements, hash);
    for (unsigned i = 0; i < block->param_count; i++) {
        const struct model_param *param = &block->params[i];
        for (unsigned k = 0; k < param->part_count; k++) {
            const struct model_part *part = &param->parts[k];
            hash = core_hash(part->name, strlen(part->name), core_hash_number(param->offset, hash));
            hash = core_hash_number((uint64_t)part->rows,
                                    core_hash_number((uint64_t)param->cols, hash));
        }
    }
    for (unsigned i = 0; stored != NULL && i < stored->count; i++) {
        hash = core_hash_number(stored->parts[i].offset_bytes, hash);
        hash = core_hash_number((uint64_t)stored->parts[i].quant, hash);
    }
    return hash;
}

/* Lays out the blocks and hashes what decides their bytes, except the model's files. */
static int lay_out(struct model_kept *kept)
{
    const struct model *model = kept->options.model;
    struct model_kept_header *header = &kept->header;
    kept->blocks = calloc(model->block_count, sizeof *kept->blocks);
    if (kept->blocks == NULL) {
        return core_err_set(-ENOMEM, "no memory for a kept base");
    }
    header->tables = KEPT_PAGE_BYTES;
    header->layout = core_hash_number(kept->options.type,
                                      core_hash_number(kept->options.storage, KEPT_VERSION));
    for (unsigned b = 0; b < model->block_count; b++) {
        const struct model_block *block = &model->blocks[b];
        const struct model_stored *stored = kept->options.stored[b];
        const uint64_t bytes = stored != NULL
                                   ? stored->bytes
                                   : block->elements * kern_type_bytes(kept->options.type);
        if (block->trained || bytes == 0) {
            continue;
        }
        struct model_kept_block *added = &kept->blocks[header->blocks++];
        *added = (struct model_kept_block){.block = b,
                                           .offset = header->tables,
                                           .bytes = bytes,
                                           .unit_bytes = block->kind == MODEL_BLOCK_EMBEDDING ||
                                                                 kept->options.paged[b]
                                                             ? KEPT_PAGE_BYTES
                                                             : KEPT_PIECE_BYTES,
                                           .first_unit = header->units};
        header->units += model_kept_units(added);
        header->tables += model_kept_rounded(bytes);
        header->layout = hash_block(block, stored, core_hash_number(b, header->layout));
    }
    kept->sums = calloc(header->units + 1, sizeof *kept->sums);
    return kept->sums != NULL ? 0 : core_err_set(-ENOMEM, "no memory for a kept base");
}

static void fill_header(struct model_kept *kept, const char *folder)
{
    struct model_kept_header *header = &kept->header;
    header->shards = model_kept_hash_shards(kept->options.files);
    snprintf(header->storage, sizeof header->storage, "%s",
             model_storage_name(kept->options.storage));
    snprintf(header->type, sizeof header->type, "%s", kern_type_name(kept->options.type));
    snprintf(header->folder, sizeof header->folder, "%s", folder);
}

/* ---- opening ---- */

/* The units of the file may differ from this run's. */
static int read_tables(struct model_kept *kept, const struct model_kept_header *found)
{
    struct model_kept_block *blocks = calloc(found->blocks + 1, sizeof *blocks);
    uint64_t *sums = calloc(found->units + 1, sizeof *sums);
    int rc = blocks != NULL && sums != NULL ? model_kept_read_tables(kept->fd, found, blocks, sums)
                                            : -ENOMEM;
    uint64_t units = 0;
    for (uint32_t i = 0; rc == 0 && i < found->blocks; i++) {
        const struct model_kept_block *own = &kept->blocks[i];
        const bool same = blocks[i].block == own->block && blocks[i].offset == own->offset &&
                          blocks[i].bytes == own->bytes && blocks[i].first_unit == units &&
                          (blocks[i].unit_bytes == KEPT_PAGE_BYTES ||
                           blocks[i].unit_bytes == KEPT_PIECE_BYTES);
        rc = same ? 0 : -EBADMSG;
        units += same ? model_kept_units(&blocks[i]) : 0;
    }
    rc = rc == 0 && units != found->units ? -EBADMSG : rc;
    if (rc != 0) {
        free(blocks);
        free(sums);
        return rc;
    }
    free(kept->blocks);
    free(kept->sums);
    kept->blocks = blocks;
    kept->sums = sums;
    return 0;
}

/* Returns NULL, or why the file is not used; "" if there is none. */
static const char *open_kept(struct model_kept *kept, const char *name)
{
    struct model_kept_header found;
    struct model_kept_header *own = &kept->header;
    kept->fd = core_file_open_direct(kept->folder, name, O_RDONLY, &kept->direct);
    if (kept->fd < 0) {
        return kept->fd == -ENOENT ? "" : strerror(-kept->fd);
    }
    int rc = model_kept_read_header(kept->fd, &found);
    if (rc == 0 && (found.layout != own->layout || found.blocks != own->blocks ||
                    found.tables != own->tables)) {
        rc = -EPROTO;
    }
    if (rc == 0 && (found.shards != own->shards || own->shards == 0)) {
        return "the model's files have changed since it was made";
    }
    if (rc == 0) {
        rc = read_tables(kept, &found);
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

/* Logs why the base is not kept. */
static int not_kept(const struct model_kept *kept, const char *what, int rc)
{
    core_log(CORE_LOG_WARN, "the %s base is not kept: %s: %s",
             model_storage_name(kept->options.storage), what, strerror(-rc));
    return rc;
}

/* The name depends on the model's folder and on what decides the base's bytes, except the contents
 * of the model's files. */
static int name_file(struct model_kept *kept, char *name)
{
    const struct model_kept_options *options = &kept->options;
    char *folder = realpath(options->folder, NULL);
    int rc = folder == NULL                                 ? -errno
             : strlen(folder) >= sizeof kept->header.folder ? -ENAMETOOLONG
                                                            : 0;
    if (rc != 0) {
        free(folder);
        return not_kept(kept, options->folder, rc);
    }
    fill_header(kept, folder);
    snprintf(name, KEPT_NAME_BYTES, "%s%016" PRIx64, KEPT_PREFIX,
             core_hash(folder, strlen(folder), kept->header.layout));
    free(folder);
    if (asprintf(&kept->path, "%s/%s", options->directory, name) < 0) {
        kept->path = NULL;
        return core_err_set(-ENOMEM, "no memory for a kept base");
    }
    return 0;
}

/* A run that writes creates the directory. */
static int open_directory(struct model_kept *kept)
{
    const struct model_kept_options *options = &kept->options;
    const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
    kept->folder = open(options->directory, flags);
    if (kept->folder < 0 && errno == ENOENT && options->writes &&
        mkdir(options->directory, 0700) == 0) {
        kept->folder = open(options->directory, flags);
    }
    if (kept->folder >= 0) {
        return 0;
    }
    const int rc = -errno;
    return rc == -ENOENT && !options->writes ? rc : not_kept(kept, options->directory, rc);
}

static int open_or_begin(struct model_kept *kept)
{
    const struct model_kept_options *options = &kept->options;
    char name[KEPT_NAME_BYTES];
    int rc = lay_out(kept);
    if (rc == 0) {
        rc = name_file(kept, name);
    }
    if (rc == 0) {
        rc = open_directory(kept);
    }
    if (rc != 0) {
        return rc;
    }
    const char *reason = open_kept(kept, name);
    if (reason == NULL) {
        core_log(CORE_LOG_INFO, "the %s base is read from %s", kept->header.storage, kept->path);
        return 0;
    }
    if (reason[0] != '\0') {
        core_log(CORE_LOG_WARN, "%s is not used: %s; the base is made again", kept->path, reason);
    }
    if (kept->fd >= 0) {
        close(kept->fd);
        kept->fd = -1;
    }
    if (!options->writes) {
        return -ENOENT;
    }
    return kept->header.shards != 0
               ? model_kept_begin(kept)
               : not_kept(kept, "a file of the model cannot be read again", -EIO);
}

int model_kept_measure(const struct model_kept_options *options, uint64_t *out)
{
    struct model_kept *kept = calloc(1, sizeof *kept);
    if (kept == NULL) {
        return core_err_set(-ENOMEM, "no memory for a kept base");
    }
    kept->options = *options;
    kept->fd = kept->folder = -1;
    const int rc = lay_out(kept);
    *out = rc == 0 ? model_kept_bytes(kept) : 0;
    model_kept_close(kept);
    return rc;
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
    model_kept_remove_part(kept);
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
