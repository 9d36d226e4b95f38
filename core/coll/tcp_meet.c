/* tcp_meet.c: the other processes connect to rank 0 at the rendezvous and send their listening
 * ports. Rank 0 answers with all addresses and a random key, with which they connect to each other.
 * A connection without the run's name or key is refused. The name (coll_launch.run) is no secret,
 * so the network must be trusted. */
#include "core/coll/tcp_meet.h"

#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/log.h"

enum { VERSION = 1, WAITING_MAX = 32, TEXT_BYTES = 200, ADDRESS_BYTES = 80 };
enum { LOOK_MS = 100 }; /* between checks of the limit */
/* how long a connection may take to send its hello */
static const int64_t hello_ns = INT64_C(5) * 1000000000;
static const int64_t retry_ns = INT64_C(100) * 1000000;
/* limit of one attempt at an address of rank 0 */
static const int64_t attempt_ns_max = INT64_C(5) * 1000000000;

static const char magic[8] = {'t', 'i', 'd', 'e', '-', 't', 'c', 'p'};

/* A process's first message. Structs are sent as they are: all processes need the same build
 * (peers.c). */
struct hello {
    char magic[sizeof magic];
    uint32_t version, world, rank;
    uint32_t port; /* where the process listens; 0: none */
    uint64_t key[2];
    char host[64];
};

/* The answer to a hello. After a welcome, rank 0 also sends [world] entries. */
struct answer {
    char magic[sizeof magic];
    int32_t code; /* 0, or -errno: refused, with the reason in `text` */
    char text[TEXT_BYTES];
    uint64_t key[2];
};

struct entry {
    struct sockaddr_in6 address; /* large enough for both families */
    char host[64];
};

/* A connection whose hello has not arrived. */
struct waiting {
    int fd;
    int64_t since_ns;
    size_t got;
    struct hello hello;
    char address[ADDRESS_BYTES];
};

struct meeting {
    const struct coll_transport_options *options;
    const struct coll_launch *launch;
    struct coll_tcp_member *members; /* borrowed, [world] */
    struct entry *entries;           /* owned, [world] */
    int listener;                    /* owned; -1: none */
    uint64_t key[2];                 /* of hellos: the run's name, later the random key */
    int64_t start_ns;
    char *why; /* borrowed */
    struct waiting waiting[WAITING_MAX];
    unsigned waiting_count;
};

static int fail(struct meeting *meeting, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int fail(struct meeting *meeting, int code, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(meeting->why, COLL_TRANSPORT_WHY_BYTES, format, list);
    va_end(list);
    return code;
}

static const char *place_of(const struct meeting *meeting)
{
    return meeting->launch->rendezvous;
}

/* ---- waiting ---- */

/* Returns 0, -ETIMEDOUT at the limit or -ECANCELED for a stop; without a text. */
static int look_around(const struct meeting *meeting)
{
    const struct coll_transport_options *options = meeting->options;
    if (options->stop != NULL && options->stop(options->user)) {
        return -ECANCELED;
    }
    return core_clock_ran_ns() - meeting->start_ns < options->limit_ns ? 0 : -ETIMEDOUT;
}

/* Writes that `what` did not happen in time. Returns `code`. */
static int fail_wait(struct meeting *meeting, int code, const char *what)
{
    return code == -ECANCELED ? fail(meeting, code, "stopped by a signal before %s", what)
                              : fail(meeting, code, "%s did not happen within %.0f s", what,
                                     (double)meeting->options->limit_ns * 1e-9);
}

/* Waits for `events` at `fd`. Returns 0, the code of look_around(), or -ETIMEDOUT after
 * `until_ns`. */
static int wait_ready_until(struct meeting *meeting, int fd, short events, int64_t until_ns)
{
    for (;;) {
        struct pollfd polled = {.fd = fd, .events = events};
        if (poll(&polled, 1, LOOK_MS) > 0) {
            return 0;
        }
        const int rc = look_around(meeting);
        if (rc != 0) {
            return rc;
        }
        if (core_clock_ran_ns() >= until_ns) {
            return -ETIMEDOUT;
        }
    }
}

static int wait_ready(struct meeting *meeting, int fd, short events)
{
    return wait_ready_until(meeting, fd, events, INT64_MAX);
}

/* Returns 0, -EPIPE if the other side closed, the code of look_around(), or another -errno. */
static int move_all(struct meeting *meeting, int fd, bool sends, void *at, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        int rc = wait_ready(meeting, fd, sends ? POLLOUT : POLLIN);
        if (rc != 0) {
            return rc;
        }
        const ssize_t moved = sends ? send(fd, (char *)at + done, bytes - done, MSG_NOSIGNAL)
                                    : recv(fd, (char *)at + done, bytes - done, 0);
        if (moved == 0 && !sends) {
            return -EPIPE;
        }
        if (moved < 0 && errno != EAGAIN && errno != EINTR) {
            return errno == ECONNRESET ? -EPIPE : -errno;
        }
        done += moved > 0 ? (size_t)moved : 0;
    }
    return 0;
}

