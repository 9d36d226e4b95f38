/* encode.c: turns a row into tokens, and masks those that are not trained on. */
#include "tools/text/data/encode.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/json/json.h"
#include "tools/text/data/array.h"
#include "tools/text/data/chat.h"
#include "tools/text/data/row.h"
#include "tools/text/data/turn_place.h"
#include "tools/text/data/turns.h"
#include "tools/text/tokenizer/tokenizer.h"

struct text_encoder {
    struct text_encoder *first; /* borrowed: owner of the next four members; may be this encoder */
    struct text_tokenizer *tokenizer; /* owned by `first` */
    struct text_chat *chat;           /* owned by `first` */
    struct text_chat *alpaca;         /* owned by `first`: for instruction rows of models without a
                                 template */
    char *end;                        /* owned by `first`: text of the end token; NULL: none */
    struct text_scratch *scratch;     /* owned */
    struct jinja_run *run;            /* owned */
    struct text_turns turns;
    char *text; /* owned */
    size_t text_room;
    uint32_t *prompt; /* owned */
    size_t prompt_room;
    int64_t vocab;            /* vocabulary size of the model; 0: not checked */
    _Atomic bool said_prompt; /* the warning was given; orders nothing */
    _Atomic bool said_ambiguous;
};

/* Finds the end token by name, or by the id in the configuration. */
static int find_end(struct text_encoder *encoder)
{
    size_t bytes = 0;
    const char *end = text_chat_token(encoder->chat, "eos_token");
    const int64_t id = text_chat_end(encoder->chat);
    if (end != NULL) {
        bytes = strlen(end);
    } else if (id >= 0 && id < (int64_t)text_tokenizer_size(encoder->tokenizer)) {
        end = text_tokenizer_token(encoder->tokenizer, (uint32_t)id, &bytes);
    }
    if (end == NULL) {
        return 0;
    }
    encoder->end = core_charge_text(end, bytes);
    return encoder->end != NULL ? 0 : core_err_set(-ENOMEM, "no memory for an encoder");
}

/* The tokenizer would encode unknown special tokens as ordinary text. */
static void warn_unknown(const struct text_encoder *encoder, const char *format)
{
    static const struct {
        const char *format;
        const char *token;
    } tokens[] = {{"chatml", "<|im_start|>"},
                  {"chatml", "<|im_end|>"},
                  {"llama3", "<|start_header_id|>"},
                  {"llama3", "<|eot_id|>"}};
    for (size_t i = 0; format != NULL && i < sizeof tokens / sizeof tokens[0]; i++) {
        if (strcmp(format, tokens[i].format) == 0 &&
            text_tokenizer_id(encoder->tokenizer, tokens[i].token, strlen(tokens[i].token)) < 0) {
            core_log(CORE_LOG_WARN,
                     "--chat-format %s: the tokenizer has no token %s and will spell it out",
                     format, tokens[i].token);
        }
    }
}

static int load(struct text_encoder *encoder, const char *folder, const char *format, int64_t vocab,
                int64_t now)
{
    int rc = text_tokenizer_load(folder, &encoder->tokenizer);
    if (rc == 0 && vocab > 0) {
        rc = text_tokenizer_check(encoder->tokenizer, (size_t)vocab);
    }
    if (rc != 0 || (rc = text_chat_load(folder, format, now, &encoder->chat)) != 0 ||
        (rc = text_chat_load(folder, "alpaca", now, &encoder->alpaca)) != 0) {
        return rc;
    }
    return find_end(encoder);
}

static int make_rows(struct text_encoder *encoder)
{
    int rc = jinja_run_create(NULL, &encoder->run);
    return rc == 0 ? text_turns_init(&encoder->turns, &encoder->first->said_ambiguous) : rc;
}

static int make_own(struct text_encoder *encoder)
{
    int rc = text_scratch_create(encoder->tokenizer, &encoder->scratch);
    return rc == 0 ? make_rows(encoder) : rc;
}

int text_encoder_create(const char *folder, const char *format, int64_t vocab, int64_t now,
                        struct text_encoder **out)
{
    struct text_encoder *encoder = core_charge_zeroed(1, sizeof *encoder);
    if (encoder == NULL) {
        return core_err_set(-ENOMEM, "no memory for an encoder");
    }
    encoder->first = encoder;
    int rc = load(encoder, folder, format, vocab, now);
    if (rc != 0 || (rc = make_own(encoder)) != 0) {
        text_encoder_destroy(encoder);
        return rc;
    }
    encoder->vocab = vocab;
    warn_unknown(encoder, format);
    if (encoder->end == NULL) {
        core_log(CORE_LOG_WARN, "%s has no eos_token; none is appended to texts", folder);
    }
    *out = encoder;
    return 0;
}

