/* adapter.c: names, scale and initial values of low-rank adapters. */
#include "offload/model/adapter.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/hash.h"
#include "core/base/rng.h"

double model_lora_scale(double alpha, int64_t rank, bool rslora)
{
    return alpha / (rslora ? sqrt((double)rank) : (double)rank);
}

struct model_lora model_lora_of(const struct model_lora_options *options)
{
    return (struct model_lora){
        .rank = options->rank,
        .alpha = options->alpha,
        .rslora = options->rslora,
        .dora = options->dora,
        .scale = (float)model_lora_scale(options->alpha, options->rank, options->rslora),
        .dropout = options->dropout,
        .seed = options->seed,
    };
}

uint64_t model_lora_step_seed(const struct model_lora *lora, uint64_t step)
{
    static const char use[] = "dropout of adapters";
    const struct core_rng_words words = core_rng_philox(lora->seed, core_hash(use, sizeof use, 0),
                                                        step);
    return ((uint64_t)words.word[1] << 32 | words.word[0]) | 1;
}

size_t model_module_length(const char *tensor)
{
    const char *dot = strrchr(tensor, '.');
    return dot != NULL ? (size_t)(dot - tensor) : strlen(tensor);
}

bool model_module_matches(const char *tensor, const char *name)
{
    const size_t module = model_module_length(tensor);
    const size_t length = strlen(name);
    return length > 0 && length <= module && strncmp(tensor + module - length, name, length) == 0 &&
           (length == module || tensor[module - length - 1] == '.');
}

void model_adapter_name(const char *tensor, enum model_adapter adapter, char *out, size_t bytes)
{
    static const char *const ends[] = {[MODEL_ADAPTER_NONE] = "",
                                       [MODEL_ADAPTER_A] = "lora_A.weight",
                                       [MODEL_ADAPTER_B] = "lora_B.weight",
                                       [MODEL_ADAPTER_MAGNITUDE] = "lora_magnitude_vector"};
    snprintf(out, bytes, MODEL_ADAPTER_PREFIX "%.*s.%s", (int)model_module_length(tensor), tensor,
             ends[adapter]);
}

void model_adapter_base_name(const char *name, char *out, size_t bytes)
{
    static const char mark[] = ".lora_";
    const char *from = name + strlen(MODEL_ADAPTER_PREFIX);
    const char *end = strstr(from, mark);
    for (const char *next = end; next != NULL; next = strstr(next + 1, mark)) {
        end = next;
    }
    snprintf(out, bytes, "%.*s.weight", (int)(end != NULL ? (size_t)(end - from) : strlen(from)),
             from);
}

void model_adapter_fill(enum model_adapter adapter, const char *name, int64_t cols, uint64_t seed,
                        uint64_t begin, uint64_t count, float *out)
{
    const uint64_t stream = core_hash(name, strlen(name), 0);
    const float bound = (float)(1.0 / sqrt((double)cols));
    struct core_rng_words words = {{0}};
    if (adapter != MODEL_ADAPTER_A) {
        memset(out, 0, count * sizeof *out);
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t at = begin + i;
        if (i == 0 || at % 4 == 0) {
            words = core_rng_philox(seed, stream, at / 4);
        }
        out[i] = bound * (2.0f * core_rng_unit(words.word[at % 4]) - 1.0f);
    }
}
