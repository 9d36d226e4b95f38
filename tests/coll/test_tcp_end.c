/* test_tcp_end.c: how a world of processes over TCP ends, and with which message. Receives that are
 * cancelled, and sends to a process that has left, are tested on the transport itself. */
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/coll/coll.h"
#include "core/coll/transport.h"
#include "tests/coll/tcp_case.h"
#include "tests/harness/child.h"
#include "tests/harness/test.h"

/* as in tcp.c and peers.c */
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
enum { SHORT_KIND = 0x7464, ASK_KIND, GO_KIND, DATA_KIND, BYE_KIND };

/* A process, and connections through which the case acts as the other ranks. */
struct fakes {
    struct tcp_child child;
    int fd[3];
};

static struct fakes meet_with(struct tcp_start start)
{
    unsigned port;
    const unsigned world = start.world;
    char answer[TCP_ANSWER_BYTES + 3 * TCP_ENTRY_BYTES];
    const size_t answer_bytes = TCP_ANSWER_BYTES + world * TCP_ENTRY_BYTES;
    struct tcp_hello hello = tcp_hello_of(world);
    start.at = tcp_place("127.0.0.1", &port);
    start.run = 7;
    start.silence_ms = start.silence_ms > 0 ? start.silence_ms : TCP_LONG_MS;
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

static struct fakes meet_as_others(unsigned world)
{
    return meet_with((struct tcp_start){.world = world, .receives = true});
}

static void send_short(int fd, int tag, const void *from, size_t bytes)
{
    const struct frame frame = {.kind = SHORT_KIND, .tag = tag, .bytes = bytes};
    check_int(write(fd, &frame, sizeof frame), ==, (ssize_t)sizeof frame);
    check_int(write(fd, from, bytes), ==, (ssize_t)bytes);
}

/* Sends the message that identifies a process. */
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

/* Stops the process, which reads everything at once when it is continued. */
static void stop(const struct fakes *fakes)
{
    int status = 0;
    check_int(kill(fakes->child.pid, SIGSTOP), ==, 0);
    check_int(waitpid(fakes->child.pid, &status, WUNTRACED), ==, fakes->child.pid);
    check_true(WIFSTOPPED(status));
}

/* Ends ranks 1 and 2, as which the case acts, while rank 0 reads nothing. `words` are the messages
 * of their ends; NULL: none. */
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
        if (resets) { /* as if the process had unread data */
            (void)setsockopt(fakes.fd[r], SOL_SOCKET, SO_LINGER, &none, sizeof none);
        }
        close(fakes.fd[r]);
    }
    check_int(kill(fakes.child.pid, SIGCONT), ==, 0);
    tcp_ends_with(fakes.child, rc, message);
}

/* A process's last message is read although its connection is closed; without messages, the first
 * process to end is named. */
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

/* Invalid messages about a process are ignored; an end without a code is an error. */
static void odd_words(void)
{
    const struct service end = {.kind = ENDED, .rank = 1, .message = "rank 1: no code"};
    const struct fakes fakes = meet_as_others(2);
    send_name(fakes.fd[1]);
    send_short(fakes.fd[1], 1, &end, 4);
    send_service(fakes.fd[1], 9, ENDED, "rank 9: is not heard");
    send_short(fakes.fd[1], 1, &end, sizeof end);
    tcp_ends_with(fakes.child, -EIO, "rank 1: no code");
    close(fakes.fd[1]);
}

/* A process that says nothing is named by its rank. */
static void says_nothing(void)
{
    const struct fakes fakes = meet_with(
        (struct tcp_start){.world = 2, .silence_ms = TCP_SHORT_MS});
    tcp_ends_with(fakes.child, -ETIMEDOUT, "rank 1 has not responded for ");
    close(fakes.fd[1]);
}

