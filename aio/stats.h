/* stats.h: what a drive counts, and percentiles of its latencies. Any thread. */
#ifndef AIO_STATS_H
#define AIO_STATS_H

#include <stdint.h>

enum { AIO_LATENCY_BUCKETS = 256 };

/* Counts since create. A piece is a sync, or a transfer of at most `block_bytes` (with checksums:
 * rounded up to whole units). */
struct aio_drive_stats {
    uint64_t read_bytes, write_bytes;
    uint64_t pieces;              /* completed without an error */
    uint64_t short_transfers;     /* short, then continued or repeated */
    uint64_t repeats;             /* after a transient error; failed calls into the back end, too */
    uint64_t retries;             /* after another error that is not final */
    uint64_t errors;              /* pieces that failed */
    uint64_t mismatches;          /* checksums that differed or were never set, second reads
                                   * included */
    uint64_t unknown_completions; /* of no piece in flight; ignored */
    /* pieces logged after warn_ns */
    uint64_t stalls;
    uint64_t waits;        /* times the thread waited for completions */
    uint64_t hashed_bytes; /* bytes of checksums computed or verified */
    uint64_t registered_bytes;
    uint64_t cpu_ns; /* processor time of the drive's thread */
    /* pieces by latency: [0] reads, [1] writes */
    uint64_t latency[2][AIO_LATENCY_BUCKETS];
};

unsigned aio_latency_bucket(uint64_t ns);
/* Returns the latency below which `share` (0 to 1) of the counted pieces are, rounded up to its
 * bucket's end; 0 if nothing was counted. `latency` may be the difference of two snapshots. */
uint64_t aio_latency_ns(const uint64_t latency[AIO_LATENCY_BUCKETS], double share);

#endif
