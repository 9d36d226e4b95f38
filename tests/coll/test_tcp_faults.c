/* test_tcp_faults.c: system calls that fail, are interrupted or move few bytes, in two processes
 * that compute sums over TCP. Both processes end; an error is reported, or the sums are right. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/coll/coll.h"
#include "tests/coll/tcp_case.h"
#include "tests/harness/child.h"
#include "tests/harness/test.h"

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
    enum call fails; /* the `nth` of these calls, from 1, fails with `error` */
    unsigned nth;
    int error;
    size_t most; /* bytes per call, with every third call interrupted; 0: no limit */
} faults;        /* in this process */

static _Atomic unsigned calls; /* calls of the kind that fails */

static bool call_fails(enum call call)
{
    const bool counts = faults.fails == call;
    const unsigned number = counts ? atomic_fetch_add(&calls, 1) + 1 : 0;
    errno = faults.error;
    return counts && number == faults.nth;
}

/* Fails every third call with EINTR or EAGAIN, if `faults.most` is set. */
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

/* Sums arrays that come with the heads, and longer ones. */
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

/* Results of a process. */
struct life {
    int rc;
    unsigned calls;
    char message[512];
};

enum { WORLD_ENDED = 7 };

static void live(struct tcp_start *start, int to)
{
    struct life life = {.rc = 0};
    struct coll_peers *peers = tcp_open(start, &life.rc);
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

/* Runs a world of two with faults in one process, or in all. */
static struct life run_lives(struct faults with, int silence_ms, unsigned faulty, bool all)
{
    unsigned port;
    struct tcp_child children[2];
    struct life lives[2] = {{.rc = 1}, {.rc = 1}};
    struct tcp_start start = {.world = 2,
                              .at = tcp_place("127.0.0.1", &port),
                              .run = 7,
                              .silence_ms = silence_ms,
                              .act = live};
    for (unsigned r = 0; r < 2; r++) {
        start.rank = r;
        faults = all || r == faulty ? with : (struct faults){.fails = CALL_NONE};
        children[r] = tcp_begin(start);
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

/* A call that fails ends both processes, with an error or right sums. The limit is short, so a busy
 * machine may cause another error. */
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
            life = run_lives(with, TCP_SHORT_MS / 2, rows[i].rank, false);
            failed += life.rc != 0;
            check_uint(n, <, 300);
        }
        test_note("kind %d of rank %u: %u calls, %u runs failed", (int)rows[i].call, rows[i].rank,
                  life.calls, failed);
        check_true(failed > 0 || !rows[i].minds);
    }
}

/* Sums are right although calls move few bytes and are interrupted. */
static void few_bytes_at_a_time(void)
{
    const struct life life = run_lives((struct faults){.most = 97}, TCP_LONG_MS, 0, true);
    check_string(life.message, "");
    check_int(life.rc, ==, 0);
}

TEST_MAIN({"failing_calls", failing_calls}, {"few_bytes_at_a_time", few_bytes_at_a_time})
