/* rates.c: finds rates in the cache, or measures and caches them. */
#include "offload/run/rates.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "core/base/cpus.h"
#include "core/base/hash.h"
#include "core/base/sysfile.h"
#include "core/dev/dev.h"
#include "offload/run/measure.h"

enum { KEY_BYTES = 1024, MACHINE_BYTES = 448, CPU_FLAGS_BYTES = 64, CPUINFO_BYTES = 2048 };

static const double memory_bytes_per_s = 8e9; /* rate of a drive in memory */
static const double command_seconds = 3e-6;

/* ---- cache keys: what the numbers depend on ---- */

/* Names a GPU by its description, because another GPU may get the same number. */
static void name_device(const struct run_options *options, char out[DEV_DESCRIPTION_BYTES])
{
    struct dev_device *device = NULL;
    snprintf(out, DEV_DESCRIPTION_BYTES, "%s", options->device);
    if (options->cache.folder == NULL || dev_is_cpu(options->device)) {
        return; /* name_machine puts the processor into the key */
    }
    const struct dev_options least = {.memory_bytes = DEV_ALIGN_BYTES};
    if (dev_open(options->device, &least, &device) == 0) {
        snprintf(out, DEV_DESCRIPTION_BYTES, "%s", dev_properties(device)->description);
    }
    dev_close(device);
}

/* For example "tide 0.1 (commit); AMD EPYC; avx2; 2 threads; cpu". */
static void name_machine(const struct run_options *options, char out[MACHINE_BYTES])
{
    char device[DEV_DESCRIPTION_BYTES];
    char text[CPUINFO_BYTES];
    char flags[CPU_FLAGS_BYTES];
    const char *name = "";
    if (core_sysfile_text(text, sizeof text, "", "/proc/cpuinfo") > 0) {
        char *line = strstr(text, "model name");
        char *colon = line != NULL ? strchr(line, ':') : NULL;
        if (colon != NULL) {
            colon[strcspn(colon, "\n")] = '\0';
            name = colon + 1 + strspn(colon + 1, " ");
        }
    }
    name_device(options, device);
    snprintf(out, MACHINE_BYTES, "%.95s; %.96s; %s; %u threads; %.127s",
             options->cache.build != NULL ? options->cache.build : "", name,
             core_cpu_flags_print(core_cpu_flags(CORE_CPU_ALL), flags, sizeof flags),
             options->threads, device);
}

static void name_update(const struct run_shapes *shapes, const struct run_options *options,
                        char key[KEY_BYTES])
{
    char machine[MACHINE_BYTES];
    name_machine(options, machine);
    snprintf(key, KEY_BYTES,
             "%s; %u ranks%s, %u here, %u within, type %d, rule %d, moments %d, fp32 gradients %d, "
             "base %d, "
             "%u drives, "
             "spare %d MiB",
             machine, options->world > 1 ? options->world : 1,
             options->coll_bytes > 0 ? " as processes" : "", options->local, options->within,
             (int)options->type, (int)options->rule, (int)options->moments, options->gradients_fp32,
             (int)options->base, options->store_count,
             (int)(run_measure_spare(shapes, options) >> 20));
}

static void name_blocks(const struct run_shapes *shapes, const struct run_options *options,
                        char key[KEY_BYTES])
{
    char machine[MACHINE_BYTES];
    const uint32_t count = shapes->model->block_count;
    uint64_t hash = core_hash(&shapes->scratch_bytes, sizeof shapes->scratch_bytes, 0);
    for (uint32_t b = 0; b < count; b++) {
        const struct plan_block_shape *block = &shapes->blocks[b];
        const uint64_t sizes[] = {block->elements,      block->shared_elements,
                                  block->kept_bytes,    block->out_bytes,
                                  block->forward_bytes, (uint64_t)block->forward_flops,
                                  block->trained};
        hash = core_hash(sizes, sizeof sizes, hash);
    }
    name_machine(options, machine);
    snprintf(key, KEY_BYTES,
             "%s; %s, %u blocks %016" PRIx64 "; type %d, %" PRId64 " rows of %" PRId64
             " tokens (%" PRId64 "), tiles of %" PRIu64,
             machine, shapes->model->config.family->name, count, hash, (int)options->type,
             options->rows, options->length, options->row_length, options->tile_bytes);
}

static void name_drive(const struct run_shapes *shapes, const struct run_options *options,
                       const char *directory, char key[KEY_BYTES])
{
    char path[RUN_RATES_PATH_BYTES];
    struct stat info = {0};
    struct statvfs disk = {0};
    run_rates_nearest(directory, path);
    (void)stat(path, &info);
    (void)statvfs(path, &disk);
    snprintf(key, KEY_BYTES,
             "%.95s; device %" PRIu64 ", %" PRIu64 " blocks of %lu; I/O %s; %" PRIu64
             " MiB; spare %d MiB",
             options->cache.build != NULL ? options->cache.build : "", (uint64_t)info.st_dev,
             (uint64_t)disk.f_blocks, disk.f_frsize, options->io != NULL ? options->io : "probed",
             run_measure_file_bytes(shapes, options) >> 20,
             (int)(run_measure_spare(shapes, options) >> 20));
}

/* ---- measuring one kind of rates ---- */

static bool is_cached(const struct run_options *options, const struct run_rates_cached *cached,
                      void *rates)
{
    return !options->cache.renew && run_rates_cache_read(cached, rates);
}

