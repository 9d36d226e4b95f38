/* tape.h: the commands of one step (or drain or evaluation), and the buffers that they name. Data
 * only: a tape is built once (builder.h) and never changes. A queue takes its commands in tape
 * order. An edge says "queue Q has done its N-th command", counted from the start of the tape; N
 * below 1 points into the previous tape. */
#ifndef OFFLOAD_PLAN_TAPE_H
#define OFFLOAD_PLAN_TAPE_H

#include <stdbool.h>
#include <stdint.h>

struct model_section;

enum plan_tier {
    PLAN_DEVICE,
    PLAN_HOST,
    PLAN_STORE,
    PLAN_TIER_COUNT,
    PLAN_APPLICATION = PLAN_TIER_COUNT, /* memory of the application: no budget counts it */
};

/* Queues of commands, in the order of the rows of prints and timelines. */
enum plan_queue {
    PLAN_Q_COMPUTE,          /* device: FWD, BWD, EXPAND, ROUND; a card's SUMS and UPDATE */
    PLAN_Q_UP,               /* HOST to DEVICE */
    PLAN_Q_DOWN,             /* DEVICE to HOST */
    PLAN_Q_COLL,             /* between ranks */
    PLAN_Q_UPDATE,           /* the update's team: sums of squares, norm, update */
    PLAN_Q_READ_WEIGHT,      /* STORE, most urgent */
    PLAN_Q_READ_STATE,       /* STORE */
    PLAN_Q_READ_ACT,         /* STORE, as urgent as weights; also rows of weights */
    PLAN_Q_WRITE_STATE,      /* STORE, the least urgent of the step's own queues */
    PLAN_Q_WRITE_ACT,        /* STORE */
    PLAN_Q_WRITE_CHECKPOINT, /* checkpoint files, less urgent than the step's queues */
    PLAN_Q_COUNT,
};

enum plan_op {
    /* STORE -> buffer: `streams` of a chunk, rows or pages of weights, or an activation */
    PLAN_READ,
    PLAN_WRITE,  /* buffer -> STORE, or files of a checkpoint */
    PLAN_H2D,    /* HOST -> DEVICE */
    PLAN_D2H,    /* DEVICE -> HOST */
    PLAN_GATHER, /* parts of all ranks or of a group -> whole block, or pages of it */
    PLAN_REDUCE, /* gradients or tile sums of ranks -> their sum: whole, or own shard */
    PLAN_EXPAND, /* stored or packed weights -> weights that compute reads */
    /* forward of a block or section, for a micro-batch or a group of them */
    PLAN_FWD,
    PLAN_BWD,    /* backward of a block or section, with recomputation if planned */
    PLAN_ROUND,  /* both fp32 sums of a shared parameter -> gradient type */
    PLAN_SUMS,   /* sums of squares of a gradient, by fixed tiles */
    PLAN_NORM,   /* all sums -> norm, clip factor, overflow verdict */
    PLAN_UPDATE, /* optimizer over a chunk; after NORM if it needs the verdict */
    PLAN_JOIN,   /* no work; collects edges beyond three */
    PLAN_OP_COUNT,
};

enum plan_stream {
    PLAN_W16 = 1 << 0,
    PLAN_MASTER = 1 << 1, /* lo16 (split master) or w32 */
    PLAN_M = 1 << 2,
    PLAN_V = 1 << 3,
    PLAN_G = 1 << 4,
    PLAN_ACT = 1 << 5,
    PLAN_M_SCALE = 1 << 6, /* scales of 8-bit moments; the next stream, too */
    PLAN_V_SCALE = 1 << 7,
};
enum { PLAN_STREAM_COUNT = 8 };

enum plan_access { PLAN_READS = 1, PLAN_WRITES = 2, PLAN_CHANGES = 3 };

