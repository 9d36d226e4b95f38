/* setup.c: turns public options into those of the modules below, and makes the plan. */
#include "offload/api/setup.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/mem_limits.h"
#include "core/coll/coll.h"
#include "core/dev/dev.h"
#include "offload/api/abi.h"
#include "offload/api/build.h"
#include "offload/api/world_parts.h"
#include "offload/model/config_read.h"
#include "offload/run/checkpoint.h"
#include "offload/run/machine.h"
#include "offload/run/measure.h"
#include "offload/run/remote.h"
#include "offload/run/runtime.h"

/* Left to other programs if no budget is given. */
static const uint64_t reserve_bytes = UINT64_C(1) << 30;

/* The process's own memory differs by less than this from one start to the next. */
static const uint64_t advice_spare_bytes = UINT64_C(2) << 20;

/* Without budgets, a plan may be slower by this share of the fastest step's time to use less memory. */
static const double thrift = 0.05;

static const enum plan_where places[] = {[TIDE_AUTO] = PLAN_WHERE_AUTO,
                                         [TIDE_DEVICE] = PLAN_WHERE_DEVICE,
                                         [TIDE_HOST] = PLAN_WHERE_HOST,
                                         [TIDE_STORE] = PLAN_WHERE_STORE};

/* ---- options ---- */

enum core_update_rule setup_rule(uint32_t optimizer)
{
    static const enum core_update_rule rules[] = {[TIDE_ADAMW] = CORE_UPDATE_ADAMW,
                                                  [TIDE_ADAM] = CORE_UPDATE_ADAM,
                                                  [TIDE_LION] = CORE_UPDATE_LION,
                                                  [TIDE_ADAGRAD] = CORE_UPDATE_ADAGRAD,
                                                  [TIDE_SGD] = CORE_UPDATE_SGD};
    return rules[optimizer];
}

enum core_update_type setup_moments(uint32_t moments)
{
    static const enum core_update_type types[] = {[TIDE_MOMENTS_FP32] = CORE_UPDATE_F32,
                                                  [TIDE_MOMENTS_BF16] = CORE_UPDATE_BF16,
                                                  [TIDE_MOMENTS_8BIT] = CORE_UPDATE_Q8};
    return types[moments];
}

static void fill_training(const struct tide_engine_options *given, struct run_options *out)
{
    static const enum model_storage bases[] = {[TIDE_BASE_PLAIN] = MODEL_STORAGE_PLAIN,
                                               [TIDE_BASE_BF16] = MODEL_STORAGE_BF16,
                                               [TIDE_BASE_INT8] = MODEL_STORAGE_INT8,
                                               [TIDE_BASE_NF4] = MODEL_STORAGE_NF4};
    static const enum kern_type types[] = {
        [TIDE_BF16] = KERN_BF16, [TIDE_FP16] = KERN_FP16, [TIDE_FP32] = KERN_F32};
    out->seed = given->seed;
    out->pairs = given->loss == TIDE_LOSS_DPO ? given->batch : 0;
    out->rows = out->pairs > 0 ? 2 * out->pairs : given->batch;
    out->beta = given->dpo_beta > 0 ? given->dpo_beta : 0.1;
    out->length = given->length;
    if (out->pairs > 0) {
        const int64_t both = given->pair_length > 0 ? (int64_t)given->pair_length : 2 * out->length;
        out->row_length = out->length;
        out->length = both > out->row_length ? both : out->row_length;
    }
    out->micro_batches = given->accum > 0 ? given->accum : 1;
    out->tile_bytes = given->tile_bytes;
    out->type = types[given->precision];
    out->rule = setup_rule(given->optimizer);
    out->moments = setup_moments(given->moments);
    out->base = bases[given->base];
    out->keep_base = given->no_keep_base == 0;
    out->gradients_fp32 = given->gradients_fp32 != 0;
    out->group = (struct adam_group){.beta1 = given->beta1,
                                     .beta2 = given->beta2,
                                     .eps = given->eps,
                                     .decay = given->decay,
                                     .bias_correction = given->no_bias_correction == 0};
    out->decay_all = given->decay_all != 0;
    out->clip = given->clip;
    out->straggler = given->straggler;
    out->numa_off = given->numa_off != 0;
    out->may_skip = out->type == KERN_FP16 || given->check_overflow != 0;
    out->scale = (struct run_scale_options){
        .fixed = given->loss_scale,
        .first = given->initial_loss_scale > 0 ? given->initial_loss_scale : SETUP_FIRST_SCALE,
        .least = given->min_loss_scale > 0 ? given->min_loss_scale : SETUP_LEAST_SCALE,
        .window = given->scale_window > 0 ? given->scale_window : 1000,
        .hysteresis = given->hysteresis > 0 ? given->hysteresis : 2,
        .consecutive_hysteresis = given->consecutive_hysteresis != 0,
    };
}

