/* backend_mem.c: a back end whose disk is memory of a given speed, for `--io mem` and tests. */
#include "aio/backend.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/base/bell.h"
#include "core/base/clock.h"
#include "core/base/err.h"

struct completion {
    struct aio_event event;
    int64_t due_ns; /* 0: at once */
};

struct mem {
    struct aio_mem_disk *disk;      /* borrowed */
    struct completion *completions; /* owned: ring, in submission order */
    uint32_t size;
    uint32_t first, count;
    struct core_bell bell;
};

int aio_mem_create(uint64_t bytes, struct aio_mem_disk **out)
{
    struct aio_mem_disk *disk = calloc(1, sizeof *disk);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (disk == NULL || memory == MAP_FAILED) {
        free(disk);
        if (memory != MAP_FAILED) {
            munmap(memory, bytes);
        }
        return core_err_set(-ENOMEM, "out of memory for a disk of %llu bytes in memory",
                            (unsigned long long)bytes);
    }
    disk->memory = memory;
    disk->bytes = bytes;
    *out = disk;
    return 0;
}

void aio_mem_destroy(struct aio_mem_disk *disk)
{
    if (disk != NULL) {
        munmap(disk->memory, disk->bytes);
        free(disk);
    }
}

static int mem_probe(char *reason, size_t bytes)
{
    if (bytes > 0) {
        strncpy(reason, "mem works everywhere", bytes - 1);
        reason[bytes - 1] = '\0';
    }
    return 0;
}

static void mem_close(void *state)
{
    struct mem *mem = state;
    if (mem != NULL) {
        free(mem->completions);
        free(mem);
    }
}

static int mem_open(const struct aio_backend_options *options, void **state)
{
    if (options->context == NULL) {
        return core_err_set(-EINVAL, "%s: back end mem needs a disk in memory", options->drive);
    }
    struct mem *mem = calloc(1, sizeof *mem);
    if (mem == NULL) {
        return core_err_set(-ENOMEM, "%s: out of memory for back end mem", options->drive);
    }
    mem->disk = options->context;
    mem->size = options->depth;
    mem->completions = calloc(mem->size, sizeof *mem->completions);
    if (mem->completions == NULL) {
        mem_close(mem);
        return core_err_set(-ENOMEM, "%s: out of memory for back end mem", options->drive);
    }
    core_bell_init(&mem->bell);
    *state = mem;
    return 0;
}

static int mem_attach(void *state, uint32_t index, int fd)
{
    (void)state;
    (void)index;
    (void)fd;
    return 0;
}

static int mem_buffers(void *state, const struct iovec *slabs, unsigned count)
{
    (void)state;
    (void)slabs;
    (void)count;
    return 0;
}

static int64_t transfer(struct aio_mem_disk *disk, const struct aio_op *op)
{
    if (op->kind == AIO_SYNC || op->offset >= disk->bytes) {
        return 0;
    }
    uint64_t left = disk->bytes - op->offset;
    size_t bytes = op->bytes < left ? op->bytes : (size_t)left;
    if (op->kind == AIO_READ) {
        memcpy(op->memory, disk->memory + op->offset, bytes);
    } else {
        memcpy(disk->memory + op->offset, op->memory, bytes);
    }
    return (int64_t)bytes;
}

static int64_t due(struct aio_mem_disk *disk, const struct aio_op *op)
{
    uint64_t rate = op->kind == AIO_READ ? disk->read_bytes_per_s : disk->write_bytes_per_s;
    if (rate == 0 && disk->latency_ns == 0) {
        return 0;
    }
    int64_t now_ns = core_clock_now_ns();
    disk->free_ns = disk->free_ns > now_ns ? disk->free_ns : now_ns;
    if (rate != 0) {
        disk->free_ns += (int64_t)((double)op->bytes * 1e9 / (double)rate);
    }
    return disk->free_ns + disk->latency_ns;
}

static int mem_submit(void *state, const struct aio_op *ops, unsigned count)
{
    struct mem *mem = state;
    unsigned taken = 0;
    while (taken < count && mem->count < mem->size) {
        const struct aio_op *op = &ops[taken++];
        struct completion *completion = &mem->completions[(mem->first + mem->count++) % mem->size];
        completion->event = (struct aio_event){op->token, transfer(mem->disk, op)};
        completion->due_ns = due(mem->disk, op);
    }
    return (int)taken;
}

static int collect(struct mem *mem, struct aio_event *events, unsigned max)
{
    int64_t now_ns = 0;
    unsigned got = 0;
    while (got < max && mem->count > 0) {
        const struct completion *completion = &mem->completions[mem->first];
        if (completion->due_ns > now_ns) {
            now_ns = core_clock_now_ns();
        }
        if (completion->due_ns > now_ns) {
            break;
        }
        events[got++] = completion->event;
        mem->first = (mem->first + 1) % mem->size;
        mem->count--;
    }
    return (int)got;
}

static int mem_reap(void *state, struct aio_event *events, unsigned max, unsigned min,
                    int64_t wait_ns)
{
    struct mem *mem = state;
    uint32_t seen = core_bell_look(&mem->bell);
    int got = collect(mem, events, max);
    if (got > 0 || min == 0) {
        return got;
    }
    if (mem->count > 0) {
        int64_t next_ns = mem->completions[mem->first].due_ns - core_clock_now_ns();
        wait_ns = next_ns < wait_ns ? next_ns : wait_ns;
    }
    if (wait_ns > 0) {
        core_bell_sleep(&mem->bell, seen, wait_ns);
    }
    return collect(mem, events, max);
}

static void mem_wake(void *state)
{
    struct mem *mem = state;
    core_bell_ring(&mem->bell);
}

static void mem_cancel(void *state, uint64_t token)
{
    (void)state;
    (void)token;
}

static const char *mem_describe(void *state)
{
    (void)state;
    return "mem";
}

const struct aio_backend aio_mem = {
    .name = "mem",
    .probe = mem_probe,
    .open = mem_open,
    .close = mem_close,
    .attach = mem_attach,
    .buffers = mem_buffers,
    .submit = mem_submit,
    .reap = mem_reap,
    .wake = mem_wake,
    .cancel = mem_cancel,
    .describe = mem_describe,
};
