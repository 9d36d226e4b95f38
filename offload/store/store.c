/* store.c: the paths of a store, the extents of chunks, and extents in files of an adopted
 * checkpoint. */
#include "offload/store/store.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "aio/backend.h"
#include "core/base/err.h"
#include "core/base/hash.h"
#include "core/base/size.h"
#include "offload/plan/layout.h"
#include "offload/plan/shard.h"
#include "offload/store/checkpoint.h"
#include "offload/store/chunk.h"
#include "offload/store/image.h"
#include "offload/store/ranks.h"

enum { STORE_PATH_BYTES = 4096 };

/* The chunks of one kind and block. An activation belongs to its producing block. */
struct store_row {
    struct store_chunk *chunks; /* owned, [count]; no extents: not in the store */
    uint32_t count;
};

struct store_directory {
    char directory[STORE_PATH_BYTES]; /* our directory, inside the parent; empty: memory */
    char parent[STORE_PATH_BYTES];    /* the parent directory if we created it; empty: it existed */
    struct aio_mem_disk *disk;        /* owned; NULL: there is a directory, or the disk is the
                                       * caller's */
};

/* The files of the adopted checkpoint; the descriptor of a missing stream is -1. */
struct store_adopting {
    bool open;
    int fds[STORE_STREAM_COUNT];        /* owned */
    uint32_t files[STORE_STREAM_COUNT]; /* indices of the files in the first path's drive */
};

struct store {
    struct aio_store *extents; /* owned */
    struct store_directory places[STORE_PATHS_MAX];
    unsigned place_count;
    struct store_row *rows[STORE_KIND_COUNT]; /* owned, [block_count] each */
    uint32_t block_count;
    const struct plan_layout *layout; /* borrowed */
    uint64_t next_owner;
    uint64_t ahead_written; /* submitted writes ahead of their norm */
    uint64_t ahead_decided; /* decided writes ahead of their norm */
    bool stands;            /* true: the last decided writes became current */
    struct store_adopting adopting;
    uint32_t base_file; /* index of the kept base's file in the first path's drive */
};

/* ---- the chunks of a plan ---- */

/* Activations have one chunk per micro-batch. */
static uint32_t row_count(const struct plan_input *input, const struct plan *plan,
                          enum store_kind kind, uint32_t block)
{
    const uint64_t elements = kind == STORE_WEIGHTS ? plan_weight_span(input, block).count
                                                    : plan_state_span(input, block).count;
    return kind == STORE_ACTS ? input->wishes.micro_batches
                              : (uint32_t)plan_chunk_count(elements, plan_chunk_elements(plan));
}

/* `generations`: number of the chunk's extents. */
typedef int each_extent(void *context, const struct store_place *place, uint64_t bytes,
                        unsigned generations);

static int each_chunk(const struct plan_input *input, const struct plan *plan, enum store_kind kind,
                      each_extent *each, void *context)
{
    static const enum plan_stream streams[] = {
        [STORE_WEIGHTS] = PLAN_W16, [STORE_STATES] = PLAN_MASTER, [STORE_GRADS] = PLAN_G};
    for (uint32_t block = 0; block < input->block_count; block++) {
        const uint32_t count = row_count(input, plan, kind, block);
        for (uint32_t i = 0; i < count; i++) {
            const struct store_place place = {.kind = kind, .block = block, .index = i};
            const struct plan_piece kept =
                plan_chunk_at(input, plan_layout_of(plan), streams[kind], block, i).kept;
            if (kept.buffer == PLAN_NONE || plan_buffer(plan, kept.buffer)->tier != PLAN_STORE) {
                continue;
            }
            const bool twice = plan_buffer(plan, kept.buffer)->twin != PLAN_NONE;
            int rc = each(context, &place, kept.bytes, twice ? 2 : 1);
            if (rc != 0) {
                return rc;
            }
        }
    }
    return 0;
}

