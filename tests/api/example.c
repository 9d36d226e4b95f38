/* example.c: see example.h. */
#include "tests/api/example.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "tests/harness/test.h"

int example_run(const char *name, const char *tool, const char *words, char *text, size_t bytes)
{
    char line[2400];
    const char *root = getenv("TIDE_BUILD_ROOT");
    if (root == NULL) {
        test_skip("TIDE_BUILD_ROOT is not set: run it through meson test");
    }
    snprintf(line, sizeof line, "%s '%s/tests/api/%s' %s 2>&1", tool, root, name, words);
    FILE *pipe = popen(line, "r");
    check_true(pipe != NULL);
    text[fread(text, 1, bytes - 1, pipe)] = '\0';
    const int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
