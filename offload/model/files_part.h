/* files_part.h: between files.c and files_read.c. */
#ifndef OFFLOAD_MODEL_FILES_PART_H
#define OFFLOAD_MODEL_FILES_PART_H

#include "offload/model/files.h"

/* The tensor of a parameter's part: by its name, by the name that files of the bare model give
 * it ("h.0..." for "transformer.h.0..."), or by its other name. NULL where there is none. */
const struct model_tensor *model_files_part(const struct model_files *files,
                                            const struct model_part *part,
                                            const struct model_safetensors **shard);

#endif
