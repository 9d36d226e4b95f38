/* tcp_meet.h: connects the processes of a run with each other over TCP. Called by the thread of
 * peers.c. */
#ifndef CORE_COLL_TCP_MEET_H
#define CORE_COLL_TCP_MEET_H

#include "core/coll/transport.h"

enum { COLL_TCP_WORLD_MAX = 1024 };

struct coll_tcp_member {
    int fd; /* owned by the caller; nonblocking; -1: this process */
    char host[64];
};

/* Connects all processes over launch->rendezvous, within options->limit_ns, and writes [world]
 * members. On failure writes the reason to `why` and closes all connections. Returns -EPROTO if
 * another process refuses this one or another program answers. */
int coll_tcp_meet(const struct coll_transport_options *options, struct coll_tcp_member *members,
                  char *why);

#endif
