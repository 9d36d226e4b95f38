/* chat.c: reads the template and the special tokens of a model, and renders rows. */
#include "tools/text/data/chat.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/json/json.h"
#include "tools/text/data/row.h"
#include "tools/text/tokenizer/special.h"

enum { VARIABLES_MAX = 512, GIVEN_MAX = 64, NAMES_BYTES = 400 };
_Static_assert(TEXT_SPECIAL_NAMES_MAX + 4 + GIVEN_MAX <= VARIABLES_MAX, "all variables fit");
#define EXTRA_FOLDER "additional_chat_templates"

struct text_chat {
    struct jinja_template *plain; /* owned; NULL: none */
    struct jinja_template *tools; /* owned; NULL: `plain` is used */
    char names[NAMES_BYTES];      /* names of other templates, separated by ", " */
    struct text_special special;
    int64_t end;
    int64_t now; /* see text_feed_options */
    bool dated;
};

static int make_template(struct text_chat *chat, const char *source, size_t bytes, const char *name,
                         struct jinja_template **out)
{
    static const char clock[] = "strftime_now";
    chat->dated |= memmem(source, bytes, clock, sizeof clock - 1) != NULL;
    return jinja_template_create(source, bytes, name, out);
}

/* Keeps the templates "default" and "tool_use" (for rows with tools), and the names of others. */
static int put_template(struct text_chat *chat, const char *kind, const char *source, size_t bytes,
                        const char *name)
{
    struct jinja_template *made = NULL;
    const bool tools = strcmp(kind, "tool_use") == 0;
    if (!tools && strcmp(kind, "default") != 0) {
        const size_t at = strlen(chat->names);
        snprintf(chat->names + at, sizeof chat->names - at, "%s%s", at > 0 ? ", " : "", kind);
        return 0;
    }
    int rc = make_template(chat, source, bytes, name, &made);
    if (rc != 0) {
        return rc;
    }
    struct jinja_template **out = tools ? &chat->tools : &chat->plain;
    jinja_template_destroy(*out);
    *out = made;
    return 0;
}

static int read_file_template(struct text_chat *chat, const char *path, const char *kind)
{
    char *source = NULL;
    size_t bytes = 0;
    int rc = core_file_read(path, JINJA_SOURCE_BYTES_MAX, &source, &bytes);
    if (rc != 0) {
        return rc;
    }
    rc = put_template(chat, kind, source, bytes, path);
    free(source);
    return rc;
}

static int is_template(const struct dirent *entry)
{
    const size_t bytes = strlen(entry->d_name);
    return bytes > 6 && strcmp(entry->d_name + bytes - 6, ".jinja") == 0;
}

/* Reads each FOLDER/additional_chat_templates/NAME.jinja as the template NAME. */
static int read_extra_files(struct text_chat *chat, const char *folder, bool *any)
{
    char path[4096];
    struct dirent **found = NULL;
    int rc = 0;
    snprintf(path, sizeof path, "%s/" EXTRA_FOLDER, folder);
    const int count = scandir(path, &found, is_template, alphasort);
    if (count < 0) {
        return errno == ENOENT
                   ? 0
                   : core_err_set(-errno, "%s cannot be listed: %s", path, strerror(errno));
    }
    for (int i = 0; i < count && rc == 0; i++) {
        char kind[256];
        const char *name = found[i]->d_name;
        snprintf(kind, sizeof kind, "%.*s", (int)(strlen(name) - strlen(".jinja")), name);
        *any = true;
        rc = snprintf(path, sizeof path, "%s/" EXTRA_FOLDER "/%s", folder, name) < (int)sizeof path
                 ? read_file_template(chat, path, kind)
                 : core_err_set(-ENAMETOOLONG, "%.200s...: the path is too long", folder);
    }
    for (int i = 0; i < count; i++) {
        free(found[i]);
    }
    free(found);
    return rc;
}

/* Reads chat_template.jinja as the template "default". */
static int read_files(struct text_chat *chat, const char *folder, bool *any)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/chat_template.jinja", folder) >= (int)sizeof path - 40) {
        return core_err_set(-ENAMETOOLONG, "%.200s...: the path is too long", folder);
    }
    *any = access(path, F_OK) == 0;
    int rc = *any ? read_file_template(chat, path, "default") : 0;
    return rc == 0 ? read_extra_files(chat, folder, any) : rc;
}

