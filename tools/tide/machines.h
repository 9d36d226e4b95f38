/* machines.h: finds the file of a machine by its name. The main thread. */
#ifndef TOOLS_TIDE_MACHINES_H
#define TOOLS_TIDE_MACHINES_H

#include <limits.h>
#include <stdint.h>

struct cli_machine {
    char path[PATH_MAX];
    int64_t devices; /* GPUs; 1 without any */
};

/* `name` is the path of a file, or the name of a machine whose file is installed with the command.
 * Returns 0, or -errno with a message: -ENOENT lists the installed names, -EINVAL says that the
 * file has no number of devices. */
int cli_machine_find(const char *name, struct cli_machine *out);

#endif
