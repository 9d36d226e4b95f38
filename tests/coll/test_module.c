/* test_module.c: the module of an MPI library over functions of MPI that this program emulates.
 * Needs MPICH's header. */
#include <errno.h>
#include <limits.h>
#include <mpi.h>
#include <stdio.h>

#include "core/coll/transport.h"
#include "tests/harness/test.h"

const struct coll_transport *coll_mpi_module(void);

enum { DUPLICATE = 5, RANK = 1, WORLD = 3, RECEIVED = 11, BROKEN = 99 };

/* State of the emulated library. */
static struct mpi {
    const char *fails; /* the function that fails */
    int initialised, finalised, level;
    int tests_left; /* calls of MPI_Test until a transfer is done */
    int cancelled;
    int inits, finalizes, aborted;
    MPI_Comm aborted_comm;
} mpi;

static int result_of(const char *function)
{
    return mpi.fails != NULL && strcmp(mpi.fails, function) == 0 ? BROKEN : MPI_SUCCESS;
}

int MPI_Error_string(int code, char *text, int *length)
{
    *length = snprintf(text, MPI_MAX_ERROR_STRING, "error %d", code);
    return MPI_SUCCESS;
}

int MPI_Initialized(int *flag)
{
    *flag = mpi.initialised;
    return MPI_SUCCESS;
}

int MPI_Finalized(int *flag)
{
    *flag = mpi.finalised;
    return MPI_SUCCESS;
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    (void)argc;
    (void)argv;
    *provided = required;
    mpi.inits++;
    return result_of("MPI_Init_thread");
}

int MPI_Query_thread(int *provided)
{
    *provided = mpi.level;
    return MPI_SUCCESS;
}

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *out)
{
    check_true(comm == MPI_COMM_WORLD);
    *out = result_of("MPI_Comm_dup") == MPI_SUCCESS ? DUPLICATE : MPI_COMM_NULL;
    return result_of("MPI_Comm_dup");
}

int MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler)
{
    check_true(comm == DUPLICATE && handler == MPI_ERRORS_RETURN);
    return MPI_SUCCESS;
}

int MPI_Comm_rank(MPI_Comm comm, int *rank)
{
    check_int(comm, ==, DUPLICATE);
    *rank = RANK;
    return MPI_SUCCESS;
}

int MPI_Comm_size(MPI_Comm comm, int *size)
{
    check_int(comm, ==, DUPLICATE);
    *size = WORLD;
    return MPI_SUCCESS;
}

int MPI_Get_library_version(char *text, int *length)
{
    *length = snprintf(text, MPI_MAX_LIBRARY_VERSION_STRING, "played\tMPI 1.0, built today\n");
    return MPI_SUCCESS;
}

int MPI_Comm_free(MPI_Comm *comm)
{
    check_int(*comm, ==, DUPLICATE);
    *comm = MPI_COMM_NULL;
    return result_of("MPI_Comm_free");
}

int MPI_Finalize(void)
{
    mpi.finalizes++;
    return result_of("MPI_Finalize");
}

int MPI_Abort(MPI_Comm comm, int code)
{
    mpi.aborted_comm = comm;
    mpi.aborted = code;
    return MPI_SUCCESS;
}

int MPI_Isend(const void *from, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *out)
{
    check_true(from != NULL && count == RECEIVED && type == MPI_BYTE && to == 2 && tag == 7);
    check_int(comm, ==, DUPLICATE);
    *out = 1;
    return result_of("MPI_Isend");
}

int MPI_Irecv(void *to, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
              MPI_Request *out)
{
    check_true(to != NULL && count == RECEIVED && type == MPI_BYTE && tag == 7);
    check_true(from == MPI_ANY_SOURCE || from == 2);
    check_int(comm, ==, DUPLICATE);
    *out = 2;
    return result_of("MPI_Irecv");
}

int MPI_Test(MPI_Request *request, int *done, MPI_Status *status)
{
    (void)request;
    (void)status;
    *done = mpi.tests_left-- <= 0;
    return result_of("MPI_Test");
}

int MPI_Get_count(const MPI_Status *status, MPI_Datatype type, int *count)
{
    (void)status;
    (void)type;
    *count = RECEIVED;
    return result_of("MPI_Get_count");
}

int MPI_Cancel(MPI_Request *request)
{
    (void)request;
    return result_of("MPI_Cancel");
}

int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    (void)request;
    (void)status;
    return result_of("MPI_Wait");
}

int MPI_Test_cancelled(const MPI_Status *status, int *flag)
{
    (void)status;
    *flag = mpi.cancelled;
    return MPI_SUCCESS;
}

/* ---- cases ---- */

static char why[COLL_TRANSPORT_WHY_BYTES];

