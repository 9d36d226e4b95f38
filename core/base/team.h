/* team.h: threads that run one function together, repeatedly. A team has `count` members; the
 * thread that calls core_team_run is member 0. The other members are threads that wait for the next
 * call: they spin briefly and then sleep. One caller at a time. Nothing is allocated after
 * create. */
#ifndef CORE_BASE_TEAM_H
#define CORE_BASE_TEAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/cpus.h"

struct core_team;

enum { CORE_TEAM_MAX = 1024, CORE_TEAM_SPIN_NS = 50000 };

struct core_team_options {
    const char *name;             /* name of the threads, up to 11 bytes; NULL: "team" */
    unsigned count;               /* members, 1 to CORE_TEAM_MAX; 0: one per processor of `cpus` */
    const struct core_cpus *cpus; /* processors of the threads, read at create; NULL: those of the
                                   * caller. Member 0 is the caller and is not bound. */
    /* [count]: the processors of each member, instead of `cpus`; read at create; NULL: `cpus`
     * applies */
    const struct core_cpus *sets;
    /* how long a member spins before it sleeps; 0: CORE_TEAM_SPIN_NS, negative: not at all */
    int64_t spin_ns;
};

/* The function that each member runs: `index` of `count`. */
typedef void core_team_part(void *argument, unsigned index, unsigned count);

int core_team_create(const struct core_team_options *options, struct core_team **out);
/* Ends the threads. Accepts NULL. Must not be called while core_team_run runs. */
void core_team_destroy(struct core_team *team);

/* Tells the team whether each of the next runs will probably be followed by another at once;
 * initially yes. If not, all threads sleep after their part without spinning, which leaves the
 * processors to others. Called by the thread that calls core_team_run. */
void core_team_expect(struct core_team *team, bool follows);

/* Calls part(argument, index, count) once on each member and returns when all have returned. */
void core_team_run(struct core_team *team, core_team_part *part, void *argument);

unsigned core_team_count(const struct core_team *team);

/* Computes the part [*begin, *end) of `total` items that belongs to member `index` of `count`.
 * Parts are contiguous and in order; every border is a multiple of `grain` or `total`. Parts differ
 * by at most one grain, where an incomplete last grain counts as a whole one. */
void core_team_share(uint64_t total, uint64_t grain, unsigned index, unsigned count,
                     uint64_t *begin, uint64_t *end);

#endif