static void fill_wishes(const struct tide_engine_options *given, struct plan_wishes *out)
{
    static const enum plan_acts acts[] = {[TIDE_ACTS_AUTO] = PLAN_ACTS_AUTO,
                                          [TIDE_ACTS_KEEP] = PLAN_ACTS_KEEP,
                                          [TIDE_ACTS_RECOMPUTE] = PLAN_ACTS_RECOMPUTE,
                                          [TIDE_ACTS_HOST] = PLAN_ACTS_HOST,
                                          [TIDE_ACTS_STORE] = PLAN_ACTS_STORE};
    static const enum plan_order orders[] = {[TIDE_ORDER_AUTO] = PLAN_ORDER_AUTO,
                                             [TIDE_ORDER_LAYER] = PLAN_ORDER_LAYER,
                                             [TIDE_ORDER_MICRO] = PLAN_ORDER_MICRO};
    static const enum plan_timing timings[] = {[TIDE_TIMING_AUTO] = PLAN_TIMING_AUTO,
                                               [TIDE_TIMING_DEFERRED] = PLAN_TIMING_DEFERRED,
                                               [TIDE_TIMING_INSIDE] = PLAN_TIMING_INSIDE,
                                               [TIDE_TIMING_SPLIT] = PLAN_TIMING_SPLIT,
                                               [TIDE_TIMING_SPECULATIVE] = PLAN_TIMING_SPECULATIVE};
    *out = (struct plan_wishes){
        .acts = acts[given->acts],
        .order = orders[given->order],
        .timing = timings[given->timing],
        .weights = places[given->weights],
        .states = places[given->states],
        .grads = places[given->grads],
        .weight_slots = given->weight_slots,
        .state_slots = given->state_slots,
        .chunk_elements = given->chunk_elements,
        .thrift = given->device_bytes == 0 && given->host_bytes == 0 && given->machine == NULL
                      ? thrift
                      : 0,
        .saves = given->saves != 0,
        .may_split = true,
    };
}

/* ---- budgets ---- */

/* The file system of a store's directory; the directory may not exist yet. */
struct disk {
    dev_t device; /* of the file system */
    uint64_t free_bytes;
};

static int look_at(const char *directory, struct disk *out)
{
    char path[RUN_RATES_PATH_BYTES];
    struct statvfs disk;
    struct stat info;
    if (strlen(directory) >= sizeof path) {
        return core_err_set(-ENAMETOOLONG, "the path of the store's directory %.64s... is too long",
                            directory);
    }
    run_rates_nearest(directory, path);
    if (statvfs(path, &disk) != 0 || stat(path, &info) != 0) {
        return core_err_set(-errno, "the store's directory %s: %s", directory, strerror(errno));
    }
    *out = (struct disk){.device = info.st_dev,
                         .free_bytes = (uint64_t)disk.f_bavail * disk.f_frsize};
    return 0;
}

/* Limits of the paths that share a file system with one path. */
struct disk_use {
    uint32_t first;       /* the first of these paths */
    uint32_t unlimited;   /* paths without a limit of their own */
    uint64_t limit_bytes; /* the sum of the others' limits */
};

static struct disk_use disk_use_of(const struct tide_engine_options *given,
                                   const struct disk *disks, uint32_t index)
{
    struct disk_use use = {.first = index};
    for (uint32_t i = (uint32_t)given->store_count; i-- > 0;) {
        const uint64_t bytes = given->stores[i].bytes;
        if (disks[i].device == disks[index].device) {
            use.first = i;
            use.unlimited += bytes == 0;
            use.limit_bytes = bytes > UINT64_MAX - use.limit_bytes ? UINT64_MAX
                                                                   : use.limit_bytes + bytes;
        }
    }
    return use;
}

/* Bytes for a path without a limit of its own: what is free, less the reserve and the limits of other
 * paths on the same file system, in equal parts. 0: nothing is left. */
static uint64_t free_share(uint64_t free_bytes, const struct disk_use *use)
{
    const uint64_t left = free_bytes > reserve_bytes ? free_bytes - reserve_bytes : 0;
    return left > use->limit_bytes ? (left - use->limit_bytes) / use->unlimited : 0;
}

/* The bytes that a path may use. A given limit is not reduced to what is free now, because files of an
 * earlier run may be removed first. */
static int path_bytes(const struct tide_engine_options *given, const struct disk *disks,
                      uint32_t index, uint64_t *out)
{
    const struct tide_store_path *path = &given->stores[index];
    const uint64_t free_bytes = disks[index].free_bytes;
    const struct disk_use use = disk_use_of(given, disks, index);
    if (path->bytes == 0) {
        *out = free_share(free_bytes, &use);
        return *out > 0
                   ? 0
                   : core_err_set(
                         -EFBIG,
                         "the store's directory %s: its file system has %" PRIu64
                         " MiB free, and tide leaves %" PRIu64
                         " MiB free for others; free some space, or set the limit: --store %s:SIZE",
                         path->directory, free_bytes >> 20, reserve_bytes >> 20, path->directory);
    }
    *out = path->bytes;
    if (path->bytes > free_bytes) {
        core_log(CORE_LOG_WARN,
                 "%s has only %" PRIu64 " bytes free of the %" PRIu64 " bytes of its limit",
                 path->directory, free_bytes, path->bytes);
    } else if (use.limit_bytes > free_bytes && use.first == index) {
        core_log(CORE_LOG_WARN,
                 "%s has only %" PRIu64 " bytes free of the %" PRIu64
                 " bytes of the limits of all directories on its file system",
                 path->directory, free_bytes, use.limit_bytes);
    }
    return 0;
}

