/* extend.c: what the files beside tokenizer.json add to a tokenizer, as transformers does: the
 * special tokens that they name and tokenizer.json does not have. At load, on one thread. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "tools/text/data/special.h"
#include "tools/text/tokenizer/internal.h"

/* The model's id of the token, or the next free one. */
static int find_id(struct token_vocab *vocab, const char *content, size_t bytes, uint32_t *id)
{
    *id = token_vocab_find(vocab, content, bytes);
    if (*id != TOKEN_NONE) {
        return 0;
    }
    *id = vocab->count;
    return token_vocab_add(vocab, content, bytes, *id);
}

static void set_flags(struct text_added *added, const struct text_special_token *token)
{
    added->special |= token->special;
    added->single_word = token->single_word;
    added->lstrip = token->lstrip;
    added->rstrip = token->rstrip;
    added->normalized = token->normalized;
}

static int add(struct text_tokenizer *tokenizer, const struct text_special_token *token,
               uint32_t id)
{
    char *content = core_charge_text(token->content, SIZE_MAX);
    struct text_added *more = content == NULL
                                  ? NULL
                                  : core_charge_grow(tokenizer->added,
                                                     (tokenizer->added_count + 1) * sizeof *more);
    if (more == NULL) {
        core_charge_free(content);
        return core_err_set(-ENOMEM, "no memory for added tokens");
    }
    struct text_added *added = &more[tokenizer->added_count++];
    tokenizer->added = more;
    *added = (struct text_added){.content = content, .bytes = strlen(content), .id = id};
    set_flags(added, token);
    return 0;
}

/* `place`: by id, 1 + the token's index among the added ones, or 0. The flags of added_tokens_decoder
 * replace those of tokenizer.json; its ids do not. */
static int extend_by(struct text_tokenizer *tokenizer, const struct text_special_token *token,
                     uint32_t *place, const char *folder)
{
    uint32_t id;
    int rc = find_id(&tokenizer->model->vocab, token->content, strlen(token->content), &id);
    if (rc == 0 && place[id] == 0) {
        rc = add(tokenizer, token, id);
        place[id] = (uint32_t)tokenizer->added_count;
    } else if (rc == 0 && token->id >= 0) {
        set_flags(&tokenizer->added[place[id] - 1], token);
    }
    if (rc == 0 && token->id >= 0 && token->id != (int64_t)id) {
        core_log(CORE_LOG_WARN,
                 "%s/tokenizer_config.json: added_tokens_decoder gives \"%.60s\" the id %lld; it "
                 "has %u by tokenizer.json, which counts, as in transformers",
                 folder, token->content, (long long)token->id, id);
    }
    return rc;
}

/* Is the named token alone on its side of the frame, or nothing where it is not to be there? */
static bool frames(const struct text_tokenizer *tokenizer, const struct text_special *special,
                   bool begins, bool adds)
{
    const struct token_post_processor *frame = &tokenizer->frame;
    const uint32_t *ids = begins ? frame->before : frame->after;
    const size_t count = begins ? frame->before_count : frame->after_count;
    const char *content = text_special_find(special, begins ? "bos_token" : "eos_token");
    if (content == NULL || !adds) {
        return content == NULL || count == 0;
    }
    return count == 1 &&
           ids[0] == token_vocab_find(&tokenizer->model->vocab, content, strlen(content));
}

/* Is the class that of the configuration, with or without Fast behind it? */
static bool is_class(const struct text_special *special, const char *class)
{
    const size_t bytes = strlen(class);
    const char *its = special->tokenizer_class;
    return its != NULL && strncmp(its, class, bytes) == 0 &&
           (its[bytes] == '\0' || strcmp(its + bytes, "Fast") == 0);
}

/* Where tokenizer.json and add_bos_token or add_eos_token do not agree on what goes around a text,
 * transformers 5 follows the former, and some classes of transformers 4 the latter. */
static void compare_frame(const struct text_tokenizer *tokenizer,
                          const struct text_special *special, const char *folder)
{
    static const char *const classes[] = {"LlamaTokenizer", "GemmaTokenizer", "CohereTokenizer"};
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        if (!is_class(special, classes[i])) {
            continue;
        }
        const bool bos = special->adds_bos != TEXT_SPECIAL_NO; /* the classes' defaults */
        const bool eos = special->adds_eos == TEXT_SPECIAL_YES;
        const bool same = frames(tokenizer, special, true, bos);
        if (!same || !frames(tokenizer, special, false, eos)) {
            core_log(CORE_LOG_WARN,
                     "%s/tokenizer_config.json: %s is %s, and the post_processor of tokenizer.json "
                     "says otherwise; the latter counts, as in transformers 5 (transformers 4's "
                     "%sFast follows the former)",
                     folder, same ? "add_eos_token" : "add_bos_token",
                     (same ? eos : bos) ? "true" : "false", classes[i]);
        }
    }
}

/* transformers 5 builds this class of its own, without the normalizer of tokenizer.json. */
static void compare_class(const struct text_tokenizer *tokenizer,
                          const struct text_special *special, const char *folder)
{
    if (is_class(special, "LlamaTokenizer") && tokenizer->norms > 0) {
        core_log(
            CORE_LOG_WARN,
            "%s/tokenizer_config.json: tokenizer_class: for LlamaTokenizer transformers 5 "
            "leaves out the normalizer of tokenizer.json, which changes the ids behind special "
            "tokens; tide follows tokenizer.json, as transformers 4 and tokenizers do",
            folder);
    }
}

int token_added_extend(struct text_tokenizer *tokenizer, const struct text_special *special,
                       const char *folder)
{
    uint32_t *place = core_charge_zeroed(tokenizer->model->vocab.count + special->count + 1,
                                         sizeof *place);
    if (place == NULL) {
        return core_err_set(-ENOMEM, "no memory for added tokens");
    }
    for (size_t i = 0; i < tokenizer->added_count; i++) {
        place[tokenizer->added[i].id] = (uint32_t)i + 1;
    }
    int rc = 0;
    for (size_t i = 0; i < special->count && rc == 0; i++) {
        rc = extend_by(tokenizer, &special->tokens[i], place, folder);
    }
    core_charge_free(place);
    if (rc == 0) {
        compare_frame(tokenizer, special, folder);
        compare_class(tokenizer, special, folder);
    }
    return rc == 0 ? 0 : core_err_prefix(rc, "%s/tokenizer_config.json", folder);
}
