/* read.c: reads a configuration and fills the plain struct. */
#include "core/config/config.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/base64.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/config/internal.h"

/* configurations have a few kilobytes */
static const size_t bytes_max = (size_t)4 << 20;

void core_cfg_options_init(struct core_cfg_options *options)
{
    const double none = (double)NAN;
    *options = (struct core_cfg_options){
        .world_size = 1,
        .micro_batch_size = CORE_CFG_NONE,
        .accumulation_steps = CORE_CFG_NONE,
        .warmup_steps = CORE_CFG_NONE,
        .total_steps = CORE_CFG_NONE,
        .lr = none,
        .betas = {none, none},
        .eps = none,
        .weight_decay = none,
        .gradient_clipping = none,
        .precision = -1,
    };
}

static void publish(struct core_cfg *cfg, const struct core_cfg_row *row,
                    const struct core_cfg_value *value)
{
    unsigned char *base = (unsigned char *)cfg + (row->field - 1);
    double real[2] = {value->is_none ? (double)NAN : value->real[0], value->real[1]};
    int64_t integer = value->is_none ? CORE_CFG_NONE : value->integer;
    int choice = value->is_none ? -1 : (int)value->integer;
    bool truth = !value->is_none && value->truth;
    const char *text = value->is_none ? NULL : value->text;
    switch (row->type) {
    case CORE_CFG_BOOL: memcpy(base, &truth, sizeof truth); return;
    case CORE_CFG_INT: memcpy(base, &integer, sizeof integer); return;
    case CORE_CFG_REAL: memcpy(base, real, sizeof real[0]); return;
    case CORE_CFG_PAIR: memcpy(base, real, sizeof real); return;
    case CORE_CFG_CHOICE: memcpy(base, &choice, sizeof choice); return;
    case CORE_CFG_STRING: memcpy(base, &text, sizeof text); return;
    case CORE_CFG_STRINGS:
    case CORE_CFG_INTS:
    case CORE_CFG_AUTO_INT:
    case CORE_CFG_FEATURE:
    case CORE_CFG_SECTION:
    case CORE_CFG_LIST: break;
    }
    assert(false && "rows of this type have no field");
}

static void publish_all(struct core_cfg *cfg)
{
    const struct core_cfg_detail *detail = cfg->detail;
    size_t count = core_cfg_row_count();
    for (size_t i = 0; i < count; i++) {
        if (core_cfg_row(i)->field != 0) {
            publish(cfg, core_cfg_row(i), &detail->values[i]);
        }
    }
    cfg->world_size = detail->options->world_size;
    const struct core_cfg_value *check =
        &detail->values[core_cfg_index("bf16.check_grad_overflow")];
    cfg->bf16.check_grad_overflow_given = check->origin == CORE_CFG_FILE;
}

static int read_document(struct core_cfg *cfg, const struct core_cfg_options *options)
{
    struct core_cfg_detail *detail = cfg->detail;
    const struct core_json_value *root = core_json_root(detail->doc);
    if (core_json_kind(root) != CORE_JSON_OBJECT) {
        return core_err_set(-EINVAL, "%s:1:1: found %s; expected an object, { ... }",
                            core_json_source(detail->doc),
                            core_json_kind_name(core_json_kind(root)));
    }
    size_t count = core_cfg_row_count();
    detail->values = calloc(count, sizeof *detail->values);
    if (detail->values == NULL) {
        return core_err_set(-ENOMEM, "no memory for a configuration");
    }
    for (size_t i = 0; i < count; i++) {
        core_cfg_set_preset(detail, i);
    }
    detail->options = options;
    core_cfg_walk(detail);
    core_cfg_resolve(detail);
    core_cfg_apply_rules(detail);
    core_cfg_finish_notes(detail);
    publish_all(cfg);
    detail->options = NULL;
    return detail->code;
}

