/* sample.c: tokens in a growing array, and reading them from a row that has them already. */
#include "tools/text/sample.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/base/json_scan.h"

void text_sample_fini(struct text_sample *sample)
{
    free(sample->ids);
    free(sample->labels);
    *sample = (struct text_sample){0};
}

int text_sample_add(struct text_sample *sample, int32_t id, int32_t label)
{
    if (sample->count == sample->room) {
        const size_t room = sample->room * 2 + 1024;
        int32_t *ids = realloc(sample->ids, room * sizeof *ids);
        sample->ids = ids != NULL ? ids : sample->ids;
        int32_t *labels = ids != NULL ? realloc(sample->labels, room * sizeof *labels) : NULL;
        if (labels == NULL) {
            return core_err_set(-ENOMEM, "no memory for a row of %zu tokens", room);
        }
        sample->labels = labels;
        sample->room = room;
    }
    sample->ids[sample->count] = id;
    sample->labels[sample->count++] = label;
    return 0;
}

size_t text_sample_targets(const int32_t *labels, size_t count)
{
    size_t targets = 0;
    for (size_t i = 1; i < count; i++) {
        targets += labels[i] != TEXT_IGNORED;
    }
    return targets;
}

struct reading {
    struct core_json_scan scan;
    struct text_sample *sample; /* borrowed from the caller */
    int64_t vocab;
    size_t labels;
    bool has_ids;
    bool has_labels;
};

static int check_item(const struct reading *reading, const char *key, bool label, int64_t value)
{
    if (label && value == TEXT_IGNORED) {
        return 0;
    }
    if (value < 0 || value > INT32_MAX) {
        return core_err_set(-EINVAL, "%s: %" PRId64 " is no token id", key, value);
    }
    if (reading->vocab > 0 && value >= reading->vocab) {
        return core_err_set(-EINVAL, "%s: %" PRId64 " is outside the vocabulary of %" PRId64, key,
                            value, reading->vocab);
    }
    return 0;
}

/* The label of a token that stands already, or of one that comes later. */
static int put_label(struct reading *reading, int32_t label)
{
    struct text_sample *sample = reading->sample;
    const size_t at = reading->labels++;
    if (at == sample->count) {
        return text_sample_add(sample, 0, label);
    }
    sample->labels[at] = label;
    return 0;
}

static int put_id(struct reading *reading, size_t at, int32_t id)
{
    struct text_sample *sample = reading->sample;
    if (at == sample->count) {
        return text_sample_add(sample, id, id);
    }
    sample->ids[at] = id;
    return 0;
}

/* [1, 2, ...] behind the key. */
static int read_list(struct reading *reading, bool label, size_t *count)
{
    struct core_json_token token;
    const char *key = label ? "labels" : "input_ids";
    int code = core_json_scan_next(&reading->scan, &token);
    if (code == 0 && token.kind != CORE_JSON_TOKEN_ARRAY_BEGIN) {
        return core_err_set(-EINVAL, "%s is no list", key);
    }
    for (*count = 0; code == 0; (*count)++) {
        code = core_json_scan_next(&reading->scan, &token);
        if (code != 0 || token.kind == CORE_JSON_TOKEN_ARRAY_END) {
            break;
        }
        if (token.kind != CORE_JSON_TOKEN_INTEGER) {
            return core_err_set(-EINVAL, "%s has something but whole numbers", key);
        }
        const int64_t value = core_json_token_integer(&token);
        code = check_item(reading, key, label, value);
        if (code == 0) {
            code = label ? put_label(reading, (int32_t)value)
                         : put_id(reading, *count, (int32_t)value);
        }
    }
    return code;
}

static int read_member(struct reading *reading, const struct core_json_token *key, size_t *ids)
{
    size_t count = 0;
    const bool is_ids = core_json_token_equals(key, "input_ids", 9);
    const bool is_labels = core_json_token_equals(key, "labels", 6);
    if (!is_ids && !is_labels) {
        return core_json_scan_skip(&reading->scan, key);
    }
    if (is_ids ? reading->has_ids : reading->has_labels) {
        return core_err_set(-EINVAL, "%s stands twice", is_ids ? "input_ids" : "labels");
    }
    reading->has_ids |= is_ids;
    reading->has_labels |= is_labels;
    return read_list(reading, is_labels, is_ids ? ids : &count);
}

/* Is there a member `input_ids`? 1, 0, or -EINVAL for what is no object. */
static int find_ids(const char *json, size_t bytes)
{
    struct core_json_scan scan;
    struct core_json_token token;
    core_json_scan_init(&scan, json, bytes, "row");
    int code = core_json_scan_next(&scan, &token);
    if (code == 0 && token.kind != CORE_JSON_TOKEN_OBJECT_BEGIN) {
        return core_err_set(-EINVAL, "a row is an object, as {\"messages\": [...]}, "
                                     "{\"text\": \"...\"} or {\"input_ids\": [...]}");
    }
    while (code == 0) {
        code = core_json_scan_next(&scan, &token);
        if (code != 0 || token.kind == CORE_JSON_TOKEN_OBJECT_END) {
            break;
        }
        if (core_json_token_equals(&token, "input_ids", 9)) {
            return 1;
        }
        code = core_json_scan_skip(&scan, &token);
    }
    return code == 0 ? core_json_scan_next(&scan, &token) : code; /* nothing may follow */
}

int text_sample_read(struct text_sample *sample, const char *json, size_t bytes, int64_t vocab)
{
    struct core_json_token token;
    struct reading reading = {.sample = sample, .vocab = vocab};
    size_t ids = 0;
    int code = find_ids(json, bytes);
    if (code != 1) {
        return code;
    }
    sample->count = 0;
    core_json_scan_init(&reading.scan, json, bytes, "row");
    code = core_json_scan_next(&reading.scan, &token);
    while (code == 0) {
        code = core_json_scan_next(&reading.scan, &token);
        if (code != 0 || token.kind == CORE_JSON_TOKEN_OBJECT_END) {
            break;
        }
        code = read_member(&reading, &token, &ids);
    }
    code = code == 0 ? core_json_scan_next(&reading.scan, &token) : code; /* nothing may follow */
    if (code != 0) {
        return code;
    }
    if (ids == 0) {
        return core_err_set(-EINVAL, "input_ids is empty");
    }
    if (reading.has_labels && reading.labels != ids) {
        return core_err_set(-EINVAL, "%zu labels for %zu input_ids", reading.labels, ids);
    }
    return 1;
}
