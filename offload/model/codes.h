/* codes.h: linear layers that a model's folder has in fewer bits, as bitsandbytes writes them: which ones, whether the
 * tensors of each fit together, and their codes and scales in the layout of kernels/quant.h.
 * Any thread. */
#ifndef OFFLOAD_MODEL_CODES_H
#define OFFLOAD_MODEL_CODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "offload/model/files.h"

/* Finds in a folder's files which linear layers have codes, and how their scales are stored, of which config.json alone
 * says less. Scales of nf4 that are not stored as KERN_QUANT_NF4 has them become fp32; a line of the log says so.
 * Changes nothing if the folder has no weights. */
void model_codes_find(const char *folder, struct model_config *config);

/* A linear layer's weights. */
struct model_codes {
    const struct model_files *files;
    const char *name; /* of the tensor: "....weight"; borrowed */
    enum kern_quant quant;
    int64_t rows, cols;
};

/* Checks the tensors' types and shapes against each other and what they must be. -EINVAL names file and tensor. */
int model_codes_check(const struct model_codes *codes);
/* Reads bytes of the codes. */
int model_codes_read(const struct model_codes *codes, uint64_t begin, uint64_t bytes, uint8_t *to);
/* Writes the bytes of a stored tensor from its scales on. -EINVAL: one is not finite. */
int model_codes_read_scales(const struct model_codes *codes, uint8_t *to);

/* Whether a tensor's name is that of scales or the like; then `out` is the name of the weights. */
bool model_codes_weights_name(const char *name, char *out, size_t bytes);

#endif
