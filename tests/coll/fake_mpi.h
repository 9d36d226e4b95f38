/* fake_mpi.h: an MPI library inside the test program, in a world of two. This process is rank 1;
 * rank 0 mirrors it: messages to rank 0 come back with their tag. Calls can fail, and messages can
 * be lost or changed. Needs --wrap=access, dlopen and dlsym. A test sets `fake_mpi` before it
 * starts the thread of peers.c, which calls the library. */
#ifndef TESTS_COLL_FAKE_MPI_H
#define TESTS_COLL_FAKE_MPI_H

#include <stdbool.h>
#include <stddef.h>

enum fake_call {
    FAKE_NONE,
    FAKE_OPEN,
    FAKE_SEND,
    FAKE_RECEIVE,
    FAKE_TEST, /* counts only calls that would report the end of a transfer */
    FAKE_CANCEL,
    FAKE_CLOSE,
    FAKE_CALLS
};

extern struct fake_mpi {
    enum fake_call fails; /* the `nth` of these calls, from 1, fails with "broken" */
    unsigned nth;
    bool missing;       /* no module is found */
    bool unloadable;    /* the module cannot be loaded */
    int version;        /* as the module reports; 0: the expected one */
    unsigned rank;      /* as the module reports */
    int lost_tag_min;   /* messages with this or a higher tag are lost; 0: none */
    size_t change_at;   /* the byte to change in longer messages; 0: none */
    int change_tag_min; /* messages with a lower tag stay unchanged */
    bool dozes;         /* progress sleeps a moment, so that other threads act */
    unsigned world;     /* as the module reports; 0: the right one, 2 */
} fake_mpi;

#endif