int text_encoder_share(struct text_encoder *first, struct text_encoder **out)
{
    struct text_encoder *encoder = core_charge_zeroed(1, sizeof *encoder);
    if (encoder == NULL) {
        return core_err_set(-ENOMEM, "no memory for an encoder");
    }
    encoder->first = first;
    encoder->tokenizer = first->tokenizer;
    encoder->chat = first->chat;
    encoder->alpaca = first->alpaca;
    encoder->end = first->end;
    encoder->vocab = first->vocab;
    int rc = make_own(encoder);
    if (rc != 0) {
        text_encoder_destroy(encoder);
        return rc;
    }
    *out = encoder;
    return 0;
}

/* Frees the buffers that grow with rows, except the tokenizer's. */
static void free_rows(struct text_encoder *encoder)
{
    jinja_run_destroy(encoder->run);
    text_turns_fini(&encoder->turns);
    core_charge_free(encoder->text);
    core_charge_free(encoder->prompt);
    encoder->run = NULL;
    encoder->turns = (struct text_turns){.spans = NULL};
    encoder->text = NULL;
    encoder->prompt = NULL;
    encoder->text_room = encoder->prompt_room = 0;
}

int text_encoder_trim(struct text_encoder *encoder)
{
    text_scratch_trim(encoder->scratch);
    free_rows(encoder);
    return make_rows(encoder);
}

void text_encoder_destroy(struct text_encoder *encoder)
{
    if (encoder == NULL) {
        return;
    }
    text_scratch_destroy(encoder->scratch);
    free_rows(encoder);
    if (encoder->first == encoder) {
        text_tokenizer_destroy(encoder->tokenizer);
        text_chat_destroy(encoder->chat);
        text_chat_destroy(encoder->alpaca);
        core_charge_free(encoder->end);
    }
    core_charge_free(encoder);
}

const struct text_tokenizer *text_encoder_tokenizer(const struct text_encoder *encoder)
{
    return encoder->tokenizer;
}

bool text_encoder_dated(const struct text_encoder *encoder)
{
    return text_chat_dated(encoder->chat);
}

/* Refuses a token that the model has no embedding for. */
static int refuse_token(const struct text_encoder *encoder, uint32_t id)
{
    size_t bytes = 0;
    const char *token = text_tokenizer_token(encoder->tokenizer, id, &bytes);
    return core_err_set(-EINVAL,
                        "the token \"%.*s\" has id %u, but the model has %lld embeddings; it is in "
                        "tokenizer_config.json, not in tokenizer.json",
                        (int)(bytes > 60 ? 60 : bytes), token, id, (long long)encoder->vocab);
}

