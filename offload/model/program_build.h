/* program_build.h: a program under construction; for program*.c only. Steps name the buffers that
 * they read and write; lifetimes and offsets follow at the end. */
#ifndef OFFLOAD_MODEL_PROGRAM_BUILD_H
#define OFFLOAD_MODEL_PROGRAM_BUILD_H

#include "offload/model/model.h"
#include "offload/model/program_step.h"

enum { MODEL_BUFFERS_MAX = 128, MODEL_BUFFER_ALIGN_BYTES = 256 };
enum model_phase { MODEL_PHASE_FORWARD, MODEL_PHASE_BACKWARD, MODEL_PHASE_COUNT };

/* An array between steps. `fixed`: a boundary activation or its gradient, with an address from the
 * binding. */
struct model_buffer {
    uint64_t bytes;
    bool fixed;
    enum model_base base; /* base of a fixed buffer; other buffers get a base at the end */
    uint64_t offset_bytes;
    bool used[MODEL_PHASE_COUNT];
    size_t first[MODEL_PHASE_COUNT]; /* index of the phase's step */
    size_t last[MODEL_PHASE_COUNT];
};

struct model_build {
    const struct model *model;
    const struct model_block *block;
    struct model_shape shape;
    int64_t tokens;         /* tokens of added steps */
    enum model_half half;   /* half of the rows with these tokens */
    enum model_phase phase; /* phase of added steps */
    struct model_steps steps[MODEL_PHASE_COUNT];
    size_t capacity[MODEL_PHASE_COUNT];
    struct model_buffer buffers[MODEL_BUFFERS_MAX];
    int buffer_count;
    /* Buffers of values, gradients and norms' statistics; -1: not made yet. */
    int value[MODEL_VALUE_COUNT];
    int grad[MODEL_VALUE_COUNT];
    int mean[MODEL_VALUE_COUNT];   /* mean of the norm that makes the value */
    int rstd[MODEL_VALUE_COUNT];   /* rstd of the norm that makes the value */
    int rstd2[MODEL_VALUE_COUNT];  /* rstd of the second head norm that writes the value */
    int lse[MODEL_VALUE_COUNT];    /* log-sum-exp of the value's attention */
    int hidden[MODEL_VALUE_COUNT]; /* product of x and A of the value's adapter */
    int hidden_grad[MODEL_VALUE_COUNT];
    /* DoRA: `whole` is the product before the factors; `factors` are the factors of adapted rows,
     * then the 1 / norm of these rows, in fp32 */
    int whole[MODEL_VALUE_COUNT];
    int factors[MODEL_VALUE_COUNT];
    /* linear layer whose weight gradient waits until its input is recomputed */
    const struct model_op_row *waiting;
    int waiting_grad;        /* buffer of the gradient to multiply by that input */
    bool failed;             /* out of memory; later calls add no steps */
    struct model_step spare; /* returned after a failure */
};

/* Starts a block's program; boundary activations and their gradient are its first buffers. */
void model_build_begin(struct model_build *build, const struct model *model, unsigned block,
                       const struct model_shape *shape);

/* With pairs, steps added from now on compute these rows. Without pairs, does nothing. */
void model_build_choose(struct model_build *build, enum model_half half);

/* Returns a value's elements per token. */
int64_t model_build_width(const struct model_build *build, enum model_value value);

/* Adds a buffer and returns its index. */
int model_build_buffer(struct model_build *build, uint64_t bytes);
/* Return the buffer of a value, or of its gradient; the first call makes it. */
int model_build_value(struct model_build *build, enum model_value value);
int model_build_grad(struct model_build *build, enum model_value value);

/* Return the buffer of the product of x and A of a row's adapter, or of the product's gradient:
 * [tokens][rows of A]. */
int model_build_hidden(struct model_build *build, const struct model_op_row *row);
int model_build_hidden_grad(struct model_build *build, const struct model_op_row *row);
/* Makes the buffers that DoRA needs for an op; returns false if its weight has no magnitudes. With
 * dropout and pairs, build->whole has only the batch rows of the policy. */
bool model_build_begin_dora(struct model_build *build, const struct model_op_row *row);
/* Returns whether an op needs two products, as DoRA with dropout does: of the inputs after dropout,
 * multiplied by the factors, and of what dropout removed. */
bool model_build_splits(const struct model_build *build, const struct model_op_row *row);
/* Ranges of columns of an op's output, in order. `factor`: index of the range's first factor; -1:
 * no adapter. */
struct model_columns {
    struct model_column_range {
        int64_t first, count, factor;
    } list[2 * MODEL_PARTS_MAX + 1];
    unsigned count;
};
void model_build_columns(const struct model_build *build, const struct model_op_row *row,
                         struct model_columns *out);
struct model_column_operands {
    int x, by, add, y;
    int64_t factor;
};

/* Adds a step over a range of the row's columns: y = x * factor (* by) (+ add). `factor`: index in
 * the row's build->factors; -1: 1. `by` and `add` are buffers; -1: none. */
struct model_step *model_build_columns_step(struct model_build *build,
                                            const struct model_op_row *row,
                                            const struct model_column_range *range,
                                            const struct model_column_operands *operands);
struct model_dropout_operands {
    int x, add, y;
    bool rest;
};

/* Adds a step of dropout on the row's input or its gradient: y = dropout(x) (+ add), or with
 * `rest`, y = x - dropout(x). `add` is a buffer; -1: none. */
void model_build_dropout(struct model_build *build, const struct model_op_row *row,
                         const struct model_dropout_operands *operands);
/* Like model_build_dropout() without `add`; returns y, a new buffer. */
int model_build_dropped(struct model_build *build, const struct model_op_row *row, int x,
                        bool rest);

/* Adds a step with a copy of `arguments`. After a failure, returns a step that is discarded, never
 * NULL. */
struct model_step *model_build_step(struct model_build *build, enum kern_op op,
                                    const void *arguments);
/* Set the pointer at `field` of a step's arguments: to an element that the step reads (point), to
 * one that it writes or changes (write), to a parameter's row (param), or to a base (base). With
 * rows > 0, model_build_param also sets model_step.param, row and rows. */
void model_build_point(struct model_build *build, struct model_step *step, size_t field, int buffer,
                       int64_t first_element);
void model_build_write(struct model_build *build, struct model_step *step, size_t field, int buffer,
                       int64_t first_element);
/* Like model_build_write(), for a buffer of fp32. */
void model_build_write_floats(struct model_build *build, struct model_step *step, size_t field,
                              int buffer, int64_t first_element);
void model_build_param(struct model_build *build, struct model_step *step, size_t field, int param,
                       int64_t row, int64_t rows);
void model_build_base(struct model_build *build, struct model_step *step, size_t field,
                      enum model_base base);
/* Adds a step that rotates buffer x, the row's value or with `backward` its gradient, in place.
 * Does nothing without rotary embeddings. */
void model_build_rope(struct model_build *build, const struct model_op_row *row, int x,
                      bool backward);
/* Returns attention's arguments without pointers. */
struct kern_attention_arguments model_build_attention(const struct model_build *build,
                                                      const struct model_op_row *row);
/* Returns the operations of q k^T and p v over the pairs of tokens that the causal mask and the
 * window allow. */
double model_build_attention_flops(const struct model_build *build);
/* Adds a model_grad: the struct kern_grad of the parameter, from row `row` on, at `field`. Does
 * nothing for an absent or frozen parameter. */
void model_build_weight_grad(struct model_build *build, struct model_step *step, size_t field,
                             int param, int64_t row);

#endif