/* Reads a text, or a list of {"name", "template"}. */
static int read_config_template(struct text_chat *chat, const char *folder,
                                const struct core_json *doc)
{
    char name[600];
    size_t bytes;
    const struct core_json_value *value = core_json_find(core_json_root(doc), "chat_template");
    snprintf(name, sizeof name, "%.480s/tokenizer_config.json: chat_template", folder);
    if (value == NULL || core_json_kind(value) == CORE_JSON_NULL) {
        return 0;
    }
    if (core_json_kind(value) == CORE_JSON_STRING) {
        const char *source = core_json_string(value, &bytes);
        return put_template(chat, "default", source, bytes, name);
    }
    if (core_json_kind(value) != CORE_JSON_ARRAY) {
        return core_err_set(-EINVAL, "%s: is %s; expected a string or a list of templates", name,
                            core_json_kind_name(core_json_kind(value)));
    }
    int rc = 0;
    for (size_t i = 0; i < core_json_count(value) && rc == 0; i++) {
        const struct core_json_value *one = core_json_at(value, i);
        const struct core_json_value *kind = core_json_find(one, "name");
        const struct core_json_value *source = core_json_find(one, "template");
        if (kind == NULL || core_json_kind(kind) != CORE_JSON_STRING || source == NULL ||
            core_json_kind(source) != CORE_JSON_STRING) {
            return core_err_set(-EINVAL, "%s[%zu]: has no name or no template", name, i);
        }
        const char *text = core_json_string(source, &bytes);
        rc = put_template(chat, core_json_string(kind, NULL), text, bytes, name);
    }
    return rc;
}

static void read_end(struct text_chat *chat, const struct core_json *doc)
{
    const struct core_json_value *value = core_json_find(core_json_root(doc), "eos_token_id");
    if (value != NULL && core_json_kind(value) == CORE_JSON_ARRAY) {
        value = core_json_at(value, 0);
    }
    if (chat->end < 0 && value != NULL && core_json_kind(value) == CORE_JSON_INTEGER) {
        chat->end = core_json_integer(value);
    }
}

static int read_templates(struct text_chat *chat, const char *folder)
{
    bool any = false;
    struct core_json *doc = NULL;
    int rc = read_files(chat, folder, &any);
    if (rc != 0 || any) {
        return rc;
    }
    rc = text_special_read(folder, "tokenizer_config.json", &doc);
    if (rc == 0 && doc != NULL) {
        rc = read_config_template(chat, folder, doc);
    }
    core_json_destroy(doc);
    return rc;
}

static int read_tokens(struct text_chat *chat, const char *folder)
{
    static const char *const names[] = {"generation_config.json", "config.json"};
    int rc = text_special_load(folder, &chat->special);
    if (rc != 0) {
        return rc;
    }
    for (size_t i = 0; i < 2; i++) {
        struct core_json *doc = NULL;
        rc = text_special_read(folder, names[i], &doc);
        if (rc != 0) {
            return rc;
        }
        if (doc != NULL) {
            read_end(chat, doc);
        }
        core_json_destroy(doc);
    }
    return 0;
}

int text_chat_check_format(const char *format)
{
    return format == NULL || text_chat_format(format) != NULL
               ? 0
               : core_err_set(-EINVAL, "--chat-format: unknown format \"%.60s\" (one of %s)",
                              format, text_chat_formats());
}

int text_chat_load(const char *folder, const char *format, int64_t now, struct text_chat **out)
{
    const char *source = format != NULL ? text_chat_format(format) : NULL;
    int rc = text_chat_check_format(format);
    if (rc != 0) {
        return rc;
    }
    struct text_chat *chat = core_charge_zeroed(1, sizeof *chat);
    if (chat == NULL) {
        return core_err_set(-ENOMEM, "no memory for a chat template");
    }
    chat->end = -1;
    chat->now = now;
    rc = folder != NULL ? read_tokens(chat, folder) : 0;
    if (rc != 0) {
        goto fail;
    }
    if (source != NULL) {
        rc = make_template(chat, source, strlen(source), format, &chat->plain);
    } else if (folder != NULL) {
        rc = read_templates(chat, folder);
    }
    if (rc != 0) {
        goto fail;
    }
    *out = chat;
    return 0;
fail:
    text_chat_destroy(chat);
    return rc;
}

