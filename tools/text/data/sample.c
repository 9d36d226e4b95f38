/* sample.c: a growing array of tokens, and reading rows of ids. */
#include "tools/text/data/sample.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "core/json/scan.h"
#include "tools/text/data/array.h"

void text_sample_fini(struct text_sample *sample)
{
    core_charge_free(sample->ids);
    core_charge_free(sample->labels);
    *sample = (struct text_sample){0};
}

int text_sample_copy(const struct text_sample *sample, struct text_sample *out)
{
    const size_t bytes = sample->count * sizeof *sample->ids;
    struct text_sample made = {.ids = core_charge_alloc(bytes),
                               .labels = core_charge_alloc(bytes),
                               .count = sample->count,
                               .rejected = sample->rejected,
                               .room = sample->count};
    if (made.ids == NULL || made.labels == NULL) {
        text_sample_fini(&made);
        return core_err_set(-ENOMEM, "no memory for a row of %zu tokens", sample->count);
    }
    if (bytes > 0) {
        memcpy(made.ids, sample->ids, bytes);
        memcpy(made.labels, sample->labels, bytes);
    }
    *out = made;
    return 0;
}

int text_sample_add(struct text_sample *sample, int32_t id, int32_t label)
{
    static const char what[] = "tokens of a row";
    const size_t count = sample->count + 1;
    size_t room = sample->room;
    int rc = array_reserve(what, &sample->ids, &room, count, sizeof *sample->ids);
    if (rc == 0) {
        rc = array_reserve(what, &sample->labels, &sample->room, count, sizeof *sample->labels);
    }
    if (rc == 0) {
        sample->ids[sample->count] = id;
        sample->labels[sample->count++] = label;
    }
    return rc;
}

size_t text_sample_targets(const int32_t *labels, size_t count)
{
    size_t targets = 0;
    for (size_t i = 1; i < count; i++) {
        targets += labels[i] != TEXT_IGNORED;
    }
    return targets;
}

enum list { IDS, LABELS, MASK, POSITIONS, LISTS };

static const char *const list_names[LISTS] = {"input_ids", "labels", "attention_mask",
                                              "position_ids"};

struct reading {
    struct core_json_scan scan;
    struct text_sample *sample; /* borrowed */
    int64_t vocab;
    size_t counts[LISTS];
    bool has[LISTS];
};

/* Rows have no masks or positions of their own: masks must be 1, positions count from 0. */
static int check_item(const struct reading *reading, enum list list, int64_t value)
{
    const char *key = list_names[list];
    const size_t place = reading->counts[list];
    if (list == LABELS && value == TEXT_IGNORED) {
        return 0;
    }
    if (list == MASK) {
        return value == 1 ? 0
                          : core_err_set(-EINVAL,
                                         "%s: %" PRId64
                                         " at index %zu; only masks of ones are supported: omit "
                                         "padding from input_ids, because tide pads rows itself",
                                         key, value, place);
    }
    if (list == POSITIONS) {
        return value >= 0 && (uint64_t)value == place
                   ? 0
                   : core_err_set(-EINVAL,
                                  "%s: %" PRId64 " at index %zu; only 0, 1, 2 ... is supported: "
                                  "write each document as a row, and use --pack",
                                  key, value, place);
    }
    if (value < 0 || value > INT32_MAX) {
        return core_err_set(-EINVAL, "%s: %" PRId64 " is not a token id", key, value);
    }
    if (reading->vocab > 0 && value >= reading->vocab) {
        return core_err_set(-EINVAL, "%s: %" PRId64 " is outside the vocabulary of %" PRId64, key,
                            value, reading->vocab);
    }
    return 0;
}

static int put_item(struct reading *reading, enum list list, int32_t value)
{
    struct text_sample *sample = reading->sample;
    const size_t at = reading->counts[list];
    if (list > LABELS) {
        return 0;
    }
    if (at == sample->count) {
        return text_sample_add(sample, list == IDS ? value : 0, value);
    }
    *(list == IDS ? &sample->ids[at] : &sample->labels[at]) = value;
    return 0;
}

