/* version.h: the output of `tide --version`. */
#ifndef TOOLS_TIDE_VERSION_H
#define TOOLS_TIDE_VERSION_H

#include <stdio.h>

/* Prints version, commit, compiler, instruction sets, back ends and libraries. */
void cli_print_version(FILE *stream);

#endif
