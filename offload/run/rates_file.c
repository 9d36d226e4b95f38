/* rates_file.c: one table of numbers for three kinds of files: all rates, one cached part, and the
 * description of a machine. */
#include "offload/run/rates_file.h"
#include "offload/model/model.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/json/cache.h"
#include "core/json/json.h"
#include "core/json/write.h"

enum { FILE_VERSION = 1, CACHE_VERSION = 3 };

enum kind {
    POSITIVE,
    OPTIONAL, /* positive, or 0 if absent: no cost, or no such work */
    SECONDS,  /* 0 or more, in an object that may be absent; 0: estimated from flops */
    FLAG,     /* a bool */
    DELAY,    /* positive seconds */
    COUNT,    /* a positive integer */
    OPTIONAL_COUNT,
};

/* Beyond these limits, a plan's times could be infinite or 0. */
static const struct limits {
    double least, most;
    const char *expected;
} limits[] = {
    [POSITIVE] = {1, 1e21, "a number from 1 to 1e21"},
    [OPTIONAL] = {1, 1e21, "a number from 1 to 1e21"},
    [SECONDS] = {0, 1e6, "seconds from 0 to 1e6"},
    [DELAY] = {1e-12, 1e6, "seconds from 1e-12 to 1e6"},
    [COUNT] = {1, 1e6, "an integer from 1 to 1e6"},
    [OPTIONAL_COUNT] = {1, 1e6, "an integer from 1 to 1e6"},
};

struct number {
    const char *key;
    enum kind kind;
    enum run_rates_part part; /* RUN_RATES_PARTS: only in the file of all rates */
    /* in run_drive_rates for RUN_RATES_DRIVE, in run_machine for RUN_RATES_MACHINE, else in
     * run_rates */
    size_t offset;
    const char *object; /* SECONDS: object's name in the file of all rates */
    const char *inner;  /* SECONDS: the key in that object */
};

#define RATE(field)        offsetof(struct run_rates, machine.field)
#define BLOCK(field, kind) offsetof(struct run_rates, field##_seconds[MODEL_BLOCK_##kind])
#define DRIVE(field)       offsetof(struct run_drive_rates, field)
#define NODE(field)        offsetof(struct run_machine, field)

