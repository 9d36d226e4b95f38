/* test_rates.c: a machine is measured once, within the budgets; cached rates count for their
 * key, for some weeks, if they are complete. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <utime.h>

#include "aio/measure.h"
#include "core/base/caches.h"
#include "core/base/clock.h"
#include "core/base/cpus.h"
#include "core/base/err.h"
#include "core/coll/codes.h"
#include "core/coll/coll.h"
#include "core/dev/dev.h"
#include "core/json/cache.h"
#include "kernels/quant.h"
#include "offload/run/measure.h"
#include "offload/run/prepare.h"
#include "offload/run/rates_file.h"
#include "tests/harness/heard.h"
#include "tests/harness/test.h"
#include "tests/run/case.h"

/* Counts the files whose names start with `begin`; writes the path of the last one to `path`. */
static int files_in(const char *folder, const char *begin, char path[1024])
{
    DIR *dir = opendir(folder);
    int count = 0;
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        if (strncmp(entry->d_name, begin, strlen(begin)) == 0 && entry->d_name[0] != '.') {
            snprintf(path, 1024, "%s/%s", folder, entry->d_name);
            count++;
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return count;
}

static void put_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");
    check_true(file != NULL && fputs(text, file) >= 0);
    fclose(file);
}

/* If set, another run creates the folders right after mkdir() fails. */
static bool another_run_begins;
int __real_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode);

int __wrap_mkdir(const char *path, mode_t mode)
{
    const int rc = __real_mkdir(path, mode);
    if (rc != 0 && another_run_begins) {
        char above[1024];
        const int cause = errno;
        snprintf(above, sizeof above, "%s", path);
        *strrchr(above, '/') = '\0';
        another_run_begins = false;
        check_int(__real_mkdir(above, mode), ==, 0);
        check_int(__real_mkdir(path, mode), ==, 0);
        errno = cause;
    }
    return rc;
}

/* A run keeps what it measured, even if another run creates the cache's folders meanwhile. */
static void folders_are_made_by_two(void)
{
    struct run_drive_rates rates = {.read_bytes = 1};
    char folder[600];
    snprintf(folder, sizeof folder, "%s/.cache/tide", test_directory());
    const struct run_rates_cached cached = {folder, "the key", RUN_RATES_DRIVE};
    another_run_begins = true;
    run_rates_cache_write(&cached, &rates);
    check_true(!another_run_begins);
    rates.read_bytes = 0;
    check_true(run_rates_cache_read(&cached, &rates));
    check_double(rates.read_bytes, ==, 1);
}

/* ---- slow drives ---- */

/* bytes per second that measurements return; NULL: the drive's */
static const double *mixed_rates;
static unsigned measurements;
int __real_aio_measure_path(const char *directory, const struct aio_measure_options *options,
                            struct aio_rates *out);
int __wrap_aio_measure_path(const char *directory, const struct aio_measure_options *options,
                            struct aio_rates *out);

int __wrap_aio_measure_path(const char *directory, const struct aio_measure_options *options,
                            struct aio_rates *out)
{
    if (mixed_rates == NULL) {
        return __real_aio_measure_path(directory, options, out);
    }
    const double mixed = mixed_rates[measurements++];
    *out = (struct aio_rates){.read_bytes_per_s = 2 * mixed,
                              .write_bytes_per_s = mixed,
                              .mixed_bytes_per_s = mixed,
                              .cpu_ns_per_byte = 1e9 / mixed};
    return 0;
}

static unsigned pauses;
int __real_nanosleep(const struct timespec *time, struct timespec *left);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left);

int __wrap_nanosleep(const struct timespec *time, struct timespec *left)
{
    pauses += mixed_rates != NULL;
    return mixed_rates != NULL ? 0 : __real_nanosleep(time, left);
}

/* A slow drive may be busy, and is measured again until two results in a row agree. Without
 * agreement, or near a stall, the rates are not steady. */
