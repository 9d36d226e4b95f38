/* world.h: ranks in several processes, which a launcher (mpirun, srun, torchrun) has started together. C17 and C++11; the
 * rules of tide.h apply.
 *
 * The first process creates an engine with the option `world` and uses it as if all ranks were its own. The
 * others call tide_world_follow, which does what that engine needs of them: they need no options, read no data
 * and print nothing. All processes are of the same build, find the model, the checkpoints and the stores at the
 * same paths, and have one rank each. */
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
    uint64_t silence_seconds; /* a process that does not respond for so long ends the run; 0: 60 */
    /* Called at least ten times a second on a thread of the library. If it returns another
     * value than 0 in at least one process, the run is asked to stop, and tide_world_stopping
     * reports that in the first process. NULL: never */
    int (*stop)(void *user);
    void *user;
    /* 1: engines of this world compute on cards, one for each rank. torchrun's processes need it,
     * because torchrun does not connect them: cards are connected by NCCL, all else goes over TCP */
    uint64_t cards;
    /* torchrun: where its processes meet, "HOST:PORT", an address of the first one's machine. The
     * same in all processes. NULL: MASTER_ADDR and the port after MASTER_PORT */
    const char *rendezvous;
};

/* Connects the processes that were started together, over the MPI library that their launcher
 * belongs to (torchrun: over TCP), and waits until all are there. *out is NULL if this process was
 * started alone. Returns 0; -EINVAL if variables of the environment contradict each other or name
 * no rendezvous; -ENOTSUP if torchrun started the processes and they have no cards or no NCCL, or
 * if tide's module for that MPI library is missing; -EPROTO if the processes differ; -ETIMEDOUT if
 * processes of torchrun do not meet within twice silence_seconds; or the error of MPI or a
 * socket. */
TIDE_API int tide_world_open(const struct tide_world_options *options, struct tide_world **out);

struct tide_world_info {
    size_t struct_bytes;
    uint32_t rank;  /* of this process, from 0 */
    uint32_t ranks; /* of all processes */
    uint32_t hosts;
    uint32_t ranks_per_host; /* the most of any host */
    uint64_t first_on_host;  /* 1: no rank of this process's host is before this one */
    const char *launcher;    /* "mpirun (Open MPI)". These two live as long as the world */
    const char *library;     /* "Open MPI v4.1.4" */
};

/* Describes a world. Returns 0, or -EINVAL for a wrong struct_bytes. */
TIDE_API int tide_world_describe(const struct tide_world *world, struct tide_world_info *out);

/* Returns the rank of this process, which its launcher's environment variables name; 0 if it was
 * started alone. Needs no open world. */
TIDE_API unsigned tide_world_rank(void);

/* Serves the engines of the first process until that process closes the world; *code is the code
 * that it passed to tide_world_close. Messages of the log go to `context`. Every process but the
 * first calls it once. Returns 0, or the error that ended the world. */
TIDE_API int tide_world_follow(struct tide_world *world, struct tide_context *context, int *code);

/* Returns 1 if any process was asked to stop, else 0. Only for the first process. */
TIDE_API int tide_world_stopping(const struct tide_world *world);

/* Closes the world after all engines that use it were destroyed; NULL is allowed. The other
 * processes receive `code` from tide_world_follow. If an error ended the world (a process died,
 * does not respond, or closes it without having called tide_world_follow), this call does not
 * return: it ends all processes with the exit code `code`, or 1 if that is 0. */
TIDE_API void tide_world_close(struct tide_world *world, int code);

#ifdef __cplusplus
}
#endif

#endif
