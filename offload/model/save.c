/* save.c: the shards: which tensor lies where, and putting elements there. */
#include "offload/model/save.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/json_write.h"
#include "offload/model/claim.h"
#include "offload/model/save_folder.h"

enum { BUFFER_BYTES = 1 << 20, NAME_BYTES = 64, HEADER_GRAIN = 8 };
#define SHARD_BYTES_DEFAULT UINT64_C(5000000000)

/* A tensor of the files. */
struct target {
    const struct model_param *param; /* borrowed from the model */
    const struct model_part *part;
    unsigned block;
    size_t shard;
    uint64_t offset_bytes; /* in the shard's data; from the file's beginning once it is open */
};

struct shard {
    char name[NAME_BYTES];
    int fd;
    uint64_t data_bytes;
};

struct model_save {
    const struct model *model; /* borrowed */
    enum model_dtype type;
    bool replace;
    bool published;
    bool claimed;           /* by who saves: the folder stays his when this ends */
    char *folder;           /* owned */
    char *path;             /* owned: FOLDER.partial, NULL before it was made */
    int fd;                 /* of it */
    struct target *targets; /* owned, in order of blocks and offsets */
    size_t target_count;
    struct shard *shards; /* owned */
    size_t shard_count;
    _Atomic uint64_t put; /* elements so far; relaxed: read after everybody has put */
};

/* ---- the layout ---- */

static uint64_t part_elements(const struct target *target)
{
    return (uint64_t)target->part->rows * (uint64_t)target->param->cols;
}

static int list_targets(struct model_save *save)
{
    const struct model *model = save->model;
    size_t capacity = (size_t)model->block_count * MODEL_PARAMS_MAX * MODEL_PARTS_MAX;
    save->targets = calloc(capacity, sizeof *save->targets);
    if (save->targets == NULL) {
        return core_err_set(-ENOMEM, "no memory for the list of tensors");
    }
    for (unsigned i = 0; i < model->block_count; i++) {
        for (unsigned j = 0; j < model->blocks[i].param_count; j++) {
            const struct model_param *param = &model->blocks[i].params[j];
            for (unsigned k = 0; k < param->part_count; k++) {
                save->targets[save->target_count++] = (struct target){
                    .param = param, .part = &param->parts[k], .block = i};
            }
        }
    }
    return 0;
}

static int lay_out(struct model_save *save, uint64_t shard_bytes)
{
    save->shards = calloc(save->target_count, sizeof *save->shards);
    if (save->shards == NULL) {
        return core_err_set(-ENOMEM, "no memory for the list of shards");
    }
    save->shard_count = 1;
    for (size_t i = 0; i < save->target_count; i++) {
        struct target *target = &save->targets[i];
        struct shard *shard = &save->shards[save->shard_count - 1];
        uint64_t bytes = part_elements(target) * model_dtype_bytes(save->type);
        if (shard->data_bytes > 0 && shard->data_bytes + bytes > shard_bytes) {
            shard = &save->shards[save->shard_count++];
        }
        target->shard = (size_t)(shard - save->shards);
        target->offset_bytes = shard->data_bytes;
        shard->data_bytes += bytes;
    }
    for (size_t i = 0; i < save->shard_count; i++) {
        save->shards[i].fd = -1;
        if (save->shard_count == 1) {
            snprintf(save->shards[i].name, NAME_BYTES, "model.safetensors");
        } else {
            snprintf(save->shards[i].name, NAME_BYTES, "model-%05zu-of-%05zu.safetensors", i + 1,
                     save->shard_count);
        }
    }
    return 0;
}

static void write_entry(struct core_json_write *write, const struct model_save *save,
                        const struct target *target)
{
    const struct model_param *param = target->param;
    const uint64_t bytes = part_elements(target) * model_dtype_bytes(save->type);
    core_json_write_object_begin(write, target->part->name);
    core_json_write_string(write, "dtype", model_dtype_name(save->type));
    core_json_write_array_begin(write, "shape");
    if (param->transposed) {
        core_json_write_integer(write, NULL, param->cols);
    }
    core_json_write_integer(write, NULL, target->part->rows);
    if (!param->transposed && param->cols > 1) {
        core_json_write_integer(write, NULL, param->cols);
    }
    core_json_write_array_end(write);
    core_json_write_array_begin(write, "data_offsets");
    core_json_write_unsigned(write, NULL, target->offset_bytes);
    core_json_write_unsigned(write, NULL, target->offset_bytes + bytes);
    core_json_write_array_end(write);
    core_json_write_object_end(write);
}

