/* row_chat.c: rewrites a conversation in the form that templates expect. */
#include "tools/text/data/row_chat.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "core/json/json.h"
#include "core/json/write.h"

/* Accepted roles, and the roles that they become. */
static const char *const roles[][2] = {
    {"system", "system"},           {"user", "user"},
    {"assistant", "assistant"},     {"tool", "tool"},
    {"developer", "developer"},     {"function", "function"},
    {"ipython", "ipython"},         {"human", "user"},
    {"gpt", "assistant"},           {"chatgpt", "assistant"},
    {"model", "assistant"},         {"bot", "assistant"},
    {"function_call", "assistant"}, {"observation", "tool"},
    {"function_response", "tool"},
};

const struct core_json_value *text_row_find(const struct core_json_value *object, const char *key)
{
    const struct core_json_value *value = core_json_find(object, key);
    return value != NULL && core_json_kind(value) != CORE_JSON_NULL ? value : NULL;
}

static bool is_key(const struct core_json_member *member, const char *key)
{
    return strcmp(member->key, key) == 0;
}

static int find_role(const struct core_json_value *turn, const char **out)
{
    const struct core_json_value *value = text_row_find(turn, "role");
    const char *key = value != NULL ? "role" : "from";
    value = value != NULL ? value : text_row_find(turn, "from");
    if (value == NULL || core_json_kind(value) != CORE_JSON_STRING) {
        return core_err_set(-EINVAL, value == NULL ? "role: is missing" : "%s: is not a string",
                            key);
    }
    const char *name = core_json_string(value, NULL);
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
        if (strcmp(name, roles[i][0]) == 0) {
            *out = roles[i][1];
            return 0;
        }
    }
    return core_err_set(-EINVAL,
                        "%s: unknown role \"%.60s\" (expected system, user, assistant, tool, "
                        "developer, function, ipython, or sharegpt's human and gpt)",
                        key, name);
}

/* Finds a turn's reasoning under the names that rows use. */
static const struct core_json_value *find_reasoning(const struct core_json_value *turn)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    const struct core_json_value *value = NULL;
    for (size_t i = 0; i < 3 && value == NULL; i++) {
        value = text_row_find(turn, names[i]);
    }
    return value;
}

static int check_content(const struct core_json_value *turn)
{
    const struct core_json_value *content = text_row_find(turn, "content");
    /* For messages: the key as the row has it. */
    const bool sharegpt = content == NULL && (text_row_find(turn, "value") != NULL ||
                                              text_row_find(turn, "role") == NULL);
    const char *key = sharegpt ? "value" : "content";
    content = content != NULL ? content : text_row_find(turn, "value");
    const bool plain = content != NULL && (core_json_kind(content) == CORE_JSON_STRING ||
                                           core_json_kind(content) == CORE_JSON_ARRAY);
    if (content != NULL && !plain) {
        return core_err_set(-EINVAL, "%s: is %s; expected a string or a list of parts", key,
                            core_json_kind_name(core_json_kind(content)));
    }
    if (content == NULL && text_row_find(turn, "tool_calls") == NULL &&
        find_reasoning(turn) == NULL) {
        return core_err_set(-EINVAL, "%s: is missing", key);
    }
    return 0;
}

static int write_turn(struct core_json_write *json, const struct core_json_value *turn)
{
    struct core_json_member member;
    const char *role = NULL;
    if (core_json_kind(turn) != CORE_JSON_OBJECT) {
        return core_err_set(-EINVAL, "is %s; expected an object with role and content",
                            core_json_kind_name(core_json_kind(turn)));
    }
    int rc = find_role(turn, &role);
    if (rc != 0 || (rc = check_content(turn)) != 0) {
        return rc;
    }
    const struct core_json_value *reasoning = find_reasoning(turn);
    const bool has_content = text_row_find(turn, "content") != NULL;
    core_json_write_object_begin(json, NULL);
    if (reasoning != NULL && text_row_find(turn, "thinking") == NULL) {
        core_json_write_value(json, "thinking", reasoning);
    }
    for (bool any = core_json_first(turn, &member); any; any = core_json_next(&member)) {
        if (is_key(&member, "role") ||
            (is_key(&member, "from") && text_row_find(turn, "role") == NULL)) {
            core_json_write_string(json, "role", role);
        } else if (is_key(&member, "value") && !has_content) {
            core_json_write_value(json, "content", member.value);
        } else if (core_json_kind(member.value) != CORE_JSON_NULL &&
                   !is_key(&member, "reasoning_content")) {
            core_json_write_value(json, member.key, member.value);
        }
    }
    if (reasoning != NULL) {
        core_json_write_value(json, "reasoning_content", reasoning);
    }
    core_json_write_object_end(json);
    return 0;
}

