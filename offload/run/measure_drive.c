/* measure_drive.c: measures a drive, again if the result may not be typical. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>

#include "aio/measure.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "offload/run/measure.h"

enum { DEPTH_MIN = 4, TURNS = 5, PAUSE_MS = 500 };

/* A drive slower than `slow_bytes_per_s` may be busy. It is measured again until it is fast, or two
 * results in a row agree above `stalled_bytes_per_s`. After TURNS or `patience_seconds` the best
 * rates count, but are not cached. */
static const double slow_bytes_per_s = 5e8;
static const double stalled_bytes_per_s = 4e7;
static const double alike = 1.3;
static const double patience_seconds = 15;

static bool is_alike(double one, double other)
{
    return fmax(one, other) <= alike * fmin(one, other);
}

void run_rates_nearest(const char *directory, char path[RUN_RATES_PATH_BYTES])
{
    struct stat info;
    snprintf(path, RUN_RATES_PATH_BYTES, "%s", directory);
    while (stat(path, &info) != 0 && errno == ENOENT) {
        char *slash = strrchr(path, '/');
        if (slash == NULL || slash == path) {
            snprintf(path, RUN_RATES_PATH_BYTES, slash == NULL ? "." : "/");
            break;
        }
        *slash = '\0';
    }
}

/* Other work can only slow a drive. */
static void keep_best(const struct aio_rates *rates, struct run_drive_rates *best)
{
    best->read_bytes = fmax(best->read_bytes, rates->read_bytes_per_s);
    best->write_bytes = fmax(best->write_bytes, rates->write_bytes_per_s);
    best->mixed_bytes = fmax(best->mixed_bytes, rates->mixed_bytes_per_s);
    best->cpu_ns_per_byte = best->cpu_ns_per_byte > 0
                                ? fmin(best->cpu_ns_per_byte, rates->cpu_ns_per_byte)
                                : rates->cpu_ns_per_byte;
}

static void warn_slow(const char *path, const struct run_drive_rates *best, bool again)
{
    core_log(CORE_LOG_WARN,
             again
                 ? "the drive under %s moves only %.0f MB/s and is measured again: it may be busy, "
                   "for example with files that were just removed"
                 : "the drive under %s moved only %.0f MB/s while it was measured; if it was busy "
                   "then, steps will be faster than predicted",
             path, best->mixed_bytes / 1e6);
}

int run_measure_drive(const struct run_shapes *shapes, const struct run_options *options,
                      const char *directory, struct run_drive_rates *out, bool *steady)
{
    const uint64_t file_bytes = run_measure_file_bytes(shapes, options);
    const uint64_t blocks = run_measure_spare(shapes, options) / (4 * AIO_BLOCK_DEFAULT_BYTES);
    struct statvfs disk;
    struct aio_measure_options how = {.backend = options->io,
                                      .bytes = file_bytes,
                                      .sums = true,
                                      .depth = (uint32_t)(blocks < DEPTH_MIN ? DEPTH_MIN
                                                          : blocks > AIO_DEPTH_DEFAULT
                                                              ? AIO_DEPTH_DEFAULT
                                                              : blocks)};
    const int64_t start_ns = core_clock_now_ns();
    char path[RUN_RATES_PATH_BYTES];
    struct run_drive_rates best = {0};
    double last = 0;
    run_rates_nearest(directory, path);
    if (statvfs(path, &disk) == 0 && (uint64_t)disk.f_bavail * disk.f_frsize / 4 < file_bytes) {
        how.bytes = 0; /* as large as free space allows */
    }
    *steady = false;
    for (int turn = 0; !*steady && turn < TURNS; turn++) {
        struct aio_rates rates;
        if (turn > 0 && (double)(core_clock_now_ns() - start_ns) * 1e-9 > patience_seconds) {
            break;
        }
        int rc = aio_measure_path(path, &how, &rates);
        if (rc != 0) {
            return rc;
        }
        keep_best(&rates, &best);
        *steady = rates.mixed_bytes_per_s >= slow_bytes_per_s ||
                  (rates.mixed_bytes_per_s >= stalled_bytes_per_s &&
                   is_alike(rates.mixed_bytes_per_s, last));
        last = rates.mixed_bytes_per_s;
        if (!*steady && turn == 0) {
            warn_slow(path, &best, true);
            (void)nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000L}, NULL);
        }
    }
    if (!*steady) {
        warn_slow(path, &best, false);
    }
    best.window_bytes = 2.0 * how.depth * AIO_BLOCK_DEFAULT_BYTES;
    *out = best;
    return 0;
}