/* In the order of the file of all rates, which lacks the last numbers, of drives and machines. */
static const struct number numbers[] = {
    {"read_bytes_per_second", POSITIVE, RUN_RATES_PARTS, RATE(read_bytes), NULL, NULL},
    {"write_bytes_per_second", POSITIVE, RUN_RATES_PARTS, RATE(write_bytes), NULL, NULL},
    {"mixed_bytes_per_second", POSITIVE, RUN_RATES_PARTS, RATE(mixed_bytes), NULL, NULL},
    {"up_bytes_per_second", POSITIVE, RUN_RATES_UPDATE, RATE(up_bytes), NULL, NULL},
    {"down_bytes_per_second", POSITIVE, RUN_RATES_UPDATE, RATE(down_bytes), NULL, NULL},
    {"both_bytes_per_second", OPTIONAL, RUN_RATES_UPDATE, RATE(both_bytes), NULL, NULL},
    {"flops_per_second", POSITIVE, RUN_RATES_BLOCKS, RATE(flops), NULL, NULL},
    {"update_elements_per_second", POSITIVE, RUN_RATES_UPDATE, RATE(update_elements), NULL, NULL},
    {"memory_bytes_per_second", OPTIONAL, RUN_RATES_UPDATE, RATE(memory_bytes), NULL, NULL},
    {"sums_elements_per_second", POSITIVE, RUN_RATES_UPDATE, RATE(sums_elements), NULL, NULL},
    {"card_update_elements_per_second", OPTIONAL, RUN_RATES_UPDATE, RATE(card_update_elements),
     NULL, NULL},
    {"card_sums_elements_per_second", OPTIONAL, RUN_RATES_UPDATE, RATE(card_sums_elements), NULL,
     NULL},
    {"round_elements_per_second", POSITIVE, RUN_RATES_UPDATE, RATE(round_elements), NULL, NULL},
    {"expand_elements_per_second", OPTIONAL, RUN_RATES_UPDATE, RATE(expand_elements), NULL, NULL},
    {"coll_bytes_per_second", POSITIVE, RUN_RATES_UPDATE, RATE(coll_bytes), NULL, NULL},
    {"within_bytes_per_second", OPTIONAL, RUN_RATES_UPDATE, RATE(within_bytes), NULL, NULL},
    {"pack_elements_per_second", OPTIONAL, RUN_RATES_UPDATE, RATE(pack_elements), NULL, NULL},
    {"code_elements_per_second", OPTIONAL, RUN_RATES_UPDATE, RATE(code_elements), NULL, NULL},
    {"hash_bytes_per_second", OPTIONAL, RUN_RATES_PARTS, RATE(hash_bytes), NULL, NULL},
    {"io_bytes_per_second", OPTIONAL, RUN_RATES_PARTS, RATE(io_bytes), NULL, NULL},
    {"window_bytes", OPTIONAL, RUN_RATES_PARTS, RATE(window_bytes), NULL, NULL},
    {"command_seconds", DELAY, RUN_RATES_PARTS, RATE(command_seconds), NULL, NULL},
    {"shared_cores", FLAG, RUN_RATES_UPDATE, RATE(shared_cores), NULL, NULL},
    {"embedding_forward", SECONDS, RUN_RATES_BLOCKS, BLOCK(forward, EMBEDDING), "forward_seconds",
     "embedding"},
    {"layer_forward", SECONDS, RUN_RATES_BLOCKS, BLOCK(forward, LAYER), "forward_seconds", "layer"},
    {"head_forward", SECONDS, RUN_RATES_BLOCKS, BLOCK(forward, HEAD), "forward_seconds", "head"},
    {"embedding_recompute", SECONDS, RUN_RATES_BLOCKS, BLOCK(recompute, EMBEDDING),
     "recompute_seconds", "embedding"},
    {"layer_recompute", SECONDS, RUN_RATES_BLOCKS, BLOCK(recompute, LAYER), "recompute_seconds",
     "layer"},
    {"head_recompute", SECONDS, RUN_RATES_BLOCKS, BLOCK(recompute, HEAD), "recompute_seconds",
     "head"},
    {"embedding_backward", SECONDS, RUN_RATES_BLOCKS, BLOCK(backward, EMBEDDING),
     "backward_seconds", "embedding"},
    {"layer_backward", SECONDS, RUN_RATES_BLOCKS, BLOCK(backward, LAYER), "backward_seconds",
     "layer"},
    {"head_backward", SECONDS, RUN_RATES_BLOCKS, BLOCK(backward, HEAD), "backward_seconds", "head"},
    {"read_bytes_per_second", POSITIVE, RUN_RATES_DRIVE, DRIVE(read_bytes), NULL, NULL},
    {"write_bytes_per_second", POSITIVE, RUN_RATES_DRIVE, DRIVE(write_bytes), NULL, NULL},
    {"mixed_bytes_per_second", POSITIVE, RUN_RATES_DRIVE, DRIVE(mixed_bytes), NULL, NULL},
    {"cpu_ns_per_byte", POSITIVE, RUN_RATES_DRIVE, DRIVE(cpu_ns_per_byte), NULL, NULL},
    {"window_bytes", POSITIVE, RUN_RATES_DRIVE, DRIVE(window_bytes), NULL, NULL},
    {"devices", COUNT, RUN_RATES_MACHINE, NODE(devices), NULL, NULL},
    {"device_bytes", OPTIONAL, RUN_RATES_MACHINE, NODE(device_bytes), NULL, NULL},
    {"device_memory_bytes_per_second", OPTIONAL, RUN_RATES_MACHINE, NODE(device_memory_bytes), NULL,
     NULL},
    {"flops_per_second", POSITIVE, RUN_RATES_MACHINE, NODE(flops), NULL, NULL},
    {"up_bytes_per_second", OPTIONAL, RUN_RATES_MACHINE, NODE(up_bytes), NULL, NULL},
    {"down_bytes_per_second", OPTIONAL, RUN_RATES_MACHINE, NODE(down_bytes), NULL, NULL},
    {"links_bytes_per_second", OPTIONAL, RUN_RATES_MACHINE, NODE(links_bytes), NULL, NULL},
    {"cores", COUNT, RUN_RATES_MACHINE, NODE(cores), NULL, NULL},
    {"numa_nodes", OPTIONAL_COUNT, RUN_RATES_MACHINE, NODE(numa_nodes), NULL, NULL},
    {"host_bytes", POSITIVE, RUN_RATES_MACHINE, NODE(host_bytes), NULL, NULL},
    {"memory_bytes_per_second", POSITIVE, RUN_RATES_MACHINE, NODE(memory_bytes), NULL, NULL},
    {"store_bytes", OPTIONAL, RUN_RATES_MACHINE, NODE(store_bytes), NULL, NULL},
    {"read_bytes_per_second", OPTIONAL, RUN_RATES_MACHINE, NODE(read_bytes), NULL, NULL},
    {"write_bytes_per_second", OPTIONAL, RUN_RATES_MACHINE, NODE(write_bytes), NULL, NULL},
    {"mixed_bytes_per_second", OPTIONAL, RUN_RATES_MACHINE, NODE(mixed_bytes), NULL, NULL},
    {"inside_bytes_per_second", OPTIONAL, RUN_RATES_MACHINE, NODE(inside_bytes), NULL, NULL},
    {"between_bytes_per_second", OPTIONAL, RUN_RATES_MACHINE, NODE(between_bytes), NULL, NULL},
    {"command_seconds", DELAY, RUN_RATES_MACHINE, NODE(command_seconds), NULL, NULL},
};
enum { NUMBERS = sizeof numbers / sizeof numbers[0] };

