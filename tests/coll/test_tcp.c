/* test_tcp.c: how processes of torchrun connect, and which connections they refuse. */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/coll/tcp_case.h"
#include "tests/harness/test.h"

static void meets_at(const char *host, unsigned world)
{
    unsigned port;
    struct tcp_child children[4];
    struct tcp_start start = {
        .world = world, .at = tcp_place(host, &port), .run = 7, .silence_ms = TCP_LONG_MS};
    for (unsigned r = 0; r < world; r++) {
        start.rank = world - 1 - r; /* rank 0 is last */
        children[r] = tcp_begin(start);
    }
    for (unsigned r = 0; r < world; r++) {
        check_int(tcp_end(children[r]).rc, ==, 0);
    }
}

/* A rendezvous is an IPv4 address, an IPv6 address or a name. */
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
        if (list != NULL) {
            fclose(list);
        }
    }
}

/* ---- a host with two addresses ---- */

int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **out);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **out);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **out)
{
    if (strcmp(host, "two.addresses") != 0) {
        return __real_getaddrinfo(host, port, hints, out);
    }
    return __real_getaddrinfo("127.0.0.2", port, hints, out) |
           __real_getaddrinfo("127.0.0.1", port, hints, &(*out)->ai_next);
}

/* Opens connections until one is not accepted. */
static unsigned fill_queue(int *fds, unsigned max, unsigned port)
{
    unsigned count = 0;
    for (bool full = false; !full && count < max; count++) {
        struct sockaddr_in address;
        fds[count] = tcp_socket("127.0.0.2", port, &address);
        check_int(fcntl(fds[count], F_SETFL, O_NONBLOCK), ==, 0);
        (void)connect(fds[count], (struct sockaddr *)&address, sizeof address);
        struct pollfd polled = {.fd = fds[count], .events = POLLOUT};
        full = poll(&polled, 1, 100) == 0;
    }
    return count;
}

/* An address that does not answer leaves time for the next address. */
static void silent_address(void)
{
    enum { FILL_MAX = 8 };
    unsigned port;
    char at[64];
    int fds[FILL_MAX];
    struct sockaddr_in address;
    struct tcp_start start = {
        .world = 2, .at = tcp_place("127.0.0.1", &port), .run = 7, .silence_ms = 3000};
    const int listener = tcp_socket("127.0.0.2", port, &address);
    check_int(bind(listener, (struct sockaddr *)&address, sizeof address), ==, 0);
    check_int(listen(listener, 0), ==, 0);
    const unsigned count = fill_queue(fds, FILL_MAX, port);
    check_uint(count, <, FILL_MAX);
    const struct tcp_child first = tcp_begin(start);
    snprintf(at, sizeof at, "two.addresses:%u", port);
    start.at = at;
    start.rank = 1;
    const struct tcp_child second = tcp_begin(start);
    tcp_ends_with(second, 0, "");
    tcp_ends_with(first, 0, "");
    for (unsigned i = 0; i < count; i++) {
        close(fds[i]);
    }
    close(listener);
}

/* Rank 0 listens only at the given address. */
static void one_address_listens(void)
{
    unsigned port;
    struct sockaddr_in address;
    struct tcp_start start = {
        .world = 2, .at = tcp_place("127.0.0.2", &port), .run = 7, .silence_ms = TCP_LONG_MS};
    const struct tcp_child first = tcp_begin(start);
    int fd = -1;
    for (int rc = -1; rc != 0;) { /* until the process listens */
        close(fd);
        fd = tcp_socket("127.0.0.2", port, &address);
        rc = connect(fd, (struct sockaddr *)&address, sizeof address);
        usleep(rc != 0 ? 2000 : 0);
    }
    close(fd);
    fd = tcp_socket("127.0.0.1", port, &address);
    check_int(connect(fd, (struct sockaddr *)&address, sizeof address), ==, -1);
    check_int(errno, ==, ECONNREFUSED);
    close(fd);
    start.rank = 1;
    const struct tcp_child second = tcp_begin(start);
    check_int(tcp_end(first).rc, ==, 0);
    check_int(tcp_end(second).rc, ==, 0);
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
        tcp_ends_with(tcp_begin((struct tcp_start){
                          .world = 2, .at = cases[i].at, .silence_ms = TCP_SHORT_MS}),
                      cases[i].rc, cases[i].message);
    }
}

