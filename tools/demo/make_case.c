/* make_case.c: writes a Llama with random weights as a Hugging Face folder, and rows of ids;
 * with --chat, also a tokenizer. Used by ./quickstart, tests and measurements. One thread. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/err.h"
#include "core/base/half.h"
#include "core/base/rng.h"
#include "core/json/write.h"
#include "tools/demo/make_tokenizer.h"
#include "tools/tide/cli.h"

enum { PIECE = 1 << 16, GRAMS = 64, GRAM_MAX = 9, STREAM_ROWS = 1 << 20 };

struct shape {
    int64_t hidden, layers, heads, kv_heads, inner, vocab, length, rows, seed;
    bool tied;
};

/* Tensors are in the order of the file. */
struct tensor {
    char name[64];
    int64_t rows, columns; /* columns 0: a vector */
};

struct model {
    const struct shape *shape;
    struct tensor *tensors; /* owned */
    size_t count;
};

static void add(struct model *model, int64_t rows, int64_t columns, const char *name, int64_t layer)
{
    struct tensor *tensor = &model->tensors[model->count++];
    tensor->rows = rows;
    tensor->columns = columns;
    const int bytes = layer < 0 ? snprintf(tensor->name, sizeof tensor->name, "%s.weight", name)
                                : snprintf(tensor->name, sizeof tensor->name,
                                           "model.layers.%" PRId64 ".%s.weight", layer, name);
    assert(bytes > 0 && (size_t)bytes < sizeof tensor->name);
}

static void list_tensors(struct model *model)
{
    const struct shape *s = model->shape;
    const int64_t keys = s->hidden / s->heads * s->kv_heads;
    add(model, s->vocab, s->hidden, "model.embed_tokens", -1);
    for (int64_t i = 0; i < s->layers; i++) {
        add(model, s->hidden, 0, "input_layernorm", i);
        add(model, s->hidden, s->hidden, "self_attn.q_proj", i);
        add(model, keys, s->hidden, "self_attn.k_proj", i);
        add(model, keys, s->hidden, "self_attn.v_proj", i);
        add(model, s->hidden, s->hidden, "self_attn.o_proj", i);
        add(model, s->hidden, 0, "post_attention_layernorm", i);
        add(model, s->inner, s->hidden, "mlp.gate_proj", i);
        add(model, s->inner, s->hidden, "mlp.up_proj", i);
        add(model, s->hidden, s->inner, "mlp.down_proj", i);
    }
    add(model, s->hidden, 0, "model.norm", -1);
    if (!s->tied) {
        add(model, s->vocab, s->hidden, "lm_head", -1);
    }
}

static uint64_t elements_of(const struct tensor *tensor)
{
    return (uint64_t)tensor->rows * (uint64_t)(tensor->columns > 0 ? tensor->columns : 1);
}

static int create_file(const char *folder, const char *name, FILE **out)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    *out = fopen(path, "we");
    return *out != NULL ? 0
                        : core_err_set(-errno, "%s cannot be written: %s", path, strerror(errno));
}

static int close_file(FILE *file, const char *name, int rc)
{
    bool failed = ferror(file) != 0;
    failed = fclose(file) != 0 || failed;
    return rc != 0 || !failed ? rc : core_err_set(-EIO, "%s cannot be written", name);
}

static int write_config(const struct shape *s, const char *folder)
{
    FILE *file = NULL;
    struct core_json_write json;
    int rc = create_file(folder, "config.json", &file);
    if (rc != 0) {
        return rc;
    }
    core_json_write_init_file(&json, file);
    json.indent = 2;
    core_json_write_object_begin(&json, NULL);
    core_json_write_array_begin(&json, "architectures");
    core_json_write_string(&json, NULL, "LlamaForCausalLM");
    core_json_write_array_end(&json);
    core_json_write_string(&json, "model_type", "llama");
    core_json_write_string(&json, "dtype", "bfloat16");
    core_json_write_integer(&json, "hidden_size", s->hidden);
    core_json_write_integer(&json, "intermediate_size", s->inner);
    core_json_write_integer(&json, "num_hidden_layers", s->layers);
    core_json_write_integer(&json, "num_attention_heads", s->heads);
    core_json_write_integer(&json, "num_key_value_heads", s->kv_heads);
    core_json_write_integer(&json, "vocab_size", s->vocab);
    core_json_write_integer(&json, "max_position_embeddings", s->length);
    core_json_write_string(&json, "hidden_act", "silu");
    core_json_write_real(&json, "rms_norm_eps", 1e-6);
    core_json_write_real(&json, "rope_theta", 10000);
    core_json_write_bool(&json, "tie_word_embeddings", s->tied);
    core_json_write_object_end(&json);
    rc = core_json_write_end(&json);
    core_json_write_fini(&json);
    return close_file(file, "config.json", rc);
}

