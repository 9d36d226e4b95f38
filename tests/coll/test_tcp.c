/* test_tcp.c: how processes of torchrun connect, and what they refuse: other addresses, runs,
 * worlds and programs, and bytes that no process of tide sends. Each process of a case is a child;
 * the message of coll_peers_open comes back through a pipe. test_mpi.c tests the processes after
 * they are connected. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/coll/coll.h"
#include "core/coll/peers.h"
#include "tests/harness/child.h"
#include "tests/harness/test.h"
#include "tests/harness/torchrun.h"

enum { SHORT_MS = 400, LONG_MS = 20000 };

/* The parameters with which a process is started. */
struct start {
    unsigned rank, world;
    const char *at; /* the rendezvous */
    uint64_t run;
    int silence_ms; /* half of the limit for all processes to arrive */
    const char *identity;
    bool stops; /* a request to stop is made */
    /* waits for a message of rank 1, which may never come */
    bool receives;
    /* a descriptor: the process ends the world, and itself when this can be read; 0: it ends
     * neither */
    int held;
    bool told; /* waits until rank 0 has ended the world */
    bool sums;
};

enum { HELD_CODE = 5, TOLD_CODE = 6 };

struct outcome {
    int rc;
    char message[512];
};

struct child {
    pid_t pid;
    int from;
};

static bool asked_to_stop(void *user)
{
    return ((const struct start *)user)->stops;
}

static struct coll_peers *open_world(struct start *start, int *rc)
{
    struct coll_peers *peers = NULL;
    struct coll_peers_options options = {.launch = {.launcher = "torchrun",
                                                    .torchrun = true,
                                                    .rank = start->rank,
                                                    .world = start->world,
                                                    .run = start->run},
                                         .identity = start->identity != NULL ? start->identity
                                                                             : "test",
                                         .silence_ns = start->silence_ms * INT64_C(1000000),
                                         .stop = asked_to_stop,
                                         .user = start};
    snprintf(options.launch.rendezvous, sizeof options.launch.rendezvous, "%s", start->at);
    *rc = coll_peers_open(&options, &peers);
    return peers;
}

static struct outcome open_and_close(struct start *start)
{
    struct outcome out = {.rc = 0};
    struct coll_peers *peers = open_world(start, &out.rc);
    if (out.rc == 0 && start->receives) {
        char byte;
        size_t bytes;
        out.rc = coll_peers_receive(peers, 1, &byte, 1, &bytes);
    }
    snprintf(out.message, sizeof out.message, "%s", out.rc != 0 ? core_err_message() : "");
    if (!start->receives) {
        coll_peers_close(peers, 1);
    }
    return out;
}

/* Runs a process of a world that rank 0 ends. The process ends with the code of the world. */
static void end_world(struct start *start, int to)
{
    struct outcome out = {.rc = 0};
    struct coll_peers *peers = open_world(start, &out.rc);
    char byte;
    size_t bytes;
    if (start->held > 0) {
        out.rc = coll_peers_fail(peers, core_err_set(-ENOSPC, "the drive is full"));
    } else {
        out.rc = coll_peers_receive(peers, 0, &byte, 1, &bytes);
    }
    snprintf(out.message, sizeof out.message, "%s", core_err_message());
    check_int(write(to, &out, sizeof out), ==, (ssize_t)sizeof out);
    if (start->held > 0) {
        check_int(read(start->held, &byte, 1), ==, 1);
    } else {
        /* The process must not wait as long as it waits for a first process that never ends. */
        alarm(LONG_MS / 1000 - 5);
    }
    coll_peers_close(peers, start->held > 0 ? HELD_CODE : TOLD_CODE);
}

/* ---- calls of the system that fail, or do less than they were asked to ---- */

enum call {
    CALL_NONE,
    CALL_SOCKET,
    CALL_CONNECT,
    CALL_ACCEPT,
    CALL_SEND,
    CALL_RECEIVE,
    CALL_RANDOM
};

static struct faults {
    enum call fails; /* the `nth` of these calls, counted from 1, fails with `error` */
    unsigned nth;
    int error;
    size_t most; /* bytes that a call sends or receives; every third one is interrupted; 0: all */
} faults;        /* faults in this process */

static _Atomic unsigned calls; /* number of calls of the kind that fails */

