/* fault.h: a back end that injects faults into another one. Which operations have faults depends
 * only on the rules, the seed and the number of earlier operations. The drive's thread applies the
 * rules, which may change while nothing is in flight. */
#ifndef TESTS_AIO_FAULT_H
#define TESTS_AIO_FAULT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "aio/backend.h"

enum aio_fault_kind {
    AIO_FAULT_SHORT,       /* transfers `argument` bytes (0: from the seed) and reports that */
    AIO_FAULT_ERROR,       /* does nothing and returns -argument (0: EIO) */
    AIO_FAULT_END,         /* does nothing and returns 0, as past the end of a file */
    AIO_FAULT_LATE,        /* completes `argument` reaps later (0: from the seed) */
    AIO_FAULT_REORDER,     /* may complete after later operations */
    AIO_FAULT_DUPLICATE,   /* completes twice */
    AIO_FAULT_UNKNOWN,     /* adds completions of operations that were not submitted */
    AIO_FAULT_LOST,        /* does nothing and reports success */
    AIO_FAULT_TORN,        /* transfers `argument` bytes (0: from the seed), reports all */
    AIO_FAULT_MISDIRECTED, /* transfers at another offset, reports success */
    AIO_FAULT_CORRUPT,     /* flips bit `argument` (0: from the seed) */
    AIO_FAULT_STALLED,     /* completes only after a cancellation or aio_fault_release */
    AIO_FAULT_SUBMIT,      /* submit returns -argument (0: EAGAIN) and takes nothing */
    AIO_FAULT_REAP,        /* reap returns -argument (0: EINTR) and collects nothing */
    AIO_FAULT_KINDS,
};

enum { AIO_FAULT_RULES_MAX = 16, AIO_FAULT_FOREVER = 0x7fffffff };

/* Operations of a drive (for SUBMIT and REAP: calls) are numbered from 1. A rule applies to `count`
 * numbers from `from` on, or at random to one in `one_in`, and only to operations that match the
 * last members. */
struct aio_fault_rule {
    enum aio_fault_kind kind;
    uint64_t from;     /* 0: 1 */
    uint64_t count;    /* 0: 1 */
    uint32_t one_in;   /* 0: use `count` */
    uint32_t argument; /* depends on the kind */
    bool reads_only, writes_only;
    uint64_t offset_from, offset_end; /* operations that begin here; 0, 0: all */
};

/* Owned by the test; outlives its drives. */
struct aio_fault {
    const struct aio_backend *inner; /* NULL: mem if the drive has a disk, otherwise probed */
    uint64_t seed;
    unsigned rules_count;
    struct aio_fault_rule rules[AIO_FAULT_RULES_MAX];
    uint64_t *offsets; /* borrowed, [offsets_max]: gets the offsets of the first operations */
    uint64_t offsets_max;
    _Atomic bool released;                  /* stalled operations continue */
    _Atomic uint64_t ops;                   /* operations submitted */
    _Atomic uint64_t hits[AIO_FAULT_KINDS]; /* applications of each kind */
    struct aio_backend recipe;              /* see aio_fault_recipe */
};

/* Returns the back end that injects these faults, for the `backend` or `recipe` of options (NULL
 * for NULL). Belongs to `fault`. */
const struct aio_backend *aio_fault_recipe(struct aio_fault *fault);

/* Any thread. */
void aio_fault_release(struct aio_fault *fault);

#endif