/* ---- addresses ---- */

static void print_address(const struct sockaddr *address, socklen_t bytes, char out[ADDRESS_BYTES])
{
    char host[64];
    char port[16];
    if (getnameinfo(address, bytes, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        snprintf(out, ADDRESS_BYTES, "an unknown address");
        return;
    }
    snprintf(out, ADDRESS_BYTES, address->sa_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
}

/* Resolves "HOST:PORT" or "[IPV6]:PORT". */
static int resolve(struct meeting *meeting, bool listens, struct addrinfo **out)
{
    char host[COLL_RENDEZVOUS_BYTES];
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICSERV | (listens ? AI_PASSIVE : 0)};
    const char *text = place_of(meeting);
    const char *colon = strrchr(text, ':');
    const bool bracket = text[0] == '[';
    const size_t length = colon != NULL ? (size_t)(colon - text) : 0;
    const size_t skip = bracket ? 1 : 0;
    if (colon == NULL || length <= 2 * skip || (bracket && colon[-1] != ']') ||
        (!bracket && memchr(text, ':', length) != NULL)) {
        return fail(
            meeting, -EINVAL,
            "the rendezvous \"%s\" is not HOST:PORT; an IPv6 address is written as [::1]:29501",
            text);
    }
    snprintf(host, sizeof host, "%.*s", (int)(length - 2 * skip), text + skip);
    const int rc = getaddrinfo(host, colon + 1, &hints, out);
    return rc == 0 ? 0
                   : fail(meeting, -EINVAL, "cannot resolve the rendezvous %s: %s", text,
                          gai_strerror(rc));
}

static int make_socket(int family)
{
    const int yes = 1;
    const int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    }
    return fd;
}

/* Returns the socket or -errno. */
static int listen_at(const struct sockaddr *address, socklen_t bytes)
{
    const int yes = 1;
    const int fd = make_socket(address->sa_family);
    if (fd < 0) {
        return -errno;
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (address->sa_family == AF_INET6) {
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);
    }
    if (bind(fd, address, bytes) != 0 || listen(fd, SOMAXCONN) != 0) {
        const int rc = -errno;
        close(fd);
        return rc;
    }
    return fd;
}

/* Makes one attempt of at most `attempt_ns`. Returns the socket or -errno. */
static int connect_once(struct meeting *meeting, const struct sockaddr *address, socklen_t bytes,
                        int64_t attempt_ns)
{
    const int64_t until_ns = core_clock_ran_ns() + attempt_ns;
    int error = 0;
    socklen_t error_bytes = sizeof error;
    const int fd = make_socket(address->sa_family);
    if (fd < 0) {
        return -errno;
    }
    int rc = connect(fd, address, bytes) == 0 ? 0 : -errno;
    if (rc == -EINPROGRESS) {
        rc = wait_ready_until(meeting, fd, POLLOUT, until_ns);
    }
    if (rc == 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_bytes) == 0) {
        rc = -error;
    }
    if (rc != 0) {
        close(fd);
    }
    return rc != 0 ? rc : fd;
}

/* ---- processes that connect ---- */

static struct answer make_answer(const struct meeting *meeting, int code)
{
    struct answer answer = {.code = code, .key = {meeting->key[0], meeting->key[1]}};
    memcpy(answer.magic, magic, sizeof magic);
    return answer;
}