static int write_header(const struct model *model, FILE *file)
{
    struct core_json_write json;
    uint64_t at = 0;
    core_json_write_init_text(&json);
    core_json_write_object_begin(&json, NULL);
    for (size_t i = 0; i < model->count; i++) {
        const struct tensor *tensor = &model->tensors[i];
        core_json_write_object_begin(&json, tensor->name);
        core_json_write_string(&json, "dtype", "BF16");
        core_json_write_array_begin(&json, "shape");
        core_json_write_integer(&json, NULL, tensor->rows);
        if (tensor->columns > 0) {
            core_json_write_integer(&json, NULL, tensor->columns);
        }
        core_json_write_array_end(&json);
        core_json_write_array_begin(&json, "data_offsets");
        core_json_write_unsigned(&json, NULL, at);
        at += 2 * elements_of(tensor);
        core_json_write_unsigned(&json, NULL, at);
        core_json_write_array_end(&json);
        core_json_write_object_end(&json);
    }
    core_json_write_object_end(&json);
    int rc = core_json_write_end(&json);
    const size_t padded = (json.bytes + 7) / 8 * 8;
    uint8_t length[8];
    for (int i = 0; i < 8; i++) {
        length[i] = (uint8_t)((uint64_t)padded >> (8 * i));
    }
    fwrite(length, 1, 8, file);
    if (rc == 0) {
        fprintf(file, "%.*s%*s", (int)json.bytes, json.text, (int)(padded - json.bytes), "");
    }
    core_json_write_fini(&json);
    return rc;
}

/* Returns 1 for norms; else nearly normal with deviation 0.02: a sum of four uniform numbers. */
static uint16_t weight(const struct model *model, size_t tensor, uint64_t at)
{
    if (model->tensors[tensor].columns == 0) {
        return core_f32_to_bf16(1);
    }
    struct core_rng_words w = core_rng_philox((uint64_t)model->shape->seed, tensor, at);
    float sum = core_rng_unit(w.word[0]) + core_rng_unit(w.word[1]) + core_rng_unit(w.word[2]) +
                core_rng_unit(w.word[3]);
    return core_f32_to_bf16((sum - 2) * 0.02f * 1.7320508f);
}

static int write_weights(const struct model *model, const char *folder)
{
    FILE *file = NULL;
    uint16_t *piece = malloc(PIECE * sizeof *piece);
    int rc = piece != NULL ? create_file(folder, "model.safetensors", &file)
                           : core_err_set(-ENOMEM, "no memory for %d weights", PIECE);
    if (rc != 0) {
        free(piece);
        return rc;
    }
    rc = write_header(model, file);
    for (size_t i = 0; i < model->count && rc == 0; i++) {
        const uint64_t count = elements_of(&model->tensors[i]);
        for (uint64_t at = 0; at < count;) {
            size_t some = 0;
            for (; some < PIECE && at < count; some++, at++) {
                piece[some] = weight(model, i, at);
            }
            fwrite(piece, sizeof *piece, some, file);
        }
    }
    free(piece);
    return close_file(file, "model.safetensors", rc);
}

static int64_t draw(const struct shape *s, uint64_t *position, int64_t below)
{
    struct core_rng_words w = core_rng_philox((uint64_t)s->seed, STREAM_ROWS, (*position)++);
    return (int64_t)(((uint64_t)w.word[0] * (uint64_t)below) >> 32);
}

/* Writes rows of recurring words of a few tokens. */
static int write_rows(const struct shape *s, const char *folder)
{
    int64_t grams[GRAMS][GRAM_MAX];
    int64_t lengths[GRAMS];
    uint64_t position = 0;
    FILE *file = NULL;
    int rc = create_file(folder, "rows.jsonl", &file);
    if (rc != 0) {
        return rc;
    }
    for (int i = 0; i < GRAMS; i++) {
        lengths[i] = 3 + draw(s, &position, GRAM_MAX - 2);
        for (int64_t k = 0; k < lengths[i]; k++) {
            grams[i][k] = draw(s, &position, s->vocab);
        }
    }
    for (int64_t row = 0; row < s->rows; row++) {
        fputs("{\"input_ids\": [", file);
        for (int64_t at = 0; at < s->length;) {
            const int64_t gram = draw(s, &position, GRAMS);
            for (int64_t k = 0; k < lengths[gram] && at < s->length; k++, at++) {
                fprintf(file, "%s%" PRId64, at > 0 ? ", " : "", grams[gram][k]);
            }
        }
        fputs("]}\n", file);
    }
    return close_file(file, "rows.jsonl", 0);
}

