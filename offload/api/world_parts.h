/* world_parts.h: the struct behind tide_world; private to world.c and setup.c. */
#ifndef OFFLOAD_API_WORLD_PARTS_H
#define OFFLOAD_API_WORLD_PARTS_H

#include <stdbool.h>
#include <tide/world.h>

#include "core/coll/peers.h"

struct tide_world {
    struct tide_world_options given;
    struct coll_launch launch;
    struct coll_peers *peers; /* owned */
    bool follows;             /* tide_world_follow was called */
};

/* Ranks on the host with the most of them. A budget is for a host, so this many ranks share it. */
unsigned world_ranks_per_host(const struct coll_peers *peers);
/* Ranks on this process's host. */
unsigned world_ranks_of_host(const struct coll_peers *peers);
/* Threads for each rank: the processors that the ranks of a host may use together, shared by them; the least of
 * all hosts. */
unsigned world_threads(const struct coll_peers *peers);
/* Computing threads per processor while all ranks compute, on the host with the most; at least 1. Of a rank's
 * threads only as many count as it has processors, because rates are measured with the same threads by a rank
 * that computes alone. */
double world_crowding(const struct coll_peers *peers, unsigned threads);
/* Warns if a launcher binds a rank to fewer processors than it has threads. */
void world_check_binding(const struct coll_peers *peers, unsigned threads);

#endif
