/* Tests keys against keys.tsv (values, defaults) and DeepSpeed's defaults. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/config/table.h"
#include "core/json/json.h"
#include "core/json/write.h"
#include "tests/cfg/rig.h"
#include "tests/harness/test.h"

enum { KEY, WITH, ACCEPTED, DEFAULT, WRONG, RANGE, COLUMNS };

static const char *fixture(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/cfg/%s", test_root(), name);
    return path;
}

/* Writes JSON with `value` at `path`, one level per line; the key is on line `*line`. */
static void build(const char *path, const char *with, const char *value, char *out, size_t bytes,
                  size_t *line)
{
    char close[64] = "";
    size_t used = (size_t)snprintf(out, bytes, "{\"train_batch_size\": 1,\n");
    *line = 2;
    if (strcmp(path, "train_batch_size") == 0) {
        used = (size_t)snprintf(out, bytes, "{\n");
    }
    for (const char *part = path; *part != '\0';) {
        size_t length = strcspn(part, ".[");
        const char *rest = part + length;
        bool array = strncmp(rest, "[]", 2) == 0;
        rest += array ? 2 : 0;
        if (*rest == '\0') {
            used += (size_t)snprintf(out + used, bytes - used, "\"%.*s\": %s", (int)length, part,
                                     value);
            break;
        }
        used += (size_t)snprintf(out + used, bytes - used, "\"%.*s\": %s{", (int)length, part,
                                 array ? "[" : "");
        if (strcmp(with, "-") != 0 && part == path) {
            used += (size_t)snprintf(out + used, bytes - used, "\"type\": \"%s\",", with);
        }
        used += (size_t)snprintf(out + used, bytes - used, "\n");
        ++*line;
        char before[64];
        memcpy(before, close, sizeof before);
        snprintf(close, sizeof close, "}%s%.50s", array ? "]" : "", before);
        part = rest + 1;
    }
    snprintf(out + used, bytes - used, "%s}", close);
}

/* Writes the reason and the line of the key's refusal; the reason is "" if the key is accepted. */
static void refusal(const char *text, const char *key, char *why, size_t bytes, size_t *line)
{
    struct core_cfg *cfg = rig_parse(text, NULL);
    struct core_cfg_note note = {.why = ""};
    *line = rig_note(cfg, CORE_CFG_NOTE_REFUSED, key, &note) ? note.line : 0;
    snprintf(why, bytes, "%s", note.why);
    core_cfg_destroy(cfg);
}

static void expect(char *const *row, int column)
{
    char text[1024];
    char why[512];
    size_t line = 0;
    size_t told = 0;
    if (strcmp(row[column], "-") == 0) {
        return;
    }
    build(row[KEY], row[WITH], row[column], text, sizeof text, &line);
    refusal(text, row[KEY], why, sizeof why, &told);
    if (column == ACCEPTED && why[0] != '\0') {
        test_fail(__FILE__, __LINE__, "%s: %s is refused: %s", row[KEY], row[column], why);
    }
    if (column != ACCEPTED && (strstr(why, "allowed: ") == NULL || told != line)) {
        test_fail(__FILE__, __LINE__,
                  "%s: %s gives \"%s\" on line %zu, without what is allowed, or not line %zu",
                  row[KEY], row[column], why, told, line);
    }
}

/* Calls `visit` for the rows of keys.tsv; returns their number. */
static size_t each_row(void (*visit)(char *const *row))
{
    char *text = NULL;
    size_t bytes = 0;
    size_t rows = 0;
    check_int(core_file_read(fixture("keys.tsv"), 1 << 20, &text, &bytes), ==, 0);
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        char *row[COLUMNS];
        size_t columns = 0;
        if (line[0] == '#' || line[0] == '\0') {
            continue;
        }
        for (char *cell; columns < COLUMNS && (cell = strsep(&line, "\t")) != NULL;) {
            row[columns++] = cell;
        }
        check_uint(columns, ==, COLUMNS);
        visit(row);
        rows++;
    }
    free(text);
    return rows;
}

