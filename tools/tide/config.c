/* config.c: `tide config`: prints how tide understands a ds_config.json. */
#include <math.h>
#include <string.h>

#include "core/base/err.h"
#include "core/config/config.h"
#include "core/json/write.h"
#include "tools/tide/commands.h"
#include "tools/tide/finetune_flags.h"

/* Version of the object that --json prints (docs/config-json.md). */
enum { SCHEMA_VERSION = 1 };

static void write_note(struct core_json_write *write, const struct core_cfg_note *note)
{
    core_json_write_object_begin(write, NULL);
    core_json_write_string(write, "key", note->key);
    core_json_write_string(write, "state", core_cfg_note_kind_name(note->kind));
    if (note->line > 0) {
        core_json_write_unsigned(write, "line", note->line);
        core_json_write_unsigned(write, "column", note->column);
    } else {
        core_json_write_null(write, "line");
        core_json_write_null(write, "column");
    }
    if (note->value != NULL) {
        core_json_write_verbatim(write, "value", note->value);
    } else {
        core_json_write_null(write, "value");
    }
    core_json_write_string(write, "why", note->why);
    core_json_write_object_end(write);
}

static int print_json(const struct cli_command *command, const struct core_cfg *cfg, bool valid)
{
    struct core_json_write write;
    core_json_write_init_file(&write, stdout);
    write.indent = 2;
    core_json_write_object_begin(&write, NULL);
    core_json_write_integer(&write, "schema_version", SCHEMA_VERSION);
    core_json_write_string(&write, "source", core_cfg_source(cfg));
    core_json_write_bool(&write, "valid", valid);
    core_json_write_integer(&write, "world_size", cfg->world_size);
    core_json_write_object_begin(&write, "counts");
    for (int kind = 0; kind < CORE_CFG_NOTE_KINDS; kind++) {
        core_json_write_unsigned(&write, core_cfg_note_kind_name((enum core_cfg_note_kind)kind),
                                 core_cfg_notes_of(cfg, (enum core_cfg_note_kind)kind));
    }
    core_json_write_object_end(&write);
    core_json_write_array_begin(&write, "keys");
    for (size_t i = 0; i < core_cfg_notes_count(cfg); i++) {
        struct core_cfg_note note = core_cfg_note(cfg, i);
        write_note(&write, &note);
    }
    core_json_write_array_end(&write);
    if (valid) {
        core_cfg_write(cfg, &write, "resolved");
    } else {
        core_json_write_null(&write, "resolved");
    }
    core_json_write_object_end(&write);
    return cli_close_json(command, &write, CLI_DONE);
}

static int print_kind(const struct core_cfg *cfg, const struct cli_common *common,
                      enum core_cfg_note_kind kind, const char *title)
{
    static const char *const colors[] = {"\033[32m", "\033[36m", "\033[2m",
                                         "",         "\033[33m", "\033[31m"};
    size_t count = core_cfg_notes_of(cfg, kind);
    if (count == 0) {
        return 0;
    }
    struct cli_table *table = NULL;
    int rc = cli_table_create(4, &table);
    if (rc != 0) {
        return rc;
    }
    for (size_t i = 0; i < core_cfg_notes_count(cfg) && rc == 0; i++) {
        struct core_cfg_note note = core_cfg_note(cfg, i);
        char line[32] = "";
        if (note.kind != kind) {
            continue;
        }
        if (note.line > 0) {
            snprintf(line, sizeof line, "line %zu", note.line);
        }
        rc = cli_table_add(table, (const char *const[]){line, note.key, note.value, note.why});
    }
    printf("%s%s%s (%zu)\n", common->color ? colors[kind] : "", title,
           common->color ? "\033[0m" : "", count);
    cli_table_print(table, stdout, "  ");
    printf("\n");
    cli_table_destroy(table);
    return rc;
}

