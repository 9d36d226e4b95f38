/* peers.c: the thread that calls the transport. It begins posted transfers, tests those in flight,
 * and watches other processes. */
#include "core/coll/peers.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/bell.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/fence.h"
#include "core/base/log.h"
#include "core/base/thread.h"
#include "core/coll/transport.h"

enum { TAG_SERVICE = 1, TAG_CALL = 2, TAG_FIRST = 16, TAG_MAX = 32000 };
enum { MESSAGE_BYTES = 1024 };

static const int64_t silence_default_ns = INT64_C(60) * 1000000000;
static const int64_t beats_per_limit = 12;
static const int64_t second_ns = 1000000000;

/* Service messages between processes, besides transfers. */
enum service_kind { SERVICE_ALIVE, SERVICE_STOP, SERVICE_ENDED };
struct service {
    uint32_t kind;
    uint32_t rank; /* of the sender */
    int32_t code;  /* ENDED: the code of the end */
    char message[MESSAGE_BYTES];
};

struct coll_peers {
    struct coll_peers_options given;
    const struct coll_transport *transport;
    struct coll_place place;
    struct coll_peer *list;     /* owned, [world] */
    const struct core_log *log; /* the creator's sink */
    int64_t silence_ns;
    int next_tag;

    pthread_t thread;
    bool started;
    struct core_bell work; /* rung for the thread */
    struct core_bell done; /* rung by the thread */
    pthread_mutex_t lock;  /* protects `posted`, `withdrawn` and `wish` */
    struct coll_transfer *posted, **posted_tail;
    struct coll_transfer *withdrawn; /* the receive to withdraw; NULL: none */
    struct core_err wish;            /* the error with which to end the world */
    char message[MESSAGE_BYTES];
    _Atomic int opened; /* 1: opened; <0: failed. Released after `place` or the message */
    /* the world's error; released after the message, when no transfer moves data */
    _Atomic int error;
    _Atomic bool ending;
    _Atomic bool stopping;

    /* The following members belong to the thread. */
    struct coll_transfer **active; /* owned, [slots]; transfers in flight */
    unsigned *free_slots;          /* owned, [slots] */
    unsigned slots, active_count, free_count;
    struct coll_transfer *waiting, **waiting_tail; /* wait for a slot */
    int failed;                                    /* code of the end, set before `error`; 0:
                                                    * none */
    struct service heard;
    struct coll_transfer listen;
    /* owned, [world]: service messages to processes */
    struct service *said;
    struct coll_transfer *sends; /* owned, [world]: transfers of `said` */
    int64_t *heard_ns;           /* owned, [world]: when processes were last heard */
    int64_t beat_ns;             /* when the last sign of life was sent */
    bool stop_sent;
    /* the first process said that the world ended; other threads read it after `error` */
    bool leader_ended;
};

/* ---- the end of the world ---- */

int coll_peers_error(struct coll_peers *peers)
{
    const int error = atomic_load_explicit(&peers->error, memory_order_acquire);
    return error == 0 ? 0 : core_err_adopt(error, peers->message);
}

/* Keeps the first error. On the peers' thread. */
static void set_error(struct coll_peers *peers, int code, const char *message)
{
    if (peers->failed == 0) {
        snprintf(peers->message, sizeof peers->message, "%s", message);
        peers->failed = code;
    }
}

static void end_by_transport(struct coll_peers *peers, const char *why)
{
    char text[COLL_TRANSPORT_WHY_BYTES + 64];
    snprintf(text, sizeof text, "%s failed: %s", peers->place.library, why);
    set_error(peers, -EIO, text);
}

/* ---- transfers, on the thread ---- */

static bool begin_transfer(struct coll_peers *peers, struct coll_transfer *transfer)
{
    char why[COLL_TRANSPORT_WHY_BYTES] = "";
    if (peers->free_count == 0) {
        return false;
    }
    transfer->slot = peers->free_slots[--peers->free_count];
    const int rc = transfer->sends
                       ? peers->transport->send(transfer->slot, transfer->peer, transfer->tag,
                                                transfer->at, transfer->bytes, why)
                       : peers->transport->receive(
                             transfer->slot,
                             transfer->peer == UINT_MAX ? COLL_TRANSPORT_ANY : (int)transfer->peer,
                             transfer->tag, transfer->at, transfer->bytes, why);
    if (rc != 0) {
        end_by_transport(peers, why);
    }
    peers->active[peers->active_count++] = transfer;
    return true;
}

