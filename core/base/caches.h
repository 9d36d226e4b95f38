/* caches.h: how much the last-level caches of a set of processors hold. */
#ifndef CORE_BASE_CACHES_H
#define CORE_BASE_CACHES_H

#include <stdint.h>

#include "core/base/cpus.h"

/* Bytes of the last-level caches (of the third level) that these processors use, all of them together; 0 if the
 * kernel does not say. `root` as in sysfile.h. */
uint64_t core_caches_bytes(const struct core_cpus *set, const char *root);

#endif
