/* team.c: one bell starts the members, and another reports the end. */
#include "core/base/team.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/bell.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/thread.h"

struct member {
    struct core_team *team; /* borrowed; owns the members */
    pthread_t thread;
    unsigned index;
    struct core_cpus cpus;
};

struct core_team {
    unsigned count;
    unsigned started; /* threads of members 1 .. started */
    int64_t spin_ns;
    char name[12];
    const struct core_log *log; /* borrowed from the creating thread */

    /* written before the ring of `start`, read after it */
    core_team_part *part;
    void *argument; /* borrowed */
    bool follows;   /* another run probably follows soon */
    bool ending;

    _Alignas(64) struct core_bell start;
    _Alignas(64) _Atomic unsigned working; /* members that have not returned */
    struct core_bell done;
    struct member members[]; /* [count]; [0], the caller, is unused */
};

static void *member_main(void *argument)
{
    struct member *self = argument;
    struct core_team *team = self->team;
    core_log_bind(team->log);
    char name[16];
    snprintf(name, sizeof name, "%s-%u", team->name, self->index % 1000);
    pthread_setname_np(pthread_self(), name);
    if (core_cpus_count(&self->cpus) > 0 && core_cpus_bind_self(&self->cpus) != 0) {
        core_log(CORE_LOG_WARN, "%s; the thread is left unpinned", core_err_message());
    }
    uint32_t seen = 0;
    int64_t spin_ns = team->spin_ns;
    for (;;) {
        while (core_bell_look(&team->start) == seen) {
            core_bell_spin_sleep(&team->start, seen, spin_ns, -1);
        }
        seen++;
        if (team->ending) {
            return NULL;
        }
        team->part(team->argument, self->index, team->count);
        spin_ns = team->follows ? team->spin_ns : 0;
        /* Release: the caller, which acquires 0, sees what the member wrote. */
        if (atomic_fetch_sub_explicit(&team->working, 1, memory_order_acq_rel) == 1) {
            core_bell_ring(&team->done);
        }
    }
}

static int start_members(struct core_team *team, const struct core_team_options *options)
{
    for (unsigned i = 1; i < team->count; i++) {
        struct member *member = &team->members[i];
        member->team = team;
        member->index = i;
        if (options->sets != NULL) {
            member->cpus = options->sets[i];
        } else if (options->cpus != NULL) {
            member->cpus = *options->cpus;
        }
        int rc = core_thread_start(&member->thread, member_main, member);
        if (rc != 0) {
            return core_err_set(-rc, "cannot start thread %u of %u of team %s: %s", i, team->count,
                                team->name, strerror(rc));
        }
        team->started = i;
    }
    return 0;
}

int core_team_create(const struct core_team_options *options, struct core_team **out)
{
    unsigned count = options->count;
    if (count == 0) {
        struct core_cpus cpus;
        int rc = 0;
        if (options->cpus == NULL && (rc = core_cpus_allowed(&cpus)) != 0) {
            return rc;
        }
        count = core_cpus_count(options->cpus != NULL ? options->cpus : &cpus);
    }
    if (count == 0 || count > CORE_TEAM_MAX) {
        return core_err_set(-EINVAL, "thread count %u is out of range 1..%d", count, CORE_TEAM_MAX);
    }
    size_t bytes = sizeof(struct core_team) + count * sizeof(struct member);
    struct core_team *team = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (team == NULL) {
        return core_err_set(-ENOMEM, "no memory for a team of %u threads", count);
    }
    memset(team, 0, bytes);
    team->count = count;
    team->spin_ns = options->spin_ns != 0 ? options->spin_ns : CORE_TEAM_SPIN_NS;
    team->follows = true;
    team->log = core_log_bound();
    snprintf(team->name, sizeof team->name, "%s", options->name != NULL ? options->name : "team");
    core_bell_init(&team->start);
    core_bell_init(&team->done);
    atomic_init(&team->working, 0);
    int rc = start_members(team, options);
    if (rc != 0) {
        core_team_destroy(team);
        return rc;
    }
    *out = team;
    return 0;
}

void core_team_destroy(struct core_team *team)
{
    if (team == NULL) {
        return;
    }
    team->ending = true;
    core_bell_ring(&team->start);
    for (unsigned i = 1; i <= team->started; i++) {
        pthread_join(team->members[i].thread, NULL);
    }
    free(team);
}

void core_team_expect(struct core_team *team, bool follows)
{
    team->follows = follows;
}

void core_team_run(struct core_team *team, core_team_part *part, void *argument)
{
    assert(atomic_load_explicit(&team->working, memory_order_relaxed) == 0);
    if (team->count > 1) {
        team->part = part;
        team->argument = argument;
        atomic_store_explicit(&team->working, team->count - 1, memory_order_relaxed);
        core_bell_ring(&team->start);
    }
    part(argument, 0, team->count);
    for (;;) {
        uint32_t seen = core_bell_look(&team->done);
        if (atomic_load_explicit(&team->working, memory_order_acquire) == 0) {
            return;
        }
        core_bell_spin_sleep(&team->done, seen, team->follows ? team->spin_ns : 0, -1);
    }
}

unsigned core_team_count(const struct core_team *team)
{
    return team->count;
}

void core_team_share(uint64_t total, uint64_t grain, unsigned index, unsigned count,
                     uint64_t *begin, uint64_t *end)
{
    uint64_t grains = total / grain + (total % grain != 0);
    uint64_t each = grains / count;
    uint64_t more = grains % count;
    uint64_t first = index * each + (index < more ? index : more);
    uint64_t last = first + each + (index < more ? 1 : 0);
    *begin = first * grain < total ? first * grain : total;
    *end = last * grain < total ? last * grain : total;
}
