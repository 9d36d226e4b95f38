/* mount.h: file systems of a test's own, small enough to be full. They are made in a name space that
 * this program and its children alone see and that ends with the last of them, killed or not, so none
 * is ever left behind. A mounted path is in test_directory() and stays valid until the program ends.
 * On the thread that runs the case; threads that were started before see no mount. */
#ifndef TESTS_HARNESS_MOUNT_H
#define TESTS_HARNESS_MOUNT_H

#include <stdbool.h>

/* False where the system forbids a name space of one's own. */
bool test_mounts_begin(void);

/* A tmpfs with these options of mount(8) at `name`; NULL, with errno, where it cannot be made. */
const char *test_mount_memory(const char *name, const char *options);
/* An empty file system ("ext4", "ext2") of so many MiB in a file beside it; NULL where there are no loop
 * devices. */
const char *test_mount_image(const char *name, const char *type, unsigned size_mib);
/* An overlay at `name`, as of a container: below it the folder `lower` as it is, above it nothing. NULL, with errno,
 * where it cannot be made. */
const char *test_mount_overlay(const char *name, const char *lower);
/* Takes it away, also where something in it is still open. */
void test_mount_end(const char *path);

#endif