static void slow_drives_are_measured_again(void)
{
    static const struct {
        double mixed[5];
        unsigned measurements;
        bool steady;
        double best;
    } rows[] = {{{6e8}, 1, true, 6e8},
                {{1e8, 6e8}, 2, true, 6e8},
                {{2e8, 2.2e8}, 2, true, 2.2e8},
                {{1e8, 3e8, 2e8, 2.5e8}, 4, true, 3e8},
                {{1e8, 2e8, 1e8, 2e8, 1e8}, 5, false, 2e8},
                {{1e7, 1e7, 1e7, 1e7, 1e7}, 5, false, 1e7}};
    struct case_model made;
    struct run_shapes *shapes = NULL;
    const struct run_options options = case_options();
    case_model_make(&made, "llama");
    check_int(run_shapes_create(made.model, &options, &shapes), ==, 0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct run_drive_rates rates;
        bool steady = !rows[i].steady;
        mixed_rates = rows[i].mixed;
        measurements = pauses = 0;
        test_listen(CORE_LOG_WARN);
        check_int(run_measure_drive(shapes, &options, test_directory(), &rates, &steady), ==, 0);
        test_listen_end();
        mixed_rates = NULL;
        check_uint(measurements, ==, rows[i].measurements);
        check_uint(pauses, ==, measurements > 1);
        check_true(steady == rows[i].steady);
        check_double(rates.mixed_bytes, ==, rows[i].best);
        check_double(rates.read_bytes, ==, 2 * rows[i].best);
        check_double(rates.cpu_ns_per_byte, ==, 1e9 / rows[i].best);
        check_uint(test_heard_lines("and is measured again"), ==, rows[i].measurements > 1);
        check_uint(test_heard_lines("steps will be faster than predicted"), ==, !rows[i].steady);
    }
    run_shapes_destroy(shapes);
    case_model_free(&made);
}

/* ---- slow turns ---- */

enum { MEASURED_RANKS = 4, MEASURED_WITHIN = 2, MEASURED_TURNS = 3, LATE_SECONDS = 1000 };

static bool slows;              /* whether the last turns are slow */
static _Atomic int64_t late_ns; /* added to the clock */
/* calls in the measured turns */
static unsigned reductions, gathers_within, packs, encodes;
int64_t __real_core_clock_now_ns(void);
int64_t __wrap_core_clock_now_ns(void);
int __real_coll_submit(struct coll *coll, const struct coll_command *command,
                       struct core_fence *out);
int __wrap_coll_submit(struct coll *coll, const struct coll_command *command,
                       struct core_fence *out);
void __real_kern_quant_pack(enum kern_type type, const void *from, int64_t rows, int64_t cols,
                            uint8_t *out);
void __wrap_kern_quant_pack(enum kern_type type, const void *from, int64_t rows, int64_t cols,
                            uint8_t *out);
void __real_coll_codes_encode(enum coll_type type, const void *from, uint64_t count, void *codes);
void __wrap_coll_codes_encode(enum coll_type type, const void *from, uint64_t count, void *codes);

int64_t __wrap_core_clock_now_ns(void)
{
    return __real_core_clock_now_ns() + late_ns;
}

/* Makes the last turn slow. `calls` counts calls, of which a turn has `each`. */
static void slow_last(unsigned *calls, unsigned each)
{
    if (slows && (*calls)++ == (MEASURED_TURNS - 1) * each) {
        late_ns += LATE_SECONDS * INT64_C(1000000000);
    }
}

int __wrap_coll_submit(struct coll *coll, const struct coll_command *command,
                       struct core_fence *out)
{
    if (command->within > 0) {
        slow_last(&gathers_within, MEASURED_RANKS);
    } else if (command->op == COLL_REDUCE_SCATTER) {
        slow_last(&reductions, MEASURED_RANKS);
    }
    return __real_coll_submit(coll, command, out);
}

void __wrap_kern_quant_pack(enum kern_type type, const void *from, int64_t rows, int64_t cols,
                            uint8_t *out)
{
    slow_last(&packs, 1);
    __real_kern_quant_pack(type, from, rows, cols, out);
}

void __wrap_coll_codes_encode(enum coll_type type, const void *from, uint64_t count, void *codes)
{
    slow_last(&encodes, 1);
    __real_coll_codes_encode(type, from, count, codes);
}

/* A turn that something else slowed down does not count. */
static void slow_turns_do_not_count(void)
{
    /* rate of a slow turn, if it had 16 MiB */
    const double slow = (16 << 20) / (double)LATE_SECONDS;
    struct case_model made;
    struct run_shapes *shapes = NULL;
    struct plan_rates rates = {0};
    struct run_options options = case_options();
    options.world = options.local = MEASURED_RANKS;
    options.within = MEASURED_WITHIN;
    case_model_make(&made, "llama");
    check_int(run_shapes_create(made.model, &options, &shapes), ==, 0);
    slows = true;
    check_int(run_measure_copies(shapes, &options, &rates), ==, 0);
    slows = false;
    check_uint(reductions, ==, MEASURED_TURNS * MEASURED_RANKS);
    check_uint(gathers_within, ==, MEASURED_TURNS * MEASURED_RANKS);
    check_uint(packs, ==, MEASURED_TURNS);
    check_uint(encodes, ==, MEASURED_TURNS);
    check_double(rates.coll_bytes, >, slow);
    check_double(rates.within_bytes, >, slow);
    check_double(rates.pack_elements, >, slow);
    check_double(rates.code_elements, >, slow);
    run_shapes_destroy(shapes);
    case_model_free(&made);
}

