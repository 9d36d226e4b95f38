/* bench_case.c: makes a model and data for measuring whole runs without downloads:
 *
 *     bench_case SIZE OUT [--rows N] [--length N] [--nf4 1]
 *
 * SIZE is nano, tiny, 158m, 1b, 4b, 8b, 14b or 32b, or the path of a config.json. OUT/model becomes
 * a Hugging Face folder with random bf16 weights. OUT/data.jsonl gets rows of token ids with
 * repeated sequences, so that there is something to learn. With --nf4 1 the linear weights of
 * layers are random codes in the files of bitsandbytes (double quantisation). The same arguments
 * make the same files. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/half.h"
#include "core/base/team.h"
#include "kernels/quant_values.h"
#include "offload/model/config_read.h"
#include "offload/model/save.h"

enum { RUNS = 64, RUN_MAX = 9, PIECE = 1 << 22 };
enum { BLOCK = 64, NESTED = 256, ENTRIES_MAX = 128 };

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
    {"32b", "{\"model_type\": \"qwen3\", \"vocab_size\": 151936, \"hidden_size\": 5120,"
            " \"intermediate_size\": 25600, \"num_hidden_layers\": 64,"
            " \"num_attention_heads\": 64, \"num_key_value_heads\": 8, \"head_dim\": 128,"
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

/* Elements [begin, begin + count) of a block. */
struct part {
    const struct model_block *block;
    uint64_t number; /* of the block */
    uint64_t begin, count;
    uint16_t *to;
};

/* Vectors are one. Other elements are in [-0.032, 0.032] and depend on their index. */
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

/* ---- codes ---- */

static const float nf4_values[16] = {KERN_NF4_VALUES};
static const float map_values[256] = {KERN_DYNAMIC_VALUES};

/* A tensor of a file, with random bytes unless values or a repeated number are given. */
struct entry {
    char name[256];
    const char *type;
    char shape[48];
    uint64_t bytes;
    const void *values; /* NULL: none */
    float repeated;     /* 0: none; F32 or BF16 */
    char state[256];
};

struct shard {
    struct entry entries[ENTRIES_MAX];
    size_t count;
};

static struct entry *add_entry(struct shard *shard, const char *type, uint64_t bytes,
                               const struct model_part *part, const char *end)
{
    if (shard->count == ENTRIES_MAX) {
        must(core_err_set(-E2BIG, "%s: a block has more than %d tensors", part->name, ENTRIES_MAX));
    }
    struct entry *entry = &shard->entries[shard->count++];
    *entry = (struct entry){.type = type, .bytes = bytes};
    snprintf(entry->name, sizeof entry->name, "%s%s", part->name, end);
    return entry;
}

static void add_flat(struct shard *shard, const char *type, uint64_t count,
                     const struct model_part *part, const char *end)
{
    const uint64_t width = strcmp(type, "F32") == 0 ? 4 : 1;
    struct entry *entry = add_entry(shard, type, count * width, part, end);
    snprintf(entry->shape, sizeof entry->shape, "%llu", (unsigned long long)count);
}

/* Makes codes with scales of 0.04 to 0.06. */
static void add_codes(struct shard *shard, const struct model_param *param,
                      const struct model_part *part)
{
    const uint64_t elements = (uint64_t)(part->rows * param->cols);
    const uint64_t scales = (elements + BLOCK - 1) / BLOCK;
    struct entry *entry = add_entry(shard, "U8", (elements + 1) / 2, part, "");
    snprintf(entry->shape, sizeof entry->shape, "%llu, 1", (unsigned long long)entry->bytes);
    add_flat(shard, "U8", scales, part, ".absmax");
    add_flat(shard, "F32", (scales + NESTED - 1) / NESTED, part, ".nested_absmax");
    shard->entries[shard->count - 1].repeated = 0.01f;
    add_flat(shard, "F32", 256, part, ".nested_quant_map");
    shard->entries[shard->count - 1].values = map_values;
    add_flat(shard, "F32", 16, part, ".quant_map");
    shard->entries[shard->count - 1].values = nf4_values;
    char state[256];
    const int length = snprintf(state, sizeof state,
                                "{\"quant_type\": \"nf4\", \"blocksize\": %d, \"dtype\": "
                                "\"bfloat16\", \"shape\": [%lld, %lld], \"nested_blocksize\": %d, "
                                "\"nested_dtype\": \"float32\", \"nested_offset\": 0.05}",
                                BLOCK, (long long)part->rows, (long long)param->cols, NESTED);
    add_flat(shard, "U8", (uint64_t)length, part, ".quant_state.bitsandbytes__nf4");
    memcpy(shard->entries[shard->count - 1].state, state, sizeof state);
}

