/* fault.h: a back end for tests that wraps another one and injects faults: errors, short transfers,
 * stalls, lost and corrupted writes. Faults are reproducible: they depend only on the rules, the
 * seed and the number of earlier operations. The drive's thread applies the rules; they may change
 * while nothing is in flight. */
#ifndef TESTS_AIO_FAULT_H
#define TESTS_AIO_FAULT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "aio/backend.h"

enum aio_fault_kind {
    AIO_FAULT_SHORT,       /* transfers only `argument` bytes (0: from the seed) and reports that */
    AIO_FAULT_ERROR,       /* does nothing and returns -argument (0: EIO) */
    AIO_FAULT_END,         /* does nothing and returns 0, as past the end of a file */
    AIO_FAULT_LATE,        /* completes `argument` reaps later (0: from the seed) */
    AIO_FAULT_REORDER,     /* completes after operations that were submitted later */
    AIO_FAULT_DUPLICATE,   /* completes twice */
    AIO_FAULT_UNKNOWN,     /* adds completions of operations that were never submitted */
    AIO_FAULT_LOST,        /* does nothing and reports success */
    AIO_FAULT_TORN,        /* transfers only `argument` bytes (0: from the seed), reports all */
    AIO_FAULT_MISDIRECTED, /* transfers at another offset, reports success */
    AIO_FAULT_CORRUPT,     /* flips one bit (bit `argument`; 0: from the seed) */
    AIO_FAULT_STALLED,     /* never completes, until cancelled or aio_fault_release */
    AIO_FAULT_SUBMIT,      /* submit returns -argument (0: EAGAIN) and takes nothing */
    AIO_FAULT_REAP,        /* reap returns -argument (0: EINTR) and collects nothing */
    AIO_FAULT_KINDS,
};

enum { AIO_FAULT_RULES_MAX = 16, AIO_FAULT_FOREVER = 0x7fffffff };

/* The operations of a drive are numbered from 1; for SUBMIT and REAP, its calls are. A rule applies
 * to the numbers `from` to `from` + `count` - 1 or, with `one_in` set, to one number in that many
 * at random; of these operations, only to those that match the last members. */
struct aio_fault_rule {
    enum aio_fault_kind kind;
    uint64_t from;     /* 0: 1 */
    uint64_t count;    /* 0: 1 */
    uint32_t one_in;   /* 0: use `count` */
    uint32_t argument; /* depends on the kind, see above */
    bool reads_only, writes_only;
    uint64_t offset_from, offset_end; /* only operations that begin here; 0, 0: all */
};

/* The faults to inject. Owned by the test; outlives the drives that use it. */
struct aio_fault {
    const struct aio_backend *inner; /* NULL: mem if the drive has a disk, otherwise by probing */
    uint64_t seed;
    unsigned rules_count;
    struct aio_fault_rule rules[AIO_FAULT_RULES_MAX];
    _Atomic bool released;                  /* stalled operations continue */
    _Atomic uint64_t ops;                   /* operations submitted */
    _Atomic uint64_t hits[AIO_FAULT_KINDS]; /* how often each kind was applied */
    struct aio_backend recipe;              /* see aio_fault_recipe */
};

/* Returns the back end that injects these faults, for the `backend` or `recipe` member of options;
 * NULL for NULL. Belongs to `fault`. */
const struct aio_backend *aio_fault_recipe(struct aio_fault *fault);

/* Lets stalled operations continue. Any thread. */
void aio_fault_release(struct aio_fault *fault);

#endif