static int each_activation(const struct plan_input *input, const struct plan *plan,
                           each_extent *each, void *context)
{
    if (plan_chosen_acts(plan) != PLAN_ACTS_STORE) {
        return 0;
    }
    for (uint32_t block = 0; block < input->block_count; block++) {
        const uint64_t bytes = input->blocks[block].out_bytes;
        const uint32_t count = bytes > 0 ? row_count(input, plan, STORE_ACTS, block) : 0;
        for (uint32_t i = 0; i < count; i++) {
            const struct store_place place = {.kind = STORE_ACTS, .block = block, .index = i};
            int rc = each(context, &place, bytes, 1);
            if (rc != 0) {
                return rc;
            }
        }
    }
    return 0;
}

static int for_each(const struct plan_input *input, const struct plan *plan, each_extent *each,
                    void *context)
{
    for (int kind = 0; kind < STORE_ACTS; kind++) {
        int rc = each_chunk(input, plan, (enum store_kind)kind, each, context);
        if (rc != 0) {
            return rc;
        }
    }
    return each_activation(input, plan, each, context);
}

/* ---- paths ---- */

static int place_directory(struct store_directory *place, const char *parent, unsigned rank)
{
    if (mkdir(parent, 0700) == 0) {
        snprintf(place->parent, sizeof place->parent, "%s", parent);
    } else if (errno != EEXIST) {
        return core_err_set(-errno, "the store's directory %s cannot be created: %s", parent,
                            strerror(errno));
    }
    return store_rank_folder(parent, rank, place->directory, sizeof place->directory);
}

static int place_path(struct store *store, const struct store_options *options, unsigned i,
                      uint64_t bytes, struct aio_store_path *out)
{
    const struct store_path *given = &options->paths[i];
    struct store_directory *place = &store->places[i];
    int rc = 0;
    *out = (struct aio_store_path){.bytes = bytes,
                                   .weight = given->weight,
                                   .recipe = given->recipe,
                                   .cpus = options->drive_cpus != NULL ? &options->drive_cpus[i]
                                                                       : NULL};
    store->place_count++;
    if (given->disk != NULL) {
        out->disk = given->disk;
    } else if (options->backend != NULL && strcmp(options->backend, "mem") == 0) {
        rc = aio_mem_create(bytes, &place->disk);
        out->disk = place->disk;
    } else {
        rc = place_directory(place, given->directory, options->rank);
        out->directory = place->directory;
        if (rc == 0 && options->rank == 0 && options->world > 0) {
            store_ranks_clear(given->directory, options->world);
        }
    }
    return rc;
}

struct need {
    uint64_t bytes;
    uint64_t extents;
};

static int count_need(void *context, const struct store_place *place, uint64_t bytes,
                      unsigned generations)
{
    struct need *need = context;
    (void)place;
    need->bytes += generations * core_round_up(bytes, PLAN_EXTENT_BYTES);
    need->extents += generations;
    return 0;
}

static uint64_t path_limit(const struct store_path *path)
{
    const uint64_t bytes = path->bytes > 0 ? path->bytes : STORE_UNLIMITED_BYTES;
    return bytes / PLAN_EXTENT_BYTES * PLAN_EXTENT_BYTES;
}

/* Bytes of one of several paths that extents can surely use: a rest of less than a MiB may stay
 * unused. */
static uint64_t path_room(const struct store_path *path)
{
    const uint64_t limit = path_limit(path);
    return limit > AIO_SUM_BYTES ? limit - AIO_SUM_BYTES : 0;
}

uint64_t store_capacity(const struct store_path *paths, unsigned count)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < count; i++) {
        const uint64_t limit = count > 1 ? path_room(&paths[i]) : path_limit(&paths[i]);
        bytes = limit > UINT64_MAX - bytes ? UINT64_MAX : bytes + limit;
    }
    return bytes;
}

