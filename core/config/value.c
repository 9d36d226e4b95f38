/* value.c: checks a value against its row, sets defaults, and prints values. */
#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/base/size.h"
#include "core/config/internal.h"
#include "core/json/write.h"

/* Appends the row's range, such as " from LOW to HIGH" or " of at least LOW"; cut if it does not
 * fit. */
static void add_range(const struct core_cfg_row *row, char *out, size_t bytes)
{
    const char *from = " from";
    const char *to = (row->flags & CORE_CFG_HIGH_OPEN) != 0 ? " to below" : " to";
    const char *type = (row->flags & CORE_CFG_HIGH_OPEN) != 0 ? " in fp32" : "";
    size_t used = strlen(out);
    if ((row->flags & CORE_CFG_LOW_OPEN) != 0) {
        from = " above";
    } else if (isnan(row->high)) {
        from = " of at least";
    }
    if (!isnan(row->low)) {
        snprintf(out + used, bytes - used, "%s %.15g", from, row->low);
        used = strlen(out);
    }
    if (!isnan(row->high)) {
        snprintf(out + used, bytes - used, "%s %.15g%s", to, row->high, type);
    }
}

static void add_choices(const struct core_cfg_row *row, int most, char *out, size_t bytes)
{
    snprintf(out, bytes, "one of");
    const char *comma = " ";
    for (const char *at = row->choices; at != NULL && most-- > 0; comma = ", ") {
        size_t used = strlen(out);
        snprintf(out + used, bytes - used, "%s%.*s", comma, (int)strcspn(at, "=|"), at);
        at = strchr(at, '|');
        at = at != NULL ? at + 1 : NULL;
    }
}

void core_cfg_allowed(const struct core_cfg_row *row, char *out, size_t bytes)
{
    static const char *const names[] = {
        [CORE_CFG_BOOL] = "true or false",
        [CORE_CFG_INT] = "an integer",
        [CORE_CFG_REAL] = "a number",
        [CORE_CFG_STRING] = "a string",
        [CORE_CFG_PAIR] = "two numbers in brackets, each",
        [CORE_CFG_STRINGS] = "an array of strings",
        [CORE_CFG_INTS] = "an array of integers",
        [CORE_CFG_AUTO_INT] = "\"auto\" or an integer",
        [CORE_CFG_FEATURE] = "an object with \"enabled\": false, or false",
        [CORE_CFG_SECTION] = "an object",
        [CORE_CFG_LIST] = "an array of objects",
    };
    if (row->type == CORE_CFG_CHOICE) {
        add_choices(row, INT_MAX, out, bytes);
        return;
    }
    snprintf(out, bytes, "%s", names[row->type]);
    if (row->type == CORE_CFG_INT || row->type == CORE_CFG_REAL || row->type == CORE_CFG_PAIR ||
        row->type == CORE_CFG_AUTO_INT) {
        add_range(row, out, bytes);
    }
    if ((row->flags & CORE_CFG_SIZE) != 0) {
        size_t used = strlen(out);
        snprintf(out + used, bytes - used, ", or a size such as \"1M\"");
    }
}

static bool in_range(const struct core_cfg_row *row, double value)
{
    bool low_open = (row->flags & CORE_CFG_LOW_OPEN) != 0;
    bool high_open = (row->flags & CORE_CFG_HIGH_OPEN) != 0;
    bool low = isnan(row->low) || (low_open ? value > row->low : value >= row->low);
    /* The update computes in fp32, which rounds a value close to the limit to the limit. */
    bool high = isnan(row->high) ||
                (high_open ? (float)value < (float)row->high : value <= row->high);
    return low && high;
}

/* Accepts true and false, also as text or as 1 and 0, for which *loose is set. */
static bool take_bool(const struct core_json_value *value, struct core_cfg_value *out, bool *loose)
{
    int64_t integer = -1;
    switch (core_json_kind(value)) {
    case CORE_JSON_BOOL: out->truth = core_json_bool(value); return true;
    case CORE_JSON_STRING:
        out->truth = strcasecmp(core_json_string(value, NULL), "true") == 0;
        *loose = true;
        return out->truth || strcasecmp(core_json_string(value, NULL), "false") == 0;
    case CORE_JSON_INTEGER:
        integer = core_json_integer(value);
        out->truth = integer == 1;
        *loose = true;
        return integer == 0 || integer == 1;
    case CORE_JSON_NULL:
    case CORE_JSON_REAL:
    case CORE_JSON_ARRAY:
    case CORE_JSON_OBJECT: break;
    }
    return false;
}

