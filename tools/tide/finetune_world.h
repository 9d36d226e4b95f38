/* finetune_world.h: `tide finetune` in several processes: the first one does the command's work,
 * and the others serve it. Main thread. */
#ifndef TOOLS_TIDE_FINETUNE_WORLD_H
#define TOOLS_TIDE_FINETUNE_WORLD_H

#include <tide/world.h>

#include "tools/tide/finetune_flags.h"

/* Connects the processes that a launcher started. Returns -1 if this process is the first one, or
 * alone (*out is NULL). Otherwise returns the exit code: there was an error, or this process has
 * served until the end of the run. */
int finetune_world_open(const struct cli_command *command, int argc, char **argv,
                        struct tide_world **out);

/* Sets flags->ranks to the number of processes. Returns 0, or -EINVAL with a message: another
 * number was given, or --rendezvous without torchrun, or processes have different arguments. */
int finetune_world_count(const struct tide_world *world, struct finetune_flags *flags);

/* Prints one line about the world. */
void finetune_world_print(const struct tide_world *world);

#endif
