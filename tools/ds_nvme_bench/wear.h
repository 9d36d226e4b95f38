/* wear.h: what the bandwidth means for training a model: seconds of I/O in an optimizer step, bytes
 * written, and the life of the drive. Pure functions. */
#ifndef TOOLS_DS_NVME_BENCH_WEAR_H
#define TOOLS_DS_NVME_BENCH_WEAR_H

#include <stdint.h>

/* Bytes per parameter that an optimizer step reads and writes if everything except gradients is on
 * the drive: it reads weights twice and states once, and writes both once (bf16, split master, fp32
 * moments). */
enum { BENCH_READ_BYTES = 14, BENCH_WRITE_BYTES = 12 };

struct bench_wear {
    double step_seconds; /* I/O time at the measured mixed bandwidth */
    double step_read_bytes;
    double step_write_bytes;
    /* bytes written per day if steps follow each other, each as long as its I/O */
    double day_write_bytes;
    double life_days; /* days until `rated_bytes` are written; 0: unknown */
};

/* `mixed`: bytes per second of both directions together; `rated_bytes`: how many bytes the drive is
 * rated to write; 0: unknown. */
struct bench_wear bench_wear_of(double params, double mixed, double rated_bytes);

/* Parses "7B", "350M", "1.1B", "1e9" as a number of parameters. Returns 0, or -EINVAL with a
 * message. */
int bench_params_parse(const char *text, double *out);

#endif
