/* make_tokenizer.c: writes a byte-level tokenizer that has the words of the data as tokens. */
#include "tools/demo/make_tokenizer.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/json/json.h"
#include "core/json/write.h"
#include "tools/text/data/records.h"
#include "tools/text/data/row.h"
#include "tools/text/tokenizer/model.h"
#include "tools/text/tokenizer/unicode.h"

enum { WORD_BYTES = 64, BYTES = 256 };

static const char *const specials[] = {"<|user|>", "<|assistant|>", "<|system|>", "<|end|>"};
enum { SPECIALS = sizeof specials / sizeof specials[0] };

static const char chat_template[] =
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}";

struct words {
    char (*at)[WORD_BYTES]; /* owned; bytes as letters of the vocabulary */
    int64_t count;
    int64_t most;
};

static int add_word(struct words *words, const char *text, size_t bytes)
{
    char word[WORD_BYTES] = "";
    size_t length = 0;
    if (bytes < 2 || bytes > (WORD_BYTES - 1) / 2) {
        return 0; /* tokenized as bytes */
    }
    for (size_t i = 0; i < bytes; i++) {
        length += token_point_write(token_byte_letter((unsigned char)text[i]), word + length);
    }
    for (int64_t i = 0; i < words->count; i++) {
        if (strcmp(words->at[i], word) == 0) {
            return 0;
        }
    }
    if (words->count == words->most) {
        return core_err_set(-E2BIG,
                            "the chats have more than %" PRId64 " words, and the vocabulary "
                            "has no room for more",
                            words->most);
    }
    memcpy(words->at[words->count++], word, sizeof word);
    return 0;
}

static int kind_of(char c)
{
    return isalpha((unsigned char)c) ? 1 : isdigit((unsigned char)c) ? 2 : c == ' ' ? 3 : 4;
}

/* Cuts a text into words about like the pre-tokenizer: a space belongs to the next word. */
static int add_text(struct words *words, const char *text)
{
    int rc = 0;
    for (size_t at = 0; text[at] != '\0' && rc == 0;) {
        const size_t begin = at;
        at += text[at] == ' ' && text[at + 1] != '\0' && text[at + 1] != ' ';
        const int kind = kind_of(text[at]);
        while (text[at] != '\0' && kind_of(text[at]) == kind) {
            at++;
        }
        rc = add_word(words, text + begin, at - begin);
    }
    return rc;
}

static int add_row(struct words *words, const struct text_record *record)
{
    struct text_row row;
    int rc = text_row_parse(record->text, record->bytes, &row);
    if (rc != 0) {
        return rc;
    }
    for (size_t i = 0; row.messages != NULL && i < core_json_count(row.messages) && rc == 0; i++) {
        const struct core_json_value *content = core_json_find(core_json_at(row.messages, i),
                                                               "content");
        if (content != NULL && core_json_kind(content) == CORE_JSON_STRING) {
            rc = add_text(words, core_json_string(content, NULL));
        }
    }
    text_row_fini(&row);
    return rc;
}

static int read_words(const char *data, struct words *words)
{
    struct text_record record;
    struct text_records *records = NULL;
    const struct text_records_options options = {.paths = &data, .paths_count = 1};
    int rc = text_records_open(&options, &records);
    while (rc == 0 && (rc = text_records_next(records, &record)) == 1) {
        char name[TEXT_NAME_BYTES];
        rc = add_row(words, &record);
        if (rc != 0) {
            rc = core_err_prefix(rc, "%s", text_records_name(records, &record, name));
        }
    }
    text_records_close(records);
    return rc;
}

static int open_json(const char *folder, const char *name, FILE **file,
                     struct core_json_write *json)
{
    char path[1100];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    *file = fopen(path, "we");
    if (*file == NULL) {
        return core_err_set(-errno, "%s cannot be written: %s", path, strerror(errno));
    }
    core_json_write_init_file(json, *file);
    json->indent = 1;
    core_json_write_object_begin(json, NULL);
    return 0;
}

