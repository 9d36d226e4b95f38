/* rates_file.c: rates as a small JSON object, for planning on another machine. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/base/json_write.h"
#include "offload/run/rates.h"

enum { VERSION = 1 };

static const struct {
    const char *key;
    size_t offset;
    bool optional; /* 0, and that where a file has none: it costs nothing, or is not done */
} numbers[] = {
    {"read_bytes_per_second", offsetof(struct run_rates, machine.read_bytes), false},
    {"write_bytes_per_second", offsetof(struct run_rates, machine.write_bytes), false},
    {"mixed_bytes_per_second", offsetof(struct run_rates, machine.mixed_bytes), false},
    {"up_bytes_per_second", offsetof(struct run_rates, machine.up_bytes), false},
    {"down_bytes_per_second", offsetof(struct run_rates, machine.down_bytes), false},
    {"both_bytes_per_second", offsetof(struct run_rates, machine.both_bytes), true},
    {"flops_per_second", offsetof(struct run_rates, machine.flops), false},
    {"update_elements_per_second", offsetof(struct run_rates, machine.update_elements), false},
    {"memory_bytes_per_second", offsetof(struct run_rates, machine.memory_bytes), true},
    {"sums_elements_per_second", offsetof(struct run_rates, machine.sums_elements), false},
    {"card_update_elements_per_second", offsetof(struct run_rates, machine.card_update_elements),
     true},
    {"card_sums_elements_per_second", offsetof(struct run_rates, machine.card_sums_elements), true},
    {"round_elements_per_second", offsetof(struct run_rates, machine.round_elements), false},
    {"coll_bytes_per_second", offsetof(struct run_rates, machine.coll_bytes), false},
    {"hash_bytes_per_second", offsetof(struct run_rates, machine.hash_bytes), true},
    {"io_bytes_per_second", offsetof(struct run_rates, machine.io_bytes), true},
    {"window_bytes", offsetof(struct run_rates, machine.window_bytes), true},
    {"command_seconds", offsetof(struct run_rates, machine.command_seconds), false},
};
enum { NUMBER_COUNT = sizeof numbers / sizeof numbers[0] };

/* Seconds of a block's parts; 0 where only flops count. */
static const struct {
    const char *key;
    size_t offset;
} seconds[] = {
    {"forward_seconds", offsetof(struct run_rates, forward_seconds)},
    {"recompute_seconds", offsetof(struct run_rates, recompute_seconds)},
    {"backward_seconds", offsetof(struct run_rates, backward_seconds)},
};
static const char *const kinds[] = {[MODEL_BLOCK_EMBEDDING] = "embedding",
                                    [MODEL_BLOCK_LAYER] = "layer",
                                    [MODEL_BLOCK_HEAD] = "head"};

static double *number_at(struct run_rates *rates, size_t i)
{
    return (double *)(void *)((char *)rates + numbers[i].offset);
}

static int read_seconds(const struct core_json *doc, const struct core_json_value *root,
                        struct run_rates *rates)
{
    for (size_t i = 0; i < sizeof seconds / sizeof seconds[0]; i++) {
        const struct core_json_value *object;
        int rc = core_json_get(doc, root, seconds[i].key, CORE_JSON_OBJECT, &object);
        if (rc == -ENOENT) {
            continue; /* flops count */
        }
        for (size_t k = 0; rc == 0 && k < 3; k++) {
            double *at = (double *)(void *)((char *)rates + seconds[i].offset) + k;
            rc = core_json_get_real(doc, object, kinds[k], at);
            if (rc == 0 && !(*at >= 0)) {
                rc = core_json_refuse(doc, object, kinds[k], 0, -EINVAL,
                                      "%g seconds; 0 or more are possible", *at);
            }
        }
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static int read_document(const struct core_json *doc, struct run_rates *out)
{
    const struct core_json_value *root = core_json_root(doc);
    struct run_rates rates = {.machine = {0}};
    int64_t version = 0;
    int rc = core_json_get_integer(doc, root, "version", &version);
    if (rc == 0 && version != VERSION) {
        rc = core_json_refuse(doc, root, "version", 0, -EINVAL, "%lld; this build reads %d",
                              (long long)version, VERSION);
    }
    for (size_t i = 0; rc == 0 && i < NUMBER_COUNT; i++) {
        rc = core_json_get_real(doc, root, numbers[i].key, number_at(&rates, i));
        if (rc == -ENOENT && numbers[i].optional) {
            rc = 0;
        } else if (rc == 0 && !(*number_at(&rates, i) > 0)) {
            rc = core_json_refuse(doc, root, numbers[i].key, 0, -EINVAL,
                                  "%g; only numbers above 0 are possible", *number_at(&rates, i));
        }
    }
    rc = rc != 0 ? rc : core_json_get_bool(doc, root, "shared_cores", &rates.machine.shared_cores);
    rc = rc != 0 ? rc : read_seconds(doc, root, &rates);
    if (rc == 0) {
        *out = rates;
    }
    return rc;
}

int run_rates_read(const char *path, struct run_rates *out)
{
    struct core_json *doc = NULL;
    int rc = core_json_load(path, NULL, &doc);
    rc = rc != 0 ? rc : read_document(doc, out);
    core_json_destroy(doc);
    return rc;
}

int run_rates_write(const char *path, const struct run_rates *rates)
{
    struct run_rates copy = *rates;
    struct core_json_write json;
    FILE *file = fopen(path, "we");
    if (file == NULL) {
        return core_err_set(-errno, "%s cannot be written: %s", path, strerror(errno));
    }
    core_json_write_init_file(&json, file);
    json.indent = 2;
    core_json_write_object_begin(&json, NULL);
    core_json_write_integer(&json, "version", VERSION);
    for (size_t i = 0; i < NUMBER_COUNT; i++) {
        if (!numbers[i].optional || *number_at(&copy, i) > 0) {
            core_json_write_real(&json, numbers[i].key, *number_at(&copy, i));
        }
    }
    core_json_write_bool(&json, "shared_cores", copy.machine.shared_cores);
    for (size_t i = 0; i < sizeof seconds / sizeof seconds[0]; i++) {
        const double *at = (const double *)(const void *)((const char *)&copy + seconds[i].offset);
        core_json_write_object_begin(&json, seconds[i].key);
        for (size_t k = 0; k < 3; k++) {
            core_json_write_real(&json, kinds[k], at[k]);
        }
        core_json_write_object_end(&json);
    }
    core_json_write_object_end(&json);
    int rc = core_json_write_end(&json);
    core_json_write_fini(&json);
    if (fclose(file) != 0 && rc == 0) {
        rc = core_err_set(-errno, "%s was not written whole: %s", path, strerror(errno));
    }
    return rc;
}
