/* types.h: the inputs of a plan (shapes, formats, requests, budgets, rates) and the parts of its
 * result. Only data; the functions are in plan.h, shard.h and the private headers of
 * offload/plan. */
#ifndef OFFLOAD_PLAN_TYPES_H
#define OFFLOAD_PLAN_TYPES_H

#include <stdbool.h>
#include <stdint.h>

#include "offload/plan/tape.h"

/* ---- inputs ---- */

/* Bytes per element of each stream; 0 if the optimizer has no such stream. */
struct plan_format {
    uint8_t weight_bytes; /* working weight: 2; 4 for plain fp32 */
    uint8_t master_bytes; /* 2: split master; 4: separate master; 0: plain fp32 */
    uint8_t m_bytes;
    uint8_t v_bytes;
    uint8_t grad_bytes; /* as stored: 2, or 4 if the sum over micro-batches itself is stored */
    uint16_t q8_block;  /* elements that share a 4-byte scale; 0: no moments of 8 bits */
};

/* The largest number of other blocks whose weights a command of a block reads. */
enum { PLAN_BORROWS_MAX = 2 };

/* A block, the unit that ranks gather at once. Bytes of activations are for one micro-batch. A
 * block may borrow others: its commands also read their weights. A tied head borrows the block with
 * its table; the gradient of the table has two uses. Data blocks are frozen, have no commands of
 * their own, and are only borrowed. */
struct plan_block_shape {
    const char *name;  /* borrowed */
    uint64_t elements; /* parameters of its own, packed */
    /* Size of a frozen block that is kept in fewer bits, in elements of `weight_bytes`; EXPAND
     * makes its weights. 0: weights are kept in the form that compute reads. */
    uint64_t stored_elements;
    /* Elements of the trained parameter that the block borrows from the first of `borrows`; 0:
     * none. */
    uint64_t shared_elements;
    uint64_t out_bytes;      /* boundary activation that the block passes to the next one; 0 for
                               * the head */
    uint64_t kept_bytes;     /* activations that backward needs if nothing is recomputed */
    uint64_t forward_bytes;  /* scratch of forward */
    uint64_t backward_bytes; /* scratch of backward, without recomputed activations */
    double forward_flops;
    double recompute_flops; /* of the part of forward that is recomputed */
    double backward_flops;
    double forward_seconds; /* measured alone; 0: computed from flops */
    double recompute_seconds;
    double backward_seconds; /* seconds of backward; a head's include its forward, which has no
                              * command of its own in a training step */
    /* The largest size of the pages of a frozen block's weights that a forward command uses, if it
     * needs only these; 0: it needs the whole block. */
    uint64_t rows_bytes;
    const struct model_sections *sections; /* borrowed: sections by which the frozen weights of
                                            * `source` can be brought; NULL: they are brought whole.
                                            * `source` is the block itself or a block that it
                                            * borrows */
    uint32_t source;
    uint32_t borrows[PLAN_BORROWS_MAX]; /* other blocks, each earlier or a data block */
    uint32_t borrow_count;
    bool backward_reads_weights;
    bool trained; /* true if one of its own parameters is trained */
    struct plan_format format;
};

enum plan_acts {
    PLAN_ACTS_AUTO,
    PLAN_ACTS_KEEP,
    PLAN_ACTS_RECOMPUTE,
    PLAN_ACTS_HOST,
    PLAN_ACTS_STORE
};
enum plan_order { PLAN_ORDER_AUTO, PLAN_ORDER_LAYER, PLAN_ORDER_MICRO };
enum plan_timing {
    PLAN_TIMING_AUTO,
    PLAN_TIMING_DEFERRED,   /* all updates run during the next forward, when the norm is known */
    PLAN_TIMING_INSIDE,     /* all updates run inside backward */
    PLAN_TIMING_SPLIT,      /* some updates run inside backward, the others
                             * (plan_block_place.pending) during the next forward; none needs the
                             * norm */
    PLAN_TIMING_SPECULATIVE /* all updates run inside backward as if the norm changed nothing, or
                             * are deferred; the data that an update overwrites is kept in two
                             * generations */
};
enum plan_where { PLAN_WHERE_AUTO, PLAN_WHERE_DEVICE, PLAN_WHERE_HOST, PLAN_WHERE_STORE };

