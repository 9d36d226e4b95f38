/* peers.h: the processes of a run, one rank each, which a launcher started. One thread calls the
 * transport (transport.h: MPI, or TCP under torchrun); other threads post transfers to that thread
 * and wait. The first process checks the others, and they check the first. A process that does not
 * respond within the limit ends the world: waits then fail with a message that names the process,
 * and coll_peers_close ends its caller's process. A rank that fails in a live process tells the
 * others in a transfer, which does not end the world. */
#ifndef CORE_COLL_PEERS_H
#define CORE_COLL_PEERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/cpus.h"
#include "core/coll/launch.h"

struct coll_peers;
struct core_bell;

enum { COLL_HOST_BYTES = 64, COLL_PEERS_MAX = 1024 };

struct coll_peers_options {
    struct coll_launch launch;
    const char *identity; /* identity of the build, equal in all processes */
    int64_t silence_ns;   /* how long a process may be silent; 0: 60 s */
    /* Called on the transport's thread, at least about ten times a second, while the world is open,
     * and over TCP while processes arrive. true requests a stop, which coll_peers_stopping reports,
     * or ends the arrival with -ECANCELED. NULL: never. */
    bool (*stop)(void *user);
    void *user;
};

/* Connects this process with the others. Returns -ENOTSUP if no MPI library can be loaded, -EPROTO
 * if the processes differ. Over TCP, processes must arrive within twice silence_ns. */
int coll_peers_open(const struct coll_peers_options *options, struct coll_peers **out);
/* All processes must call it. Accepts NULL. After an error of the world, ends this process (over
 * MPI all) with `code`, or with 1 if `code` is not positive. */
void coll_peers_close(struct coll_peers *peers, int code);

unsigned coll_peers_rank(const struct coll_peers *peers);
unsigned coll_peers_world(const struct coll_peers *peers);
const char *coll_peers_library(const struct coll_peers *peers);

/* A process, as it described itself. */
struct coll_peer {
    char host[COLL_HOST_BYTES];
    struct core_cpus cpus; /* processors that it may use */
    char identity[128];
};
const struct coll_peer *coll_peers_at(const struct coll_peers *peers, unsigned rank);

/* Ranks that gave the same host name. */
struct coll_host {
    unsigned ranks;
    unsigned first;        /* the lowest of these ranks */
    unsigned index;        /* index of `rank` among them */
    struct core_cpus cpus; /* processors that any of them may use */
};
void coll_peers_host(const struct coll_peers *peers, unsigned rank, struct coll_host *out);

/* Returns whether any process was asked to stop. Only for the first process. */
bool coll_peers_stopping(const struct coll_peers *peers);
/* Returns 0, or the error that ended the world, with its message. After an error no transfer moves
 * data. */
int coll_peers_error(struct coll_peers *peers);
/* Returns whether the first process told of the end of the world, and so reports the error. */
bool coll_peers_told(const struct coll_peers *peers);
/* Ends the world with `code` and this thread's message, unless it has ended; returns the error. */
int coll_peers_fail(struct coll_peers *peers, int code);

/* ---- transfers ---- */

enum coll_transfer_state { COLL_TRANSFER_FREE, COLL_TRANSFER_POSTED, COLL_TRANSFER_DONE };

/* Owned by the transport's thread from coll_peers_post() until it is done. */
struct coll_transfer {
    bool sends;
    unsigned peer;
    int tag; /* a tag of coll_peers_tags() */
    void *at;
    size_t bytes;      /* size of the data; of a receive, size of the buffer */
    size_t received;   /* bytes received, when done */
    _Atomic int state; /* enum coll_transfer_state; DONE is released after the bytes */
    unsigned slot;
    struct coll_transfer *next;
};

/* Reserves `count` tags and returns the first. Processes must reserve in the same order. After
 * 32,000 (MPI guarantees few more), tags start again. */
int coll_peers_tags(struct coll_peers *peers, int count);

/* Begins a transfer. Any thread. */
void coll_peers_post(struct coll_peers *peers, struct coll_transfer *transfer);
bool coll_transfer_done(const struct coll_transfer *transfer);
/* Withdraws a receive, which is then DONE, or FREE if nothing was received, unless the world has
 * ended. */
void coll_peers_withdraw(struct coll_peers *peers, struct coll_transfer *transfer);
/* Returns the bell that rings when transfers are done and when the world ends. */
struct core_bell *coll_peers_bell(struct coll_peers *peers);
/* Waits until none of `transfers` is in flight, without a limit. Returns 0, or the error that ended
 * the world. */
int coll_peers_wait(struct coll_peers *peers, const struct coll_transfer *transfers, size_t count);

/* Ends a received text with a NUL, because its sender may not have. */
void coll_peers_end_text(void *message, size_t room, size_t received);

/* Send or receive one message between the first process and another, and wait. Messages arrive in
 * order; one thread per process calls these. A message longer than `room` ends the world. */
int coll_peers_send(struct coll_peers *peers, unsigned to, const void *from, size_t bytes);
int coll_peers_receive(struct coll_peers *peers, unsigned from, void *to, size_t room,
                       size_t *bytes);

#endif
