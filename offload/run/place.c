/* place.c: divides a rank's threads among nodes by processors, and its chunks by threads. */
#include "offload/run/place.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/mem_limits.h"
#include "core/base/topo_read.h"
#include "core/coll/peers.h"

const struct run_place run_place_none = {0};

/* ---- deciding without a machine ---- */

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* Nodes get threads [first, end) in proportion to processors, at least one. */
static void divide_threads(struct run_place *place, unsigned threads)
{
    unsigned cpus = 0;
    unsigned before = 0;
    for (uint32_t n = 0; n < place->node_count; n++) {
        cpus += core_cpus_count(&place->nodes[n].cpus);
    }
    for (uint32_t n = 0; n < place->node_count; n++) {
        struct run_place_node *node = &place->nodes[n];
        node->first = n > 0 ? node[-1].end : 0;
        before += core_cpus_count(&node->cpus);
        node->end = (unsigned)((uint64_t)threads * before / cpus);
        const unsigned after = place->node_count - n - 1; /* nodes that also need a thread */
        node->end = node->end > node->first ? node->end : node->first + 1;
        node->end = least(node->end, threads - after);
    }
}

/* The next turn goes to the node with the fewest turns per thread. */
static void take_turns(struct run_place *place, unsigned threads)
{
    uint32_t had[RUN_PLACE_NODES_MAX] = {0};
    place->turn_count = least(threads, RUN_PLACE_TURN_MAX);
    for (uint32_t t = 0; t < place->turn_count; t++) {
        uint32_t best = 0;
        for (uint32_t n = 1; n < place->node_count; n++) {
            const struct run_place_node *a = &place->nodes[n];
            const struct run_place_node *b = &place->nodes[best];
            if ((uint64_t)(had[n] + 1) * (b->end - b->first) <
                (uint64_t)(had[best] + 1) * (a->end - a->first)) {
                best = n;
            }
        }
        had[best]++;
        place->turn[t] = (uint8_t)best;
    }
}

static void place_drives(const struct core_topo *topo, const struct run_place_wish *wish,
                         struct run_place *place)
{
    for (uint32_t i = 0; i < wish->drive_count && i < STORE_PATHS_MAX; i++) {
        const struct core_topo_device *drive = wish->drives[i] != NULL
                                                   ? core_topo_device_find(topo, wish->drives[i])
                                                   : NULL;
        const struct core_topo_node *node = drive != NULL ? core_topo_node_find(topo, drive->node)
                                                          : NULL;
        if (node != NULL) {
            place->store_cpus[i] = node->cpus;
        }
    }
}

static void unite(struct core_cpus *all, const struct core_cpus *more)
{
    for (size_t i = 0; i < sizeof all->bits / sizeof all->bits[0]; i++) {
        all->bits[i] |= more->bits[i];
    }
}

int run_place_decide(const struct core_topo *topo, const struct run_place_wish *wish,
                     struct run_place *out)
{
    int beside[CORE_CPUS_MAX];
    struct core_topo_place decided;
    *out = (struct run_place){0};
    if (topo->node_count < 2) {
        return 0;
    }
    if (wish->ranks > CORE_CPUS_MAX) {
        return core_err_set(-EINVAL, "%u ranks on a machine; at most %d can be placed", wish->ranks,
                            CORE_CPUS_MAX);
    }
    for (uint32_t rank = 0; rank < wish->ranks; rank++) {
        beside[rank] = wish->card;
    }
    const struct core_topo_wish asked = {
        .rank = wish->rank, .ranks = wish->ranks, .beside = wish->card >= 0 ? beside : NULL};
    int rc = core_topo_decide(topo, &asked, &decided);
    if (rc != 0) {
        return rc;
    }
    /* A rank with fewer threads than nodes uses the first nodes from its home on. */
    out->node_count = least(decided.share_count, least(wish->threads, RUN_PLACE_NODES_MAX));
    for (uint32_t n = 0; n < out->node_count; n++) {
        out->nodes[n] = (struct run_place_node){.number = decided.shares[n].node,
                                                .cpus = decided.shares[n].cpus};
        unite(&out->cpus, &decided.shares[n].cpus);
    }
    divide_threads(out, wish->threads);
    take_turns(out, wish->threads);
    place_drives(topo, wish, out);
    return 0;
}

/* ---- the places on this machine ---- */

/* Counts the ranks on this rank's processors: threads of this process, or processes of this host
 * with the same binding. */