/* Takes posted transfers, and begins waiting ones while there are slots. */
static void take_posted(struct coll_peers *peers)
{
    pthread_mutex_lock(&peers->lock);
    if (peers->posted != NULL) {
        *peers->waiting_tail = peers->posted;
        peers->waiting_tail = peers->posted_tail;
        peers->posted = NULL;
        peers->posted_tail = &peers->posted;
    }
    pthread_mutex_unlock(&peers->lock);
    while (peers->waiting != NULL && begin_transfer(peers, peers->waiting)) {
        peers->waiting = peers->waiting->next;
    }
    if (peers->waiting == NULL) {
        peers->waiting_tail = &peers->waiting;
    }
}

static void end_transfer(struct coll_peers *peers, unsigned index, enum coll_transfer_state state)
{
    struct coll_transfer *transfer = peers->active[index];
    peers->free_slots[peers->free_count++] = transfer->slot;
    peers->active[index] = peers->active[--peers->active_count];
    atomic_store_explicit(&transfer->state, state, memory_order_release);
}

/* Returns how many transfers are done. */
static unsigned test_active(struct coll_peers *peers)
{
    char why[COLL_TRANSPORT_WHY_BYTES] = "";
    unsigned done = 0;
    if (peers->transport->progress(why) != 0) {
        end_by_transport(peers, why);
    }
    for (unsigned i = peers->active_count; i-- > 0 && peers->failed == 0;) {
        size_t bytes = 0;
        const int rc = peers->transport->test(peers->active[i]->slot, &bytes, why);
        if (rc < 0) {
            end_by_transport(peers, why);
        } else if (rc == 1) {
            peers->active[i]->received = bytes;
            end_transfer(peers, i, COLL_TRANSFER_DONE);
            done++;
        }
    }
    return done;
}

/* Returns false if the transfer has not begun; the caller tries again later. */
static bool withdraw(struct coll_peers *peers, const struct coll_transfer *transfer)
{
    char why[COLL_TRANSPORT_WHY_BYTES] = "";
    for (unsigned i = 0; i < peers->active_count; i++) {
        if (peers->active[i] == transfer) {
            const int rc = peers->transport->cancel(transfer->slot, why);
            if (rc < 0) {
                end_by_transport(peers, why);
            }
            end_transfer(peers, i, rc == 0 ? COLL_TRANSFER_DONE : COLL_TRANSFER_FREE);
            return true;
        }
    }
    return atomic_load_explicit(&transfer->state, memory_order_relaxed) != COLL_TRANSFER_POSTED;
}

/* Withdraws a receive or ends the world, for other threads. Returns whether a receive was
 * withdrawn. */
static bool serve_wishes(struct coll_peers *peers)
{
    pthread_mutex_lock(&peers->lock);
    const struct coll_transfer *transfer = peers->withdrawn;
    const int code = peers->wish.code;
    pthread_mutex_unlock(&peers->lock);
    const bool withdrew = transfer != NULL && withdraw(peers, transfer);
    if (withdrew) {
        pthread_mutex_lock(&peers->lock);
        peers->withdrawn = NULL;
        pthread_mutex_unlock(&peers->lock);
    }
    if (code != 0) {
        set_error(peers, code, peers->wish.message); /* the message does not change now */
    }
    return withdrew;
}

/* ---- signs of life, on the thread ---- */

static void start_own(struct coll_peers *peers, struct coll_transfer *transfer)
{
    transfer->next = NULL;
    atomic_store_explicit(&transfer->state, COLL_TRANSFER_POSTED, memory_order_relaxed);
    *peers->waiting_tail = transfer;
    peers->waiting_tail = &transfer->next;
}

static void listen_on(struct coll_peers *peers)
{
    peers->listen = (struct coll_transfer){
        .peer = UINT_MAX, .tag = TAG_SERVICE, .at = &peers->heard, .bytes = sizeof peers->heard};
    start_own(peers, &peers->listen);
}