static struct hello make_hello(const struct meeting *meeting, uint32_t port)
{
    const struct coll_launch *launch = meeting->launch;
    struct hello hello = {.version = VERSION,
                          .world = launch->world,
                          .rank = launch->rank,
                          .port = port,
                          .key = {meeting->key[0], meeting->key[1]}};
    memcpy(hello.magic, magic, sizeof magic);
    if (gethostname(hello.host, sizeof hello.host - 1) != 0) {
        snprintf(hello.host, sizeof hello.host, "unknown");
    }
    return hello;
}

/* Returns whether a hello is refused; if so, writes the reason to `text`. Ranks below `first` do
 * not connect to this one. */
static bool refuses(const struct meeting *meeting, const struct hello *hello, unsigned first,
                    char text[TEXT_BYTES])
{
    const struct coll_launch *launch = meeting->launch;
    if (memcmp(hello->magic, magic, sizeof magic) != 0) {
        snprintf(text, TEXT_BYTES, "it is not a process of tide");
    } else if (hello->version != VERSION) {
        snprintf(text, TEXT_BYTES, "it is of another version of tide");
    } else if (hello->key[0] != meeting->key[0] || hello->key[1] != meeting->key[1]) {
        snprintf(text, TEXT_BYTES, "it is a process of another run of torchrun");
    } else if (hello->world != launch->world) {
        snprintf(text, TEXT_BYTES, "it is one of %u processes, and rank %u is one of %u",
                 hello->world, launch->rank, launch->world);
    } else if (hello->rank < first || hello->rank >= launch->world) {
        snprintf(text, TEXT_BYTES, "rank %u does not connect to rank %u", hello->rank,
                 launch->rank);
    } else if (meeting->members[hello->rank].fd >= 0) {
        snprintf(text, TEXT_BYTES, "rank %u is already connected", hello->rank);
    } else {
        return false;
    }
    return true;
}

static void forget(struct meeting *meeting, unsigned index)
{
    meeting->waiting[index] = meeting->waiting[--meeting->waiting_count];
}

static void refuse(struct meeting *meeting, unsigned index, const char *text)
{
    const struct waiting *waiting = &meeting->waiting[index];
    struct answer answer = make_answer(meeting, -EPROTO);
    answer.key[0] = answer.key[1] = 0;
    snprintf(answer.text, sizeof answer.text, "%s", text);
    core_log(CORE_LOG_WARN, "refused a connection from %s: %s", waiting->address, text);
    (void)send(waiting->fd, &answer, sizeof answer, MSG_NOSIGNAL | MSG_DONTWAIT);
    close(waiting->fd);
    forget(meeting, index);
}

static void accept_connection(struct meeting *meeting)
{
    struct sockaddr_storage address;
    socklen_t bytes = sizeof address;
    const int yes = 1;
    const int fd = accept4(meeting->listener, (struct sockaddr *)&address, &bytes,
                           SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        return;
    }
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (meeting->waiting_count == WAITING_MAX) {
        refuse(meeting, 0, "too many open connections have not identified themselves yet");
    }
    struct waiting *waiting = &meeting->waiting[meeting->waiting_count++];
    *waiting = (struct waiting){.fd = fd, .since_ns = core_clock_ran_ns()};
    print_address((struct sockaddr *)&address, bytes, waiting->address);
}

static void take_member(struct meeting *meeting, unsigned index, unsigned first)
{
    char text[TEXT_BYTES];
    const struct waiting *waiting = &meeting->waiting[index];
    const struct hello *hello = &waiting->hello;
    if (refuses(meeting, hello, first, text)) {
        refuse(meeting, index, text);
        return;
    }
    struct entry *entry = &meeting->entries[hello->rank];
    socklen_t bytes = sizeof entry->address;
    (void)getpeername(waiting->fd, (struct sockaddr *)&entry->address, &bytes);
    /* The port has the same place in both families. */
    entry->address.sin6_port = htons((uint16_t)hello->port);
    snprintf(entry->host, sizeof entry->host, "%.*s", (int)sizeof hello->host - 1, hello->host);
    meeting->members[hello->rank].fd = waiting->fd;
    memcpy(meeting->members[hello->rank].host, entry->host, sizeof entry->host);
    forget(meeting, index);
}

