/* tcp.c: the transport of torchrun's processes: frames over connections (tcp_meet.c). A short
 * message is sent at once, and waits in the receiver's memory until its receive begins. A longer
 * one is announced, and sent into the buffer of its receive. Arrived messages are delivered before
 * a closed connection is reported, because a failing process sends its reason. One thread at a time
 * (peers.c). */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/coll/tcp_meet.h"

enum { SHORT_BYTES = 4096 }; /* messages up to this size are sent at once */
/* limit of one process's messages and announcements that wait for receives */
enum { EARLY_BYTES_MAX = 64 << 20 };
enum { TURN_BYTES_MAX = 4 << 20 }; /* about how many bytes are read from a process in a turn */
static const int64_t close_ns = INT64_C(10) * 1000000000;
static const int64_t cancel_ns = INT64_C(1) * 1000000000;

enum frame_kind {
    FRAME_SHORT = 0x7464, /* the message follows */
    FRAME_ASK,            /* announces a longer message, of slot `from` */
    FRAME_GO,             /* the message's receive has begun, in slot `to` */
    FRAME_DATA,           /* the longer message for slot `to` follows */
    FRAME_BYE             /* the last frame */
};

struct frame {
    uint32_t kind;
    int32_t tag;
    uint64_t bytes;    /* size of the message */
    uint32_t from, to; /* slots of sender and receiver */
};

/* A frame to write, and its data. */
struct out {
    struct out *next;
    struct frame frame;
    const unsigned char *data; /* borrowed */
    uint64_t data_bytes, done; /* done: of frame and data together */
    bool ends;                 /* the transfer of `slot` ends with this frame */
    unsigned slot;
};

enum slot_state { SLOT_FREE, SLOT_SENDS, SLOT_WANTED, SLOT_MATCHED, SLOT_DONE };

struct slot {
    enum slot_state state; /* WANTED: a receive without a message; MATCHED: its message arrives */
    int peer;              /* a rank, or COLL_TRANSPORT_ANY */
    int tag;
    unsigned char *at; /* borrowed */
    uint64_t bytes, received;
    struct slot *next; /* next wanted slot, in the order of calls */
    struct out out;
};

/* A message, or its announcement, that came before its receive. */
struct early {
    struct early *next;
    struct frame frame;
    unsigned char data[];
};

struct peer {
    int fd;          /* owned; -1: closed, or this process */
    bool closes;     /* whether its FRAME_BYE has arrived */
    bool failed;     /* closed by a failure */
    int write_error; /* errno: writing failed, reading may go on; 0: none */
    char host[64];
    struct out *first, **last; /* frames to write */
    struct out bye;
    struct frame in; /* being read */
    size_t in_done;
    unsigned char *to; /* where the frame's message goes; NULL: none */
    uint64_t left;
    struct slot *slot;                 /* the slot that gets the message; NULL: `fresh` */
    struct early *fresh;               /* owned: the message, if early */
    struct early *early, **early_last; /* owned: in the order of arrival */
    uint64_t early_bytes;
};

/* A process has one world. */
static struct {
    unsigned world, slot_count;
    struct peer *peers;    /* owned, [world] */
    struct pollfd *polled; /* owned, [world] */
    struct slot *slots;    /* owned, [slot_count] */
    struct slot *wanted, **wanted_last;
    int failed; /* code of the first failure; 0: none */
    char why[COLL_TRANSPORT_WHY_BYTES];
} tcp;

/* ---- failures ---- */

static void close_peer(struct peer *peer)
{
    if (peer->fd >= 0) {
        close(peer->fd);
        peer->fd = -1;
    }
    peer->first = NULL;
    peer->last = &peer->first;
    peer->to = NULL;
    peer->slot = NULL;
}

static unsigned rank_of(const struct peer *peer)
{
    return (unsigned)(peer - tcp.peers);
}

/* Ends transfers to a process that takes no more data; tcp_progress reports the failure. */
static void end_sends(const struct peer *peer)
{
    for (unsigned i = 0; i < tcp.slot_count; i++) {
        struct slot *slot = &tcp.slots[i];
        if (slot->state == SLOT_SENDS && slot->peer == (int)rank_of(peer)) {
            slot->state = SLOT_DONE;
        }
    }
}