static bool call_fails(enum call call)
{
    const bool counts = faults.fails == call;
    const unsigned number = counts ? atomic_fetch_add(&calls, 1) + 1 : 0;
    errno = faults.error;
    return counts && number == faults.nth;
}

/* Every third call is interrupted, or finds nothing to do. */
static bool is_interrupted(void)
{
    static _Atomic unsigned turns;
    const unsigned turn = faults.most > 0 ? atomic_fetch_add(&turns, 1) : 0;
    errno = turn % 2 == 0 ? EINTR : EAGAIN;
    return turn % 3 == 2;
}

#define WRAPPED(type, name, ...)                                                                   \
    type __real_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__)

WRAPPED(int, socket, int domain, int type, int protocol)
{
    return call_fails(CALL_SOCKET) ? -1 : __real_socket(domain, type, protocol);
}

WRAPPED(int, connect, int fd, const struct sockaddr *address, socklen_t bytes)
{
    return call_fails(CALL_CONNECT) ? -1 : __real_connect(fd, address, bytes);
}

WRAPPED(int, accept4, int fd, struct sockaddr *address, socklen_t *bytes, int flags)
{
    return call_fails(CALL_ACCEPT) ? -1 : __real_accept4(fd, address, bytes, flags);
}

WRAPPED(ssize_t, getrandom, void *to, size_t bytes, unsigned flags)
{
    return call_fails(CALL_RANDOM) ? -1 : __real_getrandom(to, bytes, flags);
}

static size_t at_most(size_t bytes)
{
    return faults.most > 0 && bytes > faults.most ? faults.most : bytes;
}

WRAPPED(ssize_t, send, int fd, const void *from, size_t bytes, int flags)
{
    return call_fails(CALL_SEND) || is_interrupted() ? -1
                                                     : __real_send(fd, from, at_most(bytes), flags);
}

WRAPPED(ssize_t, sendmsg, int fd, const struct msghdr *message, int flags)
{
    struct iovec parts[2];
    struct msghdr less = *message;
    if (call_fails(CALL_SEND) || is_interrupted()) {
        return -1;
    }
    memcpy(parts, message->msg_iov, message->msg_iovlen * sizeof *parts);
    less.msg_iov = parts;
    for (size_t i = 0; i < less.msg_iovlen; i++) {
        parts[i].iov_len = at_most(parts[i].iov_len);
        if (parts[i].iov_len < message->msg_iov[i].iov_len) {
            less.msg_iovlen = i + 1; /* the rest of the message would come too early */
        }
    }
    return __real_sendmsg(fd, &less, flags);
}

WRAPPED(ssize_t, recv, int fd, void *to, size_t bytes, int flags)
{
    return call_fails(CALL_RECEIVE) || is_interrupted()
               ? -1
               : __real_recv(fd, to, at_most(bytes), flags);
}

/* Computes sums of arrays that come with the heads, and of longer ones. */
static int sums(struct coll_peers *peers)
{
    enum { COUNT = 5000, LIMIT_MS = 20000 };
    static float array[COUNT];
    const struct coll_options options = {.kind = "processes",
                                         .rank = coll_peers_rank(peers),
                                         .world = coll_peers_world(peers),
                                         .peers = peers};
    struct coll *coll = NULL;
    int rc = coll_open(&options, &coll);
    for (uint64_t count = 5; rc == 0 && count <= COUNT; count *= COUNT / 5) {
        struct core_fence fence;
        for (size_t i = 0; i < count; i++) {
            array[i] = (float)(i + options.rank);
        }
        const struct coll_command command = {
            .op = COLL_ALL_REDUCE, .from = array, .to = array, .count = count};
        rc = coll_submit(coll, &command, &fence);
        rc = rc == 0 ? core_fence_wait(fence, LIMIT_MS * INT64_C(1000000)) : rc;
        for (size_t i = 0; rc == 0 && i < count; i++) {
            const double sum = (double)options.world * (double)i +
                               options.world * (options.world - 1) / 2.0;
            rc = (double)array[i] == sum ? 0 : core_err_set(-EBADMSG, "element %zu is wrong", i);
        }
    }
    const struct core_err kept = core_err_keep(rc);
    coll_close(coll);
    return core_err_first(&kept, 0);
}