/* Copies the caller's array, whose elements may have another size than the library's. */
static int read_stores(struct setup *setup)
{
    const size_t count = setup->given.store_count;
    if (count > TIDE_STORES_MAX) {
        return core_err_set(-EINVAL, "store_count is %zu; 0 to %d are possible", count,
                            TIDE_STORES_MAX);
    }
    for (size_t i = 0; i < count; i++) {
        int rc = abi_struct_read_at("tide_store_path", setup->given.stores, i, &setup->stores[i],
                                    sizeof setup->stores[i]);
        if (rc != 0) {
            return core_err_prefix(rc, "store %zu", i);
        }
    }
    setup->given.stores = setup->stores;
    return 0;
}

enum { STORE_PATH_BYTES = 4096 };

/* A missing directory may be the mount point of a drive that is not mounted; the run would then fill and
 * wear the disk below it. */
static int check_missing(const char *directory)
{
    char parent[STORE_PATH_BYTES];
    char above[STORE_PATH_BYTES + 4];
    struct stat info;
    struct stat top;
    if (stat(directory, &info) == 0 || errno != ENOENT) {
        return 0; /* it exists, or opening it reports why not */
    }
    snprintf(parent, sizeof parent, "%s", directory);
    for (size_t end = strlen(parent); end > 1 && parent[end - 1] == '/'; end--) {
        parent[end - 1] = '\0';
    }
    char *slash = strrchr(parent, '/');
    if (slash != NULL && slash != parent) {
        *slash = '\0';
    } else {
        snprintf(parent, sizeof parent, slash == NULL ? "." : "/");
    }
    snprintf(above, sizeof above, "%s/..", parent);
    if (stat(parent, &info) == 0 && stat(above, &top) == 0 && info.st_dev != top.st_dev) {
        return 0;
    }
    return core_err_set(
        -ENOENT,
        "the store's directory %s does not exist, and no file system is mounted at %s; mount the "
        "drive, create the directory (mkdir %s), or let tide create it (--make-store)",
        directory, parent, directory);
}

static int fill_stores(struct setup *setup, bool makes)
{
    const struct tide_engine_options *given = &setup->given;
    struct run_options *options = &setup->options;
    const bool memory = given->io != NULL && strcmp(given->io, "mem") == 0;
    struct disk disks[TIDE_STORES_MAX] = {{0}};
    for (uint32_t i = 0; i < given->store_count; i++) {
        const char *directory = given->stores[i].directory;
        if (directory == NULL || directory[0] == '\0') {
            return core_err_set(-EINVAL, "store %" PRIu32 " has no directory", i);
        }
        if (memory) {
            continue;
        }
        int rc = makes && given->stores_must_exist != 0 ? check_missing(directory) : 0;
        if (rc != 0) {
            return rc;
        }
        rc = look_at(directory, &disks[i]);
        if (rc != 0) {
            return rc;
        }
    }
    for (uint32_t i = 0; i < given->store_count; i++) {
        uint64_t bytes = given->stores[i].bytes;
        int rc = memory ? 0 : path_bytes(given, disks, i, &bytes);
        if (rc != 0) {
            return rc;
        }
        options->stores[i] = (struct store_path){.directory = setup->texts[2 + i],
                                                 .bytes = bytes,
                                                 .weight = given->store_count == 1 ? 1 : 0};
    }
    options->store_count = (unsigned)given->store_count;
    return 0;
}

/* Bytes of the `usable` ones that are left to other programs if no budget is given. */
static uint64_t spare_bytes(uint64_t usable)
{
    return usable > 4 * reserve_bytes ? reserve_bytes : usable / 16;
}

/* Sets budgets that were not given to what a node of the machine in the file has. */
static void take_machine_budgets(struct setup *setup)
{
    const struct run_machine *machine = &setup->machine;
    struct plan_budgets *budgets = &setup->options.budgets;
    const uint64_t host = (uint64_t)machine->host_bytes;
    const uint64_t usable = host - spare_bytes(host);
    const uint64_t card = (uint64_t)machine->device_bytes;
    const uint32_t local = setup->options.local;
    if (!machine->card && (budgets->device_bytes == 0 || budgets->host_bytes == 0)) {
        budgets->joint_bytes = usable;
    }
    if (budgets->device_bytes == 0) {
        budgets->device_bytes = machine->card ? (card - spare_bytes(card)) * local : usable;
    }
    if (budgets->host_bytes == 0) {
        budgets->host_bytes = usable;
    }
    setup->options.card_bytes = card;
}