static void add_plain(struct shard *shard, const struct model_param *param,
                      const struct model_part *part)
{
    const bool vector = param->rows == 1 || param->cols == 1;
    const uint64_t elements = (uint64_t)(part->rows * param->cols);
    struct entry *entry = add_entry(shard, "BF16", elements * 2, part, "");
    if (vector) {
        entry->repeated = 1.0f;
        snprintf(entry->shape, sizeof entry->shape, "%llu", (unsigned long long)elements);
    } else {
        snprintf(entry->shape, sizeof entry->shape, "%lld, %lld", (long long)part->rows,
                 (long long)param->cols);
    }
}

static void list_block(const struct model_block *block, struct shard *shard)
{
    shard->count = 0;
    for (unsigned p = 0; p < block->param_count; p++) {
        const struct model_param *param = &block->params[p];
        const bool matrix = param->rows > 1 && param->cols > 1;
        for (unsigned k = 0; k < param->part_count; k++) {
            if (matrix && block->kind == MODEL_BLOCK_LAYER) {
                add_codes(shard, param, &param->parts[k]);
            } else {
                add_plain(shard, param, &param->parts[k]);
            }
        }
    }
}

/* Writes words [at, at + count) of a random tensor: any bytes, or bf16 numbers between -0.032 and
 * 0.032. */
static void fill_random(const struct entry *entry, uint64_t seed, uint64_t at, size_t count,
                        uint64_t *to)
{
    const bool numbers = strcmp(entry->type, "BF16") == 0;
    for (size_t i = 0; i < count; i++) {
        const uint64_t bits = mixed(seed + at + i);
        to[i] = bits;
        for (unsigned lane = 0; numbers && lane < 64; lane += 16) {
            const float value = (float)((int)(bits >> lane & 0xff) - 127) * 0x1p-12f;
            to[i] &= ~(UINT64_C(0xffff) << lane);
            to[i] |= (uint64_t)core_f32_to_bf16(value) << lane;
        }
    }
}

static void write_entry(FILE *file, const struct entry *entry, uint64_t seed, uint64_t *piece)
{
    const void *values = entry->state[0] != '\0' ? entry->state : entry->values;
    for (uint64_t at = 0; at < entry->bytes; at += PIECE) {
        const uint64_t left = entry->bytes - at;
        const size_t bytes = left < PIECE ? left : PIECE;
        const float number = entry->repeated;
        const bool halves = strcmp(entry->type, "BF16") == 0;
        const uint16_t half = core_f32_to_bf16(number);
        if (values == NULL && !(number > 0)) {
            fill_random(entry, seed, at / 8, (bytes + 7) / 8, piece);
        }
        for (size_t i = 0; number > 0 && i < bytes; i += halves ? 2 : 4) {
            memcpy((char *)piece + i, halves ? (const void *)&half : &number, halves ? 2 : 4);
        }
        const size_t wrote = fwrite(values != NULL ? values : piece, 1, bytes, file);
        must(wrote == bytes ? 0 : core_err_set(-EIO, "%s: %s", entry->name, strerror(errno)));
    }
}

/* Writes a file and its part of the index. */
static void write_shard(const struct shard *shard, const char *folder, unsigned number, FILE *index,
                        uint64_t *piece)
{
    char name[64];
    char *header = NULL;
    size_t bytes = 0;
    uint64_t at = 0;
    snprintf(name, sizeof name, "model-%05u.safetensors", number);
    FILE *file = file_open(folder, name);
    FILE *text = open_memstream(&header, &bytes);
    must(text != NULL ? 0 : core_err_set(-ENOMEM, "no memory for the header of %s", name));
    fputs("{\"__metadata__\": {\"format\": \"pt\"}", text);
    for (size_t i = 0; i < shard->count; i++) {
        const struct entry *entry = &shard->entries[i];
        fprintf(text,
                ", \"%s\": {\"dtype\": \"%s\", \"shape\": [%s], \"data_offsets\": [%llu, %llu]}",
                entry->name, entry->type, entry->shape, (unsigned long long)at,
                (unsigned long long)(at + entry->bytes));
        fprintf(index, "%s\"%s\": \"%s\"", number + i > 0 ? ",\n" : "", entry->name, name);
        at += entry->bytes;
    }
    fputs("}", text);
    must(fclose(text) == 0 ? 0 : core_err_set(-ENOMEM, "no memory for the header of %s", name));
    const uint64_t length = (bytes + 7) / 8 * 8;
    fwrite(&length, sizeof length, 1, file);
    fprintf(file, "%-*s", (int)length, header);
    free(header);
    for (size_t i = 0; i < shard->count; i++) {
        const uint64_t seed = ((uint64_t)number << 48) + ((uint64_t)i << 36) + 1;
        write_entry(file, &shard->entries[i], seed, piece);
    }
    must(fclose(file) == 0 ? 0 : core_err_set(-EIO, "%s: %s", name, strerror(errno)));
}

