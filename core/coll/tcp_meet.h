/* tcp_meet.h: connects each pair of processes of a run over TCP. Only the thread of peers.c calls
 * it. */
#ifndef CORE_COLL_TCP_MEET_H
#define CORE_COLL_TCP_MEET_H

#include "core/coll/transport.h"

enum { COLL_TCP_WORLD_MAX = 1024 };

struct coll_tcp_member {
    int fd; /* owned by the caller; nonblocking; -1: this process */
    char host[64];
};

/* Waits until all processes are connected over launch->rendezvous, at most for options->limit_ns.
 * Writes [world] members. On failure writes the reason to `why` and leaves no connection open.
 * Returns -EPROTO if another process refuses this one, for example because this one was started
 * with another world, or if another program answers. */
int coll_tcp_meet(const struct coll_transport_options *options, struct coll_tcp_member *members,
                  char *why);

#endif