/* Returns false if the last message to that peer is still in flight. */
static bool tell(struct coll_peers *peers, unsigned rank, enum service_kind kind)
{
    struct service *service = &peers->said[rank];
    struct coll_transfer *send = &peers->sends[rank];
    size_t bytes = offsetof(struct service, message);
    if (atomic_load_explicit(&send->state, memory_order_relaxed) == COLL_TRANSFER_POSTED) {
        return false;
    }
    *service = (struct service){.kind = kind, .rank = peers->place.rank, .code = peers->failed};
    if (kind == SERVICE_ENDED) {
        memcpy(service->message, peers->message, sizeof service->message);
        bytes = sizeof *service;
    }
    *send = (struct coll_transfer){
        .sends = true, .peer = rank, .tag = TAG_SERVICE, .at = service, .bytes = bytes};
    start_own(peers, send);
    return true;
}

static void hear(struct coll_peers *peers)
{
    struct service *service = &peers->heard;
    if (atomic_load_explicit(&peers->listen.state, memory_order_relaxed) != COLL_TRANSFER_DONE) {
        return;
    }
    coll_peers_end_text(service, sizeof *service, peers->listen.received);
    const bool whole = peers->listen.received >= offsetof(struct service, message) &&
                       service->rank < peers->place.world;
    if (whole) {
        peers->heard_ns[service->rank] = core_clock_ran_ns();
    }
    if (whole && service->kind == SERVICE_STOP) {
        atomic_store_explicit(&peers->stopping, true, memory_order_relaxed);
    } else if (whole && service->kind == SERVICE_ENDED) {
        peers->leader_ended = service->rank == 0;
        set_error(peers, service->code < 0 ? service->code : -EIO, service->message);
    }
    listen_on(peers);
}

static void check_silence(struct coll_peers *peers, unsigned rank, int64_t now_ns)
{
    char text[MESSAGE_BYTES];
    const int64_t silent_ns = now_ns - peers->heard_ns[rank];
    if (silent_ns > peers->silence_ns && peers->failed == 0) {
        const char *host = peers->list[rank].host; /* "": not described yet */
        snprintf(text, sizeof text,
                 "rank %u%s%s has not responded for %.0f s: its process was stopped, or its "
                 "network is gone",
                 rank, host[0] != '\0' ? " on " : "", host, (double)silent_ns * 1e-9);
        set_error(peers, -ETIMEDOUT, text);
    }
}

/* Sends and checks signs of life between the first process and the others, and passes on requests
 * to stop. */
static void keep_alive(struct coll_peers *peers)
{
    const int64_t now_ns = core_clock_ran_ns();
    const bool leads = peers->place.rank == 0;
    const unsigned from = leads ? 1 : 0;
    const unsigned to = leads ? peers->place.world : 1;
    const bool stop = peers->given.stop != NULL && peers->given.stop(peers->given.user);
    if (stop && !peers->stop_sent) {
        atomic_store_explicit(&peers->stopping, true, memory_order_relaxed);
        peers->stop_sent = leads || tell(peers, 0, SERVICE_STOP);
    }
    const bool beat = now_ns - peers->beat_ns >= peers->silence_ns / beats_per_limit;
    for (unsigned r = from; r < to; r++) {
        if (beat) {
            (void)tell(peers, r, SERVICE_ALIVE);
        }
        check_silence(peers, r, now_ns);
    }
    peers->beat_ns = beat ? now_ns : peers->beat_ns;
}

/* Tells other processes, for at most a second, why the world ended. */
static void spread_end(struct coll_peers *peers)
{
    const int64_t until_ns = core_clock_now_ns() + second_ns;
    char why[COLL_TRANSPORT_WHY_BYTES] = "";
    for (unsigned r = 0; r < peers->place.world; r++) {
        if (r != peers->place.rank) {
            (void)tell(peers, r, SERVICE_ENDED);
        }
    }
    take_posted(peers);
    for (unsigned r = 0; r < peers->place.world; r++) {
        const struct coll_transfer *send = &peers->sends[r];
        size_t bytes = 0;
        while (r != peers->place.rank && core_clock_now_ns() < until_ns &&
               peers->transport->test(send->slot, &bytes, why) == 0) {
            /* A process may be gone while others can be told. */
            (void)peers->transport->progress(why);
            core_clock_relax();
        }
    }
}

/* ---- the thread ---- */

static unsigned slots_of(unsigned world)
{
    return 8 * world + 64;
}

