/* lists.c: cuts lists at their commas, and joins what a sweep file lists. */
#include "tools/ds_nvme_bench/lists.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/base/size.h"

static int take_number(const char *text, bool size, uint32_t low, uint32_t high, uint32_t *out)
{
    uint64_t value = 0;
    char *end = NULL;
    if (size) {
        if (core_size_parse(text, &value) != 0) {
            return -EINVAL;
        }
    } else {
        value = strtoull(text, &end, 10);
        if (end == text || *end != '\0' || text[0] == '-') {
            return core_err_set(-EINVAL, "\"%s\" is not a whole number", text);
        }
    }
    if (value < low || value > high || (size && value % 4096 != 0)) {
        return core_err_set(-EINVAL, "%s is not possible; %u to %u%s is", text, low, high,
                            size ? " in multiples of 4096" : "");
    }
    *out = (uint32_t)value;
    return 0;
}

int bench_list_parse(const char *name, const char *text, bool size, uint32_t high, uint32_t *list,
                     unsigned *count)
{
    char copy[512];
    if (strlen(text) >= sizeof copy) {
        return core_err_set(-EINVAL, "--%s: the list is too long", name);
    }
    memcpy(copy, text, strlen(text) + 1);
    *count = 0;
    char *rest = NULL;
    for (char *item = strtok_r(copy, ",", &rest); item != NULL; item = strtok_r(NULL, ",", &rest)) {
        if (*count == BENCH_LIST_MAX) {
            return core_err_set(-EINVAL, "--%s takes at most %d values", name, BENCH_LIST_MAX);
        }
        if (take_number(item, size, size ? 4096 : 1, high, &list[*count]) != 0) {
            return core_err_prefix(-EINVAL, "--%s", name);
        }
        ++*count;
    }
    return *count > 0 ? 0 : core_err_set(-EINVAL, "--%s needs at least one value", name);
}

/* One value behind the others. */
static int append(char text[512], const struct core_json_value *value)
{
    const size_t used = strlen(text);
    const char *comma = used > 0 ? "," : "";
    int wrote = -1;
    if (core_json_kind(value) == CORE_JSON_STRING) {
        wrote = snprintf(text + used, 512 - used, "%s%s", comma, core_json_string(value, NULL));
    } else if (core_json_kind(value) == CORE_JSON_INTEGER) {
        wrote = snprintf(text + used, 512 - used, "%s%" PRId64, comma, core_json_integer(value));
    }
    return wrote >= 0 && (size_t)wrote < 512 - used ? 0 : -EINVAL;
}

static int take_key(const char *path, const struct core_json_member *member, char text[512])
{
    text[0] = '\0';
    int rc = core_json_kind(member->value) == CORE_JSON_ARRAY ? 0 : -EINVAL;
    const size_t count = core_json_count(member->value);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        rc = append(text, core_json_at(member->value, i));
    }
    return rc == 0 && count > 0
               ? 0
               : core_err_set(-EINVAL,
                              "%s: %s takes a list of whole numbers or sizes, as [\"1M\", \"8M\"] "
                              "or [32, 128]",
                              path, member->key);
}

int bench_sweep_file_load(const char *path, struct bench_sweep_file *out)
{
    struct bench_sweep_file made = {.blocks = "1M", .depths = "32", .threads = "1"};
    struct core_json *doc = NULL;
    struct core_json_member member;
    int rc = core_json_load(path, NULL, &doc);
    if (rc != 0) {
        return rc;
    }
    if (core_json_kind(core_json_root(doc)) != CORE_JSON_OBJECT) {
        rc = core_err_set(-EINVAL, "%s holds %s, not an object of lists", path,
                          core_json_kind_name(core_json_kind(core_json_root(doc))));
    }
    for (bool any = core_json_first(core_json_root(doc), &member); rc == 0 && any;
         any = core_json_next(&member)) {
        if (strcmp(member.key, "block_size") == 0) {
            rc = take_key(path, &member, made.blocks);
        } else if (strcmp(member.key, "queue_depth") == 0) {
            rc = take_key(path, &member, made.depths);
        } else if (strcmp(member.key, "io_parallel") == 0) {
            rc = take_key(path, &member, made.threads);
        } else if (strcmp(member.key, "sequential_requests") == 0 ||
                   strcmp(member.key, "single_submit") == 0) {
            made.ignores = true;
        } else {
            rc = core_err_set(-EINVAL,
                              "%s: %s is not known; a sweep lists block_size, queue_depth and "
                              "io_parallel (sequential_requests and single_submit change nothing)",
                              path, member.key);
        }
    }
    core_json_destroy(doc);
    if (rc == 0) {
        *out = made;
    }
    return rc;
}
