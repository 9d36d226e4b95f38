/* checkpoint_write.c: writes a checkpoint under a temporary name, reads it back, publishes it. */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/hash.h"
#include "offload/model/claim.h"
#include "offload/model/publish.h"
#include "offload/model/save_folder.h"
#include "offload/plan/shard.h"
#include "offload/store/checkpoint.h"
#include "offload/store/checkpoint_files.h"
#include "offload/store/checkpoint_remove.h"
#include "offload/store/spare.h"

struct store_checkpoint_write {
    struct store_checkpoint_options given;
    struct store_manifest manifest;
    struct store_image image;
    struct store_flow *flow; /* owned */
    char folder[4096];       /* final name; after join: the folder that was joined */
    /* claim on the temporary folder; path NULL: before creation, after publishing, after join */
    struct model_claim own;
    uint64_t cuts; /* cuts with known checksums */
    /* owned: cuts with known checksums; OWN: this process reads them back */
    struct store_marks marks;
};

/* ---- beginning a checkpoint ---- */

static void take_spare(struct store_checkpoint_write *checkpoint)
{
    char text[sizeof checkpoint->folder + 64];
    const char *spare = store_shelf_spare(checkpoint->given.shelf, text, sizeof text);
    if (spare != NULL) {
        store_spare_take(spare, &checkpoint->image, checkpoint->own.fd);
        store_shelf_spare_drop(checkpoint->given.shelf);
    }
}

static bool has(const char *folder, const char *name)
{
    char path[4096 + 264]; /* a name has up to 255 bytes */
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

/* Other programs name checkpoint folders alike; their files are not replaced. */
static bool is_ours(const char *folder)
{
    return has(folder, STORE_SUMS_NAME) || store_checkpoint_is_ours(folder);
}

static int refuse_file(const char *folder, const char *name)
{
    return core_err_set(-EEXIST,
                        "%s/%s was not written by tide and would be replaced; move it away or name "
                        "another folder",
                        folder, name);
}

/* Refuses another program's folder if its files would be replaced. `path` is the temporary folder
 * with the model's small files. */
static int check_replaced(const char *folder, const char *path)
{
    static const char *const names[] = {"config.json", MODEL_MANIFEST_NAME};
    int rc = 0;
    if (is_ours(folder)) {
        return 0;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (has(folder, names[i])) {
            return refuse_file(folder, names[i]);
        }
    }
    DIR *dir = opendir(path);
    if (dir == NULL) {
        return core_err_set(-errno, "%s cannot be read: %s", path, strerror(errno));
    }
    for (const struct dirent *entry; rc == 0 && (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] != '.' && has(folder, entry->d_name)) {
            rc = refuse_file(folder, entry->d_name);
        }
    }
    closedir(dir);
    return rc;
}

static int make_marks(struct store_checkpoint_write *checkpoint)
{
    for (int s = 0; s < STORE_STREAM_COUNT; s++) {
        const uint64_t cuts = store_image_cuts(&checkpoint->image, (enum store_stream)s);
        checkpoint->marks.at[s] = cuts > 0 ? calloc(cuts, 1) : NULL;
        if (cuts > 0 && checkpoint->marks.at[s] == NULL) {
            return core_err_set(-ENOMEM, "no memory for a checkpoint");
        }
    }
    return 0;
}

static int open_flow(struct store_checkpoint_write *checkpoint, const char *name, bool joins)
{
    const struct store_checkpoint_options *given = &checkpoint->given;
    const struct store_flow_options flow = {.image = &checkpoint->image,
                                            .folder = checkpoint->own.fd,
                                            .name = name,
                                            .writes = true,
                                            .joins = joins,
                                            .partial = checkpoint->manifest.part.ranks != 0,
                                            .backend = given->backend,
                                            .recipe = given->recipe,
                                            .limit_ns = given->limit_ns};
    return store_flow_open(&flow, &checkpoint->flow);
}