static double *real_at(void *rates, const struct number *number)
{
    return (double *)(void *)((char *)rates + number->offset);
}

static bool *flag_at(void *rates, const struct number *number)
{
    return (bool *)(void *)((char *)rates + number->offset);
}

/* A flag is 0 or 1. */
static double cached_value(const void *rates, const struct number *number)
{
    const void *at = (const char *)rates + number->offset;
    return number->kind == FLAG ? *(const bool *)at : *(const double *)at;
}

/* ---- the file of all rates ---- */

static bool is_of_rates(const struct number *number)
{
    return number->part != RUN_RATES_DRIVE && number->part != RUN_RATES_MACHINE;
}

/* Returns -ENOENT if the number is missing, an error if it exceeds its limits. */
static int read_real(const struct core_json *doc, const struct core_json_value *object,
                     const char *key, enum kind kind, double *at)
{
    const struct limits *allowed = &limits[kind];
    int rc = core_json_get_real(doc, object, key, at);
    if (rc != 0) {
        return rc;
    }
    const bool whole = (kind != COUNT && kind != OPTIONAL_COUNT) || *at == floor(*at);
    return whole && *at >= allowed->least && *at <= allowed->most
               ? 0
               : core_json_refuse(doc, object, key, 0, -EINVAL, "%g; expected %s", *at,
                                  allowed->expected);
}

static int read_number(const struct core_json *doc, const struct number *number,
                       struct run_rates *rates)
{
    const struct core_json_value *root = core_json_root(doc);
    double *at = real_at(rates, number);
    int rc;
    if (number->kind == FLAG) {
        return core_json_get_bool(doc, root, number->key, flag_at(rates, number));
    }
    if (number->kind == SECONDS) {
        const struct core_json_value *object = NULL;
        rc = core_json_get(doc, root, number->object, CORE_JSON_OBJECT, &object);
        if (rc != 0) {
            return rc == -ENOENT ? 0 : rc;
        }
        return read_real(doc, object, number->inner, number->kind, at);
    }
    rc = read_real(doc, root, number->key, number->kind, at);
    return rc == -ENOENT && number->kind == OPTIONAL ? 0 : rc;
}

