/* place.h: where a rank's memory and threads belong on a machine with several NUMA nodes. Decided
 * once; any thread reads it. */
#ifndef OFFLOAD_RUN_PLACE_H
#define OFFLOAD_RUN_PLACE_H

#include "core/base/team.h"
#include "core/base/topo.h"
#include "offload/run/options.h"

/* A node with some of a rank's chunks, and the threads that update them. */
struct run_place_node {
    int number; /* the kernel's number */
    struct core_cpus cpus;
    unsigned first, end; /* the team's members [first, end) run here */
};

enum { RUN_PLACE_NODES_MAX = 24, RUN_PLACE_TURN_MAX = 256 };

struct run_place {
    uint32_t node_count; /* 0: one node, or nothing is placed */
    struct run_place_node nodes[RUN_PLACE_NODES_MAX];
    struct core_cpus cpus; /* processors of all these nodes */
    /* The node of each chunk, in turn, in proportion to threads. */
    uint8_t turn[RUN_PLACE_TURN_MAX];
    uint32_t turn_count;
    /* near each path's drive; empty: anywhere */
    struct core_cpus store_cpus[STORE_PATHS_MAX];
};

struct coll_peers;

extern const struct run_place run_place_none;

struct run_place_wish {
    uint32_t rank, ranks; /* number of the rank, and count of ranks, on the same processors */
    unsigned threads;
    int card; /* the card's NUMA node, near which ranks are placed; -1: none */
    /* [drive_count]: each path's drive; NULL: unknown */
    const char *const *drives;
    uint32_t drive_count;
};

/* Pure. On a machine with one node, node_count is 0. */
int run_place_decide(const struct core_topo *topo, const struct run_place_wish *wish,
                     struct run_place *out);

/* Decides for a rank on this machine, or on the one in options->topology. `peers`: the processes;
 * NULL: only this one. If the layout cannot be read, logs a warning and places nothing. */
void run_place_create(const struct run_options *options, const struct coll_peers *peers, int card,
                      struct run_place *out);

/* Return the node, as an index of place->nodes, of a block's chunk and of a slot. */
uint32_t run_place_of_chunk(const struct run_place *place, uint64_t block, uint64_t chunk);
uint32_t run_place_of_slot(const struct run_place *place, uint32_t buffer);

/* Creates a team with members on their nodes, by `first` and `end`. */
int run_place_team(const struct run_place *place, const char *name, unsigned threads,
                   struct core_team **out);

/* Writes "node 0 (24 threads on processors 0-23), node 1 (24 threads on processors 24-47)". Returns
 * `text`. */
const char *run_place_print(const struct run_place *place, char *text, size_t bytes);

#endif
