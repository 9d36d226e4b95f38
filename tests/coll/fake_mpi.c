/* fake_mpi.c: see fake_mpi.h. Allocates nothing, so that failing allocations are those of the
 * tested code. */
#include "tests/coll/fake_mpi.h"

#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/coll/transport.h"
#include "tests/harness/child.h"

enum { SLOTS = 16384, MESSAGES = 64, MESSAGE_BYTES = 64 << 10 };

struct fake_mpi fake_mpi;

static struct {
    bool receives;
    int tag;
    void *to;
    size_t bytes;
} slots[SLOTS];
static struct {
    bool there;
    int tag;
    size_t bytes;
    unsigned char data[MESSAGE_BYTES];
} messages[MESSAGES];  /* a ring, with the oldest message from `first` on */
static unsigned first; /* where the next message is written */
static unsigned calls[FAKE_CALLS];

static int fake_fail(enum fake_call call, char *why)
{
    if (fake_mpi.fails != call || ++calls[call] != fake_mpi.nth) {
        return 0;
    }
    snprintf(why, COLL_TRANSPORT_WHY_BYTES, "broken");
    return -EIO;
}

static int fake_open(const struct coll_transport_options *options, struct coll_place *out,
                     char *why)
{
    assert(options->slots <= SLOTS);
    memset(messages, 0, sizeof messages);
    *out = (struct coll_place){.rank = fake_mpi.rank,
                               .world = fake_mpi.world != 0 ? fake_mpi.world : 2,
                               .library = "fake MPI"};
    return fake_fail(FAKE_OPEN, why);
}

static int fake_close(char *why)
{
    return fake_fail(FAKE_CLOSE, why);
}

static void fake_wait_end(unsigned rank, int64_t limit_ns)
{
    (void)rank;
    (void)limit_ns;
}

static void fake_abort(int code)
{
    test_child_end(code);
}

static int fake_send(unsigned slot, unsigned to, int tag, const void *from, size_t bytes, char *why)
{
    const unsigned at = first++ % MESSAGES;
    assert(to == 0 && bytes <= MESSAGE_BYTES && !messages[at].there);
    slots[slot].receives = false;
    messages[at].there = fake_mpi.lost_tag_min == 0 || tag < fake_mpi.lost_tag_min;
    messages[at].tag = tag;
    messages[at].bytes = bytes;
    memcpy(messages[at].data, from, bytes);
    if (fake_mpi.change_at > 0 && bytes > fake_mpi.change_at && tag >= fake_mpi.change_tag_min) {
        messages[at].data[fake_mpi.change_at] ^= 1;
    }
    return fake_fail(FAKE_SEND, why);
}

static int fake_receive(unsigned slot, int from, int tag, void *to, size_t bytes, char *why)
{
    assert(from == 0 || from == COLL_TRANSPORT_ANY);
    slots[slot].receives = true;
    slots[slot].tag = tag;
    slots[slot].to = to;
    slots[slot].bytes = bytes;
    return fake_fail(FAKE_RECEIVE, why);
}

/* Delivers the oldest message with a receive's tag; returns false if there is none. */
static bool fake_deliver(unsigned slot, size_t *bytes)
{
    for (unsigned i = 0; i < MESSAGES; i++) {
        const unsigned at = (first + i) % MESSAGES;
        if (messages[at].there && messages[at].tag == slots[slot].tag) {
            assert(messages[at].bytes <= slots[slot].bytes);
            memcpy(slots[slot].to, messages[at].data, messages[at].bytes);
            *bytes = messages[at].bytes;
            messages[at].there = false;
            return true;
        }
    }
    return false;
}

static int fake_progress(char *why)
{
    const struct timespec moment = {.tv_nsec = 50000};
    (void)why;
    if (fake_mpi.dozes) {
        nanosleep(&moment, NULL);
    }
    return 0;
}

static int fake_test(unsigned slot, size_t *bytes, char *why)
{
    if (slots[slot].receives && !fake_deliver(slot, bytes)) {
        return 0;
    }
    const int rc = fake_fail(FAKE_TEST, why);
    return rc != 0 ? rc : 1;
}

static int fake_cancel(unsigned slot, char *why)
{
    size_t bytes = 0;
    const int rc = fake_fail(FAKE_CANCEL, why);
    return rc != 0 ? rc : !fake_deliver(slot, &bytes);
}

static const struct coll_transport *fake_module(void)
{
    static struct coll_transport functions = {.open = fake_open,
                                              .close = fake_close,
                                              .abort = fake_abort,
                                              .wait_end = fake_wait_end,
                                              .send = fake_send,
                                              .receive = fake_receive,
                                              .progress = fake_progress,
                                              .test = fake_test,
                                              .cancel = fake_cancel};
    functions.version = fake_mpi.version != 0 ? fake_mpi.version : COLL_TRANSPORT_VERSION;
    return &functions;
}

/* ---- what the linker puts in the place of the system's calls ---- */

int __wrap_access(const char *path, int mode);
void *__wrap_dlopen(const char *path, int flags);
void *__wrap_dlsym(void *handle, const char *name);
int __real_access(const char *path, int mode);
void *__real_dlopen(const char *path, int flags);
void *__real_dlsym(void *handle, const char *name);

static bool is_module(const char *path)
{
    return path != NULL && strstr(path, "tide_mpi_openmpi.so") != NULL;
}

int __wrap_access(const char *path, int mode)
{
    if (strstr(path, "tide_mpi_") == NULL) {
        return __real_access(path, mode);
    }
    return is_module(path) && !fake_mpi.missing ? 0 : -1;
}

void *__wrap_dlopen(const char *path, int flags)
{
    if (!is_module(path)) {
        return __real_dlopen(path, flags);
    }
    return fake_mpi.unloadable ? __real_dlopen("/nowhere/tide_mpi.so", flags) : &fake_mpi;
}

void *__wrap_dlsym(void *handle, const char *name)
{
    union {
        const struct coll_transport *(*function)(void);
        void *object;
    } symbol = {.function = fake_module};
    return handle == &fake_mpi ? symbol.object : __real_dlsym(handle, name);
}