static void hear(struct meeting *meeting, unsigned index, unsigned first)
{
    struct waiting *waiting = &meeting->waiting[index];
    const ssize_t got = recv(waiting->fd, (char *)&waiting->hello + waiting->got,
                             sizeof waiting->hello - waiting->got, 0);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
        close(waiting->fd);
        forget(meeting, index);
        return;
    }
    waiting->got += got > 0 ? (size_t)got : 0;
    if (waiting->got == sizeof waiting->hello) {
        take_member(meeting, index, first);
    } else if (core_clock_ran_ns() - waiting->since_ns > hello_ns) {
        refuse(meeting, index, "it does not identify itself");
    }
}

/* Returns the lowest missing rank from `first` on; the world: none. */
static unsigned find_missing(const struct meeting *meeting, unsigned first)
{
    while (first < meeting->launch->world && meeting->members[first].fd >= 0) {
        first++;
    }
    return first;
}

static int accept_members(struct meeting *meeting, unsigned first)
{
    for (unsigned missing; (missing = find_missing(meeting, first)) < meeting->launch->world;) {
        struct pollfd polled[WAITING_MAX + 1];
        const unsigned count = meeting->waiting_count;
        for (unsigned i = 0; i < count; i++) {
            polled[i] = (struct pollfd){.fd = meeting->waiting[i].fd, .events = POLLIN};
        }
        polled[count] = (struct pollfd){.fd = meeting->listener, .events = POLLIN};
        (void)poll(polled, count + 1, LOOK_MS);
        /* backwards, because the last one replaces a removed one */
        for (unsigned i = count; i-- > 0;) {
            hear(meeting, i, first);
        }
        if ((polled[count].revents & POLLIN) != 0) {
            accept_connection(meeting);
        }
        const int rc = look_around(meeting);
        if (rc != 0) {
            char what[COLL_RENDEZVOUS_BYTES + 64];
            snprintf(what, sizeof what, "the arrival of rank %u of %u at %s", missing,
                     meeting->launch->world, place_of(meeting));
            return fail_wait(meeting, rc, what);
        }
    }
    while (meeting->waiting_count > 0) {
        refuse(meeting, 0, "all processes are connected already");
    }
    return 0;
}

/* ---- rank 0 ---- */

static int listen_at_rendezvous(struct meeting *meeting)
{
    struct addrinfo *list = NULL;
    int rc = resolve(meeting, true, &list);
    for (const struct addrinfo *at = list; meeting->listener < 0 && at != NULL; at = at->ai_next) {
        rc = listen_at(at->ai_addr, at->ai_addrlen);
        meeting->listener = rc >= 0 ? rc : -1;
    }
    if (list == NULL) {
        return rc;
    }
    freeaddrinfo(list);
    return meeting->listener >= 0
               ? 0
               : fail(meeting, rc,
                      "rank 0 cannot listen at the rendezvous %s: %s; give all processes "
                      "--rendezvous HOST:PORT, an address of rank 0's machine and a free port",
                      place_of(meeting), strerror(-rc));
}

static int host_meeting(struct meeting *meeting)
{
    int rc = listen_at_rendezvous(meeting);
    if (rc == 0) {
        rc = accept_members(meeting, 1);
    }
    if (rc != 0) {
        return rc;
    }
    if (getrandom(meeting->key, sizeof meeting->key, 0) != (ssize_t)sizeof meeting->key) {
        return fail(meeting, -EIO, "no random numbers: %s", strerror(errno));
    }
    memcpy(meeting->entries[0].host, meeting->members[0].host, sizeof meeting->entries[0].host);
    struct answer welcome = make_answer(meeting, 0);
    for (unsigned r = 1; r < meeting->launch->world; r++) {
        const int fd = meeting->members[r].fd;
        rc = move_all(meeting, fd, true, &welcome, sizeof welcome);
        if (rc == 0) {
            rc = move_all(meeting, fd, true, meeting->entries,
                          meeting->launch->world * sizeof *meeting->entries);
        }
        if (rc != 0) {
            return fail(
                meeting, rc,
                "rank %u on %s closed its connection before all processes were connected: %s", r,
                meeting->members[r].host, strerror(-rc));
        }
    }
    return 0;
}

