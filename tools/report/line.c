/* line.c: reads the figures of a line token by token. */
#include "tools/report/line.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/base/err.h"
#include "core/json/scan.h"

static const struct key {
    const char *group; /* NULL: the top level */
    const char *name;
    enum report_figure figure;
} keys[] = {
    {NULL, "loss", REPORT_LOSS},
    {NULL, "eval_loss", REPORT_EVAL},
    {NULL, "grad_norm", REPORT_NORM},
    {NULL, "lr", REPORT_LR},
    {NULL, "loss_scale", REPORT_SCALE},
    {NULL, "skipped", REPORT_SKIPPED},
    {NULL, "tokens", REPORT_TOKENS},
    {NULL, "seconds", REPORT_SECONDS},
    {NULL, "tokens_per_second", REPORT_RATE},
    {NULL, "store_read_bytes", REPORT_READ},
    {NULL, "store_write_bytes", REPORT_WRITE},
    {NULL, "h2d_bytes", REPORT_UP},
    {NULL, "d2h_bytes", REPORT_DOWN},
    {"wait", "store_read", REPORT_WAIT_READ},
    {"wait", "store_write", REPORT_WAIT_WRITE},
    {"wait", "update", REPORT_WAIT_UPDATE},
    {"wait", "copy", REPORT_WAIT_COPY},
    {"wait", "imbalance", REPORT_WAIT_IMBALANCE},
    {"wait", "other", REPORT_WAIT_OTHER},
    {"wait", "data", REPORT_WAIT_DATA},
    {"guesses", "right", REPORT_RIGHT},
    {"guesses", "wrong", REPORT_WRONG},
    {"guesses", "bytes", REPORT_LOST_BYTES},
    {"guesses", "seconds", REPORT_LOST_SECONDS},
    {NULL, "rss_gb", REPORT_RSS},
    {NULL, "reward_chosen", REPORT_CHOSEN},
    {NULL, "reward_rejected", REPORT_REJECTED},
    {NULL, "reward_margin", REPORT_MARGIN},
    {NULL, "reward_accuracy", REPORT_ACCURACY},
    {NULL, "eval_reward_margin", REPORT_EVAL_MARGIN},
    {NULL, "eval_reward_accuracy", REPORT_EVAL_ACCURACY},
    {"ranks", "gather_bytes", REPORT_GATHER},
    {"ranks", "reduce_bytes", REPORT_REDUCE},
    {"ranks", "gather_between_bytes", REPORT_GATHER_BETWEEN},
    {"ranks", "reduce_between_bytes", REPORT_REDUCE_BETWEEN},
};
enum { KEYS = sizeof keys / sizeof keys[0] };

/* Replaces the line number: "file:1:column" becomes "file:line:column". */
static int refuse_text(const struct report_line *line, int rc)
{
    char was[CORE_ERR_MESSAGE_BYTES];
    const size_t length = strlen(line->path);
    const char *message = core_err_message();
    if (strncmp(message, line->path, length) != 0 || strncmp(message + length, ":1:", 3) != 0) {
        return core_err_prefix(rc, "%s:%" PRIu64, line->path, line->number);
    }
    memcpy(was, message + length + 3, strlen(message + length + 3) + 1);
    return core_err_set(rc, "%s:%" PRIu64 ":%s", line->path, line->number, was);
}

static int refuse_key(const struct report_line *line, const char *group, const char *name,
                      const char *wanted)
{
    return core_err_set(-EINVAL, "%s:%" PRIu64 ": key \"%s%s%s\" is not %s", line->path,
                        line->number, group != NULL ? group : "", group != NULL ? "." : "", name,
                        wanted);
}

static const struct key *find_key(const char *group, const struct core_json_token *token)
{
    for (size_t i = 0; i < KEYS; i++) {
        const bool same = group == NULL
                              ? keys[i].group == NULL
                              : keys[i].group != NULL && strcmp(keys[i].group, group) == 0;
        if (same && core_json_token_equals(token, keys[i].name, strlen(keys[i].name))) {
            return &keys[i];
        }
    }
    return NULL;
}

static int take_value(const struct report_line *line, const struct key *key,
                      const struct core_json_token *token, double *out)
{
    const bool number = token->kind == CORE_JSON_TOKEN_INTEGER ||
                        token->kind == CORE_JSON_TOKEN_REAL;
    if (number) {
        *out = core_json_token_real(token);
    } else if (token->kind == CORE_JSON_TOKEN_NULL) {
        *out = (double)INFINITY;
    } else if (token->kind == CORE_JSON_TOKEN_TRUE || token->kind == CORE_JSON_TOKEN_FALSE) {
        *out = token->kind == CORE_JSON_TOKEN_TRUE;
    } else {
        return refuse_key(line, key->group, key->name, "a number or null");
    }
    return 0;
}

static bool is_key(const struct core_json_token *token, const char *name)
{
    return core_json_token_equals(token, name, strlen(name));
}

struct reading {
    const struct report_line *line;
    struct core_json_scan scan;
    struct report_values *values;
    bool has_step, has_summary, more;
};

static int take_step(struct reading *reading, const struct core_json_token *token)
{
    const int64_t step = token->kind == CORE_JSON_TOKEN_INTEGER ? core_json_token_integer(token)
                                                                : 0;
    if (step < 1 || step > INT64_C(1) << 53) {
        return refuse_key(reading->line, NULL, "step", "a whole number of at least 1");
    }
    reading->values->step = (uint64_t)step;
    reading->has_step = true;
    return 0;
}