static int check_version(const struct core_json *doc)
{
    const struct core_json_value *root = core_json_root(doc);
    int64_t version = 0;
    int rc = core_json_get_integer(doc, root, "version", &version);
    if (rc != 0) {
        return rc;
    }
    return version == FILE_VERSION
               ? 0
               : core_json_refuse(doc, root, "version", 0, -EINVAL, "%lld; this build reads %d",
                                  (long long)version, FILE_VERSION);
}

static int read_document(const struct core_json *doc, struct run_rates *out)
{
    struct run_rates rates = {.machine = {0}};
    int rc = check_version(doc);
    if (rc != 0) {
        return rc;
    }
    for (size_t i = 0; i < NUMBERS; i++) {
        rc = is_of_rates(&numbers[i]) ? read_number(doc, &numbers[i], &rates) : 0;
        if (rc != 0) {
            return rc;
        }
    }
    *out = rates;
    return 0;
}

int run_rates_read(const char *path, struct run_rates *out)
{
    struct core_json *doc = NULL;
    int rc = core_json_load(path, NULL, &doc);
    if (rc == 0) {
        rc = read_document(doc, out);
    }
    core_json_destroy(doc);
    return rc;
}

/* An object's numbers are neighbours in the table. */
static void write_numbers(struct core_json_write *json, const struct run_rates *rates)
{
    const char *object = NULL;
    for (size_t i = 0; i < NUMBERS && is_of_rates(&numbers[i]); i++) {
        const struct number *number = &numbers[i];
        const double value = cached_value(rates, number);
        if (number->kind == FLAG) {
            core_json_write_bool(json, number->key, value != 0);
        } else if (number->kind != SECONDS && (number->kind != OPTIONAL || value > 0)) {
            core_json_write_real(json, number->key, value);
        } else if (number->kind == SECONDS) {
            if (object == NULL || strcmp(object, number->object) != 0) {
                if (object != NULL) {
                    core_json_write_object_end(json);
                }
                core_json_write_object_begin(json, number->object);
                object = number->object;
            }
            core_json_write_real(json, number->inner, value);
        }
    }
    core_json_write_object_end(json);
}

int run_rates_write(const char *path, const struct run_rates *rates)
{
    struct core_json_write json;
    FILE *file = NULL;
    struct stat info;
    const bool there = lstat(path, &info) == 0;
    int rc = core_file_open_output(path, false, &file);
    if (rc != 0) {
        return rc;
    }
    core_json_write_init_file(&json, file);
    json.indent = 2;
    core_json_write_object_begin(&json, NULL);
    core_json_write_integer(&json, "version", FILE_VERSION);
    write_numbers(&json, rates);
    core_json_write_object_end(&json);
    rc = core_json_write_end(&json);
    core_json_write_fini(&json);
    if (rc != 0) {
        core_err_prefix(rc, "%s", path);
    }
    if (fclose(file) != 0 && rc == 0) {
        rc = core_err_set(-errno, "%s was not written completely: %s", path, strerror(errno));
    }
    if (rc != 0 && !there) {
        unlink(path);
    }
    return rc;
}

/* ---- the file of a machine ---- */

/* Reads {"value": N, "source": TEXT}; the source is required. */
static int read_sourced(const struct core_json *doc, const struct number *number,
                        struct run_machine *machine)
{
    const struct core_json_value *root = core_json_root(doc);
    const struct core_json_value *object = NULL;
    const char *source = NULL;
    double *at = real_at(machine, number);
    int rc = core_json_get(doc, root, number->key, CORE_JSON_OBJECT, &object);
    if (rc != 0) {
        const bool optional = number->kind == OPTIONAL || number->kind == OPTIONAL_COUNT;
        return rc == -ENOENT && optional ? 0 : rc;
    }
    rc = read_real(doc, object, "value", number->kind, at);
    if (rc != 0) {
        return rc;
    }
    rc = core_json_get_string(doc, object, "source", &source);
    if (rc == 0 && source[0] == '\0') {
        rc = core_json_refuse(doc, object, "source", 0, -EINVAL,
                              "empty; expected the source of the number");
    }
    return rc;
}