static void write_config(const char *folder, const char *source)
{
    char path[4096 + 16];
    char *text = NULL;
    size_t bytes = 0;
    snprintf(path, sizeof path, "%s/config.json", source);
    must(core_file_read(path, 1 << 20, &text, &bytes));
    FILE *file = file_open(folder, "config.json");
    const char *end = strrchr(text, '}');
    must(end != NULL ? 0 : core_err_set(-EINVAL, "%s is not an object", path));
    fprintf(file,
            "%.*s, \"quantization_config\": {\"quant_method\": \"bitsandbytes\", \"load_in_4bit\": "
            "true, \"bnb_4bit_quant_type\": \"nf4\", \"bnb_4bit_use_double_quant\": true, "
            "\"llm_int8_skip_modules\": [\"lm_head\"]}}",
            (int)(end - text), text);
    fclose(file);
    free(text);
}

/* Writes a file for each block; memory holds a piece of a block. */
static void write_codes(const struct model *model, const char *folder, const char *source)
{
    struct shard *shard = malloc(sizeof *shard);
    uint64_t *piece = malloc(PIECE);
    must(shard != NULL && piece != NULL
             ? 0
             : core_err_set(-ENOMEM, "no memory for a piece of the codes"));
    (void)mkdir(folder, 0777);
    write_config(folder, source);
    FILE *index = file_open(folder, "model.safetensors.index.json");
    fputs("{\"metadata\": {}, \"weight_map\": {", index);
    for (unsigned b = 0; b < model->block_count; b++) {
        list_block(&model->blocks[b], shard);
        if (shard->count > 0) {
            write_shard(shard, folder, b, index, piece);
        }
    }
    fputs("}}", index);
    must(fclose(index) == 0 ? 0 : core_err_set(-EIO, "%s: %s", folder, strerror(errno)));
    free(piece);
    free(shard);
}

/* ---- rows ---- */

/* Writes rows of token sequences, of which there are RUNS different ones. */
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

static const char *text_of(const char *size)
{
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (strcmp(sizes[i].name, size) == 0) {
            return sizes[i].config;
        }
    }
    return NULL;
}

/* Finds or makes the folder with the config.json. */
static void find_config(const char *size, const char *out, char *folder, size_t bytes)
{
    const char *text = text_of(size);
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
    bool codes = false;
    char source[4096];
    char folder[4096];
    struct model_config config;
    struct model *model = NULL;
    for (int i = 3; i + 1 < argc; i += 2) {
        rows = strcmp(argv[i], "--rows") == 0 ? strtol(argv[i + 1], NULL, 10) : rows;
        length = strcmp(argv[i], "--length") == 0 ? strtol(argv[i + 1], NULL, 10) : length;
        codes = strcmp(argv[i], "--nf4") == 0 ? argv[i + 1][0] == '1' : codes;
    }
    if (argc < 3 || argc % 2 == 0 || rows < 1 || length < 1) {
        fprintf(stderr, "bench_case tiny|158m|1b|4b|8b|14b|32b|CONFIG OUT [--rows N] [--length N] "
                        "[--nf4 1]\n");
        return 2;
    }
    if (text_of(argv[1]) == NULL && access(argv[1], R_OK) != 0) {
        fprintf(
            stderr,
            "bench_case: \"%s\" is neither a size (nano, tiny, 158m, 1b, 4b, 8b, 14b, 32b) nor a "
            "config.json that can be read\n",
            argv[1]);
        return 2;
    }
    (void)mkdir(argv[2], 0777);
    find_config(argv[1], argv[2], source, sizeof source);
    must(model_config_load(source, &config));
    must(model_create(&config, NULL, &model));
    snprintf(folder, sizeof folder, "%s/model", argv[2]);
    if (codes) {
        write_codes(model, folder, source);
    } else {
        write_model(model, folder, source);
    }
    FILE *file = file_open(argv[2], "data.jsonl");
    write_rows(file, config.vocab, rows, length);
    fclose(file);
    model_destroy(model);
    return 0;
}
