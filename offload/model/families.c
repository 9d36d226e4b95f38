/* families.c: the list of families. */
#include <string.h>

#include "offload/model/family.h"

extern const struct model_family model_family_gpt2;
extern const struct model_family model_family_llama;
extern const struct model_family model_family_mistral;
extern const struct model_family model_family_qwen2;
extern const struct model_family model_family_qwen3;

static const struct model_family *const families[] = {
    &model_family_gpt2,  &model_family_llama, &model_family_mistral,
    &model_family_qwen2, &model_family_qwen3,
};

const struct model_family *model_family_at(size_t index)
{
    return index < sizeof families / sizeof families[0] ? families[index] : NULL;
}

const struct model_family *model_family_find(const char *model_type)
{
    for (size_t i = 0; model_family_at(i) != NULL; i++) {
        if (strcmp(families[i]->name, model_type) == 0) {
            return families[i];
        }
    }
    return NULL;
}