static bool is_key(const struct core_json_member *member, const char *key)
{
    return member->key_bytes == strlen(key) && memcmp(member->key, key, member->key_bytes) == 0;
}

static bool is_known(const struct core_json_member *member)
{
    bool known = is_key(member, "version") || is_key(member, "name") || is_key(member, "device");
    for (size_t i = 0; i < NUMBERS && !known; i++) {
        known = numbers[i].part == RUN_RATES_MACHINE && is_key(member, numbers[i].key);
    }
    return known;
}

/* A misspelt optional key would look like a missing part. */
static int check_keys(const struct core_json *doc)
{
    const struct core_json_value *root = core_json_root(doc);
    struct core_json_member member;
    for (bool more = core_json_first(root, &member); more; more = core_json_next(&member)) {
        if (!is_known(&member)) {
            return core_json_refuse(doc, root, member.key, 0, -EINVAL,
                                    "unknown key (docs/plan-json.md lists those of a machine)");
        }
    }
    return 0;
}

/* Refuses a `number` of 0: its key is missing, and a machine with `with` needs it. */
static int check_needed(const struct core_json *doc, double number, const char *key,
                        const char *with)
{
    return number > 0 ? 0
                      : core_json_refuse(doc, core_json_root(doc), key, 0, -EINVAL,
                                         "missing; a machine with %s needs it", with);
}

