/* finetune_world.h: `tide finetune` in several processes, which serve the first one. Main
 * thread. */
#ifndef TOOLS_TIDE_FINETUNE_WORLD_H
#define TOOLS_TIDE_FINETUNE_WORLD_H

#include <tide/world.h>

#include "tools/tide/finetune_flags.h"

/* Connects the processes of a launcher. Returns -1 to continue as the first one or, with *out
 * NULL, as the only one; else the exit code, after this process has served or could not connect. */
int finetune_world_open(const struct cli_command *command, int argc, char **argv,
                        struct tide_world **out);

/* Ends what finetune_world_open() began; `world` may be NULL. */
void finetune_world_close(struct tide_world *world, int code);

/* Sets flags->ranks to the number of processes, unless `world` is NULL. Refuses another given
 * number, --rendezvous without torchrun, and processes with different arguments. */
int finetune_world_count(const struct tide_world *world, struct finetune_flags *flags);

void finetune_world_print(const struct tide_world *world);

#endif