/* Closes the connection and keeps the first failure. */
static void fail_peer(struct peer *peer, int code, const char *what)
{
    if (tcp.failed == 0) {
        snprintf(tcp.why, sizeof tcp.why, "rank %u on %s %s", rank_of(peer), peer->host, what);
        tcp.failed = code;
    }
    peer->failed = true;
    close_peer(peer);
    end_sends(peer);
}

/* `error` 0: the other side closed. */
static void fail_connection(struct peer *peer, int error)
{
    const bool gone = error == 0 || error == ECONNRESET || error == EPIPE;
    char what[256];
    snprintf(what, sizeof what, "%s%s",
             gone ? "has closed its connection: its process has ended" : "is out of reach: ",
             gone ? "" : strerror(error));
    fail_peer(peer, -EPIPE, what);
}

static void fail_frame(struct peer *peer, const char *problem)
{
    char what[256];
    snprintf(what, sizeof what, "sent a frame (kind %u, tag %d, %llu bytes, slots %u and %u) %s",
             peer->in.kind, peer->in.tag, (unsigned long long)peer->in.bytes, peer->in.from,
             peer->in.to, problem);
    fail_peer(peer, -EPROTO, what);
}

static int report_failure(char *why)
{
    if (tcp.failed != 0) {
        memcpy(why, tcp.why, sizeof tcp.why);
    }
    return tcp.failed;
}

/* ---- writing ---- */

static void queue_frame(struct peer *peer, struct out *out)
{
    if (peer->fd < 0 || peer->write_error != 0) {
        return;
    }
    out->next = NULL;
    out->done = 0;
    *peer->last = out;
    peer->last = &out->next;
}

static void end_frame(struct peer *peer)
{
    const struct out *out = peer->first;
    if (out->ends) {
        tcp.slots[out->slot].state = SLOT_DONE;
    }
    peer->first = out->next;
    if (peer->first == NULL) {
        peer->last = &peer->first;
    }
}

/* Writes what the connection takes. After an error, reading continues. */
static void write_frames(struct peer *peer)
{
    while (peer->first != NULL && peer->fd >= 0) {
        struct out *out = peer->first;
        const size_t head = sizeof out->frame;
        const bool in_head = out->done < head;
        struct iovec parts[2] = {
            {.iov_base = (char *)&out->frame + (in_head ? out->done : head),
             .iov_len = in_head ? head - out->done : 0},
            {.iov_base = (void *)(uintptr_t)(out->data + (in_head ? 0 : out->done - head)),
             .iov_len = out->data_bytes - (in_head ? 0 : out->done - head)}};
        const struct msghdr message = {.msg_iov = parts, .msg_iovlen = out->data_bytes > 0 ? 2 : 1};
        const ssize_t wrote = sendmsg(peer->fd, &message, MSG_NOSIGNAL);
        if (wrote < 0 && errno == EAGAIN) {
            return;
        }
        if (wrote < 0 && errno != EINTR) {
            peer->write_error = errno;
            peer->first = NULL;
            peer->last = &peer->first;
            end_sends(peer);
            return;
        }
        out->done += wrote > 0 ? (uint64_t)wrote : 0;
        if (out->done == head + out->data_bytes) {
            end_frame(peer);
        }
    }
}

/* ---- receives and their messages ---- */

static bool fits(const struct slot *slot, unsigned from, int tag)
{
    return slot->tag == tag && (slot->peer == COLL_TRANSPORT_ANY || slot->peer == (int)from);
}

static void want(struct slot *slot)
{
    slot->state = SLOT_WANTED;
    slot->next = NULL;
    *tcp.wanted_last = slot;
    tcp.wanted_last = &slot->next;
}

static void unlink_wanted(struct slot **at)
{
    *at = (*at)->next;
    for (tcp.wanted_last = &tcp.wanted; *tcp.wanted_last != NULL;) {
        tcp.wanted_last = &(*tcp.wanted_last)->next;
    }
}

/* Removes and returns the first receive that fits a message; NULL: none. */
static struct slot *take_wanted(unsigned from, int tag)
{
    for (struct slot **at = &tcp.wanted; *at != NULL; at = &(*at)->next) {
        struct slot *slot = *at;
        if (fits(slot, from, tag)) {
            unlink_wanted(at);
            slot->state = SLOT_MATCHED;
            slot->peer = (int)from;
            return slot;
        }
    }
    return NULL;
}

