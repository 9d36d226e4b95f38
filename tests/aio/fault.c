/* fault.c: see fault.h. An operation has an entry that says how to change its completion; invented
 * and delayed completions wait in an array. Runs on the drive's thread. */
#include "tests/aio/fault.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aio/backend.h"
#include "core/base/err.h"
#include "core/base/rng.h"

enum { SECTOR_BYTES = 512, COPY_ALIGN_BYTES = 4096, LATE_MAX = 8, NONE = -1 };
static const int64_t stalled_wait_ns = 5000000;

struct entry {
    struct aio_op op; /* as submitted */
    bool used;
    bool stalled; /* not passed to the inner back end */
    int fault;    /* enum aio_fault_kind, or NONE */
    uint32_t argument;
    void *copy; /* owned: the changed data to write, because the caller's memory may be in use */
};

struct held {
    struct aio_event event;
    uint64_t due; /* value of fault.reaps from which it may be delivered */
};

struct fault {
    struct aio_fault *plan;            /* borrowed */
    const struct aio_backend *backend; /* the inner back end */
    void *inner;                       /* owned: state of `backend` */
    uint32_t depth;
    struct entry *entries; /* owned, [depth] */
    struct held *held;     /* owned, [held_size] */
    uint32_t held_size, held_count;
    uint32_t stalled_count;
    uint64_t ops, submits, reaps; /* so far */
    char words[128];
};

void aio_fault_release(struct aio_fault *plan)
{
    atomic_store_explicit(&plan->released, true, memory_order_release);
}

static int fault_probe(char *reason, size_t bytes)
{
    snprintf(reason, bytes, "made to fail");
    return 0;
}

static void fault_close(void *state)
{
    struct fault *fault = state;
    if (fault == NULL) {
        return;
    }
    if (fault->inner != NULL) {
        fault->backend->close(fault->inner);
    }
    for (uint32_t i = 0; fault->entries != NULL && i < fault->depth; i++) {
        free(fault->entries[i].copy);
    }
    free(fault->entries);
    free(fault->held);
    free(fault);
}

/* Finds the inner back end: the test's, or mem if the drive has a disk, or a probed one. */
static int find_inner(const struct aio_fault *plan, const struct aio_backend_options *options,
                      const struct aio_backend **out)
{
    if (plan->inner == NULL && options->context == NULL) {
        return aio_backend_choose(NULL, true, NULL, 0, out);
    }
    *out = plan->inner != NULL ? plan->inner : &aio_mem;
    return 0;
}

static int fault_open(const struct aio_backend_options *options, void **state)
{
    struct aio_fault *plan = options->user;
    assert(plan != NULL && plan->rules_count <= AIO_FAULT_RULES_MAX);
    struct fault *fault = calloc(1, sizeof *fault);
    if (fault == NULL) {
        return core_err_set(-ENOMEM, "%s: no memory for back end fault", options->drive);
    }
    fault->plan = plan;
    fault->depth = options->depth;
    fault->held_size = 4 * options->depth + 16;
    fault->entries = calloc(fault->depth, sizeof *fault->entries);
    fault->held = calloc(fault->held_size, sizeof *fault->held);
    int rc = -ENOMEM;
    if (fault->entries == NULL || fault->held == NULL) {
        core_err_set(rc, "%s: no memory for back end fault", options->drive);
        goto fail;
    }
    rc = find_inner(plan, options, &fault->backend);
    if (rc != 0) {
        goto fail;
    }
    rc = fault->backend->open(options, &fault->inner);
    if (rc != 0) {
        goto fail;
    }
    snprintf(fault->words, sizeof fault->words, "fault (seed %llu) over %s",
             (unsigned long long)plan->seed, fault->backend->describe(fault->inner));
    *state = fault;
    return 0;
fail:
    fault_close(fault);
    return rc;
}

static int fault_attach(void *state, uint32_t index, int fd)
{
    struct fault *fault = state;
    return fault->backend->attach(fault->inner, index, fd);
}

static int fault_buffers(void *state, const struct iovec *slabs, unsigned count)
{
    struct fault *fault = state;
    return fault->backend->buffers(fault->inner, slabs, count);
}

static uint32_t chance(const struct fault *fault, uint64_t stream, uint64_t position)
{
    return core_rng_philox(fault->plan->seed, stream, position).word[0];
}

