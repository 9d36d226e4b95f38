/* row.c: reads the keys of a row. */
#include "tools/text/data/row.h"

#include <errno.h>
#include <string.h>

#include "core/base/err.h"
#include "core/json/json.h"
#include "tools/text/data/row_chat.h"
#include "tools/text/data/row_pair.h"

static int refuse_kind(const char *key, const char *wanted, const struct core_json_value *value)
{
    return core_err_set(-EINVAL, "%s: is %s; expected %s", key,
                        core_json_kind_name(core_json_kind(value)), wanted);
}

static int get_text(const struct core_json_value *root, const char *key, const char **text,
                    size_t *bytes)
{
    const struct core_json_value *value = text_row_find(root, key);
    if (value == NULL) {
        return core_err_set(-EINVAL, "%s: is missing", key);
    }
    if (core_json_kind(value) != CORE_JSON_STRING) {
        return refuse_kind(key, "a string", value);
    }
    *text = core_json_string(value, bytes);
    return 0;
}

/* Reads a list, or a text that contains one. */
static int read_tools(struct text_row *row, const struct core_json_value *root)
{
    const struct core_json_value *tools = text_row_find(root, "tools");
    if (tools != NULL && core_json_kind(tools) == CORE_JSON_STRING) {
        size_t bytes;
        const char *text = core_json_string(tools, &bytes);
        if (bytes == 0) {
            return 0;
        }
        int rc = core_json_parse(text, bytes, "tools", NULL, &row->parsed);
        if (rc != 0) {
            return rc;
        }
        tools = core_json_root(row->parsed);
    }
    if (tools != NULL && core_json_kind(tools) == CORE_JSON_NULL) {
        return 0;
    }
    if (tools != NULL && core_json_kind(tools) != CORE_JSON_ARRAY) {
        return refuse_kind("tools", "a list", tools);
    }
    row->tools = tools != NULL && core_json_count(tools) > 0 ? tools : NULL;
    return 0;
}

/* Variables of tide's own names would make masks wrong. */
static int check_variables(const struct core_json_value *variables)
{
    static const char *const own[] = {"messages", "tools", "add_generation_prompt"};
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        if (core_json_find(variables, own[i]) != NULL) {
            return core_err_set(-EINVAL,
                                "chat_template_kwargs: %s cannot be set here: messages and tools "
                                "are keys of the row, and tide sets add_generation_prompt",
                                own[i]);
        }
    }
    return 0;
}

static int read_extras(struct text_row *row, const struct core_json_value *root)
{
    row->documents = text_row_find(root, "documents");
    row->variables = text_row_find(root, "chat_template_kwargs");
    if (row->variables != NULL && core_json_kind(row->variables) != CORE_JSON_OBJECT) {
        return refuse_kind("chat_template_kwargs", "an object", row->variables);
    }
    int rc = row->variables != NULL ? check_variables(row->variables) : 0;
    return rc == 0 ? read_tools(row, root) : rc;
}

static int read_chat(struct text_row *row, const struct core_json_value *root, const char *key)
{
    const struct text_row_turns turns = {
        .key = key, .list = text_row_find(root, key), .system = text_row_find(root, "system")};
    row->kind = TEXT_ROW_CHAT;
    return text_row_chat_make(&turns, NULL, &row->made);
}

static int refuse_pair(void)
{
    return core_err_set(-EINVAL, "the row has chosen and rejected, which need --loss dpo");
}

static bool is_pair(const struct core_json_value *root)
{
    return text_row_find(root, "chosen") != NULL && text_row_find(root, "rejected") != NULL;
}

