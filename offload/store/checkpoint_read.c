/* checkpoint_read.c: opens a checkpoint, and reads and verifies its streams. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "offload/model/publish.h"
#include "offload/plan/shard.h"
#include "offload/store/checkpoint.h"
#include "offload/store/checkpoint_files.h"

enum { PATH_BYTES = 4096 };

struct store_checkpoint {
    char path[PATH_BYTES];
    int fd;
    struct store_manifest manifest;
    struct store_image image;
    struct store_flow *flow; /* owned */
};

static int open_folder(const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        const int error = errno;
        return core_err_set(-error, "the checkpoint %s cannot be opened: %s", path,
                            strerror(error));
    }
    return fd;
}

static int read_manifest(int fd, const char *path, struct store_manifest *out)
{
    char *text = NULL;
    size_t bytes = 0;
    char source[PATH_BYTES + 32];
    snprintf(source, sizeof source, "%s/%s", path, MODEL_MANIFEST_NAME);
    int rc = store_file_read(fd, path, MODEL_MANIFEST_NAME, STORE_MANIFEST_BYTES_MAX, &text,
                             &bytes);
    if (rc == 0) {
        rc = store_manifest_parse(text, bytes, source, out);
    }
    free(text);
    return rc;
}

int store_checkpoint_peek(const char *path, struct store_manifest *out)
{
    const int fd = open_folder(path);
    if (fd < 0) {
        return fd;
    }
    int rc = read_manifest(fd, path, out);
    close(fd);
    return rc;
}

static int read_sums(struct store_checkpoint *checkpoint)
{
    uint64_t *sums[STORE_STREAM_COUNT];
    char *text = NULL;
    size_t bytes = 0;
    const struct store_file *file = &checkpoint->manifest.sums;
    if (strcmp(file->name, STORE_SUMS_NAME) != 0) {
        return core_err_set(-EINVAL, "%s/%s: the checksums are in %s, not in %s", checkpoint->path,
                            MODEL_MANIFEST_NAME, STORE_SUMS_NAME, file->name);
    }
    for (int s = 0; s < STORE_STREAM_COUNT; s++) {
        sums[s] = store_flow_sums(checkpoint->flow, (enum store_stream)s);
    }
    int rc = store_file_check(checkpoint->fd, checkpoint->path, file);
    if (rc != 0) {
        return rc;
    }
    rc = store_file_read(checkpoint->fd, checkpoint->path, file->name, file->bytes, &text, &bytes);
    if (rc == 0) {
        rc = store_sums_parse(&checkpoint->image, checkpoint->path, text, bytes, sums);
    }
    free(text);
    return rc;
}

static int open_all(struct store_checkpoint *checkpoint, const char *backend,
                    const struct aio_backend *recipe)
{
    const struct store_manifest *manifest = &checkpoint->manifest;
    checkpoint->fd = open_folder(checkpoint->path);
    if (checkpoint->fd < 0) {
        return checkpoint->fd;
    }
    int rc = read_manifest(checkpoint->fd, checkpoint->path, &checkpoint->manifest);
    if (rc != 0) {
        return rc;
    }
    rc = store_image_init(&checkpoint->image, &manifest->format, manifest->weight_dtype,
                          manifest->blocks);
    if (rc != 0) {
        return rc;
    }
    for (uint32_t i = 0; i < manifest->file_count; i++) {
        rc = store_file_check(checkpoint->fd, checkpoint->path, &manifest->files[i]);
        if (rc != 0) {
            return rc;
        }
    }
    const struct store_flow_options flow = {.image = &checkpoint->image,
                                            .folder = checkpoint->fd,
                                            .name = checkpoint->path,
                                            .backend = backend,
                                            .recipe = recipe};
    rc = store_flow_open(&flow, &checkpoint->flow);
    return rc == 0 ? read_sums(checkpoint) : rc;
}

int store_checkpoint_open(const char *path, const char *backend, const struct aio_backend *recipe,
                          struct store_checkpoint **out)
{
    struct store_checkpoint *checkpoint = calloc(1, sizeof *checkpoint);
    if (checkpoint == NULL) {
        return core_err_set(-ENOMEM, "no memory for the checkpoint %s", path);
    }
    snprintf(checkpoint->path, sizeof checkpoint->path, "%s", path);
    checkpoint->fd = -1;
    int rc = open_all(checkpoint, backend, recipe);
    if (rc != 0) {
        const struct core_err kept = core_err_keep(rc);
        return core_err_first(&kept, store_checkpoint_close(checkpoint));
    }
    *out = checkpoint;
    return 0;
}

int store_checkpoint_close(struct store_checkpoint *checkpoint)
{
    if (checkpoint == NULL) {
        return 0;
    }
    int rc = store_flow_close(checkpoint->flow);
    store_image_fini(&checkpoint->image);
    store_manifest_fini(&checkpoint->manifest);
    if (checkpoint->fd >= 0) {
        close(checkpoint->fd);
    }
    free(checkpoint);
    return rc;
}

