/* topo_place.c: decides a rank's nodes and processors. Pure. */
#include <errno.h>

#include "core/base/err.h"
#include "core/base/topo.h"

struct homes {
    uint32_t count;                      /* nodes that can be homes */
    uint32_t index[CORE_TOPO_NODES_MAX]; /* their indices in topo->nodes */
};

/* The nodes with processors and memory; if there are none, those with processors. */
static struct homes find_homes(const struct core_topo *topo)
{
    struct homes homes = {0};
    for (int need_memory = 1; need_memory >= 0 && homes.count == 0; need_memory--) {
        for (uint32_t i = 0; i < topo->node_count; i++) {
            const struct core_topo_node *node = &topo->nodes[i];
            if (core_cpus_count(&node->cpus) > 0 && (node->bytes > 0 || need_memory == 0)) {
                homes.index[homes.count++] = i;
            }
        }
    }
    return homes;
}

/* A rank's home is its GPU's node; if that is unknown or cannot be a home, ranks take homes in
 * turn. */
static uint32_t home_of(const struct core_topo *topo, const struct homes *homes,
                        const struct core_topo_wish *wish, uint32_t rank)
{
    for (uint32_t i = 0; wish->beside != NULL && i < homes->count; i++) {
        if (topo->nodes[homes->index[i]].number == wish->beside[rank]) {
            return i;
        }
    }
    return rank % homes->count;
}

/* Returns whether wish->rank uses the home: its own, or one without ranks that is assigned to it.
 * Sets `users` to the number of ranks that use the home, and `mine` to this rank's index among
 * them. */
static bool uses(const struct core_topo *topo, const struct homes *homes,
                 const struct core_topo_wish *wish, uint32_t home, uint32_t *mine, uint32_t *users)
{
    bool used = false;
    *mine = 0;
    *users = 0;
    for (uint32_t rank = 0; rank < wish->ranks; rank++) {
        if (home_of(topo, homes, wish, rank) == home) {
            used |= rank == wish->rank;
            *mine += rank < wish->rank;
            (*users)++;
        }
    }
    if (*users == 0) {
        *users = 1;
        *mine = 0;
        return home % wish->ranks == wish->rank;
    }
    return used;
}

/* Sets *out to part `mine` of `users` of a node's cores. If users outnumber cores, they take cores
 * in turn. */
static void cut_cpus(const struct core_topo *topo, const struct core_topo_node *node, uint32_t mine,
                     uint32_t users, struct core_cpus *out)
{
    struct core_cpus cores;
    core_topo_cores(topo, &node->cpus, &cores);
    uint32_t count = core_cpus_count(&cores);
    uint32_t begin = mine * count / users;
    uint32_t end = (mine + 1) * count / users;
    if (users > count) {
        begin = mine % count;
        end = begin + 1;
    }
    struct core_cpus set = {0};
    for (uint32_t i = begin; i < end; i++) {
        unsigned core = topo->core_of[core_cpus_nth(&cores, i)];
        for (unsigned cpu = 0; cpu < CORE_CPUS_MAX; cpu++) {
            if (core_cpus_has(&node->cpus, cpu) && topo->core_of[cpu] == core) {
                core_cpus_add(&set, cpu);
            }
        }
    }
    *out = set;
}

int core_topo_decide(const struct core_topo *topo, const struct core_topo_wish *wish,
                     struct core_topo_place *out)
{
    struct homes homes = find_homes(topo);
    if (wish->ranks == 0 || wish->rank >= wish->ranks || homes.count == 0) {
        return core_err_set(-EINVAL, "rank %u of %u cannot be placed on %u nodes", wish->rank,
                            wish->ranks, homes.count);
    }
    struct core_topo_place place = {0};
    uint32_t home = home_of(topo, &homes, wish, wish->rank);
    for (uint32_t i = 0; i < homes.count; i++) {
        uint32_t at = (home + i) % homes.count;
        uint32_t mine;
        uint32_t users;
        if (uses(topo, &homes, wish, at, &mine, &users)) {
            const struct core_topo_node *node = &topo->nodes[homes.index[at]];
            struct core_topo_share *share = &place.shares[place.share_count++];
            share->node = node->number;
            cut_cpus(topo, node, mine, users, &share->cpus);
        }
    }
    *out = place;
    return 0;
}