static int next_token(struct reading *reading, struct core_json_token *token)
{
    int rc = core_json_scan_next(&reading->scan, token);
    return rc == 0 ? 0 : refuse_text(reading->line, rc);
}

static int skip_value(struct reading *reading, const struct core_json_token *token)
{
    int rc = core_json_scan_skip(&reading->scan, token);
    return rc == 0 ? 0 : refuse_text(reading->line, rc);
}

/* Reads "wait", "guesses" or "ranks". */
static int take_group(struct reading *reading, const char *group)
{
    struct core_json_token token;
    int rc = next_token(reading, &token);
    if (rc == 0 && token.kind == CORE_JSON_TOKEN_NULL) {
        return 0;
    }
    if (rc == 0 && token.kind != CORE_JSON_TOKEN_OBJECT_BEGIN) {
        return refuse_key(reading->line, NULL, group, "an object");
    }
    while (rc == 0 && (rc = next_token(reading, &token)) == 0 &&
           token.kind == CORE_JSON_TOKEN_KEY) {
        const struct key *key = find_key(group, &token);
        if (key == NULL) {
            rc = skip_value(reading, &token);
            continue;
        }
        rc = next_token(reading, &token);
        if (rc == 0) {
            rc = take_value(reading->line, key, &token, &reading->values->of[key->figure]);
        }
    }
    return rc;
}

static int take_drive(struct reading *reading, double *sum)
{
    static const struct key bytes[] = {{"drives[]", "read_bytes", REPORT_DRIVE},
                                       {"drives[]", "write_bytes", REPORT_DRIVE}};
    struct core_json_token token;
    int rc = 0;
    *sum = 0;
    while (rc == 0 && (rc = next_token(reading, &token)) == 0 &&
           token.kind == CORE_JSON_TOKEN_KEY) {
        const struct key *key = is_key(&token, bytes[0].name)   ? &bytes[0]
                                : is_key(&token, bytes[1].name) ? &bytes[1]
                                                                : NULL;
        double value = 0;
        if (key == NULL) {
            rc = skip_value(reading, &token);
            continue;
        }
        rc = next_token(reading, &token);
        if (rc == 0) {
            rc = take_value(reading->line, key, &token, &value);
        }
        *sum += value;
    }
    return rc;
}

static int take_drives(struct reading *reading)
{
    struct core_json_token token;
    size_t count = 0;
    int rc = next_token(reading, &token);
    if (rc == 0 && token.kind != CORE_JSON_TOKEN_ARRAY_BEGIN) {
        return refuse_key(reading->line, NULL, "drives", "an array");
    }
    while (rc == 0 && (rc = next_token(reading, &token)) == 0 &&
           token.kind != CORE_JSON_TOKEN_ARRAY_END) {
        double sum = 0;
        if (token.kind != CORE_JSON_TOKEN_OBJECT_BEGIN) {
            return refuse_key(reading->line, NULL, "drives[]", "an object");
        }
        rc = take_drive(reading, &sum);
        if (count < REPORT_DRIVES) {
            reading->values->of[REPORT_DRIVE + count++] = sum;
        }
    }
    return rc;
}

static int take_member(struct reading *reading, struct core_json_token *token)
{
    if (is_key(token, "drives")) {
        return take_drives(reading);
    }
    static const char *const groups[] = {"wait", "guesses", "ranks"};
    static const char *const objects[] = {"run", "plan", "events"};
    for (size_t i = 0; i < 3; i++) {
        if (is_key(token, groups[i])) {
            return take_group(reading, groups[i]);
        }
    }
    for (size_t i = 0; i < 3; i++) {
        reading->more |= is_key(token, objects[i]);
    }
    reading->has_summary |= is_key(token, "median_seconds");
    const bool step = is_key(token, "step");
    const struct key *key = find_key(NULL, token);
    if (!step && key == NULL) {
        return skip_value(reading, token);
    }
    int rc = next_token(reading, token);
    if (rc != 0) {
        return rc;
    }
    return step ? take_step(reading, token)
                : take_value(reading->line, key, token, &reading->values->of[key->figure]);
}

int report_line_read(const struct report_line *line, enum report_line_kind *kind,
                     struct report_values *values, bool *more)
{
    struct reading reading = {.line = line, .values = values};
    struct core_json_token token;
    for (int i = 0; i < REPORT_FIGURES; i++) {
        values->of[i] = (double)NAN;
    }
    core_json_scan_init(&reading.scan, line->text, line->bytes, line->path);
    int rc = next_token(&reading, &token);
    if (rc == 0 && token.kind != CORE_JSON_TOKEN_OBJECT_BEGIN) {
        return core_err_set(
            -EINVAL, "%s:%" PRIu64 ": not a JSON object; the file is not a log of tide finetune",
            line->path, line->number);
    }
    while (rc == 0 && (rc = next_token(&reading, &token)) == 0 &&
           token.kind == CORE_JSON_TOKEN_KEY) {
        rc = take_member(&reading, &token);
    }
    if (rc != 0 || (rc = next_token(&reading, &token)) != 0) { /* the line must end here */
        return rc;
    }
    if (!reading.has_step && !reading.has_summary) {
        return core_err_set(-EINVAL,
                            "%s:%" PRIu64 ": has neither key \"step\" nor \"median_seconds\"; the "
                            "file is not a log of tide finetune",
                            line->path, line->number);
    }
    *kind = reading.has_step ? REPORT_LINE_STEP : REPORT_LINE_SUMMARY;
    *more = reading.more || !reading.has_step;
    return 0;
}