static int fill_budgets(struct setup *setup)
{
    const struct tide_engine_options *given = &setup->given;
    struct plan_budgets *budgets = &setup->options.budgets;
    struct core_mem_limits limits;
    int rc = core_mem_limits("", &limits);
    if (rc != 0) {
        return rc;
    }
    const uint64_t used = run_runtime_used_bytes();
    const uint64_t usable = limits.usable_bytes + used;
    const uint64_t spare = spare_bytes(usable);
    budgets->device_is_host = dev_is_cpu(setup->options.device);
    budgets->host_data_bytes = given->application_bytes;
    budgets->host_taken_bytes = run_runtime_bytes(setup->model->block_count, &setup->options) +
                                given->application_bytes;
    budgets->advice_spare_bytes = advice_spare_bytes;
    budgets->device_bytes = given->device_bytes;
    budgets->host_bytes = given->host_bytes;
    if (given->machine != NULL) {
        take_machine_budgets(setup);
        return 0;
    }
    if (budgets->device_is_host) {
        if (given->device_bytes == 0 || given->host_bytes == 0) {
            budgets->joint_bytes = usable - spare;
        }
        if (given->device_bytes == 0) {
            budgets->device_bytes = usable - spare;
        }
    } else if (given->device_bytes == 0) {
        rc = run_runtime_card_bytes(setup->options.device, &budgets->device_bytes,
                                    &setup->options.card_bytes);
        if (rc != 0) {
            return rc;
        }
        if (budgets->device_bytes < setup->options.card_bytes / 2) {
            core_log(CORE_LOG_WARN,
                     "other programs use most of %s: %.1f of %.1f GB are free; the loss is planned "
                     "for the whole card, unless --device-memory gives a limit",
                     setup->options.device, (double)budgets->device_bytes / 1e9,
                     (double)setup->options.card_bytes / 1e9);
        }
        budgets->device_bytes *= setup->options.local; /* each rank has a card */
    }
    if (given->host_bytes == 0) {
        budgets->host_bytes = usable - spare;
    }
    if (given->device_bytes + given->host_bytes > limits.total_bytes && budgets->device_is_host) {
        core_log(CORE_LOG_WARN,
                 "the budgets of DEVICE and HOST, %" PRIu64 " and %" PRIu64
                 " bytes, exceed the machine's %" PRIu64,
                 given->device_bytes, given->host_bytes, limits.total_bytes);
    }
    return 0;
}

/* Budgets are for the process, or for a host or a node of the machine in a file; its ranks share them. What a
 * process takes before its plan is counted for each rank that is a process; the memory of the data is the first
 * one's. */
static void share_budgets(struct setup *setup, uint64_t given_store_bytes)
{
    struct run_options *options = &setup->options;
    struct plan_budgets *budgets = &options->budgets;
    uint64_t *const shared[] = {&budgets->device_bytes, &budgets->host_bytes, &budgets->joint_bytes,
                                &budgets->host_taken_bytes, &budgets->host_data_bytes};
    for (size_t i = 0; i < (setup->peers == NULL ? 5 : 3); i++) {
        *shared[i] /= options->local;
    }
    for (unsigned i = 0; i < options->store_count; i++) {
        const uint64_t all = options->stores[i].bytes;
        options->stores[i].bytes = all > 0 && all < options->local ? 1 : all / options->local;
    }
    budgets->store_bytes = given_store_bytes > 0
                               ? given_store_bytes / options->local
                               : store_capacity(options->stores, options->store_count);
}

/* ---- setup ---- */

static int copy_text(const char *from, char **out)
{
    if (from == NULL) {
        return 0;
    }
    *out = strdup(from);
    return *out != NULL ? 0 : core_err_set(-ENOMEM, "no memory for a name");
}

static int copy_texts(struct setup *setup)
{
    const struct tide_engine_options *given = &setup->given;
    int rc = copy_text(given->device != NULL ? given->device : "cpu", &setup->texts[0]);
    if (rc != 0) {
        return rc;
    }
    rc = copy_text(given->io, &setup->texts[1]);
    if (rc != 0) {
        return rc;
    }
    rc = copy_text(given->model, &setup->folder);
    if (rc != 0) {
        return rc;
    }
    rc = copy_text(given->trace, &setup->trace);
    if (rc != 0) {
        return rc;
    }
    rc = copy_text(given->cache, &setup->cache);
    if (rc != 0) {
        return rc;
    }
    for (size_t i = 0; i < given->store_count; i++) {
        rc = copy_text(given->stores[i].directory, &setup->texts[2 + i]);
        if (rc != 0) {
            return rc;
        }
    }
    setup->options.device = setup->texts[0];
    setup->options.io = setup->texts[1];
    snprintf(setup->build, sizeof setup->build, "tide %s %s", api_build_version, api_build_commit);
    setup->options.cache = (struct run_cache){
        .folder = setup->cache, .build = setup->build, .renew = given->measure != 0};
    return rc;
}

/* Takes the targets that are given. */
static void fill_targets(const struct tide_engine_options *given, struct model_lora_options *lora)
{
    const bool all = given->lora_target_count == 0 ||
                     (given->lora_target_count == 1 &&
                      strcmp(given->lora_targets[0], "all-linear") == 0);
    lora->targets = all ? NULL : given->lora_targets;
    lora->target_count = all ? 0 : given->lora_target_count;
}

/* The reference of pairs is the model without adapters, also for adapters that are continued. */
static int check_reference(const struct tide_engine_options *given,
                           const struct model_lora_options *lora)
{
    if (lora->saved_count > 0) {
        return core_err_set(
            -ENOTSUP,
            "%s has whole modules (modules_to_save), which --loss dpo cannot train: "
            "its reference is the model without adapters",
            given->adapter);
    }
    core_log(CORE_LOG_WARN,
             "--loss dpo: the reference is %s without adapters, not with those of %s; merge them "
             "into it (tide export --merge) for the other reference",
             given->model, given->adapter);
    return 0;
}

