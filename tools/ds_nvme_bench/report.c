/* report.c: what writers of a report share, and the verdict. */
#include "tools/ds_nvme_bench/report.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"

double bench_report_rate(const struct bench_report *report, enum bench_op op)
{
    double slowest = 0;
    for (unsigned r = 0; r < report->count; r++) {
        const struct bench_recommendation *made = &report->recommendation;
        const struct bench_sweep *sweep = &report->results[r].sweep;
        const struct bench_point *point = report->recommends
                                              ? bench_sweep_find(sweep, op, made->block_bytes,
                                                                 made->depth, made->threads)
                                              : NULL;
        double rate = point != NULL ? point->median : bench_sweep_best(sweep, op);
        slowest = r == 0 || rate < slowest ? rate : slowest;
    }
    return slowest;
}

unsigned bench_report_drives(const struct bench_report *report)
{
    unsigned drives = 0;
    for (unsigned r = 0; r < report->count; r++) {
        const struct bench_device *device = &report->results[r].device;
        bool seen = false;
        for (unsigned k = 0; k < r && device->found; k++) {
            const struct bench_device *other = &report->results[k].device;
            seen = seen || (other->found && strcmp(other->block.name, device->block.name) == 0);
        }
        drives += !seen;
    }
    return drives;
}

int bench_report_save(const struct bench_report *report, const char *path,
                      int (*write)(const struct bench_report *, FILE *))
{
    bool standard = strcmp(path, "-") == 0;
    FILE *out = stdout;
    int rc = standard ? 0 : core_file_open_output(path, false, &out);
    if (rc != 0) {
        return rc;
    }
    rc = write(report, out);
    errno = 0;
    bool failed = fflush(out) != 0 || ferror(out) != 0;
    int cause = errno != 0 ? errno : EIO;
    if (!standard && fclose(out) != 0 && !failed) {
        failed = true;
        cause = errno;
    }
    if (rc == 0 && failed) {
        rc = core_err_set(-cause, "%s cannot be written: %s", path, strerror(cause));
    }
    return rc;
}

int bench_report_writable(const char *path)
{
    char folder[4096];
    struct stat info;
    const char *slash = strrchr(path, '/');
    size_t length = slash == NULL || slash == path ? 1 : (size_t)(slash - path);
    if (strcmp(path, "-") == 0) {
        return 0;
    }
    snprintf(folder, sizeof folder, "%.*s", (int)length, slash != NULL ? path : ".");
    bool there = stat(path, &info) == 0;
    if (there && S_ISDIR(info.st_mode)) {
        return core_err_set(-EISDIR, "%s is a directory; a file is needed", path);
    }
    if (access(there ? path : folder, W_OK) != 0) {
        int error = errno;
        return core_err_set(-error, "%s cannot be written: %s", path, strerror(error));
    }
    return 0;
}

/* Returns what slows every setting down; NULL: unknown. */
static const char *obstacle_of(const struct bench_result *result)
{
    const struct core_block_device *block = &result->device.block;
    if (!result->target.direct) {
        return "the page cache: this file system has no direct I/O, so choose one that has";
    }
    if (result->device.found && block->spins) {
        return "a spinning disk: use an NVMe drive";
    }
    if (block->max_sectors_kb > 0 && block->max_sectors_kb < 512 &&
        block->max_sectors_kb < block->max_hw_sectors_kb) {
        return "max_sectors_kb: the kernel splits requests that the drive could take whole "
               "(tide doctor prints the command that changes it)";
    }
    return NULL;
}

/* Prints the rates of the operations that were measured: "1.60 GB/s reading, 2.04 GB/s writing". */
static void print_rates(const struct bench_report *report, char *text, size_t bytes)
{
    static const char *const how[BENCH_OP_COUNT] = {"reading", "writing", "both at once"};
    size_t used = 0;
    text[0] = '\0';
    for (int op = 0; op < BENCH_OP_COUNT; op++) {
        double rate = bench_report_rate(report, (enum bench_op)op);
        if (rate > 0 && used < bytes) {
            used += (size_t)snprintf(text + used, bytes - used, "%s%.2f GB/s %s",
                                     used > 0 ? ", " : "", rate / 1e9, how[op]);
        }
    }
}

void bench_report_verdict(const struct bench_report *report, char *text, size_t bytes)
{
    text[0] = '\0';
    if (report->count == 0 || report->results[0].sweep.count == 0) {
        return;
    }
    char rates[128];
    print_rates(report, rates, sizeof rates);
    const char *limit = NULL;
    const char *where = "";
    for (unsigned r = 0; r < report->count && limit == NULL; r++) {
        limit = obstacle_of(&report->results[r]);
        where = report->results[r].target.path;
    }
    const char *many = report->count > 1 ? "each of your drives gives" : "it gives";
    const struct bench_recommendation *made = &report->recommendation;
    if (limit != NULL) {
        snprintf(text, bytes, "The limit%s%s is %s. At present %s %s.",
                 report->count > 1 ? " of " : "", report->count > 1 ? where : "", limit, many,
                 rates);
    } else if (report->recommends && made->settings == 1) {
        snprintf(text, bytes,
                 "With this setting %s %s; a sweep shows whether other settings are faster.", many,
                 rates);
    } else if (report->recommends && made->gain < 1.15) {
        snprintf(text, bytes,
                 "Your drive, not your settings, is the limit: %s %s, and every setting measured "
                 "comes within %.0f %% of that.",
                 many, rates, (made->gain - 1) * 100);
    } else if (report->recommends) {
        snprintf(
            text, bytes,
            "Settings matter here: the best setting is up to %.1f times as fast as the slowest one "
            "measured. With the recommended setting, the drive is the limit: %s %s.",
            made->gain, many, rates);
    }
}
