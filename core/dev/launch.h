/* launch.h: the interface between core/dev and kernels: the arguments of an op when a device runs
 * it. Compiled as C and C++ (nvcc). An op is one function per kind of device:
 *
 *     int kern_cpu_rope(const struct dev_launch *where, const struct kern_rope_arguments *a);
 *
 * DEV_OP_LAUNCH(kern_cpu_rope, kern_rope_arguments), in the file of the table, defines the function
 * kern_cpu_rope_launch, which has the type that a row of the table needs. On the CPU an op runs on
 * the queue's thread and has done its work when it returns. On CUDA it runs on the submitting
 * thread, puts its kernels on `stream` and returns at once. */
#ifndef CORE_DEV_LAUNCH_H
#define CORE_DEV_LAUNCH_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct core_team;

struct dev_launch {
    struct core_team *team; /* borrowed; NULL: not on the CPU. The calling thread is member 0 */
    void *stream;           /* borrowed: the cudaStream_t; NULL: the CPU */
    void *scratch;          /* borrowed: device memory for the op while it runs; a queue's ops run
                             * one after another */
    size_t scratch_bytes;
    void *context; /* borrowed: passed to dev_ops_register (library handles, caches) */
};

/* Returns 0, or -errno with a message; an error ends the queue. `arguments` are a copy, aligned to
 * 16 bytes, valid during the call. */
typedef int dev_op_launch(const struct dev_launch *where, const void *arguments);

struct dev_op {
    unsigned op; /* below DEV_OP_MAX; numbered by kernels */
    const char *name;
    size_t arguments_bytes; /* size of the argument struct, at most DEV_ARGUMENT_BYTES */
    /* NULL: a launch returns -ENOTSUP */
    dev_op_launch *launch;
};

enum { DEV_OP_MAX = 128, DEV_ARGUMENT_BYTES = 256 };

#define DEV_OP_LAUNCH(function, type)                                                              \
    static int function##_launch(const struct dev_launch *where, const void *arguments)            \
    {                                                                                              \
        return function(where, (const struct type *)arguments);                                    \
    }

#ifdef __cplusplus
}
#endif

#endif
