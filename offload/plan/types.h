/* types.h: the inputs of a plan (shapes, formats, wishes, budgets, rates) and the parts of its
 * answer. Data alone; the functions are in plan.h, shard.h and the private headers of offload/plan.
 * */
#ifndef OFFLOAD_PLAN_TYPES_H
#define OFFLOAD_PLAN_TYPES_H

#include <stdbool.h>
#include <stdint.h>

#include "offload/plan/tape.h"

/* ---- inputs ---- */

/* A unit that is gathered at once. Bytes of activations are for one micro-batch. A tied head has
 * elements of its own and also reads a parameter of `shared_elements` in the array of the block
 * that it borrows from; the gradient of that parameter has two uses. */
struct plan_block_shape {
    char name[24];
    uint64_t elements;        /* parameters of its own, packed */
    uint64_t shared_elements; /* of the borrowed parameter; 0 where it is not trained */
    uint64_t out_bytes;       /* boundary activation that the block hands on; 0 for the head */
    uint64_t kept_bytes;      /* what backward needs where nothing is recomputed */
    uint64_t forward_bytes;   /* scratch of forward */
    uint64_t backward_bytes;  /* scratch of backward, without what is recomputed */
    double forward_flops;
    double backward_flops;
    double forward_seconds; /* measured alone; 0: from flops */
    double recompute_seconds;
    double backward_seconds; /* of a head: with its forward, which a training step has not */
    uint16_t borrows;        /* a block before it; PLAN_NONE: none */
    bool backward_reads_weights;
    bool trained; /* any parameter of its own is */
};

/* Bytes per element of each stream; 0 if the optimizer has no such stream. */
struct plan_format {
    uint8_t weight_bytes; /* 2 working weight */
    uint8_t master_bytes; /* 2 split master, 4 separate master, 0 plain fp32 */
    uint8_t m_bytes;
    uint8_t v_bytes;
    uint8_t grad_bytes; /* as stored: 2, or 4 and then it is the sum over micro-batches itself */
    uint16_t q8_block;  /* elements that share a 4-byte scale; 0: no moments of 8 bits */
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
    PLAN_TIMING_DEFERRED,   /* all updates under the next forward, once the norm is known */
    PLAN_TIMING_INSIDE,     /* all inside backward */
    PLAN_TIMING_SPLIT,      /* some inside backward, the others (plan_block_place.pending) under the
                               next forward, and none needs the norm */
    PLAN_TIMING_SPECULATIVE /* all inside backward as if the norm changed nothing, or deferred; what
                               an update overwrites is held twice */
};
enum plan_where { PLAN_WHERE_AUTO, PLAN_WHERE_DEVICE, PLAN_WHERE_HOST, PLAN_WHERE_STORE };

struct plan_wishes {
    uint32_t micro_batches;
    bool may_clip;  /* the norm decides a factor */
    bool may_skip;  /* the norm decides whether the step happens */
    bool may_split; /* PLAN_TIMING_SPLIT may be chosen */
    enum plan_acts acts;
    enum plan_order order;
    enum plan_timing timing;
    enum plan_where weights;
    enum plan_where states;
    enum plan_where grads;
    uint32_t weight_slots;   /* 0: chosen */
    uint32_t state_slots;    /* 0: chosen */
    uint64_t chunk_elements; /* 0: chosen; a multiple of 64 Ki */
    double thrift; /* how much longer than the fastest a step may take for less memory, as a part of
                      it: 0.05; 0: memory within the budgets is there to be used */
    bool saves;    /* tapes that save are wanted */
};

struct plan_budgets {
    uint64_t device_bytes;
    uint64_t host_bytes;
    uint64_t store_bytes;        /* 0: there is no store */
    uint64_t joint_bytes;        /* DEVICE + HOST together; 0: no such limit */
    uint64_t device_taken_bytes; /* by the runtime itself */
    uint64_t host_taken_bytes;
    uint64_t host_data_bytes;    /* part of host_taken_bytes: the application's data */
    uint64_t advice_spare_bytes; /* of HOST: a refusal adds it to the budgets that it suggests */
    bool device_is_host; /* the CPU device: compute reads and writes HOST, I/O reaches DEVICE */
};

