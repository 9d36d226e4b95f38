/* sections.h: the steps of a block's program, cut where their frozen weights can be exchanged. A
 * section is a few consecutive steps and the pages of weights that these steps read. If a section's
 * pages are in a slot, its steps can run; values that one section passes to the next are in
 * activations and temporaries. So the slot can be smaller than the block. For a block that is kept
 * in fewer bits the pages are those of its stored form, and the steps read a second slot, into
 * which the section's weights are expanded. Pure functions; immutable once created. */
#ifndef OFFLOAD_MODEL_SECTIONS_H
#define OFFLOAD_MODEL_SECTIONS_H

#include "offload/model/run.h"
#include "offload/model/stored.h"

/* The passes in which a block's steps run. */
enum model_pass {
    MODEL_PASS_FORWARD,
    MODEL_PASS_RECOMPUTE,
    MODEL_PASS_BACKWARD,
    MODEL_PASS_COUNT,
};

/* A range of whole pages of a block's weights, in the form in which they are kept. The last page
 * may reach beyond the block's end. */
struct model_range {
    uint64_t first; /* byte */
    uint64_t bytes;
};

/* A parameter whose weights a section has in the slot that its steps read. `at` is the distance in
 * bytes from the slot's beginning to the place where row 0 would be; it may be negative, because
 * only the rows that the steps read are there. */
struct model_place {
    unsigned param;
    int64_t at;
};

/* Weights of a stored tensor that a section expands. */
struct model_expansion {
    struct kern_expand_arguments part; /* without pointers */
    struct kern_quant_spans stored;    /* bytes of the block's stored form */
    uint64_t to;                       /* byte of the slot that the steps read */
};

struct model_section {
    enum model_pass pass;
    size_t first, end; /* steps */
    double share;      /* share of the pass's operations */
    uint64_t bytes;    /* size of all ranges, which are one after another in the slot */
    /* Size of a second slot, for the expanded weights; 0: the steps read the ranges. */
    uint64_t expanded_bytes;
    uint64_t expanded_elements;
    const struct model_range *ranges; /* borrowed from struct model_sections, like the next two */
    const struct model_place *places;
    const struct model_expansion *expansions;
    unsigned range_count;
    unsigned place_count;
    unsigned expansion_count;
};

struct model_sections {
    struct model_section *list;         /* owned */
    struct model_range *ranges;         /* owned, of all sections */
    struct model_place *places;         /* owned, of all sections */
    struct model_expansion *expansions; /* owned, of all sections */
    size_t first[MODEL_PASS_COUNT + 1]; /* index of a pass's first section; then their count */
    uint64_t bytes;                     /* size of a slot that has room for each section */
    /* Size of the second slot; 0: the block is kept as compute reads it. */
    uint64_t expanded_bytes;
};

/* Returns the steps of a pass. For recomputation these are all forward steps. */
const struct model_steps *model_pass_steps(const struct model_program *program,
                                           enum model_pass pass);

/* The array whose weights are exchanged: that of block `owner`, which is the computing block itself
 * or a block that it borrows. */
struct model_sections_source {
    unsigned owner;
    const struct model_stored *stored; /* NULL: the block is kept in the form that compute reads */
};

/* Cuts all passes of `block`'s program. The slots have room for what the largest step needs, and
 * for some norms and biases. */
int model_sections_create(const struct model_block *block,
                          const struct model_sections_source *source,
                          const struct model_program *program, struct model_sections **out);
/* Cuts the steps of `program->logits`, as one forward pass. The slot has at least `bytes`. */
int model_sections_create_logits(const struct model_block *block, unsigned owner,
                                 const struct model_program *program, uint64_t bytes,
                                 struct model_sections **out);
void model_sections_destroy(struct model_sections *sections);

/* Sets all arguments of an expansion except `y`. With `pages`, `from` has the section's ranges one
 * after another; otherwise it has the block's whole stored form. */
void model_expansion_point(const struct model_section *section, unsigned index, const char *from,
                           bool pages, struct kern_expand_arguments *out);

/* Sets the binding's weights of each parameter in the section to their address in `slot`. If the
 * section has only some rows of a parameter, this is the address that row 0 would have. */
void model_section_bind(const struct model_section *section, const void *slot,
                        struct model_binding *binding);

#endif
