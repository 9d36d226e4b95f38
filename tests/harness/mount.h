/* mount.h: mounts small file systems in a namespace of this program and its children. The namespace
 * ends with the last of these processes, so no mount is left. Mounted paths are in test_directory()
 * and valid until the program ends. Call these functions on the thread of the case; threads started
 * earlier see no mount. */
#ifndef TESTS_HARNESS_MOUNT_H
#define TESTS_HARNESS_MOUNT_H

#include <stdbool.h>

/* Creates the namespace; false: the system forbids that. */
bool test_mounts_begin(void);

/* Mounts a tmpfs with these options of mount(8). Returns its path, or NULL. */
const char *test_mount_memory(const char *name, const char *options);
/* Mounts an empty file system ("ext4", "ext2") from a file in test_directory(). Returns its path,
 * or NULL if mounting fails, for example without root or loop devices. */
const char *test_mount_image(const char *name, const char *type, unsigned size_mib);
/* Mounts an overlay: the folder `lower` below an empty upper layer. Returns its path, or NULL. */
const char *test_mount_overlay(const char *name, const char *lower);
/* Unmounts a path, even if files in it are still open. */
void test_mount_end(const char *path);

#endif
