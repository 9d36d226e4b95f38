/* stats.c: a histogram of latencies with four buckets for each power of two. */
#include "aio/stats.h"

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