/* Distributes by speed. If a share reaches its path's limit, other paths take the excess. */
static void share_by_weight(const struct store_path *paths, unsigned count, uint64_t bytes,
                            uint64_t shares[STORE_PATHS_MAX])
{
    enum { SPARE_EXTENTS = 16 }; /* reserve for shares that are not whole extents */
    bool full[STORE_PATHS_MAX] = {false};
    for (bool again = true; again;) {
        uint64_t left = bytes;
        double sum = 0;
        again = false;
        for (unsigned i = 0; i < count; i++) {
            const uint64_t taken = full[i] ? shares[i] : 0;
            left -= taken < left ? taken : left;
            sum += full[i] ? 0 : paths[i].weight;
        }
        for (unsigned i = 0; i < count; i++) {
            if (full[i]) {
                continue;
            }
            const uint64_t limit = path_limit(&paths[i]);
            const uint64_t share = core_round_up((uint64_t)((double)left * (paths[i].weight / sum)),
                                                 AIO_EXTENT_ALIGN_BYTES);
            full[i] = share >= limit;
            again = again || share > limit;
            shares[i] = share + SPARE_EXTENTS * AIO_EXTENT_ALIGN_BYTES;
            shares[i] = full[i] || shares[i] > limit ? limit : shares[i];
        }
    }
}

int store_share(const struct store_path *paths, unsigned count, uint64_t bytes,
                uint64_t shares[STORE_PATHS_MAX])
{
    const uint64_t capacity = store_capacity(paths, count);
    bool known = count > 1;
    if (bytes > capacity) {
        return core_err_set(-ENOSPC,
                            "the store is full: %" PRIu64
                            " bytes are needed; the limits of its %u path%s allow %" PRIu64,
                            bytes, count, count == 1 ? "" : "s", capacity);
    }
    for (unsigned i = 0; i < count; i++) {
        const uint64_t limit = path_limit(&paths[i]);
        shares[i] = bytes < limit ? bytes : limit;
        known = known && paths[i].weight > 0;
    }
    if (known) {
        share_by_weight(paths, count, bytes, shares);
    }
    for (unsigned i = 0; i < count; i++) { /* every path needs a file */
        shares[i] = shares[i] > 0 ? shares[i] : AIO_EXTENT_ALIGN_BYTES;
    }
    return 0;
}

static int open_extents(struct store *store, const struct store_options *options,
                        const struct need *need)
{
    struct aio_store_path paths[STORE_PATHS_MAX];
    uint64_t shares[STORE_PATHS_MAX];
    int rc = store_share(options->paths, options->path_count, need->bytes, shares);
    for (unsigned i = 0; rc == 0 && i < options->path_count; i++) {
        rc = place_path(store, options, i, shares[i], &paths[i]);
    }
    if (rc != 0) {
        return rc;
    }
    const struct aio_store_options extents = {
        .paths = paths,
        .paths_count = options->path_count,
        .run = options->run,
        .backend = options->backend,
        .align_bytes = PLAN_EXTENT_BYTES,
        .unwritten = true,
        .drive = {.limit_ns = options->limit_ns},
        .progress = options->progress,
        .user = options->user,
    };
    return aio_store_open(&extents, &store->extents);
}

/* ---- extents ---- */

static int make_rows(struct store *store, const struct plan_input *input, const struct plan *plan)
{
    store->block_count = input->block_count;
    for (int kind = 0; kind < STORE_KIND_COUNT; kind++) {
        store->rows[kind] = calloc(input->block_count, sizeof *store->rows[kind]);
        for (uint32_t b = 0; store->rows[kind] != NULL && b < input->block_count; b++) {
            struct store_row *row = &store->rows[kind][b];
            const uint32_t count = row_count(input, plan, (enum store_kind)kind, b);
            row->chunks = calloc(count > 0 ? count : 1, sizeof *row->chunks);
            row->count = row->chunks != NULL ? count : 0;
            if (row->chunks == NULL) {
                return core_err_set(-ENOMEM, "no memory for the extents of %u blocks",
                                    input->block_count);
            }
        }
        if (store->rows[kind] == NULL) {
            return core_err_set(-ENOMEM, "no memory for the extents of %u blocks",
                                input->block_count);
        }
    }
    return 0;
}

static int make_extents(void *context, const struct store_place *place, uint64_t bytes,
                        unsigned generations)
{
    struct store *store = context;
    struct store_row *row = &store->rows[place->kind][place->block];
    const bool paged = place->kind == STORE_WEIGHTS && store->layout->blocks[place->block].by_pages;
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < generations; i++) {
        struct aio_extent **extent = &row->chunks[place->index].extents[i];
        rc = paged ? aio_extent_alloc_paged(store->extents, bytes, ++store->next_owner, extent)
                   : aio_extent_alloc(store->extents, bytes, ++store->next_owner, extent);
    }
    return rc;
}

