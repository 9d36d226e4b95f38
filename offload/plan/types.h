/* types.h: a plan's inputs (shapes, formats, requests, budgets, rates) and parts of its result. */
#ifndef OFFLOAD_PLAN_TYPES_H
#define OFFLOAD_PLAN_TYPES_H

#include <stdbool.h>
#include <stdint.h>

#include "offload/plan/tape.h"

/* ---- inputs ---- */

/* Bytes per element of each stream; 0: the optimizer has no such stream. */
struct plan_format {
    uint8_t weight_bytes; /* working weight: 2; 4 for plain fp32 */
    uint8_t master_bytes; /* 2: split master; 4: separate master; 0: plain fp32 */
    uint8_t m_bytes;
    uint8_t v_bytes;
    uint8_t grad_bytes; /* 2; 4 in fp32, or if fp32 sums over micro-batches are stored */
    uint16_t q8_block;  /* elements that share a 4-byte scale; 0: no 8-bit moments */
};

/* The most other blocks whose weights a command reads. */
enum { PLAN_BORROWS_MAX = 2 };

/* A block. Activations are those of one micro-batch (or of a group: plan_input.group). A command
 * also reads the weights of borrowed blocks: a tied head borrows the block with its table, which
 * then has two uses. Data blocks are frozen and only borrowed. */
struct plan_block_shape {
    const char *name;  /* borrowed */
    uint64_t elements; /* elements of its own array */
    /* Size of a block that is kept in fewer bits, in elements of `weight_bytes`; EXPAND makes its
     * weights. 0: weights are kept as compute reads them. */
    uint64_t stored_elements;
    /* Elements of the trained parameter borrowed from the first of `borrows`; 0: none. */
    uint64_t shared_elements;
    uint64_t out_bytes;      /* boundary activation to the next block; 0 for the head */
    uint64_t kept_bytes;     /* activations that backward needs if nothing is recomputed */
    uint64_t forward_bytes;  /* scratch of forward */
    uint64_t backward_bytes; /* scratch of backward, without recomputed activations */
    double forward_flops;
    double recompute_flops; /* operations of the recomputed part of forward */
    double backward_flops;
    double forward_seconds; /* measured alone; 0: computed from flops */
    double recompute_seconds;
    double backward_seconds; /* a head's include forward, which has no command in training */
    /* The most bytes of pages of a frozen block that a forward command uses; 0: it uses the whole
     * block. */
    uint64_t rows_bytes;
    const struct model_sections *sections; /* borrowed: sections of the frozen weights of
                                            * `source`, the block itself or one that it borrows;
                                            * NULL: weights are brought whole */
    uint32_t source;
    uint32_t borrows[PLAN_BORROWS_MAX]; /* other blocks: earlier ones or data blocks */
    uint32_t borrow_count;
    bool backward_reads_weights;
    bool trained; /* one of its own parameters is trained */
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
    PLAN_TIMING_DEFERRED,   /* updates run during the next forward, when the norm is known */
    PLAN_TIMING_INSIDE,     /* updates run inside backward */
    PLAN_TIMING_SPLIT,      /* some updates run inside backward, the others
                             * (plan_block_place.pending) during the next forward; none needs the
                             * norm */
    PLAN_TIMING_SPECULATIVE /* updates run inside backward as if the norm changed nothing, or are
                             * deferred; overwritten data has two generations */
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
    double thrift; /* how much longer than the fastest plan a step may take to save memory (0.05:
                    * 5 %); 0: the budgets may be used up */
    bool saves;    /* tapes that save a checkpoint are needed */
};

struct plan_budgets {
    uint64_t device_bytes;
    uint64_t host_bytes;
    uint64_t store_bytes;        /* 0: there is no store */
    uint64_t joint_bytes;        /* limit of DEVICE and HOST together; 0: no such limit */
    uint64_t device_taken_bytes; /* bytes taken by the runtime itself */
    uint64_t host_taken_bytes;
    uint64_t host_data_bytes; /* part of host_taken_bytes */
    /* bytes that a refusal adds to the suggested HOST */
    uint64_t advice_spare_bytes;
    bool device_is_host; /* the CPU device: compute accesses HOST, I/O reaches DEVICE */
};