struct plan_wishes {
    uint32_t micro_batches;
    bool may_clip;  /* the norm decides a factor */
    bool may_skip;  /* the norm decides whether the step is skipped */
    bool may_split; /* PLAN_TIMING_SPLIT may be chosen */
    enum plan_acts acts;
    enum plan_order order;
    enum plan_timing timing;
    enum plan_where weights;
    enum plan_where states;
    enum plan_where grads;
    uint32_t weight_slots;   /* 0: the planner chooses */
    uint32_t state_slots;    /* 0: the planner chooses */
    uint64_t chunk_elements; /* 0: the planner chooses; a multiple of 64 Ki */
    double thrift; /* how much longer than the fastest plan a step may take to save memory, as a
                    * fraction (0.05); 0: all memory within the budgets may be used */
    bool saves;    /* tapes that save a checkpoint are needed */
};

struct plan_budgets {
    uint64_t device_bytes;
    uint64_t host_bytes;
    uint64_t store_bytes;        /* 0: there is no store */
    uint64_t joint_bytes;        /* limit of DEVICE and HOST together; 0: no such limit */
    uint64_t device_taken_bytes; /* bytes taken by the runtime itself */
    uint64_t host_taken_bytes;
    uint64_t host_data_bytes; /* part of host_taken_bytes: data of the application */
    /* bytes of HOST that a refusal adds to the budgets that it suggests */
    uint64_t advice_spare_bytes;
    bool device_is_host; /* the CPU device: compute accesses HOST, and I/O reaches DEVICE */
};

/* Rates of the machine, per second, each measured alone. */
struct plan_rates {
    double read_bytes;
    double write_bytes;
    double mixed_bytes; /* sum of both rates while reading and writing at the same time */
    double up_bytes;
    double down_bytes;
    double both_bytes; /* each direction while both are busy; 0: the same rate as alone */
    double flops;
    double update_elements;
    /* Approximate rate of host memory. A GPU's copies at this rate would stop the update; copies at
     * a fraction of this rate slow the update by that fraction. 0: copies cost the update
     * nothing. */
    double memory_bytes;
    double sums_elements;
    /* elements per second that a GPU updates in its own memory; 0: unknown, and it updates none */
    double card_update_elements;
    double card_sums_elements;
    double round_elements;
    double expand_elements; /* weights that a device expands from stored ones; 0: takes no time */
    double hash_bytes;      /* checksums of data that is read and written; 0: takes no time, or
                             * included in `io_bytes` */
    /* bytes that the drives' threads could move and check with one core each; 0: takes no time */
    double io_bytes;
    double window_bytes; /* bytes in flight at the drives while these rates were measured; 0: any
                          * number */
    double coll_bytes;   /* bytes that one rank receives from the others; 0: takes no time */
    double within_bytes; /* like coll_bytes, within a group (plan_input.within); 0: the same rate */
    /* weights of 16 bits that a rank packs into codes of 8 bits; 0: takes no time */
    double pack_elements;
    /* Gradients that become codes of 4 bits and are summed from codes; 0: takes no time. */
    double code_elements;
    double command_seconds; /* fixed cost of a command */
    bool shared_cores;      /* compute and update use the same cores (the CPU device) */
};

