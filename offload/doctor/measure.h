/* measure.h: how fast a file is written and read for a moment, by a few threads at once. Private to
 * offload/doctor/store.c. */
#ifndef OFFLOAD_DOCTOR_MEASURE_H
#define OFFLOAD_DOCTOR_MEASURE_H

#include <stdint.h>

struct doctor_rates {
    double write; /* bytes a second */
    double read;
};

/* Writes and reads `file`, of at most `bytes` (a multiple of 1 MiB), for about `limit_ns` in all.
 * The file grows to what was written. 0, or -errno of the first call that failed with a sentence. */
int doctor_measure(int file, uint64_t bytes, int64_t limit_ns, struct doctor_rates *out);

#endif