/* ---- opening ---- */

static int write_at(int fd, const char *name, uint64_t at, const void *from, size_t bytes)
{
    const int rc = core_file_write_at(fd, from, bytes, at);
    return rc == 0 ? 0
                   : core_err_set(rc, "%s cannot be written, %zu bytes at byte %" PRIu64 ": %s",
                                  name, bytes, at, strerror(-rc));
}

/* Where the file system cannot reserve room, the file at least has its size. */
static int reserve(int fd, const char *name, uint64_t bytes)
{
    if (fallocate(fd, 0, 0, (off_t)bytes) == 0 ||
        ((errno == EOPNOTSUPP || errno == ENOSYS) && ftruncate(fd, (off_t)bytes) == 0)) {
        return 0;
    }
    return core_err_set(-errno, "no room for %s of %" PRIu64 " bytes: %s", name, bytes,
                        strerror(errno));
}

/* Writes the header and moves the targets' offsets behind it. */
static int open_shard(struct model_save *save, size_t index)
{
    struct shard *shard = &save->shards[index];
    struct core_json_write write;
    core_json_write_init_text(&write);
    core_json_write_object_begin(&write, NULL);
    core_json_write_object_begin(&write, "__metadata__");
    core_json_write_string(&write, "format", "pt");
    core_json_write_object_end(&write);
    for (size_t i = 0; i < save->target_count; i++) {
        if (save->targets[i].shard == index) {
            write_entry(&write, save, &save->targets[i]);
        }
    }
    core_json_write_object_end(&write);
    int rc = core_json_write_end(&write);
    if (rc != 0) {
        core_json_write_fini(&write);
        return rc;
    }
    /* The data begins at a multiple of eight; the line's end becomes part of the padding. */
    uint64_t bytes = (write.bytes + HEADER_GRAIN - 1) / HEADER_GRAIN * HEADER_GRAIN;
    char *head = malloc(bytes + HEADER_GRAIN);
    shard->fd = openat(save->fd, shard->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (head == NULL || shard->fd < 0) {
        rc = core_err_set(head == NULL ? -ENOMEM : -errno, "%s/%s cannot be made: %s", save->path,
                          shard->name, head == NULL ? "no memory" : strerror(errno));
    } else {
        memset(head, ' ', bytes + HEADER_GRAIN);
        for (unsigned i = 0; i < HEADER_GRAIN; i++) {
            head[i] = (char)(bytes >> (8 * i) & 0xff);
        }
        memcpy(head + HEADER_GRAIN, write.text, write.bytes - 1);
        rc = reserve(shard->fd, shard->name, HEADER_GRAIN + bytes + shard->data_bytes);
        rc = rc != 0 ? rc : write_at(shard->fd, shard->name, 0, head, bytes + HEADER_GRAIN);
    }
    for (size_t i = 0; i < save->target_count; i++) {
        if (save->targets[i].shard == index) {
            save->targets[i].offset_bytes += HEADER_GRAIN + bytes;
        }
    }
    free(head);
    core_json_write_fini(&write);
    return rc;
}

static int write_index(struct model_save *save)
{
    struct core_json_write write;
    core_json_write_init_text(&write);
    write.indent = 2;
    core_json_write_object_begin(&write, NULL);
    core_json_write_object_begin(&write, "metadata");
    core_json_write_unsigned(&write, "total_size", model_save_bytes(save));
    core_json_write_object_end(&write);
    core_json_write_object_begin(&write, "weight_map");
    for (size_t i = 0; i < save->target_count; i++) {
        core_json_write_string(&write, save->targets[i].part->name,
                               save->shards[save->targets[i].shard].name);
    }
    core_json_write_object_end(&write);
    core_json_write_object_end(&write);
    int rc = core_json_write_end(&write);
    rc = rc != 0 ? rc
                 : model_folder_write(save->fd, "model.safetensors.index.json", write.text,
                                      write.bytes);
    core_json_write_fini(&write);
    return rc;
}

static int open_all(struct model_save *save, const struct model_save_options *options)
{
    int rc = list_targets(save);
    rc = rc != 0
             ? rc
             : lay_out(save, options->shard_bytes > 0 ? options->shard_bytes : SHARD_BYTES_DEFAULT);
    save->claimed = options->claim != NULL && model_claim_holds(options->claim, save->folder);
    rc = rc != 0 ? rc
                 : model_folder_begin(save->folder, options->replace, options->claim, &save->path,
                                      &save->fd);
    for (size_t i = 0; rc == 0 && i < save->shard_count; i++) {
        rc = open_shard(save, i);
    }
    if (rc == 0 && save->shard_count > 1) {
        rc = write_index(save);
    }
    if (rc == 0 && options->source != NULL) {
        rc = model_folder_copy(save->fd, options->source, save->model->config.family, save->type);
    }
    return rc;
}

int model_save_open(const struct model *model, const struct model_save_options *options,
                    struct model_save **out)
{
    struct model_save *save = calloc(1, sizeof *save);
    if (save == NULL || (save->folder = strdup(options->folder)) == NULL) {
        free(save);
        return core_err_set(-ENOMEM, "no memory to write %s", options->folder);
    }
    /* "out/" is "out". */
    for (size_t n = strlen(save->folder); n > 1 && save->folder[n - 1] == '/'; n--) {
        save->folder[n - 1] = '\0';
    }
    save->model = model;
    save->type = options->type;
    save->replace = options->replace;
    save->fd = -1;
    atomic_init(&save->put, 0);
    struct model_save_options exact = *options;
    exact.folder = save->folder;
    int rc = open_all(save, &exact);
    if (rc != 0) {
        model_save_close(save);
        return rc;
    }
    *out = save;
    return 0;
}

uint64_t model_save_bytes(const struct model_save *save)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < save->shard_count; i++) {
        bytes += save->shards[i].data_bytes;
    }
    return bytes;
}

