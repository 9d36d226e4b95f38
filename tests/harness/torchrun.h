/* torchrun.h: starts processes with the environment of torchrun's agent. */
#ifndef TESTS_HARNESS_TORCHRUN_H
#define TESTS_HARNESS_TORCHRUN_H

#include <stddef.h>

/* Returns a port of 127.0.0.1 that was free a moment ago. */
unsigned test_port_free(void);

/* Runs a shell command in `world` processes, at most 8, which meet at a free port of 127.0.0.1 or
 * of `address`. Kills the remaining processes some time after a failure, or if they run too long.
 * Writes the output, as far as it fits, to `text`. Returns the exit status of the first failed
 * process (128 + the signal that ended the process), or 0. */
int test_torchrun(const char *command, unsigned world, const char *address, char *text,
                  size_t bytes);

#endif