/* Writes a drive's cache file that ends with `last`. */
static void put_drive(const char *path, const char *key, const char *last)
{
    char text[500];
    snprintf(text, sizeof text,
             "{\"version\": 2, \"key\": \"%s\", \"read_bytes_per_second\": 5.0, "
             "\"write_bytes_per_second\": 1.0, \"mixed_bytes_per_second\": 1.0, "
             "\"cpu_ns_per_byte\": 1.0%s",
             key, last);
    put_text(path, text);
}

/* A cached part is read as it was written; damaged parts and parts of other keys are not read. */
static void parts_count_for_their_keys(void)
{
    struct run_drive_rates rates = {.read_bytes = 1.0 / 3, .window_bytes = 2e9};
    const struct run_drive_rates kept = rates;
    char folder[600];
    char path[1024];
    struct run_rates_cached cached = {NULL, "the key", RUN_RATES_DRIVE};
    check_true(!run_rates_cache_read(&cached, &rates));
    run_rates_cache_write(&cached, &rates); /* no folder */
    run_rates_cache_forget(&cached);
    snprintf(folder, sizeof folder, "%s/above/cache", test_directory());
    cached.folder = folder;
    check_true(!run_rates_cache_read(&cached, &rates));
    run_rates_cache_write(&cached, &rates);
    check_int(files_in(folder, "drive-", path), ==, 1);
    rates = (struct run_drive_rates){0};
    check_true(run_rates_cache_read(&cached, &rates));
    check_memory(&rates, &kept, sizeof kept);
    cached.key = "another key";
    check_true(!run_rates_cache_read(&cached, &rates));
    run_rates_cache_write(&cached, &rates);
    check_int(files_in(folder, "drive-", path), ==, 2);
    run_rates_cache_forget(&cached);
    check_int(files_in(folder, "drive-", path), ==, 1);
    cached.key = "the key";
    put_drive(path, "third", ", \"window_bytes\": 6.0}"); /* as if another key had the same hash */
    check_true(!run_rates_cache_read(&cached, &rates));
    put_drive(path, "the key", "}");
    check_true(!run_rates_cache_read(&cached, &rates));
    put_drive(path, "the key", ", \"window_bytes\": -6.0}");
    check_true(!run_rates_cache_read(&cached, &rates));
    put_drive(path, "the key", "");
    check_true(!run_rates_cache_read(&cached, &rates));
    check_memory(&rates, &kept, sizeof kept);
    put_drive(path, "the key", ", \"window_bytes\": 6.0}");
    check_true(run_rates_cache_read(&cached, &rates));
    check_double(rates.read_bytes, ==, 5);
    check_double(rates.window_bytes, ==, 6);
    const time_t now = time(NULL);
    struct utimbuf old = {now, now - (CORE_CACHE_DAYS + 1) * 86400L};
    check_int(utime(path, &old), ==, 0);
    check_true(!run_rates_cache_read(&cached, &rates));
    struct utimbuf new = {now, now + 86400L};
    check_int(utime(path, &new), ==, 0);
    check_true(!run_rates_cache_read(&cached, &rates)); /* from the future: a clock was wrong */
    run_rates_cache_write(&cached, &rates);
    check_true(run_rates_cache_read(&cached, &rates));
    cached.folder = "/proc/cache"; /* not writable */
    run_rates_cache_write(&cached, &rates);
    check_true(!run_rates_cache_read(&cached, &rates));
}

