/* card.c: a scheduler for a kernel's threads, which have their own stacks and yield while they
 * wait. */
#include "tests/cuda/card.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    WARP = 32,
    THREADS_MAX = 1024,
    STACK_BYTES = 128 << 10,
    BYTES_MAX = 64,
    SHARED_MAX = 228 << 10
};

struct fiber {
    void *stack;             /* the stack pointer while the thread does not run */
    const uint64_t *meeting; /* waits while *meeting is `met`; NULL: can run */
    uint64_t met;
    bool done;
};

/* A thread's copies in flight, oldest first. */
enum { COPIES_MAX = 256 };
struct copies {
    struct {
        void *to;
        const void *from;
        unsigned batch;
    } list[COPIES_MAX];
    unsigned count;
    unsigned batch; /* that is being filled */
};

enum { BOXES_MAX = 64 };
struct box {
    uint32_t shared;
    struct card_tensor tensor;
    struct card_corner corner;
    uint64_t *barrier;
};

struct warp {
    uint64_t met; /* exchanges that all lanes have reached */
    unsigned arrived;
    size_t bytes;
    _Alignas(64) unsigned char brought[2][WARP * BYTES_MAX];
};

static struct {
    pthread_mutex_t lock;
    void *stacks;
    void *scheduler;
    void (*thread)(void *closure);
    void *closure;
    struct card_place place;
    struct fiber fibers[THREADS_MAX];
    struct warp warps[THREADS_MAX / WARP];
    struct copies copies[THREADS_MAX];
    struct box boxes[BOXES_MAX];
    unsigned boxes_count;
    uint64_t met; /* barriers that all threads of the block have reached */
    unsigned arrived;
    int gathering, gathered;
    unsigned done;
    unsigned launches;
    uint32_t random;
    _Alignas(1024) unsigned char shared[SHARED_MAX];
} card = {.lock = PTHREAD_MUTEX_INITIALIZER};

unsigned card_group_products;
bool card_group_products_are_wrong;

/* Stores the running stack in *from and continues on stack `to`. */
void card_switch(void **from, void *to);
__asm__(".text\n"
        ".globl card_switch\n"
        ".hidden card_switch\n"
        ".type card_switch, @function\n"
        "card_switch:\n"
        "pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
        "movq %rsp, (%rdi)\n"
        "movq %rsi, %rsp\n"
        "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n"
        "ret\n"
        ".size card_switch, . - card_switch\n");

_Noreturn static void die(const char *what)
{
    fprintf(stderr, "emulated card: thread %u of block %u, %u: %s\n", card.place.thread,
            card.place.block[0], card.place.block[1], what);
    abort();
}

static void yield(void)
{
    card_switch(&card.fibers[card.place.thread].stack, card.scheduler);
}

static void wait_for(const uint64_t *meeting)
{
    struct fiber *fiber = &card.fibers[card.place.thread];
    fiber->meeting = meeting;
    fiber->met = *meeting;
    yield();
}

_Noreturn static void fiber_main(void)
{
    card.thread(card.closure);
    card.fibers[card.place.thread].done = true;
    card.done++;
    yield();
    die("was resumed after its end");
}

const struct card_place *card_place(void)
{
    return &card.place;
}

void *card_shared(void)
{
    return card.shared;
}

int card_barrier(int value)
{
    if (card.done > 0) {
        die("comes to a barrier that others have left");
    }
    card.gathering += value;
    if (++card.arrived == card.place.grid.threads) {
        card.gathered = card.gathering;
        card.gathering = 0;
        card.arrived = 0;
        card.met++;
    } else {
        wait_for(&card.met);
    }
    return card.gathered;
}

const void *card_exchange(const void *mine, size_t bytes)
{
    struct warp *warp = &card.warps[card.place.thread / WARP];
    const unsigned first = card.place.thread / WARP * WARP;
    for (unsigned lane = 0; lane < WARP; lane++) {
        if (card.fibers[first + lane].done) {
            die("meets its warp, and a lane has left");
        }
    }
    if (bytes > BYTES_MAX || (warp->arrived > 0 && warp->bytes != bytes)) {
        die("meets its warp with something else than the other lanes");
    }
    unsigned char *brought = warp->brought[warp->met % 2];
    warp->bytes = bytes;
    memcpy(brought + card.place.thread % WARP * bytes, mine, bytes);
    if (++warp->arrived == WARP) {
        warp->arrived = 0;
        warp->met++;
    } else {
        wait_for(&warp->met);
    }
    return brought;
}

