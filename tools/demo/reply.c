/* reply.c: prints the greedy reply of a small model, for ./quickstart: a forward pass of the
 * training engine on the CPU for each token. One thread. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <tide/engine.h>

#include "core/base/err.h"
#include "core/json/write.h"
#include "tools/text/data/chat.h"
#include "tools/text/data/feed.h"
#include "tools/text/data/row.h"
#include "tools/text/tokenizer/tokenizer.h"
#include "tools/tide/cli.h"

enum { LENGTH = 64 };

struct speaker {
    struct text_tokenizer *tokenizer; /* owned */
    struct text_scratch *scratch;     /* owned */
    struct text_chat *chat;           /* owned */
    struct jinja_run *run;            /* owned */
    struct tide_context *context;     /* owned */
    struct tide_engine *engine;       /* owned */
    int64_t end;                      /* id that ends a turn; -1: none */
    uint32_t most;
};

static int adopt(int rc)
{
    return rc == 0 ? 0 : core_err_adopt(rc, tide_last_error());
}

/* Freezes all but the head, because states would waste memory. */
static int create_engine(struct speaker *speaker, const char *model)
{
    static const char *const frozen[] = {"model.*"};
    struct tide_engine_options options;
    const struct tide_context_options context = {.struct_bytes = sizeof context,
                                                 .log_level = TIDE_LOG_ERROR};
    tide_engine_options_init(&options, sizeof options);
    options.model = model;
    options.batch = 1;
    options.length = LENGTH;
    options.optimizer = TIDE_SGD;
    options.beta1 = 0;
    options.frozen = frozen;
    options.frozen_count = 1;
    options.weights = options.states = TIDE_DEVICE;
    int rc = tide_context_create(&context, &speaker->context);
    return adopt(rc != 0 ? rc : tide_engine_create(speaker->context, &options, &speaker->engine));
}

static int open_speaker(struct speaker *speaker, const char *model)
{
    int64_t now = 0;
    int rc = text_tokenizer_load(model, &speaker->tokenizer);
    if (rc != 0 || (rc = text_scratch_create(speaker->tokenizer, &speaker->scratch)) != 0 ||
        (rc = text_feed_now(&now)) != 0 ||
        (rc = text_chat_load(model, NULL, now, &speaker->chat)) != 0 ||
        (rc = jinja_run_create(NULL, &speaker->run)) != 0) {
        return rc;
    }
    speaker->end = text_chat_end(speaker->chat);
    return create_engine(speaker, model);
}

static void close_speaker(struct speaker *speaker)
{
    tide_engine_destroy(speaker->engine);
    tide_context_destroy(speaker->context);
    jinja_run_destroy(speaker->run);
    text_chat_destroy(speaker->chat);
    text_scratch_destroy(speaker->scratch);
    text_tokenizer_destroy(speaker->tokenizer);
}

/* Encodes the question up to the beginning of the reply. */
static int encode(struct speaker *speaker, const char *question, struct text_encoding *out)
{
    struct text_row row;
    struct core_json_write json;
    struct jinja_rendering rendering;
    core_json_write_init_text(&json);
    core_json_write_object_begin(&json, NULL);
    core_json_write_array_begin(&json, "messages");
    core_json_write_object_begin(&json, NULL);
    core_json_write_string(&json, "role", "user");
    core_json_write_string(&json, "content", question);
    core_json_write_object_end(&json);
    core_json_write_array_end(&json);
    core_json_write_object_end(&json);
    int rc = core_json_write_end(&json);
    if (rc == 0) {
        rc = text_row_parse(json.text, json.bytes, &row);
    }
    core_json_write_fini(&json);
    if (rc != 0) {
        return rc;
    }
    rc = text_chat_render(speaker->chat, speaker->run, &row, 0, true, &rendering);
    if (rc == 0) {
        rc = text_tokenizer_encode(speaker->scratch, rendering.text, rendering.bytes, 0, out);
    }
    text_row_fini(&row);
    return rc;
}

/* An untrained model also predicts ids without text; they are counted, not printed. */
static int print_tokens(struct speaker *speaker, const int32_t *ids, uint32_t count)
{
    const uint32_t known = (uint32_t)text_tokenizer_size(speaker->tokenizer);
    uint32_t words[LENGTH];
    uint32_t some = 0;
    for (uint32_t at = 0; at < count; at++) {
        if ((uint32_t)ids[at] < known) {
            words[some++] = (uint32_t)ids[at];
        }
    }
    const char *text = "";
    size_t bytes = 0;
    int rc = some == 0 ? 0
                       : text_tokenizer_decode(speaker->scratch, words, some, false, &text, &bytes);
    if (rc == 0) {
        printf("%.*s", (int)bytes, text);
        if (some < count) {
            printf(" (and %" PRIu32 " tokens without text: the weights are still random)",
                   count - some);
        }
        printf("\n");
    }
    return rc;
}

static int reply(struct speaker *speaker, const char *question)
{
    int32_t ids[LENGTH];
    struct text_encoding encoding;
    int rc = encode(speaker, question, &encoding);
    if (rc != 0) {
        return rc;
    }
    if (encoding.count >= LENGTH) {
        return core_err_set(-E2BIG, "the question has more than %d tokens", LENGTH - 1);
    }
    uint32_t count = (uint32_t)encoding.count;
    const uint32_t first = count;
    memcpy(ids, encoding.ids, count * sizeof *ids);
    printf("> %s\n", question);
    while (count < LENGTH && count < first + speaker->most) {
        int32_t next = 0;
        rc = adopt(tide_engine_predict(speaker->engine, ids, count, &next));
        if (rc != 0) {
            return rc;
        }
        if (next == speaker->end) {
            break;
        }
        ids[count++] = next;
    }
    return print_tokens(speaker, ids + first, count - first);
}

static int run(const struct cli_command *command, int argc, char **argv)
{
    struct speaker speaker = {0};
    int64_t most = 24;
    const struct cli_option options[] = {
        {"tokens", CLI_INTEGER, &most, "N", "maximum length of a reply", 1, LENGTH, NULL, "24"},
    };
    struct cli_parsed parsed;
    int code = cli_parse(command, options, sizeof options / sizeof options[0], argc, argv, &parsed);
    if (code >= 0) {
        return code;
    }
    speaker.most = (uint32_t)most;
    int rc = open_speaker(&speaker, parsed.arguments[0]);
    for (size_t i = 1; i < parsed.count && rc == 0; i++) {
        rc = reply(&speaker, parsed.arguments[i]);
    }
    close_speaker(&speaker);
    return rc == 0
               ? CLI_DONE
               : cli_fail(command, rc == -EINVAL || rc == -ENOENT ? CLI_WRONG : CLI_FAILED, NULL);
}

static const struct cli_command command = {
    .program = "tide_demo_reply",
    .summary = "print the greedy reply of a small model to each QUESTION",
    .arguments = "MODEL QUESTION...",
    .arguments_min = 2,
    .arguments_max = 64,
    .example = "tide_demo_reply tuned 'What is a tier?'",
    .run = run,
};

static int reply_main(int argc, char **argv)
{
    return command.run(&command, argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
    return cli_main(reply_main, argc, argv);
}
