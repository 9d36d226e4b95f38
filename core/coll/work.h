/* work.h: a rank and a command as back ends see them: the parts of an array, the sum of a part, and
 * the messages of a failed collective, which are the same in all back ends. Only files of core/coll
 * include it. Any thread. */
#ifndef CORE_COLL_WORK_H
#define CORE_COLL_WORK_H

#include <stdatomic.h>

#include "core/base/queue.h"
#include "core/coll/coll.h"

struct coll_backend;

/* A rank. Back ends put it first in their structs. */
struct coll {
    const struct coll_backend *backend;
    unsigned rank;
    unsigned world;
    bool reachable; /* whether this back end may read and write the arrays */
    int64_t limit_ns;
    struct core_queue *jobs; /* owned */
    /* commands that have succeeded; this and the next two are relaxed counters, written by the
     * queue's thread */
    _Atomic uint64_t commands;
    _Atomic uint64_t received_bytes[COLL_OPS]; /* from other ranks */
    /* the part of received_bytes from ranks on other hosts */
    _Atomic uint64_t far_bytes[COLL_OPS];
};

/* A checked command as the queue copies it. root, borders and prepare are 0 or NULL for ops that do
 * not use them. */
struct coll_work {
    enum coll_op op;
    enum coll_type type;
    unsigned root;
    const void *from;
    void *to;
    uint64_t count;
    unsigned within;         /* GATHER: read through coll_takes_part and coll_part */
    const uint64_t *borders; /* NULL: the default borders; read through coll_part */
    enum coll_type sum_type; /* COLL_INT4 */
    uint64_t sum_count;
    void (*prepare)(void *context); /* coll.c calls it */
    void *context;
    /* whether ranks only meet and compare their commands, because another back end moves the data
     * (coll_nccl.c) */
    bool meets;
};

/* Ranks for which a collective waits. Messages name the first COLL_MISSING_MAX of them: "0, 1, 2,
 * 3". */
enum { COLL_MISSING_MAX = 4 };
struct coll_missing {
    unsigned count;
    char list[64];
};
void coll_missing_add(struct coll_missing *missing, unsigned rank);

/* Set the message of a failed collective, which is the same in all back ends, and return the
 * error. */
int coll_fail_differs(uint64_t number, const struct coll_work *first, unsigned rank,
                      const struct coll_work *other);
int coll_fail_left(uint64_t number, const struct coll_work *work, unsigned rank);
int coll_fail_missing(uint64_t number, const struct coll_work *work,
                      const struct coll_missing *missing, int64_t waited_ns);

/* A range of elements to sum, the same range in the array of each rank. */
struct coll_terms {
    const void *const *from; /* [ranks] */
    unsigned ranks;
    uint64_t first; /* index of the first element in each of `from` */
    uint64_t count;
    uint64_t before; /* number of elements of this rank's part before the range */
};
/* Sums the elements, and writes the sums to their place in this rank's part, which begins at `to`.
 * With work->within, sums over all ranks by groups. */
void coll_work_sum(const struct coll_work *work, const struct coll_terms *terms, void *to);

uint64_t coll_work_bytes(const struct coll_work *work, uint64_t count);
/* Copies bytes unless they are at `to` already. */
void coll_copy(void *to, const void *from, uint64_t bytes);
/* Returns the i-th other rank, counted from this one, so that not all ranks send to the same rank
 * first. */
unsigned coll_other(const struct coll *coll, unsigned i);
/* Returns whether rank r exchanges data with this one. */
bool coll_takes_part(const struct coll *coll, const struct coll_work *work, unsigned r);
/* Returns the number of ranks that share an array. */
unsigned coll_sharers(const struct coll *coll, const struct coll_work *work);
/* Returns the size of the part of an array that rank r owns, and sets *at to its offset; both in
 * bytes. */
uint64_t coll_part_bytes(const struct coll *coll, const struct coll_work *work, unsigned r,
                         uint64_t *at);
/* Sets [*begin, *end) to the elements of an array that rank r owns. */
void coll_part(const struct coll *coll, const struct coll_work *work, unsigned r, uint64_t *begin,
               uint64_t *end);

#endif
