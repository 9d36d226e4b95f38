/* test_tcp_end.c: how a world of processes that are connected over TCP ends: with the message of
 * the process that ended it, also when its connection is closed, and with an error that names a
 * process which sends bytes that no process of tide sends. */
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/err.h"
#include "tests/coll/tcp_case.h"
#include "tests/harness/test.h"

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
    struct tcp_child child;
    int fd[3];
};

static struct fakes meet_as_others(unsigned world)
{
    unsigned port;
    char answer[ANSWER_BYTES + 3 * ENTRY_BYTES];
    const size_t answer_bytes = ANSWER_BYTES + world * ENTRY_BYTES;
    const struct tcp_start start = {.world = world,
                                    .at = tcp_place("127.0.0.1", &port),
                                    .run = 7,
                                    .silence_ms = TCP_LONG_MS,
                                    .receives = true};
    struct hello hello = {.magic = {'t', 'i', 'd', 'e', '-', 't', 'c', 'p'},
                          .version = 1,
                          .world = world,
                          .key = {7, 0},
                          .host = "fake"};
    struct fakes fakes = {.child = tcp_begin(start)};
    for (unsigned r = 1; r < world; r++) {
        const int yes = 1;
        fakes.fd[r] = tcp_connect(port);
        (void)setsockopt(fakes.fd[r], IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        hello.rank = r;
        check_int(write(fakes.fd[r], &hello, sizeof hello), ==, (ssize_t)sizeof hello);
    }
    for (unsigned r = 1; r < world; r++) {
        check_uint(tcp_read_all(fakes.fd[r], answer, answer_bytes), ==, answer_bytes);
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
    tcp_ends_with(fakes.child, rc, message);
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

enum { HELD_CODE = 5, TOLD_CODE = 6 };

/* Runs a process of a world that rank 0 ends. The process ends with the code of the world: rank 0
 * when `held` can be read. */
static void end_world(struct tcp_start *start, int to)
{
    struct tcp_outcome out = {.rc = 0};
    struct coll_peers *peers = tcp_open(start, &out.rc);
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
        alarm(TCP_LONG_MS / 1000 - 5);
    }
    coll_peers_close(peers, start->held > 0 ? HELD_CODE : TOLD_CODE);
}

/* If rank 0 has ended the world of a process, the process leaves the message to rank 0: it ends
 * when rank 0 has ended, neither earlier nor much later. */
static void told_by_the_first(void)
{
    unsigned port;
    int hold[2];
    int status = 0;
    struct tcp_outcome out;
    check_int(pipe(hold), ==, 0);
    struct tcp_start start = {.world = 2,
                              .at = tcp_place("127.0.0.1", &port),
                              .run = 7,
                              .silence_ms = TCP_LONG_MS,
                              .act = end_world,
                              .held = hold[0]};
    const struct tcp_child first = tcp_begin(start);
    start.held = 0;
    start.rank = 1;
    const struct tcp_child second = tcp_begin(start);
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
    check_uint(tcp_read_all(fakes.fd[1], &list, sizeof list), ==, sizeof list);
    check_uint(list.kind, ==, SHORT_KIND);
    usleep(100000); /* by then the process waits for the rest of its next message */
    check_int(write(fakes.fd[1], text, sizeof text / 2), ==, (ssize_t)sizeof text / 2);
    tcp_ends_with(fakes.child, -EIO,
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
    const struct tcp_outcome out = tcp_end(fakes.child);
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

TEST_MAIN({"frames", frames}, {"last_words", last_words}, {"told_by_the_first", told_by_the_first},
          {"too_large_for_its_receive", too_large_for_its_receive})