/* Rates of the machine per second, each measured alone. */
struct plan_rates {
    double read_bytes;
    double write_bytes;
    double mixed_bytes; /* read + write together, both at once */
    double up_bytes;
    double down_bytes;
    double both_bytes; /* each direction while both are busy; 0: as if alone */
    double flops;
    double update_elements;
    double
        memory_bytes; /* what an update reads and writes at `update_elements`: the host memory's rate,
                            of which a card's copies take their share; 0: they cost it nothing */
    double sums_elements;
    double card_update_elements; /* of a device whose memory the processor does not reach, in that
                                    memory; 0: it is not known, and nothing is updated there */
    double card_sums_elements;
    double round_elements;
    double hash_bytes;   /* checksums of what is read and written; 0: free, or part of `io_bytes` */
    double io_bytes;     /* what drives' threads could move and check with a core each; 0: free */
    double window_bytes; /* in flight at the drives while these were measured; 0: any do */
    double coll_bytes;   /* between ranks, to one of them; 0: it costs nothing */
    double command_seconds; /* fixed cost of a command */
    bool shared_cores;      /* compute and update take the same cores (the CPU device) */
};

struct plan_input {
    const struct plan_block_shape *blocks; /* borrowed; embedding first, head last */
    uint32_t block_count;
    struct plan_format format;
    struct plan_wishes wishes;
    struct plan_budgets budgets;
    struct plan_rates rates;
    uint32_t world; /* ranks; 0 and 1: one */
    uint32_t rank;
    uint32_t stage; /* of ZeRO, 0 to 3; one rank has none */
    uint32_t
        group; /* micro-batches that a command does one after another; 0 and 1: one. What is said
                       of a micro-batch is then said of a group, but for a block's `kept_bytes`:
                       recomputed, they are there for one micro-batch at a time */
};

/* ---- answers ---- */

struct plan_block_place {
    uint8_t weights; /* enum plan_tier */
    uint8_t grads;   /* enum plan_tier */
    uint8_t states;  /* enum plan_tier: of the resident chunks, HOST or DEVICE; DEVICE other than on
                        the CPU device: all chunks, and the update is done there */
    bool kept;       /* its activations are kept and not recomputed */
    bool pending;    /* its update is left to the next step */
    uint32_t chunk_count;
    uint32_t resident_chunks; /* the first ones keep their states in memory */
};

/* The kinds of tapes of a run. */
enum plan_kind {
    PLAN_FIRST,      /* a step with no update pending; leaves one pending unless timing is inside */
    PLAN_NEXT,       /* a step that does the pending update of the step before */
    PLAN_GUESS,      /* FIRST, and NEXT, with this step's update ahead of its norm; it is pending */
    PLAN_GUESS_NEXT, /* where the norm says otherwise */
    PLAN_DRAIN,      /* the pending update alone */
    PLAN_EVAL,       /* forward alone */
    PLAN_NEXT_SAVE,  /* as NEXT, and what the pending update makes also goes to a checkpoint */
    PLAN_DRAIN_SAVE, /* as DRAIN, the same */
    PLAN_FIRST_SAVE_OWN, /* as FIRST and NEXT, and so does what this step's own update makes inside */
    PLAN_NEXT_SAVE_OWN, /* backward */
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
    double queue_seconds[PLAN_Q_COUNT];    /* a queue had a command running */
    double resource_seconds[PLAN_R_COUNT]; /* a resource was in use */
    enum plan_resource bottleneck;         /* the one in use the longest */
    uint64_t store_read_bytes;
    uint64_t store_write_bytes;
    uint64_t up_bytes;
    uint64_t down_bytes;
};

/* A policy that fits and was not chosen: the fastest with its activations and timing, with the
 * slots and chunks that were tried first. */
struct plan_alternative {
    enum plan_acts acts;
    enum plan_order order;
    enum plan_timing timing;
    double step_seconds;
    uint64_t device_bytes; /* with what the runtime takes, as the next */
    uint64_t host_bytes;
    uint64_t store_write_bytes; /* a step */
};

#endif