static int open_transport(struct coll_peers *peers)
{
    char why[COLL_TRANSPORT_WHY_BYTES] = "";
    const struct coll_launch *launch = &peers->given.launch;
    const struct coll_transport_options options = {.launch = launch,
                                                   .slots = slots_of(COLL_PEERS_MAX),
                                                   .limit_ns = 2 * peers->silence_ns,
                                                   .stop = peers->given.stop,
                                                   .user = peers->given.user};
    const int rc = peers->transport->open(&options, &peers->place, why);
    if (rc != 0) {
        return core_err_set(rc, "%s%s", launch->torchrun ? "" : "MPI does not start: ", why);
    }
    const unsigned world = peers->place.world;
    if (world > COLL_PEERS_MAX || peers->place.rank != launch->rank ||
        (launch->world > 0 && world != launch->world)) {
        char number[32] = "";
        if (launch->world > 0) {
            snprintf(number, sizeof number, " of %u processes", launch->world);
        }
        return core_err_set(-EPROTO,
                            "%s started rank %u%s, but %s connects it as rank %u of %u: mpirun and "
                            "the MPI library that tide was built with have to belong together",
                            launch->launcher, launch->rank, number, peers->place.library,
                            peers->place.rank, world);
    }
    peers->slots = slots_of(world);
    peers->active = calloc(peers->slots, sizeof(struct coll_transfer *));
    peers->free_slots = calloc(peers->slots, sizeof *peers->free_slots);
    peers->heard_ns = calloc(world, sizeof *peers->heard_ns);
    peers->list = calloc(world, sizeof *peers->list);
    peers->said = calloc(world, sizeof *peers->said);
    peers->sends = calloc(world, sizeof *peers->sends);
    if (peers->active == NULL || peers->free_slots == NULL || peers->heard_ns == NULL ||
        peers->list == NULL || peers->said == NULL || peers->sends == NULL) {
        return core_err_set(-ENOMEM, "no memory for %u processes", world);
    }
    for (unsigned i = 0; i < peers->slots; i++) {
        peers->free_slots[peers->free_count++] = peers->slots - 1 - i;
    }
    for (unsigned r = 0; r < world; r++) {
        peers->heard_ns[r] = core_clock_ran_ns();
    }
    return 0;
}

/* MPI has no wait that yields the processor, so the thread spins briefly and then sleeps: at most
 * 0.5 ms while transfers besides `listen` are in flight, else at most 20 ms. A posted transfer
 * wakes the thread. */
static void rest(struct coll_peers *peers, uint32_t seen, int64_t idle_ns)
{
    enum { SLEEP_MIN_NS = 20000, SLEEP_MAX_NS = 500000, LISTEN_NS = 20000000 };
    int64_t sleep_ns = idle_ns / 8;
    if (idle_ns < CORE_FENCE_SPIN_NS) {
        if (core_bell_may_spin()) {
            core_clock_relax();
        } else {
            /* gives the processor to this process's other threads, or to the sender */
            sched_yield();
        }
        return;
    }
    sleep_ns = sleep_ns < SLEEP_MIN_NS ? SLEEP_MIN_NS : sleep_ns;
    sleep_ns = sleep_ns > SLEEP_MAX_NS ? SLEEP_MAX_NS : sleep_ns;
    (void)core_bell_sleep(&peers->work, seen, peers->active_count > 1 ? sleep_ns : LISTEN_NS);
}

static void turn(struct coll_peers *peers)
{
    int64_t progress_ns = core_clock_now_ns();
    int64_t checked_ns = 0;
    while (peers->failed == 0 && !atomic_load_explicit(&peers->ending, memory_order_acquire)) {
        const uint32_t seen = core_bell_look(&peers->work);
        const unsigned before = peers->active_count;
        take_posted(peers);
        const bool begun = peers->active_count != before;
        const unsigned done = test_active(peers);
        const bool withdrew = serve_wishes(peers);
        hear(peers);
        const int64_t now_ns = core_clock_now_ns();
        if (now_ns - checked_ns > CORE_CLOCK_BEAT_NS / 2) {
            checked_ns = now_ns;
            keep_alive(peers);
        }
        if (done > 0 || withdrew) {
            core_bell_ring(&peers->done);
        }
        progress_ns = done > 0 || begun ? now_ns : progress_ns;
        if (done == 0 && !begun) {
            rest(peers, seen, now_ns - progress_ns);
        }
    }
}