struct plan_input {
    const struct plan_block_shape *blocks; /* borrowed; of the blocks that compute, the embedding is
                                            * first and the head last; data blocks follow them */
    uint32_t block_count;
    uint32_t compute_count; /* number of blocks that compute; they come first */
    struct plan_wishes wishes;
    struct plan_budgets budgets;
    struct plan_rates rates;
    /* Weights and gradients are in the memory of the application, which also computes: a BWD is
     * done when the gradient of its block has come. There is no FWD. */
    bool application;
    uint32_t world; /* number of ranks; 0 and 1: one rank */
    uint32_t rank;
    uint32_t local; /* number of ranks that share the budgets of a user; 0: all */
    uint32_t stage; /* stage of ZeRO, 0 to 3; ignored for one rank */
    bool packs;     /* stage 3 gathers weights of 16 bits as codes of 8 bits; the CPU device only */
    bool codes;     /* stages 1 to 3 reduce gradients as codes of 4 bits; the CPU device only */
    bool sums_within_nodes; /* the ranks of a node add their gradients before nodes do */
    /* Stage 3: number of neighbouring ranks that together keep a copy of a block's weights after
     * the first gather of a step, so that later gathers of the step stay among them. Divides
     * `world`; 0: all ranks take part in every gather. Only on the CPU device */
    uint32_t within;
    /* micro-batches that a command computes one after another; 0 and 1: one. All figures of a
     * micro-batch are then for a group, except a block's `kept_bytes` and scratch: recomputed
     * activations and temporaries exist for one micro-batch at a time, unless the block comes by
     * sections. */
    uint32_t group;
};

/* ---- results ---- */

struct plan_block_place {
    uint8_t weights; /* enum plan_tier, PLAN_APPLICATION included */
    uint8_t grads;   /* enum plan_tier, PLAN_APPLICATION included */
    uint8_t states;  /* enum plan_tier of the resident chunks, HOST or DEVICE. DEVICE on a GPU means
                      * that all chunks are there and that the GPU updates them */
    bool kept;       /* its activations are kept and not recomputed */
    bool pending;    /* its update is deferred to the next step */
    uint32_t chunk_count;
    uint32_t resident_chunks; /* number of the first chunks whose states are kept in memory */
};

/* The kinds of tapes of a run. */
enum plan_kind {
    PLAN_FIRST,      /* a step while no update is pending; leaves one pending unless timing is
                      * inside */
    PLAN_NEXT,       /* a step that also does the pending update of the previous step */
    PLAN_GUESS,      /* like FIRST, but the update of this step runs before its norm is known; if
                      * the norm changes the update, it is left pending */
    PLAN_GUESS_NEXT, /* like GUESS, and also does the pending update */
    PLAN_DRAIN,      /* only the pending update */
    PLAN_EVAL,       /* only forward */
    PLAN_NEXT_SAVE,  /* like NEXT, and the results of the pending update also go to a checkpoint */
    PLAN_DRAIN_SAVE, /* like DRAIN, and the results also go to a checkpoint */
    PLAN_FIRST_SAVE_OWN, /* like FIRST, and the results of this step's updates inside backward also
                          * go to a checkpoint */
    /* like NEXT, and the results of this step's updates inside backward also go to a checkpoint */
    PLAN_NEXT_SAVE_OWN,
    PLAN_KIND_COUNT,
};

/* Resources that commands share. */
enum plan_resource {
    PLAN_R_COMPUTE,
    PLAN_R_CORES,
    PLAN_R_DRIVE,
    PLAN_R_UP,
    PLAN_R_DOWN,
    PLAN_R_COUNT
};

struct plan_prediction {
    double step_seconds;
    double queue_seconds[PLAN_Q_COUNT];    /* time in which a queue had a command running */
    double resource_seconds[PLAN_R_COUNT]; /* time in which a resource was used */
    enum plan_resource bottleneck;         /* the resource that is used longest */
    uint64_t store_read_bytes;
    uint64_t store_write_bytes;
    uint64_t up_bytes;
    uint64_t down_bytes;
    uint64_t gather_bytes; /* bytes between ranks, as in struct plan_traffic */
    uint64_t reduce_bytes;
    uint64_t gather_between_bytes;
    uint64_t reduce_between_bytes;
};

/* Activations and timing that fit and were not chosen. The figures are those of their fastest
 * candidate over all orders, before slots and chunks were improved. */
struct plan_alternative {
    enum plan_acts acts;
    enum plan_order order;
    enum plan_timing timing;
    double step_seconds;
    uint64_t device_bytes; /* bytes including those of the runtime; the next member, too */
    uint64_t host_bytes;
    uint64_t store_write_bytes; /* per step */
};

#endif
