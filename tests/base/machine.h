/* machine.h: writes the files of a machine that is not here under a folder of the test. */
#ifndef TESTS_BASE_MACHINE_H
#define TESTS_BASE_MACHINE_H

/* A fresh empty root below test_directory(), to be put in front of /proc and /sys. */
const char *machine_root(const char *name);
/* Writes `text` to `path`, which starts with "/", below the root; folders are made. */
void machine_file(const char *root, const char *path, const char *text);
/* A symbolic link below the root. */
void machine_link(const char *root, const char *path, const char *target);

#endif
