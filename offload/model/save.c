/* save.c: assigns tensors to shards; writes and verifies them. */
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
#include "core/base/size.h"
#include "core/json/write.h"
#include "offload/model/adapter_config.h"
#include "offload/model/claim.h"
#include "offload/model/publish.h"
#include "offload/model/save_folder.h"

enum { BUFFER_BYTES = 1 << 20, ALIGN_BYTES = 4096, NAME_BYTES = 64, HEADER_GRAIN = 8 };
#define SHARD_BYTES_DEFAULT UINT64_C(5000000000)

struct target {
    const struct model_param *param; /* borrowed from the model */
    const struct model_part *part;
    unsigned block;
    size_t shard;
    uint64_t offset_bytes; /* in the shard's data; after open_shard, in its file */
};

struct shard {
    char name[NAME_BYTES];
    int fd;
    uint64_t data_bytes;
    char *head; /* owned: bytes before the data */
    uint64_t head_bytes;
    /* sum_elements of what was written; relaxed: read after the writers have ended */
    _Atomic uint64_t sum;
    uint64_t file_sum; /* core_file_sum, read back */
};

struct model_save {
    const struct model *model; /* borrowed */
    enum model_dtype type;
    bool replace;
    uint64_t run; /* 0: no run */
    uint64_t steps;
    bool complete;            /* files are verified, so close leaves the folder alone */
    char *folder;             /* owned */
    struct model_claim own;   /* claim on FOLDER.partial; no path: not made yet */
    struct model_claim *lent; /* borrowed: the caller's claim; NULL: none */
    struct target *targets;   /* owned, in the order of computing blocks and their parameters */
    size_t target_count;
    uint64_t elements;    /* elements of all targets */
    struct shard *shards; /* owned */
    size_t shard_count;
    /* elements written; relaxed: read after the writers have ended */
    _Atomic uint64_t put;
};

/* ---- the layout ---- */

static uint64_t part_elements(const struct target *target)
{
    return (uint64_t)target->part->rows * (uint64_t)target->param->cols;
}

static void add_targets(struct model_save *save, const struct model_param *param)
{
    const struct model_block *owner = &save->model->blocks[param->owner];
    const struct model_param *owned =
        &owner->params[model_block_adapter(owner, param->role, param->adapter)];
    for (unsigned k = 0; k < owned->part_count; k++) {
        save->targets[save->target_count++] = (struct target){
            .param = owned, .part = &owned->parts[k], .block = param->owner};
    }
}

