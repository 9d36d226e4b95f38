/* fake_mpi.h: an MPI library inside the test program, in a world of two. This process is rank 1,
 * and rank 0 is its mirror: what this process sends to it comes back with the same tag, as if rank
 * 0 did the same. Calls can be made to fail, and messages can be lost or changed. The program is
 * linked with --wrap=access, dlopen and dlsym, and finds this library instead of a module. The
 * thread of peers.c calls it; a test sets `fake_mpi` before it starts that thread. */
#ifndef TESTS_COLL_FAKE_MPI_H
#define TESTS_COLL_FAKE_MPI_H

#include <stdbool.h>
#include <stddef.h>

enum fake_call {
    FAKE_NONE,
    FAKE_OPEN,
    FAKE_SEND,
    FAKE_RECEIVE,
    FAKE_TEST, /* only calls that would report a transfer as done are counted */
    FAKE_CANCEL,
    FAKE_CLOSE,
    FAKE_CALLS
};

extern struct fake_mpi {
    enum fake_call fails; /* the `nth` of these calls, counted from 1, fails with "broken" */
    unsigned nth;
    bool missing;       /* no module is found */
    bool unloadable;    /* the module is found and cannot be loaded */
    int version;        /* the version that the module reports; 0: the expected one */
    unsigned rank;      /* the rank that the module reports; messages come back for rank 1 */
    int lost_tag_min;   /* messages with this tag or a higher one are lost; 0: none */
    size_t change_at;   /* number of the byte that is changed in longer messages; 0: none */
    int change_tag_min; /* messages with a lower tag are not changed */
    bool dozes;         /* progress sleeps a moment, so that other threads act during a turn */
    unsigned world;     /* the number of ranks that the module reports; 0: the right one, 2 */
} fake_mpi;

#endif
