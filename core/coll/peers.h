/* peers.h: the processes of a run, which a launcher started together, one rank each. One thread of
 * this process calls the transport (transport.h: MPI, or TCP under torchrun); other threads post
 * transfers to it and wait for them. The first process checks that each other process is alive, and
 * each other process checks the first one.
 *
 * A process that does not respond within the limit, for example because it was killed or its
 * network is gone, ends the world: every wait then fails with a message that names it, and
 * coll_peers_close ends the process. If a rank fails and its process lives, the rank tells the
 * others in a transfer; that does not end the world. */
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
    const char *identity; /* identity of the program's build: all processes must have the same */
    int64_t silence_ns;   /* how long a process may not respond before the world ends; 0: 60 s */
    /* Called on the thread that calls the transport, about ten times a second or more often, while
     * the world is open, and over TCP also while processes arrive. true requests a stop, which
     * coll_peers_stopping then reports in the first process, or ends the arrival with -ECANCELED.
     * NULL: never. */
    bool (*stop)(void *user);
    void *user;
};

/* Connects this process with the others and waits for them. Returns -ENOTSUP if no MPI library can
 * be loaded, -EPROTO if the processes differ. Over TCP, all processes must arrive within twice
 * silence_ns. */
int coll_peers_open(const struct coll_peers_options *options, struct coll_peers **out);
/* All processes must call it. Accepts NULL. If the world ended with an error, it does not return:
 * it ends this process (over MPI all processes) with `code`, or with 1 if `code` is not
 * positive. */
void coll_peers_close(struct coll_peers *peers, int code);

unsigned coll_peers_rank(const struct coll_peers *peers);
unsigned coll_peers_world(const struct coll_peers *peers);
const char *coll_peers_library(const struct coll_peers *peers);

/* A process, as it described itself when the world was opened. */
struct coll_peer {
    char host[COLL_HOST_BYTES];
    struct core_cpus cpus; /* processors on which it may run */
    char identity[128];
};
const struct coll_peer *coll_peers_at(const struct coll_peers *peers, unsigned rank);

/* The ranks on one host: those that gave the same host name. */
struct coll_host {
    unsigned ranks;
    unsigned first;        /* the lowest of these ranks */
    unsigned index;        /* index of `rank` among them, from 0 */
    struct core_cpus cpus; /* processors that any of them may use */
};
void coll_peers_host(const struct coll_peers *peers, unsigned rank, struct coll_host *out);

/* Returns whether this or any other process was asked to stop. Only for the first process. */
bool coll_peers_stopping(const struct coll_peers *peers);
/* Returns 0, or the error that ended the world, with its message. After the error no transfer moves
 * data any more. */
int coll_peers_error(struct coll_peers *peers);
/* Returns whether the first process has told this one that the world ended. The first process then
 * reports the error, so this one need not. */
bool coll_peers_told(const struct coll_peers *peers);
/* Ends the world with `code` and this thread's message, unless it has ended; returns the error. */
int coll_peers_fail(struct coll_peers *peers, int code);

/* ---- transfers ---- */

enum coll_transfer_state { COLL_TRANSFER_FREE, COLL_TRANSFER_POSTED, COLL_TRANSFER_DONE };

/* From coll_peers_post() until it is done, a transfer belongs to the thread that calls the
 * transport. */
struct coll_transfer {
    bool sends;
    unsigned peer;
    int tag; /* a tag of coll_peers_tags() */
    void *at;
    size_t bytes;      /* size of the data; of a receive, size of the buffer */
    size_t received;   /* of a receive: bytes received, valid when done */
    _Atomic int state; /* enum coll_transfer_state; DONE is released after the transfer's bytes */
    unsigned slot;
    struct coll_transfer *next;
};

/* Reserves `count` tags and returns the first. All processes must reserve theirs in the same order.
 * Tags go up to 32,000, because MPI guarantees few more; then the first ones are returned again. */
int coll_peers_tags(struct coll_peers *peers, int count);

/* Begins a transfer. Any thread. */
void coll_peers_post(struct coll_peers *peers, struct coll_transfer *transfer);
bool coll_transfer_done(const struct coll_transfer *transfer);
/* Withdraws a receive. Afterwards it is DONE, or FREE if nothing was received, unless the world has
 * ended with an error. */
void coll_peers_withdraw(struct coll_peers *peers, struct coll_transfer *transfer);
/* Returns the bell that rings when transfers are done and when the world ends. */
struct core_bell *coll_peers_bell(struct coll_peers *peers);
/* Waits until none of `transfers` is in flight, without a limit: a process that is gone ends the
 * world. Returns 0, or the error that ended the world. */
int coll_peers_wait(struct coll_peers *peers, const struct coll_transfer *transfers, size_t count);

/* Writes a NUL at the end of a received message in a buffer of `room` bytes, because the text at
 * the end of the message may lack one. */
void coll_peers_end_text(void *message, size_t room, size_t received);

/* Send or receive one message between the first process and another one, and wait until that is
 * done. Messages arrive in order; one thread in each process calls these. A message longer than
 * `room` ends the world with an error. */
int coll_peers_send(struct coll_peers *peers, unsigned to, const void *from, size_t bytes);
int coll_peers_receive(struct coll_peers *peers, unsigned from, void *to, size_t room,
                       size_t *bytes);

#endif