static int check_parts(const struct core_json *doc, const struct run_machine *machine)
{
    const struct {
        bool there;
        double number;
        const char *key;
        const char *with;
    } needed[] = {
        {machine->card, machine->device_bytes, "device_bytes", "GPUs"},
        {machine->card, machine->device_memory_bytes, "device_memory_bytes_per_second", "GPUs"},
        {machine->card, machine->up_bytes, "up_bytes_per_second", "GPUs"},
        {machine->card, machine->down_bytes, "down_bytes_per_second", "GPUs"},
        {machine->card && machine->devices > 1, machine->inside_bytes, "inside_bytes_per_second",
         "several GPUs"},
        {machine->store_bytes > 0, machine->read_bytes, "read_bytes_per_second", "drives"},
        {machine->store_bytes > 0, machine->write_bytes, "write_bytes_per_second", "drives"},
        {machine->store_bytes > 0, machine->mixed_bytes, "mixed_bytes_per_second", "drives"},
    };
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        int rc = needed[i].there
                     ? check_needed(doc, needed[i].number, needed[i].key, needed[i].with)
                     : 0;
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static int read_machine(const struct core_json *doc, struct run_machine *out)
{
    const struct core_json_value *root = core_json_root(doc);
    struct run_machine machine = {0};
    const char *device = NULL;
    const char *name = NULL;
    int rc = check_version(doc);
    if (rc != 0) {
        return rc;
    }
    rc = check_keys(doc);
    if (rc != 0) {
        return rc;
    }
    rc = core_json_get_string(doc, root, "name", &name);
    if (rc != 0) {
        return rc;
    }
    rc = core_json_get_string(doc, root, "device", &device);
    if (rc != 0) {
        return rc;
    }
    machine.card = strcmp(device, "cuda") == 0;
    if (!machine.card && strcmp(device, "cpu") != 0) {
        return core_json_refuse(doc, root, "device", 0, -EINVAL,
                                "\"%s\"; expected \"cpu\" or \"cuda\"", device);
    }
    for (size_t i = 0; i < NUMBERS; i++) {
        rc = numbers[i].part == RUN_RATES_MACHINE ? read_sourced(doc, &numbers[i], &machine) : 0;
        if (rc != 0) {
            return rc;
        }
    }
    rc = check_parts(doc, &machine);
    if (rc == 0) {
        *out = machine;
    }
    return rc;
}

int run_machine_read(const char *path, struct run_machine *out)
{
    struct core_json *doc = NULL;
    int rc = core_json_load(path, NULL, &doc);
    if (rc == 0) {
        rc = read_machine(doc, out);
    }
    core_json_destroy(doc);
    return rc;
}

/* ---- the cache ---- */

static bool path_of(const struct run_rates_cached *cached, char path[CORE_CACHE_PATH_BYTES])
{
    static const char *const kinds[RUN_RATES_MACHINE] = {"drive", "update", "blocks"};
    return cached->folder != NULL &&
           core_cache_path(cached->folder, kinds[cached->part],
                           core_hash(cached->key, strlen(cached->key), CACHE_VERSION), path);
}

static int read_cached(const struct core_json *doc, const struct run_rates_cached *cached,
                       void *rates)
{
    const struct core_json_value *root = core_json_root(doc);
    const struct core_json_value *key = core_json_find(root, "key");
    const char *text = key != NULL ? core_json_string(key, NULL) : NULL;
    double values[NUMBERS];
    if (text == NULL || strcmp(text, cached->key) != 0) {
        return -ESTALE;
    }
    for (size_t i = 0; i < NUMBERS; i++) {
        int rc = numbers[i].part == cached->part
                     ? core_json_get_real(doc, root, numbers[i].key, &values[i])
                     : 0;
        if (rc != 0) {
            return rc;
        }
        if (numbers[i].part == cached->part && !(isfinite(values[i]) && values[i] >= 0)) {
            return -EINVAL;
        }
    }
    for (size_t i = 0; i < NUMBERS; i++) {
        if (numbers[i].part == cached->part && numbers[i].kind == FLAG) {
            *flag_at(rates, &numbers[i]) = values[i] > 0;
        } else if (numbers[i].part == cached->part) {
            *real_at(rates, &numbers[i]) = values[i];
        }
    }
    return 0;
}

bool run_rates_cache_read(const struct run_rates_cached *cached, void *rates)
{
    char path[CORE_CACHE_PATH_BYTES];
    struct core_json *doc = NULL;
    if (!path_of(cached, path) || !core_cache_counts(path)) {
        return false;
    }
    int rc = core_json_load(path, NULL, &doc);
    if (rc == 0) {
        rc = read_cached(doc, cached, rates);
    }
    core_json_destroy(doc);
    core_log(CORE_LOG_DEBUG, "cached rates %s are %s", path, rc == 0 ? "used" : "ignored");
    return rc == 0;
}

struct cached_numbers {
    const struct run_rates_cached *cached;
    const void *rates;
};

static void write_cached(struct core_json_write *json, const void *from)
{
    const struct cached_numbers *what = from;
    json->indent = 2;
    core_json_write_object_begin(json, NULL);
    core_json_write_integer(json, "version", CACHE_VERSION);
    core_json_write_string(json, "key", what->cached->key);
    for (size_t i = 0; i < NUMBERS; i++) {
        if (numbers[i].part == what->cached->part) {
            core_json_write_real(json, numbers[i].key, cached_value(what->rates, &numbers[i]));
        }
    }
    core_json_write_object_end(json);
}

void run_rates_cache_write(const struct run_rates_cached *cached, const void *rates)
{
    const struct cached_numbers what = {cached, rates};
    char path[CORE_CACHE_PATH_BYTES];
    if (!path_of(cached, path)) {
        return;
    }
    const int rc = core_cache_write(path, write_cached, &what);
    if (rc != 0) {
        core_log(CORE_LOG_INFO, "measured rates could not be cached in %s: %s", cached->folder,
                 strerror(-rc));
    }
}

void run_rates_cache_forget(const struct run_rates_cached *cached)
{
    char path[CORE_CACHE_PATH_BYTES];
    if (path_of(cached, path)) {
        (void)unlink(path);
    }
}
