/* report.h: writes the results for people and programs. Each writer is a file of its own. */
#ifndef TOOLS_DS_NVME_BENCH_REPORT_H
#define TOOLS_DS_NVME_BENCH_REPORT_H

#include <stdio.h>

#include "tools/ds_nvme_bench/environment.h"
#include "tools/ds_nvme_bench/swap.h"
#include "tools/ds_nvme_bench/sweep.h"
#include "tools/ds_nvme_bench/verify.h"
#include "tools/ds_nvme_bench/wear.h"

enum { BENCH_SCHEMA_VERSION = 1 };

/* Everything about one directory. */
struct bench_result {
    struct bench_target target;
    struct bench_device device;
    struct bench_sweep sweep;
    bool swapped;
    struct bench_swap swap;
    bool verified;
    struct bench_verify verify;
    bool soaked; /* the points of the sweep were measured for a long time */
};

struct bench_report {
    const char *mode;
    struct bench_environment environment;
    const struct bench_result *results; /* borrowed */
    unsigned count;
    bool recommends;                            /* `recommendation` is set */
    struct bench_recommendation recommendation; /* over all directories */
    double params;                              /* parameters of the model given; 0: none */
    bool wants_mixed;                           /* reading and writing at once was requested */
    double rated_bytes;
};

/* Returns the bytes per second of the slowest directory for an operation at the recommended
 * setting, or at its best setting if none is recommended; 0: not measured. Requests are striped, so
 * all drives together reach this times bench_report_drives(). */
double bench_report_rate(const struct bench_report *report, enum bench_op op);

/* Returns how many drives the directories are on; each unknown drive counts as one more. */
unsigned bench_report_drives(const struct bench_report *report);

void bench_report_table(const struct bench_report *report, FILE *out);
int bench_report_json(const struct bench_report *report, FILE *out);
int bench_report_csv(const struct bench_report *report, FILE *out);
/* Draws bandwidth over block size: a line for each depth, a panel for each operation. */
int bench_report_svg(const struct bench_report *report, FILE *out);

/* Writes a ds_config.json that has only the `aio` block of DeepSpeed. */
int bench_report_config(const struct bench_report *report, FILE *out);

/* Opens `path` ("-": stdout), calls `write` and closes. Returns the first failure, with a
 * message. */
int bench_report_save(const struct bench_report *report, const char *path,
                      int (*write)(const struct bench_report *, FILE *));

/* Returns 0 if bench_report_save() can probably write `path`, which is not touched, or -errno with
 * a message. */
int bench_report_writable(const char *path);

/* Returns 0 if an aio block may be written to `path`: nothing is there, or an empty file, or one
 * with only an aio block. Returns -EEXIST with a message for any other file, such as the user's
 * ds_config.json. */
int bench_report_replaceable(const char *path);

/* Compares every point with the same point of an earlier --json report. Prints each point that is
 * slower by more than `tolerance` to `out`; *slower gets their number. Returns 0, or -errno with a
 * message; -EINVAL if the file is no such report or has none of the points. */
int bench_report_compare(const struct bench_report *report, const char *path, double tolerance,
                         FILE *out, unsigned *slower);

/* Returns 0 if `path` is a report with which another one can be compared, or -errno with a
 * message. */
int bench_report_comparable(const char *path);

/* Writes one or two sentences on what limits the speed to `text`; "" if there is nothing to say. */
void bench_report_verdict(const struct bench_report *report, char *text, size_t bytes);

#endif