static int list_targets(struct model_save *save)
{
    const struct model *model = save->model;
    size_t capacity = (size_t)model->compute_count * model->params_max * MODEL_PARTS_MAX;
    save->targets = calloc(capacity, sizeof *save->targets);
    if (save->targets == NULL) {
        return core_err_set(-ENOMEM, "no memory for the list of tensors");
    }
    for (unsigned i = 0; i < model->compute_count; i++) {
        const struct model_block *block = &model->blocks[i];
        for (unsigned j = 0; j < block->param_count; j++) {
            const struct model_param *param = &block->params[j];
            const bool wanted = model->lora.rank == 0 || param->trained;
            /* The embedding lists the table of a tied head. */
            if (wanted &&
                (param->owner == i || (block->data != 0 && param->owner == block->data))) {
                save->elements += param->elements;
                add_targets(save, param);
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
        if (shard->data_bytes > 0 && shard->data_bytes + bytes > shard_bytes &&
            save->model->lora.rank == 0) {
            shard = &save->shards[save->shard_count++];
        }
        target->shard = (size_t)(shard - save->shards);
        target->offset_bytes = shard->data_bytes;
        shard->data_bytes += bytes;
    }
    for (size_t i = 0; i < save->shard_count; i++) {
        save->shards[i].fd = -1;
        if (save->model->lora.rank > 0) {
            snprintf(save->shards[i].name, NAME_BYTES, MODEL_ADAPTER_FILE);
        } else if (save->shard_count == 1) {
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
    const bool saved = save->model->lora.rank > 0 && param->adapter == MODEL_ADAPTER_NONE;
    char name[BLOCKS_NAME_BYTES_MAX + sizeof MODEL_ADAPTER_PREFIX];
    snprintf(name, sizeof name, "%s%s", saved ? MODEL_ADAPTER_PREFIX : "", target->part->name);
    core_json_write_object_begin(write, name);
    core_json_write_string(write, "dtype", model_dtype_name(save->type));
    core_json_write_array_begin(write, "shape");
    if (param->transposed) {
        core_json_write_integer(write, NULL, param->cols);
    }
    core_json_write_integer(write, NULL, target->part->rows);
    if (!param->transposed && !param->vector) {
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

static int write_at(const struct model_save *save, const struct shard *shard, uint64_t at,
                    const void *from, size_t bytes)
{
    const int rc = core_file_write_at(shard->fd, from, bytes, at);
    const struct model_folder folder = {save->own.path, save->own.fd};
    return rc == 0 ? 0
                   : model_folder_failed(&folder, shard->name, rc,
                                         shard->head_bytes + shard->data_bytes);
}

/* If the file system cannot reserve space, the file still gets its size. */
static int reserve(const struct model_save *save, const struct shard *shard)
{
    const uint64_t bytes = shard->head_bytes + shard->data_bytes;
    const struct model_folder folder = {save->own.path, save->own.fd};
    bool reserved;
    const int rc = core_file_reserve(shard->fd, bytes, &reserved);
    return rc == 0 ? 0 : model_folder_failed(&folder, shard->name, rc, bytes);
}

/* Also adds the header's length to the targets' offsets. */
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
    /* Padding aligns the data to eight bytes; it replaces the text's newline. */
    uint64_t bytes = core_round_up(write.bytes, HEADER_GRAIN);
    char *head = malloc(bytes + HEADER_GRAIN);
    shard->fd = openat(save->own.fd, shard->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (head == NULL || shard->fd < 0) {
        rc = core_err_set(head == NULL ? -ENOMEM : -errno, "%s/%s cannot be created: %s",
                          save->own.path, shard->name,
                          head == NULL ? "no memory" : strerror(errno));
    } else {
        memset(head, ' ', bytes + HEADER_GRAIN);
        for (unsigned i = 0; i < HEADER_GRAIN; i++) {
            head[i] = (char)(bytes >> (8 * i) & 0xff);
        }
        memcpy(head + HEADER_GRAIN, write.text, write.bytes - 1);
        shard->head_bytes = HEADER_GRAIN + bytes;
        rc = reserve(save, shard);
        if (rc == 0) {
            rc = write_at(save, shard, 0, head, bytes + HEADER_GRAIN);
        }
    }
    for (size_t i = 0; i < save->target_count; i++) {
        if (save->targets[i].shard == index) {
            save->targets[i].offset_bytes += HEADER_GRAIN + bytes;
        }
    }
    shard->head = head;
    core_json_write_fini(&write);
    return rc;
}

static int write_index(struct model_save *save)
{
    struct core_json_write write;
    uint64_t bytes = 0; /* size of the weights, without headers */
    for (size_t i = 0; i < save->shard_count; i++) {
        bytes += save->shards[i].data_bytes;
    }
    core_json_write_init_text(&write);
    write.indent = 2;
    core_json_write_object_begin(&write, NULL);
    core_json_write_object_begin(&write, "metadata");
    core_json_write_unsigned(&write, "total_size", bytes);
    core_json_write_object_end(&write);
    core_json_write_object_begin(&write, "weight_map");
    for (size_t i = 0; i < save->target_count; i++) {
        core_json_write_string(&write, save->targets[i].part->name,
                               save->shards[save->targets[i].shard].name);
    }
    core_json_write_object_end(&write);
    core_json_write_object_end(&write);
    int rc = core_json_write_end(&write);
    if (rc == 0) {
        rc = model_folder_write(&(struct model_folder){save->own.path, save->own.fd},
                                "model.safetensors.index.json", write.text, write.bytes);
    }
    core_json_write_fini(&write);
    return rc;
}

static int open_all(struct model_save *save, const struct model_save_options *options)
{
    int rc = list_targets(save);
    const bool held = options->claim != NULL && model_claim_holds(options->claim, save->folder);
    save->lent = held ? options->claim : NULL;
    if (rc != 0) {
        return rc;
    }
    rc = lay_out(save, options->shard_bytes > 0 ? options->shard_bytes : SHARD_BYTES_DEFAULT);
    if (rc != 0) {
        return rc;
    }
    rc = model_folder_begin(save->folder, options->replace, options->claim, &save->own);
    if (rc != 0) {
        return rc;
    }
    for (size_t i = 0; i < save->shard_count; i++) {
        rc = open_shard(save, i);
        if (rc != 0) {
            return rc;
        }
    }
    if (save->shard_count > 1) {
        rc = write_index(save);
        if (rc != 0) {
            return rc;
        }
    }
    const struct model_folder folder = {save->own.path, save->own.fd};
    const bool adapters = save->model->lora.rank > 0;
    if (options->source != NULL) {
        rc = model_folder_copy(&folder, options->source, adapters ? NULL : &save->model->config,
                               save->type);
        if (rc != 0) {
            return rc;
        }
    }
    rc = adapters
             ? model_adapter_config_write(&folder, save->model, options->base_folder, options->base)
             : 0;
    if (rc != 0) {
        return rc;
    }
    return model_publish_check(save->own.path, save->folder);
}

int model_save_open(const struct model *model, const struct model_save_options *options,
                    struct model_save **out)
{
    struct model_save *save = calloc(1, sizeof *save);
    const size_t length = (size_t)model_folder_length(options->folder);
    if (save == NULL || (save->folder = strndup(options->folder, length)) == NULL) {
        free(save);
        return core_err_set(-ENOMEM, "no memory to write %s", options->folder);
    }
    save->model = model;
    save->type = model->lora.rank > 0 ? MODEL_F32 : options->type;
    save->replace = options->replace;
    save->run = options->run;
    save->steps = options->steps;
    save->own.fd = -1;
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

/* ---- writing ---- */

/* The sum depends on elements and their places. Sums of pieces add up in any order. */
static uint64_t sum_elements(const void *elements, size_t element_bytes, uint64_t at, size_t count)
{
    const uint64_t odd_place = UINT64_C(0x9e3779b97f4a7c15);
    const uint64_t odd_value = UINT64_C(0xbf58476d1ce4e5b9);
    const char *from = elements;
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t value = 0;
        if (element_bytes == sizeof(uint16_t)) {
            uint16_t half;
            memcpy(&half, from + 2 * i, sizeof half);
            value = half;
        } else {
            memcpy(&value, from + 4 * i, sizeof value);
        }
        uint64_t mixed = ((at / element_bytes + i) * odd_place ^ value) * odd_value;
        sum += mixed ^ mixed >> 29;
    }
    return sum;
}

struct tensor_write {
    struct model_save *save;
    const struct target *target;
    uint64_t begin;
    uint64_t end;
    enum model_dtype type;
    const char *from;
    char *buffer; /* BUFFER_BYTES */
};

static int put_elements(const struct tensor_write *piece, uint64_t at, const void *elements,
                        size_t count)
{
    struct shard *shard = &piece->save->shards[piece->target->shard];
    const size_t bytes = model_dtype_bytes(piece->save->type);
    const uint64_t offset = piece->target->offset_bytes + at * bytes;
    atomic_fetch_add_explicit(&shard->sum,
                              sum_elements(elements, bytes, offset - shard->head_bytes, count),
                              memory_order_relaxed);
    return write_at(piece->save, shard, offset, elements, count * bytes);
}

static int put_straight(const struct tensor_write *piece)
{
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
        int rc = put_elements(piece, at, same ? from : piece->buffer, count);
        if (rc != 0) {
            return rc;
        }
        at += count;
    }
    return 0;
}

/* A line of the file is a column of the flat array. */
static int put_line(const struct tensor_write *piece, int64_t col, int64_t row, int64_t count)
{
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
        int rc = put_elements(piece, at, piece->buffer, (size_t)some);
        if (rc != 0) {
            return rc;
        }
        done += some;
    }
    return 0;
}

static int put_transposed(const struct tensor_write *piece)
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
    struct tensor_write piece = {.save = save, .type = type, .buffer = malloc(BUFFER_BYTES)};
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

/* ---- finishing a file ---- */

/* Returns fewer bytes at the end of the file, or -errno without a message. */
static ssize_t read_full(int fd, char *buffer, uint64_t at)
{
    size_t done = 0;
    ssize_t got = 1;
    int interrupts = 0;
    while (done < BUFFER_BYTES && got != 0) {
        got = pread(fd, buffer + done, BUFFER_BYTES - done, (off_t)(at + done));
        if (got < 0 && (errno != EINTR || ++interrupts == CORE_FILE_INTERRUPTS_MAX)) {
            return -errno;
        }
        done += got > 0 ? (size_t)got : 0;
        if (got > 0 && done % ALIGN_BYTES != 0) {
            /* a direct read at the end of the file returns a partial block */
            break;
        }
    }
    return (ssize_t)done;
}

/* Reads must come from the drive: by direct I/O, or after dropping cached pages. */
static int open_again(const struct model_save *save, const struct shard *shard)
{
    bool direct = false;
    const int fd = core_file_open_direct(save->own.fd, shard->name, O_RDONLY, &direct);
    if (fd >= 0 && !direct) {
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    }
    return fd;
}

/* Returns false if the header differs. */
static bool check_bytes(const struct model_save *save, const struct shard *shard,
                        const char *buffer, uint64_t at, size_t count, uint64_t *sum)
{
    const size_t element = model_dtype_bytes(save->type);
    size_t head = 0;
    if (at < shard->head_bytes) {
        head = (size_t)(shard->head_bytes - at < count ? shard->head_bytes - at : count);
        if (memcmp(buffer, shard->head + at, head) != 0) {
            return false;
        }
    }
    if (head < count) {
        *sum += sum_elements(buffer + head, element, at + head - shard->head_bytes,
                             (count - head) / element);
    }
    return true;
}

static int read_back(const struct model_save *save, struct shard *shard, char *buffer)
{
    const uint64_t size = shard->head_bytes + shard->data_bytes;
    uint64_t sum = 0;
    uint64_t at = 0;
    ssize_t got = 1;
    bool same = true;
    const int fd = open_again(save, shard);
    if (fd < 0) {
        return core_err_set(fd, "%s/%s cannot be opened to be read back: %s", save->own.path,
                            shard->name, strerror(-fd));
    }
    while (same && at < size && (got = read_full(fd, buffer, at)) > 0) {
        same = check_bytes(save, shard, buffer, at, (size_t)got, &sum);
        shard->file_sum += core_file_sum_bytes(buffer, (size_t)got, at);
        at += (uint64_t)got;
    }
    close(fd);
    if (got < 0) {
        return core_err_set((int)got, "%s/%s cannot be read back: %s", save->own.path, shard->name,
                            strerror((int)-got));
    }
    same = same && at == size && sum == atomic_load_explicit(&shard->sum, memory_order_relaxed);
    return same ? 0
                : core_err_set(-EBADMSG, "%s/%s was read back and differs from what was written",
                               save->own.path, shard->name);
}

static int verify(const struct model_save *save)
{
    char *buffer = aligned_alloc(ALIGN_BYTES, BUFFER_BYTES);
    int rc = buffer != NULL ? 0
                            : core_err_set(-ENOMEM, "no memory to read %s back", save->own.path);
    for (size_t i = 0; rc == 0 && i < save->shard_count; i++) {
        if (fsync(save->shards[i].fd) != 0) {
            const int error = errno;
            rc = core_err_set(-error, "%s/%s cannot be made durable: %s", save->own.path,
                              save->shards[i].name, strerror(error));
        }
        if (rc == 0) {
            rc = read_back(save, &save->shards[i], buffer);
        }
    }
    free(buffer);
    return rc;
}

/* A complete model stays if it cannot be moved. The message says whether the next run moves or
 * removes it. */
static int keep(struct model_save *save, int rc)
{
    const struct core_err kept = core_err_keep(rc);
    const bool moves = rc != -EEXIST &&
                       (model_publish_is_kept(save->own.fd) ||
                        model_publish_keep(save->own.path, save->own.fd, save->folder) == 0);
    rc = core_err_first(&kept, 0);
    if (save->lent != NULL) {
        save->lent->left = true;
    }
    if (!moves) {
        return core_err_prefix(rc,
                               "the model is complete in %s; move it to another name, because the "
                               "next run with this output removes it",
                               save->own.path);
    }
    return core_err_prefix(rc,
                           "the model is complete in %s, and the next run with this output "
                           "moves it to %s",
                           save->own.path, save->folder);
}

static int write_note(const struct model_save *save)
{
    struct model_sum *sums = calloc(save->shard_count, sizeof *sums);
    if (sums == NULL) {
        return core_err_set(-ENOMEM, "no memory to note the files of %s", save->own.path);
    }
    for (size_t i = 0; i < save->shard_count; i++) {
        sums[i] = (struct model_sum){save->shards[i].name, save->shards[i].file_sum};
    }
    const int rc = model_folder_note(
        &(struct model_folder){save->own.path, save->own.fd},
        &(struct model_note){
            .run = save->run, .steps = save->steps, .sums = sums, .sum_count = save->shard_count});
    free(sums);
    return rc;
}

int model_save_finish(struct model_save *save)
{
    const uint64_t put = atomic_load_explicit(&save->put, memory_order_relaxed);
    if (put != save->elements) {
        return core_err_set(-EINVAL, "%s: %" PRIu64 " of %" PRIu64 " parameters were written",
                            save->folder, put, save->elements);
    }
    int rc = verify(save);
    if (rc == 0 && save->run != 0) {
        rc = write_note(save);
    }
    if (rc != 0) {
        return rc;
    }
    save->complete = true;
    rc = model_folder_publish(save->own.path, save->own.fd, save->folder, save->replace);
    return rc == 0 ? 0 : keep(save, rc);
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
        free(save->shards[i].head);
    }
    if (save->own.path != NULL && !save->complete && save->lent != NULL) {
        model_folder_clear(save->own.path);
    } else if (save->own.path != NULL && !save->complete) {
        model_folder_remove(save->own.path); /* before the lock is released */
    }
    model_claim_close(&save->own);
    free(save->folder);
    free(save->shards);
    free(save->targets);
    free(save);
}