/* An operand's role in its command. */
enum plan_role {
    PLAN_AS_NONE,
    PLAN_AS_WEIGHTS, /* FWD BWD: the block's own working weights, whole or rows */
    /* FWD BWD: the whole array of a borrowed block that does not come by sections; in the order of
     * plan_block_shape.borrows */
    PLAN_AS_BORROWED,
    PLAN_AS_SECTION, /* FWD BWD: the weights of `section` */
    PLAN_AS_IN,      /* boundary activations */
    PLAN_AS_OUT,
    PLAN_AS_OUT_GRAD, /* gradient of OUT before BWD, of IN after BWD; in place */
    PLAN_AS_KEPT,     /* kept activations; absent if recomputed */
    PLAN_AS_SCRATCH,  /* temporaries, followed by recomputed activations */
    /* gradient in its stored type: of a block, shard or chunk */
    PLAN_AS_GRAD,
    PLAN_AS_SUM,        /* fp32 sum of the block's gradients over micro-batches */
    PLAN_AS_SHARED_SUM, /* fp32 sum of a borrowing block's gradients of a borrowed parameter */
    PLAN_AS_SLOT,       /* state slot of a chunk */
    PLAN_AS_STATES,     /* resident states of a chunk */
    /* UPDATE, WRITE to a checkpoint: a chunk's working weights, unless in its slot */
    PLAN_AS_WEIGHTS_PLACE,
    PLAN_AS_EXTENT_W16, /* STORE side of READ and WRITE */
    PLAN_AS_EXTENT_STATES,
    PLAN_AS_EXTENT_GRAD,
    PLAN_AS_EXTENT_ACT,
    PLAN_AS_MEMORY, /* memory side of READ and WRITE that is not a state slot */
    PLAN_AS_FROM,   /* copies, GATHER, REDUCE, EXPAND */
    PLAN_AS_TO,
    PLAN_AS_CODES, /* REDUCE: room for the gradient as codes */
    PLAN_AS_TILE_SUMS,
    PLAN_AS_NORM,
    PLAN_ROLE_COUNT,
};

/* No block, buffer or micro-batch. */
#define PLAN_NONE UINT32_MAX

enum { PLAN_OPERAND_MAX = 10, PLAN_EDGE_MAX = 3 };

enum plan_consumer {
    PLAN_FOR_WEIGHTS,
    PLAN_FOR_STATES,
    PLAN_FOR_GRADIENTS,
    PLAN_FOR_ACTIVATIONS,
    PLAN_FOR_SLOTS,
    PLAN_FOR_SCRATCH,
    PLAN_FOR_DATA,    /* the application's data; no buffer of the plan */
    PLAN_FOR_RUNTIME, /* the runtime's memory; no buffer */
    PLAN_CONSUMER_COUNT,
};

/* A piece of a tier's arena; its offset is constant. */
struct plan_buffer {
    char name[32];
    uint64_t offset; /* in the tier's arena; 0 in the application's memory */
    uint64_t bytes;
    /* enum plan_tier. Data in STORE and in the application's memory is found by block and stream,
     * not by address. */
    uint8_t tier;
    uint8_t consumer; /* enum plan_consumer */
    uint32_t twin;    /* the buffer of its other generation, for commands ahead of the norm;
                       * PLAN_NONE: none */
};

struct plan_operand {
    uint32_t buffer; /* index in the plan's buffers */
    uint8_t access;  /* enum plan_access */
    uint8_t role;    /* enum plan_role */
    uint64_t offset; /* within the buffer */
    uint64_t bytes;
};

struct plan_edge {
    /* reached when the queue has done this many of the tape's commands */
    int32_t count;
    uint8_t queue; /* PLAN_Q_COUNT: no edge */
};

