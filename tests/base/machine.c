/* machine.c: see machine.h. */
#include "tests/base/machine.h"

#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/harness/test.h"

const char *machine_root(const char *name)
{
    enum { ROOTS_MAX = 32, ROOT_BYTES = 320 };
    static char roots[ROOTS_MAX][ROOT_BYTES];
    static int count;
    check_int(count, <, ROOTS_MAX);
    char *root = roots[count++];
    snprintf(root, ROOT_BYTES, "%s/%s", test_directory(), name);
    check_int(mkdir(root, 0777), ==, 0);
    return root;
}

static void make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0777);
        *slash = '/';
    }
}

void machine_file(const char *root, const char *path, const char *text)
{
    char whole[PATH_MAX];
    snprintf(whole, sizeof whole, "%s%s", root, path);
    make_folders(whole);
    FILE *file = fopen(whole, "we");
    check_true(file != NULL);
    fputs(text, file);
    check_int(fclose(file), ==, 0);
}

void machine_link(const char *root, const char *path, const char *target)
{
    char whole[PATH_MAX];
    snprintf(whole, sizeof whole, "%s%s", root, path);
    make_folders(whole);
    check_int(symlink(target, whole), ==, 0);
}
