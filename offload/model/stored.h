/* stored.h: frozen layers in fewer bits than compute reads. The stored forms of a block's tensors
 * (kernels/quant.h) follow each other: most linear weights in the storage's format; other weights
 * as compute reads them, or as bf16. Bytes are made in order from the model's files, so that little
 * memory is needed. */
#ifndef OFFLOAD_MODEL_STORED_H
#define OFFLOAD_MODEL_STORED_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/quant.h"
#include "offload/model/files.h"

enum model_storage {
    MODEL_STORAGE_PLAIN, /* as compute reads them: no stored form */
    MODEL_STORAGE_BF16,
    MODEL_STORAGE_INT8,
    MODEL_STORAGE_NF4,
};

/* Returns the storage of frozen layers for files that are quantised as `quant`; MODEL_STORAGE_PLAIN
 * for none. */
enum model_storage model_stored_as(enum kern_quant quant);
/* Calls model_files_set_base for a run with weights of `type`. */
void model_stored_set_base(struct model_files *files, const struct model *model,
                           enum model_storage storage, enum kern_type type);

/* Returns "plain", "bf16", "int8" or "nf4". */
const char *model_storage_name(enum model_storage storage);

/* A tensor: rows * cols elements from `first` of the block's array on. */
struct model_stored_part {
    const char *name; /* borrowed from the model */
    uint64_t first;
    int64_t rows;
    int64_t cols;
    enum kern_quant quant;
    bool given;            /* the files have its codes */
    enum kern_type from;   /* element type if `quant` is KERN_QUANT_NONE */
    unsigned param, part;  /* indices in the block */
    uint64_t offset_bytes; /* in the stored form */
};

struct model_stored {
    struct model_stored_part *parts; /* owned */
    unsigned count;
    uint64_t bytes;
};

/* Returns whether a block may have a stored form: a frozen layer, or the frozen part of one. */
bool model_stored_is_possible(const struct model *model, const struct model_block *block);

/* Creates a block's stored form, for weights of `type`; *out is NULL if the block is kept as
 * compute reads it. Refuses a tensor that the storage cannot hold. */
int model_stored_create(const struct model *model, const struct model_block *block,
                        enum model_storage storage, enum kern_type type, struct model_stored **out);
void model_stored_destroy(struct model_stored *stored); /* Accepts NULL */

/* Makes a block's stored form. One thread at a time; it uses the source's team. */
struct model_stored_reader;

struct model_stored_source {
    /* Borrowed, like the other pointers. model_files_check must have accepted `files`. */
    const struct model_files *files;
    const struct model_block *block;
    const struct model_stored *stored;
    struct core_team *team;
    /* Gets checksums of what is read, complete after the last byte. NULL: none. */
    struct model_sums *sums;
    /* Receives all bytes in order, also skipped ones. NULL: not called. */
    void (*made)(void *user, const void *bytes, uint64_t count);
    void *user;
};

int model_stored_open(const struct model_stored_source *source, struct model_stored_reader **out);
void model_stored_close(struct model_stored_reader *reader); /* Accepts NULL */
/* Reads the next bytes, and zeros after the end; skips them if `to` is NULL. Refuses weights that
 * are not finite or, for int8, beyond fp16. */
int model_stored_read(struct model_stored_reader *reader, void *to, uint64_t bytes);
#endif
