/* files.h: the tensors of a model folder: one model.safetensors, or shards named by
 * model.safetensors.index.json. Reads go straight to the destination if type and order agree, else
 * through a small buffer. Thread-safe, except calls that add or set something. */
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

/* Opens the folder's tensors. */
int model_files_open(const char *folder, struct model_files **out);
void model_files_close(struct model_files *files);

const char *model_files_folder(const struct model_files *files);
size_t model_files_shard_count(const struct model_files *files);
const struct model_safetensors *model_files_shard(const struct model_files *files, size_t index);
/* Returns NULL if no shard has the tensor; else sets *shard. */
const struct model_tensor *model_files_find(const struct model_files *files, const char *name,
                                            const struct model_safetensors **shard);

/* Finds the tensor of a part by its name, its name in the bare model ("h.0..." for
 * "transformer.h.0..."), or its other name. Returns NULL if there is none. */
const struct model_tensor *model_files_part(const struct model_files *files,
                                            const struct model_part *part,
                                            const struct model_safetensors **shard);

/* Adds the tensors of a PEFT folder, which take precedence. `peft` is borrowed; model_peft_check
 * must have accepted it. */
void model_files_add_adapter(struct model_files *files, const struct model_peft *peft);

/* How the run keeps linear weights of frozen layers: rounded to `type` and stored as `quant`. Their
 * rows' norms are the adapters' initial magnitudes. Without model_files_set_base, weights are as in
 * the files. */
struct model_files_base {
    enum kern_quant quant;
    enum kern_type type;
    /* the files are quantised; the run quantises no other weights */
    bool given;
};

void model_files_set_base(struct model_files *files, const struct model_files_base *base);
struct model_files_base model_files_base_of(const struct model_files *files);

/* Sets the kept base (kept.h), or NULL; borrowed. */
void model_files_set_kept(struct model_files *files, struct model_kept *kept);
struct model_kept *model_files_kept(const struct model_files *files);

/* Checks that the folder has the model's parameters, in their shapes and readable types. The
 * message names the first tensor that is missing or wrong. Adapters may be missing. A log line
 * names some of the tensors that are not part of the model. */
int model_files_check(const struct model_files *files, const struct model *model);

/* Hashes names, types, sizes and a few bytes of some tensors, for processes that compare their
 * weights. */
int model_files_sample(const struct model_files *files, uint64_t *out);

/* Returns whether a tied model's files have a head that differs from its token table; transformers
 * then keeps both. Returns false after an error. */
bool model_files_have_own_head(const char *folder, const struct model_family *family);

/* Checksums of the frozen tensors' bytes in files. Threads may read in any order, but each element
 * once, because every read adds to the sums. */
struct model_sums;

int model_sums_create(const struct model *model, struct model_sums **out);
void model_sums_destroy(struct model_sums *sums); /* Accepts NULL */
/* Access single sums, so that processes can add up the sums of what each has read. */
size_t model_sums_count(const struct model_sums *sums);
uint64_t model_sums_get(const struct model_sums *sums, size_t index);
void model_sums_add(struct model_sums *sums, size_t index, uint64_t value);
/* Adds to the checksum of a part of a frozen block's parameter. */
void model_sums_add_part(struct model_sums *sums, const struct model_block *block, unsigned param,
                         unsigned part, uint64_t value);
/* Returns a hash of names, shapes, types and bytes of the frozen tensors; all must have been read.
 * The hash does not depend on the run's precision and layout. */
uint64_t model_sums_identity(const struct model_sums *sums, const struct model_files *files);

/* Starts readahead of these elements for model_files_read, except of transposed tensors. */
void model_files_expect(const struct model_files *files, const struct model_block *block,
                        uint64_t begin, uint64_t count);

enum { MODEL_FILES_BUFFER_BYTES = 4 << 20 };

/* Reads elements [begin, begin + count) of a block's flat array as `type`; padding is zero.
 * Allocates MODEL_FILES_BUFFER_BYTES, and more only for initial magnitudes. Call model_files_check
 * first. `sums`, if not NULL, gets checksums of frozen elements; begin and end must then be
 * multiples of BLOCKS_ALIGN_ELEMENTS, boundaries of parts, or the end of the block. */
int model_files_read(const struct model_files *files, const struct model_block *block,
                     uint64_t begin, uint64_t count, enum model_dtype type, void *to,
                     struct model_sums *sums);

/* Reads a whole block; each member of the team has its own buffer. */
int model_files_read_block(const struct model_files *files, const struct model_block *block,
                           enum model_dtype type, void *to, struct core_team *team,
                           struct model_sums *sums);

#endif
