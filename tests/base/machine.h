/* machine.h: writes the /proc and /sys of another machine into a folder of the test. */
#ifndef TESTS_BASE_MACHINE_H
#define TESTS_BASE_MACHINE_H

/* Creates an empty root below test_directory() and returns it; code under test reads /proc and /sys
 * below it. */
const char *machine_root(const char *name);
/* Writes `text` to `path`, which starts with "/", below the root; creates its folders. */
void machine_file(const char *root, const char *path, const char *text);
/* Creates a symbolic link below the root. */
void machine_link(const char *root, const char *path, const char *target);

#endif
