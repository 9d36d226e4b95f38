/* wear.h: what bandwidth means for training a model: seconds of I/O an optimizer step, bytes
 * written, and the drive's life. Pure. */
#ifndef TOOLS_DS_NVME_BENCH_WEAR_H
#define TOOLS_DS_NVME_BENCH_WEAR_H

#include <stdint.h>

/* Bytes a parameter that one optimizer step moves with everything but the gradients on the drive:
 * weights twice and states once in, both out (bf16, split master, fp32 moments). */
enum { BENCH_READ_BYTES = 14, BENCH_WRITE_BYTES = 12 };

struct bench_wear {
    double step_seconds; /* of I/O, at the measured mixed bandwidth */
    double step_read_bytes;
    double step_write_bytes;
    double day_write_bytes; /* steps one after another, each as long as its I/O */
    double life_days;       /* until `rated_bytes` are written; 0: not known */
};

/* `mixed` bytes a second, both directions together; `rated_bytes` written over a drive's life, 0
 * where not known. */
struct bench_wear bench_wear_of(double params, double mixed, double rated_bytes);

/* "7B", "350M", "1.1B", "1e9" to a number of parameters; -EINVAL with a sentence. */
int bench_params_parse(const char *text, double *out);

#endif