static void write_plain(struct core_json_write *json, const char *role,
                        const struct core_json_value *content)
{
    core_json_write_object_begin(json, NULL);
    core_json_write_string(json, "role", role);
    core_json_write_value(json, "content", content);
    core_json_write_object_end(json);
}

static bool begins_with_system(const struct core_json_value *list)
{
    const char *role = "";
    const struct core_json_value *turn = core_json_at(list, 0);
    return turn != NULL && core_json_kind(turn) == CORE_JSON_OBJECT &&
           find_role(turn, &role) == 0 && strcmp(role, "system") == 0;
}

size_t text_row_chat_adds(const struct text_row_turns *turns)
{
    return turns->system != NULL && core_json_kind(turns->system) == CORE_JSON_STRING &&
           core_json_string(turns->system, NULL)[0] != '\0' && !begins_with_system(turns->list);
}

static int write_turns(struct core_json_write *json, const struct text_row_turns *turns)
{
    if (core_json_kind(turns->list) != CORE_JSON_ARRAY || core_json_count(turns->list) == 0) {
        return core_err_set(-EINVAL, "%s: is not a list of messages, or is empty", turns->key);
    }
    if (turns->system != NULL && core_json_kind(turns->system) != CORE_JSON_STRING) {
        return core_err_set(-EINVAL, "system: is %s; expected a string",
                            core_json_kind_name(core_json_kind(turns->system)));
    }
    if (text_row_chat_adds(turns) > 0) {
        write_plain(json, "system", turns->system);
    }
    for (size_t i = 0; i < core_json_count(turns->list); i++) {
        int rc = write_turn(json, core_json_at(turns->list, i));
        if (rc != 0) {
            return core_err_prefix(rc, "%s[%zu]", turns->key, i);
        }
    }
    return 0;
}

static int finish(struct core_json_write *json, struct core_json **out)
{
    core_json_write_array_end(json);
    int rc = core_json_write_end(json);
    if (rc == 0) {
        rc = core_json_parse(json->text, json->bytes, "messages", NULL, out);
    }
    core_json_write_fini(json);
    return rc;
}

int text_row_chat_make(const struct text_row_turns *first, const struct text_row_turns *second,
                       struct core_json **out)
{
    struct core_json_write json;
    core_json_write_init_text(&json);
    core_json_write_array_begin(&json, NULL);
    int rc = write_turns(&json, first);
    if (rc == 0 && second != NULL) {
        rc = write_turns(&json, second);
    }
    if (rc != 0) { /* a turn may be incomplete */
        core_json_write_fini(&json);
        return rc;
    }
    return finish(&json, out);
}

/* Joins the instruction, an empty line and the input. */
static int join_parts(const struct text_row_instruction *parts, char **out, size_t *bytes)
{
    size_t first;
    size_t second = 0;
    const char *instruction = core_json_string(parts->instruction, &first);
    const char *input = parts->input != NULL ? core_json_string(parts->input, &second) : "";
    const size_t between = parts->input != NULL ? 2 : 0;
    char *joined = core_charge_alloc(first + between + second + 1);
    if (joined == NULL) {
        return core_err_set(-ENOMEM, "no memory for an instruction");
    }
    memcpy(joined, instruction, first);
    memcpy(joined + first, "\n\n", between);
    memcpy(joined + first + between, input, second);
    *out = joined;
    *bytes = first + between + second;
    return 0;
}

int text_row_chat_instruct(const struct text_row_instruction *parts, struct core_json **out)
{
    struct core_json_write json;
    char *content = NULL;
    size_t bytes = 0;
    if (parts->system != NULL && core_json_kind(parts->system) != CORE_JSON_STRING) {
        return core_err_set(-EINVAL, "system: is %s; expected a string",
                            core_json_kind_name(core_json_kind(parts->system)));
    }
    int rc = join_parts(parts, &content, &bytes);
    if (rc != 0) {
        return rc;
    }
    core_json_write_init_text(&json);
    core_json_write_array_begin(&json, NULL);
    if (parts->system != NULL) {
        write_plain(&json, "system", parts->system);
    }
    core_json_write_object_begin(&json, NULL);
    core_json_write_string(&json, "role", "user");
    core_json_write_string_bytes(&json, "content", content, bytes);
    core_json_write_value(&json, "instruction", parts->instruction);
    if (parts->input != NULL) {
        core_json_write_value(&json, "input", parts->input);
    }
    core_json_write_object_end(&json);
    write_plain(&json, "assistant", parts->output);
    core_charge_free(content);
    return finish(&json, out);
}