static bool take_integer(const struct core_cfg_row *row, const struct core_json_value *value,
                         struct core_cfg_value *out)
{
    uint64_t bytes = 0;
    if (core_json_kind(value) == CORE_JSON_STRING && (row->flags & CORE_CFG_SIZE) != 0 &&
        core_size_parse(core_json_string(value, NULL), &bytes) == 0 && bytes <= INT64_MAX) {
        out->integer = (int64_t)bytes;
        return in_range(row, (double)bytes);
    }
    return core_json_as_integer(value, &out->integer) && in_range(row, (double)out->integer);
}

static bool take_real(const struct core_cfg_row *row, const struct core_json_value *value,
                      double *out)
{
    enum core_json_kind kind = core_json_kind(value);
    if (kind != CORE_JSON_INTEGER && kind != CORE_JSON_REAL) {
        return false;
    }
    *out = core_json_real(value);
    return in_range(row, *out);
}

static bool take_string(const struct core_json_value *value, struct core_cfg_value *out)
{
    size_t bytes = 0;
    if (core_json_kind(value) != CORE_JSON_STRING) {
        return false;
    }
    out->text = core_json_string(value, &bytes);
    return strlen(out->text) == bytes;
}

static bool all_are(const struct core_json_value *value, enum core_json_kind kind)
{
    if (core_json_kind(value) != CORE_JSON_ARRAY) {
        return false;
    }
    for (size_t i = 0; i < core_json_count(value); i++) {
        if (core_json_kind(core_json_at(value, i)) != kind) {
            return false;
        }
    }
    return true;
}

static bool is_on(const struct core_json_value *value)
{
    bool loose = false;
    struct core_cfg_value truth = {0};
    return take_bool(value, &truth, &loose) && truth.truth;
}

/* Returns 1 if a member switches the feature on, 0 if members only switch it off, -1 without such
 * members. */
static int switches(const struct core_json_value *object)
{
    int found = -1;
    struct core_json_member member;
    for (bool any = core_json_first(object, &member); any; any = core_json_next(&member)) {
        int below = -1;
        if (strcmp(member.key, "enabled") == 0 || strcmp(member.key, "deepcompile") == 0) {
            below = is_on(member.value);
        } else if (strcmp(member.key, "disable") == 0) {
            below = !is_on(member.value);
        } else if (core_json_kind(member.value) == CORE_JSON_OBJECT) {
            below = switches(member.value);
        }
        found = below > found ? below : found;
    }
    return found;
}

/* An object without switches (above) turns its feature on unless it is empty. */
static bool take_feature(const struct core_json_value *value, struct core_cfg_value *out)
{
    bool loose = false;
    if (core_json_kind(value) == CORE_JSON_OBJECT) {
        int found = switches(value);
        out->truth = found > 0 || (found < 0 && core_json_count(value) > 0);
        return true;
    }
    return take_bool(value, out, &loose);
}

/* Stores a value that has the row's type and range; else returns false. */
static bool take(const struct core_cfg_row *row, const struct core_json_value *value,
                 struct core_cfg_value *out, bool *loose)
{
    out->json = value;
    switch (row->type) {
    case CORE_CFG_BOOL: return take_bool(value, out, loose);
    case CORE_CFG_INT: return take_integer(row, value, out);
    case CORE_CFG_REAL: return take_real(row, value, &out->real[0]);
    case CORE_CFG_STRING: return take_string(value, out);
    case CORE_CFG_CHOICE:
        out->integer = take_string(value, out)
                           ? core_cfg_choice_find(row, out->text, strlen(out->text))
                           : -1;
        return out->integer >= 0;
    case CORE_CFG_PAIR:
        return core_json_kind(value) == CORE_JSON_ARRAY && core_json_count(value) == 2 &&
               take_real(row, core_json_at(value, 0), &out->real[0]) &&
               take_real(row, core_json_at(value, 1), &out->real[1]);
    case CORE_CFG_STRINGS:
        return core_json_kind(value) == CORE_JSON_STRING || all_are(value, CORE_JSON_STRING);
    case CORE_CFG_INTS: return all_are(value, CORE_JSON_INTEGER);
    case CORE_CFG_AUTO_INT:
        return take_integer(row, value, out) ||
               (take_string(value, out) && strcmp(out->text, "auto") == 0);
    case CORE_CFG_FEATURE: return take_feature(value, out);
    case CORE_CFG_SECTION: return core_json_kind(value) == CORE_JSON_OBJECT;
    case CORE_CFG_LIST: return all_are(value, CORE_JSON_OBJECT);
    }
    return false;
}

