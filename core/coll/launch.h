/* launch.h: the processes that a launcher (mpirun, srun, torchrun) started together with this one,
 * as the environment describes them. Pure functions of the environment; any thread. */
#ifndef CORE_COLL_LAUNCH_H
#define CORE_COLL_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

/* The MPI library that the launcher belongs to. ANY: the launcher starts processes of either
 * library, or needs none. */
enum coll_flavour { COLL_FLAVOUR_ANY, COLL_FLAVOUR_OPENMPI, COLL_FLAVOUR_MPICH };

enum { COLL_RENDEZVOUS_BYTES = 288 };

struct coll_launch {
    const char *launcher; /* "mpirun (Open MPI)"; NULL: this process was started alone */
    enum coll_flavour flavour;
    /* whether torchrun alone started the processes; it does not connect them over MPI */
    bool torchrun;
    unsigned rank, world; /* world 0: only the MPI library knows it */
    /* torchrun: where its processes meet, "HOST:PORT": MASTER_ADDR and the port after MASTER_PORT;
     * torchrun's agent uses MASTER_PORT itself. "": these variables do not name an address */
    char rendezvous[COLL_RENDEZVOUS_BYTES];
    /* torchrun: a hash of the variables that identify this run; it is the same in all its
     * processes */
    uint64_t run;
};

/* Finds the launcher by the variables that `get` returns (getenv, or a test's function). Returns 0,
 * or -EINVAL with a message if two variables contradict each other, if a variable is not a number,
 * or if RANK and a WORLD_SIZE of 2 or more are set without LOCAL_RANK and without the variables of
 * another launcher. */
int coll_launch_find(const char *(*get)(const char *name), struct coll_launch *out);

/* Returns only the rank, even if coll_launch_find() fails, so that only the first process reports
 * that error. Returns 0 if no variable has a rank. */
unsigned coll_launch_rank(const char *(*get)(const char *name));

#endif