static uint64_t early_bytes(const struct frame *frame)
{
    return sizeof(struct early) + (frame->kind == FRAME_SHORT ? frame->bytes : 0);
}

/* Removes and returns a process's first early message with this tag; NULL: none. */
static struct early *take_early(struct peer *peer, int tag)
{
    for (struct early **at = &peer->early; *at != NULL; at = &(*at)->next) {
        struct early *early = *at;
        if (early->frame.tag == tag) {
            *at = early->next;
            for (peer->early_last = &peer->early; *peer->early_last != NULL;) {
                peer->early_last = &(*peer->early_last)->next;
            }
            peer->early_bytes -= early_bytes(&early->frame);
            return early;
        }
    }
    return NULL;
}

static void answer_ask(struct peer *peer, struct slot *slot, const struct frame *ask)
{
    slot->received = ask->bytes;
    slot->out = (struct out){.frame = {.kind = FRAME_GO,
                                       .tag = ask->tag,
                                       .bytes = ask->bytes,
                                       .from = ask->from,
                                       .to = (uint32_t)(slot - tcp.slots)}};
    queue_frame(peer, &slot->out);
}

static bool has_room(struct peer *peer, const struct slot *slot, uint64_t bytes)
{
    char what[128];
    if (bytes <= slot->bytes) {
        return true;
    }
    snprintf(what, sizeof what, "sent %llu bytes to a receive of at most %llu",
             (unsigned long long)bytes, (unsigned long long)slot->bytes);
    fail_peer(peer, -EPROTO, what);
    return false;
}

/* Delivers an early message or asks for an announced one. Frees `early`. */
static void give_early(struct peer *peer, struct slot *slot, struct early *early)
{
    slot->peer = (int)rank_of(peer);
    slot->state = SLOT_MATCHED;
    if (has_room(peer, slot, early->frame.bytes)) {
        if (early->frame.kind == FRAME_ASK) {
            answer_ask(peer, slot, &early->frame);
        } else {
            memcpy(slot->at, early->data, early->frame.bytes);
            slot->received = early->frame.bytes;
            slot->state = SLOT_DONE;
        }
    }
    free(early);
}

/* ---- reading ---- */

static void read_into(struct peer *peer, struct slot *slot, unsigned char *to)
{
    peer->slot = slot;
    peer->to = to;
    peer->left = peer->in.bytes;
}

static void keep_early(struct peer *peer)
{
    const uint64_t bytes = early_bytes(&peer->in);
    struct early *early = peer->early_bytes + bytes <= EARLY_BYTES_MAX ? malloc(bytes) : NULL;
    if (early == NULL) {
        fail_frame(peer, "while too many earlier ones wait for their receives");
        return;
    }
    *early = (struct early){.frame = peer->in};
    peer->early_bytes += bytes;
    if (bytes > sizeof *early) {
        peer->fresh = early;
        read_into(peer, NULL, early->data);
        return;
    }
    *peer->early_last = early;
    peer->early_last = &early->next;
}

static void begin_message(struct peer *peer)
{
    const bool is_short = peer->in.kind == FRAME_SHORT;
    if (is_short != (peer->in.bytes <= SHORT_BYTES)) {
        fail_frame(peer, "whose size is not that of its kind");
        return;
    }
    struct slot *slot = take_wanted(rank_of(peer), peer->in.tag);
    if (slot == NULL) {
        keep_early(peer);
    } else if (!has_room(peer, slot, peer->in.bytes)) {
        return;
    } else if (!is_short) {
        answer_ask(peer, slot, &peer->in);
    } else {
        slot->received = peer->in.bytes;
        if (peer->in.bytes == 0) {
            slot->state = SLOT_DONE;
        } else {
            read_into(peer, slot, slot->at);
        }
    }
}

/* Returns the slot that a frame names; NULL if the slot's state or peer is another. */
static struct slot *named_slot(const struct peer *peer, uint32_t index, enum slot_state state)
{
    struct slot *slot = index < tcp.slot_count ? &tcp.slots[index] : NULL;
    return slot != NULL && slot->state == state && slot->peer == (int)rank_of(peer) ? slot : NULL;
}

