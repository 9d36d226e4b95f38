/* rates.c: what a machine does, part by part: what an earlier run has kept of it counts, the rest is
 * measured and kept. */
#include "offload/run/rates.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "core/base/clock.h"
#include "core/base/cpus.h"
#include "core/base/hash.h"
#include "core/base/kfile.h"
#include "core/dev/dev.h"
#include "offload/run/rates_cache.h"
#include "offload/run/rates_parts.h"

enum { KEY_BYTES = 1024, MACHINE_BYTES = 448, CPU_FLAGS_BYTES = 64, CPUINFO_BYTES = 2048 };

static const uint64_t file_bytes_min = UINT64_C(64) << 20;
static const uint64_t file_bytes_max = UINT64_C(4) << 30;
static const double memory_bytes_per_s = 8e9; /* of a drive that is memory */
static const double command_seconds = 3e-6;

/* What measuring takes at most, but for the update's arrays; of a model that is smaller than that, what a run of it takes, too. */
static const uint64_t spare_bytes_max = UINT64_C(256) << 20;
static const uint64_t small_bytes = UINT64_C(16) << 20;

double run_rates_since(int64_t start_ns)
{
    return (double)(core_clock_now_ns() - start_ns) * 1e-9;
}

/* Weights and states of all blocks. */
static uint64_t kept_bytes(const struct run_shapes *shapes, const struct run_options *options)
{
    const struct plan_format format = run_options_format(options);
    uint64_t bytes = 0;
    for (uint32_t b = 0; b < shapes->model->block_count; b++) {
        const uint64_t elements = shapes->blocks[b].elements;
        bytes += elements * format.weight_bytes +
                 (shapes->blocks[b].trained ? plan_state_bytes(&format, elements) : 0);
    }
    return bytes;
}

uint64_t run_rates_file_bytes(const struct run_shapes *shapes, const struct run_options *options)
{
    const uint64_t bytes = kept_bytes(shapes, options);
    uint64_t file = file_bytes_min;
    while (file < bytes && file < file_bytes_max) {
        file *= 2;
    }
    return file;
}

uint64_t run_rates_budget(const struct run_options *options)
{
    const struct plan_budgets *budgets = &options->budgets;
    const uint64_t bytes = budgets->host_bytes + budgets->device_bytes;
    const bool joint = budgets->joint_bytes > 0 && budgets->joint_bytes < bytes;
    return joint ? budgets->joint_bytes : bytes;
}

uint64_t run_rates_spare(const struct run_shapes *shapes, const struct run_options *options)
{
    return run_rates_spare_within(shapes, options, spare_bytes_max);
}

uint64_t run_rates_spare_within(const struct run_shapes *shapes, const struct run_options *options,
                                uint64_t limit)
{
    const uint64_t most = run_rates_within(kept_bytes(shapes, options) / 6 + small_bytes, 0, limit);
    const uint64_t budget = run_rates_budget(options) / 4;
    uint64_t spare = limit;
    while (spare > most && spare > small_bytes) {
        spare /= 2;
    }
    return spare < budget ? spare : budget;
}

uint64_t run_rates_within(uint64_t value, uint64_t least, uint64_t most)
{
    return value < least ? least : value > most ? most : value;
}

/* ---- what numbers depend on ---- */

/* Which card it is: one that takes another's place keeps its number. */
static void name_device(const struct run_options *options, char out[DEV_DESCRIPTION_BYTES])
{
    struct dev_device *device = NULL;
    snprintf(out, DEV_DESCRIPTION_BYTES, "%s", options->device);
    if (options->cache.folder == NULL || strcmp(options->device, "cpu") == 0) {
        return; /* its processor is named anyway */
    }
    const struct dev_options least = {.memory_bytes = DEV_ALIGN_BYTES};
    if (dev_open(options->device, &least, &device) == 0) {
        snprintf(out, DEV_DESCRIPTION_BYTES, "%s", dev_properties(device)->description);
    }
    dev_close(device);
}

