/* mpi_functions.h: what tide uses of an MPI library. mpi_module.c implements it and is built as a loadable
 * module once for each MPI library (Open MPI and MPICH are not compatible), because a program that is linked with
 * one does not start where that one is missing. peers.c loads it. One thread enters. Functions that fail
 * return -EIO and write the reason to `why`. */
#ifndef CORE_COLL_MPI_FUNCTIONS_H
#define CORE_COLL_MPI_FUNCTIONS_H

#include <stddef.h>

enum { COLL_MPI_VERSION = 1, COLL_MPI_WHY_BYTES = 256, COLL_MPI_ANY = -1 };

struct coll_mpi_place {
    unsigned rank, world;
    char library[128]; /* the library's name and version */
};

struct coll_mpi_functions {
    int version; /* COLL_MPI_VERSION of the module */
    /* Initialises MPI unless the application has, and duplicates the communicator of all processes. `slots` is
     * the number of transfers that can be under way. */
    int (*open)(unsigned slots, struct coll_mpi_place *out, char *why);
    /* Ends MPI if open initialised it. All processes have to call it. No transfer may be under way. */
    int (*close)(char *why);
    /* Ends all processes. */
    void (*abort)(int code);
    /* Begin a transfer in a free slot. Transfers with the same tag between two processes keep their order. */
    int (*send)(unsigned slot, unsigned to, int tag, const void *from, size_t bytes, char *why);
    int (*receive)(unsigned slot, int from, int tag, void *to, size_t bytes, char *why);
    /* 1: the transfer of the slot is done, which is free again; *bytes were received. 0: it is not. */
    int (*test)(unsigned slot, size_t *bytes, char *why);
    /* Cancels a receive, whose slot is free again: 1: it was cancelled; 0: it was done already. */
    int (*cancel)(unsigned slot, char *why);
};

/* The symbol that a module exports: const struct coll_mpi_functions *coll_mpi_module(void). */
#define COLL_MPI_SYMBOL "coll_mpi_module"

#endif