int store_open(const struct store_options *options, const struct plan_input *input,
               const struct plan *plan, struct store **out)
{
    struct need need = {0};
    struct store *store = calloc(1, sizeof *store);
    if (store == NULL) {
        return core_err_set(-ENOMEM, "no memory for a store");
    }
    store->layout = plan_layout_of(plan);
    (void)for_each(input, plan, count_need, &need);
    int rc = make_rows(store, input, plan);
    if (rc != 0) {
        goto fail;
    }
    rc = open_extents(store, options, &need);
    if (rc != 0) {
        goto fail;
    }
    rc = for_each(input, plan, make_extents, store);
    if (rc != 0) {
        goto fail;
    }
    *out = store;
    return 0;

fail:;
    const struct core_err kept = core_err_keep(rc);
    return core_err_first(&kept, store_close(store));
}

/* No request may use the files any more. */
static void close_adopted(struct store *store)
{
    struct store_adopting *adopting = &store->adopting;
    for (int s = 0; adopting->open && s < STORE_STREAM_COUNT; s++) {
        if (adopting->fds[s] >= 0) {
            close(adopting->fds[s]);
        }
    }
    adopting->open = false;
}

int store_close(struct store *store)
{
    if (store == NULL) {
        return 0;
    }
    /* Closes drives first, because late completions of a stalled drive still use the extents'
     * checksums. */
    int rc = aio_store_close(store->extents);
    for (int kind = 0; kind < STORE_KIND_COUNT; kind++) {
        for (uint32_t b = 0; store->rows[kind] != NULL && b < store->block_count; b++) {
            struct store_row *row = &store->rows[kind][b];
            for (uint32_t i = 0; i < row->count; i++) {
                for (unsigned g = 0; g < STORE_GENERATIONS_MAX; g++) {
                    aio_extent_free(NULL, row->chunks[i].extents[g]);
                }
                aio_extent_free(NULL, row->chunks[i].adopted);
            }
            free(row->chunks);
        }
        free(store->rows[kind]);
    }
    close_adopted(store);
    for (unsigned i = 0; i < store->place_count; i++) {
        const struct store_directory *place = &store->places[i];
        aio_mem_destroy(place->disk);
        if (place->directory[0] != '\0') {
            (void)rmdir(place->directory); /* a dead run's folder, taken over and now empty */
        }
        if (place->parent[0] != '\0') {
            (void)rmdir(place->parent); /* stays if others have put files there */
        }
    }
    free(store);
    return rc;
}

/* Returns NULL, with a message, if the plan does not keep the chunk in STORE. */
static struct store_chunk *find_chunk(const struct store *store, const struct store_place *place)
{
    const struct store_row *row = &store->rows[place->kind][place->block];
    struct store_chunk *chunk = place->index < row->count ? &row->chunks[place->index] : NULL;
    if (chunk == NULL || chunk->extents[0] == NULL) {
        (void)core_err_set(-ENOENT, "block %u has no data of kind %u and index %u in the store",
                           place->block, (unsigned)place->kind, place->index);
        return NULL;
    }
    return chunk;
}

/* A position among weights and states; zero: the beginning. */
struct store_cursor {
    uint32_t kind, block, index;
};

/* Includes chunks that are not in STORE. Returns NULL after the last. */
static struct store_chunk *next_chunk(const struct store *store, struct store_cursor *cursor)
{
    for (; cursor->kind <= STORE_STATES; cursor->kind++, cursor->block = 0) {
        for (; cursor->block < store->block_count; cursor->block++, cursor->index = 0) {
            const struct store_row *row = &store->rows[cursor->kind][cursor->block];
            if (cursor->index < row->count) {
                return &row->chunks[cursor->index++];
            }
        }
    }
    return NULL;
}

int store_register(struct store *store, const struct iovec *memory, unsigned count)
{
    return aio_store_register(store->extents, memory, count);
}

int store_queue_open(struct store *store, const struct aio_queue_options *options,
                     struct aio_queue **out)
{
    return aio_store_queue(store->extents, options, out);
}

/* ---- moving ---- */

