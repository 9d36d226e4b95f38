/* tcp_case.c: see tcp_case.h. */
#include "tests/coll/tcp_case.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "tests/harness/child.h"
#include "tests/harness/test.h"
#include "tests/harness/torchrun.h"

static bool asked_to_stop(void *user)
{
    return ((const struct tcp_start *)user)->stops;
}

struct coll_peers *tcp_open(struct tcp_start *start, int *rc)
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

/* The caller reads the text after the peers' thread has ended. */
static void keep_first(void *user, enum core_log_level level, const char *line)
{
    struct tcp_outcome *out = user;
    if (level == CORE_LOG_WARN && out->warning[0] == '\0') {
        snprintf(out->warning, sizeof out->warning, "%s", line);
    }
}

static struct tcp_outcome open_and_close(struct tcp_start *start)
{
    struct tcp_outcome out = {.rc = 0};
    const struct core_log log = {.level = CORE_LOG_WARN, .write = keep_first, .user = &out};
    core_log_bind(&log);
    struct coll_peers *peers = tcp_open(start, &out.rc);
    if (out.rc == 0 && start->receives) {
        char byte;
        size_t bytes;
        out.rc = coll_peers_receive(peers, 1, &byte, 1, &bytes);
    }
    snprintf(out.message, sizeof out.message, "%s", out.rc != 0 ? core_err_message() : "");
    if (!start->receives) {
        coll_peers_close(peers, 1);
    }
    core_log_bind(NULL);
    return out;
}

struct tcp_child tcp_begin(struct tcp_start start)
{
    int ends[2];
    check_int(pipe(ends), ==, 0);
    const struct tcp_child child = {.pid = fork(), .from = ends[0]};
    check_int(child.pid, >=, 0);
    if (child.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (start.act != NULL) {
            start.act(&start, ends[1]);
        }
        const struct tcp_outcome out = open_and_close(&start);
        test_child_end(write(ends[1], &out, sizeof out) == (ssize_t)sizeof out ? 0 : 1);
    }
    close(ends[1]);
    return child;
}

struct tcp_outcome tcp_end(struct tcp_child child)
{
    struct tcp_outcome out = {.rc = 1};
    check_int(read(child.from, &out, sizeof out), ==, (ssize_t)sizeof out);
    close(child.from);
    waitpid(child.pid, NULL, 0);
    test_note("%d: %s", out.rc, out.message);
    return out;
}

void tcp_ends_with(struct tcp_child child, int rc, const char *message)
{
    const struct tcp_outcome out = tcp_end(child);
    check_int(out.rc, ==, rc);
    check_contains(out.message, message);
}

const char *tcp_place(const char *host, unsigned *port)
{
    static char text[128];
    *port = test_port_free();
    snprintf(text, sizeof text, "%s:%u", host, *port);
    return text;
}

int tcp_socket(const char *host, unsigned port, struct sockaddr_in *address)
{
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    check_int(inet_pton(AF_INET, host, &address->sin_addr), ==, 1);
    return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

int tcp_connect(unsigned port)
{
    struct sockaddr_in address;
    for (;;) {
        const int fd = tcp_socket("127.0.0.1", port, &address);
        if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0) {
            return fd;
        }
        close(fd);
        usleep(2000);
    }
}

struct tcp_hello tcp_hello_of(unsigned world)
{
    return (struct tcp_hello){.magic = {'t', 'i', 'd', 'e', '-', 't', 'c', 'p'},
                              .version = 1,
                              .world = world,
                              .rank = 1,
                              .key = {7, 0},
                              .host = "fake"};
}

size_t tcp_read_all(int fd, void *to, size_t bytes)
{
    size_t done = 0;
    for (ssize_t got = 1; got > 0 && done < bytes;) {
        got = read(fd, (char *)to + done, bytes - done);
        done += got > 0 ? (size_t)got : 0;
    }
    return done;
}
