/* ranks.c: finds the folders of ranks in a directory by name. */
#include "offload/store/ranks.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "aio/files.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/log.h"

enum { PATH_BYTES = 4096 };

static const char prefix[] = "tide-rank-";

int store_rank_folder(const char *directory, unsigned rank, char *text, size_t bytes)
{
    const int length = snprintf(text, bytes, "%s/%s%u", directory, prefix, rank);
    return length < (int)bytes
               ? 0
               : core_err_set(-ENAMETOOLONG,
                              "a path below a store's directory has %d bytes; the maximum is %zu",
                              length, bytes - 1);
}

/* Returns -errno, with a message, if the directory cannot be read. */
static int for_each(const char *directory, void (*each)(void *context, unsigned rank),
                    void *context)
{
    DIR *dir = opendir(directory);
    if (dir == NULL) {
        const int error = errno;
        return core_err_set(-error, "the store's directory %s cannot be read: %s", directory,
                            strerror(error));
    }
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        uint64_t rank;
        if (core_file_is_numbered(entry->d_name, prefix, "", &rank) && rank <= UINT_MAX) {
            each(context, (unsigned)rank);
        }
    }
    closedir(dir);
    return 0;
}

/* ---- removing old files ---- */

struct clearing {
    const char *directory;
    unsigned world;
};

static void clear(void *context, unsigned rank)
{
    const struct clearing *clearing = context;
    char folder[PATH_BYTES];
    if (rank < clearing->world ||
        store_rank_folder(clearing->directory, rank, folder, sizeof folder) != 0) {
        return;
    }
    int rc = aio_path_discard(folder);
    if (rc == -EBUSY) {
        return;
    }
    if (rc != 0 && rc != -ENOENT) {
        core_log(CORE_LOG_WARN, "%s was left by a run that ended and cannot be removed: %s", folder,
                 core_err_message());
    } else if (rmdir(folder) == 0) {
        core_log(CORE_LOG_INFO,
                 "removed %s, which was left by a run that ended without cleaning up", folder);
    }
}

void store_ranks_clear(const char *directory, unsigned world)
{
    struct clearing clearing = {directory, world};
    if (for_each(directory, clear, &clearing) != 0) {
        core_log(CORE_LOG_WARN, "%s", core_err_message());
    }
}

/* ---- inspecting ---- */

struct looking {
    const char *directory;
    struct store_look *out;
    struct core_err first;
};

static void note(struct looking *looking, int rc)
{
    if (looking->first.code == 0) {
        looking->first = core_err_keep(rc);
    }
}

static void add(struct looking *looking, const char *folder)
{
    struct store_look *out = looking->out;
    struct aio_look one;
    int rc = aio_look(folder, &one);
    if (rc == -ENOENT) {
        return;
    }
    out->files++;
    out->bytes += one.bytes;
    out->in_use = out->in_use || one.in_use;
    if (rc == 0 && out->run == 0) {
        out->run = one.run;
        out->process = one.process;
        out->path = one.path;
        out->paths = one.paths;
    } else if (rc == 0 && one.run != out->run) {
        rc = core_err_set(-EBADMSG,
                          "%s belongs to run %016" PRIx64 " (process %" PRIu64
                          "), but other files in the folder belong to run %016" PRIx64,
                          folder, one.run, one.process, out->run);
    }
    note(looking, rc);
}

static void look(void *context, unsigned rank)
{
    struct looking *looking = context;
    char folder[PATH_BYTES];
    int rc = store_rank_folder(looking->directory, rank, folder, sizeof folder);
    if (rc != 0) {
        note(looking, rc);
    } else {
        add(looking, folder);
    }
}

int store_look(const char *directory, struct store_look *out)
{
    struct looking looking = {.directory = directory, .out = out};
    *out = (struct store_look){.files = 0};
    add(&looking, directory);
    int rc = for_each(directory, look, &looking);
    if (rc == 0 && looking.first.code == 0 && out->files == 0) {
        return -ENOENT;
    }
    return core_err_first(&looking.first, rc);
}