/* ---- the others ---- */

/* The whole limit has room for two attempts at each address of rank 0. */
static int64_t attempt_limit(const struct meeting *meeting, const struct addrinfo *list)
{
    int64_t attempts = 0;
    for (const struct addrinfo *at = list; at != NULL; at = at->ai_next) {
        attempts += 2;
    }
    const int64_t share_ns = meeting->options->limit_ns / attempts;
    return share_ns < attempt_ns_max ? share_ns : attempt_ns_max;
}

/* Tries until the limit, because rank 0 may not listen yet. Returns the socket or -errno. */
static int connect_rendezvous(struct meeting *meeting)
{
    struct addrinfo *list = NULL;
    int rc = resolve(meeting, false, &list);
    if (rc != 0) {
        return rc;
    }
    int fd = -1;
    int looked = 0;
    while (fd < 0 && looked == 0) {
        for (const struct addrinfo *at = list; fd < 0 && at != NULL; at = at->ai_next) {
            fd = connect_once(meeting, at->ai_addr, at->ai_addrlen, attempt_limit(meeting, list));
        }
        looked = look_around(meeting);
        if (fd < 0) {
            (void)poll(NULL, 0, (int)(retry_ns / 1000000));
        }
    }
    freeaddrinfo(list);
    if (fd >= 0) {
        return fd;
    }
    if (looked == -ECANCELED) {
        return fail_wait(meeting, looked, "it reached rank 0");
    }
    return fail(meeting, -ETIMEDOUT,
                "rank %u cannot reach rank 0 at the rendezvous %s within %.0f s: %s",
                meeting->launch->rank, place_of(meeting), (double)meeting->options->limit_ns * 1e-9,
                strerror(-fd));
}

static int listen_beside(struct meeting *meeting, int fd, uint32_t *port)
{
    struct sockaddr_in6 address;
    socklen_t bytes = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &bytes) == 0) {
        address.sin6_port = 0;
        meeting->listener = listen_at((struct sockaddr *)&address, bytes);
    }
    if (meeting->listener < 0 ||
        getsockname(meeting->listener, (struct sockaddr *)&address, &bytes) != 0) {
        return fail(meeting, -EIO, "rank %u cannot listen for the others: %s",
                    meeting->launch->rank, strerror(errno));
    }
    *port = ntohs(address.sin6_port);
    return 0;
}

static int introduce(struct meeting *meeting, unsigned to, uint32_t port, struct answer *out)
{
    const int fd = meeting->members[to].fd;
    struct hello hello = make_hello(meeting, port);
    struct answer answer;
    int rc = move_all(meeting, fd, true, &hello, sizeof hello);
    if (rc == 0) {
        rc = move_all(meeting, fd, false, &answer, sizeof answer);
    }
    if (rc == -ETIMEDOUT || rc == -ECANCELED) {
        return fail_wait(meeting, rc, "the arrival of all processes");
    }
    if (rc != 0) {
        return fail(meeting, rc,
                    "rank %u closed the connection before all processes were connected; its own "
                    "message gives the reason",
                    to);
    }
    if (memcmp(answer.magic, magic, sizeof magic) != 0) {
        return to == 0 ? fail(meeting, -EPROTO,
                              "another program than tide answers at %s; give all processes "
                              "--rendezvous HOST:PORT with a free port",
                              place_of(meeting))
                       : fail(meeting, -EPROTO,
                              "another program than tide answers at the port of rank %u on %s", to,
                              meeting->entries[to].host);
    }
    if (answer.code != 0) {
        return fail(meeting, -EPROTO, "rank %u refuses rank %u: %.*s", to, meeting->launch->rank,
                    (int)sizeof answer.text - 1, answer.text);
    }
    *out = answer;
    return 0;
}