/* Opens the PEFT folder to begin with, and checks that no option contradicts it. */
static int open_adapter(struct setup *setup, struct model_lora_options *lora)
{
    const struct tide_engine_options *given = &setup->given;
    int rc = model_peft_open(given->adapter, &setup->peft);
    if (rc != 0) {
        return rc;
    }
    const struct model_peft *peft = setup->peft;
    const char *const file = MODEL_ADAPTER_CONFIG;
    if (given->lora_rank > 0 && given->lora_rank != peft->rank) {
        return core_err_set(-EINVAL, "--lora %" PRIu32 " contradicts \"r\": %" PRId64 " in %s/%s",
                            given->lora_rank, peft->rank, peft->folder, file);
    }
    if (given->lora_alpha > 0 &&
        (given->lora_alpha > peft->alpha || given->lora_alpha < peft->alpha)) {
        return core_err_set(-EINVAL, "--lora-alpha %g contradicts \"lora_alpha\": %g in %s/%s",
                            given->lora_alpha, peft->alpha, peft->folder, file);
    }
    if (given->lora_rslora != 0 && !peft->rslora) {
        return core_err_set(-EINVAL, "--lora-rslora contradicts \"use_rslora\": false in %s/%s",
                            peft->folder, file);
    }
    if (given->lora_dora != 0 && !peft->dora) {
        return core_err_set(-EINVAL, "--lora-dora contradicts \"use_dora\": false in %s/%s",
                            peft->folder, file);
    }
    if (fabs(peft->scale) < (double)FLT_MIN) {
        return core_err_set(-EINVAL,
                            "%s/%s: lora_alpha is %g: adapters that are multiplied by 0 learn "
                            "nothing",
                            peft->folder, file, peft->alpha);
    }
    model_peft_options(peft, lora);
    if (given->lora_dropout > 0) {
        lora->dropout = given->lora_dropout;
    }
    if (lora->dropout < 0 || lora->dropout > 0.999) {
        return core_err_set(-EINVAL, "%s/%s: lora_dropout is %g; expected 0 to 0.999", peft->folder,
                            file, lora->dropout);
    }
    if (given->lora_target_count > 0) {
        fill_targets(given, lora);
    }
    if (given->modules_to_save_count > 0) {
        lora->saved = given->modules_to_save;
        lora->saved_count = given->modules_to_save_count;
    }
    return given->loss == TIDE_LOSS_DPO ? check_reference(given, lora) : 0;
}

/* With both, PEFT computes the base's product a second time, from the inputs after dropout. */
static int check_dora(const struct model_lora_options *lora)
{
    return lora->dora && lora->dropout > 0
               ? core_err_set(-ENOTSUP, "DoRA cannot be combined with dropout (lora_dropout %g)",
                              lora->dropout)
               : 0;
}

static int create_model(struct setup *setup, const struct model_config *config)
{
    const struct tide_engine_options *given = &setup->given;
    const bool adapted = given->lora_rank > 0 || given->adapter != NULL;
    struct model_lora_options *lora = &setup->lora;
    *lora = (struct model_lora_options){
        .rank = given->lora_rank,
        .alpha = given->lora_alpha > 0 ? given->lora_alpha : 2.0 * given->lora_rank,
        .rslora = given->lora_rslora != 0,
        .dora = given->lora_dora != 0,
        .dropout = given->lora_dropout,
        .saved = given->modules_to_save,
        .saved_count = given->modules_to_save_count,
        .seed = given->seed,
    };
    setup->model_options = (struct model_options){.frozen = given->frozen,
                                                  .frozen_count = given->frozen_count,
                                                  .base_apart = setup->options.base !=
                                                                MODEL_STORAGE_PLAIN,
                                                  .lora = adapted ? lora : NULL};
    int rc = 0;
    if (given->adapter == NULL) {
        fill_targets(given, lora);
        rc = check_dora(lora);
        return rc == 0 ? model_create(config, &setup->model_options, &setup->model) : rc;
    }
    rc = open_adapter(setup, lora);
    if (rc == 0) {
        rc = check_dora(lora);
    }
    if (rc != 0) {
        return rc;
    }
    rc = model_create(config, &setup->model_options, &setup->model);
    return rc == 0 ? model_peft_check(setup->peft, setup->model)
                   : core_err_prefix(rc, "%s does not fit %s", given->adapter, given->model);
}

/* A base in fewer bits needs a layer, or a part of one, that is frozen. */
static int check_base(const struct setup *setup)
{
    const enum model_storage base = setup->options.base;
    const struct model *model = setup->model;
    for (unsigned b = 0; base != MODEL_STORAGE_PLAIN && b < model->block_count; b++) {
        if (model_stored_is_possible(model, &model->blocks[b])) {
            return 0;
        }
    }
    return base == MODEL_STORAGE_PLAIN
               ? 0
               : core_err_set(-EINVAL,
                              "--base %s is for frozen layers, and no part of a layer of %s is "
                              "frozen: train adapters (--lora R) or freeze layers (--freeze "
                              "PATTERN)",
                              model_storage_name(base), setup->given.model);
}