/* For some rows "auto" is an ordinary string. */
static bool is_auto(const struct core_cfg_row *row, const struct core_json_value *value)
{
    if (core_json_kind(value) != CORE_JSON_STRING ||
        strcmp(core_json_string(value, NULL), "auto") != 0) {
        return false;
    }
    bool own = row->type == CORE_CFG_AUTO_INT || row->type == CORE_CFG_STRINGS ||
               row->type == CORE_CFG_SECTION || row->type == CORE_CFG_LIST ||
               (row->type == CORE_CFG_CHOICE && core_cfg_choice_find(row, "auto", 4) >= 0);
    return !own;
}

void core_cfg_tell_wrong(struct core_cfg_detail *detail, size_t index,
                         const struct core_json_value *value)
{
    const struct core_cfg_row *row = core_cfg_row(index);
    char found[120];
    char allowed[256];
    core_json_print(value, found, sizeof found);
    core_cfg_allowed(row, allowed, sizeof allowed);
    if (strcmp(row->path, "optimizer.type") == 0) { /* later choices are refused */
        add_choices(row, CORE_CFG_OPTIMIZERS, allowed, sizeof allowed);
    }
    core_cfg_tell(detail, CORE_CFG_NOTE_REFUSED, index, "found %s; allowed: %s", found, allowed);
}

static bool is_preset(const struct core_cfg_row *row, const struct core_cfg_value *value)
{
    struct core_json_scan scan;
    struct core_json_token token = {.kind = CORE_JSON_TOKEN_NULL};
    if (row->preset == NULL) {
        return value->is_none;
    }
    core_json_scan_init(&scan, row->preset, strlen(row->preset), row->path);
    int rc = core_json_scan_next(&scan, &token);
    assert(rc == 0);
    switch (row->type) {
    case CORE_CFG_BOOL:
    case CORE_CFG_FEATURE: return value->truth == (token.kind == CORE_JSON_TOKEN_TRUE);
    case CORE_CFG_INT: return (double)value->integer == core_json_token_real(&token);
    case CORE_CFG_REAL: return value->real[0] == core_json_token_real(&token);
    case CORE_CFG_CHOICE:
        return value->integer == core_cfg_choice_find(row, token.text, token.bytes);
    case CORE_CFG_STRING:
        return value->text != NULL &&
               core_json_token_equals(&token, value->text, strlen(value->text));
    case CORE_CFG_PAIR:
    case CORE_CFG_STRINGS:
    case CORE_CFG_INTS:
    case CORE_CFG_AUTO_INT:
    case CORE_CFG_SECTION:
    case CORE_CFG_LIST: break;
    }
    return false;
}

void core_cfg_set(struct core_cfg_detail *detail, size_t index, const struct core_json_value *value)
{
    const struct core_cfg_row *row = core_cfg_row(index);
    struct core_cfg_value *kept = &detail->values[index];
    if (is_auto(row, value)) {
        kept->origin = CORE_CFG_AUTO;
        return;
    }
    bool nullable = row->preset == NULL || row->type == CORE_CFG_SECTION;
    if (nullable && core_json_kind(value) == CORE_JSON_NULL) {
        return;
    }
    struct core_cfg_value taken = *kept;
    bool loose = false;
    taken.is_none = false;
    taken.origin = CORE_CFG_FILE;
    if (!take(row, value, &taken, &loose)) {
        core_cfg_tell_wrong(detail, index, value);
        return;
    }
    *kept = taken;
    if (loose) {
        core_cfg_tell(detail, CORE_CFG_NOTE_WARNING, index,
                      "taken as %s; write true or false without quotes",
                      taken.truth ? "true" : "false");
    }
    if (row->state == CORE_CFG_REFUSED && !is_preset(row, kept)) {
        char allowed[256];
        core_cfg_allowed(row, allowed, sizeof allowed);
        const bool none = row->type == CORE_CFG_SECTION || row->preset == NULL;
        core_cfg_tell(detail, CORE_CFG_NOTE_REFUSED, index, "%s; %s%s", row->why,
                      none ? "allowed: only to omit it" : "allowed: ",
                      none                            ? ""
                      : row->type == CORE_CFG_FEATURE ? allowed
                                                      : row->preset);
    }
}

bool core_cfg_fits(size_t index, const struct core_json_value *value)
{
    struct core_cfg_value taken = {0};
    bool loose = false;
    return core_json_kind(value) == CORE_JSON_NULL ||
           take(core_cfg_row(index), value, &taken, &loose);
}

