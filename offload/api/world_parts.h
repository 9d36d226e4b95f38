/* world_parts.h: struct tide_world; private to world.c and setup_ranks.c. */
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
    char difference[512];     /* describes the first argument that differs; "": none does */
};

/* Returns the largest number of ranks on one host. They share its budget. */
unsigned world_ranks_per_host(const struct coll_peers *peers);
/* Returns the number of ranks on this process's host. */
unsigned world_ranks_of_host(const struct coll_peers *peers);
/* Returns threads per rank; the host with the fewest processors per rank decides. */
unsigned world_threads(const struct coll_peers *peers);
/* Returns computing threads per processor on the fullest host while all ranks compute; at least 1.
 * Threads of a rank beyond its processors do not count: measured rates include their effect. */
double world_crowding(const struct coll_peers *peers, unsigned threads);
/* Warns if a launcher binds a rank to fewer processors than it has threads. */
void world_check_binding(const struct coll_peers *peers, unsigned threads);

#endif