struct plan_command {
    uint8_t op;
    uint8_t queue;
    uint8_t streams; /* enum plan_stream bits of READ and WRITE; copies may leave it 0 */
    uint8_t operand_count;
    bool ahead;  /* the command updates before the norm is known: results go to the other
                  * generation, if any */
    bool single; /* FWD of only the first micro-batch of its group, for evaluation */
    bool rows;   /* READ, H2D: only the part of the weights that `micro` uses, known when the step
                 * begins; `bytes` is its maximum */
    bool pages;  /* READ, GATHER: whole pages of weights; READ reads this rank's shard from the
                 * operand's offset on. EXPAND: reads its section's pages */
    /* GATHER, EXPAND: weights are codes of 8 bits with scales; GATHER packs this rank's part,
     * unless `within`. REDUCE: gradients become codes of 4 bits in PLAN_AS_CODES */
    bool packed;
    /* GATHER: neighbouring ranks that gather their copy; 0: all ranks gather shards. REDUCE:
     * neighbouring ranks that add their gradients first; 0: all ranks add, in rank order */
    uint32_t within;
    uint32_t block;
    uint32_t micro;    /* micro-batch, or group (plan_input.group), or PLAN_NONE */
    uint32_t chunk;    /* chunk of the block's shard */
    uint32_t place;    /* number on its queue, from 1 */
    uint64_t elements; /* elements that the command works on */
    uint64_t bytes;    /* bytes that the command moves */
    /* GATHER, REDUCE: part of `bytes` between this rank and other nodes. */
    uint64_t between_bytes;
    uint64_t first; /* GATHER of pages: byte of the block where they begin */
    double work;    /* floating point operations */
    /* time alone; 0: given by `work` */
    double seconds;
    /* FWD, BWD: steps to compute; EXPAND: weights to expand; NULL: all. Borrowed from the shape of
     * the computing block */
    const struct model_section *section;
    struct plan_operand operands[PLAN_OPERAND_MAX];
    struct plan_edge edges[PLAN_EDGE_MAX];
};

struct plan_tape {
    struct plan_command *commands; /* owned, unless in the memory of plan_builder_begin_in() */
    uint32_t count;
    uint32_t queue_count[PLAN_Q_COUNT]; /* commands of each queue */
    /* updates ahead of its norm, so the next tape's reads wait for the verdict */
    bool guesses;
};

/* When a command ran, measured or simulated. */
struct plan_time {
    double begin_seconds;
    double end_seconds;
};

const char *plan_op_name(enum plan_op op);
const char *plan_queue_name(enum plan_queue queue);
const char *plan_tier_name(enum plan_tier tier);
const char *plan_consumer_name(enum plan_consumer consumer);
/* Finds the command that an edge of a tape names: *place on `edge.queue`, and *back if the command
 * is in the previous tape, `before` (NULL: none). Returns false if there is no edge, or no such
 * tape. */
bool plan_edge_find(struct plan_edge edge, const struct plan_tape *before, bool *back,
                    uint32_t *place);
/* Returns whether the command waits for its tape's gate: the verdict on the previous tape, and the
 * step's inputs. Reads of STORE do not wait, unless they depend on the inputs. */
bool plan_command_is_gated(const struct plan_command *command);
/* Returns the first operand with a role; NULL: none. */
const struct plan_operand *plan_command_operand(const struct plan_command *command,
                                                enum plan_role role);
/* Writes the names of streams to `text`, such as "w16+master+m+v", and returns `text`. */
const char *plan_streams_print(unsigned streams, char *text, unsigned bytes);

/* Bytes that a tape moves. Gathers receive gather_bytes from other ranks; reductions send
 * reduce_bytes. The `between` members are the parts that pass between nodes. */
struct plan_traffic {
    uint64_t store_read_bytes, store_write_bytes, up_bytes, down_bytes;
    uint64_t gather_bytes, reduce_bytes;
    uint64_t gather_between_bytes, reduce_between_bytes;
};
struct plan_traffic plan_tape_traffic(const struct plan_tape *tape);
void plan_traffic_add(struct plan_traffic *sum, const struct plan_traffic *more);

void plan_tape_fini(struct plan_tape *tape);

#endif