static int print_people(const struct cli_command *command, const struct core_cfg *cfg,
                        const struct cli_common *common, bool valid)
{
    static const struct {
        enum core_cfg_note_kind kind;
        const char *title;
    } parts[] = {
        {CORE_CFG_NOTE_REFUSED, "Refused: no run is possible with these"},
        {CORE_CFG_NOTE_WARNING, "Warnings"},
        {CORE_CFG_NOTE_HONOURED, "Honoured"},
        {CORE_CFG_NOTE_LATER, "Valid, but not honoured by this build yet"},
        {CORE_CFG_NOTE_IGNORED, "Ignored"},
        {CORE_CFG_NOTE_DEFAULTED, "Defaulted"},
    };
    printf("%s, for %lld rank%s\n\n", core_cfg_source(cfg), (long long)cfg->world_size,
           cfg->world_size == 1 ? "" : "s");
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        bool quiet = common->verbose < 0 && parts[i].kind != CORE_CFG_NOTE_REFUSED;
        if (!quiet && print_kind(cfg, common, parts[i].kind, parts[i].title) != 0) {
            return cli_fail(command, CLI_FAILED, NULL);
        }
    }
    if (!valid || common->verbose < 0) {
        return CLI_DONE;
    }
    struct core_json_write write;
    core_json_write_init_file(&write, stdout);
    write.indent = 2;
    printf("Resolved\n");
    core_cfg_write(cfg, &write, NULL);
    return cli_close_json(command, &write, CLI_DONE);
}

static int run(const struct cli_command *command, int argc, char **argv)
{
    struct core_cfg_options given;
    struct finetune_flags defaults;
    core_cfg_options_init(&given);
    finetune_flags_init(&defaults);
    given.micro_batch_size = defaults.batch;
    bool json = false;
    bool keys = false;
    const double most = 1e15;
    const struct cli_option options[] = {
        {"json", CLI_FLAG, &json, NULL, "one JSON object instead of tables", 0, 0, NULL, NULL},
        {"keys", CLI_FLAG, &keys, NULL, "print all keys as Markdown; takes no FILE", 0, 0, NULL,
         NULL},
        {"world", CLI_INTEGER, &given.world_size, "N", "ranks, for the batch rule", 1, 1e6, NULL,
         "1"},
        {"hidden-size", CLI_INTEGER, &given.hidden_size, "N",
         "the model's hidden size, for \"auto\" bucket sizes", 1, 1e7, NULL, NULL},
        {"batch", CLI_INTEGER, &given.micro_batch_size, "ROWS",
         "rows per micro-batch, for \"auto\"", 1, most, NULL, "8"},
        {"accum", CLI_INTEGER, &given.accumulation_steps, "N",
         "micro-batches per step, for \"auto\"", 1, most, NULL, "1"},
        {"steps", CLI_INTEGER, &given.total_steps, "N", "steps of the run, for \"auto\"", 1, most,
         NULL, NULL},
        {"warmup", CLI_INTEGER, &given.warmup_steps, "N", "steps of the warmup, for \"auto\"", 0,
         most, NULL, "0"},
        {"lr", CLI_REAL, &given.lr, "X", "learning rate, for \"auto\"", 0, most, NULL, "5e-5"},
        {"precision", CLI_CHOICE, &given.precision, "fp32|fp16|bf16",
         "working precision, for \"auto\"", 0, 0, "fp32|fp16|bf16", "bf16"},
    };
    struct cli_parsed parsed;
    int code = cli_parse(command, options, sizeof options / sizeof options[0], argc, argv, &parsed);
    if (code >= 0) {
        return code;
    }
    if (keys) {
        core_cfg_document(stdout);
        return cli_close(command, CLI_DONE);
    }
    if (parsed.count == 0) {
        return cli_fail(command, CLI_WRONG, "FILE is missing; see tide config --help");
    }
    struct core_cfg *cfg = NULL;
    if (core_cfg_load(parsed.arguments[0], &given, &cfg) != 0) {
        return cli_fail(command, CLI_WRONG, NULL);
    }
    bool valid = core_cfg_check(cfg) == 0;
    code = json ? print_json(command, cfg, valid)
                : print_people(command, cfg, &parsed.common, valid);
    if (code == CLI_DONE && !valid) {
        core_cfg_check(cfg);
        code = cli_fail(command, CLI_WRONG, NULL);
    }
    core_cfg_destroy(cfg);
    return cli_close(command, code);
}

const struct cli_command cli_command_config = {
    .name = "config",
    .summary = "show how tide understands a ds_config.json",
    .arguments = "FILE | - | BASE64",
    .arguments_max = 1,
    .example = "tide config ds_config.json --world 8\n      every key honoured, defaulted, ignored "
               "or refused, each with its reason,\n      and the resolved configuration; exit code "
               "2 if a key is refused",
    .run = run,
};
