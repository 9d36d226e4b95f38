/* sections.h: the steps of a block's program, cut where their frozen weights can be exchanged. A section is a
 * few consecutive steps and the pages of weights that these steps read. If a section's pages are in a slot,
 * its steps can run; what passes from one section to the next is in activations and temporaries. So the slot
 * can be smaller than the block. Pure functions; immutable once created. */
#ifndef OFFLOAD_MODEL_SECTIONS_H
#define OFFLOAD_MODEL_SECTIONS_H

#include "offload/model/run.h"

/* The runs of steps that a block consists of. */
enum model_pass {
    MODEL_PASS_FORWARD,
    MODEL_PASS_RECOMPUTE,
    MODEL_PASS_BACKWARD,
    MODEL_PASS_COUNT,
};

/* Whole pages of the block that has the weights. Those at its end may reach beyond it. */
struct model_range {
    uint64_t first; /* byte */
    uint64_t bytes;
};

/* A parameter whose weights a section has in its slot. `at`: bytes from the slot's beginning to the place
 * where row 0 would be; may be negative, because only the rows that the steps read are there. */
struct model_place {
    unsigned param;
    int64_t at;
};

struct model_section {
    enum model_pass pass;
    size_t first, end;                /* steps */
    double share;                     /* of the pass's operations */
    uint64_t bytes;                   /* of all ranges, which are one after another in the slot */
    const struct model_range *ranges; /* borrowed from the sections, like the next */
    const struct model_place *places;
    unsigned range_count;
    unsigned place_count;
};

struct model_sections {
    struct model_section *list;         /* owned */
    struct model_range *ranges;         /* owned, of all sections */
    struct model_place *places;         /* owned, of all sections */
    size_t first[MODEL_PASS_COUNT + 1]; /* section of each pass; the last one: their number */
    uint64_t bytes;                     /* of a slot that has room for each section */
};

/* The steps of a pass. */
const struct model_steps *model_pass_steps(const struct model_program *program,
                                           enum model_pass pass);

/* Cuts all passes of `block`'s program by the weights in the array of block `owner`, which is frozen: the
 * block itself, or one that it borrows. The slot has room for what the largest step needs, and for some
 * norms and biases. */
int model_sections_create(const struct model_block *block, unsigned owner,
                          const struct model_program *program, struct model_sections **out);
/* Cuts the steps of `program->logits`, as one forward pass. The slot has `bytes` or more. */
int model_sections_create_logits(const struct model_block *block, unsigned owner,
                                 const struct model_program *program, uint64_t bytes,
                                 struct model_sections **out);
void model_sections_destroy(struct model_sections *sections);

/* Points the parameters whose weights the section has in `slot` at where their row 0 would be. */
void model_section_bind(const struct model_section *section, const void *slot,
                        struct model_binding *binding);

#endif