const struct store_manifest *store_checkpoint_manifest(const struct store_checkpoint *checkpoint)
{
    return &checkpoint->manifest;
}

const struct store_image *store_checkpoint_image(const struct store_checkpoint *checkpoint)
{
    return &checkpoint->image;
}

struct store_arrays store_checkpoint_read_sums(const struct store_checkpoint *checkpoint,
                                               uint32_t block)
{
    struct store_arrays sums = {{NULL}};
    for (int s = 0; s < STORE_STREAM_COUNT; s++) {
        if (store_image_bytes(&checkpoint->image, (enum store_stream)s, block) > 0) {
            sums.at[s] = (char *)(store_flow_sums(checkpoint->flow, (enum store_stream)s) +
                                  checkpoint->image.first_cuts[s][block]);
        }
    }
    return sums;
}

const char *store_checkpoint_path(const struct store_checkpoint *checkpoint)
{
    return checkpoint->path;
}

int store_checkpoint_direct_file(const struct store_checkpoint *checkpoint,
                                 enum store_stream stream)
{
    return store_flow_direct_file(checkpoint->flow, stream);
}

int store_checkpoint_read(struct store_checkpoint *checkpoint, uint32_t block, uint64_t first,
                          uint64_t count, const struct store_arrays *arrays)
{
    int rc = store_flow_begin(checkpoint->flow, block, first, count, arrays);
    return rc == 0 ? store_flow_wait(checkpoint->flow, store_flow_tail(checkpoint->flow)) : rc;
}

int store_checkpoint_read_begin(struct store_checkpoint *checkpoint, uint32_t block, uint64_t first,
                                uint64_t count, const struct store_arrays *arrays)
{
    return store_flow_begin(checkpoint->flow, block, first, count, arrays);
}

uint64_t store_checkpoint_read_tail(const struct store_checkpoint *checkpoint)
{
    return store_flow_tail(checkpoint->flow);
}

int store_checkpoint_read_wait(struct store_checkpoint *checkpoint, uint64_t point)
{
    return store_flow_wait(checkpoint->flow, point);
}

static void mark_part(const struct store_image *image, const struct store_part *part,
                      enum store_stream stream, unsigned char *marks)
{
    for (uint32_t b = 0; b < image->blocks->count; b++) {
        const struct block *block = &image->blocks->list[b];
        const uint32_t of = stream == STORE_STREAM_WEIGHTS ? part->weights_of : part->states_of;
        const uint64_t cut = image->first_cuts[stream][b];
        const bool has = store_image_bytes(image, stream, b) > 0;
        for (uint32_t r = 0; has && r < of; r++) {
            const uint64_t first = plan_shard_border(block->elements, of, r);
            const uint64_t end = plan_shard_border(block->elements, of, r + 1);
            if ((of == 1 || part->ranks >> r & 1) && end > first) {
                memset(marks + cut + first / PLAN_CUT_ELEMENTS, STORE_MARK_OWN,
                       (end - first + PLAN_CUT_ELEMENTS - 1) / PLAN_CUT_ELEMENTS);
            }
        }
    }
}

static int verify_part(struct store_checkpoint *checkpoint,
                       int (*progress)(void *user, uint64_t done, uint64_t total), void *user)
{
    struct store_marks marks = {{NULL}};
    int rc = 0;
    for (int s = 0; rc == 0 && s < STORE_STREAM_COUNT; s++) {
        marks.at[s] = calloc(store_image_cuts(&checkpoint->image, (enum store_stream)s) + 1, 1);
        if (marks.at[s] == NULL) {
            rc = core_err_set(-ENOMEM, "no memory to verify %s", checkpoint->path);
        } else {
            mark_part(&checkpoint->image, &checkpoint->manifest.part, (enum store_stream)s,
                      marks.at[s]);
        }
    }
    if (rc == 0) {
        rc = store_checkpoint_verify(checkpoint, &marks, progress, user);
    }
    for (int s = 0; s < STORE_STREAM_COUNT; s++) {
        free(marks.at[s]);
    }
    return rc;
}

int store_checkpoint_verify(struct store_checkpoint *checkpoint, const struct store_marks *marks,
                            int (*progress)(void *user, uint64_t done, uint64_t total), void *user)
{
    const uint32_t blocks = checkpoint->image.blocks->count;
    int rc = 0;
    if (marks == NULL && checkpoint->manifest.part.ranks != 0) {
        return verify_part(checkpoint, progress, user);
    }
    for (uint32_t b = 0; rc == 0 && b < blocks; b++) {
        rc = store_flow_check(checkpoint->flow, b, marks);
        if (rc == 0 && progress != NULL && progress(user, b + 1, blocks) != 0) {
            rc = core_err_set(-ECANCELED, "stopped while %s was read", checkpoint->path);
        }
    }
    return rc;
}