int store_read(struct store *store, struct aio_queue *queue, const struct store_place *place,
               void *memory, struct core_fence *out)
{
    struct store_chunk *chunk = find_chunk(store, place);
    if (chunk == NULL) {
        return -ENOENT;
    }
    const struct aio_extent *extent = store_chunk_current(chunk);
    return aio_store_read(queue, extent, 0, memory, aio_extent_bytes(extent), out);
}

/* Returns the extent where the range begins, and reduces the range to whole pages of that extent.
 * NULL, with a message: not in STORE. */
static struct aio_extent *find_pages(const struct store *store, uint32_t block, uint64_t *offset,
                                     uint64_t *bytes)
{
    struct store_place place = {.kind = STORE_WEIGHTS, .block = block};
    struct store_chunk *chunk = find_chunk(store, &place);
    if (chunk == NULL) {
        return NULL;
    }
    const uint64_t each = aio_extent_bytes(chunk->extents[0]);
    place.index = (uint32_t)(*offset / each);
    chunk = find_chunk(store, &place);
    if (chunk == NULL) {
        return NULL;
    }
    struct aio_extent *extent = store_chunk_current(chunk);
    const uint64_t within = *offset % each;
    const uint64_t left = aio_extent_bytes(extent) - within;
    *bytes = core_round_up(*bytes < left ? *bytes : left, AIO_ALIGN_BYTES);
    *offset = within;
    return extent;
}

int store_read_pages(struct store *store, struct aio_queue *queue, uint32_t block, uint64_t offset,
                     void *memory, uint64_t bytes, uint64_t *moved, struct core_fence *out)
{
    uint64_t part = bytes;
    const struct aio_extent *extent = find_pages(store, block, &offset, &part);
    if (extent == NULL) {
        return -ENOENT;
    }
    int rc = aio_store_read(queue, extent, offset, memory, part, out);
    if (rc == 0) {
        *moved = part < bytes ? part : bytes;
    }
    return rc;
}

int store_write_pages(struct store *store, struct aio_queue *queue, uint32_t block, uint64_t offset,
                      const void *memory, uint64_t bytes, uint64_t *moved, struct core_fence *out)
{
    uint64_t part = bytes;
    struct aio_extent *extent = find_pages(store, block, &offset, &part);
    if (extent == NULL) {
        return -ENOENT;
    }
    int rc = aio_store_write(queue, extent, offset, memory, part, out);
    if (rc == 0) {
        *moved = part < bytes ? part : bytes;
    }
    return rc;
}

static int write_next(struct store_chunk *chunk, struct aio_queue *queue, const void *memory,
                      bool ahead, struct core_fence *out)
{
    struct aio_extent *extent = store_chunk_next(chunk);
    int rc = aio_store_write(queue, extent, 0, memory, aio_extent_bytes(extent), out);
    if (rc == 0) {
        store_chunk_wrote(chunk, *out, ahead);
    }
    return rc;
}

int store_write(struct store *store, struct aio_queue *queue, const struct store_place *place,
                const void *memory, struct core_fence *out)
{
    struct store_chunk *chunk = find_chunk(store, place);
    return chunk == NULL ? -ENOENT : write_next(chunk, queue, memory, false, out);
}

int store_write_ahead(struct store *store, struct aio_queue *queue, const struct store_place *place,
                      const void *memory, struct core_fence *out)
{
    struct store_chunk *chunk = find_chunk(store, place);
    int rc = chunk == NULL ? -ENOENT : write_next(chunk, queue, memory, true, out);
    if (rc == 0 && store->ahead_written++ < store->ahead_decided) {
        store_chunk_decide(chunk, store->stands);
    }
    return rc;
}

void store_decide(struct store *store, uint64_t count, bool stands)
{
    store->ahead_decided += count;
    store->stands = stands;
    struct store_cursor cursor = {0};
    for (struct store_chunk *chunk; (chunk = next_chunk(store, &cursor)) != NULL;) {
        store_chunk_decide(chunk, stands);
    }
}

/* ---- the files of an adopted checkpoint ---- */

