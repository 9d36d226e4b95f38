/* added_vocabulary.c: reads added tokens, and finds them in original or normalised texts. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "tools/text/tokenizer/special.h"
#include "tools/text/tokenizer/steps.h"
#include "tools/text/tokenizer/tokenizer.h"

/* `known`: the id of the content so far, or TOKEN_NONE. */
static int check_id(const struct text_tokenizer *tokenizer, size_t index, uint32_t known,
                    int64_t id)
{
    const struct text_added *added = &tokenizer->added[index];
    const size_t next = tokenizer->model->vocab.used;
    if (added->bytes == 0 || id < 0 || id > UINT32_MAX) {
        return core_err_set(-EINVAL, "%s: added_tokens[%zu]: %s", tokenizer->source, index,
                            added->bytes == 0 ? "the content is empty"
                                              : "the id must be 0 or more");
    }
    if (known != TOKEN_NONE && known != (uint32_t)id) {
        return core_err_set(-EINVAL,
                            "%s: added_tokens[%zu]: \"%s\" has id %lld here and %u in model.vocab "
                            "or above",
                            tokenizer->source, index, added->content, (long long)id, known);
    }
    if (known == TOKEN_NONE && (uint64_t)id != next) {
        return core_err_set(
            -EINVAL,
            "%s: added_tokens[%zu]: \"%s\" has id %lld, but %zu is the next one: tokens that are "
            "not in model.vocab are numbered from its size, as the `tokenizers` package does",
            tokenizer->source, index, added->content, (long long)id, next);
    }
    return 0;
}

static int load_one(struct text_tokenizer *tokenizer, struct token_section *section,
                    const struct core_json_value *value, size_t index)
{
    struct text_added *added = &tokenizer->added[index];
    char *content = NULL;
    int64_t id = 0;
    int rc = core_json_get_integer(section->doc, value, "id", &id);
    if (rc != 0 ||
        (rc = token_section_string(section, value, "content", &content, &added->bytes)) != 0) {
        return rc;
    }
    added->content = content;
    const struct {
        const char *key;
        bool *flag;
    } flags[] = {{"special", &added->special},
                 {"single_word", &added->single_word},
                 {"lstrip", &added->lstrip},
                 {"rstrip", &added->rstrip},
                 {"normalized", &added->normalized}};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        rc = token_section_bool(section, value, flags[i].key, false, flags[i].flag);
        if (rc != 0) {
            return rc;
        }
    }
    struct token_vocab *vocab = &tokenizer->model->vocab;
    uint32_t known = token_vocab_find(vocab, content, added->bytes);
    rc = check_id(tokenizer, index, known, id);
    if (rc != 0) {
        return rc;
    }
    added->id = (uint32_t)id;
    rc = known == TOKEN_NONE ? token_vocab_add(vocab, content, added->bytes, added->id) : 0;
    return rc == 0 ? 0 : core_err_prefix(rc, "%s: added_tokens[%zu]", tokenizer->source, index);
}

