/* launch.h: what the environment says about the processes that a launcher (mpirun, srun, torchrun) started
 * together with this one. Pure functions of the environment; any thread. */
#ifndef CORE_COLL_LAUNCH_H
#define CORE_COLL_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

/* An MPI library that the launcher belongs to, or that it can start. */
enum coll_flavour { COLL_FLAVOUR_ANY, COLL_FLAVOUR_OPENMPI, COLL_FLAVOUR_MPICH };

enum { COLL_RENDEZVOUS_BYTES = 288 };

struct coll_launch {
    const char *launcher; /* "mpirun (Open MPI)"; NULL: this process was started alone */
    enum coll_flavour flavour;
    bool torchrun; /* torchrun alone, which starts processes but does not connect them over MPI */
    unsigned rank, world;
    /* torchrun: where its processes meet, "HOST:PORT": MASTER_ADDR and the port after MASTER_PORT, which its agent
     * uses itself. "": these variables do not name one */
    char rendezvous[COLL_RENDEZVOUS_BYTES];
    uint64_t
        run; /* torchrun: a hash of what the environment of all its processes says of this run */
};

/* `get` is getenv, or a test's. -EINVAL names two variables that contradict each other, or one that is not a
 * number. */
int coll_launch_find(const char *(*get)(const char *name), struct coll_launch *out);

/* The rank alone, also if coll_launch_find fails: only the first process reports an error. 0: alone. */
unsigned coll_launch_rank(const char *(*get)(const char *name));

#endif
