/* peft.h: a PEFT folder of LoRA adapters, whose tensors are matched with those of the base that
 * they adapt or replace. Immutable once open; any thread. */
#ifndef OFFLOAD_MODEL_PEFT_H
#define OFFLOAD_MODEL_PEFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "offload/model/model.h"
#include "offload/model/safetensors.h"

/* The tensors for one tensor of the base. */
struct model_peft_entry {
    const char *base;                     /* the base's tensor: "....q_proj.weight" */
    const struct model_tensor *a;         /* [rank][inputs]; NULL if b is */
    const struct model_tensor *b;         /* [outputs][rank] */
    const struct model_tensor *magnitude; /* [outputs]; NULL: no DoRA */
    /* replaces the base's tensor; the others are then NULL */
    const struct model_tensor *whole;
};

struct model_peft {
    int64_t rank;
    double alpha;
    bool rslora;
    bool dora;
    double scale;   /* alpha / rank, or alpha / sqrt(rank) */
    double dropout; /* rate of dropped inputs in training */
    uint64_t base;  /* the base's identity (model_sums_identity); 0: unknown */
    char *folder;   /* owned, like all pointers below */
    struct model_safetensors *file;
    struct model_peft_entry *entries; /* sorted by `base` */
    size_t count;
    /* Paths of modules, each owned: adapted ones, then those saved whole. */
    const char **modules;
    size_t adapted, saved;
};

/* Refuses adapters that are not LoRA on linear layers, and tensors that do not fit together. */
int model_peft_open(const char *folder, struct model_peft **out);
void model_peft_close(struct model_peft *peft); /* Accepts NULL */

/* Sets the options, except the seed, to those of `peft`, which must outlive them. */
void model_peft_options(const struct model_peft *peft, struct model_lora_options *out);
/* Checks that folder and model have adapters and saved modules of the same tensors. The message
 * names the first difference. */
int model_peft_check(const struct model_peft *peft, const struct model *model);

/* Returns NULL if the folder has nothing for this tensor. */
const struct model_peft_entry *model_peft_find(const struct model_peft *peft, const char *base);

#endif
