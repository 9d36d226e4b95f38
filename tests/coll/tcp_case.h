/* tcp_case.h: worlds of processes that connect over TCP as those of torchrun do. Each process is a
 * child; its result, with the message of an error, comes back through a pipe. */
#ifndef TESTS_COLL_TCP_CASE_H
#define TESTS_COLL_TCP_CASE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/coll/peers.h"

enum { TCP_SHORT_MS = 400, TCP_LONG_MS = 20000 };

/* The parameters with which a process is started. */
struct tcp_start {
    unsigned rank, world;
    const char *at; /* the rendezvous */
    uint64_t run;
    int silence_ms; /* half of the limit for all processes to arrive */
    const char *identity;
    bool stops;    /* the process is asked to stop */
    bool receives; /* waits for a message of rank 1, which may never come */
    /* What the process does; NULL: it connects and leaves. Writes its result to the descriptor `to`
     * and ends the process. */
    void (*act)(struct tcp_start *start, int to);
    int held; /* a pipe from which `act` reads when it waits for the case; 0: none */
};

/* The message with which a process introduces itself, and the sizes of the answer and of the entry
 * for each rank; they equal those of tcp_meet.c. */
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
};

struct tcp_child {
    pid_t pid;
    int from;
};

/* Connects as a process of the world; *rc is 0 or the error. */
struct coll_peers *tcp_open(struct tcp_start *start, int *rc);

struct tcp_child tcp_begin(struct tcp_start start);
/* Waits for the outcome that a process writes, and for its end. */
struct tcp_outcome tcp_end(struct tcp_child child);
void tcp_ends_with(struct tcp_child child, int rc, const char *message);

/* Returns a free port at `host` as a rendezvous; valid until the next call. */
const char *tcp_place(const char *host, unsigned *port);
/* Makes a socket for a port of an IPv4 address. */
int tcp_socket(const char *host, unsigned port, struct sockaddr_in *address);
/* Connects to 127.0.0.1 as soon as a process listens there. */
int tcp_connect(unsigned port);
/* Returns the hello of rank 1 of a run of number 7. */
struct tcp_hello tcp_hello_of(unsigned world);
/* Reads until the other side closes or `bytes` bytes have arrived; returns their number. */
size_t tcp_read_all(int fd, void *to, size_t bytes);

#endif
