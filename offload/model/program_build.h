/* program_build.h: a program that is being built; for program*.c only. Steps are added in the order
 * in which they run. Each names the buffers that it reads and writes; lifetimes and offsets follow
 * from that when the program is finished. */
#ifndef OFFLOAD_MODEL_PROGRAM_BUILD_H
#define OFFLOAD_MODEL_PROGRAM_BUILD_H

#include "offload/model/model.h"
#include "offload/model/program_step.h"

enum { MODEL_BUFFERS_MAX = 128, MODEL_BUFFER_ALIGN_BYTES = 256 };
enum model_phase { MODEL_PHASE_FORWARD, MODEL_PHASE_BACKWARD, MODEL_PHASE_COUNT };

/* An array between steps. `fixed`: a boundary activation or its gradient, whose address the binding
 * has. */
struct model_buffer {
    uint64_t bytes;
    bool fixed;
    enum model_base base; /* base of fixed buffers; other buffers get theirs at the end */
    uint64_t offset_bytes;
    bool used[MODEL_PHASE_COUNT];
    size_t first[MODEL_PHASE_COUNT]; /* index of a step of the phase */
    size_t last[MODEL_PHASE_COUNT];
};

struct model_build {
    const struct model *model;
    const struct model_block *block;
    struct model_shape shape;
    int64_t tokens;         /* tokens that added steps compute */
    enum model_half half;   /* half of the rows that has these tokens */
    enum model_phase phase; /* phase to which steps are added */
    struct model_steps steps[MODEL_PHASE_COUNT];
    size_t capacity[MODEL_PHASE_COUNT];
    struct model_buffer buffers[MODEL_BUFFERS_MAX];
    int buffer_count;
    /* Buffers of values, of their gradients and of norms' statistics; -1: not made yet. */
    int value[MODEL_VALUE_COUNT];
    int grad[MODEL_VALUE_COUNT];
    int mean[MODEL_VALUE_COUNT];   /* mean of the norm that makes the value */
    int rstd[MODEL_VALUE_COUNT];   /* rstd of the norm that makes the value */
    int rstd2[MODEL_VALUE_COUNT];  /* rstd of the second head norm that writes the value */
    int lse[MODEL_VALUE_COUNT];    /* log-sum-exp of the attention that makes the value */
    int hidden[MODEL_VALUE_COUNT]; /* product of x and A of the adapter that adds to the value */
    int hidden_grad[MODEL_VALUE_COUNT];
    /* With DoRA: `whole` is the array that is multiplied by the factors; `factors` has the factors
     * of adapted rows and then their 1 / norm, in fp32 */
    int whole[MODEL_VALUE_COUNT];
    int factors[MODEL_VALUE_COUNT];
    /* a linear layer whose weight gradient waits until its input is computed again */
    const struct model_op_row *waiting;
    int waiting_grad;        /* buffer of the gradient that is multiplied by that input */
    bool failed;             /* out of memory; later calls do nothing */
    struct model_step spare; /* returned instead of a new step after a failure */
};

/* Starts the program of a block; the boundary activations and their gradient are its first
 * buffers. */
void model_build_begin(struct model_build *build, const struct model *model, unsigned block,
                       const struct model_shape *shape);

/* With pairs, steps that are added from now on compute these rows. Without pairs, does nothing. */
void model_build_choose(struct model_build *build, enum model_half half);

/* Returns the elements per token of a value. */
int64_t model_build_width(const struct model_build *build, enum model_value value);

/* Adds a buffer and returns its index. */
int model_build_buffer(struct model_build *build, uint64_t bytes);
/* Return the buffer of a value, and that of the value's gradient; the first call makes the
 * buffer. */
int model_build_value(struct model_build *build, enum model_value value);
int model_build_grad(struct model_build *build, enum model_value value);

/* Return the buffer of the product of x and A beside an adapted linear layer, and the buffer of the
 * product's gradient: [tokens][rows of A]. */
int model_build_hidden(struct model_build *build, const struct model_op_row *row);
int model_build_hidden_grad(struct model_build *build, const struct model_op_row *row);
/* Makes the buffers of a row for DoRA; returns false if the row has no magnitudes. With dropout,
 * build->whole has only the policy's rows. */
bool model_build_begin_dora(struct model_build *build, const struct model_op_row *row);
/* Returns whether the product of a row with its weight is computed in two parts, as DoRA with
 * dropout requires: one from the inputs after dropout, which is multiplied by the factors, and one
 * from the rest of the inputs. */
bool model_build_splits(const struct model_build *build, const struct model_op_row *row);
/* Ranges of columns of a row's output, in order. `factor` is the index of a range's first factor;
 * -1: no adapter. */
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

/* Adds a step that multiplies a range of columns of arrays as wide as the row's output: y = x *
 * factor (* by) (+ add). `factor` is the index of the first factor in the row's build->factors; -1:
 * the factor is 1. `by` and `add` are buffers; -1: none. */
struct model_step *model_build_columns_step(struct model_build *build,
                                            const struct model_op_row *row,
                                            const struct model_column_range *range,
                                            const struct model_column_operands *operands);
struct model_dropout_operands {
    int x, add, y;
    bool rest;
};

/* Adds a step that drops elements of the row's input, or of the input's gradient, as the row's
 * adapter does: y = dropout(x) (+ add), or with `rest`, y = x - dropout(x). `add` is a buffer; -1:
 * none. */
void model_build_dropout(struct model_build *build, const struct model_op_row *row,
                         const struct model_dropout_operands *operands);
/* Like model_build_dropout() without `add`; y is a new buffer, which is returned. */
int model_build_dropped(struct model_build *build, const struct model_op_row *row, int x,
                        bool rest);

/* Adds a step with a copy of `arguments`. Never NULL: after a failure, it returns a step that is
 * discarded. */
struct model_step *model_build_step(struct model_build *build, enum kern_op op,
                                    const void *arguments);
/* These functions set the pointer at `field` of the step's arguments: model_build_point to an
 * element of a buffer that the step reads, model_build_write to an element of one that it writes or
 * changes, model_build_param to a parameter's row, and model_build_base to a base. With rows > 0,
 * model_build_param also sets model_step.param, row and rows. */
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
/* Adds a step that rotates buffer x in place: the row's value, or with `backward`, its gradient.
 * Does nothing for a family without rotary embeddings. */
void model_build_rope(struct model_build *build, const struct model_op_row *row, int x,
                      bool backward);
/* Returns the arguments of attention except its pointers. */
struct kern_attention_arguments model_build_attention(const struct model_build *build,
                                                      const struct model_op_row *row);
/* Returns the multiplications and additions of q k^T and p v over the pairs of tokens that the
 * causal mask and the window allow. */
double model_build_attention_flops(const struct model_build *build);
/* Adds a model_grad: at `field`, each launch gets the struct kern_grad of the parameter from its
 * row `row` on. Does nothing for a parameter that is absent or frozen. */
void model_build_weight_grad(struct model_build *build, struct model_step *step, size_t field,
                             int param, int64_t row);

#endif