/* Waits at most 10 s for transfers in flight, such as signs of life that nobody receives, and
 * closes the transport, unless the world fails meanwhile. */
static void close_transport(struct coll_peers *peers)
{
    char why[COLL_TRANSPORT_WHY_BYTES] = "";
    const int64_t until_ns = core_clock_now_ns() + 10 * second_ns;
    (void)withdraw(peers, &peers->listen);
    while (peers->active_count > 0 && core_clock_now_ns() < until_ns && peers->failed == 0) {
        (void)test_active(peers);
    }
    if (peers->failed == 0 && peers->transport->close(why) != 0) {
        core_log(CORE_LOG_WARN, "%s was not closed cleanly: %s", peers->place.library, why);
    }
}

static void *peers_main(void *argument)
{
    struct coll_peers *peers = argument;
    pthread_setname_np(pthread_self(), "peers");
    core_log_bind(peers->log);
    int rc = open_transport(peers);
    if (rc != 0) {
        snprintf(peers->message, sizeof peers->message, "%s", core_err_message());
    } else {
        listen_on(peers);
    }
    atomic_store_explicit(&peers->opened, rc != 0 ? rc : 1, memory_order_release);
    core_bell_ring(&peers->done);
    if (rc != 0) {
        return NULL;
    }
    turn(peers);
    if (peers->failed != 0) {
        spread_end(peers);
        pthread_mutex_lock(&peers->lock);
        atomic_store_explicit(&peers->error, peers->failed, memory_order_release);
        pthread_mutex_unlock(&peers->lock);
        core_bell_ring(&peers->done);
        while (!atomic_load_explicit(&peers->ending, memory_order_acquire)) {
            const uint32_t seen = core_bell_look(&peers->work);
            if (!atomic_load_explicit(&peers->ending, memory_order_acquire)) {
                (void)core_bell_sleep(&peers->work, seen, -1);
            }
        }
    } else {
        close_transport(peers);
    }
    return NULL;
}

/* ---- transfers, for others ---- */

int coll_peers_tags(struct coll_peers *peers, int count)
{
    const int first = peers->next_tag;
    peers->next_tag = first + count > TAG_MAX ? TAG_FIRST : first + count;
    return first;
}

void coll_peers_post(struct coll_peers *peers, struct coll_transfer *transfer)
{
    transfer->next = NULL;
    atomic_store_explicit(&transfer->state, COLL_TRANSFER_POSTED, memory_order_relaxed);
    pthread_mutex_lock(&peers->lock);
    /* After an error no thread takes transfers, and the last posted one may have been freed. */
    if (atomic_load_explicit(&peers->error, memory_order_relaxed) == 0) {
        *peers->posted_tail = transfer;
        peers->posted_tail = &transfer->next;
    }
    pthread_mutex_unlock(&peers->lock);
    core_bell_ring(&peers->work);
}

bool coll_transfer_done(const struct coll_transfer *transfer)
{
    return atomic_load_explicit(&transfer->state, memory_order_acquire) == COLL_TRANSFER_DONE;
}

struct core_bell *coll_peers_bell(struct coll_peers *peers)
{
    return &peers->done;
}

static bool all_ended(const struct coll_transfer *transfers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (atomic_load_explicit(&transfers[i].state, memory_order_acquire) ==
            COLL_TRANSFER_POSTED) {
            return false;
        }
    }
    return true;
}

int coll_peers_wait(struct coll_peers *peers, const struct coll_transfer *transfers, size_t count)
{
    for (int64_t spin_ns = CORE_FENCE_SPIN_NS;; spin_ns = 0) {
        const uint32_t seen = core_bell_look(&peers->done);
        if (all_ended(transfers, count)) {
            return 0;
        }
        const int rc = coll_peers_error(peers);
        if (rc != 0) {
            return rc;
        }
        core_bell_spin_sleep(&peers->done, seen, spin_ns, CORE_CLOCK_BEAT_NS);
    }
}

