/* chat.c: reads a model folder's template and special tokens, and renders rows. */
#include "tools/text/chat.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/hash.h"
#include "core/base/json.h"
#include "tools/text/row.h"

enum { VARIABLES_MAX = 64, TOKENS = 8 };

static const char *const token_names[TOKENS] = {"bos_token",  "eos_token", "unk_token",
                                                "pad_token",  "sep_token", "cls_token",
                                                "mask_token", "eot_token"};

struct text_chat {
    struct text_template *plain; /* owned; NULL: none */
    struct text_template *tools; /* owned; NULL: the same */
    char *tokens[TOKENS];        /* owned; NULL: none */
    int64_t end;
    uint64_t mark;
};

/* FOLDER/NAME as JSON; *out NULL where there is no such file. */
static int load_json(const char *folder, const char *name, struct core_json **out)
{
    char path[4096];
    *out = NULL;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) {
        return core_err_set(-ENAMETOOLONG, "%.200s...: the path is too long", folder);
    }
    if (access(path, F_OK) != 0) {
        return 0;
    }
    int code = core_json_load(path, NULL, out);
    if (code == 0 && core_json_kind(core_json_root(*out)) != CORE_JSON_OBJECT) {
        code = core_err_set(-EINVAL, "%s: must be an object", path);
        core_json_destroy(*out);
        *out = NULL;
    }
    return code;
}

static int make_template(struct text_chat *chat, const char *source, size_t bytes, const char *name,
                         struct text_template **out)
{
    chat->mark = core_hash(source, bytes, chat->mark);
    return text_template_create(source, bytes, name, out);
}

static int read_file_template(struct text_chat *chat, const char *folder)
{
    char path[4096];
    char *source = NULL;
    size_t bytes = 0;
    if (snprintf(path, sizeof path, "%s/chat_template.jinja", folder) >= (int)sizeof path) {
        return core_err_set(-ENAMETOOLONG, "%.200s...: the path is too long", folder);
    }
    if (access(path, F_OK) != 0) {
        return 0;
    }
    int code = core_file_read(path, TEXT_TEMPLATE_BYTES_MAX, &source, &bytes);
    code = code == 0 ? make_template(chat, source, bytes, path, &chat->plain) : code;
    free(source);
    return code;
}

static int read_template(struct text_chat *chat, const struct core_json_value *value,
                         const char *name, struct text_template **out)
{
    size_t bytes;
    if (core_json_kind(value) != CORE_JSON_STRING) {
        return core_err_set(-EINVAL, "%s: is no string", name);
    }
    const char *source = core_json_string(value, &bytes);
    return make_template(chat, source, bytes, name, out);
}

/* chat_template: a text, or a list of {"name", "template"}: "default", and "tool_use" for rows with
 * tools. */
static int read_config_template(struct text_chat *chat, const char *folder,
                                const struct core_json *doc)
{
    char name[600];
    const struct core_json_value *value = core_json_find(core_json_root(doc), "chat_template");
    snprintf(name, sizeof name, "%.480s/tokenizer_config.json: chat_template", folder);
    if (value == NULL || core_json_kind(value) == CORE_JSON_NULL) {
        return 0;
    }
    if (core_json_kind(value) != CORE_JSON_ARRAY) {
        return read_template(chat, value, name, &chat->plain);
    }
    int code = 0;
    for (size_t i = 0; i < core_json_count(value) && code == 0; i++) {
        const char *kind = NULL;
        const struct core_json_value *one = core_json_at(value, i);
        const struct core_json_value *source = core_json_find(one, "template");
        if (source == NULL || core_json_get_string(doc, one, "name", &kind) != 0) {
            code = core_err_set(-EINVAL, "%s[%zu]: has no name or no template", name, i);
        } else if (strcmp(kind, "default") == 0 && chat->plain == NULL) {
            code = read_template(chat, source, name, &chat->plain);
        } else if (strcmp(kind, "tool_use") == 0 && chat->tools == NULL) {
            code = read_template(chat, source, name, &chat->tools);
        }
    }
    return code;
}

