/* backend.h: the interface that a back end of coll implements; only files of core/coll include it.
 * coll.c has already checked commands, and that a rank is below its world; `open` checks the other
 * options. */
#ifndef CORE_COLL_BACKEND_H
#define CORE_COLL_BACKEND_H

#include "core/coll/work.h"

struct coll_backend {
    const char *kind;
    int (*open)(const struct coll_options *options, struct coll *base, struct coll **out);
    void (*close)(struct coll *coll);
    /* Runs one command to its end, on the queue's thread. */
    int (*run)(struct coll *coll, const struct coll_work *work);
    /* Ends the run for all ranks with `code` and this thread's message. If an earlier failure has
     * already ended it, returns the code of that failure and leaves its message set for this
     * thread. */
    int (*abort)(struct coll *coll, int code);
    /* With `code` 0: returns the error that has ended all ranks, and sets its message, or returns 0
     * if there is none. With another `code`: ends all ranks with that code and this thread's
     * message, whether or not they are in a collective, and returns the error. NULL: no back end
     * runs on top of this one. */
    int (*end)(struct coll *coll, int code);
    bool devices; /* whether the back end can reach memory that the host cannot */
};

extern const struct coll_backend coll_backend_self;
extern const struct coll_backend coll_backend_local;
extern const struct coll_backend coll_backend_processes;
extern const struct coll_backend coll_backend_nccl;

#endif
