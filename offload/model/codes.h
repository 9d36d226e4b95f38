/* codes.h: linear layers that a model's folder stores in fewer bits, as bitsandbytes writes them.
 * Finds these layers, checks their tensors, and reads their codes and scales in the layout of
 * kernels/quant.h. Any thread. */
#ifndef OFFLOAD_MODEL_CODES_H
#define OFFLOAD_MODEL_CODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "offload/model/files.h"

/* Finds which linear layers of a folder have codes and how their scales are stored, which
 * config.json does not fully describe; updates config->whole and config->quant. If the nf4 scales
 * of a layer do not have the form of KERN_QUANT_NF4, config->quant becomes KERN_QUANT_NF4_F32 and a
 * log line says so. Changes nothing if config->quant is KERN_QUANT_NONE or the weights cannot be
 * opened. */
void model_codes_find(const char *folder, struct model_config *config);

/* A linear layer's weights. */
struct model_codes {
    const struct model_files *files;
    const char *name; /* name of the tensor: "....weight"; borrowed */
    enum kern_quant quant;
    int64_t rows, cols;
};

/* Checks types and shapes of the layer's tensors. Returns -EINVAL with a message that names file
 * and tensor. */
int model_codes_check(const struct model_codes *codes);
/* Reads `bytes` bytes of the codes from byte `begin` on. */
int model_codes_read(const struct model_codes *codes, uint64_t begin, uint64_t bytes, uint8_t *to);
/* Writes the scales in the form in which they follow the codes of a stored tensor. Returns -EINVAL
 * if a scale is not finite. */
int model_codes_read_scales(const struct model_codes *codes, uint8_t *to);

/* Returns whether a tensor belongs to the codes of another one, such as its scales; if so, writes
 * the name of the weights to `out`. */
bool model_codes_weights_name(const char *name, char *out, size_t bytes);

#endif