static int make_image(struct store_checkpoint_write *checkpoint)
{
    const struct store_manifest *manifest = &checkpoint->manifest;
    int rc = store_image_init(&checkpoint->image, &manifest->format, manifest->weight_dtype,
                              manifest->blocks);
    return rc != 0 ? rc : make_marks(checkpoint);
}

static int begin(struct store_checkpoint_write *checkpoint)
{
    const struct store_checkpoint_options *given = &checkpoint->given;
    const struct store_manifest *manifest = &checkpoint->manifest;
    store_shelf_path(store_shelf_directory(given->shelf), manifest->step, checkpoint->folder,
                     sizeof checkpoint->folder);
    int rc = make_image(checkpoint);
    if (rc != 0) {
        return rc;
    }
    rc = model_folder_begin(checkpoint->folder, true, NULL, &checkpoint->own);
    if (rc != 0) {
        return rc;
    }
    if (given->source != NULL) {
        const struct model_folder folder = {checkpoint->own.path, checkpoint->own.fd};
        rc = model_folder_copy(&folder, given->source, given->config,
                               model_dtype_from_name(manifest->weight_dtype));
        if (rc != 0) {
            return rc;
        }
    }
    rc = check_replaced(checkpoint->folder, checkpoint->own.path);
    if (rc != 0) {
        return rc;
    }
    take_spare(checkpoint);
    return open_flow(checkpoint, checkpoint->own.path, false);
}