/* ---- putting ---- */

/* Elements [begin, end) of a target, as they stand in the flat array at `from`. */
struct piece {
    const struct model_save *save;
    const struct target *target;
    uint64_t begin;
    uint64_t end;
    enum model_dtype type;
    const char *from;
    char *buffer; /* BUFFER_BYTES */
};

static int put_straight(const struct piece *piece)
{
    const struct shard *shard = &piece->save->shards[piece->target->shard];
    const size_t to_bytes = model_dtype_bytes(piece->save->type);
    const size_t from_bytes = model_dtype_bytes(piece->type);
    const uint64_t most = BUFFER_BYTES / to_bytes;
    const bool same = piece->type == piece->save->type;
    for (uint64_t at = piece->begin; at < piece->end;) {
        const uint64_t left = piece->end - at;
        const size_t count = (size_t)(same || left < most ? left : most);
        const char *from = piece->from + (at - piece->begin) * from_bytes;
        if (!same) {
            model_convert(piece->buffer, piece->save->type, from, piece->type, count);
        }
        int rc = write_at(shard->fd, shard->name, piece->target->offset_bytes + at * to_bytes,
                          same ? from : piece->buffer, count * to_bytes);
        if (rc != 0) {
            return rc;
        }
        at += count;
    }
    return 0;
}