/* The results of a process that computes sums. */
struct life {
    int rc;
    unsigned calls;
    char message[512];
};

enum { WORLD_ENDED = 7 };

static void live(struct start *start, int to)
{
    struct life life = {.rc = 0};
    struct coll_peers *peers = open_world(start, &life.rc);
    if (life.rc == 0) {
        life.rc = sums(peers);
    }
    if (life.rc != 0) {
        snprintf(life.message, sizeof life.message, "%s", core_err_message());
    }
    life.calls = atomic_load(&calls);
    check_int(write(to, &life, sizeof life), ==, (ssize_t)sizeof life);
    coll_peers_close(peers, WORLD_ENDED);
    test_child_end(0);
}

static struct child begin(struct start start)
{
    int ends[2];
    check_int(pipe(ends), ==, 0);
    const struct child child = {.pid = fork(), .from = ends[0]};
    check_int(child.pid, >=, 0);
    if (child.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (start.sums) {
            live(&start, ends[1]);
        }
        if (start.held > 0 || start.told) {
            end_world(&start, ends[1]);
        }
        const struct outcome out = open_and_close(&start);
        test_child_end(write(ends[1], &out, sizeof out) == (ssize_t)sizeof out ? 0 : 1);
    }
    close(ends[1]);
    return child;
}

static struct outcome end(struct child child)
{
    struct outcome out = {.rc = 1};
    check_int(read(child.from, &out, sizeof out), ==, (ssize_t)sizeof out);
    close(child.from);
    waitpid(child.pid, NULL, 0);
    test_note("%d: %s", out.rc, out.message);
    return out;
}

static void ends_with(struct child child, int rc, const char *message)
{
    const struct outcome out = end(child);
    check_int(out.rc, ==, rc);
    check_contains(out.message, message);
}

/* Returns a free port at `host` as a rendezvous. */
static const char *place(const char *host, unsigned *port)
{
    static char text[128];
    *port = test_port_free();
    snprintf(text, sizeof text, "%s:%u", host, *port);
    return text;
}

static int make_socket(const char *host, unsigned port, struct sockaddr_in *address)
{
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    check_int(inet_pton(AF_INET, host, &address->sin_addr), ==, 1);
    return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

/* Connects to 127.0.0.1 as soon as a process listens there. */
static int connect_to(unsigned port)
{
    struct sockaddr_in address;
    for (;;) {
        const int fd = make_socket("127.0.0.1", port, &address);
        if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0) {
            return fd;
        }
        close(fd);
        usleep(2000);
    }
}

/* Reads until the other side closes or `bytes` bytes have arrived. */
static size_t read_all(int fd, void *to, size_t bytes)
{
    size_t done = 0;
    for (ssize_t got = 1; got > 0 && done < bytes;) {
        got = read(fd, (char *)to + done, bytes - done);
        done += got > 0 ? (size_t)got : 0;
    }
    return done;
}

/* ---- cases ---- */

static void meets_at(const char *host, unsigned world)
{
    unsigned port;
    struct child children[4];
    struct start start = {
        .world = world, .at = place(host, &port), .run = 7, .silence_ms = LONG_MS};
    for (unsigned r = 0; r < world; r++) {
        start.rank = world - 1 - r; /* rank 0 comes last */
        children[r] = begin(start);
    }
    for (unsigned r = 0; r < world; r++) {
        check_int(end(children[r]).rc, ==, 0);
    }
}

/* The rendezvous is an IPv4 address, a name, and an IPv6 address. */
static void addresses(void)
{
    meets_at("127.0.0.1", 4);
    meets_at("localhost", 2);
    if (access("/proc/net/if_inet6", R_OK) == 0) {
        char first = 0;
        FILE *list = fopen("/proc/net/if_inet6", "r");
        if (list != NULL && fread(&first, 1, 1, list) == 1) {
            meets_at("[::1]", 3);
        }
        fclose(list);
    }
}

/* ---- a host with two addresses ---- */

int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **out);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **out);
/* The host "two.addresses" has 127.0.0.2 and 127.0.0.1. */
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **out)
{
    if (strcmp(host, "two.addresses") != 0) {
        return __real_getaddrinfo(host, port, hints, out);
    }
    return __real_getaddrinfo("127.0.0.2", port, hints, out) |
           __real_getaddrinfo("127.0.0.1", port, hints, &(*out)->ai_next);
}

