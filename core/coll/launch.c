/* launch.c: a table of launchers and their variables of rank and world. */
#include "core/coll/launch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/hash.h"

/* The most specific launcher is first, because variables of several may be set. Slurm also sets
 * SLURM_PROCID for the batch script; only a step has STEP variables. */
static const struct row {
    const char *launcher;
    const char *rank, *world; /* variables; `world` NULL: MPI knows it (PMIx) */
    const char *step;         /* another variable that must be set; NULL: none */
    enum coll_flavour flavour;
    bool torchrun;
} rows[] = {
    {"mpirun (Open MPI)", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", NULL,
     COLL_FLAVOUR_OPENMPI, false},
    {"mpiexec (PMI)", "PMI_RANK", "PMI_SIZE", NULL, COLL_FLAVOUR_MPICH, false},
    {"srun (Slurm)", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID", COLL_FLAVOUR_ANY,
     false},
    {"a launcher with PMIx", "PMIX_RANK", NULL, NULL, COLL_FLAVOUR_OPENMPI, false},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", COLL_FLAVOUR_ANY, true},
};
enum { ROWS = sizeof rows / sizeof rows[0] };

enum { NUMBER_MAX = 1000000 };

static int read_number(const char *(*get)(const char *name), const char *name, unsigned *out)
{
    const char *text = get(name);
    char *end = NULL;
    errno = 0;
    const unsigned long value = strtoul(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || value > NUMBER_MAX) {
        return core_err_set(
            -EINVAL, "the environment variable %s is \"%.100s\" (expected a number from 0 to %d)",
            name, text, NUMBER_MAX);
    }
    *out = (unsigned)value;
    return 0;
}

static bool is_set(const char *(*get)(const char *name), const struct row *row)
{
    return get(row->rank) != NULL && (row->world == NULL || get(row->world) != NULL) &&
           (row->step == NULL || get(row->step) != NULL);
}

static int read_torchrun(const char *(*get)(const char *name), struct coll_launch *found)
{
    static const char *const same[] = {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
                                       "MASTER_ADDR", "MASTER_PORT"};
    const char *host = get("MASTER_ADDR");
    const bool ported = get("MASTER_PORT") != NULL;
    unsigned local[2] = {0};
    unsigned port = 0;
    int rc = read_number(get, "LOCAL_RANK", &local[0]);
    if (rc == 0 && get("LOCAL_WORLD_SIZE") != NULL) {
        rc = read_number(get, "LOCAL_WORLD_SIZE", &local[1]);
        if (rc == 0 && (local[0] >= local[1] || local[1] > found->world)) {
            rc = core_err_set(
                -EINVAL,
                "LOCAL_RANK is %u, LOCAL_WORLD_SIZE is %u and WORLD_SIZE is %u: expected "
                "LOCAL_RANK below LOCAL_WORLD_SIZE, and LOCAL_WORLD_SIZE at most WORLD_SIZE",
                local[0], local[1], found->world);
        }
    }
    if (rc == 0 && ported) {
        rc = read_number(get, "MASTER_PORT", &port);
    }
    if (rc != 0) {
        return rc;
    }
    if (host != NULL && host[0] != '\0' && ported && port > 0 && port < UINT16_MAX) {
        snprintf(found->rendezvous, sizeof found->rendezvous,
                 strchr(host, ':') != NULL ? "[%.255s]:%u" : "%.255s:%u", host, port + 1);
    }
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        const char *text = get(same[i]);
        found->run = core_hash(text != NULL ? text : "", text != NULL ? strlen(text) : 0,
                               found->run);
    }
    return 0;
}

/* Refuses RANK and WORLD_SIZE of several processes without LOCAL_RANK, which some cluster managers
 * set: each process would train alone. */
static int check_alone(const char *(*get)(const char *name))
{
    const char *rank = get("RANK");
    unsigned world = 0;
    if (rank == NULL || get("WORLD_SIZE") == NULL) {
        return 0;
    }
    const int rc = read_number(get, "WORLD_SIZE", &world);
    return rc != 0 || world < 2
               ? rc
               : core_err_set(-EINVAL,
                              "RANK is %.100s and WORLD_SIZE is %u, but LOCAL_RANK is not set: "
                              "set it to this process's number on its machine, from 0, or unset "
                              "WORLD_SIZE to train with this process alone",
                              rank, world);
}

int coll_launch_find(const char *(*get)(const char *name), struct coll_launch *out)
{
    struct coll_launch found = {.launcher = NULL, .world = 1};
    const struct row *first = NULL;
    for (const struct row *row = rows; row < rows + ROWS; row++) {
        unsigned rank = 0;
        unsigned world = 0;
        if (!is_set(get, row)) {
            continue;
        }
        int rc = read_number(get, row->rank, &rank);
        if (rc == 0 && row->world != NULL) {
            rc = read_number(get, row->world, &world);
        }
        if (rc != 0) {
            return rc;
        }
        if (row->world != NULL && rank >= world) {
            return core_err_set(-EINVAL,
                                "%s is %u and %s is %u: a rank must be below the number of ranks",
                                row->rank, rank, row->world, world);
        }
        if (first == NULL) {
            first = row;
            found = (struct coll_launch){.launcher = row->launcher,
                                         .flavour = row->flavour,
                                         .torchrun = row->torchrun,
                                         .rank = rank,
                                         .world = world};
            continue;
        }
        /* Slurm counts mpirun's daemons, not the ranks. */
        const bool daemons = first->flavour != COLL_FLAVOUR_ANY &&
                             row->flavour == COLL_FLAVOUR_ANY && !row->torchrun;
        if (!daemons && found.world > 0 && world > 0 && world != found.world) {
            return core_err_set(-EINVAL,
                                "%s=%u contradicts %s=%u; start tide with one of %s and %s, or "
                                "unset the variables of the other",
                                first->world, found.world, row->world, world, first->launcher,
                                row->launcher);
        }
        if (!daemons && rank != found.rank) {
            return core_err_set(-EINVAL,
                                "%s=%u contradicts %s=%u; start tide with one of %s and %s, or "
                                "unset the variables of the other",
                                first->rank, found.rank, row->rank, rank, first->launcher,
                                row->launcher);
        }
    }
    const int rc = found.torchrun           ? read_torchrun(get, &found)
                   : found.launcher == NULL ? check_alone(get)
                                            : 0;
    if (rc == 0) {
        *out = found;
    }
    return rc;
}

unsigned coll_launch_rank(const char *(*get)(const char *name))
{
    for (const struct row *row = rows; row < rows + ROWS; row++) {
        unsigned rank = 0;
        if (is_set(get, row)) {
            return read_number(get, row->rank, &rank) == 0 ? rank : 0;
        }
    }
    return 0;
}
