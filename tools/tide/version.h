/* version.h: what `tide --version` prints. */
#ifndef TOOLS_TIDE_VERSION_H
#define TOOLS_TIDE_VERSION_H

#include <stdio.h>

/* Version, commit, compiler, and what was built in, one line each. */
void cli_print_version(FILE *stream);

#endif