/* A token is a text or an object with its content. */
static int read_tokens(struct text_chat *chat, const struct core_json *doc)
{
    for (size_t i = 0; i < TOKENS; i++) {
        const struct core_json_value *value = core_json_find(core_json_root(doc), token_names[i]);
        if (value != NULL && core_json_kind(value) == CORE_JSON_OBJECT) {
            value = core_json_find(value, "content");
        }
        if (value == NULL || core_json_kind(value) != CORE_JSON_STRING || chat->tokens[i] != NULL) {
            continue;
        }
        const char *text = core_json_string(value, NULL);
        chat->tokens[i] = strdup(text);
        if (chat->tokens[i] == NULL) {
            return core_err_set(-ENOMEM, "no memory for special tokens");
        }
        chat->mark = core_hash(text, strlen(text), chat->mark + i);
    }
    return 0;
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

static int read_folder(struct text_chat *chat, const char *folder, bool template_too)
{
    static const char *const names[] = {"tokenizer_config.json", "special_tokens_map.json",
                                        "generation_config.json", "config.json"};
    int code = template_too ? read_file_template(chat, folder) : 0;
    for (size_t i = 0; i < 4 && code == 0; i++) {
        struct core_json *doc = NULL;
        code = load_json(folder, names[i], &doc);
        if (code == 0 && doc != NULL) {
            code = i < 2 ? read_tokens(chat, doc) : 0;
            if (i >= 2) {
                read_end(chat, doc);
            } else if (i == 0 && code == 0 && template_too && chat->plain == NULL) {
                code = read_config_template(chat, folder, doc);
            }
        }
        core_json_destroy(doc);
    }
    return code;
}

int text_chat_load(const char *folder, const char *format, struct text_chat **out)
{
    const char *source = format != NULL ? text_chat_format(format) : NULL;
    if (format != NULL && source == NULL) {
        return core_err_set(-EINVAL, "--chat-format: \"%.60s\" is unknown; there are %s", format,
                            text_chat_formats());
    }
    struct text_chat *chat = calloc(1, sizeof *chat);
    if (chat == NULL) {
        return core_err_set(-ENOMEM, "no memory for a chat template");
    }
    chat->end = -1;
    int code = folder != NULL ? read_folder(chat, folder, format == NULL) : 0;
    if (code == 0 && source != NULL) {
        code = make_template(chat, source, strlen(source), format, &chat->plain);
    }
    if (code != 0) {
        text_chat_destroy(chat);
        return code;
    }
    *out = chat;
    return 0;
}

void text_chat_destroy(struct text_chat *chat)
{
    if (chat == NULL) {
        return;
    }
    for (size_t i = 0; i < TOKENS; i++) {
        free(chat->tokens[i]);
    }
    text_template_destroy(chat->plain);
    text_template_destroy(chat->tools);
    free(chat);
}

const struct text_template *text_chat_template(const struct text_chat *chat, bool tools)
{
    return tools && chat->tools != NULL ? chat->tools : chat->plain;
}

const char *text_chat_token(const struct text_chat *chat, const char *name)
{
    for (size_t i = 0; i < TOKENS; i++) {
        if (strcmp(token_names[i], name) == 0) {
            return chat->tokens[i];
        }
    }
    return NULL;
}

int64_t text_chat_end(const struct text_chat *chat)
{
    return chat->end;
}

uint64_t text_chat_mark(const struct text_chat *chat)
{
    return chat->mark;
}

int text_chat_render(const struct text_chat *chat, struct text_template_run *run,
                     const struct text_row *row, size_t messages, bool prompt,
                     struct text_rendering *out)
{
    struct text_template_variable variables[VARIABLES_MAX];
    size_t count = 0;
    struct core_json_member member;
    const struct text_template *template = text_chat_template(chat, row->tools != NULL);
    if (template == NULL) {
        return core_err_set(-ENOTSUP,
                            "the model has no chat template; --chat-format %s chooses one",
                            text_chat_formats());
    }
    for (size_t i = 0; i < TOKENS; i++) {
        if (chat->tokens[i] != NULL) {
            variables[count++] = (struct text_template_variable){
                .name = token_names[i], .kind = TEXT_TEMPLATE_TEXT, .text = chat->tokens[i]};
        }
    }
    variables[count++] = (struct text_template_variable){.name = "messages",
                                                         .kind = TEXT_TEMPLATE_JSON,
                                                         .json = row->messages,
                                                         .items_max = messages};
    const struct core_json_value *lists[2] = {row->tools, row->documents};
    for (size_t i = 0; i < 2; i++) {
        variables[count++] = (struct text_template_variable){
            .name = i == 0 ? "tools" : "documents",
            .kind = lists[i] != NULL ? TEXT_TEMPLATE_JSON : TEXT_TEMPLATE_NONE,
            .json = lists[i]};
    }
    variables[count++] = (struct text_template_variable){
        .name = "add_generation_prompt", .kind = TEXT_TEMPLATE_BOOL, .truth = prompt};
    const bool any = row->variables != NULL;
    for (bool more = any && core_json_first(row->variables, &member); more && count < VARIABLES_MAX;
         more = core_json_next(&member)) {
        variables[count++] = (struct text_template_variable){
            .name = member.key, .kind = TEXT_TEMPLATE_JSON, .json = member.value};
    }
    return text_template_render(template, run, variables, count, 0, out);
}