/* A quantised folder decides how its layers are kept, and only adapters can be trained on it. */
static int take_quantised(struct setup *setup, const struct model_config *config)
{
    const struct tide_engine_options *given = &setup->given;
    const enum model_storage base = model_stored_as(config->quant);
    const char *name = model_storage_name(base);
    if (base == MODEL_STORAGE_PLAIN) {
        return 0;
    }
    if (given->base != TIDE_BASE_PLAIN && setup->options.base != base) {
        return core_err_set(-EINVAL,
                            "--base %s: the weights of %s are quantised to %s already; leave out "
                            "--base, or give the model that they were made from",
                            model_storage_name(setup->options.base), given->model, name);
    }
    if (given->lora_rank == 0 && given->adapter == NULL) {
        return core_err_set(-EINVAL,
                            "the weights of %s are quantised (%s), and such weights cannot be "
                            "trained: train adapters (--lora R), or give the model that they were "
                            "made from, in 16 or 32 bits",
                            given->model, name);
    }
    setup->options.base = base;
    return 0;
}

/* Refuses to train quantised tensors whole. */
static int check_trained(const struct setup *setup)
{
    const struct model *model = setup->model;
    for (unsigned b = 0; b < model->block_count; b++) {
        const struct model_block *block = &model->blocks[b];
        for (unsigned i = 0; i < block->param_count; i++) {
            const struct model_param *param = &block->params[i];
            for (unsigned k = 0; param->trained && k < param->part_count; k++) {
                if (param->parts[k].quant != KERN_QUANT_NONE) {
                    return core_err_set(-EINVAL,
                                        "--modules-to-save matches %s, which is quantised in %s "
                                        "and cannot be trained",
                                        param->parts[k].name, setup->given.model);
                }
            }
        }
    }
    return 0;
}

static int open_model(struct setup *setup, bool weights)
{
    const struct tide_engine_options *given = &setup->given;
    struct model_config config;
    if (given->model == NULL) {
        return core_err_set(-EINVAL, "no model folder was given");
    }
    int rc = model_config_load(given->model, &config);
    if (rc != 0) {
        return rc;
    }
    if (config.dropouts[0] != '\0') {
        core_log(CORE_LOG_WARN, "%s/config.json: dropout is not applied (%s)", given->model,
                 config.dropouts);
    }
    rc = take_quantised(setup, &config);
    if (rc == 0) {
        rc = create_model(setup, &config);
    }
    if (rc == 0) {
        rc = check_trained(setup);
    }
    if (rc != 0) {
        return rc;
    }
    setup->options.lora = setup->model->lora;
    if (given->length > config.length_max) {
        return core_err_set(-EINVAL,
                            "rows of %" PRIu32 " tokens are longer than the %" PRId64
                            " positions that %s has",
                            given->length, config.length_max, given->model);
    }
    if (setup->model->trained_parameters == 0) {
        return core_err_set(-EINVAL, "every parameter of %s is frozen: there is nothing to train",
                            given->model);
    }
    rc = check_base(setup);
    if (rc != 0 || !weights) {
        return rc;
    }
    rc = model_files_open(given->model, &setup->files);
    if (rc != 0) {
        return rc;
    }
    model_stored_set_base(setup->files, setup->model, setup->options.base, setup->options.type);
    if (setup->peft != NULL) {
        model_files_add_adapter(setup->files, setup->peft);
    }
    return model_files_check(setup->files, setup->model);
}

/* Processors for the update's team. With a card, two are left to the threads that feed and watch it,
 * because a team is as slow as its slowest member. */
static unsigned processors(const char *device)
{
    enum { CARD_THREADS = 2, TEAM_MIN = 2 };
    struct core_cpus cpus;
    const unsigned all = core_cpus_allowed(&cpus) == 0 ? core_cpus_count(&cpus) : 1;
    const bool card = device != NULL && !dev_is_cpu(device);
    return card && all >= CARD_THREADS + TEAM_MIN ? all - CARD_THREADS : all;
}

/* Threads of one rank. Their number changes a run's bits, so a resumed run keeps it, unless the options
 * give another number, the number of ranks changed, or this machine has too few processors; resuming then
 * warns that bits differ. */
static unsigned threads_of(const struct setup *setup)
{
    const struct tide_engine_options *given = &setup->given;
    const uint32_t local = setup->options.local;
    const unsigned all = given->threads > 0       ? given->threads
                         : given->machine != NULL ? (unsigned)setup->machine.cores
                         : setup->peers != NULL   ? world_threads(setup->peers) * local
                                                  : processors(given->device);
    const unsigned each = all / local > 0 ? all / local : 1;
    const unsigned before = given->threads == 0 && given->resume != NULL
                                ? run_checkpoint_threads(given->resume, setup->options.world)
                                : 0;
    return before > 0 && (before == 1 || before * local <= all) ? before : each;
}

/* Sets the number of ranks: with several processes, the number of these. */
static int count_ranks(struct setup *setup)
{
    const struct tide_engine_options *given = &setup->given;
    setup->peers = given->world != NULL ? given->world->peers : NULL;
    setup->options.world = setup->options.local = given->ranks > 0 ? given->ranks : 1;
    if (setup->peers == NULL) {
        return 0;
    }
    const unsigned world = coll_peers_world(setup->peers);
    if (given->ranks > 1 && given->ranks != world) {
        return core_err_set(-EINVAL, "%u ranks were requested, but %s started %u processes",
                            given->ranks, given->world->launch.launcher, world);
    }
    setup->options.world = world;
    setup->options.local = world_ranks_per_host(setup->peers);
    setup->options.wishes.saves = false; /* states of other processes are read out */
    return 0;
}

