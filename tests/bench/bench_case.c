/* bench_case.c: makes a model and data for measuring whole runs, where nothing can be downloaded:
 *
 *     bench_case SIZE OUT [--rows N] [--length N]
 *
 * SIZE is nano, tiny, 158m, 1b, 4b, 8b or 14b, or the path of a config.json. OUT/model becomes a Hugging Face
 * folder with random weights in bf16, and OUT/data.jsonl gets rows of token ids, in which sequences of
 * tokens repeat, so that there is something to learn. The same arguments make the same files. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/err.h"
#include "core/base/half.h"
#include "core/base/team.h"
#include "offload/model/config_read.h"
#include "offload/model/save.h"

enum { RUNS = 64, RUN_MAX = 9, PIECE = 1 << 22 };

static const struct {
    const char *name;
    const char *config;
} sizes[] = {
    {"nano", "{\"model_type\": \"llama\", \"vocab_size\": 64, \"hidden_size\": 32,"
             " \"intermediate_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 1,"
             " \"num_key_value_heads\": 1, \"max_position_embeddings\": 64,"
             " \"rms_norm_eps\": 1e-5, \"tie_word_embeddings\": false}"},
    {"tiny", "{\"model_type\": \"llama\", \"vocab_size\": 512, \"hidden_size\": 128,"
             " \"intermediate_size\": 320, \"num_hidden_layers\": 3, \"num_attention_heads\": 2,"
             " \"num_key_value_heads\": 1, \"max_position_embeddings\": 512,"
             " \"rms_norm_eps\": 1e-5, \"tie_word_embeddings\": false}"},
    {"158m", "{\"model_type\": \"llama\", \"vocab_size\": 8192, \"hidden_size\": 1024,"
             " \"intermediate_size\": 2816, \"num_hidden_layers\": 12,"
             " \"num_attention_heads\": 16, \"num_key_value_heads\": 8,"
             " \"max_position_embeddings\": 4096, \"rms_norm_eps\": 1e-6,"
             " \"tie_word_embeddings\": false}"},
    {"1b", "{\"model_type\": \"llama\", \"vocab_size\": 32000, \"hidden_size\": 2048,"
           " \"intermediate_size\": 5632, \"num_hidden_layers\": 22,"
           " \"num_attention_heads\": 32, \"num_key_value_heads\": 4,"
           " \"max_position_embeddings\": 4096, \"rms_norm_eps\": 1e-5,"
           " \"tie_word_embeddings\": false}"},
    {"4b", "{\"model_type\": \"qwen3\", \"vocab_size\": 151936, \"hidden_size\": 2560,"
           " \"intermediate_size\": 9728, \"num_hidden_layers\": 36,"
           " \"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"head_dim\": 128,"
           " \"max_position_embeddings\": 32768, \"rms_norm_eps\": 1e-6, \"rope_theta\": 1e6,"
           " \"tie_word_embeddings\": true}"},
    {"8b", "{\"model_type\": \"llama\", \"vocab_size\": 128256, \"hidden_size\": 4096,"
           " \"intermediate_size\": 14336, \"num_hidden_layers\": 32,"
           " \"num_attention_heads\": 32, \"num_key_value_heads\": 8,"
           " \"max_position_embeddings\": 8192, \"rms_norm_eps\": 1e-5, \"rope_theta\": 500000.0,"
           " \"tie_word_embeddings\": false}"},
    {"14b", "{\"model_type\": \"qwen3\", \"vocab_size\": 151936, \"hidden_size\": 5120,"
            " \"intermediate_size\": 17408, \"num_hidden_layers\": 40,"
            " \"num_attention_heads\": 40, \"num_key_value_heads\": 8, \"head_dim\": 128,"
            " \"max_position_embeddings\": 32768, \"rms_norm_eps\": 1e-6, \"rope_theta\": 1e6,"
            " \"tie_word_embeddings\": false}"},
};

static void must(int rc)
{
    if (rc < 0) {
        fprintf(stderr, "bench_case: %s\n", core_err_message());
        exit(1);
    }
}

static FILE *file_open(const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        must(core_err_set(-errno, "%s: %s", path, strerror(errno)));
    }
    return file;
}

static uint64_t mixed(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Elements [begin, begin + count) of a block, to be stored in `block`. */
struct part {
    const struct model_block *block;
    uint64_t number; /* number of the block */
    uint64_t begin, count;
    uint16_t *to;
};

/* Vectors (scales) are one; everything else is about 0.02, in steps of 2^-13, depending only on the
 * element's index. */