static int connect_lower(struct meeting *meeting, unsigned to)
{
    const struct entry *entry = &meeting->entries[to];
    char address[ADDRESS_BYTES];
    struct answer unused;
    const socklen_t bytes = entry->address.sin6_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                                   : sizeof(struct sockaddr_in);
    const int fd = connect_once(meeting, (const struct sockaddr *)&entry->address, bytes,
                                meeting->options->limit_ns);
    if (fd < 0) {
        print_address((const struct sockaddr *)&entry->address, bytes, address);
        return fail(meeting, fd, "rank %u cannot connect to rank %u on %s at %s: %s",
                    meeting->launch->rank, to, entry->host, address, strerror(-fd));
    }
    meeting->members[to].fd = fd;
    return introduce(meeting, to, 0, &unused);
}

static int welcome_higher(struct meeting *meeting)
{
    struct answer welcome = make_answer(meeting, 0);
    int rc = 0;
    for (unsigned r = meeting->launch->rank + 1; rc == 0 && r < meeting->launch->world; r++) {
        rc = move_all(meeting, meeting->members[r].fd, true, &welcome, sizeof welcome);
    }
    return rc != 0 ? fail_wait(meeting, rc, "an answer to all processes") : 0;
}

static int join_meeting(struct meeting *meeting)
{
    const struct coll_launch *launch = meeting->launch;
    uint32_t port = 0;
    struct answer answer;
    int rc = connect_rendezvous(meeting);
    if (rc < 0) {
        return rc;
    }
    meeting->members[0].fd = rc;
    rc = listen_beside(meeting, meeting->members[0].fd, &port);
    if (rc == 0) {
        rc = introduce(meeting, 0, port, &answer);
    }
    if (rc != 0) {
        return rc;
    }
    memcpy(meeting->key, answer.key, sizeof meeting->key);
    rc = move_all(meeting, meeting->members[0].fd, false, meeting->entries,
                  launch->world * sizeof *meeting->entries);
    if (rc != 0) {
        return fail(meeting, rc, "rank 0 did not send the addresses of the other ranks: %s",
                    strerror(-rc));
    }
    for (unsigned r = 0; r < launch->world; r++) {
        meeting->entries[r].host[sizeof meeting->entries[r].host - 1] = '\0';
        memcpy(meeting->members[r].host, meeting->entries[r].host, sizeof meeting->members[r].host);
    }
    for (unsigned r = 1; rc == 0 && r < launch->rank; r++) {
        rc = connect_lower(meeting, r);
    }
    if (rc == 0) {
        rc = accept_members(meeting, launch->rank + 1);
    }
    return rc != 0 ? rc : welcome_higher(meeting);
}

int coll_tcp_meet(const struct coll_transport_options *options, struct coll_tcp_member *members,
                  char *why)
{
    const struct coll_launch *launch = options->launch;
    struct meeting *meeting = calloc(1, sizeof *meeting);
    struct entry *entries = calloc(launch->world, sizeof *entries);
    if (meeting == NULL || entries == NULL) {
        free(meeting);
        free(entries);
        snprintf(why, COLL_TRANSPORT_WHY_BYTES, "no memory for %u processes", launch->world);
        return -ENOMEM;
    }
    *meeting = (struct meeting){.options = options,
                                .launch = launch,
                                .members = members,
                                .entries = entries,
                                .listener = -1,
                                .key = {launch->run, 0},
                                .start_ns = core_clock_ran_ns(),
                                .why = why};
    for (unsigned r = 0; r < launch->world; r++) {
        members[r].fd = -1;
    }
    const struct hello own = make_hello(meeting, 0);
    memcpy(members[launch->rank].host, own.host, sizeof own.host);
    const int rc = launch->rank == 0 ? host_meeting(meeting) : join_meeting(meeting);
    while (meeting->waiting_count > 0) {
        close(meeting->waiting[0].fd);
        forget(meeting, 0);
    }
    for (unsigned r = 0; rc != 0 && r < launch->world; r++) {
        if (members[r].fd >= 0) {
            close(members[r].fd);
        }
    }
    if (meeting->listener >= 0) {
        close(meeting->listener);
    }
    free(entries);
    free(meeting);
    return rc;
}