/* The peer has begun to receive an announced message. */
static void go_on(struct peer *peer)
{
    struct slot *slot = named_slot(peer, peer->in.from, SLOT_SENDS);
    if (peer->write_error != 0) { /* the transfer has ended */
        return;
    }
    if (slot == NULL || slot->bytes != peer->in.bytes || slot->out.ends) {
        fail_frame(peer, "that answers nothing");
        return;
    }
    slot->out = (struct out){.frame = peer->in,
                             .data = slot->at,
                             .data_bytes = slot->bytes,
                             .ends = true,
                             .slot = (unsigned)(slot - tcp.slots)};
    slot->out.frame.kind = FRAME_DATA;
    queue_frame(peer, &slot->out);
}

static void begin_frame(struct peer *peer)
{
    struct slot *slot = NULL;
    switch (peer->in.kind) {
    case FRAME_SHORT:
    case FRAME_ASK: begin_message(peer); break;
    case FRAME_GO: go_on(peer); break;
    case FRAME_DATA:
        slot = named_slot(peer, peer->in.to, SLOT_MATCHED);
        if (slot == NULL || slot->received != peer->in.bytes) {
            fail_frame(peer, "that nothing waits for");
        } else {
            read_into(peer, slot, slot->at);
        }
        break;
    case FRAME_BYE: peer->closes = true; break;
    default: fail_frame(peer, "of an unknown kind");
    }
}

static void end_message(struct peer *peer)
{
    struct slot *slot = peer->slot;
    struct early *early = peer->fresh;
    peer->to = NULL;
    peer->slot = NULL;
    peer->fresh = NULL;
    if (slot != NULL) {
        slot->state = SLOT_DONE;
        return;
    }
    slot = take_wanted(rank_of(peer), early->frame.tag); /* the receive may have begun meanwhile */
    if (slot != NULL) {
        peer->early_bytes -= early_bytes(&early->frame);
        give_early(peer, slot, early);
    } else {
        *peer->early_last = early;
        peer->early_last = &early->next;
    }
}

static void end_reading(struct peer *peer, int error)
{
    if (error == 0 && peer->closes && peer->write_error == 0) {
        close_peer(peer);
    } else {
        fail_connection(peer, peer->write_error != 0 ? peer->write_error : error);
    }
}

/* Returns the bytes of one read; 0: none. */
static size_t read_some(struct peer *peer)
{
    const bool message = peer->to != NULL;
    unsigned char *to = message ? peer->to : (unsigned char *)&peer->in + peer->in_done;
    const size_t room = message ? peer->left : sizeof peer->in - peer->in_done;
    const ssize_t got = recv(peer->fd, to, room, 0);
    if (got <= 0) {
        const bool nothing = got < 0 && (errno == EAGAIN || errno == EINTR);
        if (!nothing || peer->write_error != 0) {
            end_reading(peer, got == 0 ? 0 : errno);
        }
        return 0;
    }
    if (message) {
        peer->to += got;
        peer->left -= (uint64_t)got;
        if (peer->left == 0) {
            end_message(peer);
        }
        return (size_t)got;
    }
    peer->in_done += (size_t)got;
    if (peer->in_done == sizeof peer->in) {
        peer->in_done = 0;
        begin_frame(peer);
    }
    return (size_t)got;
}

static void read_frames(struct peer *peer)
{
    size_t got = 1;
    for (uint64_t bytes = 0; got > 0 && peer->fd >= 0 && bytes < TURN_BYTES_MAX; bytes += got) {
        got = read_some(peer);
    }
}

/* ---- the transport ---- */

static void exchange_frames(void)
{
    for (unsigned r = 0; r < tcp.world; r++) {
        const struct peer *peer = &tcp.peers[r];
        tcp.polled[r] = (struct pollfd){
            .fd = peer->fd, .events = (short)(POLLIN | (peer->first != NULL ? POLLOUT : 0))};
    }
    if (poll(tcp.polled, tcp.world, 0) < 0) {
        return;
    }
    for (unsigned r = 0; r < tcp.world; r++) {
        struct peer *peer = &tcp.peers[r];
        if (peer->fd >= 0 && (tcp.polled[r].revents != 0 || peer->write_error != 0)) {
            read_frames(peer);
        }
        write_frames(peer);
    }
}