static int read_list(struct reading *reading, enum list list)
{
    struct core_json_token token;
    int rc = core_json_scan_next(&reading->scan, &token);
    if (rc != 0) {
        return rc;
    }
    if (token.kind != CORE_JSON_TOKEN_ARRAY_BEGIN) {
        return core_err_set(-EINVAL, "%s is not a list", list_names[list]);
    }
    for (;; reading->counts[list]++) {
        rc = core_json_scan_next(&reading->scan, &token);
        if (rc != 0 || token.kind == CORE_JSON_TOKEN_ARRAY_END) {
            return rc;
        }
        if (token.kind != CORE_JSON_TOKEN_INTEGER) {
            return core_err_set(-EINVAL, "%s has values that are not whole numbers",
                                list_names[list]);
        }
        const int64_t value = core_json_token_integer(&token);
        if ((rc = check_item(reading, list, value)) != 0 ||
            (rc = put_item(reading, list, (int32_t)value)) != 0) {
            return rc;
        }
    }
}

static int read_member(struct reading *reading, const struct core_json_token *key)
{
    for (int list = 0; list < LISTS; list++) {
        const char *name = list_names[list];
        if (!core_json_token_equals(key, name, strlen(name))) {
            continue;
        }
        if (reading->has[list]) {
            return core_err_set(-EINVAL, "duplicate key \"%s\"", name);
        }
        reading->has[list] = true;
        return read_list(reading, (enum list)list);
    }
    if (core_json_token_equals(key, "token_type_ids", 14)) {
        return core_err_set(-EINVAL, "token_type_ids: not supported; omit the key");
    }
    return core_json_scan_skip(&reading->scan, key);
}

/* Returns 1; 0 without input_ids; -errno. */
static int find_ids(const char *json, size_t bytes)
{
    struct core_json_scan scan;
    struct core_json_token token;
    core_json_scan_init(&scan, json, bytes, "row");
    int rc = core_json_scan_next(&scan, &token);
    if (rc == 0 && token.kind != CORE_JSON_TOKEN_OBJECT_BEGIN) {
        return core_err_set(-EINVAL, "a row must be an object such as {\"messages\": [...]}, "
                                     "{\"text\": \"...\"} or {\"input_ids\": [...]}");
    }
    while (rc == 0 && (rc = core_json_scan_next(&scan, &token)) == 0 &&
           token.kind != CORE_JSON_TOKEN_OBJECT_END) {
        if (core_json_token_equals(&token, "input_ids", 9)) {
            return 1;
        }
        rc = core_json_scan_skip(&scan, &token);
    }
    return rc == 0 ? core_json_scan_next(&scan, &token) : rc; /* nothing may follow */
}

int text_sample_read(struct text_sample *sample, const char *json, size_t bytes, int64_t vocab)
{
    struct core_json_token token;
    struct reading reading = {.sample = sample, .vocab = vocab};
    int rc = find_ids(json, bytes);
    if (rc != 1) {
        return rc;
    }
    sample->count = sample->rejected = 0;
    core_json_scan_init(&reading.scan, json, bytes, "row");
    rc = core_json_scan_next(&reading.scan, &token);
    while (rc == 0 && (rc = core_json_scan_next(&reading.scan, &token)) == 0 &&
           token.kind != CORE_JSON_TOKEN_OBJECT_END) {
        rc = read_member(&reading, &token);
    }
    if (rc != 0 || (rc = core_json_scan_next(&reading.scan, &token)) != 0) {
        return rc;
    }
    const size_t ids = reading.counts[IDS];
    if (ids == 0) {
        return core_err_set(-EINVAL, "input_ids is empty");
    }
    for (int list = LABELS; list < LISTS; list++) {
        if (reading.has[list] && reading.counts[list] != ids) {
            return core_err_set(-EINVAL, "%zu %s for %zu input_ids", reading.counts[list],
                                list_names[list], ids);
        }
    }
    return 1;
}