static int close_json(FILE *file, struct core_json_write *json)
{
    core_json_write_object_end(json);
    int rc = core_json_write_end(json);
    core_json_write_fini(json);
    const bool failed = fclose(file) != 0;
    return rc != 0 || !failed ? rc : core_err_set(-EIO, "a file cannot be written");
}

static void write_typed(struct core_json_write *json, const char *key, const char *type)
{
    core_json_write_object_begin(json, key);
    core_json_write_string(json, "type", type);
    if (strcmp(type, "ByteLevel") == 0) {
        core_json_write_bool(json, "add_prefix_space", false);
        core_json_write_bool(json, "trim_offsets", true);
        core_json_write_bool(json, "use_regex", true);
    }
}

static void write_added(struct core_json_write *json, int64_t first)
{
    core_json_write_array_begin(json, "added_tokens");
    for (int i = 0; i < SPECIALS; i++) {
        core_json_write_object_begin(json, NULL);
        core_json_write_integer(json, "id", first + i);
        core_json_write_string(json, "content", specials[i]);
        core_json_write_bool(json, "single_word", false);
        core_json_write_bool(json, "lstrip", false);
        core_json_write_bool(json, "rstrip", false);
        core_json_write_bool(json, "normalized", false);
        core_json_write_bool(json, "special", true);
        core_json_write_object_end(json);
    }
    core_json_write_array_end(json);
}

static int write_tokenizer(const char *folder, const struct words *words)
{
    FILE *file = NULL;
    struct core_json_write json;
    int rc = open_json(folder, "tokenizer.json", &file, &json);
    if (rc != 0) {
        return rc;
    }
    core_json_write_string(&json, "version", "1.0");
    write_added(&json, BYTES + words->count);
    write_typed(&json, "pre_tokenizer", "ByteLevel");
    core_json_write_object_end(&json);
    write_typed(&json, "decoder", "ByteLevel");
    core_json_write_object_end(&json);
    write_typed(&json, "model", "BPE");
    core_json_write_bool(&json, "ignore_merges", true); /* a known word is one token */
    core_json_write_object_begin(&json, "vocab");
    for (unsigned i = 0; i < BYTES; i++) {
        char letter[5] = "";
        token_point_write(token_byte_letter(i), letter);
        core_json_write_integer(&json, letter, i);
    }
    for (int64_t i = 0; i < words->count; i++) {
        core_json_write_integer(&json, words->at[i], BYTES + i);
    }
    core_json_write_object_end(&json);
    core_json_write_array_begin(&json, "merges");
    core_json_write_array_end(&json);
    core_json_write_object_end(&json);
    return close_json(file, &json);
}

static int write_configs(const char *folder, int64_t end)
{
    FILE *file = NULL;
    struct core_json_write json;
    int rc = open_json(folder, "tokenizer_config.json", &file, &json);
    if (rc != 0) {
        return rc;
    }
    core_json_write_string(&json, "tokenizer_class", "PreTrainedTokenizerFast");
    core_json_write_string(&json, "eos_token", "<|end|>");
    core_json_write_string(&json, "chat_template", chat_template);
    rc = close_json(file, &json);
    if (rc != 0 || (rc = open_json(folder, "generation_config.json", &file, &json)) != 0) {
        return rc;
    }
    core_json_write_integer(&json, "eos_token_id", end);
    return close_json(file, &json);
}

int demo_tokenizer_make(const char *folder, const char *data, int64_t vocab)
{
    struct words words = {.most = vocab - BYTES - SPECIALS};
    if (words.most <= 0) {
        return core_err_set(-EINVAL, "a vocabulary of %" PRId64 " has no room for words", vocab);
    }
    words.at = calloc((size_t)words.most, sizeof *words.at);
    if (words.at == NULL) {
        return core_err_set(-ENOMEM, "no memory for %" PRId64 " words", words.most);
    }
    int rc = read_words(data, &words);
    if (rc == 0 && (rc = write_tokenizer(folder, &words)) == 0) {
        rc = write_configs(folder, BYTES + words.count + SPECIALS - 1);
    }
    free(words.at);
    return rc;
}
