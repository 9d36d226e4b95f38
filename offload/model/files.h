/* files.h: the tensors of a model folder: one model.safetensors, or shards named by
 * model.safetensors.index.json, matched by name with a model's parameters. Reads go straight to the
 * destination if type and order of the elements agree, and through a small buffer otherwise.
 * Reading is thread-safe, but not during the calls that add or set something. */
#ifndef OFFLOAD_MODEL_FILES_H
#define OFFLOAD_MODEL_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kern.h"
#include "offload/model/dtype.h"
#include "offload/model/model.h"
#include "offload/model/safetensors.h"

struct core_team;
struct model_files;
struct model_kept;
struct model_peft;

/* Opens all tensors of the folder. Returns -ENOENT or -EINVAL with a message that names file, key
 * and tensor, for example if a shard is missing, or if a tensor is in two shards or not in the one
 * that the index names. */
int model_files_open(const char *folder, struct model_files **out);
void model_files_close(struct model_files *files);

const char *model_files_folder(const struct model_files *files);
size_t model_files_shard_count(const struct model_files *files);
const struct model_safetensors *model_files_shard(const struct model_files *files, size_t index);
/* Returns NULL if no shard has the tensor; else *shard is the shard that has it. */
const struct model_tensor *model_files_find(const struct model_files *files, const char *name,
                                            const struct model_safetensors **shard);

/* Finds the tensor of a parameter's part: by its name, by the name that files of the bare model use
 * ("h.0..." for "transformer.h.0..."), or by its other name. Returns NULL if there is none. */
const struct model_tensor *model_files_part(const struct model_files *files,
                                            const struct model_part *part,
                                            const struct model_safetensors **shard);

/* Adds the tensors of a PEFT folder, which then come before those of the model's folder. `peft` is
 * borrowed; model_peft_check must have accepted it. */
void model_files_add_adapter(struct model_files *files, const struct model_peft *peft);

/* How the run keeps linear weights of frozen layers: rounded to `type` and stored as `quant`. The
 * initial magnitudes of adapters are the norms of these weights' rows. If model_files_set_base is
 * not called, the run keeps weights as in the files. */
struct model_files_base {
    enum kern_quant quant;
    enum kern_type type;
    /* the files themselves are quantised; the run does not quantise their other weights */
    bool given;
};

void model_files_set_base(struct model_files *files, const struct model_files_base *base);
struct model_files_base model_files_base_of(const struct model_files *files);

/* Sets the file in which an earlier run kept the base (kept.h), or NULL; borrowed. */
void model_files_set_kept(struct model_files *files, struct model_kept *kept);
struct model_kept *model_files_kept(const struct model_files *files);

/* Checks that the folder has every parameter of the model, in its shape and a readable type.
 * Returns -EINVAL with a message that names the first parameter that is missing or different. One
 * log line names the tensors that nobody reads. Adapters may be missing; they have initial
 * values. */
int model_files_check(const struct model_files *files, const struct model *model);

/* Hashes the names, types and sizes of a few hundred tensors of the folder, and some bytes in the
 * middle of each. Processes compare the hash to notice if they have different weights at the same
 * path. */
int model_files_sample(const struct model_files *files, uint64_t *out);

/* Returns whether the files of a tied model contain a head that differs from its token table in any
 * element; transformers then keeps both. Returns false if one of them is absent or cannot be read,
 * because opening and checking the files reports that. */
bool model_files_have_own_head(const char *folder, const struct model_family *family);

/* Checksums of the bytes of frozen tensors in the files. They are added up while any threads read
 * the bytes, in any order. Every read adds to them, so each element must be read exactly once. */
struct model_sums;

int model_sums_create(const struct model *model, struct model_sums **out);
void model_sums_destroy(struct model_sums *sums); /* Accepts NULL */
/* Access single sums, so that processes that each read a part of the tensors can add up their
 * sums. */
size_t model_sums_count(const struct model_sums *sums);
uint64_t model_sums_get(const struct model_sums *sums, size_t index);
void model_sums_add(struct model_sums *sums, size_t index, uint64_t value);
/* Adds to the checksum of part `part` of parameter `param` of a frozen block. */
void model_sums_add_part(struct model_sums *sums, const struct model_block *block, unsigned param,
                         unsigned part, uint64_t value);
/* Returns a hash of the names, shapes, types and bytes of all frozen tensors, valid once all were
 * read. The hash does not depend on the precision and layout of the run. */
uint64_t model_sums_identity(const struct model_sums *sums, const struct model_files *files);

/* Starts to read these elements into the page cache, so that model_files_read soon finds them
 * there. */
void model_files_expect(const struct model_files *files, const struct model_block *block,
                        uint64_t begin, uint64_t count);

enum { MODEL_FILES_BUFFER_BYTES = 4 << 20 };

/* Reads elements [begin, begin + count) of a block's flat array and converts them to `type`;
 * padding is zero. Allocates MODEL_FILES_BUFFER_BYTES, and more only for initial magnitudes of
 * adapters. Call model_files_check first. If `sums` is not NULL and the block is frozen, the
 * elements are added to the checksums. Both ends of the range must then be multiples of
 * BLOCKS_ALIGN_ELEMENTS, boundaries of parts, or the end of the block, so that the sums do not
 * depend on where reads begin. */
int model_files_read(const struct model_files *files, const struct model_block *block,
                     uint64_t begin, uint64_t count, enum model_dtype type, void *to,
                     struct model_sums *sums);

/* Reads a whole block with all members of a team, each with its own buffer. */
int model_files_read_block(const struct model_files *files, const struct model_block *block,
                           enum model_dtype type, void *to, struct core_team *team,
                           struct model_sums *sums);

#endif
