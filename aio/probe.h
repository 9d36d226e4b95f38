/* probe.h: which ways of doing I/O work on this machine, and why the others do not. No state; any
 * thread. */
#ifndef AIO_PROBE_H
#define AIO_PROBE_H

#include <stdbool.h>
#include <stddef.h>

#include "aio/backend.h"

enum { AIO_REASON_BYTES = 256 };

/* 0 if it works here, else -errno (-ENOSYS, -EPERM, -ENOTSUP when not built in ...). `reason` says
 * why in words in either case. Nothing stays open. */
int aio_probe_uring(char *reason, size_t bytes);
int aio_probe_libaio(char *reason, size_t bytes);
int aio_probe_threads(char *reason, size_t bytes);

/* The back end of that name: uring (io_uring), libaio, threads, mem. NULL: not known or not
 * built in. */
const struct aio_backend *aio_backend_find(const char *name);

/* Picks a back end. `wanted` NULL or "auto": io_uring, else libaio where `direct` (buffered libaio
 * blocks in submit), else threads; any other name: that one or an error that says why not.
 * `reason` (may be NULL) tells what was picked and why. */
int aio_backend_choose(const char *wanted, bool direct, char *reason, size_t bytes,
                       const struct aio_backend **out);

#endif