static int join(struct store_checkpoint_write *checkpoint)
{
    int rc = make_image(checkpoint);
    if (rc != 0) {
        return rc;
    }
    checkpoint->own.fd = open(checkpoint->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (checkpoint->own.fd < 0) {
        return core_err_set(-errno,
                            "%s, which the first process has made, cannot be opened: %s; all "
                            "processes have to see the folder of the checkpoints",
                            checkpoint->folder, strerror(errno));
    }
    return open_flow(checkpoint, checkpoint->folder, true);
}

/* `joined`: folder of another process; NULL: creates a folder. */
static int create(const struct store_checkpoint_options *options, const char *joined,
                  struct store_manifest *manifest, struct store_checkpoint_write **out)
{
    struct store_checkpoint_write *checkpoint = calloc(1, sizeof *checkpoint);
    if (checkpoint == NULL) {
        store_manifest_fini(manifest);
        return core_err_set(-ENOMEM, "no memory for a checkpoint");
    }
    checkpoint->given = *options;
    checkpoint->manifest = *manifest;
    *manifest = (struct store_manifest){.step = 0};
    checkpoint->own.fd = -1;
    snprintf(checkpoint->folder, sizeof checkpoint->folder, "%s", joined != NULL ? joined : "");
    int rc = joined != NULL ? join(checkpoint) : begin(checkpoint);
    if (rc != 0) {
        const struct core_err kept = core_err_keep(rc);
        return core_err_first(&kept, store_checkpoint_end(checkpoint));
    }
    *out = checkpoint;
    return 0;
}

int store_checkpoint_begin(const struct store_checkpoint_options *options,
                           struct store_manifest *manifest, struct store_checkpoint_write **out)
{
    return create(options, NULL, manifest, out);
}

int store_checkpoint_join(const struct store_checkpoint_options *options, const char *folder,
                          struct store_manifest *manifest, struct store_checkpoint_write **out)
{
    return create(options, folder, manifest, out);
}

const char *store_checkpoint_folder(const struct store_checkpoint_write *checkpoint)
{
    return checkpoint->own.path;
}

/* ---- putting ---- */

/* Counts each cut once, and marks the first `own` cuts to be read back. */
static void note_cuts(struct store_checkpoint_write *checkpoint, enum store_stream stream,
                      uint32_t block, struct plan_span span, uint64_t own)
{
    const uint64_t cuts = (span.count + PLAN_CUT_ELEMENTS - 1) / PLAN_CUT_ELEMENTS;
    unsigned char *marks = checkpoint->marks.at[stream] +
                           checkpoint->image.first_cuts[stream][block] +
                           span.first / PLAN_CUT_ELEMENTS;
    for (uint64_t c = 0; c < cuts; c++) {
        checkpoint->cuts += marks[c] == 0;
        marks[c] |= c < own ? STORE_MARK_OWN : STORE_MARK_OTHER;
    }
}

int store_checkpoint_put_begin(struct store_checkpoint_write *checkpoint, uint32_t block,
                               uint64_t first, uint64_t count, const struct store_arrays *arrays)
{
    for (int s = 0; s < STORE_STREAM_COUNT; s++) {
        const bool has = store_image_bytes(&checkpoint->image, (enum store_stream)s, block) > 0;
        if (has && arrays->at[s] != NULL) {
            note_cuts(checkpoint, (enum store_stream)s, block, (struct plan_span){first, count},
                      UINT64_MAX);
        }
    }
    return store_flow_begin(checkpoint->flow, block, first, count, arrays);
}

uint64_t store_checkpoint_put_tail(const struct store_checkpoint_write *checkpoint)
{
    return store_flow_tail(checkpoint->flow);
}

int store_checkpoint_put_wait(struct store_checkpoint_write *checkpoint, uint64_t point)
{
    return store_flow_wait(checkpoint->flow, point);
}

int store_checkpoint_put(struct store_checkpoint_write *checkpoint, uint32_t block, uint64_t first,
                         uint64_t count, const struct store_arrays *arrays)
{
    int rc = store_checkpoint_put_begin(checkpoint, block, first, count, arrays);
    return rc == 0 ? store_flow_wait(checkpoint->flow, store_flow_tail(checkpoint->flow)) : rc;
}

const struct store_image *
store_checkpoint_write_image(const struct store_checkpoint_write *checkpoint)
{
    return &checkpoint->image;
}

struct store_arrays store_checkpoint_sums(const struct store_checkpoint_write *checkpoint,
                                          uint32_t block, uint64_t first)
{
    struct store_arrays sums = {{NULL}};
    for (int s = 0; s < STORE_STREAM_COUNT; s++) {
        if (store_image_bytes(&checkpoint->image, (enum store_stream)s, block) > 0) {
            sums.at[s] = (char *)(store_flow_sums(checkpoint->flow, (enum store_stream)s) +
                                  checkpoint->image.first_cuts[s][block] +
                                  first / PLAN_CUT_ELEMENTS);
        }
    }
    return sums;
}

/* Reading back the first cut (`here`) detects equal paths to different folders. */
void store_checkpoint_merge(struct store_checkpoint_write *checkpoint, uint32_t block,
                            uint64_t first, uint64_t count, const struct store_arrays *sums,
                            bool here)
{
    const struct store_arrays own = store_checkpoint_sums(checkpoint, block, first);
    const uint64_t cuts = (count + PLAN_CUT_ELEMENTS - 1) / PLAN_CUT_ELEMENTS;
    for (int s = 0; s < STORE_STREAM_COUNT; s++) {
        if (own.at[s] != NULL && sums->at[s] != NULL) {
            memcpy(own.at[s], sums->at[s], cuts * sizeof(uint64_t));
            note_cuts(checkpoint, (enum store_stream)s, block, (struct plan_span){first, count},
                      here);
        }
    }
}

void store_checkpoint_set_sums(struct store_checkpoint_write *checkpoint, uint32_t block,
                               const struct store_arrays *sums)
{
    const struct store_arrays own = store_checkpoint_sums(checkpoint, block, 0);
    for (int s = 0; s < STORE_STREAM_COUNT; s++) {
        const uint64_t *first = checkpoint->image.first_cuts[s];
        if (own.at[s] != NULL && sums->at[s] != NULL) {
            memcpy(own.at[s], sums->at[s], (first[block + 1] - first[block]) * sizeof(uint64_t));
            note_cuts(checkpoint, (enum store_stream)s, block,
                      (struct plan_span){0, checkpoint->image.blocks->list[block].elements}, 0);
        }
    }
}

int store_checkpoint_seal(struct store_checkpoint_write *checkpoint)
{
    int rc = store_flow_sync(checkpoint->flow);
    if (rc != 0) {
        return rc;
    }
    store_flow_turn(checkpoint->flow);
    for (uint32_t b = 0; rc == 0 && b < checkpoint->image.blocks->count; b++) {
        rc = store_flow_check(checkpoint->flow, b, &checkpoint->marks);
    }
    return rc;
}

void store_checkpoint_tell(struct store_checkpoint_write *checkpoint,
                           struct store_manifest *manifest)
{
    struct store_manifest *mine = &checkpoint->manifest;
    assert(manifest->step == mine->step);
    void *application = mine->application;
    mine->updates = manifest->updates;
    mine->scale = manifest->scale;
    mine->application = manifest->application;
    mine->application_bytes = manifest->application_bytes;
    manifest->application = application;
    store_manifest_fini(manifest);
}

/* ---- finishing a checkpoint ---- */

static int write_sums(struct store_checkpoint_write *checkpoint)
{
    uint64_t *sums[STORE_STREAM_COUNT];
    char *text = NULL;
    size_t bytes = 0;
    for (int s = 0; s < STORE_STREAM_COUNT; s++) {
        sums[s] = store_flow_sums(checkpoint->flow, (enum store_stream)s);
    }
    int rc = store_sums_print(&checkpoint->image, sums, &text, &bytes);
    if (rc == 0) {
        const struct model_folder folder = {checkpoint->own.path, checkpoint->own.fd};
        struct store_file *file = &checkpoint->manifest.sums;
        rc = model_folder_write(&folder, STORE_SUMS_NAME, text, bytes);
        snprintf(file->name, sizeof file->name, "%s", STORE_SUMS_NAME);
        file->bytes = bytes;
        file->hash = core_hash(text, bytes, 0);
    }
    free(text);
    return rc;
}

static bool is_listed(const struct store_checkpoint_write *checkpoint, const char *name)
{
    struct stat info;
    char stream[32];
    bool known = strcmp(name, STORE_SUMS_NAME) == 0 || strcmp(name, MODEL_MANIFEST_NAME) == 0;
    for (int s = 0; s < STORE_STREAM_COUNT; s++) {
        snprintf(stream, sizeof stream, "%s.safetensors", store_stream_name((enum store_stream)s));
        known = known || strcmp(name, stream) == 0;
    }
    return !known && name[0] != '.' &&
           fstatat(checkpoint->own.fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISREG(info.st_mode);
}

static int add_file(struct store_checkpoint_write *checkpoint, const char *name)
{
    struct store_manifest *manifest = &checkpoint->manifest;
    if (manifest->file_count == STORE_FILES_MAX) {
        return core_err_set(-E2BIG, "%s has more than %d files besides its weights",
                            checkpoint->given.source, STORE_FILES_MAX);
    }
    struct store_file *wider = realloc(manifest->files, (manifest->file_count + 1) * sizeof *wider);
    if (wider == NULL) {
        return core_err_set(-ENOMEM, "no memory for the names of %" PRIu32 " files",
                            manifest->file_count + 1);
    }
    manifest->files = wider;
    struct store_file *file = &wider[manifest->file_count++];
    *file = (struct store_file){.bytes = 0};
    snprintf(file->name, sizeof file->name, "%s", name);
    return store_file_look(checkpoint->own.fd, checkpoint->own.path, file);
}

static int list_files(struct store_checkpoint_write *checkpoint)
{
    DIR *dir = opendir(checkpoint->own.path);
    if (dir == NULL) {
        const int error = errno;
        return core_err_set(-error, "%s cannot be read: %s", checkpoint->own.path, strerror(error));
    }
    int rc = 0;
    for (struct dirent *entry; rc == 0 && (entry = readdir(dir)) != NULL;) {
        rc = is_listed(checkpoint, entry->d_name) ? add_file(checkpoint, entry->d_name) : 0;
    }
    closedir(dir);
    return rc;
}

static int write_manifest(struct store_checkpoint_write *checkpoint)
{
    char *text = NULL;
    size_t bytes = 0;
    int rc = store_manifest_print(&checkpoint->manifest, &text, &bytes);
    if (rc == 0) {
        const struct model_folder folder = {checkpoint->own.path, checkpoint->own.fd};
        rc = model_folder_write(&folder, MODEL_MANIFEST_NAME, text, bytes);
    }
    free(text);
    return rc;
}

/* Opens the checkpoint as a resuming run would. */
static int verify(struct store_checkpoint_write *checkpoint)
{
    struct store_checkpoint *back = NULL;
    int rc = store_checkpoint_open(checkpoint->own.path, checkpoint->given.backend,
                                   checkpoint->given.recipe, &back);
    if (rc == 0) {
        const struct store_manifest *found = store_checkpoint_manifest(back);
        if (found->step != checkpoint->manifest.step ||
            found->sums.hash != checkpoint->manifest.sums.hash) {
            rc = core_err_set(-EBADMSG, "%s was read back, and it describes another checkpoint",
                              checkpoint->own.path);
        }
    }
    if (rc == 0) {
        rc = store_checkpoint_verify(back, &checkpoint->marks, NULL, NULL);
    }
    const int closed = store_checkpoint_close(back);
    return rc == 0 ? closed : rc;
}

int store_checkpoint_publish(struct store_checkpoint_write *checkpoint)
{
    int rc = model_folder_publish(checkpoint->own.path, checkpoint->own.fd, checkpoint->folder,
                                  true);
    if (rc == 0) {
        free(checkpoint->own.path);
        checkpoint->own.path = NULL;
    }
    return rc;
}

void store_checkpoint_rotate(struct store_checkpoint_write *checkpoint)
{
    store_shelf_rotate(checkpoint->given.shelf, checkpoint->manifest.step, checkpoint->given.keep);
}

/* Only the first process knows the cuts of all machines; a part without rank 0 is not checked. */
static int check_cuts(const struct store_checkpoint_write *checkpoint)
{
    const uint64_t cuts = store_image_cuts_all(&checkpoint->image);
    const uint64_t ranks = checkpoint->manifest.part.ranks;
    return checkpoint->cuts == cuts || (ranks != 0 && (ranks & 1) == 0)
               ? 0
               : core_err_set(-EINVAL, "%s: %" PRIu64 " of %" PRIu64 " cuts were written",
                              checkpoint->folder, checkpoint->cuts, cuts);
}

int store_checkpoint_complete(struct store_checkpoint_write *checkpoint)
{
    int rc = check_cuts(checkpoint);
    if (rc != 0) {
        return rc;
    }
    rc = store_flow_sync(checkpoint->flow);
    if (rc != 0) {
        return rc;
    }
    rc = write_sums(checkpoint);
    if (rc != 0) {
        return rc;
    }
    rc = list_files(checkpoint);
    if (rc != 0) {
        return rc;
    }
    rc = write_manifest(checkpoint);
    if (rc != 0) {
        return rc;
    }
    rc = store_flow_close(checkpoint->flow);
    checkpoint->flow = NULL;
    if (rc != 0) {
        return rc;
    }
    return verify(checkpoint);
}

int store_checkpoint_finish(struct store_checkpoint_write *checkpoint)
{
    int rc = store_checkpoint_complete(checkpoint);
    if (rc != 0) {
        return rc;
    }
    rc = store_checkpoint_publish(checkpoint);
    if (rc == 0) {
        store_checkpoint_rotate(checkpoint);
    }
    return rc;
}

int store_checkpoint_end(struct store_checkpoint_write *checkpoint)
{
    if (checkpoint == NULL) {
        return 0;
    }
    int rc = store_flow_close(checkpoint->flow);
    if (checkpoint->own.path != NULL && !model_publish_is_kept(checkpoint->own.fd)) {
        model_folder_remove(checkpoint->own.path);
    }
    model_claim_close(&checkpoint->own);
    for (int s = 0; s < STORE_STREAM_COUNT; s++) {
        free(checkpoint->marks.at[s]);
    }
    store_image_fini(&checkpoint->image);
    store_manifest_fini(&checkpoint->manifest);
    free(checkpoint);
    return rc;
}
