/* fault.h: a back end around another one that does what drives, kernels and cables do on bad days,
 * reproducibly: everything follows from the seed and the count of operations. The drive's thread
 * applies it; rules may be changed while nothing is in flight. */
#ifndef AIO_FAULT_H
#define AIO_FAULT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "aio/backend.h"

enum aio_fault_kind {
    AIO_FAULT_SHORT,       /* moves `argument` bytes only (0: from the seed) and says so */
    AIO_FAULT_ERROR,       /* does nothing and answers -argument (0: EIO) */
    AIO_FAULT_END,         /* does nothing and answers 0, as beyond the end of a file */
    AIO_FAULT_LATE,        /* answers `argument` reaps later (0: from the seed) */
    AIO_FAULT_REORDER,     /* answers after others that were asked for later */
    AIO_FAULT_DUPLICATE,   /* answers twice */
    AIO_FAULT_STRANGER,    /* besides, an answer to nothing that was asked */
    AIO_FAULT_LOST,        /* does nothing and answers as if it had */
    AIO_FAULT_TORN,        /* moves only a part (`argument` bytes; 0: from the seed), claims all */
    AIO_FAULT_MISDIRECTED, /* at another offset, claims all */
    AIO_FAULT_CORRUPT,     /* one bit differs (bit `argument`; 0: from the seed) */
    AIO_FAULT_STALLED,     /* never answers, until cancelled or aio_fault_release */
    AIO_FAULT_SUBMIT,      /* submit answers -argument (0: EAGAIN), nothing taken */
    AIO_FAULT_REAP,        /* reap answers -argument (0: EINTR), nothing collected */
    AIO_FAULT_KINDS,
};

enum { AIO_FAULT_RULES_MAX = 16, AIO_FAULT_FOREVER = 0x7fffffff };

/* Hits the `from`-th matching operation (counted from 1; for SUBMIT and REAP the call) and the
 * `count` - 1 after it; or, with `one_in` set, one in that many at random. */
struct aio_fault_rule {
    enum aio_fault_kind kind;
    uint64_t from;     /* 0: 1 */
    uint64_t count;    /* 0: 1 */
    uint32_t one_in;   /* 0: by count */
    uint32_t argument; /* see above */
    bool reads_only, writes_only;
    uint64_t offset_from, offset_end; /* only operations that begin here; 0, 0: all */
};

/* The context of back end `fault`; the caller's, and outlives the drive. */
struct aio_fault {
    const struct aio_backend *inner;
    void *inner_context;
    uint64_t seed;
    unsigned rules_count;
    struct aio_fault_rule rules[AIO_FAULT_RULES_MAX];
    _Atomic bool released;                  /* stalled operations go on */
    _Atomic uint64_t ops;                   /* operations handed in so far */
    _Atomic uint64_t hits[AIO_FAULT_KINDS]; /* how often each was applied */
};

/* Lets stalled operations go on. Any thread. */
void aio_fault_release(struct aio_fault *fault);
const char *aio_fault_name(enum aio_fault_kind kind);

#endif