/* Returns whether a finished transfer with a failed process has not been tested. */
static bool has_last_words(void)
{
    for (unsigned i = 0; i < tcp.slot_count; i++) {
        const struct slot *slot = &tcp.slots[i];
        if (slot->state == SLOT_DONE && tcp.peers[slot->peer].failed) {
            return true;
        }
    }
    return false;
}

static int tcp_progress(char *why)
{
    exchange_frames();
    return tcp.failed != 0 && !has_last_words() ? report_failure(why) : 0;
}

static int tcp_send(unsigned index, unsigned to, int tag, const void *from, size_t bytes, char *why)
{
    struct slot *slot = &tcp.slots[index];
    struct peer *peer = &tcp.peers[to];
    const bool is_short = bytes <= SHORT_BYTES;
    (void)why;
    *slot = (struct slot){.state = SLOT_SENDS,
                          .peer = (int)to,
                          .tag = tag,
                          .at = (unsigned char *)(uintptr_t)from,
                          .bytes = bytes};
    slot->out = (struct out){.frame = {.kind = is_short ? FRAME_SHORT : FRAME_ASK,
                                       .tag = tag,
                                       .bytes = bytes,
                                       .from = index},
                             .data = from,
                             .data_bytes = is_short ? bytes : 0,
                             .ends = is_short,
                             .slot = index};
    if (peer->failed || peer->write_error != 0) {
        slot->state = SLOT_DONE;
        return 0;
    }
    queue_frame(peer, &slot->out);
    write_frames(peer);
    return 0;
}

static int tcp_receive(unsigned index, int from, int tag, void *to, size_t bytes, char *why)
{
    struct slot *slot = &tcp.slots[index];
    (void)why;
    *slot = (struct slot){.peer = from, .tag = tag, .at = to, .bytes = bytes};
    for (unsigned r = 0; r < tcp.world; r++) {
        struct early *early = fits(slot, r, tag) ? take_early(&tcp.peers[r], tag) : NULL;
        if (early != NULL) {
            give_early(&tcp.peers[r], slot, early);
            write_frames(&tcp.peers[r]);
            return 0;
        }
    }
    want(slot);
    return 0;
}

static int tcp_test(unsigned index, size_t *bytes, char *why)
{
    struct slot *slot = &tcp.slots[index];
    if (slot->state == SLOT_DONE) {
        slot->state = SLOT_FREE;
        *bytes = slot->received;
        return 1;
    }
    const bool left = slot->peer != COLL_TRANSPORT_ANY && tcp.peers[slot->peer].fd < 0;
    /* After a failure, a receive stays undone until tcp_progress reports it. */
    if (left && (slot->state == SLOT_SENDS || tcp.failed == 0)) {
        snprintf(why, COLL_TRANSPORT_WHY_BYTES, "rank %d on %s has left", slot->peer,
                 tcp.peers[slot->peer].host);
        return -EPIPE;
    }
    return 0;
}

static int tcp_cancel(unsigned index, char *why)
{
    struct slot *slot = &tcp.slots[index];
    const int64_t until_ns = core_clock_now_ns() + cancel_ns;
    int rc = 0;
    for (struct slot **at = &tcp.wanted; slot->state == SLOT_WANTED && *at != NULL;
         at = &(*at)->next) {
        if (*at == slot) {
            unlink_wanted(at);
            slot->state = SLOT_FREE;
            return 1;
        }
    }
    /* A matched receive waits for its message. */
    while (slot->state != SLOT_DONE && tcp.peers[slot->peer].fd >= 0) {
        exchange_frames();
        if (core_clock_now_ns() > until_ns) {
            snprintf(why, COLL_TRANSPORT_WHY_BYTES,
                     "rank %d on %s did not send the rest of a message in time", slot->peer,
                     tcp.peers[slot->peer].host);
            return -ETIMEDOUT;
        }
    }
    rc = slot->state == SLOT_DONE ? 0 : 1;
    slot->state = SLOT_FREE;
    return rc;
}

static void free_tcp(void)
{
    for (unsigned r = 0; tcp.peers != NULL && r < tcp.world; r++) {
        struct peer *peer = &tcp.peers[r];
        close_peer(peer);
        free(peer->fresh);
        while (peer->early != NULL) {
            struct early *next = peer->early->next;
            free(peer->early);
            peer->early = next;
        }
    }
    free(tcp.peers);
    free(tcp.polled);
    free(tcp.slots);
    memset(&tcp, 0, sizeof tcp);
}