/* Appends tokens to those of the row. */
static int add_tokens(const struct text_encoder *encoder, const struct text_encoding *encoding,
                      struct text_sample *out)
{
    const int64_t vocab = encoder->vocab > 0 ? encoder->vocab : INT64_MAX;
    for (size_t i = 0; i < encoding->count; i++) {
        const int32_t id = (int32_t)encoding->ids[i];
        if (id >= vocab) {
            return refuse_token(encoder, encoding->ids[i]);
        }
        int rc = text_sample_add(out, id, id);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

/* Joins prompt and completion, and appends the end token if it is missing. */
static int join_texts(struct text_encoder *encoder, const struct text_row *row, size_t *bytes)
{
    const size_t end = encoder->end != NULL ? strlen(encoder->end) : 0;
    const size_t first = row->text_bytes;
    const size_t second = row->completion_bytes;
    int rc = array_reserve("bytes of a row", &encoder->text, &encoder->text_room,
                           first + second + end + 1, 1);
    if (rc != 0) {
        return rc;
    }
    memcpy(encoder->text, row->text, first);
    if (second > 0) {
        memcpy(encoder->text + first, row->completion, second);
    }
    *bytes = first + second;
    const size_t last = row->kind == TEXT_ROW_TEXT ? first : second;
    if (end > 0 && (last < end || memcmp(encoder->text + *bytes - end, encoder->end, end) != 0)) {
        memcpy(encoder->text + *bytes, encoder->end, end);
        *bytes += end;
    }
    return 0;
}

static int encode_text(struct text_encoder *encoder, const struct text_row *row,
                       struct text_sample *out)
{
    size_t bytes;
    struct text_encoding encoding;
    if (row->text_bytes == 0) {
        return core_err_set(-EINVAL, "text: is empty");
    }
    int rc = join_texts(encoder, row, &bytes);
    if (rc != 0 || (rc = text_tokenizer_encode(encoder->scratch, encoder->text, bytes,
                                               TEXT_ENCODE_SPECIAL, &encoding)) != 0) {
        return rc;
    }
    return add_tokens(encoder, &encoding, out);
}

/* The tokens are copied because the next encoding overwrites them. */
static int encode_prompt(struct text_encoder *encoder, const char *text, size_t bytes,
                         unsigned flags, size_t *count)
{
    struct text_encoding encoding;
    int rc = text_tokenizer_encode(encoder->scratch, text, bytes, flags, &encoding);
    if (rc != 0 ||
        (rc = array_reserve("tokens of a prompt", &encoder->prompt, &encoder->prompt_room,
                            encoding.count + 1, sizeof *encoder->prompt)) != 0) {
        return rc;
    }
    if (encoding.count > 0) { /* ids is NULL before the first text */
        memcpy(encoder->prompt, encoding.ids, encoding.count * sizeof *encoding.ids);
    }
    *count = encoding.count;
    return 0;
}

static size_t count_same(const struct text_encoder *encoder, size_t prompt, const int32_t *ids,
                         size_t count)
{
    size_t same = 0;
    while (same < prompt && same < count && encoder->prompt[same] == (uint32_t)ids[same]) {
        same++;
    }
    return same;
}

/* Masks the tokens that the prompt has in common with the row, or with both rows of a pair. */
static void mask_prompt(struct text_encoder *encoder, size_t prompt, struct text_sample *out)
{
    const size_t second = out->rejected;
    size_t same = count_same(encoder, prompt, out->ids, second > 0 ? second : out->count);
    if (second > 0) {
        same = count_same(encoder, same, out->ids + second, out->count - second);
    }
    for (size_t i = 0; i < same; i++) {
        out->labels[i] = TEXT_IGNORED;
        if (second > 0) {
            out->labels[second + i] = TEXT_IGNORED;
        }
    }
    if (same < prompt &&
        !atomic_exchange_explicit(&encoder->first->said_prompt, true, memory_order_relaxed)) {
        core_log(CORE_LOG_WARN, "the tokens of a prompt differ from the first tokens of prompt and "
                                "completion together; the completion is assumed to begin at the "
                                "first difference; this is reported once");
    }
}

static int add_completion(struct text_encoder *encoder, const struct text_row *row,
                          struct text_sample *out)
{
    size_t bytes;
    struct text_encoding encoding;
    int rc = join_texts(encoder, row, &bytes);
    if (rc != 0 || (rc = text_tokenizer_encode(encoder->scratch, encoder->text, bytes,
                                               TEXT_ENCODE_SPECIAL, &encoding)) != 0) {
        return rc;
    }
    return add_tokens(encoder, &encoding, out);
}

static int encode_completion(struct text_encoder *encoder, const struct text_row *row, bool all,
                             struct text_sample *out)
{
    size_t prompt = 0;
    if (row->completion_bytes == 0) {
        return core_err_set(-EINVAL, "completion: is empty");
    }
    int rc = encode_prompt(encoder, row->text, row->text_bytes, TEXT_ENCODE_SPECIAL, &prompt);
    if (rc != 0 || (rc = add_completion(encoder, row, out)) != 0) {
        return rc;
    }
    if (!all) {
        mask_prompt(encoder, prompt, out);
    }
    return 0;
}

static const struct text_chat *chat_for(const struct text_encoder *encoder,
                                        const struct text_row *row)
{
    const bool none = text_chat_template(encoder->chat, row->tools != NULL) == NULL;
    return none && row->instruction ? encoder->alpaca : encoder->chat;
}

/* Masks white space that a template writes after the last end token. */
static void mask_tail(const struct text_encoder *encoder, const struct jinja_rendering *whole,
                      const struct text_encoding *encoding, struct text_sample *out)
{
    size_t end = whole->bytes;
    text_turn_place_end_token(encoder->tokenizer, whole->text, 0, &end);
    for (size_t i = out->count; i > 0 && encoding->spans[i - 1].begin >= end; i--) {
        out->labels[i - 1] = TEXT_IGNORED;
    }
}

static int encode_chat_completion(struct text_encoder *encoder, const struct text_row *row,
                                  bool all, struct text_sample *out)
{
    size_t prompt = 0;
    struct text_encoding encoding;
    struct jinja_rendering rendering;
    const struct text_chat *chat = chat_for(encoder, row);
    const unsigned flags = all ? 0 : TEXT_ENCODE_SPANS;
    int rc = text_chat_render(chat, encoder->run, row, row->prompt_messages, true, &rendering);
    if (rc != 0 ||
        (rc = encode_prompt(encoder, rendering.text, rendering.bytes, 0, &prompt)) != 0 ||
        (rc = text_chat_render(chat, encoder->run, row, 0, false, &rendering)) != 0 ||
        (rc = text_tokenizer_encode(encoder->scratch, rendering.text, rendering.bytes, flags,
                                    &encoding)) != 0 ||
        (rc = add_tokens(encoder, &encoding, out)) != 0) {
        return rc;
    }
    if (!all) {
        mask_prompt(encoder, prompt, out);
        mask_tail(encoder, &rendering, &encoding, out);
    }
    return rc;
}

static int add_chat(struct text_encoder *encoder, const struct text_row *row,
                    struct text_sample *out)
{
    struct text_encoding encoding;
    struct jinja_rendering rendering;
    int rc = text_chat_render(encoder->chat, encoder->run, row, 0, false, &rendering);
    if (rc != 0 || (rc = text_tokenizer_encode(encoder->scratch, rendering.text, rendering.bytes, 0,
                                               &encoding)) != 0) {
        return rc;
    }
    return add_tokens(encoder, &encoding, out);
}

static int add_answer(struct text_encoder *encoder, const struct text_row *row,
                      struct text_sample *out)
{
    return row->kind == TEXT_ROW_CHAT_PAIR ? add_chat(encoder, row, out)
                                           : add_completion(encoder, row, out);
}

/* White space after the last turn is trained on, as in TRL. */
static int encode_pair(struct text_encoder *encoder, const struct text_row *row,
                       struct text_sample *out)
{
    int rc = 0;
    size_t count = 0;
    const bool chat = row->kind == TEXT_ROW_CHAT_PAIR;
    struct jinja_rendering prompt = {.text = row->text, .bytes = row->text_bytes};
    struct text_row rejected = *row;
    rejected.completion = row->rejected;
    rejected.completion_bytes = row->rejected_bytes;
    rejected.messages = row->rejected_messages;
    if (chat) {
        rc = text_chat_render(encoder->chat, encoder->run, row, row->prompt_messages, true,
                              &prompt);
    }
    if (rc != 0 || (rc = encode_prompt(encoder, prompt.text, prompt.bytes,
                                       chat ? 0 : TEXT_ENCODE_SPECIAL, &count)) != 0) {
        return rc;
    }
    if ((rc = add_answer(encoder, row, out)) != 0) {
        return rc;
    }
    out->rejected = out->count;
    rc = add_answer(encoder, &rejected, out);
    if (rc == 0) {
        mask_prompt(encoder, count, out);
    }
    return rc;
}

static int find_spans(struct text_encoder *encoder, const struct text_row *row,
                      const struct jinja_rendering *whole)
{
    const struct text_turns_whole asked = {
        .chat = encoder->chat, .tokenizer = encoder->tokenizer, .row = row, .text = whole};
    if (!jinja_template_generates(text_chat_template(encoder->chat, row->tools != NULL))) {
        return text_turns_find(&encoder->turns, &asked);
    }
    encoder->turns.count = 0;
    for (size_t i = 0; i < whole->generated_count; i++) {
        int rc = text_turns_add(&encoder->turns, whole->generated[i].begin,
                                whole->generated[i].end);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

/* Tokens and spans are in order. */
static void mask_outside(const struct text_turns *turns, const struct text_encoding *encoding,
                         struct text_sample *out)
{
    size_t at = 0;
    for (size_t i = 0; i < out->count; i++) {
        const struct text_span token = encoding->spans[i];
        while (at < turns->count && turns->spans[at].end <= token.begin) {
            at++;
        }
        if (at == turns->count || token.end <= turns->spans[at].begin) {
            out->labels[i] = TEXT_IGNORED;
        }
    }
}

static int encode_chat(struct text_encoder *encoder, const struct text_row *row, bool all,
                       struct text_sample *out)
{
    struct text_encoding encoding;
    struct jinja_rendering whole;
    int rc = text_chat_render(encoder->chat, encoder->run, row, 0, false, &whole);
    if (rc == 0 && !all) {
        rc = find_spans(encoder, row, &whole);
    }
    if (rc != 0 ||
        (rc = text_tokenizer_encode(encoder->scratch, whole.text, whole.bytes,
                                    all ? 0 : TEXT_ENCODE_SPANS, &encoding)) != 0 ||
        (rc = add_tokens(encoder, &encoding, out)) != 0) {
        return rc;
    }
    if (!all) {
        mask_outside(&encoder->turns, &encoding, out);
    }
    return rc;
}

int text_encoder_encode(struct text_encoder *encoder, const struct text_row *row,
                        enum text_train_on train_on, struct text_sample *out)
{
    const bool all = train_on == TEXT_TRAIN_ALL;
    out->count = out->rejected = 0;
    switch (row->kind) {
    case TEXT_ROW_TEXT: return encode_text(encoder, row, out);
    case TEXT_ROW_COMPLETION: return encode_completion(encoder, row, all, out);
    case TEXT_ROW_CHAT: return encode_chat(encoder, row, all, out);
    case TEXT_ROW_PAIR:
    case TEXT_ROW_CHAT_PAIR: return encode_pair(encoder, row, out);
    case TEXT_ROW_CHAT_COMPLETION: break;
    }
    return encode_chat_completion(encoder, row, all, out);
}