/* A file on the file system of the only path is read as fast as the store. */
static bool is_beside(const struct store *store, int fd)
{
    struct stat mine;
    struct stat theirs;
    const char *directory = store->places[0].directory;
    return store->place_count == 1 && directory[0] != '\0' && stat(directory, &mine) == 0 &&
           fstat(fd, &theirs) == 0 && mine.st_dev == theirs.st_dev;
}

static int take_file(struct store *store, const struct store_checkpoint *checkpoint,
                     enum store_stream stream)
{
    struct store_adopting *adopting = &store->adopting;
    char name[STORE_PATH_BYTES + 40];
    snprintf(name, sizeof name, "%s/%s.safetensors", store_checkpoint_path(checkpoint),
             store_stream_name(stream));
    const int fd = fcntl(store_checkpoint_direct_file(checkpoint, stream), F_DUPFD_CLOEXEC, 0);
    if (fd < 0) {
        const int error = errno;
        return core_err_set(-error, "%s cannot be kept open: %s", name, strerror(error));
    }
    const struct aio_file file = {
        .fd = fd,
        .name = name,
        .size_bytes = store_image_file_bytes(store_checkpoint_image(checkpoint), stream),
        .direct = true};
    int rc = aio_drive_attach(aio_store_drive(store->extents, 0), &file, &adopting->files[stream]);
    if (rc != 0) {
        close(fd);
        return rc;
    }
    adopting->fds[stream] = fd;
    return 0;
}

int store_adopt_begin(struct store *store, const struct store_checkpoint *checkpoint)
{
    struct store_adopting *adopting = &store->adopting;
    int rc = 0;
    if (adopting->open) {
        return core_err_set(-EBUSY, "a store can adopt only one checkpoint");
    }
    adopting->open = true;
    for (int s = 0; s < STORE_STREAM_COUNT; s++) {
        const int fd = store_checkpoint_direct_file(checkpoint, (enum store_stream)s);
        adopting->fds[s] = -1;
        if (rc == 0 && fd >= 0 && is_beside(store, fd)) {
            rc = take_file(store, checkpoint, (enum store_stream)s);
        }
    }
    return rc;
}

/* ---- adopted chunks ---- */

/* `streams`: streams of the kind in the order of an extent, then STORE_STREAM_COUNT. */
static void streams_of(enum store_kind kind, enum store_stream streams[3])
{
    const bool states = kind == STORE_STATES;
    streams[0] = states ? STORE_STREAM_MASTER : STORE_STREAM_WEIGHTS;
    streams[1] = states ? STORE_STREAM_M : STORE_STREAM_COUNT;
    streams[2] = states ? STORE_STREAM_V : STORE_STREAM_COUNT;
}

static uint64_t element_bytes(const struct plan_format *format, enum store_stream stream)
{
    switch (stream) {
    case STORE_STREAM_WEIGHTS: return format->weight_bytes;
    case STORE_STREAM_MASTER: return format->master_bytes;
    case STORE_STREAM_M: return format->m_bytes;
    case STORE_STREAM_V: return format->v_bytes;
    case STORE_STREAM_M_SCALES:
    case STORE_STREAM_V_SCALES:
    case STORE_STREAM_COUNT: break;
    }
    return 0;
}

/* Returns the number of parts; 0 if a file was not taken over, states have 8-bit moments, or a part
 * is no multiple of AIO_SUM_BYTES. */
static unsigned parts_of(const struct store *store, const struct store_place *place,
                         const struct store_image *image, struct plan_span span,
                         struct aio_extent_part parts[3])
{
    enum store_stream streams[3];
    unsigned count = 0;
    streams_of(place->kind, streams);
    if (place->kind == STORE_STATES && image->format.q8_block > 0) {
        return 0;
    }
    for (int i = 0; i < 3; i++) {
        const uint64_t bytes = span.count * element_bytes(&image->format, streams[i]);
        if (bytes == 0) {
            continue;
        }
        if (store->adopting.fds[streams[i]] < 0 || bytes % AIO_SUM_BYTES != 0) {
            return 0;
        }
        parts[count++] = (struct aio_extent_part){
            .file = store->adopting.files[streams[i]],
            .offset = store_image_cut(image, streams[i], place->block,
                                      span.first / PLAN_CUT_ELEMENTS)
                          .offset,
            .bytes = bytes};
    }
    return count;
}

