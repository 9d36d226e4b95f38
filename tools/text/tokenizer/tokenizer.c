/* tokenizer.c: loads tokenizer.json, and encodes texts: added tokens, then the text between
 * them. */
#include "tools/text/tokenizer/tokenizer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/utf8.h"
#include "tools/text/tokenizer/pcre.h"
#include "tools/text/tokenizer/special.h"
#include "tools/text/tokenizer/steps.h"

enum { FILE_BYTES_MAX = 1 << 29 };

/* Sections that are parsed as trees, after the model. */
static const struct section {
    const char *key;
    int (*load)(struct text_tokenizer *tokenizer, const struct core_json *doc);
} sections[] = {
    {"normalizer", token_normalizer_load},
    {"added_tokens", token_added_load},
    {"pre_tokenizer", token_pre_tokenizer_load},
    {"post_processor", token_post_processor_load},
    {"decoder", token_decoder_load},
};
enum { SECTIONS = sizeof sections / sizeof sections[0] };

struct found {
    const char *text; /* borrowed */
    size_t bytes;
};

static int scan_sections(struct text_tokenizer *tokenizer, struct core_json_scan *scan,
                         struct found found[SECTIONS])
{
    struct core_json_token token;
    bool model = false;
    int rc = core_json_scan_next(scan, &token);
    if (rc == 0 && token.kind != CORE_JSON_TOKEN_OBJECT_BEGIN) {
        return core_err_set(-EINVAL, "%s: must be an object", scan->source);
    }
    while (rc == 0 && (rc = core_json_scan_next(scan, &token)) == 0 &&
           token.kind == CORE_JSON_TOKEN_KEY) {
        if (core_json_token_equals(&token, "model", 5)) {
            rc = model ? core_err_set(-EINVAL, "%s: duplicate key \"model\"", scan->source)
                       : token_model_load(tokenizer->model, scan);
            model = true;
            continue;
        }
        size_t from = scan->at;
        struct core_json_token key = token;
        rc = core_json_scan_skip(scan, &token);
        for (size_t i = 0; i < SECTIONS && rc == 0; i++) {
            if (core_json_token_equals(&key, sections[i].key, strlen(sections[i].key))) {
                found[i] = (struct found){.text = scan->text + from, .bytes = scan->at - from};
            }
        }
    }
    if (rc == 0) {
        rc = core_json_scan_next(scan, &token); /* nothing may follow */
    }
    return rc != 0 || model ? rc
                            : core_err_set(-EINVAL, "%s: key \"model\" is missing", scan->source);
}

static int load_section(struct text_tokenizer *tokenizer, const struct section *section,
                        const struct found *found)
{
    struct core_json *doc = NULL;
    char source[512];
    if (found->text == NULL) {
        tokenizer->decodes_bare |= strcmp(section->key, "decoder") == 0;
        return 0;
    }
    snprintf(source, sizeof source, "%.400s: %s", tokenizer->source, section->key);
    int rc = core_json_parse(found->text, found->bytes, source, NULL, &doc);
    if (rc == 0) {
        rc = section->load(tokenizer, doc);
    }
    core_json_destroy(doc);
    return rc;
}

static int extend(struct text_tokenizer *tokenizer, const char *folder)
{
    struct text_special special = {0};
    int rc = text_special_load(folder, &special);
    if (rc != 0) {
        return rc;
    }
    rc = token_added_extend(tokenizer, &special, folder);
    text_special_fini(&special);
    return rc;
}

/* The scheme "first" of Metaspace needs the place of a piece in the original if an earlier step may
 * drop characters. */
static bool needs_spans(const struct text_tokenizer *tokenizer)
{
    bool needs = false;
    for (size_t i = 0; i < tokenizer->splits; i++) {
        needs |= tokenizer->split[i].kind == TOKEN_SPLIT_META &&
                 tokenizer->split[i].scheme == TOKEN_SCHEME_FIRST &&
                 (i > 0 || tokenizer->norms > 0);
    }
    return needs;
}

static int build(struct text_tokenizer *tokenizer, const char *json, size_t bytes,
                 const char *folder)
{
    struct core_json_scan scan;
    struct found found[SECTIONS] = {0};
    core_json_scan_init(&scan, json, bytes, tokenizer->source);
    int rc = token_unicode_create(&tokenizer->unicode);
    if (rc != 0 || (rc = scan_sections(tokenizer, &scan, found)) != 0) {
        return rc;
    }
    for (size_t i = 0; i < SECTIONS; i++) {
        rc = load_section(tokenizer, &sections[i], &found[i]);
        if (rc != 0) {
            return rc;
        }
    }
    tokenizer->file_count = tokenizer->model->vocab.count;
    if ((folder != NULL && (rc = extend(tokenizer, folder)) != 0) ||
        (rc = token_model_finish(tokenizer->model, tokenizer->source)) != 0) {
        return rc;
    }
    tokenizer->needs_spans = needs_spans(tokenizer);
    return token_added_finish(tokenizer);
}

