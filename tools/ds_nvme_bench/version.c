/* version.c: gets the version from libtide. */
#include "tools/ds_nvme_bench/version.h"

#include <tide/tide.h>

const char *bench_version(void)
{
    return tide_version();
}

const char *bench_commit(void)
{
    struct tide_build build = {.struct_bytes = sizeof build};
    return tide_build_info(&build) == 0 ? build.commit : "unknown";
}

const char *bench_compiler(void)
{
    struct tide_build build = {.struct_bytes = sizeof build};
    return tide_build_info(&build) == 0 ? build.compiler : "unknown";
}