/* "tide 0.1 (commit); AMD EPYC; avx2; 2 threads; cpu". */
static void name_machine(const struct run_options *options, char out[MACHINE_BYTES])
{
    char device[DEV_DESCRIPTION_BYTES];
    char text[CPUINFO_BYTES];
    char flags[CPU_FLAGS_BYTES];
    const char *name = "";
    if (core_kfile_text(text, sizeof text, "", "/proc/cpuinfo") > 0) {
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
             "%s; type %d, rule %d, moments %d, fp32 gradients %d, %u drives, spare %d MiB",
             machine, (int)options->type, (int)options->rule, (int)options->moments,
             options->gradients_fp32, options->store_count,
             (int)(run_rates_spare(shapes, options) >> 20));
}

static void name_blocks(const struct run_shapes *shapes, const struct run_options *options,
                        char key[KEY_BYTES])
{
    char machine[MACHINE_BYTES];
    const uint32_t count = shapes->model->block_count;
    uint64_t hash = 0;
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
             " tokens, tiles of %" PRIu64,
             machine, shapes->model->config.family->name, count, hash, (int)options->type,
             options->rows, options->length, options->tile_bytes);
}

/* The device and the size of its file system. */
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
             run_rates_file_bytes(shapes, options) >> 20,
             (int)(run_rates_spare(shapes, options) >> 20));
}

/* ---- the parts ---- */

static bool known(const struct run_options *options, const struct run_cache_part *part)
{
    return !options->cache.renew && run_cache_read(part);
}

static int find_drive(const struct run_shapes *shapes, const struct run_options *options,
                      const char *directory, struct run_drive_rates *out)
{
    char key[KEY_BYTES];
    const struct run_cache_number numbers[] = {
        {"read_bytes_per_second", &out->read_bytes},
        {"write_bytes_per_second", &out->write_bytes},
        {"mixed_bytes_per_second", &out->mixed_bytes},
        {"cpu_ns_per_byte", &out->cpu_ns_per_byte},
        {"window_bytes", &out->window_bytes},
    };
    const struct run_cache_part part = {.folder = options->cache.folder,
                                        .kind = "drive",
                                        .key = key,
                                        .numbers = numbers,
                                        .count = sizeof numbers / sizeof numbers[0]};
    name_drive(shapes, options, directory, key);
    if (known(options, &part)) {
        return 0;
    }
    bool steady = false;
    int rc = run_rates_drive(shapes, options, directory, out, &steady);
    if (rc == 0 && steady) {
        run_cache_write(&part);
    }
    return rc;
}

/* What each store's drive does; of memory what memory does. */
static int find_each(const struct run_shapes *shapes, const struct run_options *options,
                     struct run_drive_rates *each)
{
    const bool memory = options->io != NULL && strcmp(options->io, "mem") == 0;
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < options->store_count; i++) {
        const struct store_path *path = &options->stores[i];
        each[i] = (struct run_drive_rates){memory_bytes_per_s, memory_bytes_per_s,
                                           memory_bytes_per_s, 0, 0};
        rc = memory || path->disk != NULL ? 0
                                          : find_drive(shapes, options, path->directory, &each[i]);
    }
    return rc;
}

int run_rates_weigh(const struct run_shapes *shapes, const struct run_options *options,
                    double drive_bytes[STORE_PATHS_MAX])
{
    struct run_drive_rates each[STORE_PATHS_MAX];
    int rc = find_each(shapes, options, each);
    for (unsigned i = 0; rc == 0 && i < options->store_count; i++) {
        drive_bytes[i] = each[i].mixed_bytes;
    }
    return rc;
}

/* Cores that drives' threads, one a drive, can keep busy. */
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
    double cpu = 0; /* processors that all drives at once keep busy */
    int rc = find_each(shapes, options, each);
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
    if (options->store_count == 0) { /* nothing will be asked of them */
        out->read_bytes = out->write_bytes = out->mixed_bytes = memory_bytes_per_s;
    }
    return 0;
}