int text_tokenizer_parse(const char *json, size_t bytes, const char *source, const char *folder,
                         struct text_tokenizer **out)
{
    struct text_tokenizer *tokenizer = core_charge_zeroed(1, sizeof *tokenizer);
    if (tokenizer != NULL) {
        tokenizer->source = core_charge_text(source, SIZE_MAX);
        tokenizer->model = core_charge_zeroed(1, sizeof *tokenizer->model);
    }
    int rc = tokenizer != NULL && tokenizer->source != NULL && tokenizer->model != NULL
                 ? build(tokenizer, json, bytes, folder)
                 : core_err_set(-ENOMEM, "%s: no memory for a tokenizer", source);
    if (rc != 0) {
        text_tokenizer_destroy(tokenizer);
        return rc;
    }
    *out = tokenizer;
    return 0;
}

/* Says what the folder has instead, and how to make the file. */
static int refuse_folder(const char *folder)
{
    static const char *const others[] = {"tokenizer.model", "vocab.json", "tekken.json",
                                         "tiktoken.model",  "vocab.txt",  "spiece.model",
                                         "qwen.tiktoken"};
    char path[4096];
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, others[i]);
        if (access(path, F_OK) == 0) {
            return core_err_set(-ENOENT,
                                "%s has %s, but no tokenizer.json; create it with transformers: "
                                "python -c \"from transformers import AutoTokenizer as T; "
                                "T.from_pretrained('%s').save_pretrained('%s')\"",
                                folder, others[i], folder, folder);
        }
    }
    return core_err_set(
        -ENOENT,
        "%s has no tokenizer.json; a complete download of the model has it beside the weights",
        folder);
}

int text_tokenizer_load(const char *path, struct text_tokenizer **out)
{
    struct stat info;
    char file[4096];
    char *text = NULL;
    size_t bytes = 0;
    bool folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    int length = snprintf(file, sizeof file, "%s%s", path, folder ? "/tokenizer.json" : "");
    if (length >= (int)sizeof file) {
        return core_err_set(-ENAMETOOLONG, "%.200s...: the path is too long", path);
    }
    if (folder && access(file, F_OK) != 0 && errno == ENOENT) {
        return refuse_folder(path);
    }
    int rc = folder ? core_file_read_regular(file, FILE_BYTES_MAX, &text, &bytes)
                    : core_file_read(file, FILE_BYTES_MAX, &text, &bytes);
    if (rc == 0) {
        rc = text_tokenizer_parse(text, bytes, file, folder ? path : NULL, out);
    }
    free(text);
    return rc;
}

void text_tokenizer_destroy(struct text_tokenizer *tokenizer)
{
    if (tokenizer == NULL) {
        return;
    }
    for (size_t i = 0; i < TOKEN_STEPS_MAX; i++) {
        token_form_destroy(tokenizer->norm[i].form);
        token_search_free(&tokenizer->norm[i].search);
        core_charge_free(tokenizer->norm[i].content);
        token_search_free(&tokenizer->split[i].search);
        token_search_free(&tokenizer->decode[i].search);
        core_charge_free(tokenizer->decode[i].content);
    }
    core_charge_free(tokenizer->frame.before);
    core_charge_free(tokenizer->frame.after);
    token_added_free(tokenizer);
    token_model_free(tokenizer->model);
    token_unicode_destroy(tokenizer->unicode);
    core_charge_free(tokenizer->source);
    core_charge_free(tokenizer);
}

/* ---- queries ---- */

size_t text_tokenizer_size(const struct text_tokenizer *tokenizer)
{
    return tokenizer->model->vocab.count;
}

int64_t text_tokenizer_id(const struct text_tokenizer *tokenizer, const char *token, size_t bytes)
{
    uint32_t id = token_vocab_find(&tokenizer->model->vocab, token, bytes);
    return id == TOKEN_NONE ? -1 : (int64_t)id;
}

const char *text_tokenizer_token(const struct text_tokenizer *tokenizer, uint32_t id, size_t *bytes)
{
    return token_vocab_text(&tokenizer->model->vocab, id, bytes);
}

const struct text_added *text_tokenizer_added(const struct text_tokenizer *tokenizer, size_t index)
{
    return index < tokenizer->added_count ? &tokenizer->added[index] : NULL;
}