void text_chat_destroy(struct text_chat *chat)
{
    if (chat == NULL) {
        return;
    }
    text_special_fini(&chat->special);
    jinja_template_destroy(chat->plain);
    jinja_template_destroy(chat->tools);
    core_charge_free(chat);
}

const struct jinja_template *text_chat_template(const struct text_chat *chat, bool tools)
{
    return tools && chat->tools != NULL ? chat->tools : chat->plain;
}

const char *text_chat_token(const struct text_chat *chat, const char *name)
{
    return text_special_find(&chat->special, name);
}

int64_t text_chat_end(const struct text_chat *chat)
{
    return chat->end;
}

bool text_chat_dated(const struct text_chat *chat)
{
    return chat->dated;
}

static int refuse_row(const struct text_chat *chat)
{
    if (chat->names[0] != '\0' || chat->tools != NULL) {
        return core_err_set(-ENOTSUP,
                            "of the model's chat templates (%s%s%s) none is named default; "
                            "--chat-format %s chooses one of tide's",
                            chat->names, chat->names[0] != '\0' && chat->tools != NULL ? ", " : "",
                            chat->tools != NULL ? "tool_use" : "", text_chat_formats());
    }
    return core_err_set(-ENOTSUP, "the model has no chat template; --chat-format %s chooses one",
                        text_chat_formats());
}

/* Lists the variables that do not differ between renderings of a row. */
static int list_variables(const struct text_chat *chat, const struct text_row *row,
                          struct jinja_variable variables[VARIABLES_MAX], size_t *out)
{
    size_t count = 0;
    struct core_json_member member;
    for (size_t i = 0; i < chat->special.count; i++) {
        const struct text_special_token *token = &chat->special.tokens[i];
        if (token->name != NULL) {
            variables[count++] = (struct jinja_variable){
                .name = token->name, .kind = JINJA_VARIABLE_TEXT, .text = token->content};
        }
    }
    const struct core_json_value *lists[2] = {row->tools, row->documents};
    for (size_t i = 0; i < 2; i++) {
        variables[count++] = (struct jinja_variable){.name = i == 0 ? "tools" : "documents",
                                                     .kind = lists[i] != NULL ? JINJA_VARIABLE_JSON
                                                                              : JINJA_VARIABLE_NONE,
                                                     .json = lists[i]};
    }
    const bool any = row->variables != NULL;
    if (any && core_json_count(row->variables) > GIVEN_MAX) {
        return core_err_set(-EINVAL, "chat_template_kwargs: has %zu members; the maximum is %d",
                            core_json_count(row->variables), (int)GIVEN_MAX);
    }
    for (bool more = any && core_json_first(row->variables, &member); more;
         more = core_json_next(&member)) {
        variables[count++] = (struct jinja_variable){
            .name = member.key, .kind = JINJA_VARIABLE_JSON, .json = member.value};
    }
    *out = count;
    return 0;
}

/* Appends the variables that differ between renderings of a row. */
static size_t add_messages(struct jinja_variable *variables, size_t count,
                           const struct text_row *row, size_t messages, bool prompt)
{
    variables[count++] = (struct jinja_variable){.name = "messages",
                                                 .kind = JINJA_VARIABLE_JSON,
                                                 .json = row->messages,
                                                 .items_max = messages};
    variables[count++] = (struct jinja_variable){
        .name = "add_generation_prompt", .kind = JINJA_VARIABLE_BOOL, .truth = prompt};
    return count;
}

int text_chat_render(const struct text_chat *chat, struct jinja_run *run,
                     const struct text_row *row, size_t messages, bool prompt,
                     struct jinja_rendering *out)
{
    struct jinja_variable variables[VARIABLES_MAX];
    size_t count = 0;
    const struct jinja_template *template = text_chat_template(chat, row->tools != NULL);
    if (template == NULL) {
        return refuse_row(chat);
    }
    int rc = list_variables(chat, row, variables, &count);
    if (rc != 0) {
        return rc;
    }
    count = add_messages(variables, count, row, messages, prompt);
    return jinja_render(template, run, variables, count, chat->now, out);
}
