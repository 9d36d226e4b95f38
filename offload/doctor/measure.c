/* measure.c: a few threads that write a file block by block, then read it, until time is up.
 * Owns its buffers and its team; each member has a buffer of its own. */
#include "offload/doctor/measure.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/mem.h"
#include "core/base/team.h"

enum { MEMBERS = 4, BLOCK_BYTES = 1 << 20 };

struct transfer {
    int file;
    bool write;
    uint64_t blocks; /* of the file; past its end the first block follows */
    int64_t until_ns;
    unsigned char *buffers; /* borrowed; MEMBERS times BLOCK_BYTES */
    _Atomic uint64_t next;  /* relaxed: blocks are independent */
    _Atomic uint64_t done;
    _Atomic int error; /* the first -errno */
};

static ssize_t move(struct transfer *transfer, unsigned char *buffer, uint64_t offset)
{
    return transfer->write ? pwrite(transfer->file, buffer, BLOCK_BYTES, (off_t)offset)
                           : pread(transfer->file, buffer, BLOCK_BYTES, (off_t)offset);
}

static void transfer_part(void *argument, unsigned index, unsigned count)
{
    (void)count;
    struct transfer *transfer = argument;
    unsigned char *buffer = transfer->buffers + (size_t)index * BLOCK_BYTES;
    while (core_clock_now_ns() < transfer->until_ns &&
           atomic_load_explicit(&transfer->error, memory_order_relaxed) == 0) {
        uint64_t block = atomic_fetch_add_explicit(&transfer->next, 1, memory_order_relaxed);
        ssize_t moved = move(transfer, buffer, block % transfer->blocks * BLOCK_BYTES);
        if (moved != BLOCK_BYTES) {
            /* A write that stops short has met the end of the space. */
            int error = moved < 0 ? -errno : transfer->write ? -ENOSPC : -EIO;
            int none = 0;
            atomic_compare_exchange_strong(&transfer->error, &none, error);
            return;
        }
        atomic_fetch_add_explicit(&transfer->done, 1, memory_order_relaxed);
    }
}

/* Bytes a second over the wall time of all members; what was written is flushed in that time. */
static int transfer_run(struct core_team *team, struct transfer *transfer, int64_t limit_ns,
                        double *rate)
{
    int64_t began = core_clock_now_ns();
    transfer->until_ns = began + limit_ns;
    atomic_init(&transfer->next, 0);
    atomic_init(&transfer->done, 0);
    atomic_init(&transfer->error, 0);
    core_team_run(team, transfer_part, transfer);
    int rc = atomic_load(&transfer->error);
    if (rc == 0 && transfer->write && fdatasync(transfer->file) != 0) {
        rc = -errno;
    }
    if (rc != 0) {
        return core_err_set(rc, "%s failed after %llu MiB: %s",
                            transfer->write ? "writing" : "reading",
                            (unsigned long long)atomic_load(&transfer->done), strerror(-rc));
    }
    double seconds = (double)(core_clock_now_ns() - began) / 1e9;
    *rate = (double)atomic_load(&transfer->done) * BLOCK_BYTES / seconds;
    return 0;
}

static int run_both(struct core_team *team, struct transfer *transfer, int64_t limit_ns,
                    struct doctor_rates *out)
{
    struct doctor_rates rates;
    int rc = transfer_run(team, transfer, limit_ns / 2, &rates.write);
    if (rc != 0) {
        return rc;
    }
    uint64_t written = atomic_load(&transfer->done);
    transfer->blocks = written < transfer->blocks ? written : transfer->blocks;
    transfer->write = false;
    /* Where the file is not open for direct I/O, at least drop what the page cache holds of it. */
    posix_fadvise(transfer->file, 0, 0, POSIX_FADV_DONTNEED);
    rc = transfer_run(team, transfer, limit_ns / 2, &rates.read);
    if (rc == 0) {
        *out = rates;
    }
    return rc;
}

int doctor_measure(int file, uint64_t bytes, int64_t limit_ns, struct doctor_rates *out)
{
    struct core_region_options options = {.name = "doctor", .bytes = MEMBERS * BLOCK_BYTES};
    struct core_region region = {0};
    struct core_team *team = NULL;
    struct transfer transfer = {.file = file, .write = true, .blocks = bytes / BLOCK_BYTES};
    if (transfer.blocks == 0) {
        return core_err_set(-ENOSPC, "less than 1 MiB is free");
    }
    int rc = core_region_alloc(&options, &region);
    if (rc == 0) {
        rc = core_team_create(&(struct core_team_options){.name = "doctor", .count = MEMBERS},
                              &team);
    }
    if (rc == 0) {
        transfer.buffers = region.base;
        for (uint64_t i = 0; i < region.bytes; i++) { /* drives may shortcut equal bytes */
            region.base[i] = (unsigned char)((i * UINT64_C(0x9E3779B97F4A7C15)) >> 56);
        }
        rc = run_both(team, &transfer, limit_ns, out);
    }
    core_team_destroy(team);
    core_region_free(&region);
    return rc;
}