static int find_update(const struct run_shapes *shapes, const struct run_options *options,
                       struct plan_rates *out)
{
    char key[KEY_BYTES];
    double shared = 0;
    const struct run_cache_number numbers[] = {
        {"update_elements_per_second", &out->update_elements},
        {"sums_elements_per_second", &out->sums_elements},
        {"up_bytes_per_second", &out->up_bytes},
        {"down_bytes_per_second", &out->down_bytes},
        {"both_bytes_per_second", &out->both_bytes},
        {"memory_bytes_per_second", &out->memory_bytes},
        {"round_elements_per_second", &out->round_elements},
        {"coll_bytes_per_second", &out->coll_bytes},
        {"card_update_elements_per_second", &out->card_update_elements},
        {"card_sums_elements_per_second", &out->card_sums_elements},
        {"shared_cores", &shared},
    };
    const struct run_cache_part part = {.folder = options->cache.folder,
                                        .kind = "update",
                                        .key = key,
                                        .numbers = numbers,
                                        .count = sizeof numbers / sizeof numbers[0]};
    name_update(shapes, options, key);
    if (known(options, &part)) {
        out->shared_cores = shared > 0;
        return 0;
    }
    int rc = run_rates_copies(shapes, options, out);
    rc = rc != 0 ? rc : run_rates_update(shapes, options, out);
    rc = rc != 0 ? rc : run_rates_card(shapes, options, out);
    if (rc == 0) {
        shared = out->shared_cores;
        run_cache_write(&part);
    }
    return rc;
}

static int find_blocks(const struct run_shapes *shapes, const struct run_options *options,
                       struct run_rates *out)
{
    char key[KEY_BYTES];
    const struct run_cache_number numbers[] = {
        {"flops_per_second", &out->machine.flops},
        {"embedding_forward", &out->forward_seconds[MODEL_BLOCK_EMBEDDING]},
        {"embedding_recompute", &out->recompute_seconds[MODEL_BLOCK_EMBEDDING]},
        {"embedding_backward", &out->backward_seconds[MODEL_BLOCK_EMBEDDING]},
        {"layer_forward", &out->forward_seconds[MODEL_BLOCK_LAYER]},
        {"layer_recompute", &out->recompute_seconds[MODEL_BLOCK_LAYER]},
        {"layer_backward", &out->backward_seconds[MODEL_BLOCK_LAYER]},
        {"head_forward", &out->forward_seconds[MODEL_BLOCK_HEAD]},
        {"head_recompute", &out->recompute_seconds[MODEL_BLOCK_HEAD]},
        {"head_backward", &out->backward_seconds[MODEL_BLOCK_HEAD]},
    };
    const struct run_cache_part part = {.folder = options->cache.folder,
                                        .kind = "blocks",
                                        .key = key,
                                        .numbers = numbers,
                                        .count = sizeof numbers / sizeof numbers[0]};
    name_blocks(shapes, options, key);
    if (known(options, &part)) {
        return 0;
    }
    bool whole = false;
    int rc = run_rates_blocks(shapes, options, out, &whole);
    if (rc == 0 && whole) {
        run_cache_write(&part);
    }
    return rc;
}

int run_rates_measure(const struct run_shapes *shapes, const struct run_options *options,
                      struct run_rates *out)
{
    struct run_rates rates = {.machine = {.command_seconds = command_seconds}};
    int rc = find_drives(shapes, options, &rates);
    rc = rc != 0 ? rc : find_update(shapes, options, &rates.machine);
    rc = rc != 0 ? rc : find_blocks(shapes, options, &rates);
    if (rc == 0) {
        *out = rates;
    }
    return rc;
}

void run_rates_forget(const struct run_shapes *shapes, const struct run_options *options)
{
    char key[KEY_BYTES];
    struct run_cache_part part = {.folder = options->cache.folder, .key = key};
    part.kind = "blocks";
    name_blocks(shapes, options, key);
    run_cache_forget(&part);
    part.kind = "update";
    name_update(shapes, options, key);
    run_cache_forget(&part);
    part.kind = "drive";
    for (unsigned i = 0; i < options->store_count; i++) {
        name_drive(shapes, options, options->stores[i].directory, key);
        run_cache_forget(&part);
    }
}