/* Cached rates are used for the same model and shape, until they are renewed or forgotten. */
static void machines_are_measured_once(void)
{
    struct case_model made;
    struct run_shapes *shapes = NULL;
    struct run_rates rates;
    char folder[600];
    char path[1024];
    struct run_options options = case_options();
    snprintf(folder, sizeof folder, "%s/rates", test_directory());
    options.io = "mem";
    options.store_count = 1;
    options.cache = (struct run_cache){.folder = folder, .build = "test"};
    case_model_make(&made, "llama");
    check_int(run_shapes_create(made.model, &options, &shapes), ==, 0);
    check_int(run_rates_measure(shapes, &options, &rates), ==, 0);
    check_double(rates.machine.update_elements, >, 0);
    check_double(rates.forward_seconds[1], >, 0);
    /* a store in memory has no drive to measure */
    check_int(files_in(folder, "", path), ==, 2);
    const double update = rates.machine.update_elements;
    const double layer = rates.forward_seconds[1];
    check_int(run_rates_measure(shapes, &options, &rates), ==, 0);
    check_double(rates.machine.update_elements, ==, update);
    check_double(rates.forward_seconds[1], ==, layer);
    check_true(rates.machine.shared_cores);
    struct run_options longer = options;
    longer.length *= 2;
    struct run_shapes *others = NULL;
    check_int(run_shapes_create(made.model, &longer, &others), ==, 0);
    check_int(run_rates_measure(others, &longer, &rates), ==, 0);
    check_double(rates.machine.update_elements, ==, update);
    check_int(files_in(folder, "blocks-", path), ==, 2);
    options.cache.renew = true;
    check_int(run_rates_measure(shapes, &options, &rates), ==, 0);
    check_true(rates.machine.update_elements != update || rates.forward_seconds[1] != layer);
    run_rates_forget(shapes, &options);
    check_int(files_in(folder, "blocks-", path), ==, 1);
    check_int(files_in(folder, "update-", path), ==, 0);
    run_shapes_destroy(others);
    run_shapes_destroy(shapes);
    case_model_free(&made);
}

/* A drive is measured in its directory, or in the nearest parent that exists; steady rates are
 * cached. */
static void drives_are_asked_once(void)
{
    struct case_model made;
    struct run_shapes *shapes = NULL;
    struct run_rates rates;
    char folder[600];
    char store[600];
    char path[1024];
    struct run_options options = case_options();
    if (TEST_SLOW) {
        test_skip("rates under a sanitizer are not those of the drive");
    }
    snprintf(folder, sizeof folder, "%s/drives", test_directory());
    snprintf(store, sizeof store, "%s/not/there/yet", test_directory());
    options.io = NULL;
    options.store_count = 1;
    options.stores[0] = (struct store_path){.directory = store};
    options.cache = (struct run_cache){.folder = folder, .build = "test"};
    case_model_make(&made, "llama");
    check_int(run_shapes_create(made.model, &options, &shapes), ==, 0);
    check_int(run_rates_measure(shapes, &options, &rates), ==, 0);
    check_double(rates.machine.read_bytes, >, 0);
    check_double(rates.machine.write_bytes, >, 0);
    check_double(rates.machine.mixed_bytes, >, 0);
    /* otherwise the drive was busy */
    if (files_in(folder, "drive-", path) == 1) {
        check_double(rates.machine.io_bytes, >, 0);
        const double reads = rates.machine.read_bytes;
        check_int(run_rates_measure(shapes, &options, &rates), ==, 0);
        check_double(rates.machine.read_bytes, ==, reads);
    }
    run_rates_forget(shapes, &options);
    check_int(files_in(folder, "", path), ==, 0);
    run_shapes_destroy(shapes);
    case_model_free(&made);
}

/* Measuring takes little memory, so that it does not set the peak of a run. */
static void measuring_takes_little(void)
{
    struct case_model made;
    struct run_shapes *shapes = NULL;
    struct run_options options = case_options();
    case_model_make(&made, "llama");
    check_int(run_shapes_create(made.model, &options, &shapes), ==, 0);
    options.budgets = (struct plan_budgets){.device_bytes = UINT64_C(8) << 30,
                                            .host_bytes = UINT64_C(8) << 30};
    check_uint(run_measure_spare(shapes, &options), ==, UINT64_C(16) << 20);
    options.budgets.joint_bytes = UINT64_C(20) << 20;
    check_uint(run_measure_spare(shapes, &options), ==, UINT64_C(5) << 20);
    struct plan_block_shape *block = &shapes->blocks[0];
    options.budgets.joint_bytes = 0;
    block->elements = UINT64_C(1) << 30; /* 12 GB of weights and states */
    check_uint(run_measure_spare(shapes, &options), ==, UINT64_C(256) << 20);
    block->elements = UINT64_C(50) << 20;
    check_uint(run_measure_spare(shapes, &options), ==, UINT64_C(64) << 20);
    run_shapes_destroy(shapes);
    case_model_free(&made);
}

