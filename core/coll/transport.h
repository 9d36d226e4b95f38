/* transport.h: the interface that moves bytes between the processes of a run. mpi_module.c
 * implements it over an MPI library. It is built as a loadable module once for each library (Open
 * MPI and MPICH are not compatible), because a program that is linked with one library does not
 * start on a machine without it. tcp.c implements the interface over TCP for torchrun, which does
 * not connect the processes that it starts. transport.c chooses one. A process has one transport at
 * a time, and one thread at a time calls it (peers.c). Functions that fail return -errno and write
 * the reason to `why`, of COLL_TRANSPORT_WHY_BYTES. */
#ifndef CORE_COLL_TRANSPORT_H
#define CORE_COLL_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/coll/launch.h"

enum { COLL_TRANSPORT_VERSION = 3, COLL_TRANSPORT_WHY_BYTES = 512, COLL_TRANSPORT_ANY = -1 };

struct coll_transport_options {
    const struct coll_launch *launch;
    unsigned slots; /* the number of transfers that can be in flight */
    /* TCP only: the limit for all processes to arrive, and a function that returns true to stop
     * waiting earlier. MPI needs neither: its launchers end processes that wait in vain */
    int64_t limit_ns;
    bool (*stop)(void *user);
    void *user;
};

struct coll_place {
    unsigned rank, world;
    char library[128]; /* the name and version of the MPI library, or "TCP" */
};

struct coll_transport {
    int version; /* COLL_TRANSPORT_VERSION */
    /* Connects this process with the others. MPI: initialises MPI unless the application has done
     * so, and duplicates the communicator of all processes. */
    int (*open)(const struct coll_transport_options *options, struct coll_place *out, char *why);
    /* Closes the connections. All processes must call it. No transfer may be in flight. */
    int (*close)(char *why);
    /* Ends this process, and over MPI all others, too. Over TCP, the others see the closed
     * connection. */
    void (*abort)(int code);
    /* Waits until the process of a rank has ended, at most for the limit. MPI does not report that:
     * the function waits for the limit, or until that process ends this one. No other thread may be
     * in the transport. */
    void (*wait_end)(unsigned rank, int64_t limit_ns);
    /* Begin a transfer in a free slot. Transfers with the same tag between two processes keep their
     * order. */
    int (*send)(unsigned slot, unsigned to, int tag, const void *from, size_t bytes, char *why);
    int (*receive)(unsigned slot, int from, int tag, void *to, size_t bytes, char *why);
    /* Moves data without waiting. TCP: a failed connection is reported after each finished transfer
     * with that process has been tested, so that the reason that a process sends before it ends is
     * received. The first failure is reported. */
    int (*progress)(char *why);
    /* Returns 1 if the slot's transfer is done: the slot is free again, and a receive has set
     * *bytes to the size of its message. Returns 0 if it is not done. */
    int (*test)(unsigned slot, size_t *bytes, char *why);
    /* Ends a receive and frees its slot. Returns 1 if it was cancelled, 0 if it has received its
     * message. */
    int (*cancel)(unsigned slot, char *why);
};

/* The symbol that a module exports: const struct coll_transport *coll_mpi_module(void). */
#define COLL_MPI_SYMBOL "coll_mpi_module"

extern const struct coll_transport coll_transport_tcp;

/* Chooses the transport between the processes of a launcher. Returns -ENOTSUP with a message if its
 * module is missing, cannot be loaded or is of another version. The module of an MPI library stays
 * loaded. */
int coll_transport_load(const struct coll_launch *launch, const struct coll_transport **out);

#endif
