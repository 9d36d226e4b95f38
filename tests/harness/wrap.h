/* wrap.h: wrappers of system calls, for programs linked with -Wl,--wrap=NAME. A file first defines
 * bool due(void), which sets errno and returns true if the call must fail; the wrapper then returns
 * `failed`. */
#ifndef TESTS_HARNESS_WRAP_H
#define TESTS_HARNESS_WRAP_H

#include <sys/types.h>

#define WRAP(type, name, failed, parameters, arguments)                                            \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters                                                                  \
    {                                                                                              \
        return due() ? (failed) : __real_##name arguments;                                         \
    }

/* Passes a mode even if the caller gives none; the system reads it only if the call may create a
 * file. */
#define WRAP_OPEN(name)                                                                            \
    WRAP(int, name, -1, (const char *path, int flags, mode_t mode), (path, flags, mode))
#define WRAP_OPENAT(name)                                                                          \
    WRAP(int, name, -1, (int folder, const char *path, int flags, mode_t mode),                    \
         (folder, path, flags, mode))

#endif