/* Most memory of an opened device; number of devices; number of the device that fails, from 1. */
static uint64_t device_bytes;
static int device_count, device_fails;
int __real_dev_open(const char *name, const struct dev_options *options, struct dev_device **out);
int __wrap_dev_open(const char *name, const struct dev_options *options, struct dev_device **out);

int __wrap_dev_open(const char *name, const struct dev_options *options, struct dev_device **out)
{
    device_bytes = options->memory_bytes > device_bytes ? options->memory_bytes : device_bytes;
    if (++device_count == device_fails) {
        return core_err_set(-ENOMEM, "no such device");
    }
    return __real_dev_open(name, options, out);
}

/* Measures within a joint budget of `mib` MiB. */
static int measure_rows(const struct case_model *made, struct run_options *options, int64_t rows,
                        uint64_t mib, struct run_rates *out)
{
    struct run_shapes *shapes = NULL;
    options->rows = rows;
    options->budgets.joint_bytes = mib << 20;
    check_int(run_shapes_create(made->model, options, &shapes), ==, 0);
    device_bytes = 0;
    device_count = 0;
    int rc = run_rates_measure(shapes, options, out);
    run_shapes_destroy(shapes);
    return rc;
}

/* If the model does not fit into the processors' caches, but the measured arrays do, a warning
 * says so. */
static void updates_in_cache_are_reported(void)
{
    struct case_model made;
    struct run_shapes *shapes = NULL;
    struct plan_rates rates = {0};
    struct core_cpus cpus;
    struct run_options options = case_options();
    check_int(core_cpus_allowed(&cpus), ==, 0);
    const uint64_t cache = core_caches_bytes(&cpus, "");
    if (cache < 8 << 20) {
        test_skip("the kernel names no cache of 8 MiB or more");
    }
    case_model_make(&made, "llama");
    check_int(run_shapes_create(made.model, &options, &shapes), ==, 0);
    test_listen(CORE_LOG_WARN);
    options.budgets.joint_bytes = 8 << 20; /* the update gets 2 MiB */
    check_int(run_measure_update(shapes, &options, &rates), ==, 0);
    check_uint(test_heard_lines("caches"), ==, 0); /* the model's own arrays fit */
    shapes->blocks[1].elements = cache;
    shapes->blocks[1].trained = true;
    check_int(run_measure_update(shapes, &options, &rates), ==, 0);
    check_uint(test_heard_lines("the rate of the update is measured with"), ==, 1);
    check_contains(test_heard(), "fit into the processors' caches of");
    /* on the CPU device, the processor copies */
    check_double(rates.memory_bytes, ==, 0);
    test_listen_end();
    run_shapes_destroy(shapes);
    case_model_free(&made);
}

/* If a layer does not fit with all rows, fewer rows are measured and not cached. Cached rates of
 * larger budgets are used. */
static void blocks_are_measured_in_budgets(void)
{
    enum { ROWS = 512, SMALL_MIB = 16, LARGE_MIB = 1024 };
    struct case_model made;
    struct run_rates rates;
    char folder[600];
    char path[1024];
    struct run_options options = case_options();
    snprintf(folder, sizeof folder, "%s/budgets", test_directory());
    options.io = "mem";
    options.store_count = 1;
    options.cache = (struct run_cache){.folder = folder, .build = "test"};
    case_model_make(&made, "llama");
    check_int(measure_rows(&made, &options, ROWS, SMALL_MIB, &rates), ==, 0);
    check_uint(device_bytes, >, 0);
    check_uint(device_bytes, <=, (uint64_t)SMALL_MIB << 20);
    check_double(rates.forward_seconds[MODEL_BLOCK_LAYER], >, 0);
    check_double(rates.recompute_seconds[MODEL_BLOCK_LAYER], >, 0);
    check_double(rates.backward_seconds[MODEL_BLOCK_LAYER], >, 0);
    check_int(files_in(folder, "blocks-", path), ==, 0);
    options.budgets.device_is_host = false; /* a card has separate memory */
    options.budgets.device_bytes = (uint64_t)SMALL_MIB << 20;
    check_int(measure_rows(&made, &options, ROWS, LARGE_MIB, &rates), ==, 0);
    check_uint(device_bytes, <=, (uint64_t)SMALL_MIB << 20);
    options.budgets = case_options().budgets;
    check_int(measure_rows(&made, &options, ROWS, LARGE_MIB, &rates), ==, 0);
    check_uint(device_bytes, >, (uint64_t)SMALL_MIB << 20);
    check_int(files_in(folder, "blocks-", path), ==, 1);
    const double layer = rates.forward_seconds[MODEL_BLOCK_LAYER];
    check_int(measure_rows(&made, &options, ROWS, SMALL_MIB, &rates), ==, 0);
    check_double(rates.forward_seconds[MODEL_BLOCK_LAYER], ==, layer);
    case_model_free(&made);
}

