/* topo_none.c: what a build without hwloc answers; the live machine is then read from sysfs. */
#include <errno.h>

#include "core/base/err.h"
#include "core/base/topo_read.h"

int core_topo_read_hwloc(enum core_topo_from from, const char *text, struct core_topo *topo)
{
    (void)from;
    (void)topo;
    return core_err_set(-ENOTSUP, "this build has no hwloc: \"%s\" cannot be read",
                        text != NULL ? text : "");
}