static void copy_done(void *to, const void *from)
{
    if (from == NULL) {
        memset(to, 0, 16);
    } else {
        memcpy(to, from, 16);
    }
}

/* Copies at once in some launches, and as late as a card may in others. */
void card_copy16(void *shared, const void *from)
{
    struct copies *copies = &card.copies[card.place.thread];
    if (copies->count == COPIES_MAX) {
        die("has too many copies under way");
    }
    if (((uintptr_t)shared | (uintptr_t)from) % 16 != 0) {
        die("copies from or to an address that is not a multiple of 16");
    }
    if (card.launches / 3 % 2 != 0) {
        copy_done(shared, from);
        return;
    }
    copies->list[copies->count].to = shared;
    copies->list[copies->count].from = from;
    copies->list[copies->count++].batch = copies->batch;
}

void card_copy_batch(void)
{
    card.copies[card.place.thread].batch++;
}

void card_copy_wait(unsigned left)
{
    struct copies *copies = &card.copies[card.place.thread];
    unsigned kept = 0;
    for (unsigned i = 0; i < copies->count; i++) {
        if (copies->list[i].batch + left >= copies->batch) {
            copies->list[kept++] = copies->list[i];
        } else {
            copy_done(copies->list[i].to, copies->list[i].from);
        }
    }
    copies->count = kept;
}

/* The word of a barrier: arrivals per phase (12 bits), arrivals still to come (12), bytes still to
 * come (39), the phase (1). */
enum { PENDING_AT = 12, BYTES_AT = 24, PHASE_AT = 63, COUNT_MASK = 0xfff };
static const uint64_t BYTES_MASK = ((uint64_t)1 << (PHASE_AT - BYTES_AT)) - 1;

static void phase_turn(uint64_t *barrier)
{
    if ((*barrier >> PENDING_AT & COUNT_MASK) == 0 && (*barrier >> BYTES_AT & BYTES_MASK) == 0) {
        *barrier ^= (uint64_t)1 << PHASE_AT;
        *barrier |= (*barrier & COUNT_MASK) << PENDING_AT;
    }
}

void card_phase_init(uint64_t *barrier, unsigned arrivals)
{
    *barrier = arrivals | (uint64_t)arrivals << PENDING_AT;
}

void card_phase_arrive(uint64_t *barrier, unsigned bytes)
{
    if ((*barrier >> PENDING_AT & COUNT_MASK) == 0) {
        die("arrives at a barrier that has all its arrivals");
    }
    *barrier += (uint64_t)bytes << BYTES_AT;
    *barrier -= (uint64_t)1 << PENDING_AT;
    phase_turn(barrier);
}

void card_phase_wait(const uint64_t *barrier, unsigned phase)
{
    while (*barrier >> PHASE_AT == phase) {
        wait_for(barrier);
    }
}

static void box_done(const struct box *box)
{
    const struct card_tensor *t = &box->tensor;
    const uint64_t bytes = (uint64_t)t->box_columns * t->box_positions;
    for (uint32_t at = 0; at < bytes; at += 16) {
        const int64_t column = box->corner.column * (int64_t)2 + at % t->box_columns;
        const int64_t position = box->corner.position + (int64_t)(at / t->box_columns);
        const int64_t row = box->corner.row;
        const uint32_t place = box->shared + at;
        unsigned char *to = card.shared + (place ^ (place >> 7 & 7) << 4);
        const bool inside = column >= 0 && position >= 0 && row >= 0 &&
                            (uint64_t)column < t->columns && (uint64_t)position < t->positions &&
                            (uint64_t)row < t->rows;
        copy_done(to, inside ? t->base + (uint64_t)row * t->row_stride +
                                   (uint64_t)position * t->position_stride + column
                             : NULL);
    }
    if ((*box->barrier >> BYTES_AT & BYTES_MASK) < bytes) {
        die("or another one copies more bytes than were announced");
    }
    *box->barrier -= bytes << BYTES_AT;
    phase_turn(box->barrier);
}