/* Measuring succeeds for a run that fits no machine; the planner refuses the run. */
static void what_cannot_fit_is_planned(void)
{
    struct case_model made;
    struct run_prepared *prepared = NULL;
    struct run_options options = case_options();
    options.io = "mem";
    case_model_make(&made, "llama");
    options.rows = 100000000; /* terabytes */
    options.budgets.joint_bytes = UINT64_C(64) << 20;
    device_bytes = 0;
    check_int(run_prepared_create(made.model, &options, NULL, &prepared), ==, -EFBIG);
    check_contains(core_err_message(), "cannot fit");
    check_uint(device_bytes, >, 0);
    check_uint(device_bytes, <=, UINT64_C(64) << 20);
    options.budgets.joint_bytes = UINT64_C(64) << 10; /* too little for one token's layer */
    device_count = 0;
    check_int(run_prepared_create(made.model, &options, NULL, &prepared), ==, -EFBIG);
    check_contains(core_err_message(), "cannot fit");
    check_int(device_count, ==, 1); /* only copies are measured */
    case_model_free(&made);
}

static void blocks_that_cannot_be_measured(void)
{
    struct case_model made;
    struct run_rates rates;
    struct run_options options = case_options();
    options.io = "mem";
    case_model_make(&made, "llama");
    check_int(measure_rows(&made, &options, CASE_ROWS, 64, &rates), ==, 0);
    const int all = device_count;
    check_int(all, >=, 3);
    for (device_fails = 1; device_fails <= all; device_fails++) {
        check_int(measure_rows(&made, &options, CASE_ROWS, 64, &rates), ==, -ENOMEM);
    }
    device_fails = 1;
    check_int(measure_rows(&made, &options, 4096, 16, &rates), ==, -ENOMEM);
    device_fails = 0;
    case_model_free(&made);
}

/* The weight of a store's path is the measured rate of its drive. */
static void stores_are_weighed(void)
{
    struct case_model made;
    struct run_shapes *shapes = NULL;
    struct run_rates rates;
    double weights[STORE_PATHS_MAX] = {0};
    struct run_options options = case_options();
    options.io = "mem";
    options.store_count = 2;
    case_model_make(&made, "llama");
    check_int(run_shapes_create(made.model, &options, &shapes), ==, 0);
    check_int(run_rates_measure(shapes, &options, &rates), ==, 0);
    check_double(rates.drive_bytes[0], >, 0);
    check_double(rates.drive_bytes[1], ==, rates.drive_bytes[0]);
    check_double(rates.machine.mixed_bytes, ==, 2 * rates.drive_bytes[0]);
    check_int(run_rates_weigh(shapes, &options, weights), ==, 0);
    check_double(weights[0], ==, rates.drive_bytes[0]);
    check_double(weights[1], ==, rates.drive_bytes[1]);
    options.io = NULL;
    options.stores[0] = (struct store_path){.directory = "/proc/no/drive"};
    check_int(run_rates_weigh(shapes, &options, weights), <, 0);
    run_shapes_destroy(shapes);
    case_model_free(&made);
}

TEST_MAIN({"parts_count_for_their_keys", parts_count_for_their_keys},
          {"slow_drives_are_measured_again", slow_drives_are_measured_again},
          {"slow_turns_do_not_count", slow_turns_do_not_count},
          {"folders_are_made_by_two", folders_are_made_by_two},
          {"machines_are_measured_once", machines_are_measured_once},
          {"drives_are_asked_once", drives_are_asked_once},
          {"measuring_takes_little", measuring_takes_little},
          {"updates_in_cache_are_reported", updates_in_cache_are_reported},
          {"blocks_are_measured_in_budgets", blocks_are_measured_in_budgets},
          {"what_cannot_fit_is_planned", what_cannot_fit_is_planned},
          {"blocks_that_cannot_be_measured", blocks_that_cannot_be_measured},
          {"stores_are_weighed", stores_are_weighed})