static int find_drive(const struct run_shapes *shapes, const struct run_options *options,
                      const char *directory, struct run_drive_rates *out)
{
    char key[KEY_BYTES];
    const struct run_rates_cached cached = {options->cache.folder, key, RUN_RATES_DRIVE};
    bool steady = false;
    name_drive(shapes, options, directory, key);
    if (is_cached(options, &cached, out)) {
        return 0;
    }
    int rc = run_measure_drive(shapes, options, directory, out, &steady);
    if (rc == 0 && steady) {
        run_rates_cache_write(&cached, out);
    }
    return rc;
}

static int find_update(const struct run_shapes *shapes, const struct run_options *options,
                       struct run_rates *out)
{
    char key[KEY_BYTES];
    const struct run_rates_cached cached = {options->cache.folder, key, RUN_RATES_UPDATE};
    name_update(shapes, options, key);
    if (is_cached(options, &cached, out)) {
        return 0;
    }
    int rc = run_measure_copies(shapes, options, &out->machine);
    if (rc != 0) {
        return rc;
    }
    rc = run_measure_update(shapes, options, &out->machine);
    if (rc != 0) {
        return rc;
    }
    rc = run_measure_card(shapes, options, &out->machine);
    if (rc == 0) {
        rc = run_measure_expand(shapes, options, &out->machine);
    }
    if (rc == 0) {
        run_rates_cache_write(&cached, out);
    }
    return rc;
}

static int find_blocks(const struct run_shapes *shapes, const struct run_options *options,
                       struct run_rates *out)
{
    char key[KEY_BYTES];
    const struct run_rates_cached cached = {options->cache.folder, key, RUN_RATES_BLOCKS};
    bool whole = false;
    name_blocks(shapes, options, key);
    if (is_cached(options, &cached, out)) {
        return 0;
    }
    int rc = run_measure_blocks(shapes, options, out, &whole);
    if (rc == 0 && whole) {
        run_rates_cache_write(&cached, out);
    }
    return rc;
}

/* ---- drives ---- */

/* Skips stores in memory or on an aio_mem_disk. */
static int find_each_drive(const struct run_shapes *shapes, const struct run_options *options,
                           struct run_drive_rates *each)
{
    const bool memory = options->io != NULL && strcmp(options->io, "mem") == 0;
    for (unsigned i = 0; i < options->store_count; i++) {
        const struct store_path *path = &options->stores[i];
        each[i] = (struct run_drive_rates){memory_bytes_per_s, memory_bytes_per_s,
                                           memory_bytes_per_s, 0, 0};
        int rc = memory || path->disk != NULL
                     ? 0
                     : find_drive(shapes, options, path->directory, &each[i]);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

int run_rates_weigh(const struct run_shapes *shapes, const struct run_options *options,
                    double drive_bytes[STORE_PATHS_MAX])
{
    struct run_drive_rates each[STORE_PATHS_MAX];
    int rc = find_each_drive(shapes, options, each);
    for (unsigned i = 0; rc == 0 && i < options->store_count; i++) {
        drive_bytes[i] = each[i].mixed_bytes;
    }
    return rc;
}

/* Returns the cores that the drives' threads can keep busy. */
static double drive_cores(const struct run_options *options)
{
    const unsigned drives = options->store_count > 0 ? options->store_count : 1;
    return drives < options->threads ? drives : options->threads;
}

static int find_drives(const struct run_shapes *shapes, const struct run_options *options,
                       struct run_rates *rates)
{
    struct run_drive_rates each[STORE_PATHS_MAX];
    struct plan_rates *out = &rates->machine;
    double cpu = 0; /* cores busy for all drives together */
    int rc = find_each_drive(shapes, options, each);
    if (rc != 0) {
        return rc;
    }
    for (unsigned i = 0; i < options->store_count; i++) {
        rates->drive_bytes[i] = each[i].mixed_bytes;
        out->read_bytes += each[i].read_bytes;
        out->write_bytes += each[i].write_bytes;
        out->mixed_bytes += each[i].mixed_bytes;
        out->window_bytes += each[i].window_bytes;
        cpu += each[i].mixed_bytes * each[i].cpu_ns_per_byte * 1e-9;
    }
    out->io_bytes = cpu > 0 ? out->mixed_bytes / cpu * drive_cores(options) : 0;
    if (options->store_count == 0) { /* no drive is used */
        out->read_bytes = out->write_bytes = out->mixed_bytes = memory_bytes_per_s;
    }
    return 0;
}

/* ---- measuring all rates ---- */

int run_rates_measure(const struct run_shapes *shapes, const struct run_options *options,
                      struct run_rates *out)
{
    struct run_rates rates = {.machine = {.command_seconds = command_seconds}};
    int rc = find_drives(shapes, options, &rates);
    if (rc != 0) {
        return rc;
    }
    rc = find_update(shapes, options, &rates);
    if (rc != 0) {
        return rc;
    }
    rc = shapes->model != NULL ? find_blocks(shapes, options, &rates) : 0;
    if (rc == 0) {
        *out = rates;
    }
    return rc;
}

void run_rates_forget(const struct run_shapes *shapes, const struct run_options *options)
{
    char key[KEY_BYTES];
    struct run_rates_cached cached = {options->cache.folder, key, RUN_RATES_BLOCKS};
    name_blocks(shapes, options, key);
    run_rates_cache_forget(&cached);
    cached.part = RUN_RATES_UPDATE;
    name_update(shapes, options, key);
    run_rates_cache_forget(&cached);
    cached.part = RUN_RATES_DRIVE;
    for (unsigned i = 0; i < options->store_count; i++) {
        name_drive(shapes, options, options->stores[i].directory, key);
        run_rates_cache_forget(&cached);
    }
}
