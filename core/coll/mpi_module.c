/* mpi_module.c: the wrapper of MPI, a module for each MPI library, without other code of tide. One
 * thread at a time calls the module (peers.c). */
#include <errno.h>
#include <limits.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/coll/transport.h"

/* MPI has one state per process. */
static MPI_Comm comm = MPI_COMM_NULL;
static MPI_Request *requests; /* owned, [slots] */
static bool initialised;      /* whether this module initialised MPI */

static int check(int code, const char *call, char *why)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (code == MPI_SUCCESS) {
        return 0;
    }
    MPI_Error_string(code, text, &length);
    snprintf(why, COLL_TRANSPORT_WHY_BYTES, "%s: %.200s", call, text);
    return -EIO;
}

/* If this thread initialises MPI, no other thread calls MPI until this one has ended, so SERIALIZED
 * suffices. If the application did, on another thread, MULTIPLE is needed. */
static int initialise(char *why)
{
    int there = 0;
    int ended = 0;
    int level = 0;
    MPI_Initialized(&there);
    MPI_Finalized(&ended);
    if (ended) {
        snprintf(why, COLL_TRANSPORT_WHY_BYTES,
                 "MPI was finalized earlier in this process, by the application or with a world "
                 "that tide closed, and cannot be started again; an application that needs several "
                 "worlds initialises MPI itself, with MPI_THREAD_MULTIPLE");
        return -EIO;
    }
    if (!there) {
        int rc = check(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level),
                       "MPI_Init_thread", why);
        initialised = rc == 0;
        return rc;
    }
    MPI_Query_thread(&level);
    if (level < MPI_THREAD_MULTIPLE) {
        snprintf(why, COLL_TRANSPORT_WHY_BYTES,
                 "the application has initialised MPI without MPI_THREAD_MULTIPLE, so no thread of "
                 "tide may call it");
        return -EIO;
    }
    return 0;
}

static int module_open(const struct coll_transport_options *options, struct coll_place *out,
                       char *why)
{
    struct coll_place place = {.rank = 0};
    char library[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int rank = 0;
    int world = 0;
    int length = 0;
    int rc = initialise(why);
    if (rc != 0) {
        return rc;
    }
    requests = calloc(options->slots, sizeof *requests);
    if (requests == NULL) {
        snprintf(why, COLL_TRANSPORT_WHY_BYTES, "no memory for %u messages", options->slots);
        return -ENOMEM;
    }
    rc = check(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup", why);
    if (rc != 0) {
        free(requests);
        requests = NULL;
        return rc;
    }
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &world);
    MPI_Get_library_version(library, &length);
    place.rank = (unsigned)rank;
    place.world = (unsigned)world;
    snprintf(place.library, sizeof place.library, "%.*s", (int)strcspn(library, ",\n"), library);
    for (char *at = place.library; *at != '\0'; at++) {
        *at = *at == '\t' ? ' ' : *at;
    }
    *out = place;
    return 0;
}

static int module_close(char *why)
{
    int rc = comm != MPI_COMM_NULL ? check(MPI_Comm_free(&comm), "MPI_Comm_free", why) : 0;
    free(requests);
    requests = NULL;
    if (initialised && rc == 0) {
        rc = check(MPI_Finalize(), "MPI_Finalize", why);
    }
    return rc;
}

static void module_abort(int code)
{
    MPI_Abort(comm != MPI_COMM_NULL ? comm : MPI_COMM_WORLD, code);
}

static void module_wait_end(unsigned rank, int64_t limit_ns)
{
    (void)rank;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    const int64_t end_ns = until.tv_sec * INT64_C(1000000000) + until.tv_nsec + limit_ns;
    until = (struct timespec){.tv_sec = end_ns / 1000000000, .tv_nsec = end_ns % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {
    }
}

static int module_send(unsigned slot, unsigned to, int tag, const void *from, size_t bytes,
                       char *why)
{
    if (bytes > INT_MAX) {
        snprintf(why, COLL_TRANSPORT_WHY_BYTES, "a message of %zu bytes is longer than MPI allows",
                 bytes);
        return -EINVAL;
    }
    return check(MPI_Isend(from, (int)bytes, MPI_BYTE, (int)to, tag, comm, &requests[slot]),
                 "MPI_Isend", why);
}

static int module_receive(unsigned slot, int from, int tag, void *to, size_t bytes, char *why)
{
    if (bytes > INT_MAX) {
        snprintf(why, COLL_TRANSPORT_WHY_BYTES, "a message of %zu bytes is longer than MPI allows",
                 bytes);
        return -EINVAL;
    }
    return check(MPI_Irecv(to, (int)bytes, MPI_BYTE,
                           from == COLL_TRANSPORT_ANY ? MPI_ANY_SOURCE : from, tag, comm,
                           &requests[slot]),
                 "MPI_Irecv", why);
}

/* MPI_Test moves the data. */
static int module_progress(char *why)
{
    (void)why;
    return 0;
}

static int module_test(unsigned slot, size_t *bytes, char *why)
{
    MPI_Status status;
    int done = 0;
    int count = 0;
    int rc = check(MPI_Test(&requests[slot], &done, &status), "MPI_Test", why);
    if (rc != 0 || !done) {
        return rc;
    }
    if (MPI_Get_count(&status, MPI_BYTE, &count) == MPI_SUCCESS && count > 0) {
        *bytes = (size_t)count;
    }
    return 1;
}

static int module_cancel(unsigned slot, char *why)
{
    MPI_Status status;
    int cancelled = 0;
    int rc = check(MPI_Cancel(&requests[slot]), "MPI_Cancel", why);
    if (rc == 0) {
        rc = check(MPI_Wait(&requests[slot], &status), "MPI_Wait", why);
    }
    if (rc == 0) {
        MPI_Test_cancelled(&status, &cancelled);
    }
    return rc != 0 ? rc : cancelled;
}

__attribute__((visibility("default"))) const struct coll_transport *coll_mpi_module(void);
const struct coll_transport *coll_mpi_module(void)
{
    static const struct coll_transport functions = {
        .version = COLL_TRANSPORT_VERSION,
        .open = module_open,
        .close = module_close,
        .abort = module_abort,
        .wait_end = module_wait_end,
        .send = module_send,
        .receive = module_receive,
        .progress = module_progress,
        .test = module_test,
        .cancel = module_cancel,
    };
    return &functions;
}
