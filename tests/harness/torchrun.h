/* torchrun.h: starts processes with the environment that torchrun's agent gives them. */
#ifndef TESTS_HARNESS_TORCHRUN_H
#define TESTS_HARNESS_TORCHRUN_H

#include <stddef.h>

/* Returns a port of 127.0.0.1 that was free a moment ago. */
unsigned test_port_free(void);

/* Starts `world` processes, at most 8, of a shell command. They meet at a free port of 127.0.0.1,
 * or of `address`. When one process has failed, the others get some seconds to end, as the agent
 * gives them, and are then killed. After two minutes all are killed. Writes the output of all to
 * `text`. Returns the exit status of the first process that failed (128 and more: a signal ended
 * it), or 0. */
int test_torchrun(const char *command, unsigned world, const char *address, char *text,
                  size_t bytes);

#endif
