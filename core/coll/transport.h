/* transport.h: moves bytes between the processes of a run: mpi_module.c over MPI, tcp.c over TCP
 * for torchrun, chosen by transport.c. Each MPI library has its own loadable module, because Open
 * MPI and MPICH are not compatible and may be missing. A process has one transport, called by one
 * thread at a time (peers.c). Functions that fail return -errno and write the reason to `why`, of
 * COLL_TRANSPORT_WHY_BYTES. */
#ifndef CORE_COLL_TRANSPORT_H
#define CORE_COLL_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/coll/launch.h"

enum { COLL_TRANSPORT_VERSION = 3, COLL_TRANSPORT_WHY_BYTES = 512, COLL_TRANSPORT_ANY = -1 };

struct coll_transport_options {
    const struct coll_launch *launch;
    unsigned slots; /* limit of transfers in flight */
    /* TCP: the limit of the arrival, and a function that returns true to stop it. MPI's launchers
     * end processes that wait in vain */
    int64_t limit_ns;
    bool (*stop)(void *user);
    void *user;
};

struct coll_place {
    unsigned rank, world;
    char library[128]; /* "TCP", or the MPI library and version */
};

struct coll_transport {
    int version; /* COLL_TRANSPORT_VERSION */
    /* Connects the processes. MPI: initialises MPI unless the application has, and duplicates the
     * communicator. */
    int (*open)(const struct coll_transport_options *options, struct coll_place *out, char *why);
    /* All processes must call it, without transfers in flight. */
    int (*close)(char *why);
    /* Ends this process, over MPI all. Over TCP, others see the closed connection. */
    void (*abort)(int code);
    /* Waits until a rank's process has ended, at most for the limit. MPI does not report the end:
     * the function waits for the limit, unless that process ends this one. No other thread may be
     * in the transport. */
    void (*wait_end)(unsigned rank, int64_t limit_ns);
    /* Begin a transfer in a free slot. Transfers between two processes with the same tag keep their
     * order. */
    int (*send)(unsigned slot, unsigned to, int tag, const void *from, size_t bytes, char *why);
    int (*receive)(unsigned slot, int from, int tag, void *to, size_t bytes, char *why);
    /* Moves data without waiting. TCP: reports the first failed connection after finished transfers
     * with that process were tested, so that its reason is received. */
    int (*progress)(char *why);
    /* Returns 1 if the transfer is done: the slot is free, and *bytes is a received message's size.
     * Else 0. */
    int (*test)(unsigned slot, size_t *bytes, char *why);
    /* Ends a receive and frees its slot. Returns 1 if it was cancelled, 0 if its message was
     * received. */
    int (*cancel)(unsigned slot, char *why);
};

/* A module exports const struct coll_transport *coll_mpi_module(void). */
#define COLL_MPI_SYMBOL "coll_mpi_module"

extern const struct coll_transport coll_transport_tcp;

/* Chooses the launcher's transport. Returns -ENOTSUP with a message if its module is missing,
 * cannot be loaded or has another version. A loaded MPI library stays loaded. */
int coll_transport_load(const struct coll_launch *launch, const struct coll_transport **out);

#endif
