/* team.h: `count` members run one function together, repeatedly. The caller of core_team_run is
 * member 0; the others are threads, which wait between runs. One caller at a time. Nothing is
 * allocated after create. */
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
    unsigned count;               /* 1 to CORE_TEAM_MAX; 0: one per processor of `cpus` */
    const struct core_cpus *cpus; /* read at create; NULL: those of the caller. Member 0 is not
                                   * bound */
    /* [count], read at create: processors by member, instead of `cpus`; NULL: `cpus` applies */
    const struct core_cpus *sets;
    /* how long a waiting member spins before it sleeps; 0: CORE_TEAM_SPIN_NS, <0: not at all */
    int64_t spin_ns;
};

typedef void core_team_part(void *argument, unsigned index, unsigned count);

int core_team_create(const struct core_team_options *options, struct core_team **out);
/* Accepts NULL. Not during core_team_run. */
void core_team_destroy(struct core_team *team);

/* Sets whether runs are expected to follow each other soon; initially yes. If not, threads do not
 * spin after a run. Called by the caller of core_team_run. */
void core_team_expect(struct core_team *team, bool follows);

/* Calls part(argument, index, count) once on each member, and waits until all have returned. */
void core_team_run(struct core_team *team, core_team_part *part, void *argument);

unsigned core_team_count(const struct core_team *team);

/* Computes the part [*begin, *end) of `total` items for member `index` of `count`. Parts are
 * contiguous, in order, and cut at multiples of `grain`. Counted in whole or begun grains, they
 * differ by at most one. */
void core_team_share(uint64_t total, uint64_t grain, unsigned index, unsigned count,
                     uint64_t *begin, uint64_t *end);

#endif
