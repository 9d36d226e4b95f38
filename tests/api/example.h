/* example.h: runs a program of docs as a user does. */
#ifndef TESTS_API_EXAMPLE_H
#define TESTS_API_EXAMPLE_H

#include <stddef.h>

/* Runs tests/api/NAME of the build folder with the shell words `words`, through `tool` unless that
 * is "". Writes the beginning of its output to `text` and returns the exit code, -1 if there is
 * none. */
int example_run(const char *name, const char *tool, const char *words, char *text, size_t bytes);

#endif
