/* machines.h: finds the file of a machine. The main thread. */
#ifndef TOOLS_TIDE_MACHINES_H
#define TOOLS_TIDE_MACHINES_H

#include <limits.h>
#include <stdint.h>

struct cli_machine {
    char path[PATH_MAX];
    int64_t devices; /* GPUs; 1 without any */
};

/* `name`: a path, or the name of an installed machine. */
int cli_machine_find(const char *name, struct cli_machine *out);

#endif
