/* A long run needs about as much memory, files and disk at its end as at its beginning. */
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/finetune/rig.h"
#include "tests/harness/test.h"

struct held {
    uint64_t rss_bytes;
    uint64_t files;
    uint64_t disk_bytes;
};

static uint64_t counted_bytes;

static int count_file(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)path;
    (void)at;
    counted_bytes += kind == FTW_F ? (uint64_t)info->st_blocks * 512 : 0;
    return 0;
}

/* Returns the bytes of a folder's files, which may appear and disappear meanwhile. */
static uint64_t disk_of(const char *name)
{
    counted_bytes = 0;
    (void)nftw(rig_path(name), count_file, 16, FTW_PHYS);
    return counted_bytes;
}

static uint64_t rss_of(int child)
{
    char path[64];
    unsigned long total = 0;
    unsigned long resident = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", child);
    FILE *file = fopen(path, "r");
    check_true(file != NULL);
    check_int(fscanf(file, "%lu %lu", &total, &resident), ==, 2);
    fclose(file);
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t files_of(int child)
{
    char path[64];
    uint64_t count = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", child);
    DIR *folder = opendir(path);
    check_true(folder != NULL);
    while (readdir(folder) != NULL) {
        count++;
    }
    closedir(folder);
    return count;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static struct held watch(int child, double seconds)
{
    struct held most = {0};
    const int samples = seconds > 100 ? 1000 : 50;
    const double each = seconds / samples;
    for (int i = 0; i < samples; i++) {
        const struct timespec wait = {.tv_sec = (time_t)each,
                                      .tv_nsec = (long)((each - (double)(time_t)each) * 1e9)};
        nanosleep(&wait, NULL);
        most.rss_bytes = larger(most.rss_bytes, rss_of(child));
        most.files = larger(most.files, files_of(child));
        most.disk_bytes = larger(most.disk_bytes, disk_of("out") + disk_of("store"));
    }
    return most;
}

static void wait_for_checkpoint(void)
{
    for (int i = 0; i < 12000 && !rig_has("out/checkpoint-4"); i++) {
        usleep(5000);
    }
    check_true(rig_has("out/checkpoint-4"));
}

static void flat(void)
{
    enum { SLACK_BYTES = 6 << 20, STAGES = 3 };
    const double seconds = test_full() ? 1800 : TEST_COUNT(3, 6);
    struct held stages[STAGES];
    rig_program = "tools/tide";
    rig_rows();
    mkdir(rig_path("store"), 0700);
    expect(0, "plan --model %M --store %T/store --save-rates %T/rates.json -q");
    const int child = rig_start(
        NULL, TRAIN "--threads 2 --rates %T/rates.json --steps 1000000 --save-every 2 --keep 2 "
                    "--shuffle --out %T/out --store %T/store --place weights=store,states=store -q "
                    "--log %T/log.jsonl");
    wait_for_checkpoint();
    for (int i = 0; i < STAGES; i++) {
        stages[i] = watch(child, seconds / STAGES);
        test_note("%.1f MB, %" PRIu64 " files open, %.2f MB on disk",
                  (double)stages[i].rss_bytes / 1e6, stages[i].files,
                  (double)stages[i].disk_bytes / 1e6);
    }
    kill(child, SIGTERM);
    rig_expect(__LINE__, rig_wait(child), 130);
    rig_end();
    if (!TEST_SLOW) { /* a sanitizer keeps what is freed */
        check_uint(stages[STAGES - 1].rss_bytes, <=, stages[0].rss_bytes + SLACK_BYTES);
    }
    check_uint(stages[STAGES - 1].files, <=, stages[0].files + 4);
    check_uint(stages[STAGES - 1].disk_bytes, <=, stages[0].disk_bytes * 3 / 2);
    check_uint(stages[0].disk_bytes, >, 0);
}

TEST_MAIN({"flat", flat})