/* Foreign connections are refused, and the run's processes still connect. */
static void strangers(void)
{
    unsigned port;
    char answer[512];
    struct tcp_start start = {
        .world = 3, .at = tcp_place("127.0.0.1", &port), .run = 7, .silence_ms = TCP_LONG_MS};
    struct tcp_start other = start;
    const struct tcp_child first = tcp_begin(start);
    const int silent = tcp_connect(port);
    const int half = tcp_connect(port);
    const int rude = tcp_connect(port);
    check_int(write(half, "tide-tcp", 8), ==, 8);
    memset(answer, 'x', sizeof answer);
    check_int(send(rude, answer, sizeof answer, MSG_NOSIGNAL), >, 0);
    /* ends when the connection is closed */
    (void)tcp_read_all(rude, answer, sizeof answer);
    close(half);
    other.rank = 1;
    other.run = 8;
    tcp_ends_with(tcp_begin(other), -EPROTO,
                  "rank 0 refuses rank 1: it is a process of another run");
    other.run = 7;
    other.world = 2;
    tcp_ends_with(tcp_begin(other), -EPROTO, "it is one of 2 processes, and rank 0 is one of 3");
    start.rank = 1;
    const struct tcp_child second = tcp_begin(start);
    /* The later of two processes with the same rank is refused. */
    const struct tcp_child twice = tcp_begin(start);
    usleep(100000);
    start.rank = 2;
    const struct tcp_child third = tcp_begin(start);
    const struct tcp_outcome leader = tcp_end(first);
    check_int(leader.rc, ==, 0);
    check_contains(leader.warning, "refused a connection from 127.0.0.1");
    const struct tcp_outcome a = tcp_end(second);
    const struct tcp_outcome b = tcp_end(twice);
    check_int(a.rc + b.rc, ==, -EPROTO);
    check_contains(a.rc != 0 ? a.message : b.message, "rank 1 is already connected");
    check_int(tcp_end(third).rc, ==, 0);
    close(silent);
    close(rude);
}

static void is_refused(int fd, const char *text)
{
    char answer[TCP_ANSWER_BYTES + 1] = "";
    check_uint(tcp_read_all(fd, answer, TCP_ANSWER_BYTES), ==, TCP_ANSWER_BYTES);
    check_contains(answer + TCP_ANSWER_TEXT_AT, text);
    close(fd);
}

/* Wrong versions, runs and ranks, and surplus connections, are refused with the reason. */
static void wrong_hellos(void)
{
    enum { SILENT = 40 };
    unsigned port;
    int silent[SILENT];
    const struct tcp_start start = {
        .world = 2, .at = tcp_place("127.0.0.1", &port), .run = 7, .silence_ms = TCP_LONG_MS};
    const struct tcp_child first = tcp_begin(start);
    struct tcp_hello wrong[4];
    static const char *const texts[] = {
        "it is of another version of tide", "it is a process of another run of torchrun",
        "rank 0 does not connect to rank 0", "rank 2 does not connect to rank 0"};
    for (size_t i = 0; i < 4; i++) {
        wrong[i] = tcp_hello_of(2);
    }
    wrong[0].version = 2;
    wrong[1].key[1] = 1;
    wrong[2].rank = 0;
    wrong[3].rank = 2;
    for (size_t i = 0; i < 4; i++) {
        const int fd = tcp_connect(port);
        check_int(write(fd, &wrong[i], sizeof wrong[i]), ==, (ssize_t)sizeof wrong[i]);
        is_refused(fd, texts[i]);
    }
    for (int i = 0; i < SILENT; i++) {
        silent[i] = tcp_connect(port);
    }
    is_refused(silent[0], "too many open connections have not identified themselves yet");
    struct tcp_start other = start;
    other.rank = 1;
    const struct tcp_child second = tcp_begin(other);
    check_int(tcp_end(first).rc, ==, 0);
    check_int(tcp_end(second).rc, ==, 0);
    for (int i = 1; i < SILENT; i++) {
        close(silent[i]);
    }
}

