/* machine.h: writes the /proc and /sys of another machine into a folder of the test. */
#ifndef TESTS_BASE_MACHINE_H
#define TESTS_BASE_MACHINE_H

/* Creates and returns an empty root below test_directory(), for code that reads /proc and /sys
 * there. */
const char *machine_root(const char *name);
/* Writes a file and its folders below the root; `path` starts with "/". */
void machine_file(const char *root, const char *path, const char *text);
void machine_link(const char *root, const char *path, const char *target);

#endif
