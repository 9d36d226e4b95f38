/* backend.c: the registry of back ends, and the choice of one that works. */
#include "aio/backend.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"

static const struct aio_backend *const backends[] = {
#if HAVE_LIBURING
    &aio_uring,
#endif
#if HAVE_LIBAIO
    &aio_libaio,
#endif
    &aio_threads,
    &aio_mem,
};
static const char names[] = "auto, uring, libaio, threads, mem";

#if !HAVE_LIBURING
int aio_probe_uring(char *reason, size_t bytes)
{
    snprintf(reason, bytes, "built without liburing");
    return -ENOTSUP;
}
#endif

#if !HAVE_LIBAIO
int aio_probe_libaio(char *reason, size_t bytes)
{
    snprintf(reason, bytes, "built without libaio");
    return -ENOTSUP;
}
#endif

const struct aio_backend *aio_backend_find(const char *name)
{
    if (strcmp(name, "io_uring") == 0) {
        name = "uring";
    }
    for (size_t i = 0; i < sizeof backends / sizeof backends[0]; i++) {
        if (strcmp(backends[i]->name, name) == 0) {
            return backends[i];
        }
    }
    return NULL;
}

static int choose_auto(bool direct, char *reason, size_t bytes, const struct aio_backend **out)
{
    char uring[AIO_REASON_BYTES];
    char libaio[AIO_REASON_BYTES];
    if (aio_probe_uring(uring, sizeof uring) == 0) {
        snprintf(reason, bytes, "io_uring: works on this machine");
        *out = aio_backend_find("uring");
    } else if (!direct) {
        snprintf(reason, bytes, "threads: %.120s; libaio would block on buffered files", uring);
        *out = &aio_threads;
    } else if (aio_probe_libaio(libaio, sizeof libaio) == 0) {
        snprintf(reason, bytes, "libaio: %.200s", uring);
        *out = aio_backend_find("libaio");
    } else {
        snprintf(reason, bytes, "threads: %.110s; %.110s", uring, libaio);
        *out = &aio_threads;
    }
    return 0;
}

static int choose_named(const char *name, char *reason, size_t bytes,
                        const struct aio_backend **out)
{
    char why[AIO_REASON_BYTES] = "";
    const struct aio_backend *found = aio_backend_find(name);
    if (found == NULL) {
        bool absent = strcmp(name, "uring") == 0 || strcmp(name, "io_uring") == 0 ||
                      strcmp(name, "libaio") == 0;
        return core_err_set(absent ? -ENOTSUP : -EINVAL, "I/O back end \"%s\" is %s", name,
                            absent ? "not built in" : "not known");
    }
    int rc = found->probe(why, sizeof why);
    if (rc != 0) {
        return core_err_set(rc, "I/O back end %s was requested, but %s", name, why);
    }
    snprintf(reason, bytes, "%s: requested", found->name);
    *out = found;
    return 0;
}

int aio_backend_choose(const char *wanted, bool direct, char *reason, size_t bytes,
                       const struct aio_backend **out)
{
    char unused[AIO_REASON_BYTES];
    if (reason == NULL) {
        reason = unused;
        bytes = sizeof unused;
    }
    if (wanted == NULL || strcmp(wanted, "auto") == 0) {
        return choose_auto(direct, reason, bytes, out);
    }
    int rc = choose_named(wanted, reason, bytes, out);
    return rc == -EINVAL
               ? core_err_set(rc, "unknown I/O back end \"%s\" (one of %s)", wanted, names)
               : rc;
}