void coll_peers_withdraw(struct coll_peers *peers, struct coll_transfer *transfer)
{
    if (atomic_load_explicit(&transfer->state, memory_order_acquire) != COLL_TRANSFER_POSTED) {
        return;
    }
    for (bool given = false; coll_peers_error(peers) == 0;) {
        const uint32_t seen = core_bell_look(&peers->done);
        pthread_mutex_lock(&peers->lock);
        const bool served = given && peers->withdrawn != transfer;
        if (!given && peers->withdrawn == NULL) {
            peers->withdrawn = transfer;
            given = true;
            core_bell_ring(&peers->work);
        }
        pthread_mutex_unlock(&peers->lock);
        if (served) {
            return;
        }
        (void)core_bell_sleep(&peers->done, seen, CORE_CLOCK_BEAT_NS);
    }
}

bool coll_peers_told(const struct coll_peers *peers)
{
    return atomic_load_explicit(&peers->error, memory_order_acquire) != 0 && peers->leader_ended;
}

int coll_peers_fail(struct coll_peers *peers, int code)
{
    pthread_mutex_lock(&peers->lock);
    if (peers->wish.code == 0) {
        peers->wish = core_err_keep(code);
    }
    pthread_mutex_unlock(&peers->lock);
    core_bell_ring(&peers->work);
    for (;;) {
        const uint32_t seen = core_bell_look(&peers->done);
        const int rc = coll_peers_error(peers);
        if (rc != 0) {
            return rc;
        }
        (void)core_bell_sleep(&peers->done, seen, CORE_CLOCK_BEAT_NS);
    }
}

void coll_peers_end_text(void *message, size_t room, size_t received)
{
    ((char *)message)[received < room ? received : room - 1] = '\0';
}

int coll_peers_send(struct coll_peers *peers, unsigned to, const void *from, size_t bytes)
{
    struct coll_transfer transfer = {
        .sends = true, .peer = to, .tag = TAG_CALL, .at = (void *)(uintptr_t)from, .bytes = bytes};
    coll_peers_post(peers, &transfer);
    return coll_peers_wait(peers, &transfer, 1);
}

int coll_peers_receive(struct coll_peers *peers, unsigned from, void *to, size_t room,
                       size_t *bytes)
{
    struct coll_transfer transfer = {.peer = from, .tag = TAG_CALL, .at = to, .bytes = room};
    coll_peers_post(peers, &transfer);
    const int rc = coll_peers_wait(peers, &transfer, 1);
    if (rc == 0) {
        *bytes = transfer.received;
    }
    return rc;
}

/* ---- opening and closing ---- */

/* Processes describe themselves to the first one, which sends the list. */
static int exchange_names(struct coll_peers *peers)
{
    const unsigned world = peers->place.world;
    const size_t bytes = world * sizeof *peers->list;
    struct coll_peer *own = &peers->list[peers->place.rank];
    size_t got = 0;
    int rc = 0;
    if (gethostname(own->host, sizeof own->host - 1) != 0) {
        snprintf(own->host, sizeof own->host, "unknown");
    }
    if (core_cpus_allowed(&own->cpus) != 0) {
        own->cpus = (struct core_cpus){{0}};
    }
    snprintf(own->identity, sizeof own->identity, "%s",
             peers->given.identity != NULL ? peers->given.identity : "");
    if (peers->place.rank > 0) {
        rc = coll_peers_send(peers, 0, own, sizeof *own);
        return rc != 0 ? rc : coll_peers_receive(peers, 0, peers->list, bytes, &got);
    }
    for (unsigned r = 1; rc == 0 && r < world; r++) {
        rc = coll_peers_receive(peers, r, &peers->list[r], sizeof *own, &got);
    }
    for (unsigned r = 1; rc == 0 && r < world; r++) {
        rc = coll_peers_send(peers, r, peers->list, bytes);
    }
    return rc;
}

/* Other processes have sent these texts, maybe without a NUL. */
static void end_names(struct coll_peers *peers)
{
    for (unsigned r = 0; r < peers->place.world; r++) {
        struct coll_peer *peer = &peers->list[r];
        peer->host[sizeof peer->host - 1] = '\0';
        peer->identity[sizeof peer->identity - 1] = '\0';
    }
}

/* Processes find the same first difference. */
static int compare_builds(const struct coll_peers *peers)
{
    for (unsigned r = 1; r < peers->place.world; r++) {
        if (strcmp(peers->list[r].identity, peers->list[0].identity) != 0) {
            return core_err_set(-EPROTO,
                                "all processes need the same build of tide: rank %u on %s is %s, "
                                "and rank 0 on %s is %s",
                                r, peers->list[r].host, peers->list[r].identity,
                                peers->list[0].host, peers->list[0].identity);
        }
    }
    return 0;
}