/* Opens connections until one is not answered, because nobody accepts them. */
static unsigned fill_queue(int *fds, unsigned max, unsigned port)
{
    unsigned count = 0;
    for (bool full = false; !full && count < max; count++) {
        struct sockaddr_in address;
        fds[count] = make_socket("127.0.0.2", port, &address);
        check_int(fcntl(fds[count], F_SETFL, O_NONBLOCK), ==, 0);
        (void)connect(fds[count], (struct sockaddr *)&address, sizeof address);
        struct pollfd polled = {.fd = fds[count], .events = POLLOUT};
        full = poll(&polled, 1, 100) == 0;
    }
    return count;
}

/* An address that does not answer leaves time for the next one: rank 0 is at the second. */
static void silent_address(void)
{
    enum { FILL_MAX = 8 };
    unsigned port;
    char at[64];
    int fds[FILL_MAX];
    struct sockaddr_in address;
    struct start start = {
        .world = 2, .at = place("127.0.0.1", &port), .run = 7, .silence_ms = 3000};
    const int listener = make_socket("127.0.0.2", port, &address);
    check_int(bind(listener, (struct sockaddr *)&address, sizeof address), ==, 0);
    check_int(listen(listener, 0), ==, 0);
    const unsigned count = fill_queue(fds, FILL_MAX, port);
    check_uint(count, <, FILL_MAX);
    const struct child first = begin(start);
    snprintf(at, sizeof at, "two.addresses:%u", port);
    start.at = at;
    start.rank = 1;
    const struct child second = begin(start);
    ends_with(second, 0, "");
    ends_with(first, 0, "");
    for (unsigned i = 0; i < count; i++) {
        close(fds[i]);
    }
    close(listener);
}

/* Only the given address listens. */
static void one_address_listens(void)
{
    unsigned port;
    struct sockaddr_in address;
    struct start start = {
        .world = 2, .at = place("127.0.0.2", &port), .run = 7, .silence_ms = LONG_MS};
    const struct child first = begin(start);
    int fd = -1;
    for (int rc = -1; rc != 0;) { /* until the process listens */
        close(fd);
        fd = make_socket("127.0.0.2", port, &address);
        rc = connect(fd, (struct sockaddr *)&address, sizeof address);
        usleep(rc != 0 ? 2000 : 0);
    }
    close(fd);
    fd = make_socket("127.0.0.1", port, &address);
    check_int(connect(fd, (struct sockaddr *)&address, sizeof address), ==, -1);
    check_int(errno, ==, ECONNREFUSED);
    close(fd);
    start.rank = 1;
    const struct child second = begin(start);
    check_int(end(first).rc, ==, 0);
    check_int(end(second).rc, ==, 0);
}

