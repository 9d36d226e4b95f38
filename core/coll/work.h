/* work.h: a rank and a command as back ends see them: parts of arrays, their sums, and messages of
 * failures. For core/coll. Any thread. */
#ifndef CORE_COLL_WORK_H
#define CORE_COLL_WORK_H

#include <stdatomic.h>

#include "core/base/queue.h"
#include "core/coll/coll.h"

struct coll_backend;

/* A rank; the first member of back ends' structs. */
struct coll {
    const struct coll_backend *backend;
    unsigned rank;
    unsigned world;
    bool reachable; /* the back end may use the arrays' memory */
    int64_t limit_ns;
    struct core_queue *jobs; /* owned */
    /* succeeded; this and the next two are relaxed, written by the queue's thread */
    _Atomic uint64_t commands;
    _Atomic uint64_t received_bytes[COLL_OPS]; /* from other ranks */
    /* the part of received_bytes from ranks on other hosts */
    _Atomic uint64_t far_bytes[COLL_OPS];
};

/* A checked command. root, borders and prepare are 0 or NULL where they do not apply. */
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
    /* ranks only compare commands; another back end moves the data (coll_nccl.c) */
    bool meets;
};

/* Ranks that a collective waits for. Messages name at most COLL_MISSING_MAX of them: "0, 1, 2,
 * 3". */
enum { COLL_MISSING_MAX = 4 };
struct coll_missing {
    unsigned count;
    char list[64];
};
void coll_missing_add(struct coll_missing *missing, unsigned rank);

/* Set the message of a failed collective and return the error. */
int coll_fail_differs(uint64_t number, const struct coll_work *first, unsigned rank,
                      const struct coll_work *other);
int coll_fail_left(uint64_t number, const struct coll_work *work, unsigned rank);
int coll_fail_missing(uint64_t number, const struct coll_work *work,
                      const struct coll_missing *missing, int64_t waited_ns);

/* A range of elements in the ranks' arrays. */
struct coll_terms {
    const void *const *from; /* [ranks] */
    unsigned ranks;
    uint64_t first; /* index of the first element in each of `from` */
    uint64_t count;
    uint64_t before; /* elements of this rank's part before the range */
};
/* Writes the sums to their place in this rank's part at `to`; with work->within, sums all ranks by
 * groups. */
void coll_work_sum(const struct coll_work *work, const struct coll_terms *terms, void *to);

uint64_t coll_work_bytes(const struct coll_work *work, uint64_t count);
/* Does nothing if the bytes are at `to`. */
void coll_copy(void *to, const void *from, uint64_t bytes);
/* Returns the i-th other rank, from this one on, so that ranks do not all send to one first. */
unsigned coll_other(const struct coll *coll, unsigned i);
/* Returns whether rank r exchanges data with this one. */
bool coll_takes_part(const struct coll *coll, const struct coll_work *work, unsigned r);
unsigned coll_sharers(const struct coll *coll, const struct coll_work *work);
/* Returns the size of rank r's part, and sets *at to its offset, in bytes. */
uint64_t coll_part_bytes(const struct coll *coll, const struct coll_work *work, unsigned r,
                         uint64_t *at);
/* Sets [*begin, *end) to rank r's elements. */
void coll_part(const struct coll *coll, const struct coll_work *work, unsigned r, uint64_t *begin,
               uint64_t *end);

#endif
