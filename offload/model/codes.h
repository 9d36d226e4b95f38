/* codes.h: linear layers in fewer bits, as bitsandbytes writes them: finds, checks and reads their
 * tensors, in the layout of kernels/quant.h. Any thread. */
#ifndef OFFLOAD_MODEL_CODES_H
#define OFFLOAD_MODEL_CODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "offload/model/files.h"

/* Finds which linear layers have codes, and how their scales are stored; updates config->whole and
 * config->quant. If nf4 scales do not have the form of KERN_QUANT_NF4, config->quant becomes
 * KERN_QUANT_NF4_F32, with a log line. Does nothing for KERN_QUANT_NONE, or if the weights cannot
 * be opened. */
void model_codes_find(const char *folder, struct model_config *config);

struct model_codes {
    const struct model_files *files;
    const char *name; /* "....weight"; borrowed */
    enum kern_quant quant;
    int64_t rows, cols;
};

/* Checks that the tensors exist, with the expected types and sizes, in a supported form. */
int model_codes_check(const struct model_codes *codes);
/* Reads codes from byte `begin` on. */
int model_codes_read(const struct model_codes *codes, uint64_t begin, uint64_t bytes, uint8_t *to);
/* Writes the scales in the form of kernels/quant.h. Refuses scales that are not finite. */
int model_codes_read_scales(const struct model_codes *codes, uint8_t *to);

/* Returns whether a tensor belongs to another tensor's codes, as scales do; if so, writes the name
 * of the weights to `out`. */
bool model_codes_weights_name(const char *name, char *out, size_t bytes);

#endif
