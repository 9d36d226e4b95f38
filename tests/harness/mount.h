/* mount.h: mounts small file systems for a test, for example to fill one. They are in a mount
 * namespace that only this program and its children see. The namespace ends with the last of these
 * processes, even if it is killed, so no mount is left behind. A mounted path is in
 * test_directory() and stays valid until the program ends. Call these functions on the thread that
 * runs the case; threads that were started earlier see no mount. */
#ifndef TESTS_HARNESS_MOUNT_H
#define TESTS_HARNESS_MOUNT_H

#include <stdbool.h>

/* Creates the namespace; returns false if the system forbids that. */
bool test_mounts_begin(void);

/* Mounts a tmpfs with these options of mount(8) at `name`. Returns its path, or NULL with errno. */
const char *test_mount_memory(const char *name, const char *options);
/* Mounts an empty file system ("ext4", "ext2") of this size at `name`, from a file beside it.
 * Returns its path, or NULL if mounting fails: it needs root and loop devices. */
const char *test_mount_image(const char *name, const char *type, unsigned size_mib);
/* Mounts an overlay at `name`, as containers do: the folder `lower` below an empty upper layer.
 * Returns its path, or NULL with errno. */
const char *test_mount_overlay(const char *name, const char *lower);
/* Unmounts a path, even if files in it are still open. */
void test_mount_end(const char *path);

#endif
