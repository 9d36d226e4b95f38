/* caches.h: the size of the last-level caches of a set of processors. */
#ifndef CORE_BASE_CACHES_H
#define CORE_BASE_CACHES_H

#include <stdint.h>

#include "core/base/cpus.h"

/* Returns the total bytes of the last-level (third-level) caches of these processors; 0: unknown.
 * `root` is as in sysfile.h. */
uint64_t core_caches_bytes(const struct core_cpus *set, const char *root);

#endif
