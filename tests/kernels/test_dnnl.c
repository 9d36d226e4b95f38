/* test_dnnl.c: the CPU device if oneDNN is missing, is another version, fails, or exceeds TIDE_ISA.
 * Linked with --wrap=dlopen and dlsym. */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>

#include "core/base/cpus.h"
#include "core/base/err.h"
#include "kernels/cpu/table.h"
#include "tests/harness/child.h"
#include "tests/harness/fail_alloc.h"
#include "tests/harness/test.h"

static struct {
    bool missing;         /* the library is not found */
    const char *absent;   /* the library has no function of this name */
    const char *replaced; /* `by` replaces the function of this name */
    void *by;
} library;

void *__wrap_dlopen(const char *path, int flags);
void *__wrap_dlsym(void *handle, const char *name);
void *__real_dlopen(const char *path, int flags);
void *__real_dlsym(void *handle, const char *name);

void *__wrap_dlopen(const char *path, int flags)
{
    return __real_dlopen(library.missing ? "libnowhere.so.2" : path, flags);
}

void *__wrap_dlsym(void *handle, const char *name)
{
    if (library.absent != NULL && strcmp(name, library.absent) == 0) {
        return NULL;
    }
    return library.replaced != NULL && strcmp(name, library.replaced) == 0
               ? library.by
               : __real_dlsym(handle, name);
}

static int create(struct kern_cpu **out)
{
    const struct kern_options options = {.products = KERN_PRODUCTS_ONEDNN};
    return kern_cpu_create(&options, out);
}

static void needs_library(void)
{
    struct kern_cpu *cpu = NULL;
    library.missing = false;
    if (create(&cpu) == -ENOTSUP) {
        test_skip("%s", core_err_message());
    }
    check_contains(kern_cpu_describe(cpu), "oneDNN");
    kern_cpu_destroy(cpu);
}

static void check_refused(int rc, const char *message)
{
    struct kern_cpu *cpu = NULL;
    check_int(create(&cpu), ==, rc);
    check_contains(core_err_message(), message);
    check_true(cpu == NULL);
    memset(&library, 0, sizeof library);
}

/* The message about an unusable library names what is missing. */
static void another_library(void)
{
    needs_library();
    library.missing = true;
    check_refused(-ENOTSUP, "oneDNN cannot be loaded: libnowhere.so.2");
    library.absent = "dnnl_matmul_desc_init";
    check_refused(-ENOTSUP, "libdnnl.so.2 has no dnnl_matmul_desc_init");
    library.absent = "omp_set_num_threads";
    check_refused(-ENOTSUP, "libdnnl.so.2 has no omp_set_num_threads");
}

enum { DNNL_OUT_OF_MEMORY = 1, DNNL_RUNTIME_ERROR = 5 };

static int no_memory(void)
{
    return DNNL_OUT_OF_MEMORY;
}

static int broken(void)
{
    return DNNL_RUNTIME_ERROR;
}

static void replace(const char *name, int (*by)(void))
{
    union {
        int (*function)(void);
        void *object;
    } symbol = {.function = by};
    library.replaced = name;
    library.by = symbol.object;
}

/* Errors of the library are reported with their numbers. */
static void failing_start(void)
{
    needs_library();
    replace("dnnl_engine_create", no_memory);
    check_refused(-ENOMEM, "oneDNN failed to start (status 1)");
    replace("dnnl_stream_create", broken);
    check_refused(-EIO, "oneDNN failed to start (status 5)");
}

static int life(void)
{
    struct kern_cpu *cpu = NULL;
    const int rc = create(&cpu);
    kern_cpu_destroy(cpu);
    return rc;
}

static void failing_allocations(void)
{
    needs_library();
    check_int(test_fail_nth(life), >=, 3);
}

static int all_instructions(void)
{
    return 0x7fffffff;
}

static int with_limit(void *argument)
{
    struct kern_cpu *cpu = NULL;
    (void)argument;
    if (create(&cpu) != 0) {
        return 1;
    }
    kern_cpu_destroy(cpu);
    replace("dnnl_get_effective_cpu_isa", all_instructions);
    check_refused(-ENOTSUP, "oneDNN is in use by this process with more instructions than TIDE_ISA "
                            "allows");
    return 0;
}

/* With TIDE_ISA, oneDNN starts; it is refused if it already uses more instructions. */
static void limits(void)
{
    static const char *const names[] = {"scalar", "avx2", "avx512", "avx512_vnni"};
    if (TEST_RACES) {
        test_skip("one thread");
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        setenv("TIDE_ISA", names[i], 1);
        check_int(test_child(with_limit, NULL), ==, 0);
    }
    unsetenv("TIDE_ISA");
}

/* limits first: it needs an unused library */
TEST_MAIN({"limits", limits}, {"another_library", another_library},
          {"failing_start", failing_start}, {"failing_allocations", failing_allocations})
