/* backend.h: the interface of a back end of coll; for core/coll only. coll.c has checked commands
 * and that a rank is below its world; `open` checks the other options. */
#ifndef CORE_COLL_BACKEND_H
#define CORE_COLL_BACKEND_H

#include "core/coll/work.h"

struct coll_backend {
    const char *kind;
    int (*open)(const struct coll_options *options, struct coll *base, struct coll **out);
    void (*close)(struct coll *coll);
    /* Runs one command, on the queue's thread. */
    int (*run)(struct coll *coll, const struct coll_work *work);
    /* Ends the run for all ranks with `code` and this thread's message. Returns the error that
     * ended the run, `code` or an earlier one, with its message. */
    int (*abort)(struct coll *coll, int code);
    /* `code` 0: returns the error that has ended all ranks, with its message, or 0. Else ends all
     * ranks with `code` and this thread's message, and returns the error that ended them. NULL: no
     * other back end is built on this one. */
    int (*end)(struct coll *coll, int code);
    bool devices; /* can reach memory that the host cannot */
};

extern const struct coll_backend coll_backend_self;
extern const struct coll_backend coll_backend_local;
extern const struct coll_backend coll_backend_processes;
extern const struct coll_backend coll_backend_nccl;

#endif
