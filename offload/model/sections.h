/* sections.h: cuts the steps of a program where frozen weights can be exchanged. A section is a few
 * consecutive steps with the pages of weights that they read; it runs when these pages are in a
 * slot, which can be smaller than the block. Activations and temporaries pass values between
 * sections. A block in fewer bits has pages of its stored form, and a second slot for the expanded
 * weights. Pure functions; immutable once created. */
#ifndef OFFLOAD_MODEL_SECTIONS_H
#define OFFLOAD_MODEL_SECTIONS_H

#include "offload/model/run.h"
#include "offload/model/stored.h"

enum model_pass {
    MODEL_PASS_FORWARD,
    MODEL_PASS_RECOMPUTE,
    MODEL_PASS_BACKWARD,
    MODEL_PASS_COUNT,
};

/* Whole pages of a block's weights, in the form in which they are kept. The last page may reach
 * beyond the block. */
struct model_range {
    uint64_t first; /* byte */
    uint64_t bytes;
};

/* A parameter in the slot. `at`: bytes from the slot's beginning to where row 0 would be; may be
 * negative, because only rows that the steps read are there. */
struct model_place {
    unsigned param;
    int64_t at;
};

/* Weights of a stored tensor to expand. */
struct model_expansion {
    struct kern_expand_arguments part; /* without pointers */
    struct kern_quant_spans stored;    /* bytes of the block's stored form */
    uint64_t to;                       /* byte of the slot that steps read */
};

struct model_section {
    enum model_pass pass;
    size_t first, end; /* steps */
    double share;      /* part of the pass's operations */
    uint64_t bytes;    /* size of all ranges, which follow each other in the slot */
    /* Size of the expanded weights in the second slot; 0: the steps read the ranges. */
    uint64_t expanded_bytes;
    uint64_t expanded_elements;
    const struct model_range *ranges; /* borrowed from struct model_sections; the next two, too */
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
    size_t first[MODEL_PASS_COUNT + 1]; /* index of a pass's first section; then the count */
    uint64_t bytes;                     /* size of a slot with room for any section */
    /* Size of the second slot; 0: none. */
    uint64_t expanded_bytes;
};

/* Returns the steps of a pass; for recomputation, all forward steps. */
const struct model_steps *model_pass_steps(const struct model_program *program,
                                           enum model_pass pass);

/* The array to exchange: that of block `owner`, the computing block or one that it borrows. */
struct model_sections_source {
    unsigned owner;
    const struct model_stored *stored; /* NULL: the block is kept as compute reads it */
};

/* Cuts all passes of `block`'s program. Slots have room for the largest step, and some norms and
 * biases. */
int model_sections_create(const struct model_block *block,
                          const struct model_sections_source *source,
                          const struct model_program *program, struct model_sections **out);
/* Cuts `program->logits` as one forward pass. The slot has at least `bytes`. */
int model_sections_create_logits(const struct model_block *block, unsigned owner,
                                 const struct model_program *program, uint64_t bytes,
                                 struct model_sections **out);
void model_sections_destroy(struct model_sections *sections);

/* Sets the arguments of an expansion except `y`. `from`: with `pages`, the section's ranges; else
 * the block's whole stored form. */
void model_expansion_point(const struct model_section *section, unsigned index, const char *from,
                           bool pages, struct kern_expand_arguments *out);

/* Points the binding to the section's parameters in `slot`: to where row 0 is or would be. */
void model_section_bind(const struct model_section *section, const void *slot,
                        struct model_binding *binding);

#endif