static void free_peers(struct coll_peers *peers)
{
    pthread_mutex_destroy(&peers->lock);
    free(peers->active);
    free(peers->free_slots);
    free(peers->heard_ns);
    free(peers->list);
    free(peers->said);
    free(peers->sends);
    free(peers);
}

static void join(struct coll_peers *peers)
{
    atomic_store_explicit(&peers->ending, true, memory_order_release);
    core_bell_ring(&peers->work);
    pthread_join(peers->thread, NULL);
}

int coll_peers_open(const struct coll_peers_options *options, struct coll_peers **out)
{
    struct coll_peers *peers = calloc(1, sizeof *peers);
    if (peers == NULL) {
        return core_err_set(-ENOMEM, "no memory for the processes of a run");
    }
    peers->given = *options;
    peers->silence_ns = options->silence_ns > 0 ? options->silence_ns : silence_default_ns;
    peers->log = core_log_bound();
    peers->next_tag = TAG_FIRST;
    peers->posted_tail = &peers->posted;
    peers->waiting_tail = &peers->waiting;
    pthread_mutex_init(&peers->lock, NULL);
    core_bell_init(&peers->work);
    core_bell_init(&peers->done);
    int rc = coll_transport_load(&options->launch, &peers->transport);
    if (rc != 0) {
        goto fail;
    }
    rc = core_thread_start(&peers->thread, peers_main, peers);
    if (rc != 0) {
        rc = core_err_set(-rc, "cannot start the thread that connects processes: %s", strerror(rc));
        goto fail;
    }
    for (int opened = 0; opened == 0;) { /* the transport or the launcher limits this wait */
        const uint32_t seen = core_bell_look(&peers->done);
        opened = atomic_load_explicit(&peers->opened, memory_order_acquire);
        if (opened < 0) {
            pthread_join(peers->thread, NULL);
            rc = core_err_adopt(opened, peers->message);
            goto fail;
        }
        if (opened == 0) {
            (void)core_bell_sleep(&peers->done, seen, -1);
        }
    }
    rc = exchange_names(peers);
    if (rc == 0) {
        end_names(peers);
        rc = compare_builds(peers);
    }
    if (rc != 0) {
        join(peers);
        goto fail;
    }
    *out = peers;
    return 0;
fail:
    free_peers(peers);
    return rc;
}

/* Ends this process and, over MPI, all others. If the first process told of the end, it first gets
 * time to print the reason. */
static _Noreturn void end_all(struct coll_peers *peers, int code)
{
    if (peers->leader_ended) {
        peers->transport->wait_end(0, 20 * second_ns);
    }
    peers->transport->abort(code > 0 ? code : 1);
    for (;;) {
        pause(); /* the launcher ends this process */
    }
}

void coll_peers_close(struct coll_peers *peers, int code)
{
    if (peers == NULL) {
        return;
    }
    join(peers);
    if (peers->failed != 0) {
        end_all(peers, code);
    }
    free_peers(peers);
}

unsigned coll_peers_rank(const struct coll_peers *peers)
{
    return peers->place.rank;
}

unsigned coll_peers_world(const struct coll_peers *peers)
{
    return peers->place.world;
}

const char *coll_peers_library(const struct coll_peers *peers)
{
    return peers->place.library;
}

const struct coll_peer *coll_peers_at(const struct coll_peers *peers, unsigned rank)
{
    assert(rank < peers->place.world);
    return &peers->list[rank];
}

void coll_peers_host(const struct coll_peers *peers, unsigned rank, struct coll_host *out)
{
    struct coll_host host = {.first = rank};
    for (unsigned r = 0; r < peers->place.world; r++) {
        const struct coll_peer *peer = &peers->list[r];
        if (strcmp(peer->host, peers->list[rank].host) == 0) {
            for (size_t i = 0; i < sizeof host.cpus.bits / sizeof host.cpus.bits[0]; i++) {
                host.cpus.bits[i] |= peer->cpus.bits[i];
            }
            host.first = r < host.first ? r : host.first;
            host.index += r < rank;
            host.ranks++;
        }
    }
    *out = host;
}

bool coll_peers_stopping(const struct coll_peers *peers)
{
    return atomic_load_explicit(&peers->stopping, memory_order_relaxed);
}