static void visit_values(char *const *row)
{
    expect(row, ACCEPTED);
    expect(row, WRONG);
    expect(row, RANGE);
}

/* A key accepts valid values; the refusal of others has the line and the allowed values. */
static void values(void)
{
    check_uint(each_row(visit_values), >, 200);
}

static bool same_json(const char *left, const char *right)
{
    struct core_json *a = NULL;
    struct core_json *b = NULL;
    char one[256] = "?";
    char two[256] = "!";
    if (core_json_parse(left, strlen(left), "left", NULL, &a) == 0 &&
        core_json_parse(right, strlen(right), "right", NULL, &b) == 0) {
        const struct core_json_value *x = core_json_root(a);
        const struct core_json_value *y = core_json_root(b);
        enum core_json_kind kind = core_json_kind(x);
        bool numbers = (kind == CORE_JSON_INTEGER || kind == CORE_JSON_REAL) &&
                       (core_json_kind(y) == CORE_JSON_INTEGER ||
                        core_json_kind(y) == CORE_JSON_REAL);
        core_json_print(x, one, sizeof one);
        core_json_print(y, two, sizeof two);
        if (numbers && core_json_real(x) == core_json_real(y)) {
            two[0] = '\0';
            one[0] = '\0';
        }
    }
    core_json_destroy(a);
    core_json_destroy(b);
    return strcmp(one, two) == 0;
}

static const struct core_cfg_row *row_of(const char *path)
{
    for (size_t i = 0; i < core_cfg_row_count(); i++) {
        if (strcmp(core_cfg_row(i)->path, path) == 0) {
            return core_cfg_row(i);
        }
    }
    return NULL;
}

static void visit_default(char *const *row)
{
    const struct core_cfg_row *known = row_of(row[KEY]);
    if (known == NULL) {
        test_fail(__FILE__, __LINE__, "there is no row for %s", row[KEY]);
    }
    const char *preset = known->preset != NULL ? known->preset : "null";
    const char *wanted = strcmp(row[DEFAULT], "none") == 0 ? "null" : row[DEFAULT];
    if (!same_json(preset, wanted)) {
        test_fail(__FILE__, __LINE__, "%s is %s by default, not %s", row[KEY], preset, wanted);
    }
}

/* Keys have the defaults of DeepSpeed's documentation. */
static void defaults(void)
{
    each_row(visit_default);
}

static const char *rows_seen[512];
static size_t rows_seen_count;

static void visit_name(char *const *row)
{
    const struct core_cfg_row *known = row_of(row[KEY]);
    check_true(known != NULL && rows_seen_count < 512);
    rows_seen[rows_seen_count++] = known->path;
}

/* A row of the table has a row in keys.tsv, except sections and the keys below. */
static void all_rows(void)
{
    static const char *const newer[] = {
        "disable_python_gc",
        "use_data_before_expert_parallelism",
        "weight_quantization",
        "data_types.keep_in_fp32_modules",
        "zero_optimization.compute_grad_norm",
        "zero_optimization.parameter_alignment",
        "zero_optimization.grad_hooks",
        "zero_optimization.offload_optimizer.pipeline",
        "tensor_parallel.vocab_parallel_lm_head",
        "tensor_parallel.vocab_parallel_ce_backend",
        "optimizer.params.momentum",
        "optimizer.params.dampening",
        "optimizer.params.nesterov",
    };
    rows_seen_count = 0;
    each_row(visit_name);
    for (size_t i = 0; i < core_cfg_row_count(); i++) {
        const struct core_cfg_row *row = core_cfg_row(i);
        bool seen = row->type == CORE_CFG_SECTION;
        for (size_t j = 0; j < rows_seen_count && !seen; j++) {
            seen = rows_seen[j] == row->path;
        }
        for (size_t j = 0; j < sizeof newer / sizeof newer[0] && !seen; j++) {
            seen = strcmp(newer[j], row->path) == 0;
        }
        if (!seen) {
            test_fail(__FILE__, __LINE__, "%s has no row in keys.tsv", row->path);
        }
    }
}