/* Texts without a final zero end with their message or member. */
static void texts_without_end(void)
{
    struct service alive = {.kind = ALIVE, .rank = 1};
    struct service end = {.kind = ENDED, .rank = 1, .code = -ENOSPC};
    struct coll_peer name;
    struct fakes fakes = meet_as_others(2);
    send_name(fakes.fd[1]);
    memset(alive.message, 'y', sizeof alive.message);
    memcpy(end.message, "rank 1: is full", 15);
    send_short(fakes.fd[1], 1, &alive, sizeof alive);
    send_short(fakes.fd[1], 1, &end, offsetof(struct service, message) + 15);
    const struct tcp_outcome out = tcp_end(fakes.child);
    check_int(out.rc, ==, -ENOSPC);
    check_string(out.message, "rank 1: is full");
    close(fakes.fd[1]);
    fakes = meet_as_others(2);
    memset(&name, 'h', sizeof name);
    memset(name.identity, 'i', sizeof name.identity);
    send_short(fakes.fd[1], 2, &name, sizeof name);
    char text[256];
    snprintf(text, sizeof text, "rank 1 on %.63s is %.127s, and rank 0 on ", name.host,
             name.identity);
    tcp_ends_with(fakes.child, -EPROTO, text);
    close(fakes.fd[1]);
}

/* Head of a collective, as in coll_processes.c. */
struct head {
    uint32_t kind;
    int32_t code;
    uint32_t op, type, root, within;
    uint64_t count, borders, sum_type;
};
enum { HEAD_WORK, HEAD_LEFT, HEAD_ABORTED, HEAD_TAG = 16 };

static void sum_and_meet(struct tcp_start *start, int to)
{
    static float array[800];
    struct tcp_outcome out = {.rc = 0};
    struct coll_peers *peers = tcp_open(start, &out.rc);
    const struct coll_options options = {.kind = "processes", .world = 2, .peers = peers};
    const struct coll_command commands[2] = {
        {.op = COLL_ALL_REDUCE, .from = array, .to = array, .count = 800}, {.op = COLL_BARRIER}};
    struct coll *coll = NULL;
    out.rc = out.rc == 0 ? coll_open(&options, &coll) : out.rc;
    for (int i = 0; out.rc == 0 && i < 2; i++) {
        struct core_fence fence;
        out.rc = coll_submit(coll, &commands[i], &fence);
        out.rc = out.rc == 0 ? core_fence_wait(fence, TCP_LONG_MS * INT64_C(1000000)) : out.rc;
    }
    snprintf(out.message, sizeof out.message, "%s", core_err_message());
    check_int(write(to, &out, sizeof out), ==, (ssize_t)sizeof out);
    test_child_end(0);
}

/* Acts as rank 1 and aborts the second collective. */
static void abort_with(int32_t code, size_t bytes, int rc, const char *message)
{
    static struct {
        struct head head;
        char data[3200];
    } sum, end;
    const struct fakes fakes = meet_with((struct tcp_start){.world = 2, .act = sum_and_meet});
    sum.head = (struct head){.kind = HEAD_WORK, .op = COLL_ALL_REDUCE, .count = 800};
    memset(sum.data, 'y', sizeof sum.data);
    end.head = (struct head){.kind = HEAD_ABORTED, .code = code};
    memcpy(end.data, "rank 1: is full", 15);
    send_name(fakes.fd[1]);
    send_short(fakes.fd[1], HEAD_TAG, &sum, sizeof sum);
    send_short(fakes.fd[1], HEAD_TAG, &end, bytes);
    const struct tcp_outcome out = tcp_end(fakes.child);
    check_int(out.rc, ==, rc);
    check_string(out.message, message);
    close(fakes.fd[1]);
}

/* A rank's abort ends the world with its code and message; a wrong code or head is an
 * error, too. */
static void odd_heads(void)
{
    const size_t whole = sizeof(struct head) + 15;
    abort_with(-ENOSPC, whole, -ENOSPC, "rank 1: is full");
    abort_with(5, whole, -EPROTO, "rank 1: is full");
    abort_with(-ENOSPC, 20, -EPROTO, "rank 1 sent a head of 20 bytes; expected 48");
}

enum { HELD_CODE = 5, TOLD_CODE = 6 };

/* Runs a process of a world that rank 0 ends. Rank 0 ends with HELD_CODE once `held` can be read,
 * the other process with TOLD_CODE. */
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
        /* coll_peers_close() must return before the limit for a rank 0 that does not end */
        alarm(TCP_LONG_MS / 1000 - 5);
    }
    coll_peers_close(peers, start->held > 0 ? HELD_CODE : TOLD_CODE);
}

