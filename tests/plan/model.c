/* model.c: versions of pieces of buffers. */
#include "tests/plan/model.h"

#include <stdlib.h>
#include <string.h>

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

void model_init(struct model *model)
{
    uint32_t buffers = plan_buffer_count(model->plan);
    model->borders = calloc(buffers, sizeof *model->borders);
    model->versions = calloc(buffers, sizeof *model->versions);
    model->border_counts = calloc(buffers, sizeof *model->border_counts);
    for (uint32_t t = 0; t < model->tape_count; t++) {
        for (uint32_t i = 0; i < model->tapes[t]->count; i++) {
            const struct plan_command *command = &model->tapes[t]->commands[i];
            for (uint32_t o = 0; o < command->operand_count; o++) {
                const struct plan_operand *operand = &command->operands[o];
                uint32_t *count = &model->border_counts[operand->buffer];
                uint64_t **borders = &model->borders[operand->buffer];
                *borders = realloc(*borders, (*count + 2) * sizeof **borders);
                (*borders)[(*count)++] = operand->offset;
                (*borders)[(*count)++] = operand->offset + operand->bytes;
            }
        }
    }
    for (uint32_t b = 0; b < buffers; b++) {
        uint32_t kept = 0;
        if (model->border_counts[b] > 0) {
            qsort(model->borders[b], model->border_counts[b], sizeof(uint64_t), compare_u64);
        }
        for (uint32_t i = 0; i < model->border_counts[b]; i++) {
            if (kept == 0 || model->borders[b][i] != model->borders[b][kept - 1]) {
                model->borders[b][kept++] = model->borders[b][i];
            }
        }
        model->border_counts[b] = kept;
        model->versions[b] = calloc(kept + 1, sizeof(uint32_t));
    }
}

void model_fini(struct model *model)
{
    for (uint32_t b = 0; b < plan_buffer_count(model->plan); b++) {
        free(model->borders[b]);
        free(model->versions[b]);
    }
    free(model->borders);
    free(model->versions);
    free(model->border_counts);
}

uint64_t model_run(struct model *model, const struct plan_command *command, uint32_t number)
{
    uint64_t digest = 14695981039346656037u;
    for (int writes = 0; writes < 2; writes++) {
        for (uint32_t o = 0; o < command->operand_count; o++) {
            const struct plan_operand *operand = &command->operands[o];
            const uint64_t *borders = model->borders[operand->buffer];
            if ((operand->access & (writes ? PLAN_WRITES : PLAN_READS)) == 0) {
                continue;
            }
            for (uint32_t s = 0; s < model->border_counts[operand->buffer]; s++) {
                if (borders[s] < operand->offset ||
                    borders[s] >= operand->offset + operand->bytes) {
                    continue;
                }
                uint32_t *version = &model->versions[operand->buffer][s];
                if (writes) {
                    *version = number;
                } else {
                    digest = (digest ^ *version) * 1099511628211u;
                }
            }
        }
    }
    return digest;
}

uint32_t model_first_number(const struct model *model, uint32_t tape)
{
    uint32_t number = 1;
    for (uint32_t t = 0; t < tape; t++) {
        number += model->tapes[t]->count;
    }
    return number;
}