int store_adopt(struct store *store, const struct store_place *place,
                const struct store_checkpoint *checkpoint, struct plan_span span,
                const void *memory)
{
    struct aio_extent_part parts[3];
    struct store_chunk *chunk = find_chunk(store, place);
    if (chunk == NULL) {
        return -ENOENT;
    }
    const unsigned count = store->adopting.open
                               ? parts_of(store, place, store_checkpoint_image(checkpoint), span,
                                          parts)
                               : 0;
    if (count == 0) {
        return 0;
    }
    struct aio_extent *extent = NULL;
    int rc = aio_extent_adopt(store->extents, parts, count, ++store->next_owner, &extent);
    if (rc != 0) {
        return rc;
    }
    const char *at = memory;
    const uint64_t bytes = aio_extent_bytes(extent);
    assert(bytes == aio_extent_bytes(chunk->extents[0]));
    for (uint64_t i = 0; i < bytes / AIO_SUM_BYTES; i++) {
        aio_extent_hashed(
            extent, i,
            core_hash(at + i * AIO_SUM_BYTES, AIO_SUM_BYTES, aio_extent_seed(extent, i)));
    }
    chunk->adopted = extent;
    chunk->borrows = true;
    return 1;
}

uint64_t store_adopted_bytes(struct store *store)
{
    uint64_t bytes = 0;
    struct store_cursor cursor = {0};
    for (struct store_chunk *chunk; (chunk = next_chunk(store, &cursor)) != NULL;) {
        const bool there = chunk->adopted != NULL && !chunk->of_base &&
                           store_chunk_current(chunk) == chunk->adopted;
        bytes += there ? aio_extent_bytes(chunk->adopted) : 0;
    }
    return bytes;
}

int store_adopt_release(struct store *store)
{
    int rc = 0;
    if (store == NULL || !store->adopting.open || store_adopted_bytes(store) > 0) {
        return 0;
    }
    struct store_cursor cursor = {0};
    for (struct store_chunk *chunk; (chunk = next_chunk(store, &cursor)) != NULL;) {
        if (!chunk->of_base) {
            aio_extent_free(store->extents, chunk->adopted);
            chunk->adopted = NULL;
        }
    }
    for (int s = 0; s < STORE_STREAM_COUNT; s++) {
        if (store->adopting.fds[s] >= 0) {
            const int detached = aio_drive_detach(aio_store_drive(store->extents, 0),
                                                  store->adopting.files[s]);
            if (rc == 0) {
                rc = detached;
            }
        }
    }
    close_adopted(store);
    return rc;
}

/* ---- a kept base ---- */

int store_base_begin(struct store *store, const struct store_base *base)
{
    const struct aio_file file = {
        .fd = base->fd, .name = base->name, .size_bytes = base->bytes, .direct = true};
    if (!is_beside(store, base->fd)) {
        return 0;
    }
    const int rc = aio_drive_attach(aio_store_drive(store->extents, 0), &file, &store->base_file);
    return rc == 0 ? 1 : rc;
}

int store_base_adopt(struct store *store, const struct store_place *place,
                     const struct store_base_part *part)
{
    const struct aio_extent_part where = {store->base_file, part->offset, part->bytes};
    struct store_chunk *chunk = find_chunk(store, place);
    if (chunk == NULL) {
        return -ENOENT;
    }
    assert(part->bytes == aio_extent_bytes(chunk->extents[0]) && chunk->adopted == NULL);
    int rc = aio_extent_adopt_known(store->extents, &where, &part->sums, &chunk->adopted);
    chunk->of_base = chunk->borrows = rc == 0;
    return rc;
}

/* ---- counters ---- */

void store_stats_take(struct store *store, struct store_stats *out)
{
    struct store_stats sum = {0};
    for (unsigned i = 0; i < aio_store_paths(store->extents); i++) {
        struct aio_drive_stats one;
        aio_drive_stats(aio_store_drive(store->extents, i), &one);
        sum.read_bytes += one.read_bytes;
        sum.write_bytes += one.write_bytes;
        sum.paths[i] = (struct store_moved){one.read_bytes, one.write_bytes};
    }
    *out = sum;
}
