/* world.h: ranks in several processes that a launcher (mpirun, srun, torchrun) has started
 * together. The rules of tide.h apply.
 * The first process creates an engine with the option `world` and uses it as if all ranks were its
 * own. The other processes call tide_world_follow, which runs their ranks; they need neither the
 * engine's options nor the training data. All processes have one rank each, are of the same build,
 * and find the model, the checkpoints and the stores at the same paths. */
#ifndef TIDE_WORLD_H
#define TIDE_WORLD_H

#include <stddef.h>
#include <stdint.h>
#include <tide/tide.h>

#ifdef __cplusplus
extern "C" {
#endif

struct tide_world;

struct tide_world_options {
    size_t struct_bytes;
    /* seconds without a response from a process that end the run, up to 1e9; 0: 60 */
    uint64_t silence_seconds;
    /* Called about ten times a second or more on a thread of the library. A result other than 0 in
     * any process requests a stop, which tide_world_stopping reports in the first process; while
     * processes of torchrun meet, it ends tide_world_open with -ECANCELED. NULL: never called */
    int (*stop)(void *user);
    void *user;
    /* 1: engines of this world compute on GPUs, one per rank. Required with torchrun, which does
     * not connect its processes: NCCL connects their GPUs, and other data goes over TCP */
    uint64_t cards;
    /* torchrun: where its processes meet, "HOST:PORT", on the first process's machine; the same in
     * all processes. NULL: MASTER_ADDR and the port after MASTER_PORT */
    const char *rendezvous;
    /* This process's command line, less than 1 GiB; the first process compares the others' with its
     * own (tide_world_info.difference). NULL: none */
    const char *const *arguments;
    uint64_t argument_count;
    /* receives warnings about connections, on a thread of the library; must outlive the world.
     * NULL: silent */
    struct tide_context *context;
};

/* Connects the processes that were started together: by the MPI library of their launcher or, with
 * torchrun, over TCP. Waits until all are connected. *out is NULL without a launcher, and may be
 * NULL with a single process. `options` may be NULL.  An application that uses MPI itself
 * initialises it with MPI_THREAD_MULTIPLE before this call, and finalizes it; the library then uses
 * a duplicate of MPI_COMM_WORLD on its own thread. Otherwise the library initialises MPI, and
 * tide_world_close finalizes it. MPI cannot be initialised again, so this process then cannot open
 * another world.  -ENOTSUP: torchrun started the processes and `cards` is 0 or NCCL is missing, or
 * tide's module for that MPI library is missing. Returns 0 or an error. -EPROTO: the processes do
 * not match, for example in their builds. -ETIMEDOUT: processes of torchrun do not meet within
 * twice silence_seconds. */
TIDE_API int tide_world_open(const struct tide_world_options *options, struct tide_world **out);

struct tide_world_info {
    size_t struct_bytes;
    uint32_t rank;  /* rank of this process, from 0 */
    uint32_t ranks; /* number of processes */
    uint32_t hosts;
    uint32_t ranks_per_host; /* largest number of ranks on one host */
    uint64_t first_on_host;  /* 1: the lowest rank of its host */
    /* "mpirun (Open MPI)"; valid with `library` as long as the world */
    const char *launcher;
    const char *library; /* "Open MPI v4.1.4"; "TCP" with torchrun */
    /* in the first process: a sentence for an error message about the first argument that differs
     * in another process; NULL: none. Valid as long as the world */
    const char *difference;
};

/* Describes a world. Returns 0 or an error. */
TIDE_API int tide_world_describe(const struct tide_world *world, struct tide_world_info *out);

/* Returns this process's rank from its launcher's variables; 0 if it was started alone. Needs no
 * open world. */
TIDE_API unsigned tide_world_rank(void);

/* Serves the first process's engines until that process closes the world, and sets *code to the
 * `code` of its tide_world_close. Log messages go to `context`. Every process except the first
 * calls this once. Returns the error that ended the world, or 0; if the first process reports the
 * error, the result is 0 and *code is 1. */
TIDE_API int tide_world_follow(struct tide_world *world, struct tide_context *context, int *code);

/* Returns 1 if `stop` has requested a stop in any process, else 0 (also for NULL). Only for the
 * first process. */
TIDE_API int tide_world_stopping(const struct tide_world *world);

/* Closes the world, after the engines that use it were destroyed; accepts NULL. The other processes
 * receive `code` from tide_world_follow. If an error has ended the world (a process died, does not
 * respond, or closed the world without calling tide_world_follow), this call does not return: it
 * ends this process, and over MPI all processes, with the exit code `code`, or 1 if `code` is not
 * positive. */
TIDE_API void tide_world_close(struct tide_world *world, int code);

#ifdef __cplusplus
}
#endif

#endif
