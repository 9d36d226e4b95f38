/* launch.h: the processes that a launcher (mpirun, srun, torchrun) started, as the environment
 * describes them. No state; any thread. */
#ifndef CORE_COLL_LAUNCH_H
#define CORE_COLL_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

/* The launcher's MPI library. ANY: either library, or none. */
enum coll_flavour { COLL_FLAVOUR_ANY, COLL_FLAVOUR_OPENMPI, COLL_FLAVOUR_MPICH };

enum { COLL_RENDEZVOUS_BYTES = 288 };

struct coll_launch {
    const char *launcher; /* "mpirun (Open MPI)"; NULL: started alone */
    enum coll_flavour flavour;
    /* torchrun started the processes, and no MPI connects them */
    bool torchrun;
    unsigned rank, world; /* world 0: the MPI library knows it */
    /* "HOST:PORT"; with torchrun, MASTER_ADDR and MASTER_PORT + 1, because torchrun's agent uses
     * MASTER_PORT itself. "": no address */
    char rendezvous[COLL_RENDEZVOUS_BYTES];
    /* torchrun: a hash of this run's variables, equal in its processes */
    uint64_t run;
};

/* Finds the launcher by the variables that `get` returns (getenv). -EINVAL: variables contradict
 * each other or are not numbers, or RANK and WORLD_SIZE describe several processes, and neither
 * LOCAL_RANK nor another launcher's variables are set. */
int coll_launch_find(const char *(*get)(const char *name), struct coll_launch *out);

/* Returns the rank, even if coll_launch_find() fails, so that only the first process reports the
 * error; 0 if it is unknown. */
unsigned coll_launch_rank(const char *(*get)(const char *name));

#endif