/* Checks that each rank of this machine can have a card and that NCCL can connect them. */
static int check_cards(const struct setup *setup)
{
    const struct run_options *options = &setup->options;
    char first[DEV_NAME_BYTES];
    if (setup->given.machine != NULL || dev_is_cpu(options->device) ||
        (options->world == 1 && strchr(options->device, ',') == NULL)) {
        return 0;
    }
    const unsigned ranks = setup->peers != NULL ? world_ranks_of_host(setup->peers)
                                                : options->world;
    const int rc = dev_name_of_rank(options->device, 0, ranks, first);
    return rc != 0 || options->world == 1 ? rc : coll_nccl_find();
}

/* Measures what ranks receive from each other over the connections of their processes. */
static int measure_peers(struct setup *setup)
{
    struct run_options *options = &setup->options;
    struct plan_rates rates = {.coll_bytes = 0};
    int rc = run_remote_measure(setup->peers, options->within, &rates);
    if (rc == 0) {
        options->coll_bytes = rates.coll_bytes;
        options->within_bytes = rates.within_bytes;
        core_log(CORE_LOG_INFO,
                 "ranks receive %.3g GB/s from each other, measured between processes",
                 rates.coll_bytes / 1e9);
    }
    return rc;
}

static int plan(struct setup *setup)
{
    struct run_rates rates;
    const char *path = setup->given.rates;
    const bool known = path != NULL || setup->given.machine != NULL;
    int rc = path != NULL ? run_rates_read(path, &rates) : 0;
    if (rc != 0) {
        return rc;
    }
    if (setup->given.machine != NULL) {
        rates = run_machine_rates(&setup->machine, &setup->options);
    }
    if (!known && setup->peers != NULL && dev_is_cpu(setup->options.device)) {
        rc = measure_peers(setup);
        if (rc != 0) {
            return rc;
        }
    }
    return run_prepared_create(setup->model, &setup->options, known ? &rates : NULL,
                               &setup->prepared);
}

/* Device and nodes of the machine in a file. */
static int read_machine(struct setup *setup)
{
    const struct tide_engine_options *given = &setup->given;
    struct run_options *options = &setup->options;
    const uint64_t nodes = given->nodes > 0 ? given->nodes : 1;
    int rc = run_machine_read(given->machine, &setup->machine);
    if (rc != 0) {
        return rc;
    }
    if (options->world % nodes != 0) {
        return core_err_set(-EINVAL,
                            "%" PRIu32 " ranks cannot be spread evenly over %" PRIu64 " nodes",
                            options->world, nodes);
    }
    options->device = setup->machine.card ? "cuda" : "cpu";
    options->local = (uint32_t)(options->world / nodes);
    if (setup->machine.card && options->local > setup->machine.devices) {
        return core_err_set(-EINVAL,
                            "%" PRIu32 " ranks per node; %s has %g GPUs, one for each rank",
                            options->local, given->machine, setup->machine.devices);
    }
    return nodes > 1 && setup->machine.between_bytes == 0
               ? core_err_set(-EINVAL,
                              "%" PRIu64 " nodes; %s has no between_bytes_per_second, the rate of "
                              "its network",
                              nodes, given->machine)
               : 0;
}

/* Sets how many ranks share this machine, because its rates are measured with one rank alone on it. */
static void share_machine(struct setup *setup)
{
    struct run_options *options = &setup->options;
    if (setup->given.machine != NULL) {
        return; /* its rates are those of one of its ranks */
    }
    options->drive_ranks = options->local;
    if (setup->peers != NULL) {
        world_check_binding(setup->peers, options->threads);
        options->crowding = world_crowding(setup->peers, options->threads);
    } else {
        const double threads = (double)options->local * options->threads;
        options->crowding = threads / processors(setup->given.device);
    }
}

/* Sets whether weights are gathered as codes of 8 bits. */
static int choose_gather(struct setup *setup)
{
    struct run_options *options = &setup->options;
    if (setup->given.gather == TIDE_GATHER_EXACT) {
        return 0;
    }
    if (!dev_is_cpu(options->device)) {
        return core_err_set(-ENOTSUP, "gathering weights in 8 bits needs the CPU device");
    }
    options->packs = options->stage == 3 && options->type != KERN_F32;
    if (options->packs) {
        core_log(CORE_LOG_INFO,
                 "ranks gather weights in 8 bits, so results differ from exact ones");
    } else {
        core_log(CORE_LOG_WARN,
                 "--gather int8 has no effect: it needs several ranks, ZeRO stage 3 and "
                 "16-bit weights");
    }
    return 0;
}

/* Sets whether gradients are reduced as codes of 4 bits. */
static int choose_reduce(struct setup *setup)
{
    struct run_options *options = &setup->options;
    if (setup->given.reduce == TIDE_REDUCE_EXACT) {
        return 0;
    }
    if (!dev_is_cpu(options->device)) {
        return core_err_set(-ENOTSUP, "reducing gradients in 4 bits needs the CPU device");
    }
    options->codes = options->stage > 0;
    if (options->codes) {
        core_log(CORE_LOG_INFO,
                 "ranks reduce gradients in 4 bits, so results differ from exact ones");
    } else {
        core_log(CORE_LOG_WARN, "--reduce int4 has no effect: it needs several ranks and ZeRO "
                                "stage 1, 2 or 3");
    }
    return 0;
}