static bool hits(const struct fault *fault, unsigned index, uint64_t number)
{
    const struct aio_fault_rule *rule = &fault->plan->rules[index];
    if (rule->one_in != 0) {
        return chance(fault, index, number) % rule->one_in == 0;
    }
    uint64_t from = rule->from != 0 ? rule->from : 1;
    uint64_t count = rule->count != 0 ? rule->count : 1;
    return number >= from && number - from < count;
}

static void hit(struct fault *fault, enum aio_fault_kind kind)
{
    atomic_fetch_add_explicit(&fault->plan->hits[kind], 1, memory_order_relaxed);
}

/* Returns the rule that makes the whole call fail, or NULL. */
static const struct aio_fault_rule *call_rule(struct fault *fault, enum aio_fault_kind kind,
                                              uint64_t number)
{
    for (unsigned i = 0; i < fault->plan->rules_count; i++) {
        if (fault->plan->rules[i].kind == kind && hits(fault, i, number)) {
            hit(fault, kind);
            return &fault->plan->rules[i];
        }
    }
    return NULL;
}

static bool concerns(const struct aio_fault_rule *rule, const struct aio_op *op)
{
    if (rule->kind == AIO_FAULT_SUBMIT || rule->kind == AIO_FAULT_REAP) {
        return false;
    }
    if (op->kind == AIO_SYNC && rule->kind != AIO_FAULT_ERROR && rule->kind != AIO_FAULT_LATE &&
        rule->kind != AIO_FAULT_STALLED && rule->kind != AIO_FAULT_DUPLICATE) {
        return false;
    }
    if ((rule->reads_only && op->kind != AIO_READ) ||
        (rule->writes_only && op->kind != AIO_WRITE)) {
        return false;
    }
    return rule->offset_end == 0 ||
           (op->offset >= rule->offset_from && op->offset < rule->offset_end);
}

static const struct aio_fault_rule *op_rule(const struct fault *fault, const struct aio_op *op,
                                            uint64_t number)
{
    for (unsigned i = 0; i < fault->plan->rules_count; i++) {
        if (concerns(&fault->plan->rules[i], op) && hits(fault, i, number)) {
            return &fault->plan->rules[i];
        }
    }
    return NULL;
}

static struct entry *free_entry(struct fault *fault)
{
    for (uint32_t i = 0; i < fault->depth; i++) {
        if (!fault->entries[i].used) {
            return &fault->entries[i];
        }
    }
    return NULL;
}

static struct entry *entry_of(struct fault *fault, uint64_t token)
{
    for (uint32_t i = 0; i < fault->depth; i++) {
        if (fault->entries[i].used && fault->entries[i].op.token == token) {
            return &fault->entries[i];
        }
    }
    return NULL;
}

static void hold(struct fault *fault, uint64_t token, int64_t result, uint64_t reaps)
{
    assert(fault->held_count < fault->held_size);
    fault->held[fault->held_count++] = (struct held){{.token = token, .result = result},
                                                     fault->reaps + reaps};
}

static void flip(const struct entry *entry, unsigned char *memory)
{
    uint64_t bit = entry->argument % ((uint64_t)entry->op.bytes * 8);
    memory[bit / 8] ^= (unsigned char)(1u << (bit % 8));
}

/* Makes a copy with one flipped bit, to be written instead of the data. */
static int write_copy(struct entry *entry, struct aio_op *op)
{
    if (posix_memalign(&entry->copy, COPY_ALIGN_BYTES, op->bytes) != 0) {
        entry->copy = NULL;
        return -ENOMEM;
    }
    memcpy(entry->copy, op->memory, op->bytes);
    flip(entry, entry->copy);
    op->memory = entry->copy;
    op->buffer = -1;
    return 0;
}

static void drop_copy(struct entry *entry)
{
    free(entry->copy);
    entry->copy = NULL;
}

/* Returns a part of the bytes in whole units (a byte of mem, a sector of a drive), or all bytes if
 * they are fewer than two units. */
static uint32_t part_of(const struct fault *fault, const struct entry *entry)
{
    uint32_t grain = fault->backend == &aio_mem ? 1 : SECTOR_BYTES;
    uint32_t grains = entry->op.bytes / grain;
    if (grains < 2) {
        return entry->op.bytes;
    }
    uint32_t part = entry->argument != 0 && entry->argument < entry->op.bytes
                        ? entry->argument / grain
                        : 1 + chance(fault, 100, fault->ops) % (grains - 1);
    return (part == 0 ? 1 : part) * grain;
}

