/* machines.h: finds the file of a machine by its name. The main thread. */
#ifndef TOOLS_TIDE_MACHINES_H
#define TOOLS_TIDE_MACHINES_H

#include <limits.h>
#include <stdint.h>

struct cli_machine {
    char path[PATH_MAX];
    int64_t devices; /* GPUs; 1 without any */
};

/* `name` is a file, or the name of one that is installed with the command. Returns -ENOENT with the
 * installed names; -EINVAL if the file does not say how many devices there are. */
int cli_machine_find(const char *name, struct cli_machine *out);

#endif
