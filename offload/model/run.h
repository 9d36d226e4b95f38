/* run.h: submits a block's steps to a device queue, with a binding's pointers. Only
 * model_binding_init allocates; only model_run_all waits. Called by the thread of the queue. */
#ifndef OFFLOAD_MODEL_RUN_H
#define OFFLOAD_MODEL_RUN_H

#include "core/base/fence.h"
#include "offload/model/program.h"

struct dev_queue;

/* Addresses in device memory, borrowed; NULL if the steps do not use them. A zeroed binding is
 * valid for a program without parameters. */
struct model_binding {
    void *base[MODEL_BASE_COUNT]; /* MODEL_BASE_PARAM uses `weights` instead */
    const void **weights;         /* owned array: row 0 of each parameter */
    struct kern_grad *grads;      /* owned array: gradients; zeroed: not computed */
    unsigned param_count;         /* room in `weights` and `grads` */
};

/* Makes an empty binding for any block of the model. */
int model_binding_init(struct model_binding *binding, const struct model *model);
/* Accepts a zeroed struct. */
void model_binding_fini(struct model_binding *binding);
/* Sets all addresses to NULL. */
void model_binding_clear(struct model_binding *binding);

/* Points weights and gradients of parameters of block `owner` to flat arrays: `weights` of type
 * `type`, and the arrays of `grad`, of equal layout (each may be NULL). Other parameters are
 * unchanged. */
void model_binding_set_flat(struct model_binding *binding, const struct model_block *block,
                            unsigned owner, enum kern_type type, const void *weights,
                            const struct kern_grad *grad);

enum model_which {
    MODEL_RUN_ALL,
    MODEL_RUN_RECOMPUTE, /* only forward steps that compute kept activations again */
};

/* Progress of a submission; zeroed at the beginning. */
struct model_cursor {
    size_t next;
    size_t end; /* set by the caller: step to stop before; 0: none */
    bool more;  /* set by the caller: launches of this unit of work follow */
};

/* Submits steps from cursor->next on. Returns 0 if all are submitted; *out is reached when they are
 * done (unchanged if there were none). Returns -EAGAIN if the queue is full: call again with this
 * cursor. */
int model_run(struct dev_queue *queue, const struct model_steps *steps, enum model_which which,
              const struct model_binding *binding, struct model_cursor *cursor,
              struct core_fence *out);

/* Submits all steps; waits while the queue is full. */
int model_run_all(struct dev_queue *queue, const struct model_steps *steps, enum model_which which,
                  const struct model_binding *binding);

#endif
