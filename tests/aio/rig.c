/* rig.c: set-up shared by the programs of this folder. */
#include "tests/aio/rig.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "aio/backend.h"
#include "core/base/err.h"
#include "core/base/rng.h"
#include "tests/harness/test.h"

static const char *working[5];

const char *const *rig_backends(void)
{
    static const char *const names[] = {"uring", "libaio", "threads", "mem"};
    size_t n = 0;
    for (size_t i = 0; i < 4; i++) {
        const struct aio_backend *backend = aio_backend_find(names[i]);
        char reason[AIO_REASON_BYTES];
        if (backend != NULL && backend->probe(reason, sizeof reason) == 0) {
            working[n++] = names[i];
        } else {
            test_note("%s is not tested: %s", names[i], backend == NULL ? "not built" : reason);
        }
    }
    working[n] = NULL;
    return working;
}

void *rig_memory(uint64_t bytes)
{
    void *memory = NULL;
    check_int(posix_memalign(&memory, 4096, bytes), ==, 0);
    return memory;
}

void rig_free(void *memory)
{
    free(memory);
}

__attribute__((no_sanitize("thread"))) void rig_fill(void *memory, uint64_t bytes, uint64_t seed)
{
    uint64_t *words = memory;
    for (uint64_t i = 0; i < bytes / 8; i++) {
        words[i] = (i + 1) * 0x9e3779b97f4a7c15u ^ (seed + 1) * 0xbf58476d1ce4e5b9u;
    }
    for (uint64_t i = bytes / 8 * 8; i < bytes; i++) {
        ((unsigned char *)memory)[i] = (unsigned char)(i * 31 + seed);
    }
}

static void open_file(struct rig *rig, uint64_t bytes)
{
    static unsigned number;
    snprintf(rig->path, sizeof rig->path, "%s/rig-%u", test_directory(), number++);
    rig->fd = open(rig->path, O_RDWR | O_CREAT | O_EXCL | O_DIRECT | O_CLOEXEC, 0600);
    check_int(rig->fd, >=, 0);
    check_int(ftruncate(rig->fd, (off_t)bytes), ==, 0);
}

void rig_open(struct rig *rig, const struct rig_options *options)
{
    *rig = (struct rig){.fd = -1};
    bool mem = strcmp(options->backend, "mem") == 0;
    if (mem) {
        check_int(aio_mem_create(options->bytes, &rig->disk), ==, 0);
    } else {
        open_file(rig, options->bytes);
    }
    struct aio_drive_options drive = options->drive;
    drive.name = drive.name != NULL ? drive.name : "rig";
    drive.backend = aio_backend_find(options->backend);
    drive.context = rig->disk;
    if (options->fault != NULL) {
        options->fault->inner = drive.backend;
        drive.backend = aio_fault_recipe(options->fault);
    }
    int rc = aio_drive_create(&drive, &rig->drive);
    if (rc != 0) {
        test_fail(__FILE__, __LINE__, "%s: %s", options->backend, core_err_message());
    }
    struct aio_file file = {
        .fd = rig->fd, .name = "rig-file", .size_bytes = options->bytes, .direct = !mem};
    check_int(aio_drive_attach(rig->drive, &file, &rig->file), ==, 0);
    struct aio_queue_options queue = {.name = "rig-queue", .depth = options->queue_depth};
    check_int(aio_queue_open(&rig->drive, 1, &queue, &rig->queue), ==, 0);
}

void rig_close(struct rig *rig)
{
    check_int(aio_queue_close(rig->queue), ==, 0);
    check_int(aio_drive_destroy(rig->drive), ==, 0);
    aio_mem_destroy(rig->disk);
    if (rig->fd >= 0) {
        close(rig->fd);
        unlink(rig->path);
    }
}