/* Changes the operation for the inner back end. */
static int change(const struct fault *fault, struct entry *entry, struct aio_op *op)
{
    if (entry->fault == AIO_FAULT_SHORT || entry->fault == AIO_FAULT_TORN) {
        op->bytes = part_of(fault, entry);
    } else if (entry->fault == AIO_FAULT_MISDIRECTED) {
        op->offset = op->offset >= op->bytes ? op->offset - op->bytes : op->offset + op->bytes;
    } else if (entry->fault == AIO_FAULT_CORRUPT) {
        entry->argument = entry->argument != 0 ? entry->argument : chance(fault, 101, fault->ops);
        return op->kind == AIO_WRITE ? write_copy(entry, op) : 0;
    }
    return 0;
}

static int64_t made_up(const struct entry *entry)
{
    if (entry->fault == AIO_FAULT_ERROR) {
        return entry->argument != 0 ? -(int64_t)entry->argument : -EIO;
    }
    return entry->fault == AIO_FAULT_LOST ? (int64_t)entry->op.bytes : 0;
}

static int hand_on(struct fault *fault, struct entry *entry)
{
    struct aio_op op = entry->op;
    int rc = change(fault, entry, &op);
    int taken = rc == 0 ? fault->backend->submit(fault->inner, &op, 1) : rc;
    if (taken != 1) {
        drop_copy(entry);
    }
    return taken;
}

static int submit_one(struct fault *fault, const struct aio_op *op)
{
    struct entry *entry = free_entry(fault);
    if (entry == NULL) {
        return 0;
    }
    const struct aio_fault_rule *rule = op_rule(fault, op, fault->ops + 1);
    *entry = (struct entry){.op = *op,
                            .fault = rule != NULL ? (int)rule->kind : NONE,
                            .argument = rule != NULL ? rule->argument : 0};
    int taken = 1;
    if (entry->fault == AIO_FAULT_ERROR || entry->fault == AIO_FAULT_END ||
        entry->fault == AIO_FAULT_LOST) {
        hold(fault, op->token, made_up(entry), 0);
    } else if (entry->fault == AIO_FAULT_STALLED &&
               !atomic_load_explicit(&fault->plan->released, memory_order_acquire)) {
        entry->used = entry->stalled = true;
        fault->stalled_count++;
    } else {
        taken = hand_on(fault, entry);
        entry->used = taken == 1;
    }
    if (taken == 1) {
        if (fault->ops < fault->plan->offsets_max) {
            fault->plan->offsets[fault->ops] = op->offset;
        }
        fault->ops++;
        atomic_store_explicit(&fault->plan->ops, fault->ops, memory_order_relaxed);
        if (rule != NULL) {
            hit(fault, rule->kind);
        }
    }
    return taken;
}

static int fault_submit(void *state, const struct aio_op *ops, unsigned count)
{
    struct fault *fault = state;
    fault->submits++;
    const struct aio_fault_rule *rule = call_rule(fault, AIO_FAULT_SUBMIT, fault->submits);
    if (rule != NULL) {
        return rule->argument != 0 ? -(int)rule->argument : -EAGAIN;
    }
    unsigned taken = 0;
    while (taken < count) {
        int rc = submit_one(fault, &ops[taken]);
        if (rc != 1) {
            return taken > 0 ? (int)taken : rc;
        }
        taken++;
    }
    return (int)taken;
}

/* Changes a completion of the inner back end and holds it. */
static void change_answer(struct fault *fault, const struct aio_event *event)
{
    struct entry *entry = entry_of(fault, event->token);
    if (entry == NULL) {
        hold(fault, event->token, event->result, 0);
        return;
    }
    uint32_t random = chance(fault, 102, event->token);
    int64_t result = event->result;
    uint64_t reaps = 0;
    entry->used = false;
    if (entry->copy != NULL) {
        drop_copy(entry);
    } else if (entry->fault == AIO_FAULT_CORRUPT && result > 0) {
        flip(entry, entry->op.memory);
    }
    if (entry->fault == AIO_FAULT_TORN || entry->fault == AIO_FAULT_MISDIRECTED) {
        result = entry->op.bytes;
    } else if (entry->fault == AIO_FAULT_LATE) {
        reaps = entry->argument != 0 ? entry->argument : 1 + random % LATE_MAX;
    } else if (entry->fault == AIO_FAULT_REORDER) {
        reaps = random % 3;
    } else if (entry->fault == AIO_FAULT_DUPLICATE) {
        hold(fault, event->token, result, random % 3);
    } else if (entry->fault == AIO_FAULT_UNKNOWN) {
        hold(fault, event->token ^ (uint64_t)1 << 40, result, 0);
        hold(fault, AIO_TOKEN_LIMIT + random, 4096, 0);
    }
    hold(fault, event->token, result, reaps);
}