static int read_completion(struct text_row *row, const struct core_json_value *root)
{
    const struct core_json_value *prompt = text_row_find(root, "prompt");
    const struct core_json_value *completion = text_row_find(root, "completion");
    if (completion == NULL && is_pair(root)) {
        return refuse_pair();
    }
    if (prompt == NULL || completion == NULL) {
        return core_err_set(-EINVAL, "%s: is missing", prompt == NULL ? "prompt" : "completion");
    }
    if (core_json_kind(prompt) == CORE_JSON_ARRAY &&
        core_json_kind(completion) == CORE_JSON_ARRAY) {
        const struct text_row_turns first = {
            .key = "prompt", .list = prompt, .system = text_row_find(root, "system")};
        const struct text_row_turns second = {.key = "completion", .list = completion};
        row->kind = TEXT_ROW_CHAT_COMPLETION;
        row->prompt_messages = core_json_count(prompt) + text_row_chat_adds(&first);
        return text_row_chat_make(&first, &second, &row->made);
    }
    row->kind = TEXT_ROW_COMPLETION;
    int rc = get_text(root, "prompt", &row->text, &row->text_bytes);
    return rc == 0 ? get_text(root, "completion", &row->completion, &row->completion_bytes) : rc;
}

static int read_instruction(struct text_row *row, const struct core_json_value *root)
{
    size_t bytes;
    const char *text;
    struct text_row_instruction parts = {.instruction = text_row_find(root, "instruction"),
                                         .input = text_row_find(root, "input"),
                                         .output = text_row_find(root, "output"),
                                         .system = text_row_find(root, "system")};
    int rc = get_text(root, "instruction", &text, &bytes);
    if (rc != 0 || (rc = get_text(root, "output", &text, &bytes)) != 0) {
        return rc;
    }
    if (parts.input != NULL) {
        rc = get_text(root, "input", &text, &bytes);
        if (rc != 0) {
            return rc;
        }
        parts.input = bytes > 0 ? parts.input : NULL;
    }
    row->kind = TEXT_ROW_CHAT_COMPLETION;
    row->instruction = true;
    row->prompt_messages = 1 + (parts.system != NULL);
    return text_row_chat_instruct(&parts, &row->made);
}

static int read_row(struct text_row *row, const struct core_json_value *root)
{
    if (text_row_find(root, "messages") != NULL) {
        return read_chat(row, root, "messages");
    }
    if (text_row_find(root, "conversations") != NULL) {
        return read_chat(row, root, "conversations");
    }
    if (text_row_find(root, "prompt") != NULL || text_row_find(root, "completion") != NULL) {
        return read_completion(row, root);
    }
    if (text_row_find(root, "instruction") != NULL) {
        return read_instruction(row, root);
    }
    if (text_row_find(root, "text") != NULL) {
        row->kind = TEXT_ROW_TEXT;
        return get_text(root, "text", &row->text, &row->text_bytes);
    }
    if (is_pair(root)) {
        return refuse_pair();
    }
    return core_err_set(-EINVAL,
                        "the row has none of input_ids, messages, conversations, prompt with "
                        "completion, instruction with output, text");
}

static int read_pair(struct text_row *row, const struct core_json_value *root)
{
    const struct text_row_pair pair = {.prompt = text_row_find(root, "prompt"),
                                       .chosen = text_row_find(root, "chosen"),
                                       .rejected = text_row_find(root, "rejected"),
                                       .system = text_row_find(root, "system")};
    return text_row_pair_read(row, &pair);
}

typedef int read_keys(struct text_row *row, const struct core_json_value *root);

static int parse(const char *json, size_t bytes, read_keys *read, struct text_row *out)
{
    struct text_row row = {0};
    int rc = core_json_parse(json, bytes, "row", NULL, &row.source);
    if (rc != 0 || (rc = read(&row, core_json_root(row.source))) != 0 ||
        (rc = read_extras(&row, core_json_root(row.source))) != 0) {
        text_row_fini(&row);
        return rc;
    }
    row.messages = row.made != NULL ? core_json_root(row.made) : NULL;
    row.rejected_messages = row.made_rejected != NULL ? core_json_root(row.made_rejected) : NULL;
    *out = row;
    return 0;
}

int text_row_parse(const char *json, size_t bytes, struct text_row *out)
{
    return parse(json, bytes, read_row, out);
}

int text_row_parse_pair(const char *json, size_t bytes, struct text_row *out)
{
    return parse(json, bytes, read_pair, out);
}

void text_row_fini(struct text_row *row)
{
    core_json_destroy(row->source);
    core_json_destroy(row->made);
    core_json_destroy(row->made_rejected);
    core_json_destroy(row->parsed);
    *row = (struct text_row){0};
}
