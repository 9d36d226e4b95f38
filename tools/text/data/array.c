/* array.c: growing arrays: capacity grows by half. */
#include "tools/text/data/array.h"

#include <errno.h>
#include <stdlib.h>

#include "core/base/charge.h"
#include "core/base/err.h"

int array_reserve(const char *what, void *array, size_t *room, size_t count, size_t size)
{
    void **owned = array;
    if (count <= *room) {
        return 0;
    }
    void *more = core_charge_grow(*owned, (count + count / 2) * size);
    if (more == NULL) {
        return core_err_set(-ENOMEM, "no memory for %zu %s", count, what);
    }
    *owned = more;
    *room = count + count / 2;
    return 0;
}