int token_added_load(struct text_tokenizer *tokenizer, const struct core_json *doc)
{
    const struct core_json_value *list = core_json_root(doc);
    struct token_section section = {.tokenizer = tokenizer, .doc = doc, .key = "added_tokens"};
    if (core_json_kind(list) == CORE_JSON_NULL) {
        return 0;
    }
    if (core_json_kind(list) != CORE_JSON_ARRAY) {
        return token_section_refuse(&section, "must be", "an array");
    }
    size_t count = core_json_count(list);
    tokenizer->added = core_charge_zeroed(count + 1, sizeof *tokenizer->added);
    if (tokenizer->added == NULL) {
        return core_err_set(-ENOMEM, "no memory for %zu added tokens", count);
    }
    tokenizer->added_count = count;
    for (size_t i = 0; i < count; i++) {
        int rc = load_one(tokenizer, &section, core_json_at(list, i), i);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static int trie_put(struct token_trie *trie, size_t *room, const char *text, size_t bytes,
                    uint32_t added)
{
    uint32_t *link = &trie->root[(unsigned char)text[0]];
    uint32_t node = TOKEN_NONE;
    for (size_t i = 0; i < bytes; i++) {
        unsigned char byte = (unsigned char)text[i];
        node = *link;
        while (node != TOKEN_NONE && trie->nodes[node].byte != byte) {
            node = trie->nodes[node].next;
        }
        if (node == TOKEN_NONE) {
            void *nodes = trie->nodes;
            uint32_t sibling = *link;
            uint32_t parent = i == 0 ? TOKEN_NONE
                                     : (uint32_t)((char *)link - (char *)nodes) /
                                           (uint32_t)sizeof *trie->nodes;
            int rc = token_grow(&nodes, room, trie->count, 1, sizeof *trie->nodes);
            trie->nodes = nodes;
            if (rc != 0) {
                return rc;
            }
            node = (uint32_t)trie->count++;
            trie->nodes[node] = (struct token_node){
                .child = TOKEN_NONE, .next = sibling, .added = TOKEN_NONE, .byte = byte};
            link = parent == TOKEN_NONE ? &trie->root[byte] : &trie->nodes[parent].child;
            *link = node;
        }
        link = &trie->nodes[node].child;
    }
    trie->nodes[node].added = added;
    return 0;
}

/* The content of a `normalized` token is normalised. */
static int place_token(struct text_scratch *scratch, struct text_tokenizer *tokenizer,
                       uint32_t index, size_t rooms[2])
{
    const struct text_added *added = &tokenizer->added[index];
    if (!added->normalized) {
        return trie_put(&tokenizer->early, &rooms[0], added->content, added->bytes, index);
    }
    int rc = token_normalizer_run(scratch, added->content, added->bytes, 0);
    if (rc != 0 || scratch->text[0].bytes == 0) {
        return rc;
    }
    tokenizer->shown[index] = core_charge_text(scratch->text[0].at, scratch->text[0].bytes);
    if (tokenizer->shown[index] == NULL) {
        return core_err_set(-ENOMEM, "no memory for added token %u", index);
    }
    return trie_put(&tokenizer->late, &rooms[1], scratch->text[0].at, scratch->text[0].bytes,
                    index);
}

int token_added_finish(struct text_tokenizer *tokenizer)
{
    struct text_scratch *scratch = NULL;
    size_t rooms[2] = {0, 0};
    memset(tokenizer->early.root, 0xFF, sizeof tokenizer->early.root);
    memset(tokenizer->late.root, 0xFF, sizeof tokenizer->late.root);
    size_t ids = tokenizer->model->vocab.count;
    tokenizer->added_of = core_charge_alloc((ids + 1) * sizeof *tokenizer->added_of);
    tokenizer->shown = core_charge_zeroed(tokenizer->added_count + 1, sizeof *tokenizer->shown);
    if (tokenizer->added_of == NULL || tokenizer->shown == NULL) {
        return core_err_set(-ENOMEM, "no memory for %zu added tokens", tokenizer->added_count);
    }
    memset(tokenizer->added_of, 0xFF, ids * sizeof *tokenizer->added_of);
    int rc = text_scratch_create(tokenizer, &scratch);
    for (uint32_t i = 0; i < tokenizer->added_count && rc == 0; i++) {
        tokenizer->added_of[tokenizer->added[i].id] = i;
        rc = place_token(scratch, tokenizer, i, rooms);
    }
    text_scratch_destroy(scratch);
    return rc;
}

void token_added_free(struct text_tokenizer *tokenizer)
{
    for (size_t i = 0; i < tokenizer->added_count; i++) {
        char *content = (char *)(uintptr_t)tokenizer->added[i].content;
        core_charge_free(content);
        core_charge_free(tokenizer->shown == NULL ? NULL : tokenizer->shown[i]);
    }
    core_charge_free(tokenizer->shown);
    core_charge_free(tokenizer->added_of);
    core_charge_free(tokenizer->added);
    core_charge_free(tokenizer->early.nodes);
    core_charge_free(tokenizer->late.nodes);
}

/* Returns the index of the token, and its end; TOKEN_NONE: none. */
static uint32_t longest(const struct token_trie *trie, const char *text, size_t bytes, size_t at,
                        size_t *end)
{
    uint32_t best = TOKEN_NONE;
    uint32_t node = trie->root[(unsigned char)text[at]];
    while (node != TOKEN_NONE) {
        if (trie->nodes[node].byte != (unsigned char)text[at]) {
            node = trie->nodes[node].next;
            continue;
        }
        at++;
        if (trie->nodes[node].added != TOKEN_NONE) {
            best = trie->nodes[node].added;
            *end = at;
        }
        if (at == bytes) {
            break;
        }
        node = trie->nodes[node].child;
    }
    return best;
}

static bool beside_word(const struct token_unicode *unicode, const char *text, size_t bytes,
                        size_t begin, size_t end)
{
    unsigned length;
    return (begin > 0 && (token_flags_of(unicode, token_point_before(text, text + begin, &length)) &
                          TOKEN_FLAG_WORD_BESIDE) != 0) ||
           (end < bytes && (token_flags_of(unicode, token_point(text + end, &length)) &
                            TOKEN_FLAG_WORD_BESIDE) != 0);
}

static void strip(const struct token_unicode *unicode, const struct text_added *added,
                  const char *text, size_t bytes, size_t done, size_t bounds[2])
{
    unsigned length;
    bounds[0] = added->lstrip && bounds[0] < done ? done : bounds[0];
    while (added->lstrip && bounds[0] > done &&
           (token_flags_of(unicode, token_point_before(text, text + bounds[0], &length)) &
            TOKEN_FLAG_BLANK) != 0) {
        bounds[0] -= length;
    }
    while (added->rstrip && bounds[1] < bytes &&
           (token_flags_of(unicode, token_point(text + bounds[1], &length)) & TOKEN_FLAG_BLANK) !=
               0) {
        bounds[1] += length;
    }
}

bool token_added_find(const struct text_tokenizer *tokenizer, const struct token_trie *trie,
                      const char *text, size_t bytes, size_t *from, size_t done, size_t bounds[2],
                      uint32_t *added)
{
    if (trie->count == 0) {
        return false;
    }
    for (size_t at = *from; at < bytes; at++) {
        size_t end = at;
        uint32_t index = trie->root[(unsigned char)text[at]] == TOKEN_NONE
                             ? TOKEN_NONE
                             : longest(trie, text, bytes, at, &end);
        if (index == TOKEN_NONE) {
            continue;
        }
        const struct text_added *found = &tokenizer->added[index];
        if (found->single_word && beside_word(tokenizer->unicode, text, bytes, at, end)) {
            at = end - 1;
            continue;
        }
        *from = end;
        *added = index;
        bounds[0] = at;
        bounds[1] = end;
        strip(tokenizer->unicode, found, text, bytes, done, bounds);
        if (bounds[0] < bounds[1]) {
            return true;
        }
        at = end - 1; /* the token before has stripped this white space */
    }
    return false;
}

/* ---- what the files beside tokenizer.json add, as in transformers ---- */

/* Adds a missing token with the next id. */
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

static int append_token(struct text_tokenizer *tokenizer, const struct text_special_token *token,
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

/* `place`: by id, 1 + the index of its added token, or 0. Flags in added_tokens_decoder replace
 * those of tokenizer.json; ids do not. */
static int extend_by(struct text_tokenizer *tokenizer, const struct text_special_token *token,
                     uint32_t *place, const char *folder)
{
    uint32_t id;
    int rc = find_id(&tokenizer->model->vocab, token->content, strlen(token->content), &id);
    if (rc == 0 && place[id] == 0) {
        rc = append_token(tokenizer, token, id);
        place[id] = (uint32_t)tokenizer->added_count;
    } else if (rc == 0 && token->id >= 0) {
        set_flags(&tokenizer->added[place[id] - 1], token);
    }
    if (rc == 0 && token->id >= 0 && token->id != (int64_t)id) {
        core_log(CORE_LOG_WARN,
                 "%s/tokenizer_config.json: added_tokens_decoder gives \"%.60s\" the id %lld; in "
                 "tokenizer.json it has %u, which is used, as in transformers",
                 folder, token->content, (long long)token->id, id);
    }
    return rc;
}

/* Returns whether the post-processor adds only the bos or eos token (`adds`), or nothing. True if
 * the files name no such token. */
static bool post_processor_agrees(const struct text_tokenizer *tokenizer,
                                  const struct text_special *special, bool begins, bool adds)
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

/* Compares with and without "Fast". */
static bool is_class(const struct text_special *special, const char *class)
{
    const size_t bytes = strlen(class);
    const char *its = special->tokenizer_class;
    return its != NULL && strncmp(its, class, bytes) == 0 &&
           (its[bytes] == '\0' || strcmp(its + bytes, "Fast") == 0);
}

/* Warns if add_bos_token or add_eos_token contradicts tokenizer.json, which transformers 5 follows,
 * unlike some classes of transformers 4. */
static void compare_frame(const struct text_tokenizer *tokenizer,
                          const struct text_special *special, const char *folder)
{
    static const char *const classes[] = {"LlamaTokenizer", "GemmaTokenizer", "CohereTokenizer"};
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        if (!is_class(special, classes[i])) {
            continue;
        }
        const bool bos = special->adds_bos != TEXT_SPECIAL_NO; /* defaults of these classes */
        const bool eos = special->adds_eos == TEXT_SPECIAL_YES;
        const bool same_bos = post_processor_agrees(tokenizer, special, true, bos);
        const bool same_eos = post_processor_agrees(tokenizer, special, false, eos);
        if (!same_bos || !same_eos) {
            core_log(CORE_LOG_WARN,
                     "%s/tokenizer_config.json: %s%s%s, but the post_processor of tokenizer.json "
                     "differs; the latter is used, as in transformers 5 (transformers 4's %sFast "
                     "follows the former)",
                     folder,
                     same_bos ? ""
                     : bos    ? "add_bos_token is true"
                              : "add_bos_token is false",
                     same_bos || same_eos ? "" : " and ",
                     same_eos ? ""
                     : eos    ? "add_eos_token is true"
                              : "add_eos_token is false",
                     classes[i]);
        }
    }
}

/* Warns of LlamaTokenizer, which ignores the normalizer of tokenizer.json in transformers 5. */
static void compare_class(const struct text_tokenizer *tokenizer,
                          const struct text_special *special, const char *folder)
{
    if (is_class(special, "LlamaTokenizer") && tokenizer->norms > 0) {
        core_log(CORE_LOG_WARN,
                 "%s/tokenizer_config.json: tokenizer_class: for LlamaTokenizer transformers 5 "
                 "leaves out the normalizer of tokenizer.json, which changes the ids after special "
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