/* Warns if a group has ranks of several hosts: the ranks of a host are then not consecutive. */
static void check_neighbours(const struct setup *setup)
{
    const uint32_t within = setup->options.within;
    for (uint32_t r = 0; setup->peers != NULL && r < setup->options.world; r++) {
        const char *first = coll_peers_at(setup->peers, r / within * within)->host;
        const char *host = coll_peers_at(setup->peers, r)->host;
        if (strcmp(first, host) != 0) {
            core_log(
                CORE_LOG_WARN,
                "groups of %u ranks have ranks of several hosts: rank %u is on %s and rank %u on "
                "%s; start those of a host one after the other (mpirun --map-by slot)",
                within, r / within * within, first, r, host);
            return;
        }
    }
}

/* Sets the size of groups of ranks that keep a copy of weights. */
static int choose_within(struct setup *setup)
{
    struct run_options *options = &setup->options;
    const uint64_t within = setup->given.gather_within;
    if (within <= 1) {
        return 0;
    }
    if (!dev_is_cpu(options->device)) {
        return core_err_set(-ENOTSUP,
                            "gathering weights within groups of ranks needs the CPU device");
    }
    if (options->stage != 3 || within == options->world) {
        core_log(CORE_LOG_WARN,
                 "--gather-within %" PRIu64
                 " has no effect: it needs more ranks than that, and ZeRO "
                 "stage 3",
                 within);
        return 0;
    }
    if (within > options->world || options->world % within != 0) {
        return core_err_set(-EINVAL,
                            "%u ranks cannot be divided into groups of %" PRIu64
                            ": --gather-within (zero_hpz_partition_size) takes a divisor of the "
                            "number of ranks",
                            options->world, within);
    }
    options->within = (uint32_t)within;
    check_neighbours(setup);
    return 0;
}

int setup_init(struct setup *setup, const struct tide_engine_options *options, bool weights)
{
    *setup = (struct setup){.model = NULL};
    int rc = abi_struct_read("tide_engine_options", options, &setup->given, sizeof setup->given);
    if (rc != 0) {
        return rc;
    }
    rc = read_stores(setup);
    if (rc != 0) {
        return rc;
    }
    rc = setup_check(&setup->given, weights);
    if (rc != 0) {
        return rc;
    }
    rc = copy_texts(setup);
    if (rc != 0) {
        return rc;
    }
    fill_training(&setup->given, &setup->options);
    fill_wishes(&setup->given, &setup->options.wishes);
    rc = count_ranks(setup);
    if (rc != 0) {
        return rc;
    }
    if (setup->given.machine != NULL) {
        rc = read_machine(setup);
        if (rc != 0) {
            return rc;
        }
    }
    rc = weights ? check_cards(setup) : 0;
    if (rc != 0) {
        return rc;
    }
    if (setup->options.pairs > 0 && !dev_is_cpu(setup->options.device)) {
        return core_err_set(-ENOTSUP, "--loss dpo runs on the device \"cpu\" only; found \"%s\"",
                            setup->options.device);
    }
    setup->options.stage = setup->options.world > 1 ? setup->given.zero_stage : 0;
    rc = choose_gather(setup);
    if (rc == 0) {
        rc = choose_reduce(setup);
    }
    if (rc == 0) {
        rc = choose_within(setup);
    }
    if (rc != 0) {
        return rc;
    }
    setup->options.threads = threads_of(setup);
    share_machine(setup);
    rc = open_model(setup, weights);
    return rc == 0 ? fill_stores(setup, weights) : rc;
}

int setup_init_stores(struct setup *setup)
{
    int rc = read_stores(setup);
    if (rc != 0) {
        return rc;
    }
    rc = copy_texts(setup);
    if (rc != 0) {
        return rc;
    }
    rc = fill_stores(setup, true);
    setup->options.budgets.store_bytes = store_capacity(setup->options.stores,
                                                        setup->options.store_count);
    return rc;
}

uint64_t setup_host_bytes(uint64_t given)
{
    struct core_mem_limits limits;
    if (given > 0) {
        return given;
    }
    return core_mem_limits("", &limits) == 0
               ? limits.usable_bytes - spare_bytes(limits.usable_bytes)
               : 0;
}

int setup_plan(struct setup *setup)
{
    const int rc = fill_budgets(setup);
    if (rc != 0) {
        return rc;
    }
    share_budgets(setup, (uint64_t)setup->machine.store_bytes);
    return plan(setup);
}

void setup_fini(struct setup *setup)
{
    run_prepared_destroy(setup->prepared);
    model_files_close(setup->files);
    model_peft_close(setup->peft);
    model_destroy(setup->model);
    for (size_t i = 0; i < sizeof setup->texts / sizeof setup->texts[0]; i++) {
        free(setup->texts[i]);
    }
    free(setup->folder);
    free(setup->trace);
    free(setup->cache);
    *setup = (struct setup){.model = NULL};
}