static void count_ranks(const struct run_options *options, const struct coll_peers *peers,
                        struct run_place_wish *wish)
{
    wish->ranks = options->local > 0 ? options->local : 1;
    wish->rank = options->rank % wish->ranks;
    if (peers == NULL) {
        return;
    }
    const struct coll_peer *own = coll_peers_at(peers, options->rank);
    wish->ranks = wish->rank = 0;
    for (unsigned r = 0; r < coll_peers_world(peers); r++) {
        const struct coll_peer *peer = coll_peers_at(peers, r);
        if (strcmp(peer->host, own->host) == 0 &&
            memcmp(&peer->cpus, &own->cpus, sizeof own->cpus) == 0) {
            wish->ranks++;
            wish->rank += r < options->rank;
        }
    }
}

/* Much faster than reading a machine's layout. */
static bool has_nodes(void)
{
    struct core_cpus nodes;
    core_mem_nodes("", &nodes);
    return core_cpus_count(&nodes) > 1;
}

void run_place_create(const struct run_options *options, const struct coll_peers *peers, int card,
                      struct run_place *out)
{
    struct core_topo *topo = NULL;
    char names[STORE_PATHS_MAX][CORE_TOPO_NAME_BYTES];
    const char *drives[STORE_PATHS_MAX] = {NULL};
    *out = (struct run_place){0};
    if (options->numa_off || (options->topology == NULL && !has_nodes())) {
        return;
    }
    int rc = core_topo_create(options->topology != NULL ? CORE_TOPO_SYSFS : CORE_TOPO_LIVE,
                              options->topology, NULL, &topo);
    if (rc == 0) {
        struct run_place_wish wish = {.threads = options->threads,
                                      .card = card,
                                      .drives = drives,
                                      .drive_count = options->store_count};
        for (unsigned i = 0; topo->node_count > 1 && i < options->store_count; i++) {
            const char *directory = options->stores[i].directory;
            const bool known = directory != NULL &&
                               core_topo_drive_of(directory, names[i], sizeof names[i]) == 0;
            drives[i] = known ? names[i] : NULL;
        }
        count_ranks(options, peers, &wish);
        rc = run_place_decide(topo, &wish, out);
    }
    core_topo_destroy(topo);
    if (rc == 0 && out->node_count > 0) {
        char text[1024];
        core_log(CORE_LOG_INFO, "rank %u: %s", options->rank,
                 run_place_print(out, text, sizeof text));
    }
    if (rc != 0) {
        core_log(CORE_LOG_WARN, "%s; memory and threads are not placed on NUMA nodes",
                 core_err_message());
    }
}

/* ---- using the places ---- */

uint32_t run_place_of_chunk(const struct run_place *place, uint64_t block, uint64_t chunk)
{
    return place->turn_count > 0 ? place->turn[(block + chunk) % place->turn_count] : 0;
}

uint32_t run_place_of_slot(const struct run_place *place, uint32_t buffer)
{
    return run_place_of_chunk(place, buffer, 0);
}

int run_place_team(const struct run_place *place, const char *name, unsigned threads,
                   struct core_team **out)
{
    struct core_team_options team = {.name = name, .count = threads};
    struct core_cpus *sets = NULL;
    if (place->node_count > 0) {
        sets = calloc(threads, sizeof *sets);
        if (sets == NULL) {
            return core_err_set(-ENOMEM, "no memory to place %u threads", threads);
        }
        for (uint32_t n = 0; n < place->node_count; n++) {
            for (unsigned i = place->nodes[n].first; i < place->nodes[n].end; i++) {
                sets[i] = place->nodes[n].cpus;
            }
        }
        team.sets = sets;
    }
    const int rc = core_team_create(&team, out);
    free(sets);
    return rc;
}

__attribute__((format(printf, 4, 5))) static size_t say(char *text, size_t bytes, size_t at,
                                                        const char *format, ...)
{
    va_list list;
    va_start(list, format);
    const int length = vsnprintf(text + at, bytes - at, format, list);
    va_end(list);
    const size_t left = bytes - at - 1;
    return at + ((size_t)length < left ? (size_t)length : left);
}

const char *run_place_print(const struct run_place *place, char *text, size_t bytes)
{
    size_t at = 0;
    text[0] = '\0';
    for (uint32_t n = 0; n < place->node_count; n++) {
        const struct run_place_node *node = &place->nodes[n];
        char cpus[128];
        core_cpus_print(&node->cpus, cpus, sizeof cpus);
        at = say(text, bytes, at, "%snode %d (%u thread%s on processors %s)", n > 0 ? ", " : "",
                 node->number, node->end - node->first, node->end - node->first == 1 ? "" : "s",
                 cpus);
    }
    return text;
}