static int make_folder(const char *path)
{
    return mkdir(path, 0777) == 0 || errno == EEXIST
               ? 0
               : core_err_set(-errno, "%s cannot be created: %s", path, strerror(errno));
}

static int make(const struct shape *shape, const char *chat, const char *out)
{
    char folder[1000];
    struct model model = {.shape = shape};
    if (shape->hidden % shape->heads != 0 || shape->heads % shape->kv_heads != 0) {
        return core_err_set(-EINVAL,
                            "hidden must be a multiple of heads, and heads a multiple of kv-heads");
    }
    if ((size_t)snprintf(folder, sizeof folder, "%s/model", out) >= sizeof folder) {
        return core_err_set(-ENAMETOOLONG, "the folder's name is too long");
    }
    model.tensors = calloc((size_t)(9 * shape->layers + 3), sizeof *model.tensors);
    if (model.tensors == NULL) {
        return core_err_set(-ENOMEM, "no memory for %" PRId64 " layers", shape->layers);
    }
    list_tensors(&model);
    int rc;
    if ((rc = make_folder(out)) != 0 || (rc = make_folder(folder)) != 0 ||
        (rc = write_config(shape, folder)) != 0 || (rc = write_weights(&model, folder)) != 0 ||
        (rc = write_rows(shape, out)) != 0) {
        goto cleanup;
    }
    rc = chat != NULL ? demo_tokenizer_make(folder, chat, shape->vocab) : 0;
cleanup:
    free(model.tensors);
    return rc;
}

static int run(const struct cli_command *command, int argc, char **argv)
{
    struct shape s = {.hidden = 512,
                      .layers = 12,
                      .heads = 8,
                      .kv_heads = 4,
                      .inner = 1408,
                      .vocab = 4096,
                      .length = 128,
                      .rows = 64};
    const double most = 1 << 24;
    const char *chat = NULL;
    const struct cli_option options[] = {
        {"hidden", CLI_INTEGER, &s.hidden, "N", "width", 1, most, NULL, "512"},
        {"layers", CLI_INTEGER, &s.layers, "N", "layers", 1, 1 << 16, NULL, "12"},
        {"heads", CLI_INTEGER, &s.heads, "N", "heads", 1, most, NULL, "8"},
        {"kv-heads", CLI_INTEGER, &s.kv_heads, "N", "heads of keys and values", 1, most, NULL, "4"},
        {"inner", CLI_INTEGER, &s.inner, "N", "width of the MLP", 1, most, NULL, "1408"},
        {"vocab", CLI_INTEGER, &s.vocab, "N", "vocabulary", 1, most, NULL, "4096"},
        {"seq-len", CLI_INTEGER, &s.length, "N", "tokens per row", 1, most, NULL, "128"},
        {"rows", CLI_INTEGER, &s.rows, "N", "rows", 1, 1e12, NULL, "64"},
        {"seed", CLI_INTEGER, &s.seed, "N", "seed of all random numbers", 0, 1e15, NULL, "0"},
        {"chat", CLI_TEXT, &chat, "FILE", "also write a tokenizer of the words of these chats", 0,
         0, NULL, NULL},
        {"tied", CLI_FLAG, &s.tied, NULL, "the head shares the embedding", 0, 0, NULL, NULL},
    };
    struct cli_parsed parsed;
    int code = cli_parse(command, options, sizeof options / sizeof options[0], argc, argv, &parsed);
    if (code >= 0) {
        return code;
    }
    int rc = make(&s, chat, parsed.arguments[0]);
    return rc == 0 ? CLI_DONE : cli_fail(command, rc == -EINVAL ? CLI_WRONG : CLI_FAILED, NULL);
}

static const struct cli_command command = {
    .program = "tide_make_case",
    .summary = "writes OUT/model, a Llama with random weights, and OUT/rows.jsonl",
    .arguments = "OUT",
    .arguments_min = 1,
    .arguments_max = 1,
    .example = "tide_make_case case --layers 4 --rows 200",
    .run = run,
};

static int case_main(int argc, char **argv)
{
    return command.run(&command, argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
    return cli_main(case_main, argc, argv);
}