/* If rank 0 ends the world, the other process waits for the end of rank 0, which prints the
 * message. */
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

/* A partly received message that is too large for its receive ends the world. */
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
    usleep(100000); /* the process waits for the rest now */
    check_int(write(fakes.fd[1], text, sizeof text / 2), ==, (ssize_t)sizeof text / 2);
    tcp_ends_with(fakes.child, -EIO,
                  "TCP failed: rank 1 on fake sent 100 bytes to a receive of at most 1");
    close(fakes.fd[1]);
}

/* Acts as rank 1: sends a frame, or closes if its kind is 0. Checks the child's message. */
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

/* ---- the transport alone ---- */

/* The process calls the transport as peers.c does; the case acts as rank 1. Pipes order the two. */
static const struct coll_transport *const tcp = &coll_transport_tcp;
static char why[COLL_TRANSPORT_WHY_BYTES];
static unsigned char buffer[8192];
static int go_on_at, told_at;

static void await(void)
{
    char byte;
    check_int(read(go_on_at, &byte, 1), ==, 1);
}

static void tell(void)
{
    check_int(write(told_at, "", 1), ==, 1);
}

/* Receives an empty message. */
static int takes_nothing(void)
{
    size_t bytes = 9;
    int rc = tcp->receive(0, 1, 5, buffer, sizeof buffer, why);
    tell();
    while (rc == 0) {
        rc = tcp->progress(why);
        rc = rc == 0 ? tcp->test(0, &bytes, why) : rc;
    }
    return rc == 1 && bytes == 0 ? tcp->close(why) : -EBADMSG;
}

/* Cancels a receive of which half has arrived; returns the result of the cancellation. */
static int cancels_half(void)
{
    int rc = tcp->receive(0, 1, 5, buffer, 100, why);
    tell();
    while (rc == 0 && buffer[0] != 'x') {
        rc = tcp->progress(why);
    }
    tell();
    await();
    return rc == 0 ? tcp->cancel(0, why) : rc;
}

static int cancels_the_rest(void)
{
    return cancels_half() == 0 && buffer[0] == 'x' && buffer[99] == 'x' ? tcp->close(why)
                                                                        : -EBADMSG;
}

static int cancels_and_loses(void)
{
    return cancels_half() == 1 ? tcp->progress(why) : -EBADMSG;
}

/* Cancels the second of two waiting receives. */
static int cancels_the_second(void)
{
    size_t bytes = 9;
    int rc = tcp->receive(0, 1, 5, buffer, 8, why);
    rc = rc == 0 ? tcp->receive(1, 1, 6, buffer + 8, 8, why) : rc;
    if (rc != 0 || tcp->cancel(1, why) != 1) {
        return -EBADMSG;
    }
    tell();
    await();
    while (rc == 0) {
        rc = tcp->progress(why);
        rc = rc == 0 ? tcp->test(0, &bytes, why) : rc;
    }
    return rc == 1 && bytes == 8 && buffer[8] == 0 ? tcp->close(why) : -EBADMSG;
}

/* Receives from, and sends to, a process that has left. */
static int reaches_nobody(void)
{
    size_t bytes;
    int found = 0;
    int rc = tcp->receive(0, 1, 5, buffer, 8, why);
    tell();
    while (rc == 0 && found == 0) {
        rc = tcp->progress(why);
        found = tcp->test(0, &bytes, why);
    }
    if (rc != 0 || found != -EPIPE) {
        return -EBADMSG;
    }
    rc = tcp->send(1, 1, 5, buffer, sizeof buffer, why);
    return rc == 0 ? tcp->test(1, &bytes, why) : rc;
}

/* Closes before a message is received. */
static int leaves_a_message(void)
{
    tell();
    await();
    const int rc = tcp->progress(why);
    return rc == 0 ? tcp->close(why) : rc;
}

/* Sends a long message whose answer is wrong; returns the failure. */
static int sends_long(void)
{
    size_t bytes;
    int rc = tcp->send(0, 1, 5, buffer, sizeof buffer, why);
    tell();
    while (rc == 0) {
        rc = tcp->progress(why);
        (void)tcp->test(0, &bytes, why);
    }
    return rc;
}

