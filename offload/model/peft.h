/* peft.h: a PEFT folder of LoRA adapters, open for reading: adapter_config.json and the tensors of
 * adapter_model.safetensors, each matched with the tensor of the base model that it adapts or
 * replaces. Immutable once open; any thread. */
#ifndef OFFLOAD_MODEL_PEFT_H
#define OFFLOAD_MODEL_PEFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "offload/model/model.h"
#include "offload/model/safetensors.h"

/* The folder's tensors for one tensor of the base model. */
struct model_peft_entry {
    const char *base;                     /* name of the base model's tensor: "....q_proj.weight" */
    const struct model_tensor *a;         /* [rank][inputs]; NULL if b is */
    const struct model_tensor *b;         /* [outputs][rank] */
    const struct model_tensor *magnitude; /* [outputs]; NULL: no DoRA */
    /* replaces the base's tensor; a, b and magnitude are then NULL */
    const struct model_tensor *whole;
};

struct model_peft {
    int64_t rank;
    double alpha;
    bool rslora;
    bool dora;
    double scale;   /* alpha / rank, or alpha / sqrt(rank) */
    double dropout; /* rate at which inputs were dropped in training */
    uint64_t base;  /* identity of the base (model_sums_identity); 0: unknown */
    char *folder;   /* owned, like all pointers below */
    struct model_safetensors *file;
    struct model_peft_entry *entries; /* sorted by `base` */
    size_t count;
    /* Paths of modules, each owned: first the adapted ones, then those saved whole. */
    const char **modules;
    size_t adapted, saved;
};

/* Returns -ENOENT or -EINVAL if there is no such folder, a file is missing or half written,
 * adapters are of another kind than LoRA on linear layers, or tensors do not fit together. The
 * message names the file and the key or tensor. */
int model_peft_open(const char *folder, struct model_peft **out);
void model_peft_close(struct model_peft *peft); /* Accepts NULL */

/* Sets all options except the seed to those of the folder, which must stay open while the options
 * are used. */
void model_peft_options(const struct model_peft *peft, struct model_lora_options *out);
/* Checks that the folder and a model have adapters and saved modules of the same tensors. Returns
 * -EINVAL with a message that names the first tensor for which only one of the two has an adapter
 * or a saved module. */
int model_peft_check(const struct model_peft *peft, const struct model *model);

/* Returns NULL if the folder has nothing for this tensor of the base model. */
const struct model_peft_entry *model_peft_find(const struct model_peft *peft, const char *base);

#endif
