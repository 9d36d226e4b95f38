/* mpi.c: finds mpirun and sets the environment of its processes. */
#include "tests/harness/mpi.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/harness/test.h"

static void add_option(const char *name, const char *option)
{
    char text[1024];
    const char *before = getenv(name);
    snprintf(text, sizeof text, "%s%s%s", before != NULL ? before : "", before != NULL ? ":" : "",
             option);
    setenv(name, text, 1);
}

static bool have(const char *flavour)
{
    char module[1024];
    char command[128];
    const char *root = getenv("TIDE_BUILD_ROOT");
    snprintf(module, sizeof module, "%s/core/coll/tide_mpi_%s.so", root != NULL ? root : "build",
             flavour);
    snprintf(command, sizeof command, "command -v mpirun.%s >/dev/null", flavour);
    return access(module, R_OK) == 0 && system(command) == 0;
}

static void prepare(void)
{
    if (getenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM") == NULL) {
        setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
        setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
        add_option("ASAN_OPTIONS", "detect_leaks=0");
        add_option("TSAN_OPTIONS",
                   "ignore_noninstrumented_modules=1:detect_deadlocks=0:report_mutex_bugs=0");
    }
}

void test_mpi_begin(void)
{
    if (!have("openmpi")) {
        test_skip("no Open MPI");
    }
    prepare();
}

void test_mpich_begin(void)
{
    if (!have("mpich")) {
        test_skip("no MPICH");
    }
    /* Under ThreadSanitizer, UCX's hook in madvise would crash in a thread that ends. */
    setenv("UCX_MEM_EVENTS", "no", 1);
    prepare();
}