/* The file's line `col`, elements [row, row + count) of it: a column of the flat array. */
static int put_line(const struct piece *piece, int64_t col, int64_t row, int64_t count)
{
    const struct shard *shard = &piece->save->shards[piece->target->shard];
    const size_t to_bytes = model_dtype_bytes(piece->save->type);
    const size_t from_bytes = model_dtype_bytes(piece->type);
    const int64_t most = (int64_t)(BUFFER_BYTES / to_bytes);
    const uint64_t cols = (uint64_t)piece->target->param->cols;
    for (int64_t done = 0; done < count;) {
        const int64_t some = count - done < most ? count - done : most;
        for (int64_t i = 0; i < some; i++) {
            const uint64_t element = (uint64_t)(row + done + i) * cols + (uint64_t)col;
            model_convert(piece->buffer + (size_t)i * to_bytes, piece->save->type,
                          piece->from + (element - piece->begin) * from_bytes, piece->type, 1);
        }
        const uint64_t at = (uint64_t)col * (uint64_t)piece->target->part->rows +
                            (uint64_t)(row + done);
        int rc = write_at(shard->fd, shard->name, piece->target->offset_bytes + at * to_bytes,
                          piece->buffer, (size_t)some * to_bytes);
        if (rc != 0) {
            return rc;
        }
        done += some;
    }
    return 0;
}

/* Each column's run of rows inside [begin, end) goes to a line of the file. */
static int put_transposed(const struct piece *piece)
{
    const uint64_t cols = (uint64_t)piece->target->param->cols;
    for (uint64_t col = 0; col < cols; col++) {
        const uint64_t first = piece->begin / cols + (piece->begin % cols > col);
        const uint64_t last = piece->end / cols + (piece->end % cols > col);
        int rc = first < last
                     ? put_line(piece, (int64_t)col, (int64_t)first, (int64_t)(last - first))
                     : 0;
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

int model_save_put(struct model_save *save, unsigned block, uint64_t begin, uint64_t count,
                   enum model_dtype type, const void *from)
{
    struct piece piece = {.save = save, .type = type, .buffer = malloc(BUFFER_BYTES)};
    if (piece.buffer == NULL) {
        return core_err_set(-ENOMEM, "no memory for a buffer of %d bytes", BUFFER_BYTES);
    }
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < save->target_count; i++) {
        const struct target *target = &save->targets[i];
        const uint64_t first = target->param->offset +
                               (uint64_t)target->part->first_row * (uint64_t)target->param->cols;
        const uint64_t last = first + part_elements(target);
        if (target->block != block || begin >= last || begin + count <= first) {
            continue;
        }
        piece.target = target;
        piece.begin = (begin > first ? begin : first) - first;
        piece.end = (begin + count < last ? begin + count : last) - first;
        piece.from = (const char *)from + (first + piece.begin - begin) * model_dtype_bytes(type);
        rc = target->param->transposed ? put_transposed(&piece) : put_straight(&piece);
        atomic_fetch_add_explicit(&save->put, piece.end - piece.begin, memory_order_relaxed);
    }
    free(piece.buffer);
    return rc;
}

/* ---- ending ---- */

int model_save_finish(struct model_save *save)
{
    const uint64_t put = atomic_load_explicit(&save->put, memory_order_relaxed);
    if (put != save->model->parameters) {
        return core_err_set(-EINVAL, "%s: %" PRIu64 " of %" PRIu64 " parameters were written",
                            save->folder, put, save->model->parameters);
    }
    for (size_t i = 0; i < save->shard_count; i++) {
        if (fsync(save->shards[i].fd) != 0) {
            return core_err_set(-errno, "%s/%s cannot be made durable: %s", save->path,
                                save->shards[i].name, strerror(errno));
        }
    }
    int rc = model_folder_publish(save->path, save->fd, save->folder, save->replace);
    save->published = rc == 0;
    return rc;
}

void model_save_close(struct model_save *save)
{
    if (save == NULL) {
        return;
    }
    for (size_t i = 0; i < save->shard_count; i++) {
        if (save->shards[i].fd >= 0) {
            close(save->shards[i].fd);
        }
    }
    if (save->path != NULL && !save->published && save->claimed) {
        model_folder_clear(save->path);
    } else if (save->path != NULL && !save->published) {
        model_folder_remove(save->path); /* while it is locked */
    }
    if (save->fd >= 0) {
        close(save->fd);
    }
    free(save->path);
    free(save->folder);
    free(save->shards);
    free(save->targets);
    free(save);
}
