/* print.c: prints a configuration as JSON, and the table as a document. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/config/internal.h"
#include "core/json/write.h"

static void write_section(const struct core_cfg_detail *detail, struct core_json_write *write,
                          const char *prefix);

/* Returns false for rows that are left out, such as legacy forms and parameters of other types. */
static bool is_written(const struct core_cfg_detail *detail, size_t index)
{
    const struct core_cfg_row *row = core_cfg_row(index);
    const struct core_cfg_value *value = &detail->values[index];
    if ((row->flags & CORE_CFG_LEGACY) != 0 || !core_cfg_applies(detail, index)) {
        return false;
    }
    if (row->type == CORE_CFG_SECTION) {
        bool schedule = strcmp(row->path, "scheduler") == 0;
        size_t type = core_cfg_index("scheduler.type");
        return row->state != CORE_CFG_REFUSED && (!schedule || !detail->values[type].is_none);
    }
    if (row->state == CORE_CFG_REFUSED || row->type == CORE_CFG_LIST) {
        return value->given && !value->is_none;
    }
    return row->state != CORE_CFG_IGNORED || !value->is_none;
}

static void write_row(const struct core_cfg_detail *detail, struct core_json_write *write,
                      size_t index)
{
    const struct core_cfg_row *row = core_cfg_row(index);
    if (row->type == CORE_CFG_SECTION) {
        core_json_write_object_begin(write, core_cfg_leaf(row));
        write_section(detail, write, row->path);
        core_json_write_object_end(write);
        return;
    }
    core_cfg_write_value(write, core_cfg_leaf(row), row, &detail->values[index]);
}

static void write_section(const struct core_cfg_detail *detail, struct core_json_write *write,
                          const char *prefix)
{
    size_t count = core_cfg_row_count();
    for (size_t i = 0; i < count; i++) {
        if (core_cfg_row_below(core_cfg_row(i), prefix) && is_written(detail, i)) {
            write_row(detail, write, i);
        }
    }
}

void core_cfg_write(const struct core_cfg *cfg, struct core_json_write *write, const char *key)
{
    core_json_write_object_begin(write, key);
    write_section(cfg->detail, write, "");
    core_json_write_object_end(write);
}

static void document_state(FILE *file, const struct core_cfg_row *row)
{
    const char *why = row->why != NULL ? row->why : "";
    if (row->type == CORE_CFG_SECTION && row->state == CORE_CFG_HONOURED) {
        fprintf(file, "see its keys");
        return;
    }
    switch (row->state) {
    case CORE_CFG_HONOURED: fprintf(file, "honoured%s%s", why[0] != '\0' ? ": " : "", why); return;
    case CORE_CFG_LATER:
        fprintf(file, "later (%s)%s%s", row->module, why[0] != '\0' ? ": " : "", why);
        return;
    case CORE_CFG_IGNORED: fprintf(file, "ignored: %s", why); return;
    case CORE_CFG_REFUSED:
        fprintf(file, "%s: %s",
                row->type == CORE_CFG_SECTION || row->preset == NULL
                    ? "refused"
                    : "refused unless it is the default",
                why);
        return;
    }
}

static void document_row(FILE *file, const struct core_cfg_row *row)
{
    char allowed[256];
    core_cfg_allowed(row, allowed, sizeof allowed);
    fprintf(file, "| `%s`", row->path);
    for (const char *at = row->aliases; at != NULL && *at != '\0';) {
        size_t length = strcspn(at, " ");
        fprintf(file, ", `%.*s`", (int)length, at);
        at += length + (at[length] == ' ');
    }
    fprintf(file, " | %s | %s | ", allowed,
            row->type == CORE_CFG_SECTION ? ""
            : row->preset != NULL         ? row->preset
                                          : "none");
    fprintf(file, "%s", row->means);
    if (row->only != NULL) {
        fprintf(file, " For %s.", row->only);
    }
    fprintf(file, " | ");
    document_state(file, row);
    fprintf(file, " |\n");
}

void core_cfg_document(FILE *file)
{
    fprintf(
        file,
        "# The keys of ds_config.json\n\n"
        "Printed by `tide config --keys` from the table that also reads configurations; a test\n"
        "compares the two. *later* means that this build knows and checks the key, but does\n"
        "not act on it yet; the module in brackets will. *ignored* and *refused* give their\n"
        "reason. Names after a comma are aliases. `\"auto\"` is allowed for every value and is\n"
        "filled in as the Hugging Face trainer does, or with the default.\n\n"
        "| Key | Allowed | Default | Meaning | What tide does |\n"
        "|---|---|---|---|---|\n");
    size_t count = core_cfg_row_count();
    for (size_t i = 0; i < count; i++) {
        document_row(file, core_cfg_row(i));
    }
}