/* Receives a long message of another length than announced. */
static int takes_long(void)
{
    int rc = tcp->receive(0, 1, 5, buffer, sizeof buffer, why);
    tell();
    while (rc == 0) {
        rc = tcp->progress(why);
    }
    return rc;
}

static int is_flooded(void)
{
    int rc = 0;
    tell();
    while (rc == 0) {
        rc = tcp->progress(why);
    }
    return rc;
}

static int (*part)(void); /* what the process does */

static void play(struct tcp_start *start, int to)
{
    struct coll_launch launch = {.torchrun = true, .world = start->world, .run = start->run};
    struct coll_place place;
    struct tcp_outcome out = {.rc = 0};
    snprintf(launch.rendezvous, sizeof launch.rendezvous, "%s", start->at);
    const struct coll_transport_options options = {
        .launch = &launch, .slots = 4, .limit_ns = TCP_LONG_MS * INT64_C(1000000)};
    go_on_at = start->held;
    told_at = to;
    out.rc = tcp->open(&options, &place, why);
    out.rc = out.rc == 0 ? part() : out.rc;
    snprintf(out.message, sizeof out.message, "%.500s", why);
    check_int(write(to, &out, sizeof out), ==, (ssize_t)sizeof out);
    test_child_end(0);
}

static int go_on;

static struct fakes begin_part(int (*now)(void))
{
    int hold[2];
    check_int(pipe(hold), ==, 0);
    part = now;
    const struct fakes fakes = meet_with(
        (struct tcp_start){.world = 2, .act = play, .held = hold[0]});
    close(hold[0]);
    go_on = hold[1];
    return fakes;
}

static void wait_told(const struct fakes *fakes)
{
    char byte;
    check_int(read(fakes->child.from, &byte, 1), ==, 1);
}

static void release(void)
{
    check_int(write(go_on, "", 1), ==, 1);
}

static void send_bye(int fd)
{
    const struct frame bye = {.kind = BYE_KIND};
    check_int(write(fd, &bye, sizeof bye), ==, (ssize_t)sizeof bye);
}

static void end_part(const struct fakes *fakes, int rc, const char *message)
{
    tcp_ends_with(fakes->child, rc, message);
    close(fakes->fd[1]);
    close(go_on);
}

/* Receives end with an empty message, and can be cancelled. */
static void receives(void)
{
    char text[100];
    const struct frame frame = {.kind = SHORT_KIND, .tag = 5, .bytes = sizeof text};
    memset(text, 'x', sizeof text);
    struct fakes fakes = begin_part(takes_nothing);
    wait_told(&fakes);
    send_short(fakes.fd[1], 5, text, 0);
    send_bye(fakes.fd[1]);
    end_part(&fakes, 0, "");
    for (int whole = 0; whole < 2; whole++) {
        fakes = begin_part(whole ? cancels_the_rest : cancels_and_loses);
        wait_told(&fakes);
        check_int(write(fakes.fd[1], &frame, sizeof frame), ==, (ssize_t)sizeof frame);
        check_int(write(fakes.fd[1], text, sizeof text / 2), ==, (ssize_t)sizeof text / 2);
        wait_told(&fakes);
        if (whole) {
            check_int(write(fakes.fd[1], text, sizeof text / 2), ==, (ssize_t)sizeof text / 2);
            send_bye(fakes.fd[1]);
        } else {
            check_int(shutdown(fakes.fd[1], SHUT_WR), ==, 0);
        }
        release();
        end_part(&fakes, whole ? 0 : -EPIPE,
                 whole ? "" : "rank 1 on fake has closed its connection");
    }
    fakes = begin_part(cancels_the_second);
    wait_told(&fakes);
    send_short(fakes.fd[1], 6, text, 8);
    send_short(fakes.fd[1], 5, text, 8);
    send_bye(fakes.fd[1]);
    release();
    end_part(&fakes, 0, "");
}

/* Sends `bytes` bytes up to `max` times, until the process ends the connection; returns
 * how often. */
static size_t send_flood(const void *flood, size_t bytes, size_t max)
{
    const struct fakes fakes = begin_part(is_flooded);
    size_t sent = 0;
    wait_told(&fakes);
    while (sent < max && send(fakes.fd[1], flood, bytes, MSG_NOSIGNAL) == (ssize_t)bytes) {
        sent++;
    }
    if (sent < max) {
        end_part(&fakes, -EPROTO, "while too many earlier ones wait for their receives");
    }
    return sent;
}