static void preset_scalar(const struct core_cfg_row *row, const struct core_json_token *token,
                          struct core_cfg_detail *detail, struct core_cfg_value *value)
{
    bool number = token->kind == CORE_JSON_TOKEN_INTEGER || token->kind == CORE_JSON_TOKEN_REAL;
    value->truth = token->kind == CORE_JSON_TOKEN_TRUE;
    if (row->type == CORE_CFG_INT && number) {
        value->integer = token->kind == CORE_JSON_TOKEN_INTEGER
                             ? core_json_token_integer(token)
                             : (int64_t)core_json_token_real(token);
    } else if (number) {
        value->real[0] = core_json_token_real(token);
    } else if (row->type == CORE_CFG_CHOICE) {
        value->integer = core_cfg_choice_find(row, token->text, token->bytes);
        assert(value->integer >= 0);
    } else if (token->kind == CORE_JSON_TOKEN_STRING) {
        value->text = core_cfg_keep(detail, "%.*s", (int)token->bytes, token->text);
    }
}

void core_cfg_set_preset(struct core_cfg_detail *detail, size_t index)
{
    const struct core_cfg_row *row = core_cfg_row(index);
    struct core_cfg_value *value = &detail->values[index];
    *value = (struct core_cfg_value){.is_none = row->preset == NULL};
    if (row->preset == NULL) {
        return;
    }
    struct core_json_scan scan;
    struct core_json_token token;
    core_json_scan_init(&scan, row->preset, strlen(row->preset), row->path);
    int rc = core_json_scan_next(&scan, &token);
    assert(rc == 0);
    if (row->type != CORE_CFG_PAIR) {
        preset_scalar(row, &token, detail, value);
        return;
    }
    for (int i = 0; i < 2; i++) {
        rc = core_json_scan_next(&scan, &token);
        assert(rc == 0);
        value->real[i] = core_json_token_real(&token);
    }
}

void core_cfg_write_value(struct core_json_write *write, const char *key,
                          const struct core_cfg_row *row, const struct core_cfg_value *value)
{
    char name[64];
    if (value->is_none) {
        core_json_write_null(write, key);
        return;
    }
    switch (row->type) {
    case CORE_CFG_BOOL: core_json_write_bool(write, key, value->truth); return;
    case CORE_CFG_INT: core_json_write_integer(write, key, value->integer); return;
    case CORE_CFG_REAL: core_json_write_real(write, key, value->real[0]); return;
    case CORE_CFG_STRING: core_json_write_string(write, key, value->text); return;
    case CORE_CFG_CHOICE:
        core_cfg_choice_name(row, value->integer, name, sizeof name);
        core_json_write_string(write, key, name);
        return;
    case CORE_CFG_PAIR:
        core_json_write_array_begin(write, key);
        core_json_write_real(write, NULL, value->real[0]);
        core_json_write_real(write, NULL, value->real[1]);
        core_json_write_array_end(write);
        return;
    case CORE_CFG_STRINGS:
    case CORE_CFG_INTS:
    case CORE_CFG_AUTO_INT:
    case CORE_CFG_FEATURE:
    case CORE_CFG_SECTION:
    case CORE_CFG_LIST: break;
    }
    if (value->json != NULL) {
        core_json_write_value(write, key, value->json);
    } else if (value->text != NULL) {
        core_json_write_string(write, key, value->text);
    } else if (row->type == CORE_CFG_FEATURE) {
        core_json_write_bool(write, key, value->truth);
    } else {
        core_json_write_array_begin(write, key);
        core_json_write_array_end(write);
    }
}

const char *core_cfg_value_text(struct core_cfg_detail *detail, size_t row)
{
    struct core_json_write write;
    core_json_write_init_text(&write);
    write.nan_is_null = true;
    core_cfg_write_value(&write, NULL, core_cfg_row(row), &detail->values[row]);
    const char *text = core_cfg_keep(detail, "%s", write.text != NULL ? write.text : "");
    core_json_write_fini(&write);
    return text;
}

bool core_cfg_applies(const struct core_cfg_detail *detail, size_t row)
{
    const char *only = core_cfg_row(row)->only;
    if (only == NULL) {
        return true;
    }
    bool schedule = strncmp(core_cfg_row(row)->path, "scheduler.", 10) == 0;
    size_t type = core_cfg_index(schedule ? "scheduler.type" : "optimizer.type");
    char name[32] = "AdamW";
    if (!detail->values[type].is_none) {
        core_cfg_choice_name(core_cfg_row(type), detail->values[type].integer, name, sizeof name);
    } else if (schedule) {
        return false;
    }
    return core_cfg_is_named(only, name, strlen(name));
}