/* Returns whether the comparison leaves out this key. */
static bool differs_knowingly(const char *path)
{
    static const char *const known[] = {
        "tensor_parallel.dtype", /* DeepSpeed's value is a torch.dtype */
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(known[i], path) == 0) {
            return true;
        }
    }
    return false;
}

/* The defaults are those that DeepSpeed printed. */
static void deepspeed_defaults(void)
{
    struct core_json *doc = NULL;
    check_int(core_json_load(fixture("deepspeed_defaults.json"), NULL, &doc), ==, 0);
    struct core_json_member member;
    size_t compared = 0;
    for (bool any = core_json_first(core_json_root(doc), &member); any;
         any = core_json_next(&member)) {
        const struct core_cfg_row *row = row_of(member.key);
        char text[256];
        if (member.key[0] == '_' || differs_knowingly(member.key)) {
            continue;
        }
        if (row == NULL) {
            /* The table has newer names for these keys. */
            if (strstr(member.key, "gather_fp16") == NULL &&
                strstr(member.key, "kernel_inject") == NULL &&
                strcmp(member.key, "tensor_parallel.tp") != 0) {
                test_fail(__FILE__, __LINE__, "there is no row for %s", member.key);
            }
            continue;
        }
        core_json_print(member.value, text, sizeof text);
        const char *preset = row->preset != NULL ? row->preset : "null";
        if (row->type != CORE_CFG_SECTION && !same_json(preset, text)) {
            test_fail(__FILE__, __LINE__, "%s is %s by default, and %s in DeepSpeed", member.key,
                      preset, text);
        }
        compared++;
    }
    core_json_destroy(doc);
    check_uint(compared, >, 150);
}

static void document(void)
{
    char *committed = NULL;
    char *printed = NULL;
    size_t bytes = 0;
    char path[512];
    snprintf(path, sizeof path, "%s/../docs/ds_config.md", test_root());
    check_int(core_file_read(path, 1 << 20, &committed, &bytes), ==, 0);
    FILE *stream = open_memstream(&printed, &bytes);
    check_true(stream != NULL);
    core_cfg_document(stream);
    fclose(stream);
    bool same = strcmp(committed, printed) == 0;
    free(committed);
    free(printed);
    if (!same) {
        test_fail(__FILE__, __LINE__,
                  "docs/ds_config.md is not what `tide config --keys` prints; write it again");
    }
}

/* A resolved configuration resolves to itself. */
static void resolved_again(void)
{
    struct core_cfg *cfg = rig_accept(
        "{\"train_batch_size\": 8, \"zero_optimization\": {\"stage\": 2, \"offload_optimizer\": "
        "{\"device\": \"cpu\"}}, \"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 1e-4}}, "
        "\"scheduler\": {\"type\": \"WarmupCosineLR\", \"params\": {\"total_num_steps\": 100}}, "
        "\"bf16\": {\"enabled\": true}, \"elasticity\": {\"enabled\": false}}");
    char *text[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        struct core_json_write write;
        core_json_write_init_text(&write);
        core_cfg_write(cfg, &write, NULL);
        check_int(core_json_write_end(&write), ==, 0);
        text[i] = write.text;
        core_cfg_destroy(cfg);
        cfg = rig_accept(text[i]);
    }
    core_cfg_destroy(cfg);
    bool same = strcmp(text[0], text[1]) == 0;
    core_charge_free(text[0]);
    core_charge_free(text[1]);
    check_true(same);
}

TEST_MAIN({"values", values}, {"defaults", defaults}, {"all_rows", all_rows},
          {"deepspeed_defaults", deepspeed_defaults}, {"document", document},
          {"resolved_again", resolved_again})