int core_cfg_parse(const char *text, size_t bytes, const char *source,
                   const struct core_cfg_options *options, struct core_cfg **out)
{
    struct core_cfg_options usual;
    core_cfg_options_init(&usual);
    const struct core_json_options lenient = {.lenient = true};
    struct core_cfg *cfg = calloc(1, sizeof *cfg);
    int rc = 0;
    if (cfg == NULL || (cfg->detail = calloc(1, sizeof *cfg->detail)) == NULL) {
        rc = core_err_set(-ENOMEM, "no memory for a configuration");
        goto fail;
    }
    rc = core_json_parse(text, bytes, source, &lenient, &cfg->detail->doc);
    if (rc != 0) {
        goto fail;
    }
    rc = read_document(cfg, options != NULL ? options : &usual);
    if (rc != 0) {
        goto fail;
    }
    *out = cfg;
    return 0;
fail:
    core_cfg_destroy(cfg);
    return rc;
}

/* Returns 1 if the first four characters decode to the beginning of an object or comment, 0 if not,
 * or -ENOMEM. */
static int looks_encoded(const char *argument)
{
    char *front = NULL;
    size_t bytes = 0;
    int rc = strnlen(argument, 4) < 4 ? -EINVAL : core_base64_decode(argument, 4, &front, &bytes);
    if (rc != 0) {
        return rc == -ENOMEM ? rc : 0;
    }
    size_t at = strspn(front, " \t\r\n");
    bool object = bytes == 3 && (front[at] == '{' || strncmp(front + at, "//", 2) == 0 ||
                                 strncmp(front + at, "/*", 2) == 0);
    free(front);
    return object;
}

int core_cfg_load(const char *argument, const struct core_cfg_options *options,
                  struct core_cfg **out)
{
    char *text = NULL;
    size_t bytes = 0;
    const char *source = strcmp(argument, "-") == 0 ? "standard input" : argument;
    bool is_file = strcmp(argument, "-") == 0 || access(argument, F_OK) == 0;
    int rc = is_file ? 0 : looks_encoded(argument);
    if (rc < 0) {
        return rc;
    }
    if (rc > 0) {
        source = "base64 text";
        rc = core_base64_decode(argument, strlen(argument), &text, &bytes);
    } else if (argument[0] == '\0') {
        rc = core_err_set(-EINVAL, "\"\" is not a configuration; allowed: a path, - for standard "
                                   "input, or url-safe base64 of the text");
    } else {
        rc = core_file_read(argument, bytes_max, &text, &bytes);
    }
    if (rc == 0) {
        rc = core_cfg_parse(text, bytes, source, options, out);
    }
    free(text);
    return rc;
}

void core_cfg_destroy(struct core_cfg *cfg)
{
    if (cfg == NULL) {
        return;
    }
    if (cfg->detail != NULL) {
        core_cfg_free_notes(cfg->detail);
        core_json_destroy(cfg->detail->doc);
        free(cfg->detail->values);
        free(cfg->detail);
    }
    free(cfg);
}

const char *core_cfg_source(const struct core_cfg *cfg)
{
    return core_json_source(cfg->detail->doc);
}

size_t core_cfg_notes_count(const struct core_cfg *cfg)
{
    return cfg->detail->notes_count;
}

size_t core_cfg_notes_of(const struct core_cfg *cfg, enum core_cfg_note_kind kind)
{
    size_t count = 0;
    for (size_t i = 0; i < cfg->detail->notes_count; i++) {
        count += cfg->detail->notes[i].kind == kind;
    }
    return count;
}

struct core_cfg_note core_cfg_note(const struct core_cfg *cfg, size_t index)
{
    assert(index < cfg->detail->notes_count);
    return cfg->detail->notes[index];
}

const char *core_cfg_note_kind_name(enum core_cfg_note_kind kind)
{
    static const char *const names[] = {"honoured",  "later",   "ignored",
                                        "defaulted", "warning", "refused"};
    return names[kind];
}

int core_cfg_check(const struct core_cfg *cfg)
{
    size_t count = core_cfg_notes_of(cfg, CORE_CFG_NOTE_REFUSED);
    if (count == 0) {
        return 0;
    }
    struct core_cfg_note first = core_cfg_note(cfg, 0);
    char more[64] = "";
    if (count > 1) {
        snprintf(more, sizeof more, " (and %zu more)", count - 1);
    }
    return core_err_set(-EINVAL, "%s:%zu:%zu: %s: %s%s", core_cfg_source(cfg), first.line,
                        first.column, first.key, first.why, more);
}
