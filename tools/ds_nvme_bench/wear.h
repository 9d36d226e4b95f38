/* wear.h: what a bandwidth means for training: seconds of I/O per step, bytes written, life of the
 * drive. Pure functions. */
#ifndef TOOLS_DS_NVME_BENCH_WEAR_H
#define TOOLS_DS_NVME_BENCH_WEAR_H

#include <stdint.h>

/* Bytes per parameter of an optimizer step with everything but gradients on the drive: weights are
 * read twice, states once, and both written once (bf16, split master, fp32 moments). */
enum { BENCH_READ_BYTES = 14, BENCH_WRITE_BYTES = 12 };

struct bench_wear {
    double step_seconds; /* I/O time at the measured mixed bandwidth */
    double step_read_bytes;
    double step_write_bytes;
    /* bytes written per day if steps are as long as their I/O */
    double day_write_bytes;
    double life_days; /* days until `rated_bytes` are written; 0: unknown */
};

/* `mixed`: bytes per second of both directions; `rated_bytes`: written bytes that the drive is
 * rated for; 0: unknown. */
struct bench_wear bench_wear_of(double params, double mixed, double rated_bytes);

/* Parses "7B", "350M", "1.1B", "1e9". */
int bench_params_parse(const char *text, double *out);

#endif