static void fill(void *context, unsigned member, unsigned members)
{
    const struct part *part = context;
    const uint64_t first = part->count * member / members;
    const uint64_t last = part->count * (member + 1) / members;
    memset(part->to + first, 0, (last - first) * sizeof *part->to);
    for (unsigned p = 0; p < part->block->param_count; p++) {
        const struct model_param *param = &part->block->params[p];
        const bool scale = param->rows == 1 || param->cols == 1;
        const uint64_t from = part->begin + first;
        const uint64_t end = part->begin + last;
        uint64_t i = param->offset > from ? param->offset : from;
        const uint64_t stop = param->offset + param->elements;
        for (; param->part_count > 0 && i < stop && i < end; i++) {
            const uint64_t bits = mixed(i + (part->number << 52) + ((uint64_t)p << 44) + 1);
            const int sum = (int)(bits & 255) + (int)(bits >> 8 & 255) - 255;
            const float value = scale ? 1.0f : (float)sum * 0x1p-13f;
            part->to[i - part->begin] = core_f32_to_bf16(value);
        }
    }
}

static void write_model(const struct model *model, const char *folder, const char *source)
{
    const struct model_save_options options = {
        .folder = folder, .source = source, .type = MODEL_BF16, .replace = true};
    struct model_save *save = NULL;
    struct core_team *team = NULL;
    uint16_t *piece = malloc(PIECE * sizeof *piece);
    must(piece != NULL ? 0 : core_err_set(-ENOMEM, "no memory for a piece of the weights"));
    must(core_team_create(&(struct core_team_options){.name = "case"}, &team));
    must(model_save_open(model, &options, &save));
    for (unsigned b = 0; b < model->block_count; b++) {
        const struct model_block *block = &model->blocks[b];
        for (uint64_t at = 0; at < block->elements; at += PIECE) {
            const uint64_t left = block->elements - at;
            struct part part = {block, b, at, left < PIECE ? left : PIECE, piece};
            core_team_run(team, fill, &part);
            must(model_save_put(save, b, at, part.count, MODEL_BF16, piece));
        }
    }
    must(model_save_finish(save));
    model_save_close(save);
    core_team_destroy(team);
    free(piece);
}

/* Writes rows that consist of sequences of tokens, each one of RUNS different sequences. */
static void write_rows(FILE *file, int64_t vocab, long rows, long length)
{
    uint64_t state = 1;
    for (long r = 0; r < rows; r++) {
        long written = 0;
        fputs("{\"input_ids\": [", file);
        while (written < length) {
            const uint64_t run = mixed(state++) % RUNS;
            const long tokens = 3 + (long)(mixed(run) % (RUN_MAX - 2));
            for (long i = 0; i < tokens && written < length; i++, written++) {
                const uint64_t id = mixed(run * RUN_MAX + (uint64_t)i + 7) % (uint64_t)vocab;
                fprintf(file, "%s%llu", written > 0 ? ", " : "", (unsigned long long)id);
            }
        }
        fputs("]}\n", file);
    }
}

/* Makes the folder with the config.json of the size. */
static void find_config(const char *size, const char *out, char *folder, size_t bytes)
{
    const char *text = NULL;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        text = strcmp(sizes[i].name, size) == 0 ? sizes[i].config : text;
    }
    const char *slash = strrchr(size, '/');
    if (text == NULL) {
        snprintf(folder, bytes, "%.*s", slash != NULL ? (int)(slash - size) : 1,
                 slash != NULL ? size : ".");
        return;
    }
    snprintf(folder, bytes, "%s/config", out);
    (void)mkdir(folder, 0777);
    FILE *file = file_open(folder, "config.json");
    fputs(text, file);
    fclose(file);
}

int main(int argc, char **argv)
{
    long rows = 64;
    long length = 512;
    char source[4096];
    char folder[4096];
    struct model_config config;
    struct model *model = NULL;
    for (int i = 3; i + 1 < argc; i += 2) {
        rows = strcmp(argv[i], "--rows") == 0 ? strtol(argv[i + 1], NULL, 10) : rows;
        length = strcmp(argv[i], "--length") == 0 ? strtol(argv[i + 1], NULL, 10) : length;
    }
    if (argc < 3 || argc % 2 == 0 || rows < 1 || length < 1) {
        fprintf(stderr, "bench_case tiny|158m|1b|4b|8b|14b|CONFIG OUT [--rows N] [--length N]\n");
        return 2;
    }
    (void)mkdir(argv[2], 0777);
    find_config(argv[1], argv[2], source, sizeof source);
    must(model_config_load(source, &config));
    must(model_create(&config, NULL, &model));
    snprintf(folder, sizeof folder, "%s/model", argv[2]);
    write_model(model, folder, source);
    FILE *file = file_open(argv[2], "data.jsonl");
    write_rows(file, config.vocab, rows, length);
    fclose(file);
    model_destroy(model);
    return 0;
}