/* A wrong list of addresses from rank 0 (the case) is reported. */
static void wrong_addresses(void)
{
    unsigned port;
    struct sockaddr_in address;
    struct sockaddr_in nobody;
    struct tcp_hello hello;
    struct tcp_start start = {.rank = 2,
                              .world = 3,
                              .at = tcp_place("127.0.0.1", &port),
                              .run = 7,
                              .silence_ms = TCP_LONG_MS};
    char answer[TCP_ANSWER_BYTES] = "tide-tcp";
    char entries[3][TCP_ENTRY_BYTES] = {{0}};
    const int listener = tcp_socket("127.0.0.1", port, &address);
    const int yes = 1;
    (void)setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    check_int(bind(listener, (struct sockaddr *)&address, sizeof address), ==, 0);
    check_int(listen(listener, 8), ==, 0);
    const int unheard = tcp_socket("127.0.0.1", 0, &nobody); /* bound, but does not listen */
    socklen_t bytes = sizeof nobody;
    check_int(bind(unheard, (struct sockaddr *)&nobody, sizeof nobody), ==, 0);
    check_int(getsockname(unheard, (struct sockaddr *)&nobody, &bytes), ==, 0);
    memcpy(entries[1], &nobody, sizeof nobody);
    snprintf(entries[1] + TCP_ENTRY_BYTES - sizeof hello.host, sizeof hello.host, "fake");
    for (int listed = 0; listed < 2; listed++) {
        const struct tcp_child child = tcp_begin(start);
        const int fd = accept(listener, NULL, NULL);
        check_uint(tcp_read_all(fd, &hello, sizeof hello), ==, sizeof hello);
        check_uint(hello.rank, ==, 2);
        check_int(write(fd, answer, sizeof answer), ==, (ssize_t)sizeof answer);
        if (listed) {
            check_int(write(fd, entries, sizeof entries), ==, (ssize_t)sizeof entries);
            tcp_ends_with(child, -ECONNREFUSED, "rank 2 cannot connect to rank 1 on fake at 127.");
            close(fd);
        } else {
            close(fd);
            tcp_ends_with(child, -EPIPE, "rank 0 did not send the addresses of the other ranks");
        }
    }
    close(unheard);
    close(listener);
}

/* The message at the limit names the missing ranks and the rendezvous. */
static void limits(void)
{
    unsigned port;
    struct tcp_start start = {
        .world = 3, .at = tcp_place("127.0.0.1", &port), .run = 7, .silence_ms = TCP_SHORT_MS};
    const struct tcp_child first = tcp_begin(start);
    start.rank = 1;
    const struct tcp_child second = tcp_begin(start);
    tcp_ends_with(first, -ETIMEDOUT, "the arrival of rank 2 of 3 at 127.0.0.1:");
    const struct tcp_outcome out = tcp_end(second);
    check_true(out.rc == -ETIMEDOUT || out.rc == -EPIPE);
    start.at = tcp_place("127.0.0.1", &port);
    tcp_ends_with(tcp_begin(start), -ETIMEDOUT,
                  "rank 1 cannot reach rank 0 at the rendezvous 127.0.0.1:");
    start.stops = true;
    start.silence_ms = TCP_LONG_MS;
    tcp_ends_with(tcp_begin(start), -ECANCELED, "stopped by a signal before it reached rank 0");
    start.rank = 0;
    tcp_ends_with(tcp_begin(start), -ECANCELED, "stopped by a signal before the arrival of rank 1");
}

static void another_program(void)
{
    unsigned port;
    char garbage[1024];
    struct sockaddr_in address;
    struct tcp_start start = {
        .world = 2, .at = tcp_place("127.0.0.1", &port), .run = 7, .silence_ms = TCP_LONG_MS};
    const int listener = tcp_socket("127.0.0.1", port, &address);
    const int yes = 1;
    (void)setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    check_int(bind(listener, (struct sockaddr *)&address, sizeof address), ==, 0);
    check_int(listen(listener, 8), ==, 0);
    tcp_ends_with(tcp_begin(start), -EADDRINUSE, "cannot listen at the rendezvous 127.0.0.1:");
    start.rank = 1;
    const struct tcp_child second = tcp_begin(start);
    const int fd = accept(listener, NULL, NULL);
    memset(garbage, 'x', sizeof garbage);
    check_int(send(fd, garbage, sizeof garbage, MSG_NOSIGNAL), >, 0);
    tcp_ends_with(second, -EPROTO, "another program than tide answers at 127.0.0.1:");
    close(fd);
    const struct tcp_child third = tcp_begin(start);
    close(accept(listener, NULL, NULL));
    tcp_ends_with(third, -EPIPE,
                  "rank 0 closed the connection before all processes were connected");
    close(listener);
}

static void builds(void)
{
    unsigned port;
    struct tcp_start start = {
        .world = 2, .at = tcp_place("127.0.0.1", &port), .run = 7, .silence_ms = TCP_LONG_MS};
    const struct tcp_child first = tcp_begin(start);
    start.rank = 1;
    start.identity = "another";
    const struct tcp_child second = tcp_begin(start);
    tcp_ends_with(first, -EPROTO, "is another, and rank 0 on ");
    tcp_ends_with(second, -EPROTO, "is another, and rank 0 on ");
}

TEST_MAIN({"addresses", addresses}, {"one_address_listens", one_address_listens},
          {"bad_addresses", bad_addresses}, {"strangers", strangers},
          {"wrong_hellos", wrong_hellos}, {"wrong_addresses", wrong_addresses}, {"limits", limits},
          {"another_program", another_program}, {"builds", builds},
          {"silent_address", silent_address})