static void bad_addresses(void)
{
    static const struct {
        const char *at;
        int rc;
        const char *message;
    } cases[] = {
        {"localhost", -EINVAL, "the rendezvous \"localhost\" is not HOST:PORT"},
        {":29501", -EINVAL, "is not HOST:PORT"},
        {"::1:29501", -EINVAL, "an IPv6 address is written as [::1]:29501"},
        {"[::1:29501", -EINVAL, "is not HOST:PORT"},
        {"[]:29501", -EINVAL, "is not HOST:PORT"},
        {"127.0.0.1:http", -EINVAL, "cannot resolve the rendezvous 127.0.0.1:http"},
        {"no.such.host.invalid:29501", -EINVAL, "cannot resolve the rendezvous no.such.host"},
        {"192.0.2.1:29501", -EADDRNOTAVAIL,
         "rank 0 cannot listen at the rendezvous 192.0.2.1:29501: Cannot assign requested address; "
         "give all processes --rendezvous HOST:PORT"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ends_with(begin((struct start){.world = 2, .at = cases[i].at, .silence_ms = SHORT_MS}),
                  cases[i].rc, cases[i].message);
    }
}

/* Connections that do not belong to the run are refused, and the run's processes still connect. */
static void strangers(void)
{
    unsigned port;
    char answer[512];
    struct start start = {
        .world = 3, .at = place("127.0.0.1", &port), .run = 7, .silence_ms = LONG_MS};
    struct start other = start;
    const struct child first = begin(start);
    const int silent = connect_to(port);
    const int half = connect_to(port);
    const int rude = connect_to(port);
    check_int(write(half, "tide-tcp", 8), ==, 8);
    memset(answer, 'x', sizeof answer);
    check_int(send(rude, answer, sizeof answer, MSG_NOSIGNAL), >, 0);
    /* the read ends because the connection is closed */
    (void)read_all(rude, answer, sizeof answer);
    close(half);
    other.rank = 1;
    other.run = 8;
    ends_with(begin(other), -EPROTO, "rank 0 refuses rank 1: it is a process of another run");
    other.run = 7;
    other.world = 2;
    ends_with(begin(other), -EPROTO, "it is one of 2 processes, and rank 0 is one of 3");
    start.rank = 1;
    const struct child second = begin(start);
    /* Of two processes with the same rank, the later one is refused. */
    const struct child twice = begin(start);
    usleep(100000);
    start.rank = 2;
    const struct child third = begin(start);
    check_int(end(first).rc, ==, 0);
    const struct outcome a = end(second);
    const struct outcome b = end(twice);
    check_int(a.rc + b.rc, ==, -EPROTO);
    check_contains(a.rc != 0 ? a.message : b.message, "rank 1 is already connected");
    check_int(end(third).rc, ==, 0);
    close(silent);
    close(rude);
}

/* When the limit is reached, the message names the missing ranks and the rendezvous. */
static void limits(void)
{
    unsigned port;
    struct start start = {
        .world = 3, .at = place("127.0.0.1", &port), .run = 7, .silence_ms = SHORT_MS};
    const struct child first = begin(start);
    start.rank = 1;
    const struct child second = begin(start);
    ends_with(first, -ETIMEDOUT, "the arrival of rank 2 of 3 at 127.0.0.1:");
    const struct outcome out = end(second);
    check_true(out.rc == -ETIMEDOUT || out.rc == -EPIPE);
    start.at = place("127.0.0.1", &port);
    ends_with(begin(start), -ETIMEDOUT, "rank 1 cannot reach rank 0 at the rendezvous 127.0.0.1:");
    start.stops = true;
    start.silence_ms = LONG_MS;
    ends_with(begin(start), -ECANCELED, "stopped by a signal before it reached rank 0");
    start.rank = 0;
    ends_with(begin(start), -ECANCELED, "stopped by a signal before the arrival of rank 1");
}

/* Another program listens at the port. */
static void another_program(void)
{
    unsigned port;
    char garbage[1024];
    struct sockaddr_in address;
    struct start start = {
        .world = 2, .at = place("127.0.0.1", &port), .run = 7, .silence_ms = LONG_MS};
    const int listener = make_socket("127.0.0.1", port, &address);
    const int yes = 1;
    (void)setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    check_int(bind(listener, (struct sockaddr *)&address, sizeof address), ==, 0);
    check_int(listen(listener, 8), ==, 0);
    ends_with(begin(start), -EADDRINUSE, "cannot listen at the rendezvous 127.0.0.1:");
    start.rank = 1;
    const struct child second = begin(start);
    const int fd = accept(listener, NULL, NULL);
    memset(garbage, 'x', sizeof garbage);
    check_int(send(fd, garbage, sizeof garbage, MSG_NOSIGNAL), >, 0);
    ends_with(second, -EPROTO, "another program than tide answers at 127.0.0.1:");
    close(fd);
    const struct child third = begin(start);
    close(accept(listener, NULL, NULL));
    ends_with(third, -EPIPE, "rank 0 closed the connection before all processes were connected");
    close(listener);
}

/* Processes of other builds are refused. */
static void builds(void)
{
    unsigned port;
    struct start start = {
        .world = 2, .at = place("127.0.0.1", &port), .run = 7, .silence_ms = LONG_MS};
    const struct child first = begin(start);
    start.rank = 1;
    start.identity = "another";
    const struct child second = begin(start);
    ends_with(first, -EPROTO, "is another, and rank 0 on ");
    ends_with(second, -EPROTO, "is another, and rank 0 on ");
}

/* These structs equal those of tcp_meet.c, tcp.c and peers.c. */
struct hello {
    char magic[8];
    uint32_t version, world, rank, port;
    uint64_t key[2];
    char host[64];
};
struct frame {
    uint32_t kind;
    int32_t tag;
    uint64_t bytes;
    uint32_t from, to;
};
struct service {
    uint32_t kind, rank;
    int32_t code;
    char message[1024];
};
enum { ALIVE, STOP, ENDED };
enum { ANSWER_BYTES = 232, ENTRY_BYTES = 92, SHORT_KIND = 0x7464, ASK_KIND, GO_KIND, DATA_KIND };

/* A process of a case, and the connections through which the case acts as the other ranks. */
struct fakes {
    struct child child;
    int fd[3];
};

static struct fakes meet_as_others(unsigned world)
{
    unsigned port;
    char answer[ANSWER_BYTES + 3 * ENTRY_BYTES];
    const size_t answer_bytes = ANSWER_BYTES + world * ENTRY_BYTES;
    const struct start start = {.world = world,
                                .at = place("127.0.0.1", &port),
                                .run = 7,
                                .silence_ms = LONG_MS,
                                .receives = true};
    struct hello hello = {.magic = {'t', 'i', 'd', 'e', '-', 't', 'c', 'p'},
                          .version = 1,
                          .world = world,
                          .key = {7, 0},
                          .host = "fake"};
    struct fakes fakes = {.child = begin(start)};
    for (unsigned r = 1; r < world; r++) {
        const int yes = 1;
        fakes.fd[r] = connect_to(port);
        (void)setsockopt(fakes.fd[r], IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        hello.rank = r;
        check_int(write(fakes.fd[r], &hello, sizeof hello), ==, (ssize_t)sizeof hello);
    }
    for (unsigned r = 1; r < world; r++) {
        check_uint(read_all(fakes.fd[r], answer, answer_bytes), ==, answer_bytes);
    }
    return fakes;
}

static void send_short(int fd, int tag, const void *from, size_t bytes)
{
    const struct frame frame = {.kind = SHORT_KIND, .tag = tag, .bytes = bytes};
    check_int(write(fd, &frame, sizeof frame), ==, (ssize_t)sizeof frame);
    check_int(write(fd, from, bytes), ==, (ssize_t)bytes);
}

/* Sends the message with which a process identifies itself. */
static void send_name(int fd)
{
    const struct coll_peer name = {.host = "fake", .identity = "test"};
    send_short(fd, 2, &name, sizeof name);
}

static void send_service(int fd, unsigned rank, unsigned kind, const char *message)
{
    struct service service = {.kind = kind, .rank = rank, .code = -ENOSPC};
    snprintf(service.message, sizeof service.message, "%s", message);
    send_short(fd, 1, &service, kind == ENDED ? sizeof service : offsetof(struct service, message));
}

/* Stops the process: it reads nothing until it is continued, and then reads everything at once. */
static void stop(const struct fakes *fakes)
{
    int status = 0;
    check_int(kill(fakes->child.pid, SIGSTOP), ==, 0);
    check_int(waitpid(fakes->child.pid, &status, WUNTRACED), ==, fakes->child.pid);
    check_true(WIFSTOPPED(status));
}

/* Ends two processes while the first one reads nothing. `words` are their last messages; NULL: no
 * message. */
static void end_together(const char *const words[2], bool resets, int rc, const char *message)
{
    const struct linger none = {.l_onoff = 1};
    const struct fakes fakes = meet_as_others(3);
    stop(&fakes);
    for (unsigned r = 1; r < 3; r++) {
        send_name(fakes.fd[r]);
        send_service(fakes.fd[r], r, ALIVE, "");
        if (words[r - 1] != NULL) {
            send_service(fakes.fd[r], r, ALIVE, "");
            send_service(fakes.fd[r], r, ENDED, words[r - 1]);
        }
        if (resets) { /* as if the process had not read everything */
            (void)setsockopt(fakes.fd[r], SOL_SOCKET, SO_LINGER, &none, sizeof none);
        }
        close(fakes.fd[r]);
    }
    check_int(kill(fakes.child.pid, SIGCONT), ==, 0);
    ends_with(fakes.child, rc, message);
}

/* The last message of a process is read, although its connection is closed. If several processes
 * end without a message, the first one is named. */
static void last_words(void)
{
    for (int resets = 0; resets < 2; resets++) {
        const char *full = "rank 1: the drive is full";
        const char *closed = "TCP failed: rank 1 on fake has closed its connection";
        end_together((const char *const[]){full, NULL}, resets, -ENOSPC, full);
        end_together((const char *const[]){NULL, full}, resets, -ENOSPC, full);
        end_together((const char *const[]){full, full}, resets, -ENOSPC, full);
        end_together((const char *const[]){NULL, NULL}, resets, -EIO, closed);
    }
}

/* If rank 0 has ended the world of a process, the process leaves the message to rank 0: it ends
 * when rank 0 has ended, neither earlier nor much later. */
static void told_by_the_first(void)
{
    unsigned port;
    int hold[2];
    int status = 0;
    struct outcome out;
    check_int(pipe(hold), ==, 0);
    struct start start = {.world = 2,
                          .at = place("127.0.0.1", &port),
                          .run = 7,
                          .silence_ms = LONG_MS,
                          .held = hold[0]};
    const struct child first = begin(start);
    start.held = 0;
    start.told = true;
    start.rank = 1;
    const struct child second = begin(start);
    check_int(read(second.from, &out, sizeof out), ==, (ssize_t)sizeof out);
    check_int(out.rc, ==, -ENOSPC);
    check_string(out.message, "the drive is full");
    usleep(50000);
    check_int(waitpid(second.pid, &status, WNOHANG), ==, 0);
    check_int(write(hold[1], "", 1), ==, 1);
    check_int(waitpid(first.pid, &status, 0), ==, first.pid);
    check_true(WIFEXITED(status) && WEXITSTATUS(status) == HELD_CODE);
    check_int(waitpid(second.pid, &status, 0), ==, second.pid);
    check_true(WIFEXITED(status) && WEXITSTATUS(status) == TOLD_CODE);
    close(first.from);
    close(second.from);
    close(hold[0]);
    close(hold[1]);
}

/* Runs a world of two that computes sums, with faults in one of them, or in all. The processes end
 * by themselves. */
static struct life run_lives(struct faults with, int silence_ms, unsigned faulty, bool all)
{
    unsigned port;
    struct child children[2];
    struct life lives[2] = {{.rc = 1}, {.rc = 1}};
    struct start start = {.world = 2,
                          .at = place("127.0.0.1", &port),
                          .run = 7,
                          .silence_ms = silence_ms,
                          .sums = true};
    for (unsigned r = 0; r < 2; r++) {
        start.rank = r;
        faults = all || r == faulty ? with : (struct faults){.fails = CALL_NONE};
        children[r] = begin(start);
        faults = (struct faults){.fails = CALL_NONE};
    }
    for (unsigned r = 0; r < 2; r++) {
        int status = 0;
        check_int(read(children[r].from, &lives[r], sizeof lives[r]), ==, (ssize_t)sizeof lives[r]);
        close(children[r].from);
        check_int(waitpid(children[r].pid, &status, 0), ==, children[r].pid);
        check_true(WIFEXITED(status) &&
                   (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == WORLD_ENDED));
        check_true((lives[r].rc == 0) == (lives[r].message[0] == '\0'));
    }
    return lives[faulty];
}

/* The n-th call of each kind fails, n = 1, 3, 5, ..., until a run meets no failure. The process
 * reports an error or works without the call, and both processes end. The limit is short, so a busy
 * machine may end a run earlier, with another error. */
static void failing_calls(void)
{
    static const struct {
        enum call call;
        int error;
        unsigned rank;
        bool minds;
    } rows[] = {
        {CALL_SOCKET, EMFILE, 0, true},         {CALL_SOCKET, EMFILE, 1, false},
        {CALL_CONNECT, EHOSTUNREACH, 1, false}, {CALL_ACCEPT, ECONNABORTED, 0, false},
        {CALL_RANDOM, ENOSYS, 0, true},         {CALL_SEND, ECONNRESET, 1, true},
        {CALL_SEND, EHOSTUNREACH, 0, true},     {CALL_RECEIVE, ECONNRESET, 0, true},
        {CALL_RECEIVE, EIO, 1, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        unsigned failed = 0;
        struct life life = {.calls = 1};
        for (unsigned n = 1; life.calls >= n - (n > 1 ? 2 : 0); n += 2) {
            const struct faults with = {.fails = rows[i].call, .nth = n, .error = rows[i].error};
            life = run_lives(with, SHORT_MS / 2, rows[i].rank, false);
            failed += life.rc != 0;
            check_uint(n, <, 300);
        }
        test_note("kind %d of rank %u: %u calls, %u runs failed", (int)rows[i].call, rows[i].rank,
                  life.calls, failed);
        check_true(failed > 0 || !rows[i].minds);
    }
}

/* Calls send and receive only a few bytes at a time and are interrupted, and the sums are right. */
static void few_bytes_at_a_time(void)
{
    const struct life life = run_lives((struct faults){.most = 97}, LONG_MS, 0, true);
    check_string(life.message, "");
    check_int(life.rc, ==, 0);
}

/* Half of a message has arrived when its receive begins. The receive is too small for it, so the
 * world ends. */
static void too_large_for_its_receive(void)
{
    const char text[100] = "";
    const struct frame large = {.kind = SHORT_KIND, .tag = 2, .bytes = sizeof text};
    const struct fakes fakes = meet_as_others(2);
    struct frame list;
    stop(&fakes);
    send_name(fakes.fd[1]);
    check_int(write(fakes.fd[1], &large, sizeof large), ==, (ssize_t)sizeof large);
    check_int(write(fakes.fd[1], text, sizeof text / 2), ==, (ssize_t)sizeof text / 2);
    check_int(kill(fakes.child.pid, SIGCONT), ==, 0);
    check_uint(read_all(fakes.fd[1], &list, sizeof list), ==, sizeof list);
    check_uint(list.kind, ==, SHORT_KIND);
    usleep(100000); /* by then the process waits for the rest of its next message */
    check_int(write(fakes.fd[1], text, sizeof text / 2), ==, (ssize_t)sizeof text / 2);
    ends_with(fakes.child, -EIO,
              "TCP failed: rank 1 on fake sent 100 bytes to a receive of at most 1");
    close(fakes.fd[1]);
}

/* Becomes rank 1 of the world of a child, and sends a frame to the child. */
static void after_meeting(struct frame frame, const char *message)
{
    const struct fakes fakes = meet_as_others(2);
    const int fd = fakes.fd[1];
    if (frame.kind != 0) {
        check_int(write(fd, &frame, sizeof frame), ==, (ssize_t)sizeof frame);
    } else {
        close(fd);
    }
    const struct outcome out = end(fakes.child);
    check_int(out.rc, ==, -EIO);
    check_contains(out.message, "TCP failed: rank 1 on fake ");
    check_contains(out.message, message);
    close(fd);
}

/* A process that sends bytes that no process of tide sends ends the world, and the message names
 * it. */
static void frames(void)
{
    after_meeting((struct frame){.kind = 99}, "of an unknown kind");
    after_meeting((struct frame){.kind = SHORT_KIND, .tag = 2, .bytes = 1 << 20},
                  "whose size is not that of its kind");
    after_meeting((struct frame){.kind = ASK_KIND, .tag = 2, .bytes = 10},
                  "whose size is not that of its kind");
    after_meeting((struct frame){.kind = GO_KIND, .from = 3}, "that answers nothing");
    after_meeting((struct frame){.kind = GO_KIND, .from = UINT32_MAX}, "that answers nothing");
    after_meeting((struct frame){.kind = DATA_KIND, .to = 1}, "that nothing waits for");
    after_meeting((struct frame){.kind = ASK_KIND, .tag = 2, .bytes = UINT64_C(1) << 40},
                  "to a receive of at most");
    after_meeting((struct frame){.kind = 0}, "has closed its connection: its process has ended");
}

TEST_MAIN({"addresses", addresses}, {"one_address_listens", one_address_listens},
          {"bad_addresses", bad_addresses}, {"strangers", strangers}, {"limits", limits},
          {"another_program", another_program}, {"builds", builds}, {"frames", frames},
          {"last_words", last_words}, {"silent_address", silent_address},
          {"told_by_the_first", told_by_the_first}, {"failing_calls", failing_calls},
          {"few_bytes_at_a_time", few_bytes_at_a_time},
          {"too_large_for_its_receive", too_large_for_its_receive})