static void release_held(struct fault *fault)
{
    for (uint32_t i = 0; i < fault->depth && fault->stalled_count > 0; i++) {
        struct entry *entry = &fault->entries[i];
        if (entry->used && entry->stalled && hand_on(fault, entry) == 1) {
            entry->stalled = false;
            fault->stalled_count--;
        }
    }
}

/* Takes completions that are due; the newest first if they are reordered. */
static unsigned deliver(struct fault *fault, struct aio_event *events, unsigned max)
{
    unsigned got = 0;
    bool backwards = false;
    for (unsigned i = 0; i < fault->plan->rules_count; i++) {
        backwards |= fault->plan->rules[i].kind == AIO_FAULT_REORDER;
    }
    uint32_t at = 0;
    while (at < fault->held_count && got < max) {
        uint32_t index = backwards ? fault->held_count - 1 - at : at;
        if (fault->held[index].due > fault->reaps) {
            at++;
            continue;
        }
        events[got++] = fault->held[index].event;
        fault->held_count--;
        memmove(&fault->held[index], &fault->held[index + 1],
                (fault->held_count - index) * sizeof fault->held[0]);
    }
    return got;
}

static int fault_reap(void *state, struct aio_event *events, unsigned max, unsigned min,
                      int64_t wait_ns)
{
    struct fault *fault = state;
    fault->reaps++;
    const struct aio_fault_rule *rule = call_rule(fault, AIO_FAULT_REAP, fault->reaps);
    if (rule != NULL) {
        return rule->argument != 0 ? -(int)rule->argument : -EINTR;
    }
    if (fault->stalled_count > 0) {
        if (atomic_load_explicit(&fault->plan->released, memory_order_acquire)) {
            release_held(fault);
        }
        wait_ns = wait_ns < stalled_wait_ns ? wait_ns : stalled_wait_ns;
    }
    if (fault->held_count > 0) {
        wait_ns = 0;
        min = 0;
    }
    struct aio_event found[64];
    unsigned room = (fault->held_size - fault->held_count) / 4;
    unsigned most = room < 64 ? room : 64;
    most = most < max ? most : max;
    int rc = fault->backend->reap(fault->inner, found, most, min < most ? min : most, wait_ns);
    for (int i = 0; i < rc; i++) {
        change_answer(fault, &found[i]);
    }
    unsigned got = deliver(fault, events, max);
    return got > 0 ? (int)got : (rc < 0 ? rc : 0);
}

static void fault_wake(void *state)
{
    struct fault *fault = state;
    fault->backend->wake(fault->inner);
}

static void fault_cancel(void *state, uint64_t token)
{
    struct fault *fault = state;
    struct entry *entry = entry_of(fault, token);
    if (entry != NULL && entry->stalled) {
        entry->used = entry->stalled = false;
        fault->stalled_count--;
        hold(fault, token, -ECANCELED, 0);
    } else {
        fault->backend->cancel(fault->inner, token);
    }
}

static const char *fault_describe(void *state)
{
    struct fault *fault = state;
    return fault->words;
}

static const struct aio_backend functions = {
    .name = "fault",
    .probe = fault_probe,
    .open = fault_open,
    .close = fault_close,
    .attach = fault_attach,
    .buffers = fault_buffers,
    .submit = fault_submit,
    .reap = fault_reap,
    .wake = fault_wake,
    .cancel = fault_cancel,
    .describe = fault_describe,
};

const struct aio_backend *aio_fault_recipe(struct aio_fault *fault)
{
    if (fault == NULL) {
        return NULL;
    }
    fault->recipe = functions;
    fault->recipe.user = fault;
    return &fault->recipe;
}
