/* ranks.h: a world of threads. A rank's thread runs a body; the case's thread checks
 * the results. */
#ifndef TESTS_COLL_RANKS_H
#define TESTS_COLL_RANKS_H

#include <stdint.h>

#include "core/coll/coll.h"

enum { WORLD_MAX = 5, COUNT_MAX = 3000 };
static const int64_t LONG_NS = 20000000000;

struct run;

/* Commands of a rank, and bytes received from other ranks. */
struct traffic {
    uint64_t commands;
    uint64_t received_bytes[COLL_OPS];
    uint64_t far_bytes[COLL_OPS]; /* from other hosts */
};
struct traffic traffic_of(const struct coll *coll);

struct rank {
    struct run *run; /* borrowed */
    unsigned index;
    struct coll *coll; /* owned by the thread */
    int rc;
    char message[512];
    uint32_t (*results)[COUNT_MAX]; /* [5] */
    uint32_t *from;                 /* [COUNT_MAX] */
    /* memory of `results` and `from`, unless run->arrange chooses other memory */
    uint32_t own[6][COUNT_MAX];
    struct traffic traffic;
};

struct run {
    unsigned world;
    int64_t limit_ns;
    int (*body)(struct rank *rank);
    void (*arrange)(struct rank *rank,
                    struct coll_options *options); /* NULL: default options of "local" */
    struct coll_meeting *meeting;
    uint64_t count;
    enum coll_type type;
    const uint64_t *borders;
    unsigned within;
    unsigned delay; /* the rank that arrives late, or a number for the body */
    struct rank *ranks;
};

void pause_ms(long ms);
/* Runs the body on the ranks' threads; the caller frees run->ranks. */
void run_ranks(struct run *run);
/* Submits a command and waits for it, for at most LONG_NS. */
int submit_wait(struct coll *coll, const struct coll_command *command);

#endif
