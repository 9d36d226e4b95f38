/* backend.h: what a back end of coll fills in; read by the files of core/coll only.
 * The wrappers in coll.c have checked everything that a function here is given. */
#ifndef CORE_COLL_BACKEND_H
#define CORE_COLL_BACKEND_H

#include <stdatomic.h>

#include "core/base/queue.h"
#include "core/coll/coll.h"

/* A command as it travels: the edges are the queue's matter. */
struct coll_work {
    enum coll_op op;
    enum coll_type type;
    unsigned root;
    const void *from;
    void *to;
    uint64_t count;
    const uint64_t *borders; /* NULL: the default; read through coll_part */
};

struct coll_backend {
    const char *kind;
    int (*open)(const struct coll_options *options, struct coll *base, struct coll **out);
    void (*close)(struct coll *coll);
    /* Does one command to its end, on the queue's thread. */
    int (*run)(struct coll *coll, const struct coll_work *work);
    /* Makes everybody leave with `code` and this thread's sentence; returns the code, and leaves
     * the sentence, that stand: those of the first failure. */
    int (*abort)(struct coll *coll, int code);
};

extern const struct coll_backend coll_backend_self;
extern const struct coll_backend coll_backend_local;

struct coll {
    const struct coll_backend *backend;
    unsigned rank;
    unsigned world;
    bool host_visible; /* the arrays may be read and written by the processor */
    int64_t limit_ns;
    struct core_queue *jobs;   /* owned */
    _Atomic uint64_t commands; /* relaxed: counters; written by the queue's thread */
    _Atomic uint64_t received_bytes[COLL_OPS];
};

/* The elements [*begin, *end) that are rank r's. */
void coll_part(const struct coll *coll, const struct coll_work *work, unsigned r, uint64_t *begin,
               uint64_t *end);

#endif