/* Rates of the machine, per second. */
struct plan_rates {
    double read_bytes;
    double write_bytes;
    double mixed_bytes; /* sum of both rates while reading and writing */
    double up_bytes;
    double down_bytes;
    double both_bytes; /* each direction while both are busy; 0: as alone */
    double flops;
    double update_elements;
    /* Rate of host memory. Copies at a fraction of this rate slow the update by that fraction. 0:
     * copies cost nothing. */
    double memory_bytes;
    double sums_elements;
    /* elements per second that a GPU updates in its memory; 0: it updates none */
    double card_update_elements;
    double card_sums_elements;
    double round_elements;
    double expand_elements; /* weights that a device expands; 0: takes no time */
    double hash_bytes;      /* checksums of data; 0: takes no time, or included in `io_bytes` */
    /* bytes that the drives' threads move and check on one core each; 0: takes no time */
    double io_bytes;
    double window_bytes; /* bytes in flight while the drives were measured; 0: unknown */
    double coll_bytes;   /* bytes that a rank receives from others; 0: takes no time */
    double within_bytes; /* coll_bytes within a group (plan_input.within); 0: as coll_bytes */
    /* 16-bit weights that a rank packs into 8-bit codes; 0: takes no time */
    double pack_elements;
    /* Gradients that are coded in 4 bits and summed; 0: takes no time. */
    double code_elements;
    double command_seconds; /* fixed cost of a command */
    bool shared_cores;      /* compute and update use the same cores (the CPU device) */
};

struct plan_input {
    const struct plan_block_shape *blocks; /* borrowed: embedding, layers and head, then data
                                            * blocks */
    uint32_t block_count;
    uint32_t compute_count; /* blocks that compute; they come first */
    struct plan_wishes wishes;
    struct plan_budgets budgets;
    struct plan_rates rates;
    /* The application has weights and gradients in its memory, and computes: a BWD is done when its
     * block's gradient has come. There is no FWD. */
    bool application;
    uint32_t world; /* ranks; 0 and 1: one */
    uint32_t rank;
    uint32_t local;         /* ranks that share the user's budgets; 0: all */
    uint32_t stage;         /* ZeRO stage, 0 to 3; ignored for one rank */
    bool packs;             /* stage 3 gathers 16-bit weights as 8-bit codes; the CPU device only */
    bool codes;             /* stages 1 to 3 reduce gradients as 4-bit codes; the CPU device only */
    bool sums_within_nodes; /* ranks of a node add their gradients before nodes do */
    /* Stage 3: neighbouring ranks that keep a copy of weights after a step's first gather, for its
     * later gathers. Divides `world`; 0: all ranks gather. The CPU device only */
    uint32_t within;
    /* micro-batches that a command computes in turn; 0 and 1: one. Figures of a micro-batch are
     * then for a group, except `kept_bytes` and scratch, which are for one. */
    uint32_t group;
};

/* ---- results ---- */

struct plan_block_place {
    uint8_t weights; /* enum plan_tier, PLAN_APPLICATION included */
    uint8_t grads;   /* enum plan_tier, PLAN_APPLICATION included */
    uint8_t states;  /* enum plan_tier of resident chunks. DEVICE on a GPU: all chunks are there,
                      * and the GPU updates them */
    bool kept;       /* activations are kept, not recomputed */
    bool pending;    /* update is deferred to the next step */
    uint32_t chunk_count;
    uint32_t resident_chunks; /* first chunks, with states in memory */
};

enum plan_kind {
    PLAN_FIRST,      /* a step while no update is pending; leaves an update pending, unless
                      * timing is inside */
    PLAN_NEXT,       /* also does the previous step's pending update */
    PLAN_GUESS,      /* like FIRST, but updates before the norm is known; if the norm changes the
                      * update, it is left pending */
    PLAN_GUESS_NEXT, /* like GUESS, after the pending update */
    PLAN_DRAIN,      /* only the pending update */
    PLAN_EVAL,       /* only forward */
    PLAN_NEXT_SAVE,  /* like NEXT; results of the pending update also go to a checkpoint */
    PLAN_DRAIN_SAVE, /* like DRAIN; results also go to a checkpoint */
    PLAN_FIRST_SAVE_OWN, /* like FIRST; results of updates inside backward also go to a
                          * checkpoint */
    /* like NEXT; results of updates inside backward also go to a checkpoint */
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
    double queue_seconds[PLAN_Q_COUNT];    /* time in which a queue had a running command */
    double resource_seconds[PLAN_R_COUNT]; /* time in which a resource was used */
    enum plan_resource bottleneck;         /* the resource that is used longest */
    uint64_t store_read_bytes;
    uint64_t store_write_bytes;
    uint64_t up_bytes;
    uint64_t down_bytes;
    uint64_t gather_bytes; /* between ranks, as in struct plan_traffic */
    uint64_t reduce_bytes;
    uint64_t gather_between_bytes;
    uint64_t reduce_between_bytes;
};

/* Activations and timing that fit and were not chosen, with the figures of their fastest candidate
 * before slots and chunks were improved. */
struct plan_alternative {
    enum plan_acts acts;
    enum plan_order order;
    enum plan_timing timing;
    double step_seconds;
    uint64_t device_bytes; /* with those of the runtime; the next member, too */
    uint64_t host_bytes;
    uint64_t store_write_bytes; /* per step */
};

#endif