int text_tokenizer_check(const struct text_tokenizer *tokenizer, size_t vocab_size)
{
    const size_t count = tokenizer->file_count;
    return count <= vocab_size
               ? 0
               : core_err_set(
                     -EINVAL,
                     "%s: ids go up to %zu, but the model has %zu embeddings; they belong to "
                     "different models, or the embedding was not resized for the tokens",
                     tokenizer->source, count - 1, vocab_size);
}

/* ---- encoding ---- */

static int check_text(const char *text, size_t bytes)
{
    if (bytes > TEXT_BYTES_MAX) {
        return core_err_set(-E2BIG, "a text of %zu bytes; at most %d can be tokenized at once",
                            bytes, TEXT_BYTES_MAX);
    }
    for (size_t at = 0; at < bytes;) {
        uint64_t word;
        if (bytes - at >= sizeof word) {
            memcpy(&word, text + at, sizeof word);
            if ((word & UINT64_C(0x8080808080808080)) == 0) {
                at += sizeof word;
                continue;
            }
        }
        size_t length = core_utf8_sequence(text + at, bytes - at);
        if (length == 0) {
            return core_err_set(-EILSEQ, "byte %zu of the text is not UTF-8", at);
        }
        at += length;
    }
    return 0;
}

/* Encodes the text between two tokens of tokenizer->early. */
static int encode_stretch(struct text_scratch *scratch, const char *text, size_t begin, size_t end)
{
    const struct text_tokenizer *tokenizer = scratch->tokenizer;
    size_t bounds[2];
    size_t from = 0;
    size_t done = 0;
    uint32_t added;
    int rc = token_normalizer_run(scratch, text + begin, end - begin, (uint32_t)begin);
    const struct token_text *norm = &scratch->text[0];
    if (rc != 0) {
        return rc;
    }
    while (token_added_find(tokenizer, &tokenizer->late, norm->at, norm->bytes, &from, done, bounds,
                            &added)) {
        struct text_span span = token_text_span(norm, bounds[0]);
        span.end = token_text_span(norm, bounds[1] - 1).end;
        if (done < bounds[0]) {
            rc = token_pre_tokenizer_run(scratch, done, bounds[0], begin == 0 && done == 0);
        }
        if (rc != 0 || (rc = token_emit(scratch, tokenizer->added[added].id, span)) != 0) {
            return rc;
        }
        done = bounds[1];
    }
    return done < norm->bytes
               ? token_pre_tokenizer_run(scratch, done, norm->bytes, begin == 0 && done == 0)
               : 0;
}

static int encode_text(struct text_scratch *scratch, const char *text, size_t bytes)
{
    const struct text_tokenizer *tokenizer = scratch->tokenizer;
    size_t bounds[2];
    size_t from = 0;
    size_t done = 0;
    uint32_t added;
    while (
        token_added_find(tokenizer, &tokenizer->early, text, bytes, &from, done, bounds, &added)) {
        const struct text_span span = {(uint32_t)bounds[0], (uint32_t)bounds[1]};
        int rc = done < bounds[0] ? encode_stretch(scratch, text, done, bounds[0]) : 0;
        if (rc != 0 || (rc = token_emit(scratch, tokenizer->added[added].id, span)) != 0) {
            return rc;
        }
        done = bounds[1];
    }
    return done < bytes ? encode_stretch(scratch, text, done, bytes) : 0;
}

static int emit_all(struct text_scratch *scratch, const uint32_t *ids, size_t count, size_t place)
{
    for (size_t i = 0; i < count; i++) {
        int rc = token_emit(scratch, ids[i], (struct text_span){(uint32_t)place, (uint32_t)place});
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

int text_tokenizer_encode(struct text_scratch *scratch, const char *text, size_t bytes,
                          unsigned flags, struct text_encoding *out)
{
    const struct token_post_processor *frame = &scratch->tokenizer->frame;
    bool framed = (flags & TEXT_ENCODE_SPECIAL) != 0;
    const bool spans = (flags & TEXT_ENCODE_SPANS) != 0;
    scratch->tracks = spans || scratch->tokenizer->needs_spans;
    for (size_t i = 0; i < sizeof scratch->text / sizeof scratch->text[0]; i++) {
        scratch->text[i].tracks = scratch->tracks;
        scratch->text[i].bytes = 0;
    }
    scratch->count = 0;
    int rc = check_text(text, bytes);
    if (rc != 0 ||
        (rc = emit_all(scratch, frame->before, framed ? frame->before_count : 0, 0)) != 0 ||
        (rc = encode_text(scratch, text, bytes)) != 0 ||
        (rc = emit_all(scratch, frame->after, framed ? frame->after_count : 0, bytes)) != 0) {
        return rc;
    }
    *out = (struct text_encoding){
        .ids = scratch->ids, .count = scratch->count, .spans = spans ? scratch->spans : NULL};
    return 0;
}
