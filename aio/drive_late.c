/* drive_late.c: how long blocks take: counted when they end, watched while they fly. Drive's thread,
 * but for what reads a snapshot of the counts. */
#include <errno.h>
#include <inttypes.h>

#include "aio/drive_parts.h"
#include "core/base/err.h"
#include "core/base/log.h"

const char *aio_kind_name(enum aio_kind kind)
{
    static const char *const names[] = {"read", "write", "sync"};
    return names[kind];
}

unsigned aio_latency_bucket(uint64_t ns)
{
    if (ns < 4) {
        return (unsigned)ns;
    }
    unsigned top = 63u - (unsigned)__builtin_clzll(ns);
    return top * 4 + (unsigned)(ns >> (top - 2) & 3);
}

uint64_t aio_latency_ns(const uint64_t latency[AIO_LATENCY_BUCKETS], double share)
{
    uint64_t total = 0;
    for (unsigned i = 0; i < AIO_LATENCY_BUCKETS; i++) {
        total += latency[i];
    }
    uint64_t seen = 0;
    for (unsigned i = 0; i < AIO_LATENCY_BUCKETS; i++) {
        seen += latency[i];
        if (latency[i] > 0 && (double)seen >= share * (double)total) {
            /* the upper end of the bucket */
            return i < 8 ? i : (uint64_t)(i % 4 + 5) << (i / 4 - 2);
        }
    }
    return 0;
}

void aio_block_watch(struct aio_drive *drive)
{
    for (uint32_t i = 0; i < drive->blocks_count && !drive->dead; i++) {
        struct block *block = &drive->blocks[i];
        int64_t late_ns = drive->ran_ns - block->start_ran_ns;
        if (block->state != BLOCK_FLYING || late_ns < drive->options.warn_ns) {
            continue;
        }
        const struct part *part = aio_part_of(block);
        const char *kind = aio_kind_name(part->kind);
        const char *file = drive->files[part->file].name;
        uint64_t offset = part->offset + block->within + block->moved;
        uint32_t bytes = block->bytes - block->moved;
        if (late_ns >= drive->options.limit_ns) {
            core_err_set(-ETIMEDOUT,
                         "%s does not answer: %s of %u bytes at offset %" PRIu64
                         " of %s has waited for %.1f s",
                         drive->name, kind, bytes, offset, file, (double)late_ns / 1e9);
            aio_drive_die(drive, -ETIMEDOUT);
        } else if (!block->warned) {
            block->warned = true;
            count(&drive->stalls, 1);
            core_log(CORE_LOG_WARN,
                     "%s is slow: %s of %u bytes at offset %" PRIu64 " of %s has waited for %.1f s"
                     " (error at %.1f s)",
                     drive->name, kind, bytes, offset, file, (double)late_ns / 1e9,
                     (double)drive->options.limit_ns / 1e9);
        }
    }
}