/* A process that sends messages, or announces long ones, without end is cut off. */
static void floods(void)
{
    enum { MESSAGE = 4096, MIB = 1 << 20, ASKS = 1000 };
    static unsigned char flood[sizeof(struct frame) + MESSAGE];
    static struct frame asks[ASKS];
    const struct frame frame = {.kind = SHORT_KIND, .tag = 9, .bytes = MESSAGE};
    memcpy(flood, &frame, sizeof frame);
    const size_t messages = send_flood(flood, sizeof flood, 80 * MIB / MESSAGE);
    check_uint(messages, >=, 60 * MIB / MESSAGE);
    check_uint(messages, <, 80 * MIB / MESSAGE);
    for (size_t i = 0; i < ASKS; i++) {
        asks[i] = (struct frame){.kind = ASK_KIND, .tag = 9, .bytes = 2 * MESSAGE};
    }
    const size_t most = 80 * MIB / sizeof asks;
    check_uint(send_flood(asks, sizeof asks, most), <, most);
}

/* A process that has left is not reached; its earlier messages are freed. */
static void others_leave(void)
{
    const unsigned char text[20] = {0};
    struct fakes fakes = begin_part(reaches_nobody);
    wait_told(&fakes);
    send_bye(fakes.fd[1]);
    check_int(shutdown(fakes.fd[1], SHUT_WR), ==, 0);
    end_part(&fakes, -EPIPE, "rank 1 on fake has left");
    fakes = begin_part(leaves_a_message);
    wait_told(&fakes);
    send_short(fakes.fd[1], 9, text, 20);
    send_short(fakes.fd[1], 9, text, 0);
    send_bye(fakes.fd[1]);
    release();
    end_part(&fakes, 0, "");
}

/* An answer or data of another size than the message ends the connection. */
static void other_sizes(void)
{
    struct frame ask;
    const struct frame answer = {.kind = GO_KIND, .tag = 5, .bytes = sizeof buffer - 1};
    const struct frame announced = {.kind = ASK_KIND, .tag = 5, .bytes = 8000, .from = 3};
    const struct frame data = {.kind = DATA_KIND, .tag = 5, .bytes = 7999};
    struct fakes fakes = begin_part(sends_long);
    wait_told(&fakes);
    check_uint(tcp_read_all(fakes.fd[1], &ask, sizeof ask), ==, sizeof ask);
    check_uint(ask.bytes, ==, sizeof buffer);
    check_int(write(fakes.fd[1], &answer, sizeof answer), ==, (ssize_t)sizeof answer);
    end_part(&fakes, -EPROTO, "that answers nothing");
    fakes = begin_part(takes_long);
    wait_told(&fakes);
    check_int(write(fakes.fd[1], &announced, sizeof announced), ==, (ssize_t)sizeof announced);
    check_uint(tcp_read_all(fakes.fd[1], &ask, sizeof ask), ==, sizeof ask);
    check_uint(ask.kind, ==, GO_KIND);
    check_int(write(fakes.fd[1], &data, sizeof data), ==, (ssize_t)sizeof data);
    end_part(&fakes, -EPROTO, "that nothing waits for");
}

static void too_many(void)
{
    const struct coll_launch launch = {.torchrun = true, .world = 1025};
    const struct coll_transport_options options = {.launch = &launch, .slots = 4};
    struct coll_place place;
    check_int(tcp->open(&options, &place, why), ==, -EINVAL);
    check_string(why, "1025 processes are too many (at most 1024)");
}

/* Invalid frames end the world; the message names their sender. */
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

TEST_MAIN({"frames", frames}, {"receives", receives}, {"others_leave", others_leave},
          {"floods", floods}, {"too_many", too_many}, {"other_sizes", other_sizes},
          {"odd_words", odd_words}, {"texts_without_end", texts_without_end},
          {"odd_heads", odd_heads}, {"says_nothing", says_nothing}, {"last_words", last_words},
          {"told_by_the_first", told_by_the_first},
          {"too_large_for_its_receive", too_large_for_its_receive})
