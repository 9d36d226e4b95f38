/* tcp_case.h: worlds of processes that connect over TCP like those of torchrun. A process is a
 * child, whose result comes back through a pipe. */
#ifndef TESTS_COLL_TCP_CASE_H
#define TESTS_COLL_TCP_CASE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/coll/peers.h"

enum { TCP_SHORT_MS = 400, TCP_LONG_MS = 20000 };

/* How to start a process. */
struct tcp_start {
    unsigned rank, world;
    const char *at; /* the rendezvous */
    uint64_t run;
    int silence_ms; /* half of the limit for the arrival of all processes */
    const char *identity;
    bool stops;    /* the process is asked to stop */
    bool receives; /* waits for a message of rank 1 */
    /* What the process does (NULL: it connects, receives if `receives` is set, and leaves). Writes
     * a result to the descriptor `to` and ends the process. */
    void (*act)(struct tcp_start *start, int to);
    int held; /* pipe from which `act` reads to wait for the case; 0: none */
};

/* The first message of a process, and the sizes of the answer; as in tcp_meet.c. */
struct tcp_hello {
    char magic[8];
    uint32_t version, world, rank, port;
    uint64_t key[2];
    char host[64];
};
enum { TCP_ANSWER_BYTES = 232, TCP_ENTRY_BYTES = 92, TCP_ANSWER_TEXT_AT = 12 };

struct tcp_outcome {
    int rc;
    char message[512];
    char warning[512]; /* the first one */
};

struct tcp_child {
    pid_t pid;
    int from;
};

/* Connects as a process of the world; *rc: 0 or the error. */
struct coll_peers *tcp_open(struct tcp_start *start, int *rc);

struct tcp_child tcp_begin(struct tcp_start start);
/* Waits for a process to write its outcome and end. */
struct tcp_outcome tcp_end(struct tcp_child child);
void tcp_ends_with(struct tcp_child child, int rc, const char *message);

/* Returns a rendezvous: a free port at `host`; valid until the next call. */
const char *tcp_place(const char *host, unsigned *port);
/* Returns a TCP socket that is neither bound nor connected, and sets *address. */
int tcp_socket(const char *host, unsigned port, struct sockaddr_in *address);
/* Connects to 127.0.0.1 as soon as a process listens there. */
int tcp_connect(unsigned port);
/* Returns the hello of rank 1 in run 7. */
struct tcp_hello tcp_hello_of(unsigned world);
/* Reads `bytes` bytes, or until the other side closes; returns their number. */
size_t tcp_read_all(int fd, void *to, size_t bytes);

#endif