/* Returns whether everything is written and the other processes close, too. */
static bool is_over(void)
{
    for (unsigned r = 0; r < tcp.world; r++) {
        const struct peer *peer = &tcp.peers[r];
        if (peer->fd >= 0 && (peer->first != NULL || !peer->closes)) {
            return false;
        }
    }
    return true;
}

static int tcp_close(char *why)
{
    const int64_t until_ns = core_clock_now_ns() + close_ns;
    for (unsigned r = 0; r < tcp.world; r++) {
        struct peer *peer = &tcp.peers[r];
        peer->bye = (struct out){.frame = {.kind = FRAME_BYE}};
        queue_frame(peer, &peer->bye);
        write_frames(peer);
    }
    int rc = 0;
    while (rc == 0 && tcp.failed == 0 && !is_over()) {
        (void)poll(NULL, 0, 1);
        exchange_frames();
        if (core_clock_now_ns() > until_ns) {
            snprintf(why, COLL_TRANSPORT_WHY_BYTES,
                     "the other processes did not close within %.0f s", (double)close_ns * 1e-9);
            rc = -ETIMEDOUT;
        }
    }
    rc = rc != 0 ? rc : report_failure(why);
    free_tcp();
    return rc;
}

static void tcp_abort(int code)
{
    _exit(code);
}

/* Does not read, because transfers' buffers may have been freed. */
static void tcp_wait_end(unsigned rank, int64_t limit_ns)
{
    const int64_t until_ns = core_clock_now_ns() + limit_ns;
    struct pollfd polled = {.fd = tcp.peers[rank].fd, .events = POLLRDHUP};
    for (int64_t left_ns = limit_ns; polled.fd >= 0 && polled.revents == 0 && left_ns > 0;
         left_ns = until_ns - core_clock_now_ns()) {
        (void)poll(&polled, 1, (int)(left_ns / 1000000) + 1);
    }
}

static int alloc_tcp(const struct coll_transport_options *options, char *why)
{
    const unsigned world = options->launch->world;
    tcp.world = world;
    tcp.slot_count = options->slots;
    tcp.wanted_last = &tcp.wanted;
    tcp.peers = calloc(world, sizeof *tcp.peers);
    tcp.polled = calloc(world, sizeof *tcp.polled);
    tcp.slots = calloc(options->slots, sizeof *tcp.slots);
    for (unsigned r = 0; tcp.peers != NULL && r < world; r++) {
        tcp.peers[r].fd = -1;
        tcp.peers[r].last = &tcp.peers[r].first;
        tcp.peers[r].early_last = &tcp.peers[r].early;
    }
    if (tcp.peers == NULL || tcp.polled == NULL || tcp.slots == NULL) {
        snprintf(why, COLL_TRANSPORT_WHY_BYTES, "no memory for %u processes", world);
        return -ENOMEM;
    }
    return 0;
}

static int tcp_open(const struct coll_transport_options *options, struct coll_place *out, char *why)
{
    const struct coll_launch *launch = options->launch;
    struct coll_tcp_member members[COLL_TCP_WORLD_MAX];
    if (launch->world > COLL_TCP_WORLD_MAX) {
        snprintf(why, COLL_TRANSPORT_WHY_BYTES, "%u processes are too many (at most %d)",
                 launch->world, COLL_TCP_WORLD_MAX);
        return -EINVAL;
    }
    int rc = alloc_tcp(options, why);
    if (rc == 0) {
        rc = coll_tcp_meet(options, members, why);
    }
    if (rc != 0) {
        free_tcp();
        return rc;
    }
    for (unsigned r = 0; r < launch->world; r++) {
        tcp.peers[r].fd = members[r].fd;
        memcpy(tcp.peers[r].host, members[r].host, sizeof tcp.peers[r].host);
    }
    *out = (struct coll_place){.rank = launch->rank, .world = launch->world, .library = "TCP"};
    return 0;
}

const struct coll_transport coll_transport_tcp = {
    .version = COLL_TRANSPORT_VERSION,
    .open = tcp_open,
    .close = tcp_close,
    .abort = tcp_abort,
    .wait_end = tcp_wait_end,
    .send = tcp_send,
    .receive = tcp_receive,
    .progress = tcp_progress,
    .test = tcp_test,
    .cancel = tcp_cancel,
};