static int open_module(void)
{
    struct coll_place place = {.rank = 0};
    const struct coll_transport_options options = {.slots = 4};
    why[0] = '\0';
    const int rc = coll_mpi_module()->open(&options, &place, why);
    if (rc == 0) {
        check_uint(place.rank, ==, RANK);
        check_uint(place.world, ==, WORLD);
        check_string(place.library, "played MPI 1.0");
    }
    return rc;
}

/* An application's MPI is neither initialised nor finalised. It is refused after its end or without
 * the right level of threads. */
static void of_an_application(void)
{
    mpi = (struct mpi){.initialised = 1, .level = MPI_THREAD_SERIALIZED};
    check_int(open_module(), ==, -EIO);
    check_contains(why, "has initialised MPI without MPI_THREAD_MULTIPLE");
    mpi.level = MPI_THREAD_MULTIPLE;
    check_int(open_module(), ==, 0);
    check_int(coll_mpi_module()->close(why), ==, 0);
    mpi.finalised = 1;
    check_int(open_module(), ==, -EIO);
    check_contains(why, "MPI was finalized earlier in this process");
    check_int(mpi.inits + mpi.finalizes, ==, 0);
}

static int send_one(size_t bytes)
{
    return coll_mpi_module()->send(0, 2, 7, why, bytes, why);
}

static int receive_one(int from, size_t bytes)
{
    return coll_mpi_module()->receive(1, from, 7, why, bytes, why);
}

static void transfers(void)
{
    const struct coll_transport *module = coll_mpi_module();
    size_t bytes = 0;
    mpi = (struct mpi){.tests_left = 1};
    check_int(module->version, ==, COLL_TRANSPORT_VERSION);
    check_int(open_module(), ==, 0);
    check_int(send_one(RECEIVED), ==, 0);
    check_int(receive_one(COLL_TRANSPORT_ANY, RECEIVED), ==, 0);
    check_int(module->progress(why), ==, 0);
    check_int(module->test(1, &bytes, why), ==, 0);
    check_int(module->test(1, &bytes, why), ==, 1);
    check_uint(bytes, ==, RECEIVED);
    for (mpi.cancelled = 0; mpi.cancelled <= 1; mpi.cancelled++) {
        check_int(receive_one(2, RECEIVED), ==, 0);
        check_int(module->cancel(1, why), ==, mpi.cancelled);
    }
    check_int(send_one((size_t)INT_MAX + 1), ==, -EINVAL);
    check_string(why, "a message of 2147483648 bytes is longer than MPI allows");
    check_int(receive_one(2, (size_t)INT_MAX + 1), ==, -EINVAL);
    module->wait_end(0, 0);
    module->abort(3);
    check_true(mpi.aborted == 3 && mpi.aborted_comm == DUPLICATE);
    check_int(module->close(why), ==, 0);
    check_true(mpi.inits == 1 && mpi.finalizes == 1);
    module->abort(4);
    check_true(mpi.aborted == 4 && mpi.aborted_comm == MPI_COMM_WORLD);
}

/* Opens the module, sends, receives, tests, cancels and closes; returns the first error. */
static int live(void)
{
    const struct coll_transport *module = coll_mpi_module();
    size_t bytes = 0;
    int rc = open_module();
    const bool opened = rc == 0;
    rc = rc != 0 ? rc : send_one(RECEIVED);
    rc = rc != 0 ? rc : receive_one(2, RECEIVED);
    if (rc == 0) {
        rc = module->test(1, &bytes, why);
        rc = rc == 1 ? 0 : rc;
    }
    if (rc == 0) {
        rc = module->cancel(1, why);
    }
    if (opened) {
        const char *const failed = mpi.fails;
        mpi.fails = rc == 0 ? failed : NULL;
        const int closed = module->close(why + (rc != 0 ? sizeof why / 2 : 0));
        rc = rc != 0 ? rc : closed;
        mpi.fails = failed;
    }
    return rc;
}

static void failing_calls(void)
{
    static const char *const names[] = {"MPI_Init_thread", "MPI_Comm_dup",  "MPI_Isend",
                                        "MPI_Irecv",       "MPI_Test",      "MPI_Cancel",
                                        "MPI_Wait",        "MPI_Comm_free", "MPI_Finalize"};
    mpi = (struct mpi){.fails = NULL};
    check_int(live(), ==, 0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char text[64];
        mpi.fails = names[i];
        check_int(live(), ==, -EIO);
        snprintf(text, sizeof text, "%s: error %d", names[i], BROKEN);
        check_string(why, text);
    }
    mpi.fails = "MPI_Get_count"; /* a send has no count of received bytes */
    check_int(live(), ==, 0);
}

TEST_MAIN({"of_an_application", of_an_application}, {"transfers", transfers},
          {"failing_calls", failing_calls})
