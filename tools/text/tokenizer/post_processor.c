/* post_processor.c: loads the ids that go before and after a text. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "tools/text/tokenizer/steps.h"

static int put_id(struct token_section *section, int64_t id, bool before)
{
    struct token_post_processor *frame = &section->tokenizer->frame;
    uint32_t **ids = before ? &frame->before : &frame->after;
    size_t *count = before ? &frame->before_count : &frame->after_count;
    if (id < 0 || (uint64_t)id >= section->tokenizer->model->vocab.count) {
        return core_err_set(-EINVAL, "%s: post_processor: no token has the id %lld",
                            section->tokenizer->source, (long long)id);
    }
    uint32_t *grown = core_charge_grow(*ids, (*count + 1) * sizeof *grown);
    if (grown == NULL) {
        return core_err_set(-ENOMEM, "no memory for %zu ids", *count + 1);
    }
    grown[(*count)++] = (uint32_t)id;
    *ids = grown;
    return 0;
}

static int put_special(struct token_section *section, const struct core_json_value *processor,
                       const char *name, bool before)
{
    const struct core_json_value *specials = core_json_find(processor, "special_tokens");
    const struct core_json_value *special = specials == NULL ? NULL
                                                             : core_json_find(specials, name);
    const struct core_json_value *ids = special == NULL ? NULL : core_json_find(special, "ids");
    if (ids == NULL || core_json_kind(ids) != CORE_JSON_ARRAY) {
        return token_section_refuse(section, "has no ids in special_tokens for", name);
    }
    for (size_t i = 0; i < core_json_count(ids); i++) {
        int64_t id = -1;
        core_json_as_integer(core_json_at(ids, i), &id);
        int rc = put_id(section, id, before);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static int load_template(struct token_section *section, const struct core_json_value *value)
{
    const struct core_json_value *single = core_json_find(value, "single");
    size_t texts = 0;
    if (single == NULL || core_json_kind(single) != CORE_JSON_ARRAY) {
        return token_section_refuse(section, "has no array", "single");
    }
    for (size_t i = 0; i < core_json_count(single); i++) {
        const struct core_json_value *item = core_json_at(single, i);
        const struct core_json_value *special = core_json_find(item, "SpecialToken");
        if (special == NULL) {
            texts += core_json_find(item, "Sequence") != NULL;
            continue;
        }
        const char *name = NULL;
        int rc = core_json_get_string(section->doc, special, "id", &name);
        if (rc != 0 || (rc = put_special(section, value, name, texts == 0)) != 0) {
            return rc;
        }
    }
    return texts == 1 ? 0 : token_section_refuse(section, "must have one Sequence in", "single");
}

static int load_member(struct token_section *section, const struct core_json_value *value,
                       const char *type)
{
    if (strcmp(type, "ByteLevel") == 0) {
        return 0; /* this post-processor only trims offsets */
    }
    if (strcmp(type, "TemplateProcessing") != 0) {
        return token_section_refuse(section, "has a type that tide does not read:", type);
    }
    if (section->tokenizer->frame.before_count + section->tokenizer->frame.after_count > 0) {
        return token_section_refuse(section, "has two templates;", "tide reads one");
    }
    return load_template(section, value);
}

int token_post_processor_load(struct text_tokenizer *tokenizer, const struct core_json *doc)
{
    struct token_section section = {.tokenizer = tokenizer, .doc = doc, .key = "post_processor"};
    return token_section_walk(&section, core_json_root(doc), "processors", load_member);
}