void card_tensor_copy(uint32_t shared, const struct card_tensor *tensor, uint64_t *barrier,
                      struct card_corner corner)
{
    const struct box box = {shared, *tensor, corner, barrier};
    if (card.boxes_count == BOXES_MAX || shared % 128 != 0 ||
        shared + (size_t)tensor->box_columns * tensor->box_positions >
            card.place.grid.shared_bytes) {
        die("starts a bulk copy too many, or to where none may go");
    }
    if (card.launches / 3 % 2 != 0) {
        box_done(&box);
        return;
    }
    card.boxes[card.boxes_count++] = box;
}

/* Completes a copy of a box in flight, if there is one. */
static bool box_come(void)
{
    if (card.boxes_count == 0) {
        return false;
    }
    const unsigned index = (card.random >> 8) % card.boxes_count;
    box_done(&card.boxes[index]);
    card.boxes[index] = card.boxes[--card.boxes_count];
    return true;
}

static void fiber_begin(unsigned index)
{
    card.copies[index].count = 0;
    card.copies[index].batch = 0;
    void **top = (void **)(void *)((char *)card.stacks + (size_t)(index + 1) * STACK_BYTES);
    memset(top - 8, 0, 8 * sizeof *top);
    void (*entry)(void) = fiber_main;
    memcpy(top - 2, &entry, sizeof entry);
    card.fibers[index] = (struct fiber){.stack = (void *)(top - 8)};
}

/* Returns the n-th of `count` warps or lanes: upwards, downwards, or upwards from a random one. */
static unsigned turn(unsigned n, unsigned count)
{
    switch (card.launches % 3) {
    case 0: return n;
    case 1: return count - 1 - n;
    default: return (n + card.random % 31) % count;
    }
}

/* Runs a warp until it needs another warp, so that a missing wait shows. Returns whether a thread
 * ran. */
static bool warp_run(unsigned warp)
{
    bool any = false;
    for (bool moved = true; moved; any |= moved) {
        moved = false;
        for (unsigned n = 0; n < WARP; n++) {
            const unsigned index = warp * WARP + turn(n, WARP);
            struct fiber *fiber = &card.fibers[index];
            if (!fiber->done && (fiber->meeting == NULL || *fiber->meeting != fiber->met)) {
                fiber->meeting = NULL;
                card.place.thread = index;
                moved = true;
                card_switch(&card.scheduler, fiber->stack);
            }
        }
    }
    return any;
}

static void block_run(void)
{
    card.done = 0;
    card.arrived = 0;
    card.gathering = 0;
    memset(card.warps, 0, sizeof card.warps);
    memset(card.shared, 0xff, card.place.grid.shared_bytes);
    for (unsigned i = 0; i < card.place.grid.threads; i++) {
        fiber_begin(i);
    }
    while (card.done < card.place.grid.threads) {
        bool moved = false;
        card.random = card.random * 1664525U + 1013904223U;
        for (unsigned n = 0; n < card.place.grid.threads / WARP; n++) {
            moved |= warp_run(turn(n, card.place.grid.threads / WARP));
        }
        if (!moved && !box_come()) {
            die("and others wait for ever");
        }
    }
    if (card.boxes_count > 0) {
        die("and all others have left, and copies are under way");
    }
}

void card_run(const struct card_grid *grid, void (*thread)(void *closure), void *closure)
{
    pthread_mutex_lock(&card.lock);
    if (card.stacks == NULL) {
        card.stacks = mmap(NULL, (size_t)THREADS_MAX * STACK_BYTES, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (card.stacks == MAP_FAILED) {
            abort();
        }
    }
    card.place.grid = *grid;
    card.thread = thread;
    card.closure = closure;
    if (grid->threads == 0 || grid->threads > THREADS_MAX || grid->threads % WARP != 0 ||
        grid->shared_bytes > SHARED_MAX) {
        die("cannot run such a block");
    }
    for (unsigned y = 0; y < grid->blocks[1]; y++) {
        for (unsigned x = 0; x < grid->blocks[0]; x++) {
            card.place.block[0] = x;
            card.place.block[1] = y;
            block_run();
        }
    }
    card.launches++;
    pthread_mutex_unlock(&card.lock);
}
